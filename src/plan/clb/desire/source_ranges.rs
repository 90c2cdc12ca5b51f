//! `spec.loadBalancerSourceRanges`, as an access control list of ours.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::plan::clb::annotations::{Annotations, Name};
use crate::plan::clb::desired::{Desired, DesiredAccess};
use crate::plan::clb::model::{ListenerField as Field, ListenerFields};
use crate::plan::clb::operation::CreateAccessList;
use crate::plan::inputs::ServiceView;
use crate::plan::service::management::ManagementLevel;
use crate::plan::service::problem::ServiceProblem;

type Blocks = BTreeSet<IpNet>;

/// Most entries of a list.
const MOST_ENTRIES: usize = 300;
const FIELD: &str = "spec.loadBalancerSourceRanges";

/// Adds what the Service asks for. Ranges that let everybody in ask for nothing.
pub(super) fn add(desired: &mut Desired, service: &ServiceView, annotations: &Annotations) {
    if service.source_ranges.is_empty() {
        return;
    }
    let given = service.source_ranges.join(",");
    let about = |allowed: String| ServiceProblem { field: FIELD.to_owned(), given: given.clone(), allowed };
    if annotations.is(Name::AclStatus, "on") {
        let key = annotations.key(Name::AclStatus);
        desired.warnings.push(about(format!("no effect: {key} is on, and its lists say who may connect")));
        return;
    }
    if !desired.manage_listeners || !desired.manage.keeps(ManagementLevel::Listeners) {
        let keys = [Name::ForceOverrideListeners, Name::Manage].map(|name| annotations.key(name)).join(" and ");
        desired.warnings.push(about(format!("no effect: the listeners are not managed; see {keys}")));
        return;
    }
    let ip_version = annotations.text(Name::IpVersion).unwrap_or_else(|| "ipv4".to_owned());
    match entries(service, &ip_version) {
        Ok((entries, _)) if entries.is_empty() => {}
        Ok((entries, others)) => {
            if !others.is_empty() {
                let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                desired.warnings.push(about(format!("no effect of {list}: the load balancer speaks {ip_version}")));
            }
            for name in [Name::AclStatus, Name::AclId, Name::AclType] {
                if annotations.get(name).is_some() {
                    desired
                        .warnings
                        .push(annotations.complaint(name, format!("no effect: {FIELD} says who may connect")));
                }
            }
            let (name, tags) = (desired.owner.access_list_name(), desired.owner.cluster_tags());
            let create = CreateAccessList { name, ip_version, tags };
            desired.access = Some(DesiredAccess { create, entries });
        }
        Err(problems) => {
            for (given, allowed) in problems {
                let problem = ServiceProblem { field: FIELD.to_owned(), given, allowed };
                desired.problems.listeners(service.ports.iter().map(|port| port.port), problem);
            }
        }
    }
}

/// Blocks of the address family that the load balancer speaks, and the others; none if they let everybody in. Errors are
/// what was given and what is allowed.
fn entries(service: &ServiceView, ip_version: &str) -> Result<(Blocks, Blocks), Vec<(String, String)>> {
    let parsed = service.source_ranges.iter().map(|range| (range, range.trim().parse::<IpNet>()));
    let (right, wrong): (Vec<_>, Vec<_>) = parsed.partition(|(_, parsed)| parsed.is_ok());
    if !wrong.is_empty() {
        return Err(wrong
            .into_iter()
            .map(|(range, _)| (range.clone(), "blocks such as 10.0.0.0/8".to_owned()))
            .collect());
    }
    let (entries, others): (Blocks, Blocks) = right
        .into_iter()
        .filter_map(|(_, block)| Some(block.ok()?.trunc()))
        .partition(|block| matches!(block, IpNet::V6(_)) == (ip_version == "ipv6"));
    if entries.iter().any(|block| block.prefix_len() == 0) {
        return Ok(Default::default());
    }
    let given = || service.source_ranges.join(",");
    if entries.len() > MOST_ENTRIES {
        return Err(vec![(given(), format!("at most {MOST_ENTRIES} blocks"))]);
    }
    if entries.is_empty() {
        return Err(vec![(given(), format!("at least one block of {ip_version}, which the load balancer speaks"))]);
    }
    Ok((entries, others))
}

/// Attributes of listeners that the list protects.
pub(super) fn fields(wanted: &DesiredAccess) -> ListenerFields {
    ListenerFields::from([
        (Field::AclStatus, "on".to_owned()),
        (Field::AclType, "white".to_owned()),
        (Field::AclId, wanted.create.name.clone()),
    ])
}
