//! What was made a moment ago is not listed yet: it is made once all the same, or what was made twice goes soon. Nothing here is
//! healed by the comparison that comes from time to time: it is off.

use std::time::Duration;

use serde_json::json;
use sim::cloud::Fault;
use sim::cluster::Version;
use sim::stage::Stage;
use tokio::time::Instant;

use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kit::{ALL, HASTE, address};
use crate::proof::{Foreign, SHARED};

const MORE: &str = "[leader_election]\nenabled = false\n[service]\ndrift_check = \"0s\"\n";
/// How long everything may take: the waits after a lost answer, and what is tried again.
const LONG: Duration = Duration::from_secs(120);

/// A Service with two ports, which nobody has looked at yet.
async fn stage() -> Stage {
    let stage = Stage::open(Version::NEWEST).await.unwrap();
    for number in 1..=2 {
        stage.join(number);
    }
    stage.expose("web", &[80, 443], &["node-1", "node-2"], &[]);
    stage
}

fn start(stage: &Stage) -> Product {
    Product::start(stage, ALL, &format!("{HASTE}{MORE}"))
}

fn groups(stage: &Stage) -> usize {
    stage.cloud.look(|cloud| cloud.load_balancers.values().map(|lb| lb.groups.len()).sum())
}

fn listeners(stage: &Stage) -> Vec<u16> {
    let mut ports = stage.cloud.look(|cloud| {
        let listeners = cloud.load_balancers.values().flat_map(|lb| lb.listeners.keys());
        listeners.map(|(port, _)| *port).collect::<Vec<_>>()
    });
    ports.sort_unstable();
    ports
}

/// Waits until the Service has its address; gives the largest number of server groups that there were on the way.
async fn served(stage: &Stage) -> usize {
    let began = Instant::now();
    let mut most = 0;
    while address(&stage.cluster.get("Service", "default", "web").unwrap()).is_none() {
        assert!(began.elapsed() < LONG, "it is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(groups(stage));
    }
    most
}

/// Lets everything settle that is going to.
async fn settled() {
    tokio::time::sleep(LONG).await;
}

#[test]
fn a_group_that_was_perhaps_made_is_waited_for() {
    on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        stage.cloud.faults().script("CreateVServerGroup", Fault::LostAndHidden(1));
        let _product = start(&stage);
        assert_eq!(served(&stage).await, 2);
        settled().await;
        assert_eq!((groups(&stage), stage.cloud.count("CreateVServerGroup")), (2, 2));
    });
}

#[test]
fn a_group_that_shows_up_after_all_does_not_stay_beside_the_other() {
    let (_, log) = on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        // It is looked for when the creation is tried again, when the nodes have their routes, and after the wait.
        stage.cloud.faults().script("CreateVServerGroup", Fault::LostAndHidden(3));
        let _product = start(&stage);
        assert_eq!(served(&stage).await, 3, "made again after the wait");
        settled().await;
        assert_eq!((groups(&stage), stage.cloud.count("DeleteVServerGroup")), (2, 1));
    });
    assert!(!log.contains("changed by somebody else"), "{log}");
}

#[test]
fn a_group_that_we_made_is_known_although_no_list_shows_it() {
    on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        for _ in 0..2 {
            stage.cloud.faults().script("CreateVServerGroup", Fault::Hidden(9));
        }
        stage.cloud.faults().script("CreateLoadBalancerTCPListener", Fault::AnswerLost);
        let _product = start(&stage);
        assert_eq!(served(&stage).await, 2);
        assert!(stage.cloud.count("DescribeVServerGroups") > 0, "it was looked for");
        settled().await;
        assert_eq!((groups(&stage), stage.cloud.count("CreateVServerGroup")), (2, 2));
    });
}

#[test]
fn a_load_balancer_that_we_made_is_known_although_no_list_shows_it() {
    on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        stage.cloud.faults().script("CreateLoadBalancer", Fault::Hidden(9));
        stage.cloud.faults().script("CreateLoadBalancerTCPListener", Fault::Throttle);
        let _product = start(&stage);
        assert_eq!(served(&stage).await, 2);
        settled().await;
        assert_eq!((groups(&stage), stage.cloud.count("CreateLoadBalancer")), (2, 1));
    });
}

#[test]
fn a_listener_that_shows_up_when_nobody_wants_it_any_more_goes() {
    on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        stage.cloud.faults().script("CreateLoadBalancerTCPListener", Fault::LostAndHidden(1));
        let _product = start(&stage);
        let began = Instant::now();
        while listeners(&stage).is_empty() {
            assert!(began.elapsed() < LONG, "no listener is made");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ports =
            json!({"spec": {"ports": [{"name": "p8443", "port": 8443, "targetPort": 8000, "protocol": "TCP"}]}});
        stage.cluster.patch("Service", "default", "web", &ports).unwrap();
        served(&stage).await;
        assert_eq!(listeners(&stage), [80, 8443], "nothing shows the one that nobody wants");
        settled().await;
        assert_eq!((listeners(&stage), groups(&stage)), (vec![8443], 1));
    });
}

#[test]
fn what_a_copy_made_that_was_killed_does_not_stay_beside_what_the_next_one_makes() {
    on_a_clock_of_its_own(0, async {
        let stage = stage().await;
        stage.cloud.faults().script("CreateVServerGroup", Fault::LostAndHidden(1));
        let product = start(&stage);
        while groups(&stage) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(product);
        let _product = start(&stage);
        assert_eq!(served(&stage).await, 3, "nobody knows of the first one");
        settled().await;
        assert_eq!(groups(&stage), 2);
    });
}

#[test]
fn on_a_persons_load_balancer_a_service_leaves_nothing_that_shows_up_late() {
    on_a_clock_of_its_own(0, async {
        const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
        let stage = stage().await;
        let _foreign = Foreign::settle(&stage, &["web"]);
        let (id, force) = (format!("{PREFIX}-id"), format!("{PREFIX}-force-override-listeners"));
        let shared = [(id.as_str(), SHARED), (force.as_str(), "true")];
        stage.expose("shop", &[8080], &["node-1", "node-2"], &shared);
        let _product = start(&stage);
        served(&stage).await;
        settled().await;
        let before = groups(&stage);
        stage.cloud.faults().script("CreateVServerGroup", Fault::LostAndHidden(1));
        let ports = json!({"spec": {"ports": [
            {"name": "p8080", "port": 8080, "targetPort": 8000, "protocol": "TCP"},
            {"name": "p8081", "port": 8081, "targetPort": 8001, "protocol": "TCP"},
        ]}});
        stage.cluster.patch("Service", "default", "shop", &ports).unwrap();
        let began = Instant::now();
        while groups(&stage) == before {
            assert!(began.elapsed() < LONG, "no group is made");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stage.cluster.delete("Service", "default", "shop").unwrap();
        settled().await;
        assert!(stage.cluster.get("Service", "default", "shop").is_none());
        assert_eq!(groups(&stage), before - 1, "its groups, both of them, are gone");
    });
}
