//! The service controller: a classic load balancer for each Service of type LoadBalancer.
//!
//! [`run`] decides when a Service is looked at, `reconcile` brings it into agreement, [`plan`] only tells.

mod account_check;
mod bulk;
mod change;
mod creations;
mod execute;
mod memory;
mod observe;
mod owners;
mod preview;
#[cfg(test)]
mod properties;
mod readiness;
mod reconcile;
mod references;
mod report;
mod rounds;
mod status;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::info;

use self::memory::Memory;
use self::reconcile::Reconciler;
use super::Context;
use super::workqueue;
use crate::cluster::{DirtyKeys, Store};
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView};
use crate::plan::service::handling::{Handling, handling};

pub use self::preview::plan;

/// The controller's name in logs, metrics and events.
pub(crate) const CONTROLLER: &str = "service";
/// The component that its events name.
pub(crate) const COMPONENT: &str = "service-controller";

/// How long node changes are gathered before the Services that use nodes are looked at.
const NODE_AGGREGATION: Duration = Duration::from_millis(200);

/// Keeps load balancers until `context.stop`.
pub async fn run(context: Context) {
    let stop = context.stop.clone();
    let mut fence = context.fence.clone();
    let services = context.cluster.services();
    let endpoints = context.cluster.endpoints();
    let nodes = context.cluster.nodes();
    let synced = async {
        services.store.synced().await;
        endpoints.store.synced().await;
        nodes.store.synced().await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        () = synced => {}
    }
    while !stop.is_cancelled() {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = fence.gained() => {}
        }
        // What another leader did meanwhile is unknown: every term starts without memory, and with everything due.
        let term = stop.child_token();
        let views =
            Views { services: services.store.clone(), endpoints: endpoints.store.clone(), nodes: nodes.store.clone() };
        let vanished = owners::Vanished::default();
        let memory = Memory::new(context.alarms.clone(), vanished.clone());
        let reconciler = Arc::new(Reconciler::new(context.clone(), views.clone(), memory));
        let starting = reconciler.clone();
        let (sender, keys) = mpsc::unbounded_channel();
        let driver = workqueue::drive(reconciler, keys, term.clone());
        let lost = async {
            tokio::select! {
                biased;
                ((), (), ()) = async {
                    let owners = owners::watch(&context, &views, &vanished);
                    tokio::join!(biased; trigger(&context, &views, &sender), starting.warm(), owners)
                } => {}
                () = fence.lost() => info!("leadership is lost: load balancers are left to the next leader"),
            }
            term.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = driver => {}
            () = lost => {}
        }
        context.alarms.clear(CONTROLLER);
    }
}

/// The stores that reconciles read.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    services: Arc<Store<ServiceView>>,
    endpoints: Arc<Store<EndpointsView>>,
    nodes: Arc<Store<NodeView>>,
}

impl Views {
    /// Keys of the Services that are so, in order.
    fn keys_of(&self, is_so: impl Fn(&ServiceView) -> bool) -> Vec<ObjectKey> {
        self.services.all().iter().filter(|it| is_so(it)).map(|it| it.key.clone()).collect()
    }
}

/// Sends the keys of Services that have to be looked at, for ever.
async fn trigger(context: &Context, views: &Views, keys: &mpsc::UnboundedSender<Vec<ObjectKey>>) {
    let send = |batch: Vec<ObjectKey>| {
        // The driver ends only together with this function.
        let _ = keys.send(batch);
    };
    let known = |batch: Vec<ObjectKey>| batch.into_iter().filter(|key| views.services.get(key).is_some()).collect();
    let services = forward(views.services.subscribe(), send);
    let endpoints = forward(views.endpoints.subscribe(), |batch| send(known(batch)));
    let nodes = async {
        let mut dirty = views.nodes.subscribe();
        loop {
            dirty.next().await;
            tokio::time::sleep(NODE_AGGREGATION).await;
            let settings = reconcile::settings(context);
            send(views.keys_of(|service| handling(service, &settings) == Handling::Ensure));
        }
    };
    let config = async {
        let mut config = context.config.clone();
        let mut before = (config.borrow().service.clone(), config.borrow().cloud.clone());
        loop {
            if config.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let now = (config.borrow().service.clone(), config.borrow().cloud.clone());
            if now != before {
                before = now;
                send(views.keys_of(|_| true));
            }
        }
    };
    tokio::join!(services, endpoints, nodes, config);
}

async fn forward(mut dirty: DirtyKeys, send: impl Fn(Vec<ObjectKey>)) {
    loop {
        send(dirty.next().await.into_iter().collect());
    }
}
