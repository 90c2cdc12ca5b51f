//! Whether a load balancer may be used at all, its tags, and what becomes of it when its Service goes.

use std::collections::BTreeMap;

use litemap::LiteMap;

use super::annotations::{AnnotationName, ID};
use super::cloud::Observed;
use super::desired::{Desired, ProductModel};
use super::handling::Departure;
use super::management::MARKS;
use super::operation::{Operation, OperationModel};
use super::orphans::TaggedInstance;
use super::ownership::{CLUSTER_TAG, CLUSTER_UID_TAG, MARK_TAG, MOST_TAGS, Owner, REUSE_TAG, UNPROTECTED_TAG};
use super::problem::ServiceProblem;
use super::steps::{Plan, Target};

/// The key of the annotation of an attribute, by a product's `table` of these.
pub(crate) fn key_of<N: AnnotationName, F: PartialEq>(table: &[(N, F)], field: F) -> String {
    table.iter().find(|(_, it)| *it == field).map(|(name, _)| name.key()).unwrap_or_default()
}

/// An attribute that is wanted otherwise than it was made.
pub(crate) fn immutable(field: &str, wanted: &str, found: &str) -> ServiceProblem {
    let rule = format!(
        "field is immutable, and was made as {found:?}; set the annotation back, or delete the Service and create it again"
    );
    ServiceProblem::invalid(field, wanted, rule)
}

/// Whether the load balancer that is there may be used; `is_bound` if the Service publishes its address already, or none.
pub(crate) fn usable<M: ProductModel>(
    desired: &Desired<M>,
    observed: &Observed<M>,
    is_bound: bool,
) -> Result<(), ServiceProblem> {
    match (&desired.reuse, observed.tagged()) {
        (Some(id), None) => {
            Err(ServiceProblem::invalid(ID.full(), id, "must be the id of a load balancer that exists"))
        }
        (Some(id), Some(instance)) => reusable(desired, id, &instance, is_bound),
        (None, Some(instance)) if !desired.owner.owns_load_balancer(instance.name, instance.tags) => {
            let tags: Vec<_> = instance.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let given = format!("the name {} and the tags {}", instance.name, tags.join(","));
            Err(foreign(&desired.owner, &instance, &given, "nothing is changed on it"))
        }
        (None, _) => Ok(()),
    }
}

/// What keeps a load balancer of a user from being used by the configuration.
pub(crate) fn forbidden<M: ProductModel>(desired: &Desired<M>, is_public: bool) -> Option<ServiceProblem> {
    let id = desired.reuse.as_ref().filter(|_| desired.forbid_public && is_public)?;
    let rule = "must be a load balancer with a private address: service.disable_public switches public ones off";
    Some(ServiceProblem::invalid(ID.full(), id, rule))
}

fn foreign(owner: &Owner, instance: &TaggedInstance<'_>, given: &str, result: &str) -> ServiceProblem {
    let text = format!(
        "it has {given}, so it is not this Service's, whose tag {MARK_TAG} is {} and whose tag {}, if any, is {}; {result}",
        owner.default_name(),
        owner.cluster_tag,
        owner.cluster_id
    );
    ServiceProblem::state(format!("load balancer {}", instance.id), text)
}

fn reusable<M: ProductModel>(
    desired: &Desired<M>,
    id: &str,
    instance: &TaggedInstance<'_>,
    is_bound: bool,
) -> Result<(), ServiceProblem> {
    let refuse = |rule: String| Err(ServiceProblem::invalid(ID.full(), id, rule));
    let own = [MARK_TAG, CLUSTER_TAG, desired.owner.cluster_tag.as_str()];
    if instance.id != id {
        return refuse(format!("the cloud answered with {}; nothing is done", instance.id));
    }
    if let Some(tag) = own.into_iter().find(|tag| instance.tags.contains_key(*tag)) {
        return refuse(format!("must be a load balancer that was not made for Kubernetes: this one has the tag {tag}"));
    }
    if !is_bound {
        return refuse(format!(
            "the Service already has another address than {}, and cannot move between load balancers; delete it and make \
             it again",
            instance.address
        ));
    }
    Ok(())
}

pub(crate) fn attribute<M: OperationModel>(
    plan: &mut Plan<M>,
    target: &'static str,
    operation: impl Into<Operation<M>>,
    reason: impl Into<String>,
) {
    plan.step(operation, Target::Attribute(target), [], reason);
}

/// Tags by which a load balancer is recognised. `stated` are those that the user asks for.
pub(crate) fn marks(
    instance: &TaggedInstance<'_>,
    wanted: BTreeMap<String, String>,
    stated: &BTreeMap<String, String>,
    plan: &mut Plan<impl OperationModel>,
) {
    let has = instance.tags;
    let mut missing: BTreeMap<_, _> = wanted.into_iter().filter(|(key, _)| !has.contains_key(key)).collect();
    // What the official controller made is not tagged just to carry the uid.
    if missing.keys().all(|key| key == CLUSTER_UID_TAG) {
        return;
    }
    if has.len() + missing.len() + stated.len() > MOST_TAGS {
        missing.remove(CLUSTER_UID_TAG);
    }
    if has.len() + missing.len() > MOST_TAGS {
        let keys: Vec<_> = missing.keys().map(String::as_str).collect();
        plan.note(format!("no room for the tags {} on {}: it has {MOST_TAGS} at most", keys.join(", "), instance.id));
        return;
    }
    attribute(plan, MARKS, Operation::Tag { tags: missing }, "marks that are missing");
}

/// Tags of users, if the annotation says which. Tags that a new load balancer gets, `made_with`, are never removed.
pub(crate) fn tags<M: ProductModel>(
    desired: &Desired<M>,
    has: &LiteMap<String, String>,
    wanted: &BTreeMap<String, String>,
    made_with: &BTreeMap<String, String>,
    plan: &mut Plan<M>,
) {
    if wanted.is_empty() {
        return;
    }
    let cluster_tag = desired.owner.cluster_tag.as_str();
    let untouched = |key: &str| {
        let lower = key.to_ascii_lowercase();
        [MARK_TAG, CLUSTER_TAG, CLUSTER_UID_TAG, REUSE_TAG, UNPROTECTED_TAG, cluster_tag].contains(&key)
            || lower.starts_with("acs:")
            || lower.starts_with("aliyun")
    };
    let differs = |(key, value): &(&String, &String)| !untouched(key) && has.get(*key) != Some(*value);
    let set: BTreeMap<String, String> =
        wanted.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect();
    let goes = |key: &&String| !untouched(key) && !wanted.contains_key(*key) && !made_with.contains_key(*key);
    let remove: Vec<String> = has.keys().filter(goes).cloned().collect();
    let new = set.keys().filter(|key| !has.contains_key(*key)).count();
    let reason = |keys: &mut dyn Iterator<Item = &String>| {
        let found = keys.map(|tag| match has.get(tag) {
            Some(value) => format!("{tag} is {value:?}"),
            None => format!("{tag} is unset"),
        });
        format!("{}: {} now", M::Name::ADDITIONAL_RESOURCE_TAGS.key(), found.collect::<Vec<_>>().join(", "))
    };
    let mut operations = Vec::new();
    if !set.is_empty() {
        let reason = reason(&mut set.keys());
        operations.push((Operation::Tag { tags: set }, reason));
    }
    if !remove.is_empty() {
        let reason = reason(&mut remove.iter());
        operations.push((Operation::Untag { keys: remove }, reason));
    }
    // Two marks may be on their way as well.
    if has.len() + new + 2 > MOST_TAGS {
        operations.reverse();
    }
    for (operation, reason) in operations {
        attribute(plan, "tags", operation, reason);
    }
}

/// What becomes of a load balancer whose Service goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// There is none.
    Absent,
    /// Nothing is done about it; the plan says why.
    Refused,
    /// It is a user's: what is ours is taken off it.
    Left,
    /// The user keeps it.
    Released,
    /// It is deleted.
    Deleted,
}

impl Fate {
    /// Of a load balancer that was found.
    pub(crate) fn of(
        owner: &Owner,
        departure: &Departure,
        instance: Option<&TaggedInstance<'_>>,
        plan: &mut Plan<impl OperationModel>,
    ) -> Self {
        let Some(instance) = instance else { return Self::Absent };
        let refusal = match departure.reuse.as_deref() {
            Some(id) if instance.id != id => ServiceProblem::state(
                format!("load balancer {}", instance.id),
                format!("the Service names {id}; nothing is removed from another one"),
            ),
            Some(id) if instance.tags.get(MARK_TAG) == Some(&owner.default_name()) => ServiceProblem::invalid(
                ID.full(),
                id,
                "must be the id of a load balancer of a user: this one was made for this Service; remove the annotation to have \
                 it removed with the Service",
            ),
            Some(_) => return Self::Left,
            None if !owner.owns_load_balancer(instance.name, instance.tags) => {
                foreign(owner, instance, &format!("the name {}", instance.name), "it is kept")
            }
            None if departure.preserve => return Self::Released,
            None => return Self::Deleted,
        };
        plan.problems.push(refusal);
        Self::Refused
    }
}

/// The tags of ours that something carries.
pub(crate) fn marks_on(owner: &Owner, tags: &LiteMap<String, String>) -> Vec<String> {
    owner.tags().into_iter().filter(|(key, value)| tags.get(key) == Some(value)).map(|(key, _)| key).collect()
}
