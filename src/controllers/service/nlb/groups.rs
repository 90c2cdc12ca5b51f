//! Server groups and security groups that outlived their load balancer and their Service.

use std::sync::Arc;

use super::NetworkProduct;
use crate::alibaba::Fault;
use crate::alibaba::nlb::GroupFilter;
use crate::plan::inputs::ServiceView;
use crate::plan::provenance::Unclaimed;
use crate::plan::service::orphans::{OrphanedGroup, OrphanedInstance, TaggedInstance, unclaimed_groups};
use crate::plan::service::settings::ServiceSettings;

impl NetworkProduct {
    pub(in crate::controllers::service) async fn unclaimed_groups(
        &self,
        services: &[Arc<ServiceView>],
        instances: &[Unclaimed<OrphanedInstance>],
        settings: &ServiceSettings,
    ) -> Result<Vec<Unclaimed<OrphanedGroup>>, Fault> {
        let (key, value) = (settings.cluster_tag.as_str(), settings.cluster_id.as_str());
        let groups = self.api.list_groups(GroupFilter::Tag(key, value)).await?;
        let unused = groups.iter().filter(|group| group.details.load_balancers.is_empty());
        let unused = unused.map(|group| {
            let (vpc_id, tags) = (group.details.vpc_id.as_str(), &group.details.tags);
            TaggedInstance { id: &group.id, name: &group.name, address: "", vpc_id, tags }
        });
        let mut found = unclaimed_groups(unused, services, instances, settings);
        let groups = self.ecs.find_security_groups(key, value).await?;
        let all = groups.iter().map(|group| {
            let (vpc_id, tags) = (group.vpc_id.as_str(), &group.tags);
            TaggedInstance { id: &group.id, name: &group.name, address: "", vpc_id, tags }
        });
        let mut security_groups = unclaimed_groups(all, services, instances, settings);
        if !security_groups.is_empty() {
            // One that preserve-lb-on-delete keeps stays with its load balancer.
            let balancers = self.api.find_all().await?;
            security_groups.retain(|group| !balancers.iter().any(|it| it.security_group_ids.contains(&group.what.id)));
        }
        found.append(&mut security_groups);
        Ok(found)
    }
}
