//! Listeners.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ListenerRequest, Slb};
use crate::alibaba::actions::{
    CREATE_HTTP_LISTENER, CREATE_HTTPS_LISTENER, CREATE_TCP_LISTENER, CREATE_UDP_LISTENER, DELETE_LISTENER,
    DESCRIBE_LISTENERS, SET_HTTP_LISTENER, SET_HTTPS_LISTENER, SET_TCP_LISTENER, SET_UDP_LISTENER, START_LISTENER,
    Write,
};
use crate::alibaba::decode::{Int, List, Text, scalar};
use crate::alibaba::paging::by_token;
use crate::alibaba::rpc::fault;
use crate::alibaba::signing::Params;
use crate::alibaba::{Fault, FaultKind};
use crate::fence::Permit;
use crate::plan::clb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::clb::observed::ObservedListener;

/// Listeners in one page.
const PAGE: u32 = 100;

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
pub(super) type ByInstance = HashMap<String, BTreeMap<ListenerKey, ObservedListener>>;

impl Slb {
    /// All listeners of an instance, every page, without domain extensions. Listeners of a protocol that this version
    /// does not know are left out.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_listeners(&self, id: &str) -> Result<BTreeMap<ListenerKey, ObservedListener>, Fault> {
        let listeners = self.listeners(&[id]).await?;
        Ok(listeners.iter().filter(|listener| belongs_to(listener, id)).filter_map(observed).collect())
    }

    /// As [`Self::describe_listeners`], of up to 10 instances at once, by their ids.
    ///
    /// # Errors
    /// As any call; a [`FaultKind::Bug`] also if the answer does not say whose listeners it shows.
    pub async fn describe_listeners_of(&self, ids: &[&str]) -> Result<ByInstance, Fault> {
        let mut found = ByInstance::new();
        sort_in(&mut found, self.listeners(ids).await?)?;
        Ok(found)
    }

    /// The listeners of all instances of the account in this region, those of others included. `None` if that takes more
    /// than `most_pages` calls.
    ///
    /// # Errors
    /// As [`Self::describe_listeners_of`].
    pub async fn list_listeners(&self, most_pages: usize) -> Result<Option<ByInstance>, Fault> {
        let most = i64::from(PAGE).saturating_mul(i64::try_from(most_pages).unwrap_or(i64::MAX));
        let mut found = ByInstance::new();
        let mut token = String::new();
        for _ in 0..most_pages {
            let params = Params::new().with("MaxResults", PAGE).with("NextToken", token);
            let body: ListenersBody = self.0.read(DESCRIBE_LISTENERS, params).await?.decode()?;
            if body.total_count.0 > most {
                return Ok(None);
            }
            sort_in(&mut found, body.listeners.0)?;
            token = body.next_token.0;
            if token.is_empty() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn listeners(&self, ids: &[&str]) -> Result<Vec<Map<String, Value>>, Fault> {
        let params = Params::new().list("LoadBalancerId", ids).with("MaxResults", PAGE);
        by_token(|token| {
            let params = params.clone().with("NextToken", token);
            async move {
                let answer = self.0.read(DESCRIBE_LISTENERS, params).await?;
                let body: ListenersBody = answer.decode()?;
                Ok((body.listeners.0, body.next_token.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(DESCRIBE_LISTENERS.0))
    }

    /// Makes a listener; it is stopped at first.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_listener(&self, permit: &Permit, request: &ListenerRequest<'_>) -> Result<(), Fault> {
        let protocol = request.listener.protocol;
        let mut params = about(request).maybe("VServerGroupId", request.group_id);
        for (field, value) in request.fields.iter().filter(|(field, value)| !is_default(**field, value)) {
            params.push(creation_parameter(protocol, *field), value);
        }
        let action = match protocol {
            Protocol::Tcp => CREATE_TCP_LISTENER,
            Protocol::Udp => CREATE_UDP_LISTENER,
            Protocol::Http => CREATE_HTTP_LISTENER,
            Protocol::Https => CREATE_HTTPS_LISTENER,
        };
        self.0.write(permit, action, params).await.map(drop)
    }

    /// Changes a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_listener(&self, permit: &Permit, request: &ListenerRequest<'_>) -> Result<(), Fault> {
        let mut params = about(request);
        if let Some(group_id) = request.group_id {
            // Without the switch the id has no effect.
            params = params.with("VServerGroup", "on").with("VServerGroupId", group_id);
        }
        for (field, value) in request.fields.iter().filter(|(field, _)| !FIXED.contains(field)) {
            let backends_own = *field == ListenerField::HealthCheckConnectPort && value == "0";
            params.push(field.parameter(), if backends_own { BACKENDS_PORT } else { value });
        }
        let action = match request.listener.protocol {
            Protocol::Tcp => SET_TCP_LISTENER,
            Protocol::Udp => SET_UDP_LISTENER,
            Protocol::Http => SET_HTTP_LISTENER,
            Protocol::Https => SET_HTTPS_LISTENER,
        };
        self.0.write(permit, action, params).await.map(drop)
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

    async fn on_listener(&self, permit: &Permit, action: Write, id: &str, listener: ListenerKey) -> Result<(), Fault> {
        // One port can carry two protocols, so both are always sent.
        let params = Params::new()
            .with("LoadBalancerId", id)
            .with("ListenerPort", listener.port)
            .with("ListenerProtocol", listener.protocol);
        self.0.write(permit, action, params).await.map(drop)
    }
}

fn about(request: &ListenerRequest<'_>) -> Params {
    Params::new()
        .with("LoadBalancerId", request.load_balancer_id)
        .with("ListenerPort", request.listener.port)
        .with("Description", request.description)
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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ListenersBody {
    listeners: List<Map<String, Value>>,
    next_token: Text,
    total_count: Int,
}

/// Puts listeners to those of their instances.
fn sort_in(all: &mut ByInstance, listeners: Vec<Map<String, Value>>) -> Result<(), Fault> {
    for listener in listeners {
        let Some(id) = text(&listener, "LoadBalancerId") else {
            let message = "the answer does not say on which load balancers the listeners are";
            return Err(fault(DESCRIBE_LISTENERS.0, FaultKind::Bug, message));
        };
        all.entry(id).or_default().extend(observed(&listener));
    }
    Ok(())
}

/// Where the answer names the instance, it must be the one that was asked for.
fn belongs_to(listener: &Map<String, Value>, id: &str) -> bool {
    text(listener, "LoadBalancerId").is_none_or(|of| of == id)
}

fn observed(listener: &Map<String, Value>) -> Option<(ListenerKey, ObservedListener)> {
    let protocol = Protocol::parse(&text(listener, "ListenerProtocol")?.to_ascii_lowercase())?;
    let port = text(listener, "ListenerPort")?.parse().ok()?;
    let observed = ObservedListener {
        description: text(listener, "Description").unwrap_or_default(),
        status: text(listener, "Status").unwrap_or_default(),
        group_id: text(listener, "VServerGroupId").unwrap_or_default(),
        fields: fields(listener, protocol),
        domain_extensions: None,
    };
    Some((ListenerKey { port, protocol }, observed))
}

/// One flat list of the fields that are reported at the top and in the block of the protocol.
fn fields(listener: &Map<String, Value>, protocol: Protocol) -> ListenerFields {
    let block = match protocol {
        Protocol::Tcp => "TCPListenerConfig",
        Protocol::Udp => "UDPListenerConfig",
        Protocol::Http => "HTTPListenerConfig",
        Protocol::Https => "HTTPSListenerConfig",
    };
    let block = value(listener, block).and_then(Value::as_object);
    let mut fields = ListenerFields::new();
    for field in ListenerField::ALL {
        let top = TOP_LEVEL.contains(field).then(|| top_level(listener, *field)).flatten();
        let found = top.or_else(|| text(block?, field.parameter()));
        if let Some(found) = found {
            fields.insert(*field, found);
        }
    }
    fields
}

fn top_level(listener: &Map<String, Value>, field: ListenerField) -> Option<String> {
    if field == ListenerField::AclId
        && let Some(ids) = value(listener, "AclIds")
    {
        // Plain, or wrapped in an object with one key.
        let ids = ids.as_array().or_else(|| ids.as_object()?.values().next()?.as_array());
        let ids: Vec<_> = ids.into_iter().flatten().filter_map(scalar).filter(|id| !id.is_empty()).collect();
        if !ids.is_empty() {
            return Some(ids.join(","));
        }
    }
    text(listener, field.parameter())
}

fn value<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// `None` for empty text, which the API uses for "not set".
fn text(object: &Map<String, Value>, name: &str) -> Option<String> {
    value(object, name).and_then(scalar).filter(|text| !text.is_empty())
}
