//! No edit of the configuration leaves a trace: after it, both worlds are as if the file had always said so. The table says
//! what stays nevertheless, and why.

use std::sync::Arc;
use std::time::Duration;

use alicloud_ccm::config::keys;
use alicloud_ccm::plan::loadbalancer::annotations::PREFIX;
use serde_json::{Value, json};
use sim::cloud::PrivateZone;
use sim::cluster::{Endpoint, Version};
use sim::testbed::{Testbed, VPC, instance};

use crate::end_state::{difference, state};
use crate::harness::EVERY;
use crate::in_process::{Product, in_parallel, on_a_clock_of_its_own};
use crate::kinds::Kind;

/// Every pass and every comparison has come by then.
const SETTLED: Duration = Duration::from_secs(700);

const MORE: &str = "[leader_election]\nenabled = false\n[cloud.quotas]\n\"*\" = 100000\n";

/// What is stated unless an edit states it.
const BEFORE: [(&str, &str); 2] =
    [("route.table_ids", "[\"vtb-play\"]"), ("pvtz.record_types", "[\"A\",\"AAAA\",\"CNAME\",\"SRV\"]")];

/// Keys with other values; parts of the paths of what stays as it was, and why.
type Edit = (&'static [(&'static str, &'static str)], &'static [&'static str], &'static str);

const MADE: &str = "a default is for load balancers that are made later";

const EDITS: &[Edit] = &[
    (
        &[("node.disable_source_dest_check", "false")],
        &["/source_dest_check"],
        "a check that is off is not switched on again: others may need it off",
    ),
    (&[("node.shutdown_taint", "false")], &[], ""),
    (&[("node.ipv6", "true")], &[], ""),
    (
        &[("route.cluster_cidrs", "[\"10.98.1.0/24\"]")],
        &["/cloud/routes", "/nodes/"],
        "an entry outside is never touched, and its node keeps its condition",
    ),
    (&[("route.table_ids", "[\"vtb-play\",\"vtb-second\"]")], &["/vtb-second"], "`gc` removes what is in other tables"),
    (&[("route.table_ids", "[\"vtb-second\"]")], &["/vtb-play", "/vtb-second"], "the same"),
    (&[("service.exclude_masters", "false")], &[], ""),
    (&[("service.ipv6", "true")], &["/load_balancers/", "/services/", "/records"], "what serves stays"),
    (
        &[("service.local_health_check", "true")],
        &["/HealthCheckHttpCode", "/HealthCheckMethod", "/HealthCheckURI"],
        "settings of HTTP checks are sent only with checks by HTTP",
    ),
    (&[("service.type_annotation", "true")], &[], ""),
    (
        &[("service.disable_public", "true")],
        &["load_balancers", "/server_groups", "/services/", "/records"],
        "what serves stays, and an event tells it",
    ),
    (&[("service.backend_batch_size", "1")], &[], ""),
    (&[("service.defaults.address_type", "intranet")], &["/address_type", "/network_type", "/vpc", "/vswitch"], MADE),
    (&[("service.defaults.instance_charge_type", "PayBySpec")], &["/instance_charge_type", "/spec"], MADE),
    (
        &[("service.defaults.instance_charge_type", "PayBySpec"), ("service.defaults.spec", "slb.s2.small")],
        &["/instance_charge_type", "/spec"],
        MADE,
    ),
    (&[("service.defaults.delete_protection", "false")], &["/delete_protection"], MADE),
    (
        &[("service.defaults.modification_protection", "false")],
        &["/modification_protection", "/modification_reason"],
        MADE,
    ),
    (&[("service.defaults.scheduler", "wlc")], &["/scheduler"], MADE),
    (&[("service.defaults.tags", "{team=\"blue\"}")], &["/tags/team"], MADE),
    (&[("nlb.defaults.address_type", "intranet")], &["/address_type", "/public_ip"], MADE),
    (&[("nlb.defaults.delete_protection", "false")], &["/deletion_protection"], MADE),
    (&[("nlb.defaults.modification_protection", "false")], &["/modification_protection", "/modification_reason"], MADE),
    (&[("nlb.defaults.tags", "{team=\"blue\"}")], &["/tags/team"], MADE),
    (&[("cloud.resource_group_id", "rg-other")], &["/resource_group"], MADE),
    (
        &[("cloud.vswitches", "[\"cn-hangzhou-j:vsw-j\"]")],
        &["/master_zone", "/slave_zone", "/vswitch", "/zones/"],
        MADE,
    ),
    (&[("volume_labels.node_affinity", "false")], &["/nodeAffinity"], "nobody can change it"),
    (&[("pvtz.zone_name", "other.play")], &["/records"], "records in the other zone stay"),
    (&[("pvtz.ttl", "30")], &[], ""),
    (&[("pvtz.record_types", "[\"A\"]")], &[], ""),
    (&[("pvtz.namespaces", "[\"kube-system\"]")], &[], ""),
    (&[("pvtz.nodes", "true")], &[], ""),
];

/// Keys of the same sections that say how soon, how often or how much at once, or that decide about something that vanished.
const BOUNDS: &[&str] = &[
    "aggregation",
    "batch_size",
    "concurrency",
    "discover",
    "drift_check",
    "drift_reads",
    "hand_over_grace",
    "period",
    "removal_grace",
    "removal_interval",
    "removal_limit",
    "removal_window",
    "remove_released",
    // Without a size, a zone or a bandwidth of their own, load balancers do not use them.
    "bandwidth",
    "internet_charge_type",
    "master_zone",
    "slave_zone",
    // Either names the zone.
    "zone_id",
    // Random lives switch it, with pods that have interfaces.
    "eni_backends",
];

/// What the command line states with this edit.
fn stated(edit: &[(&str, &str)]) -> Vec<String> {
    let before = BEFORE.iter().filter(|(key, _)| edit.iter().all(|(other, _)| other != key));
    before.chain(edit).map(|(key, value)| format!("{key}={value}")).collect()
}

async fn world() -> Testbed {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.cloud.edit(|cloud| {
        *cloud = std::mem::take(cloud).with_route_table("vtb-second", VPC);
        cloud.private_zones.insert("zone-2".into(), PrivateZone::new("other.play", VPC));
    });
    (1..=4).for_each(|number| drop(testbed.join(number)));
    let master = json!({"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}});
    testbed.cluster.patch("Node", "", "node-4", &master).unwrap();
    testbed.cloud.stop_instance(&instance(3));
    testbed.cluster.set_ready("node-3", "Unknown").unwrap();
    let nodes = ["node-1", "node-2", "node-4"];
    let annotated = [("inside", "address-type", "intranet"), ("typed", "type", "nlb"), ("six", "ip-version", "ipv6")];
    testbed.expose("classic", &[80], &nodes, &[]);
    for (name, key, value) in annotated {
        testbed.expose(name, &[80], &nodes, &[(&format!("{PREFIX}{key}"), value)]);
    }
    Kind::Clb.expose(&testbed, "local", &[80], &[1, 2]);
    Kind::Nlb.expose(&testbed, "network", &[80], &[1, 2]);
    testbed.provide("disk", "d-1", "cn-hangzhou-i");
    for namespace in ["default", "kube-system"] {
        let metadata = json!({"name": "db", "namespace": namespace});
        let port = json!({"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"});
        let spec = json!({"clusterIP": "None", "selector": {"app": "db"}, "ports": [port]});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        testbed.cluster.create(service).unwrap();
        let endpoint = Endpoint::ready([10, 98, 1, 11].into(), "node-1");
        testbed.cluster.set_endpoints(namespace, "db", &[endpoint]).unwrap();
    }
    testbed
}

/// How a world ends in which the file says this, one after the other: by a live edit, or by one while nothing runs.
fn end(start: &Testbed, files: &[&[(&str, &str)]], is_live: bool) -> Value {
    let play = async {
        let testbed = start.fork().await.unwrap();
        let mut product: Option<Product> = None;
        for file in files {
            let set = stated(file);
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            match product.as_ref().filter(|_| is_live) {
                Some(running) => running.reconfigure(&testbed, EVERY, MORE, &set),
                None => {
                    drop(product.take());
                    product = Some(Product::start_with(&testbed, EVERY, MORE, &set));
                }
            }
            tokio::time::sleep(SETTLED).await;
        }
        // A taint of the time before does not outlast what it was for.
        testbed.cloud.start_instance(&instance(3));
        testbed.cluster.set_ready("node-3", "True").unwrap();
        tokio::time::sleep(SETTLED).await;
        state(&testbed)
    };
    on_a_clock_of_its_own(1, play).0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_configuration_ends_as_if_the_file_had_always_said_so() {
    let start = Arc::new(world().await);
    let world = start.clone();
    let fresh = in_parallel(EDITS.len() + 1, move |at| end(&world, &[EDITS.get(at).map_or(&[], |edit| edit.0)], true));
    let fresh = Arc::new(fresh.await);
    let found = in_parallel(EDITS.len(), move |at| {
        let ((edit, stays, _), first) = (EDITS[at], &fresh[EDITS.len()]);
        let histories =
            [(vec![&[], edit], &fresh[at], true), (vec![edit, &[]], first, false), (vec![&[], edit, &[]], first, true)];
        let differs = histories.iter().flat_map(|(files, expected, is_live)| {
            let differs = difference(expected, &end(&start, files, *is_live));
            let is_left = |line: &&str| !stays.iter().any(|part| line.split(": ").next().unwrap().contains(part));
            differs.lines().filter(is_left).map(|line| format!("{files:?}: {line}")).collect::<Vec<_>>()
        });
        differs.collect::<Vec<_>>().join("\n")
    });
    let found: Vec<String> = found.await.into_iter().filter(|told| !told.is_empty()).collect();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

#[test]
fn every_key_that_changes_what_is_wanted_is_edited() {
    let sections = ["node.", "route.", "service.", "nlb.", "pvtz.", "volume_labels."];
    let is_known = |key: &String| {
        let name = key.rsplit('.').next().unwrap();
        BOUNDS.contains(&name) || EDITS.iter().any(|(edit, ..)| edit.iter().any(|(edited, _)| edited == key))
    };
    let unknown: Vec<String> = keys()
        .into_iter()
        .filter(|key| sections.iter().any(|section| key.starts_with(section)) && !is_known(key))
        .collect();
    assert_eq!(unknown, [""; 0]);
}
