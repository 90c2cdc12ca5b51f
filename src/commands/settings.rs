//! Where the settings of an object come from, as `explain` and `lint` print it.

use std::fmt;

use serde::Serialize;

use crate::config::{self, ConfigSource};
use crate::controllers::registry::CATALOG;
use crate::plan::setting::{SettingOrigin, SettingSource};

/// One setting.
#[derive(Debug, Serialize)]
pub(super) struct SettingLine {
    /// Its annotation without the prefix, or the field.
    setting: &'static str,
    /// What is wanted, as the annotation would say it.
    value: String,
    /// What decides about it.
    from: String,
    /// What there is, if that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    /// What it does.
    pub(super) help: &'static str,
    /// Whether an annotation states it.
    #[serde(skip)]
    pub(super) is_stated: bool,
}

impl SettingLine {
    pub(super) fn of(explained: SettingOrigin, origin: &ConfigSource) -> Self {
        let SettingOrigin { setting, value, source, found, help } = explained;
        let is_stated = matches!(source, SettingSource::Annotation(_));
        let from = match source {
            SettingSource::Annotation(key) => format!("annotation {key}"),
            SettingSource::Spec(field) => field.to_owned(),
            SettingSource::Configuration(key) => match config::stated(origin, &CATALOG, key) {
                Some(place) => format!("{key} in {place}"),
                None => format!("default of {key}"),
            },
            SettingSource::Nodes => "where most nodes are".to_owned(),
            SettingSource::Kubelet => "the kubelet".to_owned(),
            SettingSource::Instance => "the instance".to_owned(),
            SettingSource::OnlyTable => "the only route table of the VPC".to_owned(),
            SettingSource::Default => "default".to_owned(),
        };
        Self { setting, value, from, found, help, is_stated }
    }
}

impl fmt::Display for SettingLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}  ({})", self.setting, self.value, self.from)?;
        match &self.found {
            Some(found) => write!(f, "; the load balancer has {found}"),
            None => Ok(()),
        }
    }
}
