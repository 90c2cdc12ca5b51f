use std::collections::BTreeSet;

use super::cluster::{ServerVersion, Subject, manifests, rules};
use crate::alibaba::permissions::{permissions, policy, policy_to_assume};
use crate::catalog::CATALOG;
use crate::config::{Config, Origin, load};

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    std::fs::write(&path, text).unwrap();
    load(&Origin { path, environment: [].into(), overrides: Vec::new() }, &CATALOG).unwrap().config
}

const ALL: &str = "[cloud]\ncluster_id = \"c\"\n[route]\ncluster_cidrs = [\"10.0.0.0/8\"]\n";

fn may(config: &Config, version: u32) -> BTreeSet<String> {
    let rules = rules(config, ServerVersion(version));
    let all = rules.cluster.iter().chain(&rules.lock);
    all.flat_map(|rule| rule.verbs.iter().map(move |verb| format!("{verb} {}", rule.resource))).collect()
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
    for (text, minor) in [("1.11", 11), ("v1.11.0+d4cacc0", 11), ("1.34", 34)] {
        assert_eq!(text.parse(), Ok(ServerVersion(minor)));
    }
    for text in ["3.11", "1", "latest", "1.x"] {
        assert!(text.parse::<ServerVersion>().is_err(), "{text}");
    }
}

#[test]
fn manifests_bind_who_is_asked_for() {
    let config = config(ALL);
    let user = manifests(&config, ServerVersion::NEWEST, &Subject::User("ccm on masters".into()));
    assert!(user.contains("kind: User\n    name: \"ccm on masters\""), "{user}");
    assert!(user.contains("    resourceNames: [\"ccm\"]\n    verbs: [get, update]"), "{user}");
}

#[test]
fn policies_follow_the_configuration() {
    let none = policy(&config("controllers = []\n[cloud]\ncluster_id = \"c\"\n"));
    assert_eq!(none["Statement"].as_array().map(Vec::len), Some(0));
    let tables = config(&format!("{ALL}table_ids = [\"vtb-1\"]\n"));
    assert!(!permissions(&tables).contains("vpc:DescribeRouteTableList"));
    assert_eq!(policy_to_assume(&tables), None);
    let key =
        "[cloud.credentials]\naccess_key_id = \"LTAI1\"\naccess_key_secret = \"s\"\nrole_arn = \"acs:ram::1:role/r\"\n";
    let assumed = policy_to_assume(&config(&format!("{ALL}{key}"))).unwrap();
    assert_eq!(assumed["Statement"][0]["Action"][0], "sts:AssumeRole");
    assert_eq!(assumed["Statement"][0]["Resource"], "acs:ram::1:role/r");
}
