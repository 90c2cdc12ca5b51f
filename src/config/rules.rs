//! What values mean together, section by section. What one key may hold by itself is stated in [`file`](super::file).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use tracing_subscriber::filter::Targets;

use super::catalog::ControllerEntry;
use super::checked::{Cloud, Config, Endpoints, Kubernetes, LeaderElection, Log, NlbOptions, Route, Server, Traces};
use super::checker::Checker;
use super::credentials;
use super::file::{
    AddressType, CloudSection, FileConfig, InternetChargeType, NlbDefaultsSection, NlbSection, Pvtz, RouteSection,
    Scheme, ServerSection, ServiceDefaultsSection, ServiceSection, TracesSection,
};
use super::formats::{is_id, is_tag_key, is_zone};
use super::secret::Secret;
use super::tls;
use super::values::{TimeSpan, parse_cidr, shown};
use crate::plan::loadbalancer::annotations::values::MOST_USER_TAGS;
use crate::plan::loadbalancer::problem::did_you_mean;
use crate::plan::loadbalancer::settings::{LoadBalancerDefaults, NlbDefaults, ServiceOptions, VSwitchChoice};

/// The whole configuration. The result is of no use if the checker has found a problem.
pub(super) fn config(c: &mut Checker<'_>, file: FileConfig) -> Config {
    let allow_readable = file.cloud.credentials.allow_readable_files;
    leader_election(c, &file.leader_election);
    log(c, &file.log);
    pvtz(c, &file.pvtz);
    Config {
        controllers: controllers(c, &file.controllers),
        cloud: cloud(c, file.cloud),
        kubernetes: kubernetes(c, file.kubernetes),
        leader_election: file.leader_election,
        server: server(c, &file.server, allow_readable),
        log: file.log,
        traces: traces(c, file.traces),
        node: file.node,
        route: route(c, file.route),
        service: service(c, file.service),
        nlb: nlb(c, file.nlb),
        volume_labels: file.volume_labels,
        pvtz: file.pvtz,
    }
}

fn controllers(c: &mut Checker<'_>, names: &[String]) -> BTreeSet<&'static str> {
    let catalog = c.catalog;
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
            unknown_controller(c, &key, name);
            continue;
        };
        if !written.starts_with('-') {
            on.insert(entry.name);
        } else if entry.parts.contains(&name) {
            let whole = entry.name;
            let help = format!("{}, or leave out {whole:?} as a whole", entry.instead_of_parts);
            c.bad_with(&key, format!("cannot leave out {} alone: it is part of {whole:?}", shown(name)), Some(&help));
        } else {
            off.insert(entry.name);
        }
    }
    if let Some(both) = on.intersection(&off).next() {
        c.bad("controllers", format!("says both yes and no to {:?}", both));
    }
    if !off.is_empty() && !all && on.is_empty() {
        c.bad_with("controllers", "only leaves controllers out", Some("put \"*\" first to have all the others"));
    }
    let lacks_keys = |c: &Checker<'_>, entry: &ControllerEntry| {
        !entry.needs.is_empty() && !entry.needs.iter().any(|key| c.states(key))
    };
    for entry in catalog.controllers.iter().filter(|entry| on.contains(&entry.name)) {
        if lacks_keys(c, entry) {
            let name = entry.name;
            let help = format!("set {}, or leave {name:?} out of controllers", entry.needs.join(" or "));
            c.bad_with(entry.needs[0], format!("is missing, which the controller {name:?} needs"), Some(&help));
        }
    }
    if all {
        let others = catalog.controllers.iter().filter(|entry| !off.contains(&entry.name) && !lacks_keys(c, entry));
        on.extend(others.map(|entry| entry.name));
    }
    on
}

fn unknown_controller(c: &mut Checker<'_>, key: &str, name: &str) {
    let catalog = c.catalog;
    let quoted: Vec<_> = catalog.controllers.iter().map(|entry| format!("{:?}", entry.name)).collect();
    let known = format!("{}, \"*\" or one of these after \"-\"", quoted.join(", "));
    if catalog.absent_controllers.contains(&name) {
        let help = format!("leave it out; what runs here is {known}");
        return c.bad_with(key, format!("names {}, which is not part of this program", shown(name)), Some(&help));
    }
    let help = did_you_mean(name, catalog.controller_names());
    c.bad_with(key, format!("names the unknown controller {}; allowed are {known}", shown(name)), help.as_deref());
}

fn cloud(c: &mut Checker<'_>, section: CloudSection) -> Cloud {
    if section.cluster_id.is_none() && c.sound(&["cloud.cluster_id", "cloud"]) {
        let help = "set it to a name that no other cluster of the account has; a cluster that ran the official controller \
                    without clusterID has \"clusterid\"";
        c.bad_with("cloud.cluster_id", "is missing", Some(help));
    }
    quotas(c, &section.quotas);
    Cloud {
        vswitches: vswitches(c, &section.vswitches),
        credentials: credentials::credentials(c, section.credentials),
        endpoints: endpoints(c, section.endpoints),
        region: section.region,
        vpc_id: section.vpc_id,
        zone_id: section.zone_id,
        cluster_id: section.cluster_id.unwrap_or_default(),
        cluster_tag: section.cluster_tag,
        resource_group_id: section.resource_group_id,
        budget_share: section.budget_share,
        quotas: section.quotas,
        timeout: section.timeout,
    }
}

/// Stands for every action without an entry of its own.
const ALL_ACTIONS: &str = "*";

fn quotas(c: &mut Checker<'_>, quotas: &BTreeMap<String, u32>) {
    const SECTION: &str = "cloud.quotas";
    let catalog = c.catalog;
    for (name, quota) in quotas {
        if name != ALL_ACTIONS && !catalog.actions.contains(&name.as_str()) {
            let near = did_you_mean(name, catalog.actions.iter().copied());
            let example = catalog.example_action;
            let near = near.unwrap_or_else(|| {
                format!("allowed are {ALL_ACTIONS:?} and the actions that are called, such as {example:?}")
            });
            c.bad_entry(SECTION, name, format!("no action {} is called; {near}", shown(name)));
        }
        if !(1..=MOST_CALLS).contains(quota) {
            c.bad_entry(SECTION, name, format!("{name:?} must be from 1 to {MOST_CALLS} calls a minute, not {quota}"));
        }
    }
}

/// More than any quota that the cloud gives.
const MOST_CALLS: u32 = 100_000;

fn vswitches(c: &mut Checker<'_>, written: &[String]) -> Vec<VSwitchChoice> {
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

fn endpoints(c: &mut Checker<'_>, mut section: Endpoints) -> Endpoints {
    let plain_http = section.scheme == Scheme::Http;
    let Endpoints { ecs, vpc, slb, nlb, pvtz, sts, .. } = &mut section;
    for (product, host) in [("ecs", ecs), ("vpc", vpc), ("slb", slb), ("nlb", nlb), ("pvtz", pvtz), ("sts", sts)] {
        *host = host.take().map(|text| endpoint(c, product, &text, plain_http));
    }
    section.metadata = base_url(c, "cloud.endpoints.metadata", &section.metadata, "http://100.100.100.200");
    section
}

/// The host and port. A scheme may be written, because the official controller takes URLs too, but must agree.
fn endpoint(c: &mut Checker<'_>, product: &str, text: &str, plain_http: bool) -> String {
    let key = format!("cloud.endpoints.{product}");
    let (scheme, host) = text.split_once("://").map_or((None, text), |(scheme, host)| (Some(scheme), host));
    let host = host.trim_end_matches('/');
    if scheme == Some("http") && !plain_http && c.sound(&["cloud.endpoints.scheme"]) {
        let help = "set cloud.endpoints.scheme to \"http\" if calls may really go unencrypted";
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

fn base_url(c: &mut Checker<'_>, key: &str, text: &str, example: &str) -> String {
    let url = text.trim_end_matches('/');
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_authority(host) || url.parse::<http::Uri>().is_err() || path.contains(['?', '#']) {
        c.bad(key, format!("must be a URL such as {example:?}, not {}", shown(text)));
    }
    url
}

fn kubernetes(c: &mut Checker<'_>, mut section: Kubernetes) -> Kubernetes {
    const SERVER: &str = "kubernetes.server";
    section.kubeconfig = section.kubeconfig.map(|path| c.source.resolve(&path));
    section.server = section.server.map(|text| url(c, SERVER, &text, "https://10.0.0.1:6443"));
    section
}

/// A base URL whose scheme must be written.
fn url(c: &mut Checker<'_>, key: &str, text: &str, example: &str) -> String {
    if !text.starts_with("https://") && !text.starts_with("http://") {
        c.bad(key, format!("must be a URL such as {example:?}, not {}", shown(text)));
        return text.to_owned();
    }
    base_url(c, key, text, example)
}

/// What OTLP over HTTP adds to a base URL.
const TRACES_PATH: &str = "/v1/traces";

fn traces(c: &mut Checker<'_>, section: TracesSection) -> Traces {
    const ENDPOINT: &str = "traces.endpoint";
    let endpoint = section.endpoint.map(|text| {
        let base = url(c, ENDPOINT, &text, "http://127.0.0.1:4318");
        format!("{}{TRACES_PATH}", base.trim_end_matches(TRACES_PATH))
    });
    for (name, value) in &section.headers {
        header(c, name, value);
    }
    let headers = section.headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    Traces { endpoint, headers, sample_ratio: section.sample_ratio }
}

/// Notes what is wrong with a header, never its value.
fn header(c: &mut Checker<'_>, name: &str, value: &str) {
    const HEADERS: &str = "traces.headers";
    const OWN: [&str; 5] = ["content-type", "content-length", "host", "connection", "transfer-encoding"];
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        c.bad_entry(HEADERS, name, format!("{} cannot be the name of a header", shown(name)));
    } else if OWN.contains(&name.to_lowercase().as_str()) {
        c.bad_entry(HEADERS, name, format!("the header {name:?} is set by this program"));
    }
    if http::HeaderValue::from_str(value).is_err() {
        c.bad_entry(HEADERS, name, format!("the value of {} has characters that no header may have", shown(name)));
    }
}

fn server(c: &mut Checker<'_>, section: &ServerSection, allow_readable: bool) -> Server {
    let ServerSection { address, port, authorization, .. } = *section;
    let (tls_cert_file, tls_key_file) = tls::files(c, section, allow_readable).unzip();
    Server { address, port, tls_cert_file, tls_key_file, authorization }
}

/// How much later than `retry_period` a try may come.
const JITTER: f64 = 1.2;

/// What must be left of a lease between two renewals, or no write could ever start: writes may last five seconds.
const ROOM_FOR_WRITES: Duration = Duration::from_secs(6);
/// The part of a lease that is used; the rest makes up for clocks of different speed.
const USED_PART: f64 = 14.0 / 15.0;

fn leader_election(c: &mut Checker<'_>, section: &LeaderElection) {
    const LEASE: &str = "leader_election.lease_duration";
    const RENEW: &str = "leader_election.renew_deadline";
    const RETRY: &str = "leader_election.retry_period";
    let [lease, renew, retry] = [section.lease_duration, section.renew_deadline, section.retry_period].map(TimeSpan);
    if c.sound(&[LEASE]) && lease.0.subsec_nanos() != 0 {
        c.bad(LEASE, format!("must be whole seconds, not {lease}"));
    }
    if c.sound(&[LEASE, RENEW]) && renew >= lease {
        unfit(c, [RENEW, LEASE], format!("renew_deadline ({renew}) must be shorter than lease_duration ({lease})"));
    }
    if c.sound(&[RENEW, RETRY]) && renew.0 <= retry.0.mul_f64(JITTER) {
        unfit(
            c,
            [RETRY, RENEW],
            format!("renew_deadline ({renew}) must be more than 1.2 times retry_period ({retry})"),
        );
    }
    let shortest = (retry.0.mul_f64(JITTER) + ROOM_FOR_WRITES).div_f64(USED_PART);
    if section.enabled && c.sound(&[LEASE, RENEW, RETRY]) && lease.0 < shortest {
        let shortest = TimeSpan(Duration::from_secs(shortest.as_secs() + u64::from(shortest.subsec_nanos() > 0)));
        let message = format!(
            "with a retry_period of {retry}, lease_duration must be at least {shortest}, or there is no time to write \
             between renewals; it is {lease}"
        );
        unfit(c, [LEASE, RETRY], message);
    }
}

/// Notes that two keys do not go together, at the first of them if it is stated.
fn unfit(c: &mut Checker<'_>, [preferred, other]: [&str; 2], message: String) {
    let key = if c.states(preferred) { preferred } else { other };
    c.bad(key, format!("does not fit: {message}"));
}

fn log(c: &mut Checker<'_>, section: &Log) {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let level = &section.level;
    for word in level.split(',').map(str::trim).filter(|word| !word.contains(['=', '['])) {
        if !LEVELS.contains(&word.to_lowercase().as_str()) {
            let help = did_you_mean(word, LEVELS.into_iter());
            let message = format!("has no level {}; allowed are error, warn, info, debug, trace and off", shown(word));
            c.bad_with("log.level", message, help.as_deref());
        }
    }
    if c.sound(&["log.level"]) && level.parse::<Targets>().is_err() {
        c.bad("log.level", format!("must be a level or \"level,part=level\", not {}", shown(level)));
    }
}

fn route(c: &mut Checker<'_>, section: RouteSection) -> Route {
    let RouteSection { cluster_cidrs: written, table_ids, period, batch_size, aggregation, removal_limit } = section;
    let cluster_cidrs = cluster_cidrs(c, &written);
    Route { cluster_cidrs, table_ids, period, batch_size, aggregation, removal_limit }
}

/// Seconds that a record of a private zone may be remembered, as the vendor states them.
pub const RECORD_TTLS: [u32; 6] = [5, 30, 60, 3600, 43_200, 86_400];

fn pvtz(c: &mut Checker<'_>, section: &Pvtz) {
    if section.zone_id.is_some() && section.zone_name.is_some() {
        c.bad("pvtz.zone_name", "does not go together with pvtz.zone_id; state one of them");
    }
    if c.sound(&["pvtz.ttl"]) && !RECORD_TTLS.contains(&section.ttl) {
        c.bad("pvtz.ttl", format!("must be 5, 30, 60, 3600, 43200 or 86400 seconds, not {}", section.ttl));
    }
}

fn cluster_cidrs(c: &mut Checker<'_>, written: &[String]) -> Vec<IpNet> {
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

fn service(c: &mut Checker<'_>, section: ServiceSection) -> ServiceOptions {
    ServiceOptions {
        concurrency: section.concurrency,
        drift_check: section.drift_check,
        drift_reads: section.drift_reads,
        eni_backends: section.eni_backends,
        disable_public: section.disable_public,
        backend_batch_size: section.backend_batch_size,
        exclude_masters: section.exclude_masters,
        local_health_check: section.local_health_check,
        ipv6: section.ipv6,
        type_annotation: section.type_annotation,
        hand_over_grace: section.hand_over_grace,
        defaults: service_defaults(c, section.defaults),
    }
}

fn service_defaults(c: &mut Checker<'_>, section: ServiceDefaultsSection) -> LoadBalancerDefaults {
    const BANDWIDTH: &str = "service.defaults.bandwidth";
    const MASTER: &str = "service.defaults.master_zone";
    const SLAVE: &str = "service.defaults.slave_zone";
    let by_bandwidth = section.internet_charge_type == Some(InternetChargeType::PayByBandwidth);
    if section.bandwidth.is_some() && !by_bandwidth && c.sound(&[BANDWIDTH, "service.defaults.internet_charge_type"]) {
        let help = "set internet_charge_type to \"paybybandwidth\", or leave bandwidth out";
        c.bad_with(BANDWIDTH, "has no effect without internet_charge_type = \"paybybandwidth\"", Some(help));
    }
    if section.slave_zone.is_some() && c.sound(&[MASTER, SLAVE]) {
        if section.master_zone.is_none() {
            c.bad(SLAVE, "needs master_zone");
        } else if section.master_zone == section.slave_zone {
            c.bad(SLAVE, "must differ from master_zone");
        }
    }
    tags(c, "service.defaults.tags", &section.tags);
    LoadBalancerDefaults {
        address_type: word(section.address_type),
        instance_charge_type: word(section.instance_charge_type),
        spec: section.spec,
        internet_charge_type: section.internet_charge_type.map(word),
        bandwidth: section.bandwidth,
        master_zone: section.master_zone,
        slave_zone: section.slave_zone,
        delete_protection: section.delete_protection,
        modification_protection: section.modification_protection,
        scheduler: word(section.scheduler),
        tags: section.tags,
    }
}

/// A choice as it is written.
fn word(choice: impl serde::Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn nlb(c: &mut Checker<'_>, section: NlbSection) -> NlbOptions {
    let NlbSection { concurrency, drift_check, defaults } = section;
    tags(c, "nlb.defaults.tags", &defaults.tags);
    let NlbDefaultsSection { address_type, delete_protection, modification_protection, tags } = defaults;
    let address_type = match address_type {
        AddressType::Internet => "Internet".to_owned(),
        AddressType::Intranet => "Intranet".to_owned(),
    };
    let defaults = NlbDefaults { address_type, delete_protection, modification_protection, tags };
    NlbOptions { concurrency, drift_check, defaults }
}

fn tags(c: &mut Checker<'_>, key_of_tags: &'static str, tags: &BTreeMap<String, String>) {
    const OWNER_MARKS: [&str; 3] = ["kubernetes.do.not.delete", "kubernetes.reused.by.user", "ack.aliyun.com"];
    if tags.len() > MOST_USER_TAGS {
        c.bad(key_of_tags, format!("may have {MOST_USER_TAGS} tags at most, not {}", tags.len()));
    }
    for (key, value) in tags {
        if !is_tag_key(key) {
            let allowed = "1 to 64 characters, without \"aliyun\" or \"acs:\" at its start and without a URL";
            c.bad_entry(key_of_tags, key, format!("a tag's key has {allowed}, not {}", shown(key)));
        }
        if value.chars().count() > 128 || value.contains("http://") || value.contains("https://") {
            let message = format!("a tag's value has up to 128 characters and no URL, not {}", shown(value));
            c.bad_entry(key_of_tags, key, message);
        }
        if OWNER_MARKS.contains(&key.as_str()) {
            c.bad_entry(key_of_tags, key, format!("the tag {key:?} marks owners and cannot be set"));
        }
    }
}
