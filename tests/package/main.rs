//! What the packages hold beside the program: manual pages and completions, made from the arguments, and the unit with the path
//! that packages have.
//!
//! ```console
//! cargo run --example package -- FOLDER
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use alicloud_ccm::cli::Cli;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};

const NAME: &str = "alicloud-ccm";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: package FOLDER")?);
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Cli::command(), &pages)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut Cli::command(), NAME, &folder)?;
    }
    let unit = include_str!("../../systemd/alicloud-ccm.service");
    fs::write(folder.join("alicloud-ccm.service"), unit.replace("/usr/local/bin/", "/usr/bin/"))?;
    Ok(())
}
