//! A Kubernetes API server without Kubernetes: it stores objects, speaks the real protocol over loopback HTTP or in
//! process, behaves as a chosen version, and fails on demand in the ways of the real one.
//!
//! Start with [`Cluster::new`], then [`Cluster::listen`] and [`Cluster::kubeconfig`] for clients that connect, or
//! [`Cluster::handle`] as the service below a client in the same process. Nodes join with [`Cluster::join_node`];
//! [`Cluster::until`] waits for what they should become.
//!
//! What is left out on purpose: ownership of fields (`managedFields` stay as a client gave them), protobuf answers, admission, quotas, and every
//! resource that a cloud controller neither reads nor writes.

mod access;
mod clock;
mod controller_manager;
mod convert;
mod defaults;
mod discovery;
mod endpoints;
mod failure;
mod faults;
mod kubelet;
mod log;
mod object;
mod patch;
mod protobuf;
mod rbac;
mod reads;
mod request;
mod resources;
mod selectors;
mod server;
mod services;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod validation;
mod version;
mod watch;
mod writes;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub use controller_manager::ControllerManager;
pub use endpoints::Endpoint;
pub use failure::Failure;
pub use faults::{Chaos, Effect, Held, Match, Moment};
pub use kubelet::NodeSpec;
pub use log::Call;
pub use resources::{RESOURCES, Resource, Served};
pub use server::{Body, Lost};
pub use version::{Feature, Version};

use clock::Clock;
use defaults::Rules;
use patch::Format;
use server::Listening;
use storage::{Key, Store};
use writes::Target;

use crate::ordered_watch::Sender;

/// A simulated cluster; clones are the same cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: RwLock<Rules>,
    clock: Clock,
    store: Mutex<Store>,
    access: Mutex<access::Access>,
    faults: Mutex<faults::Faults>,
    log: Mutex<log::Log>,
    /// What is being done to all watches.
    watches: Sender<watch::Dial>,
    /// Whether a watch from a compacted version is refused with HTTP 410 instead of an ERROR event.
    gone_as_status: AtomicBool,
    /// Whether requests get no answer.
    away: AtomicBool,
    /// Address of the listener, kept while the cluster is away.
    address: Mutex<Option<SocketAddr>>,
    /// The listener while there is one; ended by going away.
    listening: Mutex<Option<Listening>>,
}

impl Shared {
    fn rules(&self) -> Rules {
        *self.rules.read()
    }
}

/// The objects at one moment, for conditions that are waited for.
#[derive(Debug)]
pub struct View<'a> {
    store: &'a Store,
}

impl<'a> View<'a> {
    /// An object by kind (or plural, or short name), namespace (empty for cluster scope) and name.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        self.store.get(&Key::new(resource(kind), namespace, name)).map(|object| &**object)
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn list(&self, kind: &str) -> Vec<&'a Value> {
        self.store.list(resource(kind), "").map(|(_, object)| &**object).collect()
    }

    /// Version of the last write.
    pub fn version(&self) -> u64 {
        self.store.version()
    }
}

/// The condition did not hold in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReached {
    /// How long it was waited for.
    pub after: Duration,
}

impl std::fmt::Display for NotReached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the cluster did not get there within {:?}", self.after)
    }
}

impl std::error::Error for NotReached {}

/// The resource called so. A name that the table lacks is a mistake in the test, which should stop there.
fn resource(kind: &str) -> &'static Resource {
    resources::named(kind).unwrap_or_else(|| panic!("the simulated cluster has no kind {kind:?}"))
}

impl Cluster {
    /// A cluster of the given version with its usual Namespaces and the Service `default/kubernetes`.
    pub fn new(version: Version) -> Cluster {
        Cluster::build(Rules::new(version))
    }

    /// The same, with IPv6 addresses for Services that ask for them.
    pub fn dual_stack(version: Version) -> Cluster {
        Cluster::build(Rules { dual_stack: true, ..Rules::new(version) })
    }

    /// Another cluster with the same objects and history; it does not listen yet, and has no faults.
    #[must_use]
    pub fn fork(&self) -> Cluster {
        Cluster::around(self.shared.rules(), self.shared.store.lock().fork())
    }

    fn around(rules: Rules, store: Store) -> Cluster {
        Cluster {
            shared: Arc::new(Shared {
                rules: RwLock::new(rules),
                clock: Clock::start(),
                store: Mutex::new(store),
                access: Mutex::default(),
                faults: Mutex::default(),
                log: Mutex::default(),
                watches: Sender::new(watch::Dial::default()),
                gone_as_status: AtomicBool::new(false),
                away: AtomicBool::new(false),
                address: Mutex::new(None),
                listening: Mutex::new(None),
            }),
        }
    }

    fn build(rules: Rules) -> Cluster {
        let cluster = Cluster::around(rules, Store::new());
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            cluster.seed(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        }
        cluster.seed(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "kubernetes", "namespace": "default",
                          "labels": { "component": "apiserver", "provider": "kubernetes" } },
            "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443, "targetPort": 6443 }] },
        }));
        cluster
    }

    fn seed(&self, object: Value) {
        if let Err(failure) = self.create(object) {
            unreachable!("a built-in object is valid: {}", failure.message);
        }
    }

    /// The played version.
    pub fn version(&self) -> Version {
        self.shared.rules().version
    }

    /// Plays another version from now on, with the objects that are there. Put it between [`Cluster::go_away`] and
    /// [`Cluster::come_back`], as real servers cannot change without a break. Who is served EndpointSlices only from then
    /// on has none before endpoints are set anew.
    pub fn play(&self, version: Version) {
        self.shared.rules.write().version = version;
    }

    /// Gives Services node ports from this range, as the flag `--service-node-port-range` of the server says it.
    pub fn allow_node_ports(&self, first: u16, last: u16) {
        self.shared.rules.write().node_ports = (first, last);
    }

    fn target<'a>(&self, resource: &'static Resource, namespace: &'a str, name: &'a str) -> Target<'a> {
        Target {
            rules: self.shared.rules(),
            now: self.shared.clock.now(),
            resource,
            namespace,
            name,
            status: false,
            dry_run: false,
        }
    }
}

/// Objects, without going through HTTP; none of this is logged as a call or meets a fault.
impl Cluster {
    /// The object as it is now, in its stored form.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let store = self.shared.store.lock();
        store.get(&Key::new(resource(kind), namespace, name)).map(|object| Value::clone(object))
    }

    /// Looks at the objects as they are now.
    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&View { store: &self.shared.store.lock() })
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.shared.store.lock().list(resource(kind), "").map(|(_, object)| Value::clone(object)).collect()
    }

    /// Creates an object; a namespaced one without a namespace goes to `default`.
    pub fn create(&self, mut object: Value) -> Result<Value, Failure> {
        let (resource, namespace, name) = self.identify(&object)?;
        to_stored(resource, &mut object);
        let target = self.target(resource, &namespace, &name);
        writes::create(&mut self.shared.store.lock(), target, object).map(|object| Value::clone(&object))
    }

    /// Creates an object, or merges it strategically into the one that is there. Its `status` is written as well.
    pub fn apply(&self, mut object: Value) -> Result<Value, Failure> {
        let (resource, namespace, name) = self.identify(&object)?;
        to_stored(resource, &mut object);
        let target = self.target(resource, &namespace, &name);
        let mut store = self.shared.store.lock();
        let (applied, _) = writes::patch(&mut store, target, Format::Apply, &object)?;
        let status = object.get("status").filter(|_| resource.status);
        let Some(status) = status else { return Ok(Value::clone(&applied)) };
        let target = Target { status: true, ..target };
        let (applied, _) = writes::patch(&mut store, target, Format::Merge, &json!({ "status": status }))?;
        Ok(Value::clone(&applied))
    }

    /// Applies a JSON merge patch to the main resource.
    pub fn patch(&self, kind: &str, namespace: &str, name: &str, changes: &Value) -> Result<Value, Failure> {
        let target = self.target(resource(kind), namespace, name);
        let (object, _) = writes::patch(&mut self.shared.store.lock(), target, Format::Merge, changes)?;
        Ok(Value::clone(&object))
    }

    /// Applies a strategic merge patch to `/status`.
    pub fn patch_status(&self, kind: &str, namespace: &str, name: &str, status: &Value) -> Result<Value, Failure> {
        let target = Target { status: true, ..self.target(resource(kind), namespace, name) };
        let changes = json!({ "status": status });
        let (object, _) = writes::patch(&mut self.shared.store.lock(), target, Format::Strategic, &changes)?;
        Ok(Value::clone(&object))
    }

    /// Deletes an object; one with finalizers is only marked.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Failure> {
        let target = self.target(resource(kind), namespace, name);
        writes::delete(&mut self.shared.store.lock(), target, &Value::Null).map(|_| ())
    }

    /// Writes an object as an API server with another idea of its kind would: a field has a value that no client can decode.
    pub fn spoil(&self, kind: &str, namespace: &str, name: &str) {
        let key = Key::new(resource(kind), namespace, name);
        let mut store = self.shared.store.lock();
        let Some(mut object) = store.get(&key).map(|object| Value::clone(object)) else { return };
        object["metadata"]["ownerReferences"] = json!("nonsense");
        store.put(key, object);
    }

    /// Version of the last write.
    pub fn resource_version(&self) -> u64 {
        self.shared.store.lock().version()
    }

    /// Waits until a condition on the objects holds.
    ///
    /// The store is locked while the condition looks at it: it must ask the view, never the cluster.
    pub async fn until(&self, mut holds: impl FnMut(&View<'_>) -> bool, timeout: Duration) -> Result<(), NotReached> {
        let mut changes = self.shared.store.lock().subscribe();
        let waiting = async {
            loop {
                changes.latest();
                if holds(&View { store: &self.shared.store.lock() }) {
                    return;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(timeout, waiting).await.map_err(|_| NotReached { after: timeout })
    }

    fn identify(&self, object: &Value) -> Result<(&'static Resource, String, String), Failure> {
        let kind = object::text(object, "/kind");
        let resource = resources::named(kind)
            .ok_or_else(|| Failure::bad_request(format!("the simulated cluster has no kind {kind:?}")))?;
        let namespace = match object::namespace(object) {
            _ if !resource.namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        Ok((resource, namespace.to_owned(), object::name(object).to_owned()))
    }
}

fn to_stored(resource: &Resource, object: &mut Value) {
    let given = object::text(object, "/apiVersion");
    let version = given.rsplit('/').next().unwrap_or("v1").to_owned();
    convert::to_stored(resource, &version, object);
}

/// Being reached, and by whom.
impl Cluster {
    /// Listens on a free port of the loopback interface, in the background.
    pub async fn listen(&self) -> io::Result<SocketAddr> {
        self.listen_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Listens on an address, in the background.
    async fn listen_on(&self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        *self.shared.address.lock() = Some(address);
        self.shared.away.store(false, Ordering::Relaxed);
        let before = self.shared.listening.lock().replace(self.spawn_listener(listener));
        if let Some(before) = before {
            before.stop().await;
        }
        Ok(address)
    }

    /// Closes the listener and every connection; nothing answers, also in process.
    pub async fn go_away(&self) {
        self.shared.away.store(true, Ordering::Relaxed);
        self.drop_watches();
        let listening = self.shared.listening.lock().take();
        if let Some(listening) = listening {
            listening.stop().await;
        }
    }

    /// Answers again, on the same address if there was one.
    pub async fn come_back(&self) -> io::Result<()> {
        self.shared.away.store(false, Ordering::Relaxed);
        let address = *self.shared.address.lock();
        let Some(address) = address else { return Ok(()) };
        // While it was away, its port may have been taken by a connection for a while.
        for _ in 0..100 {
            match self.listen_on(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return other.map(drop),
            }
        }
        self.listen_on(address).await.map(drop)
    }

    /// A kubeconfig file for the listener, with a token if tokens are asked for.
    ///
    /// # Panics
    /// If the cluster does not listen.
    pub fn kubeconfig(&self) -> String {
        let token = self.shared.access.lock().a_token().map(str::to_owned);
        self.kubeconfig_with(token.as_deref())
    }

    /// A kubeconfig file with this token.
    ///
    /// # Panics
    /// If the cluster does not listen.
    pub fn kubeconfig_with(&self, token: Option<&str>) -> String {
        let address = *self.shared.address.lock();
        server::kubeconfig(address.expect("a kubeconfig needs an address: listen first"), token)
    }

    /// From now on a token is needed, and this one means this user.
    pub fn admit(&self, token: &str, user: &str) {
        self.shared.access.lock().admit(token, user);
    }

    /// Knows a token when it is asked whose it is, and lets its owner get these paths beside objects; everybody else needs
    /// no token for that.
    pub fn let_read(&self, token: &str, user: &str, paths: &[&str]) {
        let mut access = self.shared.access.lock();
        access.know(token, user);
        paths.iter().for_each(|path| access.let_read(user, path));
    }

    /// The token becomes invalid.
    pub fn revoke(&self, token: &str) {
        self.shared.access.lock().revoke(token);
    }

    /// Refuses a user a verb on a resource (`nodes`, `services/status`) with 403; `*` fits all.
    pub fn deny(&self, user: &str, verb: &str, target: &str) {
        self.shared.access.lock().deny(user, verb, target);
    }

    /// From now on everybody may do only what these roles and bindings grant.
    pub fn grant_only(&self, roles_and_bindings: &[Value]) {
        self.shared.access.lock().grant_only(rbac::Rbac::read(roles_and_bindings));
    }

    /// Takes back every denial.
    pub fn undeny(&self) {
        self.shared.access.lock().undeny();
    }
}

/// The fault dial.
impl Cluster {
    /// Troubles the next matching request.
    pub fn trouble(&self, matching: Match, effect: Effect) {
        self.trouble_times(matching, effect, 1);
    }

    /// Troubles the next so many matching requests; `usize::MAX` for all until [`Cluster::calm`].
    pub fn trouble_times(&self, matching: Match, effect: Effect, times: usize) {
        self.shared.faults.lock().add(matching, effect, times);
    }

    /// Holds the next matching request until the returned value is released or dropped.
    pub fn hold(&self, matching: Match, moment: Moment) -> Held {
        self.hold_nth(matching, 0, moment)
    }

    /// Holds a matching request after so many others have passed.
    pub fn hold_nth(&self, matching: Match, skip: usize, moment: Moment) -> Held {
        self.shared.faults.lock().hold(matching, skip, moment)
    }

    /// Lets every request take this long.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.faults.lock().set_latency(latency);
    }

    /// Random faults from a seed, or none.
    pub fn set_chaos(&self, chaos: Option<Chaos>) {
        self.shared.faults.lock().set_chaos(chaos);
    }

    /// Takes back all faults, latency and chaos. Held requests stay held, and stalled watches stalled.
    pub fn calm(&self) {
        self.shared.faults.lock().clear();
    }

    /// Ends all running watches properly; their connections stay usable.
    pub fn drop_watches(&self) {
        self.cut_watches(false);
    }

    /// Ends all running watches in the middle of a chunk, as a proxy that dies does.
    pub fn break_watches(&self) {
        self.cut_watches(true);
    }

    fn cut_watches(&self, abrupt: bool) {
        self.shared.watches.change(|dial| {
            dial.cuts += 1;
            dial.abrupt = abrupt;
        });
    }

    /// Lets watches stay open but tell nothing, like connections that are dead on the other side; or tell everything
    /// that they missed.
    pub fn stall_watches(&self, stall: bool) {
        self.shared.watches.change(|dial| dial.stalled = stall);
    }

    /// Goes back to how `backup`, an earlier fork of this cluster, is: versions included, as when etcd is restored from a
    /// snapshot. The servers are started anew for that, so all watches break.
    pub fn restore(&self, backup: &Cluster) {
        let backup = backup.shared.store.lock().fork();
        self.shared.store.lock().restore(&backup);
        self.break_watches();
    }

    /// Forgets the history: a watch from an older version gets 410 Gone.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// Whether watches from a forgotten version are refused with HTTP 410, or (the default) begin and then say so.
    pub fn refuse_gone_watches(&self, refuse: bool) {
        self.shared.gone_as_status.store(refuse, Ordering::Relaxed);
    }
}

/// The call log.
impl Cluster {
    /// Every request for objects so far, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.log.lock().calls().to_vec()
    }

    /// Those that asked for a change.
    pub fn writes(&self) -> Vec<Call> {
        self.shared.log.lock().calls().iter().filter(|call| call.is_write()).cloned().collect()
    }

    /// How many of those there were, apart from one resource.
    pub fn count_writes_except(&self, resource: &str) -> usize {
        let log = self.shared.log.lock();
        log.calls().iter().filter(|call| call.is_write() && call.resource != resource).count()
    }

    /// How often a verb was asked for on a resource (`nodes`, `nodes/status`).
    pub fn count(&self, verb: &str, target: &str) -> usize {
        self.shared.log.lock().calls().iter().filter(|call| call.verb == verb && call.target() == target).count()
    }

    /// How often each verb was asked for on each resource.
    pub fn counts(&self) -> BTreeMap<(&'static str, String), usize> {
        self.shared.log.lock().counts()
    }

    /// Starts the log anew.
    pub fn clear_calls(&self) {
        self.shared.log.lock().clear();
    }
}
