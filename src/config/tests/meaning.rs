use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::expect;

use super::super::*;
use super::*;
use crate::config::file::{Network, Scheme};
use crate::config::secret::Secret;
use crate::plan::loadbalancer::settings::VSwitchChoice;

#[test]
fn defaults_are_the_ones_that_clusters_of_the_official_controller_expect() {
    let config = good(&source(&right("")));
    let election = &config.leader_election;
    assert_eq!((election.namespace.as_str(), election.name.as_str()), ("kube-system", "ccm"));
    let seconds = [election.lease_duration, election.renew_deadline, election.retry_period].map(|time| time.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
    assert_eq!((config.server.address.to_string().as_str(), config.server.port), ("127.0.0.1", 10258));
    assert_eq!(config.service.defaults.instance_charge_type, "PayByCLCU");
    assert!(config.service.defaults.delete_protection && config.cloud.endpoints.network == Network::Vpc);
}

#[test]
fn the_last_layer_wins() {
    let text = right("route.period = \"1m\"\nnode.batch_size = 10\nserver.port = 1\n");
    let mut source =
        with_environment(&text, &[("ALICLOUD_CCM__NODE__BATCH_SIZE", "20"), ("ALICLOUD_CCM__SERVER__PORT", "2")]);
    source.overrides = vec!["server.port=3".to_owned(), "server.port=4".to_owned()];
    let config = good(&source);
    let values = (config.route.period, config.node.batch_size, config.server.port, config.service.concurrency);
    assert_eq!(values, (Some(Duration::from_secs(60)), 20, 4, 20));
}

#[test]
fn a_wrong_value_that_is_overridden_does_no_harm() {
    good(&with_overrides(
        &right("server.port = \"many\"\nroute.period = \"x\""),
        &["server.port=1", "route.period=1m"],
    ));
}

#[test]
fn text_from_outside_becomes_the_type_of_its_key() {
    let config = good(&with_overrides(
        "",
        &[
            "cloud.cluster_id=123",
            "controllers=node, service",
            "route.cluster_cidrs=[\"10.0.0.0/8\"]",
            "cloud.budget_share=1",
            "node.ipv6=true",
            "server.address=::1",
            "service.defaults.tags.\"a.b\"=c=d",
        ],
    ));
    assert_eq!((config.cloud.cluster_id.as_str(), config.controllers.len()), ("123", 2));
    assert_eq!((config.route.cluster_cidrs.len(), config.node.ipv6), (1, true));
    assert_eq!(config.server.address, "::1".parse::<IpAddr>().unwrap());
    assert_eq!(config.service.defaults.tags, BTreeMap::from([("a.b".to_owned(), "c=d".to_owned())]));

    let tag = with_environment(&right(""), &[("ALICLOUD_CCM__SERVICE__DEFAULTS__TAGS__Team", "Blue")]);
    assert_eq!(good(&tag).service.defaults.tags, BTreeMap::from([("Team".to_owned(), "Blue".to_owned())]));
}

#[test]
fn controllers_are_named_as_anywhere() {
    let names = |list: &str| -> Vec<&str> {
        let config = good(&source(&format!("controllers = {list}\ncloud.cluster_id = \"one\"")));
        config.controllers.into_iter().collect()
    };
    assert_eq!(names(r#"["*"]"#), ["nlb", "node", "route", "service", "volume-labels"]);
    assert_eq!(names(r#"["*", "-route"]"#), ["nlb", "node", "service", "volume-labels"]);
    assert_eq!(names(r#"["pvl"]"#), ["volume-labels"]);
    let zone = |list: &str| {
        let text = format!("controllers = {list}\ncloud.cluster_id = \"one\"\npvtz.zone_name = \"cluster.own\"");
        good(&source(&text)).controllers.len()
    };
    assert_eq!((zone(r#"["*"]"#), zone(r#"["pvtz"]"#)), (6, 1), "with a zone, that controller is one of all");
    let told = messages(&source("controllers = [\"*\", \"pvtz\"]\ncloud.cluster_id = \"one\""));
    assert!(told.contains("pvtz.zone_name is missing") && told.contains("or leave \"pvtz\" out"), "{told}");
    assert_eq!(names(r#"["cloud-node", "cloud-node-lifecycle", "service-lb-controller"]"#), ["node", "service"]);
    assert_eq!(names(r#"["node-route-controller"]"#), ["route"]);
    assert_eq!(names("[]"), [""; 0]);
}

#[test]
fn what_is_written_arrives() {
    let config = good(&source(&right(
        r#"
cloud.vswitches = ["vsw-1", "cn-hangzhou-i:vsw-2"]
kubernetes.kubeconfig = "kube.conf"
[cloud.endpoints]
network = "public"
scheme = "http"
ecs = "http://127.0.0.1:8080/"
vpc = "vpc.example"
metadata = "127.0.0.1:81/"
[service]
drift_check = "0s"
[service.defaults]
internet_charge_type = "paybybandwidth"
bandwidth = 5
"#,
    )));
    let choice = |zone: Option<&str>, id: &str| VSwitchChoice { zone: zone.map(str::to_owned), id: id.to_owned() };
    assert_eq!(config.cloud.vswitches, [choice(None, "vsw-1"), choice(Some("cn-hangzhou-i"), "vsw-2")]);
    assert_eq!(config.kubernetes.kubeconfig.as_deref(), Some(Path::new("/etc/ccm/kube.conf")));
    let endpoints = &config.cloud.endpoints;
    assert_eq!((endpoints.network, endpoints.scheme), (Network::Public, Scheme::Http));
    assert_eq!(endpoints.ecs.as_deref(), Some("127.0.0.1:8080"));
    assert_eq!(endpoints.vpc.as_deref(), Some("vpc.example"));
    assert_eq!(endpoints.metadata, "http://127.0.0.1:81");
    assert_eq!(config.service.drift_check, None);
    assert_eq!(config.service.defaults.internet_charge_type.as_deref(), Some("paybybandwidth"));
}

#[test]
fn names_of_the_official_controller_work_in_the_environment() {
    let environment = [
        ("ECS_ENDPOINT", "http://sim:1"),
        ("SLB_ENDPOINT", "sim:2"),
        ("NLB_ENDPOINT", "sim:4"),
        ("VPC_ENDPOINT", ""),
        ("ALICLOUD_CLIENT_SCHEME", "HTTP"),
        ("METADATA_ENDPOINT", "http://sim:3"),
    ];
    let endpoints = good(&with_environment(&right(""), &environment)).cloud.endpoints;
    assert_eq!(endpoints.scheme, Scheme::Http);
    let hosts = [&endpoints.ecs, &endpoints.slb, &endpoints.nlb, &endpoints.vpc, &endpoints.sts].map(Option::as_deref);
    assert_eq!(hosts, [Some("sim:1"), Some("sim:2"), Some("sim:4"), None, None]);
    assert_eq!(endpoints.metadata, "http://sim:3");
}

#[test]
fn the_first_kind_of_credentials_that_is_there_is_used() {
    let alibaba = [
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "A"),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "a"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", "t"),
    ];
    let short = [("ACCESS_KEY_ID", "B"), ("ACCESS_KEY_SECRET", "b")];
    let oidc = [
        ("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/r"),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/p"),
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "/token"),
    ];
    let all = [alibaba.as_slice(), &short, &oidc].concat();
    let credentials =
        |text: &str, environment: &[(&str, &str)]| good(&with_environment(&right(text), environment)).cloud.credentials;

    let stated = "cloud.credentials = { access_key_id = \"C\", access_key_secret = \"c\" }";
    assert_eq!(credentials(stated, &all), Credentials::AccessKey(key("C", "c", None)));
    assert_eq!(credentials("", &all), Credentials::AccessKey(key("A", "a", Some("t"))));
    assert_eq!(credentials("", &all[3..]), Credentials::AccessKey(key("B", "b", None)));
    assert_eq!(credentials("", &all[1..5]), Credentials::AccessKey(key("B", "b", None)), "half a pair is no pair");
    let Credentials::Oidc { token_file, session_name, .. } = credentials("", &oidc) else { panic!("not OIDC") };
    assert_eq!((token_file.as_path(), session_name.as_str()), (Path::new("/token"), "alicloud-ccm"));
    assert_eq!(credentials("", &[]), Credentials::InstanceRole { role: None });
    let instance = "cloud.credentials.instance_role = \"ccm\"";
    assert_eq!(credentials(instance, &all), Credentials::InstanceRole { role: Some("ccm".to_owned()) });
    let token = with_environment(&right("cloud.credentials.security_token = \"t\""), &all);
    assert!(messages(&token).starts_with("cloud.credentials.access_key_id is missing"), "parts of two keys were mixed");
    let role = "cloud.credentials.role_arn = \"acs:ram::1:role/r\"";
    let Credentials::AssumeRole { source, .. } = credentials(role, &all) else { panic!("no role") };
    assert_eq!(source, key("A", "a", Some("t")));
}

#[test]
fn key_files_are_read_beside_the_file() {
    let mut source =
        source(&right("cloud.credentials = { access_key_id_file = \"id\", access_key_secret_file = \"/s\" }"));
    let keys = referenced(&source, &CATALOG).keys;
    assert_eq!(keys, [PathBuf::from("/etc/ccm/id"), PathBuf::from("/s")]);
    let file =
        |text: &str, readable_by_others| KeyFile::Read { text: Secret::new(text.to_owned()), readable_by_others };
    source.files = BTreeMap::from([(keys[0].clone(), file("LTAI\n", false)), (keys[1].clone(), file("hush\n", false))]);
    assert_eq!(good(&source).cloud.credentials, Credentials::AccessKey(key("LTAI", "hush", None)));

    source.files =
        BTreeMap::from([(keys[0].clone(), KeyFile::Failed(FileFault::Missing)), (keys[1].clone(), file("hush", true))]);
    expect![[r#"
        cloud.credentials.access_key_id_file names /etc/ccm/id, which does not exist
        cloud.credentials.access_key_secret_file names /s, which group or others may read (take the rights away with mode 0400 (in a Kubernetes volume: defaultMode), or set cloud.credentials.allow_readable_files to true)"#]].assert_eq(&messages(&source));
    source.files = BTreeMap::from([(keys[0].clone(), file(" \n", false)), (keys[1].clone(), file("two words", false))]);
    expect![[r#"
        cloud.credentials.access_key_id_file names /etc/ccm/id, whose content is empty
        cloud.credentials.access_key_secret_file names /s, whose content has spaces or line breaks inside, which a key never has"#]]
    .assert_eq(&messages(&source));
    source.files.insert(keys[0].clone(), file("LTAI", true));
    source.files.insert(keys[1].clone(), file("hush", true));
    source.overrides = vec!["cloud.credentials.allow_readable_files=true".to_owned()];
    assert_eq!(good(&source).cloud.credentials, Credentials::AccessKey(key("LTAI", "hush", None)));
}

#[test]
fn a_controller_runs_by_default_only_if_its_row_says_so() {
    static LATER: [ControllerEntry; 2] =
        [CATALOG.controllers[0], ControllerEntry { name: "later", default_on: false, ..CATALOG.controllers[1] }];
    let catalog = Catalog { controllers: &LATER, ..CATALOG };
    let running = |more: &str| {
        let config = check(&source(&right(more)), &catalog).unwrap();
        config.controllers.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(running(""), ["node"]);
    assert_eq!(running("controllers = [\"*\"]"), ["later", "node"]);
    assert_eq!(running("controllers = [\"later\"]"), ["later"]);
}

#[test]
fn traces_go_to_the_path_of_the_standard() {
    let traces = |more: &str| good(&source(&right(more))).traces;
    assert_eq!(traces("").endpoint, None);
    for (written, meant) in [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("https://collector/otlp", "https://collector/otlp/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
    ] {
        let section = format!("traces = {{ endpoint = {written:?} }}");
        assert_eq!(traces(&section).endpoint.as_deref(), Some(meant));
    }
    let variable = [("ALICLOUD_CCM__TRACES__HEADERS__authorization", "Bearer one")];
    let headers = good(&with_environment(&right(""), &variable)).traces.headers;
    assert_eq!(headers["authorization"].expose(), "Bearer one");
}
