//! Operations as text: one line each, the same for the same operation, for plans that people and tests read.

use std::fmt::{self, Display};

use super::Own;
use crate::plan::clb::model::{CreateInstance, InstanceField};
use crate::plan::service::api_fields::FieldValues as _;
use crate::plan::service::group_operation::Backends;
use crate::plan::service::operation::list;

impl Display for CreateInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, address_type, charge_type] =
            [InstanceField::Name, InstanceField::AddressType, InstanceField::ChargeType]
                .map(|field| self.fields.text(field));
        write!(f, "{name} ({address_type}, {charge_type}")?;
        match self.vswitch_ids.first() {
            Some(vswitch) => write!(f, ", {vswitch})"),
            None => f.write_str(")"),
        }
    }
}

impl Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetInstance(fields) => {
                let mut parts = fields.iter().map(|(field, value)| format!("{} {value}", field.label()));
                write!(f, "set {}", parts.next().unwrap_or_default())?;
                parts.try_for_each(|part| write!(f, " ({part})"))
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
