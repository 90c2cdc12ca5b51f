//! Rights in the cluster, as RBAC.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use super::{Needed, always, nodes, services};
use crate::config::Config;
use crate::config::file::ResourceLock;

/// What one part of the program does with one kind of object.
struct Right {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    scope: Scope,
    needed: Needed,
    /// Kubernetes versions (`1.<minor>`, both included) on which it is needed.
    versions: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All namespaces, and what has none.
    Cluster,
    /// The lock of the leader election, by its name; creating cannot be limited to a name.
    Lock,
}

fn guards(config: &Config) -> bool {
    config.server.authorization
}

fn locks_endpoints(config: &Config) -> bool {
    config.leader_election.enabled && config.leader_election.resource_lock == ResourceLock::EndpointsLeases
}

const EVER: (u32, u32) = (0, u32::MAX);

const RIGHTS: &[Right] = &[
    // Also without the node controller: routes and backends follow nodes, and where routes are not managed, what a route
    // controller said of nodes is taken back.
    cluster("", "nodes", &["get", "list", "watch"], always, EVER),
    cluster("", "nodes/status", &["patch"], always, EVER),
    cluster("", "nodes", &["patch"], nodes, EVER),
    cluster("", "nodes", &["delete"], |config| nodes(config) && config.node.remove_released, EVER),
    cluster("", "services", &["get", "list", "watch", "patch"], services, EVER),
    cluster("", "services/status", &["patch"], services, EVER),
    cluster("discovery.k8s.io", "endpointslices", &["list", "watch"], services, (17, u32::MAX)),
    // Until the first servers with slices have made them.
    cluster("", "endpoints", &["list", "watch"], services, (0, 20)),
    // Readiness gates. Pods are read one by one, or those of one Service.
    cluster("", "pods", &["get", "list"], services, EVER),
    cluster("", "pods/status", &["patch"], services, EVER),
    cluster("", "events", &["create", "patch"], always, EVER),
    cluster("authentication.k8s.io", "tokenreviews", &["create"], guards, EVER),
    cluster("authorization.k8s.io", "subjectaccessreviews", &["create"], guards, EVER),
    lock("coordination.k8s.io", "leases", &["create"], (14, u32::MAX)),
    lock("coordination.k8s.io", "leases", &["get", "update"], (14, u32::MAX)),
    lock("", "configmaps", &["create"], (0, 13)),
    lock("", "configmaps", &["update"], (0, 13)),
    // A copy from before an upgrade of the API server may still hold the older lock.
    lock("", "configmaps", &["get"], EVER),
    Right { needed: locks_endpoints, ..lock("", "endpoints", &["create"], EVER) },
    Right { needed: locks_endpoints, ..lock("", "endpoints", &["get", "update"], EVER) },
];

const fn cluster(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    needed: Needed,
    versions: (u32, u32),
) -> Right {
    Right { group, resource, verbs, scope: Scope::Cluster, needed, versions }
}

const fn lock(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    versions: (u32, u32),
) -> Right {
    Right { group, resource, verbs, scope: Scope::Lock, needed: |config| config.leader_election.enabled, versions }
}

/// The version of the API server, as far as rights depend on it: `1.<minor>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerVersion(
    /// The second number.
    pub u32,
);

impl ServerVersion {
    /// Everything that recent API servers have.
    pub const NEWEST: Self = Self(u32::MAX);
}

impl FromStr for ServerVersion {
    type Err = String;

    /// Takes what people and servers write: `1.11`, `v1.11.0+d4cacc0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.").unwrap_or_default();
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        minor.parse().map(Self).map_err(|_| format!("{text:?} is no version of Kubernetes; write it as 1.11"))
    }
}

/// One rule of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Empty for the core group.
    pub group: &'static str,
    /// Such as `nodes` or `nodes/status`.
    pub resource: &'static str,
    /// The only name that it is about; all if absent.
    pub name: Option<String>,
    /// In the order of the table.
    pub verbs: Vec<&'static str>,
}

/// Everything that a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// In all namespaces.
    pub cluster: Vec<Rule>,
    /// In the namespace of the lock.
    pub lock: Vec<Rule>,
}

/// What the program needs with this configuration on a server of this version.
#[must_use]
pub fn rules(config: &Config, version: ServerVersion) -> Rules {
    let of = |scope: Scope| {
        let mut order = Vec::new();
        let mut verbs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let wanted = RIGHTS.iter().filter(|right| {
            right.scope == scope && (right.needed)(config) && (right.versions.0..=right.versions.1).contains(&version.0)
        });
        for right in wanted {
            let named = scope == Scope::Lock && !right.verbs.contains(&"create");
            let key = (right.group, right.resource, named);
            if !verbs.contains_key(&key) {
                order.push(key);
            }
            verbs.entry(key).or_default().extend(right.verbs);
        }
        let rule = |key: (&'static str, &'static str, bool)| Rule {
            group: key.0,
            resource: key.1,
            name: key.2.then(|| config.leader_election.name.clone()),
            verbs: verbs.get(&key).cloned().unwrap_or_default(),
        };
        order.into_iter().map(rule).collect()
    };
    Rules { cluster: of(Scope::Cluster), lock: of(Scope::Lock) }
}

/// Who gets the rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// In the cluster.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Outside of it: the common name of a client certificate, or the user of a token.
    User(String),
}

/// Name of every role and binding.
const NAME: &str = "alicloud-ccm";
/// As roles of system components are called.
const CLUSTER_NAME: &str = "system:alicloud-ccm";

/// The manifests: roles and their bindings.
#[must_use]
pub fn manifests(config: &Config, version: ServerVersion, subject: &Subject) -> String {
    let rules = rules(config, version);
    let mut text = "# Least rights, as printed by: alicloud-ccm rbac\n".to_owned();
    push_role(&mut text, "ClusterRole", CLUSTER_NAME, None, &rules.cluster, subject);
    if !rules.lock.is_empty() {
        text.push_str("---\n");
        push_role(&mut text, "Role", NAME, Some(&config.leader_election.namespace), &rules.lock, subject);
    }
    text
}

fn push_role(text: &mut String, kind: &str, name: &str, namespace: Option<&str>, rules: &[Rule], subject: &Subject) {
    let mut metadata = format!("metadata:\n  name: {name}\n");
    if let Some(namespace) = namespace {
        let _ = writeln!(metadata, "  namespace: {namespace:?}");
    }
    let _ = write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n{metadata}rules:\n");
    for Rule { group, resource, name, verbs } in rules {
        let _ = write!(text, "  - apiGroups: [{group:?}]\n    resources: [{resource}]\n");
        if let Some(name) = name {
            let _ = writeln!(text, "    resourceNames: [{name:?}]");
        }
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
    let _ = write!(
        text,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\n{metadata}roleRef:\n  \
         apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\nsubjects:\n"
    );
    let _ = match subject {
        Subject::ServiceAccount { namespace, name } => {
            write!(text, "  - kind: ServiceAccount\n    name: {name:?}\n    namespace: {namespace:?}\n")
        }
        Subject::User(name) => {
            write!(text, "  - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {name:?}\n")
        }
    };
}
