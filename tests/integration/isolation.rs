//! One thing's trouble stays its own: a wrong annotation, or one cloud action that fails, stops nothing that does not need it.

use std::time::Duration;

use serde_json::json;
use sim::cloud::{Eip, Fault};
use sim::cluster::Version;
use sim::testbed::Testbed;

use crate::availability::Availability;
use crate::harness::{ALL, Ccm, EVERY, HASTE, World, address, is_ready};
use crate::in_process::{Product, UNCHECKED, on_a_clock_of_its_own};
use crate::kinds::{Kind, annotate, point_at};
use crate::nlb_lifecycle::QUIET;

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";

/// Two nodes, and Services of which only nodes with endpoints are backends.
async fn world_with(services: &[(&str, &[(&str, &str)])]) -> World {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.join(2);
    for (name, annotations) in services {
        let whole: Vec<(String, &str)> =
            annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
        let whole: Vec<(&str, &str)> = whole.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        world.testbed.expose(name, &[80], &["node-1"], &whole);
        let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
        world.testbed.cluster.patch("Service", "default", name, &local).unwrap();
    }
    world
}

async fn until_served(world: &World, service: &str) {
    let what = format!("Service {service} has an address");
    world.until(&what, |_| address(&world.service(service)).is_some() && is_ready(&world.node("node-2"))).await;
}

/// Two nodes, and a Service on the first with a load balancer of this kind; the drift check is off.
async fn served(kind: Kind) -> (World, Ccm) {
    let world =
        World::new(EVERY, &format!("{HASTE}[nlb]\ndrift_check = \"0s\"\n[service]\ndrift_check = \"0s\"\n")).await;
    world.testbed.join(1);
    world.testbed.join(2);
    kind.expose(&world.testbed, "web", &[80], &[1]);
    let ccm = world.start();
    world
        .until("it is served", |_| kind.published(&world.service("web")).is_some() && is_ready(&world.node("node-2")))
        .await;
    world.until_quiet(QUIET).await;
    (world, ccm)
}

async fn backends_follow(world: &World, kind: Kind) {
    point_at(&world.testbed, "web", &[2]);
    world.until("the backends have followed", |testbed| kind.all_lead_to(testbed, &[2])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_the_endpoints_while_an_annotation_is_wrong() {
    let of = async |kind: Kind| {
        let (world, ccm) = served(kind).await;
        annotate(&world.testbed, "web", "scheduler", "nonsense");
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(told.contains("scheduler") && told.contains("nonsense"), "{told}");
        backends_follow(&world, kind).await;
        assert!(ccm.stop().await.success());
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb), of(Kind::Nlb));
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_on_the_load_balancer_that_serves_while_the_service_names_another_one() {
    let of = async |kind: Kind, users: &str, missing: &str| {
        let (world, ccm) = served(kind).await;
        kind.of_user(&world.testbed, users);
        let published = kind.published(&world.service("web")).map(str::to_owned);
        let label = &world.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"];
        let own = label.as_str().unwrap();
        for (id, nodes) in [(users, [2]), (missing, [1]), (own, [2])] {
            annotate(&world.testbed, "web", "id", id);
            let refused = || {
                let told = world.events("Service", "web");
                told.iter().any(|(_, reason, text)| reason == "SyncLoadBalancerFailed" && text.contains(id))
            };
            world.until("it is refused", |_| refused()).await;
            point_at(&world.testbed, "web", &nodes);
            world.until("the backends have followed", |testbed| kind.all_lead_to(testbed, &nodes)).await;
        }
        assert_eq!((kind.count(&world.testbed), kind.listeners(&world.testbed)), (2, vec![80]));
        assert_eq!(kind.published(&world.service("web")).map(str::to_owned), published);
        assert!(ccm.stop().await.success());
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb, "lb-users", "lb-missing"), of(Kind::Nlb, "nlb-users", "nlb-missing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_does_not_exist_hides_no_other_problem_of_a_service() {
    let of = async |kind: Kind, missing: &str| {
        let world = World::new(EVERY, HASTE).await;
        world.testbed.join(1);
        kind.expose(&world.testbed, "web", &[80], &[1]);
        annotate(&world.testbed, "web", "id", missing);
        annotate(&world.testbed, "web", "force-override-listeners", "true");
        annotate(&world.testbed, "web", "scheduler", "nonsense");
        let ccm = world.start();
        let names_all = |text: &str| text.contains(missing) && text.contains("exists") && text.contains("nonsense");
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(names_all(&told), "{told}");
        assert!(ccm.stop().await.success());
        let planned = String::from_utf8(world.run(&["plan"]).await.stdout).unwrap();
        assert!(names_all(&planned) && !planned.contains("publish"), "{planned}");
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb, "lb-missing"), of(Kind::Nlb, "nlb-missing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_on_a_users_load_balancer_that_the_service_no_longer_names() {
    let of = async |kind: Kind, users: &str| {
        let world = World::new(EVERY, HASTE).await;
        (1..=2).for_each(|number| drop(world.testbed.join(number)));
        kind.of_user(&world.testbed, users);
        kind.expose(&world.testbed, "web", &[80], &[1]);
        annotate(&world.testbed, "web", "id", users);
        annotate(&world.testbed, "web", "force-override-listeners", "true");
        let ccm = world.start();
        let is_served = || kind.published(&world.service("web")).is_some() && is_ready(&world.node("node-2"));
        world.until("it is served", |_| is_served()).await;
        annotate(&world.testbed, "web", "id", "");
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(told.contains(users) && told.contains("put the annotation"), "{told}");
        backends_follow(&world, kind).await;
        // Another client empties the status, and clients still know the address.
        world.testbed.cluster.patch_status("Service", "default", "web", &json!({"loadBalancer": null})).unwrap();
        point_at(&world.testbed, "web", &[1]);
        world.until("the backends have followed again", |testbed| kind.all_lead_to(testbed, &[1])).await;
        assert_eq!((kind.count(&world.testbed), kind.listeners(&world.testbed)), (1, vec![80]), "{kind:?}");
        assert!(ccm.stop().await.success());
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb, "lb-users"), of(Kind::Nlb, "nlb-users"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ours_on_the_users_load_balancer_that_serves_goes_with_a_service_that_names_another_one() {
    let of = async |kind: Kind, users: [&str; 2]| {
        let world = World::new(EVERY, HASTE).await;
        world.testbed.join(1);
        users.into_iter().for_each(|id| kind.of_user(&world.testbed, id));
        world.testbed.cloud.edit(|account| {
            // Two load balancers have two addresses.
            account.load_balancers.get_mut("lb-two").into_iter().for_each(|it| it.address = "47.98.9.10".into());
        });
        kind.expose(&world.testbed, "web", &[80, 443], &[1]);
        annotate(&world.testbed, "web", "id", users[0]);
        annotate(&world.testbed, "web", "force-override-listeners", "true");
        let ccm = world.start();
        world.until("it is served", |_| kind.published(&world.service("web")).is_some()).await;
        assert_eq!((kind.listeners(&world.testbed), kind.groups(&world.testbed).len()), (vec![80, 443], 2));
        annotate(&world.testbed, "web", "id", users[1]);
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(told.contains("delete it and make it again"), "{told}");
        world.testbed.cluster.delete("Service", "default", "web").unwrap();
        world.until("it is gone", |_| world.service("web").is_null()).await;
        assert_eq!((kind.listeners(&world.testbed), kind.groups(&world.testbed).len()), (vec![], 0));
        assert_eq!(kind.count(&world.testbed), 2, "both are the user's");
        assert!(ccm.stop().await.success());
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb, ["lb-one", "lb-two"]), of(Kind::Nlb, ["nlb-one", "nlb-two"]));
}

/// Two of ten Services, one of each kind of load balancer, have a wrong annotation, each another one with every move.
#[test]
fn no_ready_endpoint_is_missing_while_a_fifth_of_the_services_is_wrong_and_endpoints_move() {
    const WRONG: [(&str, &str); 4] =
        [("scheduler", "nonsense"), ("health-check-interval", "a minute"), ("name", ""), ("idle-timeout", "soon")];
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        (1..=3).for_each(|number| drop(testbed.join(number)));
        let names: Vec<String> = (0..10).map(|number| format!("web-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            Kind::BOTH[number % 2].expose(&testbed, name, &[80], &[1]);
        }
        testbed.cloud.dials(|dials| {
            dials.latency = Duration::from_millis(5);
            dials.nlb_job_time = Duration::from_millis(700);
        });
        let _product = Product::start(&testbed, EVERY, &format!("{HASTE}{UNCHECKED}"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let availability = Availability::watch(&testbed);
        for (number, (key, value)) in (1_u8..).zip(WRONG.iter().cycle().take(12)) {
            names[..2].iter().for_each(|name| annotate(&testbed, name, key, value));
            names.iter().for_each(|name| point_at(&testbed, name, &[1 + number % 3]));
            tokio::time::sleep(Duration::from_secs(7)).await;
            assert!(Kind::BOTH.iter().all(|kind| kind.all_lead_to(&testbed, &[1 + number % 3])), "move {number}");
        }
        let (gap, which) = availability.worst();
        assert!(gap > Duration::ZERO && gap < Duration::from_secs(5), "{gap:?}: {which}");
        for name in &names {
            let warned =
                testbed.cluster.list("Event").into_iter().any(|event| {
                    event["involvedObject"]["name"] == **name && event["reason"] == "SyncLoadBalancerFailed"
                });
            assert_eq!(warned, names[..2].contains(name), "{name}");
        }
    });
}

/// What stands in the way of Service `web` on the load balancer of a user, until it is taken away in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    ListenerOfAnotherService,
    NoSuchGroup,
    NoSuchLoadBalancer,
    LoadBalancerOfAnotherCluster,
}

impl Obstacle {
    const ALL: [Self; 4] = [
        Self::ListenerOfAnotherService,
        Self::NoSuchGroup,
        Self::NoSuchLoadBalancer,
        Self::LoadBalancerOfAnotherCluster,
    ];

    fn put(self, testbed: &Testbed, kind: Kind) {
        match self {
            Self::ListenerOfAnotherService => expose_at_users(testbed, kind, "before"),
            Self::NoSuchGroup => {}
            Self::NoSuchLoadBalancer => kind.delete(testbed, of_user(kind)),
            Self::LoadBalancerOfAnotherCluster => kind.tag(testbed, of_user(kind), &[("ack.aliyun.com", "another")]),
        }
    }

    fn remove(self, testbed: &Testbed, kind: Kind) {
        match self {
            Self::ListenerOfAnotherService => testbed.cluster.delete("Service", "default", "before").unwrap(),
            Self::NoSuchGroup => kind.add_group(testbed, of_user(kind), "group-of-user"),
            Self::NoSuchLoadBalancer => kind.of_user(testbed, of_user(kind)),
            Self::LoadBalancerOfAnotherCluster => kind.tag(testbed, of_user(kind), &[]),
        }
    }
}

/// The id of the load balancer of a user: its start tells the kind.
fn of_user(kind: Kind) -> &'static str {
    if kind == Kind::Nlb { "nlb-of-user" } else { "lb-of-user" }
}

fn expose_at_users(testbed: &Testbed, kind: Kind, name: &str) {
    kind.expose(testbed, name, &[80], &[1]);
    annotate(testbed, name, "id", of_user(kind));
    annotate(testbed, name, "force-override-listeners", "true");
}

#[test]
fn a_service_is_served_soon_after_what_was_in_its_way_is_taken_away_in_the_cloud() {
    let published = async |kind: Kind, obstacle: Obstacle| {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        kind.of_user(&testbed, of_user(kind));
        obstacle.put(&testbed, kind);
        let _product = Product::start(&testbed, &["node", "service", "nlb"], &format!("{HASTE}{UNCHECKED}"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        expose_at_users(&testbed, kind, "web");
        if obstacle == Obstacle::NoSuchGroup {
            annotate(&testbed, "web", "vgroup-port", "group-of-user:80");
        }
        let published = || {
            let service = testbed.cluster.get("Service", "default", "web").unwrap();
            kind.published(&service).map(str::to_owned)
        };
        tokio::time::sleep(Duration::from_secs(20)).await;
        let before = published();
        obstacle.remove(&testbed, kind);
        tokio::time::sleep(Duration::from_secs(60)).await;
        (before, published() == kind.publishes(&testbed, of_user(kind)))
    };
    for kind in Kind::BOTH {
        for obstacle in Obstacle::ALL {
            let (outcome, log) = on_a_clock_of_its_own(0, published(kind, obstacle));
            assert_eq!(outcome, (None, true), "{kind:?}, {obstacle:?}:\n{log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_access_control_lists_services_follow_their_endpoints_and_can_be_deleted() {
    let world = world_with(&[("web", &[]), ("gone", &[])]).await;
    world.testbed.cloud.faults().always("DescribeAccessControlLists", Fault::Unavailable);
    let ccm = world.start();
    until_served(&world, "web").await;
    until_served(&world, "gone").await;
    world.testbed.cluster.delete("Service", "default", "gone").unwrap();
    world.until("the other Service is gone", |_| world.service("gone").is_null()).await;
    backends_follow(&world, Kind::Clb).await;
    assert_eq!(world.testbed.cloud.look(|account| account.load_balancers.len()), 1);
    assert!(ccm.stop().await.success());
}

#[test]
fn a_slow_list_of_access_control_lists_delays_only_the_service_that_needs_its_own() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        let names = ["a", "b", "guarded"];
        names.iter().for_each(|name| Kind::Clb.expose(&testbed, name, &[80], &[1]));
        let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
        testbed.cluster.patch("Service", "default", "guarded", &ranges).unwrap();
        testbed.cloud.faults().always("DescribeAccessControlLists", Fault::Slow(Duration::from_secs(9)));
        let product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        let served = || {
            let is_served = |name: &&&str| address(&testbed.cluster.get("Service", "default", name).unwrap()).is_some();
            names.iter().filter(is_served).copied().collect::<Vec<_>>()
        };
        tokio::time::sleep(Duration::from_secs(8)).await;
        assert_eq!(served(), ["a", "b"]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(served(), names);
        drop(product);
        let removed = json!({"spec": {"type": "ClusterIP"}});
        testbed.cluster.patch("Service", "default", "a", &removed).unwrap();
        point_at(&testbed, "b", &[]);
        let _next = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(8)).await;
        let backends = Kind::Clb.groups(&testbed).iter().filter(|group| !group.is_empty()).count();
        assert_eq!((Kind::Clb.count(&testbed), backends), (2, 1), "what came before the next leader goes on as well");
    });
}

#[test]
fn an_account_that_is_slow_to_show_its_instances_delays_new_services_once_and_not_one_after_the_other() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        testbed.cloud.faults().always("DescribeInstances", Fault::HangBefore(Duration::from_secs(19)));
        let names: Vec<String> = (0..20).map(|number| format!("web-{number}")).collect();
        names.iter().for_each(|name| Kind::Clb.expose(&testbed, name, &[80], &[1]));
        let _product = Product::start(&testbed, &["service"], "[leader_election]\nenabled = false\n");
        tokio::time::sleep(Duration::from_secs(90)).await;
        let is_served = |name: &&String| address(&testbed.cluster.get("Service", "default", name).unwrap()).is_some();
        assert_eq!(names.iter().filter(is_served).count(), names.len());
    });
}

#[test]
fn a_vpc_that_is_slow_to_show_its_blocks_delays_services_with_pods_once_and_no_others() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        for number in 0..50 {
            let name = format!("pods-{number}");
            Kind::Clb.expose(&testbed, &name, &[80], &[1]);
            let annotations = json!({"service.beta.kubernetes.io/backend-type": "eni"});
            let metadata = json!({"metadata": {"annotations": annotations}});
            testbed.cluster.patch("Service", "default", &name, &metadata).unwrap();
        }
        testbed.cloud.faults().always("DescribeVpcAttribute", Fault::HangBefore(Duration::from_secs(19)));
        let _product = Product::start(&testbed, &["service"], "[leader_election]\nenabled = false\n");
        tokio::time::sleep(Duration::from_secs(5)).await;
        Kind::Clb.expose(&testbed, "web", &[80], &[1]);
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(address(&testbed.cluster.get("Service", "default", "web").unwrap()).is_some());
        assert!(testbed.cloud.count("DescribeVpcAttribute") > 1, "it is asked, and asked again");
    });
}

/// The official controller makes such a Service too; here the ranges are in force, since the other list is off.
#[tokio::test(flavor = "multi_thread")]
async fn source_ranges_beside_an_access_list_that_is_off_are_in_force_and_stop_nothing() {
    let world = world_with(&[("web", &[("acl-status", "off"), ("acl-id", "acl-others"), ("acl-type", "black")])]).await;
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges).unwrap();
    let ccm = world.start();
    until_served(&world, "web").await;
    let told = world.until_event("Service", "web", "LoadBalancerSettings").await;
    assert!(told.contains("acl-id") && told.contains("loadBalancerSourceRanges"), "{told}");
    world.testbed.cloud.look(|account| {
        let listener = account.load_balancers.values().flat_map(|lb| lb.listeners.values()).next().unwrap();
        assert_eq!((listener.acl_status.as_str(), listener.acl_type.as_str()), ("on", "white"));
    });
    backends_follow(&world, Kind::Clb).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_that_says_what_the_cloud_chose_is_right() {
    let world = world_with(&[("web", &[("address-type", "intranet")])]).await;
    let ccm = world.start();
    until_served(&world, "web").await;
    world.until_quiet(Duration::from_secs(2)).await;
    let (group, zone) = world.testbed.cloud.look(|account| {
        let lb = account.load_balancers.values().next().unwrap();
        (lb.resource_group.clone(), lb.master_zone.clone())
    });
    assert!(!group.is_empty() && !zone.is_empty(), "the cloud chose both");
    for (key, value) in [("resource-group-id", &group), ("master-zoneid", &zone)] {
        annotate(&world.testbed, "web", key, value);
        world.until_quiet(Duration::from_secs(2)).await;
    }
    let warned: Vec<_> = world.events("Service", "web").into_iter().filter(|(kind, ..)| kind == "Warning").collect();
    assert_eq!(warned, []);
    backends_follow(&world, Kind::Clb).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_address_that_cannot_be_looked_up_holds_up_neither_the_label_nor_the_backends() {
    let world = world_with(&[("web", &[("external-ip-type", "eip"), ("address-type", "intranet")])]).await;
    world.testbed.cloud.faults().always("DescribeEipAddresses", Fault::Unavailable);
    let ccm = world.start();
    let label = "service.k8s.alibaba/loadbalancer-id";
    world.until("the label is there", |_| world.service("web")["metadata"]["labels"][label].is_string()).await;
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("as soon as a retry finds it. The first retry is in 3 s"), "{told}");
    backends_follow(&world, Kind::Clb).await;
    world.testbed.cloud.faults().clear();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_address_that_another_client_overwrites_in_the_status_is_put_back() {
    let world = world_with(&[("web", &[("external-ip-type", "eip"), ("address-type", "intranet")])]).await;
    let ccm = world.start();
    until_served(&world, "web").await;
    let id = world.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].clone();
    world.testbed.cloud.edit(|account| {
        let instance = id.as_str().unwrap().to_owned();
        let bound = Eip { address: "47.1.1.1".to_owned(), instance_type: "SlbInstance".to_owned(), instance };
        account.eips.insert("eip-1".to_owned(), bound);
    });
    annotate(&world.testbed, "web", "health-check-timeout", "6");
    let publishes = |ip: &str| address(&world.service("web")) == Some(ip);
    world.until("the elastic address is published", |_| publishes("47.1.1.1")).await;
    let wrong = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}});
    world.testbed.cluster.patch_status("Service", "default", "web", &wrong).unwrap();
    world.until("it is put back", |_| publishes("47.1.1.1")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn any_edit_of_a_service_puts_right_what_was_changed_in_the_cloud() {
    let of = async |kind: Kind| {
        let (world, ccm) = served(kind).await;
        let serves = |testbed: &Testbed| (kind.listeners(testbed), kind.groups(testbed));
        let whole = serves(&world.testbed);
        for (number, annotation) in [(1, format!("{PREFIX}scheduler")), (2, "example.com/look-again".to_owned())] {
            kind.meddle(&world.testbed);
            let edit = json!({"metadata": {"annotations": {annotation: "wrr"}}});
            world.testbed.cluster.patch("Service", "default", "web", &edit).unwrap();
            world.until(&format!("edit {number} has put it right"), |testbed| serves(testbed) == whole).await;
            world.until_quiet(QUIET).await;
        }
        let answers = |text: &str| {
            ["weight 7 -> 1", "create listener 80/tcp"].iter().all(|step| text.to_lowercase().contains(step))
        };
        let told = || {
            world
                .events("Service", "web")
                .into_iter()
                .any(|(_, of, text)| of == "EnsuredLoadBalancer" && answers(&text))
        };
        world.until("the answer says what was put right", |_| told()).await;
        world.until_event("Service", "web", "RepairedDrift").await;
        assert!(ccm.stop().await.success());
    };
    tokio::join!(of(Kind::Clb), of(Kind::Nlb));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_while_the_cloud_still_carries_something_out_is_answered_by_a_look_at_everything() {
    let (world, ccm) = served(Kind::Nlb).await;
    world.testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_secs(3));
    let (listeners, _) = (Kind::Nlb.listeners(&world.testbed), world.take_calls());
    point_at(&world.testbed, "web", &[2]);
    world
        .until("backends are moved", |_| {
            world.testbed.cloud.calls().iter().any(|call| call.action == "AddServersToServerGroup")
        })
        .await;
    world.testbed.cloud.edit(|account| account.nlb.balancers.values_mut().for_each(|lb| lb.listeners.clear()));
    let edit = json!({"metadata": {"annotations": {"example.com/look-again": "yes"}}});
    world.testbed.cluster.patch("Service", "default", "web", &edit).unwrap();
    world.until("the listener is back", |testbed| Kind::Nlb.listeners(testbed) == listeners).await;
    world.until("the backends have followed", |testbed| Kind::Nlb.all_lead_to(testbed, &[2])).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_follow_the_endpoints_although_an_edit_cannot_be_compared_with_the_cloud() {
    let of = async |kind: Kind| {
        let (world, ccm) = served(kind).await;
        world.testbed.cloud.faults().always(kind.reads_listeners(), Fault::Unavailable);
        let edit = json!({"metadata": {"annotations": {"example.com/look-again": "yes"}}});
        world.testbed.cluster.patch("Service", "default", "web", &edit).unwrap();
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(told.contains(kind.reads_listeners()), "{told}");
        backends_follow(&world, kind).await;
        assert!(ccm.stop().await.success());
    };
    tokio::join!(of(Kind::Clb), of(Kind::Nlb));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_security_groups_backends_follow_and_no_second_group_is_made() {
    let (world, ccm) = served(Kind::Nlb).await;
    let ranges = |range: &str| json!({"spec": {"loadBalancerSourceRanges": [range]}});
    world.testbed.cluster.patch("Service", "default", "web", &ranges("10.0.0.0/8")).unwrap();
    let groups = |testbed: &Testbed| testbed.cloud.look(|account| account.security_groups.len());
    world.until("the ranges are in force", |testbed| groups(testbed) == 1).await;
    world.until_quiet(QUIET).await;
    world.testbed.cloud.faults().always("DescribeSecurityGroups", Fault::Unavailable);
    world.testbed.cluster.patch("Service", "default", "web", &ranges("172.16.0.0/12")).unwrap();
    let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(told.contains("DescribeSecurityGroups"), "{told}");
    backends_follow(&world, Kind::Nlb).await;
    assert_eq!(groups(&world.testbed), 1);
    world.testbed.cloud.faults().clear();
    let allowed = |testbed: &Testbed| testbed.cloud.snapshot()["security_groups"].to_string().contains("172.16.0.0/12");
    world.until("the new range is in force", allowed).await;
    assert_eq!(groups(&world.testbed), 1);
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_service_without_pods_on_a_quiet_cluster_is_warned_of_nothing() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    let spec = json!({
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
    });
    let metadata = json!({"name": "web", "namespace": "default"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    world.testbed.cluster.create(service).unwrap();
    let ccm = world.start();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    let told = world.until_event("Service", "web", "UnAvailableLoadBalancer").await;
    assert!(told.contains("80/tcp"), "{told}");
    world.until_quiet(Duration::from_secs(3)).await;
    let warnings: Vec<_> = world.events("Service", "web").into_iter().filter(|(kind, ..)| kind == "Warning").collect();
    assert_eq!(warnings, []);
    assert!(ccm.stop().await.success());
}

/// Services of both kinds, each with two ports, in a world of its own.
fn on_two_ports(annotations: [(&str, &str); 2], history: impl AsyncFnOnce(&Testbed)) {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        (1..=2).for_each(|number| drop(testbed.join(number)));
        for (kind, (key, value)) in Kind::BOTH.into_iter().zip(annotations) {
            kind.expose(&testbed, kind.controller(), &[80, 81], &[1]);
            annotate(&testbed, kind.controller(), key, value);
        }
        let _product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        history(&testbed).await;
        assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
    });
}

/// The errors of the ports that the status has; none without an address.
fn port_errors(testbed: &Testbed, kind: Kind) -> Vec<String> {
    let service = testbed.cluster.get("Service", "default", kind.controller()).unwrap();
    let ports = service["status"]["loadBalancer"]["ingress"][0]["ports"].as_array().cloned().unwrap_or_default();
    ports.iter().map(|port| port["error"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_port_that_cannot_be_served_keeps_no_other_port_from_its_address() {
    const MISSING: &str = "alibabacloud.com/ListenerMissing";
    let (https, name) = ([("protocol-port", "https:81"), ("protocol-port", "tcpssl:81")], [("lb-name", "web"); 2]);
    for (annotations, protocol) in [(https, "TCP"), (name, "SCTP")] {
        on_two_ports(annotations, async |testbed| {
            for kind in Kind::BOTH {
                let ports = json!([
                    {"name": "p80", "port": 80, "targetPort": 8000, "protocol": "TCP"},
                    {"name": "p81", "port": 81, "targetPort": 8000, "protocol": protocol},
                ]);
                let patch = json!({"spec": {"ports": ports}});
                testbed.cluster.patch("Service", "default", kind.controller(), &patch).unwrap();
            }
            tokio::time::sleep(Duration::from_secs(60)).await;
            for kind in Kind::BOTH {
                assert_eq!(port_errors(testbed, kind), ["", MISSING], "{kind:?} {protocol}");
                assert!(kind.listeners(testbed).contains(&80), "{kind:?} {protocol}");
            }
        });
    }
}

/// What keeps a Service out of sync besides a wrong annotation: its name, how a Service with this load balancer comes to that,
/// and what the event then says.
type Hindrance = (&'static str, fn(&Testbed, Kind, &str), &'static str);

const HINDRANCES: [Hindrance; 6] = [
    (
        "several load balancers carry its mark",
        |testbed, kind, id| {
            label(testbed, kind, None);
            twin(testbed, kind, id);
        },
        "several load balancers",
    ),
    (
        "another cluster owns its load balancer",
        |testbed, kind, id| tag(testbed, kind, id, "ack.aliyun.com", "cother"),
        "does not carry its mark",
    ),
    (
        "its load balancer cannot be found",
        |testbed, kind, id| {
            label(testbed, kind, None);
            kind.delete(testbed, id);
        },
        "no load balancer carries the mark",
    ),
    (
        "it names a user's load balancer no longer",
        |testbed, kind, id| {
            let users = if kind == Kind::Nlb { "nlb-users" } else { "lb-users" };
            kind.of_user(testbed, users);
            label(testbed, kind, Some(users));
            kind.delete(testbed, id);
        },
        "no annotation names it",
    ),
    (
        "a read is refused",
        |testbed, kind, _| testbed.cloud.faults().always(kind.reads_listeners(), Fault::code("Forbidden.RAM")),
        "Forbidden.RAM",
    ),
    (
        "a write is refused",
        |testbed, kind, _| {
            let (action, setting) = match kind {
                Kind::Clb => ("SetLoadBalancerTCPListenerAttribute", "established-timeout"),
                Kind::Nlb => ("UpdateListenerAttribute", "idle-timeout"),
            };
            testbed.cloud.faults().always(action, Fault::code("InvalidParameter"));
            annotate(testbed, kind.controller(), setting, "100");
        },
        "InvalidParameter",
    ),
];

fn label(testbed: &Testbed, kind: Kind, id: Option<&str>) {
    let patch = json!({"metadata": {"labels": {"service.k8s.alibaba/loadbalancer-id": id}}});
    testbed.cluster.patch("Service", "default", kind.controller(), &patch).unwrap();
}

fn tag(testbed: &Testbed, kind: Kind, id: &str, key: &str, value: &str) {
    testbed.cloud.edit(|account| {
        let tags = match kind {
            Kind::Clb => &mut account.load_balancers.get_mut(id).unwrap().tags,
            Kind::Nlb => &mut account.nlb.balancers.get_mut(id).unwrap().tags,
        };
        tags.insert(key.to_owned(), value.to_owned());
    });
}

fn twin(testbed: &Testbed, kind: Kind, id: &str) {
    let twin = format!("{id}-twin");
    testbed.cloud.edit(|account| match kind {
        Kind::Clb => {
            let copy = account.load_balancers[id].clone();
            account.load_balancers.insert(twin, copy);
        }
        Kind::Nlb => {
            let copy = account.nlb.balancers[id].clone();
            account.nlb.balancers.insert(twin, copy);
        }
    });
}

#[test]
fn nothing_that_keeps_a_service_out_of_sync_hides_its_wrong_annotations() {
    let mut hidden = Vec::new();
    for (what, hinder, says) in HINDRANCES {
        on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            Kind::BOTH.into_iter().for_each(|kind| kind.expose(&testbed, kind.controller(), &[80], &[1]));
            let more = format!("{HASTE}[leader_election]\nenabled = false\n");
            let before = Product::start(&testbed, EVERY, &more);
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(before);
            for kind in Kind::BOTH {
                let service = testbed.cluster.get("Service", "default", kind.controller()).unwrap();
                let id = service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap();
                annotate(&testbed, kind.controller(), "scheduler", "nonsense");
                hinder(&testbed, kind, id);
            }
            let _product = Product::start(&testbed, EVERY, &more);
            tokio::time::sleep(Duration::from_secs(90)).await;
            for kind in Kind::BOTH {
                let events = testbed.cluster.list("Event");
                let its = events.iter().filter(|it| it["involvedObject"]["name"] == kind.controller());
                let told: Vec<&str> = its.filter_map(|it| it["message"].as_str()).collect();
                if !told.iter().any(|text| text.contains(says) && text.contains("nonsense")) {
                    hidden.push(format!("{kind:?}, {what}: {told:#?}"));
                }
            }
        });
    }
    assert!(hidden.is_empty(), "{}", hidden.join("\n"));
}

#[test]
fn a_tag_that_the_cloud_refuses_costs_the_tag_and_not_the_load_balancer() {
    on_two_ports([("additional-resource-tags", "team=web"); 2], async |testbed| {
        for number in 1..=4 {
            let team = || [(format!("Tag.{number}.Key"), "team".to_owned())].into();
            for action in ["CreateLoadBalancer", "TagResources"] {
                testbed.cloud.faults().matching(action, team(), Fault::code("InvalidParameter.TagKey"), None);
            }
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        for kind in Kind::BOTH {
            assert_eq!((kind.count(testbed), port_errors(testbed, kind)), (1, vec![String::new(); 2]), "{kind:?}");
        }
    });
}

#[test]
fn traffic_follows_a_release_although_the_cloud_refuses_a_setting() {
    on_two_ports([("lb-name", "web"); 2], async |testbed| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let settings = [
            ("SetLoadBalancerTCPListenerAttribute", "EstablishedTimeout", "established-timeout"),
            ("UpdateListenerAttribute", "IdleTimeout", "idle-timeout"),
        ];
        for (kind, (action, parameter, annotation)) in Kind::BOTH.into_iter().zip(settings) {
            let with = [(parameter.to_owned(), "100".to_owned())].into();
            testbed.cloud.faults().matching(action, with, Fault::code("InvalidParameter"), None);
            annotate(testbed, kind.controller(), annotation, "100");
            let node_port = 30990 + i32::from(kind == Kind::Nlb);
            let patch = json!({"spec": {"ports": [
                {"name": "p80", "port": 80, "targetPort": 8000, "protocol": "TCP", "nodePort": node_port},
            ]}});
            testbed.cluster.patch("Service", "default", kind.controller(), &patch).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
        let used = testbed.cloud.look(|account| {
            let classic = account.load_balancers.values().flat_map(|lb| lb.groups.values());
            let classic: Vec<u16> = classic.flat_map(|it| &it.backends).map(|it| it.port).collect();
            let network = account.nlb.groups.values().flat_map(|it| &it.servers).map(|it| it.port).collect::<Vec<_>>();
            (classic, network)
        });
        assert_eq!(used, (vec![30990], vec![30991]));
    });
}

/// A listener of another protocol keeps the port.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_gone_leave_a_listener_whose_protocol_cannot_change_while_a_setting_is_wrong() {
    let of = async |kind: Kind, wrong: &str| {
        let (world, ccm) = served(kind).await;
        annotate(&world.testbed, "web", wrong, "nonsense");
        let told = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
        assert!(told.contains(wrong), "{told}");
        let ports = json!({"spec": {"ports": [{"name": "p80", "port": 80, "targetPort": 8000, "protocol": "UDP"}]}});
        world.testbed.cluster.patch("Service", "default", "web", &ports).unwrap();
        world.until_quiet(QUIET).await;
        backends_follow(&world, kind).await;
        assert!(ccm.stop().await.success());
        assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
    };
    tokio::join!(of(Kind::Clb, "acl-type"), of(Kind::Nlb, "unhealthy-threshold"));
}

#[test]
fn traffic_moves_to_a_new_node_port_at_once_although_the_cloud_refuses_another_setting() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        Kind::Nlb.expose(&testbed, "web", &[80], &[1]);
        testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_millis(700));
        let _product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        annotate(&testbed, "web", "bandwidth-package-id", "cbwp-none");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let port = json!({"name": "p80", "port": 80, "nodePort": 31_999, "targetPort": 8000, "protocol": "TCP"});
        testbed.cluster.patch("Service", "default", "web", &json!({"spec": {"ports": [port]}})).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let leads = testbed.cloud.look(|account| {
            let listener = account.nlb.balancers.values().flat_map(|lb| lb.listeners.values()).next().unwrap();
            account.nlb.groups[&listener.group].servers.iter().map(|it| it.port).collect::<Vec<_>>()
        });
        assert_eq!(leads, [31_999]);
    });
}

/// A setting that the cloud refuses, and another one that it takes.
struct RefusedSetting {
    kind: Kind,
    /// Actions that are refused.
    actions: &'static [&'static str],
    /// If they carry this parameter.
    parameter: &'static str,
    refused: (&'static str, &'static str),
    taken: (&'static str, &'static str),
    /// What the cloud shows of the other setting.
    shown: &'static str,
}

const CLB: (Kind, &[&str]) = (Kind::Clb, &["SetLoadBalancerTCPListenerAttribute"]);
const NLB_LISTENER: (Kind, &[&str]) = (Kind::Nlb, &["UpdateListenerAttribute"]);
const NLB_GROUP: (Kind, &[&str]) = (Kind::Nlb, &["CreateServerGroup", "UpdateServerGroupAttribute"]);

const fn refused(
    (kind, actions): (Kind, &'static [&'static str]),
    parameter: &'static str,
    refused: (&'static str, &'static str),
    taken: (&'static str, &'static str),
    shown: &'static str,
) -> RefusedSetting {
    RefusedSetting { kind, actions, parameter, refused, taken, shown }
}

const REFUSED: &[RefusedSetting] = &[
    refused(CLB, "EstablishedTimeout", ("established-timeout", "100"), ("scheduler", "wlc"), "\"scheduler\":\"wlc\""),
    refused(CLB, "Scheduler", ("scheduler", "wlc"), ("persistence-timeout", "60"), "\"PersistenceTimeout\":60"),
    refused(
        CLB,
        "HealthCheckInterval",
        ("health-check-interval", "7"),
        ("established-timeout", "100"),
        "\"EstablishedTimeout\":100",
    ),
    refused(NLB_LISTENER, "IdleTimeout", ("idle-timeout", "100"), ("cps", "50"), "\"cps\":50"),
    refused(NLB_LISTENER, "Cps", ("cps", "50"), ("idle-timeout", "100"), "\"idle_timeout\":100"),
    refused(NLB_GROUP, "Scheduler", ("scheduler", "rr"), ("health-check-interval", "7"), "\"interval\":7"),
    refused(
        NLB_GROUP,
        "HealthCheckConfig.HealthCheckInterval",
        ("health-check-interval", "7"),
        ("scheduler", "rr"),
        "\"scheduler\":\"rr\"",
    ),
];

#[test]
fn a_setting_that_the_cloud_refuses_keeps_neither_another_setting_nor_a_release_from_being_applied() {
    for RefusedSetting { kind, actions, parameter, refused, taken, shown } in REFUSED {
        on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            kind.expose(&testbed, "web", &[80], &[1]);
            if *kind == Kind::Nlb {
                annotate(&testbed, "web", "health-check-flag", "on");
            }
            let _product = Product::start(&testbed, EVERY, &format!("{HASTE}[leader_election]\nenabled = false\n"));
            tokio::time::sleep(Duration::from_secs(60)).await;
            let state = || crate::end_state::state(&testbed)["cloud"].to_string();
            assert!(!state().contains(shown), "{parameter}");
            for action in *actions {
                let with = [((*parameter).to_owned(), refused.1.to_owned())].into();
                testbed.cloud.faults().matching(action, with, Fault::code("InvalidParameter"), None);
            }
            [refused, taken].into_iter().for_each(|(key, value)| annotate(&testbed, "web", key, value));
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(state().contains(shown), "{kind:?} {parameter}: {}", state());
            let told = |text: &str| {
                testbed.cluster.list("Event").iter().any(|event| {
                    event["reason"] == "SyncLoadBalancerFailed"
                        && event["message"].as_str().is_some_and(|it| it.contains(text))
                })
            };
            assert!(
                told("InvalidParameter") && told(refused.1),
                "{kind:?} {parameter}: {:?}",
                testbed.cluster.list("Event")
            );
            let port = json!({"name": "p80", "port": 80, "nodePort": 31_999, "targetPort": 8000, "protocol": "TCP"});
            testbed.cluster.patch("Service", "default", "web", &json!({"spec": {"ports": [port]}})).unwrap();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let groups = kind.groups(&testbed);
            assert_eq!(groups.len(), 1, "{kind:?} {parameter}: {groups:?}");
            assert!(state().contains(shown) && state().contains("\"port\":31999"), "{kind:?} {parameter}: {}", state());
            assert_eq!(testbed.cloud.complaints(), Vec::<String>::new());
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_says_what_goes_before_a_service_that_was_never_served_moves_to_another_load_balancer() {
    for kind in Kind::BOTH {
        let [wrong, right] = if kind == Kind::Nlb { ["nlb-wrong", "nlb-right"] } else { ["lb-wrong", "lb-right"] };
        for first in ["", wrong] {
            let world = World::new(EVERY, HASTE).await;
            world.testbed.join(1);
            [wrong, right].iter().for_each(|id| kind.of_user(&world.testbed, id));
            kind.expose(&world.testbed, "web", &[80], &[1]);
            annotate(&world.testbed, "web", "force-override-listeners", "true");
            annotate(&world.testbed, "web", "id", first);
            world.testbed.cloud.faults().always(kind.creates_listener(), Fault::code("OperationDenied"));
            let ccm = world.start();
            world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
            assert!(ccm.stop().await.success());
            world.testbed.cloud.faults().clear();
            annotate(&world.testbed, "web", "id", right);
            let (plan, _) = world.plan().await;
            let goes = match (first, kind) {
                ("", Kind::Clb) => "delete load balancer",
                ("", Kind::Nlb) => "delete network load balancer",
                _ => "delete group",
            };
            for line in [goes, "remove finalizer", "then the Service begins again"] {
                assert!(plan.contains(line), "{kind:?}, {first:?}: {line:?} is missing:\n{plan}");
            }
            let ccm = world.start();
            let serves =
                |testbed: &Testbed| kind.published(&world.service("web")) == kind.publishes(testbed, right).as_deref();
            world.until("the other one serves", serves).await;
            assert_eq!((kind.count(&world.testbed), kind.groups(&world.testbed).len()), (2, 1), "{kind:?}, {first:?}");
            world.until_in_sync().await;
            assert!(ccm.stop().await.success());
        }
    }
}
