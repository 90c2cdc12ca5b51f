//! How many objects the simulators look at, so that a test can assert that a world twice as large costs twice as much.

use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// How often an object was looked at on this thread so far.
#[must_use]
pub fn looks() -> u64 {
    LOOKS.get()
}

/// One more object is looked at.
pub(crate) fn look() {
    LOOKS.set(LOOKS.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::looks;
    use crate::cloud::Cloud;
    use crate::cluster::{Cluster, Version};
    use crate::population;
    use crate::testbed::VPC;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    /// Looks that `play` takes for each of so many objects, in hundredths.
    async fn cost(size: usize, play: impl AsyncFn(usize)) -> u64 {
        let before = looks();
        play(size).await;
        looks() - before
    }

    /// A world twice as large may cost only a little more than twice as much.
    async fn assert_in_proportion(what: &str, play: impl AsyncFn(usize)) {
        let (small, large) = (cost(250, &play).await, cost(500, &play).await);
        println!("{what}: {small} looks, {large} with twice as many objects");
        assert!(large * 10 <= small * 22, "{what}: {small} looks, {large} with twice as many objects");
    }

    fn service(number: usize) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": format!("s-{number}"), "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        })
    }

    async fn list(cluster: &Cluster, path: &str) -> usize {
        let (mut query, mut found) = ("limit=50".to_owned(), 0);
        loop {
            let request = http::Request::builder().uri(format!("{path}?{query}"));
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
            let body = cluster.handle(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
            let page: Value = serde_json::from_slice(&body).unwrap();
            found += page["items"].as_array().map_or(0, Vec::len);
            match page["metadata"]["continue"].as_str() {
                None => return found,
                Some(token) => query = format!("limit=50&continue={token}"),
            }
        }
    }

    #[tokio::test]
    async fn services_are_made_listed_and_deleted_at_a_cost_in_proportion_to_their_number() {
        assert_in_proportion("services", async |size| {
            let cluster = Cluster::new(Version::NEWEST);
            for number in 0..size {
                cluster.create(service(number)).unwrap();
                let address = std::net::IpAddr::from([10, 0, 0, 1]);
                let endpoints = [crate::cluster::Endpoint::ready(address, "a")];
                cluster.set_endpoints("default", &format!("s-{number}"), &endpoints).unwrap();
                // An early one keeps its address and its port while others are given theirs.
                let status = json!({"loadBalancer": {"ingress": [{"ip": format!("10.1.0.{}", number % 250)}]}});
                cluster.patch_status("Service", "default", "s-0", &status).unwrap();
            }
            assert_eq!(list(&cluster, "/api/v1/services").await, size + 1);
            assert_eq!(list(&cluster, "/apis/discovery.k8s.io/v1/endpointslices").await, size);
            for number in 0..size {
                cluster.delete("Service", "default", &format!("s-{number}")).unwrap();
            }
            assert_eq!(list(&cluster, "/apis/discovery.k8s.io/v1/endpointslices").await, 0);
        })
        .await;
    }

    fn act(cloud: &Cloud, product: &str, action: &str, parameters: &[(&str, &str)]) -> Value {
        cloud.act(product, action, parameters).unwrap()
    }

    #[tokio::test]
    async fn classic_load_balancers_are_made_found_and_deleted_at_a_cost_in_proportion_to_their_number() {
        assert_in_proportion("classic load balancers", async |size| {
            let cloud = Cloud::new(population::account(4 * size));
            cloud.add_instance("i-1", "node", "vsw-i", "172.16.0.1");
            let mut ids = Vec::new();
            for number in 0..size {
                let name = format!("lb-{number}");
                let wanted: [(&str, &str); 8] = [
                    ("LoadBalancerName", &name),
                    ("AddressType", if number % 2 == 0 { "internet" } else { "intranet" }),
                    ("VpcId", VPC),
                    ("VSwitchId", "vsw-i"),
                    ("InstanceChargeType", "PayByCLCU"),
                    ("Tag.1.Key", "cluster"),
                    ("Tag.1.Value", "one"),
                    ("ClientToken", &name),
                ];
                let made = act(&cloud, "slb", "CreateLoadBalancer", &wanted);
                let id = made["LoadBalancerId"].as_str().unwrap().to_owned();
                let group = [("LoadBalancerId", id.as_str()), ("VServerGroupName", "web")];
                let made = act(&cloud, "slb", "CreateVServerGroup", &group);
                let group = made["VServerGroupId"].as_str().unwrap().to_owned();
                let servers = r#"[{"ServerId":"i-1","Port":"80"}]"#;
                let added = [("VServerGroupId", group.as_str()), ("BackendServers", servers)];
                act(&cloud, "slb", "AddVServerGroupBackendServers", &added);
                act(&cloud, "slb", "DescribeVServerGroupAttribute", &[("VServerGroupId", &group)]);
                for (filter, value) in [("LoadBalancerName", name.as_str()), ("LoadBalancerId", &id)] {
                    let found = act(&cloud, "slb", "DescribeLoadBalancers", &[(filter, value)]);
                    assert_eq!(found["TotalCount"], 1);
                }
                ids.push(id);
            }
            for id in ids {
                act(&cloud, "slb", "DeleteLoadBalancer", &[("LoadBalancerId", &id)]);
            }
        })
        .await;
    }

    /// All pages of a list.
    fn pages(cloud: &Cloud, product: &str, action: &str, parameters: &[(&str, &str)], list: &str) -> usize {
        let (mut token, mut found) = (String::new(), 0);
        loop {
            let mut parameters = parameters.to_vec();
            if !token.is_empty() {
                parameters.push(("NextToken", &token));
            }
            let page = act(cloud, product, action, &parameters);
            found += page.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
            token = page["NextToken"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                return found;
            }
        }
    }

    #[tokio::test]
    async fn network_load_balancers_are_made_listed_and_deleted_at_a_cost_in_proportion_to_their_number() {
        assert_in_proportion("network load balancers", async |size| {
            let cloud = Cloud::new(population::account(8 * size));
            cloud.add_instance("i-1", "node", "vsw-i", "172.16.0.1");
            let mut made = Vec::new();
            for number in 0..size {
                let name = format!("nlb-{number}");
                let wanted: [(&str, &str); 9] = [
                    ("LoadBalancerName", &name),
                    ("AddressType", "Internet"),
                    ("VpcId", VPC),
                    ("ZoneMappings.1.ZoneId", "cn-hangzhou-i"),
                    ("ZoneMappings.1.VSwitchId", "vsw-i"),
                    ("ZoneMappings.2.ZoneId", "cn-hangzhou-j"),
                    ("ZoneMappings.2.VSwitchId", "vsw-j"),
                    ("Tag.1.Key", "cluster"),
                    ("Tag.1.Value", "one"),
                ];
                let balancer = act(&cloud, "nlb", "CreateLoadBalancer", &wanted);
                let balancer = balancer["LoadbalancerId"].as_str().unwrap().to_owned();
                let group = [("VpcId", VPC), ("ServerGroupName", name.as_str()), ("Protocol", "TCP")];
                let group = act(&cloud, "nlb", "CreateServerGroup", &group);
                let group = group["ServerGroupId"].as_str().unwrap().to_owned();
                let listener = [
                    ("LoadBalancerId", balancer.as_str()),
                    ("ListenerProtocol", "TCP"),
                    ("ListenerPort", "80"),
                    ("ServerGroupId", &group),
                ];
                let listener = act(&cloud, "nlb", "CreateListener", &listener);
                let listener = listener["ListenerId"].as_str().unwrap().to_owned();
                act(&cloud, "nlb", "StartListener", &[("ListenerId", &listener)]);
                let found = act(&cloud, "nlb", "ListLoadBalancers", &[("LoadBalancerNames.1", &name)]);
                assert_eq!(found["TotalCount"], 1);
                let found = act(&cloud, "nlb", "ListServerGroups", &[("ServerGroupNames.1", &name)]);
                assert_eq!(found["TotalCount"], 1);
                made.push((balancer, group));
            }
            let tag = [("Tag.1.Key", "cluster"), ("Tag.1.Value", "one"), ("MaxResults", "20")];
            assert_eq!(pages(&cloud, "nlb", "ListLoadBalancers", &tag, "/LoadBalancers"), size);
            assert_eq!(pages(&cloud, "nlb", "ListServerGroups", &[("MaxResults", "20")], "/ServerGroups"), size);
            assert_eq!(pages(&cloud, "nlb", "ListListeners", &[("MaxResults", "20")], "/Listeners"), size);
            for (balancer, group) in made {
                act(&cloud, "nlb", "DeleteLoadBalancer", &[("LoadBalancerId", &balancer)]);
                act(&cloud, "nlb", "DeleteServerGroup", &[("ServerGroupId", &group)]);
            }
        })
        .await;
    }

    #[tokio::test]
    async fn nodes_get_routes_and_are_looked_up_at_a_cost_in_proportion_to_their_number() {
        assert_in_proportion("nodes", async |size| {
            let cloud = Cloud::new(population::account(4 * size));
            let ids: Vec<String> = (0..size).map(population::instance).collect();
            let table = format!("vtb-{}", VPC.trim_start_matches("vpc-"));
            for (number, id) in ids.iter().enumerate() {
                let address = format!("172.16.{}.{}", number / 250, number % 250 + 1);
                cloud.add_instance(id, &population::node(number), "vsw-i", &address);
                let destination = format!("10.{}.{}.0/24", 64 + number / 256, number % 256);
                let route =
                    [("RouteTableId", table.as_str()), ("DestinationCidrBlock", &destination), ("NextHopId", id)];
                act(&cloud, "vpc", "CreateRouteEntry", &route);
            }
            for some in ids.chunks(10) {
                let ids = serde_json::to_string(some).unwrap();
                let wanted = [("InstanceIds", ids.as_str()), ("MaxResults", "100")];
                assert_eq!(pages(&cloud, "ecs", "DescribeInstances", &wanted, "/Instances/Instance"), some.len());
            }
            let routes = [("RouteTableId", table.as_str()), ("MaxResult", "20")];
            assert_eq!(pages(&cloud, "vpc", "DescribeRouteEntryList", &routes, "/RouteEntrys/RouteEntry"), size);
        })
        .await;
    }
}
