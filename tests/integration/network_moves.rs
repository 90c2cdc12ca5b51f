//! Services that move from one load balancer to another, between the binary and the simulated worlds.

use std::time::Duration;

use serde_json::{Value, json};
use sim::testbed::Testbed;

use crate::network_load_balancers::{PREFIX, expose, finish, hostname, is_gone, world};

/// Makes a load balancer as a user does, and gives its id.
pub(crate) fn users_load_balancer(testbed: &Testbed, name: &str) -> String {
    let (vpc, zones) = testbed.cloud.look(|account| {
        let vpc = account.vpcs.keys().next().unwrap().clone();
        let zones: Vec<_> = account.vswitches.iter().map(|(id, it)| (it.zone.clone(), id.clone())).take(2).collect();
        (vpc, zones)
    });
    let made = testbed.cloud.act(
        "nlb",
        "CreateLoadBalancer",
        &[
            ("AddressType", "Intranet"),
            ("VpcId", &vpc),
            ("LoadBalancerName", name),
            ("ZoneMappings.1.ZoneId", &zones[0].0),
            ("ZoneMappings.1.VSwitchId", &zones[0].1),
            ("ZoneMappings.2.ZoneId", &zones[1].0),
            ("ZoneMappings.2.VSwitchId", &zones[1].1),
        ],
    );
    made.unwrap()["LoadbalancerId"].as_str().unwrap().to_owned()
}

fn annotate(testbed: &Testbed, name: &str, key: &str, value: Value) {
    let annotations = json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}});
    testbed.cluster.patch("Service", "default", name, &annotations).unwrap();
}

#[tokio::test]
async fn listeners_on_a_load_balancer_that_the_service_no_longer_names_do_not_hold_up_its_deletion() {
    let world = world(Duration::from_millis(100)).await;
    let (first, second) = (users_load_balancer(&world.testbed, "first"), users_load_balancer(&world.testbed, "second"));
    let edits = [("id", json!(second)), ("id", Value::Null), ("force-override-listeners", Value::Null)];
    let names = ["moved", "unnamed", "unmanaged"];
    for (port, name) in (80..).zip(names) {
        let annotations = [("id", first.as_str()), ("force-override-listeners", "true")];
        expose(&world.testbed, name, &[port], &["node-1"], &annotations);
    }
    let ccm = world.start();
    for name in names {
        world.until("it is served", |_| hostname(&world.service(name)).is_some()).await;
    }
    for (name, (key, value)) in names.into_iter().zip(edits) {
        annotate(&world.testbed, name, key, value);
    }
    world.until_event("Service", "moved", "SyncLoadBalancerFailed").await;
    for name in names {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    for name in names {
        world.until("it is gone", |testbed| is_gone(testbed, name)).await;
    }
    world.testbed.cloud.look(|account| {
        assert!([&first, &second].into_iter().all(|id| account.nlb.balancers[id].listeners.is_empty()));
        assert!(account.nlb.groups.is_empty());
    });
    finish(&world, ccm).await;
}
