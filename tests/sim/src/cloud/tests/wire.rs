//! Signatures, keys, the metadata service, and what a socket shows of faults.

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A describing call with some parameters replaced or (empty) taken away, signed after that.
async fn tampered(client: &Client, changes: &[(&str, &str)]) -> Answer {
    let mut all = client.parameters(SLB, "DescribeLoadBalancers", &[]);
    for (name, value) in changes {
        if value.is_empty() {
            all.remove(*name)
        } else {
            all.insert((*name).into(), (*value).into())
        };
    }
    let signature = sign(&Method::POST, &all, &client.secret);
    all.entry("Signature".into()).or_insert(signature);
    send(&client.cloud, post(&all)).await
}

#[tokio::test]
async fn each_defect_of_a_signature_has_its_code() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    cloud.edit(|account| {
        account.keys.insert("off".into(), AccessKey { active: false, ..AccessKey::permanent(KEY_SECRET) });
    });
    for (changes, code) in [
        (&[("Signature", "bm9uc2Vuc2U=")][..], "SignatureDoesNotMatch"),
        (&[("AccessKeyId", "unknown")], "InvalidAccessKeyId.NotFound"),
        (&[("AccessKeyId", "off")], "InvalidAccessKeyId.Inactive"),
        (&[("AccessKeyId", "")], "MissingParameter"),
        (&[("SignatureNonce", "")], "MissingParameter"),
        (&[("SignatureVersion", "2.0")], "IncompleteSignature"),
        (&[("Timestamp", "2020-01-01T00:00:00Z")], "InvalidTimeStamp.Expired"),
        (&[("Timestamp", "2020-01-01T00:00:00.5Z")], "InvalidTimeStamp.Format"),
        (&[("SecurityToken", "surplus")], "InvalidSecurityToken.MismatchWithAccessKey"),
        (&[("Action", "DescribeLoadBalancer")], "InvalidAction.NotFound"),
        (&[("Version", "2014-05-26")], "InvalidAction.NotFound"),
        (&[("RegionId", "mars-1")], "InvalidRegionId.NotFound"),
    ] {
        assert_eq!(tampered(&client, changes).await, Err(code.into()), "{changes:?}");
    }
    assert_eq!(tampered(&client, &[("SignatureNonce", "once")]).await.map(|_| ()), Ok(()));
    assert_eq!(tampered(&client, &[("SignatureNonce", "once")]).await, Err("SignatureNonceUsed".into()));
}

#[tokio::test]
async fn a_host_of_the_vendor_serves_one_product_and_any_other_host_all() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    for (host, expected) in [
        ("slb.aliyuncs.com", Ok(())),
        ("slb-vpc.cn-hangzhou.aliyuncs.com", Ok(())),
        ("127.0.0.1:8080", Ok(())),
        ("ecs.cn-hangzhou.aliyuncs.com", Err("InvalidAction.NotFound".to_owned())),
    ] {
        let mut request = client.request(SLB, "DescribeLoadBalancers", &[]);
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(send(&cloud, request).await.map(|_| ()), expected, "{host}");
    }
}

#[tokio::test]
async fn errors_carry_what_support_asks_for() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let request = client.request(SLB, "DescribeLoadBalancerAttribute", &[("LoadBalancerId", "lb-none")]);
    let response = cloud.handle(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(response.headers().contains_key("date"));
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["Code"], "InvalidLoadBalancerId.NotFound");
    assert_eq!(body["Message"], "The specified LoadBalancerId does not exist.");
    assert_eq!(body["HostId"], "slb.aliyuncs.com");
    assert_eq!(response.headers()["x-acs-request-id"], body["RequestId"].as_str().unwrap());
}

#[tokio::test]
async fn parameters_that_the_real_cloud_would_ignore_are_complaints() {
    let (cloud, client, lb, group) = cloud_with_group().await;
    let given = [
        ("LoadBalancerId", lb.as_str()),
        ("ListenerPort", "80"),
        ("Bandwidth", "-1"),
        ("VServerGroupId", &group),
        ("HealthCheckInterval", "7"),
    ];
    client.slb("CreateLoadBalancerTCPListener", &given).await.unwrap();
    assert_eq!(cloud.complaints(), ["CreateLoadBalancerTCPListener: the action has no parameter HealthCheckInterval"]);
    assert_eq!(cloud.load_balancer(&lb)["listeners"]["80/tcp"]["config"]["HealthCheckInterval"], 2);
}

#[tokio::test]
async fn keys_of_a_session_need_their_token_and_expire() {
    let cloud = Cloud::new(account());
    let role =
        [("RoleArn", "acs:ram::1234567890123456:role/ccm"), ("RoleSessionName", "test"), ("DurationSeconds", "900")];
    let keys = Client::new(&cloud).call(STS, "AssumeRole", &role).await.unwrap();
    let mut session = Client::session(&cloud, &keys["Credentials"]);
    session.slb("DescribeLoadBalancers", &[]).await.unwrap();
    cloud.advance(SignedDuration::from_secs(901));
    let answer = session.slb("DescribeLoadBalancers", &[]).await;
    assert_eq!(answer, Err("InvalidSecurityToken.Expired".into()));
    session.token = None;
    assert_eq!(session.slb("DescribeLoadBalancers", &[]).await, Err("MissingSecurityToken".into()));

    let strange = [("RoleArn", "acs:ram::1234567890123456:role/none"), ("RoleSessionName", "test")];
    let answer = Client::new(&cloud).call(STS, "AssumeRole", &strange).await;
    assert_eq!(answer, Err("EntityNotExist.Role".into()));
}

async fn metadata(cloud: &Cloud, method: Method, path: &str, header: Option<(&str, &str)>) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(format!("http://100.100.100.200/latest/{path}"));
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = cloud.handle(request.body(Bytes::new()).unwrap()).await.unwrap();
    (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
}

#[tokio::test]
async fn metadata_tokens_are_required_when_the_instance_says_so_and_expire() {
    const TTL: &str = "X-aliyun-ecs-metadata-token-ttl-seconds";
    const TOKEN: &str = "X-aliyun-ecs-metadata-token";
    let cloud = Cloud::new(account());
    cloud.edit(|account| account.metadata.instance = Some("i-2".into()));
    assert_eq!(metadata(&cloud, Method::GET, "meta-data/zone-id", None).await, (200, "cn-hangzhou-j".into()));
    cloud.edit(|account| account.metadata.token_required = true);
    assert_eq!(metadata(&cloud, Method::GET, "meta-data/zone-id", None).await.0, 403);
    assert_eq!(metadata(&cloud, Method::PUT, "api/token", None).await.0, 400);
    assert_eq!(metadata(&cloud, Method::PUT, "api/token", Some((TTL, "21601"))).await.0, 400);
    let (_, token) = metadata(&cloud, Method::PUT, "api/token", Some((TTL, "60"))).await;
    let with_token = Some((TOKEN, token.as_str()));
    for (key, value) in
        [("vpc-id", "vpc-1"), ("vswitch-id", "vsw-j"), ("region-id", "cn-hangzhou"), ("instance-id", "i-2")]
    {
        assert_eq!(metadata(&cloud, Method::GET, &format!("meta-data/{key}"), with_token).await, (200, value.into()));
    }
    assert_eq!(metadata(&cloud, Method::GET, "meta-data/eipv4", with_token).await.0, 404);
    cloud.advance(SignedDuration::from_secs(61));
    assert_eq!(metadata(&cloud, Method::GET, "meta-data/vpc-id", with_token).await.0, 403);
}

#[tokio::test]
async fn the_role_of_an_instance_gives_keys_that_work_and_are_replaced_before_they_expire() {
    let cloud = Cloud::new(account());
    let path = "meta-data/ram/security-credentials/";
    cloud.edit(|account| account.metadata.instance = Some("i-1".into()));
    assert_eq!(metadata(&cloud, Method::GET, path, None).await.0, 404);
    cloud.edit(|account| account.metadata.role = Some("ccm".into()));
    assert_eq!(metadata(&cloud, Method::GET, path, None).await, (200, "ccm".into()));
    let keys = async || {
        let (_, body) = metadata(&cloud, Method::GET, &format!("{path}ccm"), None).await;
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let first = keys().await;
    assert_eq!(first["Code"], "Success");
    Client::session(&cloud, &first).slb("DescribeLoadBalancers", &[]).await.unwrap();
    cloud.advance(SignedDuration::from_hours(4));
    assert_eq!(keys().await["AccessKeyId"], first["AccessKeyId"]);
    cloud.advance(SignedDuration::from_mins(61));
    assert_ne!(keys().await["AccessKeyId"], first["AccessKeyId"], "less than a quarter of the lifetime is left");
    Client::session(&cloud, &first).slb("DescribeLoadBalancers", &[]).await.unwrap();
}

/// Sends a request over the wire and returns everything that comes back.
async fn over_the_wire(server: &Server, request: Request<Bytes>) -> String {
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let body = String::from_utf8(request.into_body().to_vec()).unwrap();
    let length = body.len();
    let text = format!(
        "POST / HTTP/1.1\r\nHost: slb.cn-hangzhou.aliyuncs.com\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_socket_shows_answers_and_how_they_are_lost() {
    let cloud = Cloud::new(account());
    let client = Client::new(&cloud);
    let server = cloud.serve_on_loopback().await.unwrap();
    let create = || client.request(SLB, "CreateLoadBalancer", &[("InstanceChargeType", "PayByCLCU")]);

    let answer = over_the_wire(&server, create()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("LoadBalancerId"), "{answer}");

    cloud.faults().script("CreateLoadBalancer", Fault::Drop);
    assert_eq!(over_the_wire(&server, create()).await, "");
    assert_eq!(cloud.look(|account| account.load_balancers.len()), 1, "a dropped call has no effect");

    cloud.faults().script("CreateLoadBalancer", Fault::AnswerLost);
    assert_eq!(over_the_wire(&server, create()).await, "");
    assert_eq!(cloud.look(|account| account.load_balancers.len()), 2, "a lost answer does not undo the effect");

    cloud.faults().script("CreateLoadBalancer", Fault::Truncated);
    let answer = over_the_wire(&server, create()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let promised: usize = head.lines().find_map(|it| it.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    assert!(body.len() < promised, "{} of {promised} bytes came", body.len());
}
