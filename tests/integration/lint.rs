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

/// The shipped file, and every line of the reference that states an example, one at a time.
#[test]
fn a_configuration_that_nobody_has_filled_in_is_enough() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let [shipped, reference] = ["config/alicloud-ccm.toml", "config/alicloud-ccm.reference.toml"]
        .map(|path| std::fs::read_to_string(root.join(path)).unwrap());
    assert!(shipped.contains("\"change-me\"") && reference.contains("\"change-me\""), "{shipped}");
    let base =
        reference.replace("controllers = [\"node\", \"route\", \"service\"]", "controllers = [\"node\", \"service\"]");
    let keys = "[cloud.credentials]\naccess_key_id = \"change-me\"\naccess_key_secret_file = \"/nowhere/secret\"\n";
    let mut texts = vec![
        shipped.clone() + keys,
        shipped.clone(),
        shipped.replace("[server]", "vswitches = [\"cn-hangzhou-i:vsw-bp1example\"]\n[server]"),
        base.clone(),
    ];
    let example = |line: &&str| line.starts_with('#') && line.contains(" = ") && line.contains("example");
    let examples: Vec<_> = reference.lines().filter(|line| !line.starts_with("# ")).filter(example).collect();
    assert!(examples.len() >= 8, "{examples:?}");
    for line in examples {
        // A role needs somebody who takes it.
        let with =
            if line.starts_with("#role_arn") { format!("{}\n{}", &line[1..], PAIR) } else { line[1..].to_owned() };
        let with = if line.starts_with("#oidc") {
            with + "\nrole_arn = \"acs:ram::1:role/a\"\noidc_token_file = \"t\""
        } else {
            with
        };
        let with = if line.starts_with("#access_key_id ") { with + "\naccess_key_secret = \"s\"" } else { with };
        texts.push(base.replace(line, &with));
    }
    for (number, text) in texts.iter().enumerate() {
        let config = folder.path().join(format!("{number}.toml"));
        std::fs::write(&config, text).unwrap();
        let output = lint(&["--config", config.to_str().unwrap(), "services.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(out(&output).contains("\"nonsense\": supported values"), "{output:?}");
    }
}

const PAIR: &str = "access_key_id = \"a\"\naccess_key_secret = \"s\"";

#[test]
fn a_configuration_with_a_mistake_is_no_configuration_without_values() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ccm.toml");
    std::fs::write(&config, "[cloud]\ncluster_id = \"change-me\"\nregoin = \"cn-hangzhou\"\n").unwrap();
    let output = lint(&["--config", config.to_str().unwrap(), "services.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("regoin") && !said.contains("change-me"), "{said}");
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
