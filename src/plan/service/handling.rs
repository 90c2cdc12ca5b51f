//! Who handles a Service, and what is to be done about it.

use super::annotations::{AnnotationKey, FORCE_OVERRIDE_LISTENERS, ID, PRESERVE_ON_DELETE, VGROUP_PORT, raw};
use super::ownership::{FINALIZER, LABEL_HASH, LABEL_LB_ID, NLB_FINALIZER};
use super::problem::ServiceProblem;
use super::settings::ServiceSettings;
use crate::plan::inputs::{ServiceType, ServiceView};

/// Hands a Service to another controller.
pub const CLASS: AnnotationKey = AnnotationKey::Whole("service.beta.kubernetes.io/class");
/// The kind of load balancer, where the configuration lets Services choose. It was never read by its old name.
pub const TYPE: AnnotationKey = AnnotationKey::CurrentSuffix("type");
/// Hands a Service to another controller, whatever it says. It was never read by its old name.
pub const TUNNEL_TYPE: AnnotationKey = AnnotationKey::CurrentSuffix("tunnel-type");

/// `spec.loadBalancerClass` of Services that get a network load balancer.
pub const NLB_CLASS: &str = "alibabacloud.com/nlb";
/// The kind of load balancer that is a network load balancer.
const NLB_TYPE: &str = "nlb";

/// What to do about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nothing: it is not ours, or no longer; see [`LoadBalancerKind::handed_over`].
    Ignore,
    /// Keep its load balancer as desired.
    Ensure,
    /// Remove what we made for it, then the finalizer.
    Delete,
}

/// The kinds of load balancers. Each has a controller of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerKind {
    /// CLB.
    Classic,
    /// NLB.
    Network,
}

impl LoadBalancerKind {
    /// What keeps a Service until its load balancer of this kind is gone.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Classic => FINALIZER,
            Self::Network => NLB_FINALIZER,
        }
    }

    /// Whether a Service has the finalizer, which is written before anything is made.
    pub fn is_managed(self, service: &ServiceView) -> bool {
        service.finalizers.iter().any(|finalizer| finalizer == self.finalizer())
    }

    /// The id of the load balancer that the Service had when it was last in sync; empty if it never was, or had one of another
    /// kind.
    pub fn label(self, service: &ServiceView) -> &str {
        let id = service.labels.get(LABEL_LB_ID).map(String::as_str).unwrap_or_default();
        if self.has_id(id) { id } else { "" }
    }

    /// Whether the Service had a load balancer of this kind before. The status does not say of which kind it is; the label,
    /// which is written before it, does.
    pub fn had_one(self, service: &ServiceView) -> bool {
        match service.labels.get(LABEL_LB_ID) {
            Some(id) if !id.is_empty() => self.has_id(id),
            _ => !service.ingress.is_empty(),
        }
    }

    fn has_id(self, id: &str) -> bool {
        id.starts_with("nlb-") == (self == Self::Network)
    }

    /// Whether a Service needs a load balancer of this kind from us, or needs to be cleaned up after.
    pub fn handling(self, service: &ServiceView, settings: &ServiceSettings) -> Handling {
        if service.deleting || service.service_type != ServiceType::LoadBalancer {
            return if self.is_managed(service) { Handling::Delete } else { Handling::Ignore };
        }
        if self.claimed_by_other(service, settings).is_some() { Handling::Ignore } else { Handling::Ensure }
    }

    /// A Service that used to have a load balancer of ours, and was then given to another controller by its class or an
    /// annotation.
    ///
    /// Nothing is done about it: the load balancer keeps serving as it stands, and the finalizer, labels and status stay. The
    /// other controller may need the address for a while, and whether the load balancer can go is for the user to say. When
    /// the Service is deleted, or its type changes, what we made is removed as usual; when it is given back, its load
    /// balancer is managed again.
    pub fn handed_over(self, service: &ServiceView, settings: &ServiceSettings) -> Option<ServiceProblem> {
        if !self.is_managed(service) || service.deleting || service.service_type != ServiceType::LoadBalancer {
            return None;
        }
        self.claimed_by_other(service, settings).map(|(field, given)| ServiceProblem {
            field,
            given,
            allowed:
                "the Service now belongs to another controller; its load balancer is kept as it is until the Service \
                      is deleted, its type changes, or it is given back"
                    .to_owned(),
        })
    }

    /// What gives a Service to another controller: field and value.
    pub fn claimed_by_other(self, service: &ServiceView, settings: &ServiceSettings) -> Option<(String, String)> {
        let given = |key: AnnotationKey| Some((key.full(), raw(service, key)?.to_owned()));
        let class = service.load_balancer_class.as_deref();
        let kind = given(TYPE).filter(|(_, value)| settings.service.type_annotation && !value.is_empty());
        let stated_class = || class.map(|class| ("spec.loadBalancerClass".to_owned(), class.to_owned()));
        match self {
            Self::Classic => stated_class()
                .or_else(|| given(CLASS).filter(|(_, value)| !value.is_empty()))
                .or_else(|| given(TUNNEL_TYPE))
                .or(kind),
            Self::Network => {
                // The class of another controller has the last word: that one may be at work.
                let by_type = class.is_none() && kind.as_ref().is_some_and(|(_, value)| value == NLB_TYPE);
                let nothing = || ("spec.loadBalancerClass".to_owned(), String::new());
                let is_ours = class == Some(NLB_CLASS) || by_type;
                (!is_ours).then(|| stated_class().or(kind).unwrap_or_else(nothing))
            }
        }
    }
}

/// Whether a Service comes from the official controller, which left its label there, and its user has not restated since
/// what that controller ignored: `spec.loadBalancerSourceRanges` and `spec.sessionAffinity`.
///
/// Those two must not come into force just because another controller took over: the one shuts clients out that were
/// served for years, the other moves traffic between backends. So listeners that are there are left as they are until the
/// user changes one of the two, or removes the label.
pub fn is_inherited(service: &ServiceView) -> bool {
    service.labels.contains_key(LABEL_HASH)
}

/// What a Service says about being cleaned up after. It is read leniently: a Service with mistakes can be deleted too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// The user's load balancer. As long as the annotation is there, whatever it says, no load balancer is deleted.
    pub reuse: Option<String>,
    /// Whether a load balancer of ours is kept.
    pub preserve: bool,
    /// Whether our listeners go from a user's load balancer.
    pub override_listeners: bool,
    /// Ids of the user's server groups that the Service names: they can hold backends of ours.
    pub named_groups: Vec<String>,
}

impl Departure {
    /// Reads it from the annotations.
    pub fn of(service: &ServiceView) -> Self {
        let set = |name| raw(service, name).filter(|value| !value.is_empty());
        Self {
            reuse: set(ID).map(str::to_owned),
            preserve: set(PRESERVE_ON_DELETE).is_some(),
            override_listeners: set(FORCE_OVERRIDE_LISTENERS) == Some("true"),
            named_groups: named_groups(set(VGROUP_PORT).unwrap_or_default()),
        }
    }
}

/// What stands before the first colon of each item, also of one that is malformed otherwise.
fn named_groups(text: &str) -> Vec<String> {
    let ids = text.split(',').filter_map(|item| item.split(':').next()).map(str::trim);
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::tests::settings;
    use crate::plan::inputs::Ingress;

    fn handling(service: &ServiceView, gate: bool) -> [Handling; 2] {
        let mut settings = settings();
        settings.service.type_annotation = gate;
        [LoadBalancerKind::Classic, LoadBalancerKind::Network].map(|kind| kind.handling(service, &settings))
    }

    fn service(class: Option<&str>, kind: Option<&str>) -> ServiceView {
        let annotations = kind.map(|kind| (TYPE.full(), kind.to_owned())).into_iter().collect();
        let load_balancer_class = class.map(str::to_owned);
        let service_type = ServiceType::LoadBalancer;
        ServiceView { service_type, load_balancer_class, annotations, ..ServiceView::default() }
    }

    #[test]
    fn each_service_has_at_most_one_controller() {
        use Handling::{Ensure, Ignore};
        for (class, kind, gate, expected) in [
            (None, None, true, [Ensure, Ignore]),
            (Some(NLB_CLASS), None, false, [Ignore, Ensure]),
            (Some("alibabacloud.com/NLB"), None, false, [Ignore, Ignore]),
            (Some("other"), None, false, [Ignore, Ignore]),
            (None, Some("nlb"), false, [Ensure, Ignore]),
            (None, Some("nlb"), true, [Ignore, Ensure]),
            (None, Some("clb"), true, [Ignore, Ignore]),
            (Some(NLB_CLASS), Some("other"), true, [Ignore, Ensure]),
            (Some("other"), Some("nlb"), true, [Ignore, Ignore]),
        ] {
            assert_eq!(handling(&service(class, kind), gate), expected, "{class:?} {kind:?} {gate}");
        }
    }

    #[test]
    fn only_the_kind_that_has_its_finalizer_there_cleans_up() {
        let mut service = service(Some(NLB_CLASS), None);
        service.deleting = true;
        assert_eq!(handling(&service, false), [Handling::Ignore, Handling::Ignore]);
        service.finalizers = vec![NLB_FINALIZER.to_owned()];
        assert_eq!(handling(&service, false), [Handling::Ignore, Handling::Delete]);
        service.finalizers.push(FINALIZER.to_owned());
        assert_eq!(handling(&service, false), [Handling::Delete, Handling::Delete]);
    }

    #[test]
    fn what_another_kind_wrote_into_a_service_is_not_taken_for_ours() {
        let mut service = service(None, None);
        service.ingress = vec![Ingress { ip: "10.0.0.1".to_owned(), ..Ingress::default() }];
        let of = |service: &ServiceView| {
            [LoadBalancerKind::Classic, LoadBalancerKind::Network]
                .map(|kind| (kind.label(service).to_owned(), kind.had_one(service)))
        };
        assert_eq!(of(&service), [(String::new(), true), (String::new(), true)], "it may be either");
        service.labels.insert(LABEL_LB_ID.to_owned(), "lb-1".to_owned());
        assert_eq!(of(&service), [("lb-1".to_owned(), true), (String::new(), false)]);
        service.labels.insert(LABEL_LB_ID.to_owned(), "nlb-1".to_owned());
        assert_eq!(of(&service), [(String::new(), false), ("nlb-1".to_owned(), true)]);
    }
}
