//! What the manifest of a Service leads to, before there is a cluster or a cloud: what `lint` prints.

use super::clb::ClbProduct;
use super::nlb::NlbProduct;
use super::product::Product;
use super::settings_of;
use crate::config::Config;
use crate::plan::clb;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::annotations::{self, AnnotationName as _, ID, LEGACY_PREFIX, PREFIX};
use crate::plan::loadbalancer::cloud::Observed;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::handling::Handling;
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::{ServiceSettings, VSwitchChoice};
use crate::plan::location::CloudLocation;
use crate::plan::nlb::annotations::Name;
use crate::plan::setting::SettingOrigin;

/// The first of the range that API servers allocate from.
const FIRST_NODE_PORT: u16 = 30000;

/// What a manifest leads to.
#[derive(Debug, Default)]
pub struct Linted {
    /// The kind of its load balancer; `None` if this program makes none for it.
    pub kind: Option<LoadBalancerKind>,
    /// What cannot be done as it is written.
    pub errors: Vec<ServiceProblem>,
    /// What has no effect, or not the one that it seems to have.
    pub warnings: Vec<ServiceProblem>,
    /// The steps of an account without any load balancer, in order. Empty where the user's own load balancer is named, which is
    /// not looked at.
    pub steps: Vec<String>,
    /// Where each setting comes from.
    pub settings: Vec<SettingOrigin>,
}

/// What an annotation does on a load balancer of this kind; `None` if it is no annotation of it.
pub fn help(kind: LoadBalancerKind, key: &str) -> Option<String> {
    match kind {
        LoadBalancerKind::Clb => annotations::help::<clb::annotations::Name>(key),
        LoadBalancerKind::Nlb => annotations::help::<Name>(key),
    }
}

/// Judges a Service by itself. What nodes, endpoints and the cloud decide is not known here, and not judged.
pub fn lint(mut service: ServiceView, config: &Config) -> Linted {
    if service.key.namespace.is_empty() {
        service.key.namespace = "default".into();
    }
    allocate_node_ports(&mut service);
    let service = &service;
    let location =
        CloudLocation { region: config.cloud.region.clone().unwrap_or_default(), ..CloudLocation::default() };
    let mut settings = settings_of::<ClbProduct>(config, "", &location);
    if settings.vswitches.is_empty() {
        // The nodes decide then.
        settings.vswitches.push(VSwitchChoice { zone: None, id: "vsw-1".to_owned() });
    }
    let is_handled = |kind: &LoadBalancerKind| kind.handling(service, &settings) == Handling::Ensure;
    let kind = LoadBalancerKind::ALL.into_iter().find(is_handled);
    let mut linted = match kind {
        Some(LoadBalancerKind::Clb) => of::<ClbProduct>(service, service, &settings),
        Some(LoadBalancerKind::Nlb) => of::<NlbProduct>(service, &in_zones(service, &settings), &settings),
        None => unhandled(service, &settings),
    };
    linted.warnings.extend(old_keys(service));
    linted
}

/// Gives a network load balancer zones where its manifest leaves them to the place of the nodes: those of the configuration, or
/// examples.
fn in_zones(service: &ServiceView, settings: &ServiceSettings) -> ServiceView {
    let mut service = service.clone();
    let stated =
        settings.vswitches.iter().filter_map(|choice| Some(format!("{}:{}", choice.zone.as_ref()?, choice.id)));
    let stated: Vec<String> = stated.collect();
    let zones = if stated.is_empty() { "zone-1:vsw-1,zone-2:vsw-2".to_owned() } else { stated.join(",") };
    service.annotations.entry(Name::ZoneMaps.key()).or_insert(zones);
    service
}

/// Gives each port the node port that the API server would allocate, in its place an example.
fn allocate_node_ports(service: &mut ServiceView) {
    let allocates = service.allocate_node_ports;
    for (port, example) in
        service.ports.iter_mut().zip(FIRST_NODE_PORT..).filter(|(port, _)| allocates && port.node_port == 0)
    {
        port.node_port = example;
    }
}

/// `service` is `written` with what nodes decide.
fn of<P: Product>(written: &ServiceView, service: &ServiceView, settings: &ServiceSettings) -> Linted {
    let goal = Goal::<P::Model>::desire_alone(service, settings);
    let plan = goal.diff(&Observed::default());
    let is_named = goal.named().is_some();
    let is_judged = |problem: &ServiceProblem| !is_named || problem.field != ID.full();
    Linted {
        kind: Some(P::KIND),
        // Whether the user's load balancer is there is for the cloud to say.
        settings: goal.origins(written, settings, &Observed::default()),
        errors: plan.problems.into_iter().filter(is_judged).collect(),
        warnings: goal.warnings().iter().chain(&plan.warnings).cloned().collect(),
        steps: match is_named {
            true => Vec::new(),
            false => plan.steps.iter().map(|step| format!("{}  # {}", step.operation, step.reason)).collect(),
        },
    }
}

/// A Service that nothing is done for, which is a surprise where it carries settings of load balancers.
fn unhandled(service: &ServiceView, settings: &ServiceSettings) -> Linted {
    let mut warnings = Vec::new();
    if service.is_load_balancer() {
        let (field, given) = LoadBalancerKind::Clb.claimed_by_other(service, settings).unwrap_or_default();
        let text = format!(
            "the Service belongs to another controller, as {given:?} says; this program makes no load balancer for it"
        );
        warnings.push(ServiceProblem::state(field, text));
    } else if let Some((key, value)) = service.annotations.first() {
        warnings.push(ServiceProblem::ignored(key, value, "the Service is not of the type LoadBalancer"));
    }
    Linted { warnings, ..Linted::default() }
}

/// Keys in the spelling that was in use before September 2019.
fn old_keys(service: &ServiceView) -> impl Iterator<Item = ServiceProblem> {
    service.annotations.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(LEGACY_PREFIX)?;
        Some(match service.annotations.contains_key(&format!("{PREFIX}{name}")) {
            true => ServiceProblem::ignored(key, value, format!("{PREFIX}{name} is there too")),
            false => ServiceProblem::state(key, format!("the key is out of date; write {PREFIX}{name}")),
        })
    })
}
