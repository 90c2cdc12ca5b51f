//! Settings of a Service that have no effect, as far as they are the same for every product.

use super::annotations::{AnnotationName, Annotations};
use super::backends::{BackendMode, BackendRules, Inputs};
use super::problem::ServiceProblem;

/// A setting, whether it has no effect, and why.
pub(crate) type Row<N> = (N, bool, String);

/// The complaint about a setting of listeners that are not managed.
pub(crate) fn unmanaged<N: AnnotationName>(annotations: &Annotations<N>, name: N) -> ServiceProblem {
    let key = annotations.key(N::FORCE_OVERRIDE_LISTENERS);
    annotations.ignored(name, format!("listeners of a load balancer of yours are only managed with {key}"))
}

/// Lists by port that name a port which the Service does not have.
pub(crate) fn unknown_ports<N: AnnotationName>(
    inputs: &Inputs<'_>,
    annotations: &Annotations<N>,
    names: &[N],
) -> Vec<ServiceProblem> {
    let known = |port: u16| inputs.service.ports.iter().any(|known| known.port == port);
    let about = |name: &N| {
        let key = annotations.key(*name);
        let unknown = annotations.ports(*name).filter(|(port, _)| !known(*port));
        unknown.map(move |(port, text)| {
            ServiceProblem::ignored(&key, format!("{text}:{port}"), "the Service has no such port")
        })
    };
    names.iter().flat_map(about).collect()
}

/// Settings of the instance and of backends that need something else to have an effect; `more` are those of the product.
pub(crate) fn dependent<N: AnnotationName>(
    annotations: &Annotations<N>,
    is_reused: bool,
    rules: &BackendRules,
    more: Vec<Row<N>>,
) -> Vec<ServiceProblem> {
    let set = |name| annotations.is_stated(name);
    let is_on = |name| annotations.is(name, "true");
    let key = |name| annotations.key(name);
    let eni = rules.mode == BackendMode::Eni;
    let shared = is_reused && set(N::VGROUP_PORT);
    let any_node = "pods are attached directly, on whatever node they are".to_owned();
    let graceful = eni && !annotations.is(N::IGNORE_WEIGHT_UPDATE, "on");
    let table: [Row<N>; 9] = [
        (
            N::FORCE_OVERRIDE_LISTENERS,
            !is_reused && is_on(N::FORCE_OVERRIDE_LISTENERS),
            format!("listeners are managed anyway without {}", key(N::ID)),
        ),
        (N::PRESERVE_LB_ON_DELETE, is_reused, "a load balancer of yours is kept in any case".to_owned()),
        (N::BACKEND_LABEL, eni, any_node.clone()),
        (N::REMOVE_UNSCHEDULED_BACKEND, eni, any_node),
        (
            N::GRACEFUL_SHUTDOWN,
            !graceful && is_on(N::GRACEFUL_SHUTDOWN),
            format!("it needs {}: eni, and no {}", key(N::BACKEND_TYPE), key(N::IGNORE_WEIGHT_UPDATE)),
        ),
        (N::VGROUP_PORT, !is_reused, format!("it needs {}", key(N::ID))),
        (N::WEIGHT, !shared, format!("it needs {} and {}", key(N::ID), key(N::VGROUP_PORT))),
        (
            N::DEFAULT_WEIGHT,
            rules.mode == BackendMode::Local,
            "with externalTrafficPolicy: Local the number of pods is the weight of a node".to_owned(),
        ),
        (
            N::DEFAULT_WEIGHT,
            rules.mode != BackendMode::Local && shared && set(N::WEIGHT),
            format!("{} decides", key(N::WEIGHT)),
        ),
    ];
    let without_effect = more.into_iter().chain(table).filter(|(name, ineffective, _)| *ineffective && set(*name));
    without_effect.map(|(name, _, why)| annotations.ignored(name, why)).collect()
}
