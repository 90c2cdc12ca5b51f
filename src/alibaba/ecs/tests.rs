use serde_json::json;

use super::*;
use crate::alibaba::tests::script::{Reply, cloud, permit};

const REGION: &str = "cn-shanghai";

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("i-{number}")).collect()
}

#[tokio::test]
async fn an_instance_is_read_with_all_that_nodes_need() {
    let (cloud, script) = cloud([Reply::ok(json!({"RequestId": "R", "NextToken": "", "Instances": {"Instance": [{
        "InstanceId": "i-1", "InstanceName": "worker", "HostName": "host", "Status": "Running",
        "InstanceType": "ecs.g7.large", "RegionId": REGION, "ZoneId": "cn-shanghai-b",
        "InstanceChargeType": "PostPaid", "SpotStrategy": "NoSpot",
        "PublicIpAddress": {"IpAddress": ["1.2.3.4"]}, "InnerIpAddress": {"IpAddress": []},
        "EipAddress": {"IpAddress": "5.6.7.8", "AllocationId": "eip-1"},
        "VpcAttributes": {"VpcId": "vpc-1", "VSwitchId": "vsw-1", "PrivateIpAddress": {"IpAddress": ["10.0.0.1"]}},
        "NetworkInterfaces": {"NetworkInterface": [
            {"NetworkInterfaceId": "eni-2", "Type": "Secondary", "Ipv6Sets": {"Ipv6Set": [{"Ipv6Address": "::2"}]}},
            {"NetworkInterfaceId": "eni-1", "Type": "Primary", "Ipv6Sets": {"Ipv6Set": [{"Ipv6Address": "::1"}]}}]},
        "Tags": {"Tag": [{"TagKey": "k", "TagValue": "v"}]}
    }]}}))]);
    let found = cloud.ecs.describe_instances(REGION, &InstanceFilter::Ids(ids(1))).await.unwrap();
    let expected = Instance {
        id: "i-1".into(),
        name: "worker".into(),
        host_name: "host".into(),
        status: "Running".into(),
        instance_type: "ecs.g7.large".into(),
        region: REGION.into(),
        zone: "cn-shanghai-b".into(),
        vpc_id: "vpc-1".into(),
        vswitch_id: "vsw-1".into(),
        charge_type: "PostPaid".into(),
        spot_strategy: "NoSpot".into(),
        public_ips: vec!["1.2.3.4".into()],
        eip: "5.6.7.8".into(),
        inner_ips: Vec::new(),
        private_ips: vec!["10.0.0.1".into()],
        ipv6_addresses: vec!["::1".into()],
        primary_eni: "eni-1".into(),
        tags: [("k".to_owned(), "v".to_owned())].into_iter().collect(),
    };
    assert_eq!(found, [expected]);
    let seen = script.only();
    assert_eq!(seen.url, "https://ecs-vpc.cn-shanghai.aliyuncs.com/", "the host of the instance's region");
    assert_eq!(seen.param("RegionId"), Some(REGION));
    assert_eq!(
        seen.own_params(),
        [("AdditionalAttributes.1", "NETWORK_PRIMARY_ENI_IP"), ("InstanceIds", r#"["i-0"]"#), ("MaxResults", "100")]
            .into()
    );
}

#[tokio::test]
async fn ids_go_out_in_hundreds_each_with_all_its_pages() {
    let page =
        |id: &str, token: &str| Reply::ok(json!({"NextToken": token, "Instances": {"Instance": [{"InstanceId": id}]}}));
    let (cloud, script) = cloud([page("i-1", "t"), page("i-2", ""), page("i-3", "")]);
    let found = cloud.ecs.describe_instances(REGION, &InstanceFilter::Ids(ids(150))).await.unwrap();
    assert_eq!(found.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>(), ["i-1", "i-2", "i-3"]);
    let seen = script.seen();
    let asked =
        |index: usize| -> Vec<String> { serde_json::from_str(seen[index].param("InstanceIds").unwrap()).unwrap() };
    assert_eq!((asked(0).len(), asked(1).len(), asked(2).len()), (100, 100, 50));
    assert_eq!((seen[0].param("NextToken"), seen[1].param("NextToken")), (None, Some("t")));
    assert_eq!(seen[2].param("NextToken"), None, "a new list starts without the old token");
}

#[tokio::test]
async fn nothing_is_sent_for_no_ids() {
    let (cloud, script) = cloud([]);
    assert!(cloud.ecs.describe_instances(REGION, &InstanceFilter::Ids(Vec::new())).await.unwrap().is_empty());
    assert!(cloud.ecs.describe_network_interfaces(REGION, &[]).await.unwrap().is_empty());
    assert!(cloud.ecs.find_network_interfaces(REGION, "vpc-1", &[]).await.unwrap().is_empty());
    assert!(script.seen().is_empty());
}

#[tokio::test]
async fn a_page_that_fails_fails_the_whole_list() {
    let (cloud, _) = cloud([
        Reply::ok(json!({"NextToken": "t", "Instances": {"Instance": [{"InstanceId": "i-1"}]}})),
        Reply::error(503, "ServiceUnavailable", "later"),
    ]);
    let fault = cloud.ecs.describe_instances(REGION, &InstanceFilter::Ids(ids(2))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Transient);
}

#[tokio::test]
async fn names_and_addresses_are_looked_up_within_the_vpc() {
    let named = |name: &str| json!({"InstanceId": name, "InstanceName": name});
    let (cloud, script) = cloud([
        Reply::ok(json!({"Instances": {"Instance": [named("web-2"), named("web-1")]}})),
        Reply::ok(json!({"Instances": {"Instance": []}})),
    ]);
    let found = cloud.ecs.describe_instances(REGION, &InstanceFilter::Vpc("vpc-1".into())).await.unwrap();
    assert_eq!((found.len(), script.seen()[0].param("VpcId")), (2, Some("vpc-1")));
    let by_ip = InstanceFilter::PrivateIps { vpc_id: "vpc-1".into(), ips: vec!["10.0.0.1".into()] };
    assert!(cloud.ecs.describe_instances(REGION, &by_ip).await.unwrap().is_empty());
    let params = script.seen()[1].clone();
    assert_eq!(params.param("InstanceNetworkType"), Some("vpc"));
    assert_eq!(params.param("VpcId"), Some("vpc-1"));
    assert_eq!(params.param("PrivateIpAddresses"), Some(r#"["10.0.0.1"]"#));
}

#[tokio::test]
async fn only_a_passed_dry_run_or_a_visible_instance_proves_the_permission() {
    let (cloud, script) = cloud([
        Reply::error(400, "DryRunOperation", "Request validation has been passed with DryRun flag set."),
        Reply::error(403, "Forbidden.RAM", "not authorized"),
        Reply::ok(json!({"Instances": {"Instance": []}})),
        Reply::ok(json!({"Instances": {"Instance": [{"InstanceId": "i-1"}]}})),
    ]);
    assert!(cloud.ecs.may_describe_instances(REGION).await.is_ok());
    let fault = cloud.ecs.may_describe_instances(REGION).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Denied);
    assert!(fault.message.contains("ecs:DescribeInstances"), "{fault}");
    assert_eq!(cloud.ecs.may_describe_instances(REGION).await.unwrap_err().kind, FaultKind::Denied);
    assert!(cloud.ecs.may_describe_instances(REGION).await.is_ok());
    assert_eq!(script.seen()[0].param("DryRun"), Some("true"));
}

#[tokio::test]
async fn interfaces_are_found_by_both_kinds_of_address() {
    let interface = |id: &str, v4: &str, v6: &str| {
        json!({"NetworkInterfaceId": id, "InstanceId": "i-1", "PrivateIpAddress": v4, "SourceDestCheck": "true",
            "PrivateIpSets": {"PrivateIpSet": [{"PrivateIpAddress": v4, "Primary": true}, {"PrivateIpAddress": "10.9.9.9"}]},
            "Ipv6Sets": {"Ipv6Set": [{"Ipv6Address": v6}]}})
    };
    let answer = |set: Value| Reply::ok(json!({"NetworkInterfaceSets": {"NetworkInterfaceSet": set}}));
    let (cloud, script) = cloud([
        answer(json!([interface("eni-1", "10.0.0.1", "::1"), interface("eni-x", "10.0.0.7", "::7")])),
        answer(json!([interface("eni-1", "10.0.0.1", "0:0:0:0:0:0:0:1")])),
    ]);
    let ips = ["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let found = cloud.ecs.find_network_interfaces(REGION, "vpc-1", &ips).await.unwrap();
    assert_eq!(found.len(), 1, "once, and without those that hold none of the addresses: {found:?}");
    assert_eq!(found[0].source_dest_check, Some(true));
    assert_eq!(found[0].ipv4, ["10.0.0.1", "10.9.9.9"]);
    let seen = script.seen();
    assert_eq!((seen[0].param("PrivateIpAddress.1"), seen[0].param("Status")), (Some("10.0.0.1"), Some("InUse")));
    assert_eq!((seen[1].param("Ipv6Address.1"), seen[1].param("PrivateIpAddress.1")), (Some("::1"), None));
}

#[tokio::test]
async fn the_source_destination_check_is_switched_off() {
    let (cloud, script) = cloud([Reply::done(), Reply::error(409, "InvalidOperation.Conflict", "busy")]);
    cloud.ecs.disable_source_dest_check(&permit(), REGION, "eni-1").await.unwrap();
    let seen = script.only();
    assert_eq!(seen.action(), "ModifyNetworkInterfaceAttribute");
    assert_eq!(seen.own_params(), [("NetworkInterfaceId", "eni-1"), ("SourceDestCheck", "false")].into());
    let fault = cloud.ecs.disable_source_dest_check(&permit(), REGION, "eni-1").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Busy);
}
