//! Names, tags and marks that prove what is ours.
//!
//! A load balancer of ours carries the tag [`MARK_TAG`] with its default name. If this program made it, it also carries
//! [`CLUSTER_UID_TAG`], which tells clusters with the same id apart; the official controller does not look at that tag.
//!
//! Server groups, listeners and backends of ours carry a mark in their name or description:
//! `k8s/<part>/<service>/<namespace>/<cluster id>`, the same as the official controller's, so that a cluster can move over and
//! back. Nothing in it tells clusters with the same id apart, so it only counts on a load balancer that is ours, or that a user
//! has named.
//!
//! The API limits the names of server groups and the descriptions of backends to 80 characters, and marks can be longer.
//! A mark that fits is written as it is. One that does not is written as `k8s/<part>/<40 hexadecimal digits>`, a digest of
//! service, namespace and cluster id: never cut off, since cut-off marks of two Services could be equal. Both forms are
//! recognised when read, so a group that carries a long mark is still ours. To the official controller the short form
//! is foreign, and it leaves it alone.
//!
//! Network load balancers have marks of their own, [`LoadBalancerKind::Nlb`]: `k8s.<part>.<service>.<namespace>.<cluster id>`,
//! where the part is the port and the protocol of a listener, with a dot between them. Their limit is 128 characters.

use std::collections::BTreeMap;

use litemap::LiteMap;

use super::settings::ServiceSettings;
use crate::plan::digest;
use crate::plan::inputs::ServiceView;
use crate::plan::provenance::Provenance;

/// Tag of load balancers that we made; its value is the default name.
pub const MARK_TAG: &str = "kubernetes.do.not.delete";
/// Usual key of the tag that names the cluster; the configuration can choose another.
pub const CLUSTER_TAG: &str = "ack.aliyun.com";
/// Tag of what this program makes; its value is the uid of the cluster's namespace `kube-system`. What the official controller
/// made is not tagged later: a claim of its Service is enough, and a move to this program begins with an empty plan.
pub const CLUSTER_UID_TAG: &str = "alicloud-ccm.cluster-uid";
/// Tag of load balancers that a user made and a Service uses; its value is `true`.
pub const REUSE_TAG: &str = "kubernetes.reused.by.user";
/// Tag of load balancers that lost their delete protection to be deleted while their Service could still want them back;
/// its value is `true`. It tells the protection that was taken for a deletion from the one that a person switched off.
pub const UNPROTECTED_TAG: &str = "alicloud-ccm.unprotected";
/// Most tags of one resource, the vendor's included.
pub const MOST_TAGS: usize = 20;
/// Finalizer on Services that have, or may have, a classic load balancer.
pub const FINALIZER: &str = "service.k8s.alibaba/resources";
/// Finalizer on Services that have, or may have, a network load balancer.
pub const NLB_FINALIZER: &str = "service.k8s.alibaba/nlb";
/// Label in which the official controller keeps a hash of the last applied state. What it says decides nothing here; that
/// it is there tells that the Service comes from that controller.
pub const LABEL_HASH: &str = "service.beta.kubernetes.io/hash";
/// Label with the id of the load balancer.
pub const LABEL_LB_ID: &str = "service.k8s.alibaba/loadbalancer-id";
/// Label with the id of the load balancer that another kind replaces, until it is removed.
pub const LABEL_FORMER_LB_ID: &str = "alicloud-ccm/former-loadbalancer-id";
/// Label with the id of the security group that keeps the source ranges of a network load balancer.
pub const LABEL_SECURITY_GROUP: &str = "service.k8s.alibaba/security-group-id";

/// Start of the keys of annotations that only this program writes.
pub const OWN_ANNOTATIONS: &str = "alicloud-ccm/";

/// Annotation of a Service that was restored from a backup with another UID: `namespace/name/uid`, with the UID in the marks of its
/// load balancer, so that no tag has to change.
pub const RESTORED: &str = "alicloud-ccm/restored";

/// Longest name of a server group and longest description of a backend, in characters.
pub const SHORT_MARK: usize = 80;
/// Longest name of a server group of a network load balancer, in characters.
const DOTTED_MARK: usize = 128;
/// Longest description of a listener, in characters.
const LONG_MARK: usize = 256;

/// The name that a load balancer gets, and is found by, if no annotation names it: `a` and the UID without dashes, cut
/// to 32 characters.
pub fn default_name(uid: &str) -> String {
    std::iter::once('a').chain(uid.chars().filter(|c| *c != '-')).take(32).collect()
}

/// The UID that the marks of a Service are made of.
pub fn marked_uid(service: &ServiceView) -> &str {
    let restored = service.own_annotations.get(RESTORED).and_then(|text| text.rsplit_once('/'));
    restored.filter(|(key, _)| *key == service.key.to_string()).map_or(&service.uid, |(_, uid)| uid)
}

/// Whether a text has the shape of a mark, of whatever Service, cluster and product: all parts after `k8s`, or the short
/// form.
pub fn is_mark(text: &str) -> bool {
    let is_digest = |digest: &str| digest.len() == 40 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    let slashed: Vec<_> = text.split('/').collect();
    let dotted: Vec<_> = text.split('.').collect();
    match (slashed.as_slice(), dotted.as_slice()) {
        (["k8s", _, _, _, _], _) | (_, ["k8s", _, _, _, _, _]) => true,
        (["k8s", _, digest], _) | (_, ["k8s", _, _, digest]) => is_digest(digest),
        _ => false,
    }
}

/// The kinds of load balancers. Each has a controller of its own, and writes marks in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerKind {
    /// CLB: `k8s/80/service/namespace/cluster`
    Clb,
    /// NLB: `k8s.80.TCP.service.namespace.cluster`
    Nlb,
}

impl LoadBalancerKind {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Clb, Self::Nlb];

    const fn separator(self) -> char {
        match self {
            Self::Clb => '/',
            Self::Nlb => '.',
        }
    }

    /// Parts in the part that tells one mark of a Service from another.
    const fn parts(self) -> usize {
        match self {
            Self::Clb => 1,
            Self::Nlb => 2,
        }
    }
}

/// The Service that owns things in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Meant to be unique among the clusters of the account.
    pub cluster_id: String,
    /// Key of the tag that names the cluster; usually [`CLUSTER_TAG`].
    pub cluster_tag: String,
    /// Uid of the cluster's namespace `kube-system`; empty if it is not known.
    pub cluster_uid: String,
    /// Of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// See [`marked_uid`]; only the instance's name and tag depend on it.
    pub uid: String,
    /// What kind of load balancer it has.
    pub kind: LoadBalancerKind,
}

impl Owner {
    /// The owner that a Service is, of a classic load balancer.
    pub fn of(service: &ServiceView, settings: &ServiceSettings) -> Self {
        Self::of_kind(LoadBalancerKind::Clb, service, settings)
    }

    /// The same, of a load balancer of this kind.
    pub fn of_kind(kind: LoadBalancerKind, service: &ServiceView, settings: &ServiceSettings) -> Self {
        Self {
            cluster_id: settings.cluster_id.clone(),
            cluster_tag: settings.cluster_tag.clone(),
            cluster_uid: settings.cluster_uid.clone(),
            namespace: service.key.namespace.to_string(),
            service: service.key.name.to_string(),
            uid: marked_uid(service).to_owned(),
            kind,
        }
    }

    /// See [`default_name`].
    pub fn default_name(&self) -> String {
        default_name(&self.uid)
    }

    /// The tags of what is made for the cluster: its id, and its uid if that is known.
    pub fn cluster_tags(&self) -> BTreeMap<String, String> {
        let uid = Some((CLUSTER_UID_TAG, &self.cluster_uid)).filter(|(_, uid)| !uid.is_empty());
        let tags = uid.into_iter().chain([(self.cluster_tag.as_str(), &self.cluster_id)]);
        tags.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }

    /// The tags of what is made for the Service: those of the cluster, and the mark.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let mut tags = self.cluster_tags();
        tags.insert(MARK_TAG.to_owned(), self.default_name());
        tags
    }

    /// Whether tags say that something belongs to another cluster.
    pub fn is_of_other_cluster(&self, tags: &LiteMap<String, String>) -> bool {
        let uid = tags.get(CLUSTER_UID_TAG).map(String::as_str);
        tags.get(&self.cluster_tag).is_some_and(|cluster| *cluster != self.cluster_id)
            || matches!(Provenance::of_uid(&self.cluster_uid, uid), Provenance::OtherCluster(_))
    }

    /// Whether tags say that a load balancer was made for another Service, of this cluster or of another one.
    pub fn is_of_other_service(&self, tags: &LiteMap<String, String>) -> bool {
        tags.get(MARK_TAG).is_some_and(|mark| *mark != self.default_name()) || self.is_of_other_cluster(tags)
    }

    /// The description of the listener on this port; with dotted marks, of this port and protocol: `80.TCP`.
    pub fn listener_key(&self, part: impl ToString) -> String {
        self.mark(&part.to_string(), LONG_MARK)
    }

    /// The name of a server group, and the description of its backends. `part` is the node port, or in ENI mode the
    /// target port; with dotted marks, the listener's protocol follows.
    pub fn group_key(&self, part: &str) -> String {
        self.mark(part, if self.kind == LoadBalancerKind::Clb { SHORT_MARK } else { DOTTED_MARK })
    }

    /// The name of the security group of a network load balancer.
    pub fn security_group_name(&self) -> String {
        format!("k8s-nlb-{}", self.default_name())
    }

    /// The description of the security group of a network load balancer, and of its rules.
    pub fn security_mark(&self) -> String {
        format!("k8s.{}.{}.{}", self.namespace, self.service, self.cluster_id)
    }

    /// Whether something carries both of our tags: the default name, and the cluster.
    pub fn owns_tagged(&self, tags: &LiteMap<String, String>) -> bool {
        let is_marked = tags.get(MARK_TAG) == Some(&self.default_name());
        is_marked && tags.get(&self.cluster_tag) == Some(&self.cluster_id) && !self.is_of_other_cluster(tags)
    }

    /// The name of the access control list.
    pub fn access_list_name(&self) -> String {
        self.mark("acl", SHORT_MARK)
    }

    /// The name of the access control list while a preserved load balancer of a Service of this name keeps the other one.
    pub fn own_access_list_name(&self) -> String {
        format!("k8s/acl/{}", digest::hex(format!("{}/{}", self.access_list_name(), self.uid).as_bytes()))
    }

    /// Whether an access control list of this name was made for some Service.
    pub fn is_access_list_name(name: &str) -> bool {
        name.starts_with("k8s/acl/") && is_mark(name)
    }

    /// Whether an access control list is ours: it carries one of our names and the tag of our cluster.
    pub fn owns_access_list(&self, name: &str, tags: &LiteMap<String, String>) -> bool {
        let is_tagged = tags.get(&self.cluster_tag) == Some(&self.cluster_id);
        let is_named = name == self.access_list_name() || name == self.own_access_list_name();
        is_named && is_tagged && !self.is_of_other_cluster(tags)
    }

    /// Whether a listener with this description is ours. The port in the mark need not be the listener's.
    pub fn owns_listener(&self, description: &str) -> bool {
        let Some(part) = self.part(description) else { return false };
        let ports = match self.kind {
            LoadBalancerKind::Clb => part,
            LoadBalancerKind::Nlb => part.split('.').next().unwrap_or_default(),
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match ports.split_once('_') {
            Some((first, last)) if self.kind == LoadBalancerKind::Nlb => is_number(first) && is_number(last),
            _ => is_number(ports),
        }
    }

    /// Whether a server group of this name is ours, as long as it holds no foreign backends.
    pub fn owns_group(&self, name: &str) -> bool {
        self.part(name).is_some()
    }

    /// The port of the backends of a group of ours with this name, unless the name has no number.
    pub fn port_of_group(&self, name: &str) -> Option<u16> {
        self.part(name)?.split('.').next()?.parse().ok()
    }

    /// Whether a backend with this description is ours.
    pub fn owns_backend(&self, description: &str) -> bool {
        self.part(description).is_some()
    }

    /// The other Service of this cluster that a mark names in its long form.
    pub fn other_in_mark(&self, mark: &str) -> Option<Self> {
        let separator = self.kind.separator();
        let rest = mark.strip_suffix(self.cluster_id.as_str())?.strip_suffix(separator)?;
        let (rest, namespace) = rest.rsplit_once(separator)?;
        let (_, service) = rest.rsplit_once(separator)?;
        let [namespace, service] = [namespace, service].map(str::to_owned);
        let other = Self { namespace, service, uid: String::new(), ..self.clone() };
        (other.owns_backend(mark) && !self.owns_backend(mark)).then_some(other)
    }

    /// Whether two texts are the same mark of ours, perhaps one in its long and one in its short form.
    pub fn same_mark(&self, one: &str, other: &str) -> bool {
        one == other || matches!((self.part(one), self.part(other)), (Some(a), Some(b)) if a == b)
    }

    /// Whether a load balancer that was found by tag or name is one that we made for this Service.
    ///
    /// The tag decides; without it, the name. A load balancer of another cluster is never ours: a cluster restored from
    /// another's backup has Services with the same UIDs.
    pub fn owns_load_balancer(&self, name: &str, tags: &LiteMap<String, String>) -> bool {
        let default = self.default_name();
        let marked = match tags.get(MARK_TAG) {
            Some(value) => *value == default,
            None => name == default,
        };
        marked && !self.is_of_other_cluster(tags)
    }

    /// The part of a mark of ours that tells one from another.
    fn part<'a>(&self, text: &'a str) -> Option<&'a str> {
        let separator = self.kind.separator();
        let rest = text.strip_prefix("k8s")?.strip_prefix(separator)?;
        let ends = [&self.cluster_id, &self.namespace, &self.service];
        let full =
            ends.into_iter().try_fold(rest, |rest, end| rest.strip_suffix(end.as_str())?.strip_suffix(separator));
        let short = || {
            let (part, digest) = rest.rsplit_once(separator)?;
            (digest.len() == 40 && digest == self.digest()).then_some(part)
        };
        full.or_else(short).filter(|part| part.split(separator).count() == self.kind.parts())
    }

    fn mark(&self, part: &str, limit: usize) -> String {
        let separator = self.kind.separator();
        let Self { service, namespace, cluster_id, .. } = self;
        let full = format!("k8s{separator}{part}{separator}{service}{separator}{namespace}{separator}{cluster_id}");
        if full.chars().count() <= limit { full } else { format!("k8s{separator}{part}{separator}{}", self.digest()) }
    }

    fn digest(&self) -> String {
        digest::hex(format!("{}/{}/{}", self.service, self.namespace, self.cluster_id).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(service: &str) -> Owner {
        Owner {
            cluster_id: "cid".to_owned(),
            cluster_tag: CLUSTER_TAG.to_owned(),
            cluster_uid: "u1".to_owned(),
            namespace: "ns".to_owned(),
            service: service.to_owned(),
            uid: "5e4dbfc9-c2ae-4642-b033-5607860aef6a".to_owned(),
            kind: LoadBalancerKind::Clb,
        }
    }

    #[test]
    fn marks_of_network_load_balancers_have_dots_and_name_the_protocol() {
        let owner = Owner { kind: LoadBalancerKind::Nlb, ..owner("svc") };
        for (text, listener, group) in [
            ("k8s.80.TCP.svc.ns.cid", true, true),
            ("k8s.80_400.TCP.svc.ns.cid", true, true),
            ("k8s.x.TCP.svc.ns.cid", false, true),
            ("k8s.80.TCP.other.ns.cid", false, false),
            ("k8s.80.svc.ns.cid", false, false),
            ("k8s/80/svc/ns/cid", false, false),
        ] {
            assert_eq!((owner.owns_listener(text), owner.owns_group(text)), (listener, group), "{text}");
        }
        assert_eq!(owner.listener_key("80_400.TCP"), "k8s.80_400.TCP.svc.ns.cid");
        let long = Owner { service: "s".repeat(120), ..owner.clone() };
        let short = long.group_key("30080.TCPSSL");
        assert!(short.len() <= DOTTED_MARK && long.owns_group(&short) && !owner.owns_group(&short), "{short}");
        assert!(is_mark(&short) && is_mark("k8s.80.TCP.svc.ns.cid") && !is_mark("users.group"));
    }

    #[test]
    fn the_default_name_is_the_uid_with_a_letter_in_front() {
        assert_eq!(owner("svc").default_name(), "a5e4dbfc9c2ae4642b0335607860aef6");
    }

    #[test]
    fn marks_are_recognised() {
        let owner = owner("svc");
        for (text, listener, group) in [
            ("k8s/80/svc/ns/cid", true, true),
            ("k8s/x/svc/ns/cid", false, true),
            ("k8s/80/other/ns/cid", false, false),
            ("k8s/80/svc/other/cid", false, false),
            ("k8s/80/svc/ns/other", false, false),
            ("k8s/80/svc/ns/cid/more", false, false),
            ("k8s/80/svc/ns", false, false),
            ("x/80/svc/ns/cid", false, false),
            ("", false, false),
        ] {
            assert_eq!(owner.owns_listener(text), listener, "{text}");
            assert_eq!(owner.owns_group(text), group, "{text}");
            assert_eq!(owner.owns_backend(text), group, "{text}");
        }
        assert_eq!(owner.listener_key(80), "k8s/80/svc/ns/cid");
        assert_eq!(owner.group_key("http"), "k8s/http/svc/ns/cid");
    }

    #[test]
    fn long_marks_are_digested_and_both_forms_are_ours() {
        let owner = owner(&"s".repeat(100));
        let short = owner.group_key("30080");
        let long = format!("k8s/30080/{}/ns/cid", "s".repeat(100));
        assert!(short.len() <= SHORT_MARK, "{short}");
        assert!(owner.owns_group(&short) && owner.owns_group(&long) && is_mark(&short) && is_mark(&long));
        assert!(owner.same_mark(&short, &long) && !owner.same_mark(&owner.group_key("30081"), &long));
        assert!(!self::owner(&"t".repeat(100)).owns_group(&short));
        assert_eq!(owner.listener_key(80), format!("k8s/80/{}/ns/cid", "s".repeat(100)));
    }

    #[test]
    fn a_mark_of_exactly_the_limit_is_written_as_it_is() {
        let owner = owner(&"s".repeat(80 - "k8s/30080//ns/cid".len()));
        assert_eq!(owner.group_key("30080").len(), 80);
        assert!(owner.group_key("30080").contains("/ns/cid"));
    }

    #[test]
    fn an_instance_is_ours_by_tag_or_name_and_cluster() {
        let owner = owner("svc");
        let owns = |name: &str, tags: &[(&str, &str)]| {
            let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            owner.owns_load_balancer(name, &tags)
        };
        let name = owner.default_name();
        assert!(owns("renamed", &[(MARK_TAG, &name), (CLUSTER_TAG, "cid")]));
        assert!(owns(&name, &[]));
        assert!(!owns("renamed", &[]));
        assert!(!owns(&name, &[(MARK_TAG, "a-other")]));
        assert!(!owns(&name, &[(MARK_TAG, &name), (CLUSTER_TAG, "other")]));
        assert!(owns(&name, &[(MARK_TAG, &name), (CLUSTER_TAG, "cid"), (CLUSTER_UID_TAG, "u1")]));
        assert!(!owns(&name, &[(MARK_TAG, &name), (CLUSTER_TAG, "cid"), (CLUSTER_UID_TAG, "u2")]));
        assert!(!owns(&name, &[(CLUSTER_UID_TAG, "u2")]), "its name alone does not outweigh the uid");
    }

    #[test]
    fn tags_tell_clusters_with_one_id_apart() {
        let owner = owner("svc");
        let of_other = |tags: &[(&str, &str)]| {
            let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            (owner.is_of_other_cluster(&tags), owner.is_of_other_service(&tags))
        };
        assert_eq!(of_other(&[]), (false, false));
        let made: Vec<_> = owner.tags().into_iter().collect();
        let made: Vec<_> = made.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!((made.len(), of_other(&made)), (3, (false, false)));
        assert_eq!(of_other(&[(CLUSTER_TAG, "cid"), (CLUSTER_UID_TAG, "u2")]), (true, true));
        assert_eq!(of_other(&[(MARK_TAG, "a-other")]), (false, true));
        let unknown = Owner { cluster_uid: String::new(), ..owner.clone() };
        assert_eq!(unknown.tags().len(), 2);
        assert!(
            unknown.owns_load_balancer(&owner.default_name(), &owner.tags().into_iter().collect()),
            "as without uids"
        );
    }

    #[test]
    fn an_access_control_list_of_a_cluster_with_the_same_id_is_not_ours() {
        let (owner, other) = (owner("svc"), Owner { cluster_uid: "u2".to_owned(), ..owner("svc") });
        let official = [(CLUSTER_TAG.to_owned(), "cid".to_owned())].into_iter().collect();
        let name = owner.access_list_name();
        let owns = |tags: BTreeMap<String, String>| owner.owns_access_list(&name, &tags.into_iter().collect());
        assert!(owns(owner.cluster_tags()) && owns(official));
        assert!(!owns(other.cluster_tags()));
    }
}
