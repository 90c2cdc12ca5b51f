//! Load balancers of ours whose Service the API server does not show, and those of another cluster with the same id.
//!
//! A load balancer is only ever deleted because its Service asks for it: by a deletion that waits for our finalizer, or by
//! another type. So one whose Service vanished without that, as after a restore of the API server from an old backup,
//! stays. The leader notices and reports it ([`watch`]); removal is suggested only of what is proven to be this cluster's.
//! `gc` lists and removes it ([`orphans`], [`nlb_orphans`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::warn;

use super::clb::orphans::ClbOrphan;
use super::find::{Owned, owned};
use super::left_behind::{LeftBehind, Suspect, left_behind, named_by_marks};
use super::nlb::orphans::NlbOrphan;
use super::product::Product;
use super::{Clients, Context, NLB, Views, settings_of};
use crate::alibaba::Fault;
use crate::cluster::{Regarding, event_code};
use crate::config::Config;
use crate::controllers::orphan::{Orphans, Unjudged, owners};
use crate::controllers::reporter::tell_withheld;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::loadbalancer::orphans::{OrphanedGroup, OrphanedInstance, UnclaimedGroups};
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, Owner};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::provenance::{Provenance, Unclaimed, shared_id};
use crate::telemetry::alarms::named;

/// The first look leaves the first reconciles of a term alone.
const FIRST: Duration = Duration::from_secs(3);
/// What seems to have no owner is looked at again after this time before it is reported.
const CONFIRM: Duration = Duration::from_secs(5);
/// Time between looks while something of ours has no owner, for each [`FEW`] load balancers that are listed for it.
const AGAIN: Duration = Duration::from_secs(20);
const FEW: usize = 200;
/// The same while something is reported that may stay so: things of another cluster.
const SELDOM: Duration = Duration::from_secs(10 * 60);
/// The same while there is nothing to report, unless nothing is compared with the cloud by itself. Another cluster with the same
/// id can come.
const IDLE: Duration = Duration::from_secs(6 * 60 * 60);

const REASON: &str = "LoadBalancerOwnerMissing";

/// Woken when a Service is gone that still had a load balancer.
pub(super) type Vanished = Arc<Notify>;

type UnclaimedInstances = BTreeSet<Unclaimed<OrphanedInstance>>;

/// Classic load balancers that carry the id of this cluster and that no Service claims, and access control lists, which are
/// deleted after the listeners that use them.
pub async fn orphans(clients: &Clients, config: &Config) -> Orphans {
    let mut orphans = Orphans::default();
    let product = Arc::new(super::clb_product(clients));
    match unclaimed(clients, config, &*product).await {
        Ok(Left { services, settings, instances }) => {
            orphans.add(instances.into_iter().map(|one| one.map(ClbOrphan)));
            let left = async {
                let suspects = named_by_marks(&*product, &settings).await?;
                left_behind(&product, suspects, &services, &settings).await
            };
            add_left_behind(left.await, &mut orphans);
            match product.unclaimed_access_lists(&services, &settings).await {
                Ok(lists) => orphans.add(lists),
                Err(fault) => orphans.problems.push(Unjudged::by("access control lists could not be listed", &fault)),
            }
        }
        Err(why) => orphans.problems.push(why),
    }
    orphans
}

/// The same of network load balancers, with their server groups and security groups and those that outlived theirs, if the file
/// lists the controller.
pub async fn nlb_orphans(clients: &Clients, config: &Config) -> Orphans {
    let mut orphans = Orphans::default();
    if !config.controllers.contains(NLB) {
        return orphans;
    }
    let product = Arc::new(super::nlb_product(clients));
    match unclaimed(clients, config, &*product).await {
        Ok(Left { services, settings, instances }) => {
            let groups = product.unclaimed_groups(&services, &instances, &settings).await;
            let UnclaimedGroups { mut of_instances, alone, used } = groups.unwrap_or_else(|fault| {
                orphans.problems.push(Unjudged::by("server groups could not be listed", &fault));
                UnclaimedGroups::default()
            });
            orphans.add(instances.into_iter().map(|one| {
                one.map(|instance| {
                    let groups = of_instances.remove(&instance.id).unwrap_or_default();
                    NlbOrphan { instance, groups }
                })
            }));
            orphans.add(alone);
            let any_owner = Owner::of_kind(LoadBalancerKind::Nlb, &ServiceView::default(), &settings);
            let suspects = used.iter().flat_map(|(group, used_by)| suspects(&any_owner, group, used_by)).collect();
            add_left_behind(left_behind(&product, suspects, &services, &settings).await, &mut orphans);
        }
        Err(why) => orphans.problems.push(why),
    }
    orphans
}

/// The Service that a used server group was made for, on each of the load balancers that use it.
fn suspects<'a>(
    any_owner: &'a Owner,
    group: &'a Unclaimed<OrphanedGroup>,
    used_by: &'a [String],
) -> impl Iterator<Item = Suspect> + 'a {
    let owner = any_owner.other_in_mark(&group.what.name);
    owner.into_iter().flat_map(move |owner| {
        used_by.iter().map(move |id| Suspect {
            load_balancer: id.clone(),
            service: ObjectKey::new(&owner.namespace, &owner.service),
            uid: group.what.mark.chars().skip(1).collect(),
            provenance: group.provenance.clone(),
        })
    })
}

fn add_left_behind<P: Product>(left: Result<Vec<Unclaimed<LeftBehind<P>>>, Fault>, orphans: &mut Orphans) {
    match left {
        Ok(left) => orphans.add(left),
        Err(fault) => orphans.problems.push(Unjudged::by("load balancers of users could not be read", &fault)),
    }
}

/// Load balancers that no Service claims, and by what that was judged.
struct Left {
    services: Arc<[Arc<ServiceView>]>,
    settings: ServiceSettings,
    instances: Vec<Unclaimed<OrphanedInstance>>,
}

async fn unclaimed<P: Product>(clients: &Clients, config: &Config, product: &P) -> Result<Left, Unjudged> {
    let Clients { cluster, location, .. } = clients;
    let services = cluster.services();
    let unjudged = |why| format!("nothing of the controller {} is judged: {why}", P::CONTROLLER);
    let (listed, ()) = tokio::join!(services.listed(), cluster.identify());
    listed.map_err(|why| Unjudged::unlisted(unjudged(why)))?;
    let services = owners(&services.store).map_err(unjudged)?;
    // Every cluster has at least the Service of its own API server: a list without any is a broken list.
    if services.is_empty() && !cluster.lists_any_service().await {
        let why = "the API server shows no Service at all";
        return Err(format!("{why}; nothing of the controller {} is judged", P::CONTROLLER).into());
    }
    let settings = settings_of::<P>(config, cluster.uid(), location);
    let listed = owned(product, &services, &settings).await;
    let failed = format!("load balancers of the controller {} could not be listed", P::CONTROLLER);
    let instances = listed.map_err(|fault| Unjudged::by(&failed, &fault))?.unclaimed;
    Ok(Left { services, settings, instances })
}

/// Looks when a term begins, and whenever `vanished` is woken. Never returns.
pub(super) async fn watch<P: Product>(context: &Context, product: &P, views: &Views, vanished: &Notify) {
    tokio::time::sleep(FIRST).await;
    let mut before = UnclaimedInstances::new();
    loop {
        let settings = settings_of::<P>(&context.config.borrow(), context.cluster.uid(), &context.location);
        let look = async {
            let services = owners(&views.services.store)?;
            owned(product, &services, &settings).await.map_err(|fault| fault.to_string())
        };
        let pause = match look.await {
            Ok(Owned { unclaimed, listed }) => {
                let unclaimed = UnclaimedInstances::from_iter(unclaimed);
                // Only what two lists in a row show: a Service may have come or gone while the first was made.
                let confirmed: UnclaimedInstances = unclaimed.intersection(&before).cloned().collect();
                report::<P>(context, &settings.cluster_id, &confirmed);
                let drift_check = settings.service.drift_check;
                let pause = match confirmed == unclaimed {
                    true => until_next(&unclaimed, listed, drift_check),
                    false => Some(CONFIRM),
                };
                before = unclaimed;
                pause
            }
            Err(why) => {
                warn!(
                    code = "ACCM0763",
                    controller = P::CONTROLLER,
                    why,
                    "whether all load balancers have a Service could not be seen"
                );
                Some(AGAIN)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            () = vanished.notified() => tokio::time::sleep(if before.is_empty() { Duration::ZERO } else { CONFIRM }).await,
        }
    }
}

/// `None` until something happens.
fn until_next(unclaimed: &UnclaimedInstances, listed: usize, drift_check: Option<Duration>) -> Option<Duration> {
    if unclaimed.iter().any(|one| one.provenance == Provenance::ThisCluster) {
        Some(AGAIN * u32::try_from(1 + listed / FEW).unwrap_or(u32::MAX))
    } else if unclaimed.is_empty() {
        drift_check.map(|period| period.max(IDLE))
    } else {
        Some(SELDOM)
    }
}

fn report<P: Product>(context: &Context, cluster_id: &str, unclaimed: &UnclaimedInstances) {
    let (mut ours, mut unproven, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for Unclaimed { what, provenance } in unclaimed {
        match provenance {
            Provenance::ThisCluster => ours.push(what.id.as_str()),
            Provenance::Unproven(why) => unproven.push((what.id.as_str(), why)),
            Provenance::OtherCluster(why) => others.push((what.id.as_str(), why)),
        }
    }
    let (missing, mut texts) = (ours.len() + unproven.len(), Vec::new());
    if !ours.is_empty() {
        texts.push(format!(
            "the API server shows no Service for {}, which bear the mark of this cluster; they are kept as they are. If the \
             Services are lost, restore them; to remove the load balancers on purpose, run alicloud-ccm gc --delete",
            named(ours)
        ));
    }
    if let Some((_, why)) = unproven.first() {
        texts.push(format!(
            "the API server shows no Service for {}, which bear the cloud.cluster_id of this cluster and may belong to another \
             one ({why}); they are kept as they are, and alicloud-ccm gc lists them",
            named(unproven.iter().map(|(id, _)| *id))
        ));
    }
    alarm::<P>(context, REASON, missing, texts.join("; "));
    let why = others.first().map_or("", |(_, why)| why.as_str());
    let text = shared_id::text(cluster_id, &named(others.iter().map(|(id, _)| *id)), why);
    alarm::<P>(context, shared_id::REASON, others.len(), text);
}

fn alarm<P: Product>(context: &Context, reason: &'static str, count: usize, text: String) {
    if context.alarms.set(P::CONTROLLER, reason, count, &text) {
        warn!(code = event_code(reason), controller = P::CONTROLLER, "{text}");
    }
    let why = (count > 0).then_some(text.as_str());
    tell_withheld(context.cluster.events(), P::COMPONENT, &Regarding::component(P::COMPONENT), (reason, why));
}
