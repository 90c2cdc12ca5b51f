//! What must be read before a diff means anything.

use std::collections::BTreeSet;

use super::desired::Desired;
use super::model::{ListenerKey, Protocol};
use super::observed::Observed;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::model::GroupRef;

/// What must still be read before a diff means anything. Groups' names come first; see [`Observed::groups`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReads {
    /// Whether all listeners must be listed.
    pub listeners: bool,
    /// Ids of other load balancers whose listeners must be listed: they use server groups of the Service.
    pub former: BTreeSet<String>,
    /// TCPSSL listeners whose certificates must be listed.
    pub certificates: Vec<ListenerKey>,
    /// Ids of server groups that must be looked up: the Service names them, or listeners of the user's load balancer use them.
    pub named_groups: BTreeSet<String>,
    /// Ids of server groups whose backends must be listed.
    pub group_backends: Vec<String>,
    /// Whether security groups with the mark of the Service must be looked for.
    pub security_groups: bool,
    /// Id of the security group whose rules must be read.
    pub rules_of: Option<String>,
}

impl MissingReads {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Desired {
    /// What must still be read. Ask again after reading.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        let named = self.groups.values().filter_map(|wanted| match &wanted.group {
            GroupRef::Id(id) if !observed.groups.contains_key(id) => Some(id.clone()),
            _ => None,
        });
        let mut needs =
            MissingReads { group_backends: observed.groups_to_read(&self.owner, true), ..MissingReads::default() };
        let ours = observed.parts.security_groups.iter().flatten().find(|group| self.owner.owns_tagged(&group.tags));
        needs.rules_of = ours.filter(|group| group.rules.is_none()).map(|group| group.id.clone());
        let former = applied::groups(&self.applied).filter(|id| !observed.groups.contains_key(*id)).cloned();
        // One can be left of an earlier load balancer, or of ranges that were withdrawn before it was joined.
        let had_ranges = !self.extra.ranges.is_empty() || self.applied.contains(applied::SOURCE_RANGES);
        let Some(instance) = &observed.instance else {
            needs.named_groups = former.collect();
            needs.security_groups = had_ranges && observed.parts.security_groups.is_none();
            return needs;
        };
        let used = groups_of_users(self.reuse.is_some(), observed);
        needs.named_groups = named.chain(former).chain(used).collect();
        // On a user's load balancer they lead to groups that the Service named before.
        let decide = self.manage_listeners || self.reuse.is_some() || self.has_stale_group(observed);
        needs.listeners = observed.listeners.is_none() && decide;
        let tls = self.listeners.iter().filter(|(key, _)| key.protocol == Protocol::TcpSsl && self.manage_listeners);
        let unread = tls.filter(|(key, listener)| {
            listener.certificates.is_some() && observed.listener(key).is_some_and(|found| found.certificates.is_none())
        });
        needs.certificates = unread.map(|(key, _)| *key).collect();
        let may_have_one = had_ranges || !instance.security_group_ids.is_empty();
        needs.security_groups = may_have_one && self.reuse.is_none() && observed.parts.security_groups.is_none();
        needs
    }
}

/// Groups that listeners of a user's load balancer use and that are not ours: the Service can have named them before, and whose
/// they are decides about these listeners.
pub(super) fn groups_of_users(reused: bool, observed: &Observed) -> impl Iterator<Item = String> {
    let used = observed.listeners.iter().flatten().map(|(_, listener)| &listener.group_id);
    used.filter(move |id| reused && !id.is_empty() && !observed.groups.contains_key(*id)).cloned()
}
