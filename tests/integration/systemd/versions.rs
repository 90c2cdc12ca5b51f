//! The unit on systemd versions that are not here: what each of them knows of it, and what is left of it there.
//!
//! systemd ignores a directive that it does not know, and a value that it does not know, so that the line before it holds.
//! The exception is an allow list of system calls: a name that is not known adds nothing to it, and a list without names
//! allows nothing.

use std::collections::BTreeMap;

use super::UNIT;

/// Of RHEL 7, RHEL 8, Debian 12, and a new one.
const VERSIONS: [u32; 4] = [219, 239, 252, 257];
/// The oldest version that the unit is for.
const OLDEST: u32 = VERSIONS[0];

/// Directives by section, and the version that introduced them according to systemd's NEWS; the oldest one for those that it
/// knows.
const DIRECTIVES: [(&str, u32, &[&str]); 17] = [
    ("Unit", OLDEST, &["Description", "Documentation", "Wants", "After"]),
    ("Unit", 230, &["StartLimitIntervalSec"]),
    ("Service", OLDEST, &["Type", "NotifyAccess", "ExecStartPre", "ExecStart", "ExecReload", "Restart", "RestartSec"]),
    // Moved to [Unit] by 229 and renamed by 230; the old name stays valid where it was.
    ("Service", OLDEST, &["StartLimitInterval", "WatchdogSec", "Environment", "TimeoutStopSec", "User", "Group"]),
    ("Service", OLDEST, &["CapabilityBoundingSet", "DevicePolicy", "LimitCORE", "NoNewPrivileges", "PrivateDevices"]),
    ("Service", OLDEST, &["PrivateTmp", "ProtectHome", "ProtectSystem", "RestrictAddressFamilies", "UMask"]),
    ("Service", OLDEST, &["SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter"]),
    ("Service", 229, &["AmbientCapabilities"]),
    ("Service", 231, &["MemoryDenyWriteExecute", "RestrictRealtime"]),
    (
        "Service",
        232,
        &["PrivateUsers", "ProtectControlGroups", "ProtectKernelModules", "ProtectKernelTunables", "RemoveIPC"],
    ),
    ("Service", 233, &["RestrictNamespaces"]),
    ("Service", 235, &["LockPersonality"]),
    ("Service", 242, &["ProtectHostname", "RestrictSUIDSGID"]),
    ("Service", 244, &["ProtectKernelLogs"]),
    ("Service", 245, &["ProtectClock"]),
    ("Service", 247, &["ProtectProc", "LoadCredential"]),
    ("Install", OLDEST, &["WantedBy"]),
];

/// Directives whose values are a closed set, or names of groups, and the version that introduced each.
const VALUES: [(&str, &[(&str, u32)]); 5] = [
    ("Type", &[("notify", OLDEST), ("notify-reload", 253)]),
    ("NotifyAccess", &[("main", OLDEST)]),
    ("ProtectSystem", &[("full", OLDEST), ("strict", 232)]),
    ("DevicePolicy", &[("closed", OLDEST)]),
    (
        "SystemCallFilter",
        &[
            ("@clock", 231),
            ("@cpu-emulation", 231),
            ("@debug", 231),
            ("@module", 231),
            ("@mount", 231),
            ("@obsolete", 231),
            ("@privileged", 231),
            ("@raw-io", 231),
            ("@resources", 232),
            ("@reboot", 233),
            ("@swap", 233),
            ("@system-service", 239),
        ],
    ),
];

/// Section, key and value of each line of a unit.
pub(super) fn settings(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    text.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        let (key, value) = line.split_once('=')?;
        Some((section, key, value))
    })
}

/// The version that introduced a directive.
fn introduced(section: &str, key: &str) -> Option<u32> {
    let row = DIRECTIVES.iter().find(|(place, _, keys)| *place == section && keys.contains(&key));
    row.map(|(_, version, _)| *version)
}

/// Whether a version knows a word of a value; of directives with other values, every word.
fn knows(version: u32, key: &str, word: &str) -> bool {
    let Some((_, words)) = VALUES.iter().find(|(name, _)| *name == key) else { return true };
    words.iter().any(|(known, since)| *known == word && version >= *since)
}

/// The system calls that a unit filters.
#[derive(Debug, PartialEq, Eq)]
enum Filter {
    None,
    Allow(Vec<String>),
    Deny(Vec<String>),
}

impl Filter {
    /// The first list says whether all are allowed or denied; an empty value starts again.
    fn add(&mut self, value: &str, version: u32) {
        let (denies, words) = value.strip_prefix('~').map_or((false, value), |words| (true, words));
        let words = words.split_whitespace();
        let known: Vec<_> = words.filter(|word| knows(version, "SystemCallFilter", word)).map(str::to_owned).collect();
        match (self, denies) {
            (filter, _) if value.is_empty() => *filter = Self::None,
            (filter @ Self::None, true) => *filter = Self::Deny(known),
            (filter @ Self::None, false) => *filter = Self::Allow(known),
            (Self::Allow(list), true) | (Self::Deny(list), false) => list.retain(|name| !known.contains(name)),
            (Self::Allow(list), false) | (Self::Deny(list), true) => list.extend(known),
        }
    }
}

/// What a version makes of the lines of a unit, and of those of a drop-in.
fn understood(text: &str, version: u32) -> (BTreeMap<&str, &str>, Filter) {
    let mut keys = BTreeMap::new();
    let mut filter = Filter::None;
    for (section, key, value) in settings(text) {
        let since = introduced(section, key).unwrap_or_else(|| panic!("{key} in [{section}] is not in the table"));
        if version < since {
            continue;
        }
        match key {
            "SystemCallFilter" => filter.add(value, version),
            _ if knows(version, key, value) => {
                keys.insert(key, value);
            }
            _ => {}
        }
    }
    (keys, filter)
}

#[test]
fn every_version_starts_the_unit_confined() {
    let text = std::fs::read_to_string(UNIT).unwrap();
    for version in VERSIONS {
        let (keys, filter) = understood(&text, version);
        let newer = |since: u32, new: &'static str, old: &'static str| if version >= since { new } else { old };
        assert_eq!(keys["Type"], newer(253, "notify-reload", "notify"), "{version}");
        assert_eq!(keys["ProtectSystem"], newer(232, "strict", "full"), "{version}");
        assert_eq!(keys["StartLimitInterval"], "0", "{version}");
        for (key, value) in [
            ("User", "alicloud-ccm"),
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("PrivateDevices", "yes"),
            ("LimitCORE", "0"),
            ("Restart", "always"),
            ("SystemCallErrorNumber", "EPERM"),
        ] {
            assert_eq!(keys[key], value, "{version}: {key}");
        }
        let Filter::Deny(groups) = filter else { panic!("{version}: {filter:?} could allow nothing") };
        assert_eq!(groups.len(), if version >= 233 { 11 } else { 0 }, "{version}: {groups:?}");
    }
}

/// Only a line that is known to every version, or follows one that is, may decide whether the program starts.
#[test]
fn the_allow_list_of_the_drop_in_is_for_versions_that_know_it() {
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let drop_in = std::fs::read_to_string(std::path::Path::new(UNIT).with_file_name("system-calls.conf")).unwrap();
    let both = format!("{unit}\n{drop_in}");
    assert!(drop_in.contains("for systemd 239 and newer"));
    for version in VERSIONS {
        let allowed = if version >= 239 { vec!["@system-service".to_owned()] } else { Vec::new() };
        assert_eq!(understood(&both, version).1, Filter::Allow(allowed), "{version}");
    }
}
