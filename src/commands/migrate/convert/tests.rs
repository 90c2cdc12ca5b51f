use std::path::Path;

use expect_test::expect;

use super::*;

fn official(flags: &[&str], cloud_config: &str) -> Official {
    let mut official = Official::default();
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    official.read_flags(&flags, |name| ProblemPlace::Argument { argument: name.to_owned() });
    official.read_cloud_config(Path::new("cloud-config.conf"), cloud_config);
    official
}

fn migrated(flags: &[&str], cloud_config: &str) -> Migration {
    convert(official(flags, cloud_config), true).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Place, message and remedy of each problem.
fn refused(flags: &[&str], cloud_config: &str) -> String {
    let problems = convert(official(flags, cloud_config), true).map(drop).expect_err("accepted");
    config::ConfigReport::of_problems(Path::new("migrate"), problems).to_string()
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

        error: the argument is no flag
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
