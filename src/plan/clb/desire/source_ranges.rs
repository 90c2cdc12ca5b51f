//! `spec.loadBalancerSourceRanges`, as an access control list of ours.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::plan::clb::annotations::{Annotations, Name, listener_fields};
use crate::plan::clb::desired::{Desired, DesiredAccess};
use crate::plan::clb::model::{CreateAccessList, ListenerField as Field, ListenerFields, MOST_ENTRIES, Protocol};
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::desire::{self, SOURCE_RANGES};
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::problem::ServiceProblem;

type Blocks = BTreeSet<IpNet>;

/// Adds what the Service asks for. Ranges that let everybody in ask for nothing.
pub(super) fn add(desired: &mut Desired, service: &ServiceView, annotations: &Annotations) {
    if !service.source_ranges.is_empty() {
        add_ranges(desired, service, annotations);
    }
    let counts = !desired.extra.inherited || desired.applied.contains(applied::SOURCE_RANGES);
    desired.remember(applied::SOURCE_RANGES, desired.access.is_some() && counts, desired.changes_listeners());
}

fn add_ranges(desired: &mut Desired, service: &ServiceView, annotations: &Annotations) {
    let given = service.source_ranges.join(",");
    let ignored = |why: String| ServiceProblem::ignored(SOURCE_RANGES, &given, why);
    if annotations.is(Name::AclStatus, "on") {
        let key = annotations.key(Name::AclStatus);
        desired.warnings.push(ignored(format!("{key} is on, and its lists say who may connect")));
        return;
    }
    if !desired.manage_listeners || !desired.manage.keeps(ManagementLevel::Listeners) {
        let keys = [Name::ForceOverrideListeners, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        desired.warnings.push(ignored(format!("the listeners are not managed; see {keys}")));
        return;
    }
    let ip_version = annotations.text(Name::IpVersion).unwrap_or_else(|| "ipv4".to_owned());
    let Some(ranges) = desire::source_ranges(service, desired) else { return };
    let (entries, others): (Blocks, Blocks) =
        ranges.into_iter().partition(|block| matches!(block, IpNet::V6(_)) == (ip_version == "ipv6"));
    if entries.iter().any(|block| block.prefix_len() == 0) {
        return;
    }
    let refusal = match entries.len() {
        0 => format!("must have at least one block of {ip_version}, which the load balancer speaks"),
        count if count > MOST_ENTRIES => format!("must have at most {MOST_ENTRIES} blocks"),
        _ => String::new(),
    };
    if !refusal.is_empty() {
        let problem = ServiceProblem::invalid(SOURCE_RANGES, &given, refusal);
        desired.problems.listeners(desired.places.clone(), problem);
        return;
    }
    if !others.is_empty() {
        let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let why = format!("the load balancer speaks {ip_version}");
        desired.warnings.push(ServiceProblem::ignored(SOURCE_RANGES, list, why));
    }
    for name in
        [Name::AclStatus, Name::AclId, Name::AclType].into_iter().filter(|name| annotations.get(*name).is_some())
    {
        desired.warnings.push(annotations.ignored(name, format!("{SOURCE_RANGES} says who may connect")));
    }
    let (name, tags) = (desired.owner.access_list_name(), desired.owner.cluster_tags());
    let create = CreateAccessList { name, ip_version, tags };
    // They are the same for all protocols.
    let mut otherwise = listener_fields(annotations, Protocol::Tcp);
    otherwise.retain(|field, _| matches!(field, Field::AclStatus | Field::AclType | Field::AclId));
    desired.access = Some(DesiredAccess { create, entries, otherwise });
}

/// Attributes of listeners that the list protects.
pub(super) fn fields(wanted: &DesiredAccess) -> ListenerFields {
    ListenerFields::from([
        (Field::AclStatus, "on".to_owned()),
        (Field::AclType, "white".to_owned()),
        (Field::AclId, wanted.create.name.clone()),
    ])
}
