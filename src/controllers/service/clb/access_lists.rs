//! Which Services may have an access control list, so that only those are asked for theirs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::alibaba::slb::Slb;
use crate::alibaba::{Fault, FaultKind};
use crate::plan::inputs::ServiceView;
use crate::plan::provenance::Unclaimed;
use crate::plan::service::orphans::{OrphanedAccessList, unclaimed_access_lists};
use crate::plan::service::settings::ServiceSettings;

/// Time between tries to list them.
const RETRY: Duration = Duration::from_secs(60);

/// Names of the access control lists that there were at first, and of those wanted since.
#[derive(Debug)]
pub(in crate::controllers::service) struct AccessLists {
    slb: Slb,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    known: BTreeSet<String>,
    listed: bool,
    failed_at: Option<Instant>,
}

impl AccessLists {
    pub(super) fn new(slb: Slb) -> Self {
        Self { slb, names: Mutex::default() }
    }

    /// The lists that carry the id of this cluster and that no Service claims.
    pub(in crate::controllers::service) async fn unclaimed(
        &self,
        services: &[Arc<ServiceView>],
        settings: &ServiceSettings,
    ) -> Result<Vec<Unclaimed<OrphanedAccessList>>, Fault> {
        let lists = self.slb.list_access_lists().await?;
        let lists = lists.iter().map(|list| (list.id.as_str(), list.name.as_str(), &list.tags));
        Ok(unclaimed_access_lists(lists, services, settings))
    }

    /// The Service is gone whose list has this name.
    pub(super) async fn forget(&self, name: &str) {
        self.names.lock().await.known.remove(name);
    }

    /// Whether a list of this name may be there, or is `wanted`. While lists cannot be listed, only those that were wanted
    /// count: no other Service waits for them.
    pub(super) async fn may_exist(&self, name: &str, wanted: bool) -> bool {
        let mut names = self.names.lock().await;
        let is_retry_due = names.failed_at.is_none_or(|failed_at| failed_at.elapsed() >= RETRY);
        if !names.listed && is_retry_due {
            match self.slb.list_access_lists().await {
                Ok(found) => {
                    names.known.extend(found.into_iter().map(|list| list.name));
                    names.listed = true;
                }
                Err(fault) => {
                    warn!(code = "ACCM0765", %fault, "access control lists are only looked for where they are wanted");
                    // Without the permission, another try would meet the same.
                    names.listed = matches!(fault.kind, FaultKind::Denied | FaultKind::Rejected);
                    names.failed_at = Some(Instant::now());
                }
            }
        }
        if wanted {
            names.known.insert(name.to_owned());
        }
        names.known.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use sim::cloud::{Account, Cloud};

    use super::*;
    use crate::alibaba::tests::simulated::{REGION, client_of};

    #[tokio::test]
    async fn a_name_is_known_for_as_long_as_its_service_is_there() {
        let cloud = Cloud::new(Account::new(REGION));
        let lists = AccessLists::new(client_of(&cloud).slb);
        assert!(!lists.may_exist("k8s/acl/web", false).await);
        assert!(lists.may_exist("k8s/acl/web", true).await && lists.may_exist("k8s/acl/web", false).await);
        lists.forget("k8s/acl/web").await;
        assert!(!lists.may_exist("k8s/acl/web", false).await);
    }
}
