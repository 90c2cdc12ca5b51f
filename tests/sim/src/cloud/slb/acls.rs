//! Access control lists.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::account::{Account, Acl};
use super::super::actions::{Action, Context, Product, page};
use super::super::ecs::{has_tags, tag_list};
use super::super::protocol::ApiError;
use super::tags;

/// Lists in a region, entries in a list, entries in a call and on a page.
const MOST_LISTS: usize = 50;
const MOST_ENTRIES: usize = 300;
const MOST_AT_ONCE: usize = 50;

pub(super) fn actions() -> Vec<Action> {
    vec![
        Action::write(
            Product::Slb,
            "CreateAccessControlList",
            "AclName! AddressIPVersion ResourceGroupId Tag.N.Key Tag.N.Value",
            create,
        )
        .documented("parameters, answer, `AclNumberOverLimit`")
        .assumed("`InvalidParameter.AclName` for a name in use; 50 lists"),
        Action::write(Product::Slb, "DeleteAccessControlList", "AclId!", delete)
            .documented("parameters, `AclNotExist`")
            .assumed("`OperationDenied.AclInUse` while a listener uses it"),
        Action::write(Product::Slb, "AddAccessControlListEntry", "AclId! AclEntrys!", add)
            .documented("parameters, `AclNotExist`, `AclEntryExceedLimit`, `InvalidParam.AclEntryExists`")
            .assumed("a known entry refuses the call; 50 in a call, 300 in a list; at once"),
        Action::write(Product::Slb, "RemoveAccessControlListEntry", "AclId! AclEntrys!", remove)
            .documented("parameters, `AclNotExist`")
            .assumed("an unknown entry is no error, not `AclEntryEmpty`; at once"),
        Action::read(
            Product::Slb,
            "DescribeAccessControlLists",
            "AclName AddressIPVersion ResourceGroupId Tag.N.Key Tag.N.Value PageNumber PageSize",
            list,
        )
        .documented("parameters, answer, 10 on a page, 50 at most")
        .assumed("`AclName` finds parts of names")
        .listing("/Acls/Acl"),
        Action::read(
            Product::Slb,
            "DescribeAccessControlListAttribute",
            "AclId! AclEntryComment Page PageSize",
            describe,
        )
        .documented("parameters, answer, `AclNotExist`, 10 entries on a page, 50 at most")
        .assumed("entries in order of their text; every page has all listeners"),
    ]
}

fn unknown(id: &str) -> ApiError {
    ApiError::new(400, "AclNotExist", format!("The specified AclId {id} does not exist."))
}

fn create(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let name = cx.params.need("AclName")?;
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || ".-/_".contains(it);
    if name.chars().count() > 80 || !name.chars().all(is_allowed) {
        return Err(ApiError::invalid("AclName", "1 to 80 letters, digits, . - / _ are allowed"));
    }
    if cx.account.acls.values().any(|it| it.name == name) {
        return Err(ApiError::new(400, "InvalidParameter.AclName", "The specified AclName is in use already."));
    }
    if cx.account.acls.len() >= MOST_LISTS {
        return Err(ApiError::new(400, "AclNumberOverLimit", "The number of access control lists exceeds the limit."));
    }
    let ip_version = cx.params.one_of("AddressIPVersion", &["ipv4", "ipv6"])?.unwrap_or("ipv4").to_owned();
    let acl = Acl { name: name.to_owned(), entries: Default::default(), ip_version, tags: tags::given(cx.params)? };
    let id = cx.account.fresh("acl-bp1", 17);
    cx.account.acls.insert(id.clone(), acl);
    Ok(json!({"AclId": id}))
}

/// Listeners that use a list: load balancer, port, protocol, how.
fn users(account: &Account, id: &str) -> Vec<Value> {
    let listeners =
        account.load_balancers.iter().flat_map(|(lb, it)| it.listeners.iter().map(move |found| (lb, found)));
    listeners
        .filter(|(_, (_, it))| it.acl_ids.iter().any(|used| used == id))
        .map(|(lb, ((port, protocol), it))| {
            json!({"LoadBalancerId": lb, "ListenerPort": port, "Protocol": protocol.as_str(), "AclType": it.acl_type})
        })
        .collect()
}

fn delete(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("AclId")?;
    if !cx.account.acls.contains_key(id) {
        return Err(unknown(id));
    }
    if !users(cx.account, id).is_empty() {
        return Err(ApiError::new(400, "OperationDenied.AclInUse", "The access control list is used by listeners."));
    }
    cx.account.acls.remove(id);
    Ok(json!({}))
}

#[derive(Deserialize)]
struct Entry {
    entry: String,
    #[serde(default)]
    comment: String,
}

fn entries(cx: &Context<'_>) -> Result<Vec<Entry>, ApiError> {
    let text = cx.params.need("AclEntrys")?;
    let entries: Vec<Entry> =
        serde_json::from_str(text).map_err(|_| ApiError::invalid("AclEntrys", "a JSON list of entries is expected"))?;
    if entries.is_empty() || entries.len() > MOST_AT_ONCE {
        return Err(ApiError::invalid("AclEntrys", "1 to 50 entries are allowed in one call"));
    }
    for it in &entries {
        let (address, length) = it.entry.split_once('/').unwrap_or((&it.entry, "32"));
        let is_network =
            address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok_and(|it| (1..=128).contains(&it));
        if !is_network {
            return Err(ApiError::invalid("AclEntrys", "addresses and blocks are expected"));
        }
    }
    Ok(entries)
}

fn add(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("AclId")?;
    let given = entries(cx)?;
    let acl = cx.account.acls.get_mut(id).ok_or_else(|| unknown(id))?;
    if given.iter().any(|it| acl.entries.contains_key(&it.entry)) {
        let message = "The specified aclEntry already exists in the acl.";
        return Err(ApiError::new(400, "InvalidParam.AclEntryExists", message));
    }
    if acl.entries.len() + given.len() > MOST_ENTRIES {
        return Err(ApiError::new(400, "AclEntryExceedLimit", "The number of entries exceeds the limit."));
    }
    acl.entries.extend(given.into_iter().map(|it| (it.entry, it.comment)));
    Ok(json!({}))
}

fn remove(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("AclId")?;
    let given = entries(cx)?;
    let acl = cx.account.acls.get_mut(id).ok_or_else(|| unknown(id))?;
    acl.entries.retain(|entry, _| given.iter().all(|it| it.entry != *entry));
    Ok(json!({}))
}

fn list(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let wanted = cx.params.tags();
    let found: Vec<Value> = cx
        .account
        .acls
        .iter()
        .filter(|(_, it)| cx.params.get("AclName").is_none_or(|name| it.name.contains(name)))
        .filter(|(_, it)| cx.params.get("AddressIPVersion").is_none_or(|version| it.ip_version == version))
        .filter(|(_, it)| has_tags(&it.tags, &wanted))
        .map(|(id, it)| {
            json!({"AclId": id, "AclName": it.name, "AddressIPVersion": it.ip_version,
                "Tags": {"Tag": tag_list(&it.tags)}})
        })
        .collect();
    let (found, mut answer) = page(cx.params, found, 10, 50)?;
    answer["Acls"] = json!({"Acl": found});
    Ok(answer)
}

fn describe(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let id = cx.params.need("AclId")?;
    let acl = cx.account.acls.get(id).ok_or_else(|| unknown(id))?;
    let number = cx.params.number_in("Page", 1, i64::MAX)?.unwrap_or(1);
    let size = cx.params.number_in("PageSize", 1, 50)?.unwrap_or(10);
    let (skip, size) = (usize::try_from((number - 1).saturating_mul(size)), usize::try_from(size).unwrap_or(0));
    let shown = acl.entries.iter().skip(skip.unwrap_or(usize::MAX)).take(size);
    let entries: Vec<Value> =
        shown.map(|(entry, comment)| json!({"AclEntryIP": entry, "AclEntryComment": comment})).collect();
    Ok(json!({
        "AclId": id,
        "AclName": acl.name,
        "AddressIPVersion": acl.ip_version,
        "AclEntrys": {"AclEntry": entries},
        "TotalAclEntry": acl.entries.len(),
        "RelatedListeners": {"RelatedListener": users(cx.account, id)},
        "Tags": {"Tag": tag_list(&acl.tags)},
    }))
}
