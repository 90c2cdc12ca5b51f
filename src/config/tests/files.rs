use std::collections::BTreeMap;

use expect_test::{expect, expect_file};

use super::super::*;
use super::*;

#[test]
fn committed_files_are_current() {
    expect_file!["../../../config/alicloud-ccm.reference.toml"].assert_eq(&reference(&CATALOG).unwrap());
    expect_file!["../../../config/schema.json"].assert_eq(&schema(&CATALOG));
}

#[test]
fn the_reference_file_says_what_holds_without_it() {
    let bare = good(&source("cloud.cluster_id = \"one\""));
    assert_eq!(good(&source(&reference(&CATALOG).unwrap().replace("change-me", "one"))), bare);
}

#[test]
fn the_reference_file_shows_every_key() {
    let text = reference(&CATALOG).unwrap();
    let shown = text.lines().map(|line| line.trim_start_matches('#'));
    let shown: Vec<&str> = shown.filter_map(|line| line.split_once(" = ").map(|(key, _)| key)).collect();
    let chosen_by_users = ["service.defaults.tags", "nlb.defaults.tags", "cloud.quotas", "traces.headers"];
    for path in schema::leaves().iter().filter(|path| !chosen_by_users.contains(&path.join(".").as_str())) {
        assert!(shown.contains(&path.last().unwrap().as_str()), "{} is not shown", path.join("."));
        assert!(!schema::at(path).unwrap().description().is_empty(), "{} is not described", path.join("."));
    }
}

#[test]
fn every_example_of_the_reference_file_is_accepted() {
    let text = reference(&CATALOG).unwrap();
    for key in ["access_key_id_file", "access_key_secret_file", "security_token_file", "oidc_", "instance_role"] {
        assert!(text.contains(&format!("#{key}")));
    }
    let left_out = ["_file = ", "oidc_", "instance_role", "zone_name"];
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest)
            if rest.starts_with(|c: char| c.is_ascii_alphabetic()) && !left_out.iter().any(|l| rest.contains(l)) =>
        {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    let copied = text.lines().map(uncomment).collect::<Vec<_>>().join("\n");
    let config = good(&source(&copied.replace("change-me", "one").replace("example", "own")));
    assert_eq!(config.service.defaults.tags, BTreeMap::from([("team".to_owned(), "blue".to_owned())]));
    assert_eq!(config.cloud.quotas, BTreeMap::from([("CreateLoadBalancer".to_owned(), 120)]));
    assert!(matches!(config.cloud.credentials, Credentials::AssumeRole { .. }));
}

#[test]
fn the_short_example_works_on_an_instance() {
    let config = good(&source(&include_str!("../../../config/alicloud-ccm.toml").replace("change-me", "one")));
    assert_eq!(config.cloud.credentials, Credentials::InstanceRole { role: None });
    let running: Vec<_> = config.controllers.iter().copied().collect();
    assert_eq!(running, ["node", "service"], "routes are for those who ask for them");
}

#[test]
fn what_was_copied_from_an_example_is_refused() {
    let mut copied = 0;
    for path in schema::leaves() {
        // Hosts of the cloud are real.
        let example = schema::at(path).unwrap().example().and_then(|example| example.as_str());
        let marked = |text: &&str| *text == "change-me" || text.contains("example") && !text.contains("aliyuncs.com");
        if let Some(value) = example.filter(marked) {
            let said = messages(&source(&format!("{} = {value:?}\n", path.join("."))));
            assert!(said.contains(&format!("{} must not be the placeholder ", path.join("."))), "{said}");
            copied += 1;
        }
    }
    assert!(copied >= 8, "{copied}");
    let lists = "cloud.vswitches = [\"cn-hangzhou-i:vsw-bp1example\"]\nroute.table_ids = [\"vtb-bp1example\"]";
    expect![[r#"
        what is listed in cloud.vswitches must not be the placeholder "cn-hangzhou-i:vsw-bp1example" (state a value of your own)
        what is listed in route.table_ids must not be the placeholder "vtb-bp1example" (state an id such as "vtb-bp1example")"#]]
    .assert_eq(&messages(&source(&right(lists))));
}

#[test]
fn a_key_file_that_holds_a_placeholder_is_refused() {
    let keys = "cloud.credentials = { access_key_id = \"A\", access_key_secret_file = \"s\" }";
    let file = KeyFile::Read { text: Secret::new("change-me\n".to_owned()), readable_by_others: false };
    let source = ConfigSource { files: [(PathBuf::from("/etc/ccm/s"), file)].into(), ..source(&right(keys)) };
    let said = bad(&source).to_string();
    assert!(said.contains("access_key_secret_file names /etc/ccm/s, which holds the placeholder"), "{said}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ccm.toml");
    let origin = ConfigSource { path: path.clone(), ..ConfigSource::default() };
    let message = || load(&origin, &CATALOG).unwrap_err().problems()[0].message.replace(path.to_str().unwrap(), "FILE");
    assert_eq!(message(), "the configuration file FILE does not exist");
    std::fs::write(&path, vec![b'#'; usize::try_from(LARGEST_FILE).unwrap() + 1]).unwrap();
    assert_eq!(message(), "the configuration file FILE is larger than 1 MiB");
    std::fs::write(&path, [b'#', 0xff]).unwrap();
    assert_eq!(message(), "the configuration file FILE is not UTF-8 text");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(message(), "the configuration file FILE is not a regular file");
}

#[test]
fn key_files_that_others_may_read_are_refused_unless_that_is_allowed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ccm.toml");
    let keys = "cloud.credentials = { access_key_id = \"A\", access_key_secret_file = \"s\" }";
    std::fs::write(&path, right(keys)).unwrap();
    std::fs::write(dir.path().join("s"), "hush").unwrap();
    let mut origin = ConfigSource { path, ..ConfigSource::default() };
    for (mode, accepted) in [(0o400, true), (0o600, true), (0o440, false), (0o604, false)] {
        std::fs::set_permissions(dir.path().join("s"), std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(load(&origin, &CATALOG).is_ok(), accepted, "{mode:o}");
    }
    origin.overrides.push("cloud.credentials.allow_readable_files=true".to_owned());
    assert_eq!(
        load(&origin, &CATALOG).unwrap().config.cloud.credentials,
        Credentials::AccessKey(key("A", "hush", None))
    );
}

#[test]
fn credentials_of_systemd_are_found_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, credentials) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("ccm.toml");
    let keys = "cloud.credentials = { access_key_id = \"A\", access_key_secret_file = \"credential:s\" }";
    std::fs::write(&path, right(keys)).unwrap();
    let secret = credentials.path().join("s");
    std::fs::write(&secret, "hush").unwrap();
    // How the mode looks where an access list lets the service read.
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o440)).unwrap();
    let mut origin = ConfigSource { path, ..ConfigSource::default() };
    let report = load(&origin, &CATALOG).unwrap_err().to_string();
    assert!(report.contains("names credential:s, but systemd has given none"), "{report}");
    assert!(report.contains("LoadCredential="), "{report}");
    let folder = credentials.path().to_str().unwrap().to_owned();
    origin.environment.insert("CREDENTIALS_DIRECTORY".to_owned(), folder);
    assert_eq!(
        load(&origin, &CATALOG).unwrap().config.cloud.credentials,
        Credentials::AccessKey(key("A", "hush", None))
    );
}

#[test]
fn what_is_loaded_has_the_hash_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ccm.toml");
    std::fs::write(&path, "cloud.cluster_id = \"one\"\n").unwrap();
    let loaded = load(&ConfigSource { path: path.clone(), ..ConfigSource::default() }, &CATALOG).unwrap();
    assert_eq!((loaded.path, loaded.hash.as_str()), (path, "b30fc69945407c1ead6240c4c050a900e32711c4"));
}
