//! `migrate`: from the official controller's settings to files that this program accepts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{ALL, World};
use crate::permissions::documents;

/// `LTAIkey` and `hunter2` in Base64, as the official controller wants them.
const CLOUD_CONFIG: &str = r#"{"Global": {"accessKeyID": "TFRBSWtleQ==", "accessKeySecret": "aHVudGVyMg==",
    "clusterID": "c-old", "vswitchid": "cn-hangzhou-i:vsw-1", "vpcid": "vpc-1", "uid": ""}}"#;
const SECRETS: [&str; 4] = ["LTAIkey", "hunter2", "TFRBSWtleQ==", "aHVudGVyMg=="];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn binary(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_alicloud-ccm")).env_clear().args(arguments).output().unwrap()
}

/// Standard output of a migration that has no problem, without a secret.
fn succeeded(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    assert!(!SECRETS.iter().any(|secret| out.contains(secret)), "{out}");
    out
}

/// The files of a migration are what this program accepts and needs; gives the configuration.
fn judge(folder: &Path) -> String {
    let file = folder.join("alicloud-ccm.toml");
    let checked = binary(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()));
    let rbac = documents(&std::fs::read_to_string(folder.join("rbac.yaml")).unwrap());
    let role = rbac.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    assert!(role.to_string().contains("tokenreviews"), "the shipped pods ask for tokens: {role}");
    let policy: Value = serde_json::from_slice(&std::fs::read(folder.join("ram-policy.json")).unwrap()).unwrap();
    let printed = binary(&["ram-policy", "--config", file.to_str().unwrap()]);
    assert_eq!(policy, serde_json::from_slice::<Value>(&printed.stdout).unwrap());
    for (name, expected) in [("access-key-id", "LTAIkey"), ("access-key-secret", "hunter2")] {
        let path = folder.join(name);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn a_cloud_config_and_flags_become_files_that_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (folder.path().join("cloud-config.conf"), folder.path().join("new/files"));
    std::fs::write(&config, CLOUD_CONFIG).unwrap();
    let named = ["migrate", "--cloud-config", config.to_str().unwrap()];
    let flags = ["--", "--cluster-cidr=10.244.0.0/16", "--pprof-bind-addr=:6060"];

    let printed = succeeded(&binary(&[&named[..], &flags[..]].concat()));
    for part in ["==> alicloud-ccm.toml <==", "==> rbac.yaml <==", "==> ram-policy.json <==", "#access_key_id_file"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.contains("- --pprof-bind-addr: Go's profiles have no counterpart\n"), "{printed}");

    let saved = [&named[..], &["--out", out.to_str().unwrap()], &flags[..]].concat();
    let notes = succeeded(&binary(&saved));
    assert!(notes.contains("--pprof-bind-addr"), "{notes}");
    let toml = judge(&out);
    assert!(toml.contains("controllers = [\"node\", \"route\", \"service\", \"nlb\"]"), "{toml}");

    let again = binary(&saved);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("alicloud-ccm.toml is there already"), "{}", text(&again.stderr));
    std::fs::remove_file(out.join("alicloud-ccm.toml")).unwrap();
    let again = binary(&saved);
    assert_eq!(again.status.code(), Some(1));
    assert!(!out.join("alicloud-ccm.toml").exists(), "exit code 1 means that nothing was written");
    let locked = [&named[..], &["--", "--leader-elect-resource-lock=configmaps"]].concat();
    let printed = succeeded(&binary(&locked));
    assert!(printed.contains("- --leader-elect-resource-lock: no lock here is a ConfigMap alone"), "{printed}");
}

#[test]
fn the_file_that_the_flags_name_is_read_and_problems_are_one_list() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cloud-config.conf");
    std::fs::write(&config, "Global:\n  clusterID: c-1\n  serviceBackendType: pods\n").unwrap();
    let flag = format!("--cloud-config={}", config.display());
    let output = binary(&["migrate", "--", &flag, "--nosuch=1"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    let said = text(&output.stderr);
    for part in ["no flag --nosuch", "cloud-config.conf:3:3", "serviceBackendType must be eni or ecs", "2 problems"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let nothing = binary(&["migrate"]);
    assert_eq!(nothing.status.code(), Some(64), "{}", text(&nothing.stderr));
}

/// The official DaemonSet, its ConfigMap, and its key pair in the environment.
fn deploy(world: &World) {
    let cluster = &world.testbed.cluster;
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud-config", "namespace": "kube-system"},
            "data": {"cloud-config.conf": "{\"Global\": {\"clusterID\": \"c-old\"}}"},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "kube-system"},
            "stringData": {"id": "LTAIkey", "secret": "hunter2"},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
            "spec": {"template": {"spec": {
                "serviceAccountName": "cloud-controller-manager",
                "containers": [{
                    "name": "cloud-controller-manager",
                    "image": "registry.cn-hangzhou.aliyuncs.com/acs/cloud-controller-manager-amd64:v1.9.3.378-g42eac35-aliyun",
                    "command": ["/cloud-controller-manager", "--leader-elect=true", "--cluster-cidr=10.244.0.0/16",
                        "--allocate-node-cidrs=true", "--cloud-config=/etc/kubernetes/config/cloud-config.conf"],
                    "env": [
                        {"name": "ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "id"}}},
                        {"name": "ACCESS_KEY_SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "secret"}}},
                        {"name": "SLB_ENDPOINT", "value": "slb.internal.test"},
                    ],
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/kubernetes/config"}],
                }],
                "volumes": [{"name": "config", "configMap": {"name": "cloud-config"}}],
            }}},
        }),
    ];
    for object in objects {
        cluster.create(object).unwrap();
    }
}

/// Binds the account of the official controller, and another one.
fn bind_accounts(world: &World) {
    for (name, account) in [("system:cloud-controller-manager", "cloud-controller-manager"), ("others", "somewhere")] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}],
        });
        world.testbed.cluster.create(binding).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_in_the_cluster_is_found_and_read() {
    let world = World::new(ALL, "").await;
    let none = world.run(&["migrate", "--from-cluster"]).await;
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("is not found"), "{}", text(&none.stderr));

    deploy(&world);
    bind_accounts(&world);
    let out = world.folder().join("migration");
    let notes = succeeded(&world.run(&["migrate", "--from-cluster", "--out", out.to_str().unwrap()]).await);
    assert!(notes.contains("read from the DaemonSet kube-system/cloud-controller-manager"), "{notes}");
    let may_go = "ServiceAccount kube-system/cloud-controller-manager; ClusterRoleBinding system:cloud-controller-manager \
                  (ClusterRole system:cloud-controller-manager)\n";
    assert!(notes.contains(may_go), "{notes}");
    let elsewhere = world.run(&["migrate", "--from-cluster", "--namespace", "shoot--shop--prod"]).await;
    let said = text(&elsewhere.stderr);
    assert!(said.contains("namespaces shoot--shop--prod") && said.contains("--namespace"), "{said}");
    let toml = judge(&out);
    for line in [
        "controllers = [\"node\", \"route\", \"service\"]",
        "cluster_id = \"c-old\" # clusterID",
        "slb = \"slb.internal.test\" # SLB_ENDPOINT",
        "resource_lock = \"endpointsleases\"",
        "cluster_cidrs = [\"10.244.0.0/16\"] # --cluster-cidr",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    succeeded(&world.run(&["migrate", "--from-cluster"]).await);
    assert!(world.kubernetes_writes().is_empty() && world.testbed.cloud.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_are_read_by_their_mirrors() {
    let world = World::new(ALL, "").await;
    for master in ["m1", "m2"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("ccm-{master}"), "namespace": "kube-system",
                "annotations": {"kubernetes.io/config.mirror": "1"}},
            "spec": {"containers": [{
                "name": "ccm", "image": "mirror.test/cloud-controller-manager:v2.14.0",
                "args": ["--cloud-config=/etc/kubernetes/cloud.conf", "--configure-cloud-routes=false"],
                "volumeMounts": [{"name": "etc", "mountPath": "/etc/kubernetes"}],
            }], "volumes": [{"name": "etc", "hostPath": {"path": "/etc/kubernetes"}}]},
        });
        world.testbed.cluster.create(pod).unwrap();
    }
    let refused = world.run(&["migrate", "--from-cluster"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains("comes from no ConfigMap and no Secret") && said.contains("add --cloud-config FILE"),
        "{said}"
    );

    let (config, out) = (world.folder().join("cloud.conf"), world.folder().join("migration"));
    std::fs::write(&config, CLOUD_CONFIG).unwrap();
    let named =
        ["migrate", "--from-cluster", "--cloud-config", config.to_str().unwrap(), "--out", out.to_str().unwrap()];
    succeeded(&world.run(&named).await);
    assert!(judge(&out).contains("controllers = [\"node\", \"service\", \"nlb\"]"));
}

/// The official Deployment with everything in a projected volume and in `envFrom`.
fn deploy_projected(world: &World) {
    let object = |kind: &str, name: &str, field: &str, data: Value| {
        let metadata = json!({"name": name, "namespace": "kube-system"});
        world
            .testbed
            .cluster
            .create(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, field: data}))
            .unwrap();
    };
    object("ConfigMap", "older", "data", json!({"cloud.conf": "{\"Global\": {\"clusterID\": \"c-older\"}}"}));
    object("Secret", "newer", "stringData", json!({"conf": "{\"Global\": {\"clusterID\": \"c-newer\"}}"}));
    object("Secret", "keys", "stringData", json!({"KEY_ID": "LTAIkey", "ACCESS_KEY_SECRET": "hunter2"}));
    let endpoints = json!({"SLB_ENDPOINT": "slb.first.test", "VPC_ENDPOINT": "vpc.first.test", "unused": "1"});
    object("ConfigMap", "endpoints", "data", endpoints);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"template": {"spec": {
            "containers": [{
                "name": "ccm", "image": "mirror.test/cloud-controller-manager:v2.14.0",
                "args": ["--cloud-config=/etc/ccm/cloud.conf", "--configure-cloud-routes=false"],
                "envFrom": [
                    {"configMapRef": {"name": "endpoints"}},
                    {"secretRef": {"name": "keys"}},
                    {"prefix": "ACCESS_", "secretRef": {"name": "keys"}},
                    {"configMapRef": {"name": "not-there", "optional": true}},
                ],
                "env": [{"name": "SLB_ENDPOINT", "value": "slb.env.test"}],
                "volumeMounts": [{"name": "all", "mountPath": "/etc/ccm"}],
            }],
            "volumes": [{"name": "all", "projected": {"sources": [
                {"configMap": {"name": "older"}},
                {"secret": {"name": "newer", "items": [{"key": "conf", "path": "cloud.conf"}]}},
            ]}}],
        }}},
    });
    world.testbed.cluster.create(deployment).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn projected_volumes_and_the_environment_from_whole_objects_are_read_as_the_kubelet_does() {
    let world = World::new(ALL, "").await;
    deploy_projected(&world);
    let out = world.folder().join("migration");
    succeeded(&world.run(&["migrate", "--from-cluster", "--out", out.to_str().unwrap()]).await);
    let toml = judge(&out);
    for line in [
        "cluster_id = \"c-newer\" # clusterID",
        "slb = \"slb.env.test\" # SLB_ENDPOINT",
        "vpc = \"vpc.first.test\" # VPC_ENDPOINT",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }

    world.testbed.cluster.deny("kubernetes-admin", "get", "secrets");
    let refused = world.run(&["migrate", "--from-cluster"]).await;
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), String::new()));
    let said = text(&refused.stderr);
    for part in ["Secret keys", "Secret newer, key conf", "cannot be read"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
