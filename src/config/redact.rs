//! Shows one line of a configuration file without showing a secret. The file may be broken in any way, so this reads
//! text only, and shows a value only behind the name of a key that is known to hold no secret.

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

/// The line where `span` begins. `secrets` are the spans of values known to be secret.
pub(super) fn excerpt(text: &str, span: &Range<usize>, secrets: &[Range<usize>]) -> Excerpt {
    let start = floor(text, span.start);
    let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[begin..].find('\n').map_or(text.len(), |at| begin + at);
    let content = text[begin..end].trim_end_matches('\r');
    let within = |at: usize| floor(content, at.saturating_sub(begin).min(content.len()));
    let mut mark = within(start)..within(span.end.max(start));
    if mark.is_empty() {
        mark.end = content[mark.start..].chars().next().map_or(mark.start, |c| mark.start + c.len_utf8());
    }
    let known = secrets.iter().filter(|secret| secret.start < begin + content.len() && secret.end > begin);
    let known = known.map(|secret| within(secret.start)).min();
    let guessed = hidden_from(&text[..begin], content).into_iter().chain(password_in(content)).min();
    let column = text[begin..start].chars().count() + 1;
    let line = text[..begin].matches('\n').count() + 1;
    let shown = match known.into_iter().chain(guessed).min() {
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

/// Where in the line the first byte is that must not be shown.
fn hidden_from(before: &str, line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let body = &line[indent..];
    if body.is_empty() {
        return None;
    }
    if body.starts_with('#') {
        return Some(indent + 1);
    }
    if let Some(header) = header(line) {
        return (!header).then_some(indent);
    }
    if line.contains('=') {
        if section_above(before) == Some("traces.headers") {
            let (name, value) = line.split_once('=').unwrap_or_default();
            return Some(name.len() + 1 + leading_spaces(value));
        }
        let tags = matches!(section_above(before), Some("service.defaults.tags" | "nlb.defaults.tags"));
        let assignments = line.match_indices('=').enumerate().filter(|(index, (at, _))| {
            let is_tag = tags && *index == 0;
            let name = &line[..*at];
            // The names of headers are the user's.
            let is_header = name.rsplit_once('.').is_some_and(|(table, _)| HIDDEN.contains(&name_before(table)));
            !is_tag && (is_header || !may_show(name_before(name), &line[at + 1..]))
        });
        return assignments.map(|(_, (at, _))| at + 1 + leading_spaces(&line[at + 1..])).next();
    }
    if let Some(name) = open_above(before) {
        return (!is_open(name)).then_some(indent);
    }
    let word = body.split(|c: char| !is_name(c)).next().unwrap_or_default();
    if is_open(word) {
        None
    } else if HIDDEN.contains(&word) {
        Some(indent + word.len() + leading_spaces(&body[word.len()..]))
    } else {
        Some(indent)
    }
}

/// Whether the line is a table header, and if so whether it is one and nothing else.
fn header(line: &str) -> Option<bool> {
    let body = line.trim();
    body.starts_with('[').then(|| body.chars().all(|c| is_name(c) || matches!(c, '[' | ']' | '.' | ' ')))
}

fn section_above(before: &str) -> Option<&str> {
    before.lines().rev().find(|line| header(line) == Some(true)).map(|line| line.trim().trim_matches(['[', ']']))
}

/// The key whose value is still open at the end of this text, such as a list over several lines.
fn open_above(before: &str) -> Option<&str> {
    for line in before.lines().rev() {
        if header(line) == Some(true) {
            return None;
        }
        if let Some((name, value)) = line.split_once('=') {
            let value = value.trim();
            let open = (value.starts_with('[') && !value.ends_with(']'))
                || (value.starts_with('{') && !value.ends_with('}'))
                || ["\"\"\"", "'''"].iter().any(|quotes| value.starts_with(quotes));
            let name = name_before(name);
            return (open || !is_open(name)).then_some(name);
        }
    }
    None
}

fn may_show(name: &str, value: &str) -> bool {
    is_open(name) || (is_section(name) && value.trim_start().starts_with('{'))
}

/// The last part of the key that ends here.
fn name_before(text: &str) -> &str {
    let text = text.trim_end().trim_end_matches(['"', '\'']);
    text.rsplit(|c: char| !is_name(c)).next().unwrap_or_default()
}

pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn leading_spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Whether a key of that name holds no secret.
fn is_open(name: &str) -> bool {
    static OPEN: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
        let names = schema::leaves().iter().filter_map(|path| path.last()).map(String::as_str);
        names.filter(|name| !HIDDEN.contains(name)).collect()
    });
    OPEN.contains(name)
}

fn is_section(name: &str) -> bool {
    schema::leaves().iter().any(|path| path[..path.len() - 1].iter().any(|section| section == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(text: &str, needle: &str) -> String {
        let at = text.find(needle).unwrap();
        excerpt(text, &(at..at + needle.len()), &[]).shown
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
    fn lines_of_other_keys_are_shown() {
        for text in [
            "region = \"cn-hangzhou\"",
            "vswitches = [\"vsw-1\",\n",
            "defaults = { spec = \"slb.s1.small\" }",
            "[service.defaults.tags]\nteam = \"blue\"",
            "[cloud]",
            "  region \"cn-hangzhou\"",
            "vswitches = [\n  \"vsw-1\",",
        ] {
            let last = text.lines().last().unwrap();
            assert_eq!(line_of(text, last), last);
        }
    }

    #[test]
    fn the_mark_stays_within_what_is_shown() {
        let text = "a\r\naccess_key_secret = \"öö\"";
        for at in 0..=text.len() + 2 {
            let excerpt = excerpt(text, &(at..at + 3), &[]);
            assert!(excerpt.mark.start <= excerpt.mark.end && excerpt.mark.end <= excerpt.shown.len(), "{excerpt:?}");
            assert!(excerpt.shown.is_char_boundary(excerpt.mark.start));
        }
    }
}
