//! Network load balancers, their server groups and security groups.

use std::collections::BTreeSet;

use serde_json::Value;
use sim::cloud::{Account, NetworkListener, NetworkLoadBalancer, SecurityGroup, ServerGroup};
use sim::testbed::{Testbed, VPC};

use super::{Outcome, Story, Subject, id_of, outcome, spec};
use crate::kinds::Kind;

pub(super) const STORY: Story = Story {
    kind: Kind::Nlb,
    controllers: &["nlb"],
    furnish,
    subjects: SUBJECTS,
    prepare: |_| {},
    change,
    follows: |service| match service {
        // The backend that comes is there.
        "weighed" => &FOLLOWS[..3],
        _ => FOLLOWS,
    },
    outcomes,
};

/// What says which server groups there are.
const GROUPS: &str = "ListServerGroups";
/// What says which backends a server group has.
const SERVERS: &str = "ListServerGroupServers";
const LISTENERS: &str = "ListListeners";
const ADD: &str = "AddServersToServerGroup";
const JOIN: &str = "LoadBalancerJoinSecurityGroup";

const FOLLOWS: &[&str] = &[GROUPS, SERVERS, "RemoveServersFromServerGroup", ADD];

fn furnish(cloud: &mut Account) {
    *cloud = cloud.clone().with_vswitch("vsw-k", VPC, "cn-hangzhou-k", "192.168.32.0/20");
    for vswitch in cloud.vswitches.values_mut() {
        vswitch.ipv6_cidr = "2408::/64".into();
    }
    for id in ["sg-1", "sg-2"] {
        let mut group = SecurityGroup::default();
        (group.kind, group.vpc) = ("enterprise".into(), VPC.into());
        cloud.security_groups.insert(id.into(), group);
    }
    cloud.nlb.bandwidth_packages.extend(["cbwp-1", "cbwp-2"].map(str::to_owned));
}

const TLS: [(&str, &str); 2] = [("protocol-port", "tcpssl:443"), ("cert-id", "cert-1")];
const SIX: (&str, &str) = ("ip-version", "DualStack");

/// A Service whose annotation changes.
macro_rules! annotated {
    ($name:literal, $key:literal: $before:literal -> $after:literal) => {
        Subject {
            name: $name,
            before: || spec(&[($key, $before)], &["80"], &[]),
            after: || spec(&[($key, $after)], &["80"], &[]),
        }
    };
}

const SUBJECTS: &[Subject] = &[
    Subject { name: "plain", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &[]) },
    annotated!("set", "idle-timeout": "60" -> "120"),
    annotated!("scheduled", "scheduler": "wrr" -> "wlc"),
    Subject {
        name: "more",
        before: || spec(&TLS, &["90"], &[]),
        after: || spec(&TLS, &["90", "80", "53/UDP", "443"], &[]),
    },
    Subject { name: "less", before: || spec(&[], &["80", "81"], &[]), after: || spec(&[], &["80"], &[]) },
    Subject {
        name: "certificates",
        before: || spec(&[TLS[0], TLS[1], ("additional-cert-ids", "cert-2")], &["80", "443"], &[]),
        after: || spec(&[TLS[0], TLS[1], ("additional-cert-ids", "cert-3")], &["80", "443"], &[]),
    },
    Subject {
        name: "attributes",
        before: || spec(&[("additional-resource-tags", "a=1")], &["80"], &[]),
        after: || {
            let others = [("name", "renamed"), ("additional-resource-tags", "b=2"), ("delete-protection", "off")];
            spec(&others, &["80"], &[])
        },
    },
    annotated!("address", "address-type": "internet" -> "intranet"),
    annotated!("zones", "zone-maps": "cn-hangzhou-i:vsw-i,cn-hangzhou-j:vsw-j" -> "cn-hangzhou-i:vsw-i,cn-hangzhou-k:vsw-k"),
    annotated!("package", "bandwidth-package-id": "cbwp-1" -> "cbwp-2"),
    annotated!("grouped", "security-group-ids": "sg-1" -> "sg-2"),
    Subject {
        name: "joining",
        before: || spec(&[], &["80"], &[]),
        after: || spec(&[("security-group-ids", "sg-1")], &["80", "81"], &[]),
    },
    Subject {
        name: "published",
        before: || spec(&[SIX], &["80"], &[]),
        after: || spec(&[SIX, ("ipv6-address-type", "internet")], &["80"], &[]),
    },
    Subject {
        name: "hidden",
        before: || spec(&[SIX, ("ipv6-address-type", "internet")], &["80"], &[]),
        after: || spec(&[SIX, ("ipv6-address-type", "intranet")], &["80"], &[]),
    },
    Subject { name: "guarded", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &["10.0.0.0/8"]) },
    Subject {
        name: "regarded",
        before: || spec(&[], &["80"], &["10.0.0.0/8"]),
        after: || spec(&[], &["80"], &["172.16.0.0/12"]),
    },
    Subject { name: "opened", before: || spec(&[], &["80"], &["10.0.0.0/8"]), after: || spec(&[], &["80"], &[]) },
    Subject { name: "stopped", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &[]) },
    Subject { name: "weighed", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &[]) },
];

fn change(testbed: &Testbed) {
    let (stopped, weighed) = (id_of(testbed, "stopped"), id_of(testbed, "weighed"));
    testbed.cloud.edit(|cloud| {
        let lb = cloud.nlb.balancers.get_mut(&stopped).unwrap();
        lb.listeners.values_mut().for_each(|listener| listener.status = "Stopped".into());
        let group = cloud.nlb.balancers[&weighed].listeners.values().next().unwrap().group.clone();
        let group = cloud.nlb.groups.get_mut(&group).unwrap();
        // The pod that comes was there once.
        let mut server = group.servers[0].clone();
        (server.id, server.weight) = (sim::testbed::instance(2), 50);
        group.servers.push(server);
    });
}

/// Something that becomes true of the load balancer of a Service.
fn of_service(
    service: &'static str,
    what: &str,
    needs: &[&'static str],
    is_so: impl Fn(&NetworkLoadBalancer) -> bool + Send + Sync + 'static,
) -> Outcome {
    outcome(format!("{service}: {what}"), needs, move |testbed| {
        let id = id_of(testbed, service);
        testbed.cloud.look(|cloud| cloud.nlb.balancers.get(&id).is_some_and(|lb| is_so(lb)))
    })
}

/// Something that becomes true of a listener, which is given by its port and protocol.
fn of_listener(
    (service, key): (&'static str, &'static str),
    what: &str,
    needs: &[&'static str],
    is_so: impl Fn(&NetworkListener) -> bool + Send + Sync + 'static,
) -> Outcome {
    let needs = [&[LISTENERS], needs].concat();
    of_service(service, &format!("listener {key} {what}"), &needs, move |lb| {
        lb.listeners.values().any(|listener| listener.key() == key && is_so(listener))
    })
}

/// Something that becomes true of the server group of a Service's only listener.
fn of_group(
    service: &'static str,
    what: &str,
    needs: &[&'static str],
    is_so: impl Fn(&ServerGroup) -> bool + Send + Sync + 'static,
) -> Outcome {
    outcome(format!("{service}: {what}"), &[&[GROUPS], needs].concat(), move |testbed| {
        let id = id_of(testbed, service);
        testbed.cloud.look(|cloud| {
            let listener = cloud.nlb.balancers.get(&id).and_then(|lb| lb.listeners.values().next());
            listener.and_then(|listener| cloud.nlb.groups.get(&listener.group)).is_some_and(|group| is_so(group))
        })
    })
}

fn outcomes() -> Vec<Outcome> {
    of_whole_services().into_iter().chain(of_listeners()).chain(of_attributes()).chain(of_security_groups()).collect()
}

fn of_whole_services() -> Vec<Outcome> {
    let creation = [
        "ListLoadBalancers",
        "CreateLoadBalancer",
        GROUPS,
        "CreateServerGroup",
        ADD,
        "CreateListener",
        // An account that shows no instance may be another one.
        "DescribeInstances/denied",
    ];
    let deletion = [
        "UpdateLoadBalancerProtection",
        "DeleteLoadBalancer",
        // They prove that it is gone, and that the account is the right one.
        "GetLoadBalancerAttribute",
        "ListLoadBalancers",
        "DescribeInstances",
        GROUPS,
        SERVERS,
        "DeleteServerGroup",
    ];
    let published = |testbed: &Testbed| {
        let service = testbed.cluster.get("Service", "default", "new").unwrap_or_default();
        Kind::Nlb.published(&service).is_some()
    };
    let is_gone = |testbed: &Testbed| {
        let groups = testbed
            .cloud
            .look(|cloud| cloud.nlb.groups.values().filter(|group| group.name.contains(".gone.default.")).count());
        testbed.cluster.get("Service", "default", "gone").is_none() && groups == 0
    };
    vec![outcome("new: it gets its name", &creation, published), outcome("gone: it is released", &deletion, is_gone)]
}

fn of_listeners() -> Vec<Outcome> {
    const CERTIFICATES: &str = "ListListenerCertificates";
    const ASSOCIATE: &str = "AssociateAdditionalCertificatesWithListener";
    let is_running = |listener: &NetworkListener| listener.status == "Running";
    let made = [GROUPS, "CreateServerGroup", ADD, "CreateListener"];
    let new = |key| of_listener(("more", key), "is made", &made, is_running);
    let has = |id: &'static str, has: bool| {
        move |listener: &NetworkListener| listener.additional_certificates.iter().any(|it| it == id) == has
    };
    let secure = ("certificates", "443/TCPSSL");
    let less = |testbed: &Testbed| {
        testbed
            .cloud
            .look(|cloud| cloud.nlb.groups.values().filter(|group| group.name.contains(".less.default.")).count() == 1)
    };
    let fewer = [GROUPS, LISTENERS, SERVERS, "DeleteListener", "DeleteServerGroup"];
    vec![
        of_listener(("set", "80/TCP"), "is changed", &["UpdateListenerAttribute"], |it| it.idle_timeout == 120),
        new("80/TCP"),
        new("53/UDP"),
        new("443/TCPSSL"),
        // It would be open to everybody.
        of_listener(("joining", "81/TCP"), "is made", &[&made[..], &[JOIN]].concat(), is_running),
        of_service("less", "the other listener is removed", &[LISTENERS, "DeleteListener"], |lb| {
            lb.listeners.len() == 1
        }),
        outcome("less: its server group is removed", &fewer, less),
        of_listener(("stopped", "80/TCP"), "is started", &["StartListener"], is_running),
        of_listener(secure, "has one more certificate", &[CERTIFICATES, ASSOCIATE], has("cert-3", true)),
        of_listener(
            secure,
            "has one certificate less",
            // Not before the one that takes its place is there.
            &[CERTIFICATES, ASSOCIATE, "DisassociateAdditionalCertificatesWithListener"],
            has("cert-2", false),
        ),
        of_group("scheduled", "the scheduler", &["UpdateServerGroupAttribute"], |group| group.scheduler == "wlc"),
        of_group("weighed", "the weight", &[SERVERS, "UpdateServerGroupServersAttribute"], |group| {
            group.servers.iter().any(|it| it.id == sim::testbed::instance(2) && it.weight == 1)
        }),
    ]
}

fn of_attributes() -> Vec<Outcome> {
    vec![
        of_service("attributes", "the name", &["UpdateLoadBalancerAttribute"], |lb| lb.name == "renamed"),
        of_service("attributes", "the tag", &["TagResources"], |lb| lb.tags.contains_key("b")),
        of_service("attributes", "the other tag", &["UntagResources"], |lb| !lb.tags.contains_key("a")),
        of_service("attributes", "delete protection", &["UpdateLoadBalancerProtection"], |lb| !lb.deletion_protection),
        of_service("address", "the address type", &["UpdateLoadBalancerAddressTypeConfig"], |lb| {
            lb.address_type == "Intranet"
        }),
        of_service("zones", "the zones", &["UpdateLoadBalancerZones"], |lb| {
            lb.zones.iter().map(|zone| zone.vswitch.as_str()).eq(["vsw-i", "vsw-k"])
        }),
        of_service(
            "package",
            "the bandwidth package",
            &["DetachCommonBandwidthPackageFromLoadBalancer", "AttachCommonBandwidthPackageToLoadBalancer"],
            |lb| lb.bandwidth_package == "cbwp-2",
        ),
        of_service("published", "the IPv6 address is public", &["EnableLoadBalancerIpv6Internet"], |lb| {
            lb.ipv6_address_type == "Internet"
        }),
        of_service("hidden", "the IPv6 address is private", &["DisableLoadBalancerIpv6Internet"], |lb| {
            lb.ipv6_address_type == "Intranet"
        }),
        of_service("grouped", "joins a security group", &[JOIN], |lb| lb.security_groups.iter().any(|id| id == "sg-2")),
        // Not before it is in the other one.
        of_service("grouped", "leaves a security group", &[JOIN, "LoadBalancerLeaveSecurityGroup"], |lb| {
            lb.security_groups.iter().all(|id| id != "sg-1")
        }),
    ]
}

/// What says which security groups there are.
const SECURITY_GROUPS: &str = "DescribeSecurityGroups";
/// What says which rules a security group has.
const RULES: &str = "DescribeSecurityGroupAttribute";

/// Blocks that the security group of a Service lets in; `None` if there is none.
fn let_in(testbed: &Testbed, service: &str) -> Option<BTreeSet<String>> {
    let all = testbed.cloud.snapshot();
    let group = all["security_groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["description"].as_str().is_some_and(|text| text.contains(&format!(".{service}."))))?;
    let rules = group["rules"].as_array().unwrap().iter().filter(|rule| rule["policy"] == "Accept");
    let source = |rule: &Value| rule["fields"]["SourceCidrIp"].as_str().unwrap_or_default().to_owned();
    Some(rules.map(source).collect())
}

fn of_security_groups() -> Vec<Outcome> {
    let new = [SECURITY_GROUPS, "CreateSecurityGroup", "AuthorizeSecurityGroup", JOIN];
    let rules = [SECURITY_GROUPS, RULES, "AuthorizeSecurityGroup"];
    let fewer_rules = [&rules[..], &["RevokeSecurityGroup"]].concat();
    let gone = [SECURITY_GROUPS, "LoadBalancerLeaveSecurityGroup", "DeleteSecurityGroup"];
    let lets_in = |service: &'static str, block: &'static str, wanted: bool| {
        move |testbed: &Testbed| let_in(testbed, service).is_some_and(|all| all.contains(block) == wanted)
    };
    vec![
        of_service("guarded", "is guarded", &new, |lb| !lb.security_groups.is_empty()),
        outcome("regarded: the new range is let in", &rules, lets_in("regarded", "172.16.0.0/12", true)),
        outcome("regarded: the old range is kept out", &fewer_rules, lets_in("regarded", "10.0.0.0/8", false)),
        of_service("opened", "is open", &gone[..2], |lb| lb.security_groups.is_empty()),
        outcome("opened: its security group is removed", &gone, |testbed| let_in(testbed, "opened").is_none()),
    ]
}
