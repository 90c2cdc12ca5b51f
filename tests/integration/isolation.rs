//! One thing's trouble stays its own: a wrong annotation, or one cloud action that fails, stops nothing that does not need it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::json;
use sim::cloud::Fault;
use sim::cluster::Endpoint;
use sim::testbed::{Testbed, instance};

use crate::harness::{ALL, HASTE, World, address, is_ready};

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";

/// Changes the server group of the only load balancer, and its listeners, as a person does in the console.
fn meddle(testbed: &Testbed) {
    testbed.cloud.edit(|account| {
        let lb = account.load_balancers.values_mut().next().unwrap();
        lb.listeners.clear();
        lb.groups.values_mut().flat_map(|group| &mut group.backends).for_each(|backend| backend.weight = 7);
    });
}

/// Listeners, and weights of backends.
fn serves(testbed: &Testbed) -> (usize, Vec<u8>) {
    testbed.cloud.look(|account| {
        let lb = account.load_balancers.values().next().unwrap();
        let weights =
            lb.groups.values().flat_map(|group| group.backends.iter().map(|backend| backend.weight)).collect();
        (lb.listeners.len(), weights)
    })
}

/// Two nodes, and Services of which only nodes with endpoints are backends.
async fn world_with(services: &[(&str, &[(&str, &str)])]) -> World {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.join(2);
    for (name, annotations) in services {
        let whole: Vec<(String, &str)> =
            annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
        let whole: Vec<(&str, &str)> = whole.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        world.testbed.expose(name, &[80], &["node-1"], &whole);
        let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
        world.testbed.cluster.patch("Service", "default", name, &local).unwrap();
    }
    world
}

async fn until_served(world: &World, service: &str) {
    let what = format!("Service {service} has an address");
    world.until(&what, |_| address(&world.service(service)).is_some() && is_ready(&world.node("node-2"))).await;
}

pub(crate) fn move_endpoints(world: &World, service: &str, node: u8) {
    let at = IpAddr::V4(Ipv4Addr::new(10, 98, node, 10));
    let endpoint = Endpoint::ready(at, &format!("node-{node}"));
    world.testbed.cluster.set_endpoints("default", service, &[endpoint]).unwrap();
}

/// Whether every server group has exactly this node as backend.
pub(crate) fn all_lead_to(testbed: &Testbed, node: u8) -> bool {
    testbed.cloud.look(|account| {
        account.load_balancers.values().flat_map(|lb| lb.groups.values()).all(|group| {
            let servers: Vec<_> = group.backends.iter().map(|backend| backend.server_id.as_str()).collect();
            servers == [instance(node)]
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_the_endpoints_while_an_annotation_is_wrong() {
    let world = world_with(&[("web", &[])]).await;
    let ccm = world.start();
    until_served(&world, "web").await;
    let wrong = json!({"metadata": {"annotations": {format!("{PREFIX}scheduler"): "nonsense"}}});
    world.testbed.cluster.patch("Service", "default", "web", &wrong).unwrap();
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("scheduler") && told.contains("nonsense"), "{told}");
    move_endpoints(&world, "web", 2);
    world.until("the backends have followed", |testbed| all_lead_to(testbed, 2)).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_access_control_lists_services_follow_their_endpoints_and_can_be_deleted() {
    let world = world_with(&[("web", &[]), ("gone", &[])]).await;
    world.testbed.cloud.faults().always("DescribeAccessControlLists", Fault::Unavailable);
    let ccm = world.start();
    until_served(&world, "web").await;
    until_served(&world, "gone").await;
    world.testbed.cluster.delete("Service", "default", "gone").unwrap();
    world.until("the other Service is gone", |_| world.service("gone").is_null()).await;
    move_endpoints(&world, "web", 2);
    world.until("the backends have followed", |testbed| all_lead_to(testbed, 2)).await;
    assert_eq!(world.testbed.cloud.look(|account| account.load_balancers.len()), 1);
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_address_that_cannot_be_looked_up_holds_up_neither_the_label_nor_the_backends() {
    let world = world_with(&[("web", &[("external-ip-type", "eip"), ("address-type", "intranet")])]).await;
    world.testbed.cloud.faults().always("DescribeEipAddresses", Fault::Unavailable);
    let ccm = world.start();
    let label = "service.k8s.alibaba/loadbalancer-id";
    world.until("the label is there", |_| world.service("web")["metadata"]["labels"][label].is_string()).await;
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("as soon as a retry finds it. The first retry is in 3 s"), "{told}");
    move_endpoints(&world, "web", 2);
    world.until("the backends have followed", |testbed| all_lead_to(testbed, 2)).await;
    world.testbed.cloud.faults().clear();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn any_edit_of_a_service_puts_right_what_was_changed_in_the_cloud() {
    let world = world_with(&[("web", &[])]).await;
    let ccm = world.start_with(&["--set", "service.drift_check=0s"], &[]);
    until_served(&world, "web").await;
    world.until_quiet(Duration::from_secs(2)).await;
    let whole = serves(&world.testbed);
    for (number, annotation) in [(1, format!("{PREFIX}scheduler")), (2, "example.com/look-again".to_owned())] {
        meddle(&world.testbed);
        let edit = json!({"metadata": {"annotations": {annotation: "wrr"}}});
        world.testbed.cluster.patch("Service", "default", "web", &edit).unwrap();
        world.until(&format!("edit {number} has put it right"), |testbed| serves(testbed) == whole).await;
        world.until_quiet(Duration::from_secs(2)).await;
    }
    let told = world.events("Service", "web").into_iter().rfind(|(_, reason, _)| reason == "EnsuredLoadBalancer");
    assert!(told.is_some_and(|(_, _, text)| text.contains("create listener 80/tcp")));
    world.until_event("Service", "web", "RepairedDrift").await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_the_endpoints_although_an_edit_cannot_be_compared_with_the_cloud() {
    let world = world_with(&[("web", &[])]).await;
    let ccm = world.start_with(&["--set", "service.drift_check=0s"], &[]);
    until_served(&world, "web").await;
    world.until_quiet(Duration::from_secs(2)).await;
    world.testbed.cloud.faults().always("DescribeLoadBalancerListeners", Fault::Unavailable);
    let edit = json!({"metadata": {"annotations": {"example.com/look-again": "yes"}}});
    world.testbed.cluster.patch("Service", "default", "web", &edit).unwrap();
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("DescribeLoadBalancerListeners"), "{told}");
    move_endpoints(&world, "web", 2);
    world.until("the backends have followed", |testbed| all_lead_to(testbed, 2)).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_service_without_pods_on_a_quiet_cluster_is_warned_of_nothing() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
    });
    let metadata = json!({"name": "web", "namespace": "default"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    world.testbed.cluster.create(service).unwrap();
    let ccm = world.start();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    let told = world.until_event("Service", "web", "UnAvailableLoadBalancer").await;
    assert!(told.contains("80/tcp"), "{told}");
    world.until_quiet(Duration::from_secs(3)).await;
    let warnings: Vec<_> = world.events("Service", "web").into_iter().filter(|(kind, ..)| kind == "Warning").collect();
    assert_eq!(warnings, []);
    assert!(ccm.stop().await.success());
}
