//! Where text from outside enters, each as a function of bytes that must return whatever they are.
//!
//! The fuzz targets beside this file and `tests/integration/untrusted_input.rs` both call these.

// A target calls one of them.
#![allow(dead_code)]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use alicloud_ccm::alibaba::CloudClient;
use alicloud_ccm::alibaba::ecs::InstanceFilter;
use alicloud_ccm::alibaba::nlb::GroupFilter;
use alicloud_ccm::alibaba::transport::{Transport, TransportError};
use alicloud_ccm::cluster::Cluster;
use alicloud_ccm::config::checked::Kubernetes;
use alicloud_ccm::config::{self, Config, ConfigSource};
use alicloud_ccm::controllers::registry::CATALOG;
use alicloud_ccm::plan::clb::annotations::Name as ClbName;
use alicloud_ccm::plan::inputs::{NodeView, ServiceView};
use alicloud_ccm::plan::loadbalancer::annotations;
use alicloud_ccm::plan::nlb::annotations::Name as NlbName;
use alicloud_ccm::plan::provider_id::ProviderId;
use alicloud_ccm::plan::route::RouteNode;
use bytes::Bytes;
use futures::future::BoxFuture;

/// The configuration file.
pub(crate) fn configuration(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("alicloud-ccm.toml");
    std::fs::write(&path, data).expect("a file can be written");
    let origin = ConfigSource { path, ..ConfigSource::default() };
    if let Err(report) = config::load(&origin, &CATALOG) {
        assert!(!report.to_string().is_empty());
    }
}

/// Annotations of a Service: one a line, `name=value`.
pub(crate) fn service_annotations(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut service = ServiceView::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let prefix = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
        service.annotations.insert(format!("{prefix}{name}"), value.to_owned());
        service.annotations.insert(name.to_owned(), value.to_owned());
    }
    let _ = annotations::parse::<ClbName>(&service);
    let _ = annotations::parse::<NlbName>(&service);
}

/// `spec.providerID` of a node.
pub(crate) fn provider_id(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(id) = ProviderId::parse(&text) {
        assert_eq!(ProviderId::parse(&id.to_string()).as_ref(), Ok(&id), "{text}");
    }
}

/// `spec.podCIDRs` of a node, one a line.
pub(crate) fn pod_cidrs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let view = NodeView { pod_cidrs: text.lines().map(str::to_owned).collect(), ..NodeView::default() };
    let node = RouteNode::of(&view);
    assert_eq!(node.cidrs.len() + node.malformed.len(), view.pod_cidrs.len());
    assert!(node.cidrs.iter().all(|cidr| cidr.prefix_len() > 0 && *cidr == cidr.trunc()));
}

/// Whatever the cloud answers to every read, and whoever gives out keys to every question.
pub(crate) fn cloud_answers(data: &[u8]) {
    static KEY: LazyLock<Config> = LazyLock::new(|| configured("access_key_id = \"i\"\naccess_key_secret = \"s\"\n"));
    static ROLE: LazyLock<Config> = LazyLock::new(|| configured("instance_role = \"ccm\"\n"));
    static ASSUMED: LazyLock<Config> = LazyLock::new(|| {
        configured("access_key_id = \"i\"\naccess_key_secret = \"s\"\nrole_arn = \"acs:ram::1:role/ccm\"\n")
    });
    let answer = Bytes::copy_from_slice(data);
    let cloud = |config: &Config| CloudClient::new(Arc::new(Always(answer.clone())), &config.cloud, "cn-hangzhou");
    let (by_key, by_role, assumed) = (cloud(&KEY), cloud(&ROLE), cloud(&ASSUMED));
    within_an_hour(async {
        let CloudClient { clb, nlb, vpc, ecs, .. } = &by_key;
        let one = ["a".to_owned()];
        let _ = clb.describe_instance("lb-1").await;
        let _ = clb.find_by_tag("k", "v").await;
        let _ = clb.find_by_name("a").await;
        let _ = clb.describe_groups("lb-1").await;
        let _ = clb.describe_backends("rsp-1").await;
        let _ = clb.describe_listeners("lb-1").await;
        let _ = clb.list_listeners(2).await;
        let _ = clb.describe_domain_extensions("lb-1", 443).await;
        let _ = clb.certificate_state("1_cn-hangzhou").await;
        let _ = clb.list_access_lists().await;
        let _ = clb.find_access_list("acl").await;
        let _ = nlb.describe_instance("nlb-1").await;
        let _ = nlb.find_by_tag("k", "v").await;
        let _ = nlb.find_by_name("a").await;
        let _ = nlb.describe_listeners(&["nlb-1"]).await;
        let _ = nlb.describe_additional_certificates("lsn-1").await;
        let _ = nlb.list_groups(GroupFilter::Tag("k", "v")).await;
        let _ = nlb.list_groups(GroupFilter::Ids(&one.clone().into())).await;
        let _ = nlb.describe_servers("sgp-1").await;
        let _ = nlb.jobs(&one).await;
        let _ = ecs.find_security_groups("k", "v").await;
        let _ = ecs.describe_security_rules("sg-1").await;
        let _ = vpc.describe_route_tables("vpc-1").await;
        let _ = vpc.describe_route_entries("vtb-1").await;
        let _ = vpc.describe_vpc("vpc-1").await;
        let _ = vpc.describe_vswitches("vpc-1").await;
        let _ = vpc.describe_load_balancer_eips("lb-1").await;
        let _ = ecs.describe_instances("cn-hangzhou", &InstanceFilter::Ids(vec!["i-1".into()])).await;
        let _ = ecs.may_describe_instances("cn-hangzhou").await;
        let _ = ecs.describe_network_interfaces("cn-hangzhou", &["eni-1".into()]).await;
        let _ = ecs.find_network_interfaces("cn-hangzhou", "vpc-1", &[Ipv4Addr::LOCALHOST.into()]).await;
        let _ = by_role.vpc.describe_vpc("vpc-1").await;
        let _ = assumed.vpc.describe_vpc("vpc-1").await;
    });
}

/// Whatever the API server lists and watches: the list, then, after a byte that no text has, the stream of events.
pub(crate) fn watch_streams(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0xff).map(Bytes::copy_from_slice);
    let (list, events) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let body = if is_watch { events.clone() } else { list.clone() };
        std::future::ready(Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(body))))
    });
    let config = Kubernetes {
        kubeconfig: None,
        context: None,
        server: None,
        qps: 1000.0,
        burst: 1000,
        timeout: Duration::from_secs(5),
    };
    within_an_hour(async {
        let cluster = Cluster::with_client(kube::Client::new(server, "default"), &config);
        let (nodes, services, endpoints) = (cluster.nodes(), cluster.services(), cluster.endpoints());
        tokio::time::sleep(Duration::from_secs(5)).await;
        for view in nodes.store.all().iter() {
            let _ = RouteNode::of(view);
        }
        for service in services.store.all().iter() {
            let _ = annotations::parse::<ClbName>(service);
        }
        assert!(endpoints.store.len() <= data.len());
    });
}

/// Runs on a clock that leaps from one wait to the next.
fn within_an_hour(all: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime can be made");
    let hour = Duration::from_secs(3600);
    assert!(runtime.block_on(async { tokio::time::timeout(hour, all).await }).is_ok(), "it never ends");
}

fn configured(credentials: &str) -> Config {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("alicloud-ccm.toml");
    let text = format!("[cloud]\ncluster_id = \"c\"\nregion = \"cn-hangzhou\"\n[cloud.credentials]\n{credentials}");
    std::fs::write(&path, text).expect("a file can be written");
    private(&path);
    let origin = ConfigSource { path, ..ConfigSource::default() };
    config::load(&origin, &CATALOG).map_or_else(|report| panic!("{report}"), |loaded| loaded.config)
}

fn private(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("it is our file");
}

/// Gives the same answer to everybody.
#[derive(Debug)]
struct Always(Bytes);

impl Transport for Always {
    fn send(
        &self,
        _: http::Request<Bytes>,
        _: Duration,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        // The first byte chooses the status, so that refusals are read too.
        let status = [200, 400, 403, 404, 500, 503][usize::from(self.0.first().copied().unwrap_or_default()) % 6];
        let body = self.0.slice(usize::from(!self.0.is_empty())..);
        let response = http::Response::builder().status(status).body(body);
        let refused = || TransportError::NotSent(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)).to_string());
        Box::pin(std::future::ready(response.map_err(|_| refused())))
    }
}
