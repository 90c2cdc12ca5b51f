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

/// The API server refuses, or does not answer, events in the namespaces `refused-*`.
fn refusing(refuses: bool) -> (Cluster, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let recorded = asked.clone();
    let cluster = cluster(move |request| {
        let is_meant = request.path.contains("/refused-");
        recorded.lock().push(request);
        match is_meant {
            true if refuses => Answer::error(429, "busy"),
            true => Answer::Silence,
            false => Answer::Json(201, json!({})),
        }
    });
    (cluster, asked)
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_events_are_refused_delays_no_other() {
    for refuses in [true, false] {
        let (cluster, asked) = refusing(refuses);
        for name in 0..10 {
            let key = ObjectKey::new(format!("refused-{}", name % 2), format!("web-{name}"));
            let regarding = Regarding { key, ..service() };
            cluster.events().normal("service-controller", &regarding, "EnsuredLoadBalancer", "done".into());
        }
        cluster.events().normal("node-controller", &node("n1"), "InitializedNode", "done".into());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let about_node = |asked: &Asked| asked.body["involvedObject"]["name"] == "n1";
        assert_eq!(asked.lock().iter().filter(|asked| about_node(asked)).count(), 1, "refuses: {refuses}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_namespace_arrive_in_order_though_the_first_is_refused() {
    let (cluster, asked) = recording(vec![Answer::error(429, "busy")]);
    let events = cluster.events();
    events.open("service-controller", &service(), "sync", finding("busy", "busy", 0));
    tokio::time::sleep(Duration::from_millis(500)).await;
    events.close("service-controller", &service().key, "sync");
    cluster.flush_events(LONG).await;
    let texts: Vec<String> = said(&asked).into_iter().map(|(.., text)| text).collect();
    assert_eq!(texts, ["busy", "busy", "SyncLoadBalancerFailed no longer applies"]);
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

#[test]
fn a_text_stays_the_same_when_the_same_call_fails_again() {
    for (text, expected) in [
        ("CreateX: no [No, request 1-2]", "CreateX: no [No]"),
        ("CreateX: no [request 1-2]; CreateY: no [No, request 3]: x", "CreateX: no; CreateY: no [No]: x"),
        ("the request [of a user]", "the request [of a user]"),
        ("one, request without end", "one, request without end"),
    ] {
        assert_eq!(without_request_ids(text), expected);
    }
}

/// What the API server was asked for about events, as (method, count, message).
fn said(asked: &Mutex<Vec<Asked>>) -> Vec<(String, u64, String)> {
    let one = |asked: &Asked| {
        let (count, text) = (asked.body["count"].as_u64().unwrap(), asked.body["message"].as_str().unwrap());
        (asked.method.to_string(), count, text.split(". ").next().unwrap().to_owned())
    };
    asked.lock().iter().map(one).collect()
}

fn finding(message: &str, cause: &str, quiet: u64) -> LastingEvent {
    let (cause, message) = (cause.to_owned(), message.to_owned());
    let (reason, next) = ("SyncLoadBalancerFailed", "the controller retries".to_owned());
    let tell_at = Instant::now() + Duration::from_secs(quiet);
    LastingEvent { is_warning: true, reason, cause, message, since: crate::clock::now(), next, tell_at }
}

#[tokio::test(start_paused = true)]
async fn what_lasts_is_one_event_that_is_renewed_and_withdrawn_at_the_end() {
    let (cluster, asked) = recording(vec![]);
    let events = cluster.events();
    let open = |text: &str, cause: &str| events.open("service-controller", &service(), "sync", finding(text, cause, 0));
    open("no [X, request 1]", "busy X");
    open("no [X, request 2]", "busy X");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(said(&asked), [("POST".into(), 1, "no [X, request 1]".into())], "the id of the request is no news");
    open("no [X, request 3]", "busy X");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let renewals = asked.lock().len() - 1;
    assert_eq!(renewals, 15, "one in four minutes");
    assert_eq!(said(&asked)[renewals], ("PATCH".into(), 16, "no [X, request 3]".into()));
    open("full [Y, request 4]", "quota Y");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(said(&asked)[renewals + 1], ("POST".into(), 1, "full [Y, request 4]".into()), "another cause");
    events.close("service-controller", &service().key, "sync");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let said = said(&asked);
    assert_eq!(said[renewals + 2..], [("POST".into(), 1, "SyncLoadBalancerFailed no longer applies".into())]);
}

#[tokio::test(start_paused = true)]
async fn what_ends_before_it_is_to_be_told_is_not_told() {
    let (cluster, asked) = recording(vec![]);
    let events = cluster.events();
    for ends_after in [29, 31] {
        events.open("service-controller", &service(), "sync", finding("busy", "busy", 30));
        tokio::time::sleep(Duration::from_secs(ends_after)).await;
        events.close("service-controller", &service().key, "sync");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let texts: Vec<String> = said(&asked).into_iter().map(|(.., text)| text).collect();
    assert_eq!(texts, ["busy", "SyncLoadBalancerFailed no longer applies"]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_events_about_an_object_leaves_room_for_what_lasts() {
    let (cluster, asked) = recording(vec![]);
    let events = cluster.events();
    let regarding = service();
    for second in 0..3600 {
        events.warning("service-controller", &regarding, "LoadBalancerLeft", format!("{second}"));
        if second == 300 {
            events.open("service-controller", &regarding, "sync", finding("busy", "busy", 0));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let told = said(&asked).into_iter().filter(|(.., text)| text == "busy").count();
    assert!(told >= 13, "{told} in 55 minutes");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_is_no_missing_permission() {
    let fault = |message: &str| RequestFault::Answered { code: 403, message: message.to_owned() };
    let leaving = fault(
        "events \"web.1\" is forbidden: unable to create new content in namespace shop because it is being terminated",
    );
    assert!(!leaving.explain("create", "events").contains("needs the verb"));
    let denied = fault("events is forbidden: User \"ccm\" cannot create resource \"events\"");
    assert!(denied.explain("create", "events").contains("needs the verb create on events"));
}
