//! Listeners.

use std::collections::BTreeMap;

use litemap::LiteMap;

use super::fields;
use crate::plan::clb::annotations::Name;
use crate::plan::clb::desired::{ClassicModel, Desired, DesiredListener};
use crate::plan::clb::model::{ListenerField as Field, ListenerFields, ListenerKey, Protocol};
use crate::plan::clb::observed::{CertificateState, Observed, ObservedListener};
use crate::plan::clb::operation::{Operation, Own, Plan};
use crate::plan::service::annotations::AnnotationName;
use crate::plan::service::features;
use crate::plan::service::groups::{GroupInPlan, GroupReferences, GroupsInPlan};
use crate::plan::service::listener_diff::{self, ListenerChanges, is_ours, regroup};
use crate::plan::service::management::DOMAIN_EXTENSIONS;
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::steps::Target;

/// The HTTPS port to which a listener redirects.
pub(in crate::plan::clb) fn forwards_to(key: ListenerKey, listener: &ObservedListener) -> Option<u16> {
    let on = key.protocol == Protocol::Http && listener.fields.get(&Field::ListenerForward).is_some_and(|v| v == "on");
    on.then(|| listener.fields.get(&Field::ForwardPort)?.parse().ok()).flatten()
}

/// What is to be done about a desired listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerAction {
    Update,
    Create,
    Replace,
    /// Something prevents it; what is there stays.
    Blocked,
}

/// One pass over the listeners.
struct Pass<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    remote: &'a LiteMap<ListenerKey, Box<ObservedListener>>,
    places: &'a GroupsInPlan,
    plan: &'a mut Plan,
    changes: ListenerChanges<ListenerKey>,
}

/// Brings listeners about, and says what refers to which group then.
pub(super) fn diff(
    desired: &Desired,
    observed: &Observed,
    places: &GroupsInPlan,
    plan: &mut Plan,
) -> GroupReferences<ListenerKey> {
    let none = LiteMap::new();
    let mut changes = ListenerChanges::default();
    if desired.manage_listeners {
        let remote = match (&observed.listeners, &observed.instance) {
            (Some(listeners), _) => listeners,
            (None, None) => &none,
            (None, Some(_)) => return listener_diff::unread::<ClassicModel>(observed, plan),
        };
        let mut pass = Pass { desired, observed, remote, places, plan, changes };
        pass.run();
        changes = pass.changes;
    }
    listener_diff::references(desired, observed, &changes)
}

impl Pass<'_> {
    fn run(&mut self) {
        let mut verdicts: BTreeMap<ListenerKey, ListenerAction> =
            self.desired.listeners.iter().map(|(key, wanted)| (*key, self.judge(*key, wanted))).collect();
        for (key, wanted) in &self.desired.listeners {
            if wanted.forward_to.is_some_and(|port| !self.target_exists(port, &verdicts)) {
                let port = wanted.forward_to.unwrap_or_default();
                let rule = format!("must lead to a port with an HTTPS listener; listener {key} stays as it is");
                let given = format!("{}:{port}", key.port);
                self.plan.problem(ServiceProblem::invalid(Name::ForwardPort.key(), given, rule));
                verdicts.insert(*key, ListenerAction::Blocked);
            }
        }
        let of = |verdict: &[ListenerAction], forwarding: bool| -> Vec<ListenerKey> {
            let forwards = |key: &ListenerKey| self.desired.listeners[key].forward_to.is_some();
            verdicts
                .iter()
                .filter(|(key, found)| verdict.contains(found) && forwards(key) == forwarding)
                .map(|(key, _)| *key)
                .collect()
        };
        let updates = [of(&[ListenerAction::Update], false), of(&[ListenerAction::Update], true)].concat();
        let creations = [
            of(&[ListenerAction::Create, ListenerAction::Replace], false),
            of(&[ListenerAction::Create, ListenerAction::Replace], true),
        ]
        .concat();
        for key in updates {
            self.update(key);
        }
        for key in creations {
            self.create(key, &verdicts);
        }
        let stale: Vec<ListenerKey> = self
            .remote
            .iter()
            .filter(|(key, listener)| {
                !self.changes.deleted.contains(*key)
                    && !self.desired.listeners.contains_key(*key)
                    && !self.desired.problems.withhold_listener(key.port)
                    && self.desired.owner.owns_listener(&listener.description)
                    && !self.holds_the_place_of_blocked(**key, &verdicts)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in stale {
            self.delete(key, &verdicts, "no longer wanted");
        }
    }

    /// A listener of ours on a port whose new listener cannot be made keeps serving.
    fn holds_the_place_of_blocked(&self, key: ListenerKey, verdicts: &BTreeMap<ListenerKey, ListenerAction>) -> bool {
        verdicts.iter().any(|(wanted, verdict)| *verdict == ListenerAction::Blocked && wanted.collides(key))
    }

    fn target_exists(&self, port: u16, verdicts: &BTreeMap<ListenerKey, ListenerAction>) -> bool {
        let target = ListenerKey { port, protocol: Protocol::Https };
        match verdicts.get(&target) {
            Some(ListenerAction::Blocked) => self.remote.contains_key(&target),
            Some(_) => true,
            // One of a user will do; one of ours is stale.
            None => self
                .remote
                .get(&target)
                .is_some_and(|listener| !is_ours(self.desired, self.observed, &listener.facts())),
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
        let verdict = match self.remote.get(&key) {
            None => ListenerAction::Create,
            Some(listener) if self.must_replace(key, wanted, listener) => ListenerAction::Replace,
            Some(_) => ListenerAction::Update,
        };
        let sent = || fields::for_creation(&wanted.defaults, &wanted.fields, wanted.forward_to);
        let lacks = verdict != ListenerAction::Update && self.lacks(key, wanted, &sent());
        // The reason is among the problems already.
        let is_homeless = wanted.forward_to.is_none() && self.place(wanted).is_none();
        let problems = &self.desired.problems;
        let is_withheld = match verdict {
            ListenerAction::Update => problems.withhold_listener(key.port),
            _ => problems.withhold_new_listener(key.port),
        };
        if lacks || is_homeless || is_withheld {
            return ListenerAction::Blocked;
        }
        self.plan.overrides |= !notes.is_empty();
        self.plan.notes.extend(notes);
        verdict
    }

    /// Whether something differs that is fixed when a listener is made.
    fn must_replace(&self, key: ListenerKey, wanted: &DesiredListener, listener: &ObservedListener) -> bool {
        let scheduler = wanted.fields.get(&Field::Scheduler);
        let hash = scheduler.is_some_and(|wanted| {
            fields::is_hash(wanted) && listener.fields.get(&Field::Scheduler).is_some_and(|found| found != wanted)
        });
        hash || forwards_to(key, listener) != wanted.forward_to
    }

    /// Reports the attributes that are missing for a request.
    fn lacks(&mut self, key: ListenerKey, wanted: &DesiredListener, sent: &ListenerFields) -> bool {
        let lacking = fields::lacking(key.protocol, sent);
        for (field, why) in &lacking {
            listener_diff::lacks(self.desired, (key, &wanted.source), (*field, why), self.plan);
        }
        !lacking.is_empty()
    }

    fn place(&self, wanted: &DesiredListener) -> Option<&GroupInPlan> {
        self.places.get(&wanted.group.to_string())
    }

    fn update(&mut self, key: ListenerKey) {
        let (wanted, listener) = (&self.desired.listeners[&key], &self.remote[&key]);
        let target = Target::from(key);
        if wanted.forward_to.is_none() {
            self.set(key, wanted, listener);
        }
        self.domain_extensions(key, wanted, listener);
        if listener.status == "stopped" {
            self.plan.step(
                Operation::StartListener { listener: key },
                target.clone(),
                [target],
                format!("{}: it is stopped", wanted.source),
            );
        }
    }

    fn set(&mut self, key: ListenerKey, wanted: &DesiredListener, listener: &ObservedListener) {
        let Some(place) = self.place(wanted).cloned() else { return };
        let mut overlay = wanted.resets.clone();
        overlay.extend(wanted.fields.clone());
        if !self.certificate_fits(key, &overlay, listener) {
            overlay.remove(&Field::ServerCertificateId);
        }
        let differing = fields::differing(key.protocol, &listener.fields, &overlay);
        let settings: Vec<String> = differing
            .iter()
            .map(|field| {
                let found = listener.fields.get(field).map_or("unset", String::as_str);
                format!("{field} {found} -> {}", overlay[field])
            })
            .collect();
        let mut rest = Vec::new();
        if !self.desired.owner.same_mark(&listener.description, &wanted.description) {
            rest.push(format!("description {:?}", listener.description));
        }
        let (group, moves) = regroup(self.desired, (key, &wanted.group), &place, &listener.group_id, self.plan);
        let is_moved = moves.is_some();
        rest.extend(moves);
        if settings.is_empty() && rest.is_empty() {
            return;
        }
        let lacks = self.lacks(key, wanted, &fields::for_change(key.protocol, &listener.fields, &overlay));
        if is_moved {
            self.changes.moved.insert(key);
        }
        let changed = features::changed(&overlay, &differing);
        for (fields, reasons) in listener_diff::in_parts(rest, (changed, settings), (is_moved, lacks)) {
            // A listener that stays with its group needs nothing of it.
            let needs = is_moved.then(|| Target::Group(group.clone()));
            let (description, group) = (wanted.description.clone(), Some(group.clone()));
            let operation = Operation::SetListener { listener: key, description, group, fields };
            let reason = format!("{}: {}", wanted.source, reasons.join(", "));
            self.plan.step(operation, Target::from(key), needs, reason);
        }
    }

    /// A new certificate must exist and be valid, unless the old one is gone.
    fn certificate_fits(&mut self, key: ListenerKey, wanted: &ListenerFields, listener: &ObservedListener) -> bool {
        let field = Field::ServerCertificateId;
        let (Some(new), Some(old)) = (wanted.get(&field), listener.fields.get(&field)) else { return true };
        if new == old || self.observed.certificates.get(old) == Some(&CertificateState::Missing) {
            return true;
        }
        let fault = match self.observed.certificates.get(new) {
            Some(CertificateState::Missing) => "does not exist",
            Some(CertificateState::Expired) => "has expired",
            Some(CertificateState::Unknown) => "could not be looked up",
            Some(CertificateState::Valid) | None => return true,
        };
        let rule = format!("must be a valid certificate: this one {fault}, so listener {key} keeps {old}");
        self.plan.problem(ServiceProblem::invalid(Name::CertId.key(), new, rule));
        false
    }

    /// Creates a listener, after deleting what it replaces.
    fn create(&mut self, key: ListenerKey, verdicts: &BTreeMap<ListenerKey, ListenerAction>) {
        let wanted = &self.desired.listeners[&key];
        let in_the_way: Vec<ListenerKey> = self
            .remote
            .keys()
            .filter(|other| other.collides(key) && !self.changes.deleted.contains(*other))
            .copied()
            .collect();
        for other in &in_the_way {
            let reason = if *other == key {
                format!("{}: made again, as its redirection or scheduler cannot be changed", wanted.source)
            } else {
                format!("{}: replaced by {key}", wanted.source)
            };
            if !self.delete(*other, verdicts, &reason) {
                return;
            }
        }
        let group = match wanted.forward_to {
            Some(_) => None,
            None => self.place(wanted).map(|place| place.group.clone()),
        };
        let target = Target::from(key);
        let mut needs: Vec<Target> = in_the_way.into_iter().map(Target::from).collect();
        needs.extend(group.clone().map(Target::Group));
        let forward = wanted.forward_to.map(|port| ListenerKey { port, protocol: Protocol::Https });
        needs.extend(forward.filter(|target| self.desired.listeners.contains_key(target)).map(Target::from));
        self.plan.step(
            Operation::CreateListener {
                listener: key,
                description: wanted.description.clone(),
                group,
                fields: fields::for_creation(&wanted.defaults, &wanted.fields, wanted.forward_to),
            },
            target.clone(),
            needs,
            wanted.source.clone(),
        );
        for (domain, certificate_id) in wanted.domain_extensions.iter().flatten() {
            self.plan.step(
                Own::CreateDomainExtension {
                    listener: key,
                    domain: domain.clone(),
                    certificate_id: certificate_id.clone(),
                },
                Target::Attribute(DOMAIN_EXTENSIONS),
                [target.clone()],
                wanted.source.clone(),
            );
        }
        self.plan.step(
            Operation::StartListener { listener: key },
            target.clone(),
            [target],
            format!("{}: new listeners are stopped", wanted.source),
        );
    }

    /// Deletes a listener of ours, before it those that redirect to it. Says whether it could be planned.
    fn delete(&mut self, key: ListenerKey, verdicts: &BTreeMap<ListenerKey, ListenerAction>, reason: &str) -> bool {
        if self.changes.deleted.contains(&key) {
            return true;
        }
        let mut needs = vec![];
        if key.protocol == Protocol::Https {
            let sources: Vec<ListenerKey> = self
                .remote
                .iter()
                .filter(|(other, listener)| forwards_to(**other, listener) == Some(key.port))
                .map(|(other, _)| *other)
                .collect();
            for source in sources {
                let goes = match verdicts.get(&source) {
                    Some(verdict) => *verdict == ListenerAction::Replace,
                    None => {
                        self.desired.owner.owns_listener(&self.remote[&source].description)
                            && !self.desired.problems.withhold_listener(source.port)
                    }
                };
                if !goes && !self.changes.deleted.contains(&source) {
                    let text =
                        format!("listener {source} redirects to it and stays; it is deleted once that is changed");
                    self.plan.problem(ServiceProblem::state(format!("listener {key}"), text));
                    return false;
                }
                self.delete(source, verdicts, reason);
                needs.push(Target::from(source));
            }
        }
        self.changes.deleted.insert(key);
        self.plan.step(Operation::DeleteListener { listener: key }, Target::from(key), needs, reason);
        true
    }

    /// Changes, then adds, then removes.
    fn domain_extensions(&mut self, key: ListenerKey, wanted: &DesiredListener, listener: &ObservedListener) {
        let (Some(wanted_domains), Some(remote)) = (&wanted.domain_extensions, &listener.domain_extensions) else {
            return;
        };
        let (mut set, mut add) = (Vec::new(), Vec::new());
        for (domain, certificate_id) in wanted_domains {
            let (domain, certificate_id) = (domain.clone(), certificate_id.clone());
            match remote.get(&domain) {
                Some(found) if found.certificate_id == certificate_id => {}
                Some(found) => {
                    let (id, was) = (found.id.clone(), found.certificate_id.clone());
                    set.push((Own::SetDomainExtension { listener: key, id, domain, certificate_id }, was));
                }
                None => {
                    let operation = Own::CreateDomainExtension { listener: key, domain, certificate_id };
                    add.push((operation, "none".to_owned()));
                }
            }
        }
        let gone = remote.iter().filter(|(domain, _)| !wanted_domains.contains_key(*domain)).map(|(domain, found)| {
            let (id, domain) = (found.id.clone(), domain.clone());
            (Own::DeleteDomainExtension { listener: key, id, domain }, found.certificate_id.clone())
        });
        let operations: Vec<_> = set.into_iter().chain(add).chain(gone).collect();
        for (operation, found) in operations {
            self.plan.step(
                operation,
                Target::Attribute(DOMAIN_EXTENSIONS),
                [Target::from(key)],
                format!("{}: {}: {found} now", wanted.source, Name::DomainExtensions.key()),
            );
        }
    }
}
