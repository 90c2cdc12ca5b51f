//! What the values mean, section by section, and which of them go together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use tracing_subscriber::filter::Targets;

use super::catalog::{Catalog, ControllerName};
use super::check::{Checker, nearest};
use super::checked::{Cloud, Config, Endpoints, Kubernetes, LeaderElection, Log, LogFormat, Node, Route, Server};
use super::credentials;
use super::file::{
    CloudSection, FileConfig, InternetChargeType, LeaderElectionSection, LogFormatName, Network, RouteSection, Scheme,
    ServiceDefaultsSection,
};
use super::layers::resolve;
use super::tls;
use super::values::{TimeSpan, parse_cidr, shown};
use crate::plan::service::annotations::values::MOST_USER_TAGS;
use crate::plan::service::settings::{LoadBalancerDefaults, ServiceOptions, VSwitchChoice};

/// The whole configuration. Worthless if the checker has found a problem.
pub(super) fn config(c: &mut Checker<'_>, file: &FileConfig, catalog: &Catalog) -> Config {
    Config {
        controllers: controllers(c, &file.controllers, catalog),
        cloud: cloud(c, &file.cloud, catalog),
        kubernetes: kubernetes(c, file),
        leader_election: leader_election(c, &file.leader_election),
        server: server(c, file),
        log: log(c, file),
        node: node(c, file),
        route: route(c, &file.route),
        service: service(c, file),
    }
}

fn controllers(c: &mut Checker<'_>, names: &[String], catalog: &Catalog) -> BTreeSet<ControllerName> {
    let mut all = false;
    let (mut on, mut off, mut seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, written) in names.iter().enumerate() {
        let key = format!("controllers.{index}");
        let name = written.strip_prefix('-').unwrap_or(written);
        if !seen.insert(name) {
            c.bad(&key, format!("names {} twice", shown(name)));
            continue;
        }
        if written == "*" {
            all = true;
            continue;
        }
        let Some(entry) = catalog.controllers.iter().find(|entry| entry.is_called(name)) else {
            unknown_controller(c, &key, name, catalog);
            continue;
        };
        if !written.starts_with('-') {
            on.insert(entry.name);
        } else if entry.parts.contains(&name) {
            let whole = entry.name.as_str();
            let help = format!("{}, or leave out {whole:?} as a whole", entry.instead_of_parts);
            c.bad_with(&key, format!("cannot leave out {} alone: it is part of {whole:?}", shown(name)), Some(help));
        } else {
            off.insert(entry.name);
        }
    }
    if let Some(both) = on.intersection(&off).next() {
        c.bad("controllers", format!("says both yes and no to {:?}", both.as_str()));
    }
    if !off.is_empty() && !all && on.is_empty() {
        c.bad_with("controllers", "only leaves controllers out", Some("put \"*\" first to have all the others".into()));
    }
    if all {
        on.extend(catalog.controllers.iter().map(|entry| entry.name).filter(|name| !off.contains(name)));
    }
    on
}

fn unknown_controller(c: &mut Checker<'_>, key: &str, name: &str, catalog: &Catalog) {
    let known = format!("{}, \"*\" or one of these after \"-\"", catalog.quoted_controllers());
    if catalog.absent_controllers.contains(&name) {
        let help = format!("leave it out; what runs here is {known}");
        return c.bad_with(key, format!("names {}, which is not part of this program", shown(name)), Some(help));
    }
    let help = nearest(name, catalog.controller_names()).map(|near| format!("did you mean {near:?}?"));
    c.bad_with(key, format!("names the unknown controller {}; allowed are {known}", shown(name)), help);
}

fn cloud(c: &mut Checker<'_>, section: &CloudSection, catalog: &Catalog) -> Cloud {
    region(c, section.region.as_deref());
    ids(c, "cloud.vpc_id", section.vpc_id.as_deref(), "vpc-");
    ids(c, "cloud.resource_group_id", section.resource_group_id.as_deref(), "rg-");
    zone(c, "cloud.zone_id", section.zone_id.as_deref());
    tag_key(c, "cloud.cluster_tag", None, &section.cluster_tag);
    within(c, "cloud.timeout", section.timeout, Duration::from_secs(1), Duration::from_secs(300));
    Cloud {
        region: section.region.clone(),
        vpc_id: section.vpc_id.clone(),
        zone_id: section.zone_id.clone(),
        vswitches: vswitches(c, &section.vswitches),
        cluster_id: cluster_id(c, section.cluster_id.as_deref()),
        cluster_tag: section.cluster_tag.clone(),
        resource_group_id: section.resource_group_id.clone(),
        credentials: credentials::credentials(c, &section.credentials),
        endpoints: endpoints(c, section),
        budget_share: section.budget_share,
        quotas: quotas(c, &section.quotas, catalog),
        timeout: section.timeout.0,
    }
}

/// Stands for every action without an entry of its own.
const ALL_ACTIONS: &str = "*";

fn quotas(c: &mut Checker<'_>, quotas: &BTreeMap<String, u32>, catalog: &Catalog) -> BTreeMap<String, u32> {
    const SECTION: &str = "cloud.quotas";
    for (name, quota) in quotas {
        if name != ALL_ACTIONS && !catalog.actions.contains(&name.as_str()) {
            let near = nearest(name, catalog.actions.iter().copied()).map_or_else(
                || {
                    format!(
                        "allowed are {ALL_ACTIONS:?} and the actions that are called, such as {:?}",
                        catalog.example_action
                    )
                },
                |near| format!("did you mean {near:?}?"),
            );
            c.bad_entry(SECTION, name, format!("no action {} is called; {near}", shown(name)));
        }
        if !(1..=MOST_CALLS).contains(quota) {
            c.bad_entry(SECTION, name, format!("{name:?} must be from 1 to {MOST_CALLS} calls a minute, not {quota}"));
        }
    }
    quotas.clone()
}

/// More than any quota that the cloud gives.
const MOST_CALLS: u32 = 100_000;

/// The id is the last part of `k8s/<port>/<service>/<namespace>/<cluster id>`, and of dotted names in other products.
fn cluster_id(c: &mut Checker<'_>, id: Option<&str>) -> String {
    let Some(id) = id else {
        if c.sound(&["cloud.cluster_id", "cloud"]) {
            let help = "set it to a name that no other cluster of the account has; a cluster that ran the official controller \
                        without clusterID has \"clusterid\"";
            c.bad_with("cloud.cluster_id", "is missing", Some(help.to_owned()));
        }
        return String::new();
    };
    let fits = id.chars().all(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '.' | '_' | '-'));
    if !fits || id.is_empty() || id.len() > 64 {
        c.bad("cloud.cluster_id", format!("must be 1 to 64 letters, digits, '.', '_' and '-', not {}", shown(id)));
    }
    id.to_owned()
}

fn region(c: &mut Checker<'_>, region: Option<&str>) {
    let fits = |text: &str| {
        text.split('-').count() > 1 && text.split('-').all(|part| !part.is_empty() && part.chars().all(is_lower))
    };
    if let Some(text) = region.filter(|text| !fits(text)) {
        c.bad("cloud.region", format!("must be a region such as \"cn-hangzhou\", not {}", shown(text)));
    }
}

fn zone(c: &mut Checker<'_>, key: &str, zone: Option<&str>) {
    if let Some(text) = zone.filter(|text| !is_zone(text)) {
        c.bad(key, format!("must be a zone such as \"cn-hangzhou-i\", not {}", shown(text)));
    }
}

fn is_zone(text: &str) -> bool {
    text.contains('-') && text.split('-').all(|part| !part.is_empty() && part.chars().all(is_lower))
}

fn is_lower(ch: char) -> bool {
    ch.is_ascii_lowercase() || ch.is_ascii_digit()
}

fn is_id(text: &str, prefix: &str) -> bool {
    let rest = text.strip_prefix(prefix).unwrap_or_default();
    !rest.is_empty() && rest.chars().all(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_'))
}

fn ids<'t>(c: &mut Checker<'_>, key: &str, given: impl IntoIterator<Item = &'t str>, prefix: &str) {
    for text in given {
        if !is_id(text, prefix) {
            c.bad(key, format!("must be an id such as \"{prefix}bp1example\", not {}", shown(text)));
        }
    }
}

/// Lists are compared item by item with each other, so they are bounded.
const LONGEST_LIST: usize = 100;

fn is_short(c: &mut Checker<'_>, key: &str, list: &[String]) -> bool {
    if list.len() > LONGEST_LIST {
        c.bad(key, format!("may list {LONGEST_LIST} at most, not {}", list.len()));
    }
    list.len() <= LONGEST_LIST
}

fn vswitches(c: &mut Checker<'_>, written: &[String]) -> Vec<VSwitchChoice> {
    if !is_short(c, "cloud.vswitches", written) {
        return Vec::new();
    }
    let mut choices: Vec<VSwitchChoice> = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let key = format!("cloud.vswitches.{index}");
        let (stated, id) = text.split_once(':').map_or((None, text.as_str()), |(zone, id)| (Some(zone), id));
        if !is_id(id, "vsw-") || stated.is_some_and(|zone| !is_zone(zone)) {
            c.bad(&key, format!("must list \"vsw-...\" or \"zone:vsw-...\", not {}", shown(text)));
        } else if choices.iter().any(|choice| choice.id == id) {
            c.bad(&key, format!("lists {} twice", shown(id)));
        }
        choices.push(VSwitchChoice { zone: stated.map(str::to_owned), id: id.to_owned() });
    }
    choices
}

fn endpoints(c: &mut Checker<'_>, section: &CloudSection) -> Endpoints {
    let file = &section.endpoints;
    let plain_http = file.scheme == Scheme::Http;
    let mut overrides = BTreeMap::new();
    let products = [("ecs", &file.ecs), ("vpc", &file.vpc), ("slb", &file.slb), ("sts", &file.sts)];
    for (product, written) in products {
        if let Some(text) = written.as_deref() {
            overrides.insert(product.to_owned(), endpoint(c, product, text, plain_http));
        }
    }
    Endpoints {
        vpc_network: file.network == Network::Vpc,
        plain_http,
        overrides,
        metadata: base_url(c, "cloud.endpoints.metadata", &file.metadata),
        metadata_v1_fallback: file.metadata_v1_fallback,
    }
}

/// The host and port. A scheme may be written, because the official controller takes URLs too, but must agree.
fn endpoint(c: &mut Checker<'_>, product: &str, text: &str, plain_http: bool) -> String {
    let key = format!("cloud.endpoints.{product}");
    let (scheme, host) = text.split_once("://").map_or((None, text), |(scheme, host)| (Some(scheme), host));
    let host = host.trim_end_matches('/');
    if scheme == Some("http") && !plain_http && c.sound(&["cloud.endpoints.scheme"]) {
        let help = "set cloud.endpoints.scheme to \"http\" if calls may really go unencrypted".to_owned();
        let message = format!("asks for plain HTTP with {}, but cloud.endpoints.scheme is \"https\"", shown(text));
        c.bad_with(&key, message, Some(help));
    } else if scheme == Some("https") && plain_http {
        c.bad(&key, format!("asks for HTTPS with {}, but cloud.endpoints.scheme is \"http\"", shown(text)));
    } else if !matches!(scheme, None | Some("http" | "https")) || !is_authority(host) {
        c.bad(&key, format!("must be a host, or host:port, not {}", shown(text)));
    }
    host.to_owned()
}

/// Whether this is a host, perhaps with a port, and nothing else.
fn is_authority(text: &str) -> bool {
    text.parse::<http::uri::Authority>().is_ok_and(|authority| {
        let bare = authority.host().len() == text.len();
        !authority.host().is_empty()
            && !text.contains('@')
            && (bare || authority.port_u16().is_some_and(|port| port > 0))
    })
}

fn base_url(c: &mut Checker<'_>, key: &str, text: &str) -> String {
    let url = text.trim_end_matches('/');
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_authority(host) || url.parse::<http::Uri>().is_err() || path.contains(['?', '#']) {
        c.bad(key, format!("must be a URL such as \"http://100.100.100.200\", not {}", shown(text)));
    }
    url
}

fn kubernetes(c: &mut Checker<'_>, file: &FileConfig) -> Kubernetes {
    let section = &file.kubernetes;
    within(c, "kubernetes.timeout", section.timeout, Duration::from_secs(1), Duration::from_secs(300));
    if let Some(context) = section.context.as_deref() {
        not_empty(c, "kubernetes.context", context);
    }
    let server = section.server.as_deref().map(|text| {
        if !text.starts_with("https://") && !text.starts_with("http://") {
            c.bad("kubernetes.server", format!("must be a URL such as \"https://10.0.0.1:6443\", not {}", shown(text)));
            return text.to_owned();
        }
        base_url(c, "kubernetes.server", text)
    });
    Kubernetes {
        kubeconfig: section.kubeconfig.as_deref().map(|path| resolve(c.source, path)),
        context: section.context.clone(),
        server,
        qps: section.qps,
        burst: section.burst,
        timeout: section.timeout.0,
    }
}

fn server(c: &mut Checker<'_>, file: &FileConfig) -> Server {
    const AUTHORIZATION: &str = "server.authorization";
    let section = &file.server;
    let (tls_cert_file, tls_key_file) = tls::files(c, section, file.cloud.credentials.allow_readable_files).unzip();
    if section.authorization && tls_cert_file.is_none() && !section.address.is_loopback() {
        let help = "state tls_cert_file and tls_key_file, or listen on a loopback address";
        c.bad_with(AUTHORIZATION, "would have tokens sent in clear text over the network", Some(help.to_owned()));
    }
    Server {
        address: section.address,
        port: section.port,
        tls_cert_file,
        tls_key_file,
        authorization: section.authorization,
    }
}

/// How much later than `retry_period` a try may come.
const JITTER: f64 = 1.2;

/// What must be left of a lease between two renewals, or no write could ever start: writes may last five seconds.
const ROOM_FOR_WRITES: Duration = Duration::from_secs(6);
/// The part of a lease that is used; the rest makes up for clocks of different speed.
const USED_PART: f64 = 14.0 / 15.0;

fn leader_election(c: &mut Checker<'_>, section: &LeaderElectionSection) -> LeaderElection {
    const LEASE: &str = "leader_election.lease_duration";
    const RENEW: &str = "leader_election.renew_deadline";
    const RETRY: &str = "leader_election.retry_period";
    let (lease, renew, retry) = (section.lease_duration, section.renew_deadline, section.retry_period);
    within(c, LEASE, lease, Duration::from_secs(1), Duration::from_secs(3600));
    if c.sound(&[LEASE]) && lease.0.subsec_nanos() != 0 {
        c.bad(LEASE, format!("must be whole seconds, not {lease}"));
    }
    within(c, RETRY, retry, Duration::from_millis(100), Duration::from_secs(3600));
    if c.sound(&[LEASE, RENEW]) && renew >= lease {
        let key = if c.states(RENEW) { RENEW } else { LEASE };
        c.bad(key, format!("does not fit: renew_deadline ({renew}) must be shorter than lease_duration ({lease})"));
    }
    if c.sound(&[RENEW, RETRY]) && renew.0 <= retry.0.mul_f64(JITTER) {
        let key = if c.states(RETRY) { RETRY } else { RENEW };
        c.bad(
            key,
            format!("does not fit: renew_deadline ({renew}) must be more than 1.2 times retry_period ({retry})"),
        );
    }
    let shortest = (retry.0.mul_f64(JITTER) + ROOM_FOR_WRITES).div_f64(USED_PART);
    if section.enabled && c.sound(&[LEASE, RENEW, RETRY]) && lease.0 < shortest {
        let key = if c.states(LEASE) { LEASE } else { RETRY };
        let shortest = TimeSpan::from_secs(shortest.as_secs() + u64::from(shortest.subsec_nanos() > 0));
        c.bad(
            key,
            format!(
                "does not fit: with a retry_period of {retry}, lease_duration must be at least {shortest}, or there is no \
                 time to write between renewals; it is {lease}"
            ),
        );
    }
    for (key, text, dots) in
        [("leader_election.namespace", &section.namespace, false), ("leader_election.name", &section.name, true)]
    {
        if !is_object_name(text, dots) {
            c.bad(
                key,
                format!("must be the name of an object: lower case letters, digits and '-', not {}", shown(text)),
            );
        }
    }
    if let Some(identity) = section.identity.as_deref() {
        not_empty(c, "leader_election.identity", identity);
    }
    LeaderElection {
        enabled: section.enabled,
        namespace: section.namespace.clone(),
        name: section.name.clone(),
        resource_lock: section.resource_lock,
        identity: section.identity.clone(),
        lease_duration: lease.0,
        renew_deadline: renew.0,
        retry_period: retry.0,
    }
}

fn is_object_name(text: &str, dots: bool) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.chars().all(|ch| is_lower(ch) || ch == '-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if dots { text.len() <= 253 && text.split('.').all(label) } else { text.len() <= 63 && label(text) }
}

fn log(c: &mut Checker<'_>, file: &FileConfig) -> Log {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let level = &file.log.level;
    for word in level.split(',').map(str::trim).filter(|word| !word.contains(['=', '['])) {
        if !LEVELS.contains(&word.to_lowercase().as_str()) {
            let help = nearest(word, LEVELS.into_iter()).map(|near| format!("did you mean {near:?}?"));
            let message = format!("has no level {}; allowed are error, warn, info, debug, trace and off", shown(word));
            c.bad_with("log.level", message, help);
        }
    }
    if c.sound(&["log.level"]) && level.parse::<Targets>().is_err() {
        c.bad("log.level", format!("must be a level or \"level,part=level\", not {}", shown(level)));
    }
    let format = match file.log.format {
        LogFormatName::Text => LogFormat::Text,
        LogFormatName::Json => LogFormat::Json,
    };
    Log { format, level: level.clone() }
}

/// A time between repetitions, of which zero means none.
fn or_never(c: &mut Checker<'_>, key: &str, written: TimeSpan, least: Duration) -> Option<Duration> {
    if written.0.is_zero() {
        return None;
    }
    within(c, key, written, least, DAY);
    Some(written.0)
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn node(c: &mut Checker<'_>, file: &FileConfig) -> Node {
    let section = &file.node;
    let period = or_never(c, "node.period", section.period, Duration::from_secs(10));
    within(c, "node.aggregation", section.aggregation, Duration::ZERO, Duration::from_secs(60));
    within(c, "node.removal_grace", section.removal_grace, Duration::from_secs(10), DAY);
    within(c, "node.removal_interval", section.removal_interval, Duration::from_secs(5), HOUR);
    within(c, "node.removal_window", section.removal_window, Duration::from_secs(60), DAY);
    Node {
        period,
        batch_size: section.batch_size,
        aggregation: section.aggregation.0,
        disable_source_dest_check: section.disable_source_dest_check,
        shutdown_taint: section.shutdown_taint,
        remove_released: section.remove_released,
        removal_grace: section.removal_grace.0,
        removal_interval: section.removal_interval.0,
        removal_limit: section.removal_limit,
        removal_window: section.removal_window.0,
        ipv6: section.ipv6,
        discover: section.discover,
    }
}

fn route(c: &mut Checker<'_>, section: &RouteSection) -> Route {
    let period = or_never(c, "route.period", section.period, Duration::from_secs(10));
    within(c, "route.aggregation", section.aggregation, Duration::ZERO, Duration::from_secs(60));
    let mut tables = BTreeSet::new();
    for (index, id) in section.table_ids.iter().enumerate() {
        let key = format!("route.table_ids.{index}");
        ids(c, &key, [id.as_str()], "vtb-");
        if !tables.insert(id) {
            c.bad(&key, format!("lists {} twice", shown(id)));
        }
    }
    Route {
        cluster_cidrs: cluster_cidrs(c, &section.cluster_cidrs),
        table_ids: section.table_ids.clone(),
        period,
        batch_size: section.batch_size,
        aggregation: section.aggregation.0,
        removal_limit: section.removal_limit,
    }
}

fn cluster_cidrs(c: &mut Checker<'_>, written: &[String]) -> Vec<IpNet> {
    if !is_short(c, "route.cluster_cidrs", written) {
        return Vec::new();
    }
    let mut nets: Vec<IpNet> = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let key = format!("route.cluster_cidrs.{index}");
        match parse_cidr(text) {
            Err(message) => c.bad(&key, format!("cannot be used: {message}")),
            Ok(net) => {
                if net.prefix_len() == 0 {
                    c.bad(&key, format!("must be the pod network, not every address ({text})"));
                } else if nets.contains(&net) {
                    c.bad(&key, format!("lists {text} twice"));
                } else if let Some(other) = nets.iter().find(|other| other.contains(&net) || net.contains(*other)) {
                    c.bad(&key, format!("lists {text}, which overlaps {other}"));
                }
                nets.push(net);
            }
        }
    }
    nets
}

fn service(c: &mut Checker<'_>, file: &FileConfig) -> ServiceOptions {
    let section = &file.service;
    let drift_check = or_never(c, "service.drift_check", section.drift_check, Duration::from_secs(60));
    ServiceOptions {
        concurrency: section.concurrency,
        drift_check,
        drift_reads: section.drift_reads,
        eni_backends: section.eni_backends,
        disable_public: section.disable_public,
        backend_batch_size: section.backend_batch_size,
        exclude_masters: section.exclude_masters,
        local_health_check: section.local_health_check,
        ipv6: section.ipv6,
        type_annotation: section.type_annotation,
        defaults: service_defaults(c, &section.defaults),
    }
}

fn service_defaults(c: &mut Checker<'_>, section: &ServiceDefaultsSection) -> LoadBalancerDefaults {
    const BANDWIDTH: &str = "service.defaults.bandwidth";
    const SLAVE: &str = "service.defaults.slave_zone";
    if !section.spec.starts_with("slb.") || section.spec.contains(char::is_whitespace) {
        let given = shown(&section.spec);
        c.bad("service.defaults.spec", format!("must be a specification such as \"slb.s1.small\", not {given}"));
    }
    let by_bandwidth = section.internet_charge_type == Some(InternetChargeType::PayByBandwidth);
    if section.bandwidth.is_some() && !by_bandwidth && c.sound(&[BANDWIDTH, "service.defaults.internet_charge_type"]) {
        let help = "set internet_charge_type to \"paybybandwidth\", or leave bandwidth out".to_owned();
        c.bad_with(BANDWIDTH, "has no effect without internet_charge_type = \"paybybandwidth\"", Some(help));
    }
    zone(c, "service.defaults.master_zone", section.master_zone.as_deref());
    zone(c, SLAVE, section.slave_zone.as_deref());
    if c.sound(&["service.defaults.master_zone", SLAVE]) && section.slave_zone.is_some() {
        if section.master_zone.is_none() {
            c.bad(SLAVE, "needs master_zone");
        } else if section.master_zone == section.slave_zone {
            c.bad(SLAVE, "must differ from master_zone");
        }
    }
    tags(c, &section.tags);
    LoadBalancerDefaults {
        address_type: word(section.address_type),
        instance_charge_type: word(section.instance_charge_type),
        spec: section.spec.clone(),
        internet_charge_type: section.internet_charge_type.map(word),
        bandwidth: section.bandwidth,
        master_zone: section.master_zone.clone(),
        slave_zone: section.slave_zone.clone(),
        delete_protection: section.delete_protection,
        modification_protection: section.modification_protection,
        scheduler: word(section.scheduler),
        tags: section.tags.clone(),
    }
}

/// A choice as it is written.
fn word(choice: impl serde::Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn tags(c: &mut Checker<'_>, tags: &BTreeMap<String, String>) {
    const SECTION: &str = "service.defaults.tags";
    if tags.len() > MOST_USER_TAGS {
        c.bad(SECTION, format!("may have {MOST_USER_TAGS} tags at most, not {}", tags.len()));
    }
    for (key, value) in tags {
        tag_key(c, SECTION, Some(key), key);
        if value.chars().count() > 128 || value.contains("http://") || value.contains("https://") {
            c.bad_entry(
                SECTION,
                key,
                format!("a tag's value has up to 128 characters and no URL, not {}", shown(value)),
            );
        }
        if ["kubernetes.do.not.delete", "kubernetes.reused.by.user", "ack.aliyun.com"].contains(&key.as_str()) {
            c.bad_entry(SECTION, key, format!("the tag {key:?} marks owners and cannot be set"));
        }
    }
}

fn tag_key(c: &mut Checker<'_>, section: &str, entry: Option<&str>, key: &str) {
    let fits = (1..=64).contains(&key.chars().count())
        && !["aliyun", "acs:"].iter().any(|start| key.starts_with(start))
        && !["http://", "https://"].iter().any(|url| key.contains(url))
        && key.trim() == key;
    if fits {
        return;
    }
    let allowed = "1 to 64 characters, without \"aliyun\" or \"acs:\" at its start and without a URL";
    match entry {
        Some(entry) => c.bad_entry(section, entry, format!("a tag's key has {allowed}, not {}", shown(key))),
        None => c.bad(section, format!("must be the key of a tag: {allowed}, not {}", shown(key))),
    }
}

pub(super) fn within(c: &mut Checker<'_>, key: &str, given: TimeSpan, least: Duration, most: Duration) {
    if c.sound(&[key]) && (given.0 < least || given.0 > most) {
        c.bad(key, format!("must be from {} to {}, not {given}", TimeSpan(least), TimeSpan(most)));
    }
}

pub(super) fn not_empty(c: &mut Checker<'_>, key: &str, text: &str) {
    if text.trim().is_empty() {
        c.bad_with(key, "is empty", Some("leave the key out to have its default".to_owned()));
    }
}
