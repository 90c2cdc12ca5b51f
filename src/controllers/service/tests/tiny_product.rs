//! A second product, as small as one can be: it shows that the engine knows nothing of classic load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sim::cluster::Version;
use sim::testbed::Testbed;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::alibaba::Fault;
use crate::alibaba::tests::simulated::client_of;
use crate::cluster::tests::simulated;
use crate::config::{Origin, load};
use crate::controllers::service::creations::Inventory;
use crate::controllers::service::product::{Facts, FindError, Found, Owned, Product, Search, Write};
use crate::controllers::{Context, registry, service};
use crate::fence::fence;
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::service::handling::LoadBalancerKind;
use crate::plan::service::model::{DesiredGroup, GroupRef, Inputs, ObservedGroup};
use crate::plan::service::ownership::Owner;
use crate::plan::service::settings::ServiceSettings;
use crate::plan::service::steps::{Operation, Plan, RefusedBackends, Room, Target};
use crate::telemetry::alarms::Alarms;

/// A cloud that is one set of names.
#[derive(Clone, Debug, Default)]
struct Tiny(Arc<Mutex<BTreeSet<String>>>);

#[derive(Debug)]
struct Goal {
    owner: Owner,
    wanted: bool,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    name: Option<String>,
    groups: BTreeMap<String, ObservedGroup>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Make(String),
    Remove(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(name) => write!(f, "make {name}"),
            Self::Remove(name) => write!(f, "remove {name}"),
        }
    }
}

impl Operation for Step {
    fn destroys(&self) -> bool {
        matches!(self, Self::Remove(_))
    }

    fn creates(&self) -> bool {
        matches!(self, Self::Make(_))
    }

    fn makes(&self) -> Option<&str> {
        None
    }

    fn backends_of(&self) -> Option<&GroupRef> {
        None
    }

    fn refused_backends(&self) -> RefusedBackends<Self> {
        RefusedBackends::None
    }

    fn room(&self) -> Room {
        Room::Neither
    }
}

static NO_GROUPS: BTreeMap<String, DesiredGroup> = BTreeMap::new();
static NO_ADDRESSES: BTreeSet<IpAddr> = BTreeSet::new();

impl Product for Tiny {
    type Goal = Goal;
    type Observed = Seen;
    type Operation = Step;
    type Answer = ();

    const CONTROLLER: &'static str = "tiny";
    const COMPONENT: &'static str = "tiny-controller";
    const KIND: LoadBalancerKind = LoadBalancerKind::Classic;

    fn attached_pods(_: &ServiceView, _: &[Arc<NodeView>], _: &EndpointsView, _: &ServiceSettings) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    fn desire(inputs: &Inputs<'_>) -> Goal {
        Goal { owner: Owner::of(inputs.service, inputs.settings), wanted: true }
    }

    fn removal(service: &ServiceView, settings: &ServiceSettings) -> Goal {
        Goal { owner: Owner::of(service, settings), wanted: false }
    }

    fn facts(goal: &Goal) -> Facts<'_> {
        Facts {
            owner: &goal.owner,
            lock: goal.owner.default_name(),
            is_named: false,
            is_kept: false,
            groups: &NO_GROUPS,
            warnings: &[],
            empty_ports: Vec::new(),
            is_blackout: false,
            unresolved: &NO_ADDRESSES,
            outside: &NO_ADDRESSES,
            publishes_elastic: false,
        }
    }

    fn is_of(goal: &Goal, seen: &Seen) -> bool {
        seen.name.as_ref() == Some(&goal.owner.default_name())
    }

    fn diff(goal: &Goal, seen: &Seen) -> Plan<Step> {
        let mut plan = Plan::default();
        match &seen.name {
            None if goal.wanted => {
                plan.step(Step::Make(goal.owner.default_name()), Target::LoadBalancer, [], "there is none");
            }
            Some(name) if !goal.wanted => {
                plan.step(Step::Remove(name.clone()), Target::LoadBalancer, [], "the Service leaves");
            }
            _ => {}
        }
        plan
    }

    fn apply(seen: &mut Seen, step: &Step, (): &()) {
        seen.name = match step {
            Step::Make(name) => Some(name.clone()),
            Step::Remove(_) => None,
        };
    }

    fn load_balancer(seen: &Seen) -> Option<&str> {
        seen.name.as_deref()
    }

    fn groups(seen: &Seen) -> &BTreeMap<String, ObservedGroup> {
        &seen.groups
    }

    fn inventory(seen: &Seen) -> Inventory {
        Inventory { load_balancer: seen.name.clone().unwrap_or_default(), ..Inventory::default() }
    }

    fn is_serving(_: &Seen, _: &Step) -> bool {
        false
    }

    fn ingress(_: &Goal, seen: &Seen, _: &[String]) -> Vec<Ingress> {
        let hostname = |name: &String| Ingress { ip: String::new(), hostname: format!("{name}.example.com") };
        seen.name.iter().map(hostname).collect()
    }

    fn ingress_details(_: &ServiceView, _: &Goal, _: &Seen, _: &[Ingress], _: bool) -> Vec<IngressDetails> {
        Vec::new()
    }

    async fn resolve(&self, _: &mut Goal) -> Result<(), Fault> {
        Ok(())
    }

    async fn find(&self, goal: &mut Goal, _: &Search<'_>) -> Result<Found<Seen>, FindError> {
        let name = goal.owner.default_name();
        if self.0.lock().contains(&name) {
            return Ok(Found::LoadBalancer(Seen { name: Some(name), groups: BTreeMap::new() }));
        }
        Ok(Found::Absent { proven: true })
    }

    async fn complete(&self, _: &Goal, _: &mut Seen, _: &Search<'_>) -> Result<bool, Fault> {
        Ok(true)
    }

    async fn refresh(&self, _: &Goal, _: &mut Seen, _: &Plan<Step>, _: &Search<'_>) -> Result<(), Fault> {
        Ok(())
    }

    async fn place(&self, _: &mut Goal, _: &[Arc<NodeView>]) {}

    async fn elastic_addresses(&self, _: &str) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    async fn owned(&self, _: &[Arc<ServiceView>], _: &ServiceSettings) -> Result<Owned, Fault> {
        Ok(Owned::default())
    }

    async fn perform(&self, _: &Write<'_>, step: &Step, _: &Seen) -> Result<(), Fault> {
        match step {
            Step::Make(name) => self.0.lock().insert(name.clone()),
            Step::Remove(name) => self.0.lock().remove(name),
        };
        Ok(())
    }
}

/// Runs the engine with the tiny product beside a simulated API server.
fn start(testbed: &Testbed, product: &Tiny) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = testbed.write_config(folder.path(), &["service"], "").unwrap();
    let origin = Origin { path, environment: BTreeMap::new(), overrides: Vec::new() };
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
        place: Arc::new(CloudLocation::default()),
        config,
        alarms: Alarms::default(),
        stop: stop.clone(),
    };
    let product = product.clone();
    let running = tokio::spawn(async move {
        service::run_product(context, move |_| product.clone()).await;
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

#[tokio::test]
async fn a_product_of_a_few_lines_serves_a_service_from_its_creation_to_its_deletion() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let tiny = Tiny::default();
    let (stop, running) = start(&testbed, &tiny);
    let metadata = json!({"name": "web", "namespace": "default"});
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "web"}});
    testbed.cluster.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).unwrap();
    let service = || testbed.cluster.get("Service", "default", "web").unwrap_or(Value::Null);
    let hostname = || service()["status"]["loadBalancer"]["ingress"][0]["hostname"].as_str().map(str::to_owned);
    until("the Service has an address", || hostname().is_some()).await;
    let name = tiny.0.lock().first().cloned().unwrap();
    assert_eq!(hostname(), Some(format!("{name}.example.com")));
    assert!(service()["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()));

    testbed.cluster.delete("Service", "default", "web").unwrap();
    until("the Service is gone", || service().is_null()).await;
    assert!(tiny.0.lock().is_empty(), "nothing is left behind");
    stop.cancel();
    running.await.unwrap();
}
