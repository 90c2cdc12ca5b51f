//! What `/configz` serves: the running configuration and the result of the last reload, without secrets.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::clock;
use crate::config::watch::Reload;
use crate::config::{Loaded, TimeSpan};
use crate::reload::ConfigChange;
use crate::telemetry::http::StatusPages;
use crate::telemetry::metrics;

pub(super) struct ConfigPage {
    /// The running configuration, as it is at any time.
    pub(super) loaded: Arc<RwLock<Loaded>>,
    since: String,
    last_reload: Option<Value>,
}

impl ConfigPage {
    pub(super) fn new(loaded: Loaded, pages: &StatusPages) -> Self {
        let shared = Arc::new(RwLock::new(loaded.clone()));
        let mut page = Self { loaded: shared, since: String::new(), last_reload: None };
        page.apply(loaded);
        page.publish(pages);
        page
    }

    pub(super) fn apply(&mut self, loaded: Loaded) {
        let now = clock::now();
        metrics::config_applied(now.as_second());
        self.since = now.to_string();
        *self.loaded.write() = loaded;
    }

    pub(super) fn record(&mut self, outcome: &Reload<ConfigChange>, pages: &StatusPages) {
        let mut entry = json!(outcome);
        entry["at"] = json!(clock::now().to_string());
        if !matches!(outcome, Reload::Rejected { .. }) {
            entry["hash"] = json!(self.loaded.read().hash);
        }
        self.last_reload = Some(entry);
        self.publish(pages);
    }

    fn publish(&self, pages: &StatusPages) {
        let loaded = self.loaded.read();
        let mut config = json!(loaded.config);
        write_durations(&mut config);
        let page = json!({
            "file": loaded.path,
            "hash": loaded.hash,
            "since": self.since,
            "last_reload": self.last_reload,
            "config": config,
        });
        *pages.configz.write() = format!("{page:#}\n");
    }
}

/// Writes lengths of time as the file has them, not as seconds and nanoseconds.
fn write_durations(value: &mut Value) {
    match value {
        Value::Object(fields) => match Duration::deserialize(&*fields) {
            Ok(length) => *value = json!(TimeSpan(length)),
            Err(_) => fields.values_mut().for_each(write_durations),
        },
        Value::Array(items) => items.iter_mut().for_each(write_durations),
        _ => {}
    }
}
