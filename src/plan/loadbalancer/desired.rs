//! What a Service asks for, complete and comparable, as far as it is the same for every product. `Desired::of` reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use super::annotations::{AnnotationName, Annotations};
use super::applied::Applied;
use super::backends::{AddressFamily, BackendMode, BackendRules, BackendSources, Inputs};
use super::cloud::{CloudModel, Observed};
use super::handling::Departure;
use super::management::ManagementLevel;
use super::model::{Backend, BackendKey, BackendKind, DesiredBackends, DesiredGroup, GroupRef, NodeBackends};
use super::operation::{ListenerFields, OperationModel};
use super::ownership::{LoadBalancerKind, Owner};
use super::problem::{ListenerPlace, ProblemScope, ScopedProblems, ServiceProblem};
use super::settings::ServiceSettings;
use super::steps::{Plan, Target};
use super::unready::UnreadyNodes;
use crate::plan::inputs::{Endpoint, EndpointsView, Ingress, ServicePort, ServiceView, TargetPort};
use crate::plan::setting::Otherwise;

/// What a product brings, so that what all products do is written once.
pub trait ProductModel: CloudModel<ListenerKey: Into<Target>> {
    /// Which kind of load balancer it is.
    const KIND: LoadBalancerKind;
    /// Annotations that decide about server groups, besides those that name them.
    const FIXES_GROUPS: &'static [Self::Name] = &[];
    /// Its annotations.
    type Name: AnnotationName;
    /// What is asked of the instance.
    type Instance: Clone + Debug + Send + Sync;
    /// Who may reach the listeners.
    type Access: Clone + Debug + Send + Sync;
    /// What only this product has.
    type Extra: Clone + Debug + Send + Sync;

    /// Which addresses of backends are attached.
    fn family(annotations: &Annotations<Self::Name>, settings: &ServiceSettings) -> AddressFamily;

    /// Whether backends are attached by their addresses alone.
    fn attaches_addresses(_annotations: &Annotations<Self::Name>) -> bool {
        false
    }

    /// What is asked of the instance, and what only this product has.
    fn instance(sources: &Sources<'_, Self::Name>, problems: &mut ScopedProblems) -> (Self::Instance, Self::Extra);

    /// Adds who may reach the listeners.
    fn add_access(_desired: &mut Desired<Self>, _sources: &Sources<'_, Self::Name>) {}

    /// Adds the listener and the server group of a port, which is at `source`.
    ///
    /// # Errors
    /// What is wrong with the port.
    fn add_port(
        _desired: &mut Desired<Self>,
        _sources: &Sources<'_, Self::Name>,
        _source: String,
        _port: &ServicePort,
    ) -> Result<(), ServiceProblem> {
        Ok(())
    }

    /// Where the listener of a port of the Service is; `None` if its protocol has none.
    fn place(_sources: &Sources<'_, Self::Name>, _port: &ServicePort) -> Option<ListenerPlace> {
        None
    }

    /// What stays as it is while an annotation makes no sense, server groups apart.
    fn scope_of(_name: Self::Name, _desired: &Desired<Self>) -> ProblemScope {
        ProblemScope::default()
    }

    /// Checks what is desired as a whole, and adds what of it has no effect.
    fn check(_desired: &mut Desired<Self>, _sources: &Sources<'_, Self::Name>) {}

    /// What holds where no annotation speaks.
    fn otherwise(
        service: &ServiceView,
        settings: &ServiceSettings,
        desired: &Desired<Self>,
    ) -> Vec<Otherwise<Self::Name>>;

    /// What the load balancer has, as annotations would say it.
    fn found(instance: &Self::ObservedInstance) -> Vec<(Self::Name, String)>;

    /// The steps to the desired state.
    fn diff(desired: &Desired<Self>, observed: &Observed<Self>) -> Plan<Self>;

    /// The steps after which nothing of the Service is left.
    fn teardown(removal: &Removal, observed: &Observed<Self>) -> Plan<Self>;

    /// Whether elastic addresses are published.
    fn publishes_elastic(_desired: &Desired<Self>) -> bool {
        false
    }

    /// Whether backends wait for a header that the load balancer alone puts before a connection.
    fn speaks_proxy_protocol(_desired: &Desired<Self>) -> bool {
        false
    }

    /// What the status of the Service should say.
    fn ingress(desired: &Desired<Self>, observed: &Observed<Self>, elastic: &[String]) -> Vec<Ingress>;
}

/// What a Service asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired<M: ProductModel> {
    /// Who asks.
    pub owner: Owner,
    /// A load balancer of a user, to be used and never deleted.
    pub reuse: Option<String>,
    /// Whether listeners are managed.
    pub manage_listeners: bool,
    /// Whether a load balancer with a public address is refused.
    pub forbid_public: bool,
    /// Other Services of this cluster that do not exist any more, and whose marks are on the user's load balancer.
    pub vanished: Vec<Owner>,
    /// The instance.
    pub instance: M::Instance,
    /// Where listeners of all its ports are.
    pub places: BTreeSet<ListenerPlace>,
    /// Listeners.
    pub listeners: BTreeMap<M::ListenerKey, DesiredListener<M>>,
    /// Who may reach them, where the Service says so.
    pub access: Option<M::Access>,
    /// Which parts of the load balancer are managed.
    pub manage: ManagementLevel,
    /// Server groups, by name, or by id if a user made them.
    pub groups: BTreeMap<String, DesiredGroup>,
    /// Whether the server group of a port is not known, so that none counts as no longer wanted.
    pub ports_without_group: bool,
    /// Node ports of the Service.
    pub node_ports: NodePorts,
    /// Everything that is wrong with the Service.
    pub problems: ScopedProblems,
    /// Most backends in one call.
    pub batch_size: usize,
    /// What has no effect, or is left out.
    pub warnings: Vec<ServiceProblem>,
    /// Ports without a single backend.
    pub empty_ports: Vec<M::ListenerKey>,
    /// Nodes that may serve and are not ready.
    pub unready: UnreadyNodes,
    /// Addresses of pods inside the VPC for which no network interface was found; nothing is removed from their groups.
    pub unresolved: BTreeSet<IpAddr>,
    /// Addresses of pods outside the VPC, left out.
    pub outside: BTreeSet<IpAddr>,
    /// `status.loadBalancer.ingress` of the Service as it is.
    pub ingress: Vec<Ingress>,
    /// The load balancer that the label of the Service names: it has been used. Empty without the label.
    pub label: String,
    /// What was applied before, as far as it must be [remembered](super::applied).
    pub applied: Applied,
    /// What of that is asked for, or not managed now.
    pub applies: Applied,
    /// What only this product has.
    pub extra: M::Extra,
}

/// A desired listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredListener<M: OperationModel> {
    /// The port of the Service.
    pub port: u16,
    /// Where it comes from, such as `spec.ports[0]`.
    pub source: String,
    /// The ownership mark.
    pub description: String,
    /// Where it sends traffic, unless it redirects.
    pub group: GroupRef,
    /// Attributes that annotations set, those of redirection apart.
    pub fields: ListenerFields<M>,
    /// Attributes of a new listener where no annotation speaks.
    pub defaults: ListenerFields<M>,
    /// Attributes to which a listener that exists goes back where no annotation speaks: the spec had set them otherwise.
    pub resets: ListenerFields<M>,
    /// The port to which it redirects.
    pub forward_to: Option<u16>,
    /// Certificates besides the default one; `None` leaves them.
    pub certificates: Option<M::Certificates>,
}

/// A Service whose load balancer is to go.
#[derive(Debug)]
pub struct Removal {
    /// The Service.
    pub owner: Owner,
    /// What remains of it.
    pub departure: Departure,
    /// Whether the Service stays, so that its user can want the load balancer back.
    pub stays: bool,
    /// Whether an access control list, or a security group of ours, may be there.
    pub had_ranges: bool,
}

/// The ports at which nodes serve a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePorts {
    own: BTreeSet<u16>,
    /// Where nodes are attached by their addresses: ports of pods, which were perhaps attached before.
    of_pods: Option<BTreeSet<u16>>,
    /// Where all endpoints serve, sorted; `None` if that is not known, or if no pods are attached directly. Pods that were
    /// attached before stay where a port lacks its node port.
    pods: Option<Vec<(IpAddr, u16)>>,
}

impl NodePorts {
    pub(super) fn of(service: &ServiceView, endpoints: &EndpointsView, rules: &BackendRules) -> Self {
        let has_pods = rules.mode == BackendMode::Eni || service.ports.iter().any(|port| port.node_port == 0);
        let by_address = rules.nodes.by_address && rules.mode != BackendMode::Eni;
        let number = |port: &ServicePort| match port.target_port {
            TargetPort::Number(number) => Some(number),
            TargetPort::Name(_) => None,
        };
        let serving = |endpoint: &Endpoint| {
            let ports = endpoint.ports.iter().map(|(_, port)| *port).chain(service.ports.iter().filter_map(number));
            let address = endpoint.address;
            ports.map(move |port| (address, port)).collect::<Vec<_>>()
        };
        let of_pods = service.ports.iter().map(number).collect::<Option<_>>().filter(|_| by_address);
        let pods = (has_pods && !endpoints.unknown).then(|| {
            let mut all: Vec<_> = endpoints.endpoints.iter().flat_map(serving).collect();
            all.sort_unstable();
            all
        });
        Self { own: service.ports.iter().map(|port| port.node_port).collect(), of_pods, pods }
    }

    pub(crate) fn contains(&self, port: u16) -> bool {
        self.own.contains(&port)
    }

    /// Why a backend is the Service's no longer: it is a node at a port that was taken back, or a pod that is gone.
    pub(crate) fn freed(&self, backend: &BackendKey) -> Option<&'static str> {
        let is_node = match backend.kind {
            BackendKind::Ecs => true,
            BackendKind::Ip => self.of_pods.as_ref().is_some_and(|ports| !ports.contains(&backend.port)),
            BackendKind::Eni => false,
        };
        let place = backend.server_ip.parse().ok().map(|address: IpAddr| (address, backend.port));
        let is_gone = |pods: &Vec<_>| place.is_some_and(|place| pods.binary_search(&place).is_err());
        if is_node {
            (!self.own.contains(&backend.port)).then_some("the Service has this node port no longer")
        } else {
            self.pods.as_ref().is_some_and(is_gone).then_some("no endpoint of the Service serves there")
        }
    }
}

/// What is read to know what a Service asks for.
#[derive(Debug)]
pub struct Sources<'a, N> {
    pub(crate) inputs: &'a Inputs<'a>,
    pub(crate) annotations: &'a Annotations<N>,
    pub(crate) owner: Owner,
    pub(crate) backends: BackendSources<'a>,
    pub(crate) rules: &'a BackendRules,
}

impl<M: ProductModel> Desired<M> {
    /// Remembers what is asked for of an item, or that it is to be taken back where that is `managed`. Says whether it is taken back.
    pub(crate) fn remember(&mut self, item: &str, wanted: bool, managed: bool) -> bool {
        let was_applied = self.applied.contains(item);
        if (managed && wanted) || (!managed && was_applied) {
            self.applies.insert(item.to_owned());
        }
        managed && !wanted && was_applied
    }

    /// Whether listeners are managed, and nothing stops that.
    pub(crate) fn changes_listeners(&self) -> bool {
        self.manage_listeners && self.manage.keeps(ManagementLevel::Listeners)
    }

    /// The server group of the user for a port, if there is one; otherwise one of ours is used. `source` is the port, for
    /// messages.
    pub(crate) fn named_group(
        &self,
        sources: &Sources<'_, M::Name>,
        source: &str,
        port: &ServicePort,
    ) -> Result<Option<GroupRef>, ServiceProblem> {
        if sources.rules.mode != BackendMode::Eni && port.node_port == 0 {
            return Err(ServiceProblem::required(
                node_port(source),
                "backends need it: set spec.allocateLoadBalancerNodePorts to true, or attach pods directly with \
                 service.beta.kubernetes.io/backend-type: eni",
            ));
        }
        let stated = sources.annotations.at_port(M::Name::VGROUP_PORT, port.port);
        Ok(stated.filter(|_| self.reuse.is_some()).map(|id| GroupRef::Id(id.to_owned())))
    }

    /// Adds the backends of a port to its group, with this mark. `at` gives the port of a backend as the group holds it. Says
    /// whether there are none.
    pub(crate) fn add_backends(
        &mut self,
        sources: &Sources<'_, M::Name>,
        (source, port): (&str, &ServicePort),
        (group, mark): (&GroupRef, String),
        at: impl Fn(u16) -> u16,
    ) -> bool {
        let found = sources.backends.of(port, sources.inputs);
        self.unresolved.extend(&found.unresolved);
        self.outside.extend(&found.outside);
        let annotations = sources.annotations;
        let unsure = [M::Name::WEIGHT, M::Name::DEFAULT_WEIGHT, M::Name::IGNORE_WEIGHT_UPDATE];
        let mark: Arc<str> = mark.into();
        let entry = self.groups.entry(group.to_string()).or_insert_with(|| DesiredGroup {
            group: group.clone(),
            source: source.to_owned(),
            ignore_weights: annotations.is(M::Name::IGNORE_WEIGHT_UPDATE, "on")
                || unsure.into_iter().any(|name| annotations.is_wrong(name)),
            backends: DesiredBackends::default(),
            incomplete: false,
            withheld: BTreeSet::new(),
            unplaced: BTreeSet::new(),
        });
        entry.incomplete |= found.incomplete;
        entry.unplaced.extend(found.unresolved.iter().chain(&found.outside).map(|ip| ip.to_string().into()));
        let key = |key: BackendKey| BackendKey { port: at(key.port), ..key };
        let is_empty = found.backends.is_empty() && found.nodes.is_empty();
        entry.withheld.extend(found.withheld.into_iter().map(key));
        let backends = found.backends.into_iter().map(|(backend, weight)| {
            let (key, description) = (key(backend), mark.clone());
            (key.clone(), Backend { key, weight, description })
        });
        // Of those that are the same, the first counts. A map that is made of all at once is made several times as fast.
        let mut own: BTreeMap<BackendKey, Backend> = backends.rev().collect();
        own.append(&mut entry.backends.own);
        entry.backends.own = own;
        if !found.nodes.is_empty() {
            let (servers, port, weight, description) = (found.nodes, at(port.node_port), found.weight, mark);
            entry.backends.nodes.push(NodeBackends { servers, port, weight, description });
        }
        is_empty
    }

    /// Whether backends may be missing where they should be.
    pub(crate) fn is_unsure(&self) -> bool {
        !self.unresolved.is_empty() || self.groups.values().any(DesiredGroup::is_unsure)
    }

    /// Whether a group is empty only because its backends could not be determined.
    pub(crate) fn would_empty(&self, group: &GroupRef) -> bool {
        let group = self.groups.get(&group.to_string());
        group.is_some_and(DesiredGroup::may_be_empty_by_mistake)
    }

    /// Whether a group of ours is no longer wanted: what refers to it decides whether it can go.
    pub(crate) fn has_stale_group(&self, observed: &Observed<M>) -> bool {
        let wanted = |name: &str| {
            self.groups.values().any(|wanted| match &wanted.group {
                GroupRef::Named(named) => self.owner.same_mark(named, name),
                GroupRef::Id(_) => false,
            })
        };
        observed.groups.values().any(|group| self.owner.owns_group(&group.name) && !wanted(&group.name))
    }
}

/// The field of the node port of a port.
pub(super) fn node_port(source: &str) -> String {
    format!("{source}.nodePort")
}
