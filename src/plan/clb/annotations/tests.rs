use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::plan::clb::model::ListenerField;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::annotations::reference::tables;
use crate::plan::loadbalancer::annotations::values::{MOST_USER_TAGS, ValueKind};
use crate::plan::loadbalancer::annotations::{AnnotationKey, LEGACY_PREFIX, PREFIX, parse, raw};
use crate::plan::loadbalancer::problem::ServiceProblem;

fn service(list: &[(&str, &str)]) -> ServiceView {
    ServiceView {
        annotations: list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..ServiceView::default()
    }
}

fn read(list: &[(&str, &str)]) -> Annotations {
    parse(&service(list))
}

fn with(list: &[(&str, &str)]) -> Annotations {
    let list: Vec<_> = list.iter().map(|(suffix, value)| (format!("{PREFIX}{suffix}"), *value)).collect();
    read(&list.iter().map(|(key, value)| (key.as_str(), *value)).collect::<Vec<_>>())
}

#[test]
fn names_are_in_the_tables_order_and_keys_are_unique() {
    let mut keys = BTreeSet::new();
    for (index, entry) in Name::TABLE.iter().enumerate() {
        assert_eq!(entry.name as usize, index);
        assert!(keys.insert(entry.key.full()), "{:?}", entry.key);
        assert!(!entry.help.is_empty() && !entry.update.is_empty(), "{:?}", entry.key);
    }
}

#[test]
fn every_listener_attribute_has_at_most_one_annotation() {
    let fields: Vec<_> = Name::TABLE
        .iter()
        .filter_map(|entry| match entry.applies {
            Applies::Field(field) => Some(field),
            _ => None,
        })
        .collect();
    assert_eq!(fields.iter().collect::<BTreeSet<_>>().len(), fields.len());
    // Bandwidth is set by us, redirection by `forward-port`.
    assert_eq!(fields.len() + 3, ListenerField::ALL.len());
}

#[test]
fn the_current_prefix_wins_whenever_it_is_present() {
    let legacy = format!("{LEGACY_PREFIX}spec");
    let current = format!("{PREFIX}spec");
    assert_eq!(read(&[(&legacy, "x")]).get(Name::Spec), Some("x"));
    assert_eq!(read(&[(&legacy, "x"), (&current, "y")]).get(Name::Spec), Some("y"));
    assert_eq!(read(&[(&legacy, "x"), (&current, "")]).get(Name::Spec), None);
    let tunnel = format!("{LEGACY_PREFIX}tunnel-type");
    assert_eq!(raw(&service(&[(&tunnel, "")]), Name::TunnelType.entry().key), None);
}

#[test]
fn every_number_is_held_to_its_range() {
    for entry in Name::TABLE {
        let (ValueKind::Integer { min, max, zero }, AnnotationKey::Suffix(suffix)) = (entry.kind, entry.key) else {
            continue;
        };
        for good in [min, max] {
            let good = good.to_string();
            assert_eq!(with(&[(suffix, &good)]).problems, [], "{suffix} {good}");
        }
        for bad in [(min - 1).to_string(), (max + 1).to_string(), "three".to_owned(), "1.5".to_owned()] {
            if bad == "0" {
                continue;
            }
            let found = with(&[(suffix, &bad)]).problems;
            assert!(
                found.len() == 1 && found[0].1.to_string().contains(&format!("value: {bad:?}: ")),
                "{suffix}: {found:?}"
            );
            assert!(found[0].1.field.ends_with(suffix), "{found:?}");
        }
        let zero_is = with(&[(suffix, "0")]);
        assert_eq!(zero_is.problems, [], "{suffix}");
        assert_eq!(zero_is.get(entry.name), (zero == ZeroMeans::Value).then_some("0"), "{suffix}");
    }
}

#[test]
fn every_choice_is_held_to_its_list() {
    for entry in Name::TABLE {
        let (ValueKind::OneOf(values) | ValueKind::AnyCase(values), AnnotationKey::Suffix(suffix)) =
            (entry.kind, entry.key)
        else {
            continue;
        };
        for value in values {
            assert_eq!(with(&[(suffix, value)]).get(entry.name), Some(*value), "{suffix}");
        }
        assert_eq!(with(&[(suffix, "nonsense")]).problems.len(), 1, "{suffix}");
        let upper = values[0].to_uppercase();
        let accepted = with(&[(suffix, &upper)]).get(entry.name).is_some();
        assert_eq!(accepted, matches!(entry.kind, ValueKind::AnyCase(_)), "{suffix} {upper}");
    }
}

#[test]
fn all_problems_come_at_once() {
    let found = with(&[("healthy-threshold", "three"), ("scheduler", "best"), ("protocol-port", "https")]);
    let fields: Vec<_> = found.problems.iter().map(|(_, problem)| problem.field.as_str()).collect();
    assert_eq!(fields.len(), 3, "{fields:?}");
}

#[test]
fn an_empty_value_is_not_set() {
    for entry in Name::TABLE {
        let AnnotationKey::Suffix(suffix) = entry.key else { continue };
        let found = with(&[(suffix, "")]);
        assert_eq!((found.get(entry.name), found.problems.len()), (None, 0), "{suffix}");
    }
    assert_eq!(with(&[("domain-extensions", "")]).pairs(Name::DomainExtensions), Some(&BTreeMap::new()));
    assert_eq!(with(&[]).pairs(Name::DomainExtensions), None);
}

#[test]
fn lists_follow_their_grammar() {
    let found = with(&[("protocol-port", "https:443, http:80,tcp:80,")]);
    assert_eq!(found.ports(Name::ProtocolPort).collect::<Vec<_>>(), [(80, "http"), (443, "https")]);
    assert_eq!((stated_protocol(&found, 80), stated_protocol(&found, 81)), (Some(Protocol::Http), None));
    let found = with(&[("forward-port", "80:443,88:6443")]);
    assert_eq!(found.ports(Name::ForwardPort).collect::<Vec<_>>(), [(80, "443"), (88, "6443")]);
    assert_eq!((stated_forward(&found, 80), stated_forward(&found, 443)), (Some(443), None));
    let found = with(&[("vgroup-port", "rsp-a:443")]);
    assert_eq!(found.ports(Name::VgroupPort).collect::<Vec<_>>(), [(443, "rsp-a")]);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let tags = with(&[("additional-resource-tags", " a=b=c , d, a=e, =x")]);
    assert_eq!(*tags.pairs(Name::AdditionalResourceTags).unwrap(), BTreeMap::from([pair("a", "e"), pair("d", "")]));
    let labels = with(&[("backend-label", "k1=v1,k2=v2=v3")]);
    assert_eq!(*labels.pairs(Name::BackendLabel).unwrap(), BTreeMap::from([pair("k1", "v1"), pair("k2", "v2")]));
    for (suffix, bad) in [
        ("protocol-port", "HTTPS:443"),
        ("protocol-port", "https:0"),
        ("protocol-port", "https:443:1"),
        ("forward-port", "80"),
        ("forward-port", "80:x"),
        ("vgroup-port", "rsp-a"),
        ("domain-extensions", "a.example.com"),
        ("backend-label", "color"),
        ("additional-resource-tags", "acs:x=1"),
        ("health-check-httpcode", "200"),
        ("acl-id", ","),
        ("cookie", "with space"),
        ("ip", "192.168.0"),
        ("name", "1st"),
        ("name", "with space"),
        ("hostname", "Shop.example.com"),
        ("hostname", "shop..example.com"),
        ("health-check-uri", "health"),
        ("health-check-domain", "a/b"),
    ] {
        assert_eq!(with(&[(suffix, bad)]).problems.len(), 1, "{suffix} {bad}");
    }
}

#[test]
fn names_and_addresses_are_held_to_what_the_api_takes() {
    let long = |length| "a".repeat(length);
    for (suffix, good) in [
        ("name", "\u{5546}\u{5e97}-1.a_b/c"),
        ("name", &long(80)),
        ("ip", "192.168.0.9"),
        ("hostname", "shop-1.example.com"),
        ("health-check-uri", "/"),
        ("health-check-domain", "$_ip"),
        ("health-check-domain", "Shop.example.com"),
    ] {
        assert_eq!(with(&[(suffix, good)]).problems, [], "{suffix} {good}");
    }
    for (suffix, bad) in [("name", long(81)), ("hostname", long(64)), ("health-check-uri", format!("/{}", long(80)))] {
        assert_eq!(with(&[(suffix, &bad)]).problems.len(), 1, "{suffix} {bad}");
    }
}

#[test]
fn texts_cookies_and_tags_are_held_to_their_lengths() {
    let long = |length| "a".repeat(length);
    let tags = |count: usize| (0..count).map(|n| format!("t{n}=1")).collect::<Vec<_>>().join(",");
    for (suffix, good, bad) in [
        ("cookie", long(200), long(201)),
        ("additional-resource-tags", long(64), long(65)),
        ("additional-resource-tags", format!("a={}", long(128)), format!("a={}", long(129))),
        ("additional-resource-tags", tags(MOST_USER_TAGS), tags(MOST_USER_TAGS + 1)),
        ("additional-resource-tags", "our-aliyun=1".to_owned(), "Aliyun-x=1".to_owned()),
        ("additional-resource-tags", "a=http".to_owned(), "a=http://x".to_owned()),
        ("domain-extensions", "a.example.com:c".to_owned(), "a.example.com:c:d".to_owned()),
    ] {
        assert_eq!(with(&[(suffix, &good)]).problems, [], "{suffix} {good}");
        assert_eq!(with(&[(suffix, &bad)]).problems.len(), 1, "{suffix} {bad}");
    }
}

#[test]
fn unknown_keys_and_those_of_other_products_are_pointed_out() {
    let found = with(&[("zone-maps", "x"), ("schedular", "rr"), ("scheduler", "rr")]);
    let fields: Vec<_> = found.warnings.iter().map(|problem| &problem.field[PREFIX.len()..]).collect();
    assert_eq!(fields, ["schedular", "zone-maps"]);
    assert!(found.warnings[1].to_string().contains("network load balancers"));
    assert_eq!(found.problems, []);
}

#[test]
fn values_are_spelled_as_the_api_spells_them() {
    let found = with(&[("instance-charge-type", "paybyspec"), ("proxy-protocol", "on"), ("acl-id", "a, b")]);
    assert_eq!(found.get(Name::InstanceChargeType), Some("PayBySpec"));
    assert_eq!(found.get(Name::ProxyProtocol), Some("true"));
    assert_eq!(found.get(Name::AclId), Some("a,b"));
    assert_eq!(with(&[("proxy-protocol", "true")]).get(Name::ProxyProtocol), Some("false"));
    // What could take listeners of users over counts in the one spelling that the official controller knows.
    let other = with(&[("force-override-listeners", "on")]);
    assert_eq!((other.get(Name::ForceOverrideListeners), other.warnings.len()), (Some("false"), 1));
}

#[test]
fn the_reference_page_has_every_annotation_once() {
    let page = tables::<Name>("##");
    for entry in Name::TABLE {
        let (AnnotationKey::Suffix(key) | AnnotationKey::CurrentSuffix(key) | AnnotationKey::Whole(key)) = entry.key;
        assert_eq!(page.matches(&format!("| `{key}` |")).count(), 1, "{key}");
    }
    assert!(page.contains("a whole number from 10 to 900"));
}

#[test]
fn every_annotation_counts_in_both_prefixes() {
    // What hands a Service to another controller was never read by its old name.
    let only_current = [Name::Type, Name::TunnelType];
    for entry in Name::TABLE.iter().filter(|entry| !only_current.contains(&entry.name)) {
        let AnnotationKey::Suffix(suffix) = entry.key else { continue };
        for prefix in [PREFIX, LEGACY_PREFIX] {
            let key = format!("{prefix}{suffix}");
            assert_eq!(raw(&service(&[(&key, "x")]), entry.key), Some("x"), "{key}");
            let unknown = |problem: &ServiceProblem| problem.to_string().contains("no such annotation");
            assert!(!read(&[(&key, "x")]).warnings.iter().any(unknown), "{key}");
        }
    }
}
