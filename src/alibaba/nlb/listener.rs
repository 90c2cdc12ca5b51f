//! Listeners and their certificates.

use std::collections::{BTreeSet, HashMap};

use litemap::LiteMap;
use serde_json::{Map, Value};

use super::{CHUNK, Nlb, PAGE, created, started};
use crate::alibaba::actions::{
    ASSOCIATE_CERTIFICATES, CREATE_NETWORK_LISTENER, DELETE_NETWORK_LISTENER, DISASSOCIATE_CERTIFICATES,
    LIST_LISTENER_CERTIFICATES, LIST_NETWORK_LISTENERS, START_NETWORK_LISTENER, UPDATE_NETWORK_LISTENER, WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::Request;
use crate::fence::Permit;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::nlb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};
use crate::plan::nlb::observed::ObservedListener;

/// Certificates in one page.
const CERTIFICATES: u32 = 50;

/// Listeners by the id of their load balancer.
type ListenersByInstance = HashMap<String, LiteMap<ListenerKey, Box<ObservedListener>>>;

/// A listener with what identifies it.
type KeyedListener = (ListenerKey, Box<ObservedListener>);

/// A new listener.
#[derive(Clone, Copy, Debug)]
pub struct NewListener<'a> {
    /// On which load balancer.
    pub load_balancer_id: &'a str,
    /// Ports and protocol.
    pub listener: ListenerKey,
    /// The ownership mark.
    pub description: &'a str,
    /// `sgp-...`
    pub group_id: &'a str,
    /// All attributes to send.
    pub fields: &'a ListenerFields,
}

/// What an existing listener is to be.
#[derive(Clone, Copy, Debug)]
pub struct ListenerChange<'a> {
    /// `lsn-...`
    pub listener_id: &'a str,
    /// The ownership mark.
    pub description: &'a str,
    /// `sgp-...`
    pub group_id: &'a str,
    /// Attributes to send; others stay.
    pub fields: &'a ListenerFields,
}

impl Nlb {
    /// All listeners of these load balancers by the id of theirs, every page, without additional certificates. Listeners of
    /// a protocol that this version does not know are left out.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_listeners(&self, ids: &[&str]) -> Result<ListenersByInstance, Fault> {
        let mut found = ListenersByInstance::new();
        for chunk in ids.chunks(CHUNK) {
            let request = self.0.read(LIST_NETWORK_LISTENERS).list("LoadBalancerIds", chunk).with("MaxResults", PAGE);
            for (owner, listener) in request.by_token("Listeners", listed).await? {
                found.entry(owner).or_default().extend(listener);
            }
        }
        // A server that ignores the filter must not lend us foreign ones.
        found.retain(|owner, _| ids.contains(&owner.as_str()));
        Ok(found)
    }

    /// The listeners of all load balancers of the account in this region, those of others included. `None` if that takes more
    /// than `most_pages` calls.
    ///
    /// # Errors
    /// As any call.
    pub async fn list_listeners(&self, most_pages: usize) -> Result<Option<ListenersByInstance>, Fault> {
        let request = self.0.read(LIST_NETWORK_LISTENERS);
        let Some(listed) = request.by_token_within("Listeners", PAGE, listed, most_pages).await? else {
            return Ok(None);
        };
        let mut found = ListenersByInstance::new();
        listed.into_iter().for_each(|(owner, listener)| found.entry(owner).or_default().extend(listener));
        Ok(Some(found))
    }

    /// Creates a listener, which starts by itself.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_listener(&self, permit: &Permit, wanted: &NewListener<'_>) -> Result<Answer, Fault> {
        let ListenerKey { first, last, protocol } = wanted.listener;
        let is_range = wanted.listener.is_range();
        let request = self
            .0
            .write(permit, CREATE_NETWORK_LISTENER)
            .with("LoadBalancerId", wanted.load_balancer_id)
            .with("ListenerProtocol", protocol)
            .with("ListenerPort", if is_range { 0 } else { first })
            .maybe("StartPort", is_range.then_some(first))
            .maybe("EndPort", is_range.then_some(last))
            .with("ListenerDescription", wanted.description)
            .with("ServerGroupId", wanted.group_id);
        created(with_fields(request, wanted.fields), "ListenerId").await
    }

    /// Changes a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_listener(&self, permit: &Permit, wanted: &ListenerChange<'_>) -> Result<Answer, Fault> {
        let request = self.on_listener(permit, UPDATE_NETWORK_LISTENER, wanted.listener_id);
        let request = request.with("ListenerDescription", wanted.description).with("ServerGroupId", wanted.group_id);
        started(with_fields(request, wanted.fields)).await
    }

    /// Starts a stopped listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn start_listener(&self, permit: &Permit, listener_id: &str) -> Result<Answer, Fault> {
        started(self.on_listener(permit, START_NETWORK_LISTENER, listener_id)).await
    }

    /// Deletes a listener.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_listener(&self, permit: &Permit, listener_id: &str) -> Result<Answer, Fault> {
        started(self.on_listener(permit, DELETE_NETWORK_LISTENER, listener_id)).await
    }

    /// Server certificates of a TCPSSL listener besides the default one, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_additional_certificates(&self, listener_id: &str) -> Result<BTreeSet<String>, Fault> {
        let request = self.0.read(LIST_LISTENER_CERTIFICATES).with("ListenerId", listener_id);
        // Without the type the list can hold CA certificates.
        let request = request.with("CertType", "Server").with("MaxResults", CERTIFICATES);
        let certificate = |certificate: Fields<'_>| {
            let is_default = certificate.flag("IsDefault")?.unwrap_or(false);
            Ok((certificate.text("CertificateId")?, is_default))
        };
        let found = request.by_token("Certificates", certificate).await?;
        Ok(found.into_iter().filter(|(id, is_default)| !is_default && !id.is_empty()).map(|(id, _)| id).collect())
    }

    /// Adds certificates to a TCPSSL listener, at most 15. The answer may have no job: then it is done.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_certificates(
        &self,
        permit: &Permit,
        listener_id: &str,
        ids: &BTreeSet<String>,
    ) -> Result<Answer, Fault> {
        let request = self.on_listener(permit, ASSOCIATE_CERTIFICATES, listener_id);
        started(request.list("AdditionalCertificateIds", ids)).await
    }

    /// Removes additional certificates from a TCPSSL listener, at most 15. The answer may have no job: then it is done.
    ///
    /// # Errors
    /// As any write.
    pub async fn remove_certificates(
        &self,
        permit: &Permit,
        listener_id: &str,
        ids: &BTreeSet<String>,
    ) -> Result<Answer, Fault> {
        let request = self.on_listener(permit, DISASSOCIATE_CERTIFICATES, listener_id);
        started(request.list("AdditionalCertificateIds", ids)).await
    }

    fn on_listener<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        self.0.write(permit, action).with("ListenerId", id)
    }
}

fn with_fields<'a>(mut request: Request<'a>, fields: &ListenerFields) -> Request<'a> {
    let mut ppv2 = Map::new();
    for (field, value) in fields {
        match field {
            _ if ListenerField::PPV2.contains(field) => {
                ppv2.insert(field.parameter().into(), (value == "true").into());
            }
            ListenerField::Certificate | ListenerField::CaCertificate => {
                request = request.list(field.parameter(), value.split(',').filter(|id| !id.is_empty()));
            }
            _ => request = request.with(field.parameter(), value),
        }
    }
    // One parameter that holds a JSON object, unlike every other nested one.
    match ppv2.is_empty() {
        true => request,
        false => request.with("ProxyProtocolV2Config", Value::Object(ppv2)),
    }
}

/// A listener with the load balancer that it is on; `None` if this version does not know its protocol.
fn listed(body: Fields<'_>) -> Result<(String, Option<KeyedListener>), Mismatch> {
    let owner = body.id("LoadBalancerId")?;
    let Some(protocol) = Protocol::parse(&body.text("ListenerProtocol")?) else { return Ok((owner, None)) };
    let port = |name: &str| {
        let number = body.number(name)?;
        u16::try_from(number).map_err(|_| Mismatch(format!("{name}: expected a port, found {number}")))
    };
    let (first, last) = match port("ListenerPort")? {
        0 => (port("StartPort")?, port("EndPort")?),
        port => (port, port),
    };
    let id = body.id("ListenerId")?;
    let observed = ObservedListener {
        id,
        description: body.text("ListenerDescription")?,
        status: body.text("ListenerStatus")?,
        group_id: body.text("ServerGroupId")?,
        fields: fields(body)?,
        certificates: None,
    };
    Ok((owner, Some((ListenerKey { first, last, protocol }, Box::new(observed)))))
}

fn fields(body: Fields<'_>) -> Result<ListenerFields, Mismatch> {
    let ppv2 = body.object("ProxyProtocolV2Config").unwrap_or_default();
    let mut fields = ListenerFields::new();
    for field in ListenerField::ALL {
        let name = field.parameter();
        let value = match field {
            ListenerField::Certificate | ListenerField::CaCertificate => body.texts(name)?.join(","),
            _ if ListenerField::PPV2.contains(field) => ppv2.text(name)?,
            _ => body.text(name)?,
        };
        if !value.is_empty() {
            fields.insert(*field, value);
        }
    }
    Ok(fields)
}
