//! What the scenario shows of the controllers that are not for load balancers.

use std::time::Instant;

use serde_json::json;
use sim::cluster::Endpoint;
use sim::testbed::{Testbed, ZONE};

use super::scenario::{calls, events, forget, say, table, wait};

/// A volume gets the labels and the node affinity of its disk.
pub(crate) async fn volume(testbed: &Testbed) -> Result<(), String> {
    forget(testbed);
    let began = Instant::now();
    testbed.provide("data", "d-play", "cn-hangzhou-i");
    let volume = || testbed.cluster.get("PersistentVolume", "", "data").unwrap_or_default();
    wait(testbed, "the volume is labelled", |_| !volume()["spec"]["nodeAffinity"].is_null()).await?;
    let volume = volume();
    let label = |key: &str| volume["metadata"]["labels"][key].as_str().unwrap_or("-").to_owned();
    let requirement = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    let affinity = format!("{} in {}", requirement["key"].as_str().unwrap_or("-"), requirement["values"]);
    let row =
        vec!["data".to_owned(), label("topology.kubernetes.io/zone"), label("topology.kubernetes.io/region"), affinity];
    table(&["VOLUME", "ZONE", "REGION", "NODE AFFINITY"], vec![row]);
    events(testbed, "PersistentVolume", "data");
    say("");
    calls(testbed, began.elapsed());
    Ok(())
}

/// The records of a headless Service follow its pods.
pub(crate) async fn names(testbed: &Testbed) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"clusterIP": "None", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]},
    });
    testbed.cluster.create(service).map_err(|failure| format!("{failure:?}"))?;
    for pods in [[21, 22], [21, 23]] {
        let began = Instant::now();
        let pod = |last: u8| Endpoint::ready([10, 98, 1, last].into(), "node-1");
        testbed.cluster.set_endpoints("default", "db", &pods.map(pod)).map_err(|failure| format!("{failure:?}"))?;
        let address = format!("10.98.1.{}", pods[1]);
        wait(testbed, "the name leads to the pods", |testbed| {
            records(testbed).iter().any(|[name, _, value]| name == "db.default.svc" && *value == address)
        })
        .await?;
        let rows = records(testbed).into_iter().map(Vec::from).collect();
        table(&[&format!("NAME IN {}", ZONE.1), "TYPE", "VALUE"], rows);
        calls(testbed, began.elapsed());
    }
    Ok(())
}

/// The records of the private zone: name, type, value.
fn records(testbed: &Testbed) -> Vec<[String; 3]> {
    testbed.cloud.look(|account| {
        let zone = account.private_zones.get(ZONE.0).map(|zone| zone.records.values().cloned().collect::<Vec<_>>());
        let mut rows: Vec<_> =
            zone.unwrap_or_default().into_iter().map(|record| [record.name, record.kind, record.value]).collect();
        rows.sort();
        rows
    })
}
