//! Which credentials are meant, and whether they are whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::Checker;
use super::checked::{AccessKey, Credentials};
use super::file::CredentialsSection;
use super::layers::{credential, resolve};
use super::load::SecretFile;
use super::rules::{not_empty, within};
use super::secret::Secret;
use super::values::shown as quoted;

const ID: &str = "cloud.credentials.access_key_id";
const SECRET: &str = "cloud.credentials.access_key_secret";
const TOKEN: &str = "cloud.credentials.security_token";
const ROLE: &str = "cloud.credentials.role_arn";
const SESSION: &str = "cloud.credentials.role_session_name";
const DURATION: &str = "cloud.credentials.duration";
const PROVIDER: &str = "cloud.credentials.oidc_provider_arn";
const TOKEN_FILE: &str = "cloud.credentials.oidc_token_file";
const INSTANCE_ROLE: &str = "cloud.credentials.instance_role";

/// The key files that are named, in the order id, secret, token.
pub(super) fn key_files(section: &CredentialsSection) -> [&Option<PathBuf>; 3] {
    [&section.access_key_id_file, &section.access_key_secret_file, &section.security_token_file]
}

/// The credentials. Worthless if the checker has found a problem.
pub(super) fn credentials(c: &mut Checker<'_>, section: &CredentialsSection) -> Credentials {
    check_role(c, section);
    let files = key_files(section).map(Option::as_deref);
    let id = key_part(c, ID, section.access_key_id.as_ref(), files[0], section);
    let secret = key_part(c, SECRET, section.access_key_secret.as_ref(), files[1], section);
    let token = key_part(c, TOKEN, section.security_token.as_ref(), files[2], section);
    let by_key = id.is_some() || secret.is_some() || token.is_some();
    let by_oidc = section.oidc_provider_arn.is_some() || section.oidc_token_file.is_some();
    only_one(c, by_key, by_oidc, section.instance_role.is_some());
    if by_key {
        return by_access_key(c, section, id, secret, token);
    }
    if by_oidc {
        return by_token(c, section);
    }
    if section.role_arn.is_some() {
        let help = "add access_key_id and access_key_secret, or oidc_provider_arn and oidc_token_file; a role of this \
                    instance is named with instance_role";
        c.bad_with(ROLE, "needs somebody who assumes the role", Some(help.to_owned()));
    }
    if let Some(role) = section.instance_role.as_deref() {
        not_empty(c, INSTANCE_ROLE, role);
    }
    Credentials::InstanceRole { role: section.instance_role.clone() }
}

fn only_one(c: &mut Checker<'_>, by_key: bool, by_oidc: bool, by_instance: bool) {
    let help =
        || Some("state one kind of credentials: a key pair, an OIDC role, or the role of this instance".to_owned());
    if by_key && by_oidc {
        let key = if c.states(PROVIDER) { PROVIDER } else { TOKEN_FILE };
        c.bad_with(key, "cannot be used together with an access key", help());
    }
    if by_instance && (by_key || by_oidc) {
        let other = if by_key { "an access key" } else { "an OIDC role" };
        c.bad_with(INSTANCE_ROLE, format!("cannot be used together with {other}"), help());
    }
}

fn check_role(c: &mut Checker<'_>, section: &CredentialsSection) {
    for (key, arn, kind) in
        [(ROLE, &section.role_arn, ":role/"), (PROVIDER, &section.oidc_provider_arn, ":oidc-provider/")]
    {
        let fits = |arn: &str| {
            let rest = arn.strip_prefix("acs:ram::").and_then(|rest| rest.split_once(kind));
            rest.is_some_and(|(account, name)| {
                !account.is_empty() && !name.is_empty() && !arn.contains(char::is_whitespace)
            })
        };
        if let Some(arn) = arn.as_deref().filter(|arn| !fits(arn)) {
            c.bad(key, format!("must be \"acs:ram::<account>{kind}<name>\", not {}", quoted(arn)));
        }
    }
    within(c, DURATION, section.duration, Duration::from_secs(900), Duration::from_secs(43200));
    let name = &section.role_session_name;
    let fits = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '.' | '@' | '-' | '_');
    if !(2..=64).contains(&name.len()) || !name.chars().all(fits) {
        c.bad(SESSION, format!("must be 2 to 64 letters, digits, '.', '@', '-' and '_', not {}", quoted(name)));
    }
}

fn by_access_key(
    c: &mut Checker<'_>,
    section: &CredentialsSection,
    id: Option<Secret>,
    secret: Option<Secret>,
    token: Option<Secret>,
) -> Credentials {
    if c.sound(&[ID, SECRET, TOKEN]) {
        for (key, part) in [(ID, &id), (SECRET, &secret)] {
            if part.is_none() {
                c.bad_with(key, "is missing", Some("an access key needs both its id and its secret".to_owned()));
            }
        }
    }
    let source = AccessKey {
        id: id.as_ref().map(Secret::expose).unwrap_or_default().to_owned(),
        secret: secret.unwrap_or_else(|| Secret::new(String::new())),
        token,
    };
    match &section.role_arn {
        None => Credentials::AccessKey(source),
        Some(role_arn) => Credentials::AssumeRole {
            source,
            role_arn: role_arn.clone(),
            session_name: section.role_session_name.clone(),
            duration: section.duration.0,
            external_id: section.external_id.clone(),
        },
    }
}

fn by_token(c: &mut Checker<'_>, section: &CredentialsSection) -> Credentials {
    let missing = [
        (ROLE, section.role_arn.is_none()),
        (PROVIDER, section.oidc_provider_arn.is_none()),
        (TOKEN_FILE, section.oidc_token_file.is_none()),
    ];
    for (key, missing) in missing {
        if missing && c.sound(&[key]) {
            let help = "an OIDC role needs role_arn, oidc_provider_arn and oidc_token_file".to_owned();
            c.bad_with(key, "is missing", Some(help));
        }
    }
    Credentials::Oidc {
        role_arn: section.role_arn.clone().unwrap_or_default(),
        provider_arn: section.oidc_provider_arn.clone().unwrap_or_default(),
        token_file: resolve(c.source, section.oidc_token_file.as_deref().unwrap_or(Path::new(""))),
        session_name: section.role_session_name.clone(),
        duration: section.duration.0,
    }
}

/// One part of a key pair, stated or from its file.
fn key_part(
    c: &mut Checker<'_>,
    key: &str,
    stated: Option<&String>,
    file: Option<&Path>,
    section: &CredentialsSection,
) -> Option<Secret> {
    let file_key = format!("{key}_file");
    if stated.is_some() && file.is_some() {
        c.bad(&file_key, "cannot be used together with the key of the same name without \"_file\"");
        return Some(Secret::new(String::new()));
    }
    let Some(path) = file else {
        let text = stated?;
        if !c.sound(&[key]) {
            return None;
        }
        if let Err(wrong) = usable(text) {
            c.bad(key, wrong);
        }
        return Some(Secret::new(text.clone()));
    };
    // systemd shields the folder; with access lists, the files in it look as if their group could read them.
    let shielded = credential(path).is_some();
    if shielded && !c.source.environment.contains_key("CREDENTIALS_DIRECTORY") {
        let help = "credentials are there only in a systemd service with LoadCredential=; elsewhere, name a file";
        c.bad_with(&file_key, format!("names {}, but systemd has given none", path.display()), Some(help.to_owned()));
        return Some(Secret::new(String::new()));
    }
    let path = resolve(c.source, path);
    let shown = path.display();
    match c.source.files.get(&path) {
        None => c.bad(&file_key, format!("names {shown}, which has not been read")),
        Some(SecretFile::Failed(fault)) => c.bad(&file_key, format!("names {shown}, which {fault}")),
        Some(SecretFile::Read { readable_by_others: true, .. }) if !section.allow_readable_files && !shielded => {
            let help = "take the rights away with mode 0400 (in a Kubernetes volume: defaultMode), or set \
                        cloud.credentials.allow_readable_files to true";
            c.bad_with(&file_key, format!("names {shown}, which group or others may read"), Some(help.to_owned()));
        }
        Some(SecretFile::Read { text, .. }) => match usable(text.expose().trim()) {
            Ok(()) => return Some(Secret::new(text.expose().trim().to_owned())),
            Err(wrong) => c.bad(&file_key, format!("names {shown}, whose content {wrong}")),
        },
    }
    // Something is meant to be there, so that its absence is not reported as well.
    Some(Secret::new(String::new()))
}

fn usable(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.chars().any(|ch| ch.is_whitespace() || ch.is_control()) {
        return Err("has spaces or line breaks inside, which a key never has");
    }
    Ok(())
}
