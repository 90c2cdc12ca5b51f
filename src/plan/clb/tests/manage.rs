//! What is only noted on a load balancer of which a part is managed.

use super::{Cloud, World, port};
use crate::plan::loadbalancer::annotations::PREFIX;
use crate::plan::loadbalancer::diff::diff;

/// What is planned for a load balancer of ours that is no longer managed whole, and what is only noted.
fn managed(world: World, manage: &'static str, cloud: &Cloud) -> (Vec<String>, Vec<String>) {
    let mut world = world;
    world.service.annotations.insert(format!("{}manage", PREFIX), manage.to_owned());
    let plan = diff(&world.desired(), &cloud.observed);
    let noted = plan.notes.iter().filter_map(|note| note.strip_prefix("not managed: ").map(str::to_owned));
    (plan.steps.iter().map(|step| step.operation.to_string()).collect(), noted.collect())
}

#[test]
fn marks_are_kept_whatever_is_managed() {
    let mut cloud = World::new(&[]).served();
    cloud.instance().tags.clear();
    let (steps, _) = managed(World::new(&[]), "none", &cloud);
    assert!(steps.len() == 1 && steps[0].starts_with("tag "), "{steps:?}");
}

#[test]
fn certificates_and_source_ranges_belong_to_the_listeners() {
    let tls = |domains: &'static str| {
        World::new(&[("protocol-port", "https:80"), ("cert-id", "cert-1"), ("domain-extensions", domains)])
    };
    let cloud = tls("a.example.com:cert-2").served();
    for (manage, steps, noted) in [("listeners", 1, 0), ("backends", 0, 1)] {
        let found = managed(tls("a.example.com:cert-3"), manage, &cloud);
        assert_eq!((found.0.len(), found.1.len()), (steps, noted), "{manage}: {found:?}");
    }
    let mut ranges = World::new(&[]);
    ranges.service.source_ranges = vec!["10.0.0.0/8".to_owned()];
    let cloud = ranges.served();
    let (steps, noted) = managed(World::new(&[]), "backends", &cloud);
    assert!(steps.is_empty() && noted.iter().any(|it| it.contains("delete access control list")), "{noted:?}");
}

#[test]
fn a_group_stays_with_the_listener_that_is_not_ours_to_delete() {
    let both = World::new(&[]).ports(&[port(80, "TCP", 8080, 30080), port(81, "TCP", 8081, 30081)]);
    let cloud = both.served();
    let (steps, noted) = managed(both.ports(&[port(80, "TCP", 8080, 30080)]), "backends", &cloud);
    // The API server may give the node port to another Service.
    assert!(
        steps.iter().all(|it| it.starts_with("remove from") && it.contains(":30081")) && steps.len() == 1,
        "{steps:?}"
    );
    assert!(noted.iter().any(|it| it.contains("delete listener 81/tcp")), "{noted:?}");
}

#[test]
fn a_listener_that_is_not_ours_to_change_gets_the_new_node_port_in_its_group() {
    let cloud = World::new(&[]).served();
    let (steps, noted) = managed(World::new(&[]).ports(&[port(80, "TCP", 8080, 30099)]), "backends", &cloud);
    let about = |start: &str, node_port: &str| steps.iter().any(|it| it.starts_with(start) && it.contains(node_port));
    assert!(about("add to rsp-", ":30099") && about("remove from rsp-", ":30080"), "{steps:?}");
    assert!(noted.iter().any(|it| it.contains("set listener 80/tcp -> k8s/30099/web/default/c1")), "{noted:?}");
}
