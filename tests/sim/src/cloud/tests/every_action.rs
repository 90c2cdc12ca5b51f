//! Each action once, by a client that makes no mistakes.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[tokio::test]
async fn each_action_answers_a_correct_client() {
    let cloud = Cloud::new(account());
    cloud.edit(|account| {
        account.oidc_token = Some("jwt".into());
        account.acls.insert("acl-1".into(), Acl { name: "office".into(), ..Acl::default() });
    });
    let client = Client::new(&cloud);
    compute(&client).await;
    network(&client).await;
    sessions(&client).await;
    load_balancers(&client).await;
    access_control(&client).await;

    assert_eq!(cloud.complaints(), Vec::<String>::new());
    let called: BTreeSet<String> =
        cloud.calls().into_iter().filter(|it| it.outcome == "OK").map(|it| it.action).collect();
    let missing: Vec<&str> = actions::all().map(|it| it.name).filter(|it| !called.contains(*it)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "actions that never answered OK");
}

async fn compute(client: &Client) {
    let found = client.call(ECS, "DescribeInstances", &[("InstanceIds", r#"["i-1","i-9"]"#)]).await.unwrap();
    let instance = &found["Instances"]["Instance"][0];
    assert_eq!(instance["HostName"], "node-1");
    assert_eq!(instance["VpcAttributes"]["PrivateIpAddress"]["IpAddress"], json!(["192.168.0.11"]));
    assert_eq!(instance["NetworkInterfaces"]["NetworkInterface"][0]["NetworkInterfaceId"], "eni-1");
    assert_eq!(found["Instances"]["Instance"].as_array().unwrap().len(), 1);

    let by_ip = [("PrivateIpAddresses", r#"["192.168.1.12"]"#), ("InstanceNetworkType", "vpc"), ("VpcId", "vpc-1")];
    let found = client.call(ECS, "DescribeInstances", &by_ip).await.unwrap();
    assert_eq!(found["Instances"]["Instance"][0]["InstanceId"], "i-2");

    let found = client.call(ECS, "DescribeInstances", &[("InstanceName", "node-*")]).await.unwrap();
    assert_eq!(found["Instances"]["Instance"].as_array().unwrap().len(), 2);

    let wanted =
        [("VpcId", "vpc-1"), ("Status", "InUse"), ("PrivateIpAddress.1", "192.168.0.13"), ("MaxResults", "100")];
    let found = client.call(ECS, "DescribeNetworkInterfaces", &wanted).await.unwrap();
    let interface = &found["NetworkInterfaceSets"]["NetworkInterfaceSet"][0];
    assert_eq!((&interface["NetworkInterfaceId"], &interface["SourceDestCheck"]), (&json!("eni-3"), &json!(true)));

    let off = [("NetworkInterfaceId", "eni-3"), ("SourceDestCheck", "false")];
    client.call(ECS, "ModifyNetworkInterfaceAttribute", &off).await.unwrap();
    assert_eq!(client.cloud.look(|account| account.interfaces["eni-3"].source_dest_check), Some(false));
}

async fn network(client: &Client) {
    let tables = client.call(VPC, "DescribeRouteTableList", &[("VpcId", "vpc-1")]).await.unwrap();
    assert_eq!(tables["RouterTableList"]["RouterTableListType"][0]["RouteTableId"], "vtb-1");

    let one = [("RouteTableId", "vtb-1"), ("DestinationCidrBlock", "10.0.1.0/24"), ("NextHopId", "i-1")];
    client.call(VPC, "CreateRouteEntry", &one).await.unwrap();
    let two = [
        ("RouteEntries.1.RouteTableId", "vtb-1"),
        ("RouteEntries.1.DstCidrBlock", "10.0.2.0/24"),
        ("RouteEntries.1.NextHop", "i-2"),
        ("RouteEntries.1.NextHopType", "Instance"),
        ("RouteEntries.1.Name", "route-2"),
        ("RouteEntries.1.Description", "node-2"),
    ];
    let made = client.call(VPC, "CreateRouteEntries", &two).await.unwrap();
    assert_eq!((&made["SuccessCount"], &made["FailedCount"]), (&json!(1), &json!(0)));
    let custom = [("RouteTableId", "vtb-1"), ("RouteEntryType", "Custom"), ("NextHopType", "Instance")];
    let routes = client.call(VPC, "DescribeRouteEntryList", &custom).await.unwrap();
    let second = &routes["RouteEntrys"]["RouteEntry"][1];
    assert_eq!((&second["RouteEntryName"], &second["Status"]), (&json!("route-2"), &json!("Available")));
    assert_eq!(second["NextHops"]["NextHop"][0]["NextHopId"], "i-2");

    client.call(VPC, "DeleteRouteEntry", &one).await.unwrap();
    client.call(VPC, "DeleteRouteEntries", &two[..3]).await.unwrap();
    assert!(client.cloud.look(|account| account.route_tables["vtb-1"].entries.is_empty()));

    let vpc = client.call(VPC, "DescribeVpcAttribute", &[("VpcId", "vpc-1")]).await.unwrap();
    assert_eq!(vpc["CidrBlock"], "192.168.0.0/16");
    let vswitches = client.call(VPC, "DescribeVSwitches", &[("VpcId", "vpc-1"), ("PageSize", "50")]).await.unwrap();
    assert_eq!(vswitches["VSwitches"]["VSwitch"][1]["AvailableIpAddressCount"], 252);
    client.cloud.edit(|account| {
        let eip = Eip { address: "47.1.1.1".into(), instance_type: "SlbInstance".into(), instance: "lb-1".into() };
        account.eips.insert("eip-1".into(), eip);
    });
    let bound = [("AssociatedInstanceType", "SlbInstance"), ("AssociatedInstanceId", "lb-1")];
    let eips = client.call(VPC, "DescribeEipAddresses", &bound).await.unwrap();
    assert_eq!(eips["EipAddresses"]["EipAddress"][0]["IpAddress"], "47.1.1.1");
}

async fn sessions(client: &Client) {
    let role = [("RoleArn", "acs:ram::1234567890123456:role/ccm"), ("RoleSessionName", "ccm")];
    let keys = client.call(STS, "AssumeRole", &role).await.unwrap();
    let session = Client::session(&client.cloud, &keys["Credentials"]);
    session.slb("DescribeLoadBalancers", &[]).await.unwrap();

    let mut anonymous: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in role.iter().chain(&[
        ("Action", "AssumeRoleWithOIDC"),
        ("Version", STS),
        ("Format", "JSON"),
        ("OIDCProviderArn", "acs:ram::1234567890123456:oidc-provider/k8s"),
        ("OIDCToken", "jwt"),
    ]) {
        anonymous.insert((*name).into(), (*value).into());
    }
    let keys = send(&client.cloud, post(&anonymous)).await.unwrap();
    Client::session(&client.cloud, &keys["Credentials"]).slb("DescribeLoadBalancers", &[]).await.unwrap();
    assert!(client.cloud.calls().iter().all(|it| !format!("{it:?}").contains("jwt")), "the log holds a secret");
}

async fn load_balancers(client: &Client) {
    let lb = client.create_load_balancer().await;
    let id = ("LoadBalancerId", lb.as_str());
    let shown = client.slb("DescribeLoadBalancerAttribute", &[id]).await.unwrap();
    assert_eq!(shown["InternetChargeType"], "paybytraffic");
    client.slb("SetLoadBalancerName", &[id, ("LoadBalancerName", "web-2")]).await.unwrap();
    let console = [id, ("ModificationProtectionStatus", "ConsoleProtection"), ("ModificationProtectionReason", "ours")];
    client.slb("SetLoadBalancerModificationProtection", &console).await.unwrap();
    let tags = [("ResourceType", "instance"), ("ResourceId.1", &lb), ("Tag.1.Key", "k"), ("Tag.1.Value", "v")];
    client.slb("TagResources", &tags).await.unwrap();
    let found = client.slb("DescribeLoadBalancers", &[("Tags", r#"[{"TagKey":"k","TagValue":"v"}]"#)]).await.unwrap();
    assert_eq!(found["LoadBalancers"]["LoadBalancer"][0]["LoadBalancerName"], "web-2");
    assert_eq!(found["LoadBalancers"]["LoadBalancer"][0]["InternetChargeType"], "4");
    let listed = client.slb("ListTagResources", &tags[..2]).await.unwrap();
    assert_eq!(listed["TagResources"]["TagResource"][0]["TagValue"], "v");
    client.slb("UntagResources", &[tags[0], tags[1], ("TagKey.1", "k")]).await.unwrap();
    assert!(client.cloud.look(|account| account.load_balancers[&lb].tags.is_empty()));

    groups_and_listeners(client, &lb).await;
    payment(client).await;

    client.slb("SetLoadBalancerDeleteProtection", &[id, ("DeleteProtection", "on")]).await.unwrap();
    let refused = client.slb("DeleteLoadBalancer", &[id]).await;
    assert_eq!(refused, Err("OperationDenied.DeleteProtectionIsOn".into()));
    client.slb("SetLoadBalancerDeleteProtection", &[id, ("DeleteProtection", "off")]).await.unwrap();
    client.slb("DeleteLoadBalancer", &[id]).await.unwrap();
    assert_eq!(client.cloud.load_balancer(&lb), Value::Null);
}

async fn groups_and_listeners(client: &Client, lb: &str) {
    let id = ("LoadBalancerId", lb);
    let group = client.create_group(lb, &backend("i-1", 80)).await;
    let rsp = ("VServerGroupId", group.as_str());
    client.slb("AddVServerGroupBackendServers", &[rsp, ("BackendServers", &backend("i-2", 80))]).await.unwrap();
    client.slb("RemoveVServerGroupBackendServers", &[rsp, ("BackendServers", &backend("i-1", 80))]).await.unwrap();
    let lighter = r#"[{"serverId":"i-2","port":80,"weight":7,"type":"ecs","description":"lighter"}]"#;
    client.slb("SetVServerGroupAttribute", &[rsp, ("BackendServers", lighter)]).await.unwrap();
    let members = client.slb("DescribeVServerGroupAttribute", &[rsp]).await.unwrap();
    let expected =
        json!([{"ServerId": "i-2", "ServerIp": "", "Port": 80, "Weight": 7, "Type": "ecs", "Description": "lighter"}]);
    assert_eq!(members["BackendServers"]["BackendServer"], expected);
    let (old, new) = (backend("i-2", 80), backend("i-3", 81));
    let swap = [rsp, ("OldBackendServers", old.as_str()), ("NewBackendServers", new.as_str())];
    client.slb("ModifyVServerGroupBackendServers", &swap).await.unwrap();

    let port = |port: &'static str| [id, ("ListenerPort", port), ("Bandwidth", "-1"), rsp];
    let tcp = [&port("80")[..], &[("healthCheckInterval", "3"), ("Description", "k8s/80/a/b/c")]].concat();
    client.slb("CreateLoadBalancerTCPListener", &tcp).await.unwrap();
    client.slb("CreateLoadBalancerUDPListener", &port("80")).await.unwrap();
    let https = [&port("443")[..], &[("HealthCheck", "off"), ("ServerCertificateId", "cert-1")]].concat();
    client.slb("CreateLoadBalancerHTTPSListener", &https).await.unwrap();
    let http = [id, ("ListenerPort", "8080"), ("ListenerForward", "on"), ("ForwardPort", "443")];
    client.slb("CreateLoadBalancerHTTPListener", &http).await.unwrap();
    let http = [id, ("ListenerPort", "8081"), ("HealthCheck", "on"), rsp];
    client.slb("CreateLoadBalancerHTTPListener", &http).await.unwrap();

    let key = |port: &'static str, protocol: &'static str| [id, ("ListenerPort", port), ("ListenerProtocol", protocol)];
    client.slb("StartLoadBalancerListener", &key("80", "tcp")).await.unwrap();
    client.slb("DescribeHealthStatus", &key("80", "tcp")).await.unwrap();
    let change = |more: &[(&'static str, &'static str)]| [&[id, ("ListenerPort", "80")][..], more].concat();
    client.slb("SetLoadBalancerTCPListenerAttribute", &change(&[("HealthCheckInterval", "4")])).await.unwrap();
    client.slb("SetLoadBalancerUDPListenerAttribute", &change(&[("Scheduler", "rr")])).await.unwrap();
    let set = [id, ("ListenerPort", "8081"), ("IdleTimeout", "30")];
    client.slb("SetLoadBalancerHTTPListenerAttribute", &set).await.unwrap();
    let set = [id, ("ListenerPort", "443"), ("ServerCertificateId", "cert-2")];
    client.slb("SetLoadBalancerHTTPSListenerAttribute", &set).await.unwrap();
    let listed =
        client.slb("DescribeLoadBalancerListeners", &[("LoadBalancerId.1", lb), ("MaxResults", "50")]).await.unwrap();
    assert_eq!(listed["Listeners"].as_array().unwrap().len(), 5);
    assert_eq!(listed["Listeners"][0]["Status"], "running");
    assert_eq!(listed["Listeners"][0]["TCPListenerConfig"]["HealthCheckInterval"], 4);
    assert_eq!(listed["Listeners"][1]["UDPListenerConfig"]["HealthCheckConnectTimeout"], 10);
    assert_eq!(listed["Listeners"][2]["HTTPSListenerConfig"]["ServerCertificateId"], "cert-2");
    client.slb("StopLoadBalancerListener", &key("80", "tcp")).await.unwrap();

    domain_extensions(client, lb).await;
    let groups = client.slb("DescribeVServerGroups", &[id]).await.unwrap();
    assert_eq!(groups["VServerGroups"]["VServerGroup"][0]["ServerCount"], 1);
    assert_eq!(client.slb("DeleteVServerGroup", &[rsp]).await, Err("RspoolVipExist".into()));
    for (port, protocol) in [("80", "tcp"), ("80", "udp"), ("8080", "http"), ("8081", "http"), ("443", "https")] {
        client.slb("DeleteLoadBalancerListener", &key(port, protocol)).await.unwrap();
    }
    client.slb("DeleteVServerGroup", &[rsp]).await.unwrap();
}

async fn domain_extensions(client: &Client, lb: &str) {
    let port = [("LoadBalancerId", lb), ("ListenerPort", "443")];
    let wanted = [port[0], port[1], ("Domain", "a.example.com"), ("ServerCertificateId", "cert-1")];
    let made = text(&client.slb("CreateDomainExtension", &wanted).await.unwrap()["DomainExtensionId"]);
    assert_eq!(client.slb("CreateDomainExtension", &wanted).await, Err("InvalidParameter.Domain".into()));
    let change = [("DomainExtensionId", made.as_str()), ("ServerCertificateId", "cert-2")];
    client.slb("SetDomainExtensionAttribute", &change).await.unwrap();
    let listed = client.slb("DescribeDomainExtensions", &port).await.unwrap();
    assert_eq!(listed["DomainExtensions"]["DomainExtension"][0]["ServerCertificateId"], "cert-2");
    let extensions = &client.cloud.snapshot()["domain_extensions"];
    assert_eq!(extensions[format!("{lb}/443")], json!({"a.example.com": "cert-2"}));
    client.slb("DeleteDomainExtension", &change[..1]).await.unwrap();
    let certificates = client.slb("DescribeServerCertificates", &[("ServerCertificateId", "cert-1")]).await.unwrap();
    assert!(certificates["ServerCertificates"]["ServerCertificate"][0]["ExpireTimeStamp"].is_i64());
}

async fn access_control(client: &Client) {
    let tagged = [("AclName", "k8s/acl/a/b/c"), ("Tag.1.Key", "ack.aliyun.com"), ("Tag.1.Value", "c")];
    let made = text(&client.slb("CreateAccessControlList", &tagged).await.unwrap()["AclId"]);
    assert_eq!(client.slb("CreateAccessControlList", &tagged).await, Err("InvalidParameter.AclName".into()));
    let acl = ("AclId", made.as_str());
    let both = r#"[{"entry":"10.0.0.0/8","comment":"a"},{"entry":"10.1.2.3/32"}]"#;
    client.slb("AddAccessControlListEntry", &[acl, ("AclEntrys", both)]).await.unwrap();
    let one = r#"[{"entry":"10.0.0.0/8"}]"#;
    client.slb("RemoveAccessControlListEntry", &[acl, ("AclEntrys", one)]).await.unwrap();
    let whole = client.slb("DescribeAccessControlListAttribute", &[acl]).await.unwrap();
    assert_eq!(whole["AclEntrys"]["AclEntry"], json!([{"AclEntryIP": "10.1.2.3/32", "AclEntryComment": ""}]));
    let listed = client.slb("DescribeAccessControlLists", &[("AclName", "k8s/acl/a")]).await.unwrap();
    assert_eq!(listed["Acls"]["Acl"][0]["Tags"]["Tag"][0]["TagValue"], "c");
    client.slb("DeleteAccessControlList", &[acl]).await.unwrap();
    assert_eq!(client.slb("DescribeAccessControlListAttribute", &[acl]).await, Err("AclNotExist".into()));
}

async fn payment(client: &Client) {
    let given = [("InstanceChargeType", "PayBySpec"), ("LoadBalancerSpec", "slb.s1.small")];
    let lb = text(&client.slb("CreateLoadBalancer", &given).await.unwrap()["LoadBalancerId"]);
    let id = ("LoadBalancerId", lb.as_str());
    client.slb("ModifyLoadBalancerInstanceSpec", &[id, ("LoadBalancerSpec", "slb.s2.small")]).await.unwrap();
    let bought = [id, ("InternetChargeType", "paybybandwidth"), ("Bandwidth", "100")];
    client.slb("ModifyLoadBalancerInternetSpec", &bought).await.unwrap();
    assert_eq!(client.cloud.load_balancer(&lb)["bandwidth"], 100);
    client.slb("ModifyLoadBalancerInstanceChargeType", &[id, ("InstanceChargeType", "PayByCLCU")]).await.unwrap();
    assert_eq!(client.cloud.load_balancer(&lb)["spec"], "slb.lcu.elastic");
    for (action, more) in [
        ("ModifyLoadBalancerInstanceSpec", ("LoadBalancerSpec", "slb.s1.small")),
        ("ModifyLoadBalancerInternetSpec", ("InternetChargeType", "paybytraffic")),
    ] {
        assert_eq!(client.slb(action, &[id, more]).await, Err("OperationDenied.PayByCLCU".into()), "{action}");
    }
    client.slb("DeleteLoadBalancer", &[id]).await.unwrap();
}
