//! Where every flag and every cloud-config key of the official controller, and of its predecessor, went.

use std::fmt::Write as _;

/// One setting of the official controller.
struct Setting {
    /// Its name there.
    name: &'static str,
    /// What to set here.
    fate: Fate,
}

enum Fate {
    /// The keys that take over, and what to mind.
    Key(&'static [&'static str], &'static str),
    /// Why there is nothing to set.
    None(&'static str),
}

const fn key(name: &'static str, keys: &'static [&'static str], note: &'static str) -> Setting {
    Setting { name, fate: Fate::Key(keys, note) }
}

const fn none(name: &'static str, why: &'static str) -> Setting {
    Setting { name, fate: Fate::None(why) }
}

const FLAGS: &[Setting] = &[
    none("--cloud-config", "its content moves into this program's own file; see the second table"),
    none("--cloud-provider", "had no effect; there is one cloud"),
    none("--cluster-name", "had no effect; clusters are told apart by cloud.cluster_id"),
    key("--controllers", &["controllers"], "`nlb`, `ingress` and `pvtz` are not part of this program"),
    none("--use-service-account-credentials", "had no effect; one identity serves all controllers"),
    none("--allow-untagged-cloud", "had no effect; cloud.cluster_id must be set"),
    none("--allocate-node-cidrs", "had no effect; kube-controller-manager gives out pod CIDRs"),
    key("--configure-cloud-routes", &["controllers"], "for `false`, leave `route` out"),
    key("--cluster-cidr", &["route.cluster_cidrs"], "a list; may be empty"),
    key("--route-reconciliation-period", &["route.period"], ""),
    key("--node-monitor-period", &["node.period"], "had no effect there"),
    key("--concurrent-service-syncs", &["service.concurrency"], ""),
    none("--dry-run", "the command `plan` prints what would be done and changes nothing"),
    key("--network", &["cloud.endpoints.network"], ""),
    key("--sg-batch-size", &["service.backend_batch_size"], ""),
    key(
        "--max-concurrent-actions",
        &["cloud.budget_share"],
        "calls are spread by the account's quotas instead of counted",
    ),
    none(
        "--max-throttling-retry-times",
        "throttled calls are tried again until they succeed, at the pace of the quota",
    ),
    key("--enable-imdsv2", &["cloud.endpoints.metadata_v1_fallback"], "session tokens are always tried first"),
    key("--node-reconcile-batch-size", &["node.batch_size"], ""),
    key("--route-reconcile-batch-size", &["route.batch_size"], ""),
    key("--skip-disable-source-dest-check", &["node.disable_source_dest_check"], "the opposite value"),
    key(
        "--node-event-aggregation-wait-seconds",
        &["node.aggregation", "route.aggregation"],
        "a length of time such as `1s`",
    ),
    key(
        "--metrics-bind-addr",
        &["server.address", "server.port"],
        "metrics, health and configuration share one address",
    ),
    key("--health-probe-bind-addr", &["server.address", "server.port"], "loopback unless stated"),
    none("--pprof-bind-addr", "Go's profiles have no counterpart"),
    key("--kube-api-qps", &["kubernetes.qps"], ""),
    key("--kube-api-burst", &["kubernetes.burst"], ""),
    key("--kubeconfig", &["kubernetes.kubeconfig"], "the order of places is the same"),
    key("--leader-elect", &["leader_election.enabled"], ""),
    key("--leader-elect-lease-duration", &["leader_election.lease_duration"], ""),
    key("--leader-elect-renew-deadline", &["leader_election.renew_deadline"], ""),
    key("--leader-elect-retry-period", &["leader_election.retry_period"], ""),
    key(
        "--leader-elect-resource-lock",
        &["leader_election.resource_lock"],
        "a Lease, or an annotation where the API server has no Leases; `endpointsleases` for `endpoints` too",
    ),
    key("--leader-elect-resource-name", &["leader_election.name"], ""),
    key("--leader-elect-resource-namespace", &["leader_election.namespace"], ""),
    key("--v", &["log.level"], "`debug` stands for 4 and more"),
    key("--vmodule", &["log.level"], "for instance `info,alicloud_ccm::alibaba=debug`"),
    none("--logtostderr", "logs always go to standard error"),
    none("--alsologtostderr", "logs always go to standard error"),
    none("--stderrthreshold", "logs always go to standard error"),
    none("--log_dir", "logs always go to standard error"),
    none("--log_file", "logs always go to standard error"),
    none("--log_file_max_size", "logs always go to standard error"),
    none("--log_backtrace_at", "stack traces on log lines have no counterpart"),
    none("--add_dir_header", "the form of lines is fixed; log.format chooses between two"),
    none("--one_output", "logs always go to standard error"),
    none("--skip_headers", "the form of lines is fixed; log.format chooses between two"),
    none("--skip_log_headers", "the form of lines is fixed; log.format chooses between two"),
    none("--help", "the same here"),
    key("--address", &["server.address"], ""),
    none("--contention-profiling", "Go's profiles have no counterpart"),
    none("--controller-start-interval", "controllers start as soon as what they watch is there"),
    key("--feature-gates", &["node.ipv6", "service.ipv6", "service.type_annotation"], "see featureGates below"),
    none("--kube-api-content-type", "the client chooses"),
    none("--leader-migration-config", "there was never such a controller in Kubernetes' own tree"),
    none("--enable-leader-migration", "there was never such a controller in Kubernetes' own tree"),
    none("--log-flush-frequency", "lines are written at once"),
    key("--master", &["kubernetes.server"], ""),
    none(
        "--min-resync-period",
        "watches are kept true by themselves; comparisons with the cloud have their own periods",
    ),
    key("--node-status-update-frequency", &["node.period"], ""),
    key("--port", &["server.port"], ""),
    none("--profiling", "Go's profiles have no counterpart"),
    none("--service-account-private-key-file", "had no effect"),
    none("--version", "the same here"),
];

const CLOUD_CONFIG: &[Setting] = &[
    key("accessKeyID", &["cloud.credentials.access_key_id"], "plain here, Base64 there; better `access_key_id_file`"),
    key(
        "accessKeySecret",
        &["cloud.credentials.access_key_secret"],
        "plain here, Base64 there; better `access_key_secret_file`",
    ),
    key("uid", &["cloud.credentials.role_arn"], "no helper program runs; assume a role of the other account instead"),
    key("clusterID", &["cloud.cluster_id"], "if it was not set, use `clusterid`"),
    key("kubernetesClusterTag", &["cloud.cluster_tag"], ""),
    key("region", &["cloud.region"], "counts even if vpcid or vswitchid is missing"),
    key("vpcid", &["cloud.vpc_id"], "counts even if vswitchid is missing"),
    key("zoneid", &["cloud.zone_id"], "counts even if vpcid or vswitchid is missing"),
    key("vswitchid", &["cloud.vswitches"], "a list; the zone before `:` may be left out"),
    key("resourceGroupID", &["cloud.resource_group_id"], ""),
    key("serviceMaxConcurrentReconciles", &["service.concurrency"], ""),
    key("serviceBackendType", &["service.eni_backends"], "`true` for `eni`"),
    key("disablePublicSLB", &["service.disable_public"], ""),
    none("nodeMaxConcurrentReconciles", "nodes are worked on in one batch after the other"),
    key("nodeMonitorPeriod", &["node.period"], "had no effect there"),
    key("nodeAddrSyncPeriod", &["node.period"], "had no effect there"),
    none("routeMaxConcurrentReconciles", "route tables are worked on one after the other, as the cloud demands"),
    key("routeTableIDs", &["route.table_ids"], "a list"),
    none("privateZoneId", "the controller pvtz is not part of this program"),
    none("privateZoneRecordTTL", "the controller pvtz is not part of this program"),
    key("featureGates", &["node.ipv6", "service.ipv6", "service.type_annotation"], "see the third table"),
];

const FEATURE_GATES: &[Setting] = &[
    key("IPv6DualStack", &["node.ipv6", "service.ipv6"], ""),
    none("EndpointSlice", "used where the API server has them"),
    none("FilterServiceOnNodeChange", "Services are always worked on only if a change concerns them"),
    key("LoadBalancerTypeAnnotation", &["service.type_annotation"], ""),
];

const TABLES: [(&str, &str, &[Setting]); 3] = [
    ("Flags", "Flag", FLAGS),
    ("Cloud config (`Global`)", "Key", CLOUD_CONFIG),
    ("Feature gates", "Gate", FEATURE_GATES),
];

/// The page for people who come from the official controller.
#[must_use]
pub fn migration_page() -> String {
    let mut page = String::from(
        "# Coming from the official cloud controller manager\n\n\
         Flags of the official controller (v2 and v1.9.3), the keys of its cloud config, and what says the same in the file \
         of alicloud-ccm. The environment names `ECS_ENDPOINT`, `VPC_ENDPOINT`, `SLB_ENDPOINT`, \
         `ALICLOUD_CLIENT_SCHEME`, `METADATA_ENDPOINT`, `ACCESS_KEY_ID` and `ACCESS_KEY_SECRET` are understood as they \
         are.\n",
    );
    for (title, column, settings) in TABLES {
        _ = write!(page, "\n## {title}\n\n| {column} | Here | Note |\n|---|---|---|\n");
        for Setting { name, fate } in settings {
            match fate {
                Fate::Key(keys, note) => {
                    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
                    _ = writeln!(page, "| `{name}` | {} | {note} |", keys.join(", "));
                }
                Fate::None(why) => _ = writeln!(page, "| `{name}` | nothing to set | {why} |"),
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::schema;

    fn settings() -> impl Iterator<Item = &'static Setting> {
        TABLES.into_iter().flat_map(|(_, _, settings)| settings)
    }

    #[test]
    fn every_key_that_is_named_exists() {
        for Setting { name, fate } in settings() {
            let Fate::Key(keys, _) = fate else { continue };
            assert!(!keys.is_empty(), "{name}");
            for key in *keys {
                let path: Vec<&str> = key.split('.').collect();
                let shape = schema::at(&path).unwrap_or_else(|| panic!("{name} names {key}, which does not exist"));
                assert_ne!(shape.kind(), schema::Kind::Section, "{name} names the section {key}");
            }
        }
    }

    #[test]
    fn every_setting_is_listed_once_and_says_something() {
        let mut names = BTreeSet::new();
        for Setting { name, fate } in settings() {
            assert!(names.insert(*name), "{name} is listed twice");
            if let Fate::None(why) = fate {
                assert!(!why.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn the_flags_of_both_generations_are_covered() {
        let listed: BTreeSet<String> =
            FLAGS.iter().map(|flag| flag.name.trim_start_matches('-').replace('_', "-")).collect();
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
}
