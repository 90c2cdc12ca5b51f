//! Operations as text: one line each, the same for the same operation, for plans that people and tests read.

use std::fmt::{self, Display};

use super::Own;
use crate::plan::clb::model::CreateInstance;
use crate::plan::service::group_operation::Backends;
use crate::plan::service::operation::{list, on_off};

impl Display for CreateInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.address_type, self.instance_charge_type)?;
        match self.vswitch_ids.first() {
            Some(vswitch) => write!(f, ", {vswitch})"),
            None => f.write_str(")"),
        }
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetName { name } => write!(f, "set name {name}"),
            Self::SetDeleteProtection { on } => write!(f, "set delete protection {}", on_off(*on)),
            Self::SetModificationProtection { status, .. } => write!(f, "set modification protection {status}"),
            Self::SetInstanceChargeType { charge_type, spec } => {
                write!(f, "set instance charge type {charge_type}{}", in_brackets("spec", spec.as_ref()))
            }
            Self::SetSpec { spec } => write!(f, "set spec {spec}"),
            Self::SetInternetSpec { charge_type, bandwidth } => {
                write!(f, "set internet charge type {charge_type}{}", in_brackets("bandwidth", bandwidth.as_ref()))
            }
            Self::CreateGroup { name, backends } => write!(f, "create group {name} with {}", Backends(backends)),
            Self::CreateAccessList(wanted) => write!(f, "create access control list {}", wanted.name),
            Self::AddAccessEntries { name, entries } => write!(f, "add to {name}: {}", list(entries)),
            Self::RemoveAccessEntries { name, entries } => write!(f, "remove from {name}: {}", list(entries)),
            Self::DeleteAccessList { id, name } => write!(f, "delete access control list {name} ({id})"),
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

fn in_brackets(what: &str, value: Option<&impl Display>) -> String {
    value.map(|value| format!(" ({what} {value})")).unwrap_or_default()
}
