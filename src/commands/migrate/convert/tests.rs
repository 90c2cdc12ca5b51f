use std::collections::BTreeSet;
use std::path::Path;

use expect_test::expect;

use super::*;

fn official(flags: &[&str], cloud_config: &str) -> Official {
    let mut official = Official::default();
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    official.read_flags(&flags, |name| ProblemPlace::Argument { argument: name.to_owned() });
    if !cloud_config.is_empty() {
        official.read_cloud_config(Path::new("cloud-config.conf"), cloud_config);
    }
    official
}

/// With these variables in the container.
fn in_container(variables: &[(&str, &str)], cloud_config: &str) -> Migration {
    let mut official = official(&[], cloud_config);
    official.variables = Some(Vec::new());
    for (name, value) in variables {
        official.read_variable(name, value, ProblemPlace::Variable { variable: (*name).to_owned() });
    }
    convert(official, true).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// What the official controller of this generation runs: v2 takes names alone, v1.9.3 the upstream framework's patterns.
fn runs_there(listed: Option<&str>, is_v1: bool) -> BTreeSet<&'static str> {
    let alias = |item: &str| match item {
        "node" => vec!["initialise", "remove"],
        "cloud-node" | "cloud-node-controller" => vec!["initialise"],
        "cloud-node-lifecycle" | "cloud-node-lifecycle-controller" => vec!["remove"],
        "node-route-controller" | "route" => vec!["route"],
        "service-lb-controller" | "service" => vec!["service"],
        "nlb" => vec!["nlb"],
        "pvtz" => vec!["pvtz"],
        _ => vec![],
    };
    let all = ["initialise", "remove", "route", "service", "nlb", "pvtz"];
    let by_default = if is_v1 { &all[..4] } else { &all[..5] };
    let Some(listed) = listed else { return by_default.iter().copied().collect() };
    let decided = |part: &&'static str| {
        let first = listed.split(',').find(|item| alias(item.trim_start_matches('-')).contains(part));
        first.map_or_else(
            || listed.split(',').any(|item| item == "*") && by_default.contains(part),
            |item| !item.starts_with('-'),
        )
    };
    all.iter().copied().filter(|part| decided(part)).collect()
}

#[test]
fn a_migration_never_turns_a_controller_on_that_did_not_run() {
    let names = [
        "node",
        "cloud-node",
        "cloud-node-lifecycle",
        "route",
        "node-route-controller",
        "service",
        "service-lb-controller",
        "nlb",
        "pvtz",
    ];
    let mut lists: Vec<Option<String>> = vec![None, Some("*".to_owned())];
    for name in names {
        for list in [
            name.to_owned(),
            format!("*,-{name}"),
            format!("-{name},*"),
            format!("{name},-{name}"),
            format!("*,{name}"),
        ] {
            lists.push(Some(list.clone()));
            lists.push(Some(format!("service,{list}")));
        }
    }
    let switches = [
        (&["--cluster-cidr=10.0.0.0/8"][..], true),
        (&["--cluster-cidr=10.0.0.0/8", "--configure-cloud-routes=false"], false),
        (&[], false),
    ];
    for (list, is_v1, (switches, routes)) in lists
        .iter()
        .flat_map(|list| [false, true].into_iter().flat_map(move |is_v1| switches.map(|switch| (list, is_v1, switch))))
    {
        let mut flags: Vec<String> = switches.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(list.iter().map(|list| format!("--controllers={list}")));
        flags.extend(is_v1.then(|| "--allocate-node-cidrs=true".to_owned()));
        let mut given =
            official(&flags.iter().map(String::as_str).collect::<Vec<_>>(), "Global: {privateZoneId: zone-1}");
        given.is_v1 = is_v1;
        let mut there = runs_there(list.as_deref(), is_v1);
        there.retain(|part| *part != "route" || routes);
        let Ok(Migration { config, .. }) = convert(given, true) else {
            assert!(!there.contains("initialise"), "{flags:?} is refused, and {there:?} ran");
            continue;
        };
        let has = |name: &str| config.controllers.iter().any(|it| *it == name);
        let removes = config.node.remove_released || config.node.shutdown_taint;
        let parts = [
            ("initialise", has("node")),
            ("remove", has("node") && removes),
            ("route", has("route")),
            ("service", has("service")),
            ("nlb", has("nlb")),
            ("pvtz", has("pvtz")),
            ("volume", has("volume-labels")),
        ];
        for (part, is_on) in parts {
            assert!(!is_on || there.contains(part), "{flags:?} (v1: {is_v1}) turns {part} on; there ran {there:?}");
            let alone = part == "remove" && !there.contains("initialise");
            assert!(
                is_on || !there.contains(part) || alone,
                "{flags:?} (v1: {is_v1}) loses {part}; there ran {there:?}"
            );
        }
    }
}

#[test]
fn every_variable_of_the_container_is_taken_over_or_noted() {
    let plain = |name: &str| match name {
        "ALICLOUD_CLIENT_SCHEME" => "HTTP",
        "SERVICE_FORCE_BACKEND_ENI" => "true",
        "METADATA_ENDPOINT" => "http://metadata.test",
        _ => "value.test",
    };
    for setting in VARIABLES.iter() {
        let pair = ["ACCESS_KEY_ID", "ACCESS_KEY_SECRET"];
        let variables = if pair.contains(&setting.name) { pair.to_vec() } else { vec![setting.name] };
        let given: Vec<_> = variables.iter().map(|name| (*name, plain(name))).collect();
        let Migration { toml, notes, .. } = in_container(&given, "");
        let said = format!("{toml}\n{}", notes.join("\n"));
        assert!(said.contains(setting.name), "{}: {said}", setting.name);
    }
    let Migration { config, notes, .. } = in_container(
        &[("SERVICE_FORCE_BACKEND_ENI", "false"), ("https_proxy", "http://10.0.0.1:3128"), ("TZ", "Asia/Shanghai")],
        "Global: {serviceBackendType: eni}",
    );
    assert!(!config.service.eni_backends, "the variable counts before serviceBackendType, as there");
    let notes = notes.join("\n");
    assert!(notes.contains("HTTPS_PROXY: proxies count here, too") && !notes.contains("3128"), "{notes}");
    assert!(notes.contains("TZ: no variable of the official controller"), "{notes}");
    assert!(!notes.contains("were not seen") && !notes.contains("these may go"), "{notes}");
    let by_files = migrated(&[], "").notes.join("\n");
    for part in ["were not seen", "SERVICE_FORCE_BACKEND_ENI", "ClusterRoleBinding system:cloud-controller-manager"] {
        assert!(by_files.contains(part), "{part}: {by_files}");
    }
}

#[test]
fn a_key_pair_with_line_breaks_is_read_as_go_reads_it() {
    let wrapped = "Global:\n  accessKeyID: |\n    TFRBS\n    WtleQ==\n  accessKeySecret: \"aHVudGV\\nyMg==\"\n";
    let keys = migrated(&[], wrapped).key_files;
    assert_eq!(keys.iter().map(|(_, secret)| secret.expose()).collect::<Vec<_>>(), ["LTAIkey", "hunter2"]);
}

#[test]
fn a_file_that_is_no_cloud_config_is_called_what_it_is() {
    for (text, expected) in [
        ("# nothing\n", "the cloud config is empty"),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
            "this is a manifest of kind ConfigMap, and not the cloud config",
        ),
        ("Global:\n  clusterID: c-1\n  clusterID: c-2\n", "the cloud config has a key twice"),
        ("Global:\n  clusterID: c-1\n  ClusterId: c-2\n", "clusterID is stated twice"),
        ("colour: blue\n", "the cloud config has no table Global"),
    ] {
        let said = refused(&[], text);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

fn migrated(flags: &[&str], cloud_config: &str) -> Migration {
    convert(official(flags, cloud_config), true).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Place, message and remedy of each problem.
fn refused(flags: &[&str], cloud_config: &str) -> String {
    let problems = convert(official(flags, cloud_config), true).map(drop).expect_err("accepted");
    config::ConfigReport::new(problems, &[]).to_string()
}

#[test]
fn the_flags_and_the_config_of_the_documented_manifest() {
    let flags = [
        "--controllers=node,route,service,ingress",
        "--route-reconciliation-period=3m",
        "--configure-cloud-routes=true",
        "--cluster-cidr=172.20.0.0/16",
        "--metrics-bind-addr=0",
        "--concurrent-service-syncs",
        "5",
        "-v=5",
        "--cloud-config=/etc/kubernetes/config/cloud-config.conf",
        "--leader_elect_lease_duration=137s",
        "--leader-elect-renew-deadline=1m47s",
        "--feature-gates=ServiceNodeExclusion=true,IPv6DualStack=true",
    ];
    let cloud_config = r#"{"Global": {"accessKeyID": "TFRBSWtleQ==", "AccessKeySecret": "c2VjcmV0", "clusterID": "c-1",
        "vpcid": "vpc-1", "vswitchid": "cn-hangzhou-i:vsw-1,vsw-2", "region": "cn-hangzhou", "uid": "77",
        "serviceMaxConcurrentReconciles": 100, "disablePublicSLB": true, "routeTableIDs": "vtb-1, vtb-2", "colour": "blue"}}"#;
    let migration = migrated(&flags, cloud_config);
    expect![[r#"
        # From the settings of the official controller, which stand behind each line.
        controllers = ["node", "route", "service"] # --controllers

        [cloud]
        cluster_id = "c-1" # clusterID
        region = "cn-hangzhou" # region
        vpc_id = "vpc-1" # vpcid
        vswitches = ["cn-hangzhou-i:vsw-1"] # vswitchid

        [cloud.credentials]
        access_key_id_file = "access-key-id" # accessKeyID
        access_key_secret_file = "access-key-secret" # accessKeySecret

        [leader_election]
        lease_duration = "2m17s" # --leader-elect-lease-duration
        renew_deadline = "1m47s" # --leader-elect-renew-deadline

        [log]
        level = "debug" # --v

        [nlb]
        concurrency = 64 # serviceMaxConcurrentReconciles

        [node]
        ipv6 = true # IPv6DualStack

        [route]
        cluster_cidrs = ["172.20.0.0/16"] # --cluster-cidr
        period = "3m" # --route-reconciliation-period
        table_ids = ["vtb-1", "vtb-2"] # routeTableIDs

        [service]
        concurrency = 64 # serviceMaxConcurrentReconciles
        disable_public = true # disablePublicSLB
        ipv6 = true # IPv6DualStack
    "#]]
    .assert_eq(&migration.toml);
    expect![[r#"
        colour: no key of the official controller; ignored there, too
        --metrics-bind-addr: metrics, health and configuration share one address; set manually if needed: server.address, server.port
        --feature-gates ServiceNodeExclusion=true: no gate of this controller
        vswitchid: cn-hangzhou-i:vsw-1,vsw-2 cannot be taken over as it is; cloud.vswitches is ["cn-hangzhou-i:vsw-1"]
        uid: no helper program runs; assume a role of the other account instead; set manually if needed: cloud.credentials.role_arn
        serviceMaxConcurrentReconciles: 100 cannot be taken over as it is; service.concurrency is 64
        serviceMaxConcurrentReconciles: 100 cannot be taken over as it is; nlb.concurrency is 64
        the variables of its container were not seen; --from-cluster reads them, or compare them with config/migration.md: ACCESS_KEY_ID, ACCESS_KEY_SECRET, SERVICE_FORCE_BACKEND_ENI, ECS_ENDPOINT, VPC_ENDPOINT, SLB_ENDPOINT, NLB_ENDPOINT, METADATA_ENDPOINT, ALICLOUD_CLIENT_SCHEME, EFLO_CONTROLLER_ENDPOINT, X-ACSPROXY-ASCM-CONTEXT, ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN, ALIBABA_CLOUD_OIDC_TOKEN_FILE, ALIBABA_CLOUD_ROLE_SESSION_NAME, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, KUBECONFIG, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, POD_NAME, POD_NAMESPACE
        once neither the official controller nor a rollback is needed, these may go, if nothing else uses them: ServiceAccount kube-system/cloud-controller-manager; ClusterRole and ClusterRoleBinding system:cloud-controller-manager; --from-cluster names what there is
        --controllers: ingress is not part of this program"#]].assert_eq(&migration.notes.join("\n"));
    let keys: Vec<_> = migration.key_files.iter().map(|(name, secret)| (*name, secret.expose())).collect();
    assert_eq!(keys, [("access-key-id", "LTAIkey"), ("access-key-secret", "secret")]);
}

#[test]
fn routes_are_made_where_the_official_controller_makes_them() {
    let v2 = "--cluster-cidr=10.0.0.0/8";
    for (flags, expected) in [
        (&[v2][..], true),
        (&[v2, "--configure-cloud-routes=false"], false),
        (&["--configure-cloud-routes"], false),
        (&[v2, "--port=10258"], false),
        (&[v2, "--port=10258", "--allocate-node-cidrs"], true),
        (&[v2, "--controllers=service"], false),
    ] {
        let Migration { config, notes, .. } = migrated(flags, "");
        assert_eq!(config.controllers.iter().any(|name| *name == "route"), expected, "{flags:?}");
        let told = notes.iter().any(|note| note.starts_with("route is left out"));
        assert_eq!(told, !expected && !flags.contains(&"--controllers=service"), "{flags:?}: {notes:?}");
    }
}

#[test]
fn without_settings_the_official_defaults_hold() {
    let toml = migrated(&[], "").toml;
    assert!(toml.contains("cluster_id = \"clusterid\""), "{toml}");
    assert!(toml.contains("controllers = [\"node\", \"service\", \"nlb\"]"), "{toml}");
    let v1 = migrated(&["--min-resync-period=5m"], "").toml;
    assert!(v1.contains("controllers = [\"node\", \"service\"]"), "v1.9.3 knows no network load balancers: {v1}");
    assert!(v1.contains("resource_lock = \"endpointsleases\""), "v1.9.3 may still run: {v1}");
}

#[test]
fn what_the_official_controller_ignores_is_not_put_into_force() {
    let Migration { config, notes, .. } =
        migrated(&[], "Global:\n  region: cn-beijing\n  vpcid: vpc-old\n  zoneid: cn-beijing-a\n");
    assert_eq!((config.cloud.region, config.cloud.vpc_id, config.cloud.zone_id), (None, None, None));
    assert_eq!(notes.iter().filter(|note| note.contains("had no effect without both vpcid and vswitchid")).count(), 3);
    let half = migrated(&[], "Global: {accessKeyID: TFRBSWtleQ==}");
    assert!(
        half.key_files.is_empty() && half.notes.iter().any(|note| note.contains("only together")),
        "{:?}",
        half.notes
    );
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let flags = [
        "--cluster-cdir=10.0.0.0/8",
        "--kube-api-qps=fast",
        "--leader-elect",
        "false",
        "node",
        "--cluster-cidr=10.0.0.1/8",
    ];
    let cloud_config =
        "Global:\n  clusterID: not allowed\n  accessKeyID: \"%%hunter2%%\"\n  routeTableIDs:\n    a: b\n";
    expect![[r#"
        error: clusterID cannot be taken over: cloud.cluster_id must be 1 to 64 letters, digits, '.', '_' and '-', not "not allowed"
        --> cloud-config.conf:2:3

        error: accessKeyID must be Base64 of text
        --> cloud-config.conf:3:3
         = help: correct it, or leave it out and set what config/migration.md names manually

        error: routeTableIDs must be a single value
        --> cloud-config.conf:4:3
         = help: write it as text; several are separated by commas

        error: the official controller has no flag --cluster-cdir
        --> argument --cluster-cdir
         = help: leave it out; config/migration.md lists the flags of the official controller

        error: --cluster-cidr cannot be taken over: route.cluster_cidrs cannot be used: "10.0.0.1/8" has host bits set; the range is written "10.0.0.0/8"
        --> argument --cluster-cidr

        error: --kube-api-qps must be a number above 0, not "fast"
        --> argument --kube-api-qps
         = help: correct it, or leave it out and set what config/migration.md names manually

        error: the official controller reads --leader-elect false as --leader-elect=true
        --> argument --leader-elect
         = help: write --leader-elect=true or --leader-elect=false, as it is meant

        error: the argument "node" is no flag
        --> argument node
         = help: flags begin with --; values follow after =

        8 problems in the configuration"#]].assert_eq(&refused(&flags, cloud_config));
    for text in ["[Global]\nfoo = hunter2", "hunter2", "Global: [hunter2"] {
        let said = refused(&[], text);
        assert!(said.contains("cloud-config.conf") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn keys_are_not_printed() {
    let cloud_config = "Global:\n  accessKeyID: TFRBSWtleQ==\n  accessKeySecret: aHVudGVyMg==\n";
    let migration = convert(official(&[], cloud_config), false).unwrap_or_else(|problems| panic!("{problems:?}"));
    let Migration { toml, notes, key_files, .. } = migration;
    assert!(key_files.is_empty());
    let all = format!("{toml}{notes:?}");
    assert!(!["LTAIkey", "TFRBSWtleQ", "hunter2", "aHVudGVyMg"].iter().any(|secret| all.contains(secret)), "{all}");
    assert!(
        toml.contains("\n#access_key_secret_file = \"access-key-secret\" # accessKeySecret: put it there"),
        "{toml}"
    );
    assert!(notes.iter().any(|note| note.contains("--out FOLDER")), "{notes:?}");
}
