//! The HTTP side: from a request to its answer, in process or over loopback.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::stream;
use http::{Method, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::Cluster;
use super::discovery::{self, Document};
use super::failure::Failure;
use super::faults::Step;
use super::patch::Format;
use super::protobuf;
use super::reads::{self, View};
use super::request::{Request, text};
use super::selectors::Selector;
use super::version::Feature;
use super::watch::Watcher;
use super::writes::{self, Target};
use super::{convert, object};

/// Body of an answer; a watch's goes on until the watch ends.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The connection broke and there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection was closed before the answer")
    }
}

impl std::error::Error for Lost {}

/// A running listener with its connections.
#[derive(Debug)]
pub(super) struct Listening {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Closes the listener and all connections.
    pub(super) async fn stop(self) {
        // Either fails only if the task has ended already.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

enum Answer {
    Object(StatusCode, Value),
    List(String),
    Watch(Box<Watcher>),
}

impl Cluster {
    /// Answers one request in process, as if it came over the wire.
    pub async fn handle<B>(&self, request: http::Request<B>) -> Result<Response<Body>, Lost>
    where
        B: HttpBody,
    {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        if self.shared.away.load(Ordering::Relaxed) {
            return Err(Lost);
        }
        let authorization = text(&parts.headers, header::AUTHORIZATION);
        let user = self.shared.access.lock().authenticate(Some(&authorization));
        let user = match user {
            Ok(user) => user,
            Err(failure) => return Ok(refusal(&failure)),
        };
        let accept = text(&parts.headers, header::ACCEPT);
        match discovery::answer(self.version(), parts.uri.path()) {
            Some(_) if parts.method != Method::GET => return Ok(refusal(&Failure::method_not_allowed())),
            Some(Ok(document)) => return Ok(self.document(document, &accept)),
            Some(Err(failure)) => return Ok(refusal(&failure)),
            None => {}
        }
        match Request::read(self.version(), &parts) {
            Ok(request) => self.answer(request, &user, &body).await,
            Err(failure) => Ok(refusal(&failure)),
        }
    }

    fn document(&self, document: Document, accept: &str) -> Response<Body> {
        match document {
            Document::Json(value) => json_response(StatusCode::OK, &value),
            Document::Text(text) => response(StatusCode::OK, "text/plain; charset=utf-8", text),
            Document::OpenApiV2 if accept.contains("proto-openapi") => {
                let media_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
                response(StatusCode::OK, media_type, discovery::open_api_v2_protobuf(self.version()))
            }
            Document::OpenApiV2 => json_response(StatusCode::OK, &discovery::open_api_v2(self.version())),
        }
    }

    async fn answer(&self, request: Request, user: &str, body: &Bytes) -> Result<Response<Body>, Lost> {
        let read = serde_json::from_slice(body).ok();
        let plan = self.shared.faults.lock().plan(&request, read.as_ref().unwrap_or(&Value::Null));
        let call = self.shared.log.lock().open(&request, user, read);
        let mut refused = self.shared.access.lock().authorize(user, &request).err();
        for step in plan.before {
            refused = refused.or(self.take(step).await?);
        }
        let answer = match refused {
            Some(failure) => Err(failure),
            None => self.execute(&request, user, body),
        };
        for step in plan.after {
            self.take(step).await?;
        }
        let response = match answer {
            Ok(Answer::Object(status, value)) => json_response(status, &value),
            Ok(Answer::List(text)) => json_text(StatusCode::OK, text),
            Ok(Answer::Watch(watcher)) => watch_response(*watcher),
            Err(failure) => refusal(&failure),
        };
        self.shared.log.lock().close(call, response.status().as_u16());
        Ok(response)
    }

    async fn take(&self, step: Step) -> Result<Option<Failure>, Lost> {
        match step {
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Pass(point) => {
                if !point.pass().await {
                    return Err(Lost);
                }
            }
            Step::DropWatches => self.drop_watches(),
            Step::Refuse(failure) => return Ok(Some(failure)),
            Step::Lose => return Err(Lost),
        }
        Ok(None)
    }

    fn execute(&self, request: &Request, user: &str, body: &Bytes) -> Result<Answer, Failure> {
        let shared = &self.shared;
        let view = View::of(request, shared);
        let target = Target {
            rules: shared.rules(),
            now: shared.clock.now(),
            resource: request.resource,
            namespace: &request.namespace,
            name: &request.name,
            status: request.subresource == "status",
            dry_run: dry_run(self, request)?,
        };
        let made = |created| if created { StatusCode::CREATED } else { StatusCode::OK };
        match request.verb {
            "list" => reads::list(shared, request).map(Answer::List),
            "get" => reads::get(shared, request).map(ok),
            "watch" => Watcher::open(shared, request).map(|watcher| Answer::Watch(Box::new(watcher))),
            "create" if matches!(request.resource.plural, "tokenreviews" | "subjectaccessreviews") => {
                let mut review = decode(request, body)?;
                review["status"] = shared.access.lock().review(request.resource.plural, &review["spec"]);
                Ok(Answer::Object(StatusCode::CREATED, review))
            }
            "create" if request.resource.kind == "SelfSubjectAccessReview" => {
                let mut review = decode(request, body)?;
                review["status"] = shared.access.lock().review_self(user, &review["spec"]);
                Ok(Answer::Object(StatusCode::CREATED, review))
            }
            "create" => {
                let new = decode(request, body)?;
                let object = writes::create(&mut shared.store.lock(), target, new)?;
                Ok(Answer::Object(StatusCode::CREATED, view.one(&object)))
            }
            "update" => {
                let new = decode(request, body)?;
                let (object, created) = writes::replace(&mut shared.store.lock(), target, new)?;
                Ok(Answer::Object(made(created), view.one(&object)))
            }
            "patch" => {
                let (format, changes) = self.decode_patch(request, body)?;
                let (object, created) = writes::patch(&mut shared.store.lock(), target, format, &changes)?;
                Ok(Answer::Object(made(created), view.one(&object)))
            }
            "delete" => {
                let options = delete_options(body)?;
                let deleted = writes::delete(&mut shared.store.lock(), target, &options)?;
                if !deleted.gone || request.resource.returns_deleted {
                    return Ok(ok(view.one(&deleted.object)));
                }
                Ok(ok(json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {
                        "name": request.name,
                        "group": request.resource.group,
                        "kind": request.resource.plural,
                        "uid": object::text(&deleted.object, "/metadata/uid"),
                    },
                })))
            }
            "deletecollection" => self.delete_collection(request, target, body),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn delete_collection(&self, request: &Request, target: Target<'_>, body: &Bytes) -> Result<Answer, Failure> {
        let resource = request.resource;
        let selector =
            Selector::parse(resource, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
        let options = delete_options(body)?;
        let list = reads::list(&self.shared, request)?;
        let mut store = self.shared.store.lock();
        let keys: Vec<_> = store
            .list(resource, &request.namespace)
            .filter(|(_, object)| selector.matches(object))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            writes::delete(&mut store, Target { namespace: &key.namespace, name: &key.name, ..target }, &options)?;
        }
        Ok(Answer::List(list))
    }

    fn decode_patch(&self, request: &Request, body: &Bytes) -> Result<(Format, Value), Failure> {
        let mut known = vec![
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ];
        if self.version().has(Feature::ServerSideApply) {
            known.push("application/apply-patch+yaml");
        }
        let format = Format::from_media_type(&request.content_type)
            .filter(|_| known.contains(&request.content_type.as_str()))
            .ok_or_else(|| Failure::unsupported_media_type(&request.content_type, &known))?;
        let mut changes = parse(body)?;
        if format == Format::Apply && request.parameter("fieldManager").is_empty() {
            let why =
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
            return Err(Failure::new(422, "Invalid", why));
        }
        if format != Format::Json {
            convert::patch_to_stored(request.resource, &request.version, &mut changes);
        }
        Ok((format, changes))
    }

    /// Serves a listener until `stop` is ready, and closes it and all its connections then.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                    // Watch events are small and must not wait for more.
                    let _ = socket.set_nodelay(true);
                    connections.spawn(connection(self.clone(), socket));
                },
                Some(_) = connections.join_next() => {}
                () = &mut stop => break,
            }
        }
        drop(listener);
        connections.shutdown().await;
    }

    pub(super) fn spawn_listener(&self, listener: TcpListener) -> Listening {
        let cluster = self.clone();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                // Without a sender nobody can stop it any more, so it stops.
                let _ = stopped.await;
            };
            cluster.serve(listener, stopped).await;
        });
        Listening { stop, task }
    }
}

async fn connection(cluster: Cluster, socket: tokio::net::TcpStream) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let cluster = cluster.clone();
        async move {
            if request.method() == Method::GET {
                return cluster.handle(request).await;
            }
            // A client that gives up must not undo what it asked for: a write goes on without its connection.
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
            let request = http::Request::from_parts(parts, Full::new(body));
            tokio::spawn(async move { cluster.handle(request).await }).await.unwrap_or(Err(Lost))
        }
    });
    // An error here is the client's or the fault dial's; both have noticed.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

fn ok(value: Value) -> Answer {
    Answer::Object(StatusCode::OK, value)
}

fn dry_run(cluster: &Cluster, request: &Request) -> Result<bool, Failure> {
    match request.parameter("dryRun") {
        "" => Ok(false),
        "All" if cluster.version().has(Feature::DryRun) => Ok(true),
        other => Err(Failure::bad_request(format!("dryRun: Unsupported value: {other:?}: supported values: \"All\""))),
    }
}

fn parse(body: &Bytes) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|why| {
        Failure::bad_request(format!("the object provided is unrecognized: couldn't parse the body: {why}"))
    })
}

fn decode(request: &Request, body: &Bytes) -> Result<Value, Failure> {
    let unsupported = || Failure::unsupported_media_type(&request.content_type, &["application/json"]);
    let mut value = match request.content_type.as_str() {
        "" | "application/json" => parse(body)?,
        "application/vnd.kubernetes.protobuf" => protobuf::decode(body).ok_or_else(unsupported)?,
        _ => return Err(unsupported()),
    };
    let resource = request.resource;
    let wanted = (resource.api_version(&request.version), resource.kind);
    let given = (object::text(&value, "/apiVersion"), object::text(&value, "/kind"));
    // Clients with typed objects may leave both out.
    if (!given.0.is_empty() && given.0 != wanted.0) || (!given.1.is_empty() && given.1 != wanted.1) {
        let message = format!(
            "{} in version {:?} cannot be handled as a {}: no kind {:?} matches {:?}",
            given.1, given.0, wanted.1, given.1, wanted.0
        );
        return Err(Failure::bad_request(message));
    }
    convert::to_stored(resource, &request.version, &mut value);
    Ok(value)
}

fn delete_options(body: &Bytes) -> Result<Value, Failure> {
    if body.is_empty() { Ok(Value::Null) } else { parse(body) }
}

fn response(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media_type));
    response
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    json_text(status, value.to_string())
}

fn json_text(status: StatusCode, mut text: String) -> Response<Body> {
    text.push('\n');
    response(status, "application/json", text)
}

fn refusal(failure: &Failure) -> Response<Body> {
    let status = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if failure.reason.is_empty() {
        return response(status, "text/plain; charset=utf-8", failure.message.clone());
    }
    let mut response = json_response(status, &failure.status());
    if let Some(seconds) = failure.details.get("retryAfterSeconds").and_then(Value::as_u64) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn watch_response(watcher: Watcher) -> Response<Body> {
    let events = stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((line.map(Frame::data), watcher))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// Where a kubeconfig file points to.
pub(super) fn kubeconfig(address: SocketAddr, token: Option<&str>) -> String {
    let user = token.map_or_else(|| "{}".to_owned(), |token| format!("{{ token: {token:?} }}"));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: sim\n  cluster: {{ server: \"http://{address}\" }}\n\
         users:\n- name: sim\n  user: {user}\ncontexts:\n- name: sim\n  context: {{ cluster: sim, user: sim }}\n\
         current-context: sim\n"
    )
}
