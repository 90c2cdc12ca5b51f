//! What the command `explain` says of one Service beside its plan.

use super::clb::ClbProduct;
use super::prepare::{Case, Prepared};
use super::product::Product;
use super::settings_of;
use crate::config::Config;
use crate::controllers::Previewed;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::handling::{self, Handling, NLB_CLASS};
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::location::CloudLocation;

/// A Service's load balancer, as it is wanted and as it is, without the plan.
pub(super) fn details<P: Product>(case: &Case<P::Model>, prepared: &Prepared<P>) -> Previewed {
    let (goal, observed) = (&prepared.goal, &*prepared.sighting.observed);
    // Where a user's load balancer is named, nothing can be made from nothing.
    let from_nothing = goal.named().is_none().then(|| goal.diff(&Observed::default()));
    let steps = from_nothing.iter().flat_map(|plan| &plan.steps);
    Previewed {
        lines: Vec::new(),
        wanted: steps.map(|step| step.operation.to_string()).collect(),
        found: found(P::KIND, &case.settings.region, observed),
        settings: goal.origins(&case.service, &case.settings, observed),
    }
}

/// Where the console shows a load balancer.
fn console(kind: LoadBalancerKind, region: &str, id: &str) -> String {
    let product = match kind {
        LoadBalancerKind::Clb => "slb",
        LoadBalancerKind::Nlb => "nlb",
    };
    format!("https://slb.console.aliyun.com/{product}/{region}/{product}s/{id}")
}

/// What there is, a line each.
fn found(kind: LoadBalancerKind, region: &str, observed: &Observed<impl CloudModel>) -> Vec<String> {
    let Some(instance) = observed.tagged() else { return vec!["no load balancer".to_owned()] };
    let mut lines = vec![format!("load balancer {} ({}), {}", instance.id, instance.name, instance.address)];
    lines.push(format!("console: {}", console(kind, region, instance.id)));
    let group_of = |id: &str| match observed.groups.get(id) {
        Some(group) => format!("server group {id} ({})", group.name),
        None if id.is_empty() => "no server group".to_owned(),
        None => format!("server group {id}"),
    };
    let listeners = observed.listeners.as_ref().into_iter().flatten();
    lines.extend(listeners.map(|(key, listener)| format!("listener {key}, to {}", group_of(&listener.group_id))));
    for (id, group) in &observed.groups {
        let backends = match &group.backends {
            Some(backends) => format!("{} backends", backends.len()),
            None => "backends not read".to_owned(),
        };
        lines.push(format!("server group {id} ({}), {backends}", group.name));
    }
    lines
}

/// Why a Service is not for the controller of this kind; `None` if it is.
pub fn declines(kind: LoadBalancerKind, config: &Config, service: &ServiceView) -> Option<String> {
    let settings = settings_of::<ClbProduct>(config, "", &CloudLocation::default());
    if kind.handling(service, &settings) != Handling::Ignore {
        return None;
    }
    if !service.is_load_balancer() {
        return Some("the Service is not of the type LoadBalancer".to_owned());
    }
    Some(match kind.claimed_by_other(service, &settings) {
        Some((field, given)) if !given.is_empty() => format!("{field} is {given:?}"),
        Some((field, _)) if kind == LoadBalancerKind::Clb => format!("{field} is set"),
        Some((field, _)) => format!("{field} is not {NLB_CLASS:?}"),
        None => "the Service is being deleted, and nothing of it is left".to_owned(),
    })
}

/// Why no controller handles a Service that asks for a load balancer of this program; `None` if one does, or if it does not ask.
pub fn unhandled(config: &Config, service: &ServiceView) -> Option<String> {
    handling::unhandled(service, &settings_of::<ClbProduct>(config, "", &CloudLocation::default()))
}
