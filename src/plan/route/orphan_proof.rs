//! Whether an entry of ours may be removed that was created for another node, or is an orphan.
//!
//! That the API server does not show a node proves little: one that was restored from an old backup does not show what
//! came later, and the pods there still run. So an entry is removed only if the API server reported the node's deletion,
//! or if the cloud no longer has the instance. What lacks both proofs is for people to judge, and for the command `gc`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;

use super::mark::MarkedNode;
use super::route_node::RouteNode;

/// What is known of nodes that the API server does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerEvidence {
    /// Names of nodes whose deletion the API server reported.
    pub deleted: BTreeSet<Arc<str>>,
    /// Instances that the cloud was asked about.
    pub instances: BTreeMap<String, InstancePresence>,
}

/// What the cloud says of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstancePresence {
    /// It exists.
    Exists,
    /// It does not exist, by an answer that proves it.
    Gone,
    /// The answer proves nothing, because of this.
    Unknown(String),
}

/// Why an orphan is not removed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MissingProof {
    /// A cluster without nodes has no API server to say so.
    #[error("the API server shows no node at all; once it shows one, entries whose instances are released are removed")]
    NoNodes,
    /// The instance exists.
    #[error(
        "the API server does not show the node, as after a restore from an old backup, but its instance exists; the entry is \
         removed when the instance is released; alicloud-ccm gc says whether it can be deleted before"
    )]
    InstanceExists,
    /// The mark has the cluster's id without its uid, and the instance does not prove to be gone.
    #[error(
        "their marks have the cloud.cluster_id of this cluster without its uid, so that they may belong to another one; an \
         entry is removed when the cloud proves that its instance is released, and alicloud-ccm gc lists it"
    )]
    OfWhichCluster,
    /// It is not known whether the instance exists.
    #[error(
        "the API server does not show the node, and whether its instance exists is not known ({0}); the entry is removed when \
         the cloud proves that the instance is released; alicloud-ccm gc says whether it can be deleted before"
    )]
    InstanceUnknown(String),
    /// The cloud was not asked about the instance yet.
    #[error("{}", Self::InstanceUnknown("it was not asked about yet".to_owned()))]
    NotAsked,
}

impl MissingProof {
    /// What an event adds about an entry that is in the way.
    pub(super) fn doubt(&self) -> String {
        match self {
            Self::InstanceExists => "; its instance exists".to_owned(),
            Self::InstanceUnknown(why) => format!("; whether the instance exists is not known: {why}"),
            Self::NoNodes | Self::OfWhichCluster | Self::NotAsked => String::new(),
        }
    }
}

impl OwnerEvidence {
    /// What speaks against removing an orphan that leads to this instance and was created for this node; `None` if another
    /// cluster may have a node of that name.
    pub(super) fn missing_proof(
        &self,
        nodes: &[RouteNode],
        node: Option<&MarkedNode<'_>>,
        instance: &str,
    ) -> Option<MissingProof> {
        if nodes.is_empty() {
            return Some(MissingProof::NoNodes);
        }
        let is_named = |name: &str| node.is_some_and(|node| node.is(name));
        let shown = |known: &RouteNode| is_named(&known.name) || known.instance.as_deref() == Some(instance);
        if nodes.iter().any(shown) || self.deleted.iter().any(|name| is_named(name)) {
            return None;
        }
        match self.instances.get(instance) {
            Some(InstancePresence::Gone) => None,
            Some(_) if node.is_none() => Some(MissingProof::OfWhichCluster),
            Some(InstancePresence::Exists) => Some(MissingProof::InstanceExists),
            Some(InstancePresence::Unknown(why)) => Some(MissingProof::InstanceUnknown(why.clone())),
            None => Some(MissingProof::NotAsked),
        }
    }
}
