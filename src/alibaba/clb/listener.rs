//! Listeners.

use std::collections::HashMap;

use litemap::LiteMap;

use super::{Clb, ListenerRequest};
use crate::alibaba::actions::{
    CREATE_HTTP_LISTENER, CREATE_HTTPS_LISTENER, CREATE_TCP_LISTENER, CREATE_UDP_LISTENER, DELETE_LISTENER,
    DESCRIBE_LISTENERS, SET_HTTP_LISTENER, SET_HTTPS_LISTENER, SET_TCP_LISTENER, SET_UDP_LISTENER, START_LISTENER,
    WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::{Fault, FaultKind};
use crate::alibaba::request::Request;
use crate::fence::Permit;
use crate::plan::clb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::clb::observed::ObservedListener;

/// Listeners in one page.
const PAGE: usize = 100;

/// Fields that listeners of every protocol have beside the protocol's own block.
const TOP_LEVEL: [ListenerField; 5] = [
    ListenerField::Bandwidth,
    ListenerField::Scheduler,
    ListenerField::AclStatus,
    ListenerField::AclType,
    ListenerField::AclId,
];

/// Says of `HealthCheckConnectPort` that it is the backend's port; source: the schema of
/// `SetLoadBalancerHTTPListenerAttribute`. Answers can say `0` instead, which requests must not.
const BACKENDS_PORT: &str = "-520";

/// Fields that are fixed at creation.
const FIXED: [ListenerField; 2] = [ListenerField::ListenerForward, ListenerField::ForwardPort];

/// Listeners by the id of their instance.
pub(super) type ListenersByInstance = HashMap<String, LiteMap<ListenerKey, Box<ObservedListener>>>;
type KeyedListener = (ListenerKey, Box<ObservedListener>);

/// What the API calls listeners of a protocol: the actions that make and change one, and the block of its own fields.
const fn names(protocol: Protocol) -> (WriteAction, WriteAction, &'static str) {
    match protocol {
        Protocol::Tcp => (CREATE_TCP_LISTENER, SET_TCP_LISTENER, "TCPListenerConfig"),
        Protocol::Udp => (CREATE_UDP_LISTENER, SET_UDP_LISTENER, "UDPListenerConfig"),
        Protocol::Http => (CREATE_HTTP_LISTENER, SET_HTTP_LISTENER, "HTTPListenerConfig"),
        Protocol::Https => (CREATE_HTTPS_LISTENER, SET_HTTPS_LISTENER, "HTTPSListenerConfig"),
    }
}

impl Clb {
    /// All listeners of an instance, every page, without domain extensions. Listeners of a protocol that this version
    /// does not know are left out.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_listeners(&self, id: &str) -> Result<LiteMap<ListenerKey, Box<ObservedListener>>, Fault> {
        let request = self.0.read(DESCRIBE_LISTENERS).list("LoadBalancerId", [id]).with("MaxResults", PAGE);
        let listeners = request.by_token("Listeners", listed).await?.into_iter();
        // Where the answer names the instance, it must be the one that was asked for.
        let own = listeners.filter(|(instance_id, _)| instance_id.as_ref().is_none_or(|of| of == id));
        Ok(own.filter_map(|(_, listener)| listener).collect())
    }

    /// The listeners of all instances of the account in this region, those of others included. `None` if that takes more
    /// than `most_pages` calls.
    ///
    /// # Errors
    /// As any call; a [`FaultKind::Bug`] also if the answer does not say whose listeners it shows.
    pub async fn list_listeners(&self, most_pages: usize) -> Result<Option<ListenersByInstance>, Fault> {
        let request = self.0.read(DESCRIBE_LISTENERS);
        let Some(listed) = request.by_token_within("Listeners", PAGE, listed, most_pages).await? else {
            return Ok(None);
        };
        let mut found = ListenersByInstance::new();
        for (instance_id, listener) in listed {
            let Some(id) = instance_id else {
                let message = "the answer does not say on which load balancers the listeners are";
                return Err(Fault::new(DESCRIBE_LISTENERS.0.name, FaultKind::Bug, message));
            };
            found.entry(id).or_default().extend(listener);
        }
        Ok(Some(found))
    }

    /// Makes a listener; it is stopped at first.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_listener(&self, permit: &Permit, wanted: &ListenerRequest<'_>) -> Result<(), Fault> {
        let protocol = wanted.listener.protocol;
        let (action, ..) = names(protocol);
        let mut request = self.about(permit, action, wanted).maybe("VServerGroupId", wanted.group_id);
        for (field, value) in wanted.fields.iter().filter(|(field, value)| !is_default(**field, value)) {
            request = request.with(creation_parameter(protocol, *field), value);
        }
        request.done().await
    }

    /// Changes a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_listener(&self, permit: &Permit, wanted: &ListenerRequest<'_>) -> Result<(), Fault> {
        let (_, action, _) = names(wanted.listener.protocol);
        // Without the switch the id has no effect.
        let switch = wanted.group_id.map(|_| "on");
        let request = self.about(permit, action, wanted);
        let mut request = request.maybe("VServerGroup", switch).maybe("VServerGroupId", wanted.group_id);
        for (field, value) in wanted.fields.iter().filter(|(field, _)| !FIXED.contains(field)) {
            let backends_own = *field == ListenerField::HealthCheckConnectPort && value == "0";
            request = request.with(field.parameter(), if backends_own { BACKENDS_PORT } else { value });
        }
        request.done().await
    }

    /// Starts a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn start_listener(&self, permit: &Permit, id: &str, listener: ListenerKey) -> Result<(), Fault> {
        self.on_listener(permit, START_LISTENER, id, listener).await
    }

    /// Deletes a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_listener(&self, permit: &Permit, id: &str, listener: ListenerKey) -> Result<(), Fault> {
        self.on_listener(permit, DELETE_LISTENER, id, listener).await
    }

    async fn on_listener(
        &self,
        permit: &Permit,
        action: WriteAction,
        id: &str,
        listener: ListenerKey,
    ) -> Result<(), Fault> {
        // One port can carry two protocols, so both are always sent.
        let request = self.0.write(permit, action).with("LoadBalancerId", id).with("ListenerPort", listener.port);
        request.with("ListenerProtocol", listener.protocol).done().await
    }

    fn about<'a>(&'a self, permit: &'a Permit, action: WriteAction, wanted: &ListenerRequest<'_>) -> Request<'a> {
        self.0
            .write(permit, action)
            .with("LoadBalancerId", wanted.load_balancer_id)
            .with("ListenerPort", wanted.listener.port)
            .with("Description", wanted.description)
    }
}

/// A new listener is checked at the backend's port if nothing is said.
fn is_default(field: ListenerField, value: &str) -> bool {
    field == ListenerField::HealthCheckConnectPort && matches!(value, "0" | BACKENDS_PORT)
}

/// The creation of TCP and UDP listeners spells one parameter with a lower-case h.
const fn creation_parameter(protocol: Protocol, field: ListenerField) -> &'static str {
    match (protocol, field) {
        (Protocol::Tcp | Protocol::Udp, ListenerField::HealthCheckInterval) => "healthCheckInterval",
        _ => field.parameter(),
    }
}

/// The id of its instance, and the listener; `None` where the answer does not say, or the protocol is unknown.
fn listed(body: Fields<'_>) -> Result<(Option<String>, Option<KeyedListener>), Mismatch> {
    Ok((body.some_text("LoadBalancerId"), observed(body)))
}

fn observed(body: Fields<'_>) -> Option<KeyedListener> {
    let protocol = Protocol::parse(&body.some_text("ListenerProtocol")?.to_ascii_lowercase())?;
    let port = body.some_text("ListenerPort")?.parse().ok()?;
    let observed = ObservedListener {
        id: String::new(),
        description: body.some_text("Description").unwrap_or_default(),
        status: body.some_text("Status").unwrap_or_default(),
        group_id: body.some_text("VServerGroupId").unwrap_or_default(),
        fields: fields(body, protocol),
        certificates: None,
    };
    Some((ListenerKey { port, protocol }, Box::new(observed)))
}

/// One flat list of the fields that are reported at the top and in the block of the protocol.
fn fields(body: Fields<'_>, protocol: Protocol) -> ListenerFields {
    let (.., block) = names(protocol);
    let block = body.object(block).unwrap_or_default();
    let value = |field: ListenerField| {
        let top = TOP_LEVEL.contains(&field).then(|| top_level(body, field)).flatten();
        top.or_else(|| block.some_text(field.parameter()))
    };
    ListenerField::ALL.iter().filter_map(|field| Some((*field, value(*field)?))).collect()
}

fn top_level(body: Fields<'_>, field: ListenerField) -> Option<String> {
    let ids = if field == ListenerField::AclId { body.texts("AclIds").unwrap_or_default() } else { Vec::new() };
    if ids.is_empty() { body.some_text(field.parameter()) } else { Some(ids.join(",")) }
}
