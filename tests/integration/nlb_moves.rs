//! Services that move from one load balancer to another, between the binary and the simulated worlds.

use std::time::Duration;

use serde_json::{Value, json};
use sim::testbed::Testbed;

use crate::harness::{Ccm, World, address};
use crate::nlb_lifecycle::{PREFIX, expose, finish, hostname, instances, is_clean, is_gone, served, world};

/// What lets Services choose the kind of their load balancer.
const CHOICE: &str = "[service]\ntype_annotation = true\nhand_over_grace = \"2s\"\n";
const FINALIZERS: [&str; 2] = ["service.k8s.alibaba/resources", "service.k8s.alibaba/nlb"];

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
        expose(&world.testbed, name, &[port, port + 1000], &["node-1"], &annotations);
    }
    expose(&world.testbed, "mistaken", &[80], &["node-1"], &[]);
    let ccm = world.start();
    for name in names.into_iter().chain(["mistaken"]) {
        world.until("it is served", |_| hostname(&world.service(name)).is_some()).await;
    }
    for (name, (key, value)) in names.into_iter().zip(edits) {
        annotate(&world.testbed, name, key, value);
    }
    annotate(&world.testbed, "mistaken", "id", json!("nlb-missing"));
    world.until_event("Service", "mistaken", "SyncLoadBalancerFailed").await;
    world.until_event("Service", "moved", "SyncLoadBalancerFailed").await;
    crate::kinds::point_at(&world.testbed, "moved", &[2]);
    let followed = |testbed: &Testbed| served(testbed).contains(&("80".to_owned(), instances(&[2])));
    world.until("backends follow on the former load balancer", followed).await;
    for name in names.into_iter().chain(["mistaken"]) {
        world.testbed.cluster.delete("Service", "default", name).unwrap();
    }
    for name in names.into_iter().chain(["mistaken"]) {
        world.until("it is gone", |testbed| is_gone(testbed, name)).await;
    }
    world.testbed.cloud.look(|account| {
        assert_eq!(account.nlb.balancers.len(), 2, "that of the Service goes with it, those of users stay");
        assert!([&first, &second].into_iter().all(|id| account.nlb.balancers[id].listeners.is_empty()));
        assert!(account.nlb.groups.is_empty());
    });
    finish(&world, ccm).await;
}

/// A world with these controllers and a Service that a classic load balancer serves. No lease has to run out in it.
async fn world_of_classic(controllers: &[&str]) -> (World, Ccm) {
    let world = World::new(controllers, &format!("[leader_election]\nenabled = false\n{CHOICE}")).await;
    (1..=2).for_each(|number| drop(world.testbed.join(number)));
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    world.testbed.cluster.patch("Service", "default", "web", &local).unwrap();
    let ccm = world.start();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    (world, ccm)
}

fn ask_for(world: &World, kind: Option<&str>) {
    annotate(&world.testbed, "web", "type", json!(kind));
}

fn point_at(world: &World, number: u8) {
    let endpoint = sim::cluster::Endpoint::ready([10, 98, 1, 10].into(), &format!("node-{number}"));
    world.testbed.cluster.set_endpoints("default", "web", &[endpoint]).unwrap();
}

/// Instances behind the listeners of the classic load balancer; `None` if there is none.
fn behind_classic(testbed: &Testbed) -> Option<std::collections::BTreeSet<String>> {
    testbed.cloud.look(|account| {
        let balancer = account.load_balancers.values().next()?;
        let behind = balancer.groups.values().flat_map(|group| group.backends.iter().map(|it| it.server_id.clone()));
        Some(behind.collect())
    })
}

/// Whether exactly one load balancer is left, which has the Service's finalizer.
fn is_only(world: &World, finalizer: &str) -> bool {
    let (classic, network) =
        world.testbed.cloud.look(|account| (account.load_balancers.len(), account.nlb.balancers.len()));
    let expected = if finalizer == FINALIZERS[0] { (1, 0) } else { (0, 1) };
    let metadata = &world.service("web")["metadata"];
    let former = &metadata["labels"]["alicloud-ccm/former-loadbalancer-id"];
    (classic, network) == expected && metadata["finalizers"] == json!([finalizer]) && former.is_null()
}

async fn delete(world: &World, ccm: Ccm) {
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("it is gone", |testbed| is_gone(testbed, "web")).await;
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    assert!(world.testbed.cloud.look(|account| account.load_balancers.is_empty()));
    finish(world, ccm).await;
}

#[tokio::test]
async fn a_classic_load_balancer_serves_with_backends_that_follow_until_a_network_load_balancer_does() {
    let (world, ccm) = world_of_classic(&["service", "nlb"]).await;
    world.edit(|text| text.replace("hand_over_grace = \"2s\"", "hand_over_grace = \"12s\""));
    world.until("the file is read", |_| ccm.log().contains("service.hand_over_grace")).await;
    world.testbed.cloud.dials(|dials| dials.nlb_creation_time = Duration::from_secs(8));
    let ip = address(&world.service("web")).unwrap().to_owned();
    ask_for(&world, Some("nlb"));
    let told = world.until_event("Service", "web", "LoadBalancerHandOver").await;
    assert!(told.contains("asks for a network load balancer") && told.contains("is deleted"), "{told}");
    point_at(&world, 2);
    world.until("backends follow", |testbed| behind_classic(testbed) == Some(instances(&[2]))).await;
    assert_eq!(address(&world.service("web")), Some(ip.as_str()), "the new one is still being made");
    world.until("it has a name", |_| hostname(&world.service("web")).is_some()).await;
    assert_eq!(served(&world.testbed), [("80".to_owned(), instances(&[2]))]);
    point_at(&world, 1);
    world.until("backends of both follow", |testbed| behind_classic(testbed) == Some(instances(&[1]))).await;
    let listed = world.run(&["gc"]).await;
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stdout));
    world.until("the old one is gone", |_| is_only(&world, FINALIZERS[1])).await;
    let name = hostname(&world.service("web")).map(str::to_owned);
    world.until_still(Duration::from_secs(2)).await;
    assert!(name.is_some() && name.as_deref() == hostname(&world.service("web")));
    delete(&world, ccm).await;
}

/// No load balancer is left behind without an owner.
#[tokio::test]
async fn a_network_load_balancer_serves_until_a_classic_one_does_and_goes_with_its_groups() {
    let world = World::new(&["service", "nlb"], CHOICE).await;
    world.testbed.join(1);
    world.testbed.expose(
        "web",
        &[80],
        &["node-1"],
        &[("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-type", "nlb")],
    );
    let ccm = world.start();
    world.until("it has a name", |_| hostname(&world.service("web")).is_some()).await;
    ask_for(&world, None);
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!((behind_classic(&world.testbed), is_clean(&world.testbed)), (Some(instances(&[1])), false));
    world.until("the old one is gone", |_| is_only(&world, FINALIZERS[0])).await;
    assert!(is_clean(&world.testbed), "{:?}", world.testbed.cloud.snapshot());
    world.until_event("Service", "web", "CleanLoadBalancer").await;
    // The one that is asked for again before the other one serves was never replaced.
    let calls = world.testbed.cloud.count("slb:CreateLoadBalancer");
    ask_for(&world, Some("nlb"));
    world.until("the other one is being made", |testbed| testbed.cloud.count("nlb:CreateLoadBalancer") == 2).await;
    ask_for(&world, None);
    assert_eq!(world.testbed.cloud.count("slb:CreateLoadBalancer"), calls);
    delete(&world, ccm).await;
}

#[tokio::test]
async fn killed_at_any_point_of_a_hand_over_it_ends_with_the_new_load_balancer_alone() {
    let (world, ccm) = world_of_classic(&["service", "nlb"]).await;
    ask_for(&world, Some("nlb"));
    let mut ccm = Some(ccm);
    type Moment<'a> = (&'a str, &'a (dyn Fn(&Testbed) -> bool + Sync));
    let has = |action: &'static str| move |testbed: &Testbed| testbed.cloud.count(action) > 0;
    let labelled = |testbed: &Testbed| {
        let service = testbed.cluster.get("Service", "default", "web").unwrap_or_default();
        !service["metadata"]["labels"]["alicloud-ccm/former-loadbalancer-id"].is_null()
    };
    let named =
        |testbed: &Testbed| hostname(&testbed.cluster.get("Service", "default", "web").unwrap_or_default()).is_some();
    let moments: [Moment<'_>; 6] = [
        ("the new one is made", &has("nlb:CreateLoadBalancer")),
        ("its listener is made", &has("nlb:CreateListener")),
        ("the status shows it", &named),
        ("so does the label", &labelled),
        ("the old one is unprotected", &has("SetLoadBalancerDeleteProtection")),
        ("the old one is deleted", &|testbed: &Testbed| behind_classic(testbed).is_none()),
    ];
    for (what, is_so) in moments {
        world.until(what, is_so).await;
        let serves = behind_classic(&world.testbed).is_some() || named(&world.testbed);
        assert!(serves && address_or_name(&world.service("web")), "nothing serves when {what}");
        ccm.take().unwrap().kill().await;
        ccm = Some(world.start());
    }
    world.until("the old one is gone", |_| is_only(&world, FINALIZERS[1])).await;
    assert_eq!(served(&world.testbed), [("80".to_owned(), instances(&[1]))]);
    delete(&world, ccm.unwrap()).await;
}

fn address_or_name(service: &Value) -> bool {
    address(service).is_some() || hostname(service).is_some()
}

#[tokio::test]
async fn while_a_controller_does_not_run_the_user_is_told_what_stays() {
    let (world, ccm) = world_of_classic(&["service"]).await;
    ask_for(&world, Some("nlb"));
    let told = world.until_event("Service", "web", "LoadBalancerHandOver").await;
    assert!(told.contains("The controller nlb, which makes it, does not run"), "{told}");
    point_at(&world, 2);
    world.until("backends follow", |testbed| behind_classic(testbed) == Some(instances(&[2]))).await;
    let run = |list: &str| {
        world.edit(|text| {
            let rest = text.lines().filter(|line| !line.starts_with("controllers = "));
            let lines: Vec<_> = rest.map(str::to_owned).collect();
            format!("controllers = {list}\n{}\n", lines.join("\n"))
        })
    };
    run("[\"nlb\"]");
    world.until("it has a name", |_| hostname(&world.service("web")).is_some()).await;
    let is_told = |testbed: &Testbed| {
        let events = testbed.cluster.list("Event");
        events.iter().any(|it| {
            it["message"]
                .as_str()
                .is_some_and(|text| text.contains("the controller service, which removes it, does not run"))
        })
    };
    world.until("it is told what stays", is_told).await;
    assert!(behind_classic(&world.testbed).is_some());
    run("[\"service\", \"nlb\"]");
    world.until("the old one is gone", |_| is_only(&world, FINALIZERS[1])).await;
    delete(&world, ccm).await;
}
