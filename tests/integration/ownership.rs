//! Foreign objects are not changed, whatever their owners do; `gc` finds orphans of this cluster, and only those.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{NetworkLoadBalancer, Protocol};
use sim::cluster::Version;
use sim::testbed::{ROUTE_TABLE, Testbed};

use crate::end_state::{Foreign, NETWORK_SHARED, Row, SHARED, marked};
use crate::harness::{ALL, HASTE, WITHOUT_NAMES, World, is_ready};
use crate::kinds::{Kind, annotate};

const ALONE: &str = "[leader_election]\nenabled = false\n";
const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";

/// Services with a load balancer of their own and on a person's, of each kind.
const SERVICES: [(Kind, &str); 4] = [(Kind::Clb, "web"), (Kind::Clb, "shop"), (Kind::Nlb, "net"), (Kind::Nlb, "store")];

/// A cluster among those of others, with Services of its own and some on load balancers of a person.
async fn among_others() -> (World, Foreign) {
    let world = World::of(Testbed::open(Version::NEWEST).await.unwrap(), WITHOUT_NAMES, &format!("{HASTE}{ALONE}"));
    for number in 1..=3 {
        world.testbed.join(number);
    }
    world.testbed.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
    let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
    Kind::Nlb.expose(&world.testbed, "net", &[80, 443], &[1, 2]);
    let mut foreign = Foreign::settle(&world.testbed, &["web", "shop"]);
    foreign.settle_shared_network(&world.testbed);
    world.testbed.expose("shop", &[8080], &["node-1"], &[(&id, SHARED), (&force, "true")]);
    Kind::Nlb.expose(&world.testbed, "store", &[8080], &[1]);
    annotate(&world.testbed, "store", "id", NETWORK_SHARED);
    annotate(&world.testbed, "store", "force-override-listeners", "true");
    (world, foreign)
}

async fn settled(world: &World) {
    world
        .until("everything is there", |_| {
            (1..=3).all(|number| is_ready(&world.node(&format!("node-{number}"))))
                && SERVICES.iter().all(|(kind, name)| kind.published(&world.service(name)).is_some())
        })
        .await;
    world.until_still(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_listener_is_overridden_where_it_was_handed_over_and_one_of_another_cluster_is_not() {
    let world = World::of(Testbed::open(Version::NEWEST).await.unwrap(), ALL, &format!("{HASTE}{ALONE}"));
    world.testbed.join(1);
    let _foreign = Foreign::settle(&world.testbed, &["web"]);
    let mark = "k8s/9001/shop/default/other";
    world.testbed.cloud.edit(|cloud| {
        let listeners = &mut cloud.load_balancers.get_mut(SHARED).unwrap().listeners;
        let mut others = listeners.values().next().unwrap().clone();
        others.description = mark.into();
        listeners.insert((9001, Protocol::Tcp), others);
    });
    let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
    world.testbed.expose("shop", &[9000, 9001], &["node-1"], &[(&id, SHARED), (&force, "true")]);
    let ccm = world.start();
    let listener = |testbed: &Testbed, port| {
        testbed.cloud.look(|cloud| cloud.load_balancers[SHARED].listeners[&(port, Protocol::Tcp)].clone())
    };
    let ours = "k8s/9000/shop/default/";
    world.until("it is taken over", |testbed| listener(testbed, 9000).description.starts_with(ours)).await;
    let told = world.until_event("Service", "shop", "SyncLoadBalancerFailed").await;
    assert!(told.contains("9001") && told.contains(mark), "{told}");
    world.until_quiet(Duration::from_secs(2)).await;
    assert_eq!(listener(&world.testbed, 9001).description, mark, "that of another cluster stays");
    let overridden: Vec<_> =
        world.events("Service", "shop").into_iter().filter(|(.., text)| text.contains("is overridden")).collect();
    assert!(overridden.len() == 1 && overridden[0].2.contains("by hand"), "{overridden:?}");
    assert!(ccm.stop().await.success());
}

/// What people do to things of theirs, and to ours.
fn meddle(testbed: &Testbed, number: u64) {
    let dice = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let cluster = |name: &str, patch: Value| drop(testbed.cluster.patch("Node", "", name, &patch));
    match dice % 18 {
        0 => cluster("other-0", json!({"metadata": {"labels": {"by-hand": number.to_string()}}})),
        1 => cluster("other-1", json!({"spec": {"unschedulable": number.is_multiple_of(2)}})),
        2 => testbed.cloud.edit(|cloud| {
            let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
            table.entries.get_mut("10.98.200.0/24").unwrap().description = format!("by hand {number}");
        }),
        3 => testbed.cloud.edit(|cloud| {
            cloud.load_balancers.get_mut("lb-other-1").unwrap().tags.insert("by-hand".into(), number.to_string());
        }),
        4 => testbed.cloud.edit(|cloud| {
            let group = cloud.load_balancers.get_mut(SHARED).unwrap().groups.get_mut("rsp-people").unwrap();
            group.backends[0].weight = u8::try_from(dice % 100).unwrap();
        }),
        5 => testbed
            .cloud
            .edit(|cloud| cloud.load_balancers.get_mut("lb-alike-1").unwrap().name = format!("hand-{number}")),
        // Ours: routes, backends and listeners go, and come back.
        6 => testbed
            .cloud
            .edit(|cloud| drop(cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.remove("10.98.1.0/24"))),
        7 => testbed.cloud.edit(|cloud| {
            for lb in cloud
                .load_balancers
                .values_mut()
                .filter(|lb| lb.tags.get("ack.aliyun.com").is_some_and(|id| id == "playground"))
            {
                lb.groups.values_mut().for_each(|group| group.backends.truncate(1));
            }
        }),
        // More of theirs: a copy of our load balancer for another cluster, a group beside ours, a route beside ours.
        8 => testbed.cloud.edit(|cloud| {
            let ours = cloud
                .load_balancers
                .values()
                .find(|lb| lb.tags.get("ack.aliyun.com").is_some_and(|id| id == "playground"));
            let mut copy = ours.unwrap_or(&cloud.load_balancers["lb-other-1"]).clone();
            copy.tags.insert("ack.aliyun.com".into(), format!("other-{number}"));
            cloud.load_balancers.insert(format!("lb-copy-{number}"), copy);
        }),
        9 => testbed.cloud.edit(|cloud| {
            let shared = cloud.load_balancers.get_mut(SHARED).unwrap();
            let mut group = shared.groups["rsp-people"].clone();
            group.name = format!("k8s/8080/shop/default/people-{number}");
            shared.groups.insert(format!("rsp-people-{number}"), group);
        }),
        10 => testbed.cloud.edit(|cloud| {
            let table = cloud.route_tables.get_mut(ROUTE_TABLE).unwrap();
            let entry = table.entries["10.98.200.0/24"].clone();
            table.entries.insert(format!("10.98.{}.0/24", 100 + number % 90), entry);
        }),
        11 => annotate(testbed, "net", "scheduler", if dice.is_multiple_of(2) { "wrr" } else { "rr" }),
        12..=16 => meddle_with_network(testbed, dice, number),
        _ => {
            let patch = json!({"metadata": {"annotations": {format!("{PREFIX}-scheduler"): if dice.is_multiple_of(2) { "wrr" } else { "rr" }}}});
            drop(testbed.cluster.patch("Service", "default", "web", &patch));
        }
    }
}

/// The same with network load balancers.
fn meddle_with_network(testbed: &Testbed, dice: u64, number: u64) {
    let is_ours = |lb: &NetworkLoadBalancer| lb.tags.get("ack.aliyun.com").is_some_and(|id| id == "playground");
    testbed.cloud.edit(|cloud| match dice % 18 {
        12 => {
            cloud.nlb.balancers.get_mut("nlb-other").unwrap().tags.insert("by-hand".into(), number.to_string());
        }
        13 => {
            let group = cloud.nlb.groups.get_mut("sgp-people").unwrap();
            group.servers[0].weight = u8::try_from(dice % 100).unwrap();
        }
        14 => cloud.security_groups.get_mut("sg-other").unwrap().description = format!("by hand {number}"),
        // Ours: listeners and backends go, and come back.
        15 => {
            let ours = cloud.nlb.balancers.values_mut().filter(|lb| is_ours(lb));
            ours.for_each(|lb| lb.listeners.clear());
            let groups = cloud.nlb.groups.values_mut().filter(|group| group.name.ends_with(".net.default.playground"));
            groups.for_each(|group| group.servers.truncate(1));
        }
        // A copy of ours for another cluster.
        _ => {
            let copy = cloud.nlb.balancers.values().find(|lb| is_ours(lb)).unwrap_or(&cloud.nlb.balancers["nlb-other"]);
            let mut copy = NetworkLoadBalancer::clone(copy);
            copy.tags.insert("ack.aliyun.com".into(), format!("other-{number}"));
            copy.listeners.clear();
            cloud.nlb.balancers.insert(format!("nlb-copy-{number}"), copy.into());
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn people_edit_at_any_time_and_nothing_of_theirs_changes() {
    const EDITS: u64 = 150;
    let (world, mut foreign) = among_others().await;
    let _ccm = world.start();
    settled(&world).await;
    // As many as ours, of each kind.
    assert!(foreign.counts().iter().zip([1, 3, 3]).all(|(theirs, ours)| *theirs >= ours), "{:?}", foreign.counts());
    assert_eq!(foreign.changes(&world.testbed), Vec::<String>::new());
    for number in 0..EDITS {
        assert_eq!(foreign.changes(&world.testbed), Vec::<String>::new(), "before edit {number}\n{}", world.logs());
        meddle(&world.testbed, number);
        foreign.claim(&world.testbed);
        foreign = foreign.look_again(&world.testbed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(foreign.changes(&world.testbed), Vec::<String>::new());
    assert_eq!(marked(&world.testbed), 1);
    for (_, name) in SERVICES {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    world.until("the Services are gone", |_| SERVICES.iter().all(|(_, name)| world.service(name).is_null())).await;
    assert_eq!((foreign.changes(&world.testbed), marked(&world.testbed)), (Vec::new(), 0));
    Row {
        tried: "users edit objects in the console meanwhile",
        test: "ownership::people_edit_at_any_time_and_nothing_of_theirs_changes",
        numbers: vec![("edits", 150), ("foreign objects", foreign.count()), ("foreign changes", 0_usize)],
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_owner_is_listed_and_goes_only_at_a_second_look() {
    let (world, foreign) = among_others().await;
    let ccm = world.start();
    settled(&world).await;
    assert!(ccm.stop().await.success());
    let foreign = foreign.look_again(&world.testbed);
    let gc = async |arguments: &[&str]| {
        let output = world.run(arguments).await;
        (String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    assert_eq!(gc(&["gc"]).await, ("Nothing is without an owner.\n".to_owned(), Some(0)));

    // Somebody forced a Service and a node out while nobody looked.
    for name in ["web", "net"] {
        world.testbed.cluster.patch("Service", "default", name, &json!({"metadata": {"finalizers": null}})).unwrap();
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    world.testbed.cluster.delete("Node", "", "node-3").unwrap();
    let before = world.testbed.cloud.snapshot();
    let (text, code) = gc(&["gc"]).await;
    assert_eq!((text.lines().count(), code), (3, Some(2)), "{text}");
    for orphan in ["load balancer lb-", "load balancer nlb-", "route 10.98.3.0/24"] {
        assert!(text.contains(&format!("without owner: {orphan}")), "{text}");
    }
    let (text, _) = gc(&["gc", "--output", "json"]).await;
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["orphans"].as_array().map(Vec::len), Some(3), "{text}");
    assert_eq!(world.testbed.cloud.snapshot(), before, "a report changes nothing");

    let (text, code) = gc(&["gc", "--delete", "--after", "1"]).await;
    assert_eq!((text.matches("deleted: ").count(), code), (3, Some(0)), "{text}");
    assert_eq!((foreign.changes(&world.testbed), marked(&world.testbed)), (Vec::new(), 0));
    let routes = world.testbed.cloud.snapshot()["routes"].to_string();
    assert!(routes.contains("10.98.1.0/24") && routes.contains("10.98.2.0/24") && !routes.contains("10.98.3.0/24"));
    assert_eq!(gc(&["gc"]).await, ("Nothing is without an owner.\n".to_owned(), Some(0)));
    Row {
        tried: "`gc --delete` beside objects of others",
        test: "ownership::what_has_no_owner_is_listed_and_goes_only_at_a_second_look",
        numbers: vec![("orphans", 3), ("foreign objects", foreign.count())],
        lost: 0,
    }
    .write();
}
