//! Benchmarks; see `micro.rs`.
