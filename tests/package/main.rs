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

/// kubectl asks a program for candidates, the last argument being what is typed; 4 means that files are none.
const FOR_KUBECTL: &str = r#"COMP_WORDS=(alicloud-ccm "$@")
COMP_CWORD=$#
_alicloud__ccm alicloud-ccm "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}" :4
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: package FOLDER")?);
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Cli::command(), &pages)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut Cli::command(), NAME, &folder)?;
    }
    // clap_complete takes the hyphen in the name for a subcommand where it lists options, but not where it looks them up.
    let script = folder.join(format!("{NAME}.bash"));
    let completion = fs::read_to_string(&script)?.replace("alicloud__subcmd__ccm", "alicloud__ccm");
    fs::write(script, &completion)?;
    fs::write(folder.join("kubectl_complete-alicloud"), format!("#!/bin/bash\n{completion}\n{FOR_KUBECTL}"))?;
    let unit = include_str!("../../systemd/alicloud-ccm.service");
    fs::write(folder.join("alicloud-ccm.service"), unit.replace("/usr/local/bin/", "/usr/bin/"))?;
    Ok(())
}
