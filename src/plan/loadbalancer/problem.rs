//! What is wrong with a Service.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

/// One thing that is wrong with a Service, or with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProblem {
    /// The annotation key or field path, such as `spec.ports[1].protocol`.
    pub field: String,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

/// What can be wrong with a field, in the words of the field errors of Kubernetes (`k8s.io/apimachinery`,
/// `util/validation/field`), which users know from the API server. The last three are no errors there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The value, and the rule that it breaks: `must be ...`.
    Invalid(String, String),
    /// The value is none of these.
    Unsupported(String, &'static [&'static str]),
    /// The field is empty, and who needs it.
    Required(String),
    /// The field may not be set, and why.
    Forbidden(String),
    /// The value has no effect, and why.
    Ignored(String, String),
    /// The value is none of what the vendor documents, and may still be right.
    Unverified(String, String),
    /// About no value: a sentence.
    State(String),
}

impl ServiceProblem {
    /// A value, and the rule that it breaks: `must be ...`.
    pub fn invalid(field: impl Into<String>, given: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ProblemKind::Invalid(given.into(), rule.into()) }
    }

    /// The protocol of a port that no listener has.
    pub fn unsupported_protocol(source: &str, given: &str) -> Self {
        Self { field: format!("{source}.protocol"), kind: ProblemKind::Unsupported(given.to_owned(), &["TCP", "UDP"]) }
    }

    /// An empty field, and what needs it.
    pub fn required(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ProblemKind::Required(why.into()) }
    }

    /// A field that may not be set, and why.
    pub fn forbidden(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ProblemKind::Forbidden(why.into()) }
    }

    /// A value without effect, and why.
    pub fn ignored(field: impl Into<String>, given: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ProblemKind::Ignored(given.into(), why.into()) }
    }

    /// A sentence about something that is no value of a user.
    pub fn state(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { field: subject.into(), kind: ProblemKind::State(text.into()) }
    }

    /// The field of a problem that lists nodes as what was given.
    pub const ABOUT_NODES: &str = "spec.providerID of nodes";

    /// Whether it is about nodes, which the user of the Service did not write.
    pub fn is_about_nodes(&self) -> bool {
        self.field == Self::ABOUT_NODES || self.field.starts_with("node ") || self.field.starts_with("nodes ")
    }
}

impl fmt::Display for ServiceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.kind)
    }
}

/// Characters of a value that a message repeats. An event has room for 1024 bytes, and the reason follows the value.
const SHOWN: usize = 200;

fn start(given: &str) -> Cow<'_, str> {
    match given.char_indices().nth(SHOWN) {
        Some((end, _)) => Cow::Owned(format!("{}...", &given[..end])),
        None => Cow::Borrowed(given),
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(given, rule) => write!(f, "Invalid value: {:?}: {rule}", start(given)),
            Self::Unsupported(given, values) => {
                write!(f, "Unsupported value: {:?}: supported values: {}", start(given), quoted(values))
            }
            Self::Required(why) => write!(f, "Required value: {why}"),
            Self::Forbidden(why) => write!(f, "Forbidden: {why}"),
            Self::Ignored(given, why) => write!(f, "Ignored value: {:?}: {why}", start(given)),
            Self::Unverified(given, documented) => {
                write!(f, "Unverified value: {:?}: the vendor documents {documented}; the cloud decides", start(given))
            }
            Self::State(text) => f.write_str(text),
        }
    }
}

/// `"a", "b"`
pub fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
}

/// Where a listener is: UDP shares the number of a port with another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerPlace {
    /// The number of the Service's port.
    pub port: u16,
    /// Whether it is UDP.
    pub is_udp: bool,
}

/// What a problem is about. That stays in the cloud as it is, and everything else goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemScope {
    /// Whether it is about the load balancer itself: none is made, and no attribute is changed.
    pub load_balancer: bool,
    /// The listeners that it is about: none is made, changed or deleted.
    pub listeners: BTreeSet<ListenerPlace>,
    /// Listeners of which it is about one setting: none is made without it, and those that are there keep theirs.
    pub settings: BTreeSet<ListenerPlace>,
    /// Whether it is about which nodes are in server groups: those that are there stay.
    pub nodes: bool,
    /// Whether it is about which backends are in server groups: none is added or removed.
    pub groups: bool,
}

/// A problem, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopedProblem {
    /// What is wrong.
    pub problem: ServiceProblem,
    /// What it is about.
    pub scope: ProblemScope,
}

/// Everything that is wrong with a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopedProblems(Vec<ScopedProblem>);

impl FromIterator<ScopedProblem> for ScopedProblems {
    fn from_iter<I: IntoIterator<Item = ScopedProblem>>(problems: I) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl ScopedProblems {
    /// Adds a problem about the load balancer.
    pub fn load_balancer(&mut self, problem: ServiceProblem) {
        self.add(problem, ProblemScope { load_balancer: true, ..ProblemScope::default() });
    }

    /// Adds a problem about these listeners.
    pub fn listeners(&mut self, places: impl IntoIterator<Item = ListenerPlace>, problem: ServiceProblem) {
        self.add(problem, ProblemScope { listeners: places.into_iter().collect(), ..ProblemScope::default() });
    }

    /// Adds a problem about one setting of these listeners.
    pub fn settings(&mut self, places: impl IntoIterator<Item = ListenerPlace>, problem: ServiceProblem) {
        self.add(problem, ProblemScope { settings: places.into_iter().collect(), ..ProblemScope::default() });
    }

    /// Adds a problem about what is left out without it.
    pub fn left_out(&mut self, problem: ServiceProblem) {
        self.add(problem, ProblemScope::default());
    }

    fn add(&mut self, problem: ServiceProblem, scope: ProblemScope) {
        self.0.push(ScopedProblem { problem, scope });
    }

    /// All of them, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &ScopedProblem> {
        self.0.iter()
    }

    /// Whether the load balancer itself stays as it is.
    pub fn withhold_load_balancer(&self) -> bool {
        self.0.iter().any(|problem| problem.scope.load_balancer)
    }

    /// Whether a listener stays as it is at one of the places that `is_there` says.
    pub fn withhold_listener(&self, mut is_there: impl FnMut(&ListenerPlace) -> bool) -> bool {
        self.0.iter().any(|problem| problem.scope.listeners.iter().any(&mut is_there))
    }

    /// Whether no listener is made at a place.
    pub fn withhold_new_listener(&self, place: ListenerPlace) -> bool {
        self.0
            .iter()
            .any(|ScopedProblem { scope, .. }| scope.listeners.contains(&place) || scope.settings.contains(&place))
    }

    /// Whether it is not known which nodes are to be backends.
    pub fn withhold_nodes(&self) -> bool {
        self.0.iter().any(|problem| problem.scope.nodes)
    }

    /// Whether server groups stay as they are.
    pub fn withhold_groups(&self) -> bool {
        self.0.iter().any(|problem| problem.scope.groups)
    }
}

/// A suggestion, if a candidate is close enough to have been meant.
pub fn did_you_mean<'c>(given: &str, candidates: impl Iterator<Item = &'c str>) -> Option<String> {
    let given: String = given.chars().take(60).flat_map(char::to_lowercase).collect();
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&plain(&given), &plain(candidate));
    let near = candidates.map(|candidate| (distance(candidate), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1));
    near.min().map(|(_, candidate)| format!("did you mean {candidate:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_read_as_the_field_errors_of_kubernetes() {
        let told = [
            ServiceProblem::invalid("port", "70000", "must be a whole number from 1 to 65535"),
            ServiceProblem::unsupported_protocol("spec.ports[0]", "SCTP"),
            ServiceProblem::required("cert-id", "HTTPS listeners need a certificate"),
            ServiceProblem::forbidden("ip", "it needs address-type: intranet"),
            ServiceProblem::ignored("spec", "slb.s1.small", "the instance is charged by `PayByCLCU`"),
            ServiceProblem::state("load balancer lb-1", "it is kept"),
        ];
        expect_test::expect![[r#"
            port: Invalid value: "70000": must be a whole number from 1 to 65535
            spec.ports[0].protocol: Unsupported value: "SCTP": supported values: "TCP", "UDP"
            cert-id: Required value: HTTPS listeners need a certificate
            ip: Forbidden: it needs address-type: intranet
            spec: Ignored value: "slb.s1.small": the instance is charged by `PayByCLCU`
            load balancer lb-1: it is kept"#]]
        .assert_eq(&told.map(|problem| problem.to_string()).join("\n"));
    }

    #[test]
    fn a_long_value_leaves_room_for_what_is_wrong_with_it() {
        let long = "10.0.0.0/24,".repeat(191);
        let problem = ServiceProblem::invalid("spec.loadBalancerSourceRanges", &long, "must have at most 190 blocks");
        let told = problem.to_string();
        assert!(told.len() < 300 && told.ends_with("...\": must have at most 190 blocks"), "{told}");
    }
}
