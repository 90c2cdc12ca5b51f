//! Shows one line of a configuration file without showing a secret. Where the file is TOML, it is known which values are secret.
//! Where it is not, a line is shown whole only if it begins with the name of a key that holds no secret.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use super::schema;
use super::values::password_in;

/// Keys whose values are never shown. The id is among them because people paste the secret there.
pub(super) const HIDDEN: [&str; 4] = ["access_key_id", "access_key_secret", "security_token", "headers"];

/// What stands for hidden text.
pub(super) const MASK: &str = "<redacted>";

/// A line of the file that may be shown, with the part that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    /// From 1.
    pub(super) line: usize,
    /// In characters, from 1.
    pub(super) column: usize,
    /// The line, with what might be secret masked.
    pub(super) shown: String,
    /// The part of `shown` that is meant.
    pub(super) mark: Range<usize>,
}

/// The line where `span` begins. `secrets` are the spans of values that may be secret; `None` if the file is not TOML.
pub(super) fn excerpt(text: &str, span: &Range<usize>, secrets: Option<&[Range<usize>]>) -> Excerpt {
    let start = floor(text, span.start);
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[begin..].find('\n').map_or(text.len(), |at| begin + at);
    let content = text[begin..end].trim_end_matches('\r');
    let within = |at: usize| floor(content, at.saturating_sub(begin).min(content.len()));
    let mut mark = within(start)..within(span.end.max(start));
    if mark.is_empty() {
        mark.end = content[mark.start..].chars().next().map_or(mark.start, |c| mark.start + c.len_utf8());
    }
    let known = |secrets: &[Range<usize>]| {
        let here = secrets.iter().filter(|secret| secret.start < begin + content.len() && secret.end > begin);
        here.map(|secret| within(secret.start)).min()
    };
    let secret = secrets.map_or_else(|| hidden_from(&text[..begin], content), known);
    // A comment can be a value that was used before.
    let hidden = [secret, password_in(content), content.find('#')];
    let column = text[begin..start].chars().count() + 1;
    let line = text[..begin].matches('\n').count() + 1;
    let shown = match hidden.into_iter().flatten().min() {
        None => content.to_owned(),
        Some(from) => {
            let masked = from..from + MASK.len();
            mark.end = if mark.end > from { masked.end } else { mark.end };
            mark.start = mark.start.min(from);
            format!("{}{MASK}", &content[..from])
        }
    };
    Excerpt { line, column, shown, mark }
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Where in a line of a broken file the first byte is that must not be shown.
fn hidden_from(before: &str, line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let word = line[indent..].split(|c| !is_name(c)).next().unwrap_or_default();
    let names_secret = HIDDEN.iter().any(|name| line.contains(name) || section_above(before).ends_with(name));
    let is_plain = is_open(word) && !names_secret && line.matches('=').count() < 2;
    let is_shown = is_header(line) || line.len() == indent || is_plain;
    let after = |at: usize| line.len() - line[at + 1..].trim_start().len();
    (!is_shown).then(|| line.find('=').map_or(indent, after))
}

/// Whether the line is a table header and nothing else.
fn is_header(line: &str) -> bool {
    let body = line.trim();
    body.starts_with('[') && body.chars().all(|c| is_name(c) || matches!(c, '[' | ']' | '.' | ' '))
}

fn section_above(before: &str) -> &str {
    let header = before.lines().rev().find(|line| is_header(line)).unwrap_or_default();
    header.trim().trim_matches(['[', ']'])
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Whether a key of that name holds no secret.
pub(super) fn is_open(name: &str) -> bool {
    static OPEN: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
        let names = schema::leaves().iter().filter_map(|path| path.last()).map(String::as_str);
        names.filter(|name| !HIDDEN.contains(name)).collect()
    });
    OPEN.contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(text: &str, needle: &str) -> String {
        let at = text.find(needle).unwrap();
        excerpt(text, &(at..at + needle.len()), None).shown
    }

    #[test]
    fn a_secret_is_masked_however_the_line_is_broken() {
        for text in [
            "access_key_secret = \"hunter2\"",
            "access_key_secret = \"hunter2",
            "access_key_secret \"hunter2\"",
            "access_key_secret: hunter2",
            "access_key_secert = \"hunter2\"",
            "\"access_key_secret\" = 'hunter2'",
            "cloud.credentials.access_key_secret = hunter2",
            "credentials = { access_key_id = \"a\", access_key_secret = \"hunter2\" }",
            "region = \"cn-hangzhou\" access_key_secret = \"hunter2\"",
            "region = \"cn-hangzhou\" access_key_secert = \"hunter2\"",
            "access_key_secret = \"\"\"\nhunter2\n\"\"\"",
            "access_key_secret =\n  \"hunter2\"",
            "access_key_secret = [\n  \"hunter2\"",
            "access_key_id = \"hunter2\"",
            "# access_key_secret = \"hunter2\"",
            "[cloud.credentials]\nhunter2",
            "headers = { region = \"hunter2\" }",
            "[traces.headers]\nregion = \"hunter2\"",
            "[traces.headers]\nhunter2",
            "traces.headers.region = \"hunter2\"",
            "headers.region = 'hunter2'",
            "[cloud] # hunter2",
            "[\"hunter2\"",
            "credentials = \"hunter2\"",
        ] {
            let shown = line_of(text, "hunter2");
            assert!(!shown.contains("hunter2") && shown.contains(MASK), "{text:?} was shown as {shown:?}");
        }
    }

    #[test]
    fn lines_of_other_keys_are_shown_although_the_file_is_broken() {
        for text in ["region = \"cn-hangzhou\"", "vswitches = [\"vsw-1\",\n", "[cloud]", "  region \"cn-hangzhou\""] {
            let last = text.lines().last().unwrap();
            assert_eq!(line_of(text, last), last);
        }
    }

    #[test]
    fn the_mark_stays_within_what_is_shown() {
        let text = "a\r\naccess_key_secret = \"öö\"";
        for at in 0..=text.len() + 2 {
            let excerpt = excerpt(text, &(at..at + 3), None);
            assert!(excerpt.mark.start <= excerpt.mark.end && excerpt.mark.end <= excerpt.shown.len(), "{excerpt:?}");
            assert!(excerpt.shown.is_char_boundary(excerpt.mark.start));
        }
    }
}
