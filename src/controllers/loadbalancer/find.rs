//! Finds the load balancer of a Service, and all that carry the id of the cluster, whatever the product.

use std::sync::Arc;

use thiserror::Error;

use super::product::{Due, ListedBy, Product, Search};
use super::tolerance::{fails_alone, tolerate};
use crate::alibaba::{Fault, FaultKind};
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::annotations::PREFIX;
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::orphans::{OrphanedInstance, unclaimed};
use crate::plan::loadbalancer::ownership::{CLUSTER_UID_TAG, MARK_TAG, Owner};
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::provenance::Unclaimed;

/// What the search for a Service's load balancer came to.
#[derive(Debug)]
pub(super) enum Found<M: CloudModel> {
    /// This one.
    LoadBalancer(Observed<M>),
    /// Only the one that the Service's label names, and it does not carry the Service's mark: it is a user's, and the
    /// annotation that named it is gone.
    Unmarked {
        /// Its id.
        id: String,
        /// The load balancer.
        observed: Observed<M>,
    },
    /// None. `proven` if the cloud said so of the very load balancer that the Service had; an empty list is no proof.
    Absent {
        /// Whether absence is certain.
        proven: bool,
    },
    /// Perhaps one, and it is not certain which.
    Uncertain(Unfound),
}

/// Why it is not certain which load balancer is meant.
#[derive(Debug, Error)]
pub(super) enum Unfound {
    /// The Service has none, and its label names one of another Service, as when the Service was copied.
    #[error(
        "load balancer {0}, which the label service.k8s.alibaba/loadbalancer-id names, does not carry its mark, but that of another \
         Service or cluster: nothing is changed there. If the Service is a copy, remove that label to have a load balancer made. If it \
         was restored from a backup, give that load balancer the tag {tag} with the uid of the namespace kube-system to have it back",
        tag = CLUSTER_UID_TAG
    )]
    OfOtherService(String),
    /// More than one carries the Service's mark.
    #[error("several load balancers carry the mark of this Service: {}; delete all but one", .0.join(", "))]
    Several(Vec<String>),
    /// The Service is served by a load balancer that it no longer names, and that is not ours.
    #[error(
        "load balancer {0} serves this Service, but does not carry its mark, and no annotation names it: put the annotation \
         {PREFIX}id back, or delete the Service and create it again; when it is deleted, its listeners, server groups and \
         backends are removed there and the load balancer is kept"
    )]
    Detached(String),
    /// The load balancer cannot be found, and its absence cannot be proven.
    #[error(
        "no load balancer carries the mark of this Service although its status shows an address{}; it may have been \
         deleted, or the permission to list it is missing. Nothing is created: check the permissions, or empty \
         status.loadBalancer to have a new one created",
        if .0.is_empty() { String::new() } else { format!(" (label: {})", .0) }
    )]
    Unfindable(String),
    /// The credentials may belong to another account.
    #[error("{0}")]
    Doubt(String),
}

/// What a label, or a creation a moment ago, led to.
enum Remembered<M: CloudModel> {
    Nothing {
        proven: bool,
    },
    Ours(Observed<M>),
    Unmarked(Observed<M>),
    OfOther(String),
    /// It could not be read; the list by its mark may show it nevertheless.
    Unread(Fault),
}

/// Finds the load balancer: the one that the Service names, else the one that carries its mark. A remembered id only saves
/// the search: what it leads to must carry the mark.
pub(super) async fn find<P: Product>(
    product: &P,
    goal: &Goal<P::Model>,
    search: &Search<'_>,
) -> Result<Found<P::Model>, Fault> {
    let owner = goal.owner();
    if let Some(id) = goal.named() {
        return match product.read(owner, id, None).await {
            Ok(observed) => Ok(Found::LoadBalancer(observed)),
            Err(fault) if fault.kind == FaultKind::Gone => Ok(Found::Absent { proven: true }),
            Err(fault) => Err(fault),
        };
    }
    let id = search.made.load_balancer.as_deref().or(search.label);
    let remembered = match id {
        Some(id) => remembered(product, owner, id, search.due).await?,
        None => Remembered::Nothing { proven: false },
    };
    if let Remembered::Ours(observed) = remembered {
        return Ok(Found::LoadBalancer(observed));
    }
    let mut candidates = marked(product, owner).await?;
    match (candidates.len(), remembered, id) {
        (0, Remembered::Unread(fault), _) => Err(fault),
        (0, Remembered::OfOther(id), _) => Ok(Found::Uncertain(Unfound::OfOtherService(id))),
        (0, Remembered::Unmarked(observed), Some(id)) => Ok(Found::Unmarked { id: id.to_owned(), observed }),
        (0, remembered, _) => Ok(Found::Absent { proven: matches!(remembered, Remembered::Nothing { proven: true }) }),
        (1, ..) => Ok(Found::LoadBalancer(candidates.swap_remove(0))),
        _ => {
            let ids = candidates.iter().filter_map(Observed::id);
            Ok(Found::Uncertain(Unfound::Several(ids.map(str::to_owned).collect())))
        }
    }
}

async fn remembered<P: Product>(
    product: &P,
    owner: &Owner,
    id: &str,
    due: Due<'_>,
) -> Result<Remembered<P::Model>, Fault> {
    let observed = match product.read(owner, id, due).await {
        Ok(observed) => observed,
        Err(fault) if fault.kind == FaultKind::Gone => return Ok(Remembered::Nothing { proven: true }),
        Err(fault) if fails_alone(&fault) => return Ok(Remembered::Unread(fault)),
        Err(fault) => return Err(fault),
    };
    let Some(instance) = observed.tagged() else { return Ok(Remembered::Nothing { proven: false }) };
    Ok(if owner.owns_load_balancer(instance.name, instance.tags) {
        Remembered::Ours(observed)
    } else if owner.is_of_other_service(instance.tags) {
        // A label that was copied with its Service leads to another one's: nothing there is ours, whatever its marks.
        Remembered::OfOther(instance.id.to_owned())
    } else {
        Remembered::Unmarked(observed)
    })
}

/// Load balancers that carry the Service's mark, or else its default name. One list that fails alone does not spoil what the
/// other one shows.
pub(super) async fn marked<P: Product>(product: &P, owner: &Owner) -> Result<Vec<Observed<P::Model>>, Fault> {
    let name = owner.default_name();
    // Side by side, as it is nearly always neither: a load balancer with the mark also has the label, and is found by it.
    let (marked, named) =
        tokio::join!(product.list(ListedBy::Tag(MARK_TAG, &name)), product.list(ListedBy::Name(&name)));
    let mut unread = Vec::new();
    let marked = tolerate(&mut unread, marked)?.unwrap_or_default();
    let named = tolerate(&mut unread, named)?.unwrap_or_default();
    let mut candidates = if marked.is_empty() { named } else { marked };
    candidates.retain(|candidate| candidate.tagged().is_some_and(|it| owner.owns_load_balancer(it.name, it.tags)));
    match unread.pop() {
        Some(fault) if candidates.is_empty() => Err(fault),
        _ => Ok(candidates),
    }
}

/// Load balancers that carry the id of this cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned {
    /// Those without a Service, and those of another cluster with the same id.
    pub(super) unclaimed: Vec<Unclaimed<OrphanedInstance>>,
    /// How many there are.
    pub(super) listed: usize,
}

/// Lists the load balancers that carry the id of this cluster, and says which of them no Service claims, see [`unclaimed`].
pub(super) async fn owned<P: Product>(
    product: &P,
    services: &[Arc<ServiceView>],
    settings: &ServiceSettings,
) -> Result<Owned, Fault> {
    let listed = product.list(ListedBy::Tag(&settings.cluster_tag, &settings.cluster_id)).await?;
    let unclaimed = unclaimed(listed.iter().filter_map(Observed::tagged), services, settings);
    Ok(Owned { unclaimed, listed: listed.len() })
}
