//! `spec.loadBalancerSourceRanges`, as a security group of ours.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::desire::{self, SOURCE_RANGES};
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::nlb::annotations::{Annotations, Name};
use crate::plan::nlb::desired::{Desired, DesiredAccess};
use crate::plan::nlb::model::{CreateSecurityGroup, InstanceField, MOST_SECURITY_GROUPS, SecurityRule};

/// Most rules of a security group that accept; those that drop, and some that are added manually, have room beside them.
const MOST_RANGES: usize = 190;

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
    let given = service.source_ranges.join(",");
    let ignored = |given: &str, why: String| ServiceProblem::ignored(SOURCE_RANGES, given, why);
    if desired.reuse.is_some() || !desired.manage.keeps(ManagementLevel::All) {
        let keys = [Name::Id, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        let why = format!("the load balancer is yours, or unmanaged; see {keys}");
        desired.warnings.push(ignored(&given, why));
        return Some(());
    }
    let ranges = desire::source_ranges(service, desired)?;
    let ports = || service.ports.iter().map(|port| port.port);
    let dual_stack = annotations.is(Name::IpVersion, "DualStack");
    let (ranges, others): (BTreeSet<IpNet>, BTreeSet<IpNet>) =
        ranges.into_iter().partition(|block| dual_stack || matches!(block, IpNet::V4(_)));
    if !others.is_empty() {
        let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        desired.warnings.push(ignored(&list, "the load balancer has no IPv6 address".to_owned()));
    }
    if ranges.len() > MOST_RANGES {
        let rule = format!("must have at most {MOST_RANGES} blocks");
        desired.problems.listeners(ports(), ServiceProblem::invalid(SOURCE_RANGES, given, rule));
        return None;
    }
    if desired.instance.security_group_ids.as_ref().is_some_and(|ids| ids.len() >= MOST_SECURITY_GROUPS) {
        let rule = format!("must have at most {} beside the one that keeps {SOURCE_RANGES}", MOST_SECURITY_GROUPS - 1);
        desired.problems.listeners(ports(), annotations.invalid(Name::SecurityGroupIds, rule));
        return None;
    }
    let whole = |v6: bool| match v6 {
        false => IpNet::V4(Ipv4Net::default()),
        true => IpNet::V6(Ipv6Net::default()),
    };
    // Of a family that is let in whole, nothing is dropped.
    let dropped = [false, true].into_iter().filter(|v6| dual_stack || !v6).map(whole);
    let drops = dropped.filter(|block| !ranges.contains(block)).map(|source| SecurityRule { drops: true, source });
    let rules: BTreeSet<SecurityRule> =
        ranges.iter().map(|source| SecurityRule { drops: false, source: *source }).chain(drops).collect();
    if rules.iter().any(|rule| rule.drops) {
        let owner = &desired.owner;
        let create = CreateSecurityGroup {
            name: owner.security_group_name(),
            description: owner.security_mark(),
            resource_group_id: desired.instance.create.fields.get(&InstanceField::ResourceGroup).cloned(),
            tags: owner.tags(),
        };
        desired.access = Some(DesiredAccess { create, rules });
    }
    Some(())
}
