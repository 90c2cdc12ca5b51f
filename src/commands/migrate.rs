//! `migrate`: from the settings of the official controller to the configuration, the RBAC and the RAM policy of this program.
//!
//! `table` says what each setting becomes, `values` how; `official` reads flags and cloud config, `from_cluster` finds them in
//! the cluster; `convert` makes the file.

mod convert;
pub(super) mod from_cluster;
mod official;
mod table;
mod values;

use std::fmt::Write as _;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use self::convert::Migration;
use self::official::Official;
use super::{CommandError, CommandResult, print, ram_policy, rbac, runtime};
use crate::cli::{MigrateArgs, RbacArgs, server_version};
use crate::cluster::Cluster;
use crate::config::{Config, ConfigReport, ProblemPlace};
use crate::telemetry::tasks::Tasks;

/// The name of the configuration file.
const TOML: &str = "alicloud-ccm.toml";

/// `config` says how to reach the cluster.
pub(super) fn run(arguments: &MigrateArgs, config: &Config) -> CommandResult {
    let mut official = Official::default();
    let mut rbac_arguments = RbacArgs::default();
    official.read_flags(&arguments.flags, |name| ProblemPlace::Argument { argument: name.to_owned() });
    if arguments.from_cluster {
        let read = read_cluster(config, &mut official, arguments);
        rbac_arguments.kubernetes = server_version(&runtime()?.block_on(read)?).ok();
    }
    let named = || official.stated.iter().rev().find(|stated| stated.setting.name == "--cloud-config");
    let in_flags = || named().filter(|_| !arguments.from_cluster).map(|stated| PathBuf::from(&stated.value));
    if let Some(path) = arguments.cloud_config.clone().or_else(in_flags) {
        match std::fs::read_to_string(&path) {
            Ok(text) => official.read_cloud_config(&path, &text),
            Err(error) => {
                let help = "name a copy of the file: alicloud-ccm migrate --cloud-config FILE -- FLAGS";
                let place = ProblemPlace::Whole { file: path };
                official.is_problem(place, format!("the cloud config cannot be read: {error}"), help);
            }
        }
    }
    let migration =
        convert::convert(official, arguments.out.is_some()).map_err(|problems| ConfigReport::new(problems, &[]))?;
    // The pods that are shipped ask for tokens, whatever the file says.
    let mut in_pods = migration.config.clone();
    in_pods.server.authorization = true;
    let files = [
        (TOML, migration.toml.clone()),
        ("rbac.yaml", rbac::manifests(&in_pods, rbac_arguments)),
        ("ram-policy.json", format!("{:#}\n", ram_policy::policy(&migration.config))),
    ];
    match &arguments.out {
        None => print(&shown(&files, &migration.notes)),
        Some(folder) => {
            save(folder, &files, &migration).map_err(CommandError::new)?;
            print(&notes(&migration.notes))
        }
    }
}

/// Gives the version of the API server.
async fn read_cluster(
    config: &Config,
    official: &mut Official,
    arguments: &MigrateArgs,
) -> Result<String, CommandError> {
    let cluster = Cluster::connect(&config.kubernetes, &Tasks::default()).await.map_err(CommandError::new)?;
    let version = super::connect::ready(&cluster).await?;
    let MigrateArgs { namespace, cloud_config, .. } = arguments;
    from_cluster::read(&cluster, official, namespace.as_deref(), cloud_config.is_none()).await;
    Ok(version)
}

/// All files after each other, as `head` and `tail` print several.
fn shown(files: &[(&str, String)], remarks: &[String]) -> String {
    let mut text = String::new();
    for (name, content) in files {
        let _ = write!(text, "==> {name} <==\n{content}\n");
    }
    text + "==> notes <==\n" + &notes(remarks)
}

fn notes(remarks: &[String]) -> String {
    let mut text: String = remarks.iter().map(|remark| format!("- {remark}\n")).collect();
    text.push_str(
        "Next: alicloud-ccm check, then alicloud-ccm plan while the official controller runs (docs/guides/migration.md)\n",
    );
    text
}

/// Writes new files only: what is there may be in use.
fn save(folder: &Path, files: &[(&str, String)], migration: &Migration) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(folder)?;
    let keys = migration.key_files.iter().map(|(name, secret)| (*name, secret.expose(), 0o600));
    let all: Vec<_> = files.iter().map(|(name, content)| (*name, content.as_str(), 0o644)).chain(keys).collect();
    if let Some(path) = all.iter().map(|(name, ..)| folder.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        let told = format!("nothing is written, because {} is there already", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, told));
    }
    for (name, content, mode) in all {
        let path = folder.join(name);
        let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let written = opened.and_then(|mut file| file.write_all(content.as_bytes()));
        let told =
            |error: io::Error| io::Error::new(error.kind(), format!("{} is not written: {error}", path.display()));
        written.map_err(told)?;
    }
    Ok(())
}
