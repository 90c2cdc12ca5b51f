//! List pages before single reads, where many load balancers are due at once: after a start, at a drift check, when a
//! namespace is deleted.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::alibaba::Fault;
use crate::alibaba::slb::{LISTED_INSTANCES, Slb};
use crate::controllers::service::product::Due;
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::{ObservedInstance, ObservedListener};
use crate::plan::service::ownership::Owner;

/// How old a list may be that answers for a Service.
const RECENT: Duration = Duration::from_secs(10);
/// A list of all listeners is worth one page for so many load balancers that are due: it shows those of others, too.
const DUE_PER_PAGE: usize = 10;

type Listeners = BTreeMap<ListenerKey, ObservedListener>;

/// The latest list pages. What they show of a load balancer is used once: the next read of it follows writes of our own.
#[derive(Debug)]
pub(super) struct Pages {
    slb: Slb,
    /// Locked while a list is made, so that all that need it wait for one.
    instances: Mutex<List<ObservedInstance>>,
    listeners: Mutex<List<Listeners>>,
}

#[derive(Debug)]
struct List<T> {
    began: Option<Instant>,
    /// How many calls it took.
    pages: usize,
    /// By load balancer.
    unused: HashMap<String, T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { began: None, pages: 0, unused: HashMap::new() }
    }
}

impl<T> List<T> {
    /// Whether the list can still answer; one that is used up cannot.
    fn is_recent(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() < RECENT)
    }

    fn take(&mut self, id: &str) -> Option<T> {
        let taken = self.unused.remove(id);
        if taken.is_some() && self.unused.is_empty() {
            *self = Self { pages: self.pages, ..Self::default() };
        }
        taken
    }
}

impl Pages {
    pub(super) fn new(slb: Slb) -> Self {
        Self { slb, instances: Mutex::default(), listeners: Mutex::default() }
    }

    /// The load balancer with this id, as a list shows it or else as it is read by itself: only that proves that there is
    /// none. Without `due`, it is read by itself.
    ///
    /// # Errors
    /// As any call.
    pub(super) async fn instance(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<ObservedInstance, Fault> {
        match self.listed_instance(owner, id, due).await {
            Some(listed) => Ok(listed),
            None => self.slb.describe_instance(id).await,
        }
    }

    async fn listed_instance(&self, owner: &Owner, id: &str, due: Due<'_>) -> Option<ObservedInstance> {
        let due = due?;
        let mut list = self.instances.lock().await;
        if !list.is_recent() {
            if due() <= list.pages.max(1) {
                return None;
            }
            let began = Some(Instant::now());
            // What is not listed is read by itself; if nothing can be listed, everything is, and the fault shows there.
            let found = self.slb.shown_by_tag(&owner.cluster_tag, &owner.cluster_id).await.ok()?;
            let pages = found.len().div_ceil(LISTED_INSTANCES);
            let unused = found.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
            *list = List { began, pages, unused };
        }
        list.take(id)
    }

    /// All listeners of a load balancer, as a list of all listeners shows them or else as they are read by themselves.
    ///
    /// # Errors
    /// As any call.
    pub(super) async fn listeners(&self, id: &str, due: Due<'_>) -> Result<Listeners, Fault> {
        match self.listed_listeners(id, due).await {
            Some(listed) => Ok(listed),
            None => self.slb.describe_listeners(id).await,
        }
    }

    async fn listed_listeners(&self, id: &str, due: Due<'_>) -> Option<Listeners> {
        let due = due?;
        let mut list = self.listeners.lock().await;
        if !list.is_recent() {
            let pages = due() / DUE_PER_PAGE;
            let began = Some(Instant::now());
            // If there are too many, or they cannot be listed, nothing is listed until it is worth another try.
            let found = if pages == 0 { None } else { self.slb.list_listeners(pages).await.ok().flatten() };
            *list = List { began, pages, unused: found.unwrap_or_default() };
        }
        list.take(id)
    }
}
