//! SHA-1 as text, for names and marks that must be short and the same each time; numbers in place of values that are only
//! compared. They protect nothing.

use std::hash::{DefaultHasher, Hash, Hasher};

use sha1::{Digest, Sha1};

/// The digest in 40 hexadecimal digits, as `sha1sum` prints it.
pub fn hex(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number for a value, never 0; the same within one process.
pub fn number(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish().max(1)
}
