//! What was made a short while ago, or perhaps was, and may not be listed yet.
//!
//! Only the creation of a load balancer has a token by which the cloud makes it once. Everything else could be made twice by
//! whoever believes a list that is late, or be left by whoever does not want it any more. So a group that we made is asked for
//! by its id where a list does not show it; one that was perhaps made, by a call whose answer was lost, is made again only after
//! a wait; and where more may have been made than is shown, by such a call, by a copy that was killed, or by us where a list
//! proves to be late, the load balancer is read whole once more, when every list must show it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Operation, Step};
use crate::plan::inputs::ObjectKey;
use crate::plan::service::steps::Operation as _;

/// How long what was perhaps made is waited for.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// After this time lists show whatever was made; then the load balancer is read once more.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long what we made is asked for by its id, if it is not listed.
const KEPT: Duration = Duration::from_secs(300);

/// By Service.
#[derive(Debug, Default)]
pub(super) struct Creations(Mutex<HashMap<ObjectKey, Recent>>);

#[derive(Debug, Default)]
struct Recent {
    /// The load balancer that was made.
    instance: Option<(String, Instant)>,
    groups: Vec<(MadeGroup, Instant)>,
    listeners: BTreeMap<ListenerKey, Instant>,
    /// Names of what may have been made by a call whose answer was lost.
    perhaps: BTreeMap<String, Instant>,
    /// Whether another copy may have been killed while it worked for the Service.
    inherited: bool,
    /// Since when there may be more than we know.
    doubt: Option<Instant>,
}

/// What was made for a Service a short while ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    /// The load balancer.
    pub(super) instance: Option<String>,
    pub(super) groups: Vec<MadeGroup>,
}

/// A server group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MadeGroup {
    pub(super) load_balancer: String,
    pub(super) id: String,
    pub(super) name: String,
}

impl Recent {
    fn says_nothing(&self) -> bool {
        let Self { instance, groups, listeners, perhaps, inherited, doubt } = self;
        instance.is_none()
            && groups.is_empty()
            && listeners.is_empty()
            && perhaps.is_empty()
            && !inherited
            && doubt.is_none()
    }
}

impl Creations {
    /// Everything of this Service is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }

    /// Another copy has worked for the Service before, and how far it came is unknown.
    pub(super) fn inherit(&self, key: &ObjectKey) {
        self.0.lock().entry(key.clone()).or_default().inherited = true;
    }

    /// What we made, and lists may not show yet.
    pub(super) fn made(&self, key: &ObjectKey) -> Made {
        self.with(key, |recent| Made {
            instance: recent.instance.as_ref().map(|(id, _)| id.clone()),
            groups: recent.groups.iter().map(|(group, _)| group.clone()).collect(),
        })
        .unwrap_or_default()
    }

    /// The first of these steps that would make what was perhaps made already, and how long it has to wait.
    pub(super) fn first_to_wait(&self, key: &ObjectKey, steps: &[Step]) -> Option<(usize, Duration)> {
        let left = |perhaps: &BTreeMap<String, Instant>, step: &Step| {
            let left = WAIT.saturating_sub(perhaps.get(step.operation.makes()?)?.elapsed());
            (!left.is_zero()).then_some(left)
        };
        let first = |recent: &mut Recent| {
            steps.iter().enumerate().find_map(|(index, step)| Some((index, left(&recent.perhaps, step)?)))
        };
        self.with(key, first).flatten()
    }

    /// Some lists were read anew. One that lacks what we made is late, and may lack more.
    pub(super) fn listed(&self, key: &ObjectKey, observed: &Observed) {
        let Some(shown) = &observed.listeners else { return };
        self.with(key, |recent| {
            if recent.listeners.keys().any(|listener| !shown.contains_key(listener)) {
                recent.doubt = Some(Instant::now());
            }
        });
    }

    /// The load balancer was read whole, its groups by a list that was `complete` if it had every one of which we knew.
    pub(super) fn read(&self, key: &ObjectKey, observed: &Observed, complete: bool) {
        let lb = observed.instance.as_ref().map(|instance| instance.id.as_str()).unwrap_or_default();
        self.with(key, |recent| {
            // Somebody deleted it.
            recent.groups.retain(|(group, _)| group.load_balancer != lb || observed.groups.contains_key(&group.id));
            recent.perhaps.retain(|name, _| !observed.groups.values().any(|group| group.name == *name));
            match recent.doubt {
                Some(_) if !complete => recent.doubt = Some(Instant::now()),
                Some(since) if since.elapsed() >= LOOK_AGAIN => {
                    recent.doubt = None;
                    recent.perhaps.clear();
                }
                _ => {}
            }
        });
        self.listed(key, observed);
    }

    /// Notes what came of a run: before it there were `before`, and then there is `observed`. `perhaps` is the step at which
    /// it ended, if its fate is unknown; `complete` if every step was done.
    pub(super) fn note(
        &self,
        key: &ObjectKey,
        before: &Before,
        observed: &Observed,
        perhaps: Option<&Operation>,
        complete: bool,
    ) {
        let now = Instant::now();
        let mut services = self.0.lock();
        let recent = services.entry(key.clone()).or_default();
        let lb = observed.instance.as_ref().map(|instance| instance.id.clone());
        if let Some(id) = &lb
            && !before.instance
        {
            recent.instance = Some((id.clone(), now));
        }
        let lb = lb.unwrap_or_default();
        // What we deleted need not be asked for.
        recent.groups.retain(|(group, _)| group.load_balancer == lb && observed.groups.contains_key(&group.id));
        let new = observed.groups.iter().filter(|(id, _)| !before.groups.contains(*id));
        for (id, group) in new {
            let made = MadeGroup { load_balancer: lb.clone(), id: id.clone(), name: group.name.clone() };
            if recent.inherited || recent.perhaps.contains_key(&group.name) {
                recent.doubt = Some(now);
            }
            recent.groups.push((made, now));
        }
        let listeners = || observed.listeners.iter().flatten().map(|(listener, _)| *listener);
        recent.listeners.retain(|made, _| listeners().any(|listener| listener == *made));
        let new = listeners().filter(|listener| !before.listeners.contains(listener));
        recent.listeners.extend(new.map(|listener| (listener, now)));
        if perhaps.is_some_and(Operation::creates) {
            recent.doubt = Some(now);
        }
        if let Some(name) = perhaps.and_then(Operation::makes) {
            recent.perhaps.insert(name.to_owned(), now);
        }
        if complete {
            recent.inherited = false;
        }
        if recent.says_nothing() {
            services.remove(key);
        }
    }

    /// When the load balancer has to be read once more; `None` if there is no need.
    pub(super) fn look_again(&self, key: &ObjectKey) -> Option<Duration> {
        self.with(key, |recent| Some(LOOK_AGAIN.saturating_sub(recent.doubt?.elapsed()))).flatten()
    }

    /// Without what is too old to matter.
    fn with<T>(&self, key: &ObjectKey, read: impl FnOnce(&mut Recent) -> T) -> Option<T> {
        let mut services = self.0.lock();
        let recent = services.get_mut(key)?;
        recent.instance.take_if(|(_, at)| at.elapsed() >= KEPT);
        recent.groups.retain(|(_, at)| at.elapsed() < KEPT);
        recent.listeners.retain(|_, at| at.elapsed() < KEPT);
        let answer = read(recent);
        if recent.says_nothing() {
            services.remove(key);
        }
        Some(answer)
    }
}

/// What there was before a run.
#[derive(Debug)]
pub(super) struct Before {
    instance: bool,
    groups: BTreeSet<String>,
    listeners: BTreeSet<ListenerKey>,
}

impl Before {
    pub(super) fn of(observed: &Observed) -> Self {
        Self {
            instance: observed.instance.is_some(),
            groups: observed.groups.keys().cloned().collect(),
            listeners: observed.listeners.iter().flatten().map(|(listener, _)| *listener).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::model::Protocol;
    use crate::plan::clb::observed::{ObservedInstance, ObservedListener};
    use crate::plan::service::model::ObservedGroup;
    use crate::plan::service::steps::Target;

    fn balancer(groups: &[(&str, &str)]) -> Observed {
        let group = |name: &str| ObservedGroup { name: name.to_owned(), backends: None };
        Observed {
            instance: Some(ObservedInstance { id: "lb-1".to_owned(), ..ObservedInstance::default() }),
            groups: groups.iter().map(|(id, name)| ((*id).to_owned(), group(name))).collect(),
            ..Observed::default()
        }
    }

    fn creation(name: &str) -> Operation {
        Operation::CreateGroup { name: name.to_owned(), backends: Vec::new() }
    }

    fn step(name: &str) -> Step {
        Step {
            operation: creation(name),
            target: Target::LoadBalancer,
            needs: Vec::new(),
            reason: String::new(),
            destroys: false,
        }
    }

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "web")
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_made_is_known_for_a_while_and_until_it_is_deleted() {
        let creations = Creations::default();
        let made = balancer(&[("rsp-1", "a"), ("rsp-2", "b")]);
        creations.note(&key(), &Before::of(&Observed::default()), &made, None, true);
        assert_eq!(creations.made(&key()).instance.as_deref(), Some("lb-1"));
        assert_eq!(creations.made(&key()).groups.len(), 2);
        assert_eq!(creations.look_again(&key()), None, "nothing is unknown");
        creations.note(&key(), &Before::of(&made), &balancer(&[("rsp-1", "a")]), None, true);
        assert_eq!(creations.made(&key()).groups.iter().map(|group| &group.id).collect::<Vec<_>>(), ["rsp-1"]);
        tokio::time::advance(KEPT).await;
        assert_eq!(creations.made(&key()), Made::default());
        assert!(creations.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_perhaps_made_is_waited_for_and_looked_for_once_more() {
        let creations = Creations::default();
        let before = balancer(&[("rsp-1", "a")]);
        let steps = [step("a"), step("b")];
        assert_eq!(creations.first_to_wait(&key(), &steps), None);
        creations.note(&key(), &Before::of(&before), &before, Some(&creation("b")), false);
        assert_eq!(creations.first_to_wait(&key(), &steps), Some((1, WAIT)));
        tokio::time::advance(WAIT).await;
        creations.read(&key(), &before, true);
        assert_eq!(creations.first_to_wait(&key(), &steps), None, "no list shows it");
        let after = balancer(&[("rsp-1", "a"), ("rsp-3", "b")]);
        creations.note(&key(), &Before::of(&before), &after, None, true);
        assert_eq!(creations.look_again(&key()), Some(LOOK_AGAIN), "it may show up beside the new one");
        tokio::time::advance(LOOK_AGAIN).await;
        creations.read(&key(), &after, false);
        assert_eq!(creations.look_again(&key()), Some(LOOK_AGAIN), "a list that is late proves nothing");
        tokio::time::advance(LOOK_AGAIN).await;
        creations.read(&key(), &after, true);
        assert_eq!(creations.look_again(&key()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_shows_up_was_made_and_need_not_be_waited_for() {
        let creations = Creations::default();
        let before = balancer(&[]);
        creations.note(&key(), &Before::of(&before), &before, Some(&creation("b")), false);
        creations.read(&key(), &balancer(&[("rsp-2", "b")]), true);
        assert_eq!(creations.first_to_wait(&key(), &[step("b")]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_another_copy_only_what_is_made_is_doubtful() {
        let creations = Creations::default();
        let (empty, full) = (balancer(&[]), balancer(&[("rsp-1", "a")]));
        creations.inherit(&key());
        creations.note(&key(), &Before::of(&full), &full, None, true);
        assert_eq!(creations.look_again(&key()), None, "everything was there");
        creations.inherit(&key());
        creations.note(&key(), &Before::of(&empty), &full, None, false);
        assert_eq!(creations.look_again(&key()), Some(LOOK_AGAIN));
        creations.forget(&key());
        assert_eq!(creations.look_again(&key()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_lacks_a_listener_of_ours_is_not_believed() {
        let creations = Creations::default();
        let listener = ListenerKey { port: 443, protocol: Protocol::Tcp };
        let with = |listeners: &[ListenerKey]| Observed {
            listeners: Some(listeners.iter().map(|key| (*key, ObservedListener::default())).collect()),
            ..balancer(&[])
        };
        let (without, with) = (with(&[]), with(&[listener]));
        creations.note(&key(), &Before::of(&without), &with, None, true);
        creations.listed(&key(), &with);
        assert_eq!(creations.look_again(&key()), None);
        creations.listed(&key(), &without);
        assert_eq!(creations.look_again(&key()), Some(LOOK_AGAIN));
        creations.note(&key(), &Before::of(&without), &without, None, true);
        tokio::time::advance(LOOK_AGAIN).await;
        creations.read(&key(), &without, true);
        assert_eq!(creations.look_again(&key()), None, "somebody deleted it");
        creations.note(&key(), &Before::of(&without), &without, Some(&Operation::StartListener { listener }), false);
        assert_eq!(creations.look_again(&key()), None, "nothing was to be made");
    }
}
