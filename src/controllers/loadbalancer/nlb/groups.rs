//! Server groups and security groups whose Service is not there.

use std::sync::Arc;

use super::NlbProduct;
use crate::alibaba::Fault;
use crate::alibaba::nlb::GroupFilter;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::orphans::{OrphanedInstance, TaggedInstance, UnclaimedGroups, unclaimed_groups};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::provenance::Unclaimed;

impl NlbProduct {
    pub(in crate::controllers::loadbalancer) async fn unclaimed_groups(
        &self,
        services: &[Arc<ServiceView>],
        instances: &[Unclaimed<OrphanedInstance>],
        settings: &ServiceSettings,
    ) -> Result<UnclaimedGroups, Fault> {
        let (key, value) = (settings.cluster_tag.as_str(), settings.cluster_id.as_str());
        let groups = self.api.list_groups(GroupFilter::Tag(key, value)).await?;
        let groups = groups.iter().map(|group| {
            let (vpc_id, tags) = (group.details.vpc_id.as_str(), &group.details.tags);
            let used_by = group.details.load_balancers.iter().map(String::as_str).collect();
            (TaggedInstance { id: &group.id, name: &group.name, address: "", vpc_id, tags }, used_by)
        });
        let security_groups = self.ecs.find_security_groups(key, value).await?;
        // One that preserve-lb-on-delete keeps stays with its load balancer.
        let balancers = if security_groups.is_empty() { Vec::new() } else { self.api.find_all().await? };
        let security_groups = security_groups.iter().map(|group| {
            let (vpc_id, tags) = (group.vpc_id.as_str(), &group.tags);
            let used_by = balancers.iter().filter(|it| it.security_group_ids.contains(&group.id));
            let used_by = used_by.map(|it| it.id.as_str()).collect();
            (TaggedInstance { id: &group.id, name: &group.name, address: "", vpc_id, tags }, used_by)
        });
        let all: Vec<_> = groups.chain(security_groups).collect();
        Ok(unclaimed_groups(&all, services, instances, settings))
    }
}
