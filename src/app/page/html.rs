//! The HTML of the page.
//!
//! Tables say their roles, since the style shows their rows as blocks on narrow screens, where browsers would forget them.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::overview::{ConfigFacts, Overview, SessionFacts};
use super::plot;
use crate::alibaba::{RateUse, queue_end};
use crate::controllers::registry::CONTROLLERS;
use crate::telemetry::activity::{PastStep, RunningReconcile};
use crate::telemetry::alarms::{ObjectReport, SyncState, WithheldReport};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Objects in the table; further ones are only counted, so that the page stays small.
const MOST_OBJECTS: usize = 100;
/// Characters of what is wrong with an object, as many as an event has.
const LONGEST_MESSAGE: usize = 1024;

/// Sections: the id of the heading, and the heading.
const SECTIONS: [(&str, &str); 8] = [
    ("out-of-sync", "Out of sync"),
    ("withheld", "Withheld steps"),
    ("controllers", "Controllers"),
    ("leader", "Leader"),
    ("hour", "Last hour"),
    ("limits", "Rate limits"),
    ("steps", "Last steps"),
    ("config", "Configuration"),
];

pub(super) fn page(overview: &Overview, nonce: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title(overview)) }
                // Without one, browsers ask for another file.
                link rel="icon" href="data:,";
                style nonce=(nonce) { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "alicloud-ccm" }
                    p #refresh {
                        // The script shows it; without the script, the link alone works.
                        label #auto hidden { input type="checkbox" checked; " Refresh every 5 s" }
                        " " a href="" { "Refresh now" }
                        " " span #answer role="status" {}
                    }
                    nav aria-label="Sections" {
                        ul { @for (id, heading) in SECTIONS { li { a href={ "#" (id) } { (heading) } } } }
                    }
                }
                main data-title=(title(overview)) { (content(overview)) }
                script nonce=(nonce) { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// What is wrong comes first, so that a tab shows it.
fn title(overview: &Overview) -> String {
    match (overview.out_of_sync(), overview.is_ready()) {
        (0, true) => "alicloud-ccm: in sync".to_owned(),
        (0, false) => "alicloud-ccm: not ready".to_owned(),
        (count, _) => format!("{count} out of sync: alicloud-ccm"),
    }
}

fn content(overview: &Overview) -> Markup {
    let bodies = [
        out_of_sync(&overview.objects, overview.at),
        withheld(&overview.withheld),
        controllers(overview),
        leader(overview.session.as_ref()),
        html! {
            (plot::bars("Reconciles", &overview.activity.reconciles))
            (plot::bars("Cloud calls", &overview.activity.calls))
        },
        rate_limits(overview.session.as_ref()),
        steps(&overview.activity.steps, overview.at),
        config(&overview.config),
    ];
    html! {
        (summary(overview))
        @for ((id, heading), body) in SECTIONS.iter().zip(bodies) {
            section aria-labelledby=(id) { h2 #(id) { (heading) } (body) }
        }
    }
}

/// The state in a few sentences.
fn summary(overview: &Overview) -> Markup {
    let (failing, withheld) = (overview.out_of_sync(), overview.withheld.len());
    let rejected = overview.config.last_reload.as_ref().is_some_and(|(_, outcome, _)| outcome == "rejected");
    html! {
        section aria-label="Summary" {
            ul.summary {
                li.bad[!overview.is_ready()] { @if overview.is_ready() { "Ready" } @else { "Not ready" } }
                @match overview.session.as_ref().map(|session| session.leads) {
                    Some(true) => li { "This replica leads" },
                    Some(false) => li { "Standby: this replica does not lead" },
                    None => li.bad { "Not connected yet" },
                }
                li.bad[failing > 0] { (failing) " out of sync" }
                li.bad[withheld > 0] { (withheld) " withheld" }
                @if rejected { li.bad { a href="#config" { "The changed configuration was rejected" } } }
            }
            p {
                "Version " (env!("CARGO_PKG_VERSION"))
                @if let Some(SessionFacts { region, vpc_id, cluster_id, .. }) = &overview.session {
                    ", cluster " code { (cluster_id) } " in " code { (region) } ", " code { (vpc_id) }
                }
                ". As of " (time(overview.at)) "."
            }
            ul.checks {
                @for check in &overview.checks {
                    li {
                        span.bad[!check.is_ready] { (check.name) @if check.is_ready { " ok" } @else { " failed" } }
                        @if !check.text.is_empty() { ": " (check.text) }
                    }
                }
            }
        }
    }
}

fn out_of_sync(objects: &[ObjectReport], now: Timestamp) -> Markup {
    let rows = objects.iter().take(MOST_OBJECTS).map(|object| {
        vec![
            html! { (object.object) },
            html! { (object.controller) },
            html! {
                (with_code(&sentence(object)))
                @if let Some(advice) = &object.advice { br; "To do: " (with_code(advice.remedy)) }
                br; code { "alicloud-ccm explain " (explain_argument(object)) }
            },
            time_of_day(object.since, now),
            html! { @if let Some(next) = object.next_attempt { (time_of_day(next, now)) } @else { "after a change" } },
        ]
    });
    html! {
        (table("Objects that are not in sync; times are UTC", &["Object", "Controller", "Why", "Since", "Next attempt"], rows))
        @if objects.len() > MOST_OBJECTS {
            p { "Not shown are " (objects.len() - MOST_OBJECTS) " more; " code { "/debug/objects" } " has all." }
        }
    }
}

/// As `explain` begins.
fn sentence(ObjectReport { state, reason, message, .. }: &ObjectReport) -> String {
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    match state {
        SyncState::OutOfSync if reason.is_empty() => format!("is out of sync: {message}"),
        SyncState::OutOfSync => format!("is out of sync; last event {reason}: {message}"),
        SyncState::InProgress => format!("is not in sync yet: {message}"),
        SyncState::Retrying => format!("is retried: {message}"),
    }
}

/// What events and their manual put between backticks is code.
fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// How `explain` is asked about an object.
fn explain_argument(ObjectReport { controller, object, .. }: &ObjectReport) -> String {
    let row = CONTROLLERS.iter().find(|row| row.name() == *controller);
    row.map_or_else(|| object.clone(), |row| row.argument(object))
}

fn withheld(alarms: &[WithheldReport]) -> Markup {
    let rows = alarms.iter().map(|alarm| {
        vec![html! { (alarm.reason) }, html! { (alarm.controller) }, html! { (alarm.count) }, html! { (alarm.text) }]
    });
    table(
        "Steps that wait for proof or for your decision, and what releases them",
        &["Reason", "Controller", "Steps", "Text"],
        rows,
    )
}

fn controllers(overview: &Overview) -> Markup {
    let rows = overview.controllers.iter().map(|(name, gauges)| {
        let now = overview.activity.running.iter().filter(|running| running.controller == name);
        let now: Vec<Markup> = now.map(reconcile).collect();
        vec![
            html! { (name) },
            html! { @if now.is_empty() { "waits for changes" } @else { ul { @for running in now { li { (running) } } } } },
            html! { (gauges.queue) },
            html! { span.bad[gauges.out_of_sync > 0] { (gauges.out_of_sync) } },
            html! { span.bad[gauges.withheld > 0] { (gauges.withheld) } },
        ]
    });
    table("What each controller does now", &["Controller", "Now", "Waiting", "Out of sync", "Withheld"], rows)
}

fn reconcile(running: &RunningReconcile) -> Markup {
    html! {
        "reconciles " (running.objects) " for " (seconds(running.since.elapsed()))
        @if let Some(step) = &running.step { ": " (step) }
    }
}

fn leader(session: Option<&SessionFacts>) -> Markup {
    html! {
        @match session.map(|session| (session.leads, &session.election)) {
            None => p { "There is no connection to the API server and to the cloud yet." },
            Some((_, None)) => p { "Leader election is off: this replica leads." },
            Some((leads, Some(election))) => dl {
                dt { "Leader" }
                dd {
                    @if leads { (election.identity) " (this replica)" }
                    @else { (election.holder.as_deref().unwrap_or("not known")) }
                }
                dt { "This replica" } dd { (election.identity) }
                dt { "Lock" } dd { (election.lock) }
            }
        }
    }
}

fn rate_limits(session: Option<&SessionFacts>) -> Markup {
    let mut limits: Vec<_> = session.iter().flat_map(|session| &session.rate_limits).collect();
    let end = session.and_then(|session| queue_end(&session.rate_limits));
    // What is scarcest comes first.
    limits.sort_by_key(|limit| Reverse(limit.sent * 1000 / limit.allowed.max(1)));
    let rows = limits.into_iter().map(|RateUse { action, sent, allowed, window, waiting, last_in, paused, slowed_to }| {
        let share = format!("{sent} of {allowed} in {}", seconds(*window));
        let paused = paused.map(|left| format!("paused for {}", seconds(left)));
        let slowed = slowed_to.map(|rate| format!("at most {rate:.1} calls a second"));
        let throttled: Vec<String> = paused.into_iter().chain(slowed).collect();
        vec![
            html! { (action) },
            html! { meter min="0" max=(allowed) value=(sent) aria-label=(format!("{action}: {share}")) {} " " (share) },
            html! { (waiting) @if *waiting > 0 { ", the last for " (seconds(*last_in)) } },
            html! { @if throttled.is_empty() { "no" } @else { span.bad { (throttled.join(", ")) } } },
        ]
    });
    html! {
        @if let Some((_, text)) = end { p { (text) "." } }
        (table(
            "Own share of the cloud's quotas, of actions that were called in the last minute",
            &["Action", "Used", "Waiting", "Throttled"],
            rows,
        ))
    }
}

fn steps(steps: &[PastStep], now: Timestamp) -> Markup {
    let rows = steps.iter().map(|step| {
        let ended = step.outcome == "ok";
        let who = if step.controller.is_empty() { "-" } else { step.controller };
        vec![
            time_of_day(now.checked_sub(step.at.elapsed()).unwrap_or(now), now),
            html! { (who) @if !step.objects.is_empty() { " " (step.objects) } },
            html! { @if !step.what.is_empty() { (step.what) br; } small { (step.call) } },
            html! { span.bad[!ended] { (step.outcome) } },
            html! { (seconds(step.took)) },
            html! { @if step.request_id.is_empty() { "-" } @else { code.id { (step.request_id) } } },
        ]
    });
    table(
        "The last hundred writes to the cloud and to the API server, the newest first; times are UTC",
        &["Time", "Object", "Step", "Result", "Took", "Request id"],
        rows,
    )
}

fn config(config: &ConfigFacts) -> Markup {
    html! {
        dl {
            dt { "File" } dd { code { (config.file) } ", hash " code { (config.hash) } }
            dt { "In use since" } dd { (config.since) }
            dt { "Last change" }
            dd {
                @match &config.last_reload {
                    None => "none since the start",
                    Some((at, outcome, details)) => {
                        span.bad[outcome == "rejected"] { (outcome) } " at " (at)
                        @if !details.is_empty() { ul { @for line in details { li { (line) } } } }
                    }
                }
            }
        }
        details #config-text {
            summary { "All keys, without secrets" }
            pre tabindex="0" role="region" aria-label="All keys" { (config.text) }
        }
    }
}

/// A table whose first column names the row; a sentence if it has none.
fn table(caption: &str, headers: &[&str], rows: impl Iterator<Item = Vec<Markup>>) -> Markup {
    let rows: Vec<_> = rows.collect();
    html! {
        @if rows.is_empty() {
            p { (caption) ": none." }
        } @else {
            table role="table" {
                caption { (caption) }
                thead role="rowgroup" {
                    tr role="row" { @for header in headers { th scope="col" role="columnheader" { (header) } } }
                }
                tbody role="rowgroup" {
                    @for row in rows {
                        tr role="row" {
                            @for (index, (cell, header)) in row.into_iter().zip(headers).enumerate() {
                                @if index == 0 {
                                    th scope="row" role="rowheader" { (cell) }
                                } @else {
                                    td role="cell" data-label=(header) { div { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The time; with the date if it was not today.
fn time_of_day(at: Timestamp, now: Timestamp) -> Markup {
    let is_today = at.strftime("%F").to_string() == now.strftime("%F").to_string();
    let text = at.strftime(if is_today { "%T" } else { "%F %T" }).to_string();
    html! { time datetime=(format!("{at:.3}")) { (text) } }
}

fn time(at: Timestamp) -> Markup {
    html! { time datetime=(format!("{at:.3}")) { (at.strftime("%F %T UTC")) } }
}

/// Such as `120 ms`, `3.2 s` or `61 s`.
fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        1000..10_000 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} s", time.as_secs()),
    }
}
