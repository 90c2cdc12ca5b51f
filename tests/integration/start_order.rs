//! The API server, the metadata service and the cloud become available in any order after the start.

use sim::cluster::NodeSpec;
use sim::testbed::instance;

use crate::harness::{ALL, Gate, HASTE, World, get, is_ready};

/// What a start needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Kubernetes,
    Metadata,
    Cloud,
}
use Needed::{Cloud, Kubernetes, Metadata};

/// A world in which the binary reaches everything through gates that are closed.
struct Start {
    world: World,
    port: u16,
    gates: [Gate; 3],
}

impl Start {
    async fn new() -> Self {
        let world = World::new(ALL, HASTE).await;
        world.testbed.rent(1);
        world.testbed.cloud.edit(|cloud| cloud.metadata.instance = Some(instance(1)));
        let cloud = world.testbed.cloud_address();
        let kubeconfig = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
        let server = kubeconfig.split("http://").nth(1).unwrap().split(['"', '\n', '\'']).next().unwrap().to_owned();
        let gates = [Gate::closed(&server), Gate::closed(&cloud), Gate::closed(&cloud)];
        let [api, metadata, calls] = gates.each_ref().map(|gate| format!("127.0.0.1:{}", gate.port));
        std::fs::write(world.folder().join("kubeconfig"), kubeconfig.replace(&server, &api)).unwrap();
        // Region and VPC have to come from the metadata service.
        let stated = |line: &&str| !line.starts_with("region =") && !line.starts_with("vpc_id =");
        world.edit(|text| {
            let text =
                text.replace(&format!("metadata = \"http://{cloud}\""), &format!("metadata = \"http://{metadata}\""));
            let text = text.replace(&format!("\"{cloud}\""), &format!("\"{calls}\""));
            text.lines().filter(stated).collect::<Vec<_>>().join("\n") + "\n"
        });
        let port = world.serve_health();
        Self { world, port, gates }
    }

    async fn open(&mut self, needed: Needed) {
        self.gates[needed as usize].open().await;
    }

    async fn alive(&self) {
        self.world.until_so("health is served", || async { get(self.port, "/livez").await.is_some() }).await;
        assert_eq!(get(self.port, "/livez").await, Some((200, "ok".to_owned())));
    }

    /// Waits until `/readyz` says that, and why, it is not ready for want of `needed`; and the log as well.
    async fn waits_for(&self, needed: Needed) {
        let (check, word) = match needed {
            Kubernetes => ("[-]kubernetes failed", "waiting for the API server"),
            Metadata => ("[-]cloud failed", "the metadata service"),
            Cloud => return,
        };
        self.world
            .until_so(&format!("it says that it waits for {needed:?}"), || async {
                let ready = get(self.port, "/readyz").await;
                ready.is_some_and(|(status, text)| status == 503 && text.contains(check))
                    && self.world.logs().contains(word)
            })
            .await;
    }
}

async fn in_this_order(order: [Needed; 3]) {
    let mut start = Start::new().await;
    // The only machine: its kubelet has registered it, tainted and not ready, before anything else runs.
    let spec = NodeSpec::new("master").provider_id("").pod_cidr("10.98.1.0/24").internal_ip("192.168.0.1");
    start.world.testbed.cluster.join_node(&spec).unwrap();
    start.world.testbed.cluster.set_ready("master", "False").unwrap();
    let ccm = start.world.start();
    start.alive().await;
    for (done, next) in order.into_iter().enumerate() {
        for missing in &order[done..] {
            start.waits_for(*missing).await;
        }
        start.open(next).await;
    }
    let world = &start.world;
    world
        .until(&format!("{order:?}: the node is initialised"), |_| {
            let node = world.node("master");
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let waits = taints.iter().any(|taint| taint["key"] == "node.cloudprovider.kubernetes.io/uninitialized");
            !node.is_null() && !waits
        })
        .await;
    world.testbed.cluster.set_ready("master", "True").unwrap();
    world.until("the node is ready", |_| is_ready(&world.node("master"))).await;
    world
        .until_so("it is ready", || async { get(start.port, "/readyz").await.is_some_and(|(code, _)| code == 200) })
        .await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_in_any_order() {
    let orders = [
        [Kubernetes, Metadata, Cloud],
        [Kubernetes, Cloud, Metadata],
        [Metadata, Kubernetes, Cloud],
        [Metadata, Cloud, Kubernetes],
        [Cloud, Kubernetes, Metadata],
        [Cloud, Metadata, Kubernetes],
    ];
    let starts: Vec<_> = orders.into_iter().map(|order| tokio::spawn(in_this_order(order))).collect();
    for start in starts {
        start.await.unwrap();
    }
}

/// Whatever is there or missing, SIGTERM ends it in order and soon.
async fn stopped_while(there: &[Needed]) {
    let mut start = Start::new().await;
    for needed in there {
        start.open(*needed).await;
    }
    let ccm = start.world.start();
    start.alive().await;
    for missing in [Kubernetes, Metadata, Cloud].into_iter().filter(|needed| !there.contains(needed)) {
        start.waits_for(missing).await;
    }
    assert!(ccm.stop().await.success(), "{there:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_in_order_whatever_it_waits_for() {
    let there: [&'static [Needed]; 8] = [
        &[],
        &[Kubernetes],
        &[Metadata],
        &[Cloud],
        &[Kubernetes, Metadata],
        &[Kubernetes, Cloud],
        &[Metadata, Cloud],
        &[Kubernetes, Metadata, Cloud],
    ];
    let starts: Vec<_> = there.into_iter().map(|there| tokio::spawn(stopped_while(there))).collect();
    for start in starts {
        start.await.unwrap();
    }
}
