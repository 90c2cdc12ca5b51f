//! Where each setting of a load balancer comes from.

use super::annotations::{AnnotationKey, AnnotationName, Annotations, Applies, Entry};
use super::management::ManagementLevel;
use super::settings::ServiceSettings;
use crate::plan::inputs::ServiceView;
use crate::plan::setting::{SettingOrigin, SettingSource};

/// What holds where no annotation speaks: of which annotation, what, and what decides.
pub(crate) type Otherwise<N> = (N, Option<String>, SettingSource);

/// Every setting that says something, in the order of the manual.
pub(crate) fn origins<N: AnnotationName>(
    service: &ServiceView,
    annotations: &Annotations<N>,
    otherwise: &[Otherwise<N>],
) -> Vec<SettingOrigin> {
    let origin = |entry: &Entry<N>| {
        let (AnnotationKey::Suffix(setting) | AnnotationKey::CurrentSuffix(setting) | AnnotationKey::Whole(setting)) =
            entry.key;
        let (value, source) = if annotations.is_stated(entry.name) {
            let key = annotations.key(entry.name);
            (service.annotations.get(&key)?.clone(), SettingSource::Annotation(key))
        } else {
            let said = otherwise.iter().find(|(name, value, _)| *name == entry.name && value.is_some());
            said.and_then(|(_, value, source)| Some((value.clone()?, source.clone())))?
        };
        (!value.is_empty()).then_some(SettingOrigin { setting, value, source, help: entry.help })
    };
    let is_setting = |entry: &&Entry<N>| !matches!(entry.applies, Applies::Routing);
    N::TABLE.iter().filter(is_setting).filter_map(origin).collect()
}

/// What all products have where no annotation speaks.
pub(crate) fn common<N: AnnotationName>(settings: &ServiceSettings, ports: &[String]) -> Vec<Otherwise<N>> {
    let backends = if settings.service.eni_backends { "eni" } else { "ecs" };
    vec![
        (N::BACKEND_TYPE, Some(backends.to_owned()), SettingSource::Configuration("service.eni_backends")),
        (N::PROTOCOL_PORT, Some(ports.join(",")), SettingSource::Spec("spec.ports")),
        (N::MANAGE, Some(ManagementLevel::VALUES[0].to_owned()), SettingSource::Default),
    ]
}

/// The value of a place that is not chosen before the load balancer is created.
pub(crate) const NOT_CHOSEN_YET: &str = "chosen when it is made";

/// `on` or `off`.
pub(crate) fn switch(on: bool) -> Option<String> {
    Some(if on { "on" } else { "off" }.to_owned())
}
