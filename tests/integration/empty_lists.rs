//! Lists of the cloud that show nothing for minutes after a restart: nothing is made a second time, the Service is served all
//! the while, and an event tells of it.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::Version;
use sim::testbed::Testbed;

use crate::in_process::{Product, in_parallel, on_a_clock_of_its_own};
use crate::kinds::Kind;

const MORE: &str = "[leader_election]\nenabled = false\n";
const STEP: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);

/// The lists by which things of a Service are found.
fn lists(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Clb => &[
            "slb:DescribeLoadBalancers",
            "DescribeVServerGroups",
            "DescribeLoadBalancerListeners",
            "DescribeAccessControlLists",
        ],
        Kind::Nlb => &["nlb:ListLoadBalancers", "ListServerGroups", "ListListeners", "DescribeSecurityGroups"],
    }
}

/// Each list, and each two of them.
fn cases() -> Vec<(Kind, Vec<&'static str>)> {
    let of_kind = |kind: Kind| {
        let all = lists(kind);
        let with = move |first: usize| {
            let pairs = all[first + 1..].iter().map(move |second| vec![all[first], *second]);
            std::iter::once(vec![all[first]]).chain(pairs)
        };
        (0..all.len()).flat_map(with).map(move |lists| (kind, lists))
    };
    Kind::BOTH.into_iter().flat_map(of_kind).collect()
}

/// How many load balancers, server groups, listeners, security groups and access control lists there are.
fn inventory(kind: Kind, testbed: &Testbed) -> [usize; 4] {
    let rules = testbed.cloud.look(|account| account.security_groups.len() + account.acls.len());
    [kind.count(testbed), kind.groups(testbed).len(), kind.listeners(testbed).len(), rules]
}

fn start(testbed: &Testbed) -> Product {
    Product::start(testbed, &["service", "nlb"], MORE)
}

fn warnings(testbed: &Testbed) -> usize {
    let events = testbed.cluster.list("Event");
    let of_service = |event: &&Value| event["type"] == "Warning" && event["involvedObject"]["kind"] == "Service";
    events.iter().filter(of_service).count()
}

/// What goes wrong while these lists show nothing, if anything does.
async fn restarted_while_empty(kind: Kind, empty: &[&str]) -> Option<String> {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=2).for_each(|number| drop(testbed.join(number)));
    kind.expose(&testbed, "web", &[80, 443], &[1, 2]);
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
    testbed.cluster.patch("Service", "default", "web", &ranges).unwrap();
    let first = start(&testbed);
    tokio::time::sleep(2 * MINUTE).await;
    drop(first);
    let service = || testbed.cluster.get("Service", "default", "web").unwrap();
    let (before, ports) = (inventory(kind, &testbed), kind.listeners(&testbed));
    assert!(kind.published(&service()).is_some() && before == [1, 2, 2, 1], "{kind:?} {before:?}");
    let told_before = warnings(&testbed);
    empty.iter().for_each(|list| testbed.cloud.faults().always(list, Fault::Partial(0)));
    let _product = start(&testbed);
    for step in 0..600 {
        tokio::time::sleep(STEP).await;
        let now = inventory(kind, &testbed);
        let serves = kind.published(&service()).is_some()
            && kind.listeners(&testbed) == ports
            && kind.all_lead_to(&testbed, &[1, 2]);
        if now != before || !serves {
            return Some(format!("after {} s: {now:?}, serves: {serves}", step / 2));
        }
    }
    let calls = testbed.cloud.take_calls().iter().filter(|call| call.outcome != "OK").count();
    let told = warnings(&testbed) > told_before;
    let is_needed = empty.iter().any(|list| !list.contains("LoadBalancers"));
    testbed.cloud.faults().clear();
    tokio::time::sleep(10 * MINUTE).await;
    drop(testbed.cloud.take_calls());
    tokio::time::sleep(MINUTE).await;
    let writes = testbed.cloud.take_calls().into_iter().filter(|call| call.outcome != "OK").count();
    let now = inventory(kind, &testbed);
    match () {
        () if is_needed && !told => Some("no event tells of it".to_owned()),
        () if calls > 60 => Some(format!("{calls} refused calls in five minutes")),
        () if now != before || writes > 0 => Some(format!("{now:?} afterwards, {writes} refused calls")),
        () => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_a_second_time_while_lists_show_nothing() {
    let cases = cases();
    let count = cases.len();
    let wrong = in_parallel(count, move |index| {
        let (kind, empty) = &cases[index];
        let wrong = on_a_clock_of_its_own(0, restarted_while_empty(*kind, empty)).0;
        wrong.map(|wrong| format!("{kind:?} {empty:?}: {wrong}"))
    });
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
