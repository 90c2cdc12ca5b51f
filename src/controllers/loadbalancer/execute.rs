//! Carries out the plan for one load balancer, step by step, each with a permit of its own.
//!
//! A step that the cloud cannot do now ends the run: the rest is planned again from what is then there. A step that the
//! cloud refuses, whose action alone is out of order, or that has to wait for what the cloud still carries out, keeps back only
//! the steps that need its target; backends that it refuses keep back nothing. There is no waiting and no repeating here.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use super::product::{CreationToken, Product, Write};
use super::refusals::RefusedCall;
use crate::alibaba::actions::DELETE_SECURITY_GROUP;
use crate::alibaba::{Fault, FaultKind, Priority, Purpose, Rest};
use crate::fence::{Fence, NotLeading, WRITE_TIME};
use crate::plan::loadbalancer::cloud::{Answer, CloudModel, Observed};
use crate::plan::loadbalancer::model::Backend;
use crate::plan::loadbalancer::operation::{Operation, OperationModel, RefusedBackends};
use crate::plan::loadbalancer::steps::{Step, Target};
use crate::telemetry::activity;

/// After so many refused additions it is likely that most backends are refused: each alone then costs fewer calls than halves.
const MANY_REFUSED: usize = 3;
/// Neighbours often share a fate, so that the search goes over them in steps of this width.
const STRIDE: usize = 5;

/// What came of a plan.
#[derive(Debug, Default)]
pub(crate) struct Execution<M: OperationModel> {
    /// Steps that the cloud confirmed, as the plan prints them.
    pub(crate) done: Vec<String>,
    /// How many of them deleted something.
    pub(crate) deleted: usize,
    /// Whether any of them changed more than server groups.
    pub(crate) changes_balancer: bool,
    pub(crate) failures: Failures,
    /// Operations whose outcome is unknown.
    pub(crate) uncertain: Vec<Operation<M>>,
    /// Whether a step was left out without which traffic may not reach all backends.
    pub(crate) unserved: bool,
    /// Backends that the cloud refused, each by itself.
    pub(crate) refused_backends: Vec<RefusedCall>,
    /// Whether backends are left for the next run, which begins soon.
    pub(crate) put_off: bool,
    /// What was decided on the way, for the user: which vSwitch was full, for example.
    pub(crate) remarks: Vec<String>,
}

/// Steps that were not done, as the plan prints them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    /// Steps that the cloud refused or could not do, which did not end the run.
    pub(crate) refused: Vec<(String, Fault)>,
    /// Why the run ended before the last step, if it did.
    pub(crate) stopped: Option<(String, Fault)>,
    /// When to read the status of pending jobs of the cloud.
    pub(crate) look_again: Option<Duration>,
}

impl Failures {
    /// Whether every step was done.
    pub(crate) fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.stopped.is_none()
    }

    /// Why they were not done.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.refused.iter().chain(&self.stopped).map(|(_, fault)| fault)
    }

    /// The fault that is over first, as far as its kind tells.
    pub(crate) fn soonest(&self) -> Option<&Fault> {
        let passing = self.refused.iter().find(|(_, fault)| is_out_of_order(fault.kind));
        self.stopped.as_ref().or(passing).or(self.refused.first()).map(|(_, fault)| fault)
    }

    /// When to look at pending jobs again, if the cloud refused single steps only. Steps that wait for a job do not wait for
    /// the backoff of a refused step.
    pub(crate) fn goes_on_in(&self) -> Option<Duration> {
        let works = self.stopped.is_none() && !self.refused.iter().any(|(_, fault)| is_out_of_order(fault.kind));
        self.look_again.filter(|_| works)
    }

    /// Whether nothing failed but what a job of the cloud still holds up.
    pub(crate) fn await_jobs(&self) -> bool {
        self.stopped.is_none() && self.refused.iter().all(awaits_job)
    }

    /// What is then believed of the load balancer. A step that was throttled, here or in the cloud, or that a job holds up,
    /// changed nothing.
    pub(crate) fn belief(&self) -> Belief {
        let is_refusal = |(_, fault): &(String, Fault)| matches!(fault.kind, FaultKind::Denied | FaultKind::Rejected);
        let is_throttled = |(_, fault): &(String, Fault)| fault.kind == FaultKind::Throttled;
        match &self.stopped {
            Some(stopped) if !is_throttled(stopped) => Belief::Lost,
            _ if self.refused.iter().all(awaits_job) => Belief::Certain,
            _ if self.refused.iter().all(|step| awaits_job(step) || is_refusal(step)) => Belief::Doubted,
            _ => Belief::Lost,
        }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (step, fault) in self.refused.iter().chain(&self.stopped) {
            write!(f, "{separator}{step}: {fault}")?;
            separator = "; ";
        }
        Ok(())
    }
}

/// How far what is believed of a load balancer can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Belief {
    /// Until a comparison is due.
    Certain,
    /// The cloud refused a step, which can mean that a read was stale. Jobs that are pending are continued.
    Doubted,
    /// A step was cut short, or may have had an effect.
    Lost,
}

/// Gives those servers of the backends that are in a server group of another Service.
pub(crate) type ServeOthers<'a> = dyn Fn(&[Backend]) -> BTreeSet<Arc<str>> + Sync + 'a;

/// Carries out plans for one Service.
pub(crate) struct Executor<'a, P: Product> {
    pub(crate) product: &'a P,
    pub(crate) fence: &'a Fence,
    /// When this is cancelled, no further step begins: the next leader waits for the end of this one.
    pub(crate) stop: &'a CancellationToken,
    pub(crate) token: CreationToken,
    /// Tells the Service and its namespace from others that share quotas with it.
    pub(crate) priority: Priority,
    /// After so many refused additions, further ones to groups that hold a backend are left for the next run.
    pub(crate) most_refused: usize,
    /// Server groups that may lose what is not wanted although others cannot be added.
    pub(crate) stocked: BTreeSet<Target>,
    /// Asked once for each batch that the cloud refuses.
    pub(crate) serve_others: &'a ServeOthers<'a>,
}

impl<P: Product> Executor<'_, P> {
    /// Carries out `steps`, moving `observed` forward with every step that succeeds.
    pub(crate) async fn run(
        &self,
        steps: Vec<Step<P::Model>>,
        observed: &mut Observed<P::Model>,
    ) -> Execution<P::Model> {
        let mut execution = Execution::default();
        let mut queue = StepQueue::new(steps, &self.stocked);
        while let Some(step) = queue.next() {
            if P::Model::must_wait(observed, &step) {
                queue.failed.insert(step.target);
                continue;
            }
            let is_addition = !step.operation.adds().is_empty();
            let is_bare = is_bare(observed, &step.target);
            if is_addition && !is_bare && queue.refusals >= self.most_refused {
                execution.put_off = true;
                queue.short.insert(step.target);
                continue;
            }
            let line = format!("{} ({})", step.operation, step.reason);
            match activity::step(&line, self.perform(&step.operation, observed)).await {
                Ok(answer) => {
                    info!(step = %line, "done");
                    execution.remarks.extend(step.operation.remark(None));
                    observed.apply(&step.operation, &answer);
                    queue.made_room |= step.operation.makes_room();
                    execution.deleted += usize::from(step.destroys);
                    execution.changes_balancer |= !matches!(step.target, Target::Group(_));
                    execution.done.push(line);
                }
                Err(fault) => {
                    let fault = proves_a_stale_list(&step, fault);
                    if fault.kind.has_unknown_outcome() {
                        execution.uncertain.push(step.operation.clone());
                    }
                    if ends_the_run(&fault, &execution.failures.refused) {
                        execution.failures.stopped = Some((line, fault));
                        return execution;
                    }
                    if fault.kind == FaultKind::Capacity {
                        execution.remarks.extend(step.operation.remark(Some(&fault.code)));
                    }
                    // A load balancer is worth more than its tags. They are added, or refused again, once it is there.
                    if let Some(operation) = step.operation.without_tags().filter(|_| is_about_tags(&fault)) {
                        execution.failures.refused.push((line, fault));
                        queue.steps.push_front(Step { operation, ..step });
                        continue;
                    }
                    let adds = step.operation.adds().to_vec();
                    queue.refusals += usize::from(is_addition);
                    let proven = if adds.len() > 1 { self.proven(&adds, observed) } else { BTreeSet::new() };
                    let serves = serves(&step);
                    match queue.refused(step, fault.kind, is_bare, &proven) {
                        Refused::Retried => {}
                        Refused::Step => {
                            execution.unserved |= serves;
                            execution.failures.refused.push((line, fault));
                        }
                        Refused::Backends => execution.refused_backends.push(RefusedCall { backends: adds, fault }),
                    }
                }
            }
        }
        execution.unserved |= queue.unserved || !queue.without_room.is_empty();
        execution
            .failures
            .refused
            .extend(queue.without_room.into_iter().map(|step| (step.to_string(), no_room(&step))));
        execution
    }

    /// Servers that are in a server group of this Service, or of another one that has some of these backends.
    fn proven(&self, backends: &[Backend], observed: &Observed<P::Model>) -> BTreeSet<Arc<str>> {
        (self.serve_others)(backends).into_iter().chain(members(observed).cloned()).collect()
    }

    async fn perform(&self, operation: &Operation<P::Model>, observed: &Observed<P::Model>) -> Result<Answer, Fault> {
        let permit = self.fence.permit(WRITE_TIME).ok().filter(|_| !self.stop.is_cancelled());
        let permit = &permit.ok_or(NotLeading)?;
        let purpose = match operation.backends_of().map(|group| observed.serves(group)) {
            Some(true) => Purpose::Serve,
            Some(false) => Purpose::Fill,
            None => Purpose::Other,
        };
        let priority = Priority { purpose, ..self.priority.clone() };
        self.product.perform(&Write { permit, token: &self.token, priority }, operation, observed).await
    }
}

/// The steps that are left, and what earlier ones mean for them.
#[derive(Debug, Default)]
struct StepQueue<M: OperationModel> {
    steps: VecDeque<Step<M>>,
    stocked: BTreeSet<Target>,
    /// What failed, or has to wait.
    failed: BTreeSet<Target>,
    /// Groups that lack a backend and are not stocked, or get one in the next run, so that none is taken out of them.
    short: BTreeSet<Target>,
    /// Groups to which nothing can be added now, so that no listener is pointed at them.
    unfilled: BTreeSet<Target>,
    /// Whether a step was kept back without which traffic may not reach all backends.
    unserved: bool,
    /// Backends for which there was no room; they get a second chance once others have left.
    without_room: Vec<Step<M>>,
    made_room: bool,
    /// How many additions were refused.
    refusals: usize,
}

impl<M: OperationModel> StepQueue<M> {
    fn new(steps: Vec<Step<M>>, stocked: &BTreeSet<Target>) -> Self {
        Self { steps: steps.into(), stocked: stocked.clone(), ..Self::default() }
    }

    /// The next step that does not need anything that failed.
    fn next(&mut self) -> Option<Step<M>> {
        if self.steps.is_empty() && self.made_room {
            self.made_room = false;
            self.steps.extend(self.without_room.drain(..));
        }
        while let Some(step) = self.steps.pop_front() {
            let drains = step.destroys && self.short.contains(&step.target);
            // One attribute is as good as another: a tag that cannot be set keeps none from being removed.
            let is_held_up = !matches!(step.target, Target::Attribute(_)) && self.failed.contains(&step.target);
            let is_unfilled = |need: &Target| *need != step.target && self.unfilled.contains(need);
            let lacks = step.needs.iter().any(|need| self.failed.contains(need) || is_unfilled(need));
            if !drains && !is_held_up && !lacks {
                return Some(step);
            }
            self.unserved |= serves(&step);
            if lacks {
                // What needs this one in turn would find it undone.
                self.failed.insert(step.target);
            }
        }
        None
    }

    /// Decides what a refused step means for the rest. A group that is bare is best served by any one backend, soon.
    /// What is `proven` to be taken elsewhere goes first.
    fn refused(&mut self, step: Step<M>, kind: FaultKind, is_bare: bool, proven: &BTreeSet<Arc<str>>) -> Refused {
        // Without the permission to change backends, parts are refused as well.
        if is_out_of_order(kind) || (kind == FaultKind::Denied && step.operation.backends_of().is_some()) {
            self.keep_back(step);
            return Refused::Step;
        }
        let part = |operation| Step { operation, ..step.clone() };
        if matches!(kind, FaultKind::Capacity | FaultKind::Rejected)
            && let Some(elsewhere) = step.operation.elsewhere(kind == FaultKind::Capacity)
        {
            self.steps.push_front(part(elsewhere));
            return Refused::Retried;
        }
        if let Some(halves) = step.operation.halves().filter(|_| kind == FaultKind::Rejected) {
            let part = |(operation, reason)| Step { operation, reason, ..step.clone() };
            halves.into_iter().rev().for_each(|half| self.steps.push_front(part(half)));
            return Refused::Retried;
        }
        if kind == FaultKind::Quota && step.operation.takes_room() {
            let room_to_come = self.made_room || self.steps.iter().any(|step| step.operation.makes_room());
            if room_to_come && !self.without_room.contains(&step) {
                self.without_room.push(step);
                return Refused::Retried;
            }
            return Refused::Step;
        }
        let (creates, adds) = (step.operation.creates(), !step.operation.adds().is_empty());
        // So are those of a group that is made with its backends.
        let is_denied = adds && kind == FaultKind::Denied;
        match step.operation.refused_backends() {
            RefusedBackends::TryParts(halves) if !is_denied => {
                let (first, rest): (Vec<_>, Vec<_>) =
                    step.operation.adds().iter().cloned().partition(|it| proven.contains(&it.key.server_id));
                let in_singles = adds && !creates && (is_bare || self.refusals >= MANY_REFUSED);
                let parts = if !first.is_empty() && !rest.is_empty() {
                    step.operation.adding(first).into_iter().chain(halves[1].adding(rest)).collect()
                } else if in_singles {
                    singles(&step.operation)
                } else {
                    halves.into()
                };
                parts.into_iter().rev().for_each(|operation| self.steps.push_front(part(operation)));
                Refused::Retried
            }
            refused if !creates && !matches!(refused, RefusedBackends::None) => {
                if matches!(refused, RefusedBackends::OneAddition) && !self.stocked.contains(&step.target) {
                    self.short.insert(step.target);
                }
                if adds { Refused::Backends } else { Refused::Step }
            }
            _ => {
                if !step.operation.is_setting() {
                    self.keep_back(step);
                }
                Refused::Step
            }
        }
    }

    /// Keeps back what relies on a step that was not done. The backends of a server group are one thing, its attributes
    /// another; while it lacks a backend, none is taken out of it.
    fn keep_back(&mut self, step: Step<M>) {
        match step.operation.backends_of() {
            None => drop(self.failed.insert(step.target)),
            Some(_) if step.operation.adds().is_empty() => {}
            Some(_) => {
                self.short.insert(step.target.clone());
                self.unfilled.insert(step.target);
            }
        }
    }
}

/// What came of a step that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// It is tried again later, elsewhere or in parts.
    Retried,
    /// It was not done.
    Step,
    /// The backends that it adds are left out.
    Backends,
}

/// Additions of one backend each.
fn singles<M: OperationModel>(operation: &Operation<M>) -> Vec<Operation<M>> {
    let backends = operation.adds();
    let spread = (0..STRIDE).flat_map(|first| backends.iter().skip(first).step_by(STRIDE));
    spread.filter_map(|backend| operation.adding(vec![backend.clone()])).collect()
}

/// The servers in the server groups.
pub(super) fn members(observed: &Observed<impl CloudModel>) -> impl Iterator<Item = &Arc<str>> {
    observed.groups.values().flat_map(|group| group.members()).map(|backend| &backend.key.server_id)
}

/// Whether the target is a server group without backends.
fn is_bare(observed: &Observed<impl CloudModel>, target: &Target) -> bool {
    let Target::Group(group) = target else { return false };
    let group = observed.group_id(group).and_then(|id| observed.groups.get(id));
    group.is_none_or(|group| group.members().is_empty())
}

/// Whether the remaining steps are dropped. Where a second action is out of order, it is the whole API.
fn ends_the_run(fault: &Fault, earlier: &[(String, Fault)]) -> bool {
    let is_second = |(_, other): &(String, Fault)| is_out_of_order(other.kind) && other.action != fault.action;
    match fault.kind.reaction().rest {
        Rest::Dropped => true,
        Rest::DroppedUnlessAnswered => !fault.is_answered() || earlier.iter().any(is_second),
        Rest::Done => false,
    }
}

/// A listener that is refused as already there, and was not listed, proves that the list is stale: nothing is made for now.
fn proves_a_stale_list<M: OperationModel>(step: &Step<M>, fault: Fault) -> Fault {
    if fault.kind != FaultKind::Exists || !step.operation.creates() || !matches!(step.target, Target::Listener(_)) {
        return fault;
    }
    let message = format!("{} The cloud's list lacks it; nothing is made until the list shows it", fault.message);
    Fault { kind: FaultKind::Transient, message, ..fault }
}

/// Whether the cloud refused a tag, such as with `InvalidParameter.TagKey`. The vendor has no list of these codes: a refusal whose
/// code lacks the word counts as one of the whole request.
fn is_about_tags(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Rejected | FaultKind::Quota) && fault.code.to_ascii_lowercase().contains("tag")
}

/// Faults that say nothing about what was asked for.
const fn is_out_of_order(kind: FaultKind) -> bool {
    matches!(kind.reaction().rest, Rest::DroppedUnlessAnswered)
}

/// Whether traffic to the backends can depend on a step. What only goes away takes none along.
fn serves(step: &Step<impl OperationModel>) -> bool {
    !step.destroys && matches!(step.target, Target::LoadBalancer | Target::Group(_) | Target::Listener(_))
}

/// Whether the cloud still holds on to what was to be deleted, and lets it go by itself: network interfaces of a load balancer
/// that is gone, or has left a security group, use that for a while.
fn awaits_job((_, fault): &(String, Fault)) -> bool {
    fault.kind == FaultKind::InUse && fault.action == DELETE_SECURITY_GROUP.0.name
}

fn no_room(step: &Step<impl OperationModel>) -> Fault {
    let message = format!("{step}: the load balancer or the server group has no room for more backends");
    Fault::new("load balancer", FaultKind::Quota, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind, GroupRef, ListenerRef};
    use crate::plan::nlb::desired::NlbModel;
    use crate::plan::nlb::model::GroupFields;
    use crate::plan::nlb::operation::{Operation as Write, Own};

    fn step(operation: impl Into<Write>, target: &Target, needs: &[&Target]) -> Step<NlbModel> {
        let operation = operation.into();
        let destroys = operation.destroys();
        let needs = needs.iter().map(|need| (*need).clone()).collect();
        Step { operation, target: target.clone(), needs, reason: String::new(), destroys }
    }

    fn deletion(id: &str) -> Write {
        Write::DeleteGroup { id: id.to_owned(), name: id.to_owned() }
    }

    #[test]
    fn of_a_group_that_nothing_can_be_added_to_only_attributes_and_weights_change() {
        let group = GroupRef::Id("web".to_owned());
        let target = Target::Group(group.clone());
        let key = |server: &str| BackendKey {
            kind: BackendKind::Ecs,
            server_id: server.into(),
            server_ip: "".into(),
            port: 80,
        };
        let backend = |server| Backend { key: key(server), weight: 1, description: "".into() };
        let backends = |operation: Write| step(operation, &target, &[&target]);
        let add = Write::AddBackends { group: group.clone(), backends: vec![backend("a"), backend("b")] };
        let remove = Write::RemoveBackends { group: group.clone(), backends: vec![key("c")] };
        let set = Write::SetBackends { group: group.clone(), backends: vec![backend("d")] };
        let fields = GroupFields::new();
        let attributes = step(Own::SetGroup { group: group.clone(), fields }, &target, &[]);
        let listener = Target::Listener(ListenerRef { port: 80, protocol: "TCP" });
        let moves = step(Own::SetInstance(Default::default()), &listener, &[&target]);
        let rest = [backends(remove), backends(set), attributes, moves];
        for kind in [FaultKind::Denied, FaultKind::Transient] {
            let stocked = BTreeSet::new();
            let mut queue = StepQueue::new([&[backends(add.clone())], &rest[..]].concat(), &stocked);
            let addition = queue.next().unwrap();
            assert_eq!(queue.refused(addition, kind, true, &BTreeSet::new()), Refused::Step);
            let done: Vec<Step<NlbModel>> = std::iter::from_fn(|| queue.next()).collect();
            assert_eq!(done, rest[1..3]);
        }
    }

    #[test]
    fn only_steps_about_traffic_leave_backends_unserved() {
        let listener = Target::Listener(ListenerRef { port: 80, protocol: "TCP" });
        let (group, tags) = (Target::Group(GroupRef::Id("web".to_owned())), Target::Attribute("tags"));
        let set = || Own::SetInstance(Default::default());
        for (step, expected) in [
            (step(set(), &tags, &[]), false),
            (step(deletion("web"), &group, &[]), false),
            (step(set(), &group, &[]), true),
            (step(set(), &listener, &[&tags]), true),
        ] {
            let stocked = BTreeSet::new();
            let mut queue = StepQueue::new(vec![step.clone()], &stocked);
            queue.failed.extend([group.clone(), tags.clone()]);
            while queue.next().is_some() {}
            assert_eq!((queue.unserved, serves(&step)), (expected, expected), "{step}");
        }
    }

    #[test]
    fn what_needs_a_step_that_was_kept_back_is_kept_back_too() {
        let listener = Target::Listener(ListenerRef { port: 80, protocol: "TCP" });
        let [new, old] = ["new", "old"].map(|id| Target::Group(GroupRef::Id(id.to_owned())));
        let moves = step(Own::SetInstance(Default::default()), &listener, &[&new]);
        let stocked = BTreeSet::new();
        let mut queue = StepQueue::new(vec![moves, step(deletion("old"), &old, &[&listener])], &stocked);
        queue.failed.insert(new);
        assert_eq!(queue.next(), None, "the listener still uses the old group");
    }
}
