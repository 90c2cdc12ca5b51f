//! Where in the cloud this process, and with it the cluster, runs.

/// Known at the start of a session, from the configuration and, for what it leaves out, from the metadata service.
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

impl CloudLocation {
    /// What an instance knows of itself, as far as it does.
    fn optional(&self) -> [&str; 3] {
        [&self.zone_id, &self.vswitch_id, self.instance_id.as_deref().unwrap_or_default()]
    }

    /// Whether anything is unknown, as outside of the cloud.
    pub fn lacks_something(&self) -> bool {
        self.optional().contains(&"")
    }

    /// Whether this says something that the other one lacks.
    pub fn adds_to(&self, other: &Self) -> bool {
        self.optional().iter().zip(other.optional()).any(|(own, theirs)| theirs.is_empty() && !own.is_empty())
    }
}
