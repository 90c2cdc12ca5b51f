//! Fields of a Service's `spec`, and what each means to its load balancer.

use super::problem::ServiceProblem;
use crate::plan::inputs::ServiceView;

/// What a field means to a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldUse {
    /// It decides something.
    Honoured(&'static str),
    /// It has no effect; a warning says so.
    Told(&'static str),
    /// It does not concern a load balancer.
    Other(&'static str),
}

use FieldUse::{Honoured, Other, Told};

/// Every field.
pub const SPEC_FIELDS: &[(&str, FieldUse)] = &[
    ("allocateLoadBalancerNodePorts", Honoured("without node ports, backends need `backend-type` `eni`")),
    ("clusterIP", Other("addresses inside the cluster")),
    ("clusterIPs", Other("addresses inside the cluster")),
    ("externalIPs", Told("no load balancer has these addresses; only the nodes answer to them")),
    ("externalName", Other("Services of the type `ExternalName`")),
    ("externalTrafficPolicy", Honoured("with `Local`, only nodes with ready pods are backends")),
    ("healthCheckNodePort", Honoured("checked on nodes, with `service.local_health_check`")),
    ("internalTrafficPolicy", Other("traffic inside the cluster")),
    ("ipFamilies", Other("addresses inside the cluster; `ip-version` is about those of the load balancer")),
    ("ipFamilyPolicy", Other("addresses inside the cluster; `ip-version` is about those of the load balancer")),
    ("loadBalancerClass", Honoured("which controller handles the Service")),
    ("loadBalancerIP", Told("the annotation `ip` (classic) or `zone-maps` (network) states an address")),
    ("loadBalancerSourceRanges", Honoured("who may connect")),
    ("ports", Honoured("a listener and a server group for each")),
    ("publishNotReadyAddresses", Honoured("the API server then shows all endpoints as ready")),
    ("selector", Honoured("without it, the endpoints say which of their ports counts")),
    ("sessionAffinity", Honoured("`ClientIP` on TCP listeners of classic load balancers; a warning elsewhere")),
    ("sessionAffinityConfig", Honoured("how long `ClientIP` lasts, at most an hour")),
    ("trafficDistribution", Other("traffic inside the cluster")),
    ("type", Honoured("whether there is a load balancer")),
];

/// What the Service says in vain.
pub(super) fn without_effect(service: &ServiceView) -> impl Iterator<Item = ServiceProblem> {
    let told = SPEC_FIELDS.iter().filter_map(|(field, meaning)| match meaning {
        Told(why) => Some((*field, *why)),
        _ => None,
    });
    told.filter_map(|(field, why)| {
        let (_, given) = service.vain_fields.iter().find(|(name, _)| *name == field)?;
        Some(ServiceProblem::ignored(format!("spec.{field}"), given, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles only while it names every field of the newest API.
    macro_rules! names_of {
        ($type:path { $($field:ident),* $(,)? }) => {{
            let $type { $($field: _),* } = Default::default();
            [$(stringify!($field)),*].map(|name| name.trim_end_matches('_').replace('_', ""))
        }};
    }

    #[test]
    fn every_field_of_a_service_is_honoured_or_told_or_about_something_else() {
        let known = names_of!(k8s_openapi::api::core::v1::ServiceSpec {
            allocate_load_balancer_node_ports,
            cluster_ip,
            cluster_ips,
            external_ips,
            external_name,
            external_traffic_policy,
            health_check_node_port,
            internal_traffic_policy,
            ip_families,
            ip_family_policy,
            load_balancer_class,
            load_balancer_ip,
            load_balancer_source_ranges,
            ports,
            publish_not_ready_addresses,
            selector,
            session_affinity,
            session_affinity_config,
            traffic_distribution,
            type_,
        });
        let listed: Vec<String> = SPEC_FIELDS.iter().map(|(field, _)| field.to_lowercase()).collect();
        assert_eq!(listed, known);
    }
}
