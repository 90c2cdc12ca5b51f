//! `rbac`: manifests with the least permissions in the cluster.

use std::fmt::Write as _;

use crate::cli::{NEWEST_SERVER, RbacArgs};
use crate::cluster::Right;
use crate::config::Config;
use crate::config::file::ResourceLock;
use crate::controllers::registry::{self, KubernetesAccess};
use crate::plan::inputs::ObjectKey;

/// What every process reads of the cluster: the node that it runs on, to write events about it.
const PROCESS: &[KubernetesAccess] = &[KubernetesAccess::core("nodes", &["get", "list", "watch"])];

/// What it writes besides its controllers.
const REPORTS: &[KubernetesAccess] = &[
    KubernetesAccess::core("events", &["create", "patch"]),
    KubernetesAccess {
        group: "authentication.k8s.io",
        when: |config| config.server.authorization,
        ..KubernetesAccess::core("tokenreviews", &["create"])
    },
    KubernetesAccess {
        group: "authorization.k8s.io",
        when: |config| config.server.authorization,
        ..KubernetesAccess::core("subjectaccessreviews", &["create"])
    },
];

/// The lock of the leader election. Creating cannot be limited to a name.
const LOCK: &[KubernetesAccess] = &[
    lease(&["create"]),
    lease(&["get", "update"]),
    KubernetesAccess { versions: 0..=13, ..config_map(&["create"]) },
    KubernetesAccess { versions: 0..=13, ..config_map(&["update"]) },
    // A replica from before an upgrade of the API server may still hold the older lock.
    config_map(&["get"]),
    endpoints(&["create"]),
    endpoints(&["get", "update"]),
];

const fn lease(verbs: &'static [&'static str]) -> KubernetesAccess {
    let group = "coordination.k8s.io";
    let versions = 14..=u32::MAX;
    KubernetesAccess { group, versions, when: elects, ..KubernetesAccess::core("leases", verbs) }
}

const fn config_map(verbs: &'static [&'static str]) -> KubernetesAccess {
    KubernetesAccess { when: elects, ..KubernetesAccess::core("configmaps", verbs) }
}

const fn endpoints(verbs: &'static [&'static str]) -> KubernetesAccess {
    let when =
        |config: &Config| elects(config) && config.leader_election.resource_lock == ResourceLock::EndpointsLeases;
    KubernetesAccess { when, ..KubernetesAccess::core("endpoints", verbs) }
}

fn elects(config: &Config) -> bool {
    config.leader_election.enabled
}

/// In which order verbs are printed.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// One rule of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RoleRule {
    group: &'static str,
    resource: &'static str,
    /// The only name that it is about; all if absent.
    name: Option<String>,
    verbs: Vec<&'static str>,
}

/// Everything that the process must be allowed, right by right.
pub(super) fn rights(config: &Config, version: u32) -> Vec<Right> {
    let namespace = &config.leader_election.namespace;
    let cluster = cluster_rules(config, version).into_iter().map(|rule| (String::new(), rule));
    let lock = lock_rules(config, version).into_iter().map(|rule| (namespace.clone(), rule));
    let each = |(namespace, rule): (String, RoleRule)| {
        let RoleRule { group, resource, name, verbs } = rule;
        let name = name.unwrap_or_default();
        let right = move |verb| Right { group, resource, verb, namespace: namespace.clone(), name: name.clone() };
        verbs.into_iter().map(right)
    };
    cluster.chain(lock).flat_map(each).collect()
}

/// In all namespaces.
fn cluster_rules(config: &Config, version: u32) -> Vec<RoleRule> {
    let reports = REPORTS.iter().filter(|access| (access.when)(config));
    rules(PROCESS.iter().chain(registry::kubernetes_access(config)).chain(reports), version, None)
}

/// In the namespace of the lock.
fn lock_rules(config: &Config, version: u32) -> Vec<RoleRule> {
    let needed = LOCK.iter().filter(|access| (access.when)(config));
    rules(needed, version, Some(&config.leader_election.name))
}

/// One rule for each resource, in the order of the first permission on it. Where a permission or `lock` names an object, only
/// for that one, apart from creating.
fn rules<'a>(
    accesses: impl Iterator<Item = &'a KubernetesAccess>,
    version: u32,
    lock: Option<&String>,
) -> Vec<RoleRule> {
    let mut rules: Vec<RoleRule> = Vec::new();
    for access in accesses.filter(|access| access.versions.contains(&version)) {
        let KubernetesAccess { group, resource, verbs, .. } = *access;
        let name = access.name.or(lock.map(String::as_str)).filter(|_| !verbs.contains(&"create"));
        let same = |rule: &&mut RoleRule| (rule.group, rule.resource, rule.name.as_deref()) == (group, resource, name);
        match rules.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(verbs),
            None => rules.push(RoleRule { group, resource, name: name.map(str::to_owned), verbs: verbs.to_vec() }),
        }
    }
    for rule in &mut rules {
        rule.verbs = VERBS.into_iter().filter(|verb| rule.verbs.contains(verb)).collect();
    }
    rules
}

/// Name of the role in the namespace of the lock, and of its binding.
const ROLE: &str = "alicloud-ccm";
/// As roles of system components are called.
const CLUSTER_ROLE: &str = "system:alicloud-ccm";

/// The roles and their bindings, and the service account that these name.
pub(super) fn manifests(config: &Config, arguments: RbacArgs) -> String {
    let version = arguments.kubernetes.unwrap_or(NEWEST_SERVER);
    let mut text = "# Least rights, as printed by: alicloud-ccm rbac\n".to_owned();
    let subject = match arguments.user {
        // The common name of a client certificate, or the user of a token.
        Some(name) => format!("  - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {name:?}\n"),
        None => {
            let ObjectKey { namespace, name } = arguments.service_account;
            let metadata = format!("metadata:\n  name: {name:?}\n  namespace: {namespace:?}\n");
            let _ = write!(text, "apiVersion: v1\nkind: ServiceAccount\n{metadata}---\n");
            format!("  - kind: ServiceAccount\n    name: {name:?}\n    namespace: {namespace:?}\n")
        }
    };
    let metadata = format!("metadata:\n  name: {CLUSTER_ROLE}\n");
    push_role(&mut text, ("ClusterRole", CLUSTER_ROLE), &metadata, &cluster_rules(config, version), &subject);
    let lock = lock_rules(config, version);
    if !lock.is_empty() {
        text.push_str("---\n");
        let metadata = format!("metadata:\n  name: {ROLE}\n  namespace: {:?}\n", config.leader_election.namespace);
        push_role(&mut text, ("Role", ROLE), &metadata, &lock, &subject);
    }
    text
}

/// The kubeconfig for a process outside of the cluster; an error if it is not known where the API server is.
pub(super) fn kubeconfig(config: &Config, arguments: RbacArgs) -> Result<String, &'static str> {
    let server = config.kubernetes.server.as_ref().ok_or(
        "kubernetes.server is not set, and the kubeconfig must name the API server: add --set kubernetes.server=https://ADDRESS:6443, \
         an address that needs no cluster DNS",
    )?;
    let (user, files, credentials) = match arguments.user {
        Some(user) => {
            let files = format!("client.crt, client.key: a client certificate of the common name {user:?} and its key");
            (user, files, "client-certificate: client.crt\n      client-key: client.key")
        }
        None => {
            let ObjectKey { namespace, name } = arguments.service_account;
            let files =
                format!("token: kubectl -n {namespace} create token {name} --duration=8760h; renewed before it ends");
            (format!("system:serviceaccount:{namespace}:{name}"), files, "tokenFile: token")
        }
    };
    Ok(format!(
        "# Beside this file, readable for the user of the program alone:\n# ca.crt: the authority of the API server, on masters \
         /etc/kubernetes/pki/ca.crt\n# {files}\napiVersion: v1\nkind: Config\nclusters:\n  - name: cluster\n    cluster:\n      \
         server: {server:?}\n      certificate-authority: ca.crt\nusers:\n  - name: {user:?}\n    user:\n      {credentials}\n\
         contexts:\n  - name: alicloud-ccm\n    context:\n      cluster: cluster\n      user: {user:?}\ncurrent-context: \
         alicloud-ccm\n"
    ))
}

fn push_role(text: &mut String, role: (&str, &str), metadata: &str, rules: &[RoleRule], subject: &str) {
    let (kind, name) = role;
    let _ = write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n{metadata}rules:\n");
    for RoleRule { group, resource, name, verbs } in rules {
        let _ = write!(text, "  - apiGroups: [{group:?}]\n    resources: [{resource}]\n");
        if let Some(name) = name {
            let _ = writeln!(text, "    resourceNames: [{name:?}]");
        }
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
    let _ = write!(
        text,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\n{metadata}roleRef:\n  \
         apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\nsubjects:\n{subject}"
    );
}

#[cfg(test)]
mod tests;
