//! What is there before, as far as it can be read: only the form of these answers can be compared.

use alicloud_ccm::alibaba::ecs::InstanceFilter;

use super::super::run::{Stop, done};
use super::Step;

/// Has the form of an id, and is none.
const NO_DISK: &str = "d-conformance0";

pub(super) const STEPS: &[Step] = super::steps![form:
    "read the VPC", run => done(run.cloud.vpc.describe_vpc(&run.place.vpc).await);
    "read its vSwitches", run => done(run.cloud.vpc.describe_vswitches(&run.place.vpc).await);
    "read the instance", run => {
        let filter = InstanceFilter::Ids(vec![run.place.instance.clone()]);
        let found = run.cloud.ecs.describe_instances(&run.place.region, &filter).await?;
        run.made("interface", found.into_iter().next().ok_or(Stop::Lacks("instance"))?.primary_eni)
    };
    "read an instance that is not there", run => {
        let filter = InstanceFilter::Ids(vec!["i-conformance0".into()]);
        done(run.cloud.ecs.describe_instances(&run.place.region, &filter).await)
    };
    "read the interface of the instance", run => {
        done(run.cloud.ecs.describe_network_interfaces(&run.place.region, &[run.id("interface")?]).await)
    };
    "read a disk that is not there", run => {
        done(run.cloud.ecs.describe_disks(&run.place.region, &[NO_DISK.into()]).await)
    };
    "read EIPs of a load balancer that is not there", run => {
        done(run.cloud.vpc.describe_load_balancer_eips("lb-conformance0").await)
    };
    "ask by a dry run for the permission to list instances", run => {
        done(run.cloud.ecs.may_describe_instances(&run.place.region).await)
    };
];
