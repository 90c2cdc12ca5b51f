//! The command `doctor`: of each broken world it names the true cause first, and what it advises works.

use std::collections::BTreeSet;
use std::path::Path;

use alicloud_ccm::plan::route::mark::{RouteCluster, description};
use flate2::read::GzDecoder;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use sim::cloud::{AccessKey, Fault, LoadBalancer, RouteEntry};
use sim::cluster::{NodeSpec, Version};
use sim::testbed::{ACCESS_KEY, CLUSTER_ID, REGION, ROUTE_TABLE, Testbed, VPC, instance};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::certificate_rotation::{Authority, Front, address_of, kubeconfig, listener};
use crate::harness::{ALL, EVERY, HASTE, World, address, is_ready};
use crate::permissions::documents;
use crate::service_features::key;

/// Worlds that are looked at side by side.
const AT_ONCE: usize = 4;
/// Who runs the binary here.
const USER: &str = "kubernetes-admin";

/// One thing that is wrong with a world that is right otherwise.
struct BrokenWorld {
    name: &'static str,
    controllers: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    breaks: fn(&World),
    /// What the first line says, after the severity.
    cause: &'static str,
    code: i32,
    /// What the finding advises, if it can be followed here.
    remedy: Option<fn(&World)>,
}

const fn broken(name: &'static str, breaks: fn(&World), cause: &'static str, code: i32) -> BrokenWorld {
    BrokenWorld { name, controllers: ALL, environment: &[], breaks, cause, code, remedy: None }
}

impl BrokenWorld {
    const fn repaired(mut self, remedy: fn(&World)) -> Self {
        self.remedy = Some(remedy);
        self
    }

    const fn with(mut self, controllers: &'static [&'static str]) -> Self {
        self.controllers = controllers;
        self
    }

    /// With these variables in the environment of the first look.
    const fn beside(mut self, environment: &'static [(&'static str, &'static str)]) -> Self {
        self.environment = environment;
        self
    }

    /// What is wrong with the answer of `doctor`; `None` if nothing is.
    async fn judge(&self) -> Option<String> {
        let Self { name, controllers, environment, breaks, cause, code, remedy } = self;
        let world = healthy(controllers).await;
        breaks(&world);
        let (page, ended) = doctor_with(&world, environment).await;
        if !first_line(&page).contains(cause) || ended != Some(*code) {
            return Some(format!("{name}: {cause:?} with code {code} is not said first, but with {ended:?}:\n{page}"));
        }
        if cause.starts_with("endpoints: ") && page.contains("error    credentials: ") {
            return Some(format!("{name}: the credentials are blamed, too:\n{page}"));
        }
        if !page.contains("to do: ") {
            return Some(format!("{name}: no remedy:\n{page}"));
        }
        remedy.as_ref()?(&world);
        let (page, _) = doctor(&world).await;
        (page.contains(cause)).then(|| format!("{name}: what was advised does not help:\n{page}"))
    }
}

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

fn name_server(world: &World, url: &str) {
    world.rewrite(|text| text.replace("[kubernetes]\n", &format!("[kubernetes]\nserver = {url:?}\n")));
}

fn rewrite_kubeconfig(world: &World, from: &str, to: &str) {
    let path = world.folder().join("kubeconfig");
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace(from, to)).unwrap();
}

/// Lets an API server with TLS, whose certificate names this, stand before the one that has none. The kubeconfig trusts the
/// authority of that certificate, or another.
fn demand_tls(world: &World, name: &str, is_trusted: bool) {
    let authority = Authority::new();
    // Dropping it would cut its connections.
    let port = Box::leak(Box::new(Front::before(&address_of(world), &authority.sign_for(name), None))).port;
    let trusted = if is_trusted { authority } else { Authority::new() };
    std::fs::write(world.folder().join("ca.crt"), trusted.certificate.pem()).unwrap();
    std::fs::write(world.folder().join("kubeconfig"), kubeconfig(port, "certificate-authority: ca.crt", "")).unwrap();
}

/// Answers as a server with TLS that is written in Go answers to HTTP.
fn answer_that_tls_is_needed(world: &World) {
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
            if read > 0 {
                let _ = stream.write_all(answer).await;
            }
        }
    });
    let text = kubeconfig(port, "", "").replace("https://", "http://").replace(", }", "}");
    std::fs::write(world.folder().join("kubeconfig"), text).unwrap();
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

/// All that fail are told at once.
async fn judge(worlds: Vec<BrokenWorld>) {
    let wrong: Vec<String> =
        stream::iter(&worlds).map(BrokenWorld::judge).buffered(AT_ONCE).filter_map(async |it| it).collect().await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), worlds.len(), wrong.join("\n\n"));
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

fn uid(world: &World) -> String {
    world.testbed.cluster.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// An entry of the route table with the mark of a cluster with this uid.
fn mark_route(world: &World, uid: String, destination: &str, node: &str) {
    let cluster = RouteCluster { id: CLUSTER_ID.to_owned(), uid };
    let mut entry = RouteEntry::to_instance(&format!("rte-{node}"), &instance(9));
    entry.description = description(&cluster, node);
    add_route(world, destination, entry);
}

fn add_route(world: &World, destination: &str, entry: RouteEntry) {
    world.testbed.cloud.edit(|cloud| {
        cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.insert(destination.to_owned(), entry);
    });
}

fn official(replicas: u32) -> Value {
    let container = json!({"name": "ccm", "image": "registry.example/acs/cloud-controller-manager-amd64:v2.14.0",
        "command": ["/cloud-controller-manager", "--cloud-provider=alicloud"]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "ccm"}},
            "template": {"metadata": {"labels": {"app": "ccm"}}, "spec": {"containers": [container]}}}})
}

fn patch_node(world: &World, name: &str, change: &Value) {
    world.testbed.cluster.patch("Node", "", name, change).unwrap();
}

/// Makes a Service with a class.
pub(crate) fn with_class(world: &World, name: &str, class: &str) {
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": class, "selector": {"app": name},
        "ports": [{"port": 80, "protocol": "TCP"}]});
    let metadata = json!({"name": name, "namespace": "default"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    world.testbed.cluster.create(service).unwrap();
}

fn ports(count: u16) -> Vec<u16> {
    (1001..1001 + count).collect()
}

fn expose(world: &World, annotations: &[(&str, &str)]) {
    world.testbed.expose("web", &[80], &["node-1"], annotations);
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
    expose(&world, &[]);
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
async fn of_broken_ways_to_the_cloud_the_cause_is_named_first() {
    judge(vec![
        broken(
            "an unknown access key",
            |world| world.testbed.cloud.edit(|cloud| cloud.keys.clear()),
            "credentials: the cloud does not know the access key",
            1,
        )
        .repaired(|world| {
            world.testbed.cloud.edit(|cloud| {
                cloud.keys.insert(ACCESS_KEY.0.to_owned(), AccessKey::permanent(ACCESS_KEY.1));
            });
        }),
        broken(
            "a wrong secret",
            |world| std::fs::write(world.folder().join("access-key-secret"), "another").unwrap(),
            "credentials: the secret does not belong to the access key",
            1,
        )
        .repaired(|world| std::fs::write(world.folder().join("access-key-secret"), ACCESS_KEY.1).unwrap()),
        broken(
            "a role that is not there",
            |world| {
                world.rewrite(|text| {
                    text.replace(
                        "[cloud.credentials]\n",
                        "[cloud.credentials]\nrole_arn = \"acs:ram::1234567890123456:role/none\"\n",
                    )
                });
            },
            "credentials: no call to the cloud works",
            1,
        )
        .repaired(|world| world.testbed.cloud.edit(|cloud| *cloud = cloud.clone().with_role("none"))),
        broken(
            "no permission to read load balancers",
            |world| deny(world, &["slb:DescribeLoadBalancerAttribute"]),
            "permissions: missing: slb:DescribeLoadBalancerAttribute",
            1,
        )
        .repaired(grant),
        broken(
            "no permission to delete classic load balancers",
            |world| deny(world, &["slb:DeleteLoadBalancer"]),
            "permissions: missing: slb:DeleteLoadBalancer",
            1,
        )
        .repaired(grant),
        broken(
            "no permission to make listeners of classic load balancers",
            |world| deny(world, &["slb:CreateLoadBalancerTCPListener"]),
            "permissions: missing: slb:CreateLoadBalancerTCPListener",
            1,
        )
        .repaired(grant),
        broken(
            "no permission to list instances",
            |world| deny(world, &["ecs:DescribeInstances"]),
            "permissions: missing: ecs:DescribeInstances",
            1,
        )
        .repaired(grant),
        broken(
            "no permission to make routes",
            |world| deny(world, &["vpc:CreateRouteEntries"]),
            "permissions: missing: vpc:CreateRouteEntries",
            1,
        )
        .repaired(grant),
        broken(
            "no permission to delete network load balancers",
            |world| deny(world, &["nlb:DeleteLoadBalancer"]),
            "permissions: missing: nlb:DeleteLoadBalancer",
            1,
        )
        .with(EVERY)
        .repaired(grant),
        broken(
            "a throttled action",
            |world| world.testbed.cloud.faults().always("DescribeServerCertificates", Fault::Throttle),
            "permissions: the cloud throttles: slb:DescribeServerCertificates",
            2,
        )
        .repaired(|world| world.testbed.cloud.calm()),
        broken(
            "a clock that is an hour off",
            |world| world.testbed.cloud.advance(jiff::SignedDuration::from_hours(1)),
            "s behind the cloud's",
            1,
        )
        .repaired(|world| world.testbed.cloud.advance(jiff::SignedDuration::from_hours(-1))),
        broken(
            "no metadata service where the region is not stated",
            |world| {
                world.testbed.cloud.edit(|cloud| cloud.metadata.disabled = true);
                world.rewrite(|text| text.replace(&format!("region = \"{REGION}\"\n"), ""));
            },
            "place: the region or the VPC of the cluster is not known",
            1,
        )
        .repaired(|world| {
            world.rewrite(|text| text.replace("[cloud]\n", &format!("[cloud]\nregion = \"{REGION}\"\n")))
        }),
        broken(
            "a VPC that the account does not have",
            |world| world.rewrite(|text| text.replace(VPC, "vpc-other")),
            "place: the account has no vpc-other",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("vpc-other", VPC))),
        broken(
            "a clock that is 20 minutes off, and an API server that does not answer",
            |world| {
                world.testbed.cloud.advance(jiff::SignedDuration::from_mins(20));
                name_server(world, "http://127.0.0.1:1");
            },
            "clock: this machine's clock is 1",
            1,
        ),
        broken(
            "a temporary key without its token",
            |world| {
                world.testbed.cloud.faults().always("DescribeInstances", Fault::code("MissingSecurityToken"));
                world.testbed.cloud.faults().always("GetCallerIdentity", Fault::code("MissingSecurityToken"));
            },
            "credentials: the access key is temporary, and its security token is missing",
            1,
        )
        .repaired(|world| world.testbed.cloud.calm()),
        broken(
            "an endpoint of instances that does not answer",
            |world| world.rewrite(|text| text.replace("ecs = \"127.0.0.1:", "ecs = \"127.0.0.1:1\" # ")),
            "endpoints: http://127.0.0.1:1/ does not answer (ecs)",
            1,
        ),
        broken(
            "an endpoint that does not answer",
            |world| world.rewrite(|text| text.replace("slb = \"127.0.0.1:", "slb = \"127.0.0.1:1\" # ")),
            "endpoints: http://127.0.0.1:1/ does not answer (slb)",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("slb = \"127.0.0.1:1\" # ", "slb = \"127.0.0.1:"))),
        broken(
            "a proxy in the environment that is not there",
            |_| {},
            "does not answer through the proxy of HTTP_PROXY",
            1,
        )
        .beside(&[("HTTP_PROXY", "http://127.0.0.1:1")]),
        broken(
            "an endpoint that speaks no TLS",
            |world| world.rewrite(|text| text.replace("scheme = \"http\"", "scheme = \"https\"")),
            "endpoints: https://127.0.0.1:",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("scheme = \"https\"", "scheme = \"http\""))),
        broken(
            "an unknown key of the configuration",
            |world| world.rewrite(|text| text.replace("vpc_id", "vcp_id")),
            "configuration: the configuration cannot be used",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("vcp_id", "vpc_id"))),
        broken(
            "a configuration for another VPC than that of this machine",
            |world| {
                world.testbed.cloud.edit(|cloud| {
                    let account = cloud.clone().with_vpc("vpc-2", "172.16.0.0/16");
                    *cloud = account.with_vswitch("vsw-2", "vpc-2", "cn-hangzhou-i", "172.16.0.0/24");
                    cloud.add_instance("i-here", "here", "vsw-2", "172.16.0.9");
                    cloud.metadata.instance = Some("i-here".to_owned());
                });
            },
            "place: the configuration names region cn-hangzhou, vpc-play",
            2,
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_clusters_the_cause_is_named_first() {
    judge(vec![
        broken(
            "a token that the API server does not know",
            |world| {
                world.testbed.cluster.admit("another", USER);
                rewrite_kubeconfig(world, "user: {}", "user: { token: wrong }");
            },
            "kubernetes: the API server does not accept the credentials",
            1,
        )
        .repaired(|world| rewrite_kubeconfig(world, "wrong", "another")),
        broken(
            "https for http",
            |world| rewrite_kubeconfig(world, "http://", "https://"),
            "kubernetes: the configured address speaks no TLS",
            1,
        )
        .repaired(|world| rewrite_kubeconfig(world, "https://", "http://")),
        broken(
            "an authority of the API server that is not known",
            |world| demand_tls(world, "127.0.0.1", false),
            "kubernetes: an unknown CA has signed the certificate of the API server",
            1,
        ),
        broken(
            "a certificate of the API server for another name",
            |world| demand_tls(world, "elsewhere.example", true),
            "kubernetes: the certificate of the API server is not valid for this address and this time",
            1,
        ),
        broken(
            "http for https",
            answer_that_tls_is_needed,
            "kubernetes: the API server speaks TLS, and the configured address begins with http://",
            1,
        ),
        broken(
            "a certificate file that is not there",
            |world| rewrite_kubeconfig(world, "cluster: { ", "cluster: { certificate-authority: none, "),
            "kubernetes: the credentials for the API server cannot be used",
            1,
        )
        .repaired(|world| rewrite_kubeconfig(world, "certificate-authority: none, ", "")),
        broken(
            "an API server that does not answer",
            |world| name_server(world, "http://127.0.0.1:1"),
            "kubernetes: the API server does not answer",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("server = \"http://127.0.0.1:1\"\n", ""))),
        broken(
            "a missing verb",
            |world| world.testbed.cluster.deny(USER, "patch", "nodes/status"),
            "rbac: missing: patch nodes/status",
            1,
        )
        .repaired(|world| world.testbed.cluster.undeny()),
        broken(
            "no right to list Services",
            |world| world.testbed.cluster.deny(USER, "list", "services"),
            "rbac: missing: list services",
            1,
        )
        .repaired(|world| world.testbed.cluster.undeny()),
        broken(
            "no right to the lock",
            |world| world.testbed.cluster.deny(USER, "update", "leases"),
            "rbac: missing: update leases.coordination.k8s.io kube-system/ccm",
            1,
        )
        .repaired(|world| world.testbed.cluster.undeny()),
        broken(
            "a leader that is gone",
            |world| {
                let spec = json!({"holderIdentity": "master-0_1", "leaseDurationSeconds": 15, "leaseTransitions": 1,
                    "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"});
                let metadata = json!({"name": "ccm", "namespace": "kube-system"});
                let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
                world.testbed.cluster.create(lease).unwrap();
            },
            "leader: no replica leads: master-0_1 holds Lease kube-system/ccm",
            1,
        )
        .repaired(|world| world.testbed.cluster.delete("Lease", "kube-system", "ccm").unwrap()),
        broken(
            "the official controller still runs",
            |world| drop(world.testbed.cluster.create(official(1)).unwrap()),
            "official: the official controller still runs: Deployment kube-system/cloud-controller-manager",
            2,
        )
        .repaired(|world| {
            let scaled = json!({"spec": {"replicas": 0}});
            world.testbed.cluster.patch("Deployment", "kube-system", "cloud-controller-manager", &scaled).unwrap();
        }),
        broken(
            "the official controller runs under another lock",
            |world| {
                world.testbed.cluster.create(official(1)).unwrap();
                world.rewrite(|text| text + "[leader_election]\nname = \"other\"\n");
            },
            "under another lock, so that both write",
            1,
        )
        .repaired(|world| world.testbed.cluster.delete("Deployment", "kube-system", "cloud-controller-manager").unwrap()),
        broken(
            "no node",
            |world| {
                for name in ["node-1", "node-2"] {
                    world.testbed.cluster.delete("Node", "", name).unwrap();
                }
            },
            "nodes: the cluster has no node",
            2,
        )
        .repaired(|world| add_node(world, 1, &format!("{REGION}.{}", instance(1)), "10.98.1.0/24")),
        broken(
            "a Service with a class whose controller is off",
            |world| with_class(world, "net", "alibabacloud.com/nlb"),
            "services: no controller handles default/net",
            2,
        )
        .repaired(|world| world.rewrite(|text| text.replace("\"service\"]", "\"service\", \"nlb\"]"))),
        broken(
            "a Service with a class that is not known",
            |world| with_class(world, "net", "alibabacloud.com/unknown"),
            "services: no controller handles default/net",
            2,
        )
        .repaired(|world| world.testbed.cluster.delete("Service", "default", "net").unwrap()),
        broken(
            "a wrong annotation",
            |world| expose(world, &[(&key("scheduler"), "nonsense")]),
            "plan: service default/web: service.",
            1,
        )
        .repaired(|world| {
            let right = json!({"metadata": {"annotations": {key("scheduler"): "wrr"}}});
            world.testbed.cluster.patch("Service", "default", "web", &right).unwrap();
        }),
        broken(
            "a load balancer that does not exist",
            |world| expose(world, &[(&key("id"), "lb-none")]),
            "Invalid value: \"lb-none\": must be the id of a load balancer that exists",
            1,
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_nodes_the_cause_is_named_first() {
    judge(vec![
        broken(
            "a node that waits for a controller that is off",
            |world| drop(world.testbed.join(3)),
            "nodes: node-3 waits to be initialised",
            1,
        )
        .with(&["route", "service"])
        .repaired(|world| {
            world.rewrite(|text| text.replace("[\"route\"", "[\"node\", \"route\""));
            patch_node(world, "node-3", &json!({"spec": {"taints": null}}));
        }),
        broken(
            "a node without providerID",
            |world| {
                world.testbed.rent(3);
                add_node(world, 3, "", "10.98.3.0/24");
            },
            "nodes: node-3 has no spec.providerID, and its kubelet set no taint",
            2,
        )
        .repaired(|world| patch_node(world, "node-3", &json!({"spec": {"providerID": format!("{REGION}.i-play-3")}}))),
        broken(
            "a released instance",
            |world| world.testbed.cloud.release_instance(&instance(2)),
            "nodes: the instance is gone: i-play-2 of node-2",
            2,
        )
        .repaired(|world| world.testbed.cluster.delete("Node", "", "node-2").unwrap()),
        broken(
            "another account",
            |world| {
                for number in [1, 2] {
                    world.testbed.cloud.release_instance(&instance(number));
                }
            },
            "nodes: the account shows not one instance",
            1,
        )
        .repaired(|world| world.testbed.rent(1)),
        broken(
            "an instance of another VPC",
            |world| {
                world.testbed.cloud.edit(|cloud| {
                    let account = cloud.clone().with_vpc("vpc-2", "172.16.0.0/16");
                    *cloud = account.with_vswitch("vsw-2", "vpc-2", "cn-hangzhou-i", "172.16.0.0/24");
                    cloud.add_instance("i-far", "node-3", "vsw-2", "172.16.0.9");
                });
                add_node(world, 3, &format!("{REGION}.i-far"), "10.98.3.0/24");
            },
            "nodes: the instance is in another VPC than vpc-play: i-far of node-3",
            1,
        )
        .repaired(|world| {
            patch_node(
                world,
                "node-3",
                &json!({"metadata": {"labels": {"service.alibabacloud.com/exclude-node": ""}}}),
            );
        }),
        broken(
            "two nodes of one instance",
            |world| add_node(world, 3, &format!("{REGION}.{}", instance(1)), "10.98.3.0/24"),
            "nodes: node-1, node-3 have the same spec.providerID",
            1,
        )
        .repaired(|world| world.testbed.cluster.delete("Node", "", "node-3").unwrap()),
        broken(
            "a pod CIDR outside of cluster_cidrs",
            |world| world.rewrite(|text| text.replace("10.98.0.0/16", "10.98.1.0/24")),
            "network: outside of route.cluster_cidrs: 10.98.2.0/24 of node-2",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("10.98.1.0/24", "10.98.0.0/16"))),
        broken(
            "no pod CIDRs",
            |world| {
                for number in [1, 2] {
                    world.testbed.cluster.delete("Node", "", &format!("node-{number}")).unwrap();
                    add_node(world, number, &format!("{REGION}.{}", instance(number)), "");
                }
            },
            "network: no node has a pod CIDR",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("\"route\", ", ""))),
        broken(
            "pods in the range of the VPC",
            |world| {
                world.rewrite(|text| text.replace("10.98.0.0/16", "192.168.0.0/16"));
                for number in [1, 2] {
                    world.testbed.cluster.delete("Node", "", &format!("node-{number}")).unwrap();
                    let cidr = format!("192.168.20{number}.0/24");
                    add_node(world, number, &format!("{REGION}.{}", instance(number)), &cidr);
                }
            },
            "network: in the range of the VPC: 192.168.201.0/24 of node-1",
            2,
        ),
        broken(
            "a pod network that makes the routes itself",
            |world| {
                for object in [
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-flannel"}}),
                    json!({"apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"},
                        "data": {"net-conf.json": "{\"Backend\": {\"Type\": \"ali-vpc\"}}"}}),
                ] {
                    world.testbed.cluster.create(object).unwrap();
                }
            },
            "network: the pod network seems not to need routes",
            2,
        )
        .repaired(|world| world.rewrite(|text| text.replace("\"route\", ", ""))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_accounts_the_cause_is_named_first() {
    judge(vec![
        broken(
            "a port that another program has",
            |world| {
                world.rewrite(|text| {
                    let taken = text.split("ecs = \"127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
                    text.replace("[server]\nport = 0", &format!("[server]\nport = {taken}"))
                });
            },
            "process: another program listens on server.port",
            1,
        ),
        broken(
            "a full route table",
            |world| {
                for number in 0..200 {
                    let entry = RouteEntry::to_instance(&format!("rte-{number}"), &instance(1));
                    add_route(world, &format!("10.99.{number}.0/24"), entry);
                }
            },
            "quotas: entries to instances in vtb-play: 200 used",
            2,
        )
        .repaired(|world| {
            world.testbed.cloud.edit(|cloud| cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.clear());
        }),
        broken(
            "as many load balancers as an account may have",
            |world| {
                world.testbed.cloud.edit(|cloud| {
                    for number in 0..60 {
                        let other = LoadBalancer::internet(&format!("other-{number}"), &format!("47.1.1.{number}"));
                        cloud.load_balancers.insert(format!("lb-other-{number}"), other.into());
                    }
                });
            },
            "quotas: classic load balancers in the region: 60 used",
            2,
        )
        .repaired(|world| world.testbed.cloud.edit(|cloud| cloud.load_balancers.clear())),
        broken(
            "more Services than load balancers are left",
            |world| {
                world.testbed.cloud.edit(|cloud| {
                    for number in 0..59 {
                        let other = LoadBalancer::internet(&format!("other-{number}"), &format!("47.1.1.{number}"));
                        cloud.load_balancers.insert(format!("lb-other-{number}"), other.into());
                    }
                });
                ["one", "two"].iter().for_each(|name| world.testbed.expose(name, &[80], &["node-1"], &[]));
            },
            "quotas: classic load balancers in the region: 59 used, 1 left of the vendor's default of 60; Services wait for 2; 1 too few",
            2,
        )
        .repaired(|world| world.testbed.cloud.edit(|cloud| cloud.load_balancers.clear())),
        broken(
            "a Service with more ports than a load balancer has listeners",
            |world| world.testbed.expose("web", &ports(50), &["node-1"], &[]),
            "quotas: listeners of the classic load balancer of default/web: 50 used, 0 left",
            2,
        )
        .repaired(|world| world.testbed.cluster.delete("Service", "default", "web").unwrap()),
        broken(
            "more backends than a load balancer has",
            |world| {
                for number in 3..=5 {
                    world.testbed.rent(number);
                    let id = format!("{REGION}.{}", instance(number));
                    add_node(world, number, &id, &format!("10.98.{number}.0/24"));
                }
                world.testbed.expose("web", &ports(40), &["node-1"], &[]);
            },
            "quotas: backends of the classic load balancer of default/web: 200 used, 0 left",
            2,
        )
        .repaired(|world| {
            let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
            world.testbed.cluster.patch("Service", "default", "web", &local).unwrap();
        }),
        broken(
            "nodes in more server groups than a server may be in",
            |world| {
                for name in ["one", "two"] {
                    world.testbed.expose(name, &ports(30), &["node-1"], &[]);
                }
            },
            "quotas: server groups of classic load balancers that each node is in: 60 used, 0 left",
            2,
        )
        .repaired(|world| world.testbed.cluster.delete("Service", "default", "two").unwrap()),
        broken(
            "several route tables",
            |world| {
                world.testbed.cloud.edit(|cloud| *cloud = cloud.clone().with_route_table("vtb-2", VPC));
            },
            "plan: what route would do cannot be planned",
            1,
        )
        .repaired(|world| {
            world.rewrite(|text| text.replace("[route]\n", &format!("[route]\ntable_ids = [{ROUTE_TABLE:?}]\n")))
        }),
        broken(
            "a route of somebody else in the way",
            |world| {
                world.testbed.rent(9);
                add_route(world, "10.98.1.0/24", RouteEntry::to_instance("rte-foreign", &instance(9)));
            },
            "plan: route node-1: ",
            1,
        )
        .repaired(|world| {
            world.testbed.cloud.edit(|cloud| {
                cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.remove("10.98.1.0/24");
            });
        }),
        broken(
            "no free address in a vSwitch",
            |world| world.testbed.cloud.edit(|cloud| cloud.vswitches.get_mut("vsw-i").unwrap().available_ips = 0),
            "vswitches: vsw-i in cn-hangzhou-i (192.168.0.0/20) has 0 free addresses",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("\"cn-hangzhou-i:vsw-i\", ", ""))),
        broken(
            "a vSwitch that is not there",
            |world| world.rewrite(|text| text.replace(":vsw-i\"", ":vsw-x\"")),
            "vswitches: cloud.vswitches names vsw-x, which the VPC does not have",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace("vsw-x", "vsw-i"))),
        broken(
            "a second cluster with the same id",
            |world| mark_route(world, "another-uid".to_owned(), "10.98.7.0/24", "theirs"),
            "identity: another cluster has the cloud.cluster_id playground as well",
            1,
        )
        .repaired(|world| world.rewrite(|text| text.replace(&format!("\"{CLUSTER_ID}\""), "\"second\""))),
        broken(
            "an orphan",
            |world| mark_route(world, uid(world), "10.98.7.0/24", "gone"),
            "orphans: route 10.98.7.0/24 to i-play-9",
            2,
        )
        .repaired(|world| {
            let binary = env!("CARGO_BIN_EXE_alicloud-ccm");
            let mut gc = std::process::Command::new(binary);
            gc.env_clear().args(["gc", "--delete", "--after", "1", "--config"]).arg(world.config());
            assert!(gc.status().unwrap().success());
        }),
        broken(
            "a private zone that is not there",
            |world| world.testbed.cloud.edit(|cloud| cloud.private_zones.clear()),
            "plan: what pvtz would do cannot be planned",
            1,
        )
        .with(&["node", "route", "service", "pvtz"])
        .repaired(|world| world.rewrite(|text| text.replace(", \"pvtz\"]", "]"))),
    ])
    .await;
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
