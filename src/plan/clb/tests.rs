//! A small world for tests: Services, nodes, endpoints, and a load balancer that steps are applied to.

mod backends;
mod changes_of_mind;
mod configured_defaults;
mod desired_state;
mod drift_and_changes;
mod every_annotation;
mod features;
mod gates;
mod manage;
mod pitfalls;
mod plans;
pub(crate) mod problem_scopes;
pub(crate) mod properties;
mod unusable_and_foreign;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;

use super::desired::Desired;
use super::model::{InstanceField, ListenerField, ListenerKey, Protocol};
use super::observed::{Observed, ObservedInstance, ObservedListener};
use super::operation::{Operation, Own, Plan};
use crate::plan::inputs::{
    Condition, ConditionStatus, Endpoint, EndpointsView, NodeView, ObjectKey, ServicePort, ServiceType, ServiceView,
    TargetPort,
};
use crate::plan::loadbalancer::annotations;
use crate::plan::loadbalancer::backends::Inputs;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::diff::diff;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind, ObservedGroup};
use crate::plan::loadbalancer::ownership::CLUSTER_TAG;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::loadbalancer::settings::{
    LoadBalancerDefaults, NlbDefaults, ServiceOptions, ServiceSettings, VSwitchChoice,
};
use crate::plan::loadbalancer::unready::UnreadyNodes;

pub(crate) const UID: &str = "5e4dbfc9-c2ae-4642-b033-5607860aef6a";
pub(crate) const ENI: (&str, &str) = ("service.beta.kubernetes.io/backend-type", "eni");
pub(crate) const NAME: &str = "a5e4dbfc9c2ae4642b0335607860aef6";

/// Everything that a desired state is made from.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) service: ServiceView,
    pub(crate) nodes: Vec<Arc<NodeView>>,
    pub(crate) endpoints: EndpointsView,
    pub(crate) enis: BTreeMap<IpAddr, String>,
    pub(crate) settings: ServiceSettings,
    /// What the controller remembers of unready nodes.
    pub(crate) unready: UnreadyNodes,
    pub(crate) now: Duration,
}

impl World {
    /// A Service `default/web` with these annotations (suffix or whole key, value), on port 80, two nodes, two pods.
    pub(crate) fn new(annotations: &[(&str, &str)]) -> Self {
        let service = ServiceView {
            key: ObjectKey::new("default", "web"),
            uid: UID.to_owned(),
            service_type: ServiceType::LoadBalancer,
            allocate_node_ports: true,
            ports: vec![port(80, "TCP", 8080, 30080)],
            ..ServiceView::default()
        };
        let pods = [pod("192.168.64.11", "n1"), pod("192.168.64.12", "n1"), pod("192.168.64.21", "n2")];
        let enis = ["192.168.64.11", "192.168.64.12", "192.168.64.21"];
        Self {
            service,
            nodes: vec![node("n1", "i-1"), node("n2", "i-2")],
            endpoints: EndpointsView { unknown: false, endpoints: pods.to_vec() },
            enis: enis.iter().map(|ip| (ip.parse().unwrap(), format!("eni-{ip}"))).collect(),
            settings: settings(),
            unready: UnreadyNodes::default(),
            now: Duration::ZERO,
        }
        .with(annotations)
    }

    /// The same with other annotations.
    pub(crate) fn with(mut self, annotations: &[(&str, &str)]) -> Self {
        self.service.annotations = annotations
            .iter()
            .map(|(key, value)| {
                let key = if key.contains('/') { (*key).to_owned() } else { format!("{}{key}", annotations::PREFIX) };
                (key, (*value).to_owned())
            })
            .collect();
        self
    }

    pub(crate) fn ports(mut self, ports: &[ServicePort]) -> Self {
        self.service.ports = ports.to_vec();
        self
    }

    /// What is desired, unless there is any problem.
    pub(crate) fn desire(&self) -> Result<Desired, Vec<ServiceProblem>> {
        let desired = self.desired_with_problems();
        let problems: Vec<_> = desired.problems.iter().map(|scoped| scoped.problem.clone()).collect();
        if problems.is_empty() { Ok(desired) } else { Err(problems) }
    }

    pub(crate) fn desired_with_problems(&self) -> Desired {
        let cidrs = ["192.168.0.0/16".parse().unwrap()];
        Desired::of(&Inputs {
            service: &self.service,
            nodes: &self.nodes,
            endpoints: &self.endpoints,
            enis: &self.enis,
            vpc_cidrs: &cidrs,
            settings: &self.settings,
            unready: &self.unready,
            now: self.now,
        })
    }

    pub(crate) fn desired(&self) -> Desired {
        self.desire().unwrap()
    }

    /// Brings a load balancer to what is desired, and returns the plan.
    pub(crate) fn bring(&self, cloud: &mut Cloud) -> Plan {
        let plan = diff(&self.desired(), &cloud.observed);
        for step in &plan.steps {
            cloud.perform(&step.operation);
        }
        plan
    }

    /// A load balancer as it is once the Service is served.
    pub(crate) fn served(&self) -> Cloud {
        let mut cloud = Cloud::default();
        let plan = self.bring(&mut cloud);
        assert_eq!(plan.problems, [], "{plan}");
        cloud
    }

    /// The plan as text.
    pub(crate) fn plan(&self, cloud: &Cloud) -> String {
        diff(&self.desired(), &cloud.observed).to_string()
    }
}

pub(crate) fn settings() -> ServiceSettings {
    ServiceSettings {
        cluster_id: "c1".to_owned(),
        cluster_tag: CLUSTER_TAG.to_owned(),
        cluster_uid: String::new(),
        region: "cn-hangzhou".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        vswitches: vec![
            VSwitchChoice { zone: Some("z-i".to_owned()), id: "vsw-i".to_owned() },
            VSwitchChoice { zone: Some("z-j".to_owned()), id: "vsw-j".to_owned() },
            VSwitchChoice { zone: None, id: "vsw-bare".to_owned() },
        ],
        place_near_nodes: false,
        resource_group_id: None,
        controllers: vec!["service", "nlb"],
        service: ServiceOptions {
            concurrency: 1,
            drift_check: None,
            drift_reads: 60,
            eni_backends: false,
            disable_public: false,
            backend_batch_size: 40,
            exclude_masters: true,
            local_health_check: false,
            ipv6: true,
            type_annotation: false,
            hand_over_grace: std::time::Duration::from_secs(300),
            defaults: LoadBalancerDefaults {
                address_type: "internet".to_owned(),
                instance_charge_type: "PayByCLCU".to_owned(),
                spec: "slb.s1.small".to_owned(),
                internet_charge_type: None,
                bandwidth: None,
                master_zone: None,
                slave_zone: None,
                delete_protection: true,
                modification_protection: true,
                scheduler: "rr".to_owned(),
                tags: BTreeMap::new(),
            },
        },
        nlb: NlbDefaults::default(),
    }
}

pub(crate) fn port(number: u16, protocol: &str, target: u16, node_port: u16) -> ServicePort {
    ServicePort {
        name: format!("p{number}"),
        protocol: protocol.to_owned(),
        port: number,
        target_port: TargetPort::Number(target),
        node_port,
    }
}

pub(crate) fn pod(address: &str, node: &str) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        node: Some(node.into()),
        pod: Some(format!("pod-{address}").into()),
        pod_uid: 0,
        hostname: None,
        ready: true,
        serving: true,
        terminating: false,
        ports: [].into(),
    }
}

pub(crate) fn node(name: &str, instance: &str) -> Arc<NodeView> {
    let ready = Condition { status: ConditionStatus::True, reason: String::new(), since: None };
    Arc::new(NodeView {
        name: name.to_owned(),
        provider_id: format!("cn-hangzhou.{instance}"),
        has_conditions: true,
        ready: Some(ready),
        ..NodeView::default()
    })
}

/// The same node, changed.
pub(crate) fn edited(node: &Arc<NodeView>, edit: impl FnOnce(&mut NodeView)) -> Arc<NodeView> {
    let mut node = NodeView::clone(node);
    edit(&mut node);
    Arc::new(node)
}

/// A Service that goes, from a user's load balancer with its listeners.
pub(crate) fn leaving(reuse: Option<&str>, preserve: bool) -> Departure {
    Departure { reuse: reuse.map(str::to_owned), preserve, override_listeners: true, ..Departure::default() }
}

pub(crate) fn key(port: u16, protocol: Protocol) -> ListenerKey {
    ListenerKey { port, protocol }
}

/// A load balancer that operations are applied to, with the ids and defaults that the cloud would add.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cloud {
    pub(crate) observed: Observed,
    made: u32,
}

impl Cloud {
    /// A user's load balancer with a listener, a group and a tag.
    pub(crate) fn of_user() -> Self {
        let backend = Backend {
            key: BackendKey {
                kind: BackendKind::Ecs,
                server_id: "i-user".into(),
                server_ip: Box::default(),
                port: 8080,
            },
            weight: 100,
            description: "by hand".into(),
        };
        let group = ObservedGroup { name: "users-group".to_owned(), backends: Some(Arc::new(vec![backend].into())) };
        let listener = ObservedListener {
            description: "users-listener".to_owned(),
            status: "running".to_owned(),
            group_id: "rsp-user".to_owned(),
            ..ObservedListener::default()
        };
        let users = |field| match field {
            InstanceField::Name => "users",
            InstanceField::Address => "47.98.1.1",
            InstanceField::AddressType => "internet",
            InstanceField::IpVersion => "ipv4",
            InstanceField::NetworkType => "classic",
            InstanceField::ChargeType => "PayByCLCU",
            InstanceField::InternetChargeType => "paybytraffic",
            InstanceField::Bandwidth => "0",
            InstanceField::DeleteProtection => "off",
            InstanceField::ModificationProtection => "NonProtection",
            _ => "",
        };
        let instance = ObservedInstance {
            id: "lb-user".to_owned(),
            fields: InstanceField::ALL.iter().map(|field| (*field, users(*field).to_owned())).collect(),
            status: "active".to_owned(),
            tags: LiteMap::from_iter([("made-by".to_owned(), "user".to_owned())]),
            ..ObservedInstance::default()
        };
        let mut cloud = Self {
            observed: Observed {
                instance: Some(instance),
                groups: LiteMap::from_iter([("rsp-user".to_owned(), group)]),
                listeners: Some(LiteMap::from_iter([(key(9000, Protocol::Tcp), Box::new(listener))])),
                ..Observed::default()
            },
            made: 0,
        };
        cloud.add_defaults();
        cloud
    }

    pub(crate) fn perform(&mut self, operation: &Operation) {
        self.made += 1;
        let prefix = match operation {
            Operation::Create(_) => "lb",
            Operation::Own(Own::CreateGroup { .. }) => "rsp",
            Operation::Own(Own::CreateAccessList(_)) => "acl",
            _ => "de",
        };
        let made = Answer {
            id: Some(format!("{prefix}-{:03}", self.made)),
            address: Some("47.98.0.1".to_owned()),
            ..Answer::default()
        };
        self.observed.apply(operation, &made);
        self.add_defaults();
    }

    /// Reports what the cloud reports of listeners on top of what was sent.
    fn add_defaults(&mut self) {
        for (key, listener) in self.observed.listeners.iter_mut().flatten() {
            let defaults: &[(ListenerField, &str)] = match key.protocol {
                Protocol::Tcp => &[
                    (ListenerField::EstablishedTimeout, "900"),
                    (ListenerField::PersistenceTimeout, "0"),
                    (ListenerField::HealthCheckType, "tcp"),
                    (ListenerField::HealthCheckSwitch, "on"),
                    (ListenerField::HealthCheckConnectPort, "0"),
                    (ListenerField::ProxyProtocolV2Enabled, "false"),
                    (ListenerField::AclStatus, "off"),
                    (ListenerField::ConnectionDrain, "off"),
                ],
                Protocol::Udp => &[(ListenerField::HealthCheckSwitch, "on"), (ListenerField::AclStatus, "off")],
                Protocol::Http => &[
                    (ListenerField::ListenerForward, "off"),
                    (ListenerField::ForwardPort, "0"),
                    (ListenerField::HealthCheckConnectPort, "-520"),
                    (ListenerField::CookieTimeout, "0"),
                    (ListenerField::Bandwidth, "-1"),
                ],
                Protocol::Https => &[(ListenerField::EnableHttp2, "on"), (ListenerField::IdleTimeout, "15")],
            };
            for (field, value) in defaults {
                listener.fields.entry(*field).or_insert_with(|| (*value).to_owned());
            }
        }
    }

    pub(crate) fn instance(&mut self) -> &mut ObservedInstance {
        self.observed.instance.as_mut().unwrap()
    }

    /// A person changes an attribute in the console.
    pub(crate) fn edit(&mut self, field: InstanceField, value: &str) {
        self.instance().fields.insert(field, value.to_owned());
    }

    pub(crate) fn listener(&mut self, port: u16, protocol: Protocol) -> &mut ObservedListener {
        self.observed.listeners.as_mut().unwrap().get_mut(&key(port, protocol)).unwrap()
    }

    pub(crate) fn listeners(&self) -> Vec<String> {
        self.observed.listeners.iter().flatten().map(|(key, _)| key.to_string()).collect()
    }

    /// Backends of a group by name: (server, weight).
    pub(crate) fn backends(&self, name: &str) -> BTreeSet<(String, u8)> {
        let group = self.observed.groups.values().find(|group| group.name == name).unwrap();
        let describe = |backend: &Backend| format!("{}{}", backend.key.server_id, backend.key.server_ip);
        group.members().iter().map(|backend| (describe(backend), backend.weight)).collect()
    }
}

pub(crate) fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}
