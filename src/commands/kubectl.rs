//! `kubectl alicloud`: kubectl runs the program under the name of a plugin, away from the hosts of the cluster, whose
//! configuration it reads from there.

use std::io::{self, Write as _};

use serde_json::Value;

use super::connect::connect_cluster;
use super::{CommandError, runtime};
use crate::cluster::ObjectPath;
use crate::config::{Config, VARIABLE_PREFIX};

/// The ConfigMap of the manifests and the chart, as a path in messages.
pub(super) const PLACE: &str = "kube-system/alicloud-ccm/alicloud-ccm.toml";
const NAME: &str = "alicloud-ccm";

/// The text of the configuration in use, and the keys that the variables of its pods state; `config` says how to reach the cluster.
/// Where the variables cannot be read, a note on stderr says so.
pub(super) fn configuration(config: &Config) -> Result<(String, Vec<(String, String)>), CommandError> {
    let read = async {
        let cluster = connect_cluster(config).await?;
        let look_up = async |api: &'static str, plural: &'static str| {
            let path = ObjectPath { api, namespace: "kube-system", plural };
            cluster.look_up(path, NAME).await.map_err(CommandError::new)
        };
        let found = look_up("/api/v1", "configmaps").await?.unwrap_or_default();
        let mut variables = Vec::new();
        for plural in ["daemonsets", "deployments"] {
            match look_up("/apis/apps/v1", plural).await {
                Ok(workload) => variables.extend(stated(&workload.unwrap_or_default())),
                // A user may have the right to read the ConfigMap alone.
                Err(CommandError(why)) => {
                    let _ = writeln!(
                        io::stderr().lock(),
                        "note: keys that variables of the pods state are not known: {why}"
                    );
                }
            }
        }
        Ok::<_, CommandError>((found, variables))
    };
    let (found, variables) = runtime()?.block_on(read)?;
    let missing =
        || CommandError(format!("the cluster has no {PLACE}: name a copy of the configuration with --config"));
    let text = found["data"]["alicloud-ccm.toml"].as_str().map(str::to_owned).ok_or_else(missing)?;
    Ok((text, variables))
}

/// The variables of its pods that name keys, which win over the file.
fn stated(workload: &Value) -> impl Iterator<Item = (String, String)> {
    let containers = workload["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let variables = containers.flat_map(|container| container["env"].as_array().into_iter().flatten());
    variables
        .filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["value"].as_str()?.to_owned())))
        .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
}
