//! The cloud as a client sees it: signed requests in, answers out.

mod behaviour;
mod every_action;
mod network;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request};
use serde_json::Value;

use super::*;

const ECS: &str = "2014-05-26";
const VPC: &str = "2016-04-28";
const SLB: &str = "2014-05-15";
const NLB: &str = "2022-04-30";
const PVTZ: &str = "2018-01-01";
const STS: &str = "2015-04-01";

/// A VPC with two zones, three instances, a certificate and a role.
fn account() -> Account {
    let later = now() + SignedDuration::from_hours(1000);
    let mut account = Account::new("cn-hangzhou")
        .with_vpc("vpc-1", "192.168.0.0/16")
        .with_vswitch("vsw-i", "vpc-1", "cn-hangzhou-i", "192.168.0.0/24")
        .with_vswitch("vsw-j", "vpc-1", "cn-hangzhou-j", "192.168.1.0/24")
        .with_vswitch("vsw-k", "vpc-1", "cn-hangzhou-k", "192.168.2.0/24")
        .with_instance("i-1", "node-1", "vsw-i", "192.168.0.11")
        .with_instance("i-2", "node-2", "vsw-j", "192.168.1.12")
        .with_instance("i-3", "other", "vsw-i", "192.168.0.13")
        .with_certificate("cert-1", "one.example.com", later)
        .with_certificate("cert-2", "two.example.com", later)
        .with_role("ccm");
    account.vswitches.values_mut().for_each(|it| it.ipv6_cidr = "2408:4005::/64".into());
    account.nlb.bandwidth_packages.insert("cbwp-1".into());
    account
}

/// The caller and its keys.
struct Client {
    cloud: Cloud,
    id: String,
    secret: String,
    token: Option<String>,
}

type Answer = Result<Value, String>;

fn next_nonce() -> String {
    static NONCE: AtomicU64 = AtomicU64::new(0);
    format!("nonce-{}", NONCE.fetch_add(1, Ordering::Relaxed))
}

impl Client {
    fn new(cloud: &Cloud) -> Self {
        Self { cloud: cloud.clone(), id: KEY_ID.into(), secret: KEY_SECRET.into(), token: None }
    }

    fn session(cloud: &Cloud, keys: &Value) -> Self {
        let text = |name: &str| keys[name].as_str().unwrap().to_owned();
        Self {
            cloud: cloud.clone(),
            id: text("AccessKeyId"),
            secret: text("AccessKeySecret"),
            token: Some(text("SecurityToken")),
        }
    }

    fn parameters(&self, version: &str, action: &str, given: &[(&str, &str)]) -> BTreeMap<String, String> {
        let timestamp = sts::seconds(self.cloud.now());
        let nonce = next_nonce();
        let mut all: BTreeMap<String, String> = [
            ("Action", action),
            ("Version", version),
            ("Format", "JSON"),
            ("RegionId", "cn-hangzhou"),
            ("AccessKeyId", &self.id),
            ("SignatureMethod", "HMAC-SHA1"),
            ("SignatureVersion", "1.0"),
            ("SignatureNonce", &nonce),
            ("Timestamp", &timestamp),
        ]
        .iter()
        .chain(given)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
        if let Some(token) = &self.token {
            all.insert("SecurityToken".into(), token.clone());
        }
        if version == STS {
            all.remove("RegionId");
        }
        all
    }

    fn request(&self, version: &str, action: &str, given: &[(&str, &str)]) -> Request<Bytes> {
        let mut all = self.parameters(version, action, given);
        all.insert("Signature".into(), sign(&Method::POST, &all, &self.secret));
        post(&all)
    }

    /// The body, or the error code.
    async fn call(&self, version: &str, action: &str, given: &[(&str, &str)]) -> Answer {
        send(&self.cloud, self.request(version, action, given)).await
    }

    async fn slb(&self, action: &str, given: &[(&str, &str)]) -> Answer {
        self.call(SLB, action, given).await
    }

    async fn nlb(&self, action: &str, given: &[(&str, &str)]) -> Answer {
        self.call(NLB, action, given).await
    }

    async fn create_network_load_balancer(&self) -> String {
        let given = [
            ("AddressType", "Intranet"),
            ("VpcId", "vpc-1"),
            ("ZoneMappings.1.ZoneId", "cn-hangzhou-i"),
            ("ZoneMappings.1.VSwitchId", "vsw-i"),
            ("ZoneMappings.2.ZoneId", "cn-hangzhou-j"),
            ("ZoneMappings.2.VSwitchId", "vsw-j"),
        ];
        text(&self.nlb("CreateLoadBalancer", &given).await.unwrap()["LoadbalancerId"])
    }

    async fn create_server_group(&self, name: &str, more: &[(&str, &str)]) -> String {
        let given = [&[("ServerGroupName", name), ("VpcId", "vpc-1")], more].concat();
        text(&self.nlb("CreateServerGroup", &given).await.unwrap()["ServerGroupId"])
    }

    async fn create_load_balancer(&self) -> String {
        let given = [("LoadBalancerName", "web"), ("InstanceChargeType", "PayByCLCU")];
        text(&self.slb("CreateLoadBalancer", &given).await.unwrap()["LoadBalancerId"])
    }

    async fn create_group(&self, lb: &str, backends: &str) -> String {
        let given = [("LoadBalancerId", lb), ("VServerGroupName", "group"), ("BackendServers", backends)];
        text(&self.slb("CreateVServerGroup", &given).await.unwrap()["VServerGroupId"])
    }

    async fn create_tcp_listener(&self, lb: &str, port: &str, group: &str) -> Answer {
        let given = [("LoadBalancerId", lb), ("ListenerPort", port), ("Bandwidth", "-1"), ("VServerGroupId", group)];
        self.slb("CreateLoadBalancerTCPListener", &given).await
    }
}

fn post(parameters: &BTreeMap<String, String>) -> Request<Bytes> {
    let host = match parameters["Version"].as_str() {
        ECS => "ecs.cn-hangzhou.aliyuncs.com",
        VPC => "vpc.cn-hangzhou.aliyuncs.com",
        NLB => "nlb.cn-hangzhou.aliyuncs.com",
        PVTZ => "pvtz.aliyuncs.com",
        STS => "sts.aliyuncs.com",
        _ => "slb.aliyuncs.com",
    };
    Request::post("/")
        .header("host", host)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Bytes::from(form(parameters)))
        .unwrap()
}

async fn send(cloud: &Cloud, request: Request<Bytes>) -> Answer {
    let Ok(response) = cloud.handle(request).await else { return Err("connection lost".into()) };
    let status = response.status();
    let body: Value = serde_json::from_slice(response.body()).map_err(|_| format!("no JSON, status {status}"))?;
    if status.is_success() { Ok(body) } else { Err(text(&body["Code"])) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// A cloud with a load balancer and, in it, a server group with `i-1`: cloud, client, and their two ids.
async fn cloud_with_group() -> (Cloud, Client, String, String) {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_load_balancer().await;
    let group = client.create_group(&lb, &backend("i-1", 80)).await;
    (cloud, client, lb, group)
}

/// One backend as the API takes it.
fn backend(server: &str, port: u16) -> String {
    format!(r#"[{{"ServerId":"{server}","Port":"{port}","Weight":"100","Type":"ecs","Description":"d"}}]"#)
}
