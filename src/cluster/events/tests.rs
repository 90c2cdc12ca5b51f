use super::super::Cluster;
use super::*;
use crate::cluster::tests::fake::{Answer, Asked, cluster};

/// What arrives at the API server, which answers each request with the next of `answers`, then with success.
fn recording(answers: Vec<Answer>) -> (Cluster, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let recorded = asked.clone();
    let answers = Mutex::new(VecDeque::from(answers));
    let cluster = cluster(move |request| {
        recorded.lock().push(request);
        answers.lock().pop_front().unwrap_or(Answer::Json(200, json!({})))
    });
    (cluster, asked)
}

fn service() -> Regarding {
    Regarding { kind: "Service", key: ObjectKey::new("shop", "web"), uid: "uid-1".into() }
}

fn node(name: &str) -> Regarding {
    Regarding { kind: "Node", key: ObjectKey::cluster(name), uid: "uid-2".into() }
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_what() {
    let (cluster, asked) = recording(vec![]);
    cluster.events().warning("service-controller", &service(), "SyncLoadBalancerFailed", "no quota".into());
    cluster.events().normal("node-controller", &node("n1"), "InitializedNode", "done".into());
    cluster.flush_events(LONG).await;
    let asked = asked.lock();
    assert_eq!(asked[0].path, "/api/v1/namespaces/shop/events");
    let event = &asked[0].body;
    assert_eq!(
        event["involvedObject"],
        json!({ "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "uid-1" })
    );
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["reason"], "SyncLoadBalancerFailed");
    assert_eq!(event["message"], "no quota (ACCM0307)");
    assert_eq!(event["source"]["component"], "service-controller");
    assert_eq!(event["count"], 1);
    let name = event["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web.") && name.len() == "web.".len() + 16, "{name}");
    assert_eq!(asked[1].path, "/api/v1/namespaces/default/events", "nodes have no namespace");
    assert_eq!(asked[1].body["metadata"]["namespace"], "default");
    assert!(asked[1].body["involvedObject"].get("namespace").is_none());
}

#[tokio::test(start_paused = true)]
async fn repetitions_raise_the_count_until_ten_quiet_minutes_have_passed() {
    let (cluster, asked) = recording(vec![]);
    let report = async |seconds| {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        cluster.events().warning("service-controller", &service(), "SyncLoadBalancerFailed", "no quota".into());
        cluster.flush_events(LONG).await;
    };
    report(0).await;
    report(60).await;
    report(500).await;
    report(700).await;
    let asked = asked.lock();
    let methods: Vec<_> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "PATCH", "POST"]);
    let name = asked[0].body["metadata"]["name"].as_str().unwrap();
    assert_eq!(asked[2].path, format!("/api/v1/namespaces/shop/events/{name}"));
    assert_eq!(asked[2].body["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_has_forgotten_is_written_anew() {
    let (cluster, asked) = recording(vec![Answer::Json(201, json!({})), Answer::error(404, "not found")]);
    for _ in 0..3 {
        cluster.events().normal("service-controller", &service(), "EnsuredLoadBalancer", "done".into());
    }
    cluster.flush_events(LONG).await;
    let asked = asked.lock();
    let methods: Vec<_> = asked.iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST", "PATCH"]);
    assert_eq!(asked[3].body["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn one_loud_object_does_not_silence_others() {
    let (cluster, asked) = recording(vec![]);
    for number in 0..100 {
        cluster.events().warning("service-controller", &service(), "SyncLoadBalancerFailed", format!("try {number}"));
    }
    cluster.events().normal("node-controller", &node("n1"), "InitializedNode", "done".into());
    cluster.flush_events(LONG).await;
    let about = |namespace: &str| asked.lock().iter().filter(|asked| asked.path.contains(namespace)).count();
    assert_eq!((about("/shop/"), about("/default/")), (25, 1));
    tokio::time::sleep(REFILL * 2).await;
    for number in 100..110 {
        cluster.events().warning("service-controller", &service(), "SyncLoadBalancerFailed", format!("try {number}"));
    }
    cluster.flush_events(LONG).await;
    assert_eq!(about("/shop/"), 27);
}

#[tokio::test(start_paused = true)]
async fn events_survive_a_server_that_is_away_for_a_moment_but_not_one_that_refuses_them() {
    let away = vec![Answer::Broken, Answer::error(503, "starting"), Answer::error(429, "busy")];
    let (cluster, asked) = recording(away);
    cluster.events().normal("service-controller", &service(), "EnsuredLoadBalancer", "done".into());
    cluster.flush_events(LONG).await;
    assert_eq!(asked.lock().len(), 4);
    let names: std::collections::BTreeSet<_> =
        asked.lock().iter().map(|asked| asked.body["metadata"]["name"].to_string()).collect();
    assert_eq!(names.len(), 1, "a repetition of a try whose answer was lost makes no second event");

    let (cluster, asked) = recording(vec![Answer::error(403, "namespace is being terminated")]);
    cluster.events().normal("service-controller", &service(), "EnsuredLoadBalancer", "done".into());
    cluster.flush_events(LONG).await;
    assert_eq!(asked.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reporting_never_waits_and_the_newest_events_win() {
    let (cluster, asked) = recording((0..4).map(|_| Answer::Broken).collect());
    for number in 0..QUEUE * 2 {
        cluster.events().normal("node-controller", &node(&format!("n{number}")), "InitializedNode", "done".into());
    }
    cluster.flush_events(LONG).await;
    let last = asked.lock().last().unwrap().body["involvedObject"]["name"].clone();
    assert_eq!(last, format!("n{}", QUEUE * 2 - 1));
    assert!(asked.lock().len() <= QUEUE + 5, "{}", asked.lock().len());
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_events_no_longer_than_it_is_told() {
    let (cluster, _) = recording(vec![Answer::Silence]);
    cluster.events().normal("service-controller", &service(), "EnsuredLoadBalancer", "done".into());
    let start = Instant::now();
    cluster.flush_events(Duration::from_secs(2)).await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[test]
fn long_texts_end_between_characters() {
    assert_eq!(truncate("abc", 1024), "abc");
    assert_eq!(truncate("aéé", 2), "a");
    let message = "负".repeat(1000);
    assert_eq!(truncate(&message, MESSAGE_BYTES).len(), 1023);
}

#[test]
fn names_of_events_are_names() {
    let long = event_name(&format!("{}.{}", "a".repeat(235), "b".repeat(17)));
    assert!(long.len() <= 253, "{long}");
    assert!(!long.contains(".."), "{long}");
}
