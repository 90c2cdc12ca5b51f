//! The seam between the engine and a load balancer product.
//!
//! A product defines the desired state of a Service, the observed state in the cloud and the steps between them; and it
//! executes one step. Everything else is the engine's: when a Service is reconciled, what is cached, in which order steps run,
//! what the refusal of a step means for the others, what is written back, and which events users get.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::creations::Made;
use super::refusals::RefusedCall;
use crate::alibaba::{Fault, Priority};
use crate::config::Config;
use crate::fence::Permit;
use crate::plan::digest;
use crate::plan::inputs::NodeView;
use crate::plan::loadbalancer::applied::{self, Applied};
use crate::plan::loadbalancer::cloud::{Answer, Observed};
use crate::plan::loadbalancer::desired::ProductModel;
use crate::plan::loadbalancer::goal::Goal;
use crate::plan::loadbalancer::group_diff::GroupModel;
use crate::plan::loadbalancer::model::ObservedGroup;
use crate::plan::loadbalancer::operation::Operation;
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, Owner};
use crate::plan::loadbalancer::settings::ServiceOptions;
use crate::plan::loadbalancer::steps::Plan;

/// One load balancer product. Functions without `self` are pure.
pub(crate) trait Product: Debug + Send + Sync + 'static {
    /// What is planned without a look at the cloud.
    type Model: GroupModel;

    /// The controller's name in logs, metrics and plans.
    const CONTROLLER: &'static str;
    /// The component that its events name.
    const COMPONENT: &'static str;
    /// Which Services it handles.
    const KIND: LoadBalancerKind = Self::Model::KIND;

    /// The part of the configuration for this product.
    fn options(config: &Config) -> ServiceOptions {
        config.service.clone()
    }

    /// Reads one load balancer, without its parts. A list page may answer where several are `due`; a
    /// [`FaultKind::Gone`](crate::alibaba::FaultKind::Gone) fault proves that it does not exist.
    fn read(
        &self,
        owner: &Owner,
        id: &str,
        due: Due<'_>,
    ) -> impl Future<Output = Result<Observed<Self::Model>, Fault>> + Send;

    /// The load balancer of a Service that leaves, if lists show it as the only one with the mark of the Service.
    fn last_marked(&self, _owner: &Owner, _due: Due<'_>) -> impl Future<Output = Option<Observed<Self::Model>>> + Send {
        async { None }
    }

    /// Lists load balancers, without their parts.
    fn list(&self, by: ListedBy<'_>) -> impl Future<Output = Result<Vec<Observed<Self::Model>>, Fault>> + Send;

    /// Reads the parts that a diff needs and that were not read yet. With `known`, it copies from there the parts that no list
    /// shows. A failed read does not affect the others.
    fn complete(
        &self,
        goal: &Goal<Self::Model>,
        observed: &mut Observed<Self::Model>,
        known: Option<&Observed<Self::Model>>,
        search: &Search<'_>,
    ) -> impl Future<Output = Result<Completed, Fault>> + Send;

    /// Reads the status of pending jobs of the cloud. `_passed` is the time since the last look at them.
    fn settle(
        &self,
        _observed: &mut Observed<Self::Model>,
        _passed: Duration,
    ) -> impl Future<Output = Result<Settled, Fault>> + Send {
        async { Ok(Settled::default()) }
    }

    /// Reads the parts again that a plan from cached state would change.
    fn refresh(
        &self,
        goal: &Goal<Self::Model>,
        observed: &mut Observed<Self::Model>,
        plan: &Plan<Self::Model>,
        search: &Search<'_>,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Chooses the zone and vSwitch of a new load balancer, where the Service does not state them.
    ///
    /// # Errors
    /// The cloud did not list what a creation needs.
    fn place(
        &self,
        goal: &mut Goal<Self::Model>,
        nodes: &[Arc<NodeView>],
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// The Service and everything that was created for it are gone.
    fn forget(&self, _owner: &Owner) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The elastic addresses bound to the load balancer.
    fn elastic_addresses(&self, _id: &str) -> impl Future<Output = Result<Vec<String>, Fault>> + Send {
        async { Ok(Vec::new()) }
    }

    /// Executes exactly one write.
    fn perform(
        &self,
        write: &Write<'_>,
        operation: &Operation<Self::Model>,
        observed: &Observed<Self::Model>,
    ) -> impl Future<Output = Result<Answer, Fault>> + Send;
}

/// By what load balancers are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListedBy<'a> {
    /// A tag: key and value.
    Tag(&'a str, &'a str),
    /// The visible name.
    Name(&'a str),
}

impl<M: ProductModel> Goal<M> {
    /// What was `applied` and is there still: what is asked for, what keeps ranges, and server groups of users that hold
    /// backends of ours.
    pub(crate) fn still_applied(&self, applied: &Applied, observed: &Observed<M>) -> Applied {
        let is_ours = |group: &ObservedGroup| {
            let mut members = group.members().iter();
            group.backends.is_none() || members.any(|backend| self.owner().owns_backend(&backend.description))
        };
        let held = applied.iter().filter(|item| match item.as_str() {
            applied::SOURCE_RANGES => M::may_keep_ranges(&observed.parts, self.owner()),
            item => observed.groups.get(item).is_some_and(is_ours),
        });
        held.chain(self.desired().into_iter().flat_map(|desired| &desired.applies)).cloned().collect()
    }

    /// Whether what was observed is the load balancer that the goal is about.
    pub(crate) fn is_about(&self, observed: &Observed<M>) -> bool {
        observed.tagged().is_some_and(|instance| match self.named() {
            Some(id) => instance.id == id,
            None => self.owner().owns_load_balancer(instance.name, instance.tags),
        })
    }
}

/// Identifies the creation of one load balancer, so that retries by any replica create it once.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreationToken {
    pub(crate) cluster_id: String,
    pub(crate) service_uid: String,
    /// Tells it from those that the Service has had: see [`LoadBalancerKind::incarnation`].
    pub(crate) incarnation: String,
}

impl CreationToken {
    /// The client token. It does not depend on parameters, which can change between two attempts: after a successful one,
    /// further attempts return that load balancer, or are refused until a list shows it.
    pub(crate) fn text(&self) -> String {
        let parts = [self.cluster_id.as_str(), &self.service_uid, &self.incarnation];
        let whole: Vec<u8> =
            parts.iter().flat_map(|part| [&part.len().to_be_bytes(), part.as_bytes()].concat()).collect();
        digest::hex(&whole)
    }
}

/// What one write needs besides its operation.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    pub(crate) permit: &'a Permit,
    pub(crate) token: &'a CreationToken,
    /// Where a quota is short, changes of backends that serve come first.
    pub(crate) priority: Priority,
}

/// When a list may answer for one load balancer; `None` if only its own read is proof.
pub(crate) type Due<'a> = Option<DueTogether<'a>>;

/// Several load balancers are due at about this time.
#[derive(Clone, Copy)]
pub(crate) struct DueTogether<'a> {
    /// How many, which decides whether list pages save calls; called only where a list would have to be read.
    pub(crate) count: &'a (dyn Fn() -> usize + Send + Sync),
    /// When this process last changed this one, or saw it change: an older list is no proof.
    pub(crate) changed_at: Option<Instant>,
}

/// What helps to find things of one Service.
#[derive(Clone, Default)]
pub(crate) struct Search<'a> {
    /// The id in the Service's label.
    pub(crate) label: Option<&'a str>,
    /// What was created recently: lists may not show it yet.
    pub(crate) made: Made,
    pub(crate) due: Due<'a>,
    /// For how long the cloud has carried something out of which no job is known.
    pub(crate) busy_for: Duration,
}

/// The outcome of jobs of the cloud.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// What failed, as the plan prints it.
    pub(crate) failed: Vec<(String, Fault)>,
    /// Backends that failed jobs were to add.
    pub(crate) not_added: Vec<RefusedCall>,
    /// The load balancer that a job was to create, and that does not exist.
    pub(crate) made_and_gone: Option<String>,
    /// Whether the state must be read to know it.
    pub(crate) is_unknown: bool,
}

/// The outcome of reading a whole load balancer.
#[derive(Debug)]
pub(crate) struct Completed {
    /// Whether the lists showed everything that was made a short while ago; `None` if server groups were not listed.
    pub(crate) shows_all_made: Option<bool>,
    /// Reads that failed: what they would have shown is unknown, and the diff does not change it.
    pub(crate) unread: Vec<Fault>,
}
