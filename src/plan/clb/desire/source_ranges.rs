//! `spec.loadBalancerSourceRanges`, as an access control list of ours.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::desired::DesiredAccess;
use crate::plan::clb::model::{ListenerField as Field, ListenerFields};
use crate::plan::clb::operation::CreateAccessList;
use crate::plan::inputs::ServiceView;
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::ServiceProblem;

/// Most entries of a list.
const MOST_ENTRIES: usize = 300;
const FIELD: &str = "spec.loadBalancerSourceRanges";

/// What the Service asks for. Ranges that let everybody in ask for nothing.
pub(super) fn wanted(
    service: &ServiceView,
    annotations: &Annotations,
    owner: &Owner,
    managed: bool,
    (problems, warnings): (&mut Vec<ServiceProblem>, &mut Vec<ServiceProblem>),
) -> Option<DesiredAccess> {
    if service.source_ranges.is_empty() {
        return None;
    }
    let given = service.source_ranges.join(",");
    let about = |allowed: String| ServiceProblem { field: FIELD.to_owned(), given: given.clone(), allowed };
    let stated =
        [Name::AclStatus, Name::AclId, Name::AclType].into_iter().find(|name| annotations.get(*name).is_some());
    if let Some(name) = stated {
        let key = annotations.key(name);
        problems.push(about(format!("either these ranges or the annotation {key}: both say who may connect")));
        return None;
    }
    if !managed {
        let keys = [Name::ForceOverrideListeners, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        warnings.push(about(format!("no effect: the listeners are not managed; see {keys}")));
        return None;
    }
    let mut all: BTreeSet<IpNet> = BTreeSet::new();
    for range in &service.source_ranges {
        match range.trim().parse::<IpNet>() {
            Ok(block) => drop(all.insert(block.trunc())),
            Err(_) => problems.push(ServiceProblem {
                field: FIELD.to_owned(),
                given: range.clone(),
                allowed: "blocks such as 10.0.0.0/8".to_owned(),
            }),
        }
    }
    let ip_version = annotations.text(Name::IpVersion).unwrap_or_else(|| "ipv4".to_owned());
    let (entries, others): (BTreeSet<IpNet>, BTreeSet<IpNet>) =
        all.into_iter().partition(|block| matches!(block, IpNet::V6(_)) == (ip_version == "ipv6"));
    if entries.iter().any(|block| block.prefix_len() == 0) {
        return None;
    }
    if entries.len() > MOST_ENTRIES {
        problems.push(about(format!("at most {MOST_ENTRIES} blocks")));
        return None;
    }
    if entries.is_empty() {
        if !others.is_empty() {
            problems.push(about(format!("at least one block of {ip_version}, which the load balancer speaks")));
        }
        return None;
    }
    if !others.is_empty() {
        let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        warnings.push(about(format!("no effect of {list}: the load balancer speaks {ip_version}")));
    }
    let tags = BTreeMap::from([(owner.cluster_tag.clone(), owner.cluster_id.clone())]);
    Some(DesiredAccess { create: CreateAccessList { name: owner.access_list_name(), ip_version, tags }, entries })
}

/// Attributes of listeners that the list protects.
pub(super) fn fields(wanted: &DesiredAccess) -> ListenerFields {
    ListenerFields::from([
        (Field::AclStatus, "on".to_owned()),
        (Field::AclType, "white".to_owned()),
        (Field::AclId, wanted.create.name.clone()),
    ])
}
