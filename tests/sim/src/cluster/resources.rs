//! The table of resources: what is served, from which version on, and how each kind behaves.

use super::version::Version;

/// One kind of object, and everything the server needs to know about it.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// The group's versions that serve this resource, preferred first.
    pub served: &'static [Served],
    pub kind: &'static str,
    /// Name in paths; unique in this table, so it is the key of the store.
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub namespaced: bool,
    /// Whether `/status` exists, and the main resource leaves the status alone.
    pub status: bool,
    /// Whether an object that is created may bring its status along.
    pub status_on_create: bool,
    /// Whether replacing without a resourceVersion is allowed.
    pub unconditional_update: bool,
    /// Whether replacing what is not there creates it.
    pub create_on_update: bool,
    /// Whether deleting answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Whether the server counts `metadata.generation`.
    pub generation: bool,
    /// Fields that can be selected besides `metadata.name` and `metadata.namespace`.
    pub field_labels: &'static [&'static str],
}

/// A version of a group, and the Kubernetes releases (minor numbers, both included) that serve it.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub version: &'static str,
    pub since: u32,
    pub until: u32,
}

const ALWAYS: &[Served] = &[Served { version: "v1", since: 0, until: u32::MAX }];

/// What every resource can do here.
pub(super) const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const BASE: Resource = Resource {
    group: "",
    served: ALWAYS,
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    namespaced: true,
    status: false,
    status_on_create: false,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    generation: false,
    field_labels: &[],
};

/// What runs pods, without a controller that would do so.
const APPS: Resource = Resource {
    group: "apps",
    served: &[Served { version: "v1", since: 9, until: u32::MAX }],
    status: true,
    generation: true,
    ..BASE
};

/// Every resource of the simulated cluster.
pub static RESOURCES: &[Resource] = &[
    Resource { kind: "ConfigMap", plural: "configmaps", singular: "configmap", short_names: &["cm"], ..BASE },
    Resource {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        create_on_update: true,
        ..BASE
    },
    Resource {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        field_labels: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..BASE
    },
    Resource {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        status: true,
        field_labels: &["status.phase"],
        ..BASE
    },
    Resource {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        status_on_create: true,
        field_labels: &["spec.unschedulable"],
        ..BASE
    },
    Resource {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        status: true,
        returns_deleted: true,
        ..BASE
    },
    Resource {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        status: true,
        // The real server resets it to Pending; here a Pod has no kubelet that would fill it in later.
        status_on_create: true,
        returns_deleted: true,
        field_labels: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ..BASE
    },
    Resource { kind: "Secret", plural: "secrets", singular: "secret", field_labels: &["type"], ..BASE },
    Resource {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        status: true,
        create_on_update: true,
        returns_deleted: true,
        field_labels: &["spec.clusterIP", "spec.type"],
        ..BASE
    },
    Resource {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        returns_deleted: true,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        ..BASE
    },
    Resource {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        ..BASE
    },
    Resource { kind: "DaemonSet", plural: "daemonsets", singular: "daemonset", short_names: &["ds"], ..APPS },
    Resource { kind: "Deployment", plural: "deployments", singular: "deployment", short_names: &["deploy"], ..APPS },
    Resource {
        group: "coordination.k8s.io",
        served: &[
            Served { version: "v1", since: 14, until: u32::MAX },
            Served { version: "v1beta1", since: 12, until: 21 },
        ],
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        unconditional_update: false,
        create_on_update: true,
        ..BASE
    },
    Resource {
        group: "discovery.k8s.io",
        served: &[
            Served { version: "v1", since: 21, until: u32::MAX },
            Served { version: "v1beta1", since: 17, until: 24 },
        ],
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        generation: true,
        ..BASE
    },
    // Nothing is stored of these: they are questions.
    Resource {
        group: "authentication.k8s.io",
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        namespaced: false,
        ..BASE
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        namespaced: false,
        ..BASE
    },
    Resource {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        namespaced: false,
        ..BASE
    },
];

impl Resource {
    /// Group versions that the played Kubernetes serves, preferred first.
    pub fn versions(&self, played: Version) -> impl Iterator<Item = &'static str> {
        let minor = played.minor();
        self.served.iter().filter(move |served| (served.since..=served.until).contains(&minor)).map(|s| s.version)
    }

    /// `apiVersion` of this kind's objects in one of its versions.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// `nodes`, or `leases.coordination.k8s.io`: how messages name a resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// The resource called so: by kind, plural, singular or short name, in any case.
pub(super) fn named(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        [resource.kind, resource.plural, resource.singular]
            .iter()
            .chain(resource.short_names)
            .any(|known| known.eq_ignore_ascii_case(name))
    })
}

/// The resource at a path, if the played version serves it.
pub(super) fn served(played: Version, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        resource.group == group && resource.plural == plural && resource.versions(played).any(|v| v == version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice_versions(played: Version) -> Vec<&'static str> {
        named("EndpointSlice").unwrap().versions(played).collect()
    }

    #[test]
    fn kinds_come_and_go_with_the_version() {
        assert!(slice_versions(Version::V1_16).is_empty());
        assert_eq!(slice_versions(Version::V1_20), ["v1beta1"]);
        assert_eq!(slice_versions(Version::V1_24), ["v1", "v1beta1"]);
        assert_eq!(slice_versions(Version::V1_30), ["v1"]);
        assert!(served(Version::V1_11, "coordination.k8s.io", "v1beta1", "leases").is_none());
        assert!(served(Version::V1_16, "coordination.k8s.io", "v1", "leases").is_some());
    }

    #[test]
    fn a_plural_names_one_resource() {
        let mut plurals: Vec<_> = RESOURCES.iter().map(|r| r.plural).collect();
        plurals.sort_unstable();
        plurals.dedup();
        assert_eq!(plurals.len(), RESOURCES.len());
    }
}
