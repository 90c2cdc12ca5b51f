//! What keeps an object out of sync for long is told on the object, whatever it is, as long as it lasts and no longer.

use std::collections::BTreeSet;
use std::time::Duration;

use alicloud_ccm::clock;
use alicloud_ccm::telemetry::alarms::{Alarms, SyncState};
use jiff::Timestamp;
use serde_json::{Value, json};
use sim::cloud::{Account, Disk, Fault, PrivateZone, RouteEntry};
use sim::cluster::{Effect, Failure, Match, NodeSpec, Version};
use sim::testbed::{REGION, ROUTE_TABLE, Testbed, VPC, ZONE, instance};

use crate::end_state::{difference, state};
use crate::eventual_consistency::by_pod;
use crate::harness::HASTE;
use crate::in_process::{Product, UNCHECKED, in_parallel, on_a_clock_of_its_own};
use crate::kinds::{self, Kind};
use crate::private_zone::{headless, plain, point_at, put, record};
use crate::service_features::{containers_ready, gate_condition, pod, pod_endpoint};

const MORE: &str = "[leader_election]\nenabled = false\n";

/// Seconds after which a failure is told: the work needs some until it fails for the first time, and half a minute is quiet.
const FIRST_LOOK: u64 = 45;

/// What a controller is given to do while something fails.
#[derive(Clone, Copy, Debug)]
struct Work {
    controllers: &'static [&'static str],
    /// The action of the cloud that the work needs.
    action: &'static str,
    /// The write to the API server that it needs.
    write: (&'static str, &'static str),
    begin: fn(&Testbed),
    /// The object that is then out of sync.
    object: (&'static str, &'static str),
}

const SERVICE: (&str, &str) = ("Service", "web");

const WORK: &[Work] = &[
    Work {
        controllers: &["service"],
        action: "CreateLoadBalancerTCPListener",
        write: ("patch", "services"),
        begin: |testbed| Kind::Clb.expose(testbed, "web", &[80], &[1]),
        object: SERVICE,
    },
    Work {
        controllers: &["service"],
        action: "slb:CreateLoadBalancer",
        write: ("patch", "services/status"),
        begin: |testbed| Kind::Clb.expose(testbed, "web", &[80], &[1]),
        object: SERVICE,
    },
    Work {
        controllers: &["nlb"],
        action: "nlb:CreateListener",
        write: ("patch", "services"),
        begin: |testbed| Kind::Nlb.expose(testbed, "web", &[80], &[1]),
        object: SERVICE,
    },
    Work {
        controllers: &["nlb"],
        action: "nlb:CreateLoadBalancer",
        write: ("patch", "services/status"),
        begin: |testbed| Kind::Nlb.expose(testbed, "web", &[80], &[1]),
        object: SERVICE,
    },
    Work {
        controllers: &["node"],
        action: "DescribeInstances",
        write: ("patch", "nodes"),
        begin: |testbed| drop(testbed.join(2)),
        object: ("Node", "node-2"),
    },
    Work {
        controllers: &["route"],
        action: "CreateRouteEntries",
        write: ("patch", "nodes/status"),
        begin: |testbed| drop(testbed.join(2)),
        object: ("Node", "node-2"),
    },
    Work {
        controllers: &["pvtz", "service"],
        action: "AddZoneRecord",
        write: ("patch", "services"),
        begin: |testbed| Kind::Clb.expose(testbed, "web", &[80], &[1]),
        object: SERVICE,
    },
    Work {
        controllers: &["volume-labels"],
        action: "DescribeDisks",
        write: ("patch", "persistentvolumes"),
        begin: |testbed| testbed.provide("data", "d-1", "cn-hangzhou-i"),
        object: ("PersistentVolume", "data"),
    },
];

/// Name, and what is made of it.
pub(crate) type Named<T> = (&'static str, fn() -> T);

/// One of each kind of failure, none of which has an effect.
const FAULTS: &[Named<Fault>] = &[
    ("throttled", || Fault::code("Throttling.User")),
    ("busy", || Fault::code("Conflict.Lock")),
    ("server error", || Fault::Unavailable),
    ("no answer", || Fault::Drop),
    ("gone", || Fault::code("ResourceNotFound.LoadBalancer")),
    ("exists", || Fault::code("Conflict.SecurityGroup")),
    ("in use", || Fault::code("DependencyViolation")),
    ("quota", || Fault::code("QuotaExceeded.Things")),
    ("capacity", || Fault::code("ResourceNotEnough.Things")),
    ("credential", || Fault::code("InvalidTimeStamp.Expired")),
    ("denied", || Fault::Refuse(403, "Forbidden.RAM".into(), "User not authorized".into())),
    ("rejected", || Fault::code("InvalidParam.Thing")),
    ("bug", || Fault::code("IncompleteSignature")),
];

const WRITES: &[Named<Effect>] = &[
    ("API server: conflict", || Effect::Refuse(Failure::stale("services", "web"))),
    ("API server: error", || Effect::Refuse(Failure::internal_error())),
    ("API server: no answer", || Effect::LoseRequest),
];

/// Events about the object of a kind, as (reason, count, when it was last raised, message).
fn events(testbed: &Testbed, (kind, name): (&str, &str), of: &str) -> Vec<(String, u64, Timestamp, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = testbed.cluster.list("Event").into_iter().filter(|event| {
        let about = &event["involvedObject"];
        about["kind"] == kind && about["name"] == name && event["type"] == of
    });
    all.map(|event| {
        let last = text(&event["lastTimestamp"]).parse().unwrap();
        (text(&event["reason"]), event["count"].as_u64().unwrap(), last, text(&event["message"]))
    })
    .collect()
}

fn is_ready(testbed: &Testbed) -> Option<bool> {
    let service = testbed.cluster.get("Service", "default", "web").unwrap();
    let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "LoadBalancerReady");
    ready.map(|condition| condition["status"] == "True")
}

async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Lets one thing fail for five minutes; says what is not told as it should be.
async fn told(work: Work, begin: impl FnOnce(&Testbed), is_of_cluster: bool, first_look: u64) -> Vec<String> {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    let product = Product::start_with(&testbed, work.controllers, &format!("{HASTE}{MORE}"), &["route.period=1h"]);
    sleep(30).await;
    begin(&testbed);
    (work.begin)(&testbed);
    let mut wrong = Vec::new();
    sleep(first_look).await;
    let told = events(&testbed, work.object, "Warning");
    if told.is_empty() {
        wrong.push(format!("after {first_look} s there is no event"));
    }
    for (reason, .., message) in &told {
        if !message.contains("has been so since ") || !message.contains("retr") {
            wrong.push(format!("{reason} lacks since when or what next: {message}"));
        }
    }
    let has_condition = work.object == SERVICE && work.controllers.len() == 1;
    // Where the status cannot be written, the condition cannot either.
    let is_writable = !is_of_cluster || work.write.1 != "services/status";
    if has_condition && is_writable && is_ready(&testbed) != Some(false) {
        wrong.push(format!("after {first_look} s the condition is {:?}", is_ready(&testbed)));
    }
    let name = if work.object.0 == "Service" { "default/web" } else { work.object.1 };
    let open = product.alarms.objects();
    let open = open.iter().find(|open| open.object == name);
    if open.is_none_or(|open| open.state != SyncState::OutOfSync) {
        wrong.push(format!("after {first_look} s the page shows {open:?}"));
    }
    sleep(300 - first_look).await;
    let told = events(&testbed, work.object, "Warning");
    let cause = |message: &str| {
        message.rsplit_once(" [").map_or(String::new(), |(_, code)| code.split([',', ']']).next().unwrap().to_owned())
    };
    let mut causes: Vec<_> = told.iter().map(|(reason, .., message)| (reason, cause(message))).collect();
    causes.sort_unstable();
    if causes.windows(2).any(|pair| pair[0] == pair[1]) {
        wrong.push(format!("several events tell the same: {told:#?}"));
    }
    let newest = told.iter().max_by_key(|(_, _, last, _)| *last);
    if !newest.is_some_and(|(_, count, last, _)| *count > 1 && clock::now().duration_since(*last).as_secs() < 300) {
        wrong.push(format!("the count does not rise: {told:#?}"));
    }
    sleep(1800).await;
    let told = events(&testbed, work.object, "Warning");
    if !told.iter().any(|(_, _, last, _)| clock::now().duration_since(*last).as_secs() < 600) {
        wrong.push(format!("all are older than ten minutes: {told:#?}"));
    }
    testbed.cloud.faults().clear();
    testbed.cluster.calm();
    // What has been out of sync for long is looked at every five minutes.
    sleep(700).await;
    let ended = events(&testbed, work.object, "Normal");
    if !ended.iter().any(|(reason, ..)| reason == "Resolved") {
        wrong.push(format!("no event withdraws it: {ended:#?}"));
    }
    if product.alarms.objects().iter().any(|open| open.object == name) {
        wrong.push(format!("it is still shown: {:?}", product.alarms.objects()));
    }
    if has_condition && is_ready(&testbed) != Some(true) {
        wrong.push(format!("at the end the condition is {:?}", is_ready(&testbed)));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_lasts_is_told_after_half_a_minute_renewed_while_it_lasts_and_withdrawn_after_it() {
    let cases: Vec<(Work, usize)> =
        WORK.iter().flat_map(|work| (0..FAULTS.len() + WRITES.len()).map(|number| (*work, number))).collect();
    let wrong = in_parallel(cases.len(), move |index| {
        let (work, number) = cases[index];
        let (name, wrong) = match FAULTS.get(number) {
            Some((name, fault)) => {
                // A reconcile that began before the work waits for throttled calls.
                let first_look = if *name == "throttled" { FIRST_LOOK + 15 } else { FIRST_LOOK };
                let begin = |testbed: &Testbed| testbed.cloud.faults().always(work.action, fault());
                (name, on_a_clock_of_its_own(0, told(work, begin, false, first_look)).0)
            }
            None => {
                let (name, effect) = &WRITES[number - FAULTS.len()];
                let (verb, target) = work.write;
                let begin = |testbed: &Testbed| {
                    testbed.cluster.trouble_times(Match::new(verb, target), effect(), usize::MAX);
                };
                (name, on_a_clock_of_its_own(0, told(work, begin, true, FIRST_LOOK)).0)
            }
        };
        let what = if number < FAULTS.len() { work.action } else { work.write.1 };
        let named = |wrong: String| format!("{:?} {what} {name}: {wrong}", work.controllers);
        wrong.into_iter().map(named).collect::<Vec<_>>()
    });
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Takes the source ranges off a Service, or deletes it, while the cloud holds on to its security group for `held`. Gives
/// whether the Service counted as out of sync, the times of the attempts to delete the group, and what was told.
async fn let_go(leaves: bool, held: Duration) -> (bool, Vec<Timestamp>, [Vec<String>; 2]) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.join(1);
    let product = Product::start(&testbed, &["nlb"], &format!("{HASTE}{MORE}"));
    Kind::Nlb.expose(&testbed, "web", &[80], &[1]);
    let ranges = |ranges: Value| json!({"spec": {"loadBalancerSourceRanges": ranges}});
    testbed.cluster.patch("Service", "default", "web", &ranges(json!(["10.0.0.0/8"]))).unwrap();
    sleep(60).await;
    assert_eq!(testbed.cloud.look(|cloud| cloud.security_groups.len()), 1);
    testbed.cloud.dials(|dials| dials.security_group_release = held);
    match leaves {
        true => testbed.cluster.delete("Service", "default", "web").unwrap(),
        false => testbed.cluster.patch("Service", "default", "web", &ranges(Value::Null)).map(drop).unwrap(),
    }
    let mut is_out_of_sync = false;
    for _ in 0..300 {
        sleep(1).await;
        is_out_of_sync |= product.alarms.objects().iter().any(|open| open.state == SyncState::OutOfSync);
    }
    assert_eq!(testbed.cloud.look(|cloud| cloud.security_groups.len()), 0);
    let attempts = testbed.cloud.calls().into_iter().filter(|call| call.action == "DeleteSecurityGroup");
    let told =
        ["Warning", "Normal"].map(|of| events(&testbed, SERVICE, of).into_iter().map(|(.., text)| text).collect());
    (is_out_of_sync, attempts.map(|call| call.time).collect(), told)
}

#[test]
fn a_security_group_that_the_cloud_does_not_let_go_yet_is_work_in_progress_and_tried_less_and_less_often() {
    for leaves in [true, false] {
        let ((is_out_of_sync, attempts, [warnings, notes]), log) =
            on_a_clock_of_its_own(0, let_go(leaves, Duration::from_secs(150)));
        assert!(!is_out_of_sync, "{log}");
        assert_eq!(warnings, [""; 0], "{log}");
        let holds = |text: &&String| text.contains("delete security group") && text.contains("DependencyViolation");
        assert_eq!(notes.iter().filter(holds).count(), 1, "{notes:#?}");
        let gaps: Vec<_> = attempts.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
        assert!((4..=10).contains(&gaps.len()) && gaps[gaps.len() - 1] > 5 * gaps[0].max(1), "{gaps:?}");
    }
}

/// Something in the cloud that keeps an object out of sync, and that no watch of the cluster shows to be gone.
struct Obstacle {
    name: &'static str,
    controllers: &'static [&'static str],
    begin: fn(&Testbed),
    end: fn(&mut Account),
    /// The object that is told.
    object: (&'static str, &'static str),
}

const NODE: (&str, &str) = ("Node", "node-2");

const OBSTACLES: &[Obstacle] = &[
    Obstacle {
        name: "a node without an instance",
        controllers: &["node"],
        begin: |testbed| {
            let spec = NodeSpec::new(NODE.1).provider_id(&format!("{REGION}.{}", instance(2)));
            testbed.cluster.join_node(&spec).unwrap();
        },
        end: |account| {
            account.add_instance(&instance(2), NODE.1, "vsw-j", "192.168.16.2");
        },
        object: NODE,
    },
    Obstacle {
        name: "a route entry of others",
        controllers: &["node", "route"],
        begin: |testbed| {
            testbed.rent(9);
            testbed.cloud.edit(|account| {
                let table = account.route_tables.get_mut(ROUTE_TABLE).unwrap();
                table.entries.insert("10.98.2.0/24".into(), RouteEntry::to_instance("rte-own", &instance(9)));
            });
            testbed.join(2);
        },
        end: |account| drop(account.route_tables.get_mut(ROUTE_TABLE).unwrap().entries.remove("10.98.2.0/24")),
        object: NODE,
    },
    Obstacle {
        name: "a full route table",
        controllers: &["node", "route"],
        begin: |testbed| {
            testbed.cloud.edit(|account| account.limits.routes_per_table = 1);
            testbed.join(2);
        },
        end: |account| account.limits.routes_per_table = 100,
        object: NODE,
    },
    Obstacle {
        name: "two route tables",
        controllers: &["node", "route"],
        begin: |testbed| {
            testbed.cloud.edit(|account| *account = account.clone().with_route_table("vtb-second", VPC));
            testbed.join(2);
        },
        end: |account| drop(account.route_tables.remove("vtb-second")),
        object: NODE,
    },
    Obstacle {
        name: "no disk",
        controllers: &["node", "volume-labels"],
        begin: |testbed| {
            testbed.provide("data", "d-1", "cn-hangzhou-i");
            testbed.cloud.edit(|account| account.disks.clear());
        },
        end: |account| drop(account.disks.insert("d-1".into(), Disk::new(REGION, "cn-hangzhou-i"))),
        object: ("PersistentVolume", "data"),
    },
    Obstacle {
        name: "a record of others",
        controllers: &["pvtz"],
        begin: |testbed| {
            put(testbed, 901, record("web.default.svc", "A", "192.168.9.9", "by hand"));
            plain(testbed, "web", "10.96.7.7");
        },
        end: |account| drop(account.private_zones.get_mut(ZONE.0).unwrap().records.remove(&901)),
        object: SERVICE,
    },
    Obstacle {
        name: "no zone",
        controllers: &["pvtz"],
        begin: |testbed| {
            testbed.cloud.edit(|account| account.private_zones.clear());
            plain(testbed, "web", "10.96.7.7");
        },
        end: |account| drop(account.private_zones.insert(ZONE.0.into(), PrivateZone::new(ZONE.1, VPC))),
        object: ("Node", "pvtz-controller"),
    },
];

#[test]
fn whatever_was_in_the_way_in_the_cloud_is_seen_to_be_gone_within_5_minutes_without_periodic_checks() {
    let unchecked = ["node.period=0s", "route.period=0s", "pvtz.period=0s"];
    let mut wrong = Vec::new();
    for Obstacle { name, controllers, begin, end, object } in OBSTACLES {
        let (said, log) = on_a_clock_of_its_own(0, async {
            let testbed = Testbed::open(Version::NEWEST).await.unwrap();
            testbed.join(1);
            begin(&testbed);
            let more = format!("{UNCHECKED}[pvtz]\nzone_name = \"{}\"\nrecord_types = [\"A\"]\n", ZONE.1);
            let product = Product::start_with(&testbed, controllers, &more, &unchecked);
            sleep(120).await;
            let shown = |alarms: &Alarms| format!("{:?} {:?}", alarms.objects(), alarms.withheld());
            let before = (events(&testbed, *object, "Warning").len(), shown(&product.alarms));
            testbed.cloud.edit(end);
            sleep(301).await;
            (before, shown(&product.alarms))
        });
        let ((told, before), after) = said;
        if told == 0 || before == "[] []" || after != "[] []" {
            wrong.push(format!("{name}: {told} events; before: {before}; after: {after}\n{log}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Something that is done while an action of the cloud fails, after `before` was carried out.
struct Deed {
    name: &'static str,
    controllers: &'static [&'static str],
    before: fn(&Testbed),
    begin: fn(&Testbed),
    /// The object that is then out of sync.
    object: (&'static str, &'static str),
}

fn edit(testbed: &Testbed, patch: &Value) {
    testbed.cluster.patch("Service", "default", "web", patch).unwrap();
}

/// Settings of every kind.
fn edited(testbed: &Testbed) {
    let prefix = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer";
    let annotations = json!({
        format!("{prefix}-name"): "renamed", format!("{prefix}-additional-resource-tags"): "team=web",
        format!("{prefix}-scheduler"): "wlc", format!("{prefix}-delete-protection"): "on",
        format!("{prefix}-modification-protection"): "ConsoleProtection",
    });
    edit(
        testbed,
        &json!({"metadata": {"annotations": annotations}, "spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
    );
}

const DEEDS: &[Deed] = &[
    Deed {
        name: "a node joins",
        controllers: &["node", "route"],
        before: |_| {},
        begin: |testbed| drop(testbed.join(2)),
        object: NODE,
    },
    Deed {
        name: "a node needs its route",
        controllers: &["route"],
        before: |_| {},
        begin: |testbed| drop(testbed.join(2)),
        object: NODE,
    },
    Deed {
        name: "a node that leaves",
        controllers: &["route"],
        before: |testbed| drop(testbed.join(2)),
        begin: |testbed| testbed.cluster.delete("Node", "", NODE.1).unwrap(),
        object: ("Node", "route-controller"),
    },
    Deed {
        name: "an instance that is released",
        controllers: &["node"],
        before: |testbed| drop(testbed.join(2)),
        begin: |testbed| {
            testbed.cloud.release_instance(&instance(2));
            testbed.cluster.set_ready(NODE.1, "Unknown").unwrap();
        },
        object: NODE,
    },
    Deed {
        name: "a Service whose names go",
        controllers: &["pvtz"],
        before: |testbed| plain(testbed, "web", "10.96.7.7"),
        begin: |testbed| testbed.cluster.delete("Service", "default", "web").unwrap(),
        object: ("Node", "pvtz-controller"),
    },
    Deed {
        name: "a name of a Service",
        controllers: &["pvtz"],
        before: |_| {},
        begin: |testbed| plain(testbed, "web", "10.96.7.7"),
        object: SERVICE,
    },
    Deed {
        name: "another address of a Service",
        controllers: &["pvtz"],
        before: |testbed| headless(testbed, "web", &[1]),
        begin: |testbed| point_at(testbed, "web", &[2]),
        object: SERVICE,
    },
    Deed {
        name: "a volume",
        controllers: &["volume-labels"],
        before: |_| {},
        begin: |testbed| testbed.provide("data", "d-1", "cn-hangzhou-i"),
        object: ("PersistentVolume", "data"),
    },
    Deed {
        name: "a new Service",
        controllers: &["service"],
        before: |_| {},
        begin: |testbed| Kind::Clb.expose(testbed, "web", &[80, 443], &[1]),
        object: SERVICE,
    },
    Deed {
        name: "a new Service (NLB)",
        controllers: &["nlb"],
        before: |_| {},
        begin: |testbed| Kind::Nlb.expose(testbed, "web", &[80, 443], &[1]),
        object: SERVICE,
    },
    Deed {
        name: "an edit",
        controllers: &["service"],
        before: |testbed| Kind::Clb.expose(testbed, "web", &[80, 443], &[1]),
        begin: edited,
        object: SERVICE,
    },
    Deed {
        name: "an edit (NLB)",
        controllers: &["nlb"],
        before: |testbed| Kind::Nlb.expose(testbed, "web", &[80, 443], &[1]),
        begin: edited,
        object: SERVICE,
    },
    Deed {
        name: "an edit taken back",
        controllers: &["service"],
        before: |testbed| {
            Kind::Clb.expose(testbed, "web", &[80, 443], &[1]);
            edited(testbed);
        },
        begin: plain_again,
        object: SERVICE,
    },
    Deed {
        name: "an edit taken back (NLB)",
        controllers: &["nlb"],
        before: |testbed| {
            Kind::Nlb.expose(testbed, "web", &[80, 443], &[1]);
            edited(testbed);
        },
        begin: plain_again,
        object: SERVICE,
    },
    Deed {
        name: "fewer ports and other pods",
        controllers: &["service"],
        before: |testbed| Kind::Clb.expose(testbed, "web", &[80, 443], &[1]),
        begin: moved,
        object: SERVICE,
    },
    Deed {
        name: "fewer ports and other pods (NLB)",
        controllers: &["nlb"],
        before: |testbed| Kind::Nlb.expose(testbed, "web", &[80, 443], &[1]),
        begin: moved,
        object: SERVICE,
    },
    Deed {
        name: "a Service that goes",
        controllers: &["service"],
        before: |testbed| Kind::Clb.expose(testbed, "web", &[80, 443], &[1]),
        begin: |testbed| testbed.cluster.delete("Service", "default", "web").unwrap(),
        object: SERVICE,
    },
    Deed {
        name: "a Service that goes (NLB)",
        controllers: &["nlb"],
        before: |testbed| Kind::Nlb.expose(testbed, "web", &[80, 443], &[1]),
        begin: |testbed| testbed.cluster.delete("Service", "default", "web").unwrap(),
        object: SERVICE,
    },
    Deed {
        name: "a pod that waits for its load balancer",
        controllers: &["service"],
        before: |testbed| gated(testbed, Kind::Clb),
        begin: |testbed| containers_ready(testbed, "gated"),
        object: SERVICE,
    },
    Deed {
        name: "a pod that waits for its load balancer (NLB)",
        controllers: &["nlb"],
        before: |testbed| gated(testbed, Kind::Nlb),
        begin: |testbed| containers_ready(testbed, "gated"),
        object: SERVICE,
    },
    Deed {
        name: "a Service that becomes one of the other kind",
        controllers: &["service", "nlb"],
        before: |testbed| Kind::Clb.expose(testbed, "web", &[80, 443], &[1]),
        begin: |testbed| edit(testbed, &json!({"spec": {"type": "ClusterIP"}})),
        object: SERVICE,
    },
];

/// A Service whose only pod waits for its containers, and then for its load balancer.
fn gated(testbed: &Testbed, kind: Kind) {
    by_pod(testbed, kind);
    testbed.cluster.create(pod("gated", true)).unwrap();
    testbed.cluster.set_endpoints("default", "web", &[pod_endpoint(101, "gated").not_ready()]).unwrap();
}

/// Takes back what [`edited`] did.
fn plain_again(testbed: &Testbed) {
    edit(testbed, &json!({"metadata": {"annotations": null}, "spec": {"loadBalancerSourceRanges": null}}));
}

fn moved(testbed: &Testbed) {
    testbed.join(2);
    edit(testbed, &json!({"spec": {"ports": [{"name": "p80", "port": 80, "targetPort": 8000, "protocol": "TCP"}]}}));
    kinds::point_at(testbed, "web", &[2]);
}

impl Deed {
    fn product(&self, testbed: &Testbed) -> Product {
        let more = format!("{UNCHECKED}[pvtz]\nzone_name = \"{}\"\nrecord_types = [\"A\"]\n", ZONE.1);
        Product::start(testbed, self.controllers, &more)
    }

    /// Both worlds before it.
    async fn prepared(&self) -> Testbed {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.join(1);
        (self.before)(&testbed);
        let _product = self.product(&testbed);
        sleep(60).await;
        testbed
    }

    /// Does it while something fails. Gives how that went, and what was asked.
    async fn done(&self, start: &Testbed, fail: impl FnOnce(&Testbed)) -> (Course, BTreeSet<Asked>) {
        let testbed = start.fork().await.unwrap();
        let product = self.product(&testbed);
        sleep(60).await;
        let before = (testbed.cloud.calls().len(), testbed.cluster.calls().len());
        fail(&testbed);
        (self.begin)(&testbed);
        sleep(120).await;
        let calls = testbed.cloud.calls().into_iter().skip(before.0).filter(|call| call.product != "metadata");
        let requests = testbed.cluster.calls().into_iter().skip(before.1);
        let requests = requests.filter(|it| !["list", "watch"].contains(&it.verb) && it.resource != "events");
        let asked = calls.map(|call| Asked::Cloud(call.action));
        let asked = asked.chain(requests.map(|request| Asked::Cluster(request.verb.to_string(), request.target())));
        let asked = asked.collect();
        (Course::ends(&testbed, &product, self.object).await, asked)
    }
}

/// How something went while a request failed, and after it failed no more.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Both worlds, and what the product shows, while the request fails and 5 minutes after it fails no more.
    meanwhile: Value,
    afterwards: Value,
    /// Whether an event of the object warns meanwhile.
    is_told: bool,
}

impl Course {
    /// Looks at both worlds now, lets no request fail any more, and looks again 5 minutes later.
    pub(crate) async fn ends(testbed: &Testbed, product: &Product, object: (&str, &str)) -> Self {
        let look = || {
            let shown: Vec<String> = product.alarms.objects().into_iter().map(|report| report.message).collect();
            let withheld = format!("{:?}", product.alarms.withheld());
            let gate = gate_condition(testbed, "gated");
            json!({ "worlds": state(testbed), "gate": gate, "shown": shown, "withheld": withheld })
        };
        let (meanwhile, is_told) = (look(), !events(testbed, object, "Warning").is_empty());
        testbed.cloud.faults().clear();
        testbed.cluster.calm();
        sleep(301).await;
        Self { meanwhile, afterwards: look(), is_told }
    }

    /// What differs from the course without failures although it must not.
    pub(crate) fn wrong(&self, undisturbed: &Self) -> Vec<String> {
        let silent = !self.is_told && self.meanwhile != undisturbed.meanwhile;
        let silent = silent.then_some(("no event tells", &undisturbed.meanwhile, &self.meanwhile));
        let lasts = self.afterwards != undisturbed.afterwards;
        let lasts = lasts.then_some(("it lasts", &undisturbed.afterwards, &self.afterwards));
        let all = silent.into_iter().chain(lasts);
        all.map(|(what, wanted, found)| format!("{what}: {}", difference(wanted, found))).collect()
    }
}

/// What the product asks of the cloud, or of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    /// An action.
    Cloud(String),
    /// A verb and what it is for.
    Cluster(String, String),
}

/// How the cloud refuses an action.
pub(crate) const REFUSALS: [Named<Fault>; 3] = [
    ("denied", || Fault::Refuse(403, "Forbidden.RAM".into(), "User not authorized".into())),
    ("server error", || Fault::Unavailable),
    ("rejected", || Fault::code("InvalidParam.Thing")),
];

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_cloud_or_the_api_server_refuses_is_told_and_done_within_5_minutes_after_it_is_accepted() {
    let failures: [Named<Failure>; 2] = [
        ("server error", Failure::internal_error),
        ("refused", || Failure::refused("Thing", "web", "a webhook says no")),
    ];
    let results = in_parallel(DEEDS.len(), move |index| {
        let deed = &DEEDS[index];
        let (start, _) = on_a_clock_of_its_own(0, deed.prepared());
        let ((undisturbed, asked), _) = on_a_clock_of_its_own(0, deed.done(&start, |_| {}));
        let mut wrong = Vec::new();
        let mut judge = |what: &Asked, name: &str, fail: &dyn Fn(&Testbed)| {
            let ((course, _), log) = on_a_clock_of_its_own(0, deed.done(&start, fail));
            let said = |text| format!("{}, {what:?} {name}: {text}\n{log}", deed.name);
            wrong.extend(course.wrong(&undisturbed).into_iter().map(said));
        };
        for what in &asked {
            match what {
                Asked::Cloud(action) => {
                    for (name, fault) in REFUSALS {
                        judge(what, name, &|testbed| testbed.cloud.faults().always(action, fault()));
                    }
                }
                Asked::Cluster(verb, target) => {
                    for (name, failure) in failures {
                        judge(what, name, &|testbed| {
                            let effect = Effect::Refuse(failure());
                            testbed.cluster.trouble_times(Match::new(verb, target), effect, usize::MAX);
                        });
                    }
                }
            }
        }
        (wrong, asked)
    });
    let (wrong, asked): (Vec<_>, Vec<_>) = results.await.into_iter().unzip();
    assert!(asked.iter().all(|asked| !asked.is_empty()), "{asked:?}");
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
