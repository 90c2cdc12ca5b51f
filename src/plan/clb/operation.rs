//! What can be done to a classic load balancer, as data.

mod line;

use std::collections::BTreeMap;
use std::fmt;

use super::model::{ListenerFields, ListenerKey};
use crate::plan::service::features;
use crate::plan::service::group_operation::{GroupOperation, RefusedBackends};
use crate::plan::service::instance_diff::TagOperations;
use crate::plan::service::model::{Backend, GroupRef};
use crate::plan::service::steps::{self, Part};
use ipnet::IpNet;

/// One write, with everything that its request needs except ids that do not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes the instance.
    CreateInstance(Box<CreateInstance>),
    /// Deletes the instance with everything on it.
    DeleteInstance {
        /// The instance that the diff was made against.
        id: String,
    },
    /// Changes the visible name.
    SetName {
        /// The new one.
        name: String,
    },
    /// Switches delete protection.
    SetDeleteProtection {
        /// On or off.
        on: bool,
    },
    /// Switches modification protection.
    SetModificationProtection {
        /// `ConsoleProtection` or `NonProtection`
        status: String,
        /// Only with `ConsoleProtection`.
        reason: Option<String>,
    },
    /// Changes the instance charge type.
    SetInstanceChargeType {
        /// `PayBySpec` or `PayByCLCU`
        charge_type: String,
        /// Only with `PayBySpec`.
        spec: Option<String>,
    },
    /// Changes the specification of a pay-by-spec instance.
    SetSpec {
        /// Such as `slb.s2.small`.
        spec: String,
    },
    /// Changes how internet traffic is charged.
    SetInternetSpec {
        /// `paybytraffic` or `paybybandwidth`
        charge_type: String,
        /// Mbit/s; `None` leaves it.
        bandwidth: Option<i64>,
    },
    /// Adds or changes tags of the instance.
    Tag {
        /// Never empty.
        tags: BTreeMap<String, String>,
    },
    /// Removes tags of the instance.
    Untag {
        /// Never empty: an empty list would remove all.
        keys: Vec<String>,
    },
    /// Makes a server group with its first batch of backends.
    CreateGroup {
        /// `k8s/...`
        name: String,
        /// At most one batch.
        backends: Vec<Backend>,
    },
    /// Changes a server group that exists.
    Group(GroupOperation),
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
    /// Makes a listener; it is stopped at first.
    CreateListener {
        /// Which.
        listener: ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group; `None` for one that only redirects.
        group: Option<GroupRef>,
        /// All attributes to send.
        fields: ListenerFields,
    },
    /// Changes a listener.
    SetListener {
        /// Which.
        listener: ListenerKey,
        /// The ownership mark.
        description: String,
        /// Its server group; `None` leaves it.
        group: Option<GroupRef>,
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

/// The steps to the desired state of a load balancer.
pub type Plan = steps::Plan<Operation>;
/// One step of a plan.
pub type Step = steps::Step<Operation>;

impl steps::Operation for Operation {
    fn destroys(&self) -> bool {
        match self {
            Self::Group(operation) => operation.destroys(),
            _ => matches!(
                self,
                Self::DeleteInstance { .. }
                    | Self::Untag { .. }
                    | Self::RemoveAccessEntries { .. }
                    | Self::DeleteAccessList { .. }
                    | Self::DeleteListener { .. }
                    | Self::DeleteDomainExtension { .. }
            ),
        }
    }

    fn creates(&self) -> bool {
        matches!(
            self,
            Self::CreateInstance(_)
                | Self::CreateGroup { .. }
                | Self::CreateAccessList(_)
                | Self::CreateListener { .. }
                | Self::CreateDomainExtension { .. }
        )
    }

    fn makes(&self) -> Option<&str> {
        match self {
            Self::CreateGroup { name, .. } => Some(name),
            Self::CreateAccessList(wanted) => Some(&wanted.name),
            _ => None,
        }
    }

    fn part(&self) -> Part {
        match self {
            Self::CreateInstance(_)
            | Self::DeleteInstance { .. }
            | Self::SetName { .. }
            | Self::SetDeleteProtection { .. }
            | Self::SetModificationProtection { .. }
            | Self::SetInstanceChargeType { .. }
            | Self::SetSpec { .. }
            | Self::SetInternetSpec { .. }
            | Self::Tag { .. }
            | Self::Untag { .. } => Part::Instance,
            Self::CreateGroup { .. } | Self::Group(GroupOperation::DeleteGroup { .. }) => Part::Groups,
            Self::Group(_) => Part::Backends,
            Self::CreateAccessList(_)
            | Self::AddAccessEntries { .. }
            | Self::RemoveAccessEntries { .. }
            | Self::DeleteAccessList { .. } => Part::Access,
            Self::CreateListener { .. }
            | Self::SetListener { .. }
            | Self::StartListener { .. }
            | Self::DeleteListener { .. }
            | Self::CreateDomainExtension { .. }
            | Self::SetDomainExtension { .. }
            | Self::DeleteDomainExtension { .. } => Part::Listeners,
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
            // The group itself is rarely refused; its backends are.
            Self::CreateGroup { name, backends } if !backends.is_empty() => {
                let group = GroupRef::Named(name.clone());
                RefusedBackends::TryParts([
                    Self::CreateGroup { name: name.clone(), backends: Vec::new() },
                    GroupOperation::AddBackends { group, backends: backends.clone() }.into(),
                ])
            }
            Self::Group(operation) => operation.refused_backends().map(Self::Group),
            _ => RefusedBackends::None,
        }
    }

    fn adds(&self) -> &[Backend] {
        match self {
            Self::CreateGroup { backends, .. } => backends,
            Self::Group(operation) => operation.adds(),
            _ => &[],
        }
    }

    fn adding(&self, backends: Vec<Backend>) -> Option<Self> {
        match self {
            Self::CreateGroup { name, .. } => Some(Self::CreateGroup { name: name.clone(), backends }),
            Self::Group(operation) => operation.adding(backends).map(Self::Group),
            other => Some(other.clone()),
        }
    }

    fn halves(&self) -> Option<[(Self, String); 2]> {
        let Self::SetListener { listener, description, group, fields } = self else { return None };
        let set = |(fields, reason)| {
            let (description, group) = (description.clone(), group.clone());
            (Self::SetListener { listener: *listener, description, group, fields }, reason)
        };
        Some(features::halves(fields)?.map(set))
    }

    fn is_setting(&self) -> bool {
        matches!(self, Self::SetListener { fields, .. } if !fields.is_empty())
    }

    /// A zone that no user asked for can also be one that has no load balancers at all.
    fn elsewhere(&self, had_no_room: bool) -> Option<Self> {
        let Self::CreateInstance(wanted) = self else { return None };
        let is_wrong_zone = wanted.zones_can_change && wanted.placement().master_zone.is_some();
        let attempt = wanted.attempt + 1;
        let is_open = (had_no_room || is_wrong_zone) && attempt < wanted.placements().len();
        is_open.then(|| Self::CreateInstance(Box::new(CreateInstance { attempt, ..(**wanted).clone() })))
    }

    fn without_tags(&self) -> Option<Self> {
        let Self::CreateInstance(wanted) = self else { return None };
        let tags = wanted.marks.clone();
        let less = || Self::CreateInstance(Box::new(CreateInstance { tags: tags.clone(), ..(**wanted).clone() }));
        (tags != wanted.tags).then(less)
    }

    fn remark(&self, refusal: Option<&str>) -> Option<String> {
        let Self::CreateInstance(wanted) = self else { return None };
        let placement = wanted.placement();
        match refusal {
            Some(code) => Some(format!("No load balancer can be made in {placement} [{code}]")),
            None => (wanted.placements().len() > 1).then(|| format!("The load balancer was made in {placement}")),
        }
    }
}

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

/// Where a load balancer is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreationPlace {
    /// `vsw-...`; `None` for internet load balancers.
    pub vswitch: Option<String>,
    /// Primary zone; `None` leaves it to the cloud.
    pub master_zone: Option<String>,
    /// Secondary zone.
    pub slave_zone: Option<String>,
}

impl fmt::Display for CreationPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(vswitch) = &self.vswitch {
            write!(f, "vSwitch {vswitch}, ")?;
        }
        match (&self.master_zone, &self.slave_zone) {
            (Some(master), Some(slave)) => write!(f, "zones {master} and {slave}"),
            (Some(master), None) => write!(f, "zone {master}"),
            _ => f.write_str("zones of the cloud's choice"),
        }
    }
}

impl CreateInstance {
    /// Where it can be made, in order: in the zones asked for; where only the configuration or the place of the nodes asked,
    /// also the other way round (unless a vSwitch decides), and at last where the cloud chooses; each in every vSwitch.
    #[must_use]
    pub fn placements(&self) -> Vec<CreationPlace> {
        let (master, slave) = (&self.master_zone, &self.slave_zone);
        let mut zones = vec![(master.clone(), slave.clone())];
        if self.zones_can_change {
            if slave.is_some() && self.vswitch_ids.is_empty() {
                zones.push((slave.clone(), master.clone()));
            }
            zones.push((None, None));
        }
        zones.dedup();
        let vswitches: Vec<Option<&String>> = match self.vswitch_ids.as_slice() {
            [] => vec![None],
            ids => ids.iter().map(Some).collect(),
        };
        let placed = |(master_zone, slave_zone): (Option<String>, Option<String>)| {
            vswitches.iter().map(move |vswitch| CreationPlace {
                vswitch: vswitch.cloned(),
                master_zone: master_zone.clone(),
                slave_zone: slave_zone.clone(),
            })
        };
        zones.into_iter().flat_map(placed).collect()
    }

    /// Where this attempt makes it.
    #[must_use]
    pub fn placement(&self) -> CreationPlace {
        self.placements().into_iter().nth(self.attempt).unwrap_or_default()
    }
}

/// Parameters of a new access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateAccessList {
    /// Unique in the region.
    pub name: String,
    /// `ipv4` or `ipv6`
    pub ip_version: String,
    /// The ownership mark.
    pub tags: BTreeMap<String, String>,
}

/// Parameters of a new instance. Empty options are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateInstance {
    /// Visible name.
    pub name: String,
    /// `internet` or `intranet`
    pub address_type: String,
    /// `ipv4` or `ipv6`
    pub ip_version: Option<String>,
    /// For intranet instances.
    pub vpc_id: Option<String>,
    /// vSwitches to try, in order; the first is tried first, the others when it has no address left.
    pub vswitch_ids: Vec<String>,
    /// A fixed private address.
    pub address: Option<String>,
    /// Primary zone.
    pub master_zone: Option<String>,
    /// Secondary zone.
    pub slave_zone: Option<String>,
    /// Whether other zones will do, because only the configuration, or the place of the nodes, asks for these.
    pub zones_can_change: bool,
    /// Which of the [placements](Self::placements) is tried; earlier ones had no room.
    pub attempt: usize,
    /// `PayBySpec` or `PayByCLCU`
    pub instance_charge_type: String,
    /// Such as `slb.s1.small`.
    pub spec: Option<String>,
    /// `paybytraffic` or `paybybandwidth`
    pub internet_charge_type: Option<String>,
    /// Mbit/s
    pub bandwidth: Option<i64>,
    /// Delete protection.
    pub delete_protection: bool,
    /// `ConsoleProtection` or `NonProtection`
    pub modification_protection: String,
    /// Only with `ConsoleProtection`.
    pub modification_protection_reason: Option<String>,
    /// `rg-...`
    pub resource_group_id: Option<String>,
    /// All tags, the ownership marks included.
    pub tags: BTreeMap<String, String>,
    /// The ownership marks.
    pub marks: BTreeMap<String, String>,
}
