//! `explain`: why one object is as it is, on one page.
//!
//! What cannot be answered is said, and the rest is answered all the same.

mod process;

use std::fmt::Write;

use ipnet::IpNet;
use serde::Serialize;

use self::process::ProcessReport;
use super::connect::{connect_cloud, connect_cluster};
use super::settings::SettingLine;
use super::{CommandError, CommandResult, Ended, print_findings, runtime};
use crate::cli::{ExplainArg, ObjectArg, OutputFormat};
use crate::cluster::{Cluster, Leader, PastEvent, WriteFault};
use crate::config::{Config, ConfigSource};
use crate::controllers::loadbalancer::{self, Linted};
use crate::controllers::registry::{CONTROLLERS, Subject};
use crate::controllers::{Clients, Previewed};
use crate::plan::inputs::{NodeView, ObjectKey, ObjectKind, ServiceView};
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::problem::ServiceProblem;
use crate::plan::{LineKind, PlanLine, count_of};

/// Events on the page; the API server keeps them for an hour or so.
const MOST_EVENTS: usize = 10;

const LEADER: &str = "the leader";

/// Everything that is said of one object.
#[derive(Debug, Default, Serialize)]
struct Explanation {
    /// `Service default/web`
    object: String,
    /// What matters most, in one sentence.
    summary: String,
    /// Whether the API server has it; `None` if that is not known.
    exists: Option<bool>,
    /// Controllers that are responsible and run.
    managed_by: Vec<&'static str>,
    /// Controllers that are not, and why.
    not_managed_by: Vec<Declined>,
    /// Whether replicas elect a leader.
    is_elected: bool,
    /// The replica that leads.
    leader: Option<Leader>,
    /// What is missing, as `plan` prints it.
    plan: Vec<PlanLine>,
    /// How the load balancer would be made, if nothing were there.
    wanted: Vec<String>,
    /// What there is in the cloud.
    found: Vec<String>,
    /// Where each setting of the load balancer, or each field of the node, comes from.
    settings: Vec<SettingLine>,
    /// What the process on this machine says of the object; `None` if none could be asked.
    process: Option<ProcessReport>,
    /// The newest first.
    events: Vec<PastEvent>,
    /// What could not be found out of the object itself, and why.
    unknown: Vec<String>,
    /// What could not be read beside it, and why.
    unread: Vec<String>,
}

/// A controller that leaves an object alone.
#[derive(Debug, Serialize)]
struct Declined {
    controller: &'static str,
    reason: String,
}

pub(super) fn run(
    config: &Config,
    origin: &ConfigSource,
    object: (&ExplainArg, &str),
    output: OutputFormat,
) -> CommandResult {
    let explanation = runtime()?.block_on(explain(config, origin, object));
    print_findings(output, &explanation.to_text(), &explanation)?;
    Ok(explanation.ended())
}

/// Why no controller manages an object, in the words of `plan`; `None` if one does.
pub(super) async fn unmanaged(
    cluster: &Cluster,
    config: &Config,
    object: &ObjectArg,
) -> Result<Option<String>, CommandError> {
    let mut explanation = Explanation { object: object.to_string(), ..Explanation::default() };
    explanation.judge(config, object.kind, read(cluster, object).await.map_err(CommandError::new)?.as_ref());
    Ok(explanation.managed_by.is_empty().then(|| explanation.summarise()))
}

/// What is wrong with a Service by itself, which the cloud has no part in.
pub(super) fn without_cloud(service: &ServiceView, config: &Config) -> Vec<PlanLine> {
    let Linted { kind, errors, warnings, .. } = loadbalancer::lint(service.clone(), config);
    let controller = if kind == Some(LoadBalancerKind::Nlb) { loadbalancer::NLB } else { loadbalancer::NAME };
    let line = |kind, what: &ServiceProblem| PlanLine::new(controller, &service.key, kind, what);
    let notes = warnings.iter().filter(|_| kind.is_some()).map(|what| line(LineKind::Note, what));
    errors.iter().map(|what| line(LineKind::Problem, what)).chain(notes).collect()
}

/// The object, and the namespace that is stated beside it.
async fn explain(config: &Config, origin: &ConfigSource, (object, namespace): (&ExplainArg, &str)) -> Explanation {
    let is_elected = config.leader_election.enabled;
    let mut it = Explanation { object: object.to_string(), is_elected, ..Explanation::default() };
    match connect_cluster(config).await {
        Ok(cluster) => {
            let object = match object {
                ExplainArg::Object(object) => {
                    Ok(Some(object.clone().within(namespace).within(&cluster.default_namespace())))
                }
                ExplainArg::Route(cidr) => node_with(&cluster, cidr).await,
            };
            match object {
                Ok(Some(object)) => {
                    it.object = object.to_string();
                    it.ask((config, origin), &object, cluster).await;
                }
                Ok(None) => {
                    (it.exists, it.summary) = (Some(false), "is needed by no node: none has this pod CIDR".to_owned());
                    return it;
                }
                Err(why) => it.unknown.push(format!("the node that has it: {why}")),
            }
        }
        Err(CommandError(error)) => it.unknown.push(format!("everything in the cluster: {error}")),
    }
    it.summary = it.summarise();
    it
}

/// The node whose route leads to these pods.
async fn node_with(cluster: &Cluster, cidr: &IpNet) -> Result<Option<ObjectArg>, String> {
    let nodes = cluster.nodes();
    nodes.listed().await?;
    let has = |node: &NodeView| {
        node.pod_cidrs.iter().filter_map(|text| text.parse().ok()).any(|own: IpNet| own.trunc() == *cidr)
    };
    let name = nodes.store.all().iter().find(|node| has(node)).map(|node| node.name.clone());
    Ok(name.map(|name| ObjectArg { kind: ObjectKind::Node, key: ObjectKey::cluster(name) }))
}

impl Explanation {
    async fn ask(&mut self, (config, origin): (&Config, &ConfigSource), object: &ObjectArg, cluster: Cluster) {
        let subject = read(&cluster, object).await;
        match &subject {
            Ok(subject) => self.judge(config, object.kind, subject.as_ref()),
            Err(fault) => self.unknown.push(format!("the object: {fault}")),
        }
        let events = cluster.events_about(object.kind, &object.key).await;
        self.events = self.known("events", events);
        self.events.truncate(MOST_EVENTS);
        if self.is_elected {
            let leader = cluster.leader(&config.leader_election).await;
            self.leader = self.known(LEADER, leader);
        }
        if self.managed_by.is_empty() {
            return;
        }
        match process::ask(&config.server, &object.key, &self.managed_by).await {
            Ok(report) => self.process = report,
            Err(why) => self.unread.push(format!("the process on this machine: {why}")),
        }
        match connect_cloud(config).await {
            Ok((cloud, location)) => {
                self.plan(&Clients { cluster, cloud, location }, (config, origin), &object.key).await;
            }
            Err(CommandError(error)) => {
                if let Ok(Some(Subject::Service(service))) = &subject {
                    self.plan = without_cloud(service, config);
                }
                self.unknown.push(format!("everything in the cloud: {error}"));
            }
        }
    }

    /// What was read; nothing, with a word why, if it could not be.
    fn known<T: Default>(&mut self, what: &str, read: Result<T, WriteFault>) -> T {
        read.unwrap_or_else(|fault| {
            self.unread.push(format!("{what}: {fault}"));
            T::default()
        })
    }

    /// Asks each controller of the kind whether the object is for it.
    fn judge(&mut self, config: &Config, kind: ObjectKind, subject: Option<&Subject>) {
        self.exists = Some(subject.is_some());
        let Some(subject) = subject else { return };
        for row in CONTROLLERS.iter().filter(|row| row.objects.contains(&kind)) {
            let controller = row.name();
            let is_running = config.controllers.contains(row.name());
            match (row.declines)(config, subject) {
                None if is_running => self.managed_by.push(controller),
                None => {
                    let reason = format!("it would be, but does not run: list {controller:?} in controllers");
                    self.not_managed_by.insert(0, Declined { controller, reason });
                }
                Some(reason) => self.not_managed_by.push(Declined { controller, reason }),
            }
        }
    }

    async fn plan(&mut self, clients: &Clients, (config, origin): (&Config, &ConfigSource), key: &ObjectKey) {
        let name = key.to_string();
        let managed_by = self.managed_by.clone();
        for row in CONTROLLERS.iter().filter(|row| managed_by.contains(&row.name())) {
            match (row.preview)(clients, config, Some(key)).await {
                Ok(Previewed { lines, wanted, found, settings }) => {
                    self.plan.extend(lines.into_iter().filter(|line| line.object == name));
                    self.wanted.extend(wanted);
                    self.found.extend(found);
                    self.settings.extend(settings.into_iter().map(|setting| SettingLine::of(setting, origin)));
                }
                Err(error) => self.unknown.push(format!("what {} would do: {error}", row.name())),
            }
        }
    }

    /// What matters most comes first: that it does not exist, that no controller is responsible, that no replica leads, a problem,
    /// the steps that are missing.
    fn summarise(&self) -> String {
        let steps = self.lines(LineKind::Step).count();
        let missing = format!("{} {} missing", count_of(steps, "step"), if steps == 1 { "is" } else { "are" });
        let problem = self.lines(LineKind::Problem).next();
        let withheld = self.lines(LineKind::Withheld).next();
        let warning = self.events.first().filter(|event| event.is_warning);
        let is_leaderless = self.is_elected && self.leader.as_ref().is_none_or(|leader| leader.is_expired);
        match (self.exists, self.not_managed_by.first(), problem) {
            (None, ..) => "could not be read".to_owned(),
            (Some(false), ..) => "does not exist in the cluster".to_owned(),
            (_, Some(Declined { controller, reason }), _) if self.managed_by.is_empty() => {
                format!("is managed by no controller of this program: not by {controller}, {reason}")
            }
            (_, None, _) if self.managed_by.is_empty() => "is managed by no controller of this program".to_owned(),
            _ if is_leaderless && steps > 0 && self.is_leader_read() => {
                let wait = if steps == 1 { "waits" } else { "wait" };
                format!(
                    "is out of sync, and no replica leads: {} {wait} until the program runs",
                    count_of(steps, "step")
                )
            }
            (.., Some(problem)) => format!("cannot be brought in sync: {}", problem.text),
            _ if steps > 0 => match (warning, self.process.as_ref().and_then(ProcessReport::trouble)) {
                (_, Some(trouble)) => format!("is out of sync, {missing}; {trouble}"),
                (Some(PastEvent { reason, message, .. }), None) => {
                    format!("is out of sync, {missing}; last event {reason}: {message}")
                }
                (None, None) => format!("is out of sync, {missing}"),
            },
            _ => match (withheld, self.lines(LineKind::Note).next(), self.unknown.first()) {
                (Some(withheld), ..) => format!("is out of sync; withheld: {}", withheld.text),
                (None, Some(note), _) => format!("is in sync; {}", note.text),
                (None, None, Some(unknown)) => format!("may be in sync; not known is {unknown}"),
                (None, None, None) => "is in sync".to_owned(),
            },
        }
    }

    fn lines(&self, kind: LineKind) -> impl Iterator<Item = &PlanLine> {
        self.plan.iter().filter(move |line| line.kind == kind)
    }

    fn is_leader_read(&self) -> bool {
        !self.unread.iter().any(|unread| unread.starts_with(LEADER))
    }

    fn ended(&self) -> Ended {
        match self.exists {
            Some(_) if self.managed_by.is_empty() => Ended::NotManaged,
            Some(_) if self.unknown.is_empty() => Ended::planned(&self.plan),
            _ => Ended::Incomplete,
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("{} {}.\n", self.object, self.summary);
        section(&mut text, "Managed by", &self.managed_by);
        section(
            &mut text,
            "Not managed by",
            self.not_managed_by.iter().map(|it| format!("{}: {}", it.controller, it.reason)),
        );
        let leader = match &self.leader {
            Some(Leader { holder, lock, renewed, is_expired }) => {
                format!("{holder}, {lock}, renewed {renewed}{}", if *is_expired { ", expired" } else { "" })
            }
            None if !self.is_leader_read() => "not known".to_owned(),
            None if self.is_elected => "no replica".to_owned(),
            None => "leader election is off".to_owned(),
        };
        section(&mut text, "Leader", [leader]);
        section(
            &mut text,
            "Plan",
            self.plan.iter().map(|line| format!("{} {}: {}", line.mark(), line.controller, line.text)),
        );
        section(&mut text, "Wanted, as it would be made from nothing", &self.wanted);
        section(&mut text, "Found", &self.found);
        section(&mut text, "Settings, and where they come from", &self.settings);
        section(&mut text, "Process on this machine", self.process.iter().flat_map(ProcessReport::lines));
        section(&mut text, "Events", self.events.iter().map(event_lines));
        section(&mut text, "Not known", self.unknown.iter().chain(&self.unread));
        text
    }
}

/// A heading with lines below; nothing if there are none.
fn section(text: &mut String, heading: &str, lines: impl IntoIterator<Item: ToString>) {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{heading}");
    }
    for line in lines {
        let _ = writeln!(text, "  {}", line.to_string());
    }
}

fn event_lines(event: &PastEvent) -> String {
    let PastEvent { at, is_warning, reason, message, count, remedy } = event;
    let severity = if *is_warning { "Warning" } else { "Normal" };
    let remedy = remedy.map(|remedy| format!("\n    to do: {remedy}")).unwrap_or_default();
    format!("{at} {severity} {reason} ({count} times): {message}{remedy}")
}

/// The object as the API server has it; `None` if it does not exist.
async fn read(cluster: &Cluster, object: &ObjectArg) -> Result<Option<Subject>, WriteFault> {
    let key = &object.key;
    Ok(match object.kind {
        ObjectKind::Node => cluster.read_node(&key.name).await?.map(Subject::Node),
        ObjectKind::Service => cluster.read_service(key).await?.map(Subject::Service),
        ObjectKind::PersistentVolume => cluster.read_volume(&key.name).await?.map(Subject::Volume),
        ObjectKind::Pod => None,
    })
}

#[cfg(test)]
mod tests;
