//! Finds the official controller in the cluster, and reads what it is given: the Deployment, the DaemonSet or the mirror of a
//! static pod, and the ConfigMap or Secret with its cloud config. Writes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::official::Official;
use super::table::VARIABLES;
use super::values::truth;
use crate::cluster::{Cluster, ObjectPath, WriteFault};
use crate::config::ProblemPlace;
use crate::config::checked::{LeaderElection, ResourceLock};

/// Where its manifests put it, on Kubernetes and on OpenShift 4.
const NAMESPACES: [&str; 2] = [KUBE_SYSTEM, OPENSHIFT];
const KUBE_SYSTEM: &str = "kube-system";
const OPENSHIFT: &str = "openshift-cloud-controller-manager";
const KINDS: [(&str, &str, &str); 3] = [
    ("Deployment", "/apis/apps/v1", "deployments"),
    ("DaemonSet", "/apis/apps/v1", "daemonsets"),
    ("Pod", CORE, "pods"),
];
const CORE: &str = "/api/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The kubelet's mark on what it shows of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Names of its program; its images begin with them.
const PROGRAMS: [&str; 2] = ["cloud-controller-manager", "alibaba-cloud-controller-manager"];
/// Where ACK puts the token of an addon.
const ADDON_TOKEN: &str = "/var/addon";
/// What must not be skipped silently.
const BY_FILES: &str = "on a machine that has the file, run: alicloud-ccm migrate --cloud-config FILE -- FLAGS";

/// What differs for clusters with such nodes.
const LINGJUN: &str =
    "there are Lingjun nodes: this program removes their taint, and does not delete the Nodes of released machines";

/// The object that runs the official controller.
struct Workload {
    /// Kind, namespace and name, for people.
    name: String,
    namespace: String,
    pod: Value,
    container: Value,
    arguments: Vec<String>,
    /// Whether any replica of it is wanted.
    is_on: bool,
}

impl Workload {
    fn image(&self) -> &str {
        self.container["image"].as_str().unwrap_or_default()
    }

    fn stop(&self) -> String {
        let (kind, place) = self.name.split_once(' ').unwrap_or_default();
        let name = place.rsplit('/').next().unwrap_or_default();
        match kind {
            "Deployment" => format!("kubectl -n {} scale deployment {name} --replicas=0", self.namespace),
            "DaemonSet" => format!("give the DaemonSet {place} a node selector that no node has"),
            _ => format!("move the file of the static pod {place} away"),
        }
    }
}

/// Adds to `official` what the cluster shows in this namespace, or in the usual ones; the cloud config only if `wants_file`.
pub(super) async fn read(cluster: &Cluster, official: &mut Official, namespace: Option<&str>, wants_file: bool) {
    let namespaces = namespace.map_or_else(|| NAMESPACES.to_vec(), |namespace| vec![namespace]);
    let (workloads, hidden) = find(cluster, &namespaces).await;
    hidden.iter().for_each(|(what, fault)| unread(official, what, fault));
    let is_lingjun = |node: &Value| node["metadata"]["labels"]["alibabacloud.com/lingjun-worker"] == "true";
    let nodes = cluster.look_through(ObjectPath { api: CORE, namespace: "", plural: "nodes" }, is_lingjun).await;
    if nodes.is_ok_and(|nodes| !nodes.is_empty()) {
        official.notes.push(LINGJUN.to_owned());
    }
    let Some(workload) = choose(workloads, &namespaces, official) else { return };
    let place = ProblemPlace::Whole { file: PathBuf::from(&workload.name) };
    official.is_v1 |= is_v1(workload.image());
    official.notes.push(format!("read from the {}", workload.name));
    if workload.arguments.iter().any(|argument| argument.contains('$')) {
        official.is_problem(place.clone(), "the command line names variables, which cannot be read", BY_FILES);
    }
    official.read_flags(&workload.arguments, |_| place.clone());
    read_environment(cluster, &workload, official).await;
    official.notes.push(leftovers(cluster, &workload).await);
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

/// An official controller that runs.
pub(in crate::commands) struct RunningOfficial {
    /// Kind, namespace and name, for people.
    pub(in crate::commands) name: String,
    /// How a person stops it.
    pub(in crate::commands) stop: String,
    /// Namespace, name and kind of the lock that its leader holds; `None` if it takes none.
    lock: Option<(String, String, String)>,
}

impl RunningOfficial {
    fn new(workload: &Workload) -> Self {
        let mut given = Official { is_v1: is_v1(workload.image()), ..Official::default() };
        given.read_flags(&workload.arguments, |_| ProblemPlace::Whole { file: PathBuf::from(&workload.name) });
        let flag = |name: &str, default: &str| {
            let stated = given.stated.iter().rev().find(|stated| stated.setting.name == name);
            stated.map_or(default, |stated| stated.value.trim()).to_owned()
        };
        let (name, kind) = match (&*workload.namespace, given.is_v1) {
            (OPENSHIFT, _) => ("cloud-controller-manager", "leases"),
            (_, true) => ("ccm", "endpoints"),
            (_, false) => ("ccm", "leases"),
        };
        let lock = (
            flag("--leader-elect-resource-namespace", KUBE_SYSTEM),
            flag("--leader-elect-resource-name", name),
            flag("--leader-elect-resource-lock", kind),
        );
        let is_elected = truth(&flag("--leader-elect", "true")) != Some(false);
        Self { name: workload.name.clone(), stop: workload.stop(), lock: is_elected.then_some(lock) }
    }

    /// Whether its leader and that of this program never write at once.
    pub(in crate::commands) fn excludes(&self, election: &LeaderElection) -> bool {
        self.lock.as_ref().is_some_and(|(namespace, name, kind)| {
            let is_same = (namespace, name) == (&election.namespace, &election.name);
            let is_held = match kind.as_str() {
                "endpoints" => election.resource_lock == ResourceLock::EndpointsLeases,
                kind => kind.ends_with("leases"),
            };
            election.enabled && is_same && is_held
        })
    }
}

/// What runs the official controller, and what could not be looked through, and why.
pub(in crate::commands) async fn running(cluster: &Cluster) -> (Vec<RunningOfficial>, Vec<String>) {
    let (found, hidden) = find(cluster, &NAMESPACES).await;
    let running = found.iter().filter(|workload| workload.is_on).map(RunningOfficial::new).collect();
    (running, hidden.into_iter().map(|(what, fault)| format!("{what}: {fault}")).collect())
}

async fn find(cluster: &Cluster, namespaces: &[&str]) -> (Vec<Workload>, Vec<(String, WriteFault)>) {
    let (mut found, mut hidden) = (Vec::new(), Vec::new());
    for namespace in namespaces {
        for (kind, api, plural) in KINDS {
            let is_it = |object: &Value| {
                let is_static = !object["metadata"]["annotations"][MIRROR].is_null();
                (kind != "Pod" || is_static) && official_container(object).is_some()
            };
            match cluster.look_through(ObjectPath { api, namespace, plural }, is_it).await {
                Ok(objects) => found.extend(objects.iter().filter_map(|object| workload(kind, namespace, object))),
                Err(fault) => hidden.push((format!("{plural} in {namespace}"), fault)),
            }
        }
    }
    (found, hidden)
}

fn unread(official: &mut Official, what: &str, fault: &WriteFault) {
    let place = ProblemPlace::Whole { file: PathBuf::from(what) };
    let help =
        "run this as a user who may read it, or read the files: alicloud-ccm migrate --cloud-config FILE -- FLAGS";
    official.is_problem(place, format!("cannot be read: {fault}"), help);
}

/// The only one, or one of several static pods, of which each master has its own.
fn choose(mut workloads: Vec<Workload>, namespaces: &[&str], official: &mut Official) -> Option<Workload> {
    let Some(first) = workloads.first() else {
        // What could not be read has been told, and may hold it.
        if official.problems.is_empty() {
            let place = ProblemPlace::Whole { file: PathBuf::from(format!("namespaces {}", namespaces.join(", "))) };
            let message = "the official controller is not found as Deployment, DaemonSet or static pod";
            official.is_problem(place, message, "name its namespace with --namespace, or read its files: alicloud-ccm migrate --cloud-config FILE -- FLAGS");
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

fn workload(kind: &str, namespace: &str, object: &Value) -> Option<Workload> {
    let (container, arguments) = official_container(object)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let pod = pod_spec(object).clone();
    Some(Workload {
        name: format!("{kind} {namespace}/{name}"),
        namespace: namespace.to_owned(),
        pod,
        container: container.clone(),
        arguments,
        is_on: object["spec"]["replicas"] != 0 && object["status"]["desiredNumberScheduled"] != 0,
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
    let words = words.take_while(|word| !ends_command(word));
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

/// Whether a shell ends the arguments of a program here: a pipe, a redirection, a list, a comment.
fn ends_command(word: &str) -> bool {
    word.trim_start_matches(|digit: char| digit.is_ascii_digit()).starts_with(['|', '>', '<', '&', ';', '#'])
        && !word.starts_with("#!")
}

/// Whether an image such as `registry/acs/cloud-controller-manager-amd64:v1.9.3.340-g1234` is of the first generation.
fn is_v1(image: &str) -> bool {
    image.rsplit_once(':').is_some_and(|(_, tag)| tag.starts_with("v1."))
}

fn texts<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[field].as_str())
}

/// A ConfigMap or a Secret.
#[derive(Debug, PartialEq)]
struct ConfigObject {
    plural: &'static str,
    name: String,
}

impl ConfigObject {
    /// As a field of a pod names it: one of the two is there.
    fn named(config_map: &Value, secret: &Value) -> Option<Self> {
        let (plural, name) = match config_map["name"].as_str() {
            Some(name) => ("configmaps", name),
            None => ("secrets", secret["name"].as_str().or(secret["secretName"].as_str())?),
        };
        Some(Self { plural, name: name.to_owned() })
    }

    fn describe(&self) -> String {
        let kind = if self.plural == "secrets" { "Secret" } else { "ConfigMap" };
        format!("{kind} {}", self.name)
    }

    /// The texts that it holds; nothing if there is no such object.
    async fn read(&self, cluster: &Cluster, namespace: &str) -> Result<BTreeMap<String, String>, WriteFault> {
        let path = ObjectPath { api: CORE, namespace, plural: self.plural };
        let object = cluster.look_up(path, &self.name).await?.unwrap_or_default();
        let texts = object["data"].as_object().into_iter().flatten();
        let texts = texts.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())));
        if self.plural != "secrets" {
            return Ok(texts.collect());
        }
        let decoded = |text: String| String::from_utf8(STANDARD.decode(text).ok()?).ok();
        Ok(texts.filter_map(|(key, text)| Some((key, decoded(text)?))).collect())
    }
}

/// An entry of a ConfigMap or a Secret.
#[derive(Debug, PartialEq)]
struct ConfigEntry {
    object: ConfigObject,
    key: String,
}

impl ConfigEntry {
    /// Of a volume, or of a source of a projected one, the entry that is the file `inside` of it.
    fn of_volume(volume: &Value, inside: &str) -> Option<Self> {
        let object = ConfigObject::named(&volume["configMap"], &volume["secret"])?;
        let items = [&volume["configMap"]["items"], &volume["secret"]["items"]].into_iter().find_map(Value::as_array);
        let key = match items {
            Some(items) => items.iter().find(|item| item["path"] == inside)?["key"].as_str()?,
            None => inside,
        };
        Some(Self { object, key: key.to_owned() })
    }

    fn describe(&self) -> String {
        format!("{}, key {}", self.object.describe(), self.key)
    }

    /// What it holds; `None` if there is no such entry.
    async fn read(&self, cluster: &Cluster, namespace: &str) -> Result<Option<String>, WriteFault> {
        Ok(self.object.read(cluster, namespace).await?.remove(&self.key))
    }
}

/// The ConfigMaps and Secrets that a file in the container may come from, the one that takes precedence first: in a projected
/// volume, the last source that has the file.
fn entries_of(pod: &Value, container: &Value, path: &Path) -> Option<Vec<ConfigEntry>> {
    let mounts = container["volumeMounts"].as_array()?.iter();
    let mount = mounts.filter(|mount| path.starts_with(mount["mountPath"].as_str().unwrap_or("/")));
    let mount = mount.max_by_key(|mount| mount["mountPath"].as_str().map(str::len))?;
    let volume = pod["volumes"].as_array()?.iter().find(|volume| volume["name"] == mount["name"])?;
    let inside = path.strip_prefix(mount["mountPath"].as_str()?).ok()?.to_str()?;
    let inside = if inside.is_empty() { mount["subPath"].as_str()? } else { inside };
    let projected = volume["projected"]["sources"].as_array().into_iter().flatten().rev();
    Some(projected.chain([volume]).filter_map(|source| ConfigEntry::of_volume(source, inside)).collect())
}

async fn read_cloud_config(cluster: &Cluster, workload: &Workload, path: &Path, official: &mut Official) {
    let entries = entries_of(&workload.pod, &workload.container, path).unwrap_or_default();
    for entry in &entries {
        match entry.read(cluster, &workload.namespace).await {
            Ok(Some(text)) => return official.read_cloud_config(&PathBuf::from(entry.describe()), &text),
            Ok(None) => {}
            Err(fault) => return unread(official, &entry.describe(), &fault),
        }
    }
    let places = entries.iter().map(ConfigEntry::describe).collect::<Vec<_>>().join("; ");
    if entries.is_empty() {
        let place = ProblemPlace::Whole { file: PathBuf::from(&workload.name) };
        let message = format!("the cloud config {} comes from no ConfigMap and no Secret", path.display());
        official.is_problem(place, message, "add --cloud-config FILE with a copy of the file");
    } else {
        let place = ProblemPlace::Whole { file: PathBuf::from(places) };
        official.is_problem(place, "the cloud config is not there", "add --cloud-config FILE with a copy of it");
    }
}

/// Where a variable of the container has its value from, if it is not stated itself.
fn entry_of_variable(variable: &Value) -> Option<ConfigEntry> {
    let (config_map, secret) = (&variable["valueFrom"]["configMapKeyRef"], &variable["valueFrom"]["secretKeyRef"]);
    let key = config_map["key"].as_str().or(secret["key"].as_str())?;
    Some(ConfigEntry { object: ConfigObject::named(config_map, secret)?, key: key.to_owned() })
}

/// Reads the environment of the container: `envFrom` in its order, then `env`, of which the later one counts.
async fn read_environment(cluster: &Cluster, workload: &Workload, official: &mut Official) {
    let mut values = BTreeMap::new();
    for source in workload.container["envFrom"].as_array().into_iter().flatten() {
        let Some(object) = ConfigObject::named(&source["configMapRef"], &source["secretRef"]) else { continue };
        let prefix = source["prefix"].as_str().unwrap_or_default();
        match object.read(cluster, &workload.namespace).await {
            Ok(data) => values.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value))),
            Err(fault) => unread(official, &object.describe(), &fault),
        }
    }
    for variable in workload.container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        // What is not taken over is only named, so that no right to read it is needed.
        let entry = entry_of_variable(variable).filter(|_| VARIABLES.iter().any(|setting| setting.name == name));
        let value = match (variable["value"].as_str(), entry) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some(entry)) => entry.read(cluster, &workload.namespace).await.unwrap_or_else(|fault| {
                unread(official, &entry.describe(), &fault);
                None
            }),
            (None, None) => variable.get("valueFrom").map(|_| "from elsewhere".to_owned()),
        };
        values.extend(value.map(|value| (name.to_owned(), value)));
    }
    official.variables = Some(Vec::new());
    for (name, value) in values {
        let place = ProblemPlace::Variable { variable: format!("{name} of the {}", workload.name) };
        official.read_variable(&name, value.trim(), place);
    }
}

/// What may go once the official controller is not needed any more: its account, and what gives that account its rights.
async fn leftovers(cluster: &Cluster, workload: &Workload) -> String {
    let account = workload.pod["serviceAccountName"].as_str().unwrap_or("default");
    let is_its = |subject: &Value| {
        let namespace = subject["namespace"].as_str().unwrap_or_default();
        subject["kind"] == "ServiceAccount" && subject["name"] == account && namespace == workload.namespace
    };
    let binds = |binding: &Value| binding["subjects"].as_array().into_iter().flatten().any(is_its);
    let mut names = Vec::new();
    for (kind, plural) in [("ClusterRoleBinding", "clusterrolebindings"), ("RoleBinding", "rolebindings")] {
        match cluster.look_through(ObjectPath { api: RBAC, namespace: "", plural }, binds).await {
            Ok(bindings) => names.extend(bindings.iter().map(|binding| named_binding(kind, binding))),
            Err(fault) => names.push(format!("{plural}, which cannot be listed: {fault}")),
        }
    }
    if account != "default" {
        names.insert(0, format!("ServiceAccount {}/{account}", workload.namespace));
    }
    if names.is_empty() {
        return "no right in the cluster is bound to its account".to_owned();
    }
    format!(
        "once neither it nor a rollback is needed, these may go, if nothing else uses them: the {}; {}",
        workload.name,
        names.join("; ")
    )
}

fn named_binding(kind: &str, binding: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (text(&binding["metadata"]["name"]), text(&binding["metadata"]["namespace"]));
    let place = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
    format!("{kind} {place} ({} {})", text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]))
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
        let piped = json!([
            "/bin/sh",
            "-c",
            "/cloud-controller-manager --v=2 --leader-elect=false 2>&1 | tee /var/log/ccm.log"
        ]);
        let given_there = given(json!({ "image": "mirror/ccm@sha256:1", "command": piped }));
        assert_eq!(given_there, Some(vec!["--v=2".to_owned(), "--leader-elect=false".to_owned()]));
        for other in ["registry.example.com/alicloud-ccm:0.1.0", "digitalocean-cloud-controller-manager:v1", "nginx"] {
            let container = json!({ "name": "cloud-controller-manager", "image": other, "args": ["run"] });
            assert_eq!(given(container), None, "{other}");
        }
        assert!(is_v1("acs/cloud-controller-manager-amd64:v1.9.3.340-g1234") && !is_v1(image));
    }

    #[test]
    fn only_a_lock_that_both_take_keeps_both_from_writing() {
        let running = |kind: &str, namespace: &str, tag: &str, flags: &str| {
            let image = format!("acs/cloud-controller-manager-amd64:{tag}");
            let args: Vec<&str> = flags.split_whitespace().collect();
            let pod = json!({ "containers": [{ "image": image, "args": args }] });
            let object = json!({ "metadata": { "name": "ccm" }, "spec": { "template": { "spec": pod } } });
            RunningOfficial::new(&workload(kind, namespace, &object).unwrap())
        };
        let ours = LeaderElection::default();
        let old = LeaderElection { resource_lock: ResourceLock::EndpointsLeases, ..LeaderElection::default() };
        for (namespace, tag, flags, expected) in [
            (KUBE_SYSTEM, "v2.14.0", "", [true, true]),
            (KUBE_SYSTEM, "v2.14.0", "--leader-elect=false", [false, false]),
            (KUBE_SYSTEM, "v2.14.0", "--leader-elect-resource-name=other", [false, false]),
            (KUBE_SYSTEM, "v2.14.0", "--leader-elect-resource-lock=configmaps", [false, false]),
            (KUBE_SYSTEM, "v1.9.3", "--leader-elect=true", [false, true]),
            (KUBE_SYSTEM, "v1.9.3", "--leader-elect-resource-lock=leases", [true, true]),
            (OPENSHIFT, "v1", format!("--leader-elect-resource-namespace={OPENSHIFT}").as_str(), [false, false]),
        ] {
            let found = running("Deployment", namespace, tag, flags);
            assert_eq!([found.excludes(&ours), found.excludes(&old)], expected, "{namespace} {tag} {flags}");
        }
        let off = LeaderElection { enabled: false, ..LeaderElection::default() };
        let found = running("Deployment", OPENSHIFT, "v2.14.0", "");
        assert!(!found.excludes(&off));
        assert_eq!(found.stop, format!("kubectl -n {OPENSHIFT} scale deployment ccm --replicas=0"));
        assert!(running("DaemonSet", KUBE_SYSTEM, "v1", "").stop.contains("DaemonSet kube-system/ccm a node selector"));
    }

    #[test]
    fn a_daemon_set_that_fits_no_node_does_not_run() {
        let is_on = |status: Value| {
            let pod = json!({ "containers": [{ "image": "acs/cloud-controller-manager-amd64:v2.14.0" }] });
            let object = json!({ "spec": { "template": { "spec": pod } }, "status": status });
            workload("DaemonSet", KUBE_SYSTEM, &object).unwrap().is_on
        };
        assert!(!is_on(json!({ "desiredNumberScheduled": 0 })));
        assert!(is_on(json!({ "desiredNumberScheduled": 3 })) && is_on(Value::Null));
    }

    #[test]
    fn a_file_in_the_container_is_traced_to_its_object() {
        let container = json!({ "volumeMounts": [
            { "name": "etc", "mountPath": "/etc/kubernetes" },
            { "name": "config", "mountPath": "/etc/kubernetes/config" },
            { "name": "whole", "mountPath": "/etc/kubernetes/whole" },
            { "name": "projected", "mountPath": "/projected" },
            { "name": "secret", "mountPath": "/key/cloud.conf", "subPath": "of-the-cloud" },
        ] });
        let pod = json!({ "volumes": [
            { "name": "etc", "hostPath": { "path": "/etc/kubernetes" } },
            { "name": "config", "configMap": { "name": "cloud-config", "items": [{ "key": "a", "path": "b.conf" }] } },
            { "name": "whole", "configMap": { "name": "cloud-config" } },
            { "name": "secret", "secret": { "secretName": "keys" } },
            { "name": "projected", "projected": { "sources": [
                { "configMap": { "name": "first" } },
                { "serviceAccountToken": { "path": "token" } },
                { "secret": { "name": "later", "items": [{ "key": "c", "path": "b.conf" }] } },
                { "configMap": { "name": "other", "items": [{ "key": "d", "path": "d" }] } },
            ] } },
        ] });
        let entry = |path: &str| {
            let found = entries_of(&pod, &container, Path::new(path)).unwrap_or_default();
            let found =
                found.iter().map(|entry| format!("{} {} {}", entry.object.plural, entry.object.name, entry.key));
            found.collect::<Vec<_>>().join(", ")
        };
        let whole = "configmaps cloud-config cloud-config.conf";
        assert_eq!(entry("/etc/kubernetes/whole/cloud-config.conf"), whole);
        assert_eq!(entry("/etc/kubernetes/config/b.conf"), "configmaps cloud-config a");
        assert_eq!(entry("/etc/kubernetes/config/a"), "", "items leave out what they do not list");
        assert_eq!(entry("/key/cloud.conf"), "secrets keys of-the-cloud");
        assert_eq!(entry("/projected/b.conf"), "secrets later c, configmaps first b.conf", "the later source counts");
        assert_eq!(entry("/etc/kubernetes/cloud-config"), "");
        assert_eq!(entry("/elsewhere"), "");
    }
}
