//! What the page shows, gathered from where it is known.

use jiff::Timestamp;
use serde_json::Value;

use crate::alibaba::RateUse;
use crate::clock;
use crate::cluster::ElectionStatus;
use crate::controllers::Context;
use crate::telemetry::activity::{self, RecentActivity};
use crate::telemetry::alarms::{ObjectReport, SyncState, WithheldReport};
use crate::telemetry::health::HealthCheck;
use crate::telemetry::http::StatusPages;
use crate::telemetry::metrics::{self, ControllerGauges};

/// Everything on the page.
#[derive(Clone, Debug, Default)]
pub(super) struct Overview {
    pub(super) at: Timestamp,
    pub(super) checks: Vec<HealthCheck>,
    /// `None` before the first connection and between two.
    pub(super) session: Option<SessionFacts>,
    pub(super) objects: Vec<ObjectReport>,
    pub(super) withheld: Vec<WithheldReport>,
    pub(super) controllers: Vec<(String, ControllerGauges)>,
    pub(super) activity: RecentActivity,
    pub(super) config: ConfigFacts,
}

/// What a session knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SessionFacts {
    /// Of the cloud.
    pub(super) region: String,
    /// Of the cluster's instances.
    pub(super) vpc_id: String,
    /// The id of the cluster, as configured.
    pub(super) cluster_id: String,
    /// Whether this replica leads.
    pub(super) leads: bool,
    /// `None` if replicas elect no leader.
    pub(super) election: Option<ElectionStatus>,
    /// Of actions that are in use.
    pub(super) rate_limits: Vec<RateUse>,
}

/// The running configuration, as `/configz` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfigFacts {
    pub(super) file: String,
    pub(super) hash: String,
    pub(super) since: String,
    /// When the file was last read again, what came of it, and in detail.
    pub(super) last_reload: Option<(String, String, Vec<String>)>,
    /// All keys, without secrets.
    pub(super) text: String,
}

impl Overview {
    pub(super) fn gather(pages: &StatusPages, session: Option<&Context>) -> Self {
        let alarms = pages.health.alarms();
        Self {
            at: clock::now(),
            checks: pages.health.checks(),
            session: session.map(SessionFacts::of),
            objects: alarms.objects(),
            withheld: alarms.withheld(),
            controllers: metrics::controllers().into_iter().filter(|(_, gauges)| gauges.is_running).collect(),
            activity: activity::recent(),
            config: ConfigFacts::read(&serde_json::from_str(&pages.configz.read()).unwrap_or_default()),
        }
    }

    /// As the metric counts them.
    pub(super) fn out_of_sync(&self) -> usize {
        self.objects.iter().filter(|object| object.state != SyncState::Retrying).count()
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.checks.is_empty() && self.checks.iter().all(|check| check.is_ready)
    }
}

impl SessionFacts {
    fn of(Context { cluster, cloud, fence, location, config, .. }: &Context) -> Self {
        Self {
            region: cloud.region(),
            vpc_id: location.vpc_id.clone(),
            cluster_id: config.borrow().cloud.cluster_id.clone(),
            leads: fence.leads(),
            election: cluster.status().election,
            rate_limits: cloud.rates_in_use(),
        }
    }
}

impl ConfigFacts {
    fn read(configz: &Value) -> Self {
        let last = &configz["last_reload"];
        let last_reload = last.is_object().then(|| (time(&last["at"]), text(&last["outcome"]), details(last)));
        let text_of = |name: &str| text(&configz[name]);
        Self {
            file: text_of("file"),
            hash: text_of("hash"),
            since: time(&configz["since"]),
            last_reload,
            text: if configz.is_null() { String::new() } else { format!("{:#}", configz["config"]) },
        }
    }
}

/// What changed, or what is wrong with the file.
fn details(last_reload: &Value) -> Vec<String> {
    let items = |name: &str| last_reload[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines = Vec::new();
    for what in ["changed", "started", "stopped", "restarted"] {
        let names: Vec<String> = items(what).iter().map(text).collect();
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    lines.extend(items("problems").iter().map(|problem| match text(&problem["key"]) {
        key if key.is_empty() => text(&problem["message"]),
        key => format!("{key}: {}", text(&problem["message"])),
    }));
    lines
}

/// A time, to the second.
fn time(value: &Value) -> String {
    let text = text(value);
    text.parse::<Timestamp>().map_or(text, |at| at.strftime("%F %T UTC").to_string())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
