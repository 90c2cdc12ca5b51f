//! Prints the plan that the engine would execute, for the commands `plan` and `explain`.

use std::fmt::Display;
use std::sync::Arc;

use super::explain::details;
use super::prepare::{Case, Prepared, Preparer, Presence};
use super::product::Product;
use super::report::Halt;
use super::state::ServiceState;
use super::status::WriteBack;
use crate::alibaba::Fault;
use crate::cluster::Cluster;
use crate::controllers::Previewed;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::settings::ServiceSettings;
use crate::plan::{LineKind, PlanLine};

/// What a line is about, whether it destroys something, and its text.
type Line = (LineKind, bool, String);

fn step(destroys: bool, text: impl Into<String>) -> Line {
    (LineKind::Step, destroys, text.into())
}

fn cannot(why: impl Display) -> Line {
    (LineKind::Problem, false, format!("cannot be brought into agreement: {why}"))
}

fn note(text: impl Display) -> Line {
    (LineKind::Note, false, text.to_string())
}

/// The steps for all Services. A Service that asks for what cannot be is a line of its own.
///
/// # Errors
/// The cloud did not answer.
pub(super) async fn plan<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    settings: &Arc<ServiceSettings>,
) -> Result<Vec<PlanLine>, Fault> {
    let mut lines = Vec::new();
    for service in preparer.views.services.store.all().iter() {
        lines.extend(plan_service(preparer, cluster, settings, service.clone()).await?.lines);
    }
    Ok(lines)
}

/// The steps for one Service.
///
/// # Errors
/// The cloud did not answer.
pub(super) async fn plan_service<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    settings: &Arc<ServiceSettings>,
    service: Arc<ServiceView>,
) -> Result<Previewed, Fault> {
    let object = service.key.to_string();
    let mut previewed = Previewed::default();
    let lines = plan_one(preparer, cluster, (settings, service), &mut previewed).await?;
    let controller = P::CONTROLLER;
    let line = |(kind, destroys, text)| PlanLine { controller, object: object.clone(), text, destroys, kind };
    previewed.lines = lines.into_iter().map(line).collect();
    Ok(previewed)
}

async fn plan_one<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    (settings, service): (&Arc<ServiceSettings>, Arc<ServiceView>),
    previewed: &mut Previewed,
) -> Result<Vec<Line>, Fault> {
    let handling = P::KIND.handling(&service, settings);
    if handling == Handling::Ignore {
        return Ok(P::KIND.handed_over(&service, settings).map(cannot).into_iter().collect());
    }
    if handling == Handling::ServeOn {
        return Ok(P::KIND.succession(&service, settings).map(note).into_iter().collect());
    }
    let service = if handling == Handling::Retire { Arc::new(P::KIND.superseded(&service)) } else { service };
    let state = ServiceState::new(&service.uid);
    let mut case = Case { service, settings: settings.clone(), handling, state, problems: Vec::new() };
    let was_managed = P::KIND.is_managed(&case.service);
    let mut moves = false;
    let looked = async {
        let looked = look(preparer, &mut case).await;
        moves = handling == Handling::Ensure && preparer.moves(&case, looked.as_ref(), was_managed).await?;
        if !moves {
            return looked;
        }
        case.start_again();
        look(preparer, &mut case).await
    };
    let mut prepared = match looked.await {
        Ok(prepared) => prepared,
        Err(Halt::Cloud(fault)) => return Err(fault),
        Err(error) => return Ok(vec![cannot(error.beside(&case.problems))]),
    };
    if let Some(fault) = prepared.sighting.unread.pop() {
        return Err(fault);
    }
    *previewed = details(&case, &prepared);
    let (service, handling) = (&case.service, case.handling);
    let mut lines = Vec::new();
    if handling == Handling::Ensure && !P::KIND.is_managed(service) {
        lines.push(step(false, format!("add finalizer {}", P::KIND.finalizer())));
    }
    let is_gone = prepared.sighting.presence == Presence::Absent { proven: true } && !P::KIND.label(service).is_empty();
    if handling == Handling::Ensure && is_gone {
        lines.push(step(
            false,
            format!("replace load balancer {}, which does not exist any more", P::KIND.label(service)),
        ));
    }
    let steps = prepared.plan.steps.iter();
    lines.extend(steps.map(|it| step(it.destroys, format!("{}  # {}", it.operation, it.reason))));
    let problems = prepared.plan.problems.iter();
    lines.extend(problems.map(|problem| (LineKind::Problem, false, problem.to_string())));
    lines.extend(prepared.plan.notes.iter().map(note));
    match handling {
        Handling::Delete => {
            lines.push(step(true, format!("clear status and labels, remove finalizer {}", P::KIND.finalizer())));
        }
        Handling::Retire => lines.push(step(true, format!("remove finalizer {}", P::KIND.finalizer()))),
        _ => lines.extend(write_back(preparer, cluster, service, &prepared).await?),
    }
    lines.extend(moves.then(|| note("then the Service begins again with the load balancer that it asks for")));
    Ok(lines)
}

async fn look<P: Product>(preparer: &Preparer<P>, case: &mut Case<P::Model>) -> Result<Prepared<P>, Halt> {
    let wanted = preparer.wanted(case).await?;
    preparer.prepare(case, wanted).await
}

async fn write_back<P: Product>(
    preparer: &Preparer<P>,
    cluster: &Cluster,
    service: &ServiceView,
    prepared: &Prepared<P>,
) -> Result<Vec<Line>, Fault> {
    let (goal, observed) = (&prepared.goal, &*prepared.sighting.observed);
    let Some(id) = observed.id() else {
        let publishes =
            (!prepared.plan.steps.is_empty()).then(|| step(false, "publish the address of the load balancer"));
        return Ok(publishes.into_iter().collect());
    };
    let elastic = match goal.publishes_elastic() {
        true => preparer.product.elastic_addresses(id).await?,
        false => Vec::new(),
    };
    let mut lines = Vec::new();
    if P::KIND.label(service) != id {
        lines.push(step(false, format!("set label to {id}")));
    }
    let wanted = WriteBack::of::<P>(cluster, service, (goal, observed), &elastic);
    if !wanted.is_published(service) {
        let shown: Vec<_> = wanted.ingress.iter().map(|entry| format!("{}{}", entry.ip, entry.hostname)).collect();
        lines.push(step(false, format!("publish {}", shown.join(", "))));
    }
    Ok(lines)
}
