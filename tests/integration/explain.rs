//! The command `explain`: it names the true cause first, and what it advises works.

use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::Fault;
use sim::cluster::NodeSpec;

use crate::doctor::with_class;
use crate::harness::{ALL, HASTE, World, address};
use crate::service_features::key;

/// Without a write for so long, the program has done what it had to do.
const QUIET: Duration = Duration::from_secs(1);

/// Runs `explain`; what it prints, and its exit code.
async fn explain(world: &World, object: &str) -> (String, Option<i32>) {
    let output = world.run(&["explain", object]).await;
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// The first line, which has to say `cause`, and the whole page.
async fn first_line_says(world: &World, object: &str, cause: &str, code: i32) -> String {
    let (page, ended) = explain(world, object).await;
    let first = page.lines().next().unwrap_or_default();
    assert!(first.contains(cause), "{cause:?} is not said first:\n{page}");
    assert_eq!(ended, Some(code), "{page}");
    page
}

fn change(world: &World, service: &str, change: &Value) {
    world.testbed.cluster.patch("Service", "default", service, change).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_manages_is_never_nothing_to_do() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.cluster.add_node(&NodeSpec::new("virtual").label("type", "virtual-kubelet")).unwrap();
    world.testbed.expose("web", &[80], &["node-1"], &[]);

    first_line_says(&world, "default/absent", "does not exist", 3).await;
    first_line_says(&world, "node/absent", "does not exist", 3).await;
    first_line_says(&world, "route/10.98.200.0/24", "no node: none has this pod CIDR", 3).await;
    first_line_says(&world, "node/virtual", "it is a virtual node", 3).await;
    change(&world, "web", &json!({"spec": {"type": "ClusterIP"}}));
    first_line_says(&world, "default/web", "not of the type LoadBalancer", 3).await;
    change(&world, "web", &json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}}));
    first_line_says(&world, "default/web", "spec.loadBalancerClass is \"example.com/other\"", 3).await;

    // The advice works.
    with_class(&world, "net", "alibabacloud.com/nlb");
    first_line_says(&world, "default/net", "list \"nlb\" in controllers", 3).await;
    world.rewrite(|text| text.replace("\"service\"]", "\"service\", \"nlb\"]"));
    first_line_says(&world, "default/net", "no replica leads", 2).await;

    // The plan says the same.
    let plan = world.run(&["plan", "default/absent"]).await;
    assert_eq!(plan.status.code(), Some(3));
    assert_eq!(String::from_utf8(plan.stdout).unwrap(), "Service default/absent does not exist in the cluster.\n");
    assert_eq!(world.testbed.cluster.writes().len() + world.testbed.cloud.writes().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_the_running_program_the_page_has_what_is_wanted_what_is_there_and_what_happened() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start();
    world
        .until("the Service has an address", |testbed| {
            testbed.cluster.get("Service", "default", "web").is_some_and(|service| address(&service).is_some())
        })
        .await;
    world.until_event("Service", "web", "EnsuredLoadBalancer").await;
    world.until_quiet(QUIET).await;
    let page = first_line_says(&world, "default/web", "is in sync", 0).await;
    for part in [
        "Managed by\n  service\n",
        "Lease kube-system/",
        "create load balancer",
        "listener 80/tcp, to server group rsp-",
        "1 backends",
        "EnsuredLoadBalancer",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    world
        .until("the node has its route", |testbed| {
            let node = testbed.cluster.get("Node", "", "node-1").unwrap();
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["reason"] == "RouteCreated")
        })
        .await;
    first_line_says(&world, "node/node-1", "is in sync", 0).await;
    let page = first_line_says(&world, "route/10.98.1.0/24", "Node node-1 is in sync", 0).await;
    for part in [
        "\n  spec.providerID: cn-hangzhou.i-",
        "  (spec.providerID)\n",
        "\n  status.addresses: InternalIP 192.168.0.1  (the instance)\n",
        "\n  topology.kubernetes.io/zone: cn-hangzhou-i  (the instance)\n",
        "\n  route table: vtb-",
        "  (the only route table of the VPC)\n",
        "\n  destination: 10.98.1.0/24  (spec.podCIDRs)\n",
        "\n  next hop: i-",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }

    // A setting that makes no sense comes first, and then what to do.
    change(&world, "web", &json!({"metadata": {"annotations": {key("scheduler"): "nonsense"}}}));
    let warned = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(warned.contains("nonsense"), "{warned}");
    let page = first_line_says(&world, "default/web", "cannot be brought in sync: ", 2).await;
    assert!(page.contains("nonsense") && page.contains("to do: "), "{page}");
    change(&world, "web", &json!({"metadata": {"annotations": {key("scheduler"): "wrr"}}}));
    world.until_quiet(QUIET).await;
    first_line_says(&world, "default/web", "is in sync", 0).await;

    // What cannot be found out is said, and the rest is answered.
    world.testbed.cluster.deny("kubernetes-admin", "list", "events");
    let (page, code) = explain(&world, "default/web").await;
    assert_eq!(code, Some(0));
    assert!(
        page.contains("is in sync") && page.contains("listener 80/tcp") && page.contains("Not known\n  events: "),
        "{page}"
    );
    world.testbed.cluster.undeny();
    world.testbed.cloud.edit(|cloud| cloud.keys.clear());
    let (page, code) = explain(&world, "default/web").await;
    assert_eq!(code, Some(1));
    assert!(
        page.contains("what service would do: ")
            && page.contains("InvalidAccessKeyId")
            && page.contains("EnsuredLoadBalancer"),
        "{page}"
    );
    assert!(ccm.stop().await.success());

    let json = world.run(&["explain", "default/web", "--output", "json"]).await;
    let said: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&said["object"], &said["managed_by"]), (&"Service default/web".into(), &json!(["service"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_setting_says_where_it_comes_from_and_the_process_what_it_waits_for() {
    let world = World::new(ALL, &format!("{HASTE}\n[service.defaults]\nscheduler = \"wlc\"\n")).await;
    let denied = Fault::Refuse(403, "Forbidden.RAM".to_owned(), "User not authorized".to_owned());
    world.testbed.cloud.faults().always("CreateLoadBalancer", denied);
    world.testbed.join(1);
    let legacy = "service.beta.kubernetes.io/alicloud-loadbalancer-delete-protection";
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    change(
        &world,
        "web",
        &json!({"metadata": {"annotations": {legacy: "off"}}, "spec": {"sessionAffinity": "ClientIP"}}),
    );
    let ccm = world.start_serving();
    let parts = ["default/web", "next_attempt\": \"20", "this replica leads"];
    ccm.until_page("/debug/objects", |_, text| parts.iter().all(|part| text.contains(part))).await;
    let port = format!("server.port={}", ccm.port());
    let ask = async |more: &[&str]| {
        let set = ["explain", "default/web", "--set", &port, "--set", "service.defaults.spec=slb.s2.small"];
        let output = world.run(&[&set, more].concat()).await;
        String::from_utf8(output.stdout).unwrap()
    };
    let page = ask(&["--set", "service.defaults.instance_charge_type=PayBySpec"]).await;
    let first = page.lines().next().unwrap();
    assert!(first.contains("CreateLoadBalancer: ") && first.contains("; next attempt at 20"), "{page}");
    let file = world.config().display().to_string();
    for part in [
        &format!("delete-protection: off  (annotation {legacy})\n"),
        &format!("scheduler: wlc  (service.defaults.scheduler in {file}:"),
        "address-type: internet  (default of service.defaults.address_type)\n",
        "spec: slb.s2.small  (service.defaults.spec in argument --set service.defaults.spec)\n",
        "protocol-port: tcp:80  (spec.ports)\n",
        "persistence-timeout: 3600  (spec.sessionAffinity)\n",
        "master-zoneid: cn-hangzhou-i  (where most nodes are)\n",
        "failed call: CreateLoadBalancer, code Forbidden.RAM, request ",
        "Process on this machine\n  this replica leads\n  service: out_of_sync since 20",
    ] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    let json: Value = serde_json::from_str(&ask(&["--output", "json"]).await).unwrap();
    let scheduler = json["settings"].as_array().unwrap().iter().find(|it| it["setting"] == "scheduler").unwrap();
    assert!(scheduler["help"].as_str().unwrap().contains("How connections are distributed"), "{scheduler}");
    assert_eq!(json["process"]["objects"][0]["failed_call"]["code"], "Forbidden.RAM");

    world.testbed.cloud.faults().clear();
    change(&world, "web", &json!({"metadata": {"annotations": {"example.com/look": "again"}}}));
    world.until_event("Service", "web", "EnsuredLoadBalancer").await;
    let page = ask(&[]).await;
    let id = &world.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"];
    let console = format!("console: https://slb.console.aliyun.com/slb/cn-hangzhou/slbs/{}\n", id.as_str().unwrap());
    for part in [&*console, "does not report the object as out of sync"] {
        assert!(page.contains(part), "{part:?} is missing:\n{page}");
    }
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_asks_for_a_load_balancer_and_has_no_controller_gets_one_event() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    with_class(&world, "theirs", "example.com/other");
    with_class(&world, "net", "alibabacloud.com/nlb");
    with_class(&world, "odd", "alibabacloud.com/odd");
    let ccm = world.start();
    let said = world.until_event("Service", "net", "ServiceNotHandled").await;
    assert!(said.contains("the controller nlb does not run: list \"nlb\" in controllers"), "{said}");
    let said = world.until_event("Service", "odd", "ServiceNotHandled").await;
    assert!(said.contains("spec.loadBalancerClass is \"alibabacloud.com/odd\", which is not known"), "{said}");

    // Another look does not repeat it, and a class of another vendor is not ours.
    change(&world, "net", &json!({"metadata": {"annotations": {"example.com/look": "again"}}}));
    world.until_quiet(QUIET).await;
    assert_eq!(world.events("Service", "theirs"), []);
    let counted =
        world.testbed.cluster.list("Event").into_iter().filter(|event| event["reason"] == "ServiceNotHandled");
    assert_eq!(counted.map(|event| event["count"].as_u64().unwrap_or(1)).collect::<Vec<_>>(), [1, 1]);

    // What it advises works.
    world.edit(|text| text.replace("\"service\"]", "\"service\", \"nlb\"]"));
    world
        .until("the Service has a name", |testbed| {
            let service = testbed.cluster.get("Service", "default", "net").unwrap();
            crate::nlb_lifecycle::hostname(&service).is_some()
        })
        .await;
    assert!(ccm.stop().await.success());
}
