//! How entries that this program makes differ from all others.
//!
//! The description is the proof; the name is for people. The official controller writes neither. The description carries the
//! cluster's id and uid, since two clusters can have one id, see [`crate::plan::provenance`].

use crate::plan::digest;

/// Longest name of a route entry.
const NAME: usize = 128;
/// Longest description of a route entry.
const DESCRIPTION: usize = 256;

/// The name of an entry: `k8s-<cluster>-<node>`, with what is not allowed replaced, cut to the longest allowed.
pub fn name(cluster_id: &str, node: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    format!("k8s-{cluster_id}-{node}").chars().map(legal).take(NAME).collect()
}

/// The description of an entry: the mark of this cluster, and the node it was created for. A name that does not fit is cut
/// and followed by a hash of the whole, so that names with the same beginning differ.
pub fn description(cluster: &RouteCluster, node: &str) -> String {
    let RouteCluster { id, uid } = cluster;
    let uid = if uid.is_empty() { String::new() } else { format!("{UID}{uid} ") };
    let whole = format!("{}{uid}{NODE}{node}", prefix(id));
    if whole.len() <= DESCRIPTION {
        return whole;
    }
    let hash = hash(node);
    let start: String = whole.chars().take(DESCRIPTION - hash.len()).collect();
    format!("{start}{hash}")
}

/// What the description of an entry says that was created for a cluster with this id; `None` for all others.
pub fn parse<'a>(cluster_id: &str, description: &'a str) -> Option<RouteMark<'a>> {
    let rest = description.strip_prefix(&prefix(cluster_id))?;
    let (uid, rest) = match rest.strip_prefix(UID) {
        Some(rest) => rest.split_once(' ').map(|(uid, rest)| (Some(uid), rest))?,
        None => (None, rest),
    };
    let name = rest.strip_prefix(NODE)?;
    if cluster_id.is_empty() || name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    let node = match name.rfind(HASH_SIGN).map(|at| name.split_at(at)) {
        Some((start, hash)) => MarkedNode::Hashed { start, hash },
        None => MarkedNode::Whole(name),
    };
    Some(RouteMark { uid, node })
}

/// What tells the entries of this cluster from those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteCluster {
    /// `cloud.cluster_id`
    pub id: String,
    /// Uid of the namespace `kube-system`; empty if it is not known.
    pub uid: String,
}

/// What the description of an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMark<'a> {
    /// The uid of the cluster; `None` if a version wrote it that wrote none, or that did not know it.
    pub uid: Option<&'a str>,
    /// The node that it was created for.
    pub node: MarkedNode<'a>,
}

/// What a mark says about the node that an entry was created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedNode<'a> {
    /// Its name.
    Whole(&'a str),
    /// The beginning of its name, and a hash of the whole.
    Hashed {
        /// The beginning.
        start: &'a str,
        /// As [`description`] writes it.
        hash: &'a str,
    },
}

impl<'a> MarkedNode<'a> {
    /// Whether it is this node.
    pub fn is(&self, node: &str) -> bool {
        match self {
            Self::Whole(name) => *name == node,
            Self::Hashed { start, hash: of } => node.starts_with(start) && *of == hash(node),
        }
    }

    /// As much of the name as is known, for people.
    pub const fn name(&self) -> &'a str {
        match self {
            Self::Whole(name) | Self::Hashed { start: name, .. } => name,
        }
    }
}

/// No node's name holds it.
const HASH_SIGN: char = '~';

fn hash(node: &str) -> String {
    format!("{HASH_SIGN}{:.16}", digest::hex(node.as_bytes()))
}

/// Whether an entry is marked by this program, for whichever cluster.
pub fn is_marked(description: &str) -> bool {
    description.starts_with(MARK)
}

const MARK: &str = "alicloud-ccm cluster=";
const UID: &str = "uid=";
const NODE: &str = "node=";

fn prefix(cluster_id: &str) -> String {
    format!("{MARK}{cluster_id} ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_legal() {
        assert_eq!(name("c1", "cn-a.i-1"), "k8s-c1-cn-a.i-1");
        let long = name("c1", &"n/".repeat(200));
        assert_eq!(long.len(), NAME);
        assert!(!long.contains('/'));
    }

    fn cluster(id: &str, uid: &str) -> RouteCluster {
        RouteCluster { id: id.to_owned(), uid: uid.to_owned() }
    }

    fn node<'a>(cluster_id: &str, description: &'a str) -> Option<MarkedNode<'a>> {
        parse(cluster_id, description).map(|mark| mark.node)
    }

    #[test]
    fn a_mark_carries_the_uid_of_the_cluster_if_it_is_known() {
        let text = description(&cluster("c1", "u1"), "n1");
        assert_eq!(text, "alicloud-ccm cluster=c1 uid=u1 node=n1");
        assert_eq!(parse("c1", &text), Some(RouteMark { uid: Some("u1"), node: MarkedNode::Whole("n1") }));
        let text = description(&cluster("c1", ""), "n1");
        assert_eq!(text, "alicloud-ccm cluster=c1 node=n1");
        assert_eq!(parse("c1", &text), Some(RouteMark { uid: None, node: MarkedNode::Whole("n1") }));
        for text in [
            "alicloud-ccm cluster=c1 uid=u1",
            "alicloud-ccm cluster=c1 uid=u1 n1",
            "alicloud-ccm cluster=c1 uid= node=",
        ] {
            assert_eq!(parse("c1", text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn marks_name_one_cluster_only(
            mine in "[a-z0-9._-]{1,64}", uid in "([a-f0-9-]{36})?", other in "[a-z0-9._-]{1,64}", host in "[a-z0-9.-]{1,253}"
        ) {
            let (text, longer) = (description(&cluster(&mine, &uid), &host), format!("{host}0"));
            prop_assert!(text.len() <= DESCRIPTION);
            prop_assert!(parse(&mine, &text).is_some_and(|found| found.node.is(&host) && found.uid.unwrap_or_default() == uid));
            prop_assert!(!node(&mine, &text).is_some_and(|found| found.is(&longer)));
            let text_of_longer = description(&cluster(&mine, &uid), &longer);
            prop_assert!(!node(&mine, &text_of_longer).is_some_and(|found| found.is(&host)));
            prop_assume!(mine != other);
            prop_assert_eq!(node(&other, &text), None);
        }
    }
}
