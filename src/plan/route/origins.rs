//! Where each part of a node's routes comes from.

use super::{RouteNode, TableEntries};
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Configuration, OnlyTable, Spec};

/// The parts of the entries that the node should have; `is_stated` says that the configuration lists the tables.
#[must_use]
pub fn origins(node: &RouteNode, tables: &[TableEntries], is_stated: bool) -> Vec<SettingOrigin> {
    let table = |TableEntries { id, .. }: &TableEntries| {
        let source = if is_stated { Configuration("route.table_ids") } else { OnlyTable };
        SettingOrigin {
            setting: "route table",
            value: id.clone(),
            source,
            found: None,
            help: "has an entry for each pod CIDR of the node",
        }
    };
    let destination = |value| {
        let help = "the pods of the node";
        SettingOrigin { setting: "destination", value, source: Spec("spec.podCIDRs"), found: None, help }
    };
    let next_hop = |instance: &String| {
        let (value, source) = (instance.clone(), Spec("spec.providerID"));
        SettingOrigin { setting: "next hop", value, source, found: None, help: "the instance of the node" }
    };
    let cidrs = node.cidrs.iter().map(ToString::to_string).map(destination);
    tables.iter().map(table).chain(cidrs).chain(node.instance.iter().map(next_hop)).collect()
}
