//! The steps to the desired state of a load balancer, whatever the product.

use std::fmt::{self, Display};

use super::model::{GroupRef, ListenerRef};
use super::operation::{Operation, OperationModel, Part};
use super::problem::ServiceProblem;

/// What an operation is about; when one fails, later ones that need the same target do not run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The load balancer: everything else needs it.
    LoadBalancer,
    /// An attribute of the load balancer that nothing else waits for.
    Attribute(&'static str),
    /// A server group.
    Group(GroupRef),
    /// The access control list.
    AccessList,
    /// A listener.
    Listener(ListenerRef),
    /// A listener of another load balancer, by its id.
    FormerListener(String),
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<M: OperationModel> {
    /// What to do.
    pub operation: Operation<M>,
    /// What it is about.
    pub target: Target,
    /// Earlier targets that must not have failed.
    pub needs: Vec<Target>,
    /// Why, in words for the operator: the field, the value found and the value wanted.
    pub reason: String,
    /// Whether something that exists goes away.
    pub destroys: bool,
}

/// Steps in the order in which they must start. Empty if nothing is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan<M: OperationModel> {
    /// The writes.
    pub steps: Vec<Step<M>>,
    /// What prevents the desired state and cannot be planned around, in words for the user.
    pub problems: Vec<ServiceProblem>,
    /// What the Service says and what has no effect on its load balancer as it is.
    pub warnings: Vec<ServiceProblem>,
    /// Observations that change nothing but that the user should see, such as unmanaged differences or foreign listeners.
    pub notes: Vec<String>,
    /// Whether the load balancer must not be used: at most, backends follow.
    pub is_unusable: bool,
    /// Whether backends stay that would be removed if all that is needed to say so were known.
    pub withholds_backends: bool,
    /// Whether it overrides a listener that other Services can override as well.
    pub overrides: bool,
}

impl<M: OperationModel> Plan<M> {
    /// Whether any step changes this part.
    pub(crate) fn touches(&self, part: Part) -> bool {
        self.steps.iter().any(|step| step.operation.part() == part)
    }

    /// Adds a step; everything needs the load balancer.
    pub(crate) fn step(
        &mut self,
        operation: impl Into<Operation<M>>,
        target: Target,
        needs: impl IntoIterator<Item = Target>,
        reason: impl Into<String>,
    ) {
        let mut all: Vec<Target> = match target {
            Target::LoadBalancer => Vec::new(),
            _ => vec![Target::LoadBalancer],
        };
        for need in needs {
            let earlier = need != target || self.steps.iter().any(|step| step.target == target);
            if earlier && !all.contains(&need) {
                all.push(need);
            }
        }
        let operation = operation.into();
        let destroys = operation.destroys();
        self.steps.push(Step { operation, target, needs: all, reason: reason.into(), destroys });
    }

    pub(crate) fn problem(&mut self, problem: ServiceProblem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl<M: OperationModel> Display for Step<M> {
    /// One line; `! ` in front says that something goes away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.destroys { "! " } else { "" };
        write!(f, "{mark}{}  # {}", self.operation, self.reason)
    }
}

impl<M: OperationModel> Display for Plan<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
