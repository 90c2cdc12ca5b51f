//! Worlds with one defect each, which `worlds.toml` lists: the cause is named first, and what is advised works.

use std::collections::BTreeMap;

use alicloud_ccm::plan::route::mark::{RouteCluster, description};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use sim::cloud::{AccessKey, Fault, LoadBalancer, RouteEntry};
use sim::testbed::{ACCESS_KEY, CLUSTER_ID, REGION, ROUTE_TABLE, VPC, instance};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{add_node, deny, doctor, doctor_with, first_line, grant, healthy, with_class};
use crate::certificate_rotation::{Authority, Front, address_of, kubeconfig, listener};
use crate::harness::{ALL, World};
use crate::service_features::key;

/// Worlds that are looked at side by side.
const AT_ONCE: usize = 4;
/// Who runs the binary here.
const USER: &str = "kubernetes-admin";

/// One thing that is wrong with a world that is right otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BrokenWorld {
    name: String,
    controllers: Option<Vec<String>>,
    /// Variables in the environment of the first look.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    breaks: Vec<Step>,
    /// What the first line says, after the severity.
    cause: String,
    #[serde(default = "one")]
    code: i32,
    /// The advice of the finding, or how it begins.
    remedy: Option<String>,
    /// What the finding advises, if it can be followed here.
    repair: Option<Vec<Step>>,
}

const fn one() -> i32 {
    1
}

/// What somebody does to a world.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    /// Replaces a text in the configuration.
    Config(String, String),
    /// The same in the kubeconfig.
    Kubeconfig(String, String),
    /// Writes a file beside the configuration.
    File(String, String),
    ForgetKeys,
    KnowTheKey,
    Role(String),
    /// Denies an action of the cloud, and no other.
    Deny(String),
    /// Permits what `ram-policy` prints.
    Grant,
    Throttle(String),
    /// Refuses an action with a code.
    Refuse(String, String),
    Calm,
    AdvanceMinutes(i64),
    DisableMetadata,
    /// An instance in another VPC: id and name.
    FarInstance(String, String),
    /// This machine is that instance.
    RunsOn(String),
    /// The API server wants tokens from now on, and knows this one.
    Admit(String),
    /// Verb and resource.
    DenyVerb(String, String),
    AllowVerbs,
    /// See [`demand_tls`].
    DemandTls(String, bool),
    AnswerThatTlsIsNeeded,
    Create(String),
    /// Kind, namespace and name, and the change.
    Patch(String, String, String, String),
    Delete(String, String, String),
    StartOfficial,
    /// A Node that its kubelet makes.
    Join(u8),
    Rent(u8),
    Release(u8),
    /// An initialised Node: number, instance and pod CIDR.
    AddNode(u8, String, String),
    /// Makes both Nodes anew with these pod CIDRs.
    MoveNodes(String),
    /// A Service with this class.
    Class(String),
    /// A Service with this annotation.
    Annotate(String, String),
    /// A Service with so many ports.
    Expose(String, u16),
    TakeThePort,
    /// How many routes there are.
    Routes(u8),
    /// How many load balancers there are.
    LoadBalancers(u8),
    SecondRouteTable,
    /// A route without a mark.
    ForeignRoute(String),
    /// A route with the mark of the cluster with this uid, or of this cluster.
    MarkedRoute(String),
    FillTheVswitch,
    ForgetTheZones,
    CollectGarbage,
}

impl Step {
    /// Steps in the files, in Kubernetes and of the program.
    fn take(&self, world: &World) {
        let (cluster, testbed) = (&world.testbed.cluster, &world.testbed);
        match self {
            Self::Config(from, to) => world.rewrite(|text| text.replace(from, to)),
            Self::Kubeconfig(from, to) => {
                let text = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
                write(world, "kubeconfig", &text.replace(from, to));
            }
            Self::File(name, text) => write(world, name, text),
            Self::Admit(token) => cluster.admit(token, USER),
            Self::DenyVerb(verb, resource) => cluster.deny(USER, verb, resource),
            Self::AllowVerbs => cluster.undeny(),
            Self::DemandTls(name, is_trusted) => demand_tls(world, name, *is_trusted),
            Self::AnswerThatTlsIsNeeded => answer_that_tls_is_needed(world),
            Self::Create(object) => drop(cluster.create(serde_json::from_str(object).unwrap()).unwrap()),
            Self::Patch(kind, namespace, name, change) => {
                drop(cluster.patch(kind, namespace, name, &serde_json::from_str(change).unwrap()).unwrap());
            }
            Self::Delete(kind, namespace, name) => cluster.delete(kind, namespace, name).unwrap(),
            Self::StartOfficial => start_official(world),
            Self::Join(number) => drop(testbed.join(*number)),
            Self::AddNode(number, id, cidr) => {
                let provider_id = if id.is_empty() { String::new() } else { format!("{REGION}.{id}") };
                add_node(world, *number, &provider_id, cidr);
            }
            Self::MoveNodes(cidr) => {
                for number in [1, 2] {
                    cluster.delete("Node", "", &format!("node-{number}")).unwrap();
                    let cidr = cidr.replace("{number}", &number.to_string());
                    add_node(world, number, &format!("{REGION}.{}", instance(number)), &cidr);
                }
            }
            Self::Class(class) => with_class(world, "net", class),
            Self::Annotate(name, value) => testbed.expose("web", &[80], &["node-1"], &[(&key(name), value)]),
            Self::Expose(name, count) => {
                testbed.expose(name, &(1001..1001 + count).collect::<Vec<_>>(), &["node-1"], &[]);
            }
            Self::TakeThePort => world.rewrite(|text| {
                let taken = text.split("ecs = \"127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
                text.replace("[server]\nport = 0", &format!("[server]\nport = {taken}"))
            }),
            Self::CollectGarbage => {
                let mut gc = std::process::Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
                gc.env_clear().args(["gc", "--delete", "--after", "1", "--config"]).arg(world.config());
                assert!(gc.status().unwrap().success());
            }
            cloud => cloud.take_in_cloud(world),
        }
    }

    fn take_in_cloud(&self, world: &World) {
        let cloud = &world.testbed.cloud;
        match self {
            Self::Deny(action) => deny(world, &[action]),
            Self::Grant => grant(world),
            Self::Throttle(action) => cloud.faults().always(action, Fault::Throttle),
            Self::Refuse(action, code) => cloud.faults().always(action, Fault::code(code)),
            Self::Calm => cloud.calm(),
            Self::AdvanceMinutes(minutes) => cloud.advance(jiff::SignedDuration::from_mins(*minutes)),
            Self::Rent(number) => world.testbed.rent(*number),
            Self::Release(number) => cloud.release_instance(&instance(*number)),
            Self::ForeignRoute(cidr) => add_route(world, cidr, RouteEntry::to_instance("rte-foreign", &instance(9))),
            Self::MarkedRoute(uid) => {
                let uid = if uid.is_empty() { own_uid(world) } else { uid.clone() };
                let mut entry = RouteEntry::to_instance("rte-marked", &instance(9));
                entry.description = description(&RouteCluster { id: CLUSTER_ID.to_owned(), uid }, "gone");
                add_route(world, "10.98.7.0/24", entry);
            }
            _ => cloud.edit(|account| match self {
                Self::ForgetKeys => account.keys.clear(),
                Self::KnowTheKey => {
                    account.keys.insert(ACCESS_KEY.0.to_owned(), AccessKey::permanent(ACCESS_KEY.1));
                }
                Self::Role(name) => *account = account.clone().with_role(name),
                Self::DisableMetadata => account.metadata.disabled = true,
                Self::FarInstance(id, name) => {
                    let changed = account.clone().with_vpc("vpc-2", "172.16.0.0/16");
                    *account = changed.with_vswitch("vsw-2", "vpc-2", "cn-hangzhou-i", "172.16.0.0/24");
                    account.add_instance(id, name, "vsw-2", "172.16.0.9");
                }
                Self::RunsOn(id) => account.metadata.instance = Some(id.clone()),
                Self::Routes(count) => {
                    let entry = |number| RouteEntry::to_instance(&format!("rte-{number}"), &instance(1));
                    let entries = (0..*count).map(|number| (format!("10.99.{number}.0/24"), entry(number)));
                    account.route_tables.get_mut(ROUTE_TABLE).unwrap().entries = entries.collect();
                }
                Self::LoadBalancers(count) => {
                    account.load_balancers.clear();
                    for number in 0..*count {
                        let other = LoadBalancer::internet(&format!("other-{number}"), &format!("47.1.1.{number}"));
                        account.load_balancers.insert(format!("lb-other-{number}"), other.into());
                    }
                }
                Self::SecondRouteTable => *account = account.clone().with_route_table("vtb-2", VPC),
                Self::FillTheVswitch => account.vswitches.get_mut("vsw-i").unwrap().available_ips = 0,
                Self::ForgetTheZones => account.private_zones.clear(),
                _ => unreachable!(),
            }),
        }
    }
}

fn write(world: &World, name: &str, text: &str) {
    std::fs::write(world.folder().join(name), text).unwrap();
}

fn add_route(world: &World, destination: &str, entry: RouteEntry) {
    world.testbed.cloud.edit(|cloud| {
        cloud.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.insert(destination.to_owned(), entry);
    });
}

/// Lets an API server with TLS, whose certificate names this, stand before the one that has none. The kubeconfig trusts the
/// authority of that certificate, or another.
fn demand_tls(world: &World, name: &str, is_trusted: bool) {
    let authority = Authority::new();
    // Dropping it would cut its connections.
    let port = Box::leak(Box::new(Front::before(&address_of(world), &authority.sign_for(name), None))).port;
    let trusted = if is_trusted { authority } else { Authority::new() };
    write(world, "ca.crt", &trusted.certificate.pem());
    write(world, "kubeconfig", &kubeconfig(port, "certificate-authority: ca.crt", ""));
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
    write(world, "kubeconfig", &text);
}

fn own_uid(world: &World) -> String {
    world.testbed.cluster.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn start_official(world: &World) {
    let container = json!({"name": "ccm", "image": "registry.example/acs/cloud-controller-manager-amd64:v2.14.0",
        "command": ["/cloud-controller-manager", "--cloud-provider=alicloud"]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "ccm"}},
            "template": {"metadata": {"labels": {"app": "ccm"}}, "spec": {"containers": [container]}}}});
    world.testbed.cluster.create(deployment).unwrap();
}

impl BrokenWorld {
    /// What is wrong with the answer of `doctor`; `None` if nothing is.
    async fn judge(&self) -> Option<String> {
        let Self { name, cause, code, .. } = self;
        let controllers = self.controllers.as_ref().map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let world = healthy(controllers.as_deref().unwrap_or(ALL)).await;
        self.breaks.iter().for_each(|step| step.take(&world));
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (page, ended) = doctor_with(&world, &environment).await;
        if !first_line(&page).contains(cause) || ended != Some(*code) {
            return Some(format!("{name}: {cause:?} with code {code} is not said first, but with {ended:?}:\n{page}"));
        }
        if cause.starts_with("endpoints: ") && page.contains("error    credentials: ") {
            return Some(format!("{name}: the credentials are blamed, too:\n{page}"));
        }
        let remedy = format!("to do: {}", self.remedy.as_deref().unwrap_or_default());
        if !page.contains(&remedy) {
            return Some(format!("{name}: {remedy:?} is not said:\n{page}"));
        }
        self.repair.as_ref()?.iter().for_each(|step| step.take(&world));
        let (page, _) = doctor(&world).await;
        (page.contains(cause)).then(|| format!("{name}: what was advised does not help:\n{page}"))
    }
}

/// All worlds of a section that fail are told at once.
async fn judge(section: &str) {
    let mut all: BTreeMap<String, Vec<BrokenWorld>> = toml::from_str(include_str!("worlds.toml")).unwrap();
    let worlds = all.remove(section).unwrap();
    let wrong: Vec<String> =
        stream::iter(&worlds).map(BrokenWorld::judge).buffered(AT_ONCE).filter_map(async |it| it).collect().await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), worlds.len(), wrong.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_ways_to_the_cloud_the_cause_is_named_first() {
    judge("cloud").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_clusters_the_cause_is_named_first() {
    judge("cluster").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_nodes_the_cause_is_named_first() {
    judge("node").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_broken_accounts_the_cause_is_named_first() {
    judge("account").await;
}
