//! Where in the cloud this process, and with it the cluster, runs.

/// Known once at start, from the configuration and, for what it leaves out, from the metadata service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudLocation {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// `vpc-...`
    pub vpc_id: String,
    /// Zone of this instance, empty if unknown.
    pub zone_id: String,
    /// vSwitch of this instance, empty if unknown.
    pub vswitch_id: String,
    /// ECS instance that this process runs on, if it runs on one.
    pub instance_id: Option<String>,
}
