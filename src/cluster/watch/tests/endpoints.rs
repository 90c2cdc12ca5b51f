//! Endpoints: from slices or whole, of Services that have a load balancer.

use super::*;

#[tokio::test(start_paused = true)]
async fn slices_of_a_service_are_seen_as_one() {
    let web = ObjectKey::new("shop", "web");
    let server = Server::default();
    server.services(&["web", "api"]);
    server.list(SLICES, page("5", "", json!([slice("s1", "web", "10.0.0.1"), slice("s2", "web", "fd00::1")])));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    assert_eq!(addresses(&handle, "web"), ["10.0.0.1", "fd00::1"]);
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    server.event_at(SLICES, "MODIFIED", &slice("s2", "api", "10.0.0.2"));
    settle().await;
    assert_eq!(next(&mut dirty).await, [web.clone(), ObjectKey::new("shop", "api")].into());
    assert_eq!(addresses(&handle, "web"), ["10.0.0.1"]);
    server.event_at(SLICES, "DELETED", &slice("s1", "web", "10.0.0.1"));
    assert_eq!(next(&mut dirty).await, [web.clone()].into());
    assert_eq!(handle.store.look_up(&web), StoreEntry::Absent);
}

fn addresses(handle: &Watched<EndpointsView>, service: &str) -> Vec<String> {
    let view = handle.store.get(&ObjectKey::new("shop", service)).unwrap();
    view.endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn endpoints_of_other_services_are_read_once_they_become_load_balancers() {
    let (web, api) = (ObjectKey::new("shop", "web"), ObjectKey::new("shop", "api"));
    let server = Server::default();
    server.services(&["web"]);
    server.list(SLICES, page("5", "", json!([slice("s1", "web", "10.0.0.1"), slice("t1", "api", "10.0.0.2")])));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    assert_eq!((handle.store.len(), handle.store.look_up(&api)), (1, StoreEntry::Skipped));
    let mut dirty = handle.store.subscribe();
    next(&mut dirty).await;
    server.event_at(SLICES, "ADDED", &slice("t2", "api", "10.0.0.3"));
    settle().await;

    let of_the_namespace = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let now = [slice("t1", "api", "10.0.0.2"), slice("t2", "api", "10.0.0.4"), slice("s1", "web", "10.0.0.9")];
    server.list(of_the_namespace, page("7", "", json!(now)));
    server.event_at(SERVICES, "MODIFIED", &service("api", "LoadBalancer"));
    assert_eq!(next(&mut dirty).await, [api.clone()].into());
    assert_eq!(addresses(&handle, "api"), ["10.0.0.2", "10.0.0.4"]);
    assert_eq!(addresses(&handle, "web"), ["10.0.0.1"], "only what was asked for counts");
    let asked = server.lists_asked().pop().unwrap();
    assert!(asked.contains("?labelSelector=kubernetes.io%2Fservice-name%20in%20%28api%29&"), "{asked}");
    server.event_at(SLICES, "DELETED", &slice("t1", "api", "10.0.0.2"));
    assert_eq!(next(&mut dirty).await, [api.clone()].into());
    assert_eq!(addresses(&handle, "api"), ["10.0.0.4"]);

    // It goes back to what it was, is one again, and turns out to have no endpoints any more.
    server.event_at(SERVICES, "MODIFIED", &service("api", "ClusterIP"));
    assert_eq!(next(&mut dirty).await, [api.clone()].into());
    assert_eq!(handle.store.look_up(&api), StoreEntry::Skipped);
    server.list(of_the_namespace, page("8", "", json!([])));
    server.event_at(SERVICES, "MODIFIED", &service("api", "LoadBalancer"));
    assert_eq!(next(&mut dirty).await, [api.clone()].into());
    assert_eq!(handle.store.look_up(&api), StoreEntry::Absent);

    // What is left out is forgotten with its last slice, and is no reason to take the cluster for empty before.
    server.event_at(SERVICES, "MODIFIED", &service("web", "ClusterIP"));
    assert_eq!(next(&mut dirty).await, [web.clone()].into());
    assert!(!handle.store.is_empty());
    server.event_at(SLICES, "DELETED", &slice("s1", "web", "10.0.0.1"));
    assert_eq!(next(&mut dirty).await, [web].into());
    assert!(handle.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_later_is_listed_with_everything() {
    let server = Server::default();
    server.services(&[]);
    server.list(SLICES, page("5", "", json!([slice("s1", "web", "10.0.0.1")])));
    server.list(SLICES, page("9", "", json!([slice("s1", "web", "10.0.0.2")])));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    let mut dirty = handle.store.subscribe();
    server.event_at(SERVICES, "ADDED", &service("web", "LoadBalancer"));
    assert_eq!(next(&mut dirty).await, [ObjectKey::new("shop", "web")].into());
    assert_eq!(addresses(&handle, "web"), ["10.0.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn whole_endpoints_are_read_one_by_one() {
    let server = Server::default();
    server.services(&[]);
    let listed = json!([whole("web", "10.0.0.1", json!({})), whole("api", "10.0.0.2", json!({}))]);
    server.list(ENDPOINTS, page("5", "", listed));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    let mut dirty = handle.store.subscribe();
    for (name, address) in [("web", "10.0.0.3"), ("api", "10.0.0.4")] {
        let found = page("6", "", json!([whole(name, address, json!({}))]));
        server.list("/api/v1/namespaces/shop/endpoints", found);
        server.event_at(SERVICES, "ADDED", &service(name, "LoadBalancer"));
        assert_eq!(next(&mut dirty).await, [ObjectKey::new("shop", name)].into());
        assert_eq!(addresses(&handle, name), [address]);
        let asked = server.lists_asked().pop().unwrap();
        assert!(asked.contains(&format!("?fieldSelector=metadata.name%3D{name}&")), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_come_from_what_the_server_offers() {
    let old = json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "subsets": [{ "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 80 }] }]
    });
    for (path, items) in [
        (SLICES, json!([slice("s", "web", "10.0.0.1")])),
        (OLD_SLICES, json!([slice("s", "web", "10.0.0.1")])),
        (ENDPOINTS, json!([old])),
    ] {
        let server = Server::default();
        server.services(&["web"]);
        server.list(path, page("5", "", items));
        let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
        assert_eq!(addresses(&handle, "web"), ["10.0.0.1"]);
        assert_eq!(server.state.lock().asked.last().unwrap().path, path, "watched where it was listed");
    }
}

fn whole(service: &str, address: &str, labels: Value) -> Value {
    json!({
        "metadata": { "name": service, "namespace": "shop", "labels": labels },
        "subsets": [{ "addresses": [{ "ip": address }], "ports": [{ "port": 80 }] }]
    })
}

/// The first list of slices has none of what Endpoints have, as right after an upgrade.
#[tokio::test(start_paused = true)]
async fn slices_are_read_once_they_are_made() {
    let server = Server::default();
    server.services(&["web"]);
    let skipped = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
    let endpoints = || json!([whole("web", "10.0.0.1", json!({})), whole("other", "10.0.0.9", skipped.clone())]);
    server.list(OLD_SLICES, page("5", "", json!([])));
    server.list(ENDPOINTS, page("5", "", endpoints()));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    let web = ObjectKey::new("shop", "web");
    let address = || handle.store.get(&web).map(|view| view.endpoints[0].address.to_string());
    let is_meant = |asked: &&Asked| asked.query.contains("watch=true") && asked.path != SERVICES;
    let watched = || server.state.lock().asked.iter().rfind(is_meant).unwrap().path.clone();
    assert_eq!((address().as_deref(), watched().as_str()), (Some("10.0.0.1"), ENDPOINTS));

    // The first look finds the slice of another Service only, the second that of the first, though still empty.
    let mut empty = slice("s", "web", "10.0.0.2");
    empty["endpoints"] = json!([]);
    for slices in [json!([slice("t", "api", "10.0.0.3")]), json!([empty])] {
        server.list(OLD_SLICES, page("6", "", json!([])));
        server.list(OLD_SLICES, page("6", "", slices));
        server.list(ENDPOINTS, page("6", "", endpoints()));
        server.drop_watches(ENDPOINTS);
        sleep(Duration::from_secs(20)).await;
        assert_eq!((address().as_deref(), watched().as_str()), (Some("10.0.0.1"), ENDPOINTS));
    }
    server.list(OLD_SLICES, page("7", "", json!([])));
    server.list(OLD_SLICES, page("7", "", json!([slice("s", "web", "10.0.0.2")])));
    server.list(ENDPOINTS, page("7", "", endpoints()));
    server.drop_watches(ENDPOINTS);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((address().as_deref(), watched().as_str()), (Some("10.0.0.2"), OLD_SLICES));
}

#[tokio::test(start_paused = true)]
async fn without_permission_for_slices_older_endpoints_do_until_the_permission_comes() {
    let server = Server::default();
    server.services(&["web"]);
    server.list(SLICES, Answer::error(403, "forbidden"));
    server.list(ENDPOINTS, page("5", "", json!([])));
    let (_cluster, handle) = watched(&server, Cluster::endpoints).await;
    sleep(Duration::from_secs(2)).await;
    server.list(SLICES, page("6", "", json!([])));
    server.list(SLICES, page("6", "", json!([slice("s", "web", "10.0.0.1")])));
    server.drop_watches(ENDPOINTS);
    let mut dirty = handle.store.subscribe();
    assert_eq!(next(&mut dirty).await, [ObjectKey::new("shop", "web")].into());
}
