//! What the user of a Service is told, and how soon a failure is tried again.

use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;
use tracing::{info, warn};

use super::execute::Execution;
use super::memory::{BACKENDS, LOAD_BALANCER};
use super::observe::FindError;
use super::{COMPONENT, CONTROLLER};
use crate::alibaba::{Fault, FaultKind};
use crate::cluster::{Events, Regarding, WriteFault};
use crate::controllers::Backoff;
use crate::controllers::workqueue::ReconcileResult;
use crate::plan::clb::desired::Desired;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::PREFIX;
use crate::plan::service::problem::ServiceProblem;

/// The watch tells when endpoints have been read; this only makes sure.
const UNREAD: Duration = Duration::from_secs(5);

/// Why a Service is not as it should be.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    /// The Service asks for something that cannot be.
    #[error("{}", list(.0))]
    Problems(Vec<ServiceProblem>),
    /// The load balancer could not be found, or not told apart.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A read from the cloud failed.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// The API server refused.
    #[error("the Service could not be written: {0}")]
    Kubernetes(#[from] WriteFault),
    /// A pod waits for a condition that could not be written.
    #[error("the readiness of a pod could not be written: {0}")]
    Gates(WriteFault),
    /// Not every step of the plan was done.
    #[error("{}", refusals(.0))]
    Execution(Execution),
    /// The load balancer seems to be gone; looked at once more before it is made again.
    #[error("load balancer {id} does not exist any more; it is looked for once more and then made again")]
    Missing {
        /// The one that is gone.
        id: String,
        /// When to look again.
        again: Duration,
    },
    /// What a lost call may have made is looked for before it is made again, for this long.
    #[error(
        "a call may have made what is missing, although its answer was lost; it is looked for before it is made again"
    )]
    Unsettled(Duration),
    /// The load balancer cannot be found, and its absence cannot be proven.
    #[error(
        "no load balancer carries the mark of this Service although its status shows an address{}; it may have been \
         deleted, or the permission to list it is missing. Nothing is made anew: check the permissions, or empty \
         status.loadBalancer to have a new one made",
        known(.0)
    )]
    Unfindable(String),
    /// The account behind the credentials may be another one.
    #[error("{0}")]
    Doubt(String),
    /// The Service is served by a load balancer that it no longer names, and that is not ours.
    #[error(
        "load balancer {0} serves this Service, but does not carry its mark, and no annotation names it: put the annotation \
         {PREFIX}id back, or delete the Service and make it again; when it is deleted, its listeners, server groups and \
         backends are removed there and the load balancer is kept"
    )]
    Detached(String),
    /// The Service became ours a moment ago, and its endpoints are on their way.
    #[error("the endpoints of the Service are being read")]
    EndpointsUnread,
    /// Pods that are attached directly have no interface yet.
    #[error(
        "no network interface holds the pod addresses {}; backends are added but none is removed until it is known where they are",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Unresolved(Vec<IpAddr>),
    /// The Service now belongs to another controller, but still has a load balancer of ours.
    #[error("{0}")]
    HandedOver(ServiceProblem),
}

/// What is said when the API server shows no node.
pub(super) const NO_NODES: &str = "The API server shows no node at all, so no backend is removed: they may still serve. A cluster \
                        without nodes serves nobody: to let them go on purpose, delete the Service, or let a node join";

/// What is said when the API server shows no endpoints of any Service, not even its own.
pub(super) const NO_ENDPOINTS: &str = "The API server shows no endpoints of any Service, not even of its own, so no backend is \
                        removed: they may still serve. To let them go on purpose, delete the Service";

/// What is said when every node is unready at once.
pub(super) const BLACKOUT: &str = "Not one of the nodes that may serve is ready, so no backend is removed: they may still serve. To let \
                        them go on purpose, label the nodes node.kubernetes.io/exclude-from-external-load-balancers, or \
                        delete them";

fn known(id: &str) -> String {
    if id.is_empty() { String::new() } else { format!(" (label: {id})") }
}

fn list(problems: &[ServiceProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn refusals(execution: &Execution) -> String {
    let failed = execution.refused.iter().chain(&execution.stopped);
    failed.map(|(step, fault)| format!("{step}: {fault}")).collect::<Vec<_>>().join("; ")
}

impl Trouble {
    /// When to try again.
    pub(super) fn verdict(&self) -> ReconcileResult {
        match self {
            Self::Missing { again, .. } | Self::Unsettled(again) => ReconcileResult::RequeueAfter(*again),
            Self::EndpointsUnread => ReconcileResult::RequeueAfter(UNREAD),
            Self::Problems(_) | Self::HandedOver(_) | Self::Unfindable(_) | Self::Detached(_) => {
                ReconcileResult::Failed(Backoff::LONG)
            }
            // Somebody is about to correct it.
            Self::Doubt(_) => {
                ReconcileResult::Failed(Backoff { first: Duration::from_secs(5), longest: Duration::from_secs(20) })
            }
            Self::Find(FindError::Fault(fault)) | Self::Cloud(fault) => pause(fault),
            Self::Find(_) => ReconcileResult::Failed(Backoff::LONG),
            Self::Kubernetes(WriteFault::Conflict(_) | WriteFault::Unavailable(_) | WriteFault::NotLeading)
            | Self::Gates(WriteFault::Unavailable(_) | WriteFault::NotLeading) => {
                ReconcileResult::Failed(Backoff::SHORT)
            }
            Self::Kubernetes(_) | Self::Gates(_) => ReconcileResult::Failed(Backoff::LONG),
            Self::Execution(execution) => match (&execution.stopped, execution.refused.first()) {
                (Some((_, fault)), _) | (None, Some((_, fault))) => pause(fault),
                (None, None) => ReconcileResult::Failed(Backoff::SHORT),
            },
            Self::Unresolved(_) => ReconcileResult::Failed(Backoff { first: Duration::from_secs(5), ..Backoff::LONG }),
        }
    }

    /// Whether something is held back because the view of the cloud is not to be trusted.
    pub(super) const fn is_doubt(&self) -> bool {
        matches!(self, Self::Unfindable(_) | Self::Doubt(_))
    }

    /// Whether it is passing: such trouble is told in the log at once, and to the user only if it stays.
    fn passes(&self) -> bool {
        let fault = match self {
            Self::Cloud(fault) | Self::Find(FindError::Fault(fault)) => fault,
            Self::Execution(Execution { stopped: Some((_, fault)), refused, .. }) if refused.is_empty() => fault,
            Self::Unsettled(_)
            | Self::EndpointsUnread
            | Self::Kubernetes(WriteFault::Conflict(_) | WriteFault::NotLeading)
            | Self::Gates(WriteFault::NotLeading) => {
                return true;
            }
            _ => return false,
        };
        matches!(fault.kind, FaultKind::Busy | FaultKind::Throttled | FaultKind::Exists | FaultKind::NotLeading)
    }
}

/// How long to leave an object alone after a fault.
fn pause(fault: &Fault) -> ReconcileResult {
    if fault.held_back() {
        return ReconcileResult::RequeueAfter(fault.retry_after.unwrap_or_default());
    }
    let at_least =
        |backoff: Backoff| Backoff { first: fault.retry_after.unwrap_or(backoff.first).max(backoff.first), ..backoff };
    ReconcileResult::Failed(match fault.kind {
        FaultKind::Busy | FaultKind::Exists | FaultKind::Gone | FaultKind::Ambiguous | FaultKind::NotLeading => {
            Backoff::SHORT
        }
        FaultKind::Transient | FaultKind::InUse => Backoff { first: Duration::from_secs(3), ..Backoff::SHORT },
        FaultKind::Throttled => at_least(Backoff { first: Duration::from_secs(10), longest: Duration::from_secs(120) }),
        FaultKind::Quota
        | FaultKind::Capacity
        | FaultKind::Credential
        | FaultKind::Denied
        | FaultKind::Rejected
        | FaultKind::Bug => at_least(Backoff::LONG),
    })
}

fn regarding(service: &ServiceView) -> Regarding {
    Regarding { kind: "Service", key: service.key.clone(), uid: service.uid.clone() }
}

/// Tells that a change of the Service was noticed.
pub(super) fn changed(events: &Events, service: &ServiceView, reason: &'static str) {
    let message = match reason {
        "TypeChanged" => "The type of the Service changed",
        "AnnotationChanged" => "Annotations of the Service changed",
        "ServiceSpecChanged" => "The specification of the Service changed",
        _ => "The Service is being deleted",
    };
    events.normal(COMPONENT, &regarding(service), reason, format!("{message}; the load balancer follows"));
}

/// Tells that the load balancer stays although the Service goes.
pub(super) fn preserved(events: &Events, service: &ServiceView, id: &str) {
    let message = format!(
        "Load balancer {id} is kept with its listeners and server groups, as preserve-lb-on-delete asks; it is not looked after any more"
    );
    events.warning(COMPONENT, &regarding(service), "PreservedOnDelete", message);
}

/// Tells what stands in the way of having the load balancer as it should be, or, if the Service is `leaving` it, of
/// removing it.
pub(super) fn trouble(
    events: &Events,
    service: &ServiceView,
    leaving: bool,
    trouble: &Trouble,
    news: impl Fn(&str) -> bool,
) {
    let text = trouble.to_string();
    warn!(controller = CONTROLLER, service = %service.key, "{text}");
    if trouble.passes() || !news(&text) {
        return;
    }
    let reason = match trouble {
        Trouble::Gates(_) => "FailedUpdateReadinessGate",
        _ if trouble.is_doubt() => LOAD_BALANCER,
        _ if leaving => "CleanLoadBalancerFailed",
        _ => "SyncLoadBalancerFailed",
    };
    let what =
        if leaving { "The load balancer could not be removed" } else { "The load balancer is not as it should be" };
    events.warning(COMPONENT, &regarding(service), reason, format!("{what}: {text}"));
}

/// Tells what the user should know although nothing failed.
pub(super) fn notes(
    events: &Events,
    service: &ServiceView,
    desired: &Desired,
    (warnings, notes, remarks): (&[ServiceProblem], &[String], &[String]),
    held_back: Option<&str>,
    news: impl Fn(&str) -> bool,
) {
    for remark in remarks {
        info!(controller = CONTROLLER, service = %service.key, "{remark}");
        events.normal(COMPONENT, &regarding(service), "LoadBalancerPlaced", remark.clone());
    }
    let mut lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    lines.extend(notes.iter().cloned());
    let empty = &desired.empty_ports;
    let text = format!("{}|{empty:?}|{}", lines.join("; "), held_back.unwrap_or_default());
    let quiet = lines.is_empty() && empty.is_empty() && held_back.is_none();
    if !news(if quiet { "" } else { &text }) {
        return;
    }
    if !lines.is_empty() {
        let reason = "LoadBalancerSettings";
        events.warning(COMPONENT, &regarding(service), reason, lines.join("; "));
    }
    if let Some(why) = held_back {
        warn!(controller = CONTROLLER, service = %service.key, "{why}");
        events.warning(COMPONENT, &regarding(service), BACKENDS, why.to_owned());
    }
    if !empty.is_empty() && held_back.is_none() {
        let ports = empty.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message =
            format!("There are no backends for port {ports}: no ready endpoint, or no node that may serve it");
        events.normal(COMPONENT, &regarding(service), "UnAvailableLoadBalancer", message);
    }
}

/// Tells that no elastic address can be published.
pub(super) fn no_elastic_address(events: &Events, service: &ServiceView, id: &str) {
    let message = format!("No elastic address is bound to load balancer {id}; its own address is published instead");
    events.warning(COMPONENT, &regarding(service), "FailedSetEIPAddress", message);
}

/// Tells that the load balancer is as it should be, and what it took.
pub(super) fn ensured(events: &Events, service: &ServiceView, id: &str, done: &[String]) {
    let steps = if done.is_empty() { String::new() } else { format!(": {}", done.join("; ")) };
    info!(controller = CONTROLLER, service = %service.key, load_balancer = id, "ensured");
    events.normal(COMPONENT, &regarding(service), "EnsuredLoadBalancer", format!("Ensured load balancer {id}{steps}"));
}

/// Tells that somebody else's changes were undone.
pub(super) fn repaired(events: &Events, service: &ServiceView, id: &str, done: &[String]) {
    let message = format!(
        "Load balancer {id} was changed by somebody else and is as the Service says again: {}",
        done.join("; ")
    );
    warn!(controller = CONTROLLER, service = %service.key, load_balancer = id, "{message}");
    events.warning(COMPONENT, &regarding(service), "RepairedDrift", message);
}

/// Tells that a load balancer that somebody deleted is made again.
pub(super) fn recreating(events: &Events, service: &ServiceView, id: &str) {
    let message = format!(
        "Load balancer {id} was deleted outside of the cluster; a new one is made, and its address may be another one"
    );
    warn!(controller = CONTROLLER, service = %service.key, load_balancer = id, "{message}");
    events.warning(COMPONENT, &regarding(service), "LoadBalancerRecreated", message);
}

/// Tells that a load balancer may be left, because it cannot be proven to be ours.
pub(super) fn left_behind(events: &Events, service: &ServiceView, id: &str) {
    let message = format!(
        "Load balancer {id} no longer carries the mark of this Service and is left as it is; delete it by hand if it is not needed"
    );
    warn!(controller = CONTROLLER, service = %service.key, load_balancer = id, "{message}");
    events.warning(COMPONENT, &regarding(service), "LoadBalancerLeft", message);
}

/// Tells that everything of the Service is removed.
pub(super) fn cleaned(events: &Events, service: &ServiceView, done: &[String]) {
    let steps =
        if done.is_empty() { "; there was nothing to remove".to_owned() } else { format!(": {}", done.join("; ")) };
    info!(controller = CONTROLLER, service = %service.key, "cleaned");
    events.normal(COMPONENT, &regarding(service), "CleanLoadBalancer", format!("Cleaned load balancer{steps}"));
}
