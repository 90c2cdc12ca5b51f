//! The printed permissions are sufficient, and none of them is unused.

use std::collections::BTreeSet;

use alicloud_ccm::controllers::registry::CONTROLLERS;
use serde_json::{Value, json};
use sim::cluster::{Call, Effect, Failure, Match, Version};
use sim::testbed::{ACCESS_KEY, Testbed, instance};

use crate::harness::{ALL, HASTE, World, address, is_ready};
use crate::{nlb_lifecycle, private_zone};

const USER: &str = "system:serviceaccount:kube-system:alicloud-ccm";

/// The documents of a YAML file.
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap_or_else(|error| panic!("{error}:\n{yaml}"))
}

/// Standard output of a command that must succeed.
async fn printed(world: &World, arguments: &[&str]) -> String {
    let output = world.run(arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A world in which the binary may do exactly what it says that it needs.
async fn confined(version: Version, controllers: &[&str], more: &str) -> World {
    let testbed = Testbed::open(version).await.unwrap();
    testbed.cluster.admit("token-of-the-ccm", USER);
    let world = World::of(testbed, controllers, more);
    confine(&world, version).await;
    world
}

async fn confine(world: &World, version: Version) {
    let kubernetes = format!("1.{}", version.minor());
    let manifests = documents(&printed(world, &["rbac", "--kubernetes", &kubernetes]).await);
    world.testbed.cluster.grant_only(&manifests);
    let policy: Value = serde_json::from_str(&printed(world, &["ram-policy"]).await).unwrap();
    let actions = policy["Statement"][0]["Action"].as_array().cloned().unwrap_or_default();
    let permitted = actions.iter().filter_map(|action| action.as_str().map(str::to_owned)).collect();
    world.testbed.cloud.edit(|cloud| cloud.permit_only(ACCESS_KEY.0, &permitted));
}

/// What the roles grant, as `verb resource`.
fn granted(manifests: &[Value]) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let rules = manifests.iter().flat_map(|document| document["rules"].as_array().cloned().unwrap_or_default());
    rules
        .flat_map(|rule| {
            let resources = texts(&rule["resources"]);
            texts(&rule["verbs"])
                .into_iter()
                .flat_map(move |verb| resources.iter().map(|resource| format!("{verb} {resource}")).collect::<Vec<_>>())
        })
        .collect()
}

/// Nothing was refused, and every right was made use of.
fn judge(world: &World, manifests: &[Value]) {
    let calls = world.testbed.cluster.calls();
    let refused: Vec<_> = calls.iter().filter(|call| call.status == Some(403)).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let refused: Vec<_> =
        world.testbed.cloud.calls().into_iter().filter(|call| call.outcome.starts_with("Forbidden")).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let used = calls.iter().map(|call| format!("{} {}", call.verb, call.target())).collect();
    // Pods are read only where one waits for the load balancer, which `features` plays.
    let mut idle: Vec<_> = granted(manifests).difference(&used).cloned().collect();
    // OpenShift's own kinds are asked for, and not there.
    idle.retain(|right| !right.contains("pods") && !right.ends_with("networks"));
    assert_eq!(idle, Vec::<String>::new(), "granted, but of no use\n{}", world.logs());
}

const ADDRESS_TYPE: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type";

fn annotated(address_type: &str) -> Value {
    json!({ "metadata": { "annotations": { ADDRESS_TYPE: address_type } } })
}

/// From the first node to the last Service, as far as these controllers go, with a change of leader in between.
async fn live(version: Version, controllers: &[&str]) {
    let world = confined(version, controllers, HASTE).await;
    let has = |name: &str| controllers.contains(&name);
    // Somebody else is quicker, so the node has to be read anew.
    let conflict = Failure::stale("nodes", "node-1");
    world.testbed.cluster.trouble(Match::new("patch", "nodes/status").from("alicloud-ccm"), Effect::Refuse(conflict));
    let first = world.start();
    let nodes: Vec<String> = (1..=3).map(|number| world.testbed.join(number)).collect();
    if has("node") {
        world.until("the nodes are initialised", |_| nodes.iter().all(|name| is_ready(&world.node(name)))).await;
    } else if has("route") {
        let routed = |name: &String| world.node(name).to_string().contains("\"RouteCreated\"");
        world.until("the nodes have routes", |_| nodes.iter().all(routed)).await;
    } else {
        // What a route controller left behind is taken back.
        let condition = json!({ "type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated" });
        world.testbed.cluster.patch_status("Node", "", &nodes[0], &json!({ "conditions": [condition] })).unwrap();
        world
            .until("the condition is taken back", |testbed| {
                let writes = testbed.cluster.writes();
                writes.iter().any(|call| call.target() == "nodes/status" && call.status == Some(200))
            })
            .await;
    }
    if has("service") {
        world.testbed.expose("web", &[80], &["node-1", "node-2"], &[]);
        world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
        world.testbed.expose("wrong", &[80], &["node-1"], &[(ADDRESS_TYPE, "nowhere")]);
        world.until("its user is reported", |_| !world.events("Service", "wrong").is_empty()).await;
        world.testbed.cluster.delete("Service", "default", "web").unwrap();
        world.until("the Service is gone", |_| world.service("web").is_null()).await;
        assert!(world.testbed.cloud.look(|cloud| cloud.load_balancers.is_empty()));
    }
    if has("nlb") {
        nlb_lifecycle::expose(&world.testbed, "network", &[80], &["node-1", "node-2"], &[]);
        let ranges = json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}});
        world.testbed.cluster.patch("Service", "default", "network", &ranges).unwrap();
        let name = |_: &Testbed| nlb_lifecycle::hostname(&world.service("network")).is_some();
        world.until("the Service has a name", name).await;
        world.testbed.cluster.delete("Service", "default", "network").unwrap();
        world.until("the Service is gone", |_| world.service("network").is_null()).await;
        assert!(world.testbed.cloud.look(|cloud| cloud.nlb.balancers.is_empty() && cloud.security_groups.is_empty()));
    }
    if has("volume-labels") {
        world.testbed.provide("data", "d-1", "cn-hangzhou-i");
        let event =
            |_: &Testbed| world.events("PersistentVolume", "data").iter().any(|event| event.1 == "VolumeLabeled");
        world.until("the volume is labelled", event).await;
    }
    if has("pvtz") {
        private_zone::live(&world).await;
    }
    if has("node") {
        world.testbed.cloud.release_instance(&instance(3));
        world.testbed.cluster.set_ready("node-3", "Unknown").unwrap();
        world.until("the node is gone", |_| world.node("node-3").is_null()).await;
        // Its kubelet reports, so its lease is looked at.
        world.testbed.cloud.release_instance(&instance(2));
        let is_read = |call: &Call| {
            (call.resource, &*call.namespace, &*call.name) == ("leases", "kube-node-lease", "node-2")
                && call.status != Some(403)
        };
        world
            .until("the lease of the kubelet is read", |testbed| {
                version.minor() < 14 || testbed.cluster.calls().iter().any(is_read)
            })
            .await;
    }
    assert!(first.stop().await.success());
    let second = world.start();
    world.until("another replica leads", |_| second.log().contains(" leading ")).await;
    if has("service") {
        // What was said before is counted in its event.
        for place in ["elsewhere", "nowhere", "elsewhere"] {
            let said = || second.log().matches(place).count();
            let before = said();
            world.testbed.cluster.patch("Service", "default", "wrong", &annotated(place)).unwrap();
            world.until("it is said", |_| said() > before).await;
        }
        world.until("an event is counted", |testbed| testbed.cluster.count("patch", "events") > 0).await;
    }
    assert!(second.stop().await.success());
    let kubernetes = format!("1.{}", version.minor());
    let mut manifests = documents(&printed(&world, &["rbac", "--kubernetes", &kubernetes]).await);
    if !has("service") {
        // Nothing here goes wrong twice; that events are counted is shown with Services.
        for rule in manifests.iter_mut().flat_map(|document| document["rules"].as_array_mut().into_iter().flatten()) {
            if rule["resources"][0] == "events" {
                rule["verbs"] = json!(["create"]);
            }
        }
    }
    judge(&world, &manifests);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_configuration_lives_on_exactly_what_it_is_granted() {
    // Each row of the registry alone: what it calls and does not list is refused.
    let names: Vec<&str> = CONTROLLERS.iter().map(|row| row.name()).collect();
    let alone = futures::future::join_all(names.chunks(1).map(|name| live(Version::NEWEST, name)));
    tokio::join!(live(Version::NEWEST, ALL), live(Version::V1_11, ALL), alone);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_needs_no_right_that_the_controllers_do_not_need() {
    let gc = async |controllers: &[&str]| {
        let world = confined(Version::NEWEST, controllers, HASTE).await;
        world.testbed.join(1);
        let output = world.run(&["gc"]).await;
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let ((text, code), (alone, code_alone)) = tokio::join!(gc(&["node", "service"]), gc(&["node"]));
    assert!(text.starts_with("Nothing is without an owner.\nnote: route does not run: no route is judged"), "{text}");
    assert_eq!((text.lines().count(), code), (2, Some(0)), "{text}");
    assert!(alone.contains("note: service does not run: ") && alone.contains("no list of the kind Service"), "{alone}");
    assert_eq!(code_alone, Some(0), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_says_which_list_it_did_not_get() {
    let judge = async |controller: &str| {
        let world = World::new(&[controller], HASTE).await;
        world.testbed.cluster.deny("kubernetes-admin", "list", "services");
        let (plan, code) = world.plan().await;
        let problem = format!("problem: {controller}: ");
        assert!(plan.contains(&problem) && plan.contains("gave no list of the kind Service"), "{plan}");
        assert_eq!(code, Some(1), "{plan}");
    };
    tokio::join!(judge("service"), judge("pvtz"));
}

/// Load balancers of both kinds are made, in vSwitches that are stated like this; without the right to list vSwitches, where it
/// is needed, the event of one that is not made names it.
async fn place(vswitches: &str, needs_list: bool) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.cluster.admit("token-of-the-ccm", USER);
    let world = World::of(testbed, &["node", "service", "nlb"], HASTE);
    world.rewrite(|text| text.replace(r#""cn-hangzhou-i:vsw-i", "cn-hangzhou-j:vsw-j""#, vswitches));
    confine(&world, Version::NEWEST).await;
    let _ccm = world.start();
    let nodes = [1, 2].map(|number| world.testbed.join(number));
    let nodes = nodes.each_ref().map(String::as_str);
    world.testbed.expose("inside", &[80], &nodes, &[(ADDRESS_TYPE, "intranet")]);
    nlb_lifecycle::expose(&world.testbed, "network", &[80], &nodes, &[]);
    let made = |_: &Testbed| {
        let network = nlb_lifecycle::hostname(&world.service("network")).is_some();
        network && address(&world.service("inside")).is_some()
    };
    world.until("both Services have a load balancer", made).await;
    let calls = world.testbed.cloud.calls();
    let refused: Vec<_> = calls.iter().filter(|call| call.outcome.starts_with("Forbidden")).collect();
    assert!(refused.is_empty(), "vswitches = [{vswitches}]: {refused:?}");
    if needs_list {
        let denied = ["DescribeVSwitches".to_owned()].into();
        world.testbed.cloud.edit(|cloud| cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied = denied);
        nlb_lifecycle::expose(&world.testbed, "late", &[80], &nodes, &[]);
        let is_told = |_: &Testbed| world.events("Service", "late").iter().any(|it| it.2.contains("DescribeVSwitches"));
        world.until("the event names what is denied", is_told).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_vswitches_are_stated_the_printed_policy_is_enough() {
    tokio::join!(
        place("", true),
        place(r#""cn-hangzhou-i:vsw-i""#, true),
        place(r#""cn-hangzhou-i:vsw-i", "vsw-j""#, true),
        place(r#""cn-hangzhou-i:vsw-i", "cn-hangzhou-j:vsw-j""#, false),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_with_its_verb() {
    let world = confined(Version::NEWEST, &["node"], HASTE).await;
    let mut manifests = documents(&printed(&world, &["rbac"]).await);
    for rule in manifests.iter_mut().flat_map(|document| document["rules"].as_array_mut().into_iter().flatten()) {
        if rule["resources"][0] == "nodes/status" {
            rule["verbs"] = json!([]);
        }
    }
    world.testbed.cluster.grant_only(&manifests);
    let ccm = world.start();
    world.testbed.join(1);
    world.until("the log names the right", |_| ccm.log().contains("needs the verb patch on nodes/status")).await;
    assert!(ccm.kill().await.code().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_args_follow_the_metadata_service() {
    let world = World::new(&["node"], "").await;
    world.testbed.rent(1);
    world.testbed.cloud.edit(|cloud| cloud.metadata.instance = Some(instance(1)));
    let service = format!("http://{}", world.testbed.cloud_address());
    let reported = |more: &'static [&'static str]| {
        let arguments = [&["kubelet-args", "--metadata", &service], more].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let world = &world;
        async move { printed(world, &arguments.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    let name = "--provider-id=cn-hangzhou.i-play-1";
    assert_eq!(reported(&["--host-name", "none"]).await, format!("{name}\n"));
    assert_eq!(
        reported(&["--host-name", "provider-id"]).await,
        format!("{name} --hostname-override=cn-hangzhou.i-play-1\n")
    );
    assert_eq!(reported(&[]).await, format!("{name} --hostname-override=node-1\n"));
    let scheme = reported(&["--scheme", "--output", "env", "--host-name", "none"]).await;
    assert_eq!(scheme, "KUBELET_PROVIDERID=alicloud://cn-hangzhou.i-play-1\n");
    let config = documents(&reported(&["--output", "config"]).await);
    assert_eq!(config[0]["providerID"], "cn-hangzhou.i-play-1");

    world.testbed.cloud.edit(|cloud| cloud.metadata.disabled = true);
    let output = world.run(&["kubelet-args", "--metadata", &service, "--timeout", "1"]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("given up after 1 s") && error.contains("--timeout"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_kubeconfig_reaches_the_api_server_with_the_token_beside_it() {
    let world = World::new(ALL, "").await;
    world.testbed.cluster.admit("token-of-the-ccm", USER);
    let given = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
    let given: Value = documents(&given).remove(0);
    let server = format!("kubernetes.server={}", given["clusters"][0]["cluster"]["server"].as_str().unwrap());
    let made = printed(&world, &["rbac", "--kubeconfig", "--set", &server]).await;
    assert!(!made.contains("token-of-the-ccm"), "{made}");
    std::fs::write(world.folder().join("made"), made).unwrap();
    std::fs::write(world.folder().join("token"), "token-of-the-ccm").unwrap();
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(world.folder().join("ca.crt"), authority.cert.pem()).unwrap();
    printed(&world, &["check", "--cluster", "--set", "kubernetes.kubeconfig=made"]).await;
    let users: BTreeSet<_> = world.testbed.cluster.calls().into_iter().map(|call| call.user).collect();
    assert_eq!(users, BTreeSet::from([USER.to_owned()]));
    let unknown = world.run(&["rbac", "--kubeconfig"]).await;
    assert_eq!(unknown.status.code(), Some(1), "nobody has said where the API server is");
}
