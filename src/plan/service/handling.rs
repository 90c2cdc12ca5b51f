//! Who handles a Service, and what is to be done about it.

use super::annotations::{AnnotationKey, FORCE_OVERRIDE_LISTENERS, ID, PRESERVE_ON_DELETE, raw};
use super::ownership::{FINALIZER, LABEL_HASH};
use super::problem::ServiceProblem;
use super::settings::ServiceSettings;
use crate::plan::inputs::{ServiceType, ServiceView};

/// Hands a Service to another controller.
pub const CLASS: AnnotationKey = AnnotationKey::Whole("service.beta.kubernetes.io/class");
/// The kind of load balancer, where the configuration lets Services choose. It was never read by its old name.
pub const TYPE: AnnotationKey = AnnotationKey::CurrentSuffix("type");
/// Hands a Service to another controller, whatever it says. It was never read by its old name.
pub const TUNNEL_TYPE: AnnotationKey = AnnotationKey::CurrentSuffix("tunnel-type");

/// What to do about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nothing: it is not ours, or no longer; see [`handed_over`].
    Ignore,
    /// Keep its load balancer as desired.
    Ensure,
    /// Remove what we made for it, then the finalizer.
    Delete,
}

/// Whether a Service needs a classic load balancer from us, or needs to be cleaned up after.
pub fn handling(service: &ServiceView, settings: &ServiceSettings) -> Handling {
    let ours = service.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if service.deleting || service.service_type != ServiceType::LoadBalancer {
        return if ours { Handling::Delete } else { Handling::Ignore };
    }
    if claimed_by_other(service, settings).is_some() { Handling::Ignore } else { Handling::Ensure }
}

/// A Service that used to have a load balancer of ours, and was then given to another controller by its class or an
/// annotation.
///
/// Nothing is done about it: the load balancer keeps serving as it stands, and the finalizer, labels and status stay. The
/// other controller may need the address for a while, and whether the load balancer can go is for the user to say. When
/// the Service is deleted, or its type changes, what we made is removed as usual; when it is given back, its load
/// balancer is managed again.
pub fn handed_over(service: &ServiceView, settings: &ServiceSettings) -> Option<ServiceProblem> {
    let ours = service.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if !ours || service.deleting || service.service_type != ServiceType::LoadBalancer {
        return None;
    }
    claimed_by_other(service, settings).map(|(field, given)| ServiceProblem {
        field,
        given,
        allowed: "the Service now belongs to another controller; its load balancer is kept as it is until the Service \
                  is deleted, its type changes, or it is given back"
            .to_owned(),
    })
}

/// What gives a Service to another controller: field and value.
fn claimed_by_other(service: &ServiceView, settings: &ServiceSettings) -> Option<(String, String)> {
    if let Some(class) = &service.load_balancer_class {
        return Some(("spec.loadBalancerClass".to_owned(), class.clone()));
    }
    let given = |key: AnnotationKey| Some((key.full(), raw(service, key)?.to_owned()));
    given(CLASS)
        .filter(|(_, value)| !value.is_empty())
        .or_else(|| given(TUNNEL_TYPE))
        .or_else(|| given(TYPE).filter(|(_, value)| settings.service.type_annotation && !value.is_empty()))
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
}

impl Departure {
    /// Reads it from the annotations.
    pub fn of(service: &ServiceView) -> Self {
        let set = |name| raw(service, name).filter(|value| !value.is_empty());
        Self {
            reuse: set(ID).map(str::to_owned),
            preserve: set(PRESERVE_ON_DELETE).is_some(),
            override_listeners: set(FORCE_OVERRIDE_LISTENERS) == Some("true"),
        }
    }
}
