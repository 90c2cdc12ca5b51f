//! Where in the cloud the cluster lives.

/// Resolved once at start: what the configuration says, and what the metadata service fills in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
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
