//! A Service that came to its state by another one ends like one that was created in it, except for what
//! `docs/reference/annotations.md` says to stay: the value of an annotation that was removed, and settings of a feature that is off.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::properties::{some_world, sound};
use super::{Cloud, desired};
use crate::plan::clb::tests::World;
use crate::plan::inputs::TargetPort;
use crate::plan::loadbalancer::annotations::parse;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::{Backend, GroupRef};
use crate::plan::nlb::annotations::{group_fields, listener_fields};
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::model::{GroupField, GroupFields, ListenerField, ListenerFields};

/// Pods that listen on other ports, as with another release.
fn released(mut world: World, with: bool) -> World {
    for port in world.service.ports.iter_mut().filter(|_| with) {
        if let TargetPort::Number(number) = &mut port.target_port {
            *number += 1;
        }
    }
    world
}

/// Brings it about; false if something stands against it.
fn bring(desired: &Desired, cloud: &mut Cloud) -> bool {
    let plan = diff(desired, &cloud.observed);
    plan.steps.iter().for_each(|step| cloud.perform(&step.operation));
    plan.problems.is_empty()
}

/// Backends by the name of their group, without weights where the Service ignores them.
fn members(desired: &Desired, cloud: &Cloud) -> BTreeMap<String, BTreeSet<String>> {
    let weighs =
        |name: &str| !desired.groups.values().any(|it| it.ignore_weights && it.group == GroupRef::Named(name.into()));
    let text = |name: &str, it: &Backend| {
        format!("{:?} {} {}", it.key, it.description, if weighs(name) { it.weight } else { 0 })
    };
    let groups = cloud.observed.groups.values();
    groups.map(|group| (group.name.clone(), group.members().iter().map(|it| text(&group.name, it)).collect())).collect()
}

/// Addresses that our security group lets in and keeps out.
fn rules(cloud: &Cloud) -> Vec<BTreeSet<String>> {
    let groups = cloud.observed.parts.security_groups.iter().flatten();
    groups.map(|group| group.rules.iter().flatten().map(|(_, it)| it.rule.to_string()).collect()).collect()
}

/// Attributes of groups by name, without those that only the former annotations state and those of a feature that is off.
fn group_attributes(desired: &Desired, cloud: &Cloud, stays: &GroupFields) -> BTreeMap<String, GroupFields> {
    use GroupField as Field;
    let attributes = |id: &String, name: &str| {
        let fields = &cloud.observed.parts.group_details.get(id).unwrap().fields;
        let kept = &desired.extra.group_specs[name].kept;
        let off = |switch: Field, default: &str| fields.get(&switch).map_or(default, String::as_str) != "true";
        let mut counting = fields.clone();
        counting.retain(|field, value| {
            let is_off = (*field == Field::DrainTimeout && off(Field::Drain, "false"))
                || (field.is_of_health_check() && *field != Field::HealthCheck && off(Field::HealthCheck, "true"));
            let is_default = matches!(
                (*field, value.as_str()),
                (Field::Drain, "false")
                    | (Field::DrainTimeout, "10")
                    | (Field::PreserveClientIp | Field::HealthCheck, "true")
            );
            (kept.contains_key(field) || !stays.contains_key(field)) && !is_off && !is_default
        });
        if stays.contains_key(&Field::Drain) && !kept.contains_key(&Field::Drain) {
            counting.remove(&Field::DrainTimeout);
        }
        if stays.contains_key(&Field::HealthCheck) && !kept.contains_key(&Field::HealthCheck) {
            counting.retain(|field, _| !field.is_of_health_check());
        }
        counting
    };
    let groups = cloud.observed.groups.iter();
    groups.map(|(id, group)| (group.name.clone(), attributes(id, &group.name))).collect()
}

/// Attributes of listeners, likewise.
fn listener_attributes(desired: &Desired, cloud: &Cloud, former: &World) -> BTreeMap<String, ListenerFields> {
    use ListenerField as Field;
    let listeners = cloud.observed.listeners.iter().flatten();
    listeners
        .map(|(key, listener)| {
            let stated = listener_fields(&parse(&former.service), key.protocol);
            let wanted = &desired.listeners[key].fields;
            // What is on alone because a removed annotation stays is off in a fresh world.
            let stays = |switch: Field| stated.contains_key(&switch) && !wanted.contains_key(&switch);
            let on = |switch: Field| !stays(switch) && listener.fields.get(&switch).is_some_and(|on| on == "true");
            let mut counting = listener.fields.clone();
            counting.retain(|field, value| {
                let is_off = (*field == Field::AlpnPolicy && !on(Field::Alpn))
                    || (*field == Field::CaCertificate && !on(Field::CaEnabled))
                    || (matches!(field, Field::Ppv2EndpointId | Field::Ppv2EndpointServiceId | Field::Ppv2VpcId)
                        && !on(Field::ProxyProtocol));
                let is_default = matches!(value.as_str(), "false" | "" | "0");
                (wanted.contains_key(field) || !stated.contains_key(field)) && !is_off && !is_default
            });
            (format!("{key} {} {}", listener.description, listener.status), counting)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_change_ends_where_a_creation_does(
        former in some_world(false),
        now in some_world(false),
        same_ports in any::<bool>(),
        release in any::<bool>(),
    ) {
        let mut now = now;
        if same_ports {
            now.service.ports.clone_from(&former.service.ports);
        }
        let now = released(now, release);
        let (Some(before), Some(wanted)) = (sound(&former), sound(&now)) else { return Ok(()) };
        let (mut changed, mut fresh) = (Cloud::default(), Cloud::default());
        bring(&before, &mut changed);
        let mut remembering = now.clone();
        let applied = applied::value(&before.applies).unwrap_or_default();
        remembering.service.own_annotations.insert(applied::NLB.to_owned(), applied);
        if !bring(&desired(&remembering), &mut changed) || !bring(&wanted, &mut fresh) || wanted.is_unsure() {
            return Ok(());
        }
        prop_assert_eq!(members(&wanted, &changed), members(&wanted, &fresh));
        prop_assert_eq!(rules(&changed), rules(&fresh));
        let stays = group_fields(&parse(&former.service));
        prop_assert_eq!(group_attributes(&wanted, &changed, &stays), group_attributes(&wanted, &fresh, &stays));
        prop_assert_eq!(
            listener_attributes(&wanted, &changed, &former),
            listener_attributes(&wanted, &fresh, &former)
        );
    }
}
