//! Listeners.

use std::collections::BTreeMap;

use litemap::LiteMap;

use super::access::Protection;
use crate::plan::nlb::annotations::{Field, Name};
use crate::plan::nlb::apply::SECURITY_GROUPS;
use crate::plan::nlb::desired::{Desired, DesiredListener, NetworkModel};
use crate::plan::nlb::diff::differing;
use crate::plan::nlb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::nlb::observed::{Observed, ObservedListener};
use crate::plan::nlb::operation::{Operation, Own, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::features;
use crate::plan::service::groups::{GroupInPlan, GroupReferences, GroupsInPlan};
use crate::plan::service::listener_diff::{self, ListenerChanges, regroup};
use crate::plan::service::model::GroupRef;
use crate::plan::service::steps::Target;

/// Certificates in one call.
const CERTIFICATES: usize = 15;

/// What is to be done about a desired listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerAction {
    Update,
    Create,
    /// Something prevents it; what is there stays.
    Blocked,
}

/// One pass over the listeners.
struct Pass<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    remote: &'a LiteMap<ListenerKey, Box<ObservedListener>>,
    places: &'a GroupsInPlan,
    protection: Protection,
    plan: &'a mut Plan,
    changes: ListenerChanges<ListenerKey>,
}

/// Brings listeners about, and says what refers to which group then.
pub(super) fn diff(
    desired: &Desired,
    observed: &Observed,
    (places, protection): (&GroupsInPlan, Protection),
    plan: &mut Plan,
) -> GroupReferences<ListenerKey> {
    let mut changes = ListenerChanges::default();
    if desired.manage_listeners {
        let Some(remote) = &observed.listeners else {
            return listener_diff::unread::<NetworkModel>(observed, plan);
        };
        let mut pass = Pass { desired, observed, remote, places, protection, plan, changes };
        pass.run();
        changes = pass.changes;
    }
    listener_diff::references(desired, observed, &changes)
}

impl Pass<'_> {
    fn run(&mut self) {
        let verdicts: BTreeMap<ListenerKey, ListenerAction> =
            self.desired.listeners.iter().map(|(key, wanted)| (*key, self.judge(*key, wanted))).collect();
        let of = |action: ListenerAction| -> Vec<ListenerKey> {
            verdicts.iter().filter(|(_, verdict)| **verdict == action).map(|(key, _)| *key).collect()
        };
        for key in of(ListenerAction::Update) {
            self.update(key);
        }
        for key in of(ListenerAction::Create) {
            self.create(key);
        }
        let blocked = of(ListenerAction::Blocked);
        let stale: Vec<ListenerKey> = self
            .remote
            .iter()
            .filter(|(key, listener)| {
                !self.changes.deleted.contains(*key)
                    && !self.desired.listeners.contains_key(*key)
                    && !(key.first..=key.last).any(|port| self.desired.problems.withhold_listener(port))
                    && self.desired.owner.owns_listener(&listener.description)
                    // One on a port whose new listener cannot be made keeps serving.
                    && !blocked.iter().any(|wanted| wanted.collides(**key))
            })
            .map(|(key, _)| *key)
            .collect();
        for key in stale {
            self.delete(key, "no longer wanted");
        }
    }

    /// Decides, and says what prevents it.
    fn judge(&mut self, key: ListenerKey, wanted: &DesiredListener) -> ListenerAction {
        let collides = |other: ListenerKey| other.collides(key);
        let notes = match listener_diff::in_the_way(self.desired, self.observed, (key, &wanted.source), collides) {
            Ok(notes) => notes,
            Err(problem) => {
                self.plan.problem(problem);
                return ListenerAction::Blocked;
            }
        };
        let is_there = self.remote.contains_key(&key);
        let lacks = !is_there && self.lacks(key, wanted, &wanted.fields);
        // The reason is among the problems already.
        let is_homeless = !is_there && self.place(wanted).is_none();
        let is_open = !is_there && self.protection == Protection::Missing && self.desired.access.is_some();
        let problems = &self.desired.problems;
        let is_withheld =
            problems.withhold_listener(wanted.port) || (!is_there && problems.withhold_new_listener(wanted.port));
        if lacks || is_homeless || is_open || is_withheld {
            return ListenerAction::Blocked;
        }
        self.plan.overrides |= !notes.is_empty();
        self.plan.notes.extend(notes);
        if is_there { ListenerAction::Update } else { ListenerAction::Create }
    }

    /// Reports the attributes that are missing for a request.
    fn lacks(&mut self, key: ListenerKey, wanted: &DesiredListener, sent: &ListenerFields) -> bool {
        let is_on = |field| sent.get(&field).is_some_and(|on| on == "true");
        let has = |field| sent.get(&field).is_some_and(|id| !id.is_empty());
        let tls = key.protocol == Protocol::TcpSsl;
        let table = [
            (tls, ListenerField::Certificate, "TCPSSL listeners need a certificate"),
            (
                is_on(ListenerField::CaEnabled),
                ListenerField::CaCertificate,
                "certificates of clients need that of an authority",
            ),
            (is_on(ListenerField::Alpn), ListenerField::AlpnPolicy, "ALPN needs a policy"),
        ];
        let mut lacks = false;
        for (_, field, why) in table.into_iter().filter(|(needed, field, _)| *needed && !has(*field)) {
            listener_diff::lacks(self.desired, (key, &wanted.source), (Field::Listener(field), why), self.plan);
            lacks = true;
        }
        lacks
    }

    fn place(&self, wanted: &DesiredListener) -> Option<&GroupInPlan> {
        self.places.get(&wanted.group.to_string())
    }

    fn update(&mut self, key: ListenerKey) {
        let (wanted, listener) = (&self.desired.listeners[&key], &self.remote[&key]);
        let target = Target::from(key);
        if listener.status == "Stopped" {
            let reason = format!("{}: it is stopped", wanted.source);
            self.plan.step(Operation::StartListener { listener: key }, target, [], reason);
        }
        self.certificates(key, wanted, listener);
        self.set(key, wanted, listener);
    }

    fn set(&mut self, key: ListenerKey, wanted: &DesiredListener, listener: &ObservedListener) {
        let sent = self.observed.sent(key, &wanted.fields);
        let stated = wanted.fields.iter().filter(|(field, _)| sent.contains_key(field));
        let (changes, settings) = differing(stated, &listener.fields, default_of);
        let mut rest = Vec::new();
        if !self.desired.owner.same_mark(&listener.description, &wanted.description) {
            rest.push(format!("description {:?}", listener.description));
        }
        let (group, moves) = match self.places.get(&wanted.group.to_string()) {
            Some(place) => regroup(self.desired, (key, &wanted.group), place, &listener.group_id, self.plan),
            None => (GroupRef::Id(listener.group_id.clone()), None),
        };
        let is_moved = moves.is_some();
        rest.extend(moves);
        if settings.is_empty() && rest.is_empty() {
            return;
        }
        let lacks = self.lacks(key, wanted, &sent);
        if is_moved {
            self.changes.moved.insert(key);
        }
        let changed = features::changed(&wanted.fields, changes.keys());
        for (fields, reasons) in listener_diff::in_parts(rest, (changed, settings), (is_moved, lacks)) {
            let needs = is_moved.then(|| Target::Group(group.clone()));
            let (description, group) = (wanted.description.clone(), group.clone());
            let operation = Operation::SetListener { listener: key, description, group: Some(group), fields };
            let reason = format!("{}: {}", wanted.source, reasons.join(", "));
            self.plan.step(operation, Target::from(key), needs, reason);
        }
    }

    /// Creates a listener, after deleting what it replaces.
    fn create(&mut self, key: ListenerKey) {
        let wanted = &self.desired.listeners[&key];
        let in_the_way: Vec<ListenerKey> = self
            .remote
            .keys()
            .filter(|other| other.collides(key) && !self.changes.deleted.contains(*other))
            .copied()
            .collect();
        for other in &in_the_way {
            self.delete(*other, &format!("{}: replaced by {key}", wanted.source));
        }
        let Some(place) = self.place(wanted).cloned() else { return };
        let target = Target::from(key);
        let mut needs: Vec<Target> = in_the_way.into_iter().map(Target::from).collect();
        needs.push(Target::Group(place.group.clone()));
        if self.protection == Protection::Planned {
            needs.push(Target::Attribute(SECURITY_GROUPS));
        }
        let operation = Operation::CreateListener {
            listener: key,
            description: wanted.description.clone(),
            group: Some(place.group),
            fields: wanted.fields.clone(),
        };
        self.plan.step(operation, target.clone(), needs, wanted.source.clone());
        let ids: Vec<&String> = wanted.additional_certificates.iter().flatten().collect();
        for batch in ids.chunks(CERTIFICATES) {
            let ids = batch.iter().map(|id| (*id).clone()).collect();
            let operation = Own::AddCertificates { listener: key, ids };
            self.plan.step(operation, target.clone(), [target.clone()], wanted.source.clone());
        }
    }

    fn delete(&mut self, key: ListenerKey, reason: &str) {
        if self.changes.deleted.insert(key) {
            self.plan.step(Operation::DeleteListener { listener: key }, Target::from(key), [], reason);
        }
    }

    /// Adds certificates, then removes others.
    fn certificates(&mut self, key: ListenerKey, wanted: &DesiredListener, listener: &ObservedListener) {
        let (Some(wanted_ids), Some(found)) = (&wanted.additional_certificates, &listener.additional_certificates)
        else {
            return;
        };
        // The default certificate is in no list.
        let default = wanted.fields.get(&ListenerField::Certificate);
        let add: Vec<&String> = wanted_ids.difference(found).filter(|id| Some(*id) != default).collect();
        let remove: Vec<&String> = found.difference(wanted_ids).collect();
        let set = |batch: &[&String]| batch.iter().map(|id| (*id).clone()).collect();
        let adds = add.chunks(CERTIFICATES).map(|ids| Own::AddCertificates { listener: key, ids: set(ids) });
        let removes = remove.chunks(CERTIFICATES).map(|ids| Own::RemoveCertificates { listener: key, ids: set(ids) });
        let reason = format!("{}: {}: others now", wanted.source, Name::AdditionalCertIds.key());
        for operation in adds.chain(removes) {
            self.plan.step(operation, Target::from(key), [Target::from(key)], reason.clone());
        }
    }
}

/// What holds where the cloud does not say it.
const fn default_of(field: ListenerField) -> &'static str {
    match field {
        ListenerField::Cps => "0",
        ListenerField::ProxyProtocol
        | ListenerField::Ppv2EndpointId
        | ListenerField::Ppv2EndpointServiceId
        | ListenerField::Ppv2VpcId
        | ListenerField::CaEnabled
        | ListenerField::Alpn => "false",
        _ => "",
    }
}
