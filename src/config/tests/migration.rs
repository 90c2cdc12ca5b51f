//! `config/migration.md` says where every flag and every cloud-config key of the official controller went.

use std::collections::BTreeSet;

use super::super::schema;

/// The rows of the page's tables: the setting there, what to set here, a note.
fn settings() -> Vec<[&'static str; 3]> {
    let page = include_str!("../../../config/migration.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let columns = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    rows.map(|line| columns(line).try_into().unwrap_or_else(|_| panic!("not three columns: {line}"))).collect()
}

#[test]
fn every_key_that_is_named_exists() {
    for [name, keys, _] in settings().into_iter().filter(|[_, keys, _]| *keys != "nothing to set") {
        for key in keys.split(", ").map(|key| key.trim_matches('`')) {
            let path: Vec<&str> = key.split('.').collect();
            let shape = schema::at(&path).unwrap_or_else(|| panic!("{name} names {key}, which does not exist"));
            assert_ne!(shape.kind(), schema::ShapeKind::Section, "{name} names the section {key}");
        }
    }
}

#[test]
fn every_setting_is_listed_once_and_says_something() {
    let mut names = BTreeSet::new();
    for [name, keys, note] in settings() {
        assert!(names.insert(name), "{name} is listed twice");
        assert!(keys != "nothing to set" || !note.is_empty(), "{name}");
    }
}

#[test]
fn the_flags_of_both_generations_are_covered() {
    let listed: BTreeSet<String> =
        settings().iter().map(|setting| setting[0].trim_matches(['`', '-']).replace('_', "-")).collect();
    let known = "address allocate-node-cidrs allow-untagged-cloud alsologtostderr cloud-config cloud-provider cluster-cidr \
        cluster-name concurrent-service-syncs configure-cloud-routes contention-profiling controller-start-interval \
        feature-gates kube-api-burst kube-api-qps kube-api-content-type kubeconfig leader-elect \
        leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period leader-elect-resource-lock \
        leader-elect-resource-name leader-elect-resource-namespace log-backtrace-at log-dir log-flush-frequency \
        logtostderr stderrthreshold master min-resync-period node-monitor-period node-status-update-frequency port \
        profiling route-reconciliation-period service-account-private-key-file use-service-account-credentials v vmodule \
        version controllers dry-run network sg-batch-size max-concurrent-actions max-throttling-retry-times \
        enable-imdsv2 node-reconcile-batch-size route-reconcile-batch-size skip-disable-source-dest-check \
        node-event-aggregation-wait-seconds metrics-bind-addr health-probe-bind-addr pprof-bind-addr log-file \
        log-file-max-size add-dir-header one-output skip-headers skip-log-headers help";
    for flag in known.split_whitespace() {
        assert!(listed.contains(flag), "--{flag} is not in the table");
    }
}
