//! Records of this cluster whose Service or node does not exist, for `gc`.

use super::{NAME, Watches, read};
use crate::alibaba::CloudClient;
use crate::config::Config;
use crate::controllers::Clients;
use crate::controllers::orphan::{NotDeleted, Orphan, Orphans, permit};
use crate::fence::Fence;
use crate::plan::inputs::ObjectKey;
use crate::plan::provenance::{Provenance, Unclaimed};
use crate::plan::pvtz::orphans::{OrphanedRecord, orphaned};

/// If the file lists the controller; without it no zone is known.
pub async fn orphans(clients: &Clients, config: &Config) -> Orphans {
    let mut orphans = Orphans::default();
    if !config.controllers.contains(NAME) {
        return orphans;
    }
    let watches = Watches::open(&clients.cluster);
    match read(clients, config, &watches).await {
        Ok((rules, _, records)) => {
            let Watches { services, nodes, .. } = &watches;
            let exists = |owner: &ObjectKey| match &*owner.namespace {
                "" => nodes.store.is_empty() || nodes.store.has(owner),
                _ => services.store.has(owner),
            };
            // The remark is made of the uid.
            let ours = |what| Unclaimed { what, provenance: Provenance::ThisCluster };
            orphans.add(orphaned(&records, &rules, exists).into_iter().map(ours));
        }
        Err(why) => orphans.problems.push(format!("no record of the private zone is judged: {why}")),
    }
    orphans
}

impl Orphan for OrphanedRecord {
    const KIND: &'static str = "record";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        Ok(cloud.pvtz.delete_record(&permit(fence)?, &self.id).await?)
    }
}
