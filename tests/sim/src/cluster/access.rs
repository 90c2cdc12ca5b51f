//! Who may do what: bearer tokens and denied verbs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::failure::Failure;
use super::rbac::Rbac;
use super::request::{Deed, Request};

#[derive(Debug, Default)]
pub(super) struct Access {
    /// Whether a token is needed; otherwise everybody is the administrator.
    guarded: bool,
    /// Token to user.
    users: BTreeMap<String, String>,
    denied: Vec<Denial>,
    /// Users and the paths beside objects that they may get.
    readers: Vec<(String, String)>,
    /// If there are roles, only what they grant is allowed.
    rbac: Option<Rbac>,
}

#[derive(Debug)]
struct Denial {
    user: String,
    verb: String,
    target: String,
}

impl Access {
    pub(super) fn admit(&mut self, token: &str, user: &str) {
        self.guarded = true;
        self.users.insert(token.to_owned(), user.to_owned());
    }

    /// Lets a token be known, without asking others for one.
    pub(super) fn know(&mut self, token: &str, user: &str) {
        self.users.insert(token.to_owned(), user.to_owned());
    }

    pub(super) fn let_read(&mut self, user: &str, path: &str) {
        self.readers.push((user.to_owned(), path.to_owned()));
    }

    /// The status of a TokenReview or SubjectAccessReview.
    pub(super) fn review(&self, plural: &str, spec: &Value) -> Value {
        if plural == "tokenreviews" {
            let user = spec["token"].as_str().and_then(|token| self.users.get(token));
            return match user {
                Some(user) => json!({ "authenticated": true, "user": {
                    "username": user, "uid": format!("uid-{user}"), "groups": ["system:authenticated"],
                    "extra": { "example.com/from": ["sim"] },
                } }),
                None => json!({ "user": {}, "error": "invalid bearer token" }),
            };
        }
        let path = spec["nonResourceAttributes"]["path"].as_str().unwrap_or_default();
        let whole = spec["uid"] == format!("uid-{}", spec["user"].as_str().unwrap_or_default())
            && spec["groups"][0] == "system:authenticated"
            && spec["extra"]["example.com/from"][0] == "sim"
            && spec["nonResourceAttributes"]["verb"] == "get";
        let allowed = whole && self.readers.iter().any(|(user, may)| spec["user"] == *user && may == path);
        json!({ "allowed": allowed })
    }

    pub(super) fn revoke(&mut self, token: &str) {
        self.users.remove(token);
    }

    pub(super) fn deny(&mut self, user: &str, verb: &str, target: &str) {
        self.denied.push(Denial { user: user.to_owned(), verb: verb.to_owned(), target: target.to_owned() });
    }

    pub(super) fn grant_only(&mut self, rbac: Rbac) {
        self.rbac = Some(rbac);
    }

    pub(super) fn undeny(&mut self) {
        self.denied.clear();
    }

    pub(super) fn a_token(&self) -> Option<&str> {
        self.users.keys().next().map(String::as_str)
    }

    /// The user behind an `Authorization` header.
    pub(super) fn authenticate(&self, authorization: Option<&str>) -> Result<String, Failure> {
        if !self.guarded {
            return Ok("kubernetes-admin".to_owned());
        }
        let token = authorization.and_then(|header| header.strip_prefix("Bearer ")).unwrap_or_default();
        self.users.get(token.trim()).cloned().ok_or_else(Failure::unauthorized)
    }

    pub(super) fn authorize(&self, user: &str, request: &Request) -> Result<(), Failure> {
        // Everybody may ask about themselves.
        if request.resource.kind == "SelfSubjectAccessReview" || self.allows(user, &Deed::of(request)) {
            return Ok(());
        }
        Err(forbidden(user, request, &request.target()))
    }

    fn allows(&self, user: &str, deed: &Deed) -> bool {
        let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let denied = |d: &Denial| fits(&d.user, user) && fits(&d.verb, &deed.verb) && fits(&d.target, &deed.target);
        !self.denied.iter().any(denied) && self.rbac.as_ref().is_none_or(|rbac| rbac.allows(user, deed))
    }

    /// The status of a SelfSubjectAccessReview.
    pub(super) fn review_self(&self, user: &str, spec: &Value) -> Value {
        let text = |name: &str| spec["resourceAttributes"][name].as_str().unwrap_or_default().to_owned();
        let (resource, subresource) = (text("resource"), text("subresource"));
        let target = if subresource.is_empty() { resource } else { format!("{resource}/{subresource}") };
        let (group, verb) = (text("group"), text("verb"));
        let deed = Deed { verb, group, target, namespace: text("namespace"), name: text("name") };
        json!({ "allowed": self.allows(user, &deed) })
    }
}

fn forbidden(user: &str, request: &Request, target: &str) -> Failure {
    let resource = request.resource;
    let subject = if request.name.is_empty() { String::new() } else { format!(" {:?}", request.name) };
    let scope = if request.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", request.namespace)
    };
    let message = format!(
        "{}{subject} is forbidden: User {user:?} cannot {} resource {target:?} in API group {:?} {scope}",
        resource.qualified(),
        request.verb,
        resource.group
    );
    let mut details = serde_json::json!({ "kind": resource.plural });
    if !request.name.is_empty() {
        details["name"] = request.name.clone().into();
    }
    Failure { details, ..Failure::new(403, "Forbidden", message) }
}
