//! Each command of the binary: output and exit code.

use std::process::Output;

use alicloud_ccm::plan::clb::annotations::Name;
use alicloud_ccm::plan::loadbalancer::annotations::AnnotationName;
use expect_test::expect_file;
use serde_json::Value;
use sim::testbed::instance;

use crate::harness::{ALL, World};

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Three problems of different kinds: an unknown key, a value of the wrong type, a value that is not allowed.
const BROKEN: &str = r#"controllers = ["node", "rout"]

[cloud]
cluster_id = "c1"
regoin = "cn-hangzhou"

[node]
batch_size = "many"
removal_limit = 0
"#;

/// What is said about [`BROKEN`]: place and key.
const PROBLEMS: [(&str, &str); 4] =
    [(":1:24", "rout"), (":5:1", "regoin"), (":8:14", "batch_size"), (":9:17", "removal_limit")];

fn assert_all_problems(text: &str) {
    for (place, key) in PROBLEMS {
        assert!(text.contains(place), "nothing about {place}:\n{text}");
        let shown = text.lines().skip_while(|line| !line.contains(place)).take(6).collect::<Vec<_>>().join("\n");
        assert!(shown.contains(key) && shown.contains('^'), "{key} is not pointed at:\n{shown}");
    }
    assert!(text.contains("region"), "the key that was meant is named:\n{text}");
}

#[tokio::test]
async fn check_prints_every_problem_with_its_place() {
    let world = World::new(ALL, "").await;
    let good = world.run(&["check"]).await;
    assert_eq!((good.status.code(), err(&good)), (Some(0), String::new()));
    assert!(out(&good).contains("no problems"), "{}", out(&good));

    std::fs::write(world.config(), BROKEN).unwrap();
    let bad = world.run(&["check"]).await;
    assert_eq!((bad.status.code(), out(&bad)), (Some(1), String::new()));
    assert_all_problems(&err(&bad));

    let fixed = world.run(&["check", "--set", "controllers=[\"node\"]"]).await;
    assert!(!err(&fixed).contains("rout\""), "an argument wins over the file:\n{}", err(&fixed));

    std::fs::remove_file(world.config()).unwrap();
    let missing = world.run(&["check"]).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("alicloud-ccm.toml"), "{}", err(&missing));
}

/// It is read as at a start. On another machine than its own, the file may not be there.
#[tokio::test]
async fn check_says_what_is_wrong_with_the_kubeconfig() {
    let world = World::new(&["node"], "").await;
    let file = world.folder().join("kubeconfig");
    for text in ["", "contexts: 7", "current-context: other"] {
        std::fs::write(&file, text).unwrap();
        let refused = world.run(&["check"]).await;
        assert_eq!((refused.status.code(), out(&refused)), (Some(1), String::new()), "{text:?}: {}", err(&refused));
        let said = format!("the kubeconfig {} (kubernetes.kubeconfig) cannot be used: ", file.display());
        assert!(err(&refused).contains(&said), "{text:?}: {}", err(&refused));
    }
    std::fs::remove_file(&file).unwrap();
    let elsewhere = world.run(&["check"]).await;
    let said = format!("not looked at: kubernetes.kubeconfig names {}, which is not there\n", file.display());
    assert_eq!((elsewhere.status.code(), err(&elsewhere)), (Some(0), String::new()));
    assert!(out(&elsewhere).starts_with(&said), "{}", out(&elsewhere));
    assert!(world.testbed.cluster.calls().is_empty());
}

#[tokio::test]
async fn the_files_that_come_with_the_product_have_no_problems() {
    let world = World::new(ALL, "").await;
    for name in ["config/alicloud-ccm.toml", "config/alicloud-ccm.reference.toml", "deploy/base/alicloud-ccm.toml"] {
        std::fs::copy(format!("{}/{name}", env!("CARGO_MANIFEST_DIR")), world.config()).unwrap();
        let checked = world.run(&["check", "--set", "cloud.cluster_id=one"]).await;
        assert_eq!((checked.status.code(), err(&checked)), (Some(0), String::new()), "{name}");

        let untouched = std::fs::read_to_string(world.config()).unwrap();
        let line = 1 + untouched.lines().position(|line| line.contains("\"change-me\"")).unwrap();
        for command in ["check", "run"] {
            let refused = world.run(&[command]).await;
            assert_eq!((refused.status.code(), out(&refused)), (Some(1), String::new()), "{command} {name}");
            let place = format!("alicloud-ccm.toml:{line}:14");
            for part in ["cloud.cluster_id must not be the placeholder \"change-me\"", &place] {
                assert!(err(&refused).contains(part), "{part:?}, {command} {name}:\n{}", err(&refused));
            }
        }
    }
    assert!(world.testbed.cluster.calls().is_empty() && world.testbed.cloud.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_a_broken_file_starts_nothing() {
    let world = World::new(ALL, "").await;
    let whole = std::fs::read_to_string(world.config()).unwrap();
    std::fs::write(world.config(), format!("regoin = 1\n{whole}batch_size = \"many\"\n")).unwrap();
    let ended = world.run(&["run"]).await;
    assert_eq!((ended.status.code(), out(&ended)), (Some(1), String::new()));
    assert!(err(&ended).contains("regoin") && err(&ended).contains("batch_size"), "{}", err(&ended));
    assert!(world.testbed.cluster.calls().is_empty(), "{:?}", world.testbed.cluster.calls());
    assert!(world.testbed.cloud.calls().is_empty(), "{:?}", world.testbed.cloud.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_prints_what_a_run_would_do_and_writes_nothing() {
    let world = World::new(ALL, "").await;
    world.testbed.join(1);
    world.testbed.expose("web", &[80], &["node-1"], &[]);
    world.testbed.expose("api", &[443], &["node-1"], &[]);
    world.testbed.cloud.edit(|cloud| cloud.interfaces.get_mut("eni-play-1").unwrap().source_dest_check = Some(true));

    let (text, code) = world.plan().await;
    assert_eq!(code, Some(2), "{text}");
    for line in [
        "node node-1\n",
        "remove taint node.cloudprovider.kubernetes.io/uninitialized",
        "switch off the source/destination check of eni-play-1",
        "route node-1\n",
        "10.98.1.0/24",
        "service default/web\n",
        "service default/api\n",
        "add finalizer service.k8s.alibaba/resources",
        "publish the address of the load balancer",
    ] {
        assert!(text.contains(line), "{line:?} is missing:\n{text}");
    }

    let json = world.run(&["plan", "--output", "json"]).await;
    assert_eq!(json.status.code(), Some(2));
    let plan: Value = serde_json::from_str(&out(&json)).unwrap();
    let steps = plan["steps"].as_array().unwrap();
    assert_eq!(plan["problems"], serde_json::json!([]));
    assert_eq!(
        steps.iter().filter(|step| step["object"] == "default/web").count(),
        text_steps(&text, "service default/web")
    );
    assert!(steps.iter().all(|step| step["destroys"] == false && step["text"].is_string()), "{plan:#}");

    for (object, controllers) in [("default/web", &["service"][..]), ("node/node-1", &["node", "route"])] {
        let one = world.run(&["plan", object, "--output", "json"]).await;
        assert_eq!(one.status.code(), Some(2));
        let plan: Value = serde_json::from_str(&out(&one)).unwrap();
        let mut seen: Vec<_> =
            plan["steps"].as_array().unwrap().iter().map(|step| step["controller"].as_str().unwrap()).collect();
        seen.dedup();
        assert_eq!(seen, controllers, "{plan:#}");
        let name = object.trim_start_matches("node/");
        assert!(plan["steps"].as_array().unwrap().iter().all(|step| step["object"] == name), "{plan:#}");
    }
    assert_eq!(world.testbed.cluster.writes().len(), 0, "{:?}", world.testbed.cluster.writes());
    assert_eq!(world.testbed.cloud.writes().len(), 0, "{:?}", world.testbed.cloud.writes());

    // A node that is gone from the cloud is the destructive kind.
    world.testbed.cloud.release_instance(&instance(1));
    world.testbed.rent(2);
    let companion = sim::cluster::NodeSpec::new("node-2").provider_id("cn-hangzhou.i-play-2");
    world.testbed.cluster.add_node(&companion).unwrap();
    world.testbed.cluster.set_ready("node-1", "Unknown").unwrap();
    let (text, code) = world.plan().await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("! remove node, if instance cn-hangzhou.i-play-1 is still gone at a second look"), "{text}");

    // No answer is no plan.
    world.testbed.cloud.edit(|cloud| cloud.keys.clear());
    let (text, code) = world.plan().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("InvalidAccessKeyId"), "{text}");
    std::fs::write(world.config(), BROKEN).unwrap();
    let (text, code) = world.plan().await;
    assert_eq!(code, Some(1));
    assert_all_problems(&text);
    assert_eq!(world.testbed.cluster.writes().len() + world.testbed.cloud.writes().len(), 0);
}

/// Steps below a heading of the text.
fn text_steps(text: &str, heading: &str) -> usize {
    text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| line.starts_with("  ")).count()
}

#[tokio::test]
async fn what_the_binary_prints_of_itself_is_what_is_committed() {
    let world = World::new(ALL, "").await;
    let files = [
        ("schema", expect_file!["../../config/schema.json"]),
        ("reference", expect_file!["../../config/alicloud-ccm.reference.toml"]),
        ("events", expect_file!["../../docs/reference/events.md"]),
    ];
    for (command, file) in files {
        let output = world.run(&[command]).await;
        assert_eq!(output.status.code(), Some(0));
        file.assert_eq(&out(&output));
    }
    let annotations = world.run(&["annotations"]).await;
    assert_eq!(annotations.status.code(), Some(0));
    let page = out(&annotations);
    for entry in Name::TABLE {
        assert!(page.contains(entry.help), "{:?} is missing:\n{page}", entry.name);
    }
}

#[tokio::test]
async fn version_prints_what_the_program_was_built_from_and_for() {
    let version = World::new(ALL, "").await.run(&["version"]).await;
    assert_eq!(version.status.code(), Some(0));
    let text = out(&version);
    let lines: Vec<_> = text.lines().map(|line| line.split_once(": ").unwrap_or(("version", line))).collect();
    let names: Vec<_> = lines.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["version", "commit", "build date", "target", "features"], "{text}");
    assert_eq!(lines[0].1, concat!("alicloud-ccm ", env!("CARGO_PKG_VERSION")));
    let compiler = std::process::Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
    assert_eq!(lines[3].1, out(&compiler).trim(), "the target of the tests is the machine that they run on");
    assert_eq!(lines[4].1, "traces under-test", "tests have every feature");
}

#[tokio::test]
async fn a_wrong_command_line_and_a_wrong_file_have_different_exit_codes() {
    let world = World::new(ALL, "").await;
    for arguments in [&["plna"][..], &["plan", "web"], &["plan", "--output", "yaml"], &["run", "--region", "x"]] {
        let output = world.run(arguments).await;
        assert_eq!((output.status.code(), out(&output)), (Some(64), String::new()), "{arguments:?}");
        assert!(!err(&output).is_empty());
    }
    let help = world.run(&["--help"]).await;
    assert_eq!(help.status.code(), Some(0));
    assert!(out(&help).contains("Usage: alicloud-ccm"), "{}", out(&help));
}
