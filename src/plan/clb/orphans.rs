//! Load balancers that carry our proof, and that no Service needs any more.
//!
//! Proof is what only this program and the official controller write: the tag with the cluster's id together with the mark
//! tag. A name alone proves nothing.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::observed::ObservedInstance;
use crate::plan::inputs::ServiceView;
use crate::plan::service::annotations::{ID, raw};
use crate::plan::service::ownership::{LABEL_LB_ID, MARK_TAG, REUSE_TAG, default_name};

/// A load balancer whose Service is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OrphanedInstance {
    /// `lb-...`
    pub id: String,
    /// Its visible name.
    pub name: String,
    /// The address it serves.
    pub address: String,
    /// Value of the mark tag: the default name, made of the UID of the Service that is gone.
    pub mark: String,
}

impl fmt::Display for OrphanedInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, address, mark } = self;
        write!(f, "load balancer {id} ({name}, {address}): no Service with the mark {mark}")
    }
}

/// Instances with both our tags that no Service has, had, or names. The cluster is given as its tag and its id.
pub fn orphaned_instances(
    instances: &[ObservedInstance],
    services: &[Arc<ServiceView>],
    (cluster_tag, cluster_id): (&str, &str),
) -> Vec<OrphanedInstance> {
    let owned = |instance: &ObservedInstance, mark: &str| {
        services.iter().any(|service| {
            default_name(&service.uid) == mark
                || service.labels.get(LABEL_LB_ID) == Some(&instance.id)
                || raw(service, ID) == Some(instance.id.as_str())
                || service.ingress.iter().any(|ingress| !ingress.ip.is_empty() && ingress.ip == instance.address)
        })
    };
    let ours = instances.iter().filter(|instance| {
        instance.tags.get(cluster_tag).is_some_and(|id| id == cluster_id) && !instance.tags.contains_key(REUSE_TAG)
    });
    ours.filter_map(|instance| {
        let mark = instance.tags.get(MARK_TAG).filter(|mark| !owned(instance, mark))?;
        let ObservedInstance { id, name, address, .. } = instance.clone();
        Some(OrphanedInstance { id, name, address, mark: mark.clone() })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::ObjectKey;
    use crate::plan::service::ownership::CLUSTER_TAG;

    const CLUSTER: (&str, &str) = (CLUSTER_TAG, "mine");

    fn instance(id: &str, tags: &[(&str, &str)]) -> ObservedInstance {
        ObservedInstance {
            id: id.to_owned(),
            name: default_name("1-2-3"),
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..ObservedInstance::default()
        }
    }

    #[test]
    fn both_tags_and_no_service_make_an_orphan() {
        let (cluster, gone) = (CLUSTER_TAG, default_name("1-2-3"));
        let living = ServiceView { key: ObjectKey::new("a", "b"), uid: "4-5-6".into(), ..ServiceView::default() };
        let alive = default_name("4-5-6");
        let instances = [
            instance("lb-gone", &[(cluster, "mine"), (MARK_TAG, &gone)]),
            instance("lb-alive", &[(cluster, "mine"), (MARK_TAG, &alive)]),
            instance("lb-other", &[(cluster, "other"), (MARK_TAG, &gone)]),
            instance("lb-untagged", &[(MARK_TAG, &gone)]),
            instance("lb-by-hand", &[(cluster, "mine")]),
            instance("lb-used", &[(cluster, "mine"), (MARK_TAG, &gone), (REUSE_TAG, "true")]),
            instance("lb-name-only", &[]),
        ];
        let found = orphaned_instances(&instances, &[Arc::new(living)], CLUSTER);
        assert!(matches!(found.as_slice(), [OrphanedInstance { id, .. }] if id == "lb-gone"), "{found:?}");
    }

    #[test]
    fn a_service_that_names_a_load_balancer_owns_it() {
        let gone = default_name("1-2-3");
        let instances = [instance("lb-1", &[(CLUSTER_TAG, "mine"), (MARK_TAG, &gone)])];
        let mut service = ServiceView { uid: "4-5-6".into(), ..ServiceView::default() };
        assert_eq!(orphaned_instances(&instances, &[Arc::new(service.clone())], CLUSTER).len(), 1);
        service.labels.insert(LABEL_LB_ID.to_owned(), "lb-1".to_owned());
        assert_eq!(orphaned_instances(&instances, &[Arc::new(service)], CLUSTER).len(), 0);
    }
}
