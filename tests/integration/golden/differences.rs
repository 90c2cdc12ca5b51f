//! Where Services end up otherwise than with the official controller, on purpose.

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
pub(super) const INTRODUCTION: &str = "# Where this differs from the official controller

Services on classic load balancers get what the official controller (v2.14.0) gives them: the same annotations, names, tags,
listeners, server groups, weights, status and events, so that a cluster can move over, and back. The differences are on
purpose.

## In how it works

- Load balancers are compared with what the Service asks for whenever something may have changed, and every
  `service.drift_check`; a label does not decide whether to look. The label `service.beta.kubernetes.io/hash` is not written,
  and removed with the finalizer.
- `spec.loadBalancerSourceRanges` and `spec.sessionAffinity: ClientIP`, which the official controller ignores, are kept: by an
  access control list of the Service, and by persistence of TCP listeners. On a Service that comes from the official
  controller, which its label `service.beta.kubernetes.io/hash` tells, listeners that are there stay open and without
  persistence, so that nobody is shut out by the move; an event says so. The two come into force when one of them is changed,
  or when the label is removed: `kubectl label service NAME service.beta.kubernetes.io/hash-`.
- A load balancer that was deleted outside of the cluster is made again once two looks, ten seconds apart, have proven that it
  is gone; the address can be another one, and an event says so. Where its absence cannot be proven, nothing is made.
- A server group that is no longer wanted, or that has to go with its Service, and that a listener of a user still needs, is
  told with the name of that listener.
- A change of how traffic is charged, which takes effect at midnight, is waited for and not asked for again.
- The status says of each port of an address whether it is served, where the API server knows `ports`.
- A load balancer of another cluster, a listener, a server group or a backend that is not provably of the Service is never
  changed. A port of a user's load balancer that somebody else's listener holds is a problem of the Service, not taken over.
- Everything that is wrong with a Service is told in one event, before any call; a value that the API would refuse is not sent.
- Deleting a Service looks at nothing but what has to go: it works on IPv6 load balancers of users, with
  `service.disable_public`, and with annotations that are wrong.
- A load balancer kept by `preserve-lb-on-delete` keeps its listeners and server groups, and goes on serving.
- Certificates of `domain-extensions` can be changed, and removed by an empty value.
- When the class or type annotation gives a Service to another controller, its load balancer is kept until the Service is
  deleted or given back, and an event says so.
- `PayBySpec` can become `PayByCLCU`; the other way, which the API refuses, is a problem that says so.
- An instance charged by `PayByCLCU` cannot change how traffic is charged; this is told without asking the API.

## In what is seen

These are all differences in the outcome of a set of Services that both controllers were given. Steps are counted from 1.
";

const NOTHING_HELD: &str = "A Service that cannot be understood is not held up: nothing was made for it, so it gets no finalizer, \
     and goes at once when it is deleted.";
const SETTINGS: &str = "A setting that has no effect, alone or in combination, is told, once, by a warning, instead of being ignored \
     silently.";
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
    differs("hc-number-bad", 0, "service finalizers", "service.k8s.alibaba/resources", "", NOTHING_HELD),
    differs("hc-number-bad", 1, "events", "CleanLoadBalancer, DeleteTimestampChanged", "", NOTHING_HELD),
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
