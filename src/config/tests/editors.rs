//! What editors say about a file by the schema: they refuse nothing that `check` accepts, and find the common mistakes.

use std::sync::LazyLock;

use proptest::prelude::*;
use regex::Regex;
use serde_json::Value as Json;

use super::super::{formats, schema as shapes};
use super::*;

static SCHEMA: LazyLock<Json> = LazyLock::new(|| serde_json::from_str(&schema(&CATALOG)).unwrap());

/// Every place where a file breaks the schema, as far as the schema uses JSON Schema.
fn broken(schema: &Json, value: &Json, path: &str, found: &mut Vec<String>) {
    let mut no = |keyword: &str| found.push(format!("{path} {keyword}"));
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    if !is_of_type {
        return no("type");
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        no("enum");
    }
    if let Some(choices) = schema["oneOf"].as_array()
        && !choices.iter().any(|choice| choice["const"] == *value)
    {
        no("oneOf");
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !Regex::new(pattern).unwrap().is_match(text)
    {
        no("pattern");
    }
    if value.as_str() == Some("") && schema["minLength"] == 1 {
        no("minLength");
    }
    if let Some(number) = value.as_f64() {
        let within = schema["minimum"].as_f64().is_none_or(|least| number >= least)
            && schema["maximum"].as_f64().is_none_or(|most| number <= most);
        if !within {
            no("range");
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if schema["uniqueItems"] == true && value.as_array().unwrap()[..index].contains(item) {
            found.push(format!("{path} uniqueItems"));
        }
        broken(&schema["items"], item, &format!("{path}.{index}"), found);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{path}.{name} required"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => broken(schema, inner, &path, found),
            (None, Json::Bool(false)) => found.push(format!("{path} unknown")),
            (None, schema) => broken(schema, inner, &path, found),
        }
    }
}

fn said(toml: &str) -> Vec<String> {
    let value: toml::Table = toml.parse().unwrap();
    let mut found = Vec::new();
    broken(&SCHEMA, &serde_json::to_value(value).unwrap(), "", &mut found);
    found
}

#[test]
fn shipped_files_are_right_and_name_the_schema() {
    for (file, text) in [
        ("config/alicloud-ccm.toml", include_str!("../../../config/alicloud-ccm.toml")),
        ("config/alicloud-ccm.reference.toml", include_str!("../../../config/alicloud-ccm.reference.toml")),
        ("deploy/base/alicloud-ccm.toml", include_str!("../../../deploy/base/alicloud-ccm.toml")),
    ] {
        assert_eq!(said(text), Vec::<String>::new(), "{file}");
        let schema = text.lines().next().and_then(|line| line.strip_prefix("#:schema ")).unwrap_or_default();
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file).with_file_name("");
        let named = std::fs::canonicalize(folder.join(schema)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(named.ends_with("config/schema.json"), "{file} names {}", named.display());
    }
    assert_eq!(SCHEMA["$id"], "urn:alicloud-ccm:configuration");
}

#[test]
fn common_mistakes_are_seen_in_the_editor() {
    for (mistake, expected) in [
        ("controllers = [\"node\", \"rout\"]\ncloud.cluster_id = \"c\"", ".controllers.1 enum"),
        ("controllers = [\"node\", \"node\"]\ncloud.cluster_id = \"c\"", ".controllers uniqueItems"),
        ("controllers = [\"-cloud-node-lifecycle\"]\ncloud.cluster_id = \"c\"", ".controllers.0 enum"),
        ("controllers = []", ".cloud required"),
        ("cloud.region = \"cn-hangzhou\"", ".cloud.cluster_id required"),
        ("cloud.cluster_id = \"a b\"", ".cloud.cluster_id pattern"),
        ("cloud.cluster_id = 7", ".cloud.cluster_id type"),
        ("node.period = \"5 parsecs\"\ncloud.cluster_id = \"c\"", ".node.period pattern"),
        ("node.period = 5\ncloud.cluster_id = \"c\"", ".node.period type"),
        ("node.batch_size = 101\ncloud.cluster_id = \"c\"", ".node.batch_size range"),
        ("cloud = { cluster_id = \"c\", regoin = \"x\" }", ".cloud.regoin unknown"),
        ("cloud = { cluster_id = \"c\", region = \"Hangzhou\" }", ".cloud.region pattern"),
        ("cloud = { cluster_id = \"c\", vswitches = [\"sw-1\"] }", ".cloud.vswitches.0 pattern"),
        ("cloud = { cluster_id = \"c\", endpoints.scheme = \"ftp\" }", ".cloud.endpoints.scheme oneOf"),
        (
            "cloud = { cluster_id = \"c\", credentials.access_key_id = \"\" }",
            ".cloud.credentials.access_key_id minLength",
        ),
        ("route.cluster_cidrs = [\"10.0.0.0\"]\ncloud.cluster_id = \"c\"", ".route.cluster_cidrs.0 pattern"),
        ("log.level = \"verbose\"\ncloud.cluster_id = \"c\"", ".log.level pattern"),
        ("server.address = \"localhost\"\ncloud.cluster_id = \"c\"", ".server.address pattern"),
    ] {
        assert_eq!(said(mistake), [expected], "{mistake}");
    }
}

#[test]
fn every_text_has_a_rule() {
    for path in shapes::leaves() {
        let node = SCHEMA.pointer(&format!("/properties/{}", path.join("/properties/"))).unwrap();
        let texts = if node["type"] == "array" { &node["items"] } else { node };
        let rules = ["enum", "oneOf", "pattern", "minLength"].iter().any(|rule| texts.get(rule).is_some());
        assert!(rules || texts["type"] != "string", "{}: {node}", path.join("."));
    }
}

/// Texts of the sort that the rules are about.
fn texts() -> impl Strategy<Value = String> {
    let parts = prop_oneof![
        Just(String::new()),
        "[a-zA-Z0-9._@:/-]{0,6}",
        "[0-9]{1,3}( ?)(h|m|s|ms|us|ns|min|hours|seconds|millis|:[0-9]{2})",
        prop_oneof![
            "vpc-",
            "rg-",
            "slb\\.",
            "acs:ram::1:role/",
            "acs:ram::1:oidc-provider/",
            "info",
            "x=debug",
            ",",
            " "
        ],
    ];
    prop::collection::vec(parts, 1..4).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn editors_refuse_nothing_that_is_accepted(text in texts()) {
        let keeps = |pattern: &Json| Regex::new(pattern.as_str().unwrap()).unwrap().is_match(&text);
        for path in shapes::leaves() {
            let shape = shapes::at(path).unwrap();
            let accepted = formats::find(shape.format()).is_some_and(|format| (format.fits)(&text))
                || shape.is_timespan() && text.parse::<TimeSpan>().is_ok();
            let node = SCHEMA.pointer(&format!("/properties/{}", path.join("/properties/"))).unwrap();
            prop_assert!(!accepted || keeps(&node["pattern"]), "{} {text:?}", path.join("."));
        }
    }
}
