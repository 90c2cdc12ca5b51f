//! How entries that this program makes differ from all others.
//!
//! The description is the proof; the name is for people. The official controller writes neither.

use sha1::{Digest, Sha1};

/// Longest name of a route entry.
const NAME: usize = 128;
/// Longest description of a route entry.
const DESCRIPTION: usize = 256;

/// The name of an entry: `k8s-<cluster>-<node>`, with what is not allowed replaced, cut to the longest allowed.
#[must_use]
pub fn name(cluster_id: &str, node: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    format!("k8s-{cluster_id}-{node}").chars().map(legal).take(NAME).collect()
}

/// The description of an entry: the mark of this cluster, and the node it was created for. A name that does not fit is cut
/// and followed by a hash of the whole, so that names with the same beginning differ.
#[must_use]
pub fn description(cluster_id: &str, node: &str) -> String {
    let whole = format!("{}{node}", prefix(cluster_id));
    // What fills the description exactly looks like one that was cut.
    if whole.len() < DESCRIPTION {
        return whole;
    }
    let hash = hash(node);
    let start: String = whole.chars().take(DESCRIPTION - hash.len()).collect();
    format!("{start}{hash}")
}

/// The node that an entry of this cluster was created for; `None` for entries of others.
#[must_use]
pub fn node<'a>(cluster_id: &str, description: &'a str) -> Option<MarkedNode<'a>> {
    let name = description.strip_prefix(&prefix(cluster_id))?;
    if cluster_id.is_empty() || name.is_empty() || name.contains(char::is_whitespace) {
        return None;
    }
    Some(match name.rfind(HASH_SIGN).map(|at| name.split_at(at)) {
        Some((start, hash)) => MarkedNode::Hashed { start, hash },
        None if description.len() < DESCRIPTION => MarkedNode::Whole(name),
        None => MarkedNode::Cut(name),
    })
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
    /// As much of its name as fitted, by a version that wrote no hash. It may be one of several nodes.
    Cut(&'a str),
}

impl<'a> MarkedNode<'a> {
    /// Whether it certainly is this node.
    #[must_use]
    pub fn is(&self, node: &str) -> bool {
        match self {
            Self::Whole(name) => *name == node,
            Self::Hashed { start, hash: of } => node.starts_with(start) && *of == hash(node),
            Self::Cut(_) => false,
        }
    }

    /// Whether it can be this node.
    #[must_use]
    pub fn may_be(&self, node: &str) -> bool {
        self.is(node) || matches!(self, Self::Cut(start) if node.starts_with(start))
    }

    /// As much of the name as is known, for people.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        match self {
            Self::Whole(name) | Self::Hashed { start: name, .. } | Self::Cut(name) => name,
        }
    }
}

/// No node's name holds it.
const HASH_SIGN: char = '~';

fn hash(node: &str) -> String {
    let digest = Sha1::digest(node);
    digest.iter().take(8).fold(HASH_SIGN.to_string(), |text, byte| format!("{text}{byte:02x}"))
}

/// Whether an entry is marked by this program, for whichever cluster.
#[must_use]
pub fn is_marked(description: &str) -> bool {
    description.starts_with(MARK)
}

const MARK: &str = "alicloud-ccm cluster=";

fn prefix(cluster_id: &str) -> String {
    format!("{MARK}{cluster_id} node=")
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

    #[test]
    fn a_mark_that_was_cut_without_a_hash_may_be_any_node_that_begins_so() {
        let (one, other) = (format!("{}1", "n".repeat(250)), format!("{}2", "n".repeat(250)));
        let cut: String = format!("{}{one}", prefix("c1")).chars().take(DESCRIPTION).collect();
        let marked = node("c1", &cut).unwrap();
        assert!(marked.may_be(&one) && marked.may_be(&other) && !marked.is(&one) && !marked.may_be("n"));
        let hashed = description("c1", &one);
        let marked = node("c1", &hashed).unwrap();
        assert!(marked.is(&one) && !marked.may_be(&other), "{hashed}");
    }

    proptest! {
        #[test]
        fn marks_name_one_cluster_only(mine in "[a-z0-9._-]{1,64}", other in "[a-z0-9._-]{1,64}", host in "[a-z0-9.-]{1,253}") {
            let text = description(&mine, &host);
            prop_assert!(text.len() <= DESCRIPTION);
            prop_assert!(node(&mine, &text).is_some_and(|found| found.is(&host)));
            let longer = format!("{host}0");
            prop_assert!(!node(&mine, &text).is_some_and(|found| found.may_be(&longer)));
            prop_assert!(!node(&mine, &description(&mine, &longer)).is_some_and(|found| found.may_be(&host)));
            prop_assume!(mine != other);
            prop_assert_eq!(node(&other, &text), None);
        }
    }
}
