//! One row per controller. The supervisor, `plan`, `gc`, `rbac`, `ram-policy`, the names that the configuration accepts and what a
//! change of its section does all follow from it.
//!
//! A new controller takes its own modules, which `controllers.rs` and `plan.rs` declare, its row in [`CONTROLLERS`], and at
//! most three more places:
//!
//! 1. its section in `config/file.rs`; where its keys must fit each other, or mean more than they say, also in `config/rules.rs`
//!    and `config/checked.rs`,
//! 2. its events in `docs/reference/events.md`,
//! 3. its actions in `alibaba/actions.rs`, where it calls new ones.
//!
//! What is not a matter of a controller comes first: a kind of object that none watches yet, a product of the cloud that none
//! calls yet, see `CONTRIBUTING.md`.
//!
//! `tests/integration/invariants.rs` holds this list. The tests below fail when a row is incomplete;
//! `tests/integration/permissions.rs` runs each controller with exactly what its row grants, so a call or a request that the
//! row does not list fails there.

mod access;

pub use self::access::{CloudAccess, IsNeeded, KubernetesAccess, WatchedKind};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::orphan::Orphans;
use super::{Clients, Context, Previewed, loadbalancer, node, pvtz, route, volume};
use crate::alibaba::actions;
use crate::alibaba::endpoints::CloudProduct;
use crate::config::{Catalog, Config, ControllerEntry};
use crate::plan::inputs::{NodeView, ObjectKey, ObjectKind, ServiceView, VolumeView};
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::settings::state_enough_zones;
use crate::plan::node::{NodeClass, classify};

/// Runs until `context.stop` is cancelled.
pub type Run = fn(Context) -> BoxFuture<'static, ()>;

/// What a reconcile would do now, for all objects or for one; the error is a text for the user.
pub type Preview =
    for<'a> fn(&'a Clients, &'a Config, Option<&'a ObjectKey>) -> BoxFuture<'a, Result<Previewed, String>>;

/// What carries the marks of this cluster in the cloud and has no owner; what is proven, and what is not.
pub type FindOrphans = for<'a> fn(&'a Clients, &'a Config) -> BoxFuture<'a, Orphans>;

/// A controller.
#[derive(Debug)]
pub struct Controller {
    /// Its name in the configuration, in logs and in metrics, and the other names that the configuration accepts.
    pub entry: ControllerEntry,
    /// The section of the configuration that only this controller reads.
    pub section: &'static str,
    /// What a change of that section does, as the manual states it; it takes effect without a restart.
    pub on_change: &'static str,
    /// The kinds of objects that its plan lines are about; at most one without a namespace.
    pub objects: &'static [ObjectKind],
    /// Its loop.
    pub run: Run,
    /// What runs instead while the controller is switched off.
    pub when_off: Option<Fallback>,
    /// Its plan; writes nothing.
    pub preview: Preview,
    /// What it left in the cloud, also while it is switched off. `None` if nothing stays there without its object.
    pub orphans: Option<FindOrphans>,
    /// Why an object of its kind is not for it; `None` if it is.
    pub declines: fn(&Config, &Subject) -> Option<String>,
    /// The kinds of objects that it watches.
    pub watches: &'static [WatchedKind],
    /// What it reads and writes in the cluster besides.
    pub kubernetes: &'static [KubernetesAccess],
    /// What it calls in the cloud.
    pub cloud: &'static [CloudAccess],
}

/// What runs while a controller is switched off.
#[derive(Debug)]
pub struct Fallback {
    /// Its name in logs and in `/configz`.
    pub name: &'static str,
    /// Its loop.
    pub run: Run,
    /// The kinds of objects that it watches.
    pub watches: &'static [WatchedKind],
    /// What it reads and writes in the cluster besides.
    pub kubernetes: &'static [KubernetesAccess],
}

/// An object that a command is asked about.
#[derive(Debug)]
pub enum Subject {
    /// A Node.
    Node(NodeView),
    /// A Service, of whatever type.
    Service(ServiceView),
    /// A PersistentVolume; `None` if it is on no cloud disk.
    Volume(Option<VolumeView>),
}

/// Every controller, in the order in which `plan` prints them.
pub static CONTROLLERS: [Controller; 6] = [
    Controller {
        entry: ControllerEntry {
            default_on: true,
            parts: &["cloud-node-lifecycle", "cloud-node-lifecycle-controller"],
            instead_of_parts: "set node.remove_released and node.shutdown_taint to false",
            ..ControllerEntry::new(node::NAME, &["cloud-node", "cloud-node-controller"])
        },
        section: "node",
        on_change: "at once, with a pass over all nodes",
        objects: &[ObjectKind::Node],
        run: |context| node::run(context).boxed(),
        when_off: None,
        preview: |clients, config, only| node::plan(clients, config, only).boxed(),
        orphans: None,
        declines: |_, subject| excluded(subject),
        watches: &[WatchedKind::Nodes],
        kubernetes: &[
            KubernetesAccess::core("nodes", &["get", "patch"]),
            KubernetesAccess {
                when: |config| config.node.remove_released,
                ..KubernetesAccess::core("nodes", &["delete"])
            },
            KubernetesAccess::core("nodes/status", &["patch"]),
            // Those of kubelets, which have them from Kubernetes 1.14 on.
            KubernetesAccess {
                group: "coordination.k8s.io",
                when: |config| config.node.remove_released,
                versions: 14..=u32::MAX,
                ..KubernetesAccess::core("leases", &["get"])
            },
        ],
        cloud: &[
            CloudAccess::always(actions::DESCRIBE_INSTANCES.0),
            CloudAccess::Action(actions::DESCRIBE_NETWORK_INTERFACES.0, |config| config.node.disable_source_dest_check),
            CloudAccess::Action(actions::MODIFY_NETWORK_INTERFACE.0, |config| config.node.disable_source_dest_check),
        ],
    },
    Controller {
        entry: ControllerEntry { default_on: true, ..ControllerEntry::new(route::NAME, &["node-route-controller"]) },
        section: "route",
        on_change: "at once, with a pass over all nodes",
        objects: &[ObjectKind::Node],
        run: |context| route::run(context).boxed(),
        when_off: Some(Fallback {
            name: "routes-off",
            run: |context| route::run_off(context).boxed(),
            watches: &[WatchedKind::Nodes],
            kubernetes: &[NODES, NODES_STATUS],
        }),
        preview: |clients, config, only| route::plan(clients, config, only).boxed(),
        orphans: Some(|clients, config| route::orphans(clients, config).boxed()),
        declines: |_, subject| excluded(subject),
        watches: &[WatchedKind::Nodes],
        kubernetes: &[
            NODES,
            NODES_STATUS,
            CLUSTER_UID,
            // Signs of a pod network that makes routes itself, see `route::networks`.
            named("", "configmaps", "kube-flannel-cfg"),
            named("", "configmaps", "cilium-config"),
            named("", "configmaps", "calico-config"),
            named("apps", "daemonsets", "calico-node"),
            named("apps", "daemonsets", "ovnkube-node"),
            named("apps", "daemonsets", "kube-ovn-cni"),
            named("apps", "daemonsets", "terway"),
            named("apps", "daemonsets", "terway-eniip"),
            named("config.openshift.io", "networks", "cluster"),
            named("network.openshift.io", "clusternetworks", "default"),
        ],
        cloud: &[
            // Whether the instance of a missing node is released.
            CloudAccess::always(actions::DESCRIBE_INSTANCES.0),
            CloudAccess::Action(actions::DESCRIBE_ROUTE_TABLES.0, |config| config.route.table_ids.is_empty()),
            CloudAccess::always(actions::DESCRIBE_ROUTE_ENTRIES.0),
            CloudAccess::always(actions::CREATE_ROUTE_ENTRIES.0),
            CloudAccess::always(actions::DELETE_ROUTE_ENTRIES.0),
        ],
    },
    Controller {
        entry: ControllerEntry {
            default_on: true,
            ..ControllerEntry::new(loadbalancer::NAME, &["service-lb-controller"])
        },
        section: "service",
        on_change: "at once, with a reconcile of all Services",
        objects: &[ObjectKind::Service],
        run: |context| loadbalancer::run(context).boxed(),
        when_off: None,
        preview: |clients, config, only| loadbalancer::plan(LoadBalancerKind::Clb, clients, config, only).boxed(),
        orphans: Some(|clients, config| loadbalancer::orphans(clients, config).boxed()),
        declines: |config, subject| loadbalancer::declines(LoadBalancerKind::Clb, config, service_of(subject)?),
        watches: &[WatchedKind::Nodes, WatchedKind::Services, WatchedKind::Endpoints],
        kubernetes: SERVICES,
        cloud: &[
            CloudAccess::Product(CloudProduct::Slb),
            // Whether the account is the cluster's.
            CloudAccess::always(actions::DESCRIBE_INSTANCES.0),
            // Any Service can ask for directly attached pods, or for an EIP.
            CloudAccess::always(actions::DESCRIBE_NETWORK_INTERFACES.0),
            CloudAccess::always(actions::DESCRIBE_VPC.0),
            CloudAccess::always(actions::DESCRIBE_EIPS.0),
            CloudAccess::Action(actions::DESCRIBE_VSWITCHES.0, |config| config.cloud.vswitches.is_empty()),
        ],
    },
    Controller {
        entry: ControllerEntry::new(loadbalancer::NLB, &["nlb-controller"]),
        section: "nlb",
        on_change: "at once, with a reconcile of all Services of network load balancers",
        objects: &[ObjectKind::Service],
        run: |context| loadbalancer::run_nlb(context).boxed(),
        when_off: None,
        preview: |clients, config, only| loadbalancer::plan(LoadBalancerKind::Nlb, clients, config, only).boxed(),
        orphans: Some(|clients, config| loadbalancer::nlb_orphans(clients, config).boxed()),
        declines: |config, subject| loadbalancer::declines(LoadBalancerKind::Nlb, config, service_of(subject)?),
        watches: &[WatchedKind::Nodes, WatchedKind::Services, WatchedKind::Endpoints],
        kubernetes: SERVICES,
        cloud: &[
            CloudAccess::Product(CloudProduct::Nlb),
            // Whether the account is the cluster's.
            CloudAccess::always(actions::DESCRIBE_INSTANCES.0),
            // Any Service can ask for directly attached pods.
            CloudAccess::always(actions::DESCRIBE_NETWORK_INTERFACES.0),
            CloudAccess::always(actions::DESCRIBE_VPC.0),
            CloudAccess::Action(actions::DESCRIBE_VSWITCHES.0, |config| !state_enough_zones(&config.cloud.vswitches)),
            // Source ranges.
            CloudAccess::always(actions::DESCRIBE_SECURITY_GROUPS.0),
            CloudAccess::always(actions::DESCRIBE_SECURITY_GROUP.0),
            CloudAccess::always(actions::CREATE_SECURITY_GROUP.0),
            CloudAccess::always(actions::AUTHORIZE_SECURITY_GROUP.0),
            CloudAccess::always(actions::REVOKE_SECURITY_GROUP.0),
            CloudAccess::always(actions::DELETE_SECURITY_GROUP.0),
        ],
    },
    Controller {
        entry: ControllerEntry::new(volume::NAME, &["pv-labels", "pvl"]),
        section: "volume_labels",
        on_change: "at once, with a pass over all volumes",
        objects: &[ObjectKind::PersistentVolume],
        run: |context| volume::run(context).boxed(),
        when_off: None,
        preview: |clients, config, _| volume::plan(clients, config).boxed(),
        orphans: None,
        declines: |_, subject| matches!(subject, Subject::Volume(None)).then(|| "it is on no cloud disk".to_owned()),
        // Nodes, for the keys of their labels.
        watches: &[WatchedKind::Nodes, WatchedKind::Volumes],
        kubernetes: &[KubernetesAccess::core("persistentvolumes", &["patch"])],
        cloud: &[CloudAccess::always(actions::DESCRIBE_DISKS.0)],
    },
    Controller {
        entry: ControllerEntry {
            needs: &["pvtz.zone_name", "pvtz.zone_id"],
            ..ControllerEntry::new(pvtz::NAME, &["pvtz-controller"])
        },
        section: "pvtz",
        on_change: "at once, with a comparison of the whole zone",
        objects: &[ObjectKind::Service, ObjectKind::Node],
        run: |context| pvtz::run(context).boxed(),
        when_off: None,
        preview: |clients, config, only| pvtz::plan(clients, config, only).boxed(),
        orphans: Some(|clients, config| pvtz::orphans(clients, config).boxed()),
        declines: |config, subject| pvtz::declines(config, service_of(subject)),
        watches: &[WatchedKind::Services, WatchedKind::Endpoints, WatchedKind::Nodes],
        kubernetes: &[CLUSTER_UID],
        cloud: &[
            CloudAccess::Action(actions::DESCRIBE_ZONE.0, |config| config.pvtz.zone_id.is_some()),
            CloudAccess::Action(actions::DESCRIBE_ZONES.0, |config| config.pvtz.zone_id.is_none()),
            CloudAccess::always(actions::DESCRIBE_ZONE_RECORDS.0),
            CloudAccess::always(actions::ADD_ZONE_RECORD.0),
            CloudAccess::always(actions::UPDATE_ZONE_RECORD.0),
            CloudAccess::always(actions::DELETE_ZONE_RECORD.0),
        ],
    },
];

/// The names that a configuration may use.
pub static CATALOG: Catalog = Catalog {
    controllers: &ENTRIES,
    absent_controllers: &["ingress"],
    actions: actions::NAMES,
    example_action: actions::CREATE_LOAD_BALANCER.0.name,
};

static ENTRIES: [ControllerEntry; CONTROLLERS.len()] = {
    let mut entries = [CONTROLLERS[0].entry; CONTROLLERS.len()];
    let mut row = 1;
    while row < entries.len() {
        entries[row] = CONTROLLERS[row].entry;
        row += 1;
    }
    entries
};

const NODES: KubernetesAccess = KubernetesAccess::core("nodes", &["get"]);
const NODES_STATUS: KubernetesAccess = KubernetesAccess::core("nodes/status", &["patch"]);
/// The uid that tells clusters with the same `cloud.cluster_id` apart.
const CLUSTER_UID: KubernetesAccess =
    KubernetesAccess { name: Some("kube-system"), ..KubernetesAccess::core("namespaces", &["get"]) };

const fn named(group: &'static str, resource: &'static str, name: &'static str) -> KubernetesAccess {
    KubernetesAccess { group, name: Some(name), ..KubernetesAccess::core(resource, &["get"]) }
}

/// What controllers of load balancers read and write.
const SERVICES: &[KubernetesAccess] = &[
    KubernetesAccess::core("services", &["get", "patch"]),
    KubernetesAccess::core("services/status", &["patch"]),
    // For readiness gates: single pods, or those of one Service.
    KubernetesAccess::core("pods", &["get", "list"]),
    KubernetesAccess::core("pods/status", &["patch"]),
    CLUSTER_UID,
];

fn excluded(subject: &Subject) -> Option<String> {
    let Subject::Node(node) = subject else { return None };
    match classify(node) {
        NodeClass::Excluded(why) => Some(why.to_string()),
        NodeClass::Ecs(_) | NodeClass::Unidentified => None,
    }
}

fn service_of(subject: &Subject) -> Option<&ServiceView> {
    if let Subject::Service(service) = subject { Some(service) } else { None }
}

/// The rows that a configuration runs.
pub fn running(config: &Config) -> impl Iterator<Item = &'static Controller> {
    CONTROLLERS.iter().filter(|row| config.controllers.contains(row.name()))
}

/// The fallbacks that a configuration runs.
pub fn fallbacks(config: &Config) -> impl Iterator<Item = &'static Fallback> {
    let off = CONTROLLERS.iter().filter(|row| !config.controllers.contains(row.name()));
    off.filter_map(|row| row.when_off.as_ref())
}

impl Controller {
    /// Its name in the configuration, in logs and in metrics.
    pub const fn name(&self) -> &'static str {
        self.entry.name
    }

    /// How commands are asked about an object of its plan lines.
    pub fn argument(&self, object: &str) -> String {
        let is_it = |kind: &ObjectKind| (*kind == ObjectKind::Service) == object.contains('/');
        let kind = self.objects.iter().copied().find(is_it).unwrap_or(self.objects[0]);
        format!("{}/{object}", kind.short())
    }
}

/// What the controllers of a configuration must be allowed to do in the cluster.
pub fn kubernetes_access(config: &Config) -> impl Iterator<Item = &'static KubernetesAccess> {
    let controllers = running(config).map(|row| (row.watches, row.kubernetes));
    let fallbacks = fallbacks(config).map(|fallback| (fallback.watches, fallback.kubernetes));
    controllers
        .chain(fallbacks)
        .flat_map(|(watches, more)| watches.iter().flat_map(|kind| kind.access()).chain(more))
        .filter(|access| (access.when)(config))
}

/// What the controllers of a configuration call in the cloud.
pub fn cloud_actions(config: &Config) -> impl Iterator<Item = &'static actions::Action> {
    running(config).flat_map(|row| row.cloud).flat_map(|access| access.actions(config))
}

#[cfg(test)]
mod tests;
