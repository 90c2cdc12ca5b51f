//! Reads of a load balancer and its parts: whole, by list pages, or by their ids.

use std::collections::BTreeSet;
use std::sync::Arc;

use litemap::LiteMap;
use tracing::warn;

use super::{ClbProduct, Goal};
use crate::alibaba::{Fault, FaultKind};
use crate::controllers::loadbalancer::creations::Made;
use crate::controllers::loadbalancer::product::Due;
use crate::controllers::loadbalancer::tolerance::tolerate;
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::needs::MissingReads;
use crate::plan::clb::observed::{
    AccessList, CertificateState, Observed, ObservedInstance, ObservedListener, PendingCharge,
};
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::ownership::Owner;

impl ClbProduct {
    /// The load balancer with this id, as a list shows it or else as it is read by itself: only that proves that there is
    /// none. Without `due`, it is read by itself.
    pub(super) async fn read_instance(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<ObservedInstance, Fault> {
        let list = || self.clb.shown_by_tag(&owner.cluster_tag, &owner.cluster_id);
        let listed = self.instances.of_ours(id, due, list, |instance| instance.id.clone()).await;
        match listed.and_then(|mut listed| listed.pop()) {
            Some(listed) => Ok(listed),
            None => self.clb.describe_instance(id).await,
        }
    }

    /// All listeners of a load balancer, as a list of all listeners shows them or else as they are read by themselves.
    async fn read_listeners(
        &self,
        id: &str,
        due: Due<'_>,
    ) -> Result<LiteMap<ListenerKey, Box<ObservedListener>>, Fault> {
        match self.listeners.of_all(id, due, |pages| self.clb.list_listeners(pages)).await {
            Some(listed) => Ok(listed),
            None => self.clb.describe_listeners(id).await,
        }
    }

    /// Lists the server groups anew; the backends of known ones stay. Those that were known before, or `made` a short while ago,
    /// and are not listed are asked for one by one: a list can be stale. True if none of them is there.
    pub(super) async fn list_groups(&self, observed: &mut Observed, made: &Made) -> Result<bool, Fault> {
        let Some(instance) = &observed.instance else { return Ok(true) };
        let groups = self.clb.describe_groups(&instance.id).await?;
        let known = std::mem::take(&mut observed.groups);
        let group = |(id, name): (String, String)| {
            let backends = known.get(&id).and_then(|group| group.backends.clone());
            (id, ObservedGroup { name, backends })
        };
        observed.groups = groups.into_iter().map(group).collect();
        observed.unlisted.clear();
        let recent =
            made.groups.iter().filter(|group| group.load_balancer == instance.id).map(|group| group.id.clone());
        let expected: BTreeSet<String> = known.into_iter().map(|(id, _)| id).chain(recent).collect();
        self.read_unlisted(observed, expected, made).await
    }

    /// A list may lag behind what was `made` a short while ago; that it lacks another group is a doubt about the list.
    pub(super) async fn read_unlisted(
        &self,
        observed: &mut Observed,
        expected: BTreeSet<String>,
        made: &Made,
    ) -> Result<bool, Fault> {
        let mut all_listed = true;
        for id in expected {
            if observed.groups.contains_key(&id) {
                continue;
            }
            match self.clb.describe_group(&id).await {
                Ok(group) => {
                    warn!(
                        code = "ACCM0324",
                        group = id,
                        name = group.name,
                        "a server group exists, but is not in the list"
                    );
                    if !made.groups.iter().any(|recent| recent.id == id) {
                        observed.unlisted.insert(id.clone());
                    }
                    observed.groups.insert(id, group);
                    all_listed = false;
                }
                Err(fault) if fault.kind == FaultKind::Gone => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(all_listed)
    }

    /// Reads what the goal finds missing; what is read can show that more is needed. Gives the reads that failed.
    pub(super) async fn read_needs(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        due: Due<'_>,
    ) -> Result<Vec<Fault>, Fault> {
        let (mut unread, mut needs) = (Vec::<Fault>::new(), goal.needs(observed));
        while !needs.is_empty() {
            let failed = self.read_missing(goal.owner(), &needs, observed, due).await?;
            // What failed is tried once more if something else was read.
            unread.retain(|before| !failed.iter().any(|fault| fault.action == before.action));
            unread.extend(failed);
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
        due: Due<'_>,
    ) -> Result<Vec<Fault>, Fault> {
        let id = observed.id().unwrap_or_default().to_owned();
        let mut unread = Vec::new();
        if needs.instance {
            match (tolerate(&mut unread, self.clb.describe_instance(&id).await)?, &mut observed.instance) {
                (None, Some(instance)) => instance.pending_charge = PendingCharge::Unknown,
                (read, instance) => *instance = read,
            }
        }
        for group_id in &needs.group_backends {
            let Some(backends) = tolerate(&mut unread, self.clb.describe_backends(group_id).await)? else {
                // The others would meet the same.
                break;
            };
            observed.groups.entry(group_id.clone()).or_default().backends = Some(Arc::new(backends.into()));
        }
        if needs.listeners {
            observed.listeners = tolerate(&mut unread, self.read_listeners(&id, due).await)?;
        }
        for key in &needs.domain_extensions {
            let extensions = tolerate(&mut unread, self.clb.describe_domain_extensions(&id, key.port).await)?;
            if let Some(listener) = observed.listeners.as_mut().and_then(|listeners| listeners.get_mut(key)) {
                listener.certificates = extensions;
            }
        }
        for certificate in &needs.certificates {
            let state = tolerate(&mut unread, self.clb.certificate_state(certificate).await)?;
            observed.parts.certificates.insert(certificate.clone(), state.unwrap_or(CertificateState::Unknown));
        }
        if needs.access_list.is_some() {
            tolerate(&mut unread, self.read_access_list(owner, observed).await)?;
        }
        Ok(unread)
    }

    /// Looks for the access control list of the Service, under both of its names where it can have either.
    pub(super) async fn read_access_list(&self, owner: &Owner, observed: &mut Observed) -> Result<(), Fault> {
        (observed.parts.access_list, observed.parts.list_is_kept) = (AccessList::Unknown, false);
        let mut found = self.clb.find_access_list(&owner.access_list_name()).await?;
        if observed.may_have_own_list(owner, found.as_ref()) {
            let own = self.clb.find_access_list(&owner.own_access_list_name()).await?;
            if own.is_some() || found.as_ref().is_some_and(|usual| !usual.listeners.is_empty()) {
                observed.parts.list_is_kept = true;
                found = own;
            }
        }
        observed.parts.access_list = found.map_or(AccessList::Absent, AccessList::Found);
        Ok(())
    }
}
