//! The table of actions, put together from the products.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::account::{Account, TokenUse};
use super::basis::{Basis, Draft};
use super::log::Log;
use super::protocol::{ApiError, Params};
use super::{ecs, nlb, pvtz, slb, sts, vpc};

/// A product of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    Ecs,
    Vpc,
    Slb,
    Nlb,
    Pvtz,
    Sts,
}

impl Product {
    pub(crate) const ALL: [Self; 6] = [Self::Ecs, Self::Vpc, Self::Slb, Self::Nlb, Self::Pvtz, Self::Sts];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ecs => "ecs",
            Self::Vpc => "vpc",
            Self::Slb => "slb",
            Self::Nlb => "nlb",
            Self::Pvtz => "pvtz",
            Self::Sts => "sts",
        }
    }

    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::Ecs => "2014-05-26",
            Self::Vpc => "2016-04-28",
            Self::Slb => "2014-05-15",
            Self::Nlb => "2022-04-30",
            Self::Pvtz => "2018-01-01",
            Self::Sts => "2015-04-01",
        }
    }
}

/// What an action works with.
pub(crate) struct Context<'a> {
    pub(crate) account: &'a mut Account,
    pub(crate) params: &'a Params,
    pub(crate) now: Timestamp,
    pub(crate) action: &'a Action,
    pub(crate) log: &'a Log,
    /// Whether the job that the call begins fails.
    pub(crate) job_fails: bool,
}

/// One action.
pub(crate) struct Action {
    pub(crate) name: &'static str,
    pub(crate) product: Product,
    /// Whether it may change something.
    pub(crate) write: bool,
    /// Whether it must be signed.
    pub(crate) signed: bool,
    /// Names of its parameters with `N` for numbers; those that end in `!` are required.
    pub(crate) parameters: String,
    /// Where in the answer its list is.
    pub(crate) list: Option<&'static str>,
    pub(crate) run: fn(&mut Context<'_>) -> Result<Value, ApiError>,
    /// On what all this rests.
    pub(crate) basis: Basis,
}

impl Action {
    pub(crate) fn read(
        product: Product,
        name: &'static str,
        parameters: &str,
        run: fn(&mut Context<'_>) -> Result<Value, ApiError>,
    ) -> Draft {
        let (parameters, basis) = (parameters.into(), Basis::default());
        Draft(Self { name, product, write: false, signed: true, parameters, list: None, run, basis })
    }

    pub(crate) fn write(
        product: Product,
        name: &'static str,
        parameters: &str,
        run: fn(&mut Context<'_>) -> Result<Value, ApiError>,
    ) -> Draft {
        let Draft(action) = Self::read(product, name, parameters, run);
        Draft(Self { write: true, ..action })
    }

    pub(crate) fn listing(self, path: &'static str) -> Self {
        Self { list: Some(path), ..self }
    }

    /// Whether this names the action: `CreateListener`, or `nlb:CreateListener`.
    pub(crate) fn is(&self, name: &str) -> bool {
        name.strip_prefix(self.product.name()).and_then(|it| it.strip_prefix(':')).unwrap_or(name) == self.name
    }

    pub(crate) fn knows(&self, pattern: &str) -> bool {
        self.parameters.split_whitespace().any(|it| it.trim_end_matches('!') == pattern)
    }

    pub(crate) fn require(&self, params: &Params) -> Result<(), ApiError> {
        for name in self.parameters.split_whitespace().filter_map(|it| it.strip_suffix('!')) {
            match name.split_once(".N") {
                None => params.need(name).map(|_| ())?,
                Some((list, rest)) => {
                    let indexes = params.indexes(list);
                    if indexes.is_empty() {
                        return Err(ApiError::missing(&format!("{list}.1{rest}")));
                    }
                    for index in indexes {
                        params.need(&format!("{list}.{index}{rest}"))?;
                    }
                }
            }
        }
        Ok(())
    }
}

static ACTIONS: LazyLock<Vec<Action>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(ecs::actions());
    all.extend(vpc::actions());
    all.extend(slb::actions());
    all.extend(nlb::actions());
    all.extend(pvtz::actions());
    all.extend(sts::actions());
    all
});

/// Every action that the cloud knows, as product and name.
pub(crate) fn all() -> impl Iterator<Item = &'static Action> {
    ACTIONS.iter()
}

/// The action that a request names. A host of the vendor serves one product; any other host serves them all.
pub(crate) fn find(name: &str, version: &str, host: &str) -> Result<&'static Action, ApiError> {
    let vendor = host.split(':').next().and_then(|it| it.strip_suffix(".aliyuncs.com"));
    let only = vendor.and_then(|it| it.split(['.', '-']).next());
    let is_served = |it: &Action| only.is_none_or(|product| product == it.product.name());
    let named = |it: &&Action| it.name == name && it.product.version() == version && is_served(it);
    ACTIONS.iter().find(named).ok_or_else(|| {
        let message = "Specified api is not found, please check your url and method.";
        ApiError::new(404, "InvalidAction.NotFound", message)
    })
}

/// How often an action may be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) calls: u32,
    pub(crate) window: Duration,
}

impl Rate {
    pub(crate) const fn per_minute(calls: u32) -> Self {
        Self { calls, window: Duration::from_secs(60) }
    }

    const fn per_second(calls: u32) -> Self {
        Self { calls, window: Duration::from_secs(1) }
    }
}

/// The rate that the vendor publishes for an action, per account and region; for the few that it does not list, that of
/// the actions around it.
pub(crate) fn rate(action: &Action) -> Rate {
    match (action.product, action.name, action.write) {
        (Product::Slb, "CreateLoadBalancer", _) => Rate::per_minute(60),
        (Product::Slb, "SetDomainExtensionAttribute", _) => Rate::per_minute(400),
        (Product::Slb, "TagResources" | "UntagResources", _) => Rate::per_second(5),
        (Product::Slb, "ListTagResources", _) => Rate::per_second(10),
        (Product::Slb, _, true) => Rate::per_minute(90),
        (Product::Slb, _, false) => Rate::per_minute(3000),
        (Product::Nlb, _, true) => Rate::per_minute(200),
        (Product::Nlb, _, false) => Rate::per_second(20),
        (Product::Vpc, _, true) => Rate::per_minute(300),
        (Product::Vpc, _, false) => Rate::per_minute(600),
        (Product::Pvtz, ..) => Rate::per_minute(300),
        (Product::Ecs | Product::Sts, ..) => Rate::per_minute(1000),
    }
}

/// Field values by which a list shows what a creation made.
pub(crate) fn marks(action: &Action, params: &Params, answer: &Value) -> Vec<Vec<(&'static str, Value)>> {
    if let Some(protocol) = action.name.strip_prefix("CreateLoadBalancer").and_then(|it| it.strip_suffix("Listener")) {
        let port = params.number("ListenerPort").ok().flatten();
        return vec![vec![
            ("LoadBalancerId", json!(params.get("LoadBalancerId"))),
            ("ListenerPort", json!(port)),
            ("ListenerProtocol", json!(protocol.to_lowercase())),
        ]];
    }
    let by_id = |field: &'static str, id: &Value| vec![(field, id.clone())];
    if answer["LoadbalancerId"].is_string() {
        return vec![by_id("LoadBalancerId", &answer["LoadbalancerId"])];
    }
    if action.product == Product::Nlb && !action.name.starts_with("Create") {
        return Vec::new();
    }
    if answer["RecordId"].is_u64() {
        return vec![by_id("RecordId", &answer["RecordId"])];
    }
    if let Some(ids) = answer["RouteEntryIds"].as_array() {
        return ids.iter().map(|id| by_id("RouteEntryId", id)).collect();
    }
    let fields = [
        "VServerGroupId",
        "DomainExtensionId",
        "RouteEntryId",
        "LoadBalancerId",
        "ListenerId",
        "ServerGroupId",
        "SecurityGroupId",
    ];
    fields
        .into_iter()
        .filter(|field| answer[*field].is_string())
        .take(1)
        .map(|field| by_id(field, &answer[field]))
        .collect()
}

/// One page by number, with the counters that go with it.
pub(crate) fn page<T>(
    params: &Params,
    items: Vec<T>,
    default_size: i64,
    max_size: i64,
) -> Result<(Vec<T>, Value), ApiError> {
    let number = params.number_in("PageNumber", 1, i64::MAX)?.unwrap_or(1);
    let size = params.number_in("PageSize", 1, max_size)?.unwrap_or(default_size);
    let total = items.len();
    let skip = usize::try_from((number - 1).saturating_mul(size)).unwrap_or(usize::MAX);
    let page = items.into_iter().skip(skip).take(usize::try_from(size).unwrap_or(0)).collect();
    Ok((page, json!({"PageNumber": number, "PageSize": size, "TotalCount": total})))
}

/// One page by token. The token tells where the next page starts, in a form that clients cannot read.
pub(crate) fn page_by_token<T>(
    params: &Params,
    items: Vec<T>,
    size: usize,
) -> Result<(Vec<T>, Option<String>), ApiError> {
    let start = match params.get("NextToken") {
        None => 0,
        Some(token) => token
            .strip_prefix("AAAAA")
            .and_then(|it| usize::from_str_radix(it, 16).ok())
            .ok_or_else(|| ApiError::new(400, "InvalidParameter.NextToken", "The specified NextToken is not valid."))?,
    };
    let end = start + size;
    let next = (end < items.len()).then(|| format!("AAAAA{end:08x}"));
    Ok((items.into_iter().skip(start).take(size).collect(), next))
}

/// The same for objects in the order of their keys. The token has the last key of the page, and how many objects there are.
pub(crate) fn page_by_key<T, I: Iterator<Item = T>>(
    params: &Params,
    from: impl Fn(&str) -> I,
    key: impl Fn(&T) -> String,
    size: usize,
) -> Result<(Vec<T>, Option<String>, usize), ApiError> {
    let invalid = || ApiError::new(400, "InvalidParameter.NextToken", "The specified NextToken is not valid.");
    let numbers = |text: &str| Some((usize::from_str_radix(text.get(..8)?, 16).ok()?, text.get(8..)?.to_owned()));
    let (total, last) = match params.get("NextToken") {
        None => (from("").count(), String::new()),
        Some(token) => token.strip_prefix("AAAAA").and_then(numbers).ok_or_else(invalid)?,
    };
    let mut rest = from(&last).filter(|it| last.is_empty() || key(it) > last);
    let items: Vec<T> = rest.by_ref().take(size).collect();
    let next = rest.next().and(items.last()).map(|it| format!("AAAAA{total:08x}{}", key(it)));
    Ok((items, next, total))
}

/// Runs a creation at most once per `ClientToken`: the same call gives the same answer, even if what it made is gone since.
/// A failed call leaves its token unused.
pub(crate) fn once(
    cx: &mut Context<'_>,
    mismatch: &str,
    run: impl FnOnce(&mut Context<'_>) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    let Some(token) = cx.params.get("ClientToken") else { return run(cx) };
    if token.len() > 64 || !token.is_ascii() {
        return Err(ApiError::invalid("ClientToken", "at most 64 ASCII characters are allowed"));
    }
    let key = format!("{}:{}/{token}", cx.action.product.name(), cx.action.name);
    let parameters = cx.params.business();
    if let Some(earlier) = cx.account.tokens.get(&key) {
        if earlier.parameters == parameters {
            return Ok(earlier.answer.clone());
        }
        let message = "The ClientToken was used with other parameters.";
        return Err(ApiError::new(400, mismatch, message));
    }
    let answer = run(cx)?;
    cx.account.tokens.insert(key, TokenUse { parameters, answer: answer.clone() });
    Ok(answer)
}
