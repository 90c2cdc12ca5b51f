//! The cloud: where this is, whether the hosts answer, whose credentials these are and what they may do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use futures::{StreamExt, stream};
use jiff::SignedDuration;
use tokio::time::Instant;

use super::finding::{CheckResult, Requirement};
use super::quotas;
use crate::alibaba::actions::Action;
use crate::alibaba::endpoints::{self, CloudProduct};
use crate::alibaba::metadata::{Metadata, MetadataError};
use crate::alibaba::probe::{Caller, Permission, reach};
use crate::alibaba::transport::Transport;
use crate::alibaba::vpc::{VSwitch, VpcAttributes};
use crate::alibaba::{CloudClient, Fault, FaultKind, location};
use crate::config::Config;
use crate::config::checked::Credentials;
use crate::controllers::loadbalancer::{self, NLB};
use crate::controllers::{registry, route};
use crate::fence::fence;
use crate::plan::count_of;
use crate::plan::inputs::ServiceView;
use crate::plan::loadbalancer::ownership::LoadBalancerKind::{self, Clb, Nlb};
use crate::plan::location::CloudLocation;

/// Clocks further apart than this are reported; the vendor takes 15 minutes.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(60);
const LARGEST_OFFSET: SignedDuration = SignedDuration::from_mins(15);
/// What sends calls to the cloud through a proxy.
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Fewer free addresses than this are reported.
const FEW_ADDRESSES: u64 = 8;
/// How long all probes may take together, also where the cloud throttles some.
const LONGEST_PROBES: Duration = Duration::from_secs(20);
/// Probes at once.
const AT_ONCE: usize = 8;
/// What the vendor grants by default (custom entries in a route table; load balancers of each kind, and server groups of network load
/// balancers, in a region). No API of these products says what an account really has.
const ROUTES_IN_TABLE: u64 = 200;
const LOAD_BALANCERS: u64 = 60;
const NETWORK_SERVER_GROUPS: u64 = 3000;

/// What was seen of the cloud.
pub(super) struct CloudFacts {
    /// Region and VPC of this instance, as the metadata service has them.
    pub(super) here: Result<(String, String), String>,
    pub(super) location: Result<CloudLocation, String>,
    pub(super) hosts: Vec<Host>,
    /// Variables that name one.
    pub(super) proxies: Vec<&'static str>,
    /// `None` where the place is not known.
    pub(super) account: Option<AccountFacts>,
}

/// A host of the vendor.
pub(super) struct Host {
    pub(super) url: String,
    pub(super) products: BTreeSet<&'static str>,
    /// By how much its clock is ahead.
    pub(super) answer: Result<Option<SignedDuration>, String>,
}

pub(super) struct AccountFacts {
    pub(super) caller: Result<Caller, Fault>,
    /// Whether instances can be listed.
    pub(super) proof: Result<(), Fault>,
    pub(super) keys_last: Option<Duration>,
    /// `None` where the credentials do not work.
    pub(super) inside: Option<InsideFacts>,
}

/// What counts against a quota of the region: used, granted, and the kind of load balancers that Services may wait for.
type RegionQuota = (&'static str, Result<u64, Fault>, u64, Option<LoadBalancerKind>);

pub(super) struct InsideFacts {
    pub(super) permissions: Vec<(&'static Action, Permission)>,
    pub(super) vpc: Result<Option<VpcAttributes>, Fault>,
    pub(super) vswitches: Result<Vec<VSwitch>, Fault>,
    /// Entries in each route table.
    pub(super) entries: Result<BTreeMap<String, usize>, Fault>,
    pub(super) in_region: Vec<RegionQuota>,
}

/// Reads; gives the client, too, where there is a place for it and the credentials work.
pub(super) async fn gather(
    config: &Config,
    transport: Arc<dyn Transport>,
) -> (CloudFacts, Option<(CloudClient, CloudLocation)>) {
    let metadata = Metadata::new(transport.clone(), &config.cloud.endpoints);
    let here = async { Ok((metadata.get("region-id").await?, metadata.get("vpc-id").await?)) };
    let (here, location) = tokio::join!(here, location::resolve(&config.cloud, &metadata));
    let here = here.map_err(|error: MetadataError| error.to_string());
    let proxies =
        PROXIES.into_iter().filter(|name| std::env::var_os(name).is_some_and(|url| !url.is_empty())).collect();
    let Ok(place) = location.clone() else {
        let location = location.map_err(|error| error.to_string());
        return (CloudFacts { here, location, hosts: Vec::new(), proxies, account: None }, None);
    };
    let hosts = hosts(config, &place.region, &*transport).await;
    let cloud = CloudClient::new(transport, &config.cloud, &place.region);
    let account = account(config, &cloud, &place).await;
    let client = account.inside.is_some().then(|| (cloud, place.clone()));
    (CloudFacts { here, location: Ok(place), hosts, proxies, account: Some(account) }, client)
}

async fn hosts(config: &Config, region: &str, transport: &dyn Transport) -> Vec<Host> {
    let issues_keys = matches!(config.cloud.credentials, Credentials::AssumeRole { .. } | Credentials::Oidc { .. });
    let products = registry::cloud_actions(config).map(|action| action.product);
    let mut by_url: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    for product in products.chain(issues_keys.then_some(CloudProduct::Sts)) {
        if let Some(url) = endpoints::url(&config.cloud.endpoints, product, region) {
            by_url.entry(url).or_default().insert(product.as_str());
        }
    }
    let ask = |(url, products): (String, BTreeSet<&'static str>)| async move {
        Host { answer: reach(transport, &url).await, url, products }
    };
    stream::iter(by_url).map(ask).buffered(AT_ONCE).collect().await
}

async fn account(config: &Config, cloud: &CloudClient, place: &CloudLocation) -> AccountFacts {
    let proof = cloud.ecs.may_describe_instances(&place.region).await;
    let caller = cloud.caller().await;
    let keys_last = cloud.keys_last();
    // Without a request id, no call was signed.
    let is_let_in = |fault: &Fault| fault.kind == FaultKind::Denied && !fault.request_id.is_empty();
    let works = caller.is_ok() || proof.as_ref().err().is_none_or(is_let_in);
    let inside = OptionFuture::from(works.then(|| inside(config, cloud, place))).await;
    AccountFacts { caller, proof, keys_last, inside }
}

async fn inside(config: &Config, cloud: &CloudClient, place: &CloudLocation) -> InsideFacts {
    let (keeper, fence) = fence();
    // Only dry runs are sent, which no leader need know of.
    keeper.lead_until(Instant::now() + LONGEST_PROBES);
    let mut actions: Vec<&'static Action> = Vec::new();
    for action in registry::cloud_actions(config) {
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    let fence = &fence;
    let probe = |action: &'static Action| async move {
        match fence.permit(Duration::ZERO) {
            Ok(permit) => (action, cloud.probe(&permit, action).await),
            Err(_) => (action, Permission::NotProbed),
        }
    };
    let permissions = stream::iter(actions).map(probe).buffered(AT_ONCE).collect();
    let mut in_region = Vec::new();
    if config.controllers.contains(loadbalancer::NAME) {
        in_region.push(("classic load balancers", cloud.clb.count_instances().await, LOAD_BALANCERS, Some(Clb)));
    }
    if config.controllers.contains(NLB) {
        in_region.push(("network load balancers", cloud.nlb.count_instances().await, LOAD_BALANCERS, Some(Nlb)));
        let groups = cloud.nlb.count_groups().await;
        in_region.push(("server groups of network load balancers", groups, NETWORK_SERVER_GROUPS, None));
    }
    let entries = async {
        if !config.controllers.contains(route::NAME) {
            return Ok(BTreeMap::new());
        }
        let tables = route::all_tables(cloud, place, config).await?;
        Ok(tables.into_iter().map(|table| (table.id, table.entries.len())).collect())
    };
    let (vpc, vswitches) = (cloud.vpc.describe_vpc(&place.vpc_id), cloud.vpc.describe_vswitches(&place.vpc_id));
    let (permissions, vpc, vswitches, entries) = tokio::join!(permissions, vpc, vswitches, entries);
    InsideFacts { permissions, vpc, vswitches, entries, in_region }
}

/// Everything that these facts say.
pub(super) fn findings(facts: &CloudFacts, services: &[Arc<ServiceView>], config: &Config) -> Vec<CheckResult> {
    let mut found = vec![place(facts)];
    let sections = [Requirement::Credentials, Requirement::Permissions, Requirement::Quotas, Requirement::VSwitches];
    let Some(account) = &facts.account else {
        found.push(Requirement::Endpoints.unknown("the place is not known"));
        found.extend(sections.map(|section| section.unknown("the place is not known")));
        return found;
    };
    found.extend(endpoints(&facts.hosts, &facts.proxies));
    found.extend((!facts.proxies.is_empty()).then(|| {
        let what = format!("{}: calls to the cloud go through a proxy", facts.proxies.join(", "));
        Requirement::Endpoints.note(what).repair("list hosts without a proxy in NO_PROXY: docs/guides/proxies.md")
    }));
    found.extend(clock(&facts.hosts));
    found.push(credentials(account, facts.hosts.iter().all(|host| host.answer.is_ok())));
    match &account.inside {
        Some(inside) => {
            found.extend(vpc(inside, facts));
            found.extend(permissions(&inside.permissions, account.caller.as_ref().ok()));
            found.extend(region_quotas(inside, services, config));
            found.extend(vswitches(&inside.vswitches, config));
        }
        None => {
            found.extend(sections[1..].iter().map(|section| section.unknown("the cloud cannot be used, see above")))
        }
    }
    found
}

fn place(facts: &CloudFacts) -> CheckResult {
    let place = match &facts.location {
        Ok(place) => place,
        Err(why) => {
            return Requirement::Place.error("the region or the VPC of the cluster is not known").seen(why).repair(
                "set cloud.region and cloud.vpc_id, or run on an instance of the cluster's VPC that reaches \
                 http://100.100.100.200",
            );
        }
    };
    let text = format!("region {}, {}", place.region, place.vpc_id);
    match &facts.here {
        Ok((region, vpc)) if (region, vpc) == (&place.region, &place.vpc_id) => {
            Requirement::Place.ok(format!("{text}, as the metadata service says"))
        }
        Ok((region, vpc)) => Requirement::Place
            .warning(format!("the configuration names {text}, and this instance is in region {region}, {vpc}"))
            .repair("correct cloud.region and cloud.vpc_id, or take them out, unless the cluster is in another VPC"),
        Err(why) => {
            Requirement::Place.note(format!("{text}, as configured; this machine has no metadata service")).seen(why)
        }
    }
}

fn endpoints(hosts: &[Host], proxies: &[&str]) -> Vec<CheckResult> {
    let through =
        if proxies.is_empty() { String::new() } else { format!(" through the proxy of {}", proxies.join(", ")) };
    let each = |host: &Host| {
        let products = host.products.iter().copied().collect::<Vec<_>>().join(", ");
        match &host.answer {
            Ok(_) => Requirement::Endpoints.ok(format!("{} answers ({products})", host.url)),
            Err(why) => Requirement::Endpoints.error(format!("{} does not answer{through} ({products})", host.url)).seen(why).repair(
                "let this machine reach it: DNS, routes, HTTPS_PROXY, certificates of a proxy that opens TLS; without a way to \
                 the Internet set cloud.endpoints.network = \"vpc\"",
            ),
        }
    };
    hosts.iter().map(each).collect()
}

/// The clock of the host that is furthest from this machine's.
fn clock(hosts: &[Host]) -> Option<CheckResult> {
    let offsets = hosts.iter().filter_map(|host| host.answer.as_ref().ok().copied().flatten());
    let ahead = offsets.max_by_key(|offset| offset.abs())?;
    if ahead.abs() < CLOCK_TOLERANCE {
        return Some(Requirement::Clock.ok("this machine's clock is right"));
    }
    let side = if ahead.is_negative() { "ahead of" } else { "behind" };
    let what = format!("this machine's clock is {} s {side} the cloud's", ahead.abs().as_secs());
    let found = match ahead.abs() > LARGEST_OFFSET {
        true => Requirement::Clock.error(what),
        false => Requirement::Clock.warning(what),
    };
    Some(found.repair("let the machine keep time: timedatectl set-ntp true, or chronyd"))
}

fn credentials(account: &AccountFacts, all_answer: bool) -> CheckResult {
    if let (None, Err(fault)) = (&account.inside, &account.proof) {
        if !all_answer && fault.kind == FaultKind::Transient {
            return Requirement::Credentials.unknown("an endpoint does not answer, see above");
        }
        let code = fault.code.to_ascii_lowercase();
        let what = match (code.as_str(), fault.kind) {
            (code, _) if code.starts_with("invalidaccesskeyid") => {
                "the cloud does not know the access key, or it is off"
            }
            (code, _) if code.starts_with("signaturedoesnotmatch") => "the secret does not belong to the access key",
            ("missingsecuritytoken", _) => "the access key is temporary, and its security token is missing",
            (code, _) if code.contains("securitytoken") => "the temporary credentials are not valid any more",
            (_, FaultKind::Throttled) => "the cloud throttles every call",
            _ => "no call to the cloud works",
        };
        return Requirement::Credentials.error(what).seen(fault).repair(match fault.kind {
            FaultKind::Throttled => "find out who else calls this account so often, or wait",
            _ => "correct cloud.credentials, or the files that it names: docs/reference/permissions.md",
        });
    }
    let end = match account.keys_last {
        Some(left) => format!(", valid for {} min, then renewed", left.as_secs() / 60),
        None => String::new(),
    };
    match &account.caller {
        Ok(Caller { account, arn, kind }) => {
            Requirement::Credentials.ok(format!("{kind} {arn} of the account {account}{end}"))
        }
        Err(fault) => {
            Requirement::Credentials.note(format!("they work{end}; whose they are could not be asked")).seen(fault)
        }
    }
}

fn vpc(inside: &InsideFacts, facts: &CloudFacts) -> Option<CheckResult> {
    let place = facts.location.as_ref().ok()?;
    matches!(inside.vpc, Ok(None)).then(|| {
        let what = format!("the account has no {} in {}", place.vpc_id, place.region);
        Requirement::Place.error(what).repair("correct cloud.vpc_id, cloud.region or cloud.credentials")
    })
}

fn permissions(permissions: &[(&'static Action, Permission)], caller: Option<&Caller>) -> Vec<CheckResult> {
    let names = |is: fn(&Permission) -> bool| {
        permissions.iter().filter(|(_, may)| is(may)).map(|(action, _)| action.permission()).collect::<Vec<_>>()
    };
    let missing = names(|may| matches!(may, Permission::Missing(_)));
    let unknown = names(|may| matches!(may, Permission::Unknown(_)));
    let unasked = names(|may| matches!(may, Permission::NotProbed));
    let granted = permissions.len() - missing.len() - unknown.len() - unasked.len();
    let fault = |is: fn(&Permission) -> Option<&Fault>| permissions.iter().find_map(|(_, may)| is(may));
    let mut found =
        vec![Requirement::Permissions.ok(format!(
            "{granted} of {} actions that can be probed may be called",
            permissions.len() - unasked.len()
        ))];
    if let Some(fault) = fault(|may| if let Permission::Missing(fault) = may { Some(fault) } else { None }) {
        let whom = caller.map_or_else(|| "the identity".to_owned(), |caller| caller.arn.clone());
        found.push(
            Requirement::Permissions
                .error(format!("missing: {}", missing.join(", ")))
                .seen(fault)
                .repair(format!("attach to {whom} the policy that this prints: alicloud-ccm ram-policy")),
        );
    }
    if let Some(fault) = fault(|may| if let Permission::Unknown(fault) = may { Some(fault) } else { None }) {
        let kind = if fault.kind == FaultKind::Throttled { "the cloud throttles" } else { "no answer from" };
        found.push(
            Requirement::Permissions
                .warning(format!("{kind}: {}", unknown.join(", ")))
                .seen(fault)
                .repair("run doctor again; if it stays so, look who else calls the account"),
        );
    }
    if !unasked.is_empty() {
        let what = format!(
            "{} cannot be probed without a change; /readyz names those that fail",
            count_of(unasked.len(), "action")
        );
        found.push(Requirement::Permissions.note(what).seen(unasked.join(", ")));
    }
    found
}

fn region_quotas(inside: &InsideFacts, services: &[Arc<ServiceView>], config: &Config) -> Vec<CheckResult> {
    let mut found = Vec::new();
    for (what, used, granted, kind) in &inside.in_region {
        let awaited = kind.map_or(0, |kind| quotas::awaited(kind, services, config));
        match used {
            Ok(used) => found.push(quotas::judge(&format!("{what} in the region"), *used, awaited, *granted)),
            Err(fault) => found.push(Requirement::Quotas.note(format!("{what} could not be counted")).seen(fault)),
        }
    }
    match &inside.entries {
        Ok(tables) => found.extend(tables.iter().map(|(id, used)| {
            quotas::judge(&format!("entries to instances in {id}"), *used as u64, 0, ROUTES_IN_TABLE)
        })),
        Err(fault) => found.push(Requirement::Quotas.note("route entries could not be counted").seen(fault)),
    }
    found
}

/// Those that load balancers can be made in.
fn vswitches(shown: &Result<Vec<VSwitch>, Fault>, config: &Config) -> Vec<CheckResult> {
    if ![loadbalancer::NAME, NLB].iter().any(|name| config.controllers.contains(name)) {
        return Vec::new();
    }
    let shown = match shown {
        Ok(shown) => shown,
        Err(fault) => return vec![Requirement::VSwitches.note("they could not be listed").seen(fault)],
    };
    let stated = &config.cloud.vswitches;
    let is_used = |vswitch: &&VSwitch| stated.is_empty() || stated.iter().any(|choice| choice.id == vswitch.id);
    let mut found: Vec<CheckResult> = stated
        .iter()
        .filter(|choice| !shown.iter().any(|vswitch| vswitch.id == choice.id))
        .map(|choice| {
            let what = format!("cloud.vswitches names {}, which the VPC does not have", choice.id);
            Requirement::VSwitches.error(what).repair("correct cloud.vswitches")
        })
        .collect();
    found.extend(shown.iter().filter(is_used).map(|VSwitch { id, zone, cidr, available_ips, .. }| {
        let what = format!("{id} in {zone} ({cidr}) has {available_ips} free addresses");
        let repair = "name another vSwitch in cloud.vswitches, or free addresses in this one";
        match *available_ips {
            0 => Requirement::VSwitches.error(what).repair(repair),
            few if few < FEW_ADDRESSES => Requirement::VSwitches.warning(what).repair(repair),
            _ => Requirement::VSwitches.ok(what),
        }
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;
    use crate::alibaba::actions;

    fn host(answer: Result<Option<SignedDuration>, String>) -> Host {
        Host { url: "https://ecs.example/".to_owned(), products: BTreeSet::from(["ecs"]), answer }
    }

    #[test]
    fn the_clock_is_judged_by_the_host_that_is_furthest_off() {
        let judge = |seconds: &[i64]| {
            let host = |seconds: &i64| host(Ok(Some(SignedDuration::from_secs(*seconds))));
            clock(&seconds.iter().map(host).collect::<Vec<_>>()).map(|finding| (finding.severity, finding.what))
        };
        assert_eq!(judge(&[]), None);
        assert!(judge(&[-59, 59]).is_some_and(|(severity, _)| severity == Verdict::Ok));
        let (severity, what) = judge(&[2, -3600, 30]).unwrap();
        assert_eq!((severity, what.as_str()), (Verdict::Error, "this machine's clock is 3600 s ahead of the cloud's"));
        assert_eq!(
            judge(&[900]),
            Some((Verdict::Warning, "this machine's clock is 900 s behind the cloud's".to_owned()))
        );
        assert_eq!(clock(&[host(Err("refused".to_owned())), host(Ok(None))]), None, "nothing says it");
    }

    #[test]
    fn what_is_missing_unanswered_and_unasked_are_told_apart() {
        let fault = |kind| Fault::new("X", kind, "why");
        let found = permissions(
            &[
                (actions::DESCRIBE_VPC.0, Permission::Granted),
                (actions::DESCRIBE_EIPS.0, Permission::Missing(fault(FaultKind::Denied))),
                (actions::DESCRIBE_VSWITCHES.0, Permission::Unknown(fault(FaultKind::Throttled))),
                (actions::SET_NAME.0, Permission::NotProbed),
            ],
            None,
        );
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, finding.what.as_str())).collect();
        assert_eq!(
            said,
            [
                (Verdict::Ok, "1 of 3 actions that can be probed may be called"),
                (Verdict::Error, "missing: vpc:DescribeEipAddresses"),
                (Verdict::Warning, "the cloud throttles: vpc:DescribeVSwitches"),
                (Verdict::Note, "1 action cannot be probed without a change; /readyz names those that fail"),
            ]
        );
    }
}
