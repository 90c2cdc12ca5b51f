//! SHA-1 as text, for names and marks that must be short and the same each time. It protects nothing.

use sha1::{Digest, Sha1};

/// The digest in 40 hexadecimal digits, as `sha1sum` prints it.
#[must_use]
pub fn hex(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
