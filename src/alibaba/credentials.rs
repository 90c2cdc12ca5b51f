//! Keys to sign with, kept fresh.
//!
//! Temporary keys are renewed ahead of their end by the first call that notices, while the others use the old
//! ones. A renewal that fails costs nothing as long as the old keys last. Times are kept as instants of the monotonic
//! clock, so that a wrong or corrected wall clock does not end them early.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::time::Instant;

use super::actions::{ASSUME_ROLE, ASSUME_ROLE_WITH_OIDC};
use super::answer::Fields;
use super::endpoints::{self, CloudProduct};
use super::fault::{Fault, FaultKind};
use super::metadata::{Metadata, MetadataError};
use super::rpc::{CallSettings, RpcClient};
use super::signing::Params;
use super::sts::{Sts, TemporaryKey};
use crate::config::checked::{AccessKey, Credentials, Endpoints};
use crate::config::secret::Secret;
use crate::telemetry::metrics;

/// Keys are renewed when less than this is left, or a tenth of their lifetime if that is longer.
const MARGIN: Duration = Duration::from_secs(300);

/// Keys that are handed out with less than [`MARGIN`] left are not renewed with every call.
const SHORTEST_USE: Duration = Duration::from_secs(60);

/// Time between tries while the old keys still work.
const RETRY_WITH_KEYS: Duration = Duration::from_secs(30);

/// Time between tries while there are none.
const RETRY_WITHOUT_KEYS: Duration = Duration::from_secs(3);

/// Time between renewals because the cloud refused the keys.
const FORCED_GAP: Duration = Duration::from_secs(10);

/// Start of the codes that mean that STS does not take an identity token.
const TOKEN_REFUSED: &str = "AuthenticationFail.";

const ROLE_KEY: &str = "ram/security-credentials/";

/// Whether calls can be signed, for readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialState {
    /// There are keys that the cloud has not refused, or none have been needed yet.
    pub usable: bool,
    /// The last failure to get keys or the last refusal, until the next success.
    pub last_error: Option<String>,
}

/// Why there are no keys.
#[derive(Clone, Debug, Error)]
pub(super) enum CredentialError {
    #[error("the role {role_arn} was not granted: {fault}")]
    Role { role_arn: String, fault: Box<Fault> },
    #[error("{0}")]
    Metadata(#[from] MetadataError),
    #[error("configured keys are not renewed")]
    Fixed,
    #[error("{0}")]
    Configured(String),
    #[error("no RAM role is attached to this instance; attach one, or configure other credentials")]
    NoRole,
    #[error("the token file {} cannot be used: {reason}", path.display())]
    TokenFile { path: PathBuf, reason: String },
    #[error("the metadata service gave unusable credentials for the role {role}: {reason}")]
    Unusable { role: String, reason: String },
    #[error("the region {0:?} cannot be part of a host name")]
    Region(String),
}

impl CredentialError {
    /// The failure of a call that could not be signed.
    pub(super) fn into_fault(self, action: &'static str) -> Fault {
        let message = format!("no credentials: {self}");
        match self {
            Self::Role { fault: cause, .. } => {
                let kind = match cause.kind {
                    kind @ (FaultKind::Throttled | FaultKind::Busy | FaultKind::Denied) => kind,
                    FaultKind::Transient | FaultKind::Ambiguous => FaultKind::Transient,
                    _ => FaultKind::Credential,
                };
                // The cause's code and request id are in the message already.
                Fault { retry_after: cause.retry_after, ..Fault::new(action, kind, message) }
            }
            Self::Metadata(MetadataError::Unreachable { .. } | MetadataError::Refused { .. }) => {
                Fault::new(action, FaultKind::Transient, message)
            }
            _ => Fault::new(action, FaultKind::Credential, message),
        }
    }
}

/// What new keys are got from.
#[derive(Debug)]
pub(super) struct CredentialIssuers<'a> {
    pub(super) rpc: &'a RpcClient,
    pub(super) metadata: &'a Metadata,
    pub(super) endpoints: &'a Endpoints,
    pub(super) region: &'a str,
    pub(super) settings: &'a CallSettings,
}

/// Keys of one kind of credentials.
#[derive(Debug)]
pub(super) struct CredentialProvider {
    config: Credentials,
    state: Mutex<ProviderState>,
    /// Held while renewing: one at a time.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct ProviderState {
    cached: Option<CachedKey>,
    failed: Option<(Instant, CredentialError)>,
    forced_at: Option<Instant>,
    refusal: Option<String>,
}

#[derive(Clone, Debug)]
struct CachedKey {
    key: Arc<AccessKey>,
    /// `None` for keys without an end.
    until: Option<Instant>,
    renew_at: Option<Instant>,
}

impl CachedKey {
    fn valid(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    fn fresh(&self) -> bool {
        self.valid() && self.renew_at.is_none_or(|at| Instant::now() < at)
    }
}

impl CredentialProvider {
    pub(super) fn new(config: Credentials) -> Self {
        let cached = match &config {
            Credentials::AccessKey(key) => Some(CachedKey { key: Arc::new(key.clone()), until: None, renew_at: None }),
            _ => None,
        };
        Self {
            config,
            state: Mutex::new(ProviderState { cached, ..ProviderState::default() }),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn serves(&self, config: &Credentials) -> bool {
        self.config == *config
    }

    pub(super) fn state(&self) -> CredentialState {
        let state = self.state.lock();
        let failure = state.failed.as_ref().map(|(_, error)| error.to_string());
        // Keys that ended while they were not needed are no failure: the next call gets new ones.
        let usable =
            state.refusal.is_none() && (failure.is_none() || state.cached.as_ref().is_some_and(CachedKey::valid));
        CredentialState { usable, last_error: state.refusal.clone().or(failure) }
    }

    /// How long the present keys are valid; `None` without keys, and for keys without an end.
    pub(super) fn keys_last(&self) -> Option<Duration> {
        Some(self.cached()?.until?.saturating_duration_since(Instant::now()))
    }

    /// The cloud took the keys.
    pub(super) fn accepted(&self) {
        self.state.lock().refusal = None;
    }

    /// The cloud did not take the keys, and new ones were no cure.
    pub(super) fn refused(&self, fault: &Fault) {
        self.state.lock().refusal = Some(fault.to_string());
    }

    /// Keys that are valid now.
    pub(super) async fn key(&self, issuers: &CredentialIssuers<'_>) -> Result<Arc<AccessKey>, CredentialError> {
        let asked_at = Instant::now();
        let cached = self.cached();
        match cached {
            Some(cached) if cached.fresh() => return Ok(cached.key),
            Some(cached) => {
                // Ageing keys still do; only the call that gets the turn waits for new ones.
                if let Ok(_turn) = self.renewing.try_lock()
                    && self.may_try(RETRY_WITH_KEYS)
                {
                    drop(self.renew(issuers).await);
                }
                return Ok(self.cached().map_or(cached.key, |cached| cached.key));
            }
            None => {}
        }
        let _turn = self.renewing.lock().await;
        if let Some(cached) = self.cached() {
            return Ok(cached.key);
        }
        let failed_meanwhile = |at: Instant| at >= asked_at || at.elapsed() < RETRY_WITHOUT_KEYS;
        if let Some((at, error)) = &self.state.lock().failed
            && failed_meanwhile(*at)
        {
            return Err(error.clone());
        }
        self.renew(issuers).await.map(|cached| cached.key)
    }

    /// Other keys than `refused`, which the cloud did not take; `None` if there are none.
    pub(super) async fn replace(&self, refused: &AccessKey, issuers: &CredentialIssuers<'_>) -> Option<Arc<AccessKey>> {
        if matches!(self.config, Credentials::AccessKey(_)) {
            return None;
        }
        let _turn = self.renewing.lock().await;
        let other = || self.cached().map(|cached| cached.key).filter(|key| **key != *refused);
        if let Some(key) = other() {
            return Some(key);
        }
        {
            let mut state = self.state.lock();
            if state.forced_at.is_some_and(|at| at.elapsed() < FORCED_GAP) {
                return None;
            }
            state.forced_at = Some(Instant::now());
        }
        drop(self.renew(issuers).await);
        other()
    }

    /// What is cached, unless its time is over.
    fn cached(&self) -> Option<CachedKey> {
        self.state.lock().cached.clone().filter(CachedKey::valid)
    }

    fn may_try(&self, gap: Duration) -> bool {
        self.state.lock().failed.as_ref().is_none_or(|(at, _)| at.elapsed() >= gap)
    }

    /// Gets new keys; on failure the old ones stay.
    async fn renew(&self, issuers: &CredentialIssuers<'_>) -> Result<CachedKey, CredentialError> {
        let issued = self.issue(issuers).await;
        let mut state = self.state.lock();
        match issued {
            Ok(TemporaryKey { key, expires }) => {
                metrics::expiry("credentials", Some(expires.as_second()));
                // New keys that have ended: this machine's clock is ahead, which the answer to a call with them tells.
                let left = Duration::try_from(expires.duration_since(issuers.rpc.now())).ok();
                let (now, left) = (Instant::now(), left.filter(|left| !left.is_zero()).unwrap_or(SHORTEST_USE));
                let ahead = left.saturating_sub(MARGIN.max(left / 10)).max(SHORTEST_USE);
                tracing::info!(seconds = left.as_secs(), "got temporary credentials");
                let cached = CachedKey { key: Arc::new(key), until: Some(now + left), renew_at: Some(now + ahead) };
                state.failed = None;
                Ok(state.cached.insert(cached).clone())
            }
            Err(error) => {
                tracing::warn!(code = "ACCM0741", %error, "no new credentials");
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn issue(&self, issuers: &CredentialIssuers<'_>) -> Result<TemporaryKey, CredentialError> {
        match &self.config {
            Credentials::AccessKey(_) => Err(CredentialError::Fixed),
            Credentials::Unusable(why) => Err(CredentialError::Configured(why.clone())),
            Credentials::AssumeRole { source, role_arn, session_name, duration, external_id } => {
                let params = role(role_arn, session_name, *duration).maybe("ExternalId", external_id.as_ref());
                let issued = issuers.sts()?.assume(ASSUME_ROLE, params, Some(source)).await;
                issued.map_err(|fault| CredentialError::Role { role_arn: role_arn.clone(), fault: Box::new(fault) })
            }
            Credentials::Oidc { role_arn, provider_arn, token_file, session_name, duration } => {
                let sts = issuers.sts()?;
                let assume = async |token: &Secret| {
                    let params = role(role_arn, session_name, *duration)
                        .with("OIDCProviderArn", provider_arn)
                        .with("OIDCToken", token.expose());
                    sts.assume(ASSUME_ROLE_WITH_OIDC, params, None).await
                };
                let token = read_token(token_file).await?;
                let mut issued = assume(&token).await;
                if issued.as_ref().is_err_and(|fault| fault.code.starts_with(TOKEN_REFUSED)) {
                    // The file is replaced from outside; this may have been the token before.
                    let newer = read_token(token_file).await?;
                    if newer != token {
                        issued = assume(&newer).await;
                    }
                }
                issued.map_err(|fault| CredentialError::Role { role_arn: role_arn.clone(), fault: Box::new(fault) })
            }
            Credentials::InstanceRole { role } => from_instance(issuers.metadata, role.as_deref()).await,
        }
    }
}

impl CredentialIssuers<'_> {
    fn sts(&self) -> Result<Sts<'_>, CredentialError> {
        let url = endpoints::url(self.endpoints, CloudProduct::Sts, self.region)
            .ok_or_else(|| CredentialError::Region(self.region.to_owned()))?;
        Ok(Sts { rpc: self.rpc, url, settings: self.settings })
    }
}

/// Which role, under which name, for how long.
fn role(role_arn: &str, session_name: &str, duration: Duration) -> Params {
    Params::default()
        .with("RoleArn", role_arn)
        .with("RoleSessionName", session_name)
        .with("DurationSeconds", duration.as_secs())
}

async fn read_token(path: &Path) -> Result<Secret, CredentialError> {
    let unusable = |reason: String| CredentialError::TokenFile { path: path.to_owned(), reason };
    let text = tokio::fs::read_to_string(path).await.map_err(|error| unusable(error.to_string()))?;
    match text.trim() {
        "" => Err(unusable("it is empty".into())),
        token => Ok(Secret::new(token.to_owned())),
    }
}

async fn from_instance(metadata: &Metadata, role: Option<&str>) -> Result<TemporaryKey, CredentialError> {
    let role = match role {
        Some(role) => role.to_owned(),
        None => match metadata.get(ROLE_KEY).await {
            // One role can be attached; a list would have it in its first line.
            Ok(text) => text.lines().next().unwrap_or_default().trim().to_owned(),
            Err(MetadataError::Absent { .. }) => return Err(CredentialError::NoRole),
            Err(error) => return Err(error.into()),
        },
    };
    let text = metadata.get(&format!("{ROLE_KEY}{role}")).await?;
    let unusable = |reason: &str| CredentialError::Unusable { role: role.clone(), reason: reason.to_owned() };
    let body: Map<String, Value> =
        serde_json::from_str(&text).map_err(|_| unusable("the answer is not of the expected form"))?;
    let fields = Fields::from(&body);
    match fields.some_text("Code").unwrap_or_default().as_str() {
        "Success" => match TemporaryKey::decode(fields) {
            Ok(key) => key.ok_or_else(|| unusable("the answer is incomplete")),
            Err(mismatch) => Err(unusable(&mismatch.to_string())),
        },
        code => Err(unusable(&format!("code {code:?} instead of \"Success\""))),
    }
}

#[cfg(test)]
mod tests;
