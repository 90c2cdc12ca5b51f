//! A second product, as small as one can be: it shows that the engine knows nothing of classic load balancers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::testbed::Testbed;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alibaba::tests::simulated::client_of;
use crate::alibaba::{Fault, FaultKind};
use crate::cluster::tests::simulated;
use crate::config::{ConfigSource, load};
use crate::controllers::loadbalancer::product::{Completed, Due, ListedBy, Product, Search, Settled, Write};
use crate::controllers::{Context, loadbalancer, registry};
use crate::fence::fence;
use crate::plan::clb::annotations::Name;
use crate::plan::clb::model::{ListenerField, ListenerKey};
use crate::plan::inputs::{Ingress, NodeView, ServiceView};
use crate::plan::loadbalancer::annotations::Annotations;
use crate::plan::loadbalancer::backends::AddressFamily;
use crate::plan::loadbalancer::cloud::{Answer, CloudModel, Observed, ObservedInstanceModel};
use crate::plan::loadbalancer::desired::{self, ProductModel, Removal, Sources};
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::group_diff::GroupModel;
use crate::plan::loadbalancer::model::DesiredGroup;
use crate::plan::loadbalancer::operation::{
    CreationModel, ListenerFields, Operation, OperationModel, OwnOperation, Part, WriteEffect,
};
use crate::plan::loadbalancer::orphans::TaggedInstance;
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, Owner};
use crate::plan::loadbalancer::problem::ScopedProblems;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::loadbalancer::steps::{self, Plan, Target};
use crate::plan::location::CloudLocation;
use crate::plan::setting::Otherwise;
use crate::telemetry::alarms::Alarms;

/// A cloud of names, which are there at once and have to be opened before they serve, which waits for a job.
#[derive(Clone, Debug, Default)]
struct Tiny(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
struct Names {
    /// By name, whether it is open.
    open: BTreeMap<String, bool>,
    /// How many looks the next jobs take; such a job fails at the last one.
    fails_after: Vec<u32>,
    /// How many looks were taken.
    looks: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TinyModel;

type Desired = desired::Desired<TinyModel>;

type Seen = Observed<TinyModel>;

/// A name in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    name: String,
    tags: LiteMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    is_open: bool,
    is_busy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Make(String),
    Open(String),
    Remove(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(name) => write!(f, "make {name}"),
            Self::Open(name) => write!(f, "open {name}"),
            Self::Remove(name) => write!(f, "remove {name}"),
        }
    }
}

impl OwnOperation for Step {
    fn effect(&self) -> (Part, WriteEffect) {
        let effect = match self {
            Self::Make(_) => WriteEffect::Makes,
            Self::Open(_) => WriteEffect::Changes,
            Self::Remove(_) => WriteEffect::Destroys,
        };
        (Part::Instance, effect)
    }
}

impl From<Step> for Operation<TinyModel> {
    fn from(step: Step) -> Self {
        Self::Own(step)
    }
}

/// It makes load balancers by a step of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl CreationModel for Never {
    fn without_tags(&self) -> Option<Self> {
        match *self {}
    }
}

impl OperationModel for TinyModel {
    const LOAD_BALANCER: &'static str = "tiny load balancer";
    const REPLACES_BACKENDS: bool = false;
    type ListenerKey = ListenerKey;
    type ListenerField = ListenerField;
    type Certificates = ();
    type HeldCertificates = ();
    type Creation = Never;
    type Own = Step;
}

fn step_of(operation: &Operation<TinyModel>) -> &Step {
    let Operation::Own(step) = operation else { unreachable!("it has steps of its own alone: {operation}") };
    step
}

impl ObservedInstanceModel for Found {
    fn tagged(&self) -> TaggedInstance<'_> {
        let name = self.name.as_str();
        TaggedInstance { id: name, name, address: name, vpc_id: "", tags: &self.tags }
    }

    fn tags_mut(&mut self) -> &mut LiteMap<String, String> {
        &mut self.tags
    }
}

impl CloudModel for TinyModel {
    const NEW_ARE_STOPPED: bool = false;
    const RUNNING: &'static str = "running";
    type ObservedInstance = Found;
    type Parts = Parts;

    fn made(wanted: &Never, _: &Answer) -> Found {
        match *wanted {}
    }

    fn apply(seen: &mut Seen, operation: &Operation<Self>, _: &Answer) {
        match step_of(operation) {
            Step::Make(name) => {
                (seen.instance, seen.parts.is_busy) = (Some(Found { name: name.clone(), ..Found::default() }), true);
            }
            Step::Open(_) => seen.parts.is_open = true,
            Step::Remove(_) => seen.instance = None,
        }
    }

    fn sent(_: ListenerKey, _: &ListenerFields<Self>, changes: &ListenerFields<Self>) -> ListenerFields<Self> {
        changes.clone()
    }

    fn must_wait(seen: &Seen, step: &steps::Step<Self>) -> bool {
        seen.parts.is_busy && matches!(step_of(&step.operation), Step::Open(_))
    }

    fn look_again(seen: &Seen) -> Option<Duration> {
        seen.parts.is_busy.then_some(Duration::from_millis(50))
    }
}

impl ProductModel for TinyModel {
    const KIND: LoadBalancerKind = LoadBalancerKind::Clb;
    type Name = Name;
    type Instance = ();
    type Access = ();
    type Extra = ();

    fn family(_: &Annotations<Name>, _: &ServiceSettings) -> AddressFamily {
        AddressFamily::V4
    }

    fn instance(_: &Sources<'_, Name>, _: &mut ScopedProblems) -> ((), ()) {
        ((), ())
    }

    fn otherwise(_: &ServiceView, _: &ServiceSettings, _: &Desired) -> Vec<Otherwise<Name>> {
        Vec::new()
    }

    fn found(_: &Found) -> Vec<(Name, String)> {
        Vec::new()
    }

    fn diff(desired: &Desired, seen: &Seen) -> Plan<TinyModel> {
        let mut plan = Plan::default();
        match seen.id() {
            None => {
                let name = desired.owner.default_name();
                plan.step(Step::Make(name.clone()), Target::LoadBalancer, [], "there is none");
                plan.step(Step::Open(name), Target::Attribute("open"), [], "it is new");
            }
            Some(name) if !seen.parts.is_open => {
                plan.step(Step::Open(name.to_owned()), Target::Attribute("open"), [], "it is closed");
            }
            _ => {}
        }
        plan
    }

    fn teardown(_: &Removal, seen: &Seen) -> Plan<TinyModel> {
        let mut plan = Plan::default();
        if let Some(name) = seen.id() {
            plan.step(Step::Remove(name.to_owned()), Target::LoadBalancer, [], "the Service leaves");
        }
        plan
    }

    fn ingress(_: &Desired, seen: &Seen, _: &[String]) -> Vec<Ingress> {
        let hostname = |name: &str| Ingress { ip: String::new(), hostname: format!("{name}.example.com") };
        seen.id().into_iter().filter(|_| seen.parts.is_open).map(hostname).collect()
    }
}

impl GroupModel for TinyModel {
    const NAMED: &'static str = "no server group";

    fn create(_: &Desired, _: &DesiredGroup, _: &mut Plan<Self>) {}
}

impl Product for Tiny {
    type Model = TinyModel;

    const CONTROLLER: &'static str = "tiny";
    const COMPONENT: &'static str = "tiny-controller";

    async fn read(&self, _: &Owner, id: &str, _: Due<'_>) -> Result<Seen, Fault> {
        let gone = || Fault::new("tiny", FaultKind::Gone, "there is none of this name");
        self.list(ListedBy::Name(id)).await?.pop().ok_or_else(gone)
    }

    async fn list(&self, by: ListedBy<'_>) -> Result<Vec<Seen>, Fault> {
        let names = self.0.lock();
        let listed = names.open.iter().filter(|(name, _)| matches!(by, ListedBy::Name(wanted) if wanted == *name));
        let seen = |(name, is_open): (&String, &bool)| Seen {
            parts: Parts { is_open: *is_open, is_busy: false },
            ..Seen::alone(Found { name: name.clone(), ..Found::default() })
        };
        Ok(listed.map(seen).collect())
    }

    async fn complete(
        &self,
        _: &Goal<TinyModel>,
        _: &mut Seen,
        _: Option<&Seen>,
        _: &Search<'_>,
    ) -> Result<Completed, Fault> {
        Ok(Completed { shows_all_made: Some(true), unread: Vec::new() })
    }

    async fn settle(&self, seen: &mut Seen, _: Duration) -> Result<Settled, Fault> {
        let mut names = self.0.lock();
        names.looks += 1;
        let mut settled = Settled::default();
        match names.fails_after.first_mut() {
            Some(looks) if *looks > 1 => *looks -= 1,
            Some(_) => {
                names.fails_after.remove(0);
                names.open.clear();
                let fault = Fault::new("tiny", FaultKind::Transient, "the job failed");
                settled.failed.push(("make it".to_owned(), fault));
            }
            None => seen.parts.is_busy = false,
        }
        Ok(settled)
    }

    async fn refresh(
        &self,
        _: &Goal<TinyModel>,
        _: &mut Seen,
        _: &Plan<TinyModel>,
        _: &Search<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    async fn place(&self, _: &mut Goal<TinyModel>, _: &[Arc<NodeView>]) -> Result<(), Fault> {
        Ok(())
    }

    async fn perform(&self, _: &Write<'_>, operation: &Operation<TinyModel>, _: &Seen) -> Result<Answer, Fault> {
        let mut names = self.0.lock();
        match step_of(operation) {
            Step::Make(name) => names.open.insert(name.clone(), false),
            Step::Open(name) => names.open.insert(name.clone(), true),
            Step::Remove(name) => names.open.remove(name),
        };
        Ok(Answer::default())
    }
}

/// Runs the engine with the tiny product beside a simulated API server.
fn start(testbed: &Testbed, product: &Tiny) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = testbed.write_config(folder.path(), &["service"], "").unwrap();
    let origin = ConfigSource { path, ..ConfigSource::default() };
    let config = load(&origin, &registry::CATALOG).unwrap().config;
    let cluster = simulated(&testbed.cluster, &config.kubernetes);
    let (keeper, fence) = fence();
    keeper.lead_unbounded();
    let (sender, config) = watch::channel(Arc::new(config));
    let stop = CancellationToken::new();
    let context = Context {
        cluster,
        cloud: client_of(&testbed.cloud),
        fence,
        location: Arc::new(CloudLocation::default()),
        config,
        alarms: Alarms::default(),
        stop: stop.clone(),
    };
    let product = product.clone();
    let running = tokio::spawn(async move {
        loadbalancer::run_product(context, move |_| product.clone()).await;
        drop((keeper, sender));
    });
    (stop, running)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "not in time: {what}");
}

fn create_service(testbed: &Testbed) {
    let metadata = json!({"name": "web", "namespace": "default"});
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "web"}});
    testbed.cluster.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).unwrap();
}

fn service(testbed: &Testbed) -> Value {
    testbed.cluster.get("Service", "default", "web").unwrap_or(Value::Null)
}

fn hostname(testbed: &Testbed) -> Option<String> {
    service(testbed)["status"]["loadBalancer"]["ingress"][0]["hostname"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn a_product_of_a_few_lines_serves_a_service_from_its_creation_to_its_deletion() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let tiny = Tiny::default();
    let (stop, running) = start(&testbed, &tiny);
    create_service(&testbed);
    until("the Service has an address", || hostname(&testbed).is_some()).await;
    let name = tiny.0.lock().open.first_key_value().unwrap().0.clone();
    assert_eq!(hostname(&testbed), Some(format!("{name}.example.com")));
    assert!(service(&testbed)["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()));

    testbed.cluster.delete("Service", "default", "web").unwrap();
    until("the Service is gone", || service(&testbed).is_null()).await;
    assert!(tiny.0.lock().open.is_empty(), "nothing is left behind");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn what_waits_for_a_job_is_done_after_it_and_a_job_that_fails_is_told_and_tried_again() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let tiny = Tiny::default();
    tiny.0.lock().fails_after = vec![3];
    let (stop, running) = start(&testbed, &tiny);
    create_service(&testbed);
    until("the Service has an address", || hostname(&testbed).is_some()).await;
    assert!(tiny.0.lock().looks >= 4, "three until it failed, and one at the job of the second try");
    until("the user is told", || {
        let events = testbed.cluster.list("Event");
        events.iter().any(|event| event["message"].as_str().is_some_and(|text| text.contains("the job failed")))
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}
