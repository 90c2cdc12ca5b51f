//! What the official controller is given: its flags, its cloud config, and what its container has in the environment.

use std::path::Path;

use serde_json::Value;
use serde_saphyr::Spanned;

use super::table::{FLAGS, KEYS, Setting, VARIABLES};
use crate::commands::manifest::{ManifestNode, documents};
use crate::config::{ConfigProblem, ProblemPlace};

/// One setting that is stated. Has no `Debug`, because the value may be a secret.
pub(super) struct Stated {
    pub(super) setting: &'static Setting,
    pub(super) value: String,
    pub(super) place: ProblemPlace,
}

/// Everything that the official controller is given.
#[derive(Default)]
pub(super) struct Official {
    /// Flags and keys, of which the later one counts.
    pub(super) stated: Vec<Stated>,
    /// What the environment of its container states; `None` if that was not read.
    pub(super) variables: Option<Vec<Stated>>,
    /// Whether its image says that it is v1.9.3 or older.
    pub(super) is_v1: bool,
    /// What the official controller does not understand, or what could not be read.
    pub(super) problems: Vec<ConfigProblem>,
    /// What has no counterpart, and no setting.
    pub(super) notes: Vec<String>,
}

/// The same name with dashes, whatever stands before it.
fn bare(name: &str) -> String {
    name.trim_start_matches('-').replace('_', "-")
}

impl Official {
    pub(super) fn is_problem(&mut self, place: ProblemPlace, message: impl Into<String>, help: &str) {
        self.problems.push(ConfigProblem::at(place, message.into(), Some(help.to_owned())));
    }

    /// Reads a command line without its program; `place` says where arguments are written.
    pub(super) fn read_flags(&mut self, arguments: &[String], place: impl Fn(&str) -> ProblemPlace) {
        let mut arguments = arguments.iter().map(String::as_str).peekable();
        while let Some(argument) = arguments.next() {
            let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
            let place = place(name);
            if !argument.starts_with('-') {
                let message = format!("the argument {argument:?} is no flag");
                self.is_problem(place, message, "flags begin with --; values follow after =");
                continue;
            }
            let Some(setting) = FLAGS.iter().find(|setting| bare(setting.name) == bare(name)) else {
                let help = "leave it out; config/migration.md lists the flags of the official controller";
                self.is_problem(place, format!("the official controller has no flag {name}"), help);
                continue;
            };
            let next = arguments.next_if(|next| value.is_none() && !next.starts_with('-'));
            if let Some(word @ ("true" | "false")) = next {
                let message = format!("the official controller reads {name} {word} as {name}=true");
                self.is_problem(place, message, &format!("write {name}=true or {name}=false, as it is meant"));
                continue;
            }
            let value = value.or(next).unwrap_or("true").to_owned();
            self.is_v1 |= setting.only_v1;
            self.stated.push(Stated { setting, value, place });
        }
    }

    /// Reads a cloud config, YAML or JSON. No message repeats what is in it.
    pub(super) fn read_cloud_config(&mut self, file: &Path, text: &str) {
        let place = |line: u64, column: u64| {
            let number = |number| usize::try_from(number).unwrap_or_default();
            ProblemPlace::File { file: file.to_owned(), line: number(line), column: number(column) }
        };
        let whole = || ProblemPlace::Whole { file: file.to_owned() };
        let documents = match documents(text) {
            Ok(documents) => documents,
            Err(error) => {
                let place = error.location().map_or_else(whole, |at| place(at.line(), at.column()));
                let (message, help) = match error.without_snippet() {
                    serde_saphyr::Error::DuplicateMappingKey { .. } => {
                        ("the cloud config has a key twice", "keep the line that counts")
                    }
                    _ => ("the cloud config is neither YAML nor JSON", "correct the file"),
                };
                return self.is_problem(place, message, help);
            }
        };
        let Some(document) = documents.first().filter(|document| !document.value.to_json().is_null()) else {
            return self.is_problem(whole(), "the cloud config is empty", "name the official cloud config");
        };
        let kind = document.value.text("kind");
        if !kind.is_empty() && document.value.get("apiVersion").is_some() {
            let message = format!("this is a manifest of kind {kind}, and not the cloud config");
            let help = "name a file with the value of the entry in its data, such as cloud-config.conf";
            return self.is_problem(whole(), message, help);
        }
        let global = match &document.value {
            ManifestNode::Map(entries) => entries.iter().find(|(name, _)| name.value.eq_ignore_ascii_case("Global")),
            _ => None,
        };
        let Some(ManifestNode::Map(entries)) = global.map(|(_, global)| &global.value) else {
            return self.is_problem(whole(), "the cloud config has no table Global", "name the official cloud config");
        };
        for (name, node) in entries {
            let place = place(name.referenced.line(), name.referenced.column());
            let Some(setting) = KEYS.iter().find(|setting| setting.name.eq_ignore_ascii_case(&name.value)) else {
                self.notes.push(format!("{}: no key of the official controller; ignored there, too", name.value));
                continue;
            };
            let is_same = |other: &&(Spanned<String>, _)| other.0.value.eq_ignore_ascii_case(&name.value);
            if entries.iter().filter(is_same).count() > 1 {
                self.is_problem(place, format!("{} is stated twice", setting.name), "keep the line that counts");
                continue;
            }
            let value = match &node.value {
                ManifestNode::Scalar(Value::Null) => String::new(),
                ManifestNode::Scalar(Value::String(text)) => text.clone(),
                ManifestNode::Scalar(value) => value.to_string(),
                ManifestNode::List(_) | ManifestNode::Map(_) => {
                    let message = format!("{} must be a single value", setting.name);
                    self.is_problem(place, message, "write it as text; several are separated by commas");
                    continue;
                }
            };
            self.stated.push(Stated { setting, value, place });
        }
    }

    /// Reads a variable of its container.
    pub(super) fn read_variable(&mut self, name: &str, value: &str, place: ProblemPlace) {
        if value.is_empty() {
            return;
        }
        let is_it = |setting: &&Setting| setting.name.eq_ignore_ascii_case(name);
        match VARIABLES.iter().find(is_it) {
            Some(setting) => {
                let stated = Stated { setting, value: value.to_owned(), place };
                self.variables.get_or_insert_default().push(stated);
            }
            None => self.notes.push(format!("{name}: no variable of the official controller; not taken over")),
        }
    }
}
