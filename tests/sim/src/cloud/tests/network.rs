//! Network load balancers: jobs, locks, and what the cloud refuses.

use serde_json::json;

use super::*;

const JOB: Duration = Duration::from_secs(5);

/// A cloud whose jobs take five seconds, with a load balancer and an empty server group, both done.
async fn slow_cloud() -> (Cloud, Client, String, String) {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_network_load_balancer().await;
    let group = client.create_server_group("web", &[]).await;
    cloud.dials(|dials| dials.nlb_job_time = JOB);
    (cloud, client, lb, group)
}

fn listener<'a>(lb: &'a str, port: &'a str, group: &'a str) -> [(&'a str, &'a str); 4] {
    [("LoadBalancerId", lb), ("ListenerPort", port), ("ListenerProtocol", "TCP"), ("ServerGroupId", group)]
}

fn server<'a>(group: &'a str, id: &'a str) -> [(&'a str, &'a str); 4] {
    [("ServerGroupId", group), ("Servers.1.ServerId", id), ("Servers.1.ServerType", "Ecs"), ("Servers.1.Port", "80")]
}

async fn job_status(client: &Client, answer: &Value) -> String {
    let job = text(&answer["JobId"]);
    text(&client.nlb("ListAsynJobs", &[("JobIds.1", &job)]).await.unwrap()["Jobs"][0]["Status"])
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_is_provisioned_before_it_takes_writes() {
    let cloud = Cloud::new(account());
    cloud.dials(|dials| dials.nlb_creation_time = JOB);
    let client = Client::new(&cloud);
    let lb = client.create_network_load_balancer().await;
    let id = [("LoadBalancerId", lb.as_str())];
    assert_eq!(client.nlb("GetLoadBalancerAttribute", &id).await.unwrap()["LoadBalancerStatus"], "Provisioning");
    assert_eq!(client.nlb("DeleteLoadBalancer", &id).await, Err("ResourceInCreating.loadbalancer".into()));
    tokio::time::sleep(JOB).await;
    assert_eq!(client.nlb("GetLoadBalancerAttribute", &id).await.unwrap()["LoadBalancerStatus"], "Active");
    client.nlb("DeleteLoadBalancer", &id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_a_job_holds_an_object_writes_to_it_are_refused_and_reads_answer() {
    let (cloud, client, lb, group) = slow_cloud().await;
    let id = ("LoadBalancerId", lb.as_str());
    let name = [id, ("LoadBalancerName", "web")];
    let begun = client.nlb("UpdateLoadBalancerAttribute", &name).await.unwrap();
    assert_eq!(job_status(&client, &begun).await, "Processing");
    assert_eq!(client.nlb("UpdateLoadBalancerAttribute", &name).await, Err("Conflict.Lock".into()));
    assert_eq!(client.nlb("CreateListener", &listener(&lb, "80", &group)).await, Err("Conflict.Lock".into()));
    assert_eq!(client.nlb("GetLoadBalancerAttribute", &[id]).await.unwrap()["LoadBalancerStatus"], "Configuring");
    tokio::time::sleep(JOB).await;
    assert_eq!(job_status(&client, &begun).await, "Succeeded");

    client.nlb("AddServersToServerGroup", &server(&group, "i-1")).await.unwrap();
    let second = client.nlb("AddServersToServerGroup", &server(&group, "i-2")).await;
    assert_eq!(second, Err("OperationFailed.ResourceIsConfiguring".into()));
    let held = client.nlb("ListServerGroupServers", &[("ServerGroupId", &group)]).await.unwrap();
    assert_eq!(held["Servers"][0]["Status"], "Adding");
    tokio::time::sleep(JOB).await;

    let first = client.nlb("CreateListener", &listener(&lb, "80", &group)).await.unwrap();
    let lsn = ("ListenerId", first["ListenerId"].as_str().unwrap());
    assert_eq!(client.nlb("DeleteListener", &[lsn]).await, Err("IncorrectStatus.listener".into()));
    client.nlb("CreateListener", &listener(&lb, "81", &group)).await.unwrap();
    tokio::time::sleep(JOB).await;
    cloud.dials(|dials| dials.nlb_listeners_lock = true);
    client.nlb("CreateListener", &listener(&lb, "82", &group)).await.unwrap();
    assert_eq!(client.nlb("CreateListener", &listener(&lb, "83", &group)).await, Err("Conflict.Lock".into()));
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_is_there_until_its_job_ends() {
    let (cloud, client, lb, group) = slow_cloud().await;
    client.nlb("AddServersToServerGroup", &server(&group, "i-1")).await.unwrap();
    let made = client.nlb("CreateListener", &listener(&lb, "80", &group)).await.unwrap();
    tokio::time::sleep(JOB).await;
    client.nlb("RemoveServersFromServerGroup", &server(&group, "i-1")).await.unwrap();
    client.nlb("DeleteListener", &[("ListenerId", made["ListenerId"].as_str().unwrap())]).await.unwrap();
    let sgp = [("ServerGroupId", group.as_str())];
    let held = client.nlb("ListServerGroupServers", &sgp).await.unwrap();
    assert_eq!(held["Servers"][0]["Status"], "Removing");
    assert_eq!(client.nlb("CreateListener", &listener(&lb, "80", &group)).await, Err("Conflict.Port".into()));
    tokio::time::sleep(JOB).await;
    assert_eq!(client.nlb("ListServerGroupServers", &sgp).await.unwrap()["Servers"], json!([]));
    client.nlb("DeleteServerGroup", &sgp).await.unwrap();
    client.nlb("DeleteLoadBalancer", &[("LoadBalancerId", &lb)]).await.unwrap();
    assert_eq!(cloud.network_load_balancer(&lb)["status"], "Deleting");
    tokio::time::sleep(JOB).await;
    assert_eq!(cloud.network_load_balancer(&lb), Value::Null);
    assert!(cloud.look(|account| account.nlb.groups.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_changes_nothing_and_says_so() {
    let (cloud, client, lb, group) = slow_cloud().await;
    cloud.faults().script("AddServersToServerGroup", Fault::JobFails);
    let begun = client.nlb("AddServersToServerGroup", &server(&group, "i-1")).await.unwrap();
    assert_eq!(job_status(&client, &begun).await, "Processing");
    tokio::time::sleep(JOB).await;
    assert_eq!(job_status(&client, &begun).await, "Failed");
    assert!(cloud.look(|account| account.nlb.groups[&group].servers.is_empty()));
    cloud.faults().script("nlb:DeleteLoadBalancer", Fault::JobFails);
    client.nlb("DeleteLoadBalancer", &[("LoadBalancerId", &lb)]).await.unwrap();
    tokio::time::sleep(JOB).await;
    assert_eq!(cloud.network_load_balancer(&lb)["status"], "Active");
}

#[tokio::test]
async fn a_client_token_makes_one_thing_and_takes_no_other_parameters() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let group = [("ServerGroupName", "web"), ("VpcId", "vpc-1"), ("ClientToken", "token")];
    let first = client.nlb("CreateServerGroup", &group).await.unwrap();
    let second = client.nlb("CreateServerGroup", &group).await.unwrap();
    assert_eq!(first["ServerGroupId"], second["ServerGroupId"]);
    let other = [("ServerGroupName", "other"), ("VpcId", "vpc-1"), ("ClientToken", "token")];
    assert_eq!(client.nlb("CreateServerGroup", &other).await, Err("IdempotenceSignatureMismatch".into()));
    assert_eq!(cloud.look(|account| account.nlb.groups.len()), 1);
}

#[tokio::test]
async fn listeners_share_no_port_and_fit_their_groups() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_network_load_balancer().await;
    let group = client.create_server_group("web", &[]).await;
    let any = [("AnyPortEnabled", "true"), ("HealthCheckConfig.HealthCheckConnectPort", "8080")];
    let any = client.create_server_group("any", &any).await;
    client.nlb("CreateListener", &listener(&lb, "80", &group)).await.unwrap();
    let range = [("StartPort", "80"), ("EndPort", "400")];
    let over = client.nlb("CreateListener", &[&listener(&lb, "0", &any)[..], &range].concat()).await;
    assert_eq!(over, Err("Conflict.Port".into()));
    let beside = [("StartPort", "81"), ("EndPort", "400")];
    client.nlb("CreateListener", &[&listener(&lb, "0", &any)[..], &beside].concat()).await.unwrap();
    let plain = client.nlb("CreateListener", &listener(&lb, "500", &any)).await;
    assert_eq!(plain, Err("IllegalParam.NonAnyPortListenerConflictWithAnyPortServerGroup".into()));
    let ssl = [
        ("LoadBalancerId", lb.as_str()),
        ("ListenerPort", "443"),
        ("ListenerProtocol", "TCPSSL"),
        ("ServerGroupId", &group),
    ];
    assert_eq!(client.nlb("CreateListener", &ssl).await, Err("IllegalParam.PreserveClientIpSwitch".into()));
    assert_eq!(cloud.network_load_balancer(&lb)["listeners"]["81-400/TCP"]["server_group"], "any");
}

#[tokio::test]
async fn hundreds_of_servers_come_in_pages() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let group = client.create_server_group("ips", &[("ServerGroupType", "Ip")]).await;
    for batch in 0..3 {
        let mut given = BTreeMap::from([("ServerGroupId".to_owned(), group.clone())]);
        for number in 1..=150 {
            let ip = format!("10.0.{batch}.{number}");
            for (name, value) in [("ServerId", ip.as_str()), ("ServerIp", &ip), ("ServerType", "Ip"), ("Port", "80")] {
                given.insert(format!("Servers.{number}.{name}"), value.to_owned());
            }
        }
        let given: Vec<(&str, &str)> = given.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let answer = client.nlb("AddServersToServerGroup", &given).await.map(drop);
        let expected = if batch < 2 { Ok(()) } else { Err("QuotaExceeded.QuotaInsufficient".to_owned()) };
        assert_eq!(answer, expected, "400 servers are allowed");
    }
    let (mut seen, mut token) = (0, String::new());
    loop {
        let page = [("ServerGroupId", group.as_str()), ("MaxResults", "100"), ("NextToken", &token)];
        let page = client.nlb("ListServerGroupServers", &page[..if token.is_empty() { 2 } else { 3 }]).await.unwrap();
        seen += page["Servers"].as_array().unwrap().len();
        token = text(&page["NextToken"]);
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 300);
}

#[tokio::test(start_paused = true)]
async fn a_security_group_lingers_after_its_load_balancer_and_a_fifth_is_refused() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let lb = client.create_network_load_balancer().await;
    let id = ("LoadBalancerId", lb.as_str());
    let mut groups = Vec::new();
    for _ in 0..5 {
        let made = client.call(ECS, "CreateSecurityGroup", &[("VpcId", "vpc-1")]).await.unwrap();
        groups.push(text(&made["SecurityGroupId"]));
    }
    for (index, group) in groups.iter().enumerate() {
        let joined = client.nlb("LoadBalancerJoinSecurityGroup", &[id, ("SecurityGroupIds.1", group)]).await.is_ok();
        assert_eq!(joined, index < 4);
    }
    cloud.dials(|dials| dials.security_group_release = JOB);
    client.nlb("DeleteLoadBalancer", &[id]).await.unwrap();
    let first = [("SecurityGroupId", groups[0].as_str())];
    assert_eq!(client.call(ECS, "DeleteSecurityGroup", &first).await, Err("DependencyViolation".into()));
    tokio::time::sleep(JOB).await;
    client.call(ECS, "DeleteSecurityGroup", &first).await.unwrap();
}

#[tokio::test]
async fn elastic_addresses_are_bound_freed_and_never_shared() {
    let cloud = Cloud::new(account());
    cloud.edit(|account| {
        let eip = Eip { address: "47.99.1.1".into(), instance_type: String::new(), instance: String::new() };
        account.eips.insert("eip-1".into(), eip);
    });
    let client = Client::new(&cloud);
    let given = [
        ("AddressType", "Internet"),
        ("VpcId", "vpc-1"),
        ("ZoneMappings.1.ZoneId", "cn-hangzhou-i"),
        ("ZoneMappings.1.VSwitchId", "vsw-i"),
        ("ZoneMappings.1.AllocationId", "eip-1"),
        ("ZoneMappings.2.ZoneId", "cn-hangzhou-j"),
        ("ZoneMappings.2.VSwitchId", "vsw-j"),
    ];
    let lb = text(&client.nlb("CreateLoadBalancer", &given).await.unwrap()["LoadbalancerId"]);
    assert_eq!(cloud.network_load_balancer(&lb)["zones"][0]["public_ip"], "47.99.1.1");
    let free = |account: &Account| account.vswitches["vsw-i"].available_ips;
    let before = cloud.look(free);
    let second = client.nlb("CreateLoadBalancer", &given).await;
    assert_eq!(second, Err("ResourceAlreadyAssociated.AllocationId".into()));
    assert_eq!(cloud.look(free), before, "a refused creation takes no address");
    client
        .nlb("UpdateLoadBalancerAddressTypeConfig", &[("LoadBalancerId", &lb), ("AddressType", "Intranet")])
        .await
        .unwrap();
    assert!(cloud.look(|account| account.eips["eip-1"].instance.is_empty()));
}

#[tokio::test]
async fn the_console_acts_without_a_trace_in_the_calls() {
    let (cloud, client, lb, group) = slow_cloud().await;
    let before = cloud.calls().len();
    cloud
        .act("nlb", "TagResources", &[("ResourceType", "servergroup"), ("ResourceId.1", &group), ("Tag.1.Key", "k")])
        .unwrap();
    assert_eq!(cloud.act("nlb", "DeleteLoadBalancer", &[]), Err("MissingParameter".into()));
    assert_eq!(
        cloud.act("slb", "DeleteLoadBalancer", &[("LoadBalancerId", &lb)]),
        Err("InvalidLoadBalancerId.NotFound".into())
    );
    assert_eq!(cloud.calls().len(), before);
    let listed = client.nlb("ListServerGroups", &[("Tag.1.Key", "k")]).await.unwrap();
    assert_eq!(listed["ServerGroups"][0]["ServerGroupId"], json!(group));
}
