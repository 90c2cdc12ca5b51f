//! From a Service to its plan, reads only: references, goal, observation, diff. `reconcile` and the command `plan` share it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::Views;
use super::account_check::AccountCheck;
use super::creations::Inventory;
use super::drift::DriftSchedule;
use super::execute::Belief;
use super::find::{Found, Unfound, find, marked};
use super::product::{Completed, Due, DueTogether, Product, Search};
use super::references::{References, Resolver};
use super::refusals::stocked;
use super::report::Halt;
use super::state::{InFlight, Known, SECOND_SIGHTING, ServiceState, States};
use super::tolerance::{fails_alone, stale_list};
use crate::alibaba::{Fault, FaultKind};
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::annotations::ID;
use crate::plan::loadbalancer::applied::{self, applied};
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::desired::{Desired, ProductModel};
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::management::ManagementLevel;
use crate::plan::loadbalancer::model::GroupRef;
use crate::plan::loadbalancer::operation::Part;
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, Owner};
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::loadbalancer::steps::Plan;

/// What obstructed a Service for this time is read again, as it can be gone; backends that move sooner follow without a read.
const OBSTRUCTED_FOR: Duration = Duration::from_secs(10);

/// One reconcile of one Service: the Service, and its cached state.
#[derive(Debug)]
pub(super) struct Case<M: CloudModel> {
    pub(super) service: Arc<ServiceView>,
    pub(super) settings: Arc<ServiceSettings>,
    pub(super) handling: Handling,
    pub(super) state: ServiceState<M>,
    /// Problems of the Service. The event names them beside any other cause that keeps the Service out of sync.
    pub(super) problems: Vec<ServiceProblem>,
}

/// The desired state of a Service, and what was read for it.
pub(super) struct Wanted<P: Product> {
    pub(super) goal: Goal<P::Model>,
    /// `None` for a Service that is deleted or no longer managed.
    pub(super) references: Option<References>,
    depth: Depth,
}

/// How much is read from the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Nothing, except what the plan would change: the cached state counts.
    Memory,
    /// Everything of the known load balancer, by ids: the user edited the Service, or the cloud obstructed it.
    Edited,
    /// List pages confirm the cached state; server groups are read if it is their turn.
    Lists { groups: bool },
    /// Everything is read.
    Whole,
}

/// The observed state of a load balancer.
#[derive(Debug)]
pub(super) struct Sighting<M: CloudModel> {
    /// Shared with the cached state as long as both are equal.
    pub(super) observed: Arc<Observed<M>>,
    /// When it was compared with the cloud.
    pub(super) read_at: Instant,
    /// When its server groups were read.
    pub(super) groups_read_at: Instant,
    pub(super) presence: Presence,
    /// Whether so much was read that the elastic addresses are read, too.
    pub(super) is_thorough: bool,
    /// Reads that failed: what they would have shown is unknown.
    pub(super) unread: Vec<Fault>,
}

/// The result of the search for the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is there.
    Present,
    /// It leaves, and nothing else carries the mark of the Service: when it is gone, there is none.
    Last,
    /// There is none; `proven` if the cloud reported that the load balancer of this Service does not exist.
    Absent {
        /// Whether absence is certain.
        proven: bool,
    },
    /// Only this one, which the Service's label names, and which does not carry its mark.
    Unmarked(String),
}

/// Everything that a reconcile of a Service will do.
pub(super) struct Prepared<P: Product> {
    pub(super) goal: Goal<P::Model>,
    pub(super) references: Option<References>,
    pub(super) sighting: Sighting<P::Model>,
    pub(super) plan: Plan<P::Model>,
    /// Whether the difference is drift: the last comparison showed none.
    pub(super) is_drift: bool,
    /// Jobs of an earlier reconcile that failed.
    pub(super) failed_jobs: Vec<(String, Fault)>,
    /// Held by a plan that overrides listeners, which another Service can override as well.
    pub(super) lock: Option<OwnedMutexGuard<()>>,
}

type Seen<P> = (Sighting<<P as Product>::Model>, Plan<<P as Product>::Model>);

/// Reads what a plan needs.
#[derive(Debug)]
pub(super) struct Preparer<P: Product> {
    pub(super) product: P,
    pub(super) views: Views,
    pub(super) states: States<P::Model>,
    pub(super) drift: DriftSchedule,
    pub(super) account: AccountCheck,
    pub(super) resolver: Resolver,
    pub(super) locks: Locks,
}

impl<P: Product> Preparer<P> {
    /// The desired state of the Service.
    pub(super) async fn wanted(&self, case: &mut Case<P::Model>) -> Result<Wanted<P>, Halt> {
        let depth = self.depth(case);
        if case.handling.removes() {
            let removal = |case: &mut Case<P::Model>| {
                Goal::<P::Model>::removal(&case.remembering(P::KIND.applied_key()), &case.settings)
            };
            let mut goal = removal(case);
            if goal.named().is_some() && self.has_own(case, goal.owner()).await? {
                // Without a label, nothing was made on the one that the annotation names.
                case.unname();
                goal = removal(case);
            }
            return Ok(Wanted { goal, references: None, depth });
        }
        let (service, settings) = (&case.remembering(P::KIND.applied_key()), &case.settings);
        let groups_due = depth == Depth::Lists { groups: true };
        let known = case.state.cached.known.as_ref().filter(|_| !groups_due).map(|known| known.interfaces.clone());
        let ungated = &mut case.state.cached.ungated;
        let found = self.resolver.look_up::<P>(service, settings, ungated, known.as_deref()).await;
        let goal = match &found {
            Ok(found) => found.desire::<P>(service, settings, &case.state),
            Err(_) => Goal::desire_alone(service, settings),
        };
        let problems = goal.desired().into_iter().flat_map(|desired| desired.problems.iter());
        case.problems = problems.map(|scoped| scoped.problem.clone()).collect();
        let mut found = found?;
        case.state.cached.unready = goal.desired().map(|desired| desired.unready.clone()).unwrap_or_default();
        self.resolver.add_lost_pods(service, goal.unresolved(), &mut found).await?;
        Ok(Wanted { goal, references: Some(found), depth })
    }

    fn depth(&self, case: &Case<P::Model>) -> Depth {
        let settings = &case.settings.service;
        match &case.state.cached.known {
            Some(known)
                if case.handling.serves()
                    && !case.state.in_flight.creations.is_read_due()
                    && known.belief == Belief::Certain =>
            {
                let may_be_gone = case.state.cached.obstructed && known.read_at.elapsed() >= OBSTRUCTED_FOR;
                if case.state.cached.edited || may_be_gone {
                    Depth::Edited
                } else if self.drift.is_due(settings, known.read_at) {
                    let (_, reads) = self.states.known();
                    let groups = self.drift.are_groups_due(settings, reads, &case.service.uid, known.groups_read_at);
                    Depth::Lists { groups }
                } else {
                    Depth::Memory
                }
            }
            _ => Depth::Whole,
        }
    }

    /// The observed state, and the steps from it to the desired state.
    pub(super) async fn prepare(&self, case: &mut Case<P::Model>, wanted: Wanted<P>) -> Result<Prepared<P>, Halt> {
        let Wanted { mut goal, references, depth } = wanted;
        let is_gone = |known: &Known<P::Model>| known.is_last && known.observed.id().is_none();
        let is_continued = case.state.cached.known.as_ref().is_some_and(|known| {
            let goes_on = known.is_recent() && known.is_last == case.handling.removes();
            let waits = self.is_under_way(case) || case.state.in_flight.tickets.are_held();
            goes_on && (is_gone(known) || waits)
        });
        let failed_jobs = self.settle(case).await?;
        // An edit during a job is compared with the cloud once no job is pending.
        let is_edit_due = case.state.cached.edited && !self.is_under_way(case);
        let depth = if is_continued && !is_edit_due { Depth::Memory } else { depth };
        // A Service that now names another load balancer is read again.
        let known = case.state.cached.known.clone();
        let known = known.filter(|known| goal.is_about(&known.observed) || (is_continued && is_gone(known)));
        let seen = match (depth, &known) {
            (Depth::Memory, Some(known)) => Some(self.recall(case, &goal, known, is_continued).await?),
            (Depth::Edited | Depth::Lists { .. }, Some(known)) => self.confirm(case, &goal, known, depth).await?,
            _ => None,
        };
        let (mut sighting, mut plan) = match seen {
            Some(seen) => seen,
            None => self.read_whole(case, &mut goal).await?,
        };
        if !plan.problems.is_empty() || sighting.is_thorough {
            let vanished = self.note_vanished(&mut goal, &sighting.observed).await;
            if !vanished.is_empty() {
                plan = self.diff(case, &goal, &sighting.observed);
                plan.note(format!(
                    "the load balancer still has listeners or server groups of Services that do not exist: {}; alicloud-ccm gc \
                     lists and removes them",
                    vanished.join(", ")
                ));
            }
        }
        let mut lock = None;
        if plan.overrides {
            // Another Service can have overridden the listener since it was read.
            lock = self.locks.lock(goal.named()).await;
            (sighting, plan) = self.read_whole(case, &mut goal).await?;
        }
        case.state.cached.edited &= !(sighting.is_thorough && sighting.unread.is_empty());
        case.state.cached.obstructed = case.is_obstructed(&plan);
        let compared = known.filter(|_| matches!(depth, Depth::Edited | Depth::Lists { .. }));
        let is_drift = compared.is_some_and(|known| {
            let before = self.diff(case, &goal, &known.observed);
            // Where a part that is wanted only now had not been read, the plan says that it is not known.
            before.steps.is_empty() && before.problems == plan.problems
        });
        case.problems.clone_from(&plan.problems);
        Ok(Prepared { goal, references, sighting, plan, is_drift, failed_jobs, lock })
    }

    /// Whether the Service asks for another load balancer than the one on which, or as which, something was made for it, and
    /// which never served it. `was_managed` says that it had the finalizer before this reconcile.
    pub(super) async fn moves(
        &self,
        case: &Case<P::Model>,
        prepared: Result<&Prepared<P>, &Halt>,
        was_managed: bool,
    ) -> Result<bool, Halt> {
        if P::KIND.serves(&case.service) {
            return Ok(false);
        }
        let Prepared { goal, plan, .. } = match prepared {
            Ok(prepared) => prepared,
            // Another client can have emptied the status.
            Err(Halt::Unfound(Unfound::Detached(_))) => return Ok(!case.state.is_published()),
            Err(_) => return Ok(false),
        };
        let is_refused = plan.is_unusable || (plan.steps.is_empty() && !plan.problems.is_empty());
        if goal.named().is_none() || is_refused {
            return Ok(false);
        }
        let names_another = P::KIND.former(&case.service).is_some();
        Ok(names_another || (was_managed && self.has_own(case, goal.owner()).await?))
    }

    /// Whether a load balancer was made for the Service, which has no label yet.
    async fn has_own(&self, case: &Case<P::Model>, owner: &Owner) -> Result<bool, Halt> {
        let is_made = case.state.in_flight.creations.made().load_balancer.is_some();
        let is_labelled = !P::KIND.label(&case.service).is_empty();
        Ok(!is_labelled && (is_made || !marked(&self.product, owner).await?.is_empty()))
    }

    /// Whether the load balancer with this id was made for the Service.
    pub(super) async fn is_own(&self, owner: &Owner, id: &str) -> Result<bool, Halt> {
        Ok(marked(&self.product, owner).await?.iter().any(|it| it.id() == Some(id)))
    }

    /// Notes whose marks on a user's load balancer are of Services that no longer exist, and gives their names.
    async fn note_vanished(&self, goal: &mut Goal<P::Model>, observed: &Observed<P::Model>) -> Vec<String> {
        let (mut vanished, mut names) = (Vec::new(), Vec::new());
        if goal.named().is_some() {
            for (key, owner) in observed.other_owners(goal.owner()) {
                if self.resolver.has_vanished(&key).await {
                    vanished.push(owner);
                    names.push(key.to_string());
                }
            }
        }
        if let Some(desired) = goal.desired_mut() {
            desired.vanished = vanished;
        }
        names
    }

    /// The steps between the two, without backends that the cloud refused.
    fn diff(&self, case: &mut Case<P::Model>, goal: &Goal<P::Model>, observed: &Observed<P::Model>) -> Plan<P::Model> {
        let mut plan = match case.handling {
            Handling::ServeOn => goal.follow(observed),
            _ => goal.diff(observed),
        };
        if plan.steps.iter().any(|step| !step.operation.adds().is_empty()) {
            let suspects = self.states.refused_servers();
            let stocked = stocked(goal.groups(), &observed.groups);
            let budget = self.states.budget.left(&case.service.uid);
            case.state.cached.refusals.sort_out(&mut plan, &suspects, &stocked, budget);
        }
        plan
    }

    /// Whether an earlier reconcile ended with a pending job.
    fn is_under_way(&self, case: &Case<P::Model>) -> bool {
        case.state.cached.known.as_ref().is_some_and(|known| P::Model::look_again(&known.observed).is_some())
    }

    /// Reads the status of pending jobs. Returns those that failed. The cached state is dropped then, and also where the cloud
    /// does not report a status.
    async fn settle(&self, case: &mut Case<P::Model>) -> Result<Vec<(String, Fault)>, Halt> {
        if !self.is_under_way(case) {
            case.state.in_flight.busy_since = None;
            return Ok(Vec::new());
        }
        let Some(mut known) = case.state.cached.known.clone() else { return Ok(Vec::new()) };
        let passed = case.state.in_flight.changed_at.map_or(Duration::ZERO, |at| at.elapsed());
        let settled = self.product.settle(Arc::make_mut(&mut known.observed), passed).await?;
        let since = case.state.in_flight.busy_since.unwrap_or_else(Instant::now);
        case.state.in_flight.busy_since = settled.is_unknown.then_some(since);
        case.state.in_flight.changed_at = Some(Instant::now());
        case.state.cached.refusals.note_failed(settled.not_added);
        if let Some(id) = settled.made_and_gone {
            case.state.cached.known = None;
            let again = case.state.in_flight.replacement.suspect(&id, SECOND_SIGHTING);
            return Err(Halt::missing(&id, again));
        }
        let under_way = P::Model::look_again(&known.observed);
        let holds = settled.failed.is_empty() && !settled.is_unknown;
        case.state.cached.known = holds.then_some(known);
        match under_way {
            // What is left to remove goes together, after all jobs.
            Some(again) if holds && case.handling.removes() => Err(Halt::under_way(again, false)),
            _ => Ok(settled.failed),
        }
    }

    /// Uses the cached state. A plan that only changes backends of known groups needs no read, because each such write names
    /// exactly what it changes. What any other plan would change is read again, unless the plan continues an earlier one that
    /// had to wait.
    async fn recall(
        &self,
        case: &mut Case<P::Model>,
        goal: &Goal<P::Model>,
        known: &Known<P::Model>,
        is_continued: bool,
    ) -> Result<Seen<P>, Halt> {
        let mut observed = known.observed.clone();
        let mut plan = self.diff(case, goal, &observed);
        if !is_continued && !plan.steps.iter().all(|step| step.operation.backends_of().is_some()) {
            let search = case.search(P::KIND, None);
            if let Err(fault) = self.product.refresh(goal, Arc::make_mut(&mut observed), &plan, &search).await {
                // The cached state may be wrong; the next reconcile reads everything.
                case.state.cached.known = None;
                return Err(fault.into());
            }
            case.state.in_flight.creations.listed(&Inventory::of(&*observed));
            plan = self.diff(case, goal, &observed);
        }
        let Known { read_at, groups_read_at, is_last, .. } = *known;
        let presence = if is_last { Presence::Last } else { Presence::Present };
        let (is_thorough, unread) = (false, Vec::new());
        Ok((Sighting { observed, read_at, groups_read_at, presence, is_thorough, unread }, plan))
    }

    /// Reads a known load balancer again: by list pages, or after an edit by its id and those of its server groups. `None` if
    /// only a whole look tells: lists can be stale, so that they prove no difference.
    async fn confirm(
        &self,
        case: &mut Case<P::Model>,
        goal: &Goal<P::Model>,
        known: &Known<P::Model>,
        depth: Depth,
    ) -> Result<Option<Seen<P>>, Halt> {
        let read_at = Instant::now();
        let all_known = || self.states.known().0;
        let id = known.observed.id().unwrap_or_default();
        let is_edited = depth == Depth::Edited;
        // The load balancer of a user is in no list by our tag.
        let due = if goal.named().is_none() && !is_edited { case.due_with(&all_known) } else { None };
        let search = case.search(P::KIND, due);
        let groups_alone = known.observed.groups_unfilled();
        let remembered = match depth {
            Depth::Lists { groups: true } => None,
            Depth::Edited => Some(&groups_alone),
            _ => Some(&*known.observed),
        };
        let looked = async {
            let mut observed = self.product.read(goal.owner(), id, due).await?;
            let mut completed = self.product.complete(goal, &mut observed, remembered, &search).await?;
            let needs_list = || {
                let plan = goal.diff(&observed);
                observed.names_unknown_group() || plan.touches(Part::Groups) || case.is_obstructed(&plan)
            };
            if is_edited && completed.shows_all_made.is_none() && needs_list() {
                completed = self.product.complete(goal, &mut observed, None, &search).await?;
            }
            Ok::<_, Fault>((observed, completed))
        };
        let (observed, completed) = match looked.await {
            // A whole look leaves out what cannot be read.
            Err(fault) if fault.kind == FaultKind::Gone || fails_alone(&fault) => return Ok(None),
            looked => looked?,
        };
        let plan = self.diff(case, goal, &observed);
        let is_proven = is_edited || plan.steps.is_empty();
        if !completed.unread.is_empty() || !goal.is_about(&observed) || !is_proven {
            return Ok(None);
        }
        let (inventory, is_thorough) = (Inventory::of(&observed), depth != Depth::Lists { groups: false });
        match completed.shows_all_made {
            Some(shows_all_made) if is_thorough => {
                case.state.in_flight.creations.read_whole(&inventory, shows_all_made);
            }
            _ if is_thorough => case.state.in_flight.creations.listed(&inventory),
            _ => {}
        }
        let groups_read_at = if is_thorough { read_at } else { known.groups_read_at };
        let observed = Arc::new(observed);
        let (presence, unread) = (Presence::Present, Vec::new());
        let sighting = Sighting { observed, read_at, groups_read_at, presence, is_thorough, unread };
        Ok(Some((sighting, plan)))
    }

    /// Finds the load balancer and reads what the diff needs.
    async fn read_whole(&self, case: &mut Case<P::Model>, goal: &mut Goal<P::Model>) -> Result<Seen<P>, Halt> {
        let read_at = Instant::now();
        let leaves = case.handling.removes();
        let is_first = !std::mem::replace(&mut case.state.in_flight.looked_for, true);
        if is_first && !leaves && P::KIND.is_managed(&case.service) {
            case.state.in_flight.creations.inherit();
        }
        let settings = case.settings.clone();
        let first_looks = || self.views.services.store.len().saturating_sub(self.states.len());
        let leaving = || self.views.keys_of(|service| P::KIND.handling(service, &settings).removes()).len();
        let due: Due<'_> = match (leaves, is_first, &case.state.cached.known) {
            (true, _, Some(_)) => case.due_with(&leaving),
            // A list of all load balancers takes longer than the few calls for this one.
            (false, true, _) if !self.states.is_ahead(&case.service.key) => case.due_with(&first_looks),
            _ => None,
        };
        let (mut observed, presence) = self.find(case, goal, due).await?;
        let Completed { shows_all_made, unread } =
            self.product.complete(goal, &mut observed, None, &case.search(P::KIND, due)).await?;
        if presence == Presence::Present {
            if case.lacks_all_parts(P::KIND, goal, &observed) {
                let parts = "the server groups and listeners by which the Service was served";
                return Err(stale_list(parts).into());
            }
            case.state.in_flight.creations.read_whole(&Inventory::of(&observed), shows_all_made.unwrap_or(true));
        } else if case.handling == Handling::Ensure && goal.named().is_none() {
            self.product.place(goal, &self.views.nodes.store.all()).await?;
        }
        let plan = self.diff(case, goal, &observed);
        let observed = Arc::new(observed);
        Ok((Sighting { observed, read_at, groups_read_at: read_at, presence, is_thorough: true, unread }, plan))
    }

    async fn find(
        &self,
        case: &Case<P::Model>,
        goal: &mut Goal<P::Model>,
        due: Due<'_>,
    ) -> Result<(Observed<P::Model>, Presence), Halt> {
        let leaves = case.handling.removes();
        let is_named = goal.named().is_some();
        // Where this process has kept the load balancer in sync, lists show what there is.
        if leaves && !is_named && due.is_some() && case.state.in_flight.creations.settles_in().is_none() {
            let last = self.product.last_marked(goal.owner(), due).await;
            if let Some(last) = last.filter(|last| last.id() == Some(P::KIND.label(&case.service))) {
                return Ok((last, Presence::Last));
            }
        }
        match find(&self.product, goal, &case.search(P::KIND, due)).await {
            Ok(Found::LoadBalancer(observed)) => Ok((observed, Presence::Present)),
            Ok(Found::Unmarked { id, observed }) => {
                // From a load balancer that is not ours, and that no annotation names any more, what carries our mark goes.
                let departure = goal.departure().ok_or_else(|| Unfound::Detached(id.clone()))?;
                departure.reuse = Some(id.clone());
                departure.override_listeners = true;
                Ok((observed, Presence::Unmarked(id)))
            }
            // A named load balancer that no longer exists took everything of ours with it. It is not created again; that it is
            // missing is a problem beside the others of the Service.
            Ok(Found::Absent { .. }) if is_named => Ok((Observed::default(), Presence::Absent { proven: leaves })),
            Ok(Found::Absent { proven }) => {
                self.check_absence(case, proven).await?;
                Ok((Observed::default(), Presence::Absent { proven }))
            }
            Ok(Found::Uncertain(Unfound::OfOtherService(_))) if leaves => {
                Ok((Observed::default(), Presence::Absent { proven: false }))
            }
            Ok(Found::Uncertain(why)) => Err(why.into()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Whether the absence of a load balancer can be believed.
    async fn check_absence(&self, case: &Case<P::Model>, proven: bool) -> Result<(), Halt> {
        let service = &case.service;
        let forbidden = if case.handling.removes() {
            self.account.forbids_release(&self.views.nodes.store.all(), P::KIND.had_one(service)).await
        } else {
            if P::KIND.had_one(service) && !proven {
                return Err(Unfound::Unfindable(P::KIND.label(service).to_owned()).into());
            }
            self.account.forbids_making(&self.views.nodes.store.all(), P::KIND.had_one(service)).await
        };
        forbidden.map_or(Ok(()), |why| Err(Unfound::Doubt(why).into()))
    }
}

impl<M: ProductModel> Case<M> {
    /// Whether neither a server group nor a listener is there of a Service that was served by the load balancer, and was not
    /// for long enough that lists which lag behind would have shown them.
    fn lacks_all_parts(&mut self, kind: LoadBalancerKind, goal: &Goal<M>, observed: &Observed<M>) -> bool {
        let owner = goal.owner();
        let makes_groups = |desired: &Desired<M>| {
            desired.manage.keeps(ManagementLevel::Backends)
                && desired.groups.values().any(|wanted| matches!(wanted.group, GroupRef::Named(_)))
        };
        let has_groups = goal.desired().is_some_and(makes_groups);
        let is_published = !self.service.ingress.is_empty() && Some(kind.label(&self.service)) == observed.id();
        let shows_none = !observed.shows_parts(owner);
        if shows_none && self.service.ingress.is_empty() {
            self.state.in_flight.creations.note_bare(true);
        }
        let lacks_all = self.handling == Handling::Ensure && has_groups && is_published && shows_none;
        self.state.in_flight.creations.are_lists_doubtful(lacks_all && observed.listeners.is_some())
    }
}

impl<M: CloudModel> Case<M> {
    /// What was made goes, and the Service begins again without finalizer and label.
    pub(super) fn start_again(&mut self) {
        self.unname();
        self.handling = Handling::Retire;
    }

    /// The Service names no load balancer: what its label or its mark leads to is meant.
    fn unname(&mut self) {
        Arc::make_mut(&mut self.service).annotations.insert(ID.full(), String::new());
    }

    /// Whether a problem is of the cloud: the Service alone does not have it.
    fn is_obstructed(&self, plan: &Plan<M>) -> bool {
        plan.problems.iter().any(|problem| !self.problems.contains(problem))
    }

    /// The load balancer is due with so many others.
    fn due_with<'a>(&self, count: &'a (dyn Fn() -> usize + Send + Sync)) -> Due<'a> {
        Some(DueTogether { count, changed_at: self.state.in_flight.changed_at })
    }

    /// The Service, with everything in its annotation that was applied.
    fn remembering(&mut self, annotation: &str) -> Arc<ServiceView> {
        let listed = applied(&self.service, annotation);
        self.state.in_flight.applied.extend(listed.iter().cloned());
        let mut service = self.service.clone();
        if listed != self.state.in_flight.applied {
            let value = applied::value(&self.state.in_flight.applied).unwrap_or_default();
            Arc::make_mut(&mut service).own_annotations.insert(annotation.to_owned(), value);
        }
        service
    }

    fn search<'a>(&'a self, kind: LoadBalancerKind, due: Due<'a>) -> Search<'a> {
        let InFlight { creations, busy_since, .. } = &self.state.in_flight;
        let busy_for = busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        let label = Some(kind.label(&self.service)).filter(|label| !label.is_empty());
        Search { label, made: creations.made(), due, busy_for }
    }
}

/// Serialises writes to load balancers that several Services share: the cloud refuses a second change of one while it carries out
/// the first.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    /// Waits for the lock of the load balancer with this id; `None` for one that is made for the Service alone.
    pub(super) async fn lock(&self, shared: Option<&str>) -> Option<OwnedMutexGuard<()>> {
        let lock = {
            let mut locks = self.0.lock();
            if locks.len() > 64 {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            locks.entry(shared?.to_owned()).or_default().clone()
        };
        Some(lock.lock_owned().await)
    }
}
