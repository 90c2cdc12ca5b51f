//! What the configuration says holds where a Service is silent, and only there.

use super::{Cloud, ENI, World, edited, node, port, settings};
use crate::plan::clb::model::{CreateInstance, InstanceField, ListenerField};
use crate::plan::loadbalancer::annotations;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::BackendKind;
use crate::plan::loadbalancer::origins::origins;
use crate::plan::loadbalancer::ownership::MOST_TAGS;
use crate::plan::loadbalancer::settings::{LoadBalancerDefaults, ServiceSettings};

/// Another default, the annotation that has the last word, and what is sent with each.
struct Default {
    set: fn(&mut LoadBalancerDefaults),
    sent: fn(&CreateInstance) -> String,
    by_default: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    by_annotation: &'static str,
}

const DEFAULTS: &[Default] = &[
    Default {
        set: |it| "intranet".clone_into(&mut it.address_type),
        sent: |it| it.fields.text(InstanceField::AddressType).to_owned(),
        by_default: "intranet",
        annotations: &[("address-type", "internet")],
        by_annotation: "internet",
    },
    Default {
        set: |it| "PayBySpec".clone_into(&mut it.instance_charge_type),
        sent: |it| it.fields.text(InstanceField::ChargeType).to_owned(),
        by_default: "PayBySpec",
        annotations: &[("instance-charge-type", "PayByCLCU")],
        by_annotation: "PayByCLCU",
    },
    Default {
        set: |it| {
            "PayBySpec".clone_into(&mut it.instance_charge_type);
            "slb.s3.small".clone_into(&mut it.spec);
        },
        sent: |it| it.fields.text(InstanceField::Spec).to_owned(),
        by_default: "slb.s3.small",
        annotations: &[("spec", "slb.s2.small")],
        by_annotation: "slb.s2.small",
    },
    Default {
        set: |it| it.internet_charge_type = Some("paybybandwidth".to_owned()),
        sent: |it| it.fields.text(InstanceField::InternetChargeType).to_owned(),
        by_default: "paybybandwidth",
        annotations: &[("charge-type", "paybytraffic")],
        by_annotation: "paybytraffic",
    },
    Default {
        set: |it| {
            it.internet_charge_type = Some("paybybandwidth".to_owned());
            it.bandwidth = Some(7);
        },
        sent: |it| it.fields.text(InstanceField::Bandwidth).to_owned(),
        by_default: "7",
        // It is the bandwidth of that charge, and no other.
        annotations: &[("charge-type", "paybytraffic")],
        by_annotation: "",
    },
    Default {
        set: |it| it.master_zone = Some("z-j".to_owned()),
        sent: |it| it.master_zone.clone().unwrap_or_default(),
        by_default: "z-j",
        annotations: &[("master-zoneid", "z-i")],
        by_annotation: "z-i",
    },
    Default {
        set: |it| {
            it.master_zone = Some("z-j".to_owned());
            it.slave_zone = Some("z-i".to_owned());
        },
        sent: |it| it.slave_zone.clone().unwrap_or_default(),
        by_default: "z-i",
        annotations: &[("slave-zoneid", "z-k")],
        by_annotation: "z-k",
    },
    Default {
        set: |it| it.delete_protection = false,
        sent: |it| it.fields.text(InstanceField::DeleteProtection).to_owned(),
        by_default: "off",
        annotations: &[("delete-protection", "on")],
        by_annotation: "on",
    },
    Default {
        set: |it| it.modification_protection = false,
        sent: |it| it.fields.text(InstanceField::ModificationProtection).to_owned(),
        by_default: "NonProtection",
        annotations: &[("modification-protection", "ConsoleProtection")],
        by_annotation: "ConsoleProtection",
    },
    Default {
        set: |it| drop(it.tags.insert("team".to_owned(), "one".to_owned())),
        sent: |it| it.tags.get("team").cloned().unwrap_or_default(),
        by_default: "one",
        annotations: &[("additional-resource-tags", "team=two")],
        by_annotation: "two",
    },
];

fn with(edit: impl FnOnce(&mut ServiceSettings), annotations: &[(&str, &str)]) -> World {
    let mut settings = settings();
    edit(&mut settings);
    World { settings, ..World::new(annotations) }
}

#[test]
fn defaults_hold_where_the_service_is_silent() {
    for default in DEFAULTS {
        let sent = |annotations| {
            (default.sent)(&with(|it| (default.set)(&mut it.service.defaults), annotations).desired().instance.create)
        };
        assert_eq!(sent(&[]), default.by_default);
        assert_eq!(sent(default.annotations), default.by_annotation, "{:?}", default.annotations);
    }
    let group = |annotations| {
        let world = with(|it| it.resource_group_id = Some("rg-1".to_owned()), annotations);
        world.desired().instance.create.fields.text(InstanceField::ResourceGroup).to_owned()
    };
    assert_eq!((group(&[]).as_str(), group(&[("resource-group-id", "rg-2")]).as_str()), ("rg-1", "rg-2"));
}

#[test]
fn defaults_do_not_change_what_is_there() {
    for annotations in [&[][..], &[("additional-resource-tags", "k=v")]] {
        let cloud = World::new(annotations).served();
        for default in DEFAULTS {
            let plan = with(|it| (default.set)(&mut it.service.defaults), annotations).plan(&cloud);
            assert_eq!(plan, "", "{}", default.by_default);
        }
    }
}

#[test]
fn where_a_setting_comes_from_is_said_beside_what_there_is() {
    let world = World::new(&[("name", "mine")]);
    let mut cloud = world.served();
    cloud.edit(InstanceField::DeleteProtection, "off");
    cloud.edit(InstanceField::Name, "theirs");
    let origins = origins(&world.service, &world.settings, &world.desired(), &cloud.observed);
    let differs = origins.iter().filter_map(|it| Some((it.setting, it.value.as_str(), it.found.as_deref()?)));
    assert_eq!(differs.collect::<Vec<_>>(), [("name", "mine", "theirs"), ("delete-protection", "on", "off")]);
}

#[test]
fn a_setting_with_blanks_around_it_is_no_other_than_what_there_is() {
    let world = World::new(&[("name", " mine "), ("delete-protection", " on")]);
    let origins = origins(&world.service, &world.settings, &world.desired(), &world.served().observed);
    assert_eq!(origins.iter().find_map(|it| Some((it.setting, it.found.as_deref()?))), None);
}

#[test]
fn a_new_load_balancer_is_protected_and_says_by_whom() {
    let create = |annotations: &[(&str, &str)]| World::new(annotations).desired().instance.create;
    let usual = create(&[]);
    assert!(usual.fields.is(InstanceField::DeleteProtection, "on"));
    assert_eq!(usual.fields.text(InstanceField::ModificationProtection), "ConsoleProtection");
    assert_eq!(usual.modification_protection_reason.as_deref(), Some("managed.by.ack"));
    for stated in ["ConsoleProtection", "NonProtection"] {
        assert_eq!(create(&[("modification-protection", stated)]).modification_protection_reason, None, "{stated}");
    }
}

#[test]
fn tags_of_the_configuration_stay_on_a_load_balancer_whose_list_of_tags_lacks_them() {
    let tagged = |annotations| with(|it| drop(it.service.defaults.tags.insert("d".into(), "1".into())), annotations);
    let cloud = tagged(&[]).served();
    let plan = tagged(&[("additional-resource-tags", "k=v")]).plan(&cloud);
    assert!(plan.starts_with("tag k=v  #") && plan.lines().count() == 1, "the default stays: {plan}");
    let users = tagged(&[("id", "lb-user"), ("additional-resource-tags", "k=v")]).desired();
    assert_eq!(users.instance.tags.keys().collect::<Vec<_>>(), ["k"], "a user's load balancer has the user's tags");
}

#[test]
fn more_tags_than_a_load_balancer_takes_are_a_problem() {
    let tags: Vec<String> = (0..annotations::values::MOST_USER_TAGS).map(|n| format!("t{n}=1")).collect();
    let tags = tags.join(",");
    let world = |defaults: usize| {
        let more = (0..defaults).map(|n| (format!("d{n}"), String::new()));
        with(|it| it.service.defaults.tags.extend(more), &[("additional-resource-tags", tags.as_str())])
    };
    assert_eq!(world(0).desired().instance.create.tags.len(), MOST_TAGS);
    let problem = world(1).desire().unwrap_err().remove(0);
    assert!(
        problem.field.ends_with("additional-resource-tags") && problem.to_string().contains("21 tags"),
        "{problem}"
    );
}

#[test]
fn pods_are_attached_by_default_if_the_configuration_says_so() {
    let kinds = |annotations| {
        let desired = with(|it| it.service.eni_backends = true, annotations).desired();
        desired.groups.into_values().flat_map(|it| it.backends.keys().map(|key| key.kind)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&[]), [BackendKind::Eni; 3]);
    assert_eq!(kinds(&[("service.beta.kubernetes.io/backend-type", "ecs")]), [BackendKind::Ecs; 2]);
    assert_eq!(kinds(&[ENI]), [BackendKind::Eni; 3]);
}

#[test]
fn nodes_are_checked_at_their_own_port_only_where_that_tells_something() {
    type Edit = fn(&mut World);
    let fields = |annotations: &[(&str, &str)], edit: Edit| {
        let mut world = with(|it| it.service.local_health_check = true, annotations);
        (world.service.local_traffic, world.service.health_check_node_port) = (true, 31000);
        edit(&mut world);
        let listener = world.desired().listeners.into_values().next().unwrap();
        listener.fields.get(&ListenerField::HealthCheckConnectPort).cloned()
    };
    assert_eq!(fields(&[], |_| {}).as_deref(), Some("31000"));
    let otherwise: [(&[(&str, &str)], Edit); 6] = [
        (&[], |world| world.service.local_traffic = false),
        (&[], |world| world.service.health_check_node_port = 0),
        (&[ENI], |_| {}),
        (&[("health-check-switch", "off")], |_| {}),
        (&[("health-check-uri", "/mine")], |_| {}),
        (&[], |world| world.service.ports = vec![port(80, "UDP", 8080, 30080)]),
    ];
    for (index, (annotations, edit)) in otherwise.into_iter().enumerate() {
        assert_eq!(fields(annotations, edit), None, "{index}");
    }
}

#[test]
fn zones_are_known_by_the_old_label_too() {
    let mut world = World::new(&[]);
    for (at, label) in [(0, "failure-domain.beta.kubernetes.io/zone"), (1, "topology.kubernetes.io/zone")] {
        world.nodes[at] = edited(&world.nodes[at], |it| drop(it.labels.insert(label.into(), "z-j".into())));
    }
    world.nodes.push(edited(&node("n3", "i-3"), |it| {
        it.labels.insert("topology.kubernetes.io/zone".into(), "z-i".into());
    }));
    let mut desired = world.desired();
    desired.choose_zones(&world.nodes);
    let create = desired.instance.create;
    assert_eq!((create.master_zone.as_deref(), create.slave_zone.as_deref()), (Some("z-j"), Some("z-i")));
}

#[test]
fn a_vswitch_is_chosen_once() {
    let at = |vswitch| World::new(&[("address-type", "intranet"), ("vswitch-id", vswitch)]);
    let mut cloud = at("vsw-i").served();
    cloud.instance().vswitch_id = "vsw-i".to_owned();
    let told = |world: World, cloud: &Cloud| diff(&world.desired(), &cloud.observed).warnings;
    assert_eq!(told(at("vsw-i"), &cloud), []);
    assert!(told(at("vsw-j"), &cloud)[0].to_string().contains("is in vsw-i and stays there"));
}
