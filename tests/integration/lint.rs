//! The command `lint`, which needs no cluster, no cloud and no configuration file.

use std::path::Path;
use std::process::{Command, Output};

use expect_test::expect_file;
use serde_json::Value;

/// Runs the command where the files are, so that its output names no folder of this machine.
fn lint(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/lint")).env_clear();
    command.arg("lint").args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn every_problem_of_a_manifest_is_shown_where_it_is_written_with_what_would_be_made() {
    let output = lint(&["--plan", "services.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    expect_file!["lint/expected.txt"].assert_eq(&out(&output));
}

#[test]
fn code_hosts_get_the_same_findings_as_sarif() {
    let sarif: Value = serde_json::from_str(&out(&lint(&["services.yaml", "--output", "sarif"]))).unwrap();
    let json: Value = serde_json::from_str(&out(&lint(&["services.yaml", "--output", "json"]))).unwrap();
    let run = &sarif["runs"][0];
    assert_eq!((&sarif["version"], &run["tool"]["driver"]["name"]), (&"2.1.0".into(), &"alicloud-ccm".into()));
    let (results, findings) = (run["results"].as_array().unwrap(), json["findings"].as_array().unwrap());
    assert_eq!(results.len(), findings.len());
    for (result, finding) in results.iter().zip(findings) {
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "services.yaml");
        assert_eq!(place["region"]["startLine"], finding["line"]);
        assert_eq!(place["region"]["startColumn"], finding["column"]);
        assert_eq!(result["level"], finding["severity"]);
        assert_eq!(result["message"]["text"], finding["message"]);
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let rule = rules.iter().find(|rule| rule["id"] == result["ruleId"]);
        let help = rule.map_or("", |rule| rule["help"]["text"].as_str().unwrap());
        assert_eq!(help, finding["help"].as_str().unwrap(), "{result}");
    }
    let about = |field: &str| findings.iter().find(|it| it["field"].as_str().unwrap().ends_with(field)).unwrap();
    let help = about("-scheduler")["help"].as_str().unwrap();
    assert!(
        help.starts_with("How connections are distributed.") && help.contains("A change of it: changed in place"),
        "{help}"
    );
    let web = json["services"].as_array().unwrap().iter().find(|it| !it["settings"].as_array().unwrap().is_empty());
    for setting in web.unwrap()["settings"].as_array().unwrap() {
        assert!(["setting", "value", "from", "help"].iter().all(|key| !setting[*key].as_str().unwrap().is_empty()));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.yaml");
    std::fs::write(&broken, "a: {\nb").unwrap();
    let output = lint(&["none.yaml", broken.to_str().unwrap(), "services.yaml"]);
    assert_eq!(output.status.code(), Some(1), "neither what is right nor what is wrong");
    let text = out(&output);
    for expected in ["none.yaml", "broken.yaml:1:4", "Unsupported value: \"nonsense\": supported values: \"rr\""] {
        assert!(text.contains(expected), "nothing about {expected}:\n{text}");
    }
}

#[test]
fn a_configuration_that_nobody_has_filled_in_is_enough() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let shipped = std::fs::read_to_string(root.join("config/alicloud-ccm.toml")).unwrap();
    assert!(shipped.contains("\"change-me\""), "{shipped}");
    let keys = "[cloud.credentials]\naccess_key_id = \"change-me\"\naccess_key_secret_file = \"/nowhere/secret\"\n";
    for (name, text) in [("shipped.toml", shipped.clone()), ("keys.toml", shipped + keys)] {
        let config = folder.path().join(name);
        std::fs::write(&config, text).unwrap();
        let output = lint(&["--config", config.to_str().unwrap(), "services.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(out(&output).contains("\"nonsense\": supported values"), "{output:?}");
    }
}

#[test]
fn a_manifest_without_errors_ends_with_0_and_the_configuration_counts_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("service.json");
    let service = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations":
        {"service.beta.kubernetes.io/alibaba-cloud-loadbalancer-type": "nlb"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}"#;
    std::fs::write(&manifest, service).unwrap();
    let config = folder.path().join("ccm.toml");
    std::fs::write(&config, "[cloud]\ncluster_id = \"c\"\n[service]\ntype_annotation = true\n").unwrap();
    let kind = |arguments: &[&str]| {
        let output = lint(&[&[manifest.to_str().unwrap(), "--output", "json"], arguments].concat());
        let found: Value = serde_json::from_str(&out(&output)).unwrap();
        (output.status.code(), found["services"][0]["kind"].clone())
    };
    assert_eq!(kind(&[]), (Some(0), "classic".into()));
    let config = config.to_str().unwrap();
    assert_eq!(kind(&["--config", config]), (Some(0), "network".into()));
    let missing = lint(&["--config", "/nowhere/ccm.toml", manifest.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere/ccm.toml"), "{missing:?}");
}
