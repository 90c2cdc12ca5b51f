//! Access control lists.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::json;

use super::Clb;
use crate::alibaba::actions::{
    ADD_ACCESS_ENTRIES, CREATE_ACCESS_LIST, DELETE_ACCESS_LIST, DESCRIBE_ACCESS_LIST, DESCRIBE_ACCESS_LISTS,
    REMOVE_ACCESS_ENTRIES, WriteAction,
};
use crate::alibaba::answer::{Fields, Mismatch, block};
use crate::alibaba::fault::Fault;
use crate::alibaba::request::whole;
use crate::fence::Permit;
use crate::plan::clb::model::{CreateAccessList, ListenerKey, Protocol};
use crate::plan::clb::observed::ObservedAccessList;

/// Lists, or entries of a list, in one page; the API grants no more.
const PAGE: usize = 50;

impl Clb {
    /// All access control lists of the region, without entries and listeners.
    ///
    /// # Errors
    /// As any call.
    pub async fn list_access_lists(&self) -> Result<Vec<ObservedAccessList>, Fault> {
        self.0.read(DESCRIBE_ACCESS_LISTS).numbered("Acls", PAGE, summary).await
    }

    /// The access control list of exactly this name, with its entries; names are unique in a region.
    ///
    /// # Errors
    /// As any call.
    pub async fn find_access_list(&self, name: &str) -> Result<Option<ObservedAccessList>, Fault> {
        // The filter also finds names that only contain this one.
        let found = self.0.read(DESCRIBE_ACCESS_LISTS).with("AclName", name).numbered("Acls", PAGE, summary).await?;
        let Some(summary) = found.into_iter().find(|list| list.name == name) else { return Ok(None) };
        let (mut entries, mut listeners) = (BTreeSet::new(), BTreeSet::new());
        let page = |body: Fields<'_>| {
            let id = body.text("AclId")?;
            if id != summary.id {
                return Err(Mismatch(format!("AclId {} was asked for, but the answer is about {id}", summary.id)));
            }
            listeners = body.list("RelatedListeners", listener)?.into_iter().flatten().collect();
            // A gateway that does not know pages shows the same ones again: nothing of that is new.
            let mut new = body.list("AclEntrys", |entry| entry.text("AclEntryIP"))?;
            new.retain(|entry| entries.insert(entry.clone()));
            Ok((new, body.number("TotalAclEntry")?))
        };
        let request = self.0.read(DESCRIBE_ACCESS_LIST).with("AclId", &summary.id);
        let entries = whole(DESCRIBE_ACCESS_LIST.0, request.numbered_by("Page", PAGE, page).await?)?;
        let entries = entries.iter().filter_map(|entry| block(entry)).collect();
        Ok(Some(ObservedAccessList { entries, listeners, ..summary }))
    }

    /// Creates an access control list without entries; gives its id.
    ///
    /// # Errors
    /// As any write.
    pub async fn create_access_list(&self, permit: &Permit, wanted: &CreateAccessList) -> Result<String, Fault> {
        let request = self.0.write(permit, CREATE_ACCESS_LIST).with("AclName", &wanted.name);
        request.with("AddressIPVersion", &wanted.ip_version).tags(&wanted.tags).create("AclId").await
    }

    /// Deletes an access control list that no listener uses.
    ///
    /// # Errors
    /// As any write.
    pub async fn delete_access_list(&self, permit: &Permit, id: &str) -> Result<(), Fault> {
        self.0.write(permit, DELETE_ACCESS_LIST).with("AclId", id).done().await
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

    async fn entries(&self, permit: &Permit, action: WriteAction, id: &str, entries: &[IpNet]) -> Result<(), Fault> {
        let list: Vec<_> = entries.iter().map(|entry| json!({"entry": entry.to_string(), "comment": ""})).collect();
        self.0.write(permit, action).with("AclId", id).with("AclEntrys", json!(list)).done().await
    }
}

/// A list as the list of lists shows it: without entries and listeners.
fn summary(body: Fields<'_>) -> Result<ObservedAccessList, Mismatch> {
    let (id, name, tags) = (body.text("AclId")?, body.text("AclName")?, body.tags()?);
    Ok(ObservedAccessList { id, name, tags, ..ObservedAccessList::default() })
}

/// `None` for protocols that this program does not know.
fn listener(body: Fields<'_>) -> Result<Option<(String, ListenerKey)>, Mismatch> {
    let port = u16::try_from(body.number("ListenerPort")?).ok();
    let key = port.zip(Protocol::parse(&body.text("Protocol")?)).map(|(port, protocol)| ListenerKey { port, protocol });
    Ok(Some(body.text("LoadBalancerId")?).zip(key))
}
