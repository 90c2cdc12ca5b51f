//! Traces: what a client asked of an account and what it answered, and the replay of one against the simulated cloud.
//!
//! A [`Recording`] takes real requests and answers. The [`Trace`] that it gives has placeholders for ids, addresses and names,
//! and of lists only what the client made or named itself. [`Trace::replay`] makes the same calls in the simulator and says
//! where its answers differ: what the simulator says must be what the cloud said.

mod compare;
mod scrub;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::Request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::account::{Account, PrivateZone};
use super::actions::{self, Action, Product};
use super::protocol::Params;
use super::{ApiError, Cloud};
use compare::Comparison;
use scrub::Scrubber;

/// What a client names its own things after: texts that contain it are kept as they are.
pub const OWN: &str = "conformance";

/// Addresses of the documentation and of benchmarks, which are kept as they are.
pub const OWN_ADDRESSES: [&str; 3] = ["203.0.113.0/24", "203.0.113.7", "198.18.254.0/24"];

/// What was there before the first call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Such as `cn-hangzhou`.
    pub region: String,
    /// The VPC.
    pub vpc: String,
    /// Zone and id of vSwitches.
    pub vswitches: Vec<(String, String)>,
    /// An instance in the first of them.
    pub instance: String,
    /// A private zone that is bound to the VPC.
    pub private_zone: Option<String>,
}

/// One call and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// What the client did it for.
    pub step: String,
    /// Such as `slb`.
    pub product: String,
    /// Such as `CreateLoadBalancer`.
    pub action: String,
    /// What was sent, without the parameters of the protocol.
    pub parameters: BTreeMap<String, String>,
    /// The HTTP status; 0 without an answer.
    pub status: u16,
    /// The body of the answer.
    pub answer: Value,
    /// How often the step was repeated until the account was ready, 1 if it was so at once.
    pub looks: u32,
    /// How long that took, in milliseconds.
    pub waited_ms: u64,
    /// Error codes and states on the way.
    pub meanwhile: BTreeSet<String>,
    /// Whether only the form of the answer can be compared, because it is about what was there before.
    pub form_only: bool,
}

impl Exchange {
    /// A call of a product that the simulator knows; `None` for others.
    #[must_use]
    pub fn read(request: &Request<Bytes>, status: u16, body: &[u8]) -> Option<Self> {
        let params = Params::read(request);
        let action = actions::find(params.get("Action")?, params.get("Version")?, "").ok()?;
        Some(Self {
            step: String::new(),
            product: action.product.name().into(),
            action: action.name.into(),
            parameters: params.business(),
            status,
            answer: serde_json::from_slice(body).unwrap_or_default(),
            looks: 1,
            waited_ms: 0,
            meanwhile: BTreeSet::new(),
            form_only: false,
        })
        .filter(|_| action.product != Product::Sts)
    }

    /// The vendor's code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        if self.status == 200 { None } else { Some(self.answer["Code"].as_str().unwrap_or("no answer")) }
    }

    fn known(&self) -> Option<&'static Action> {
        actions::all().find(|it| it.product.name() == self.product && it.name == self.action)
    }
}

/// Calls and answers without ids, addresses, names and keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// What was there before.
    pub place: Place,
    /// In the order of the calls.
    pub exchanges: Vec<Exchange>,
}

/// Whether the simulator is right about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It said what the cloud said.
    Agrees,
    /// It said so at once, and the cloud later.
    Later,
    /// It said something else.
    Differs,
}

/// What came of replaying one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What the client did it for.
    pub step: String,
    /// Such as `slb`.
    pub product: String,
    /// Such as `CreateLoadBalancer`.
    pub action: String,
    /// Whether the simulator is right.
    pub verdict: Verdict,
    /// What differs, and how.
    pub details: Vec<String>,
}

/// Requests and answers of a real account, as they come.
#[derive(Debug)]
pub struct Recording {
    place: Place,
    scrubber: Scrubber,
    exchanges: Vec<Exchange>,
}

impl Recording {
    /// An empty one.
    #[must_use]
    pub fn new(place: &Place) -> Self {
        let (scrubber, place) = Scrubber::new(place);
        Self { place, scrubber, exchanges: Vec::new() }
    }

    /// Adds a call and its answer.
    pub fn add(&mut self, exchange: Exchange) {
        let exchange = self.scrubber.exchange(exchange);
        self.exchanges.push(exchange);
    }

    /// What can be written down: of lists only what the client named or made.
    #[must_use]
    pub fn finish(self) -> Trace {
        let mut trace = Trace { place: self.place, exchanges: self.exchanges };
        let own = trace.own();
        trace.exchanges.iter_mut().for_each(|it| keep_own("", &mut it.answer, &own));
        trace
    }
}

impl Trace {
    /// An account that holds what was there before.
    #[must_use]
    pub fn account(&self) -> Account {
        let Place { region, vpc, vswitches, instance, private_zone } = &self.place;
        let mut account = Account::new(region).with_vpc(vpc, "10.0.0.0/8");
        for (index, (zone, id)) in vswitches.iter().enumerate() {
            account = account.with_vswitch(id, vpc, zone, &format!("10.0.{index}.0/24"));
        }
        if let Some((_, vswitch)) = vswitches.first() {
            account = account.with_instance(instance, instance, vswitch, "10.0.0.11");
        }
        if let Some(zone) = private_zone {
            account.private_zones.insert(zone.clone(), PrivateZone::new("conformance.example", vpc));
        }
        account
    }

    /// As JSON, a line for each exchange.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        let lines = self.exchanges.iter().map(serde_json::to_string).collect::<serde_json::Result<Vec<_>>>()?;
        let place = serde_json::to_string(&self.place)?;
        Ok(format!("{{\"place\": {place},\n\"exchanges\": [\n{}\n]}}\n", lines.join(",\n")))
    }

    /// Makes the same calls in the simulated cloud, and compares its answers.
    #[must_use]
    pub fn replay(&self, cloud: &Cloud) -> Vec<Finding> {
        let mut comparison = Comparison::new(self.own());
        self.exchanges.iter().map(|exchange| replay(exchange, cloud, &mut comparison)).collect()
    }

    /// What the client named or made.
    fn own(&self) -> BTreeSet<String> {
        let Place { vswitches, instance, private_zone, .. } = &self.place;
        let mut own: BTreeSet<String> = vswitches.iter().map(|(_, id)| id.clone()).collect();
        own.extend([instance.clone()].into_iter().chain(private_zone.clone()));
        for exchange in self.exchanges.iter().filter(|it| it.known().is_some_and(|action| action.write)) {
            for (name, value) in &exchange.parameters {
                let name = name.split('.').rfind(|part| part.parse::<u32>().is_err()).unwrap_or(name);
                match serde_json::from_str::<Value>(value) {
                    Ok(inner @ (Value::Array(_) | Value::Object(_))) => distinctive(name, &inner, &mut own),
                    _ => distinctive(name, &json!(value), &mut own),
                }
            }
            distinctive("", &exchange.answer, &mut own);
        }
        own
    }
}

fn replay(exchange: &Exchange, cloud: &Cloud, comparison: &mut Comparison) -> Finding {
    let parameters = exchange.parameters.iter().map(|(name, value)| (name.clone(), comparison.real(value))).collect();
    let answer = match exchange.known() {
        Some(action) => {
            let params = Params { values: parameters, ..Params::default() };
            let result = action.require(&params).and_then(|()| cloud.run(action, &params, false, None));
            cloud.changed();
            result
        }
        None => Err(ApiError::new(404, "InvalidAction.NotFound", "")),
    };
    let mut details = match (exchange.code(), answer) {
        (None, Ok(answer)) => comparison.answers(exchange, &answer),
        (cloud, answer) => {
            let simulated =
                answer.map_or_else(|error| format!("{} {}", error.status.as_u16(), error.code), |_| "OK".into());
            let real = cloud.map_or("OK".into(), |code| format!("{} {code}", exchange.status));
            if real == simulated { Vec::new() } else { vec![format!("the cloud {real}, the simulator {simulated}")] }
        }
    };
    let differs = !details.is_empty();
    details.append(&mut comparison.on_the_way);
    if exchange.looks > 1 && !differs {
        let (looks, seconds) = (exchange.looks, exchange.waited_ms / 1000);
        let meanwhile: Vec<_> = exchange.meanwhile.iter().map(String::as_str).collect();
        let meanwhile = if meanwhile.is_empty() { "nothing".into() } else { meanwhile.join(", ") };
        details
            .push(format!("the cloud at look {looks}, after {seconds} s ({meanwhile} before), the simulator at once"));
    }
    let verdict = match (differs, details.is_empty()) {
        (true, _) => Verdict::Differs,
        (false, true) => Verdict::Agrees,
        (false, false) => Verdict::Later,
    };
    let Exchange { step, product, action, .. } = exchange.clone();
    Finding { step, product, action, verdict, details }
}

/// Texts that tell one thing from others: ids, names, marks, address ranges.
fn distinctive(name: &str, value: &Value, found: &mut BTreeSet<String>) {
    const NAMES: [&str; 10] =
        ["Id", "Ids", "Name", "Description", "CidrBlock", "entry", "Key", "Value", "Rr", "Remark"];
    const COMMON: [&str; 6] = ["RegionId", "ZoneId", "VpcId", "RequestId", "VSwitchId", "ResourceGroupId"];
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| distinctive(name, value, found)),
        Value::Array(items) => items.iter().for_each(|item| distinctive(name, item, found)),
        Value::String(text)
            if text.len() > 2 && NAMES.iter().any(|end| name.ends_with(end)) && !COMMON.contains(&name) =>
        {
            found.insert(text.clone());
        }
        _ => {}
    }
}

/// Removes from lists what is neither named nor made by the client.
fn keep_own(name: &str, value: &mut Value, own: &BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| keep_own(name, value, own)),
        Value::Array(items) => {
            items.retain(|item| is_own(name, item, own));
            items.iter_mut().for_each(|item| keep_own(name, item, own));
        }
        _ => {}
    }
}

/// Whether an item of a list of this name is named or made by the client. Its own id decides where it has one, such as
/// `RecordId` in `Record`: what belongs to another user can have the same name.
fn is_own(name: &str, item: &Value, own: &BTreeSet<String>) -> bool {
    let is_named = |value: &Value| match value {
        Value::String(text) => own.contains(text),
        Value::Number(number) => own.contains(&number.to_string()),
        _ => false,
    };
    let id = format!("{}Id", name.trim_end_matches('s'));
    item.as_object().is_none_or(|fields| fields.get(&id).map_or_else(|| fields.values().any(is_named), is_named))
}

#[cfg(test)]
mod tests;
