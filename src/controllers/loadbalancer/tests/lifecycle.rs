//! Random Services, made from the table of annotations, brought about by the real client and the real execution against
//! the simulated cloud, which judges every request by itself: plans converge, being killed at any write changes nothing
//! about the end, nothing of others is touched, and nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::Value;
use sim::cloud::{Account, Acl, Backend, Group, Listener, LoadBalancer, Protocol};
use tokio_util::sync::CancellationToken;

use crate::alibaba::tests::simulated::{REGION, client_by};
use crate::alibaba::transport::{Transport, TransportError};
use crate::alibaba::{CloudClient, Priority, actions};
use crate::controllers::loadbalancer::clb::{ClbProduct, Goal};
use crate::controllers::loadbalancer::execute::{self, Executor};
use crate::controllers::loadbalancer::find::{Found, find};
use crate::controllers::loadbalancer::product::{CreationToken, Product, Search};
use crate::controllers::loadbalancer::references::resolve;
use crate::fence::fence;
use crate::plan::clb::annotations::{Entry, Name};
use crate::plan::clb::desired::ClbModel;
use crate::plan::clb::observed::Observed;
use crate::plan::clb::operation::Plan;
use crate::plan::clb::tests::properties::some_ports;
use crate::plan::clb::tests::{World, edited, node, pod};
use crate::plan::inputs::{EndpointsView, Ingress};
use crate::plan::loadbalancer::annotations::AnnotationName;
use crate::plan::loadbalancer::annotations::values::ValueKind;
use crate::plan::loadbalancer::applied;
use crate::plan::loadbalancer::handling::Departure;
use crate::plan::loadbalancer::ownership::{LABEL_LB_ID, LoadBalancerKind, MARK_TAG, Owner};
use crate::plan::loadbalancer::settings::VSwitchChoice;
use crate::plan::location::CloudLocation;

type Execution = execute::Execution<ClbModel>;

const CASES: u32 = 96;
const USERS: &str = "lb-user";

/// The way to the cloud of a process that is killed at one of its writes.
struct Mortal {
    cloud: sim::cloud::Cloud,
    /// Writes that are still made.
    left: AtomicUsize,
    /// Whether the last of them is answered.
    answered: bool,
    dead: AtomicBool,
}

impl std::fmt::Debug for Mortal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mortal")
    }
}

impl Mortal {
    fn new(cloud: &sim::cloud::Cloud, writes: usize, answered: bool) -> Arc<Self> {
        let (left, dead) = (AtomicUsize::new(writes), AtomicBool::new(false));
        Arc::new(Self { cloud: cloud.clone(), left, answered, dead })
    }
}

fn is_write(request: &Request<Bytes>) -> bool {
    let body = String::from_utf8_lossy(request.body());
    let parts = request.uri().query().unwrap_or_default().split('&').chain(body.split('&'));
    let action = parts.filter_map(|part| part.strip_prefix("Action=")).next().unwrap_or_default().to_owned();
    actions::ALL.iter().find(|known| known.name == action).unwrap_or_else(|| panic!("no action {action}")).writes
}

impl Transport for Mortal {
    fn send(&self, request: Request<Bytes>, _: Duration) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        Box::pin(async move {
            let killed = || Err(TransportError::Lost("killed".to_owned()));
            let writes = is_write(&request);
            if writes && self.left.load(Ordering::Relaxed) == 0 {
                self.dead.store(true, Ordering::Relaxed);
            }
            if self.dead.load(Ordering::Relaxed) {
                return killed();
            }
            let answer = self.cloud.handle(request).await;
            if writes && self.left.fetch_sub(1, Ordering::Relaxed) == 1 && !self.answered {
                self.dead.store(true, Ordering::Relaxed);
                return killed();
            }
            answer.map_err(|error| TransportError::Lost(error.to_string()))
        })
    }
}

/// A cloud, and what the Service in it remembers of its load balancer.
struct Side {
    cloud: sim::cloud::Cloud,
    label: String,
    ingress: Vec<Ingress>,
}

impl Side {
    fn new() -> Self {
        Self { cloud: sim::cloud::Cloud::new(account()), label: String::new(), ingress: Vec::new() }
    }

    fn client(&self, writes: usize, answered: bool) -> CloudClient {
        client_by(Mortal::new(&self.cloud, writes, answered))
    }

    /// The world as the API server would show it here.
    async fn seen(&self, world: &World, cloud: &CloudClient) -> World {
        let mut world = world.clone();
        world.service.ingress.clone_from(&self.ingress);
        if !self.label.is_empty() {
            world.service.labels.insert(LABEL_LB_ID.to_owned(), self.label.clone());
        }
        let ips = Goal::addresses_to_resolve(&world.service, &world.nodes, &world.endpoints, &world.settings);
        let ips: Vec<IpAddr> = ips.into_iter().collect();
        let location =
            CloudLocation { region: REGION.to_owned(), vpc_id: "vpc-1".to_owned(), ..CloudLocation::default() };
        world.enis = resolve(cloud, &location, &ips).await.unwrap().into_iter().collect();
        world
    }

    /// One run of a new process, which can be killed after so many writes: then it has nothing to tell.
    async fn bring(&mut self, world: &World, writes: usize, answered: bool) -> Option<(Plan, Execution)> {
        let cloud = self.client(writes, answered);
        let world = self.seen(world, &cloud).await;
        let Some(mut goal) = goal(&world) else { panic!("it was desired before") };
        let (clb, mut observed) = self.look(&cloud, &mut goal).await;
        let plan = goal.diff(&observed);
        let execution = self.execute(&clb, &world, plan.clone(), &mut observed).await;
        if execution.failures.stopped.is_some() {
            return None;
        }
        self.remember(&goal, &observed);
        Some((plan, execution))
    }

    /// What there is of the Service, read whole.
    async fn look(&self, cloud: &CloudClient, goal: &mut Goal) -> (ClbProduct, Observed) {
        let clb = ClbProduct::new(cloud, Arc::new(CloudLocation::default()));
        let search = Search { label: Some(&*self.label).filter(|label| !label.is_empty()), ..Search::default() };
        let leaves = matches!(goal, Goal::Remove(_));
        let mut observed = match find(&clb, goal, &search).await.unwrap() {
            Found::LoadBalancer(observed) => observed,
            // Kept for the user, as an earlier try left it.
            Found::Unmarked { .. } if leaves => return (clb, Observed::default()),
            Found::Unmarked { id, .. } => panic!("{id} has lost its mark"),
            Found::Absent { .. } => Observed::default(),
            Found::Uncertain(why) => panic!("{why}"),
        };
        clb.complete(goal, &mut observed, None, &search).await.unwrap();
        (clb, observed)
    }

    fn remember(&mut self, goal: &Goal, observed: &Observed) {
        if let Some(id) = observed.id() {
            id.clone_into(&mut self.label);
            self.ingress = goal.ingress(observed, &[]);
        }
    }

    async fn execute(&self, clb: &ClbProduct, world: &World, plan: Plan, observed: &mut Observed) -> Execution {
        let (keeper, fence) = fence();
        keeper.lead_unbounded();
        let token = CreationToken {
            cluster_id: world.settings.cluster_id.clone(),
            service_uid: world.service.uid.clone(),
            incarnation: self.label.clone(),
        };
        Executor {
            product: clb,
            fence: &fence,
            stop: &CancellationToken::new(),
            token,
            priority: Priority::default(),
            stocked: [].into(),
            most_refused: usize::MAX,
            serve_others: &|_| BTreeSet::new(),
        }
        .run(plan.steps, observed)
        .await
    }

    /// The Service goes; the process can be killed after so many writes.
    async fn remove(&self, world: &World, writes: usize, answered: bool) -> bool {
        let cloud = self.client(writes, answered);
        let mut world = self.seen(world, &cloud).await;
        world.service.deleting = true;
        let mut goal = Goal::removal(&world.service, &world.settings);
        let forced = Departure::of(LoadBalancerKind::Clb, &world.service).override_listeners;
        let (clb, mut observed) = self.look(&cloud, &mut goal).await;
        let mut plan = goal.diff(&observed);
        // Without the right to remove them, listeners of the time when there was one hold on to their groups; that is reported.
        let reported = std::mem::take(&mut plan.problems);
        assert!(reported.iter().all(|problem| !forced && problem.field.starts_with("listener ")), "{reported:?}");
        let execution = self.execute(&clb, &world, plan, &mut observed).await;
        assert!(execution.failures.refused.is_empty(), "{:?}", execution.failures.refused);
        execution.failures.stopped.is_none()
    }

    /// What belongs to others.
    fn foreign(&self, owner: &Owner, with_tags: bool) -> BTreeMap<String, String> {
        let lists = self.cloud.look(|world| {
            let lists = world.acls.iter().filter(|(_, list)| list.name != owner.access_list_name());
            lists.map(|(id, list)| (id.clone(), format!("{list:?}"))).collect::<BTreeMap<_, _>>()
        });
        let mut found = lists;
        self.cloud.look(|world| {
            for (id, lb) in world.load_balancers.iter() {
                if id != USERS {
                    if lb.tags.get(MARK_TAG) != Some(&owner.default_name()) && *id != self.label {
                        let lb: LoadBalancer = LoadBalancer::clone(lb);
                        found.insert(id.clone(), format!("{lb:?}"));
                    }
                    continue;
                }
                found.insert(format!("{id} address"), lb.address.clone());
                if with_tags {
                    let mut tags = lb.tags.clone();
                    tags.remove("kubernetes.reused.by.user");
                    found.insert(format!("{id} tags"), format!("{tags:?}"));
                }
                for ((port, protocol), listener) in &lb.listeners {
                    if !owner.owns_listener(&listener.description) {
                        found.insert(format!("{id} {port}/{}", protocol.as_str()), format!("{listener:?}"));
                    }
                }
                for (group, it) in &lb.groups {
                    let foreign: Vec<_> =
                        it.backends.iter().filter(|backend| !owner.owns_backend(&backend.description)).collect();
                    if !owner.owns_group(&it.name) {
                        found.insert(format!("{id} {group}"), format!("{} {foreign:?}", it.name));
                    }
                }
            }
        });
        found
    }

    /// What is ours, without what no two clouds have alike.
    fn ours(&self, owner: &Owner) -> Vec<Value> {
        let snapshot = self.cloud.snapshot();
        let all = snapshot["load_balancers"].as_array().cloned().unwrap_or_default();
        let mark = owner.default_name();
        let mut found: Vec<Value> =
            all.into_iter().filter(|lb| lb["tags"][MARK_TAG] == mark.as_str() || lb["id"] == USERS).collect();
        for lb in &mut found {
            for part in ["id", "address", "created"] {
                lb.as_object_mut().map(|fields| fields.remove(part));
            }
            for group in lb["vgroups"].as_object_mut().into_iter().flatten() {
                if let Some(backends) = group.1.as_array_mut() {
                    backends.sort_by_key(Value::to_string);
                }
            }
            for listener in lb["listeners"].as_object_mut().into_iter().flatten() {
                listener.1.as_object_mut().map(|fields| fields.remove("acl_ids"));
            }
        }
        found
    }
}

/// What the Service asks for; `None` if that cannot be read.
fn goal(world: &World) -> Option<Goal> {
    let mut desired = world.desire().ok()?;
    desired.applied.insert(applied::SOURCE_RANGES.to_owned());
    Some(Goal::Ensure(Box::new(desired)))
}

/// A user's load balancer, another Service's, another cluster's, and a list that is not ours.
fn account() -> Account {
    let later = crate::clock::now() + jiff::SignedDuration::from_hours(1000);
    let mut world = Account::new(REGION)
        .with_vpc("vpc-1", "192.168.0.0/16")
        .with_vswitch("vsw-i", "vpc-1", "cn-hangzhou-i", "192.168.0.0/24")
        .with_vswitch("vsw-j", "vpc-1", "cn-hangzhou-j", "192.168.1.0/24")
        .with_vswitch("vsw-pods", "vpc-1", "cn-hangzhou-i", "192.168.64.0/24");
    for number in 1..=3 {
        world = world.with_certificate(&format!("cert-{number}"), "example.com", later);
        let list = Acl { name: format!("list-{number}"), ip_version: "ipv4".to_owned(), ..Default::default() };
        world.acls.insert(format!("acl-{number}"), list);
    }
    for number in 1..8_u8 {
        world.add_instance(
            &format!("i-{number}"),
            &format!("n{number}"),
            "vsw-i",
            &format!("192.168.0.{}", 100 + number),
        );
    }
    for number in 1..30_u8 {
        world.add_interface(&format!("eni-pod-{number}"), "i-1", "vsw-pods", &[&format!("192.168.64.{number}")]);
    }
    let backend = Backend {
        server_id: "i-1".to_owned(),
        server_ip: String::new(),
        port: 8080,
        weight: 100,
        kind: "ecs".to_owned(),
        description: "by hand".to_owned(),
    };
    let mut users = LoadBalancer::internet("users", "47.98.1.1");
    users.tags.insert("made-by".to_owned(), "user".to_owned());
    users.groups.insert("rsp-user".to_owned(), Group { backends: vec![backend], ..Group::new("users-group") });
    let listener = Listener::running("k8s/9000/other/default/c1", "rsp-user");
    users.listeners.insert((9000, Protocol::Tcp), listener);
    world.load_balancers.insert(USERS.to_owned(), users.into());
    for (id, name, cluster) in [("lb-other-service", "a0000", "c1"), ("lb-other-cluster", "a1111", "c2")] {
        let mut other = LoadBalancer::internet(name, "47.98.1.2");
        other.tags.insert(MARK_TAG.to_owned(), name.to_owned());
        other.tags.insert("ack.aliyun.com".to_owned(), cluster.to_owned());
        world.load_balancers.insert(id.to_owned(), other.into());
    }
    world
}

/// Good values of an annotation; none for those that the story itself decides about.
fn values(entry: &Entry) -> Vec<String> {
    let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match (entry.kind, entry.name) {
        (_, Name::Class | Name::Type | Name::TunnelType | Name::Id | Name::ForceOverrideListeners) => Vec::new(),
        // Classic network is no longer sold.
        (_, Name::NetworkType) => list(&["vpc"]),
        (_, Name::BackendType) => list(&["eni", "ecs"]),
        (ValueKind::AnyValue, _) => list(&["true"]),
        (ValueKind::Text, Name::ResourceGroupId) => list(&["rg-1", "rg-2"]),
        // The one that the address below is in: no other is known before the cloud is asked.
        (ValueKind::Text, Name::VswitchId) => list(&["vsw-i"]),
        (ValueKind::Text, Name::MasterZoneid) => list(&["cn-hangzhou-i"]),
        (ValueKind::Text, Name::SlaveZoneid) => list(&["cn-hangzhou-j"]),
        (ValueKind::Text, Name::Spec) => list(&["slb.s1.small", "slb.s2.small"]),
        (ValueKind::Text, Name::CertId) => list(&["cert-1", "cert-2"]),
        (ValueKind::Text, name) => panic!("say some values of {name:?}"),
        (ValueKind::LoadBalancerName { .. }, _) => list(&["one", "two"]),
        (ValueKind::Address, _) => list(&["192.168.0.9"]),
        (ValueKind::HostName, _) => list(&["a.example.com"]),
        (ValueKind::HealthPath, _) => list(&["/a", "/b"]),
        (ValueKind::HealthDomain(_), _) => list(&["$_ip", "a.example.com"]),
        (ValueKind::LooseSwitch(on), _) => list(&["on", on, "off", "other"]),
        (ValueKind::Switch(_), _) => list(&["on", "off"]),
        (ValueKind::Presence, _) => list(&["true"]),
        (ValueKind::OneOfOrLast(values), _) => list(&values[1..]),
        (ValueKind::OneOf(values) | ValueKind::OneOfGrowing(values) | ValueKind::AnyCase(values), _) => list(values),
        (ValueKind::Integer { min, max, .. }, Name::HealthCheckConnectPort) => {
            vec![min.to_string(), max.to_string(), "-520".to_owned(), "0".to_owned()]
        }
        (ValueKind::Integer { min, max, .. }, _) => vec![min.to_string(), max.to_string(), "0".to_owned()],
        (ValueKind::AclIds, _) => list(&["acl-1", "acl-1,acl-2", "acl-2,acl-1"]),
        (ValueKind::Cookie, _) => list(&["c1", "c2"]),
        (ValueKind::HttpCodes, _) => list(&["http_2xx", "http_2xx,http_3xx"]),
        (ValueKind::Tags, _) => list(&["a=1", "a=2,b=1", "c"]),
        (ValueKind::Labels, _) => list(&["color=blue"]),
        (ValueKind::ProtocolPorts(_), _) => list(&["http:80,https:443", "https:443", "http:80,http:443", "https:80"]),
        (ValueKind::ForwardPorts, _) => list(&["80:443", "443:80"]),
        (ValueKind::ServerGroupPorts, _) => list(&["rsp-user:80", "rsp-user:80,rsp-user:443"]),
        (ValueKind::DomainExtensions, _) => {
            list(&["", "a.example.com:cert-2", "a.example.com:cert-3,b.example.com:cert-2"])
        }
        (kind, name) => panic!("say some values of {name:?}: {kind:?}"),
    }
}

fn some_annotations() -> impl Strategy<Value = Vec<(String, String)>> {
    let all: Vec<(String, Vec<String>)> = Name::TABLE
        .iter()
        .map(|entry| (entry.key.full(), values(entry)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    subsequence(all, 0..20).prop_flat_map(|chosen| {
        chosen
            .into_iter()
            .map(|(key, values)| select(values).prop_map(move |value| (key.clone(), value)))
            .collect::<Vec<_>>()
    })
}

fn some_pods() -> impl Strategy<Value = Vec<u8>> {
    subsequence((1..30).collect::<Vec<u8>>(), 0..20)
}

fn endpoints(pods: &[u8]) -> EndpointsView {
    let endpoints = pods.iter().map(|n| pod(&format!("192.168.64.{n}"), &format!("n{}", n % 7 + 1))).collect();
    EndpointsView { endpoints, ..EndpointsView::default() }
}

prop_compose! {
    fn some_world(reuse: bool)(
        annotations in some_annotations(),
        ports in some_ports(),
        forced in any::<bool>(),
        nodes in subsequence((1..8).collect::<Vec<u8>>(), 1..6),
        pods in some_pods(),
        blue in 0..8_u8,
        local in any::<bool>(),
        ranges in subsequence(vec!["10.0.0.0/8", "172.16.0.0/12", "192.168.7.0/24"], 0..3),
        affinity in prop::option::of(select(vec![60, 10_800])),
        batch in 1..5_usize,
    ) -> World {
        let mut all: Vec<(&str, &str)> = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        if reuse {
            all.push(("id", USERS));
            if forced {
                all.push(("force-override-listeners", "true"));
            }
        }
        let mut world = World::new(&all).ports(&ports);
        world.nodes = nodes
            .iter()
            .map(|n| {
                edited(&node(&format!("n{n}"), &format!("i-{n}")), |node| {
                    if *n <= blue {
                        node.labels.insert("color".into(), "blue".into());
                    }
                })
            })
            .collect();
        world.endpoints = endpoints(&pods);
        world.service.local_traffic = local;
        world.service.source_ranges = ranges.into_iter().map(str::to_owned).collect();
        world.service.client_ip_affinity = affinity;
        world.settings.vswitches = ["i", "j"]
            .map(|zone| VSwitchChoice { zone: Some(format!("cn-hangzhou-{zone}")), id: format!("vsw-{zone}") })
            .to_vec();
        world.settings.service.backend_batch_size = batch;
        world
    }
}

/// What a Service asks for, one after the other, and at which write of each the process is killed.
fn some_story() -> impl Strategy<Value = Vec<(World, usize, bool)>> {
    any::<bool>().prop_flat_map(|reuse| prop::collection::vec((some_world(reuse), 0..24_usize, any::<bool>()), 1..4))
}

/// Both worlds, told the same story: one process lives on, the other is killed in each chapter.
async fn tell(story: Vec<(World, usize, bool)>) -> Result<(), TestCaseError> {
    let (mut steady, mut killed) = (Side::new(), Side::new());
    let mut last = None;
    for (world, writes, answered) in story {
        if world.desire().is_err() {
            continue;
        }
        let owner = Owner::of(&world.service, &world.settings);
        let with_tags = !world.service.annotations.keys().any(|key| key.ends_with("additional-resource-tags"));
        let before = steady.foreign(&owner, with_tags);
        let before_killed = killed.foreign(&owner, with_tags);

        let Some((plan, execution)) = steady.bring(&world, usize::MAX, true).await else {
            panic!("nobody killed it: {:?}", world.service.annotations)
        };
        let refused: Vec<_> =
            execution.failures.refused.iter().map(|(step, fault)| format!("{step}: {fault}")).collect();
        prop_assert_eq!(&refused, &Vec::<String>::new(), "{:?}\n{}", world.service.annotations, plan);
        let Some((again, _)) = steady.bring(&world, usize::MAX, true).await else { panic!("nobody killed it") };
        prop_assert!(again.steps.is_empty(), "{:?}\nfirst:\n{}\nagain:\n{}", world.service.annotations, plan, again);
        prop_assert_eq!(steady.foreign(&owner, with_tags), before, "{}", plan);

        let cut = killed.bring(&world, writes, answered).await;
        prop_assert_eq!(killed.foreign(&owner, with_tags), before_killed, "{}", plan);
        if cut.is_none() {
            assert!(killed.bring(&world, usize::MAX, true).await.is_some(), "killed once only");
        }
        let Some((again, _)) = killed.bring(&world, usize::MAX, true).await else { panic!("killed once only") };
        prop_assert!(again.steps.is_empty(), "killed after {} writes of\n{}\nagain:\n{}", writes, plan, again);
        prop_assert_eq!(killed.ours(&owner), steady.ours(&owner), "killed after {} writes of\n{}", writes, plan);
        last = Some((world, writes, answered));
    }
    let Some((mut world, writes, answered)) = last else { return Ok(()) };
    let owner = Owner::of(&world.service, &world.settings);
    let before = killed.foreign(&owner, true);
    if !killed.remove(&world, writes % 6, answered).await {
        assert!(killed.remove(&world, usize::MAX, true).await, "killed once only");
    }
    // What was told is mended by letting us.
    world.service.annotations.insert(Name::ForceOverrideListeners.key(), "true".to_owned());
    assert!(killed.remove(&world, usize::MAX, true).await, "killed once only");
    prop_assert_eq!(killed.foreign(&owner, true), before);
    let left = killed.cloud.look(|cloud| {
        let marked = cloud.load_balancers.values().filter(|lb| lb.tags.get(MARK_TAG) == Some(&owner.default_name()));
        let users = &cloud.load_balancers[USERS];
        let groups = users.groups.values().filter(|group| owner.owns_group(&group.name));
        let backends = users.groups.values().flat_map(|group| &group.backends);
        let listeners = users.listeners.values().filter(|it| owner.owns_listener(&it.description));
        (
            marked.count(),
            groups.count(),
            backends.filter(|backend| owner.owns_backend(&backend.description)).count(),
            listeners.count(),
        )
    });
    prop_assert_eq!(left, (0, 0, 0, 0), "load balancers, groups, backends, listeners");
    prop_assert_eq!(killed.cloud.complaints(), Vec::<String>::new());
    prop_assert_eq!(steady.cloud.complaints(), Vec::<String>::new());
    Ok(())
}

/// The pods of a Service move. Each change is planned from the state that is remembered, and after a whole read.
async fn follow(world: World, moves: Vec<Vec<u8>>) -> Result<(), TestCaseError> {
    let mut side = Side::new();
    let cloud = side.client(usize::MAX, true);
    let Some(mut goal_before) = goal(&side.seen(&world, &cloud).await) else { return Ok(()) };
    assert!(side.bring(&world, usize::MAX, true).await.is_some(), "the process is not killed");
    let (clb, mut remembered) = side.look(&cloud, &mut goal_before).await;
    for pods in moves {
        let world = side.seen(&World { endpoints: endpoints(&pods), ..world.clone() }, &cloud).await;
        let Some(mut goal) = goal(&world) else { continue };
        let (short, (_, read)) = (goal.diff(&remembered), side.look(&cloud, &mut goal).await);
        prop_assert_eq!(short.to_string(), goal.diff(&read).to_string(), "{:?}", world.service.annotations);
        let execution = side.execute(&clb, &world, short, &mut remembered).await;
        prop_assert!(execution.failures.refused.is_empty(), "{:?}", execution.failures.refused);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_service_made_again_is_served_although_its_preserved_load_balancer_keeps_the_access_list() {
    let of = |uid: &str, annotations: &[(&str, &str)], range: Option<&str>| {
        let mut world = World::new(annotations);
        uid.clone_into(&mut world.service.uid);
        world.service.source_ranges = range.into_iter().map(str::to_owned).collect();
        world
    };
    let bring = async |side: &mut Side, world: &World| {
        let (plan, _) = side.bring(world, usize::MAX, true).await.unwrap();
        assert_eq!(plan.problems, [], "{plan}");
        let (again, _) = side.bring(world, usize::MAX, true).await.unwrap();
        assert!(again.steps.is_empty() && again.problems.is_empty(), "{again}");
    };
    let lists = |side: &Side| {
        let ours = |account: &Account| {
            let ours = account.acls.values().filter(|list| Owner::is_access_list_name(&list.name));
            ours.flat_map(|list| list.entries.keys().cloned()).collect::<BTreeSet<_>>()
        };
        side.cloud.look(ours).into_iter().collect::<Vec<_>>()
    };
    let (old, new) = (("5e4d-1", "10.0.0.0/8"), ("5e4d-2", "172.16.0.0/12"));
    let mut side = Side::new();
    let preserved = of(old.0, &[("preserve-lb-on-delete", "true")], Some(old.1));
    bring(&mut side, &preserved).await;
    assert!(side.remove(&preserved, usize::MAX, true).await);
    let kept = std::mem::take(&mut side.label);
    side.ingress.clear();

    let again = of(new.0, &[], Some(new.1));
    bring(&mut side, &again).await;
    assert_eq!(lists(&side), [old.1, new.1]);
    let uses = |side: &Side, id: &str| {
        let listener = side.cloud.look(|account| account.load_balancers[id].listeners[&(80, Protocol::Tcp)].clone());
        (listener.acl_status, listener.acl_ids)
    };
    assert_eq!((uses(&side, &kept).0.as_str(), uses(&side, &side.label).0.as_str()), ("on", "on"));
    assert_ne!(uses(&side, &kept).1, uses(&side, &side.label).1);

    bring(&mut side, &of(new.0, &[], None)).await;
    assert_eq!(lists(&side), [old.1]);
    bring(&mut side, &again).await;
    // Its user deletes the other load balancer, and leaves the list.
    side.cloud.edit(|account| drop(account.load_balancers.remove(&kept)));
    bring(&mut side, &again).await;
    assert_eq!(lists(&side), [old.1, new.1]);
    assert!(side.remove(&again, usize::MAX, true).await);
    assert_eq!(lists(&side), [old.1]);
    assert_eq!(side.cloud.complaints(), Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 64, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn services_come_and_go_whatever_they_ask_for_and_wherever_the_process_is_killed(story in some_story()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(tell(story))?;
    }
    #[test]
    fn pods_that_move_take_the_same_steps_from_memory_as_after_a_whole_read(
        world in any::<bool>().prop_flat_map(some_world), moves in prop::collection::vec(some_pods(), 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(follow(world, moves))?;
    }
}
