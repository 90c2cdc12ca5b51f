//! What a Service has set up in the cloud that nothing there tells from the work of a person: it is remembered in an annotation
//! of the Service, before it is set, so that exactly this is taken back once the Service no longer asks for it.
//!
//! The annotation lists, separated by commas, `SESSION_AFFINITY`, `NODE_HEALTH_CHECK`, `SOURCE_RANGES`, and the ids of
//! server groups of users that were given backends of ours. Only load balancers that never asked for any of it lack it.

use std::collections::BTreeSet;

use crate::plan::inputs::ServiceView;

/// Annotation about a classic load balancer.
pub const CLB: &str = "alicloud-ccm/applied-clb";
/// Annotation about a network load balancer.
pub const NLB: &str = "alicloud-ccm/applied-nlb";

/// `spec.sessionAffinity` is kept by listeners.
pub(crate) const SESSION_AFFINITY: &str = "session-affinity";
/// Listeners check at `spec.healthCheckNodePort`.
pub(crate) const NODE_HEALTH_CHECK: &str = "node-health-check";
/// There is, or may be, an access control list or a security group for `spec.loadBalancerSourceRanges`.
pub(crate) const SOURCE_RANGES: &str = "source-ranges";

/// What was applied, sorted.
pub type Applied = BTreeSet<String>;

/// What the annotation with this key lists.
pub fn applied(service: &ServiceView, annotation: &str) -> Applied {
    let text = service.own_annotations.get(annotation).map(String::as_str).unwrap_or_default();
    text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The value of the annotation; `None` if it is not needed.
pub fn value(applied: &Applied) -> Option<String> {
    let items: Vec<&str> = applied.iter().map(String::as_str).collect();
    (!items.is_empty()).then(|| items.join(","))
}

/// The server groups of users among these.
pub(crate) fn groups(applied: &Applied) -> impl Iterator<Item = &String> {
    let others = [SESSION_AFFINITY, NODE_HEALTH_CHECK, SOURCE_RANGES];
    applied.iter().filter(move |item| !others.contains(&item.as_str()))
}
