//! What goes wrong, and when: scripted call by call, or at random from a seed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::account::mix;
use super::actions::{Action, Product};
use super::ecs::matches_pattern;
use crate::request_hold::{self, Held, HoldPoint, Moment};

/// One thing that goes wrong with one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done; the answer is an error with this status, code and message.
    Refuse(u16, String, String),
    /// Nothing is done; flow control answers.
    Throttle,
    /// Nothing is done; 503 `ServiceUnavailable`.
    Unavailable,
    /// Nothing is done; the connection is closed without an answer.
    Drop,
    /// Nothing is done, and there is no answer for this long, after which the connection is closed.
    HangBefore(Duration),
    /// The call takes effect; the connection is closed without an answer.
    AnswerLost,
    /// The call takes effect; there is no answer for this long, after which the connection is closed.
    HangAfter(Duration),
    /// The call takes effect; the answer is 500 `InternalError`.
    ErrorAfterEffect,
    /// The call takes effect; the connection is closed in the middle of the body.
    Truncated,
    /// The call takes effect; the body is a page of a gateway, with status 502.
    GatewayPage,
    /// The call takes effect; the body is no JSON although the status is 200.
    Garbled,
    /// A read answers from the state before this many writes.
    Stale(usize),
    /// A list shows no more than this many objects and claims to be complete.
    Partial(usize),
    /// What a creation made is missing from this many lists.
    Hidden(u32),
    /// A creation takes effect, the connection is closed without an answer, and what was made is missing from this many
    /// lists.
    LostAndHidden(u32),
    /// The call takes this much longer.
    Slow(Duration),
    /// The call is accepted; the job that it begins fails, and nothing changes.
    JobFails,
}

impl Fault {
    /// A refusal with one of the vendor's codes, status 400.
    #[must_use]
    pub fn code(code: &str) -> Self {
        Self::Refuse(400, code.into(), "The operation is refused.".into())
    }

    /// Flow control and server errors, none of which has an effect.
    #[must_use]
    pub fn before() -> Vec<Self> {
        vec![Self::Throttle, Self::Unavailable, Self::Drop]
    }

    /// Every way to lose the answer to a call that took effect.
    #[must_use]
    pub fn after() -> Vec<Self> {
        vec![Self::AnswerLost, Self::ErrorAfterEffect, Self::Truncated, Self::GatewayPage, Self::Garbled]
    }

    /// Every way in which a read can be out of date or incomplete.
    #[must_use]
    pub fn stale() -> Vec<Self> {
        vec![Self::Stale(1), Self::Stale(3), Self::Partial(0), Self::Partial(1)]
    }

    /// Whether it makes sense for a read, or for a write.
    fn suits(&self, write: bool) -> bool {
        match self {
            Self::Stale(_) | Self::Partial(_) => !write,
            Self::Hidden(_) | Self::LostAndHidden(_) | Self::JobFails => write,
            _ => true,
        }
    }
}

/// The fault dial of a cloud; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Dial>>);

#[derive(Debug, Default)]
struct Dial {
    scripted: BTreeMap<String, VecDeque<Fault>>,
    standing: BTreeMap<String, Fault>,
    matching: Vec<Matching>,
    holds: Vec<Hold>,
    random: Option<Random>,
    /// Calls so far, by action: random faults depend on these and not on the order of different actions.
    calls: BTreeMap<String, u64>,
}

/// For calls with certain parameters.
#[derive(Debug)]
struct Matching {
    action: String,
    /// By name; `*` stands for any text.
    parameters: BTreeMap<String, String>,
    fault: Fault,
    /// How many calls are left; `None` for all.
    left: Option<usize>,
}

impl Matching {
    /// Whether a call fails so, which is then counted.
    fn applies(&mut self, action: &Action, given: &BTreeMap<String, String>) -> bool {
        let has = |(name, pattern): (&String, &String)| given.get(name).is_some_and(|it| matches_pattern(pattern, it));
        if self.left == Some(0) || !action.is(&self.action) || !self.parameters.iter().all(has) {
            return false;
        }
        self.left = self.left.map(|it| it - 1);
        true
    }
}

#[derive(Debug)]
struct Hold {
    action: String,
    /// How many calls of the action pass first.
    skip: usize,
    moment: Moment,
    point: HoldPoint,
}

#[derive(Debug)]
struct Random {
    seed: u64,
    rate: f64,
    menu: Vec<Fault>,
}

/// Stands for every action.
pub const ANY: &str = "*";

impl Faults {
    /// The next call of an action (or of any, [`ANY`]) fails so; several line up. An action goes by its name, or by product
    /// and name where several products have one of that name: `nlb:CreateLoadBalancer`.
    pub fn script(&self, action: &str, fault: Fault) {
        self.0.lock().scripted.entry(action.into()).or_default().push_back(fault);
    }

    /// Every call of an action (or of any, [`ANY`], or of any of a product, `slb:*`) fails so, until [`Self::clear`].
    pub fn always(&self, action: &str, fault: Fault) {
        self.0.lock().standing.insert(action.into(), fault);
    }

    /// Calls of an action with such parameters, in which `*` stands for any text, fail so: so many of them, or all.
    pub fn matching(&self, action: &str, parameters: BTreeMap<String, String>, fault: Fault, count: Option<usize>) {
        self.0.lock().matching.push(Matching { action: action.into(), parameters, fault, left: count });
    }

    /// Holds a call of an action after so many others have passed.
    pub fn hold(&self, action: &str, skip: usize, moment: Moment) -> Held {
        let (point, held) = request_hold::hold_point();
        self.0.lock().holds.push(Hold { action: action.into(), skip, moment, point });
        held
    }

    /// Calls fail with a probability, in every way that has no effect or loses an answer. The same seed gives the same
    /// faults to the same calls, counted by action.
    pub fn random(&self, seed: u64, rate: f64) {
        let mut menu = Fault::before();
        menu.extend(Fault::after());
        self.random_from(seed, rate, menu);
    }

    /// As [`Self::random`], with a menu of one's own.
    pub fn random_from(&self, seed: u64, rate: f64, menu: Vec<Fault>) {
        self.0.lock().random = Some(Random { seed, rate, menu });
    }

    /// From now on nothing goes wrong.
    pub fn clear(&self) {
        let mut dial = self.0.lock();
        *dial = Dial { calls: std::mem::take(&mut dial.calls), ..Dial::default() };
    }

    /// Whether every scripted fault has happened.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.0.lock().scripted.values().all(VecDeque::is_empty)
    }

    /// The point at which a call is held, and when.
    pub(crate) fn hold_point(&self, action: &Action) -> Option<(Moment, HoldPoint)> {
        let mut dial = self.0.lock();
        let due = |hold: &mut Hold| {
            let is_meant = action.is(&hold.action);
            let passes = is_meant && hold.skip > 0;
            hold.skip -= usize::from(passes);
            is_meant && !passes
        };
        let index = dial.holds.iter_mut().position(due)?;
        let Hold { moment, point, .. } = dial.holds.remove(index);
        Some((moment, point))
    }

    /// What goes wrong with this call of an action.
    pub(crate) fn draw(&self, action: &Action, parameters: &BTreeMap<String, String>) -> Option<Fault> {
        let mut dial = self.0.lock();
        if let Some(index) = dial.matching.iter_mut().position(|it| it.applies(action, parameters)) {
            return dial.matching.get(index).map(|it| it.fault.clone());
        }
        let whole = format!("{}:{}", action.product.name(), action.name);
        // Only network load balancers share names of actions with another product.
        let counted = if action.product == Product::Nlb { whole.as_str() } else { action.name };
        let product = format!("{}:{ANY}", action.product.name());
        dial.draw(counted, &[&whole, action.name, &product, ANY], action.write)
    }

    /// What goes wrong with this read of a path in the metadata service.
    pub(crate) fn draw_path(&self, path: &str) -> Option<Fault> {
        self.0.lock().draw(path, &[path, ANY], false)
    }
}

impl Dial {
    /// `names` are those by which the call may be meant.
    fn draw(&mut self, counted: &str, names: &[&str], write: bool) -> Option<Fault> {
        let count = self.calls.entry(counted.to_owned()).or_default();
        *count += 1;
        let count = *count;
        if let Some(fault) = names.iter().find_map(|name| self.scripted.get_mut(*name)?.pop_front()) {
            return Some(fault);
        }
        if let Some(fault) = names.iter().find_map(|name| self.standing.get(*name)) {
            return Some(fault.clone());
        }
        self.random.as_ref()?.draw(counted, count, write)
    }
}

impl Random {
    fn draw(&self, action: &str, count: u64, write: bool) -> Option<Fault> {
        let name = action.bytes().fold(0_u64, |sum, byte| mix(sum ^ u64::from(byte)));
        let first = mix(self.seed ^ mix(name ^ count));
        #[expect(clippy::cast_precision_loss, reason = "53 bits are kept, which a float holds exactly")]
        let dice = (first >> 11) as f64 / (1_u64 << 53) as f64;
        let menu: Vec<&Fault> = self.menu.iter().filter(|it| it.suits(write)).collect();
        if dice >= self.rate || menu.is_empty() {
            return None;
        }
        let pick = usize::try_from(mix(first) % menu.len() as u64).unwrap_or(0);
        menu.get(pick).map(|it| (*it).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(name: &str) -> &'static Action {
        let (product, _) = name.split_once(':').unwrap();
        super::super::actions::all().find(|it| it.product.name() == product && it.is(name)).unwrap()
    }

    fn draw(faults: &Faults, name: &str) -> Option<Fault> {
        faults.draw(action(name), &BTreeMap::new())
    }

    #[test]
    fn faults_of_calls_with_certain_parameters_leave_others_alone() {
        let faults = Faults::default();
        let named = |name: &str| BTreeMap::from([("ServerGroupName".to_owned(), name.to_owned())]);
        faults.matching("nlb:CreateServerGroup", named("k8s.*.web.*"), Fault::JobFails, Some(1));
        let create = action("nlb:CreateServerGroup");
        assert_eq!(faults.draw(create, &named("k8s.80.TCP.other.ns.c")), None);
        assert_eq!(faults.draw(create, &named("k8s.80.TCP.web.ns.c")), Some(Fault::JobFails));
        assert_eq!(faults.draw(create, &named("k8s.80.TCP.web.ns.c")), None);
    }

    #[test]
    fn scripted_faults_come_in_order_and_once() {
        let faults = Faults::default();
        faults.script("nlb:CreateLoadBalancer", Fault::Drop);
        faults.script("nlb:CreateLoadBalancer", Fault::Throttle);
        assert_eq!(draw(&faults, "slb:CreateLoadBalancer"), None);
        assert_eq!(draw(&faults, "nlb:CreateLoadBalancer"), Some(Fault::Drop));
        assert!(!faults.is_spent());
        assert_eq!(draw(&faults, "nlb:CreateLoadBalancer"), Some(Fault::Throttle));
        assert_eq!(draw(&faults, "nlb:CreateLoadBalancer"), None);
        assert!(faults.is_spent());
    }

    #[test]
    fn random_faults_repeat_with_the_seed_whatever_else_is_called() {
        let draws = |others: bool| -> Vec<Option<Fault>> {
            let faults = Faults::default();
            faults.random(7, 0.5);
            let one = |_| {
                if others {
                    draw(&faults, "nlb:CreateLoadBalancer");
                }
                draw(&faults, "slb:CreateLoadBalancer")
            };
            (0..64).map(one).collect()
        };
        assert_eq!(draws(false), draws(true));
        let hits = draws(false).iter().flatten().count();
        assert!((16..48).contains(&hits), "{hits} of 64 calls failed at a rate of one half");
    }

    #[test]
    fn stale_answers_are_for_reads_only() {
        let faults = Faults::default();
        faults.random_from(1, 1.0, Fault::stale());
        assert_eq!(draw(&faults, "slb:CreateLoadBalancer"), None);
        assert!(draw(&faults, "slb:DescribeLoadBalancers").is_some());
    }
}
