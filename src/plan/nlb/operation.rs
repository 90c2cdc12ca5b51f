//! What can be done to a network load balancer, as data.

mod line;

use std::collections::{BTreeMap, BTreeSet};

use super::model::{
    CreateGroup, CreateLoadBalancer, CreateSecurityGroup, GroupFields, ListenerFields, ListenerKey, SecurityRules,
    ZoneMapping,
};
use crate::plan::service::features;
use crate::plan::service::group_operation::{GroupOperation, RefusedBackends, Room};
use crate::plan::service::instance_diff::TagOperations;
use crate::plan::service::model::{Backend, GroupRef};
use crate::plan::service::steps::{self, Part};

/// One write, with everything that its request needs except ids that do not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes the load balancer.
    CreateLoadBalancer(Box<CreateLoadBalancer>),
    /// Deletes the load balancer with its listeners.
    DeleteLoadBalancer {
        /// The one that the diff was made against.
        id: String,
    },
    /// Changes the visible name, the cross-zone switch, or both.
    SetAttributes {
        /// `None` leaves it.
        name: Option<String>,
        /// `None` leaves it.
        cross_zone: Option<bool>,
    },
    /// Makes the address public or private.
    SetAddressType {
        /// `Internet` or `Intranet`
        address_type: String,
        /// Elastic addresses for the zones; if empty, the cloud chooses.
        zones: Vec<ZoneMapping>,
    },
    /// Makes the IPv6 address public or private.
    SetIpv6AddressType {
        /// Whether it is public.
        internet: bool,
    },
    /// Replaces the list of zones.
    SetZones {
        /// All of them.
        zones: Vec<ZoneMapping>,
    },
    /// Switches protections.
    SetProtection {
        /// `None` leaves it.
        delete: Option<bool>,
        /// `None` leaves it.
        modification: Option<String>,
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
    /// Adds or changes tags of the load balancer.
    Tag {
        /// Never empty.
        tags: BTreeMap<String, String>,
    },
    /// Removes tags of the load balancer.
    Untag {
        /// Never empty.
        keys: Vec<String>,
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
    /// Changes the backends of a server group, or deletes it.
    Group(GroupOperation),
    /// Makes a listener, which starts by itself.
    CreateListener {
        /// Which.
        listener: ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group.
        group: GroupRef,
        /// All attributes to send.
        fields: ListenerFields,
    },
    /// Changes a listener.
    SetListener {
        /// Which.
        listener: ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group.
        group: GroupRef,
        /// Attributes that change. The request repeats the others as they are.
        fields: ListenerFields,
    },
    /// Starts a listener.
    StartListener {
        /// Which.
        listener: ListenerKey,
    },
    /// Deletes a listener of ours.
    DeleteListener {
        /// Which.
        listener: ListenerKey,
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

/// The steps to the desired state of a load balancer.
pub type Plan = steps::Plan<Operation>;
/// One step of a plan.
pub type Step = steps::Step<Operation>;

impl TagOperations for Operation {
    fn tag(tags: BTreeMap<String, String>) -> Self {
        Self::Tag { tags }
    }

    fn untag(keys: Vec<String>) -> Self {
        Self::Untag { keys }
    }
}

impl From<GroupOperation> for Operation {
    fn from(operation: GroupOperation) -> Self {
        Self::Group(operation)
    }
}

impl steps::Operation for Operation {
    fn destroys(&self) -> bool {
        match self {
            Self::Group(operation) => operation.destroys(),
            _ => matches!(
                self,
                Self::DeleteLoadBalancer { .. }
                    | Self::LeaveSecurityGroups { .. }
                    | Self::DetachBandwidthPackage { .. }
                    | Self::Untag { .. }
                    | Self::UntagGroup { .. }
                    | Self::DeleteListener { .. }
                    | Self::DeleteFormerListener { .. }
                    | Self::RemoveCertificates { .. }
                    | Self::RemoveRules { .. }
                    | Self::DeleteSecurityGroup { .. }
            ),
        }
    }

    fn creates(&self) -> bool {
        matches!(
            self,
            Self::CreateLoadBalancer(_)
                | Self::CreateGroup(_)
                | Self::CreateListener { .. }
                | Self::CreateSecurityGroup(_)
        )
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
                let (fixed, rest): (GroupFields, GroupFields) =
                    wanted.fields.clone().into_iter().partition(|(field, _)| field.is_fixed());
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
            Self::SetListener { listener, description, group, fields } => {
                let part = |(fields, reason)| {
                    let (description, group) = (description.clone(), group.clone());
                    (Self::SetListener { listener: *listener, description, group, fields }, reason)
                };
                Some(features::halves(fields)?.map(part))
            }
            _ => None,
        }
    }

    fn is_setting(&self) -> bool {
        match self {
            Self::SetGroup { .. } => true,
            Self::SetListener { fields, .. } => !fields.is_empty(),
            _ => false,
        }
    }

    fn without_tags(&self) -> Option<Self> {
        let Self::CreateLoadBalancer(wanted) = self else { return None };
        let tags = wanted.marks.clone();
        let less =
            || Self::CreateLoadBalancer(Box::new(CreateLoadBalancer { tags: tags.clone(), ..(**wanted).clone() }));
        (tags != wanted.tags).then(less)
    }

    fn part(&self) -> Part {
        match self {
            Self::CreateLoadBalancer(_)
            | Self::DeleteLoadBalancer { .. }
            | Self::SetAttributes { .. }
            | Self::SetAddressType { .. }
            | Self::SetIpv6AddressType { .. }
            | Self::SetZones { .. }
            | Self::SetProtection { .. }
            | Self::JoinSecurityGroups { .. }
            | Self::LeaveSecurityGroups { .. }
            | Self::AttachBandwidthPackage { .. }
            | Self::DetachBandwidthPackage { .. }
            | Self::Tag { .. }
            | Self::Untag { .. } => Part::Instance,
            Self::CreateGroup(_)
            | Self::SetGroup { .. }
            | Self::UntagGroup { .. }
            | Self::Group(GroupOperation::DeleteGroup { .. }) => Part::Groups,
            Self::Group(_) => Part::Backends,
            Self::CreateListener { .. }
            | Self::SetListener { .. }
            | Self::StartListener { .. }
            | Self::DeleteListener { .. }
            | Self::DeleteFormerListener { .. }
            | Self::AddCertificates { .. }
            | Self::RemoveCertificates { .. } => Part::Listeners,
            Self::CreateSecurityGroup(_)
            | Self::AddRules { .. }
            | Self::RemoveRules { .. }
            | Self::DeleteSecurityGroup { .. } => Part::Access,
        }
    }

    fn of_group(&self) -> Option<&GroupOperation> {
        match self {
            Self::Group(operation) => Some(operation),
            _ => None,
        }
    }

    fn refused_backends(&self) -> RefusedBackends<Self> {
        match self {
            Self::Group(operation) => match operation.refused_backends() {
                RefusedBackends::One if operation.room() == Room::Takes => RefusedBackends::OneAddition,
                other => other.map(Self::Group),
            },
            _ => RefusedBackends::None,
        }
    }

    fn adding(&self, backends: Vec<Backend>) -> Option<Self> {
        match self {
            Self::Group(operation) => operation.adding(backends).map(Self::Group),
            other => Some(other.clone()),
        }
    }
}
