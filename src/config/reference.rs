//! The commented reference file: every key with its text from [`file`](super::file), its default, or an example where it has
//! none.

use std::fmt::Write as _;

use serde::Deserialize;
use serde::ser::Error as _;
use serde_json::json;

use super::catalog::Catalog;
use super::file::FileConfig;
use super::schema::{self, Shape};

const INTRODUCTION: &str = "\
Every key of alicloud-ccm, with its default. Lines such as `#region = \"cn-hangzhou\"` are examples of keys that have no \
default. Only cloud.cluster_id must be set: a file of a few lines is normal, see alicloud-ccm.toml.

Any key can also be set by the environment, as ALICLOUD_CCM__SECTION__KEY, and by an argument, as --set section.key=value. \
An argument wins over the environment, the environment over this file. The program applies changes of \
this file while it runs; it rejects a file with a problem as a whole and keeps the running configuration.";

const WIDTH: usize = 100;

/// The text of the reference file.
///
/// # Errors
///
/// If a default has no form in TOML, which is a mistake in this program.
pub fn reference(catalog: &Catalog) -> Result<String, toml::ser::Error> {
    let defaults = serde_json::to_value(FileConfig::default()).map_err(toml::ser::Error::custom)?;
    let mut out = "#:schema ./schema.json\n".to_owned();
    for paragraph in INTRODUCTION.split("\n\n") {
        comment(&mut out, paragraph);
        out.push_str("#\n");
    }
    comment(&mut out, "A length of time is a text such as \"15s\", \"5m\" or \"1h30m\".");
    let mut section = Vec::new();
    for line in toml::to_string(&example(catalog)?)?.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').split('.').map(str::to_owned).collect();
            out.push('\n');
            describe(&mut out, &section, catalog);
            _ = writeln!(out, "{line}");
        } else if let Some((key, _)) = line.split_once(" = ") {
            let path: Vec<String> = section.iter().cloned().chain([key.to_owned()]).collect();
            out.push('\n');
            describe(&mut out, &path, catalog);
            let default = defaults.pointer(&format!("/{}", path.join("/")));
            let needed = default.is_some_and(|it| !it.is_null()) || path.join(".") == "cloud.cluster_id";
            _ = writeln!(out, "{}{line}", if needed { "" } else { "#" });
        }
    }
    Ok(out)
}

/// The defaults, with an example for every key that has none.
fn example(catalog: &Catalog) -> Result<FileConfig, toml::ser::Error> {
    let mut tree = serde_json::to_value(FileConfig::default()).map_err(toml::ser::Error::custom)?;
    for path in schema::leaves() {
        if let Some(example) = schema::at(path).and_then(Shape::example)
            && let Some(value) = tree.pointer_mut(&format!("/{}", path.join("/")))
        {
            *value = example.clone();
        }
    }
    tree["controllers"] = json!(catalog.default_controllers());
    tree["cloud"]["quotas"] = json!({ catalog.example_action: 120 });
    tree["traces"]["headers"] = json!({ "authorization": "..." });
    for section in ["service", "nlb"] {
        tree[section]["defaults"]["tags"] = json!({ "team": "blue" });
    }
    FileConfig::deserialize(tree).map_err(toml::ser::Error::custom)
}

fn describe(out: &mut String, path: &[String], catalog: &Catalog) {
    let Some(shape) = schema::at(path) else { return };
    comment(out, &schema::described(path, shape.description(), catalog));
    for (word, meaning) in shape.words() {
        comment(out, &format!("\"{word}\": {meaning}"));
    }
    if let Some(limits) = shape.limits() {
        comment(out, &limits);
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
