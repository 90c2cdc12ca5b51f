//! No text from outside makes a parser panic or hang.
//!
//! The same entries as the fuzz targets in `fuzz/`, driven by random input and by their corpora, on every toolchain.

#[path = "../../fuzz/entries.rs"]
mod entries;

use std::path::Path;

use proptest::prelude::*;

type Entry = fn(&[u8]);

const ENTRIES: [(&str, Entry); 6] = [
    ("configuration", entries::configuration),
    ("service_annotations", entries::service_annotations),
    ("provider_id", entries::provider_id),
    ("pod_cidrs", entries::pod_cidrs),
    ("cloud_answers", entries::cloud_answers),
    ("watch_streams", entries::watch_streams),
];

/// The pieces of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn corpora_pass() {
    for (name, entry) in ENTRIES {
        let pieces = corpus(name);
        assert!(!pieces.is_empty(), "{name} has no corpus");
        pieces.iter().for_each(|piece| entry(piece));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_pass(data in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, entry) in ENTRIES {
            entry(&data);
        }
    }

    #[test]
    fn damaged_pieces_pass(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), with in any::<Vec<u8>>(), cut in any::<bool>()) {
        for (name, entry) in ENTRIES {
            let pieces = corpus(name);
            let mut data = pieces[which.index(pieces.len())].clone();
            let at = at.index(data.len() + 1);
            if cut {
                data.truncate(at);
            }
            data.splice(at..at, with.iter().copied());
            entry(&data);
        }
    }
}
