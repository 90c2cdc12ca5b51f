//! How much of a load balancer is managed.
//!
//! What is unmanaged is still compared, and shown with the plan, but never changed: that is left to the user. The load
//! balancer itself is made in every mode, because without it there is nothing to manage, and its ownership marks are kept; when
//! the Service goes, what we made goes in every mode.

use super::operation::{Operation, OperationModel};
use super::steps::{Plan, Target};

/// The attribute of the ownership marks.
pub const MARKS: &str = "marks";
/// The attribute of additional certificates.
pub const DOMAIN_EXTENSIONS: &str = "domain extensions";

/// What is kept, each including what follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagementLevel {
    /// Nothing.
    None,
    /// Server groups and their backends.
    Backends,
    /// Listeners, too.
    Listeners,
    /// The attributes of the load balancer, too.
    #[default]
    All,
}

impl ManagementLevel {
    /// The values of the annotation.
    pub(crate) const VALUES: &'static [&'static str] = &["all", "listeners", "backends", "none"];

    /// Reads the annotation's value.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::All, Self::Listeners, Self::Backends, Self::None];
        all.into_iter().find(|manage| manage.as_str() == text)
    }

    /// The annotation's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Listeners => "listeners",
            Self::Backends => "backends",
            Self::None => "none",
        }
    }

    /// Whether this part is kept.
    pub fn keeps(self, part: Self) -> bool {
        self >= part
    }

    /// What must be kept for a step to be done; `None` if it is done in any case.
    fn needed(target: &Target, operation: &Operation<impl OperationModel>) -> Option<Self> {
        match target {
            Target::LoadBalancer if operation.creates() => None,
            Target::Attribute(MARKS) => None,
            Target::Attribute(DOMAIN_EXTENSIONS)
            | Target::Listener(_)
            | Target::FormerListener(_)
            | Target::AccessList => Some(Self::Listeners),
            Target::LoadBalancer | Target::Attribute(_) => Some(Self::All),
            Target::Group(_) => Some(Self::Backends),
        }
    }
}

/// After a phase about `part`: what stands in its way is only noted, if nothing is done about it anyway. Before the phase, this
/// many problems were `known`.
pub(crate) fn excuse(
    manage: ManagementLevel,
    part: ManagementLevel,
    known: usize,
    plan: &mut Plan<impl OperationModel>,
) {
    if !manage.keeps(part) {
        for problem in plan.problems.split_off(known.min(plan.problems.len())) {
            plan.note(format!("not managed: {problem}"));
        }
    }
}

/// Turns steps about what is not kept into notes, and those that cannot be without them.
pub(crate) fn withhold(manage: ManagementLevel, plan: &mut Plan<impl OperationModel>) {
    if manage == ManagementLevel::All {
        return;
    }
    let mut withheld: Vec<Target> = Vec::new();
    for step in std::mem::take(&mut plan.steps) {
        let kept = ManagementLevel::needed(&step.target, &step.operation).is_none_or(|part| manage.keeps(part));
        let possible = !step.destroys || step.needs.iter().all(|need| !withheld.contains(need));
        if kept && possible {
            plan.steps.push(step);
        } else {
            withheld.push(step.target.clone());
            plan.note(format!("not managed: {step}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_includes_the_next() {
        let all: Vec<_> = ManagementLevel::VALUES.iter().map(|text| ManagementLevel::parse(text).unwrap()).collect();
        assert!(all.is_sorted_by(|one, other| one > other));
        for (text, manage) in ManagementLevel::VALUES.iter().zip(&all) {
            assert_eq!(manage.as_str(), *text);
        }
        assert_eq!(ManagementLevel::parse("some"), None);
    }
}
