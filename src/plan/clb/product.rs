//! What this product brings to what all products do.

use super::annotations::{Annotations, Name};
use super::desired::{ClassicExtra, ClassicModel, Desired, DesiredAccess, DesiredInstance, DesiredListener};
use super::model::ListenerField;
use super::needs::MissingReads;
use super::observed::Observed;
use super::operation::Plan;
use super::{desire, diff, origins, status, teardown};
use crate::plan::inputs::{Ingress, ServiceView};
use crate::plan::service::applied;
use crate::plan::service::backends::{BackendRules, Inputs};
use crate::plan::service::desired::{ProductModel, Removal};
use crate::plan::service::goal::Goal;
use crate::plan::service::ownership::Owner;
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::Otherwise;

impl ProductModel for ClassicModel {
    const APPLIED: &'static str = applied::CLB;
    type Name = Name;
    type Instance = DesiredInstance;
    type Access = DesiredAccess;
    type Extra = ClassicExtra;
    type Observed = Observed;

    fn owner(service: &ServiceView, settings: &ServiceSettings) -> Owner {
        Owner::of(service, settings)
    }

    fn backend_rules(service: &ServiceView, annotations: &Annotations, settings: &ServiceSettings) -> BackendRules {
        desire::backend_rules(service, annotations, settings)
    }

    fn desire(inputs: &Inputs<'_>) -> Desired {
        desire::desire(inputs)
    }

    fn otherwise(service: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
        origins::otherwise(service, settings, desired)
    }

    fn found(observed: &Observed) -> Vec<(Name, String)> {
        observed.instance.as_ref().map(origins::found).unwrap_or_default()
    }

    fn diff(desired: &Desired, observed: &Observed) -> Plan {
        diff::diff(desired, observed)
    }

    fn teardown(removal: &Removal, observed: &Observed) -> Plan {
        let plan = teardown::teardown(&removal.owner, &removal.departure, observed);
        if removal.stays { teardown::reversible(plan) } else { plan }
    }

    fn publishes_elastic(desired: &Desired) -> bool {
        desired.extra.eip
    }

    fn speaks_proxy_protocol(desired: &Desired) -> bool {
        let is_on =
            |it: &DesiredListener| it.fields.get(&ListenerField::ProxyProtocolV2Enabled).is_some_and(|on| on == "true");
        desired.listeners.values().any(is_on)
    }

    fn ingress(desired: &Desired, observed: &Observed, elastic: &[String]) -> Vec<Ingress> {
        let instance = observed.instance.as_ref();
        instance.map(|instance| status::expected_ingress(desired, instance, elastic)).unwrap_or_default()
    }
}

impl Goal<ClassicModel> {
    /// What must be read before it can be compared with what there is.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired) => desired.needs(observed),
            Self::Remove(removal) => teardown::teardown_needs(&removal.owner, &removal.departure, observed),
        }
    }
}
