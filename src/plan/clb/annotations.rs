//! Annotations of Services: what they mean, whether they are right, and the page that documents them.
//!
//! Start with [`parse`]. Everything follows from [`TABLE`]. An empty value means that the annotation is not set.

mod reference;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use table::NLB_ONLY;
pub use table::{Name, TABLE};
use values::Parsed;

pub use self::reference::reference_page;
use super::Problem;
use super::model::{ListenerField, ListenerFields, Protocol};
use crate::plan::inputs::ServiceView;

/// Start of the keys that are in use today.
pub const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
/// Start of the keys that were in use before September 2019 and still count where the current one is absent.
pub const LEGACY_PREFIX: &str = "service.beta.kubernetes.io/alicloud-loadbalancer-";

/// Most tags that a user may ask for: a load balancer has 20 at most, of which two mark the owner.
pub const MOST_USER_TAGS: usize = 18;

/// How an annotation is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// After [`PREFIX`], or [`LEGACY_PREFIX`].
    Suffix(&'static str),
    /// All of it.
    Whole(&'static str),
}

/// What values an annotation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything; that it is set decides.
    AnyValue,
    /// Up to 255 characters without spaces at the ends.
    Text,
    /// A name of a load balancer.
    LoadBalancerName,
    /// An IP address.
    Address,
    /// A host name as the API server takes it in a status.
    HostName,
    /// Path of a health check.
    HealthPath,
    /// Host header of a health check.
    HealthDomain,
    /// Exactly this value; any other counts as not set.
    Exactly(&'static str),
    /// `on`; any other value is off.
    Switch,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// One of these, in upper or lower case.
    AnyCase(&'static [&'static str]),
    /// A whole number.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// What 0 means.
        zero: Zero,
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
    /// `https:443,http:80`
    ProtocolPorts,
    /// `80:443`
    ForwardPorts,
    /// `rsp-a:443,rsp-b:80`
    ServerGroupPorts,
    /// `domain:certificate,domain:certificate`
    DomainExtensions,
}

/// What 0 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// Not set.
    Unset,
    /// A value like others.
    Value,
    /// Not set; and -520 is the backend's port.
    BackendPort,
}

/// What an annotation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// Which controller looks after the Service.
    Routing,
    /// The instance.
    Instance,
    /// Listeners.
    Listeners,
    /// One attribute of listeners; see [`ListenerField::protocols`].
    Field(ListenerField),
    /// Server groups and backends.
    Backends,
}

/// When an annotation has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It decides whether the Service is ours at all.
    Routing,
    /// Always, on load balancers of ours and of users.
    Always,
    /// Only when the load balancer is made.
    Creation,
    /// When the load balancer is made; later it is only compared.
    Immutable,
    /// On load balancers of ours, and on those of users with `force-override-listeners`.
    Listener,
    /// Always, with every change of nodes and endpoints.
    Backend,
}

impl Scope {
    /// The letter of the reference page.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Routing => "-",
            Self::Always => "A",
            Self::Creation => "C",
            Self::Immutable => "I",
            Self::Listener => "L",
            Self::Backend => "B",
        }
    }
}

/// One annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub name: Name,
    /// How it is spelled.
    pub key: Key,
    /// What values it takes.
    pub kind: Kind,
    /// What holds without it; empty if nothing is sent.
    pub default: &'static str,
    /// What it is about.
    pub applies: Applies,
    /// When it has an effect.
    pub scope: Scope,
    /// What a change does to a load balancer that exists.
    pub update: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Entry {
    /// The whole key in its current spelling.
    #[must_use]
    pub fn full_key(&self) -> String {
        match self.key {
            Key::Suffix(suffix) => format!("{PREFIX}{suffix}"),
            Key::Whole(key) => key.to_owned(),
        }
    }

    /// Key and value as given. The current spelling wins whenever it is present, even if it is empty.
    fn find<'a>(&self, service: &'a ServiceView) -> Option<(&'a str, &'a str)> {
        let get = |key: &str| service.annotations.get_key_value(key).map(|(k, v)| (k.as_str(), v.as_str()));
        get(&self.full_key()).or_else(|| match (self.key, self.name) {
            (Key::Whole(_), _) | (_, Name::Type | Name::TunnelType) => None,
            (Key::Suffix(suffix), _) => get(&format!("{LEGACY_PREFIX}{suffix}")),
        })
    }
}

/// The annotations of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Valid values that are not empty, spelled as the API spells them.
    values: BTreeMap<Name, String>,
    /// Keys as given, for messages; also of those with an empty value.
    keys: BTreeMap<Name, String>,
    /// Protocols of ports; the first entry of a port wins.
    pub protocol_ports: BTreeMap<u16, Protocol>,
    /// HTTP ports and the HTTPS ports to which they redirect.
    pub forward_ports: BTreeMap<u16, u16>,
    /// Server groups of users, by port.
    pub group_ports: BTreeMap<u16, String>,
    /// Certificates by domain; `None` if the annotation is absent.
    pub domain_extensions: Option<BTreeMap<String, String>>,
    /// Tags of users.
    pub tags: BTreeMap<String, String>,
    /// Labels that a node must have.
    pub backend_labels: BTreeMap<String, String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What has no effect.
    pub warnings: Vec<Problem>,
}

impl Annotations {
    /// A value, unless it is unset, empty or wrong.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<&str> {
        self.values.get(&name).map(String::as_str)
    }

    /// A value, as [`Annotations::get`].
    #[must_use]
    pub fn text(&self, name: Name) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// The value of a number, as [`Annotations::get`].
    #[must_use]
    pub fn integer(&self, name: Name) -> Option<i64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    /// Whether an annotation has this value.
    #[must_use]
    pub fn is(&self, name: Name, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// Whether an annotation is there and says something.
    #[must_use]
    pub fn is_stated(&self, name: Name) -> bool {
        match name {
            Name::ProtocolPort => !self.protocol_ports.is_empty(),
            Name::ForwardPort => !self.forward_ports.is_empty(),
            Name::VgroupPort => !self.group_ports.is_empty(),
            Name::BackendLabel => !self.backend_labels.is_empty(),
            Name::AdditionalResourceTags => !self.tags.is_empty(),
            Name::DomainExtensions => self.domain_extensions.is_some(),
            _ => self.values.contains_key(&name),
        }
    }

    /// The key as the user wrote it, or else its current spelling.
    #[must_use]
    pub fn key(&self, name: Name) -> String {
        self.keys.get(&name).cloned().unwrap_or_else(|| entry(name).full_key())
    }

    /// Attributes of listeners of this protocol, as far as annotations set them.
    #[must_use]
    pub fn listener_fields(&self, protocol: Protocol) -> ListenerFields {
        TABLE
            .iter()
            .filter_map(|entry| match entry.applies {
                Applies::Field(field) if field.protocols().contains(&protocol) => Some((field, self.text(entry.name)?)),
                _ => None,
            })
            .collect()
    }

    /// A message about one of them.
    pub(crate) fn complaint(&self, name: Name, allowed: impl Into<String>) -> Problem {
        Problem {
            field: self.key(name),
            given: self.text(name).unwrap_or_else(|| "set".to_owned()),
            allowed: allowed.into(),
        }
    }

    fn keep(&mut self, name: Name, parsed: Parsed) {
        match parsed {
            Parsed::Unset => {}
            Parsed::Text(text) => {
                self.values.insert(name, text);
            }
            Parsed::Protocols(ports) => self.protocol_ports = ports,
            Parsed::Forwards(ports) => self.forward_ports = ports,
            Parsed::Groups(ports) => self.group_ports = ports,
            Parsed::Pairs(pairs) if name == Name::BackendLabel => self.backend_labels = pairs,
            Parsed::Pairs(pairs) if name == Name::DomainExtensions => self.domain_extensions = Some(pairs),
            Parsed::Pairs(pairs) => self.tags = pairs,
        }
    }
}

/// The table's entry of an annotation.
#[must_use]
pub fn entry(name: Name) -> &'static Entry {
    // Names are made by the table, in its order.
    &TABLE[name as usize]
}

/// The value of an annotation as given, unless it is absent.
#[must_use]
pub fn raw(service: &ServiceView, name: Name) -> Option<&str> {
    entry(name).find(service).map(|(_, value)| value)
}

/// Reads all annotations, and says everything that is wrong with them.
#[must_use]
pub fn parse(service: &ServiceView) -> Annotations {
    let mut annotations = Annotations::default();
    for entry in TABLE {
        let Some((key, given)) = entry.find(service) else { continue };
        annotations.keys.insert(entry.name, key.to_owned());
        match values::parse(entry.kind, given) {
            Ok(parsed) => annotations.keep(entry.name, parsed),
            Err(allowed) => {
                annotations.problems.push(Problem { field: key.to_owned(), given: given.to_owned(), allowed });
            }
        }
    }
    annotations.warnings = unknown(service);
    annotations
}

/// Keys under our prefixes that nobody, or only network load balancers, know.
fn unknown(service: &ServiceView) -> Vec<Problem> {
    let known: BTreeSet<&str> = TABLE
        .iter()
        .filter_map(|entry| match entry.key {
            Key::Suffix(suffix) => Some(suffix),
            Key::Whole(_) => None,
        })
        .collect();
    let ours = |key: &'_ str| -> Option<String> {
        [PREFIX, LEGACY_PREFIX].iter().find_map(|prefix| key.strip_prefix(prefix)).map(str::to_owned)
    };
    service
        .annotations
        .iter()
        .filter_map(|(key, given)| {
            let suffix = ours(key)?;
            if known.contains(suffix.as_str()) {
                return None;
            }
            let allowed = if NLB_ONLY.contains(&suffix.as_str()) {
                "only network load balancers have this; it has no effect here"
            } else {
                "no such annotation is known; it has no effect"
            };
            Some(Problem { field: key.clone(), given: given.clone(), allowed: allowed.to_owned() })
        })
        .collect()
}
