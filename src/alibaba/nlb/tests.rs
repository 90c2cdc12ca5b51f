use serde_json::json;

use super::*;
use crate::alibaba::FaultKind;
use crate::alibaba::tests::script::{Reply, cloud, permit};
use crate::plan::nlb::model::{ListenerField, ListenerFields, ListenerKey, Protocol};

#[tokio::test]
async fn a_listener_of_a_range_shows_its_ports_as_text() {
    let listener = json!({"ListenerId": "lsn-1@0", "LoadBalancerId": "nlb-1", "ListenerProtocol": "TCP", "ListenerPort": 0,
        "StartPort": "80", "EndPort": "400", "ListenerStatus": "Running", "ServerGroupId": "sgp-1"});
    let (cloud, _) = cloud([Reply::ok(json!({"Listeners": [listener], "NextToken": ""}))]);
    let found = cloud.nlb.describe_listeners(&["nlb-1"]).await.unwrap().remove("nlb-1").unwrap();
    let key = ListenerKey { first: 80, last: 400, protocol: Protocol::Tcp };
    assert_eq!(found.keys().collect::<Vec<_>>(), [&key]);
    assert!(found[&key].fields.is_empty(), "what the answer does not say is not known");
}

#[tokio::test]
async fn half_made_answers_are_errors_and_foreign_entries_are_left_out() {
    let listeners = |listeners| Reply::ok(json!({"Listeners": listeners}));
    for broken in [
        json!([{"ListenerProtocol": "TCP", "ListenerPort": 80, "ListenerId": "lsn-1"}]),
        json!([{"LoadBalancerId": "nlb-1", "ListenerProtocol": "TCP", "ListenerPort": 80}]),
        json!([{"LoadBalancerId": "nlb-1", "ListenerProtocol": "TCP", "ListenerPort": 70000, "ListenerId": "lsn-1"}]),
        json!("none"),
    ] {
        let (cloud, _) = cloud([listeners(broken.clone())]);
        let fault = cloud.nlb.describe_listeners(&["nlb-1"]).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Transient, "{broken}");
    }
    let quic = json!([{"LoadBalancerId": "nlb-1", "ListenerProtocol": "QUIC", "ListenerPort": 80, "ListenerId": "lsn-1"},
        {"LoadBalancerId": "nlb-2", "ListenerProtocol": "TCP", "ListenerPort": 80, "ListenerId": "lsn-2"}]);
    let (known, _) = cloud([listeners(quic)]);
    let found = known.nlb.describe_listeners(&["nlb-1"]).await.unwrap();
    assert!(found["nlb-1"].is_empty() && found.len() == 1, "{found:?}");

    let servers = json!([{"ServerId": "i-1", "ServerType": "Ecs", "ServerIp": "10.0.0.1", "Port": 80, "Weight": 100},
        {"ServerId": "eci-1", "ServerType": "Eci", "Status": "Adding"}]);
    let (known, _) = cloud([Reply::ok(json!({"Servers": servers}))]);
    let found = known.nlb.describe_servers("sgp-1").await.unwrap();
    assert_eq!((found.backends.len(), found.changing), (1, true));

    for broken in [json!({"LoadBalancers": [{"LoadBalancerName": "a"}]}), json!({"LoadBalancers": [7]})] {
        let (cloud, _) = cloud([Reply::ok(broken.clone())]);
        assert_eq!(cloud.nlb.find_by_name("a").await.unwrap_err().kind, FaultKind::Transient, "{broken}");
    }
}

#[tokio::test]
async fn a_creation_without_an_id_has_an_unknown_fate_and_one_without_a_job_is_done() {
    let fields = ListenerFields::from([
        (ListenerField::Ppv2VpcId, "true".into()),
        (ListenerField::Ppv2EndpointId, "false".into()),
        (ListenerField::Certificate, "cert-1".into()),
    ]);
    let wanted = NewListener {
        load_balancer_id: "nlb-1",
        listener: ListenerKey { first: 80, last: 400, protocol: Protocol::Tcp },
        description: "k8s.80_400.TCP.a.b.c",
        group_id: "sgp-1",
        fields: &fields,
    };
    let (cloud, script) = cloud([Reply::ok(json!({"JobId": "job-1"})), Reply::ok(json!({"ListenerId": "lsn-1"}))]);
    let fault = cloud.nlb.create_listener(&permit(), &wanted).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Ambiguous);
    let answer = cloud.nlb.create_listener(&permit(), &wanted).await.unwrap();
    assert_eq!((answer.id.as_deref(), answer.job.as_str()), (Some("lsn-1"), ""));
    let sent = &script.seen()[1].params;
    assert_eq!(
        (sent["ListenerPort"].as_str(), sent["StartPort"].as_str(), sent["EndPort"].as_str()),
        ("0", "80", "400")
    );
    assert_eq!(sent["CertificateIds.1"], "cert-1");
    let ppv2: serde_json::Value = serde_json::from_str(&sent["ProxyProtocolV2Config"]).unwrap();
    assert_eq!(ppv2, json!({"Ppv2PrivateLinkEpIdEnabled": false, "Ppv2VpcIdEnabled": true}));
}

#[tokio::test]
async fn jobs_are_asked_for_in_twenties_and_unknown_words_are_looked_at_again() {
    let ids: Vec<String> = (0..25).map(|number| format!("job-{number}")).collect();
    let first = json!([{"Id": "job-0", "Status": "succeeded"}, {"Id": "job-1", "Status": "Failed"},
        {"Id": "job-2", "Status": "processing"}, {"Id": "job-3", "Status": "Scheduled"}]);
    let (cloud, script) = cloud([Reply::ok(json!({"Jobs": first, "TotalCount": "4"})), Reply::ok(json!({"Jobs": []}))]);
    let found = cloud.nlb.jobs(&ids).await.unwrap();
    assert_eq!((found.len(), script.seen().len()), (4, 2));
    assert_eq!((found["job-0"], found["job-1"]), (JobState::Done, JobState::Failed));
    assert_eq!((found["job-2"], found["job-3"]), (JobState::Running, JobState::Running));
}

#[tokio::test]
async fn nothing_is_untagged_without_keys() {
    let (cloud, script) = cloud([Reply::done()]);
    cloud.nlb.untag(&permit(), "nlb-1", &[String::new()]).await.unwrap();
    assert!(script.seen().is_empty(), "a request without keys could remove all tags");
    cloud.nlb.untag(&permit(), "sgp-1", &["a".into()]).await.unwrap();
    assert_eq!(script.seen()[0].params["ResourceType"], "servergroup");
}

#[tokio::test]
async fn busy_gone_and_already_done_are_told_apart() {
    for (code, status, kind) in [
        ("Conflict.Lock", 400, FaultKind::Busy),
        ("IncorrectStatus.loadbalancer", 400, FaultKind::Busy),
        ("ResourceInConfiguring.loadbalancer", 400, FaultKind::Busy),
        ("OperationFailed.ResourceIsConfiguring", 400, FaultKind::Busy),
        ("Conflict.Port", 400, FaultKind::Exists),
        ("Conflict.SecurityGroup", 400, FaultKind::Exists),
        ("ResourceNotAssociated.loadbalancer", 400, FaultKind::Exists),
        ("OperationDenied.ZoneMappingsNotChanged", 400, FaultKind::Exists),
        ("OperationDenied.DeletionProtectionEnabled", 400, FaultKind::Rejected),
        ("ResourceNotFound.loadbalancer", 404, FaultKind::Gone),
        ("ResourceNotFound.SecurityGroup", 404, FaultKind::Rejected),
        ("QuotaExceeded.QuotaInsufficient", 400, FaultKind::Quota),
        ("ResourceNotEnough.VSwitchIp", 400, FaultKind::Capacity),
        ("ResourceInUse.IP", 400, FaultKind::Rejected),
        ("OperationDenied.ServiceLinkedRoleNotExist", 403, FaultKind::Denied),
        ("IdempotenceSignatureMismatch", 400, FaultKind::Exists),
        ("SystemBusy", 400, FaultKind::Ambiguous),
    ] {
        let (cloud, _) = cloud([Reply::error(status, code, "text")]);
        let fault = cloud.nlb.delete_instance(&permit(), "nlb-1").await.unwrap_err();
        assert_eq!((fault.kind, fault.code.as_str()), (kind, code));
    }
}
