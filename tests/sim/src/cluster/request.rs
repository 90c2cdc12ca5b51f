//! What a request asks for, read from its method, path, query and headers.

use std::collections::BTreeMap;

use http::request::Parts;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use super::failure::Failure;
use super::resources::{self, Resource};
use super::version::{Feature, Version};

/// A request for objects.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) verb: &'static str,
    pub(super) resource: &'static Resource,
    /// The group's version that the client speaks.
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// `status`, or empty.
    pub(super) subresource: &'static str,
    pub(super) query: BTreeMap<String, String>,
    pub(super) form: Form,
    pub(super) user_agent: String,
    pub(super) content_type: String,
}

/// What a request does, as far as permissions go.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    pub(super) verb: String,
    pub(super) group: String,
    /// `nodes` or `nodes/status`.
    pub(super) target: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Deed {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            verb: request.verb.to_owned(),
            group: request.resource.group.to_owned(),
            target: request.target(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
        }
    }
}

/// How the client wants to see objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// Columns and rows, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// Metadata only.
    Metadata,
}

impl Request {
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.parameter(name), "true" | "1")
    }

    /// `nodes` or `nodes/status`.
    pub(super) fn target(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.plural.to_owned()
        } else {
            format!("{}/{}", self.resource.plural, self.subresource)
        }
    }

    /// Reads a request below `/api/v1/` or `/apis/<group>/<version>/`.
    pub(super) fn read(played: Version, parts: &Parts) -> Result<Request, Failure> {
        let path: Vec<String> = parts
            .uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::no_such_path()),
        };
        let (namespace, rest) = match rest {
            // `namespaces/x` and `namespaces/x/status` are the Namespace itself.
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !matches!(rest, ["status"]) => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, "status"] => (*plural, *name, "status"),
            _ => return Err(Failure::no_such_path()),
        };
        let resource = resources::served(played, group, version, plural).ok_or_else(Failure::no_such_path)?;
        let misplaced = (!namespace.is_empty() && !resource.namespaced)
            || (!name.is_empty() && resource.namespaced && namespace.is_empty())
            || (!subresource.is_empty() && !resource.status);
        if misplaced {
            return Err(Failure::no_such_path());
        }
        let query = query(parts.uri.query().unwrap_or_default());
        let watching = query.get("watch").is_some_and(|value| value == "true" || value == "1");
        let verb = match (&parts.method, name.is_empty()) {
            (&Method::GET, true) if watching => "watch",
            (&Method::GET, true) => "list",
            (&Method::GET, false) => "get",
            (&Method::POST, true) => "create",
            (&Method::PUT, false) => "update",
            (&Method::PATCH, false) => "patch",
            (&Method::DELETE, false) if subresource.is_empty() => "delete",
            (&Method::DELETE, true) => "deletecollection",
            _ => return Err(Failure::method_not_allowed()),
        };
        let content_type = text(&parts.headers, header::CONTENT_TYPE);
        Ok(Request {
            verb,
            resource,
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
            query,
            form: form(played, &text(&parts.headers, header::ACCEPT))?,
            user_agent: text(&parts.headers, header::USER_AGENT),
            content_type: content_type.split(';').next().unwrap_or_default().trim().to_owned(),
        })
    }
}

pub(super) fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn query(text: &str) -> BTreeMap<String, String> {
    let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

/// The first of the accepted media types that this version can produce.
fn form(played: Version, accept: &str) -> Result<Form, Failure> {
    if accept.trim().is_empty() {
        return Ok(Form::Whole);
    }
    for offer in accept.split(',') {
        let mut parts = offer.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        if !matches!(media_type, "application/json" | "application/*" | "*/*") {
            continue;
        }
        let version = parameters.get("v").copied().unwrap_or("v1");
        match parameters.get("as").copied() {
            None => return Ok(Form::Whole),
            Some("Table") if version == "v1" && played.has(Feature::Table) => return Ok(Form::Table("v1")),
            Some("Table") if version == "v1beta1" && played.has(Feature::TableBeta) => {
                return Ok(Form::Table("v1beta1"));
            }
            Some("PartialObjectMetadata" | "PartialObjectMetadataList")
                if version == "v1" && played.has(Feature::Table) =>
            {
                return Ok(Form::Metadata);
            }
            Some(_) => {}
        }
    }
    let message = "only the following media types are accepted: application/json";
    Err(Failure::new(406, "NotAcceptable", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(played: Version, method: &str, uri: &str, accept: &str) -> Result<Request, Failure> {
        let request = http::Request::builder().method(method).uri(uri).header("accept", accept).body(()).unwrap();
        Request::read(played, &request.into_parts().0)
    }

    fn target(method: &str, uri: &str) -> (&'static str, String, String, String) {
        let request = read(Version::V1_24, method, uri, "").unwrap();
        (request.verb, request.target(), request.namespace, request.name)
    }

    #[test]
    fn paths() {
        let own =
            |verb, target: &str, namespace: &str, name: &str| (verb, target.into(), namespace.into(), name.into());
        assert_eq!(target("GET", "/api/v1/nodes"), own("list", "nodes", "", ""));
        assert_eq!(target("GET", "/api/v1/nodes?watch=1"), own("watch", "nodes", "", ""));
        assert_eq!(target("PATCH", "/api/v1/nodes/a.b/status"), own("patch", "nodes/status", "", "a.b"));
        assert_eq!(target("GET", "/api/v1/namespaces/x"), own("get", "namespaces", "", "x"));
        assert_eq!(target("PUT", "/api/v1/namespaces/x/status"), own("update", "namespaces/status", "", "x"));
        assert_eq!(target("POST", "/api/v1/namespaces/x/services"), own("create", "services", "x", ""));
        assert_eq!(
            target("DELETE", "/apis/discovery.k8s.io/v1beta1/namespaces/x/endpointslices/y"),
            own("delete", "endpointslices", "x", "y")
        );
    }

    #[test]
    fn paths_that_do_not_exist() {
        for (method, uri, code) in [
            ("GET", "/api/v1/pods/x", 404),
            ("GET", "/api/v1/nodes/x/proxy", 404),
            ("PATCH", "/api/v1/namespaces/x/secrets/y/status", 404),
            ("GET", "/apis/apps/v1/replicasets", 404),
            ("POST", "/api/v1/nodes/x", 405),
            ("DELETE", "/api/v1/nodes/x/status", 405),
        ] {
            assert_eq!(read(Version::V1_24, method, uri, "").unwrap_err().code, code, "{method} {uri}");
        }
    }

    #[test]
    fn forms_depend_on_the_version() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                       application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let form = |played, accept| read(played, "GET", "/api/v1/nodes", accept).map(|request| request.form);
        assert_eq!(form(Version::V1_8, kubectl), Ok(Form::Whole));
        assert_eq!(form(Version::V1_11, kubectl), Ok(Form::Table("v1beta1")));
        assert_eq!(form(Version::V1_16, kubectl), Ok(Form::Table("v1")));
        assert_eq!(form(Version::V1_16, "application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }
}
