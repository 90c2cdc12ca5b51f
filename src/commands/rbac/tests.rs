use std::collections::BTreeSet;

use super::*;
use crate::config::{Origin, load};
use crate::controllers::registry::CATALOG;

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    std::fs::write(&path, text).unwrap();
    load(&Origin { path, environment: [].into(), overrides: Vec::new() }, &CATALOG).unwrap().config
}

const ALL: &str = "[cloud]\ncluster_id = \"c\"\n[route]\ncluster_cidrs = [\"10.0.0.0/8\"]\n";

fn may(config: &Config, version: u32) -> BTreeSet<String> {
    let version = ServerVersion(version);
    let all = cluster_rules(config, version).into_iter().chain(lock_rules(config, version));
    all.flat_map(|rule| rule.verbs.into_iter().map(move |verb| format!("{verb} {}", rule.resource))).collect()
}

#[test]
fn what_is_switched_off_needs_no_right() {
    let all = may(&config(ALL), 34);
    assert!(all.contains("delete nodes") && all.contains("patch services/status") && all.contains("update leases"));
    let careful = may(&config(&format!("{ALL}[node]\nremove_released = false\n")), 34);
    assert_eq!(all.difference(&careful).collect::<Vec<_>>(), ["delete nodes"]);
    let alone = may(&config(&format!("{ALL}[leader_election]\nenabled = false\n")), 34);
    assert!(!alone.iter().any(|right| right.contains("leases")), "{alone:?}");
    let routes = may(&config(&format!("controllers = [\"route\"]\n{ALL}")), 34);
    assert!(!routes.iter().any(|right| right.contains("services") || right.contains("delete")), "{routes:?}");
    let nothing = may(&config(&format!("controllers = []\n{ALL}")), 34);
    assert!(nothing.contains("patch nodes/status"), "the conditions of a route controller are cleared: {nothing:?}");
}

#[test]
fn every_verb_is_printed() {
    for access in PROCESS.iter().chain(REPORTS).chain(LOCK).chain(registry::kubernetes_access(&config(ALL))) {
        assert!(access.verbs.iter().all(|verb| VERBS.contains(verb)), "{access:?}");
    }
}

#[test]
fn two_locks_need_two_rights() {
    let usual = may(&config(ALL), 34);
    let both = may(&config(&format!("{ALL}[leader_election]\nresource_lock = \"endpointsleases\"\n")), 34);
    assert_eq!(both.difference(&usual).collect::<Vec<_>>(), ["create endpoints", "get endpoints", "update endpoints"]);
    let off = "[leader_election]\nenabled = false\nresource_lock = \"endpointsleases\"\n";
    assert!(!may(&config(&format!("{ALL}{off}")), 34).iter().any(|right| right.contains("endpoints ")));
}

#[test]
fn old_servers_have_other_locks_and_endpoints() {
    let old = may(&config(ALL), 11);
    assert!(old.contains("update configmaps") && old.contains("watch endpoints"), "{old:?}");
    assert!(!old.iter().any(|right| right.contains("leases") || right.contains("slices")), "{old:?}");
}

#[test]
fn manifests_bind_the_subject_of_the_arguments() {
    let service_account: ServiceAccount = "net/ccm".parse().unwrap();
    let arguments = RbacArgs { kubernetes: None, service_account: service_account.clone(), user: None };
    let account = manifests(&config(ALL), arguments);
    assert!(account.contains("kind: ServiceAccount\nmetadata:\n  name: \"ccm\"\n  namespace: \"net\"\n"), "{account}");
    assert_eq!(account.matches("  - kind: ServiceAccount\n    name: \"ccm\"\n    namespace: \"net\"\n").count(), 2);
    let arguments = RbacArgs { kubernetes: None, service_account, user: Some("ccm on masters".into()) };
    let user = manifests(&config(ALL), arguments);
    assert!(!user.contains("ServiceAccount"), "{user}");
    assert!(user.contains("kind: User\n    name: \"ccm on masters\""), "{user}");
    assert!(user.contains("    resourceNames: [\"ccm\"]\n    verbs: [get, update]"), "{user}");
}
