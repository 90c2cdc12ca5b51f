//! Tags of network load balancers, listeners, server groups.

use std::collections::BTreeMap;
use std::convert::identity;

use serde_json::{Value, json};

use super::super::account::Account;
use super::super::actions::{Action, Context};
use super::super::ecs::has_tags;
use super::super::protocol::{ApiError, Params};
use super::{illegal, listed, not_found, read, some, with_token, word, write};

const KINDS: &[&str] = &["loadbalancer", "servergroup", "listener", "securitypolicy"];
/// Tags of an object, and of a call.
const MOST: usize = 20;

pub(super) fn actions() -> Vec<Action> {
    vec![
        write("TagResources", "ResourceType! ResourceId.N! Tag.N.Key! Tag.N.Value", |cx| with_token(cx, tag))
            .documented("parameters, 50 objects, 20 tags")
            .assumed(
                "`IllegalParam.Tag` beyond the limit; listeners can be tagged; all objects or none; no \
                 job",
            ),
        write("UntagResources", "ResourceType! ResourceId.N! TagKey.N All", |cx| with_token(cx, untag))
            .documented("parameters")
            .assumed("neither keys nor `All` is refused; unknown keys are no error"),
        read("ListTagResources", "ResourceType! ResourceId.N Tag.N.Key Tag.N.Value MaxResults NextToken", list)
            .documented("parameters, answer, 50 on a page")
            .assumed("no listeners; an unknown object has no tags")
            .listing("/TagResources"),
    ]
}

/// As lists show them.
pub(super) fn short(tags: &BTreeMap<String, String>) -> Value {
    tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}

/// The tags that a call brings, checked.
pub(super) fn given(params: &Params) -> Result<BTreeMap<String, String>, ApiError> {
    let mut tags = BTreeMap::new();
    for (key, value) in params.tags() {
        let value = value.unwrap_or_default();
        let has_url = |text: &str| text.contains("http://") || text.contains("https://");
        let is_reserved = key.starts_with("aliyun") || key.starts_with("acs:");
        if key.chars().count() > 64 || value.chars().count() > 128 || is_reserved || has_url(key) || has_url(value) {
            return Err(illegal("Tag"));
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    if tags.len() > MOST { Err(illegal("Tag")) } else { Ok(tags) }
}

fn tags_of<'w>(account: &'w mut Account, kind: &str, id: &str) -> Option<&'w mut BTreeMap<String, String>> {
    match kind {
        "loadbalancer" => Some(&mut account.nlb.balancers.get_mut(id)?.tags),
        "servergroup" => Some(&mut account.nlb.groups.get_mut(id)?.tags),
        "listener" => {
            let owner = super::listeners::owner(account, id).ok()?;
            Some(&mut account.nlb.balancers.get_mut(&owner)?.listeners.get_mut(id)?.tags)
        }
        _ => None,
    }
}

/// Changes the tags of every object that a call names; all of them must exist.
fn change(cx: &mut Context<'_>, change: impl Fn(&mut BTreeMap<String, String>)) -> Result<Value, ApiError> {
    let kind = word(cx.params, "ResourceType", KINDS)?.unwrap_or_default();
    let ids: Vec<String> = some(cx.params, "ResourceId", 50)?.into_iter().map(str::to_owned).collect();
    let mut results = Vec::new();
    for id in &ids {
        let mut tags = tags_of(cx.account, kind, id).ok_or_else(|| not_found(kind))?.clone();
        change(&mut tags);
        if tags.len() > MOST {
            return Err(illegal("Tag"));
        }
        results.push(tags);
    }
    for (id, tags) in ids.iter().zip(results) {
        if let Some(held) = tags_of(cx.account, kind, id) {
            *held = tags;
        }
    }
    Ok(json!({}))
}

fn tag(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let given = given(cx.params)?;
    change(cx, |tags| tags.extend(given.clone()))
}

fn untag(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let keys: Vec<String> = some(cx.params, "TagKey", MOST)?.into_iter().map(str::to_owned).collect();
    let all = cx.params.get("All") == Some("true");
    if keys.is_empty() && !all {
        return Err(super::missing("TagKey"));
    }
    change(cx, |tags| tags.retain(|key, _| !(keys.contains(key) || all && keys.is_empty())))
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let kind = word(cx.params, "ResourceType", KINDS)?.unwrap_or_default();
    let (ids, wanted) = (some(cx.params, "ResourceId", 50)?, cx.params.tags());
    let balancers = cx.account.nlb.balancers.iter().map(|(id, it)| ("loadbalancer", id, &it.tags));
    let groups = cx.account.nlb.groups.iter().map(|(id, it)| ("servergroup", id, &it.tags));
    let mut found = Vec::new();
    for (_, id, tags) in balancers.chain(groups).filter(|(is, ..)| *is == kind) {
        if (ids.is_empty() || ids.contains(&id.as_str())) && has_tags(tags, &wanted) {
            let one = |(key, value)| json!({"ResourceId": id, "ResourceType": kind, "TagKey": key, "TagValue": value});
            found.extend(tags.iter().map(one));
        }
    }
    listed(cx, "TagResources", found, (50, 50), identity)
}
