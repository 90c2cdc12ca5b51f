//! What a bug report needs, in one archive, without secrets.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tar::{Builder, Header};

use super::finding::Diagnosis;
use crate::config::Config;

/// Writes `path`: the findings, the configuration as `/configz` shows it, the version, and pages of the running process.
pub(super) fn write(
    path: &Path,
    diagnosis: &Diagnosis,
    config: Option<&Config>,
    pages: &[(&'static str, String)],
) -> io::Result<()> {
    let mut archive = Builder::new(GzEncoder::new(File::create(path)?, Compression::default()));
    let about = json!({ "version": env!("CARGO_PKG_VERSION"), "commit": option_env!("ALICLOUD_CCM_COMMIT"),
        "machine": std::env::consts::ARCH });
    let mut files = vec![
        ("about.json".to_owned(), format!("{about:#}\n")),
        ("doctor.txt".to_owned(), diagnosis.to_text()),
        ("doctor.json".to_owned(), serde_json::to_string_pretty(diagnosis)?),
    ];
    if let Some(config) = config {
        files.push(("config.json".to_owned(), serde_json::to_string_pretty(config)?));
    }
    files.extend(pages.iter().map(|(page, text)| (format!("{}.txt", page.trim_start_matches('/')), text.clone())));
    for (name, text) in files {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, format!("alicloud-ccm-doctor/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}
