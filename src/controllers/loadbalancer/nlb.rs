//! Network load balancers as a [`Product`]: the reads and writes; what they mean is in [`crate::plan::nlb`].

mod groups;
mod jobs;
pub(super) mod orphans;
mod perform;
mod reads;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;

use self::jobs::Jobs;
use super::pages::Pages;
use super::product::{Completed, Due, ListedBy, Product, Search, Settled, Write};
use super::together::Together;
use super::tolerance::tolerate;
use crate::alibaba::ecs::Ecs;
use crate::alibaba::nlb::{ListedGroup, Nlb as Api};
use crate::alibaba::vpc::Vpc;
use crate::alibaba::{CloudClient, Fault};
use crate::config::Config;
use crate::plan::inputs::NodeView;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::goal;
use crate::plan::loadbalancer::operation::Part;
use crate::plan::loadbalancer::ownership::{MARK_TAG, Owner};
use crate::plan::loadbalancer::settings::{ServiceOptions, state_enough_zones};
use crate::plan::location::CloudLocation;
use crate::plan::nlb::desired::NlbModel;
use crate::plan::nlb::model::ListenerKey;
use crate::plan::nlb::observed::{Observed, ObservedInstance, ObservedListener};
use crate::plan::nlb::operation::{Operation, Plan};

/// The API of network load balancers, and of what they use.
#[derive(Debug)]
pub(crate) struct NlbProduct {
    api: Api,
    /// Security groups.
    ecs: Ecs,
    vpc: Vpc,
    location: Arc<CloudLocation>,
    instances: Pages<Vec<ObservedInstance>>,
    listeners: Pages<LiteMap<ListenerKey, Box<ObservedListener>>>,
    /// By the mark that they have from their Service.
    groups: Pages<Vec<ListedGroup>>,
    jobs: Jobs,
    /// Load balancers that are being made.
    looked_at: Together<ObservedInstance>,
}

impl NlbProduct {
    pub(super) fn new(cloud: &CloudClient, location: Arc<CloudLocation>) -> Self {
        Self {
            api: cloud.nlb.clone(),
            ecs: cloud.ecs.clone(),
            vpc: cloud.vpc.clone(),
            location,
            instances: Pages::default(),
            listeners: Pages::default(),
            groups: Pages::default(),
            jobs: Jobs::default(),
            looked_at: Together::default(),
        }
    }
}

/// What a Service asks for.
pub(crate) type Goal = goal::Goal<NlbModel>;

/// Most servers in one call. Source: the documentation of `AddServersToServerGroup`.
const MOST_SERVERS: usize = 200;

impl Product for NlbProduct {
    type Model = NlbModel;

    const CONTROLLER: &'static str = super::NLB;
    const COMPONENT: &'static str = "nlb-controller";

    fn options(config: &Config) -> ServiceOptions {
        let nlb = &config.nlb;
        ServiceOptions {
            concurrency: nlb.concurrency,
            drift_check: nlb.drift_check,
            backend_batch_size: MOST_SERVERS,
            ..config.service.clone()
        }
    }

    async fn read(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<Observed, Fault> {
        self.read_instance(owner, id, due).await.map(Observed::alone)
    }

    async fn last_marked(&self, owner: &Owner, due: Due<'_>) -> Option<Observed> {
        let mut marked = match self.listed_instances(owner, due).await {
            Some(listed) => listed,
            None => self.api.find_by_tag(MARK_TAG, &owner.default_name()).await.ok()?,
        };
        let last = marked.pop().filter(|it| marked.is_empty() && owner.owns_tagged(&it.tags))?;
        Some(Observed::alone(last))
    }

    async fn list(&self, by: ListedBy<'_>) -> Result<Vec<Observed>, Fault> {
        let listed = match by {
            ListedBy::Tag(key, value) => self.api.find_by_tag(key, value).await?,
            ListedBy::Name(name) => self.api.find_by_name(name).await?,
        };
        Ok(listed.into_iter().map(Observed::alone).collect())
    }

    async fn complete(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        known: Option<&Observed>,
        search: &Search<'_>,
    ) -> Result<Completed, Fault> {
        let (mut unread, due) = (Vec::new(), search.due);
        if let Some(known) = known {
            // Those that the list lacks are asked for.
            observed.groups.clone_from(&known.groups);
        }
        let listed = tolerate(&mut unread, self.list_groups(goal.owner(), observed, search).await)?;
        observed.groups_unread = listed.is_none();
        if let Some(known) = known {
            if known.listeners.is_some() {
                observed.listeners = tolerate(&mut unread, self.read_listeners(observed, due).await)?;
            }
            observed.remember(known);
        }
        unread.extend(self.read_needs(goal, observed, search).await?);
        // A server group that a listener of ours names exists, whatever the list shows.
        let named = observed.groups_of_listeners(goal.owner());
        let named = tolerate(&mut unread, self.read_unlisted(goal.owner(), observed, named, &search.made).await)?;
        observed.groups_unread |= named.is_none();
        if observed.groups_unread {
            // Nothing is known of the list.
            observed.unlisted.clear();
        }
        let shows_all_made = Some(listed.unwrap_or_default() && named.unwrap_or_default());
        if unread.is_empty() {
            // Groups that only listeners name have backends.
            unread = self.read_needs(goal, observed, search).await?;
        }
        observed.note_what_is_busy(search.busy_for);
        Ok(Completed { shows_all_made, unread })
    }

    async fn settle(&self, observed: &mut Observed, passed: Duration) -> Result<Settled, Fault> {
        self.settle_jobs(observed, passed).await
    }

    async fn refresh(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        plan: &Plan,
        search: &Search<'_>,
    ) -> Result<(), Fault> {
        let Some(instance) = &mut observed.instance else { return Ok(()) };
        // What is joined and left are attributes of the load balancer.
        if plan.touches(Part::Instance) || plan.touches(Part::Access) {
            *instance = self.api.describe_instance(&instance.id).await?;
        }
        if plan.touches(Part::Groups) {
            self.list_groups(goal.owner(), observed, search).await?;
        }
        if plan.touches(Part::Listeners) {
            observed.listeners = None;
        }
        if plan.touches(Part::Access) {
            observed.parts.security_groups = None;
        }
        let unread = self.read_needs(goal, observed, &Search { due: None, ..search.clone() }).await?;
        observed.note_what_is_busy(search.busy_for);
        unread.into_iter().next().map_or(Ok(()), Err)
    }

    async fn place(&self, goal: &mut Goal, nodes: &[Arc<NodeView>]) -> Result<(), Fault> {
        let Some(desired) = goal.desired_mut().filter(|desired| desired.instance.near_nodes) else { return Ok(()) };
        let stated = &desired.extra.vswitches;
        let found = match state_enough_zones(stated) {
            true => Vec::new(),
            false => self.vpc.describe_vswitches(&self.location.vpc_id).await?,
        };
        desired.instance.create.zones = zones::chosen_zones(stated, found, nodes);
        Ok(())
    }

    async fn perform(&self, write: &Write<'_>, operation: &Operation, observed: &Observed) -> Result<Answer, Fault> {
        let api = self.api.on(write.priority.clone());
        let answer = perform::perform((&api, &self.ecs), write, operation, observed).await?;
        if !answer.job.is_empty() {
            self.jobs.remember(&answer.job);
        }
        Ok(answer)
    }
}
