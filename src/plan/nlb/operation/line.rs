//! The stable line of each operation, as plans and logs print it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use super::Operation;
use crate::plan::nlb::model::{SecurityRules, ZoneMapping};

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateLoadBalancer(wanted) => {
                let zones = Zones(&wanted.zones);
                write!(f, "create network load balancer {} ({}, {zones})", wanted.name, wanted.address_type)
            }
            Self::DeleteLoadBalancer { id } => write!(f, "delete network load balancer {id}"),
            Self::SetAttributes { name, cross_zone } => {
                let name = name.as_ref().map(|name| format!("name {name}"));
                write!(f, "set {}", both(name, cross_zone.map(|on| format!("cross-zone {}", on_off(on)))))
            }
            Self::SetAddressType { address_type, zones } if zones.is_empty() => {
                write!(f, "set address type {address_type}")
            }
            Self::SetAddressType { address_type, zones } => {
                write!(f, "set address type {address_type} ({})", Zones(zones))
            }
            Self::SetIpv6AddressType { internet } => {
                write!(f, "set IPv6 address type {}", if *internet { "Internet" } else { "Intranet" })
            }
            Self::SetZones { zones } => write!(f, "set zones {}", Zones(zones)),
            Self::SetProtection { delete, modification } => {
                let modification = modification.as_ref().map(|status| format!("modification protection {status}"));
                write!(f, "set {}", both(delete.map(|on| format!("delete protection {}", on_off(on))), modification))
            }
            Self::JoinSecurityGroups { groups } => write!(f, "join security groups {}", list(groups)),
            Self::LeaveSecurityGroups { groups } => write!(f, "leave security groups {}", list(groups)),
            Self::AttachBandwidthPackage { id } => write!(f, "attach bandwidth package {id}"),
            Self::DetachBandwidthPackage { id } => write!(f, "detach bandwidth package {id}"),
            Self::Tag { tags } => write!(f, "tag {}", pairs(tags)),
            Self::Untag { keys } => write!(f, "untag {}", keys.join(", ")),
            Self::CreateGroup(wanted) => write!(f, "create group {}{}", wanted.name, in_brackets(&wanted.fields)),
            Self::SetGroup { group, fields } => write!(f, "set group {group}{}", in_brackets(fields)),
            Self::UntagGroup { id, keys } => write!(f, "untag group {id}: {}", keys.join(", ")),
            Self::Group(operation) => operation.fmt(f),
            Self::CreateListener { listener, group, fields, .. } => {
                write!(f, "create listener {listener} -> {group}{}", in_brackets(fields))
            }
            // Most of the attributes are sent again unchanged; the reason of the step names those that change.
            Self::SetListener { listener, group, .. } => write!(f, "set listener {listener} -> {group}"),
            Self::StartListener { listener } => write!(f, "start listener {listener}"),
            Self::DeleteListener { listener } => write!(f, "delete listener {listener}"),
            Self::DeleteFormerListener { load_balancer, listener, .. } => {
                write!(f, "delete listener {listener} of the former load balancer {load_balancer}")
            }
            Self::AddCertificates { listener, ids } => write!(f, "add certificates to {listener}: {}", list(ids)),
            Self::RemoveCertificates { listener, ids } => {
                write!(f, "remove certificates from {listener}: {}", list(ids))
            }
            Self::CreateSecurityGroup(wanted) => write!(f, "create security group {}", wanted.name),
            Self::AddRules { rules, .. } => write!(f, "add rules: {}", rule_list(rules)),
            Self::RemoveRules { ids } => write!(f, "remove rules {}", list(ids)),
            Self::DeleteSecurityGroup { id, name } => write!(f, "delete security group {name} ({id})"),
        }
    }
}

struct Zones<'a>(&'a [ZoneMapping]);

impl Display for Zones<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = |mapping: &ZoneMapping| {
            let ZoneMapping { zone, vswitch, private_address, allocation_id, ipv6_address } = mapping;
            let more = [private_address, allocation_id, ipv6_address].into_iter().filter(|part| !part.is_empty());
            std::iter::once(vswitch).chain(more).fold(zone.clone(), |text, part| format!("{text}:{part}"))
        };
        f.write_str(&self.0.iter().map(zone).collect::<Vec<_>>().join(", "))
    }
}

fn both(one: Option<String>, other: Option<String>) -> String {
    one.into_iter().chain(other).collect::<Vec<_>>().join(" ")
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn list(items: &BTreeSet<String>) -> String {
    items.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn rule_list(rules: &SecurityRules) -> String {
    rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn pairs(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

fn in_brackets<F: Display>(fields: &BTreeMap<F, String>) -> String {
    let list: Vec<_> = fields.iter().map(|(field, value)| format!("{field} {value}")).collect();
    if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) }
}
