//! The configuration: what the user may say ([`mod@file`]), what it means ([`checked`]), and the way from one to the other:
//! layers are merged, everything wrong is reported at once (`report`), and a change is taken over while the program runs
//! ([`watch`]).
//!
//! [`check`] is pure: the text, the environment and the key files are handed to it. [`load`] reads them.

mod catalog;
mod check;
pub mod checked;
mod credentials;
pub mod file;
mod layers;
mod load;
mod migration;
mod redact;
mod reference;
mod report;
mod rules;
mod schema;
pub mod secret;
pub mod tls;
mod values;
pub mod watch;

pub use catalog::{Catalog, ControllerEntry, ControllerName};
pub use check::{Referenced, check, referenced};
pub use checked::{Config, Credentials};
pub use layers::{CREDENTIAL_VARIABLES, KNOWN_VARIABLES, Source, VARIABLE_PREFIX};
pub use load::{FileFault, LARGEST_FILE, Loaded, Origin, SecretFile, load};
pub use migration::migration_page;
pub use reference::reference;
pub use report::{Place, Problem, Report};
pub use schema::{keys, schema};
pub use values::TimeSpan;

#[cfg(test)]
mod tests;
