//! Reads of a load balancer and its parts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use litemap::LiteMap;
use tracing::warn;

use super::{Goal, NlbProduct};
use crate::alibaba::nlb::{GroupFilter, ListedGroup};
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::loadbalancer::creations::{Made, MadeGroup};
use crate::controllers::loadbalancer::product::{Due, Search};
use crate::controllers::loadbalancer::tolerance::{stale_list, tolerate};
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::ownership::{MARK_TAG, Owner};
use crate::plan::nlb::model::ListenerKey;
use crate::plan::nlb::needs::MissingReads;
use crate::plan::nlb::observed::{Observed, ObservedInstance, ObservedListener, ObservedSecurityGroup};

impl NlbProduct {
    /// The load balancer with this id, as a list shows it or else as it is read by itself: only that proves that there is
    /// none. Without `due`, it is read by itself.
    pub(super) async fn read_instance(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<ObservedInstance, Fault> {
        let listed = self.listed_instances(owner, due).await;
        match listed.into_iter().flatten().find(|it| it.id == id) {
            Some(listed) => Ok(listed),
            None => self.api.describe_instance(id).await,
        }
    }

    /// The load balancers with the mark of a Service, as a list of all of ours shows them.
    pub(super) async fn listed_instances(&self, owner: &Owner, due: Due<'_>) -> Option<Vec<ObservedInstance>> {
        let list = || self.api.find_by_tag(&owner.cluster_tag, &owner.cluster_id);
        let mark_of = |it: &ObservedInstance| it.tags.get(MARK_TAG).cloned().unwrap_or_default();
        self.instances.of_ours(&owner.default_name(), due, list, mark_of).await
    }

    /// All listeners of the load balancer, as a list of all listeners shows them or else as they are read by themselves.
    pub(super) async fn read_listeners(
        &self,
        observed: &Observed,
        due: Due<'_>,
    ) -> Result<LiteMap<ListenerKey, Box<ObservedListener>>, Fault> {
        let id = observed.id().unwrap_or_default();
        match self.listeners.of_all(id, due, |pages| self.api.list_listeners(pages)).await {
            Some(listed) => Ok(listed),
            None => Ok(self.api.describe_listeners(&[id]).await?.remove(id).unwrap_or_default()),
        }
    }

    /// The server groups with the mark of a Service, as a list of all of ours shows them or else one of these alone.
    async fn marked_groups(&self, owner: &Owner, due: Due<'_>) -> Result<Vec<ListedGroup>, Fault> {
        let mark_of = |group: &ListedGroup| group.details.tags.get(MARK_TAG).cloned();
        let list = || async {
            let mut found = self.api.list_groups(GroupFilter::Tag(&owner.cluster_tag, &owner.cluster_id)).await?;
            if found.iter().any(|group| shows_tags_in_part(group) && mark_of(group).is_none()) {
                // Whose that one is, it does not show: it can be missing for every Service.
                found.clear();
            }
            Ok(found)
        };
        let name = owner.default_name();
        match self.groups.of_ours(&name, due, list, |group| mark_of(group).unwrap_or_default()).await {
            Some(listed) => Ok(listed),
            None => self.api.list_groups(GroupFilter::Tag(MARK_TAG, &name)).await,
        }
    }

    /// Lists the server groups of the Service anew, without their backends. Those that were known before, or made a short
    /// while ago, and are not listed are asked for by their ids: a list can be stale. True if none of them is there.
    pub(super) async fn list_groups(
        &self,
        owner: &Owner,
        observed: &mut Observed,
        Search { made, due, .. }: &Search<'_>,
    ) -> Result<bool, Fault> {
        let listed = self.marked_groups(owner, *due).await?;
        let known = std::mem::take(&mut observed.groups);
        observed.parts.group_details.clear();
        observed.unlisted.clear();
        listed.into_iter().for_each(|group| add(observed, owner, group));
        let is_group = |id: &String| id.starts_with("sgp-");
        let recent = made.groups.iter().map(|group| group.id.clone()).filter(is_group);
        let expected: BTreeSet<String> = known.into_iter().map(|(id, _)| id).chain(recent).collect();
        self.read_unlisted(owner, observed, expected, made).await
    }

    /// Asks for the `expected` server groups that were not listed. True if none of them exists.
    pub(super) async fn read_unlisted(
        &self,
        owner: &Owner,
        observed: &mut Observed,
        expected: BTreeSet<String>,
        made: &Made,
    ) -> Result<bool, Fault> {
        let missing: BTreeSet<String> = expected.into_iter().filter(|id| !observed.groups.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        let found = self.api.list_groups(GroupFilter::Ids(&missing)).await?;
        let unseen = missing.iter().filter(|id| !found.iter().any(|group| group.id == **id));
        let mut all_listed = self.read_unseen(observed, unseen, made).await?;
        for group in found {
            // A list of groups with our tags does not show others.
            if owner.owns_tagged(&group.details.tags) {
                all_listed = false;
                warn!(
                    code = "ACCM0324",
                    group = group.id,
                    name = group.name,
                    "a server group exists, but is not in the list"
                );
                if !made.groups.iter().any(|recent| recent.id == group.id) {
                    observed.unlisted.insert(group.id.clone());
                }
            }
            add(observed, owner, group);
        }
        Ok(all_listed)
    }

    /// A list can lack a server group even where it is asked for by its id; reading its backends proves that it exists. True
    /// if that shows none. The name of one that was not made a short while ago is not known.
    async fn read_unseen(
        &self,
        observed: &mut Observed,
        ids: impl Iterator<Item = &String>,
        made: &Made,
    ) -> Result<bool, Fault> {
        let mut none = true;
        for id in ids {
            let recent = made.groups.iter().find(|group| group.id == *id);
            match (self.api.describe_servers(id).await, recent) {
                (Ok(found), Some(MadeGroup { name, .. })) => {
                    warn!(code = "ACCM0324", group = id, name, "a server group exists, but no list shows it yet");
                    let backends = Some(Arc::new(found.backends.into()));
                    observed.groups.insert(id.clone(), ObservedGroup { name: name.clone(), backends });
                    none = false;
                }
                (Ok(_), None) => return Err(stale_list(&format!("server group {id}"))),
                (Err(fault), _) if fault.kind == FaultKind::Gone => {}
                (Err(fault), _) => return Err(fault),
            }
        }
        Ok(none)
    }

    /// Reads what the goal finds missing; what is read can show that more is needed. Gives the reads that failed.
    pub(super) async fn read_needs(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        search: &Search<'_>,
    ) -> Result<Vec<Fault>, Fault> {
        let (mut unread, mut needs) = (Vec::new(), goal.needs(observed));
        while !needs.is_empty() {
            // What failed is still missing.
            unread = self.read_missing(goal.owner(), &needs, observed, search).await?;
            let before = std::mem::replace(&mut needs, goal.needs(observed));
            if needs == before {
                // Reading did not help, and would not help again.
                break;
            }
        }
        Ok(unread)
    }

    async fn read_missing(
        &self,
        owner: &Owner,
        needs: &MissingReads,
        observed: &mut Observed,
        Search { made, due, .. }: &Search<'_>,
    ) -> Result<Vec<Fault>, Fault> {
        let mut unread = Vec::new();
        if !needs.named_groups.is_empty() {
            let found = tolerate(&mut unread, self.api.list_groups(GroupFilter::Ids(&needs.named_groups)).await)?;
            // One with our mark but not our tags can be of another cluster with the same id.
            let known = found.into_iter().flatten().filter(|group| !owner.owns_group(&group.name));
            known.for_each(|group| insert(observed, group));
        }
        for id in &needs.group_backends {
            if tolerate(&mut unread, self.read_backends(id, observed).await)?.is_none() {
                // The others would meet the same.
                break;
            }
        }
        if needs.listeners {
            observed.listeners = tolerate(&mut unread, self.read_listeners(observed, *due).await)?;
        }
        if !needs.former.is_empty() {
            self.read_former(&needs.former, observed).await?;
        }
        for key in &needs.certificates {
            if let Some(listener) = observed.listeners.as_mut().and_then(|all| all.get_mut(key)) {
                let found = self.api.describe_additional_certificates(&listener.id).await;
                listener.certificates = tolerate(&mut unread, found)?;
            }
        }
        if needs.security_groups {
            observed.parts.security_groups =
                tolerate(&mut unread, self.find_security_groups(owner, observed, made).await)?;
        }
        if let Some(id) = &needs.rules_of {
            let rules = tolerate(&mut unread, self.ecs.describe_security_rules(id).await)?;
            let groups = observed.parts.security_groups.iter_mut().flatten();
            groups.filter(|group| group.id == *id).for_each(|group| group.rules.clone_from(&rules));
        }
        Ok(unread)
    }

    /// The security groups of ours, that in use first. One that our load balancer has joined, or that was made a short while
    /// ago, is asked for by its id where the list shows none.
    async fn find_security_groups(
        &self,
        owner: &Owner,
        observed: &Observed,
        made: &Made,
    ) -> Result<Vec<ObservedSecurityGroup>, Fault> {
        let mut found = self.ecs.find_security_groups(MARK_TAG, &owner.default_name()).await?;
        found.retain(|group| owner.owns_tagged(&group.tags));
        let joined = observed.instance.as_ref().map(|instance| &instance.security_group_ids);
        let is_made = |id: &str| made.groups.iter().any(|group| group.id == id);
        let ids = made.groups.iter().map(|group| &group.id).filter(|id| id.starts_with("sg-"));
        // One that a preserved load balancer kept has our rules, and is the user's.
        let is_ours = observed.instance.as_ref().is_some_and(|instance| owner.owns_tagged(&instance.tags));
        let in_use = joined.into_iter().flatten().filter(|_| is_ours);
        let ids: BTreeSet<&String> = ids.chain(in_use).filter(|_| found.is_empty()).collect();
        for id in ids {
            match self.ecs.describe_security_rules(id).await {
                Ok(rules) if is_made(id) || rules.values().any(|it| it.description == owner.security_mark()) => {
                    return Err(stale_list(&format!("security group {id}")));
                }
                Err(fault) if fault.kind != FaultKind::Gone => return Err(fault),
                _ => {}
            }
        }
        found.sort_by_key(|group| (!joined.is_some_and(|joined| joined.contains(&group.id)), group.id.clone()));
        Ok(found)
    }

    /// Listeners of other load balancers; one that is gone has none.
    async fn read_former(&self, ids: &BTreeSet<String>, observed: &mut Observed) -> Result<(), Fault> {
        let wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut found = match self.api.describe_listeners(&wanted).await {
            Err(fault) if fault.kind == FaultKind::Gone => HashMap::new(),
            found => found?,
        };
        observed.parts.former.extend(ids.iter().map(|id| (id.clone(), found.remove(id).unwrap_or_default())));
        Ok(())
    }

    async fn read_backends(&self, id: &str, observed: &mut Observed) -> Result<(), Fault> {
        let Some(details) = observed.parts.group_details.get_mut(id) else { return Ok(()) };
        let mut backends = Vec::new();
        if details.server_count > 0 {
            let found = self.api.describe_servers(id).await?;
            backends = found.backends;
            if found.changing {
                "Configuring".clone_into(&mut details.status);
            }
        }
        if let Some(group) = observed.groups.get_mut(id) {
            group.backends = Some(Arc::new(backends.into()));
        }
        Ok(())
    }
}

/// Whether the group can have more tags than the list shows, which are ten at most.
fn shows_tags_in_part(group: &ListedGroup) -> bool {
    group.details.tags.len() >= 10
}

/// Adds a group if it carries our tags.
fn add(observed: &mut Observed, owner: &Owner, group: ListedGroup) {
    if owner.owns_tagged(&group.details.tags) || shows_tags_in_part(&group) {
        insert(observed, group);
    }
}

fn insert(observed: &mut Observed, group: ListedGroup) {
    observed.groups.insert(group.id.clone(), ObservedGroup { name: group.name, backends: None });
    observed.parts.group_details.insert(group.id, group.details);
}
