//! The rules of the cloud, its dials and its faults.

use serde_json::json;

use super::*;

fn names(found: &Value, outer: &str, inner: &str, field: &str) -> Vec<String> {
    found[outer][inner].as_array().unwrap().iter().map(|it| text(&it[field])).collect()
}

async fn load_balancer_ids(client: &Client) -> Vec<String> {
    names(&client.slb("DescribeLoadBalancers", &[]).await.unwrap(), "LoadBalancers", "LoadBalancer", "LoadBalancerId")
}

fn route(n: u8) -> [(&'static str, String); 3] {
    let (cidr, hop) = (format!("10.0.{n}.0/24"), "i-1".to_owned());
    [("RouteTableId", "vtb-1".to_owned()), ("DestinationCidrBlock", cidr), ("NextHopId", hop)]
}

async fn create_route(client: &Client, n: u8) -> Answer {
    let given = route(n);
    let given: Vec<(&str, &str)> = given.iter().map(|(name, value)| (*name, value.as_str())).collect();
    client.call(VPC, "CreateRouteEntry", &given).await
}

#[tokio::test]
async fn a_load_balancer_starts_with_the_defaults_of_the_cloud() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_load_balancer().await;
    let mut shown = cloud.load_balancer(&lb);
    assert_eq!(shown["address"].as_str().map(|it| &it[..6]), Some("47.98."));
    shown["address"] = Value::Null;
    let expected = json!({
        "id": lb, "name": "web", "address": null, "address_type": "internet", "ip_version": "ipv4",
        "network_type": "classic", "vpc": "", "vswitch": "", "master_zone": "cn-hangzhou-i",
        "slave_zone": "cn-hangzhou-j", "spec": "slb.lcu.elastic", "instance_charge_type": "PayByCLCU",
        "internet_charge_type": "paybytraffic", "bandwidth": 5120, "delete_protection": false,
        "modification_protection": "NonProtection", "modification_reason": "", "resource_group": "rg-default",
        "status": "active", "tags": {}, "vgroups": {}, "listeners": {},
    });
    assert_eq!(shown, expected);

    let inside =
        [("VpcId", "vpc-1"), ("VSwitchId", "vsw-j"), ("AddressType", "intranet"), ("InstanceChargeType", "PayByCLCU")];
    let made = client.slb("CreateLoadBalancer", &inside).await.unwrap();
    let shown = cloud.load_balancer(&text(&made["LoadBalancerId"]));
    assert_eq!((&shown["network_type"], &shown["master_zone"]), (&json!("vpc"), &json!("cn-hangzhou-j")));
    assert!(shown["address"].as_str().unwrap().starts_with("192.168.1."), "{shown}");
    assert_eq!(cloud.look(|account| account.vswitches["vsw-j"].available_ips), 251);
}

#[tokio::test]
async fn listeners_start_stopped_with_the_defaults_of_their_protocol() {
    let (cloud, client, lb, group) = cloud_with_group().await;
    client.create_tcp_listener(&lb, "80", &group).await.unwrap();
    let http =
        [("LoadBalancerId", lb.as_str()), ("ListenerPort", "81"), ("HealthCheck", "off"), ("VServerGroupId", &group)];
    client.slb("CreateLoadBalancerHTTPListener", &http).await.unwrap();
    let listeners = &cloud.load_balancer(&lb)["listeners"];
    assert_eq!(listeners["80/tcp"]["status"], "stopped");
    assert_eq!(listeners["80/tcp"]["vgroup"], "group");
    let tcp = json!({
        "ConnectionDrain": "off", "EstablishedTimeout": 900, "HealthCheck": "on", "HealthCheckConnectTimeout": 5,
        "HealthCheckInterval": 2, "HealthCheckSwitch": "on", "HealthCheckType": "tcp", "HealthyThreshold": 3,
        "PersistenceTimeout": 0, "ProxyProtocolV2Enabled": "false", "UnhealthyThreshold": 3,
    });
    assert_eq!(listeners["80/tcp"]["config"], tcp);
    let http = json!({
        "Gzip": "on", "HealthCheck": "off", "HealthCheckInterval": 2, "HealthCheckTimeout": 5, "HealthCheckType": "http",
        "HealthyThreshold": 3, "IdleTimeout": 15, "ListenerForward": "off", "RequestTimeout": 60,
        "StickySession": "off", "UnhealthyThreshold": 3, "XForwardedFor": "on", "XForwardedFor_ClientSrcPort": "off",
        "XForwardedFor_SLBID": "off", "XForwardedFor_SLBIP": "off", "XForwardedFor_SLBPORT": "off",
        "XForwardedFor_proto": "off",
    });
    assert_eq!(listeners["81/http"]["config"], http);
}

#[tokio::test]
async fn a_client_token_makes_one_load_balancer() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let given = |name| [("LoadBalancerName", name), ("InstanceChargeType", "PayByCLCU"), ("ClientToken", "token-1")];
    cloud.faults().script("CreateLoadBalancer", Fault::AnswerLost);
    assert_eq!(client.slb("CreateLoadBalancer", &given("a")).await, Err("connection lost".into()));
    let first = client.slb("CreateLoadBalancer", &given("a")).await.unwrap();
    let second = client.slb("CreateLoadBalancer", &given("a")).await.unwrap();
    assert_eq!(first["LoadBalancerId"], second["LoadBalancerId"]);
    assert_eq!(load_balancer_ids(&client).await.len(), 1);
    let answer = client.slb("CreateLoadBalancer", &given("b")).await;
    assert_eq!(answer, Err("LX_REQUEST_TOKEN_CONFLICT".into()));
}

#[tokio::test(start_paused = true)]
async fn a_client_token_is_refused_while_its_first_call_runs() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.dials(|dials| dials.latency = Duration::from_secs(5));
    let given = [("InstanceChargeType", "PayByCLCU"), ("ClientToken", "t")];
    let impatient = tokio::time::timeout(Duration::from_secs(1), client.slb("CreateLoadBalancer", &given)).await;
    assert!(impatient.is_err());
    let answer = client.slb("CreateLoadBalancer", &given).await;
    assert_eq!(answer, Err("OperationFailed.TokenIsProcessing".into()));
    cloud.until(|account| account.load_balancers.len() == 1).await.unwrap();
    client.slb("CreateLoadBalancer", &given).await.unwrap();
    assert_eq!(cloud.look(|account| account.load_balancers.len()), 1);
}

#[tokio::test]
async fn a_failed_creation_leaves_its_token_for_another_vswitch() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.edit(|account| account.vswitches.get_mut("vsw-i").unwrap().available_ips = 0);
    let given = |vswitch| {
        [("AddressType", "intranet"), ("InstanceChargeType", "PayByCLCU"), ("ClientToken", "t"), ("VSwitchId", vswitch)]
    };
    let answer = client.slb("CreateLoadBalancer", &given("vsw-i")).await;
    assert_eq!(answer, Err("VSwitchAvailableIpNotExist".into()));
    client.slb("CreateLoadBalancer", &given("vsw-j")).await.unwrap();
    cloud.edit(|account| account.sold_out_zones.insert("cn-hangzhou-j".into()));
    let answer = client.slb("CreateLoadBalancer", &[&given("vsw-j")[..2], &[("VSwitchId", "vsw-j")]].concat()).await;
    assert_eq!(answer, Err("OperationFailed.ZoneResourceLimit".into()));
}

/// An action, its parameters, and the code of the answer.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

#[tokio::test]
async fn wrong_calls_get_the_code_of_what_is_wrong() {
    let (cloud, client, lb, group) = cloud_with_group().await;
    client.create_tcp_listener(&lb, "80", &group).await.unwrap();
    let id = ("LoadBalancerId", lb.as_str());
    let rsp = ("VServerGroupId", group.as_str());
    let port = |port| ("ListenerPort", port);
    let many: Vec<Value> = (1..=41).map(|n| json!({"ServerId": "i-1", "Port": n})).collect();
    let many = Value::from(many).to_string();
    let (strange, heavy) = (backend("i-9", 80), r#"[{"ServerId":"i-1","Port":1,"Weight":101}]"#);
    let unlimited = ("Bandwidth", "-1");
    let off = ("HealthCheck", "off");
    let cases: &[Case<'_>] = &[
        ("CreateLoadBalancer", &[("LoadBalancerName", "1bad")], "InvalidParameter.LoadBalancerName"),
        ("CreateLoadBalancer", &[("InstanceChargeType", "PayBySpec")], "MissingParameter"),
        ("CreateLoadBalancer", &[("AddressType", "intranet"), ("InstanceChargeType", "PayByCLCU")], "MissingParameter"),
        (
            "CreateLoadBalancer",
            &[("MasterZoneId", "mars"), ("InstanceChargeType", "PayByCLCU")],
            "InvalidParameter.MasterZoneId",
        ),
        ("DeleteLoadBalancer", &[("LoadBalancerId", "lb-9")], "InvalidLoadBalancerId.NotFound"),
        ("DescribeLoadBalancers", &[("Tags", "k=v")], "InvalidTag"),
        (
            "TagResources",
            &[("ResourceType", "instance"), ("ResourceId.1", "lb-9"), ("Tag.1.Key", "k")],
            "ResourceNotExist",
        ),
        (
            "TagResources",
            &[("ResourceType", "instance"), ("ResourceId.1", &lb), ("Tag.1.Key", "acs:k")],
            "InvalidParameter.TagKey",
        ),
        ("UntagResources", &[("ResourceType", "instance"), ("ResourceId.1", &lb)], "MissingParameter"),
        ("CreateLoadBalancerTCPListener", &[id, port("80"), unlimited, rsp], "ListenerAlreadyExists"),
        ("CreateLoadBalancerHTTPListener", &[id, port("80"), off, rsp], "InvalidParameter.ListenerPortConflict"),
        ("CreateLoadBalancerTCPListener", &[id, port("81"), rsp], "MissingParameter"),
        ("CreateLoadBalancerTCPListener", &[id, port("81"), unlimited], "MissingParameter"),
        (
            "CreateLoadBalancerTCPListener",
            &[id, port("81"), unlimited, ("VServerGroupId", "rsp-9")],
            "InvalidParameter",
        ),
        (
            "CreateLoadBalancerTCPListener",
            &[id, port("81"), unlimited, rsp, ("Scheduler", "mh")],
            "InvalidParameter.Scheduler",
        ),
        (
            "CreateLoadBalancerTCPListener",
            &[id, port("81"), unlimited, rsp, ("ConnectionDrain", "on")],
            "MissingParameter",
        ),
        ("CreateLoadBalancerTCPListener", &[id, port("81"), unlimited, rsp, ("AclStatus", "on")], "MissingParameter"),
        ("CreateLoadBalancerTCPListener", &[id, port("81"), unlimited, rsp, ("AclId", "acl-9")], "AclNotExist"),
        ("CreateLoadBalancerHTTPListener", &[id, port("81"), rsp], "MissingParameter"),
        ("CreateLoadBalancerHTTPListener", &[id, port("81"), off, rsp, ("StickySession", "on")], "MissingParameter"),
        (
            "CreateLoadBalancerHTTPListener",
            &[id, port("81"), ("ListenerForward", "on"), ("ForwardPort", "443")],
            "InvalidParameter.ForwardPort",
        ),
        ("CreateLoadBalancerHTTPSListener", &[id, port("443"), unlimited, off, rsp], "MissingParameter"),
        (
            "CreateLoadBalancerHTTPSListener",
            &[id, port("443"), unlimited, off, rsp, ("ServerCertificateId", "c")],
            "CertificateNotExist",
        ),
        ("SetLoadBalancerTCPListenerAttribute", &[id, port("80"), ("Scheduler", "sch")], "InvalidParameter.Scheduler"),
        (
            "SetLoadBalancerTCPListenerAttribute",
            &[id, port("80"), ("HealthyThreshold", "1")],
            "InvalidParameter.HealthyThreshold",
        ),
        ("SetLoadBalancerUDPListenerAttribute", &[id, port("80")], "ResourceNotFound.Listener"),
        ("StopLoadBalancerListener", &[id, port("80")], "Operation.NotAllowed"),
        ("DeleteVServerGroup", &[rsp], "RspoolVipExist"),
        ("DeleteVServerGroup", &[("VServerGroupId", "rsp-9")], "InvalidParameter"),
        ("AddVServerGroupBackendServers", &[rsp, ("BackendServers", &strange)], "InvalidServerId.NotExist"),
        ("AddVServerGroupBackendServers", &[rsp, ("BackendServers", heavy)], "InvalidParameter.Weight"),
        ("AddVServerGroupBackendServers", &[rsp, ("BackendServers", "{")], "InvalidBackendServers.Malformed"),
        ("AddVServerGroupBackendServers", &[rsp, ("BackendServers", &many)], "SizeLimitExceeded.BackendServers"),
        (
            "SetVServerGroupAttribute",
            &[rsp, ("BackendServers", r#"[{"ServerId":"i-2","Port":80}]"#)],
            "ResourceNotFound.vServers",
        ),
    ];
    let before = cloud.snapshot();
    for (action, given, code) in cases {
        assert_eq!(client.slb(action, given).await, Err((*code).into()), "{action} {given:?}");
    }
    assert_eq!(cloud.snapshot(), before, "a refused call changed something");
}

#[tokio::test]
async fn no_listener_changes_to_a_hash_but_back_from_it() {
    let (_, client, lb, group) = cloud_with_group().await;
    let id = [("LoadBalancerId", lb.as_str()), ("ListenerPort", "80")];
    let made = [id[0], id[1], ("Bandwidth", "-1"), ("VServerGroupId", &group), ("Scheduler", "sch")];
    client.slb("CreateLoadBalancerTCPListener", &made).await.unwrap();
    for (scheduler, refused) in [("sch", false), ("tch", true), ("wrr", false), ("rr", false), ("sch", true)] {
        let change = [id[0], id[1], ("Scheduler", scheduler)];
        let answer = client.slb("SetLoadBalancerTCPListenerAttribute", &change).await;
        assert_eq!(answer.err().as_deref(), refused.then_some("InvalidParameter.Scheduler"), "{scheduler}");
    }
}

#[tokio::test]
async fn quotas_of_a_load_balancer_are_kept() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.edit(|account| (account.limits.backends, account.limits.listeners) = (2, 1));
    let lb = client.create_load_balancer().await;
    let group = client.create_group(&lb, r#"[{"ServerId":"i-1","Port":1},{"ServerId":"i-2","Port":1}]"#).await;
    let given = [("VServerGroupId", group.as_str()), ("BackendServers", &backend("i-3", 1))];
    let answer = client.slb("AddVServerGroupBackendServers", &given).await;
    assert_eq!(answer, Err("InstanceBackendServerNumberOverLimit".into()));
    let again = [given[0], ("BackendServers", &backend("i-2", 1))];
    client.slb("AddVServerGroupBackendServers", &again).await.unwrap();
    cloud.dials(|dials| dials.show_server_ips = true);
    let members = client.slb("DescribeVServerGroupAttribute", &given[..1]).await.unwrap();
    assert_eq!(names(&members, "BackendServers", "BackendServer", "ServerIp"), ["192.168.0.11", "192.168.1.12"]);
    client.create_tcp_listener(&lb, "80", &group).await.unwrap();
    let answer = client.create_tcp_listener(&lb, "81", &group).await;
    assert_eq!(answer, Err("OperationForbidden.QuotaLimit".into()));
}

#[tokio::test]
async fn pods_are_backends_by_interface_and_address() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.edit(|account| {
        account.interfaces.get_mut("eni-1").unwrap().ipv4.push("192.168.0.99".into());
        account.add_interface("eni-pods", "i-1", "vsw-i", &["192.168.0.70", "192.168.0.71"]);
    });
    let pods = [("VpcId", "vpc-1"), ("Status", "InUse"), ("PrivateIpAddress.1", "192.168.0.71")];
    let found = client.call(ECS, "DescribeNetworkInterfaces", &pods).await.unwrap();
    let ids = names(&found, "NetworkInterfaceSets", "NetworkInterfaceSet", "NetworkInterfaceId");
    assert_eq!(ids, ["eni-pods"]);
    let lb = client.create_load_balancer().await;
    let pod = |ip: &str| format!(r#"[{{"ServerId":"eni-1","ServerIp":"{ip}","Port":8080,"Type":"eni"}}]"#);
    let group = client.create_group(&lb, &pod("192.168.0.99")).await;
    let rsp = ("VServerGroupId", group.as_str());
    client.slb("AddVServerGroupBackendServers", &[rsp, ("BackendServers", &pod("192.168.0.11"))]).await.unwrap();
    let answer = client.slb("AddVServerGroupBackendServers", &[rsp, ("BackendServers", &pod("10.0.0.1"))]).await;
    assert_eq!(answer, Err("InvalidParameter.ServerIp".into()));
    client.slb("RemoveVServerGroupBackendServers", &[rsp, ("BackendServers", &pod("192.168.0.99"))]).await.unwrap();
    let left = &cloud.load_balancer(&lb)["vgroups"]["group"];
    assert_eq!((left.as_array().unwrap().len(), &left[0]["server_ip"]), (1, &json!("192.168.0.11")));
    cloud.release_instance("i-1");
    assert_eq!(cloud.load_balancer(&lb)["vgroups"]["group"], json!([]), "released servers leave their groups");
}

#[tokio::test]
async fn https_listeners_that_are_forwarded_to_stay() {
    let (cloud, client, lb, group) = cloud_with_group().await;
    let id = ("LoadBalancerId", lb.as_str());
    let https = [
        id,
        ("ListenerPort", "443"),
        ("Bandwidth", "-1"),
        ("HealthCheck", "off"),
        ("VServerGroupId", &group),
        ("ServerCertificateId", "cert-1"),
    ];
    client.slb("CreateLoadBalancerHTTPSListener", &https).await.unwrap();
    let http = [id, ("ListenerPort", "80"), ("ListenerForward", "on"), ("ForwardPort", "443")];
    client.slb("CreateLoadBalancerHTTPListener", &http).await.unwrap();
    assert_eq!(cloud.load_balancer(&lb)["listeners"]["80/http"]["config"]["ForwardCode"], 302);
    let answer = client.slb("DeleteLoadBalancerListener", &[id, ("ListenerPort", "443")]).await;
    assert_eq!(answer, Err("ListenerForwardExist".into()));
    let answer =
        client.slb("SetLoadBalancerHTTPListenerAttribute", &[id, ("ListenerPort", "80"), ("Gzip", "off")]).await;
    assert_eq!(answer, Err("OperationUnsupported.ListenerForward".into()));
}

#[tokio::test]
async fn lists_come_in_pages() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.edit(|account| {
        for n in 0..25 {
            account.add_instance(&format!("i-x{n:02}"), "x", "vsw-i", &format!("192.168.0.{}", 100 + n));
            account
                .load_balancers
                .insert(format!("lb-{n:02}"), LoadBalancer::internet("x", &format!("47.1.1.{n}")).into());
        }
    });
    assert_eq!(load_balancer_ids(&client).await.len(), 10, "ten are a page where nothing is asked for");
    let page = client.slb("DescribeLoadBalancers", &[("PageNumber", "3"), ("PageSize", "10")]).await.unwrap();
    assert_eq!(page["LoadBalancers"]["LoadBalancer"].as_array().unwrap().len(), 5);
    assert_eq!(page["TotalCount"], 25);

    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let mut given = vec![("InstanceName", "x"), ("MaxResults", "10")];
        if !token.is_empty() {
            given.push(("NextToken", &token));
        }
        let page = client.call(ECS, "DescribeInstances", &given).await.unwrap();
        found.extend(names(&page, "Instances", "Instance", "InstanceId"));
        token = text(&page["NextToken"]);
        if token.is_empty() {
            break;
        }
    }
    found.dedup();
    assert_eq!(found.len(), 25);
    assert_eq!(
        client.call(ECS, "DescribeInstances", &[("InstanceIds", "[]")]).await.unwrap()["Instances"]["Instance"],
        json!([])
    );
    assert_eq!(cloud.complaints(), ["DescribeInstances: InstanceIds is an empty array, which matches nothing"]);
}

#[tokio::test]
async fn an_identity_without_permission_sees_no_instances_unless_it_asks_for_a_dry_run() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let dry = [("DryRun", "true")];
    assert_eq!(client.call(ECS, "DescribeInstances", &dry).await, Err("DryRunOperation".into()));
    cloud.edit(|account| account.keys.get_mut(KEY_ID).unwrap().denied.insert("Describe*".into()));
    let found = client.call(ECS, "DescribeInstances", &[]).await.unwrap();
    assert_eq!(found["Instances"]["Instance"], json!([]));
    assert_eq!(client.call(ECS, "DescribeInstances", &dry).await, Err("Forbidden.RAM".into()));
    assert_eq!(client.slb("DescribeLoadBalancers", &[]).await, Err("Forbidden.RAM".into()));
    let answer = client.call(ECS, "DescribeInstances", &[("RegionId", "cn-beijing")]).await.unwrap();
    assert_eq!(answer["Instances"]["Instance"], json!([]));
}

#[tokio::test]
async fn batches_of_routes_fail_item_by_item() {
    let cloud = Cloud::new(account().with_vpc("vpc-2", "172.16.0.0/16"));
    let client = Client::new(&cloud);
    cloud.edit(|account| {
        account.vswitches.insert("vsw-2".into(), VSwitch::new("vpc-2", "cn-hangzhou-i", "172.16.0.0/24"));
        account.add_instance("i-far", "far", "vsw-2", "172.16.0.5");
        account.limits.routes_per_table = 3;
    });
    create_route(&client, 1).await.unwrap();
    assert_eq!(create_route(&client, 1).await, Err("InvalidCIDRBlock.Duplicate".into()));
    let items = [
        ("10.0.1.0/24", "i-2", "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE"),
        ("10.0.2.0/24", "i-2", "made"),
        ("10.0.3.0/24", "i-gone", "InvalidNextHopId.NotFound"),
        ("10.0.4.0/24", "i-far", "OperationFailed.InstanceDismatchCurrentVpc"),
        ("192.168.0.0/26", "i-2", "InvalidCidrBlock.Overlapped"),
        ("192.168.0.0/16", "i-2", "InvalidCidrBlock.Overlapped"),
        ("10.0.5.1/24", "i-2", "InvalidCidrBlock.Malformed"),
        ("10.0.6.0/24", "i-2", "made"),
        ("10.0.7.0/24", "i-2", "QuotaExceeded"),
    ];
    let mut given = Vec::new();
    for (n, (cidr, hop, _)) in (1..).zip(items) {
        let fields = [("RouteTableId", "vtb-1"), ("DstCidrBlock", cidr), ("NextHop", hop), ("NextHopType", "Instance")];
        given.extend(fields.map(|(name, value)| (format!("RouteEntries.{n}.{name}"), value)));
    }
    let given: Vec<(&str, &str)> = given.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let answer = client.call(VPC, "CreateRouteEntries", &given).await.unwrap();
    assert_eq!((&answer["SuccessCount"], &answer["FailedCount"]), (&json!(2), &json!(7)));
    let failed = answer["FailedRouteEntries"].as_array().unwrap();
    let codes: Vec<(&str, &str)> =
        failed.iter().map(|it| (it["DstCidrBlock"].as_str().unwrap(), it["FailedCode"].as_str().unwrap())).collect();
    let expected: Vec<(&str, &str)> =
        items.iter().filter(|it| it.2 != "made").map(|(cidr, _, code)| (*cidr, *code)).collect();
    assert_eq!(codes, expected);

    let gone = client.call(VPC, "DeleteRouteEntries", &given[..3]).await.unwrap();
    assert_eq!(gone["FailedRouteEntries"][0]["FailedCode"], "VPC_ROUTER_ENTRY_NOT_EXIST", "the next hop is another");
    let entry = [("RouteTableId", "vtb-1"), ("DestinationCidrBlock", "10.9.0.0/24"), ("NextHopId", "i-1")];
    assert_eq!(client.call(VPC, "DeleteRouteEntry", &entry).await, Err("InvalidRouteEntry.NotFound".into()));
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_routes_in_a_vpc_collide() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.dials(|dials| dials.latency = Duration::from_millis(200));
    let (first, second) = tokio::join!(create_route(&client, 1), create_route(&client, 2));
    assert_eq!([first.is_ok(), second.is_ok()].iter().filter(|it| **it).count(), 1);
    assert_eq!(first.and(second), Err("TaskConflict".into()));
    create_route(&client, 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn routes_are_pending_for_as_long_as_the_dial_says() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.dials(|dials| dials.route_pending = Duration::from_secs(5));
    create_route(&client, 1).await.unwrap();
    assert_eq!(cloud.snapshot()["routes"]["vtb-1"][0]["status"], "Pending");
    assert_eq!(create_route(&client, 2).await, Err("TaskConflict".into()));
    let is_there =
        |account: &Account| account.route_tables["vtb-1"].entries.values().all(|it| it.status() == "Available");
    cloud.until(is_there).await.unwrap();
    create_route(&client, 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_route_is_listed_as_deleting_for_as_long_as_the_dial_says() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    create_route(&client, 1).await.unwrap();
    cloud.dials(|dials| dials.route_pending = Duration::from_secs(5));
    let id = cloud.look(|account| account.route_tables["vtb-1"].entries.values().next().unwrap().id.clone());
    client.call(VPC, "DeleteRouteEntry", &[("RouteEntryId", &id)]).await.unwrap();
    assert_eq!(cloud.snapshot()["routes"]["vtb-1"][0]["status"], "Deleting");
    let is_gone = |account: &Account| account.route_tables["vtb-1"].entries.is_empty();
    cloud.until(is_gone).await.unwrap();
    create_route(&client, 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_is_busy_after_a_write_if_the_dial_says_so() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_load_balancer().await;
    cloud.dials(|dials| {
        dials.load_balancer_busy = Duration::from_secs(2);
        dials.listener_start = Duration::from_secs(3);
    });
    let group = client.create_group(&lb, &backend("i-1", 80)).await;
    let answer = client.create_tcp_listener(&lb, "80", &group).await;
    assert_eq!(answer, Err("ServiceIsConfiguring".into()));
    let answer = client.slb("SetLoadBalancerName", &[("LoadBalancerId", &lb), ("LoadBalancerName", "other")]).await;
    assert_eq!(answer, Err("OperationBusy".into()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.create_tcp_listener(&lb, "80", &group).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    client.slb("StartLoadBalancerListener", &[("LoadBalancerId", &lb), ("ListenerPort", "80")]).await.unwrap();
    assert_eq!(cloud.load_balancer(&lb)["listeners"]["80/tcp"]["status"], "starting");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cloud.load_balancer(&lb)["listeners"]["80/tcp"]["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_published_rate_are_throttled_until_the_window_ends() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.dials(|dials| dials.rate_quotas = true);
    let given = [("InstanceChargeType", "PayByCLCU"), ("ClientToken", "t")];
    for _ in 0..60 {
        client.slb("CreateLoadBalancer", &given).await.unwrap();
    }
    assert_eq!(client.slb("CreateLoadBalancer", &given).await, Err("Throttling.User".into()));
    client.slb("DescribeLoadBalancers", &[]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    client.slb("CreateLoadBalancer", &given).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_fault_does_what_it_says() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let faults = cloud.faults();
    let count = || cloud.look(|account| account.load_balancers.len());
    for fault in [
        Fault::code("SystemBusy"),
        Fault::Throttle,
        Fault::Unavailable,
        Fault::Drop,
        Fault::HangBefore(Duration::from_secs(30)),
    ] {
        faults.script("CreateLoadBalancer", fault.clone());
        assert!(client.slb("CreateLoadBalancer", &[("InstanceChargeType", "PayByCLCU")]).await.is_err(), "{fault:?}");
        assert_eq!(count(), 0, "{fault:?}");
    }
    let after = [Fault::after(), vec![Fault::HangAfter(Duration::from_secs(30))]].concat();
    for (n, fault) in (1..).zip(after) {
        faults.script("CreateLoadBalancer", fault.clone());
        assert!(client.slb("CreateLoadBalancer", &[("InstanceChargeType", "PayByCLCU")]).await.is_err(), "{fault:?}");
        assert_eq!(count(), n, "{fault:?}");
        assert!(cloud.calls().last().unwrap().effective, "{fault:?}");
    }
    let total = count();

    cloud.edit(|account| account.instances.remove("i-3"));
    faults.script("DescribeInstances", Fault::Stale(1));
    let found = client.call(ECS, "DescribeInstances", &[]).await.unwrap();
    assert_eq!(found["Instances"]["Instance"].as_array().unwrap().len(), 3, "an edit is a write, too");
    faults.script(ANY, Fault::Stale(3));
    assert_eq!(load_balancer_ids(&client).await.len(), total - 2);
    faults.script("DescribeLoadBalancers", Fault::Partial(1));
    assert_eq!(load_balancer_ids(&client).await.len(), 1);
    faults.script("CreateLoadBalancer", Fault::Hidden(2));
    let hidden = client.create_load_balancer().await;
    assert!(!load_balancer_ids(&client).await.contains(&hidden));
    assert!(!load_balancer_ids(&client).await.contains(&hidden));
    assert!(load_balancer_ids(&client).await.contains(&hidden));
    assert!(faults.is_spent());

    let before = tokio::time::Instant::now();
    faults.always(ANY, Fault::Slow(Duration::from_secs(7)));
    load_balancer_ids(&client).await;
    assert_eq!(before.elapsed(), Duration::from_secs(7));
    faults.clear();
    load_balancer_ids(&client).await;
    assert_eq!(before.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_does_not_undo_its_call() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.dials(|dials| dials.latency = Duration::from_secs(10));
    let patience = Duration::from_secs(1);
    tokio::time::timeout(patience, client.create_load_balancer()).await.unwrap_err();
    cloud.until(|account| account.load_balancers.len() == 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conditions_are_awaited_and_calls_are_remembered() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let (made, awaited) = tokio::join!(
        client.create_load_balancer(),
        cloud.until(|account| account.load_balancers.values().any(|it| it.name == "web"))
    );
    assert_eq!(awaited, Ok(()));
    cloud.until_calls(|calls| calls.iter().any(|it| it.action == "CreateLoadBalancer")).await.unwrap();
    assert_eq!(cloud.until(|account| account.load_balancers.len() == 2).await, Err(NotInTime));

    client.slb("DescribeLoadBalancerAttribute", &[("LoadBalancerId", &made)]).await.unwrap();
    let _ = client.slb("DeleteLoadBalancer", &[("LoadBalancerId", "lb-9")]).await;
    assert_eq!(cloud.count("CreateLoadBalancer"), 1);
    let writes: Vec<(String, String, bool)> =
        cloud.writes().into_iter().map(|it| (it.action, it.outcome, it.effective)).collect();
    let expected = [
        ("CreateLoadBalancer".to_owned(), "OK".to_owned(), true),
        ("DeleteLoadBalancer".to_owned(), "InvalidLoadBalancerId.NotFound".to_owned(), false),
    ];
    assert_eq!(writes, expected);
    let calls = cloud.take_calls();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0].parameter("LoadBalancerName"), "web");
    assert!(
        calls.iter().all(|it| !it.parameters.contains_key("Signature") && !it.parameters.contains_key("AccessKeyId"))
    );
    assert!(cloud.calls().is_empty());
}

#[test]
fn a_world_is_read_from_json_and_shown_as_json() {
    let described = json!({
        "region": "cn-hangzhou",
        "zones": ["cn-hangzhou-i", "cn-hangzhou-j"],
        "vpcs": [{"id": "vpc-1", "name": "one", "cidr": "192.168.0.0/16"}],
        "route_tables": [{"id": "vtb-1", "vpc": "vpc-1", "kind": "System",
            "entries": [{"cidr": "10.9.0.0/24", "next_hop": "i-1", "name": "users-own", "description": "by hand"}]}],
        "vswitches": [{"id": "vsw-1", "vpc": "vpc-1", "zone": "cn-hangzhou-i", "cidr": "192.168.0.0/24"}],
        "instances": [{"id": "i-1", "name": "node", "hostname": "node", "vswitch": "vsw-1", "private_ip": "192.168.0.5",
            "eni": "eni-1", "pod_ips": ["192.168.0.50"], "tags": {"k": "v"}}],
        "certificates": [{"id": "cert-1", "common_name": "example.com", "expires": "2020-01-01T00:00:00Z"}],
        "acls": [{"id": "acl-1", "name": "one", "entries": {"10.0.0.0/8": "office"}}],
        "load_balancers": [{"id": "lb-1", "name": "users", "address": "47.98.1.1", "instance_charge_type": "PayByCLCU",
            "tags": {"made-by": "user"},
            "vgroups": [{"id": "rsp-1", "name": "users-group",
                "backends": [{"server_id": "i-1", "port": 8080, "description": "by hand"}]}],
            "listeners": [{"port": 9000, "protocol": "tcp", "vgroup": "rsp-1", "description": "users-listener"}]}],
    });
    let cloud = Cloud::new(Account::from_json(&described).unwrap());
    let shown = cloud.snapshot();
    let lb = &shown["load_balancers"][0];
    assert_eq!(lb["listeners"]["9000/tcp"]["vgroup"], "users-group");
    assert_eq!(lb["listeners"]["9000/tcp"]["status"], "running");
    let backends = json!([{"server_id": "i-1", "server_ip": "", "port": 8080, "weight": 100, "type": "ecs", "description": "by hand"}]);
    assert_eq!(lb["vgroups"]["users-group"], backends);
    assert_eq!(shown["routes"]["vtb-1"][0]["next_hop"], "i-1");
    assert_eq!(shown["instances"]["i-1"]["source_dest_check"], true);
    assert_eq!(cloud.look(|account| account.interfaces["eni-1"].ipv4.len()), 2);

    let error = Account::from_json(&json!({"region": "r", "zones": [], "planets": []})).unwrap_err();
    assert!(error.to_string().contains("planets"), "{error}");
}
