//! Classic load balancers (product Slb, version 2014-05-15).

mod acls;
mod certificates;
mod groups;
mod instances;
mod listeners;
mod tags;

use tokio::time::Instant;

use super::account::{Account, LoadBalancer};
use super::actions::{Action, Context};
use super::protocol::ApiError;

pub(crate) use listeners::plain_listener;

pub(crate) fn actions() -> Vec<Action> {
    let mut all = instances::actions();
    all.extend(listeners::actions());
    all.extend(groups::actions());
    all.extend(tags::actions());
    all.extend(certificates::actions());
    all.extend(acls::actions());
    all
}

fn not_found() -> ApiError {
    ApiError::new(404, "InvalidLoadBalancerId.NotFound", "The specified LoadBalancerId does not exist.")
}

fn instance<'w>(account: &'w Account, id: &str) -> Result<&'w LoadBalancer, ApiError> {
    account.load_balancers.get(id).map(|it| &**it).ok_or_else(not_found)
}

/// The load balancer that a call names, for a write: it must be neither locked nor busy, and is busy afterwards for as
/// long as the dial says.
fn for_write<'w>(cx: &'w mut Context<'_>) -> Result<&'w mut LoadBalancer, ApiError> {
    let id = cx.params.need("LoadBalancerId")?;
    claim(cx.account, id, cx.action)
}

/// As [`for_write`], by id.
fn claim<'w>(account: &'w mut Account, id: &str, action: &Action) -> Result<&'w mut LoadBalancer, ApiError> {
    let busy = account.dials.load_balancer_busy;
    let it: &mut LoadBalancer = account.load_balancers.get_mut(id).ok_or_else(not_found)?;
    if it.status == "locked" {
        let message = "The status of the load balancer does not support this operation.";
        return Err(ApiError::new(400, "LbStatusNotSupport", message));
    }
    let now = Instant::now();
    if it.busy_until.is_some_and(|until| until > now) {
        let is_inner = action.name.contains("Listener") || action.name.contains("VServerGroup");
        let code = if is_inner { "ServiceIsConfiguring" } else { "OperationBusy" };
        return Err(ApiError::new(400, code, "The specified load balancer is configuring, please try again later."));
    }
    if !busy.is_zero() {
        it.busy_until = Some(now + busy);
    }
    Ok(it)
}
