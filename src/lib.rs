//! alicloud-ccm

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod alibaba;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod controllers;
pub mod fence;
pub mod observe;
pub mod plan;
