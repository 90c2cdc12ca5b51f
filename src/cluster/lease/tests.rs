mod server;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::server::{Server, Trouble};
use super::record::{LeaderRecord, LockKind};
use super::*;
use crate::cluster::Cluster;
use crate::cluster::tests::fake::{Answer, cluster};
use crate::config::file::ResourceLock;
use crate::fence::{Fence, fence};

fn section(identity: &str) -> LeaderElection {
    LeaderElection {
        enabled: true,
        namespace: "kube-system".into(),
        name: "ccm".into(),
        resource_lock: ResourceLock::Leases,
        identity: Some(identity.into()),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

/// A copy of the program that takes part.
struct Copy {
    fence: Fence,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
    cluster: Cluster,
}

impl Copy {
    fn start(server: &Server, identity: &str) -> Self {
        Self::start_with(server, section(identity))
    }

    /// Locks Endpoints as well.
    fn start_beside_old(server: &Server, identity: &str) -> Self {
        Self::start_with(server, LeaderElection { resource_lock: ResourceLock::EndpointsLeases, ..section(identity) })
    }

    fn start_with(server: &Server, section: LeaderElection) -> Self {
        let (keeper, fence) = fence();
        let stop = CancellationToken::new();
        let cluster = server.cluster();
        let (requests, events) = (cluster.inner.requests.clone(), cluster.events().clone());
        let over = stop.clone();
        let running = tokio::spawn(async move {
            let identity = section.identity.clone().unwrap();
            let progress = Progress::default();
            let mut elector = Elector { requests, events, section, keeper: &keeper, identity, progress };
            elector.run(over.cancelled()).await;
            elector.release().await;
        });
        Self { fence, stop, running, cluster }
    }

    fn leads(&self) -> bool {
        self.fence.leads()
    }

    /// Waits until this copy leads, and tells how long that took.
    async fn leading(&mut self) -> Duration {
        let start = Instant::now();
        tokio::time::timeout(Duration::from_secs(120), self.fence.gained()).await.expect("leads in the end");
        start.elapsed()
    }
}

#[test]
fn the_host_has_the_name_that_people_know() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(host_name(), name.trim());
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_copy_leads_and_keeps_the_lead() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    let mut second = Copy::start(&server, "second");
    for _ in 0..60 {
        seconds(1).await;
        assert!(first.leads() && !second.leads());
    }
    let record = server.record(LockKind::Lease);
    assert_eq!((record.holder.as_str(), record.duration.as_secs(), record.transitions), ("first", 15, 0));
    assert_eq!(server.state.lock().events, ["first became leader"]);
    first.stop.cancel();
    let took = second.leading().await;
    assert!(took <= Duration::from_secs(4), "the lead was given back, but it took {took:?}");
    assert_eq!(server.record(LockKind::Lease).transitions, 1);
    first.running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_copy_that_died_is_taken_when_it_has_run_out_and_not_before() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    let mut second = Copy::start(&server, "second");
    seconds(30).await;
    // A crash: nothing is given back.
    first.running.abort();
    let took = second.leading().await;
    assert!(took >= Duration::from_secs(13) && took <= Duration::from_secs(15 + 5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down_in_time_and_leads_again_later() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    server.set(Trouble::Silence);
    let cut_off = Instant::now();
    tokio::time::timeout(Duration::from_secs(60), first.fence.lost()).await.expect("steps down");
    let took = cut_off.elapsed();
    assert!(took <= Duration::from_secs(10), "stepped down after {took:?}");
    seconds(60).await;
    assert!(!first.leads());
    server.set(Trouble::None);
    first.leading().await;
    assert_eq!(server.record(LockKind::Lease).transitions, 0, "nobody else held it in between");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_cut_off_finds_another_leading() {
    let (server, cut) = (Server::default(), Arc::new(Mutex::new(false)));
    let (keeper, mut first_fence) = fence();
    let first = {
        let (state, cut) = (server.state.clone(), cut.clone());
        cluster(move |asked| if *cut.lock() { Answer::Silence } else { state.lock().answer(&asked) })
    };
    let (requests, events) = (first.inner.requests.clone(), first.events().clone());
    tokio::spawn(async move {
        let (section, identity, progress) = (section("first"), "first".into(), Progress::default());
        let mut elector = Elector { requests, events, section, keeper: &keeper, identity, progress };
        elector.run(std::future::pending()).await;
    });
    first_fence.gained().await;
    let mut second = Copy::start(&server, "second");
    seconds(5).await;
    *cut.lock() = true;
    second.leading().await;
    assert!(!first_fence.leads(), "never both");
    *cut.lock() = false;
    for _ in 0..30 {
        seconds(1).await;
        assert!(second.leads() && !first_fence.leads());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_neither_loses_nor_doubles_the_lead() {
    let server = Server::default();
    server.set(Trouble::LostAnswers);
    let mut first = Copy::start(&server, "first");
    seconds(20).await;
    assert!(!first.leads(), "without an answer nothing is known");
    server.set(Trouble::None);
    first.leading().await;
    server.set(Trouble::LostAnswers);
    seconds(3).await;
    server.set(Trouble::None);
    for _ in 0..20 {
        seconds(1).await;
        assert!(first.leads());
    }
    assert_eq!(server.state.lock().events, ["first became leader"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_away_ends_the_lead_at_once() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    {
        let mut state = server.state.lock();
        state.version += 1;
        let version = state.version.to_string();
        let object = state.object.as_mut().unwrap();
        object["spec"]["holderIdentity"] = json!("intruder");
        object["metadata"]["resourceVersion"] = json!(version);
    }
    seconds(3).await;
    assert!(!first.leads());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lock_is_made_again() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    server.state.lock().object = None;
    for _ in 0..20 {
        seconds(1).await;
        assert!(first.leads());
    }
    assert_eq!(server.record(LockKind::Lease).holder, "first");
}

/// As with `kubectl delete lease ccm`.
#[tokio::test(start_paused = true)]
async fn a_deleted_lock_makes_no_second_leader() {
    for start in [Copy::start, Copy::start_beside_old] {
        let server = Server::default();
        let mut first = start(&server, "first");
        first.leading().await;
        let mut second = start(&server, "second");
        seconds(5).await;
        for _ in 0..20 {
            (server.state.lock().object, server.state.lock().endpoints) = (None, None);
            for _ in 0..31 {
                sleep(Duration::from_millis(100)).await;
                assert!(first.leads() && !second.leads());
            }
        }
        // A leader that is gone as well is waited for.
        first.running.abort();
        (server.state.lock().object, server.state.lock().endpoints) = (None, None);
        let took = second.leading().await;
        assert!(took >= Duration::from_secs(14) && took <= Duration::from_secs(16), "{took:?}");
    }
}

/// The lease and one second, however the reads of the standby fall.
#[tokio::test(start_paused = true)]
async fn a_standby_looks_when_the_lock_expires() {
    for start in [Copy::start, Copy::start_beside_old] {
        for _ in 0..40 {
            let server = Server::default();
            let mut first = start(&server, "first");
            first.leading().await;
            let mut second = start(&server, "second");
            seconds(5).await;
            let version = || server.state.lock().version;
            let before = version();
            while version() == before {
                sleep(Duration::from_millis(10)).await;
            }
            // Both locks are renewed by then.
            sleep(Duration::from_millis(10)).await;
            first.running.abort();
            let took = second.leading().await;
            assert!(took >= Duration::from_secs(14) && took <= Duration::from_secs(16), "{took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_discovery_after_a_failed_renewal_does_not_cost_the_lead() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    server.set(Trouble::SlowDiscovery);
    for second in 0..60 {
        seconds(1).await;
        assert!(first.leads(), "after {second} s");
    }
    assert_eq!(server.state.lock().events, ["first became leader"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspension_during_a_renewal_counts() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    let version = server.state.lock().version;
    server.set(Trouble::Suspension);
    while server.state.lock().version == version {
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(10)).await;
    assert!(!first.leads(), "others have had half a minute to take the lock");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_time_ran_out_while_it_was_stopped_asks_for_no_renewal_without_time_for_an_answer() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    tokio::time::advance(Duration::from_secs(40)).await;
    seconds(1).await;
    let events = server.state.lock().events.clone();
    assert!(events.iter().any(|text| text == "first stopped leading: it could not be renewed in time"), "{events:?}");
    assert_eq!(first.cluster.status().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_for_ages_is_waited_for_an_hour() {
    let server = Server::default();
    let mut lease = LockKind::Lease.empty("kube-system", "ccm");
    lease["metadata"]["resourceVersion"] = json!("0");
    lease["spec"] = json!({ "holderIdentity": "old", "leaseDurationSeconds": u64::MAX, "renewTime": "long ago" });
    server.state.lock().object = Some(lease);
    let first = Copy::start(&server, "first");
    seconds(3590).await;
    assert!(!first.leads() && !first.running.is_finished());
    seconds(20).await;
    assert!(first.leads());
}

#[tokio::test(start_paused = true)]
async fn old_servers_keep_the_lock_in_a_config_map() {
    let server = Server::default();
    server.state.lock().without_leases = true;
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    assert_eq!(server.record(LockKind::ConfigMap).holder, "first");
    first.stop.cancel();
    first.running.await.unwrap();
    assert_eq!(server.record(LockKind::ConfigMap).holder, "");
}

/// Old and new API servers answer at the same address.
#[tokio::test(start_paused = true)]
async fn who_led_by_the_lease_takes_no_older_lock_from_an_old_server() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    server.set(Trouble::OldServer);
    seconds(30).await;
    assert!(!first.leads(), "another replica can hold the lease by now");
    server.set(Trouble::None);
    first.leading().await;
    assert_eq!(server.record(LockKind::Lease).holder, "first");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_not_taken_while_a_replica_leads_by_the_older_lock_of_an_old_server() {
    let server = Server::default();
    let mut first = Copy::start(&server, "first");
    first.leading().await;
    let mut second = Copy::start(&server, "second");
    seconds(60).await;
    first.running.abort();
    for second_passed in 0..60 {
        let record = json!({
            "holderIdentity": "third", "leaseDurationSeconds": 15, "renewTime": format!("renewal {second_passed}"),
        });
        let annotations = json!({ "control-plane.alpha.kubernetes.io/leader": record.to_string() });
        server.state.lock().config_map = Some(json!({ "metadata": { "annotations": annotations } }));
        seconds(1).await;
        assert!(!second.leads(), "after {second_passed} s");
    }
    server.state.lock().config_map = None;
    second.leading().await;
}

#[tokio::test(start_paused = true)]
async fn who_holds_endpoints_only_is_waited_for_and_waits() {
    let server = Server::default();
    let old = server.old_controller();
    seconds(5).await;
    assert!(old.leads());
    let mut first = Copy::start_beside_old(&server, "first");
    for _ in 0..60 {
        seconds(1).await;
        assert!(old.leads() && !first.leads());
    }
    assert_eq!(server.state.lock().object, None, "what is of no use alone is left to others");

    old.running.abort();
    let took = first.leading().await;
    assert!(took >= Duration::from_secs(13) && took <= Duration::from_secs(15 + 5), "{took:?}");
    for lock in [LockKind::Endpoints, LockKind::Lease] {
        assert_eq!(server.record(lock).holder, "first", "{lock:?}");
    }
    let (old, mut usual) = (server.old_controller(), Copy::start(&server, "usual"));
    let mut second = Copy::start_beside_old(&server, "second");
    for _ in 0..60 {
        seconds(1).await;
        assert!(first.leads() && !old.leads() && !usual.leads() && !second.leads());
    }
    old.running.abort();

    // Both are given back, so that nobody waits for either.
    second.running.abort();
    first.stop.cancel();
    let took = usual.leading().await;
    assert!(took <= Duration::from_secs(4), "{took:?}");
    first.running.await.unwrap();
    assert_eq!(server.record(LockKind::Endpoints).holder, "");
    second = Copy::start_beside_old(&server, "third");
    seconds(30).await;
    assert!(usual.leads() && !second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_one_of_two_locks_leads_no_longer() {
    let server = Server::default();
    let mut first = Copy::start_beside_old(&server, "first");
    first.leading().await;
    for lock in [LockKind::Endpoints, LockKind::Lease] {
        {
            let mut state = server.state.lock();
            state.version += 1;
            let version = state.version.to_string();
            let object = if lock == LockKind::Endpoints { &mut state.endpoints } else { &mut state.object };
            let object = object.as_mut().unwrap();
            let intruder = LeaderRecord { holder: "intruder".to_owned(), ..lock.read(object) };
            lock.write(object, &intruder);
            object["metadata"]["resourceVersion"] = json!(version);
        }
        seconds(3).await;
        assert!(!first.leads(), "{lock:?}");
        first.leading().await;
    }
}

#[tokio::test(start_paused = true)]
async fn copies_with_different_locks_never_lead_at_the_same_time_whatever_the_server_does() {
    // Who takes over is left to chance, and each must have its turns.
    crate::jitter::load(1);
    let server = Server::default();
    let mut old = server.old_controller();
    let start = |number: usize| match number {
        0 => Copy::start(&server, "lease"),
        _ => Copy::start_beside_old(&server, &format!("both {number}")),
    };
    let mut copies = [0, 1, 2].map(start);
    let mut led = [0; 4];
    for step in 0..9000_u32 {
        // Each goes away without a word for a while, one after the other; the lock of the first says nothing to the old one, so
        // that they never run at once.
        match step % 700 {
            0 => copies[0].running.abort(),
            60 => old = server.old_controller(),
            200 => copies[1].running.abort(),
            250 => copies[2].running.abort(),
            300 => copies[1] = start(1),
            350 => old.running.abort(),
            450 => copies[2] = start(2),
            500 => copies[1].running.abort(),
            550 => copies[0] = start(0),
            600 => copies[2].running.abort(),
            690 => (copies[1], copies[2]) = (start(1), start(2)),
            _ => {}
        }
        server.set(match step % 171 {
            60..75 => Trouble::Silence,
            101..107 => Trouble::LostAnswers,
            150..171 => Trouble::Silence,
            _ => Trouble::None,
        });
        // Not while one is new: it cannot know of a lock that was deleted before it looked.
        if [40, 150, 640].contains(&(step % 700)) {
            server.state.lock().object = None;
        }
        sleep(Duration::from_millis(700)).await;
        let leading = [copies[0].leads(), copies[1].leads(), copies[2].leads(), old.leads()];
        assert!(leading.iter().filter(|leads| **leads).count() <= 1, "step {step}: {leading:?}");
        for (count, leads) in led.iter_mut().zip(leading) {
            *count += u32::from(leads);
        }
    }
    assert!(led.iter().all(|count| *count > 200), "{led:?}");
}

#[tokio::test(start_paused = true)]
async fn two_copies_never_lead_at_the_same_time_whatever_the_server_does() {
    // Who takes over is left to chance. All of these but the first had two leaders once.
    for seed in [1, 10, 37, 45, 58] {
        crate::jitter::load(seed);
        lead_in_turn().await;
    }
}

async fn lead_in_turn() {
    let server = Server::default();
    let copies = [Copy::start(&server, "first"), Copy::start(&server, "second"), Copy::start(&server, "third")];
    let (mut led, mut unled, mut term) = (0, 0, 0_u32);
    for step in 0..2000_u32 {
        // Troubles of lengths that fit no period of the election.
        server.set(match step % 171 {
            60..90 => Trouble::Silence,
            101..107 => Trouble::LostAnswers,
            130..171 => Trouble::Silence,
            _ => Trouble::None,
        });
        // Not right after a copy took the lead: others cannot know of a lock that was deleted before they looked.
        if step % 53 == 11 && !(1..5).contains(&term) {
            server.state.lock().object = None;
        }
        sleep(Duration::from_millis(700)).await;
        let leading = copies.iter().filter(|copy| copy.leads()).count();
        assert!(leading <= 1, "step {step}");
        *(if leading == 1 { &mut led } else { &mut unled }) += 1;
        term = if leading == 1 { term + 1 } else { 0 };
    }
    assert!(led > 500 && unled > 100, "{led} {unled}");
}

/// The whole configuration, with this section in it.
fn configured(leader_election: LeaderElection) -> Arc<Config> {
    let source = crate::config::ConfigSource {
        path: "config.toml".into(),
        text: Some("[cloud]\ncluster_id = \"c\"\n".into()),
        ..crate::config::ConfigSource::default()
    };
    Arc::new(Config {
        leader_election,
        ..crate::config::check(&source, &crate::controllers::registry::CATALOG).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_is_taken_over_without_giving_the_lock_away() {
    let server = Server::default();
    let (keeper, mut first) = fence();
    let unnamed = LeaderElection { identity: None, ..section("") };
    let (sender, receiver) = watch::channel(configured(unnamed.clone()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.cluster().elect(receiver, keeper, stop.clone()));
    first.gained().await;
    let holder = server.record(LockKind::Lease).holder;
    let mut second = Copy::start(&server, "second");
    seconds(10).await;

    sender.send_replace(configured(LeaderElection { lease_duration: Duration::from_secs(30), ..unnamed.clone() }));
    seconds(5).await;
    assert!(first.leads() && !second.leads());
    let record = server.record(LockKind::Lease);
    assert_eq!((record.holder.as_str(), record.duration.as_secs(), record.transitions), (&*holder, 30, 0));

    sender.send_replace(configured(LeaderElection { enabled: false, ..unnamed }));
    seconds(1).await;
    assert!(first.permit(Duration::from_secs(3600)).is_ok(), "without an election there is no deadline");
    seconds(1).await;
    let told = server.state.lock().events.clone();
    assert!(told.iter().any(|text| text.contains("must be the only replica")), "{told:?}");

    stop.cancel();
    running.await.unwrap();
    assert!(!first.leads());
    second.leading().await;
}

#[tokio::test(start_paused = true)]
async fn an_orderly_stop_releases_the_lock_even_where_a_renewal_was_on_its_way() {
    for trouble in [Trouble::None, Trouble::LateWrite] {
        let server = Server::default();
        let (keeper, mut first) = fence();
        let (_sender, receiver) = watch::channel(configured(section("first")));
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.cluster().elect(receiver, keeper, stop.clone()));
        first.gained().await;
        server.set(trouble);
        stop.cancel();
        running.await.unwrap();
        assert!(!first.leads());
        assert_eq!(server.record(LockKind::Lease).holder, "", "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_replicas_with_the_same_configured_identity_never_both_lead() {
    let server = Server::default();
    let stop = CancellationToken::new();
    let start = || {
        let (keeper, fence) = fence();
        let (sender, receiver) = watch::channel(configured(section("the-same")));
        let running = tokio::spawn(server.cluster().elect(receiver, keeper, stop.clone()));
        (fence, sender, running)
    };
    let (mut first, _sender, _running) = start();
    first.gained().await;
    assert!(server.record(LockKind::Lease).holder.starts_with("the-same_"));
    let (second, _second_sender, _second_running) = start();
    for _ in 0..60 {
        seconds(1).await;
        assert!(first.leads() && !second.leads());
    }
}
