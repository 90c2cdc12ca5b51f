//! Counts the instructions of each scenario with Valgrind, and compares them with `instructions.txt`: 5 % more or less fails.
//! Counts do not depend on how busy the machine is; those of an unoptimised build show what grew as well. The driver of sets
//! is missing: it reads the boot clock, which Valgrind does not offer.
//!
//! ```console
//! cargo bench --workspace --bench instructions --profile dev
//! UPDATE_EXPECT=1 cargo bench --workspace --bench instructions --profile dev
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::process::{Command, ExitCode};

use benches::{SCENARIOS, Work};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// How far a count may be from the baseline, as a share of it.
const TOLERANCE: f64 = 0.05;
/// The argument before the name of the scenario that a process runs for Valgrind.
const RUN: &str = "--run";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip_while(|argument| argument != RUN).skip(1);
    match arguments.next() {
        Some(name) => {
            let scenario = SCENARIOS.into_iter().find(|scenario| scenario.name == name).unwrap();
            let mut work = (scenario.prepare)();
            // What is only done once is not counted.
            work();
            counted(&mut work);
            ExitCode::SUCCESS
        }
        None => compare(),
    }
}

/// The function that Valgrind counts.
#[inline(never)]
fn counted(work: &mut Work) {
    black_box(work)();
}

fn compare() -> ExitCode {
    let counts: Vec<(&str, u64)> =
        SCENARIOS.iter().map(|scenario| (scenario.name, instructions(scenario.name))).collect();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let lines = counts.iter().fold(String::new(), |mut lines, (name, count)| {
            writeln!(lines, "{count:>11}  {name}").unwrap();
            lines
        });
        std::fs::write(BASELINE, lines).unwrap();
    }
    let baseline = std::fs::read_to_string(BASELINE).unwrap();
    let baseline: BTreeMap<&str, u64> = baseline
        .lines()
        .filter_map(|line| line.trim().split_once("  "))
        .map(|(count, name)| (name, count.parse().unwrap()))
        .collect();
    let mut exit = ExitCode::SUCCESS;
    for (name, count) in counts {
        let ratio = baseline.get(name).map_or(f64::NAN, |before| count as f64 / *before as f64);
        let holds = (ratio - 1.0).abs() <= TOLERANCE;
        println!(
            "{count:>11}  {ratio:.3}  {name}{}",
            if holds { "" } else { "  <- not within 5 % of instructions.txt" }
        );
        if !holds {
            exit = ExitCode::FAILURE;
        }
    }
    exit
}

fn instructions(name: &str) -> u64 {
    let output = Command::new("valgrind")
        // Every machine copies memory with the same routines.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=instructions::counted*"])
        .arg(std::env::current_exe().unwrap())
        .args([RUN, name])
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "Valgrind failed for {name}:\n{said}");
    let counted = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    counted.unwrap_or_else(|| panic!("Valgrind counted nothing for {name}:\n{said}"))
}
