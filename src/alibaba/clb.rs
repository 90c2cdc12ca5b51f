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

/// Calls to CLB.
#[derive(Clone, Debug)]
pub struct Clb(pub(super) SigningClient);

impl Clb {
    /// The same, for calls on behalf of one object.
    pub fn on(&self, priority: Priority) -> Self {
        Self(self.0.on(priority))
    }
}
