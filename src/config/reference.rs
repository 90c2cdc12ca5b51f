//! The commented reference file: every key with its text from [`file`](super::file), its default, or an example where it has
//! none.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::catalog::Catalog;
use super::file::{FileConfig, example};
use super::schema;

const INTRODUCTION: &str = "\
Every key of alicloud-ccm, with its default. Lines such as `#region = \"cn-hangzhou\"` are examples of keys that have no \
default. Only cloud.cluster_id must be set: a file of a few lines is normal, see alicloud-ccm.toml.

Any key can also be set by the environment, as ALICLOUD_CCM__SECTION__KEY, and by an argument, as --set section.key=value. \
An argument wins over the environment, the environment over this file. Changes of this file are taken over while the \
program runs; a file with a mistake is refused as a whole, and what ran before goes on.";

const WIDTH: usize = 100;

/// The text of the reference file.
///
/// # Errors
///
/// If a default has no form in TOML, which is a mistake in this program.
pub fn reference(catalog: &Catalog) -> Result<String, toml::ser::Error> {
    let defaults = keys(&toml::to_string(&FileConfig::default())?);
    let mut out = String::new();
    for paragraph in INTRODUCTION.split("\n\n") {
        comment(&mut out, paragraph);
        out.push_str("#\n");
    }
    comment(&mut out, "A length of time is a text such as \"15s\", \"5m\" or \"1h30m\".");
    let mut section = Vec::new();
    for line in toml::to_string(&example(catalog))?.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').split('.').map(str::to_owned).collect();
            out.push('\n');
            describe(&mut out, &section, catalog);
            _ = writeln!(out, "{line}");
        } else if let Some((key, _)) = line.split_once(" = ") {
            let path: Vec<String> = section.iter().cloned().chain([key.to_owned()]).collect();
            out.push('\n');
            describe(&mut out, &path, catalog);
            let needed = defaults.contains(&path) || path.join(".") == "cloud.cluster_id";
            _ = writeln!(out, "{}{line}", if needed { "" } else { "#" });
        }
    }
    Ok(out)
}

fn keys(text: &str) -> BTreeSet<Vec<String>> {
    let mut section: Vec<String> = Vec::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').split('.').map(str::to_owned).collect();
        } else if let Some((key, _)) = line.split_once(" = ") {
            found.insert(section.iter().cloned().chain([key.to_owned()]).collect());
        }
    }
    found
}

fn describe(out: &mut String, path: &[String], catalog: &Catalog) {
    let Some(shape) = schema::at(path) else { return };
    comment(out, &schema::described(path, shape.description(), catalog));
    for (word, meaning) in shape.words() {
        comment(out, &format!("\"{word}\": {meaning}"));
    }
    if shape.range() != (None, None) && shape.range() != (Some(0.0), None) {
        let allowed = shape.allowed();
        let mut letters = allowed.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        comment(out, &format!("{}.", first.chain(letters).collect::<String>()));
    }
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() >= WIDTH {
            _ = writeln!(out, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > 1 {
        _ = writeln!(out, "{line}");
    }
}
