//! Classic load balancers, CLB (product Slb, version 2014-05-15).

use std::collections::BTreeMap;

use super::{Call, Fault};
use crate::fence::Permit;
use crate::plan::lb::model::{Backend, BackendKey, ListenerFields, ListenerKey, Protocol};
use crate::plan::lb::observed::{CertificateState, ObservedDomainExtension, ObservedInstance, ObservedListener};
use crate::plan::lb::operation::CreateInstance;

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

/// Calls to CLB.
#[derive(Clone, Debug)]
pub struct Slb(pub(super) Call);

#[expect(clippy::unused_async, unused_variables, clippy::todo, clippy::missing_errors_doc)]
impl Slb {
    /// Instances that carry the tag, every page.
    pub async fn find_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        todo!()
    }
    /// Instances of exactly this name, every page.
    pub async fn find_by_name(&self, name: &str) -> Result<Vec<ObservedInstance>, Fault> {
        todo!()
    }
    /// One instance; a [`FaultKind::Gone`](super::FaultKind::Gone) fault proves that it does not exist.
    pub async fn describe_instance(&self, id: &str) -> Result<ObservedInstance, Fault> {
        todo!()
    }
    /// Makes an instance. `vswitch_id` is the one to try of those in `wanted`. A repetition with the same token gives the same instance.
    pub async fn create_instance(
        &self,
        permit: &Permit,
        wanted: &CreateInstance,
        vswitch_id: Option<&str>,
        client_token: &str,
    ) -> Result<CreatedInstance, Fault> {
        todo!()
    }
    /// Deletes an instance with everything on it.
    pub async fn delete_instance(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        todo!()
    }
    /// Changes the visible name.
    pub async fn set_name(&self, permit: &Permit, id: &str, name: &str) -> Result<(), Fault> {
        todo!()
    }
    /// Switches delete protection.
    pub async fn set_delete_protection(&self, permit: &Permit, id: &str, on: bool) -> Result<(), Fault> {
        todo!()
    }
    /// `status` is `ConsoleProtection` or `NonProtection`.
    pub async fn set_modification_protection(
        &self,
        permit: &Permit,
        id: &str,
        status: &str,
        reason: Option<&str>,
    ) -> Result<(), Fault> {
        todo!()
    }
    /// `charge_type` is `PayBySpec` or `PayByCLCU`.
    pub async fn set_instance_charge_type(
        &self,
        permit: &Permit,
        id: &str,
        charge_type: &str,
        spec: Option<&str>,
    ) -> Result<(), Fault> {
        todo!()
    }
    /// Such as `slb.s2.small`.
    pub async fn set_spec(&self, permit: &Permit, id: &str, spec: &str) -> Result<(), Fault> {
        todo!()
    }
    /// `charge_type` is `paybytraffic` or `paybybandwidth`; `bandwidth` in Mbit/s.
    pub async fn set_internet_spec(
        &self,
        permit: &Permit,
        id: &str,
        charge_type: &str,
        bandwidth: Option<i64>,
    ) -> Result<(), Fault> {
        todo!()
    }
    /// Adds or changes tags of an instance.
    pub async fn tag(&self, permit: &Permit, id: &str, tags: &BTreeMap<String, String>) -> Result<(), Fault> {
        todo!()
    }
    /// Removes tags of an instance; nothing is sent if `keys` is empty.
    pub async fn untag(&self, permit: &Permit, id: &str, keys: &[String]) -> Result<(), Fault> {
        todo!()
    }
    /// All server groups of an instance.
    pub async fn describe_groups(&self, id: &str) -> Result<Vec<GroupSummary>, Fault> {
        todo!()
    }
    /// Backends of a server group.
    pub async fn describe_backends(&self, group_id: &str) -> Result<Vec<Backend>, Fault> {
        todo!()
    }
    /// Makes a server group with backends; returns its id.
    pub async fn create_group(
        &self,
        permit: &Permit,
        id: &str,
        name: &str,
        backends: &[Backend],
    ) -> Result<String, Fault> {
        todo!()
    }
    /// Deletes a server group.
    pub async fn delete_group(&self, permit: &Permit, group_id: &str) -> Result<(), Fault> {
        todo!()
    }
    /// Adds backends.
    pub async fn add_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        todo!()
    }
    /// Removes backends; absent ones are ignored by the API.
    pub async fn remove_backends(&self, permit: &Permit, group_id: &str, backends: &[BackendKey]) -> Result<(), Fault> {
        todo!()
    }
    /// Changes weight and description of backends.
    pub async fn set_backends(&self, permit: &Permit, group_id: &str, backends: &[Backend]) -> Result<(), Fault> {
        todo!()
    }
    /// All listeners of an instance, every page, without domain extensions. Listeners of a protocol that this version
    /// does not know are left out.
    pub async fn describe_listeners(&self, id: &str) -> Result<BTreeMap<ListenerKey, ObservedListener>, Fault> {
        todo!()
    }
    /// Makes a listener; it is stopped at first.
    pub async fn create_listener(&self, permit: &Permit, request: &ListenerRequest<'_>) -> Result<(), Fault> {
        todo!()
    }
    /// Changes a listener.
    pub async fn set_listener(&self, permit: &Permit, request: &ListenerRequest<'_>) -> Result<(), Fault> {
        todo!()
    }
    /// Starts a listener.
    pub async fn start_listener(&self, permit: &Permit, id: &str, listener: ListenerKey) -> Result<(), Fault> {
        todo!()
    }
    /// Deletes a listener.
    pub async fn delete_listener(&self, permit: &Permit, id: &str, listener: ListenerKey) -> Result<(), Fault> {
        todo!()
    }
    /// Domain extensions of an HTTPS listener, by domain.
    pub async fn describe_domain_extensions(
        &self,
        id: &str,
        port: u16,
    ) -> Result<BTreeMap<String, ObservedDomainExtension>, Fault> {
        todo!()
    }
    /// Adds a certificate for a domain; returns the id of the extension.
    pub async fn create_domain_extension(
        &self,
        permit: &Permit,
        id: &str,
        port: u16,
        domain: &str,
        certificate_id: &str,
    ) -> Result<String, Fault> {
        todo!()
    }
    /// Changes the certificate of a domain.
    pub async fn set_domain_extension(
        &self,
        permit: &Permit,
        extension_id: &str,
        certificate_id: &str,
    ) -> Result<(), Fault> {
        todo!()
    }
    /// Removes the certificate of a domain.
    pub async fn delete_domain_extension(&self, permit: &Permit, extension_id: &str) -> Result<(), Fault> {
        todo!()
    }
    /// Looks a certificate up.
    pub async fn certificate_state(&self, certificate_id: &str) -> Result<CertificateState, Fault> {
        todo!()
    }
}

/// The protocols whose listeners are managed.
pub const PROTOCOLS: [Protocol; 4] = Protocol::ALL;
