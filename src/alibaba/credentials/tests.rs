use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use super::*;
use crate::alibaba::CloudClient;
use crate::alibaba::tests::script::{Reply, Script, access_key, config, permit, renamed};
use crate::config::checked;

/// Temporary keys that last this long.
fn keys(id: &str, lifetime: Duration) -> serde_json::Value {
    let end = crate::clock::now().checked_add(lifetime).unwrap();
    json!({"AccessKeyId": id, "AccessKeySecret": "temporary-secret", "SecurityToken": "temporary-token",
        "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "Code": "Success"})
}

fn granted(id: &str, lifetime: Duration) -> Reply {
    Reply::ok(json!({"RequestId": "R", "Credentials": keys(id, lifetime)}))
}

fn down() -> Reply {
    Reply::error(503, "ServiceUnavailable", "later")
}

fn assume_role() -> Credentials {
    Credentials::AssumeRole {
        source: access_key("LTAIsource"),
        role_arn: "acs:ram::1:role/ccm".into(),
        session_name: "ccm".into(),
        duration: Duration::from_secs(3600),
        external_id: Some("external".into()),
    }
}

fn cloud_with(credentials: Credentials, replies: impl IntoIterator<Item = Reply>) -> (CloudClient, Arc<Script>) {
    let script = Script::new(replies);
    let config = checked::Cloud { credentials, ..config() };
    (CloudClient::new(script.clone(), &config, "cn-hangzhou"), script)
}

async fn call(cloud: &CloudClient) -> Result<(), Fault> {
    cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await
}

/// The key ids that signed the calls to the load balancer product.
fn signers(script: &Script) -> Vec<String> {
    let calls = script.seen().into_iter().filter(|seen| seen.action() == "SetLoadBalancerName");
    calls.map(|seen| seen.param("AccessKeyId").unwrap().to_owned()).collect()
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_role_is_assumed_with_the_source_keys_and_used_with_its_token() {
    let (cloud, script) = cloud_with(assume_role(), [granted("STS.1", HOUR), Reply::done(), Reply::done()]);
    assert!(cloud.credential_state().usable, "nothing was needed yet");
    call(&cloud).await.unwrap();
    call(&cloud).await.unwrap();
    let seen = script.seen();
    assert_eq!(seen[0].url, "https://sts-vpc.cn-hangzhou.aliyuncs.com/");
    assert_eq!((seen[0].action(), seen[0].param("AccessKeyId")), ("AssumeRole", Some("LTAIsource")));
    assert_eq!(
        seen[0].own_params(),
        [
            ("RoleArn", "acs:ram::1:role/ccm"),
            ("RoleSessionName", "ccm"),
            ("DurationSeconds", "3600"),
            ("ExternalId", "external")
        ]
        .into()
    );
    assert_eq!(
        (seen[1].param("AccessKeyId"), seen[1].param("SecurityToken")),
        (Some("STS.1"), Some("temporary-token"))
    );
    assert_eq!(seen.len(), 3, "the keys are kept");
}

#[tokio::test(start_paused = true)]
async fn keys_are_renewed_ahead_of_their_end() {
    let (cloud, script) = cloud_with(
        assume_role(),
        [granted("STS.1", HOUR), Reply::done(), Reply::done(), granted("STS.2", HOUR), Reply::done()],
    );
    call(&cloud).await.unwrap();
    tokio::time::advance(HOUR - Duration::from_secs(380)).await;
    call(&cloud).await.unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    call(&cloud).await.unwrap();
    assert_eq!(signers(&script), ["STS.1", "STS.1", "STS.2"], "a tenth of an hour is longer than five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_old_keys_while_they_last() {
    let (cloud, script) = cloud_with(
        assume_role(),
        [
            granted("STS.1", HOUR),
            Reply::done(),
            down(),
            Reply::done(),
            Reply::done(),
            down(),
            granted("STS.2", 2 * HOUR),
            Reply::done(),
        ],
    );
    call(&cloud).await.unwrap();
    tokio::time::advance(HOUR - Duration::from_secs(200)).await;
    call(&cloud).await.unwrap();
    let state = cloud.credential_state();
    assert!(state.usable && state.last_error.unwrap().contains("ServiceUnavailable"));
    call(&cloud).await.unwrap();
    assert_eq!(script.actions().iter().filter(|action| *action == "AssumeRole").count(), 2, "no try with every call");
    tokio::time::advance(Duration::from_secs(200)).await;
    let fault = call(&cloud).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Transient);
    assert_eq!(fault.action, "SetLoadBalancerName");
    assert!(fault.message.contains("acs:ram::1:role/ccm"), "{fault}");
    assert!(!cloud.credential_state().usable);
    tokio::time::advance(RETRY_WITHOUT_KEYS).await;
    call(&cloud).await.unwrap();
    assert_eq!(cloud.credential_state(), CredentialState { usable: true, last_error: None });
    assert_eq!(signers(&script), ["STS.1", "STS.1", "STS.1", "STS.2"]);
}

#[tokio::test(start_paused = true)]
async fn many_calls_at_once_get_keys_once() {
    let replies = std::iter::once(granted("STS.1", HOUR)).chain((0..10).map(|_| Reply::done()));
    let (cloud, script) = cloud_with(assume_role(), replies);
    let calls = futures::future::join_all((0..10).map(|_| call(&cloud))).await;
    assert!(calls.iter().all(Result::is_ok));
    assert_eq!(script.seen().len(), 11);
    let (cloud, script) = cloud_with(assume_role(), [down()]);
    let calls = futures::future::join_all((0..10).map(|_| call(&cloud))).await;
    assert!(calls.iter().all(Result::is_err));
    assert_eq!(script.seen().len(), 1, "those who waited share the failure");
}

#[tokio::test(start_paused = true)]
async fn keys_that_the_cloud_refuses_are_replaced_once() {
    let refused = || Reply::error(400, "InvalidSecurityToken.Expired", "expired");
    let (cloud, script) = cloud_with(
        assume_role(),
        [granted("STS.1", HOUR), refused(), granted("STS.2", HOUR), Reply::done(), refused(), Reply::done()],
    );
    call(&cloud).await.unwrap();
    assert_eq!(signers(&script), ["STS.1", "STS.2"]);
    let fault = call(&cloud).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Credential, "new keys within seconds would not be better");
    let state = cloud.credential_state();
    assert!(!state.usable && state.last_error.unwrap().contains("InvalidSecurityToken.Expired"));
    call(&cloud).await.unwrap();
    assert!(cloud.credential_state().usable, "a call that succeeds shows that the keys are good");
}

#[tokio::test]
async fn fixed_keys_that_are_refused_are_not_asked_for_again() {
    let (cloud, script) = cloud_with(
        Credentials::AccessKey(access_key("LTAIfixed")),
        [Reply::error(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")],
    );
    assert_eq!(call(&cloud).await.unwrap_err().kind, FaultKind::Credential);
    assert!(!cloud.credential_state().usable);
    assert_eq!(script.seen().len(), 1);
    cloud.reconfigure(&checked::Cloud { credentials: Credentials::AccessKey(access_key("LTAIother")), ..config() });
    assert!(cloud.credential_state().usable, "other keys have not been refused");
}

#[tokio::test]
async fn a_role_that_may_not_be_assumed_is_a_denial_that_names_it() {
    let (cloud, _) =
        cloud_with(assume_role(), [Reply::error(403, "NoPermission", "You are not authorized to do this action.")]);
    let fault = call(&cloud).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Denied);
    assert_eq!(
        fault.to_string(),
        "SetLoadBalancerName: no credentials: the role acs:ram::1:role/ccm was not granted: AssumeRole: You are not \
         authorized to do this action. (needs the permission sts:AssumeRole) [NoPermission, request R]"
    );
}

fn oidc(file: &Path) -> Credentials {
    Credentials::Oidc {
        role_arn: "acs:ram::1:role/ccm".into(),
        provider_arn: "acs:ram::1:oidc-provider/k8s".into(),
        token_file: file.to_owned(),
        session_name: "ccm".into(),
        duration: HOUR,
    }
}

#[tokio::test(start_paused = true)]
async fn the_identity_token_is_read_anew_and_sent_without_a_signature() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "jwt-1\n").unwrap();
    let (cloud, script) =
        cloud_with(oidc(&file), [granted("STS.1", HOUR), Reply::done(), granted("STS.2", 2 * HOUR), Reply::done()]);
    call(&cloud).await.unwrap();
    fs::write(&file, "jwt-2").unwrap();
    tokio::time::advance(HOUR).await;
    call(&cloud).await.unwrap();
    let seen = script.seen();
    assert_eq!((seen[0].param("OIDCToken"), seen[2].param("OIDCToken")), (Some("jwt-1"), Some("jwt-2")));
    let names: BTreeSet<_> = seen[0].params.keys().map(String::as_str).collect();
    let expected = [
        "Action",
        "DurationSeconds",
        "Format",
        "OIDCProviderArn",
        "OIDCToken",
        "RoleArn",
        "RoleSessionName",
        "Timestamp",
        "Version",
    ];
    assert_eq!(names, expected.into());
    assert_eq!(signers(&script), ["STS.1", "STS.2"]);
}

#[tokio::test]
async fn an_identity_token_that_was_just_replaced_is_read_again_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "jwt-1").unwrap();
    let refused = || Reply::error(403, "AuthenticationFail.OIDCToken.Expired", "expired");
    let rotated = {
        let file = file.clone();
        Reply::After(Box::new(move || fs::write(&file, "jwt-2").unwrap()), Box::new(refused()))
    };
    let (cloud, script) = cloud_with(oidc(&file), [rotated, granted("STS.1", HOUR), Reply::done()]);
    call(&cloud).await.unwrap();
    assert_eq!(script.seen()[1].param("OIDCToken"), Some("jwt-2"));
    let (cloud, script) = cloud_with(oidc(&file), [refused()]);
    assert_eq!(call(&cloud).await.unwrap_err().kind, FaultKind::Denied);
    assert_eq!(script.seen().len(), 1, "the same token would be refused again");
}

#[tokio::test]
async fn a_token_file_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let (cloud, script) = cloud_with(oidc(&file), []);
    let fault = call(&cloud).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Credential);
    assert!(fault.message.contains(&file.display().to_string()), "{fault}");
    assert!(script.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_role_of_the_instance_is_found_and_its_keys_used() {
    let instance = |id: &str, lifetime| Reply::text(&keys(id, lifetime).to_string());
    let (cloud, script) = cloud_with(
        Credentials::InstanceRole { role: None },
        [
            Reply::text("session"),
            Reply::text("ccm-role\n"),
            instance("STS.1", HOUR),
            Reply::done(),
            Reply::text("ccm-role"),
            instance("STS.2", 2 * HOUR),
            Reply::done(),
        ],
    );
    call(&cloud).await.unwrap();
    tokio::time::advance(HOUR).await;
    call(&cloud).await.unwrap();
    assert_eq!(signers(&script), ["STS.1", "STS.2"]);
    let url = &script.seen()[2].url;
    assert_eq!(url, "http://100.100.100.200/latest/meta-data/ram/security-credentials/ccm-role");
}

/// Ten hours, which is longer than the keys last.
#[tokio::test(start_paused = true)]
async fn keys_of_an_instance_are_used_by_a_clock_that_is_ahead_by_more_than_their_life() {
    let instance = |id: &str| {
        let ended = crate::clock::now() - 8 * HOUR;
        let ended = ended.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut keys = keys(id, HOUR);
        keys["Expiration"] = json!(ended);
        Reply::text(&keys.to_string())
    };
    let date = (crate::clock::now() - 10 * HOUR).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let refused = Reply::error(400, "InvalidTimeStamp.Expired", "too old").header("date", date);
    let (cloud, script) = cloud_with(
        Credentials::InstanceRole { role: Some("ccm-role".into()) },
        [
            Reply::text("session"),
            instance("STS.1"),
            refused,
            Reply::done(),
            instance("STS.2"),
            Reply::done(),
            Reply::done(),
        ],
    );
    call(&cloud).await.unwrap();
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(70)).await;
        call(&cloud).await.unwrap();
    }
    assert_eq!(signers(&script), ["STS.1", "STS.1", "STS.2", "STS.2"], "their real life is known by then");
}

#[tokio::test]
async fn what_the_metadata_service_lacks_is_said() {
    let role = || Credentials::InstanceRole { role: None };
    let (cloud, _) = cloud_with(role(), [Reply::text("session"), Reply::status(404)]);
    let fault = call(&cloud).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Credential);
    assert!(fault.message.contains("no RAM role is attached"), "{fault}");
    let failed = json!({"Code": "Failed"}).to_string();
    let (cloud, _) = cloud_with(role(), [Reply::text("session"), Reply::text("r"), Reply::text(&failed)]);
    assert_eq!(call(&cloud).await.unwrap_err().kind, FaultKind::Credential);
    let (cloud, _) = cloud_with(role(), [Reply::status(500)]);
    assert_eq!(call(&cloud).await.unwrap_err().kind, FaultKind::Transient);
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let (cloud, _) = cloud_with(assume_role(), [granted("STS.1", HOUR), Reply::done()]);
    call(&cloud).await.unwrap();
    let shown = format!("{cloud:?}");
    assert!(shown.contains("STS.1"), "the keys are held: {shown}");
    for secret in ["testsecret", "temporary-secret", "temporary-token"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
