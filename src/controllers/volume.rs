//! The volume-labels controller: gives PersistentVolumes on cloud disks the labels of their zone and region, and a node
//! affinity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::batch::{self, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::reporter::{Reporter, trouble, trouble_of, trouble_of_write};
use super::{Clients, Context, Previewed, for_each_limited, instances};
use crate::alibaba::Fault;
use crate::alibaba::ecs::Ecs;
use crate::clock;
use crate::cluster::{Cluster, Patch, PatchFormat, Regarding, Store, Watched, WriteFault};
use crate::config::Config;
use crate::fence::WRITE_TIME;
use crate::plan::inputs::{NodeView, ObjectKey, ObjectKind, VolumeView};
use crate::plan::volume::{self, CloudDisk, VolumePlan, VolumeProblem, VolumeRules};
use crate::plan::{LineKind, PlanLine};
use crate::telemetry::activity;
use crate::telemetry::alarms::{ObjectTrouble, SyncState};

/// Its name in the configuration, in logs and in metrics.
pub const NAME: &str = "volume-labels";
/// Its name in events.
const COMPONENT: &str = "volume-labels-controller";
/// How long the first changed volume waits for others to share a call with.
const AGGREGATION: Duration = Duration::from_secs(1);
/// Volumes that are written in parallel.
const CONCURRENCY: usize = 16;
/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    let (volumes, nodes) = (context.cluster.volumes(), context.cluster.nodes());
    batch::run(context, volumes, |context, volumes| VolumeReconciler {
        reporter: Reporter::new(&context, NAME, COMPONENT, "PersistentVolumes"),
        context,
        volumes,
        nodes,
        disks: BTreeMap::new(),
        waiting: BTreeSet::new(),
    })
    .await;
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// A list is missing, or the first fault of the cloud, if it gave no answer about some disk.
pub async fn plan(clients: &Clients, config: &Config) -> Result<Previewed, String> {
    let Clients { cluster, cloud, location } = clients;
    let (volumes, nodes) = (cluster.volumes(), cluster.nodes());
    volumes.listed().await?;
    nodes.listed().await?;
    let rules = rules(cluster, &nodes, config);
    let looked = look(&cloud.ecs, &location.region, &rules, volumes.store.all().to_vec(), &mut BTreeMap::new()).await;
    let mut lines = Vec::new();
    for (view, finding) in looked {
        match finding {
            Finding::Plan(plan) => lines.extend(plan.lines(&view)),
            Finding::Problem(problem) => lines.push(PlanLine::new(NAME, &view.name, LineKind::Problem, &problem)),
            Finding::Fault(fault) => return Err(fault.to_string()),
        }
    }
    Ok(Previewed { lines, ..Previewed::default() })
}

/// What is known of one volume.
#[derive(Debug)]
enum Finding {
    /// What it lacks.
    Plan(VolumePlan),
    /// It stays as it is until its user changes something.
    Problem(VolumeProblem),
    /// The cloud did not say where its disk is.
    Fault(Fault),
}

/// Why a volume was not written.
#[derive(Debug)]
enum NotWritten {
    /// The API server refuses it until its user changes something.
    Problem(VolumeProblem),
    /// It is retried.
    Retried(Box<ObjectTrouble>),
}

fn rules(cluster: &Cluster, nodes: &Watched<NodeView>, config: &Config) -> VolumeRules {
    VolumeRules::new(&nodes.store.all(), |minor| cluster.is_at_least(minor), config.volume_labels.node_affinity)
}

/// Plans volumes; those that lack nothing are left out. Calls the cloud for disks that are not among `known` yet.
async fn look(
    ecs: &Ecs,
    region: &str,
    rules: &VolumeRules,
    views: Vec<Arc<VolumeView>>,
    known: &mut BTreeMap<String, CloudDisk>,
) -> Vec<(Arc<VolumeView>, Finding)> {
    let wanting = views.into_iter().filter_map(|view| match rules.disk_of(&view) {
        Ok(disk) => disk.map(str::to_owned).map(|disk| (view, Ok(disk))),
        Err(problem) => Some((view, Err(problem))),
    });
    let wanting: Vec<(Arc<VolumeView>, Result<String, VolumeProblem>)> = wanting.collect();
    let unknown: BTreeSet<String> =
        wanting.iter().filter_map(|(_, disk)| disk.clone().ok()).filter(|disk| !known.contains_key(disk)).collect();
    let unknown: Vec<String> = unknown.into_iter().collect();
    let mut faults: BTreeMap<&str, Fault> = BTreeMap::new();
    let answers = instances::in_batches(&unknown, instances::BATCH, |ids| ecs.describe_disks(region, ids));
    for (ids, answer) in answers.await {
        match answer {
            Ok(disks) => known.extend(disks.into_iter().map(|disk| (disk.id.clone(), disk))),
            Err(fault) => faults.extend(ids.iter().map(|id| (id.as_str(), fault.clone()))),
        }
    }
    let finding = |view: &VolumeView, disk: String| match (known.get(&disk), faults.get(disk.as_str())) {
        (Some(found), _) => rules.plan(view, found).map_or_else(Finding::Problem, Finding::Plan),
        (None, Some(fault)) => Finding::Fault(fault.clone()),
        (None, None) => Finding::Problem(VolumeProblem::NoDisk { disk, region: region.to_owned() }),
    };
    let findings = wanting.into_iter().map(|(view, disk)| {
        let finding = disk.map_or_else(Finding::Problem, |disk| finding(&view, disk));
        (view, finding)
    });
    findings.collect()
}

struct VolumeReconciler {
    context: Context,
    reporter: Reporter,
    volumes: Arc<Store<VolumeView>>,
    /// The keys of their labels decide which keys volumes get.
    nodes: Watched<NodeView>,
    /// Disks of volumes, by id: a disk never moves.
    disks: BTreeMap<String, CloudDisk>,
    /// Volumes whose node affinity waits for nodes.
    waiting: BTreeSet<ObjectKey>,
}

impl BatchReconciler for VolumeReconciler {
    const NAME: &'static str = NAME;

    fn timing(&self) -> BatchTiming {
        // Nothing in the cloud changes what a volume should have.
        BatchTiming { aggregation: AGGREGATION, period: None }
    }

    fn is_relevant(&mut self, _: &ObjectKey) -> bool {
        // Also where one is gone: it may be among those that are withheld.
        true
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        self.nodes.store.synced().await;
        let began = clock::now();
        let Context { cluster, cloud, location, config, .. } = &self.context;
        let rules = rules(cluster, &self.nodes, &config.borrow());
        let all = self.volumes.all();
        let handles: BTreeSet<&str> = all.iter().map(|view| view.handle.as_str()).collect();
        self.disks.retain(|id, _| handles.contains(id.as_str()));
        let chosen = all.iter().filter(|view| scope.contains(&ObjectKey::cluster(&view.name))).cloned().collect();
        let findings = look(&cloud.ecs, &location.region, &rules, chosen, &mut self.disks).await;

        let (mut result, mut problems) = (BatchResult::default(), Vec::new());
        self.waiting.retain(|key| !scope.contains(key));
        let (mut plans, mut unanswered) = (Vec::new(), None);
        for (view, finding) in findings {
            match finding {
                Finding::Plan(plan) => {
                    if plan.waits_for_nodes {
                        self.waiting.insert(ObjectKey::cluster(&view.name));
                    }
                    plans.push((view, plan));
                }
                Finding::Problem(problem) => problems.push((view, problem)),
                Finding::Fault(fault) => {
                    let failure = (fault.kind.as_str(), fault.retry_after);
                    result.failed(ObjectKey::cluster(&view.name), trouble_of("VolumeLabelsFailed", &fault), failure);
                    unanswered = Some(fault);
                }
            }
        }
        if let Some(fault) = unanswered {
            warn!(code = "ACCM0502", volumes = result.all_out_of_sync().count(), %fault, "disks could not be looked up; the controller retries it");
        }
        let this = &*self;
        let apply = async |(view, plan): (Arc<VolumeView>, VolumePlan)| (this.apply(&view, plan).await, view);
        for (ended, view) in for_each_limited(CONCURRENCY, plans, apply).await {
            match ended {
                Ok(()) => {}
                Err(NotWritten::Problem(problem)) => problems.push((view, problem)),
                Err(NotWritten::Retried(trouble)) => {
                    let failure = (trouble.kind(), None);
                    result.failed(ObjectKey::cluster(&view.name), *trouble, failure);
                }
            }
        }
        for (view, problem) in problems {
            let told = problem.to_string();
            if self.reporter.is_news(&view.name, &told) {
                warn!(code = "ACCM0502", volume = %view.name, %problem, "out of sync");
            }
            let mut trouble = trouble("VolumeLabelsFailed", told);
            if matches!(problem, VolumeProblem::NoDisk { .. }) {
                // The cloud can list a new disk late.
                trouble.state = SyncState::Retrying;
            }
            result.out_of_sync(ObjectKey::cluster(&view.name), trouble);
        }
        let exists = |name: &str| self.volumes.get(&ObjectKey::cluster(name)).is_some();
        self.reporter.report((&scope, began), &mut result, exists);
        self.tell_of_waiting(&mut result);
        result
    }

    fn scheduled(&mut self, later: &BTreeMap<ObjectKey, Instant>) {
        self.reporter.scheduled(later, |key| self.volumes.get(key).map(|volume| regarding(&volume)));
    }

    fn lease_lost(&mut self) {
        self.reporter.end_alarms();
    }
}

impl VolumeReconciler {
    /// Writes what a volume lacks.
    ///
    /// # Errors
    /// [`NotWritten`]
    async fn apply(&self, view: &VolumeView, mut plan: VolumePlan) -> Result<(), NotWritten> {
        if !plan.writes() {
            return Ok(());
        }
        let mut written = self.write(view, &plan).await;
        let refused = |plan: &VolumePlan, reason| VolumeProblem::Refused { step: plan.text(), reason };
        let mut problem = None;
        if let Err(WriteFault::Rejected(reason)) = &written
            && let Some(without) = plan.without_affinity()
        {
            // The labels alone tell the scheduler the zone.
            plan.labels.clear();
            problem = Some(refused(&plan, reason.clone()));
            plan = without;
            written = self.write(view, &plan).await;
        }
        let step = plan.text();
        match written {
            Ok(()) => {
                info!(volume = %view.name, step, "done");
                let events = self.context.cluster.events();
                events.normal(COMPONENT, &regarding(view), "VolumeLabeled", format!("Done: {step}"));
                problem.map_or(Ok(()), |problem| Err(NotWritten::Problem(problem)))
            }
            Err(WriteFault::Gone) => Ok(()),
            Err(WriteFault::Rejected(reason)) => Err(NotWritten::Problem(refused(&plan, reason))),
            Err(fault) => {
                if fault.passes() {
                    debug!(volume = %view.name, %fault, "the volume is looked at again");
                } else {
                    warn!(code = "ACCM0502", volume = %view.name, step, %fault, "failed; the controller retries it");
                }
                let message = format!("Could not {step}: {fault}");
                let told = trouble_of_write("VolumeLabelsFailed", &fault, "PersistentVolumes");
                Err(NotWritten::Retried(Box::new(ObjectTrouble { message, ..told })))
            }
        }
    }

    async fn write(&self, view: &VolumeView, plan: &VolumePlan) -> Result<(), WriteFault> {
        let Context { cluster, fence, .. } = &self.context;
        let (key, body) = (ObjectKey::cluster(&view.name), body(view, plan));
        let (kind, format) = (ObjectKind::PersistentVolume, PatchFormat::Merge);
        let permit = fence.permit(WRITE_TIME)?;
        let patch = Patch { kind, key: &key, subresource: None, format, body: &body };
        activity::step(&format!("{}: {}", view.name, plan.text()), cluster.patch(&permit, patch)).await
    }

    /// Tells of what waits, which is looked at again, since no watch shows what ends that.
    fn tell_of_waiting(&self, result: &mut BatchResult) {
        for key in &self.waiting {
            result.requeue(key.clone(), batch::RESYNC_WHILE_OUT_OF_SYNC);
        }
        let count = self.waiting.len();
        let first = self.waiting.first().map(ToString::to_string).unwrap_or_default();
        let text = format!("PersistentVolumes: {count}, such as {first}: {}; the labels do not wait", volume::WAITS);
        self.reporter.alarm("VolumeAffinityHeldBack", count, &text);
    }
}

fn regarding(view: &VolumeView) -> Regarding {
    Regarding { kind: "PersistentVolume", key: ObjectKey::cluster(&view.name), uid: view.uid.clone() }
}

/// The patch that writes a plan, only to the volume as it was planned: what was set meanwhile stays.
fn body(view: &VolumeView, plan: &VolumePlan) -> Value {
    let mut body = json!({ "metadata": { "resourceVersion": view.resource_version } });
    if !plan.labels.is_empty() {
        body["metadata"]["labels"] = json!(plan.labels);
    }
    if let Some((key, value)) = &plan.affinity {
        let requirement = json!({ "key": key, "operator": "In", "values": [value] });
        let terms = json!([{ "matchExpressions": [requirement] }]);
        body["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
    }
    body
}
