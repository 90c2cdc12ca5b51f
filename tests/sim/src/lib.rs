//! A Kubernetes API server and an Alibaba Cloud on loopback, for the tests and the playground of alicloud-ccm.
//!
//! [`cloud`] is an Alibaba Cloud account: ECS, VPC, CLB, STS and the metadata service.

pub mod cloud;
