//! The check of a real account, against a simulated one: over HTTP, as a process of its own.

#[path = "../conformance/check.rs"]
mod check;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use sim::cloud::trace::{Finding, Trace, Verdict};
use sim::cloud::{Acl, Cloud, Fault};
use sim::cluster::Version;
use sim::request_hold::Moment;
use sim::testbed::{ACCESS_KEY, Testbed, VPC, ZONE, instance};

/// Arguments for [`the_check_as_a_process`], one a line.
const ARGUMENTS: &str = "CONFORMANCE_ARGUMENTS";
const PATIENCE: Duration = Duration::from_secs(120);

/// Not a test by itself: the others start this executable with this test alone and with arguments for the check.
#[test]
fn the_check_as_a_process() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let arguments = std::iter::once("conformance").chain(arguments.lines());
        let code = check::main(arguments.map(Into::into));
        std::process::exit(code.into());
    }
}

/// An account in which other things look much like the check's.
struct Account {
    testbed: Testbed,
    folder: tempfile::TempDir,
}

impl Account {
    async fn new() -> Self {
        let testbed = Testbed::open(Version::NEWEST).await.unwrap();
        testbed.rent(1);
        let folder = tempfile::tempdir().unwrap();
        testbed.write_config(folder.path(), &["node"], "").unwrap();
        let account = Self { testbed, folder };
        account.add_others();
        account
    }

    /// What has the name of the check's things, or a tag like theirs, and belongs to another user.
    fn add_others(&self) {
        let name = "alicloud-ccm-conformance";
        let tag = [("Tag.1.Key", name), ("Tag.1.Value", "conformance-vpc-other")];
        let act = |product: &str, action: &str, parameters: &[(&str, &str)]| {
            let parameters: Vec<_> = parameters.iter().chain(&tag).copied().collect();
            self.cloud().act(product, action, &parameters).unwrap()
        };
        act("slb", "CreateLoadBalancer", &[("LoadBalancerName", name), ("InstanceChargeType", "PayByCLCU")]);
        act("ecs", "CreateSecurityGroup", &[("SecurityGroupName", name), ("VpcId", VPC)]);
        act("nlb", "CreateServerGroup", &[("ServerGroupName", "other"), ("VpcId", VPC), ("Protocol", "TCP")]);
        let route = [
            ("RouteEntries.1.RouteTableId", "vtb-play"),
            ("RouteEntries.1.DstCidrBlock", "198.18.0.0/24"),
            ("RouteEntries.1.NextHop", "i-play-1"),
            ("RouteEntries.1.NextHopType", "Instance"),
            ("RouteEntries.1.Description", "conformance"),
        ];
        self.cloud().act("vpc", "CreateRouteEntries", &route).unwrap();
        let record = [("ZoneId", ZONE.0), ("Rr", name), ("Type", "A"), ("Value", "10.0.0.9"), ("Ttl", "60")];
        self.cloud().act("pvtz", "AddZoneRecord", &record).unwrap();
    }

    fn cloud(&self) -> &Cloud {
        &self.testbed.cloud
    }

    /// Everything that the check could change.
    fn holds(&self) -> String {
        let more = self.cloud().look(|account| {
            let acls: Vec<&Acl> = account.acls.values().collect();
            format!("{acls:?} {:?} {:?} {:?}", account.security_groups, account.private_zones, account.nlb.groups)
        });
        format!("{:#} {more}", self.cloud().snapshot())
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (config, traces, instance) = (path("alicloud-ccm.toml"), path("traces"), instance(1));
        let mut all = vec!["--config", &config, "--traces", &traces, "--instance", &instance, "--private-zone", ZONE.0];
        all.extend(["--output", "json", "--pause-ms", "20", "--patience", "15"]);
        all.extend(arguments);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "conformance::the_check_as_a_process", "--nocapture"])
            .env(ARGUMENTS, all.join("\n"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running(Some(child))
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.start(arguments).ended().await
    }
}

/// The check as a process; dropping it ends it.
struct Running(Option<Child>);

impl Running {
    /// As `kill` names it.
    fn signal(&self, signal: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    async fn ended(mut self) -> Output {
        let child = self.0.take().unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
        tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn findings(output: &Output) -> Vec<Finding> {
    let text = String::from_utf8_lossy(&output.stdout);
    // The harness speaks first.
    let json = &text[text.find('{').unwrap_or_else(|| panic!("{text}\n{}", err(output)))..];
    let found: Value = serde_json::from_str(json).unwrap();
    assert_eq!(found["skipped"], serde_json::json!([]), "{found:#}\n{}", err(output));
    serde_json::from_value(found["findings"].clone()).unwrap()
}

fn traces(folder: &Path) -> Vec<(String, String)> {
    let mut found: Vec<_> = std::fs::read_dir(folder.join("traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    found.sort();
    found
}

/// Of all actions that the program can call.
fn assert_page_lists_what_is_not_checked(cloud: &Cloud) {
    const HEADING: &str = "## What the check does not call";
    let called: BTreeSet<_> = cloud.calls().iter().map(|it| format!("{}:{}", it.product, it.action)).collect();
    let others = alicloud_ccm::alibaba::actions::ALL.iter().map(|action| action.permission());
    let others: BTreeSet<_> =
        others.filter(|name| !called.contains(name)).map(|name| format!("- `{name}`\n")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/conformance.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(HEADING).unwrap();
    let lead = rest.split("\n- ").next().unwrap().trim();
    let next = rest.split_once("\nNext: ").unwrap().1;
    let others: String = others.into_iter().collect();
    let current = format!("{before}{HEADING}\n\n{lead}\n\n{others}\nNext: {next}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, current).unwrap();
    } else {
        assert_eq!(page, current, "UPDATE_EXPECT=1 writes the page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulator_agrees_with_itself_and_nothing_is_left() {
    let account = Account::new().await;
    let before = account.holds();
    let done = account.run(&["--i-know-this-costs"]).await;
    let differing: Vec<_> = findings(&done).into_iter().filter(|it| it.verdict != Verdict::Agrees).collect();
    assert!(differing.is_empty(), "{differing:#?}");
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert_eq!(account.holds(), before);
    assert_eq!(account.cloud().complaints(), Vec::<String>::new());
    assert_page_lists_what_is_not_checked(account.cloud());

    let traces = traces(account.folder.path());
    assert_eq!(
        traces.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["clb", "nlb", "place", "pvtz", "route"]
    );
    for (name, text) in &traces {
        for secret in [ACCESS_KEY.0, ACCESS_KEY.1, VPC, "vsw-", "i-play-1", "192.168.", "\"Signature\"", "zone-play"] {
            let text = text.replace("vsw-place", "");
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{name}: {secret}");
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let path = format!("{}/tests/sim/traces/simulated-{name}.json", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, text).unwrap();
        }
        let trace: Trace = serde_json::from_str(text).unwrap();
        let replayed = trace.replay(&Cloud::new(trace.account()));
        assert!(replayed.iter().all(|it| it.verdict == Verdict::Agrees), "{replayed:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_answers_otherwise_is_reported() {
    let account = Account::new().await;
    let faults = account.cloud().faults();
    faults.script("slb:DeleteVServerGroup", Fault::code("RspStillUsed"));
    faults.script("slb:CreateLoadBalancer", Fault::Hidden(2));
    let done = account.run(&["--i-know-this-costs", "--only", "clb"]).await;
    let found = findings(&done);
    let of = |step: &str| found.iter().rfind(|it| it.step == step).unwrap();
    let code = of("delete the server group while it is used");
    assert_eq!(code.verdict, Verdict::Differs);
    assert!(code.details[0].starts_with("the cloud 400 RspStillUsed, the simulator 400 "), "{code:?}");
    let list = of("find it by its tag");
    assert_eq!(list.verdict, Verdict::Later, "{list:?} {}", traces(account.folder.path())[0].1);
    assert!(list.details[0].starts_with("the cloud at look 3, "), "{list:?}");
    let others = found.iter().filter(|it| it.verdict != Verdict::Agrees).count();
    assert_eq!(others, 2, "{found:#?}");
    assert_eq!(done.status.code(), Some(2), "{}", err(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_nothing_is_done() {
    let account = Account::new().await;
    let refused = account.run(&[]).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = err(&refused);
    assert!(said.contains("--i-know-this-costs") && said.contains("a network load balancer (intranet)"), "{said}");
    assert!(account.cloud().calls().is_empty(), "{:?}", account.cloud().calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_check_deletes_what_it_made() {
    for (signal_name, area, action) in
        [("-TERM", "clb", "slb:CreateVServerGroup"), ("-INT", "nlb", "nlb:LoadBalancerJoinSecurityGroup")]
    {
        let account = Account::new().await;
        let before = account.holds();
        let mut held = account.cloud().faults().hold(action, 0, Moment::Before);
        let check = account.start(&["--i-know-this-costs", "--only", area]);
        tokio::time::timeout(PATIENCE, held.arrived()).await.unwrap();
        check.signal(signal_name);
        let ended = check.ended().await;
        held.lose();
        assert_eq!(ended.status.code(), Some(1), "{}", err(&ended));
        assert!(err(&ended).contains("Nothing of the check is left"), "{}", err(&ended));
        assert_eq!(account.holds(), before, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_check_leaves_is_found_and_deleted_and_nothing_else() {
    let account = Account::new().await;
    let before = account.holds();
    for (area, action) in [
        ("clb", "slb:CreateLoadBalancer"),
        ("clb", "slb:DeleteLoadBalancer"),
        ("clb", "slb:StartLoadBalancerListener"),
        ("nlb", "nlb:LoadBalancerJoinSecurityGroup"),
        ("route", "vpc:CreateRouteEntries"),
        ("pvtz", "pvtz:AddZoneRecord"),
    ] {
        let skip = usize::from(action == "slb:DeleteLoadBalancer");
        let mut held = account.cloud().faults().hold(action, skip, Moment::After);
        let check = account.start(&["--i-know-this-costs", "--only", area]);
        tokio::time::timeout(PATIENCE, held.arrived()).await.unwrap();
        check.signal("-KILL");
        check.ended().await;
        held.release();
        assert_ne!(account.holds(), before, "{action}");
        if area == "clb" {
            let again = account.run(&["--i-know-this-costs", "--only", "route"]).await;
            assert_eq!(again.status.code(), Some(1));
            assert!(err(&again).contains("--cleanup"), "{}", err(&again));
        }
        let cleaned = account.run(&["--cleanup"]).await;
        assert_eq!(cleaned.status.code(), Some(0), "{action}: {}", err(&cleaned));
        assert!(err(&cleaned).contains("found "), "{action}: {}", err(&cleaned));
        assert_eq!(account.holds(), before, "{action}");
    }
}
