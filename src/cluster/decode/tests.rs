use serde_json::json;

use super::*;
use crate::plan::digest;
use crate::plan::inputs::ConditionStatus;

#[test]
fn a_node_is_reduced_to_what_decides() {
    let view = node(json!({
        "metadata": {
            "name": "n1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-03T00:00:00Z", "labels": { "a": "b" },
            "annotations": { "alpha.kubernetes.io/provided-node-ip": "10.0.0.9" }
        },
        "spec": {
            "providerID": "cn-hangzhou.i-1", "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
            "unschedulable": true, "taints": [{ "key": "k", "effect": "NoExecute", "timeAdded": "2026-01-02T05:00:00Z" }]
        },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.9" }],
            "conditions": [
                { "type": "Ready", "status": "False", "reason": "KubeletNotReady", "lastTransitionTime": "2026-01-02T04:00:00Z" },
                { "type": "NetworkUnavailable", "status": "odd" }
            ]
        }
    }))
    .unwrap();
    let expected = NodeView {
        name: "n1".into(),
        uid: "u".into(),
        resource_version: "7".into(),
        created: Some("2026-01-02T03:04:05Z".parse().unwrap()),
        deleting: true,
        labels: [("a".into(), "b".into())].into_iter().collect(),
        provided_node_ip: Some("10.0.0.9".into()),
        provider_id: "cn-hangzhou.i-1".into(),
        unschedulable: true,
        taints: vec![Taint {
            key: "k".into(),
            value: String::new(),
            effect: "NoExecute".into(),
            added: Some("2026-01-02T05:00:00Z".parse().unwrap()),
        }],
        pod_cidrs: vec!["10.1.0.0/24".into(), "fd00::/64".into()],
        addresses: vec![NodeAddress { kind: "InternalIP".into(), address: "10.0.0.9".into() }],
        has_conditions: true,
        ready: Some(Condition {
            status: ConditionStatus::False,
            reason: "KubeletNotReady".into(),
            since: Some("2026-01-02T04:00:00Z".parse().unwrap()),
        }),
        network_unavailable: Some(Condition { status: ConditionStatus::Unknown, reason: String::new(), since: None }),
        is_replaced: false,
    };
    assert_eq!(view, expected);
}

#[test]
fn pod_ranges_come_from_whichever_field_the_server_knows() {
    for (spec, expected) in [
        (json!({ "podCIDR": "10.1.0.0/24" }), vec!["10.1.0.0/24"]),
        (json!({ "podCIDR": "10.1.0.0/24", "podCIDRs": [] }), vec!["10.1.0.0/24"]),
        (json!({ "podCIDR": "" }), vec![]),
        (json!({ "podCIDRs": ["fd00::/64"] }), vec!["fd00::/64"]),
        (json!({}), vec![]),
    ] {
        let view = node(json!({ "metadata": { "name": "n" }, "spec": spec })).unwrap();
        assert_eq!(view.pod_cidrs, expected);
    }
}

#[test]
fn a_bare_node_is_readable() {
    let view =
        node(json!({ "metadata": { "name": "n", "creationTimestamp": null }, "status": { "conditions": null } }));
    assert_eq!(view.unwrap(), NodeView { name: "n".into(), ..NodeView::default() });
}

#[test]
fn a_service_is_reduced_to_what_decides() {
    let view = service(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "finalizers": ["x"],
            "labels": { "app": "web", "service.k8s.alibaba/loadbalancer-id": "lb-1" },
            "annotations": {
                "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id": "lb-1",
                "service.beta.kubernetes.io/alicloud-loadbalancer-spec": "slb.s1.small",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "alicloud-ccm/clb-incarnation": "6"
            }
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "None", "externalName": "out.example", "loadBalancerClass": "", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } }, "allocateLoadBalancerNodePorts": false,
            "publishNotReadyAddresses": true, "selector": { "app": "web" },
            "ports": [
                { "name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080 },
                { "port": 53, "protocol": "UDP", "targetPort": 5353 },
                { "port": 443, "targetPort": 0 }
            ]
        },
        "status": { "loadBalancer": { "ingress": [
            { "ip": "1.2.3.4", "ipMode": "VIP", "ports": [{ "port": 80, "protocol": "TCP", "error": "PortTaken" }] },
            { "hostname": "lb.example" }
        ] }, "conditions": [
            { "type": "example.com/Other", "status": "True", "reason": "Other", "message": "", "lastTransitionTime": null },
            { "type": "LoadBalancerReady", "status": "False", "reason": "Why", "message": "because" }
        ] }
    }))
    .unwrap();
    let expected = ServiceView {
        key: ObjectKey::new("shop", "web"),
        uid: "u".into(),
        resource_version: "7".into(),
        deleting: false,
        finalizers: vec!["x".into()],
        labels: [("service.k8s.alibaba/loadbalancer-id".into(), "lb-1".into())].into_iter().collect(),
        annotations: [
            ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-id".into(), "lb-1".into()),
            ("service.beta.kubernetes.io/alicloud-loadbalancer-spec".into(), "slb.s1.small".into()),
        ]
        .into_iter()
        .collect(),
        other_annotations: view.other_annotations,
        own_annotations: [("alicloud-ccm/clb-incarnation".into(), "6".into())].into_iter().collect(),
        service_type: ServiceType::LoadBalancer,
        load_balancer_class: Some(String::new()),
        cluster_ips: vec!["None".into()],
        external_name: "out.example".into(),
        ports: vec![
            ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: 80,
                target_port: TargetPort::Name("web".into()),
                node_port: 30080,
            },
            ServicePort {
                name: String::new(),
                protocol: "UDP".into(),
                port: 53,
                target_port: TargetPort::Number(5353),
                node_port: 0,
            },
            ServicePort {
                name: String::new(),
                protocol: "TCP".into(),
                port: 443,
                target_port: TargetPort::Number(443),
                node_port: 0,
            },
        ],
        local_traffic: true,
        health_check_node_port: 31000,
        source_ranges: vec!["10.0.0.0/8".into()],
        client_ip_affinity: Some(60),
        vain_fields: Vec::new(),
        allocate_node_ports: false,
        publish_not_ready: true,
        selector: [("app".into(), "web".into())].into_iter().collect(),
        ingress: vec![
            Ingress { ip: "1.2.3.4".into(), hostname: String::new() },
            Ingress { ip: String::new(), hostname: "lb.example".into() },
        ],
        ingress_details: vec![
            IngressDetails {
                ip_mode: "VIP".into(),
                ports: vec![PortStatus { port: 80, protocol: "TCP".into(), error: "PortTaken".into() }],
            },
            IngressDetails::default(),
        ],
        ready: ReadyCondition::default(),
        status_writer: None,
    };
    assert_eq!(view, expected, "the condition makes no difference: no Service is due because of it");
    let condition = SyncCondition { is_true: false, reason: "Why".into(), message: "because".into() };
    assert_eq!(view.ready.0, Some(condition));
}

#[test]
fn a_service_of_an_old_server_gets_the_defaults_of_new_ones() {
    let view =
        service(json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": { "sessionAffinity": "ClientIP" } }));
    let view = view.unwrap();
    assert!(view.allocate_node_ports);
    assert_eq!(view.client_ip_affinity, Some(10_800));
    assert_eq!(view.load_balancer_class, None);
}

#[test]
fn a_service_concerns_us_while_it_may_have_a_load_balancer() {
    for (metadata, kind, expected) in [
        (json!({}), "ClusterIP", false),
        (json!({}), "LoadBalancer", true),
        (json!({ "finalizers": ["service.k8s.alibaba/resources"] }), "ClusterIP", true),
        (json!({ "finalizers": ["example.com/other"], "labels": { "app": "x" } }), "NodePort", false),
        (json!({ "labels": { "service.beta.kubernetes.io/hash": "h" } }), "NodePort", true),
        (json!({ "labels": { "service.k8s.alibaba/loadbalancer-id": "lb-1" } }), "ClusterIP", true),
    ] {
        let view = service(json!({ "metadata": metadata, "spec": { "type": kind } })).unwrap();
        assert_eq!(concerns_us(&view), expected, "{view:?}");
    }
}

fn endpoint(address: &str, ready: bool, ports: &[(&str, u16)]) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        node: None,
        pod: None,
        pod_uid: 0,
        hostname: None,
        ready,
        serving: true,
        terminating: false,
        ports: ports.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
    }
}

#[test]
fn slices_of_both_versions_say_the_same() {
    let target = json!({ "kind": "Pod", "name": "p1", "uid": "u1" });
    let ports = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]);
    let metadata = json!({ "name": "s1", "namespace": "shop", "labels": { "kubernetes.io/service-name": "web" } });
    let one = |endpoint: Value| json!({ "metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": [endpoint] });
    let conditions = json!({ "ready": true });
    let expected = EndpointsView {
        unknown: false,
        endpoints: vec![Endpoint {
            node: Some("n1".into()),
            pod: Some("p1".into()),
            pod_uid: digest::number("u1"),
            hostname: Some("web-0".into()),
            ..endpoint("10.1.0.5", true, &[("http", 8080)])
        }],
    };
    for object in [
        one(
            json!({ "addresses": ["10.1.0.5"], "conditions": conditions, "hostname": "web-0", "nodeName": "n1", "targetRef": target }),
        ),
        one(
            json!({ "addresses": ["10.1.0.5"], "conditions": conditions, "topology": { "kubernetes.io/hostname": "n1" }, "hostname": "web-0", "targetRef": target }),
        ),
        one(
            json!({ "addresses": ["10.1.0.5"], "conditions": conditions, "deprecatedTopology": { "kubernetes.io/hostname": "n1" }, "hostname": "web-0", "targetRef": target }),
        ),
    ] {
        assert_eq!(slice_owner(&object), Some(ObjectKey::new("shop", "web")));
        assert!(slice_has_addresses(&object));
        assert_eq!(slice(object).unwrap(), expected);
    }
}

#[test]
fn only_pods_are_named_by_what_they_are() {
    let target = json!({ "kind": "VirtualMachine", "name": "p1" });
    let metadata = json!({ "name": "s1", "namespace": "shop", "labels": { "kubernetes.io/service-name": "web" } });
    let by_slice = json!({ "metadata": metadata, "endpoints": [{ "addresses": ["10.1.0.5"], "targetRef": target }] });
    assert_eq!(slice(by_slice).unwrap().endpoints[0].pod, None);
    let addresses = json!([{ "ip": "10.1.0.5", "targetRef": target }]);
    let whole = json!({ "metadata": { "name": "web" }, "subsets": [{ "addresses": addresses }] });
    assert_eq!(endpoints(whole).unwrap().endpoints[0].pod, None);
}

#[test]
fn a_port_without_target_is_its_own_target() {
    for target in [json!(null), json!(0), json!("")] {
        let spec = json!({ "ports": [{ "port": 443, "targetPort": target }] });
        let found = service(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap().ports;
        assert_eq!(found[0].target_port, TargetPort::Number(443));
    }
}

#[test]
fn a_slice_may_be_empty_foreign_or_say_little() {
    let labels = json!({ "kubernetes.io/service-name": "web" });
    let empty = json!({ "metadata": { "namespace": "a", "labels": labels }, "endpoints": null, "ports": null });
    assert_eq!((slice_owner(&empty), slice_has_addresses(&empty)), (Some(ObjectKey::new("a", "web")), false));
    assert_eq!(slice(empty).unwrap(), EndpointsView::default());
    for foreign in [json!({}), json!(null), json!({ "kubernetes.io/service-name": "" })] {
        assert_eq!(slice_owner(&json!({ "metadata": { "namespace": "a", "labels": foreign } })), None);
    }
    let little = slice(json!({
        "metadata": { "namespace": "a", "labels": labels },
        "ports": [{ "port": 80 }, { "name": "all", "port": null }],
        "endpoints": [
            { "addresses": ["fd00::5"], "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["db.example"] }, { "addresses": [] }, { "addresses": ["10.0.0.1"] }
        ]
    }));
    let expected = vec![
        endpoint("10.0.0.1", true, &[("", 80)]),
        Endpoint { terminating: true, ..endpoint("fd00::5", false, &[("", 80)]) },
    ];
    assert_eq!(little.unwrap().endpoints, expected);
}

#[test]
fn old_endpoints_tell_ready_from_not_ready() {
    let view = endpoints(json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "subsets": [{
            "addresses": [{ "ip": "10.1.0.6", "hostname": "web-0", "nodeName": "n1", "targetRef": { "kind": "Pod", "name": "p1", "uid": "u1" } }],
            "notReadyAddresses": [{ "ip": "10.1.0.5" }],
            "ports": [{ "name": "https", "port": 8443 }, { "name": "http", "port": 8080 }]
        }]
    }))
    .unwrap();
    let ports = [("http", 8080), ("https", 8443)];
    let expected = vec![
        endpoint("10.1.0.5", false, &ports),
        Endpoint {
            node: Some("n1".into()),
            pod: Some("p1".into()),
            pod_uid: digest::number("u1"),
            hostname: Some("web-0".into()),
            ..endpoint("10.1.0.6", true, &ports)
        },
    ];
    assert_eq!(view.endpoints, expected);
    assert_eq!(endpoints(json!({ "metadata": {}, "subsets": null })).unwrap(), EndpointsView::default());
}

#[test]
fn an_endpoint_that_is_in_two_slices_counts_once_in_its_better_state() {
    let worse = endpoint("10.0.0.1", false, &[("http", 80)]);
    let ending = Endpoint { terminating: true, ..endpoint("10.0.0.1", true, &[("http", 80)]) };
    let better = endpoint("10.0.0.1", true, &[("http", 80)]);
    let other_ports = endpoint("10.0.0.1", true, &[("http", 81)]);
    let all = merge(vec![other_ports.clone(), ending, worse, better.clone()]);
    assert_eq!(all.endpoints, vec![better, other_ports]);
}

#[test]
fn a_pod_is_reduced_to_its_gates() {
    let view = pod(json!({
        "metadata": { "name": "web-0", "namespace": "shop", "uid": "u" },
        "spec": { "containers": [{ "name": "c" }], "readinessGates": [{ "conditionType": "g/web" }] },
        "status": { "conditions": [
            { "type": "ContainersReady", "status": "True" },
            { "type": "g/web", "status": "False", "reason": "Why", "lastTransitionTime": "2026-01-02T05:00:00Z" }
        ] }
    }));
    let since = Some("2026-01-02T05:00:00Z".parse().unwrap());
    let condition = Condition { status: ConditionStatus::False, reason: "Why".into(), since };
    let expected = PodView {
        key: ObjectKey::new("shop", "web-0"),
        uid: "u".into(),
        gates: ["g/web".to_owned()].into(),
        containers_ready: true,
        conditions: [("g/web".to_owned(), condition)].into(),
    };
    assert_eq!(view.unwrap(), expected);
    let bare = pod(json!({ "metadata": { "name": "web-1", "namespace": "shop" } })).unwrap();
    assert!(bare.gates.is_empty() && !bare.containers_ready);
}

#[test]
fn volumes_of_disks_are_kept_and_no_others() {
    let volume = |spec: Value| {
        let labels = json!({ "topology.kubernetes.io/zone": "a", "alicloud-pvname": "x" });
        json!({ "metadata": { "name": "pv", "uid": "u", "resourceVersion": "7", "labels": labels }, "spec": spec })
    };
    let csi = json!({ "csi": { "driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1" } });
    let kept = super::volume(volume(csi.clone())).unwrap().unwrap();
    assert_eq!((kept.name.as_str(), kept.resource_version.as_str(), kept.handle.as_str()), ("pv", "7", "d-1"));
    assert_eq!((kept.driver, kept.has_affinity, kept.deleting), (DiskDriver::Csi, false, false));
    assert_eq!(kept.topology.into_iter().collect::<Vec<_>>(), [("topology.kubernetes.io/zone".into(), "a".into())]);
    let mut bound = csi;
    bound["nodeAffinity"] = json!({});
    assert!(super::volume(volume(bound)).unwrap().unwrap().has_affinity, "it cannot be changed any more");
    let flex = json!({ "flexVolume": { "driver": "alicloud/disk", "options": { "volumeId": "d-2" } } });
    let kept = super::volume(volume(flex)).unwrap().unwrap();
    assert_eq!((kept.driver, kept.handle.as_str()), (DiskDriver::FlexVolume, "d-2"));
    let bare = json!({ "metadata": { "name": "pv" }, "spec": { "flexVolume": { "driver": "alicloud/disk" } } });
    assert_eq!(super::volume(bare).unwrap().unwrap().handle, "", "an event reports it");
    for other in [
        json!({ "csi": { "driver": "nasplugin.csi.alibabacloud.com", "volumeHandle": "n-1" } }),
        json!({ "flexVolume": { "driver": "alicloud/nas" } }),
        json!({ "hostPath": { "path": "/" } }),
    ] {
        assert_eq!(super::volume(volume(other)).unwrap(), None);
    }
    assert_eq!(super::volume(json!({})).unwrap(), None);
}

#[test]
fn the_last_other_writer_of_a_status_and_fields_without_use_are_kept() {
    let entry =
        |manager: &str, time: &str, fields: Value| json!({"manager": manager, "time": time, "fieldsV1": fields});
    let status = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let writer = |last: &str| {
        let read = super::service(json!({
            "metadata": {"name": "web", "managedFields": [
                entry("kubectl", "2026-01-03T00:00:00Z", json!({"f:spec": {}})),
                entry("first", "2026-01-01T00:00:00Z", status.clone()),
                entry(last, "2026-01-02T00:00:00Z", status.clone()),
            ]},
            "spec": {"type": "LoadBalancer", "externalIPs": ["1.2.3.4"], "loadBalancerIP": "5.6.7.8"},
        }));
        read.expect("a Service")
    };
    assert_eq!(writer("metallb").status_writer.as_deref(), Some("metallb"));
    assert_eq!(writer("alicloud-ccm").status_writer, None);
    let vain = [("externalIPs", "1.2.3.4".to_owned()), ("loadBalancerIP", "5.6.7.8".to_owned())];
    assert_eq!(writer("alicloud-ccm").vain_fields, vain);
}
