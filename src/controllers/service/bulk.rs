//! Reads for many Services at once, where many are due: after a start, after a change of the leader, when a namespace is
//! deleted. A single Service is read by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::alibaba::Fault;
use crate::alibaba::slb::{LISTED_INSTANCES, Slb};
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::{ObservedInstance, ObservedListener};
use crate::plan::service::ownership::Owner;

/// How old a list may be, see [`Look`].
const RECENT: Duration = Duration::from_secs(10);
/// Load balancers whose listeners one call gives.
const BATCH: usize = 10;

type Listeners = BTreeMap<ListenerKey, ObservedListener>;
type Waiting = (String, oneshot::Sender<Result<Listeners, Fault>>);

/// How a look at a Service comes about, and so what it may be shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// The first one of a term, with how many are still to come. A list from a moment ago will do.
    First(usize),
    /// One of so many whose load balancer is known, and is only to be compared or to go. A list from a moment ago can confirm
    /// it.
    Round(usize),
    /// Any other. It follows writes of our own, and takes no list from before it began.
    Later,
}

/// Puts reads of several Services together.
#[derive(Debug)]
pub(super) struct Bulk {
    slb: Slb,
    /// The load balancers of the cluster; whoever fills it has the others wait for it.
    listing: tokio::sync::Mutex<Option<Listing>>,
    /// Who wants an instance now.
    asking: AtomicUsize,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Listeners of all load balancers; whoever fills it has the others wait for it.
    overview: tokio::sync::Mutex<Option<Overview>>,
    /// Held by whoever reads listeners for all that wait.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Listing {
    tag: (String, String),
    began: Instant,
    /// How many were listed.
    count: usize,
    /// Those that nobody has taken yet: each is looked at once.
    instances: HashMap<String, ObservedInstance>,
    /// Those that somebody has.
    taken: HashSet<String>,
}

impl Listing {
    /// Whether it had this one, or anything, and has it no more.
    fn is_used_up(&self, id: &str) -> bool {
        self.taken.contains(id) || (self.count > 0 && self.instances.is_empty())
    }
}

#[derive(Debug)]
struct Overview {
    began: Instant,
    /// By load balancer, those that nobody has taken yet. `None` if others have so many that it is not worth it.
    listeners: Option<HashMap<String, Listeners>>,
}

/// Counts one that asks, for as long as it lives.
struct Asking<'a>(&'a AtomicUsize);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bulk {
    pub(super) fn new(slb: Slb) -> Self {
        Self {
            slb,
            listing: tokio::sync::Mutex::default(),
            asking: AtomicUsize::new(0),
            waiting: Mutex::default(),
            overview: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The load balancer with this id, as a list shows it or else as it is read by itself: only that proves that there is
    /// none.
    ///
    /// # Errors
    /// As any call.
    pub(super) async fn instance(&self, owner: &Owner, id: &str, look: Look) -> Result<ObservedInstance, Fault> {
        // Counted until it is answered: whoever comes while another is read makes it worth a list.
        self.asking.fetch_add(1, Ordering::Relaxed);
        let _asking = Asking(&self.asking);
        match self.listed(owner, id, look).await {
            Some(instance) => Ok(instance),
            None => self.slb.describe_instance(id).await,
        }
    }

    async fn listed(&self, owner: &Owner, id: &str, look: Look) -> Option<ObservedInstance> {
        let now = Instant::now();
        let (since, others) = match look {
            Look::First(others) | Look::Round(others) => (recently(now), others),
            Look::Later => (now, 0),
        };
        let tag = (owner.cluster_tag.clone(), owner.cluster_id.clone());
        let mut listing = self.listing.lock().await;
        let usable = |it: &&Listing| it.began >= since && it.tag == tag && !it.is_used_up(id);
        if listing.as_ref().filter(usable).is_none() {
            let due = self.asking.load(Ordering::Relaxed).max(others);
            let known = listing.as_ref().map_or(0, |listing| listing.count);
            let pages = known.div_ceil(LISTED_INSTANCES).max(1);
            if due <= pages {
                return None;
            }
            let began = Instant::now();
            // What is not listed is read one by one, and if nothing can be listed, everything; the fault, if it stays, shows
            // there.
            let found = self.slb.shown_by_tag(&tag.0, &tag.1).await.ok()?;
            let instances: HashMap<_, _> = found.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
            *listing = Some(Listing { tag, began, count: instances.len(), instances, taken: HashSet::new() });
        }
        let listing = listing.as_mut()?;
        let taken = take(&mut listing.instances, id)?;
        if listing.instances.is_empty() {
            listing.taken = HashSet::new();
        } else {
            listing.taken.insert(taken.id.clone());
        }
        Some(taken)
    }

    /// All listeners of a load balancer that is confirmed together with `others`, as a list of all shows them.
    ///
    /// # Errors
    /// As any call.
    pub(super) async fn listeners_of_many(&self, id: &str, others: usize) -> Result<Listeners, Fault> {
        // A list of all shows those of other clusters, too.
        let most_pages = others / BATCH;
        if most_pages > 1 {
            let mut overview = self.overview.lock().await;
            let now = Instant::now();
            if overview.as_ref().is_none_or(|overview| overview.began < recently(now)) {
                let listeners = self.slb.list_listeners(most_pages).await?;
                *overview = Some(Overview { began: now, listeners });
            }
            if let Some(listeners) = overview.as_mut().and_then(|overview| overview.listeners.as_mut()) {
                return Ok(take(listeners, id).unwrap_or_default());
            }
        }
        self.listeners(id).await
    }

    /// All listeners of a load balancer, read together with those of others that wait.
    pub(super) async fn listeners(&self, id: &str) -> Result<Listeners, Fault> {
        let (sender, mut answer) = oneshot::channel();
        self.waiting.lock().push_back((id.to_owned(), sender));
        let _turn = self.turn.lock().await;
        loop {
            match answer.try_recv() {
                Ok(listeners) => return listeners,
                Err(oneshot::error::TryRecvError::Empty) => self.read_waiting().await,
                // Together it did not work, or whoever read for all was cut off.
                Err(oneshot::error::TryRecvError::Closed) => return self.slb.describe_listeners(id).await,
            }
        }
    }

    /// Reads for the longest waiting.
    async fn read_waiting(&self) {
        let batch: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).filter(|(_, sender)| !sender.is_closed()).collect()
        };
        // Several Services can share a load balancer.
        let ids: BTreeSet<&str> = batch.iter().map(|(id, _)| id.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        let found = match ids.as_slice() {
            [] => return,
            [id] => self.slb.describe_listeners(id).await.map(|found| HashMap::from([((*id).to_owned(), found)])),
            ids => match self.slb.describe_listeners_of(ids).await {
                Ok(found) => Ok(found),
                // One of them may have spoiled it for the others: each asks for itself.
                Err(_) => return,
            },
        };
        match found {
            Ok(found) => {
                for (id, sender) in batch {
                    let listeners = found.get(&id).cloned().unwrap_or_default();
                    let _ = sender.send(Ok(listeners));
                }
            }
            Err(fault) => {
                for (_, sender) in batch {
                    let _ = sender.send(Err(fault.clone()));
                }
            }
        }
    }
}

fn recently(now: Instant) -> Instant {
    now.checked_sub(RECENT).unwrap_or(now)
}

/// Takes one out, and gives up the room when it was the last.
fn take<T>(all: &mut HashMap<String, T>, id: &str) -> Option<T> {
    let taken = all.remove(id);
    if all.is_empty() {
        *all = HashMap::new();
    }
    taken
}
