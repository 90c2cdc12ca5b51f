//! What must be read before a diff means anything.

use std::collections::BTreeSet;

use super::desired::{ClbModel, Desired};
use super::diff::access_list;
use super::diff::instance::charge_differs;
use super::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use super::observed::{Observed, ObservedInstance, PendingCharge};
use crate::plan::loadbalancer::listener_pass::ListenerModel as _;

/// What must still be read before a diff means anything. Groups' names come first; see [`Observed::groups`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingReads {
    /// Whether the instance must be read by itself: a list does not say everything.
    pub instance: bool,
    /// Whether all listeners must be listed.
    pub listeners: bool,
    /// HTTPS listeners whose domain extensions must be listed.
    pub domain_extensions: Vec<ListenerKey>,
    /// Ids of server groups whose backends must be listed.
    pub group_backends: Vec<String>,
    /// Ids of certificates that must be looked up.
    pub certificates: BTreeSet<String>,
    /// Usual name of the access control list that must be looked up.
    pub access_list: Option<String>,
}

impl MissingReads {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Desired {
    /// What must still be read. Ask again after reading: which certificates matter depends on the listeners.
    ///
    /// On a user's load balancer the groups that users made are read as well, so that backends of ours in a group that
    /// the Service no longer names are found; groups of other Services are not.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        if observed.instance.is_none() {
            return MissingReads {
                access_list: access_list::unread(self, observed).then(|| self.owner.access_list_name()),
                ..MissingReads::default()
            };
        }
        let unsure = |it: &ObservedInstance| {
            let unknown = self.instance.fixed.iter().any(|(_, field)| !it.fields.contains_key(field));
            unknown || (it.pending_charge == PendingCharge::Unread && charge_differs(self, it))
        };
        let mut needs = MissingReads {
            instance: observed.instance.as_ref().is_some_and(unsure),
            listeners: (self.manage_listeners || self.has_stale_group(observed)) && observed.listeners.is_none(),
            group_backends: observed.groups_to_read(&self.owner, self.reuse.is_some()),
            access_list: access_list::unread(self, observed).then(|| self.owner.access_list_name()),
            ..MissingReads::default()
        };
        let https = self.listeners.iter().filter(|(key, _)| self.manage_listeners && key.protocol == Protocol::Https);
        let is_unread = |id: &String| !observed.parts.certificates.contains_key(id);
        for (key, listener) in https {
            let certificate = |fields: &ListenerFields| fields.get(&ListenerField::ServerCertificateId).cloned();
            let mut there = observed.listeners.iter().flatten();
            let Some(remote) = observed.listener(key) else {
                // What serves there would be gone before the cloud refuses the certificate of its replacement.
                let replaces = there.any(|(other, _)| ClbModel::collide(*other, *key));
                needs.certificates.extend(certificate(&listener.fields).filter(|id| replaces && is_unread(id)));
                continue;
            };
            if listener.certificates.is_some() && remote.certificates.is_none() {
                needs.domain_extensions.push(*key);
            }
            if let (Some(new), Some(old)) = (certificate(&listener.fields), certificate(&remote.fields))
                && new != old
            {
                needs.certificates.extend([new, old].into_iter().filter(is_unread));
            }
        }
        needs
    }
}
