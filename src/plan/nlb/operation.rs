//! What can be done to a network load balancer, as data.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use super::desired::NlbModel;
use super::model::{
    CreateGroup, CreateInstance, CreateSecurityGroup, GroupField, GroupFields, InstanceField, InstanceFields,
    ListenerField, ListenerKey, SecurityRules, ZoneMapping,
};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::model::GroupRef;
use crate::plan::loadbalancer::operation::{
    self, CreationModel, OperationModel, OwnOperation, Part, WriteEffect, in_brackets, list,
};
use crate::plan::loadbalancer::{features, steps};

/// One write.
pub type Operation = operation::Operation<NlbModel>;
/// The steps to the desired state of a load balancer.
pub type Plan = steps::Plan<NlbModel>;
/// One step of a plan.
pub type Step = steps::Step<NlbModel>;

/// A write that only network load balancers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Own {
    /// Changes attributes that one call sets; never empty.
    SetInstance(InstanceFields),
    /// Makes the address public or private.
    SetAddressType {
        /// `Internet` or `Intranet`
        address_type: String,
        /// Elastic addresses for the zones; if empty, the cloud chooses.
        zones: Vec<ZoneMapping>,
    },
    /// Replaces the list of zones.
    SetZones {
        /// All of them.
        zones: Vec<ZoneMapping>,
    },
    /// Joins security groups.
    JoinSecurityGroups {
        /// Ids, or the name of ours.
        groups: BTreeSet<String>,
    },
    /// Leaves security groups.
    LeaveSecurityGroups {
        /// Ids.
        groups: BTreeSet<String>,
    },
    /// Attaches a bandwidth package.
    AttachBandwidthPackage {
        /// `cbwp-...`
        id: String,
    },
    /// Detaches a bandwidth package.
    DetachBandwidthPackage {
        /// `cbwp-...`
        id: String,
    },
    /// Makes a server group without backends.
    CreateGroup(Box<CreateGroup>),
    /// Changes attributes of a server group of ours.
    SetGroup {
        /// Which.
        group: GroupRef,
        /// What is sent.
        fields: GroupFields,
    },
    /// Takes our tags off a server group.
    UntagGroup {
        /// Its id.
        id: String,
        /// Never empty.
        keys: Vec<String>,
    },
    /// Deletes a listener of ours from a load balancer that the Service no longer uses.
    DeleteFormerListener {
        /// `nlb-...`
        load_balancer: String,
        /// Which.
        listener: ListenerKey,
        /// `lsn-...`
        id: String,
    },
    /// Adds certificates to a listener, at most one batch.
    AddCertificates {
        /// To which.
        listener: ListenerKey,
        /// Never empty.
        ids: BTreeSet<String>,
    },
    /// Removes certificates from a listener, at most one batch.
    RemoveCertificates {
        /// From which.
        listener: ListenerKey,
        /// Never empty.
        ids: BTreeSet<String>,
    },
    /// Makes the security group of the source ranges, without rules.
    CreateSecurityGroup(CreateSecurityGroup),
    /// Adds rules to the security group, at most one batch.
    AddRules {
        /// Never empty.
        rules: SecurityRules,
        /// The ownership mark.
        description: String,
    },
    /// Removes rules from the security group, at most one batch.
    RemoveRules {
        /// Never empty; ids of rules.
        ids: BTreeSet<String>,
    },
    /// Deletes the security group.
    DeleteSecurityGroup {
        /// Its id.
        id: String,
        /// Its name, for people.
        name: String,
    },
}

impl OperationModel for NlbModel {
    const LOAD_BALANCER: &'static str = "network load balancer";
    const REPLACES_BACKENDS: bool = true;
    type ListenerKey = ListenerKey;
    type ListenerField = ListenerField;
    type Certificates = BTreeSet<String>;
    type HeldCertificates = BTreeSet<String>;
    type Creation = CreateInstance;
    type Own = Own;
}

impl OwnOperation for Own {
    fn effect(&self) -> (Part, WriteEffect) {
        match self {
            Self::SetInstance(_)
            | Self::SetAddressType { .. }
            | Self::SetZones { .. }
            | Self::JoinSecurityGroups { .. }
            | Self::AttachBandwidthPackage { .. } => (Part::Instance, WriteEffect::Changes),
            Self::LeaveSecurityGroups { .. } | Self::DetachBandwidthPackage { .. } => {
                (Part::Instance, WriteEffect::Destroys)
            }
            Self::CreateGroup(_) => (Part::Groups, WriteEffect::Makes),
            Self::SetGroup { .. } => (Part::Groups, WriteEffect::Changes),
            Self::UntagGroup { .. } => (Part::Groups, WriteEffect::Destroys),
            Self::AddCertificates { .. } => (Part::Listeners, WriteEffect::Changes),
            Self::DeleteFormerListener { .. } | Self::RemoveCertificates { .. } => {
                (Part::Listeners, WriteEffect::Destroys)
            }
            Self::CreateSecurityGroup(_) => (Part::Access, WriteEffect::Makes),
            Self::AddRules { .. } => (Part::Access, WriteEffect::Changes),
            Self::RemoveRules { .. } | Self::DeleteSecurityGroup { .. } => (Part::Access, WriteEffect::Destroys),
        }
    }

    fn makes(&self) -> Option<&str> {
        match self {
            Self::CreateGroup(wanted) => Some(&wanted.name),
            Self::CreateSecurityGroup(wanted) => Some(&wanted.name),
            _ => None,
        }
    }

    /// A server group is made without the settings that can be set later.
    fn halves(&self) -> Option<[(Self, String); 2]> {
        match self {
            Self::CreateGroup(wanted) => {
                // Where backends have no port, the cloud makes no group without the one that is checked.
                let is_any_port = wanted.fields.is(GroupField::AnyPort, "true");
                let is_needed =
                    |field| is_any_port && matches!(field, GroupField::HealthCheck | GroupField::HealthCheckPort);
                let is_kept = |(field, _): &(GroupField, String)| field.is_fixed() || is_needed(*field);
                let (fixed, rest): (GroupFields, GroupFields) = wanted.fields.clone().into_iter().partition(is_kept);
                let group = GroupRef::Named(wanted.name.clone());
                let (settings, why) = (Self::SetGroup { group, fields: rest }, "left out when it was made".to_owned());
                let bare = CreateGroup { fields: fixed, ..(**wanted).clone() };
                let has_settings = bare.fields.len() < wanted.fields.len();
                let why_bare = "without the settings that were refused".to_owned();
                has_settings.then(|| [(Self::CreateGroup(Box::new(bare)), why_bare), (settings, why)])
            }
            Self::SetGroup { group, fields } => {
                let part = |(fields, reason)| (Self::SetGroup { group: group.clone(), fields }, reason);
                Some(features::halves(fields)?.map(part))
            }
            _ => None,
        }
    }

    fn is_setting(&self) -> bool {
        matches!(self, Self::SetGroup { .. })
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
}

impl Display for CreateInstance {
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
                    |(field, value): (&InstanceField, &String)| format!("{} {}", field.label(), field.shown(value));
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
