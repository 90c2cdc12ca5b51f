//! Roles and bindings, evaluated as the API server does.

use serde_json::Value;

use super::object::text;
use super::request::Deed;

/// What a subject may do.
#[derive(Clone, Debug)]
struct Grant {
    subject: String,
    /// Where it holds; everywhere if absent.
    namespace: Option<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: Vec<String>,
}

/// Everything that is granted.
#[derive(Debug)]
pub(super) struct Rbac {
    grants: Vec<Grant>,
}

impl Rbac {
    /// Reads roles and bindings; other objects are passed over. A binding whose role is not there grants nothing.
    pub(super) fn read(objects: &[Value]) -> Rbac {
        let mut grants = Vec::new();
        for binding in objects {
            let namespace = match text(binding, "/kind") {
                "ClusterRoleBinding" => None,
                "RoleBinding" => Some(text(binding, "/metadata/namespace")),
                _ => continue,
            };
            let (kind, name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
            let roles = objects.iter().filter(|role| {
                let same_namespace = kind == "ClusterRole" || Some(text(role, "/metadata/namespace")) == namespace;
                text(role, "/kind") == kind && text(role, "/metadata/name") == name && same_namespace
            });
            for rule in roles.flat_map(|role| list(&role["rules"])) {
                for subject in list(&binding["subjects"]) {
                    grants.push(Grant {
                        subject: user_of(subject),
                        namespace: namespace.map(str::to_owned),
                        groups: texts(&rule["apiGroups"]),
                        resources: texts(&rule["resources"]),
                        names: texts(&rule["resourceNames"]),
                        verbs: texts(&rule["verbs"]),
                    });
                }
            }
        }
        Rbac { grants }
    }

    pub(super) fn allows(&self, user: &str, deed: &Deed) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        self.grants.iter().any(|grant| {
            grant.subject == user
                && grant.namespace.as_ref().is_none_or(|namespace| *namespace == deed.namespace)
                && has(&grant.groups, &deed.group)
                && has(&grant.resources, &deed.target)
                && has(&grant.verbs, &deed.verb)
                && (grant.names.is_empty() || grant.names.contains(&deed.name))
        })
    }
}

fn user_of(subject: &Value) -> String {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "ServiceAccount" => format!("system:serviceaccount:{}:{name}", text(subject, "/namespace")),
        _ => name.to_owned(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::request::Request;
    use super::*;
    use crate::cluster::Version;

    #[test]
    fn what_is_not_granted_is_refused() {
        let rbac = Rbac::read(&[
            json!({"kind": "ClusterRole", "metadata": {"name": "r"},
                   "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}),
            json!({"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": "r"},
                   "subjects": [{"kind": "User", "name": "u"}]}),
            json!({"kind": "Role", "metadata": {"name": "r", "namespace": "n"},
                   "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"], "verbs": ["get", "create"]}]}),
            json!({"kind": "RoleBinding", "metadata": {"namespace": "n"}, "roleRef": {"kind": "Role", "name": "r"},
                   "subjects": [{"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
        ]);
        let allows = |user: &str, method: &str, path: &str| {
            let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
            rbac.allows(user, &Deed::of(&Request::read(Version::NEWEST, &request.into_parts().0).unwrap()))
        };
        assert!(allows("u", "GET", "/api/v1/nodes/a"));
        assert!(!allows("u", "GET", "/api/v1/nodes"), "listing is another verb");
        assert!(!allows("u", "GET", "/api/v1/nodes/a/status"), "the subresource is another resource");
        assert!(!allows("v", "GET", "/api/v1/nodes/a"));
        let account = "system:serviceaccount:n:s";
        assert!(allows(account, "GET", "/api/v1/namespaces/n/configmaps/c"));
        assert!(!allows(account, "GET", "/api/v1/namespaces/n/configmaps/d"));
        assert!(!allows(account, "GET", "/api/v1/namespaces/m/configmaps/c"));
        assert!(!allows(account, "POST", "/api/v1/namespaces/n/configmaps"), "what is created has no name yet");
    }
}
