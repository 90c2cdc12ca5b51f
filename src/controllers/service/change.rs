//! Which change of a Service made it due, as users and their tools expect it among the events.

use crate::plan::inputs::ServiceView;

/// The reason of the event about a change by the user; `None` if nothing changed that decides anything.
///
/// `needed` says of each whether it needs a load balancer of ours. The first that fits counts, in the order of the
/// official controller.
pub(super) fn change(before: &ServiceView, now: &ServiceView, needed: (bool, bool)) -> Option<&'static str> {
    if before.uid != now.uid || needed == (false, false) {
        return None;
    }
    if before.service_type != now.service_type {
        return Some("TypeChanged");
    }
    if before.annotations != now.annotations {
        return Some("AnnotationChanged");
    }
    if !same_spec(before, now) {
        return Some("ServiceSpecChanged");
    }
    (before.deleting != now.deleting).then_some("DeleteTimestampChanged")
}

/// Whether the user restated what the official controller ignores, see [`is_inherited`](crate::plan::clb::is_inherited).
pub(super) fn restates(before: &ServiceView, now: &ServiceView) -> bool {
    before.uid == now.uid
        && (before.source_ranges != now.source_ranges || before.client_ip_affinity != now.client_ip_affinity)
}

fn same_spec(before: &ServiceView, now: &ServiceView) -> bool {
    // Everything but what is compared elsewhere, and what controllers write.
    let spec = |service: &ServiceView| ServiceView {
        key: now.key.clone(),
        uid: String::new(),
        resource_version: String::new(),
        deleting: false,
        finalizers: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        annotations: std::collections::BTreeMap::new(),
        ingress: Vec::new(),
        ingress_details: Vec::new(),
        ..service.clone()
    };
    spec(before) == spec(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::inputs::{Ingress, ServiceType};

    #[test]
    fn only_what_the_user_changed_counts() {
        let before = ServiceView { service_type: ServiceType::LoadBalancer, ..ServiceView::default() };
        let edited = |edit: fn(&mut ServiceView)| {
            let mut now = before.clone();
            edit(&mut now);
            change(&before, &now, (true, true))
        };
        assert_eq!(edited(|now| now.resource_version = "7".to_owned()), None);
        assert_eq!(edited(|now| now.ingress = vec![Ingress::default()]), None);
        assert_eq!(edited(|now| now.finalizers = vec!["x".to_owned()]), None);
        assert_eq!(edited(|now| drop(now.labels.insert("x".to_owned(), String::new()))), None);
        assert_eq!(edited(|now| now.uid = "other".to_owned()), None);
        assert_eq!(edited(|now| now.local_traffic = true), Some("ServiceSpecChanged"));
        assert_eq!(edited(|now| now.deleting = true), Some("DeleteTimestampChanged"));
        assert_eq!(edited(|now| now.service_type = ServiceType::NodePort), Some("TypeChanged"));
        let annotated = |now: &mut ServiceView| drop(now.annotations.insert("x".to_owned(), String::new()));
        assert_eq!(edited(annotated), Some("AnnotationChanged"));
        let mut now = before.clone();
        annotated(&mut now);
        assert_eq!(change(&before, &now, (false, false)), None, "it is not ours");
    }

    #[test]
    fn only_ranges_and_affinity_are_restated() {
        let before = ServiceView::default();
        let edited = |edit: fn(&mut ServiceView)| {
            let mut now = before.clone();
            edit(&mut now);
            restates(&before, &now)
        };
        assert!(edited(|now| now.source_ranges = vec!["10.0.0.0/8".to_owned()]));
        assert!(edited(|now| now.client_ip_affinity = Some(60)));
        assert!(!edited(|now| now.local_traffic = true));
        assert!(!edited(|now| {
            now.uid = "other".to_owned();
            now.client_ip_affinity = Some(60);
        }));
    }
}
