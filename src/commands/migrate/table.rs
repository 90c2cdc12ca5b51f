//! Every setting of the official controller, and what it becomes: the one table that `migrate` converts by and that
//! `config/migration.md` is written from.

use super::values::{
    Convert, backend_type, duration, forced_eni, integer, level, lifetime, list, lock, number, opposite, pace, scheme,
    seconds, switch, text, vswitches,
};

/// A flag, a key, a feature gate or a variable of the official controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// As it is written there.
    pub(super) name: &'static str,
    pub(super) becomes: Counterpart,
    /// What there is to know; where there is no counterpart, why.
    pub(super) note: &'static str,
    /// Whether v2 refuses it.
    pub(super) only_v1: bool,
}

/// What a setting becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counterpart {
    /// The value of these keys.
    Keys(&'static [&'static str], Conversion),
    /// These keys are about the same, and a person chooses their value.
    ByHand(&'static [&'static str]),
    /// Nothing has to be said.
    Nothing,
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
use Counterpart::{ByHand, Keys, Nothing};

const fn both(name: &'static str, becomes: Counterpart, note: &'static str) -> Setting {
    Setting { name, becomes, note, only_v1: false }
}

/// Of v1.9.3 alone.
const fn old(name: &'static str, becomes: Counterpart, note: &'static str) -> Setting {
    Setting { name, becomes, note, only_v1: true }
}

const LOGS: &str = "logs always go to standard error";
const LINES: &str = "the form of lines is fixed; log.format chooses between two";
const PROFILES: &str = "Go's profiles have no counterpart";
const IN_TREE: &str = "there was never such a controller in Kubernetes' own tree";
const CONCURRENCY: &[&str] = &["service.concurrency", "nlb.concurrency"];
const IPV6: &[&str] = &["node.ipv6", "service.ipv6"];
pub(super) const KEY_ID: &[&str] = &["cloud.credentials.access_key_id_file"];
const KEY_SECRET: &[&str] = &["cloud.credentials.access_key_secret_file"];
const GATED: &[&str] = &["node.ipv6", "service.ipv6", "service.type_annotation"];

/// The flags of v2, then those that only v1.9.3 has.
pub(super) static FLAGS: &[Setting] = &[
    both("--cloud-config", Nothing, "its content moves into this program's own file; see the second table"),
    both("--cloud-provider", Nothing, "had no effect; there is one cloud"),
    both("--cluster-name", Nothing, "had no effect; clusters are told apart by cloud.cluster_id"),
    both(
        "--controllers",
        Keys(&["controllers"], Controllers),
        "`nlb`, `volume-labels` and `pvtz` run where they are listed; `ingress` is not part of this program",
    ),
    both("--use-service-account-credentials", Nothing, "had no effect; one identity serves all controllers"),
    both("--allow-untagged-cloud", Nothing, "had no effect; cloud.cluster_id must be set"),
    both(
        "--allocate-node-cidrs",
        Keys(&["controllers"], Routes),
        "no effect in v2, where kube-controller-manager alone gives out pod CIDRs; v1.9.3 makes routes only if this and \
         `--configure-cloud-routes` are `true`: otherwise leave `route` out",
    ),
    both("--configure-cloud-routes", Keys(&["controllers"], Routes), "for `false`, leave `route` out"),
    both("--cluster-cidr", Keys(&["route.cluster_cidrs"], Plain(list)), "a list; may be empty"),
    both("--route-reconciliation-period", Keys(&["route.period"], Plain(pace)), ""),
    both("--node-monitor-period", ByHand(&["node.period"]), "had no effect there"),
    both("--concurrent-service-syncs", Keys(CONCURRENCY, Plain(integer)), ""),
    both("--dry-run", Nothing, "the command `plan` prints what would be done and changes nothing"),
    both("--network", Keys(&["cloud.endpoints.network"], Plain(text)), ""),
    both("--sg-batch-size", Keys(&["service.backend_batch_size"], Plain(integer)), ""),
    both(
        "--max-concurrent-actions",
        ByHand(&["cloud.budget_share"]),
        "calls are spread by the account's quotas instead of counted",
    ),
    both(
        "--max-throttling-retry-times",
        Nothing,
        "throttled calls are tried again until they succeed, at the pace of the quota",
    ),
    both(
        "--enable-imdsv2",
        Keys(&["cloud.endpoints.metadata_v1_fallback"], Plain(opposite)),
        "the opposite value; session tokens are always tried first",
    ),
    both("--node-reconcile-batch-size", Keys(&["node.batch_size"], Plain(integer)), ""),
    both("--route-reconcile-batch-size", Keys(&["route.batch_size"], Plain(integer)), ""),
    both(
        "--skip-disable-source-dest-check",
        Keys(&["node.disable_source_dest_check"], Plain(opposite)),
        "the opposite value",
    ),
    both(
        "--node-event-aggregation-wait-seconds",
        Keys(&["node.aggregation", "route.aggregation"], Plain(seconds)),
        "a length of time such as `1s`",
    ),
    both(
        "--metrics-bind-addr",
        ByHand(&["server.address", "server.port"]),
        "metrics, health and configuration share one address",
    ),
    both("--health-probe-bind-addr", Keys(&["server.address", "server.port"], Address), "loopback unless stated"),
    both("--pprof-bind-addr", Nothing, PROFILES),
    both("--kube-api-qps", Keys(&["kubernetes.qps"], Plain(number)), ""),
    both("--kube-api-burst", Keys(&["kubernetes.burst"], Plain(integer)), ""),
    both("--kubeconfig", Keys(&["kubernetes.kubeconfig"], Plain(text)), "the order of places is the same"),
    both("--leader-elect", Keys(&["leader_election.enabled"], Plain(switch)), ""),
    both("--leader-elect-lease-duration", Keys(&["leader_election.lease_duration"], Plain(duration)), ""),
    both("--leader-elect-renew-deadline", Keys(&["leader_election.renew_deadline"], Plain(duration)), ""),
    both("--leader-elect-retry-period", Keys(&["leader_election.retry_period"], Plain(duration)), ""),
    both(
        "--leader-elect-resource-lock",
        Keys(&["leader_election.resource_lock"], Plain(lock)),
        "a Lease, or an annotation where the API server has no Leases; `endpointsleases` for `endpoints` too",
    ),
    both("--leader-elect-resource-name", Keys(&["leader_election.name"], Plain(text)), ""),
    both("--leader-elect-resource-namespace", Keys(&["leader_election.namespace"], Plain(text)), ""),
    both("--v", Keys(&["log.level"], Plain(level)), "`debug` stands for 4 and more"),
    both("--vmodule", ByHand(&["log.level"]), "for instance `info,alicloud_ccm::alibaba=debug`"),
    both("--logtostderr", Nothing, LOGS),
    both("--alsologtostderr", Nothing, LOGS),
    both("--stderrthreshold", Nothing, LOGS),
    both("--log_dir", Nothing, LOGS),
    both("--log_file", Nothing, LOGS),
    both("--log_file_max_size", Nothing, LOGS),
    both("--log_backtrace_at", Nothing, "stack traces on log lines have no counterpart"),
    both("--add_dir_header", Nothing, LINES),
    both("--one_output", Nothing, LOGS),
    both("--skip_headers", Nothing, LINES),
    both("--skip_log_headers", Nothing, LINES),
    both("--help", Nothing, "the same here"),
    old("--address", Keys(&["server.address"], Plain(text)), ""),
    old("--contention-profiling", Nothing, PROFILES),
    old("--controller-start-interval", Nothing, "controllers start as soon as what they watch is there"),
    // Releases of v2 for OpenShift take it, too.
    both("--feature-gates", Keys(GATED, Gates), "see featureGates below"),
    old("--kube-api-content-type", Nothing, "the client chooses"),
    old("--leader-migration-config", Nothing, IN_TREE),
    old("--enable-leader-migration", Nothing, IN_TREE),
    old("--log-flush-frequency", Nothing, "lines are written at once"),
    old("--master", Keys(&["kubernetes.server"], Plain(text)), ""),
    old(
        "--min-resync-period",
        Nothing,
        "watches are kept true by themselves; comparisons with the cloud have their own periods",
    ),
    old("--node-status-update-frequency", Keys(&["node.period"], Plain(duration)), ""),
    old("--port", Keys(&["server.port"], Plain(integer)), ""),
    old("--profiling", Nothing, PROFILES),
    old("--service-account-private-key-file", Nothing, "had no effect"),
    old("--version", Nothing, "the same here"),
];

/// The keys of the cloud config, below `Global`.
pub(super) static KEYS: &[Setting] = &[
    both(
        "accessKeyID",
        Keys(KEY_ID, Secret(Encoding::Base64)),
        "Base64 there; plain here, in a file of its own or as `access_key_id`",
    ),
    both(
        "accessKeySecret",
        Keys(KEY_SECRET, Secret(Encoding::Base64)),
        "Base64 there; plain here, in a file of its own or as `access_key_secret`",
    ),
    both(
        "special.keyid",
        ByHand(KEY_ID),
        "key of the ConfigMap `cloud-config`, from which early manifests set `ACCESS_KEY_ID`; put it into a Secret",
    ),
    both("special.keysecret", ByHand(KEY_SECRET), "the same for `ACCESS_KEY_SECRET`"),
    both(
        "uid",
        ByHand(&["cloud.credentials.role_arn"]),
        "no helper program runs; assume a role of the other account instead",
    ),
    both("clusterID", Keys(&["cloud.cluster_id"], Plain(text)), "if it was not set, use `clusterid`"),
    both("kubernetesClusterTag", Keys(&["cloud.cluster_tag"], Plain(text)), ""),
    both("region", Keys(&["cloud.region"], Location(text)), "counts even if vpcid or vswitchid is missing"),
    both("vpcid", Keys(&["cloud.vpc_id"], Location(text)), "counts even if vswitchid is missing"),
    both("zoneid", Keys(&["cloud.zone_id"], Location(text)), "counts even if vpcid or vswitchid is missing"),
    both("vswitchid", Keys(&["cloud.vswitches"], Location(vswitches)), "a list; the zone before `:` may be left out"),
    both("resourceGroupID", Keys(&["cloud.resource_group_id"], Plain(text)), ""),
    both("serviceMaxConcurrentReconciles", Keys(CONCURRENCY, Plain(integer)), ""),
    both("serviceBackendType", Keys(&["service.eni_backends"], Plain(backend_type)), "`true` for `eni`"),
    both("disablePublicSLB", Keys(&["service.disable_public"], Plain(switch)), ""),
    both("nodeMaxConcurrentReconciles", Nothing, "nodes are worked on in one batch after the other"),
    both("nodeMonitorPeriod", ByHand(&["node.period"]), "had no effect there"),
    both("nodeAddrSyncPeriod", ByHand(&["node.period"]), "had no effect there"),
    both(
        "routeMaxConcurrentReconciles",
        Nothing,
        "route tables are worked on one after the other, as the cloud demands",
    ),
    both("routeTableIDs", Keys(&["route.table_ids"], Plain(list)), "a list"),
    both(
        "privateZoneId",
        Keys(&["pvtz.zone_id"], Plain(text)),
        "list `pvtz` in `controllers`; records that the official controller wrote stay as they are, see \
         [differences](../docs/differences.md#names-in-privatezone)",
    ),
    both("privateZoneRecordTTL", Keys(&["pvtz.ttl"], Plain(lifetime)), "60 if absent or 0"),
    both("featureGates", Keys(GATED, Gates), "see the third table"),
];

/// The feature gates.
pub(super) static GATES: &[Setting] = &[
    both("IPv6DualStack", Keys(IPV6, Plain(switch)), ""),
    both("EndpointSlice", Nothing, "used where the API server has them"),
    both("FilterServiceOnNodeChange", Nothing, "Services are always worked on only if a change concerns them"),
    both("LoadBalancerTypeAnnotation", Keys(&["service.type_annotation"], Plain(switch)), ""),
];

const ROLE: &str = "the official controller ignores it; this program assumes the role if its own environment has these variables and \
     nothing else states credentials";
const PROXY: &str = "proxies count here, too: set it in the environment of this program";
const INGRESS: &str = "only its ALB ingress reads it, which is not part of this program";
const SERVER: &str = "counts here, too: set it in the environment of this program";

/// The variables that the official controller reads, and those that its container often has. Sources: `os.Getenv` in its code,
/// its Go libraries, and the webhook that injects RAM roles for service accounts.
pub(super) static VARIABLES: &[Setting] = &[
    both("ACCESS_KEY_ID", Keys(KEY_ID, Secret(Encoding::Plain)), "counts if the cloud config has no key pair"),
    both("ACCESS_KEY_SECRET", Keys(KEY_SECRET, Secret(Encoding::Plain)), "counts if the cloud config has no key pair"),
    both(
        "SERVICE_FORCE_BACKEND_ENI",
        Keys(&["service.eni_backends"], Plain(forced_eni)),
        "counts before `serviceBackendType`; any value but `true` means `false`",
    ),
    both("ECS_ENDPOINT", Keys(&["cloud.endpoints.ecs"], Plain(text)), ""),
    both("VPC_ENDPOINT", Keys(&["cloud.endpoints.vpc"], Plain(text)), ""),
    both("SLB_ENDPOINT", Keys(&["cloud.endpoints.slb"], Plain(text)), ""),
    both("NLB_ENDPOINT", Keys(&["cloud.endpoints.nlb"], Plain(text)), ""),
    both("METADATA_ENDPOINT", Keys(&["cloud.endpoints.metadata"], Plain(text)), ""),
    both("ALICLOUD_CLIENT_SCHEME", Keys(&["cloud.endpoints.scheme"], Plain(scheme)), ""),
    both("EFLO_CONTROLLER_ENDPOINT", Nothing, "this program does not ask for Lingjun nodes"),
    both("X-ACSPROXY-ASCM-CONTEXT", Nothing, "this program does not send the header of Apsara Stack"),
    both("ALIBABA_CLOUD_ROLE_ARN", ByHand(&["cloud.credentials.role_arn"]), ROLE),
    both("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", ByHand(&["cloud.credentials.oidc_provider_arn"]), ROLE),
    both("ALIBABA_CLOUD_OIDC_TOKEN_FILE", ByHand(&["cloud.credentials.oidc_token_file"]), ROLE),
    both("ALIBABA_CLOUD_ROLE_SESSION_NAME", ByHand(&["cloud.credentials.role_session_name"]), ROLE),
    both("HTTP_PROXY", Nothing, PROXY),
    both("HTTPS_PROXY", Nothing, PROXY),
    both("NO_PROXY", Nothing, PROXY),
    both("KUBECONFIG", Nothing, SERVER),
    both("KUBERNETES_SERVICE_HOST", Nothing, SERVER),
    both("KUBERNETES_SERVICE_PORT", Nothing, SERVER),
    both("POD_NAME", Nothing, INGRESS),
    both("POD_NAMESPACE", Nothing, INGRESS),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use expect_test::expect_file;

    use super::*;
    use crate::config;

    const INTRODUCTION: &str = "\
# Coming from the official cloud controller manager

The tables of settings; [the way over and back](../docs/migration.md) is step by step. `alicloud-ccm migrate` converts by these tables.

Flags of the official controller (v2 and v1.9.3), the keys of its cloud config, the variables of its container, and what says the \
same in the file of alicloud-ccm. Where this program has the same variables in its own environment, endpoints, scheme and key pair count as they are.
";

    /// The page `config/migration.md`.
    fn page() -> String {
        let mut page = INTRODUCTION.to_owned();
        let tables = [
            ("Flags", "Flag", FLAGS),
            ("Cloud config (`Global`)", "Key", KEYS),
            ("Feature gates", "Gate", GATES),
            ("Variables", "Variable", VARIABLES),
        ];
        for (heading, column, settings) in tables {
            let _ = write!(page, "\n## {heading}\n\n| {column} | Here | Note |\n|---|---|---|\n");
            for Setting { name, becomes, note, .. } in settings {
                let _ = writeln!(page, "| `{name}` | {} | {note} |", becomes.keys_as_code());
            }
        }
        page
    }

    impl Counterpart {
        fn keys(self) -> &'static [&'static str] {
            match self {
                Keys(keys, _) | ByHand(keys) => keys,
                Nothing => &[],
            }
        }

        /// As the page shows it.
        fn keys_as_code(self) -> String {
            match self.keys() {
                [] => "nothing to set".to_owned(),
                keys => keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
            }
        }
    }

    fn settings() -> impl Iterator<Item = &'static Setting> {
        FLAGS.iter().chain(KEYS).chain(GATES).chain(VARIABLES)
    }

    #[test]
    fn the_committed_page_is_current() {
        expect_file!["../../../config/migration.md"].assert_eq(&page());
    }

    #[test]
    fn every_key_that_is_named_exists() {
        let known = config::keys();
        for Setting { name, becomes, .. } in settings() {
            for key in becomes.keys() {
                assert!(known.iter().any(|known| known == key), "{name} names {key}, which does not exist");
            }
        }
    }

    #[test]
    fn every_setting_is_listed_once_and_says_something() {
        let mut names = BTreeSet::new();
        for Setting { name, becomes, note, .. } in settings() {
            assert!(names.insert(name), "{name} is listed twice");
            assert!(matches!(becomes, Keys(..)) || !note.is_empty(), "{name}");
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
