//! The configuration: what the user may write, and what it means.

pub mod checked;
pub mod secret;

pub use checked::{Config, ControllerName};
