//! Kustomizations of users upon ours, built by kubectl. Where there is none, nothing is judged.

use std::process::Command;

use serde_json::{Value, json};

use super::{OVERLAYS, Objects, binary_with, by_name, by_volume, judge_pod, on_loopback, root, texts, variables};
use crate::documents::furnish;
use crate::permissions::documents;

/// What this kustomization makes of what it finds below `deploy`; `None` without kubectl.
fn built(resources: &[String], mut kustomization: Value) -> Option<Objects> {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().canonicalize().unwrap(), folder.path().join("deploy")).unwrap();
    kustomization["resources"] = json!(resources);
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(folder.path()).output().ok()?;
    assert!(output.status.success(), "{resources:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(by_name(documents(&String::from_utf8(output.stdout).unwrap())))
}

fn workload(objects: &Objects) -> &Value {
    objects.iter().find(|(name, _)| name.starts_with('D')).unwrap().1
}

/// Every name that an object refers to, as kind and name.
fn references(objects: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for object in objects.values() {
        let role = &object["roleRef"];
        let named = object["subjects"].as_array().into_iter().flatten().chain((!role.is_null()).then_some(role));
        found.extend(named.map(|named| format!("{}/{}", named["kind"], named["name"]).replace('"', "")));
        let pod = &object["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().into_iter().flatten();
        let files = volumes.filter_map(|volume| volume["configMap"]["name"].as_str());
        found.extend(files.map(|name| format!("ConfigMap/{name}")));
        found.extend(pod["serviceAccountName"].as_str().map(|name| format!("ServiceAccount/{name}")));
        for rule in object["rules"].as_array().into_iter().flatten() {
            if texts(&rule["resources"]).contains(&"securitycontextconstraints") {
                let names = texts(&rule["resourceNames"]).into_iter();
                found.extend(names.map(|name| format!("SecurityContextConstraints/{name}")));
            }
        }
    }
    found
}

#[test]
fn other_names_a_namespace_and_an_image_leave_no_reference_behind() {
    let kustomization = json!({
        "namePrefix": "my-",
        "namespace": "mine",
        "images": [{ "name": "registry.example.com/alicloud-ccm", "newName": "mirror.example.com/ccm", "newTag": "9" }],
        "labels": [{ "pairs": { "team": "mine" }, "includeSelectors": true }],
    });
    for overlay in OVERLAYS {
        let Some(objects) = built(&[format!("deploy/{overlay}")], kustomization.clone()) else { return };
        let references = references(&objects);
        let lost: Vec<_> = references.iter().filter(|name| !objects.contains_key(*name)).collect();
        assert!(references.len() >= 6 && lost.is_empty(), "{overlay}: {lost:?} of {references:?}");
        let text = serde_json::to_string(&objects).unwrap();
        assert_eq!(text.matches("\"kube-system\"").count(), 1, "{overlay}: the namespace whose uid is read: {text}");
        let workload = workload(&objects);
        assert_eq!(workload["spec"]["template"]["spec"]["containers"][0]["image"], "mirror.example.com/ccm:9");
        let selector = &workload["spec"]["selector"]["matchLabels"];
        assert_eq!(&workload["spec"]["template"]["metadata"]["labels"], selector);
    }
}

#[test]
fn a_certificate_of_the_user_takes_the_place_of_the_one_that_the_program_makes() {
    for overlay in OVERLAYS {
        let resources = [format!("deploy/{overlay}"), "deploy/monitoring".to_owned()];
        let more = json!({ "components": ["deploy/components/certificate"] });
        let Some(objects) = built(&resources, more) else { return };
        let pod = &workload(&objects)["spec"]["template"]["spec"];
        judge_pod(pod, &on_loopback());
        let monitored = &objects["ServiceMonitor/alicloud-ccm"]["spec"]["endpoints"][0]["tlsConfig"];
        let secret = &by_volume(pod)["tls"]["secret"]["secretName"];
        assert_eq!((&monitored["ca"]["secret"]["name"], &monitored["insecureSkipVerify"]), (secret, &Value::Null));

        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        let config = folder.path().join("alicloud-ccm.toml");
        std::fs::write(&config, "cloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\n").unwrap();
        let here = |(name, value): (String, String)| {
            (name, value.replace("/etc/alicloud-ccm-tls", folder.path().to_str().unwrap()))
        };
        let variables: Vec<_> = variables(&pod["containers"][0]).into_iter().map(here).collect();
        let run = |command: &str| {
            let (right, said) = binary_with(&[command, "--config", config.to_str().unwrap()], &variables);
            assert!(right, "{overlay}: {command}: {said}");
            said
        };
        run("check");
        let printed = by_name(documents(&run("rbac")));
        let role = "ClusterRole/system:alicloud-ccm";
        assert_eq!(objects[role]["rules"], printed[role]["rules"], "{overlay}");
        std::fs::remove_file(folder.path().join("tls.key")).unwrap();
        let (right, said) = binary_with(&["check", "--config", config.to_str().unwrap()], &variables);
        assert!(!right && said.contains("tls_key_file"), "the files are used: {said}");
    }
}
