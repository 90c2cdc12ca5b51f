//! Access control lists.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::json;

use super::Slb;
use crate::alibaba::Fault;
use crate::alibaba::actions::{
    ADD_ACCESS_ENTRIES, CREATE_ACCESS_LIST, DELETE_ACCESS_LIST, DESCRIBE_ACCESS_LIST, DESCRIBE_ACCESS_LISTS,
    REMOVE_ACCESS_ENTRIES, Write,
};
use crate::alibaba::decode::{Int, List, Tag, Text, tags};
use crate::alibaba::paging::by_number;
use crate::alibaba::signing::Params;
use crate::fence::Permit;
use crate::plan::clb::model::{ListenerKey, Protocol};
use crate::plan::clb::observed::ObservedAccessList;
use crate::plan::clb::operation::CreateAccessList;

/// Lists in one page; the API grants no more.
const PAGE: usize = 50;

impl Slb {
    /// Names of all access control lists of the region.
    ///
    /// # Errors
    /// As any call.
    pub async fn list_access_lists(&self) -> Result<BTreeSet<String>, Fault> {
        Ok(self.access_lists(Params::new()).await?.into_iter().map(|list| list.acl_name.0).collect())
    }

    /// The access control list of exactly this name, with its entries; names are unique in a region.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_access_list(&self, name: &str) -> Result<Option<ObservedAccessList>, Fault> {
        // The filter also finds names that only contain this one.
        let found = self.access_lists(Params::new().with("AclName", name)).await?;
        let Some(summary) = found.into_iter().find(|list| list.acl_name.0 == name) else { return Ok(None) };
        let id = summary.acl_id.0;
        let answer = self.0.read(DESCRIBE_ACCESS_LIST, Params::new().with("AclId", &id)).await?;
        let other = answer.bug(format!("asked for {id}, but the answer is about another access control list"));
        let body: ListBody = answer.decode()?;
        if body.acl_id.0 != id {
            return Err(other);
        }
        Ok(Some(ObservedAccessList {
            entries: body.acl_entrys.0.iter().filter_map(|entry| block(&entry.acl_entry_ip.0)).collect(),
            listeners: body.related_listeners.0.into_iter().filter_map(RelatedBody::observed).collect(),
            tags: tags(summary.tags),
            name: name.to_owned(),
            id,
        }))
    }

    /// Makes an access control list without entries; gives its id.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_access_list(&self, permit: &Permit, wanted: &CreateAccessList) -> Result<String, Fault> {
        let mut params = Params::new().with("AclName", &wanted.name).with("AddressIPVersion", &wanted.ip_version);
        for (index, (key, value)) in wanted.tags.iter().enumerate() {
            params.push(format!("Tag.{}.Key", index + 1), key);
            params.push(format!("Tag.{}.Value", index + 1), value);
        }
        let answer = self.0.write(permit, CREATE_ACCESS_LIST, params).await?;
        let nameless = answer.bug("the answer does not say which access control list was made");
        let body: ListBody = answer.decode()?;
        if body.acl_id.0.is_empty() { Err(nameless) } else { Ok(body.acl_id.0) }
    }

    /// Deletes an access control list that no listener uses.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_access_list(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_ACCESS_LIST, Params::new().with("AclId", id)).await.map(drop)
    }

    /// Adds entries, at most 50.
    ///
    /// # Errors
    /// As any write.
    pub async fn add_access_entries(&self, permit: &Permit, id: &str, entries: &[IpNet]) -> Result<(), Fault> {
        self.entries(permit, ADD_ACCESS_ENTRIES, id, entries).await
    }

    /// Removes entries, at most 50.
    ///
    /// # Errors
    /// As any write.
    pub async fn remove_access_entries(&self, permit: &Permit, id: &str, entries: &[IpNet]) -> Result<(), Fault> {
        self.entries(permit, REMOVE_ACCESS_ENTRIES, id, entries).await
    }

    async fn entries(&self, permit: &Permit, action: Write, id: &str, entries: &[IpNet]) -> Result<(), Fault> {
        let list: Vec<_> = entries.iter().map(|entry| json!({"entry": entry.to_string(), "comment": ""})).collect();
        let params = Params::new().with("AclId", id).with("AclEntrys", json!(list));
        self.0.write(permit, action, params).await.map(drop)
    }

    async fn access_lists(&self, params: Params) -> Result<Vec<ListBody>, Fault> {
        by_number(PAGE, |number| {
            let params = params.clone().with("PageNumber", number).with("PageSize", PAGE);
            async move {
                let body: ListsBody = self.0.read(DESCRIBE_ACCESS_LISTS, params).await?.decode()?;
                Ok((body.acls.0, body.total_count.0))
            }
        })
        .await
        .map_err(|error| error.into_fault(DESCRIBE_ACCESS_LISTS.0))
    }
}

/// A block, or a single address.
fn block(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ListsBody {
    acls: List<ListBody>,
    total_count: Int,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ListBody {
    acl_id: Text,
    acl_name: Text,
    acl_entrys: List<EntryBody>,
    related_listeners: List<RelatedBody>,
    tags: List<Tag>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EntryBody {
    #[serde(rename = "AclEntryIP")]
    acl_entry_ip: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RelatedBody {
    load_balancer_id: Text,
    listener_port: Int,
    protocol: Text,
}

impl RelatedBody {
    fn observed(self) -> Option<(String, ListenerKey)> {
        let port = u16::try_from(self.listener_port.0).ok()?;
        Some((self.load_balancer_id.0, ListenerKey { port, protocol: Protocol::parse(&self.protocol.0)? }))
    }
}
