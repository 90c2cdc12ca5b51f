//! The values of the chart: described in one place, strict, and each switch seen in what it makes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expect_test::expect_file;
use serde_json::{Value, json};
use sim::cloud::Role;

use super::chart::{template, workload};
use super::{binary, by_volume, read, texts, yaml};
use crate::harness::{HASTE, World, is_ready};
use crate::permissions::documents;

/// Values by path, each with the comment above it that begins with two dashes.
fn described() -> Vec<(String, String)> {
    let text = read("chart/values.yaml");
    let (mut found, mut path, mut said) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        let inner = line.trim_start();
        if let Some(comment) = inner.strip_prefix("# -- ") {
            said = Some(comment.to_owned());
        } else if let Some((key, _)) = inner.split_once(':').filter(|_| !inner.starts_with('#')) {
            path.truncate((line.len() - inner.len()) / 2);
            path.push(key);
            found.extend(said.take().map(|said| (path.join("."), said)));
        }
    }
    found
}

/// The descriptions of a schema by path, as far as it goes before it describes a value; and that it is strict everywhere.
fn descriptions(schema: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        match inner["description"].as_str() {
            None if inner["properties"].is_object() => descriptions(inner, &format!("{path}."), found),
            said => drop(found.insert(path, said.unwrap_or_default().to_owned())),
        }
    }
}

/// Descriptions inside of a value that has one: nobody wrote them for what they stand at.
fn inner_descriptions(schema: &Value, is_described: bool, path: &str, found: &mut Vec<String>) {
    if is_described && schema.get("description").is_some() {
        found.push(path.to_owned());
    }
    let is_described = is_described || schema.get("description").is_some();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let more = ["items", "additionalProperties"].into_iter().filter_map(|key| Some((key, schema.get(key)?)));
    for (name, inner) in properties.map(|(name, inner)| (name.as_str(), inner)).chain(more) {
        inner_descriptions(inner, is_described, &format!("{path}.{name}"), found);
    }
}

/// Places of a schema that name properties and allow others.
fn open_objects(schema: &Value, path: &str, found: &mut Vec<String>) {
    if schema["properties"].is_object() && schema["additionalProperties"] != false {
        found.push(path.to_owned());
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let items = schema.get("items").map(|items| ("items", items));
    for (name, inner) in properties.map(|(name, inner)| (name.as_str(), inner)).chain(items) {
        open_objects(inner, &format!("{path}.{name}"), found);
    }
}

#[test]
fn the_page_and_the_schema_of_the_chart_say_what_its_values_say() {
    let schema: Value = serde_json::from_str(&read("chart/values.schema.json")).unwrap();
    let mut in_schema = BTreeMap::new();
    descriptions(&schema, "", &mut in_schema);
    in_schema.remove("global");
    assert_eq!(in_schema, described().into_iter().collect());
    let mut open = Vec::new();
    open_objects(&schema, "values", &mut open);
    inner_descriptions(&schema, false, "values", &mut open);
    assert_eq!(open, Vec::<String>::new());

    let values = &yaml("chart/values.yaml")[0];
    let mut page = "# Chart alicloud-ccm\n\nFor administrators who run the program as pods; [in-cluster.md](../../docs/guides/in-cluster.md) \
                    installs it.\n\n```console\nhelm install alicloud-ccm deploy/chart -n kube-system --set-file \
                    config=alicloud-ccm.toml\nhelm test alicloud-ccm -n kube-system --logs\n```\n\n\
                    [values.yaml](values.yaml) says more about some values. A value that is not listed here is refused.\n\n\
                    | Value | Default | Meaning |\n|---|---|---|\n"
        .to_owned();
    for (path, said) in described() {
        let default = values.pointer(&format!("/{}", path.replace('.', "/"))).unwrap().to_string();
        let default = if default.len() > 60 { "in `values.yaml`".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{path}` | {default} | {said} |");
    }
    expect_file!["../../../deploy/chart/README.md"].assert_eq(&page);
}

#[test]
fn monitors_alerts_and_a_dashboard_are_made_where_they_are_asked_for() {
    let verified = json!({ "serverName": "alicloud-ccm" });
    let own = json!({ "team": "mine" });
    let values = json!({
        "podMonitor": { "enabled": true, "tokenSecret": "token", "interval": "1m", "tlsConfig": verified, "labels": own },
        "serviceMonitor": { "enabled": true, "labels": own },
        "alerts": { "enabled": true, "labels": own },
        "dashboard": { "enabled": true, "labels": own },
    });
    let Some(made) = template(&values, "net") else { return };
    let made = made.unwrap();
    let none = template(&json!({}), "net").unwrap().unwrap();
    let more: BTreeSet<_> = made.keys().filter(|name| !none.contains_key(*name)).map(String::as_str).collect();
    let asked = ["PodMonitor/alicloud-ccm", "ServiceMonitor/alicloud-ccm", "PrometheusRule/alicloud-ccm"];
    let dashboard = "ConfigMap/alicloud-ccm-dashboard";
    assert_eq!(more, asked.into_iter().chain([dashboard]).collect());
    for name in more {
        let metadata = &made[name]["metadata"];
        assert_eq!((&metadata["labels"]["team"], &metadata["namespace"]), (&json!("mine"), &json!("net")), "{name}");
    }
    let pod = &workload(&made)["spec"]["template"];
    let monitor = &made["PodMonitor/alicloud-ccm"]["spec"];
    assert_eq!(monitor["selector"]["matchLabels"], pod["metadata"]["labels"]);
    assert_eq!(monitor["namespaceSelector"]["matchNames"], json!(["net"]));
    let endpoint = json!({
        "port": pod["spec"]["containers"][0]["ports"][0]["name"], "scheme": "https", "interval": "1m",
        "authorization": { "credentials": { "name": "token", "key": "token" } }, "tlsConfig": verified,
    });
    assert_eq!(monitor["podMetricsEndpoints"], json!([endpoint]));
    assert_eq!(made["PrometheusRule/alicloud-ccm"]["spec"], documents(&read("monitoring/alerts.yaml"))[0]);
    let shown: Value = serde_json::from_str(made[dashboard]["data"]["dashboard.json"].as_str().unwrap()).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(&read("monitoring/dashboard.json")).unwrap());
    assert_eq!(made[dashboard]["metadata"]["labels"]["grafana_dashboard"], "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_takes_a_role_without_a_key() {
    let world = World::new(&["node"], HASTE).await;
    let account = world.testbed.cloud.look(|cloud| cloud.id.clone());
    let (role, provider) =
        (format!("acs:ram::{account}:role/ccm"), format!("acs:ram::{account}:oidc-provider/cluster"));
    let values = json!({ "rrsa": { "roleArn": role, "oidcProviderArn": provider } });
    let Some(made) = template(&values, "kube-system") else { return };
    let made = made.unwrap();
    let spec = &workload(&made)["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let token = &by_volume(spec)["rrsa"]["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(token["audience"], "sts.aliyuncs.com");

    // The file is where the kubelet would put it; the program finds it by the variables of the pod alone.
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "rrsa").unwrap()["mountPath"].as_str().unwrap();
    let folder = world.folder().join("rrsa");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(token["path"].as_str().unwrap()), "the-token-of-the-pod").unwrap();
    let variables = container["env"].as_array().unwrap().iter().filter_map(|variable| {
        let (name, value) = (variable["name"].as_str()?, variable["value"].as_str()?);
        name.starts_with("ALIBABA_CLOUD_").then(|| (name, value.replace(mount, folder.to_str().unwrap())))
    });
    let variables: Vec<_> = variables.collect();
    world.testbed.cloud.edit(|cloud| {
        cloud.keys.clear();
        cloud.oidc_token = Some("the-token-of-the-pod".into());
        cloud.roles.insert("ccm".into(), Role { max_session: 3600, denied: [].into() });
    });
    world.rewrite(|text| text.lines().filter(|line| !line.starts_with("access_key")).collect::<Vec<_>>().join("\n"));
    world.testbed.join(1);
    let ccm = world.start_with(&[], &variables.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>());
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    assert_eq!(world.testbed.cloud.count("AssumeRoleWithOIDC"), 1);
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[test]
fn the_test_of_the_chart_runs_the_image_that_is_installed() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let values = json!({ "image": { "repository": "mirror.example.com/ccm", "tag": "9", "digest": digest } });
    let Some(made) = template(&values, "kube-system") else { return };
    let made = made.unwrap();
    let pod = &made["Pod/alicloud-ccm-check"];
    assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!((containers.len(), &containers[0]["args"][0]), (1, &json!("check")));
    assert_eq!(containers[0]["image"], format!("mirror.example.com/ccm@{digest}"));
    assert_eq!(containers[0]["image"], workload(&made)["spec"]["template"]["spec"]["containers"][0]["image"]);
    let arguments = texts(&containers[0]["args"]);
    assert!(binary(&[&arguments[..], &["--help"]].concat()).0, "{arguments:?}");
}

#[test]
fn the_notes_say_how_to_look_with_commands_that_exist() {
    let notes = read("chart/templates/NOTES.txt");
    let commands = notes.split("-- /alicloud-ccm ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let commands: BTreeSet<_> = commands.collect();
    assert_eq!(commands, BTreeSet::from(["doctor", "explain", "plan"]));
    assert!(commands.iter().all(|command| binary(&[command, "--help"]).0));
    for way in [" logs ", " port-forward ", "helm test "] {
        assert!(notes.contains(way), "{way}");
    }
}

#[test]
fn the_schema_names_the_value_that_it_refuses() {
    for (values, named) in [
        (json!({ "config": "" }), "config"),
        (json!({ "image": { "digest": "latest" } }), "digest"),
        (json!({ "imagePullSecrets": ["pull"] }), "imagePullSecrets"),
        (json!({ "rrsa": { "roleArn": "ccm", "oidcProviderArn": "" } }), "roleArn"),
        (json!({ "rrsa": { "roleArn": "acs:ram::1:role/ccm" } }), "rrsa.oidcProviderArn"),
        (json!({ "rrsa": { "oidcProviderArn": "acs:ram::1:oidc-provider/cluster" } }), "rrsa.roleArn"),
        (json!({ "serviceMonitor": { "interval": "often" } }), "interval"),
        (json!({ "serviceMonitor": { "tlsConfig": { "server": "one" } } }), "server"),
        (json!({ "podMonitor": { "enabled": true } }), "podMonitor.tokenSecret"),
        (json!({ "podMonitor": { "enabled": true, "tokenSecret": "one" }, "server": { "port": 0 } }), "port"),
        (json!({ "alerts": true }), "alerts"),
        (json!({ "dashboard": { "enabled": "yes" } }), "dashboard/enabled"),
        (json!({ "podAnnotations": { "example.com/a": 1 } }), "podAnnotations"),
        (json!({ "serviceAccount": { "annotations": ["one"] } }), "serviceAccount/annotations"),
        (json!({ "priorityClassName": 1 }), "priorityClassName"),
        (json!({ "terminationGracePeriodSeconds": 0 }), "terminationGracePeriodSeconds"),
        (json!({ "nodeSelector": "ssd" }), "nodeSelector"),
        (json!({ "affinity": { "nodeAfinity": {} } }), "nodeAfinity"),
        (json!({ "tolerations": [{ "operator": "Exist" }] }), "tolerations/0/operator"),
        (json!({ "resources": { "request": {} } }), "request"),
        (json!({ "hostAliases": [{ "ip": "one", "hostnames": ["a"] }] }), "hostAliases/0/ip"),
        (json!({ "extraArgs": [1] }), "extraArgs"),
        (json!({ "extraEnv": [{ "value": "one" }] }), "extraEnv"),
        (json!({ "extraVolumes": [{ "emptyDir": {} }] }), "extraVolumes"),
        (json!({ "extraVolumeMounts": [{ "name": "own", "path": "/own" }] }), "extraVolumeMounts"),
    ] {
        let Some(made) = template(&values, "kube-system") else { return };
        let said = made.expect_err(named);
        assert!(said.contains(named), "{values}: {said}");
    }
}
