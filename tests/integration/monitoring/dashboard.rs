//! The dashboard against the fields that Grafana knows, and against the metrics.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{assert_promtool, name_at, read, unknown_names};
use crate::deploy::schemas::Table;

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn is_row(panel: &Value) -> bool {
    panel["type"] == "row"
}

/// What Grafana or a reader of the dashboard would trip over.
fn problems(dashboard: &Value) -> BTreeSet<String> {
    let table = Table::read(include_str!("dashboard_fields.txt"));
    let mut found = BTreeSet::new();
    table.judge(0, "Dashboard", dashboard, &mut found);
    for panel in items(&dashboard["panels"]) {
        table.judge(0, if is_row(panel) { "RowPanel" } else { "Panel" }, panel, &mut found);
        match (text(panel, "type"), panel.get("options")) {
            ("stat", options) => table.judge(0, "StatOptions", options.unwrap_or(&Value::Null), &mut found),
            ("timeseries", Some(options)) => table.judge(0, "TimeseriesOptions", options, &mut found),
            _ => {}
        }
    }
    found.extend(source_problems(dashboard));
    found.extend(layout_problems(dashboard));
    let panels =
        items(&dashboard["panels"]).flat_map(|panel| items(&panel["targets"]).map(move |query| (panel, query)));
    found.extend(panels.flat_map(|(panel, query)| query_problems(dashboard, panel, query)));
    found
}

/// Users have data sources of any name: a variable asks for it, and everything that asks for metrics uses that variable.
fn source_problems(dashboard: &Value) -> Vec<String> {
    let variables = || items(&dashboard["templating"]["list"]);
    let mut found = Vec::new();
    let asks = |it: &Value| it["type"] == "datasource" && it["name"] == "datasource" && it["query"] == "prometheus";
    if !variables().any(asks) {
        found.push("no variable asks for the data source".to_owned());
    }
    let panels = items(&dashboard["panels"]).filter(|panel| !is_row(panel)).map(|panel| (text(panel, "title"), panel));
    let queried = variables().filter(|it| it["type"] == "query").map(|it| (text(it, "name"), it));
    for (name, reader) in panels.chain(queried) {
        if reader["datasource"] != json!({ "type": "prometheus", "uid": "${datasource}" }) {
            found.push(format!("{name}: the data source is not the one that was asked for"));
        }
    }
    found
}

/// Panels have ids and places of their own, on a grid of 24 columns.
fn layout_problems(dashboard: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in items(&dashboard["panels"]) {
        let title = text(panel, "title");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|field| panel["gridPos"][field].as_u64().unwrap_or(0));
        if !ids.insert(panel["id"].to_string()) {
            found.push(format!("{title}: another panel has this id"));
        }
        if width == 0 || height == 0 || x + width > 24 {
            found.push(format!("{title}: it is not on the grid"));
        }
        let cells = (x..x + width.min(24)).flat_map(|x| (y..y + height).map(move |y| (x, y)));
        if cells.filter(|cell| !taken.insert(*cell)).count() > 0 {
            found.push(format!("{title}: another panel is in its place"));
        }
    }
    found
}

/// A query asks for metrics, labels and variables that exist, and its legend names labels that the result has.
fn query_problems(dashboard: &Value, panel: &Value, query: &Value) -> Vec<String> {
    let (title, expression) = (text(panel, "title"), text(query, "expr"));
    let mut found: Vec<_> = unknown_names(expression);
    let variables = items(&dashboard["templating"]["list"]).map(|variable| text(variable, "name"));
    let variables: BTreeSet<_> = variables.chain(["__rate_interval"]).collect();
    let used = expression.split('$').skip(1).map(|rest| name_at(rest.trim_start_matches('{')));
    found.extend(used.filter(|name| !variables.contains(name)).map(|name| format!("no variable ${name}")));
    let kept = match expression.split_once("by (").and_then(|(_, rest)| rest.split_once(')')) {
        Some((labels, _)) => labels.split(',').map(str::trim).collect::<Vec<_>>(),
        None => vec!["instance", "job"],
    };
    let legend = text(query, "legendFormat").split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    found.extend(legend.filter(|(label, _)| !kept.contains(label)).map(|(label, _)| format!("no label {label}")));
    if items(&panel["targets"]).filter(|other| other["refId"] == query["refId"]).count() != 1 {
        found.push("two queries have one refId".to_owned());
    }
    found.into_iter().map(|problem| format!("{title}: {problem}")).collect()
}

#[test]
fn the_dashboard_fits_grafana_and_the_metrics() {
    assert_eq!(problems(&dashboard()), BTreeSet::new());
}

#[test]
fn a_broken_dashboard_is_recognised() {
    for (place, value, expected) in [
        ("/panels/0/type", json!("singlestat"), "Panel.type is no stat|timeseries"),
        ("/panels/0/title", Value::Null, "Panel.title is missing"),
        (
            "/panels/0/options/colorMode",
            json!("red"),
            "StatOptions.colorMode is no value|background|background_solid|none",
        ),
        ("/panels/0/options", Value::Null, "StatOptions is no object"),
        ("/panels/0/fieldConfig/defaults/unit", json!("parsecs"), "FieldDefaults.unit is no none|short|ops|s|bytes"),
        ("/panels/0/targets/0", json!({ "refId": "A" }), "Query.expr is missing"),
        ("/panels/0/targets/0/expr", json!("alicloud_ccm_leaders"), "Leaders: alicloud_ccm_leaders does not exist"),
        (
            "/panels/0/targets/0/expr",
            json!("alicloud_ccm_leader{nod=\"a\"}"),
            "Leaders: no metric here has the label nod",
        ),
        ("/panels/0/targets/0/expr", json!("alicloud_ccm_leader{job=~\"$jop\"}"), "Leaders: no variable $jop"),
        ("/panels/0/targets/0/legendFormat", json!("{{node}}"), "Leaders: no label node"),
        ("/panels/8/targets/0/refId", json!("B"), "Out of sync, and for a shared cause: two queries have one refId"),
        ("/panels/0/datasource/uid", json!("Prometheus"), "Leaders: the data source is not the one that was asked for"),
        ("/templating/list", json!([]), "no variable asks for the data source"),
        (
            "/templating/list/1/type",
            json!("guess"),
            "Variable.type is no query|adhoc|constant|datasource|interval|textbox|custom|system",
        ),
        ("/panels/1/id", json!(1), "Objects out of sync: another panel has this id"),
        ("/panels/1/gridPos/x", json!(5), "Objects out of sync: another panel is in its place"),
        ("/panels/3/gridPos/w", json!(7), "Configuration in use is the file: it is not on the grid"),
        ("/panels/4/collapsed", json!("no"), "RowPanel.collapsed is no bool"),
        ("/schemaVersion", json!("39"), "Dashboard.schemaVersion is no int"),
        ("/time/until", json!("now"), "TimeRange.until is unknown"),
    ] {
        let mut broken = dashboard();
        let (parent, field) = place.rsplit_once('/').unwrap();
        match broken.pointer_mut(parent).unwrap() {
            Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
            parent => parent[field] = value,
        }
        let found = problems(&broken);
        assert!(found.contains(expected), "{place}: {expected}: {found:?}");
    }
}

/// Each expression as a rule, with something in place of the variables.
#[test]
fn promtool_understands_the_expressions_of_the_dashboard() {
    let dashboard = dashboard();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let queries = items(&dashboard["panels"]).flat_map(|panel| items(&panel["targets"]));
    for (number, query) in queries.enumerate() {
        let expression = text(query, "expr").replace("$__rate_interval", "5m").replace("$job", ".*");
        let _ = writeln!(rules, "      - {}", json!({ "record": format!("panel:{number}"), "expr": expression }));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, rules).unwrap();
    assert_promtool(&["check", "rules", file.to_str().unwrap()], "");
}
