//! Security groups and their rules for incoming traffic.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::account::{Account, SecurityGroup, SecurityRule};
use super::super::actions::{Action, Context, Product, once, page_by_token};
use super::super::protocol::{ApiError, Params};
use super::{answer, has_tags, json_list, tag_list};

/// What tells a rule from another, beside policy, protocol and port.
const SOURCES: &[&str] = &["SourceCidrIp", "Ipv6SourceCidrIp", "SourceGroupId", "SourcePrefixListId"];
/// Rules in one call.
const MOST: usize = 100;
const RULE: &str = "IpProtocol PortRange SourceCidrIp Ipv6SourceCidrIp SourceGroupId SourcePrefixListId Policy Priority \
                    NicType Description";

pub(super) fn actions() -> Vec<Action> {
    let numbered: String = RULE.split_whitespace().map(|it| format!("Permissions.N.{it} ")).collect();
    vec![
        Action::read(
            Product::Ecs,
            "DescribeSecurityGroups",
            "Tag.N.Key Tag.N.Value VpcId SecurityGroupIds SecurityGroupName SecurityGroupType MaxResults NextToken",
            describe_all,
        )
        .documented("parameters, answer")
        .assumed(
            "tags appear as `TagKey`, not as `Key`, which the official controller reads; all tags \
             must match",
        )
        .listing("/SecurityGroups/SecurityGroup"),
        Action::read(
            Product::Ecs,
            "DescribeSecurityGroupAttribute",
            "SecurityGroupId! Direction NicType MaxResults NextToken",
            describe_one,
        )
        .documented("parameters, answer, 500 rules on a page")
        .assumed("no rules for outgoing traffic; order by id of the rule")
        .listing("/Permissions/Permission"),
        Action::write(
            Product::Ecs,
            "CreateSecurityGroup",
            "VpcId SecurityGroupName Description SecurityGroupType ResourceGroupId Tag.N.Key Tag.N.Value ClientToken",
            |cx| once(cx, "IdempotentParameterMismatch", create),
        )
        .documented("parameters, lengths, `InvalidVpcId.NotFound`, `QuotaExceed.SecurityGroup`")
        .assumed(
            "`InvalidSecurityGroupName.Malformed`; two groups may have one name; a new group has no \
             rules",
        ),
        Action::write(
            Product::Ecs,
            "AuthorizeSecurityGroup",
            &format!("SecurityGroupId! Permissions.N.IpProtocol! Permissions.N.PortRange! {numbered}ClientToken"),
            authorize,
        )
        .documented("parameters, a known rule is no error, `InvalidParam.DuplicatePermissions`")
        .observed("`AuthorizationLimitExceed` until rules are revoked", "official controller v2.14.0")
        .assumed("`InvalidParam.SourceIp`, `InvalidPolicy.Malformed`; all rules of a call or none"),
        Action::write(
            Product::Ecs,
            "ModifySecurityGroupRule",
            &format!("SecurityGroupId! SecurityGroupRuleId! {RULE} ClientToken"),
            modify,
        )
        .documented(
            "parameters, `InvalidSecurityGroupRuleId.NotFound`, \
             `InvalidOperation.ModifySgRuleEntityType`",
        )
        .assumed("a rule may become equal to another one"),
        Action::write(
            Product::Ecs,
            "RevokeSecurityGroup",
            &format!("SecurityGroupId! SecurityGroupRuleId.N {numbered}ClientToken"),
            revoke,
        )
        .documented(
            "parameters; by id `InvalidParam.SecurityGroupRuleId`, by contents no match is no \
             error",
        )
        .assumed("one unknown id refuses the whole call"),
        Action::write(Product::Ecs, "DeleteSecurityGroup", "SecurityGroupId!", delete)
            .documented("`InvalidSecurityGroupId.NotFound`, `DependencyViolation` while it is used")
            .assumed("how long a load balancer holds a group that it left; instances hold no group"),
    ]
}

fn group<'w>(account: &'w mut Account, params: &Params) -> Result<&'w mut SecurityGroup, ApiError> {
    account.security_groups.get_mut(params.need("SecurityGroupId")?).ok_or_else(|| {
        ApiError::new(404, "InvalidSecurityGroupId.NotFound", "The specified SecurityGroupId does not exist.")
    })
}

fn describe_all(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let ids = json_list(cx, "SecurityGroupIds")?;
    let tags = cx.params.tags();
    let is_text = |name: &str, value: &str| cx.params.get(name).is_none_or(|it| it == value);
    let matches = |(id, it): &(&String, &SecurityGroup)| {
        ids.as_ref().is_none_or(|ids| ids.contains(id))
            && is_text("VpcId", &it.vpc)
            && is_text("SecurityGroupName", &it.name)
            && is_text("SecurityGroupType", &it.kind)
            && has_tags(&it.tags, &tags)
    };
    let found = cx.account.security_groups.iter().filter(matches).map(|(id, it)| {
        json!({
            "SecurityGroupId": id,
            "SecurityGroupName": it.name,
            "Description": it.description,
            "SecurityGroupType": it.kind,
            "VpcId": it.vpc,
            "ResourceGroupId": it.resource_group,
            "RuleCount": it.rules.len(),
            "ServiceManaged": false,
            "Tags": {"Tag": tag_list(&it.tags)},
        })
    });
    let found = found.collect();
    answer(cx, found, "SecurityGroups", "SecurityGroup", 100)
}

fn describe_one(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let it = group(cx.account, cx.params)?;
    let rules = it.rules.iter().map(|(id, rule)| {
        let mut body = json!({
            "SecurityGroupRuleId": id,
            "Direction": "ingress",
            "Policy": rule.policy,
            "Priority": rule.priority,
            "IpProtocol": rule.protocol,
            "PortRange": rule.port_range,
            "NicType": "intranet",
            "Description": rule.description,
        });
        for name in SOURCES {
            body[*name] = rule.fields.get(*name).map(String::as_str).unwrap_or_default().into();
        }
        body
    });
    let rules = rules.collect();
    let head = json!({"SecurityGroupId": cx.params.get("SecurityGroupId"), "SecurityGroupName": it.name,
        "VpcId": it.vpc, "Description": it.description});
    let size = cx.params.number("MaxResults")?.unwrap_or(500).clamp(10, 1000);
    let (items, next) = page_by_token(cx.params, rules, usize::try_from(size).unwrap_or(10))?;
    let mut body = head;
    body["Permissions"] = json!({"Permission": items});
    body["NextToken"] = next.unwrap_or_default().into();
    Ok(body)
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let vpc = params.need("VpcId")?;
    if !cx.account.vpcs.contains_key(vpc) {
        return Err(ApiError::new(404, "InvalidVpcId.NotFound", "The specified VpcId does not exist."));
    }
    let kind = params.one_of("SecurityGroupType", &["normal", "enterprise"])?.unwrap_or("normal");
    let length = |name: &str| params.get(name).map(|it| it.chars().count());
    if length("SecurityGroupName").is_some_and(|it| !(2..=128).contains(&it)) {
        return Err(ApiError::new(400, "InvalidSecurityGroupName.Malformed", "The name is not valid."));
    }
    if length("Description").is_some_and(|it| !(2..=256).contains(&it)) {
        return Err(ApiError::new(400, "InvalidSecurityGroupDiscription.Malformed", "The description is not valid."));
    }
    let text = |name: &str| params.get(name).unwrap_or_default().to_owned();
    let tags = params.tags().into_iter().map(|(key, value)| (key.to_owned(), value.unwrap_or_default().to_owned()));
    let made = SecurityGroup {
        name: text("SecurityGroupName"),
        kind: kind.into(),
        vpc: vpc.into(),
        description: text("Description"),
        resource_group: text("ResourceGroupId"),
        tags: tags.collect(),
        ..SecurityGroup::default()
    };
    if cx.account.security_groups.len() >= cx.account.limits.security_groups {
        let message = "The maximum number of security groups is reached.";
        return Err(ApiError::new(403, "QuotaExceed.SecurityGroup", message));
    }
    let id = cx.account.fresh("sg-bp1", 17);
    cx.account.security_groups.insert(id.clone(), made);
    Ok(json!({"SecurityGroupId": id}))
}

/// The rule that a call gives under this prefix.
fn rule(params: &Params, prefix: &str) -> Result<SecurityRule, ApiError> {
    let text = |name: &str| params.get(&format!("{prefix}{name}")).unwrap_or_default().to_owned();
    let priority = params.number_in(&format!("{prefix}Priority"), 1, 100)?.unwrap_or(1);
    let policy = match text("Policy").to_ascii_lowercase().as_str() {
        "" | "accept" => "Accept",
        "drop" => "Drop",
        _ => return Err(ApiError::new(400, "InvalidPolicy.Malformed", "The specified Policy is not valid.")),
    };
    let sources = SOURCES.iter().filter(|name| !text(name).is_empty());
    let mut fields: BTreeMap<String, String> = sources.map(|name| ((*name).to_owned(), text(name))).collect();
    let is_net = |name: &str, is_v6: bool| match fields.get(name).map(|it| it.parse::<ipnet::IpNet>()) {
        None => true,
        Some(Ok(net)) => net.network().is_ipv6() == is_v6,
        Some(Err(_)) => fields.get(name).is_some_and(|it| it.parse::<std::net::IpAddr>().is_ok()),
    };
    for (name, is_v6) in [("SourceCidrIp", false), ("Ipv6SourceCidrIp", true)] {
        if !is_net(name, is_v6) {
            let message = format!("The specified {name} is not valid.");
            return Err(ApiError::new(400, &format!("InvalidParam.{name}"), message));
        }
    }
    fields.insert("NicType".into(), "intranet".into());
    Ok(SecurityRule {
        policy: policy.into(),
        priority: priority.to_string(),
        protocol: text("IpProtocol").to_ascii_uppercase(),
        port_range: text("PortRange"),
        fields,
        description: text("Description"),
    })
}

fn given(params: &Params) -> Result<Vec<SecurityRule>, ApiError> {
    let indexes = params.indexes("Permissions");
    if indexes.len() > MOST {
        return Err(ApiError::invalid("Permissions", "at most 100 rules are allowed"));
    }
    let mut all: Vec<SecurityRule> = Vec::new();
    for index in indexes {
        let rule = rule(params, &format!("Permissions.{index}."))?;
        if all.iter().any(|it| it.is_same(&rule)) {
            let message = "The specified permissions are duplicated.";
            return Err(ApiError::new(400, "InvalidParam.DuplicatePermissions", message));
        }
        all.push(rule);
    }
    Ok(all)
}

fn authorize(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let rules = given(cx.params)?;
    if rules.iter().any(|it| it.fields.len() != 2) {
        let message = "The specified rule needs exactly one source.";
        return Err(ApiError::new(400, "InvalidParam.SourceIp", message));
    }
    let most = cx.account.limits.security_rules;
    let held = group(cx.account, cx.params)?.rules.clone();
    let new: Vec<_> = rules.into_iter().filter(|rule| !held.values().any(|it| it.is_same(rule))).collect();
    if held.len() + new.len() > most {
        let message = "The limit of rules of the security group is reached.";
        return Err(ApiError::new(403, "AuthorizationLimitExceed", message));
    }
    for rule in new {
        let id = cx.account.fresh("sgr-bp1", 17);
        group(cx.account, cx.params)?.rules.insert(id, rule);
    }
    Ok(json!({}))
}

fn no_rule() -> ApiError {
    ApiError::new(400, "InvalidParam.SecurityGroupRuleId", "The specified SecurityGroupRuleId does not exist.")
}

fn modify(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let params = cx.params;
    let id = params.need("SecurityGroupRuleId")?;
    let given = rule(params, "")?;
    let it = group(cx.account, params)?;
    let held = it.rules.get_mut(id).ok_or_else(|| {
        ApiError::new(404, "InvalidSecurityGroupRuleId.NotFound", "The specified rule does not exist.")
    })?;
    let kind = |rule: &SecurityRule| SOURCES.iter().position(|name| rule.fields.contains_key(*name));
    if kind(&given).is_some() && kind(&given) != kind(held) {
        let message = "The kind of source of a rule cannot be changed.";
        return Err(ApiError::new(400, "InvalidOperation.ModifySgRuleEntityType", message));
    }
    let is_given = |name: &str| params.get(name).is_some();
    for (name, from, to) in [
        ("Policy", &given.policy, &mut held.policy),
        ("Priority", &given.priority, &mut held.priority),
        ("IpProtocol", &given.protocol, &mut held.protocol),
        ("PortRange", &given.port_range, &mut held.port_range),
        ("Description", &given.description, &mut held.description),
    ] {
        if is_given(name) {
            to.clone_from(from);
        }
    }
    held.fields.extend(given.fields);
    Ok(json!({}))
}

fn revoke(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let ids = cx.params.list("SecurityGroupRuleId");
    let rules = given(cx.params)?;
    if ids.is_empty() == rules.is_empty() {
        return Err(ApiError::missing("SecurityGroupRuleId.1"));
    }
    let it = group(cx.account, cx.params)?;
    if ids.iter().any(|id| !it.rules.contains_key(*id)) {
        return Err(no_rule());
    }
    it.rules.retain(|id, rule| !ids.contains(&id.as_str()) && !rules.iter().any(|gone| gone.is_same(rule)));
    Ok(json!({}))
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("SecurityGroupId")?;
    let held = group(cx.account, cx.params)?.held_until.is_some_and(|it| it > Instant::now());
    let member = |it: &String| it == id;
    if held || cx.account.nlb.balancers.values().any(|it| it.security_groups.iter().any(member)) {
        let message = "There is still instance(s) in the specified security group.";
        return Err(ApiError::new(403, "DependencyViolation", message));
    }
    cx.account.security_groups.remove(id);
    Ok(json!({}))
}
