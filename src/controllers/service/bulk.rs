//! Reads for many Services at once, where many are due: after a start, after a change of the leader, when a namespace is
//! deleted. A single Service is read by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::alibaba::Fault;
use crate::alibaba::slb::{LISTED_INSTANCES, Slb};
use crate::plan::lb::model::ListenerKey;
use crate::plan::lb::naming::Owner;
use crate::plan::lb::observed::{ObservedInstance, ObservedListener};

/// How old a list may be for the first look at a Service. Later looks follow writes of our own and take none from before
/// they began.
const RECENT: Duration = Duration::from_secs(10);
/// Load balancers whose listeners one call gives.
const BATCH: usize = 10;

type Listeners = BTreeMap<ListenerKey, ObservedListener>;
type Waiting = (String, oneshot::Sender<Result<Listeners, Fault>>);

/// Puts reads of several Services together.
#[derive(Debug)]
pub(super) struct Bulk {
    slb: Slb,
    /// The load balancers of the cluster; whoever fills it has the others wait for it.
    listing: tokio::sync::Mutex<Option<Listing>>,
    /// Who wants an instance now.
    asking: AtomicUsize,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Held by whoever reads listeners for all that wait.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Listing {
    tag: (String, String),
    began: Instant,
    instances: HashMap<String, ObservedInstance>,
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
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The load balancer with this id, as a list shows it or else as it is read by itself: only that proves that there is
    /// none. `first` is, at the first look at a Service, how many are still to be looked at for the first time.
    ///
    /// # Errors
    /// As any call.
    pub(super) async fn instance(
        &self,
        owner: &Owner,
        id: &str,
        first: Option<usize>,
    ) -> Result<ObservedInstance, Fault> {
        // Counted until it is answered: whoever comes while another is read makes it worth a list.
        self.asking.fetch_add(1, Ordering::Relaxed);
        let _asking = Asking(&self.asking);
        match self.listed(owner, id, first).await {
            Some(instance) => Ok(instance),
            None => self.slb.describe_instance(id).await,
        }
    }

    async fn listed(&self, owner: &Owner, id: &str, first: Option<usize>) -> Option<ObservedInstance> {
        let now = Instant::now();
        let since = first.map_or(now, |_| now.checked_sub(RECENT).unwrap_or(now));
        let tag = (owner.cluster_tag.clone(), owner.cluster_id.clone());
        let mut listing = self.listing.lock().await;
        let usable = listing.as_ref().filter(|listing| listing.began >= since && listing.tag == tag);
        if usable.is_none() {
            let due = self.asking.load(Ordering::Relaxed).max(first.unwrap_or_default());
            let known = listing.as_ref().map_or(0, |listing| listing.instances.len());
            let pages = known.div_ceil(LISTED_INSTANCES).max(1);
            if due <= pages {
                return None;
            }
            let began = Instant::now();
            // What cannot be listed is read one by one; the fault, if it stays, shows there.
            let found = self.slb.find_by_tag(&tag.0, &tag.1).await.ok()?;
            let instances = found.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
            *listing = Some(Listing { tag, began, instances });
        }
        listing.as_ref()?.instances.get(id).cloned()
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
