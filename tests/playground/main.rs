//! A cluster and an Alibaba Cloud on loopback, with the product between them, and a short scenario that shows what it does.
//!
//! ```console
//! cargo run --example playground              # the scenario, then the end
//! cargo run --example playground -- --all     # with volumes and names in a private zone as well
//! cargo run --example playground -- --serve   # the scenario, then kubectl until Ctrl-C
//! ```
//!
//! The product runs as a process of its own, this very executable under another role, and talks to both worlds over real
//! HTTP; the cloud verifies its signatures.

mod more;
mod product;
mod scenario;

use std::ffi::OsString;
use std::process::ExitCode;

use sim::cluster::Version;
use sim::testbed::Testbed;

fn main() -> ExitCode {
    if std::env::var_os(product::ROLE).is_some() {
        return alicloud_ccm::commands::main(std::env::args_os());
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.iter().any(|flag| flag != "--all" && flag != "--serve") {
        scenario::say("usage: playground [--all] [--serve]");
        return ExitCode::from(64);
    }
    let asks_for = |flag: &str| arguments.iter().any(|given| given == flag);
    let extent = scenario::Extent { all: asks_for("--all"), serve: asks_for("--serve") };
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anything)
        .and_then(|runtime| runtime.block_on(play(extent)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            scenario::say(&format!("\nThe scenario failed: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn anything(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn play(extent: scenario::Extent) -> Result<(), String> {
    let testbed = Testbed::open(Version::NEWEST).await.map_err(anything)?;
    let folder = tempfile::tempdir().map_err(anything)?;
    let result = scenario::run(&testbed, folder.path(), extent).await;
    if result.is_err() {
        let log = std::fs::read_to_string(folder.path().join(scenario::LOG)).unwrap_or_default();
        scenario::say(&format!("\nThe product's log:\n{log}"));
    }
    result
}
