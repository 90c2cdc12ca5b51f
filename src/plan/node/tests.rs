use proptest::prelude::*;

use super::*;
use crate::plan::inputs::{Condition, ConditionStatus, NodeAddress};

fn instance() -> Instance {
    Instance {
        id: "i-1".into(),
        name: "worker".into(),
        status: "Running".into(),
        instance_type: "ecs.g7.large".into(),
        region: "cn-a".into(),
        zone: "cn-a-i".into(),
        vpc_id: "vpc-1".into(),
        private_ips: vec!["10.0.0.1".into()],
        primary_eni: "eni-1".into(),
        ..Instance::default()
    }
}

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), value: "true".into(), effect: "NoSchedule".into(), added: None }
}

fn fresh() -> NodeView {
    NodeView {
        name: "worker".into(),
        uid: "u1".into(),
        taints: vec![taint(UNINITIALIZED), taint("other")],
        pod_cidrs: vec!["10.1.0.0/24".into()],
        addresses: vec![NodeAddress { kind: "Hostname".into(), address: "worker".into() }],
        ..NodeView::default()
    }
}

fn id() -> ProviderId {
    ProviderId { region: "cn-a".into(), instance: "i-1".into() }
}

fn ready(status: ConditionStatus) -> Option<Condition> {
    Some(Condition { status, reason: String::new(), since: None })
}

const ALL: NodePolicy = NodePolicy { ipv6: false, shutdown_taint: true, routes: true };

/// What the API server holds after a step, by the meaning of the step.
fn apply(view: &mut NodeView, step: &NodeStep) {
    match step {
        NodeStep::SetAddresses(addresses) => view.addresses.clone_from(addresses),
        NodeStep::SetMetadata { labels, provider_id } => {
            view.labels.extend(labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())));
            if let Some(id) = provider_id {
                assert!(view.provider_id.is_empty(), "providerID is written once");
                view.provider_id.clone_from(id);
            }
        }
        NodeStep::AwaitRoute => view.network_unavailable = ready(ConditionStatus::True),
        NodeStep::DisableCheck { .. } => {}
        NodeStep::AddTaint(_) | NodeStep::RemoveTaint(_) => {
            view.taints = taints_after(view, std::slice::from_ref(step)).unwrap();
        }
    }
}

/// The same after a write of several steps.
fn apply_together(view: &mut NodeView, write: NodeWrite<'_>) {
    let NodeChange { addresses, awaits_route, labels, provider_id, taints } = write.change(view).unwrap();
    view.addresses = addresses.map_or_else(|| view.addresses.clone(), <[NodeAddress]>::to_vec);
    view.labels.extend(labels.into_iter().flatten().map(|(key, value)| (key.as_str().into(), value.as_str().into())));
    view.provider_id = provider_id.map_or_else(|| view.provider_id.clone(), str::to_owned);
    view.taints = taints.unwrap_or_else(|| view.taints.clone());
    if awaits_route {
        view.network_unavailable = ready(ConditionStatus::True);
    }
}

#[test]
fn a_new_node_is_initialised_in_order() {
    let plan = plan(&fresh(), &instance(), &SourceDestCheck::On { eni: "eni-1".into() }, ALL);
    let text: Vec<String> = plan.lines().into_iter().map(|line| line.text).collect();
    assert_eq!(
        text,
        [
            "set addresses InternalIP=10.0.0.1, Hostname=worker",
            "set condition NetworkUnavailable=True (NoRouteCreated)",
            "switch off the source/destination check of eni-1",
            "set providerID cn-a.i-1, label beta.kubernetes.io/instance-type=ecs.g7.large, label \
             failure-domain.beta.kubernetes.io/region=cn-a, label failure-domain.beta.kubernetes.io/zone=cn-a-i, label \
             node.kubernetes.io/instance-type=ecs.g7.large, label topology.kubernetes.io/region=cn-a, label \
             topology.kubernetes.io/zone=cn-a-i",
            "remove taint node.cloudprovider.kubernetes.io/uninitialized",
        ]
    );
}

#[test]
fn the_condition_is_only_written_when_routes_will_clear_it() {
    let steps = |view: &NodeView, policy| plan(view, &instance(), &SourceDestCheck::Settled, policy).steps;
    assert!(!steps(&fresh(), NodePolicy { routes: false, ..ALL }).contains(&NodeStep::AwaitRoute));
    let without_cidr = NodeView { pod_cidrs: Vec::new(), ..fresh() };
    assert!(!steps(&without_cidr, ALL).contains(&NodeStep::AwaitRoute));
    let has_route = NodeView { network_unavailable: ready(ConditionStatus::False), ..fresh() };
    assert!(!steps(&has_route, ALL).contains(&NodeStep::AwaitRoute));
}

#[test]
fn a_blocked_node_keeps_its_taint_and_says_why() {
    let wrong_ip = NodeView { provided_node_ip: Some("10.9.9.9".into()), ..fresh() };
    let refused = plan(&wrong_ip, &instance(), &SourceDestCheck::Settled, ALL);
    assert!(refused.steps.is_empty() && refused.problems[0].blocks(), "{refused:?}");

    let removes = |denied, routes| {
        let unknown = SourceDestCheck::Unknown { message: "no answer".into(), cause: None, denied };
        let steps = plan(&fresh(), &instance(), &unknown, NodePolicy { routes, ..ALL }).steps;
        steps.contains(&NodeStep::RemoveTaint(UNINITIALIZED))
    };
    assert!(!removes(true, true), "routes need the check off");
    assert!(removes(true, false), "without routes a missing permission is a warning");
    assert!(!removes(false, false), "other trouble passes, and is waited for");
}

#[test]
fn stopped_instances_are_marked_until_the_kubelet_reports_again() {
    let stopped = Instance { status: "Stopped".into(), ..instance() };
    let mut view = NodeView { ready: ready(ConditionStatus::Unknown), ..fresh() };
    for step in plan(&view, &stopped, &SourceDestCheck::Settled, ALL).steps {
        apply(&mut view, &step);
    }
    assert!(has_taint(&view, SHUTDOWN));
    assert_eq!(plan(&view, &instance(), &SourceDestCheck::Settled, ALL).steps, [], "stays until Ready");
    view.ready = ready(ConditionStatus::True);
    assert_eq!(plan(&view, &stopped, &SourceDestCheck::Settled, ALL).steps, [NodeStep::RemoveTaint(SHUTDOWN)]);
    let off = NodePolicy { shutdown_taint: false, ..ALL };
    let lifted = plan(&view, &stopped, &SourceDestCheck::Settled, off).steps;
    assert_eq!(lifted, [NodeStep::RemoveTaint(SHUTDOWN)], "one that was added before the switch was off");
    let unmarked = NodeView { taints: Vec::new(), ready: ready(ConditionStatus::Unknown), ..view };
    assert_eq!(plan(&unmarked, &stopped, &SourceDestCheck::Settled, off).steps, []);
}

#[test]
fn a_missing_instance_holds_initialisation_and_nothing_else() {
    assert_eq!(plan_missing(&fresh(), &id(), ALL).problems.len(), 1);
    let initialised = NodeView { taints: vec![taint(SHUTDOWN)], ready: ready(ConditionStatus::True), ..fresh() };
    let plan = plan_missing(&initialised, &id(), ALL);
    assert_eq!((plan.steps, plan.problems), (vec![NodeStep::RemoveTaint(SHUTDOWN)], vec![]));
}

proptest! {
    /// Whatever state a node is in and wherever the process was killed: the rest follows, then there is nothing to do, and
    /// taints and labels of others are as they were.
    #[test]
    fn plans_converge_from_every_prefix(
        tainted: bool, identified: bool, routes: bool, shutdown_taint: bool, ipv6: bool, stopped: bool,
        status in prop::sample::select(vec![ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown]),
        addresses in prop::collection::vec(("InternalIP|ExternalIP|Hostname", "[a-z]{1,4}"), 0..4),
        killed_after in 0_usize..8,
    ) {
        let mut view = fresh();
        view.ready = ready(status);
        view.labels = [("mine".into(), "x".into()), ("topology.kubernetes.io/zone".into(), "old".into())].into_iter().collect();
        view.addresses = addresses.into_iter().map(|(kind, address)| NodeAddress { kind, address }).collect();
        if !tainted { view.taints.remove(0); }
        if identified { view.provider_id = "alicloud://cn-a.i-1".into(); }
        let mut instance = instance();
        if stopped { instance.status = "Stopping".into(); }
        let policy = NodePolicy { ipv6, shutdown_taint, routes };

        let first = plan(&view, &instance, &SourceDestCheck::Settled, policy);
        let (mut by_step, mut by_write) = (view.clone(), view.clone());
        first.steps.iter().for_each(|step| apply(&mut by_step, step));
        first.writes().for_each(|write| apply_together(&mut by_write, write));
        prop_assert_eq!(by_step, by_write);
        prop_assert!(first.writes().filter(|write| write.target != WriteTarget::Interface).count() <= 2);
        for step in first.steps.iter().take(killed_after) { apply(&mut view, step); }
        let second = plan(&view, &instance, &SourceDestCheck::Settled, policy);
        for step in &second.steps { apply(&mut view, step); }
        prop_assert_eq!(plan(&view, &instance, &SourceDestCheck::Settled, policy).steps, vec![]);
        prop_assert!(!has_taint(&view, UNINITIALIZED) && has_taint(&view, "other"));
        prop_assert_eq!(view.label("mine"), Some("x"));
        let last = first.steps.iter().position(|step| *step == NodeStep::RemoveTaint(UNINITIALIZED));
        prop_assert!(last.is_none_or(|at| at + 1 == first.steps.len()), "the taint goes last");
    }
}
