//! What Services left on load balancers of users: those that vanished without their finalizer, and those that moved.
//!
//! The plan that removes a Service also removes what it left, so that the same proofs of ownership hold. The mark of a listener
//! contains the name of its Service and the id of the cluster, but not the uid of the cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::execute::Executor;
use super::product::{CreationToken, ListedBy, Product, Search};
use crate::alibaba::{CloudClient, Fault, FaultKind, Priority};
use crate::controllers::orphan::{LOOKS, NotDeleted, Orphan, PAUSE};
use crate::fence::Fence;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::loadbalancer::annotations::{AnnotationKey, FORCE_OVERRIDE_LISTENERS, ID};
use crate::plan::loadbalancer::cloud::Observed;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::orphans::may_use;
use crate::plan::loadbalancer::ownership::REUSE_TAG;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::loadbalancer::steps::Plan;
use crate::plan::provenance::{Provenance, Unclaimed};

/// What one Service left on one load balancer of a user.
#[derive(Debug)]
pub(super) struct LeftBehind<P: Product> {
    product: Arc<P>,
    settings: ServiceSettings,
    /// The Service, as far as its marks tell of it.
    service: ServiceView,
    /// The load balancer and the Service.
    id: String,
    /// What removes it, as a plan prints it.
    steps: Vec<String>,
}

/// A Service that may have left something on a load balancer of a user.
#[derive(Debug)]
pub(super) struct Suspect {
    pub(super) load_balancer: String,
    pub(super) service: ObjectKey,
    /// What its [default name](crate::plan::loadbalancer::ownership::default_name) is made of; empty if it is not known.
    pub(super) uid: String,
    pub(super) provenance: Provenance,
}

/// Services that marks on used load balancers name.
pub(super) async fn named_by_marks<P: Product>(product: &P, settings: &ServiceSettings) -> Result<Vec<Suspect>, Fault> {
    let mut found = Vec::new();
    for listed in product.list(ListedBy::Tag(REUSE_TAG, "true")).await? {
        let Some(id) = listed.id() else { continue };
        let observed = match read_marks(product, id, settings).await {
            // Deleted since it was listed.
            Err(fault) if fault.kind == FaultKind::Gone => continue,
            read => read?,
        };
        let goal = Goal::<P::Model>::removal(&ServiceView::default(), settings);
        found.extend(observed.other_owners(goal.owner()).into_keys().map(|service| Suspect {
            load_balancer: id.to_owned(),
            service,
            uid: String::new(),
            provenance: Provenance::of_uid(&settings.cluster_uid, None),
        }));
    }
    Ok(found)
}

/// What those of the `suspects` left that are not among the `services`, or that use another load balancer.
pub(super) async fn left_behind<P: Product>(
    product: &Arc<P>,
    suspects: Vec<Suspect>,
    services: &[Arc<ServiceView>],
    settings: &ServiceSettings,
) -> Result<Vec<Unclaimed<LeftBehind<P>>>, Fault> {
    let mut found = Vec::new();
    for Suspect { load_balancer, service: key, uid, provenance } in suspects {
        let there = services.iter().find(|service| service.key == key);
        let is_used = |address: &str| there.is_some_and(|service| may_use(service, &load_balancer, address));
        if is_used("") {
            continue;
        }
        let (id, service) = (format!("{load_balancer}/{key}"), gone(&key, &uid, &load_balancer));
        let (observed, plan) = removal(&**product, &service, settings).await?;
        if observed.tagged().is_some_and(|instance| is_used(instance.address)) {
            continue;
        }
        let steps: Vec<String> = plan.steps.iter().map(|step| step.operation.to_string()).collect();
        if !steps.is_empty() {
            let (product, settings) = (product.clone(), settings.clone());
            found.push(Unclaimed { what: LeftBehind { product, settings, service, id, steps }, provenance });
        }
    }
    Ok(found)
}

/// Reads the load balancer with its listeners, and with its server groups as far as they are a part of it.
pub(super) async fn read_marks<P: Product>(
    product: &P,
    id: &str,
    settings: &ServiceSettings,
) -> Result<Observed<P::Model>, Fault> {
    removal(product, &gone(&ObjectKey::default(), "", id), settings).await.map(|(observed, _)| observed)
}

/// A Service that used the load balancer and its listeners, and is gone.
fn gone(key: &ObjectKey, uid: &str, load_balancer: &str) -> ServiceView {
    let annotation = |key: AnnotationKey, value: &str| (key.full(), value.to_owned());
    let annotations = [annotation(ID, load_balancer), annotation(FORCE_OVERRIDE_LISTENERS, "true")];
    ServiceView {
        key: key.clone(),
        uid: uid.to_owned(),
        annotations: annotations.into_iter().collect(),
        deleting: true,
        ..ServiceView::default()
    }
}

/// Reads the load balancer, and plans the removal of the Service.
async fn removal<P: Product>(
    product: &P,
    service: &ServiceView,
    settings: &ServiceSettings,
) -> Result<(Observed<P::Model>, Plan<P::Model>), Fault> {
    let goal = Goal::<P::Model>::removal(service, settings);
    let mut observed = product.read(goal.owner(), goal.named().unwrap_or_default(), None).await?;
    let search = Search::default();
    let unread = product.complete(&goal, &mut observed, None, &search).await?.unread.pop();
    unread.map_or(Ok(()), Err)?;
    let plan = goal.diff(&observed);
    Ok((observed, plan))
}

impl<P: Product> fmt::Display for LeftBehind<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, service, steps, .. } = self;
        write!(
            f,
            "{id}: no Service {} uses this load balancer of a user, where one left what these steps remove: {}",
            service.key,
            steps.join("; ")
        )
    }
}

impl<P: Product> Serialize for LeftBehind<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json!({ "id": self.id, "service": self.service.key.to_string(), "steps": self.steps }).serialize(serializer)
    }
}

impl<P: Product> Orphan for LeftBehind<P> {
    const KIND: &'static str = "left_behind";

    async fn delete(&self, _: &CloudClient, fence: &Fence) -> Result<(), NotDeleted> {
        let stop = CancellationToken::new();
        let mut last = String::new();
        for _ in 0..LOOKS {
            let (mut observed, plan) = removal(&*self.product, &self.service, &self.settings).await?;
            if plan.steps.is_empty() {
                return Ok(());
            }
            let executor = Executor {
                product: &*self.product,
                fence,
                stop: &stop,
                token: CreationToken::default(),
                priority: Priority::default(),
                most_refused: 0,
                stocked: BTreeSet::new(),
                serve_others: &|_| BTreeSet::new(),
            };
            last = executor.run(plan.steps, &mut observed).await.failures.to_string();
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("it is still there: {last}").into())
    }
}
