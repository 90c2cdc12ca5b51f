//! The configuration: what the user may say ([`mod@file`]), what it means ([`checked`]), and the way from one to the other.
//!
//! Each module reads only those before it:
//!
//! ```text
//! secret, values, formats, catalog    kinds of values, and names that other parts of the program define
//! file, schema, reference             what may be written, as types, as JSON schema, as manual
//! source, redact, report              what a configuration is made from, and what is said about a wrong one
//! layers, fit, checker                values and who set them, compared with the schema; the problems
//! checked, credentials, tls, rules    what the values mean, and which go together
//! check, load, watch                  all of that on values, on files, and while the program runs
//! ```
//!
//! [`check`] is pure: the text, the environment and the key files are handed to it. [`load`] reads them.

mod catalog;
mod check;
pub mod checked;
mod checker;
mod credentials;
pub mod file;
mod fit;
mod formats;
mod layers;
mod load;
mod redact;
mod reference;
mod report;
mod rules;
mod schema;
pub mod secret;
mod source;
pub mod tls;
mod values;
pub mod watch;

pub use catalog::{Catalog, ControllerEntry};
pub use check::{Referenced, check, referenced};
pub use checked::{Config, Credentials};
pub use formats::is_object_name;
pub use layers::{CREDENTIAL_VARIABLES, KNOWN_VARIABLES, VARIABLE_PREFIX};
pub use load::{LARGEST_FILE, Loaded, load, stated};
pub use reference::reference;
pub use report::{ConfigProblem, ConfigReport, ProblemPlace};
pub use rules::RECORD_TTLS;
pub use schema::{AnnotationDefault, defaults, keys, nearest_number, nearest_time, schema};
pub use source::{ConfigPurpose, ConfigSource, FileFault, KeyFile};
pub use values::TimeSpan;

#[cfg(test)]
mod tests;
