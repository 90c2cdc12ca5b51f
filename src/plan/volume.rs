//! Where the disk of a PersistentVolume can be attached: the labels and the node affinity that tell it the scheduler.
//!
//! A label that differs from the disk keeps every pod away, and a node affinity can never be changed. So nothing that somebody
//! set is touched, and nothing is written but what the cloud said of the disk, with keys that the nodes carry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;

use super::inputs::{DiskDriver, NodeView, VolumeView};
use super::{LineKind, PlanLine};

/// Of volumes that the CSI plugin attaches.
pub const CSI_DRIVER: &str = "diskplugin.csi.alibabacloud.com";
/// Of volumes that the older FlexVolume plugin attaches.
pub const FLEX_DRIVER: &str = "alicloud/disk";
/// The handle of a volume whose disk is still to be made.
const PLACEHOLDER: &str = "placeholder-for-provisioning";
/// Separates the zones of a label that states several.
const ZONE_SEPARATOR: &str = "__";

/// The first version of Kubernetes whose scheduler knows the keys without `beta`.
const STABLE_KEYS: u32 = 17;
/// The first version of Kubernetes for which a node affinity may come later than the volume; the field is there since 1.10.
const LATER_AFFINITY: u32 = 12;

/// Keys of labels that state where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyKeys {
    /// Of the zone.
    pub zone: &'static str,
    /// Of the region.
    pub region: &'static str,
}

const STABLE: TopologyKeys =
    TopologyKeys { zone: "topology.kubernetes.io/zone", region: "topology.kubernetes.io/region" };
const BETA: TopologyKeys =
    TopologyKeys { zone: "failure-domain.beta.kubernetes.io/zone", region: "failure-domain.beta.kubernetes.io/region" };
/// What the CSI plugin has the kubelet write to the nodes where it runs.
const CSI: TopologyKeys = TopologyKeys {
    zone: "topology.diskplugin.csi.alibabacloud.com/zone",
    region: "topology.diskplugin.csi.alibabacloud.com/region",
};

/// Whether the key of a label of a volume states a zone or a region.
pub fn is_topology(key: &str) -> bool {
    [STABLE, BETA].iter().any(|keys| key == keys.zone || key == keys.region)
}

/// A disk, as the cloud shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudDisk {
    /// `d-...`
    pub id: String,
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// Empty for a disk that all zones of the region can attach.
    pub zone: String,
}

/// What a cluster lets volumes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRules {
    /// Keys of the labels of volumes.
    labels: TopologyKeys,
    /// Keys of node affinities, unless nodes carry those of the CSI plugin.
    affinity: TopologyKeys,
    /// All keys that some node carries.
    carried: BTreeSet<&'static str>,
    /// Whether volumes get a node affinity.
    sets_affinity: bool,
}

impl VolumeRules {
    /// For these nodes; `is_at_least` says whether the API server is of version 1.n or newer.
    pub fn new(nodes: &[Arc<NodeView>], is_at_least: impl Fn(u32) -> bool, node_affinity: bool) -> Self {
        let carries = |node: &NodeView, key: &str| node.labels.contains_key(key);
        let keys = [CSI, STABLE, BETA].into_iter().flat_map(|keys| [keys.zone, keys.region]);
        let carried = keys.filter(|key| nodes.iter().any(|node| carries(node, key))).collect();
        // A label with a key that a node lacks keeps pods away from the node.
        let some_lack_stable = nodes.iter().any(|node| carries(node, BETA.zone) && !carries(node, STABLE.zone));
        let affinity = if some_lack_stable { BETA } else { STABLE };
        let labels = if is_at_least(STABLE_KEYS) { affinity } else { BETA };
        Self { labels, affinity, carried, sets_affinity: node_affinity && is_at_least(LATER_AFFINITY) }
    }

    /// The disk that must be known to say what a volume lacks; `None` if it lacks nothing.
    ///
    /// # Errors
    /// The handle is not the id of a disk.
    pub fn disk_of<'a>(&self, volume: &'a VolumeView) -> Result<Option<&'a str>, VolumeProblem> {
        let TopologyKeys { zone, region } = self.labels;
        let is_labelled = [zone, region].iter().all(|key| volume.topology.contains_key(*key));
        let has_all = is_labelled && (volume.has_affinity || !self.sets_affinity);
        if volume.deleting || has_all || volume.handle == PLACEHOLDER {
            return Ok(None);
        }
        let is_id = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match volume.handle.strip_prefix("d-").filter(|rest| is_id(rest)) {
            Some(_) => Ok(Some(&volume.handle)),
            None => Err(VolumeProblem::Handle { field: field(volume.driver), given: volume.handle.clone() }),
        }
    }

    /// What a volume on this disk lacks.
    ///
    /// # Errors
    /// A label states another place than the disk's.
    pub fn plan(&self, volume: &VolumeView, disk: &CloudDisk) -> Result<VolumePlan, VolumeProblem> {
        let mut plan = VolumePlan::default();
        let zone = (self.labels.zone, [STABLE.zone, BETA.zone], &disk.zone);
        let region = (self.labels.region, [STABLE.region, BETA.region], &disk.region);
        for (wanted, alike, is) in [zone, region].into_iter().filter(|(.., is)| !is.is_empty()) {
            for key in alike {
                let stated = volume.topology.get(key);
                if let Some(stated) = stated.filter(|stated| stated.split(ZONE_SEPARATOR).all(|one| one != is)) {
                    let (stated, disk, is) = (stated.clone(), disk.id.clone(), is.clone());
                    return Err(VolumeProblem::Label { key, stated, disk, is });
                }
            }
            if !volume.topology.contains_key(wanted) {
                plan.labels.insert(wanted, is.clone());
            }
        }
        if self.sets_affinity && !volume.has_affinity {
            plan.affinity = self.affinity(volume.driver, disk);
            plan.waits_for_nodes = plan.affinity.is_none();
        }
        Ok(plan)
    }

    /// Only with a key that some node carries: with another one, no pod could use the volume, for ever.
    fn affinity(&self, driver: DiskDriver, disk: &CloudDisk) -> Option<(&'static str, String)> {
        let is_regional = disk.zone.is_empty();
        let key = |keys: TopologyKeys| if is_regional { keys.region } else { keys.zone };
        let of_plugin = (driver == DiskDriver::Csi).then_some(CSI);
        let mut keys = of_plugin.into_iter().chain([self.affinity]).map(key);
        let value = if is_regional { &disk.region } else { &disk.zone };
        Some((keys.find(|key| self.carried.contains(key))?, value.clone()))
    }
}

const fn field(driver: DiskDriver) -> &'static str {
    match driver {
        DiskDriver::Csi => "spec.csi.volumeHandle",
        DiskDriver::FlexVolume => "spec.flexVolume.options.volumeId",
    }
}

/// What a volume gets, in one write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePlan {
    /// Labels that it lacks.
    pub labels: BTreeMap<&'static str, String>,
    /// The key and the value that its node affinity requires.
    pub affinity: Option<(&'static str, String)>,
    /// Whether its node affinity is withheld because no node carries a label that it could name.
    pub waits_for_nodes: bool,
}

impl VolumePlan {
    /// Whether there is something to write.
    pub fn writes(&self) -> bool {
        !self.labels.is_empty() || self.affinity.is_some()
    }

    /// What is left of a plan that sets labels and a node affinity.
    pub fn without_affinity(&self) -> Option<Self> {
        let has_both = self.affinity.is_some() && !self.labels.is_empty();
        has_both.then(|| Self { labels: self.labels.clone(), ..Self::default() })
    }

    /// What is written, in one line.
    pub fn text(&self) -> String {
        self.steps().collect::<Vec<_>>().join(", ")
    }

    fn steps(&self) -> impl Iterator<Item = String> {
        let labels = self.labels.iter().map(|(key, value)| format!("set label {key}={value}"));
        labels.chain(self.affinity.iter().map(|(key, value)| format!("set node affinity to {key} in [{value}]")))
    }

    /// For people.
    pub fn lines(&self, volume: &VolumeView) -> Vec<PlanLine> {
        let line = |kind, text: String| PlanLine::new("volume-labels", &volume.name, kind, &text);
        let steps = self.steps().map(|text| line(LineKind::Step, text));
        let waits = self.waits_for_nodes.then(|| line(LineKind::Withheld, WAITS.to_owned()));
        steps.chain(waits).collect()
    }
}

/// Why a node affinity is withheld.
pub const WAITS: &str = "the node affinity waits until some node has the label topology.kubernetes.io/zone";

/// Why a volume stays as it is, until somebody changes something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VolumeProblem {
    /// The handle is not the id of a disk.
    #[error(
        "{field}: Invalid value: {given:?}: must be the id of a disk, such as d-bp1example; create the PersistentVolume again \
         with it, since the field cannot be changed"
    )]
    Handle {
        /// Where it was given.
        field: &'static str,
        /// As it was given.
        given: String,
    },
    /// The cloud does not show the disk.
    #[error(
        "region {region} has no disk {disk} that this account can see: the disk was deleted, is in another region or account, or \
         ecs:DescribeDisks is not permitted for it; create the PersistentVolume again with a disk of the region, or permit it"
    )]
    NoDisk {
        /// `d-...`
        disk: String,
        /// Where the cluster is.
        region: String,
    },
    /// Somebody stated another place.
    #[error(
        "metadata.labels[{key}]: Invalid value: {stated:?}: the disk {disk} is in {is}; correct the label, or remove it and the \
         controller sets it. Until then the volume stays as it is"
    )]
    Label {
        /// Key of the label.
        key: &'static str,
        /// Its value.
        stated: String,
        /// `d-...`
        disk: String,
        /// Zone or region of the disk.
        is: String,
    },
    /// The API server refused the write.
    #[error("could not {step}: {reason}")]
    Refused {
        /// What was to be written.
        step: String,
        /// What the API server said.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
