//! STS (version 2015-04-01): temporary credentials for a role.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::Fault;
use super::actions::{ASSUME_ROLE, ASSUME_ROLE_WITH_OIDC};
use super::decode::{Nested, Text};
use super::rate_limit::Priority;
use super::rpc::{Answer, CallSettings, RpcCall, RpcClient};
use super::signing::{KeyPair, Params};
use crate::config::secret::Secret;

/// The service itself gives up after ten seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Temporary credentials as issued.
#[derive(Clone, Debug)]
pub(super) struct IssuedCredentials {
    pub(super) key: KeyPair,
    pub(super) expires: Timestamp,
}

/// Which role, for how long, under which name.
#[derive(Debug)]
pub(super) struct RoleRequest<'a> {
    pub(super) role_arn: &'a str,
    pub(super) session_name: &'a str,
    pub(super) duration: Duration,
}

impl RoleRequest<'_> {
    fn params(&self) -> Params {
        Params::new()
            .with("RoleArn", self.role_arn)
            .with("RoleSessionName", self.session_name)
            .with("DurationSeconds", self.duration.as_secs())
    }
}

/// How STS is reached.
#[derive(Debug)]
pub(super) struct Sts<'a> {
    pub(super) rpc: &'a RpcClient,
    pub(super) url: &'a str,
    pub(super) call_settings: &'a CallSettings,
}

impl Sts<'_> {
    /// Credentials for a role that the holder of `key` may assume.
    pub(super) async fn assume_role(
        &self,
        key: &KeyPair,
        role: &RoleRequest<'_>,
        external_id: Option<&str>,
    ) -> Result<IssuedCredentials, Fault> {
        let exchange = RpcCall {
            action: ASSUME_ROLE.0,
            url: self.url,
            params: role.params().maybe("ExternalId", external_id),
            key: Some(key),
            permit: None,
            priority: Priority::default(),
            call_settings: &self.call_settings(),
        };
        issued(self.rpc.exchange(&exchange).await?)
    }

    /// Credentials for the holder of an identity token. The call itself is anonymous.
    pub(super) async fn assume_role_with_oidc(
        &self,
        provider_arn: &str,
        token: &Secret,
        role: &RoleRequest<'_>,
    ) -> Result<IssuedCredentials, Fault> {
        let exchange = RpcCall {
            action: ASSUME_ROLE_WITH_OIDC.0,
            url: self.url,
            params: role.params().with("OIDCProviderArn", provider_arn).with("OIDCToken", token.expose()),
            key: None,
            permit: None,
            priority: Priority::default(),
            call_settings: &self.call_settings(),
        };
        issued(self.rpc.exchange(&exchange).await?)
    }

    fn call_settings(&self) -> CallSettings {
        CallSettings { timeout: self.call_settings.timeout.min(TIMEOUT), ..self.call_settings.clone() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Body {
    credentials: Nested<Credentials>,
}

/// The same in answers of STS and of the metadata service.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Credentials {
    access_key_id: Text,
    access_key_secret: Text,
    security_token: Text,
    expiration: Text,
    /// Only from the metadata service.
    pub(super) code: Text,
}

impl Credentials {
    /// `None` if something is missing.
    pub(super) fn issued(self) -> Option<IssuedCredentials> {
        let expires = self.expiration.0.parse().ok()?;
        let complete =
            ![&self.access_key_id, &self.access_key_secret, &self.security_token].iter().any(|text| text.0.is_empty());
        complete.then(|| IssuedCredentials {
            key: KeyPair {
                id: self.access_key_id.0,
                secret: Secret::new(self.access_key_secret.0),
                token: Some(Secret::new(self.security_token.0)),
            },
            expires,
        })
    }
}

fn issued(answer: Answer) -> Result<IssuedCredentials, Fault> {
    let incomplete = answer.bug("the answer has no complete credentials");
    answer.decode::<Body>()?.credentials.0.issued().ok_or(incomplete)
}
