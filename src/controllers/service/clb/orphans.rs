//! Deleting a classic load balancer or an access control list without an owner.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::ClassicProduct;
use crate::alibaba::{CloudClient, Fault};
use crate::controllers::orphan::{Orphan, permit};
use crate::fence::Fence;
use crate::plan::clb::model::InstanceField;
use crate::plan::inputs::ServiceView;
use crate::plan::provenance::Unclaimed;
use crate::plan::service::orphans::{OrphanedAccessList, OrphanedInstance, unclaimed_access_lists};
use crate::plan::service::settings::ServiceSettings;

impl ClassicProduct {
    /// The access control lists that carry the id of this cluster and that no Service claims.
    pub(in crate::controllers::service) async fn unclaimed_access_lists(
        &self,
        services: &[Arc<ServiceView>],
        settings: &ServiceSettings,
    ) -> Result<Vec<Unclaimed<OrphanedAccessList>>, Fault> {
        let lists = self.slb.list_access_lists().await?;
        let lists = lists.iter().map(|list| (list.id.as_str(), list.name.as_str(), &list.tags));
        Ok(unclaimed_access_lists(lists, services, settings))
    }
}

/// A classic load balancer whose Service does not exist.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(in crate::controllers::service) struct ClassicOrphan(pub(in crate::controllers::service) OrphanedInstance);

impl fmt::Display for ClassicOrphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Orphan for ClassicOrphan {
    const KIND: &'static str = "load_balancer";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), String> {
        delete(cloud, fence, &self.0.id).await.map_err(|fault| fault.to_string())
    }
}

impl Orphan for OrphanedAccessList {
    const KIND: &'static str = "access_list";

    async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), String> {
        delete_access_list(cloud, fence, self).await.map_err(|fault| fault.to_string())
    }
}

/// Deletes a list that still has its name.
async fn delete_access_list(cloud: &CloudClient, fence: &Fence, list: &OrphanedAccessList) -> Result<(), Fault> {
    match cloud.slb.find_access_list(&list.name).await? {
        Some(found) if found.id == list.id => cloud.slb.delete_access_list(&permit(fence)?, &list.id).await,
        _ => Ok(()),
    }
}

async fn delete(cloud: &CloudClient, fence: &Fence, id: &str) -> Result<(), Fault> {
    let unprotected = [(InstanceField::DeleteProtection, "off".to_owned())].into();
    cloud.slb.set_instance(&permit(fence)?, id, &unprotected).await?;
    cloud.slb.delete_instance(&permit(fence)?, id).await
}
