//! The command `doctor`: what it says of a healthy world, beside a running program, and of what it cannot see.

mod worlds;

use std::collections::BTreeSet;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{ACCESS_KEY, REGION, Testbed, instance};

use crate::harness::{ALL, EVERY, HASTE, World, address, is_ready};
use crate::permissions::documents;

fn first_line(page: &str) -> &str {
    page.lines().next().unwrap_or_default()
}

/// Two initialised nodes, and nothing wrong. No program runs.
async fn healthy(controllers: &[&str]) -> World {
    let world = World::new(controllers, HASTE).await;
    for number in [1, 2] {
        world.testbed.rent(number);
        add_node(&world, number, &format!("{REGION}.{}", instance(number)), &format!("10.98.{number}.0/24"));
    }
    world
}

fn add_node(world: &World, number: u8, provider_id: &str, cidr: &str) {
    let spec = NodeSpec::new(&format!("node-{number}")).provider_id(provider_id);
    let spec = if cidr.is_empty() { spec } else { spec.pod_cidr(cidr) };
    world.testbed.cluster.add_node(&spec).unwrap();
}

/// What `doctor` prints, and its exit code.
async fn doctor(world: &World) -> (String, Option<i32>) {
    doctor_with(world, &[]).await
}

/// The same with environment variables.
async fn doctor_with(world: &World, environment: &[(&str, &str)]) -> (String, Option<i32>) {
    let output = world.run_with(&["doctor"], environment).await;
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code())
}

fn deny(world: &World, actions: &[&str]) {
    world.testbed.cloud.edit(|cloud| {
        let denied = actions.iter().map(|action| (*action).to_owned()).collect();
        cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied = denied;
    });
}

/// As `ram-policy` prints it.
fn grant(world: &World) {
    deny(world, &[]);
}

/// Makes a Service with a class.
pub(crate) fn with_class(world: &World, name: &str, class: &str) {
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": class, "selector": {"app": name},
        "ports": [{"port": 80, "protocol": "TCP"}]});
    let metadata = json!({"name": name, "namespace": "default"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    world.testbed.cluster.create(service).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_world_has_nothing_wrong_and_is_left_alone() {
    let world = healthy(EVERY).await;
    let (page, code) = doctor(&world).await;
    assert_eq!(code, Some(0), "{page}");
    assert!(first_line(&page).starts_with("nothing is wrong: "), "{page}");
    for part in [
        "ok       credentials: RAMUser acs:ram::",
        "note     leader: no replica leads",
        "actions cannot be probed without a change",
        "ok       network: 2 pod CIDRs fit",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    let effective = world.testbed.cloud.calls().into_iter().filter(|call| call.effective).count();
    let kept: Vec<String> = world.kubernetes_writes();
    let asked = kept.iter().all(|write| write.starts_with("create selfsubjectaccessreviews"));
    assert!(effective == 0 && asked, "{effective} changes in the cloud, {kept:?} in the cluster");
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());

    let output = world.run(&["doctor", "--output", "json"]).await;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["worst"], &said["findings"][0]["section"]), (&json!("note"), &json!("configuration")));
}

/// The files of a bundle.
pub(crate) fn unpacked(bundle: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(bundle).unwrap()));
    let read = |entry: std::io::Result<tar::Entry<'_, GzDecoder<std::fs::File>>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(read).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_the_running_program_it_sees_what_the_program_sees() {
    let world = World::new(ALL, HASTE).await;
    let port = world.serve_health();
    world.testbed.join(1);
    let (page, code) = doctor(&world).await;
    assert!(first_line(&page).contains("nodes: node-1 waits to be initialised") && code == Some(1), "{page}");
    assert!(page.contains("to do: no replica leads: start the program"), "{page}");

    // What it advises: the program starts.
    deny(&world, &["slb:CreateLoadBalancer"]);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let mut ccm = world.start();
    ccm.serve_at(port);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    ccm.until_page("/readyz?verbose", |_, text| text.contains("CreateLoadBalancer fails since")).await;
    let (page, code) = doctor(&world).await;
    assert!(first_line(&page).contains("process: a check of the running process fails") && code == Some(1), "{page}");
    assert!(
        page.contains("CreateLoadBalancer fails since") && page.contains(" leads (Lease kube-system/ccm"),
        "{page}"
    );

    grant(&world);
    // A change is how users ask for another look.
    let change = json!({"metadata": {"annotations": {"example.com/look": "again"}}});
    world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    ccm.until_page("/readyz?verbose", |_, text| !text.contains("fails since")).await;
    let bundle = world.folder().join("bundle.tar.gz");
    let output = world.run(&["doctor", "--bundle", bundle.to_str().unwrap()]).await;
    let page = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{page}");
    let mut names = BTreeSet::new();
    for (name, text) in unpacked(&bundle) {
        assert!(!text.is_empty() && !text.contains(ACCESS_KEY.1), "{name}: {text}");
        names.insert(name);
    }
    let expected = [
        "about.json",
        "config.json",
        "configz.txt",
        "doctor.json",
        "doctor.txt",
        "metrics.txt",
        "objects.txt",
        "readyz.txt",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_one_world_the_other_is_looked_at_all_the_same() {
    let world = healthy(ALL).await;
    world.testbed.cluster.go_away().await;
    let (page, code) = doctor(&world).await;
    assert_eq!(code, Some(1), "{page}");
    assert!(first_line(&page).contains("kubernetes: the API server does not answer"), "{page}");
    for part in ["ok       credentials: ", "ok       vswitches: vsw-i", "unknown  nodes: not checked"] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    world.testbed.cluster.come_back().await.unwrap();
    world.testbed.cloud.faults().always(sim::cloud::ANY, Fault::Drop);
    let (page, code) = doctor(&world).await;
    assert_eq!(code, Some(1), "{page}");
    assert!(first_line(&page).contains("credentials: no call to the cloud works"), "{page}");
    for part in ["ok       kubernetes: ", "ok       rbac: ", "unknown  plan: not checked: the cloud"] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_of_the_controllers_alone_it_says_what_it_could_not_see() {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    let user = "system:serviceaccount:kube-system:alicloud-ccm";
    testbed.cluster.admit("token-of-the-ccm", user);
    let world = World::of(testbed, ALL, HASTE);
    let printed = world.run(&["rbac"]).await;
    world.testbed.cluster.grant_only(&documents(&String::from_utf8(printed.stdout).unwrap()));
    let policy: Value = serde_json::from_slice(&world.run(&["ram-policy"]).await.stdout).unwrap();
    let actions = policy["Statement"][0]["Action"].as_array().unwrap();
    let permitted = actions.iter().filter_map(|action| action.as_str().map(str::to_owned)).collect();
    world.testbed.cloud.edit(|cloud| cloud.permit_only(ACCESS_KEY.0, &permitted));
    world.testbed.rent(1);
    add_node(&world, 1, &format!("{REGION}.{}", instance(1)), "10.98.1.0/24");
    let (page, code) = doctor(&world).await;
    assert_eq!(code, Some(0), "{page}");
    assert!(page.contains("note     official: whether the official controller runs could not be checked"), "{page}");
    assert!(page.contains("note     vswitches: they could not be listed"), "{page}");
}
