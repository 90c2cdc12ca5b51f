//! The pvtz controller: keeps the records of one zone of PrivateZone as the Services and nodes of the cluster want them.
//!
//! What the zone holds is remembered between its full comparisons, so that a change of the cluster that needs no record costs
//! no call. Nothing is written on that memory alone: the names that differ are read first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::observe::{LISTS_CATCH_UP, ZoneReader, ZoneReads, ZoneState, ZoneTrouble};
pub use self::orphans::orphans;
use self::own_writes::OwnWrites;
use super::batch::{self, BatchReconciler, BatchResult, BatchScope, BatchTiming};
use super::reporter::{Reporter, regarding, state, trouble, trouble_of};
use super::{Clients, Context, Previewed};
use crate::alibaba::pvtz::PrivateZone;
use crate::alibaba::{Fault, FaultKind};
use crate::clock;
use crate::cluster::{Regarding, Watched, event_code};
use crate::config::Config;
use crate::fence::WRITE_TIME;
use crate::plan::inputs::{EndpointsView, NodeView, ObjectKey, ServiceView};
use crate::plan::pvtz::desire::WantedRecords;
use crate::plan::pvtz::diff::{CONFIRM, RecordPlan, RecordRules, RecordStep, Sightings, diff};
use crate::plan::pvtz::{RecordContent, ZoneRecord, mark};
use crate::plan::{LineKind, PlanLine};
use crate::telemetry::activity;
use crate::telemetry::alarms::{ObjectTrouble, named};

mod observe;
mod orphans;
mod own_writes;

/// Its name in the configuration, in logs and in metrics.
pub const NAME: &str = "pvtz";
/// Writes that succeed in one reconcile: what changed meanwhile waits no longer than these take. Those that fail do not count, so
/// that they hold up no other.
const MOST_WRITES: usize = 100;

/// Runs until `context.stop` is cancelled.
pub async fn run(context: Context) {
    let watches = Watches::open(&context.cluster);
    let identified = async {
        watches.synced().await;
        context.cluster.identify().await;
    };
    if context.stop.run_until_cancelled(identified).await.is_none() {
        return;
    }
    let mut changes = watches.services.store.subscribe();
    watches.endpoints.store.add_to(&changes);
    watches.nodes.store.add_to(&changes);
    let (config, fence, stop) = (context.config.clone(), context.fence.clone(), context.stop.clone());
    let reporter = Reporter::new(&context, NAME, "pvtz-controller", "objects");
    let (state, own_writes, sighted, started) = (None, OwnWrites::default(), Sightings::new(), Instant::now());
    let mut reconciler = PvtzReconciler { context, watches, reporter, state, own_writes, sighted, started };
    batch::drive(&mut reconciler, &mut changes, config, fence, stop).await;
    reconciler.lease_lost();
}

/// What [`run`] would do now. Writes nothing.
///
/// # Errors
/// Why the zone cannot be read, or must not be written, in words.
pub async fn plan(clients: &Clients, config: &Config, only: Option<&ObjectKey>) -> Result<Previewed, String> {
    let watches = Watches::open(&clients.cluster);
    let (rules, wanted, state) = read(clients, config, &watches).await.map_err(|trouble| trouble.to_string())?;
    let mut lines = diff(&wanted, &state.records, &rules, &mut Sightings::new(), Duration::ZERO).lines();
    let problem = |(owner, text)| PlanLine::new(NAME, owner, LineKind::Problem, text);
    lines.extend(wanted.problems.iter().map(problem));
    lines.retain(|line| only.is_none_or(|only| line.object == only.to_string()));
    lines.sort_by(|a, b| a.object.cmp(&b.object));
    Ok(Previewed { lines, ..Previewed::default() })
}

/// Why a Service, or a node for `None`, has no names; `None` if it has.
pub fn declines(config: &Config, service: Option<&ServiceView>) -> Option<String> {
    // Names are kept beside whatever serves the Service; users who did not ask for them do not miss them.
    if !config.controllers.contains(NAME) {
        return Some("it does not run".to_owned());
    }
    let Some(service) = service else { return (!config.pvtz.nodes).then(|| "pvtz.nodes is false".to_owned()) };
    let namespaces = &config.pvtz.namespaces;
    let is_chosen = namespaces.is_empty() || namespaces.iter().any(|it| **it == *service.key.namespace);
    (!is_chosen).then(|| "pvtz.namespaces does not list its namespace".to_owned())
}

async fn read(
    clients: &Clients,
    config: &Config,
    watches: &Watches,
) -> Result<(RecordRules, WantedRecords, ZoneState), ZoneTrouble> {
    let Clients { cluster, cloud, location } = clients;
    watches.listed().await.map_err(ZoneTrouble::Unusable)?;
    cluster.identify().await;
    let reader = ZoneReader { pvtz: &cloud.pvtz, location, config, watches };
    let zone = reader.zone().await?;
    let rules = rules(config, cluster.uid(), &zone)?;
    let wanted = reader.wanted(&rules)?;
    let mut state = reader.list(zone).await?;
    if !state.is_whole {
        let plan = diff(&wanted, &state.records, &rules, &mut Sightings::new(), Duration::ZERO);
        let reads = reader.refresh(&mut state, &plan).await?;
        if let Some(fault) = reads.into_fault() {
            return Err(fault.into());
        }
    }
    Ok((rules, wanted, state))
}

fn rules(config: &Config, uid: &str, zone: &PrivateZone) -> Result<RecordRules, ZoneTrouble> {
    if uid.is_empty() {
        let text = "the uid of this cluster is not known, by which its records are told from those of other clusters: grant \
                    the permission to read it, see alicloud-ccm rbac";
        return Err(ZoneTrouble::Unusable(text.to_owned()));
    }
    Ok(rules_of(config, uid, &zone.name))
}

fn rules_of(config: &Config, uid: &str, zone: &str) -> RecordRules {
    let remark = mark::remark(&config.cloud.cluster_id, uid);
    RecordRules { remark, ttl: config.pvtz.ttl, zone: zone.to_owned() }
}

/// What the names of a cluster are made of.
struct Watches {
    services: Watched<ServiceView>,
    endpoints: Watched<EndpointsView>,
    nodes: Watched<NodeView>,
}

impl Watches {
    fn open(cluster: &crate::cluster::Cluster) -> Self {
        Self { services: cluster.all_services(), endpoints: cluster.headless_endpoints(), nodes: cluster.nodes() }
    }

    async fn synced(&self) {
        self.services.store.synced().await;
        self.endpoints.store.synced().await;
        self.nodes.store.synced().await;
    }

    /// The same for what ends by itself.
    async fn listed(&self) -> Result<(), String> {
        // Endpoints are listed for known Services alone: where both are missing, that of the Services is the cause.
        tokio::try_join!(biased; self.services.listed(), self.endpoints.listed(), self.nodes.listed()).map(|_| ())
    }
}

struct PvtzReconciler {
    context: Context,
    watches: Watches,
    reporter: Reporter,
    /// `None` if the zone must be read whole.
    state: Option<ZoneState>,
    own_writes: OwnWrites,
    sighted: Sightings,
    started: Instant,
}

impl BatchReconciler for PvtzReconciler {
    const NAME: &'static str = NAME;

    fn timing(&self) -> BatchTiming {
        let config = self.context.config.borrow();
        BatchTiming { aggregation: config.pvtz.aggregation, period: config.pvtz.period }
    }

    fn is_relevant(&mut self, _: &ObjectKey) -> bool {
        true
    }

    async fn reconcile(&mut self, scope: BatchScope) -> BatchResult {
        let began = clock::now();
        let config = self.context.config.borrow().clone();
        let before = self.state.take_if(|_| scope == BatchScope::All);
        let (wanted, plan, rules, unread) = match self.observe(&config).await {
            Ok(observed) => observed,
            Err(trouble) => {
                let is_usable = matches!(trouble, ZoneTrouble::Cloud(_));
                let known = self.state.take().or(before);
                self.state = known.filter(|known| is_usable && known.is_named_by(&config));
                return self.aborted(&trouble, &config, began);
            }
        };
        for reason in ["SyncPrivateZoneFailed", "PrivateZoneUnusable"] {
            self.reporter.alarm(reason, 0, "");
        }
        let mut result = BatchResult::default();
        self.report(&wanted, &plan, &mut result);
        // Only a list shows that a record of others is gone.
        result.resync_after = (!plan.conflicts.is_empty()).then_some(batch::RESYNC_WHILE_OUT_OF_SYNC);
        for step in &plan.withheld {
            result.requeue(step.owner(), CONFIRM);
        }
        for (step, fault) in unread {
            let Some(fault) = fault else {
                result.requeue(step.owner(), Duration::ZERO);
                continue;
            };
            warn!(code = "ACCM0601", owner = %step.owner(), %fault, "its records cannot be read; the controller retries it");
            result.failed(step.owner(), failed(&step, &fault), (fault.kind.as_str(), fault.retry_after));
        }
        self.execute(&plan.steps, &rules, &mut result).await;
        for (owner, since) in self.state.iter().flat_map(|state| state.unsure.values()) {
            result.requeue(owner.clone(), LISTS_CATCH_UP.saturating_sub(since.elapsed()));
        }
        self.reporter.report((&BatchScope::All, began), &mut result, |_| true);
        result
    }

    fn scheduled(&mut self, later: &BTreeMap<ObjectKey, Instant>) {
        let Watches { services, nodes, .. } = &self.watches;
        self.reporter.scheduled(later, |key| {
            let node = || nodes.store.get(key).map(|node| regarding(&node));
            services.store.get(key).map(|service| Regarding::service(&service)).or_else(node)
        });
    }

    fn lease_lost(&mut self) {
        self.reporter.end_alarms();
        // Another process may write from now on.
        self.state = None;
        self.own_writes = OwnWrites::default();
    }
}

impl PvtzReconciler {
    /// What is wanted, and what is to be done for it according to records that were just read; nothing if what is remembered
    /// of the zone is what is wanted. Also the steps whose records were not read, and what failed; `None` if they are still to be read.
    async fn observe(
        &mut self,
        config: &Config,
    ) -> Result<(WantedRecords, RecordPlan, RecordRules, Vec<(RecordStep, Option<Fault>)>), ZoneTrouble> {
        let Context { cloud, cluster, location, .. } = &self.context;
        let reader = ZoneReader { pvtz: &cloud.pvtz, location, config, watches: &self.watches };
        let (now, is_fresh) = (self.started.elapsed(), self.state.is_none());
        let state = match &mut self.state {
            Some(known) => known,
            none => none.insert(reader.list(reader.zone().await?).await?),
        };
        let rules = rules(config, cluster.uid(), &state.zone)?;
        let wanted = reader.wanted(&rules)?;
        let remembered = diff(&wanted, &state.records, &rules, &mut self.sighted.clone(), now);
        let is_certain = is_fresh && state.is_whole || remembered.is_empty() && state.unsure.is_empty();
        let reads = match is_certain {
            true => ZoneReads::of_list(is_fresh && state.is_whole),
            false => reader.refresh(state, &remembered).await?,
        };
        self.own_writes.lay_over(state);
        let mut plan = diff(&wanted, &state.records, &rules, &mut self.sighted, now);
        let why = |step: &RecordStep| reads.has(&step.content().name).err();
        let later = plan.steps.iter().filter_map(|step| Some((step.clone(), why(step)?))).collect();
        plan.steps.retain(|step| why(step).is_none());
        plan.withheld.retain(|step| why(step).is_none());
        Ok((wanted, plan, rules, later))
    }

    /// No record is changed. Tells the owners of those that would be, by what is remembered of the zone; all owners, if nothing
    /// is.
    fn aborted(&self, fault: &ZoneTrouble, config: &Config, began: Timestamp) -> BatchResult {
        const FAILED: &str = "SyncPrivateZoneFailed";
        const UNUSABLE: &str = "PrivateZoneUnusable";
        let (why, trouble) = match fault {
            ZoneTrouble::Cloud(fault) => {
                error!(code = "ACCM0601", %fault, "the zone cannot be read; no record is changed");
                let text = format!("all names: the zone cannot be read, so no record is changed: {fault}");
                self.reporter.alarm(FAILED, 1, &text);
                let message = format!("The zone cannot be read: {fault}");
                ((fault.kind.as_str(), fault.retry_after), ObjectTrouble { message, ..trouble_of(FAILED, fault) })
            }
            ZoneTrouble::Unusable(text) => {
                self.reporter.alarm(UNUSABLE, 1, &format!("no record is changed: {text}"));
                let trouble = ObjectTrouble { cause: Some(text.clone()), ..trouble(UNUSABLE, text) };
                (("unusable", Some(batch::RESYNC_WHILE_OUT_OF_SYNC)), trouble)
            }
        };
        let mut result = BatchResult::aborted(why, &trouble, self.lacking(config).into_iter());
        self.reporter.report((&BatchScope::All, began), &mut result, |_| true);
        result
    }

    /// Whose records are not as they should be.
    fn lacking(&self, config: &Config) -> BTreeSet<ObjectKey> {
        let Context { cloud, cluster, location, .. } = &self.context;
        let reader = ZoneReader { pvtz: &cloud.pvtz, location, config, watches: &self.watches };
        let (zone, records) = match &self.state {
            Some(state) => (&*state.zone.name, &*state.records),
            None => (config.pvtz.zone_name.as_deref().unwrap_or_default(), [].as_slice()),
        };
        let rules = rules_of(config, cluster.uid(), zone);
        let Ok(wanted) = reader.wanted(&rules) else { return BTreeSet::new() };
        let plan = diff(&wanted, records, &rules, &mut self.sighted.clone(), self.started.elapsed());
        plan.steps.iter().map(RecordStep::owner).collect()
    }

    /// The conflicts of Services and nodes, and the steps that are withheld.
    fn report(&self, wanted: &WantedRecords, plan: &RecordPlan, result: &mut BatchResult) {
        let problems = wanted.problems.iter().map(|(owner, text)| (owner, "PrivateZoneNameInvalid", text));
        let conflicts = plan.conflicts.iter().map(|(owner, text)| (owner, "PrivateZoneRecordConflict", text));
        for (owner, reason, text) in problems.chain(conflicts) {
            if self.reporter.is_news(&owner.to_string(), text) {
                warn!(code = event_code(reason), %owner, reason, "{text}");
            }
            result.out_of_sync(owner.clone(), trouble(reason, text));
        }
        let names = named(plan.conflicts.keys());
        let text = format!("records of others take the names of these objects: {names}; see the event of each");
        self.reporter.silent_alarm("PrivateZoneRecordConflict", plan.conflicts.len(), &text);
        let text = format!(
            "{} records would vanish from the zone at once; the controller removes them if they are still not wanted after \
             {} s",
            plan.withheld.len(),
            CONFIRM.as_secs()
        );
        self.reporter.alarm("PrivateZoneRemovalHeldBack", plan.withheld.len(), &text);
    }

    /// Carries out what is due. A record that cannot be written keeps no other from being written; an action that does not
    /// work at all is not called again.
    async fn execute(&mut self, steps: &[RecordStep], rules: &RecordRules, result: &mut BatchResult) {
        // By the kind of step: each is an action of its own.
        let (mut stopped, mut written) = (HashMap::<_, Fault>::new(), 0);
        for step in steps {
            let action = mem::discriminant(step);
            if let Some(fault) = stopped.get(&action) {
                result.failed(step.owner(), failed(step, fault), (fault.kind.as_str(), fault.retry_after));
                continue;
            }
            if written == MOST_WRITES {
                result.requeue(step.owner(), Duration::ZERO);
                continue;
            }
            match activity::step(&step.to_string(), self.write(step, rules)).await {
                Ok(()) => {
                    info!(owner = %step.owner(), %step, "done");
                    written += 1;
                }
                Err(fault) => {
                    warn!(code = "ACCM0601", owner = %step.owner(), %step, %fault, "failed; the controller retries it");
                    result.failed(step.owner(), failed(step, &fault), (fault.kind.as_str(), fault.retry_after));
                    if let Some(state) = &mut self.state {
                        state.unsure.insert(step.content().name.clone(), (step.owner(), Instant::now()));
                    }
                    self.own_writes.forget(&step.content().name);
                    if !concerns_one(fault.kind) {
                        stopped.insert(action, fault);
                    }
                }
            }
        }
    }

    async fn write(&mut self, step: &RecordStep, rules: &RecordRules) -> Result<(), Fault> {
        let Context { cloud, fence, .. } = &self.context;
        let permit = fence.permit(WRITE_TIME)?;
        let Some(state) = &mut self.state else { return Ok(()) };
        let zone = &state.zone;
        let says = |id: String, content: &RecordContent| ZoneRecord {
            id,
            name: content.name.clone(),
            kind: content.kind.as_str().to_owned(),
            value: content.value_in(&zone.name),
            ttl: rules.ttl,
            remark: rules.remark.clone(),
        };
        let (record, is_there) = match step {
            RecordStep::Add(content) => {
                (says(cloud.pvtz.add_record(&permit, &zone.id, content, rules).await?, content), true)
            }
            RecordStep::Update { id, after, .. } => {
                cloud.pvtz.update_record(&permit, id, after, rules).await?;
                (says(id.clone(), after), true)
            }
            RecordStep::Delete { id, content } => {
                cloud.pvtz.delete_record(&permit, id).await?;
                (says(id.clone(), content), false)
            }
        };
        self.own_writes.note(state, record, is_there);
        Ok(())
    }
}

/// What is wrong with the owner of a record that could not be written.
fn failed(step: &RecordStep, fault: &Fault) -> ObjectTrouble {
    // The zone is not as it was read, or the next try may succeed: the retry reads it again.
    let is_unsure = matches!(fault.kind, FaultKind::Transient | FaultKind::Ambiguous | FaultKind::Gone);
    let (state, message) = (state(fault.passes() || is_unsure), format!("Could not {step}: {fault}"));
    ObjectTrouble { state, message, ..trouble_of("SyncPrivateZoneFailed", fault) }
}

/// Whether a fault says something about one record only, not about the action.
const fn concerns_one(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::Rejected | FaultKind::Exists | FaultKind::Gone | FaultKind::InUse | FaultKind::Bug | FaultKind::Busy
    )
}
