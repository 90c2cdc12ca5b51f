//! What copies of the program meet: an API server with the objects of the locks, and an official controller of old.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::seconds;
use crate::cluster::Cluster;
use crate::cluster::lease::record::{LeaderRecord, LockKind};
use crate::cluster::tests::fake::{Answer, Asked, cluster};

/// An API server that keeps one lease (or config map) and one Endpoints object, and can be made to fail.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) object: Option<Value>,
    pub(super) endpoints: Option<Value>,
    /// What a replica at an older API server leads by.
    pub(super) config_map: Option<Value>,
    pub(super) version: u64,
    pub(super) trouble: Trouble,
    /// Whether the one write of [`Trouble::SlowDiscovery`] has failed.
    has_failed: bool,
    pub(super) without_leases: bool,
    /// Messages of events.
    pub(super) events: Vec<String>,
}

/// What the official controller is up to v1.9.3: it knows Endpoints only, and gives nothing back.
pub(super) struct OldController {
    renewed: Arc<Mutex<Option<Instant>>>,
    pub(super) running: tokio::task::JoinHandle<()>,
}

impl OldController {
    pub(super) fn leads(&self) -> bool {
        self.renewed.lock().is_some_and(|at| at.elapsed() < Duration::from_secs(10))
    }
}

const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Trouble {
    #[default]
    None,
    /// Nothing is answered.
    Silence,
    /// Writes take effect, but the answer is lost.
    LostAnswers,
    /// After the next read, the last write is made once more, as if it had been on its way.
    LateWrite,
    /// One write fails, and what the API server offers is not answered from then on.
    SlowDiscovery,
    /// The machine sleeps while the next write is on its way.
    Suspension,
    /// An older API server beside this one answers.
    OldServer,
}

impl Server {
    pub(super) fn cluster(&self) -> Cluster {
        let state = self.state.clone();
        cluster(move |asked| state.lock().answer(&asked))
    }

    pub(super) fn set(&self, trouble: Trouble) {
        self.state.lock().trouble = trouble;
    }

    pub(super) fn record(&self, lock: LockKind) -> LeaderRecord {
        let state = self.state.lock();
        let object = if lock == LockKind::Endpoints { &state.endpoints } else { &state.object };
        lock.read(object.as_ref().unwrap())
    }

    pub(super) fn old_controller(&self) -> OldController {
        let (renewed, state) = (Arc::new(Mutex::new(None)), self.state.clone());
        let told = renewed.clone();
        let running = tokio::spawn(async move {
            let mut seen = (String::new(), Instant::now());
            loop {
                let round = state.lock().old_round(&mut seen);
                if round.is_some() {
                    *told.lock() = round;
                }
                seconds(2).await;
            }
        });
        OldController { renewed, running }
    }
}

impl State {
    /// Takes what is free and keeps what is its own; when that was, or `None` if nothing is known.
    fn old_round(&mut self, (seen, since): &mut (String, Instant)) -> Option<Instant> {
        if self.trouble != Trouble::None {
            return None;
        }
        let annotation = self.endpoints.as_ref().and_then(|object| object["metadata"]["annotations"][LEADER].as_str());
        let text = annotation.unwrap_or_default().to_owned();
        if text != *seen {
            (*seen, *since) = (text, Instant::now());
        }
        let record: Value = serde_json::from_str(seen).unwrap_or_default();
        if record["holderIdentity"] != "ccm-old" && self.endpoints.is_some() && since.elapsed().as_secs() < 15 {
            return None;
        }
        self.version += 1;
        let written = json!({
            "holderIdentity": "ccm-old", "leaseDurationSeconds": 15, "leaderTransitions": 3,
            "acquireTime": "2019-01-02T03:04:05Z", "renewTime": format!("renewal {}", self.version),
        });
        let version = self.version.to_string();
        let metadata = json!({ "resourceVersion": version, "annotations": { LEADER: written.to_string() } });
        self.endpoints = Some(json!({ "metadata": metadata }));
        Some(Instant::now())
    }

    pub(super) fn answer(&mut self, asked: &Asked) -> Answer {
        if asked.path.contains("/events") {
            self.events.push(asked.body["message"].as_str().unwrap().to_owned());
            return Answer::Json(201, json!({}));
        }
        if self.trouble == Trouble::Silence {
            return Answer::Silence;
        }
        if asked.path == "/apis/coordination.k8s.io/v1" && self.trouble != Trouble::OldServer {
            if self.trouble == Trouble::SlowDiscovery {
                return Answer::Silence;
            }
            return if self.without_leases { Answer::error(404, "not found") } else { Answer::Json(200, json!({})) };
        }
        if self.trouble == Trouble::OldServer && asked.path.starts_with("/apis/coordination.k8s.io/") {
            return Answer::error(404, "not found");
        }
        if !self.without_leases && asked.path == "/api/v1/namespaces/kube-system/configmaps/ccm" {
            return self.config_map.clone().map_or_else(|| Answer::error(404, "not found"), |it| Answer::Json(200, it));
        }
        let endpoints = asked.path.starts_with("/api/v1/namespaces/kube-system/endpoints");
        let expected = if endpoints {
            "/api/v1/namespaces/kube-system/endpoints"
        } else if self.without_leases {
            "/api/v1/namespaces/kube-system/configmaps"
        } else {
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        };
        assert!(asked.path.starts_with(expected), "{asked:?}");
        let mut written = asked.body.clone();
        let kept = if endpoints { &mut self.endpoints } else { &mut self.object };
        let current = kept.as_ref().map(|object| object["metadata"]["resourceVersion"].clone());
        match asked.method {
            Method::GET => match kept {
                Some(object) => {
                    let read = object.clone();
                    if self.trouble == Trouble::LateWrite {
                        self.trouble = Trouble::None;
                        self.version += 1;
                        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                    }
                    return Answer::Json(200, read);
                }
                None => return Answer::error(404, "not found"),
            },
            Method::POST if kept.is_some() => return Answer::error(409, "it exists already"),
            Method::PUT if Some(&written["metadata"]["resourceVersion"]) != current.as_ref() => {
                return Answer::error(409, "it was modified");
            }
            _ => {}
        }
        if self.trouble == Trouble::SlowDiscovery && !std::mem::replace(&mut self.has_failed, true) {
            return Answer::error(500, "not now");
        }
        self.version += 1;
        written["metadata"]["resourceVersion"] = json!(self.version.to_string());
        *kept = Some(written.clone());
        match self.trouble {
            Trouble::LostAnswers => Answer::Broken,
            Trouble::Suspension => {
                self.trouble = Trouble::None;
                crate::clock::sleep_unseen(Duration::from_secs(30));
                Answer::Json(200, written)
            }
            _ => Answer::Json(200, written),
        }
    }
}
