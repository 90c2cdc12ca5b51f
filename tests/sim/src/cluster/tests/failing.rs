//! Access, the fault dial, the call log, and the wire itself.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{MAPS, answer, call, config_map, get, names, send};
use crate::cluster::{Chaos, Cluster, Effect, Failure, Lost, Match, Moment, Version};

async fn post(cluster: &Cluster, name: &str) -> Result<u16, Lost> {
    let request = Request::builder().method("POST").uri(MAPS).header("user-agent", format!("agent-{name}"));
    Ok(send(cluster, request, Some(&config_map(name))).await?.status().as_u16())
}

#[tokio::test]
async fn tokens_and_denials() {
    let cluster = Cluster::new(Version::NEWEST);
    assert_eq!(get(&cluster, MAPS).await.0, 200);
    cluster.admit("secret", "ccm");
    let (code, status) = get(&cluster, MAPS).await;
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));

    let list = async || {
        let request = Request::builder().uri(MAPS).header("authorization", "Bearer secret");
        answer(send(&cluster, request, None).await.unwrap()).await
    };
    assert_eq!(list().await.0, 200);
    cluster.deny("ccm", "list", "configmaps");
    let (code, status) = list().await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps is forbidden: User \"ccm\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    cluster.undeny();
    assert_eq!(list().await.0, 200);
    assert_eq!(cluster.calls().last().unwrap().user, "ccm");
    cluster.revoke("secret");
    assert_eq!(list().await.0, 401);
    assert_eq!(get(&cluster, "/version").await.0, 401);
}

#[tokio::test]
async fn a_refusal_changes_nothing() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.trouble(Match::new("create", "configmaps").from("agent-a"), Effect::Refuse(Failure::too_many_requests(3)));
    assert_eq!(post(&cluster, "b").await, Ok(201), "another client");
    let request = Request::builder().method("POST").uri(MAPS).header("user-agent", "agent-a");
    let response = send(&cluster, request, Some(&config_map("a"))).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"3".parse().unwrap()));
    assert!(cluster.get("ConfigMap", "default", "a").is_none());
    assert_eq!(post(&cluster, "a").await, Ok(201), "only the next one");
}

#[tokio::test]
async fn lost_requests_and_lost_answers() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.trouble(Match::new("create", "*"), Effect::LoseRequest);
    cluster.trouble(Match::new("create", "*"), Effect::LoseAnswer);
    assert_eq!(post(&cluster, "request").await, Err(Lost));
    assert_eq!(post(&cluster, "answer").await, Err(Lost));
    assert!(cluster.get("ConfigMap", "default", "request").is_none());
    assert!(cluster.get("ConfigMap", "default", "answer").is_some());
}

#[tokio::test]
async fn held_requests_take_effect_before_or_after() {
    for (moment, there) in [(Moment::Before, false), (Moment::After, true)] {
        let cluster = Cluster::new(Version::NEWEST);
        let mut held = cluster.hold(Match::any(), moment);
        let client = tokio::spawn({
            let cluster = cluster.clone();
            async move { post(&cluster, "a").await }
        });
        held.arrived().await;
        assert_eq!(cluster.get("ConfigMap", "default", "a").is_some(), there, "{moment:?}");
        assert!(!client.is_finished());
        held.release();
        assert_eq!(client.await.unwrap(), Ok(201));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_take_their_time() {
    let cluster = Cluster::new(Version::NEWEST);
    let start = tokio::time::Instant::now();
    cluster.set_latency(Duration::from_secs(2));
    cluster.trouble(Match::any(), Effect::DelayAnswer(Duration::from_secs(3)));
    post(&cluster, "a").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    cluster.calm();
    post(&cluster, "b").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test]
async fn chaos_repeats_itself() {
    let outcomes = async |seed: u64| {
        let cluster = Cluster::new(Version::NEWEST);
        cluster.set_chaos(Some(Chaos { seed, refuse: 0.3, lose_request: 0.1, lose_answer: 0.2, ..Chaos::default() }));
        let mut outcomes = Vec::new();
        for n in 0..60 {
            outcomes.push(post(&cluster, &format!("m{n}")).await);
        }
        outcomes
    };
    let first = outcomes(7).await;
    assert_eq!(first, outcomes(7).await);
    assert_ne!(first, outcomes(8).await);
    for seen in [Ok(201), Ok(503), Err(Lost)] {
        assert!(first.contains(&seen), "{seen:?}");
    }
}

#[tokio::test]
async fn calls_are_logged() {
    let cluster = Cluster::new(Version::NEWEST);
    post(&cluster, "a").await.unwrap();
    call(&cluster, "PATCH", &format!("{MAPS}/none"), Some(&json!({}))).await;
    get(&cluster, MAPS).await;
    get(&cluster, "/version").await;
    let calls: Vec<_> = cluster.calls().iter().map(|call| (call.verb, call.name.clone(), call.status)).collect();
    assert_eq!(
        calls,
        [("create", String::new(), Some(201)), ("patch", "none".into(), Some(404)), ("list", String::new(), Some(200))]
    );
    let writes = cluster.writes();
    assert_eq!((writes.len(), writes[0].user_agent.as_str()), (2, "agent-a"));
    assert_eq!(writes[0].body.as_ref().unwrap()["metadata"]["name"], "a");
    assert_eq!((cluster.count("list", "configmaps"), cluster.counts()[&("patch", "configmaps".into())]), (1, 1));
    cluster.clear_calls();
    assert!(cluster.calls().is_empty());
}

/// Sends a request over a new connection and reads until it closes.
async fn over_the_wire(address: SocketAddr, request: String) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await?;
    Ok(text)
}

fn plain_get(uri: &str) -> String {
    format!("GET {uri} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn gone_and_back_on_the_same_address() {
    let cluster = Cluster::new(Version::NEWEST);
    let address = cluster.listen().await.unwrap();
    assert!(cluster.kubeconfig().contains(&address.to_string()));
    assert!(over_the_wire(address, plain_get("/version")).await.unwrap().contains("v1.34.0"));

    let watching = tokio::spawn(over_the_wire(address, plain_get(&format!("{MAPS}?watch=1"))));
    cluster.create(config_map("a")).unwrap();
    while cluster.count("watch", "configmaps") == 0 {
        tokio::task::yield_now().await;
    }
    cluster.go_away().await;
    // Whether the end is clean or a reset does not matter, but it must come.
    let _ = watching.await.unwrap();
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(post(&cluster, "b").await, Err(Lost));

    cluster.come_back().await.unwrap();
    let list = over_the_wire(address, plain_get(MAPS)).await.unwrap();
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("\"name\":\"a\""), "{list}");
}

#[tokio::test]
async fn a_write_goes_on_when_its_client_gives_up() {
    let cluster = Cluster::new(Version::NEWEST);
    let address = cluster.listen().await.unwrap();
    let mut held = cluster.hold(Match::new("create", "configmaps"), Moment::Before);
    let body = config_map("a").to_string();
    let length = body.len();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("POST {MAPS} HTTP/1.1\r\nhost: sim\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).await.unwrap();
    held.arrived().await;
    drop(socket);
    held.release();
    cluster.until(|view| view.get("cm", "default", "a").is_some(), Duration::from_secs(10)).await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_closes_the_connection() {
    let cluster = Cluster::new(Version::NEWEST);
    let address = cluster.listen().await.unwrap();
    cluster.trouble(Match::any(), Effect::LoseAnswer);
    let text = over_the_wire(address, plain_get(MAPS)).await.unwrap_or_default();
    assert_eq!(text, "");
    assert_eq!(names(&get(&cluster, MAPS).await.1), Vec::<&str>::new());
}
