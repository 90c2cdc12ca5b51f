//! One action of the cloud fails for the whole run: everything that does not need it goes on.
//!
//! A [`Story`] says what has to come about and which actions each of it cannot do without. Every action that an undisturbed run calls fails in turn,
//! once because the permission is missing and once by an error of the server; then exactly those outcomes are missing that
//! need it.

mod clb;
mod nlb;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use sim::cloud::{Account, Certificate, Fault};
use sim::cluster::{Endpoint, Version};
use sim::testbed::{ACCESS_KEY, Testbed, instance};
use tokio::time::Instant;

use crate::availability::served;
use crate::end_state::Row;
use crate::harness::HASTE;
use crate::in_process::{Product, UNCHECKED, in_parallel, on_a_clock_of_its_own};
use crate::kinds::Kind;

const PREFIX: &str = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-";
/// How long the outcomes that are possible may take.
const LIMIT: Duration = Duration::from_secs(180);

/// Services on one kind of load balancer, and what happens to them.
#[derive(Clone, Copy)]
struct Story {
    kind: Kind,
    /// The controllers whose actions fail.
    controllers: &'static [&'static str],
    /// What the cloud holds before.
    furnish: fn(&mut Account),
    subjects: &'static [Subject],
    /// What the cluster holds before besides.
    prepare: fn(&Testbed),
    /// What happens besides while the action fails.
    change: fn(&Testbed),
    /// Actions without which the backends of a Service do not follow.
    follows: fn(&str) -> &'static [&'static str],
    /// What must come about besides.
    outcomes: fn() -> Vec<Outcome>,
}

/// How an action fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Denied,
    ServerError,
}

/// What must come about.
struct Outcome {
    what: String,
    /// Actions without which it cannot come about. `Action/denied` is needed only where the permission is missing,
    /// `Action/error` only where the server fails.
    needs: Vec<&'static str>,
    is_so: Box<dyn Fn(&Testbed) -> bool + Send + Sync>,
}

impl Outcome {
    fn is_prevented(&self, action: &str, failure: Failure) -> bool {
        let suffix = if failure == Failure::Denied { "/denied" } else { "/error" };
        self.needs.iter().any(|need| need.strip_suffix(suffix).unwrap_or(need) == action)
    }
}

/// A Service before and after its user changed it.
struct Subject {
    name: &'static str,
    before: fn() -> Value,
    after: fn() -> Value,
}

/// Annotations, ports as `port/protocol`, and source ranges of a Service.
fn spec(annotations: &[(&str, &str)], ports: &[&str], ranges: &[&str]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    let ports: Vec<_> = ports
        .iter()
        .map(|text| {
            let (port, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
            let port: u16 = port.parse().unwrap();
            json!({"name": format!("p{port}"), "port": port, "targetPort": 8000, "protocol": protocol})
        })
        .collect();
    let mut spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports});
    spec["loadBalancerSourceRanges"] = if ranges.is_empty() { Value::Null } else { json!(ranges) };
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

impl Story {
    fn expose(&self, testbed: &Testbed, name: &str, spec: &Value) {
        let mut service = spec.clone();
        service["apiVersion"] = "v1".into();
        service["kind"] = "Service".into();
        service["metadata"]["name"] = name.into();
        service["metadata"]["namespace"] = "default".into();
        self.kind.classify(&mut service["spec"]);
        testbed.cluster.create(service).unwrap();
        serve(testbed, name, 1);
    }

    /// Everything there is before, brought about by the product undisturbed.
    async fn before(&self) -> Testbed {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.cloud.edit(|cloud| {
            for id in ["cert-1", "cert-2", "cert-3"] {
                let expires = jiff::Timestamp::from_second(4_000_000_000).unwrap();
                cloud.certificates.insert(id.into(), Certificate { common_name: "example.com".into(), expires });
            }
            (self.furnish)(cloud);
        });
        for number in 1..=3 {
            testbed.join(number);
        }
        for Subject { name, before, .. } in self.subjects {
            self.expose(&testbed, name, &before());
        }
        self.expose(&testbed, "gone", &spec(&[], &["80"], &[]));
        (self.prepare)(&testbed);
        {
            let _product = Product::start(&testbed, self.controllers, &format!("{HASTE}{UNCHECKED}"));
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        testbed
    }

    /// What users, pods and machines do while the action fails.
    fn change(&self, testbed: &Testbed) {
        for Subject { name, after, .. } in self.subjects {
            testbed.cluster.patch("Service", "default", name, &after()).unwrap();
            serve(testbed, name, 2);
        }
        (self.change)(testbed);
        testbed.cluster.delete("Service", "default", "gone").unwrap();
        self.expose(testbed, "new", &spec(&[], &["80"], &[]));
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let followed = self.subjects.iter().map(|Subject { name, before, .. }| {
            let port = before()["spec"]["ports"][0]["port"].as_u64().unwrap();
            let port = u16::try_from(port).unwrap();
            let what = format!("{name}: the backends follow the endpoints");
            outcome(what, (self.follows)(name), move |testbed| {
                let id = id_of(testbed, name);
                testbed.cloud.look(|account| served(account, &id, port)) == Some(vec![instance(2)])
            })
        });
        followed.chain((self.outcomes)()).collect()
    }

    /// Lets an action fail, if any; says what is then not as it should be, and which actions were called.
    async fn play(&self, start: &Testbed, failing: Option<(&str, Failure)>) -> (Vec<String>, BTreeSet<String>) {
        let (testbed, outcomes) = (start.fork().await.unwrap(), self.outcomes());
        match failing {
            Some((action, Failure::Denied)) => testbed.cloud.edit(|cloud| {
                cloud.keys.get_mut(ACCESS_KEY.0).unwrap().denied.insert(action.to_owned());
            }),
            Some((action, Failure::ServerError)) => testbed.cloud.faults().always(action, Fault::Unavailable),
            None => {}
        }
        let more = format!("{HASTE}{UNCHECKED}");
        let _product = Product::start_with(&testbed, self.controllers, &more, &["route.period=10s"]);
        self.change(&testbed);
        let is_prevented = |outcome: &&Outcome| failing.is_some_and(|(action, how)| outcome.is_prevented(action, how));
        let (prevented, possible): (Vec<_>, Vec<_>) = outcomes.iter().partition(is_prevented);
        let began = Instant::now();
        let missing = || possible.iter().filter(|outcome| !(outcome.is_so)(&testbed));
        while missing().next().is_some() && began.elapsed() < LIMIT {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let missing = missing().map(|outcome| format!("{failing:?}: does not come about: {}", outcome.what));
        let spurious = prevented.iter().filter(|outcome| (outcome.is_so)(&testbed));
        let spurious = spurious.map(|outcome| format!("{failing:?}: does not need it: {}", outcome.what));
        let wrong = missing.chain(spurious).collect();
        let calls = testbed.cloud.calls().into_iter().filter(|call| call.product != "metadata");
        (wrong, calls.map(|call| call.action).collect())
    }
}

fn serve(testbed: &Testbed, name: &str, node: u8) {
    let at = IpAddr::V4(Ipv4Addr::new(10, 98, node, 10));
    testbed.cluster.set_endpoints("default", name, &[Endpoint::ready(at, &format!("node-{node}"))]).unwrap();
}

fn id_of(testbed: &Testbed, service: &str) -> String {
    let service = testbed.cluster.get("Service", "default", service).unwrap_or_default();
    service["metadata"]["labels"]["service.k8s.alibaba/loadbalancer-id"].as_str().unwrap_or_default().to_owned()
}

fn outcome(
    what: impl Into<String>,
    needs: &[&'static str],
    is_so: impl Fn(&Testbed) -> bool + Send + Sync + 'static,
) -> Outcome {
    Outcome { what: what.into(), needs: needs.to_vec(), is_so: Box::new(is_so) }
}

/// Each action that the story calls fails in turn. Gives the numbers of the row.
async fn whatever_fails(story: Story) -> Vec<(&'static str, usize)> {
    let undisturbed = move || {
        let start = on_a_clock_of_its_own(0, story.before()).0;
        let (wrong, called) = on_a_clock_of_its_own(0, story.play(&start, None)).0;
        (start, wrong, called)
    };
    let (start, wrong, called) = tokio::task::spawn_blocking(undisturbed).await.unwrap();
    assert_eq!(wrong, Vec::<String>::new(), "undisturbed");
    let outcomes = story.outcomes();
    let each = outcomes.len();
    let needs = outcomes.into_iter().flat_map(|outcome| outcome.needs).map(|need| need.split('/').next().unwrap());
    let uncalled: Vec<&str> = needs.filter(|action| !called.contains(*action)).collect();
    assert!(uncalled.is_empty(), "needed and not called: {uncalled:?}");
    let both = |action: String| [Failure::Denied, Failure::ServerError].map(|failure| (action.clone(), failure));
    let actions = called.len();
    let cases: Vec<(String, Failure)> = called.into_iter().flat_map(both).collect();
    let count = cases.len();
    let wrong = in_parallel(count, move |index| {
        let (action, failure) = &cases[index];
        on_a_clock_of_its_own(0, story.play(&start, Some((action, *failure)))).0.0
    });
    let wrong: Vec<String> = wrong.await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    vec![("actions", actions), ("runs", count), ("outcomes in each", each)]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_action_of_the_cloud_fails_all_that_does_not_need_it_goes_on() {
    Row {
        tried: "each action of the cloud fails in turn for a whole run, forbidden or with an error of the server",
        test: "action_failures::whatever_action_of_the_cloud_fails_all_that_does_not_need_it_goes_on",
        numbers: whatever_fails(clb::STORY).await,
        lost: 0,
    }
    .write();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_action_fails_network_load_balancers_do_what_does_not_need_it() {
    Row {
        tried: "each action that network load balancers need fails in turn for a whole run, forbidden or with an error of the server",
        test: "action_failures::whatever_action_fails_network_load_balancers_do_what_does_not_need_it",
        numbers: whatever_fails(nlb::STORY).await,
        lost: 0,
    }
    .write();
}
