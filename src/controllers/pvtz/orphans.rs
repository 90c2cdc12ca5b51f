//! Records of this cluster whose Service or node does not exist, or in a zone that the file does not name, for `gc`.

use super::{NAME, Watches, read};
use crate::alibaba::pvtz::PrivateZone;
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::config::Config;
use crate::controllers::Clients;
use crate::controllers::orphan::{NotDeleted, Orphan, Orphans, Unjudged, permit};
use crate::fence::Fence;
use crate::plan::inputs::ObjectKey;
use crate::plan::provenance::{Provenance, Unclaimed};
use crate::plan::pvtz::diff::RecordRules;
use crate::plan::pvtz::orphans::{OrphanedRecord, orphaned};

/// If the file lists the controller; without it no zone is known.
pub async fn orphans(clients: &Clients, config: &Config) -> Orphans {
    let mut orphans = Orphans::default();
    if !config.controllers.contains(NAME) {
        return orphans;
    }
    let watches = Watches::open(&clients.cluster);
    match read(clients, config, &watches).await {
        Ok((rules, _, state)) => {
            let Watches { services, nodes, .. } = &watches;
            let exists = |owner: &ObjectKey| match &*owner.namespace {
                "" => nodes.store.is_empty() || nodes.store.has(owner),
                _ => services.store.has(owner),
            };
            // The remark is made of the uid.
            let ours = |what| Unclaimed { what, provenance: Provenance::ThisCluster };
            orphans.add(orphaned(&state.records, &rules, Some(&exists)).into_iter().map(ours));
            match elsewhere(clients, &state.zone, rules).await {
                Ok(found) => orphans.add(found.into_iter().map(ours)),
                // The controller itself does without the permission.
                Err(fault) if fault.kind == FaultKind::Denied => {}
                Err(fault) => {
                    orphans.problems.push(Unjudged::by("zones that [pvtz] does not name could not be read", &fault));
                }
            }
        }
        Err(why) => orphans.problems.push(format!("no record of the private zone is judged: {why}").into()),
    }
    orphans
}

/// Records in zones of the VPC that the file does not name.
async fn elsewhere(clients: &Clients, used: &PrivateZone, rules: RecordRules) -> Result<Vec<OrphanedRecord>, Fault> {
    let Clients { cloud, location, .. } = clients;
    let mut found = Vec::new();
    for zone in cloud.pvtz.zones_of(&location.vpc_id).await? {
        if zone.id != used.id {
            let (records, _) = cloud.pvtz.list_records(&zone.id).await?;
            found.extend(orphaned(&records, &RecordRules { zone: zone.name, ..rules.clone() }, None));
        }
    }
    Ok(found)
}

impl Orphan for OrphanedRecord {
    const KIND: &'static str = "record";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        Ok(cloud.pvtz.delete_record(&permit(fence)?, &self.id).await?)
    }
}
