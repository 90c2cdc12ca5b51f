//! Of two replicas one writes, whatever happens to the other: paused, partitioned, slow, killed, stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sim::cluster::Version;
use sim::request_hold::Moment;
use sim::testbed::{ACCESS_KEY, Testbed};
use tokio::net::{TcpListener, TcpStream};

use crate::end_state::Row;
use crate::harness::{Ccm, EVERY, HASTE, World, is_ready};
use crate::kinds::Kind;

/// How long the lease lasts where a test says nothing else.
const LEASE: Duration = Duration::from_secs(15);
/// Keys of the replicas, which tell in the cloud's log who called.
const KEYS: [(&str, &str); 2] = [ACCESS_KEY, ("LTAIsecond", "second-secret")];

/// Two replicas with a key and a link to the API server of their own.
struct Pair {
    /// Of the load balancer that they make.
    kind: Kind,
    world: World,
    links: [Link; 2],
    /// `leader_election.lease_duration`.
    lease: &'static str,
}

/// A way to the API server that can be cut.
struct Link {
    open: Arc<AtomicBool>,
    address: String,
}

impl Link {
    async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = Arc::new(AtomicBool::new(true));
        let is_open = open.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (target, is_open) = (target.clone(), is_open.clone());
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    let cut = async {
                        while is_open.load(Ordering::Relaxed) {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        // Packets vanish: neither side hears of the end.
                        () = cut => std::future::pending().await,
                    }
                });
            }
        });
        Self { open, address }
    }

    fn cut(&self) {
        self.open.store(false, Ordering::Relaxed);
    }
}

impl Pair {
    async fn new(kind: Kind) -> Self {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.cloud.dials(|dials| dials.nlb_job_time = Duration::from_millis(300));
        testbed.cloud.edit(|cloud| *cloud = cloud.clone().with_key(KEYS[1].0, KEYS[1].1));
        let world = World::of(testbed, EVERY, HASTE);
        let server = server_of(world.folder());
        let links = [Link::to(server.clone()).await, Link::to(server).await];
        std::fs::write(world.folder().join("second-secret"), KEYS[1].1).unwrap();
        let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(world.folder().join("second-secret"), private).unwrap();
        Self { kind, world, links, lease: "15s" }
    }

    fn start(&self, number: usize) -> Ccm {
        self.start_with(number, &[])
    }

    /// Starts a replica whose wall clock can be set off, see [`Pair::jump`].
    fn start_with_clock(&self, number: usize) -> Ccm {
        self.jump(number, 0);
        let (library, file) =
            (self.world.clock_library().display().to_string(), self.clock_file(number).display().to_string());
        self.start_with(number, &[("LD_PRELOAD", &library), ("CLOCK_OFFSET_FILE", &file)])
    }

    fn clock_file(&self, number: usize) -> PathBuf {
        self.world.folder().join(format!("clock-{number}"))
    }

    /// The wall clock of a replica is wrong by so many seconds from now on.
    fn jump(&self, number: usize, seconds: i64) {
        let beside = self.world.folder().join(format!("clock-{number}~"));
        std::fs::write(&beside, seconds.to_string()).unwrap();
        std::fs::rename(beside, self.clock_file(number)).unwrap();
    }

    fn start_with(&self, number: usize, environment: &[(&str, &str)]) -> Ccm {
        let file = ["access-key-secret", "second-secret"][number];
        let settings = [
            format!("kubernetes.server=http://{}", self.links[number].address),
            format!("cloud.credentials.access_key_id={}", KEYS[number].0),
            format!("cloud.credentials.access_key_secret_file={file}"),
            format!("leader_election.identity=replica-{number}"),
            format!("leader_election.lease_duration={}", self.lease),
        ];
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting.as_str()]).collect();
        self.world.start_with(&arguments, environment)
    }

    fn leader(&self) -> Option<usize> {
        let lease = self.world.testbed.cluster.get("Lease", "kube-system", "ccm")?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        (0..2).find(|number| holder.contains(&format!("replica-{number}")))
    }

    async fn until_leads(&self, number: usize) -> Timestamp {
        self.world.until("the replica leads", |_| self.leader() == Some(number)).await;
        self.world.testbed.cloud.now()
    }

    /// Two replicas, of which the first leads and has made two nodes ready.
    async fn settled(&self) -> [Ccm; 2] {
        self.settled_with(Self::start).await
    }

    async fn settled_with(&self, start: fn(&Self, usize) -> Ccm) -> [Ccm; 2] {
        let first = start(self, 0);
        self.until_leads(0).await;
        let second = start(self, 1);
        for number in 1..=2 {
            self.world.testbed.join(number);
        }
        self.world
            .until("the nodes are ready", |_| (1..=2).all(|n| is_ready(&self.world.node(&format!("node-{n}")))))
            .await;
        [first, second]
    }

    fn expose(&self) {
        self.kind.expose(&self.world.testbed, "web", &[80, 443], &[1, 2]);
    }

    async fn until_exposed(&self) {
        let is_published = |_: &Testbed| self.kind.published(&self.world.service("web")).is_some();
        self.world.until("the Service is published", is_published).await;
        self.world.until_still(Duration::from_secs(2)).await;
        assert_eq!(self.kind.count(&self.world.testbed), 1, "{}", self.world.logs());
        assert_eq!(self.world.testbed.cloud.complaints(), Vec::<String>::new());
    }

    /// No write of the replica that led before was still going on, or began, once the other could lead.
    fn nothing_outlasts(&self, before: usize, taken_over: Timestamp) {
        for call in self.world.testbed.cloud.writes() {
            let late = call.caller == KEYS[before].0 && call.ended > taken_over && call.effective;
            assert!(
                !late,
                "{} by the replica that led before, {} to {}, taken over at {taken_over}\n{}",
                call.action,
                call.time,
                call.ended,
                self.world.logs()
            );
        }
    }
}

fn server_of(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("kubeconfig")).unwrap();
    let (_, rest) = text.split_once("http://").expect("the simulated API server speaks plain HTTP");
    rest.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect()
}

/// How long no replica led, in milliseconds.
async fn orderly() -> usize {
    // If the lease had to run out, the other one would not lead while this test lasts.
    let pair = Pair { lease: "1h", ..Pair::new(Kind::Clb).await };
    let [first, _second] = pair.settled().await;
    pair.expose();
    pair.until_exposed().await;
    assert!(first.stop().await.success());
    let began = Instant::now();
    let taken_over = pair.until_leads(1).await;
    // The time from the end of the one to the lead of the other; the first gives the lease back as its last deed.
    let took = began.elapsed();
    pair.nothing_outlasts(0, taken_over);
    milliseconds(took)
}

/// How long no replica led, in milliseconds.
async fn killed(kind: Kind) -> usize {
    let pair = Pair::new(kind).await;
    let [first, _second] = pair.settled().await;
    let mut held = pair.world.testbed.cloud.faults().hold(kind.creates_listener(), 0, Moment::After);
    pair.expose();
    held.arrived().await;
    first.kill().await;
    let began = Instant::now();
    held.lose();
    pair.until_leads(1).await;
    let took = began.elapsed();
    pair.until_exposed().await;
    milliseconds(took)
}

async fn paused(kind: Kind) {
    let pair = Pair::new(kind).await;
    let [first, second] = pair.settled().await;
    // It stops in the middle of its work: a first write is under way, more are planned.
    let mut held = pair.world.testbed.cloud.faults().hold(kind.creates(), 0, Moment::After);
    pair.expose();
    held.arrived().await;
    first.signal("STOP");
    held.release();
    let taken_over = pair.until_leads(1).await;
    pair.until_exposed().await;
    first.signal("CONT");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(pair.leader(), Some(1), "{}", pair.world.logs());
    pair.nothing_outlasts(0, taken_over);
    assert_eq!(kind.count(&pair.world.testbed), 1, "{}", pair.world.logs());
    assert!(second.stop().await.success());
    pair.until_leads(0).await;
}

async fn cut_off() {
    let pair = Pair::new(Kind::Clb).await;
    let [_first, _second] = pair.settled().await;
    pair.links[0].cut();
    // There is always something to do for a replica that believes it leads: a person keeps taking routes away.
    let nodes = pair.world.testbed.cloud.snapshot()["routes"].to_string().matches("i-play-").count();
    assert_eq!(nodes, 2);
    pair.expose();
    let taken_over = pair.until_leads(1).await;
    pair.until_exposed().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    pair.nothing_outlasts(0, taken_over);
}

async fn slow(kind: Kind) {
    let pair = Pair::new(kind).await;
    let [first, _second] = pair.settled().await;
    // Each write takes long, and the leader loses the API server in the middle of a row of them.
    pair.world.testbed.cloud.dials(|dials| dials.latency = Duration::from_secs(3));
    pair.expose();
    pair.world.until("the first write has been made", |testbed| testbed.cloud.count(kind.creates()) > 0).await;
    pair.links[0].cut();
    let taken_over = pair.until_leads(1).await;
    pair.world.testbed.cloud.dials(|dials| dials.latency = Duration::ZERO);
    pair.until_exposed().await;
    pair.nothing_outlasts(0, taken_over);
    drop(first);
}

/// Elections go by clocks that nobody can set: a wall clock that jumps neither costs the lead nor gains it.
async fn clocks_jump() {
    const HOUR: i64 = 3600;
    let pair = Pair::new(Kind::Clb).await;
    let [first, second] = pair.settled_with(Pair::start_with_clock).await;
    let began = Instant::now();
    let mut jumps = [(1, HOUR), (0, -HOUR), (1, -24 * HOUR), (0, 24 * HOUR), (0, -HOUR), (1, HOUR)].iter().cycle();
    while began.elapsed() < LEASE + Duration::from_secs(4) {
        let (replica, seconds) = jumps.next().unwrap();
        pair.jump(*replica, *seconds);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(pair.leader(), Some(0), "after a jump of replica {replica} by {seconds} s\n{}", pair.world.logs());
    }
    assert!(!first.log().contains("lost"), "{}", first.log());
    // The one that takes over has a clock that is behind by an hour, the lease was renewed by one that is ahead.
    pair.jump(0, HOUR);
    pair.jump(1, -HOUR);
    let ahead = |testbed: &Testbed| {
        let lease = testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
        let renewed: Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
        (3500..3700).contains(&renewed.duration_since(testbed.cloud.now()).as_secs())
    };
    pair.world.until("the lease is renewed by a clock that is ahead", ahead).await;
    first.kill().await;
    let began = Instant::now();
    pair.until_leads(1).await;
    assert!(began.elapsed() > LEASE / 3, "{:?}\n{}", began.elapsed(), pair.world.logs());
    pair.jump(1, 0);
    pair.expose();
    pair.until_exposed().await;
    drop(second);
}

/// The request of the replica that led is on its way for so long that the other one sends the same: both make one thing.
async fn both_make_the_same(kind: Kind) {
    let pair = Pair::new(kind).await;
    let [first, second] = pair.settled().await;
    let mut late = pair.world.testbed.cloud.faults().hold(kind.creates(), 0, Moment::Before);
    pair.expose();
    late.arrived().await;
    first.signal("STOP");
    pair.until_leads(1).await;
    pair.until_exposed().await;
    late.release();
    first.signal("CONT");
    let both = |testbed: &Testbed| {
        testbed.cloud.writes().iter().filter(|call| call.action == "CreateLoadBalancer").count() == 2
    };
    pair.world.until("both have asked for it", both).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(kind.count(&pair.world.testbed), 1, "{}", pair.world.logs());
    assert_eq!(pair.leader(), Some(1));
    drop(second);
}

fn milliseconds(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_works() {
    let of = async |kind: Kind| tokio::join!(killed(kind), paused(kind), slow(kind), both_make_the_same(kind)).0;
    let (orderly, killed, ..) = tokio::join!(orderly(), of(Kind::Clb), of(Kind::Nlb), cut_off(), clocks_jump());
    println!("handed over in {orderly} ms when stopped, in {killed} ms when killed");
    Row {
        tried: "two replicas: stopped, killed, paused, partitioned, slow, with clocks that jump, both creating the same object",
        test: "leader_failover::of_two_replicas_one_works",
        numbers: vec![("schedules", 11), ("writes that outlast a lead", 0)],
        lost: 0,
    }
    .write();
}
