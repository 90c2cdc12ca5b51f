//! What products make their calls with: the current settings, valid keys, and one cure for keys that are refused.

use std::sync::Arc;

use http::HeaderValue;
use parking_lot::RwLock;

use super::actions::{Action, Read, Write};
use super::credentials::{CredentialState, Provider, Source};
use super::endpoints;
use super::errors;
use super::metadata::Metadata;
use super::rate_limit::{Allowance, Priority};
use super::rpc::{Answer, Exchange, Manner, Wire, fault};
use super::signing::Params;
use super::transport::Transport;
use super::{Fault, FaultKind};
use crate::config::checked;
use crate::fence::Permit;

/// The way to the cloud that all products share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Call {
    client: Arc<Client>,
    errand: Priority,
}

#[derive(Debug)]
struct Client {
    wire: Wire,
    settings: RwLock<Arc<Settings>>,
}

/// Everything that the configuration decides, replaced as a whole.
#[derive(Debug)]
struct Settings {
    region: String,
    endpoints: checked::Endpoints,
    manner: Manner,
    metadata: Metadata,
    provider: Arc<Provider>,
    /// Grows whenever the credentials are others.
    credentials_version: u64,
}

impl Settings {
    fn source<'a>(&'a self, wire: &'a Wire) -> Source<'a> {
        Source {
            wire,
            metadata: &self.metadata,
            endpoints: &self.endpoints,
            region: &self.region,
            manner: &self.manner,
        }
    }
}

impl Call {
    pub(super) fn new(transport: Arc<dyn Transport>, config: &checked::Cloud, region: &str) -> Self {
        let settings = Settings {
            region: region.to_owned(),
            endpoints: config.endpoints.clone(),
            manner: manner(config),
            metadata: Metadata::new(Arc::clone(&transport), &config.endpoints),
            provider: Arc::new(Provider::new(config.credentials.clone())),
            credentials_version: 0,
        };
        let client = Client { wire: Wire::new(transport), settings: RwLock::new(Arc::new(settings)) };
        Self { client: Arc::new(client), errand: Priority::default() }
    }

    /// The same, for calls on behalf of one object.
    pub(super) fn on(&self, errand: Priority) -> Self {
        Self { client: self.client.clone(), errand }
    }

    /// Keys and the metadata session outlive a change that does not concern them.
    pub(super) fn reconfigure(&self, config: &checked::Cloud) {
        let mut settings = self.client.settings.write();
        let (provider, credentials_version) = if settings.provider.serves(&config.credentials) {
            (Arc::clone(&settings.provider), settings.credentials_version)
        } else {
            (Arc::new(Provider::new(config.credentials.clone())), settings.credentials_version + 1)
        };
        let metadata = if settings.metadata.serves(&config.endpoints) {
            settings.metadata.clone()
        } else {
            Metadata::new(Arc::clone(&self.client.wire.transport), &config.endpoints)
        };
        *settings = Arc::new(Settings {
            region: config.region.clone().unwrap_or_else(|| settings.region.clone()),
            endpoints: config.endpoints.clone(),
            manner: manner(config),
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
        let source = settings.source(&self.client.wire);
        let provider = &settings.provider;
        let region = region.unwrap_or(&settings.region);
        let url = endpoints::url(&settings.endpoints, action.product, region).ok_or_else(|| {
            fault(action, FaultKind::Rejected, format!("the region {region:?} cannot be part of a host name"))
        })?;
        let params = params.with("RegionId", region);
        let mut key = provider.key(&source).await.map_err(|error| error.into_fault(action))?;
        let mut replaced = false;
        loop {
            let exchange = Exchange {
                action,
                url: &url,
                params: params.clone(),
                key: Some(&*key),
                permit,
                errand: self.errand,
                manner: &settings.manner,
            };
            let fault = match self.client.wire.exchange(&exchange).await {
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

fn manner(config: &checked::Cloud) -> Manner {
    let cluster: String = config.cluster_id.chars().filter(|character| character.is_ascii_graphic()).collect();
    let text = format!("alicloud-ccm/{} ClusterId/{cluster}", env!("CARGO_PKG_VERSION"));
    let user_agent = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("alicloud-ccm"));
    let allowance = Allowance { share: config.budget_share, quotas: Arc::new(config.quotas.clone()) };
    Manner { user_agent, timeout: config.timeout, allowance }
}
