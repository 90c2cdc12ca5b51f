//! Rules for text, by the name that a key states as its `format`.

/// A rule for the text of a key.
pub(super) struct TextFormat {
    name: &'static str,
    /// What is allowed, as the end of "must be ...".
    pub(super) allowed: &'static str,
    /// The rule for editors, in the schema: it refuses nothing that keeps the rule.
    pub(super) pattern: &'static str,
    /// Whether a text keeps the rule.
    pub(super) fits: fn(&str) -> bool,
}

const fn format(
    name: &'static str,
    pattern: &'static str,
    allowed: &'static str,
    fits: fn(&str) -> bool,
) -> TextFormat {
    TextFormat { name, allowed, pattern, fits }
}

/// The cluster id is the last part of `k8s/<port>/<service>/<namespace>/<cluster id>`, and of dotted names in other products.
static FORMATS: [TextFormat; 14] = [
    format("cluster-id", r"^[A-Za-z0-9._-]{1,64}$", "1 to 64 letters, digits, '.', '_' and '-'", |text| {
        is_word(text, 1, "._-")
    }),
    format("region", r"^[a-z0-9]+(-[a-z0-9]+)+$", "a region such as \"cn-hangzhou\"", is_zone),
    format("zone", r"^[a-z0-9]+(-[a-z0-9]+)+$", "a zone such as \"cn-hangzhou-i\"", is_zone),
    format("vpc-id", r"^vpc-[A-Za-z0-9_-]+$", "an id such as \"vpc-bp1example\"", |text| is_id(text, "vpc-")),
    format("route-table-id", r"^vtb-[A-Za-z0-9_-]+$", "an id such as \"vtb-bp1example\"", |text| is_id(text, "vtb-")),
    format("resource-group-id", r"^rg-[A-Za-z0-9_-]+$", "an id such as \"rg-bp1example\"", |text| is_id(text, "rg-")),
    format(
        "tag-key",
        r"^\S(.{0,62}\S)?$",
        "the key of a tag: 1 to 64 characters, without \"aliyun\" or \"acs:\" at its start and without a URL",
        is_tag_key,
    ),
    format("role-arn", r"^acs:ram::\S+:role/\S+$", "\"acs:ram::<account>:role/<name>\"", |text| is_arn(text, ":role/")),
    format(
        "oidc-provider-arn",
        r"^acs:ram::\S+:oidc-provider/\S+$",
        "\"acs:ram::<account>:oidc-provider/<name>\"",
        |text| is_arn(text, ":oidc-provider/"),
    ),
    format("session-name", r"^[A-Za-z0-9.@_-]{2,64}$", "2 to 64 letters, digits, '.', '@', '-' and '_'", |text| {
        is_word(text, 2, ".@-_")
    }),
    format("name", r"\S", "a name that is not empty, or left out to have its default", |text| !text.trim().is_empty()),
    format(
        "namespace",
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "the name of an object: lower case letters, digits and '-'",
        |text| text.len() <= 63 && is_label(text),
    ),
    format(
        "object-name",
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$",
        "the name of an object: lower case letters, digits, '-' and '.'",
        is_object_name,
    ),
    format("specification", r"^slb\.\S*$", "a specification such as \"slb.s1.small\"", |text| {
        text.starts_with("slb.") && !text.contains(char::is_whitespace)
    }),
];

/// The rule of that name.
pub(super) fn find(name: &str) -> Option<&'static TextFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Whether a text has `least` to 64 letters, digits and characters of `others`.
fn is_word(text: &str, least: usize, others: &str) -> bool {
    (least..=64).contains(&text.len()) && text.chars().all(|ch| ch.is_ascii_alphanumeric() || others.contains(ch))
}

fn is_lower(ch: char) -> bool {
    ch.is_ascii_lowercase() || ch.is_ascii_digit()
}

/// Whether a text looks like a zone or a region.
pub(super) fn is_zone(text: &str) -> bool {
    text.contains('-') && text.split('-').all(|part| !part.is_empty() && part.chars().all(is_lower))
}

/// Whether a text is an id of the cloud with that prefix.
pub(super) fn is_id(text: &str, prefix: &str) -> bool {
    let rest = text.strip_prefix(prefix).unwrap_or_default();
    !rest.is_empty() && rest.chars().all(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_'))
}

/// Whether a text can be the key of a tag.
pub(super) fn is_tag_key(text: &str) -> bool {
    (1..=64).contains(&text.chars().count())
        && !["aliyun", "acs:"].iter().any(|start| text.starts_with(start))
        && !["http://", "https://"].iter().any(|url| text.contains(url))
        && text.trim() == text
}

fn is_arn(text: &str, kind: &str) -> bool {
    let rest = text.strip_prefix("acs:ram::").and_then(|rest| rest.split_once(kind));
    let names = rest.is_some_and(|(account, name)| !account.is_empty() && !name.is_empty());
    names && !text.contains(char::is_whitespace)
}

/// Whether a text can be the name of an object; only the whole is limited in length. Source: `IsDNS1123Subdomain` of Kubernetes.
pub fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|ch| is_lower(ch) || ch == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}
