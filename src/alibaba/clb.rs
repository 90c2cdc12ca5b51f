//! Classic load balancers, CLB (product Slb, version 2014-05-15).
//!
//! [`Clb`] is one type; its calls are in `instance`, `group`, `listener`, `certificate` and `access`. The cloud takes one write per
//! load balancer at a time and answers others as busy; callers keep the order.

mod access;
mod certificate;
mod group;
mod instance;
mod listener;
#[cfg(test)]
mod tests;

use super::client::SigningClient;
use super::rate_limit::Priority;
use crate::plan::clb::model::{ListenerFields, ListenerKey};

/// Answer to the creation of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedInstance {
    /// `lb-...`
    pub id: String,
    /// The address it serves.
    pub address: String,
    /// Empty for internet instances.
    pub vpc_id: String,
    /// Empty for internet instances.
    pub vswitch_id: String,
}

/// A server group as the list call shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSummary {
    /// `rsp-...`
    pub id: String,
    /// Its name.
    pub name: String,
}

/// Attributes of a new or changed listener.
#[derive(Clone, Debug)]
pub struct ListenerRequest<'a> {
    /// On which instance.
    pub load_balancer_id: &'a str,
    /// Port and protocol.
    pub listener: ListenerKey,
    /// The ownership mark.
    pub description: &'a str,
    /// `rsp-...`; `None` for a listener that only redirects, or to leave it.
    pub group_id: Option<&'a str>,
    /// All attributes to send.
    pub fields: &'a ListenerFields,
}

/// An additional certificate of an HTTPS listener, for a domain.
#[derive(Clone, Copy, Debug)]
pub struct NewDomainExtension<'a> {
    /// On which instance.
    pub load_balancer_id: &'a str,
    /// The port of the HTTPS listener.
    pub port: u16,
    /// Such as `*.example.com`.
    pub domain: &'a str,
    /// The certificate.
    pub certificate_id: &'a str,
}

/// Calls to CLB.
#[derive(Clone, Debug)]
pub struct Clb(pub(super) SigningClient);

impl Clb {
    /// The same, for calls on behalf of one object.
    pub fn on(&self, priority: Priority) -> Self {
        Self(self.0.on(priority))
    }
}
