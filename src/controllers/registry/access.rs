//! What a controller must be allowed to do, in the cluster and in the cloud, as a row of the registry states it.

use std::ops::RangeInclusive;

use crate::alibaba::actions::{self, Action};
use crate::alibaba::endpoints::CloudProduct;
use crate::config::Config;

/// Whether a configuration needs the permission.
pub type IsNeeded = fn(&Config) -> bool;

/// A permission on one kind of object in the cluster, or on one of its subresources.
#[derive(Clone, Debug)]
pub struct KubernetesAccess {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `nodes` or `nodes/status`.
    pub resource: &'static str,
    /// The only object that it is about; all if absent.
    pub name: Option<&'static str>,
    /// As RBAC spells them.
    pub verbs: &'static [&'static str],
    /// Which configurations need it.
    pub when: IsNeeded,
    /// On which servers it is needed: the second number of the version.
    pub versions: RangeInclusive<u32>,
}

impl KubernetesAccess {
    /// A permission in the core group that every configuration with this controller needs.
    pub const fn core(resource: &'static str, verbs: &'static [&'static str]) -> Self {
        Self { group: "", resource, name: None, verbs, when: |_| true, versions: 0..=u32::MAX }
    }
}

/// A kind of object whose changes a controller follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedKind {
    /// Nodes.
    Nodes,
    /// Services.
    Services,
    /// The addresses behind Services: EndpointSlices, or Endpoints on servers without them.
    Endpoints,
    /// PersistentVolumes.
    Volumes,
}

impl WatchedKind {
    /// What the watch needs.
    pub const fn access(self) -> &'static [KubernetesAccess] {
        const WATCH: &[&str] = &["list", "watch"];
        match self {
            Self::Nodes => const { &[KubernetesAccess::core("nodes", WATCH)] },
            Self::Services => const { &[KubernetesAccess::core("services", WATCH)] },
            Self::Volumes => const { &[KubernetesAccess::core("persistentvolumes", WATCH)] },
            Self::Endpoints => {
                const {
                    &[
                        KubernetesAccess {
                            group: "discovery.k8s.io",
                            versions: 17..=u32::MAX,
                            ..KubernetesAccess::core("endpointslices", WATCH)
                        },
                        // Through 1.20, because the first servers with slices may not have filled them yet.
                        KubernetesAccess { versions: 0..=20, ..KubernetesAccess::core("endpoints", WATCH) },
                    ]
                }
            }
        }
    }
}

/// Calls to the cloud that a controller makes.
#[derive(Clone, Copy, Debug)]
pub enum CloudAccess {
    /// One action, where the configuration needs it.
    Action(&'static Action, IsNeeded),
    /// Every action of a product that this program knows.
    Product(CloudProduct),
}

impl CloudAccess {
    /// One action that every configuration with this controller calls.
    pub const fn always(action: &'static Action) -> Self {
        Self::Action(action, |_| true)
    }

    /// The actions that a configuration calls.
    pub fn actions(&self, config: &Config) -> Vec<&'static Action> {
        match *self {
            Self::Action(action, when) => when(config).then_some(action).into_iter().collect(),
            Self::Product(product) => actions::ALL.iter().copied().filter(|action| action.product == product).collect(),
        }
    }
}
