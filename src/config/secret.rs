//! Text that must not be seen.

use std::fmt;

use serde::Serialize;

/// A secret: shown as `<redacted>` by `Debug` and by serialisation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(String);

const REDACTED: &str = "<redacted>";

impl Secret {
    /// Wraps a secret.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself; for signing and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}
