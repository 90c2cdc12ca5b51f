//! STS (version 2015-04-01): temporary credentials for a role.

use std::time::Duration;

use jiff::Timestamp;

use tokio_util::sync::CancellationToken;

use super::actions::ReadAction;
use super::answer::{Fields, Mismatch};
use super::fault::Fault;
use super::rate_limit::Priority;
use super::rpc::{CallSettings, RpcCall, RpcClient};
use super::signing::Params;
use crate::config::checked::AccessKey;
use crate::config::secret::Secret;

/// The service itself gives up after ten seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Keys that end.
#[derive(Clone, Debug)]
pub(super) struct TemporaryKey {
    pub(super) key: AccessKey,
    pub(super) expires: Timestamp,
}

impl TemporaryKey {
    /// The fields are the same in answers of STS and of the metadata service. `None` if one is missing.
    pub(super) fn decode(fields: Fields<'_>) -> Result<Option<Self>, Mismatch> {
        let id = fields.text("AccessKeyId")?;
        let secret = fields.text("AccessKeySecret")?;
        let token = fields.text("SecurityToken")?;
        let complete = ![&id, &secret, &token].iter().any(|text| text.is_empty());
        let expires = fields.text("Expiration")?.parse().ok().filter(|_| complete);
        let key = AccessKey { id, secret: Secret::new(secret), token: Some(Secret::new(token)) };
        Ok(expires.map(|expires| Self { key, expires }))
    }
}

/// How STS is reached.
#[derive(Debug)]
pub(super) struct Sts<'a> {
    pub(super) rpc: &'a RpcClient,
    pub(super) url: String,
    pub(super) settings: &'a CallSettings,
}

impl Sts<'_> {
    /// Credentials for a role. Without a key the call is anonymous, and an identity token is among the parameters.
    pub(super) async fn assume(
        &self,
        action: ReadAction,
        params: Params,
        key: Option<&AccessKey>,
    ) -> Result<TemporaryKey, Fault> {
        let settings = CallSettings { timeout: self.settings.timeout.min(TIMEOUT), ..self.settings.clone() };
        let (permit, priority, stop) = (None, &Priority::default(), &CancellationToken::new());
        let (action, url, settings) = (action.0, self.url.as_str(), &settings);
        let call = RpcCall { action, url, params, key, permit, priority, stop, settings };
        let answer = self.rpc.call(&call).await?;
        let key = answer.decode(|body| TemporaryKey::decode(body.object("Credentials")?))?;
        key.ok_or_else(|| answer.unusable("the answer has no complete credentials"))
    }
}
