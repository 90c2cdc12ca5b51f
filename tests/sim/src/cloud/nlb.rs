//! Network load balancers (product Nlb, version 2022-04-30).
//!
//! A write that begins a job is checked, takes effect at once, and shows as being done until the job ends: its target
//! refuses further writes as busy until then. What a job removes stays, as being removed, until the job ends. A job that
//! fails ([`Fault::JobFails`](super::Fault::JobFails)) changes nothing.

mod balancers;
mod certificates;
mod groups;
mod input;
mod jobs;
mod listeners;
mod objects;
mod servers;
mod shown;
mod tags;
mod zones;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::account::Account;
use super::actions::{Action, Context, Product, once, page_by_key, page_by_token};
use super::basis::Draft;
use super::objects::Pending;
use super::protocol::{ApiError, Params};
use super::table;
use crate::effort;

pub(crate) use input::{BalancerInput, GroupInput, add_balancer, add_group};
pub use objects::*;
pub(crate) use shown::{balancer as shown_balancer, group as shown_group, security_group as shown_security_group};

pub(crate) fn actions() -> Vec<Action> {
    let mut all = balancers::actions();
    all.extend(listeners::actions());
    all.extend(certificates::actions());
    all.extend(groups::actions());
    all.extend(servers::actions());
    all.extend(jobs::actions());
    all.extend(tags::actions());
    all
}

type Run = fn(&mut Context<'_>) -> Result<Value, ApiError>;

fn read(name: &'static str, parameters: &str, run: Run) -> Draft {
    Action::read(Product::Nlb, name, parameters, run)
}

/// A write; each takes a client token and a dry run.
fn write(name: &'static str, parameters: &str, run: Run) -> Draft {
    Action::write(Product::Nlb, name, &format!("{parameters} ClientToken DryRun"), run)
}

/// Runs a write at most once per client token.
fn with_token(
    cx: &mut Context<'_>,
    run: impl FnOnce(&mut Context<'_>) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    once(cx, "IdempotenceSignatureMismatch", run)
}

fn not_found(kind: &str) -> ApiError {
    ApiError::new(404, &format!("ResourceNotFound.{kind}"), format!("The specified resource of {kind} is not found."))
}

fn illegal(name: &str) -> ApiError {
    ApiError::new(400, &format!("IllegalParam.{name}"), format!("The parameter of {name} is illegal."))
}

fn missing(name: &str) -> ApiError {
    ApiError::new(400, &format!("MissingParam.{name}"), format!("The parameter of {name} is missing."))
}

fn denied(reason: &str) -> ApiError {
    let message = format!("The operation is not allowed because of {reason}.");
    ApiError::new(400, &format!("OperationDenied.{reason}"), message)
}

fn over_quota(name: &str) -> ApiError {
    ApiError::new(400, "QuotaExceeded.QuotaInsufficient", format!("The quota of {name} is exceeded."))
}

fn locked() -> ApiError {
    ApiError::new(400, "Conflict.Lock", "The Lock is conflict.")
}

fn wrong_status(kind: &str) -> ApiError {
    ApiError::new(
        400,
        &format!("IncorrectStatus.{kind}"),
        format!("The status of {kind} is incorrect for the operation."),
    )
}

fn flag(params: &Params, name: &str) -> Result<Option<bool>, ApiError> {
    match params.get(name).map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(illegal(name)),
    }
}

/// A number within a range; `name` may be that of a nested parameter.
fn number(params: &Params, name: &str, low: i64, high: i64) -> Result<Option<i64>, ApiError> {
    let last = name.rsplit('.').next().unwrap_or(name);
    params.number_in(name, low, high).map_err(|_| illegal(last))
}

/// One of some words, whatever their case, as the cloud spells it.
fn word<'a>(params: &Params, name: &str, allowed: &[&'a str]) -> Result<Option<&'a str>, ApiError> {
    let Some(given) = params.get(name) else { return Ok(None) };
    let last = name.rsplit('.').next().unwrap_or(name);
    let known = allowed.iter().find(|it| it.eq_ignore_ascii_case(given));
    known.copied().map(Some).ok_or_else(|| illegal(last))
}

fn check_name(name: &str, parameter: &str) -> Result<(), ApiError> {
    let is_allowed = |it: char| it.is_alphanumeric() || "._-".contains(it);
    let fits = (2..=128).contains(&name.chars().count());
    if fits && name.starts_with(char::is_alphabetic) && name.chars().all(is_allowed) {
        return Ok(());
    }
    Err(illegal(parameter))
}

/// One page of a list.
fn listed<T>(
    cx: &Context<'_>,
    name: &str,
    items: Vec<T>,
    (most, usual): (i64, i64),
    show: impl FnMut(T) -> Value,
) -> Result<Value, ApiError> {
    let size = number(cx.params, "MaxResults", 1, most)?.unwrap_or(usual);
    let total = items.len();
    let (items, next) = page_by_token(cx.params, items, usize::try_from(size).unwrap_or(1))?;
    let items: Vec<Value> = items.into_iter().map(show).collect();
    Ok(json!({name: items, "NextToken": next.unwrap_or_default(), "MaxResults": size, "TotalCount": total}))
}

/// One page of a long list, whose objects come from a key on.
fn listed_from<T, I: Iterator<Item = T>>(
    cx: &Context<'_>,
    name: &str,
    from: impl Fn(&str) -> I,
    key: impl Fn(&T) -> String,
    show: impl FnMut(T) -> Value,
) -> Result<Value, ApiError> {
    let size = number(cx.params, "MaxResults", 1, 100)?.unwrap_or(20);
    let (items, next, total) = page_by_key(cx.params, from, key, usize::try_from(size).unwrap_or(1))?;
    let items: Vec<Value> = items.into_iter().map(show).collect();
    Ok(json!({name: items, "NextToken": next.unwrap_or_default(), "MaxResults": size, "TotalCount": total}))
}

/// What the objects of a list carry, by the most narrow of its filters.
fn words(names: &[&str], tags: &[(&str, Option<&str>)]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(|name| table::name(name)).collect();
    let tag = tags.iter().find_map(|(key, value)| Some(table::tag(key, (*value)?)));
    if names.is_empty() { tag.into_iter().collect() } else { names }
}

/// The values of a list parameter, at most so many.
fn some<'a>(params: &'a Params, name: &str, most: usize) -> Result<Vec<&'a str>, ApiError> {
    let list = params.list(name);
    if list.len() <= most {
        return Ok(list);
    }
    Err(ApiError::new(400, &format!("IllegalParamSize.{name}"), format!("The size of {name} is illegal.")))
}

/// Removes what jobs that have ended since removed.
pub(crate) fn settle(account: &mut Account) {
    while let Some((until, _)) = account.nlb.leaving.first()
        && *until <= Instant::now()
    {
        let Some((_, id)) = account.nlb.leaving.pop_first() else { return };
        effort::look();
        let is_gone = |pending: Option<Pending>| pending.is_some_and(|it| it.removes && it.is_over());
        if account.nlb.balancers.get(&id).is_some_and(|it| is_gone(it.pending)) {
            balancers::remove(account, &id);
        } else if let Some(it) = account.nlb.balancers.get_mut(&id) {
            it.listeners.retain(|_, it| !is_gone(it.pending));
        } else if account.nlb.groups.get(&id).is_some_and(|it| is_gone(it.pending)) {
            account.nlb.groups.remove(&id);
        } else if let Some(it) = account.nlb.groups.get_mut(&id) {
            it.servers.retain(|it| !is_gone(it.pending));
        }
    }
}

impl Account {
    /// Everything that is being done to network load balancers is done at once.
    pub fn finish_jobs(&mut self) {
        let now = Instant::now();
        let finish = |pending: &mut Option<Pending>| {
            *pending = pending.filter(|it| it.removes).map(|it| Pending { until: now, ..it });
        };
        for lb in self.nlb.balancers.values_mut() {
            finish(&mut lb.pending);
            lb.listeners.values_mut().for_each(|it| finish(&mut it.pending));
        }
        for group in self.nlb.groups.values_mut() {
            finish(&mut group.pending);
            group.servers.iter_mut().for_each(|it| finish(&mut it.pending));
        }
        self.nlb.jobs.values_mut().for_each(|job| job.until = now);
        self.nlb.leaving = std::mem::take(&mut self.nlb.leaving).into_iter().map(|(_, id)| (now, id)).collect();
        settle(self);
        self.security_groups.values_mut().for_each(|it| it.held_until = None);
    }
}

/// The load balancer with this id, for a write to it.
fn balancer_for_write<'w>(account: &'w mut Account, id: &str) -> Result<&'w mut NetworkLoadBalancer, ApiError> {
    let it: &mut NetworkLoadBalancer = account.nlb.balancers.get_mut(id).ok_or_else(|| not_found("loadBalancer"))?;
    match it.shown_status() {
        "Active" => Ok(it),
        "Provisioning" => {
            let message = "The specified resource of loadbalancer is being created.";
            Err(ApiError::new(400, "ResourceInCreating.loadbalancer", message))
        }
        "Configuring" => Err(locked()),
        _ => Err(wrong_status("loadbalancer")),
    }
}

/// The server group with this id, for a write to it.
fn group_for_write<'w>(account: &'w mut Account, id: &str) -> Result<&'w mut ServerGroup, ApiError> {
    let it: &mut ServerGroup = account.nlb.groups.get_mut(id).ok_or_else(|| not_found("serverGroup"))?;
    match it.shown_status() {
        "Available" => Ok(it),
        "Creating" => Err(wrong_status("serverGroup")),
        _ => Err(locked()),
    }
}
