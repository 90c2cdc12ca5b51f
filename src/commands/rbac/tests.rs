use std::collections::BTreeSet;

use expect_test::expect;

use super::*;
use crate::config::{ConfigSource, load};
use crate::controllers::registry::CATALOG;

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    std::fs::write(&path, text).unwrap();
    load(&ConfigSource { path, ..ConfigSource::default() }, &CATALOG).unwrap().config
}

const ALL: &str = "[cloud]\ncluster_id = \"c\"\n[route]\ncluster_cidrs = [\"10.0.0.0/8\"]\n";

fn may(config: &Config, version: u32) -> BTreeSet<String> {
    let all = cluster_rules(config, version).into_iter().chain(lock_rules(config, version));
    all.flat_map(|rule| rule.verbs.into_iter().map(move |verb| format!("{verb} {}", rule.resource))).collect()
}

#[test]
fn what_is_switched_off_needs_no_right() {
    let all = may(&config(ALL), 34);
    assert!(all.contains("delete nodes") && all.contains("patch services/status") && all.contains("update leases"));
    let careful = may(&config(&format!("{ALL}[node]\nremove_released = false\n")), 34);
    assert_eq!(all.difference(&careful).collect::<Vec<_>>(), ["delete nodes"]);
    let alone = "[leader_election]\nenabled = false\n[node]\nremove_released = false\n";
    let alone = may(&config(&format!("{ALL}{alone}")), 34);
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
    let service_account = ObjectKey::new("net", "ccm");
    let arguments = RbacArgs { service_account: service_account.clone(), ..RbacArgs::default() };
    let account = manifests(&config(ALL), arguments);
    assert!(account.contains("kind: ServiceAccount\nmetadata:\n  name: \"ccm\"\n  namespace: \"net\"\n"), "{account}");
    assert_eq!(account.matches("  - kind: ServiceAccount\n    name: \"ccm\"\n    namespace: \"net\"\n").count(), 2);
    let arguments = RbacArgs { service_account, user: Some("ccm on masters".into()), ..RbacArgs::default() };
    let user = manifests(&config(ALL), arguments);
    assert!(!user.contains("ServiceAccount"), "{user}");
    assert!(user.contains("kind: User\n    name: \"ccm on masters\""), "{user}");
    assert!(user.contains("    resourceNames: [\"ccm\"]\n    verbs: [get, update]"), "{user}");
}

#[test]
fn a_kubeconfig_names_its_credentials_and_holds_none() {
    let reached = config(&format!("kubernetes.server = \"https://10.0.0.1:6443\"\n{ALL}"));
    let arguments = RbacArgs { service_account: ObjectKey::new("net", "ccm"), ..RbacArgs::default() };
    expect![[r#"
        # Beside this file, readable for the user of the program alone:
        # ca.crt: the authority of the API server, on masters /etc/kubernetes/pki/ca.crt
        # token: kubectl -n net create token ccm --duration=8760h; renewed before it ends
        apiVersion: v1
        kind: Config
        clusters:
          - name: cluster
            cluster:
              server: "https://10.0.0.1:6443"
              certificate-authority: ca.crt
        users:
          - name: "system:serviceaccount:net:ccm"
            user:
              tokenFile: token
        contexts:
          - name: alicloud-ccm
            context:
              cluster: cluster
              user: "system:serviceaccount:net:ccm"
        current-context: alicloud-ccm
    "#]]
    .assert_eq(&kubeconfig(&reached, arguments).unwrap());
    let user = RbacArgs { user: Some("ccm on masters".into()), ..RbacArgs::default() };
    let by_certificate = kubeconfig(&reached, user).unwrap();
    for line in ["  - name: \"ccm on masters\"", "      client-certificate: client.crt\n      client-key: client.key\n"]
    {
        assert!(by_certificate.contains(line), "{by_certificate}");
    }
    assert!(kubeconfig(&config(ALL), RbacArgs::default()).unwrap_err().contains("--set kubernetes.server="));
}
