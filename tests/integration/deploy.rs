//! The manifests agree with the program, with each other and with the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use expect_test::expect_file;
use serde_json::{Value, json};
use sim::testbed::instance;

use crate::harness::World;
use crate::permissions::documents;

mod chart;
mod customized;
pub(crate) mod schemas;
mod values;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: impl AsRef<Path>) -> Vec<Value> {
    documents(&read(path))
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn by_name(objects: Vec<Value>) -> Objects {
    let named = |object: Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        (format!("{}/{name}", object["kind"].as_str().unwrap_or_default()), object)
    };
    objects.into_iter().map(named).collect()
}

/// What a kustomization makes, as far as ours go.
fn kustomize(folder: &Path) -> Objects {
    let kustomization = yaml(folder.join("kustomization.yaml")).remove(0);
    let mut objects = Objects::new();
    for resource in texts(&kustomization["resources"]) {
        let path = root().join(folder).join(resource);
        objects.extend(if path.is_dir() { kustomize(&path) } else { by_name(yaml(path)) });
    }
    for generator in kustomization["configMapGenerator"].as_array().into_iter().flatten() {
        assert_eq!(kustomization["generatorOptions"]["disableNameSuffixHash"], true);
        let files = texts(&generator["files"]).into_iter();
        let data: BTreeMap<_, _> = files.map(|file| (file, read(folder.join(file)))).collect();
        let metadata = json!({ "name": generator["name"], "namespace": generator["namespace"] });
        objects.extend(by_name(vec![
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }),
        ]));
    }
    if let Some(namespace) = kustomization.get("namespace") {
        let subjects = |object: &mut Value| object["subjects"].as_array().cloned().unwrap_or_default().len();
        for object in objects.values_mut() {
            // Kustomize takes kinds that it does not know for namespaced ones; API servers drop what is too much.
            if object["metadata"].get("namespace").is_some() || object["kind"] == "SecurityContextConstraints" {
                object["metadata"]["namespace"] = namespace.clone();
            }
            for index in 0..subjects(object) {
                object["subjects"][index]["namespace"] = namespace.clone();
            }
        }
    }
    objects
}

const OVERLAYS: [&str; 4] =
    ["overlays/deployment", "overlays/daemonset", "overlays/openshift", "overlays/openshift-namespace"];

/// Every object that the manifests make.
pub(crate) fn everything() -> Vec<Value> {
    let alone = ["static-pod/alicloud-ccm.yaml", "secret.yaml"].map(|path| by_name(yaml(path)));
    let charts = chart::template(&json!({}), "kube-system").map(|rendered| rendered.unwrap());
    let overlays = OVERLAYS.map(Path::new).into_iter().map(kustomize);
    overlays.chain(charts).chain(alone).flat_map(Objects::into_values).collect()
}

#[test]
fn kubectl_makes_the_same_of_the_kustomizations() {
    for overlay in OVERLAYS {
        let ours = kustomize(Path::new(overlay));
        assert!(ours.len() >= 7, "{:?}", ours.keys());
        // Only where it is installed.
        let Ok(output) = Command::new("kubectl").arg("kustomize").arg(root().join(overlay)).output() else { continue };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let theirs = by_name(documents(&String::from_utf8(output.stdout).unwrap()));
        assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>(), "{overlay}");
        for (name, object) in ours {
            assert_eq!(theirs[&name], object, "{overlay}: {name}");
        }
    }
}

/// Everything that has a namespace is in that one, with the lock and those who may take it.
#[test]
fn another_namespace_leaves_nothing_behind() {
    let objects = kustomize(Path::new("overlays/openshift-namespace"));
    let text = serde_json::to_string(&objects).unwrap();
    assert_eq!(text.matches("\"kube-system\"").count(), 1, "the namespace whose uid is read: {text}");
    let container = &objects["Deployment/alicloud-ccm"]["spec"]["template"]["spec"]["containers"][0];
    let lock = container["env"].as_array().unwrap().iter();
    let lock: Vec<_> = lock.filter(|variable| variable["name"] == "ALICLOUD_CCM__LEADER_ELECTION__NAMESPACE").collect();
    assert_eq!(lock[0]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
    assert!(objects.contains_key("Namespace/alicloud-ccm") && objects.contains_key("Role/alicloud-ccm"));
}

#[test]
fn everything_has_the_version_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &yaml("chart/Chart.yaml")[0];
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    for overlay in ["overlays/deployment", "overlays/daemonset"] {
        assert_eq!(yaml(format!("{overlay}/kustomization.yaml"))[0]["images"][0]["newTag"], version, "{overlay}");
    }
    let image = format!("image: registry.example.com/alicloud-ccm:{version}");
    assert!(read("static-pod/alicloud-ccm.yaml").contains(&image));
    let workflows = Path::new("../.github/workflows");
    let jobs = |name: &str| yaml(workflows.join(name))[0]["jobs"].as_object().unwrap().len();
    assert_eq!((jobs("ci.yml"), jobs("nightly.yml"), jobs("release.yml")), (1, 3, 6));
}

/// Cargo refuses a package whose targets are not all there, whichever is built.
#[test]
fn the_image_is_built_from_all_that_cargo_asks_for() {
    let package = root().join("..");
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version=1", "--offline"]);
    let output = command.current_dir(&package).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let targets = packages.iter().flat_map(|package| package["targets"].as_array().unwrap());
    let top = |target: &Value| {
        let path = Path::new(target["src_path"].as_str().unwrap());
        let inside = path.strip_prefix(package.canonicalize().unwrap()).unwrap();
        inside.components().next().unwrap().as_os_str().to_str().unwrap().to_owned()
    };
    let sent = std::fs::read_to_string(package.join(".dockerignore")).unwrap();
    let sent: BTreeSet<_> = sent.lines().filter_map(|line| line.strip_prefix('!')).collect();
    // The program contains the last two.
    let files = ["Cargo.toml", "Cargo.lock", "docs/reference/events.md", "config/migration.md"].map(str::to_owned);
    let needed: BTreeSet<_> = targets.map(top).chain(files).collect();
    let missing: Vec<_> = needed.iter().filter(|name| !sent.contains(name.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new(), ".dockerignore keeps these back");
}

/// The keys of the configuration that a container sets by plain variables.
fn variables(container: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = container["env"].as_array().into_iter().flatten();
    let all = all.filter(|variable| variable.get("value").is_some());
    let all = all.map(|variable| (text(&variable["name"]), text(&variable["value"])));
    all.filter(|(name, _)| name.starts_with("ALICLOUD_CCM__")).collect()
}

/// What every shipped pod sets, whatever made it.
pub(crate) fn variables_of_the_pods() -> Vec<(String, String)> {
    let pod = yaml("static-pod/alicloud-ccm.yaml").remove(0);
    variables(&pod["spec"]["containers"][0])
}

fn binary(arguments: &[&str]) -> (bool, String) {
    binary_with(arguments, &[])
}

fn binary_with(arguments: &[&str], variables: &[(String, String)]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
    let variables = variables.iter().map(|(name, value)| (name, value));
    let output = command.env_clear().args(arguments).envs(variables).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn the_roles_are_those_that_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.toml");
    std::fs::write(&path, "cloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\n").unwrap();
    let pods: Vec<_> = OVERLAYS.map(Path::new).into_iter().map(kustomize).collect();
    for objects in &pods {
        let pod = &objects.iter().find(|(name, _)| name.starts_with('D')).unwrap().1["spec"]["template"]["spec"];
        assert_eq!(variables(&pod["containers"][0]), variables_of_the_pods());
    }
    let (_, printed) = binary_with(&["rbac", "--config", path.to_str().unwrap()], &variables_of_the_pods());
    assert!(printed.contains("tokenreviews") && printed.contains("subjectaccessreviews"), "{printed}");
    expect_file!["../../deploy/base/rbac.yaml"].assert_eq(&printed);
}

#[test]
fn the_configuration_in_the_manifests_is_right_with_and_without_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alicloud-ccm.toml");
    let text = read("base/alicloud-ccm.toml");
    let check = |text: &str| {
        std::fs::write(&path, text.replace("change-me", "one")).unwrap();
        let (right, said) = binary(&["check", "--config", path.to_str().unwrap()]);
        assert!(right, "{said}\n{text}");
    };
    check(&text);
    for key in yaml("secret.yaml")[0]["stringData"].as_object().unwrap().keys() {
        let file = folder.path().join(key);
        std::fs::write(&file, "LTAIkey").unwrap();
        // As the kubelet leaves it for the group of the pod.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o440)).unwrap();
    }
    let keyed: String = text
        .lines()
        .map(|line| {
            line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', ':'])).unwrap_or(line).to_owned() + "\n"
        })
        .collect();
    assert!(keyed.contains("\n[cloud.credentials]\n"), "{keyed}");
    check(&keyed.replace("/etc/alicloud-ccm-keys", folder.path().to_str().unwrap()));
}

/// What holds for the pod wherever it runs: the network of the host, nothing of the cluster's, least rights. `asked` is how the
/// kubelet reaches its server.
fn judge_pod(spec: &Value, asked: &Value) {
    assert_eq!((&spec["hostNetwork"], &spec["dnsPolicy"]), (&json!(true), &json!("Default")));
    assert!(spec["priorityClassName"].as_str().is_some_and(|class| class.starts_with("system-")));
    let security = &spec["securityContext"];
    assert_eq!(
        (&security["runAsNonRoot"], &security["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
    let container = &spec["containers"][0];
    let arguments = texts(&container["args"]);
    assert!(binary(&[&arguments[..], &["--help"]].concat()).0, "{arguments:?}");
    let confined = json!({
        "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(container["securityContext"], confined);
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let mut expected = asked.clone();
        expected["path"] = path.into();
        assert_eq!(container[probe]["httpGet"], expected);
    }
    // For Prometheus, and with what the probes follow.
    assert_eq!(container["ports"], json!([{ "name": "metrics", "containerPort": asked["port"] }]));
    let variables: BTreeSet<_> =
        container["env"].as_array().unwrap().iter().filter_map(|variable| variable["name"].as_str()).collect();
    assert!(variables.contains("POD_NAME") && variables.contains("POD_NAMESPACE"), "events are about the pod");
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount.get("subPath").is_none() && mount["readOnly"] == true));
    let config = arguments.iter().find(|argument| argument.ends_with(".toml")).unwrap();
    assert!(mounts.iter().any(|mount| Path::new(config).parent() == mount["mountPath"].as_str().map(Path::new)));
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let user = format!("USER {}:{}", security["runAsUser"], security["runAsGroup"]);
    assert!(dockerfile.contains(&user) && dockerfile.contains("/etc/ssl/certs/ca-certificates.crt"), "{dockerfile}");
}

fn on_loopback() -> Value {
    json!({ "host": "127.0.0.1", "port": 10258, "scheme": "HTTPS" })
}

#[test]
fn pods_of_a_cluster_come_up_on_a_master_that_is_not_initialised() {
    for (file, kind) in
        [("overlays/deployment/deployment.yaml", "Deployment"), ("overlays/daemonset/daemonset.yaml", "DaemonSet")]
    {
        let object = yaml(file).remove(0);
        assert_eq!(object["kind"], kind);
        assert_eq!(object["spec"]["selector"]["matchLabels"], object["spec"]["template"]["metadata"]["labels"]);
        let spec = &object["spec"]["template"]["spec"];
        judge_pod(spec, &on_loopback());
        let tolerations = spec["tolerations"].as_array().unwrap();
        for key in [
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node-role.kubernetes.io/control-plane",
            "node-role.kubernetes.io/master",
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/network-unavailable",
        ] {
            assert!(tolerations.contains(&json!({ "key": key, "operator": "Exists" })), "{kind} must tolerate {key}");
        }
        let volumes = by_volume(spec);
        assert_eq!(volumes["config"]["configMap"]["name"], "alicloud-ccm");
        assert_eq!(volumes["keys"]["secret"]["defaultMode"], 0o400);
        assert_eq!(volumes["keys"]["secret"]["optional"], true);
    }
    let deployment = yaml("overlays/deployment/deployment.yaml").remove(0);
    assert_eq!(deployment["spec"]["replicas"], 2);
    // The port is the host's: two replicas on one machine, or a new one before the old one has gone, could not start.
    let anti = &deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"];
    assert_eq!(anti["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"], json!({ "maxSurge": 0, "maxUnavailable": 1 }));
}

fn by_volume(spec: &Value) -> BTreeMap<String, Value> {
    let volumes = spec["volumes"].as_array().unwrap().iter();
    volumes.map(|volume| (volume["name"].as_str().unwrap().to_owned(), volume.clone())).collect()
}

#[test]
fn the_static_pod_needs_nothing_of_the_api_server() {
    let pod = yaml("static-pod/alicloud-ccm.yaml").remove(0);
    let spec = &pod["spec"];
    judge_pod(spec, &on_loopback());
    // A kubelet refuses static pods that refer to other objects.
    for reference in ["serviceAccountName", "serviceAccount", "imagePullSecrets"] {
        assert!(spec.get(reference).is_none(), "{reference}");
    }
    let volumes = by_volume(spec);
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes["config"]["hostPath"], json!({ "path": "/etc/alicloud-ccm", "type": "Directory" }));
}

#[test]
fn openshift_allows_what_the_pod_does_and_no_more() {
    let objects = kustomize(Path::new("overlays/openshift"));
    let (scc, deployment) = (&objects["SecurityContextConstraints/alicloud-ccm"], &objects["Deployment/alicloud-ccm"]);
    let spec = &deployment["spec"]["template"]["spec"];
    assert_eq!(scc["allowHostNetwork"], spec["hostNetwork"]);
    assert_eq!(scc["runAsUser"]["uid"], spec["securityContext"]["runAsUser"]);
    assert_eq!(scc["fsGroup"]["ranges"][0]["min"], spec["securityContext"]["fsGroup"]);
    let allowed: BTreeSet<_> = texts(&scc["volumes"]).into_iter().collect();
    for volume in by_volume(spec).values() {
        assert!(allowed.iter().any(|kind| volume.get(kind).is_some()), "{volume}");
    }
    assert!(allowed.contains("projected"), "the token of the service account");
    let switches = ["allowPrivilegedContainer", "allowHostDirVolumePlugin", "allowHostPID", "allowHostIPC"];
    assert!(switches.iter().all(|switch| scc[switch] == false));
    let account = &objects["ServiceAccount/alicloud-ccm"]["metadata"];
    let binding = &objects["RoleBinding/alicloud-ccm-scc"];
    assert_eq!(
        (&binding["subjects"][0]["name"], &binding["subjects"][0]["namespace"]),
        (&account["name"], &account["namespace"])
    );
    let role = &objects[&format!("ClusterRole/{}", binding["roleRef"]["name"].as_str().unwrap())]["rules"][0];
    assert_eq!((texts(&role["resourceNames"]), texts(&role["verbs"])), (vec!["alicloud-ccm"], vec!["use"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn openshift_kubelets_learn_their_provider_id_before_they_start() {
    let script = read("openshift/kubelet-providerid");
    // One file for each role, because the installer takes one object from a file.
    for role in ["master", "worker"] {
        let mut configs = yaml(format!("openshift/machineconfig-{role}.yaml"));
        assert_eq!(configs.len(), 1);
        let config = configs.remove(0);
        assert_eq!(config["metadata"]["labels"]["machineconfiguration.openshift.io/role"], role);
        assert_eq!(config["metadata"]["name"], format!("00-{role}-kubelet-providerid"));
        let config = &config["spec"]["config"];
        let file = &config["storage"]["files"][0];
        let content = file["contents"]["source"].as_str().unwrap().split_once(";base64,").unwrap().1;
        assert_eq!(String::from_utf8(STANDARD.decode(content).unwrap()).unwrap(), script);
        assert_eq!(file["mode"], 0o755);
        let unit = config["systemd"]["units"][0]["contents"].as_str().unwrap();
        let start = format!("ExecStart={}", file["path"].as_str().unwrap());
        assert!(unit.contains(&start) && unit.contains("Before=kubelet.service"), "{unit}");
    }

    if Command::new("curl").arg("--version").output().is_err() {
        assert!(script.contains("KUBELET_PROVIDERID=alicloud://$region.$instance"));
        return;
    }
    let world = World::new(&["node"], "").await;
    world.testbed.rent(1);
    world.testbed.cloud.edit(|cloud| {
        cloud.metadata.instance = Some(instance(1));
        cloud.metadata.token_required = true;
    });
    let variables = world.folder().join("kubelet-env");
    let here = script
        .replace("/etc/kubernetes/kubelet-env", variables.to_str().unwrap())
        .replace("http://100.100.100.200", &format!("http://{}", world.testbed.cloud_address()));
    let run = || {
        let mut command = Command::new("bash");
        command.arg("-c").arg(&here);
        async move { tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap() }
    };
    for _ in 0..2 {
        let output = run().await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let written = std::fs::read_to_string(&variables).unwrap();
        assert_eq!(written, "KUBELET_PROVIDERID=alicloud://cn-hangzhou.i-play-1\n", "once, however often it runs");
    }
}
