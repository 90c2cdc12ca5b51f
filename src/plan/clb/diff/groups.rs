//! Server groups: how they are made, and what becomes of them when a Service goes.

use crate::plan::clb::desired::{ClassicModel, Desired};
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::{Own, Plan};
use crate::plan::service::group_diff::{GroupModel, planner};
use crate::plan::service::groups::{BackendPlanner, GroupReferences};
use crate::plan::service::model::DesiredGroup;
use crate::plan::service::ownership::Owner;
use crate::plan::service::steps::Target;

impl GroupModel for ClassicModel {
    const NAMED: &'static str = "a server group of this load balancer";

    fn is_unread(observed: &Observed) -> bool {
        observed.groups_unread
    }

    fn create(desired: &Desired, wanted: &DesiredGroup, plan: &mut Plan) {
        let planner = planner(desired);
        let backends = wanted.backends.to_vec();
        let (first, rest) = backends.split_at(backends.len().min(planner.batch_size));
        let operation = Own::CreateGroup { name: wanted.group.to_string(), backends: first.to_vec() };
        let target = Target::Group(wanted.group.clone());
        plan.step(operation, target.clone(), [], wanted.source.clone());
        for operation in planner.additions(&wanted.group, rest) {
            plan.step(operation, target.clone(), [target.clone()], &wanted.source);
        }
    }
}

/// Deletes those of the groups that are ours alone, and takes our backends out of the others.
/// `managed` says whether listeners of ours are managed.
pub(in crate::plan::clb) fn clear_all(
    owner: &Owner,
    observed: &Observed,
    deleted: &[ListenerKey],
    managed: bool,
    plan: &mut Plan,
) {
    let mut references = GroupReferences::default();
    for (key, listener) in observed.listeners.iter().flatten() {
        if deleted.contains(key) {
            references.dropped.entry(listener.group_id.clone()).or_default().push(*key);
        } else {
            let ours = managed && owner.owns_listener(&listener.description);
            references.kept.entry(listener.group_id.clone()).or_default().push((*key, ours));
        }
    }
    // The smallest batch that every release of the API takes.
    let planner = BackendPlanner { owner, batch_size: 20 };
    for (id, group) in &observed.groups {
        planner.clear(id, group, &references, plan);
    }
}
