//! What can be wrong with a node.

use thiserror::Error;

use crate::plan::provider_id::NotEcs;

/// What is wrong with a node, for its event.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NodeProblem {
    /// Nothing matches a node without providerID.
    #[error(
        "spec.providerID: Required value: no instance in {vpc} has the node's internal address, id or name; set \
         spec.providerID to REGION.INSTANCE_ID, or let the kubelet report an internal address"
    )]
    NotFound {
        /// Where it was looked for.
        vpc: String,
    },
    /// Discovery is switched off.
    #[error("spec.providerID: Required value: node.discover is off; set spec.providerID to REGION.INSTANCE_ID")]
    Undiscovered,
    /// The providerID has another form.
    #[error("{0}; {remedy}", remedy = NotEcs::REMEDY)]
    ProviderId(NotEcs),
    /// Several instances match a node without providerID.
    #[error(
        "spec.providerID: Required value: more than one instance could be this node ({}); set spec.providerID to \
         REGION.INSTANCE_ID",
        .instances.join(", ")
    )]
    Ambiguous {
        /// Their ids.
        instances: Vec<String>,
    },
    /// The instance belongs to another node.
    #[error(
        "instance {instance} matches this node, but node {other} claims it; remove the node object that is out of date"
    )]
    Claimed {
        /// `i-...`
        instance: String,
        /// The other node.
        other: String,
    },
    /// A tainted node's instance is not there.
    #[error("instance {instance} in {region} is not known to the cloud; the node is initialised when it is")]
    InstanceMissing {
        /// `i-...`
        instance: String,
        /// Its region.
        region: String,
    },
    /// An instance without addresses.
    #[error("instance {instance} has no address yet; the node is initialised when it has one")]
    NoAddresses {
        /// `i-...`
        instance: String,
    },
    /// The kubelet's `--node-ip` is none of the instance's.
    #[error(
        "metadata.annotations[alpha.kubernetes.io/provided-node-ip]: Invalid value: {given:?}: the instance has other \
         addresses ({}); correct --node-ip of the kubelet",
        .known.join(", ")
    )]
    ProvidedIpUnknown {
        /// As annotated.
        given: String,
        /// The instance's.
        known: Vec<String>,
    },
    /// The annotation holds something else than one or two addresses.
    #[error(
        "metadata.annotations[alpha.kubernetes.io/provided-node-ip]: Invalid value: {given:?}: must be one or two addresses"
    )]
    ProvidedIpMalformed {
        /// As annotated.
        given: String,
    },
    /// A value that no label can have.
    #[error("label {key} is not written: {value:?} is not allowed as the value of a label")]
    LabelValue {
        /// The label.
        key: &'static str,
        /// What the cloud says.
        value: String,
    },
    /// The source/destination check could not be looked at.
    #[error("the source/destination check of the instance is not known: {message}")]
    CheckUnknown {
        /// Why.
        message: String,
        /// Why, as far as other nodes can share it.
        cause: Option<String>,
        /// Whether the node needs it off.
        needed: bool,
    },
}

impl NodeProblem {
    /// Whether the node cannot be initialised as long as this holds.
    pub const fn blocks(&self) -> bool {
        match self {
            Self::LabelValue { .. } => false,
            Self::CheckUnknown { needed, .. } => *needed,
            _ => true,
        }
    }

    /// What other nodes can lack in the same way; `None` if it is about this one alone.
    pub fn cause(&self) -> Option<String> {
        match self {
            Self::CheckUnknown { cause, .. } => cause.clone(),
            Self::Undiscovered => Some(self.to_string()),
            _ => None,
        }
    }
}
