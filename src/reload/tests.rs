use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use expect_test::{expect, expect_file};

use super::*;
use crate::config::secret::Secret;
use crate::config::watch::refused;
use crate::config::{ConfigProblem, ConfigReport, ConfigSource, KeyFile, ProblemPlace, check, keys};
use crate::controllers::registry::CATALOG;

/// Two certificates for one key, and that key twice: each fits each.
static PAIRS: LazyLock<[(&str, String); 4]> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        |name: &str| rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    let (one, two) = (key.serialize_pem(), format!("{}\n", key.serialize_pem()));
    [("one.crt", certificate("one")), ("two.crt", certificate("two")), ("one.key", one), ("two.key", two)]
});

fn config(settings: &[String]) -> Config {
    let file = |name: &str| {
        let pair = PAIRS.iter().find(|(of, _)| *of == name);
        let text = pair.map_or_else(|| format!("content-of-{name}"), |(_, pem)| pem.clone());
        let read = KeyFile::Read { text: Secret::new(text), readable_by_others: false };
        (PathBuf::from("/keys").join(name), read)
    };
    let source = ConfigSource {
        path: PathBuf::from("/ccm.toml"),
        text: Some("[cloud]\ncluster_id = \"one\"\n".to_owned()),
        overrides: settings.to_vec(),
        files: ["one", "two", "one.crt", "two.crt", "one.key", "two.key"].map(file).into(),
        ..ConfigSource::default()
    };
    check(&source, &CATALOG).unwrap_or_else(|report| panic!("{settings:?}: {report}"))
}

/// Two values for a key (an empty one leaves it out), and what else has to be set for them.
fn two_values(key: &str) -> (&'static str, &'static str, &'static [&'static str]) {
    const KEY: &[&str] = &["cloud.credentials.access_key_id=LTAIone", "cloud.credentials.access_key_secret=geheim"];
    const ROLE: &[&str] = &[
        "cloud.credentials.access_key_id=LTAIone",
        "cloud.credentials.access_key_secret=geheim",
        "cloud.credentials.role_arn=acs:ram::1234567890123456:role/ccm",
    ];
    const OIDC: &[&str] = &[
        "cloud.credentials.role_arn=acs:ram::1234567890123456:role/ccm",
        "cloud.credentials.oidc_provider_arn=acs:ram::1234567890123456:oidc-provider/one",
        "cloud.credentials.oidc_token_file=/token",
    ];
    let kind = key.rsplit('.').next().unwrap();
    match key {
        "controllers" => (r#"["node"]"#, r#"["node", "route"]"#, &[]),
        "cloud.vswitches" => (r#"["vsw-1"]"#, r#"["vsw-2"]"#, &[]),
        "cloud.quotas" => ("{CreateLoadBalancer=120}", "{\"*\"=600}", &[]),
        "cloud.budget_share" | "traces.sample_ratio" => ("0.5", "0.25", &[]),
        "traces.endpoint" => ("http://127.0.0.1:1", "http://127.0.0.1:2", &[]),
        "traces.headers" => ("{x-tenant=\"one\"}", "{x-tenant=\"two\"}", &[]),
        "cloud.endpoints.network" => ("vpc", "public", &[]),
        "cloud.endpoints.scheme" => ("https", "http", &[]),
        "cloud.endpoints.metadata" => ("http://127.0.0.1:1", "http://127.0.0.1:2", &[]),
        "cloud.credentials.access_key_id" => ("LTAIone", "LTAItwo", &KEY[1..]),
        "cloud.credentials.access_key_secret" => ("one-secret", "two-secret", &KEY[..1]),
        "cloud.credentials.security_token" => ("one-token", "two-token", KEY),
        "cloud.credentials.access_key_id_file" => ("/keys/one", "/keys/two", &KEY[1..]),
        "cloud.credentials.access_key_secret_file" => ("/keys/one", "/keys/two", &KEY[..1]),
        "cloud.credentials.security_token_file" => ("/keys/one", "/keys/two", KEY),
        "cloud.credentials.role_arn" => {
            ("acs:ram::1234567890123456:role/one", "acs:ram::1234567890123456:role/two", &ROLE[..2])
        }
        "cloud.credentials.duration" => ("1h", "2h", ROLE),
        "cloud.credentials.role_session_name" | "cloud.credentials.external_id" => ("one", "two", ROLE),
        "cloud.credentials.oidc_provider_arn" => (
            "acs:ram::1234567890123456:oidc-provider/one",
            "acs:ram::1234567890123456:oidc-provider/two",
            &[
                "cloud.credentials.role_arn=acs:ram::1234567890123456:role/ccm",
                "cloud.credentials.oidc_token_file=/token",
            ],
        ),
        "cloud.credentials.oidc_token_file" => ("/token", "/other-token", &OIDC[..2]),
        "cloud.region" => ("cn-hangzhou", "cn-beijing", &[]),
        "kubernetes.kubeconfig" => ("/one", "/two", &[]),
        "kubernetes.server" => ("https://one.example", "https://two.example", &[]),
        "kubernetes.qps" => ("20.0", "30.0", &[]),
        "leader_election.lease_duration" => ("15s", "20s", &[]),
        "leader_election.resource_lock" => ("leases", "endpointsleases", &[]),
        "leader_election.renew_deadline" => ("10s", "11s", &[]),
        "leader_election.retry_period" => ("2s", "3s", &[]),
        "server.address" => ("127.0.0.1", "0.0.0.0", &[]),
        "server.tls_cert_file" => ("/keys/one.crt", "/keys/two.crt", &["server.tls_key_file=/keys/one.key"]),
        "server.tls_key_file" => ("/keys/one.key", "/keys/two.key", &["server.tls_cert_file=/keys/one.crt"]),
        "log.format" => ("text", "json", &[]),
        "log.level" => ("info", "debug", &[]),
        "route.cluster_cidrs" => (r#"["10.1.0.0/16"]"#, r#"["10.2.0.0/16"]"#, &[]),
        "route.table_ids" => (r#"["vtb-1"]"#, r#"["vtb-2"]"#, &[]),
        "service.defaults.address_type" | "nlb.defaults.address_type" => ("internet", "intranet", &[]),
        "service.defaults.instance_charge_type" => ("PayByCLCU", "PayBySpec", &[]),
        "service.defaults.spec" => {
            ("slb.s1.small", "slb.s2.small", &["service.defaults.instance_charge_type=PayBySpec"])
        }
        "service.defaults.internet_charge_type" => {
            ("paybytraffic", "", &["service.defaults.instance_charge_type=PayBySpec"])
        }
        "service.defaults.bandwidth" => (
            "10",
            "20",
            &[
                "service.defaults.instance_charge_type=PayBySpec",
                "service.defaults.internet_charge_type=paybybandwidth",
            ],
        ),
        "service.defaults.scheduler" => ("rr", "wrr", &[]),
        "service.defaults.master_zone" => {
            ("cn-hangzhou-i", "cn-hangzhou-j", &["service.defaults.slave_zone=cn-hangzhou-h"])
        }
        "service.defaults.slave_zone" => {
            ("cn-hangzhou-i", "cn-hangzhou-j", &["service.defaults.master_zone=cn-hangzhou-h"])
        }
        "service.defaults.tags" | "nlb.defaults.tags" => ("{team=\"blue\"}", "{team=\"red\"}", &[]),
        "pvtz.zone_id" | "pvtz.zone_name" => ("one", "two", &[]),
        "pvtz.ttl" => ("60", "30", &[]),
        "pvtz.record_types" => (r#"["A"]"#, r#"["A", "SRV"]"#, &[]),
        "pvtz.namespaces" => (r#"["shop"]"#, r#"["till"]"#, &[]),
        _ if key.starts_with("cloud.endpoints.") && kind != "metadata_v1_fallback" => {
            ("one.example", "two.example", &[])
        }
        _ => match kind {
            "enabled"
            | "ipv6"
            | "nodes"
            | "discover"
            | "disable_source_dest_check"
            | "shutdown_taint"
            | "remove_released"
            | "eni_backends"
            | "disable_public"
            | "local_health_check"
            | "exclude_masters"
            | "type_annotation"
            | "delete_protection"
            | "modification_protection"
            | "metadata_v1_fallback"
            | "allow_readable_files"
            | "authorization"
            | "node_affinity" => ("true", "false", &[]),
            "period" | "removal_window" | "drift_check" => ("5m", "6m", &[]),
            "aggregation" | "removal_grace" | "removal_interval" | "hand_over_grace" => ("10s", "20s", &[]),
            "timeout" => ("8s", "9s", &[]),
            "burst" | "port" | "batch_size" | "removal_limit" | "concurrency" | "backend_batch_size"
            | "drift_reads" => ("7", "8", &[]),
            "resource_group_id" => ("rg-one", "rg-two", &[]),
            "vpc_id" => ("vpc-one", "vpc-two", &[]),
            "zone_id" => ("cn-hangzhou-i", "cn-hangzhou-j", &[]),
            _ => ("one", "two", &[]),
        },
    }
}

/// A key that is newly in the schema stops here until the table knows it.
#[test]
fn every_key_takes_effect_as_the_table_says() {
    for key in keys() {
        let (one, two, more) = two_values(&key);
        let with = |value: &str| {
            let more = more.iter().map(|setting| (*setting).to_owned());
            let own = (!value.is_empty()).then(|| format!("{key}={value}"));
            config(&more.chain(own).collect::<Vec<_>>())
        };
        let change = ConfigChange::between(&with(one), &with(two));
        let row = effect_of(&key).unwrap_or_else(|| panic!("no row about {key}"));
        let expected: &[&str] = match key.as_str() {
            // Says only what is acceptable.
            "cloud.credentials.allow_readable_files" => &[],
            key if key.starts_with("cloud.credentials.") => &["cloud.credentials"],
            key => &[key],
        };
        assert_eq!(change.keys.iter().map(String::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(change.reconnects(), row.takes == Takes::Reconnects, "{key}");
        assert_eq!(!change.restarted.is_empty(), row.takes == Takes::Reconnects, "{key}");
        let starts = !change.started.is_empty() || !change.stopped.is_empty();
        assert_eq!(starts, row.takes == Takes::StartsAndStops, "{key}");
        let (one, two) = (with(one).leader_election, with(two).leader_election);
        let is_refused = refused(&one, &two).into_iter().any(|(refused, changes)| changes && refused == key);
        assert_eq!(is_refused, row.takes == Takes::Refused, "{key}");
    }
}

#[test]
fn every_row_is_about_a_key() {
    for row in effects() {
        let fits = |key: &String| effect_of(key).is_some_and(|found| found.key == row.key);
        assert!(keys().iter().any(fits), "{} is no key, or hidden by a row above", row.key);
    }
}

#[test]
fn what_starts_and_stops_is_told() {
    let with = |list: &str| config(&[format!("controllers={list}")]);
    let change = ConfigChange::between(&with(r#"["node"]"#), &with(r#"["node", "route"]"#));
    assert_eq!(change.started, ["route"].into());
    assert_eq!(change.stopped, ["routes-off"].into());
    assert_eq!(change.to_string(), "changed: controllers; started: route; stopped: routes-off");
    let moved = config(&[r#"controllers=["node", "route"]"#.into(), "cloud.region=cn-beijing".into()]);
    let change = ConfigChange::between(&with(r#"["node", "route"]"#), &moved);
    assert_eq!(change.restarted, ["node", "route"].into());
    let event = Reload::Applied(change).event();
    assert_eq!((event.0, event.1), (false, "ConfigApplied"));
}

#[test]
fn a_changed_secret_is_seen_and_not_shown() {
    let with = |secret: &str| {
        config(&[
            "cloud.credentials.access_key_id=LTAIone".into(),
            format!("cloud.credentials.access_key_secret={secret}"),
        ])
    };
    let change = ConfigChange::between(&with("hunter1"), &with("hunter2"));
    assert_eq!(change.to_string(), "changed: cloud.credentials");
    assert!(!json!(Reload::Applied(change)).to_string().contains("hunter"));
}

#[test]
fn outcomes_are_shown_as_they_always_were() {
    let with = |zone: &str| config(&[format!("cloud.zone_id={zone}"), r#"controllers=["node"]"#.into()]);
    let change = ConfigChange::between(&with("cn-hangzhou-h"), &with("cn-hangzhou-i"));
    let problem = ConfigProblem::at(ProblemPlace::Whole { file: "/ccm.toml".into() }, "it is empty".into(), None);
    let report = ConfigReport::new(vec![problem], &[]);
    let shown = [Reload::Unchanged, Reload::Applied(change), Reload::Rejected { report, hash: None }];
    expect![[r#"
        [{"outcome":"unchanged"},
        {"changed":["cloud.zone_id"],"outcome":"applied","restarted":["node","routes-off"],"started":[],"stopped":[]},
        {"hash":null,"outcome":"rejected","problems":[{"file":"/ccm.toml","message":"it is empty"}]}]"#]]
    .assert_eq(&json!(shown).to_string().replace(",{\"", ",\n{\""));
}

const START: &str = "<!-- effects -->\n";
const END: &str = "<!-- end of effects -->";

fn page() -> String {
    let mut page = String::from("| Key | Takes effect | From when on |\n|---|---|---|\n");
    for key in keys() {
        let row = effect_of(&key).unwrap();
        let takes = match row.takes {
            Takes::InPlace => "in place",
            Takes::StartsAndStops => "starts and stops the named controllers only",
            Takes::Refused => "refused while the process runs",
            Takes::Reconnects => "reconnects: all controllers start again, the process stays",
        };
        let _ = writeln!(page, "| `{key}` | {takes} | {} |", row.when);
    }
    page
}

#[test]
fn the_manual_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(START).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    expect_file![path].assert_eq(&format!("{before}{START}{}{END}{after}", page()));
}
