//! What a copy that ends in order tells the next one, so that it need not read every server group again.
//!
//! The cloud has no call that shows the members of several groups. But the copy before knew them, and nobody else writes
//! between its last write and the first of its successor: the note is part of the lock, written with the release and
//! taken out with the next acquisition ([`crate::cluster`]). It holds digests, nothing that could be acted upon: only where
//! the load balancer is, by the note, exactly what is wanted now, the groups count as read, as long ago as the copy before
//! read them. Everything else, and everything after a crash, is read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::Timestamp;
use sha1::{Digest, Sha1};
use tokio::time::Instant;

use crate::plan::clb::desired::Desired;
use crate::plan::clb::model::{BackendKind, GroupRef, ListenerKey};
use crate::plan::clb::observed::{Observed, ObservedGroup, ObservedListener};

/// Services in one note; annotations of one object have 256 KiB together.
const MOST: usize = 8000;
/// Bytes of one entry: Service, digest, minutes since the groups were read.
const ENTRY: usize = 8 + 8 + 2;
/// A note that is older says nothing: nobody looked after the cluster meanwhile, so that everything is worth a look.
const OLDEST: Duration = Duration::from_secs(600);
/// The form of the note.
const VERSION: &str = "1";

/// A digest of what a text or a load balancer says.
type Short = [u8; 8];

/// What the copy before knew.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// By Service.
    known: HashMap<Short, Known>,
    /// When the note was read.
    read_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    digest: Short,
    /// As of when the note was read.
    age: Duration,
}

impl Handover {
    /// Reads a note at `now`; one that makes no sense says nothing.
    pub(super) fn read(note: &str, now: Timestamp) -> Self {
        Self { known: parse(note, now).unwrap_or_default(), read_at: Some(Instant::now()) }
    }

    /// Whether anything is known of the Service with this UID that is not older than `oldest`.
    pub(super) fn knows(&self, uid: &str, oldest: Duration) -> bool {
        self.known.get(&short(uid)).is_some_and(|known| self.age(known) < oldest)
    }

    /// How many calls it takes to read what no list shows of all that are known, if each has one server group.
    pub(super) fn unlisted_reads(&self) -> usize {
        2 * self.known.len()
    }

    /// How long ago the server groups of the Service were read, if they were as in `observed` then and since.
    pub(super) fn confirms(&self, uid: &str, observed: &Observed) -> Option<Duration> {
        let known = self.known.get(&short(uid))?;
        (digest(observed)? == known.digest).then(|| self.age(known))
    }

    /// What was known grows old here too, or nothing would ever be compared again.
    fn age(&self, known: &Known) -> Duration {
        known.age + self.read_at.map_or(Duration::ZERO, |read_at| read_at.elapsed())
    }
}

fn parse(note: &str, now: Timestamp) -> Option<HashMap<Short, Known>> {
    let mut parts = note.splitn(3, ' ');
    let (version, written, entries) = (parts.next()?, parts.next()?, parts.next()?);
    if version != VERSION {
        return None;
    }
    let since = now.duration_since(Timestamp::from_second(written.parse().ok()?).ok()?);
    // Clocks of machines differ a little; a note from the future is as good as one from now.
    let since = Duration::try_from(since).unwrap_or_default();
    if since > OLDEST {
        return None;
    }
    let bytes = STANDARD_NO_PAD.decode(entries).ok()?;
    let entries = bytes.chunks_exact(ENTRY).map(|entry| {
        let minutes = u16::from_be_bytes([entry[16], entry[17]]);
        let age = since + Duration::from_secs(60) * u32::from(minutes);
        Some((entry[..8].try_into().ok()?, Known { digest: entry[8..16].try_into().ok()?, age }))
    });
    entries.collect()
}

/// A note at `now` about Services: UID, load balancer, and how long ago it was read.
pub(super) fn note<'a>(services: impl Iterator<Item = (&'a str, &'a Observed, Duration)>, now: Timestamp) -> String {
    let mut bytes = Vec::new();
    let entries = services.filter_map(|(uid, observed, age)| {
        // Rounded up: what is a little older than known is checked a little sooner.
        let minutes = u16::try_from(age.as_secs() / 60 + 1).ok()?;
        Some((short(uid), digest(observed)?, minutes))
    });
    for (service, digest, minutes) in entries.take(MOST) {
        bytes.extend(service);
        bytes.extend(digest);
        bytes.extend(minutes.to_be_bytes());
    }
    format!("{VERSION} {} {}", now.as_second(), STANDARD_NO_PAD.encode(bytes))
}

/// The server groups as they are if they are exactly as wanted; their ids are those that the listeners name. `None` if
/// something is missing, so that they cannot be.
pub(super) fn groups_as_wanted(
    desired: &Desired,
    listeners: &BTreeMap<ListenerKey, ObservedListener>,
) -> Option<BTreeMap<String, ObservedGroup>> {
    let mut ids: HashMap<&GroupRef, &str> = HashMap::new();
    for (key, wanted) in &desired.listeners {
        let listener = listeners.get(key)?;
        if !listener.group_id.is_empty() {
            ids.insert(&wanted.group, &listener.group_id);
        }
    }
    let groups = desired.groups.values().map(|wanted| {
        let backends = Some(Arc::new(wanted.backends.values().cloned().collect()));
        let group = ObservedGroup { name: wanted.group.to_string(), backends };
        Some(((*ids.get(&wanted.group)?).to_owned(), group))
    });
    groups.collect()
}

/// Says of a load balancer which groups with which backends it has; `None` if that was not read whole.
fn digest(observed: &Observed) -> Option<Short> {
    let mut text = Text(Sha1::new());
    text.add(&observed.instance.as_ref()?.id);
    for (id, group) in &observed.groups {
        text.add("group");
        text.add(id);
        text.add(&group.name);
        let mut backends: Vec<_> = group.backends.as_ref()?.iter().collect();
        backends.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        for backend in backends {
            text.add(match backend.key.kind {
                BackendKind::Ecs => "ecs",
                BackendKind::Eni => "eni",
            });
            text.add(&backend.key.server_id);
            text.add(&backend.key.server_ip);
            text.add(&backend.key.port.to_string());
            text.add(&backend.weight.to_string());
            text.add(&backend.description);
        }
    }
    Some(text.end())
}

fn short(text: &str) -> Short {
    let mut hash = Text(Sha1::new());
    hash.add(text);
    hash.end()
}

/// Texts, so that no two lists of them are the same.
struct Text(Sha1);

impl Text {
    fn add(&mut self, text: &str) {
        self.0.update(text.len().to_be_bytes());
        self.0.update(text);
    }

    fn end(self) -> Short {
        let mut short = Short::default();
        short.copy_from_slice(&self.0.finalize()[..8]);
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::clb::model::{Backend, BackendKey};
    use crate::plan::clb::observed::ObservedInstance;

    fn balancer(weight: u8) -> Observed {
        let backend = |server: &str| Backend {
            key: BackendKey {
                kind: BackendKind::Ecs,
                server_id: server.into(),
                server_ip: Box::default(),
                port: 30080,
            },
            weight,
            description: "k8s/80/web/default/c1".into(),
        };
        let backends = Some(Arc::new(vec![backend("i-2"), backend("i-1")]));
        let group = ObservedGroup { name: "k8s/80/web/default/c1".to_owned(), backends };
        Observed {
            instance: Some(ObservedInstance { id: "lb-1".to_owned(), ..ObservedInstance::default() }),
            groups: BTreeMap::from([("rsp-1".to_owned(), group)]),
            ..Observed::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn what_was_told_is_confirmed_with_its_age_and_nothing_else_is() {
        let (one, other) = (balancer(100), balancer(50));
        let services = [("uid-1", &one, 10 * MINUTE), ("uid-2", &one, 30 * MINUTE)];
        let handover = Handover::read(&note(services.into_iter(), at(0)), at(60));
        assert_eq!(handover.confirms("uid-1", &one), Some(12 * MINUTE), "rounded up, and what has passed since");
        assert_eq!(handover.confirms("uid-1", &other), None);
        assert_eq!(handover.confirms("uid-3", &one), None);
        assert!(handover.knows("uid-2", 33 * MINUTE) && !handover.knows("uid-2", 32 * MINUTE));
        tokio::time::advance(5 * MINUTE).await;
        assert_eq!(handover.confirms("uid-1", &one), Some(17 * MINUTE), "the next comparison is not put off");
        assert!(handover.knows("uid-2", 38 * MINUTE) && !handover.knows("uid-2", 37 * MINUTE));
        let mut sorted = one.clone();
        sorted.groups.values_mut().for_each(|group| Arc::make_mut(group.backends.as_mut().unwrap()).reverse());
        assert!(handover.confirms("uid-1", &sorted).is_some(), "the order of backends says nothing");
        let mut renamed = one;
        renamed.groups.values_mut().for_each(|group| group.name.push('x'));
        assert_eq!(handover.confirms("uid-1", &renamed), None);
    }

    #[test]
    fn what_was_not_read_is_not_told() {
        let mut unread = balancer(100);
        unread.groups.values_mut().for_each(|group| group.backends = None);
        let text = note([("uid-1", &unread, MINUTE), ("uid-2", &balancer(100), 50_000 * MINUTE)].into_iter(), at(0));
        assert!(Handover::read(&text, at(0)).known.len() == 1, "only the second: {text}");
    }

    #[test]
    fn a_note_that_makes_no_sense_says_nothing() {
        let whole = note([("uid-1", &balancer(100), MINUTE)].into_iter(), at(0));
        assert_eq!(Handover::read(&whole, at(600)).known.len(), 1);
        assert!(Handover::read(&whole, at(601)).known.is_empty(), "too long ago");
        for text in ["", "1", "1 x y", "1 1800000000 %%", "1 1800000000 AAAA", &whole.replacen('1', "2", 1)] {
            assert!(Handover::read(text, at(0)).known.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn the_largest_note_fits_into_an_annotation() {
        let one = balancer(100);
        let uids: Vec<String> = (0..MOST + 10).map(|number| number.to_string()).collect();
        let text = note(uids.iter().map(|uid| (uid.as_str(), &one, MINUTE)), at(0));
        assert!(text.len() < 200 * 1024, "{}", text.len());
        assert_eq!(Handover::read(&text, at(0)).known.len(), MOST);
    }
}
