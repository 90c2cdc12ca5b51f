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

/// Fields whose values differ, in order.
fn differing<F: Copy + Ord>(one: &Fields<F>, other: &Fields<F>) -> BTreeSet<F> {
    let both: BTreeSet<F> = one.keys().chain(other.keys()).copied().collect();
    both.into_iter().filter(|field| one.get(field) != other.get(field)).collect()
}

/// Gives a field the value that it has in `source`, or none.
fn copy<F: Copy + Ord>(field: F, source: &Fields<F>, target: &mut Fields<F>) {
    match source.get(&field) {
        Some(value) => drop(target.insert(field, value.clone())),
        None => drop(target.remove(&field)),
    }
}

/// Makes a change, from what was `there` to what is `sent`, one from what an earlier change has left to the same.
pub(crate) fn keep_changes<F: Copy + Ord>(
    [there, sent]: [&mut Fields<F>; 2],
    [earlier_there, earlier_sent]: [&Fields<F>; 2],
) {
    for field in differing(earlier_there, earlier_sent) {
        copy(field, earlier_sent, there);
        copy(field, earlier_sent, sent);
    }
}

fn feature(parameter: &str) -> &str {
    let family = FEATURES.iter().find(|family| family.iter().any(|prefix| parameter.starts_with(prefix)));
    family.map_or(parameter, |family| family[0])
}

/// Splits a change of attributes, from what is `there` to what is `sent`, in two that leave each other's features as they are.
/// Each comes with what it changes. `None` if one feature alone changes.
pub(crate) fn halves<F: Copy + Display + Ord>(there: &Fields<F>, sent: &Fields<F>) -> Option<[(Fields<F>, String); 2]> {
    let changed: Vec<(F, String)> =
        differing(there, sent).into_iter().map(|field| (field, feature(&field.to_string()).to_owned())).collect();
    let features: BTreeSet<&str> = changed.iter().map(|(_, feature)| feature.as_str()).collect();
    let first: BTreeSet<&str> = features.iter().take(features.len() / 2).copied().collect();
    let part = |is_first: bool| {
        let (mut fields, mut reasons) = (there.clone(), Vec::new());
        for (field, _) in changed.iter().filter(|(_, feature)| first.contains(feature.as_str()) == is_first) {
            let shown = |fields: &Fields<F>| fields.get(field).cloned().unwrap_or_else(|| "unset".to_owned());
            reasons.push(format!("{field} {} -> {}", shown(there), shown(sent)));
            copy(*field, sent, &mut fields);
        }
        (fields, reasons.join(", "))
    };
    (features.len() > 1).then(|| [true, false].map(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&'static str, &str)]) -> Fields<&'static str> {
        list.iter().map(|(field, value)| (*field, (*value).to_owned())).collect()
    }

    #[test]
    fn a_feature_is_never_split_and_each_half_leaves_the_other_as_it_is() {
        let there = fields(&[("AclStatus", "off"), ("Scheduler", "rr"), ("IdleTimeout", "9")]);
        let acl = [("AclStatus", "on"), ("AclId", "acl-1"), ("AclType", "white")];
        let sent = fields(&[&acl[..], &[("Scheduler", "wlc"), ("IdleTimeout", "9")]].concat());
        let [(first, why), (second, _)] = halves(&there, &sent).unwrap();
        assert_eq!(first, fields(&[&acl[..], &[("Scheduler", "rr"), ("IdleTimeout", "9")]].concat()));
        assert_eq!(why, "AclId unset -> acl-1, AclStatus off -> on, AclType unset -> white");
        assert_eq!(second, fields(&[("AclStatus", "off"), ("Scheduler", "wlc"), ("IdleTimeout", "9")]));
        assert_eq!((halves(&there, &first), halves(&there, &there)), (None, None));
        let (mut now, mut later) = (there.clone(), second);
        keep_changes([&mut now, &mut later], [&there, &first]);
        assert_eq!((now, later), (first, sent));
    }
}
