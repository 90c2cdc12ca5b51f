//! What a Service asks for, complete and comparable. Start with [`desire`].
//!
//! Everything that can be wrong with a Service is found here, and comes out as one list. What depends on the load
//! balancer as it stands is left to the [diff](super::diff()).

mod backends;
mod build;
mod ineffective;
pub mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

pub use self::backends::wanted_enis;
pub use self::build::desire;
use super::Problem;
use super::access::{self, DesiredAccess};
use super::annotations::{Name, raw};
use super::diff::charge_differs;
use super::manage::Manage;
use super::model::{Backend, BackendKey, GroupRef, ListenerField, ListenerFields, ListenerKey, Protocol};
use super::naming::{FINALIZER, LABEL_HASH, Owner, is_mark};
use super::observed::{Observed, ObservedInstance, PendingCharge};
use super::operation::CreateInstance;
use crate::config::checked::{self, VSwitchChoice};
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, PortStatus, ServiceType, ServiceView};

/// What the configuration and the place in the cloud contribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Part of every mark; unique among the clusters of the account.
    pub cluster_id: String,
    /// Key of the tag that names the cluster; usually [`CLUSTER_TAG`](super::naming::CLUSTER_TAG).
    pub cluster_tag: String,
    /// VPC of the cluster.
    pub vpc_id: String,
    /// vSwitches for intranet load balancers, in order of preference.
    pub vswitches: Vec<VSwitchChoice>,
    /// Whether these are only what is left where no vSwitch near the nodes will do.
    pub place_near_nodes: bool,
    /// Resource group of new load balancers.
    pub resource_group_id: Option<String>,
    /// Section `[service]`.
    pub service: checked::Service,
}

/// What to do about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nothing: it is not ours, or no longer; see [`handed_over`].
    Ignore,
    /// Keep its load balancer as desired.
    Ensure,
    /// Remove what we made for it, then the finalizer.
    Delete,
}

/// Whether a Service needs a classic load balancer from us, or needs to be cleaned up after.
#[must_use]
pub fn handling(service: &ServiceView, settings: &Settings) -> Handling {
    let ours = service.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if service.deleting || service.service_type != ServiceType::LoadBalancer {
        return if ours { Handling::Delete } else { Handling::Ignore };
    }
    if claimed_by_other(service, settings).is_some() { Handling::Ignore } else { Handling::Ensure }
}

/// A Service that used to have a load balancer of ours, and was then given to another controller by its class or an
/// annotation.
///
/// Nothing is done about it: the load balancer keeps serving as it stands, and the finalizer, labels and status stay. The
/// other controller may need the address for a while, and whether the load balancer can go is for the user to say. When
/// the Service is deleted, or its type changes, what we made is removed as usual; when it is given back, its load
/// balancer is looked after again.
#[must_use]
pub fn handed_over(service: &ServiceView, settings: &Settings) -> Option<Problem> {
    let ours = service.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if !ours || service.deleting || service.service_type != ServiceType::LoadBalancer {
        return None;
    }
    claimed_by_other(service, settings).map(|(field, given)| Problem {
        field,
        given,
        allowed: "the Service now belongs to another controller; its load balancer is kept as it is until the Service \
                  is deleted, its type changes, or it is given back"
            .to_owned(),
    })
}

/// What gives a Service to another controller: field and value.
fn claimed_by_other(service: &ServiceView, settings: &Settings) -> Option<(String, String)> {
    if let Some(class) = &service.load_balancer_class {
        return Some(("spec.loadBalancerClass".to_owned(), class.clone()));
    }
    let given = |name| Some((super::annotations::entry(name).full_key(), raw(service, name)?.to_owned()));
    given(Name::Class)
        .filter(|(_, value)| !value.is_empty())
        .or_else(|| given(Name::TunnelType))
        .or_else(|| given(Name::Type).filter(|(_, value)| settings.service.type_annotation && !value.is_empty()))
}

/// Whether a Service comes from the official controller, which left its label there, and its user has not restated since
/// what that controller ignored: `spec.loadBalancerSourceRanges` and `spec.sessionAffinity`.
///
/// Those two must not come into force just because another controller took over: the one shuts clients out that were
/// served for years, the other moves traffic between backends. So listeners that are there are left as they are until the
/// user changes one of the two, or removes the label.
#[must_use]
pub fn is_inherited(service: &ServiceView) -> bool {
    service.labels.contains_key(LABEL_HASH)
}

/// Everything that [`desire`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The Service.
    pub service: &'a ServiceView,
    /// All nodes, in the order of their names.
    pub nodes: &'a [Arc<NodeView>],
    /// The Service's endpoints.
    pub endpoints: &'a EndpointsView,
    /// Network interfaces by address, for those of [`wanted_enis`] that were found.
    pub enis: &'a BTreeMap<IpAddr, String>,
    /// Blocks of the VPC; if empty, every address counts as inside.
    pub vpc_cidrs: &'a [IpNet],
    /// From the configuration.
    pub settings: &'a Settings,
}

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Who asks.
    pub owner: Owner,
    /// A load balancer of a user, to be used and never deleted.
    pub reuse: Option<String>,
    /// Whether listeners on a user's load balancer are managed.
    pub override_listeners: bool,
    /// Whether listeners are managed.
    pub manage_listeners: bool,
    /// Whether a load balancer with a public address is refused.
    pub forbid_public: bool,
    /// Whether the load balancer is kept when the Service goes.
    pub preserve: bool,
    /// The instance.
    pub instance: DesiredInstance,
    /// Listeners.
    pub listeners: BTreeMap<ListenerKey, DesiredListener>,
    /// Who may reach them, where the Service says so.
    pub access: Option<DesiredAccess>,
    /// Whether the ranges only count if a list of ours keeps them already, see [`is_inherited`].
    pub inherited: bool,
    /// Whether an access control list that carries our name is known to be there, or to have been.
    pub access_list_known: bool,
    /// What is kept as it should be.
    pub manage: Manage,
    /// Server groups, by name, or by id if a user made them.
    pub groups: BTreeMap<String, DesiredGroup>,
    /// Most backends in one call.
    pub batch_size: usize,
    /// What has no effect, or is left out.
    pub warnings: Vec<Problem>,
    /// Ports without a single backend.
    pub empty_ports: Vec<ListenerKey>,
    /// Whether backends are kept as they are because not one of the nodes that may serve is ready.
    pub blackout: bool,
    /// Addresses of pods inside the VPC for which no network interface was found; nothing is removed from their groups.
    pub unresolved: BTreeSet<IpAddr>,
    /// Addresses of pods outside the VPC, left out.
    pub outside: BTreeSet<IpAddr>,
    /// Published instead of an address.
    pub hostname: Option<String>,
    /// Whether bound elastic addresses are published.
    pub eip: bool,
    /// `status.loadBalancer.ingress` of the Service as it is.
    pub ingress: Vec<Ingress>,
}

/// What is asked of the instance. What is `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredInstance {
    /// Parameters for the case that there is none yet.
    pub create: CreateInstance,
    /// Whether nothing says in which zones it is to be, see [`Desired::choose_zones`].
    pub near_nodes: bool,
    /// Visible name.
    pub name: Option<String>,
    /// The vSwitch that an annotation asks for; it counts only when the instance is made.
    pub vswitch_id: Option<String>,
    /// What cannot be changed: (annotation key, attribute, wanted value).
    pub fixed: Vec<(String, FixedAttribute, String)>,
    /// `PayBySpec` or `PayByCLCU`
    pub instance_charge_type: Option<String>,
    /// Specification.
    pub spec: Option<String>,
    /// Specification for `PayBySpec` where the annotation is silent.
    pub default_spec: String,
    /// `paybytraffic` or `paybybandwidth`
    pub internet_charge_type: Option<String>,
    /// Mbit/s
    pub bandwidth: Option<i64>,
    /// Delete protection.
    pub delete_protection: Option<bool>,
    /// `ConsoleProtection` or `NonProtection`
    pub modification_protection: Option<String>,
    /// If not empty: exactly these, besides ours and the vendor's.
    pub tags: BTreeMap<String, String>,
}

/// An attribute of an instance that is chosen when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedAttribute {
    /// Public or private.
    AddressType,
    /// `ipv4` or `ipv6`
    IpVersion,
    /// `classic` or `vpc`
    NetworkType,
    /// The private address.
    Address,
    /// Primary zone.
    MasterZone,
    /// Secondary zone.
    SlaveZone,
    /// Resource group.
    ResourceGroup,
}

impl FixedAttribute {
    /// Its value on an instance.
    #[must_use]
    pub fn of(self, instance: &ObservedInstance) -> &str {
        match self {
            Self::AddressType => &instance.address_type,
            Self::IpVersion => &instance.ip_version,
            Self::NetworkType => &instance.network_type,
            Self::Address => &instance.address,
            Self::MasterZone => &instance.master_zone,
            Self::SlaveZone => &instance.slave_zone,
            Self::ResourceGroup => &instance.resource_group_id,
        }
    }
}

/// A listener as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredListener {
    /// Where it comes from, such as `spec.ports[0]`.
    pub source: String,
    /// The ownership mark.
    pub description: String,
    /// Where it sends traffic, unless it redirects.
    pub group: GroupRef,
    /// Attributes that annotations set, those of redirection apart.
    pub fields: ListenerFields,
    /// Attributes of a new listener where no annotation speaks.
    pub defaults: ListenerFields,
    /// The HTTPS port to which it redirects.
    pub forward_to: Option<u16>,
    /// Certificates by domain; `None` leaves them.
    pub domain_extensions: Option<BTreeMap<String, String>>,
}

/// A server group as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredGroup {
    /// By name if it is ours, by id if a user made it.
    pub group: GroupRef,
    /// Where it comes from, such as `spec.ports[0]`.
    pub source: String,
    /// Its backends, as far as they are ours.
    pub backends: BTreeMap<BackendKey, Backend>,
    /// Whether backends may be missing here that should be there, so that none is removed or changed.
    pub incomplete: bool,
    /// Whether weights of backends that are there are left as they are.
    pub ignore_weights: bool,
}

/// What must still be read before a diff means anything. Groups' names come first; see [`Observed::groups`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether the instance must be read by itself: a list does not say everything.
    pub instance: bool,
    /// Whether all listeners must be listed.
    pub listeners: bool,
    /// HTTPS listeners whose domain extensions must be listed.
    pub domain_extensions: Vec<ListenerKey>,
    /// Ids of server groups whose backends must be listed.
    pub group_backends: Vec<String>,
    /// Ids of certificates that must be looked up.
    pub certificates: Vec<String>,
    /// Name of the access control list that must be looked up.
    pub access_list: Option<String>,
}

impl Needs {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Desired {
    /// Where nothing says in which zones a load balancer that is to be made goes, it goes where most nodes are. To be asked
    /// only when there is none: it takes a look at every node.
    pub fn choose_zones(&mut self, nodes: &[Arc<NodeView>]) {
        if self.instance.near_nodes {
            let create = &mut self.instance.create;
            (create.master_zone, create.slave_zone) = zones::near(nodes);
            create.zones_can_change = create.master_zone.is_some();
        }
    }

    /// What must still be read. Ask again after reading: which certificates matter depends on the listeners.
    ///
    /// On a user's load balancer the groups that users made are read as well, so that backends of ours in a group that
    /// the Service no longer names are found; groups of other Services are not.
    #[must_use]
    pub fn needs(&self, observed: &Observed) -> Needs {
        if observed.instance.is_none() {
            return Needs {
                access_list: access::unread(self, observed).then(|| self.owner.access_list_name()),
                ..Needs::default()
            };
        }
        let unsure = |it: &ObservedInstance| it.pending_charge == PendingCharge::Unread && charge_differs(self, it);
        let mut needs = Needs {
            instance: observed.instance.as_ref().is_some_and(unsure),
            listeners: (self.manage_listeners || self.has_stale_group(observed)) && observed.listeners.is_none(),
            group_backends: groups_to_read(&self.owner, self.reuse.is_some(), observed),
            access_list: access::unread(self, observed).then(|| self.owner.access_list_name()),
            ..Needs::default()
        };
        let https = self.listeners.iter().filter(|(key, _)| self.manage_listeners && key.protocol == Protocol::Https);
        for (key, listener) in https {
            let Some(remote) = observed.listeners.as_ref().and_then(|listeners| listeners.get(key)) else { continue };
            if listener.domain_extensions.is_some() && remote.domain_extensions.is_none() {
                needs.domain_extensions.push(*key);
            }
            let certificate = |fields: &ListenerFields| fields.get(&ListenerField::ServerCertificateId).cloned();
            if let (Some(new), Some(old)) = (certificate(&listener.fields), certificate(&remote.fields))
                && new != old
            {
                needs.certificates.extend([new, old].into_iter().filter(|id| !observed.certificates.contains_key(id)));
            }
        }
        needs.certificates.sort_unstable();
        needs.certificates.dedup();
        needs
    }

    /// Whether a group of ours is no longer wanted: what refers to it decides whether it can go.
    fn has_stale_group(&self, observed: &Observed) -> bool {
        let wanted = |name: &str| {
            self.groups.values().any(|wanted| match &wanted.group {
                GroupRef::Named(named) => self.owner.same_mark(named, name),
                GroupRef::Id(_) => false,
            })
        };
        observed.groups.values().any(|group| self.owner.owns_group(&group.name) && !wanted(&group.name))
    }
}

/// Groups whose backends decide something: ours, and on a user's load balancer the users'.
pub(super) fn groups_to_read(owner: &Owner, reused: bool, observed: &Observed) -> Vec<String> {
    observed
        .groups
        .iter()
        .filter(|(_, group)| group.backends.is_none())
        .filter(|(_, group)| owner.owns_group(&group.name) || (reused && !is_mark(&group.name)))
        .map(|(id, _)| id.clone())
        .collect()
}

/// What the Service's status should say. `eips` are the elastic addresses bound to the load balancer, if they were asked
/// for; without any, the load balancer's own address counts.
#[must_use]
pub fn expected_ingress(desired: &Desired, instance: &ObservedInstance, eips: &[String]) -> Vec<Ingress> {
    let ip = |ip: &String| Ingress { ip: ip.clone(), hostname: String::new() };
    match &desired.hostname {
        Some(hostname) => vec![Ingress { ip: String::new(), hostname: hostname.clone() }],
        None if desired.eip && !eips.is_empty() => eips.iter().map(ip).collect(),
        None if instance.address.is_empty() => Vec::new(),
        None => vec![ip(&instance.address)],
    }
}

/// What newer API servers hold of each entry besides: `ipMode`, if `ip_mode` says that the server knows it, and how the
/// ports are doing.
///
/// With PROXY protocol, connections that do not pass the load balancer would lack the header that backends wait for, so
/// that nodes must not take the short way: `Proxy`. Otherwise they may: `VIP`.
#[must_use]
pub fn expected_details(
    service: &ServiceView,
    desired: &Desired,
    observed: &Observed,
    ingress: &[Ingress],
    ip_mode: bool,
) -> Vec<IngressDetails> {
    let proxy = desired
        .listeners
        .values()
        .any(|listener| listener.fields.get(&ListenerField::ProxyProtocolV2Enabled).is_some_and(|on| on == "true"));
    let served = |index: usize| {
        let source = format!("spec.ports[{index}]");
        let wanted = desired.listeners.iter().find(|(_, listener)| listener.source == source);
        let ours = |key: &ListenerKey| {
            let there = observed.listeners.as_ref().is_none_or(|all| {
                all.get(key).is_some_and(|listener| desired.owner.owns_listener(&listener.description))
            });
            there || !desired.manage_listeners || !desired.manage.keeps(Manage::Listeners)
        };
        wanted.is_some_and(|(key, _)| ours(key))
    };
    let ports: Vec<PortStatus> = (0..)
        .zip(&service.ports)
        .map(|(index, port)| PortStatus {
            port: port.port,
            protocol: port.protocol.clone(),
            error: if served(index) { String::new() } else { PORT_NOT_SERVED.to_owned() },
        })
        .collect();
    let mode = |entry: &Ingress| match entry.ip.as_str() {
        _ if !ip_mode => "",
        "" => "",
        _ if proxy => "Proxy",
        _ => "VIP",
    };
    ingress.iter().map(|entry| IngressDetails { ip_mode: mode(entry).to_owned(), ports: ports.clone() }).collect()
}

/// The error of a port that has no listener of ours.
const PORT_NOT_SERVED: &str = "alibabacloud.com/ListenerMissing";
