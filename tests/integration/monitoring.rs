//! Metrics, the rules and the dashboard that read them, and the manuals about them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use alicloud_ccm::telemetry::metrics::{DESCRIPTIONS, Description};
use expect_test::expect_file;
use serde_json::{Value, json};

use crate::documents::blocks;
use crate::harness::{ALL, HASTE, World, is_ready};
use crate::permissions::documents;

mod dashboard;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What promtool says; `None` where there is none.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(root().join("deploy/monitoring"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

fn assert_promtool(arguments: &[&str], input: &str) {
    let Some(output) = promtool(arguments, input) else { return };
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn every_metric_is_in_the_manual() {
    let mut page = "# Metrics\n\nFor operators who write queries and alerts.\n\nAt `/metrics`; [monitoring.md](../guides/monitoring.md) describes how Prometheus reads them. Beside these, \
                    the process has those of every\nprogram (`process_*`: memory, CPU seconds, open files, start time).\n\n\
                    | Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"
        .to_owned();
    let mut below = String::new();
    for Description { name, kind, labels, help } in DESCRIPTIONS {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        // What is too long for a cell goes below the table.
        let (shown, rest) = match help.split_once([':', '.']) {
            Some((first, rest)) if help.len() > 120 => (format!("{first}."), rest.trim()),
            _ => ((*help).to_owned(), ""),
        };
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {shown} |", labels.join(", "));
        let _ = (!rest.is_empty()).then(|| writeln!(below, "- `{name}`: {rest}"));
    }
    let _ = write!(page, "\nMore about some of them:\n\n{below}");
    page.push_str("\nNext: [monitoring.md](../guides/monitoring.md), how Prometheus reads them.\n");
    expect_file!["../../docs/reference/metrics.md"].assert_eq(&page);
}

/// The metric that a name in an expression belongs to.
fn described(name: &str) -> Option<&'static Description> {
    DESCRIPTIONS.iter().find(|metric| {
        let part = name.strip_prefix(metric.name);
        part == Some("")
            || metric.kind == "histogram" && part.is_some_and(|part| ["_bucket", "_sum", "_count"].contains(&part))
    })
}

/// What follows `start` as long as it is a name.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The expressions of rules and panels.
fn expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("expr").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| collect(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&documents(&read("deploy/monitoring/alerts.yaml"))[0], &mut found);
    let rules = found.len();
    collect(&serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap(), &mut found);
    assert!(rules > 8 && found.len() > rules + 15, "{found:?}");
    found
}

/// The metrics of this program in an expression.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    expression.match_indices("alicloud_ccm_").map(|(at, _)| name_at(&expression[at..]))
}

/// What an expression asks for and nothing has: metrics of this program, and labels of those that it names.
fn unknown_names(expression: &str) -> Vec<String> {
    // Labels that a scrape adds.
    let mut labels: BTreeSet<&str> = ["job", "instance", "le"].into();
    let mut unknown = Vec::new();
    for name in metrics_in(expression) {
        match described(name) {
            Some(metric) => labels.extend(metric.labels),
            None => unknown.push(format!("{name} does not exist")),
        }
    }
    let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split_once(')')).map(|(list, _)| list);
    let matched = expression.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(list, _)| list);
    let named = grouped.chain(matched).flat_map(|list| list.split(',')).map(|label| name_at(label.trim()));
    unknown.extend(
        named.filter(|label| !labels.contains(label)).map(|label| format!("no metric here has the label {label}")),
    );
    unknown
}

#[test]
fn rules_and_panels_ask_for_metrics_and_labels_that_exist() {
    let mut asked = BTreeSet::new();
    for expression in expressions() {
        assert_eq!(unknown_names(&expression), Vec::<String>::new(), "{expression}");
        asked.extend(metrics_in(&expression).filter_map(described).map(|metric| metric.name));
    }
    let unread: Vec<_> = DESCRIPTIONS.iter().map(|metric| metric.name).filter(|name| !asked.contains(name)).collect();
    assert_eq!(unread, Vec::<&str>::new(), "neither a rule nor a panel shows them");
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_alert_says_what_to_do() {
    let page = read("docs/guides/troubleshooting.md");
    let anchors: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let file = &documents(&read("deploy/monitoring/alerts.yaml"))[0];
    for rule in file["groups"][0]["rules"].as_array().unwrap() {
        let place = rule["annotations"]["runbook"].as_str().unwrap().strip_prefix("docs/guides/troubleshooting.md#");
        assert!(place.is_some_and(|place| anchors.contains(place)), "{}: {place:?}", rule["alert"]);
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("warning" | "critical")), "{}", rule["alert"]);
    }
}

#[test]
fn every_outcome_of_a_call_to_the_cloud_is_explained() {
    let calls = described("alicloud_ccm_cloud_calls_total").unwrap();
    let (_, listed) = calls.help.split_once("outcome: ").unwrap();
    let word = |text: &'static str| text.split([' ', '.']).next().unwrap();
    let listed: Vec<_> = listed.split(", ").map(word).collect();
    let page = read("docs/reference/events.md");
    let (_, table) = page.split_once("| Outcome | Meaning |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let explained: Vec<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(explained, listed);
}

#[test]
fn the_rules_of_the_operator_are_the_same() {
    let rules = read("deploy/monitoring/alerts.yaml");
    let groups = rules.lines().skip_while(|line| !line.starts_with("groups:"));
    let mut manifest = "# Written from alerts.yaml.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  \
                        name: alicloud-ccm\n  namespace: kube-system\n  labels:\n    app.kubernetes.io/name: alicloud-ccm\nspec:\n"
        .to_owned();
    for line in groups {
        let _ = writeln!(manifest, "  {line}");
    }
    expect_file!["../../deploy/monitoring/prometheusrule.yaml"].assert_eq(&manifest);
}

/// `alerts.test.yaml` sees each alert fire for its cause, and none while all is well.
#[test]
fn every_alert_is_tested_both_ways() {
    let alerts = &documents(&read("deploy/monitoring/alerts.yaml"))[0]["groups"][0]["rules"];
    let alerts: BTreeSet<_> = alerts.as_array().unwrap().iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    let file = &documents(&read("deploy/monitoring/alerts.test.yaml"))[0];
    let tests = file["tests"].as_array().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let (fires, silent): (Vec<_>, Vec<_>) = tests.partition(|test| test.get("exp_alerts").is_some());
    for (tests, what) in [(fires, "is seen to fire"), (silent, "is seen not to fire")] {
        let seen: BTreeSet<_> = tests.into_iter().map(|test| test["alertname"].as_str().unwrap()).collect();
        assert_eq!(seen, alerts, "each {what}");
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    assert_promtool(&["check", "rules", "--lint-fatal", "alerts.yaml"], "");
    assert_promtool(&["test", "rules", "alerts.test.yaml"], "");
}

#[test]
fn promtool_accepts_the_scrape_configuration_of_the_manual() {
    let found = blocks().into_iter().find(|block| block.text.starts_with("scrape_configs:")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yaml");
    std::fs::write(&file, found.text).unwrap();
    assert_promtool(&["check", "config", "--syntax-only", file.to_str().unwrap()], "");
}

/// The page of a process that has done something, since a metric with labels is there from its first use on.
#[tokio::test(flavor = "multi_thread")]
async fn promtool_accepts_the_metrics_of_a_running_process() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start_serving();
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    world.until_event("Service", "web", "EnsuredLoadBalancer").await;
    let page = ccm.until_page("/metrics", |status, text| status == 200 && text.contains("alicloud_ccm_leader 1")).await;
    let start = page.find("# HELP").unwrap();
    assert_promtool(&["check", "metrics"], &page[start..]);

    let bandwidth = |value: &str| {
        let key = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-bandwidth";
        let change = json!({ "metadata": { "annotations": { key: value } } });
        world.testbed.cluster.patch("Service", "default", "web", &change).unwrap();
    };
    for (value, count) in [("much", 1), ("100", 0)] {
        bandwidth(value);
        let line = format!("alicloud_ccm_out_of_sync_objects{{controller=\"service\"}} {count}\n");
        ccm.until_page("/metrics", |_, text| text.contains(&line)).await;
    }
    assert!(ccm.stop().await.success());
}
