//! Classic load balancers as a [`Product`]: the reads and writes; what they mean is in [`crate::plan::clb`].

pub(super) mod orphans;
mod perform;
mod placements;
mod reads;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use litemap::LiteMap;
use tracing::warn;

use self::placements::Placements;
use super::pages::Pages;
use super::product::{Completed, Due, ListedBy, Product, Search, Write};
use super::tolerance::tolerate;
use crate::alibaba::clb::Clb;
use crate::alibaba::vpc::{VSwitch, Vpc};
use crate::alibaba::{CloudClient, Fault};
use crate::plan::clb::desired::ClbModel;
use crate::plan::clb::model::ListenerKey;
use crate::plan::clb::observed::{AccessList, Observed, ObservedInstance, ObservedListener};
use crate::plan::clb::operation::{Operation, Plan};
use crate::plan::inputs::NodeView;
use crate::plan::loadbalancer::cloud::Answer;
use crate::plan::loadbalancer::goal;
use crate::plan::loadbalancer::operation::Part;
use crate::plan::loadbalancer::ownership::Owner;
use crate::plan::loadbalancer::zones;
use crate::plan::location::CloudLocation;

/// The API of classic load balancers, and what saves calls to it.
#[derive(Debug)]
pub(crate) struct ClbProduct {
    clb: Clb,
    vpc: Vpc,
    location: Arc<CloudLocation>,
    instances: Pages<Vec<ObservedInstance>>,
    listeners: Pages<LiteMap<ListenerKey, Box<ObservedListener>>>,
    placements: Placements,
}

impl ClbProduct {
    pub(super) fn new(cloud: &CloudClient, location: Arc<CloudLocation>) -> Self {
        Self {
            instances: Pages::default(),
            listeners: Pages::default(),
            placements: Placements::default(),
            clb: cloud.clb.clone(),
            vpc: cloud.vpc.clone(),
            location,
        }
    }
}

/// What a Service asks for.
pub(crate) type Goal = goal::Goal<ClbModel>;

impl Product for ClbProduct {
    type Model = ClbModel;

    const CONTROLLER: &'static str = super::NAME;
    const COMPONENT: &'static str = "service-controller";

    async fn read(&self, owner: &Owner, id: &str, due: Due<'_>) -> Result<Observed, Fault> {
        self.read_instance(owner, id, due).await.map(Observed::alone)
    }

    async fn list(&self, by: ListedBy<'_>) -> Result<Vec<Observed>, Fault> {
        let listed = match by {
            ListedBy::Tag(key, value) => self.clb.find_by_tag(key, value).await?,
            ListedBy::Name(name) => self.clb.find_by_name(name).await?,
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
        let (mut shows_all_made, mut unread) = (None, Vec::new());
        let is_whole_removed = matches!(goal, Goal::Remove(removal) if removal.departure.reuse.is_none());
        let lists_groups = known.is_none() && !is_whole_removed;
        if lists_groups {
            let all_listed = tolerate(&mut unread, self.list_groups(observed, &search.made).await)?;
            observed.groups_unread = all_listed.is_none();
            shows_all_made = Some(all_listed.unwrap_or_default());
        } else if let Some(known) = known {
            observed.groups.clone_from(&known.groups);
            observed.unlisted.clone_from(&known.unlisted);
        }
        unread.extend(self.read_needs(goal, observed, search.due).await?);
        if lists_groups {
            // A server group that a listener of ours names exists, whatever the list shows.
            let named = observed.groups_of_listeners(goal.owner());
            let named = tolerate(&mut unread, self.read_unlisted(observed, named, &search.made).await)?;
            shows_all_made = shows_all_made.map(|all| all && named.unwrap_or_default());
            if observed.groups_unread {
                // Nothing is known of the list.
                observed.unlisted.clear();
            }
        }
        if let Goal::Remove(removal) = goal
            && removal.had_ranges
        {
            tolerate(&mut unread, self.read_access_list(&removal.owner, observed).await)?;
        }
        Ok(Completed { shows_all_made, unread })
    }

    async fn refresh(
        &self,
        goal: &Goal,
        observed: &mut Observed,
        plan: &Plan,
        search: &Search<'_>,
    ) -> Result<(), Fault> {
        let Some(instance) = &mut observed.instance else { return Ok(()) };
        if plan.touches(Part::Instance) {
            *instance = self.clb.describe_instance(&instance.id).await?;
        }
        if plan.touches(Part::Groups) {
            observed.groups.iter_mut().for_each(|(_, group)| group.backends = None);
            self.list_groups(observed, &search.made).await?;
        }
        if plan.touches(Part::Listeners) {
            observed.listeners = None;
        }
        if plan.touches(Part::Access) {
            observed.parts.access_list = AccessList::Unread;
        }
        self.read_needs(goal, observed, None).await?.pop().map_or(Ok(()), Err)
    }

    /// In zones and vSwitches near the nodes, those with more nodes first; in a zone the vSwitch with more free addresses, and
    /// at last the one that this instance is in.
    async fn place(&self, goal: &mut Goal, nodes: &[Arc<NodeView>]) -> Result<(), Fault> {
        let Some(desired) = goal.desired_mut() else { return Ok(()) };
        let (uid, stated) = (desired.owner.uid.clone(), desired.instance.create.clone());
        if let Some(repeated) = self.placements.repeated(&uid, &stated) {
            desired.instance.create = repeated;
            return Ok(());
        }
        desired.choose_zones(nodes);
        if desired.extra.near_nodes {
            let vswitch_ids = &mut desired.instance.create.vswitch_ids;
            match self.vpc.describe_vswitches(&self.location.vpc_id).await {
                Ok(found) => {
                    let near = by_nodes(found, nodes);
                    vswitch_ids.retain(|here| !near.contains(here));
                    vswitch_ids.splice(0..0, near);
                }
                Err(fault) if vswitch_ids.is_empty() => return Err(fault),
                Err(fault) => {
                    warn!(code = "ACCM0764", %fault, "vSwitches could not be listed; the one of this instance is used")
                }
            }
        }
        self.placements.choose(&uid, stated, desired.instance.create.clone());
        Ok(())
    }

    async fn forget(&self, owner: &Owner) {
        self.placements.forget(&owner.uid);
    }

    async fn elastic_addresses(&self, id: &str) -> Result<Vec<String>, Fault> {
        self.vpc.describe_load_balancer_eips(id).await
    }

    async fn perform(&self, write: &Write<'_>, operation: &Operation, observed: &Observed) -> Result<Answer, Fault> {
        let answer = perform::perform(&self.clb.on(write.priority.clone()), write, operation, observed).await;
        if let Operation::Create(placed) = operation {
            let uid = &write.token.service_uid;
            match &answer {
                Ok(_) => self.placements.forget(uid),
                Err(fault) => self.placements.tried(uid, placed, fault.kind.has_unknown_outcome()),
            }
        }
        answer
    }
}

/// vSwitches in zones with nodes, those of zones with more nodes first.
fn by_nodes(mut vswitches: Vec<VSwitch>, nodes: &[Arc<NodeView>]) -> Vec<String> {
    let nodes_in: HashMap<&str, usize> = zones::by_nodes(nodes).into_iter().collect();
    let count = |vswitch: &VSwitch| nodes_in.get(vswitch.zone.as_str()).copied().unwrap_or_default();
    vswitches.retain(|vswitch| count(vswitch) > 0);
    vswitches.sort_by_key(|vswitch| (Reverse(count(vswitch)), Reverse(vswitch.available_ips), vswitch.id.clone()));
    vswitches.into_iter().map(|vswitch| vswitch.id).collect()
}
