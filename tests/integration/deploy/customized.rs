//! Kustomizations of users upon ours, built by kubectl. Where there is none, nothing is judged.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::{OVERLAYS, Objects, binary, by_name, by_volume, judge_pod, on_loopback, root, texts, yaml};
use crate::documents::furnish;
use crate::permissions::documents;

/// What this kustomization makes of an overlay, which it finds below `deploy`; `None` without kubectl.
fn built(overlay: &str, mut kustomization: Value) -> Option<Objects> {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().canonicalize().unwrap(), folder.path().join("deploy")).unwrap();
    kustomization["resources"] = json!([format!("deploy/{overlay}")]);
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(folder.path()).output().ok()?;
    assert!(output.status.success(), "{overlay}: {}", String::from_utf8_lossy(&output.stderr));
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
        let Some(objects) = built(overlay, kustomization.clone()) else { return };
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
fn the_metrics_are_opened_with_tls_and_the_rights_that_this_needs() {
    for overlay in OVERLAYS {
        let Some(objects) = built(overlay, json!({ "components": ["deploy/components/metrics"] })) else { return };
        let pod = &workload(&objects)["spec"]["template"]["spec"];
        let mut asked = on_loopback();
        asked["scheme"] = "HTTPS".into();
        judge_pod(pod, &asked);
        let monitored = yaml("monitoring/service-monitor.yaml").remove(2);
        let authority = &monitored["spec"]["endpoints"][0]["tlsConfig"]["ca"]["secret"]["name"];
        assert_eq!(&by_volume(pod)["tls"]["secret"]["secretName"], authority);

        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        let config = folder.path().join("alicloud-ccm.toml");
        std::fs::write(config, "cloud.cluster_id = \"c\"\nroute.cluster_cidrs = [\"10.0.0.0/8\"]\n").unwrap();
        let here = folder.path().to_str().unwrap();
        let arguments = texts(&pod["containers"][0]["args"]).into_iter().skip(1);
        let arguments =
            arguments.map(|text| text.replace("/etc/alicloud-ccm-tls", here).replace("/etc/alicloud-ccm", here));
        let arguments: Vec<_> = arguments.collect();
        let run = |command: &str| {
            let words: Vec<_> = [command].into_iter().chain(arguments.iter().map(String::as_str)).collect();
            let (right, said) = binary(&words);
            assert!(right, "{overlay}: {command}: {said}");
            said
        };
        run("check");
        let printed = by_name(documents(&run("rbac")));
        let role = "ClusterRole/system:alicloud-ccm";
        let rules = |objects: &Objects| -> BTreeSet<String> {
            objects[role]["rules"].as_array().unwrap().iter().map(Value::to_string).collect()
        };
        assert_eq!(rules(&objects), rules(&printed), "{overlay}");
    }
}
