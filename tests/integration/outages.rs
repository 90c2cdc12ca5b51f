//! Outages of the API server, the cloud and the credentials, broken Services, and the recovery from each.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim::cloud::{Fault, Role};
use sim::cluster::{Match, Moment};
use sim::testbed::{CLUSTER_ID, REGION, Testbed, instance};

use crate::harness::{ALL, Ccm, HASTE, World, address, is_ready};
use crate::kinds::Kind;

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";

fn annotate(world: &World, service: &str, annotations: &[(&str, Value)]) {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect();
    let changes = json!({"metadata": {"annotations": annotations}});
    world.testbed.cluster.patch("Service", "default", service, &changes).unwrap();
}

async fn until_address(world: &World, service: &str) {
    let what = format!("Service {service} has an address");
    world.until(&what, |_| address(&world.service(service)).is_some()).await;
}

async fn until_ready(world: &World, node: &str) {
    world.until(&format!("{node} is initialised"), |_| is_ready(&world.node(node))).await;
}

/// Where a load balancer of a Service is, by the label that the Service has.
fn load_balancer(world: &World, service: &str) -> String {
    world.service(service)["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap().to_owned()
}

async fn finish(world: &World, ccm: Ccm) {
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away() {
    tokio::join!(no_api_server_yet(), the_api_server_goes_and_comes());
}

async fn no_api_server_yet() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.cluster.go_away().await;
    world.testbed.join(1);
    let ccm = world.start_serving();
    ccm.until_page("/livez", |status, _| status == 200).await;
    let why = ccm.until_page("/readyz", |status, text| status == 503 && text.contains("[-]kubernetes")).await;
    assert!(why.contains("API server"), "{why}");
    world.until("the log says what is waited for", |_| ccm.log().contains("waiting for the API server")).await;
    world.testbed.cluster.come_back().await.unwrap();
    until_ready(&world, "node-1").await;
    ccm.until_page("/readyz", |status, _| status == 200).await;
    finish(&world, ccm).await;
}

async fn the_api_server_goes_and_comes() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start_serving();
    world.testbed.join(1);
    until_ready(&world, "node-1").await;
    let cluster = &world.testbed.cluster;

    cluster.go_away().await;
    ccm.until_page("/readyz", |status, text| status == 503 && text.contains("[-]kubernetes")).await;
    world.testbed.join(2);
    cluster.come_back().await.unwrap();
    until_ready(&world, "node-2").await;

    cluster.drop_watches();
    world.testbed.join(3);
    until_ready(&world, "node-3").await;

    cluster.break_watches();
    world.testbed.join(4);
    until_ready(&world, "node-4").await;

    // What was deleted while nobody watched, and is no longer in the history, is seen all the same: its instance is gone.
    for refused in [false, true] {
        let number = if refused { 6 } else { 5 };
        cluster.refuse_gone_watches(refused);
        cluster.go_away().await;
        world.testbed.join(number);
        cluster.delete_node(&format!("node-{}", number - 4)).unwrap();
        world.testbed.cloud.release_instance(&instance(number - 4));
        cluster.compact();
        cluster.come_back().await.unwrap();
        until_ready(&world, &format!("node-{number}")).await;
        let cidr = format!("10.98.{}.0/24", number - 4);
        let routed = |cloud: &sim::cloud::Account| cloud.route_tables["vtb-play"].entries.contains_key(&cidr);
        world.until("the route of the node is gone", |testbed| !testbed.cloud.look(routed)).await;
    }
    ccm.until_page("/readyz", |status, _| status == 200).await;
    finish(&world, ccm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials() {
    tokio::join!(a_wrong_key(), an_instance_role(), an_assumed_role(), an_oidc_role());
}

async fn a_wrong_key() {
    let world = World::new(ALL, HASTE).await;
    let secret = world.folder().join("access-key-secret");
    let right = std::fs::read_to_string(&secret).unwrap();
    std::fs::write(&secret, "something-else").unwrap();
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let ccm = world.start_serving();

    let refused =
        |status, text: &str| status == 503 && text.contains("[-]cloud") && text.contains("SignatureDoesNotMatch");
    ccm.until_page("/readyz", refused).await;
    for (kind, name, reason) in [("Node", "node-1", "SyncNodeFailed"), ("Service", "web", "SyncLoadBalancerFailed")] {
        let message = world.until_event(kind, name, reason).await;
        assert!(message.contains("SignatureDoesNotMatch"), "{message}");
    }
    assert!(ccm.log().contains("SignatureDoesNotMatch"));
    let metric = "alicloud_ccm_cloud_calls_total{action=\"DescribeInstances\",outcome=\"credential\"}";
    ccm.until_page("/metrics", |_, text| text.contains(metric)).await;
    for secret in [right.as_str(), "something-else"] {
        assert!(!world.logs().contains(secret), "a secret is in the log");
    }
    // Whoever is refused does not hammer.
    world.take_calls();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let calls: usize = world.take_calls().values().sum();
    assert!(calls <= 10, "{calls} calls in 5 s");

    std::fs::write(&secret, right).unwrap();
    until_ready(&world, "node-1").await;
    until_address(&world, "web").await;
    ccm.until_page("/readyz", |status, _| status == 200).await;
    finish(&world, ccm).await;
}

/// The file that is enough on an instance, but for the addresses of the two worlds.
fn minimal(world: &World) -> String {
    let address = world.testbed.cloud_address();
    format!(
        "controllers = [\"node\", \"service\"]\n[cloud]\ncluster_id = \"{CLUSTER_ID}\"\n\
         [cloud.endpoints]\nscheme = \"http\"\necs = \"{address}\"\nvpc = \"{address}\"\nslb = \"{address}\"\n\
         sts = \"{address}\"\nmetadata = \"http://{address}\"\n[kubernetes]\nkubeconfig = \"kubeconfig\"\n\
         [server]\nport = 0\n[node]\nperiod = \"10s\"\naggregation = \"0s\"\n"
    )
}

async fn an_instance_role() {
    let world = World::new(ALL, "").await;
    world.rewrite(|_| minimal(&world));
    world.testbed.rent(9);
    world.testbed.cloud.edit(|cloud| {
        cloud.keys.clear();
        cloud.roles.insert("ccm".into(), Role { max_session: 3600, denied: [].into() });
        cloud.metadata.instance = Some(instance(9));
        cloud.metadata.role = Some("ccm".into());
        cloud.metadata.token_required = true;
        cloud.metadata.key_lifetime = Some(Duration::from_secs(4));
    });
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[(&format!("{PREFIX}address-type"), "intranet")]);
    let ccm = world.start_serving();
    until_ready(&world, "node-1").await;
    until_address(&world, "web").await;
    let log = ccm.log();
    assert!(log.contains(&format!("region=\"{REGION}\" vpc=\"vpc-play\"")), "{log}");
    let vswitch = world.testbed.cloud.look(|cloud| cloud.load_balancers.values().next().unwrap().vswitch.clone());
    assert_eq!(vswitch, "vsw-i", "the vSwitch of the instance");

    // Keys end after seconds; the passes go on with new ones.
    let passes = world.testbed.cloud.count("DescribeInstances");
    world.until("two more passes", |testbed| testbed.cloud.count("DescribeInstances") >= passes + 2).await;
    let calls = world.testbed.cloud.calls();
    let refused: Vec<_> = calls.iter().filter(|call| call.product != "metadata" && call.outcome != "OK").collect();
    assert!(refused.is_empty(), "{refused:?}");
    let keys = calls.iter().filter(|call| call.action.ends_with("security-credentials/ccm")).count();
    assert!(keys >= 2, "{keys} sets of keys");

    // The metric shows when the keys end, and follows as they are renewed.
    let shown = end_of_credentials(&ccm.until_page("/metrics", |_, text| end_of_credentials(text).is_some()).await);
    ccm.until_page("/metrics", |_, text| end_of_credentials(text) > shown).await;

    // Without a role there is one clear reason, and the alert for keys that have ended fires.
    world.testbed.cloud.edit(|cloud| cloud.metadata.role = None);
    let why = ccm.until_page("/readyz", |status, text| status == 503 && text.contains("[-]cloud")).await;
    assert!(why.contains("role"), "{why}");
    let leads = |text: &str| text.contains("alicloud_ccm_leader 1");
    let has_ended =
        |text: &str| end_of_credentials(text).is_some_and(|end| end < alicloud_ccm::clock::now().as_second());
    ccm.until_page("/metrics", |_, text| leads(text) && has_ended(text)).await;

    // Keys without an end take the place of those with one: the alert ends.
    world.testbed.cloud.edit(|cloud| *cloud = std::mem::take(cloud).with_key("LTAIlasting", "lasting-secret"));
    let lasting = "[cloud.credentials]\naccess_key_id = \"LTAIlasting\"\naccess_key_secret = \"lasting-secret\"\n";
    world.edit(|text| text + lasting);
    ccm.until_page("/readyz", |status, _| status == 200).await;
    ccm.until_page("/metrics", |_, text| leads(text) && end_of_credentials(text).is_none()).await;
    finish(&world, ccm).await;
}

/// The value of the series that the alert for credentials that have ended asks for.
fn end_of_credentials(page: &str) -> Option<i64> {
    let rules = include_str!("../../deploy/monitoring/alerts.yaml");
    let (_, rule) = rules.split_once("alert: AlicloudCcmCredentialsExpired").unwrap();
    let (series, _) = rule.split_once("expr: ").unwrap().1.split_once(" < time()").unwrap();
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

fn with_role(world: &World) -> String {
    world.testbed.cloud.edit(|cloud| {
        cloud.roles.insert("ccm".into(), Role { max_session: 3600, denied: [].into() });
        format!("acs:ram::{}:role/ccm", cloud.id)
    })
}

async fn an_assumed_role() {
    let world = World::new(ALL, HASTE).await;
    let arn = with_role(&world);
    world
        .rewrite(|text| text.replace("[cloud.credentials]\n", &format!("[cloud.credentials]\nrole_arn = \"{arn}\"\n")));
    world.testbed.join(1);
    let ccm = world.start();
    until_ready(&world, "node-1").await;
    assert_eq!(world.testbed.cloud.count("AssumeRole"), 1);
    finish(&world, ccm).await;
}

async fn an_oidc_role() {
    let world = World::new(ALL, HASTE).await;
    let arn = with_role(&world);
    let token = world.folder().join("token");
    world.testbed.cloud.edit(|cloud| {
        cloud.keys.clear();
        cloud.oidc_token = Some("the-token-of-the-pod".into());
    });
    world.rewrite(|text| text.lines().filter(|line| !line.starts_with("access_key")).collect::<Vec<_>>().join("\n"));
    std::fs::write(&token, "an-old-token").unwrap();
    world.testbed.join(1);
    let provider = format!("acs:ram::{}:oidc-provider/cluster", world.testbed.cloud.look(|cloud| cloud.id.clone()));
    let environment = [
        ("ALIBABA_CLOUD_ROLE_ARN", arn.as_str()),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", &provider),
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", token.to_str().unwrap()),
    ];
    let ccm = world.start_with(&[], &environment);
    let message = world.until_event("Node", "node-1", "SyncNodeFailed").await;
    assert!(message.contains("AuthenticationFail.OIDCToken.Invalid"), "{message}");
    std::fs::write(&token, "the-token-of-the-pod").unwrap();
    until_ready(&world, "node-1").await;
    assert!(!world.logs().contains("the-token-of-the-pod"));
    finish(&world, ccm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_in_trouble() {
    let of = async |kind: Kind| {
        tokio::join!(
            impossible_annotations(kind),
            an_answer_that_cannot_be_read(kind),
            throttled(kind),
            deleted_by_hand(kind),
            deleted_by_hand_but_named_by_id(kind),
        );
    };
    tokio::join!(of(Kind::Clb), of(Kind::Nlb), a_full_vswitch());
}

async fn until_published(world: &World, kind: Kind, service: &str) {
    let what = format!("Service {service} is published");
    world.until(&what, |_| kind.published(&world.service(service)).is_some()).await;
}

/// Two nodes.
async fn two_nodes(kind: Kind) -> World {
    let world = World::new(&[kind.controller()], "").await;
    for number in [1, 2] {
        world.testbed.rent(number);
        let node = sim::cluster::NodeSpec::new(&format!("node-{number}"));
        world.testbed.cluster.add_node(&node.provider_id(&format!("{REGION}.{}", instance(number)))).unwrap();
    }
    world
}

/// The same, and the binary; for Services only.
async fn with_services(kind: Kind) -> (World, Ccm) {
    let world = two_nodes(kind).await;
    let ccm = world.start_serving();
    (world, ccm)
}

/// The same with a Service `web` that has its address.
async fn served(kind: Kind) -> (World, Ccm) {
    let (world, ccm) = with_services(kind).await;
    kind.expose(&world.testbed, "web", &[80], &[1]);
    until_published(&world, kind, "web").await;
    world.until_quiet(Duration::from_millis(500)).await;
    (world, ccm)
}

async fn impossible_annotations(kind: Kind) {
    let (world, ccm) = served(kind).await;
    let before = world.testbed.cloud.snapshot();
    let wrong = [
        ("scheduler", json!("fastest")),
        ("health-check-interval", json!("a minute")),
        ("protocol-port", json!("gopher:80")),
    ];
    annotate(&world, "web", &wrong);
    let message = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    for (key, given) in &wrong {
        assert!(message.contains(&format!("{PREFIX}{key}")), "{key} is missing: {message}");
        assert!(message.contains(given.as_str().unwrap()), "{given} is missing: {message}");
    }
    let lower = message.to_lowercase();
    assert!(lower.contains("wrr") && lower.contains("tcp"), "what is allowed is missing: {message}");
    assert_eq!(world.testbed.cloud.snapshot(), before, "the load balancer is left as it is");

    kind.expose(&world.testbed, "other", &[80], &[1]);
    until_published(&world, kind, "other").await;
    let warnings = |service: &str| world.events("Service", service).iter().filter(|event| event.0 == "Warning").count();
    assert_eq!((warnings("web"), warnings("other")), (1, 0));

    annotate(&world, "web", &wrong.map(|(key, _)| (key, Value::Null)));
    annotate(&world, "web", &[("scheduler", json!("wlc"))]);
    let is_set = |testbed: &Testbed| testbed.cloud.snapshot().to_string().contains("\"wlc\"");
    world.until("the corrected annotations are taken", is_set).await;
    finish(&world, ccm).await;
}

async fn an_answer_that_cannot_be_read(kind: Kind) {
    let (world, ccm) = served(kind).await;
    world.testbed.cloud.faults().always(kind.reads_listeners(), Fault::Garbled);
    annotate(&world, "web", &[("scheduler", json!("wlc"))]);
    let message = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    assert!(message.contains(kind.reads_listeners()), "the action is missing: {message}");
    let id = message.rsplit_once("request ").map(|(_, rest)| rest.split([']', '.', ' ']).next().unwrap().len());
    assert_eq!(id, Some(36), "the request id is missing: {message}");
    kind.expose(&world.testbed, "other", &[80], &[1]);
    until_published(&world, kind, "other").await;

    world.testbed.cloud.faults().clear();
    annotate(&world, "web", &[("scheduler", json!("tch"))]);
    let is_set = |testbed: &Testbed| testbed.cloud.snapshot().to_string().contains("\"tch\"");
    world.until("it goes on", is_set).await;
    finish(&world, ccm).await;
}

async fn throttled(kind: Kind) {
    let (world, ccm) = with_services(kind).await;
    kind.expose(&world.testbed, "old", &[80], &[1]);
    until_published(&world, kind, "old").await;
    world.testbed.cloud.faults().script(kind.creates_group(), Fault::Throttle);
    kind.expose(&world.testbed, "web", &[80], &[1]);
    world.until("flow control has answered", |testbed| testbed.cloud.faults().is_spent()).await;
    world.testbed.cluster.delete("Service", "default", "old").unwrap();
    world.until("other work goes on", |_| world.service("old").is_null()).await;
    // The throttled call is retried after a short backoff.
    until_published(&world, kind, "web").await;
    assert_eq!(
        world.testbed.cloud.count(kind.creates_group()),
        3,
        "one for the old Service, a throttled one, its retry"
    );
    assert_eq!(kind.count(&world.testbed), 1);
    let metric =
        format!("alicloud_ccm_cloud_calls_total{{action=\"{}\",outcome=\"throttled\"}} 1", kind.creates_group());
    ccm.until_page("/metrics", |_, text| text.contains(&metric)).await;
    let warnings = world.events("Service", "web").into_iter().filter(|event| event.0 == "Warning").count();
    assert_eq!(warnings, 0, "what passes by itself is nobody's business");
    finish(&world, ccm).await;
}

async fn deleted_by_hand(kind: Kind) {
    let (world, ccm) = served(kind).await;
    let first = load_balancer(&world, "web");
    let began = Instant::now();
    kind.delete(&world.testbed, &first);
    annotate(&world, "web", &[("scheduler", json!("wlc"))]);
    let message = world.until_event("Service", "web", "LoadBalancerRecreated").await;
    assert!(message.contains(&first) && message.contains("address may be another"), "{message}");
    assert!(began.elapsed() > Duration::from_secs(9), "one sighting is not enough: {:?}", began.elapsed());
    let is_new = |testbed: &Testbed| {
        let id = load_balancer(&world, "web");
        let published = kind.published(&world.service("web")).map(str::to_owned);
        id != first && published.is_some() && kind.publishes(testbed, &id) == published
    };
    world.until("there is another one", is_new).await;
    assert_eq!(kind.count(&world.testbed), 1);
    finish(&world, ccm).await;
}

async fn deleted_by_hand_but_named_by_id(kind: Kind) {
    let world = two_nodes(kind).await;
    kind.of_user(&world.testbed, "lb-own");
    let published = kind.publishes(&world.testbed, "lb-own");
    kind.expose(&world.testbed, "web", &[80], &[1]);
    annotate(&world, "web", &[("id", json!("lb-own")), ("force-override-listeners", json!("true"))]);
    let ccm = world.start_serving();
    until_published(&world, kind, "web").await;
    world.until_quiet(Duration::from_millis(500)).await;
    assert_eq!(kind.published(&world.service("web")).map(str::to_owned), published);

    kind.delete(&world.testbed, "lb-own");
    annotate(&world, "web", &[("scheduler", json!("wlc"))]);
    let named = |_: &Testbed| {
        world.events("Service", "web").iter().any(|event| event.0 == "Warning" && event.2.contains("lb-own"))
    };
    world.until("the user is reported which one is missing", named).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(world.testbed.cloud.count("CreateLoadBalancer"), 0);
    world.testbed.cluster.delete("Service", "default", "web").unwrap();
    world.until("the Service can go", |_| world.service("web").is_null()).await;
    finish(&world, ccm).await;
}

async fn a_full_vswitch() {
    let (world, ccm) = with_services(Kind::Clb).await;
    world.testbed.cloud.edit(|cloud| cloud.vswitches.get_mut("vsw-i").unwrap().available_ips = 0);
    world.testbed.expose("web", &[80], &["node-1"], &[(&format!("{PREFIX}address-type"), "intranet")]);
    until_address(&world, "web").await;
    let vswitch = world.testbed.cloud.look(|cloud| cloud.load_balancers.values().next().unwrap().vswitch.clone());
    assert_eq!(vswitch, "vsw-j");
    let reported = |_: &Testbed| {
        let events = world.events("Service", "web").into_iter();
        let placed: Vec<_> = events.filter(|event| event.1 == "LoadBalancerPlaced").map(|event| event.2).collect();
        placed.iter().any(|text| text.starts_with("No load balancer can be made in vSwitch vsw-i"))
            && placed.iter().any(|text| text.contains("was made in vSwitch vsw-j"))
    };
    world.until("the user is reported where it is, and why", reported).await;
    finish(&world, ccm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_for_a_service_that_goes_before_its_finalizer_is_on() {
    let world = World::new(&["service"], "").await;
    let cluster = &world.testbed.cluster;
    let ccm = world.start();
    let mut finalizer = cluster.hold(Match::new("patch", "services").named("web"), Moment::Before);
    world.testbed.expose("web", &[80], &[], &[]);
    finalizer.arrived().await;
    cluster.delete("Service", "default", "web").unwrap();
    assert_eq!(cluster.get("Service", "default", "web"), None, "nobody holds it");
    finalizer.release();
    world.testbed.expose("shop", &[80], &[], &[]);
    until_address(&world, "shop").await;
    world.until_still(Duration::from_secs(1)).await;
    assert_eq!(world.testbed.cloud.look(|cloud| cloud.load_balancers.len()), 1, "one for shop, which is there");
    finish(&world, ccm).await;
}
