//! What can be done to a classic load balancer, as data.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use ipnet::IpNet;

use super::desired::ClbModel;
use super::model::{CreateAccessList, CreateInstance, InstanceField, InstanceFields, ListenerField, ListenerKey};
use super::observed::ObservedDomainExtension;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::model::Backend;
use crate::plan::loadbalancer::operation::{
    self, CreationModel, OperationModel, OwnOperation, Part, WriteEffect, list, weighted,
};
use crate::plan::loadbalancer::steps;

/// One write.
pub type Operation = operation::Operation<ClbModel>;
/// The steps to the desired state of a load balancer.
pub type Plan = steps::Plan<ClbModel>;
/// One step of a plan.
pub type Step = steps::Step<ClbModel>;

/// A write that only classic load balancers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Changes attributes of the instance that one call sets; never empty.
    SetInstance(InstanceFields),
    /// Makes a server group with its first batch of backends.
    CreateGroup {
        /// `k8s/...`
        name: String,
        /// At most one batch.
        backends: Vec<Backend>,
    },
    /// Makes an access control list without entries.
    CreateAccessList(CreateAccessList),
    /// Adds entries to the access control list, at most one batch.
    AddAccessEntries {
        /// The list's name.
        name: String,
        /// Never empty.
        entries: Vec<IpNet>,
    },
    /// Removes entries from the access control list, at most one batch.
    RemoveAccessEntries {
        /// The list's name.
        name: String,
        /// Never empty.
        entries: Vec<IpNet>,
    },
    /// Deletes the access control list.
    DeleteAccessList {
        /// Its id.
        id: String,
        /// Its name, for people.
        name: String,
    },
    /// Adds a certificate for a domain.
    CreateDomainExtension {
        /// On which listener.
        listener: ListenerKey,
        /// Such as `*.example.com`.
        domain: String,
        /// Its certificate.
        certificate_id: String,
    },
    /// Changes the certificate of a domain.
    SetDomainExtension {
        /// On which listener.
        listener: ListenerKey,
        /// `de-...`
        id: String,
        /// For which domain.
        domain: String,
        /// The new certificate.
        certificate_id: String,
    },
    /// Removes the certificate of a domain.
    DeleteDomainExtension {
        /// On which listener.
        listener: ListenerKey,
        /// `de-...`
        id: String,
        /// For which domain.
        domain: String,
    },
}

impl OperationModel for ClbModel {
    const LOAD_BALANCER: &'static str = "load balancer";
    const REPLACES_BACKENDS: bool = false;
    type ListenerKey = ListenerKey;
    type ListenerField = ListenerField;
    type Certificates = BTreeMap<String, String>;
    type HeldCertificates = BTreeMap<String, ObservedDomainExtension>;
    type Creation = CreateInstance;
    type Own = Own;
}

impl OwnOperation for Own {
    fn effect(&self) -> (Part, WriteEffect) {
        match self {
            Self::SetInstance(_) => (Part::Instance, WriteEffect::Changes),
            Self::CreateGroup { .. } => (Part::Groups, WriteEffect::Makes),
            Self::CreateAccessList(_) => (Part::Access, WriteEffect::Makes),
            Self::AddAccessEntries { .. } => (Part::Access, WriteEffect::Changes),
            Self::RemoveAccessEntries { .. } | Self::DeleteAccessList { .. } => (Part::Access, WriteEffect::Destroys),
            Self::CreateDomainExtension { .. } => (Part::Listeners, WriteEffect::Makes),
            Self::SetDomainExtension { .. } => (Part::Listeners, WriteEffect::Changes),
            Self::DeleteDomainExtension { .. } => (Part::Listeners, WriteEffect::Destroys),
        }
    }

    fn makes(&self) -> Option<&str> {
        match self {
            Self::CreateGroup { name, .. } => Some(name),
            Self::CreateAccessList(wanted) => Some(&wanted.name),
            _ => None,
        }
    }

    fn fills(&self) -> Option<(&str, &[Backend])> {
        match self {
            Self::CreateGroup { name, backends } => Some((name, backends)),
            _ => None,
        }
    }

    fn filled_with(&self, backends: Vec<Backend>) -> Self {
        match self {
            Self::CreateGroup { name, .. } => Self::CreateGroup { name: name.clone(), backends },
            other => other.clone(),
        }
    }
}

impl From<Own> for Operation {
    fn from(own: Own) -> Self {
        Self::Own(own)
    }
}

impl CreationModel for CreateInstance {
    fn without_tags(&self) -> Option<Self> {
        (self.tags != self.marks).then(|| Self { tags: self.marks.clone(), ..self.clone() })
    }

    /// A zone that no user asked for can also be one that has no load balancers at all.
    fn elsewhere(&self, had_no_room: bool) -> Option<Self> {
        let is_wrong_zone = self.zones_can_change && self.placement().master_zone.is_some();
        let attempt = self.attempt + 1;
        let is_open = (had_no_room || is_wrong_zone) && attempt < self.placements().len();
        is_open.then(|| Self { attempt, ..self.clone() })
    }

    fn remark(&self, refusal: Option<&str>) -> Option<String> {
        let placement = self.placement();
        match refusal {
            Some(code) => Some(format!("No load balancer can be made in {placement} [{code}]")),
            None => (self.placements().len() > 1).then(|| format!("The load balancer was made in {placement}")),
        }
    }
}

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
            Self::CreateGroup { name, backends } => write!(f, "create group {name} with {}", weighted(backends)),
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
