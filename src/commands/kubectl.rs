//! `kubectl alicloud`: kubectl runs the program under the name of a plugin, away from the hosts of the cluster, whose
//! configuration it reads from there.

use super::connect::connect_cluster;
use super::{CommandError, runtime};
use crate::cluster::ObjectPath;
use crate::config::Config;

/// The ConfigMap of the manifests and the chart, as a path in messages.
pub(super) const PLACE: &str = "kube-system/alicloud-ccm/alicloud-ccm.toml";

/// The text of the configuration in use; `config` says how to reach the cluster.
pub(super) fn configuration(config: &Config) -> Result<String, CommandError> {
    let read = async {
        let path = ObjectPath { api: "/api/v1", namespace: "kube-system", plural: "configmaps" };
        connect_cluster(config).await?.look_up(path, "alicloud-ccm").await.map_err(CommandError::new)
    };
    let found = runtime()?.block_on(read)?.unwrap_or_default();
    let missing =
        || CommandError(format!("the cluster has no {PLACE}: name a copy of the configuration with --config"));
    found["data"]["alicloud-ccm.toml"].as_str().map(str::to_owned).ok_or_else(missing)
}
