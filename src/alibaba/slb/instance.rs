//! Instances and their tags.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::{CreatedInstance, Slb};
use crate::alibaba::Fault;
use crate::alibaba::actions::{
    CREATE_LOAD_BALANCER, DELETE_LOAD_BALANCER, DESCRIBE_LOAD_BALANCER, DESCRIBE_LOAD_BALANCERS, SET_DELETE_PROTECTION,
    SET_INSTANCE_CHARGE_TYPE, SET_INTERNET_SPEC, SET_MODIFICATION_PROTECTION, SET_NAME, SET_SPEC, TAG_RESOURCES,
    UNTAG_RESOURCES, Write,
};
use crate::alibaba::decode::{Int, List, Tag, Text, tags};
use crate::alibaba::paging::{PagingError, shown_by_number, unique};
use crate::alibaba::signing::Params;
use crate::fence::Permit;
use crate::plan::clb::observed::{ObservedInstance, PendingCharge};
use crate::plan::clb::operation::CreateInstance;

/// Instances in one page.
pub const PAGE: usize = 100;

/// Tags in one call.
const TAGS: usize = 20;

impl Slb {
    /// Instances that carry the tag, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        Ok(having(self.list(tag_filter(key, value)).await?, key, value))
    }

    /// Instances with this tag, as far as a list shows them that may change while it is read. What it lacks may be there.
    ///
    /// # Errors
    /// As any call.
    pub async fn shown_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        Ok(having(self.list_shown(tag_filter(key, value)).await?.0, key, value))
    }

    /// Instances of exactly this name, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_name(&self, name: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let mut found = self.list(Params::new().with("LoadBalancerName", name)).await?;
        // A comma in the name would have been taken for a list.
        found.retain(|instance| instance.name == name);
        Ok(found)
    }

    /// One instance; a [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) fault proves that it does not exist.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_instance(&self, id: &str) -> Result<ObservedInstance, Fault> {
        let answer = self.0.read(DESCRIBE_LOAD_BALANCER, Params::new().with("LoadBalancerId", id)).await?;
        let other = answer.bug(format!("asked for {id}, but the answer is about another load balancer"));
        let body: InstanceBody = answer.decode()?;
        if body.load_balancer_id.0 == id { Ok(body.into()) } else { Err(other) }
    }

    /// Makes an instance. `vswitch_id` is the one to try of those in `wanted`. A repetition with the same token gives the same instance.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_instance(
        &self,
        permit: &Permit,
        wanted: &CreateInstance,
        vswitch_id: Option<&str>,
        client_token: &str,
    ) -> Result<CreatedInstance, Fault> {
        let mut params = Params::new()
            .with("LoadBalancerName", &wanted.name)
            .with("AddressType", &wanted.address_type)
            .maybe("AddressIPVersion", wanted.ip_version.as_ref())
            .maybe("VpcId", wanted.vpc_id.as_ref())
            .maybe("VSwitchId", vswitch_id)
            .maybe("Address", wanted.address.as_ref())
            .maybe("MasterZoneId", wanted.master_zone.as_ref())
            .maybe("SlaveZoneId", wanted.slave_zone.as_ref())
            .with("InstanceChargeType", &wanted.instance_charge_type)
            .maybe("LoadBalancerSpec", wanted.spec.as_ref())
            .maybe("InternetChargeType", wanted.internet_charge_type.as_ref())
            .maybe("Bandwidth", wanted.bandwidth)
            .with("DeleteProtection", on_off(wanted.delete_protection))
            .with("ModificationProtectionStatus", &wanted.modification_protection)
            .maybe("ModificationProtectionReason", wanted.modification_protection_reason.as_ref())
            .maybe("ResourceGroupId", wanted.resource_group_id.as_ref())
            .with("ClientToken", client_token);
        push_tags(&mut params, wanted.tags.iter());
        let answer = self.0.write(permit, CREATE_LOAD_BALANCER, params).await?;
        let nameless = answer.bug("the answer does not say which load balancer was made");
        let body: CreatedBody = answer.decode()?;
        if body.load_balancer_id.0.is_empty() {
            return Err(nameless);
        }
        Ok(CreatedInstance {
            id: body.load_balancer_id.0,
            address: body.address.0,
            vpc_id: body.vpc_id.0,
            vswitch_id: body.vswitch_id.0,
        })
    }

    /// Deletes an instance with everything on it.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_instance(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        self.change(permit, DELETE_LOAD_BALANCER, id, Params::new()).await
    }

    /// Changes the visible name.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_name(&self, permit: &Permit, id: &str, name: &str) -> Result<(), Fault> {
        self.change(permit, SET_NAME, id, Params::new().with("LoadBalancerName", name)).await
    }

    /// Switches delete protection.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_delete_protection(&self, permit: &Permit, id: &str, on: bool) -> Result<(), Fault> {
        self.change(permit, SET_DELETE_PROTECTION, id, Params::new().with("DeleteProtection", on_off(on))).await
    }

    /// `status` is `ConsoleProtection` or `NonProtection`.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_modification_protection(
        &self,
        permit: &Permit,
        id: &str,
        status: &str,
        reason: Option<&str>,
    ) -> Result<(), Fault> {
        let params =
            Params::new().with("ModificationProtectionStatus", status).maybe("ModificationProtectionReason", reason);
        self.change(permit, SET_MODIFICATION_PROTECTION, id, params).await
    }

    /// `charge_type` is `PayBySpec` or `PayByCLCU`.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_instance_charge_type(
        &self,
        permit: &Permit,
        id: &str,
        charge_type: &str,
        spec: Option<&str>,
    ) -> Result<(), Fault> {
        let params = Params::new().with("InstanceChargeType", charge_type).maybe("LoadBalancerSpec", spec);
        self.change(permit, SET_INSTANCE_CHARGE_TYPE, id, params).await
    }

    /// Such as `slb.s2.small`.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_spec(&self, permit: &Permit, id: &str, spec: &str) -> Result<(), Fault> {
        self.change(permit, SET_SPEC, id, Params::new().with("LoadBalancerSpec", spec)).await
    }

    /// `charge_type` is `paybytraffic` or `paybybandwidth`; `bandwidth` in Mbit/s.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_internet_spec(
        &self,
        permit: &Permit,
        id: &str,
        charge_type: &str,
        bandwidth: Option<i64>,
    ) -> Result<(), Fault> {
        let params = Params::new().with("InternetChargeType", charge_type).maybe("Bandwidth", bandwidth);
        self.change(permit, SET_INTERNET_SPEC, id, params).await
    }

    /// Adds or changes tags of an instance.
    ///
    /// # Errors
    /// As any write.
    pub async fn tag(&self, permit: &Permit, id: &str, tags: &BTreeMap<String, String>) -> Result<(), Fault> {
        let tags: Vec<_> = tags.iter().collect();
        for chunk in tags.chunks(TAGS) {
            let mut params = tagged(id);
            push_tags(&mut params, chunk.iter().copied());
            self.0.write(permit, TAG_RESOURCES, params).await?;
        }
        Ok(())
    }

    /// Removes tags of an instance; nothing is sent if `keys` is empty.
    ///
    /// # Errors
    /// As any write.
    pub async fn untag(&self, permit: &Permit, id: &str, keys: &[String]) -> Result<(), Fault> {
        // An empty key would be dropped from the request, and a request without keys could remove all tags.
        let keys: Vec<_> = keys.iter().filter(|key| !key.is_empty()).collect();
        for chunk in keys.chunks(TAGS) {
            self.0.write(permit, UNTAG_RESOURCES, tagged(id).list("TagKey", chunk)).await?;
        }
        Ok(())
    }

    async fn change(&self, permit: &Permit, action: Write, id: &str, params: Params) -> Result<(), Fault> {
        self.0.write(permit, action, params.with("LoadBalancerId", id)).await.map(drop)
    }

    async fn list(&self, filter: Params) -> Result<Vec<ObservedInstance>, Fault> {
        let (found, whole) = self.list_shown(filter).await?;
        if whole { Ok(found) } else { Err(PagingError::Moved.into_fault(DESCRIBE_LOAD_BALANCERS.0)) }
    }

    /// What pages show, and whether it is all.
    async fn list_shown(&self, filter: Params) -> Result<(Vec<ObservedInstance>, bool), Fault> {
        let filter = filter.with("PageSize", PAGE);
        let (found, whole) = shown_by_number(PAGE, |number| {
            let params = filter.clone().with("PageNumber", number);
            async move {
                let body: InstancesBody = self.0.read(DESCRIBE_LOAD_BALANCERS, params).await?.decode()?;
                Ok((body.load_balancers.0.into_iter().map(ObservedInstance::from).collect(), body.total_count.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(DESCRIBE_LOAD_BALANCERS.0))?;
        Ok((unique(found, |instance: &ObservedInstance| &instance.id), whole))
    }
}

/// One tag only: several would be combined with "or".
fn tag_filter(key: &str, value: &str) -> Params {
    Params::new().with("Tags", json!([{"TagKey": key, "TagValue": value}]))
}

/// A server that ignores the filter must not lend us foreign instances; one that omits tags proves nothing.
fn having(mut found: Vec<ObservedInstance>, key: &str, value: &str) -> Vec<ObservedInstance> {
    found.retain(|instance| instance.tags.is_empty() || instance.tags.get(key).is_some_and(|is| is == value));
    found
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn tagged(id: &str) -> Params {
    Params::new().with("ResourceType", "instance").with("ResourceId.1", id)
}

fn push_tags<'a>(params: &mut Params, tags: impl IntoIterator<Item = (&'a String, &'a String)>) {
    for (index, (key, value)) in tags.into_iter().enumerate() {
        params.push(format!("Tag.{}.Key", index + 1), key);
        params.push(format!("Tag.{}.Value", index + 1), value);
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct CreatedBody {
    load_balancer_id: Text,
    address: Text,
    vpc_id: Text,
    #[serde(rename = "VSwitchId")]
    vswitch_id: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InstancesBody {
    load_balancers: List<InstanceBody>,
    total_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InstanceBody {
    load_balancer_id: Text,
    load_balancer_name: Text,
    load_balancer_status: Text,
    address: Text,
    address_type: Text,
    #[serde(rename = "AddressIPVersion")]
    ip_version: Text,
    network_type: Text,
    vpc_id: Text,
    #[serde(rename = "VSwitchId")]
    vswitch_id: Text,
    master_zone_id: Text,
    slave_zone_id: Text,
    load_balancer_spec: Text,
    instance_charge_type: Text,
    internet_charge_type: Text,
    internet_charge_type_alias: Text,
    bandwidth: Int,
    has_reserved_info: Text,
    reserved_info_active_time: Text,
    delete_protection: Text,
    modification_protection_status: Text,
    resource_group_id: Text,
    tags: List<Tag>,
}

impl From<InstanceBody> for ObservedInstance {
    fn from(body: InstanceBody) -> Self {
        Self {
            id: body.load_balancer_id.0,
            name: body.load_balancer_name.0,
            address: body.address.0,
            address_type: body.address_type.0,
            ip_version: body.ip_version.0,
            network_type: body.network_type.0,
            vpc_id: body.vpc_id.0,
            vswitch_id: body.vswitch_id.0,
            master_zone: body.master_zone_id.0,
            slave_zone: body.slave_zone_id.0,
            spec: body.load_balancer_spec.0,
            instance_charge_type: body.instance_charge_type.0,
            internet_charge_type: internet_charge_type(body.internet_charge_type_alias.0, body.internet_charge_type.0),
            bandwidth: body.bandwidth.0,
            pending_charge: match body.has_reserved_info.0.as_str() {
                "" => PendingCharge::Unread,
                "true" => PendingCharge::From(body.reserved_info_active_time.0),
                _ => PendingCharge::None,
            },
            delete_protection: body.delete_protection.0.eq_ignore_ascii_case("on"),
            modification_protection: body.modification_protection_status.0,
            resource_group_id: body.resource_group_id.0,
            status: body.load_balancer_status.0,
            tags: tags(body.tags),
        }
    }
}

/// Lists give a number and the word as an alias; the answer about one instance gives the word itself.
fn internet_charge_type(alias: String, plain: String) -> String {
    match (alias.as_str(), plain.as_str()) {
        ("", "3") => "paybybandwidth".into(),
        ("", "4") => "paybytraffic".into(),
        ("", _) => plain,
        _ => alias,
    }
}
