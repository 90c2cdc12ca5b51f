//! A Service that came to its state by another one ends like one that was created in it, except for what
//! `docs/reference/annotations.md` says to stay: the value of an annotation that was removed, and settings of a feature that is off.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;

use super::properties::some_world;
use super::{Cloud, World};
use crate::plan::clb::annotations::listener_fields;
use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::{ListenerField, ListenerKey, field_counts};
use crate::plan::clb::observed::{AccessList, ObservedListener};
use crate::plan::loadbalancer::annotations::parse;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::model::{Backend, GroupRef, ObservedGroup};

const RANGES: &[&[&str]] = &[&[], &["10.0.0.0/8"], &["10.0.0.0/8", "192.168.0.0/16"], &["0.0.0.0/0"]];

prop_compose! {
    /// With the fields of the spec that mean something to a load balancer.
    fn some_state()(
        world in some_world(false),
        affinity in select(vec![None, Some(60), Some(10_800)]),
        check in any::<bool>(),
        ranges in select(RANGES),
    ) -> World {
        let mut world = world;
        world.service.client_ip_affinity = affinity;
        world.service.health_check_node_port = if world.service.local_traffic { 31_000 } else { 0 };
        world.service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        world.settings.service.local_health_check = check;
        world
    }
}

/// What is desired, if it is known whole.
fn sound(world: &World) -> Option<Desired> {
    let desired = world.desire().ok()?;
    (!desired.is_unsure()).then_some(desired)
}

/// Brings it about; false if something stands against it.
fn bring(desired: &Desired, cloud: &mut Cloud) -> bool {
    let plan = diff(desired, &cloud.observed);
    plan.steps.iter().for_each(|step| cloud.perform(&step.operation));
    plan.problems.is_empty()
}

/// Backends by the name of their group, without weights where the Service ignores them.
fn groups(desired: &Desired, cloud: &Cloud) -> BTreeMap<String, BTreeSet<String>> {
    let weighs =
        |name: &str| !desired.groups.values().any(|it| it.ignore_weights && it.group == GroupRef::Named(name.into()));
    let members = |group: &ObservedGroup| {
        let text = |it: &Backend| {
            format!("{:?} {} {}", it.key, it.description, if weighs(&group.name) { it.weight } else { 0 })
        };
        group.members().iter().map(text).collect()
    };
    cloud.observed.groups.values().map(|group| (group.name.clone(), members(group))).collect()
}

/// The entries of our access control list.
fn access(cloud: &Cloud) -> Option<Vec<String>> {
    match &cloud.observed.parts.access_list {
        AccessList::Found(list) => Some(list.entries.iter().map(ToString::to_string).collect()),
        _ => None,
    }
}

/// What the cloud has where it reports nothing, or says it otherwise.
fn value(listener: &ObservedListener, field: ListenerField) -> String {
    use ListenerField as Field;
    let mut value = listener.fields.get(&field).cloned().unwrap_or_default();
    if field == Field::AclId && value.starts_with("acl-0") {
        // Ours has the next free id.
        "ours".clone_into(&mut value);
    }
    let is_default = matches!(
        (field, value.as_str()),
        (Field::AclStatus | Field::ConnectionDrain, "off")
            | (Field::PersistenceTimeout, "0")
            | (Field::ProxyProtocolV2Enabled, "false")
            | (Field::HealthCheckType, "tcp")
            | (Field::HealthCheckSwitch, "on")
            | (Field::HealthCheckConnectPort, "-520" | "0")
            | (Field::HealthCheckUri, "/?")
            | (Field::HealthCheckDomain, "$_ip")
            | (Field::HealthCheckHttpCode, "http_2xx")
    );
    if is_default { String::new() } else { value }
}

/// Attributes that differ although they have an effect on both, and no former annotation alone states them.
fn differing(
    key: ListenerKey,
    (changed, fresh): (&ObservedListener, &ObservedListener),
    (former, desired): (&World, &Desired),
) -> Vec<String> {
    let stated = listener_fields(&parse(&former.service), key.protocol);
    let stays =
        |field: ListenerField| stated.contains_key(&field) && !desired.listeners[&key].fields.contains_key(&field);
    let counts = |field: ListenerField| {
        let on = |it: &ObservedListener| field_counts(key.protocol, field, &it.fields, |field| it.fields.get(&field));
        on(changed) && on(fresh)
    };
    let fields = ListenerField::ALL.iter().filter(|field| !stays(**field) && counts(**field));
    let values = fields.map(|field| (field, value(changed, *field), value(fresh, *field)));
    values.filter(|(_, one, other)| one != other).map(|it| format!("{it:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_change_ends_where_a_creation_does(former in some_state(), now in some_state()) {
        let (Some(before), Some(desired)) = (sound(&former), sound(&now)) else { return Ok(()) };
        let (mut changed, mut fresh) = (Cloud::default(), Cloud::default());
        bring(&before, &mut changed);
        let mut remembering = now.clone();
        let applied = applied::value(&before.applies).unwrap_or_default();
        remembering.service.own_annotations.insert(applied::CLB.to_owned(), applied);
        if !bring(&remembering.desired(), &mut changed) || !bring(&desired, &mut fresh) {
            return Ok(());
        }
        prop_assert_eq!(groups(&desired, &changed), groups(&desired, &fresh));
        prop_assert_eq!(access(&changed), access(&fresh));
        let listeners = |cloud: &Cloud| cloud.observed.listeners.clone().unwrap();
        let (changed, fresh) = (listeners(&changed), listeners(&fresh));
        prop_assert_eq!(changed.keys().collect::<Vec<_>>(), fresh.keys().collect::<Vec<_>>());
        for (key, fresh) in &fresh {
            let changed = changed.get(key).unwrap();
            prop_assert_eq!((&changed.description, &changed.status), (&fresh.description, &fresh.status));
            prop_assert_eq!(differing(*key, (changed, fresh), (&former, &now.desired())), [""; 0], "{}", key);
        }
    }
}
