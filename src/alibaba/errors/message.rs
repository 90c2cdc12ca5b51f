//! The vendor's messages, fit to be shown.

/// The longest message that is passed on.
pub(super) const MESSAGE_LIMIT: usize = 600;

/// The vendor's message without what could help to forge a request, and not longer than people read.
///
/// A refused signature is answered with the whole text that the server signed, which holds the key id and the token.
pub(in crate::alibaba) fn without_secrets(message: &str) -> String {
    const ECHO: &str = "string to sign";
    let end = message.to_ascii_lowercase().find(ECHO).map_or(message.len(), |start| start + ECHO.len());
    // Lower-casing ASCII keeps byte positions, so `end` is a boundary in the original too.
    let mut clean = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, clean: &mut String| {
        clean.push_str(if looks_secret(word) { "<redacted>" } else { word });
        word.clear();
    };
    for character in message[..end].chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '+' | '/' | '=' | '.' | '_' | '-' | '%') {
            word.push(character);
        } else {
            flush(&mut word, &mut clean);
            clean.push(if character.is_control() { ' ' } else { character });
        }
    }
    flush(&mut word, &mut clean);
    if end < message.len() {
        clean.push_str(" <redacted>");
    }
    match clean.char_indices().nth(MESSAGE_LIMIT) {
        Some((cut, _)) => format!("{}...", &clean[..cut]),
        None => clean,
    }
}

/// Key ids, tokens, and parameters that carry them.
fn looks_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let key_id = word.contains("LTAI") || word.contains("STS.") || word.starts_with("TMP.");
    let parameter = ["signature=", "securitytoken=", "accesskeysecret=", "signature%3d", "securitytoken%3d"];
    let opaque = word.len() >= 60
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_uppercase());
    key_id || opaque || parameter.iter().any(|name| lower.contains(name))
}
