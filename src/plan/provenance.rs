//! Which cluster something belongs to that carries the id of this one.
//!
//! People choose cluster ids, and the official controller's default is the same for everybody, so two clusters can have one.
//! What this program makes therefore also carries a uid that nobody chooses: that of the cluster's namespace `kube-system`.
//! What the official controller makes carries the id alone, and belongs to whichever cluster has an object that needs it.

/// Which cluster something belongs to that carries the id of this one; with the evidence, for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provenance {
    /// It carries the uid of this cluster.
    ThisCluster,
    /// Nothing but the id speaks for this cluster.
    Unproven(String),
    /// It belongs to another cluster.
    OtherCluster(String),
}

impl Provenance {
    /// What the uid says that something carries. `cluster_uid` is that of this cluster, empty if it is not known.
    pub fn of_uid(cluster_uid: &str, carried: Option<&str>) -> Self {
        match carried {
            _ if cluster_uid.is_empty() => Self::Unproven(
                "the uid of this cluster is not known: grant the permission to read it, see alicloud-ccm rbac"
                    .to_owned(),
            ),
            Some(uid) if uid == cluster_uid => Self::ThisCluster,
            Some(uid) => Self::OtherCluster(format!(
                "it carries the uid {uid} of a cluster, and this one has the uid {cluster_uid}"
            )),
            None => Self::Unproven("it carries the cluster_id alone, without the uid of a cluster".to_owned()),
        }
    }
}

/// Something that carries the id of this cluster, and that nothing in this cluster claims, or that is another cluster's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unclaimed<T> {
    /// What it is.
    pub what: T,
    /// Which cluster it belongs to.
    pub provenance: Provenance,
}

impl<T> Unclaimed<T> {
    /// The same of another type.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Unclaimed<U> {
        Unclaimed { what: of(self.what), provenance: self.provenance }
    }
}

/// What users are told when another cluster has the id of this one.
pub mod shared_id {
    /// Reason of the alarm and of its event.
    pub const REASON: &str = "ClusterIdShared";

    /// `things` are what was seen of the other cluster, and `why` the evidence for one of them.
    pub fn text(cluster_id: &str, things: &str, why: &str) -> String {
        format!(
            "another cluster has the cloud.cluster_id {cluster_id} as well: {things} carry it ({why}). Neither cluster changes \
             what carries the uid of the other, but the id alone, as the official controller writes it, does not tell them \
             apart; set up clusters with an id of their own"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_known_uids_prove_anything() {
        assert_eq!(Provenance::of_uid("u1", Some("u1")), Provenance::ThisCluster);
        assert!(matches!(Provenance::of_uid("u1", Some("u2")), Provenance::OtherCluster(why) if why.contains("u2")));
        for (ours, carried) in [("u1", None), ("", None), ("", Some("u1")), ("", Some(""))] {
            assert!(matches!(Provenance::of_uid(ours, carried), Provenance::Unproven(_)), "{ours:?} {carried:?}");
        }
    }
}
