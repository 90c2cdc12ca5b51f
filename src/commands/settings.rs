//! Where the settings of a load balancer come from, as `explain` and `lint` print it.

use std::fmt;

use serde::Serialize;

use crate::config::{self, Origin};
use crate::controllers::registry::CATALOG;
use crate::plan::service::origins::{SettingOrigin, SettingSource};

/// Before the key of the annotation that decides.
const ANNOTATION: &str = "annotation ";

/// One setting.
#[derive(Debug, Serialize)]
pub(super) struct SettingLine {
    /// Its annotation without the prefix.
    setting: &'static str,
    /// What is wanted, as the annotation would say it.
    value: String,
    /// What decides about it.
    from: String,
    /// What it does.
    pub(super) help: &'static str,
}

impl SettingLine {
    pub(super) fn of(found: SettingOrigin, origin: &Origin) -> Self {
        let SettingOrigin { setting, value, source, help } = found;
        let from = match source {
            SettingSource::Annotation(key) => format!("{ANNOTATION}{key}"),
            SettingSource::Spec(field) => field.to_owned(),
            SettingSource::Configuration(key) => match config::stated(origin, &CATALOG, key) {
                Some(place) => format!("{key} in {place}"),
                None => format!("default of {key}"),
            },
            SettingSource::Nodes => "where most nodes are".to_owned(),
            SettingSource::Default => "default".to_owned(),
        };
        Self { setting, value, from, help }
    }

    /// Whether an annotation states it.
    pub(super) fn is_stated(&self) -> bool {
        self.from.starts_with(ANNOTATION)
    }
}

impl fmt::Display for SettingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}  ({})", self.setting, self.value, self.from)
    }
}
