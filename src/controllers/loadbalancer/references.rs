//! What a Service's goal depends on and must be looked up first: endpoints, pods with readiness gates, network interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::Views;
use super::candidates::{CandidatePool, ServiceNodes};
use super::product::Product;
use super::report::Halt;
use super::state::{Interfaces, ServiceState};
use super::together::Together;
use crate::alibaba::{CloudClient, Fault};
use crate::cluster::{Cluster, StoreEntry, WriteFault};
use crate::plan::inputs::{EndpointsView, ObjectKey, PodView, ServiceView};
use crate::plan::loadbalancer::backends::{Inputs, is_inside};
use crate::plan::loadbalancer::gates;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::location::CloudLocation;

/// After this time, an address outside of the VPC is compared with the blocks of the VPC anew.
pub(super) const OUTSIDE_AGAIN: Duration = Duration::from_secs(60);
/// From so many pods on, all pods of the Service are listed instead of each being read.
const LIST_PODS: usize = 20;
/// Pods read at once.
const PODS_AT_ONCE: usize = 8;

/// What was looked up for one goal.
#[derive(Debug)]
pub(super) struct References {
    nodes: ServiceNodes,
    /// The Service's endpoints; those whose pods wait only for the load balancer count as ready.
    pub(super) endpoints: Arc<EndpointsView>,
    /// Pods with the Service's gate that were read, by name.
    pub(super) gated_pods: BTreeMap<String, PodView>,
    /// How many of them wait for their containers.
    pub(super) waiting_pods: usize,
    /// Addresses that are backends themselves.
    pub(super) attached: BTreeSet<IpAddr>,
    pub(super) interfaces: Arc<Interfaces>,
    vpc_cidrs: Arc<[IpNet]>,
}

impl References {
    /// What the Service asks for.
    pub(super) fn desire<P: Product>(
        &self,
        service: &ServiceView,
        settings: &ServiceSettings,
        state: &ServiceState<P::Model>,
    ) -> Goal<P::Model> {
        let enis = self.interfaces.iter().map(|(ip, (_, interface))| (*ip, interface.clone())).collect();
        let Self { nodes, endpoints, vpc_cidrs, .. } = self;
        let (unready, now) = (&state.cached.unready, state.now());
        Goal::desire(&Inputs { service, nodes, endpoints, enis: &enis, vpc_cidrs, settings, unready, now })
    }
}

/// Looks references up.
#[derive(Debug)]
pub(super) struct Resolver {
    cluster: Cluster,
    cloud: CloudClient,
    location: Arc<CloudLocation>,
    views: Views,
    pub(super) candidates: Arc<CandidatePool>,
    /// Blocks of the VPC, and when they were read.
    vpc_cidrs: Mutex<Option<(Instant, Arc<[IpNet]>)>>,
    /// All that need them wait for one call.
    reading_cidrs: Together<Arc<[IpNet]>>,
}

impl Resolver {
    pub(super) fn new(cluster: Cluster, cloud: CloudClient, location: Arc<CloudLocation>, views: Views) -> Self {
        let candidates = Arc::new(CandidatePool::new(views.clone()));
        let (vpc_cidrs, reading_cidrs) = Default::default();
        Self { cluster, cloud, location, views, candidates, vpc_cidrs, reading_cidrs }
    }

    /// Looks up what the Service's goal depends on. Interfaces that are `known` are not asked for again.
    pub(super) async fn look_up<P: Product>(
        &self,
        service: &ServiceView,
        settings: &ServiceSettings,
        ungated: &mut BTreeSet<String>,
        known: Option<&Interfaces>,
    ) -> Result<References, Halt> {
        let endpoints = self.endpoints(service)?;
        let gate = gates::gate_of(service);
        let gated_pods = self.gated_pods(service, &endpoints, ungated).await?;
        let admitted = (!gated_pods.is_empty()).then(|| gates::admitted(&gate, &endpoints, &gated_pods));
        let (endpoints, waiting_pods) =
            admitted.map_or((endpoints, 0), |(admitted, waiting)| (Arc::new(admitted), waiting));
        let nodes = self.candidates.for_service(&service.key);
        let attached = Goal::<P::Model>::addresses_to_resolve(service, &nodes, &endpoints, settings);
        let mut found = References {
            nodes,
            endpoints,
            gated_pods,
            waiting_pods,
            attached,
            interfaces: Arc::default(),
            vpc_cidrs: Arc::default(),
        };
        found.interfaces = Arc::new(self.interfaces(&mut found, known).await?);
        Ok(found)
    }

    /// Whether neither the watch nor the API server itself shows the Service.
    pub(super) async fn has_vanished(&self, service: &ObjectKey) -> bool {
        !self.views.services.store.has(service) && matches!(self.cluster.read_service(service).await, Ok(None))
    }

    fn endpoints(&self, service: &ServiceView) -> Result<Arc<EndpointsView>, Halt> {
        match self.views.endpoints.store.look_up(&service.key) {
            StoreEntry::Kept(endpoints) => Ok(endpoints),
            StoreEntry::Skipped => Err(Halt::endpoints_unread()),
            StoreEntry::Absent => {
                let unknown = self.views.endpoints.store.is_empty();
                Ok(Arc::new(EndpointsView { unknown, ..EndpointsView::default() }))
            }
        }
    }

    /// Finds the network interfaces of attached pods.
    async fn interfaces(&self, found: &mut References, known: Option<&Interfaces>) -> Result<Interfaces, Fault> {
        let attached = found.endpoints.endpoints.iter().filter(|endpoint| found.attached.contains(&endpoint.address));
        let pods: BTreeMap<IpAddr, u64> = attached.map(|endpoint| (endpoint.address, endpoint.pod_uid)).collect();
        let pod_at = |ip: &IpAddr| pods.get(ip).copied().unwrap_or_default();
        let mut interfaces = Interfaces::new();
        let mut unknown = Vec::new();
        for ip in &found.attached {
            // An address that went to another pod may have gone to another interface.
            match known.and_then(|known| known.get(ip)).filter(|(owner, _)| *owner == pod_at(ip)) {
                Some(interface) => drop(interfaces.insert(*ip, interface.clone())),
                None => unknown.push(*ip),
            }
        }
        if unknown.is_empty() {
            return Ok(interfaces);
        }
        found.vpc_cidrs = self.vpc_cidrs(&unknown).await?;
        // No interface of the VPC can hold an address from outside; asking again and again would be wasted calls.
        unknown.retain(|ip| is_inside(&found.vpc_cidrs, *ip));
        if !unknown.is_empty() {
            let resolved = resolve(&self.cloud, &self.location, &unknown).await?;
            interfaces.extend(resolved.into_iter().map(|(ip, interface)| (ip, (pod_at(&ip), interface))));
        }
        Ok(interfaces)
    }

    /// Blocks of the VPC, read again if one of the addresses seems to be outside: the VPC can have got another block.
    async fn vpc_cidrs(&self, addresses: &[IpAddr]) -> Result<Arc<[IpNet]>, Fault> {
        let suffices = || {
            let known = self.vpc_cidrs.lock().clone();
            let is_recent = |at: Instant| at.elapsed() < OUTSIDE_AGAIN;
            let known = known.filter(|(at, cidrs)| is_recent(*at) || addresses.iter().all(|ip| is_inside(cidrs, *ip)));
            known.map(|(_, cidrs)| cidrs)
        };
        if let Some(cidrs) = suffices() {
            return Ok(cidrs);
        }
        let id = &self.location.vpc_id;
        let read = async |_| {
            let cidrs = match suffices() {
                // Another caller has read them meanwhile.
                Some(cidrs) => cidrs,
                None => self.read_vpc_cidrs().await?,
            };
            Ok(BTreeMap::from([(id.clone(), cidrs)]))
        };
        let found = self.reading_cidrs.ask(std::slice::from_ref(id), read).await?;
        Ok(found.into_values().next().unwrap_or_default())
    }

    async fn read_vpc_cidrs(&self) -> Result<Arc<[IpNet]>, Fault> {
        let read = self.cloud.vpc.describe_vpc(&self.location.vpc_id).await;
        let before = self.vpc_cidrs.lock().take();
        let cidrs: Arc<[IpNet]> = match (read, before) {
            (Ok(vpc), _) => vpc.map(|vpc| vpc.cidrs).unwrap_or_default().into(),
            // Addresses inside of what is known need no more.
            (Err(_), Some((_, before))) => before,
            (Err(fault), None) => return Err(fault),
        };
        *self.vpc_cidrs.lock() = Some((Instant::now(), Arc::clone(&cidrs)));
        Ok(cidrs)
    }

    /// Pods that have the Service's gate and may not have passed it.
    async fn gated_pods(
        &self,
        service: &ServiceView,
        endpoints: &EndpointsView,
        ungated: &mut BTreeSet<String>,
    ) -> Result<BTreeMap<String, PodView>, Halt> {
        let gate = gates::gate_of(service);
        let mut names = gates::pods_to_read(service, endpoints);
        ungated.retain(|name| names.contains(name));
        names.retain(|name| !ungated.contains(name));
        let (gated, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.read_pods(service, &names).await?.into_iter().partition(|(_, pod)| pod.gates.contains(&gate));
        ungated.extend(others.into_keys());
        Ok(gated)
    }

    /// Adds pods that were ready and have lost their interface: their gate says so, too.
    pub(super) async fn add_lost_pods(
        &self,
        service: &ServiceView,
        unresolved: &BTreeSet<IpAddr>,
        found: &mut References,
    ) -> Result<(), Halt> {
        let gate = gates::gate_of(service);
        let endpoints = found.endpoints.endpoints.iter().filter(|endpoint| unresolved.contains(&endpoint.address));
        let lost: BTreeSet<String> = endpoints
            .filter_map(|endpoint| endpoint.pod.as_deref().map(str::to_owned))
            .filter(|pod| !found.gated_pods.contains_key(pod))
            .collect();
        let read = self.read_pods(service, &lost).await?;
        found.gated_pods.extend(read.into_iter().filter(|(_, pod)| pod.gates.contains(&gate)));
        Ok(())
    }

    /// Pods by name; those that are gone are absent. Without the permission to read pods, gates are not served.
    async fn read_pods(
        &self,
        service: &ServiceView,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, PodView>, Halt> {
        let namespace = &service.key.namespace;
        let found: Result<Vec<Option<PodView>>, WriteFault> =
            if names.len() >= LIST_PODS && !service.selector.is_empty() {
                let all = self.cluster.list_pods(namespace, &service.selector).await;
                all.map(|pods| pods.into_iter().filter(|pod| names.contains(&*pod.key.name)).map(Some).collect())
            } else {
                let read = |name: &String| {
                    let key = ObjectKey::new(namespace, name);
                    async move { self.cluster.read_pod(&key).await }
                };
                stream::iter(names.iter().map(read)).buffer_unordered(PODS_AT_ONCE).try_collect().await
            };
        match found {
            Ok(pods) => Ok(pods.into_iter().flatten().map(|pod| (pod.key.name.to_string(), pod)).collect()),
            Err(fault @ WriteFault::Denied(_)) => {
                warn!(code = "ACCM0762", %fault, "readiness gates are not served");
                Ok(BTreeMap::new())
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

/// Interfaces that hold the addresses; an address without one is absent from the result.
pub(super) async fn resolve(
    cloud: &CloudClient,
    location: &CloudLocation,
    ips: &[IpAddr],
) -> Result<Vec<(IpAddr, String)>, Fault> {
    let interfaces = cloud.ecs.find_network_interfaces(&location.region, &location.vpc_id, ips).await?;
    let mut by_address = BTreeMap::new();
    for interface in &interfaces {
        for address in interface.ipv4.iter().chain(&interface.ipv6) {
            if let Ok(address) = address.parse::<IpAddr>() {
                by_address.insert(address, interface.id.clone());
            }
        }
    }
    Ok(ips.iter().filter_map(|ip| by_address.get(ip).map(|eni| (*ip, eni.clone()))).collect())
}
