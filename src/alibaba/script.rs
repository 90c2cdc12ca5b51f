//! A cloud of prepared answers, for tests of what goes out and what is made of what comes back.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Cloud;
use super::transport::{Direct, Transport, TransportError};
use crate::config::checked;
use crate::config::secret::Secret;
use crate::fence::{Permit, fence};

/// What the next request gets.
pub(super) enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    Fails(TransportError),
    Never,
    /// Something happens in the world just before the answer.
    After(Box<dyn FnOnce() + Send>, Box<Self>),
}

impl Reply {
    pub(super) fn ok(body: Value) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_string() }
    }

    pub(super) fn done() -> Self {
        Self::ok(json!({"RequestId": "R"}))
    }

    pub(super) fn text(body: &str) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_owned() }
    }

    pub(super) fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new() }
    }

    pub(super) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"RequestId": "R", "Code": code, "Message": message}).to_string();
        Self::Answer { status, headers: Vec::new(), body }
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) params: BTreeMap<String, String>,
    pub(super) timeout: Duration,
    pub(super) direct: bool,
}

impl Seen {
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    pub(super) fn action(&self) -> &str {
        self.param("Action").unwrap_or_default()
    }

    /// Only what the action itself takes.
    pub(super) fn own_params(&self) -> BTreeMap<&str, &str> {
        const COMMON: [&str; 11] = [
            "AccessKeyId",
            "Action",
            "Format",
            "RegionId",
            "SecurityToken",
            "Signature",
            "SignatureMethod",
            "SignatureNonce",
            "SignatureVersion",
            "Timestamp",
            "Version",
        ];
        let own = self.params.iter().filter(|(name, _)| !COMMON.contains(&name.as_str()));
        own.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

#[derive(Default)]
pub(super) struct Script {
    replies: Mutex<VecDeque<Reply>>,
    seen: Mutex<Vec<Seen>>,
}

/// Shows nothing, so that tests can tell what the types around it show.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

impl Script {
    pub(super) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into_iter().collect()), seen: Mutex::default() })
    }

    pub(super) fn add(&self, reply: Reply) {
        self.replies.lock().push_back(reply);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(super) fn actions(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| seen.action().to_owned()).collect()
    }

    pub(super) fn only(&self) -> Seen {
        let seen = self.seen.lock();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

impl Transport for Script {
    fn send(
        &self,
        request: Request<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
        let body = std::str::from_utf8(request.body()).unwrap();
        let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
        self.seen.lock().push(Seen {
            method: request.method().clone(),
            url: request.uri().to_string(),
            headers: request.headers().clone(),
            params: pairs.map(|(name, value)| (decode(name), decode(value))).collect(),
            timeout,
            direct: request.extensions().get::<Direct>().is_some(),
        });
        let mut reply = self.replies.lock().pop_front().expect("a prepared answer for each request");
        if let Reply::After(happens, then) = reply {
            happens();
            reply = *then;
        }
        Box::pin(async move {
            match reply {
                Reply::Answer { status, headers, body } => {
                    let mut response = Response::builder().status(status);
                    for (name, value) in headers {
                        response = response.header(name, value);
                    }
                    Ok(response.body(Bytes::from(body)).unwrap())
                }
                Reply::Fails(error) => Err(error),
                Reply::Never | Reply::After(..) => std::future::pending().await,
            }
        })
    }
}

pub(super) fn access_key(id: &str) -> checked::AccessKey {
    checked::AccessKey { id: id.into(), secret: Secret::new("testsecret".into()), token: None }
}

pub(super) fn config() -> checked::Cloud {
    checked::Cloud {
        region: Some("cn-hangzhou".into()),
        vpc_id: None,
        zone_id: None,
        vswitches: Vec::new(),
        cluster_id: "c1".into(),
        cluster_tag: "ack.aliyun.com".into(),
        resource_group_id: None,
        credentials: checked::Credentials::AccessKey(access_key("testid")),
        endpoints: checked::Endpoints {
            vpc_network: true,
            plain_http: false,
            overrides: BTreeMap::new(),
            metadata: "http://100.100.100.200".into(),
            metadata_v1_fallback: false,
        },
        budget_share: 1.0,
        quotas: BTreeMap::new(),
        timeout: Duration::from_secs(20),
    }
}

pub(super) fn cloud(replies: impl IntoIterator<Item = Reply>) -> (Cloud, Arc<Script>) {
    let script = Script::new(replies);
    (Cloud::new(script.clone(), &config(), "cn-hangzhou"), script)
}

/// A permit without an end.
pub(super) fn permit() -> Permit {
    let (keeper, fence) = fence();
    keeper.lead_unbounded();
    fence.permit(Duration::ZERO).unwrap()
}

/// A permit that ends after this time.
pub(super) fn permit_for(time: Duration) -> Permit {
    let (keeper, fence) = fence();
    keeper.lead_until(tokio::time::Instant::now() + time);
    fence.permit(Duration::ZERO).unwrap()
}
