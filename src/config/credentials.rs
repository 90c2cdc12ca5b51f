//! Which credentials are meant, and whether they are complete.

use std::path::{Path, PathBuf};

use super::checked::{AccessKey, Credentials};
use super::checker::Checker;
use super::file::CredentialsSection;
use super::fit::is_placeholder;
use super::secret::Secret;
use super::values::shown;

const ID: &str = "cloud.credentials.access_key_id";
const SECRET: &str = "cloud.credentials.access_key_secret";
const TOKEN: &str = "cloud.credentials.security_token";
const ROLE: &str = "cloud.credentials.role_arn";
const PROVIDER: &str = "cloud.credentials.oidc_provider_arn";
const TOKEN_FILE: &str = "cloud.credentials.oidc_token_file";
const INSTANCE_ROLE: &str = "cloud.credentials.instance_role";

/// The key files that are named, in the order id, secret, token.
pub(super) fn key_files(section: &CredentialsSection) -> [&Option<PathBuf>; 3] {
    [&section.access_key_id_file, &section.access_key_secret_file, &section.security_token_file]
}

/// The credentials. The result is of no use if the checker has found a problem.
pub(super) fn credentials(c: &mut Checker<'_>, section: CredentialsSection) -> Credentials {
    let [id_file, secret_file, token_file] = key_files(&section).map(Option::as_deref);
    let readable = section.allow_readable_files;
    let id = key_part(c, ID, section.access_key_id.as_ref(), id_file, readable);
    let secret = key_part(c, SECRET, section.access_key_secret.as_ref(), secret_file, readable);
    let token = key_part(c, TOKEN, section.security_token.as_ref(), token_file, readable);
    let by_key = id.is_some() || secret.is_some() || token.is_some();
    let by_oidc = section.oidc_provider_arn.is_some() || section.oidc_token_file.is_some();
    only_one(c, by_key, by_oidc, section.instance_role.is_some());
    if by_key {
        return by_access_key(c, section, [id, secret, token]);
    }
    if by_oidc {
        return by_token(c, section);
    }
    if section.role_arn.is_some() {
        let help = "add access_key_id and access_key_secret, or oidc_provider_arn and oidc_token_file; a role of this \
                    instance is named with instance_role";
        c.bad_with(ROLE, "needs an identity that assumes the role", Some(help));
    }
    Credentials::InstanceRole { role: section.instance_role }
}

fn only_one(c: &mut Checker<'_>, by_key: bool, by_oidc: bool, by_instance: bool) {
    const HELP: &str = "state one kind of credentials: a key pair, an OIDC role, or the role of this instance";
    if by_key && by_oidc {
        let key = if c.states(PROVIDER) { PROVIDER } else { TOKEN_FILE };
        c.bad_with(key, "cannot be used together with an access key", Some(HELP));
    }
    if by_instance && (by_key || by_oidc) {
        let other = if by_key { "an access key" } else { "an OIDC role" };
        c.bad_with(INSTANCE_ROLE, format!("cannot be used together with {other}"), Some(HELP));
    }
}

fn by_access_key(c: &mut Checker<'_>, section: CredentialsSection, key: [Option<Secret>; 3]) -> Credentials {
    let [id, secret, token] = key;
    if c.sound(&[ID, SECRET, TOKEN]) {
        for (key, part) in [(ID, &id), (SECRET, &secret)] {
            if part.is_none() {
                c.bad_with(key, "is missing", Some("an access key needs both its id and its secret"));
            }
        }
    }
    let source = AccessKey {
        id: id.as_ref().map(Secret::expose).unwrap_or_default().to_owned(),
        secret: secret.unwrap_or_else(no_secret),
        token,
    };
    match section.role_arn {
        None => Credentials::AccessKey(source),
        Some(role_arn) => Credentials::AssumeRole {
            source,
            role_arn,
            session_name: section.role_session_name,
            duration: section.duration,
            external_id: section.external_id,
        },
    }
}

fn by_token(c: &mut Checker<'_>, section: CredentialsSection) -> Credentials {
    let missing = [
        (ROLE, section.role_arn.is_none()),
        (PROVIDER, section.oidc_provider_arn.is_none()),
        (TOKEN_FILE, section.oidc_token_file.is_none()),
    ];
    for (key, missing) in missing {
        if missing && c.sound(&[key]) {
            let help = "an OIDC role needs role_arn, oidc_provider_arn and oidc_token_file";
            c.bad_with(key, "is missing", Some(help));
        }
    }
    Credentials::Oidc {
        role_arn: section.role_arn.unwrap_or_default(),
        provider_arn: section.oidc_provider_arn.unwrap_or_default(),
        token_file: c.source.resolve(&section.oidc_token_file.unwrap_or_default()),
        session_name: section.role_session_name,
        duration: section.duration,
    }
}

/// Stands for a part of a key that has a problem, so that its absence is not reported as well.
fn no_secret() -> Secret {
    Secret::new(String::new())
}

/// One part of a key pair, stated or from its file.
fn key_part(
    c: &mut Checker<'_>,
    key: &str,
    stated: Option<&String>,
    file: Option<&Path>,
    readable: bool,
) -> Option<Secret> {
    let file_key = format!("{key}_file");
    let Some(path) = file else {
        let text = stated?;
        if let Err(wrong) = usable(text) {
            c.bad(key, wrong);
        }
        return Some(Secret::new(text.clone()));
    };
    if stated.is_some() {
        c.bad(&file_key, "cannot be used together with the key of the same name without \"_file\"");
        return Some(no_secret());
    }
    let Some(content) = c.key_file(&file_key, path, readable) else { return Some(no_secret()) };
    let text = content.expose().trim();
    if is_placeholder(text, None) {
        let path = c.source.resolve(path);
        c.bad_file(&file_key, format!("names {}, which holds the placeholder {}", path.display(), shown(text)), None);
    }
    if let Err(wrong) = usable(text) {
        c.bad_file(&file_key, format!("names {}, whose content {wrong}", c.source.resolve(path).display()), None);
    }
    Some(Secret::new(text.to_owned()))
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
