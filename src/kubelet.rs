//! What a kubelet should be told about the instance that it runs on, as the metadata service knows it.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::alibaba::metadata::{Metadata, MetadataError};
use crate::alibaba::transport::{HttpTransport, SetupError, Transport};
use crate::config::checked::Endpoints;
use crate::plan::provider_id::ProviderId;

/// Time between tries, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Where the node's name comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostName {
    /// The host name of the instance.
    Instance,
    /// The same text as the provider id, as the vendor's guides have it.
    ProviderId,
    /// Nothing is said: the kubelet takes the name of the machine.
    Kubelet,
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arguments of the kubelet, on one line.
    Args,
    /// Variables, one a line, as OpenShift's kubelet reads them from `/etc/kubernetes/kubelet-env`.
    Env,
    /// A kubelet configuration; it has no field for the name.
    Config,
}

/// Why a kubelet cannot be told.
#[derive(Debug, Error)]
pub enum KubeletError {
    /// No connection can be set up.
    #[error("connections cannot be set up: {0}")]
    Setup(#[from] SetupError),
    /// The metadata service has not said it in time.
    #[error("{cause}; given up after {} s: run this on an ECS instance, or give it more time with --timeout", waited.as_secs())]
    NotTold {
        /// The last answer.
        cause: MetadataError,
        /// The time allowed.
        waited: Duration,
    },
    /// What was said can be no provider id or node name.
    #[error("the metadata service says that {key} is {value:?}, which cannot be used as {used_as}")]
    Unusable {
        /// Key below `/latest/meta-data/`.
        key: &'static str,
        /// Its value.
        value: String,
        /// What for.
        used_as: &'static str,
    },
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    provider_id: String,
    name: Option<String>,
}

/// Asks the metadata service at `base`, again and again until `limit`.
///
/// # Errors
/// See [`KubeletError`].
pub async fn ask(base: &str, limit: Duration, scheme: bool, host_name: HostName) -> Result<Told, KubeletError> {
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new()?);
    let endpoints = Endpoints {
        vpc_network: false,
        plain_http: false,
        overrides: [].into(),
        metadata: base.trim_end_matches('/').to_owned(),
        metadata_v1_fallback: true,
    };
    let metadata = Metadata::new(transport, &endpoints);
    let until = Instant::now() + limit;
    let get = |key: &'static str| patiently(&metadata, key, until, limit);
    let (region, instance) = (get("region-id").await?, get("instance-id").await?);
    let plain = ProviderId { region, instance };
    if ProviderId::parse(&plain.to_string()).as_ref() != Ok(&plain) {
        return Err(KubeletError::Unusable { key: "instance-id", value: plain.to_string(), used_as: "a provider id" });
    }
    let provider_id = if scheme { format!("alicloud://{plain}") } else { plain.to_string() };
    let name = match host_name {
        HostName::Kubelet => None,
        HostName::ProviderId => Some(plain.to_string()),
        HostName::Instance => Some(node_name(get("hostname").await?)?),
    };
    Ok(Told { provider_id, name })
}

async fn patiently(
    metadata: &Metadata,
    key: &'static str,
    until: Instant,
    waited: Duration,
) -> Result<String, KubeletError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match metadata.get(key).await {
            Ok(value) => return Ok(value),
            // Early at boot there is no network yet, and the service itself may not be ready.
            Err(cause) if Instant::now() + pause >= until => return Err(KubeletError::NotTold { cause, waited }),
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Kubelets lower the case themselves; other letters would be refused by the API server.
fn node_name(value: String) -> Result<String, KubeletError> {
    let name = value.to_ascii_lowercase();
    let part = |part: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        part.chars().all(inside) && ends(part.chars().next()) && ends(part.chars().next_back())
    };
    if name.len() <= 253 && name.split('.').all(part) {
        Ok(name)
    } else {
        Err(KubeletError::Unusable {
            key: "hostname",
            value,
            used_as: "the name of a node; choose another --host-name",
        })
    }
}

impl Told {
    /// The text, ending with a line break.
    #[must_use]
    pub fn to_text(&self, form: Form) -> String {
        let Self { provider_id, name } = self;
        match form {
            Form::Args => {
                let name = name.as_ref().map(|name| format!(" --hostname-override={name}")).unwrap_or_default();
                format!("--provider-id={provider_id}{name}\n")
            }
            Form::Env => {
                let name = name.as_ref().map(|name| format!("KUBELET_NODE_NAME={name}\n")).unwrap_or_default();
                format!("KUBELET_PROVIDERID={provider_id}\n{name}")
            }
            Form::Config => format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nproviderID: {provider_id:?}\n"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_in_each_form() {
        let told = Told { provider_id: "alicloud://cn-hangzhou.i-1".into(), name: Some("master-1".into()) };
        assert_eq!(told.to_text(Form::Args), "--provider-id=alicloud://cn-hangzhou.i-1 --hostname-override=master-1\n");
        assert_eq!(
            told.to_text(Form::Env),
            "KUBELET_PROVIDERID=alicloud://cn-hangzhou.i-1\nKUBELET_NODE_NAME=master-1\n"
        );
        assert!(told.to_text(Form::Config).ends_with("providerID: \"alicloud://cn-hangzhou.i-1\"\n"));
        let unnamed = Told { name: None, ..told };
        assert_eq!(unnamed.to_text(Form::Args), "--provider-id=alicloud://cn-hangzhou.i-1\n");
    }

    #[test]
    fn a_name_that_the_api_server_would_refuse_is_refused_here() {
        assert_eq!(node_name("iZbp1ABCz".into()).unwrap(), "izbp1abcz");
        assert_eq!(node_name("a.b-c.d".into()).unwrap(), "a.b-c.d");
        for name in ["my_host", "-a", "a-", "a..b", "", &"a".repeat(254)] {
            let error = node_name(name.into()).unwrap_err().to_string();
            assert!(error.contains("--host-name"), "{error}");
        }
    }
}
