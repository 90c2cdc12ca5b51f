//! What is wrong with a Service.

use std::collections::BTreeSet;
use std::fmt;

/// One thing that is wrong with a Service, or with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProblem {
    /// The annotation key or field path, such as `spec.ports[1].protocol`.
    pub field: String,
    /// What was given.
    pub given: String,
    /// What is allowed, or what to do.
    pub allowed: String,
}

impl fmt::Display for ServiceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} was given; {}", self.field, self.given, self.allowed)
    }
}

/// What a problem is about. That stays in the cloud as it is, and everything else goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemScope {
    /// Whether it is about the load balancer itself: none is made, and no attribute is changed.
    pub load_balancer: bool,
    /// Ports whose listeners it is about: none is made, changed or deleted.
    pub listeners: BTreeSet<u16>,
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

    /// Adds a problem about the listeners on these ports.
    pub fn listeners(&mut self, ports: impl IntoIterator<Item = u16>, problem: ServiceProblem) {
        self.add(problem, ProblemScope { listeners: ports.into_iter().collect(), ..ProblemScope::default() });
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

    /// Whether listeners on a port stay as they are.
    pub fn withhold_listener(&self, port: u16) -> bool {
        self.0.iter().any(|problem| problem.scope.listeners.contains(&port))
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
