//! Values of annotations, each kind's grammar in one function. Errors say what is allowed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Kind, MOST_USER_TAGS, Zero};

/// A value that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Spelled as the API spells it.
    Text(String),
    /// A list by port.
    Ports(BTreeMap<u16, String>),
    /// Tags, labels, domains.
    Pairs(BTreeMap<String, String>),
}

/// A value, or `None` if it is as good as absent. The error says what is allowed.
pub(super) fn parse(kind: Kind, given: &str) -> Result<Option<Value>, String> {
    match (given, kind) {
        // An empty list of domains is a list: it removes them all.
        ("", Kind::DomainExtensions) => Ok(Some(Value::Pairs(BTreeMap::new()))),
        ("", _) => Ok(None),
        (_, Kind::Integer { zero: Zero::Unset | Zero::BackendPort, .. }) if given.parse() == Ok(0) => Ok(None),
        (_, Kind::Exactly(value)) => Ok((given == value).then(|| Value::Text(value.to_owned()))),
        (_, Kind::Tags) => tags(given).map(some_pairs),
        (_, Kind::Labels) => labels(given).map(some_pairs).ok_or_else(|| allowed(kind)),
        _ => read(kind, given).map(Some).ok_or_else(|| allowed(kind)),
    }
}

/// A value that is not empty, as the kind's grammar has it.
fn read(kind: Kind, given: &str) -> Option<Value> {
    let one_of = |values: &[&str], same: fn(&str, &str) -> bool| {
        values.iter().find(|value| same(value, given)).map(|value| (*value).to_owned())
    };
    let if_it = |fits: bool| fits.then(|| given.to_owned());
    let text = match kind {
        Kind::ProtocolPorts(known) => return ports(given, |protocol| known.contains(&protocol)),
        Kind::ServerGroupPorts => return ports(given, |_| true),
        Kind::ForwardPorts => {
            return pairs(given, |from, to| Some((port(from)?, port(to)?.to_string()))).map(Value::Ports);
        }
        Kind::DomainExtensions => {
            return pairs(given, |domain, certificate| Some((domain.to_owned(), certificate.to_owned())))
                .map(Value::Pairs);
        }
        Kind::AnyValue | Kind::Exactly(_) | Kind::Tags | Kind::Labels => if_it(true),
        Kind::Text => if_it(fits(given, 255)),
        Kind::LoadBalancerName => if_it(is_load_balancer_name(given)),
        Kind::Address => given.parse::<IpAddr>().ok().map(|address| address.to_string()),
        Kind::HostName => if_it(is_host_name(given)),
        Kind::HealthPath => if_it(given.starts_with('/') && fits(given, 80)),
        Kind::HealthDomain => if_it(given == "$_ip" || (fits(given, 80) && given.bytes().all(is_of_domain))),
        Kind::Switch => Some((given == "on").to_string()),
        Kind::OneOf(values) => one_of(values, |value, given| value == given),
        Kind::AnyCase(values) => one_of(values, str::eq_ignore_ascii_case),
        Kind::Integer { min, max, zero } => integer(given, min, max, zero),
        Kind::AclIds => Some(items(given).join(",")).filter(|ids| !ids.is_empty()),
        Kind::Cookie => if_it(given.chars().count() <= 200 && given.chars().all(|c| c.is_ascii_graphic())),
        Kind::HttpCodes => if_it(given.split(',').all(|code| HTTP_CODES.contains(&code))),
    };
    text.map(Value::Text)
}

/// A list by name; one without items is as good as absent.
fn some_pairs(pairs: BTreeMap<String, String>) -> Option<Value> {
    (!pairs.is_empty()).then_some(Value::Pairs(pairs))
}

const HTTP_CODES: [&str; 4] = ["http_2xx", "http_3xx", "http_4xx", "http_5xx"];

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
        Kind::HttpCodes => format!("a list of {}, separated by commas", list(&HTTP_CODES)),
        Kind::Tags => format!(
            "`key=value,key=value`: keys of 1 to 64, values of at most 128 characters, keys not starting with `aliyun` or \
             `acs:`, no `http://`; at most {MOST_USER_TAGS} tags"
        ),
        Kind::Labels => "`key=value,key=value`".to_owned(),
        Kind::ProtocolPorts(known) => {
            let known: Vec<_> = known.iter().map(|protocol| format!("`{protocol}`")).collect();
            let (last, others) =
                known.split_last().map_or((String::new(), String::new()), |(l, o)| (l.clone(), o.join(", ")));
            format!("`protocol:port,protocol:port`, with {others} or {last}")
        }
        Kind::ForwardPorts => "`port:port,port:port`".to_owned(),
        Kind::ServerGroupPorts => "`group:port,group:port`".to_owned(),
        Kind::DomainExtensions => "`domain:certificate,domain:certificate`".to_owned(),
    }
}

/// Whether a text has no spaces around it and at most so many characters.
fn fits(given: &str, most: usize) -> bool {
    given.trim() == given && given.chars().count() <= most
}

fn is_of_domain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

fn is_load_balancer_name(given: &str) -> bool {
    let may_follow = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    fits(given, 80) && given.starts_with(char::is_alphabetic) && given.chars().all(may_follow)
}

/// Labels of small letters, digits and dashes, as in RFC 1123; the API server refuses anything else.
fn is_host_name(given: &str) -> bool {
    let is_label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    given.len() <= 253 && given.split('.').all(is_label)
}

fn integer(given: &str, min: i64, max: i64, zero: Zero) -> Option<String> {
    let number: i64 = given.parse().ok()?;
    let backend_port = zero == Zero::BackendPort && number == -520;
    ((min..=max).contains(&number) || backend_port).then(|| number.to_string())
}

/// Items of a list; empty ones, as after a last comma, are nothing.
fn items(given: &str) -> Vec<&str> {
    given.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

/// Ports with what is stated of each, before a colon.
fn ports(given: &str, known: impl Fn(&str) -> bool) -> Option<Value> {
    pairs(given, |text, number| known(text).then_some((port(number)?, text.to_owned()))).map(Value::Ports)
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
fn tags(given: &str) -> Result<BTreeMap<String, String>, String> {
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
    if tags.len() > MOST_USER_TAGS { Err(allowed(Kind::Tags)) } else { Ok(tags) }
}
