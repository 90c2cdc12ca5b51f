//! Create, replace, patch, delete.

use serde_json::{Value, json};

use super::{MAPS, answer, call, config_map, get, names, send};
use crate::cluster::{Cluster, NodeSpec, Version};

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

#[tokio::test]
async fn a_replace_needs_the_current_version() {
    let cluster = Cluster::new(Version::NEWEST);
    let (code, mut map) = call(&cluster, "POST", MAPS, Some(&config_map("a"))).await;
    assert_eq!(code, 201);
    for assigned in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(map["metadata"][assigned].is_string(), "{assigned}");
    }
    let stale = map.clone();
    map["data"] = json!({ "k": "v" });
    let (code, changed) = call(&cluster, "PUT", &path("a"), Some(&map)).await;
    assert_eq!((code, &changed["data"]["k"]), (200, &json!("v")));

    let (code, refused) = call(&cluster, "PUT", &path("a"), Some(&stale)).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        refused["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
    assert_eq!(refused["details"], json!({ "name": "a", "kind": "configmaps" }));

    let (_, same) = call(&cluster, "PUT", &path("a"), Some(&changed)).await;
    assert_eq!(same["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"], "nothing was written");
}

#[tokio::test]
async fn a_patch_may_name_version_and_uid() {
    let cluster = Cluster::new(Version::NEWEST);
    call(&cluster, "POST", MAPS, Some(&config_map("a"))).await;
    let patch = |metadata: Value| json!({ "metadata": metadata, "data": { "k": "v" } });
    for wrong in [json!({ "resourceVersion": "1" }), json!({ "uid": "other" })] {
        let (code, _) = call(&cluster, "PATCH", &path("a"), Some(&patch(wrong))).await;
        assert_eq!(code, 409);
    }
    let (code, _) = call(&cluster, "PATCH", &path("a"), Some(&patch(json!({})))).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn names_are_made_and_checked() {
    let cluster = Cluster::new(Version::NEWEST);
    let generated = json!({ "metadata": { "generateName": "x-" } });
    let (_, one) = call(&cluster, "POST", MAPS, Some(&generated)).await;
    let (_, two) = call(&cluster, "POST", MAPS, Some(&generated)).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);

    let (code, refused) = call(&cluster, "POST", MAPS, Some(&json!({ "metadata": { "name": name } }))).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("AlreadyExists")));
    let (code, refused) = call(&cluster, "POST", MAPS, Some(&config_map("Upper"))).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("metadata.name")));
    let (code, refused) = call(&cluster, "POST", "/api/v1/namespaces/none/configmaps", Some(&config_map("a"))).await;
    assert_eq!((code, &refused["message"]), (404, &json!("namespaces \"none\" not found")));
}

#[tokio::test]
async fn a_put_makes_what_is_not_there_unless_it_means_one_that_was() {
    let cluster = Cluster::new(Version::NEWEST);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    let lease = |metadata: Value| {
        let mut lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata });
        lease["metadata"]["name"] = "a".into();
        lease
    };
    let (code, refused) = call(&cluster, "PUT", leases, Some(&lease(json!({ "uid": "gone" })))).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
    let (code, _) = call(&cluster, "PUT", leases, Some(&lease(json!({ "resourceVersion": "77" })))).await;
    assert_eq!(code, 201, "the version does not count");
    let (code, _) = call(&cluster, "PUT", &path("a"), Some(&config_map("a"))).await;
    assert_eq!(code, 404, "not every kind");
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_gone() {
    let cluster = Cluster::new(Version::NEWEST);
    let mut map = config_map("a");
    map["metadata"]["finalizers"] = json!(["example.com/x"]);
    call(&cluster, "POST", MAPS, Some(&map)).await;
    let (code, marked) = call(&cluster, "DELETE", &path("a"), None).await;
    assert_eq!((code, &marked["kind"]), (200, &json!("ConfigMap")));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());

    let (_, again) = call(&cluster, "DELETE", &path("a"), None).await;
    assert_eq!(again, marked, "a second deletion changes nothing");

    let (code, _) = call(&cluster, "PATCH", &path("a"), Some(&json!({ "metadata": { "finalizers": null } }))).await;
    assert_eq!(code, 200);
    assert_eq!(get(&cluster, &path("a")).await.0, 404);
}

#[tokio::test]
async fn deletions_have_preconditions() {
    let cluster = Cluster::new(Version::NEWEST);
    let (_, map) = call(&cluster, "POST", MAPS, Some(&config_map("a"))).await;
    for wrong in [json!({ "uid": "other" }), json!({ "resourceVersion": "1" })] {
        let (code, _) = call(&cluster, "DELETE", &path("a"), Some(&json!({ "preconditions": wrong }))).await;
        assert_eq!(code, 409);
    }
    let right = json!({ "preconditions": { "uid": map["metadata"]["uid"] } });
    let (code, status) = call(&cluster, "DELETE", &path("a"), Some(&right)).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    let (code, missing) = call(&cluster, "DELETE", &path("a"), None).await;
    assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let cluster = Cluster::new(Version::NEWEST);
    for name in ["a", "b"] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({ "name": name });
        call(&cluster, "POST", MAPS, Some(&map)).await;
    }
    call(&cluster, "DELETE", &format!("{MAPS}?labelSelector=name%3Da"), None).await;
    assert_eq!(names(&get(&cluster, MAPS).await.1), ["b"]);
}

#[tokio::test]
async fn status_and_specification_are_written_apart() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.add_node(&NodeSpec::new("a")).unwrap();
    let both = json!({
        "spec": { "unschedulable": true },
        "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] },
    });
    let (_, node) = call(&cluster, "PATCH", "/api/v1/nodes/a", Some(&both)).await;
    assert_eq!(
        (&node["spec"]["unschedulable"], &node["status"]["addresses"][0]["type"]),
        (&json!(true), &json!("Hostname"))
    );

    let both = json!({
        "spec": { "unschedulable": null },
        "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] },
    });
    let (_, node) = call(&cluster, "PATCH", "/api/v1/nodes/a/status", Some(&both)).await;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["status"]["addresses"][1], json!({ "type": "InternalIP", "address": "10.0.0.1" }));
    assert_eq!(get(&cluster, &format!("{MAPS}/a/status")).await.0, 404, "no status, no subresource");
}

#[tokio::test]
async fn a_provider_id_stays() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.add_node(&NodeSpec::new("a")).unwrap();
    let set = |id: &str| json!({ "spec": { "providerID": id } });
    assert_eq!(call(&cluster, "PATCH", "/api/v1/nodes/a", Some(&set("x.y"))).await.0, 200);
    let (code, refused) = call(&cluster, "PATCH", "/api/v1/nodes/a", Some(&set("x.z"))).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "Node \"a\" is invalid: spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"
    );
}

#[tokio::test]
async fn ip_mode_is_filled_in_where_it_exists() {
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
    let services = "/api/v1/namespaces/default/services";
    for (version, ingress) in [
        (Version::V1_24, json!([{ "ip": "1.2.3.4" }])),
        (Version::V1_30, json!([{ "ip": "1.2.3.4", "ipMode": "VIP" }])),
    ] {
        let cluster = Cluster::new(version);
        call(&cluster, "POST", services, Some(&service)).await;
        let (_, written) = call(&cluster, "PATCH", &format!("{services}/web/status"), Some(&status)).await;
        assert_eq!(written["status"]["loadBalancer"]["ingress"], ingress, "{version}");
    }
}

#[tokio::test]
async fn leases_insist_on_a_version() {
    let cluster = Cluster::new(Version::NEWEST);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({ "metadata": { "name": "ccm" }, "spec": { "holderIdentity": "a" } });
    assert_eq!(call(&cluster, "POST", leases, Some(&lease)).await.0, 201);
    let (code, refused) = call(&cluster, "PUT", &format!("{leases}/ccm"), Some(&lease)).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("metadata.resourceVersion")));
    assert_eq!(refused["details"]["group"], "coordination.k8s.io");
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let cluster = Cluster::new(Version::NEWEST);
    let before = cluster.resource_version();
    let (code, map) = call(&cluster, "POST", &format!("{MAPS}?dryRun=All"), Some(&config_map("a"))).await;
    assert_eq!((code, &map["metadata"]["name"]), (201, &json!("a")));
    assert_eq!(cluster.resource_version(), before);
}

#[tokio::test]
async fn server_side_apply_from_1_16() {
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": "v" } });
    let apply = async |cluster: &Cluster, query: &str| {
        let uri = format!("{MAPS}/a{query}");
        let request =
            http::Request::builder().method("PATCH").uri(uri).header("content-type", "application/apply-patch+yaml");
        answer(send(cluster, request, Some(&map)).await.unwrap()).await.0
    };
    assert_eq!(apply(&Cluster::new(Version::V1_11), "?fieldManager=x").await, 415);
    let cluster = Cluster::new(Version::V1_16);
    assert_eq!(apply(&cluster, "").await, 422);
    assert_eq!(apply(&cluster, "?fieldManager=x").await, 201);
    assert_eq!(apply(&cluster, "?fieldManager=x").await, 200);
}

#[tokio::test]
async fn endpoint_slices_are_one_object_in_two_versions() {
    let cluster = Cluster::new(Version::V1_24);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1beta1",
        "kind": "EndpointSlice",
        "metadata": { "name": "web-1" },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.1"], "topology": { "kubernetes.io/hostname": "a" } }],
    });
    let path = |version: &str| format!("/apis/discovery.k8s.io/{version}/namespaces/default/endpointslices");
    assert_eq!(call(&cluster, "POST", &path("v1beta1"), Some(&slice)).await.0, 201);
    let (_, newer) = get(&cluster, &format!("{}/web-1", path("v1"))).await;
    assert_eq!(newer["apiVersion"], "discovery.k8s.io/v1");
    assert_eq!(newer["endpoints"][0]["nodeName"], "a");
    let (code, _) = call(&cluster, "POST", &path("v1"), Some(&slice)).await;
    assert_eq!(code, 400, "a body of another version");
}

#[tokio::test]
async fn bodies_that_cannot_be_decoded_are_refused() {
    let cluster = Cluster::new(Version::NEWEST);
    let labels = json!({ "metadata": { "name": "a", "labels": { "n": 1 } } });
    assert_eq!(call(&cluster, "POST", MAPS, Some(&labels)).await.0, 400);
    let protobuf =
        http::Request::builder().method("POST").uri(MAPS).header("content-type", "application/vnd.kubernetes.protobuf");
    assert_eq!(answer(send(&cluster, protobuf, Some(&config_map("a"))).await.unwrap()).await.0, 415);
    let plain = http::Request::builder().method("PATCH").uri(path("a")).header("content-type", "application/json");
    assert_eq!(answer(send(&cluster, plain, Some(&config_map("a"))).await.unwrap()).await.0, 415);
}
