//! Why a reconcile does not continue, how soon the Service is retried, and the events about it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tracing::{info, warn};

use super::execute::Failures;
use super::find::Unfound;
use super::state::{LOAD_BALANCER_WITHHELD, is_news};
use super::status::FailedWrite;
use crate::alibaba::{Fault, FaultKind, Retry};
use crate::clock;
use crate::cluster::{Events, Regarding, WriteFault, event_code, truncate};
use crate::controllers::Backoff;
use crate::controllers::reporter::{self, failed_call, state, trouble};
use crate::controllers::workqueue::{ReconcileResult, RetriedFailure};
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::loadbalancer::annotations::{ID, raw};
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::telemetry::alarms::{ObjectReport, ObjectTrouble, SyncState, named, shared_cause};

/// Where the watch does not report that endpoints were read, the controller looks after this time.
const UNREAD: Duration = Duration::from_secs(5);

/// Why a stage of a reconcile does not continue.
#[derive(Debug, Error)]
pub(super) enum Halt {
    /// The Service cannot be served as asked.
    #[error("{}", list(.0))]
    Problems(Vec<ServiceProblem>),
    /// It is not certain which load balancer is meant.
    #[error(transparent)]
    Unfound(#[from] Unfound),
    /// A read from the cloud failed.
    #[error(transparent)]
    Cloud(#[from] Fault),
    /// A write to the API server failed.
    #[error(transparent)]
    Write(#[from] FailedWrite),
    /// Not every step of the plan was done.
    #[error("{0}")]
    Execution(Box<Failures>),
    /// Pods that are attached directly have no interface yet.
    #[error(
        "no network interface holds the pod addresses {}; backends are added but none is removed until it is known where they are",
        addresses(.0)
    )]
    Unresolved(BTreeSet<IpAddr>),
    /// The next run goes on.
    #[error("{}", .0.why)]
    Later(Later),
}

/// When the next run goes on, and what it waits for.
#[derive(Debug)]
pub(super) struct Later {
    /// Time until the next run.
    pub(super) again: Duration,
    why: Cow<'static, str>,
    /// How the Service is reported until then.
    state: SyncState,
    /// Whether each time is worth a line in the log.
    is_logged: bool,
    /// Since when that is so, if not for longer.
    since: Option<Timestamp>,
}

/// What an event has room for, without its code and the end that says what is left out.
const EVENT_BYTES: usize = 970;

/// Reason of the events about pods that are no backends, as with the official controller.
const SKIPPED_BACKENDS: &str = "SkipSyncBackends";

/// What is said when the API server shows no node.
pub(super) const NO_NODES: &str = "The API server shows no node at all, so no backend is removed: they may still serve. A cluster \
                        without nodes serves no traffic: to remove them on purpose, delete the Service, or let a node join";

/// What is said when the API server shows no endpoints of any Service, not even its own.
pub(super) const NO_ENDPOINTS: &str = "The API server shows no endpoints of any Service, not even of its own, so no backend is \
                        removed: they may still serve. To remove them on purpose, delete the Service";

/// What is said when it is not known which backends serve, as an object cannot be decoded.
pub(super) const UNDECODED: &str = "A node, or endpoints of the Service, cannot be decoded, so no backend is removed: it may still serve. \
                        The log names the object (ACCM0727)";

/// What is said when every node is unready at once.
pub(super) const BLACKOUT: &str = "Not one of the nodes that may serve is ready, so no backend is removed: they may still serve. To remove \
                        them on purpose, label the nodes node.kubernetes.io/exclude-from-external-load-balancers, or \
                        delete them";

/// What is said of server groups that lists lack; nothing if there are none.
pub(super) fn unlisted(groups: &BTreeSet<String>) -> Option<String> {
    let ids = named(groups.iter().map(String::as_str));
    (!ids.is_empty()).then(|| {
        format!(
            "The cloud's list of server groups lacks {ids}, which listeners of the Service use and which exist when they \
             are read by id. They stay in use and are not created again"
        )
    })
}

/// What is said when most backends are unready at once.
pub(super) const UNREADY: &str = "Within a minute, more than half of the backends of a server group became unready together with their nodes. \
                        They may still serve, and health checks keep traffic off those that do not, so each is removed only if \
                        its node is still unready 30 s later. What leaves on purpose is removed at once";

fn addresses(addresses: &BTreeSet<IpAddr>) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// As many of these lines as an event has room for, and how many are left out.
fn fitting(lines: &[String]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        let line = format!("{separator}{line}");
        if index > 0 && text.len() + line.len() > EVENT_BYTES {
            return format!("{text}; and {} more, see the log", lines.len() - index);
        }
        text += truncate(&line, EVENT_BYTES);
    }
    text
}

fn list(problems: &[ServiceProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl From<WriteFault> for Halt {
    fn from(fault: WriteFault) -> Self {
        Self::Write(fault.into())
    }
}

impl Halt {
    /// The load balancer seems to be deleted; a second read comes before it is created again.
    pub(super) fn missing(id: &str, again: Duration) -> Self {
        Self::out_of_sync(
            format!(
                "load balancer {id} does not exist any more; the controller checks that once more, then creates it again"
            ),
            again,
        )
    }

    /// Something is left out; the next run tries it again.
    pub(super) fn out_of_sync(why: String, again: Duration) -> Self {
        Self::Later(Later { again, why: why.into(), state: SyncState::OutOfSync, is_logged: true, since: None })
    }

    /// How long to look for what a call with a lost answer may have created, before it is created again.
    pub(super) fn unsettled(again: Duration) -> Self {
        let why =
            "a call whose answer was lost may have created something; the controller looks for it before it goes on";
        Self::Later(Later { again, why: why.into(), state: SyncState::Retrying, is_logged: true, since: None })
    }

    /// Jobs of the cloud are pending; nothing is wrong. If one of them `is_new`, the cloud takes no longer than it should.
    pub(super) fn under_way(again: Duration, is_new: bool) -> Self {
        let why = "jobs of the cloud are pending".into();
        let since = is_new.then(clock::now);
        Self::Later(Later { again, why, state: SyncState::InProgress, is_logged: false, since })
    }

    /// The Service is managed only since a moment ago, and its endpoints are not read yet. The watch reports that they were.
    pub(super) fn endpoints_unread() -> Self {
        let why = "the endpoints of the Service are being read".into();
        Self::Later(Later { again: UNREAD, why, state: SyncState::Retrying, is_logged: false, since: None })
    }

    /// The elastic address that is to be published is not known.
    pub(super) fn elastic_unknown(fault: Fault) -> Self {
        let step = format!(
            "the elastic address of the load balancer could not be looked up; a published address stays, and a new Service gets \
             its address as soon as a retry finds it. {}",
            next_try(&fault)
        );
        Self::Execution(Box::new(Failures { stopped: Some((step, fault)), ..Failures::default() }))
    }

    /// When the Service is retried.
    pub(super) fn result(&self) -> ReconcileResult {
        let failed = |backoff| ReconcileResult::failed(self.kind(), backoff);
        let soon = Duration::from_secs(5);
        match self {
            Self::Later(later) => ReconcileResult::RequeueAfter(later.again),
            Self::Cloud(fault) => pause(fault),
            Self::Write(FailedWrite { fault, .. }) => match fault {
                WriteFault::Conflict(_) | WriteFault::Unavailable(_) | WriteFault::NotLeading => failed(Backoff::SHORT),
                _ => failed(Backoff::LONG),
            },
            Self::Execution(failures) => match (failures.goes_on_in(), failures.soonest()) {
                (Some(again), _) => ReconcileResult::RequeueAfter(again),
                (None, Some(fault)) => pause(fault),
                (None, None) => failed(Backoff::SHORT),
            },
            // The credentials are about to be corrected.
            Self::Unfound(Unfound::Doubt(_)) => failed(Backoff { first: soon, longest: Duration::from_secs(20) }),
            Self::Problems(_) | Self::Unfound(_) => failed(Backoff::LONG),
            Self::Unresolved(_) => failed(Backoff { first: soon, ..Backoff::LONG }),
        }
    }

    /// Whether the controller retries only after minutes, because a person must change something first.
    pub(super) fn lasts(&self) -> bool {
        matches!(self.result(), ReconcileResult::Failed(failure) if failure.backoff.longest == Backoff::LONG.longest)
    }

    /// What failed without a call of the cloud, in a word.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Write(FailedWrite { fault, .. }) => fault.as_str(),
            Self::Problems(_) => "problems",
            Self::Unfound(Unfound::Doubt(_)) => "doubt",
            Self::Unresolved(_) => "unresolved",
            _ => "not_found",
        }
    }

    /// Whether each time is worth a line in the log.
    pub(super) fn is_logged(&self) -> bool {
        match self {
            Self::Later(later) => later.is_logged,
            _ => !self.is_under_way(),
        }
    }

    /// Whether nothing is wrong, and the cloud still carries something out.
    pub(super) fn is_under_way(&self) -> bool {
        match self {
            Self::Later(later) => later.state == SyncState::InProgress,
            Self::Execution(failures) => failures.await_jobs(),
            _ => false,
        }
    }

    /// Whether something is withheld because the view of the cloud is not to be trusted.
    pub(super) const fn is_doubt(&self) -> bool {
        matches!(self, Self::Unfound(Unfound::Unfindable(_) | Unfound::Doubt(_)))
    }

    /// The text, and after it the `problems` of the Service, unless they are the text.
    pub(super) fn beside(&self, problems: &[ServiceProblem]) -> String {
        match self {
            Self::Problems(_) => self.to_string(),
            _ if problems.is_empty() => self.to_string(),
            _ => format!("{self}; {}", list(problems)),
        }
    }

    /// What is then wrong with the Service, in the words of the event, whose text is `whole`.
    pub(super) fn trouble(&self, handling: Handling, whole: &str) -> ObjectTrouble {
        let (reason, what) = self.event(handling);
        let message = format!("{what}: {whole}");
        let state = if self.is_under_way() { SyncState::InProgress } else { self.state() };
        let cause = self.shared_cause().filter(|_| state == SyncState::OutOfSync);
        let began = if let Self::Later(later) = self { later.since } else { None };
        ObjectTrouble { state, cause, call: self.fault().map(failed_call), began, ..trouble(reason, message) }
    }

    /// Reason and subject of the event about it.
    fn event(&self, handling: Handling) -> (&'static str, &'static str) {
        let leaving = handling.removes();
        let usual = if leaving { "CleanLoadBalancerFailed" } else { "SyncLoadBalancerFailed" };
        let reason = match self {
            _ if self.is_under_way() => "LoadBalancerInProgress",
            Self::Write(write) => write.reason.unwrap_or(usual),
            Self::Unresolved(_) => SKIPPED_BACKENDS,
            _ if self.is_doubt() => LOAD_BALANCER_WITHHELD,
            _ => usual,
        };
        let what = match self {
            _ if self.is_under_way() => "The cloud still carries out what was asked of it",
            _ if leaving => "The load balancer could not be removed",
            _ => "The load balancer is out of sync",
        };
        (reason, what)
    }

    /// The call of the cloud that failed: of several, the one that the retry waits for.
    fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Cloud(fault) => Some(fault),
            Self::Execution(failures) => failures.soonest(),
            _ => None,
        }
    }

    /// What other Services can fail for in the same way, without what differs between them; `None` if it is about the Service
    /// alone.
    fn shared_cause(&self) -> Option<String> {
        match self {
            Self::Cloud(fault) => fault.cause(),
            Self::Execution(failures) => failures.faults().find_map(Fault::cause),
            Self::Write(FailedWrite { fault, .. }) => fault.cause("Services"),
            _ => None,
        }
    }

    /// How the Service is reported: of what passes by itself, the user gets an event only if it lasts.
    fn state(&self) -> SyncState {
        state(match self {
            Self::Later(later) => return later.state,
            Self::Cloud(fault) => fault.passes(),
            Self::Execution(failures) => failures.faults().all(Fault::passes),
            Self::Write(FailedWrite { fault, .. }) => fault.passes(),
            _ => false,
        })
    }
}

/// The same in words.
fn next_try(fault: &Fault) -> String {
    match pause(fault) {
        ReconcileResult::Failed(RetriedFailure { backoff: Backoff { first, longest }, .. }) => format!(
            "The first retry is in {} s, further ones are at most {} s apart",
            first.as_secs(),
            longest.as_secs().max(first.as_secs())
        ),
        ReconcileResult::RequeueAfter(after) => format!("The next try is in {} s", after.as_secs().max(1)),
        ReconcileResult::Done => String::new(),
    }
}

/// How soon the Service is retried after a fault.
pub(in crate::controllers) fn pause(fault: &Fault) -> ReconcileResult {
    if fault.held_back() {
        return ReconcileResult::RequeueAfter(fault.retry_after.unwrap_or_default());
    }
    let backoff = match fault.kind.reaction().retry {
        Retry::Soon => Backoff::SHORT,
        Retry::InSeconds => Backoff { first: Duration::from_secs(3), ..Backoff::SHORT },
        Retry::InTurn => {
            let turn = fault.retry_after.unwrap_or(Duration::from_secs(10));
            Backoff { first: turn, longest: turn }
        }
        Retry::Late => {
            let first = fault.retry_after.unwrap_or_default().max(Backoff::LONG.first);
            Backoff { first, ..Backoff::LONG }
        }
    };
    let lacks_quota_for = (fault.kind == FaultKind::Quota).then_some(fault.action);
    ReconcileResult::Failed(RetriedFailure {
        kind: fault.kind.as_str(),
        backoff,
        latest: Duration::MAX,
        lacks_quota_for,
    })
}

/// What the user should know although nothing failed.
#[derive(Debug)]
pub(super) struct Notes<'a> {
    /// What was decided on the way.
    pub(super) remarks: &'a [String],
    /// Warnings about settings, and notes about what is in the cloud.
    pub(super) lines: Vec<String>,
    /// Ports without a single backend.
    pub(super) empty_ports: &'a [String],
    /// Addresses of pods outside of the VPC.
    pub(super) outside: &'a BTreeSet<IpAddr>,
    /// Whether backends are not removed, which says more than that there are none.
    pub(super) withholds: bool,
}

/// Tells users what happens to their Services, as events and in the log.
#[derive(Debug)]
pub(super) struct ServiceReporter {
    pub(super) events: Events,
    pub(super) component: &'static str,
}

impl ServiceReporter {
    fn normal(&self, service: &ServiceView, reason: &'static str, message: String) {
        self.events.normal(self.component, &Regarding::service(service), reason, message);
    }

    fn warning(&self, service: &ServiceView, reason: &'static str, message: String) {
        warn!(code = event_code(reason), "{message}");
        self.events.warning(self.component, &Regarding::service(service), reason, message);
    }

    /// A change by the user was noticed.
    pub(super) fn changed(&self, service: &ServiceView, reason: &'static str) {
        let message = match reason {
            "TypeChanged" => "The type of the Service changed",
            "AnnotationChanged" => "Annotations of the Service changed",
            "ServiceSpecChanged" => "The specification of the Service changed",
            _ => "The Service is being deleted",
        };
        self.normal(service, reason, format!("{message}; the load balancer follows"));
    }

    /// A Service is gone of which something may be left. What is left on a load balancer of a user is named here; load balancers
    /// of ours are listed. `had` is the one that served it, if that is known: the annotation can name another one.
    pub(super) fn vanished(&self, service: &ServiceView, had: Option<&str>) {
        if let Some(named) = raw(service, ID).filter(|id| !id.is_empty()) {
            let id = had.unwrap_or(named);
            let message = format!(
                "The Service was deleted without waiting for its finalizer. Its listeners and server groups may still be on load \
                 balancer {id}; alicloud-ccm gc lists them"
            );
            self.warning(service, "LoadBalancerOwnerMissing", message);
        }
    }

    /// The load balancer was made for the Service before it was restored from a backup.
    pub(super) fn restored(&self, service: &ServiceView, id: &str) {
        let message = format!(
            "Load balancer {id} was made for this Service under another UID, as before a restore from a backup; the controller \
             manages it again"
        );
        self.normal(service, "LoadBalancerRestored", message);
    }

    /// A load balancer is kept although the Service goes.
    pub(super) fn preserved(&self, service: &ServiceView, id: &str) {
        let message = format!(
            "Load balancer {id} is kept with its listeners and server groups, as preserve-lb-on-delete asks; it is unmanaged from now on"
        );
        self.warning(service, "PreservedOnDelete", message);
    }

    /// Tells users what keeps the load balancer out of sync, or, if the Service leaves it, from being removed; or that nothing does
    /// any more.
    pub(super) fn tell(&self, key: &ObjectKey, uid: &str, report: Option<ObjectReport>) {
        let regarding = Regarding { kind: "Service", key: key.clone(), uid: uid.to_owned() };
        reporter::tell(&self.events, self.component, &regarding, report);
    }

    /// Tells users why something is withheld as long as it is.
    pub(super) fn withheld(&self, service: &ServiceView, reason: &'static str, why: Option<&str>) {
        reporter::tell_withheld(&self.events, self.component, &Regarding::service(service), (reason, why));
    }

    /// The Service is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.events.forget(self.component, |of| of == key);
    }

    /// Many Services are out of sync for the same cause.
    pub(super) fn shared(&self, cause: &str) {
        let message = shared_cause("Services", cause);
        warn!(code = "ACCM0309", "{message}");
        self.events.warning(self.component, &Regarding::component(self.component), "ManyServicesOutOfSync", message);
    }

    /// What the user should know although nothing failed, once each time it changes.
    pub(super) fn notes(&self, service: &ServiceView, notes: &Notes<'_>, told: &mut String) {
        let Notes { remarks, lines, empty_ports, outside, withholds } = notes;
        for remark in *remarks {
            info!("{remark}");
            self.normal(service, "LoadBalancerPlaced", remark.clone());
        }
        let (all, ports, outside) = (lines.join("; "), empty_ports.join(", "), addresses(outside));
        let parts = [&*all, &outside, if *withholds { "" } else { &ports }];
        let text = if parts.iter().all(|part| part.is_empty()) { String::new() } else { parts.join("|") };
        if !is_news(told, &text) {
            return;
        }
        if !lines.is_empty() {
            warn!(code = "ACCM0311", "{all}");
            self.events.warning(self.component, &Regarding::service(service), "LoadBalancerSettings", fitting(lines));
        }
        if !outside.is_empty() {
            let message = format!("The pod addresses {outside} are outside of the VPC, so these pods are no backends");
            self.normal(service, SKIPPED_BACKENDS, message);
        }
        if !ports.is_empty() && !withholds {
            let message =
                format!("There are no backends for port {ports}: no ready endpoint, or no node that may serve it");
            self.normal(service, "UnAvailableLoadBalancer", message);
        }
    }

    /// No elastic address can be published.
    pub(super) fn no_elastic_address(&self, service: &ServiceView, id: &str) {
        let message =
            format!("No elastic address is bound to load balancer {id}; its own address is published instead");
        self.warning(service, "FailedSetEIPAddress", message);
    }

    /// Reports that the load balancer is in sync; `done` are the steps of the plan.
    pub(super) fn ensured(&self, service: &ServiceView, id: &str, done: &[String]) {
        let steps = if done.is_empty() { String::new() } else { format!(": {}", done.join("; ")) };
        info!(load_balancer = id, "ensured");
        self.normal(service, "EnsuredLoadBalancer", format!("Ensured load balancer {id}{steps}"));
    }

    /// Changes from outside were undone.
    pub(super) fn repaired(&self, service: &ServiceView, id: &str, done: &[String]) {
        let steps = done.join("; ");
        let message = format!("Load balancer {id} was changed outside of the cluster and is in sync again: {steps}");
        self.warning(service, "RepairedDrift", message);
    }

    /// Another client writes the addresses of the Service, too.
    pub(super) fn overwritten(&self, service: &ServiceView, writer: &str) {
        let message = format!(
            "status.loadBalancer was overwritten by {writer:?}; the controller writes its own addresses again. Only one \
             controller can serve a Service: stop the other one, or give it the Service with spec.loadBalancerClass"
        );
        self.warning(service, "StatusOverwritten", message);
    }

    /// A load balancer that does not exist any more is made again.
    pub(super) fn recreating(&self, service: &ServiceView, id: &str) {
        let message = format!(
            "Load balancer {id} does not exist any more; a new one is made, and its address may be another one"
        );
        self.warning(service, "LoadBalancerRecreated", message);
    }

    /// A load balancer of one kind replaces one of the other.
    pub(super) fn succession(&self, service: &ServiceView, text: String) {
        info!("{text}");
        self.normal(service, "LoadBalancerHandOver", text);
    }

    /// A load balancer may be left, because it cannot be proven to be ours.
    pub(super) fn left_behind(&self, service: &ServiceView, id: &str) {
        let message = format!(
            "Load balancer {id} no longer carries the mark of this Service and is left as it is; delete it manually if it is not needed"
        );
        self.warning(service, "LoadBalancerLeft", message);
    }

    /// Reports that a Service which publishes a host name or an elastic address moves from one load balancer of a user to another
    /// one.
    pub(super) fn moved(&self, service: &ServiceView, former: &str, id: &str) {
        let message = format!(
            "The Service moves to load balancer {id}. Its listeners and server groups on {former} are left as they are, so that \
             clients can follow; alicloud-ccm gc lists and removes them"
        );
        self.warning(service, "LoadBalancerLeft", message);
    }

    /// Reports that the controller removed everything that it had made for the Service; `done` are the steps of the plan.
    pub(super) fn cleaned(&self, service: &ServiceView, done: &[String]) {
        let steps =
            if done.is_empty() { "; there was nothing to remove".to_owned() } else { format!(": {}", done.join("; ")) };
        info!("cleaned");
        self.normal(service, "CleanLoadBalancer", format!("Cleaned load balancer{steps}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_how_many_lines_it_leaves_out() {
        let line = |length: usize| "x".repeat(length);
        assert_eq!(fitting(&["a".to_owned(), "b".to_owned()]), "a; b");
        let cut = fitting(&[line(500), line(400), line(300), line(3)]);
        assert!(cut.starts_with(&format!("{}; {}; and 2 more", line(500), line(400))), "{cut}");
        let long = fitting(&["\u{4e2d}".repeat(900), line(1)]);
        assert!(long.ends_with("; and 1 more, see the log") && long.len() <= 1024 - " (ACCM0301)".len(), "{long}");
        assert_eq!(fitting(&[line(2000)]), line(EVENT_BYTES));
    }
}
