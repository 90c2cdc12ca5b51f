//! What the writes of all products have in common.

use std::fmt::Display;

use crate::alibaba::{Fault, FaultKind};
use crate::plan::loadbalancer::cloud::{CloudModel, Observed};
use crate::plan::loadbalancer::model::GroupRef;

/// A write needs a part that a write before it was to make.
pub(super) fn missing(part: impl Display) -> Fault {
    Fault::new("load balancer", FaultKind::Gone, format!("{part} does not exist yet"))
}

/// The id of the load balancer.
pub(super) fn load_balancer_id(observed: &Observed<impl CloudModel>) -> Result<&str, Fault> {
    observed.id().ok_or_else(|| missing("the load balancer"))
}

/// The id of a server group.
pub(super) fn group_id<'a>(observed: &'a Observed<impl CloudModel>, group: &'a GroupRef) -> Result<&'a str, Fault> {
    match group {
        GroupRef::Id(id) => Ok(id),
        GroupRef::Named(name) => observed.group_id(group).ok_or_else(|| missing(format!("server group {name}"))),
    }
}

/// A deletion of what is gone has succeeded.
pub(super) fn gone_is_done<T: Default>(fault: Fault) -> Result<T, Fault> {
    if fault.kind == FaultKind::Gone { Ok(T::default()) } else { Err(fault) }
}
