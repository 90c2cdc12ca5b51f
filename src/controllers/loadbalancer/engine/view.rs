//! What a reconcile begins with: the Service as it is now, and what is to be done for it.

use std::sync::Arc;

use super::Engine;
use crate::controllers::loadbalancer::prepare::Case;
use crate::controllers::loadbalancer::product::Product;
use crate::controllers::loadbalancer::state::{NOT_HANDLED, is_news};
use crate::controllers::loadbalancer::{NAME, settings_of};
use crate::plan::inputs::{ObjectKey, ServiceView};
use crate::plan::loadbalancer::handling::{Handling, unhandled};
use crate::plan::loadbalancer::ownership::{LoadBalancerKind, Owner};
use crate::plan::loadbalancer::settings::ServiceSettings;

impl<P: Product> Engine<P> {
    /// The Service, its settings and what is remembered of it; `None` if it is gone.
    pub(super) async fn view(&self, key: &ObjectKey) -> Option<Case<P::Model>> {
        let states = &self.preparer.states;
        let settings =
            settings_of::<P>(&self.context.config.borrow(), self.context.cluster.uid(), &self.context.location);
        let Some(service) = self.preparer.views.services.store.get(key) else {
            self.preparer.resolver.candidates.forget(key);
            self.writer.forget(key);
            if let Some((service, in_flight)) = states.drop(key) {
                if in_flight.may_own {
                    self.reporter.vanished(&service, in_flight.labelled.as_deref());
                }
                self.product().forget(&Owner::of(&service, &settings)).await;
            }
            return None;
        };
        let service = self.writer.newest(service);
        let mut state = states.read(key, &service.uid);
        state.in_flight.may_own |= state.in_flight.watch_may_lag_for().is_none() && P::KIND.may_be_left(&service);
        let handling = match state.in_flight.may_own {
            true => P::KIND.handling_of_owner(&service, &settings),
            false => P::KIND.handling(&service, &settings),
        };
        if !handling.serves() {
            self.preparer.resolver.candidates.forget(key);
        }
        if let Some(reason) = state.see(&service, handling.serves()) {
            self.reporter.changed(&service, reason);
        }
        self.tell_of_succession(&service, &settings, &mut state.told.succession);
        let mut case = Case { service, settings: Arc::new(settings), handling, state, problems: Vec::new() };
        self.tell_of_neglect(&mut case);
        Some(case)
    }

    /// Says what happens to a load balancer that one of the other kind replaces.
    fn tell_of_succession(&self, service: &ServiceView, settings: &ServiceSettings, told: &mut String) {
        let text = P::KIND.succession(service, settings).unwrap_or_default();
        if is_news(told, &text) {
            self.reporter.succession(service, text);
        }
    }

    /// Reports why no controller handles a Service that asks for a load balancer of this program. One controller reports it:
    /// that of classic load balancers, where it runs.
    fn tell_of_neglect(&self, case: &mut Case<P::Model>) {
        let (service, settings) = (&case.service, &case.settings);
        let is_first = P::KIND == LoadBalancerKind::Clb || !settings.controllers.contains(&NAME);
        let is_left = case.handling == Handling::Ignore && P::KIND.handed_over(service, settings).is_none();
        let why = unhandled(service, settings).filter(|_| is_first && is_left);
        let text = why.map(|why| format!("No controller handles this Service: {why}"));
        self.withhold(case, NOT_HANDLED, text.as_deref());
    }
}
