//! A Kubernetes API server and an Alibaba Cloud on loopback, for the tests and the playground of alicloud-ccm.
//!
//! [`cloud`] is an Alibaba Cloud account: ECS, VPC, CLB, NLB, PrivateZone, STS and the metadata service. [`cluster`] is an API
//! server of any version, with what kubelets and the controller manager do to nodes. Both speak the real protocols and know
//! nothing of the product. [`testbed`] puts the two together, [`population`] fills them, and [`request_hold`] holds single
//! requests. [`collector`] takes traces, and [`effort`] counts what the simulators look at.

pub mod cloud;
pub mod cluster;
pub mod collector;
pub mod effort;
mod ordered_watch;
pub mod population;
pub mod request_hold;
pub mod testbed;
