//! An Alibaba Cloud account on loopback, or in process: ECS, VPC, CLB, NLB, PrivateZone, STS and the metadata
//! service.
//!
//! It speaks the vendor's protocol and verifies it on its own: signatures, tokens, nonces, clocks, parameter names. It keeps
//! the vendor's rules and defaults ([`Account`] is what it holds), goes wrong on demand ([`Faults`]) and remembers every call
//! ([`Call`]). Parameters that an action does not know, which the real cloud ignores without a word, are
//! [complaints](Cloud::complaints) here.
//!
//! Each action says what of its behaviour is documented, what was observed, and what is our guess. Distrust the guesses
//! first. `docs/evidence/conformance.md` has the [table](basis_table).
//!
//! ```text
//! request -> parameters -> who calls -> may it -> rate -> fault before -> latency -> effect -> fault after -> answer
//! ```

mod account;
mod actions;
mod basis;
mod ecs;
mod faults;
mod json;
mod log;
mod metadata;
mod nlb;
mod objects;
mod protocol;
mod pvtz;
mod restore;
mod server;
mod slb;
mod sts;
mod table;
pub mod trace;
mod vpc;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::request_hold::Moment;
use actions::{Action, Context, Product};
use protocol::{ApiError, Nonces, Params};

pub use account::*;
pub use basis::basis_table;
pub use faults::{ANY, Fault, Faults};
pub use log::Call;
pub use protocol::{form, sign, string_to_sign};
pub use server::Server;

/// How many writes back [`Fault::Stale`] can look.
const HISTORY: usize = 8;
/// How long [`Cloud::until`] waits.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it looks again although nothing was called.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Marks an answer whose connection closes in the middle of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutShort;

/// The connection was closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLost;

impl std::fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection was closed without an answer")
    }
}

impl std::error::Error for ConnectionLost {}

/// A condition that did not come true in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInTime;

impl std::fmt::Display for NotInTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the condition did not come true in time")
    }
}

impl std::error::Error for NotInTime {}

/// The simulated cloud. Cheap to clone; clones are the same cloud.
#[derive(Clone, Debug)]
pub struct Cloud(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    faults: Faults,
    log: log::Log,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    account: Account,
    /// What the account was before each of the last writes, oldest first.
    history: VecDeque<Account>,
    nonces: Nonces,
    clock_offset: SignedDuration,
    /// Begin of the current window of an action, and calls in it.
    recent: BTreeMap<(&'static str, &'static str), (Instant, u32)>,
    hidden: Vec<Hidden>,
    /// Client tokens of calls that have not finished.
    running: BTreeSet<String>,
}

/// Something new that lists do not show yet.
#[derive(Debug)]
struct Hidden {
    marks: Vec<(&'static str, Value)>,
    lists: u32,
}

/// The wall clock, moved on by what the runtime's clock has jumped, so that paused tests stay in step.
#[allow(
    clippy::disallowed_methods,
    reason = "the simulated cloud has a clock of its own, and this is where it reads it"
)]
pub(crate) fn now() -> Timestamp {
    let (real, runtime) = (std::time::Instant::now(), Instant::now().into_std());
    Timestamp::now() + runtime.saturating_duration_since(real) - real.saturating_duration_since(runtime)
}

impl Cloud {
    /// A cloud that holds this.
    #[must_use]
    pub fn new(account: Account) -> Self {
        let state = State {
            account,
            history: VecDeque::new(),
            nonces: Nonces::default(),
            clock_offset: SignedDuration::ZERO,
            recent: BTreeMap::new(),
            hidden: Vec::new(),
            running: BTreeSet::new(),
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            faults: Faults::default(),
            log: log::Log::default(),
            changes: watch::Sender::new(0),
        }))
    }

    /// What goes wrong.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// From now on nothing goes wrong, and lists show everything that there is.
    pub fn calm(&self) {
        self.0.faults.clear();
        self.0.state.lock().hidden.clear();
    }

    /// Looks at what the cloud holds.
    pub fn look<T>(&self, look: impl FnOnce(&Account) -> T) -> T {
        let mut state = self.0.state.lock();
        settle(&mut state.account);
        look(&state.account)
    }

    /// Changes what the cloud holds, as a user in the console would: it counts as a write for [`Fault::Stale`].
    pub fn edit<T>(&self, edit: impl FnOnce(&mut Account) -> T) -> T {
        let before = self.0.state.lock().now();
        let result = self.adjust(edit);
        self.0.state.lock().remember(before);
        result
    }

    /// Changes something that is not an object of the cloud.
    fn adjust<T>(&self, adjust: impl FnOnce(&mut Account) -> T) -> T {
        let result = adjust(&mut self.0.state.lock().account);
        self.changed();
        result
    }

    /// Changes how slow and busy the cloud is.
    pub fn dials(&self, edit: impl FnOnce(&mut Dials)) {
        self.adjust(|account| edit(&mut account.dials));
    }

    /// Does what somebody with every right would do in the console: `product` as in `nlb`. Nothing goes wrong on purpose.
    ///
    /// # Errors
    /// The code with which the cloud refuses it.
    pub fn act(&self, product: &str, action: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let known = actions::all().find(|it| it.product.name() == product && it.name == action);
        let action = known.ok_or_else(|| format!("{product}:{action} is unknown"))?;
        let values = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let params = Params { values, ..Params::default() };
        let result = action.require(&params).and_then(|()| self.run(action, &params, false, None));
        self.changed();
        result.map_err(|error| error.code)
    }

    /// Adds a running instance, see [`Account::add_instance`].
    pub fn add_instance(&self, id: &str, name: &str, vswitch: &str, ip: &str) {
        self.edit(|account| {
            account.add_instance(id, name, vswitch, ip);
        });
    }

    /// Takes an instance away, see [`Account::release_instance`].
    pub fn release_instance(&self, id: &str) {
        self.edit(|account| account.release_instance(id));
    }

    /// Stops an instance.
    pub fn stop_instance(&self, id: &str) {
        self.set_instance_status(id, "Stopped");
    }

    /// Starts an instance.
    pub fn start_instance(&self, id: &str) {
        self.set_instance_status(id, "Running");
    }

    fn set_instance_status(&self, id: &str, status: &str) {
        self.edit(|account| {
            if let Some(instance) = account.instances.get_mut(id) {
                instance.status = status.into();
            }
        });
    }

    /// Load balancers, routes and instances as JSON, for assertions.
    #[must_use]
    pub fn snapshot(&self) -> Value {
        self.look(json::snapshot)
    }

    /// One load balancer as in [`Self::snapshot`], `Null` if there is none.
    #[must_use]
    pub fn load_balancer(&self, id: &str) -> Value {
        self.look(|account| account.load_balancers.get(id).map_or(Value::Null, |it| json::load_balancer(id, it)))
    }

    /// One network load balancer as in [`Self::snapshot`], `Null` if there is none.
    #[must_use]
    pub fn network_load_balancer(&self, id: &str) -> Value {
        let one = |account: &Account| Some(nlb::shown_balancer(account, id, account.nlb.balancers.get(id)?));
        self.look(|account| one(account).unwrap_or_default())
    }

    /// The time of the cloud.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        now() + self.0.state.lock().clock_offset
    }

    /// Moves the clock of the cloud: tokens expire, and clients with the old time are refused.
    pub fn advance(&self, by: SignedDuration) {
        self.0.state.lock().clock_offset += by;
    }

    /// Every call so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.0.log.calls()
    }

    /// Every call so far, which are then forgotten.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        self.0.log.take()
    }

    /// How often an action was called, by its name, or by product and name as in `nlb:CreateLoadBalancer`.
    #[must_use]
    pub fn count(&self, action: &str) -> usize {
        let (product, name) = action.split_once(':').unwrap_or(("", action));
        let is_meant = |it: &&Call| it.action == name && (product.is_empty() || it.product == product);
        self.0.log.look(|calls| calls.iter().filter(is_meant).count())
    }

    /// The calls so far that can change something.
    #[must_use]
    pub fn writes(&self) -> Vec<Call> {
        self.0.log.look(|calls| calls.iter().filter(|it| it.write).cloned().collect())
    }

    /// How many calls so far can change something.
    #[must_use]
    pub fn count_writes(&self) -> usize {
        self.0.log.look(|calls| calls.iter().filter(|it| it.write).count())
    }

    /// What a client did that the real cloud would ignore or merely tolerate. Empty for a client without mistakes.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.0.log.complaints()
    }

    /// Counts up with every call and every edit.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Waits, at most 30 seconds, until the account is so.
    ///
    /// # Errors
    /// It did not come true.
    pub async fn until(&self, is_so: impl Fn(&Account) -> bool) -> Result<(), NotInTime> {
        self.until_within(PATIENCE, |cloud| cloud.look(&is_so)).await
    }

    /// Waits, at most 30 seconds, until the calls so far are so.
    ///
    /// # Errors
    /// It did not come true.
    pub async fn until_calls(&self, is_so: impl Fn(&[Call]) -> bool) -> Result<(), NotInTime> {
        self.until_within(PATIENCE, |cloud| cloud.0.log.look(&is_so)).await
    }

    /// Waits until something is so, looking again after every call and edit and now and then in between.
    ///
    /// # Errors
    /// It did not come true in that time.
    async fn until_within(&self, patience: Duration, is_so: impl Fn(&Self) -> bool) -> Result<(), NotInTime> {
        let mut changes = self.changes();
        let wait = async {
            loop {
                changes.mark_unchanged();
                if is_so(self) {
                    return;
                }
                // Some states, such as `Pending`, end by themselves.
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
            }
        };
        tokio::time::timeout(patience, wait).await.map_err(|_| NotInTime)
    }

    fn changed(&self) {
        self.0.changes.send_modify(|it| *it += 1);
    }

    /// Answers one request, to a product or to the metadata service. What a call does, it does even if the caller goes away.
    ///
    /// # Errors
    /// The connection was closed without an answer.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionLost> {
        let cloud = self.clone();
        tokio::spawn(async move { cloud.answer(request).await }).await.unwrap_or(Err(ConnectionLost))
    }

    /// As [`Self::handle`], for callers that cannot show half an answer: a body that ends too early is a lost connection.
    ///
    /// # Errors
    /// The connection was closed without a whole answer.
    pub async fn handle_whole(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionLost> {
        let answer = self.handle(request).await?;
        if answer.extensions().get::<CutShort>().is_some() { Err(ConnectionLost) } else { Ok(answer) }
    }

    async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionLost> {
        if request.uri().path().starts_with("/latest/") {
            return metadata::answer(self, &request).await;
        }
        let params = Params::read(&request);
        let host = request.headers().get("host").and_then(|it| it.to_str().ok());
        let host = host.or(request.uri().host()).unwrap_or("localhost").to_owned();
        let request_id = uuid::Uuid::new_v4().to_string().to_uppercase();
        let mut call = Call {
            time: self.now(),
            ended: self.now(),
            product: "",
            caller: params.get("AccessKeyId").unwrap_or_default().into(),
            action: params.get("Action").unwrap_or_default().into(),
            parameters: log::without_secrets(params.business()),
            outcome: String::new(),
            write: false,
            effective: false,
            fault: None,
            request_id: request_id.clone(),
        };
        let result = self.call(&params, &host, &mut call).await;
        call.outcome = match &result {
            Ok(_) => "OK".into(),
            Err(error) => error.code.clone(),
        };
        let fault = call.fault.clone();
        call.ended = self.now();
        self.0.log.push(call);
        self.changed();
        let mut response = match result {
            Ok(mut body) => {
                body["RequestId"] = request_id.clone().into();
                protocol::respond(StatusCode::OK, &body, &request_id)
            }
            Err(error) => error.into_response(&request_id, &host),
        };
        if let Ok(date) = self.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().parse() {
            response.headers_mut().insert("date", date);
        }
        spoil(response, fault, &request_id, &host).await
    }

    async fn call(&self, params: &Params, host: &str, call: &mut Call) -> Result<Value, ApiError> {
        let action = actions::find(params.need("Action")?, params.need("Version")?, host)?;
        call.product = action.product.name();
        call.write = action.write;
        self.complain_about(action, params);
        let denied = self.admit(action, params)?;
        call.fault = self.0.faults.draw(action, &params.values);
        let mut hold = self.0.faults.hold_point(action);
        if let Some((_, point)) = hold.take_if(|(moment, _)| *moment == Moment::Before)
            && !point.pass().await
        {
            call.fault = Some(Fault::Drop);
        }
        match &call.fault {
            Some(Fault::Refuse(status, code, message)) => return Err(ApiError::new(*status, code, message.as_str())),
            Some(Fault::Throttle) => return Err(throttled()),
            Some(Fault::Unavailable) => {
                let message = "The request has failed due to a temporary failure of the server.";
                return Err(ApiError::new(503, "ServiceUnavailable", message));
            }
            Some(Fault::Drop | Fault::HangBefore(_)) => {
                return Err(ApiError::new(500, "NoAnswer", "The connection is closed before anything happens."));
            }
            _ => {}
        }
        action.require(params)?;
        if action.product == Product::Nlb && action.write && params.get("DryRun") == Some("true") {
            let message = "Request validation has been passed with DryRun flag set.";
            return Err(ApiError::new(400, "DryRunOperation", message));
        }
        let token = self.begin(action, params)?;
        let result = self.take_effect(action, params, denied, call.fault.as_ref()).await;
        self.end(token);
        call.effective = action.write && result.is_ok();
        if let Some((_, point)) = hold
            && !point.pass().await
        {
            call.fault = Some(Fault::AnswerLost);
        }
        result
    }

    /// Marks the client token of a call as being worked on; a second call with it is refused meanwhile.
    fn begin(&self, action: &Action, params: &Params) -> Result<Option<String>, ApiError> {
        let Some(token) = params.get("ClientToken") else { return Ok(None) };
        let key = format!("{}:{}/{token}", action.product.name(), action.name);
        if self.0.state.lock().running.insert(key.clone()) {
            return Ok(Some(key));
        }
        let code = match action.product {
            Product::Slb => "OperationFailed.TokenIsProcessing",
            Product::Nlb => "IdempotenceProcessing",
            _ => "LastTokenProcessing",
        };
        Err(ApiError::new(400, code, "An earlier call with the same ClientToken is still being processed."))
    }

    fn end(&self, token: Option<String>) {
        if let Some(token) = token {
            self.0.state.lock().running.remove(&token);
        }
    }

    async fn take_effect(
        &self,
        action: &Action,
        params: &Params,
        denied: bool,
        fault: Option<&Fault>,
    ) -> Result<Value, ApiError> {
        let vpc = if action.product == Product::Vpc && action.write { Some(self.enter_vpc(params)?) } else { None };
        self.take_time(action, fault).await;
        let result = self.run(action, params, denied, fault);
        if let Some(vpc) = vpc {
            self.leave_vpc(&vpc, result.is_ok());
        }
        result
    }

    /// Whether the caller is known, allowed and within its rate; `true` means that it may not see anything.
    fn admit(&self, action: &Action, params: &Params) -> Result<bool, ApiError> {
        let mut state = self.0.state.lock();
        let now = now() + state.clock_offset;
        let State { account, nonces, recent, .. } = &mut *state;
        let mut denied = false;
        if action.signed {
            let key = protocol::authenticate(params, account, nonces, now)?;
            // Who one is, one may always ask.
            let (product, name) = (action.product.name(), action.name);
            denied = name != "GetCallerIdentity" && !key.may(product, name);
            let is_listed = key.lists(product, name) || name == "GetCallerIdentity";
            if !is_listed {
                account.unlisted.insert(format!("{product}:{name}"));
            }
        }
        let sees_nothing = action.product == Product::Ecs
            && !action.write
            && !action.name.contains("SecurityGroup")
            && params.get("DryRun") != Some("true");
        if denied && !sees_nothing {
            return Err(ApiError::forbidden(action.product.name(), action.name));
        }
        if let Some(region) = params.get("RegionId")
            && region != account.region
            && !account.other_regions.contains(region)
        {
            let message = "The specified RegionId does not exist.";
            return Err(ApiError::new(404, "InvalidRegionId.NotFound", message));
        }
        if account.dials.rate_quotas {
            let given = account.dials.rates.get(action.name).copied();
            let rate = given.map_or_else(|| actions::rate(action), actions::Rate::per_minute);
            let start = Instant::now();
            let window = recent.entry((action.product.name(), action.name)).or_insert((start, 0));
            if start.duration_since(window.0) >= rate.window {
                *window = (start, 0);
            }
            if window.1 >= rate.calls {
                return Err(throttled());
            }
            window.1 += 1;
        }
        Ok(denied)
    }

    fn complain_about(&self, action: &Action, params: &Params) {
        let say = |what: String| self.0.log.complain(format!("{}: {what}", action.name));
        for name in params.values.keys() {
            if !protocol::COMMON.contains(&name.as_str()) && !action.knows(&protocol::pattern_of(name)) {
                say(format!("the action has no parameter {name}"));
            }
        }
        for name in &params.doubled {
            say(format!("{name} was sent twice"));
        }
        let mut listed = BTreeSet::new();
        for (name, value) in &params.values {
            let Some((list, number)) = name.rsplit_once('.') else { continue };
            if number.bytes().all(|digit| digit.is_ascii_digit()) && !listed.insert((list, value)) {
                say(format!("{list} names {value} twice"));
            }
        }
        for (name, value) in &params.values {
            let may_be_empty = name.starts_with("Tag.") && name.ends_with(".Value");
            if value.is_empty() && !may_be_empty {
                say(format!("{name} was sent empty"));
            }
        }
        if action.product != Product::Sts && params.get("RegionId").is_none() {
            say("RegionId was not sent".into());
        }
        if !params.get("Format").is_some_and(|it| it.eq_ignore_ascii_case("JSON")) {
            say("Format is not JSON, so the answer would be XML".into());
        }
    }

    fn enter_vpc(&self, params: &Params) -> Result<String, ApiError> {
        vpc::enter(&mut self.0.state.lock().account, params)
    }

    fn leave_vpc(&self, vpc: &str, wrote: bool) {
        vpc::leave(&mut self.0.state.lock().account, vpc, wrote);
    }

    async fn take_time(&self, action: &Action, fault: Option<&Fault>) {
        let mut time = self
            .look(|account| account.dials.action_latency.get(action.name).copied().unwrap_or(account.dials.latency));
        if let Some(Fault::Slow(more)) = fault {
            time += *more;
        }
        if time.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(time).await;
        }
    }

    fn run(&self, action: &Action, params: &Params, denied: bool, fault: Option<&Fault>) -> Result<Value, ApiError> {
        let mut state = self.0.state.lock();
        let now = now() + state.clock_offset;
        let mut other = match fault {
            _ if denied => Some(Account::new(&state.account.region)),
            Some(Fault::Stale(back)) if !action.write => {
                let index = state.history.len().saturating_sub(*back);
                state.history.get(index).cloned()
            }
            _ => None,
        };
        let before = if action.write { state.now() } else { None };
        let account = other.as_mut().unwrap_or(&mut state.account);
        let in_region = params.get("RegionId").is_none_or(|it| it == account.region);
        let mut elsewhere = (!in_region).then(|| Account::new(params.get("RegionId").unwrap_or_default()));
        let account = elsewhere.as_mut().unwrap_or(account);
        settle(account);
        let job_fails = fault == Some(&Fault::JobFails);
        let mut context = Context { account, params, now, action, log: &self.0.log, job_fails };
        let mut answer = (action.run)(&mut context)?;
        state.remember(before);
        if let Some(Fault::Hidden(lists) | Fault::LostAndHidden(lists)) = fault {
            let new = actions::marks(action, params, &answer);
            state.hidden.extend(new.into_iter().map(|marks| Hidden { marks, lists: *lists }));
        }
        if let Some(items) = action.list.and_then(|path| answer.pointer_mut(path)).and_then(Value::as_array_mut) {
            state.hide(items);
            if let Some(Fault::Partial(keep)) = fault {
                items.truncate(*keep);
                if let Some(answer) = answer.as_object_mut() {
                    answer.remove("NextToken");
                }
            }
        }
        Ok(answer)
    }
}

impl State {
    /// The account as it is before a write, if that is to be remembered.
    fn now(&self) -> Option<Account> {
        (!self.account.dials.forgetful).then(|| self.account.clone())
    }

    fn remember(&mut self, before: Option<Account>) {
        self.history.extend(before);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    fn hide(&mut self, items: &mut Vec<Value>) {
        for hidden in &mut self.hidden {
            let before = items.len();
            items.retain(|item| !hidden.marks.iter().all(|(field, value)| item[*field] == *value));
            if items.len() < before {
                hidden.lists -= 1;
            }
        }
        self.hidden.retain(|it| it.lists > 0);
    }
}

/// Ends what the cloud was removing until now.
fn settle(account: &mut Account) {
    nlb::settle(account);
    vpc::settle(account);
}

fn throttled() -> ApiError {
    ApiError::new(400, "Throttling.User", "Request was denied due to user flow control.")
}

/// What becomes of an answer on its way.
async fn spoil(
    mut response: Response<Bytes>,
    fault: Option<Fault>,
    request_id: &str,
    host: &str,
) -> Result<Response<Bytes>, ConnectionLost> {
    match fault {
        Some(Fault::Drop | Fault::AnswerLost | Fault::LostAndHidden(_)) => Err(ConnectionLost),
        Some(Fault::HangBefore(time) | Fault::HangAfter(time)) => {
            tokio::time::sleep(time).await;
            Err(ConnectionLost)
        }
        Some(Fault::ErrorAfterEffect) => {
            let message = "The request processing has failed due to some unknown error.";
            Ok(ApiError::new(500, "InternalError", message).into_response(request_id, host))
        }
        Some(Fault::Truncated) => {
            let half = response.body().len() / 2;
            response.body_mut().truncate(half);
            response.extensions_mut().insert(CutShort);
            Ok(response)
        }
        Some(Fault::GatewayPage) => {
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            *response.body_mut() = Bytes::from_static(b"<html><body>502 Bad Gateway</body></html>");
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/html"));
            Ok(response)
        }
        Some(Fault::Garbled) => {
            *response.body_mut() = Bytes::from_static(b"{\"RequestId\":");
            Ok(response)
        }
        _ => Ok(response),
    }
}
