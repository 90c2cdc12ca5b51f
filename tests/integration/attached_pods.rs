//! Pods that are backends by their network interfaces, while interfaces and the blocks of the VPC are not known yet.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use sim::cluster::{Endpoint, Version};
use sim::testbed::{Testbed, VPC};

use crate::harness::{EVERY, HASTE};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::Kind;

/// A pod on the first node: with this address, name and uid.
fn pod(address: &str, name: &str, uid: &str) -> Endpoint {
    let address: IpAddr = address.parse().unwrap();
    Endpoint { pod: Some(name.to_owned()), uid: Some(uid.to_owned()), ..Endpoint::ready(address, "node-1") }
}

fn plain(address: &str) -> Endpoint {
    pod(address, &format!("pod-{address}"), &format!("uid-{address}"))
}

fn has_interface(testbed: &Testbed, id: &str, address: &str) {
    testbed.cloud.edit(|account| {
        account.add_interface(id, "i-play-1", "vsw-i", &[address]);
    });
}

fn serve(testbed: &Testbed, pods: &[Endpoint]) {
    testbed.cluster.set_endpoints("default", "web", pods).unwrap();
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The backends of the only group, which is never compared with the cloud by itself.
fn backends(testbed: &Testbed, kind: Kind) -> Vec<String> {
    let all: BTreeSet<String> = kind.groups(testbed).into_iter().flatten().map(|(id, _)| id).collect();
    all.into_iter().collect()
}

/// A Service whose pods are these, each with an interface that is named by its number.
fn with_pods(numbers: &[u8], history: impl AsyncFn(&Testbed, Kind)) {
    for kind in Kind::BOTH {
        on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            kind.expose(&testbed, "web", &[80], &[]);
            let by_pod = serde_json::json!({"metadata": {"annotations": {
                "service.beta.kubernetes.io/backend-type": "eni",
            }}});
            testbed.cluster.patch("Service", "default", "web", &by_pod).unwrap();
            let addresses = numbers.iter().map(|number| (number, format!("192.168.0.{number}")));
            let pods = addresses.map(|(number, address)| {
                has_interface(&testbed, &format!("eni-{number}"), &address);
                plain(&address)
            });
            serve(&testbed, &pods.collect::<Vec<_>>());
            let quiet = "drift_check = \"0s\"\n";
            let more = format!("{HASTE}[leader_election]\nenabled = false\n[nlb]\n{quiet}[service]\n{quiet}");
            let _product = Product::start(&testbed, EVERY, &more);
            pass(60).await;
            assert_eq!(backends(&testbed, kind).len(), numbers.len());
            history(&testbed, kind).await;
        });
    }
}

#[test]
fn pods_in_a_block_that_the_vpc_gets_later_become_backends_and_a_rollout_to_them_empties_no_group() {
    with_pods(&[101], async |testbed, kind| {
        let reads = || testbed.cloud.calls().iter().filter(|call| call.action == "DescribeVpcAttribute").count();
        let before = reads();
        serve(testbed, &[plain("100.64.1.5"), plain("100.64.1.6")]);
        pass(600).await;
        assert_eq!(backends(testbed, kind), ["eni-101"], "{kind:?}: what served before stays");
        assert!((9..=11).contains(&(reads() - before)), "{kind:?}: {} reads in ten minutes", reads() - before);
        testbed.cloud.edit(|account| {
            account.vpcs.get_mut(VPC).unwrap().secondary_cidrs.push("100.64.0.0/16".to_owned());
        });
        has_interface(testbed, "eni-5", "100.64.1.5");
        has_interface(testbed, "eni-6", "100.64.1.6");
        pass(70).await;
        assert_eq!(backends(testbed, kind), ["eni-5", "eni-6"], "{kind:?}");
    });
}

#[test]
fn a_pod_without_an_interface_keeps_no_address_of_a_dead_pod_unless_nothing_else_serves() {
    with_pods(&[101, 102], async |testbed, kind| {
        serve(testbed, &[plain("192.168.0.102"), plain("192.168.0.103")]);
        pass(10).await;
        assert_eq!(backends(testbed, kind), ["eni-102"], "{kind:?}: 101 is dead");
        serve(testbed, &[plain("192.168.0.103")]);
        pass(60).await;
        assert_eq!(backends(testbed, kind), ["eni-102"], "{kind:?}: no other backend is known");
        has_interface(testbed, "eni-103", "192.168.0.103");
        pass(60).await;
        assert_eq!(backends(testbed, kind), ["eni-103"], "{kind:?}");
    });
}

#[test]
fn a_pod_that_comes_back_with_its_name_and_address_serves_at_its_new_interface() {
    with_pods(&[101], async |testbed, kind| {
        serve(testbed, &[pod("192.168.0.101", "web-0", "first")]);
        pass(60).await;
        testbed.cloud.edit(|account| account.interfaces.remove("eni-101"));
        has_interface(testbed, "eni-201", "192.168.0.101");
        serve(testbed, &[pod("192.168.0.101", "web-0", "second")]);
        pass(60).await;
        assert_eq!(backends(testbed, kind), ["eni-201"], "{kind:?}");
    });
}
