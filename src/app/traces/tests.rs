use std::collections::VecDeque;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::*;
use crate::alibaba::transport::TransportError;

const SECOND: Duration = Duration::from_secs(1);

/// What the collector does with a request; the last holds for all that follow.
#[derive(Clone, Debug)]
enum Reply {
    Status(u16, &'static [(&'static str, &'static str)]),
    Part(&'static str),
    Refused,
    Never,
}

/// When each request was sent, its headers, and how many spans it had.
type Requests = Arc<parking_lot::Mutex<Vec<(Instant, HeaderMap, usize)>>>;

#[derive(Debug)]
struct ScriptedCollector {
    requests: Requests,
    replies: parking_lot::Mutex<VecDeque<Reply>>,
}

impl Transport for ScriptedCollector {
    fn send(&self, request: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        assert_eq!(request.uri(), "http://collector:4318/v1/traces");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        let count = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len();
        self.requests.lock().push((Instant::now(), request.headers().clone(), count));
        let mut replies = self.replies.lock();
        let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        let answer = |status: u16, body| Response::builder().status(status).body(Bytes::from_static(body)).unwrap();
        let answer = match reply.unwrap() {
            Reply::Status(status, headers) => {
                let mut answer = answer(status, b"{}");
                let headers =
                    headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
                answer.headers_mut().extend(headers);
                Ok(answer)
            }
            Reply::Part(body) => Ok(answer(200, body.as_bytes())),
            Reply::Refused => Err(TransportError::NotSent("refused".to_owned())),
            Reply::Never => return std::future::pending().boxed(),
        };
        std::future::ready(answer).boxed()
    }
}

struct Running {
    queue: mpsc::Sender<EndedSpan>,
    requests: Requests,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Exporter>,
}

fn start(replies: &[Reply]) -> Running {
    let (queue, spans) = mpsc::channel(traces::LONGEST_QUEUE);
    let settings = ExportSettings {
        url: "http://collector:4318/v1/traces".to_owned(),
        headers: [("Authorization".to_owned(), Secret::new("Bearer one".to_owned()))].into(),
        sample_ratio: 1.0,
        cluster_id: "c1".to_owned(),
    };
    let (requests, stop) = (Requests::default(), CancellationToken::new());
    let replies = parking_lot::Mutex::new(replies.iter().cloned().collect());
    let mut exporter = Exporter::new(&settings, spans);
    exporter.transport = Some(Box::new(ScriptedCollector { requests: requests.clone(), replies }));
    let end = stop.clone();
    let task = tokio::spawn(async move {
        exporter.run(&end).await;
        exporter
    });
    Running { queue, requests, stop, task }
}

impl Running {
    fn record(&self, count: usize) {
        for number in 0..count {
            let now = Instant::now();
            let span = EndedSpan {
                trace: 1,
                id: u64::try_from(number).unwrap() + 1,
                parent: None,
                name: "reconcile node".to_owned(),
                is_call: false,
                failure: None,
                lasted: (now, now),
                attributes: Vec::new(),
            };
            self.queue.try_send(span).unwrap();
        }
    }

    /// The number of spans of each request, and the seconds since the one before.
    fn requests(&self) -> Vec<(usize, u64)> {
        let mut before = None;
        let mut since = |at: Instant| (at - before.replace(at).unwrap_or(at)).as_secs();
        self.requests.lock().iter().map(|(at, _, count)| (*count, since(*at))).collect()
    }
}

const TAKES: Reply = Reply::Status(200, &[]);

#[tokio::test(start_paused = true)]
async fn spans_are_sent_together_and_not_too_many_at_once() {
    let running = start(&[TAKES]);
    running.record(3);
    tokio::time::sleep(SECOND).await;
    assert_eq!(running.requests(), [], "others may follow");
    running.record(4);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(running.requests(), [(7, 0)]);
    running.record(LARGEST_BATCH + 88);
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(running.requests().into_iter().map(|(count, _)| count).collect::<Vec<_>>(), [7, LARGEST_BATCH, 88]);
    let headers = running.requests.lock()[0].1.clone();
    assert!(headers["content-type"] == "application/json" && headers["authorization"] == "Bearer one", "{headers:?}");
    assert!(headers["authorization"].is_sensitive(), "no log shows it");
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_gets_the_same_spans_later() {
    let replies =
        [Reply::Refused, Reply::Never, Reply::Status(503, &[]), Reply::Status(429, &[("retry-after", "17")]), TAKES];
    let running = start(&replies);
    running.record(5);
    tokio::time::sleep(300 * SECOND).await;
    // The transport gives up after the time that it is given, which the script does not.
    assert_eq!(running.requests(), [(5, 0), (5, 1)], "it hangs");
    running.stop.cancel();
    let began = Instant::now();
    let exporter = running.task.await.unwrap();
    assert!(began.elapsed() <= FLUSH, "{:?}", began.elapsed());
    assert!(exporter.batch.len() == 5 && exporter.fails, "they are lost");

    let running = start(&replies[2..]);
    running.record(5);
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!(running.requests(), [(5, 0), (5, 1), (5, 17)]);
    running.stop.cancel();
    assert!(!running.task.await.unwrap().fails);
}

#[tokio::test(start_paused = true)]
async fn a_pause_grows_and_what_waits_is_bounded() {
    let running = start(&[Reply::Refused]);
    running.record(1);
    tokio::time::sleep(3 * SECOND).await;
    running.record(traces::LONGEST_QUEUE);
    tokio::time::sleep(200 * SECOND).await;
    let pauses: Vec<_> = running.requests().into_iter().map(|(_, since)| since).collect();
    assert_eq!(pauses[..9], [0, 1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(running.queue.capacity(), 0, "recording never waits");
}

#[tokio::test(start_paused = true)]
async fn spans_that_the_collector_refuses_are_not_sent_again() {
    let running = start(&[
        Reply::Status(400, &[]),
        Reply::Status(302, &[("location", "http://elsewhere/")]),
        Reply::Part(r#"{"partialSuccess":{"rejectedSpans":"2"}}"#),
        TAKES,
    ]);
    let before = counted();
    for _ in 0..4 {
        running.record(5);
        tokio::time::sleep(3 * SECOND).await;
    }
    assert_eq!(running.requests().len(), 4);
    let after = counted();
    assert_eq!(after["refused"] - before["refused"], 12, "of three requests");
    assert!(after["sent"] - before["sent"] >= 8, "other tests send too");
}

/// The spans so far, by outcome.
fn counted() -> BTreeMap<String, u64> {
    metrics::trace_spans("sent", 0);
    metrics::trace_spans("refused", 0);
    let text = metrics::render();
    let lines = text.lines().filter_map(|line| {
        let (outcome, count) = line.strip_prefix("alicloud_ccm_trace_spans_total{outcome=\"")?.split_once("\"} ")?;
        Some((outcome.to_owned(), count.parse().unwrap()))
    });
    lines.collect()
}

#[tokio::test(start_paused = true)]
async fn at_the_end_everything_that_waits_is_sent_at_once() {
    let Running { queue, requests, stop, task } = {
        let running = start(&[TAKES]);
        running.record(LARGEST_BATCH + 5);
        running
    };
    drop(queue);
    stop.cancel();
    let began = Instant::now();
    task.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(requests.lock().iter().map(|(_, _, count)| count).sum::<usize>(), LARGEST_BATCH + 5);
}

#[test]
fn the_resource_names_program_cluster_and_pod() {
    let pod = |name: &str| (name != "NODE_NAME").then(|| format!("<{name}>"));
    let resource: BTreeMap<_, _> = resource("c1", pod).into_iter().collect();
    for (name, value) in [
        ("service.name", "alicloud-ccm"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", "<POD_UID>"),
        ("k8s.cluster.name", "c1"),
        ("k8s.namespace.name", "<POD_NAMESPACE>"),
        ("k8s.pod.name", "<POD_NAME>"),
    ] {
        assert_eq!(resource[name], value, "{name}");
    }
    assert!(!resource.contains_key("k8s.node.name"));
    let elsewhere: BTreeMap<_, _> = super::resource("c1", |_| None).into_iter().collect();
    let process = format!("-{}", std::process::id());
    assert!(elsewhere["service.instance.id"].as_str().unwrap().ends_with(&process), "{elsewhere:?}");
}
