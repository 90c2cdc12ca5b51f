//! What operators see of the running process: metrics, logs, health.

pub mod activity;
pub mod alarms;
pub mod auth;
pub mod health;
pub mod http;
pub mod logs;
pub mod machine;
pub mod metrics;
pub mod notify;
pub mod panics;
pub mod tasks;
pub mod traces;
