//! Carries out the plan for one load balancer, step by step, each with a permit of its own.
//!
//! A step that the cloud cannot do now ends the run: the rest is planned again from what is then there. A step that the
//! cloud will not do keeps back only the steps that need its target. There is no waiting and no repeating here.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tracing::info;

use crate::alibaba::slb::{ListenerRequest, NewDomainExtension, Slb};
use crate::alibaba::{Fault, FaultKind, Priority};
use crate::fence::Fence;
use crate::plan::clb::apply::CreationAnswer;
use crate::plan::clb::observed::{AccessList, Observed};
use crate::plan::clb::operation::{CreateInstance, Operation, Plan, Step};
use crate::plan::service::model::GroupRef;
use crate::plan::service::steps::{Operation as _, Target};

/// A write must be able to last this long before the lease could be lost, or it does not start.
pub(crate) const SHORTEST_WRITE: Duration = Duration::from_secs(5);

/// What came of a plan.
#[derive(Debug, Default)]
pub(super) struct Execution {
    /// Steps that the cloud confirmed, as the plan prints them.
    pub(super) done: Vec<String>,
    /// Steps that the cloud refused.
    pub(super) refused: Vec<(String, Fault)>,
    /// Why the run ended before the last step, if it did.
    pub(super) stopped: Option<(String, Fault)>,
    /// At which the run ended, if it may have been done.
    pub(super) perhaps: Option<Operation>,
    /// What was decided on the way, for the user: which vSwitch was full, for example.
    pub(super) remarks: Vec<String>,
}

impl Execution {
    /// Whether every step was done.
    pub(super) fn complete(&self) -> bool {
        self.refused.is_empty() && self.stopped.is_none()
    }

    /// Whether what is then believed of the load balancer can be relied on: no step was cut short or refused, which
    /// can mean that a read was. A step that was held back to stay below a quota changed nothing.
    pub(super) fn is_certain(&self) -> bool {
        self.refused.is_empty() && self.stopped.as_ref().is_none_or(|(_, fault)| fault.held_back())
    }
}

/// Carries out `plan`, moving `observed` forward with every step that succeeds.
///
/// `token` makes the creation of the instance idempotent: the same for every try at the same load balancer, by whomever.
/// Where quotas are short, changes of backends that serve pass before everything else, and `object` shares with others.
pub(super) async fn execute(
    slb: &Slb,
    fence: &Fence,
    plan: Plan,
    observed: &mut Observed,
    token: &Token,
    object: u64,
) -> Execution {
    let serving_slb = &slb.on(Priority { object, serving: true });
    let slb = &slb.on(Priority { object, serving: false });
    let mut execution = Execution::default();
    let mut failed: BTreeSet<Target> = BTreeSet::new();
    let mut waits_for_room: Vec<Step> = Vec::new();
    let mut made_room = false;
    let mut steps: VecDeque<Step> = plan.steps.into();
    loop {
        let Some(step) = steps.pop_front() else {
            // Backends that found no room get a second chance once others have left.
            if made_room && !waits_for_room.is_empty() {
                made_room = false;
                steps.extend(waits_for_room.drain(..));
                continue;
            }
            break;
        };
        if failed.contains(&step.target) || step.needs.iter().any(|need| failed.contains(need)) {
            continue;
        }
        let line = format!("{} ({})", step.operation, step.reason);
        let serving = step.operation.backends_of().is_some_and(|group| observed.serves(group));
        let slb = if serving { serving_slb } else { slb };
        match perform(slb, fence, &step.operation, observed, token, &mut execution.remarks).await {
            Ok(made) => {
                info!(step = %line, "done");
                made_room |= matches!(step.operation, Operation::RemoveBackends { .. });
                observed.apply(&step.operation, &made);
                execution.done.push(line);
            }
            Err(fault) if ends_the_run(fault.kind) => {
                if has_unknown_fate(fault.kind) {
                    execution.perhaps = Some(step.operation);
                }
                execution.stopped = Some((line, fault));
                return execution;
            }
            Err(fault) => match refused(&step, &fault) {
                Refused::TryParts(parts) => parts.into_iter().rev().for_each(|part| steps.push_front(part)),
                Refused::NoRoom if !waits_for_room.contains(&step) && (made_room || removes_later(&steps)) => {
                    waits_for_room.push(step);
                }
                Refused::NoRoom | Refused::OneBackend => execution.refused.push((line, fault)),
                Refused::Target => {
                    failed.insert(step.target);
                    execution.refused.push((line, fault));
                }
            },
        }
    }
    for step in waits_for_room {
        execution.refused.push((step.to_string(), no_room(&step)));
    }
    execution
}

/// Faults after which the remaining steps would be based on a guess, or would only meet the same fault. What is gone was
/// believed to be there: everything else that is believed may be wrong as well.
const fn ends_the_run(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Throttled
        | FaultKind::Busy
        | FaultKind::Transient
        | FaultKind::Ambiguous
        | FaultKind::Exists
        | FaultKind::Credential
        | FaultKind::Bug
        | FaultKind::Gone
        | FaultKind::NotLeading => true,
        FaultKind::InUse | FaultKind::Quota | FaultKind::Capacity | FaultKind::Denied | FaultKind::Rejected => false,
    }
}

/// Faults after which nobody knows whether a write took effect: the answer was lost, or cannot be understood.
const fn has_unknown_fate(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Ambiguous | FaultKind::Bug)
}

/// What a refused step means for the rest.
enum Refused {
    /// Everything that needs the target is kept back.
    Target,
    /// One of several backends is to blame: the step goes on in parts.
    TryParts(Vec<Step>),
    /// Exactly this backend is to blame; the others of its group go on.
    OneBackend,
    /// The group or the load balancer is full.
    NoRoom,
}

fn refused(step: &Step, fault: &Fault) -> Refused {
    let part = |operation| Step { operation, ..step.clone() };
    match &step.operation {
        Operation::AddBackends { .. } if fault.kind == FaultKind::Quota => Refused::NoRoom,
        Operation::AddBackends { group, backends } | Operation::SetBackends { group, backends } => {
            if backends.len() < 2 {
                return Refused::OneBackend;
            }
            let (left, right) = backends.split_at(backends.len() / 2);
            let halves = [left, right].map(|half| {
                let (group, backends) = (group.clone(), half.to_vec());
                part(match &step.operation {
                    Operation::SetBackends { .. } => Operation::SetBackends { group, backends },
                    _ => Operation::AddBackends { group, backends },
                })
            });
            Refused::TryParts(halves.into())
        }
        // The group itself is rarely refused; its backends are.
        Operation::CreateGroup { name, backends } if !backends.is_empty() => Refused::TryParts(vec![
            part(Operation::CreateGroup { name: name.clone(), backends: Vec::new() }),
            part(Operation::AddBackends { group: GroupRef::Named(name.clone()), backends: backends.clone() }),
        ]),
        _ => Refused::Target,
    }
}

fn removes_later(steps: &VecDeque<Step>) -> bool {
    steps.iter().any(|step| matches!(step.operation, Operation::RemoveBackends { .. } | Operation::DeleteGroup { .. }))
}

fn no_room(step: &Step) -> Fault {
    missing(&format!("{step}: the load balancer or the server group has no room for more backends"), FaultKind::Quota)
}

/// What makes the creation of one load balancer the same creation however often it is tried.
#[derive(Clone, Debug)]
pub(super) struct Token {
    cluster_id: String,
    service_uid: String,
    /// The load balancer that this one replaces, empty for the first: a replacement must not be taken for the original.
    incarnation: String,
}

impl Token {
    pub(super) fn new(cluster_id: &str, service_uid: &str, incarnation: &str) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            service_uid: service_uid.to_owned(),
            incarnation: incarnation.to_owned(),
        }
    }

    /// The client token for a try in `vswitch` and these zones: other parameters under the same token would be refused.
    fn text(&self, vswitch: Option<&str>, zones: &Zones) -> String {
        use sha1::{Digest, Sha1};
        let mut hash = Sha1::new();
        let (master, slave) = (zones.0.as_deref().unwrap_or_default(), zones.1.as_deref().unwrap_or_default());
        let service = [self.cluster_id.as_str(), &self.service_uid, &self.incarnation];
        for part in service.into_iter().chain([vswitch.unwrap_or_default(), master, slave]) {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

async fn perform(
    slb: &Slb,
    fence: &Fence,
    operation: &Operation,
    observed: &Observed,
    token: &Token,
    remarks: &mut Vec<String>,
) -> Result<CreationAnswer, Fault> {
    if let Operation::CreateInstance(wanted) = operation {
        return create_instance(slb, fence, wanted, token, remarks).await;
    }
    if let Some(made) = access_list(slb, fence, operation, observed).await? {
        return Ok(made);
    }
    let lb = observed.instance.as_ref().map(|instance| instance.id.as_str()).unwrap_or_default();
    if lb.is_empty() {
        return Err(missing("the load balancer does not exist yet", FaultKind::Gone));
    }
    let permit = fence.permit(SHORTEST_WRITE).map_err(|_| not_leading())?;
    let permit = &permit;
    let done = |()| CreationAnswer::default();
    match operation {
        Operation::CreateInstance(_)
        | Operation::CreateAccessList(_)
        | Operation::AddAccessEntries { .. }
        | Operation::RemoveAccessEntries { .. }
        | Operation::DeleteAccessList { .. } => unreachable!("handled above"),
        Operation::DeleteInstance { id } => slb.delete_instance(permit, id).await.or_else(gone_is_done).map(done),
        Operation::SetName { name } => slb.set_name(permit, lb, name).await.map(done),
        Operation::SetDeleteProtection { on } => slb.set_delete_protection(permit, lb, *on).await.map(done),
        Operation::SetModificationProtection { status, reason } => {
            slb.set_modification_protection(permit, lb, status, reason.as_deref()).await.map(done)
        }
        Operation::SetInstanceChargeType { charge_type, spec } => {
            slb.set_instance_charge_type(permit, lb, charge_type, spec.as_deref()).await.map(done)
        }
        Operation::SetSpec { spec } => slb.set_spec(permit, lb, spec).await.map(done),
        Operation::SetInternetSpec { charge_type, bandwidth } => {
            slb.set_internet_spec(permit, lb, charge_type, *bandwidth).await.map(done)
        }
        Operation::Tag { tags } => slb.tag(permit, lb, tags).await.map(done),
        Operation::Untag { keys } => slb.untag(permit, lb, keys).await.map(done),
        Operation::CreateGroup { name, backends } => {
            let id = slb.create_group(permit, lb, name, backends).await?;
            Ok(CreationAnswer { id: Some(id), ..CreationAnswer::default() })
        }
        Operation::AddBackends { group, backends } => {
            slb.add_backends(permit, group_id(observed, group)?, backends).await.map(done)
        }
        Operation::RemoveBackends { group, backends } => {
            slb.remove_backends(permit, group_id(observed, group)?, backends).await.map(done)
        }
        Operation::SetBackends { group, backends } => {
            slb.set_backends(permit, group_id(observed, group)?, backends).await.map(done)
        }
        Operation::DeleteGroup { id, .. } => slb.delete_group(permit, id).await.or_else(gone_is_done).map(done),
        Operation::CreateListener { listener, description, group, fields }
        | Operation::SetListener { listener, description, group, fields } => {
            let group_id = group.as_ref().map(|group| group_id(observed, group)).transpose()?;
            let fields = &observed.with_list_id(fields);
            let request = ListenerRequest { load_balancer_id: lb, listener: *listener, description, group_id, fields };
            match operation {
                Operation::CreateListener { .. } => slb.create_listener(permit, &request).await,
                _ => slb.set_listener(permit, &request).await,
            }
            .map(done)
        }
        Operation::StartListener { listener } => slb.start_listener(permit, lb, *listener).await.map(done),
        Operation::DeleteListener { listener } => {
            slb.delete_listener(permit, lb, *listener).await.or_else(gone_is_done).map(done)
        }
        Operation::CreateDomainExtension { listener, domain, certificate_id } => {
            let (load_balancer_id, port) = (lb, listener.port);
            let wanted = NewDomainExtension { load_balancer_id, port, domain, certificate_id };
            let id = slb.create_domain_extension(permit, wanted).await?;
            Ok(CreationAnswer { id: Some(id), ..CreationAnswer::default() })
        }
        Operation::SetDomainExtension { id, certificate_id, .. } => {
            slb.set_domain_extension(permit, id, certificate_id).await.map(done)
        }
        Operation::DeleteDomainExtension { id, .. } => {
            slb.delete_domain_extension(permit, id).await.or_else(gone_is_done).map(done)
        }
    }
}

/// Carries out what is about the access control list, which is no part of the load balancer; `None` for anything else.
async fn access_list(
    slb: &Slb,
    fence: &Fence,
    operation: &Operation,
    observed: &Observed,
) -> Result<Option<CreationAnswer>, Fault> {
    let id = || match &observed.access_list {
        AccessList::Found(list) => Ok(list.id.as_str()),
        _ => Err(missing("the access control list does not exist yet", FaultKind::Gone)),
    };
    let permit = || fence.permit(SHORTEST_WRITE).map_err(|_| not_leading());
    match operation {
        Operation::CreateAccessList(wanted) => {
            let id = slb.create_access_list(&permit()?, wanted).await?;
            return Ok(Some(CreationAnswer { id: Some(id), ..CreationAnswer::default() }));
        }
        Operation::AddAccessEntries { entries, .. } => slb.add_access_entries(&permit()?, id()?, entries).await?,
        Operation::RemoveAccessEntries { entries, .. } => slb.remove_access_entries(&permit()?, id()?, entries).await?,
        Operation::DeleteAccessList { id, .. } => {
            slb.delete_access_list(&permit()?, id).await.or_else(gone_is_done)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(CreationAnswer::default()))
}

/// Primary and secondary zone.
type Zones = (Option<String>, Option<String>);

/// Zones to try, in order: those asked for; where only the configuration or the place of the nodes asked, also the other way round (unless a
/// vSwitch decides), and at last whatever the cloud chooses.
fn zones_to_try(wanted: &CreateInstance) -> Vec<Zones> {
    let asked = (wanted.master_zone.clone(), wanted.slave_zone.clone());
    let mut choices = vec![asked.clone()];
    if wanted.zones_can_change {
        if asked.1.is_some() && wanted.vswitch_ids.is_empty() {
            choices.push((asked.1, asked.0));
        }
        choices.push((None, None));
    }
    choices.dedup();
    choices
}

fn zones_text((master, slave): &Zones) -> String {
    match (master, slave) {
        (Some(master), Some(slave)) => format!("zones {master} and {slave}"),
        (Some(master), None) => format!("zone {master}"),
        _ => "zones of the cloud's choice".to_owned(),
    }
}

async fn create_instance(
    slb: &Slb,
    fence: &Fence,
    wanted: &CreateInstance,
    token: &Token,
    remarks: &mut Vec<String>,
) -> Result<CreationAnswer, Fault> {
    let vswitches: Vec<Option<&str>> = match wanted.vswitch_ids.as_slice() {
        [] => vec![None],
        ids => ids.iter().map(|id| Some(id.as_str())).collect(),
    };
    let (zones, ours) = (zones_to_try(wanted), wanted.zones_can_change);
    let chosen = zones.len() * vswitches.len() > 1;
    let mut last = None;
    for zones in &zones {
        for vswitch in &vswitches {
            let place = match vswitch {
                Some(vswitch) => format!("vSwitch {vswitch}, {}", zones_text(zones)),
                None => zones_text(zones),
            };
            let permit = fence.permit(SHORTEST_WRITE).map_err(|_| not_leading())?;
            let wanted = CreateInstance { master_zone: zones.0.clone(), slave_zone: zones.1.clone(), ..wanted.clone() };
            match slb.create_instance(&permit, &wanted, *vswitch, &token.text(*vswitch, zones)).await {
                Ok(created) => {
                    if chosen {
                        remarks.push(format!("Load balancer {} was made in {place}", created.id));
                    }
                    return Ok(CreationAnswer {
                        id: Some(created.id),
                        address: Some(created.address),
                        vpc_id: Some(created.vpc_id),
                        vswitch_id: Some(created.vswitch_id),
                    });
                }
                // A zone that nobody asked for can also be one that has no load balancers at all.
                Err(fault)
                    if fault.kind == FaultKind::Capacity
                        || (fault.kind == FaultKind::Rejected && ours && zones.0.is_some()) =>
                {
                    remarks.push(format!("No load balancer can be made in {place} [{}]", fault.code));
                    last = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
    }
    Err(last.unwrap_or_else(|| missing("no vSwitch to choose from", FaultKind::Rejected)))
}

fn group_id<'a>(observed: &'a Observed, group: &'a GroupRef) -> Result<&'a str, Fault> {
    match group {
        GroupRef::Id(id) => Ok(id),
        GroupRef::Named(name) => observed
            .groups
            .iter()
            .find(|(_, group)| group.name == *name)
            .map(|(id, _)| id.as_str())
            .ok_or_else(|| missing(&format!("server group {name} does not exist yet"), FaultKind::Gone)),
    }
}

fn gone_is_done(fault: Fault) -> Result<(), Fault> {
    if fault.kind == FaultKind::Gone { Ok(()) } else { Err(fault) }
}

fn not_leading() -> Fault {
    missing("this copy does not hold the lease (any more); the one that does goes on", FaultKind::NotLeading)
}

fn missing(message: &str, kind: FaultKind) -> Fault {
    Fault {
        kind,
        action: "load balancer",
        code: String::new(),
        message: message.to_owned(),
        request_id: String::new(),
        retry_after: None,
    }
}
