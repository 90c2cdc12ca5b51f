//! Which Kubernetes is played, and what that version can do.

/// A played Kubernetes version, `1.<minor>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u32,
}

/// Something that API servers learned at some version.
///
/// The numbers are those where it was on by default, since that is what people run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `limit` and `continue` of lists.
    Chunking,
    /// `spec.nodeAffinity` of PersistentVolumes.
    VolumeAffinity,
    /// `as=Table` in `meta.k8s.io/v1beta1`.
    TableBeta,
    /// `as=Table` and `as=PartialObjectMetadata` in `meta.k8s.io/v1`.
    Table,
    /// `dryRun=All`.
    DryRun,
    /// kube-controller-manager turns conditions of nodes into taints.
    TaintByCondition,
    /// `allowWatchBookmarks`.
    Bookmarks,
    /// `spec.podCIDRs` of Nodes.
    PodCidrs,
    /// `application/apply-patch+yaml`.
    ServerSideApply,
    /// `spec.clusterIPs` of Services.
    ClusterIps,
    /// `spec.ipFamilies` and `spec.ipFamilyPolicy` of Services.
    IpFamilies,
    /// `spec.internalTrafficPolicy` of Services.
    InternalTrafficPolicy,
    /// `spec.allocateLoadBalancerNodePorts` of Services.
    AllocateNodePorts,
    /// `serving` and `terminating` of endpoints; before, endpoints that terminate are left out.
    TerminatingEndpoints,
    /// `/openapi/v3`.
    OpenApiV3,
    /// The server knows `sendInitialEvents`, if only to refuse it.
    InitialEventsKnown,
    /// The server answers `sendInitialEvents` with the initial events.
    InitialEvents,
    /// A Service that is no load balancer cannot have a load balancer status.
    StatusNeedsLoadBalancer,
    /// `status.conditions` of Services: known from 1.20 on, and dropped until the gate `MixedProtocolLBService` was on by default.
    ServiceConditions,
    /// `status.loadBalancer.ingress[].ipMode` of Services.
    IpMode,
}

impl Feature {
    fn since(self) -> u32 {
        match self {
            Feature::Chunking => 9,
            Feature::TableBeta | Feature::VolumeAffinity => 10,
            Feature::DryRun => 13,
            Feature::TaintByCondition => 12,
            Feature::Table => 15,
            Feature::Bookmarks | Feature::PodCidrs | Feature::ServerSideApply => 16,
            Feature::ClusterIps => 20,
            Feature::IpFamilies => 21,
            Feature::InternalTrafficPolicy | Feature::AllocateNodePorts | Feature::TerminatingEndpoints => 22,
            Feature::OpenApiV3 | Feature::ServiceConditions => 24,
            Feature::InitialEventsKnown => 27,
            Feature::StatusNeedsLoadBalancer => 29,
            Feature::IpMode => 30,
            Feature::InitialEvents => 34,
        }
    }
}

impl Version {
    /// OpenShift 3.8 and 3.9 era: no Leases, no EndpointSlices, no tables.
    pub const V1_8: Version = Version { minor: 8 };
    /// OpenShift 3.11.
    pub const V1_11: Version = Version { minor: 11 };
    /// Bookmarks and server-side apply, no EndpointSlices.
    pub const V1_16: Version = Version { minor: 16 };
    /// `discovery.k8s.io/v1beta1` only.
    pub const V1_20: Version = Version { minor: 20 };
    /// Both versions of EndpointSlices.
    pub const V1_24: Version = Version { minor: 24 };
    /// `ipMode`; `sendInitialEvents` is refused.
    pub const V1_30: Version = Version { minor: 30 };
    /// The newest played version; `sendInitialEvents` works.
    pub const NEWEST: Version = Version { minor: 34 };

    /// The versions that a compatibility test should go through, oldest first.
    pub const ALL: [Version; 7] = [
        Version::V1_8,
        Version::V1_11,
        Version::V1_16,
        Version::V1_20,
        Version::V1_24,
        Version::V1_30,
        Version::NEWEST,
    ];

    /// Kubernetes `1.<minor>`.
    pub const fn minor_release(minor: u32) -> Version {
        Version { minor }
    }

    /// The second number of the version.
    pub fn minor(self) -> u32 {
        self.minor
    }

    /// Whether this version has the feature by default.
    pub fn has(self, feature: Feature) -> bool {
        self.minor >= feature.since()
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v1.{}.0", self.minor)
    }
}
