//! Instances and their tags.

use std::collections::BTreeMap;

use serde_json::json;

use super::Clb;
use crate::alibaba::actions::{
    CREATE_LOAD_BALANCER, DELETE_LOAD_BALANCER, DESCRIBE_LOAD_BALANCER, DESCRIBE_LOAD_BALANCERS, SET_DELETE_PROTECTION,
    SET_INSTANCE_CHARGE_TYPE, SET_INTERNET_SPEC, SET_MODIFICATION_PROTECTION, SET_NAME, SET_SPEC, TAG_RESOURCES,
    UNTAG_RESOURCES, WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::{Request, unique};
use crate::fence::Permit;
use crate::plan::clb::model::{CreateInstance, InstanceField, InstanceFields};
use crate::plan::clb::observed::{ObservedInstance, PendingCharge};
use crate::plan::loadbalancer::api_fields::FieldValues as _;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::operation::on_off;

/// Instances in one page.
const PAGE: usize = 100;

/// Tags in one call.
const TAGS: usize = 20;

/// What sets the attributes that can be changed.
const SETTERS: [(InstanceField, WriteAction); 6] = [
    (InstanceField::Name, SET_NAME),
    (InstanceField::ChargeType, SET_INSTANCE_CHARGE_TYPE),
    (InstanceField::Spec, SET_SPEC),
    (InstanceField::InternetChargeType, SET_INTERNET_SPEC),
    (InstanceField::DeleteProtection, SET_DELETE_PROTECTION),
    (InstanceField::ModificationProtection, SET_MODIFICATION_PROTECTION),
];

impl Clb {
    /// Instances that carry the tag, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let found = self.tagged(key, value).numbered("LoadBalancers", PAGE, instance).await?;
        Ok(having(found, key, value))
    }

    /// Instances with this tag, as far as a list shows them that may change while it is read. What it lacks may be there.
    ///
    /// # Errors
    /// As any call.
    pub async fn shown_by_tag(&self, key: &str, value: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let (found, _) = self.tagged(key, value).numbered_partial("LoadBalancers", PAGE, instance).await?;
        Ok(having(found, key, value))
    }

    /// How many instances the account has in the region.
    ///
    /// # Errors
    /// As any call.
    pub async fn count_instances(&self) -> Result<u64, Fault> {
        self.0.read(DESCRIBE_LOAD_BALANCERS).with("PageSize", 1).with("PageNumber", 1).count().await
    }

    /// Instances of exactly this name, every page.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_by_name(&self, name: &str) -> Result<Vec<ObservedInstance>, Fault> {
        let request = self.0.read(DESCRIBE_LOAD_BALANCERS).with("LoadBalancerName", name);
        let mut found = request.numbered("LoadBalancers", PAGE, instance).await?;
        // A comma in the name would have been taken for a list.
        found.retain(|instance| instance.fields.is(InstanceField::Name, name));
        Ok(unique(found, |instance| &instance.id))
    }

    /// One instance; a [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) fault proves that it does not exist.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_instance(&self, id: &str) -> Result<ObservedInstance, Fault> {
        self.0.read(DESCRIBE_LOAD_BALANCER).one("LoadBalancerId", id, instance).await
    }

    /// Creates an instance. `vswitch_id` is the one to try of those in `wanted`. A repetition with the same token gives the
    /// same instance.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_instance(
        &self,
        permit: &Permit,
        wanted: &CreateInstance,
        vswitch_id: Option<&str>,
        client_token: &str,
    ) -> Result<Answer, Fault> {
        let answer = self
            .0
            .write(permit, CREATE_LOAD_BALANCER)
            .fields(&wanted.fields)
            .maybe("VpcId", wanted.vpc_id.as_ref())
            .maybe("VSwitchId", vswitch_id)
            .maybe("MasterZoneId", wanted.master_zone.as_ref())
            .maybe("SlaveZoneId", wanted.slave_zone.as_ref())
            .maybe("ModificationProtectionReason", wanted.modification_protection_reason.as_ref())
            .with("ClientToken", client_token)
            .tags(&wanted.tags)
            .send()
            .await?;
        let text = |name| answer.decode(|body| body.text(name));
        let [id, address, vpc_id, vswitch_id] =
            [text("LoadBalancerId")?, text("Address")?, text("VpcId")?, text("VSwitchId")?].map(Some);
        if id.as_ref().is_some_and(String::is_empty) {
            return Err(answer.unusable("the answer lacks the id of the load balancer"));
        }
        Ok(Answer { id, address, vpc_id, vswitch_id, ..Answer::default() })
    }

    /// Deletes an instance with everything on it.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_instance(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        self.change(permit, DELETE_LOAD_BALANCER, id).done().await
    }

    /// Changes attributes that one action sets: the first of `SETTERS` whose attribute is among them. Nothing is sent for those
    /// that cannot be changed.
    ///
    /// # Errors
    /// As any write.
    pub async fn set_instance(&self, permit: &Permit, id: &str, fields: &InstanceFields) -> Result<(), Fault> {
        match SETTERS.iter().find(|(field, _)| fields.contains_key(field)) {
            Some((_, action)) => self.change(permit, *action, id).fields(fields).done().await,
            None => Ok(()),
        }
    }

    /// Adds or changes tags of an instance.
    ///
    /// # Errors
    /// As any write.
    pub async fn tag(&self, permit: &Permit, id: &str, tags: &BTreeMap<String, String>) -> Result<(), Fault> {
        let tags: Vec<_> = tags.iter().collect();
        for chunk in tags.chunks(TAGS) {
            self.tagging(permit, TAG_RESOURCES, id).tags(chunk.iter().copied()).done().await?;
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
            self.tagging(permit, UNTAG_RESOURCES, id).list("TagKey", chunk).done().await?;
        }
        Ok(())
    }

    fn change<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        self.0.write(permit, action).with("LoadBalancerId", id)
    }

    fn tagging<'a>(&'a self, permit: &'a Permit, action: WriteAction, id: &str) -> Request<'a> {
        self.0.write(permit, action).with("ResourceType", "instance").with("ResourceId.1", id)
    }

    /// One tag only: several would be combined with "or".
    fn tagged(&self, key: &str, value: &str) -> Request<'_> {
        self.0.read(DESCRIBE_LOAD_BALANCERS).with("Tags", json!([{"TagKey": key, "TagValue": value}]))
    }
}

/// A server that ignores the filter must not lend us foreign instances; one that omits tags proves nothing.
fn having(mut found: Vec<ObservedInstance>, key: &str, value: &str) -> Vec<ObservedInstance> {
    found.retain(|instance| instance.tags.is_empty() || instance.tags.get(key).is_some_and(|is| is == value));
    unique(found, |instance| &instance.id)
}

fn instance(body: Fields<'_>) -> Result<ObservedInstance, Mismatch> {
    let value = |field: InstanceField| {
        let name = field.parameter();
        let text = body.text(name)?;
        Ok(match field {
            InstanceField::InternetChargeType => internet_charge_type(body.text("InternetChargeTypeAlias")?, text),
            InstanceField::Bandwidth => body.number(name)?.to_string(),
            InstanceField::DeleteProtection => on_off(text.eq_ignore_ascii_case("on")).to_owned(),
            _ => text,
        })
    };
    // They come in their order: each is appended.
    let mut fields = InstanceFields::with_capacity(InstanceField::ALL.len());
    for field in InstanceField::ALL {
        drop(fields.try_append(*field, value(*field)?));
    }
    Ok(ObservedInstance {
        id: body.text("LoadBalancerId")?,
        fields,
        vpc_id: body.text("VpcId")?,
        vswitch_id: body.text("VSwitchId")?,
        pending_charge: match body.text("HasReservedInfo")?.as_str() {
            "" => PendingCharge::Unread,
            "true" => PendingCharge::From(body.text("ReservedInfoActiveTime")?),
            _ => PendingCharge::None,
        },
        status: body.text("LoadBalancerStatus")?,
        tags: body.tags()?,
    })
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
