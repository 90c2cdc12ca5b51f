//! The log of the running program: every line of a cloud call says which call it was, and every warning has a code.

use std::fs::File;
use std::io::Read;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::Value;

use crate::harness::{ALL, HASTE, World, address, is_ready};

/// Length of the request ids of the vendor.
const REQUEST_ID: usize = 36;

/// What is logged while a node joins and a Service is exposed.
async fn log_as(format: &str) -> (World, Vec<String>) {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let format = format!("log.format={format}");
    let ccm = world.start_with(&["--set", &format, "--set", "log.level=debug"], &[]);
    world.until("the node is ready", |_| is_ready(&world.node("node-1"))).await;
    world.until("the Service has an address", |_| address(&world.service("web")).is_some()).await;
    let log = ccm.log();
    assert!(ccm.stop().await.success());
    let lines = log.lines().filter(|line| line.contains("cloud call")).map(str::to_owned).collect();
    (world, lines)
}

/// Whether these calls, as action and request id, are calls that the cloud has answered, writes among them.
fn assert_answered(world: &World, logged: &[(String, String)]) {
    let answered: Vec<String> = world.testbed.cloud.calls().into_iter().map(|call| call.action).collect();
    for (action, request_id) in logged {
        assert!(answered.contains(action), "{action} was not called");
        assert_eq!(request_id.len(), REQUEST_ID, "the request id of {action}: {request_id:?}");
    }
    assert!(logged.iter().any(|(action, _)| action == "CreateLoadBalancer"), "{logged:?}");
    assert!(logged.iter().any(|(action, _)| action == "DescribeInstances"), "{logged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_cloud_call_has_its_action_and_request_id_in_json() {
    let (world, lines) = log_as("json").await;
    let logged: Vec<(String, String)> = lines
        .iter()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let call = line["spans"].as_array().and_then(|spans| spans.last()).cloned().unwrap_or_default();
            assert_eq!((&call["name"], &line["outcome"]), (&"cloud_call".into(), &"ok".into()), "{line}");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&call["action"]), text(&call["request_id"]))
        })
        .collect();
    assert_answered(&world, &logged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_a_cloud_call_has_its_action_and_request_id_in_text() {
    let (world, lines) = log_as("text").await;
    let logged: Vec<(String, String)> = lines
        .iter()
        .map(|line| {
            let field = |name: &str| {
                let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap_or_else(|| panic!("no {name}: {line}"));
                rest.split('"').next().unwrap_or_default().to_owned()
            };
            (field("action"), field("request_id"))
        })
        .collect();
    assert_answered(&world, &logged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_has_the_code_of_the_event_beside_it() {
    let world = World::new(ALL, HASTE).await;
    world.testbed.join(1);
    let bandwidth = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-bandwidth";
    world.testbed.expose("web", &[80], &["node-1"], &[(bandwidth, "much")]);
    let ccm = world.start_with(&["--set", "log.format=json"], &[]);
    let message = world.until_event("Service", "web", "SyncLoadBalancerFailed").await;
    let (_, code) = message.trim_end_matches(')').rsplit_once(" (").unwrap();
    let log = ccm.log();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let warnings: Vec<_> = lines.filter(|line| ["WARN", "ERROR"].iter().any(|level| line["level"] == *level)).collect();
    let about = |line: &&Value| line["message"].as_str().is_some_and(|text| text.contains("\"much\""));
    assert_eq!(warnings.iter().find(about).unwrap()["code"], code, "{message}: {warnings:?}");
    assert!(
        warnings.iter().all(|line| line["code"].as_str().is_some_and(|code| code.starts_with("ACCM"))),
        "{warnings:?}"
    );
    assert!(ccm.stop().await.success());
}

/// A terminal, and what is written to it.
fn terminal() -> (File, Arc<Mutex<String>>) {
    let window = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&window).unwrap();
    unlockpt(&window).unwrap();
    let terminal = ioctl_tiocgptpeer(&window, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let shown = Arc::<Mutex<String>>::default();
    let (mut window, screen) = (File::from(window), shown.clone());
    // Ends with the last writer.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = window.read(&mut buffer) {
            screen.lock().push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
    (File::from(terminal), shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_on_a_terminal_have_colours_unless_no_color_is_set() {
    for (no_color, has_colours) in [("", true), ("1", false)] {
        let world = World::new(&["node"], HASTE).await;
        let (terminal, shown) = terminal();
        let mut program = Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"))
            .env_clear()
            .env("NO_COLOR", no_color)
            .args(["run", "--config"])
            .arg(world.config())
            .stderr(terminal)
            .spawn()
            .unwrap();
        world.until("it works", |_| shown.lock().contains("leading")).await;
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(shown.lock().contains("\u{1b}["), has_colours, "NO_COLOR={no_color}: {}", shown.lock());
    }
}

/// A log that cannot be written could not say so either.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_log_stops_nothing() {
    let world = World::new(ALL, HASTE).await;
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alicloud-ccm"));
    command.env_clear().args(["run", "--config"]).arg(world.config()).stdout(std::process::Stdio::null()).stderr(full);
    let mut running = command.spawn().unwrap();
    world.testbed.join(1);
    world.until("the node is initialised", |_| is_ready(&world.node("node-1"))).await;
    let ended = running.try_wait().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(ended, None);
}
