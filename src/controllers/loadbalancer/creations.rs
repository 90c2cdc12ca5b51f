//! The recent creations of one Service, some of them with an uncertain outcome.
//!
//! Only the creation of a load balancer has a token by which the cloud makes one object for several calls. A stale list could
//! make this process create any other object twice, and a replica that was killed could leave one behind. So:
//!
//! - If a list lacks an object that this process made recently, the process reads the object by its id ([`Creations::made`]).
//! - If the answer to a creation was lost, this process repeats the creation only after [`WAIT`] ([`Creations::first_to_wait`]).
//! - If more objects may exist than this process knows, it reads the load balancer whole once more after [`SETTLED`], when most
//!   lists show them, and a last time after [`LISTS_CATCH_UP`] ([`Creations::read_again_in`]).

use std::collections::BTreeSet;
use std::time::Duration;

use litemap::LiteMap;
use tokio::time::Instant;

use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::operation::{Operation, OperationModel};
use crate::plan::loadbalancer::steps::Step;

/// How long a creation with an unknown outcome is waited for.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// After this time lists mostly show whatever was made.
pub(super) const SETTLED: Duration = Duration::from_secs(30);
/// After this time, whatever was made by a call with a lost answer is in every list.
pub(super) const LISTS_CATCH_UP: Duration = Duration::from_secs(120);
/// How long what was made is asked for by its id where it is not listed.
const KEPT: Duration = Duration::from_secs(300);
/// After this time, lists that show nothing of a Service that was served are believed.
const EMPTY_LISTS: Duration = Duration::from_secs(600);

/// What a load balancer consists of, as far as it can be made twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// Id of the load balancer; empty if there is none.
    pub(super) load_balancer: String,
    /// Names of server groups, by id.
    pub(super) groups: LiteMap<String, String>,
    /// Listeners, as their plan prints them; `None` if they were not read.
    pub(super) listeners: Option<BTreeSet<String>>,
}

impl Inventory {
    /// Of what was observed.
    pub(super) fn of(observed: &Observed<impl CloudModel>) -> Self {
        Self {
            load_balancer: observed.id().unwrap_or_default().to_owned(),
            groups: observed.named_parts().map(|(id, name)| (id.to_owned(), name.to_owned())).collect(),
            listeners: observed.listeners.as_ref().map(|all| all.keys().map(ToString::to_string).collect()),
        }
    }
}

/// What was made a short while ago, and may not be listed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Id of the load balancer.
    pub(crate) load_balancer: Option<String>,
    /// Server groups and security groups.
    pub(crate) groups: Vec<MadeGroup>,
}

/// A server group or security group that was made a short while ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MadeGroup {
    pub(super) load_balancer: String,
    pub(crate) id: String,
    pub(crate) name: String,
}

/// Recent creations of one Service.
#[derive(Clone, Debug, Default)]
pub(super) struct Creations {
    load_balancer: Option<(String, Instant)>,
    groups: Vec<(MadeGroup, Instant)>,
    /// With the ids of their load balancers.
    listeners: LiteMap<(String, String), Instant>,
    /// Names of what a call with a lost answer may have made.
    uncertain: LiteMap<String, Instant>,
    /// When the work of another replica was taken over, which may have been killed a moment before.
    inherited: Option<Instant>,
    /// While more may exist than is known.
    in_doubt: Option<Doubt>,
    /// Since when lists show nothing of the Service, although it was served.
    empty_since: Option<Instant>,
    /// Whether this process knows that the Service has no server group and no listener: none was made yet, or it removed the last.
    is_bare: bool,
}

/// More may exist than is known.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    /// Whether a whole look after [`SETTLED`] showed everything that is known.
    looked: bool,
}

impl Doubt {
    fn new() -> Option<Self> {
        Some(Self { since: Instant::now(), looked: false })
    }

    /// In what time the next whole look is due.
    fn next_look(self) -> Duration {
        let after = if self.looked { LISTS_CATCH_UP } else { SETTLED };
        after.saturating_sub(self.since.elapsed())
    }
}

impl Creations {
    /// Another replica has worked for the Service before, and how far it came is unknown.
    pub(super) fn inherit(&mut self) {
        self.inherited = Some(Instant::now());
    }

    /// What was made, and lists may not show yet.
    pub(super) fn made(&self) -> Made {
        Made {
            load_balancer: self.load_balancer.as_ref().filter(|(_, at)| is_recent(*at)).map(|(id, _)| id.clone()),
            groups: self.groups.iter().filter(|(_, at)| is_recent(*at)).map(|(group, _)| group.clone()).collect(),
        }
    }

    /// The first of these steps that would make what was perhaps made already, and how long it has to wait.
    pub(super) fn first_to_wait<M: OperationModel>(&self, steps: &[Step<M>]) -> Option<(usize, Duration)> {
        steps.iter().enumerate().find_map(|(index, step)| {
            let left = WAIT.saturating_sub(self.uncertain.get(step.operation.makes()?)?.elapsed());
            (!left.is_zero()).then_some((index, left))
        })
    }

    /// Some lists were read anew. One that lacks what was made is stale, and may lack more.
    pub(super) fn listed(&mut self, shown: &Inventory) {
        self.expire();
        let Some(listeners) = &shown.listeners else { return };
        let lacks = |((id, listener), at): (&(String, String), &Instant)| {
            *id == shown.load_balancer && is_recent(*at) && !listeners.contains(listener)
        };
        if self.listeners.iter().any(lacks) {
            self.in_doubt = Doubt::new();
        }
    }

    /// The load balancer was read whole, its groups by a list that was `complete` if it had every one that is known here.
    pub(super) fn read_whole(&mut self, shown: &Inventory, complete: bool) {
        // What is gone was deleted outside.
        self.groups
            .retain(|(group, _)| group.load_balancer != shown.load_balancer || shown.groups.contains_key(&group.id));
        self.uncertain.retain(|name, _| !shown.groups.values().any(|shown| shown == name));
        match self.in_doubt {
            Some(_) if !complete => self.in_doubt = Doubt::new(),
            Some(doubt) if doubt.next_look().is_zero() => {
                self.in_doubt = (!doubt.looked).then_some(Doubt { looked: true, ..doubt });
                self.uncertain.clear();
            }
            _ => {}
        }
        self.listed(shown);
    }

    /// Notes whether a run left the Service without a server group and a listener.
    pub(super) fn note_bare(&mut self, is_bare: bool) {
        self.is_bare = is_bare;
    }

    /// Whether lists that lack all parts of a Service which was served can still be wrong.
    pub(super) fn are_lists_doubtful(&mut self, lack_all: bool) -> bool {
        let is_surprise = lack_all && !self.is_bare;
        self.empty_since = is_surprise.then(|| self.empty_since.unwrap_or_else(Instant::now));
        self.empty_since.is_some_and(|since| since.elapsed() < EMPTY_LISTS)
    }

    /// Notes what a run made: the difference between `before` and `after`, or all of it unless the run was `certain`: then it is
    /// read anew, perhaps from a list that does not show yet what the replica before this one made. `uncertain` are operations
    /// whose outcome is unknown.
    pub(super) fn note<M: OperationModel>(
        &mut self,
        before: &Inventory,
        after: &Inventory,
        (uncertain, certain): (&[Operation<M>], bool),
    ) {
        let now = Instant::now();
        let listeners = |inventory: &Inventory| inventory.listeners.clone().unwrap_or_default();
        let (listeners_before, listeners) = (listeners(before), listeners(after));
        self.expire();
        self.listeners.retain(|(id, listener), _| *id == after.load_balancer && listeners.contains(listener));
        self.groups
            .retain(|(group, _)| group.load_balancer == after.load_balancer && after.groups.contains_key(&group.id));
        if before.load_balancer.is_empty() && !after.load_balancer.is_empty() {
            self.load_balancer = Some((after.load_balancer.clone(), now));
        }
        let inherited = self.inherited.is_some_and(|at| at.elapsed() < SETTLED);
        let new_listener = listeners.difference(&listeners_before).next();
        // What a killed replica made a moment ago may be missing from every list that this run read.
        let mut in_doubt = uncertain.iter().any(Operation::creates) || (inherited && new_listener.is_some());
        let seen = listeners.iter().filter(|it| !certain || !listeners_before.contains(*it));
        self.listeners.extend(seen.map(|it| ((after.load_balancer.clone(), it.clone()), now)));
        for (id, name) in &after.groups {
            let is_new = !before.groups.contains_key(id);
            in_doubt |= is_new && (inherited || self.uncertain.contains_key(name));
            if is_new || (!certain && !self.groups.iter().any(|(group, _)| group.id == *id)) {
                let load_balancer = after.load_balancer.clone();
                self.groups.push((MadeGroup { load_balancer, id: id.clone(), name: name.clone() }, now));
            }
        }
        self.groups.shrink_to_fit();
        if in_doubt {
            self.in_doubt = Doubt::new();
        }
        self.uncertain.extend(uncertain.iter().filter_map(|it| Some((it.makes()?.to_owned(), now))));
    }

    /// Drops what every list shows by now.
    fn expire(&mut self) {
        self.load_balancer.take_if(|(_, at)| !is_recent(*at));
        self.listeners.retain(|_, at| is_recent(*at));
        self.groups.retain(|(_, at)| is_recent(*at));
    }

    /// Whether the load balancer has to be read whole now.
    pub(super) fn is_read_due(&self) -> bool {
        self.read_again_in().is_some_and(|left| left.is_zero())
    }

    /// In what time the load balancer has to be read whole once more; `None` if there is no need.
    pub(super) fn read_again_in(&self) -> Option<Duration> {
        self.in_doubt.map(Doubt::next_look)
    }

    /// In what time what was perhaps made is in the lists of a load balancer that stays.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        self.in_doubt.filter(|doubt| !doubt.looked).map(Doubt::next_look)
    }
}

fn is_recent(made_at: Instant) -> bool {
    made_at.elapsed() < KEPT
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::desired::ClbModel;
    use crate::plan::clb::operation::{Operation as Write, Own};
    use crate::plan::loadbalancer::steps::Target;

    fn balancer(groups: &[(&str, &str)]) -> Inventory {
        let groups = groups.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect();
        Inventory { load_balancer: "lb-1".to_owned(), groups, listeners: None }
    }

    fn creation(name: &str) -> Write {
        Write::Own(Own::CreateGroup { name: name.to_owned(), backends: Vec::new() })
    }

    fn step(name: &str) -> Step<ClbModel> {
        Step {
            operation: creation(name),
            target: Target::LoadBalancer,
            needs: Vec::new(),
            reason: String::new(),
            destroys: false,
        }
    }

    const CERTAIN: (&[Write], bool) = (&[], true);

    #[tokio::test(start_paused = true)]
    async fn what_was_made_is_known_for_a_while_and_until_it_is_deleted() {
        let mut creations = Creations::default();
        let made = balancer(&[("rsp-1", "a"), ("rsp-2", "b")]);
        creations.note(&Inventory::default(), &made, CERTAIN);
        assert_eq!(creations.made().load_balancer.as_deref(), Some("lb-1"));
        assert_eq!(creations.made().groups.len(), 2);
        assert_eq!(creations.read_again_in(), None, "nothing is unknown");
        creations.note(&made, &balancer(&[("rsp-1", "a")]), CERTAIN);
        assert_eq!(creations.made().groups.iter().map(|group| &group.id).collect::<Vec<_>>(), ["rsp-1"]);
        tokio::time::advance(KEPT).await;
        assert_eq!(creations.made(), Made::default());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_seen_before_an_uncertain_run_is_asked_for_although_a_list_lacks_it() {
        let seen = balancer(&[("rsp-1", "a")]);
        let asked = |certain| {
            let mut creations = Creations::default();
            creations.note(&seen, &seen, (&[] as &[Write], certain));
            creations.made().groups.len()
        };
        assert_eq!((asked(true), asked(false)), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_perhaps_made_is_waited_for_and_looked_for_once_more() {
        let mut creations = Creations::default();
        let before = balancer(&[("rsp-1", "a")]);
        let steps = [step("a"), step("b")];
        assert_eq!(creations.first_to_wait(&steps), None);
        creations.note(&before, &before, (&[creation("b")], true));
        assert_eq!(creations.first_to_wait(&steps), Some((1, WAIT)));
        tokio::time::advance(WAIT).await;
        creations.read_whole(&before, true);
        assert_eq!(creations.first_to_wait(&steps), None, "no list shows it");
        let after = balancer(&[("rsp-1", "a"), ("rsp-3", "b")]);
        creations.note(&before, &after, CERTAIN);
        assert_eq!(creations.read_again_in(), Some(SETTLED), "it may show up beside the new one");
        tokio::time::advance(SETTLED).await;
        creations.read_whole(&after, false);
        assert_eq!(creations.read_again_in(), Some(SETTLED), "a stale list proves nothing");
        tokio::time::advance(SETTLED).await;
        assert!(creations.is_read_due());
        creations.read_whole(&after, true);
        let last = LISTS_CATCH_UP - SETTLED;
        assert_eq!((creations.settles_in(), creations.read_again_in()), (None, Some(last)), "some lists are later");
        tokio::time::advance(last).await;
        creations.read_whole(&after, true);
        assert_eq!(creations.read_again_in(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_shows_up_was_made_and_need_not_be_waited_for() {
        let mut creations = Creations::default();
        let before = balancer(&[]);
        creations.note(&before, &before, (&[creation("b")], true));
        creations.read_whole(&balancer(&[("rsp-2", "b")]), true);
        assert_eq!(creations.first_to_wait(&[step("b")]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_another_replica_only_what_is_made_soon_is_doubtful() {
        let (empty, full) = (balancer(&[]), balancer(&[("rsp-1", "a")]));
        let listening = Inventory { listeners: Some(["80/tcp".to_owned()].into()), ..full.clone() };
        for made in [&full, &listening] {
            let before = if made.listeners.is_some() { &full } else { &empty };
            let mut creations = Creations::default();
            creations.inherit();
            creations.note(made, made, CERTAIN);
            assert_eq!(creations.read_again_in(), None, "everything was there");
            creations.note(before, made, CERTAIN);
            assert_eq!(creations.read_again_in(), Some(SETTLED));
            let mut creations = Creations::default();
            creations.inherit();
            tokio::time::advance(SETTLED).await;
            creations.note(before, made, CERTAIN);
            assert_eq!(creations.read_again_in(), None, "lists show what the other one made");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_lacks_a_listener_of_ours_is_not_believed() {
        let mut creations = Creations::default();
        let with = |listeners: &[&str]| Inventory {
            listeners: Some(listeners.iter().map(|listener| (*listener).to_owned()).collect()),
            ..balancer(&[])
        };
        let (without, with) = (with(&[]), with(&["443/tcp"]));
        creations.note(&without, &with, CERTAIN);
        creations.listed(&with);
        creations.listed(&Inventory { load_balancer: "lb-2".to_owned(), ..without.clone() });
        assert_eq!(creations.read_again_in(), None, "it is not expected on another load balancer");
        creations.listed(&without);
        assert_eq!(creations.read_again_in(), Some(SETTLED));
        creations.note(&without, &without, CERTAIN);
        tokio::time::advance(SETTLED).await;
        creations.read_whole(&without, true);
        tokio::time::advance(LISTS_CATCH_UP).await;
        creations.read_whole(&without, true);
        assert_eq!(creations.read_again_in(), None, "it was deleted outside");
        let listener =
            crate::plan::clb::model::ListenerKey { port: 443, protocol: crate::plan::clb::model::Protocol::Tcp };
        creations.note(&without, &without, (&[Write::StartListener { listener }], true));
        assert_eq!(creations.read_again_in(), None, "nothing was to be made");
    }
}
