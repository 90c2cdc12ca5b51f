//! Settings that make sense together: what the cloud refuses of one feature keeps no other from changing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// What the parameters of a feature begin with. Any other parameter is a feature of its own.
const FEATURES: &[&[&str]] = &[
    &["HealthCheck", "HealthyThreshold", "UnhealthyThreshold"],
    &["StickySession", "Cookie"],
    &["Acl"],
    &["ConnectionDrain"],
    &["CaEnabled", "CaCertificate"],
    &["Alpn"],
    &["ProxyProtocol", "Ppv2"],
];

/// Values of attributes, by field.
type Fields<F> = BTreeMap<F, String>;

fn feature(parameter: &str) -> &str {
    let family = FEATURES.iter().find(|family| family.iter().any(|prefix| parameter.starts_with(prefix)));
    family.map_or(parameter, |family| family[0])
}

/// What is `wanted` of the features of which an attribute `changes`.
pub(crate) fn changed<'a, F: Copy + Display + Ord + 'a>(
    wanted: &Fields<F>,
    changes: impl IntoIterator<Item = &'a F>,
) -> Fields<F> {
    let changes: Vec<String> = changes.into_iter().map(F::to_string).collect();
    let changes: BTreeSet<&str> = changes.iter().map(|name| feature(name)).collect();
    let is_one = |(field, _): &(&F, &String)| changes.contains(feature(&field.to_string()));
    wanted.iter().filter(is_one).map(|(field, value)| (*field, value.clone())).collect()
}

/// Splits a change of attributes in two, each with what it changes. `None` if one feature alone changes.
pub(crate) fn halves<F: Copy + Display + Ord>(changed: &Fields<F>) -> Option<[(Fields<F>, String); 2]> {
    let names: Vec<String> = changed.keys().map(F::to_string).collect();
    let features: BTreeSet<&str> = names.iter().map(|name| feature(name)).collect();
    let first: BTreeSet<&str> = features.iter().take(features.len() / 2).copied().collect();
    let (one, other): (Fields<F>, Fields<F>) =
        changed.clone().into_iter().partition(|(field, _)| first.contains(feature(&field.to_string())));
    let told = |fields: Fields<F>| {
        let list: Vec<String> = fields.iter().map(|(field, value)| format!("{field} -> {value}")).collect();
        (fields, list.join(", "))
    };
    (features.len() > 1).then(|| [one, other].map(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_never_split() {
        let fields = |list: &[(&'static str, &str)]| -> Fields<&'static str> {
            list.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
        };
        let acl = fields(&[("AclStatus", "on"), ("AclId", "acl-1"), ("AclType", "white")]);
        let scheduler = fields(&[("Scheduler", "wlc")]);
        let both = acl.clone().into_iter().chain(scheduler.clone()).collect();
        let [first, second] = halves(&both).unwrap();
        assert_eq!(first, (acl.clone(), "AclId -> acl-1, AclStatus -> on, AclType -> white".to_owned()));
        assert_eq!(second, (scheduler, "Scheduler -> wlc".to_owned()));
        assert_eq!((halves(&acl), halves(&fields(&[]))), (None, None));
    }
}
