//! Annotations of Services: how they are spelled, what values they take, and the page that documents them.
//!
//! A product brings a table of [`Entry`], one for each annotation that it reads, and an enum of their names, which
//! implements [`AnnotationName`]. Start with [`parse`]. An empty value means that the annotation is not set.

pub mod reference;
#[cfg(test)]
mod tests;
pub mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use self::values::{Value, ValueKind};
use super::problem::{ServiceProblem, did_you_mean};
use crate::plan::inputs::ServiceView;

/// Start of the keys that are in use today.
pub const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
/// Start of the keys that were in use before September 2019 and still count where the current one is absent.
pub const LEGACY_PREFIX: &str = "service.beta.kubernetes.io/alicloud-loadbalancer-";

/// Names a load balancer of the user.
pub const ID: AnnotationKey = AnnotationKey::Suffix("id");
/// Keeps the load balancer when the Service goes.
pub const PRESERVE_ON_DELETE: AnnotationKey = AnnotationKey::Suffix("preserve-lb-on-delete");
/// Manages listeners on a load balancer of the user.
pub const FORCE_OVERRIDE_LISTENERS: AnnotationKey = AnnotationKey::Suffix("force-override-listeners");

/// Names server groups of the user, each for a port.
pub const VGROUP_PORT: AnnotationKey = AnnotationKey::Suffix("vgroup-port");
/// How much of a load balancer is managed.
pub const MANAGE: AnnotationKey = AnnotationKey::Suffix("manage");

/// Whether pods or nodes are attached.
pub(in crate::plan) const BACKEND_TYPE: AnnotationKey = AnnotationKey::Whole("service.beta.kubernetes.io/backend-type");
/// Values of `backend-type`; the official controller takes any other for the last.
pub(in crate::plan) const BACKEND_TYPES: &[&str] = &["eni", "ecs"];

/// How an annotation is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationKey {
    /// After [`PREFIX`], or [`LEGACY_PREFIX`].
    Suffix(&'static str),
    /// After [`PREFIX`] only.
    CurrentSuffix(&'static str),
    /// All of it.
    Whole(&'static str),
}

impl AnnotationKey {
    /// The whole key in its current spelling.
    pub fn full(self) -> String {
        match self {
            Self::Suffix(suffix) | Self::CurrentSuffix(suffix) => format!("{PREFIX}{suffix}"),
            Self::Whole(key) => key.to_owned(),
        }
    }

    /// What differs from other keys: all after [`PREFIX`], or the whole of it.
    pub(super) const fn short(self) -> &'static str {
        match self {
            Self::Suffix(key) | Self::CurrentSuffix(key) | Self::Whole(key) => key,
        }
    }

    /// Key and value as given. The current spelling wins whenever it is present, even if it is empty.
    fn find(self, service: &ServiceView) -> Option<(&str, &str)> {
        let get = |key: &str| {
            let index = service.annotations.find_index(key).ok()?;
            service.annotations.get_indexed(index).map(|(key, value)| (key.as_str(), value.as_str()))
        };
        get(&self.full()).or_else(|| match self {
            Self::Whole(_) | Self::CurrentSuffix(_) => None,
            Self::Suffix(suffix) => get(&format!("{LEGACY_PREFIX}{suffix}")),
        })
    }
}

/// What an annotation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies<F> {
    /// Which controller handles the Service.
    Routing,
    /// The instance.
    Instance,
    /// Listeners.
    Listeners,
    /// One attribute of listeners.
    Field(F),
    /// Server groups and backends.
    Backends,
}

/// When an annotation has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEffective {
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

impl WhenEffective {
    /// The letter of the reference page.
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

/// What holds of a load balancer that exists once an annotation is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// What holds without the annotation; its last value leaves no trace.
    Default,
    /// The last value, until another one is stated.
    Stays,
    /// What the load balancer was made with.
    FixedAtCreation,
}

impl Removed {
    /// What holds unless the row says otherwise: attributes that the vendor keeps stay, as with the official controller.
    pub const fn usual<F>(applies: &Applies<F>, scope: WhenEffective) -> Self {
        match (applies, scope) {
            (_, WhenEffective::Creation | WhenEffective::Immutable) => Self::FixedAtCreation,
            (Applies::Instance | Applies::Field(_), _) => Self::Stays,
            (Applies::Routing | Applies::Listeners | Applies::Backends, _) => Self::Default,
        }
    }

    /// The word of the reference page.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Stays => "stays",
            Self::FixedAtCreation => "fixed",
        }
    }
}

/// One annotation.
#[derive(Clone, Copy, Debug)]
pub struct Entry<N: AnnotationName> {
    /// Which.
    pub name: N,
    /// How it is spelled.
    pub key: AnnotationKey,
    /// What values it takes.
    pub kind: ValueKind,
    /// What holds without it; empty if nothing is sent.
    pub default: &'static str,
    /// The key of the configuration that gives another default.
    pub file: Option<&'static str>,
    /// Whether that default also holds for what exists. Otherwise a load balancer or a listener gets it when the cloud creates
    /// it, and an edit of the file changes nothing that serves.
    pub holds_at_once: bool,
    /// What it is about.
    pub applies: Applies<N::Field>,
    /// When it has an effect.
    pub scope: WhenEffective,
    /// What a change does to a load balancer that exists.
    pub update: &'static str,
    /// What it does.
    pub help: &'static str,
    /// What holds once it is taken away.
    pub removed: Removed,
    /// Where the allowed values are defined: a parameter of the vendor's API, or the program whose rule it is. Empty where
    /// [`AnnotationName::parameter`] gives it, and where any text is allowed.
    pub source: &'static str,
}

/// The names of a product's annotations.
pub trait AnnotationName: Copy + Debug + Ord + 'static {
    /// Attributes of listeners.
    type Field: Copy + Debug + PartialEq + 'static;
    /// Every annotation that the product reads, in the order of the names.
    const TABLE: &'static [Entry<Self>];
    /// Keys after [`PREFIX`] that only other products know, between blanks, and the name of these products.
    const OTHER_PRODUCTS: (&'static str, &'static str);

    // Annotations that all products read. What they say is in the tables.
    /// `AddressType`
    const ADDRESS_TYPE: Self;
    /// `AdditionalResourceTags`
    const ADDITIONAL_RESOURCE_TAGS: Self;
    /// `BackendLabel`
    const BACKEND_LABEL: Self;
    /// `BackendType`
    const BACKEND_TYPE: Self;
    /// `DefaultWeight`
    const DEFAULT_WEIGHT: Self;
    /// `DeleteProtection`
    const DELETE_PROTECTION: Self;
    /// `ForceOverrideListeners`
    const FORCE_OVERRIDE_LISTENERS: Self;
    /// `GracefulShutdown`
    const GRACEFUL_SHUTDOWN: Self;
    /// `Id`
    const ID: Self;
    /// `IgnoreWeightUpdate`
    const IGNORE_WEIGHT_UPDATE: Self;
    /// `Manage`
    const MANAGE: Self;
    /// `ModificationProtection`
    const MODIFICATION_PROTECTION: Self;
    /// `PreserveLbOnDelete`
    const PRESERVE_LB_ON_DELETE: Self;
    /// `RemoveUnscheduledBackend`
    const REMOVE_UNSCHEDULED_BACKEND: Self;
    /// `VgroupPort`
    const VGROUP_PORT: Self;
    /// `Weight`
    const WEIGHT: Self;

    /// Where the name stands in the table.
    fn index(self) -> usize;

    /// The parameter's name in the API.
    fn parameter(field: Self::Field) -> &'static str;

    /// Protocols whose listeners have an attribute.
    fn protocols(field: Self::Field) -> Vec<&'static str>;

    /// The annotation of an attribute, if there is one.
    fn of(field: Self::Field) -> Option<Self> {
        Self::TABLE.iter().find(|entry| entry.applies == Applies::Field(field)).map(|entry| entry.name)
    }

    /// The table's entry.
    fn entry(self) -> &'static Entry<Self> {
        &Self::TABLE[self.index()]
    }

    /// The whole key in its current spelling.
    fn key(self) -> String {
        self.entry().key.full()
    }
}

/// Makes the enum `Name` of a product's annotations, and its table.
macro_rules! annotation_table {
    (
        others: $others:expr;
        $($name:ident: $key:expr, $kind:expr, $default:literal, $applies:expr, $scope:ident, $update:literal, $help:literal
            $(, file: $file:literal)? $(, at_once: $at_once:literal)? $(, removed: $removed:ident)? $(, source: $source:literal)?;)*
    ) => {
        /// An annotation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Name {
            $(#[doc = $help] $name,)*
        }

        impl $crate::plan::loadbalancer::annotations::AnnotationName for Name {
            type Field = Field;
            const TABLE: &'static [Entry] = &[$(Entry {
                name: Name::$name,
                key: $key,
                kind: $kind,
                default: $default,
                file: [$(Some($file),)? None][0],
                holds_at_once: {
                    use $crate::plan::loadbalancer::annotations::Applies;
                    const APPLIES: Applies<Field> = $applies;
                    [$($at_once,)? matches!(APPLIES, Applies::Backends)][0]
                },
                applies: $applies,
                scope: $crate::plan::loadbalancer::annotations::WhenEffective::$scope,
                update: $update,
                help: $help,
                removed: {
                    use $crate::plan::loadbalancer::annotations::{Removed, WhenEffective};
                    [$(Removed::$removed,)? Removed::usual::<Field>(&$applies, WhenEffective::$scope)][0]
                },
                source: [$($source,)? ""][0],
            },)*];
            const OTHER_PRODUCTS: (&'static str, &'static str) = $others;

            const ADDRESS_TYPE: Self = Self::AddressType;
            const ADDITIONAL_RESOURCE_TAGS: Self = Self::AdditionalResourceTags;
            const BACKEND_LABEL: Self = Self::BackendLabel;
            const BACKEND_TYPE: Self = Self::BackendType;
            const DEFAULT_WEIGHT: Self = Self::DefaultWeight;
            const DELETE_PROTECTION: Self = Self::DeleteProtection;
            const FORCE_OVERRIDE_LISTENERS: Self = Self::ForceOverrideListeners;
            const GRACEFUL_SHUTDOWN: Self = Self::GracefulShutdown;
            const ID: Self = Self::Id;
            const IGNORE_WEIGHT_UPDATE: Self = Self::IgnoreWeightUpdate;
            const MANAGE: Self = Self::Manage;
            const MODIFICATION_PROTECTION: Self = Self::ModificationProtection;
            const PRESERVE_LB_ON_DELETE: Self = Self::PreserveLbOnDelete;
            const REMOVE_UNSCHEDULED_BACKEND: Self = Self::RemoveUnscheduledBackend;
            const VGROUP_PORT: Self = Self::VgroupPort;
            const WEIGHT: Self = Self::Weight;

            fn index(self) -> usize {
                // The names are made by the table, in its order.
                self as usize
            }

            fn parameter(field: Field) -> &'static str {
                field.parameter()
            }

            fn protocols(field: Field) -> Vec<&'static str> {
                field.protocols().iter().map(|protocol| protocol.parameter()).collect()
            }
        }
    };
}
pub(in crate::plan) use annotation_table;

/// The annotations of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotations<N> {
    /// Valid values that say something.
    values: BTreeMap<N, Value>,
    /// Keys and values as given, for messages; also of those with an empty value.
    keys: BTreeMap<N, (String, String)>,
    /// What is wrong, with the annotation that is.
    pub problems: Vec<(N, ServiceProblem)>,
    /// What has no effect.
    pub warnings: Vec<ServiceProblem>,
}

impl<N: AnnotationName> Annotations<N> {
    /// A value, spelled as the API spells it, unless it is unset, empty, wrong, or a list by key.
    pub fn get(&self, name: N) -> Option<&str> {
        match self.values.get(&name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A value, as [`Annotations::get`].
    pub fn text(&self, name: N) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// The value of a number, as [`Annotations::get`].
    pub fn integer(&self, name: N) -> Option<i64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    /// Whether an annotation has this value.
    pub fn is(&self, name: N, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    /// A list by name, such as tags and labels; `None` if the annotation is absent or wrong.
    pub fn pairs(&self, name: N) -> Option<&BTreeMap<String, String>> {
        match self.values.get(&name) {
            Some(Value::Pairs(pairs)) => Some(pairs),
            _ => None,
        }
    }

    /// A list by port, in order; the first entry of a port wins.
    pub fn ports(&self, name: N) -> impl Iterator<Item = (u16, &str)> {
        let ports = match self.values.get(&name) {
            Some(Value::Ports(ports)) => Some(ports),
            _ => None,
        };
        ports.into_iter().flatten().map(|(port, text)| (*port, text.as_str()))
    }

    /// What a list by port says of a port.
    pub fn at_port(&self, name: N, port: u16) -> Option<&str> {
        self.ports(name).find(|(stated, _)| *stated == port).map(|(_, text)| text)
    }

    /// Whether an annotation is there and says something.
    pub fn is_stated(&self, name: N) -> bool {
        self.values.contains_key(&name)
    }

    /// Whether an annotation has a value that makes no sense.
    pub fn is_wrong(&self, name: N) -> bool {
        self.problems.iter().any(|(wrong, _)| *wrong == name)
    }

    /// The key as the user wrote it, or else its current spelling.
    pub fn key(&self, name: N) -> String {
        self.keys.get(&name).map_or_else(|| name.key(), |(key, _)| key.clone())
    }

    /// One of them breaks a rule: `must be ...`.
    pub fn invalid(&self, name: N, rule: impl Into<String>) -> ServiceProblem {
        ServiceProblem::invalid(self.key(name), self.given(name), rule)
    }

    /// One of them has no effect.
    pub fn ignored(&self, name: N, why: impl Into<String>) -> ServiceProblem {
        ServiceProblem::ignored(self.key(name), self.given(name), why)
    }

    fn given(&self, name: N) -> &str {
        self.keys.get(&name).map_or("", |(_, given)| given)
    }
}

/// The value of an annotation as given, unless it is absent.
pub fn raw(service: &ServiceView, key: AnnotationKey) -> Option<&str> {
    key.find(service).map(|(_, value)| value)
}

/// What the annotation of this key does, in either spelling; `None` if the product knows no such annotation.
pub fn help<N: AnnotationName>(key: &str) -> Option<String> {
    let is_it = |entry: &&Entry<N>| match entry.key {
        AnnotationKey::Suffix(suffix) => {
            [PREFIX, LEGACY_PREFIX].iter().any(|prefix| key.strip_prefix(prefix) == Some(suffix))
        }
        AnnotationKey::CurrentSuffix(_) | AnnotationKey::Whole(_) => entry.key.full() == key,
    };
    let Entry { help, update, .. } = N::TABLE.iter().find(is_it)?;
    Some(format!("{help} A change of it: {update}."))
}

/// Reads all annotations, and says everything that is wrong with them.
pub fn parse<N: AnnotationName>(service: &ServiceView) -> Annotations<N> {
    let (mut values, mut keys, mut problems) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut warnings = unknown::<N>(service);
    for entry in N::TABLE {
        let Some((key, given)) = entry.key.find(service) else { continue };
        keys.insert(entry.name, (key.to_owned(), given.to_owned()));
        match values::parse(entry.kind, given) {
            Ok(value) => {
                let remark = values::remark(entry.kind, given, value.as_ref());
                warnings.extend(remark.map(|kind| ServiceProblem { field: key.to_owned(), kind }));
                values.extend(value.map(|value| (entry.name, value)));
            }
            Err(kind) => problems.push((entry.name, ServiceProblem { field: key.to_owned(), kind })),
        }
    }
    Annotations { values, keys, problems, warnings }
}

/// Keys under our prefixes that the product does not know; those of other products in one line.
fn unknown<N: AnnotationName>(service: &ServiceView) -> Vec<ServiceProblem> {
    let known: BTreeSet<&str> = N::TABLE
        .iter()
        .filter_map(|entry| match entry.key {
            AnnotationKey::Suffix(suffix) | AnnotationKey::CurrentSuffix(suffix) => Some(suffix),
            AnnotationKey::Whole(_) => None,
        })
        .collect();
    let (of_others, products) = N::OTHER_PRODUCTS;
    let (mut foreign, mut found) = (Vec::new(), Vec::new());
    for (key, given) in &service.annotations {
        let suffix = [PREFIX, LEGACY_PREFIX].iter().find_map(|prefix| key.strip_prefix(prefix));
        let Some(suffix) = suffix.filter(|suffix| !known.contains(suffix)) else { continue };
        if of_others.split_whitespace().any(|other| other == suffix) {
            foreign.push((key.as_str(), given.as_str()));
            continue;
        }
        let near = did_you_mean(suffix, known.iter().copied()).map_or(String::new(), |near| format!("; {near}"));
        found.push(ServiceProblem::ignored(key, given, format!("no such annotation is known{near}")));
    }
    if !foreign.is_empty() {
        let (keys, values): (Vec<_>, Vec<_>) = foreign.into_iter().unzip();
        found.push(ServiceProblem::ignored(keys.join(", "), values.join(", "), format!("only {products} have this")));
    }
    found
}
