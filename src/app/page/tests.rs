//! What the page says, rendered from values.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::overview::{ConfigFacts, SessionFacts};
use super::*;
use crate::alibaba::RateUse;
use crate::cluster::ElectionStatus;
use crate::telemetry::activity::{MINUTES, MinuteCount, PastStep, RecentActivity, RunningReconcile};
use crate::telemetry::alarms::{EventAdvice, ObjectReport, SyncState, WithheldReport};
use crate::telemetry::health::HealthCheck;
use crate::telemetry::metrics::ControllerGauges;

const HOSTILE: &str = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";

fn object(text: &str) -> ObjectReport {
    ObjectReport {
        controller: "service",
        object: text.to_owned(),
        state: SyncState::OutOfSync,
        since: "2026-11-23T11:00:00Z".parse().unwrap(),
        last_attempt: "2026-11-23T12:00:00Z".parse().unwrap(),
        next_attempt: "2026-11-23T12:00:30Z".parse().ok(),
        reason: "SyncLoadBalancerFailed",
        advice: Some(EventAdvice { code: 307, remedy: "run `plan` and allow it" }),
        message: text.to_owned(),
        failed_call: None,
        quiet_for: Duration::ZERO,
    }
}

/// A page on which every text is this one.
fn overview(text: &str) -> Overview {
    let at = "2026-11-23T12:00:03Z".parse().unwrap();
    let check = HealthCheck { name: text.to_owned(), is_ready: false, text: text.to_owned() };
    let election = ElectionStatus { lock: text.to_owned(), identity: text.to_owned(), holder: Some(text.to_owned()) };
    let rate_limit = RateUse {
        action: "CreateLoadBalancer",
        sent: 7,
        allowed: 30,
        window: Duration::from_secs(60),
        waiting: 2,
        last_in: Duration::from_secs(90),
        paused: Some(Duration::from_secs(2)),
        slowed_to: Some(0.5),
    };
    let session = SessionFacts {
        region: text.to_owned(),
        vpc_id: text.to_owned(),
        cluster_id: text.to_owned(),
        leads: true,
        election: Some(election),
        rate_limits: vec![rate_limit],
    };
    let running = RunningReconcile {
        controller: "service",
        objects: text.into(),
        since: Instant::now() - Duration::from_secs(20),
        step: Some(text.into()),
    };
    let step = PastStep {
        at: Instant::now(),
        controller: "service",
        objects: text.into(),
        what: text.into(),
        call: text.to_owned(),
        outcome: text.to_owned(),
        request_id: text.to_owned(),
        took: Duration::from_millis(1234),
    };
    let minutes = vec![MinuteCount { all: 3, failed: 1 }; MINUTES];
    let gauges = ControllerGauges { is_running: true, queue: 4, out_of_sync: 1, withheld: 5 };
    Overview {
        at,
        checks: vec![check],
        session: Some(session),
        objects: vec![object(text)],
        withheld: vec![WithheldReport {
            controller: "node",
            reason: "NodeRemovalHeldBack",
            count: 5,
            text: text.to_owned(),
        }],
        controllers: vec![("service".to_owned(), gauges)],
        activity: RecentActivity {
            running: vec![running],
            steps: vec![step],
            reconciles: minutes.clone(),
            calls: minutes,
        },
        config: ConfigFacts {
            file: text.to_owned(),
            hash: text.to_owned(),
            since: text.to_owned(),
            last_reload: Some((text.to_owned(), "rejected".to_owned(), vec![text.to_owned()])),
            text: text.to_owned(),
        },
    }
}

fn rendered(overview: &Overview) -> String {
    html::page(overview, "NONCE").into_string()
}

#[test]
fn every_text_is_escaped() {
    let page = rendered(&overview(HOSTILE));
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
    let escaped = page.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count();
    assert_eq!(escaped, 25, "each text is shown once: {page}");
}

#[test]
fn what_is_wrong_comes_first() {
    let page = rendered(&overview("because"));
    assert!(page.contains("<title>1 out of sync: alicloud-ccm</title>"), "{page}");
    let order = [
        "Not ready",
        "1 out of sync</li>",
        "Out of sync</h2>",
        "Withheld steps</h2>",
        "Controllers</h2>",
        "Last steps</h2>",
    ];
    let main = &page[page.find("<main ").unwrap()..];
    let places: Vec<usize> = order.iter().map(|text| main.find(text).expect(text)).collect();
    assert!(places.is_sorted(), "{places:?}");
    for text in [
        "is out of sync; last event SyncLoadBalancerFailed: because<br>To do: run <code>plan</code> and allow it",
        "alicloud-ccm explain svc/because",
        "reconciles because for 20 s: because",
        "7 of 30 in 60 s",
        "paused for 2.0 s, at most 0.5 calls a second",
        "1.2 s",
        "The changed configuration was rejected",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn what_no_event_was_written_about_names_none() {
    let mut overview = overview("because");
    overview.objects[0].reason = "";
    let page = rendered(&overview);
    assert!(page.contains("is out of sync: because<br>") && !page.contains("last event"), "{page}");
}

#[test]
fn tables_have_a_caption_and_name_their_rows_and_columns() {
    let page = rendered(&overview("x"));
    let tables: Vec<&str> = page.split("<table").skip(1).collect();
    assert_eq!(tables.len(), 5, "{page}");
    for table in tables {
        let table = &table[..table.find("</table>").unwrap()];
        assert!(
            table.contains("<caption>") && table.contains("scope=\"col\"") && table.contains("scope=\"row\""),
            "{table}"
        );
    }
    for (number, section) in page.split("<section aria-labelledby=\"").skip(1).enumerate() {
        let id = section.split('"').next().unwrap();
        assert!(section.contains(&format!("<h2 id=\"{id}\">")), "section {number} has no heading: {section}");
    }
}

#[test]
fn an_idle_process_says_so() {
    let page = rendered(&Overview::default());
    for text in [
        "Not connected yet",
        "0 out of sync",
        "not in sync; times are UTC: none.",
        "none since the start",
        "no connection to the API server",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn the_policy_allows_this_style_and_this_script_alone() {
    let page = StatusPage::default();
    let RenderedPage { html, policy } = page.render();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert!(
        html.contains(&format!("<style nonce=\"{nonce}\">")) && html.contains(&format!("<script nonce=\"{nonce}\">"))
    );
    assert!(!html.contains(" style=\"") && !html.contains(" onclick"), "the policy forbids them: {html}");
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing is loaded: {html}");
    assert_ne!(page.render().policy, policy, "a nonce is used once");
}

/// The page of a process with this `/configz`.
fn shown(configz: &Value) -> String {
    let page = StatusPage::default();
    *page.pages.configz.write() = configz.to_string();
    page.render().html
}

/// Thousands of objects out of sync and full histories leave it small enough for a phone.
#[test]
fn it_stays_small_whatever_is_out_of_sync() {
    let long = "x".repeat(240);
    let mut all = overview(&long);
    all.objects = vec![ObjectReport { message: "x".repeat(50_000), ..object(&long) }; 5_000];
    all.activity.steps = vec![all.activity.steps[0].clone(); 100];
    let page = rendered(&all);
    assert!(page.len() < 400_000, "{} bytes", page.len());
    assert!(page.contains("<title>5000 out of sync: alicloud-ccm</title>"), "all are counted");
    assert!(page.contains("Not shown are 4900 more; <code>/debug/objects</code> has all."), "and the rest is found");
}

#[test]
fn the_last_change_of_the_configuration_is_told() {
    let configz = json!({
        "file": "/etc/ccm.toml", "hash": "abc", "since": "2026-11-23T12:00:00Z",
        "last_reload": {
            "outcome": "applied", "at": "2026-11-23T12:05:00Z", "changed": ["controllers", "route.period"],
            "started": ["route"], "stopped": [], "restarted": [],
        },
        "config": { "cloud": { "credentials": { "access_key_secret": "(redacted)" } } },
    });
    let page = shown(&configz);
    for text in ["/etc/ccm.toml", "applied", "changed: controllers, route.period", "started: route", "(redacted)"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("stopped:"), "{page}");
    let problem = json!({ "last_reload": { "outcome": "rejected", "at": "T", "problems": [{ "key": "log.level", "message": "is wrong" }] } });
    let page = shown(&problem);
    assert!(page.contains("log.level: is wrong") && page.contains("The changed configuration was rejected"), "{page}");
}
