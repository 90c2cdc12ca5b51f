//! `lint`: judges manifests of Services by themselves, without a cluster and without a cloud.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;
use serde_json::{Value, json};
use serde_saphyr::{Location, Spanned};

use super::manifest::{ManifestNode, documents, place};
use super::settings::SettingLine;
use super::{CommandError, CommandResult, Ended, print};
use crate::cli::{LintArgs, LintFormat};
use crate::cluster;
use crate::config::{Config, ConfigSource};
use crate::controllers::loadbalancer::{self, Linted};
use crate::plan::count_of;
use crate::plan::inputs::ObjectKey;
use crate::plan::loadbalancer::ownership::LoadBalancerKind;
use crate::plan::loadbalancer::problem::ServiceProblem;

/// Stands for the standard input.
const STDIN: &str = "-";

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// It cannot be done as it is written.
    Error,
    /// It has no effect, or not the one that it seems to have.
    Warning,
}

/// What is wrong, and where.
#[derive(Debug, Serialize)]
struct LintFinding {
    severity: Severity,
    file: PathBuf,
    /// From 1; 0 if the file as a whole is meant.
    line: usize,
    /// In characters, from 1; 0 if the file as a whole is meant.
    column: usize,
    /// Namespace and name of the Service; empty if it is about none.
    object: String,
    /// The annotation, or the path of the field; empty if it is about none.
    field: String,
    /// What is wrong, what was given, what is allowed.
    message: String,
    /// What the annotation does; empty if it is about none that is known.
    help: String,
    #[serde(skip)]
    excerpt: String,
}

/// What a Service leads to.
#[derive(Debug, Serialize)]
struct LintedService {
    object: String,
    /// `classic` or `network`; absent if this program makes no load balancer for it.
    kind: Option<&'static str>,
    steps: Vec<String>,
    /// What is set, where it comes from, and what it does.
    settings: Vec<SettingLine>,
}

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
struct LintReport {
    findings: Vec<LintFinding>,
    services: Vec<LintedService>,
    #[serde(skip)]
    unreadable: bool,
}

pub(super) fn run(arguments: &LintArgs, config: &Config, origin: &ConfigSource) -> CommandResult {
    let mut found = LintReport::default();
    for path in &arguments.files {
        match read(path) {
            Ok(text) => found.judge((path, &text), config, origin),
            Err(error) => found.unreadable(path, Location::UNKNOWN, &error.to_string(), ""),
        }
    }
    let text = match arguments.output {
        LintFormat::Text => found.to_text(arguments.plan),
        LintFormat::Json => format!("{:#}\n", serde_json::to_value(&found).map_err(CommandError::new)?),
        LintFormat::Sarif => format!("{:#}\n", found.to_sarif()),
    };
    print(&text)?;
    Ok(match found.count(Severity::Error) {
        _ if found.unreadable => Ended::Incomplete,
        0 => Ended::Done,
        _ => Ended::SomethingToDo,
    })
}

fn read(path: &Path) -> io::Result<String> {
    if path == Path::new(STDIN) { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) }
}

impl LintReport {
    fn judge(&mut self, source: (&Path, &str), config: &Config, origin: &ConfigSource) {
        let (path, text) = source;
        let documents = match documents(text) {
            Ok(documents) => documents,
            Err(error) => {
                let location = error.location().unwrap_or(Location::UNKNOWN);
                return self.unreadable(path, location, &error.without_snippet().to_string(), text);
            }
        };
        for object in documents.iter().flat_map(ManifestNode::objects) {
            let node = &object.value;
            if node.text("apiVersion") == "v1" && node.text("kind") == "Service" {
                self.judge_service(source, object, config, origin);
            }
        }
    }

    fn judge_service(
        &mut self,
        source: (&Path, &str),
        object: &Spanned<ManifestNode>,
        config: &Config,
        origin: &ConfigSource,
    ) {
        let metadata = object.value.get("metadata");
        let text = |key| metadata.map_or("", |metadata| metadata.value.text(key));
        let name = ObjectKey::new(text("namespace"), text("name")).to_string();
        let mut add = |severity, problem: &ServiceProblem, help: Option<String>| {
            let location = place(object, &problem.field);
            let message = problem.to_string();
            let found = finding(severity, source, location, &name, (&problem.field, &message));
            self.findings.push(LintFinding { help: help.unwrap_or_default(), ..found });
        };
        let unquoted = not_texts(object);
        for problem in &unquoted {
            add(Severity::Error, problem, None);
        }
        if !unquoted.is_empty() {
            // The API server refuses the object as a whole.
            return;
        }
        let service = match cluster::read_service(object.value.to_json()) {
            Ok(service) => service,
            Err(error) => {
                let location = object.referenced;
                let message = format!("the API server refuses this: {error}");
                return self.findings.push(finding(Severity::Error, source, location, &name, ("", &message)));
            }
        };
        let Linted { kind, errors, warnings, steps, settings } = loadbalancer::lint(service, config);
        let help = |problem: &ServiceProblem| kind.and_then(|kind| loadbalancer::help(kind, &problem.field));
        errors.iter().for_each(|problem| add(Severity::Error, problem, help(problem)));
        warnings.iter().for_each(|problem| add(Severity::Warning, problem, help(problem)));
        let settings = settings.into_iter().map(|setting| SettingLine::of(setting, origin)).collect();
        let kind = kind.map(|kind| match kind {
            LoadBalancerKind::Clb => "classic",
            LoadBalancerKind::Nlb => "network",
        });
        self.services.push(LintedService { object: name, kind, steps, settings });
    }

    fn unreadable(&mut self, path: &Path, location: Location, message: &str, text: &str) {
        self.unreadable = true;
        let message = format!("the file cannot be read: {message}");
        self.findings.push(finding(Severity::Error, (path, text), location, "", ("", &message)));
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    fn to_text(&self, with_plan: bool) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let _ = writeln!(text, "{}\n", finding.render());
        }
        for LintedService { object, kind, steps, settings } in self.services.iter().filter(|_| with_plan) {
            let _ = writeln!(
                text,
                "{object}: {}",
                kind.map_or("no load balancer".to_owned(), |kind| format!("{kind} load balancer"))
            );
            for step in steps {
                let _ = writeln!(text, "  + {step}");
            }
            for setting in settings {
                let _ = writeln!(text, "  {setting}");
                if setting.is_stated {
                    let _ = writeln!(text, "      {}", setting.help);
                }
            }
            text.push('\n');
        }
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let [services, errors, warnings] = [(self.services.len(), "Service"), (errors, "error"), (warnings, "warning")]
            .map(|(n, what)| count_of(n, what));
        let _ = writeln!(text, "{services}: {errors}, {warnings}.");
        text
    }

    /// The Static Analysis Results Interchange Format 2.1.0, which code hosts show beside the lines.
    fn to_sarif(&self) -> Value {
        let id = |finding: &LintFinding| match &*finding.field {
            "" => "manifest".to_owned(),
            field => field.to_owned(),
        };
        let helped = self.findings.iter().filter(|finding| !finding.help.is_empty());
        let rules: BTreeMap<String, &str> = helped.map(|finding| (id(finding), &*finding.help)).collect();
        let rules = rules.into_iter().map(|(id, help)| json!({ "id": id, "help": { "text": help } }));
        let results = self.findings.iter().map(|finding| {
            let mut place = json!({ "artifactLocation": { "uri": finding.file } });
            if finding.line > 0 {
                place["region"] = json!({ "startLine": finding.line, "startColumn": finding.column });
            }
            json!({
                "ruleId": id(finding),
                "level": finding.severity,
                "message": { "text": finding.message },
                "locations": [{ "physicalLocation": place }],
            })
        });
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": { "name": "alicloud-ccm", "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules.collect::<Vec<_>>() } },
                "results": results.collect::<Vec<_>>(),
            }],
        })
    }
}

fn finding(
    severity: Severity,
    (path, text): (&Path, &str),
    location: Location,
    object: &str,
    (field, message): (&str, &str),
) -> LintFinding {
    let number = |number: u64| usize::try_from(number).unwrap_or_default();
    let (line, column) = (number(location.line()), number(location.column()));
    LintFinding {
        severity,
        file: path.to_owned(),
        line,
        column,
        object: object.to_owned(),
        field: field.to_owned(),
        message: message.to_owned(),
        help: String::new(),
        excerpt: line.checked_sub(1).and_then(|index| text.lines().nth(index)).unwrap_or_default().to_owned(),
    }
}

impl LintFinding {
    fn render(&self) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title =
            if self.object.is_empty() { self.message.clone() } else { format!("{}: {}", self.object, self.message) };
        let group = Group::with_title(level.primary_title(&*title));
        let path = self.file.to_string_lossy();
        let group = match self.excerpt.is_empty() {
            true => group.element(annotate_snippets::Origin::path(path)),
            false => group.element(
                Snippet::source(&*self.excerpt)
                    .line_start(self.line)
                    .path(path)
                    .annotation(AnnotationKind::Primary.span(self.mark())),
            ),
        };
        let group = match self.help.is_empty() {
            true => group,
            false => group.element(Level::HELP.message(&*self.help)),
        };
        Renderer::plain().render(&[group])
    }

    /// From the value to the end of its line.
    fn mark(&self) -> Range<usize> {
        let starts = self.excerpt.char_indices().map(|(at, _)| at);
        let start = starts.clone().nth(self.column.saturating_sub(1)).unwrap_or_default();
        start..self.excerpt.trim_end().len().max(start)
    }
}

/// Annotations whose value is no text. `on` is a truth value unless it is quoted, as in the parser of `kubectl` (YAML 1.1).
fn not_texts(object: &Spanned<ManifestNode>) -> Vec<ServiceProblem> {
    let annotations = object.value.get("metadata").and_then(|metadata| metadata.value.get("annotations"));
    let Some(ManifestNode::Map(entries)) = annotations.map(|annotations| &annotations.value) else { return Vec::new() };
    let wrong = entries.iter().filter(|(_, node)| !matches!(node.value, ManifestNode::Scalar(Value::String(_))));
    wrong
        .map(|(key, node)| {
            ServiceProblem::invalid(&key.value, node.value.to_json().to_string(), "must be a text: put it in quotes")
        })
        .collect()
}
