//! Security groups and their rules for incoming traffic.

use std::collections::{BTreeMap, BTreeSet};

use super::Ecs;
use crate::alibaba::actions::{
    AUTHORIZE_SECURITY_GROUP, CREATE_SECURITY_GROUP, DELETE_SECURITY_GROUP, DESCRIBE_SECURITY_GROUP,
    DESCRIBE_SECURITY_GROUPS, REVOKE_SECURITY_GROUP,
};
use crate::alibaba::answer::{Fields, Mismatch, block};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::unique;
use crate::fence::Permit;
use crate::plan::nlb::model::{CreateSecurityGroup, SecurityRule, SecurityRules};
use crate::plan::nlb::observed::{ObservedRule, ObservedSecurityGroup};

/// Security groups in one page.
const PAGE: u32 = 100;

/// Rules in one page.
const RULES_PAGE: u32 = 1000;

/// All ports.
const EVERY_PORT: &str = "-1/-1";

impl Ecs {
    /// Security groups that carry the tag, every page, without their rules.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_security_groups(&self, key: &str, value: &str) -> Result<Vec<ObservedSecurityGroup>, Fault> {
        let request = self.0.read(DESCRIBE_SECURITY_GROUPS).with("Tag.1.Key", key).with("Tag.1.Value", value);
        let mut found = request.with("MaxResults", PAGE).by_token("SecurityGroups", group).await?;
        found.retain(|group| group.tags.get(key).is_some_and(|is| is == value));
        Ok(unique(found, |group| &group.id))
    }

    /// Rules of a security group for incoming traffic by id, every page: those about blocks of addresses.
    ///
    /// # Errors
    /// As any call.
    pub async fn describe_security_rules(&self, id: &str) -> Result<BTreeMap<String, ObservedRule>, Fault> {
        let request = self.0.read(DESCRIBE_SECURITY_GROUP).with("SecurityGroupId", id).with("Direction", "ingress");
        let found = request.with("MaxResults", RULES_PAGE).by_token("Permissions", rule).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Creates a security group without rules; gives its id.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_security_group(
        &self,
        permit: &Permit,
        vpc_id: &str,
        wanted: &CreateSecurityGroup,
    ) -> Result<String, Fault> {
        self.0
            .write(permit, CREATE_SECURITY_GROUP)
            .with("SecurityGroupName", &wanted.name)
            .with("Description", &wanted.description)
            .with("SecurityGroupType", "enterprise")
            .with("VpcId", vpc_id)
            .maybe("ResourceGroupId", wanted.resource_group_id.as_ref())
            .tags(&wanted.tags)
            .create("SecurityGroupId")
            .await
    }

    /// Adds rules, at most 100, all with this description; those that are there already stay as they are.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_security_rules(
        &self,
        permit: &Permit,
        id: &str,
        rules: &SecurityRules,
        description: &str,
    ) -> Result<(), Fault> {
        let mut request = self.0.write(permit, AUTHORIZE_SECURITY_GROUP).with("SecurityGroupId", id);
        for (index, rule) in rules.iter().enumerate() {
            for (name, value) in parameters(rule) {
                request = request.with(format!("Permissions.{}.{name}", index + 1), value);
            }
            request = request.with(format!("Permissions.{}.Description", index + 1), description);
        }
        request.done().await
    }

    /// Removes rules by their ids, at most 100.
    ///
    /// # Errors
    /// As any write; [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) if one of them is not there.
    pub async fn remove_security_rules(
        &self,
        permit: &Permit,
        id: &str,
        rule_ids: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        let request = self.0.write(permit, REVOKE_SECURITY_GROUP).with("SecurityGroupId", id);
        request.list("SecurityGroupRuleId", rule_ids).done().await
    }

    /// Deletes a security group.
    ///
    /// # Errors
    /// As any write; [`FaultKind::InUse`](crate::alibaba::FaultKind::InUse) while anything is in it, which for a load
    /// balancer that is gone lasts some minutes more.
    pub async fn delete_security_group(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_SECURITY_GROUP).with("SecurityGroupId", id).done().await
    }
}

fn parameters(rule: &SecurityRule) -> [(&'static str, String); 6] {
    let source = if rule.source.network().is_ipv4() { "SourceCidrIp" } else { "Ipv6SourceCidrIp" };
    [
        ("IpProtocol", "ALL".into()),
        ("PortRange", EVERY_PORT.into()),
        (source, rule.source.to_string()),
        ("Policy", if rule.drops { "drop" } else { "accept" }.into()),
        ("Priority", rule.priority().to_string()),
        ("NicType", "intranet".into()),
    ]
}

fn group(body: Fields<'_>) -> Result<ObservedSecurityGroup, Mismatch> {
    let id = body.id("SecurityGroupId")?;
    let (name, vpc_id) = (body.text("SecurityGroupName")?, body.text("VpcId")?);
    Ok(ObservedSecurityGroup { id, name, vpc_id, tags: body.tags()?, rules: None })
}

/// `None` for rules about anything but one block of addresses, and for those about outgoing traffic.
fn rule(body: Fields<'_>) -> Result<Option<(String, ObservedRule)>, Mismatch> {
    let (v4, v6) = (body.text("SourceCidrIp")?, body.text("Ipv6SourceCidrIp")?);
    let source = if v4.is_empty() { v6 } else { v4 };
    let is_egress = body.text("Direction")?.eq_ignore_ascii_case("egress");
    let Some(source) = block(&source).filter(|_| !is_egress) else { return Ok(None) };
    let drops = body.text("Policy")?.eq_ignore_ascii_case("drop");
    let rule = SecurityRule { drops, source };
    let is_plain = body.text("IpProtocol")?.eq_ignore_ascii_case("all")
        && matches!(body.text("PortRange")?.as_str(), EVERY_PORT | "")
        && body.text("Priority")? == rule.priority().to_string();
    let observed = ObservedRule { rule, is_plain, description: body.text("Description")? };
    Ok(Some((body.text("SecurityGroupRuleId")?, observed)))
}
