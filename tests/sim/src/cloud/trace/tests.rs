use std::path::Path;

use super::*;

/// Every trace in `tests/sim/traces`.
fn traces() -> Vec<(String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "json") {
            let trace = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            found.push((path.file_name().unwrap().to_string_lossy().into_owned(), trace));
        }
    }
    assert!(found.len() >= 5, "{}", found.len());
    found
}

fn differing(trace: &Trace) -> Vec<Finding> {
    let findings = trace.replay(&Cloud::new(trace.account()));
    findings.into_iter().filter(|it| it.verdict == Verdict::Differs).collect()
}

#[test]
fn the_simulator_answers_as_the_traces_say() {
    for (name, trace) in traces() {
        assert_eq!(differing(&trace), [], "{name}");
    }
}

#[test]
fn a_trace_that_says_something_else_is_found() {
    let (_, clb) = traces().into_iter().find(|(name, _)| name.ends_with("clb.json")).unwrap();
    let doctored = |action: &str, doctor: fn(&mut Exchange)| {
        let mut trace = clb.clone();
        doctor(trace.exchanges.iter_mut().rfind(|it| it.action == action).unwrap());
        differing(&trace).into_iter().map(|it| (it.action, it.details.concat())).collect::<Vec<_>>()
    };
    let code = doctored("DescribeLoadBalancerAttribute", |it| it.answer["Code"] = "Gone.Otherwise".into());
    assert_eq!(code.len(), 1, "{code:?}");
    assert!(code[0].1.contains("the cloud 404 Gone.Otherwise, the simulator 404 "), "{code:?}");
    let state = doctored("DescribeVServerGroupAttribute", |it| {
        it.answer["BackendServers"]["BackendServer"][0]["Weight"] = 7.into();
    });
    assert_eq!(state.len(), 1, "{state:?}");
    assert!(state[0].1.contains("/Weight: the cloud \"7\", the simulator \"5\""), "{state:?}");
    let absent = doctored("DescribeVServerGroupAttribute", |it| {
        it.answer["BackendServers"]["BackendServer"] = json!([]);
    });
    assert!(absent[0].1.contains("the cloud has 0, the simulator 1"), "{absent:?}");
}

#[test]
fn what_the_cloud_still_carries_out_comes_later_and_is_no_difference() {
    let (_, mut nlb) = traces().into_iter().find(|(name, _)| name.ends_with("nlb.json")).unwrap();
    let mut verdict = |state: &str| {
        let list = nlb.exchanges.iter_mut().find(|it| it.step == "find it by its tag").unwrap();
        list.answer["LoadBalancers"][0]["LoadBalancerStatus"] = state.into();
        let findings = nlb.replay(&Cloud::new(nlb.account()));
        let list = findings.into_iter().find(|it| it.product == "nlb" && it.step == "find it by its tag").unwrap();
        (list.verdict, list.details.concat())
    };
    let (later, details) = verdict("Provisioning");
    assert!(later == Verdict::Later && details.contains("the cloud \"Provisioning\""), "{later:?} {details}");
    assert_eq!(verdict("CreateFailed").0, Verdict::Differs);
}

#[test]
fn the_same_token_for_two_things_in_the_cloud_is_no_agreement() {
    let (_, mut clb) = traces().into_iter().find(|(name, _)| name.ends_with("clb.json")).unwrap();
    let again = clb.exchanges.iter_mut().find(|it| it.step == "make it again with the same client token").unwrap();
    again.answer["LoadBalancerId"] = "loadbalancerid#999#".into();
    assert_eq!(differing(&clb)[0].step, "make it again with the same client token");
}

#[test]
fn nothing_of_the_account_is_written_down() {
    let place = Place {
        region: "cn-hangzhou".into(),
        vpc: "vpc-bp1secret".into(),
        vswitches: vec![("cn-hangzhou-i".into(), "vsw-bp1secret".into())],
        instance: "i-bp1secret".into(),
        private_zone: None,
    };
    let request = |action: &str, more: &str| {
        let body = format!(
            "Action={action}&Version=2014-05-15&AccessKeyId=LTAIsecret&Signature=secret&RegionId=cn-hangzhou&{more}"
        );
        let request = Request::post("/").header("content-type", "application/x-www-form-urlencoded");
        request.body(Bytes::from(body)).unwrap()
    };
    let mut recording = Recording::new(&place);
    let create =
        request("CreateLoadBalancer", "LoadBalancerName=conformance&VpcId=vpc-bp1secret&ClientToken=conformance-1");
    let answer = json!({"LoadBalancerId": "lb-secret1", "Address": "10.9.8.7", "VpcId": "vpc-bp1secret",
        "RequestId": "secret-request"});
    recording.add(Exchange::read(&create, 200, answer.to_string().as_bytes()).unwrap());
    let list = request("DescribeLoadBalancers", "PageSize=100");
    let answer = json!({"TotalCount": 2, "LoadBalancers": {"LoadBalancer": [
        {"LoadBalancerId": "lb-secret1", "LoadBalancerName": "conformance", "Address": "10.9.8.7", "VpcId": "vpc-bp1secret"},
        {"LoadBalancerId": "lb-secret2", "LoadBalancerName": "another user's secret", "VpcId": "vpc-bp1secret"}]}});
    recording.add(Exchange::read(&list, 200, answer.to_string().as_bytes()).unwrap());
    let refused = json!({"Code": "Refused", "Message": "about lb-secret1, see secret", "HostId": "secret"});
    recording.add(Exchange::read(&list, 403, refused.to_string().as_bytes()).unwrap());
    let trace = recording.finish();
    let text = serde_json::to_string(&trace).unwrap();
    assert!(!text.contains("secret") && !text.contains("10.9.8.7"), "{text}");
    let listed = &trace.exchanges[1].answer["LoadBalancers"]["LoadBalancer"];
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["LoadBalancerId"], trace.exchanges[0].answer["LoadBalancerId"]);
    assert_eq!(trace.exchanges[2].code(), Some("Refused"));
}
