//! What products make their calls with: the current settings, valid keys, and one replacement of keys that are refused.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::actions::Action;
use super::credentials::{CredentialIssuers, CredentialProvider, CredentialState};
use super::endpoints;
use super::errors;
use super::failing::{CallState, FailingActions};
use super::fault::{Fault, FaultKind};
use super::metadata::Metadata;
use super::rate_limit::{Priority, RateLimiter, RateUse};
use super::rpc::{CallSettings, RpcAnswer, RpcCall, RpcClient};
use super::signing::Params;
use super::transport::Transport;
use crate::config::checked;
use crate::fence::Permit;
use crate::telemetry::metrics;

/// Makes signed calls for all products. Cheap to clone; clones share connections, credentials and rate limits.
#[derive(Clone, Debug)]
pub(super) struct SigningClient {
    shared: Arc<ClientState>,
    priority: Priority,
    /// When it is cancelled, no call waits for its turn.
    stop: CancellationToken,
}

#[derive(Debug)]
struct ClientState {
    rpc: RpcClient,
    settings: RwLock<Arc<ClientSettings>>,
    failing: FailingActions,
}

/// Everything that the configuration decides, replaced as a whole.
#[derive(Debug)]
struct ClientSettings {
    region: String,
    endpoints: checked::Endpoints,
    calls: CallSettings,
    metadata: Metadata,
    provider: Arc<CredentialProvider>,
    /// Grows whenever the credentials are others.
    credentials_version: u64,
}

impl ClientSettings {
    fn issuers<'a>(&'a self, rpc: &'a RpcClient) -> CredentialIssuers<'a> {
        CredentialIssuers {
            rpc,
            metadata: &self.metadata,
            endpoints: &self.endpoints,
            region: &self.region,
            settings: &self.calls,
        }
    }
}

impl SigningClient {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        config: &checked::Cloud,
        region: &str,
        rate_limiter: RateLimiter,
    ) -> Self {
        let settings = ClientSettings {
            region: region.to_owned(),
            endpoints: config.endpoints.clone(),
            calls: call_settings(config),
            metadata: Metadata::new(Arc::clone(&transport), &config.endpoints),
            provider: Arc::new(CredentialProvider::new(config.credentials.clone())),
            credentials_version: 0,
        };
        let settings = RwLock::new(Arc::new(settings));
        let rpc = RpcClient::new(transport, rate_limiter);
        let shared = Arc::new(ClientState { rpc, settings, failing: FailingActions::default() });
        Self { shared, priority: Priority::default(), stop: CancellationToken::new() }
    }

    /// The same, for calls on behalf of one object.
    pub(super) fn on(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// The region that calls go to if they name no other.
    pub(super) fn region(&self) -> String {
        self.settings().region.clone()
    }

    /// Makes a call; its parameters are without the region.
    ///
    /// Keys that the cloud refuses are replaced once, where there are others.
    pub(super) async fn call(
        &self,
        action: &'static Action,
        region: Option<&str>,
        permit: Option<&Permit>,
        params: Params,
    ) -> Result<RpcAnswer, Fault> {
        let result = self.call_with_valid_keys(action, region, permit, params).await;
        self.shared.failing.note(action, &result);
        result
    }

    async fn call_with_valid_keys(
        &self,
        action: &'static Action,
        region: Option<&str>,
        permit: Option<&Permit>,
        params: Params,
    ) -> Result<RpcAnswer, Fault> {
        let settings = self.settings();
        let issuers = settings.issuers(&self.shared.rpc);
        let provider = &settings.provider;
        let region = region.unwrap_or(&settings.region);
        let url = endpoints::url(&settings.endpoints, action.product, region).ok_or_else(|| {
            let message = format!("the region {region:?} cannot be part of a host name");
            Fault::new(action.name, FaultKind::Rejected, message)
        })?;
        let params = params.with("RegionId", region);
        let mut key = provider.key(&issuers).await.map_err(|error| error.into_fault(action.name))?;
        let mut replaced = false;
        loop {
            let call = RpcCall {
                action,
                url: &url,
                params: params.clone(),
                key: Some(&*key),
                permit,
                priority: &self.priority,
                stop: &self.stop,
                settings: &settings.calls,
            };
            let result = self.shared.rpc.call(&call).await;
            let fault = match result {
                Err(fault) if fault.kind == FaultKind::Credential => fault,
                result => {
                    if result.as_ref().map_or_else(|fault| fault.kind.proves_valid_keys(), |_| true) {
                        provider.accepted();
                    }
                    return result;
                }
            };
            if !replaced
                && errors::cured_by_new_credentials(&fault.code)
                && let Some(other) = provider.replace(&key, &issuers).await
            {
                key = other;
                replaced = true;
                continue;
            }
            provider.refused(&fault);
            return Err(fault);
        }
    }

    fn settings(&self) -> Arc<ClientSettings> {
        Arc::clone(&self.shared.settings.read())
    }
}

impl super::CloudClient {
    /// The same, for calls that wait for their turn no longer than until `stop`.
    pub fn until(&self, stop: CancellationToken) -> Self {
        Self::with(SigningClient { stop, ..self.signing.clone() })
    }

    /// From the next call on, all clones use these credentials, endpoints, rate limits and timeouts. The region changes only
    /// if the configuration states one. Keys and the metadata session outlive a change that does not concern them.
    pub fn reconfigure(&self, config: &checked::Cloud) {
        let mut settings = self.signing.shared.settings.write();
        let (provider, credentials_version) = if settings.provider.serves(&config.credentials) {
            (Arc::clone(&settings.provider), settings.credentials_version)
        } else {
            // The end of keys that are no longer used says nothing about the new ones, which may have none.
            metrics::expiry("credentials", None);
            (Arc::new(CredentialProvider::new(config.credentials.clone())), settings.credentials_version + 1)
        };
        let metadata = if settings.metadata.serves(&config.endpoints) {
            settings.metadata.clone()
        } else {
            Metadata::new(Arc::clone(&self.signing.shared.rpc.transport), &config.endpoints)
        };
        *settings = Arc::new(ClientSettings {
            region: config.region.clone().unwrap_or_else(|| settings.region.clone()),
            endpoints: config.endpoints.clone(),
            calls: call_settings(config),
            metadata,
            provider,
            credentials_version,
        });
    }

    /// Grows whenever other credentials are configured: as long as it is the same, so is the account.
    pub fn credentials_version(&self) -> u64 {
        self.signing.settings().credentials_version
    }

    /// Whether calls can be signed, for readiness.
    pub fn credential_state(&self) -> CredentialState {
        self.signing.settings().provider.state()
    }

    /// The outcome of the last calls, for readiness.
    pub fn call_state(&self) -> CallState {
        self.signing.shared.failing.state()
    }

    /// How much of the rate limits is used, of actions that are called, wait or are throttled.
    pub fn rates_in_use(&self) -> Vec<RateUse> {
        self.signing.shared.rpc.rate_limiter.in_use(&self.signing.settings().calls.quota)
    }

    /// Makes those objects due whose turn is so near that they have to prepare their calls: see [`super::Tickets::are_due`]. Tells
    /// whether one is due.
    pub fn wake(&self) -> bool {
        self.signing.shared.rpc.rate_limiter.wake(&self.signing.settings().calls.quota)
    }

    /// Gets keys to sign with ahead of the first call.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn has_keys(&self) -> Result<(), String> {
        let settings = self.signing.settings();
        let keys = settings.provider.key(&settings.issuers(&self.signing.shared.rpc)).await;
        keys.map(drop).map_err(|error| error.to_string())
    }

    /// How long the present keys are valid; `None` before the first call, and for keys without an end.
    pub fn keys_last(&self) -> Option<Duration> {
        self.signing.settings().provider.keys_last()
    }
}

fn call_settings(config: &checked::Cloud) -> CallSettings {
    let cluster: String = config.cluster_id.chars().filter(|character| character.is_ascii_graphic()).collect();
    let text = format!("alicloud-ccm/{} ClusterId/{cluster}", env!("CARGO_PKG_VERSION"));
    let user_agent = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("alicloud-ccm"));
    CallSettings { user_agent, timeout: config.timeout, quota: config.into() }
}
