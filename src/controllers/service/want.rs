//! What a Service asks for, and what the cloud must be asked to say so.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::OnceCell;

use super::Views;
use super::bulk::Bulk;
use super::observe::read;
use super::report::Trouble;
use crate::alibaba::place::Place;
use crate::alibaba::slb::Slb;
use crate::alibaba::{Cloud, Fault};
use crate::config::Config;
use crate::config::checked::VSwitchChoice;
use crate::plan::inputs::ServiceView;
use crate::plan::lb::naming::Owner;
use crate::plan::lb::observed::{Observed, ObservedInstance};
use crate::plan::lb::operation::Plan;
use crate::plan::lb::teardown::Departure;
use crate::plan::lb::{Desired, Inputs, Settings, desire, teardown, teardown_needs, wanted_enis};

/// Interfaces of directly attached pods: by address, the pod it belonged to when it was looked up, and the interface.
pub(super) type Enis = BTreeMap<IpAddr, (Option<String>, String)>;

/// What planning needs to know of the configuration and the place.
pub(super) fn settings_of(config: &Config, place: &Place) -> Settings {
    // Without a stated choice, intranet load balancers go where this instance is.
    let here = || (!place.vswitch_id.is_empty()).then(|| VSwitchChoice { zone: None, id: place.vswitch_id.clone() });
    let vswitches = match config.cloud.vswitches.as_slice() {
        [] => here().into_iter().collect(),
        stated => stated.to_vec(),
    };
    Settings {
        cluster_id: config.cloud.cluster_id.clone(),
        cluster_tag: config.cloud.cluster_tag.clone(),
        vpc_id: place.vpc_id.clone(),
        vswitches,
        resource_group_id: config.cloud.resource_group_id.clone(),
        service: config.service.clone(),
    }
}

/// A Service as it should be, and the lookups that it took to say so.
pub(super) struct Wanted {
    pub(super) desired: Desired,
    pub(super) enis: Enis,
}

/// Reads what a Service's desired state depends on.
#[derive(Debug)]
pub(super) struct Reader {
    cloud: Cloud,
    place: Arc<Place>,
    views: Views,
    vpc_cidrs: OnceCell<Vec<IpNet>>,
}

impl Reader {
    pub(super) fn new(cloud: Cloud, place: Arc<Place>, views: Views) -> Self {
        Self { cloud, place, views, vpc_cidrs: OnceCell::new() }
    }

    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// What the Service asks for, with the addresses of directly attached pods resolved.
    pub(super) async fn wanted(
        &self,
        service: &ServiceView,
        settings: &Settings,
        known: Option<&Enis>,
    ) -> Result<Wanted, Trouble> {
        let nodes = self.views.nodes.all();
        let endpoints = self.views.endpoints.get(&service.key).unwrap_or_default();
        let asked = wanted_enis(service, &nodes, &endpoints, settings);
        let pods: BTreeMap<IpAddr, Option<String>> =
            endpoints.endpoints.iter().map(|endpoint| (endpoint.address, endpoint.pod.clone())).collect();
        let mut enis = BTreeMap::new();
        let mut unknown = Vec::new();
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
        let desired = desire(&inputs).map_err(Trouble::Problems)?;
        Ok(Wanted { desired, enis })
    }
}

/// A Service whose load balancer is to go.
pub(super) struct Leaving {
    pub(super) owner: Owner,
    pub(super) departure: Departure,
}

impl Leaving {
    pub(super) fn of(service: &ServiceView, settings: &Settings) -> Self {
        Self { owner: Owner::of(service, settings), departure: Departure::of(service) }
    }

    /// The load balancer that the Service names.
    pub(super) fn reuse(&self) -> Option<&str> {
        self.departure.reuse.as_deref()
    }

    /// Whether a load balancer that we made is kept.
    pub(super) fn keeps(&self) -> bool {
        self.departure.preserve && self.reuse().is_none()
    }

    /// Reads no more than the removal needs: what we made goes as a whole, so its parts do not matter.
    pub(super) async fn read(&self, slb: &Slb, bulk: &Bulk, instance: ObservedInstance) -> Result<Observed, Fault> {
        if self.reuse().is_none() {
            return Ok(Observed { instance: Some(instance), ..Observed::default() });
        }
        let override_listeners = self.departure.override_listeners;
        let needs = |observed: &Observed| teardown_needs(&self.owner, self.reuse(), override_listeners, observed);
        read(slb, bulk, instance, needs).await
    }

    pub(super) fn plan(&self, observed: &Observed) -> Plan {
        teardown(&self.owner, self.reuse(), self.departure.preserve, observed)
    }
}

/// Interfaces that hold the addresses; an address without one is absent from the result.
async fn resolve(cloud: &Cloud, place: &Place, ips: &[IpAddr]) -> Result<Vec<(IpAddr, String)>, Fault> {
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

async fn vpc_cidrs_of(cloud: &Cloud, place: &Place) -> Result<Vec<IpNet>, Fault> {
    Ok(cloud.vpc.describe_vpc(&place.vpc_id).await?.map(|vpc| vpc.cidrs).unwrap_or_default())
}
