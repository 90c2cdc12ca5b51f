//! Plans as their readers see them.

use expect_test::expect;

use super::{Cloud, World, leaving, port};
use crate::plan::clb::model::Protocol;
use crate::plan::clb::teardown::teardown;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::ownership::Owner;

const FORWARDING: &[(&str, &str)] =
    &[("protocol-port", "http:80,https:443"), ("forward-port", "80:443"), ("cert-id", "cert-1")];

fn two_ports() -> World {
    World::new(FORWARDING).ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)])
}

#[test]
fn a_new_service() {
    expect![[r#"
    create load balancer a5e4dbfc9c2ae4642b0335607860aef6 (internet, PayByCLCU)  # the Service has no load balancer
    create group k8s/30080/web/default/c1 with i-1:30080*100, i-2:30080*100  # spec.ports[0]
    create listener 80/tcp -> k8s/30080/web/default/c1 (Bandwidth -1, Scheduler rr)  # spec.ports[0]
    start listener 80/tcp  # spec.ports[0]: new listeners are stopped
    "#]]
    .assert_eq(&World::new(&[]).plan(&Cloud::default()).to_string());
}

#[test]
fn nothing_to_do() {
    let world = World::new(&[]);
    expect![[r#""#]].assert_eq(&world.plan(&world.served()).to_string());
}

#[test]
fn redirecting_listeners_come_after_their_targets() {
    expect![[r#"
    create load balancer a5e4dbfc9c2ae4642b0335607860aef6 (internet, PayByCLCU)  # the Service has no load balancer
    create group k8s/30080/web/default/c1 with i-1:30080*100, i-2:30080*100  # spec.ports[0]
    create group k8s/30443/web/default/c1 with i-1:30443*100, i-2:30443*100  # spec.ports[1]
    create listener 443/https -> k8s/30443/web/default/c1 (Bandwidth -1, Scheduler rr, ServerCertificateId cert-1, StickySession off, HealthCheck off)  # spec.ports[1]
    start listener 443/https  # spec.ports[1]: new listeners are stopped
    create listener 80/http (Scheduler rr, StickySession off, HealthCheck off, ListenerForward on, ForwardPort 443)  # spec.ports[0]
    start listener 80/http  # spec.ports[0]: new listeners are stopped
    "#]].assert_eq(&two_ports().plan(&Cloud::default()).to_string());
}

#[test]
fn redirecting_listeners_go_before_their_targets() {
    let cloud = two_ports().served();
    let world = World::new(&[]).ports(&[port(81, "TCP", 8080, 30080)]);
    expect![[r#"
    create listener 81/tcp -> k8s/30080/web/default/c1 (Bandwidth -1, Scheduler rr)  # spec.ports[0]
    start listener 81/tcp  # spec.ports[0]: new listeners are stopped
    ! delete listener 80/http  # no longer wanted
    ! delete listener 443/https  # no longer wanted
    ! delete group k8s/30443/web/default/c1 (rsp-003)  # no longer wanted
    "#]]
    .assert_eq(&world.plan(&cloud).to_string());
}

#[test]
fn redirection_is_switched_off_by_making_the_listener_again() {
    let cloud = two_ports().served();
    let world = two_ports().with(&[("protocol-port", "http:80,https:443"), ("cert-id", "cert-1")]);
    expect![[r#"
    ! delete listener 80/http  # spec.ports[0]: made again, as its redirection or scheduler cannot be changed
    create listener 80/http -> k8s/30080/web/default/c1 (Scheduler rr, StickySession off, HealthCheck off)  # spec.ports[0]
    start listener 80/http  # spec.ports[0]: new listeners are stopped
    "#]].assert_eq(&world.plan(&cloud).to_string());
}

#[test]
fn another_protocol_on_a_port() {
    let cloud = World::new(&[]).served();
    expect![[r#"
    ! delete listener 80/tcp  # spec.ports[0]: replaced by 80/http
    create listener 80/http -> k8s/30080/web/default/c1 (Scheduler rr, StickySession off, HealthCheck off)  # spec.ports[0]
    start listener 80/http  # spec.ports[0]: new listeners are stopped
    "#]].assert_eq(&World::new(&[("protocol-port", "http:80")]).plan(&cloud).to_string());
}

#[test]
fn nodes_and_attributes_change() {
    let world = World::new(&[]);
    let cloud = world.served();
    let mut world = world.with(&[
        ("scheduler", "wrr"),
        ("name", "my-lb"),
        ("default-weight", "50"),
        ("delete-protection", "off"),
        ("additional-resource-tags", "a=1"),
    ]);
    world.nodes[0] = super::node("n3", "i-3");
    expect![[r#"
    add to k8s/30080/web/default/c1: i-3:30080*50  # spec.ports[0]
    ! remove from k8s/30080/web/default/c1: i-1:30080  # spec.ports[0]: no longer a backend
    set in k8s/30080/web/default/c1: i-2:30080*50  # spec.ports[0]: weight 100 -> 50
    set delete protection off  # service.beta.kubernetes.io/alibaba-cloud-loadbalancer-delete-protection: on now
    set name my-lb  # service.beta.kubernetes.io/alibaba-cloud-loadbalancer-name: "a5e4dbfc9c2ae4642b0335607860aef6" now
    tag a=1  # service.beta.kubernetes.io/alibaba-cloud-loadbalancer-additional-resource-tags: a is unset now
    set listener 80/tcp -> k8s/30080/web/default/c1  # spec.ports[0]: Scheduler rr -> wrr
    "#]]
    .assert_eq(&world.plan(&cloud).to_string());
}

#[test]
fn a_users_load_balancer_with_listeners() {
    let mut world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    expect![[r#"
    tag kubernetes.reused.by.user=true  # marks that are missing
    create group k8s/30080/web/default/c1 with i-1:30080*100, i-2:30080*100  # spec.ports[0]
    create listener 80/tcp -> k8s/30080/web/default/c1 (Bandwidth -1, Scheduler rr)  # spec.ports[0]
    start listener 80/tcp  # spec.ports[0]: new listeners are stopped
    "#]]
    .assert_eq(&world.plan(&cloud).to_string());
    world.bring(&mut cloud);
    world.service.deleting = true;
    let owner = Owner::of(&world.service, &world.settings);
    expect![[r#"
    ! delete listener 80/tcp  # the Service no longer needs it
    ! delete group k8s/30080/web/default/c1 (rsp-002)  # no longer wanted
    "#]]
    .assert_eq(&teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed).to_string());
}

#[test]
fn a_users_group_keeps_its_own_backends() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true"), ("vgroup-port", "rsp-user:80")]);
    let mut cloud = Cloud::of_user();
    expect![[r#"
    tag kubernetes.reused.by.user=true  # marks that are missing
    add to rsp-user: i-1:30080*100, i-2:30080*100  # spec.ports[0]
    create listener 80/tcp -> rsp-user (Bandwidth -1, Scheduler rr)  # spec.ports[0]
    start listener 80/tcp  # spec.ports[0]: new listeners are stopped
    "#]]
    .assert_eq(&world.plan(&cloud).to_string());
    world.bring(&mut cloud);
    let owner = Owner::of(&world.service, &world.settings);
    expect![[r#"
    ! delete listener 80/tcp  # the Service no longer needs it
    ! remove from rsp-user: i-1:30080, i-2:30080  # our backends, no longer wanted here
    "#]]
    .assert_eq(&teardown(&owner, &leaving(Some("lb-user"), false), &cloud.observed).to_string());
}

#[test]
fn a_port_that_another_service_has_taken() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")])
        .ports(&[port(9000, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let mut cloud = Cloud::of_user();
    cloud.listener(9000, Protocol::Tcp).description = "k8s/9000/other/default/c1".to_owned();
    expect![[r#"
        tag kubernetes.reused.by.user=true  # marks that are missing
        create group k8s/30080/web/default/c1 with i-1:30080*100, i-2:30080*100  # spec.ports[0]
        create group k8s/30081/web/default/c1 with i-1:30081*100, i-2:30081*100  # spec.ports[1]
        create listener 81/tcp -> k8s/30081/web/default/c1 (Bandwidth -1, Scheduler rr)  # spec.ports[1]
        start listener 81/tcp  # spec.ports[1]: new listeners are stopped
        problem: spec.ports[0]: Invalid value: "9000/tcp": must be a free port: the listener 9000/tcp with description "k8s/9000/other/default/c1", which is not ours, is there; remove it or choose another port
    "#]].assert_eq(&diff(&world.desired(), &cloud.observed).to_string());
}

#[test]
fn a_stopped_listener_starts_again() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.listener(80, Protocol::Tcp).status = "stopped".to_owned();
    expect![[r#"
    start listener 80/tcp  # spec.ports[0]: it is stopped
    "#]]
    .assert_eq(&world.plan(&cloud).to_string());
}

#[test]
fn deletion_of_ours() {
    let world = World::new(&[]);
    let cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    expect![[r#"
    set delete protection off  # the Service no longer needs it
    ! delete load balancer lb-001  # the Service no longer needs it
    "#]]
    .assert_eq(&teardown(&owner, &leaving(None, false), &cloud.observed).to_string());
    expect![[r#"
        set delete protection off  # the Service no longer needs it
        set modification protection NonProtection  # the load balancer is kept for the user
        ! untag ack.aliyun.com, kubernetes.do.not.delete  # the load balancer is kept for the user
    "#]]
    .assert_eq(&teardown(&owner, &leaving(None, true), &cloud.observed).to_string());
}
