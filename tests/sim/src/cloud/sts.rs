//! STS, version 2015-04-01: keys of sessions.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::account::{AccessKey, Account};
use super::actions::{Action, Context, Product};
use super::protocol::ApiError;

pub(crate) fn actions() -> Vec<Action> {
    vec![
        Action::write(
            Product::Sts,
            "AssumeRole",
            "RoleArn! RoleSessionName! DurationSeconds Policy ExternalId SourceIdentity",
            assume,
        )
        .documented("parameters, answer, `EntityNotExist.Role`, 900 s at least")
        .assumed("trust policies do not count"),
        Action::read(Product::Sts, "GetCallerIdentity", "", who)
            .documented("answer")
            .assumed("allowed to everybody; made-up name and id of the caller"),
        Action {
            signed: false,
            ..Action::write(
                Product::Sts,
                "AssumeRoleWithOIDC",
                "RoleArn! OIDCProviderArn! OIDCToken! RoleSessionName! DurationSeconds Policy",
                assume_with_oidc,
            )
            .documented("parameters, answer, no signature, `AuthenticationFail.` as start of the code")
            .assumed(
                "`AuthenticationFail.OIDCToken.Invalid`; one token is valid, its contents do not \
                 count",
            )
        },
    ]
}

/// A key of a session, known to the cloud from now on.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: String,
    pub(crate) expires: Timestamp,
}

/// Gives out a key for a role.
pub(crate) fn issue(account: &mut Account, role: &str, now: Timestamp, lifetime: Duration) -> Session {
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::from_hours(1));
    let session = Session {
        id: account.fresh("STS.N", 24),
        secret: account.fresh("", 43),
        token: format!("CAIS+/{}==", account.fresh("", 40)),
        expires: now + lifetime,
    };
    let denied = account.roles.get(role).map(|it| it.denied.clone()).unwrap_or_default();
    let key = AccessKey { denied, ..AccessKey::temporary(&session.secret, &session.token, session.expires) };
    account.keys.insert(session.id.clone(), key);
    session
}

/// As the vendor writes a point in time.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn assume(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let arn = cx.params.need("RoleArn")?;
    let name = cx.params.need("RoleSessionName")?;
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || ".@-_".contains(it);
    if !(2..=64).contains(&name.len()) || !name.chars().all(is_allowed) {
        return Err(ApiError::invalid("RoleSessionName", "2 to 64 letters, digits, . @ - _ are allowed"));
    }
    let Some((account, role)) = arn.strip_prefix("acs:ram::").and_then(|it| it.split_once(":role/")) else {
        return Err(ApiError::invalid("RoleArn", "acs:ram::<account>:role/<name> is expected"));
    };
    let Some(known) = cx.account.roles.get(role).filter(|_| account == cx.account.id) else {
        return Err(ApiError::new(404, "EntityNotExist.Role", "The role does not exist."));
    };
    let longest = i64::try_from(known.max_session).unwrap_or(3600);
    let duration = cx.params.number_in("DurationSeconds", 900, longest)?.unwrap_or(3600.min(longest));
    let session = issue(cx.account, role, cx.now, Duration::from_secs(duration.unsigned_abs()));
    let id = cx.account.fresh("344", 12);
    Ok(json!({
        "AssumedRoleUser": {
            "Arn": format!("{}/{name}", cx.account.role_arn(role)),
            "AssumedRoleId": format!("{id}:{name}"),
        },
        "Credentials": {
            "AccessKeyId": session.id,
            "AccessKeySecret": session.secret,
            "SecurityToken": session.token,
            "Expiration": seconds(session.expires),
        },
    }))
}

/// Sessions of roles have keys that begin so.
fn who(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let key = cx.params.need("AccessKeyId")?;
    let account = &cx.account.id;
    let (kind, arn) = if key.starts_with("STS.") {
        ("AssumedRoleUser", format!("acs:ram::{account}:assumed-role/ccm/session"))
    } else {
        ("RAMUser", format!("acs:ram::{account}:user/ccm"))
    };
    Ok(json!({"AccountId": account, "Arn": arn, "IdentityType": kind, "PrincipalId": "288", "UserId": "288"}))
}

fn assume_with_oidc(cx: &mut Context<'_>) -> Result<Value, ApiError> {
    let token = cx.params.need("OIDCToken")?;
    if cx.params.get("Signature").is_some() {
        cx.log.complain("AssumeRoleWithOIDC: the call needs no signature".into());
    }
    if cx.account.oidc_token.as_deref() != Some(token) {
        let message = "This JWT token is invalid or has expired.";
        return Err(ApiError::new(400, "AuthenticationFail.OIDCToken.Invalid", message));
    }
    let mut answer = assume(cx)?;
    answer["OIDCTokenInfo"] = json!({"Issuer": "https://oidc.example.com", "Subject": "system:serviceaccount:kube-system:ccm",
        "ClientIds": "sts.aliyuncs.com", "VerificationInfo": "Success"});
    Ok(answer)
}
