//! Ids of servers and marks, each kept once: every load balancer can have every node as a backend.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::plan::clb::observed::Observed;
use crate::plan::service::model::Backend;

/// Texts that load balancers have in common.
#[derive(Debug, Default)]
pub(super) struct Interner(Mutex<Texts>);

#[derive(Debug, Default)]
struct Texts {
    known: HashSet<Arc<str>>,
    /// How many there may be before those that are no longer used are looked for.
    most: usize,
}

impl Interner {
    pub(super) fn share(&self, observed: &mut Arc<Observed>) {
        self.0.lock().share(observed);
    }
}

impl Texts {
    fn share(&mut self, observed: &mut Arc<Observed>) {
        let shared = |it: &Backend| self.has(&it.key.server_id) && self.has(&it.description);
        if observed.groups.values().all(|group| group.members().iter().all(shared)) {
            return;
        }
        for backends in Arc::make_mut(observed).groups.values_mut().filter_map(|group| group.backends.as_mut()) {
            for backend in Arc::make_mut(backends).iter_mut() {
                self.one(&mut backend.key.server_id);
                self.one(&mut backend.description);
            }
        }
        if self.known.len() > self.most {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.most = 2 * self.known.len() + 1000;
        }
    }

    /// Whether this is the one copy of the text.
    fn has(&self, text: &Arc<str>) -> bool {
        self.known.get(text).is_some_and(|known| Arc::ptr_eq(known, text))
    }

    fn one(&mut self, text: &mut Arc<str>) {
        match self.known.get(text) {
            Some(known) => *text = known.clone(),
            None => drop(self.known.insert(text.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::service::model::{BackendKey, BackendKind, ObservedGroup};

    #[test]
    fn texts_are_kept_once_and_only_while_they_are_used() {
        let balancer = |server: String| {
            let key =
                BackendKey { kind: BackendKind::Ecs, server_id: server.into(), server_ip: Box::default(), port: 1 };
            let backends = Some(Arc::new(vec![Backend { key, weight: 100, description: "mark".into() }].into()));
            let group = ObservedGroup { name: String::new(), backends };
            Arc::new(Observed { groups: [("rsp".to_owned(), group)].into(), ..Observed::default() })
        };
        let mut texts = Texts::default();
        let (mut one, mut other) = (balancer("i-1".to_owned()), balancer("i-1".to_owned()));
        texts.share(&mut one);
        texts.share(&mut other);
        let id = |observed: &Observed| observed.groups["rsp"].backends.as_ref().unwrap()[0].key.server_id.clone();
        assert!(Arc::ptr_eq(&id(&one), &id(&other)));
        for number in 0..5000 {
            texts.share(&mut balancer(format!("i-gone-{number}")));
        }
        assert!(texts.known.len() <= 1100, "{}", texts.known.len());
        assert!(texts.known.contains("i-1"));
    }
}
