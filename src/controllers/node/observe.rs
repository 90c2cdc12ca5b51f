//! Looks up what the cloud knows about nodes, and plans them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::alibaba::ecs::{Ecs, InstanceFilter};
use crate::alibaba::{CloudClient, Fault, FaultKind};
use crate::config::Config;
use crate::controllers::instances::{self, BATCH};
use crate::controllers::route;
use crate::plan::inputs::NodeView;
use crate::plan::location::CloudLocation;
use crate::plan::node::instance::{Instance, NetworkInterface};
use crate::plan::node::removal::{Absence, MissingInstance};
use crate::plan::node::{
    self, CheckMemory, Exclusion, NodeClass, NodePlan, NodePolicy, NodeProblem, SourceDestCheck, discovery, is_silent,
    is_uninitialized, needs_instance,
};
use crate::plan::provider_id::{NotEcs, ProviderId};

/// How many nodes are looked up and planned before the next ones are.
const AT_ONCE: usize = 1000;

/// What one reconcile found out.
#[derive(Debug, Default)]
pub(super) struct NodeObservations {
    /// What is to be done to nodes.
    pub plans: Vec<(Arc<NodeView>, NodePlan)>,
    /// Nodes whose instance exists, and whether in the cluster's VPC.
    pub present: Vec<(Arc<NodeView>, bool)>,
    /// Nodes whose instance a successful answer lacked.
    pub missing: Vec<MissingInstance>,
    /// Nodes about which the cloud gave no answer.
    pub faults: Vec<(Arc<NodeView>, Fault)>,
}

impl NodeObservations {
    /// Nodes that wait for it get an event; what other nodes lack is not worth one.
    fn refuse(&mut self, view: Arc<NodeView>, problem: NodeProblem, policy: NodePolicy) {
        if needs_instance(&view, policy.routes) {
            let plan = NodePlan::refused(&view, problem);
            self.plans.push((view, plan));
        }
    }
}

/// What the configuration lets the planner do.
pub(super) fn policy(config: &Config) -> NodePolicy {
    NodePolicy {
        ipv6: config.node.ipv6,
        shutdown_taint: config.node.shutdown_taint,
        routes: config.controllers.contains(route::NAME),
    }
}

/// Reads what plans of nodes need.
pub(super) struct NodeObserver<'a> {
    pub cloud: &'a CloudClient,
    pub location: &'a CloudLocation,
    pub config: &'a Config,
    /// All nodes of the cluster.
    pub nodes: &'a [Arc<NodeView>],
}

impl NodeObserver<'_> {
    /// Observes and plans the nodes that are `chosen`. Reads only.
    pub(super) async fn observe(
        &self,
        chosen: impl Fn(&NodeView) -> bool,
        check_memory: &mut CheckMemory,
    ) -> NodeObservations {
        let mut observed = NodeObservations::default();
        let (mut known, mut unidentified) = (Vec::new(), Vec::new());
        for view in self.nodes.iter().filter(|view| !view.deleting && chosen(view)) {
            match node::classify(view) {
                NodeClass::Ecs(id) => known.push((view.clone(), id)),
                // Another instance can have the address of one that is gone.
                NodeClass::Unidentified if is_silent(view) && !is_uninitialized(view) => {}
                NodeClass::Unidentified => unidentified.push(view.clone()),
                NodeClass::Excluded(Exclusion::LingjunWorker) => {
                    observed.plans.push((view.clone(), node::plan_lingjun(view)));
                }
                NodeClass::Excluded(Exclusion::ProviderId(not @ NotEcs::Malformed(_))) => {
                    observed.refuse(view.clone(), NodeProblem::ProviderId(not), policy(self.config));
                }
                NodeClass::Excluded(why) => tracing::debug!(node = %view.name, %why, "unmanaged"),
            }
        }
        let found = self.discover(unidentified, &mut observed).await;
        self.plan(found, check_memory, &mut observed).await;
        // The instances of a large cluster are not in memory all at once.
        while !known.is_empty() {
            let some = known.drain(..known.len().min(AT_ONCE)).collect();
            let found = self.look_up(some, &mut observed).await;
            self.plan(found, check_memory, &mut observed).await;
        }
        self.find_successors(&mut observed.missing).await;
        observed
    }

    /// Gives those of these nodes whose instance was found.
    async fn look_up(
        &self,
        known: Vec<(Arc<NodeView>, ProviderId)>,
        observed: &mut NodeObservations,
    ) -> Vec<(Arc<NodeView>, Arc<Instance>)> {
        let policy = policy(self.config);
        let ids: BTreeSet<ProviderId> = known.iter().map(|(_, id)| id.clone()).collect();
        let mut answers = instances::by_id(&self.cloud.ecs, &ids, self.config.node.batch_size).await;
        instances::require_an_instance_of(self.nodes, &self.cloud.ecs, &mut answers).await;
        let mut found = Vec::new();
        for (view, id) in known {
            if let Some(instance) = answers.found.get(&id) {
                found.push((view, instance.clone()));
            } else if let Some(fault) = answers.faults.get(&id) {
                observed.faults.push((view, fault.clone()));
            } else {
                let absence = answers.absent.remove(&id);
                let absence = absence.unwrap_or_else(|| Absence::Unproven("it was not asked about".into()));
                observed.plans.push((view.clone(), node::plan_missing(&view, &id, policy)));
                let (successor, is_lost, report) = (None, false, None);
                observed.missing.push(MissingInstance { node: view, id, absence, successor, is_lost, report });
            }
        }
        found
    }

    /// Plans nodes whose instance was found.
    async fn plan(
        &self,
        found: Vec<(Arc<NodeView>, Arc<Instance>)>,
        check_memory: &mut CheckMemory,
        observed: &mut NodeObservations,
    ) {
        let (policy, checks) = (policy(self.config), self.source_dest_checks(&found, check_memory).await);
        for (view, instance) in found {
            let check = checks.get(&instance.primary_eni).filter(|_| is_uninitialized(&view));
            let plan = node::plan(&view, &instance, check.unwrap_or(&SourceDestCheck::Settled), policy);
            observed.plans.push((view.clone(), plan));
            observed.present.push((view, instance.vpc_id == self.location.vpc_id));
        }
    }

    /// Finds the instances of nodes without providerID.
    async fn discover(
        &self,
        nodes: Vec<Arc<NodeView>>,
        observed: &mut NodeObservations,
    ) -> Vec<(Arc<NodeView>, Arc<Instance>)> {
        let policy = policy(self.config);
        if !self.config.node.discover {
            nodes.into_iter().for_each(|view| observed.refuse(view, NodeProblem::Undiscovered, policy));
            return Vec::new();
        }
        let mut chosen: Vec<(Arc<NodeView>, Arc<Instance>)> = Vec::new();
        for (view, found) in self.identify(nodes).await {
            match found {
                Err(fault) => observed.faults.push((view, fault)),
                Ok(Err(problem)) => observed.refuse(view, problem, policy),
                Ok(Ok(instance)) => chosen.push((view, Arc::new(instance))),
            }
        }
        let rivals = discovery::rivals(chosen.iter().map(|(view, instance)| (&*view.name, &*instance.id)));
        let (unique, shared): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|(view, _)| !rivals.contains_key(&view.name));
        for (view, instance) in shared {
            let other = rivals.get(&view.name).cloned().unwrap_or_default();
            observed.refuse(view, NodeProblem::Claimed { instance: instance.id.clone(), other }, policy);
        }
        unique
    }

    /// Which instances have the address of nodes whose kubelet reports although their own instance is gone. A name proves nothing:
    /// in a VPC that accounts share, the node can be another account's.
    async fn find_successors(&self, missing: &mut [MissingInstance]) {
        let reporting: Vec<_> = missing.iter_mut().filter(|missing| missing.may_report()).collect();
        let nodes: Vec<_> = reporting.iter().map(|missing| missing.node.clone()).collect();
        let Ok(candidates) = self.candidates(&nodes).await else { return };
        for missing in reporting {
            let has_its_address = |instance: &&Instance| discovery::has_address_of(instance, &missing.node);
            missing.successor = candidates.iter().find(has_its_address).map(|instance| instance.id.clone());
        }
    }

    /// Which instances nodes are, by address, id or name: one lookup by address and one by id for all together, and if need be
    /// one list of the VPC for the names of those that wait to be initialised.
    async fn identify(
        &self,
        nodes: Vec<Arc<NodeView>>,
    ) -> Vec<(Arc<NodeView>, Result<Result<Instance, NodeProblem>, Fault>)> {
        let claims = discovery::claims(self.nodes.iter().map(Arc::as_ref));
        let choose =
            |view: &NodeView, among: &[Instance]| discovery::choose(view, among, &claims, self.location).cloned();
        let candidates = match self.candidates(&nodes).await {
            Ok(candidates) => candidates,
            Err(fault) => return nodes.into_iter().map(|view| (view, Err(fault.clone()))).collect(),
        };
        let (mut found, mut unfound) = (Vec::new(), Vec::new());
        for view in nodes {
            match choose(&view, &candidates) {
                Err(NodeProblem::NotFound { .. }) if is_uninitialized(&view) => unfound.push(view),
                chosen => found.push((view, Ok(chosen))),
            }
        }
        if !unfound.is_empty() {
            let filter = InstanceFilter::Vpc(self.location.vpc_id.clone());
            let all = self.cloud.ecs.describe_instances(&self.location.region, &filter).await;
            let named = |view: &NodeView| all.as_deref().map(|all| choose(view, all)).map_err(Clone::clone);
            found.extend(unfound.into_iter().map(|view| (view.clone(), named(&view))));
        }
        found
    }

    /// One lookup by address and one by id for all nodes together.
    async fn candidates(&self, nodes: &[Arc<NodeView>]) -> Result<Vec<Instance>, Fault> {
        let (ecs, CloudLocation { region, vpc_id, .. }) = (&self.cloud.ecs, self.location);
        let ips: BTreeSet<_> = nodes.iter().flat_map(|view| discovery::private_ips(view)).collect();
        let ids: BTreeSet<_> = nodes.iter().filter_map(|view| discovery::spelled_out(&view.name, region)).collect();
        let mut found = Vec::new();
        if !ips.is_empty() {
            let ips = ips.iter().map(ToString::to_string).collect();
            let filter = InstanceFilter::PrivateIps { vpc_id: vpc_id.clone(), ips };
            found.extend(ecs.describe_instances(region, &filter).await?);
        }
        if !ids.is_empty() {
            // Names that look like ids may be refused, which must not spoil the others.
            let ids = ids.into_iter().map(|instance| ProviderId { region: region.clone(), instance }).collect();
            let by_id = instances::by_id(ecs, &ids, BATCH).await;
            found.extend(by_id.found.into_values().map(Arc::unwrap_or_clone));
        }
        Ok(found)
    }

    /// The source/destination check of the primary interfaces of uninitialised nodes, by interface.
    async fn source_dest_checks(
        &self,
        found: &[(Arc<NodeView>, Arc<Instance>)],
        memory: &mut CheckMemory,
    ) -> BTreeMap<String, SourceDestCheck> {
        let (mut checks, mut regions) = (BTreeMap::new(), BTreeMap::<&str, Vec<_>>::new());
        let wanted = |(view, instance): &&(Arc<NodeView>, Arc<Instance>)| {
            self.config.node.disable_source_dest_check && is_uninitialized(view) && !instance.primary_eni.is_empty()
        };
        for (view, instance) in found.iter().filter(wanted) {
            regions.entry(&instance.region).or_default().push((view, instance.primary_eni.clone()));
        }
        for (region, mut nodes) in regions {
            // What the first ones show can save the read of the others.
            let others = nodes.split_off(nodes.len().min(BATCH));
            for nodes in [nodes, others] {
                let skips_read = |(view, _): &(&Arc<NodeView>, _)| memory.skips_read(region, &view.uid);
                let (unread, unknown): (Vec<_>, Vec<_>) = nodes.into_iter().partition(skips_read);
                checks.extend(unread.into_iter().map(|(_, eni)| (eni.clone(), SourceDestCheck::On { eni })));
                let enis = unknown.into_iter().map(|(_, eni)| eni).collect();
                checks.extend(read_checks(&self.cloud.ecs, region, enis, memory).await);
            }
        }
        checks
    }
}

async fn read_checks(
    ecs: &Ecs,
    region: &str,
    enis: Vec<String>,
    memory: &mut CheckMemory,
) -> Vec<(String, SourceDestCheck)> {
    let (interfaces, message, cause, denied) = match ecs.describe_network_interfaces(region, &enis).await {
        // Like other lists, this one may be empty for want of a permission.
        Ok(interfaces) => (interfaces, "the interface is not in the cloud's answer".to_owned(), None, true),
        Err(fault) => (Vec::new(), fault.to_string(), fault.cause(), fault.kind == FaultKind::Denied),
    };
    let by_id: BTreeMap<&str, &NetworkInterface> = interfaces.iter().map(|one| (one.id.as_str(), one)).collect();
    let check = |eni: String| {
        let shown = by_id.get(eni.as_str());
        memory.shown(region, shown.and_then(|interface| interface.source_dest_check));
        let check = match shown {
            Some(interface) if interface.source_dest_check == Some(true) => SourceDestCheck::On { eni: eni.clone() },
            Some(_) => SourceDestCheck::Settled,
            None => SourceDestCheck::Unknown { message: message.clone(), cause: cause.clone(), denied },
        };
        (eni, check)
    };
    enis.into_iter().map(check).collect()
}
