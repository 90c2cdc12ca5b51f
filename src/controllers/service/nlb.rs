//! Network load balancers as a [`Product`]: the reads and writes; what they mean is in [`crate::plan::nlb`].

mod groups;
mod jobs;
pub(super) mod orphans;
mod perform;
mod placement;
mod reads;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use litemap::LiteMap;

use self::placement::Placement;
use super::pages::Pages;
use super::product::{Completed, Due, Facts, ListedBy, Product, Search, Settled, Write};
use super::tolerance::tolerate;
use crate::alibaba::ecs::Ecs;
use crate::alibaba::nlb::{ListedGroup, Nlb as Api};
use crate::alibaba::vpc::Vpc;
use crate::alibaba::{CloudClient, Fault};
use crate::config::Config;
use crate::plan::inputs::{EndpointsView, Ingress, IngressDetails, NodeView, ServiceView};
use crate::plan::location::CloudLocation;
use crate::plan::nlb::desire;
use crate::plan::nlb::desired::Desired;
use crate::plan::nlb::diff::diff;
use crate::plan::nlb::model::ListenerKey;
use crate::plan::nlb::needs::MissingReads;
use crate::plan::nlb::observed::{Answer, Observed, ObservedInstance, ObservedListener};
use crate::plan::nlb::operation::{Operation, Step};
use crate::plan::nlb::origins;
use crate::plan::nlb::status::{expected_details, expected_ingress};
use crate::plan::nlb::teardown::{teardown, teardown_needs};
use crate::plan::service::backends::{Inputs, KnownNodes};
use crate::plan::service::group_diff;
use crate::plan::service::handling::{Departure, LoadBalancerKind};
use crate::plan::service::ownership::{LABEL_SECURITY_GROUP, Owner};
use crate::plan::service::settings::{ServiceOptions, ServiceSettings};
use crate::plan::service::steps::{Part, Plan};
use crate::plan::setting::SettingOrigin;

/// The API of network load balancers, and of what they use.
#[derive(Debug)]
pub(crate) struct NetworkProduct {
    api: Api,
    /// Security groups.
    ecs: Ecs,
    vpc: Vpc,
    location: Arc<CloudLocation>,
    instances: Pages<Vec<ObservedInstance>>,
    listeners: Pages<LiteMap<ListenerKey, Box<ObservedListener>>>,
    /// By the mark that they have from their Service.
    groups: Pages<Vec<ListedGroup>>,
}

impl NetworkProduct {
    pub(super) fn new(cloud: &CloudClient, location: Arc<CloudLocation>) -> Self {
        Self {
            api: cloud.nlb.clone(),
            ecs: cloud.ecs.clone(),
            vpc: cloud.vpc.clone(),
            location,
            instances: Pages::default(),
            listeners: Pages::default(),
            groups: Pages::default(),
        }
    }
}

/// What a Service asks for.
#[derive(Debug)]
pub(crate) enum Goal {
    /// This load balancer, with what else decides about it.
    Ensure(Box<Desired>, Hints),
    /// That nothing of the Service is left.
    Remove(Owner, Departure),
}

/// What the Service and the configuration say besides.
#[derive(Debug)]
pub(crate) struct Hints {
    /// Where a load balancer is made if nothing else says where.
    placement: Placement,
    /// Whether there was a security group of ours when the Service was last in sync.
    had_security_group: bool,
}

impl Goal {
    fn owner(&self) -> &Owner {
        match self {
            Self::Ensure(desired, _) => &desired.owner,
            Self::Remove(owner, _) => owner,
        }
    }

    fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired, hints) => {
                let mut needs = desired.needs(observed);
                needs.security_groups |= hints.had_security_group && observed.security_groups.is_none();
                needs
            }
            Self::Remove(owner, departure) => teardown_needs(owner, departure, observed),
        }
    }
}

/// Most servers in one call. Source: the documentation of `AddServersToServerGroup`.
const MOST_SERVERS: usize = 200;

impl Product for NetworkProduct {
    type Goal = Goal;
    type Observed = Observed;
    type Operation = Operation;
    type Answer = Answer;

    const CONTROLLER: &'static str = super::NLB;
    const COMPONENT: &'static str = "nlb-controller";
    const KIND: LoadBalancerKind = LoadBalancerKind::Network;

    fn options(config: &Config) -> ServiceOptions {
        let nlb = &config.nlb;
        ServiceOptions {
            concurrency: nlb.concurrency,
            drift_check: nlb.drift_check,
            backend_batch_size: MOST_SERVERS,
            ..config.service.clone()
        }
    }

    fn attached_pods(
        service: &ServiceView,
        nodes: &dyn KnownNodes,
        endpoints: &EndpointsView,
        settings: &ServiceSettings,
    ) -> BTreeSet<IpAddr> {
        desire::addresses_to_resolve(service, nodes, endpoints, settings)
    }

    fn desire(inputs: &Inputs<'_>) -> Goal {
        let had_security_group = inputs.service.labels.contains_key(LABEL_SECURITY_GROUP);
        let hints = Hints { placement: Placement::of(inputs.settings), had_security_group };
        Goal::Ensure(Box::new(desire::desire(inputs)), hints)
    }

    fn removal(service: &ServiceView, settings: &ServiceSettings) -> Goal {
        Goal::Remove(Owner::of_network_load_balancer(service, settings), Departure::of(service))
    }

    fn facts(goal: &Goal) -> Facts<'_> {
        match goal {
            Goal::Remove(owner, departure) => Facts::leaving(owner, departure),
            Goal::Ensure(desired, _) => Facts::wanting(desired),
        }
    }

    fn origins(service: &ServiceView, settings: &ServiceSettings, goal: &Goal) -> Vec<SettingOrigin> {
        match goal {
            Goal::Ensure(desired, _) => origins::origins(service, settings, desired),
            Goal::Remove(..) => Vec::new(),
        }
    }

    fn departure(goal: &mut Goal) -> Option<&mut Departure> {
        match goal {
            Goal::Ensure(..) => None,
            Goal::Remove(_, departure) => Some(departure),
        }
    }

    fn vanished(goal: &mut Goal) -> Option<&mut Vec<Owner>> {
        match goal {
            Goal::Ensure(desired, ..) => Some(&mut desired.vanished),
            Goal::Remove(..) => None,
        }
    }

    fn diff(goal: &Goal, observed: &Observed) -> Plan<Operation> {
        match goal {
            Goal::Ensure(desired, _) => diff(desired, observed),
            Goal::Remove(owner, departure) => teardown(owner, departure, observed),
        }
    }

    fn follow(goal: &Goal, observed: &Observed) -> Plan<Operation> {
        match goal {
            Goal::Ensure(desired, _) => group_diff::follow(desired, observed, true),
            Goal::Remove(..) => Plan::default(),
        }
    }

    fn apply(observed: &mut Observed, operation: &Operation, answer: &Answer) {
        observed.apply(operation, answer);
    }

    fn must_wait(observed: &Observed, step: &Step) -> bool {
        observed.must_wait(step)
    }

    fn look_again(observed: &Observed) -> Option<Duration> {
        jobs::look_again(observed)
    }

    fn further_label(observed: &Observed) -> Option<(&'static str, Option<&str>)> {
        let groups = observed.security_groups.as_ref()?;
        Some((LABEL_SECURITY_GROUP, groups.first().map(|group| group.id.as_str())))
    }

    fn ingress(goal: &Goal, observed: &Observed, _elastic: &[String]) -> Vec<Ingress> {
        match (goal, &observed.instance) {
            (Goal::Ensure(..), Some(instance)) => expected_ingress(instance),
            _ => Vec::new(),
        }
    }

    fn ingress_details(
        service: &ServiceView,
        goal: &Goal,
        observed: &Observed,
        ingress: &[Ingress],
        _ip_mode: bool,
    ) -> Vec<IngressDetails> {
        match goal {
            Goal::Ensure(desired, _) => expected_details(service, desired, observed, ingress),
            Goal::Remove(..) => Vec::new(),
        }
    }

    async fn read(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<Observed, Fault> {
        self.read_instance(owner, id, due).await.map(alone)
    }

    async fn list(&self, by: ListedBy<'_>) -> Result<Vec<Observed>, Fault> {
        let listed = match by {
            ListedBy::Tag(key, value) => self.api.find_by_tag(key, value).await?,
            ListedBy::Name(name) => self.api.find_by_name(name).await?,
        };
        Ok(listed.into_iter().map(alone).collect())
    }

    async fn complete(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        known: Option<&Observed>,
        search: &Search<'_>,
    ) -> Result<Completed, Fault> {
        let (mut unread, due) = (Vec::new(), search.due);
        let listed = tolerate(&mut unread, self.list_groups(goal.owner(), observed, search).await)?;
        observed.groups_unread = listed.is_none();
        if let Some(known) = known {
            if known.listeners.is_some() {
                observed.listeners = tolerate(&mut unread, self.read_listeners(observed, due).await)?;
            }
            observed.remember(known);
        }
        unread.extend(self.read_needs(goal, observed, search).await?);
        let named = self.read_named_by_listeners(goal.owner(), observed, &search.made).await;
        let named = tolerate(&mut unread, named)?;
        observed.groups_unread |= named.is_none();
        if observed.groups_unread {
            // Nothing is known of the list.
            observed.unlisted.clear();
        }
        let shows_all_made = listed.unwrap_or_default() && named.unwrap_or_default();
        if unread.is_empty() {
            // Groups that only listeners name have backends.
            unread = self.read_needs(goal, observed, search).await?;
        }
        observed.note_what_is_busy();
        Ok(Completed { shows_all_made, unread })
    }

    async fn settle(&self, observed: &mut Observed) -> Result<Settled, Fault> {
        jobs::settle(&self.api, observed).await
    }

    async fn refresh(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        plan: &Plan<Operation>,
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
            observed.security_groups = None;
        }
        let unread = self.read_needs(goal, observed, &Search { due: None, ..search.clone() }).await?;
        observed.note_what_is_busy();
        unread.into_iter().next().map_or(Ok(()), Err)
    }

    async fn place(&self, goal: &mut Goal, nodes: &[Arc<NodeView>]) -> Result<(), Fault> {
        let Goal::Ensure(desired, Hints { placement, .. }) = goal else { return Ok(()) };
        if !desired.instance.near_nodes {
            return Ok(());
        }
        let found = match placement.is_certain() {
            true => Vec::new(),
            false => self.vpc.describe_vswitches(&self.location.vpc_id).await?,
        };
        desired.instance.create.zones = placement.zones(found, nodes);
        Ok(())
    }

    async fn elastic_addresses(&self, _id: &str) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    async fn perform(&self, write: &Write<'_>, operation: &Operation, observed: &Observed) -> Result<Answer, Fault> {
        let api = self.api.on(write.priority.clone());
        perform::perform(perform::Apis { nlb: &api, ecs: &self.ecs }, write, operation, observed).await
    }
}

/// A load balancer of which nothing else was read yet.
fn alone(instance: ObservedInstance) -> Observed {
    Observed { instance: Some(instance), ..Observed::default() }
}
