//! The backends of one Service that the cloud refused.
//!
//! The executor divides a refused batch until it knows which backends are to blame. Plans leave these backends out for a while.
//! Then a plan adds each of them with a call of its own, so that it holds up no other backend. It does the same with servers
//! that the cloud refused for another Service: the cloud may refuse them here, too. [`RefusalBudget`] limits how many of these
//! calls may be refused. A group without any backend is exempt from the limit.
//!
//! If the cloud accepts a batch and its job fails, later runs add the halves, as each is a job of its own. A group that lacks a
//! wanted backend keeps the backends that this one replaces, unless the group holds another wanted backend ([`stocked`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::alibaba::Fault;
use crate::controllers::Backoff;
use crate::plan::loadbalancer::model::{Backend, BackendKey, DesiredGroup, GroupRef, ObservedGroup};
use crate::plan::loadbalancer::operation::{Operation, OperationModel, RefusedBackends};
use crate::plan::loadbalancer::steps::{Plan, Step, Target};
use crate::telemetry::alarms::named;

/// How long a backend that was refused is left out.
const LEFT_OUT: Backoff = Backoff { first: Duration::from_secs(120), longest: Duration::from_secs(600) };
/// Calls with backends that were refused before, or elsewhere, that may be refused within [`WINDOW`]: for all Services together,
/// and for one of them.
const MOST_REFUSED: usize = 20;
const SHARE: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// What is left out of a Service's load balancer for now.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(BTreeMap<BackendKey, RefusedBackend>);

#[derive(Clone, Debug)]
struct RefusedBackend {
    /// How often the cloud refused the backend by itself; 0 if it was only in a batch that was refused, or not tried yet.
    times: u32,
    again_at: Instant,
    /// Why it was refused the first time.
    why: String,
    /// With how many it is tried at once.
    together: usize,
}

/// Backends of a call that was refused, with the cloud's answer.
#[derive(Clone, Debug)]
pub(crate) struct RefusedCall {
    pub(crate) backends: Vec<Backend>,
    pub(crate) fault: Fault,
}

impl Refusals {
    /// Takes out of a plan what is left out for now. What has its turn is tried by itself, after the others: at most `budget`
    /// of them, and all where nothing else is to serve. `suspects` are servers that were refused elsewhere.
    pub(super) fn sort_out<M: OperationModel>(
        &mut self,
        plan: &mut Plan<M>,
        suspects: &BTreeSet<Arc<str>>,
        stocked: &BTreeSet<Target>,
        mut budget: usize,
    ) {
        let mut short: BTreeSet<Target> = BTreeSet::new();
        let is_open = |all: &Self, it: &Backend| all.0.contains_key(&it.key) || suspects.contains(&it.key.server_id);
        let has_others = |step: &&Step<M>| step.operation.adds().iter().any(|it| !is_open(self, it));
        let served = plan.steps.iter().filter(has_others).map(|step| step.target.clone());
        let served: BTreeSet<Target> = served.chain(stocked.iter().cloned()).collect();
        for step in std::mem::take(&mut plan.steps) {
            let waits = |it: &&Backend| self.0.get(&it.key).is_some_and(|known| !known.is_due());
            let is_left_out = |it: &&Backend| waits(it) || (served.contains(&step.target) && is_open(self, it));
            let (doubtful, rest): (Vec<_>, Vec<_>) = step.operation.adds().iter().partition(is_left_out);
            if doubtful.is_empty() {
                plan.steps.push(step);
                continue;
            }
            let rest = rest.into_iter().cloned().collect();
            let mut doubtful: Vec<Backend> = doubtful.into_iter().cloned().collect();
            // What is perhaps not to blame first.
            doubtful.sort_by_key(|backend| self.0.get(&backend.key).map_or(0, |known| known.times));
            let adding = |backends| step.operation.adding(backends).map(|operation| Step { operation, ..step.clone() });
            plan.steps.extend(adding(rest));
            if doubtful.iter().any(|it| matches!(one(&step.operation, it), RefusedBackends::OneAddition)) {
                short.insert(step.target.clone());
            }
            let mut tried: Vec<Backend> = Vec::new();
            for backend in doubtful {
                let known = self.0.entry(backend.key.clone()).or_insert_with(RefusedBackend::untried);
                // A group is made without them.
                if budget > 0 && known.is_due() && !step.operation.creates() {
                    let together = known.together;
                    tried.push(backend);
                    if tried.len() >= together {
                        budget -= 1;
                        plan.steps.extend(adding(std::mem::take(&mut tried)));
                    }
                }
            }
            plan.steps.extend((!tried.is_empty()).then(|| adding(tried)).flatten());
        }
        plan.steps.retain(|step| !step.destroys || !short.contains(&step.target) || stocked.contains(&step.target));
    }

    /// Notes backends that the cloud took and then failed to add: the halves of a batch are tried next, and a single one once
    /// more, as the cloud does not say why.
    pub(super) fn note_failed(&mut self, calls: Vec<RefusedCall>) {
        for RefusedCall { backends, fault } in calls {
            if let [backend] = backends.as_slice()
                && self.0.contains_key(&backend.key)
            {
                self.note(vec![RefusedCall { backends, fault }]);
                continue;
            }
            let together = (backends.len() / 2).max(1);
            let untried = || RefusedBackend { together, ..RefusedBackend::untried() };
            self.0.extend(backends.into_iter().map(|backend| (backend.key, untried())));
        }
    }

    /// Notes calls that were refused. Returns how many were about backends that had been in doubt.
    pub(super) fn note(&mut self, calls: Vec<RefusedCall>) -> usize {
        let mut again = 0;
        for RefusedCall { backends, fault } in calls {
            again += usize::from(backends.iter().all(|backend| self.0.contains_key(&backend.key)));
            let alone = u32::from(backends.len() == 1);
            for backend in backends {
                let known = self.0.entry(backend.key).or_insert_with(RefusedBackend::untried);
                known.times += alone;
                known.again_at =
                    Instant::now() + if known.times > 0 { LEFT_OUT.delay(known.times) } else { Duration::ZERO };
                if alone == 1 && known.why.is_empty() {
                    known.why = fault.to_string();
                }
            }
        }
        again
    }

    /// Forgets all but those that are still missing.
    pub(super) fn retain(&mut self, is_missing: impl Fn(&BackendKey) -> bool) {
        self.0.retain(|key, _| is_missing(key));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Servers of which a backend was refused by itself.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().filter(|(_, refusal)| refusal.times > 0).map(|(key, _)| &key.server_id)
    }

    /// What was refused, in words for the user; empty if nothing was, by itself.
    pub(super) fn report(&self) -> String {
        let refused: Vec<_> = self.0.iter().filter(|(_, refusal)| refusal.times > 0).collect();
        let Some((_, first)) = refused.first() else { return String::new() };
        let names: Vec<String> = refused.iter().map(|(key, _)| name(key)).collect();
        let names = named(names.iter().map(String::as_str));
        format!("the cloud refused these backends, which are left out and tried again later: {names}; {}", first.why)
    }

    /// In what time the next of them is tried again, if calls may be refused again after `pause`; `None` if there are none.
    pub(super) fn again_in(&self, pause: Duration) -> Option<Duration> {
        let next = self.0.values().map(|refusal| refusal.again_at).min()?;
        Some(next.saturating_duration_since(Instant::now()).max(pause).max(Duration::from_secs(1)))
    }
}

/// Server groups that hold a backend that is wanted there: what is no longer wanted can leave them although others cannot be
/// added, or addresses of pods would stay that are another pod's by now.
pub(super) fn stocked(
    wanted: &BTreeMap<String, DesiredGroup>,
    there: &LiteMap<String, ObservedGroup>,
) -> BTreeSet<Target> {
    let mut stocked = BTreeSet::new();
    for (wanted, (id, group)) in wanted.values().flat_map(|wanted| there.iter().map(move |it| (wanted, it))) {
        let is_it = match &wanted.group {
            GroupRef::Id(wanted) => wanted == id,
            GroupRef::Named(name) => *name == group.name,
        };
        if is_it && group.members().iter().any(|backend| wanted.backends.contains(&backend.key)) {
            stocked.extend([wanted.group.clone(), GroupRef::Id(id.clone())].map(Target::Group));
        }
    }
    stocked
}

/// What it means if the cloud refuses one backend by itself.
fn one<M: OperationModel>(operation: &Operation<M>, backend: &Backend) -> RefusedBackends<Operation<M>> {
    operation.adding(vec![backend.clone()]).map_or(RefusedBackends::None, |alone| alone.refused_backends())
}

fn name(key: &BackendKey) -> String {
    match &*key.server_ip {
        "" => format!("{}:{}", key.server_id, key.port),
        ip => format!("{} {ip}:{}", key.server_id, key.port),
    }
}

impl RefusedBackend {
    fn untried() -> Self {
        Self { times: 0, again_at: Instant::now(), why: String::new(), together: 1 }
    }

    fn is_due(&self) -> bool {
        self.again_at <= Instant::now()
    }
}

/// Limits how many calls are refused with backends that are in doubt, of which each Service has a share.
#[derive(Debug, Default)]
pub(super) struct RefusalBudget(Mutex<VecDeque<(Instant, String)>>);

impl RefusalBudget {
    /// Notes refused calls for the Service with this uid.
    pub(super) fn spend(&self, service: &str, calls: usize) {
        self.0.lock().extend(std::iter::repeat_n((Instant::now(), service.to_owned()), calls));
    }

    /// How many more calls may be refused for it now.
    pub(super) fn left(&self, service: &str) -> usize {
        let mut calls = self.0.lock();
        calls.retain(|(call, _)| call.elapsed() < WINDOW);
        let own = calls.iter().filter(|(_, by)| by == service).count();
        MOST_REFUSED.saturating_sub(calls.len()).min(SHARE.saturating_sub(own))
    }

    /// After which time calls may be refused again.
    pub(super) fn pause(&self, service: &str) -> Duration {
        if self.left(service) > 0 {
            return Duration::ZERO;
        }
        self.0.lock().front().map_or(Duration::ZERO, |(first, _)| WINDOW.saturating_sub(first.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alibaba::FaultKind;
    use crate::plan::clb::desired::ClbModel;
    use crate::plan::clb::operation::{Operation as Write, Own, Plan};
    use crate::plan::loadbalancer::steps;
    use crate::plan::nlb::operation::Operation as NlbWrite;

    fn backend(server: &str) -> Backend {
        Backend { key: BackendKey::ecs(server, 30080), weight: 100, description: "mark".into() }
    }

    fn refused(servers: &[&str]) -> RefusedCall {
        let fault = Fault::new("add backends", FaultKind::Rejected, "no such server");
        RefusedCall { backends: servers.iter().copied().map(backend).collect(), fault }
    }

    /// The servers that each step of the plan adds to a group that holds another one, after sorting out.
    fn tried(refusals: &mut Refusals, servers: &[&str], suspects: &[&str], budget: usize) -> Vec<Vec<String>> {
        let mut plan = Plan::default();
        let (group, backends) = (GroupRef::Named("g".to_owned()), servers.iter().copied().map(backend).collect());
        let operation = Write::AddBackends { group: group.clone(), backends };
        plan.step(operation, Target::Group(group.clone()), [], "");
        let suspects = suspects.iter().copied().map(Arc::from).collect();
        refusals.sort_out(&mut plan, &suspects, &[Target::Group(group)].into(), budget);
        let names =
            |step: &Step<ClbModel>| step.operation.adds().iter().map(|it| it.key.server_id.to_string()).collect();
        plan.steps.iter().map(names).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_is_left_out_and_then_tried_by_itself() {
        let mut refusals = Refusals::default();
        refusals.note(vec![refused(&["a"]), refused(&["b", "c"])]);
        assert_eq!(tried(&mut refusals, &["a", "b", "c", "d"], &[], 9), [["d"], ["b"], ["c"]], "one may be to blame");
        assert_eq!(tried(&mut refusals, &["a", "b", "c", "d"], &[], 0), [["d"]]);
        assert!(refusals.report().contains("a:30080; add backends: no such server"));
        assert!(!refusals.report().contains("b:30080"), "perhaps only another is to blame: {}", refusals.report());
        tokio::time::advance(LEFT_OUT.first).await;
        assert_eq!(tried(&mut refusals, &["a", "b", "d"], &[], 2), [["d"], ["b"], ["a"]]);
        refusals.note(vec![refused(&["a"])]);
        tokio::time::advance(LEFT_OUT.first).await;
        assert_eq!(tried(&mut refusals, &["a"], &[], 9), Vec::<Vec<String>>::new(), "longer each time");
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_batch_that_the_cloud_took_and_did_not_add_the_halves_are_tried() {
        let mut refusals = Refusals::default();
        let all = ["a", "b", "c", "d"];
        refusals.note_failed(vec![refused(&all)]);
        assert_eq!(tried(&mut refusals, &all, &[], 9), [["a", "b"], ["c", "d"]]);
        // The second half was added.
        refusals.retain(|key| ["a", "b"].contains(&&*key.server_id));
        refusals.note_failed(vec![refused(&["a", "b"])]);
        assert_eq!(tried(&mut refusals, &["a", "b"], &[], 9), [["a"], ["b"]]);
        refusals.retain(|key| &*key.server_id == "a");
        refusals.note_failed(vec![refused(&["a"])]);
        assert!(refusals.report().contains("a:30080"), "this one is to blame: {}", refusals.report());
        assert_eq!(tried(&mut refusals, &["a", "e"], &[], 9), [["e"]], "and holds up no other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_backend_that_was_not_added_is_tried_once_more_at_once() {
        let mut refusals = Refusals::default();
        refusals.note_failed(vec![refused(&["a"])]);
        assert_eq!(tried(&mut refusals, &["a"], &[], 9), [["a"]]);
        refusals.note_failed(vec![refused(&["a"])]);
        assert_eq!(tried(&mut refusals, &["a"], &[], 9), Vec::<Vec<String>>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn the_group_of_a_network_load_balancer_that_lacks_a_refused_backend_is_not_emptied() {
        let mut refusals = Refusals::default();
        refusals.note(vec![refused(&["a"])]);
        let mut plan = steps::Plan::default();
        let group = GroupRef::Named("g".to_owned());
        let add = NlbWrite::AddBackends { group: group.clone(), backends: vec![backend("a")] };
        let remove = NlbWrite::RemoveBackends { group: group.clone(), backends: vec![backend("old").key] };
        let target = Target::Group(group);
        plan.step(add, target.clone(), [], "");
        plan.step(remove, target.clone(), [], "");
        let mut others_serve = plan.clone();
        refusals.sort_out(&mut plan, &BTreeSet::new(), &BTreeSet::new(), 9);
        assert_eq!(plan.steps, [], "the old one serves until the new one does");
        refusals.sort_out(&mut others_serve, &BTreeSet::new(), &[target].into(), 9);
        assert!(others_serve.steps.len() == 1 && others_serve.steps[0].destroys, "{others_serve}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_elsewhere_holds_up_no_other() {
        let mut refusals = Refusals::default();
        assert_eq!(tried(&mut refusals, &["a", "b", "c"], &["b"], 9), vec![vec!["a", "c"], vec!["b"]]);
        assert_eq!(
            tried(&mut refusals, &["b"], &["b"], 0),
            Vec::<Vec<String>>::new(),
            "until there is a budget for it"
        );
        assert_eq!(refusals.again_in(Duration::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(refusals.report(), "", "it was not refused here");
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_else_is_to_serve_what_was_refused_elsewhere_is_tried_at_once() {
        let suspects = BTreeSet::from(["a", "b"].map(Arc::from));
        let group = GroupRef::Named("g".to_owned());
        let planned = |servers: &[&str], rest: &[&str]| {
            let [first, rest] = [servers, rest].map(|names| names.iter().copied().map(backend).collect::<Vec<_>>());
            let mut plan = Plan::default();
            plan.step(Own::CreateGroup { name: "g".to_owned(), backends: first }, Target::Group(group.clone()), [], "");
            if !rest.is_empty() {
                let more = Write::AddBackends { group: group.clone(), backends: rest };
                plan.step(more, Target::Group(group.clone()), [], "");
            }
            Refusals::default().sort_out(&mut plan, &suspects, &BTreeSet::new(), 0);
            plan.steps.iter().map(|step| step.operation.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(planned(&["a", "b"], &[]), ["create group g with a:30080*100, b:30080*100"]);
        let others = ["create group g with no backends", "add to g: c:30080*100"];
        assert_eq!(planned(&["a", "b"], &["c"]), others, "another batch has one that is to serve");
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_fills_up_again() {
        let budget = RefusalBudget::default();
        budget.spend("web", SHARE);
        assert_eq!((budget.left("web"), budget.pause("web")), (0, WINDOW));
        assert_eq!((budget.left("api"), budget.pause("api")), (MOST_REFUSED - SHARE, Duration::ZERO));
        budget.spend("api", MOST_REFUSED - SHARE);
        assert_eq!((budget.left("late"), budget.pause("late")), (0, WINDOW));
        tokio::time::advance(WINDOW).await;
        assert_eq!((budget.left("web"), budget.pause("web")), (SHARE, Duration::ZERO));
    }
}
