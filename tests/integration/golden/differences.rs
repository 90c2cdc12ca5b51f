//! Intended differences from the results of the official controller.

/// One field of one step of one case.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) case: &'static str,
    /// From 0.
    pub(super) step: usize,
    /// The path to the field.
    pub(super) field: &'static str,
    pub(super) theirs: &'static str,
    pub(super) ours: &'static str,
    /// Why a user is better off.
    pub(super) why: &'static str,
}

/// The head of the page.
pub(super) const INTRODUCTION: &str = "# Differences from the official controller

Services on classic load balancers get what the official controller (v2.14.0) gives them: the same annotations, names, tags,
listeners, server groups, weights, status and events, so that a cluster can migrate, and migrate back. The differences are
intended.

## Behaviour

- The controller compares load balancers with what the Service asks for whenever something may have changed, and every
  `service.drift_check`; no label decides whether to compare. Any edit of annotations or of the spec, also of an annotation that
  is not ours, compares the instance, its listeners and its server groups with the cloud. The label `service.beta.kubernetes.io/hash` is not
  written; one that is there is removed with the finalizer.
- `spec.loadBalancerSourceRanges` and `spec.sessionAffinity: ClientIP`, which the official controller ignores, take effect: through
  an access control list of the Service, and through persistence of TCP listeners. On a Service of the official controller, which
  its label `service.beta.kubernetes.io/hash` shows, existing listeners stay open and without persistence, so that the migration
  blocks no client; an event says so. The two take effect when one of them is changed, or when the label is removed:
  `kubectl label service NAME service.beta.kubernetes.io/hash-`.
- A problem of a Service stops what it is about and nothing else. The load balancer, a listener or the choice of backends stays
  as it is in the cloud; everything else is reconciled, and server groups that exist follow the endpoints. The event
  `SyncLoadBalancerFailed` names all problems. Nothing new is created while its own problem stands.
- `acl-status: on` takes precedence over `spec.loadBalancerSourceRanges`; a warning says that the ranges have no effect.
- A TLS policy that this program does not know is sent to the cloud with a warning.
- A load balancer that was deleted outside of the cluster is created again once two reads, ten seconds apart, have proven that it
  is gone; the address can change, and an event says so. Without that proof, nothing is created.
- Where `external-ip-type: eip` asks for an elastic address and that cannot be looked up, a published address stays, and a new
  Service gets its label but no address until a retry finds the elastic one; an event says when that is. The official controller
  publishes the private address instead.
- When more than half of the backends of a server group become unready within a minute for no other reason than their nodes'
  readiness, each is removed only if its node is still unready 30 s later, and an event says so; while no node is ready, none is
  removed. The official controller removes them at once. Nodes that are deleted, excluded, stopped or, where that counts,
  cordoned, and pods that move, leave at once here, too.
- Where a listener of a user still uses a server group that the Service no longer needs, the group stays and an event names the
  listener.
- The controller waits for a change of the charge type, which takes effect at midnight, and does not request it again.
- The status says for each port of an address whether it is served, where the API server knows `ports`.
- A load balancer of another cluster, and a listener, a server group or a backend that is not provably of the Service, is never
  changed. With `force-override-listeners`, a listener of a user on a wanted port of the load balancer that `id` names is
  overridden, as with the official controller, and an event names it; one that carries the mark of another Service or cluster, or
  leads to a server group that does, is a problem of the Service.
- A load balancer that this program makes also gets the tag `alicloud-ccm.cluster-uid`, which tells clusters with the same cluster
  id apart; see [safety.md](safety.md#two-clusters-with-one-id). The official controller does not look at it, and removes it where
  it keeps the tags of `additional-resource-tags`.
- Values that the API would reject are not sent.
- Deleting a Service depends only on what must be removed: it works on IPv6 load balancers of users, with
  `service.disable_public`, and with invalid annotations.
- A load balancer kept by `preserve-lb-on-delete` keeps its listeners and server groups, and keeps serving.
- Certificates of `domain-extensions` can be changed, and removed by an empty value.
- When the class or type annotation gives a Service to a controller that is not `service` or `nlb`, its load balancer is kept until
  the Service is deleted or given back, and an event says so.
- While a Service names a load balancer by `id` that it cannot have, or no longer names the one of a user that serves it, an event
  says what to do, and backends follow the endpoints on the one that serves it. The same holds on a public load balancer of a user
  after `service.disable_public` was set.
- `PayBySpec` can become `PayByCLCU`; the other way, which the API rejects, is a problem.
- An instance charged by `PayByCLCU` cannot change its charge type; the event comes without a call.

## Nodes and routes

- A node whose instance is released is removed after two observations, `node.removal_interval` apart, that prove the absence,
  while its kubelet has been silent for `node.removal_grace`, and never more than `node.removal_limit` within
  `node.removal_window`. An empty answer, a missing permission and the account of another cluster remove nothing.
- Labels and taints of other programs stay as they are. A taint or address is written only to the version of the node that
  was planned.
- Route entries carry a mark: cluster id, cluster uid and node in their description. An entry with the mark whose node is gone is
  removed, also after a restart, once the API server has reported the deletion of the node or the cloud proves that the
  instance is gone. The official controller forgets such entries when it restarts.
- An entry without a mark that has the pod CIDR of a node, inside `route.cluster_cidrs`, is replaced if it leads to another
  node of this cluster or to an instance that no longer exists, after two observations ten seconds apart; the event is
  `ReplacedRoute`. Where the account does not show the instance of every ready node, as in a VPC that several accounts share, it
  is not known whether an instance exists. One that leads to an instance which exists elsewhere stays, as do all where no cluster CIDRs are stated: the
  node gets the event `CreateRouteFailed`, which names the entry to remove. The official controller removes all of them.
- An entry for a part of a node's pod CIDR stays, and the node gets an event. The official controller removes it.
- Every address family of `spec.podCIDRs` is routed that `route.cluster_cidrs` names. The first reconcile starts at once.
- A node gets the condition `NetworkUnavailable=False` once its routes exist in all tables, are not changing, and
  lead to its instance. Where routes are switched off, conditions that a route controller set to `True` are cleared.

## Network load balancers

The controller `nlb` runs where `controllers` lists it, or with `*`. Services on network load balancers get what the official
controller gives them, with these differences:

- Without `zone-maps`, two zones are proposed: the first of `cloud.vswitches`, then those with the most nodes. Zones that the
  annotation no longer lists are given up.
- `delete-protection` and `modification-protection` are honoured, and protections and marks of load balancers of ours are restored.
- Listeners, server groups, backends, security groups and rules that are not provably of the Service stay. Server groups with
  backends of others are kept.
- A listener is made, or pointed at another server group, only after the cloud has added the backends to it.
- `loadBalancerSourceRanges` are in force before the first listener is made: the security group gets its rules before it is joined.
  IPv6 ranges are enforced on dual-stack load balancers. If that fails, an event says so and no listener is created.
- Asynchronous jobs of the cloud do not block other Services. If a job fails, an event names its request id and the controller
  retries it, in halves if it adds several backends, so that one holds up no other; pods become ready only once the job that adds
  them is done.
- A load balancer kept by `preserve-lb-on-delete` keeps its listeners and server groups. On a Service that lives, the annotation
  changes nothing.
- A Service of another class is left to its controller, also if it has the annotation `...-loadbalancer-type: nlb`.
- A Service that moves between classic and network load balancers by its type annotation gets the new load balancer first, and the
  backends of the old one follow meanwhile. The status changes when the new one serves; `service.hand_over_grace` later the
  controller removes the old one. One that `id` names, or `preserve-lb-on-delete` keeps, stays without what was made for the
  Service. The event `LoadBalancerHandOver` reports this and names the controller that must run. The official controller forgets the old one.
- `service.disable_public` holds for network load balancers, too.
- A server group behind a TLS listener has the protocol TCP and does not preserve client addresses, as the API asks. A setting
  that has no effect is reported once.
- An event reports an invalid value. What the value is about stays unchanged, or is not created; the controller syncs the rest.
- A load balancer that was deleted outside of the cluster is made again, with another DNS name; a listener that was changed there
  is repaired. The port of health checks goes back to that of the backends when its annotation goes.
- Pods outside of the VPC are left out and reported; the other backends of their group are added.
- No listener is made before the security groups that the Service asks for are joined.
- `PreservedOnDelete` is sent when a load balancer is kept, not before.
- If the `id` annotation changes to another load balancer, an event asks to recreate the Service; until then, the former one serves,
  and its backends follow the endpoints. Backends are not added to server groups of the other one. When the Service is deleted, its
  listeners on the former load balancer go with its server groups, also if `id` or `force-override-listeners` was removed; the load
  balancer stays. An event names a user's listener there that still uses such a group.

## Names in PrivateZone

The controller `pvtz` runs where `controllers` lists it, and with `*` where `[pvtz]` states a zone. Names are those of the official
controller, relative to the zone, with these differences:

- The zone is compared as a whole every `pvtz.period`, records whose TTL differs are updated, and records of Services that were
  deleted while no controller ran are removed. The zone must be bound to the VPC of the cluster.
- A value that changes is one `UpdateZoneRecord`, so that the name always leads somewhere. `AAAA` records follow as `A` records do.
- The remark of a record names the cluster: the beginning of `cloud.cluster_id`, and a hash of it and of the uid of the namespace
  `kube-system`. Only a record with exactly this remark is changed. The official controller shares one remark between all clusters.
- Records that the official controller wrote stay. One that says what is wanted serves on; one that says something else is a
  conflict that an event names, until a user deletes it. Delete them once this controller runs, a few at a time: each is
  written again, with the remark of the cluster, at the latest after `pvtz.period`.
- An `SRV` record has the port on which the address of the name listens: that of the Service, or, for a headless Service, that
  of its endpoints. Its target is a whole name, with the zone. The official controller writes the target port for every Service, and
  a target without the zone.
- A host name in the status of a Service of type LoadBalancer, as with a network load balancer, gets a `CNAME` record.
- A pod of a headless Service that has a host name has records of its own, as Kubernetes' DNS specification says, and is the target
  of `SRV` records. With `pvtz.nodes = true`, nodes have `A` and `AAAA` records. The official controller has neither.
- `PTR` records are in the same zone, as those of the official controller, for every address that a Service or a named pod has; the
  official controller writes one for each Service. IPv6 addresses are written out.
- Services whose endpoints are not known keep their records. Switching the controller off, or to another zone, removes none.

## Results

The complete list of differences in the results of a set of Services that both controllers reconciled. Steps are counted from 1.
";

const PROBLEM_SCOPE: &str = "An invalid value stops what it is about and nothing else: the load balancer is created, and only the \
     listener waits until the value is corrected.";
const SETTINGS: &str = "A warning reports, once, a setting that has no effect, alone or in combination.";
const ENSURED: &str = "EnsuredLoadBalancer";
const ENSURED_TOLD: &str = "EnsuredLoadBalancer, LoadBalancerSettings";
const CHANGED: &str = "AnnotationChanged, EnsuredLoadBalancer";
const CHANGED_TOLD: &str = "AnnotationChanged, EnsuredLoadBalancer, LoadBalancerSettings";
const LEFT_ALONE: &str = "A load balancer that was refused stays untouched when the Service is deleted; the official controller puts \
     its tag on another cluster's load balancer while leaving.";

const fn differs(
    case: &'static str,
    step: usize,
    field: &'static str,
    theirs: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference { case, step, field, theirs, ours, why }
}

pub(super) const DIFFERENCES: &[Difference] = &[
    differs(
        "proxy-protocol",
        0,
        "service status ingress ipMode",
        "VIP",
        "Proxy",
        "Traffic from inside of the cluster goes through the load balancer and carries the header that the pods expect.",
    ),
    differs("hc-number-bad", 0, "load_balancers", "", "1 of them", PROBLEM_SCOPE),
    differs("weight-without-vgroup", 0, "events", ENSURED, ENSURED_TOLD, SETTINGS),
    differs("weight-without-vgroup", 0, "outcome", "fine", "warned", SETTINGS),
    differs("acl", 1, "events", CHANGED, CHANGED_TOLD, SETTINGS),
    differs("acl", 1, "outcome", "fine", "warned", SETTINGS),
    differs("charge-on-intranet", 0, "events", ENSURED, ENSURED_TOLD, SETTINGS),
    differs("charge-on-intranet", 0, "outcome", "fine", "warned", SETTINGS),
    differs("legacy-prefix", 0, "events", ENSURED, ENSURED_TOLD, SETTINGS),
    differs("legacy-prefix", 0, "outcome", "fine", "warned", SETTINGS),
    differs("spec-only", 0, "events", ENSURED, ENSURED_TOLD, SETTINGS),
    differs("spec-only", 0, "outcome", "fine", "warned", SETTINGS),
    differs("spec-only", 1, "events", CHANGED, CHANGED_TOLD, SETTINGS),
    differs("spec-only", 1, "outcome", "fine", "warned", SETTINGS),
    differs("reuse-tagged-by-k8s", 1, "load_balancers tags kubernetes.reused.by.user", "true", "absent", LEFT_ALONE),
];
