//! By which remark this program knows its own records.
//!
//! A remark has 50 characters at most, which is too few for the id and the uid of a cluster: it holds the beginning of the
//! id, for people, and a hash of both, see [`crate::plan::provenance`]. Only a record with exactly this remark is ours.

use crate::plan::digest;

/// Longest beginning of the cluster's id.
const SHOWN: usize = 16;
/// What the official controller writes, in every cluster.
const OFFICIAL: &str = "record.managed.by.ack.ccm";
const PREFIX: &str = "alicloud-ccm,";

/// The remark of the records of a cluster. `uid` is that of its namespace `kube-system`, which must be known.
pub fn remark(cluster_id: &str, uid: &str) -> String {
    let hash = digest::hex(format!("{cluster_id}\n{uid}").as_bytes());
    let shown: String = cluster_id.chars().take(SHOWN).collect();
    format!("{PREFIX}{shown},{hash:.20}")
}

/// Who wrote a record with a remark that is not ours, for people.
pub fn writer(remark: &str) -> &'static str {
    if remark.contains(OFFICIAL) {
        "the official controller"
    } else if remark.starts_with(PREFIX) {
        "another cluster"
    } else {
        "another user"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_names_one_cluster_and_is_what_the_vendor_accepts() {
        let long = remark(&"c".repeat(64), "7d1a5c3e-0000-4000-8000-000000000001");
        assert!(long.len() <= 50, "{long}");
        assert!(long.chars().all(|c| c.is_ascii_alphanumeric() || "_-,.".contains(c)), "{long}");
        let all = [("a", "u1"), ("a", "u2"), ("b", "u1")].map(|(id, uid)| remark(id, uid));
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
        assert_eq!(writer(&all[0]), "another cluster");
        assert_eq!((writer(OFFICIAL), writer("")), ("the official controller", "another user"));
    }
}
