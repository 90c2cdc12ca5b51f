//! Deleting a classic load balancer or an access control list without an owner.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::ClbProduct;
use crate::alibaba::{CloudClient, Fault};
use crate::controllers::orphan::{NotDeleted, Orphan, permit};
use crate::fence::Fence;
use crate::plan::clb::model::{InstanceField, InstanceFields};
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::orphans::{OrphanedAccessList, OrphanedInstance, unclaimed_access_lists};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::provenance::Unclaimed;

impl ClbProduct {
    /// The access control lists that carry the id of this cluster and that no Service claims.
    pub(in crate::controllers::loadbalancer) async fn unclaimed_access_lists(
        &self,
        services: &[Arc<ServiceView>],
        settings: &ServiceSettings,
    ) -> Result<Vec<Unclaimed<OrphanedAccessList>>, Fault> {
        let lists = self.clb.list_access_lists().await?;
        let lists = lists.iter().map(|list| (list.id.as_str(), list.name.as_str(), &list.tags));
        Ok(unclaimed_access_lists(lists, services, settings))
    }
}

/// A classic load balancer whose Service does not exist.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(in crate::controllers::loadbalancer) struct ClbOrphan(pub(in crate::controllers::loadbalancer) OrphanedInstance);

impl fmt::Display for ClbOrphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Orphan for ClbOrphan {
    const KIND: &'static str = "load_balancer";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        let unprotected = InstanceFields::from_iter([(InstanceField::DeleteProtection, "off".to_owned())]);
        cloud.clb.set_instance(&permit(fence)?, &self.0.id, &unprotected).await?;
        Ok(cloud.clb.delete_instance(&permit(fence)?, &self.0.id).await?)
    }
}

impl Orphan for OrphanedAccessList {
    const KIND: &'static str = "access_list";

    /// Only a list that still has its name.
    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        if cloud.clb.find_access_list(&self.name).await?.is_some_and(|found| found.id == self.id) {
            cloud.clb.delete_access_list(&permit(fence)?, &self.id).await?;
        }
        Ok(())
    }
}
