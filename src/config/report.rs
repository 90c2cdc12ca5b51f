//! What is wrong with a configuration, as text and as JSON. Built so that it cannot hold a secret.

use std::fmt;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::redact::{Excerpt, MASK};

/// Reports say no more than this at once.
pub(super) const MOST_PROBLEMS: usize = 100;

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigReport {
    problems: Vec<ConfigProblem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigProblem {
    /// What is wrong, what was given, what is allowed.
    pub message: String,
    /// What to do, if there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The key that it is about, such as `cloud.region`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it is written.
    #[serde(flatten)]
    pub place: ProblemPlace,
    #[serde(skip)]
    pub(super) excerpt: Option<Excerpt>,
}

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum ProblemPlace {
    /// In the file, at a line and a column (in characters), both from 1.
    File {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// Nowhere: something is missing, or the file as a whole is meant.
    Whole {
        /// The file.
        file: PathBuf,
    },
    /// In an environment variable.
    Variable {
        /// Its name.
        variable: String,
    },
    /// In an argument.
    Argument {
        /// The argument without its value.
        argument: String,
    },
}

impl ConfigReport {
    /// A report in which no text of `secrets` is.
    pub fn new(mut problems: Vec<ConfigProblem>, secrets: &[&str]) -> Self {
        for problem in &mut problems {
            problem.hide(secrets);
        }
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        problems.dedup();
        Self { problems }
    }

    /// The problems; at least one.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }
}

impl ConfigProblem {
    /// A problem without an excerpt: what is around it may be secret.
    pub fn at(place: ProblemPlace, message: String, help: Option<String>) -> Self {
        Self { message, help, key: None, place, excerpt: None }
    }

    fn hide(&mut self, secrets: &[&str]) {
        for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
            let texts = [Some(&mut self.message), self.help.as_mut(), self.key.as_mut()];
            for text in texts.into_iter().flatten() {
                *text = text.replace(secret, MASK);
            }
            if let Some(excerpt) = self.excerpt.as_mut().filter(|excerpt| excerpt.shown.contains(secret)) {
                excerpt.shown = MASK.to_owned();
                excerpt.mark = 0..MASK.len();
            }
        }
    }

    fn render(&self) -> String {
        let mut group = Group::with_title(Level::ERROR.primary_title(&*self.message));
        group = match (&self.place, &self.excerpt) {
            (ProblemPlace::File { file, .. }, Some(excerpt)) => group.element(
                Snippet::source(&*excerpt.shown)
                    .line_start(excerpt.line)
                    .path(file.to_string_lossy())
                    .annotation(AnnotationKind::Primary.span(excerpt.mark.clone())),
            ),
            (ProblemPlace::File { file, line, column }, None) => {
                group.element(Origin::path(file.to_string_lossy()).line(*line).char_column(*column))
            }
            (ProblemPlace::Whole { file }, _) => group.element(Origin::path(file.to_string_lossy())),
            (ProblemPlace::Variable { variable }, _) => {
                group.element(Origin::path(format!("environment variable {variable}")))
            }
            (ProblemPlace::Argument { argument }, _) => group.element(Origin::path(format!("argument {argument}"))),
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(&**help));
        }
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{}\n", problem.render())?;
        }
        match self.problems.len() {
            1 => write!(f, "1 problem in the configuration"),
            count if count >= MOST_PROBLEMS => write!(f, "these are the first {count} problems in the configuration"),
            count => write!(f, "{count} problems in the configuration"),
        }
    }
}

impl std::error::Error for ConfigReport {}
