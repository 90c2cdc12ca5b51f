//! `spec.loadBalancerSourceRanges`, as a security group of ours.

use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::desire::{self, SOURCE_RANGES};
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::nlb::annotations::{Annotations, Name};
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::MOST_SECURITY_GROUPS;
use crate::plan::nlb::restriction::{DUAL_STACK, restrict};

/// Adds what the Service asks for. Ranges that let every address in ask for nothing.
pub(super) fn add(desired: &mut Desired, service: &ServiceView, annotations: &Annotations) {
    if !service.source_ranges.is_empty() {
        desired.extra.is_access_unknown = add_ranges(desired, service, annotations).is_none();
    }
    let is_known = !desired.extra.is_access_unknown;
    let managed = desired.reuse.is_none() && desired.manage.keeps(ManagementLevel::All) && is_known;
    desired.remember(applied::SOURCE_RANGES, desired.access.is_some(), managed);
}

/// `None` if a mistake leaves it open who may connect.
fn add_ranges(desired: &mut Desired, service: &ServiceView, annotations: &Annotations) -> Option<()> {
    if desired.reuse.is_some() || !desired.manage.keeps(ManagementLevel::All) {
        let keys = [Name::Id, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        let why = format!("the load balancer is yours, or unmanaged; see {keys}");
        desired.warnings.push(ServiceProblem::ignored(SOURCE_RANGES, service.source_ranges.join(","), why));
        return Some(());
    }
    desired.extra.ranges = desire::source_ranges(service, desired)?;
    let ids = desired.instance.security_group_ids.as_ref();
    let restricted = if ids.is_some_and(|ids| ids.len() >= MOST_SECURITY_GROUPS) {
        let most = MOST_SECURITY_GROUPS - 1;
        let rule = format!("must have at most {most} beside the one that keeps {SOURCE_RANGES}");
        Err(annotations.invalid(Name::SecurityGroupIds, rule))
    } else {
        restrict(desired, annotations.is(Name::IpVersion, DUAL_STACK))
    };
    restricted.map_err(|problem| desired.problems.listeners(desired.places.clone(), problem)).ok()
}
