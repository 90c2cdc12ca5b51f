//! Objects that an API server shows and that cannot be decoded: they exist, so nothing is removed as if they did not.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use sim::cloud::PrivateZone;
use sim::cluster::Version;
use sim::testbed::Testbed;

use crate::in_process::{Product, in_parallel, judged, on_a_clock_of_its_own};
use crate::kinds::Kind;

const EVERY: &[&str] = &["node", "route", "service", "nlb", "pvtz"];
const MORE: &str = "disable_source_dest_check = false\n[leader_election]\nenabled = false\n";
const MINUTE: Duration = Duration::from_secs(60);

/// What a cluster has in the cloud.
fn things(testbed: &Testbed) -> BTreeSet<String> {
    let groups = Kind::BOTH.map(|kind| kind.groups(testbed)).concat().into_iter().map(|group| format!("{group:?}"));
    testbed.cloud.look(|account| {
        let records = account.private_zones.values().flat_map(PrivateZone::lines);
        let routes = account.route_tables.values().flat_map(|it| &it.entries).map(|it| format!("{it:?}"));
        let balancers = account.load_balancers.keys().chain(account.nlb.balancers.keys());
        let lists = account.acls.keys().chain(account.security_groups.keys());
        groups.chain(records).chain(routes).chain(balancers.chain(lists).cloned()).collect()
    })
}

/// Every object, by kind and name, whose absence would remove something.
fn objects(testbed: &Testbed) -> BTreeSet<(&'static str, String)> {
    let of_kind = |kind: &'static str| {
        testbed
            .cluster
            .list(kind)
            .into_iter()
            .map(move |it| (kind, it["metadata"]["name"].as_str().unwrap().to_owned()))
    };
    ["Node", "Service", "EndpointSlice"].into_iter().flat_map(of_kind).collect()
}

async fn world() -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=3).for_each(|number| drop(testbed.join(number)));
    for (kind, name) in [(Kind::Clb, "web"), (Kind::Nlb, "net")] {
        kind.expose(&testbed, name, &[80], &[1, 2]);
        let spread = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
        testbed.cluster.patch("Service", "default", name, &spread).unwrap();
    }
    for (kind, name) in [(Kind::Clb, "all"), (Kind::Nlb, "all-net")] {
        kind.expose(&testbed, name, &[80], &[1]);
        let spread = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
        testbed.cluster.patch("Service", "default", name, &spread).unwrap();
    }
    crate::private_zone::headless(&testbed, "db", &[11]);
    crate::private_zone::plain(&testbed, "inner", "10.96.7.1");
    let first = Product::start(&testbed, EVERY, MORE);
    tokio::time::sleep(5 * MINUTE).await;
    drop(first);
    testbed
}

/// What is lost when one object cannot be decoded, by a process that never saw it whole.
async fn with_one_spoilt(which: Option<usize>) -> (usize, Option<String>) {
    let testbed = world().await;
    let objects = objects(&testbed);
    let Some((kind, name)) = which.and_then(|index| objects.iter().nth(index)) else { return (objects.len(), None) };
    let namespace = if *kind == "Node" { "" } else { "default" };
    let before = things(&testbed);
    testbed.cluster.spoil(kind, namespace, name);
    let product = Product::start(&testbed, EVERY, MORE);
    tokio::time::sleep(15 * MINUTE).await;
    let now = things(&testbed);
    let lost: Vec<&String> = before.difference(&now).collect();
    let told = testbed.cluster.list("Event").into_iter().find(|it| it["reason"] == "LoadBalancerOwnerMissing");
    drop(product);
    let (orphans, _) = judged(&testbed, EVERY, MORE).await;
    let is_right = lost.is_empty() && orphans.is_empty() && told.is_none();
    let wrong = || format!("{kind} {name}: lost {lost:?}, gc offers {orphans:?}, events advise {told:?}");
    (objects.len(), (!is_right).then(wrong))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_that_cannot_be_decoded_needs_stays_in_the_cloud() {
    let count = in_parallel(1, |_| on_a_clock_of_its_own(0, with_one_spoilt(None)).0.0).await[0];
    let wrong = in_parallel(count, |index| on_a_clock_of_its_own(0, with_one_spoilt(Some(index))).0.1).await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
