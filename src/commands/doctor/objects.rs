//! What needs both the cluster and the cloud: instances of nodes, plans, orphans, other clusters; and what the running process says.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::finding::{CheckResult, Requirement};
use crate::alibaba::ecs::InstanceFilter;
use crate::commands::gc;
use crate::config::Config;
use crate::controllers::Clients;
use crate::controllers::registry::{self, Controller};
use crate::plan::inputs::NodeView;
use crate::plan::node::instance::Instance;
use crate::plan::node::{NodeClass, classify};
use crate::plan::provenance::shared_id;
use crate::plan::{LineKind, PlanLine, count_of};
use crate::telemetry::alarms::named;

/// How long a plan may take, and the search for orphans.
const LONGEST_PLAN: Duration = Duration::from_secs(60);
/// Problems of one controller that are told one by one.
const MOST_PROBLEMS: usize = 10;

/// What was seen of the objects.
pub(super) struct ObjectFacts {
    pub(super) instances: Result<Vec<Instance>, String>,
    /// What each controller would do.
    pub(super) plans: Vec<(&'static Controller, Result<Vec<PlanLine>, String>)>,
    pub(super) orphans: Result<gc::Findings, String>,
}

/// Reads, and plans as `plan` does.
pub(super) async fn gather(clients: &Clients, config: &Config, nodes: &[Arc<NodeView>]) -> ObjectFacts {
    let late = |_| format!("no answer within {} s", LONGEST_PLAN.as_secs());
    let instances = instances(clients, nodes).await;
    let mut plans = Vec::new();
    for row in registry::running(config) {
        let planned = tokio::time::timeout(LONGEST_PLAN, (row.preview)(clients, config, None)).await;
        plans.push((row, planned.map_err(late).flatten().map(|previewed| previewed.lines)));
    }
    let orphans = tokio::time::timeout(LONGEST_PLAN, gc::look(clients, config)).await.map_err(late);
    ObjectFacts { instances, plans, orphans }
}

/// The instances that the nodes say they are.
async fn instances(clients: &Clients, nodes: &[Arc<NodeView>]) -> Result<Vec<Instance>, String> {
    let mut by_region: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for view in nodes {
        if let NodeClass::Ecs(id) = classify(view) {
            by_region.entry(id.region).or_default().push(id.instance);
        }
    }
    let mut found = Vec::new();
    for (region, ids) in by_region {
        let shown = clients.cloud.ecs.describe_instances(&region, &InstanceFilter::Ids(ids)).await;
        found.extend(shown.map_err(|fault| fault.to_string())?);
    }
    Ok(found)
}

/// Everything that these facts say.
pub(super) fn findings(facts: &ObjectFacts, nodes: &[Arc<NodeView>], vpc: &str, config: &Config) -> Vec<CheckResult> {
    let mut found = match &facts.instances {
        Ok(instances) => node_instances(nodes, instances, vpc),
        Err(why) => vec![Requirement::Nodes.unknown(format!("the instances of the nodes: {why}"))],
    };
    found.extend(facts.plans.iter().flat_map(|(row, lines)| planned(row, lines)));
    match &facts.orphans {
        Ok(orphans) => found.extend(ownership(orphans, &config.cloud.cluster_id)),
        Err(why) => found.push(Requirement::Orphans.unknown(why)),
    }
    found
}

fn node_instances(nodes: &[Arc<NodeView>], instances: &[Instance], vpc: &str) -> Vec<CheckResult> {
    let shown: BTreeMap<&str, &Instance> = instances.iter().map(|one| (one.id.as_str(), one)).collect();
    let of = |view: &NodeView| if let NodeClass::Ecs(id) = classify(view) { Some(id.instance) } else { None };
    let claimed: Vec<(&str, String)> = nodes.iter().filter_map(|view| Some((&*view.name, of(view)?))).collect();
    if claimed.is_empty() {
        return Vec::new();
    }
    if shown.is_empty() {
        let what =
            "the account shows not one instance of this cluster's nodes, as with the credentials of another account";
        return vec![
            Requirement::Nodes.error(what).seen(named(claimed.iter().map(|(_, instance)| instance))).repair(
                "correct cloud.credentials or cloud.region; delete the nodes if their instances are really gone",
            ),
        ];
    }
    let mut found = Vec::new();
    let listed = |wrong: &dyn Fn(&str) -> bool| {
        let texts: BTreeSet<String> =
            claimed.iter().filter(|(_, id)| wrong(id)).map(|(node, id)| format!("{id} of {node}")).collect();
        (!texts.is_empty()).then(|| named(texts))
    };
    if let Some(texts) = listed(&|id| !shown.contains_key(id)) {
        found.push(Requirement::Nodes.warning(format!("the instance is gone: {texts}")).repair(
            "with node.remove_released the node controller removes the node once its kubelet is silent; otherwise: kubectl \
             delete node NAME, then restart the kubelet; alicloud-ccm explain node/NAME says which instance has its place",
        ));
    }
    if let Some(texts) = listed(&|id| shown.get(id).is_some_and(|one| one.vpc_id != vpc)) {
        found.push(
            Requirement::Nodes
                .error(format!("the instance is in another VPC than {vpc}: {texts}"))
                .repair("correct cloud.vpc_id, or exclude the node by the label service.alibabacloud.com/exclude-node"),
        );
    }
    if found.is_empty() {
        found.push(Requirement::Nodes.ok(format!("{vpc} has {} of nodes", count_of(claimed.len(), "instance"))));
    }
    found
}

fn planned(row: &Controller, lines: &Result<Vec<PlanLine>, String>) -> Vec<CheckResult> {
    let controller = row.name();
    let lines = match lines {
        Ok(lines) => lines,
        Err(why) => {
            let what = format!("what {controller} would do cannot be planned");
            return vec![
                Requirement::Plan.error(what).seen(why).repair("repair what is above, or do what is said there"),
            ];
        }
    };
    let of = |kind: LineKind| lines.iter().filter(move |line| line.kind == kind);
    let mut found: Vec<CheckResult> = of(LineKind::Problem)
        .take(MOST_PROBLEMS)
        .map(|PlanLine { object, text, .. }| {
            Requirement::Plan
                .error(format!("{controller} {object}: {text}"))
                .repair(format!("alicloud-ccm explain {}", row.argument(object)))
        })
        .collect();
    let more = of(LineKind::Problem).count().saturating_sub(MOST_PROBLEMS);
    if more > 0 {
        found.push(
            Requirement::Plan
                .note(format!("{controller}: {} more", count_of(more, "problem")))
                .repair("alicloud-ccm plan"),
        );
    }
    found.extend(
        of(LineKind::Withheld)
            .chain(of(LineKind::Note))
            .take(MOST_PROBLEMS)
            .map(|line| Requirement::Plan.note(format!("{controller} {}: {}", line.object, line.text))),
    );
    let steps = of(LineKind::Step).count();
    found.push(match steps {
        0 => Requirement::Plan.ok(format!("{controller} has no step to do")),
        _ => Requirement::Plan
            .note(format!("{controller} has {} to do", count_of(steps, "step")))
            .repair("alicloud-ccm plan shows them"),
    });
    found
}

/// Other clusters with the same id, and what has no owner.
fn ownership(found: &gc::Findings, cluster_id: &str) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    if let Some(first) = found.other_clusters.first() {
        let things = named(found.other_clusters.iter().map(|doubtful| doubtful.what.id()));
        findings.push(Requirement::Identity.error(shared_id::text(cluster_id, &things, &first.why)).repair(
            "set another cloud.cluster_id in one of the clusters, before it makes anything: docs/explanation/safety.md",
        ));
    } else {
        findings.push(Requirement::Identity.ok(format!("no other cluster with the id {cluster_id} was seen")));
    }
    let orphans = found.orphans.iter().map(|orphan| {
        Requirement::Orphans
            .warning(orphan.to_string())
            .repair("alicloud-ccm gc --delete, after a look at: alicloud-ccm gc")
    });
    let unproven = found.unproven.iter().map(|doubtful| {
        Requirement::Orphans
            .note(doubtful.what.to_string())
            .seen(&doubtful.why)
            .repair("if no cluster needs it: alicloud-ccm gc --delete ID")
    });
    let unjudged = found.problems.iter().chain(&found.notes);
    let problems = unjudged.map(|problem| Requirement::Orphans.note("not all was judged").seen(problem));
    findings.extend(orphans.chain(unproven).chain(problems));
    findings
}

/// What `/readyz` says.
pub(super) fn process(readyz: &io::Result<String>, port: u16, is_taken: bool) -> Vec<CheckResult> {
    let text = match readyz {
        Err(why) if is_taken && why.kind() == io::ErrorKind::ConnectionRefused => {
            let what = format!("another program listens on server.port {port}");
            return vec![Requirement::Process.error(what).repair(format!(
                "stop that program (ss -ltnp 'sport = :{port}' names it), or set another server.port"
            ))];
        }
        Err(why) => return vec![Requirement::Process.note("no process answers on this machine").seen(why)],
        Ok(text) => text,
    };
    let lines = text.lines().filter_map(|line| {
        let repair = "look for this in docs/guides/troubleshooting.md, and for its reason in docs/reference/events.md";
        if line.starts_with("[-]") || line.contains(" fails since ") {
            return Some(Requirement::Process.error("a check of the running process fails").seen(line).repair(repair));
        }
        line.starts_with("[!]")
            .then(|| Requirement::Process.warning("the running process asks for attention").seen(line).repair(repair))
    });
    let found: Vec<CheckResult> = lines.collect();
    if found.is_empty() { vec![Requirement::Process.ok("the process on this machine is ready")] } else { found }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn the_page_of_readiness_tells_failures_from_what_asks_for_attention() {
        let judge = |text: &str| {
            let found = process(&Ok(text.to_owned()), 1, true);
            found.into_iter().map(|finding| (finding.severity, finding.evidence)).collect::<Vec<_>>()
        };
        assert_eq!(judge("[+]leader ok: leading\nreadyz check passed\n"), [(Verdict::Ok, String::new())]);
        let failing = "[+]cloud ok: X fails since 2026-01-01T00:00:00Z, once: denied";
        assert_eq!(
            judge(&format!("{failing}\n[!]route withholds 1 (X): y\n[-]kubernetes failed: z\n")),
            [
                (Verdict::Error, failing.to_owned()),
                (Verdict::Warning, "[!]route withholds 1 (X): y".to_owned()),
                (Verdict::Error, "[-]kubernetes failed: z".to_owned()),
            ]
        );
        for (kind, is_taken, expected) in [
            (io::ErrorKind::ConnectionRefused, false, Verdict::Note),
            (io::ErrorKind::ConnectionRefused, true, Verdict::Error),
            (io::ErrorKind::PermissionDenied, true, Verdict::Note),
        ] {
            assert_eq!(process(&Err(kind.into()), 1, is_taken)[0].severity, expected, "{kind} {is_taken}");
        }
    }
}
