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

use crate::alibaba::CloudClient;
use crate::alibaba::transport::{Direct, Transport, TransportError};
use crate::config::checked;
use crate::config::secret::Secret;
use crate::fence::{Permit, fence};
use crate::plan::clb::model::{InstanceField, InstanceFields};

/// What the next request gets.
pub(in crate::alibaba) enum Reply {
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
    pub(in crate::alibaba) fn ok(body: Value) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_string() }
    }

    pub(in crate::alibaba) fn done() -> Self {
        Self::ok(json!({"RequestId": "R"}))
    }

    pub(in crate::alibaba) fn text(body: &str) -> Self {
        Self::Answer { status: 200, headers: Vec::new(), body: body.to_owned() }
    }

    pub(in crate::alibaba) fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new() }
    }

    pub(in crate::alibaba) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"RequestId": "R", "Code": code, "Message": message}).to_string();
        Self::Answer { status, headers: Vec::new(), body }
    }

    pub(in crate::alibaba) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(in crate::alibaba) struct Seen {
    pub(in crate::alibaba) method: Method,
    pub(in crate::alibaba) url: String,
    pub(in crate::alibaba) headers: HeaderMap,
    pub(in crate::alibaba) params: BTreeMap<String, String>,
    pub(in crate::alibaba) timeout: Duration,
    pub(in crate::alibaba) direct: bool,
}

impl Seen {
    pub(in crate::alibaba) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    pub(in crate::alibaba) fn action(&self) -> &str {
        self.param("Action").unwrap_or_default()
    }

    /// Only what the action itself takes.
    pub(in crate::alibaba) fn own_params(&self) -> BTreeMap<&str, &str> {
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
pub(in crate::alibaba) struct Script {
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
    pub(in crate::alibaba) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into_iter().collect()), seen: Mutex::default() })
    }

    pub(in crate::alibaba) fn add(&self, reply: Reply) {
        self.replies.lock().push_back(reply);
    }

    pub(in crate::alibaba) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(in crate::alibaba) fn actions(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| seen.action().to_owned()).collect()
    }

    pub(in crate::alibaba) fn only(&self) -> Seen {
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

pub(in crate::alibaba) fn access_key(id: &str) -> checked::AccessKey {
    checked::AccessKey { id: id.into(), secret: Secret::new("testsecret".into()), token: None }
}

pub(in crate::alibaba) fn config() -> checked::Cloud {
    checked::Cloud {
        region: Some("cn-hangzhou".into()),
        vpc_id: None,
        zone_id: None,
        vswitches: Vec::new(),
        cluster_id: "c1".into(),
        cluster_tag: "ack.aliyun.com".into(),
        resource_group_id: None,
        credentials: checked::Credentials::AccessKey(access_key("testid")),
        endpoints: checked::Endpoints { metadata_v1_fallback: false, ..checked::Endpoints::default() },
        budget_share: 1.0,
        quotas: BTreeMap::new(),
        timeout: Duration::from_secs(20),
    }
}

pub(in crate::alibaba) fn cloud(replies: impl IntoIterator<Item = Reply>) -> (CloudClient, Arc<Script>) {
    let script = Script::new(replies);
    (CloudClient::new(script.clone(), &config(), "cn-hangzhou"), script)
}

/// A permit without an end.
pub(in crate::alibaba) fn permit() -> Permit {
    let (keeper, fence) = fence();
    keeper.lead_unbounded();
    fence.permit(Duration::ZERO).unwrap()
}

/// What a call changes that renames a classic load balancer.
pub(in crate::alibaba) fn renamed() -> InstanceFields {
    InstanceFields::from_iter([(InstanceField::Name, "n".to_owned())])
}

/// A permit that ends after this time.
pub(in crate::alibaba) fn permit_for(time: Duration) -> Permit {
    let (keeper, fence) = fence();
    keeper.lead_until(tokio::time::Instant::now() + time);
    fence.permit(Duration::ZERO).unwrap()
}
