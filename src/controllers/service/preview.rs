//! What reconciles would do now, without doing it: the same reads, the same planning.

use std::sync::Arc;

use super::bulk::{Bulk, Look};
use super::creations::Made;
use super::observe::{FindError, Found, complete, find, read};
use super::references::{Leaving, Reader, settings_of};
use super::report::Trouble;
use super::status::{self, label};
use super::{CONTROLLER, Views};
use crate::alibaba::{CloudClient, Fault};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::plan::PlanLine;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::diff::diff;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::Plan;
use crate::plan::clb::status::expected_ingress;
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::service::handling::{Handling, handed_over, handling};
use crate::plan::service::ownership::FINALIZER;
use crate::plan::service::settings::ServiceSettings;

/// The steps for all Services, or for one; waits until the watches are filled. A Service that asks for what cannot be is a
/// line of its own.
///
/// # Errors
/// The cloud did not answer.
pub async fn plan(
    cluster: &Cluster,
    cloud: &CloudClient,
    place: &CloudLocation,
    config: &Config,
    only: Option<&ObjectKey>,
) -> Result<Vec<PlanLine>, Fault> {
    let (services, endpoints, nodes) = (cluster.services(), cluster.endpoints(), cluster.nodes());
    tokio::join!(services.store.synced(), endpoints.store.synced(), nodes.store.synced());
    let views =
        Views { services: services.store.clone(), endpoints: endpoints.store.clone(), nodes: nodes.store.clone() };
    let settings = settings_of(config, place);
    let reader = Reader::new(cluster.clone(), cloud.clone(), Arc::new(place.clone()), views);
    let services = services.store.all();
    let mut lines = Vec::new();
    for service in services.iter().filter(|service| only.is_none_or(|key| service.key == *key)) {
        let line =
            |destroys, text| PlanLine { controller: CONTROLLER, object: service.key.to_string(), text, destroys };
        match plan_one(&reader, cloud, &settings, service).await {
            Ok(steps) => lines.extend(steps.into_iter().map(|(destroys, text)| line(destroys, text))),
            Err(Trouble::Cloud(fault) | Trouble::Find(FindError::Fault(fault))) => return Err(fault),
            Err(trouble) => lines.push(line(false, format!("cannot be brought into agreement: {trouble}"))),
        }
    }
    Ok(lines)
}

type Lines = Vec<(bool, String)>;

async fn plan_one(
    reader: &Reader,
    cloud: &CloudClient,
    settings: &ServiceSettings,
    service: &ServiceView,
) -> Result<Lines, Trouble> {
    match handling(service, settings) {
        Handling::Ignore => match handed_over(service, settings) {
            Some(problem) => Err(Trouble::HandedOver(problem)),
            None => Ok(Lines::new()),
        },
        Handling::Ensure => ensure(reader, cloud, settings, service).await,
        Handling::Delete => clean(reader, cloud, settings, service).await,
    }
}

async fn ensure(
    reader: &Reader,
    cloud: &CloudClient,
    settings: &ServiceSettings,
    service: &ServiceView,
) -> Result<Lines, Trouble> {
    let mut desired = reader.wanted(service, settings, None).await?.desired;
    let mut lines = Lines::new();
    if !service.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        lines.push((false, format!("add finalizer {FINALIZER}")));
    }
    let bulk = Bulk::new(cloud.slb.clone());
    let observed =
        match find(&cloud.slb, &bulk, service, &desired.owner, desired.reuse.as_deref(), Look::Later, &Made::default())
            .await?
        {
            Found::Instance(instance) => {
                let observed = Observed { instance: Some(*instance), ..Observed::default() };
                read(&cloud.slb, &bulk, observed, |observed| desired.needs(observed)).await?
            }
            Found::Absent { .. } if label(service).is_empty() && service.ingress.is_empty() => {
                reader.may_make(service).await?;
                absent(cloud, &bulk, &desired).await?
            }
            Found::Unmarked(instance) => return Err(Trouble::Detached(instance.id)),
            Found::Absent { proven: false } => return Err(Trouble::Unfindable(label(service).to_owned())),
            Found::Absent { proven: true } => {
                reader.may_make(service).await?;
                lines.push((false, format!("replace load balancer {}, which was deleted outside", label(service))));
                absent(cloud, &bulk, &desired).await?
            }
        };
    if observed.instance.is_none() {
        reader.place(service, settings, &mut desired).await;
    }
    lines.extend(steps(diff(&desired, &observed)));
    match &observed.instance {
        None => lines.push((false, "publish the address of the load balancer".to_owned())),
        Some(instance) => {
            let eips = match desired.eip {
                true => cloud.vpc.describe_load_balancer_eips(&instance.id).await?,
                false => Vec::new(),
            };
            if label(service) != instance.id {
                lines.push((false, format!("set label to {}", instance.id)));
            }
            let ingress = expected_ingress(&desired, instance, &eips);
            let details = status::details(reader.cluster(), service, &desired, &observed, &ingress);
            if service.ingress != ingress || !status::tells(&service.ingress_details, &details) {
                let shown: Vec<_> = ingress.iter().map(|entry| format!("{}{}", entry.ip, entry.hostname)).collect();
                lines.push((false, format!("publish {}", shown.join(", "))));
            }
        }
    }
    Ok(lines)
}

/// There is no load balancer; something that goes with one may be left.
async fn absent(cloud: &CloudClient, bulk: &Bulk, desired: &Desired) -> Result<Observed, Trouble> {
    let mut observed = Observed::default();
    complete(&cloud.slb, bulk, &mut observed, |observed| desired.needs(observed)).await?;
    Ok(observed)
}

async fn clean(
    reader: &Reader,
    cloud: &CloudClient,
    settings: &ServiceSettings,
    service: &ServiceView,
) -> Result<Lines, Trouble> {
    let mut leaving = Leaving::of(service, settings);
    let mut lines = Lines::new();
    let bulk = Bulk::new(cloud.slb.clone());
    let found =
        match find(&cloud.slb, &bulk, service, &leaving.owner, leaving.reuse(), Look::Later, &Made::default()).await {
            Err(FindError::ReusedMissing(_)) => Found::Absent { proven: true },
            found => found?,
        };
    if matches!(found, Found::Absent { .. }) && leaving.reuse().is_none() {
        reader.may_release(service).await?;
    }
    let observed = leaving.read(&cloud.slb, &bulk, reader, found, &Made::default()).await?;
    lines.extend(steps(leaving.plan(&observed)));
    lines.push((true, format!("clear status and labels, remove finalizer {FINALIZER}")));
    Ok(lines)
}

fn steps(plan: Plan) -> Lines {
    let steps = plan.steps.iter().map(|step| (step.destroys, format!("{}  # {}", step.operation, step.reason)));
    let problems = plan.problems.iter().map(|problem| (false, format!("problem: {problem}")));
    let notes = plan.notes.iter().map(|note| (false, format!("note: {note}")));
    steps.chain(problems).chain(notes).collect()
}
