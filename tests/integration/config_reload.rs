//! The configuration changes while the process runs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use alicloud_ccm::config::watch::{ConnectionCheck, Reload, Watch, WatchPace};
use alicloud_ccm::config::{ConfigSource, Loaded, load};
use alicloud_ccm::controllers::registry::CATALOG;
use serde_json::{Value, json};
use sim::cluster::NodeSpec;
use sim::request_hold::Moment;
use sim::testbed::{ROUTE_TABLE, Testbed, instance};

use crate::harness::{ALL, Ccm, HASTE, PATIENCE, World, address, free_port, get, is_ready};

/// Such as `is in use`, so many times.
fn reported(ccm: &Ccm, text: &str) -> usize {
    ccm.log().matches(text).count()
}

async fn until_told(world: &World, ccm: &Ccm, text: &str, times: usize) {
    world.until(&format!("{text:?} is logged {times} times"), |_| reported(ccm, text) >= times).await;
}

async fn metric(port: u16, line: &str) -> bool {
    get(port, "/metrics").await.is_some_and(|(_, text)| text.lines().any(|it| it == line))
}

async fn last_reload(port: u16) -> Value {
    let (_, text) = get(port, "/configz").await.unwrap_or_default();
    serde_json::from_str::<Value>(&text).unwrap_or_default()["last_reload"].clone()
}

fn condition(node: &Value) -> (String, String) {
    let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|it| it["type"] == "NetworkUnavailable").unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    (text(&found["status"]), text(&found["reason"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reload_outcome_is_reported_in_every_place() {
    let world = World::new(&["node"], HASTE).await;
    let port = world.serve_health();
    let ccm = world.start_with(&[], &[("POD_NAME", "ccm-0"), ("POD_NAMESPACE", "kube-system"), ("POD_UID", "1-2-3")]);
    world.until_so("it is ready", || async { get(port, "/readyz").await.is_some_and(|(code, _)| code == 200) }).await;
    let event = |reason: &'static str| {
        let events = world.events("Pod", "ccm-0");
        events.into_iter().find(|event| event.1 == reason).map(|event| event.2)
    };

    let (_, shown) = get(port, "/configz").await.unwrap();
    assert_eq!(shown.matches("\"drift_check\": \"10m\"").count(), 2, "as the file has it: {shown}");
    assert!(!shown.contains("nanos"), "{shown}");

    let good = fs::read_to_string(world.config()).unwrap();
    world.edit(|text| {
        text.replace("access_key_secret_file", "role_arn = 7\naccess_key_secret = \"hunter22\"\n#")
            + "removal_limit = \"many\"\n"
    });
    until_told(&world, &ccm, "has problems, so the previous one stays in use", 1).await;
    world.until("an event", |_| event("ConfigRejected").is_some()).await;
    let text = event("ConfigRejected").unwrap();
    assert!(text.contains("node.removal_limit") && text.contains("cloud.credentials.role_arn"), "{text}");
    let last = last_reload(port).await;
    assert_eq!(
        (&last["outcome"], last["problems"].as_array().unwrap().len() > 1),
        (&json!("rejected"), true),
        "{last}"
    );
    assert!(last["hash"].is_string() && last["at"].is_string(), "{last}");
    assert!(metric(port, "alicloud_ccm_config_reloads_total{outcome=\"rejected\"} 1").await);
    assert!(metric(port, "alicloud_ccm_config_last_reload_successful 0").await);

    world.edit(|_| {
        good.replace("[\"node\"]", "[\"node\", \"route\"]")
            .replace("access_key_secret_file", "#\naccess_key_secret_file")
    });
    until_told(&world, &ccm, "is in use", 1).await;
    world.until("an event", |_| event("ConfigApplied").is_some()).await;
    let text = event("ConfigApplied").unwrap();
    assert!(text.ends_with("changed: controllers; started: route; stopped: routes-off"), "{text}");
    let last = last_reload(port).await;
    assert_eq!((&last["outcome"], &last["started"]), (&json!("applied"), &json!(["route"])), "{last}");
    assert!(metric(port, "alicloud_ccm_config_last_reload_successful 1").await);
    assert!(metric(port, "alicloud_ccm_controller_running{controller=\"route\"} 1").await);

    ccm.signal("HUP");
    world.until("an event", |_| event("ConfigUnchanged").is_some()).await;
    world
        .until_so("it is counted", || metric(port, "alicloud_ccm_config_reloads_total{outcome=\"unchanged\"} 1"))
        .await;
    fs::write(world.folder().join("broken"), "clusters: []\n").unwrap();
    world.edit(|text| text.replace("kubeconfig = \"kubeconfig\"", "kubeconfig = \"broken\""));
    until_told(&world, &ccm, "has problems, so the previous one stays in use", 2).await;
    let last = last_reload(port).await;
    assert!(last["problems"].to_string().contains("kubernetes.kubeconfig"), "{last}");
    assert_eq!(reported(&ccm, "connected"), 1, "the session goes on");
    let all = format!("{}{:?}", ccm.log(), world.events("Pod", "ccm-0"));
    assert!(!all.contains("hunter22") && !all.contains("not-a-real-secret"));
    assert!(ccm.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pod_the_node_of_this_machine_gets_the_event() {
    let world = World::new(&["node"], HASTE).await;
    let ccm = world.start_with(&[], &[("NODE_NAME", "node-1")]);
    world.testbed.join(1);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    ccm.signal("HUP");
    let has = |event: &(String, String, String)| event.1 == "ConfigUnchanged";
    world.until("an event", |_| world.events("Node", "node-1").iter().any(has)).await;
}

/// One key of each class, and that no other job notices.
#[tokio::test(flavor = "multi_thread")]
async fn every_class_of_keys_takes_effect_in_the_running_process() {
    let world = World::new(&["node", "service"], HASTE).await;
    world.testbed.cluster.admit("first", "ccm");
    fs::write(world.folder().join("kubeconfig"), world.testbed.cluster.kubeconfig_with(Some("first"))).unwrap();
    let port = world.serve_health();
    let ccm = world.start();
    world.testbed.join(1);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    let mut applied = 0;
    let mut change = async |from: &str, to: &str| {
        world.edit(|text| {
            assert!(text.contains(from), "{from} in {text}");
            text.replace(from, to)
        });
        applied += 1;
        until_told(&world, &ccm, "is in use", applied).await;
    };

    // SLB defaults: the next load balancer has them.
    change("[node]", "[service.defaults.tags]\nteam = \"blue\"\n\n[node]").await;
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.until("the tag", |testbed| testbed.cloud.snapshot().to_string().contains("blue")).await;
    // Leader election.
    change("[server]", "[leader_election]\nlease_duration = \"21s\"\n\n[server]").await;
    world
        .until("the lease says so", |testbed| {
            let lease = testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default();
            lease["spec"]["leaseDurationSeconds"] == 21
        })
        .await;
    // The listener moves.
    let other = free_port();
    change(&format!("port = {port}"), &format!("port = {other}")).await;
    world.until_so("it listens there", || async { get(other, "/livez").await.is_some() }).await;
    assert_eq!(get(port, "/livez").await, None);
    // A rotated key, in the file that the configuration names; the old one is dead.
    world.testbed.cloud.edit(|cloud| {
        let old = cloud.keys.remove("LTAIplayground").unwrap();
        cloud.keys.insert("LTAIrotated".to_owned(), old);
    });
    change("LTAIplayground", "LTAIrotated").await;
    world.testbed.join(2);
    world.until("the next call uses it", |_| is_ready(&world.node("node-2"))).await;
    // Logs.
    change("[route]\n", "[log]\nlevel = \"debug\"\n\n[route]\n").await;
    // Requests per second, and the budget.
    change("qps = 1000.0", "qps = 900.0").await;
    // A period.
    change("period = \"10s\"", "period = \"11s\"").await;
    assert_eq!((reported(&ccm, "started job="), reported(&ccm, "stopped job=")), (3, 0), "{}", ccm.log());
    assert_eq!(reported(&ccm, "starting anew"), 0);

    // Certificates and tokens of the kubeconfig are re-read.
    world.testbed.cluster.admit("second", "ccm");
    fs::write(world.folder().join("kubeconfig"), world.testbed.cluster.kubeconfig_with(Some("second"))).unwrap();
    until_told(&world, &ccm, "credentials were read anew", 1).await;
    world.testbed.cluster.revoke("first");
    world.testbed.join(3);
    world.until("the new token is used", |_| is_ready(&world.node("node-3"))).await;
    assert_eq!(reported(&ccm, "starting anew"), 0);

    // The place: everything behind the health server starts anew, in the same process.
    change("region = \"cn-hangzhou\"", "region = \"cn-hangzhou\"\nzone_id = \"cn-hangzhou-j\"").await;
    until_told(&world, &ccm, "connected", 2).await;
    world.testbed.join(4);
    world.until("it works as before", |_| is_ready(&world.node("node-4"))).await;
    assert_eq!(get(other, "/livez").await, Some((200, "ok".to_owned())));
    // The format of the log, last, as the lines above are looked for in the old one.
    change("[log]\n", "[log]\nformat = \"json\"\n").await;
    ccm.signal("HUP");
    world.until("lines are JSON", |_| ccm.log().lines().last().is_some_and(|line| line.starts_with('{'))).await;
    assert!(ccm.stop().await.success());
}

const NODES: usize = 500;

fn populate(testbed: &Testbed) {
    testbed.cloud.edit(|cloud| cloud.limits.routes_per_table = NODES + 10);
    for number in 0..NODES {
        let (name, id) = (format!("n{number}"), format!("i-n{number}"));
        testbed.cloud.add_instance(&id, &name, "vsw-i", &format!("192.168.{}.{}", 2 + number / 200, 2 + number % 200));
        let cidr = format!("10.98.{}.{}/25", number / 2, number % 2 * 128);
        let spec = NodeSpec::new(&name).provider_id(&format!("cn-hangzhou.{id}")).pod_cidr(&cidr);
        testbed.cluster.add_node(&spec).unwrap();
        // What an earlier route controller left behind; on some, what a network plug-in says.
        let reason = if is_plugins(number) { "CalicoIsDown" } else { "NoRouteCreated" };
        let condition = json!({ "type": "NetworkUnavailable", "status": "True", "reason": reason });
        testbed.cluster.patch_status("Node", "", &name, &json!({ "conditions": [condition] })).unwrap();
    }
}

fn is_plugins(number: usize) -> bool {
    number.is_multiple_of(50)
}

fn all_say(world: &World, status: &str, reasons: &[&str]) -> bool {
    (0..NODES).all(|number| {
        let (now, why) = condition(&world.node(&format!("n{number}")));
        if is_plugins(number) {
            (now.as_str(), why.as_str()) == ("True", "CalicoIsDown")
        } else {
            now == status && reasons.contains(&why.as_str())
        }
    })
}

fn routes(testbed: &Testbed) -> usize {
    let custom = |it: &&sim::cloud::RouteEntry| it.kind == "Custom";
    testbed.cloud.look(|cloud| cloud.route_tables[ROUTE_TABLE].entries.values().filter(custom).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_toggles_of_routes_over_five_hundred_nodes_end_right() {
    let world = World::new(&["node"], &HASTE.replace("10s", "1h")).await;
    world.edit(|text| text.replace("qps = 1000.0\nburst = 1000", "qps = 10000.0\nburst = 10000"));
    populate(&world.testbed);
    let ccm = world.start();
    world.until("off at the start", |_| all_say(&world, "False", &["RoutesDisabled"])).await;
    assert_eq!(routes(&world.testbed), 0);

    let (off, on) = ("[\"node\"]", "[\"node\", \"route\"]");
    for round in 0..50 {
        world.edit(|text| text.replace(off, on));
        until_told(&world, &ccm, "is in use", 2 * round + 1).await;
        world.edit(|text| text.replace(on, off));
        until_told(&world, &ccm, "is in use", 2 * round + 2).await;
    }
    let kept = routes(&world.testbed);
    world.until("nobody waits for routes", |_| all_say(&world, "False", &["RoutesDisabled", "RouteCreated"])).await;
    assert!(routes(&world.testbed) >= kept, "no route is removed");

    world.edit(|text| text.replace(off, on));
    until_told(&world, &ccm, "is in use", 101).await;
    world.until("on", |testbed| routes(testbed) == NODES && all_say(&world, "False", &["RouteCreated"])).await;
    // A node loses its network, and routes are switched off before the controller can change the condition.
    world.edit(|text| text.replace(on, off));
    until_told(&world, &ccm, "is in use", 102).await;
    let lost = json!({ "type": "NetworkUnavailable", "status": "True", "reason": "RouteCreated" });
    world.testbed.cluster.patch_status("Node", "", "n1", &json!({ "conditions": [lost] })).unwrap();
    world.until("off", |_| condition(&world.node("n1")) == ("False".to_owned(), "RoutesDisabled".to_owned())).await;
    assert_eq!(routes(&world.testbed), NODES);
    assert_eq!(reported(&ccm, "stopped job=\"node\""), 0, "the other controller does not notice");
    assert!(ccm.stop().await.success());
}

/// Fits every range.
fn short(number: u64) -> u64 {
    number % 997 + 1
}

/// The same number in many places; whoever sees two numbers sees a mixture.
fn numbered(number: u64) -> String {
    let padding = "# so that a file is more than one page\n".repeat(usize::try_from(number % 160).unwrap());
    let short = short(number);
    format!(
        "[node]\nremoval_limit = {short}\n[route]\nremoval_limit = {short}\n{padding}[kubernetes]\nburst = {short}\n\
         [service.defaults.tags]\nnumber = \"{number}\"\n[cloud]\ncluster_id = \"c{number}\"\n"
    )
}

fn number_of(loaded: &Loaded) -> u64 {
    let config = &loaded.config;
    let number: u64 = config.cloud.cluster_id.trim_start_matches('c').parse().unwrap();
    let places = [config.node.removal_limit, config.route.removal_limit, config.kubernetes.burst];
    assert!(places.iter().all(|it| u64::from(*it) == short(number)), "a mixture: {places:?} and {number}");
    assert_eq!(config.service.defaults.tags["number"], number.to_string(), "a mixture");
    number
}

/// Repeatable, and different enough.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// One edit in one of the ways in which files are edited; the file says `number` at its end, if `good`.
fn edit(folder: &Path, way: u64, number: u64, text: &str) {
    let file = folder.join("ccm.toml");
    match way {
        0 => fs::write(&file, text).unwrap(),
        1 => {
            fs::write(folder.join("ccm.toml~"), text).unwrap();
            fs::rename(folder.join("ccm.toml~"), &file).unwrap();
        }
        2 => {
            let mut open = fs::File::create(&file).unwrap();
            let (first, second) = text.split_at(text.len() / 2);
            open.write_all(first.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_micros(number % 5 * 500));
            open.write_all(second.as_bytes()).unwrap();
        }
        _ => {
            let (version, link) = (format!("..{number}"), folder.join("..data"));
            fs::create_dir(folder.join(&version)).unwrap();
            fs::write(folder.join(&version).join("ccm.toml"), text).unwrap();
            let before = fs::read_link(&link).ok();
            symlink(&version, folder.join("..data_tmp")).unwrap();
            fs::rename(folder.join("..data_tmp"), &link).unwrap();
            symlink("..data/ccm.toml", folder.join("ccm.toml_tmp")).unwrap();
            fs::rename(folder.join("ccm.toml_tmp"), &file).unwrap();
            if let Some(before) = before {
                fs::remove_dir_all(folder.join(before)).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_edits_without_a_mixture_and_without_a_loss() {
    const BATCH: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("ccm.toml");
    fs::write(&path, numbered(1)).unwrap();
    let origin = ConfigSource { path, ..ConfigSource::default() };
    // Nothing but the watch finds changes.
    let pace = WatchPace { quiet: Duration::from_millis(5), poll: Duration::from_secs(3600) };
    let rules: (_, ConnectionCheck) = (&CATALOG, |_| Box::pin(async { Ok(()) }));
    let watch = Watch::new(origin.clone(), rules, load(&origin, &CATALOG).unwrap(), pace);
    let (trigger, (sender, mut outcomes)) =
        (std::sync::Arc::<tokio::sync::Notify>::default(), tokio::sync::mpsc::channel(1));
    tokio::spawn(watch.run(trigger.clone(), sender));
    trigger.notify_one();
    assert_eq!(outcomes.recv().await, Some(Reload::Unchanged));

    let mut seed = 42;
    let mut seen = 1;
    for batch in 0..10_000 / BATCH {
        let numbers = 2 + batch * BATCH..2 + (batch + 1) * BATCH;
        let last = numbers.end - 1;
        let ways: Vec<(u64, u64)> = numbers.map(|number| (number, next(&mut seed))).collect();
        let place = folder.path().to_owned();
        let edits = tokio::task::spawn_blocking(move || {
            for (number, random) in ways {
                let text = match random / 4 % 8 {
                    _ if number == last => numbered(number),
                    0 => numbered(number).replace("burst", "bursts"),
                    1 => numbered(number).replace('"', ""),
                    _ => numbered(number),
                };
                edit(&place, random % 4, number, &text);
            }
        });
        // The last one is never lost, whatever happens in between.
        while seen != last {
            let reload =
                tokio::time::timeout(PATIENCE, outcomes.recv()).await.unwrap_or_else(|_| panic!("{last} is lost"));
            if let Reload::Applied(loaded) = reload.unwrap() {
                let number = number_of(&loaded);
                assert!(number > seen, "{number} after {seen}");
                seen = number;
            }
        }
        edits.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_while_nodes_and_services_change_lose_nothing() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start();
    let good = fs::read_to_string(world.config()).unwrap();
    let mut seed = 7;
    for round in 1..=40_u64 {
        let number = u8::try_from(round).unwrap();
        match round % 4 {
            0 => drop(world.testbed.join(number)),
            1 => world.testbed.expose(&format!("s{round}"), &[80], &[], &[]),
            // The one of two rounds before.
            3 if round % 8 == 3 => {
                world.testbed.cluster.delete("Service", "default", &format!("s{}", round - 2)).unwrap();
            }
            _ => {}
        }
        let random = next(&mut seed);
        let text = match random / 2 % 4 {
            0 => good.replace("[\"node\", \"route\", \"service\"]", "[\"node\", \"service\"]"),
            1 => good.replace("[route]", "[route]\nperiod = \"never\""),
            _ => format!("{good}removal_limit = {round}\n"),
        };
        if random.is_multiple_of(2) {
            world.edit(|_| text);
        } else {
            let mut open = fs::File::create(world.config()).unwrap();
            let (first, second) = text.split_at(text.len() / 2);
            open.write_all(first.as_bytes()).unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            open.write_all(second.as_bytes()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(random % 300)).await;
    }
    world.edit(|_| good);
    fs::set_permissions(world.config(), fs::Permissions::from_mode(0o600)).unwrap();
    let services: Vec<String> =
        (1..=40).filter(|round| round % 4 == 1 && round % 8 != 1).map(|round| format!("s{round}")).collect();
    world
        .until("all that is there is served", |_| services.iter().all(|name| address(&world.service(name)).is_some()))
        .await;
    world
        .until("the nodes are initialised and routed", |testbed| {
            (1..=10_u8).all(|step| is_ready(&world.node(&format!("node-{}", step * 4)))) && routes(testbed) == 10
        })
        .await;
    world
        .until("all that is gone is cleaned up", |testbed| {
            testbed.cloud.look(|cloud| cloud.load_balancers.len()) == services.len()
                && testbed.cluster.list("Service").len() == services.len() + 1
        })
        .await;
    assert!(world.testbed.cloud.snapshot().to_string().contains(&instance(4)));
    assert!(ccm.stop().await.success());
    assert_eq!(world.testbed.cloud.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_keeps_the_values_that_it_began_with() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start();
    world.testbed.join(1);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    let lease = |field: &str| {
        world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap_or_default()["spec"][field].clone()
    };
    // A call under way keeps the controllers from ending at once.
    let mut call = world.testbed.cloud.faults().hold("CreateLoadBalancer", 0, Moment::Before);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    call.arrived().await;
    let before = lease("leaseDurationSeconds");
    world.edit(|text| {
        text.replace("[server]", "[leader_election]\nlease_duration = \"21s\"\n\n[server]")
            .replace("[cloud]\n", "[cloud]\nzone_id = \"cn-hangzhou-j\"\n")
    });
    until_told(&world, &ccm, "a new session starts", 1).await;
    // The election of the session that ends goes on: it renews the lease with the values that it began with.
    let renewed = lease("renewTime");
    world.until("the lease is renewed", |_| lease("renewTime") != renewed).await;
    assert_eq!((lease("leaseDurationSeconds"), reported(&ccm, "connected")), (before, 1), "{}", ccm.log());
    call.release();
    until_told(&world, &ccm, "connected", 2).await;
    world.until("the next session has the new ones", |_| lease("leaseDurationSeconds") == 21).await;
    assert_eq!(reported(&ccm, "leader election is configured anew"), 0, "{}", ccm.log());
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    assert_eq!(world.testbed.cloud.look(|account| account.load_balancers.len()), 1);
    assert!(ccm.stop().await.success());
}
