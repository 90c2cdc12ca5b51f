//! Who handles a Service, and what is to be done about it.

use std::collections::BTreeSet;

use super::annotations::{AnnotationKey, FORCE_OVERRIDE_LISTENERS, ID, MANAGE, PRESERVE_ON_DELETE, VGROUP_PORT, raw};
use super::applied;
use super::management::ManagementLevel;
use super::ownership::{
    FINALIZER, LABEL_FORMER_LB_ID, LABEL_HASH, LABEL_LB_ID, LABEL_SECURITY_GROUP, LoadBalancerKind, NLB_FINALIZER,
    RESTORED,
};
use super::problem::ServiceProblem;
use super::settings::ServiceSettings;
use crate::plan::inputs::ServiceView;

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

/// What classes of this vendor begin with.
const OWN_CLASSES: &str = "alibabacloud.com/";

/// Labels that say what a Service has.
const OWN_LABELS: [&str; 4] = [LABEL_HASH, LABEL_LB_ID, LABEL_FORMER_LB_ID, LABEL_SECURITY_GROUP];

/// What to do about a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nothing: it is not ours, or no longer; see [`LoadBalancerKind::handed_over`].
    Ignore,
    /// Keep its load balancer as desired.
    Ensure,
    /// Let its load balancer serve on, with backends that follow: the Service now asks for the other kind, which does not serve
    /// yet.
    ServeOn,
    /// Remove what we made for it, then the finalizer: a load balancer of the other kind serves the Service.
    Retire,
    /// Remove what we made for it, then status, labels and the finalizer: the Service leaves.
    Delete,
}

impl Handling {
    /// Whether what was made goes.
    pub const fn removes(self) -> bool {
        matches!(self, Self::Retire | Self::Delete)
    }

    /// Whether backends follow.
    pub const fn serves(self) -> bool {
        matches!(self, Self::Ensure | Self::ServeOn)
    }
}

impl LoadBalancerKind {
    /// What keeps a Service until its load balancer of this kind is gone.
    pub const fn finalizer(self) -> &'static str {
        match self {
            Self::Clb => FINALIZER,
            Self::Nlb => NLB_FINALIZER,
        }
    }

    /// Whether a Service has the finalizer, which is written before anything is made.
    pub fn is_managed(self, service: &ServiceView) -> bool {
        service.finalizers.iter().any(|finalizer| finalizer == self.finalizer())
    }

    /// Whether something of this kind may be left of the Service: it has the finalizer, or the annotation that comes and goes with
    /// it, although another client dropped the finalizer.
    pub fn may_be_left(self, service: &ServiceView) -> bool {
        self.is_managed(service) || service.own_annotations.contains_key(self.incarnation_key())
    }

    /// The annotation that remembers what was [`applied`].
    pub const fn applied_key(self) -> &'static str {
        match self {
            Self::Clb => applied::CLB,
            Self::Nlb => applied::NLB,
        }
    }

    /// The other one.
    const fn other(self) -> Self {
        match self {
            Self::Clb => Self::Nlb,
            Self::Nlb => Self::Clb,
        }
    }

    /// The controller's name, and what it makes.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Clb => ("service", "a classic load balancer"),
            Self::Nlb => ("nlb", "a network load balancer"),
        }
    }

    /// The id of the load balancer of this kind that the Service has; empty if it was never in sync. A user's load balancer is
    /// named before anything is made there.
    pub fn label(self, service: &ServiceView) -> &str {
        let ids = [LABEL_LB_ID, LABEL_FORMER_LB_ID].into_iter().filter_map(|label| service.labels.get(label));
        ids.map(String::as_str).find(|id| !id.is_empty() && self.has_id(id)).unwrap_or_default()
    }

    /// Whether the status of the Service shows a load balancer of this kind. Where one kind replaces the other, the label is
    /// written after the status.
    fn is_published(self, service: &ServiceView) -> bool {
        service.labels.get(LABEL_LB_ID).is_some_and(|id| self.has_id(id)) && !service.ingress.is_empty()
    }

    /// Whether this kind is about to replace the other one, whose load balancer still serves the Service.
    pub fn takes_over(self, service: &ServiceView) -> bool {
        self.other().is_managed(service) && !self.is_published(service)
    }

    /// Whether a load balancer of this kind serves the Service, as its status shows.
    pub fn serves(self, service: &ServiceView) -> bool {
        !service.ingress.is_empty() && !self.takes_over(service)
    }

    /// The labels that say which load balancer the Service has, and which other one it had, that is not removed yet.
    pub fn labels<'a>(self, service: &'a ServiceView, id: &'a str) -> [(&'static str, Option<&'a str>); 2] {
        let former = Some(self.other()).filter(|other| other.is_managed(service));
        let former = former.map(|other| other.label(service)).filter(|id| !id.is_empty());
        [(LABEL_LB_ID, Some(id)), (LABEL_FORMER_LB_ID, former)]
    }

    /// The annotation that is written and removed with the finalizer. Its value differs each time: what a Service had before it
    /// asked for no load balancer is not what it asks for afterwards.
    pub const fn incarnation_key(self) -> &'static str {
        match self {
            Self::Clb => "alicloud-ccm/clb-incarnation",
            Self::Nlb => "alicloud-ccm/nlb-incarnation",
        }
    }

    /// What tells the next load balancer of this kind from all that the Service has had: the annotation, and the last one, which
    /// may be `replaced`. Without the annotation, which earlier versions did not write, only the last one.
    pub fn incarnation(self, service: &ServiceView, replaced: Option<&str>) -> String {
        let last = replaced.unwrap_or_else(|| self.label(service));
        let of_finalizer = service.own_annotations.get(self.incarnation_key());
        of_finalizer.map_or_else(|| last.to_owned(), |it| format!("{it}/{last}"))
    }

    /// The label that says which load balancer of this kind the Service has: another one than usual while one of the other kind
    /// serves it.
    pub fn naming_label(self, service: &ServiceView) -> &'static str {
        let is_taken = |label: &str| service.labels.get(label).is_some_and(|id| !id.is_empty() && !self.has_id(id));
        let waits = self.takes_over(service) && !is_taken(LABEL_FORMER_LB_ID);
        if waits || is_taken(LABEL_LB_ID) { LABEL_FORMER_LB_ID } else { LABEL_LB_ID }
    }

    /// The labels that go with the finalizer of this kind.
    pub fn labels_to_remove(self, service: &ServiceView) -> impl Iterator<Item = &'static str> {
        let other_stays = self.other().is_managed(service);
        OWN_LABELS.into_iter().filter(move |label| {
            service.labels.get(*label).is_some_and(|value| match *label {
                _ if !other_stays => true,
                LABEL_LB_ID | LABEL_FORMER_LB_ID => self.has_id(value),
                LABEL_SECURITY_GROUP => self == Self::Nlb,
                _ => false,
            })
        })
    }

    /// The annotations that go with the finalizer of this kind. What marks are made of goes with the last one.
    pub fn annotations_to_remove(self, service: &ServiceView) -> impl Iterator<Item = &'static str> {
        let restored = (!self.other().may_be_left(service)).then_some(RESTORED);
        let own = [self.incarnation_key(), self.applied_key()].into_iter().chain(restored);
        own.filter(|key| service.own_annotations.contains_key(*key))
    }

    /// Whether the Service had a load balancer of this kind before. The status does not say of which kind it is; the label,
    /// which is written before it, does.
    pub fn had_one(self, service: &ServiceView) -> bool {
        let is_labelled = service.labels.get(LABEL_LB_ID).is_some_and(|id| !id.is_empty());
        !self.label(service).is_empty() || (!is_labelled && !service.ingress.is_empty())
    }

    fn has_id(self, id: &str) -> bool {
        id.starts_with("nlb-") == (self == Self::Nlb)
    }

    /// Whether a Service needs a load balancer of this kind from us, or needs to be cleaned up after.
    pub fn handling(self, service: &ServiceView, settings: &ServiceSettings) -> Handling {
        if service.deleting || !service.is_load_balancer() {
            return if self.is_managed(service) { Handling::Delete } else { Handling::Ignore };
        }
        if self.claimed_by_other(service, settings).is_none() {
            return Handling::Ensure;
        }
        match self.successor(service, settings) {
            Some(other) if other.is_published(service) => Handling::Retire,
            Some(_) => Handling::ServeOn,
            None => Handling::Ignore,
        }
    }

    /// What to do about a Service that may have a load balancer of this kind, whether or not another client dropped the finalizer.
    pub fn handling_of_owner(self, service: &ServiceView, settings: &ServiceSettings) -> Handling {
        if self.is_managed(service) {
            return self.handling(service, settings);
        }
        let mut managed = service.clone();
        managed.finalizers.push(self.finalizer().to_owned());
        self.handling(&managed, settings)
    }

    /// The other kind, if the Service had a load balancer of this one and now asks for one of that.
    fn successor(self, service: &ServiceView, settings: &ServiceSettings) -> Option<Self> {
        let other = self.other();
        (self.is_managed(service) && other.claimed_by_other(service, settings).is_none()).then_some(other)
    }

    /// What happens to a load balancer that the other kind replaces, in words for the user of its Service.
    pub fn succession(self, service: &ServiceView, settings: &ServiceSettings) -> Option<String> {
        let (controller, makes) = self.words();
        let other = self.other();
        let runs = |kind: &Self| settings.controllers.contains(&kind.words().0);
        if self.handling(service, settings) == Handling::Ensure {
            let stays = other.is_managed(service) && self.is_published(service) && !runs(&other);
            let (id, (other, _)) = (other.label(service), other.words());
            return stays.then(|| {
                format!(
                    "Load balancer {id} no longer serves this Service, and stays: the controller {other}, which removes it, \
                     does not run. List it in controllers"
                )
            });
        }
        if self.handling(service, settings) == Handling::Delete {
            // It asks for no load balancer at all.
            return None;
        }
        let successor = self.successor(service, settings).filter(|other| !other.is_published(service))?;
        let id = match self.label(service) {
            "" => makes,
            id => id,
        };
        let departure = Departure::of(self, &self.superseded(service));
        let fate = match (&departure.reuse, departure.preserve) {
            (Some(_), _) => "loses what was made there for the Service, and stays",
            (None, true) => "is kept, as preserve-lb-on-delete asks",
            (None, false) => "is deleted",
        };
        let (needed, wanted) = successor.words();
        let waits = if runs(&successor) {
            String::new()
        } else {
            format!(". The controller {needed}, which makes it, does not run: list it in controllers")
        };
        Some(format!(
            "The Service now asks for {wanted}. Load balancer {id} of the controller {controller} serves until that one does, and \
             its backends follow; then the status changes, and {} s later {id} {fate}{waits}",
            settings.service.hand_over_grace.as_secs()
        ))
    }

    /// The Service as it is to a load balancer of this kind that another one replaces: only backends are kept in sync, and an
    /// id of the other kind names none of this one.
    pub fn superseded(self, service: &ServiceView) -> ServiceView {
        let mut service = service.clone();
        if raw(&service, ID).is_some_and(|id| !id.is_empty() && !self.has_id(id)) {
            service.annotations.insert(ID.full(), String::new());
        }
        if raw(&service, MANAGE) != Some(ManagementLevel::None.as_str()) {
            service.annotations.insert(MANAGE.full(), ManagementLevel::Backends.as_str().to_owned());
        }
        service
    }

    /// The load balancer that serves the Service while its annotation names another one.
    pub fn former(self, service: &ServiceView) -> Option<&str> {
        let named = raw(service, ID).map(str::trim).filter(|id| !id.is_empty())?;
        Some(self.label(service)).filter(|id| !id.is_empty() && *id != named)
    }

    /// A Service that used to have a load balancer of ours, and was then given by its class or an annotation to a controller
    /// that is none of ours.
    ///
    /// Nothing is done about it: the load balancer keeps serving as it stands, and the finalizer, labels and status stay. The
    /// other controller may need the address for a while, and whether the load balancer can go is for the user to say. When
    /// the Service is deleted, or its type changes, what we made is removed as usual; when it is given back, its load
    /// balancer is managed again.
    pub fn handed_over(self, service: &ServiceView, settings: &ServiceSettings) -> Option<ServiceProblem> {
        let is_left = self.is_managed(service) && !service.deleting && service.is_load_balancer();
        if !is_left || self.successor(service, settings).is_some() {
            return None;
        }
        self.claimed_by_other(service, settings).map(|(field, given)| {
            let text = format!(
                "the Service now belongs to another controller, as {given:?} says; its load balancer is kept as it is until \
                 the Service is deleted, its type changes, or it is given back"
            );
            ServiceProblem::state(field, text)
        })
    }

    /// What gives a Service to another controller: field and value.
    pub fn claimed_by_other(self, service: &ServiceView, settings: &ServiceSettings) -> Option<(String, String)> {
        let given = |key: AnnotationKey| Some((key.full(), raw(service, key)?.to_owned()));
        let class = service.load_balancer_class.as_deref();
        let kind = given(TYPE).filter(|(_, value)| settings.service.type_annotation && !value.is_empty());
        let stated_class = || class.map(|class| ("spec.loadBalancerClass".to_owned(), class.to_owned()));
        match self {
            Self::Clb => stated_class()
                .or_else(|| given(CLASS).filter(|(_, value)| !value.is_empty()))
                .or_else(|| given(TUNNEL_TYPE))
                .or(kind),
            Self::Nlb => {
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
    /// The user's load balancer that the annotation names, unless another one serves the Service.
    pub reuse: Option<String>,
    /// Whether a load balancer of ours is kept.
    pub preserve: bool,
    /// Whether our listeners go from a user's load balancer.
    pub override_listeners: bool,
    /// Ids of the user's server groups that the Service names, or named: they can hold backends of ours.
    pub named_groups: BTreeSet<String>,
}

impl Departure {
    /// Reads it from the annotations. `kind` is that of the load balancer that the Service leaves.
    pub fn of(kind: LoadBalancerKind, service: &ServiceView) -> Self {
        let set = |name| raw(service, name).filter(|value| !value.is_empty());
        let id = set(ID).map(str::trim).filter(|id| !id.is_empty());
        let mut named_groups = named_groups(set(VGROUP_PORT).unwrap_or_default());
        named_groups.extend(applied::groups(&applied::applied(service, applied::NLB)).cloned());
        Self {
            reuse: id.filter(|_| kind.former(service).is_none()).map(str::to_owned),
            preserve: set(PRESERVE_ON_DELETE).is_some(),
            override_listeners: set(FORCE_OVERRIDE_LISTENERS).map(str::trim) == Some("true"),
            named_groups,
        }
    }
}

/// What stands before the first colon of each item, also of one that is malformed otherwise.
fn named_groups(text: &str) -> BTreeSet<String> {
    let ids = text.split(',').filter_map(|item| item.split(':').next()).map(str::trim);
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// Why no controller handles a Service that asks for a load balancer of ours by its class or type; `None` if one does. Classes of
/// other vendors are theirs, and a Service without a class is for whoever serves those.
pub fn unhandled(service: &ServiceView, settings: &ServiceSettings) -> Option<String> {
    if service.deleting || !service.is_load_balancer() {
        return None;
    }
    let claimed = |kind: LoadBalancerKind| kind.claimed_by_other(service, settings);
    if claimed(LoadBalancerKind::Nlb).is_none() {
        let (nlb, makes) = LoadBalancerKind::Nlb.words();
        let message = || {
            format!("the Service asks for {makes}, and the controller {nlb} does not run: list {nlb:?} in controllers")
        };
        return (!settings.controllers.contains(&nlb)).then(message);
    }
    let class =
        service.load_balancer_class.as_deref().filter(|class| class.starts_with(OWN_CLASSES) && *class != NLB_CLASS)?;
    Some(format!(
        "spec.loadBalancerClass is {class:?}, which is not known; {NLB_CLASS:?} or no class is allowed, and a class cannot be changed: create the Service anew"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::tests::settings;
    use crate::plan::inputs::{Ingress, ServiceType};

    fn handling(service: &ServiceView, gate: bool) -> [Handling; 2] {
        let mut settings = settings();
        settings.service.type_annotation = gate;
        LoadBalancerKind::ALL.map(|kind| kind.handling(service, &settings))
    }

    fn service(class: Option<&str>, kind: Option<&str>) -> ServiceView {
        let annotations = kind.map(|kind| (TYPE.full(), kind.to_owned())).into_iter().collect();
        let load_balancer_class = class.map(str::to_owned);
        let service_type = ServiceType::LoadBalancer;
        ServiceView { service_type, load_balancer_class, annotations, ..ServiceView::default() }
    }

    #[test]
    fn what_marks_are_made_of_goes_with_the_last_load_balancer() {
        let mut service = ServiceView::default();
        for key in [RESTORED, "alicloud-ccm/clb-incarnation", "alicloud-ccm/nlb-incarnation"] {
            service.own_annotations.insert(key.to_owned(), "text".to_owned());
        }
        let removed = |service: &ServiceView| LoadBalancerKind::Clb.annotations_to_remove(service).collect::<Vec<_>>();
        assert_eq!(removed(&service), ["alicloud-ccm/clb-incarnation"], "the other one is found by it");
        service.own_annotations.remove("alicloud-ccm/nlb-incarnation");
        assert_eq!(removed(&service), ["alicloud-ccm/clb-incarnation", RESTORED]);
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

    /// A Service with both finalizers, these labels, and what an address says.
    fn handed_over(kind: Option<&str>, labels: &[(&str, &str)], address: &str) -> ServiceView {
        let mut service = service(None, kind);
        service.finalizers = vec![FINALIZER.to_owned(), NLB_FINALIZER.to_owned()];
        service.labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        service.ingress = vec![Ingress { ip: address.to_owned(), ..Ingress::default() }];
        service
    }

    #[test]
    fn a_load_balancer_serves_until_the_status_and_the_label_show_one_of_the_other_kind() {
        use Handling::{Ensure, Retire, ServeOn};
        let (old, new) = ([(LABEL_LB_ID, "lb-1")], [(LABEL_LB_ID, "nlb-1"), (LABEL_FORMER_LB_ID, "lb-1")]);
        for (kind, labels, expected) in [
            (Some("nlb"), &old[..], [ServeOn, Ensure]),
            (Some("nlb"), &[], [ServeOn, Ensure]),
            (Some("nlb"), &new, [Retire, Ensure]),
            (None, &old, [Ensure, Retire]),
            (None, &new, [Ensure, ServeOn]),
        ] {
            assert_eq!(handling(&handed_over(kind, labels, "1.1.1.1"), true), expected, "{kind:?} {labels:?}");
        }
        let mut unpublished = handed_over(Some("nlb"), &new, "1.1.1.1");
        unpublished.ingress.clear();
        assert_eq!(handling(&unpublished, true)[0], ServeOn);
        let mut elsewhere = handed_over(Some("other"), &old, "1.1.1.1");
        assert_eq!(
            handling(&elsewhere, true),
            [Handling::Ignore, Handling::Ignore],
            "a controller that is none of ours"
        );
        elsewhere.deleting = true;
        assert_eq!(handling(&elsewhere, true), [Handling::Delete, Handling::Delete]);
    }

    #[test]
    fn each_kind_finds_its_load_balancer_by_its_own_label_and_takes_it_off_alone() {
        let (classic, network) = (LoadBalancerKind::Clb, LoadBalancerKind::Nlb);
        let service = handed_over(Some("nlb"), &[(LABEL_LB_ID, "lb-1"), (LABEL_HASH, "x")], "1.1.1.1");
        assert!(network.takes_over(&service) && !classic.takes_over(&service));
        assert_eq!(
            network.labels(&service, "nlb-1"),
            [(LABEL_LB_ID, Some("nlb-1")), (LABEL_FORMER_LB_ID, Some("lb-1"))]
        );
        assert_eq!(classic.labels(&service, "lb-1"), [(LABEL_LB_ID, Some("lb-1")), (LABEL_FORMER_LB_ID, None)]);
        let labels = [(LABEL_LB_ID, "nlb-1"), (LABEL_FORMER_LB_ID, "lb-1"), (LABEL_SECURITY_GROUP, "sg-1")];
        let mut service = handed_over(Some("nlb"), &labels, "1.1.1.1");
        assert_eq!((classic.label(&service), network.label(&service)), ("lb-1", "nlb-1"));
        let removed =
            |kind: LoadBalancerKind, service: &ServiceView| kind.labels_to_remove(service).collect::<Vec<_>>();
        assert!(classic.had_one(&service) && network.had_one(&service));
        assert_eq!(removed(classic, &service), [LABEL_FORMER_LB_ID]);
        assert_eq!(removed(network, &service), [LABEL_LB_ID, LABEL_SECURITY_GROUP]);
        service.finalizers.pop();
        assert_eq!(removed(classic, &service), [LABEL_LB_ID, LABEL_FORMER_LB_ID, LABEL_SECURITY_GROUP]);
    }

    #[test]
    fn the_user_is_told_what_becomes_of_the_old_load_balancer() {
        let told = |kind: LoadBalancerKind, service: &ServiceView, controllers: &[&'static str]| {
            let mut settings = settings();
            settings.service.type_annotation = true;
            settings.controllers = controllers.to_vec();
            kind.succession(service, &settings).unwrap_or_default()
        };
        let (classic, network) = (LoadBalancerKind::Clb, LoadBalancerKind::Nlb);
        let mut service = handed_over(Some("nlb"), &[(LABEL_LB_ID, "lb-1")], "1.1.1.1");
        let text = told(classic, &service, &["service", "nlb"]);
        assert!(text.contains("300 s later lb-1 is deleted") && !text.contains("does not run"), "{text}");
        assert!(told(classic, &service, &["service"]).contains("The controller nlb, which makes it, does not run"));
        assert_eq!(told(network, &service, &["nlb"]), "", "it serves not yet");
        for (key, value, fate) in [
            (PRESERVE_ON_DELETE, "on", "is kept, as preserve-lb-on-delete asks"),
            (ID, "nlb-2", "is kept, as preserve-lb-on-delete asks"),
            (ID, "lb-1", "loses what was made there for the Service, and stays"),
        ] {
            service.annotations.insert(key.full(), value.to_owned());
            assert!(told(classic, &service, &["service", "nlb"]).contains(fate), "{value}");
        }
        service.service_type = ServiceType::NodePort;
        assert_eq!(
            told(classic, &service, &["service", "nlb"]),
            "",
            "nothing takes its place, and it is removed at once"
        );
        let labels = [(LABEL_LB_ID, "nlb-1"), (LABEL_FORMER_LB_ID, "lb-1")];
        let service = handed_over(Some("nlb"), &labels, "1.1.1.1");
        assert!(told(network, &service, &["nlb"]).contains("lb-1 no longer serves this Service, and stays"));
        assert_eq!(told(network, &service, &["service", "nlb"]), "");
        assert_eq!(told(classic, &service, &["service"]), "", "it goes, whether the other one runs or not");
    }

    #[test]
    fn of_a_load_balancer_that_is_replaced_only_backends_are_kept_in_sync() {
        let mut service = service(None, Some("nlb"));
        service.annotations.insert(ID.full(), "nlb-1".to_owned());
        let of = |kind: LoadBalancerKind| {
            let view = kind.superseded(&service);
            [ID, MANAGE].map(|key| raw(&view, key).unwrap_or_default().to_owned())
        };
        assert_eq!(of(LoadBalancerKind::Clb), ["", "backends"], "the id is none of a classic load balancer");
        assert_eq!(of(LoadBalancerKind::Nlb), ["nlb-1", "backends"]);
    }

    #[test]
    fn what_another_kind_wrote_into_a_service_is_not_taken_for_ours() {
        let mut service = service(None, None);
        service.ingress = vec![Ingress { ip: "10.0.0.1".to_owned(), ..Ingress::default() }];
        let of = |service: &ServiceView| {
            [LoadBalancerKind::Clb, LoadBalancerKind::Nlb]
                .map(|kind| (kind.label(service).to_owned(), kind.had_one(service)))
        };
        assert_eq!(of(&service), [(String::new(), true), (String::new(), true)], "it may be either");
        service.labels.insert(LABEL_LB_ID.to_owned(), "lb-1".to_owned());
        assert_eq!(of(&service), [("lb-1".to_owned(), true), (String::new(), false)]);
        service.labels.insert(LABEL_LB_ID.to_owned(), "nlb-1".to_owned());
        assert_eq!(of(&service), [(String::new(), false), ("nlb-1".to_owned(), true)]);
    }
}
