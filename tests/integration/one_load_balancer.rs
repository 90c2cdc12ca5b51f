//! Many Services on one load balancer of a user: the cloud carries out one change of it at a time, and refuses others meanwhile.

use std::time::Duration;

use serde_json::json;
use sim::cloud::NetworkListener;
use sim::cluster::Version;
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::{EVERY, HASTE};
use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{Kind, annotate};

const SERVICES: u16 = 60;
/// How long the cloud holds the load balancer for one listener.
const HELD: Duration = Duration::from_millis(200);
const LATENCY: Duration = Duration::from_millis(50);

async fn testbed() -> (Testbed, Product) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.cloud.dials(|dials| {
        dials.latency = LATENCY;
        dials.nlb_job_time = HELD;
        dials.nlb_listeners_lock = true;
    });
    testbed.cloud.edit(|account| account.limits.listeners = usize::from(SERVICES));
    testbed.join(1);
    Kind::Nlb.of_user(&testbed, "nlb-user");
    let quick = "[leader_election]\nenabled = false\n[cloud.quotas]\n\"*\" = 100000\n[nlb]\ndrift_check = \"0s\"\n";
    let product = Product::start(&testbed, EVERY, &format!("{HASTE}{quick}"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    (testbed, product)
}

fn share(testbed: &Testbed, name: &str, port: u16) {
    Kind::Nlb.expose(testbed, name, &[port], &[1]);
    annotate(testbed, name, "id", "nlb-user");
    annotate(testbed, name, "force-override-listeners", "true");
}

#[test]
fn services_on_one_network_load_balancer_take_turns() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = testbed().await;
        let until = async |count: usize| {
            let began = Instant::now();
            // Each change takes a call, and holds the load balancer; beside that the reads of all Services go on together.
            let soon = (HELD + LATENCY) * u32::from(SERVICES) * 3;
            while Kind::Nlb.listeners(&testbed).len() != count {
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(began.elapsed() < soon, "{:?} of {count}", Kind::Nlb.listeners(&testbed).len());
            }
        };
        let names: Vec<String> = (1..=SERVICES).map(|number| format!("s{number}")).collect();
        names.iter().zip(1000..).for_each(|(name, port)| share(&testbed, name, port));
        until(names.len()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        names.iter().for_each(|name| testbed.cluster.delete("Service", "default", name).unwrap());
        until(0).await;
        let refused = testbed.cloud.calls().iter().filter(|call| call.outcome == "Conflict.Lock").count();
        assert_eq!(refused, 0);
    });
}

/// Both see the listener of the user; the second one sees that it is the first one's before it writes.
#[test]
fn two_services_that_take_over_the_same_listener_at_once_do_not_take_it_from_each_other() {
    on_a_clock_of_its_own(0, async {
        let (testbed, _product) = testbed().await;
        testbed.cloud.edit(|account| {
            let mut listener = NetworkListener::default();
            (listener.protocol, listener.port, listener.idle_timeout) = ("TCP".into(), 80, 900);
            (listener.description, listener.status) = ("by hand".into(), "Running".into());
            account.nlb.balancers.get_mut("nlb-user").unwrap().listeners.insert("lsn-user".into(), listener);
        });
        ["one", "two"].into_iter().for_each(|name| share(&testbed, name, 80));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let writes = testbed.cloud.writes();
        let changed = writes.iter().filter(|call| call.action == "UpdateListenerAttribute" && call.effective);
        let marks: Vec<String> = changed.map(|call| json!(call.parameters).to_string()).collect();
        let taken_over = |name: &str| marks.iter().any(|call| call.contains(&format!("k8s.80.TCP.{name}.")));
        assert!(taken_over("one") != taken_over("two"), "{marks:#?}");
    });
}
