//! Every annotation that asks the cloud for something: set, changed and taken away again, by today's name and by the old
//! one. What decides about backends, the status, or who looks after a Service is in [`super::desired_state`].

use super::{Cloud, World};
use crate::plan::clb::annotations::Name;
use crate::plan::clb::model::{CreateInstance, InstanceField};
use crate::plan::clb::model::{ListenerField, ListenerFields};
use crate::plan::clb::operation::{Operation, Plan};
use crate::plan::loadbalancer::annotations::{AnnotationKey, AnnotationName, Applies, LEGACY_PREFIX, PREFIX};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::diff::diff;

type Annotations = &'static [(&'static str, &'static str)];

const TCP: Annotations = &[];
const HTTP: Annotations = &[("protocol-port", "http:80")];
const HTTPS: Annotations = &[("protocol-port", "https:80")];
const CERTIFIED: Annotations = &[("protocol-port", "https:80"), ("cert-id", "cert-1")];
const BY_HTTP: Annotations = &[("health-check-type", "http")];
const CHECKED: Annotations = &[("protocol-port", "http:80"), ("health-check-flag", "on")];
const CONTROLLED: Annotations = &[("acl-status", "on"), ("acl-id", "acl-x"), ("acl-type", "white")];
const DRAINED: Annotations = &[("connection-drain", "on"), ("connection-drain-timeout", "15")];
const STICKY: Annotations = &[
    ("protocol-port", "http:80"),
    ("sticky-session", "on"),
    ("sticky-session-type", "insert"),
    ("cookie-timeout", "15"),
    ("cookie", "c"),
];
const BY_SERVER: Annotations =
    &[("protocol-port", "http:80"), ("sticky-session", "on"), ("sticky-session-type", "server")];

/// An attribute of listeners: its annotation, what stands beside it, two values, and what is sent if that is another text.
type Attribute = (&'static str, Annotations, [&'static str; 2], Option<[&'static str; 2]>);

const ATTRIBUTES: &[Attribute] = &[
    ("scheduler", TCP, ["wrr", "wlc"], None),
    ("persistence-timeout", TCP, ["60", "0"], None),
    ("established-timeout", TCP, ["10", "20"], None),
    ("idle-timeout", HTTP, ["10", "20"], None),
    ("request-timeout", HTTP, ["10", "20"], None),
    ("cert-id", HTTPS, ["cert-2", "cert-3"], None),
    ("tls-cipher-policy", CERTIFIED, ["tls_cipher_policy_1_1", "tls_cipher_policy_1_2"], None),
    ("http2-enabled", CERTIFIED, ["off", "on"], None),
    ("proxy-protocol", TCP, ["on", "off"], Some(["true", "false"])),
    ("acl-status", CONTROLLED, ["on", "off"], None),
    ("acl-id", CONTROLLED, ["acl-a,acl-b", "acl-b"], None),
    ("acl-type", CONTROLLED, ["white", "black"], None),
    ("connection-drain", DRAINED, ["on", "off"], None),
    ("connection-drain-timeout", DRAINED, ["10", "20"], None),
    ("sticky-session", STICKY, ["on", "off"], None),
    ("sticky-session-type", STICKY, ["insert", "server"], None),
    ("cookie", BY_SERVER, ["one", "two"], None),
    ("cookie-timeout", STICKY, ["10", "20"], None),
    ("xforwardedfor-proto", HTTP, ["on", "off"], None),
    ("xforwardedfor-slbport", HTTP, ["on", "off"], None),
    ("xforwardedfor-clientsrcport", HTTP, ["on", "off"], None),
    ("health-check-switch", TCP, ["off", "on"], None),
    ("health-check-flag", HTTP, ["on", "off"], None),
    ("health-check-type", TCP, ["http", "tcp"], None),
    ("health-check-uri", BY_HTTP, ["/a", "/b"], None),
    ("health-check-connect-port", TCP, ["8081", "-520"], None),
    ("healthy-threshold", TCP, ["4", "5"], None),
    ("unhealthy-threshold", TCP, ["4", "5"], None),
    ("health-check-interval", TCP, ["4", "5"], None),
    ("health-check-connect-timeout", TCP, ["4", "5"], None),
    ("health-check-timeout", CHECKED, ["4", "5"], None),
    ("health-check-domain", BY_HTTP, ["a.example.com", "$_ip"], None),
    ("health-check-httpcode", BY_HTTP, ["http_2xx", "http_2xx,http_3xx"], None),
    ("health-check-method", CHECKED, ["head", "get"], None),
];

/// The annotations of a Service: those beside a key, and the key itself with a value; by today's names, or the old ones.
fn world(beside: Annotations, key: &str, value: Option<&str>, prefix: &str) -> World {
    let beside = beside.iter().filter(|(name, _)| *name != key).copied();
    let all: Vec<(String, &str)> =
        beside.chain(value.map(|value| (key, value))).map(|(name, value)| (format!("{prefix}{name}"), value)).collect();
    World::new(&all.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>())
}

fn created(plan: &Plan) -> &ListenerFields {
    let found = plan.steps.iter().find_map(|step| match &step.operation {
        Operation::CreateListener { fields, .. } => Some(fields),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no listener is created:\n{plan}"))
}

#[test]
fn each_attribute_of_listeners_is_set_changed_and_left() {
    for prefix in [PREFIX, LEGACY_PREFIX] {
        for (key, beside, values, sent) in ATTRIBUTES {
            let sent = sent.unwrap_or(*values);
            let entry = Name::TABLE.iter().find(|entry| entry.key == AnnotationKey::Suffix(key)).unwrap();
            let Applies::Field(field) = entry.applies else { panic!("{key} is no attribute of listeners") };
            let mut cloud = Cloud::default();
            let plan = world(beside, key, Some(values[0]), prefix).bring(&mut cloud);
            assert_eq!(created(&plan).get(&field).map(String::as_str), Some(sent[0]), "{prefix}{key}:\n{plan}");
            let changed = diff(&world(beside, key, Some(values[1]), prefix).desired(), &cloud.observed);
            let [step] = changed.steps.as_slice() else { panic!("{prefix}{key}:\n{changed}") };
            let Operation::SetListener { fields, .. } = &step.operation else { panic!("{prefix}{key}:\n{changed}") };
            assert_eq!(fields.get(&field).map(String::as_str), Some(sent[1]), "{prefix}{key}:\n{changed}");
            assert!(step.reason.contains(&format!("{field} {} -> {}", sent[0], sent[1])), "{prefix}{key}:\n{changed}");
            let left = diff(&world(&[], "protocol-port", protocol(beside), prefix).desired(), &cloud.observed);
            assert_eq!((left.steps.as_slice(), left.problems.as_slice()), (&[][..], &[][..]), "{prefix}{key}:\n{left}");
        }
    }
}

fn protocol(beside: Annotations) -> Option<&'static str> {
    beside.iter().find(|(key, _)| *key == "protocol-port").map(|(_, value)| *value)
}

#[test]
fn no_attribute_of_listeners_is_forgotten_here() {
    let known: Vec<ListenerField> = Name::TABLE
        .iter()
        .filter(|entry| ATTRIBUTES.iter().any(|(key, ..)| entry.key == AnnotationKey::Suffix(key)))
        .filter_map(|entry| match entry.applies {
            Applies::Field(field) => Some(field),
            _ => None,
        })
        .collect();
    let all = Name::TABLE.iter().filter(|entry| matches!(entry.applies, Applies::Field(_))).count();
    assert_eq!((known.len(), ATTRIBUTES.len()), (all, all));
}

const INTRANET: Annotations = &[("address-type", "intranet")];
const BY_SPEC: Annotations = &[("instance-charge-type", "PayBySpec")];
const BOUGHT: Annotations = &[("instance-charge-type", "PayBySpec"), ("charge-type", "paybybandwidth")];
const ROOMY: Annotations = &[("instance-charge-type", "PayBySpec"), ("bandwidth", "50")];

/// What an annotation asks of the load balancer itself.
struct Wish {
    key: &'static str,
    beside: Annotations,
    /// The value with which it is made, and what is sent then.
    made: (&'static str, &'static str),
    sent: fn(&CreateInstance) -> String,
    /// Another value, and what is planned or told then.
    changed: (&'static str, &'static str),
    /// What is planned or told once the annotation is gone.
    gone: &'static str,
}

const fn wish(
    key: &'static str,
    beside: Annotations,
    made: (&'static str, &'static str),
    sent: fn(&CreateInstance) -> String,
    changed: (&'static str, &'static str),
) -> Wish {
    Wish { key, beside, made, sent, changed, gone: "" }
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

const FIXED: &str = "field is immutable";

const WISHES: &[Wish] = &[
    wish(
        "address-type",
        &[],
        ("intranet", "intranet"),
        |it| it.fields.text(InstanceField::AddressType).to_owned(),
        ("internet", FIXED),
    ),
    wish("name", &[], ("one", "one"), |it| it.fields.text(InstanceField::Name).to_owned(), ("two", "set name two")),
    wish(
        "resource-group-id",
        &[],
        ("rg-1", "rg-1"),
        |it| it.fields.text(InstanceField::ResourceGroup).to_owned(),
        ("rg-2", FIXED),
    ),
    wish("additional-resource-tags", &[], ("a=1", "1"), |it| text(it.tags.get("a")), ("a=2", "tag a=2")),
    wish(
        "delete-protection",
        &[],
        ("off", "off"),
        |it| it.fields.text(InstanceField::DeleteProtection).to_owned(),
        ("on", "set delete protection on"),
    ),
    wish(
        "modification-protection",
        &[],
        ("NonProtection", "NonProtection"),
        |it| it.fields.text(InstanceField::ModificationProtection).to_owned(),
        ("ConsoleProtection", "set modification protection ConsoleProtection"),
    ),
    wish("vswitch-id", INTRANET, ("vsw-x", "vsw-x"), |it| it.vswitch_ids.join(","), ("vsw-y", "stays there")),
    wish("network-type", INTRANET, ("classic", ""), |it| it.vswitch_ids.join(","), ("vpc", FIXED)),
    wish(
        "ip",
        INTRANET,
        ("192.168.0.9", "192.168.0.9"),
        |it| it.fields.text(InstanceField::Address).to_owned(),
        ("192.168.0.8", FIXED),
    ),
    Wish {
        gone: "Invalid value: \"ipv4\"",
        ..wish(
            "ip-version",
            &[],
            ("ipv6", "ipv6"),
            |it| it.fields.text(InstanceField::IpVersion).to_owned(),
            ("ipv4", FIXED),
        )
    },
    wish("master-zoneid", &[], ("z-i", "z-i"), |it| text(it.master_zone.as_ref()), ("z-j", FIXED)),
    wish("slave-zoneid", &[], ("z-i", "z-i"), |it| text(it.slave_zone.as_ref()), ("z-j", FIXED)),
    Wish {
        gone: "it needs",
        ..wish(
            "charge-type",
            ROOMY,
            ("paybybandwidth", "paybybandwidth"),
            |it| it.fields.text(InstanceField::InternetChargeType).to_owned(),
            ("paybytraffic", "set internet charge type paybytraffic"),
        )
    },
    wish(
        "bandwidth",
        BOUGHT,
        ("50", "50"),
        |it| it.fields.text(InstanceField::Bandwidth).to_owned(),
        ("100", "set internet charge type paybybandwidth (bandwidth 100)"),
    ),
    wish(
        "instance-charge-type",
        &[],
        ("PayBySpec", "PayBySpec"),
        |it| it.fields.text(InstanceField::ChargeType).to_owned(),
        ("PayByCLCU", "set instance charge type PayByCLCU"),
    ),
    wish(
        "spec",
        BY_SPEC,
        ("slb.s2.small", "slb.s2.small"),
        |it| it.fields.text(InstanceField::Spec).to_owned(),
        ("slb.s3.small", "set spec slb.s3.small"),
    ),
];

#[test]
fn each_wish_about_the_load_balancer_is_met_changed_and_left() {
    for prefix in [PREFIX, LEGACY_PREFIX] {
        for wish in WISHES {
            let (key, world) = (wish.key, |value| world(wish.beside, wish.key, value, prefix));
            let first = world(Some(wish.made.0));
            assert_eq!((wish.sent)(&first.desired().instance.create), wish.made.1, "{prefix}{key}");
            let mut cloud = first.served();
            // The simulated cloud of these tests chooses no places.
            let created = first.desired().instance.create;
            cloud.instance().vswitch_id = created.vswitch_ids.first().cloned().unwrap_or_default();
            if let Some(address) = created.fields.get(&InstanceField::Address) {
                cloud.edit(InstanceField::Address, address);
            }
            let told = |value| {
                let plan = diff(&world(value).desired(), &cloud.observed);
                let lines = plan.steps.iter().map(|step| step.operation.to_string());
                let all = lines.chain(plan.problems.iter().chain(&plan.warnings).map(ToString::to_string));
                all.collect::<Vec<_>>().join("\n")
            };
            assert_eq!(told(Some(wish.made.0)), "", "{prefix}{key} is as it was asked for");
            let changed = told(Some(wish.changed.0));
            // Steps are told first: what cannot be changed is not tried.
            let first = changed.lines().next().unwrap_or_default();
            assert!(first.contains(wish.changed.1), "{prefix}{key}: {changed:?}");
            let gone = told(None);
            assert!(gone.contains(wish.gone) && gone.is_empty() == wish.gone.is_empty(), "{prefix}{key}: {gone:?}");
        }
    }
}
