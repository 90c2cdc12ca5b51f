//! Values of annotations, each kind's grammar in one function. Errors say what is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::plan::loadbalancer::problem::ProblemKind;

/// Most tags that a user may ask for: a load balancer has 20 at most, of which two mark the owner.
pub const MOST_USER_TAGS: usize = 18;

/// What values an annotation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Anything: who handles the Service.
    AnyValue,
    /// Any text, such as an id; the cloud decides.
    Text,
    /// Any value turns it on, even `off` or `false`.
    Presence,
    /// A name of a load balancer: letters, digits and these marks.
    LoadBalancerName {
        /// How many characters it needs.
        least: usize,
        /// How many it may have.
        most: usize,
        /// What it may have besides letters and digits.
        marks: &'static [&'static str],
    },
    /// An IP address.
    Address,
    /// A host name as the API server takes it in a status.
    HostName,
    /// Path of a health check.
    HealthPath,
    /// Host header of a health check; the text stands for the backend's address.
    HealthDomain(&'static str),
    /// `on` or `off`, in upper or lower case; how the API spells these two.
    Switch([&'static str; 2]),
    /// The same, where the official controller takes any other value than this for off.
    LooseSwitch(&'static str),
    /// One of these; any other counts as the last.
    OneOfOrLast(&'static [&'static str]),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// One of these, or one that the vendor has added since.
    OneOfGrowing(&'static [&'static str]),
    /// One of these, in upper or lower case.
    AnyCase(&'static [&'static str]),
    /// A whole number.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// What 0 means.
        zero: ZeroMeans,
    },
    /// `acl-a,acl-b`
    AclIds,
    /// 1 to 200 letters, digits and the like.
    Cookie,
    /// `http_2xx,http_3xx`
    HttpCodes,
    /// `key=value,key=value`, keys and values of cloud tags.
    Tags,
    /// `key=value,key=value`, labels of nodes.
    Labels,
    /// `sg-a,sg-b`, at most so many.
    Ids {
        /// How many there may be.
        most: usize,
        /// Whether an empty list means none of them; otherwise it is as good as absent.
        empties: bool,
    },
    /// `zone:vsw-a,zone:vsw-b`, each perhaps with a private address and an elastic one.
    ZoneMaps,
    /// `https:443,http:80`, with these protocols.
    ProtocolPorts(&'static [&'static str]),
    /// The same, in upper or lower case.
    AnyCaseProtocolPorts(&'static [&'static str]),
    /// `80-400:80`
    PortRanges,
    /// `80:443`
    ForwardPorts,
    /// `rsp-a:443,rsp-b:80`
    ServerGroupPorts,
    /// `domain:certificate,domain:certificate`
    DomainExtensions,
}

/// What 0 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroMeans {
    /// Not set.
    Unset,
    /// A value like others.
    Value,
    /// Not set; and -520 is the backend's port.
    BackendPort,
}

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

/// A value, or `None` if it is as good as absent.
pub(super) fn parse(kind: ValueKind, given: &str) -> Result<Option<Value>, ProblemKind> {
    let given = given.trim();
    match (given, kind) {
        // An empty list of domains is a list: it removes them all.
        ("", ValueKind::DomainExtensions) => Ok(Some(Value::Pairs(BTreeMap::new()))),
        // So is one of ids.
        ("", ValueKind::Ids { empties: true, .. }) => Ok(Some(Value::Text(String::new()))),
        ("", _) => Ok(None),
        (_, ValueKind::Integer { zero: ZeroMeans::Unset | ZeroMeans::BackendPort, .. }) if given.parse() == Ok(0) => {
            Ok(None)
        }
        (_, ValueKind::Tags) => tags(given)
            .map(some_pairs)
            .map_err(|rule| ProblemKind::Invalid(given.to_owned(), format!("must be {rule}"))),
        (_, ValueKind::Labels) => labels(given).map(some_pairs).ok_or_else(|| refusal(kind, given)),
        _ => read(kind, given).map(Some).ok_or_else(|| refusal(kind, given)),
    }
}

/// What is wrong with a value that the kind does not allow.
fn refusal(kind: ValueKind, given: &str) -> ProblemKind {
    match kind {
        ValueKind::OneOf(values) | ValueKind::AnyCase(values) => ProblemKind::Unsupported(given.to_owned(), values),
        ValueKind::Switch(_) => ProblemKind::Unsupported(given.to_owned(), &ON_OFF),
        _ => ProblemKind::Invalid(given.to_owned(), format!("must be {}", allowed(kind))),
    }
}

/// What the user should know of a value that is right: what of it does not count, or counts otherwise than it seems to.
pub(super) fn remark(kind: ValueKind, given: &str, value: Option<&Value>) -> Option<ProblemKind> {
    let given = given.trim();
    let is = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(given));
    let counts = |as_what: &str| Some(format!("must be {}; it counts as {as_what}", allowed(kind)));
    let rule = match kind {
        _ if given.is_empty() => None,
        _ if is_undocumented(kind, given) => return Some(ProblemKind::Unverified(given.to_owned(), allowed(kind))),
        ValueKind::Presence if is(&["off", "false", "no"]) => {
            Some("must be removed to be off; any value is on".to_owned())
        }
        ValueKind::LooseSwitch(on) if !is(&["on", "off", "false", on]) => counts("off"),
        ValueKind::OneOfOrLast(known) if !known.contains(&given) => counts(known.last()?),
        ValueKind::Integer { zero: ZeroMeans::Unset | ZeroMeans::BackendPort, .. } if value.is_none() => {
            counts("not set")
        }
        _ => Some(cut(kind, given, value).join("; ")).filter(|cut| !cut.is_empty()),
    };
    rule.map(|rule| ProblemKind::Invalid(given.to_owned(), rule))
}

/// Whether the vendor may take a value that is none of what its pages list. Of names, they do not say which letters.
fn is_undocumented(kind: ValueKind, given: &str) -> bool {
    match kind {
        ValueKind::OneOfGrowing(known) => !known.contains(&given),
        ValueKind::LoadBalancerName { .. } => !given.is_ascii(),
        _ => false,
    }
}

/// What of a list does not count, or is not what it seems to be.
fn cut(kind: ValueKind, given: &str, value: Option<&Value>) -> Vec<&'static str> {
    let counted = match (kind, value) {
        (ValueKind::Tags | ValueKind::Labels, None) => Some(0),
        (_, Some(Value::Ports(ports))) => Some(ports.len()),
        (_, Some(Value::Pairs(pairs))) => Some(pairs.len()),
        _ => None,
    };
    let is_list = counted.is_some() || matches!(kind, ValueKind::AclIds | ValueKind::Ids { .. });
    let has_two = |item: &&str| item.matches('=').count() > 1;
    let is_labelled = matches!(kind, ValueKind::Tags | ValueKind::Labels);
    let rules = [
        (
            is_list && given.contains([';', '\u{ff1b}', '\u{ff0c}', '\u{3001}']),
            "items are separated by `,`, and by nothing else",
        ),
        (is_labelled && items(given).iter().any(has_two), "text after a second `=` is dropped"),
        (
            kind == ValueKind::Tags && items(given).iter().any(|item| !item.contains('=')),
            "an item without `=` is a key without a value",
        ),
        (
            counted.is_some_and(|counted| counted < items(given).len()),
            "of items with the same key one counts, and of those without a key none",
        ),
    ];
    rules.into_iter().filter_map(|(applies, rule)| applies.then_some(rule)).collect()
}

/// A value that is not empty, as the kind's grammar has it.
fn read(kind: ValueKind, given: &str) -> Option<Value> {
    let one_of = |values: &[&str], same: fn(&str, &str) -> bool| {
        values.iter().find(|value| same(value, given)).map(|value| (*value).to_owned())
    };
    let if_it = |fits: bool| fits.then(|| given.to_owned());
    let text = match kind {
        ValueKind::ProtocolPorts(known) => return ports(given, |protocol| known.contains(&protocol)),
        ValueKind::AnyCaseProtocolPorts(known) => {
            return ports(given, |protocol| known.iter().any(|known| known.eq_ignore_ascii_case(protocol)));
        }
        ValueKind::PortRanges => return ports(given, |range| port_range(range).is_some()),
        ValueKind::ServerGroupPorts => return ports(given, |_| true),
        ValueKind::ForwardPorts => {
            return pairs(given, |from, to| Some((port(from)?, port(to)?.to_string()))).map(Value::Ports);
        }
        ValueKind::DomainExtensions => {
            return pairs(given, |domain, certificate| Some((domain.to_owned(), certificate.to_owned())))
                .map(Value::Pairs);
        }
        ValueKind::AnyValue
        | ValueKind::Presence
        | ValueKind::Text
        | ValueKind::OneOfGrowing(_)
        | ValueKind::Tags
        | ValueKind::Labels => if_it(true),
        ValueKind::OneOfOrLast(known) => {
            one_of(known, |value, given| value == given).or(known.last().map(|last| (*last).to_owned()))
        }
        ValueKind::LoadBalancerName { least, most, marks } => if_it(is_name(given, least..=most, marks)),
        ValueKind::Address => given.parse::<IpAddr>().ok().map(|address| address.to_string()),
        ValueKind::HostName => if_it(is_host_name(given)),
        ValueKind::HealthPath => if_it(given.starts_with('/') && fits(given, 80)),
        ValueKind::HealthDomain(backend) => {
            if_it(given == backend || (fits(given, 80) && given.bytes().all(is_of_domain)))
        }
        ValueKind::Switch([on, off]) => {
            one_of(&ON_OFF, str::eq_ignore_ascii_case).map(|value| if value == "on" { on } else { off }.to_owned())
        }
        ValueKind::LooseSwitch(on) => Some(is_on(on, given).to_string()),
        ValueKind::Ids { most, .. } => {
            let ids: BTreeSet<&str> = items(given).into_iter().collect();
            (1..=most).contains(&ids.len()).then(|| ids.into_iter().collect::<Vec<_>>().join(","))
        }
        ValueKind::ZoneMaps => zone_maps(given).map(|_| items(given).join(",")),
        ValueKind::OneOf(values) => one_of(values, |value, given| value == given),
        ValueKind::AnyCase(values) => one_of(values, str::eq_ignore_ascii_case),
        ValueKind::Integer { min, max, zero } => integer(given, min, max, zero),
        ValueKind::AclIds => Some(distinct(given)).filter(|ids| !ids.is_empty()),
        ValueKind::Cookie => if_it(given.chars().count() <= 200 && given.chars().all(|c| c.is_ascii_graphic())),
        ValueKind::HttpCodes => {
            let known = items(given).iter().all(|code| HTTP_CODES.contains(code));
            Some(distinct(given)).filter(|codes| known && !codes.is_empty())
        }
    };
    text.map(Value::Text)
}

/// Whether a value of a [`ValueKind::LooseSwitch`] is on.
fn is_on(on: &str, given: &str) -> bool {
    let given = given.trim();
    ["on", on].iter().any(|word| word.eq_ignore_ascii_case(given))
}

/// A list by name; one without items is as good as absent.
fn some_pairs(pairs: BTreeMap<String, String>) -> Option<Value> {
    (!pairs.is_empty()).then_some(Value::Pairs(pairs))
}

/// A number; zero says nothing.
pub(in crate::plan) const fn number(min: i64, max: i64) -> ValueKind {
    ValueKind::Integer { min, max, zero: ZeroMeans::Unset }
}

/// A number, or zero.
pub(in crate::plan) const fn number_or_zero(max: i64) -> ValueKind {
    ValueKind::Integer { min: 0, max, zero: ZeroMeans::Value }
}

/// A switch, as most of the API spells it.
pub(in crate::plan) const ON_OFF: [&str; 2] = ["on", "off"];
const HTTP_CODES: [&str; 4] = ["http_2xx", "http_3xx", "http_4xx", "http_5xx"];

/// What a kind allows, in words.
pub(super) fn allowed(kind: ValueKind) -> String {
    let list = |values: &[&str]| values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    match kind {
        ValueKind::AnyValue => "any value".to_owned(),
        ValueKind::Text => "any text".to_owned(),
        ValueKind::Presence => "any value, even `off` or `false`".to_owned(),
        ValueKind::LoadBalancerName { least, most, marks } => {
            format!("{least} to {most} letters, digits and {}, the first a letter", list(marks))
        }
        ValueKind::Address => "an IP address".to_owned(),
        ValueKind::HostName => "a host name of at most 253 small letters, digits, `-` and `.`".to_owned(),
        ValueKind::HealthPath => "a path of at most 80 characters that starts with `/`".to_owned(),
        ValueKind::HealthDomain(backend) => format!("`{backend}`, or a host name of at most 80 characters"),
        ValueKind::Switch(_) | ValueKind::LooseSwitch("on") => "`on` or `off`, in upper or lower case".to_owned(),
        ValueKind::LooseSwitch(on) => format!("`on` or `off`, in upper or lower case, or `{on}`"),
        ValueKind::OneOfOrLast(values) => list(values),
        ValueKind::Ids { most, empties } => {
            let none = if empties { "; empty for none" } else { "" };
            if most == 1 { format!("an id{none}") } else { format!("up to {most} ids separated by commas{none}") }
        }
        ValueKind::ZoneMaps => {
            "`zone:vswitch,zone:vswitch`, each zone once; in full `zone:vswitch:address:eip-id:ipv6-address`, the last three \
             optional"
                .to_owned()
        }
        ValueKind::AnyCaseProtocolPorts(known) => {
            format!("{}, in upper or lower case", allowed(ValueKind::ProtocolPorts(known)))
        }
        ValueKind::PortRanges => {
            "`first-last:port,first-last:port`, ports from 1 to 65535, the last above the first".to_owned()
        }
        ValueKind::OneOf(values) | ValueKind::OneOfGrowing(values) => list(values),
        ValueKind::AnyCase(values) => format!("{}, in upper or lower case", list(values)),
        ValueKind::Integer { min, max, zero } => {
            let more = if zero == ZeroMeans::BackendPort { ", or -520" } else { "" };
            format!("a whole number from {min} to {max}{more}")
        }
        ValueKind::AclIds => "ids separated by commas".to_owned(),
        ValueKind::Cookie => "1 to 200 visible ASCII characters".to_owned(),
        ValueKind::HttpCodes => format!("a list of {}, separated by commas", list(&HTTP_CODES)),
        ValueKind::Tags => format!(
            "up to {MOST_USER_TAGS} `key=value,key=value`; keys up to 64 characters, not starting with `aliyun` or `acs:`, values \
             up to 128; no `http://`"
        ),
        ValueKind::Labels => "`key=value,key=value`".to_owned(),
        ValueKind::ProtocolPorts(known) => {
            let known: Vec<_> = known.iter().map(|protocol| format!("`{protocol}`")).collect();
            let (last, others) =
                known.split_last().map_or((String::new(), String::new()), |(l, o)| (l.clone(), o.join(", ")));
            format!("`protocol:port,protocol:port`, with {others} or {last}")
        }
        ValueKind::ForwardPorts => "`port:port,port:port`".to_owned(),
        ValueKind::ServerGroupPorts => "`group:port,group:port`".to_owned(),
        ValueKind::DomainExtensions => "`domain:certificate,domain:certificate`".to_owned(),
    }
}

/// Whether a text has at most so many characters.
fn fits(given: &str, most: usize) -> bool {
    given.chars().count() <= most
}

/// First and last port of a range such as `80-400`.
pub(in crate::plan) fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (port(first)?, port(last)?);
    (first < last).then_some((first, last))
}

/// Zones as [zone, vSwitch, private address, elastic address, IPv6 address]; the last three can be empty.
pub(in crate::plan) fn zone_maps(given: &str) -> Option<Vec<[&str; 5]>> {
    let mut seen = BTreeSet::new();
    let zone = |item| {
        // An IPv6 address has colons of its own.
        let mut parts = str::splitn(item, 5, ':').map(str::trim);
        let mut part = || parts.next().unwrap_or_default();
        let [zone, vswitch, address, elastic, ipv6] = [part(), part(), part(), part(), part()];
        let is_address = address.is_empty() || address.parse::<Ipv4Addr>().is_ok();
        let is_ipv6 = ipv6.is_empty() || ipv6.parse::<Ipv6Addr>().is_ok();
        let is_right = !zone.is_empty() && !vswitch.is_empty() && is_address && is_ipv6 && seen.insert(zone);
        is_right.then_some([zone, vswitch, address, elastic, ipv6])
    };
    let zones: Option<Vec<_>> = items(given).into_iter().map(zone).collect();
    zones.filter(|zones| !zones.is_empty())
}

fn is_of_domain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')
}

fn is_name(given: &str, length: RangeInclusive<usize>, marks: &[&str]) -> bool {
    let may_follow = |c: char| c.is_alphanumeric() || marks.iter().any(|mark| mark.starts_with(c));
    length.contains(&given.chars().count()) && given.starts_with(char::is_alphabetic) && given.chars().all(may_follow)
}

/// Labels of small letters, digits and dashes, as in RFC 1123; the API server refuses anything else.
fn is_host_name(given: &str) -> bool {
    let is_label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    given.len() <= 253 && given.split('.').all(is_label)
}

fn integer(given: &str, min: i64, max: i64, zero: ZeroMeans) -> Option<String> {
    let number: i64 = given.parse().ok()?;
    let backend_port = zero == ZeroMeans::BackendPort && number == -520;
    ((min..=max).contains(&number) || backend_port).then(|| number.to_string())
}

/// Items of a list; empty ones, as after a last comma, are nothing.
fn items(given: &str) -> Vec<&str> {
    given.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// The items of a list, each once.
fn distinct(given: &str) -> String {
    let mut seen = BTreeSet::new();
    items(given).into_iter().filter(|item| seen.insert(*item)).collect::<Vec<_>>().join(",")
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
            return Err(format!("{} (tag {key:?})", allowed(ValueKind::Tags)));
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    if tags.len() > MOST_USER_TAGS { Err(allowed(ValueKind::Tags)) } else { Ok(tags) }
}
