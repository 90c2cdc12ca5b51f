//! The whole life of a cluster: from the first node to the last Service.

use sim::testbed::instance;

use crate::harness::{ALL, HASTE, World, address, is_ready};

#[tokio::test(flavor = "multi_thread")]
async fn from_the_first_node_to_the_last_service_nothing_is_left_behind() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start();
    let nodes: Vec<String> = (1..=3).map(|number| world.testbed.join(number)).collect();
    world.until("the nodes are initialised and routed", |_| nodes.iter().all(|name| is_ready(&world.node(name)))).await;
    for (number, name) in (1..).zip(&nodes) {
        let node = world.node(name);
        let zone = if number % 2 == 1 { "cn-hangzhou-i" } else { "cn-hangzhou-j" };
        assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], zone);
        assert_eq!(node["spec"]["providerID"], format!("cn-hangzhou.{}", instance(number)));
    }

    world.testbed.expose("web", &[80], &["node-1", "node-2"], &[]);
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    world.until_in_sync().await;

    world.testbed.cloud.release_instance(&instance(3));
    world.testbed.cluster.set_ready("node-3", "Unknown").unwrap();
    world
        .until("the node is gone, with its route and backends", |testbed| {
            testbed.cluster.get("Node", "", "node-3").is_none()
                && !testbed.cloud.snapshot().to_string().contains(&instance(3))
        })
        .await;

    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service is gone", |_| world.service("web").is_null()).await;
    assert!(world.testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}
