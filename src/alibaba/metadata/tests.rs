use super::*;
use crate::alibaba::location::{more_is_known, resolve};
use crate::alibaba::tests::script::{Reply, Script, config};
use crate::alibaba::transport::TransportError;
use crate::plan::location::CloudLocation;

fn metadata(script: &Arc<Script>, fallback: bool) -> Metadata {
    let mut endpoints = config().endpoints;
    endpoints.metadata_v1_fallback = fallback;
    Metadata::new(script.clone(), &endpoints)
}

fn refused() -> Reply {
    Reply::Fails(TransportError::NotSent("refused".into()))
}

#[tokio::test(start_paused = true)]
async fn one_session_token_serves_all_reads_until_it_ends() {
    let script = Script::new(["t1", "cn-hangzhou\n", "vpc-1", "t2", "z"].map(Reply::text));
    let metadata = metadata(&script, false);
    assert_eq!(metadata.get("region-id").await.unwrap(), "cn-hangzhou");
    assert_eq!(metadata.clone().get("vpc-id").await.unwrap(), "vpc-1");
    tokio::time::advance(TOKEN_LIFETIME).await;
    assert_eq!(metadata.get("zone-id").await.unwrap(), "z");
    let seen = script.seen();
    let sent: Vec<_> = seen.iter().map(|seen| format!("{} {}", seen.method, seen.url)).collect();
    assert_eq!(
        sent,
        [
            "PUT http://100.100.100.200/latest/api/token",
            "GET http://100.100.100.200/latest/meta-data/region-id",
            "GET http://100.100.100.200/latest/meta-data/vpc-id",
            "PUT http://100.100.100.200/latest/api/token",
            "GET http://100.100.100.200/latest/meta-data/zone-id",
        ]
    );
    assert_eq!(seen[0].headers[LIFETIME_HEADER], "21600");
    assert_eq!(
        (&seen[2].headers[TOKEN_HEADER], &seen[4].headers[TOKEN_HEADER]),
        (&"t1".parse().unwrap(), &"t2".parse().unwrap())
    );
    assert!(seen.iter().all(|seen| seen.direct), "never through a proxy");
    assert!(!format!("{metadata:?}").contains("t2"), "{metadata:?}");
}

#[tokio::test]
async fn a_withdrawn_session_token_is_replaced() {
    let script = Script::new([Reply::text("t1"), Reply::status(403), Reply::text("t2"), Reply::text("i-1")]);
    assert_eq!(metadata(&script, false).get("instance-id").await.unwrap(), "i-1");
    assert_eq!(script.seen()[3].headers[TOKEN_HEADER], "t2");
}

#[tokio::test]
async fn without_a_session_token_only_the_fallback_reads() {
    let script = Script::new([Reply::status(404)]);
    let error = metadata(&script, false).get("region-id").await.unwrap_err();
    assert_eq!(error.to_string(), "the metadata service answered /latest/api/token with HTTP status 404");
    let script = Script::new([Reply::status(404), Reply::text("cn-hangzhou")]);
    assert_eq!(metadata(&script, true).get("region-id").await.unwrap(), "cn-hangzhou");
    assert!(!script.seen()[1].headers.contains_key(TOKEN_HEADER));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_after_two_seconds() {
    let script = Script::new([Reply::Never]);
    let started = Instant::now();
    let error = metadata(&script, true).get("region-id").await.unwrap_err();
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(2));
}

#[tokio::test]
async fn each_value_that_is_not_configured_comes_from_the_instance() {
    let script = Script::new(["t", "i-1", "vpc-1", "z"].map(Reply::text));
    script.add(Reply::status(404));
    let place = resolve(&config(), &metadata(&script, false)).await.unwrap();
    let expected = CloudLocation {
        region: "cn-hangzhou".into(),
        vpc_id: "vpc-1".into(),
        zone_id: "z".into(),
        vswitch_id: String::new(),
        instance_id: Some("i-1".into()),
    };
    assert_eq!(place, expected);
    assert!(script.seen().iter().all(|seen| !seen.url.ends_with("region-id")), "the configured region wins");
}

#[tokio::test]
async fn outside_of_the_cloud_the_configuration_must_say_where_the_cluster_is() {
    let script = Script::new([refused()]);
    let error = resolve(&config(), &metadata(&script, false)).await.unwrap_err();
    assert_eq!(error.key, "cloud.vpc_id");
    assert_eq!(
        error.to_string(),
        "the VPC of the cluster is unknown: the metadata service at http://100.100.100.200 does not answer: \
         no connection: refused; set `cloud.vpc_id`, or run on an instance of the cluster's VPC"
    );
    let mut config = config();
    config.vpc_id = Some("vpc-9".into());
    let script = Script::new([refused()]);
    let metadata = metadata(&script, false);
    let place = tokio::spawn(async move { resolve(&config, &metadata).await }).await.unwrap().unwrap();
    assert_eq!((place.vpc_id.as_str(), place.vswitch_id.as_str(), place.instance_id), ("vpc-9", "", None));
    assert_eq!(script.seen().len(), 1, "where nobody answers, only one question is asked");
}

#[tokio::test(start_paused = true)]
async fn what_a_metadata_service_that_was_not_ready_left_out_is_asked_for_later() {
    let mut config = config();
    config.vpc_id = Some("vpc-9".into());
    for (not_ready, answers) in [(refused as fn() -> Reply, 1), (|| Reply::status(503), 3)] {
        let script = Script::new([Reply::text("t")]);
        (0..answers).for_each(|_| script.add(not_ready()));
        let metadata = metadata(&script, false);
        let place = resolve(&config, &metadata).await.unwrap();
        assert_eq!((place.vswitch_id.as_str(), &place.instance_id), ("", &None));
        let asked = script.seen().len();
        script.add(refused());
        let mut later = std::pin::pin!(more_is_known(&config, &metadata, &place));
        let a_while = tokio::time::timeout(Duration::from_secs(90), &mut later).await;
        assert!(a_while.is_err() && script.seen().len() > asked, "it is asked, and says no more");
        ["i-1", "cn-hangzhou-b", "vsw-1"].iter().for_each(|text| script.add(Reply::text(text)));
        tokio::time::timeout(Duration::from_secs(90), later).await.unwrap();
    }
}
