//! The steps to the desired state of a load balancer, whatever the product.

use std::fmt::{self, Display};

use super::group_operation::{GroupOperation, RefusedBackends, Room};
use super::model::{Backend, GroupRef, ListenerRef};
use super::problem::ServiceProblem;

/// What the engine must know of a product's operations.
pub trait Operation: Clone + Display + PartialEq {
    /// Whether something that exists goes away.
    fn destroys(&self) -> bool;

    /// Whether it makes a thing of its own.
    fn creates(&self) -> bool;

    /// The name of what it makes, where the cloud would make a second one if the call is repeated.
    fn makes(&self) -> Option<&str>;

    /// What it changes.
    fn part(&self) -> Part;

    /// What it does to a server group that exists, if it does nothing else.
    fn of_group(&self) -> Option<&GroupOperation>;

    /// The server group whose backends it changes, if it does nothing else.
    fn backends_of(&self) -> Option<&GroupRef> {
        self.of_group().and_then(GroupOperation::backends_of)
    }

    /// What to do when the cloud refuses its backends.
    fn refused_backends(&self) -> RefusedBackends<Self>;

    /// The backends that it puts into a server group.
    fn adds(&self) -> &[Backend] {
        self.of_group().map_or(&[], GroupOperation::adds)
    }

    /// The same operation, which puts only these of its backends into the group; `None` if nothing is left of it.
    fn adding(&self, _backends: Vec<Backend>) -> Option<Self> {
        Some(self.clone())
    }

    /// The same in two parts, each with its reason, where the cloud refused it and may accept one; `None` if it is one thing.
    fn halves(&self) -> Option<[(Self, String); 2]> {
        None
    }

    /// Whether it changes settings alone, so that nothing else relies on it.
    fn is_setting(&self) -> bool {
        false
    }

    /// The same creation in another place, where the cloud refused this one: for want of room, or for another reason.
    fn elsewhere(&self, _had_no_room: bool) -> Option<Self> {
        None
    }

    /// The same creation with the ownership marks as its only tags; `None` if it has no others.
    fn without_tags(&self) -> Option<Self> {
        None
    }

    /// What the user should know of where something was made, or could not be, with the cloud's code.
    fn remark(&self, _refusal: Option<&str>) -> Option<String> {
        None
    }

    /// Whether it takes room for backends on the load balancer, or makes some.
    fn room(&self) -> Room {
        self.of_group().map_or(Room::Neither, GroupOperation::room)
    }
}

/// The part of a load balancer that an operation changes, as far as it can be read by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whether it exists, and its attributes.
    Instance,
    /// Which server groups there are, and their attributes.
    Groups,
    /// What is in a server group.
    Backends,
    /// Listeners, with their domain extensions.
    Listeners,
    /// The access control list, or the security group of the source ranges.
    Access,
}

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
pub struct Step<O> {
    /// What to do.
    pub operation: O,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<O> {
    /// The writes.
    pub steps: Vec<Step<O>>,
    /// What prevents the desired state and cannot be planned around, in words for the user.
    pub problems: Vec<ServiceProblem>,
    /// What the Service says and what has no effect on its load balancer as it is.
    pub warnings: Vec<ServiceProblem>,
    /// Observations that change nothing but that the user should see, such as unmanaged differences or foreign listeners.
    pub notes: Vec<String>,
    /// Whether backends stay that would be removed if all that is needed to say so were known.
    pub withholds_backends: bool,
    /// Whether it overrides a listener that other Services can override as well.
    pub overrides: bool,
}

impl<O> Default for Plan<O> {
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            withholds_backends: false,
            overrides: false,
        }
    }
}

impl<O: Operation> Plan<O> {
    /// Whether any step changes this part.
    pub(crate) fn touches(&self, part: Part) -> bool {
        self.steps.iter().any(|step| step.operation.part() == part)
    }

    /// Adds a step; everything needs the load balancer.
    pub(crate) fn step(
        &mut self,
        operation: O,
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

impl<O: Display> Display for Step<O> {
    /// One line; `! ` in front says that something goes away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.destroys { "! " } else { "" };
        write!(f, "{mark}{}  # {}", self.operation, self.reason)
    }
}

impl<O: Display> Display for Plan<O> {
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
