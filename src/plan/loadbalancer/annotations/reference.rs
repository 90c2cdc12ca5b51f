//! The reference page of annotations, as Markdown.

use std::fmt::Write as _;

use super::values::allowed;
use super::{AnnotationName, Applies, Entry, LEGACY_PREFIX, PREFIX, WhenEffective};
use crate::plan::loadbalancer::spec_fields::{FieldUse, SPEC_FIELDS};

/// Titles of the sections of the page.
const SECTIONS: [&str; 4] = [ROUTING, INSTANCE, LISTENERS, BACKENDS];
const ROUTING: &str = "Which controller";
const INSTANCE: &str = "Load balancer";
const LISTENERS: &str = "Listeners";
const BACKENDS: &str = "Backends";

/// What holds for the annotations of all products.
pub fn introduction() -> String {
    format!(
        "# Annotations of Services\n\n[中文](../zh/reference/annotations.md)\n\nFor developers who write a Service.\n\n\
         Keys start with `{PREFIX}` unless they are written out. `{LEGACY_PREFIX}` counts where the current key is absent.\n\
         An empty value means that the annotation is not set.\n\n\
         When: A always; C only at creation; I at creation, later only compared. L: on load balancers of ours, and on\n\
         those named by `id` only with `force-override-listeners`. B: always, with every change of nodes and endpoints.\n\n\
         Removed, what holds once the annotation is taken away. `default`: as on a load balancer that never had it. `stays`: its\n\
         last value until another one is stated. `fixed`: what the load balancer was made with.\n\n\
         Default: a key of the configuration gives another one. \"When made\": a load balancer or a listener gets it when it is\n\
         made, and an edit of the file changes nothing that exists. \"At once\": it also holds for what exists.\n\n\
         Source, where the allowed values are defined: the official controller, Kubernetes, this program, or a parameter of the API.\n\
         That is documented with `CreateLoadBalancer` and the actions that create listeners and server groups.\n\n\
         A new listener gets the settings of every feature that is stated, also of one that is off. Such are the URI, domain, method\n\
         and codes of an HTTP health check, a drain time, and details of the PROXY protocol. A listener that exists gets them\n\
         when its feature is switched on.\n"
    )
}

/// The tables of one product, below headings of this level.
pub fn tables<N: AnnotationName>(heading: &str) -> String {
    let mut page = String::new();
    for title in SECTIONS {
        let _ = write!(
            page,
            "\n{heading} {title}\n\n| Key | Values | Default | For | When | What it does | A change | Removed | Source |\n|---|---|---|---|---|---|---|---|---|\n"
        );
        for entry in N::TABLE.iter().filter(|entry| section_of(entry) == title) {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} | {} | {} | `{}` | {} |",
                entry.key.short(),
                // Of the only list that is too long for a cell, each word after the first shows its end.
                allowed(entry.kind).replace(", `tls_cipher_policy", ", `"),
                default(entry),
                protocols(entry),
                entry.scope.code(),
                entry.help,
                entry.update,
                entry.removed.word(),
                source(entry)
            );
        }
    }
    page
}

/// The table of the fields of a Service.
pub fn spec_fields() -> String {
    let mut page = "\n## Fields of `spec`\n\n| Field | What it does |\n|---|---|\n".to_owned();
    for (field, meaning) in SPEC_FIELDS {
        let text = match meaning {
            FieldUse::Honoured(what) => (*what).to_owned(),
            FieldUse::Told(why) => format!("nothing, with a warning: {why}"),
            FieldUse::Other(what) => format!("nothing for a load balancer: {what}"),
        };
        let _ = writeln!(page, "| `{field}` | {text} |");
    }
    page
}

fn section_of<N: AnnotationName>(entry: &Entry<N>) -> &'static str {
    match entry.applies {
        Applies::Routing => ROUTING,
        Applies::Instance => INSTANCE,
        Applies::Field(_) if entry.scope == WhenEffective::Backend => BACKENDS,
        Applies::Listeners | Applies::Field(_) => LISTENERS,
        Applies::Backends => BACKENDS,
    }
}

/// What holds without the annotation, and which key of the configuration gives it.
fn default<N: AnnotationName>(entry: &Entry<N>) -> String {
    let Some(file) = entry.file else { return entry.default.to_owned() };
    let since = if entry.holds_at_once { "at once" } else { "when made" };
    format!("{}{}`{file}`, {since}", entry.default, if entry.default.is_empty() { "" } else { ", or " })
}

/// Where the allowed values are defined.
fn source<N: AnnotationName>(entry: &Entry<N>) -> String {
    match entry.applies {
        Applies::Field(field) => format!("`{}`", N::parameter(field)),
        _ if entry.source.is_empty() => "-".to_owned(),
        _ => entry.source.to_owned(),
    }
}

fn protocols<N: AnnotationName>(entry: &Entry<N>) -> String {
    match entry.applies {
        Applies::Field(field) => N::protocols(field).join(" "),
        Applies::Listeners => "listeners".to_owned(),
        Applies::Routing => "-".to_owned(),
        Applies::Instance => "instance".to_owned(),
        Applies::Backends => "backends".to_owned(),
    }
}
