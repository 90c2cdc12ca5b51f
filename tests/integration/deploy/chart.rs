//! The chart, rendered by Helm. Where there is none, nothing is judged; `.ci/run` installs it where it can.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{Objects, binary_with, by_name, by_volume, judge_pod, kustomize, on_loopback, root, texts, variables};
use crate::documents::furnish;
use crate::permissions::documents;

/// What `helm` says; `None` where there is none.
fn helm(verb: &[&str], values: &Value, namespace: &str) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    std::fs::write(&file, values.to_string()).unwrap();
    let mut command = Command::new("helm");
    command.args(verb).arg(root().join("chart")).args(["-n", namespace, "-f"]).arg(file);
    command.output().ok()
}

/// What the chart makes, or why not; `None` where there is no Helm.
pub(super) fn template(values: &Value, namespace: &str) -> Option<Result<Objects, String>> {
    let output = helm(&["template", "alicloud-ccm"], values, namespace)?;
    if !output.status.success() {
        return Some(Err(String::from_utf8(output.stderr).unwrap()));
    }
    let objects = documents(&String::from_utf8(output.stdout).unwrap());
    Some(Ok(by_name(objects.into_iter().filter(|object| !object.is_null()).collect())))
}

#[test]
fn helm_has_nothing_to_say_about_it() {
    for values in [json!({}), json!({ "kind": "Deployment", "server": { "tlsSecret": "mine" } })] {
        let Some(output) = helm(&["lint", "--strict"], &values, "kube-system") else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn it_makes_the_pods_of_the_overlays() {
    for kind in ["Deployment", "DaemonSet"] {
        let Some(made) = template(&json!({ "kind": kind }), "kube-system") else { return };
        let made = made.unwrap();
        let overlay = kustomize(&Path::new("overlays").join(kind.to_lowercase()));
        let spec = |objects: &Objects| objects[&format!("{kind}/alicloud-ccm")]["spec"]["template"]["spec"].clone();
        let (ours, theirs) = (spec(&overlay), spec(&made));
        for field in ["tolerations", "priorityClassName", "hostNetwork", "dnsPolicy", "securityContext", "volumes"] {
            assert_eq!(theirs[field], ours[field], "{kind}: {field}");
        }
        assert_eq!(theirs["affinity"]["nodeAffinity"], ours["affinity"]["nodeAffinity"]);
        let (ours, theirs) = (&ours["containers"][0], &theirs["containers"][0]);
        for field in [
            "image",
            "livenessProbe",
            "ports",
            "readinessProbe",
            "resources",
            "securityContext",
            "volumeMounts",
            "terminationMessagePolicy",
        ] {
            assert_eq!(theirs[field], ours[field], "{kind}: {field}");
        }
    }
}

/// Values that cross: controllers, server, kind, namespace.
fn combinations() -> Vec<(Value, &'static str)> {
    let lists = [
        vec!["node", "service"],
        vec!["node", "route", "service", "nlb", "volume-labels", "pvtz"],
        vec!["node"],
        vec!["pvtz"],
        vec!["route"],
    ];
    let verified = json!({ "serverName": "alicloud-ccm", "ca": { "secret": { "name": "mine", "key": "ca.crt" } } });
    let servers = [
        (json!({}), json!({})),
        (json!({ "address": "::" }), json!({ "enabled": true })),
        (json!({ "address": "127.0.0.2", "tlsSecret": "mine" }), json!({ "enabled": true, "tlsConfig": verified })),
    ];
    let mut all = Vec::new();
    for (number, (controllers, (server, monitor))) in
        lists.iter().flat_map(|list| servers.iter().map(move |server| (list, server))).enumerate()
    {
        let mut server = server.clone();
        server["port"] = json!(10258 + number);
        let values = json!({
            "kind": if number % 2 == 0 { "Deployment" } else { "DaemonSet" },
            "controllers": controllers,
            "server": server,
            "serviceMonitor": monitor,
            "leaderElection": { "name": if number % 3 == 0 { "ccm" } else { "other" } },
            "config": "[cloud]\ncluster_id = \"one\"\n[pvtz]\nzone_name = \"one.example\"\n",
            "imagePullSecrets": [{ "name": "pull" }],
            "serviceAccount": { "annotations": { "example.com/role": "ccm" } },
            "extraArgs": ["--set=log.format=json"],
            "extraEnv": [{ "name": "TZ", "value": "UTC" }],
        });
        all.push((values, if number % 2 == 0 { "kube-system" } else { "net" }));
    }
    all
}

/// The workload of either kind.
pub(super) fn workload(objects: &Objects) -> &Value {
    objects.iter().find(|(name, _)| name.starts_with("D")).map(|(_, object)| object).unwrap()
}

/// The arguments and variables of an installed container, with the files that they name in `folder`.
fn here(objects: &Objects, container: &Value, folder: &Path) -> (Vec<String>, Vec<(String, String)>) {
    let config = &objects["ConfigMap/alicloud-ccm"]["data"]["alicloud-ccm.toml"];
    furnish(folder);
    std::fs::write(folder.join("alicloud-ccm.toml"), config.as_str().unwrap()).unwrap();
    let folder = folder.to_str().unwrap();
    let here = |text: &str| text.replace("/etc/alicloud-ccm-tls", folder).replace("/etc/alicloud-ccm", folder);
    let arguments = texts(&container["args"]).into_iter().map(here).collect();
    (arguments, variables(container).into_iter().map(|(name, value)| (name, here(&value))).collect())
}

/// The rules of a role, in any order.
fn rules(objects: &Objects, kind: &str) -> BTreeSet<String> {
    let found = objects.iter().find(|(name, _)| name.starts_with(kind) && !name.contains("metrics"));
    found.unwrap().1["rules"].as_array().unwrap().iter().map(Value::to_string).collect()
}

#[test]
fn roles_and_arguments_are_what_the_program_asks_for() {
    for (values, namespace) in combinations() {
        let Some(made) = template(&values, namespace) else { return };
        let objects = made.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let container = &workload(&objects)["spec"]["template"]["spec"]["containers"][0];
        let (mut arguments, variables) = here(&objects, container, folder.path());
        assert_eq!(arguments.remove(0), "run");
        let run = |command: &str, arguments: &[String]| {
            let words: Vec<_> = [command].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            let (right, said) = binary_with(&words, &variables);
            assert!(right, "{command}: {said}\n{values}");
            said
        };
        run("check", &arguments);
        arguments.push(format!("--service-account={namespace}/alicloud-ccm"));
        let printed = by_name(documents(&run("rbac", &arguments)));
        for kind in ["ClusterRole/", "Role/"] {
            assert_eq!(rules(&objects, kind), rules(&printed, kind), "{values}");
        }
        for binding in ["ClusterRoleBinding/system:alicloud-ccm", "RoleBinding/alicloud-ccm"] {
            assert_eq!(objects[binding]["subjects"], printed[binding]["subjects"], "{binding}");
            assert_eq!(objects[binding]["roleRef"], printed[binding]["roleRef"], "{binding}");
        }
    }
}

/// `helm test`, with the binary in place of the image: it judges what is installed, and nobody takes its pod for a replica.
#[test]
fn the_test_of_the_chart_passes_for_a_configuration_without_problems_alone() {
    for (mut values, namespace) in combinations() {
        for cluster_id in ["one", "change-me"] {
            values["config"] =
                json!(values["config"].as_str().unwrap().replace("\"one\"", &format!("\"{cluster_id}\"")));
            let Some(made) = template(&values, namespace) else { return };
            let objects = made.unwrap();
            let pod = &objects["Pod/alicloud-ccm-check"];
            let container = &pod["spec"]["containers"][0];
            let folder = tempfile::tempdir().unwrap();
            let (arguments, variables) = here(&objects, container, folder.path());
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let (is_right, said) = binary_with(&arguments, &variables);
            assert_eq!(is_right, cluster_id == "one", "{said}\n{values}");
            assert_eq!(said.contains("cluster_id"), !is_right, "{said}");

            let installed = &workload(&objects)["spec"];
            let running = &installed["template"]["spec"];
            assert_eq!(pod["spec"]["volumes"], running["volumes"]);
            assert_eq!(container["volumeMounts"], running["containers"][0]["volumeMounts"]);
            assert_eq!(self::variables(container), self::variables(&running["containers"][0]));
            let selector = installed["selector"]["matchLabels"].as_object().unwrap();
            let is_selected = selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value);
            assert!(!is_selected, "a DaemonSet would take it for a replica, and end it: {}", pod["metadata"]);
        }
    }
}

#[test]
fn probes_and_volumes_follow_the_server() {
    for (values, namespace) in combinations() {
        let Some(made) = template(&values, namespace) else { return };
        let objects = made.unwrap();
        let object = workload(&objects);
        assert_eq!(object["kind"], values["kind"]);
        assert_eq!(object["metadata"]["namespace"], namespace);
        let labels = &object["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&object["spec"]["selector"]["matchLabels"], labels);
        let (server, mut asked) = (&values["server"], on_loopback());
        asked["port"] = server["port"].clone();
        if let Some(address) = server.get("address") {
            asked["host"] = if *address == "::" { json!("::1") } else { address.clone() };
        }
        let spec = &object["spec"]["template"]["spec"];
        judge_pod(spec, &asked);
        assert_eq!(spec["imagePullSecrets"][0]["name"], "pull");
        assert_eq!(objects["ServiceAccount/alicloud-ccm"]["metadata"]["annotations"]["example.com/role"], "ccm");
        let volumes = by_volume(spec);
        let secret = volumes.get("tls").map(|volume| volume["secret"]["secretName"].clone());
        assert_eq!(secret.as_ref(), server.get("tlsSecret"));
        assert_eq!(&objects["Service/alicloud-ccm"]["spec"]["selector"], labels);
        assert_eq!(objects["Service/alicloud-ccm"]["spec"]["ports"][0]["port"], server["port"]);
        let monitor = objects.get("ServiceMonitor/alicloud-ccm");
        assert_eq!(monitor.is_some(), values["serviceMonitor"].get("enabled").is_some());
        let Some(monitor) = monitor else { continue };
        assert_eq!(monitor["spec"]["selector"]["matchLabels"], *labels);
        let unverified = json!({ "insecureSkipVerify": true });
        let expected = values["serviceMonitor"].get("tlsConfig").unwrap_or(&unverified);
        assert_eq!(monitor["spec"]["endpoints"][0]["tlsConfig"], *expected);
    }
}

#[test]
fn each_value_of_the_pods_has_its_place() {
    let values = json!({
        "kind": "Deployment", "replicas": 3, "fullnameOverride": "own", "credentialsSecret": "own-keys",
        "image": { "repository": "mirror.example.com/ccm", "tag": "9", "pullPolicy": "Always" },
        "serviceAccount": { "name": "own-account" },
        "podAnnotations": { "example.com/a": "1" }, "podLabels": { "example.com/b": "2" },
        "priorityClassName": "low", "terminationGracePeriodSeconds": 45, "nodeSelector": { "disk": "ssd" },
        "tolerations": [{ "key": "own", "operator": "Exists" }],
        "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["api.example.com"] }],
        "affinity": { "nodeAffinity": null, "podAffinity": { "own": [] } },
        "resources": { "limits": { "memory": "1Gi" } },
        "extraArgs": ["--set=log.format=json"], "extraEnv": [{ "name": "TZ", "value": "UTC" }],
        "extraVolumes": [{ "name": "own", "emptyDir": {} }],
        "extraVolumeMounts": [{ "name": "own", "mountPath": "/own" }],
        "leaderElection": { "name": "own-lock" },
    });
    let Some(made) = template(&values, "net") else { return };
    let made = made.unwrap();
    let workload = &made["Deployment/own"];
    let pod = &workload["spec"]["template"];
    let (spec, container) = (&pod["spec"], &pod["spec"]["containers"][0]);
    assert_eq!((&workload["spec"]["replicas"], &container["image"]), (&json!(3), &json!("mirror.example.com/ccm:9")));
    assert_eq!(
        (&container["imagePullPolicy"], &container["resources"]["limits"]["memory"]),
        (&json!("Always"), &json!("1Gi"))
    );
    assert_eq!(pod["metadata"]["annotations"], values["podAnnotations"]);
    assert_eq!(pod["metadata"]["labels"]["example.com/b"], "2");
    for field in ["priorityClassName", "terminationGracePeriodSeconds", "nodeSelector", "tolerations", "hostAliases"] {
        assert_eq!(spec[field], values[field], "{field}");
    }
    assert_eq!(spec["affinity"]["podAffinity"], values["affinity"]["podAffinity"]);
    assert!(spec["affinity"]["nodeAffinity"].is_null(), "{spec}");
    assert_eq!(spec["serviceAccountName"], "own-account");
    assert!(made.contains_key("ServiceAccount/own-account"));
    let last = |list: &Value| list.as_array().unwrap().last().cloned();
    assert_eq!(last(&container["args"]), last(&values["extraArgs"]));
    assert_eq!(last(&container["env"]), last(&values["extraEnv"]));
    assert_eq!(last(&container["volumeMounts"]), last(&values["extraVolumeMounts"]));
    assert_eq!(last(&spec["volumes"]), last(&values["extraVolumes"]));
    assert_eq!(by_volume(spec)["keys"]["secret"]["secretName"], "own-keys");
    let lock = ("ALICLOUD_CCM__LEADER_ELECTION__NAME".to_owned(), "own-lock".to_owned());
    assert!(variables(container).contains(&lock), "{container}");
}

#[test]
fn nothing_stays_outside_of_the_namespace_but_the_lock() {
    let Some(made) = template(&json!({ "serviceMonitor": { "enabled": true } }), "net") else { return };
    let elsewhere = |object: &&Value| object["metadata"].get("namespace").is_some_and(|namespace| namespace != "net");
    let made = made.unwrap();
    let names: BTreeSet<_> = made.values().filter(elsewhere).map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["Role", "RoleBinding"]));
}

#[test]
fn values_that_cannot_be_meant_are_refused_by_name() {
    for (values, named) in [
        (json!({ "kind": "Pod" }), "kind"),
        (json!({ "kind": "Deployment", "replicas": "two" }), "replicas"),
        (json!({ "controllers": ["nod"] }), "controllers"),
        (json!({ "server": { "port": 70000 } }), "port"),
        (json!({ "server": { "port": 0 }, "serviceMonitor": { "enabled": true } }), "port"),
        (json!({ "metrics": { "enabled": true } }), "metrics"),
        (json!({ "image": "registry.example.com/alicloud-ccm:1" }), "image"),
        (json!({ "replica": 2 }), "replica"),
        (json!({ "serviceAccount": { "create": false } }), "serviceAccount.name"),
        (json!({ "config": "[leader_election]\n# alone\nenabled = false\n" }), "leader_election.enabled"),
        (
            json!({ "kind": "Deployment", "replicas": 2, "config": "leader_election.enabled = false\n" }),
            "leader_election.enabled",
        ),
    ] {
        let Some(made) = template(&values, "kube-system") else { return };
        let said = made.expect_err("refused");
        assert!(said.contains(named), "{values}: {said}");
    }
}
