//! Requests of the vendor's RPC style, signed with signature version 1.0 (HMAC-SHA1).

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha1::Sha1;

use crate::config::secret::Secret;

/// What stays as it is in names and values (RFC 3986).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Parameters of a request. Empty values are dropped, as the vendor's own clients do.
#[derive(Clone, Default)]
pub(super) struct Params(Vec<(Cow<'static, str>, String)>);

/// Names only: values can be tokens.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Params {
    /// Adds a parameter.
    #[must_use]
    pub(super) fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a parameter if there is a value.
    #[must_use]
    pub(super) fn maybe(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a parameter.
    pub(super) fn push(&mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) {
        let value = value.to_string();
        if !value.is_empty() {
            self.0.push((name.into(), value));
        }
    }

    /// The first value of a parameter.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The form body of a POST request with its signature.
    pub(super) fn signed_body(&self, secret: &Secret) -> String {
        let canonical = self.canonical();
        let signature = signature("POST", &canonical, secret);
        format!("{canonical}&Signature={}", encode(&signature))
    }

    /// Sorted by name, encoded, joined: both what is signed and what is sent.
    pub(super) fn canonical(&self) -> String {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort();
        let pairs: Vec<_> = sorted.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        pairs.join("&")
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

#[expect(clippy::expect_used, reason = "an HMAC key may have any length")]
fn signature(method: &str, canonical: &str, secret: &Secret) -> String {
    let string_to_sign = format!("{method}&%2F&{}", encode(canonical));
    let key = Secret::new(format!("{}&", secret.expose()));
    let mut mac = Hmac::<Sha1>::new_from_slice(key.expose().as_bytes()).expect("any length");
    mac.update(string_to_sign.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret() -> Secret {
        Secret::new("testsecret".into())
    }

    fn published() -> Params {
        Params::default()
            .with("Version", "2014-05-26")
            .with("Timestamp", "2016-02-23T12:46:24Z")
            .with("SignatureVersion", "1.0")
            .with("SignatureNonce", "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf")
            .with("SignatureMethod", "HMAC-SHA1")
            .with("Format", "XML")
            .with("Action", "DescribeRegions")
            .with("AccessKeyId", "testid")
    }

    fn awkward() -> Params {
        Params::default()
            .with("AccessKeyId", "STS.testid")
            .with("SecurityToken", "CAIS+/token==")
            .with("Action", "AddVServerGroupBackendServers")
            .with("Version", "2014-05-15")
            .with("Format", "JSON")
            .with("RegionId", "cn-hangzhou")
            .with("SignatureMethod", "HMAC-SHA1")
            .with("SignatureVersion", "1.0")
            .with("SignatureNonce", "0f8fad5b-d9cb-469f-a165-70867728950e")
            .with("Timestamp", "2026-01-02T03:04:05Z")
            .with("VServerGroupId", "rsp-test0001")
            .with("Empty", "")
            .with(
                "BackendServers",
                r#"[{"ServerId":"i-test~1","Port":"80","Weight":"100","Type":"ecs","Description":"a b*c+d/é"}]"#,
            )
    }

    #[test]
    fn the_published_example_gets_the_published_signature() {
        assert_eq!(signature("GET", &published().canonical(), &secret()), "OLeaidS1JvxuMvnyHOwuJ+uX5qY=");
    }

    #[test]
    fn tokens_json_and_special_characters_are_signed_as_the_server_does() {
        let canonical = awkward().canonical();
        assert_eq!(signature("POST", &canonical, &secret()), "0MGNGFlIO0hsQ9oePTekVoXLCGc=");
        assert_eq!(signature("GET", &canonical, &secret()), "pkuyaWF//wGPAKrmlxdsl9WfOAc=");
        let body = awkward().signed_body(&secret());
        assert!(body.ends_with("&Signature=0MGNGFlIO0hsQ9oePTekVoXLCGc%3D"), "{body}");
        assert!(body.contains("a%20b%2Ac%2Bd%2F%C3%A9"), "{body}");
        assert!(!body.contains("Empty"), "empty values are neither signed nor sent: {body}");
    }

    #[test]
    fn names_are_sorted_by_bytes() {
        let params = Params::default().with("healthCheckInterval", 2).with("HealthCheckType", "tcp");
        let params = (1..=10).fold(params, |params, number| params.with(format!("Tag.{number}"), "t"));
        let names: Vec<_> =
            params.canonical().split('&').map(|pair| pair.split_once('=').unwrap().0.to_owned()).collect();
        assert_eq!(
            names,
            [
                "HealthCheckType",
                "Tag.1",
                "Tag.10",
                "Tag.2",
                "Tag.3",
                "Tag.4",
                "Tag.5",
                "Tag.6",
                "Tag.7",
                "Tag.8",
                "Tag.9",
                "healthCheckInterval"
            ]
        );
    }

    proptest! {
        #[test]
        fn every_value_arrives_as_it_was(value in ".{1,60}") {
            let body = Params::default().with("Name", &value).canonical();
            let sent = body.strip_prefix("Name=").unwrap();
            prop_assert!(sent.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte)), "{}", sent);
            prop_assert_eq!(percent_encoding::percent_decode_str(sent).decode_utf8().unwrap(), value);
        }
    }
}
