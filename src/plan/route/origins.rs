//! Where each part of a node's routes comes from.

use super::{RouteNode, TableEntries};
use crate::plan::setting::{SettingOrigin, SettingSource};

use SettingSource::{Configuration, OnlyTable, Spec};

/// The parts of the entries that the node should have; `is_stated` says that the configuration lists the tables.
pub fn origins(node: &RouteNode, tables: &[TableEntries], is_stated: bool) -> Vec<SettingOrigin> {
    let table = |TableEntries { id, .. }: &TableEntries| {
        let source = if is_stated { Configuration("route.table_ids") } else { OnlyTable };
        SettingOrigin::new("route table", id, source, "has an entry for each pod CIDR of the node")
    };
    let destination =
        |cidr: String| SettingOrigin::new("destination", cidr, Spec("spec.podCIDRs"), "the pods of the node");
    let next_hop = |instance: &String| {
        SettingOrigin::new("next hop", instance, Spec("spec.providerID"), "the instance of the node")
    };
    let cidrs = node.cidrs.iter().map(ToString::to_string).map(destination);
    tables.iter().map(table).chain(cidrs).chain(node.instance.iter().map(next_hop)).collect()
}
