//! The stable line of each operation, as plans and logs print it.

use std::fmt::{self, Display};

use super::Own;
use crate::plan::nlb::model::{CreateLoadBalancer, InstanceField, ZoneMapping};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::operation::{in_brackets, list};

impl Display for CreateLoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address_type) =
            (self.fields.text(InstanceField::Name), self.fields.text(InstanceField::AddressType));
        write!(f, "{name} ({address_type}, {})", list(&self.zones))
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetInstance(fields) => {
                let part =
                    |(field, value): (InstanceField, &String)| format!("{} {}", field.label(), field.shown(value));
                write!(f, "set {}", fields.iter().map(part).collect::<Vec<_>>().join(" "))
            }
            Self::SetAddressType { address_type, zones } if zones.is_empty() => {
                write!(f, "set address type {address_type}")
            }
            Self::SetAddressType { address_type, zones } => {
                write!(f, "set address type {address_type} ({})", list(zones))
            }
            Self::SetZones { zones } => write!(f, "set zones {}", list(zones)),
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
