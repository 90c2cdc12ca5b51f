//! From what the official controller is given to the configuration of this program. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toml::Value;

use super::official::{Official, Stated};
use super::table::{Conversion, Encoding, GATES, Setting, VARIABLES};
use super::values::{Convert, truth};
use crate::config::secret::Secret;
use crate::config::{self, Config, ConfigProblem, ConfigSource, ControllerEntry, KeyFile, ProblemPlace};
use crate::controllers::registry::CATALOG;

/// The names of the files that hold the key pair, and the keys that name them.
pub(super) const KEY_FILES: [(&str, &str); 2] = [
    ("cloud.credentials.access_key_id_file", "access-key-id"),
    ("cloud.credentials.access_key_secret_file", "access-key-secret"),
];

/// Its own name where the official controller is given none.
const DEFAULT_CLUSTER_ID: &str = "clusterid";
/// What v2 runs where nothing says otherwise; v1.9.3 has no network load balancers.
const DEFAULT_CONTROLLERS: [&str; 4] = ["node", "route", "service", "nlb"];

/// Keys of the half of the node controller that upstream calls `cloud-node-lifecycle`.
const LIFECYCLE: [&str; 2] = ["node.remove_released", "node.shutdown_taint"];

/// The items of `--controllers`.
fn items(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Whether an item of `--controllers` means one of this program's controllers, or all.
fn is_known(item: &str) -> bool {
    let name = item.strip_prefix('-').unwrap_or(item);
    item == "*" || CATALOG.controllers.iter().any(|entry| entry.is_called(name))
}

/// What `--controllers` lets run, as upstream reads it: the first item that names a controller decides, else `*` does. v2 takes
/// names alone.
struct Ran<'a> {
    items: &'a [&'a str],
    is_v1: bool,
}

impl Ran<'_> {
    /// Whether these names let a controller run, or a part of it.
    fn says(&self, names: &[&str], entry: &ControllerEntry) -> bool {
        let defaults = if self.is_v1 { &DEFAULT_CONTROLLERS[..3] } else { &DEFAULT_CONTROLLERS[..] };
        let verdict = self.items.iter().find_map(|item| match item.strip_prefix('-') {
            Some(name) => (name == entry.name || names.contains(&name)).then_some(false),
            None => (*item == entry.name || names.contains(item)).then_some(true),
        });
        verdict.unwrap_or_else(|| self.items.contains(&"*") && defaults.contains(&entry.name))
    }

    fn runs(&self, entry: &ControllerEntry) -> bool {
        self.says(entry.aliases, entry) || (!entry.parts.is_empty() && self.says(entry.parts, entry))
    }
}

/// What a migration writes.
pub(super) struct Migration {
    pub(super) toml: String,
    /// What the file means.
    pub(super) config: Config,
    /// Names and contents of the files beside it.
    pub(super) key_files: Vec<(&'static str, Secret)>,
    /// What has no counterpart, and what else there is to know.
    pub(super) notes: Vec<String>,
}

/// A line of the file.
struct TomlLine {
    value: Value,
    /// What it comes from.
    origin: String,
    place: Option<ProblemPlace>,
    /// Whether it only shows how to say it.
    is_placeholder: bool,
}

struct Draft {
    lines: BTreeMap<&'static str, TomlLine>,
    /// Of the cloud config, which takes precedence, and of the environment.
    key_pairs: [[Option<Secret>; 2]; 2],
    notes: Vec<String>,
    problems: Vec<ConfigProblem>,
}

/// Converts everything; `saves_keys` if the key pair will be in files beside the configuration.
///
/// # Errors
/// Everything that the official controller or this program does not understand.
pub(super) fn convert(mut official: Official, saves_keys: bool) -> Result<Migration, Vec<ConfigProblem>> {
    let (notes, problems) = (std::mem::take(&mut official.notes), std::mem::take(&mut official.problems));
    let mut draft = Draft { lines: BTreeMap::new(), key_pairs: Default::default(), notes, problems };
    let is_located = ["vpcid", "vswitchid"].iter().all(|name| stated(&official, name).is_some());
    for stated in &official.stated {
        if matches!(stated.setting.conversion, Some(Conversion::Location(_))) && !is_located {
            let why = "had no effect without both vpcid and vswitchid; left out, so the metadata service says it";
            draft.notes.push(format!("{}: {why}", stated.setting.name));
        } else {
            draft.take(stated);
        }
    }
    match &official.variables {
        Some(variables) => variables.iter().for_each(|stated| draft.take(stated)),
        None => draft.notes.extend([unseen_variables(), LEFT_BEHIND.to_owned()]),
    }
    draft.choose_controllers(&official);
    draft.choose_lock(&official);
    draft.choose_cluster_id();
    let key_files = draft.choose_key_pair(saves_keys);
    draft.finish(key_files)
}

/// What the official manifests make for the official controller; the cluster says what there really is.
const LEFT_BEHIND: &str = "once neither the official controller nor a rollback is needed, these may go, if nothing else uses them: \
    ServiceAccount kube-system/cloud-controller-manager; ClusterRole and ClusterRoleBinding system:cloud-controller-manager; \
    --from-cluster names what there is";

/// Files alone do not have what the container of the official controller is given.
fn unseen_variables() -> String {
    let names: Vec<&str> = VARIABLES.iter().map(|setting| setting.name).collect();
    format!(
        "the variables of its container were not seen; --from-cluster reads them, or compare them with config/migration.md: {}",
        names.join(", ")
    )
}

/// The last statement of a setting that says something.
fn stated<'a>(official: &'a Official, name: &str) -> Option<&'a Stated> {
    let of = |stated: &&Stated| stated.setting.name == name && !stated.value.trim().is_empty();
    official.stated.iter().rev().find(of)
}

impl Draft {
    fn put(&mut self, key: &'static str, value: Value, origin: &str, place: Option<ProblemPlace>) {
        self.lines.insert(key, TomlLine { value, origin: origin.to_owned(), place, is_placeholder: false });
    }

    fn refuse(&mut self, Stated { setting, place, .. }: &Stated, message: &str) {
        let help = Some("correct it, or leave it out and set what config/migration.md names manually".to_owned());
        self.problems.push(ConfigProblem::at(place.clone(), format!("{} {message}", setting.name), help));
    }

    fn take(&mut self, stated: &Stated) {
        let Setting { name, keys, conversion, note, .. } = stated.setting;
        match conversion {
            // Named on the command line, and read.
            None if *name == "--cloud-config" => {}
            None if keys.is_empty() => self.notes.push(format!("{name}: {note}")),
            None => self.notes.push(format!("{name}: {note}; set manually if needed: {}", keys.join(", "))),
            Some(_) if stated.value.trim().is_empty() => {}
            Some(Conversion::Plain(convert) | Conversion::Location(convert)) => self.put_all(keys, *convert, stated),
            Some(Conversion::Gates) => self.take_gates(stated),
            Some(Conversion::Address) => self.take_address(stated),
            Some(Conversion::Secret(encoding)) => self.take_secret(stated, *encoding),
            // Looked at together.
            Some(Conversion::Controllers | Conversion::Routes) => {}
        }
    }

    fn put_all(&mut self, keys: &[&'static str], convert: Convert, stated: &Stated) {
        let (name, text) = (stated.setting.name, stated.value.trim());
        for key in keys {
            match convert(text, key) {
                Ok(converted) => {
                    if converted.limited {
                        let value = &converted.value;
                        self.notes.push(format!("{name}: {text} cannot be taken over as it is; {key} is {value}"));
                    }
                    self.put(key, converted.value, name, Some(stated.place.clone()));
                }
                Err(allowed) => return self.refuse(stated, &format!("must be {allowed}, not {text:?}")),
            }
        }
    }

    fn take_gates(&mut self, all: &Stated) {
        for part in all.value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let pair = part.split_once('=');
            match pair.and_then(|(name, value)| Some((GATES.iter().find(|gate| gate.name == name.trim())?, value))) {
                Some((setting, value)) => {
                    self.take(&Stated { setting, value: value.to_owned(), place: all.place.clone() });
                }
                None if pair.is_none() => self.refuse(all, &format!("must have =true or =false after {part:?}")),
                // Kubernetes' own, such as those that OpenShift lists for all its parts.
                None => self.notes.push(format!("{} {part}: no gate of this controller", all.setting.name)),
            }
        }
    }

    fn take_address(&mut self, stated: &Stated) {
        let (host, port) = stated.value.trim().rsplit_once(':').unwrap_or(("", stated.value.trim()));
        let Ok(port) = port.parse::<u16>() else {
            return self.refuse(stated, "must be :port or address:port");
        };
        self.put("server.port", i64::from(port).into(), stated.setting.name, Some(stated.place.clone()));
        if host.is_empty() {
            let note = "was served on every address; here on loopback, unless server.address says otherwise";
            return self.notes.push(format!("{}: {note}", stated.setting.name));
        }
        let host = host.trim_matches(['[', ']']);
        self.put("server.address", host.into(), stated.setting.name, Some(stated.place.clone()));
    }

    fn take_secret(&mut self, stated: &Stated, encoding: Encoding) {
        // The official controller decodes as Go does, which skips line breaks.
        let decode = || STANDARD.decode(stated.value.trim().replace(['\r', '\n'], "")).ok();
        let text = match encoding {
            Encoding::Base64 => decode().and_then(|bytes| String::from_utf8(bytes).ok()),
            Encoding::Plain => Some(stated.value.trim().to_owned()),
        };
        let Some(text) = text else { return self.refuse(stated, "must be Base64 of text") };
        let is_secret = stated.setting.keys != [KEY_FILES[0].0];
        self.key_pairs[usize::from(encoding == Encoding::Plain)][usize::from(is_secret)] = Some(Secret::new(text));
    }

    /// Which controllers run: those that the official controller runs, without `route` where it makes no routes.
    fn choose_controllers(&mut self, official: &Official) {
        let listed = stated(official, "--controllers");
        let items: Vec<&str> = listed.map_or_else(|| vec!["*"], |listed| items(&listed.value));
        let ran = Ran { items: &items, is_v1: official.is_v1 };
        let mut kept: Vec<&str> =
            CATALOG.controllers.iter().filter(|entry| ran.runs(entry)).map(|it| it.name).collect();
        for item in items.iter().filter(|item| !is_known(item)) {
            if CATALOG.absent_controllers.contains(item) {
                self.notes.push(format!("--controllers: {item} is not part of this program"));
            } else {
                // The check of the file reports it.
                kept.push(item);
            }
        }
        if listed.is_some() && !ran.is_v1 && items.iter().any(|item| item.starts_with(['*', '-'])) {
            let note = "v2 takes names alone and does not start with *; it stands for v2's default here";
            self.notes.push(format!("--controllers: {note}"));
        }
        if let Some(why) = self.without_routes(official).filter(|_| kept.contains(&"route")) {
            self.notes.push(format!("route is left out: {why}"));
            kept.retain(|name| *name != "route");
        }
        let origin = if listed.is_some() { "--controllers" } else { "what the official controller runs by default" };
        let place = listed.map(|listed| listed.place.clone());
        self.leave_out_parts(&ran, &mut kept, place.as_ref());
        self.put("controllers", kept.into_iter().map(Value::from).collect::<Vec<_>>().into(), origin, place);
    }

    /// What upstream divides into two controllers is one here: the half that did not run is switched off by its keys, or the
    /// whole is left out.
    fn leave_out_parts(&mut self, ran: &Ran<'_>, kept: &mut Vec<&str>, place: Option<&ProblemPlace>) {
        let Some(node) = CATALOG.controllers.iter().find(|entry| !entry.parts.is_empty()) else { return };
        let (whole, part) = (ran.says(node.aliases, node), ran.says(node.parts, node));
        if !kept.contains(&node.name) || whole == part {
            return;
        }
        if whole {
            for key in LIFECYCLE {
                self.put(key, false.into(), "--controllers, which leaves out cloud-node-lifecycle", place.cloned());
            }
        } else {
            self.notes.push(format!(
                "--controllers: {} is left out: it would initialise nodes, too, and {} alone ran",
                node.name, node.parts[0]
            ));
            kept.retain(|name| *name != node.name);
        }
    }

    /// Why the official controller makes no routes; `None` if it does.
    fn without_routes(&mut self, official: &Official) -> Option<&'static str> {
        let mut flag = |name: &str, default: bool| match stated(official, name) {
            None => default,
            Some(stated) => truth(stated.value.trim()).unwrap_or_else(|| {
                self.refuse(stated, "must be true or false");
                default
            }),
        };
        let (configured, allocated) = (flag("--configure-cloud-routes", true), flag("--allocate-node-cidrs", false));
        if !configured {
            Some("--configure-cloud-routes is false")
        } else if stated(official, "--cluster-cidr").is_none() {
            Some("there is no --cluster-cidr, without which the official controller makes no routes")
        } else if official.is_v1 && !allocated {
            Some("v1.9.3 makes no routes unless --allocate-node-cidrs is true")
        } else {
            None
        }
    }

    fn choose_lock(&mut self, official: &Official) {
        if stated(official, "--leader-elect-resource-lock").is_some_and(|lock| lock.value.trim() == "configmaps") {
            let note = "no lock here is a ConfigMap alone: stop the official controller before this program starts";
            self.notes.push(format!("--leader-elect-resource-lock: {note}"));
        }
        if official.is_v1 && stated(official, "--leader-elect-resource-lock").is_none() {
            let origin = "the lock of v1.9.3, until that is removed";
            self.put("leader_election.resource_lock", "endpointsleases".into(), origin, None);
        }
    }

    fn choose_cluster_id(&mut self) {
        if !self.lines.contains_key("cloud.cluster_id") {
            let origin = "what the official controller uses without clusterID";
            self.put("cloud.cluster_id", DEFAULT_CLUSTER_ID.into(), origin, None);
        }
    }

    /// Where the key pair goes; gives what the files hold.
    fn choose_key_pair(&mut self, saves_keys: bool) -> Vec<(&'static str, Secret)> {
        let names = [["accessKeyID", "accessKeySecret"], ["ACCESS_KEY_ID", "ACCESS_KEY_SECRET"]];
        let mut chosen = None;
        for ([id, secret], names) in std::mem::take(&mut self.key_pairs).into_iter().zip(names) {
            if id.is_some() != secret.is_some() {
                self.notes.push(format!("{} have an effect only together", names.join(" and ")));
            }
            chosen = chosen.or_else(|| id.zip(secret).map(|pair| (pair, names)));
        }
        let Some(((id, secret), origins)) = chosen else { return Vec::new() };
        for ((key, file), origin) in KEY_FILES.into_iter().zip(origins) {
            let origin = format!("{origin}{}", if saves_keys { "" } else { ": put it there, and remove the first #" });
            let is_placeholder = !saves_keys;
            self.lines.insert(key, TomlLine { value: file.into(), origin, place: None, is_placeholder });
        }
        if !saves_keys {
            self.notes.push(format!(
                "{} and {} are not printed: --out FOLDER writes them as files; or put each, decoded, into a file of mode \
                 0600 or a Secret, and let cloud.credentials name it",
                origins[0], origins[1]
            ));
            return Vec::new();
        }
        vec![(KEY_FILES[0].1, id), (KEY_FILES[1].1, secret)]
    }

    fn finish(mut self, key_files: Vec<(&'static str, Secret)>) -> Result<Migration, Vec<ConfigProblem>> {
        let toml = self.to_toml();
        let file = |(name, text): &(&str, Secret)| {
            (PathBuf::from(name), KeyFile::Read { text: text.clone(), readable_by_others: false })
        };
        let path = PathBuf::from(super::TOML);
        let files = key_files.iter().map(file).collect();
        let source = ConfigSource { path: path.clone(), text: Some(toml.clone()), files, ..ConfigSource::default() };
        let config = config::check(&source, &CATALOG).map_err(|report| {
            report.problems().iter().for_each(|problem| self.problems.push(self.traced(&path, problem)));
        });
        match config {
            Ok(config) if self.problems.is_empty() => Ok(Migration { toml, config, key_files, notes: self.notes }),
            _ => Err(self.problems),
        }
    }

    /// A problem with the new file, at the place where its cause is written.
    fn traced(&self, path: &Path, problem: &ConfigProblem) -> ConfigProblem {
        let key = problem.key.as_deref().unwrap_or_default();
        let belongs =
            |line: &&&'static str| key == **line || key.strip_prefix(**line).is_some_and(|rest| rest.starts_with('.'));
        let line = self.lines.keys().find(belongs).and_then(|line| self.lines.get(line));
        let whole = || ProblemPlace::Whole { file: path.to_owned() };
        let place = line.and_then(|line| line.place.clone()).unwrap_or_else(whole);
        let origin = line.map(|line| format!("{} cannot be taken over: ", line.origin)).unwrap_or_default();
        ConfigProblem::at(place, origin + &problem.message, problem.help.clone())
    }

    fn to_toml(&self) -> String {
        let mut sections: BTreeMap<&str, Vec<(&str, &TomlLine)>> = BTreeMap::new();
        for (key, line) in &self.lines {
            let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
            sections.entry(section).or_default().push((name, line));
        }
        let mut text = "# From the settings of the official controller, which stand behind each line.\n".to_owned();
        for (section, lines) in sections {
            if !section.is_empty() {
                let _ = write!(text, "\n[{section}]\n");
            }
            for (name, TomlLine { value, origin, is_placeholder, .. }) in lines {
                let _ = writeln!(text, "{}{name} = {value} # {origin}", if *is_placeholder { "#" } else { "" });
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;
