//! Load balancers that carry our marks, and that no Service needs any more.
//!
//! Marks are what only this program and the official controller write: the tag with the cluster's id together with the mark
//! tag. A name alone says nothing. Marks with the id alone prove nothing against another cluster with the same id, see
//! [`crate::plan::provenance`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use litemap::LiteMap;
use serde::Serialize;

use super::annotations::{ID, raw};
use super::ownership::{
    CLUSTER_UID_TAG, LABEL_FORMER_LB_ID, LABEL_LB_ID, LoadBalancerKind, MARK_TAG, Owner, REUSE_TAG, default_name,
    marked_uid,
};
use super::settings::ServiceSettings;
use crate::plan::inputs::ServiceView;
use crate::plan::provenance::{Provenance, Unclaimed};

/// A load balancer whose Service is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedInstance {
    /// `lb-...`
    pub id: String,
    /// Its visible name.
    pub name: String,
    /// The address it serves.
    pub address: String,
    /// Value of the mark tag: the default name, made of the UID of the Service that is not there.
    pub mark: String,
}

impl fmt::Display for OrphanedInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, address, mark } = self;
        write!(f, "load balancer {id} ({name}, {address}): no Service with the mark {mark}")
    }
}

/// An access control list whose Service is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedAccessList {
    /// `acl-...`
    pub id: String,
    /// Its name, which is made of the Service's name and namespace.
    pub name: String,
}

impl fmt::Display for OrphanedAccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name } = self;
        write!(f, "access control list {id} ({name}): no Service with this mark")
    }
}

/// Access control lists (id, name, tags) with our tags and a mark of ours as name, whose Service is not there.
pub fn unclaimed_access_lists<'a>(
    lists: impl IntoIterator<Item = (&'a str, &'a str, &'a LiteMap<String, String>)>,
    services: &[Arc<ServiceView>],
    settings: &ServiceSettings,
) -> Vec<Unclaimed<OrphanedAccessList>> {
    let owners = services.iter().map(|service| Owner::of(service, settings));
    let needed: BTreeSet<String> =
        owners.flat_map(|owner| [owner.access_list_name(), owner.own_access_list_name()]).collect();
    let ours = lists.into_iter().filter(|(_, name, tags)| {
        tags.get(&settings.cluster_tag) == Some(&settings.cluster_id) && Owner::is_access_list_name(name)
    });
    ours.filter_map(|(id, name, tags)| {
        let instance = TaggedInstance { id, name, address: "", vpc_id: "", tags };
        let provenance = provenance(&instance, needed.contains(name), settings)?;
        Some(Unclaimed { what: OrphanedAccessList { id: id.to_owned(), name: name.to_owned() }, provenance })
    })
    .collect()
}

/// A server group or security group of a network load balancer whose Service is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedGroup {
    /// `sgp-...` or `sg-...`
    pub id: String,
    /// Its name.
    pub name: String,
    /// As that of an [`OrphanedInstance`].
    pub mark: String,
}

impl fmt::Display for OrphanedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, mark } = self;
        write!(f, "{} {id} ({name}): no load balancer and no Service with the mark {mark}", self.kind_name())
    }
}

impl OrphanedGroup {
    /// `server group` or `security group`, by its id.
    pub fn kind_name(&self) -> &'static str {
        if self.id.starts_with("sgp-") { "server group" } else { "security group" }
    }
}

/// Server groups and security groups whose Service is not there.
#[derive(Debug, Default)]
pub struct UnclaimedGroups {
    /// Those of load balancers that are not claimed either, by their ids.
    pub of_instances: BTreeMap<String, Vec<OrphanedGroup>>,
    /// Those that outlived theirs.
    pub alone: Vec<Unclaimed<OrphanedGroup>>,
    /// Those that other load balancers use, with the ids of these.
    pub used: Vec<(Unclaimed<OrphanedGroup>, Vec<String>)>,
}

/// Judges groups with the ids of the load balancers that use them. With one of the unclaimed `instances` goes what has its mark
/// and is of no use to others; what another load balancer uses is needed.
pub fn unclaimed_groups(
    groups: &[(TaggedInstance<'_>, Vec<&str>)],
    services: &[Arc<ServiceView>],
    instances: &[Unclaimed<OrphanedInstance>],
    settings: &ServiceSettings,
) -> UnclaimedGroups {
    let (mut found, claims) = (UnclaimedGroups::default(), Claims::of(services));
    for (group, used_by) in groups {
        let Some(Unclaimed { what, provenance }) = claims.lack(group, settings) else { continue };
        let OrphanedInstance { id, name, mark, .. } = what;
        let has_it = |one: &&Unclaimed<OrphanedInstance>| {
            (&one.what.mark, &one.provenance) == (&mark, &provenance) && used_by.iter().all(|id| *id == one.what.id)
        };
        let instance = instances.iter().find(has_it);
        let what = OrphanedGroup { id, name, mark };
        match instance {
            Some(one) => found.of_instances.entry(one.what.id.clone()).or_default().push(what),
            None if used_by.is_empty() => found.alone.push(Unclaimed { what, provenance }),
            None => {
                found.used.push((Unclaimed { what, provenance }, used_by.iter().map(|id| (*id).to_owned()).collect()));
            }
        }
    }
    found
}

/// A load balancer of whatever product, or a group of one, reduced to what tells whose it is.
#[derive(Clone, Copy, Debug)]
pub struct TaggedInstance<'a> {
    /// `lb-...`
    pub id: &'a str,
    /// Its visible name.
    pub name: &'a str,
    /// The address or host name under which it is published.
    pub address: &'a str,
    /// Empty if it is in none.
    pub vpc_id: &'a str,
    /// All tags.
    pub tags: &'a LiteMap<String, String>,
}

/// Load balancers with both our tags that no Service has, had, or names; and those of another cluster with the same id.
pub fn unclaimed<'a>(
    instances: impl IntoIterator<Item = TaggedInstance<'a>>,
    services: &[Arc<ServiceView>],
    settings: &ServiceSettings,
) -> Vec<Unclaimed<OrphanedInstance>> {
    let claims = Claims::of(services);
    instances.into_iter().filter_map(|instance| claims.lack(&instance, settings)).collect()
}

/// By what Services claim load balancers. Each is looked at once, as there can be thousands of both.
struct Claims<'a> {
    /// Values of the mark tag.
    marks: HashSet<String>,
    ids: HashSet<&'a str>,
    /// Those that are published.
    addresses: HashSet<&'a str>,
}

impl<'a> Claims<'a> {
    fn of(services: &'a [Arc<ServiceView>]) -> Self {
        let having = services.iter().filter(|service| may_have_one(service));
        let ids = services.iter().flat_map(|service| labelled(service).chain(raw(service, ID)));
        let ingress = services.iter().flat_map(|service| &service.ingress);
        let addresses = ingress.flat_map(|ingress| [ingress.ip.as_str(), ingress.hostname.as_str()]);
        Self {
            marks: having.map(|service| default_name(marked_uid(service))).collect(),
            ids: ids.collect(),
            addresses: addresses.filter(|text| !text.is_empty()).collect(),
        }
    }

    /// See [`unclaimed`].
    fn lack(&self, instance: &TaggedInstance<'_>, settings: &ServiceSettings) -> Option<Unclaimed<OrphanedInstance>> {
        let &TaggedInstance { id, name, address, tags, .. } = instance;
        if tags.get(&settings.cluster_tag) != Some(&settings.cluster_id) || tags.contains_key(REUSE_TAG) {
            return None;
        }
        let mark = tags.get(MARK_TAG)?;
        let claimed = self.marks.contains(mark) || self.ids.contains(id) || self.addresses.contains(address);
        let provenance = provenance(instance, claimed, settings)?;
        let [id, name, address, mark] = [id, name, address, mark].map(str::to_owned);
        Some(Unclaimed { what: OrphanedInstance { id, name, address, mark }, provenance })
    }
}

/// Whether a Service may use the load balancer of a user with this id and, if it is known, this address: the Service names it, or
/// nothing says that it has another one.
pub fn may_use(service: &ServiceView, id: &str, address: &str) -> bool {
    let asked = raw(service, ID).map(str::trim).filter(|id| !id.is_empty());
    let is_named = labelled(service).chain(asked).any(|named| named == id);
    let is_published = service.ingress.iter().any(|it| it.ip == address || it.hostname == address);
    // Nothing is made on a user's load balancer before the label names it.
    let has_no_other = labelled(service).next().is_none() && (asked.is_none() || !service.ingress.is_empty());
    may_have_one(service) && (has_no_other || is_named || (is_published && !address.is_empty()))
}

/// Ids of load balancers that the labels of a Service name.
fn labelled(service: &ServiceView) -> impl Iterator<Item = &str> {
    let ids = [LABEL_LB_ID, LABEL_FORMER_LB_ID].into_iter().filter_map(|label| service.labels.get(label));
    ids.map(String::as_str).filter(|id| !id.is_empty())
}

/// Whether a Service asks for a load balancer, or is not yet cleaned up after.
pub fn may_have_one(service: &ServiceView) -> bool {
    service.is_load_balancer() || LoadBalancerKind::ALL.iter().any(|kind| kind.may_be_left(service))
}

/// `None` if it is a load balancer of this cluster that is needed.
fn provenance(instance: &TaggedInstance<'_>, claimed: bool, settings: &ServiceSettings) -> Option<Provenance> {
    let uid = instance.tags.get(CLUSTER_UID_TAG).map(String::as_str);
    let elsewhere = !instance.vpc_id.is_empty() && !settings.vpc_id.is_empty() && instance.vpc_id != settings.vpc_id;
    let vpcs = || format!("it is in {}, and this cluster in {}", instance.vpc_id, settings.vpc_id);
    match Provenance::of_uid(&settings.cluster_uid, uid) {
        // Also if a Service claims it, as one does that was copied from another cluster with its labels.
        Provenance::OtherCluster(why) => Some(Provenance::OtherCluster(why)),
        _ if claimed => None,
        Provenance::ThisCluster if elsewhere => Some(Provenance::Unproven(vpcs())),
        Provenance::Unproven(_) if elsewhere => Some(Provenance::OtherCluster(vpcs())),
        provenance => Some(provenance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::tests::settings;
    use crate::plan::inputs::{Ingress, ObjectKey, ServiceType};
    use crate::plan::loadbalancer::ownership::CLUSTER_TAG;

    type Tags<'a> = &'a [(&'a str, &'a str)];

    /// The provenance of load balancers with these ids, VPCs and tags; the cluster is `c1` with the uid `u1` in `vpc-1`.
    fn found(instances: &[(&str, &str, Tags<'_>)], service: ServiceView) -> BTreeMap<String, &'static str> {
        let settings = ServiceSettings { cluster_uid: "u1".to_owned(), ..settings() };
        let tags = |tags: Tags<'_>| tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let tags: Vec<LiteMap<String, String>> = instances.iter().map(|(.., given)| tags(given)).collect();
        let instances = instances.iter().zip(&tags);
        let instances = instances.map(|((id, vpc_id, _), tags)| TaggedInstance {
            id,
            name: "n",
            address: "10.0.0.1",
            vpc_id,
            tags,
        });
        let name = |provenance: &Provenance| match provenance {
            Provenance::ThisCluster => "this",
            Provenance::Unproven(_) => "unproven",
            Provenance::OtherCluster(_) => "other",
        };
        let found = unclaimed(instances, &[Arc::new(service)], &settings).into_iter();
        found.map(|one| (one.what.id, name(&one.provenance))).collect()
    }

    fn service(uid: &str) -> ServiceView {
        let service_type = ServiceType::LoadBalancer;
        ServiceView { key: ObjectKey::new("a", "b"), uid: uid.into(), service_type, ..ServiceView::default() }
    }

    #[test]
    fn only_the_uid_of_the_cluster_makes_an_orphan_of_what_no_service_claims() {
        let (gone, alive) = (default_name("1-2-3"), default_name("4-5-6"));
        let (id, mark, uid) = ((CLUSTER_TAG, "c1"), (MARK_TAG, gone.as_str()), (CLUSTER_UID_TAG, "u1"));
        let other = (CLUSTER_UID_TAG, "u2");
        let found = found(
            &[
                ("lb-gone", "", &[id, mark, uid]),
                ("lb-gone-here", "vpc-1", &[id, mark, uid]),
                ("lb-gone-elsewhere", "vpc-2", &[id, mark, uid]),
                ("lb-by-id", "", &[id, mark]),
                ("lb-by-id-here", "vpc-1", &[id, mark]),
                ("lb-by-id-elsewhere", "vpc-2", &[id, mark]),
                ("lb-other-uid", "vpc-1", &[id, mark, other]),
                ("lb-alive", "", &[id, (MARK_TAG, &alive), uid]),
                ("lb-alive-by-id", "vpc-2", &[id, (MARK_TAG, &alive)]),
                ("lb-other-id", "", &[(CLUSTER_TAG, "other"), mark, uid]),
                ("lb-no-id", "", &[mark, uid]),
                ("lb-by-hand", "", &[id]),
                ("lb-used", "", &[id, mark, uid, (REUSE_TAG, "true")]),
                ("lb-bare", "", &[]),
            ],
            service("4-5-6"),
        );
        let expected = [
            ("lb-gone", "this"),
            ("lb-gone-here", "this"),
            ("lb-gone-elsewhere", "unproven"),
            ("lb-by-id", "unproven"),
            ("lb-by-id-here", "unproven"),
            ("lb-by-id-elsewhere", "other"),
            ("lb-other-uid", "other"),
        ];
        assert_eq!(found, expected.map(|(id, whose)| (id.to_owned(), whose)).into());
    }

    #[test]
    fn a_service_uses_what_its_label_its_annotation_or_its_address_leads_to_and_may_use_any_if_none_does() {
        let uses = |label: &str, id: &str, address: &str| {
            let mut service = service("1-2-3");
            service.labels.extend([(LABEL_LB_ID.to_owned(), label.to_owned())]);
            service.annotations.extend([(ID.full(), id.to_owned())]);
            service
                .ingress
                .extend((!address.is_empty()).then(|| Ingress { ip: address.to_owned(), ..Ingress::default() }));
            ["lb-1", "lb-2"].map(|id| may_use(&service, id, if id == "lb-1" { "10.0.0.1" } else { "10.0.0.2" }))
        };
        assert_eq!(uses("", "", ""), [true, true]);
        assert_eq!(uses("lb-1", "", ""), [true, false]);
        assert_eq!(uses("lb-1", "lb-2", ""), [true, true]);
        assert_eq!(uses("lb-1", "", "10.0.0.2"), [true, true]);
        assert_eq!(uses("", "lb-1", ""), [true, false], "it was never served, or else it had the label");
        assert_eq!(uses("", "lb-1", "10.0.0.9"), [true, true], "another client dropped the label");
    }

    #[test]
    fn a_service_of_another_type_without_our_finalizer_claims_none() {
        let mark = default_name("1-2-3");
        let tags = [(CLUSTER_TAG, "c1"), (MARK_TAG, mark.as_str()), (CLUSTER_UID_TAG, "u1")];
        let mut service = ServiceView { service_type: ServiceType::ClusterIp, ..service("1-2-3") };
        assert_eq!(found(&[("lb-1", "", &tags)], service.clone()), [("lb-1".to_owned(), "this")].into());
        service.finalizers.push(LoadBalancerKind::Clb.finalizer().to_owned());
        assert_eq!(found(&[("lb-1", "", &tags)], service), BTreeMap::new());
    }

    #[test]
    fn a_service_that_names_a_load_balancer_claims_it_unless_another_cluster_made_it() {
        let gone = default_name("1-2-3");
        let (id, mark) = ((CLUSTER_TAG, "c1"), (MARK_TAG, gone.as_str()));
        let mut service = service("4-5-6");
        assert_eq!(found(&[("lb-1", "", &[id, mark])], service.clone()).len(), 1);
        service.labels.insert(LABEL_LB_ID.to_owned(), "lb-1".to_owned());
        assert_eq!(found(&[("lb-1", "", &[id, mark])], service.clone()).len(), 0);
        let copied = found(&[("lb-1", "", &[id, mark, (CLUSTER_UID_TAG, "u2")])], service);
        assert_eq!(copied, [("lb-1".to_owned(), "other")].into());
    }

    #[test]
    fn twice_as_many_load_balancers_and_services_take_twice_the_work() {
        let cost = |count: usize| {
            let uids: Vec<String> = (0..count).map(|number| format!("uid-{number}")).collect();
            let services: Vec<Arc<ServiceView>> = uids.iter().map(|uid| Arc::new(service(uid))).collect();
            let tags = |uid: &String| [(CLUSTER_TAG, "c1".to_owned()), (MARK_TAG, default_name(uid))];
            let tags =
                uids.iter().map(|uid| tags(uid).map(|(key, value)| (key.to_owned(), value)).into_iter().collect());
            let tags: Vec<LiteMap<String, String>> = tags.collect();
            let instance = |tags| TaggedInstance { id: "lb-1", name: "n", address: "", vpc_id: "", tags };
            let (instances, settings) = (tags.iter().map(instance), settings());
            let look = || assert_eq!(unclaimed(instances, &services, &settings), []);
            allocation_counter::measure(look).count_total
        };
        let (small, large) = (cost(100), cost(200));
        assert!(large * 10 <= small * 22, "{small} allocations, {large} with twice as many");
    }
}
