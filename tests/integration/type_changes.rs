//! Services that stop to ask for a load balancer and ask again, at any pace, while what they want changes and the process is
//! killed at any write: each new load balancer is made by the first call for it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sim::cloud::Call;
use sim::cluster::{Match, Moment, Version};
use sim::request_hold::Held;
use sim::testbed::Testbed;
use tokio::time::Instant;

use crate::harness::HASTE;
use crate::in_process::{Product, UNCHECKED, in_parallel, on_a_clock_of_its_own};
use crate::kinds::{Kind, annotate};

/// The types that the Service has, one after the other.
const TYPES: [&str; 5] = ["LoadBalancer", "ClusterIP", "LoadBalancer", "NodePort", "LoadBalancer"];
/// Time between two changes: all is settled, jobs of the cloud are pending, or nothing has begun.
const PACES: [Duration; 4] =
    [Duration::from_secs(60), Duration::from_secs(3), Duration::from_millis(500), Duration::from_millis(40)];
/// How long after the last change the Service may be without an address.
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Life {
    kind: Kind,
    pace: Duration,
    /// Whether the load balancer gets another name and nodes come in another zone while the Service asks for none.
    changes: bool,
}

/// The `nth` write of its kind (from 0): to the cloud by its action, or to the cluster by verb and target.
#[derive(Clone, Debug)]
struct Site {
    action: Option<String>,
    request: (String, String),
    nth: usize,
}

impl Site {
    fn hold(&self, testbed: &Testbed, moment: Moment) -> Held {
        match &self.action {
            Some(action) => testbed.cloud.faults().hold(action, self.nth, moment),
            None => testbed.cluster.hold_nth(Match::new(&self.request.0, &self.request.1), self.nth, moment),
        }
    }
}

/// All writes about Services so far.
fn sites(testbed: &Testbed) -> Vec<Site> {
    let cloud = testbed
        .cloud
        .writes()
        .into_iter()
        .map(|call| (Some(format!("{}:{}", call.product, call.action)), Default::default()));
    let requests = testbed.cluster.writes().into_iter().map(|call| (None, (call.verb.to_owned(), call.target())));
    let requests = requests.filter(|(_, (_, target))| target.starts_with("services"));
    let mut counts = BTreeMap::new();
    cloud
        .chain(requests)
        .map(|(action, request)| {
            let count = counts.entry((action.clone(), request.clone())).or_insert(0);
            *count += 1;
            Site { action, request, nth: *count - 1 }
        })
        .collect()
}

impl Life {
    /// The Service changes its type again and again, and ends as it began. The process is killed once, if `killed` says where.
    /// Gives what was written.
    async fn run(self, killed: Option<(Site, Moment)>) -> Result<Vec<Site>, String> {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.cloud.dials(|dials| {
            dials.latency = Duration::from_millis(5);
            dials.nlb_creation_time = Duration::from_secs(2);
            dials.nlb_job_time = Duration::from_millis(300);
        });
        testbed.cluster.set_latency(Duration::from_millis(2));
        [1, 3].into_iter().for_each(|number| drop(testbed.join(number)));
        self.kind.expose(&testbed, "web", &[80], &[1]);
        let start = || Product::start(&testbed, &["node", self.kind.controller()], &format!("{HASTE}{UNCHECKED}"));
        let script = async {
            for (step, kind) in TYPES.into_iter().enumerate().skip(1) {
                tokio::time::sleep(self.pace).await;
                self.step(&testbed, step, kind);
            }
        };
        let process = async {
            let process = start();
            let Some((site, moment)) = &killed else { return process };
            let (held, began) = (site.hold(&testbed, *moment), Instant::now());
            while !held.has_arrived() && began.elapsed() < 4 * self.pace + LONG {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(process);
            held.lose();
            start()
        };
        let (_process, ()) = tokio::join!(process, script);
        let began = Instant::now();
        while !self.is_served(&testbed) {
            if began.elapsed() > LONG {
                return Err(format!("not served: {:#?}", creations(&testbed)));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let refused: Vec<Call> = creations(&testbed).into_iter().filter(|it| it.outcome != "OK").collect();
        if !refused.is_empty() {
            return Err(format!("refused: {refused:#?}"));
        }
        Ok(sites(&testbed))
    }

    fn step(self, testbed: &Testbed, step: usize, kind: &str) {
        if self.changes && kind == "LoadBalancer" {
            annotate(testbed, "web", "name", &format!("name-{step}"));
            let number = 2 * u8::try_from(step).unwrap();
            [number, number + 20].into_iter().for_each(|number| drop(testbed.join(number)));
        }
        change_type(testbed, self.kind, kind);
    }

    /// Whether the Service publishes the only load balancer there is, which has what the Service asks for.
    fn is_served(self, testbed: &Testbed) -> bool {
        let service = testbed.cluster.get("Service", "default", "web").unwrap();
        let published: Vec<String> = testbed.cloud.look(|account| match self.kind {
            Kind::Clb => account.load_balancers.values().map(|lb| lb.address.clone()).collect(),
            Kind::Nlb => account.nlb.balancers.values().map(|lb| lb.dns.clone()).collect(),
        });
        self.kind.listeners(testbed) == [80]
            && published.len() == 1
            && self.kind.published(&service) == Some(published[0].as_str())
    }

    fn run_on_a_clock_of_its_own(self, killed: Option<(Site, Moment)>) -> Result<Vec<Site>, String> {
        let what = format!("{self:?}, killed: {killed:?}");
        let (result, log) = on_a_clock_of_its_own(0, self.run(killed));
        result.map_err(|wrong| format!("{what}\n{wrong}\n{log}"))
    }
}

/// The API server drops the class with the type.
fn change_type(testbed: &Testbed, of: Kind, kind: &str) {
    let mut spec = json!({"type": kind});
    if kind == "LoadBalancer" {
        of.classify(&mut spec);
    }
    testbed.cluster.patch("Service", "default", "web", &json!({"spec": spec})).unwrap();
}

/// The calls for a load balancer, without those that the test broke.
fn creations(testbed: &Testbed) -> Vec<Call> {
    let calls = testbed.cloud.calls().into_iter();
    calls.filter(|call| call.action == "CreateLoadBalancer" && call.fault.is_none()).collect()
}

fn lives() -> Vec<Life> {
    let each = |kind| PACES.map(|pace| [false, true].map(|changes| Life { kind, pace, changes }));
    Kind::BOTH.into_iter().flat_map(each).flatten().collect()
}

fn report(outcomes: Vec<Result<Vec<Site>, String>>) -> Vec<Vec<Site>> {
    let (good, wrong): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), good.len() + wrong.len(), wrong.join("\n\n"));
    good.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_asks_for_a_load_balancer_again_gets_one_at_the_first_attempt() {
    report(in_parallel(lives().len(), |index| lives()[index].run_on_a_clock_of_its_own(None)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_write_between_two_changes_of_the_type_the_first_attempt_succeeds() {
    let is_chosen = |life: &Life| life.changes && [PACES[0], PACES[2]].contains(&life.pace);
    let lives = move || lives().into_iter().filter(is_chosen).collect::<Vec<_>>();
    let undisturbed =
        report(in_parallel(lives().len(), move |index| lives()[index].run_on_a_clock_of_its_own(None)).await);
    // Before and after the effect in turn.
    let moments = [Moment::Before, Moment::After].into_iter().cycle();
    let each = lives().into_iter().zip(undisturbed);
    let planned: Vec<(Life, Site, Moment)> = each
        .flat_map(|(life, sites)| sites.into_iter().map(move |site| (life, site)))
        .zip(moments)
        // Every write of a life is played by the nightly run of crashes; here, some of each.
        .step_by(5)
        .map(|((life, site), moment)| (life, site, moment))
        .collect();
    let crashes = planned.clone();
    let outcomes = in_parallel(planned.len(), move |index| {
        let (life, site, moment) = crashes[index].clone();
        life.run_on_a_clock_of_its_own(Some((site, moment)))
    });
    report(outcomes.await);
}

/// How long the finalizer outlives the load balancer, and how many looks at jobs that takes.
async fn released_after(deletion: Duration) -> (Duration, usize) {
    let testbed = Testbed::open(Version::NEWEST).await.unwrap();
    testbed.cloud.dials(|dials| {
        dials.nlb_job_time = Duration::from_millis(300);
        dials.nlb_job_times.insert("DeleteLoadBalancer".to_owned(), deletion);
    });
    testbed.join(1);
    Kind::Nlb.expose(&testbed, "web", &[80], &[1]);
    let _product = Product::start(&testbed, &["node", "nlb"], &format!("{HASTE}{UNCHECKED}"));
    let service = || testbed.cluster.get("Service", "default", "web").unwrap();
    while Kind::Nlb.published(&service()).is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let looks = testbed.cloud.count("ListAsynJobs");
    let began = Instant::now();
    change_type(&testbed, Kind::Nlb, "NodePort");
    while !service()["metadata"]["finalizers"].is_null() {
        assert!(began.elapsed() < LONG, "it keeps its finalizer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(service()["metadata"]["annotations"].is_null(), "what was written with the finalizer goes with it");
    (began.elapsed().saturating_sub(deletion), testbed.cloud.count("ListAsynJobs") - looks)
}

#[test]
fn the_finalizer_goes_soon_after_the_network_load_balancer() {
    for (deletion, latest, most) in [(300, 3500, 2), (3000, 3500, 4), (20_000, 7000, 8)] {
        let ((after, looks), log) = on_a_clock_of_its_own(0, released_after(Duration::from_millis(deletion)));
        assert!(
            after < Duration::from_millis(latest) && looks <= most,
            "a deletion of {deletion} ms: {after:?} later, {looks} looks\n{log}"
        );
    }
}
