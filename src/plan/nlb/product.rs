//! What this product brings to what all products do.

use super::annotations::{Annotations, Name};
use super::desired::{Desired, DesiredAccess, DesiredInstance, NetworkExtra, NetworkModel};
use super::needs::MissingReads;
use super::observed::Observed;
use super::operation::Plan;
use super::{desire, diff, origins, teardown};
use crate::plan::inputs::{Ingress, ServiceView};
use crate::plan::service::applied;
use crate::plan::service::backends::{BackendRules, Inputs};
use crate::plan::service::desired::{ProductModel, Removal};
use crate::plan::service::goal::Goal;
use crate::plan::service::ownership::Owner;
use crate::plan::service::settings::ServiceSettings;
use crate::plan::setting::Otherwise;

impl ProductModel for NetworkModel {
    const APPLIED: &'static str = applied::NLB;
    type Name = Name;
    type Instance = DesiredInstance;
    type Access = DesiredAccess;
    type Extra = NetworkExtra;
    type Observed = Observed;

    fn owner(service: &ServiceView, settings: &ServiceSettings) -> Owner {
        Owner::of_network_load_balancer(service, settings)
    }

    fn backend_rules(service: &ServiceView, annotations: &Annotations, settings: &ServiceSettings) -> BackendRules {
        desire::backend_rules(service, annotations, settings)
    }

    fn desire(inputs: &Inputs<'_>) -> Desired {
        desire::desire(inputs)
    }

    fn otherwise(_: &ServiceView, settings: &ServiceSettings, desired: &Desired) -> Vec<Otherwise<Name>> {
        origins::otherwise(settings, desired)
    }

    fn found(observed: &Observed) -> Vec<(Name, String)> {
        observed.instance.as_ref().map(origins::found).unwrap_or_default()
    }

    fn diff(desired: &Desired, observed: &Observed) -> Plan {
        diff::diff(desired, observed)
    }

    fn teardown(removal: &Removal, observed: &Observed) -> Plan {
        teardown::teardown(&removal.owner, &removal.departure, observed)
    }

    fn ingress(_: &Desired, observed: &Observed, _: &[String]) -> Vec<Ingress> {
        let names = observed.instance.iter().map(|instance| instance.dns_name.clone()).filter(|name| !name.is_empty());
        names.map(|hostname| Ingress { ip: String::new(), hostname }).collect()
    }
}

impl Goal<NetworkModel> {
    /// What must be read before it can be compared with what there is.
    pub fn needs(&self, observed: &Observed) -> MissingReads {
        match self {
            Self::Ensure(desired) => desired.needs(observed),
            Self::Remove(removal) => {
                let mut needs = teardown::teardown_needs(&removal.owner, &removal.departure, observed);
                let has_joined = observed.instance.iter().any(|instance| !instance.security_group_ids.is_empty());
                needs.security_groups &= removal.had_ranges || has_joined;
                needs
            }
        }
    }
}
