//! The page at `/`: what it says of a running process, and how it does in a browser.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use sim::cloud::Fault;

use crate::harness::{ALL, Ccm, HASTE, World, address, is_ready};

/// What the cloud answers with, as an attacker would who wants to get a script into the page.
const HOSTILE: &str = "<script>alert(1)</script>";
const ESCAPED: &str = "&lt;script&gt;alert(1)&lt;/script&gt;";

/// A process that leads, has initialised a node, exposed the Service `web`, and cannot make what `stuck` needs.
async fn busy() -> (World, Ccm) {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start_serving();
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    let is_served = |world: &World| is_ready(&world.node("node-1")) && address(&world.service("web")).is_some();
    world.until("the Service is served", |_| is_served(&world)).await;
    world.testbed.cloud.faults().always("CreateLoadBalancer", Fault::code(HOSTILE));
    world.testbed.expose("stuck", &[80], &["node-1"], &[]);
    (world, ccm)
}

/// The text between a heading and the next one.
fn section<'a>(page: &'a str, heading: &str, next: &str) -> &'a str {
    let main = &page[page.find("<main ").unwrap()..];
    let from = main.find(&format!("{heading}</h2>")).expect(heading);
    &main[from..main.find(&format!("{next}</h2>")).expect(next)]
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_what_is_out_of_sync_and_every_step_with_who_and_what() {
    let (world, ccm) = busy().await;
    let event = world.until_event("Service", "stuck", "SyncLoadBalancerFailed").await;
    let page = ccm.until_page("/", |status, page| status == 200 && page.contains("default/stuck</th>")).await;
    assert!(page.contains("<title>1 out of sync: alicloud-ccm</title>"), "{page}");
    let stuck = section(&page, "Out of sync", "Withheld steps");
    let told = event.split(", request ").next().unwrap().replace(HOSTILE, ESCAPED);
    assert!(stuck.contains(&format!("is out of sync; last event SyncLoadBalancerFailed: {told}")), "{told}: {stuck}");
    assert!(stuck.contains("To do: ") && stuck.contains("alicloud-ccm explain svc/default/stuck"), "{stuck}");
    assert!(!stuck.contains("default/web"), "{page}");
    assert!(page.contains(ESCAPED) && !page.contains(HOSTILE), "{page}");
    assert!(!page.contains(sim::testbed::ACCESS_KEY.1), "the secret of the access key");

    let steps = section(&page, "Last steps", "Configuration");
    let every = ["service default/web", "node-1: ", "PATCH /api/v1/nodes/node-1", "create route entry 10."];
    assert!(every.iter().all(|step| steps.contains(step)), "{steps}");
    let request = stuck.split(", request ").nth(1).unwrap().get(..36).unwrap();
    assert!(steps.contains(&format!("<code class=\"id\">{request}</code>")), "{request} failed last: {steps}");
    let shown = steps.matches("CreateLoadBalancer</small>").count();
    let made = world.testbed.cloud.writes().iter().filter(|call| call.action == "CreateLoadBalancer").count();
    assert!(shown >= 2 && shown <= made, "{shown} of {made}: {steps}");

    let controllers = section(&page, "Controllers", "Leader");
    let is_row = |name: &&str| controllers.contains(&format!(">{name}</th>"));
    assert!(ALL.iter().all(is_row), "{controllers}");
    assert!(section(&page, "Rate limits", "Last steps").contains("CreateLoadBalancer"), "{page}");
    assert!(section(&page, "Last hour", "Rate limits").contains("Cloud calls</strong> in the last hour: "), "{page}");

    // What is repaired is in sync again.
    world.testbed.cloud.faults().clear();
    world.until("the Service is served", |_| address(&world.service("stuck")).is_some()).await;
    ccm.until_page("/", |_, page| page.contains("<title>alicloud-ccm: in sync</title>")).await;

    // What is done while a controller is off has a name too.
    world.edit(|text| text.replace("\"route\", ", ""));
    ccm.until_page("/", |_, page| page.contains("stopped: route")).await;
    let lost = json!({"conditions": [{"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]});
    world.testbed.cluster.patch_status("Node", "", "node-1", &lost).unwrap();
    let is_cleared = |page: &str| page.contains("route node-1</div>") && page.contains("clear NetworkUnavailable");
    ccm.until_page("/", |_, page| is_cleared(page)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_the_leader_and_the_last_change_of_the_configuration() {
    let world = World::new(ALL, HASTE).await;
    let ccm = world.start_serving();
    let page = ccm.until_page("/", |status, page| status == 200 && page.contains("This replica leads")).await;
    let lease = world.testbed.cluster.get("Lease", "kube-system", "ccm").unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    let leader = section(&page, "Leader", "Last hour");
    assert!(
        leader.contains(&format!("<dd>{holder} (this replica)</dd>")) && leader.contains("kube-system/ccm"),
        "{leader}"
    );
    assert!(page.contains("none since the start"), "{page}");
    let standby = world.start_serving();
    let is_standby = |page: &str| {
        page.contains("Standby: this replica does not lead")
            && section(page, "Leader", "Last hour").contains(&format!("<dd>{holder}</dd>"))
    };
    standby.until_page("/", |status, page| status == 200 && is_standby(page)).await;
    world.edit(|text| text + "[nonsense]\n");
    ccm.until_page("/", |_, page| page.contains("The changed configuration was rejected")).await;
}

/// Chromium and the modules that `tests/page/judge.mjs` needs; why not, where they are missing.
fn browser() -> Result<(PathBuf, PathBuf), String> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/page");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists());
    let chromium = on_path("chromium").or_else(|| on_path("google-chrome")).ok_or("Chromium is not on this machine")?;
    on_path("node").ok_or("Node.js is not on this machine")?;
    if !modules.join("node_modules/playwright-core").exists() {
        return Err("npm has not installed tests/page/package.json in target/tools/page, as .ci/run does".to_owned());
    }
    Ok((chromium, modules))
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_browser_it_refreshes_itself_and_is_accessible() {
    let (chromium, modules) = match browser() {
        Ok(found) => found,
        Err(why) => {
            assert!(std::env::var_os("CCM_PAGE_TESTS").is_none(), "the gate installed a browser, and now: {why}");
            return eprintln!("skipped: {why}");
        }
    };
    let (world, ccm) = busy().await;
    let mut judge = Command::new("node");
    judge.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/judge.mjs")).arg(modules).arg(chromium);
    judge.arg(format!("http://127.0.0.1:{}/", ccm.port())).args(["default/stuck", "default/later"]);
    judge.args(std::env::var_os("CCM_PAGE_PICTURES"));
    let mut judge = judge.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(judge.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    world.testbed.expose("later", &[80], &["node-1"], &[]);
    let mut problems = String::new();
    said.read_to_string(&mut problems).unwrap();
    assert!(judge.wait().unwrap().success() && line == "open\n", "{line}{problems}\n{}", ccm.log());
}
