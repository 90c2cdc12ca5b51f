use proptest::prelude::*;

use super::*;

const ZONE: &str = "cn-a-i";

fn disk() -> CloudDisk {
    CloudDisk { id: "d-1".into(), region: "cn-a".into(), zone: ZONE.into() }
}

fn regional() -> CloudDisk {
    CloudDisk { zone: String::new(), ..disk() }
}

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn node(keys: &[TopologyKeys]) -> Arc<NodeView> {
    let pairs: Vec<_> = keys.iter().flat_map(|keys| [(keys.zone, ZONE), (keys.region, "cn-a")]).collect();
    let labels = pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Arc::new(NodeView { labels, ..NodeView::default() })
}

fn rules(nodes: &[&[TopologyKeys]], minor: u32) -> VolumeRules {
    let nodes: Vec<_> = nodes.iter().map(|keys| node(keys)).collect();
    VolumeRules::new(&nodes, |since| minor >= since, true)
}

fn volume(driver: DiskDriver, topology: &[(&str, &str)]) -> VolumeView {
    VolumeView {
        name: "pv".into(),
        handle: "d-1".into(),
        driver,
        topology: labels(topology).into_iter().collect(),
        ..VolumeView::default()
    }
}

fn text(rules: &VolumeRules, volume: &VolumeView, disk: &CloudDisk) -> Vec<String> {
    rules.plan(volume, disk).unwrap().lines(volume).into_iter().map(|line| line.text).collect()
}

#[test]
fn a_bare_volume_gets_labels_and_affinity_in_the_keys_that_nodes_carry() {
    let (csi, flex) = (volume(DiskDriver::Csi, &[]), volume(DiskDriver::FlexVolume, &[]));
    let modern = rules(&[&[STABLE, BETA, CSI], &[STABLE, BETA]], 34);
    let stable = ["set label topology.kubernetes.io/region=cn-a", "set label topology.kubernetes.io/zone=cn-a-i"];
    let with = |affinity: &str| [stable[0], stable[1], affinity].map(str::to_owned);
    let of_plugin = "set node affinity to topology.diskplugin.csi.alibabacloud.com/zone in [cn-a-i]";
    assert_eq!(text(&modern, &csi, &disk()), with(of_plugin));
    let of_nodes = "set node affinity to topology.kubernetes.io/zone in [cn-a-i]";
    assert_eq!(text(&modern, &flex, &disk()), with(of_nodes));
    assert_eq!(text(&rules(&[&[STABLE]], 34), &csi, &disk()), with(of_nodes), "the plugin runs nowhere");
    let beta = [
        "set label failure-domain.beta.kubernetes.io/region=cn-a",
        "set label failure-domain.beta.kubernetes.io/zone=cn-a-i",
        "set node affinity to failure-domain.beta.kubernetes.io/zone in [cn-a-i]",
    ];
    assert_eq!(text(&rules(&[&[STABLE, BETA], &[BETA]], 34), &flex, &disk()), beta, "one node lacks the others");
}

#[test]
fn old_servers_get_what_they_know() {
    let flex = volume(DiskDriver::FlexVolume, &[]);
    let keys = |minor| {
        let plan = rules(&[&[STABLE, BETA]], minor).plan(&flex, &disk()).unwrap();
        (plan.labels.contains_key(BETA.zone), plan.affinity.is_some(), plan.waits_for_nodes)
    };
    for (minor, expected) in
        [(8, (true, false)), (11, (true, false)), (12, (true, true)), (16, (true, true)), (17, (false, true))]
    {
        assert_eq!(keys(minor), (expected.0, expected.1, false), "1.{minor}");
    }
}

#[test]
fn a_regional_disk_has_no_zone() {
    let csi = volume(DiskDriver::Csi, &[]);
    let lines = text(&rules(&[&[STABLE, CSI]], 34), &csi, &regional());
    let expected = [
        "set label topology.kubernetes.io/region=cn-a",
        "set node affinity to topology.diskplugin.csi.alibabacloud.com/region in [cn-a]",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_affinity_waits_for_a_node_that_carries_a_zone() {
    let csi = volume(DiskDriver::Csi, &[]);
    let plan = rules(&[&[]], 34).plan(&csi, &disk()).unwrap();
    assert!(plan.affinity.is_none() && plan.waits_for_nodes && plan.labels.len() == 2);
    assert!(plan.lines(&csi)[2].text.starts_with("the node affinity waits"));
}

#[test]
fn what_somebody_set_stays_and_is_told_where_it_is_wrong() {
    let rules = rules(&[&[STABLE]], 34);
    let set = volume(DiskDriver::Csi, &[(BETA.zone, "cn-a-h__cn-a-i"), (STABLE.region, "cn-a")]);
    let plan = rules.plan(&set, &disk()).unwrap();
    assert_eq!(plan.labels, [(STABLE.zone, ZONE.to_owned())].into(), "several zones, of which one is the disk's");
    for (key, stated) in [(STABLE.zone, "cn-a-h"), (BETA.zone, "cn-a-h"), (BETA.region, "cn-b")] {
        let problem = rules.plan(&volume(DiskDriver::Csi, &[(key, stated)]), &disk()).unwrap_err().to_string();
        assert!(problem.contains(key) && problem.contains(stated) && problem.contains("d-1"), "{problem}");
    }
    let has_affinity = VolumeView { has_affinity: true, ..volume(DiskDriver::Csi, &[]) };
    let plan = rules.plan(&has_affinity, &disk()).unwrap();
    assert!(plan.affinity.is_none() && !plan.waits_for_nodes && plan.labels.len() == 2);
    let off = VolumeRules::new(&[node(&[STABLE])], |_| true, false);
    assert!(off.plan(&volume(DiskDriver::Csi, &[]), &disk()).unwrap().affinity.is_none());
}

#[test]
fn a_disk_is_looked_up_only_for_a_volume_that_lacks_something() {
    let rules = rules(&[&[STABLE]], 34);
    let bare = volume(DiskDriver::Csi, &[]);
    assert_eq!(rules.disk_of(&bare), Ok(Some("d-1")));
    let whole =
        VolumeView { has_affinity: true, ..volume(DiskDriver::Csi, &[(STABLE.zone, "x"), (STABLE.region, "y")]) };
    let deleting = VolumeView { deleting: true, ..bare.clone() };
    let planned = VolumeView { handle: PLACEHOLDER.into(), ..bare.clone() };
    for nothing in [&whole, &deleting, &planned] {
        assert_eq!(rules.disk_of(nothing), Ok(None));
    }
    for handle in ["", "d-", "vol-1", "d-1/2", "d-\u{e9}"] {
        for (driver, field) in
            [(DiskDriver::Csi, "spec.csi.volumeHandle"), (DiskDriver::FlexVolume, "options.volumeId")]
        {
            let unreadable = VolumeView { handle: handle.into(), driver, ..bare.clone() };
            let problem = rules.disk_of(&unreadable).unwrap_err().to_string();
            assert!(problem.contains(field) && problem.contains(&format!("{handle:?}")), "{problem}");
        }
    }
}

fn any_keys() -> impl Strategy<Value = Vec<TopologyKeys>> {
    prop::sample::subsequence(vec![STABLE, BETA, CSI], 0..=3)
}

proptest! {
    /// Whatever nodes, version and labels there are: no label changes, no affinity names a key that no node carries, and the
    /// volume that was written needs nothing more.
    #[test]
    fn what_is_written_is_new_usable_and_all(
        nodes in prop::collection::vec(any_keys(), 0..4),
        minor in 8u32..36,
        is_csi: bool,
        is_regional: bool,
        stated in prop::collection::btree_map(
            prop::sample::select(vec![STABLE.zone, BETA.zone, STABLE.region, BETA.region]),
            prop::sample::select(vec![ZONE, "cn-a", "cn-b", "cn-a-h__cn-a-i"]), 0..3),
    ) {
        let nodes: Vec<_> = nodes.iter().map(|keys| node(keys)).collect();
        let rules = VolumeRules::new(&nodes, |since| minor >= since, true);
        let driver = if is_csi { DiskDriver::Csi } else { DiskDriver::FlexVolume };
        let stated: Vec<_> = stated.into_iter().collect();
        let before = volume(driver, &stated);
        let disk = if is_regional { regional() } else { disk() };
        if let Ok(plan) = rules.plan(&before, &disk) {
            prop_assert!(plan.labels.keys().all(|key| !before.topology.contains_key(*key)));
            let usable = |(key, value): &(&str, String)| {
                nodes.iter().any(|node| node.label(key) == Some(value.as_str()))
            };
            prop_assert!(plan.affinity.iter().all(usable));
            let mut after = before.clone();
            after.topology.extend(plan.labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
            after.has_affinity = plan.affinity.is_some();
            prop_assert!(!rules.plan(&after, &disk).unwrap().writes());
        }
    }
}
