//! What controllers leave in the cloud, as `gc` finds and deletes it, also while they are switched off.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::cluster::Store;
use crate::fence::{Fence, Permit};
use crate::plan::provenance::Unclaimed;
use crate::telemetry::alarms::named;

/// The longest time that one write may take.
const LONGEST_WRITE: Duration = Duration::from_secs(30);

/// Time between two looks whether a deletion is complete.
pub(super) const PAUSE: Duration = Duration::from_secs(3);
/// Most looks at one deletion; what exists after them is reported.
pub(super) const LOOKS: usize = 100;

/// Why something may still be there; a text for the user.
pub(super) type NotDeleted = Box<dyn Error + Send + Sync>;

/// Something with the marks of a cluster and without an owner. Its text is one line for the user; its fields are all that is
/// known of it, with the cloud's `id` of it, by which a person can name it.
pub(super) trait Orphan: fmt::Debug + fmt::Display + Serialize + Send + Sync + 'static {
    /// What it is, for scripts.
    const KIND: &'static str;

    /// Deletes it, with what belongs to it alone. Ends when it is gone.
    fn delete(&self, cloud: &CloudClient, fence: &Fence) -> impl Future<Output = Result<(), NotDeleted>> + Send;
}

/// Something without an owner, of whatever kind.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Leftover {
    /// What it is, and all that is known of it.
    pub fields: Value,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    what: Arc<dyn Delete>,
}

trait Delete: fmt::Debug + Send + Sync {
    fn delete<'a>(&'a self, cloud: &'a CloudClient, fence: &'a Fence) -> BoxFuture<'a, Result<(), NotDeleted>>;
}

impl<T: Orphan> Delete for T {
    fn delete<'a>(&'a self, cloud: &'a CloudClient, fence: &'a Fence) -> BoxFuture<'a, Result<(), NotDeleted>> {
        Orphan::delete(self, cloud, fence).boxed()
    }
}

impl Leftover {
    fn of<T: Orphan>(what: T) -> Self {
        let (mut fields, text) = (json!(what), what.to_string());
        fields["kind"] = T::KIND.into();
        Self { fields, text, what: Arc::new(what) }
    }

    /// The cloud's id of it.
    pub fn id(&self) -> &str {
        self.fields["id"].as_str().unwrap_or_default()
    }

    /// Deletes it, with what belongs to it alone.
    ///
    /// # Errors
    /// It may still be there; why, in words for the user.
    pub async fn delete(&self, cloud: &CloudClient, fence: &Fence) -> Result<(), String> {
        self.what.delete(cloud, fence).await.map_err(|why| why.to_string())
    }
}

impl PartialEq for Leftover {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What one controller left.
#[derive(Debug, Default)]
pub struct Orphans {
    /// What was found.
    pub found: Vec<Unclaimed<Leftover>>,
    /// What could not be judged, and why.
    pub problems: Vec<Unjudged>,
}

/// Why something could not be judged.
#[derive(Debug)]
pub struct Unjudged {
    /// In words.
    pub why: String,
    /// Whether a right is missing, which a controller that does not run has no need of.
    pub is_denied: bool,
}

impl Unjudged {
    /// The cloud did not say `what`.
    pub(super) fn by(what: &str, fault: &Fault) -> Self {
        Self { why: format!("{what}: {fault}"), is_denied: fault.kind == FaultKind::Denied }
    }

    /// There is no list of the owners: `why`.
    pub(super) const fn unlisted(why: String) -> Self {
        Self { why, is_denied: true }
    }
}

impl From<String> for Unjudged {
    fn from(why: String) -> Self {
        Self { why, is_denied: false }
    }
}

impl Orphans {
    pub(super) fn add<T: Orphan>(&mut self, found: impl IntoIterator<Item = Unclaimed<T>>) {
        self.found.extend(found.into_iter().map(|one| one.map(Leftover::of)));
    }
}

/// All objects, by which to judge what has no owner.
///
/// # Errors
/// Some cannot be decoded, and may be owners: which, in words.
pub(super) fn owners<V>(store: &Store<V>) -> Result<Arc<[Arc<V>]>, String> {
    let undecoded = store.skipped();
    match undecoded.is_empty() {
        true => Ok(store.all()),
        false => Err(format!("{} cannot be decoded, and may be the owner", named(undecoded))),
    }
}

/// A permit for one write: a deletion can consist of several, with minutes between them.
pub(super) fn permit(fence: &Fence) -> Result<Permit, Fault> {
    Ok(fence.permit(LONGEST_WRITE)?)
}
