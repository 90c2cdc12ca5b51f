//! Tags of load balancers, groups and listeners.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::account::{Account, Protocol};
use super::super::actions::{Action, Context, Product, page_by_token};
use super::super::ecs::has_tags;
use super::super::protocol::{ApiError, Params};

const KINDS: &[&str] = &["instance", "listener", "vservergroup"];
/// Tags per object, and tags and objects per call.
const MOST: usize = 20;

pub(super) fn actions() -> Vec<Action> {
    vec![
        Action::write(
            Product::Slb,
            "TagResources",
            "ResourceType! ResourceId.N! Tag.N.Key! Tag.N.Value",
            tag_resources,
        )
        .documented("parameters, 20 tags, 20 objects, `ResourceNotExist`")
        .assumed(
            "`SizeLimitExceeded.Tag`, `SizeLimitExceeded.ResourceId`, `InvalidParameter.TagKey`; all \
             objects or none",
        ),
        Action::write(Product::Slb, "UntagResources", "ResourceType! ResourceId.N! TagKey.N All", untag_resources)
            .documented("parameters, `All` without keys removes every tag")
            .assumed("neither keys nor `All` is refused; unknown keys are no error"),
        Action::read(
            Product::Slb,
            "ListTagResources",
            "ResourceType! ResourceId.N Tag.N.Key Tag.N.Value NextToken",
            list_tag_resources,
        )
        .documented("parameters, answer")
        .assumed("50 on a page; an unknown object has no tags; order")
        .listing("/TagResources/TagResource"),
    ]
}

/// The tags that a call brings, checked.
pub(super) fn given(params: &Params) -> Result<BTreeMap<String, String>, ApiError> {
    let mut tags = BTreeMap::new();
    for (key, value) in params.tags() {
        let value = value.unwrap_or_default();
        check(key, 64, "Key")?;
        check(value, 128, "Value")?;
        if tags.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(ApiError::new(400, "Duplicate.TagKey", format!("The tag key {key} occurs twice.")));
        }
    }
    if tags.len() > MOST {
        return Err(too_many());
    }
    Ok(tags)
}

fn check(text: &str, longest: usize, what: &str) -> Result<(), ApiError> {
    let is_reserved = text.starts_with("aliyun") || text.starts_with("acs:");
    let has_url = text.contains("http://") || text.contains("https://");
    if text.chars().count() > longest || (what == "Key" && is_reserved) || has_url {
        return Err(ApiError::new(
            400,
            &format!("InvalidParameter.Tag{what}"),
            format!("The tag {what} {text} is not valid."),
        ));
    }
    Ok(())
}

fn too_many() -> ApiError {
    ApiError::new(400, "SizeLimitExceeded.Tag", "The number of tags exceeds the limit of 20.")
}

/// The tags of an object; `None` if there is no such object.
fn tags_of<'w>(account: &'w mut Account, kind: &str, id: &str) -> Option<&'w mut BTreeMap<String, String>> {
    match kind {
        "instance" => Some(&mut account.load_balancers.get_mut(id)?.tags),
        "vservergroup" => {
            let owner = account.owner_of_group(id)?.clone();
            Some(&mut account.load_balancers.get_mut(&owner)?.groups.get_mut(id)?.tags)
        }
        _ => {
            let mut parts = id.rsplitn(3, '_');
            let port = parts.next()?.parse().ok()?;
            let protocol = Protocol::parse(parts.next()?)?;
            let lb = account.load_balancers.get_mut(parts.next()?)?;
            Some(&mut lb.listeners.get_mut(&(port, protocol))?.tags)
        }
    }
}

/// Kind and ids of a call; every object must exist.
fn targets(cx: &mut Context<'_>) -> Result<(String, Vec<String>), ApiError> {
    let kind = cx.params.one_of("ResourceType", KINDS)?.unwrap_or_default().to_owned();
    let ids: Vec<String> = cx.params.list("ResourceId").into_iter().map(str::to_owned).collect();
    if ids.len() > MOST {
        let message = "At most 20 resources are allowed in one call.";
        return Err(ApiError::new(400, "SizeLimitExceeded.ResourceId", message));
    }
    for id in &ids {
        if tags_of(cx.account, &kind, id).is_none() {
            return Err(ApiError::new(400, "ResourceNotExist", format!("The specified resource {id} does not exist.")));
        }
    }
    Ok((kind, ids))
}

fn tag_resources(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let given = given(cx.params)?;
    let (kind, ids) = targets(cx)?;
    let mut results = Vec::new();
    for id in &ids {
        let mut tags = tags_of(cx.account, &kind, id).cloned().unwrap_or_default();
        tags.extend(given.clone());
        if tags.len() > MOST {
            return Err(too_many());
        }
        results.push(tags);
    }
    for (id, tags) in ids.iter().zip(results) {
        if let Some(held) = tags_of(cx.account, &kind, id) {
            *held = tags;
        }
    }
    Ok(json!({}))
}

fn untag_resources(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let keys: Vec<String> = cx.params.list("TagKey").into_iter().map(str::to_owned).collect();
    if keys.len() > MOST {
        return Err(too_many());
    }
    let all = cx.params.get("All") == Some("true");
    if keys.is_empty() && !all {
        return Err(ApiError::missing("TagKey.1"));
    }
    let (kind, ids) = targets(cx)?;
    for id in &ids {
        if let Some(tags) = tags_of(cx.account, &kind, id) {
            tags.retain(|key, _| !(keys.contains(key) || (all && keys.is_empty())));
        }
    }
    Ok(json!({}))
}

fn list_tag_resources(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let kind = cx.params.one_of("ResourceType", KINDS)?.unwrap_or_default();
    let ids = cx.params.list("ResourceId");
    let wanted = cx.params.tags();
    if ids.is_empty() && wanted.is_empty() {
        return Err(ApiError::missing("ResourceId.1"));
    }
    let mut found = Vec::new();
    for (id, tags) in all_of(cx.account, kind) {
        if (ids.is_empty() || ids.contains(&id.as_str())) && has_tags(tags, &wanted) {
            found.extend(
                tags.iter().map(
                    |(key, value)| json!({"ResourceId": id, "ResourceType": kind, "TagKey": key, "TagValue": value}),
                ),
            );
        }
    }
    let (items, next) = page_by_token(cx.params, found, 50)?;
    Ok(json!({"TagResources": {"TagResource": items}, "NextToken": next.unwrap_or_default()}))
}

fn all_of<'w>(account: &'w Account, kind: &str) -> Vec<(String, &'w BTreeMap<String, String>)> {
    let mut all = Vec::new();
    for (id, lb) in account.load_balancers.iter() {
        match kind {
            "instance" => all.push((id.clone(), &lb.tags)),
            "vservergroup" => all.extend(lb.groups.iter().map(|(id, it)| (id.clone(), &it.tags))),
            _ => all.extend(
                lb.listeners
                    .iter()
                    .map(|((port, protocol), it)| (format!("{id}_{}_{port}", protocol.as_str()), &it.tags)),
            ),
        }
    }
    all
}
