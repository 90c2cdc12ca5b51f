//! Pitfalls of the design and of the cloud for users of the official controller, as far as
//! they need both worlds. The others are in `plan::clb::tests::pitfalls`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::json;
use sim::cloud::{Fault, Listener, LoadBalancer, Protocol};
use sim::cluster::{Endpoint, Moment, NodeSpec};

use crate::golden::NAMESPACE;
use crate::harness::{World, address};
use crate::official_controller_defects::{Fixture, nodes};

const MARK: &str = "kubernetes.do.not.delete";
const ENI: (&str, &str) = ("service.beta.kubernetes.io/backend-type", "eni");

fn group(port: u16) -> String {
    format!("k8s/{}/web/{NAMESPACE}/cexam", 31000 + port)
}

/// Whether a load balancer is of the cluster that is managed.
fn is_ours(lb: &LoadBalancer) -> bool {
    lb.tags.contains_key(MARK) && lb.tags["ack.aliyun.com"] == "cexam"
}

/// Attaches these pods of the first nodes.
fn attach(stand: &Fixture, addresses: &[&str]) {
    let endpoint = |ip: &&str| {
        let address: IpAddr = ip.parse().unwrap();
        Endpoint::ready(address, if ip.contains(".64.1") { "node-1" } else { "node-2" })
    };
    let endpoints: Vec<Endpoint> = addresses.iter().map(endpoint).collect();
    stand.world.testbed.cluster.set_endpoints(NAMESPACE, "web", &endpoints).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_an_id_of_its_own() {
    let stand = Fixture::new().await;
    let mut listener = Listener::running(&format!("k8s/80/web/{NAMESPACE}/cother"), "rsp-own-2");
    listener.status = "stopped".to_owned();
    stand.world.testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut("lb-user-2").unwrap();
        lb.listeners.insert((80, Protocol::Tcp), listener);
    });
    let before = stand.lb("lb-user-2")["listeners"].clone();
    stand.make("web", &[80], &[("id", "lb-user-2"), ("force-override-listeners", "true")]);
    stand.reported("web", "SyncLoadBalancerFailed", "cother").await;
    stand.quiet().await;
    assert_eq!(stand.lb("lb-user-2")["listeners"], before, "a Service of the same name in another cluster");
    // Without an id of its own, a cluster is not managed at all.
    stand.world.rewrite(|config| config.replace("cluster_id = \"cexam\"\n", ""));
    let refused = stand.world.run(&["check"]).await;
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cloud.cluster_id is missing"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_another_service_holds_is_not_taken() {
    let stand = Fixture::new().await;
    let shared = [("id", "lb-user-2"), ("force-override-listeners", "true")];
    stand.served("first", &[80], &shared).await;
    let before = stand.lb("lb-user-2")["listeners"].clone();
    stand.make("second", &[80, 81], &shared);
    stand.reported("second", "SyncLoadBalancerFailed", "first").await;
    let listeners = || stand.lb("lb-user-2")["listeners"].clone();
    stand.world.until("the free port is served", |_| !listeners()["81/tcp"].is_null()).await;
    stand.quiet().await;
    assert_eq!(listeners()["80/tcp"], before["80/tcp"]);
    stand.delete("second");
    stand.gone("second").await;
    assert_eq!(listeners(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_are_exchanged_where_there_is_no_room_for_both() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| cloud.limits.backends = 6);
    stand.make("web", &[80], &[ENI]);
    attach(&stand, &["192.168.64.11", "192.168.64.12", "192.168.64.13", "192.168.64.14"]);
    let servers = |stand: &Fixture| {
        let id = stand.service("web")["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].clone();
        let lb = stand.lb(id.as_str().unwrap_or_default());
        let backends =
            lb["vgroups"].as_object().into_iter().flatten().flat_map(|(_, it)| it.as_array().cloned().unwrap());
        backends.map(|it| it["server_ip"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    stand.world.until("the first are there", |_| servers(&stand).len() == 4).await;
    stand.quiet().await;
    let others = ["192.168.64.21", "192.168.64.22", "192.168.64.23", "192.168.64.24"];
    attach(&stand, &others);
    let wanted: BTreeSet<String> = others.iter().map(|ip| (*ip).to_owned()).collect();
    stand.world.until("the others are there", |_| servers(&stand) == wanted).await;
    stand.quiet().await;
    let warnings: Vec<_> = stand.world.events("Service", "web").into_iter().filter(|it| it.0 == "Warning").collect();
    assert_eq!(warnings, [], "it needed no second run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_named_and_holds_up_only_what_is_beyond_it() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| cloud.limits.listeners = 1);
    stand.make("web", &[80, 81], &[]);
    stand.reported("web", "SyncLoadBalancerFailed", "create listener 81/tcp").await;
    let running = stand.world.testbed.cloud.look(|cloud| {
        let lb = cloud.load_balancers.values().find(|lb| is_ours(lb)).unwrap();
        lb.listeners.iter().map(|((port, _), it)| (*port, it.status.clone())).collect::<Vec<_>>()
    });
    assert_eq!(running, [(80, "running".to_owned())]);
    let started =
        |call: &sim::cloud::Call| call.action == "StartLoadBalancerListener" && call.parameter("ListenerPort") == "81";
    assert!(!stand.world.testbed.cloud.calls().iter().any(started), "what is not there is not started");
    stand.world.testbed.cloud.edit(|cloud| cloud.limits.listeners = 50);
    stand.annotate("web", &[("scheduler", Some("wrr"))]);
    stand.world.until("with room it is served", |_| address(&stand.service("web")).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_refused_is_named_and_the_others_serve() {
    let stand = Fixture::new().await;
    let stranger = NodeSpec::new("stranger").provider_id("cn-hangzhou.i-nowhere");
    stand.world.testbed.cluster.add_node(&stranger).unwrap();
    stand.make("web", &[80], &[("id", "lb-user-1")]);
    stand.reported("web", "SyncLoadBalancerFailed", "i-nowhere").await;
    assert_eq!(stand.backends("lb-user-1", &group(80)), nodes(31080), "when their group is made");
    stand.world.testbed.cloud.edit(|cloud| {
        for group in cloud.load_balancers.get_mut("lb-user-1").unwrap().groups.values_mut() {
            group.backends.clear();
        }
    });
    stand.annotate("web", &[("default-weight", Some("50"))]);
    let half: BTreeSet<String> = nodes(31080).iter().map(|it| it.replace("=100", "=50")).collect();
    stand.world.until("and when it is filled", |_| stand.backends("lb-user-1", &group(80)) == half).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_deletion_counts_as_deleted() {
    let stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    let cloud = &stand.world.testbed.cloud;
    let mut deletion = cloud.faults().hold("DeleteLoadBalancer", 0, Moment::Before);
    stand.delete("web");
    deletion.arrived().await;
    cloud.edit(|cloud| cloud.load_balancers.remove(&id));
    deletion.release();
    stand.gone("web").await;
    let warnings: Vec<_> = stand.world.events("Service", "web").into_iter().filter(|it| it.0 == "Warning").collect();
    assert_eq!(warnings, [], "that is what was wanted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_a_user_that_holds_a_group_is_named() {
    let stand = Fixture::new().await;
    stand.served("web", &[80], &[("id", "lb-user-1")]).await;
    let id = stand.world.testbed.cloud.look(|cloud| {
        let groups = &cloud.load_balancers["lb-user-1"].groups;
        groups.iter().find(|(_, it)| it.name == group(80)).unwrap().0.clone()
    });
    let by_hand = Listener::running("by hand", &id);
    stand.world.testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut("lb-user-1").unwrap();
        lb.listeners.insert((9000, Protocol::Tcp), by_hand);
    });
    stand.delete("web");
    stand.reported("web", "CleanLoadBalancerFailed", "listener 9000/tcp").await;
    assert_eq!(stand.backends("lb-user-1", &group(80)), nodes(31080), "the user's listener is served as before");
    stand.world.testbed.cloud.edit(|cloud| {
        cloud.load_balancers.get_mut("lb-user-1").unwrap().listeners.clear();
    });
    stand.annotate("web", &[("scheduler", Some("wrr"))]);
    stand.gone("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_takes_no_pods_says_so() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut("lb-user-5").unwrap();
        (lb.instance_charge_type, lb.spec) = ("PayBySpec".to_owned(), String::new());
    });
    stand.make("web", &[80], &[("id", "lb-user-5"), ENI]);
    stand.reported("web", "SyncLoadBalancerFailed", "does not support backend servers of eni type").await;
    stand.delete("web");
    stand.gone("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_about_to_go_leaves_at_once() {
    let stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    let taint = json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}});
    stand.world.testbed.cluster.patch("Node", "", "node-3", &taint).unwrap();
    let group = format!("k8s/31080/web/{NAMESPACE}/cexam");
    let has_left = || !stand.backends(&id, &group).contains("i-d-3:31080=100");
    stand.world.until("it has left", |_| has_left()).await;
    assert_eq!(stand.backends(&id, &group).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stated_zone_is_kept_and_its_lack_is_reported() {
    let stand = Fixture::new().await;
    stand.world.testbed.cloud.edit(|cloud| cloud.sold_out_zones.extend(["cn-hangzhou-j".to_owned()]));
    stand.make("web", &[80], &[("master-zoneid", "cn-hangzhou-j")]);
    stand.reported("web", "SyncLoadBalancerFailed", "cn-hangzhou-j").await;
    let made = stand.world.testbed.cloud.look(|cloud| cloud.load_balancers.values().filter(|lb| is_ours(lb)).count());
    assert_eq!(made, 0, "no other zone is taken for the one that was asked for");
    stand.annotate("web", &[("master-zoneid", Some("cn-hangzhou-i"))]);
    stand.world.until("it is made in the other", |_| address(&stand.service("web")).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_vswitch_is_the_same_creation() {
    let world = World::new(&["service"], "").await;
    let node = world.testbed.join(1);
    world.testbed.cloud.faults().script("CreateLoadBalancer", Fault::code("VSwitchAvailableIpNotExist"));
    let intranet = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type";
    world.testbed.expose("web", &[80], &[&node], &[(intranet, "intranet")]);
    let ccm = world.start();
    world.until("it has an address", |_| address(&world.service("web")).is_some()).await;
    let calls = world.testbed.cloud.calls().into_iter().filter(|call| call.action == "CreateLoadBalancer");
    let tries: Vec<_> =
        calls.map(|call| (call.parameter("VSwitchId").to_owned(), call.parameter("ClientToken").to_owned())).collect();
    assert_eq!(tries.iter().map(|(vswitch, _)| vswitch.as_str()).collect::<Vec<_>>(), ["vsw-i", "vsw-j"]);
    assert_eq!(tries[0].1, tries[1].1, "nothing was made under it before");
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_from_inside_goes_where_it_must() {
    let stand = Fixture::new().await;
    stand.served("web", &[80], &[("proxy-protocol", "on")]).await;
    let ingress = || stand.service("web")["status"]["loadBalancer"]["ingress"].clone();
    assert_eq!(ingress()[0]["ipMode"], "Proxy", "the header would be missing on the short way");
    stand.annotate("web", &[("proxy-protocol", Some("off"))]);
    stand.world.until("the short way is open again", |_| ingress()[0]["ipMode"] == "VIP").await;
    stand.annotate("web", &[("hostname", Some("a.example.com"))]);
    stand.world.until("a name has no short way", |_| ingress()[0]["hostname"] == "a.example.com").await;
    assert_eq!((ingress().as_array().unwrap().len(), ingress()[0].get("ip")), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_changes_at_midnight_is_asked_for_once() {
    let mut stand = Fixture::new().await;
    let by_spec = ("instance-charge-type", "PayBySpec");
    let id = stand.served("web", &[80], &[by_spec, ("charge-type", "paybybandwidth"), ("bandwidth", "50")]).await;
    stand.world.testbed.cloud.edit(|cloud| cloud.dials.charge_changes_wait = true);
    stand.annotate("web", &[("charge-type", Some("paybytraffic")), ("bandwidth", None)]);
    let asked = |stand: &Fixture| stand.count("ModifyLoadBalancerInternetSpec");
    stand.world.until("it is asked for", |_| asked(&stand) == 1).await;
    stand.quiet().await;
    // A process that knows nothing of it reads the old charge.
    stand.ccm.kill().await;
    stand.ccm = stand.world.start();
    stand.reported("web", "LoadBalancerSettings", "changes at 2026-01-02T16:00:00Z").await;
    stand.quiet().await;
    assert_eq!((asked(&stand), &stand.lb(&id)["internet_charge_type"]), (1, &json!("paybybandwidth")));
    let failed = stand.world.events("Service", "web").into_iter().any(|it| it.1 == "SyncLoadBalancerFailed");
    assert!(!failed, "{:?}", stand.world.events("Service", "web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_of_the_same_name_in_another_cluster_is_not_taken() {
    let stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    // Its mark, and the tag of another cluster.
    stand.world.testbed.cloud.edit(|cloud| {
        let tags = &mut cloud.load_balancers.get_mut(&id).unwrap().tags;
        assert!(tags.contains_key(MARK));
        tags.insert("ack.aliyun.com".to_owned(), "cother".to_owned());
    });
    let writes = stand.world.testbed.cloud.writes().len();
    stand.ccm.signal("KILL");
    let _next = stand.world.start();
    stand.annotate("web", &[("scheduler", Some("wrr"))]);
    stand.reported("web", "SyncLoadBalancerFailed", "does not carry its mark").await;
    assert_eq!(stand.world.testbed.cloud.writes().len(), writes);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_load_balancers_with_the_mark_of_one_service_are_named_and_left() {
    let stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    stand.ccm.signal("KILL");
    stand.world.testbed.cloud.edit(|cloud| {
        let twin = LoadBalancer::clone(&cloud.load_balancers[&id]);
        cloud.load_balancers.insert("lb-twin".to_owned(), twin.into());
    });
    let label = json!({"metadata": {"labels": {"service.k8s.alibaba/loadbalancer-id": null}}});
    stand.world.testbed.cluster.patch("Service", NAMESPACE, "web", &label).unwrap();
    stand.annotate("web", &[("scheduler", Some("wrr"))]);
    let writes = stand.world.testbed.cloud.writes().len();
    let _next = stand.world.start();
    stand.reported("web", "SyncLoadBalancerFailed", "several load balancers carry the mark of this Service").await;
    stand.reported("web", "SyncLoadBalancerFailed", "lb-twin").await;
    assert_eq!(stand.world.testbed.cloud.writes().len(), writes, "nobody knows which is meant");
    stand.world.testbed.cloud.edit(|cloud| cloud.load_balancers.remove("lb-twin"));
    stand.annotate("web", &[("scheduler", Some("wlc"))]);
    stand.world.until("it goes on", |_| stand.lb(&id)["listeners"]["80/tcp"]["scheduler"] == "wlc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_no_longer_names_its_load_balancer_gets_an_event_and_can_leave() {
    let stand = Fixture::new().await;
    stand.served("web", &[80], &[("id", "lb-user-1")]).await;
    stand.annotate("web", &[("id", None)]);
    stand.reported("web", "SyncLoadBalancerFailed", "no annotation names it").await;
    assert_eq!(stand.backends("lb-user-1", &group(80)), nodes(31080), "it goes on serving");
    stand.delete("web");
    stand.gone("web").await;
    assert!(stand.lb("lb-user-1")["vgroups"].get(group(80)).is_none() && !stand.lb("lb-user-1").is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_of_ours_is_not_reused_by_its_own_service_and_not_lost() {
    let stand = Fixture::new().await;
    let id = stand.served("web", &[80], &[]).await;
    let before = stand.lb(&id);
    stand.annotate("web", &[("id", Some(&id))]);
    stand.reported("web", "SyncLoadBalancerFailed", "was not made for Kubernetes").await;
    assert_eq!(stand.lb(&id), before);
    stand.delete("web");
    stand.reported("web", "CleanLoadBalancerFailed", "was made for this Service").await;
    assert_eq!(stand.lb(&id), before, "as long as it is named, it stays");
    stand.annotate("web", &[("id", None)]);
    stand.gone("web").await;
    assert!(stand.lb(&id).is_null());
}
