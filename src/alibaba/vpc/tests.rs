use serde_json::{Value, json};

use super::*;
use crate::alibaba::tests::script::{Reply, cloud, permit};

fn item(destination: &str, instance: &str) -> RouteItem {
    RouteItem {
        table_id: "vtb-1".into(),
        destination: destination.parse().unwrap(),
        instance_id: instance.into(),
        name: "name".into(),
        description: "mark".into(),
    }
}

fn failed(entries: Value) -> Reply {
    Reply::ok(
        json!({"RequestId": "R", "FailedCount": entries.as_array().unwrap().len(), "FailedRouteEntries": entries}),
    )
}

#[tokio::test]
async fn route_tables_are_read_to_the_last_page() {
    let page = |from: usize, to: usize| {
        let tables: Vec<_> = (from..to)
            .map(
                |number| json!({"RouteTableId": format!("vtb-{number}"), "RouteTableType": "System", "VpcId": "vpc-1"}),
            )
            .collect();
        Reply::ok(json!({"TotalCount": 60, "RouterTableList": {"RouterTableListType": tables}}))
    };
    let (cloud, script) = cloud([page(0, 50), page(50, 60)]);
    let tables = cloud.vpc.describe_route_tables("vpc-1").await.unwrap();
    assert_eq!((tables.len(), tables[59].id.as_str(), tables[0].kind.as_str()), (60, "vtb-59", "System"));
    let pages: Vec<_> = script.seen().iter().map(|seen| seen.param("PageNumber").unwrap().to_owned()).collect();
    assert_eq!(pages, ["1", "2"]);
    assert_eq!(script.seen()[0].url, "https://vpc-vpc.cn-hangzhou.aliyuncs.com/");
}

#[tokio::test]
async fn a_list_that_lost_entries_while_it_was_read_is_not_taken_for_whole() {
    let (cloud, _) = cloud([
        Reply::ok(json!({"TotalCount": 2, "VSwitches": {"VSwitch": [{"VSwitchId": "vsw-1"}]}})),
        Reply::ok(json!({"TotalCount": 2, "VSwitches": {"VSwitch": []}})),
    ]);
    assert_eq!(cloud.vpc.describe_vswitches("vpc-1").await.unwrap_err().kind, FaultKind::Transient);
}

#[tokio::test]
async fn a_list_without_an_end_is_a_defect() {
    let endless = (0..1000).map(|_| Reply::ok(json!({"NextToken": "again", "RouteEntrys": ""})));
    let (cloud, _) = cloud(endless);
    tokio::time::pause();
    assert_eq!(cloud.vpc.describe_route_entries("vtb-1").await.unwrap_err().kind, FaultKind::Bug);
}

#[tokio::test]
async fn custom_entries_are_read_and_prefix_lists_left_out() {
    let entry = |id: &str, destination: &str, kind: &str| {
        json!({"RouteEntryId": id, "RouteEntryName": "n", "Description": "d", "DestinationCidrBlock": destination,
            "Type": kind, "Status": "Available",
            "NextHops": {"NextHop": [{"NextHopId": "i-1", "NextHopType": "Instance", "Weight": 0}]}})
    };
    let (cloud, script) = cloud([
        Reply::ok(json!({"NextToken": "t", "RouteEntrys": {"RouteEntry": [
            entry("rte-1", "10.1.0.0/24", "Custom"), entry("rte-2", "pl-123", "Custom"), entry("rte-3", "10.2.0.0/24", "System")]}})),
        Reply::ok(json!({"NextToken": null, "RouteEntrys": {"RouteEntry": [entry("rte-4", "10.3.0.1", "Custom")]}})),
    ]);
    let entries = cloud.vpc.describe_route_entries("vtb-1").await.unwrap();
    let found: Vec<_> = entries.iter().map(|entry| (entry.id.as_str(), entry.destination.to_string())).collect();
    assert_eq!(found, [("rte-1", "10.1.0.0/24".to_owned()), ("rte-4", "10.3.0.1/32".to_owned())]);
    assert_eq!(entries[0].next_hops, [("Instance".to_owned(), "i-1".to_owned())]);
    let seen = script.seen();
    assert_eq!(
        seen[1].own_params(),
        [
            ("MaxResult", "500"),
            ("NextHopType", "Instance"),
            ("NextToken", "t"),
            ("RouteEntryType", "Custom"),
            ("RouteTableId", "vtb-1")
        ]
        .into()
    );
}

#[tokio::test]
async fn a_batch_of_routes_names_each_item_in_full() {
    let (cloud, script) = cloud([Reply::ok(json!({"RouteEntryIds": ["rte-1", "rte-2"], "FailedCount": 0}))]);
    let items = [item("10.1.0.0/24", "i-1"), item("fd00::/64", "i-2")];
    assert!(cloud.vpc.create_route_entries(&permit(), &items).await.unwrap().is_empty());
    let seen = script.only();
    assert_eq!(seen.action(), "CreateRouteEntries");
    assert_eq!(
        seen.own_params(),
        [
            ("RouteEntries.1.RouteTableId", "vtb-1"),
            ("RouteEntries.1.DstCidrBlock", "10.1.0.0/24"),
            ("RouteEntries.1.NextHop", "i-1"),
            ("RouteEntries.1.NextHopType", "Instance"),
            ("RouteEntries.1.IpVersion", "4"),
            ("RouteEntries.1.Name", "name"),
            ("RouteEntries.1.Description", "mark"),
            ("RouteEntries.2.RouteTableId", "vtb-1"),
            ("RouteEntries.2.DstCidrBlock", "fd00::/64"),
            ("RouteEntries.2.NextHop", "i-2"),
            ("RouteEntries.2.NextHopType", "Instance"),
            ("RouteEntries.2.IpVersion", "6"),
            ("RouteEntries.2.Name", "name"),
            ("RouteEntries.2.Description", "mark"),
        ]
        .into()
    );
}

#[tokio::test]
async fn failures_are_told_apart_by_destination_and_next_hop_together() {
    let (cloud, _) = cloud([failed(json!([
        {"DstCidrBlock": "10.2.0.0/24", "NextHop": "i-1", "FailedCode": "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE", "FailedMessage": "dup"},
        {"DstCidrBlock": "10.3.0.0/24", "NextHop": "i-2", "FailedCode": "QuotaExceeded", "FailedMessage": "full"},
    ]))]);
    let items = [item("10.1.0.0/24", "i-1"), item("10.2.0.0/24", "i-1"), item("10.3.0.0/24", "i-2")];
    let faults = cloud.vpc.create_route_entries(&permit(), &items).await.unwrap();
    let found: Vec<_> = faults.iter().map(|fault| (fault.index, fault.kind)).collect();
    assert_eq!(found, [(1, FaultKind::Exists), (2, FaultKind::Quota)]);
    assert_eq!((faults[0].code.as_str(), faults[0].message.as_str()), ("VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE", "dup"));
}

#[tokio::test]
async fn a_failure_that_belongs_to_no_item_leaves_the_batch_unclear() {
    let (cloud, _) = cloud([
        failed(json!([{"DstCidrBlock": "10.9.0.0/24", "NextHop": "i-9", "FailedCode": "X"}])),
        Reply::ok(json!({"FailedCount": 1})),
    ]);
    for _ in 0..2 {
        let fault = cloud.vpc.create_route_entries(&permit(), &[item("10.1.0.0/24", "i-1")]).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Ambiguous);
    }
}

#[tokio::test]
async fn entries_that_are_gone_count_as_deleted() {
    let (cloud, script) = cloud([
        failed(json!([
            {"DstCidrBlock": "10.1.0.0/24", "NextHop": "i-1", "FailedCode": "InvalidRouteEntry.NotFound"},
            {"DstCidrBlock": "10.2.0.0/24", "NextHop": "i-2", "FailedCode": "IncorrectRouteEntryStatus"}])),
        Reply::error(400, "InvalidRouteEntry.NotFound", "gone"),
        Reply::error(400, "InvalidRouteEntry.NotFound", "gone"),
    ]);
    let two = [item("10.1.0.0/24", "i-1"), item("10.2.0.0/24", "i-2")];
    let faults = cloud.vpc.delete_route_entries(&permit(), &two).await.unwrap();
    assert_eq!(faults.iter().map(|fault| (fault.index, fault.kind)).collect::<Vec<_>>(), [(1, FaultKind::Busy)]);
    assert_eq!(script.only().param("RouteEntries.1.Description"), None);
    assert!(cloud.vpc.delete_route_entries(&permit(), &two[..1]).await.unwrap().is_empty());
    let fault = cloud.vpc.delete_route_entries(&permit(), &two).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Busy, "one of two is gone, but which is not said");
}

#[tokio::test]
async fn batches_of_none_or_too_many_are_not_sent() {
    let (cloud, script) = cloud([]);
    assert!(cloud.vpc.create_route_entries(&permit(), &[]).await.unwrap().is_empty());
    let many = vec![item("10.1.0.0/24", "i-1"); 51];
    assert_eq!(cloud.vpc.delete_route_entries(&permit(), &many).await.unwrap_err().kind, FaultKind::Bug);
    assert!(script.seen().is_empty());
}

#[tokio::test]
async fn all_ranges_of_a_vpc_are_known_and_a_missing_vpc_is_none() {
    let (cloud, _) = cloud([
        Reply::ok(json!({"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/8", "Ipv6CidrBlock": "fd00::/56",
            "SecondaryCidrBlocks": {"SecondaryCidrBlock": ["192.168.0.0/16"]},
            "Ipv6CidrBlocks": {"Ipv6CidrBlock": [{"Ipv6CidrBlock": "fd00::/56", "Ipv6Isp": "BGP"}]}})),
        Reply::error(404, "InvalidVpcID.NotFound", "no"),
        Reply::ok(json!({"VpcId": "vpc-2"})),
    ]);
    let vpc = cloud.vpc.describe_vpc("vpc-1").await.unwrap().unwrap();
    let cidrs: Vec<_> = vpc.cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(cidrs, ["10.0.0.0/8", "fd00::/56", "192.168.0.0/16"]);
    assert_eq!(cloud.vpc.describe_vpc("vpc-1").await.unwrap(), None);
    assert_eq!(cloud.vpc.describe_vpc("vpc-1").await.unwrap_err().kind, FaultKind::Transient, "another VPC");
}

#[tokio::test]
async fn vswitches_and_eips_are_read() {
    let (cloud, script) = cloud([
        Reply::ok(json!({"TotalCount": "1", "VSwitches": {"VSwitch": [{"VSwitchId": "vsw-1", "ZoneId": "z",
            "VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24", "AvailableIpAddressCount": "12"}]}})),
        Reply::ok(json!({"TotalCount": 2, "EipAddresses": {"EipAddress": [
            {"IpAddress": "1.2.3.4", "InstanceId": "lb-1"}, {"IpAddress": "5.6.7.8", "InstanceId": "lb-2"}]}})),
    ]);
    let vswitches = cloud.vpc.describe_vswitches("vpc-1").await.unwrap();
    assert_eq!((vswitches[0].id.as_str(), vswitches[0].available_ips), ("vsw-1", 12));
    assert_eq!(cloud.vpc.describe_load_balancer_eips("lb-1").await.unwrap(), ["1.2.3.4"]);
    assert_eq!(script.seen()[1].param("AssociatedInstanceType"), Some("SlbInstance"));
}
