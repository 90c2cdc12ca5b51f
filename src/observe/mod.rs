//! What operators see of the running process: metrics, logs, health.

pub mod metrics;
