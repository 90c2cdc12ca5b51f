//! The fault dial: single faults for the next matching request, latency, and seeded random trouble.

use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use super::request::Request;
use crate::request_hold::{self, HoldPoint};

pub use crate::request_hold::{Held, Moment};

/// Which requests a fault is for.
#[derive(Clone, Debug, Default)]
pub struct Match {
    verb: Option<String>,
    target: Option<String>,
    name: Option<String>,
    user_agent: Option<String>,
    reason: Option<String>,
}

impl Match {
    /// Every request for objects.
    pub fn any() -> Match {
        Match::default()
    }

    /// Requests with a verb (such as `patch`) for a resource (`nodes`, `nodes/status`); `*` fits all.
    pub fn new(verb: &str, target: &str) -> Match {
        let given = |text: &str| (text != "*").then(|| text.to_owned());
        Match { verb: given(verb), target: given(target), ..Match::default() }
    }

    /// Only for the object of this name.
    pub fn named(self, name: &str) -> Match {
        Match { name: Some(name.to_owned()), ..self }
    }

    /// Only from clients whose user agent contains this.
    pub fn from(self, user_agent: &str) -> Match {
        Match { user_agent: Some(user_agent.to_owned()), ..self }
    }

    /// Only for the making of events with this reason.
    pub fn because(self, reason: &str) -> Match {
        Match { reason: Some(reason.to_owned()), ..self }
    }

    fn fits(&self, request: &Request, body: &Value) -> bool {
        self.verb.as_deref().is_none_or(|verb| verb == request.verb)
            && self.target.as_deref().is_none_or(|target| target == request.target())
            && self.name.as_deref().is_none_or(|name| name == request.name)
            && self.user_agent.as_deref().is_none_or(|agent| request.user_agent.contains(agent))
            && self.reason.as_deref().is_none_or(|reason| body["reason"] == reason)
    }
}

/// What happens to a matching request.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It is answered with this refusal and changes nothing.
    Refuse(Failure),
    /// The connection breaks before the server sees it.
    LoseRequest,
    /// It takes effect, and the connection breaks before the answer.
    LoseAnswer,
    /// It takes effect after this time.
    Delay(Duration),
    /// It takes effect, and the answer comes after this time.
    DelayAnswer(Duration),
}

/// Random faults: each probability is between 0 and 1, drawn for each request from the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    pub seed: u64,
    /// Refused with 500, 429, 503 or 504 in turn.
    pub refuse: f64,
    pub lose_request: f64,
    pub lose_answer: f64,
    /// All watches end before the request.
    pub drop_watches: f64,
    /// Each request takes up to this long.
    pub latency: Duration,
}

/// One thing to do with a request.
#[derive(Debug)]
pub(super) enum Step {
    Wait(Duration),
    Pass(HoldPoint),
    Refuse(Failure),
    Lose,
    DropWatches,
}

/// What to do with a request before and after it takes effect.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) before: Vec<Step>,
    pub(super) after: Vec<Step>,
}

#[derive(Debug)]
struct Rule {
    matching: Match,
    trouble: Trouble,
    /// How many fitting requests pass first.
    skip: usize,
    /// How many more requests it is for.
    left: usize,
}

#[derive(Debug)]
enum Trouble {
    Effect(Effect),
    Hold(Moment, Option<HoldPoint>),
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    latency: Duration,
    chaos: Option<(Chaos, Dice)>,
}

impl Faults {
    pub(super) fn add(&mut self, matching: Match, effect: Effect, times: usize) {
        self.rules.push(Rule { matching, trouble: Trouble::Effect(effect), skip: 0, left: times });
    }

    pub(super) fn hold(&mut self, matching: Match, skip: usize, moment: Moment) -> Held {
        let (point, held) = request_hold::hold_point();
        self.rules.push(Rule { matching, trouble: Trouble::Hold(moment, Some(point)), skip, left: 1 });
        held
    }

    pub(super) fn set_latency(&mut self, latency: Duration) {
        self.latency = latency;
    }

    pub(super) fn set_chaos(&mut self, chaos: Option<Chaos>) {
        self.chaos = chaos.map(|chaos| (chaos, Dice(chaos.seed)));
    }

    pub(super) fn clear(&mut self) {
        *self = Faults::default();
    }

    /// Takes the oldest fault that fits the request, and what chance adds.
    pub(super) fn plan(&mut self, request: &Request, body: &Value) -> Plan {
        let mut plan = Plan::default();
        if !self.latency.is_zero() {
            plan.before.push(Step::Wait(self.latency));
        }
        if let Some((chaos, dice)) = &mut self.chaos {
            throw(chaos, dice, &mut plan);
        }
        let due = |rule: &mut Rule| {
            let fits = rule.left > 0 && rule.matching.fits(request, body);
            let passes = fits && rule.skip > 0;
            rule.skip -= usize::from(passes);
            fits && !passes
        };
        let Some(index) = self.rules.iter_mut().position(due) else {
            return plan;
        };
        let rule = &mut self.rules[index];
        rule.left -= 1;
        match &mut rule.trouble {
            Trouble::Effect(Effect::Refuse(failure)) => plan.before.push(Step::Refuse(failure.clone())),
            Trouble::Effect(Effect::LoseRequest) => plan.before.push(Step::Lose),
            Trouble::Effect(Effect::LoseAnswer) => plan.after.push(Step::Lose),
            Trouble::Effect(Effect::Delay(time)) => plan.before.push(Step::Wait(*time)),
            Trouble::Effect(Effect::DelayAnswer(time)) => plan.after.push(Step::Wait(*time)),
            Trouble::Hold(moment, point) => {
                let steps = if *moment == Moment::Before { &mut plan.before } else { &mut plan.after };
                steps.extend(point.take().map(Step::Pass));
            }
        }
        if rule.left == 0 {
            self.rules.remove(index);
        }
        plan
    }
}

fn throw(chaos: &Chaos, dice: &mut Dice, plan: &mut Plan) {
    // Every draw happens for every request, so that the same seed gives the same sequence whatever comes out.
    let (wait, refuse, lose_request, lose_answer, drop, which) =
        (dice.unit(), dice.unit(), dice.unit(), dice.unit(), dice.unit(), dice.unit());
    if !chaos.latency.is_zero() {
        plan.before.push(Step::Wait(chaos.latency.mul_f64(wait)));
    }
    if drop < chaos.drop_watches {
        plan.before.push(Step::DropWatches);
    }
    if lose_request < chaos.lose_request {
        plan.before.push(Step::Lose);
    }
    if refuse < chaos.refuse {
        let failure = match which {
            w if w < 0.25 => Failure::internal_error(),
            w if w < 0.5 => Failure::too_many_requests(1),
            w if w < 0.75 => Failure::unavailable(),
            _ => Failure::timeout(),
        };
        plan.before.push(Step::Refuse(failure));
    }
    if lose_answer < chaos.lose_answer {
        plan.after.push(Step::Lose);
    }
}

/// Reproducible randomness (splitmix64).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1, without 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
