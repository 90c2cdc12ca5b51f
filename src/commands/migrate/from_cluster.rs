//! Finds the official controller in the cluster, and reads what it is given: the Deployment, the DaemonSet or the mirror of a
//! static pod, and the ConfigMap or Secret with its cloud config. Writes nothing.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::official::Official;
use crate::cluster::{Cluster, ObjectPath, WriteFault};
use crate::config::secret::Secret;
use crate::config::{KNOWN_VARIABLES, ProblemPlace};

/// Where its manifests put it, on Kubernetes and on OpenShift 4.
const NAMESPACES: [&str; 2] = ["kube-system", "openshift-cloud-controller-manager"];
const KINDS: [(&str, &str, &str); 3] = [
    ("Deployment", "/apis/apps/v1", "deployments"),
    ("DaemonSet", "/apis/apps/v1", "daemonsets"),
    ("Pod", CORE, "pods"),
];
const CORE: &str = "/api/v1";
/// The kubelet's mark on what it shows of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Names of its program; its images begin with them.
const PROGRAMS: [&str; 2] = ["cloud-controller-manager", "alibaba-cloud-controller-manager"];
/// Where ACK puts the token of an addon.
const ADDON_TOKEN: &str = "/var/addon";
/// What must not be skipped silently.
const BY_FILES: &str = "on a machine that has the file, run: alicloud-ccm migrate --cloud-config FILE -- FLAGS";

/// The object that runs the official controller.
struct Workload {
    /// Kind, namespace and name, for people.
    name: String,
    namespace: &'static str,
    pod: Value,
    container: Value,
    arguments: Vec<String>,
}

/// Adds to `official` what the cluster shows; the cloud config only if `wants_file`.
pub(super) async fn read(cluster: &Cluster, official: &mut Official, wants_file: bool) {
    let workloads = find(cluster, official).await;
    let Some(workload) = choose(workloads, official) else { return };
    let place = ProblemPlace::Whole { file: PathBuf::from(&workload.name) };
    official.is_v1 |= is_v1(workload.container["image"].as_str().unwrap_or_default());
    official.notes.push(format!("read from the {}", workload.name));
    if workload.arguments.iter().any(|argument| argument.contains('$')) {
        official.is_problem(place.clone(), "the command line names variables, which cannot be read", BY_FILES);
    }
    official.read_flags(&workload.arguments, |_| place.clone());
    read_environment(cluster, &workload, official).await;
    if texts(&workload.container["volumeMounts"], "mountPath").any(|path| path.starts_with(ADDON_TOKEN)) {
        let note =
            "its credentials are the token of an addon, which this program cannot read: give it a RAM role or a key";
        official.notes.push(note.to_owned());
    }
    let named = official.stated.iter().rev().find(|stated| stated.setting.name == "--cloud-config");
    if let Some(path) = named.map(|stated| PathBuf::from(&stated.value)).filter(|_| wants_file) {
        read_cloud_config(cluster, &workload, &path, official).await;
    }
}

async fn find(cluster: &Cluster, official: &mut Official) -> Vec<Workload> {
    let mut found = Vec::new();
    for namespace in NAMESPACES {
        for (kind, api, plural) in KINDS {
            let is_it = |object: &Value| {
                let is_static = !object["metadata"]["annotations"][MIRROR].is_null();
                (kind != "Pod" || is_static) && official_container(object).is_some()
            };
            match cluster.look_through(ObjectPath { api, namespace, plural }, is_it).await {
                Ok(objects) => found.extend(objects.iter().filter_map(|object| workload(kind, namespace, object))),
                Err(fault) => unread(official, &format!("{plural} in {namespace}"), &fault),
            }
        }
    }
    found
}

fn unread(official: &mut Official, what: &str, fault: &WriteFault) {
    let place = ProblemPlace::Whole { file: PathBuf::from(what) };
    let help =
        "run this as a user who may read it, or read the files: alicloud-ccm migrate --cloud-config FILE -- FLAGS";
    official.is_problem(place, format!("cannot be read: {fault}"), help);
}

/// The only one, or one of several static pods, of which each master has its own.
fn choose(mut workloads: Vec<Workload>, official: &mut Official) -> Option<Workload> {
    let Some(first) = workloads.first() else {
        // What could not be read has been told, and may hold it.
        if official.problems.is_empty() {
            let place = ProblemPlace::Whole { file: PathBuf::from(format!("namespaces {}", NAMESPACES.join(", "))) };
            let message = "the official controller is not found as Deployment, DaemonSet or static pod";
            official.is_problem(place, message, BY_FILES);
        }
        return None;
    };
    let first = first.name.starts_with("Pod").then(|| workloads[0].arguments.clone());
    let alike = first.as_ref().is_some_and(|first| workloads.iter().all(|other| other.arguments == *first));
    if workloads.len() > 1 && !alike {
        let names = workloads.iter().map(|workload| workload.name.as_str()).collect::<Vec<_>>().join("; ");
        let place = ProblemPlace::Whole { file: PathBuf::from(names) };
        official.is_problem(place, "the official controller is there more than once, with flags of its own", BY_FILES);
        return None;
    }
    Some(workloads.swap_remove(0))
}

fn workload(kind: &str, namespace: &'static str, object: &Value) -> Option<Workload> {
    let (container, arguments) = official_container(object)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let pod = pod_spec(object).clone();
    Some(Workload {
        name: format!("{kind} {namespace}/{name}"),
        namespace,
        pod,
        container: container.clone(),
        arguments,
    })
}

fn pod_spec(object: &Value) -> &Value {
    object.pointer("/spec/template/spec").unwrap_or(&object["spec"])
}

/// The container of the official controller, and the arguments of its program.
fn official_container(object: &Value) -> Option<(&Value, Vec<String>)> {
    let containers = pod_spec(object)["containers"].as_array()?;
    containers.iter().find_map(|container| Some((container, arguments(container)?)))
}

/// The arguments of the official controller, also out of a shell script; `None` if another program runs.
fn arguments(container: &Value) -> Option<Vec<String>> {
    let list = |name: &str| container[name].as_array().cloned().unwrap_or_default();
    let lines: Vec<Value> = list("command").into_iter().chain(list("args")).collect();
    let lines = lines.iter().filter_map(Value::as_str);
    let words = lines.flat_map(|line| {
        if line.contains("cloud-controller-manager") { line.split_whitespace().collect() } else { vec![line] }
    });
    let words: Vec<&str> = words.map(|word| word.trim_matches(['"', '\''])).filter(|word| *word != "\\").collect();
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let program = words.iter().position(|word| PROGRAMS.contains(&last(word).as_str()));
    let image = last(container["image"].as_str().unwrap_or_default());
    let rest = match program {
        Some(at) => &words[at + 1..],
        None if PROGRAMS.iter().any(|program| image.starts_with(program)) => &words[..],
        None => return None,
    };
    Some(rest.iter().map(|word| (*word).to_owned()).collect())
}

/// Whether an image such as `registry/acs/cloud-controller-manager-amd64:v1.9.3.340-g1234` is of the first generation.
fn is_v1(image: &str) -> bool {
    image.rsplit_once(':').is_some_and(|(_, tag)| tag.starts_with("v1."))
}

fn texts<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[field].as_str())
}

/// Where an entry of a ConfigMap or a Secret is.
#[derive(Debug, PartialEq)]
struct ConfigEntry {
    plural: &'static str,
    name: String,
    key: String,
}

impl ConfigEntry {
    fn describe(&self) -> PathBuf {
        let kind = if self.plural == "secrets" { "Secret" } else { "ConfigMap" };
        PathBuf::from(format!("{kind} {}, key {}", self.name, self.key))
    }

    /// What it holds; `None` if there is no such entry.
    async fn read(&self, cluster: &Cluster, namespace: &str) -> Result<Option<String>, WriteFault> {
        let path = ObjectPath { api: CORE, namespace, plural: self.plural };
        let object = cluster.look_up(path, &self.name).await?.unwrap_or_default();
        let text = object["data"][&self.key].as_str();
        if self.plural != "secrets" {
            return Ok(text.map(str::to_owned));
        }
        let decoded = text.and_then(|text| STANDARD.decode(text).ok());
        Ok(decoded.and_then(|bytes| String::from_utf8(bytes).ok()))
    }
}

/// The ConfigMap or Secret that a file in the container comes from.
fn entry_of(pod: &Value, container: &Value, path: &Path) -> Option<ConfigEntry> {
    let mounts = container["volumeMounts"].as_array()?.iter();
    let mount = mounts.filter(|mount| path.starts_with(mount["mountPath"].as_str().unwrap_or("/")));
    let mount = mount.max_by_key(|mount| mount["mountPath"].as_str().map(str::len))?;
    let volume = pod["volumes"].as_array()?.iter().find(|volume| volume["name"] == mount["name"])?;
    let inside = path.strip_prefix(mount["mountPath"].as_str()?).ok()?.to_str()?;
    let inside = if inside.is_empty() { mount["subPath"].as_str()? } else { inside };
    let (plural, source, name) = match (&volume["configMap"], &volume["secret"]) {
        (Value::Null, secret) => ("secrets", secret, &secret["secretName"]),
        (config_map, _) => ("configmaps", config_map, &config_map["name"]),
    };
    let mut items = source["items"].as_array().into_iter().flatten();
    let item = items.find(|item| item["path"] == inside).and_then(|item| item["key"].as_str());
    Some(ConfigEntry { plural, name: name.as_str()?.to_owned(), key: item.unwrap_or(inside).to_owned() })
}

async fn read_cloud_config(cluster: &Cluster, workload: &Workload, path: &Path, official: &mut Official) {
    let Some(entry) = entry_of(&workload.pod, &workload.container, path) else {
        let place = ProblemPlace::Whole { file: PathBuf::from(&workload.name) };
        let message = format!("the cloud config {} comes from no ConfigMap and no Secret", path.display());
        let help = "add --cloud-config FILE with a copy of the file";
        return official.is_problem(place, message, help);
    };
    match entry.read(cluster, workload.namespace).await {
        Ok(Some(text)) => official.read_cloud_config(&entry.describe(), &text),
        Ok(None) => {
            let place = ProblemPlace::Whole { file: entry.describe() };
            official.is_problem(place, "the cloud config is not there", "add --cloud-config FILE with a copy of it");
        }
        Err(fault) => unread(official, &entry.describe().display().to_string(), &fault),
    }
}

/// Where a variable of the container has its value from, if it is not stated itself.
fn entry_of_variable(variable: &Value) -> Option<ConfigEntry> {
    let from = &variable["valueFrom"];
    let (plural, source) = match (&from["configMapKeyRef"], &from["secretKeyRef"]) {
        (Value::Null, secret) => ("secrets", secret),
        (config_map, _) => ("configmaps", config_map),
    };
    Some(ConfigEntry { plural, name: source["name"].as_str()?.to_owned(), key: source["key"].as_str()?.to_owned() })
}

async fn read_environment(cluster: &Cluster, workload: &Workload, official: &mut Official) {
    for variable in workload.container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        let key = KNOWN_VARIABLES.iter().find(|(known, _)| *known == name);
        if key.is_none() && !matches!(name, "ACCESS_KEY_ID" | "ACCESS_KEY_SECRET") {
            continue;
        }
        let value = match (variable["value"].as_str(), entry_of_variable(variable)) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some(entry)) => match entry.read(cluster, workload.namespace).await {
                Ok(text) => text,
                Err(fault) => {
                    unread(official, &entry.describe().display().to_string(), &fault);
                    continue;
                }
            },
            (None, None) => None,
        };
        let Some(value) = value.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) else { continue };
        match (key, name) {
            (Some((name, key)), _) => {
                let place = ProblemPlace::Variable { variable: format!("{name} of the {}", workload.name) };
                official.variables.push((key, name, value, place));
            }
            (None, "ACCESS_KEY_ID") => official.key_pair.0 = Some(Secret::new(value)),
            (None, _) => official.key_pair.1 = Some(Secret::new(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_official_controller_is_told_from_other_programs() {
        let given = |container: Value| arguments(&container);
        let image = "registry.cn-hangzhou.aliyuncs.com/acs/cloud-controller-manager-amd64:v2.14.0";
        assert_eq!(given(json!({ "image": image, "args": ["--v=2"] })), Some(vec!["--v=2".to_owned()]));
        let command = json!(["/cloud-controller-manager", "--cluster-cidr", "10.0.0.0/8"]);
        let given_there = given(json!({ "image": "mirror/ccm@sha256:1", "command": command }));
        assert_eq!(given_there, Some(vec!["--cluster-cidr".to_owned(), "10.0.0.0/8".to_owned()]));
        let script = "#!/bin/bash\nset -o allexport\nexec /bin/alibaba-cloud-controller-manager \\\n--v=2 \\\n--leader-elect=true";
        let of_openshift = given(json!({ "image": "ocp@sha256:1", "command": ["/bin/bash", "-c", script] }));
        assert_eq!(of_openshift, Some(vec!["--v=2".to_owned(), "--leader-elect=true".to_owned()]));
        for other in ["registry.example.com/alicloud-ccm:0.1.0", "digitalocean-cloud-controller-manager:v1", "nginx"] {
            let container = json!({ "name": "cloud-controller-manager", "image": other, "args": ["run"] });
            assert_eq!(given(container), None, "{other}");
        }
        assert!(is_v1("acs/cloud-controller-manager-amd64:v1.9.3.340-g1234") && !is_v1(image));
    }

    #[test]
    fn a_file_in_the_container_is_traced_to_its_object() {
        let container = json!({ "volumeMounts": [
            { "name": "etc", "mountPath": "/etc/kubernetes" },
            { "name": "config", "mountPath": "/etc/kubernetes/config" },
            { "name": "secret", "mountPath": "/key/cloud.conf", "subPath": "of-the-cloud" },
        ] });
        let pod = json!({ "volumes": [
            { "name": "etc", "hostPath": { "path": "/etc/kubernetes" } },
            { "name": "config", "configMap": { "name": "cloud-config", "items": [{ "key": "a", "path": "b.conf" }] } },
            { "name": "secret", "secret": { "secretName": "keys" } },
        ] });
        let entry = |path: &str| {
            let found = entry_of(&pod, &container, Path::new(path));
            found.map(|found| format!("{} {} {}", found.plural, found.name, found.key))
        };
        assert_eq!(
            entry("/etc/kubernetes/config/cloud-config.conf").unwrap(),
            "configmaps cloud-config cloud-config.conf"
        );
        assert_eq!(entry("/etc/kubernetes/config/b.conf").unwrap(), "configmaps cloud-config a");
        assert_eq!(entry("/key/cloud.conf").unwrap(), "secrets keys of-the-cloud");
        assert_eq!(entry("/etc/kubernetes/cloud-config"), None);
        assert_eq!(entry("/elsewhere"), None);
    }
}
