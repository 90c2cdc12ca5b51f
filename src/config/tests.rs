use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use proptest::prelude::*;

use super::checked::{Credentials, VSwitchChoice};
use super::*;

/// Compares a committed file with what it must be, and writes it anew if `UPDATE_CONFIG_FILES` is set.
fn committed(name: &str, current: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    if std::env::var_os("UPDATE_CONFIG_FILES").is_some() {
        std::fs::write(&path, current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == current, "config/{name} is not current; run the tests with UPDATE_CONFIG_FILES=1");
}

#[test]
fn committed_files_are_current() {
    committed("alicloud-ccm.reference.toml", &reference().unwrap());
    committed("schema.json", &schema());
    committed("migration.md", &migration_page());
}
