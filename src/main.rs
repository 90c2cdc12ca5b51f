//! The program `alicloud-ccm`; see the library for everything it does.

use std::process::ExitCode;

// musl's own allocator takes a third more CPU time, as tests/scale measures it: it goes to the kernel more often.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    alicloud_ccm::commands::main(std::env::args_os())
}
