//! Values of annotations, each kind's grammar in one function. Errors say what is allowed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Kind, MOST_USER_TAGS, Zero};
use crate::plan::clb::model::Protocol;

/// A value that is right.
pub(super) enum Parsed {
    /// As good as absent.
    Unset,
    /// Spelled as the API spells it.
    Text(String),
    /// `protocol-port`
    Protocols(BTreeMap<u16, Protocol>),
    /// `forward-port`
    Forwards(BTreeMap<u16, u16>),
    /// `vgroup-port`
    Groups(BTreeMap<u16, String>),
    /// Tags, labels, domains.
    Pairs(BTreeMap<String, String>),
}

pub(super) fn parse(kind: Kind, given: &str) -> Result<Parsed, String> {
    if given.is_empty() {
        // An empty list of domains is a list: it removes them all.
        return Ok(if kind == Kind::DomainExtensions { Parsed::Pairs(BTreeMap::new()) } else { Parsed::Unset });
    }
    let text = |text: &str| Ok(Parsed::Text(text.to_owned()));
    match kind {
        Kind::AnyValue => text(given),
        Kind::Text if given.trim() == given && given.chars().count() <= 255 => text(given),
        Kind::Text => Err(allowed(kind)),
        Kind::LoadBalancerName if is_load_balancer_name(given) => text(given),
        Kind::Address => {
            given.parse::<IpAddr>().map_or_else(|_| Err(allowed(kind)), |address| text(&address.to_string()))
        }
        Kind::HostName if is_host_name(given) => text(given),
        Kind::HealthPath if given.starts_with('/') && short(given) => text(given),
        Kind::HealthDomain if given == "$_ip" || (short(given) && given.bytes().all(is_of_domain)) => text(given),
        Kind::LoadBalancerName | Kind::HostName | Kind::HealthPath | Kind::HealthDomain => Err(allowed(kind)),
        Kind::Exactly(value) if given == value => text(value),
        Kind::Exactly(_) => Ok(Parsed::Unset),
        Kind::Switch => text(if given == "on" { "true" } else { "false" }),
        Kind::OneOf(values) if values.contains(&given) => text(given),
        Kind::OneOf(_) => Err(allowed(kind)),
        Kind::AnyCase(values) => values
            .iter()
            .find(|value| value.eq_ignore_ascii_case(given))
            .map_or_else(|| Err(allowed(kind)), |v| text(v)),
        Kind::Integer { min, max, zero } => integer(given, min, max, zero).ok_or_else(|| allowed(kind)),
        Kind::AclIds => match items(given).as_slice() {
            [] => Err(allowed(kind)),
            ids => text(&ids.join(",")),
        },
        Kind::Cookie if given.chars().count() <= 200 && given.chars().all(|c| c.is_ascii_graphic()) => text(given),
        Kind::Cookie => Err(allowed(kind)),
        Kind::HttpCodes => {
            let known = ["http_2xx", "http_3xx", "http_4xx", "http_5xx"];
            if given.split(',').all(|code| known.contains(&code)) { text(given) } else { Err(allowed(kind)) }
        }
        Kind::Tags => tags(given),
        Kind::Labels => labels(given).map(Parsed::Pairs).ok_or_else(|| allowed(kind)),
        Kind::ProtocolPorts => pairs(given, |protocol, number| Some((port(number)?, Protocol::parse(protocol)?)))
            .map(Parsed::Protocols)
            .ok_or_else(|| allowed(kind)),
        Kind::ForwardPorts => {
            pairs(given, |from, to| Some((port(from)?, port(to)?))).map(Parsed::Forwards).ok_or_else(|| allowed(kind))
        }
        Kind::ServerGroupPorts => pairs(given, |id, number| Some((port(number)?, id.to_owned())))
            .map(Parsed::Groups)
            .ok_or_else(|| allowed(kind)),
        Kind::DomainExtensions => pairs(given, |domain, certificate| Some((domain.to_owned(), certificate.to_owned())))
            .map(Parsed::Pairs)
            .ok_or_else(|| allowed(kind)),
    }
}

/// What a kind allows, in words.
pub(super) fn allowed(kind: Kind) -> String {
    let list = |values: &[&str]| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    match kind {
        Kind::AnyValue => "any value".to_owned(),
        Kind::Text => "text of at most 255 characters without spaces around it".to_owned(),
        Kind::LoadBalancerName => "1 to 80 letters, digits and `.`, `_`, `-`, `/`, the first a letter".to_owned(),
        Kind::Address => "an IP address".to_owned(),
        Kind::HostName => "a host name of at most 253 small letters, digits, `-` and `.`".to_owned(),
        Kind::HealthPath => "a path of at most 80 characters that starts with `/`".to_owned(),
        Kind::HealthDomain => "`$_ip`, or a host name of at most 80 characters".to_owned(),
        Kind::Exactly(value) => format!("`{value}`; anything else is off"),
        Kind::Switch => "`on`; anything else is off".to_owned(),
        Kind::OneOf(values) => list(values),
        Kind::AnyCase(values) => format!("{}, in upper or lower case", list(values)),
        Kind::Integer { min, max, zero: Zero::Unset | Zero::Value } => format!("a whole number from {min} to {max}"),
        Kind::Integer { min, max, zero: Zero::BackendPort } => format!("a whole number from {min} to {max}, or -520"),
        Kind::AclIds => "ids separated by commas".to_owned(),
        Kind::Cookie => "1 to 200 visible ASCII characters".to_owned(),
        Kind::HttpCodes => "a list of `http_2xx`, `http_3xx`, `http_4xx`, `http_5xx`, separated by commas".to_owned(),
        Kind::Tags => format!(
            "`key=value,key=value`: keys of 1 to 64, values of at most 128 characters, keys not starting with `aliyun` or \
             `acs:`, no `http://`; at most {MOST_USER_TAGS} tags"
        ),
        Kind::Labels => "`key=value,key=value`".to_owned(),
        Kind::ProtocolPorts => "`protocol:port,protocol:port`, with `tcp`, `udp`, `http` or `https`".to_owned(),
        Kind::ForwardPorts => "`port:port,port:port`".to_owned(),
        Kind::ServerGroupPorts => "`group:port,group:port`".to_owned(),
        Kind::DomainExtensions => "`domain:certificate,domain:certificate`".to_owned(),
    }
}

fn short(given: &str) -> bool {
    given.trim() == given && given.chars().count() <= 80
}

fn is_of_domain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

fn is_load_balancer_name(given: &str) -> bool {
    let may_follow = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    short(given) && given.starts_with(char::is_alphabetic) && given.chars().all(may_follow)
}

/// Labels of small letters, digits and dashes, as in RFC 1123; the API server refuses anything else.
fn is_host_name(given: &str) -> bool {
    let is_label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    given.len() <= 253 && given.split('.').all(is_label)
}

fn integer(given: &str, min: i64, max: i64, zero: Zero) -> Option<Parsed> {
    let number: i64 = given.parse().ok()?;
    match (number, zero) {
        (0, Zero::Unset | Zero::BackendPort) => Some(Parsed::Unset),
        (-520, Zero::BackendPort) => Some(Parsed::Text("-520".to_owned())),
        _ => (min..=max).contains(&number).then(|| Parsed::Text(number.to_string())),
    }
}

/// Items of a list; empty ones, as after a last comma, are nothing.
fn items(given: &str) -> Vec<&str> {
    given.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// Items of two parts each; the first item with a key wins.
fn pairs<K: Ord, V>(given: &str, item: impl Fn(&str, &str) -> Option<(K, V)>) -> Option<BTreeMap<K, V>> {
    let mut map = BTreeMap::new();
    for text in items(given) {
        let (left, right) = text.split_once(':')?;
        if left.is_empty() || right.is_empty() || right.contains(':') {
            return None;
        }
        let (key, value) = item(left.trim(), right.trim())?;
        map.entry(key).or_insert(value);
    }
    Some(map)
}

/// Text after a second `=` is dropped, a missing `=` is an error.
fn labels(given: &str) -> Option<BTreeMap<String, String>> {
    items(given)
        .into_iter()
        .map(|item| {
            let (key, value) = item.split_once('=')?;
            let value = value.split('=').next().unwrap_or_default();
            (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Text after a second `=` is dropped, a missing `=` means an empty value, the last of several equal keys wins.
fn tags(given: &str) -> Result<Parsed, String> {
    let mut tags = BTreeMap::new();
    for item in items(given) {
        let mut parts = item.split('=');
        let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if key.is_empty() {
            continue;
        }
        let lower = key.to_ascii_lowercase();
        let fits = key.chars().count() <= 64
            && value.chars().count() <= 128
            && !lower.starts_with("aliyun")
            && !lower.starts_with("acs:")
            && !["http://", "https://"].iter().any(|scheme| key.contains(scheme) || value.contains(scheme));
        if !fits {
            return Err(format!("{} (tag {key:?})", allowed(Kind::Tags)));
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    if tags.len() > MOST_USER_TAGS { Err(allowed(Kind::Tags)) } else { Ok(Parsed::Pairs(tags)) }
}
