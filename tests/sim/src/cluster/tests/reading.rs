//! Get, list, tables, discovery.

use http::Request;
use serde_json::{Value, json};

use super::{MAPS, answer, config_map, get, names, send};
use crate::cluster::{Cluster, NodeSpec, Version};

fn with_maps(version: Version, count: usize) -> Cluster {
    let cluster = Cluster::new(version);
    for n in 0..count {
        cluster.create(config_map(&format!("m{n}"))).unwrap();
    }
    cluster
}

#[tokio::test]
async fn a_list_in_chunks_is_of_one_moment() {
    let cluster = with_maps(Version::NEWEST, 3);
    let (_, first) = get(&cluster, &format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["m0", "m1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);

    cluster.create(config_map("m15")).unwrap();
    cluster.delete("ConfigMap", "default", "m2").unwrap();
    let next = format!("{MAPS}?limit=2&continue={}", first["metadata"]["continue"].as_str().unwrap());
    let (_, second) = get(&cluster, &next).await;
    assert_eq!(names(&second), ["m2"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"].get("continue").is_none());

    cluster.compact();
    let (code, expired) = get(&cluster, &next).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
}

#[tokio::test]
async fn what_a_resource_version_means_for_a_list() {
    let cluster = with_maps(Version::NEWEST, 2);
    let old = cluster.resource_version();
    cluster.create(config_map("m9")).unwrap();
    let list = async |query: String| get(&cluster, &format!("{MAPS}?{query}")).await;

    assert_eq!(names(&list("resourceVersion=0&limit=1".into()).await.1).len(), 3, "the cache knows no limit");
    assert_eq!(names(&list(format!("resourceVersion={old}")).await.1).len(), 3, "not older than");
    let exact = format!("resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(names(&list(exact.clone()).await.1).len(), 2);

    let (code, future) = list("resourceVersion=999999".into()).await;
    assert_eq!((code, &future["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    assert_eq!(list("resourceVersion=x".into()).await.0, 400);
    cluster.compact();
    assert_eq!(list(exact).await.0, 410);
}

#[tokio::test]
async fn old_servers_send_everything_at_once() {
    let cluster = with_maps(Version::V1_8, 3);
    let (_, list) = get(&cluster, &format!("{MAPS}?limit=1")).await;
    assert_eq!(names(&list).len(), 3);
}

#[tokio::test]
async fn lists_are_selected_and_scoped() {
    let cluster = with_maps(Version::NEWEST, 2);
    let mut other = config_map("m0");
    other["metadata"]["namespace"] = "kube-system".into();
    cluster.create(other).unwrap();
    assert_eq!(names(&get(&cluster, "/api/v1/configmaps?fieldSelector=metadata.name%3Dm0").await.1), ["m0", "m0"]);
    assert_eq!(names(&get(&cluster, &format!("{MAPS}?fieldSelector=metadata.name!=m0")).await.1), ["m1"]);
    assert_eq!(get(&cluster, &format!("{MAPS}?fieldSelector=data.x=1")).await.0, 400);
}

#[tokio::test]
async fn lists_can_be_tables_or_metadata() {
    let cluster = Cluster::new(Version::NEWEST);
    cluster.add_node(&NodeSpec::new("a").internal_ip("10.0.0.1")).unwrap();
    let list = async |accept: &str| {
        let request = Request::builder().uri("/api/v1/nodes").header("accept", accept);
        answer(send(&cluster, request, None).await.unwrap()).await
    };
    let (_, table) = list("application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await;
    let headings: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(headings[..6], ["Name", "Status", "Roles", "Age", "Version", "Internal-IP"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("a"), json!("Ready"), json!("<none>")]);
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "a");

    let (_, metadata) = list("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").await;
    assert_eq!(metadata["kind"], "PartialObjectMetadataList");
    assert!(metadata["items"][0].get("spec").is_none());
    assert_eq!(list("application/vnd.kubernetes.protobuf").await.0, 406);
}

#[tokio::test]
async fn discovery_tells_what_the_version_has() {
    let groups = async |version: Version| {
        let (_, list) = get(&Cluster::new(version), "/apis").await;
        let versions =
            list["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap().clone());
        versions.map(|version| version["groupVersion"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Every version reviews tokens and has bindings.
    let with = |named: &[&str]| {
        let always = ["authentication.k8s.io/v1", "authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1"];
        let mut all: Vec<String> = named.iter().chain(&always).map(|name| (*name).to_owned()).collect();
        all.sort();
        all
    };
    let sorted = async |version| {
        let mut found = groups(version).await;
        found.sort();
        found
    };
    assert_eq!(sorted(Version::V1_8).await, with(&[]));
    assert_eq!(
        sorted(Version::V1_16).await,
        with(&["apps/v1", "coordination.k8s.io/v1", "coordination.k8s.io/v1beta1"])
    );
    assert_eq!(sorted(Version::V1_30).await, with(&["apps/v1", "coordination.k8s.io/v1", "discovery.k8s.io/v1"]));

    let old = Cluster::new(Version::V1_11);
    assert_eq!(get(&old, "/version").await.1["gitVersion"], "v1.11.0");
    assert_eq!(get(&old, "/apis/discovery.k8s.io/v1").await, (404, json!("404 page not found\n")));
    assert_eq!(get(&old, "/openapi/v3").await.0, 404);
    let (_, core) = get(&old, "/api/v1").await;
    let resources: Vec<&Value> =
        core["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
    assert!(resources.contains(&&json!("nodes/status")) && !resources.contains(&&json!("secrets/status")));
}
