//! Texts that very many objects have in common, each kept once.

use std::collections::HashSet;
use std::sync::Arc;

/// The texts that are in use.
#[derive(Debug, Default)]
pub struct Interner {
    known: HashSet<Arc<str>>,
    /// How many there may be before those that are no longer used are looked for.
    most: usize,
}

impl Interner {
    /// Whether this is the one copy of the text.
    pub fn has(&self, text: &Arc<str>) -> bool {
        self.known.get(text).is_some_and(|known| Arc::ptr_eq(known, text))
    }

    /// The one copy of this text.
    pub fn one<T: AsRef<str> + Into<Arc<str>>>(&mut self, text: T) -> Arc<str> {
        if let Some(known) = self.known.get(text.as_ref()) {
            return known.clone();
        }
        if self.known.len() >= self.most {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.most = 2 * self.known.len() + 1000;
        }
        let text = text.into();
        self.known.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_once_and_only_while_they_are_used() {
        let mut interner = Interner::default();
        let (one, other) = (interner.one("i-1".to_owned()), interner.one("i-1"));
        assert!(Arc::ptr_eq(&one, &other) && interner.has(&other));
        for number in 0..5000 {
            drop(interner.one(format!("i-gone-{number}")));
        }
        assert!(interner.known.len() <= 1100, "{}", interner.known.len());
        assert!(interner.known.contains("i-1"));
    }
}
