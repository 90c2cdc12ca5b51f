mod endpoints;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::super::store::{DirtyKeys, StoreEntry};
use super::super::{Cluster, Watched};
use super::*;
use crate::cluster::objects::NEWEST;
use crate::cluster::tests::fake::{Answer, Asked, cluster};
use crate::plan::inputs::EndpointsView;

/// A server with one collection at a time: what lists say is set by the test, watches are opened to the test.
#[derive(Clone, Default)]
struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lists: Vec<(&'static str, Answer)>,
    asked: Vec<Asked>,
    /// In the order in which they were opened, with their paths.
    watches: Vec<(String, UnboundedSender<String>)>,
    watch_fails: Option<u16>,
    /// No request is answered.
    is_away: bool,
    /// Every request is answered with this code, as by a server that is starting.
    starts: Option<u16>,
    /// Watches with this in their query are refused with 410.
    expired: Option<&'static str>,
    /// When whole lists were asked for.
    list_times: Vec<Instant>,
    /// The newest version that there is, if it is asked for.
    newest: Option<&'static str>,
}

impl Server {
    fn cluster(&self) -> Cluster {
        let state = self.state.clone();
        cluster(move |asked| {
            let mut state = state.lock();
            state.asked.push(asked.clone());
            if state.is_away {
                return Answer::Broken;
            }
            if let Some(code) = state.starts {
                return Answer::error(code, "starting");
            }
            if asked.query.contains("watch=true") {
                let expired = state.expired.filter(|version| asked.query.contains(version)).map(|_| 410);
                if let Some(code) = expired.or(state.watch_fails) {
                    return Answer::error(code, "watch failed");
                }
                let (sender, receiver) = unbounded_channel();
                state.watches.push((asked.path, sender));
                return Answer::Lines(receiver);
            }
            if asked.query == NEWEST {
                return page(state.newest.unwrap_or("1000"), "", json!([]));
            }
            state.list_times.push(Instant::now());
            match state.lists.iter().position(|(path, _)| *path == asked.path) {
                Some(index) => state.lists.remove(index).1,
                None => Answer::error(404, "not found"),
            }
        })
    }

    /// The next list of `path` is answered so.
    fn list(&self, path: &'static str, answer: Answer) {
        self.state.lock().lists.push((path, answer));
    }

    /// Sends an event on the newest watch.
    fn event(&self, kind: &str, object: &Value) {
        let path = self.state.lock().watches.last().unwrap().0.clone();
        self.event_at(&path, kind, object);
    }

    /// Sends an event on the newest watch of `path`.
    fn event_at(&self, path: &str, kind: &str, object: &Value) {
        let state = self.state.lock();
        let (_, watch) = state.watches.iter().rfind(|(at, _)| at == path).unwrap();
        watch.send(json!({ "type": kind, "object": object }).to_string()).unwrap();
    }

    /// Breaks the watches of a kind.
    fn drop_watches(&self, path: &str) {
        self.state.lock().watches.retain(|(at, _)| at != path);
    }

    /// The Services that there are: load balancers of these names.
    fn services(&self, names: &[&str]) {
        self.list(SERVICES, page("5", "", names.iter().map(|name| service(name, "LoadBalancer")).collect()));
    }

    fn watches_asked(&self) -> Vec<String> {
        let state = self.state.lock();
        state.asked.iter().filter(|asked| asked.query.contains("watch=true")).map(|asked| asked.query.clone()).collect()
    }

    fn lists_asked(&self) -> Vec<String> {
        let state = self.state.lock();
        let lists = state.asked.iter().filter(|asked| !asked.query.contains("watch=true") && asked.query != NEWEST);
        lists.map(|asked| format!("{}?{}", asked.path, asked.query)).collect()
    }
}

const SERVICES: &str = "/api/v1/services";
const NODES: &str = "/api/v1/nodes";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const OLD_SLICES: &str = "/apis/discovery.k8s.io/v1beta1/endpointslices";
const ENDPOINTS: &str = "/api/v1/endpoints";

fn page(version: &str, continuation: &str, items: Value) -> Answer {
    Answer::Json(200, json!({ "metadata": { "resourceVersion": version, "continue": continuation }, "items": items }))
}

fn node(name: &str, version: &str, provider_id: &str) -> Value {
    json!({ "metadata": { "name": name, "resourceVersion": version }, "spec": { "providerID": provider_id } })
}

fn slice(name: &str, service: &str, address: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "resourceVersion": "9",
            "labels": { "kubernetes.io/service-name": service }
        },
        "endpoints": [{ "addresses": [address] }], "ports": [{ "name": "http", "port": 80 }]
    })
}

fn service(name: &str, kind: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "shop", "resourceVersion": "6" }, "spec": { "type": kind } })
}

fn nodes(names: &[&str]) -> BTreeSet<ObjectKey> {
    names.iter().map(|name| ObjectKey::cluster(*name)).collect()
}

/// The next changed keys; fails instead of hanging.
async fn next(dirty: &mut DirtyKeys) -> BTreeSet<ObjectKey> {
    timeout(Duration::from_secs(600), dirty.next()).await.expect("something changes")
}

/// Lets everything run that can run without time passing.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

/// One kind of object, listed and being watched.
async fn watched<V>(server: &Server, kind: fn(&Cluster) -> Watched<V>) -> (Cluster, Watched<V>) {
    let cluster = server.cluster();
    let handle = kind(&cluster);
    handle.store.synced().await;
    settle().await;
    (cluster, handle)
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_the_watch_goes_on_from_there() {
    let server = Server::default();
    server.list(NODES, page("5", "more of it", json!([node("a", "1", "")])));
    server.list(NODES, page("5", "", json!([node("b", "2", "")])));
    let (cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    assert_eq!(next(&mut dirty).await, nodes(&["a", "b"]));
    settle().await;
    assert!(server.lists_asked()[1].contains("limit=100&continue=more%20of%20it"), "{:?}", server.lists_asked());
    assert!(server.watches_asked()[0].contains("resourceVersion=5&"), "{:?}", server.watches_asked());
    server.event("MODIFIED", &node("a", "6", "x"));
    assert_eq!(next(&mut dirty).await, nodes(&["a"]));
    server.event("ADDED", &node("c", "7", ""));
    server.event("DELETED", &node("b", "8", ""));
    settle().await;
    assert_eq!(next(&mut dirty).await, nodes(&["b", "c"]));
    assert!(handle.store.get(&ObjectKey::cluster("b")).is_none());
    assert!(cluster.status().ready());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_continued_from_the_last_event_or_bookmark() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([])));
    let (_cluster, _handle) = watched(&server, Cluster::nodes).await;
    server.event("ADDED", &node("a", "6", ""));
    server.event("BOOKMARK", &json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "resourceVersion": "40" } }));
    sleep(Duration::from_secs(2)).await;
    server.state.lock().watches.clear();
    sleep(Duration::from_secs(2)).await;
    assert!(server.watches_asked()[1].contains("resourceVersion=40&"), "{:?}", server.watches_asked());
    assert_eq!(server.lists_asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_again_and_again_costs_no_list_and_loses_no_event() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([node("a", "1", "")])));
    let (cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    for version in 6..16 {
        server.event("MODIFIED", &node("a", &version.to_string(), &format!("i-{version}")));
        assert_eq!(next(&mut dirty).await, nodes(&["a"]));
        server.state.lock().watches.clear();
        sleep(Duration::from_secs(40)).await;
        let asked = server.watches_asked().pop().unwrap();
        assert!(asked.contains(&format!("resourceVersion={version}&")), "{asked}");
    }
    // The API server is away for a while, and answers neither lists nor watches.
    server.state.lock().is_away = true;
    server.state.lock().watches.clear();
    sleep(Duration::from_secs(300)).await;
    assert!(!cluster.status().reachable);
    server.state.lock().is_away = false;
    sleep(Duration::from_secs(40)).await;
    server.event("MODIFIED", &node("a", "16", "i-16"));
    assert_eq!(next(&mut dirty).await, nodes(&["a"]));
    assert_eq!(server.lists_asked().len(), 1, "{:?}", server.lists_asked());
    assert!(cluster.status().ready());
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_api_server_costs_no_list_and_a_lost_history_one_for_each_replica() {
    let server = Server::default();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        server.list(NODES, page("5", "", json!([node("a", "1", "")])));
        server.list(SERVICES, page("5", "", json!([service("web", "LoadBalancer")])));
        let (cluster, nodes) = watched(&server, Cluster::nodes).await;
        let services = cluster.services();
        services.store.synced().await;
        replicas.push((cluster, nodes, services));
    }
    sleep(Duration::from_secs(20)).await;
    let restart = async || {
        server.state.lock().is_away = true;
        server.state.lock().watches.clear();
        sleep(Duration::from_secs(60)).await;
        server.state.lock().list_times.clear();
        server.state.lock().is_away = false;
        sleep(Duration::from_secs(60)).await;
    };
    restart().await;
    assert_eq!(server.state.lock().list_times, [], "every watch is resumed");
    assert!(replicas.iter().all(|(cluster, ..)| cluster.status().ready()));

    // This time the server has lost the history that the watches continue from.
    for path in [NODES, SERVICES] {
        (0..3).for_each(|_| server.list(path, page("50", "", json!([]))));
    }
    server.state.lock().expired = Some("&resourceVersion=5&");
    restart().await;
    // Random delays in milliseconds: two of six meet by chance, four do not.
    let times = server.state.lock().list_times.clone();
    assert_eq!(times.len(), 6, "one each");
    assert!(BTreeSet::from_iter(&times).len() > 3, "not all at once: {times:?}");
    assert!(replicas.iter().all(|(_, nodes, services)| nodes.store.is_empty() && services.store.is_empty()));
}

/// However long nothing answered: the pauses after that are those of a server that has just begun to fail.
#[tokio::test(start_paused = true)]
async fn changes_are_seen_within_seconds_of_the_end_of_an_outage_although_the_server_first_refuses() {
    for (is_lost, code) in [(false, 503), (false, 429), (true, 503), (true, 403)] {
        let server = Server::default();
        server.list(NODES, page("5", "", json!([node("a", "1", "")])));
        let (_cluster, _nodes) = watched(&server, Cluster::nodes).await;
        sleep(Duration::from_secs(20)).await;
        if is_lost {
            // A list is asked for while nothing answers.
            server.state.lock().expired = Some("&resourceVersion=5&");
            server.drop_watches(NODES);
            settle().await;
        }
        server.state.lock().is_away = true;
        server.drop_watches(NODES);
        sleep(Duration::from_secs(60)).await;
        server.state.lock().is_away = false;
        server.state.lock().starts = Some(code);
        sleep(Duration::from_secs(1)).await;
        server.state.lock().starts = None;
        server.list(NODES, page("50", "", json!([])));
        sleep(Duration::from_secs(3)).await;
        assert_eq!(server.state.lock().watches.len(), 1, "lost: {is_lost}, {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_whose_watches_end_at_once_for_a_lost_history_do_not_list_at_once() {
    let server = Server::default();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        server.list(NODES, page("5", "", json!([])));
        replicas.push(watched(&server, Cluster::nodes).await);
    }
    server.state.lock().list_times.clear();
    (0..3).for_each(|_| server.list(NODES, page("50", "", json!([]))));
    let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410 } }).to_string();
    server.state.lock().watches.iter().for_each(|(_, watch)| watch.send(gone.clone()).unwrap());
    sleep(Duration::from_secs(60)).await;
    let times = server.state.lock().list_times.clone();
    assert_eq!(times.len(), 3, "one each");
    assert!(BTreeSet::from_iter(&times).len() > 1, "not all at once: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_list_and_its_gaps_count_as_deletions() {
    for expired in ["in the stream", "at the start"] {
        let server = Server::default();
        server.list(NODES, page("5", "", json!([node("a", "1", ""), node("b", "2", "")])));
        server.list(NODES, page("9", "", json!([node("a", "1", ""), node("c", "8", "")])));
        let (_cluster, handle) = watched(&server, Cluster::nodes).await;
        let mut dirty = handle.store.subscribe();
        next(&mut dirty).await;
        if expired == "in the stream" {
            server.event("ERROR", &json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" }));
        } else {
            server.state.lock().watch_fails = Some(410);
            sleep(Duration::from_secs(2)).await;
            server.state.lock().watches.clear();
        }
        assert_eq!(next(&mut dirty).await, nodes(&["b", "c"]), "{expired}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_is_given_up_and_asked_for_again() {
    let server = Server::default();
    for _ in 0..2 {
        server.list(NODES, page("5", "the same again", json!([node("a", "1", "")])));
    }
    server.list(NODES, page("5", "", json!([node("b", "1", "")])));
    let (_cluster, handle) = watched(&server, Cluster::nodes).await;
    let names: Vec<String> = handle.store.all().iter().map(|node| node.name.clone()).collect();
    assert_eq!((names, server.lists_asked().len()), (vec!["b".to_owned()], 3));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_resource_version_regressed_is_listed_again_although_it_would_let_us_watch() {
    let server = Server::default();
    server.list(NODES, page("50", "", json!([node("a", "1", ""), node("b", "49", "")])));
    server.list(NODES, page("9", "", json!([node("a", "1", "")])));
    let (_cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    for newest in ["50", "52", "no number"] {
        server.state.lock().newest = Some(newest);
        sleep(Duration::from_secs(20)).await;
        server.state.lock().watches.clear();
        sleep(Duration::from_secs(20)).await;
        assert_eq!(server.lists_asked().len(), 1, "{newest} is not before 50");
    }
    server.state.lock().newest = Some("9");
    server.state.lock().watches.clear();
    assert_eq!(next(&mut dirty).await, nodes(&["b"]));
    assert_eq!(handle.store.deleted(), BTreeSet::new(), "no deletion was watched");
    settle().await;
    assert!(server.watches_asked().last().unwrap().contains("resourceVersion=9&"), "{:?}", server.watches_asked());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_neither_stops_the_rest_nor_counts_as_deleted() {
    let broken = |name: &str| json!({ "metadata": { "name": name, "resourceVersion": "3" }, "spec": "nonsense" });
    let server = Server::default();
    server.list(NODES, page("5", "", json!([node("a", "1", "x"), node("b", "2", "x"), broken("c")])));
    server.list(NODES, page("9", "", json!([broken("a"), node("b", "2", "x")])));
    let (_cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    assert_eq!(next(&mut dirty).await, nodes(&["a", "b"]));
    settle().await;
    server.event("MODIFIED", &broken("b"));
    server.event("MODIFIED", &node("b", "6", "y"));
    assert_eq!(next(&mut dirty).await, nodes(&["b"]));
    server.event("ERROR", &json!({ "code": 410, "reason": "Expired", "message": "too old" }));
    assert_eq!(next(&mut dirty).await, nodes(&["b", "c"]), "one is listed with its older content, the other is gone");
    assert_eq!(handle.store.get(&ObjectKey::cluster("a")).unwrap().provider_id, "x");
    settle().await;
    assert!(!handle.store.has(&ObjectKey::cluster("c")), "the second list lacks it");
    server.event("ADDED", &broken("c"));
    settle().await;
    assert_eq!(handle.store.skipped(), [ObjectKey::cluster("c")]);
    server.event("DELETED", &broken("c"));
    settle().await;
    assert_eq!((handle.store.skipped(), handle.store.deleted()), (Vec::new(), ["c".into()].into()));
    server.event("ADDED", &broken("c"));
    settle().await;
    assert_eq!(handle.store.deleted(), BTreeSet::new(), "it is back");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_empties_nothing_and_is_asked_for_again() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([node("a", "1", "")])));
    server.list(NODES, Answer::Json(200, json!({ "metadata": { "resourceVersion": "9" } })));
    server.list(NODES, Answer::error(500, "etcd is sad"));
    server.list(NODES, Answer::Broken);
    server.list(NODES, Answer::Silence);
    server.list(NODES, page("9", "", Value::Null));
    let (cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    settle().await;
    server.event("ERROR", &json!({ "code": 410, "reason": "Expired", "message": "too old" }));
    while server.lists_asked().len() < 5 {
        assert_eq!(handle.store.all().len(), 1);
        sleep(Duration::from_millis(100)).await;
    }
    let status = cluster.status();
    assert!(!status.reachable, "{status:?}");
    assert!(status.watches["Node"].interrupted.is_some(), "{status:?}");
    assert_eq!(next(&mut dirty).await, nodes(&["a"]), "now it is an empty list");
    assert!(cluster.status().ready());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_outlives_its_version_is_asked_for_in_one_piece() {
    let server = Server::default();
    server.list(NODES, page("5", "token", json!([node("a", "1", "")])));
    server.list(NODES, Answer::error(410, "the continue token is too old"));
    server.list(NODES, page("7", "", json!([node("b", "1", "")])));
    let (_cluster, handle) = watched(&server, Cluster::nodes).await;
    let names: Vec<_> = handle.store.all().iter().map(|node| node.name.clone()).collect();
    assert_eq!(names, ["b"], "nothing is left of the first attempt");
    assert_eq!(server.lists_asked()[2], "/api/v1/nodes?");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_watch_at_once_is_not_asked_in_a_tight_loop() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([])));
    server.state.lock().watch_fails = Some(500);
    let (cluster, _handle) = watched(&server, Cluster::nodes).await;
    sleep(Duration::from_secs(60)).await;
    let asked = server.state.lock().asked.len();
    assert!((8..60).contains(&asked), "{asked} requests in a minute");
    assert_eq!(server.lists_asked().len(), 1, "a watch is resumed where it was, however often it is lost");
    sleep(Duration::from_secs(20)).await;
    let status = cluster.status();
    assert!(!status.ready() && status.to_string().contains("changes of Node have not been watched since"), "{status}");
    server.state.lock().watch_fails = None;
    sleep(Duration::from_secs(40)).await;
    assert!(cluster.status().ready());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_watched_is_listed_again_and_again_and_people_are_told() {
    let server = Server::default();
    server.state.lock().watch_fails = Some(403);
    server.list(NODES, page("5", "", json!([node("a", "1", "")])));
    let (cluster, handle) = watched(&server, Cluster::nodes).await;
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    (0..40).for_each(|_| server.list(NODES, page("9", "", json!([node("a", "1", ""), node("b", "8", "")]))));
    assert_eq!(next(&mut dirty).await, nodes(&["b"]));
    sleep(Duration::from_secs(10)).await;
    assert!(cluster.status().ready(), "an interruption can be a short one");
    sleep(Duration::from_secs(70)).await;
    let status = cluster.status();
    assert!(!status.ready() && status.to_string().contains("verb watch on nodes"), "{status}");
    assert!((6..20).contains(&server.lists_asked().len()), "{:?}", server.lists_asked());

    server.state.lock().watch_fails = None;
    sleep(Duration::from_secs(40)).await;
    assert!(cluster.status().ready());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_silently_is_given_up() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([])));
    let (_cluster, _handle) = watched(&server, Cluster::nodes).await;
    sleep(Duration::from_secs(56)).await;
    assert_eq!(server.watches_asked().len(), 2, "{:?}", server.watches_asked());
}

#[tokio::test(start_paused = true)]
async fn the_watch_lives_as_long_as_any_handle() {
    let server = Server::default();
    server.list(NODES, page("5", "", json!([])));
    server.list(NODES, page("6", "", json!([])));
    let cluster = server.cluster();
    let (first, second) = (cluster.nodes(), cluster.nodes());
    first.store.synced().await;
    settle().await;
    drop(first);
    settle().await;
    assert!(!server.state.lock().watches[0].1.is_closed());
    assert_eq!(cluster.status().watches.len(), 1);
    drop(second);
    settle().await;
    assert!(server.state.lock().watches[0].1.is_closed());
    assert_eq!(cluster.status().watches.len(), 0);
    let third = cluster.nodes();
    assert!(third.store.synced().now_or_never().is_none(), "what the old watch knew may be outdated");
    third.store.synced().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_longer_concerns_us_counts_as_deleted() {
    let service = |kind: &str, finalizers: Value| {
        json!({
            "metadata": { "name": "web", "namespace": "shop", "resourceVersion": "6", "finalizers": finalizers },
            "spec": { "type": kind }
        })
    };
    let server = Server::default();
    let ours = json!(["service.k8s.alibaba/resources"]);
    server.list("/api/v1/services", page("5", "", json!([service("LoadBalancer", ours.clone())])));
    let (_cluster, handle) = watched(&server, Cluster::services).await;
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    let key = ObjectKey::new("shop", "web");
    server.event("MODIFIED", &service("ClusterIP", ours));
    assert_eq!(next(&mut dirty).await, [key.clone()].into());
    assert!(handle.store.get(&key).is_some(), "the finalizer still holds it");
    server.event("MODIFIED", &service("ClusterIP", Value::Null));
    assert_eq!(next(&mut dirty).await, [key.clone()].into());
    assert!(handle.store.get(&key).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named() {
    let server = Server::default();
    server.list(NODES, Answer::error(403, "nodes is forbidden: User ccm cannot list"));
    let cluster = server.cluster();
    let _handle = cluster.nodes();
    settle().await;
    let status = cluster.status();
    let reason = status.watches["Node"].interrupted.clone().unwrap().reason;
    assert!(reason.contains("verb list on nodes") && reason.contains("forbidden"), "{reason}");
    assert!(status.reachable && !status.ready());
}
