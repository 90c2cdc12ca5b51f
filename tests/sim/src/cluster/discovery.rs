//! What the server offers: versions, groups, resources, and schemas as far as clients insist on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::failure::Failure;
use super::resources::{RESOURCES, Resource, VERBS};
use super::version::{Feature, Version};

/// The answer to a discovery path; nothing if the path is none.
pub(super) fn answer(played: Version, path: &str) -> Option<Result<Document, Failure>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let json = |value: Value| Some(Ok(Document::Json(value)));
    match parts.as_slice() {
        [] => json(json!({ "paths": paths(played) })),
        ["version"] => json(version(played)),
        ["healthz" | "livez" | "readyz"] => Some(Ok(Document::Text("ok"))),
        ["api"] => json(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
        })),
        ["apis"] => {
            let groups: Vec<_> = groups(played).keys().map(|group| describe_group(played, group)).collect();
            json(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["api", version] => Some(resource_list(played, "", version).map(Document::Json)),
        ["apis", group] if groups(played).contains_key(group) => {
            let mut group = describe_group(played, group);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            json(group)
        }
        ["apis", _] => Some(Err(Failure::no_such_group())),
        ["apis", group, ..] if !groups(played).contains_key(group) => Some(Err(Failure::no_such_group())),
        ["apis", group, version] => Some(resource_list(played, group, version).map(Document::Json)),
        ["openapi", "v2"] => Some(Ok(Document::OpenApiV2)),
        ["openapi", "v3", rest @ ..] if played.has(Feature::OpenApiV3) => Some(open_api_v3(played, rest)),
        ["swaggerapi" | "openapi" | "swagger-2.0.0.pb-v1", ..] => Some(Err(Failure::no_such_path())),
        _ => None,
    }
}

/// A discovery answer.
#[derive(Debug)]
pub(super) enum Document {
    Json(Value),
    Text(&'static str),
    /// An OpenAPI v2 document without definitions, as JSON or protobuf.
    OpenApiV2,
}

/// The document without definitions as JSON.
pub(super) fn open_api_v2(played: Version) -> Value {
    json!({ "swagger": "2.0", "info": { "title": "Kubernetes", "version": played.to_string() }, "paths": {} })
}

/// The same as a protobuf `openapi.v2.Document`: field 1 is `swagger`, field 2 is `info` (title 1, version 2).
pub(super) fn open_api_v2_protobuf(played: Version) -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let mut encoded = vec![number << 3 | 2, content.len() as u8];
        encoded.extend_from_slice(content);
        encoded
    };
    let info = [field(1, b"Kubernetes"), field(2, played.to_string().as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

fn version(played: Version) -> Value {
    json!({
        "major": "1",
        "minor": played.minor().to_string(),
        "gitVersion": played.to_string(),
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    })
}

fn paths(played: Version) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (group, versions) in groups(played) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/openapi/v2", "/version"].map(str::to_owned));
    paths
}

/// Named groups and their versions, preferred first.
fn groups(played: Version) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in RESOURCES.iter().filter(|resource| !resource.group.is_empty()) {
        for version in resource.versions(played) {
            let versions = groups.entry(resource.group).or_default();
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    groups
}

fn describe_group(played: Version, group: &str) -> Value {
    let versions: Vec<_> = groups(played)
        .remove(group)
        .unwrap_or_default()
        .into_iter()
        .map(|version| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
        .collect();
    json!({ "name": group, "versions": versions, "preferredVersion": versions.first() })
}

fn resource_list(played: Version, group: &str, version: &str) -> Result<Value, Failure> {
    let mut resources = Vec::new();
    for resource in RESOURCES.iter().filter(|r| r.group == group && r.versions(played).any(|v| v == version)) {
        resources.push(describe(resource));
        if resource.status {
            resources.push(json!({
                "name": format!("{}/status", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if resources.is_empty() {
        return Err(Failure::no_such_path());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources }))
}

fn describe(resource: &Resource) -> Value {
    let mut described = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    });
    if !resource.short_names.is_empty() {
        described["shortNames"] = resource.short_names.into();
    }
    described
}

fn open_api_v3(played: Version, rest: &[&str]) -> Result<Document, Failure> {
    let known: BTreeSet<String> =
        std::iter::once("api/v1".to_owned())
            .chain(groups(played).into_iter().flat_map(|(group, versions)| {
                versions.into_iter().map(move |version| format!("apis/{group}/{version}"))
            }))
            .collect();
    if rest.is_empty() {
        let paths: BTreeMap<_, _> = known
            .iter()
            .map(|path| (path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}") })))
            .collect();
        return Ok(Document::Json(json!({ "paths": paths })));
    }
    if !known.contains(&rest.join("/")) {
        return Err(Failure::no_such_path());
    }
    Ok(Document::Json(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": played.to_string() },
        "paths": {},
        "components": { "schemas": {} },
    })))
}
