use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::alibaba::FaultKind;
use crate::alibaba::tests::script::{Reply, cloud, permit};
use crate::plan::clb::model::{CreateInstance, InstanceField, InstanceFields};
use crate::plan::clb::model::{ListenerField, Protocol};
use crate::plan::clb::observed::CertificateState;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::model::{Backend, BackendKey, BackendKind};

fn instances(total: usize, from: usize, to: usize) -> Reply {
    let list: Vec<_> = (from..to)
        .map(|number| {
            json!({"LoadBalancerId": format!("lb-{number}"), "LoadBalancerName": "name", "InternetChargeType": "4",
                "InternetChargeTypeAlias": "paybytraffic", "Bandwidth": "5", "DeleteProtection": "on",
                "Tags": {"Tag": [{"TagKey": "k", "TagValue": "v"}]}})
        })
        .collect();
    Reply::ok(json!({"TotalCount": total, "LoadBalancers": {"LoadBalancer": list}}))
}

fn tcp(port: u16) -> ListenerKey {
    ListenerKey { port, protocol: Protocol::Tcp }
}

fn fields(pairs: &[(ListenerField, &str)]) -> ListenerFields {
    pairs.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
}

fn ecs(id: &str, port: u16) -> Backend {
    let key = BackendKey { kind: BackendKind::Ecs, server_id: id.into(), server_ip: Box::default(), port };
    Backend { key, weight: 100, description: "mark".into() }
}

fn eni(id: &str, ip: &str, port: u16) -> Backend {
    let key = BackendKey { kind: BackendKind::Eni, server_id: id.into(), server_ip: ip.into(), port };
    Backend { key, weight: 0, description: "".into() }
}

fn json_param(seen: &crate::alibaba::tests::script::Seen, name: &str) -> Value {
    serde_json::from_str(seen.param(name).unwrap()).unwrap()
}

#[tokio::test]
async fn instances_are_found_by_one_tag_on_every_page() {
    let (cloud, script) = cloud([instances(120, 0, 100), instances(120, 99, 120)]);
    let found = cloud.clb.find_by_tag("k", "v").await.unwrap();
    assert_eq!(found.len(), 120, "the one that moved to the next page counts once");
    assert_eq!(
        found[0].fields.text(InstanceField::InternetChargeType),
        "paybytraffic",
        "lists have the word in the alias"
    );
    assert_eq!(found[0].fields.text(InstanceField::Bandwidth), "5");
    assert_eq!(found[0].fields.text(InstanceField::DeleteProtection), "on");
    let seen = script.seen();
    assert_eq!(json_param(&seen[0], "Tags"), json!([{"TagKey": "k", "TagValue": "v"}]));
    assert_eq!((seen[1].param("PageNumber"), seen[1].param("PageSize")), (Some("2"), Some("100")));
    assert_eq!(seen[0].param("RegionId"), Some("cn-hangzhou"));
}

#[tokio::test]
async fn a_list_that_ignored_the_filter_lends_us_nothing() {
    let (cloud, _) = cloud([instances(2, 0, 2), instances(2, 0, 2)]);
    assert!(cloud.clb.find_by_tag("k", "other").await.unwrap().is_empty());
    assert!(cloud.clb.find_by_name("other").await.unwrap().is_empty());
}

#[tokio::test]
async fn one_instance_is_read_and_only_the_one_asked_for() {
    let (cloud, _) = cloud([
        Reply::ok(
            json!({"LoadBalancerId": "lb-1", "LoadBalancerStatus": "active", "InternetChargeType": "paybybandwidth",
            "AddressIPVersion": "ipv4", "VSwitchId": "vsw-1", "LoadBalancerSpec": "slb.s1.small",
            "Tags": {"Tag": [{"TagKey": "k", "TagValue": "v"}]}}),
        ),
        Reply::ok(json!({"LoadBalancerId": "lb-2"})),
        Reply::error(400, "InvalidLoadBalancerId.NotFound", "The specified LoadBalancerId does not exist."),
        Reply::ok(json!({"LoadBalancerId": ["lb-1"]})),
    ]);
    let found = cloud.clb.describe_instance("lb-1").await.unwrap();
    assert_eq!(
        (found.fields.text(InstanceField::InternetChargeType), found.vswitch_id.as_str()),
        ("paybybandwidth", "vsw-1")
    );
    assert_eq!((found.fields.text(InstanceField::IpVersion), found.tags.get("k").unwrap().as_str()), ("ipv4", "v"));
    assert_eq!(cloud.clb.describe_instance("lb-1").await.unwrap_err().kind, FaultKind::Transient);
    assert_eq!(cloud.clb.describe_instance("lb-1").await.unwrap_err().kind, FaultKind::Gone);
    let fault = cloud.clb.describe_instance("lb-1").await.unwrap_err();
    assert_eq!((fault.kind, fault.action), (FaultKind::Transient, "DescribeLoadBalancerAttribute"));
}

#[tokio::test]
async fn a_new_instance_gets_its_token_tags_and_nothing_that_was_left_out() {
    let (cloud, script) = cloud([
        Reply::ok(json!({"LoadBalancerId": "lb-1", "Address": "10.0.0.9", "VpcId": "vpc-1", "VSwitchId": "vsw-2"})),
        Reply::ok(json!({"RequestId": "R"})),
    ]);
    let wanted = CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::Name, "a1".into()),
            (InstanceField::AddressType, "intranet".into()),
            (InstanceField::ChargeType, "PayBySpec".into()),
            (InstanceField::Spec, "slb.s1.small".into()),
            (InstanceField::DeleteProtection, "on".into()),
            (InstanceField::ModificationProtection, "NonProtection".into()),
        ]),
        vpc_id: Some("vpc-1".into()),
        vswitch_ids: vec!["vsw-1".into(), "vsw-2".into()],
        tags: BTreeMap::from([("a".into(), "1".into()), ("b".into(), String::new())]),
        ..CreateInstance::default()
    };
    let made = cloud.clb.create_instance(&permit(), &wanted, Some("vsw-2"), "token").await.unwrap();
    let known = [&made.id, &made.address, &made.vswitch_id].map(Option::as_deref);
    assert_eq!(known, [Some("lb-1"), Some("10.0.0.9"), Some("vsw-2")]);
    assert_eq!(
        script.only().own_params(),
        [
            ("LoadBalancerName", "a1"),
            ("AddressType", "intranet"),
            ("VpcId", "vpc-1"),
            ("VSwitchId", "vsw-2"),
            ("InstanceChargeType", "PayBySpec"),
            ("LoadBalancerSpec", "slb.s1.small"),
            ("DeleteProtection", "on"),
            ("ModificationProtectionStatus", "NonProtection"),
            ("ClientToken", "token"),
            ("Tag.1.Key", "a"),
            ("Tag.1.Value", "1"),
            ("Tag.2.Key", "b"),
        ]
        .into()
    );
    let fault = cloud.clb.create_instance(&permit(), &wanted, None, "token").await.unwrap_err();
    assert_eq!((fault.kind, fault.request_id.as_str()), (FaultKind::Ambiguous, "R"));
}

#[tokio::test]
async fn everything_that_is_asked_of_a_new_instance_is_sent() {
    let (cloud, script) = cloud([Reply::ok(json!({"LoadBalancerId": "lb-1", "Address": "47.98.0.9"}))]);
    let text = |text: &str| Some(text.to_owned());
    let wanted = CreateInstance {
        fields: InstanceFields::from_iter([
            (InstanceField::IpVersion, "ipv6".into()),
            (InstanceField::Address, "10.0.0.9".into()),
            (InstanceField::InternetChargeType, "paybybandwidth".into()),
            (InstanceField::Bandwidth, "7".into()),
            (InstanceField::ResourceGroup, "rg-1".into()),
        ]),
        master_zone: text("z-i"),
        slave_zone: text("z-j"),
        modification_protection_reason: text("why"),
        ..CreateInstance::default()
    };
    cloud.clb.create_instance(&permit(), &wanted, None, "token").await.unwrap();
    let seen = script.only();
    for (name, value) in [
        ("AddressIPVersion", "ipv6"),
        ("Address", "10.0.0.9"),
        ("MasterZoneId", "z-i"),
        ("SlaveZoneId", "z-j"),
        ("InternetChargeType", "paybybandwidth"),
        ("Bandwidth", "7"),
        ("ModificationProtectionReason", "why"),
        ("ResourceGroupId", "rg-1"),
    ] {
        assert_eq!(seen.param(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn attributes_of_an_instance_are_set_by_their_own_actions() {
    let (cloud, script) = cloud((0..7).map(|_| Reply::done()));
    let (clb, permit) = (&cloud.clb, permit());
    for fields in [
        vec![(InstanceField::Name, "new")],
        vec![(InstanceField::DeleteProtection, "off")],
        vec![(InstanceField::ModificationProtection, "ConsoleProtection")],
        vec![(InstanceField::ChargeType, "PayByCLCU")],
        vec![(InstanceField::Spec, "slb.s2.small")],
        vec![(InstanceField::InternetChargeType, "paybybandwidth"), (InstanceField::Bandwidth, "10")],
        vec![(InstanceField::AddressType, "what cannot be changed is not sent")],
    ] {
        let fields = fields.into_iter().map(|(field, value)| (field, value.to_owned())).collect();
        clb.set_instance(&permit, "lb-1", &fields).await.unwrap();
    }
    clb.delete_instance(&permit, "lb-1").await.unwrap();
    let sent: Vec<_> = script
        .seen()
        .iter()
        .map(|seen| {
            assert_eq!(seen.param("LoadBalancerId"), Some("lb-1"));
            let own = seen.own_params().into_iter().filter(|(name, _)| *name != "LoadBalancerId");
            let own: Vec<_> = own.map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", seen.action(), own.join(" "))
        })
        .collect();
    assert_eq!(
        sent,
        [
            "SetLoadBalancerName LoadBalancerName=new",
            "SetLoadBalancerDeleteProtection DeleteProtection=off",
            "SetLoadBalancerModificationProtection ModificationProtectionStatus=ConsoleProtection",
            "ModifyLoadBalancerInstanceChargeType InstanceChargeType=PayByCLCU",
            "ModifyLoadBalancerInstanceSpec LoadBalancerSpec=slb.s2.small",
            "ModifyLoadBalancerInternetSpec Bandwidth=10 InternetChargeType=paybybandwidth",
            "DeleteLoadBalancer ",
        ]
    );
}

#[tokio::test]
async fn tags_go_out_in_twenties_and_never_as_an_empty_list() {
    let (cloud, script) = cloud((0..4).map(|_| Reply::done()));
    let tags: BTreeMap<_, _> = (0..25).map(|number| (format!("k{number:02}"), "v".to_owned())).collect();
    cloud.clb.tag(&permit(), "lb-1", &tags).await.unwrap();
    let keys: Vec<_> = tags.keys().cloned().collect();
    cloud.clb.untag(&permit(), "lb-1", &keys).await.unwrap();
    cloud.clb.untag(&permit(), "lb-1", &[]).await.unwrap();
    cloud.clb.untag(&permit(), "lb-1", &[String::new()]).await.unwrap();
    let seen = script.seen();
    assert_eq!(script.actions(), ["TagResources", "TagResources", "UntagResources", "UntagResources"]);
    assert_eq!((seen[0].param("Tag.20.Key"), seen[0].param("Tag.21.Key")), (Some("k19"), None));
    assert_eq!((seen[1].param("Tag.1.Key"), seen[1].param("ResourceId.1")), (Some("k20"), Some("lb-1")));
    assert_eq!((seen[3].param("TagKey.1"), seen[3].param("All")), (Some("k20"), None));
}

#[tokio::test]
async fn backends_are_written_as_documented_and_read_back() {
    let (cloud, script) = cloud([
        Reply::ok(json!({"VServerGroupId": "rsp-1"})),
        Reply::done(),
        Reply::done(),
        Reply::ok(json!({"VServerGroupId": "rsp-1", "BackendServers": {"BackendServer": [
            {"ServerId": "i-1", "ServerIp": "10.0.0.1", "Port": 80, "Weight": "100", "Type": "ecs", "Description": "mark"},
            {"ServerId": "eni-1", "ServerIp": "10.0.0.2", "Port": "8080", "Weight": 0, "Type": "eni"},
            {"ServerId": "eci-1", "Port": 80, "Weight": 1, "Type": "eci"}]}})),
        Reply::ok(json!({"VServerGroupId": "rsp-2"})),
        Reply::ok(json!({"VServerGroupId": "rsp-1", "BackendServers": {"BackendServer": [
            {"ServerId": "i-1", "Port": 99999, "Weight": 1}]}})),
    ]);
    let both = [ecs("i-1", 80), eni("eni-1", "10.0.0.2", 8080)];
    let permit = permit();
    assert_eq!(cloud.clb.create_group(&permit, "lb-1", "k8s/80/a/b/c", &both).await.unwrap(), "rsp-1");
    cloud.clb.set_backends(&permit, "rsp-1", &both[..1]).await.unwrap();
    cloud.clb.remove_backends(&permit, "rsp-1", &[both[1].key.clone()]).await.unwrap();
    let seen = script.seen();
    assert_eq!(
        json_param(&seen[0], "BackendServers"),
        json!([
            {"ServerId": "i-1", "Port": "80", "Weight": "100", "Type": "ecs", "Description": "mark"},
            {"ServerId": "eni-1", "ServerIp": "10.0.0.2", "Port": "8080", "Weight": "0", "Type": "eni"}])
    );
    assert_eq!(seen[1].action(), "SetVServerGroupAttribute");
    assert_eq!(
        json_param(&seen[2], "BackendServers"),
        json!([{"ServerId": "eni-1", "ServerIp": "10.0.0.2", "Port": "8080", "Type": "eni"}])
    );
    assert_eq!(cloud.clb.describe_backends("rsp-1").await.unwrap(), both);
    assert_eq!(cloud.clb.describe_backends("rsp-1").await.unwrap_err().kind, FaultKind::Transient, "another group");
    assert_eq!(cloud.clb.describe_backends("rsp-1").await.unwrap_err().kind, FaultKind::Transient, "impossible port");
}

#[tokio::test]
async fn nothing_is_sent_for_no_backends_and_a_group_can_be_made_empty() {
    let (cloud, script) = cloud([Reply::ok(json!({"VServerGroupId": "rsp-1"}))]);
    let permit = permit();
    cloud.clb.add_backends(&permit, "rsp-1", &[]).await.unwrap();
    cloud.clb.remove_backends(&permit, "rsp-1", &[]).await.unwrap();
    cloud.clb.set_backends(&permit, "rsp-1", &[]).await.unwrap();
    cloud.clb.create_group(&permit, "lb-1", "n", &[]).await.unwrap();
    assert_eq!(script.only().param("BackendServers"), None);
}

#[tokio::test]
async fn groups_are_listed() {
    let (cloud, _) = cloud([Reply::ok(json!({"VServerGroups": {"VServerGroup": [
        {"VServerGroupId": "rsp-1", "VServerGroupName": "k8s/80/a/b/c", "ServerCount": 3}]}}))]);
    let groups = cloud.clb.describe_groups("lb-1").await.unwrap();
    assert_eq!(groups, [("rsp-1".into(), "k8s/80/a/b/c".into())]);
}

#[tokio::test]
async fn listeners_are_flattened_to_the_fields_that_are_compared() {
    let (cloud, script) = cloud([
        Reply::ok(json!({"NextToken": "t", "Listeners": [
            {"LoadBalancerId": "lb-1", "ListenerPort": 80, "ListenerProtocol": "tcp", "Status": "running",
             "Description": "k8s/80/a/b/c", "Bandwidth": -1, "Scheduler": "wrr", "VServerGroupId": "rsp-1",
             "AclStatus": "on", "AclType": "white", "AclId": "acl-1", "AclIds": ["acl-1", "acl-2"],
             "TCPListenerConfig": {"PersistenceTimeout": 0, "EstablishedTimeout": 900, "healthCheckInterval": 2,
                "HealthCheckSwitch": "on", "HealthCheckURI": "", "ProxyProtocolV2Enabled": false, "Cookie": null},
             "HTTPListenerConfig": {"Gzip": "on", "StickySession": "on"}},
            {"LoadBalancerId": "lb-1", "ListenerPort": "443", "ListenerProtocol": "quic", "Status": "running"}]})),
        Reply::ok(json!({"NextToken": "", "Listeners": [
            {"LoadBalancerId": "lb-1", "ListenerPort": "80", "ListenerProtocol": "UDP", "Status": "stopped"},
            {"LoadBalancerId": "lb-1", "ListenerPort": 81, "ListenerProtocol": "http",
             "HTTPListenerConfig": {"XForwardedFor_proto": "on", "ListenerForward": "on", "ForwardPort": 443}},
            {"LoadBalancerId": "lb-9", "ListenerPort": 82, "ListenerProtocol": "tcp"}]})),
    ]);
    let listeners = cloud.clb.describe_listeners("lb-1").await.unwrap();
    let keys: Vec<_> = listeners.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["80/tcp", "80/udp", "81/http"], "unknown protocols and other instances are left out");
    let first = &listeners[&tcp(80)];
    assert_eq!((first.group_id.as_str(), first.status.as_str()), ("rsp-1", "running"));
    assert_eq!(
        first.fields,
        fields(&[
            (ListenerField::Bandwidth, "-1"),
            (ListenerField::Scheduler, "wrr"),
            (ListenerField::AclStatus, "on"),
            (ListenerField::AclType, "white"),
            (ListenerField::AclId, "acl-1,acl-2"),
            (ListenerField::PersistenceTimeout, "0"),
            (ListenerField::EstablishedTimeout, "900"),
            (ListenerField::HealthCheckInterval, "2"),
            (ListenerField::HealthCheckSwitch, "on"),
            (ListenerField::ProxyProtocolV2Enabled, "false"),
        ])
    );
    let forward = &listeners[&ListenerKey { port: 81, protocol: Protocol::Http }].fields;
    assert_eq!(forward[&ListenerField::ForwardPort], "443");
    assert_eq!(script.seen()[0].param("LoadBalancerId.1"), Some("lb-1"));
}

#[tokio::test]
async fn listeners_are_made_and_changed_with_the_spelling_of_each_action() {
    let all = fields(&[
        (ListenerField::Bandwidth, "-1"),
        (ListenerField::HealthCheckInterval, "2"),
        (ListenerField::HealthCheckConnectPort, "-520"),
        (ListenerField::ListenerForward, "off"),
        (ListenerField::ForwardPort, "443"),
    ]);
    let (cloud, script) = cloud((0..8).map(|_| Reply::done()));
    for protocol in Protocol::ALL.iter().copied() {
        let request = ListenerRequest {
            load_balancer_id: "lb-1",
            listener: ListenerKey { port: 80, protocol },
            description: "mark",
            group_id: Some("rsp-1"),
            fields: &all,
        };
        cloud.clb.create_listener(&permit(), &request).await.unwrap();
        cloud.clb.set_listener(&permit(), &request).await.unwrap();
    }
    assert_eq!(
        script.actions(),
        [
            "CreateLoadBalancerTCPListener",
            "SetLoadBalancerTCPListenerAttribute",
            "CreateLoadBalancerUDPListener",
            "SetLoadBalancerUDPListenerAttribute",
            "CreateLoadBalancerHTTPListener",
            "SetLoadBalancerHTTPListenerAttribute",
            "CreateLoadBalancerHTTPSListener",
            "SetLoadBalancerHTTPSListenerAttribute",
        ]
    );
    let common = [
        ("LoadBalancerId", "lb-1"),
        ("ListenerPort", "80"),
        ("Description", "mark"),
        ("Bandwidth", "-1"),
        ("VServerGroupId", "rsp-1"),
    ];
    for (index, seen) in script.seen().iter().enumerate() {
        let mut expected: BTreeMap<_, _> = common.into();
        if index % 2 == 0 {
            let layer4 = index < 4;
            expected.insert(if layer4 { "healthCheckInterval" } else { "HealthCheckInterval" }, "2");
            expected.insert("ListenerForward", "off");
            expected.insert("ForwardPort", "443");
        } else {
            expected.insert("HealthCheckInterval", "2");
            expected.insert("HealthCheckConnectPort", "-520");
            expected.insert("VServerGroup", "on");
        }
        assert_eq!(seen.own_params(), expected, "{}", seen.action());
    }
}

#[tokio::test]
async fn a_listener_keeps_its_group_unless_another_is_named() {
    let (cloud, script) = cloud([Reply::done()]);
    let nothing = ListenerFields::new();
    let request = ListenerRequest {
        load_balancer_id: "lb-1",
        listener: tcp(80),
        description: "mark",
        group_id: None,
        fields: &nothing,
    };
    cloud.clb.set_listener(&permit(), &request).await.unwrap();
    assert_eq!((script.only().param("VServerGroup"), script.only().param("VServerGroupId")), (None, None));
}

#[tokio::test]
async fn listeners_are_started_and_deleted_by_port_and_protocol() {
    let (cloud, script) = cloud([Reply::done(), Reply::error(404, "ResourceNotFound.Listener", "no")]);
    cloud.clb.start_listener(&permit(), "lb-1", tcp(80)).await.unwrap();
    let fault = cloud.clb.delete_listener(&permit(), "lb-1", tcp(80)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Gone);
    assert_eq!(script.actions(), ["StartLoadBalancerListener", "DeleteLoadBalancerListener"]);
    let expected: BTreeMap<_, _> =
        [("LoadBalancerId", "lb-1"), ("ListenerPort", "80"), ("ListenerProtocol", "tcp")].into();
    assert!(script.seen().iter().all(|seen| seen.own_params() == expected));
}

#[tokio::test]
async fn domain_extensions_are_read_and_written() {
    let (cloud, script) = cloud([
        Reply::ok(json!({"DomainExtensions": {"DomainExtension": [
            {"DomainExtensionId": "de-1", "Domain": "*.example.com", "ServerCertificateId": "cert-1"}]}})),
        Reply::ok(json!({"DomainExtensionId": "de-2", "ListenerPort": 443})),
        Reply::done(),
        Reply::done(),
    ]);
    let found = cloud.clb.describe_domain_extensions("lb-1", 443).await.unwrap();
    assert_eq!(found["*.example.com"].certificate_id, "cert-1");
    let permit = permit();
    let made = cloud.clb.create_domain_extension(&permit, ("lb-1", 443), "a.example.com", "cert-2").await.unwrap();
    assert_eq!(made, "de-2");
    cloud.clb.set_domain_extension(&permit, "de-2", "cert-3").await.unwrap();
    cloud.clb.delete_domain_extension(&permit, "de-2").await.unwrap();
    assert_eq!(
        script.seen()[2].own_params(),
        [("DomainExtensionId", "de-2"), ("ServerCertificateId", "cert-3")].into()
    );
}

/// Reads the list of 60 entries whose pages show these of them.
async fn access_list(pages: &[(std::ops::Range<u8>, Option<u8>)]) -> (Result<usize, FaultKind>, Vec<String>) {
    let page = |(shown, total): &(std::ops::Range<u8>, Option<u8>)| {
        let entries: Vec<_> = shown.clone().map(|it| json!({"AclEntryIP": format!("10.0.{it}.0/24")})).collect();
        Reply::ok(json!({"AclId": "acl-1", "AclEntrys": {"AclEntry": entries}, "TotalAclEntry": total}))
    };
    let found = Reply::ok(json!({"TotalCount": 1, "Acls": {"Acl": [{"AclId": "acl-1", "AclName": "ours"}]}}));
    let (cloud, script) = cloud(std::iter::once(found).chain(pages.iter().map(page)));
    let read = cloud.clb.find_access_list("ours").await;
    let seen = script.seen();
    let param = |at: usize, name| seen[at].param(name).unwrap_or_default();
    let pages = (1..seen.len()).map(|at| format!("{} of {}", param(at, "Page"), param(at, "PageSize"))).collect();
    (read.map(|list| list.unwrap().entries.len()).map_err(|fault| fault.kind), pages)
}

#[tokio::test]
async fn the_entries_of_an_access_list_are_read_to_their_end_or_not_at_all() {
    let both = ["1 of 50", "2 of 50"].map(str::to_owned).to_vec();
    for total in [Some(60), None] {
        assert_eq!(access_list(&[(0..50, total), (50..60, total)]).await, (Ok(60), both.clone()), "{total:?}");
    }
    assert_eq!(access_list(&[(0..50, Some(50))]).await, (Ok(50), both[..1].to_vec()), "no page beyond the end");
    assert_eq!(access_list(&[(0..10, Some(15)), (10..15, Some(15))]).await.0, Ok(15), "smaller than asked for");
    assert_eq!(access_list(&[(0..60, None), (0..60, None)]).await, (Ok(60), both), "pages are ignored");
    assert_eq!(access_list(&[(0..10, Some(60)), (0..10, Some(60))]).await.0, Err(FaultKind::Transient));
    assert_eq!(access_list(&[(0..0, None)]).await.0, Ok(0));
}

#[tokio::test]
async fn a_certificate_is_valid_expired_or_missing() {
    let certificate = |id: &str, end: Value| {
        Reply::ok(json!({"ServerCertificates": {"ServerCertificate": [
            {"ServerCertificateId": id, "ExpireTimeStamp": end}]}}))
    };
    let (cloud, script) = cloud([
        certificate("cert-1", json!(32_503_680_000_000_i64)),
        certificate("cert-1", json!("1000000000000")),
        certificate("cert-1", json!("")),
        certificate("cert-9", json!(0)),
        Reply::error(404, "CertificateNotExist", "no"),
    ]);
    let expected = [
        CertificateState::Valid,
        CertificateState::Expired,
        CertificateState::Valid,
        CertificateState::Missing,
        CertificateState::Missing,
    ];
    for state in expected {
        assert_eq!(cloud.clb.certificate_state("cert-1").await.unwrap(), state);
    }
    assert_eq!(cloud.clb.certificate_state("").await.unwrap(), CertificateState::Missing);
    assert_eq!(script.seen().len(), 5, "no question without an id");
}
