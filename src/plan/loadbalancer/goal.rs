//! What a Service asks for: its load balancer, or that nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::annotations::parse;
use super::applied::{self, applied};
use super::backends::{self, Inputs, KnownNodes};
use super::cloud::Observed;
use super::desire::backend_rules;
use super::desired::{Desired, ProductModel, Removal};
use super::group_diff::{self, GroupModel};
use super::handling::Departure;
use super::listener_diff::port_statuses;
use super::model::DesiredGroup;
use super::origins::origins;
use super::ownership::{LABEL_SECURITY_GROUP, Owner};
use super::problem::ServiceProblem;
use super::settings::ServiceSettings;
use super::steps::Plan;
use super::unready::UnreadyNodes;
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::setting::SettingOrigin;

/// What a Service asks for.
#[derive(Debug)]
pub enum Goal<M: ProductModel> {
    /// This load balancer.
    Ensure(Box<Desired<M>>),
    /// That nothing of the Service is left.
    Remove(Box<Removal>),
}

impl<M: ProductModel> Goal<M> {
    /// The desired state of a managed Service. Its problems are in the diff, which does not change what a problem is about.
    pub fn desire(inputs: &Inputs<'_>) -> Self {
        Self::Ensure(Box::new(Desired::of(inputs)))
    }

    /// The same as far as the Service says it by itself, without nodes, endpoints and network interfaces.
    pub fn desire_alone(service: &ServiceView, settings: &ServiceSettings) -> Self {
        let (nodes, endpoints, enis): ([Arc<NodeView>; 0], _, _) = ([], EndpointsView::default(), BTreeMap::new());
        Self::desire(&Inputs {
            service,
            nodes: &nodes,
            endpoints: &endpoints,
            enis: &enis,
            vpc_cidrs: &[],
            settings,
            unready: UnreadyNodes::NONE,
            now: Duration::ZERO,
        })
    }

    /// The desired state of a Service that is deleted or no longer managed: nothing of it remains.
    pub fn removal(service: &ServiceView, settings: &ServiceSettings) -> Self {
        Self::Remove(Box::new(Removal {
            owner: Owner::of_kind(M::KIND, service, settings),
            departure: Departure::of(M::KIND, service),
            stays: !service.deleting,
            had_ranges: !service.source_ranges.is_empty()
                || applied(service, M::KIND.applied_key()).contains(applied::SOURCE_RANGES)
                || service.labels.contains_key(LABEL_SECURITY_GROUP),
        }))
    }

    /// Addresses of pods whose network interfaces must be looked up before the pods can be attached.
    pub fn addresses_to_resolve(
        service: &ServiceView,
        nodes: &dyn KnownNodes,
        endpoints: &EndpointsView,
        settings: &ServiceSettings,
    ) -> BTreeSet<IpAddr> {
        let rules = backend_rules::<M>(service, &parse(service), settings);
        backends::addresses_to_resolve(&rules, &service.ports, nodes, endpoints)
    }

    /// Whose load balancer it is.
    pub fn owner(&self) -> &Owner {
        match self {
            Self::Ensure(desired) => &desired.owner,
            Self::Remove(removal) => &removal.owner,
        }
    }

    /// The desired load balancer; `None` for a Service that is deleted or no longer managed.
    pub fn desired(&self) -> Option<&Desired<M>> {
        match self {
            Self::Ensure(desired) => Some(desired),
            Self::Remove(_) => None,
        }
    }

    /// The user's load balancer that the Service names.
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Ensure(desired) => desired.reuse.as_deref(),
            Self::Remove(removal) => removal.departure.reuse.as_deref(),
        }
    }

    /// Whether a load balancer of ours is kept when the Service is deleted.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Remove(removal) if removal.departure.preserve && removal.departure.reuse.is_none())
    }

    /// Server groups.
    pub fn groups(&self) -> &BTreeMap<String, DesiredGroup> {
        self.desired().map_or(const { &BTreeMap::new() }, |desired| &desired.groups)
    }

    /// Addresses of pods inside the VPC for which no network interface was found.
    pub fn unresolved(&self) -> &BTreeSet<IpAddr> {
        self.desired().map_or(const { &BTreeSet::new() }, |desired| &desired.unresolved)
    }

    /// Addresses of pods outside the VPC, left out.
    pub fn outside(&self) -> &BTreeSet<IpAddr> {
        self.desired().map_or(const { &BTreeSet::new() }, |desired| &desired.outside)
    }

    /// Settings of the Service without an effect.
    pub fn warnings(&self) -> &[ServiceProblem] {
        self.desired().map_or(&[], |desired| &desired.warnings)
    }

    /// Whether elastic addresses are published.
    pub fn publishes_elastic(&self) -> bool {
        self.desired().is_some_and(M::publishes_elastic)
    }

    /// The same, to complete it.
    pub fn desired_mut(&mut self) -> Option<&mut Desired<M>> {
        match self {
            Self::Ensure(desired) => Some(desired),
            Self::Remove(_) => None,
        }
    }

    /// What remains of a Service that is deleted or no longer managed; `None` for a managed one.
    pub fn departure(&mut self) -> Option<&mut Departure> {
        match self {
            Self::Ensure(_) => None,
            Self::Remove(removal) => Some(&mut removal.departure),
        }
    }

    /// Where each setting of the load balancer comes from, in words, beside what there is.
    pub fn origins(
        &self,
        service: &ServiceView,
        settings: &ServiceSettings,
        observed: &Observed<M>,
    ) -> Vec<SettingOrigin> {
        self.desired().map(|desired| origins(service, settings, desired, observed)).unwrap_or_default()
    }

    /// The steps from the observed state to the goal.
    pub fn diff(&self, observed: &Observed<M>) -> Plan<M> {
        match self {
            Self::Ensure(desired) => M::diff(desired, observed),
            Self::Remove(removal) => M::teardown(removal, observed),
        }
    }

    /// Those of the steps that only keep the backends of existing server groups in sync.
    pub(crate) fn follow(&self, observed: &Observed<M>) -> Plan<M>
    where
        M: GroupModel,
    {
        self.desired().map(|desired| group_diff::follow(desired, observed, true)).unwrap_or_default()
    }

    /// What the status of the Service should say. `elastic` are the elastic addresses bound to the load balancer, if they were
    /// asked for.
    pub fn ingress(&self, observed: &Observed<M>, elastic: &[String]) -> Vec<Ingress> {
        self.desired().map(|desired| M::ingress(desired, observed, elastic)).unwrap_or_default()
    }

    /// What newer API servers store with each entry of `ingress`: `ipMode`, if `ip_mode` says that the server knows it, and how
    /// the ports are doing.
    ///
    /// With PROXY protocol, connections that do not pass the load balancer would lack the header that backends wait for, so
    /// that nodes must not take the short way: `Proxy`. Otherwise they may: `VIP`.
    pub fn ingress_details(
        &self,
        service: &ServiceView,
        observed: &Observed<M>,
        ingress: &[Ingress],
        ip_mode: bool,
    ) -> Vec<IngressDetails> {
        let Some(desired) = self.desired() else { return Vec::new() };
        let ports = port_statuses(service, desired, observed);
        let mode = |entry: &Ingress| match entry.ip.as_str() {
            "" => "",
            _ if !ip_mode => "",
            _ if M::speaks_proxy_protocol(desired) => "Proxy",
            _ => "VIP",
        };
        ingress.iter().map(|entry| IngressDetails { ip_mode: mode(entry).to_owned(), ports: ports.clone() }).collect()
    }
}
