//! Answers that are not the vendor's, such as a page of a proxy: an event tells of them while they last, and what waits for
//! them goes on soon after they end.

use std::time::Duration;

use sim::cloud::{ANY, Fault};
use sim::cluster::Version;
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::in_process::{Product, on_a_clock_of_its_own};
use crate::kinds::{Kind, point_at};

const MORE: &str = "[leader_election]\nenabled = false\n";
const MINUTE: Duration = Duration::from_secs(60);
/// The fifth retry with a long backoff comes just before its end, and the sixth minutes later.
const OUTAGE: Duration = Duration::from_secs(455);

#[test]
fn backends_follow_within_a_minute_after_answers_can_be_read_again() {
    let page = Fault::Refuse(403, String::new(), String::new());
    for fault in [Fault::Garbled, Fault::GatewayPage, Fault::Truncated, page] {
        for kind in Kind::BOTH {
            on_a_clock_of_its_own(0, backends_follow_after(kind, &fault));
        }
    }
}

async fn backends_follow_after(kind: Kind, fault: &Fault) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    (1..=3).for_each(|number| drop(testbed.join(number)));
    kind.expose(&testbed, "web", &[80], &[1, 2]);
    let _product = Product::start(&testbed, &["service", "nlb"], MORE);
    tokio::time::sleep(2 * MINUTE).await;
    assert!(kind.all_lead_to(&testbed, &[1, 2]));
    testbed.cloud.faults().always(ANY, fault.clone());
    point_at(&testbed, "web", &[2, 3]);
    tokio::time::sleep(OUTAGE).await;
    let events = testbed.cluster.list("Event");
    let told = events.iter().any(|event| event["type"] == "Warning" && event["involvedObject"]["name"] == "web");
    assert!(told, "{kind:?} {fault:?}: no event tells of it");
    testbed.cloud.faults().clear();
    let began = Instant::now();
    while !kind.all_lead_to(&testbed, &[2, 3]) {
        tokio::time::sleep(MINUTE / 60).await;
        assert!(began.elapsed() < MINUTE + MINUTE / 6, "{kind:?} {fault:?}: {:?}", kind.groups(&testbed));
    }
}
