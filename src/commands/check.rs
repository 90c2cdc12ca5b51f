//! `check`: the configuration, the kubeconfig that it states, and with `--cluster` whether it fits the pod network.

use super::{CommandError, CommandResult, connect, print, runtime};
use crate::cluster::check_kubeconfig;
use crate::config::{Config, Credentials, Loaded};
use crate::controllers::route;

pub(super) fn run(loaded: &Loaded, asks_cluster: bool) -> CommandResult {
    if asks_cluster {
        runtime()?.block_on(fits_cluster(&loaded.config))?;
    }
    let Config { kubernetes, cloud, .. } = &loaded.config;
    match &kubernetes.kubeconfig {
        // Away from its host.
        Some(file) if !file.exists() => {
            print(&format!("not looked at: kubernetes.kubeconfig names {}, which is not there\n", file.display()))?;
        }
        _ => runtime()?.block_on(check_kubeconfig(kubernetes)).map_err(CommandError::new)?,
    }
    // Away from its pods, their files are not there.
    if let Credentials::Unusable(why) = &cloud.credentials {
        print(&format!("not looked at: {why}\n"))?;
    }
    print(&format!("{}: no problems\n", loaded.path.display()))
}

async fn fits_cluster(config: &Config) -> Result<(), CommandError> {
    let cluster = connect::connect_cluster(config).await?;
    if !config.controllers.contains(route::NAME) {
        return Ok(());
    }
    let found = route::look(&cluster).await;
    // A right that is missing says nothing about the network.
    let unread = found.unread.iter().map(|what| format!("not looked at: {what}\n")).collect::<String>();
    print(&unread)?;
    if found.objections.is_empty() {
        return Ok(());
    }
    let listed = found.objections.iter().map(|what| format!("error: {what}\n")).collect::<String>();
    let help = "help: leave \"route\" out of controllers, or change the pod network; see docs/guides/routes.md";
    Err(CommandError(format!("controllers lists \"route\", and the pod network seems not to need it:\n{listed}{help}")))
}
