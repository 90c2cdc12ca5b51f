//! Instances: the load balancers themselves, where they stand, and their tags.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use super::{CHUNK, Nlb, PAGE, created, started};
use crate::alibaba::actions::{
    ATTACH_BANDWIDTH_PACKAGE, CREATE_NETWORK_LOAD_BALANCER, DELETE_NETWORK_LOAD_BALANCER, DETACH_BANDWIDTH_PACKAGE,
    DISABLE_IPV6_INTERNET, ENABLE_IPV6_INTERNET, GET_NETWORK_LOAD_BALANCER, JOIN_SECURITY_GROUP, LEAVE_SECURITY_GROUP,
    LIST_NETWORK_LOAD_BALANCERS, TAG_NETWORK_RESOURCES, UNTAG_NETWORK_RESOURCES, UPDATE_ADDRESS_TYPE,
    UPDATE_NETWORK_LOAD_BALANCER, UPDATE_PROTECTION, UPDATE_ZONES, WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::{Request, unique};
use crate::fence::Permit;
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::desire::PROTECTION_REASON;
use crate::plan::nlb::model::{CreateInstance, InstanceField, InstanceFields, ZoneMapping};
use crate::plan::nlb::observed::ObservedInstance;

impl Nlb {
    /// Load balancers that carry the tag, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let request = self.instances().with("Tag.1.Key", key).with("Tag.1.Value", value);
        let mut found = request.by_token("LoadBalancers", instance).await?;
        // A server that ignores the filter must not lend us foreign ones; one that omits tags proves nothing.
        found.retain(|instance| instance.tags.is_empty() || instance.tags.get(key).is_some_and(|is| is == value));
        Ok(unique(found, |instance| &instance.id))
    }

    /// Load balancers with these ids; a list can lack one that is new.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_ids(&self, ids: &[String]) -> Result<Vec<ObservedInstance>, Fault> {
        let mut found = Vec::new();
        for chunk in ids.chunks(CHUNK) {
            let request = self.instances().list("LoadBalancerIds", chunk);
            found.extend(request.by_token("LoadBalancers", instance).await?);
        }
        found.retain(|instance| ids.contains(&instance.id));
        Ok(found)
    }

    /// All load balancers of the region, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_all(&self) -> Result<Vec<ObservedInstance>, Fault> {
        let found = self.instances().by_token("LoadBalancers", instance).await?;
        Ok(unique(found, |instance| &instance.id))
    }

    /// How many load balancers the account has in the region.
    ///
    /// # Errors
    /// As any call.
    pub async fn count_instances(&self) -> Result<u64, Fault> {
        self.0.read(LIST_NETWORK_LOAD_BALANCERS).with("MaxResults", 1).count().await
    }

    /// Load balancers of exactly this name, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_name(&self, name: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let request = self.instances().with("LoadBalancerNames.1", name);
        let mut found = request.by_token("LoadBalancers", instance).await?;
        found.retain(|instance| instance.fields.is(InstanceField::Name, name));
        Ok(unique(found, |instance| &instance.id))
    }

    /// One load balancer; a [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) fault proves that it does not exist.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_instance(&self, id: &str) -> Result<ObservedInstance, Fault> {
        self.0.read(GET_NETWORK_LOAD_BALANCER).one("LoadBalancerId", id, instance).await
    }

    /// Creates a load balancer; it is being provisioned at first. A repetition with the same token gives the same one.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_instance(
        &self,
        permit: &Permit,
        wanted: &CreateInstance,
        client_token: &str,
    ) -> Result<Answer, Fault> {
        let request = self
            .0
            .write(permit, CREATE_NETWORK_LOAD_BALANCER)
            .fields(&wanted.fields)
            .with("VpcId", &wanted.vpc_id)
            .maybe("ModificationProtectionConfig.Reason", wanted.modification_protection_reason.as_ref())
            .with("ClientToken", client_token)
            .tags(&wanted.tags);
        let mut request = with_zones(request, &wanted.zones);
        for (index, zone) in wanted.zones.iter().enumerate() {
            request = request.with(format!("ZoneMappings.{}.Ipv6Address", index + 1), &zone.ipv6_address);
        }
        // The answer spells the id differently from all others.
        created(request, "LoadbalancerId").await
    }

    /// Deletes a load balancer with its listeners.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_instance(&self, permit: &Permit, id: &str) -> Result<Answer, Fault> {
        started(self.change(permit, DELETE_NETWORK_LOAD_BALANCER, id)).await
    }

    /// Changes attributes that one action sets, see `setter`. Protections and the IPv6 address have no job. The protection against
    /// changes in the console is sent with its reason.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_instance(&self, permit: &Permit, id: &str, fields: &InstanceFields) -> Result<Answer, Fault> {
        let Some(action) = fields.iter().find_map(|(field, value)| setter(*field, value)) else {
            return Ok(Answer::default());
        };
        let mut request = self.change(permit, action, id);
        for (field, value) in fields {
            request = match field {
                // The action says it.
                InstanceField::Ipv6AddressType => request,
                InstanceField::DeleteProtection => request.with("DeletionProtectionEnabled", value),
                InstanceField::ModificationProtection => {
                    let reason = (value == "ConsoleProtection").then_some(PROTECTION_REASON);
                    let request = request.with("ModificationProtectionStatus", value);
                    request.maybe("ModificationProtectionReason", reason)
                }
                other => request.with(other.parameter(), value),
            };
        }
        started(request).await
    }

    /// Makes the IPv4 addresses `Internet` or `Intranet`. `zones` name the elastic addresses to use; without, the cloud
    /// chooses addresses of its own.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_address_type(
        &self,
        permit: &Permit,
        id: &str,
        address_type: &str,
        zones: &[ZoneMapping],
    ) -> Result<Answer, Fault> {
        let mut request = self.change(permit, UPDATE_ADDRESS_TYPE, id).with("AddressType", address_type);
        for (index, zone) in zones.iter().enumerate() {
            let name = |field: &str| format!("ZoneMappings.{}.{field}", index + 1);
            request = request.with(name("ZoneId"), &zone.zone).with(name("VSwitchId"), &zone.vswitch);
            request = request.with(name("AllocationId"), &zone.allocation_id);
        }
        started(request).await
    }

    /// Sets the zones, all of them: one that is left out is given up.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_zones(&self, permit: &Permit, id: &str, zones: &[ZoneMapping]) -> Result<Answer, Fault> {
        started(with_zones(self.change(permit, UPDATE_ZONES, id), zones)).await
    }

    /// Puts the public addresses into a bandwidth package (`cbwp-...`).
    ///
    /// # Errors
    /// As any write.
    pub async fn attach_bandwidth_package(&self, permit: &Permit, id: &str, package: &str) -> Result<Answer, Fault> {
        started(self.change(permit, ATTACH_BANDWIDTH_PACKAGE, id).with("BandwidthPackageId", package)).await
    }

    /// Takes the public addresses out of a bandwidth package.
    ///
    /// # Errors
    /// As any write.
    pub async fn detach_bandwidth_package(&self, permit: &Permit, id: &str, package: &str) -> Result<Answer, Fault> {
        started(self.change(permit, DETACH_BANDWIDTH_PACKAGE, id).with("BandwidthPackageId", package)).await
    }

    /// Filters clients by these security groups, too.
    ///
    /// # Errors
    /// As any write.
    pub async fn join_security_groups(
        &self,
        permit: &Permit,
        id: &str,
        groups: &BTreeSet<String>,
    ) -> Result<Answer, Fault> {
        started(self.change(permit, JOIN_SECURITY_GROUP, id).list("SecurityGroupIds", groups)).await
    }

    /// Filters clients by these security groups no more.
    ///
    /// # Errors
    /// As any write.
    pub async fn leave_security_groups(
        &self,
        permit: &Permit,
        id: &str,
        groups: &BTreeSet<String>,
    ) -> Result<Answer, Fault> {
        started(self.change(permit, LEAVE_SECURITY_GROUP, id).list("SecurityGroupIds", groups)).await
    }

    /// Adds or changes tags of a load balancer or a server group, at most 20. There is no job.
    ///
    /// # Errors
    /// As any write.
    pub async fn tag(&self, permit: &Permit, id: &str, tags: &BTreeMap<String, String>) -> Result<Answer, Fault> {
        started(self.tagging(permit, TAG_NETWORK_RESOURCES, id).tags(tags)).await
    }

    /// Removes tags of a load balancer or a server group, at most 20; nothing is sent if `keys` has none. There is no job.
    ///
    /// # Errors
    /// As any write.
    pub async fn untag(&self, permit: &Permit, id: &str, keys: &[String]) -> Result<Answer, Fault> {
        // An empty key would be dropped from the request, and a request without keys could remove all tags.
        let keys: Vec<_> = keys.iter().filter(|key| !key.is_empty()).take(CHUNK).collect();
        if keys.is_empty() {
            return Ok(Answer::default());
        }
        started(self.tagging(permit, UNTAG_NETWORK_RESOURCES, id).list("TagKey", keys)).await
    }

    fn instances(&self) -> Request<'_> {
        self.0.read(LIST_NETWORK_LOAD_BALANCERS).with("MaxResults", PAGE)
    }

    fn change<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        self.0.write(permit, action).with("LoadBalancerId", id)
    }

    /// The id alone tells what it is: `nlb-...` or `sgp-...`.
    fn tagging<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        let kind = if id.starts_with("sgp-") { "servergroup" } else { "loadbalancer" };
        self.0.write(permit, action).with("ResourceType", kind).with("ResourceId.1", id)
    }
}

/// The action that sets an attribute to this value, if it can be set.
fn setter(field: InstanceField, value: &str) -> Option<WriteAction> {
    match field {
        InstanceField::Name | InstanceField::CrossZone => Some(UPDATE_NETWORK_LOAD_BALANCER),
        InstanceField::DeleteProtection | InstanceField::ModificationProtection => Some(UPDATE_PROTECTION),
        InstanceField::Ipv6AddressType if value == "Internet" => Some(ENABLE_IPV6_INTERNET),
        InstanceField::Ipv6AddressType => Some(DISABLE_IPV6_INTERNET),
        _ => None,
    }
}

fn with_zones<'a>(mut request: Request<'a>, zones: &[ZoneMapping]) -> Request<'a> {
    for (index, zone) in zones.iter().enumerate() {
        let fields = [
            ("ZoneId", &zone.zone),
            ("VSwitchId", &zone.vswitch),
            ("PrivateIPv4Address", &zone.private_address),
            ("AllocationId", &zone.allocation_id),
        ];
        for (field, value) in fields {
            request = request.with(format!("ZoneMappings.{}.{field}", index + 1), value);
        }
    }
    request
}

fn instance(body: Fields<'_>) -> Result<ObservedInstance, Mismatch> {
    let id = body.id("LoadBalancerId")?;
    let value = |field: InstanceField| {
        let (object, name) = match field.parameter().split_once('.') {
            Some((object, name)) => (body.object(object)?, name),
            None => (body, field.parameter()),
        };
        match field {
            InstanceField::CrossZone | InstanceField::DeleteProtection => {
                Ok(object.flag(name)?.unwrap_or(false).to_string())
            }
            _ => object.text(name),
        }
    };
    // They come in their order: each is appended.
    let mut fields = InstanceFields::with_capacity(InstanceField::ALL.len());
    for field in InstanceField::ALL {
        drop(fields.try_append(*field, value(*field)?));
    }
    Ok(ObservedInstance {
        id,
        fields,
        dns_name: body.text("DNSName")?,
        status: body.text("LoadBalancerStatus")?,
        vpc_id: body.text("VpcId")?,
        zones: body.list("ZoneMappings", zone)?,
        security_group_ids: body.texts("SecurityGroupIds")?.into_iter().collect(),
        tags: body.tags()?,
    })
}

/// A zone has one address in practice; the first is taken.
fn zone(body: Fields<'_>) -> Result<ZoneMapping, Mismatch> {
    let address = |address: Fields<'_>| {
        let ipv6 = address.text("Ipv6Address")?;
        let ipv6 = ipv6.parse().map(|address: Ipv6Addr| address.to_string()).unwrap_or(ipv6);
        Ok((address.text("PrivateIPv4Address")?, address.text("AllocationId")?, ipv6))
    };
    let addresses = body.list("LoadBalancerAddresses", address)?;
    let (private_address, allocation_id, ipv6_address) = addresses.into_iter().next().unwrap_or_default();
    let (zone, vswitch) = (body.text("ZoneId")?, body.text("VSwitchId")?);
    Ok(ZoneMapping { zone, vswitch, private_address, allocation_id, ipv6_address })
}
