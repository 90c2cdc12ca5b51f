//! Ids of servers and marks, each kept once: every load balancer can have every node as a backend.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::interner::Interner;
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::model::Backend;

/// Texts that load balancers have in common.
#[derive(Debug, Default)]
pub(super) struct BackendTexts(Mutex<Interner>);

impl BackendTexts {
    /// Gives its backends the copies that other load balancers have, before the observed state is cached.
    pub(super) fn share(&self, observed: &mut Arc<Observed<impl CloudModel>>) {
        let mut texts = self.0.lock();
        let shared = |it: &Backend| texts.has(&it.key.server_id) && texts.has(&it.description);
        if observed.groups.values().all(|group| group.members().iter().all(shared)) {
            return;
        }
        let groups = Arc::make_mut(observed).groups.iter_mut().map(|(_, group)| group);
        for backends in groups.filter_map(|group| group.backends.as_mut()) {
            for backend in Arc::make_mut(backends).iter_mut() {
                backend.key.server_id = texts.one(backend.key.server_id.clone());
                backend.description = texts.one(backend.description.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::observed::Observed;
    use crate::plan::loadbalancer::model::{BackendKey, BackendKind, ObservedGroup};

    #[test]
    fn load_balancers_share_the_texts_of_their_backends() {
        let balancer = |server: String| {
            let key =
                BackendKey { kind: BackendKind::Ecs, server_id: server.into(), server_ip: Box::default(), port: 1 };
            let backends = Some(Arc::new(vec![Backend { key, weight: 100, description: "mark".into() }].into()));
            let group = ObservedGroup { name: String::new(), backends };
            Arc::new(Observed { groups: [("rsp".to_owned(), group)].into_iter().collect(), ..Observed::default() })
        };
        let texts = BackendTexts::default();
        let (mut one, mut other) = (balancer("i-1".to_owned()), balancer("i-1".to_owned()));
        texts.share(&mut one);
        texts.share(&mut other);
        let id = |observed: &Observed| {
            observed.groups.get("rsp").unwrap().backends.as_ref().unwrap()[0].key.server_id.clone()
        };
        assert!(Arc::ptr_eq(&id(&one), &id(&other)));
    }
}
