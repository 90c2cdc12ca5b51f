//! Finds and loads changes of the configuration while the program runs.
//!
//! Folders are watched, not files: a ConfigMap swaps a symlink and an editor renames, and a watch on the file itself would
//! die with the old one. After a change there is a quiet time, and a file with problems is read twice, so that a half-written
//! file is not rejected. A slow poll finds whatever the watch misses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::catalog::Catalog;
use super::check::Referenced;
use super::checked::{Kubernetes, LeaderElection};
use super::load::{Attempt, Loaded, attempt};
use super::report::{ConfigProblem, ConfigReport, ProblemPlace};
use super::source::ConfigSource;

/// Keys of the election that cannot change while the program runs, and whether they do. Replicas read the file at different times:
/// one that locks something else, or nothing, would lead beside one that has not read it yet.
pub fn refused(before: &LeaderElection, after: &LeaderElection) -> [(&'static str, bool); 3] {
    [
        ("leader_election.enabled", before.enabled != after.enabled),
        ("leader_election.name", before.name != after.name),
        ("leader_election.namespace", before.namespace != after.namespace),
    ]
}

/// The outcome of reading the configuration again, also as `/configz` has it; free of secrets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Reload<A = Box<Loaded>> {
    /// It has not changed. Sent on request, and when a rejected change is reverted.
    Unchanged,
    /// There is a new one: itself, or what it changes.
    Applied(A),
    /// The new one has problems; the last good one stays in use. Sent once for the same problems, and on request.
    Rejected {
        /// Everything that is wrong with it.
        #[serde(flatten)]
        report: ConfigReport,
        /// SHA-1 of the file, if it could be read.
        hash: Option<String>,
    },
}

/// How often the configuration is read.
#[derive(Clone, Copy, Debug)]
pub struct WatchPace {
    /// How long nothing may have changed before the files are read.
    pub quiet: Duration,
    /// Time between two reads without a change or a request.
    pub poll: Duration,
}

impl Default for WatchPace {
    fn default() -> Self {
        Self { quiet: Duration::from_millis(200), poll: Duration::from_secs(30) }
    }
}

/// A file that never comes to rest is read after this many quiet times all the same.
const LONGEST_WAIT: u32 = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Asked,
    Changed,
    Time,
}

/// Says why a connection to the API server cannot be prepared with these settings.
pub type ConnectionCheck = fn(Kubernetes) -> BoxFuture<'static, Result<(), String>>;

/// Looks for changes.
#[derive(Debug)]
pub struct Watch {
    origin: ConfigSource,
    catalog: &'static Catalog,
    connects: ConnectionCheck,
    current: Loaded,
    /// What was last said to be wrong; `None` if all was well.
    rejected: Option<ConfigReport>,
    pace: WatchPace,
    /// Away while the files are read.
    folders: Option<Folders>,
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches everything that `current` was loaded from.
    pub fn new(
        origin: ConfigSource,
        (catalog, connects): (&'static Catalog, ConnectionCheck),
        current: Loaded,
        pace: WatchPace,
    ) -> Self {
        let (changed, changes) = mpsc::channel(1);
        Self { origin, catalog, connects, current, rejected: None, pace, folders: Some(Folders::new(changed)), changes }
    }

    /// Sends every outcome until all receivers are dropped. `trigger` requests a read now; several requests before it are one.
    pub async fn run(mut self, trigger: Arc<Notify>, out: mpsc::Sender<Reload>) {
        // The file may have changed between loading and watching, so the first read is at once.
        let mut cause = Cause::Time;
        loop {
            if cause == Cause::Changed || self.folders.as_ref().is_some_and(Folders::being_written) {
                self.settle().await;
            }
            let Some(mut attempt) = self.read_twice().await else { return };
            attempt.outcome = match attempt.outcome {
                Ok(loaded) => self.connectable(loaded).await,
                refused => refused,
            };
            if let Some(outcome) = self.judge(attempt, cause)
                && out.send(outcome).await.is_err()
            {
                return;
            }
            cause = tokio::select! {
                () = out.closed() => return,
                () = trigger.notified() => Cause::Asked,
                Some(()) = self.changes.recv() => Cause::Changed,
                () = sleep(self.pace.poll) => Cause::Time,
            };
        }
    }

    /// Waits until nothing has changed for a while and no writer has the file open.
    async fn settle(&mut self) {
        let end = Instant::now() + self.pace.quiet * LONGEST_WAIT;
        loop {
            let quiet = (Instant::now() + self.pace.quiet).min(end);
            match timeout_at(quiet, self.changes.recv()).await {
                Ok(Some(())) if quiet < end => {}
                Ok(None) => return sleep(self.pace.quiet).await,
                Err(_) if quiet < end && self.folders.as_ref().is_some_and(Folders::being_written) => {}
                _ => return,
            }
        }
    }

    /// Reads the files; what is newly wrong is read again after a while.
    async fn read_twice(&mut self) -> Option<Attempt> {
        let first = self.read().await?;
        match &first.outcome {
            Err(report) if self.rejected.as_ref() != Some(report) => {
                sleep(self.pace.quiet).await;
                self.read().await
            }
            _ => Some(first),
        }
    }

    /// `None` if the program is about to end.
    async fn read(&mut self) -> Option<Attempt> {
        let (origin, catalog) = (self.origin.clone(), self.catalog);
        let mut folders = self.folders.take()?;
        let reading = tokio::task::spawn_blocking(move || {
            // Once before reading, so that no change after it is missed, and once after, for files newly named.
            folders.cover(std::slice::from_ref(&origin.path));
            let attempt = attempt(&origin, catalog);
            let Referenced { keys, others } = &attempt.referenced;
            folders.cover_only(&[std::slice::from_ref(&origin.path), keys, others].concat());
            (attempt, folders)
        });
        match reading.await {
            Ok((attempt, folders)) => {
                self.folders = Some(folders);
                Some(attempt)
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    fn judge(&mut self, attempt: Attempt, cause: Cause) -> Option<Reload> {
        match attempt.outcome.and_then(|loaded| self.accept(loaded)) {
            Ok(loaded) if loaded == self.current => {
                let taken_back = self.rejected.take().is_some();
                (taken_back || cause == Cause::Asked).then_some(Reload::Unchanged)
            }
            Ok(loaded) => {
                self.rejected = None;
                self.current = loaded.clone();
                Some(Reload::Applied(Box::new(loaded)))
            }
            Err(report) => {
                let known = self.rejected.replace(report.clone()).as_ref() == Some(&report);
                (!known || cause == Cause::Asked).then_some(Reload::Rejected { report, hash: attempt.hash })
            }
        }
    }

    /// Refuses another connection to the API server that cannot be prepared: the one that there is would end for it.
    async fn connectable(&self, loaded: Loaded) -> Result<Loaded, ConfigReport> {
        let connection = |of: &Kubernetes| (of.kubeconfig.clone(), of.context.clone(), of.server.clone());
        let kubernetes = &loaded.config.kubernetes;
        if connection(&self.current.config.kubernetes) == connection(kubernetes) {
            return Ok(loaded);
        }
        match (self.connects)(kubernetes.clone()).await {
            Ok(()) => Ok(loaded),
            Err(why) => Err(ConfigReport::new(vec![self.problem("kubernetes.kubeconfig", why, None)], &[])),
        }
    }

    fn problem(&self, key: &str, message: String, help: Option<String>) -> ConfigProblem {
        let place = ProblemPlace::Whole { file: self.origin.path.clone() };
        ConfigProblem { key: Some(key.to_owned()), ..ConfigProblem::at(place, message, help) }
    }

    /// Refuses a configuration that only a new start may take.
    fn accept(&self, loaded: Loaded) -> Result<Loaded, ConfigReport> {
        let running = &self.current.config.leader_election;
        let changed = refused(running, &loaded.config.leader_election).into_iter().filter(|(_, changes)| *changes);
        let problem = |(key, _): (&str, bool)| {
            let message =
                format!("{key} cannot change while the program runs: until all replicas have read it, two would lead");
            let help = Some("stop all replicas, then start them again".to_owned());
            self.problem(key, message, help)
        };
        let problems: Vec<_> = changed.map(problem).collect();
        if problems.is_empty() { Ok(loaded) } else { Err(ConfigReport::new(problems, &[])) }
    }
}

/// The folders that are watched.
#[derive(Debug)]
struct Folders {
    /// `None` if the system offers no watch; then only the slow poll finds changes.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    files: Arc<Mutex<Files>>,
}

/// The files that count, as the watch names them.
#[derive(Debug, Default)]
struct Files {
    names: BTreeSet<PathBuf>,
    /// Files that were written to and not closed yet.
    open: BTreeSet<PathBuf>,
}

impl Files {
    /// Whether what happened can mean a change.
    fn notice(&mut self, event: &Event) -> bool {
        let ours = event.paths.is_empty() || event.paths.iter().any(|path| self.names.contains(path));
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.open.extend(event.paths.iter().filter(|path| self.names.contains(*path)).cloned());
            }
            // Other files of the folder, such as logs, are written all the time.
            EventKind::Modify(ModifyKind::Metadata(_)) => {}
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => self.close(event),
            // Reading is an event too, and we read; that must not be a reason to read again.
            EventKind::Access(_) => return false,
            // Names come and go: links to our files may be among them.
            _ => {
                self.close(event);
                return true;
            }
        }
        ours
    }

    fn close(&mut self, event: &Event) {
        self.open.retain(|path| !event.paths.contains(path));
    }
}

impl Folders {
    fn new(changed: mpsc::Sender<()>) -> Self {
        let files = Arc::new(Mutex::new(Files::default()));
        let noticing = files.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| noticing.lock().notice(&event)) {
                _ = changed.try_send(());
            }
        });
        if let Err(error) = &watcher {
            warn!(code = "ACCM0707", %error, "changes of the configuration cannot be watched and are found with a delay");
        }
        Self { watcher: watcher.ok(), watched: BTreeSet::new(), files }
    }

    /// Whether a file of ours is open after it was written to.
    fn being_written(&self) -> bool {
        !self.files.lock().open.is_empty()
    }

    /// Watches the folders of these files. Those that are watched already are watched anew, because a folder may have been
    /// replaced by another of the same name.
    fn cover(&mut self, files: &[PathBuf]) {
        self.files.lock().names.extend(names_of(files));
        let Some(watcher) = &mut self.watcher else { return };
        for folder in folders_of(files) {
            if watcher.watch(&folder, RecursiveMode::NonRecursive).is_ok() {
                self.watched.insert(folder);
            }
        }
    }

    /// The same, and no longer watches any other folder.
    fn cover_only(&mut self, files: &[PathBuf]) {
        self.cover(files);
        self.files.lock().names = names_of(files).collect();
        let wanted = folders_of(files);
        let Some(watcher) = &mut self.watcher else { return };
        self.watched.retain(|folder| {
            let keep = wanted.contains(folder);
            if !keep {
                // A folder that is gone is not watched any more, which is what is wanted.
                _ = watcher.unwatch(folder);
            }
            keep
        });
    }
}

/// The folders in which a change can mean a change of these files: where they are named, and where they really are.
fn folders_of(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    names_of(files).filter_map(|file| file.parent().map(Path::to_owned)).collect()
}

/// The files as they are named and as they really are, each with its folder.
fn names_of(files: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let named = files.iter().cloned();
    let real = files.iter().filter_map(|file| file.canonicalize().ok());
    named.chain(real).map(|file| match file.parent() {
        Some(folder) if folder != Path::new("") => file,
        _ => Path::new(".").join(file),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;
    use tokio_util::task::AbortOnDropHandle;

    use super::super::{Credentials, load};
    use super::*;
    use crate::controllers::registry::CATALOG;

    const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

    struct World {
        dir: TempDir,
        changed: mpsc::Sender<()>,
        watch: Running,
    }

    struct Running {
        trigger: Arc<Notify>,
        outcomes: mpsc::Receiver<Reload>,
        _task: AbortOnDropHandle<()>,
    }

    impl Running {
        fn start(watch: Watch) -> Self {
            let trigger = Arc::<Notify>::default();
            let (sender, outcomes) = mpsc::channel(1);
            let task = tokio::spawn(watch.run(trigger.clone(), sender));
            Self { trigger, outcomes, _task: AbortOnDropHandle::new(task) }
        }

        async fn next(&mut self) -> Option<Reload> {
            self.outcomes.recv().await
        }
    }

    fn origin(path: PathBuf) -> ConfigSource {
        ConfigSource { path, ..ConfigSource::default() }
    }

    fn text(cluster: &str) -> String {
        format!("[cloud]\ncluster_id = {cluster:?}\n")
    }

    fn only_told() -> WatchPace {
        WatchPace { poll: NEVER, ..WatchPace::default() }
    }

    /// A configuration on disk whose changes the test announces.
    fn world(pace: WatchPace, prepare: impl FnOnce(&Path)) -> World {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let origin = origin(dir.path().join("ccm.toml"));
        let (changed, changes) = mpsc::channel(1);
        let folders = Some(Folders { watcher: None, watched: BTreeSet::new(), files: Arc::default() });
        let current = load(&origin, &CATALOG).unwrap();
        let connects: ConnectionCheck = |kubernetes| Box::pin(async move { there_is(&kubernetes) });
        let watch = Watch { origin, catalog: &CATALOG, connects, current, rejected: None, pace, folders, changes };
        let watch = Running::start(watch);
        World { dir, changed, watch }
    }

    fn there_is(kubernetes: &Kubernetes) -> Result<(), String> {
        let is_missing = |file: &&PathBuf| !file.exists();
        kubernetes.kubeconfig.iter().find(is_missing).map_or(Ok(()), |file| Err(format!("no {}", file.display())))
    }

    fn plain(dir: &Path) {
        fs::write(dir.join("ccm.toml"), text("one")).unwrap();
    }

    impl World {
        fn write(&self, content: &str) {
            fs::write(self.dir.path().join("ccm.toml"), content).unwrap();
        }

        async fn asked(&mut self) -> Reload {
            self.watch.trigger.notify_one();
            self.watch.next().await.unwrap()
        }

        async fn applied(&mut self) -> Loaded {
            match self.watch.next().await.unwrap() {
                Reload::Applied(loaded) => *loaded,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_found_by_looking_now_and_then() {
        let mut world = world(WatchPace::default(), plain);
        world.write(&text("two"));
        assert_eq!(world.applied().await.config.cloud.cluster_id, "two");
    }

    #[tokio::test(start_paused = true)]
    async fn being_asked_always_has_an_answer() {
        let mut world = world(only_told(), plain);
        assert_eq!(world.asked().await, Reload::Unchanged);
        world.write("[cloud");
        assert!(matches!(world.asked().await, Reload::Rejected { .. }));
        assert!(matches!(world.asked().await, Reload::Rejected { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn another_kubeconfig_is_refused_until_it_can_be_used() {
        let mut world = world(WatchPace::default(), plain);
        let kubeconfig = world.dir.path().join("kubeconfig");
        world.write(&format!("{}[kubernetes]\nkubeconfig = {kubeconfig:?}\n", text("two")));
        let Some(Reload::Rejected { report, .. }) = world.watch.next().await else { panic!("it was not refused") };
        assert_eq!(report.problems()[0].key.as_deref(), Some("kubernetes.kubeconfig"));
        fs::write(&kubeconfig, "").unwrap();
        assert_eq!(world.applied().await.config.kubernetes.kubeconfig, Some(kubeconfig.clone()));
        // What is in use already is no reason to refuse anything else.
        fs::remove_file(&kubeconfig).unwrap();
        world.write(&format!("{}[kubernetes]\nkubeconfig = {kubeconfig:?}\n", text("three")));
        assert_eq!(world.applied().await.config.cloud.cluster_id, "three");
    }

    #[tokio::test(start_paused = true)]
    async fn another_lock_is_refused_while_replicas_run_and_its_end_is_said() {
        for change in ["enabled = false", "name = \"other\"", "namespace = \"other\""] {
            let mut world = world(WatchPace::default(), plain);
            world.write(&format!("{}[leader_election]\n{change}\n", text("one")));
            let Some(Reload::Rejected { report, .. }) = world.watch.next().await else { panic!("{change} is taken") };
            let key = format!("leader_election.{}", change.split(' ').next().unwrap());
            assert_eq!(report.problems()[0].key.as_deref(), Some(&*key));
            world.write(&text("one"));
            assert_eq!(world.watch.next().await, Some(Reload::Unchanged));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_is_said_once_and_its_end_too() {
        let mut world = world(WatchPace::default(), plain);
        world.write("[cloud]\n");
        let Some(Reload::Rejected { report, .. }) = world.watch.next().await else { panic!("not rejected") };
        assert_eq!(report.problems()[0].key.as_deref(), Some("cloud.cluster_id"));
        let silence = tokio::time::timeout(Duration::from_secs(3600), world.watch.next()).await;
        assert!(silence.is_err(), "the same mistake was reported again: {silence:?}");
        world.write(&text("one"));
        assert_eq!(world.watch.next().await, Some(Reload::Unchanged));
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_a_write_is_not_a_mistake() {
        let mut world = world(only_told(), plain);
        assert_eq!(world.asked().await, Reload::Unchanged);
        world.write("[cloud]\nclus");
        world.changed.send(()).await.unwrap();
        sleep(Duration::from_millis(150)).await;
        world.write(&text("two"));
        world.changed.send(()).await.unwrap();
        assert_eq!(world.applied().await.config.cloud.cluster_id, "two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_away_for_a_moment_is_not_a_mistake() {
        let mut world = world(only_told(), plain);
        assert_eq!(world.asked().await, Reload::Unchanged);
        fs::remove_file(world.dir.path().join("ccm.toml")).unwrap();
        world.changed.send(()).await.unwrap();
        sleep(Duration::from_millis(300)).await;
        world.write(&text("two"));
        assert_eq!(world.applied().await.config.cloud.cluster_id, "two");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_end_do_not_keep_the_file_from_being_read() {
        let mut world = world(only_told(), plain);
        assert_eq!(world.asked().await, Reload::Unchanged);
        world.write(&text("two"));
        let changed = world.changed.clone();
        let churn = tokio::spawn(async move {
            while changed.send(()).await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert_eq!(world.applied().await.config.cloud.cluster_id, "two");
        churn.abort();
    }

    fn key_file(dir: &Path, secret: &str) {
        let path = dir.join("secret");
        fs::write(&path, secret).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotated_key_file_is_a_new_configuration() {
        let mut world = world(WatchPace::default(), |dir| {
            let credentials = "[cloud.credentials]\naccess_key_id = \"LTAI1\"\naccess_key_secret_file = \"secret\"\n";
            fs::write(dir.join("ccm.toml"), text("one") + credentials).unwrap();
            key_file(dir, "before\n");
        });
        fs::remove_file(world.dir.path().join("secret")).unwrap();
        key_file(world.dir.path(), "after\n");
        let Credentials::AccessKey(key) = world.applied().await.config.cloud.credentials else { panic!("no key") };
        assert_eq!(key.secret.expose(), "after");
    }

    /// The real watch, with nothing else that could find the change.
    async fn watched(dir: &Path, change: impl FnOnce()) -> Reload {
        let origin = origin(dir.join("ccm.toml"));
        let pace = WatchPace { quiet: Duration::from_millis(20), poll: NEVER };
        let rules: (_, ConnectionCheck) = (&CATALOG, |_| Box::pin(async { Ok(()) }));
        let watch = Watch::new(origin.clone(), rules, load(&origin, &CATALOG).unwrap(), pace);
        let mut watch = Running::start(watch);
        watch.trigger.notify_one();
        assert_eq!(watch.next().await, Some(Reload::Unchanged));
        change();
        tokio::time::timeout(Duration::from_secs(60), watch.next()).await.unwrap().unwrap()
    }

    fn cluster(reload: Reload) -> String {
        match reload {
            Reload::Applied(loaded) => loaded.config.cloud.cluster_id,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_written_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        plain(dir.path());
        let path = dir.path().join("ccm.toml");
        assert_eq!(cluster(watched(dir.path(), || fs::write(&path, text("two")).unwrap()).await), "two");
    }

    #[tokio::test]
    async fn a_renamed_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        plain(dir.path());
        let rename = || {
            fs::write(dir.path().join("ccm.toml~"), text("two")).unwrap();
            fs::rename(dir.path().join("ccm.toml~"), dir.path().join("ccm.toml")).unwrap();
        };
        assert_eq!(cluster(watched(dir.path(), rename).await), "two");
    }

    #[tokio::test]
    async fn a_config_map_that_is_swapped_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let version = |name: &str, cluster: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("ccm.toml"), text(cluster)).unwrap();
            symlink(name, dir.path().join("..data_tmp")).unwrap();
            fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        };
        version("..2026_1", "one");
        symlink("..data/ccm.toml", dir.path().join("ccm.toml")).unwrap();
        let swap = || {
            version("..2026_2", "two");
            fs::remove_dir_all(dir.path().join("..2026_1")).unwrap();
        };
        assert_eq!(cluster(watched(dir.path(), swap).await), "two");
    }

    #[tokio::test]
    async fn a_rotated_key_file_elsewhere_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = tempfile::tempdir().unwrap();
        key_file(keys.path(), "before");
        let secret = keys.path().join("secret");
        let credentials =
            format!("[cloud.credentials]\naccess_key_id = \"LTAI1\"\naccess_key_secret_file = {secret:?}\n");
        fs::write(dir.path().join("ccm.toml"), text("one") + &credentials).unwrap();
        let rotate = || {
            fs::remove_file(&secret).unwrap();
            key_file(keys.path(), "after");
        };
        let Reload::Applied(loaded) = watched(dir.path(), rotate).await else { panic!("not applied") };
        let Credentials::AccessKey(key) = loaded.config.cloud.credentials else { panic!("no key") };
        assert_eq!(key.secret.expose(), "after");
    }
}
