//! How entries that this program makes are told from all others.
//!
//! The description is the proof; the name is for people. The official controller writes neither.

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

/// The description of an entry: the mark of this cluster, and the node it was made for.
#[must_use]
pub fn description(cluster_id: &str, node: &str) -> String {
    format!("{}{node}", prefix(cluster_id)).chars().take(DESCRIPTION).collect()
}

/// The node (its name possibly cut) that an entry of this cluster was made for; `None` for entries of others.
#[must_use]
pub fn node<'a>(cluster_id: &str, description: &'a str) -> Option<&'a str> {
    let node = description.strip_prefix(&prefix(cluster_id))?;
    (!cluster_id.is_empty() && !node.is_empty() && !node.contains(char::is_whitespace)).then_some(node)
}

fn prefix(cluster_id: &str) -> String {
    format!("alicloud-ccm cluster={cluster_id} node=")
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

    proptest! {
        #[test]
        fn marks_name_one_cluster_only(mine in "[a-z0-9._-]{1,64}", other in "[a-z0-9._-]{1,64}", host in "[a-z0-9.-]{1,253}") {
            let text = description(&mine, &host);
            prop_assert!(text.len() <= DESCRIPTION);
            prop_assert!(node(&mine, &text).is_some_and(|found| host.starts_with(found)));
            prop_assume!(mine != other);
            prop_assert_eq!(node(&other, &text), None);
        }
    }
}
