//! Error codes by meaning, as data. Codes are compared without regard to case: services differ in the capitals of the
//! same code.

use std::sync::LazyLock;

use serde::de::value::{self, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use crate::alibaba::FaultKind::{self, Busy, Exists, Gone, Rejected};
use crate::alibaba::actions::Object;
use crate::alibaba::endpoints::CloudProduct;

/// The codes of `codes.txt` and their kinds.
static CODES: LazyLock<Vec<(String, FaultKind)>> = LazyLock::new(|| read(include_str!("codes.txt")));

/// The codes of `missing.txt` and the objects that they are about.
pub(super) static MISSING: LazyLock<Vec<(String, Object)>> = LazyLock::new(|| read(include_str!("missing.txt")));

/// The lines of a table in lower case, in their order, each with what the heading above it names.
fn read<T: Copy + DeserializeOwned>(table: &str) -> Vec<(String, T)> {
    let (mut section, mut codes) = (None, Vec::new());
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_suffix(':') {
            Some(heading) => section = named(heading),
            None => codes.extend(section.map(|section| (line.to_ascii_lowercase(), section))),
        }
    }
    codes
}

fn named<T: DeserializeOwned>(heading: &str) -> Option<T> {
    let name: StrDeserializer<'_, value::Error> = heading.into_deserializer();
    T::deserialize(name).ok()
}

/// What `codes.txt` says about a code in lower case.
pub(super) fn find(code: &str) -> Option<FaultKind> {
    CODES.iter().find(|(pattern, _)| matches(pattern, code)).map(|(_, kind)| *kind)
}

fn matches(pattern: &str, code: &str) -> bool {
    match pattern.split_once('*') {
        None => code == pattern,
        Some(("", part)) if part.ends_with('*') => code.contains(part.trim_end_matches('*')),
        Some((first, last)) => code.starts_with(first) && code.ends_with(last),
    }
}

/// Whether the call may succeed with new credentials.
pub(in crate::alibaba) fn cured_by_new_credentials(code: &str) -> bool {
    let code = code.trim().to_ascii_lowercase();
    let cured = ["invalidaccesskeyid", "invalidaccesskeyid.*", "invalidsecuritytoken*", "missingsecuritytoken"];
    cured.iter().any(|pattern| matches(pattern, &code))
}

/// General codes that only the message tells apart: (product, code, part of the message, what is missing). They hold for
/// actions that address the missing object.
pub(super) const MESSAGES: &[(CloudProduct, Option<&str>, &str, Object)] = &[
    (CloudProduct::Slb, None, "loadbalancerid does not exist", Object::LoadBalancer),
    (CloudProduct::Slb, Some("InvalidParameter"), "the specified vservergroupid does not exist", Object::ServerGroup),
    (CloudProduct::Slb, None, "the specified resource does not exist", Object::Listener),
    (CloudProduct::Vpc, Some("InvalidRouteEntry"), "not exist", Object::RouteEntry),
];

/// Codes that mean something else for some actions.
pub(super) const BY_ACTION: &[(&str, &[&str], FaultKind)] = &[
    ("Operation.NotAllowed", &["StartLoadBalancerListener", "DeleteLoadBalancerListener"], Busy),
    ("InvalidParameter.Domain", &["CreateDomainExtension"], Exists),
    ("Forbbiden", &["DeleteRouteEntries"], Rejected),
    ("InnerRateLimiting", &[], Busy),
    // Servers leave the groups of network load balancers when their instances are released.
    ("ResourceNotFound.BackendServer", &["RemoveServersFromServerGroup"], Gone),
    ("ResourceNotFound.BackendServer", &["UpdateServerGroupServersAttribute"], Busy),
    ("ResourceInUse.IP", &[], Rejected),
    // A backend is not running, or its interface is being changed: neither says anything about the others.
    ("ObtainIpFail", &["CreateVServerGroup", "AddVServerGroupBackendServers"], Rejected),
    ("IncorrectStatus.Eni", &["AddServersToServerGroup"], Rejected),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        let codes = |table: &'static str| {
            let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.filter(|line| !line.ends_with(':')).count()
        };
        assert_eq!(CODES.len(), codes(include_str!("codes.txt")));
        assert_eq!(MISSING.len(), codes(include_str!("missing.txt")));
        for (code, _) in CODES.iter() {
            assert!(!code.contains([' ', ':']), "{code:?}");
        }
    }
}
