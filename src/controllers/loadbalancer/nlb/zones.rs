//! Where a load balancer is made whose Service does not say it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::alibaba::vpc::VSwitch;
use crate::plan::inputs::NodeView;
use crate::plan::loadbalancer::settings::{VSwitchChoice, ZONES};
use crate::plan::loadbalancer::zones;
use crate::plan::nlb::model::ZoneMapping;

/// Two zones with one vSwitch each: the first of those that are `stated`, then those with the most nodes, and in each the
/// vSwitch with the most free addresses.
pub(super) fn chosen_zones(
    stated: &[VSwitchChoice],
    mut found: Vec<VSwitch>,
    nodes: &[Arc<NodeView>],
) -> Vec<ZoneMapping> {
    let zone_of = |choice: &VSwitchChoice| {
        let there = || found.iter().find(|vswitch| vswitch.id == choice.id).map(|it| it.zone.clone());
        choice.zone.clone().or_else(there)
    };
    let stated = stated.iter().filter_map(|choice| Some((zone_of(choice)?, choice.id.clone())));
    let mut candidates: Vec<(String, String)> = stated.collect();
    let nodes_in: HashMap<&str, usize> = zones::by_nodes(nodes).into_iter().collect();
    let count = |vswitch: &VSwitch| nodes_in.get(vswitch.zone.as_str()).copied().unwrap_or_default();
    found.sort_by_key(|it| (Reverse(count(it)), Reverse(it.available_ips), it.id.clone()));
    candidates.extend(found.into_iter().map(|vswitch| (vswitch.zone, vswitch.id)));
    let mut chosen: Vec<ZoneMapping> = Vec::new();
    for (zone, vswitch) in candidates {
        if chosen.len() < ZONES && chosen.iter().all(|mapping| mapping.zone != zone) {
            chosen.push(ZoneMapping { zone, vswitch, ..ZoneMapping::default() });
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::loadbalancer::settings::state_enough_zones;

    fn vswitch(id: &str, zone: &str, available_ips: u64) -> VSwitch {
        let [id, zone] = [id, zone].map(str::to_owned);
        VSwitch { id, zone, available_ips, vpc_id: String::new(), cidr: String::new() }
    }

    fn node(zone: &str) -> Arc<NodeView> {
        let labels = [("topology.kubernetes.io/zone".into(), zone.into())].into_iter().collect();
        Arc::new(NodeView { labels, ..NodeView::default() })
    }

    fn chosen(stated: &[VSwitchChoice], found: Vec<VSwitch>, nodes: &[&str]) -> Vec<String> {
        let nodes: Vec<_> = nodes.iter().map(|zone| node(zone)).collect();
        chosen_zones(stated, found, &nodes).into_iter().map(|it| format!("{}:{}", it.zone, it.vswitch)).collect()
    }

    #[test]
    fn zones_with_nodes_come_first_and_vswitches_with_room() {
        let found = || {
            vec![
                vswitch("vsw-1", "a", 5),
                vswitch("vsw-2", "b", 10),
                vswitch("vsw-3", "b", 20),
                vswitch("vsw-4", "c", 9),
            ]
        };
        let near = [];
        assert_eq!(chosen(&near, found(), &["b", "b", "a"]), ["b:vsw-3", "a:vsw-1"]);
        assert_eq!(chosen(&near, found(), &["a"]), ["a:vsw-1", "b:vsw-3"], "another zone, as one is not enough");
        assert!(!state_enough_zones(&near));
    }

    #[test]
    fn stated_vswitches_are_taken_in_their_order() {
        let choice = |zone: Option<&str>, id: &str| VSwitchChoice { zone: zone.map(str::to_owned), id: id.to_owned() };
        let stated = [choice(Some("c"), "vsw-9"), choice(Some("c"), "vsw-8"), choice(Some("a"), "vsw-7")];
        assert!(state_enough_zones(&stated));
        assert_eq!(chosen(&stated, Vec::new(), &["a"]), ["c:vsw-9", "a:vsw-7"]);
        let unclear = [choice(None, "vsw-2"), choice(None, "vsw-gone")];
        assert!(!state_enough_zones(&unclear));
        assert_eq!(chosen(&unclear, vec![vswitch("vsw-2", "b", 1)], &[]), ["b:vsw-2"]);
    }

    #[test]
    fn beside_a_single_stated_zone_comes_the_one_with_the_most_nodes() {
        let choice = |id: &str| VSwitchChoice { zone: Some("a".to_owned()), id: id.to_owned() };
        let single = [choice("vsw-1"), choice("vsw-2")];
        assert!(!state_enough_zones(&single));
        let found = || vec![vswitch("vsw-3", "b", 9), vswitch("vsw-4", "c", 1), vswitch("vsw-5", "a", 5)];
        assert_eq!(chosen(&single, found(), &["a", "c"]), ["a:vsw-1", "c:vsw-4"]);
        assert_eq!(chosen(&single, Vec::new(), &["a"]), ["a:vsw-1"], "a region with one zone");
    }
}
