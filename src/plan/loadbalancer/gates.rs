//! Readiness gates: pods that are ready for traffic only once the load balancer knows them.
//!
//! A pod with the gate `service.readiness.alibabacloud.com/<service>` stays not ready until a condition of that type says
//! so. It is registered as soon as its containers are ready; then the condition is written, and Kubernetes goes on with
//! the rollout.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use litemap::LiteMap;

use super::model::{BackendKey, DesiredGroup, GroupRef, ObservedGroup};
use super::ownership::Owner;
use crate::plan::inputs::{Condition, ConditionStatus, Endpoint, EndpointsView, PodView, ServiceView};

/// Start of the gate's name; the name of the Service follows.
pub const GATE_PREFIX: &str = "service.readiness.alibabacloud.com/";

/// The gate of a Service, which is also the type of the condition.
pub fn gate_of(service: &ServiceView) -> String {
    format!("{GATE_PREFIX}{}", service.key.name)
}

/// Names of the pods that may wait for this Service's load balancer. Of pods that are ready already, the gate is passed,
/// unless the Service publishes them ready or not.
pub fn pods_to_read(service: &ServiceView, endpoints: &EndpointsView) -> BTreeSet<String> {
    endpoints
        .endpoints
        .iter()
        .filter(|endpoint| !endpoint.terminating && (!endpoint.ready || service.publish_not_ready))
        .filter_map(|endpoint| endpoint.pod.as_deref().map(str::to_owned))
        .collect()
}

/// The endpoints, with those counted as ready that wait only for the load balancer; and how many pods with the gate
/// still wait for their containers.
pub fn admitted(gate: &str, endpoints: &EndpointsView, pods: &BTreeMap<String, PodView>) -> (EndpointsView, usize) {
    let mut admitted = endpoints.clone();
    let mut waiting = BTreeSet::new();
    for endpoint in admitted.endpoints.iter_mut().filter(|endpoint| !endpoint.terminating) {
        let Some(pod) = gated(gate, endpoint, pods) else { continue };
        if pod.containers_ready {
            endpoint.ready = true;
        } else if !endpoint.ready {
            waiting.insert(&pod.key.name);
        }
    }
    let waiting = waiting.len();
    (admitted, waiting)
}

fn gated<'a>(gate: &str, endpoint: &Endpoint, pods: &'a BTreeMap<String, PodView>) -> Option<&'a PodView> {
    pods.get(endpoint.pod.as_deref()?).filter(|pod| pod.gates.contains(gate))
}

/// A condition that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCondition {
    /// The pod's name.
    pub pod: String,
    /// Its UID: another pod of the same name must not get the condition.
    pub uid: String,
    /// Whether the load balancer knows the pod.
    pub registered: bool,
    /// When the status changed, if it does not change now.
    pub since: Option<jiff::Timestamp>,
}

impl GateCondition {
    /// The machine-readable reason.
    pub const fn reason(&self) -> &'static str {
        if self.registered { "ServerRegistered" } else { "ServerInvalidServer" }
    }

    /// What it means, for people.
    pub const fn message(&self) -> &'static str {
        if self.registered {
            "The load balancer sends traffic to the pod"
        } else {
            "No network interface of the VPC holds the address of the pod"
        }
    }
}

/// What the load balancer knows of its backends after the plan was carried out.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// Whose load balancer it is.
    pub owner: &'a Owner,
    /// Server groups that were wanted.
    pub desired: &'a BTreeMap<String, DesiredGroup>,
    /// Server groups that are there, by id.
    pub observed: &'a LiteMap<String, ObservedGroup>,
    /// Addresses of pods inside the VPC for which no network interface was found.
    pub unresolved: &'a BTreeSet<IpAddr>,
    /// Addresses of pods outside the VPC.
    pub outside: &'a BTreeSet<IpAddr>,
    /// Addresses of pods that are backends themselves; the others are reached through nodes.
    pub attached: &'a BTreeSet<IpAddr>,
    /// Whether every step was done on which traffic depends.
    pub complete: bool,
}

/// Conditions that differ from what the pods carry. `endpoints` are those of [`admitted`].
pub fn conditions(
    gate: &str,
    endpoints: &EndpointsView,
    pods: &BTreeMap<String, PodView>,
    registration: Registration<'_>,
) -> Vec<GateCondition> {
    let mut verdicts: BTreeMap<&str, bool> = BTreeMap::new();
    for endpoint in &endpoints.endpoints {
        let Some(pod) = gated(gate, endpoint, pods) else { continue };
        if let Some(registered) = registration.of(endpoint) {
            // A pod with two addresses is registered only with both.
            verdicts.entry(&pod.key.name).and_modify(|all| *all &= registered).or_insert(registered);
        }
    }
    let changes = verdicts.into_iter().filter_map(|(name, registered)| {
        let pod = &pods[name];
        let mut condition = GateCondition { pod: name.to_owned(), uid: pod.uid.clone(), registered, since: None };
        let wanted = if registered { ConditionStatus::True } else { ConditionStatus::False };
        match pod.conditions.get(gate) {
            Some(Condition { status, reason, .. }) if *status == wanted && reason == condition.reason() => None,
            Some(Condition { status, since, .. }) if *status == wanted => {
                condition.since = *since;
                Some(condition)
            }
            _ => Some(condition),
        }
    });
    changes.collect()
}

impl Registration<'_> {
    /// Whether an endpoint is registered; `None` while that is open.
    fn of(&self, endpoint: &Endpoint) -> Option<bool> {
        if self.unresolved.contains(&endpoint.address) {
            return Some(false);
        }
        if endpoint.terminating || !endpoint.ready || self.outside.contains(&endpoint.address) {
            return None;
        }
        if !self.attached.contains(&endpoint.address) {
            return self.complete.then_some(true);
        }
        let address = endpoint.address.to_string();
        let mut found = false;
        for wanted in self.desired.values() {
            for key in wanted.backends.own.keys().filter(|key| *key.server_ip == *address) {
                if !self.holds(&wanted.group, key) {
                    return None;
                }
                found = true;
            }
        }
        found.then_some(true)
    }

    fn holds(&self, group: &GroupRef, key: &BackendKey) -> bool {
        let meant = |id: &str, name: &str| match group {
            GroupRef::Id(wanted) => wanted == id,
            GroupRef::Named(wanted) => self.owner.same_mark(wanted, name),
        };
        self.observed
            .iter()
            .filter(|(id, found)| meant(id, &found.name))
            .any(|(_, found)| found.members().iter().any(|backend| backend.key == *key))
    }
}
