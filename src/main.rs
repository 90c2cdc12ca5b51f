//! The program `alicloud-ccm`; see the library for everything it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    alicloud_ccm::cli::main(std::env::args_os())
}
