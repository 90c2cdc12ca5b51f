//! Plans as their readers see them.

use insta::assert_snapshot;

use super::{Cloud, World, port};
use crate::plan::lb::model::Protocol;
use crate::plan::lb::naming::Owner;
use crate::plan::lb::{diff, teardown};

const FORWARDING: &[(&str, &str)] =
    &[("protocol-port", "http:80,https:443"), ("forward-port", "80:443"), ("cert-id", "cert-1")];

fn two_ports() -> World {
    World::new(FORWARDING).ports(&[port(80, "TCP", 8080, 30080), port(443, "TCP", 8443, 30443)])
}

#[test]
fn a_new_service() {
    assert_snapshot!(World::new(&[]).plan(&Cloud::default()), @"");
}

#[test]
fn nothing_to_do() {
    let world = World::new(&[]);
    assert_snapshot!(world.plan(&world.served()), @"");
}

#[test]
fn redirecting_listeners_come_after_their_targets() {
    assert_snapshot!(two_ports().plan(&Cloud::default()), @"");
}

#[test]
fn redirecting_listeners_go_before_their_targets() {
    let cloud = two_ports().served();
    let world = World::new(&[]).ports(&[port(81, "TCP", 8080, 30080)]);
    assert_snapshot!(world.plan(&cloud), @"");
}

#[test]
fn redirection_is_switched_off_by_making_the_listener_again() {
    let cloud = two_ports().served();
    let world = two_ports().with(&[("protocol-port", "http:80,https:443"), ("cert-id", "cert-1")]);
    assert_snapshot!(world.plan(&cloud), @"");
}

#[test]
fn another_protocol_on_a_port() {
    let cloud = World::new(&[]).served();
    assert_snapshot!(World::new(&[("protocol-port", "http:80")]).plan(&cloud), @"");
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
    assert_snapshot!(world.plan(&cloud), @"");
}

#[test]
fn a_users_load_balancer_with_listeners() {
    let mut world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")]);
    let mut cloud = Cloud::of_user();
    assert_snapshot!(world.plan(&cloud), @"");
    world.bring(&mut cloud);
    world.service.deleting = true;
    let owner = Owner::of(&world.service, &world.settings);
    assert_snapshot!(teardown(&owner, Some("lb-user"), false, &cloud.observed), @"");
}

#[test]
fn a_users_group_keeps_its_own_backends() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true"), ("vgroup-port", "rsp-user:80")]);
    let mut cloud = Cloud::of_user();
    assert_snapshot!(world.plan(&cloud), @"");
    world.bring(&mut cloud);
    let owner = Owner::of(&world.service, &world.settings);
    assert_snapshot!(teardown(&owner, Some("lb-user"), false, &cloud.observed), @"");
}

#[test]
fn a_port_that_is_taken() {
    let world = World::new(&[("id", "lb-user"), ("force-override-listeners", "true")])
        .ports(&[port(9000, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    assert_snapshot!(diff(&world.desired(), &Cloud::of_user().observed), @"");
}

#[test]
fn a_stopped_listener_starts_again() {
    let world = World::new(&[]);
    let mut cloud = world.served();
    cloud.listener(80, Protocol::Tcp).status = "stopped".to_owned();
    assert_snapshot!(world.plan(&cloud), @"");
}

#[test]
fn deletion_of_ours() {
    let world = World::new(&[]);
    let cloud = world.served();
    let owner = Owner::of(&world.service, &world.settings);
    assert_snapshot!(teardown(&owner, None, false, &cloud.observed), @"");
    assert_snapshot!(teardown(&owner, None, true, &cloud.observed), @"");
}
