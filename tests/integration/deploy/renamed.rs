//! The kustomizations under other names, in another namespace and with another image, as Kustomize changes them. Where there is
//! no kubectl, nothing is judged.

use std::process::Command;

use serde_json::json;

use super::{OVERLAYS, Objects, by_name, root, texts};
use crate::permissions::documents;

/// An overlay of a user upon this one; `None` without kubectl.
fn renamed(overlay: &str) -> Option<Objects> {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().canonicalize().unwrap(), folder.path().join("deploy")).unwrap();
    let kustomization = json!({
        "namePrefix": "my-",
        "namespace": "mine",
        "resources": [format!("deploy/{overlay}")],
        "images": [{ "name": "registry.example.com/alicloud-ccm", "newName": "mirror.example.com/ccm", "newTag": "9" }],
        "labels": [{ "pairs": { "team": "mine" }, "includeSelectors": true }],
    });
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(folder.path()).output().ok()?;
    assert!(output.status.success(), "{overlay}: {}", String::from_utf8_lossy(&output.stderr));
    Some(by_name(documents(&String::from_utf8(output.stdout).unwrap())))
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
    for overlay in OVERLAYS {
        let Some(objects) = renamed(overlay) else { return };
        let references = references(&objects);
        let lost: Vec<_> = references.iter().filter(|name| !objects.contains_key(*name)).collect();
        assert!(references.len() >= 6 && lost.is_empty(), "{overlay}: {lost:?} of {references:?}");
        let text = serde_json::to_string(&objects).unwrap();
        assert_eq!(text.matches("\"kube-system\"").count(), 1, "{overlay}: the namespace whose uid is read: {text}");
        let workload = objects.iter().find(|(name, _)| name.starts_with('D')).unwrap().1;
        assert_eq!(workload["spec"]["template"]["spec"]["containers"][0]["image"], "mirror.example.com/ccm:9");
        let selector = &workload["spec"]["selector"]["matchLabels"];
        assert_eq!(&workload["spec"]["template"]["metadata"]["labels"], selector);
    }
}
