//! Classic load balancers, nodes, routes, volumes and names.

use sim::cloud::{Eip, Listener, LoadBalancer, Protocol};
use sim::testbed::{ROUTE_TABLE, Testbed, instance};

use super::{Outcome, Story, Subject, id_of, outcome, spec};
use crate::harness::{address, is_ready};
use crate::kinds::Kind;
use crate::private_zone;

pub(super) const STORY: Story = Story {
    kind: Kind::Clb,
    controllers: &["node", "route", "service", "volume-labels", "pvtz"],
    furnish: |_| {},
    subjects: SUBJECTS,
    prepare: |testbed| {
        private_zone::headless(testbed, "db", &[11]);
        private_zone::plain(testbed, "unnamed", "10.96.7.1");
    },
    change,
    follows: |_| {
        &["AddVServerGroupBackendServers", "RemoveVServerGroupBackendServers", "DescribeVServerGroupAttribute"]
    },
    outcomes,
};

const FOUR: &[&str] = &["80", "53/UDP", "8080", "8443"];
const FOUR_PROTOCOLS: [(&str, &str); 2] = [("protocol-port", "http:8080,https:8443"), ("cert-id", "cert-1")];
const HTTPS: (&str, &str) = ("protocol-port", "https:8443");
const BY_SPEC: [(&str, &str); 2] = [("instance-charge-type", "PayBySpec"), ("charge-type", "paybybandwidth")];

const SUBJECTS: &[Subject] = &[
    Subject { name: "plain", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &[]) },
    Subject {
        name: "set",
        before: || spec(&FOUR_PROTOCOLS, FOUR, &[]),
        after: || spec(&[FOUR_PROTOCOLS[0], FOUR_PROTOCOLS[1], ("scheduler", "wlc")], FOUR, &[]),
    },
    Subject {
        name: "more",
        before: || spec(&FOUR_PROTOCOLS, &["90"], &[]),
        after: || spec(&FOUR_PROTOCOLS, &["90", "80", "53/UDP", "8080", "8443"], &[]),
    },
    Subject { name: "less", before: || spec(&[], &["80", "81"], &[]), after: || spec(&[], &["80"], &[]) },
    Subject {
        name: "domains",
        before: || {
            let domains = ("domain-extensions", "a.example.com:cert-1,b.example.com:cert-1");
            spec(&[HTTPS, ("cert-id", "cert-1"), domains], &["80", "8443"], &[])
        },
        after: || {
            let domains = ("domain-extensions", "a.example.com:cert-2,c.example.com:cert-1");
            spec(&[HTTPS, ("cert-id", "cert-1"), domains], &["80", "8443"], &[])
        },
    },
    Subject {
        name: "certificate",
        before: || spec(&[HTTPS, ("cert-id", "cert-1")], &["80", "8443"], &[]),
        after: || spec(&[HTTPS, ("cert-id", "cert-2"), ("scheduler", "wlc")], &["80", "8443"], &[]),
    },
    Subject {
        name: "attributes",
        before: || spec(&[("additional-resource-tags", "a=1")], &["80"], &[]),
        after: || {
            let protections = [("delete-protection", "off"), ("modification-protection", "NonProtection")];
            let others = [("name", "renamed"), ("additional-resource-tags", "b=2")];
            spec(&[protections, others].concat(), &["80"], &[])
        },
    },
    Subject {
        name: "charge",
        before: || spec(&[("instance-charge-type", "PayBySpec")], &["80"], &[]),
        after: || spec(&[("instance-charge-type", "PayByCLCU")], &["80"], &[]),
    },
    Subject {
        name: "size",
        before: || spec(&[BY_SPEC[0], BY_SPEC[1], ("spec", "slb.s2.small"), ("bandwidth", "10")], &["80"], &[]),
        after: || spec(&[BY_SPEC[0], BY_SPEC[1], ("spec", "slb.s3.small"), ("bandwidth", "20")], &["80"], &[]),
    },
    Subject { name: "guarded", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &["10.0.0.0/8"]) },
    Subject {
        name: "regarded",
        before: || spec(&[], &["80"], &["10.0.0.0/8"]),
        after: || spec(&[], &["80"], &["172.16.0.0/12"]),
    },
    Subject { name: "opened", before: || spec(&[], &["80"], &["10.0.0.0/8"]), after: || spec(&[], &["80"], &[]) },
    Subject { name: "stopped", before: || spec(&[], &["80"], &[]), after: || spec(&[], &["80"], &[]) },
    Subject {
        name: "elastic",
        before: || spec(&[("address-type", "intranet"), ("external-ip-type", "eip")], &["80"], &[]),
        after: || spec(&[("address-type", "intranet"), ("external-ip-type", "eip")], &["80"], &[]),
    },
];

/// What happens besides while the action fails.
fn change(testbed: &Testbed) {
    let (stopped, elastic) = (id_of(testbed, "stopped"), id_of(testbed, "elastic"));
    testbed.cloud.edit(|cloud| {
        let lb = cloud.load_balancers.get_mut(&stopped).unwrap();
        lb.listeners.values_mut().for_each(|listener| listener.status = "stopped".into());
        let eip = Eip { address: "47.1.1.1".into(), instance_type: "SlbInstance".into(), instance: elastic };
        cloud.eips.insert("eip-1".into(), eip);
    });
    testbed.provide("data", "d-1", "cn-hangzhou-i");
    private_zone::point_at(testbed, "db", &[12]);
    testbed.cluster.delete("Service", "default", "unnamed").unwrap();
    private_zone::plain(testbed, "named", "10.96.7.2");
    testbed.join(4);
    testbed.cloud.release_instance(&instance(3));
    testbed.cluster.set_ready("node-3", "Unknown").unwrap();
}

/// Looks at the load balancer of a Service.
fn of(testbed: &Testbed, service: &str, is_so: impl Fn(&LoadBalancer) -> bool) -> bool {
    let id = id_of(testbed, service);
    testbed.cloud.look(|cloud| cloud.load_balancers.get(&id).is_some_and(|lb| is_so(lb)))
}

/// What says whether the charge is about to change.
const INSTANCE: &str = "DescribeLoadBalancerAttribute";
const LISTENERS: &str = "DescribeLoadBalancerListeners";

/// Something that becomes true of the load balancer of a Service.
fn of_service(
    service: &'static str,
    what: &str,
    needs: &[&'static str],
    is_so: impl Fn(&LoadBalancer) -> bool + Send + Sync + 'static,
) -> Outcome {
    outcome(format!("{service}: {what}"), needs, move |testbed| of(testbed, service, &is_so))
}

fn of_listener(
    (service, port, protocol): (&'static str, u16, Protocol),
    what: &str,
    needs: &[&'static str],
    is_so: impl Fn(&Listener) -> bool + Send + Sync + 'static,
) -> Outcome {
    let what = format!("listener {port}/{} {what}", protocol.as_str());
    of_service(service, &what, &[&[LISTENERS], needs].concat(), move |lb| {
        lb.listeners.get(&(port, protocol)).is_some_and(&is_so)
    })
}

fn outcomes() -> Vec<Outcome> {
    let objects = of_nodes().into_iter().chain(of_names()).chain(of_whole_services());
    objects.chain(of_listeners()).chain(of_attributes()).collect()
}

fn of_nodes() -> Vec<Outcome> {
    let routed = |cidr: &'static str| {
        move |testbed: &Testbed| testbed.cloud.look(|cloud| cloud.route_tables[ROUTE_TABLE].entries.contains_key(cidr))
    };
    let gone = |testbed: &Testbed| testbed.cluster.get("Node", "", "node-3").is_none();
    let unrouted = routed("10.98.3.0/24");
    let tables = ["DescribeRouteTableList", "DescribeRouteEntryList"];
    let check = ["DescribeNetworkInterfaces", "ModifyNetworkInterfaceAttribute"];
    let create = [&tables[..], &["CreateRouteEntries"]].concat();
    let delete = [&tables[..], &["DeleteRouteEntries", "DescribeInstances"]].concat();
    vec![
        outcome("a new node is initialised", &[&create[..], &check[..], &["DescribeInstances"]].concat(), |testbed| {
            is_ready(&testbed.cluster.get("Node", "", "node-4").unwrap_or_default())
        }),
        outcome("a new node has its route", &create, routed("10.98.4.0/24")),
        outcome("a node whose instance is released is removed", &["DescribeInstances"], gone),
        outcome("a volume is labelled", &["DescribeDisks"], |testbed| {
            let volume = testbed.cluster.get("PersistentVolume", "", "data").unwrap_or_default();
            volume["metadata"]["labels"].is_object() && volume["spec"]["nodeAffinity"].is_object()
        }),
        outcome("its route is removed", &delete, move |testbed| gone(testbed) && !unrouted(testbed)),
    ]
}

fn of_names() -> Vec<Outcome> {
    const ZONE: [&str; 2] = ["DescribeZones", "DescribeZoneRecords"];
    let named = |what: &str, action, line: &'static str, is_there: bool| {
        outcome(what, &[&ZONE[..], &[action]].concat(), move |testbed| {
            private_zone::lines(testbed).iter().any(|it| it == line) == is_there
        })
    };
    vec![
        named("a name follows an endpoint", "UpdateZoneRecord", "db.default.svc A 10.98.1.12", true),
        named("a new Service has its name", "AddZoneRecord", "named.default.svc A 10.96.7.2", true),
        named("a name goes with its Service", "DeleteZoneRecord", "unnamed.default.svc A 10.96.7.1", false),
    ]
}

fn of_whole_services() -> Vec<Outcome> {
    let creation = [
        "DescribeLoadBalancers",
        "CreateLoadBalancer",
        "CreateVServerGroup",
        "CreateLoadBalancerTCPListener",
        "StartLoadBalancerListener",
        // An account that shows no instance may be another one.
        "DescribeInstances/denied",
    ];
    let is_gone = |testbed: &Testbed| {
        let owned = testbed.cloud.look(|cloud| {
            cloud.load_balancers.values().filter(|lb| lb.tags.contains_key("kubernetes.do.not.delete")).count()
        });
        testbed.cluster.get("Service", "default", "gone").is_none() && owned <= SUBJECTS.len() + 1
    };
    vec![
        outcome("new: it gets an address", &creation, |testbed| {
            address(&testbed.cluster.get("Service", "default", "new").unwrap_or_default()).is_some()
        }),
        outcome("gone: it is released", &["SetLoadBalancerDeleteProtection", "DeleteLoadBalancer"], is_gone),
        outcome("elastic: its address is published", &["DescribeEipAddresses"], |testbed| {
            address(&testbed.cluster.get("Service", "default", "elastic").unwrap_or_default()) == Some("47.1.1.1")
        }),
    ]
}

fn of_listeners() -> Vec<Outcome> {
    const NEW: &str = "CreateVServerGroup";
    const START: &str = "StartLoadBalancerListener";
    const LIST: &str = "DescribeVServerGroups";
    const EXTENSIONS: &str = "DescribeDomainExtensions";
    use Protocol::{Http, Https, Tcp, Udp};
    let is_set = |listener: &Listener| listener.scheduler == "wlc";
    let is_running = |listener: &Listener| listener.status == "running";
    let set = |place, action| of_listener(place, "is changed", &[action], is_set);
    let new = |place, action| of_listener(place, "is made", &[LIST, NEW, action, START], is_running);
    let domain = |domain: &'static str, certificate: Option<&'static str>| {
        move |listener: &Listener| {
            let found = listener.domain_extensions.values().find(|it| it.domain == domain);
            found.map(|it| it.certificate.as_str()) == certificate
        }
    };
    let secure = ("domains", 8443, Https);
    let certificate = |listener: &Listener| listener.config["ServerCertificateId"] == "cert-2";
    vec![
        set(("set", 80, Tcp), "SetLoadBalancerTCPListenerAttribute"),
        set(("set", 53, Udp), "SetLoadBalancerUDPListenerAttribute"),
        set(("set", 8080, Http), "SetLoadBalancerHTTPListenerAttribute"),
        set(("set", 8443, Https), "SetLoadBalancerHTTPSListenerAttribute"),
        new(("more", 80, Tcp), "CreateLoadBalancerTCPListener"),
        new(("more", 53, Udp), "CreateLoadBalancerUDPListener"),
        new(("more", 8080, Http), "CreateLoadBalancerHTTPListener"),
        new(("more", 8443, Https), "CreateLoadBalancerHTTPSListener"),
        of_service("less", "the other listener is removed", &[LISTENERS, "DeleteLoadBalancerListener"], |lb| {
            lb.listeners.len() == 1
        }),
        of_listener(("stopped", 80, Tcp), "is started", &[START], is_running),
        of_listener(
            secure,
            "has another certificate for a domain",
            &[EXTENSIONS, "SetDomainExtensionAttribute"],
            domain("a.example.com", Some("cert-2")),
        ),
        of_listener(
            secure,
            "has one more domain",
            &[EXTENSIONS, "CreateDomainExtension"],
            domain("c.example.com", Some("cert-1")),
        ),
        of_listener(
            secure,
            "has one domain less",
            &[EXTENSIONS, "DeleteDomainExtension"],
            domain("b.example.com", None),
        ),
        of_listener(
            ("certificate", 8443, Https),
            "has another certificate",
            &["DescribeServerCertificates", "SetLoadBalancerHTTPSListenerAttribute"],
            certificate,
        ),
        set(("certificate", 80, Tcp), "SetLoadBalancerTCPListenerAttribute"),
    ]
}

fn of_attributes() -> Vec<Outcome> {
    let lists = "DescribeAccessControlLists";
    let list = "DescribeAccessControlListAttribute";
    let set = "SetLoadBalancerTCPListenerAttribute";
    let guarded = |listener: &Listener| listener.acl_status == "on";
    let entries = |testbed: &Testbed, name: &str| {
        testbed.cloud.look(|cloud| {
            let acl = cloud.acls.values().find(|acl| acl.name.contains(name));
            acl.map(|acl| acl.entries.keys().cloned().collect::<Vec<_>>())
        })
    };
    let has = |service: &'static str, entry: &'static str| {
        move |testbed: &Testbed| entries(testbed, service).is_some_and(|all| all.iter().any(|it| it == entry))
    };
    let lacks = |service: &'static str, entry: &'static str| {
        move |testbed: &Testbed| entries(testbed, service).is_some_and(|all| all.iter().all(|it| it != entry))
    };
    vec![
        of_service("attributes", "the name", &["SetLoadBalancerName"], |lb| lb.name == "renamed"),
        of_service("attributes", "the tag", &["TagResources"], |lb| lb.tags.contains_key("b")),
        of_service("attributes", "the other tag", &["UntagResources"], |lb| !lb.tags.contains_key("a")),
        of_service("attributes", "delete protection", &["SetLoadBalancerDeleteProtection"], |lb| !lb.delete_protection),
        of_service("attributes", "modification protection", &["SetLoadBalancerModificationProtection"], |lb| {
            lb.modification_protection == "NonProtection"
        }),
        of_service("charge", "the charge", &[INSTANCE, "ModifyLoadBalancerInstanceChargeType"], |lb| {
            lb.instance_charge_type == "PayByCLCU"
        }),
        of_service("size", "the specification", &[INSTANCE, "ModifyLoadBalancerInstanceSpec"], |lb| {
            lb.spec == "slb.s3.small"
        }),
        of_service("size", "the bandwidth", &[INSTANCE, "ModifyLoadBalancerInternetSpec"], |lb| {
            lb.bandwidth == 20 || lb.reserved.as_ref().is_some_and(|(_, bandwidth)| *bandwidth == 20)
        }),
        of_listener(
            ("guarded", 80, Protocol::Tcp),
            "is guarded",
            &[lists, "CreateAccessControlList", "AddAccessControlListEntry", set],
            guarded,
        ),
        outcome(
            "regarded: the new range is let in",
            &[lists, list, "AddAccessControlListEntry"],
            has("regarded", "172.16.0.0/12"),
        ),
        outcome(
            "regarded: the old range is kept out",
            &[lists, list, "AddAccessControlListEntry", "RemoveAccessControlListEntry"],
            lacks("regarded", "10.0.0.0/8"),
        ),
        of_listener(("opened", 80, Protocol::Tcp), "is open", &[lists, list, set], move |it| !guarded(it)),
        outcome(
            "opened: its access control list is removed",
            &[LISTENERS, lists, list, set, "DeleteAccessControlList"],
            move |testbed| entries(testbed, "opened").is_none(),
        ),
    ]
}
