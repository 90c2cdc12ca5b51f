use jiff::ToSpan;
use litemap::LiteMap;
use serde_json::json;

use super::*;
use crate::alibaba::tests::script::{Reply, cloud, config, permit, permit_for, renamed};
use crate::alibaba::transport::TransportError;
use crate::plan::clb::model::{CreateInstance, InstanceField};

#[tokio::test]
async fn a_call_is_a_signed_form() {
    let (cloud, script) = cloud([Reply::done()]);
    cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    let seen = script.only();
    assert_eq!((seen.method.as_str(), seen.url.as_str()), ("POST", "https://slb-vpc.cn-hangzhou.aliyuncs.com/"));
    assert!(!seen.direct, "calls may pass a proxy");
    let header = |name: &str| seen.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(header("user-agent"), format!("alicloud-ccm/{} ClusterId/c1", env!("CARGO_PKG_VERSION")));
    for (name, value) in [
        ("Action", "SetLoadBalancerName"),
        ("Version", "2014-05-15"),
        ("Format", "JSON"),
        ("RegionId", "cn-hangzhou"),
        ("AccessKeyId", "testid"),
        ("SignatureMethod", "HMAC-SHA1"),
        ("SignatureVersion", "1.0"),
    ] {
        assert_eq!(seen.param(name), Some(value));
    }
    assert_eq!(seen.param("SecurityToken"), None);
    let timestamp = seen.param("Timestamp").unwrap();
    assert!(timestamp.len() == 20 && timestamp.parse::<Timestamp>().is_ok(), "{timestamp}");
    let mut signed = Params::default();
    for (name, value) in seen.params.iter().filter(|(name, _)| *name != "Signature") {
        signed.push(name.clone(), value);
    }
    let body = signed.signed_body(&crate::config::secret::Secret::new("testsecret".into()));
    let signature = body.rsplit_once("Signature=").unwrap().1.to_owned();
    let signature = percent_encoding::percent_decode_str(&signature).decode_utf8().unwrap().into_owned();
    assert_eq!(seen.param("Signature"), Some(signature.as_str()));
}

#[tokio::test]
async fn a_write_without_an_answer_has_an_unknown_fate_and_a_read_can_be_repeated() {
    let lost = || Reply::Fails(TransportError::Lost("reset".into()));
    let not_sent = || Reply::Fails(TransportError::NotSent("refused".into()));
    let page = || Reply::Answer { status: 200, headers: Vec::new(), body: "<html>".into() };
    let (cloud, script) = cloud([lost(), lost(), not_sent(), not_sent(), page(), page()]);
    for (write, read) in [
        (FaultKind::Ambiguous, FaultKind::Transient),
        (FaultKind::Transient, FaultKind::Transient),
        (FaultKind::Ambiguous, FaultKind::Transient),
    ] {
        assert_eq!(
            cloud
                .clb
                .set_instance(&permit(), "lb-1", &LiteMap::from_iter([(InstanceField::Spec, "s".to_owned())]))
                .await
                .unwrap_err()
                .kind,
            write
        );
        assert_eq!(cloud.clb.describe_instance("lb-1").await.unwrap_err().kind, read);
    }
    assert_eq!(script.seen().len(), 6, "nothing is repeated");
}

#[tokio::test]
async fn the_answer_to_a_write_counts_once_all_of_it_is_there() {
    let body = |text: &str| Reply::Answer { status: 200, headers: Vec::new(), body: text.into() };
    let whole = r#"{"requestID": "R-1", "VServerGroupId": "rsp-1", "BackendServers": {"BackendServer": [{"ServerId": "i-1"}]}}"#;
    let (half, list) = (&whole[..whole.len() - 9], r#"[{"RequestId": "R-1"}]"#);
    let (cloud, _) = cloud([body(whole), body(whole), body(half), body(list)]);
    let write = async || cloud.clb.delete_group(&permit(), "rsp-1").await.map_err(|fault| fault.kind);
    assert_eq!(cloud.clb.create_group(&permit(), "lb-1", "group", &[]).await.ok().as_deref(), Some("rsp-1"));
    assert_eq!(write().await, Ok(()));
    assert_eq!((write().await, write().await), (Err(FaultKind::Ambiguous), Err(FaultKind::Ambiguous)));
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_its_time_or_with_its_permit() {
    let (cloud, script) = cloud([Reply::Never, Reply::Never]);
    let started = Instant::now();
    assert_eq!(cloud.clb.describe_instance("lb-1").await.unwrap_err().kind, FaultKind::Transient);
    assert_eq!(started.elapsed(), Duration::from_secs(20));
    let started = Instant::now();
    let short = permit_for(Duration::from_secs(4));
    assert_eq!(cloud.clb.delete_instance(&short, "lb-1").await.unwrap_err().kind, FaultKind::Ambiguous);
    assert_eq!(started.elapsed(), Duration::from_secs(4));
    assert_eq!(script.seen()[1].timeout, Duration::from_secs(4));
    assert_eq!(cloud.clb.delete_instance(&short, "lb-1").await.unwrap_err().kind, FaultKind::NotLeading);
    assert_eq!(script.seen().len(), 2, "nothing is sent when the permit is over");
}

#[tokio::test(start_paused = true)]
async fn a_write_does_not_wait_for_its_turn_beyond_its_permit() {
    let (cloud, script) = cloud((0..100).map(|_| Reply::done()));
    let fault = loop {
        if let Err(fault) = cloud.clb.set_instance(&permit_for(Duration::from_secs(1)), "lb-1", &renamed()).await {
            break fault;
        }
    };
    assert_eq!(fault.kind, FaultKind::Throttled);
    assert!(fault.held_back() && fault.message.contains("own share"), "{fault:?}");
    assert!(fault.retry_after.is_some_and(|wait| wait <= Duration::from_secs(61)), "{fault:?}");
    assert_eq!(script.seen().len(), 90, "the whole share, as it is the whole quota here");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_call_is_retried_after_a_backoff_and_other_actions_go_on() {
    let throttled = || Reply::error(400, "Throttling.User", "Request was denied due to user flow control.");
    let (cloud, script) = cloud([
        throttled(),
        throttled(),
        Reply::done(),
        throttled().header("x-ratelimit-user", "Limit:60,TimeLeft:7"),
        Reply::done(),
        Reply::done(),
    ]);
    let started = Instant::now();
    cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(375) && took <= Duration::from_millis(760), "{took:?}");
    let fault = cloud.clb.set_instance(&permit_for(Duration::from_secs(5)), "lb-1", &renamed()).await.unwrap_err();
    assert_eq!((fault.kind, fault.code.as_str()), (FaultKind::Throttled, "Throttling.User"));
    assert_eq!(fault.retry_after, Some(Duration::from_secs(7)), "the answer's own word counts");
    let fault = cloud.clb.set_instance(&permit_for(Duration::from_secs(5)), "lb-1", &renamed()).await.unwrap_err();
    assert!(fault.held_back() && fault.message.contains("the cloud throttles"), "{fault}");
    cloud
        .clb
        .set_instance(&permit(), "lb-1", &LiteMap::from_iter([(InstanceField::Spec, "s".to_owned())]))
        .await
        .unwrap();
    assert_eq!(script.actions()[3..], ["SetLoadBalancerName", "ModifyLoadBalancerInstanceSpec"]);
    tokio::time::advance(Duration::from_secs(7)).await;
    cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    assert_eq!(script.seen().len(), 6);
}

#[tokio::test]
async fn a_wrong_clock_is_corrected_once_by_the_servers() {
    let server_time = crate::clock::now().checked_add(2.hours()).unwrap();
    let date = server_time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let expired = || Reply::error(400, "InvalidTimeStamp.Expired", "too old").header("date", date.clone());
    let (cloud, script) = cloud([expired(), Reply::done(), expired(), expired()]);
    cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    let seen = script.seen();
    let stamp = |index: usize| seen[index].param("Timestamp").unwrap().parse::<Timestamp>().unwrap();
    let moved = stamp(1).duration_since(stamp(0)).as_secs();
    assert!((7195..=7205).contains(&moved), "{moved}");
    assert_ne!(seen[0].param("SignatureNonce"), seen[1].param("SignatureNonce"), "each attempt is signed anew");
    let fault = cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Credential);
    assert_eq!(script.seen().len(), 4, "not a third time");
}

/// The request that the cloud complains about arrived twice, so that it may have been carried out.
#[tokio::test]
async fn a_call_whose_nonce_was_taken_is_repeated_once_unless_that_could_do_it_twice() {
    let taken = || Reply::error(400, "SignatureNonceUsed", "used");
    let (cloud, script) = cloud([taken(), Reply::ok(json!({"TotalCount": 7})), taken(), taken()]);
    assert_eq!(cloud.clb.count_instances().await.unwrap(), 7);
    assert_eq!(cloud.clb.count_instances().await.unwrap_err().kind, FaultKind::Transient);
    assert_eq!(script.seen().len(), 4);

    script.add(taken());
    assert_eq!(cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap_err().kind, FaultKind::Ambiguous);
    assert_eq!(script.seen().len(), 5, "a write is not repeated");

    script.add(taken());
    script.add(Reply::ok(json!({"LoadBalancerId": "lb-1", "Address": "47.98.0.9"})));
    let made = cloud.clb.create_instance(&permit(), &CreateInstance::default(), None, "token").await.unwrap();
    assert_eq!(made.id.as_deref(), Some("lb-1"), "its token makes it one load balancer");
}

#[tokio::test]
async fn a_denial_names_the_permission_and_no_message_has_keys() {
    let denied = json!({"RequestId": "R", "Code": "Forbidden.RAM", "Message": "User LTAI5tSecret is not authorized",
        "AccessDeniedDetail": {"AuthAction": "slb:SetLoadBalancerName", "EncodedDiagnosticMessage": "AQEAAAAA"}});
    let (cloud, _) = cloud([Reply::Answer { status: 403, headers: Vec::new(), body: denied.to_string() }]);
    let fault = cloud.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "SetLoadBalancerName: User <redacted> is not authorized (needs the permission slb:SetLoadBalancerName) [Forbidden.RAM, request R]"
    );
}

#[tokio::test]
async fn a_page_from_a_gateway_keeps_its_status_and_beginning_and_proves_nothing() {
    let page = |status| Reply::Answer { status, headers: Vec::new(), body: "<html>Not here".into() };
    let (cloud, _) = cloud([page(404), page(502)]);
    let fault = cloud.clb.describe_instance("lb-1").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Transient, "a gateway's 404 is not an absent load balancer");
    assert!(fault.message.contains("404") && fault.message.contains("Not here"), "{fault}");
    assert_eq!(
        cloud
            .clb
            .set_instance(&permit(), "lb-1", &LiteMap::from_iter([(InstanceField::Spec, "s".to_owned())]))
            .await
            .unwrap_err()
            .kind,
        FaultKind::Ambiguous
    );
}

#[tokio::test]
async fn a_region_that_is_no_name_is_not_called() {
    let (cloud, script) = cloud([]);
    let fault = cloud.ecs.may_describe_instances("evil.example.com/").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Rejected);
    assert!(script.seen().is_empty());
}

#[tokio::test]
async fn a_new_configuration_holds_for_all_clones_from_the_next_call_on() {
    let (cloud, script) = cloud([Reply::done(), Reply::done()]);
    let clone = cloud.clone();
    let mut changed = config();
    changed.region = Some("eu-central-1".into());
    changed.cluster_id = "c2".into();
    changed.timeout = Duration::from_secs(3);
    changed.endpoints.network = crate::config::file::Network::Public;
    changed.credentials =
        crate::config::checked::Credentials::AccessKey(crate::alibaba::tests::script::access_key("other"));
    clone.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    cloud.reconfigure(&changed);
    clone.clb.set_instance(&permit(), "lb-1", &renamed()).await.unwrap();
    let seen = &script.seen()[1];
    assert_eq!(seen.url, "https://slb.eu-central-1.aliyuncs.com/");
    assert_eq!((seen.param("RegionId"), seen.param("AccessKeyId")), (Some("eu-central-1"), Some("other")));
    assert_eq!(seen.timeout, Duration::from_secs(3));
    assert!(seen.headers["user-agent"].to_str().unwrap().ends_with("ClusterId/c2"));
    assert_eq!(clone.region(), "eu-central-1");
}

#[tokio::test]
async fn calls_can_be_made_from_any_task() {
    let (cloud, _) = cloud([Reply::ok(json!({"TotalCount": 0, "LoadBalancers": ""}))]);
    let found = tokio::spawn(async move { cloud.clb.find_by_tag("k", "v").await }).await.unwrap();
    assert_eq!(found.unwrap().len(), 0);
}
