//! The cluster: its API server, what this process may do there, who leads, and whether nodes and pod network fit.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{OptionFuture, join_all};
use ipnet::IpNet;

use super::finding::{CheckResult, Requirement};
use super::quotas;
use crate::alibaba::vpc::VpcAttributes;
use crate::cli::{NEWEST_SERVER, server_version};
use crate::cluster::{Cluster, Leader, Right};
use crate::commands::migrate::from_cluster::{self, RunningOfficial};
use crate::commands::rbac;
use crate::config::Config;
use crate::controllers::route::{self, NetworkFindings};
use crate::controllers::{loadbalancer, node};
use crate::plan::count_of;
use crate::plan::inputs::{NodeView, ServiceView};
use crate::plan::node::{NodeClass, SHUTDOWN, classify, has_taint, is_uninitialized, needs_instance};
use crate::telemetry::alarms::named;
use crate::telemetry::tasks::Tasks;

/// How long a list may take: without the right to it there is none.
const LONGEST_LIST: Duration = Duration::from_secs(10);
/// The oldest Kubernetes that is tested, as the second number; and the newest.
const TESTED: (u32, u32) = (8, 36);

/// What it means that the CA is not the one of the cluster, and what repairs it.
const UNKNOWN_CA: (&str, &str) = (
    "an unknown CA has signed the certificate of the API server",
    "set certificate-authority in the kubeconfig to the CA of the cluster",
);
/// A part of the text of a fault, what it means, and what repairs it; the first that fits counts. The parts are from rustls, from
/// the servers of Go and Kubernetes, and from [`Cluster::connect`].
const SERVER_FAULTS: [(&str, &str, &str); 8] = [
    (
        "[HTTP 401]",
        "the API server does not accept the credentials",
        "give the kubeconfig a token or a client certificate that is valid",
    ),
    ("UnknownIssuer", UNKNOWN_CA.0, UNKNOWN_CA.1),
    // Of another CA with the same name, as kubeadm gives each cluster.
    ("BadSignature", UNKNOWN_CA.0, UNKNOWN_CA.1),
    (
        "invalid peer certificate",
        "the certificate of the API server is not valid for this address and this time",
        "name an address that the certificate has, and compare its dates with the clock of this machine",
    ),
    (
        "HTTP request to an HTTPS server",
        "the API server speaks TLS, and the configured address begins with http://",
        "begin the address with https://",
    ),
    (
        "InvalidContentType",
        "the configured address speaks no TLS",
        "name the port of the API server; a port without TLS has an address with http://",
    ),
    ("no API server is configured", "no API server is configured", "set kubernetes.kubeconfig or kubernetes.server"),
    (
        "cannot be ",
        "the credentials for the API server cannot be used",
        "correct the file that is named here, or its mode and owner",
    ),
];
const NO_ANSWER: (&str, &str, &str) = (
    "",
    "the API server does not answer",
    "correct kubernetes.kubeconfig or kubernetes.server; name an address that works without cluster DNS",
);

/// What was seen of the cluster.
pub(super) struct ClusterFacts {
    pub(super) version: Result<String, String>,
    /// `None` where the API server does not answer.
    pub(super) inside: Option<ServerFacts>,
}

pub(super) struct ServerFacts {
    pub(super) rights: Vec<(Right, Result<bool, String>)>,
    pub(super) leader: Result<Option<Leader>, String>,
    /// What runs the official controller, and what could not be looked through.
    pub(super) official: (Vec<RunningOfficial>, Vec<String>),
    pub(super) nodes: Result<Vec<Arc<NodeView>>, String>,
    pub(super) services: Result<Vec<Arc<ServiceView>>, String>,
    pub(super) networks: NetworkFindings,
}

/// Reads; gives the connection, too, if the API server answers.
pub(super) async fn gather(config: &Config) -> (ClusterFacts, Option<Cluster>) {
    let connect = async {
        let cluster = Cluster::connect(&config.kubernetes, &Tasks::default()).await?;
        let version = cluster.version().await?;
        Ok((cluster, version))
    };
    let (cluster, version) = match connect.await {
        Ok(connected) => connected,
        Err(why) => return (ClusterFacts { version: Err(why), inside: None }, None),
    };
    let served = server_version(&version).unwrap_or(NEWEST_SERVER);
    let ask = |right: Right| async {
        let may = cluster.may(&right).await;
        (right, may)
    };
    let (nodes, services) = (cluster.nodes(), cluster.services());
    let (rights, leader, official, networks, listed_nodes, listed_services) = tokio::join!(
        join_all(rbac::rights(config, served).into_iter().map(ask)),
        cluster.leader(&config.leader_election),
        from_cluster::running(&cluster),
        OptionFuture::from(config.controllers.contains(route::NAME).then(|| route::look(&cluster))),
        nodes.listed_within(LONGEST_LIST),
        services.listed_within(LONGEST_LIST),
    );
    let inside = ServerFacts {
        rights,
        leader: leader.map_err(|fault| fault.to_string()),
        official,
        nodes: listed_nodes.map(|()| nodes.store.all().to_vec()),
        services: listed_services.map(|()| services.store.all().to_vec()),
        networks: networks.unwrap_or_default(),
    };
    (ClusterFacts { version: Ok(version), inside: Some(inside) }, Some(cluster))
}

/// Everything that these facts say; `vpc` is what is known of the VPC.
pub(super) fn findings(facts: &ClusterFacts, config: &Config, vpc: Option<&VpcAttributes>) -> Vec<CheckResult> {
    let mut found = vec![server(&facts.version)];
    let Some(inside) = &facts.inside else {
        let sections =
            [Requirement::Rbac, Requirement::Leader, Requirement::Official, Requirement::Nodes, Requirement::Services];
        found.extend(sections.map(|section| section.unknown("the API server cannot be used, see above")));
        return found;
    };
    found.extend(rights(&inside.rights));
    found.push(leader(&inside.leader, config));
    found.extend(official(&inside.official, config));
    match &inside.nodes {
        Ok(views) => {
            let is_led = inside.leader.as_ref().is_ok_and(|leader| leader.as_ref().is_some_and(|it| !it.is_expired));
            found.extend(nodes(views, config, is_led || !config.leader_election.enabled));
            if config.controllers.contains(route::NAME) {
                found.extend(pod_network(views, config, vpc, &inside.networks));
            }
        }
        Err(why) => found.push(Requirement::Nodes.unknown(why)),
    }
    match &inside.services {
        Ok(views) => {
            found.extend(unhandled(views, config));
            found.extend(inside.nodes.iter().flat_map(|nodes| quotas::findings(views, nodes, config)));
        }
        Err(why) => found.push(Requirement::Services.unknown(why)),
    }
    found
}

fn server(version: &Result<String, String>) -> CheckResult {
    let version = match version {
        Ok(version) => version,
        Err(why) => {
            let known = SERVER_FAULTS.iter().find(|(part, ..)| why.contains(part));
            let (_, what, repair) = known.unwrap_or(&NO_ANSWER);
            return Requirement::Kubernetes.error(*what).seen(why).repair(*repair);
        }
    };
    let Ok(minor) = server_version(version) else {
        return Requirement::Kubernetes.note(format!("the API server does not say its version ({version})"));
    };
    let lock = if minor < 14 { "a ConfigMap" } else { "a Lease" };
    let backends = if minor < 17 { "Endpoints" } else { "EndpointSlices" };
    let text = format!("the API server is {version}: the lock is {lock}, backends come from {backends}");
    match minor {
        old if old < TESTED.0 => {
            Requirement::Kubernetes.warning(format!("{text}; it is older than any tested version"))
        }
        new if new > TESTED.1 => Requirement::Kubernetes.note(format!("{text}; it is newer than any tested version")),
        _ => Requirement::Kubernetes.ok(text),
    }
}

fn rights(rights: &[(Right, Result<bool, String>)]) -> Vec<CheckResult> {
    let missing: Vec<String> =
        rights.iter().filter(|(_, may)| *may == Ok(false)).map(|(right, _)| right.to_string()).collect();
    let unasked: Vec<&String> = rights.iter().filter_map(|(_, may)| may.as_ref().err()).collect();
    let granted = rights.len() - missing.len() - unasked.len();
    let mut found =
        vec![Requirement::Rbac.ok(format!("{granted} of {} rights are granted to this identity", rights.len()))];
    if !missing.is_empty() {
        found.push(
            Requirement::Rbac.error(format!("missing: {}", missing.join(", "))).repair(
                "alicloud-ccm rbac | kubectl apply -f - (with --service-account or --user for another identity)",
            ),
        );
    }
    if let Some(why) = unasked.first() {
        found.push(
            Requirement::Rbac.note(format!("{} could not be asked about", count_of(unasked.len(), "right"))).seen(why),
        );
    }
    found
}

fn leader(leader: &Result<Option<Leader>, String>, config: &Config) -> CheckResult {
    if !config.leader_election.enabled {
        return Requirement::Leader.note("leader election is off: only one replica may run");
    }
    match leader {
        Ok(Some(Leader { holder, lock, renewed, is_expired: false })) => {
            Requirement::Leader.ok(format!("{holder} leads ({lock}, renewed {renewed})"))
        }
        Ok(Some(Leader { holder, lock, renewed, .. })) => Requirement::Leader
            .error(format!("no replica leads: {holder} holds {lock} and does not renew it"))
            .seen(format!("renewed {renewed}"))
            .repair("look at the log and the state of that replica, or start one; it takes the lock over"),
        Ok(None) => Requirement::Leader.note("no replica leads; nothing is changed until one runs"),
        Err(why) => Requirement::Leader.note("who leads could not be read").seen(why),
    }
}

fn official((running, hidden): &(Vec<RunningOfficial>, Vec<String>), config: &Config) -> Vec<CheckResult> {
    let mut found: Vec<CheckResult> = Vec::new();
    for one in running {
        let what = format!("the official controller still runs: {}", one.name);
        let finding = match one.excludes(&config.leader_election) {
            true => Requirement::Official
                .warning(format!("{what}; the lock keeps it and this program from writing at once")),
            false => Requirement::Official.error(format!("{what}, and no common lock, so that both write")),
        };
        found.push(finding.repair(format!("{}: docs/guides/migration.md", one.stop)));
    }
    if running.is_empty() && hidden.is_empty() {
        found.push(Requirement::Official.ok("the official controller does not run"));
    }
    if let Some(why) = hidden.first() {
        found.push(Requirement::Official.note("whether the official controller runs could not be checked").seen(why).repair(
            "run doctor with a kubeconfig that may list Deployments, DaemonSets and pods; the controllers need no such right",
        ));
    }
    found
}

fn nodes(views: &[Arc<NodeView>], config: &Config, is_led: bool) -> Vec<CheckResult> {
    if views.is_empty() {
        return vec![Requirement::Nodes.warning("the cluster has no node").repair("see docs/guides/kubeadm.md")];
    }
    let names = |is: &dyn Fn(&NodeView) -> bool| {
        Some(named(views.iter().filter(|view| is(view)).map(|view| &view.name))).filter(|names| !names.is_empty())
    };
    let managed = |view: &NodeView| !matches!(classify(view), NodeClass::Excluded(_));
    let mut found = Vec::new();
    let waits = |view: &NodeView| managed(view) && is_uninitialized(view);
    if let Some(names) = names(&waits) {
        let what = format!("{names} waits to be initialised");
        let tainted = Requirement::Nodes
            .error(what.clone())
            .seen("it has the taint node.cloudprovider.kubernetes.io/uninitialized");
        found.push(if !config.controllers.contains(node::NAME) {
            tainted.repair("list \"node\" in controllers, or run the program that initialises nodes")
        } else if !is_led {
            tainted.repair("no replica leads: start the program")
        } else {
            Requirement::Nodes.note(what).repair("alicloud-ccm explain node/NAME says what it waits for")
        });
    }
    let is_bare = |view: &NodeView| classify(view) == NodeClass::Unidentified && !is_uninitialized(view);
    found.extend(names(&is_bare).map(|names| {
        let what = format!("{names} has no spec.providerID, and its kubelet set no taint");
        // It gets no route.
        let lacks_route =
            |view: &Arc<NodeView>| is_bare(view) && needs_instance(view, config.controllers.contains(route::NAME));
        let lacking = views.iter().any(lacks_route);
        let found = if lacking { Requirement::Nodes.error(what) } else { Requirement::Nodes.warning(what) };
        found
            .seen("its kubelet does not run with --cloud-provider=external")
            .repair("on that machine: alicloud-ccm kubelet-args; or let the node controller find the instance")
    }));
    let is_stopped = |view: &NodeView| has_taint(view, SHUTDOWN);
    let stopped = |names| Requirement::Nodes.note(format!("{names} has the taint of a stopped instance"));
    found.extend(names(&is_stopped).map(stopped));
    let excluded = named(views.iter().filter_map(|view| match classify(view) {
        NodeClass::Excluded(why) => Some(format!("{}: {why}", view.name)),
        NodeClass::Ecs(_) | NodeClass::Unidentified => None,
    }));
    if !excluded.is_empty() {
        found.push(Requirement::Nodes.note(format!("not managed: {excluded}")));
    }
    let of = |view: &NodeView| if let NodeClass::Ecs(id) = classify(view) { Some(id) } else { None };
    let twin = |view: &NodeView| {
        of(view).is_some_and(|id| views.iter().any(|other| other.name != view.name && of(other).as_ref() == Some(&id)))
    };
    found.extend(names(&twin).map(|names| {
        Requirement::Nodes
            .error(format!("{names} have the same spec.providerID"))
            .repair("delete the node object that is out of date")
    }));
    found
}

fn pod_network(
    views: &[Arc<NodeView>],
    config: &Config,
    vpc: Option<&VpcAttributes>,
    networks: &NetworkFindings,
) -> Vec<CheckResult> {
    let cidrs: Vec<(&str, IpNet)> = views
        .iter()
        .filter(|view| !matches!(classify(view), NodeClass::Excluded(_)))
        .flat_map(|view| view.pod_cidrs.iter().filter_map(|text| Some((&*view.name, text.parse().ok()?))))
        .collect();
    let mut found = Vec::new();
    if cidrs.is_empty() && !views.is_empty() {
        found.push(
            Requirement::Network.error("no node has a pod CIDR, so there is nothing to make routes for").repair(
                "let kube-controller-manager allocate them (--allocate-node-cidrs=true --cluster-cidr=...), or leave \"route\" \
                 out of controllers",
            ),
        );
    }
    let allowed = &config.route.cluster_cidrs;
    let listed = |wrong: &dyn Fn(&IpNet) -> bool| {
        let texts = cidrs.iter().filter(|(_, cidr)| wrong(cidr)).map(|(node, cidr)| format!("{cidr} of {node}"));
        Some(named(texts)).filter(|texts| !texts.is_empty())
    };
    if let Some(texts) = listed(&|cidr| !allowed.is_empty() && !allowed.iter().any(|range| range.contains(cidr))) {
        let ranges = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        found.push(
            Requirement::Network
                .error(format!("outside of route.cluster_cidrs: {texts}"))
                .seen(format!("route.cluster_cidrs is {ranges}"))
                .repair("set route.cluster_cidrs to the --cluster-cidr of kube-controller-manager"),
        );
    }
    let ranges = vpc.map_or(&[][..], |vpc| &vpc.cidrs);
    let overlaps = |cidr: &IpNet| ranges.iter().any(|range| range.contains(cidr) || cidr.contains(range));
    found.extend(listed(&overlaps).map(|texts| {
        Requirement::Network
            .warning(format!("in the range of the VPC: {texts}"))
            .repair("choose a pod network outside of the VPC; the cloud refuses routes inside of a vSwitch")
    }));
    if !networks.objections.is_empty() {
        found.push(
            Requirement::Network
                .warning("the pod network seems not to need routes, or makes them itself")
                .seen(networks.objections.join("\n"))
                .repair("leave \"route\" out of controllers, or change the pod network: docs/guides/routes.md"),
        );
    }
    let unread = |why| Requirement::Network.note("some signs of the pod network could not be read").seen(why);
    found.extend(networks.unread.first().map(unread));
    if found.is_empty() {
        found.push(Requirement::Network.ok(format!("{} pod CIDRs fit", cidrs.len())));
    }
    found
}

/// Services that ask for a load balancer of ours and that no controller of the configuration handles.
fn unhandled(views: &[Arc<ServiceView>], config: &Config) -> Option<CheckResult> {
    let why = |view: &Arc<ServiceView>| Some((view.key.to_string(), loadbalancer::unhandled(config, view)?));
    let found: Vec<(String, String)> = views.iter().filter_map(why).collect();
    let (_, why) = found.first()?;
    let what = format!("no controller handles {}", named(found.iter().map(|(name, _)| name)));
    let repair = "do what is said there, or: alicloud-ccm explain NAMESPACE/NAME";
    Some(Requirement::Services.warning(what).seen(why).repair(repair))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn versions_that_no_test_has_seen_are_said_to_be_so() {
        for (version, severity, part) in [
            ("v1.7.9", Verdict::Warning, "older than any tested version"),
            ("v1.11.0+d4cacc0", Verdict::Ok, "the lock is a ConfigMap, backends come from Endpoints"),
            ("v1.36.0", Verdict::Ok, "the lock is a Lease, backends come from EndpointSlices"),
            ("v1.99.0", Verdict::Note, "newer than any tested version"),
            ("unknown", Verdict::Note, "does not say its version"),
        ] {
            let finding = server(&Ok(version.to_owned()));
            assert_eq!(finding.severity, severity, "{version}");
            assert!(finding.what.contains(part), "{finding:?}");
        }
    }

    #[test]
    fn each_right_is_missing_granted_or_not_known() {
        let right = |verb| Right { resource: "nodes", verb, ..Right::default() };
        let found = rights(&[
            (right("get"), Ok(true)),
            (right("patch"), Ok(false)),
            (right("list"), Err("no answer".to_owned())),
        ]);
        let said: Vec<_> = found.iter().map(|finding| (finding.severity, finding.what.as_str())).collect();
        assert_eq!(
            said,
            [
                (Verdict::Ok, "1 of 3 rights are granted to this identity"),
                (Verdict::Error, "missing: patch nodes"),
                (Verdict::Note, "1 right could not be asked about"),
            ]
        );
    }
}
