//! The program `alicloud-ccm`; see the library for everything it does.

use std::process::ExitCode;

// With musl's own a third more CPU time is needed, by `examples/scale`: it goes to the kernel more often.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    alicloud_ccm::cli::main(std::env::args_os())
}
