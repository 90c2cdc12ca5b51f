//! The lines of the command `plan`: what the engine prepares, printed instead of carried out.

use std::sync::Arc;

use super::find::FindError;
use super::prepare::{Case, Prepared, Preparer, Presence};
use super::product::Product;
use super::report::ReconcileError;
use super::state::ServiceState;
use super::status::WriteBack;
use crate::alibaba::Fault;
use crate::cluster::Cluster;
use crate::plan::PlanLine;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::service::handling::Handling;
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::settings::ServiceSettings;

/// A line, and whether it destroys something.
type Line = (bool, String);

/// The steps for all Services, or for one. A Service that asks for what cannot be is a line of its own.
///
/// # Errors
/// The cloud did not answer.
pub(super) async fn plan<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    settings: &Arc<ServiceSettings>,
    only: Option<&ObjectKey>,
) -> Result<Vec<PlanLine>, Fault> {
    let mut lines = Vec::new();
    for service in preparer.views.services.store.all().iter() {
        if only.is_some_and(|only| service.key != *only) {
            continue;
        }
        let object = service.key.to_string();
        let line = |destroys, text| PlanLine { controller: P::CONTROLLER, object: object.clone(), text, destroys };
        match plan_one(preparer, cluster, settings, service.clone()).await {
            Ok(steps) => lines.extend(steps.into_iter().map(|(destroys, text)| line(destroys, text))),
            Err(ReconcileError::Cloud(fault) | ReconcileError::Find(FindError::Fault(fault))) => return Err(fault),
            Err(error) => lines.push(line(false, format!("cannot be brought into agreement: {error}"))),
        }
    }
    Ok(lines)
}

async fn plan_one<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    settings: &Arc<ServiceSettings>,
    service: Arc<ServiceView>,
) -> Result<Vec<Line>, ReconcileError> {
    let handling = P::KIND.handling(&service, settings);
    if handling == Handling::Ignore {
        return P::KIND
            .handed_over(&service, settings)
            .map_or(Ok(Vec::new()), |why| Err(ReconcileError::HandedOver(why)));
    }
    if handling == Handling::ServeOn {
        return Ok(P::KIND
            .succession(&service, settings)
            .map(|text| (false, format!("note: {text}")))
            .into_iter()
            .collect());
    }
    let service = if handling == Handling::Retire { Arc::new(P::KIND.superseded(&service)) } else { service };
    let state = ServiceState::new(&service.uid);
    let mut case = Case { service, settings: settings.clone(), handling, state };
    let wanted = preparer.wanted(&mut case).await?;
    let mut prepared = preparer.prepare(&mut case, wanted).await?;
    if let Some(fault) = prepared.sighting.unread.pop() {
        return Err(fault.into());
    }
    let service = &case.service;
    let mut lines = Vec::new();
    if handling == Handling::Ensure && !P::KIND.is_managed(service) {
        lines.push((false, format!("add finalizer {}", P::KIND.finalizer())));
    }
    let is_gone = prepared.sighting.presence == Presence::Absent { proven: true } && !P::KIND.label(service).is_empty();
    if handling == Handling::Ensure && is_gone {
        lines.push((false, format!("replace load balancer {}, which was deleted outside", P::KIND.label(service))));
    }
    let steps = prepared.plan.steps.iter();
    lines.extend(steps.map(|step| (step.destroys, format!("{}  # {}", step.operation, step.reason))));
    lines.extend(prepared.plan.problems.iter().map(|problem| (false, format!("problem: {problem}"))));
    lines.extend(prepared.plan.notes.iter().map(|note| (false, format!("note: {note}"))));
    match handling {
        Handling::Delete => {
            lines.push((true, format!("clear status and labels, remove finalizer {}", P::KIND.finalizer())));
        }
        Handling::Retire => lines.push((true, format!("remove finalizer {}", P::KIND.finalizer()))),
        _ => lines.extend(write_back(preparer, cluster, service, &prepared).await?),
    }
    Ok(lines)
}

async fn write_back<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    service: &ServiceView,
    prepared: &Prepared<P>,
) -> Result<Vec<Line>, Fault> {
    let (goal, observed) = (&prepared.goal, &*prepared.sighting.observed);
    let Some(id) = observed.id() else {
        return Ok(vec![(false, "publish the address of the load balancer".to_owned())]);
    };
    let elastic = match P::facts(goal).publishes_elastic {
        true => preparer.product.elastic_addresses(id).await?,
        false => Vec::new(),
    };
    let mut lines = Vec::new();
    if P::KIND.label(service) != id {
        lines.push((false, format!("set label to {id}")));
    }
    let wanted = WriteBack::of::<P>(cluster, service, (goal, observed), &elastic);
    if !wanted.is_published(service) {
        let shown: Vec<_> = wanted.ingress.iter().map(|entry| format!("{}{}", entry.ip, entry.hostname)).collect();
        lines.push((false, format!("publish {}", shown.join(", "))));
    }
    Ok(lines)
}
