//! What objects in the cluster say of a pod network that does without the routes of this program, or makes them itself.
//!
//! `docs/guides/routes.md` has the whole table. What cannot be told from outside, such as a policy-only Calico that hides its mode, is
//! not reported.

use serde_json::Value;

/// What an object says against routes; `None` if they may be needed.
pub type NetworkJudge = fn(&Value) -> Option<String>;

/// By the ConfigMap of Flannel.
pub fn flannel(config_map: &Value) -> Option<String> {
    let network: Value = serde_json::from_str(config_map["data"]["net-conf.json"].as_str()?).ok()?;
    match network["Backend"]["Type"].as_str()?.to_lowercase().as_str() {
        "alloc" => None,
        "ali-vpc" => Some("Flannel with the backend ali-vpc writes the same route entries itself".to_owned()),
        "host-gw" => Some("Flannel with the backend host-gw sends packets past the route tables".to_owned()),
        other => Some(format!("Flannel with the backend {other} encapsulates packets")),
    }
}

/// By the ConfigMap of Cilium.
pub fn cilium(config_map: &Value) -> Option<String> {
    let value = |key: &str| config_map["data"][key].as_str().unwrap_or_default();
    if matches!(value("ipam"), "eni" | "alibabacloud") {
        return Some(format!("Cilium with ipam {} gives pods addresses of the VPC", value("ipam")));
    }
    let is_native = value("routing-mode") == "native" || value("tunnel") == "disabled";
    (!is_native).then(|| "Cilium in tunnel mode encapsulates packets".to_owned())
}

/// By the DaemonSet of Calico.
pub fn calico(daemon_set: &Value) -> Option<String> {
    let containers = daemon_set["spec"]["template"]["spec"]["containers"].as_array()?;
    let mut variables = containers.iter().flat_map(|container| container["env"].as_array().into_iter().flatten());
    let backend = variables.find(|variable| variable["name"] == "CALICO_NETWORKING_BACKEND");
    // Calico's own default is BGP; where another object says it, that cannot be told from here.
    calico_backend(backend.map_or(Some("bird"), |variable| variable["value"].as_str())?)
}

/// By the ConfigMap of Calico.
pub fn calico_config(config_map: &Value) -> Option<String> {
    calico_backend(config_map["data"]["calico_backend"].as_str()?)
}

fn calico_backend(backend: &str) -> Option<String> {
    (backend != "none").then(|| format!("Calico with the backend {backend} has routes or a tunnel of its own"))
}

/// By the DaemonSet of OVN, which is there only with it.
pub fn ovn(_: &Value) -> Option<String> {
    Some("OVN-Kubernetes encapsulates packets".to_owned())
}

/// By the DaemonSet of Kube-OVN, whose subnets span nodes, so that the pod CIDR of a node means nothing to it:
/// <https://kubeovn.github.io/docs/stable/en/guide/subnet>.
pub fn kube_ovn(_: &Value) -> Option<String> {
    Some("Kube-OVN has subnets of its own that span nodes".to_owned())
}

/// By the DaemonSet of Terway. Its older mode `VPC`, which is the default, does need routes:
/// <https://github.com/AliyunContainerService/terway/issues/32>.
pub fn terway(daemon_set: &Value) -> Option<String> {
    let containers = daemon_set["spec"]["template"]["spec"]["containers"].as_array()?.iter();
    let lists = containers.flat_map(|container| [&container["command"], &container["args"]]);
    let words = lists.filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let mode = words
        .map(|word| word.rsplit('=').next().unwrap_or(word))
        .find(|word| matches!(*word, "ENIMultiIP" | "ENIOnly"))?;
    Some(format!("Terway in the mode {mode} gives pods addresses of the VPC"))
}

/// By the network configuration of OpenShift 4.
pub fn openshift(network: &Value) -> Option<String> {
    let kind = network["status"]["networkType"].as_str().or(network["spec"]["networkType"].as_str())?;
    let encapsulates = matches!(kind, "OVNKubernetes" | "OpenShiftSDN");
    encapsulates.then(|| format!("the network type {kind} encapsulates packets"))
}

/// By the cluster network of OpenShift 3.11.
pub fn openshift_3(network: &Value) -> Option<String> {
    let plugin = network["pluginName"].as_str()?;
    plugin.starts_with("redhat/openshift-ovs").then(|| format!("OpenShift SDN ({plugin}) encapsulates packets"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objection(judge: NetworkJudge, object: &Value) -> String {
        judge(object).unwrap_or_default()
    }

    #[test]
    fn flannel_is_judged_by_its_backend() {
        let of = |backend: &str| {
            let network = json!({ "Network": "10.0.0.0/8", "Backend": { "Type": backend } }).to_string();
            objection(flannel, &json!({ "data": { "net-conf.json": network } }))
        };
        assert_eq!(of("alloc"), "");
        assert!(of("ali-vpc").contains("writes the same route entries itself"));
        assert!(of("vxlan").contains("encapsulates"));
        assert_eq!(objection(flannel, &json!({ "data": { "net-conf.json": "{" } })), "");
    }

    #[test]
    fn cilium_is_judged_by_its_routing_and_its_addresses() {
        let of = |data: Value| objection(cilium, &json!({ "data": data }));
        assert_eq!(of(json!({ "routing-mode": "native", "ipam": "kubernetes" })), "");
        assert_eq!(of(json!({ "tunnel": "disabled" })), "", "before 1.14");
        assert!(of(json!({})).contains("tunnel mode"), "which is the default");
        assert!(of(json!({ "routing-mode": "native", "ipam": "alibabacloud" })).contains("addresses of the VPC"));
    }

    #[test]
    fn calico_is_judged_by_what_it_says_itself() {
        let of = |env: Value| {
            let pod = json!({ "spec": { "containers": [{ "env": env }] } });
            objection(calico, &json!({ "spec": { "template": pod } }))
        };
        assert_eq!(of(json!([{ "name": "CALICO_NETWORKING_BACKEND", "value": "none" }])), "");
        assert!(of(json!([{ "name": "CALICO_NETWORKING_BACKEND", "value": "vxlan" }])).contains("backend vxlan"));
        assert!(of(json!([])).contains("backend bird"));
        assert_eq!(of(json!([{ "name": "CALICO_NETWORKING_BACKEND", "valueFrom": {} }])), "", "not to be told");
        let by_manifest = |backend: &str| objection(calico_config, &json!({ "data": { "calico_backend": backend } }));
        assert_eq!(by_manifest("none"), "");
        assert!(by_manifest("bird").contains("backend bird"));
    }

    #[test]
    fn terway_is_judged_by_its_mode() {
        let of = |command: Value| {
            let pod = json!({ "spec": { "containers": [{ "name": "policy" }, { "command": command }] } });
            objection(terway, &json!({ "spec": { "template": pod } }))
        };
        assert!(of(json!(["/usr/bin/terwayd", "-daemon-mode", "ENIMultiIP"])).contains("addresses of the VPC"));
        assert!(of(json!(["/usr/bin/terwayd", "--daemon-mode=ENIOnly"])).contains("mode ENIOnly"));
        assert_eq!(of(json!(["/usr/bin/terwayd", "-daemon-mode", "VPC"])), "", "it relies on routes");
        assert_eq!(of(json!(["/usr/bin/terwayd"])), "", "the default is VPC");
    }

    #[test]
    fn openshift_says_it_in_an_object_of_its_own() {
        let of = |kind: &str| objection(openshift, &json!({ "status": { "networkType": kind } }));
        assert!(of("OVNKubernetes").contains("encapsulates packets"));
        assert_eq!(of("Calico"), "");
        let old = json!({ "pluginName": "redhat/openshift-ovs-multitenant" });
        assert!(objection(openshift_3, &old).contains("OpenShift SDN"));
    }
}
