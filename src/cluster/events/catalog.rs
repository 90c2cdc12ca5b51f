//! Every reason of an event, with what is behind it and what to do: the table that `docs/events.md` is written from.
//!
//! The code of a reason never changes and is not used again. Warnings and the lines of the log beside them carry it, so that
//! users can look it up whatever language or tool shows them the event. `telemetry::logs::catalog` has the codes of all other
//! lines.

use std::fmt::Write as _;

/// What there is to say about the events of one reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventEntry {
    /// In the documentation, in messages and in the log as `ACCM0123`.
    pub(super) code: u16,
    /// The reason of the Event.
    pub(super) reason: &'static str,
    /// What has happened.
    pub(super) cause: &'static str,
    /// What follows from it.
    pub(super) effect: &'static str,
    /// What to do.
    pub(super) remedy: &'static str,
}

const NOTHING: &str = "nothing to do";

const fn entry(code: u16, reason: &'static str, [cause, effect, remedy]: [&'static str; 3]) -> EventEntry {
    EventEntry { code, reason, cause, effect, remedy }
}

/// The manual of events.
#[must_use]
pub fn events_page() -> String {
    let mut page = "# Events\n\n[中文](zh/events.md)\n\nEvery reason of the events that this program writes; `alicloud-ccm events` prints this page. Warnings \
                    end with their code.\n`/readyz` and alerts use the same reasons. [troubleshooting.md](troubleshooting.md) starts from \
                    symptoms instead.\n\n| Code | Reason | Cause | Effect | What to do |\n|---|---|---|---|---|\n"
        .to_owned();
    for EventEntry { code, reason, cause, effect, remedy } in EVENTS {
        let _ = writeln!(page, "| ACCM{code:04} | `{reason}` | {cause} | {effect} | {remedy} |");
    }
    page
}

/// The entry of a reason.
pub(super) fn find(reason: &str) -> Option<&'static EventEntry> {
    EVENTS.iter().find(|entry| entry.reason == reason)
}

/// Code and remedy of the events with this reason; `None` if this program writes none.
#[must_use]
pub fn advice(reason: &str) -> Option<(u16, &'static str)> {
    find(reason).map(|entry| (entry.code, entry.remedy))
}

/// The code of a reason, for the line of the log beside an event; empty for a reason of another program.
#[must_use]
pub fn event_code(reason: &str) -> String {
    find(reason).map(|entry| format!("ACCM{:04}", entry.code)).unwrap_or_default()
}

/// What to do about an event with this reason; `None` for a reason of another program, or if there is nothing to do.
pub(in crate::cluster) fn remedy(reason: &str) -> Option<&'static str> {
    find(reason).map(|entry| entry.remedy).filter(|remedy| *remedy != NOTHING)
}

/// All reasons: 0001 and up the process, 0101 nodes, 0201 routes, 0301 Services, 0401 what several of these have,
/// 0501 volumes, 0601 names.
static EVENTS: &[EventEntry] = &[
    entry(
        1,
        "LeaderElection",
        [
            "a replica became leader, or stopped leading",
            "the leader alone writes; another one takes over within seconds",
            "if it happens several times an hour: check the API server, and the log of the replica",
        ],
    ),
    entry(
        2,
        "ConfigApplied",
        ["the configuration file changed", "the message lists the keys, and what was restarted", NOTHING],
    ),
    entry(3, "ConfigUnchanged", ["a reload was asked for, and the file is the same", "none", NOTHING]),
    entry(
        4,
        "ConfigRejected",
        [
            "the configuration has problems",
            "the running process keeps the previous one; a start or a command ends with an error",
            "correct what the message lists; `alicloud-ccm check` prints it with line and column",
        ],
    ),
    entry(
        5,
        "CallsWaitForQuota",
        [
            "calls to the cloud wait for five minutes or longer, as this program's share of the quotas is used up",
            "what they are for is done late, in the order of `docs/scale.md`; what serves traffic goes first",
            "nothing to do; if it is urgent, raise `cloud.budget_share`, or have the quota of the action that the message names raised and state it in `cloud.quotas`",
        ],
    ),
    entry(
        101,
        "InitializedNode",
        [
            "the instance of a new node was found",
            "the node has addresses, labels and providerID, and lost the taint `uninitialized`",
            NOTHING,
        ],
    ),
    entry(
        102,
        "SyncNodeFailed",
        [
            "the instance of the node is not found or ambiguous, or a write to the Node failed",
            "a new node keeps its taint; an old one its addresses and labels; the controller retries",
            "the message says what is missing: a providerID, a permission, the region or the VPC",
        ],
    ),
    entry(103, "DeletedNode", ["the instance of the node was released", "the Node was deleted", NOTHING]),
    entry(
        104,
        "DeleteNodeFailed",
        [
            "the API server did not delete the Node of a released instance",
            "the Node stays; the controller retries",
            "the message has the answer of the API server; `alicloud-ccm rbac` prints the rights",
        ],
    ),
    entry(
        105,
        "NodeRemovalHeldBack",
        [
            "more instances seem to be released than the limit allows at once, or the cloud shows none at all",
            "the Node stays until that is proven",
            "if they are really gone: `kubectl delete node`, or raise `node.removal_limit`",
        ],
    ),
    entry(
        106,
        "InstancesNotShown",
        [
            "the cloud shows none of the cluster's instances",
            "no node is removed",
            "correct the credentials, their account, or the permission `ecs:DescribeInstances`",
        ],
    ),
    entry(
        107,
        "InstancesElsewhere",
        [
            "the instances of all nodes are in another VPC than configured",
            "no node is removed",
            "correct `cloud.vpc_id`",
        ],
    ),
    entry(
        108,
        "InstanceGone",
        [
            "two reads do not show the instance of a node whose kubelet reports; the message names the instance that has its address now",
            "the Node stays; if another instance has its place, load balancers and routes leave the node out",
            "delete the Node (`kubectl delete node`), then restart the kubelet; if another account has the instance: nothing to do",
        ],
    ),
    entry(201, "CreatedRoute", ["a node's pod CIDR had no route entry", "the entry was created", NOTHING]),
    entry(
        202,
        "ReplacedRoute",
        [
            "a node's pod CIDR led to another instance",
            "the entry leads to the node now",
            "if it happens again, another program writes the same routes; see `docs/routes.md`",
        ],
    ),
    entry(
        203,
        "CreateRouteFailed",
        [
            "the entry of a node could not be created, or conflicts with one that is not ours",
            "other nodes cannot reach the pods of the node; `NetworkUnavailable` stays",
            "the message names the conflicting entry, the quota or the permission",
        ],
    ),
    entry(
        204,
        "DeleteRouteFailed",
        [
            "the route entry of a removed node could not be deleted",
            "the entry stays; the controller retries",
            "the message has the code of the cloud",
        ],
    ),
    entry(
        205,
        "SyncRouteFailed",
        [
            "the route tables, or the instances, could not be read",
            "no route is changed; the controller retries",
            "the message has the code of the cloud; often `cloud.vpc_id`, `route.table_ids`, or a permission",
        ],
    ),
    entry(
        206,
        "RouteRemovalHeldBack",
        [
            "more routes are to be removed than the limit allows at once",
            "the rest stays",
            "to remove them, raise `route.removal_limit`",
        ],
    ),
    entry(
        207,
        "RouteOwnerMissing",
        [
            "a route leads to an existing instance, and the API server shows no node for it",
            "the route stays",
            "release the instance, let the node join, or `alicloud-ccm gc --delete`",
        ],
    ),
    entry(
        208,
        "RoutesNotNeeded",
        [
            "`route` is on, and the cluster shows a pod network that makes routes itself, or needs none",
            "the controller writes entries all the same; where two programs write them, each restores what the other removes",
            "see `docs/routes.md`; leave `route` out of `controllers`, or change the pod network",
        ],
    ),
    entry(
        301,
        "EnsuredLoadBalancer",
        ["the load balancer was created or changed", "it is in sync; the message lists the steps", NOTHING],
    ),
    entry(
        302,
        "CleanLoadBalancer",
        ["the Service was deleted, or is of another type", "what was created for it is deleted", NOTHING],
    ),
    entry(303, "TypeChanged", ["`spec.type` changed", "the load balancer follows", NOTHING]),
    entry(304, "AnnotationChanged", ["annotations of the Service changed", "the load balancer follows", NOTHING]),
    entry(
        305,
        "ServiceSpecChanged",
        ["the specification of the Service changed", "the load balancer follows", NOTHING],
    ),
    entry(
        306,
        "DeleteTimestampChanged",
        ["the Service is being deleted", "the load balancer is deleted before the Service", NOTHING],
    ),
    entry(
        307,
        "SyncLoadBalancerFailed",
        [
            "annotations are wrong, or the cloud refused a step",
            "what the message is about stays unchanged; everything else is reconciled, and backends follow the endpoints",
            "correct what the message lists; `alicloud-ccm plan NAMESPACE/NAME` shows the steps that are left",
        ],
    ),
    entry(
        308,
        "CleanLoadBalancerFailed",
        [
            "the load balancer of a deleted Service could not be removed",
            "the Service keeps its finalizer; the controller retries",
            "the message has the code of the cloud: often a deletion protection, or a permission",
        ],
    ),
    entry(
        309,
        "ManyServicesOutOfSync",
        [
            "five or more Services are out of sync for one cause",
            "none of them gets in sync until the cause is removed",
            "repair the cause that the message names; `/readyz` lists the Services",
        ],
    ),
    entry(
        310,
        "LoadBalancerPlaced",
        ["zones or a vSwitch were chosen, because none are stated", "the message names them", NOTHING],
    ),
    entry(
        311,
        "LoadBalancerSettings",
        [
            "annotations have no effect, or differ from what can be changed",
            "the message says which; the load balancer serves",
            "remove them, or state what they need",
        ],
    ),
    entry(
        312,
        "SkipSyncBackends",
        [
            "addresses of pods are outside of the VPC, or their interfaces are unknown",
            "these pods are no backends",
            "for pods attached directly, use a pod network with VPC addresses",
        ],
    ),
    entry(
        313,
        "UnAvailableLoadBalancer",
        [
            "a port has no backend: no ready endpoint, or no node that may serve it",
            "connections to the port fail",
            "`kubectl get endpointslices`; see `docs/troubleshooting.md`",
        ],
    ),
    entry(
        314,
        "FailedSetEIPAddress",
        [
            "the Service asks for an elastic address, and none is bound to the load balancer",
            "the load balancer's own address is published",
            "bind one, or remove the annotation",
        ],
    ),
    entry(
        315,
        "RepairedDrift",
        [
            "the load balancer was changed outside of the cluster",
            "it is in sync again",
            "state the change in annotations, or leave the attribute unmanaged",
        ],
    ),
    entry(
        316,
        "LoadBalancerRecreated",
        [
            "the load balancer of the Service does not exist any more",
            "a new one is created; its address may differ",
            "update DNS records",
        ],
    ),
    entry(
        317,
        "LoadBalancerLeft",
        [
            "the load balancer no longer carries the mark of the Service",
            "it stays unchanged",
            "delete it manually if it is not used",
        ],
    ),
    entry(
        318,
        "PreservedOnDelete",
        [
            "the Service was deleted, with `preserve-lb-on-delete`",
            "its load balancer stays and is unmanaged",
            "delete it manually if it is not used",
        ],
    ),
    entry(
        319,
        "FailedAddFinalizer",
        [
            "the API server refused the finalizer",
            "nothing is created in the cloud before the finalizer is set",
            "the message has the answer; a permission, or an admission webhook",
        ],
    ),
    entry(
        320,
        "FailedUpdateStatus",
        [
            "the API server refused the status",
            "the load balancer serves, and its address is not published",
            "the message has the answer; a permission, or an admission webhook",
        ],
    ),
    entry(
        321,
        "FailedUpdateReadinessGate",
        [
            "the API server refused the readiness of a pod",
            "the pod stays not ready, and its rollout waits",
            "the message has the answer; the right to patch `pods/status`",
        ],
    ),
    entry(
        322,
        "BackendsHeldBack",
        [
            "no node is ready, or the API server shows no endpoints at all",
            "no backend is removed",
            "repair the nodes; to take one out, label it `node.kubernetes.io/exclude-from-external-load-balancers`",
        ],
    ),
    entry(
        323,
        "LoadBalancerHeldBack",
        [
            "the load balancer is missing, and nothing proves that the account is the right one",
            "none is created, and no finalizer removed",
            "correct `cloud.credentials`; see `docs/safety.md`",
        ],
    ),
    entry(
        324,
        "ServerGroupsHeldBack",
        [
            "a list of server groups lacks one that exists",
            "the group stays in use and is not created again",
            "none; it ends with a later list",
        ],
    ),
    entry(
        325,
        "LoadBalancerOwnerMissing",
        [
            "the API server does not show a Service that has a load balancer, and sent no deletion",
            "the load balancer stays",
            "restore the Service, or `alicloud-ccm gc --delete`",
        ],
    ),
    entry(
        326,
        "LoadBalancerHandOver",
        [
            "the Service changed between a classic and a network load balancer",
            "the old one serves until the new one does; it is removed `service.hand_over_grace` later",
            "usually nothing; list the controller that the message names, if it does not run",
        ],
    ),
    entry(
        327,
        "ServiceNotHandled",
        [
            "the class or type of the Service asks for a load balancer of this program, and the class is not known or its controller does not run",
            "nothing is created for it",
            "the message says what to do: list the controller, or create the Service again with another class",
        ],
    ),
    entry(
        328,
        "StatusOverwritten",
        [
            "another client writes `status.loadBalancer` of the Service, too",
            "the controller writes its own addresses again, each time",
            "stop the client that the message names, or give it the Service with `spec.loadBalancerClass`",
        ],
    ),
    entry(
        329,
        "LoadBalancerInProgress",
        [
            "the cloud has been carrying out a change for longer than 30 s",
            "the controller looks again every few seconds",
            NOTHING,
        ],
    ),
    entry(
        401,
        "ClusterIdShared",
        [
            "load balancers or routes carry this cluster's id and the uid of another cluster",
            "they are not changed",
            "give new clusters an id of their own",
        ],
    ),
    entry(
        402,
        "ManyObjectsOutOfSync",
        [
            "five or more nodes, routes of nodes or PersistentVolumes are out of sync for one cause",
            "none of them gets in sync until the cause is removed",
            "repair the cause that the message names; `/readyz` lists the objects",
        ],
    ),
    entry(
        403,
        "Resolved",
        ["what an earlier event of the object says is no longer so", "the message names its reason", NOTHING],
    ),
    entry(
        501,
        "VolumeLabeled",
        ["a PersistentVolume lacked the labels or the node affinity of its disk", "it has them", NOTHING],
    ),
    entry(
        502,
        "VolumeLabelsFailed",
        [
            "the disk of a PersistentVolume is not shown, differs from its labels, or the write was refused",
            "the volume stays unchanged; the controller continues with the others",
            "[volumes.md](volumes.md#problems)",
        ],
    ),
    entry(
        503,
        "VolumeAffinityHeldBack",
        [
            "no node carries a label for the zone",
            "volumes get labels and no node affinity, which could never be changed",
            "let a node be initialised, or set `volume_labels.node_affinity = false`",
        ],
    ),
    entry(
        601,
        "SyncPrivateZoneFailed",
        [
            "the zone could not be read, or the cloud refused a record",
            "what could not be written stays unchanged; the controller retries",
            "the message has the code of the cloud; often a permission",
        ],
    ),
    entry(
        602,
        "PrivateZoneUnusable",
        [
            "the zone of `[pvtz]` is missing or not bound to the VPC of the cluster, the uid of the cluster is not known, or the API server shows no Service",
            "no record is changed",
            "correct what the message names",
        ],
    ),
    entry(
        603,
        "PrivateZoneNameInvalid",
        [
            "DNS cannot hold a name of the Service or node",
            "that record is not written; all others are",
            "correct the name that the message has",
        ],
    ),
    entry(
        604,
        "PrivateZoneRecordConflict",
        [
            "a record that another user made takes the name of the Service or node",
            "it stays, and the name is not written",
            "delete that record if it is not needed",
        ],
    ),
    entry(
        605,
        "PrivateZoneRemovalHeldBack",
        [
            "many records of the zone became obsolete at once",
            "they are removed if they are still obsolete 30 s later",
            "nothing to do; or restore the Services",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn codes_and_reasons_are_unique_and_in_order() {
        assert!(EVENTS.is_sorted_by(|a, b| a.code < b.code));
        assert_eq!(EVENTS.iter().map(|entry| entry.reason).collect::<BTreeSet<_>>().len(), EVENTS.len());
    }

    fn product_text(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                product_text(&path, text);
            } else if !path.ends_with("events/catalog.rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn no_entry_outlives_its_reason() {
        let mut text = String::new();
        product_text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut text);
        let unused: Vec<_> =
            EVENTS.iter().map(|entry| entry.reason).filter(|reason| !text.contains(&format!("\"{reason}\""))).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }
}
