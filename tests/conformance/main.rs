//! Compares a real account with the simulated one: makes, changes and deletes one of each thing that the controllers use.
//!
//! ```console
//! cargo run --release --example conformance -- --config FILE --instance i-... --i-know-this-costs
//! cargo run --release --example conformance -- --config FILE --cleanup
//! ```
//!
//! `docs/evidence/conformance.md` says what it makes, what it needs, and how to read the table.

// The integration tests include it by its path, too: then its modules are beside it in both.
#[path = "check.rs"]
mod check;

use std::process::ExitCode;

fn main() -> ExitCode {
    check::main(std::env::args_os()).into()
}
