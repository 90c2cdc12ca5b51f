//! A simulated cluster and cloud on loopback, and the binary between them.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sim::cluster::Version;
use sim::testbed::Testbed;

/// How long anything may take before a test gives up; far more than it needs on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks, or more where looks take long.
const LOOK: Duration = Duration::from_millis(10);

/// Keys of `[node]` that make the waits of the node controller short enough for a test.
pub(crate) const HASTE: &str = "period = \"10s\"\nremoval_grace = \"10s\"\nremoval_interval = \"5s\"\n";

/// The controllers of a cluster without network load balancers.
pub(crate) const ALL: &[&str] = &["node", "route", "service"];

/// Every controller.
pub(crate) const EVERY: &[&str] = &["node", "route", "service", "nlb", "volume-labels", "pvtz"];

/// Every controller but `pvtz`, for tests beside which names in a private zone have their own.
pub(crate) const WITHOUT_NAMES: &[&str] = &["node", "route", "service", "nlb", "volume-labels"];

/// A testbed, and a folder with the configuration for it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) testbed: Testbed,
    folder: tempfile::TempDir,
}

impl World {
    /// A testbed of the newest version, with the configuration for these controllers; `more` as in [`Testbed::write_config`].
    pub(crate) async fn new(controllers: &[&str], more: &str) -> Self {
        Self::of(Testbed::open(Version::NEWEST).await.unwrap(), controllers, more)
    }

    /// This testbed, with the configuration for these controllers.
    pub(crate) fn of(testbed: Testbed, controllers: &[&str], more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        testbed.write_config(folder.path(), controllers, more).unwrap();
        Self { testbed, folder }
    }

    /// The folder that holds configuration, kubeconfig, key and logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder().join("alicloud-ccm.toml")
    }

    /// Changes the configuration file.
    pub(crate) fn rewrite(&self, change: impl FnOnce(String) -> String) {
        let text = change(std::fs::read_to_string(self.config()).unwrap());
        std::fs::write(self.config(), text).unwrap();
    }

    /// Starts the binary. Several can run at once.
    pub(crate) fn start(&self) -> Ccm {
        self.start_with(&[], &[])
    }

    /// Starts the binary with its health server on a free port, see [`Ccm::page`].
    pub(crate) fn start_serving(&self) -> Ccm {
        let port = free_port();
        let mut ccm = self.start_with(&["--set", &format!("server.port={port}")], &[]);
        ccm.port = port;
        ccm
    }

    /// Starts the binary with more arguments and variables.
    pub(crate) fn start_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ccm {
        self.spawn(&[&["run"], arguments].concat(), environment)
    }

    /// Starts another command of the binary, which does not have to reach its end.
    pub(crate) fn start_command(&self, arguments: &[&str]) -> Ccm {
        self.spawn(arguments, &[])
    }

    fn spawn(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ccm {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = self.folder().join(format!("ccm-{number}.log"));
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Ccm { child: command.spawn().unwrap(), log, port: 0 }
    }

    /// What lets the wall clock of a process jump that loads it before all else, see `clock.c`.
    pub(crate) fn clock_library(&self) -> PathBuf {
        let library = self.folder().join("clock.so");
        if !library.exists() {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/clock.c");
            let built =
                Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
            assert!(built.unwrap().success(), "a C compiler is needed, as for the build");
        }
        library
    }

    /// Starts the binary with another configuration file out of a script that may mount what it likes: no other job sees it.
    pub(crate) fn start_after(&self, script: &str, config: &Path, environment: &[(&str, &str)]) -> Ccm {
        let log = self.folder().join("ccm-mounted.log");
        let run = format!("{script} && exec {} run --config {}", env!("CARGO_BIN_EXE_alicloud-ccm"), config.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &run]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").envs(environment.iter().copied());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Ccm { child: command.spawn().unwrap(), log, port: 0 }
    }

    /// Changes the text of the configuration file, as an editor does: by a new file that takes the place of the old one.
    pub(crate) fn edit(&self, change: impl FnOnce(String) -> String) {
        use std::os::unix::fs::PermissionsExt as _;
        let text = change(std::fs::read_to_string(self.config()).unwrap());
        let beside = self.folder().join("alicloud-ccm.toml~");
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(beside, self.config()).unwrap();
    }

    /// Lets the binary serve health on a free port, and gives that port.
    pub(crate) fn serve_health(&self) -> u16 {
        let port = free_port();
        self.edit(|text| text.replace("port = 0", &format!("port = {port}")));
        port
    }

    /// Runs another command of the binary to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[]).await
    }

    /// The same with environment variables.
    pub(crate) async fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// What `plan` prints, and its exit code.
    pub(crate) async fn plan(&self) -> (String, Option<i32>) {
        let output = self.run(&["plan"]).await;
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (text, output.status.code())
    }

    /// Waits until all controllers are quiet, also those that follow others, and expects that `plan` has nothing to do then.
    pub(crate) async fn until_in_sync(&self) {
        self.until_quiet(Duration::from_secs(1)).await;
        assert_eq!(self.plan().await, ("Nothing to do.\n".to_owned(), Some(0)));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
        command.env_clear().args(arguments).arg("--config").arg(self.config());
        command
    }

    /// Waits until both worlds are so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Testbed) -> bool) {
        self.until_so(what, || std::future::ready(is_so(&self.testbed))).await;
    }

    /// Waits until something other than the testbed is so.
    pub(crate) async fn until_so<F: Future<Output = bool>>(&self, what: &str, is_so: impl Fn() -> F) {
        let (began, mut looked) = (Instant::now(), Instant::now());
        while !is_so().await {
            assert!(began.elapsed() < PATIENCE, "not so after {} s: {what}\n{}", PATIENCE.as_secs(), self.logs());
            // Looks take from the same processors as what they wait for.
            tokio::time::sleep(LOOK.max(4 * looked.elapsed())).await;
            looked = Instant::now();
        }
    }

    /// Waits until no call and no edit of the cloud and no write to the API server (apart from the lease) has happened for `quiet`.
    pub(crate) async fn until_quiet(&self, quiet: Duration) {
        let calls = self.testbed.cloud.changes();
        self.until_unchanged(quiet, || usize::try_from(*calls.borrow()).unwrap()).await;
    }

    /// The calls to the cloud's products since the last time this was asked, counted by action.
    pub(crate) fn take_calls(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.testbed.cloud.take_calls().into_iter().filter(|call| call.product != "metadata") {
            *counts.entry(call.action).or_default() += 1;
        }
        counts
    }

    /// The writes to the API server so far, without the lease.
    pub(crate) fn kubernetes_writes(&self) -> Vec<String> {
        let writes = self.testbed.cluster.writes().into_iter().filter(|call| call.resource != "leases");
        writes.map(|call| format!("{} {} {}", call.verb, call.target(), call.name)).collect()
    }

    /// Waits until nothing was written to either world (apart from the lease) for `still`; reads do not count.
    pub(crate) async fn until_still(&self, still: Duration) {
        self.until_unchanged(still, || self.testbed.cloud.count_writes()).await;
    }

    /// Waits until this count and that of the writes to the API server have been the same for `period`.
    async fn until_unchanged(&self, period: Duration, count: impl Fn() -> usize) {
        let count = || count() + self.testbed.cluster.count_writes_except("leases");
        let (mut seen, mut since, began) = (count(), Instant::now(), Instant::now());
        while since.elapsed() < period {
            assert!(began.elapsed() < period + PATIENCE, "never quiet\n{}", self.logs());
            tokio::time::sleep(LOOK).await;
            let now = count();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// Everything that the binaries have logged.
    pub(crate) fn logs(&self) -> String {
        let mut logs: Vec<_> = std::fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        logs.iter().map(|path| format!("{}:\n{}", path.display(), std::fs::read_to_string(path).unwrap())).collect()
    }

    /// The Node as it is now.
    pub(crate) fn node(&self, name: &str) -> Value {
        self.testbed.cluster.get("Node", "", name).unwrap_or_default()
    }

    /// The Service in namespace `default` as it is now.
    pub(crate) fn service(&self, name: &str) -> Value {
        self.testbed.cluster.get("Service", "default", name).unwrap_or_default()
    }

    /// Waits for an event with this reason about an object, and gives its message.
    pub(crate) async fn until_event(&self, kind: &str, name: &str, reason: &str) -> String {
        let found = |events: Vec<(String, String, String)>| events.into_iter().find(|(_, of, _)| of == reason);
        let what = format!("{kind} {name} has the event {reason}");
        self.until(&what, |_| found(self.events(kind, name)).is_some()).await;
        found(self.events(kind, name)).unwrap().2
    }

    /// Events about an object, as (type, reason, message).
    pub(crate) fn events(&self, kind: &str, name: &str) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.testbed.cluster.list("Event").into_iter();
        all.filter(|event| event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name)
            .map(|event| (text(&event["type"]), text(&event["reason"]), text(&event["message"])))
            .collect()
    }
}

/// A running binary; killed when dropped.
#[derive(Debug)]
pub(crate) struct Ccm {
    child: Child,
    log: PathBuf,
    /// Of the health server, if [`World::start_serving`] started it.
    port: u16,
}

impl Ccm {
    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by name: `TERM`, `KILL`, `STOP`, `CONT`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success(), "the process is gone:\n{}", self.log());
    }

    /// Where it serves health, if [`World::start_serving`] started it.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// It was started with its health server on this port.
    pub(crate) fn serve_at(&mut self, port: u16) {
        self.port = port;
    }

    /// A page of the health server: status and text; `None` if the server does not answer.
    pub(crate) async fn page(&self, path: &str) -> Option<(u16, String)> {
        get(self.port, path).await
    }

    /// Waits until a page is so.
    pub(crate) async fn until_page(&self, path: &str, is_so: impl Fn(u16, &str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let page = self.page(path).await;
            match page {
                Some((status, text)) if is_so(status, &text) => return text,
                page => assert!(began.elapsed() < PATIENCE, "{path} is {page:?}\n{}", self.log()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// SIGTERM, then waits for the end.
    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    /// SIGKILL, then waits for the end.
    pub(crate) async fn kill(mut self) -> ExitStatus {
        self.signal("KILL");
        self.ended().await
    }

    /// Waits for the end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Ccm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on: outside of the range from which systems take ports by themselves, and a different one
/// each time.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several test processes can run at once. Browsers refuse 10080.
    let first = 10_100 + u16::try_from(std::process::id() % 100).unwrap() * 200;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 200;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Counts by name as [`World::take_calls`] gives them.
pub(crate) fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(action, count)| ((*action).to_owned(), *count)).collect()
}

/// Whether a node is initialised: no taint of ours or of conditions, and, with routes, a network.
pub(crate) fn is_ready(node: &Value) -> bool {
    let tainted = node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty());
    !node.is_null() && !tainted
}

/// The first address in the status of a Service.
pub(crate) fn address(service: &Value) -> Option<&str> {
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()
}

/// Status and body of a page of the health server; `None` if the server does not answer.
pub(crate) async fn get(port: u16, path: &str) -> Option<(u16, String)> {
    get_from("127.0.0.1", port, path).await
}

/// The same of a server at another address.
pub(crate) async fn get_from(address: &str, port: u16, path: &str) -> Option<(u16, String)> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect((address, port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(Duration::from_secs(10), exchange).await.ok()?
}

/// A port in front of an address: closed at first, so that connections are refused, and open when reported.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) port: u16,
    target: String,
    listening: Option<tokio::task::JoinHandle<()>>,
    passed: Arc<AtomicUsize>,
}

impl Gate {
    /// A closed gate in front of `host:port`.
    pub(crate) fn closed(target: &str) -> Self {
        Self { port: free_port(), target: target.to_owned(), listening: None, passed: Arc::default() }
    }

    /// How many connections have passed so far.
    pub(crate) fn count(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    /// Lets connections through from now on.
    pub(crate) async fn open(&mut self) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let (target, passed) = (self.target.clone(), self.passed.clone());
        self.listening = Some(tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let target = target.clone();
                passed.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    if let Ok(mut there) = tokio::net::TcpStream::connect(target).await {
                        // Either side may end it.
                        let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                    }
                });
            }
        }));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.abort();
        }
    }
}
