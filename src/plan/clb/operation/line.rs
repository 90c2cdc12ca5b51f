//! Operations as text: one line each, the same for the same operation, for plans that people and tests read.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use ipnet::IpNet;

use super::Operation;
use crate::plan::clb::model::ListenerFields;
use crate::plan::service::group_operation::Backends;
use crate::plan::service::model::GroupRef;

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateInstance(wanted) => {
                write!(
                    f,
                    "create load balancer {} ({}, {}",
                    wanted.name, wanted.address_type, wanted.instance_charge_type
                )?;
                match wanted.vswitch_ids.first() {
                    Some(vswitch) => write!(f, ", {vswitch})"),
                    None => f.write_str(")"),
                }
            }
            Self::DeleteInstance { id } => write!(f, "delete load balancer {id}"),
            Self::SetName { name } => write!(f, "set name {name}"),
            Self::SetDeleteProtection { on } => write!(f, "set delete protection {}", if *on { "on" } else { "off" }),
            Self::SetModificationProtection { status, .. } => write!(f, "set modification protection {status}"),
            Self::SetInstanceChargeType { charge_type, spec } => {
                write!(f, "set instance charge type {charge_type}{}", in_brackets("spec", spec.as_ref()))
            }
            Self::SetSpec { spec } => write!(f, "set spec {spec}"),
            Self::SetInternetSpec { charge_type, bandwidth } => {
                write!(f, "set internet charge type {charge_type}{}", in_brackets("bandwidth", bandwidth.as_ref()))
            }
            Self::Tag { tags } => write!(f, "tag {}", pairs(tags)),
            Self::Untag { keys } => write!(f, "untag {}", keys.join(", ")),
            Self::CreateGroup { name, backends } => write!(f, "create group {name} with {}", Backends(backends)),
            Self::Group(operation) => operation.fmt(f),
            Self::CreateAccessList(wanted) => write!(f, "create access control list {}", wanted.name),
            Self::AddAccessEntries { name, entries } => write!(f, "add to {name}: {}", blocks(entries)),
            Self::RemoveAccessEntries { name, entries } => write!(f, "remove from {name}: {}", blocks(entries)),
            Self::DeleteAccessList { id, name } => write!(f, "delete access control list {name} ({id})"),
            Self::CreateListener { listener, group, fields, .. } => {
                write!(f, "create listener {listener}{}{}", arrow(group.as_ref()), attributes(fields))
            }
            // Most of the attributes are sent again unchanged; the reason of the step names those that change.
            Self::SetListener { listener, group, .. } => write!(f, "set listener {listener}{}", arrow(group.as_ref())),
            Self::StartListener { listener } => write!(f, "start listener {listener}"),
            Self::DeleteListener { listener } => write!(f, "delete listener {listener}"),
            Self::CreateDomainExtension { listener, domain, certificate_id } => {
                write!(f, "add certificate {certificate_id} for {domain} to listener {listener}")
            }
            Self::SetDomainExtension { listener, domain, certificate_id, .. } => {
                write!(f, "set certificate {certificate_id} for {domain} on listener {listener}")
            }
            Self::DeleteDomainExtension { listener, domain, .. } => {
                write!(f, "remove certificate for {domain} from listener {listener}")
            }
        }
    }
}

fn blocks(entries: &[IpNet]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn arrow(group: Option<&GroupRef>) -> String {
    group.map(|group| format!(" -> {group}")).unwrap_or_default()
}

fn attributes(fields: &ListenerFields) -> String {
    let list: Vec<_> = fields.iter().map(|(field, value)| format!("{field} {value}")).collect();
    if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) }
}

fn in_brackets(what: &str, value: Option<&impl Display>) -> String {
    value.map(|value| format!(" ({what} {value})")).unwrap_or_default()
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}
