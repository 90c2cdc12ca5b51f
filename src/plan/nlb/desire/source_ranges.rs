//! `spec.loadBalancerSourceRanges`, as a security group of ours.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::desire::{self, SOURCE_RANGES};
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::nlb::annotations::{Annotations, Name};
use crate::plan::nlb::desired::{Desired, DesiredAccess};
use crate::plan::nlb::model::{CreateSecurityGroup, InstanceField, InstanceFields, MOST_SECURITY_GROUPS, SecurityRule};
use crate::plan::nlb::observed::Observed;
use crate::plan::nlb::operation::Plan;

/// Most rules of a security group that accept; those that drop, and some that are added manually, have room beside them.
const MOST_RANGES: usize = 190;
const DUAL_STACK: &str = "DualStack";

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
    let ports = service.ports.iter().map(|port| port.port);
    restricted.map_err(|problem| desired.problems.listeners(ports, problem)).ok()
}

/// What is desired of the load balancer that is there. It keeps the families of addresses that it was made with, whatever the
/// annotation says now, and neither may let everybody in.
pub(in crate::plan::nlb) fn resolved<'a>(
    desired: &'a Desired,
    observed: &Observed,
    plan: &mut Plan,
) -> Cow<'a, Desired> {
    let is_dual = |fields: &InstanceFields| fields.is(InstanceField::IpVersion, DUAL_STACK);
    if is_dual(&desired.instance.create.fields) || desired.extra.ranges.is_empty() {
        return Cow::Borrowed(desired);
    }
    if !observed.instance.as_ref().is_some_and(|instance| is_dual(&instance.fields)) {
        let others: Vec<_> =
            desired.extra.ranges.iter().filter(|block| !is_v4(block)).map(ToString::to_string).collect();
        if !others.is_empty() {
            let why = "the load balancer has no IPv6 address";
            plan.warnings.push(ServiceProblem::ignored(SOURCE_RANGES, others.join(", "), why));
        }
        return Cow::Borrowed(desired);
    }
    let mut resolved = desired.clone();
    if let Err(problem) = restrict(&mut resolved, true) {
        resolved.extra.is_access_unknown = true;
        plan.problem(problem);
    }
    Cow::Owned(resolved)
}

const fn is_v4(block: &IpNet) -> bool {
    matches!(block, IpNet::V4(_))
}

/// Lets only the ranges in, or says why not: on a load balancer with both families of addresses, or one.
fn restrict(desired: &mut Desired, dual_stack: bool) -> Result<(), ServiceProblem> {
    let given = &desired.extra.ranges;
    let ranges: BTreeSet<IpNet> = given.iter().filter(|block| dual_stack || is_v4(block)).copied().collect();
    if ranges.len() > MOST_RANGES {
        let given = given.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let rule = format!("must have at most {MOST_RANGES} blocks");
        return Err(ServiceProblem::invalid(SOURCE_RANGES, given, rule));
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
    Ok(())
}
