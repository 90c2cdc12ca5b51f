//! Two clusters with the same `cloud.cluster_id` in one account: neither takes what is the other's for its own.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{RouteEntry, Shared};
use sim::cluster::{Effect, Match, NodeSpec, Version};
use sim::testbed::{REGION, ROUTE_TABLE, Testbed, VPC};

use crate::harness::{HASTE, WITHOUT_NAMES, World, is_ready};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::Kind;

const ALONE: &str = "[leader_election]\nenabled = false\n";
const MARK: &str = "kubernetes.do.not.delete";
const UID: &str = "alicloud-ccm.cluster-uid";
const LABEL: &str = "service.k8s.alibaba/loadbalancer-id";
const ADDRESS_TYPE: (&str, &str) = ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type", "intranet");
/// Of the second cluster, where it has one of its own.
const OTHER_VPC: (&str, &str) = ("vpc-other", "vsw-other");

async fn first_cluster() -> World {
    World::of(Testbed::open(Version::NEWEST).await.unwrap(), WITHOUT_NAMES, &format!("{HASTE}{ALONE}"))
}

/// Another cluster with the same id in the same account and VPC.
async fn second_cluster(first: &World) -> World {
    World::of(first.testbed.beside().await.unwrap(), WITHOUT_NAMES, &format!("{HASTE}{ALONE}"))
}

/// The same in a VPC of its own.
async fn second_cluster_elsewhere(first: &World) -> World {
    let (vpc, vswitch) = OTHER_VPC;
    first.testbed.cloud.edit(|cloud| {
        let account = cloud.clone().with_vpc(vpc, "172.16.0.0/16");
        *cloud = account.with_vswitch(vswitch, vpc, "cn-hangzhou-i", "172.16.0.0/20");
    });
    let second = second_cluster(first).await;
    second.rewrite(|text| {
        let text = text.replace(&format!("vpc_id = \"{VPC}\""), &format!("vpc_id = \"{vpc}\""));
        text.replace("vswitches = [", &format!("vswitches = [\"cn-hangzhou-i:{vswitch}\"] # "))
    });
    second
}

fn uid(world: &World) -> String {
    world.testbed.cluster.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A node of a cluster in [`OTHER_VPC`].
fn join_elsewhere(world: &World, number: u8) {
    let (instance, name) = (format!("i-other-{number}"), format!("node-{number}"));
    world.testbed.cloud.add_instance(&instance, &name, OTHER_VPC.1, &format!("172.16.0.{number}"));
    let spec = NodeSpec::new(&name).provider_id(&format!("{REGION}.{instance}"));
    world.testbed.cluster.join_node(&spec.pod_cidr(&format!("10.98.{number}.0/24"))).unwrap();
}

async fn settled(world: &World, nodes: &[&str], services: &[&str]) {
    world
        .until("everything is there", |_| {
            nodes.iter().all(|name| is_ready(&world.node(name)))
                && services.iter().all(|name| is_published(world, name))
        })
        .await;
    world.until_still(Duration::from_secs(1)).await;
}

fn is_published(world: &World, service: &str) -> bool {
    Kind::BOTH.iter().any(|kind| kind.published(&world.service(service)).is_some())
}

/// The id of the load balancer of a Service.
fn load_balancer(world: &World, service: &str) -> String {
    let published = world.service(service);
    published["metadata"]["labels"][LABEL].as_str().unwrap().to_owned()
}

/// Output and exit code of `gc`.
async fn gc(world: &World, arguments: &[&str]) -> (String, Option<i32>) {
    let output = world.run(&[&["gc"], arguments].concat()).await;
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code())
}

/// How many things `gc` deleted.
fn deleted(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("deleted: ")).count()
}

const DELETE: [&str; 3] = ["--delete", "--after", "1"];

/// What both controllers tell of the other cluster, on the page of readiness and by events, without advice to delete.
async fn told(world: &World, controllers: &[&str], evidence: &str) {
    let ccm = world.start_serving();
    let page = ccm
        .until_page("/readyz?verbose", |_, text| {
            let line = |controller: &&str| {
                let alarm =
                    |line: &str| line.starts_with(&format!("[!]{controller} ")) && line.contains("ClusterIdShared");
                text.lines().any(|line| alarm(line) && line.contains(evidence))
            };
            controllers.iter().all(line)
        })
        .await;
    assert!(!page.contains("--delete") && !page.contains("OwnerMissing"), "{page}");
    let told = |event: &Value| event["reason"] == "ClusterIdShared";
    world.until("an event tells it", |testbed| testbed.cluster.list("Event").iter().any(told)).await;
    assert!(ccm.stop().await.success());
}

/// Somebody forces a Service out, so that nothing asks for its load balancer to be deleted.
fn force_out(world: &World, service: &str) {
    world.testbed.cluster.patch("Service", "default", service, &json!({"metadata": {"finalizers": null}})).unwrap();
    world.testbed.cluster.delete("Service", "default", service).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_with_one_id_in_one_vpc_keep_what_is_theirs_and_say_so() {
    let first = first_cluster().await;
    let second = second_cluster(&first).await;
    for (world, numbers) in [(&first, [1, 2]), (&second, [11, 12])] {
        numbers.iter().for_each(|number| drop(world.testbed.join(*number)));
        world.testbed.expose("web", &[80], &[&format!("node-{}", numbers[0])], &[]);
        // The same names in both clusters, and a security group of each.
        Kind::Nlb.expose(&world.testbed, "net", &[80], &[numbers[0]]);
        let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
        world.testbed.cluster.patch("Service", "default", "net", &ranges).unwrap();
    }
    let ccms = [first.start(), second.start()];
    settled(&first, &["node-1", "node-2"], &["web", "net"]).await;
    settled(&second, &["node-11", "node-12"], &["web", "net"]).await;
    for ccm in ccms {
        assert!(ccm.stop().await.success());
    }
    let before = first.testbed.cloud.snapshot();
    let routes = before["routes"].to_string();
    assert!(["10.98.1.0/24", "10.98.12.0/24"].iter().all(|cidr| routes.contains(cidr)), "{routes}");

    for (world, other) in [(&first, &second), (&second, &first)] {
        told(world, &["route", "service", "nlb"], &uid(other)).await;
        let theirs = load_balancer(other, "web");
        let network = load_balancer(other, "net");
        let (text, code) = gc(world, &[]).await;
        assert_eq!(code, Some(0), "{text}");
        let evidence = |id: &str| format!("another cluster's: load balancer {id}");
        assert!(text.contains(&evidence(&theirs)) && text.contains("another cluster's: route 10.98.1"), "{text}");
        assert!(text.contains(&evidence(&network)), "{text}");
        assert!(text.contains(&uid(other)) && text.contains(&uid(world)), "the evidence: {text}");
        let (text, code) = gc(world, &DELETE).await;
        assert_eq!((deleted(&text), code), (0, Some(0)), "{text}");
        let (text, code) = gc(world, &[&DELETE[..], &[&theirs, &network, "rte-nobody"]].concat()).await;
        assert_eq!(code, Some(1), "{text}");
        for id in [&theirs, &network] {
            let refused =
                format!("problem: {id} is another cluster's and is not deleted: it carries the uid {}", uid(other));
            assert!(text.contains(&refused) && text.contains("problem: rte-nobody is not among"), "{text}");
        }
    }
    assert_eq!(first.testbed.cloud.snapshot(), before);

    // What is proven to be this cluster's is still found and deleted.
    let own = ["web", "net"].map(|service| load_balancer(&second, service));
    ["web", "net"].iter().for_each(|service| force_out(&second, service));
    let (text, code) = gc(&second, &DELETE).await;
    for id in &own {
        assert!(text.contains(&format!("deleted: load balancer {id}")) && deleted(&text) == 2, "{text}");
    }
    assert_eq!(code, Some(0), "{text}");
    first.testbed.cloud.look(|cloud| {
        let left = (cloud.nlb.balancers.len(), cloud.nlb.groups.len(), cloud.security_groups.len());
        assert_eq!(left, (1, 1, 1), "what belongs to the other cluster's Service of the same name stays");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_cluster_in_another_vpc_made_is_not_offered_even_without_a_uid() {
    let first = first_cluster().await;
    let second = second_cluster_elsewhere(&first).await;
    first.testbed.join(1);
    first.testbed.expose("public", &[80], &["node-1"], &[]);
    first.testbed.expose("private", &[80], &["node-1"], &[ADDRESS_TYPE]);
    Kind::Nlb.expose(&first.testbed, "net", &[80], &[1]);
    let ccm = first.start();
    settled(&first, &["node-1"], &["public", "private", "net"]).await;
    assert!(ccm.stop().await.success());
    // As the official controller made them.
    first.testbed.cloud.edit(|cloud| {
        cloud.load_balancers.values_mut().for_each(|lb| drop(lb.tags.remove(UID)));
        cloud.nlb.balancers.values_mut().for_each(|lb| drop(lb.tags.remove(UID)));
        cloud.nlb.groups.values_mut().for_each(|group| drop(group.tags.remove(UID)));
    });
    let network = load_balancer(&first, "net");
    let (public, private) = (load_balancer(&first, "public"), load_balancer(&first, "private"));
    join_elsewhere(&second, 21);
    second.testbed.expose("web", &[80], &["node-21"], &[ADDRESS_TYPE]);
    let ccm = second.start_serving();
    settled(&second, &["node-21"], &["web"]).await;
    // The VPC tells the private one; nothing tells whose the public one is.
    let page = ccm
        .until_page("/readyz?verbose", |_, text| {
            let line = |reason: &str, id: &str| text.lines().any(|line| line.contains(reason) && line.contains(id));
            line("ClusterIdShared", &private) && line("LoadBalancerOwnerMissing", &public)
        })
        .await;
    assert!(
        page.contains("may belong to another") && page.contains(OTHER_VPC.0) && !page.contains("--delete"),
        "{page}"
    );
    assert!(ccm.stop().await.success());

    let before = first.testbed.cloud.snapshot();
    let (text, code) = gc(&second, &[]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains(&format!("may be another cluster's: load balancer {public}")), "{text}");
    // The VPC tells a network load balancer, public or not.
    for id in [&private, &network] {
        assert!(text.contains(&format!("another cluster's: load balancer {id}")), "{text}");
    }
    assert!(!text.contains("without owner"), "{text}");
    let (text, code) = gc(&second, &DELETE).await;
    assert_eq!((deleted(&text), code), (0, Some(2)), "{text}");
    let (text, code) = gc(&second, &[&DELETE[..], &[&private]].concat()).await;
    assert_eq!((deleted(&text), code), (0, Some(1)), "{text}");
    assert_eq!(first.testbed.cloud.snapshot(), before);
    // Their own cluster claims them, by their marks.
    assert_eq!(gc(&first, &[]).await.1, Some(0));

    // Somebody who knows better names it.
    let (text, code) = gc(&second, &[&DELETE[..], &[&public]].concat()).await;
    assert!(text.contains(&format!("deleted: load balancer {public}")) && code == Some(0), "{text}");
    assert!(first.testbed.cloud.look(|cloud| cloud.load_balancers.contains_key(&private)));
    assert!(first.testbed.cloud.look(|cloud| cloud.nlb.balancers.contains_key(&network)));
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_of_an_earlier_version_stay_claims_and_are_not_offered() {
    let world = first_cluster().await;
    world.testbed.join(1);
    let entry = |id: &str, instance: &str, node: &str| {
        let mut entry = RouteEntry::to_instance(id, instance);
        entry.description = format!("alicloud-ccm cluster=playground node={node}");
        entry
    };
    world.testbed.rent(2);
    world.testbed.rent(9);
    world.testbed.cloud.edit(|cloud| {
        let entries = &mut cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries;
        entries.insert("10.98.1.0/24".to_owned(), entry("rte-1", "i-play-1", "node-1"));
        entries.insert("10.98.2.0/24".to_owned(), entry("rte-2", "i-play-9", "node-2"));
        entries.insert("10.98.9.0/24".to_owned(), entry("rte-9", "i-play-9", "node-9"));
    });
    let before = world.testbed.cloud.snapshot()["routes"].clone();
    // Its pod CIDR has a route to an instance that exists and may be a node of another cluster.
    let spec = NodeSpec::new("node-2").provider_id(&format!("{REGION}.i-play-2")).pod_cidr("10.98.2.0/24");
    world.testbed.cluster.join_node(&spec).unwrap();
    let ccm = world.start_serving();
    world.until("the first node has its route", |_| is_ready(&world.node("node-1"))).await;
    let why = world.until_event("Node", "node-2", "CreateRouteFailed").await;
    assert!(why.contains("not known to be this cluster's"), "{why}");
    let withheld = |line: &str| line.contains("RouteOwnerMissing") && line.contains("may belong to another");
    let page = ccm.until_page("/readyz?verbose", |_, text| text.lines().any(withheld)).await;
    assert!(!page.contains("--delete"), "{page}");
    assert!(ccm.stop().await.success());
    let (text, code) = gc(&world, &[]).await;
    assert!(text.contains("may be another cluster's: route 10.98.9.0/24") && code == Some(2), "{text}");
    assert_eq!(world.testbed.cloud.snapshot()["routes"], before);
    let (text, _) = gc(&world, &[&DELETE[..], &["rte-9"]].concat()).await;
    assert!(text.contains("deleted: route 10.98.9.0/24"), "{text}");

    // Once its instance is released, nobody needs the one that is in the way.
    world.testbed.cloud.release_instance("i-play-9");
    let ccm = world.start();
    world.until("the second node has its route", |_| is_ready(&world.node("node-2"))).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_was_copied_with_its_label_takes_nothing_from_the_other_cluster() {
    tokio::join!(copied_with_its_label(Kind::Clb), copied_with_its_label(Kind::Nlb));
}

async fn copied_with_its_label(kind: Kind) {
    let first = first_cluster().await;
    first.testbed.join(1);
    kind.expose(&first.testbed, "web", &[80], &[1]);
    let ccm = first.start();
    settled(&first, &["node-1"], &["web"]).await;
    assert!(ccm.stop().await.success());
    let theirs = load_balancer(&first, "web");
    let look = || (first.testbed.cloud.load_balancer(&theirs), first.testbed.cloud.network_load_balancer(&theirs));
    let before = look();

    // A backup tool brings Services with all their labels and finalizers.
    let second = second_cluster(&first).await;
    second.testbed.join(11);
    for (name, deleted) in [("web", false), ("old", true)] {
        let (finalizer, class) = match kind {
            Kind::Clb => ("service.k8s.alibaba/resources", Value::Null),
            Kind::Nlb => ("service.k8s.alibaba/nlb", "alibabacloud.com/nlb".into()),
        };
        let copied = second.testbed.cluster.create(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "labels": {LABEL: theirs}, "finalizers": [finalizer]},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": class, "ports": [{"port": 80}]},
        }));
        copied.unwrap();
        if deleted {
            second.testbed.cluster.delete("Service", "default", name).unwrap();
        }
    }
    let ccm = second.start();
    let why = second.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(why.contains(&theirs) && why.contains("remove that label"), "{why}");
    let no_label = json!({"metadata": {"labels": {LABEL: null}}});
    second.testbed.cluster.patch("Service", "default", "web", &no_label).unwrap();
    settled(&second, &["node-11"], &["web"]).await;
    assert_ne!(load_balancer(&second, "web"), theirs, "it gets one of its own");
    let label = json!({"metadata": {"labels": {LABEL: theirs}}});
    second.testbed.cluster.patch("Service", "default", "web", &label).unwrap();
    second.until_still(Duration::from_secs(1)).await;
    second.testbed.cluster.delete("Service", "default", "web").unwrap();
    second.until("both copies are gone", |_| second.service("web").is_null() && second.service("old").is_null()).await;
    assert!(ccm.stop().await.success());
    assert_eq!(look(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_control_list_of_the_other_cluster_is_left_alone() {
    let first = first_cluster().await;
    let second = second_cluster(&first).await;
    let ranges = |range: &str| json!({"spec": {"loadBalancerSourceRanges": [range]}});
    for (world, number, range) in [(&first, 1, "10.1.0.0/16"), (&second, 11, "10.2.0.0/16")] {
        let node = world.testbed.join(number);
        world.testbed.expose("web", &[80], &[&node], &[]);
        world.testbed.cluster.patch("Service", "default", "web", &ranges(range)).unwrap();
    }
    let ccm = first.start();
    settled(&first, &["node-1"], &["web"]).await;
    let acls = || first.testbed.cloud.look(|cloud| format!("{:?}", cloud.acls));
    let before = acls();
    assert!(before.contains("10.1.0.0/16") && before.contains(&uid(&first)), "{before}");
    let other = second.start();
    let why = second.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(why.contains("foreign") && why.contains(&uid(&first)), "{why}");
    second.until_still(Duration::from_secs(2)).await;
    second.testbed.cluster.delete("Service", "default", "web").unwrap();
    second.until("the second is gone", |_| second.service("web").is_null()).await;
    assert_eq!(acls(), before);
    for ccm in [ccm, other] {
        assert!(ccm.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_uid_of_the_cluster_everything_works_and_nothing_is_offered() {
    let world = first_cluster().await;
    world.testbed.cluster.deny("kubernetes-admin", "get", "namespaces");
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    settled(&world, &["node-1"], &["web"]).await;
    assert!(ccm.log().contains("the uid of the namespace kube-system is not known"), "{}", ccm.log());
    assert!(ccm.stop().await.success());
    let id = load_balancer(&world, "web");
    let lacks_uid = |lb: &Shared<sim::cloud::LoadBalancer>| lb.tags.contains_key(MARK) && !lb.tags.contains_key(UID);
    assert!(world.testbed.cloud.look(|cloud| cloud.load_balancers.values().all(lacks_uid)));
    force_out(&world, "web");
    let ccm = world.start_serving();
    let page = ccm.until_page("/readyz?verbose", |_, text| text.contains("LoadBalancerOwnerMissing")).await;
    assert!(page.contains("uid of this cluster is not known") && !page.contains("--delete"), "{page}");
    assert!(ccm.stop().await.success());
    let (text, code) = gc(&world, &DELETE).await;
    assert!(text.contains(&format!("may be another cluster's: load balancer {id}")) && code == Some(2), "{text}");
    // Known again, what lacks it is still no proven orphan, and what is needed is still claimed.
    world.testbed.cluster.undeny();
    assert_eq!(gc(&world, &DELETE).await.1, Some(2));
    let (text, code) = gc(&world, &[&DELETE[..], &[&id]].concat()).await;
    assert!(text.contains(&format!("deleted: load balancer {id}")) && code == Some(0), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_service_of_type_load_balancer_can_go_without_stopping_gc() {
    let world = first_cluster().await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    settled(&world, &["node-1"], &["web"]).await;
    assert!(ccm.stop().await.success());
    force_out(&world, "web");
    let (text, code) = gc(&world, &[]).await;
    assert!(text.contains("without owner: load balancer lb-") && code == Some(2), "{text}");
    // An API server that shows not even its own Service shows none at all.
    world.testbed.cluster.delete("Service", "default", "kubernetes").unwrap();
    let before = world.testbed.cloud.snapshot();
    let (text, code) = gc(&world, &DELETE).await;
    assert!(text.contains("problem: the API server shows no Service at all") && code == Some(1), "{text}");
    assert_eq!(world.testbed.cloud.snapshot(), before);
}

#[test]
fn the_uid_of_the_cluster_is_read_again_until_it_is_known() {
    on_a_clock_of_its_own(0, async {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        Kind::Clb.expose(&testbed, "early", &[80], &[1]);
        testbed.cluster.trouble_times(Match::new("get", "namespaces"), Effect::LoseRequest, usize::MAX);
        let more = format!("{HASTE}[leader_election]\nenabled = false\n");
        let _product = Product::start(&testbed, WITHOUT_NAMES, &more);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let with_uid = || {
            let has_uid = |lb: &&Shared<sim::cloud::LoadBalancer>| lb.tags.contains_key(UID);
            testbed.cloud.look(|cloud| cloud.load_balancers.values().filter(has_uid).count())
        };
        assert_eq!((Kind::Clb.count(&testbed), with_uid()), (1, 0));
        testbed.cluster.calm();
        tokio::time::sleep(Duration::from_secs(120)).await;
        Kind::Clb.expose(&testbed, "late", &[80], &[1]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((Kind::Clb.count(&testbed), with_uid()), (2, 1));
    });
}
