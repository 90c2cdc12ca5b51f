//! Objects by id, which are also found by the words that they carry: a name, a tag, an address, the id of another object.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::{Bound, Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::account::Shared;
use super::nlb::{NetworkLoadBalancer, ServerGroup};
use super::objects::{Instance, Interface, LoadBalancer};
use crate::effort;

/// What an object can be found by.
pub trait Carries {
    /// Says each of its words.
    fn words(&self, say: &mut dyn FnMut(String));
}

/// Objects by id. It can be used as the map that it is; earlier states of the account share it until it is changed.
pub struct Table<V> {
    objects: Arc<BTreeMap<String, V>>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    by_word: HashMap<String, BTreeSet<String>>,
    words: HashMap<String, Vec<String>>,
    /// The objects that may have other words by now; `None` for all of them.
    stale: Option<BTreeSet<String>>,
}

/// As the map that it is: what was looked for says nothing about the account.
impl<V: fmt::Debug> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { objects: Arc::default(), index: Mutex::default() }
    }
}

impl<V> Clone for Table<V> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), index: Mutex::default() }
    }
}

impl<V> Deref for Table<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

impl<V: Clone> DerefMut for Table<V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.index.get_mut().stale = None;
        Arc::make_mut(&mut self.objects)
    }
}

impl<V: Clone> Table<V> {
    /// Every object, each of which counts as looked at.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&String, &V)> + Clone {
        self.objects.iter().inspect(|_| effort::look())
    }

    /// The same without the ids.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, object)| object)
    }

    fn touch(&mut self, id: &str) -> &mut BTreeMap<String, V> {
        if let Some(stale) = &mut self.index.get_mut().stale {
            stale.insert(id.to_owned());
        }
        Arc::make_mut(&mut self.objects)
    }

    /// The object with this id, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut V> {
        self.touch(id).get_mut(id)
    }

    /// Puts an object in; gives the one that had its id.
    pub fn insert(&mut self, id: String, object: V) -> Option<V> {
        self.touch(&id).insert(id, object)
    }

    /// Takes an object away.
    pub fn remove(&mut self, id: &str) -> Option<V> {
        self.touch(id).remove(id)
    }
}

impl<V: Carries> Table<V> {
    /// The objects that carry one of these words, in the order of their ids.
    pub(crate) fn find(&self, words: impl Into<Vec<String>>) -> impl Iterator<Item = (&String, &V)> {
        self.find_from(words.into(), String::new())
    }

    fn find_from(&self, words: Vec<String>, from: String) -> impl Iterator<Item = (&String, &V)> {
        self.index.lock().renew(&self.objects);
        let mut start = Bound::Included(from);
        std::iter::from_fn(move || {
            let index = self.index.lock();
            let sets = words.iter().filter_map(|word| index.by_word.get(word));
            let range = (start.as_ref().map(String::as_str), Bound::Unbounded);
            let next = sets.filter_map(|ids| ids.range::<str, _>(range).next()).min()?.clone();
            let found = self.objects.get_key_value(&next);
            start = Bound::Excluded(next);
            effort::look();
            found
        })
    }

    /// The objects that can pass filters, from an id on: those with one of the ids, else those with one of the words, else
    /// all of them.
    pub(crate) fn candidates<'a, W: AsRef<str>>(
        &'a self,
        ids: &[W],
        words: Vec<String>,
        from: &str,
    ) -> Box<dyn Iterator<Item = (&'a String, &'a V)> + 'a> {
        let all = self.objects.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        match (ids.is_empty(), words.is_empty()) {
            (false, _) => {
                let ids: BTreeSet<&str> = ids.iter().map(AsRef::as_ref).filter(|id| *id >= from).collect();
                let found: Vec<_> = ids.into_iter().filter_map(|id| self.objects.get_key_value(id)).collect();
                Box::new(found.into_iter().inspect(|_| effort::look()))
            }
            (_, false) => Box::new(self.find_from(words, from.to_owned())),
            _ => Box::new(all.inspect(|_| effort::look())),
        }
    }
}

impl Index {
    fn renew<V: Carries>(&mut self, objects: &BTreeMap<String, V>) {
        let stale = self.stale.replace(BTreeSet::new()).unwrap_or_else(|| {
            (self.by_word, self.words) = Default::default();
            objects.keys().cloned().collect()
        });
        for id in stale {
            effort::look();
            for word in self.words.remove(&id).unwrap_or_default() {
                if let Some(ids) = self.by_word.get_mut(&word) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.by_word.remove(&word);
                    }
                }
            }
            let Some(object) = objects.get(&id) else { continue };
            let mut words = Vec::new();
            object.words(&mut |word| words.push(word));
            for word in &words {
                self.by_word.entry(word.clone()).or_default().insert(id.clone());
            }
            self.words.insert(id, words);
        }
    }
}

/// The word of a name.
pub(crate) fn name(text: &str) -> String {
    format!("name {text}")
}

/// The word of an address.
pub(crate) fn address(text: &str) -> String {
    format!("address {text}")
}

/// The word of another object, by its id.
pub(crate) fn other(id: &str) -> String {
    format!("id {id}")
}

/// The word of a tag.
pub(crate) fn tag(key: &str, value: &str) -> String {
    format!("tag {key}={value}")
}

impl<T: Carries> Carries for Shared<T> {
    fn words(&self, say: &mut dyn FnMut(String)) {
        (**self).words(say);
    }
}

impl Carries for LoadBalancer {
    fn words(&self, say: &mut dyn FnMut(String)) {
        say(name(&self.name));
        say(address(&self.address));
        self.groups.keys().for_each(|id| say(other(id)));
        self.tags.iter().for_each(|(key, value)| say(tag(key, value)));
    }
}

impl Carries for Interface {
    fn words(&self, say: &mut dyn FnMut(String)) {
        say(other(&self.instance));
        self.ipv4.iter().chain(&self.ipv6).for_each(|it| say(address(it)));
    }
}

impl Carries for Instance {
    fn words(&self, say: &mut dyn FnMut(String)) {
        self.private_ips.iter().for_each(|it| say(address(it)));
    }
}

impl Carries for NetworkLoadBalancer {
    fn words(&self, say: &mut dyn FnMut(String)) {
        say(name(&self.name));
        self.zones.iter().flat_map(|it| [&it.private_ip, &it.public_ip]).for_each(|it| say(address(it)));
        self.listeners.keys().for_each(|id| say(other(id)));
        self.listeners.values().for_each(|it| say(other(&it.group)));
        self.tags.iter().for_each(|(key, value)| say(tag(key, value)));
    }
}

impl Carries for ServerGroup {
    fn words(&self, say: &mut dyn FnMut(String)) {
        say(name(&self.name));
        self.tags.iter().for_each(|(key, value)| say(tag(key, value)));
    }
}
