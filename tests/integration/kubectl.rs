//! The program as a plugin of kubectl: on a machine with a kubeconfig and nothing else.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::json;
use sim::testbed::ACCESS_KEY;

use crate::harness::{ALL, HASTE, World};

/// Runs `kubectl alicloud` with these arguments; what it prints, and its exit code.
async fn plugin(world: &World, arguments: &[&str]) -> (String, Option<i32>) {
    plugin_with(world, arguments, &[]).await
}

async fn plugin_with(world: &World, arguments: &[&str], environment: &[(&str, &str)]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
    command.arg0("/home/me/bin/kubectl-alicloud").env_clear().args(arguments).envs(environment.iter().copied());
    command.env("KUBECONFIG", world.folder().join("kubeconfig"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), output.status.code())
}

/// A cluster with a Service, whose pods have this configuration.
async fn world() -> World {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world
}

/// The ConfigMap of the manifests, with what pods need and nobody else can use.
fn install(world: &World) {
    install_with(world, |text| text);
}

fn install_with(world: &World, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(world.config()).unwrap();
    let text = change(text.replace("kubeconfig = \"kubeconfig\"", "server = \"https://127.0.0.1:1\""));
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "alicloud-ccm", "namespace": "kube-system"},
        "data": {"alicloud-ccm.toml": text},
    });
    world.testbed.cluster.create(object).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_of_the_cluster_is_used_where_there_is_no_file() {
    let world = world().await;
    let (said, code) = plugin(&world, &["explain", "svc/web"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the cluster has no kube-system/alicloud-ccm/alicloud-ccm.toml"), "{said}");

    install(&world);
    let file = world.folder().join("access-key-secret");
    let key = ["--set", &format!("cloud.credentials.access_key_secret_file={}", file.display())];
    let with_key = |arguments: &[&'static str]| [arguments, &key.map(|text| text.to_owned().leak() as &str)].concat();
    let (page, code) = plugin(&world, &with_key(&["explain", "svc/web"])).await;
    assert!(page.starts_with("Service default/web"), "{page}");
    assert!(page.contains("create load balancer") && page.contains("no replica leads"), "{page}");
    assert_eq!(code, Some(2), "{page}");
    let (plan, code) = plugin(&world, &with_key(&["plan", "svc/web", "-n", "default"])).await;
    assert!(plan.contains("service default/web") && code == Some(2), "{plan}");
    let (plan, code) = plugin(&world, &with_key(&["plan", "svc/web", "--namespace", "shop"])).await;
    assert_eq!((plan.as_str(), code), ("Service shop/web does not exist in the cluster.\n", Some(3)));
    let (page, _) = plugin(&world, &with_key(&["doctor"])).await;
    assert!(page.contains("kube-system/alicloud-ccm/alicloud-ccm.toml is right"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_values_of_the_chart_win_as_they_do_in_the_pods() {
    let world = world().await;
    install(&world);
    let env = json!([
        {"name": "ALICLOUD_CCM__CONTROLLERS", "value": "[\"node\"]"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    let pod = json!({"containers": [{"name": "alicloud-ccm", "image": "alicloud-ccm", "env": env}]});
    let workload = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "alicloud-ccm", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "ccm"}},
            "template": {"metadata": {"labels": {"app": "ccm"}}, "spec": pod}},
    });
    world.testbed.cluster.create(workload).unwrap();
    let (page, code) = plugin_with(&world, &["explain", "svc/web"], &OWN_KEYS).await;
    assert!(page.contains("is managed by no controller of this program: not by service"), "{page}");
    assert_eq!(code, Some(3), "{page}");

    world.testbed.cluster.deny("kubernetes-admin", "get", "daemonsets");
    let (page, _) = plugin_with(&world, &["explain", "svc/web"], &OWN_KEYS).await;
    assert!(page.contains("variables of the pods state are not known: "), "{page}");
    assert!(page.contains("create load balancer"), "{page}");
    world.testbed.cluster.undeny();

    let wrong = json!([{"name": "ALICLOUD_CCM__CONTROLLERS", "value": "[\"nodes\"]"}]);
    let pod = json!({"containers": [{"name": "alicloud-ccm", "image": "alicloud-ccm", "env": wrong}]});
    let edit = json!({"spec": {"template": {"spec": pod}}});
    world.testbed.cluster.patch("DaemonSet", "kube-system", "alicloud-ccm", &edit).unwrap();
    let (said, code) = plugin_with(&world, &["check"], &OWN_KEYS).await;
    assert!(said.contains("\"nodes\"") && code == Some(1), "{said}");
}

const OWN_KEYS: [(&str, &str); 2] =
    [("ALIBABA_CLOUD_ACCESS_KEY_ID", ACCESS_KEY.0), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", ACCESS_KEY.1)];

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_knows_is_told_without_the_keys_of_the_pods_and_what_is_missing_is_named() {
    let world = world().await;
    install(&world);
    let weight = ("service.beta.kubernetes.io/alibaba-cloud-loadbalancer-scheduler", "nonsense");
    world.testbed.expose("wrong", &[80], &["node-1"], &[weight]);
    let names_the_keys = |said: &str| {
        for part in ["access_key_secret_file names", "which does not exist", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"] {
            assert!(said.contains(part), "nothing about {part}:\n{said}");
        }
    };

    let (page, code) = plugin(&world, &["explain", "svc/web"]).await;
    assert!(page.starts_with("Service default/web may be in sync; not known is everything in the cloud"), "{page}");
    assert!(page.contains("Managed by\n  service\n") && page.contains("Leader\n  no replica\n"), "{page}");
    assert_eq!(code, Some(1), "{page}");
    names_the_keys(&page);
    let (page, _) = plugin(&world, &["explain", "svc/wrong"]).await;
    assert!(
        page.starts_with("Service default/wrong cannot be brought in sync: ") && page.contains("\"nonsense\""),
        "{page}"
    );

    let (plan, code) = plugin(&world, &["plan"]).await;
    assert!(
        plan.contains("service default/wrong\n  problem: ") && plan.contains("No step is known; 2 problems."),
        "{plan}"
    );
    assert_eq!(code, Some(1), "{plan}");
    names_the_keys(&plan);
    let (plan, code) = plugin(&world, &["plan", "svc/none"]).await;
    assert_eq!((plan.as_str(), code), ("Service default/none does not exist in the cluster.\n", Some(3)));

    let (page, code) = plugin(&world, &["doctor"]).await;
    assert!(page.contains("access_key_secret_file names") && page.contains("ok       kubernetes: "), "{page}");
    assert_eq!(code, Some(1), "{page}");
    let (policy, code) = plugin(&world, &["ram-policy"]).await;
    assert!(policy.contains("slb:CreateLoadBalancer") && code == Some(0), "{policy}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_pods_would_refuse_is_refused_away_from_them() {
    for (wrong, named) in [
        ("acces_key_id = \"LTAIone\"", "there is no key \"acces_key_id\""),
        ("access_key_id = 5", "access_key_id must be text"),
        ("access_key_id = \"LTAIone\"", "access_key_secret is missing"),
        (
            "access_key_id = \"change-me\"\naccess_key_secret_file = \"/keys/secret\"",
            "access_key_id must not be the placeholder",
        ),
        ("instance_role = \"ccm\"\naccess_key_id_file = \"/keys/id\"", "cannot be used together with an access key"),
        ("duration = \"1s\"", "duration must be"),
        ("[server]\ntls_cert_file = \"/tls/tls.crt\"", "server.tls_key_file is missing"),
    ] {
        let world = world().await;
        install_with(&world, |text| {
            let kept = text.lines().filter(|line| !line.starts_with("access_key")).map(|line| match line {
                "[cloud.credentials]" if !wrong.starts_with('[') => format!("{line}\n{wrong}\n"),
                "[server]" if wrong.starts_with('[') => format!("{wrong}\n"),
                line => format!("{line}\n"),
            });
            kept.collect()
        });
        for keys in [&[][..], &OWN_KEYS] {
            let (said, code) = plugin_with(&world, &["check"], keys).await;
            assert!(said.contains(named) && code == Some(1), "{wrong}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_configuration_is_right_away_from_its_pods_and_what_was_not_seen_is_told() {
    let world = world().await;
    install(&world);
    for keys in [&[][..], &OWN_KEYS] {
        let (said, code) = plugin_with(&world, &["check"], keys).await;
        assert!(said.ends_with("kube-system/alicloud-ccm/alicloud-ccm.toml: no problems\n"), "{said}");
        assert!(said.starts_with("not looked at: cloud.credentials.access_key_secret_file names "), "{said}");
        assert_eq!(code, Some(0), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_finds_the_program_by_its_name_and_hands_over_the_arguments() {
    let world = world().await;
    install(&world);
    let folder = world.folder().join("bin");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_alicloud-ccm"), folder.join("kubectl-alicloud")).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("kubectl");
    command.args(["alicloud", "explain", "svc/web", "--namespace", "default"]).env("PATH", path);
    command.envs(OWN_KEYS).env("KUBECONFIG", world.folder().join("kubeconfig"));
    let Ok(output) = tokio::task::spawn_blocking(move || command.output()).await.unwrap() else {
        return println!("SKIPPED: no kubectl");
    };
    let page = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(page.starts_with("Service default/web ") && page.contains("create load balancer"), "{page}");
    assert_eq!(output.status.code(), Some(2), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_the_machine_take_the_place_of_those_of_the_pods() {
    let world = world().await;
    install(&world);
    let (page, code) = plugin_with(&world, &["explain", "svc/web"], &OWN_KEYS).await;
    assert!(page.contains("create load balancer") && code == Some(2), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_looked_for_in_the_namespace_of_the_context() {
    let world = world().await;
    install(&world);
    let kubeconfig =
        world.testbed.cluster.kubeconfig().replace("user: sim }\ncurrent", "user: sim, namespace: shop }\ncurrent");
    assert!(kubeconfig.contains("shop"));
    std::fs::write(world.folder().join("kubeconfig"), kubeconfig).unwrap();
    let key =
        format!("cloud.credentials.access_key_secret_file={}", world.folder().join("access-key-secret").display());
    let (page, _) = plugin(&world, &["explain", "svc/web", "--set", &key]).await;
    assert!(page.starts_with("Service shop/web"), "{page}");
    let (page, _) = plugin(&world, &["explain", "svc/web", "-n", "default", "--set", &key]).await;
    assert!(page.starts_with("Service default/web"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_no_cluster_asks_none() {
    let world = world().await;
    world.testbed.cluster.go_away().await;
    for command in [&["version"][..], &["events"], &["lint", "docs/examples/nginx.yaml"]] {
        let (said, code) = plugin(&world, command).await;
        assert_eq!(code, Some(0), "{command:?}: {said}");
    }
}
