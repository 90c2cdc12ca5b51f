//! Watches.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{MAPS, answer, config_map, get};
use crate::cluster::{Body, Cluster, Version};

struct Events(Body);

impl Events {
    async fn open(cluster: &Cluster, query: &str) -> Events {
        let uri = format!("{MAPS}?watch=true&{query}");
        let response = super::send(cluster, http::Request::builder().uri(uri), None).await.unwrap();
        assert_eq!(response.status(), 200);
        Events(response.into_body())
    }

    async fn next(&mut self) -> Option<Value> {
        let frame = self.0.frame().await?.unwrap().into_data().unwrap();
        Some(serde_json::from_slice(&frame).unwrap())
    }

    /// Type of the next event and name of its object.
    async fn brief(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        (
            event["type"].as_str().unwrap().into(),
            event["object"]["metadata"]["name"].as_str().unwrap_or_default().into(),
        )
    }
}

fn brief(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

fn label(cluster: &Cluster, name: &str, value: Option<&str>) {
    let labels = json!({ "metadata": { "labels": { "l": value } } });
    cluster.patch("ConfigMap", "default", name, &labels).unwrap();
}

#[tokio::test]
async fn a_watch_goes_on_from_a_version() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.create(config_map("old")).unwrap();
    let from = cluster.resource_version();
    cluster.create(config_map("missed")).unwrap();
    let mut events = Events::open(&cluster, &format!("resourceVersion={from}")).await;
    assert_eq!(events.brief().await, brief("ADDED", "missed"));
    label(&cluster, "old", Some("x"));
    assert_eq!(events.brief().await, brief("MODIFIED", "old"));
    cluster.delete("ConfigMap", "default", "old").unwrap();
    let deleted = events.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    assert_eq!(deleted["object"]["metadata"]["labels"]["l"], "x");
}

#[tokio::test]
async fn a_watch_from_nowhere_begins_with_what_is_there() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.create(config_map("a")).unwrap();
    for query in ["", "resourceVersion=0"] {
        let mut events = Events::open(&cluster, query).await;
        assert_eq!(events.brief().await, brief("ADDED", "a"), "{query}");
    }
}

#[tokio::test]
async fn a_selection_is_entered_and_left() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.create(config_map("a")).unwrap();
    let from = cluster.resource_version();
    let mut events = Events::open(&cluster, &format!("labelSelector=l%3Dx&resourceVersion={from}")).await;
    label(&cluster, "a", Some("y"));
    label(&cluster, "a", Some("x"));
    assert_eq!(events.brief().await, brief("ADDED", "a"));
    label(&cluster, "a", None);
    let left = events.next().await.unwrap();
    assert_eq!((&left["type"], &left["object"]["metadata"]["labels"]["l"]), (&json!("DELETED"), &json!("x")));
    assert_eq!(left["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    cluster.delete("ConfigMap", "default", "a").unwrap();
    cluster.create(config_map("b")).unwrap();
    label(&cluster, "b", Some("x"));
    assert_eq!(events.brief().await, brief("ADDED", "b"), "the deletion outside the selection is not seen");
}

#[tokio::test]
async fn history_that_is_gone() {
    let cluster = Cluster::new(Version::NEWEST);
    let from = cluster.resource_version();
    let mut running = Events::open(&cluster, &format!("resourceVersion={from}")).await;
    cluster.compact();
    cluster.create(config_map("a")).unwrap();
    assert_eq!(running.brief().await, brief("ADDED", "a"), "a watch that missed nothing goes on");

    let mut events = Events::open(&cluster, &format!("resourceVersion={from}")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);

    cluster.refuse_gone_watches(true);
    let (code, status) = get(&cluster, &format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_the_end_of_time() {
    let cluster = Cluster::new(Version::NEWEST);
    let from = cluster.resource_version();
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=90");
    let mut events = Events::open(&cluster, &query).await;
    let before = tokio::time::Instant::now();
    let bookmark = events.next().await.unwrap();
    assert_eq!(
        bookmark,
        json!({ "type": "BOOKMARK", "object": { "kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": from.to_string(), "creationTimestamp": null,
        } } })
    );
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK", "one more before the end");
    assert_eq!(events.next().await, None);
    assert_eq!(before.elapsed().as_secs(), 90);

    let old = Cluster::new(Version::V1_11);
    let mut events = Events::open(&old, "allowWatchBookmarks=true&timeoutSeconds=90").await;
    assert_eq!(events.next().await, None, "old servers know no bookmarks");
}

#[tokio::test]
async fn initial_events_depend_on_the_version() {
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0";
    let newest = Cluster::new(Version::NEWEST);
    newest.create(config_map("a")).unwrap();
    let mut events = Events::open(&newest, query).await;
    assert_eq!(events.brief().await, brief("ADDED", "a"));
    let end = events.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");

    let refusing = Cluster::new(Version::V1_30);
    assert_eq!(get(&refusing, &format!("{MAPS}?watch=1&{query}")).await.0, 422);

    let ignorant = Cluster::new(Version::V1_24);
    ignorant.create(config_map("a")).unwrap();
    let mut events = Events::open(&ignorant, query).await;
    assert_eq!(events.brief().await, brief("ADDED", "a"));
    ignorant.create(config_map("b")).unwrap();
    assert_eq!(events.brief().await, brief("ADDED", "b"), "no bookmark came between");
}

#[tokio::test]
async fn dropped_watches_end() {
    let cluster = Cluster::new(Version::NEWEST);
    let mut events = Events::open(&cluster, "").await;
    cluster.drop_watches();
    assert_eq!(events.next().await, None);
    let mut again = Events::open(&cluster, "").await;
    cluster.create(config_map("a")).unwrap();
    assert_eq!(again.brief().await, brief("ADDED", "a"));
}

#[tokio::test]
async fn broken_watches_fail() {
    let cluster = Cluster::new(Version::NEWEST);
    let mut events = Events::open(&cluster, "").await;
    cluster.break_watches();
    assert!(events.0.frame().await.unwrap().is_err());
    assert!(events.0.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn stalled_watches_tell_later() {
    let cluster = Cluster::new(Version::NEWEST);
    let mut events = Events::open(&cluster, "").await;
    cluster.stall_watches(true);
    cluster.create(config_map("a")).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(60), events.next()).await.is_err());
    cluster.stall_watches(false);
    assert_eq!(events.brief().await, brief("ADDED", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_show_tables() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.create(config_map("a")).unwrap();
    let request = http::Request::builder()
        .uri(format!("{MAPS}?watch=1&timeoutSeconds=1"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let (_, event) = answer(super::send(&cluster, request, None).await.unwrap()).await;
    assert_eq!(event["object"]["rows"][0]["cells"][0], "a");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_state() {
    let cluster = Cluster::new(Version::NEWEST);
    let there = |view: &crate::cluster::View<'_>| view.get("cm", "default", "a").is_some();
    assert!(cluster.until(there, Duration::from_secs(5)).await.is_err());
    let waiting = cluster.until(there, Duration::from_secs(5));
    let writing = async { cluster.create(config_map("a")).unwrap() };
    assert_eq!(tokio::join!(waiting, writing).0, Ok(()));
}
