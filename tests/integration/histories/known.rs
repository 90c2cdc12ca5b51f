//! What lives do not do or judge yet, each with the reason.

use alicloud_ccm::plan::loadbalancer::annotations::PREFIX;

/// Annotations that are not tried.
const ANNOTATIONS: &[(&str, &str)] = &[
    ("service.beta.kubernetes.io/class", "hands the Service to another controller"),
    ("type", "the switch for it is off in the configuration"),
    ("tunnel-type", "hands the Service to another controller"),
    ("external-ip-type", "there are no elastic addresses"),
    ("ip-version", "there are no IPv6 addresses"),
    ("backend-ip-version", "the same"),
    ("ipv6-address-type", "the same"),
    ("listener-port-range", "no port of the pods is in the range"),
    ("charge-type", "charging changes one way only, and what cannot be changed is a problem that lasts"),
    ("bandwidth", "the same"),
    ("instance-charge-type", "the same"),
    ("spec", "the same"),
    ("ip", "two Services cannot have the same address"),
];

/// Attributes that are chosen when the load balancer is made: a later change is refused for the whole load balancer.
const FIXED: &[&str] =
    &["address-type", "vswitch-id", "network-type", "master-zoneid", "slave-zoneid", "resource-group-id"];

/// Whether an annotation is not tried yet.
pub(crate) fn annotation(key: &str) -> bool {
    let suffix = key.strip_prefix(PREFIX).unwrap_or(key);
    ANNOTATIONS.iter().any(|(known, _)| *known == suffix)
}

/// Whether a change of it is a problem of the whole load balancer.
pub(crate) fn fixed(suffix: &str) -> bool {
    FIXED.contains(&suffix)
}

/// Places of the end that are not judged, by a word of their paths.
const PLACES: &[(&str, &str)] = &[
    ("master_zone", "where most nodes were when the load balancer was made"),
    ("slave_zone", "the same"),
    ("zones", "the same"),
    (
        "modification_reason",
        "a protection that is stated at creation has no reason, and one that is stated later keeps it",
    ),
    ("HealthCheckURI", "settings of HTTP checks are sent with a new listener that does not check so, and not later"),
    ("HealthCheckDomain", "the same"),
    ("HealthCheckHttpCode", "the same"),
    ("HealthCheckMethod", "the same"),
    ("ppv2", "what the PROXY protocol tells is sent with a new listener that does not speak it, and not later"),
];

/// Whether a place of the end is not judged.
pub(crate) fn place(path: &str) -> bool {
    path.split('\u{1f}').any(|part| PLACES.iter().any(|(known, _)| *known == part))
}
