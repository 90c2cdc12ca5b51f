//! Each action once, by a client that makes no mistakes.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

#[tokio::test]
async fn each_action_answers_a_correct_client() {
    let cloud = Cloud::new(account());
    cloud.edit(|account| {
        account.disks.insert("d-1".into(), Disk::new("cn-hangzhou", "cn-hangzhou-i"));
        account.disks.insert("d-far".into(), Disk::new("cn-beijing", "cn-beijing-a"));
        account.oidc_token = Some("jwt".into());
        account.acls.insert("acl-1".into(), Acl { name: "office".into(), ..Acl::default() });
    });
    let client = Client::new(&cloud);
    compute(&client).await;
    network(&client).await;
    sessions(&client).await;
    load_balancers(&client).await;
    access_control(&client).await;
    network_load_balancers(&client).await;
    private_zones(&client).await;

    assert_eq!(cloud.complaints(), Vec::<String>::new());
    let answered = cloud.calls().into_iter().filter(|it| it.outcome == "OK");
    let called: BTreeSet<String> = answered.map(|it| format!("{}:{}", it.product, it.action)).collect();
    let all = actions::all().map(|it| format!("{}:{}", it.product.name(), it.name));
    let missing: Vec<String> = all.filter(|it| !called.contains(it)).collect();
    assert_eq!(missing, Vec::<String>::new(), "actions that never answered OK");
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

    let by_id = [("RegionId", "cn-hangzhou"), ("DiskIds", r#"["d-1","d-9","d-far"]"#), ("MaxResults", "100")];
    let found = client.call(ECS, "DescribeDisks", &by_id).await.unwrap();
    assert_eq!(found["Disks"]["Disk"].as_array().unwrap().len(), 1, "d-9 does not exist, d-far is in another region");
    assert_eq!(found["Disks"]["Disk"][0]["ZoneId"], "cn-hangzhou-i");

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

async fn private_zones(client: &Client) {
    let call = async |action, given: &[(&str, &str)]| client.call(PVTZ, action, given).await;
    client.cloud.edit(|account| {
        account.private_zones.insert("zone-1".into(), PrivateZone::new("cluster.example", "vpc-1"));
    });
    let by_vpc = [("Keyword", "cluster"), ("QueryVpcId", "vpc-1"), ("QueryRegionId", "cn-hangzhou")];
    let zones = call("DescribeZones", &by_vpc).await.unwrap();
    assert_eq!((&zones["TotalItems"], &zones["Zones"]["Zone"][0]["ZoneId"]), (&json!(1), &json!("zone-1")));
    let zone = call("DescribeZoneInfo", &[("ZoneId", "zone-1")]).await.unwrap();
    assert_eq!(zone["BindVpcs"]["Vpc"][0]["VpcId"], "vpc-1");
    let web = [("ZoneId", "zone-1"), ("Rr", "web"), ("Type", "A"), ("Value", "10.0.0.1"), ("Remark", "ours")];
    let id = call("AddZoneRecord", &web).await.unwrap()["RecordId"].to_string();
    for (bad, code) in [
        (("Remark", "not allowed"), "Zone.Remark"),
        (("Ttl", "61"), "InvalidParameter"),
        (("Value", "10.0.0"), "InvalidParameter"),
        (("ZoneId", "zone-2"), "Zone.NotExists"),
        (("Line", "default"), "Record.Invalid.Conflict"),
    ] {
        let mut given = web.to_vec();
        given.retain(|(name, _)| *name != bad.0);
        given.push(bad);
        assert!(call("AddZoneRecord", &given).await.unwrap_err().contains(code), "{bad:?}");
    }
    let alias = [("ZoneId", "zone-1"), ("Rr", "WEB"), ("Type", "CNAME"), ("Value", "a.example")];
    assert!(call("AddZoneRecord", &alias).await.unwrap_err().contains("Record.Invalid.Conflict"));
    let other = [("RecordId", id.as_str()), ("Rr", "web"), ("Type", "A"), ("Value", "10.0.0.2"), ("Ttl", "30")];
    call("UpdateZoneRecord", &other).await.unwrap();
    let named = [("ZoneId", "zone-1"), ("Keyword", "Web")];
    let record = call("DescribeZoneRecords", &named).await.unwrap()["Records"]["Record"][0].clone();
    assert_eq!((&record["Value"], &record["Ttl"], &record["Remark"]), (&json!("10.0.0.2"), &json!(30), &json!("ours")));
    call("DeleteZoneRecord", &other[..1]).await.unwrap();
    assert!(call("DeleteZoneRecord", &other[..1]).await.is_err());
}

async fn sessions(client: &Client) {
    let role = [("RoleArn", "acs:ram::1234567890123456:role/ccm"), ("RoleSessionName", "ccm")];
    let keys = client.call(STS, "AssumeRole", &role).await.unwrap();
    let session = Client::session(&client.cloud, &keys["Credentials"]);
    session.slb("DescribeLoadBalancers", &[]).await.unwrap();
    let caller = client.call(STS, "GetCallerIdentity", &[]).await.unwrap();
    assert_eq!((&caller["AccountId"], &caller["IdentityType"]), (&json!("1234567890123456"), &json!("RAMUser")));

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
    let again = client.slb("AddAccessControlListEntry", &[acl, ("AclEntrys", one)]).await;
    assert_eq!(again, Err("InvalidParam.AclEntryExists".into()));
    let second = [acl, ("Page", "2"), ("PageSize", "1")];
    let paged = client.slb("DescribeAccessControlListAttribute", &second).await.unwrap();
    assert_eq!(
        (&paged["AclEntrys"]["AclEntry"][0]["AclEntryIP"], &paged["TotalAclEntry"]),
        (&json!("10.1.2.3/32"), &json!(2))
    );
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

async fn network_load_balancers(client: &Client) {
    let zones = [
        ("ZoneMappings.1.ZoneId", "cn-hangzhou-i"),
        ("ZoneMappings.1.VSwitchId", "vsw-i"),
        ("ZoneMappings.2.ZoneId", "cn-hangzhou-j"),
        ("ZoneMappings.2.VSwitchId", "vsw-j"),
    ];
    let wanted = [&zones[..], &[("AddressType", "internet"), ("VpcId", "vpc-1"), ("AddressIpVersion", "DualStack")]];
    let made = client.nlb("CreateLoadBalancer", &wanted.concat()).await.unwrap();
    let lb = text(&made["LoadbalancerId"]);
    let id = ("LoadBalancerId", lb.as_str());
    client.nlb("UpdateLoadBalancerAttribute", &[id, ("LoadBalancerName", "web-1")]).await.unwrap();
    let console = [id, ("ModificationProtectionStatus", "ConsoleProtection"), ("DeletionProtectionEnabled", "true")];
    client.nlb("UpdateLoadBalancerProtection", &console).await.unwrap();
    client.nlb("EnableLoadBalancerIpv6Internet", &[id]).await.unwrap();
    client.nlb("DisableLoadBalancerIpv6Internet", &[id]).await.unwrap();
    let package = [id, ("BandwidthPackageId", "cbwp-1")];
    client.nlb("AttachCommonBandwidthPackageToLoadBalancer", &package).await.unwrap();
    client.nlb("DetachCommonBandwidthPackageFromLoadBalancer", &package).await.unwrap();
    client.nlb("UpdateLoadBalancerAddressTypeConfig", &[id, ("AddressType", "Intranet")]).await.unwrap();
    let same = client.nlb("UpdateLoadBalancerZones", &[&[id], &zones[..]].concat()).await;
    assert_eq!(same, Err("OperationDenied.ZoneMappingsNotChanged".into()));
    let other =
        [id, zones[0], zones[1], ("ZoneMappings.2.ZoneId", "cn-hangzhou-k"), ("ZoneMappings.2.VSwitchId", "vsw-k")];
    client.nlb("UpdateLoadBalancerZones", &other).await.unwrap();
    let shown = client.nlb("GetLoadBalancerAttribute", &[id]).await.unwrap();
    assert_eq!((&shown["AddressType"], &shown["Ipv6AddressType"]), (&json!("Intranet"), &json!("Intranet")));
    assert_eq!(shown["ZoneMappings"][1]["ZoneId"], "cn-hangzhou-k");
    let tags = [("ResourceType", "loadbalancer"), ("ResourceId.1", &lb), ("Tag.1.Key", "k"), ("Tag.1.Value", "v")];
    client.nlb("TagResources", &tags).await.unwrap();
    let found = client.nlb("ListLoadBalancers", &tags[2..]).await.unwrap();
    assert_eq!(found["LoadBalancers"][0]["Tags"], json!([{"Key": "k", "Value": "v"}]));
    let listed = client.nlb("ListTagResources", &tags[..2]).await.unwrap();
    assert_eq!(listed["TagResources"][0]["TagValue"], "v");
    client.nlb("UntagResources", &[tags[0], tags[1], ("TagKey.1", "k")]).await.unwrap();

    security_groups(client, &lb).await;
    network_listeners(client, &lb).await;
    let refused = client.nlb("DeleteLoadBalancer", &[id]).await;
    assert_eq!(refused, Err("OperationDenied.DeletionProtectionEnabled".into()));
    client.nlb("UpdateLoadBalancerProtection", &[id, ("DeletionProtectionEnabled", "false")]).await.unwrap();
    let job = text(&client.nlb("DeleteLoadBalancer", &[id]).await.unwrap()["JobId"]);
    assert_eq!(client.nlb("GetJobStatus", &[("JobId", &job)]).await.unwrap()["Status"], "Succeeded");
    let jobs = client.nlb("ListAsynJobs", &[("JobIds.1", &job), ("JobIds.2", "job-unknown")]).await.unwrap();
    assert_eq!((&jobs["TotalCount"], &jobs["Jobs"][0]["Status"]), (&json!("1"), &json!("Succeeded")));
    assert_eq!(client.cloud.network_load_balancer(&lb), Value::Null);
}

async fn security_groups(client: &Client, lb: &str) {
    let wanted = [("VpcId", "vpc-1"), ("SecurityGroupType", "enterprise"), ("Tag.1.Key", "k"), ("Tag.1.Value", "v")];
    let group = text(&client.call(ECS, "CreateSecurityGroup", &wanted).await.unwrap()["SecurityGroupId"]);
    let id = ("SecurityGroupId", group.as_str());
    let rule = [
        id,
        ("Permissions.1.IpProtocol", "ALL"),
        ("Permissions.1.PortRange", "-1/-1"),
        ("Permissions.1.SourceCidrIp", "10.0.0.0/8"),
        ("Permissions.1.Policy", "accept"),
    ];
    client.call(ECS, "AuthorizeSecurityGroup", &rule).await.unwrap();
    let again = client.call(ECS, "AuthorizeSecurityGroup", &rule).await;
    assert!(again.is_ok(), "a rule that exists is success without change");
    let found = client.call(ECS, "DescribeSecurityGroups", &wanted[2..]).await.unwrap();
    assert_eq!(found["SecurityGroups"]["SecurityGroup"][0]["RuleCount"], 1);
    let rules = client.call(ECS, "DescribeSecurityGroupAttribute", &[id]).await.unwrap();
    let held = &rules["Permissions"]["Permission"][0];
    assert_eq!((&held["Policy"], &held["Priority"]), (&json!("Accept"), &json!("1")));
    let one = text(&held["SecurityGroupRuleId"]);
    let change = [id, ("SecurityGroupRuleId", one.as_str()), ("Priority", "7")];
    client.call(ECS, "ModifySecurityGroupRule", &change).await.unwrap();
    client.call(ECS, "RevokeSecurityGroup", &[id, ("SecurityGroupRuleId.1", &one)]).await.unwrap();

    let both = [("LoadBalancerId", lb), ("SecurityGroupIds.1", group.as_str())];
    client.nlb("LoadBalancerJoinSecurityGroup", &both).await.unwrap();
    assert_eq!(client.call(ECS, "DeleteSecurityGroup", &[id]).await, Err("DependencyViolation".into()));
    client.nlb("LoadBalancerLeaveSecurityGroup", &both).await.unwrap();
    client.call(ECS, "DeleteSecurityGroup", &[id]).await.unwrap();
}

async fn network_listeners(client: &Client, lb: &str) {
    let group = client.create_server_group("web", &[("PreserveClientIpEnabled", "false")]).await;
    let sgp = ("ServerGroupId", group.as_str());
    client.nlb("UpdateServerGroupAttribute", &[sgp, ("Scheduler", "Wlc")]).await.unwrap();
    let server = [sgp, ("Servers.1.ServerId", "i-1"), ("Servers.1.ServerType", "Ecs"), ("Servers.1.Port", "80")];
    client.nlb("AddServersToServerGroup", &server).await.unwrap();
    let lighter = [&server[..], &[("Servers.1.Weight", "7")]].concat();
    client.nlb("UpdateServerGroupServersAttribute", &lighter).await.unwrap();
    let members = client.nlb("ListServerGroupServers", &[sgp]).await.unwrap();
    assert_eq!((&members["Servers"][0]["Weight"], &members["Servers"][0]["Status"]), (&json!(7), &json!("Available")));
    client.nlb("RemoveServersFromServerGroup", &server).await.unwrap();

    let wanted = [("LoadBalancerId", lb), ("ListenerPort", "443"), ("ListenerProtocol", "TCPSSL"), sgp];
    let refused = client.nlb("CreateListener", &wanted).await;
    assert_eq!(refused, Err("MissingParam.certificate".into()));
    let wanted = [&wanted[..], &[("CertificateIds.1", "cert-1")]].concat();
    let listener = text(&client.nlb("CreateListener", &wanted).await.unwrap()["ListenerId"]);
    assert!(listener.ends_with("@443"));
    let lsn = ("ListenerId", listener.as_str());
    client.nlb("UpdateListenerAttribute", &[lsn, ("IdleTimeout", "60")]).await.unwrap();
    let more = [lsn, ("AdditionalCertificateIds.1", "cert-2")];
    client.nlb("AssociateAdditionalCertificatesWithListener", &more).await.unwrap();
    let certificates = client.nlb("ListListenerCertificates", &[lsn]).await.unwrap();
    assert_eq!(certificates["Certificates"].as_array().unwrap().len(), 2);
    client.nlb("DisassociateAdditionalCertificatesWithListener", &more).await.unwrap();
    client.nlb("StopListener", &[lsn]).await.unwrap();
    let stopped = client.nlb("ListListeners", &[("LoadBalancerIds.1", lb)]).await.unwrap();
    assert_eq!(stopped["Listeners"][0]["ListenerStatus"], "Stopped");
    client.nlb("StartListener", &[lsn]).await.unwrap();
    assert_eq!(client.nlb("DeleteServerGroup", &[sgp]).await, Err("ResourceInUse.ServerGroup".into()));
    let groups = client.nlb("ListServerGroups", &[("ServerGroupIds.1", &group)]).await.unwrap();
    assert_eq!(groups["ServerGroups"][0]["RelatedLoadBalancerIds"], json!([lb]));
    client.nlb("DeleteListener", &[lsn]).await.unwrap();
    client.nlb("DeleteServerGroup", &[sgp]).await.unwrap();
}
