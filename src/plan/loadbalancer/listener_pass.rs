//! One pass over the listeners of a load balancer, whatever the product: which are made, changed and deleted.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use litemap::LiteMap;

use super::annotations::AnnotationName;
use super::cloud::{Listeners, Observed, ObservedListener};
use super::desired::{Desired, DesiredListener, ProductModel};
use super::features;
use super::groups::{GroupReferences, GroupsInPlan};
use super::handling::Departure;
use super::listener_diff::{self, ListenerChanges, regroup};
use super::model::GroupRef;
use super::operation::{ListenerFields, Operation};
use super::ownership::Owner;
use super::problem::{ListenerPlace, ServiceProblem};
use super::steps::{Plan, Target};

/// An attribute, as annotations know it, that a request lacks; and why it is needed.
pub(crate) type Lacking<M> = (<<M as ProductModel>::Name as AnnotationName>::Field, &'static str);

/// What is particular to a product's listeners.
pub(crate) trait ListenerModel: ProductModel {
    /// Whether a listener whose wanted server group cannot be used changes in other ways.
    const CHANGES_WITHOUT_GROUP: bool;

    /// The ports that a listener takes.
    fn ports(key: Self::ListenerKey) -> RangeInclusive<u16>;

    /// Whether it is one of UDP.
    fn is_udp(key: Self::ListenerKey) -> bool;

    /// Whether two listeners cannot be on one load balancer: they share a port, and both or neither of them are UDP.
    fn collide(one: Self::ListenerKey, other: Self::ListenerKey) -> bool {
        let (first, second) = (Self::ports(one), Self::ports(other));
        first.start() <= second.end() && second.start() <= first.end() && Self::is_udp(one) == Self::is_udp(other)
    }

    /// Attributes for a request that makes a listener.
    fn made_with(wanted: &DesiredListener<Self>) -> ListenerFields<Self>;

    /// Wanted attributes that differ and count.
    fn differing(
        key: Self::ListenerKey,
        found: &ListenerFields<Self>,
        wanted: &ListenerFields<Self>,
    ) -> Vec<Self::ListenerField>;

    /// The attributes that a request lacks.
    fn lacking(key: Self::ListenerKey, sent: &ListenerFields<Self>) -> Vec<Lacking<Self>>;

    /// How additional certificates are brought about, each step with what it finds. The listener has these `fields` until then.
    fn certificates(
        key: Self::ListenerKey,
        wanted: &DesiredListener<Self>,
        fields: &ListenerFields<Self>,
        found: &Self::HeldCertificates,
    ) -> Vec<(Self::Own, String)>;

    /// What steps for additional certificates are about.
    fn certificates_target(key: Self::ListenerKey) -> Target {
        key.into()
    }

    /// The listener to which a desired one redirects.
    fn leads_to(_wanted: &DesiredListener<Self>) -> Option<Self::ListenerKey> {
        None
    }

    /// The listener to which one that exists redirects.
    fn redirects_to(_key: Self::ListenerKey, _found: &ObservedListener<Self>) -> Option<Self::ListenerKey> {
        None
    }

    /// Whether an attribute differs that is fixed when a listener is made.
    fn is_fixed_otherwise(_wanted: &DesiredListener<Self>, _found: &ObservedListener<Self>) -> bool {
        false
    }

    /// Blocks listeners for what the verdicts on others mean for them.
    fn review(_pass: &mut Pass<'_, Self>) {}

    /// Takes out of the wanted attributes what must not be sent, and says so.
    fn withdraw(
        _pass: &mut Pass<'_, Self>,
        _key: Self::ListenerKey,
        _wanted: &mut ListenerFields<Self>,
        _found: &ObservedListener<Self>,
    ) {
    }
}

/// Whether listeners may be made, or would be open to clients that are to be kept out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// No new listener.
    Missing,
    /// Once this plan has done what is about this.
    Planned(Target),
    /// At once.
    InForce,
}

/// What is to be done about a desired listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerAction {
    Update,
    Create,
    Replace,
    /// Something prevents it; what is there stays.
    Blocked,
}

/// One pass over the listeners.
#[derive(Debug)]
pub(crate) struct Pass<'a, M: ListenerModel> {
    pub(crate) desired: &'a Desired<M>,
    pub(crate) observed: &'a Observed<M>,
    pub(crate) remote: &'a Listeners<M>,
    pub(crate) plan: &'a mut Plan<M>,
    pub(crate) verdicts: BTreeMap<M::ListenerKey, ListenerAction>,
    places: &'a GroupsInPlan,
    protection: Protection,
    changes: ListenerChanges<M::ListenerKey>,
}

/// Brings listeners about, and says what refers to which group then.
pub(crate) fn diff<M: ListenerModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    (places, protection): (&GroupsInPlan, Protection),
    plan: &mut Plan<M>,
) -> GroupReferences<M::ListenerKey> {
    let none = LiteMap::new();
    let mut changes = ListenerChanges::default();
    if desired.manage_listeners {
        let remote = match (&observed.listeners, &observed.instance) {
            (Some(listeners), _) => listeners,
            (None, None) => &none,
            (None, Some(_)) => return listener_diff::unread::<M>(observed, plan),
        };
        let verdicts = BTreeMap::new();
        let mut pass = Pass { desired, observed, remote, plan, verdicts, places, protection, changes };
        pass.run();
        changes = pass.changes;
    }
    listener_diff::references(desired, observed, &changes)
}

/// Plans the deletion of our listeners on a user's load balancer, first of those that redirect. Gives the listeners that still refer
/// to its groups, and those that no longer do.
pub(crate) fn leave<M: ListenerModel>(
    owner: &Owner,
    departure: &Departure,
    observed: &Observed<M>,
    plan: &mut Plan<M>,
) -> GroupReferences<M::ListenerKey> {
    let overrides = departure.override_listeners;
    let all = || observed.listeners.iter().flatten();
    let mut ours: Vec<_> = all().filter(|(_, listener)| observed.goes_with(owner, overrides, listener)).collect();
    ours.sort_by_key(|(key, listener)| M::redirects_to(**key, listener).is_none());
    let mut deleted: Vec<M::ListenerKey> = Vec::new();
    for (key, _) in ours {
        let sources = all().filter(|(other, listener)| M::redirects_to(**other, listener) == Some(*key));
        let sources: Vec<M::ListenerKey> = sources.map(|(other, _)| *other).collect();
        if let Some(source) = sources.iter().find(|source| !deleted.contains(source)) {
            let text =
                format!("listener {source}, which is not ours, redirects to it; it is deleted once that is changed");
            plan.problem(ServiceProblem::state(format!("listener {key}"), text));
            continue;
        }
        let needs = sources.into_iter().map(Into::into);
        let operation = Operation::DeleteListener { listener: *key };
        plan.step(operation, (*key).into(), needs, "the Service no longer needs it");
        deleted.push(*key);
    }
    // Where one of ours stays though it is not overridden, its user has taken it out of management, and backends of ours go.
    let is_ours = |it: &ObservedListener<M>| overrides && owner.owns_listener(&it.description);
    GroupReferences::of(observed, |key| deleted.contains(key), is_ours)
}

impl<M: ListenerModel> Pass<'_, M> {
    fn run(&mut self) {
        for (key, wanted) in &self.desired.listeners {
            let verdict = self.judge(*key, wanted);
            self.verdicts.insert(*key, verdict);
        }
        M::review(self);
        // Those that redirect come after those to which they lead.
        let mut verdicts: Vec<_> = self.verdicts.iter().map(|(key, verdict)| (*key, *verdict)).collect();
        verdicts.sort_by_key(|(key, _)| M::leads_to(&self.desired.listeners[key]).is_some());
        for (key, _) in verdicts.iter().filter(|(_, verdict)| *verdict == ListenerAction::Update) {
            self.update(*key);
        }
        for (key, _) in verdicts.iter().filter(|(_, it)| matches!(it, ListenerAction::Create | ListenerAction::Replace))
        {
            self.create(*key);
        }
        // One on a port whose new listener cannot be made keeps serving.
        let blocked = |key| verdicts.iter().any(|(to, it)| *it == ListenerAction::Blocked && M::collide(*to, key));
        let stale = self.remote.iter().filter(|(key, listener)| {
            !self.desired.listeners.contains_key(*key)
                && !self.is_withheld(**key)
                && self.desired.owner.owns_listener(&listener.description)
                && !blocked(**key)
        });
        let stale: Vec<_> = stale.map(|(key, _)| *key).collect();
        for key in stale {
            self.delete(key, "no longer wanted");
        }
    }

    /// Whether a listener that is not wanted may be that of a port about which there is a problem. Of a range of ports, nothing
    /// says to which port of the Service it belongs.
    fn is_withheld(&self, key: M::ListenerKey) -> bool {
        let ports = M::ports(key);
        let is_range = ports.start() != ports.end();
        let is_there =
            |place: &ListenerPlace| place.is_udp == M::is_udp(key) && (is_range || ports.contains(&place.port));
        self.desired.problems.withhold_listener(is_there)
    }

    /// Decides, and says what prevents it.
    fn judge(&mut self, key: M::ListenerKey, wanted: &DesiredListener<M>) -> ListenerAction {
        let collides = |other| M::collide(other, key);
        let notes = match listener_diff::in_the_way(self.desired, self.observed, (key, &wanted.source), collides) {
            Ok(notes) => notes,
            Err(problem) => {
                self.plan.problem(problem);
                return ListenerAction::Blocked;
            }
        };
        let is_other = |found: &ObservedListener<M>| {
            // Nothing of a listener that redirects can be changed, its mark included.
            let lacks_mark = M::leads_to(wanted).is_some() && !self.desired.owner.owns_listener(&found.description);
            M::is_fixed_otherwise(wanted, found) || M::redirects_to(key, found) != M::leads_to(wanted) || lacks_mark
        };
        let verdict = match self.remote.get(&key) {
            None => ListenerAction::Create,
            Some(found) if is_other(found) => ListenerAction::Replace,
            Some(_) => ListenerAction::Update,
        };
        let is_new = verdict != ListenerAction::Update;
        let lacks = is_new && self.lacks(key, wanted, &M::made_with(wanted));
        // The reason is among the problems already.
        let needs_group = M::leads_to(wanted).is_none() && (is_new || !M::CHANGES_WITHOUT_GROUP);
        let is_homeless = needs_group && !self.places.contains_key(&wanted.group.to_string());
        let is_open = is_new && self.protection == Protection::Missing && self.desired.access.is_some();
        let problems = &self.desired.problems;
        let place = ListenerPlace { port: wanted.port, is_udp: M::is_udp(key) };
        let is_withheld = match is_new {
            true => problems.withhold_new_listener(place),
            false => problems.withhold_listener(|withheld| *withheld == place),
        };
        if lacks || is_homeless || is_open || is_withheld {
            return ListenerAction::Blocked;
        }
        self.plan.overrides |= !notes.is_empty();
        self.plan.notes.extend(notes);
        verdict
    }

    /// Reports the attributes that are missing for a request, unless what is stated of them is wrong.
    fn lacks(&mut self, key: M::ListenerKey, wanted: &DesiredListener<M>, sent: &ListenerFields<M>) -> bool {
        let lacking = M::lacking(key, sent);
        for (field, why) in &lacking {
            let name = M::Name::of(*field);
            let field = name.map_or_else(|| M::Name::parameter(*field).to_owned(), AnnotationName::key);
            if self.desired.problems.iter().all(|it| it.problem.field != field) {
                let why = format!("{why}; listener {key} ({}) stays as it is", wanted.source);
                self.plan.problem(ServiceProblem::required(field, why));
            }
        }
        !lacking.is_empty()
    }

    fn update(&mut self, key: M::ListenerKey) {
        let (wanted, found) = (&self.desired.listeners[&key], &self.remote[&key]);
        if !M::NEW_ARE_STOPPED {
            self.start(key, wanted, found);
            self.set_certificates(key, wanted, found);
        }
        if M::leads_to(wanted).is_none() {
            self.set(key, wanted, found);
        }
        if M::NEW_ARE_STOPPED {
            self.set_certificates(key, wanted, found);
            self.start(key, wanted, found);
        }
    }

    fn start(&mut self, key: M::ListenerKey, wanted: &DesiredListener<M>, found: &ObservedListener<M>) {
        if found.status.eq_ignore_ascii_case("stopped") {
            let reason = format!("{}: it is stopped", wanted.source);
            self.plan.step(Operation::StartListener { listener: key }, key.into(), [key.into()], reason);
        }
    }

    fn set_certificates(&mut self, key: M::ListenerKey, wanted: &DesiredListener<M>, found: &ObservedListener<M>) {
        let Some(certificates) = &found.certificates else { return };
        for (operation, now) in M::certificates(key, wanted, &found.fields, certificates) {
            let reason = format!("{}: {now} now", wanted.source);
            self.plan.step(Operation::Own(operation), M::certificates_target(key), [key.into()], reason);
        }
    }

    fn set(&mut self, key: M::ListenerKey, wanted: &DesiredListener<M>, found: &ObservedListener<M>) {
        let mut overlay = wanted.resets.clone();
        overlay.extend(wanted.fields.clone());
        M::withdraw(self, key, &mut overlay, found);
        let differing = M::differing(key, &found.fields, &overlay);
        let told = |field: &M::ListenerField| {
            let was = found.fields.get(field).map_or("unset", String::as_str);
            format!("{field} {was} -> {}", overlay[field])
        };
        let settings: Vec<String> = differing.iter().map(told).collect();
        let mut rest = Vec::new();
        if !self.desired.owner.same_mark(&found.description, &wanted.description) {
            rest.push(format!("description {:?}", found.description));
        }
        let (group, moves) = match self.places.get(&wanted.group.to_string()) {
            Some(place) => regroup(self.desired, (key, &wanted.group), place, &found.group_id, self.plan),
            None => (GroupRef::Id(found.group_id.clone()), None),
        };
        let is_moved = moves.is_some();
        rest.extend(moves);
        if settings.is_empty() && rest.is_empty() {
            return;
        }
        let lacks = self.lacks(key, wanted, &M::sent(key, &found.fields, &overlay));
        if is_moved {
            self.changes.moved.insert(key);
        }
        let changed = features::changed(&overlay, &differing);
        for (fields, reasons) in listener_diff::in_parts(rest, (changed, settings), (is_moved, lacks)) {
            // A listener that stays with its group needs nothing of it.
            let needs = is_moved.then(|| Target::Group(group.clone()));
            let (description, group) = (wanted.description.clone(), Some(group.clone()));
            let operation = Operation::SetListener { listener: key, description, group, fields };
            self.plan.step(operation, key.into(), needs, format!("{}: {}", wanted.source, reasons.join(", ")));
        }
    }

    /// Creates a listener, after deleting what it replaces.
    fn create(&mut self, key: M::ListenerKey) {
        let wanted = &self.desired.listeners[&key];
        let goes = |other: &&M::ListenerKey| M::collide(**other, key) && !self.changes.deleted.contains(other);
        let in_the_way: Vec<M::ListenerKey> = self.remote.keys().filter(goes).copied().collect();
        for other in &in_the_way {
            let reason = match *other == key {
                true => "made again, as its redirection or scheduler cannot be changed".to_owned(),
                false => format!("replaced by {key}"),
            };
            if !self.delete(*other, &format!("{}: {reason}", wanted.source)) {
                return;
            }
        }
        let leads_to = M::leads_to(wanted);
        let place = self.places.get(&wanted.group.to_string()).filter(|_| leads_to.is_none());
        let group = place.map(|place| place.group.clone());
        let mut needs: Vec<Target> = in_the_way.into_iter().map(Into::into).collect();
        needs.extend(group.clone().map(Target::Group));
        needs.extend(leads_to.filter(|key| self.desired.listeners.contains_key(key)).map(Into::into));
        if let Protection::Planned(target) = &self.protection {
            needs.push(target.clone());
        }
        let (description, fields) = (wanted.description.clone(), M::made_with(wanted));
        let operation = Operation::CreateListener { listener: key, description, group, fields };
        self.plan.step(operation, key.into(), needs, &wanted.source);
        for (operation, _) in M::certificates(key, wanted, &ListenerFields::<M>::new(), &M::HeldCertificates::default())
        {
            self.plan.step(Operation::Own(operation), M::certificates_target(key), [key.into()], &wanted.source);
        }
        if M::NEW_ARE_STOPPED {
            let reason = format!("{}: new listeners are stopped", wanted.source);
            self.plan.step(Operation::StartListener { listener: key }, key.into(), [key.into()], reason);
        }
    }

    /// Deletes a listener of ours, before it those that redirect to it. Says whether it could be planned.
    fn delete(&mut self, key: M::ListenerKey, reason: &str) -> bool {
        if self.changes.deleted.contains(&key) {
            return true;
        }
        let mut needs = Vec::<Target>::new();
        let sources = self.remote.iter().filter(|(other, found)| M::redirects_to(**other, found) == Some(key));
        for (source, found) in sources {
            let goes = match self.verdicts.get(source) {
                Some(verdict) => *verdict == ListenerAction::Replace,
                None => self.desired.owner.owns_listener(&found.description) && !self.is_withheld(*source),
            };
            if !goes && !self.changes.deleted.contains(source) {
                let text = format!("listener {source} redirects to it and stays; it is deleted once that is changed");
                self.plan.problem(ServiceProblem::state(format!("listener {key}"), text));
                return false;
            }
            self.delete(*source, reason);
            needs.push((*source).into());
        }
        self.changes.deleted.insert(key);
        self.plan.step(Operation::DeleteListener { listener: key }, key.into(), needs, reason);
        true
    }
}
