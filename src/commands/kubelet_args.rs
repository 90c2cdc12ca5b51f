//! `kubelet-args`: the provider id and node name that the kubelet of an instance needs, from the metadata service.

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use tokio::time::Instant;

use super::{CommandError, CommandResult, print, runtime};
use crate::alibaba::metadata::Metadata;
use crate::alibaba::transport::{HttpTransport, Transport};
use crate::cli::{KubeletArgs, KubeletOutput, NodeNameSource};
use crate::config::{self, checked::Endpoints};
use crate::plan::provider_id::ProviderId;

/// Backoff between tries: doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// `used_as` says what the value of a key of the metadata service cannot be.
fn unusable(key: &str, value: &str, used_as: &str) -> CommandError {
    CommandError(format!("the metadata service says that {key} is {value:?}, which cannot be used as {used_as}"))
}

/// What the metadata service says about the instance.
struct Identity {
    provider_id: String,
    name: Option<String>,
}

pub(super) fn run(arguments: &KubeletArgs) -> CommandResult {
    let identity = runtime()?.block_on(identity(arguments))?;
    print(&identity.to_text(arguments.output))
}

/// Asks the metadata service, and retries until the timeout of the arguments.
async fn identity(arguments: &KubeletArgs) -> Result<Identity, CommandError> {
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().map_err(CommandError::new)?);
    let metadata = arguments.metadata.trim_end_matches('/').to_owned();
    let endpoints = Endpoints { metadata, metadata_v1_fallback: true, ..Endpoints::default() };
    let metadata = Metadata::new(transport, &endpoints);
    let limit = Duration::from_secs(arguments.timeout);
    let until = Instant::now() + limit;
    let get = |key: &'static str| retry(&metadata, key, until, limit);
    let (region, instance) = (get("region-id").await?, get("instance-id").await?);
    let id = ProviderId { region, instance };
    let plain = id.to_string();
    if ProviderId::parse(&plain).as_ref() != Ok(&id) {
        return Err(unusable("instance-id", &plain, "a provider id"));
    }
    let name = match arguments.host_name {
        NodeNameSource::None => None,
        NodeNameSource::ProviderId => Some(plain.clone()),
        NodeNameSource::Instance => Some(node_name(get("hostname").await?)?),
    };
    Ok(Identity { provider_id: if arguments.scheme { format!("alicloud://{plain}") } else { plain }, name })
}

async fn retry(
    metadata: &Metadata,
    key: &'static str,
    until: Instant,
    waited: Duration,
) -> Result<String, CommandError> {
    let pauses =
        ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE).without_max_times();
    // Early at boot there is no network yet, and the service itself may not be ready.
    let read = (|| metadata.get(key)).retry(pauses);
    read.adjust(|_, pause| pause.filter(|pause| Instant::now() + *pause < until)).await.map_err(|cause| {
        let waited = waited.as_secs();
        CommandError(format!(
            "{cause}; given up after {waited} s: run this on an ECS instance, or give it more time with --timeout"
        ))
    })
}

/// Kubelets lower the case themselves; other letters would be refused by the API server.
fn node_name(value: String) -> Result<String, CommandError> {
    let name = value.to_ascii_lowercase();
    if config::is_object_name(&name) {
        Ok(name)
    } else {
        Err(unusable("hostname", &value, "the name of a node; choose another --host-name"))
    }
}

impl Identity {
    /// The text, ending with a line break.
    fn to_text(&self, output: KubeletOutput) -> String {
        let Self { provider_id, name } = self;
        match output {
            KubeletOutput::Args => {
                let name = name.as_ref().map(|name| format!(" --hostname-override={name}")).unwrap_or_default();
                format!("--provider-id={provider_id}{name}\n")
            }
            KubeletOutput::Env => {
                let name = name.as_ref().map(|name| format!("KUBELET_NODE_NAME={name}\n")).unwrap_or_default();
                format!("KUBELET_PROVIDERID={provider_id}\n{name}")
            }
            // This kind has no field for the name.
            KubeletOutput::Config => format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nproviderID: {provider_id:?}\n"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_in_each_form() {
        let identity = Identity { provider_id: "alicloud://cn-hangzhou.i-1".into(), name: Some("master-1".into()) };
        assert_eq!(
            identity.to_text(KubeletOutput::Args),
            "--provider-id=alicloud://cn-hangzhou.i-1 --hostname-override=master-1\n"
        );
        assert_eq!(
            identity.to_text(KubeletOutput::Env),
            "KUBELET_PROVIDERID=alicloud://cn-hangzhou.i-1\nKUBELET_NODE_NAME=master-1\n"
        );
        assert!(identity.to_text(KubeletOutput::Config).ends_with("providerID: \"alicloud://cn-hangzhou.i-1\"\n"));
        let unnamed = Identity { name: None, ..identity };
        assert_eq!(unnamed.to_text(KubeletOutput::Args), "--provider-id=alicloud://cn-hangzhou.i-1\n");
    }

    #[test]
    fn a_name_that_the_api_server_would_refuse_is_refused_here() {
        assert_eq!(node_name("iZbp1ABCz".into()).unwrap(), "izbp1abcz");
        assert_eq!(node_name("a.b-c.d".into()).unwrap(), "a.b-c.d");
        assert_eq!(node_name("a".repeat(64)).unwrap(), "a".repeat(64));
        for name in ["my_host", "-a", "a-", "a..b", "", &"a".repeat(254)] {
            let error = node_name(name.into()).unwrap_err().0;
            assert!(error.contains("--host-name"), "{error}");
        }
    }
}
