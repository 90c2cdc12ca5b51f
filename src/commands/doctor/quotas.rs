//! What the Services of the cluster use of the vendor's quotas of load balancers: listeners, server groups and backends.

use std::sync::Arc;

use super::finding::{CheckResult, Requirement};
use crate::config::Config;
use crate::controllers::loadbalancer;
use crate::plan::clb::annotations::Name;
use crate::plan::inputs::{NodeView, ServiceView};
use crate::plan::loadbalancer::annotations::{AnnotationName as _, raw};
use crate::plan::loadbalancer::ownership::LoadBalancerKind::{self, Clb, Nlb};
use crate::plan::node::{NodeClass, classify};

/// What the vendor grants by default to one kind of load balancers.
struct Granted {
    kind: LoadBalancerKind,
    name: &'static str,
    listeners: u64,
    backends: u64,
    groups_of_server: u64,
}

/// By the vendor's manuals of quotas.
const GRANTED: [Granted; 2] = [
    Granted { kind: Clb, name: "classic load balancer", listeners: 50, backends: 200, groups_of_server: 50 },
    Granted { kind: Nlb, name: "network load balancer", listeners: 50, backends: 400, groups_of_server: 200 },
];

/// What is used and left of one quota, and missing for so many that Services wait for.
pub(super) fn judge(what: &str, used: u64, awaited: u64, granted: u64) -> CheckResult {
    let left = granted.saturating_sub(used);
    let mut text = format!("{what}: {used} used, {left} left of the vendor's default of {granted}");
    let missing = (used + awaited).saturating_sub(granted);
    if awaited > 0 {
        text += &format!("; Services wait for {awaited}");
    }
    if missing > 0 {
        text += &format!("; {missing} too few");
    }
    if left > 0 && missing == 0 {
        return Requirement::Quotas.ok(text);
    }
    Requirement::Quotas
        .warning(text)
        .seen("the quota of this account may be higher; no API of the product says it")
        .repair("delete what is not needed, or raise the quota in the console of Quota Center")
}

/// How many Services have no load balancer of this kind yet.
pub(super) fn awaited(kind: LoadBalancerKind, services: &[Arc<ServiceView>], config: &Config) -> u64 {
    let is_awaited = |view: &&Arc<ServiceView>| {
        !view.deleting && view.ingress.is_empty() && loadbalancer::declines(kind, config, view).is_none()
    };
    services.iter().filter(is_awaited).count() as u64
}

/// Of each quota, every Service that has used it up, or else the one that uses most of it.
pub(super) fn findings(services: &[Arc<ServiceView>], nodes: &[Arc<NodeView>], config: &Config) -> Vec<CheckResult> {
    let nodes = nodes.iter().filter(|view| matches!(classify(view), NodeClass::Ecs(_))).count() as u64;
    GRANTED.iter().flat_map(|granted| of_kind(granted, services, nodes, config)).collect()
}

fn of_kind(granted: &Granted, services: &[Arc<ServiceView>], nodes: u64, config: &Config) -> Vec<CheckResult> {
    let Granted { kind, name, listeners, backends, groups_of_server } = granted;
    let ours: Vec<(String, u64, bool)> = services
        .iter()
        .filter(|view| !view.deleting && loadbalancer::declines(*kind, config, view).is_none())
        .map(|view| (view.key.to_string(), view.ports.len() as u64, view.local_traffic || attaches_pods(view, config)))
        .collect();
    if ours.is_empty() {
        return Vec::new();
    }
    // With local traffic, only nodes with an endpoint are backends, and pods can be; how many is not looked at.
    let everywhere = || ours.iter().filter(|(_, _, is_elsewhere)| !is_elsewhere);
    let mut found =
        most(ours.iter().map(|(of, ports, _)| (format!("listeners of the {name} of {of}"), *ports)), *listeners);
    found.extend(most(
        everywhere().map(|(of, ports, _)| (format!("backends of the {name} of {of}"), ports * nodes)),
        *backends,
    ));
    let groups = everywhere().map(|(_, ports, _)| ports).sum();
    found.push(judge(&format!("server groups of {name}s that each node is in"), groups, 0, *groups_of_server));
    found
}

fn attaches_pods(service: &ServiceView, config: &Config) -> bool {
    raw(service, Name::BACKEND_TYPE.entry().key).map_or(config.service.eni_backends, |kind| kind.trim() == "eni")
}

/// All that are used up, or else the one of which most is used.
fn most(used: impl Iterator<Item = (String, u64)>, granted: u64) -> Vec<CheckResult> {
    let mut used: Vec<(String, u64)> = used.collect();
    used.sort_by_key(|(_, used)| std::cmp::Reverse(*used));
    let full = used.iter().take_while(|(_, used)| *used >= granted).count();
    used.truncate(full.max(1));
    used.iter().map(|(what, used)| judge(what, *used, 0, granted)).collect()
}
