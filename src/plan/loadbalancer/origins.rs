//! Where each setting of a load balancer comes from.

use super::cloud::Observed;
use std::collections::BTreeMap;

use super::annotations::{AnnotationName, Applies, Entry, parse};
use super::desired::{Desired, ProductModel};
use super::management::ManagementLevel;
use super::settings::ServiceSettings;
use crate::plan::inputs::ServiceView;
use crate::plan::setting::{Otherwise, SettingOrigin, SettingSource};

/// What the configuration says of an annotation that is not set.
pub(crate) fn configured<N: AnnotationName>(name: N, value: Option<String>) -> Otherwise<N> {
    (name, value, name.entry().file.map_or(SettingSource::Default, SettingSource::Configuration))
}

/// Tags as their annotation states them; `None` for none.
pub(crate) fn tags(tags: &BTreeMap<String, String>) -> Option<String> {
    let stated: Vec<_> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!stated.is_empty()).then(|| stated.join(","))
}

/// Every setting that says something, in the order of the manual, beside what the load balancer has.
pub(crate) fn origins<M: ProductModel>(
    service: &ServiceView,
    settings: &ServiceSettings,
    desired: &Desired<M>,
    observed: &Observed<M>,
) -> Vec<SettingOrigin> {
    let (annotations, found) =
        (parse::<M::Name>(service), observed.instance.as_ref().map(M::found).unwrap_or_default());
    let mut otherwise = M::otherwise(service, settings, desired);
    let backends = if settings.service.eni_backends { "eni" } else { "ecs" };
    otherwise.push(configured(M::Name::BACKEND_TYPE, Some(backends.to_owned())));
    otherwise.push(configured(M::Name::MANAGE, Some(ManagementLevel::VALUES[0].to_owned())));
    let origin = |entry: &Entry<M::Name>| {
        let (value, source) = if annotations.is_stated(entry.name) {
            let key = annotations.key(entry.name);
            (service.annotations.get(&key)?.clone(), SettingSource::Annotation(key))
        } else {
            let said = otherwise.iter().find(|(name, value, _)| *name == entry.name && value.is_some());
            said.and_then(|(_, value, source)| Some((value.clone()?, source.clone())))?
        };
        // What counts is the value as it was read, without blanks for instance.
        let counts = annotations.get(entry.name).unwrap_or(&value);
        let has = found.iter().find(|(name, has)| *name == entry.name && !has.eq_ignore_ascii_case(counts));
        let found = has.map(|(_, has)| has.clone());
        (!value.is_empty()).then_some(SettingOrigin {
            setting: entry.key.short(),
            value,
            source,
            found,
            help: entry.help,
        })
    };
    let is_setting = |entry: &&Entry<M::Name>| !matches!(entry.applies, Applies::Routing);
    M::Name::TABLE.iter().filter(is_setting).filter_map(origin).collect()
}

/// The value of a place that is not chosen before the load balancer is created.
pub(crate) const NOT_CHOSEN_YET: &str = "chosen when it is made";
