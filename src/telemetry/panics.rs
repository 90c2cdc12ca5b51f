//! What the log says of a panic: where it was, since it is a defect of this program.
//!
//! A message that was formatted at run time can hold any value, a secret too. Only literal messages are logged.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::Write;
use std::panic;

use tracing::error;

/// Logs panics from now on; on standard error while there is no log, and for panics of the log itself: a second panic while the
/// first is reported would end the process.
pub fn report() {
    panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let text = text(thread.name(), info.location(), info.payload());
        // Names of functions, and no values; only if the environment asks for it.
        let trace = Backtrace::capture();
        let trace = if trace.status() == BacktraceStatus::Captured { format!("\n{trace}") } else { String::new() };
        if tracing::dispatcher::has_been_set() && !super::logs::is_writing() {
            error!(code = "ACCM0701", "{text}{trace}");
        } else {
            // Without standard error, there is no place left to report to.
            let _ = writeln!(std::io::stderr(), "{text}{trace}");
        }
    }));
}

fn text(thread: Option<&str>, location: Option<&impl fmt::Display>, payload: &(dyn Any + Send)) -> String {
    let place = location.map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let what = payload.downcast_ref::<&'static str>().copied();
    let what = what.unwrap_or("the message is not shown, since it was made of values, which can be secret");
    format!("panic at {place} in thread {}, a defect of this program: {what}", thread.unwrap_or("without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(of: impl FnOnce() + panic::UnwindSafe) -> Box<dyn Any + Send> {
        panic::catch_unwind(of).unwrap_err()
    }

    #[test]
    fn only_literal_messages_are_logged() {
        let secret = String::from("hunter2 is the pässword");
        let number = secret.parse::<u8>().map_err(|_| secret.clone());
        let made = [
            payload(|| panic!("no {secret}")),
            payload(|| assert_eq!(number.clone().expect("a number"), 1)),
            // The standard library cites the text.
            payload(|| drop(secret[..secret.find('ä').unwrap_or(0) + 1].to_owned())),
        ];
        for payload in &made {
            let text = text(Some("worker"), Some(&"src/a.rs:1:2"), &**payload);
            assert!(text.starts_with("panic at src/a.rs:1:2 in thread worker, a defect"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let written = payload(|| panic!("written beforehand"));
        assert!(text(None, None::<&String>, &*written).ends_with("a defect of this program: written beforehand"));
    }
}
