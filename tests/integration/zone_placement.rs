//! Zones and vSwitches of load balancers: as configured, or near the nodes, with fallbacks.

use std::time::Duration;

use sim::cloud::Fault;

use crate::harness::{ALL, World, address, is_ready};
use crate::service_features::{balancer, key, said};

const SERVICE: &[&str] = &["service"];

#[tokio::test(flavor = "multi_thread")]
async fn an_intranet_load_balancer_goes_where_there_is_room_and_says_so() {
    let world = World::new(SERVICE, "").await;
    let nodes = [world.testbed.join(1)];
    world.testbed.cloud.faults().script("CreateLoadBalancer", Fault::code("OperationFailed.ZoneResourceLimit"));
    world.testbed.expose("web", &[80], &[&nodes[0]], &[(&key("address-type"), "intranet")]);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(balancer(&world).unwrap().vswitch, "vsw-j");
    world.until("each choice is reported", |_| said(&world, "web", "was made in vSwitch vsw-j")).await;
    world.until("the choice is reported", |_| said(&world, "web", "can be made in vSwitch vsw-i")).await;
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_of_the_configuration_give_way_where_they_are_sold_out_and_each_choice_is_reported() {
    let defaults = "\n[service.defaults]\nmaster_zone = \"cn-hangzhou-i\"\nslave_zone = \"cn-hangzhou-j\"\n";
    let world = World::new(SERVICE, defaults).await;
    let node = world.testbed.join(1);
    world.testbed.cloud.edit(|cloud| cloud.sold_out_zones.extend(["cn-hangzhou-i".to_owned()]));
    world.testbed.expose("web", &[80], &[&node], &[]);
    let ccm = world.start();
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let made = balancer(&world).unwrap();
    assert_eq!((made.master_zone.as_str(), made.slave_zone.as_str()), ("cn-hangzhou-j", "cn-hangzhou-i"));
    let calls = world.testbed.cloud.calls().into_iter().filter(|call| call.action == "CreateLoadBalancer");
    let tokens: Vec<_> = calls.map(|call| call.parameter("ClientToken").to_owned()).collect();
    assert!(tokens.len() == 2 && tokens[0] == tokens[1], "wherever it is, it is the same creation: {tokens:?}");
    let (refused, chosen) = ("zones cn-hangzhou-i and cn-hangzhou-j", "zones cn-hangzhou-j and cn-hangzhou-i");
    world.until("the choice is reported", |_| said(&world, "web", &format!("was made in {chosen}"))).await;
    assert!(
        said(&world, "web", &format!("No load balancer can be made in {refused}")),
        "{:?}",
        world.events("Service", "web")
    );
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn public_load_balancers_are_made_where_the_nodes_are_unless_that_is_impossible() {
    let world = World::new(ALL, "").await;
    let node = world.testbed.join(2);
    let ccm = world.start();
    world.until("the node is initialised", |_| is_ready(&world.node(&node))).await;
    world.until_quiet(Duration::from_millis(500)).await;
    world.testbed.expose("near", &[80], &[&node], &[]);
    world.until("the Service has an address", |_| address(&world.service("near")).is_some()).await;
    assert_eq!(
        balancer(&world).unwrap().master_zone,
        "cn-hangzhou-j",
        "the cloud by itself would have chosen the other"
    );
    world.until("the choice is reported", |_| said(&world, "near", "was made in zone cn-hangzhou-j")).await;
    // A zone that sells no load balancers at all was nobody's wish.
    world.testbed.cloud.faults().script("CreateLoadBalancer", Fault::code("InvalidParameter.ZoneNotSupported"));
    world.testbed.expose("far", &[80], &[&node], &[]);
    world.until("it is made elsewhere", |_| address(&world.service("far")).is_some()).await;
    world.until("and that is reported", |_| said(&world, "far", "was made in zones of the cloud's choice")).await;
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn intranet_load_balancers_are_near_the_nodes_by_default() {
    let world = World::new(ALL, "").await;
    world.edit(|text| text.replace("vswitches = [\"cn-hangzhou-i:vsw-i\", \"cn-hangzhou-j:vsw-j\"]\n", ""));
    // One node in the first zone, where this instance is, too; two in the second, where there is a larger vSwitch.
    let nodes = [1, 2, 4].map(|number| world.testbed.join(number));
    world.testbed.cloud.edit(|cloud| {
        *cloud = cloud.clone().with_vswitch("vsw-large", "vpc-play", "cn-hangzhou-j", "192.168.64.0/20");
        cloud.vswitches.get_mut("vsw-j").unwrap().available_ips = 10;
        cloud.vswitches.get_mut("vsw-large").unwrap().available_ips = 1000;
        cloud.metadata.instance = Some("i-play-1".to_owned());
    });
    let ccm = world.start();
    world.until("the nodes are initialised", |_| nodes.iter().all(|node| is_ready(&world.node(node)))).await;
    let made = async |name: &str, annotations: &[(&str, &str)]| {
        let intranet = key("address-type");
        let annotations = [&[(intranet.as_str(), "intranet")], annotations].concat();
        world.testbed.expose(name, &[80], &[&nodes[0]], &annotations);
        world.until("the Service has an address", |_| address(&world.service(name)).is_some()).await;
        let vswitch = balancer(&world).unwrap().vswitch;
        world.testbed.cluster.delete("Service", "default", name).unwrap();
        world.until("the Service is gone", |_| world.service(name).is_null()).await;
        vswitch
    };
    assert_eq!(made("near", &[]).await, "vsw-large");
    assert_eq!(made("stated", &[(&key("vswitch-id"), "vsw-i")]).await, "vsw-i");
    // A classic one is asked for without a vSwitch; whether there are any is for the cloud to say.
    let classic = [(&*key("address-type"), "intranet"), (&*key("network-type"), "classic")];
    world.testbed.expose("classic", &[80], &[&nodes[0]], &classic);
    world.until("that is refused", |_| said(&world, "classic", "\"VSwitchId\" that is mandatory")).await;
    world.testbed.cluster.delete("Service", "default", "classic").unwrap();
    world.until("the Service is gone", |_| world.service("classic").is_null()).await;
    // Without the permission to look for one, there is the one of this instance.
    world.testbed.cloud.faults().always("DescribeVSwitches", Fault::code("Forbidden.RAM"));
    assert_eq!(made("here", &[]).await, "vsw-i");
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}
