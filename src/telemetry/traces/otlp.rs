//! Spans in the JSON encoding of OTLP: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Attributes, EndedSpan};

/// Names the program in the traces of all clusters.
pub const SERVICE_NAME: &str = "alicloud-ccm";

/// Kinds of spans.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
/// The status of a span that failed; one that did not has none.
const ERROR: u8 = 2;

/// The body of a request with these spans. `now` is the same moment on both clocks.
pub fn request(resource: &Attributes, spans: &[EndedSpan], now: (Instant, Timestamp)) -> Vec<u8> {
    let spans: Vec<_> = spans.iter().map(|span| of_span(span, now)).collect();
    let scope = json!({ "name": SERVICE_NAME, "version": env!("CARGO_PKG_VERSION") });
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": of_attributes(resource) },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] });
    body.to_string().into_bytes()
}

/// How many spans of a request the collector refused although it took the request.
pub fn refused(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedSpans"];
    // Numbers of 64 bits are text in this encoding.
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

fn of_span(span: &EndedSpan, now: (Instant, Timestamp)) -> Value {
    let (start, end) = span.lasted;
    let mut encoded = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": if span.is_call { CLIENT } else { INTERNAL },
        "startTimeUnixNano": nanoseconds(start, now),
        "endTimeUnixNano": nanoseconds(end, now),
        "attributes": of_attributes(&span.attributes),
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(failure) = &span.failure {
        encoded["status"] = json!({ "code": ERROR, "message": failure });
    }
    encoded
}

/// Since 1970.
fn nanoseconds(at: Instant, (now, time): (Instant, Timestamp)) -> String {
    let ago = SignedDuration::try_from(now.saturating_duration_since(at)).unwrap_or_default();
    let later = SignedDuration::try_from(at.saturating_duration_since(now)).unwrap_or_default();
    (time.as_duration() - ago + later).as_nanos().to_string()
}

fn of_attributes(attributes: &Attributes) -> Vec<Value> {
    let encoded = |(name, value): &(&str, Value)| {
        let value = match value {
            Value::Bool(_) => json!({ "boolValue": value }),
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::String(_) => json!({ "stringValue": value }),
            other => json!({ "stringValue": other.to_string() }),
        };
        json!({ "key": name, "value": value })
    };
    attributes.iter().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_has_the_form_of_the_standard() {
        let start = Instant::now();
        tokio::time::advance(Duration::from_millis(1500)).await;
        let end = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let span = EndedSpan {
            trace: 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c,
            id: 0xeee1_9b7e_c3c1_b174,
            parent: Some(7),
            name: "DoIt".to_owned(),
            is_call: true,
            failure: Some("throttled [Throttling.User]".to_owned()),
            lasted: (start, end),
            attributes: vec![("text", "a".into()), ("number", 200.into()), ("flag", true.into())],
        };
        let resource = vec![("service.name", SERVICE_NAME.into())];
        let now = (Instant::now(), "2026-01-01T00:00:02.5Z".parse().unwrap());
        let body: Value = serde_json::from_slice(&request(&resource, std::slice::from_ref(&span), now)).unwrap();
        assert_eq!(
            body,
            json!({ "resourceSpans": [{
                "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": "alicloud-ccm" } }] },
                "scopeSpans": [{
                    "scope": { "name": "alicloud-ccm", "version": env!("CARGO_PKG_VERSION") },
                    "spans": [{
                        "traceId": "5b8efff798038103d269b633813fc60c",
                        "spanId": "eee19b7ec3c1b174",
                        "parentSpanId": "0000000000000007",
                        "name": "DoIt",
                        "kind": 3,
                        "startTimeUnixNano": "1767225600000000000",
                        "endTimeUnixNano": "1767225601500000000",
                        "attributes": [
                            { "key": "text", "value": { "stringValue": "a" } },
                            { "key": "number", "value": { "intValue": "200" } },
                            { "key": "flag", "value": { "boolValue": true } },
                        ],
                        "status": { "code": 2, "message": "throttled [Throttling.User]" },
                    }],
                }],
            }] })
        );
        let root = EndedSpan { parent: None, failure: None, is_call: false, ..span };
        let root = of_span(&root, now);
        assert_eq!((&root["parentSpanId"], &root["status"], &root["kind"]), (&Value::Null, &Value::Null, &json!(1)));
    }

    #[test]
    fn a_collector_may_refuse_a_part() {
        assert_eq!(refused(br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#), 3);
        assert_eq!(refused(br#"{"partialSuccess":{"rejectedSpans":3}}"#), 3);
        assert_eq!(
            (refused(b"{}"), refused(b"{\"partialSuccess\":{}}"), refused(b"<html>"), refused(b"")),
            (0, 0, 0, 0)
        );
    }
}
