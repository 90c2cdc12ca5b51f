//! Manifests against the fields that API servers of several versions know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{chart, everything, yaml};
use crate::documents;

/// What `.ci/kubernetes-fields` wrote.
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("fields.txt")));

pub(crate) struct Table {
    versions: Vec<&'static str>,
    /// By definition and field, the types with the versions that have them.
    fields: BTreeMap<(&'static str, &'static str), Vec<FieldType>>,
}

/// The type of a field in some versions, or the texts that it may have (`a|b`); a `!` at its end says that it is required.
struct FieldType {
    name: &'static str,
    versions: std::ops::RangeInclusive<usize>,
}

impl Table {
    pub(crate) fn read(text: &'static str) -> Self {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let versions: Vec<_> = lines.next().unwrap().split(' ').skip(1).collect();
        let index = |version: &str| versions.iter().position(|known| *known == version).unwrap();
        let mut fields: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in lines {
            let [definition, field, name, range] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let (first, last) = range.split_once('-').unwrap();
            fields
                .entry((definition, field))
                .or_default()
                .push(FieldType { name, versions: index(first)..=index(last) });
        }
        Self { versions, fields }
    }

    fn type_of(&self, definition: &str, field: &str, version: usize) -> Option<&'static str> {
        let types = self.fields.get(&(definition, field))?;
        types.iter().find(|it| it.versions.contains(&version)).map(|it| it.name)
    }

    /// What is wrong with an object of this definition: fields that the version does not know, lacks or has with another type.
    pub(crate) fn judge(&self, version: usize, definition: &str, value: &Value, found: &mut BTreeSet<String>) {
        let Some(object) = value.as_object() else {
            found.insert(format!("{definition} is no object"));
            return;
        };
        for (field, value) in object {
            match self.type_of(definition, field, version) {
                Some(kind) => {
                    self.judge_type(version, &format!("{definition}.{field}"), kind.trim_end_matches('!'), value, found)
                }
                None => drop(found.insert(format!("{definition}.{field} is unknown"))),
            }
        }
        for (known, field) in self.fields.keys().filter(|(known, _)| *known == definition) {
            let is_required = self.type_of(known, field, version).is_some_and(|kind| kind.ends_with('!'));
            if is_required && object.get(*field).is_none_or(Value::is_null) {
                found.insert(format!("{definition}.{field} is missing"));
            }
        }
    }

    fn judge_type(&self, version: usize, place: &str, kind: &str, value: &Value, found: &mut BTreeSet<String>) {
        let inner = |prefix: &str| kind.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(']'));
        if let (Some(item), Some(list)) = (inner("list["), value.as_array()) {
            list.iter().for_each(|value| self.judge_type(version, place, item, value, found));
        } else if let (Some(item), Some(map)) = (inner("dict[str,"), value.as_object()) {
            map.values().for_each(|value| self.judge_type(version, place, item, value, found));
        } else if kind.starts_with(char::is_uppercase) {
            self.judge(version, kind, value, found);
        } else {
            let fits = match kind {
                "str" | "datetime" => value.is_string(),
                "int" => value.is_i64(),
                "bool" => value.is_boolean(),
                "object" => true,
                words => value.as_str().is_some_and(|text| words.split('|').any(|word| word == text)),
            };
            // A field without a value is left out, as the API server does.
            if !fits && !value.is_null() {
                found.insert(format!("{place} is no {kind}"));
            }
        }
    }
}

/// The API groups in the table; objects of others, such as kubeadm's, are read by programs and not by API servers.
const GROUPS: [&str; 6] = [
    "v1",
    "apps/v1",
    "rbac.authorization.k8s.io/v1",
    "monitoring.coreos.com/v1",
    "security.openshift.io/v1",
    "machineconfiguration.openshift.io/v1",
];

/// What versions have to say about these objects, by version.
fn findings(objects: &[Value]) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut findings = BTreeMap::new();
    for (index, version) in TABLE.versions.iter().enumerate() {
        let found: &mut BTreeSet<_> = findings.entry(*version).or_default();
        for object in objects {
            let definition = format!("V1{}", object["kind"].as_str().unwrap_or_default());
            let group = object["apiVersion"].as_str().unwrap_or_default();
            if GROUPS.contains(&group) && object["kind"] != "List" {
                TABLE.judge(index, &definition, object, found);
            }
        }
    }
    findings
}

#[test]
fn the_table_finds_what_is_wrong() {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": {
        "containers": [{ "image": 7, "ports": [{ "containerPort": "80" }], "startupProbe": { "httpGet": { "port": 1 } } }],
        "hostNetwrok": true,
    } });
    let found = findings(&[pod]);
    let wrong =
        ["V1Container.image is no str", "V1Container.name is missing", "V1ContainerPort.containerPort is no int"];
    for (version, found) in &found {
        for problem in wrong.into_iter().chain(["V1PodSpec.hostNetwrok is unknown"]) {
            assert!(found.contains(problem), "{version}: {problem}: {found:?}");
        }
    }
    let unknown = |version: &str| found[version].contains("V1Container.startupProbe is unknown");
    assert!(unknown("1.11") && !unknown("1.16"));
}

/// Fields that old versions do not know: their API servers leave them out, and `oc apply` needs `--validate=false`, as
/// docs/guides/openshift.md says. The pods run without theirs; the examples with a class of load balancer are for newer versions.
const NEWER: [(&str, &str); 5] = [
    ("1.11", "V1PodSecurityContext.seccompProfile is unknown"),
    ("1.11", "V1PodSpec.enableServiceLinks is unknown"),
    ("1.11", "V1ServiceSpec.loadBalancerClass is unknown"),
    ("1.16", "V1PodSecurityContext.seccompProfile is unknown"),
    ("1.16", "V1ServiceSpec.loadBalancerClass is unknown"),
];

#[test]
fn manifests_and_examples_are_valid_from_kubernetes_1_11_to_the_newest() {
    let files = [
        "monitoring/service-monitor.yaml",
        "monitoring/prometheusrule.yaml",
        "openshift/machineconfig-master.yaml",
        "openshift/machineconfig-worker.yaml",
    ];
    let authority = |kind: &str| json!({ kind: { "name": "one", "key": "ca.crt", "optional": true } });
    let verified = json!({
        "serverName": "alicloud-ccm", "insecureSkipVerify": false, "minVersion": "TLS12", "maxVersion": "TLS13",
        "ca": authority("configMap"), "cert": authority("secret"), "keySecret": { "name": "one", "key": "tls.key" },
    });
    let monitored = json!({
        "server": { "tlsSecret": "mine" },
        "serviceMonitor": { "enabled": true, "tlsConfig": verified },
        "podMonitor": { "enabled": true, "tokenSecret": "token", "tlsConfig": verified },
        "alerts": { "enabled": true },
        "dashboard": { "enabled": true },
        "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["api.example.com"] }],
        "rrsa": { "roleArn": "acs:ram::1:role/ccm", "oidcProviderArn": "acs:ram::1:oidc-provider/cluster" },
    });
    let charts = chart::template(&monitored, "kube-system").map(|rendered| rendered.unwrap().into_values());
    // Only the chart has it.
    let of_chart = charts.is_some().then_some("PodMonitor");
    let objects: Vec<_> = [everything(), documents::objects(), files.into_iter().flat_map(yaml).collect()].concat();
    let objects: Vec<_> = objects.into_iter().chain(charts.into_iter().flatten()).collect();
    let kinds: BTreeSet<_> = objects.iter().filter_map(|object| object["kind"].as_str()).collect();
    for kind in [
        "DaemonSet",
        "Deployment",
        "Pod",
        "ClusterRole",
        "Role",
        "RoleBinding",
        "Service",
        "ConfigMap",
        "Secret",
        "ServiceMonitor",
        "PrometheusRule",
        "SecurityContextConstraints",
        "MachineConfig",
    ]
    .into_iter()
    .chain(of_chart)
    {
        assert!(kinds.contains(kind), "{kind} is not judged: {kinds:?}");
    }
    let findings = findings(&objects);
    let found = findings.iter().flat_map(|(version, found)| found.iter().map(|problem| (*version, problem.as_str())));
    assert_eq!(found.collect::<Vec<_>>(), NEWER);
}
