//! Values of annotations, by their kinds.

use alicloud_ccm::plan::loadbalancer::annotations::PREFIX;
use alicloud_ccm::plan::loadbalancer::annotations::values::ValueKind;

/// A value that makes no sense wherever a value can be wrong.
pub(crate) const INVALID: &str = "!!";

/// Values for keys whose kind does not say what exists.
const EXISTING: &[(&str, &[&str])] = &[
    ("id", &["lb-missing"]),
    ("address-type", &["intranet", "internet"]),
    ("bandwidth-package-id", &["cbwp-1", "cbwp-2"]),
    ("security-group-ids", &["sg-user-1", "sg-user-2", "sg-user-1,sg-user-2"]),
    ("cert-id", &["cert-1", "cert-2"]),
    ("additional-cert-ids", &["cert-3"]),
    ("cacert-id", &["ca-1", "ca-2"]),
    ("tls-cipher-policy", &["tls_cipher_policy_1_1", "tls_cipher_policy_1_2"]),
    ("spec", &["slb.s2.small", "slb.s3.small"]),
    ("vswitch-id", &["vsw-i", "vsw-j"]),
    ("master-zoneid", &["cn-hangzhou-i", "cn-hangzhou-j"]),
    ("slave-zoneid", &["cn-hangzhou-i", "cn-hangzhou-j"]),
    ("resource-group-id", &["rg-1", "rg-2"]),
    ("vgroup-port", &["GROUP-a:80", "GROUP-b:80", "GROUP-a:80,GROUP-b:443", "GROUP-a:8080,GROUP-a:443"]),
];

/// Stands for what the ids of the server groups begin with that are on the load balancer of a Service's user.
pub(crate) const GROUP: &str = "GROUP";

/// Some values that are right.
pub(crate) fn valid(key: &str, kind: ValueKind) -> Vec<String> {
    let own = EXISTING.iter().find(|(suffix, _)| key.strip_prefix(PREFIX) == Some(suffix));
    if let Some((_, values)) = own {
        return values.iter().map(|value| (*value).to_owned()).collect();
    }
    let text = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match kind {
        ValueKind::AnyValue | ValueKind::Presence => text(&["one"]),
        ValueKind::Text => text(&["text-1"]),
        ValueKind::LoadBalancerName { .. } => text(&["one", "two-2"]),
        ValueKind::Address => text(&["192.168.0.222"]),
        ValueKind::HostName => text(&["a.example.com", "b.example.com"]),
        ValueKind::HealthPath => text(&["/a", "/b"]),
        ValueKind::HealthDomain(own) => text(&["a.example.com", own]),
        ValueKind::LooseSwitch(on) => text(&[on, "on", "no"]),
        ValueKind::Switch(_) => text(&["on", "off"]),
        ValueKind::OneOfOrLast(values)
        | ValueKind::OneOf(values)
        | ValueKind::OneOfGrowing(values)
        | ValueKind::AnyCase(values) => text(values),
        ValueKind::Integer { min, max, .. } => [min.max(1), max, min.midpoint(max)].map(|it| it.to_string()).to_vec(),
        ValueKind::AclIds => text(&["acl-1", "acl-2", "acl-1,acl-2"]),
        ValueKind::Cookie => text(&["one", "two"]),
        ValueKind::HttpCodes => text(&["http_2xx", "http_2xx,http_3xx"]),
        ValueKind::Tags => text(&["a=1", "a=2,b=3"]),
        ValueKind::Labels => text(&["color=blue", "color=green"]),
        ValueKind::Ids { .. } => text(&["id-1", "id-2"]),
        ValueKind::ZoneMaps => text(&["cn-hangzhou-i:vsw-i,cn-hangzhou-j:vsw-j"]),
        ValueKind::ProtocolPorts(names) | ValueKind::AnyCaseProtocolPorts(names) => {
            names.iter().flat_map(|name| [80, 443].map(|port| format!("{name}:{port}"))).collect()
        }
        ValueKind::PortRanges => text(&["80-90:80"]),
        ValueKind::ForwardPorts => text(&["80:443"]),
        ValueKind::ServerGroupPorts => text(&[]),
        ValueKind::DomainExtensions => text(&["a.example.com:cert-2", "b.example.com:cert-3"]),
    }
}
