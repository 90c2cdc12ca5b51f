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

For administrators who replace the official controller.

Services on classic load balancers get what the official controller (v2.14.0) gives them: the same annotations, names, tags,
listeners, server groups, weights, status and events. So a cluster can migrate, and migrate back. The differences below are
intended.

## Behaviour

- No label decides whether a load balancer is compared with the cloud. The controller compares it whenever something may have
  changed, and every `service.drift_check`. After any edit of the annotations or the spec, including annotations of other programs, it
  compares the instance, its listeners and its server groups. It does not write the label `service.beta.kubernetes.io/hash`, and
  removes an existing one together with the finalizer.
- `spec.loadBalancerSourceRanges` and `spec.sessionAffinity: ClientIP` take effect; the official controller ignores both. The
  ranges become an access control list of the Service, the affinity becomes session persistence of its TCP listeners. On a
  Service that the official controller has reconciled, which its label `service.beta.kubernetes.io/hash` shows, existing
  listeners stay open and without persistence. So the migration blocks no client, and an event reports this. Both settings
  take effect when one of them is edited, or when the label is removed:
  `kubectl label service NAME service.beta.kubernetes.io/hash-`.
- Blanks around a value, and around the items of a list, do not count. Every switch takes `on` and `off` in upper or lower case, also
  where the official controller knows `true` alone or small letters alone. The exception is `force-override-listeners`, which only
  `true` turns on: another word must not open listeners of users to changes after a migration.
- The event `LoadBalancerSettings` names values and fields of the spec without effect, such as `spec.loadBalancerIP` and
  `externalIPs`. It names a switch with an unknown word, a drain timeout of 0, and text after a second `=`. It also names
  items that are lost because of another separator or the same key. `docs/reference/annotations.md` lists every field of the
  spec.
- If another client writes `status.loadBalancer` of a Service, the event `StatusOverwritten` names it (Kubernetes 1.18 and later).
- What the spec of a Service no longer asks for is taken back: session persistence, checks at the `healthCheckNodePort` and
  source ranges. So are backends in a user's server group that is no longer named. Session persistence or checks that a
  person set stay. The annotations `alicloud-ccm/applied-clb` and `alicloud-ccm/applied-nlb` on the Service remember what was
  set.
- A problem of a Service affects only what it is about. The load balancer, a listener, one setting of a listener or the
  choice of backends stays unchanged in the cloud. The controller reconciles everything else, and server groups that exist
  follow the endpoints. The event `SyncLoadBalancerFailed` names all problems. No listener with a problem is created, and no
  load balancer while every port has one. As soon as one port is served, the address is published; the status has an error
  for each of the others.
- What the cloud refuses keeps nothing else from its effect. A listener moves to the server group of a release before its settings
  change. Of settings that the cloud refuses together, the controller tries each feature by itself. A load balancer is created
  without tags, and a server group of an NLB without settings, that the cloud refuses. A backend that the cloud refuses keeps no
  other from serving.
- A node leaves its server group as soon as its node port is no longer one of the Service. The status of a port without the node port
  that it needs has the error `alibabacloud.com/NodePortMissing`.
- An endpoint without conditions is ready, as the Kubernetes API says; the official controller leaves it out. While no endpoint of a
  port is ready, those that terminate and still serve stay backends (`externalTrafficPolicy: Local`, and pods as backends). Of a
  Service without selector, the EndpointSlice says which port of the endpoints counts.
- `acl-status: on` takes precedence over `spec.loadBalancerSourceRanges`; a warning says that the ranges have no effect.
- A TLS policy that this program does not know is sent to the cloud with a warning.
- If a load balancer was deleted outside of the cluster, the controller creates it again after two reads, ten seconds apart, have
  proven that it is gone. The address can change; an event reports this. Without that proof, nothing is created.
- The label `service.k8s.alibaba/loadbalancer-id` names a user's load balancer before anything is made there. A Service without an
  address can ask for another load balancer: what was made on or as the first one is removed before. The official controller writes
  the label in the end. A Service that publishes a host name or an elastic address can move between load balancers of users; from
  one that was made for it, it cannot.
- With its finalizer, a Service gets the annotation `alicloud-ccm/clb-incarnation` or `alicloud-ccm/nlb-incarnation`, and loses it with
  the finalizer. It makes the client token of the next creation another one, so that a Service which asks for a load balancer again
  never gets the deleted one.
- With `external-ip-type: eip`, the status has the elastic IP address. While that address cannot be read, a published address stays,
  and a new Service gets its label but no address until a retry succeeds; an event reports this. The official controller publishes
  the private address instead.
- More than half of the backends of a server group may become unready within a minute, for no other reason than the readiness
  of their nodes. The controller then removes each one only if its node is still unready 30 s later. An event reports this.
  While no node is ready, it removes none. The official controller removes them at once. Nodes that are deleted, excluded or
  stopped, nodes that are cordoned where cordoning matters, and pods that move leave at once here, too.
- Where many backends are replaced, as many are removed after each call as it added. The official controller adds all of them first,
  which needs room in the quota of the server group.
- If a user's listener still uses a server group that the Service no longer needs, the group stays. An event names the listener.
- A change of the charge type takes effect at midnight. The controller waits for it and does not request it again.
- If the API server supports `ports`, the status reports for each port of an address whether it is served.
- From Kubernetes 1.24 on, the condition `LoadBalancerReady` of a Service says whether its load balancer is in sync; see
  [troubleshooting.md](../guides/troubleshooting.md#wait-until-a-service-or-a-route-is-ready).
- The controller never changes a load balancer of another cluster, nor a listener, a server group or a backend without proof
  that it belongs to the Service. With `force-override-listeners`, it overrides a user's listener on a desired port of the
  load balancer that `id` names, as the official controller does; an event names the listener. A listener may carry the mark
  of another Service or cluster, or forward to a server group that does. That is a problem of the Service, unless the API
  server does not show the other one.
- A load balancer that this program makes also gets the tag `alicloud-ccm.cluster-uid`, which tells clusters with the same cluster
  id apart; see [safety.md](safety.md#two-clusters-with-one-id). The tag stays beside the tags of `additional-resource-tags`; it is
  left out where users' tags leave no room for it. The official controller ignores this tag, and removes it where it reconciles the
  tags of `additional-resource-tags`.
- With `externalTrafficPolicy: Cluster`, an endpoint without a node name changes nothing: the nodes serve the Service. The official
  controller refuses the whole Service.
- Values that the API would reject are not sent.
- The deletion of a Service depends only on what must be removed. It works on IPv6 load balancers of users, with
  `service.disable_public`, and with invalid annotations.
- A load balancer that `preserve-lb-on-delete` keeps also keeps its listeners and server groups, and continues to serve. Its access
  control list stays, too: a Service that is made again under that name gets one of its own.
- Certificates of `domain-extensions` can be changed, and removed by an empty value.
- If the class or type annotation gives a Service to a controller other than `service` and `nlb`, its load balancer stays until the
  Service is deleted or given back. An event reports this.
- `id` may name a load balancer that the Service cannot use, or no longer name the user's load balancer that serves it. The
  backends then follow the endpoints on the one that serves. An event says what to do. If the Service is deleted in that
  state, the load balancer that was made for it is deleted. From a user's load balancer, its listeners and server groups go.
  Backends also follow on a public load balancer of a user after `service.disable_public` was set.
- `PayBySpec` can become `PayByCLCU`; the other direction, which the API rejects, is a problem.
- An instance with the charge type `PayByCLCU` cannot change its charge type. The event reports this without a call to the cloud.

## Nodes and routes

- A Node is removed only if two reads, `node.removal_interval` apart, prove that its instance was released. Also, its kubelet
  must not have reported for `node.removal_grace`: its condition `Ready` has been `Unknown` for that long. While no
  kube-controller-manager writes that condition, heartbeat and lease must not have changed for 6 minutes. At most
  `node.removal_limit` Nodes are removed within `node.removal_window`. An empty answer, a missing permission or the account
  of another cluster removes no Node.
- A Node whose kubelet reports stays when its instance is gone; the event `InstanceGone` says so. Load balancers and routes leave the
  Node out if another instance has its address, or after `node.removal_grace` if the Node has the label of an instance type. The official controller notices nothing.
- A Lingjun node with the label `alibabacloud.com/lingjun-worker=true` loses the taint `uninitialized`, with an event. Its Node is not
  deleted when the machine is released; the official controller deletes it.
- Labels and taints of other programs stay unchanged. A taint or an address is written only if the Node has not changed since the
  plan.
- Route entries carry a mark in their description: cluster id, cluster uid and node. The controller removes an entry with its
  mark once the API server has reported the deletion of the node, or the cloud proves that the instance is gone. That also
  holds if it happened before a restart. The official controller forgets such entries when it restarts.
- An entry without a mark may have the pod CIDR of a node, inside `route.cluster_cidrs`. It is replaced if it leads to
  another node of this cluster, or to an instance that no longer exists, in two reads ten seconds apart. The event is
  `ReplacedRoute`. The controller knows whether an instance exists only if the account shows the instance of every ready
  node. That is not so in some VPCs that several accounts share. The event then says so. A node that is left out for
  `InstanceGone` does not count. Every other such entry stays, also if no cluster CIDRs are configured: the event
  `CreateRouteFailed` on the node names the entry to remove. The official controller removes all of them.
- An entry for a part of a node's pod CIDR stays, and the node gets an event. The official controller removes it.
- Each address family of `spec.podCIDRs` that `route.cluster_cidrs` contains gets a route. The first reconcile starts at once.
- A node gets the condition `NetworkUnavailable=False` once its routes exist in all tables, are not changing, and
  lead to its instance. Where routes are switched off, conditions that a route controller set to `True` are cleared.

## Network load balancers

The controller `nlb` runs where `controllers` lists it, or with `*`. Services on network load balancers get what the official
controller gives them, with these differences:

- Without `zone-maps`, the controller chooses two zones: the first of `cloud.vswitches`, then those with the most nodes. A zone that
  the annotation no longer lists is removed from the load balancer.
- `delete-protection` and `modification-protection` take effect. The controller restores the delete protection and its marks on
  the load balancers that it made.
- Listeners, server groups, backends, security groups and rules without proof that they belong to the Service stay. So does a server
  group that has backends of others. With `force-override-listeners`, a user's listener is overridden as on a classic load balancer.
- A listener is created, or changed to another server group, only after the cloud has added backends to that group.
- `loadBalancerSourceRanges` take effect before the first listener is created: the security group gets its rules before the load
  balancer joins it. IPv6 ranges are enforced on dual-stack load balancers. If a step fails, an event reports it and no listener is
  created.
- Asynchronous jobs of the cloud do not block other Services. If a job fails, an event names its request id, and the controller
  retries it. A job that adds several backends is retried in halves, so that one backend does not block the others. The readiness gate of a pod
  passes only after the job that adds the pod is done.
- A load balancer that `preserve-lb-on-delete` keeps also keeps its listeners and server groups. The annotation has no effect until
  the Service is deleted.
- A Service of another class is left to its controller, even with the annotation `...-loadbalancer-type: nlb`.
- A Service that its type annotation moves between classic and network load balancers gets the new load balancer first; meanwhile the
  backends of the old one follow the endpoints. The status changes when the new one serves. After `service.hand_over_grace`, the
  controller removes the old one. A load balancer that `id` names, or that `preserve-lb-on-delete` keeps, stays; only what was made
  for the Service on it is removed. The event `LoadBalancerHandOver` reports the move and names the controller that must run. The
  official controller leaves the old load balancer behind.
- `service.disable_public` also applies to network load balancers.
- A server group behind a TLS listener has the protocol TCP and does not preserve client addresses, as the API requires. A setting
  that has no effect is reported once.
- An event reports an invalid value. What the value is about stays unchanged, or is not created; the controller reconciles the rest.
- A load balancer that was deleted outside of the cluster is created again, with another DNS name. A listener that was changed there
  is repaired.
- Pods outside of the VPC are left out, and an event reports them; the other backends of their group are added. Without another
  one, the group keeps those that it has. The blocks of the VPC are read again each minute.
- No listener is created before the load balancer has joined the security groups that the Service asks for.
- The event `PreservedOnDelete` is written when a load balancer is kept, not before.
- If the annotation `id` changes to another load balancer, an event asks to create the Service again. Until then the former load
  balancer serves, its backends follow the endpoints, and server groups of the other one get no backends. When the Service is deleted,
  its listeners and server groups on the former load balancer are deleted, even if `id` or `force-override-listeners` was removed; a
  user's load balancer stays. An event names a user's listener there that still uses such a group.

## Names in PrivateZone

The controller `pvtz` runs where `controllers` lists it, and with `*` where `[pvtz]` states a zone. Names are those of the official
controller, relative to the zone, with these differences:

- Every `pvtz.period` the controller compares the whole zone. It updates records whose TTL differs, and removes records of Services
  that were deleted while no controller ran. The zone must be bound to the VPC of the cluster.
- A changed value is written with one `UpdateZoneRecord`, so that the name always resolves. `AAAA` records behave like `A` records.
- The remark of a record names the cluster: the beginning of `cloud.cluster_id`, and a hash of it and of the uid of the namespace
  `kube-system`. Only a record with exactly this remark is changed. The official controller shares one remark between all clusters.
- Records that the official controller wrote stay. A record with the desired value continues to serve. One with another value is a
  conflict, which an event names until a user deletes the record. Delete these records once this controller runs, a few at a time: each is
  written again, with the remark of the cluster, after `pvtz.period` at the latest.
- An `SRV` record has the port on which the address of the name listens: that of the Service, or, for a headless Service, that
  of its endpoints. Its target is a full name, with the zone. The official controller writes the target port for every Service, and
  a target without the zone.
- A host name in the status of a Service of type LoadBalancer, as with a network load balancer, gets a `CNAME` record.
- A pod of a headless Service that has a host name has records of its own, as Kubernetes' DNS specification says, and is the target
  of `SRV` records. With `pvtz.nodes = true`, nodes have `A` and `AAAA` records. The official controller has neither.
- `PTR` records are in the same zone, as those of the official controller, for every address that a Service or a named pod
  has. The official controller writes one for each Service. IPv6 addresses are written in full.
- Services whose endpoints are not known keep their records. No record is removed when the controller is switched off, or when it
  gets another zone.

## Results

The complete list of differences in the results of a set of Services that both controllers reconciled. Steps are counted from 1.
";

const SERVES: &str = "What one port lacks keeps no other port from its clients.";
const SETTINGS: &str = "A warning reports, once, a setting that has no effect, alone or in combination.";
const ENSURED: &str = "EnsuredLoadBalancer";
const ENSURED_TOLD: &str = "EnsuredLoadBalancer, LoadBalancerSettings";
const CHANGED: &str = "AnnotationChanged, EnsuredLoadBalancer";
const CHANGED_TOLD: &str = "AnnotationChanged, EnsuredLoadBalancer, LoadBalancerSettings";
const LEFT_ALONE: &str = "A load balancer that the Service could not use stays unchanged when the Service is deleted; the official \
     controller tags another cluster's load balancer then.";

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
    differs("cert-missing", 0, "service labels", "", "service.k8s.alibaba/loadbalancer-id", SERVES),
    differs("cert-missing", 0, "service status ingress", "absent", "1 of them", SERVES),
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
