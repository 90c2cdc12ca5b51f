//! What a Service asks for, and what the cloud must be asked to say so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::warn;

use super::account_check::Sight;
use super::bulk::Bulk;
use super::creations::Made;
use super::observe::{Found, complete, find_access_list, list_groups};
use super::report::Trouble;
use super::{CONTROLLER, Views};
use crate::alibaba::slb::Slb;
use crate::alibaba::vpc::VSwitch;
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::cluster::{Cluster, StoreEntry, WriteFault};
use crate::config::Config;
use crate::plan::clb::annotations::Name;
use crate::plan::clb::desire::{addresses_to_resolve, desire};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::observed::{Observed, ObservedInstance};
use crate::plan::clb::operation::Plan;
use crate::plan::clb::teardown::{reversible, teardown, teardown_needs};
use crate::plan::inputs::{Endpoint, EndpointsView, NodeView, ObjectKey, PodView, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::service::annotations::{AnnotationName, raw};
use crate::plan::service::handling::Departure;
use crate::plan::service::model::Inputs;
use crate::plan::service::ownership::Owner;
use crate::plan::service::settings::{ServiceSettings, VSwitchChoice};
use crate::plan::service::{gates, zones};

/// Interfaces of directly attached pods: by address, the pod it belonged to when it was looked up, and the interface.
pub(super) type Enis = BTreeMap<IpAddr, (Option<String>, String)>;

/// What planning needs to know of the configuration and the place.
pub(super) fn settings_of(config: &Config, place: &CloudLocation) -> ServiceSettings {
    // Without a stated choice, intranet load balancers go where this instance is.
    let here = || (!place.vswitch_id.is_empty()).then(|| VSwitchChoice { zone: None, id: place.vswitch_id.clone() });
    let vswitches = match config.cloud.vswitches.as_slice() {
        [] => here().into_iter().collect(),
        stated => stated.to_vec(),
    };
    ServiceSettings {
        cluster_id: config.cloud.cluster_id.clone(),
        cluster_tag: config.cloud.cluster_tag.clone(),
        vpc_id: place.vpc_id.clone(),
        place_near_nodes: config.cloud.vswitches.is_empty(),
        vswitches,
        resource_group_id: config.cloud.resource_group_id.clone(),
        service: config.service.clone(),
    }
}

/// A Service as it should be, and the lookups that it took to say so.
pub(super) struct Wanted {
    pub(super) desired: Desired,
    pub(super) enis: Enis,
    pub(super) readiness: Readiness,
}

/// What the readiness of pods has to do with the load balancer.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// The Service's endpoints, those admitted that wait only for the load balancer.
    pub(super) endpoints: EndpointsView,
    /// Pods with the Service's gate that were looked at, by name.
    pub(super) pods: BTreeMap<String, PodView>,
    /// How many of them wait for their containers.
    pub(super) waiting: usize,
    /// Addresses that are backends themselves.
    pub(super) attached: BTreeSet<IpAddr>,
}

/// From so many pods on, all pods of the Service are listed instead of each being read.
const LIST_PODS: usize = 20;
/// Pods read at once.
const PODS_AT_ONCE: usize = 8;

/// Reads what a Service's desired state depends on.
#[derive(Debug)]
pub(super) struct Reader {
    cluster: Cluster,
    cloud: CloudClient,
    place: Arc<CloudLocation>,
    views: Views,
    sight: Sight,
    vpc_cidrs: OnceCell<Vec<IpNet>>,
    /// By Service, names of pods that are not ready and have no gate: gates never change, so they are read once.
    ungated: Mutex<HashMap<ObjectKey, BTreeSet<String>>>,
    /// Names of the access control lists that there were at first, and of those wanted since. It only tells which
    /// Services have to look; what they find there decides.
    lists: OnceCell<Mutex<BTreeSet<String>>>,
}

impl Reader {
    pub(super) fn new(cluster: Cluster, cloud: CloudClient, place: Arc<CloudLocation>, views: Views) -> Self {
        let sight = Sight::new(cloud.clone(), place.clone());
        Self {
            cluster,
            cloud,
            place,
            views,
            sight,
            vpc_cidrs: OnceCell::new(),
            ungated: Mutex::default(),
            lists: OnceCell::new(),
        }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// Whether the account is known to be the cluster's; asks if it is not.
    pub(super) async fn knows_the_account(&self) -> Result<bool, Fault> {
        self.sight.recognises(&self.views.nodes.all()).await
    }

    /// Whether a load balancer may be made for the Service.
    pub(super) async fn may_make(&self, service: &ServiceView) -> Result<(), Trouble> {
        let forbidden = self.sight.forbids_making(&self.views.nodes.all(), service).await?;
        match forbidden {
            Some(why) => Err(Trouble::Doubt(why)),
            None => Ok(()),
        }
    }

    /// Whether a Service whose load balancer is not there may be let go.
    pub(super) async fn may_release(&self, service: &ServiceView) -> Result<(), Trouble> {
        let forbidden = self.sight.forbids_release(&self.views.nodes.all(), service).await?;
        match forbidden {
            Some(why) => Err(Trouble::Doubt(why)),
            None => Ok(()),
        }
    }

    /// What the Service asks for, with the addresses of directly attached pods resolved.
    pub(super) async fn wanted(
        &self,
        service: &ServiceView,
        settings: &ServiceSettings,
        known: Option<&Enis>,
    ) -> Result<Wanted, Trouble> {
        let nodes = self.views.nodes.all();
        let endpoints = match self.views.endpoints.look_up(&service.key) {
            StoreEntry::Kept(endpoints) => endpoints,
            StoreEntry::Skipped => return Err(Trouble::EndpointsUnread),
            StoreEntry::Absent => {
                let unknown = self.views.endpoints.is_empty();
                Arc::new(EndpointsView { unknown, ..EndpointsView::default() })
            }
        };
        let gate = gates::gate_of(service);
        let mut waiting_pods = self.gated_pods(service, &gate, &endpoints).await?;
        let (endpoints, waiting) = gates::admitted(&gate, &endpoints, &waiting_pods);
        let asked = addresses_to_resolve(service, &nodes, &endpoints, settings);
        let pod = |endpoint: &Endpoint| endpoint.pod.as_deref().map(str::to_owned);
        let pods: BTreeMap<IpAddr, Option<String>> =
            endpoints.endpoints.iter().map(|endpoint| (endpoint.address, pod(endpoint))).collect();
        let mut enis = BTreeMap::new();
        let mut unknown = Vec::new();
        let attached = asked.clone();
        for ip in asked {
            let pod = pods.get(&ip).cloned().flatten();
            // An address that went to another pod may have gone to another interface.
            match known.and_then(|known| known.get(&ip)).filter(|(owner, _)| *owner == pod) {
                Some(found) => drop(enis.insert(ip, found.clone())),
                None => unknown.push(ip),
            }
        }
        let vpc_cidrs: &[IpNet] = if unknown.is_empty() {
            &[]
        } else {
            self.vpc_cidrs.get_or_try_init(|| vpc_cidrs_of(&self.cloud, &self.place)).await?
        };
        // No interface of the VPC can hold an address from outside; asking again and again would be wasted calls.
        unknown.retain(|ip| vpc_cidrs.is_empty() || vpc_cidrs.iter().any(|cidr| cidr.contains(ip)));
        if !unknown.is_empty() {
            for (ip, eni) in resolve(&self.cloud, &self.place, &unknown).await? {
                enis.insert(ip, (pods.get(&ip).cloned().flatten(), eni));
            }
        }
        let found: BTreeMap<IpAddr, String> = enis.iter().map(|(ip, (_, eni))| (*ip, eni.clone())).collect();
        let inputs = Inputs { service, nodes: &nodes, endpoints: &endpoints, enis: &found, vpc_cidrs, settings };
        let mut desired = desire(&inputs);
        let list = desired.owner.access_list_name();
        if desired.access.is_some() {
            self.lists().await?.lock().insert(list.clone());
        }
        desired.access_list_known = self.may_have_list(&list).await?;
        // A pod that was ready and has lost its interface is told so, too.
        let lost = desired.unresolved.iter().filter_map(|ip| pods.get(ip).cloned().flatten());
        let lost: BTreeSet<String> = lost.filter(|pod| !waiting_pods.contains_key(pod)).collect();
        waiting_pods.extend(self.read_pods(service, &lost).await?.into_iter().filter(|(_, p)| p.gates.contains(&gate)));
        Ok(Wanted { desired, enis, readiness: Readiness { endpoints, pods: waiting_pods, waiting, attached } })
    }

    /// Whether an access control list of this name may be there. Without the permission to list them, only those that
    /// were wanted since count.
    pub(super) async fn may_have_list(&self, name: &str) -> Result<bool, Fault> {
        Ok(self.lists().await?.lock().contains(name))
    }

    async fn lists(&self) -> Result<&Mutex<BTreeSet<String>>, Fault> {
        let list = || async {
            match self.cloud.slb.list_access_lists().await {
                Ok(names) => Ok(Mutex::new(names)),
                Err(fault) if matches!(fault.kind, FaultKind::Denied | FaultKind::Rejected) => {
                    warn!(controller = CONTROLLER, %fault, "access control lists are only looked for where they are wanted");
                    Ok(Mutex::default())
                }
                Err(fault) => Err(fault),
            }
        };
        self.lists.get_or_try_init(list).await
    }

    /// Chooses zones, and vSwitches for an intranet load balancer, where neither annotation nor configuration does: zones with
    /// more nodes first, in a zone those with more free addresses, at last the one that this instance is in.
    pub(super) async fn place(&self, service: &ServiceView, settings: &ServiceSettings, desired: &mut Desired) {
        desired.choose_zones(&self.views.nodes.all());
        let set = |name: Name| raw(service, name.entry().key).is_some_and(|value| !value.is_empty());
        let classic = raw(service, Name::NetworkType.entry().key) == Some("classic");
        let create = &mut desired.instance.create;
        let open = settings.place_near_nodes && create.address_type == "intranet" && !classic && !set(Name::VswitchId);
        if !open {
            return;
        }
        let near = match self.cloud.vpc.describe_vswitches(&self.place.vpc_id).await {
            Ok(found) => near_nodes(found, &self.views.nodes.all()),
            Err(fault) => {
                warn!(controller = CONTROLLER, %fault, "vSwitches could not be listed; the one of this instance is used");
                return;
            }
        };
        create.vswitch_ids.retain(|here| !near.contains(here));
        create.vswitch_ids.splice(0..0, near);
    }

    /// Pods that have the Service's gate and may not have passed it.
    async fn gated_pods(
        &self,
        service: &ServiceView,
        gate: &str,
        endpoints: &EndpointsView,
    ) -> Result<BTreeMap<String, PodView>, Trouble> {
        let mut names = gates::pods_to_read(service, endpoints);
        let known = {
            let mut ungated = self.ungated.lock();
            let known: BTreeSet<String> = ungated
                .remove(&service.key)
                .unwrap_or_default()
                .into_iter()
                .filter(|name| names.contains(name))
                .collect();
            if !known.is_empty() {
                ungated.insert(service.key.clone(), known.clone());
            }
            known
        };
        names.retain(|name| !known.contains(name));
        let (gated, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.read_pods(service, &names).await?.into_iter().partition(|(_, pod)| pod.gates.contains(gate));
        if !others.is_empty() {
            self.ungated.lock().entry(service.key.clone()).or_default().extend(others.into_keys());
        }
        Ok(gated)
    }

    /// Pods by name; those that are gone are absent. Without the permission to read pods, gates are not served.
    async fn read_pods(
        &self,
        service: &ServiceView,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, PodView>, Trouble> {
        let namespace = &service.key.namespace;
        let found: Result<Vec<Option<PodView>>, WriteFault> =
            if names.len() >= LIST_PODS && !service.selector.is_empty() {
                let all = self.cluster.list_pods(namespace, &service.selector).await;
                all.map(|pods| pods.into_iter().filter(|pod| names.contains(&pod.key.name)).map(Some).collect())
            } else {
                let read = |name: &String| {
                    let key = ObjectKey::new(namespace, name);
                    async move { self.cluster.read_pod(&key).await }
                };
                stream::iter(names.iter().map(read)).buffer_unordered(PODS_AT_ONCE).try_collect().await
            };
        match found {
            Ok(pods) => Ok(pods.into_iter().flatten().map(|pod| (pod.key.name.clone(), pod)).collect()),
            Err(fault @ WriteFault::Denied(_)) => {
                warn!(controller = CONTROLLER, service = %service.key, %fault, "readiness gates are not served");
                Ok(BTreeMap::new())
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

/// A Service whose load balancer is to go.
pub(super) struct Leaving {
    pub(super) owner: Owner,
    pub(super) departure: Departure,
    /// Whether the Service stays, so that its user can want the load balancer back.
    stays: bool,
}

impl Leaving {
    pub(super) fn of(service: &ServiceView, settings: &ServiceSettings) -> Self {
        Self { owner: Owner::of(service, settings), departure: Departure::of(service), stays: !service.deleting }
    }

    /// The load balancer that the Service names.
    pub(super) fn reuse(&self) -> Option<&str> {
        self.departure.reuse.as_deref()
    }

    /// Whether a load balancer that we made is kept.
    pub(super) fn keeps(&self) -> bool {
        self.departure.preserve && self.reuse().is_none()
    }

    /// Reads no more than the removal needs: what we made goes as a whole, so its parts do not matter. From a load balancer
    /// that is not ours, and that no annotation names any more, what carries our mark goes.
    pub(super) async fn read(
        &mut self,
        slb: &Slb,
        bulk: &Bulk,
        reader: &Reader,
        found: Found,
        made: &Made,
    ) -> Result<Observed, Fault> {
        let mut observed = match found {
            Found::Absent { .. } => Observed::default(),
            Found::Instance(instance) if self.reuse().is_none() => {
                Observed { instance: Some(*instance), ..Observed::default() }
            }
            Found::Instance(instance) => self.read_parts(slb, bulk, *instance, made).await?,
            Found::Unmarked(instance) => {
                self.departure.reuse = Some(instance.id.clone());
                self.departure.override_listeners = true;
                self.read_parts(slb, bulk, *instance, made).await?
            }
        };
        let name = self.owner.access_list_name();
        if reader.may_have_list(&name).await? {
            observed.access_list = find_access_list(slb, &name).await?;
        }
        Ok(observed)
    }

    async fn read_parts(
        &self,
        slb: &Slb,
        bulk: &Bulk,
        instance: ObservedInstance,
        made: &Made,
    ) -> Result<Observed, Fault> {
        let needs = |observed: &Observed| teardown_needs(&self.owner, &self.departure, observed);
        let mut observed = Observed { instance: Some(instance), ..Observed::default() };
        list_groups(slb, &mut observed, made).await?;
        complete(slb, bulk, &mut observed, needs).await?;
        Ok(observed)
    }

    pub(super) fn plan(&self, observed: &Observed) -> Plan {
        let plan = teardown(&self.owner, &self.departure, observed);
        if self.stays { reversible(plan) } else { plan }
    }
}

fn near_nodes(mut vswitches: Vec<VSwitch>, nodes: &[Arc<NodeView>]) -> Vec<String> {
    let nodes_in: HashMap<&str, usize> = zones::by_nodes(nodes).into_iter().collect();
    let count = |vswitch: &VSwitch| nodes_in.get(vswitch.zone.as_str()).copied().unwrap_or_default();
    vswitches.retain(|vswitch| count(vswitch) > 0);
    vswitches.sort_by_key(|vswitch| (Reverse(count(vswitch)), Reverse(vswitch.available_ips), vswitch.id.clone()));
    vswitches.into_iter().map(|vswitch| vswitch.id).collect()
}

/// Interfaces that hold the addresses; an address without one is absent from the result.
pub(super) async fn resolve(
    cloud: &CloudClient,
    place: &CloudLocation,
    ips: &[IpAddr],
) -> Result<Vec<(IpAddr, String)>, Fault> {
    let interfaces = cloud.ecs.find_network_interfaces(&place.region, &place.vpc_id, ips).await?;
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

async fn vpc_cidrs_of(cloud: &CloudClient, place: &CloudLocation) -> Result<Vec<IpNet>, Fault> {
    Ok(cloud.vpc.describe_vpc(&place.vpc_id).await?.map(|vpc| vpc.cidrs).unwrap_or_default())
}
