//! Get and list, and how objects are shown to a client.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::Shared;
use super::convert;
use super::failure::Failure;
use super::object;
use super::request::{Form, Request};
use super::resources::Resource;
use super::selectors::Selector;
use super::storage::{Key, Store};
use super::tables;
use super::version::{Feature, Version};

/// How one client sees the objects of a resource.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) resource: &'static Resource,
    pub(super) version: String,
    pub(super) form: Form,
    played: Version,
    now: jiff::Timestamp,
}

impl View {
    pub(super) fn of(request: &Request, shared: &Shared) -> View {
        View {
            resource: request.resource,
            version: request.version.clone(),
            form: request.form,
            played: shared.rules().version,
            now: shared.clock.now(),
        }
    }

    fn api_version(&self) -> String {
        self.resource.api_version(&self.version)
    }

    fn whole(&self, object: &Value) -> Value {
        convert::to_served(self.resource, &self.version, self.played, object)
    }

    pub(super) fn one(&self, object: &Value) -> Value {
        match self.form {
            Form::Whole => self.whole(object),
            Form::Metadata => metadata_only(object),
            Form::Table(version) => {
                tables::table(self.resource, version, self.now, std::iter::once(object), &version_of(object))
            }
        }
    }

    pub(super) fn event(&self, kind: &str, object: &Value) -> Value {
        json!({ "type": kind, "object": self.one(object) })
    }

    /// The text of a list.
    fn many(&self, objects: &[Arc<Value>], metadata: Value) -> String {
        match self.form {
            Form::Whole => {
                let list = WholeList {
                    kind: format!("{}List", self.resource.kind),
                    api_version: self.api_version(),
                    metadata,
                    items: objects.iter().map(|object| self.list_item(object)).collect(),
                };
                serde_json::to_string(&list).unwrap_or_default()
            }
            Form::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": objects.iter().map(|object| metadata_only(object)).collect::<Vec<_>>(),
            })
            .to_string(),
            Form::Table(version) => {
                let objects = objects.iter().map(|object| &**object);
                tables::table(self.resource, version, self.now, objects, &metadata).to_string()
            }
        }
    }

    fn list_item<'a>(&self, object: &'a Value) -> ListItem<'a> {
        ListItem(match convert::is_served_as_stored(self.resource, &self.version) {
            true => Cow::Borrowed(object),
            false => Cow::Owned(self.whole(object)),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WholeList<'a> {
    kind: String,
    api_version: String,
    metadata: Value,
    items: Vec<ListItem<'a>>,
}

/// An element of a list of typed objects, which does not repeat its kind. A list of a large cluster copies no object.
struct ListItem<'a>(Cow<'a, Value>);

impl Serialize for ListItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")))
    }
}

fn version_of(object: &Value) -> Value {
    json!({ "resourceVersion": object::text(object, "/metadata/resourceVersion") })
}

pub(super) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

pub(super) fn get(shared: &Shared, request: &Request) -> Result<Value, Failure> {
    let store = shared.store.lock();
    not_from_the_future(&store, version_parameter(request)?)?;
    let key = Key::new(request.resource, &request.namespace, &request.name);
    let object = store.get(&key).ok_or_else(|| Failure::not_found(request.resource, &request.name))?;
    Ok(View::of(request, shared).one(object))
}

/// The `resourceVersion` parameter; nothing if it was not given.
pub(super) fn version_parameter(request: &Request) -> Result<Option<u64>, Failure> {
    let text = request.parameter("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    let number =
        text.parse().map_err(|_| Failure::bad_request(format!("Invalid value: {text:?}: resourceVersion: Invalid")))?;
    Ok(Some(number))
}

fn not_from_the_future(store: &Store, version: Option<u64>) -> Result<(), Failure> {
    match version {
        Some(asked) if asked > store.version() => Err(Failure::too_large_version(asked, store.version())),
        _ => Ok(()),
    }
}

/// Where the next chunk of a list starts.
#[derive(Debug, Deserialize, Serialize)]
struct Continue {
    #[serde(rename = "v")]
    token_version: String,
    #[serde(rename = "rv")]
    version: u64,
    /// Namespace and name of the last object sent.
    start: (String, String),
    /// How many objects come after it.
    left: usize,
}

impl Continue {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_string(self).unwrap_or_default())
    }

    fn decode(token: &str) -> Result<Continue, Failure> {
        let decoded = URL_SAFE_NO_PAD.decode(token).ok().and_then(|json| serde_json::from_slice(&json).ok());
        decoded.ok_or_else(|| Failure::bad_request("continue key is not valid: the token cannot be read"))
    }
}

/// The text of a list.
pub(super) fn list(shared: &Shared, request: &Request) -> Result<String, Failure> {
    let resource = request.resource;
    let selector = Selector::parse(resource, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
    let asked = version_parameter(request)?;
    let store = shared.store.lock();
    let exact = request.parameter("resourceVersionMatch") == "Exact";
    if !exact {
        not_from_the_future(&store, asked)?;
    }
    let chunking = shared.rules().version.has(Feature::Chunking);
    let limit: usize = match request.parameter("limit") {
        // A list from the watch cache is never cut.
        _ if asked == Some(0) || !chunking => 0,
        "" => 0,
        limit => limit.parse().map_err(|_| Failure::bad_request(format!("limit {limit:?} is not a number")))?,
    };
    let from = match request.parameter("continue") {
        token if token.is_empty() || !chunking => None,
        _ if asked.is_some_and(|version| version != 0) => {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        token => Some(Continue::decode(token)?),
    };
    let version = match &from {
        Some(from) => from.version,
        None if exact => asked.unwrap_or_default(),
        None => store.version(),
    };
    let after = from.as_ref().map(|from| (from.start.0.as_str(), from.start.1.as_str()));
    let at = |after| {
        let listed = store.list_at(resource, &request.namespace, version, after);
        let listed = listed.map_err(|oldest| {
            if from.is_some() { Failure::continue_expired() } else { Failure::expired(version, oldest.0) }
        })?;
        Ok::<_, Failure>(listed.filter(|(_, object)| selector.matches(object)))
    };
    // The first chunk counts all of them, so that the others need not.
    let count = match &from {
        _ if limit == 0 => 0,
        Some(from) => from.left,
        None => at(None)?.count(),
    };
    let selected: Vec<(&Key, &Arc<Value>)> = at(after)?.take(if limit == 0 { usize::MAX } else { limit }).collect();
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    let left = count.saturating_sub(selected.len());
    if let Some((last, _)) = selected.last().filter(|_| left > 0) {
        let start = (last.namespace.clone(), last.name.clone());
        metadata["continue"] =
            Continue { token_version: "meta.k8s.io/v1".to_owned(), version, start, left }.encode().into();
        let selecting =
            !request.parameter("labelSelector").is_empty() || !request.parameter("fieldSelector").is_empty();
        if !selecting {
            metadata["remainingItemCount"] = left.into();
        }
    }
    let objects: Vec<_> = selected.into_iter().map(|(_, object)| Arc::clone(object)).collect();
    // Other requests need the store while the text of this list is made.
    drop(store);
    Ok(View::of(request, shared).many(&objects, metadata))
}
