//! Reads from the cloud what planning one load balancer needs, and no more.

use std::sync::Arc;

use thiserror::Error;

use super::bulk::{Bulk, Look};
use super::creations::Made;
use crate::alibaba::slb::Slb;
use crate::alibaba::{Fault, FaultKind};
use crate::plan::clb::desired::Desired;
use crate::plan::clb::needs::MissingReads;
use crate::plan::clb::observed::{AccessList, Observed, ObservedInstance};
use crate::plan::clb::operation::{Plan, ResourceKind};
use crate::plan::inputs::ServiceView;
use crate::plan::service::model::ObservedGroup;
use crate::plan::service::ownership::{LABEL_LB_ID, MARK_TAG, Owner};

/// What the search for a Service's load balancer came to.
#[derive(Debug)]
pub(super) enum Found {
    /// This one.
    Instance(Box<ObservedInstance>),
    /// Only the one that the Service's label names, and it does not carry the Service's mark: it is a user's, and the
    /// annotation that named it is gone.
    Unmarked(Box<ObservedInstance>),
    /// None. `proven` if the cloud said so of the very load balancer that the Service had; an empty list is no proof.
    Absent {
        /// Whether absence is certain.
        proven: bool,
    },
}

/// Why the search failed.
#[derive(Debug, Error)]
pub(super) enum FindError {
    /// The cloud did not answer.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The Service names a load balancer that does not exist.
    #[error(
        "load balancer {0} does not exist; annotation alibaba-cloud-loadbalancer-id names it: correct or remove it"
    )]
    ReusedMissing(String),
    /// More than one carries the Service's mark.
    #[error("several load balancers carry the mark of this Service: {}; delete all but one", .0.join(", "))]
    Several(Vec<String>),
}

/// Finds the load balancer of a Service: the one it names, else the one that carries its mark, else the one that has its
/// default name. A remembered id only ever saves the search: what it leads to must carry the mark or the name.
///
/// `made` is what the Service got a short while ago: no list may show it, and no label name it yet.
pub(super) async fn find(
    slb: &Slb,
    bulk: &Bulk,
    service: &ServiceView,
    owner: &Owner,
    reuse: Option<&str>,
    look: Look,
    made: &Made,
) -> Result<Found, FindError> {
    if let Some(id) = reuse {
        return match slb.describe_instance(id).await {
            Ok(instance) => Ok(Found::Instance(Box::new(instance))),
            Err(fault) if fault.kind == FaultKind::Gone => Err(FindError::ReusedMissing(id.to_owned())),
            Err(fault) => Err(fault.into()),
        };
    }
    let name = owner.default_name();
    let remembered = made.instance.as_ref().or(service.labels.get(LABEL_LB_ID)).filter(|id| !id.is_empty());
    let mut proven = false;
    let mut unmarked = None;
    if let Some(id) = remembered {
        match bulk.instance(owner, id, look).await {
            Ok(instance) if owner.owns_load_balancer(&instance.name, &instance.tags) => {
                return Ok(Found::Instance(Box::new(instance)));
            }
            Ok(instance) => unmarked = Some(instance),
            Err(fault) if fault.kind == FaultKind::Gone => proven = true,
            Err(fault) => return Err(fault.into()),
        }
    }
    // Side by side, as it is nearly always neither: a load balancer with the mark also has the label, and is found by it.
    let (marked, named) = tokio::try_join!(slb.find_by_tag(MARK_TAG, &name), slb.find_by_name(&name))?;
    let mut candidates = if marked.is_empty() { named } else { marked };
    candidates.retain(|candidate| owner.owns_load_balancer(&candidate.name, &candidate.tags));
    match candidates.len() {
        0 => Ok(unmarked.map_or(Found::Absent { proven }, |instance| Found::Unmarked(Box::new(instance)))),
        1 => Ok(Found::Instance(Box::new(candidates.swap_remove(0)))),
        _ => Err(FindError::Several(candidates.into_iter().map(|candidate| candidate.id).collect())),
    }
}

/// Looks an access control list up by its name.
pub(super) async fn find_access_list(slb: &Slb, name: &str) -> Result<AccessList, Fault> {
    Ok(slb.find_access_list(name).await?.map_or(AccessList::Absent, AccessList::Found))
}

/// Reads what hangs on an instance and is not in `observed` yet, until `needs` asks for nothing more.
pub(super) async fn read(
    slb: &Slb,
    bulk: &Bulk,
    mut observed: Observed,
    needs: impl Fn(&Observed) -> MissingReads,
) -> Result<Observed, Fault> {
    list_groups(slb, &mut observed, &Made::default()).await?;
    complete(slb, bulk, &mut observed, needs).await?;
    Ok(observed)
}

/// Lists the server groups anew, without their backends. Those that were `made` a short while ago and are not listed are
/// asked for one by one; true if there was none.
pub(super) async fn list_groups(slb: &Slb, observed: &mut Observed, made: &Made) -> Result<bool, Fault> {
    let Some(instance) = &observed.instance else { return Ok(true) };
    let groups = slb.describe_groups(&instance.id).await?;
    observed.groups =
        groups.into_iter().map(|group| (group.id, ObservedGroup { name: group.name, backends: None })).collect();
    let mut whole = true;
    let of_this = made.groups.iter().filter(|group| group.load_balancer == instance.id);
    for group in of_this {
        if observed.groups.contains_key(&group.id) {
            continue;
        }
        match slb.describe_backends(&group.id).await {
            Ok(backends) => {
                let shown = ObservedGroup { name: group.name.clone(), backends: Some(Arc::new(backends)) };
                observed.groups.insert(group.id.clone(), shown);
                whole = false;
            }
            Err(fault) if fault.kind == FaultKind::Gone => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(whole)
}

/// Reads what `needs` finds missing; what is read can show that more is needed.
pub(super) async fn complete(
    slb: &Slb,
    bulk: &Bulk,
    observed: &mut Observed,
    needs: impl Fn(&Observed) -> MissingReads,
) -> Result<(), Fault> {
    let id = observed.instance.as_ref().map(|instance| instance.id.clone()).unwrap_or_default();
    let mut missing = needs(observed);
    while !missing.is_empty() {
        if missing.instance {
            observed.instance = Some(slb.describe_instance(&id).await?);
        }
        for group_id in &missing.group_backends {
            let backends = slb.describe_backends(group_id).await?;
            observed.groups.entry(group_id.clone()).or_default().backends = Some(Arc::new(backends));
        }
        if missing.listeners {
            observed.listeners = Some(bulk.listeners(&id).await?);
        }
        for key in &missing.domain_extensions {
            let extensions = slb.describe_domain_extensions(&id, key.port).await?;
            if let Some(listener) = observed.listeners.as_mut().and_then(|listeners| listeners.get_mut(key)) {
                listener.domain_extensions = Some(extensions);
            }
        }
        for certificate in &missing.certificates {
            let state = slb.certificate_state(certificate).await?;
            observed.certificates.insert(certificate.clone(), state);
        }
        if let Some(name) = &missing.access_list {
            observed.access_list = find_access_list(slb, name).await?;
        }
        let before = missing;
        missing = needs(observed);
        if missing == before {
            // Reading did not help, and would not help again.
            break;
        }
    }
    Ok(())
}

/// Reads again those parts that a plan made from memory would change.
pub(super) async fn refresh(
    slb: &Slb,
    bulk: &Bulk,
    desired: &Desired,
    plan: &Plan,
    observed: &mut Observed,
    made: &Made,
) -> Result<(), Fault> {
    let Some(instance) = &observed.instance else { return Ok(()) };
    let id = instance.id.clone();
    let touches = |part: ResourceKind| plan.steps.iter().any(|step| step.operation.part() == part);
    if touches(ResourceKind::Instance) {
        observed.instance = Some(slb.describe_instance(&id).await?);
    }
    if touches(ResourceKind::Groups) {
        list_groups(slb, observed, made).await?;
    }
    if touches(ResourceKind::Listeners) {
        observed.listeners = None;
    }
    if touches(ResourceKind::AccessList) {
        observed.access_list = AccessList::Unread;
    }
    complete(slb, bulk, observed, |observed| desired.needs(observed)).await
}
