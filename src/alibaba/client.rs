//! What products make their calls with: the current settings, valid keys, and one cure for keys that are refused.

use std::sync::Arc;

use http::HeaderValue;
use parking_lot::RwLock;

use super::actions::{Action, Read, Write};
use super::credentials::{CredentialProvider, CredentialState, Source};
use super::endpoints;
use super::errors;
use super::metadata::Metadata;
use super::rate_limit::{Priority, QuotaShare};
use super::rpc::{Answer, CallSettings, RpcCall, RpcClient, fault};
use super::signing::Params;
use super::transport::Transport;
use super::{Fault, FaultKind};
use crate::config::checked;
use crate::fence::Permit;

/// The way to the cloud that all products share. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SigningClient {
    client: Arc<Client>,
    priority: Priority,
}

#[derive(Debug)]
struct Client {
    rpc: RpcClient,
    settings: RwLock<Arc<Settings>>,
}

/// Everything that the configuration decides, replaced as a whole.
#[derive(Debug)]
struct Settings {
    region: String,
    endpoints: checked::Endpoints,
    call_settings: CallSettings,
    metadata: Metadata,
    provider: Arc<CredentialProvider>,
    /// Grows whenever the credentials are others.
    credentials_version: u64,
}

impl Settings {
    fn source<'a>(&'a self, rpc: &'a RpcClient) -> Source<'a> {
        Source {
            rpc,
            metadata: &self.metadata,
            endpoints: &self.endpoints,
            region: &self.region,
            call_settings: &self.call_settings,
        }
    }
}

impl SigningClient {
    pub(super) fn new(transport: Arc<dyn Transport>, config: &checked::Cloud, region: &str) -> Self {
        let settings = Settings {
            region: region.to_owned(),
            endpoints: config.endpoints.clone(),
            call_settings: call_settings(config),
            metadata: Metadata::new(Arc::clone(&transport), &config.endpoints),
            provider: Arc::new(CredentialProvider::new(config.credentials.clone())),
            credentials_version: 0,
        };
        let client = Client { rpc: RpcClient::new(transport), settings: RwLock::new(Arc::new(settings)) };
        Self { client: Arc::new(client), priority: Priority::default() }
    }

    /// The same, for calls on behalf of one object.
    pub(super) fn on(&self, priority: Priority) -> Self {
        Self { client: self.client.clone(), priority }
    }

    /// Keys and the metadata session outlive a change that does not concern them.
    pub(super) fn reconfigure(&self, config: &checked::Cloud) {
        let mut settings = self.client.settings.write();
        let (provider, credentials_version) = if settings.provider.serves(&config.credentials) {
            (Arc::clone(&settings.provider), settings.credentials_version)
        } else {
            (Arc::new(CredentialProvider::new(config.credentials.clone())), settings.credentials_version + 1)
        };
        let metadata = if settings.metadata.serves(&config.endpoints) {
            settings.metadata.clone()
        } else {
            Metadata::new(Arc::clone(&self.client.rpc.transport), &config.endpoints)
        };
        *settings = Arc::new(Settings {
            region: config.region.clone().unwrap_or_else(|| settings.region.clone()),
            endpoints: config.endpoints.clone(),
            call_settings: call_settings(config),
            metadata,
            provider,
            credentials_version,
        });
    }

    pub(super) fn credentials_version(&self) -> u64 {
        self.settings().credentials_version
    }

    pub(super) fn credential_state(&self) -> CredentialState {
        self.settings().provider.state()
    }

    /// The region that calls go to if they name no other.
    pub(super) fn region(&self) -> String {
        self.settings().region.clone()
    }

    /// Makes a call that changes nothing, in the own region.
    pub(super) async fn read(&self, action: Read, params: Params) -> Result<Answer, Fault> {
        self.run(action.0, None, params, None).await
    }

    /// Makes a call that changes nothing.
    pub(super) async fn read_in(&self, region: &str, action: Read, params: Params) -> Result<Answer, Fault> {
        self.run(action.0, Some(region), params, None).await
    }

    /// Makes a call that changes something, in the own region.
    pub(super) async fn write(&self, permit: &Permit, action: Write, params: Params) -> Result<Answer, Fault> {
        self.run(action.0, None, params, Some(permit)).await
    }

    /// Makes a call that changes something.
    pub(super) async fn write_in(
        &self,
        permit: &Permit,
        region: &str,
        action: Write,
        params: Params,
    ) -> Result<Answer, Fault> {
        self.run(action.0, Some(region), params, Some(permit)).await
    }

    async fn run(
        &self,
        action: &'static Action,
        region: Option<&str>,
        params: Params,
        permit: Option<&Permit>,
    ) -> Result<Answer, Fault> {
        let settings = self.settings();
        let source = settings.source(&self.client.rpc);
        let provider = &settings.provider;
        let region = region.unwrap_or(&settings.region);
        let url = endpoints::url(&settings.endpoints, action.product, region).ok_or_else(|| {
            fault(action, FaultKind::Rejected, format!("the region {region:?} cannot be part of a host name"))
        })?;
        let params = params.with("RegionId", region);
        let mut key = provider.key(&source).await.map_err(|error| error.into_fault(action))?;
        let mut replaced = false;
        loop {
            let exchange = RpcCall {
                action,
                url: &url,
                params: params.clone(),
                key: Some(&*key),
                permit,
                priority: self.priority,
                call_settings: &settings.call_settings,
            };
            let fault = match self.client.rpc.exchange(&exchange).await {
                Ok(answer) => {
                    provider.accepted();
                    return Ok(answer);
                }
                Err(fault) => fault,
            };
            if fault.kind != FaultKind::Credential {
                if shows_that_keys_are_good(fault.kind) {
                    provider.accepted();
                }
                return Err(fault);
            }
            if !replaced
                && errors::cured_by_new_credentials(&fault.code)
                && let Some(other) = provider.replace(&key, &source).await
            {
                key = other;
                replaced = true;
                continue;
            }
            provider.refused(&fault);
            return Err(fault);
        }
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.client.settings.read())
    }
}

/// Only who was let in is told about objects, permissions and quotas.
const fn shows_that_keys_are_good(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Busy
        | FaultKind::Gone
        | FaultKind::Exists
        | FaultKind::InUse
        | FaultKind::Quota
        | FaultKind::Capacity
        | FaultKind::Denied => true,
        FaultKind::Throttled
        | FaultKind::Transient
        | FaultKind::Ambiguous
        | FaultKind::Credential
        | FaultKind::Rejected
        | FaultKind::Bug
        | FaultKind::NotLeading => false,
    }
}

fn call_settings(config: &checked::Cloud) -> CallSettings {
    let cluster: String = config.cluster_id.chars().filter(|character| character.is_ascii_graphic()).collect();
    let text = format!("alicloud-ccm/{} ClusterId/{cluster}", env!("CARGO_PKG_VERSION"));
    let user_agent = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("alicloud-ccm"));
    let allowance = QuotaShare { share: config.budget_share, quotas: Arc::new(config.quotas.clone()) };
    CallSettings { user_agent, timeout: config.timeout, allowance }
}
