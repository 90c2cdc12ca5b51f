//! What the configuration, and the place in the cloud, contribute to what is desired.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

/// What the configuration and the place in the cloud contribute.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSettings {
    /// Part of every mark; meant to be unique among the clusters of the account.
    pub cluster_id: String,
    /// Key of the tag that names the cluster; usually [`CLUSTER_TAG`](super::ownership::CLUSTER_TAG).
    pub cluster_tag: String,
    /// Uid of the cluster's namespace `kube-system`; empty if it is not known.
    pub cluster_uid: String,
    /// Region of load balancers and their backends; empty if it is not known.
    pub region: String,
    /// VPC of the cluster.
    pub vpc_id: String,
    /// vSwitches for intranet load balancers, in order of preference.
    pub vswitches: Vec<VSwitchChoice>,
    /// Whether these are only what is left where no vSwitch near the nodes will do.
    pub place_near_nodes: bool,
    /// Resource group of new load balancers.
    pub resource_group_id: Option<String>,
    /// Names of the controllers that run.
    pub controllers: Vec<&'static str>,
    /// Section `[service]`.
    pub service: ServiceOptions,
    /// Section `[nlb.defaults]`.
    pub nlb: NlbDefaults,
}

/// Section `[nlb.defaults]`: what holds for network load balancers where no annotation speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NlbDefaults {
    /// `Internet` or `Intranet`
    pub address_type: String,
    /// Protection against deletion.
    pub delete_protection: bool,
    /// Protection against changes in the console.
    pub modification_protection: bool,
    /// Tags of every load balancer that is made.
    pub tags: BTreeMap<String, String>,
}

impl Default for NlbDefaults {
    fn default() -> Self {
        Self {
            address_type: "Internet".to_owned(),
            delete_protection: true,
            modification_protection: true,
            tags: BTreeMap::new(),
        }
    }
}

/// One vSwitch of `cloud.vswitches`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VSwitchChoice {
    /// Stated as `zone:vsw-id`.
    pub zone: Option<String>,
    /// `vsw-...`
    pub id: String,
}

/// Zones of a load balancer for which none are configured: the API asks for two where there are two.
pub const ZONES: usize = 2;

/// Whether zones of a network load balancer can be chosen among these without a list of the vSwitches that there are.
pub fn state_enough_zones(stated: &[VSwitchChoice]) -> bool {
    let zones: Option<BTreeSet<&str>> = stated.iter().map(|choice| choice.zone.as_deref()).collect();
    zones.is_some_and(|zones| zones.len() >= ZONES)
}

/// Section `[service]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceOptions {
    /// Services worked on at once, and as many more that have a load balancer.
    pub concurrency: usize,
    /// Time between comparisons with the cloud; `None` for none.
    pub drift_check: Option<Duration>,
    /// Calls an hour for what no list shows.
    pub drift_reads: u32,
    /// Whether pods are attached directly (`eni`) where no annotation says otherwise.
    pub eni_backends: bool,
    /// Refuse load balancers with a public address.
    pub disable_public: bool,
    /// Backends in one call: 1 to 40, of network load balancers 200.
    pub backend_batch_size: usize,
    /// Leave nodes with the master label out of load balancers, as the official controller does.
    pub exclude_masters: bool,
    /// Whether Services with local traffic are checked at their health check node port.
    pub local_health_check: bool,
    /// Whether IPv6 backends are allowed.
    pub ipv6: bool,
    /// Whether the annotation `...-loadbalancer-type` chooses the kind of load balancer.
    pub type_annotation: bool,
    /// How long a load balancer that one of the other kind has replaced still serves.
    pub hand_over_grace: Duration,
    /// What holds for new load balancers where no annotation speaks.
    pub defaults: LoadBalancerDefaults,
}

/// Section `[service.defaults]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadBalancerDefaults {
    /// `internet` or `intranet`
    pub address_type: String,
    /// `PayBySpec` or `PayByCLCU`
    pub instance_charge_type: String,
    /// Used with `PayBySpec`.
    pub spec: String,
    /// `paybytraffic` or `paybybandwidth`; the API's default if absent.
    pub internet_charge_type: Option<String>,
    /// Mbit/s, 1 to 5120; with `paybybandwidth`.
    pub bandwidth: Option<i64>,
    /// Primary zone.
    pub master_zone: Option<String>,
    /// Secondary zone.
    pub slave_zone: Option<String>,
    /// Delete protection of new instances.
    pub delete_protection: bool,
    /// Modification protection of new instances.
    pub modification_protection: bool,
    /// Scheduler of new listeners.
    pub scheduler: String,
    /// Tags of every load balancer that is made.
    pub tags: BTreeMap<String, String>,
}
