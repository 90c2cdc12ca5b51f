//! Both kinds of load balancers behind one face, for tests that hold for each.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sim::cloud::{Account, Group, NetworkLoadBalancer, ServerGroup};
use sim::cluster::Endpoint;
use sim::testbed::{REGION, Testbed, VPC, instance};

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";

/// A kind of load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Clb,
    Nlb,
}

impl Kind {
    /// Each of them.
    pub(crate) const BOTH: [Self; 2] = [Self::Clb, Self::Nlb];

    /// Makes a Service with an endpoint on each of `nodes`, which alone are its backends.
    pub(crate) fn expose(self, testbed: &Testbed, name: &str, ports: &[u16], nodes: &[u8]) {
        let port =
            |port: &u16| json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": "TCP"});
        let ports: Vec<Value> = ports.iter().map(port).collect();
        let mut spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports});
        self.classify(&mut spec);
        let metadata = json!({"name": name, "namespace": "default"});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        testbed.cluster.create(service).unwrap();
        point_at(testbed, name, nodes);
    }

    /// Lets the `spec` of a Service ask for this kind.
    pub(crate) fn classify(self, spec: &mut Value) {
        if self == Self::Nlb {
            spec["loadBalancerClass"] = "alibabacloud.com/nlb".into();
        }
    }

    /// The controller of Services with this kind.
    pub(crate) fn controller(self) -> &'static str {
        if self == Self::Nlb { "nlb" } else { "service" }
    }

    /// What a load balancer with this id publishes; `None` if there is none.
    pub(crate) fn publishes(self, testbed: &Testbed, id: &str) -> Option<String> {
        testbed.cloud.look(|account| match self {
            Self::Clb => account.load_balancers.get(id).map(|lb| lb.address.clone()),
            Self::Nlb => account.nlb.balancers.get(id).map(|lb| lb.dns.clone()),
        })
    }

    /// Takes a load balancer away, as a person does in the console.
    pub(crate) fn delete(self, testbed: &Testbed, id: &str) {
        testbed.cloud.edit(|account| match self {
            Self::Clb => drop(account.load_balancers.remove(id)),
            Self::Nlb => drop(account.nlb.balancers.remove(id)),
        });
    }

    /// Makes a load balancer of a user, without any mark.
    pub(crate) fn of_user(self, testbed: &Testbed, id: &str) {
        testbed.cloud.edit(|account| match self {
            Self::Clb => {
                let last = id.bytes().fold(0_u8, u8::wrapping_add);
                let own = json!([{"id": id, "name": id, "address": format!("47.98.9.{last}")}]);
                let own = json!({"region": REGION, "zones": ["cn-hangzhou-i"], "load_balancers": own});
                let made = Account::from_json(&own).unwrap().load_balancers[id].clone();
                account.load_balancers.insert(id.to_owned(), made);
            }
            Self::Nlb => {
                let zones = account.vswitches.iter().map(|(id, it)| (it.zone.clone(), id.clone())).collect::<Vec<_>>();
                account.add_network_load_balancer(id, NetworkLoadBalancer::new(id, "Internet", VPC), &zones);
            }
        });
    }

    /// Makes an empty server group of a user, for this load balancer.
    pub(crate) fn add_group(self, testbed: &Testbed, id: &str, group: &str) {
        testbed.cloud.edit(|account| match self {
            Self::Clb => {
                drop(account.load_balancers.get_mut(id).unwrap().groups.insert(group.to_owned(), Group::new(group)));
            }
            Self::Nlb => {
                let made = ServerGroup::new(group, VPC, "Instance", "TCP").into();
                drop(account.nlb.groups.insert(group.to_owned(), made));
            }
        });
    }

    /// Replaces all tags of this load balancer.
    pub(crate) fn tag(self, testbed: &Testbed, id: &str, tags: &[(&str, &str)]) {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        testbed.cloud.edit(|account| match self {
            Self::Clb => account.load_balancers.get_mut(id).unwrap().tags = tags,
            Self::Nlb => account.nlb.balancers.get_mut(id).unwrap().tags = tags,
        });
    }

    /// What the Service publishes.
    pub(crate) fn published(self, service: &Value) -> Option<&str> {
        let ingress = &service["status"]["loadBalancer"]["ingress"][0];
        ingress[if self == Self::Nlb { "hostname" } else { "ip" }].as_str()
    }

    /// How many load balancers there are.
    pub(crate) fn count(self, testbed: &Testbed) -> usize {
        testbed.cloud.look(|account| match self {
            Self::Clb => account.load_balancers.len(),
            Self::Nlb => account.nlb.balancers.len(),
        })
    }

    /// Ports of all listeners, in order.
    pub(crate) fn listeners(self, testbed: &Testbed) -> Vec<u16> {
        let mut ports: Vec<u16> = testbed.cloud.look(|account| match self {
            Self::Clb => account.load_balancers.values().flat_map(|lb| lb.listeners.keys().map(|it| it.0)).collect(),
            Self::Nlb => {
                let listeners = account.nlb.balancers.values().flat_map(|lb| lb.listeners.values());
                listeners.map(|listener| listener.port).collect()
            }
        });
        ports.sort_unstable();
        ports
    }

    /// Instances in each server group, with their weights.
    pub(crate) fn groups(self, testbed: &Testbed) -> Vec<BTreeSet<(String, u8)>> {
        testbed.cloud.look(|account| match self {
            Self::Clb => {
                let groups = account.load_balancers.values().flat_map(|lb| lb.groups.values());
                groups
                    .map(|group| group.backends.iter().map(|it| (it.server_id.clone(), it.weight)).collect())
                    .collect()
            }
            Self::Nlb => {
                let groups = account.nlb.groups.values();
                groups.map(|group| group.servers.iter().map(|it| (it.id.clone(), it.weight)).collect()).collect()
            }
        })
    }

    /// Whether every server group has exactly the instances of these nodes.
    pub(crate) fn all_lead_to(self, testbed: &Testbed, nodes: &[u8]) -> bool {
        let wanted: BTreeSet<String> = nodes.iter().map(|number| instance(*number)).collect();
        self.groups(testbed)
            .into_iter()
            .all(|group| group.into_iter().map(|it| it.0).collect::<BTreeSet<_>>() == wanted)
    }

    /// Takes all listeners away and gives backends another weight, as a person does in the console.
    pub(crate) fn meddle(self, testbed: &Testbed) {
        testbed.cloud.edit(|account| match self {
            Self::Clb => {
                for lb in account.load_balancers.values_mut() {
                    lb.listeners.clear();
                    lb.groups.values_mut().flat_map(|group| &mut group.backends).for_each(|it| it.weight = 7);
                }
            }
            Self::Nlb => {
                account.nlb.balancers.values_mut().for_each(|lb| lb.listeners.clear());
                account.nlb.groups.values_mut().flat_map(|group| &mut group.servers).for_each(|it| it.weight = 7);
            }
        });
    }

    /// The call that makes a load balancer.
    pub(crate) fn creates(self) -> &'static str {
        if self == Self::Nlb { "nlb:CreateLoadBalancer" } else { "slb:CreateLoadBalancer" }
    }

    /// The call that deletes a load balancer.
    pub(crate) fn deletes(self) -> &'static str {
        if self == Self::Nlb { "nlb:DeleteLoadBalancer" } else { "slb:DeleteLoadBalancer" }
    }

    /// The call that makes a server group.
    pub(crate) fn creates_group(self) -> &'static str {
        if self == Self::Nlb { "CreateServerGroup" } else { "CreateVServerGroup" }
    }

    /// The call that makes a listener.
    pub(crate) fn creates_listener(self) -> &'static str {
        if self == Self::Nlb { "CreateListener" } else { "CreateLoadBalancerTCPListener" }
    }

    /// The read that says which listeners there are.
    pub(crate) fn reads_listeners(self) -> &'static str {
        if self == Self::Nlb { "ListListeners" } else { "DescribeLoadBalancerListeners" }
    }
}

/// The Service has one ready pod on each of these nodes.
pub(crate) fn point_at(testbed: &Testbed, service: &str, nodes: &[u8]) {
    let endpoint = |number: &u8| Endpoint::ready([10, 98, *number, 10].into(), &format!("node-{number}"));
    let endpoints: Vec<_> = nodes.iter().map(endpoint).collect();
    testbed.cluster.set_endpoints("default", service, &endpoints).unwrap();
}

/// Sets an annotation by what follows the common prefix.
pub(crate) fn annotate(testbed: &Testbed, service: &str, key: &str, value: &str) {
    let patch = json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}});
    testbed.cluster.patch("Service", "default", service, &patch).unwrap();
}
