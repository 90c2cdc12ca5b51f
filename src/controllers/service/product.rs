//! The seam between the engine and a load balancer product.
//!
//! A product says what a Service asks for, what the cloud has, and which steps lie between; and it carries out one step.
//! Everything else is the engine's: when a Service is reconciled, what is remembered, in which order steps run, what a refusal
//! means for the rest, what is written back, and which events users get.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::creations::Made;
use super::refusals::RefusedCall;
use crate::alibaba::{Fault, Priority};
use crate::config::Config;
use crate::fence::Permit;
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::service::handling::{Departure, LoadBalancerKind};
use crate::plan::service::model::{DesiredGroup, Inputs};
use crate::plan::service::observed::ObservedModel;
use crate::plan::service::orphans::TaggedInstance;
use crate::plan::service::ownership::Owner;
use crate::plan::service::problem::ServiceProblem;
use crate::plan::service::settings::{ServiceOptions, ServiceSettings};
use crate::plan::service::steps::{Operation, Plan, Step};
use crate::plan::service::unready::UnreadyNodes;

/// One load balancer product. Functions without `self` are pure.
pub(crate) trait Product: Debug + Send + Sync + 'static {
    /// What a Service asks for: a load balancer, or that nothing of it is left.
    type Goal: Send + Sync;
    /// What the cloud has.
    type Observed: ObservedModel + Send + Sync;
    /// One write.
    type Operation: Operation + Clone + Send + Sync;
    /// What the cloud answers to a write.
    type Answer: Send;

    /// The controller's name in logs, metrics and plans.
    const CONTROLLER: &'static str;
    /// The component that its events name.
    const COMPONENT: &'static str;
    /// Which Services it is about.
    const KIND: LoadBalancerKind;

    /// What the configuration says of this product.
    fn options(config: &Config) -> ServiceOptions {
        config.service.clone()
    }

    /// Addresses of pods that become backends themselves, and whose network interface must be known.
    fn attached_pods(
        service: &ServiceView,
        nodes: &[Arc<NodeView>],
        endpoints: &EndpointsView,
        settings: &ServiceSettings,
    ) -> BTreeSet<IpAddr>;

    /// What a managed Service asks for. What is wrong with it comes out of the diff, which leaves what a problem is about as it
    /// is.
    fn desire(inputs: &Inputs<'_>) -> Self::Goal;

    /// What a Service that leaves asks for: that nothing of it is left.
    fn removal(service: &ServiceView, settings: &ServiceSettings) -> Self::Goal;

    /// What the engine needs to know of a goal.
    fn facts(goal: &Self::Goal) -> Facts<'_>;

    /// What is left of a Service that leaves; `None` for one that is managed.
    fn departure(goal: &mut Self::Goal) -> Option<&mut Departure>;

    /// The steps from what was observed to the goal.
    fn diff(goal: &Self::Goal, observed: &Self::Observed) -> Plan<Self::Operation>;

    /// Those of them that only keep the backends of server groups that exist in sync.
    fn follow(goal: &Self::Goal, observed: &Self::Observed) -> Plan<Self::Operation>;

    /// Moves what was observed forward, as the cloud does when the operation succeeds.
    fn apply(observed: &mut Self::Observed, operation: &Self::Operation, answer: &Self::Answer);

    /// Whether a step has to wait for what the cloud still carries out.
    fn must_wait(_observed: &Self::Observed, _step: &Step<Self::Operation>) -> bool {
        false
    }

    /// In what time it is worth a look what became of what the cloud still carries out; `None` if nothing is under way.
    fn look_again(_observed: &Self::Observed) -> Option<Duration> {
        None
    }

    /// What else a label of the Service should say, `None` if the label should not be there.
    fn further_label(_observed: &Self::Observed) -> Option<(&'static str, Option<&str>)> {
        None
    }

    /// What the status of the Service should say. `elastic` are the elastic addresses bound to the load balancer, if they were
    /// asked for.
    fn ingress(goal: &Self::Goal, observed: &Self::Observed, elastic: &[String]) -> Vec<Ingress>;

    /// What newer API servers hold of each entry of `ingress` besides; `ip_mode` if they know that field.
    fn ingress_details(
        service: &ServiceView,
        goal: &Self::Goal,
        observed: &Self::Observed,
        ingress: &[Ingress],
        ip_mode: bool,
    ) -> Vec<IngressDetails>;

    /// Shares between load balancers what they have in common, before what was observed is remembered.
    fn compact(&self, _observed: &mut Arc<Self::Observed>) {}

    /// Reads once what many Services need, so that none has to wait for it.
    fn warm(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Looks up what the goal itself depends on besides the cluster.
    fn resolve(&self, goal: &mut Self::Goal) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Reads one load balancer, without its parts. A list page may answer where several are `due`; a
    /// [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) fault proves that it does not exist.
    fn read(&self, owner: &Owner, id: &str, due: Due<'_>)
    -> impl Future<Output = Result<Self::Observed, Fault>> + Send;

    /// Lists load balancers, without their parts.
    fn list(&self, by: ListedBy<'_>) -> impl Future<Output = Result<Vec<Self::Observed>, Fault>> + Send;

    /// Reads what a diff needs and was not read yet. One read that fails by itself does not spoil the others.
    fn complete(
        &self,
        goal: &Self::Goal,
        observed: &mut Self::Observed,
        search: &Search<'_>,
    ) -> impl Future<Output = Result<Completed, Fault>> + Send;

    /// Reads what list pages show of a known load balancer, and its server groups if `groups`; they are as they were known
    /// otherwise. `None` if they do not show it. Without list pages, there is nothing to save.
    fn confirm(
        &self,
        _goal: &Self::Goal,
        _known: &Self::Observed,
        _groups: bool,
        _search: &Search<'_>,
    ) -> impl Future<Output = Result<Option<Confirmed<Self::Observed>>, Fault>> + Send {
        async { Ok(None) }
    }

    /// Looks what became of what the cloud still carried out.
    fn settle(&self, _observed: &mut Self::Observed) -> impl Future<Output = Result<Settled, Fault>> + Send {
        async { Ok(Settled::default()) }
    }

    /// Reads a known load balancer again, by the ids of its parts: with fewer calls than a search takes. `None` if that is not
    /// possible, as some part is gone.
    fn reread(
        &self,
        _goal: &Self::Goal,
        _known: &Self::Observed,
        _search: &Search<'_>,
    ) -> impl Future<Output = Result<Option<Self::Observed>, Fault>> + Send {
        async { Ok(None) }
    }

    /// Reads those parts again that a plan made from memory would change.
    fn refresh(
        &self,
        goal: &Self::Goal,
        observed: &mut Self::Observed,
        plan: &Plan<Self::Operation>,
        search: &Search<'_>,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Chooses where a load balancer that is to be made goes, where the Service does not say it.
    fn place(&self, goal: &mut Self::Goal, nodes: &[Arc<NodeView>]) -> impl Future<Output = ()> + Send;

    /// The Service is gone, with all that it had.
    fn forget(&self, _owner: &Owner) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The elastic addresses bound to the load balancer.
    fn elastic_addresses(&self, id: &str) -> impl Future<Output = Result<Vec<String>, Fault>> + Send;

    /// Makes exactly one write.
    fn perform(
        &self,
        write: &Write<'_>,
        operation: &Self::Operation,
        observed: &Self::Observed,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;
}

/// By what load balancers are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListedBy<'a> {
    /// A tag: key and value.
    Tag(&'a str, &'a str),
    /// The visible name.
    Name(&'a str),
}

/// What the engine needs to know of a goal.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    /// Whose load balancer it is.
    pub(crate) owner: &'a Owner,
    /// The load balancer of a user that the Service names.
    pub(crate) named: Option<&'a str>,
    /// Whether a load balancer of ours is kept when the Service leaves.
    pub(crate) is_kept: bool,
    /// Server groups.
    pub(crate) groups: &'a BTreeMap<String, DesiredGroup>,
    /// What the Service says without an effect.
    pub(crate) warnings: &'a [ServiceProblem],
    /// Ports without a single backend.
    pub(crate) empty_ports: Vec<String>,
    /// Nodes that may serve and are not ready.
    pub(crate) unready: &'a UnreadyNodes,
    /// Addresses of pods inside the VPC for which no network interface was found.
    pub(crate) unresolved: &'a BTreeSet<IpAddr>,
    /// Addresses of pods outside the VPC, left out.
    pub(crate) outside: &'a BTreeSet<IpAddr>,
    /// Whether elastic addresses are published.
    pub(crate) publishes_elastic: bool,
}

impl<'a> Facts<'a> {
    /// Of a goal without server groups.
    pub(crate) fn of(owner: &'a Owner, named: Option<&'a str>) -> Self {
        static NO_GROUPS: BTreeMap<String, DesiredGroup> = BTreeMap::new();
        static NO_ADDRESSES: BTreeSet<IpAddr> = BTreeSet::new();
        Self {
            owner,
            named,
            is_kept: false,
            groups: &NO_GROUPS,
            warnings: &[],
            empty_ports: Vec::new(),
            unready: UnreadyNodes::NONE,
            unresolved: &NO_ADDRESSES,
            outside: &NO_ADDRESSES,
            publishes_elastic: false,
        }
    }

    /// Of a Service that leaves.
    pub(crate) fn leaving(owner: &'a Owner, departure: &'a Departure) -> Self {
        let is_kept = departure.preserve && departure.reuse.is_none();
        Self { is_kept, ..Self::of(owner, departure.reuse.as_deref()) }
    }

    /// What names the load balancer among those that writes go to.
    pub(crate) fn lock(&self) -> String {
        self.named.map_or_else(|| self.owner.default_name(), str::to_owned)
    }

    /// Whether it is the load balancer that the goal is about.
    pub(crate) fn is_about(&self, instance: &TaggedInstance<'_>) -> bool {
        match self.named {
            Some(id) => instance.id == id,
            None => self.owner.owns_load_balancer(instance.name, instance.tags),
        }
    }
}

/// What makes the creation of one load balancer the same creation however often it is tried, by whichever replica.
#[derive(Clone, Debug)]
pub(crate) struct CreationToken {
    pub(crate) cluster_id: String,
    pub(crate) service_uid: String,
    /// The load balancer that this one replaces, empty for the first: a replacement must not be taken for the original.
    pub(crate) incarnation: String,
}

impl CreationToken {
    /// The client token. It says nothing of parameters, which can change between two tries of the same creation: those after
    /// one that made something give that, or are refused until a list shows it.
    pub(crate) fn text(&self) -> String {
        use sha1::{Digest, Sha1};
        let mut hash = Sha1::new();
        for part in [self.cluster_id.as_str(), &self.service_uid, &self.incarnation] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What one write needs besides its operation.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) permit: &'a Permit,
    pub(crate) token: &'a CreationToken,
    /// Changes of backends that serve pass before everything else where quotas are short.
    pub(crate) priority: Priority,
}

/// How many load balancers are due at about this time, so that list pages are worth it; asked only where a list would have to
/// be made. `None` if a list is no proof: what is read follows a write of our own.
pub(crate) type Due<'a> = Option<&'a (dyn Fn() -> usize + Send + Sync)>;

/// What helps to find things of one Service.
#[derive(Clone)]
pub(crate) struct Search<'a> {
    /// The id in the Service's label; empty if it has none.
    pub(crate) label: &'a str,
    /// What was made a short while ago: no list may show it yet.
    pub(crate) made: Made,
    pub(crate) due: Due<'a>,
}

impl Search<'_> {
    /// The load balancer that the Service had when it was last in sync.
    pub(crate) fn label(&self) -> Option<&str> {
        Some(self.label).filter(|label| !label.is_empty())
    }
}

/// What became of what the cloud still carried out.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// What failed, as the plan prints it.
    pub(crate) failed: Vec<(String, Fault)>,
    /// Backends that were to be added by what failed.
    pub(crate) not_added: Vec<RefusedCall>,
    /// The load balancer that was to be made and is not there.
    pub(crate) made_and_gone: Option<String>,
    /// Whether what is there must be read to know it.
    pub(crate) is_unknown: bool,
}

/// What it came to to read a load balancer whole.
#[derive(Debug)]
pub(crate) struct Completed {
    /// Whether the lists showed everything that was made a short while ago.
    pub(crate) shows_all_made: bool,
    /// Reads that failed: what they would have shown is unknown, and the diff leaves it as it is.
    pub(crate) unread: Vec<Fault>,
}

/// What list pages showed of a load balancer.
#[derive(Debug)]
pub(crate) struct Confirmed<O> {
    pub(crate) observed: O,
    /// Whether the list of server groups showed everything that was made a short while ago, if it was read.
    pub(crate) shows_all_made: bool,
}
