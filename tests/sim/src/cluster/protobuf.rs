//! Protobuf bodies, which newer kubectl sends for `kubectl create namespace` and its like, and recorders of client-go for events.
//! Answers are always JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Begins every protobuf body; a `runtime.Unknown` follows.
const MAGIC: &[u8] = b"k8s\0";

/// A field that is kept: its number, its name in JSON, and what it holds. Other fields are skipped.
type Field = (u64, &'static str, Kind);

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Number,
    Flag,
    TextMap,
    /// Values are bytes, in JSON as base64.
    BytesMap,
    /// A number or a text: `IntOrString`.
    Either,
    /// `Time` or `MicroTime`.
    Time,
    Message(&'static [Field]),
    Messages(&'static [Field]),
}

const META: Field = (
    1,
    "metadata",
    Kind::Message(&[
        (1, "name", Kind::Text),
        (2, "generateName", Kind::Text),
        (3, "namespace", Kind::Text),
        (5, "uid", Kind::Text),
        (6, "resourceVersion", Kind::Text),
        (11, "labels", Kind::TextMap),
        (12, "annotations", Kind::TextMap),
        (14, "finalizers", Kind::Texts),
    ]),
);

const PORT: &[Field] = &[
    (1, "name", Kind::Text),
    (2, "protocol", Kind::Text),
    (3, "port", Kind::Number),
    (4, "targetPort", Kind::Either),
    (5, "nodePort", Kind::Number),
    (6, "appProtocol", Kind::Text),
];

const SERVICE: &[Field] = &[
    (1, "ports", Kind::Messages(PORT)),
    (2, "selector", Kind::TextMap),
    (3, "clusterIP", Kind::Text),
    (4, "type", Kind::Text),
    (5, "externalIPs", Kind::Texts),
    (7, "sessionAffinity", Kind::Text),
    (8, "loadBalancerIP", Kind::Text),
    (9, "loadBalancerSourceRanges", Kind::Texts),
    (10, "externalName", Kind::Text),
    (11, "externalTrafficPolicy", Kind::Text),
    (12, "healthCheckNodePort", Kind::Number),
    (13, "publishNotReadyAddresses", Kind::Flag),
    (17, "ipFamilyPolicy", Kind::Text),
    (18, "clusterIPs", Kind::Texts),
    (19, "ipFamilies", Kind::Texts),
    (20, "allocateLoadBalancerNodePorts", Kind::Flag),
    (21, "loadBalancerClass", Kind::Text),
    (22, "internalTrafficPolicy", Kind::Text),
];

const REFERENCE: &[Field] = &[
    (1, "kind", Kind::Text),
    (2, "namespace", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "fieldPath", Kind::Text),
];

const EVENT: &[Field] = &[
    META,
    (2, "involvedObject", Kind::Message(REFERENCE)),
    (3, "reason", Kind::Text),
    (4, "message", Kind::Text),
    (5, "source", Kind::Message(&[(1, "component", Kind::Text), (2, "host", Kind::Text)])),
    (6, "firstTimestamp", Kind::Time),
    (7, "lastTimestamp", Kind::Time),
    (8, "count", Kind::Number),
    (9, "type", Kind::Text),
    (10, "eventTime", Kind::Time),
    (12, "action", Kind::Text),
    (13, "related", Kind::Message(REFERENCE)),
    (14, "reportingComponent", Kind::Text),
    (15, "reportingInstance", Kind::Text),
];

/// The kinds that can be sent as protobuf.
const OBJECTS: &[(&str, &[Field])] = &[
    ("ConfigMap", &[META, (2, "data", Kind::TextMap), (3, "binaryData", Kind::BytesMap), (4, "immutable", Kind::Flag)]),
    ("Event", EVENT),
    ("Namespace", &[META]),
    (
        "Secret",
        &[
            META,
            (2, "data", Kind::BytesMap),
            (3, "type", Kind::Text),
            (4, "stringData", Kind::TextMap),
            (5, "immutable", Kind::Flag),
        ],
    ),
    ("Service", &[META, (2, "spec", Kind::Message(SERVICE))]),
    ("ServiceAccount", &[META]),
];

/// The object in a body; nothing if it is damaged or of a kind without a table here.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    const TYPE: &[Field] = &[(1, "apiVersion", Kind::Text), (2, "kind", Kind::Text)];
    let envelope = body.strip_prefix(MAGIC)?;
    let mut object = Value::Null;
    let mut raw: &[u8] = &[];
    for part in parts(envelope)? {
        match part {
            (1, Part::Bytes(bytes)) => object = message(TYPE, bytes)?,
            (2, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (_, fields) = OBJECTS.iter().find(|(kind, _)| object["kind"] == **kind)?;
    let Value::Object(content) = message(fields, raw)? else { return None };
    object.as_object_mut()?.extend(content);
    Some(object)
}

enum Part<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers.
fn parts(mut rest: &[u8]) -> Option<Vec<(u64, Part<'_>)>> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let key = number(&mut rest)?;
        let part = match key & 7 {
            0 => Part::Number(number(&mut rest)?),
            2 => {
                let length = usize::try_from(number(&mut rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                rest = after;
                Part::Bytes(bytes)
            }
            _ => return None,
        };
        parts.push((key >> 3, part));
    }
    Some(parts)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn text(bytes: &[u8]) -> Option<Value> {
    Some(std::str::from_utf8(bytes).ok()?.into())
}

fn message(fields: &[Field], bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    for (number, part) in parts(bytes)? {
        let Some((_, name, kind)) = fields.iter().find(|(known, ..)| *known == number) else { continue };
        match (kind, part) {
            // The sender writes out what was left empty.
            (Kind::Text, Part::Bytes([])) | (Kind::Number, Part::Number(0)) => {}
            (Kind::Text, Part::Bytes(bytes)) => {
                object.insert((*name).to_owned(), text(bytes)?);
            }
            (Kind::Number, Part::Number(value)) => {
                object.insert((*name).to_owned(), value.into());
            }
            (Kind::Flag, Part::Number(value)) => {
                object.insert((*name).to_owned(), (value != 0).into());
            }
            (Kind::Message(inner), Part::Bytes(bytes)) => {
                object.insert((*name).to_owned(), message(inner, bytes)?);
            }
            // A time that is not set is an empty message.
            (Kind::Time, Part::Bytes([])) => {}
            (Kind::Time, Part::Bytes(bytes)) => {
                let parts = message(&[(1, "seconds", Kind::Number), (2, "nanos", Kind::Number)], bytes)?;
                let seconds = parts.get("seconds").and_then(Value::as_i64).unwrap_or_default();
                let nanos = parts.get("nanos").and_then(Value::as_i64).unwrap_or_default();
                let time = jiff::Timestamp::new(seconds, nanos.try_into().ok()?).ok()?;
                object.insert((*name).to_owned(), time.to_string().into());
            }
            (Kind::Either, Part::Bytes(bytes)) => {
                let either =
                    message(&[(1, "is_text", Kind::Flag), (2, "n", Kind::Number), (3, "t", Kind::Text)], bytes)?;
                let chosen = if either["is_text"] == true { "t" } else { "n" };
                object.insert((*name).to_owned(), either[chosen].clone());
            }
            (Kind::Texts, Part::Bytes(bytes)) => list(&mut object, name)?.push(text(bytes)?),
            (Kind::Messages(inner), Part::Bytes(bytes)) => list(&mut object, name)?.push(message(inner, bytes)?),
            (Kind::TextMap | Kind::BytesMap, Part::Bytes(bytes)) => {
                let (key, value) = entry(bytes)?;
                let value = if matches!(kind, Kind::BytesMap) { STANDARD.encode(value).into() } else { text(value)? };
                object.entry(*name).or_insert(json!({})).as_object_mut()?.insert(key, value);
            }
            _ => return None,
        }
    }
    Some(Value::Object(object))
}

fn list<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Vec<Value>> {
    object.entry(name).or_insert(json!([])).as_array_mut()
}

/// Key and value of a map's entry.
fn entry(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    for part in parts(bytes)? {
        match part {
            (1, Part::Bytes(bytes)) => key = bytes,
            (2, Part::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((String::from_utf8(key.to_vec()).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let kind = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [MAGIC, &bytes(1, &kind), &bytes(3, b""), &bytes(2, raw)].concat()
    }

    #[test]
    fn a_service() {
        let target = [&[0x08, 1][..], &[0x10, 0], &bytes(3, b"http")].concat();
        let port = [&bytes(1, b"")[..], &bytes(2, b"TCP"), &[0x18, 0x90, 0x03], &bytes(4, &target)].concat();
        let selector = [bytes(1, b"app"), bytes(2, b"web")].concat();
        let spec = [bytes(1, &port), bytes(2, &selector), bytes(3, b""), bytes(4, b"LoadBalancer")].concat();
        let raw = [bytes(1, &bytes(1, b"web")), bytes(2, &spec), bytes(3, b"")].concat();
        assert_eq!(
            decode(&body("Service", &raw)),
            Some(json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": { "name": "web" },
                "spec": {
                    "type": "LoadBalancer",
                    "selector": { "app": "web" },
                    "ports": [{ "protocol": "TCP", "port": 400, "targetPort": "http" }],
                },
            }))
        );
    }

    #[test]
    fn an_event_of_client_go() {
        let about = [bytes(1, b"Service"), bytes(2, b"shop"), bytes(3, b"web"), bytes(6, b"")].concat();
        let metadata = [bytes(1, b"web.1"), bytes(3, b"shop")].concat();
        let first = [0x08, 0x80, 0x84, 0x8e, 0xd8, 0x06];
        let raw = [
            bytes(1, &metadata),
            bytes(2, &about),
            bytes(3, b"SyncLoadBalancerFailed"),
            bytes(5, &bytes(1, b"service-controller")),
            bytes(6, &first),
            vec![0x40, 1],
            bytes(9, b"Warning"),
            bytes(10, b""),
        ];
        assert_eq!(
            decode(&body("Event", &raw.concat())),
            Some(json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": { "name": "web.1", "namespace": "shop" },
                "involvedObject": { "kind": "Service", "namespace": "shop", "name": "web" },
                "reason": "SyncLoadBalancerFailed",
                "source": { "component": "service-controller" },
                "firstTimestamp": "2026-11-23T00:00:00Z",
                "count": 1,
                "type": "Warning",
            }))
        );
    }

    #[test]
    fn secrets_hold_bytes() {
        let data = [bytes(1, b"k"), bytes(2, &[0xff])].concat();
        assert_eq!(decode(&body("Secret", &bytes(2, &data))).unwrap()["data"], json!({ "k": "/w==" }));
    }

    #[test]
    fn what_cannot_be_read() {
        assert_eq!(decode(b"{}"), None);
        assert_eq!(decode(&body("Node", b"")), None);
        let whole = body("Namespace", &bytes(1, &bytes(1, b"a")));
        for length in 0..whole.len() {
            // Cut between two fields it is a shorter message, but never one with the object's content.
            let cut = decode(&whole[..length]);
            assert!(cut.is_none_or(|object| object.get("metadata").is_none()), "{length}");
        }
    }
}
