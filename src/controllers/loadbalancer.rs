//! The service engine: a load balancer for each Service of type LoadBalancer.
//!
//! [`run`] decides when a Service is reconciled, `engine` reconciles it, `prepare` makes the plan, `dry_run` prints the plan,
//! and `explain` explains one Service. A `product` has what is specific to one kind of load balancer: `clb` and `nlb`.

mod account_check;
mod candidates;
mod clb;
mod condition;
mod creations;
mod drift;
mod dry_run;
mod engine;
mod execute;
mod explain;
mod find;
mod left_behind;
mod lint;
mod nlb;
mod orphans;
mod pages;
mod prepare;
mod product;
mod readiness;
mod references;
mod refusals;
mod report;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod texts;
mod together;
mod tolerance;
mod writes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::info;

use self::account_check::AccountCheck;
use self::clb::ClbProduct;
use self::drift::DriftSchedule;
use self::engine::Engine;
pub use self::explain::{declines, unhandled};
pub use self::lint::{Linted, help, lint};
use self::nlb::NlbProduct;
use self::orphans::Vanished;
pub use self::orphans::{nlb_orphans, orphans};
use self::prepare::{Locks, Preparer};
use self::product::Product;
use self::references::Resolver;
#[cfg(test)]
pub(in crate::controllers) use self::report::pause;
use self::state::States;
use super::workqueue;
use super::{Clients, Context, Previewed};
use crate::alibaba::CloudClient;
use crate::cluster::{Cluster, DirtyKeys, Watched};
use crate::config::Config;
use crate::fence::Fence;
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView};
use crate::plan::loadbalancer::desired::ProductModel;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::settings::{ServiceSettings, VSwitchChoice};
use crate::plan::loadbalancer::unready::UnreadyNodes;
use crate::plan::location::CloudLocation;
use crate::telemetry::alarms::Alarms;

/// Name of the controller of classic load balancers, in the configuration, in logs and in metrics.
pub const NAME: &str = "service";
/// That of the controller of network load balancers.
pub const NLB: &str = "nlb";

/// How long node changes are collected before the Services that use nodes are reconciled.
const NODE_AGGREGATION: Duration = Duration::from_millis(200);

/// Time between looks for Services whose turn comes to call what a quota limits.
const LOOK_FOR_TURNS: Duration = Duration::from_secs(1);

/// Keeps load balancers until `context.stop`.
pub async fn run(context: Context) {
    run_product(context, |context| ClbProduct::new(&context.cloud, context.location.clone())).await;
}

/// Keeps network load balancers until `context.stop`.
pub async fn run_nlb(context: Context) {
    run_product(context, |context| NlbProduct::new(&context.cloud, context.location.clone())).await;
}

/// Runs the controller of one product, one leadership term after the other.
async fn run_product<P: Product>(context: Context, product: impl Fn(&Context) -> P) {
    let stop = context.stop.clone();
    let mut fence = context.fence.clone();
    let views = Views::of(&context.cluster);
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        () = views.synced(&context.cluster) => {}
    }
    while !stop.is_cancelled() {
        let lease = context.config.borrow().leader_election.lease_duration;
        let missed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            missed = changes_until_the_lead(&views, &mut fence, 2 * lease) => missed,
        };
        // What another leader did meanwhile is unknown: every term starts without memory, and with everything due.
        run_term(&context, &views, product(&context), &missed).await;
        context.alarms.clear(P::CONTROLLER);
        context.cluster.events().forget(P::COMPONENT, |_| true);
    }
}

/// Waits until this process leads. Gives the Services that changed within `period` before, as the former leader may not have
/// come to them, and perhaps some that changed earlier.
async fn changes_until_the_lead(views: &Views, fence: &mut Fence, period: Duration) -> BTreeSet<ObjectKey> {
    let mut changed = views.services.store.subscribe();
    views.endpoints.store.add_to(&changed);
    // What is there already has not changed.
    changed.take();
    let mut before = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = fence.gained() => break,
            () = tokio::time::sleep(period) => before = changed.take(),
        }
    }
    before.extend(changed.take());
    before
}

/// Reconciles Services until the lead is lost or the controller stops, at first those that changed before.
async fn run_term<P: Product>(context: &Context, views: &Views, product: P, missed: &BTreeSet<ObjectKey>) {
    let term = context.stop.child_token();
    let mut fence = context.fence.clone();
    let vanished = Vanished::default();
    let states = States::new(P::CONTROLLER, context.alarms.clone(), vanished.clone());
    let connections = (context.cluster.clone(), context.cloud.clone(), context.location.clone());
    let preparer = preparer(product, connections, views.clone(), states);
    let engine = Arc::new(Engine::new(context.clone(), preparer));
    engine.put_ahead(missed);
    let (sender, keys) = mpsc::unbounded_channel();
    let driver = workqueue::drive(engine.clone(), keys, term.clone());
    let work = async {
        let orphans = orphans::watch(context, engine.product(), views, &vanished);
        tokio::join!(biased; trigger(context, views, &engine, &sender), engine.warm(), orphans)
    };
    let end_of_term = async {
        tokio::select! {
            biased;
            ((), (), ()) = work => {}
            () = fence.lost() => info!(controller = P::CONTROLLER, "leadership is lost: the next leader goes on"),
        }
        term.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = driver => {}
        () = end_of_term => {}
    }
}

/// The plan for all Services, or for one with its desired and observed state. Writes nothing.
///
/// # Errors
/// A list is missing, or the cloud did not answer.
pub async fn plan(
    kind: LoadBalancerKind,
    clients: &Clients,
    config: &Config,
    only: Option<&ObjectKey>,
) -> Result<Previewed, String> {
    match kind {
        LoadBalancerKind::Clb => plan_product(clb_product(clients), clients, config, only).await,
        LoadBalancerKind::Nlb => plan_product(nlb_product(clients), clients, config, only).await,
    }
}

fn clb_product(clients: &Clients) -> ClbProduct {
    ClbProduct::new(&clients.cloud, Arc::new(clients.location.clone()))
}

fn nlb_product(clients: &Clients) -> NlbProduct {
    NlbProduct::new(&clients.cloud, Arc::new(clients.location.clone()))
}

async fn plan_product<P: Product>(
    product: P,
    clients: &Clients,
    config: &Config,
    only: Option<&ObjectKey>,
) -> Result<Previewed, String> {
    let Clients { cluster, cloud, location } = clients;
    let location = Arc::new(location.clone());
    let views = Views::of(cluster);
    views.listed(cluster).await?;
    let settings = Arc::new(settings_of::<P>(config, cluster.uid(), &location));
    let states = States::new(P::CONTROLLER, Alarms::default(), Vanished::default());
    let preparer = preparer(product, (cluster.clone(), cloud.clone(), location), views, states);
    let Some(key) = only else {
        let lines = dry_run::plan(&preparer, cluster, &settings).await.map_err(|fault| fault.to_string())?;
        return Ok(Previewed { lines, ..Previewed::default() });
    };
    let Some(service) = preparer.views.services.store.get(key) else { return Ok(Previewed::default()) };
    dry_run::plan_service(&preparer, cluster, &settings, service).await.map_err(|fault| fault.to_string())
}

/// What planning needs to know of the configuration, of the cluster and of where this process runs.
fn settings_of<P: Product>(config: &Config, cluster_uid: &str, location: &CloudLocation) -> ServiceSettings {
    // Without a stated choice, intranet load balancers go where this instance is.
    let here =
        || (!location.vswitch_id.is_empty()).then(|| VSwitchChoice { zone: None, id: location.vswitch_id.clone() });
    let vswitches = match config.cloud.vswitches.as_slice() {
        [] => here().into_iter().collect(),
        stated => stated.to_vec(),
    };
    ServiceSettings {
        cluster_id: config.cloud.cluster_id.clone(),
        cluster_tag: config.cloud.cluster_tag.clone(),
        cluster_uid: cluster_uid.to_owned(),
        region: location.region.clone(),
        vpc_id: location.vpc_id.clone(),
        place_near_nodes: config.cloud.vswitches.is_empty(),
        vswitches,
        resource_group_id: config.cloud.resource_group_id.clone(),
        controllers: config.controllers.iter().copied().collect(),
        service: P::options(config),
        nlb: config.nlb.defaults.clone(),
    }
}

fn preparer<P: Product>(
    product: P,
    (cluster, cloud, location): (Cluster, CloudClient, Arc<CloudLocation>),
    views: Views,
    states: States<P::Model>,
) -> Preparer<P> {
    Preparer {
        product,
        states,
        drift: DriftSchedule::new(),
        account: AccountCheck::new(cloud.clone(), location.clone()),
        resolver: Resolver::new(cluster, cloud, location, views.clone()),
        views,
        locks: Locks::default(),
    }
}

/// The stores that reconciles read; they are watched for as long as these handles live.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    services: Watched<ServiceView>,
    endpoints: Watched<EndpointsView>,
    nodes: Watched<NodeView>,
}

impl Views {
    fn of(cluster: &Cluster) -> Self {
        Self { services: cluster.services(), endpoints: cluster.endpoints(), nodes: cluster.nodes() }
    }

    /// Waits until all stores are filled, and the cluster is identified.
    async fn synced(&self, cluster: &Cluster) {
        tokio::join!(self.services.store.synced(), self.endpoints.store.synced(), self.nodes.store.synced());
        cluster.identify().await;
    }

    /// The same for what ends by itself.
    async fn listed(&self, cluster: &Cluster) -> Result<(), String> {
        // Endpoints are listed for known Services alone: where both are missing, that of the Services is the cause.
        tokio::try_join!(biased; self.services.listed(), self.endpoints.listed(), self.nodes.listed())?;
        cluster.identify().await;
        Ok(())
    }

    /// Why backends of the Service are not removed, whatever it says.
    fn withheld_backends(&self, service: &ServiceView, goal: &Goal<impl ProductModel>) -> Option<&'static str> {
        let is_published = !service.ingress.is_empty();
        if is_published && self.nodes.store.is_empty() {
            Some(report::NO_NODES)
        } else if is_published && self.endpoints.store.is_empty() {
            Some(report::NO_ENDPOINTS)
        } else if !self.nodes.store.skipped().is_empty()
            || self.endpoints.store.get(&service.key).is_some_and(|endpoints| endpoints.unknown)
        {
            Some(report::UNDECODED)
        } else if goal.desired().is_some_and(|desired| desired.unready == UnreadyNodes::All) {
            Some(report::BLACKOUT)
        } else {
            goal.groups().values().any(|group| !group.withheld.is_empty()).then_some(report::UNREADY)
        }
    }

    /// Keys of the Services that are so, in order.
    fn keys_of(&self, is_so: impl Fn(&ServiceView) -> bool) -> Vec<ObjectKey> {
        self.services.store.all().iter().filter(|it| is_so(it)).map(|it| it.key.clone()).collect()
    }
}

/// Sends the keys of Services that have to be reconciled. Never returns.
async fn trigger<P: Product>(
    context: &Context,
    views: &Views,
    engine: &Engine<P>,
    keys: &mpsc::UnboundedSender<Vec<ObjectKey>>,
) {
    let send = |batch: Vec<ObjectKey>| {
        // The driver ends only together with this function.
        let _ = keys.send(batch);
    };
    let known =
        |batch: Vec<ObjectKey>| batch.into_iter().filter(|key| views.services.store.get(key).is_some()).collect();
    let (mut services, mut endpoints) = (views.services.store.subscribe(), views.endpoints.store.subscribe());
    // All Services are due at first. What changes from now on goes ahead of that.
    endpoints.take();
    send(services.take().into_iter().collect());
    let send_ahead = |batch: Vec<ObjectKey>| {
        engine.put_ahead(&batch);
        send(batch);
    };
    let services = forward(services, send_ahead);
    let endpoints = forward(endpoints, |batch| send_ahead(known(batch)));
    let nodes = async {
        let mut dirty = views.nodes.store.subscribe();
        loop {
            dirty.next().await;
            tokio::time::sleep(NODE_AGGREGATION).await;
            send(engine.concerned_by_nodes());
        }
    };
    let config = async {
        let mut config = context.config.clone();
        let relevant = |config: &Config| {
            (settings_of::<P>(config, context.cluster.uid(), &context.location), config.cloud.clone())
        };
        let mut before = relevant(&config.borrow());
        loop {
            if config.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let now = relevant(&config.borrow());
            if now != before {
                before = now;
                send(views.keys_of(|_| true));
            }
        }
    };
    let turns = async {
        let mut looks = tokio::time::interval(LOOK_FOR_TURNS);
        loop {
            looks.tick().await;
            send(engine.due());
        }
    };
    tokio::join!(services, endpoints, nodes, config, turns);
}

async fn forward(mut dirty: DirtyKeys, send: impl Fn(Vec<ObjectKey>)) {
    loop {
        send(dirty.next().await.into_iter().collect());
    }
}
