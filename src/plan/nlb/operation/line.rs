//! The stable line of each operation, as plans and logs print it.

use std::fmt::{self, Display};

use super::Own;
use crate::plan::nlb::model::{CreateLoadBalancer, ZoneMapping};
use crate::plan::service::operation::{in_brackets, list, on_off};

impl Display for CreateLoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name, self.address_type, list(&self.zones))
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAttributes { name, cross_zone } => {
                let name = name.as_ref().map(|name| format!("name {name}"));
                write!(f, "set {}", both(name, cross_zone.map(|on| format!("cross-zone {}", on_off(on)))))
            }
            Self::SetAddressType { address_type, zones } if zones.is_empty() => {
                write!(f, "set address type {address_type}")
            }
            Self::SetAddressType { address_type, zones } => {
                write!(f, "set address type {address_type} ({})", list(zones))
            }
            Self::SetIpv6AddressType { internet } => {
                write!(f, "set IPv6 address type {}", if *internet { "Internet" } else { "Intranet" })
            }
            Self::SetZones { zones } => write!(f, "set zones {}", list(zones)),
            Self::SetProtection { delete, modification } => {
                let modification = modification.as_ref().map(|status| format!("modification protection {status}"));
                write!(f, "set {}", both(delete.map(|on| format!("delete protection {}", on_off(on))), modification))
            }
            Self::JoinSecurityGroups { groups } => write!(f, "join security groups {}", list(groups)),
            Self::LeaveSecurityGroups { groups } => write!(f, "leave security groups {}", list(groups)),
            Self::AttachBandwidthPackage { id } => write!(f, "attach bandwidth package {id}"),
            Self::DetachBandwidthPackage { id } => write!(f, "detach bandwidth package {id}"),
            Self::CreateGroup(wanted) => write!(f, "create group {}{}", wanted.name, in_brackets(&wanted.fields)),
            Self::SetGroup { group, fields } => write!(f, "set group {group}{}", in_brackets(fields)),
            Self::UntagGroup { id, keys } => write!(f, "untag group {id}: {}", keys.join(", ")),
            Self::DeleteFormerListener { load_balancer, listener, .. } => {
                write!(f, "delete listener {listener} of the former load balancer {load_balancer}")
            }
            Self::AddCertificates { listener, ids } => write!(f, "add certificates to {listener}: {}", list(ids)),
            Self::RemoveCertificates { listener, ids } => {
                write!(f, "remove certificates from {listener}: {}", list(ids))
            }
            Self::CreateSecurityGroup(wanted) => write!(f, "create security group {}", wanted.name),
            Self::AddRules { rules, .. } => write!(f, "add rules: {}", list(rules)),
            Self::RemoveRules { ids } => write!(f, "remove rules {}", list(ids)),
            Self::DeleteSecurityGroup { id, name } => write!(f, "delete security group {name} ({id})"),
        }
    }
}

impl Display for ZoneMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zone, vswitch, private_address, allocation_id, ipv6_address } = self;
        let more = [private_address, allocation_id, ipv6_address].into_iter().filter(|part| !part.is_empty());
        f.write_str(&std::iter::once(vswitch).chain(more).fold(zone.clone(), |text, part| format!("{text}:{part}")))
    }
}

fn both(one: Option<String>, other: Option<String>) -> String {
    one.into_iter().chain(other).collect::<Vec<_>>().join(" ")
}
