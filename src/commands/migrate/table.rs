//! Every setting of the official controller, and what it becomes: the tables of `config/migration.md`, which are read as they
//! are, and here how a value is converted.

use std::sync::LazyLock;

use super::values::{
    Convert, backend_type, duration, forced_eni, integer, level, lifetime, list, lock, number, opposite, pace, scheme,
    seconds, switch, text, vswitches,
};

/// The tables as people read them.
const PAGE: &str = include_str!("../../../config/migration.md");

/// A flag, a key, a feature gate or a variable of the official controller.
#[derive(Debug)]
pub(super) struct Setting {
    /// As it is written there.
    pub(super) name: &'static str,
    /// The keys here that are about the same.
    pub(super) keys: Vec<&'static str>,
    /// How its value becomes that of the keys; `None` where a person chooses that, or nothing has to be set.
    pub(super) conversion: Option<Conversion>,
    /// What there is to know; where there is no counterpart, why.
    pub(super) note: &'static str,
    /// Whether v2 refuses it.
    pub(super) only_v1: bool,
}

/// How a value becomes that of a key here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conversion {
    /// By itself; an empty text says nothing.
    Plain(Convert),
    /// A comma-separated list of controllers.
    Controllers,
    /// Whether there are routes, which more than one setting decides.
    Routes,
    /// A switch for each feature gate.
    Gates,
    /// `host:port`: the port, and the host if there is one.
    Address,
    /// Counts only where the VPC and the vSwitches are both stated.
    Location(Convert),
    /// Half of a key pair.
    Secret(Encoding),
}

/// How the half of a key pair is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Base64,
    Plain,
}

use Conversion::{Address, Controllers, Gates, Location, Plain, Routes, Secret};

/// The settings whose value this program takes over.
const CONVERSIONS: &[(Conversion, &[&str])] = &[
    (Controllers, &["--controllers"]),
    (Routes, &["--allocate-node-cidrs", "--configure-cloud-routes"]),
    (Gates, &["--feature-gates", "featureGates"]),
    (Address, &["--health-probe-bind-addr"]),
    (Location(text), &["region", "vpcid", "zoneid"]),
    (Location(vswitches), &["vswitchid"]),
    (Secret(Encoding::Base64), &["accessKeyID", "accessKeySecret"]),
    (Secret(Encoding::Plain), &["ACCESS_KEY_ID", "ACCESS_KEY_SECRET"]),
    (Plain(text), &["--network", "--kubeconfig", "--address", "--master", "clusterID", "kubernetesClusterTag"]),
    (Plain(text), &["--leader-elect-resource-name", "--leader-elect-resource-namespace", "resourceGroupID"]),
    (Plain(text), &["ECS_ENDPOINT", "VPC_ENDPOINT", "SLB_ENDPOINT", "NLB_ENDPOINT", "METADATA_ENDPOINT"]),
    (Plain(text), &["privateZoneId"]),
    (Plain(switch), &["--leader-elect", "disablePublicSLB", "IPv6DualStack", "LoadBalancerTypeAnnotation"]),
    (Plain(opposite), &["--enable-imdsv2", "--skip-disable-source-dest-check"]),
    (Plain(integer), &["--concurrent-service-syncs", "--sg-batch-size", "--node-reconcile-batch-size"]),
    (Plain(integer), &["--route-reconcile-batch-size", "--kube-api-burst", "--port", "serviceMaxConcurrentReconciles"]),
    (Plain(number), &["--kube-api-qps"]),
    (Plain(duration), &["--leader-elect-lease-duration", "--leader-elect-renew-deadline"]),
    (Plain(duration), &["--leader-elect-retry-period", "--node-status-update-frequency"]),
    (Plain(pace), &["--route-reconciliation-period"]),
    (Plain(seconds), &["--node-event-aggregation-wait-seconds"]),
    (Plain(list), &["--cluster-cidr", "routeTableIDs"]),
    (Plain(lock), &["--leader-elect-resource-lock"]),
    (Plain(level), &["--v"]),
    (Plain(backend_type), &["serviceBackendType"]),
    (Plain(forced_eni), &["SERVICE_FORCE_BACKEND_ENI"]),
    (Plain(lifetime), &["privateZoneRecordTTL"]),
    (Plain(scheme), &["ALICLOUD_CLIENT_SCHEME"]),
];

/// Flags of v1.9.3 that v2 refuses. Releases of v2 for OpenShift take `--feature-gates`, too.
const ONLY_V1: &str = "--address --contention-profiling --controller-start-interval --enable-leader-migration \
    --kube-api-content-type --leader-migration-config --log-flush-frequency --master \
    --min-resync-period --node-status-update-frequency --port --profiling \
    --service-account-private-key-file --version";

pub(super) static FLAGS: LazyLock<Vec<Setting>> = LazyLock::new(|| table("Flags"));
/// Of the cloud config.
pub(super) static KEYS: LazyLock<Vec<Setting>> = LazyLock::new(|| table("Cloud config (`Global`)"));
/// The values of the two settings `featureGates`.
pub(super) static GATES: LazyLock<Vec<Setting>> = LazyLock::new(|| table("Feature gates"));
/// Of the container.
pub(super) static VARIABLES: LazyLock<Vec<Setting>> = LazyLock::new(|| table("Variables"));

/// The table below a heading of the page.
fn table(heading: &str) -> Vec<Setting> {
    let below = PAGE.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading)).skip(1);
    below.take_while(|line| !line.starts_with("## ")).filter_map(setting).collect()
}

/// A row of a table; `None` for any other line.
fn setting(row: &'static str) -> Option<Setting> {
    let in_code = |text: &'static str| text.strip_prefix('`')?.strip_suffix('`');
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, name, keys, note, _] = cells[..] else { return None };
    let name = in_code(name)?;
    let conversion = CONVERSIONS.iter().find(|(_, names)| names.contains(&name)).map(|(conversion, _)| *conversion);
    let keys = keys.split(", ").filter_map(in_code).collect();
    Some(Setting { name, keys, conversion, note, only_v1: ONLY_V1.split_whitespace().any(|flag| flag == name) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config;

    fn settings() -> impl Iterator<Item = &'static Setting> {
        FLAGS.iter().chain(KEYS.iter()).chain(GATES.iter()).chain(VARIABLES.iter())
    }

    #[test]
    fn every_row_of_the_page_is_read() {
        assert_eq!(settings().count(), PAGE.lines().filter(|line| line.starts_with("| `")).count());
        for (_, names) in CONVERSIONS {
            for name in *names {
                let setting = settings().find(|setting| setting.name == *name);
                assert!(setting.is_some_and(|setting| !setting.keys.is_empty()), "{name} is converted to nothing");
            }
        }
        for name in ONLY_V1.split_whitespace() {
            assert!(FLAGS.iter().any(|flag| flag.name == name), "{name} is no flag");
        }
    }

    #[test]
    fn every_key_that_is_named_exists() {
        let known = config::keys();
        for Setting { name, keys, .. } in settings() {
            for key in keys {
                assert!(known.iter().any(|known| known == key), "{name} names {key}, which does not exist");
            }
        }
    }

    #[test]
    fn every_setting_is_listed_once_and_says_something() {
        let mut names = BTreeSet::new();
        for Setting { name, conversion, note, .. } in settings() {
            assert!(names.insert(name), "{name} is listed twice");
            assert!(conversion.is_some() || !note.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_flags_of_both_generations_are_covered() {
        let listed: BTreeSet<String> =
            FLAGS.iter().map(|setting| setting.name.trim_start_matches('-').replace('_', "-")).collect();
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
