//! What source ranges mean for a load balancer: the families of addresses that it has decide which rules keep clients out.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::desired::{Desired, DesiredAccess};
use super::model::{CreateSecurityGroup, InstanceField, InstanceFields, SecurityRule};
use super::observed::Observed;
use super::operation::Plan;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::desire::SOURCE_RANGES;
use crate::plan::loadbalancer::problem::ServiceProblem;

/// Most rules of a security group that accept; those that drop, and some that are added manually, have room beside them.
const MOST_RANGES: usize = 190;
/// The version of addresses of a load balancer with both families.
pub(super) const DUAL_STACK: &str = "DualStack";

/// What is desired of the load balancer that is there. It keeps the families of addresses that it was made with, whatever the
/// annotation says now, and neither may let everybody in.
pub(super) fn resolved<'a>(desired: &'a Desired, observed: &Observed, plan: &mut Plan) -> Cow<'a, Desired> {
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
pub(super) fn restrict(desired: &mut Desired, dual_stack: bool) -> Result<(), ServiceProblem> {
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
