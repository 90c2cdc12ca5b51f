//! Brings one Service into agreement with its load balancer.

use std::time::Duration;

use tokio::time::Instant;

use super::bulk::Bulk;
use super::execute::{Execution, Token, execute};
use super::memory::{Memory, Remembered, Topic};
use super::observe::{FindError, Found, complete, find, list_groups, read};
use super::report::{self, Trouble};
use super::status::{self, label};
use super::want::{Leaving, Reader, settings_of};
use super::{Context, Views};
use crate::alibaba::Fault;
use crate::alibaba::slb::Slb;
use crate::controllers::keyed::Verdict;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::lb::naming::FINALIZER;
use crate::plan::lb::observed::Observed;
use crate::plan::lb::operation::{Operation, Plan};
use crate::plan::lb::{Desired, Handling, Problem, Settings, diff, expected_ingress, handed_over, handling};

/// Time between the two sightings after which a load balancer that is gone is made again, and after which a Service whose
/// load balancer was perhaps just being made is let go.
const SECOND_SIGHTING: Duration = Duration::from_secs(10);

/// What all reconciles of one term of leadership share.
#[derive(Debug)]
pub(super) struct Reconciler {
    context: Context,
    reader: Reader,
    bulk: Bulk,
    memory: Memory,
}

/// What planning needs to know, as of now.
pub(super) fn settings(context: &Context) -> Settings {
    settings_of(&context.config.borrow(), &context.place)
}

impl Reconciler {
    pub(super) fn new(context: Context, views: Views, memory: Memory) -> Self {
        let reader = Reader::new(context.cloud.clone(), context.place.clone(), views);
        let bulk = Bulk::new(context.cloud.slb.clone());
        Self { context, reader, bulk, memory }
    }

    /// One look at one Service, with everything that follows from it.
    pub(super) async fn reconcile(&self, key: &ObjectKey) -> Verdict {
        let Some(service) = self.reader.views().services.get(key) else {
            self.memory.forget_all(key);
            return Verdict::Done;
        };
        let settings = settings(&self.context);
        let handling = handling(&service, &settings);
        if let Some(reason) = self.memory.changed(&service, handling == Handling::Ensure) {
            report::changed(self.context.cluster.events(), &service, reason);
        }
        let result = match handling {
            Handling::Ignore => {
                self.memory.forget(key);
                self.memory.hold_back(key, false);
                match handed_over(&service, &settings) {
                    Some(problem) => Err(Trouble::HandedOver(problem)),
                    None => Ok(Verdict::Done),
                }
            }
            Handling::Ensure => self.ensure(&service, &settings).await,
            Handling::Delete => self.clean(&service, &settings).await,
        };
        match result {
            Ok(verdict) => {
                self.memory.news(key, Topic::Trouble, "");
                verdict
            }
            Err(trouble) => {
                let events = self.context.cluster.events();
                report::trouble(events, &service, &trouble, |text| self.memory.news(key, Topic::Trouble, text));
                trouble.verdict()
            }
        }
    }

    async fn ensure(&self, service: &ServiceView, settings: &Settings) -> Result<Verdict, Trouble> {
        let Context { cluster, fence, cloud, .. } = &self.context;
        self.memory.adopt(&service.key);
        let drift_check = settings.service.drift_check;
        let remembered = self
            .memory
            .recall(&service.key, &service.uid)
            .filter(|remembered| drift_check.is_zero() || remembered.read_at.elapsed() < drift_check);
        let wanted =
            self.reader.wanted(service, settings, remembered.as_ref().map(|remembered| &remembered.enis)).await?;
        let desired = &wanted.desired;
        // A Service that now names another load balancer needs to be read anew.
        let remembered = remembered.filter(|remembered| is_of(&remembered.observed, desired));
        status::add_finalizer(cluster, fence, service).await?;

        let lock = self.memory.lock_of(desired.reuse.as_deref().unwrap_or(&desired.owner.default_name()));
        let _serialised = lock.lock().await;
        let (mut observed, read_at) = match &remembered {
            Some(remembered) => (remembered.observed.clone(), remembered.read_at),
            None => (self.observe(service, desired).await?, Instant::now()),
        };
        let mut plan = diff(desired, &observed);
        if remembered.is_some() && !only_backends(&plan) {
            refresh(&cloud.slb, &self.bulk, desired, &plan, &mut observed).await?;
            plan = diff(desired, &observed);
        }
        let problems = std::mem::take(&mut plan.problems);
        let notes = std::mem::take(&mut plan.notes);
        // Until the outcome is known, nothing is.
        self.memory.forget(&service.key);
        let incarnation = if observed.instance.is_none() { label(service) } else { "" };
        let token = Token::new(&settings.cluster_id, &service.uid, incarnation);
        let execution = execute(&cloud.slb, fence, plan, &mut observed, &token).await;
        // A step that was held back to stay below a quota changed nothing, and need not make everything be read again.
        if execution.stopped.as_ref().is_none_or(|(_, fault)| fault.held_back()) {
            let remembered =
                Remembered { uid: service.uid.clone(), observed: observed.clone(), read_at, enis: wanted.enis.clone() };
            self.memory.remember(&service.key, remembered);
        }
        self.memory.hold_back(&service.key, desired.blackout);
        report::notes(cluster.events(), service, desired, &notes, &execution.remarks, |text| {
            self.memory.news(&service.key, Topic::Notes, text)
        });
        self.finish(service, desired, &observed, execution, problems, remembered.is_none()).await?;
        if !desired.unresolved.is_empty() {
            return Err(Trouble::Unresolved(desired.unresolved.iter().copied().collect()));
        }
        Ok(match drift_check {
            Duration::ZERO => Verdict::Done,
            period => Verdict::Again(period.saturating_sub(read_at.elapsed())),
        })
    }

    /// Writes the outcome back to the Service and tells its user.
    async fn finish(
        &self,
        service: &ServiceView,
        desired: &Desired,
        observed: &Observed,
        execution: Execution,
        problems: Vec<Problem>,
        read_whole: bool,
    ) -> Result<(), Trouble> {
        let Context { cluster, fence, cloud, .. } = &self.context;
        if !execution.complete() {
            return Err(Trouble::Execution(execution));
        }
        if !problems.is_empty() {
            return Err(Trouble::Problems(problems));
        }
        let Some(instance) = &observed.instance else { return Ok(()) };
        let asked = self.memory.is_asked(&service.key);
        let eips = if desired.eip && (asked || read_whole || service.ingress.is_empty()) {
            Some(cloud.vpc.describe_load_balancer_eips(&instance.id).await?)
        } else {
            None
        };
        if eips.as_ref().is_some_and(Vec::is_empty) {
            report::no_elastic_address(cluster.events(), service, &instance.id);
        }
        let mut changed = status::set_label(cluster, fence, service, &instance.id).await?;
        if !desired.eip || eips.is_some() {
            let ingress = expected_ingress(desired, instance, &eips.unwrap_or_default());
            changed |= status::set_ingress(cluster, fence, service, &ingress).await?;
        }
        self.memory.answer(&service.key);
        if changed || asked || !execution.done.is_empty() {
            report::ensured(cluster.events(), service, &instance.id, &execution.done);
        }
        Ok(())
    }

    /// Reads the Service's load balancer whole. One that should be there and is not counts as absent only after two
    /// sightings that prove it.
    async fn observe(&self, service: &ServiceView, desired: &Desired) -> Result<Observed, Trouble> {
        let (slb, bulk) = (&self.context.cloud.slb, &self.bulk);
        let first = self.memory.first_look(&service.key, self.reader.views().services.len());
        match find(slb, bulk, service, &desired.owner, desired.reuse.as_deref(), first).await? {
            Found::Instance(instance) => {
                self.memory.found(&service.key);
                Ok(read(slb, bulk, *instance, |observed| desired.needs(observed)).await?)
            }
            Found::Absent { .. } if label(service).is_empty() && service.ingress.is_empty() => Ok(Observed::default()),
            Found::Absent { proven: false } => Err(Trouble::Unfindable(label(service).to_owned())),
            Found::Absent { proven: true } => {
                let left = SECOND_SIGHTING.saturating_sub(self.memory.missing_since(&service.key).elapsed());
                if !left.is_zero() {
                    return Err(Trouble::Missing { id: label(service).to_owned(), again: left });
                }
                self.memory.found(&service.key);
                report::recreating(self.context.cluster.events(), service, label(service));
                Ok(Observed::default())
            }
        }
    }

    /// Removes what was made for the Service, then lets the Service go.
    async fn clean(&self, service: &ServiceView, settings: &Settings) -> Result<Verdict, Trouble> {
        if self.memory.was_released(&service.key, &service.uid) {
            return Ok(Verdict::Done);
        }
        let Context { cluster, fence, cloud, .. } = &self.context;
        if !service.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            status::release(cluster, fence, service).await?;
            self.memory.forget_all(&service.key);
            return Ok(Verdict::Done);
        }
        let leaving = Leaving::of(service, settings);
        let lock = self.memory.lock_of(leaving.reuse().unwrap_or(&leaving.owner.default_name()));
        let _serialised = lock.lock().await;
        self.memory.forget(&service.key);
        let mut done = Vec::new();
        let mut kept = None;
        match find(&cloud.slb, &self.bulk, service, &leaving.owner, leaving.reuse(), None).await {
            Ok(Found::Instance(instance)) => {
                let mut observed = leaving.read(&cloud.slb, &self.bulk, *instance).await?;
                let mut plan = leaving.plan(&observed);
                let problems = std::mem::take(&mut plan.problems);
                let token = Token::new(&settings.cluster_id, &service.uid, "");
                let execution = execute(&cloud.slb, fence, plan, &mut observed, &token).await;
                if !execution.complete() {
                    return Err(Trouble::Execution(execution));
                }
                if !problems.is_empty() {
                    return Err(Trouble::Problems(problems));
                }
                done = execution.done;
                kept = leaving.keeps().then(|| observed.instance.map(|instance| instance.id)).flatten();
            }
            // A reused load balancer that no longer exists took everything of ours with it.
            Err(FindError::ReusedMissing(_)) | Ok(Found::Absent { proven: true }) => {}
            Ok(Found::Absent { proven: false }) => {
                // It may have been made a moment ago by a call whose answer was lost, and not be listed yet; or the
                // list may be empty because a permission is missing.
                let left = SECOND_SIGHTING.saturating_sub(self.memory.missing_since(&service.key).elapsed());
                if !left.is_zero() {
                    return Ok(Verdict::Again(left));
                }
                if !label(service).is_empty() {
                    report::left_behind(cluster.events(), service, label(service));
                }
            }
            Err(error) => return Err(error.into()),
        }
        status::release(cluster, fence, service).await?;
        self.memory.release(&service.key, &service.uid);
        if let Some(id) = kept {
            report::preserved(cluster.events(), service, &id);
        }
        report::cleaned(cluster.events(), service, &done);
        Ok(Verdict::Done)
    }
}

/// Whether what was observed is the load balancer that the Service wants now.
fn is_of(observed: &Observed, desired: &Desired) -> bool {
    match (&observed.instance, &desired.reuse) {
        (None, _) => false,
        (Some(instance), Some(id)) => instance.id == *id,
        (Some(instance), None) => desired.owner.owns_instance(instance),
    }
}

/// Whether a plan only moves backends within groups that are known: those can be written without reading again, because
/// each such write names exactly what it changes.
fn only_backends(plan: &Plan) -> bool {
    plan.steps.iter().all(|step| part_of(&step.operation) == Part::Backends)
}

/// Reads again those parts that a plan made from memory would change.
async fn refresh(slb: &Slb, bulk: &Bulk, desired: &Desired, plan: &Plan, observed: &mut Observed) -> Result<(), Fault> {
    let Some(instance) = &observed.instance else { return Ok(()) };
    let id = instance.id.clone();
    let touches = |part: Part| plan.steps.iter().any(|step| part_of(&step.operation) == part);
    if touches(Part::Instance) {
        observed.instance = Some(slb.describe_instance(&id).await?);
    }
    if touches(Part::Groups) {
        list_groups(slb, observed).await?;
    }
    if touches(Part::Listeners) {
        observed.listeners = None;
    }
    complete(slb, bulk, observed, |observed| desired.needs(observed)).await
}

/// The part of a load balancer that an operation changes, as far as it can be read by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Instance,
    Groups,
    Backends,
    Listeners,
}

const fn part_of(operation: &Operation) -> Part {
    match operation {
        Operation::CreateInstance(_)
        | Operation::DeleteInstance { .. }
        | Operation::SetName { .. }
        | Operation::SetDeleteProtection { .. }
        | Operation::SetModificationProtection { .. }
        | Operation::SetInstanceChargeType { .. }
        | Operation::SetSpec { .. }
        | Operation::SetInternetSpec { .. }
        | Operation::Tag { .. }
        | Operation::Untag { .. } => Part::Instance,
        Operation::CreateGroup { .. } | Operation::DeleteGroup { .. } => Part::Groups,
        Operation::AddBackends { .. } | Operation::RemoveBackends { .. } | Operation::SetBackends { .. } => {
            Part::Backends
        }
        Operation::CreateListener { .. }
        | Operation::SetListener { .. }
        | Operation::StartListener { .. }
        | Operation::DeleteListener { .. }
        | Operation::CreateDomainExtension { .. }
        | Operation::SetDomainExtension { .. }
        | Operation::DeleteDomainExtension { .. } => Part::Listeners,
    }
}
