//! What controllers leave in the cloud, as `gc` finds and deletes it, also while they are switched off.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::alibaba::{CloudClient, Fault};
use crate::cluster::Store;
use crate::fence::{Fence, Permit};
use crate::plan::inputs::ObjectKey;
use crate::plan::provenance::Unclaimed;
use crate::telemetry::alarms::named;

/// The longest time that one write may take.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// Time between two looks whether a deletion is complete.
pub(super) const PAUSE: Duration = Duration::from_secs(3);
/// Most looks at one deletion; what exists after them is reported.
pub(super) const LOOKS: usize = 100;

/// Something with the marks of a cluster and without an owner. Its text is one line for the user.
pub trait Orphan: fmt::Debug + fmt::Display + Send + Sync {
    /// What it is, for scripts.
    fn kind(&self) -> &'static str;

    /// The cloud's id of it, by which a person can name it.
    fn id(&self) -> &str;

    /// All that is known of it, as an object.
    fn fields(&self) -> Value;

    /// Deletes it, with what belongs to it alone. Ends when it is gone; the error is a text for the user.
    fn delete<'a>(&'a self, cloud: &'a CloudClient, fence: &'a Fence) -> BoxFuture<'a, Result<(), String>>;
}

/// What one controller left.
#[derive(Debug, Default)]
pub struct Orphans {
    /// What was found.
    pub found: Vec<Unclaimed<Arc<dyn Orphan>>>,
    /// What could not be judged, and why, in words.
    pub problems: Vec<String>,
}

impl Orphans {
    pub(super) fn add<T: Orphan + 'static>(&mut self, found: impl IntoIterator<Item = Unclaimed<T>>) {
        let found = found.into_iter();
        self.found.extend(found.map(|one| one.map(|what| Arc::new(what) as Arc<dyn Orphan>)));
    }
}

/// All objects, by which to judge what has no owner.
///
/// # Errors
/// Some cannot be decoded, and may be owners: which, in words.
pub(super) fn owners<V>(store: &Store<V>) -> Result<Arc<[Arc<V>]>, String> {
    let undecoded: Vec<String> = store.skipped().iter().map(ObjectKey::to_string).collect();
    match undecoded.is_empty() {
        true => Ok(store.all()),
        false => {
            Err(format!("{} cannot be decoded, and may be the owner", named(undecoded.iter().map(String::as_str))))
        }
    }
}

/// A permit for one write: a deletion can consist of several, with minutes between them.
pub(super) fn permit(fence: &Fence) -> Result<Permit, Fault> {
    Ok(fence.permit(LONGEST_WRITE)?)
}
