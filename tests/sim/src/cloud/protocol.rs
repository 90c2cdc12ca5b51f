//! The RPC protocol: parameters, signature 1.0, error bodies. Knows nothing of products.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Method, Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use sha1::Sha1;

use super::account::{AccessKey, Account};

/// What is left as it is by the vendor's percent encoding (RFC 3986).
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parameters that belong to the protocol, not to an action.
pub(crate) const COMMON: &[&str] = &[
    "Action",
    "Version",
    "Format",
    "AccessKeyId",
    "SecurityToken",
    "SignatureMethod",
    "SignatureVersion",
    "SignatureNonce",
    "SignatureType",
    "Timestamp",
    "Signature",
    "RegionId",
];

/// An answer that is an error.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) denied_action: Option<String>,
}

impl ApiError {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code: code.into(),
            message: message.into(),
            denied_action: None,
        }
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        let message = format!(
            "The input parameter \"{parameter}\" that is mandatory for processing this request is not supplied."
        );
        Self::new(400, "MissingParameter", message)
    }

    pub(crate) fn invalid(parameter: &str, why: &str) -> Self {
        Self::new(
            400,
            &format!("InvalidParameter.{parameter}"),
            format!("The specified parameter {parameter} is not valid: {why}."),
        )
    }

    pub(crate) fn forbidden(product: &str, action: &str) -> Self {
        Self {
            denied_action: Some(format!("{product}:{action}")),
            ..Self::new(403, "Forbidden.RAM", "User not authorized to operate on the specified resource.")
        }
    }

    pub(crate) fn into_response(self, request_id: &str, host: &str) -> Response<Bytes> {
        let mut body = json!({
            "RequestId": request_id,
            "HostId": host,
            "Code": self.code,
            "Message": self.message,
            "Recommend": format!("https://api.aliyun.com/troubleshoot?q={}", self.code),
        });
        if let Some(action) = self.denied_action {
            body["AccessDeniedDetail"] = json!({"AuthAction": action, "AuthPrincipalType": "SubUser",
                "PolicyType": "AccountLevelIdentityBasedPolicy", "NoPermissionType": "ImplicitDeny"});
        }
        respond(self.status, &body, request_id)
    }
}

/// An answer with a JSON body and the headers that the gateway adds.
pub(crate) fn respond(status: StatusCode, body: &Value, request_id: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    let date = super::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    for (name, value) in
        [("content-type", "application/json;charset=utf-8"), ("date", &date), ("x-acs-request-id", request_id)]
    {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The merged parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    pub(crate) method: Method,
    pub(crate) values: BTreeMap<String, String>,
    /// Names that came more than once.
    pub(crate) doubled: Vec<String>,
}

impl Params {
    pub(crate) fn read(request: &Request<Bytes>) -> Self {
        let mut params = Self { method: request.method().clone(), ..Self::default() };
        params.merge(request.uri().query().unwrap_or_default());
        let is_form = request
            .headers()
            .get("content-type")
            .and_then(|it| it.to_str().ok())
            .is_some_and(|it| it.starts_with("application/x-www-form-urlencoded"));
        if is_form {
            params.merge(&String::from_utf8_lossy(request.body()));
        }
        params
    }

    fn merge(&mut self, text: &str) {
        for pair in text.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name), decode(value));
            if self.values.insert(name.clone(), value).is_some() {
                self.doubled.push(name);
            }
        }
    }

    /// A value that is there and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|it| !it.is_empty())
    }

    pub(crate) fn need(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::missing(name))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let read = |text: &str| text.parse().map_err(|_| ApiError::invalid(name, "a number is expected"));
        self.get(name).map(read).transpose()
    }

    /// A number within a range.
    pub(crate) fn number_in(&self, name: &str, low: i64, high: i64) -> Result<Option<i64>, ApiError> {
        match self.number(name)? {
            Some(number) if !(low..=high).contains(&number) => {
                Err(ApiError::invalid(name, &format!("{number} is not within {low} to {high}")))
            }
            other => Ok(other),
        }
    }

    pub(crate) fn one_of<'a>(&'a self, name: &str, allowed: &[&str]) -> Result<Option<&'a str>, ApiError> {
        match self.get(name) {
            Some(value) if !allowed.contains(&value) => {
                Err(ApiError::invalid(name, &format!("{value} is none of {}", allowed.join(", "))))
            }
            other => Ok(other),
        }
    }

    /// `Name.1`, `Name.2`, ... in the order of their numbers.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.indexes(name).iter().filter_map(|it| self.get(&format!("{name}.{it}"))).collect()
    }

    /// The numbers N for which `Name.N` or `Name.N.Anything` exists.
    pub(crate) fn indexes(&self, name: &str) -> BTreeSet<u32> {
        let number = |key: &String| key.strip_prefix(name)?.strip_prefix('.')?.split('.').next()?.parse().ok();
        self.values.keys().filter_map(number).collect()
    }

    /// `Tag.N.Key` and `Tag.N.Value`.
    pub(crate) fn tags(&self) -> Vec<(&str, Option<&str>)> {
        let pair = |n: &u32| Some((self.get(&format!("Tag.{n}.Key"))?, self.get(&format!("Tag.{n}.Value"))));
        self.indexes("Tag").iter().filter_map(pair).collect()
    }

    /// What distinguishes two calls of one action: everything that is not protocol.
    pub(crate) fn business(&self) -> BTreeMap<String, String> {
        let is_business = |name: &String| !COMMON.contains(&name.as_str());
        self.values.iter().filter(|(name, _)| is_business(name)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, &UNRESERVED).to_string()
}

/// The text that a client of signature 1.0 signs.
#[must_use]
pub fn string_to_sign(method: &Method, parameters: &BTreeMap<String, String>) -> String {
    let query: Vec<String> = parameters
        .iter()
        .filter(|(name, _)| *name != "Signature")
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    format!("{method}&%2F&{}", encode(&query.join("&")))
}

/// Signature 1.0 of some parameters.
#[must_use]
pub fn sign(method: &Method, parameters: &BTreeMap<String, String>, secret: &str) -> String {
    let key = format!("{secret}&");
    match Hmac::<Sha1>::new_from_slice(key.as_bytes()) {
        Ok(mut mac) => {
            mac.update(string_to_sign(method, parameters).as_bytes());
            STANDARD.encode(mac.finalize().into_bytes())
        }
        Err(_) => String::new(),
    }
}

/// Form encoding of parameters, as a request body.
#[must_use]
pub fn form(parameters: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = parameters.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
    pairs.join("&")
}

/// Nonces that were seen; kept for as long as a timestamp is valid.
#[derive(Debug, Default)]
pub(crate) struct Nonces {
    known: HashSet<String>,
    /// The oldest first.
    by_time: VecDeque<(Timestamp, String)>,
}

impl Nonces {
    /// Whether it was not seen before.
    fn is_new(&mut self, nonce: String, now: Timestamp) -> bool {
        let is_over = |seen: Timestamp| now.duration_since(seen) >= CLOCK_TOLERANCE + CLOCK_TOLERANCE;
        while let Some((_, nonce)) = self.by_time.front().filter(|(seen, _)| is_over(*seen)) {
            self.known.remove(nonce);
            self.by_time.pop_front();
        }
        self.by_time.push_back((now, nonce.clone()));
        self.known.insert(nonce)
    }
}

/// How far a client's clock may be off.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(15);

/// Checks who calls; the answer is the key.
pub(crate) fn authenticate<'w>(
    params: &Params,
    account: &'w Account,
    nonces: &mut Nonces,
    now: Timestamp,
) -> Result<&'w AccessKey, ApiError> {
    let id = params.need("AccessKeyId")?;
    let signature = params.need("Signature")?;
    check_timestamp(params, now)?;
    let nonce = params.need("SignatureNonce")?;
    for (name, expected) in [("SignatureMethod", "HMAC-SHA1"), ("SignatureVersion", "1.0")] {
        if params.need(name)? != expected {
            let message = format!("The request signature does not conform to Aliyun standards: {name}.");
            return Err(ApiError::new(400, "IncompleteSignature", message));
        }
    }
    let Some(key) = account.keys.get(id) else {
        return Err(ApiError::new(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found."));
    };
    if !key.active {
        return Err(ApiError::new(403, "InvalidAccessKeyId.Inactive", "Specified access key is disabled."));
    }
    match (key.token.as_deref(), params.get("SecurityToken")) {
        (Some(_), None) => return Err(ApiError::new(400, "MissingSecurityToken", "SecurityToken is required.")),
        (expected, given) if expected != given => {
            let message = "Specified SecurityToken mismatch with the AccessKey.";
            return Err(ApiError::new(400, "InvalidSecurityToken.MismatchWithAccessKey", message));
        }
        _ => {}
    }
    if key.expires.is_some_and(|it| it <= now) {
        return Err(ApiError::new(400, "InvalidSecurityToken.Expired", "Specified SecurityToken is expired."));
    }
    if sign(&params.method, &params.values, &key.secret) != signature {
        let message = format!(
            "Specified signature is not matched with our calculation. server string to sign is:{}",
            string_to_sign(&params.method, &params.values)
        );
        return Err(ApiError::new(400, "SignatureDoesNotMatch", message));
    }
    if !nonces.is_new(format!("{id}/{nonce}"), now) {
        return Err(ApiError::new(400, "SignatureNonceUsed", "Specified signature nonce was used already."));
    }
    Ok(key)
}

fn check_timestamp(params: &Params, now: Timestamp) -> Result<(), ApiError> {
    let text = params.need("Timestamp")?;
    let well_formed = text.len() == "2026-01-02T03:04:05Z".len() && text.ends_with('Z');
    let Some(sent) = text.parse::<Timestamp>().ok().filter(|_| well_formed) else {
        let message = "Specified time stamp or date value is not well formatted.";
        return Err(ApiError::new(400, "InvalidTimeStamp.Format", message));
    };
    if now.duration_since(sent).abs() > CLOCK_TOLERANCE {
        return Err(ApiError::new(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."));
    }
    Ok(())
}

/// `Tag.12.Key` as `Tag.N.Key`, the way action tables name it.
pub(crate) fn pattern_of(name: &str) -> String {
    let part = |it: &str| if it.parse::<u32>().is_ok() { "N".to_owned() } else { it.to_owned() };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn signs_like_the_official_example() {
        let parameters = parameters(&[
            ("AccessKeyId", "testid"),
            ("Action", "DescribeRegions"),
            ("Version", "2014-05-26"),
            ("Format", "XML"),
            ("SignatureMethod", "HMAC-SHA1"),
            ("SignatureVersion", "1.0"),
            ("SignatureNonce", "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf"),
            ("Timestamp", "2016-02-23T12:46:24Z"),
            ("Signature", "is not part of what is signed"),
        ]);
        assert_eq!(sign(&Method::GET, &parameters, "testsecret"), "OLeaidS1JvxuMvnyHOwuJ+uX5qY=");
    }

    #[test]
    fn signs_tokens_json_and_special_characters() {
        let backends = r#"[{"ServerId":"i-test~1","Port":"80","Weight":"100","Type":"ecs","Description":"a b*c+d/é"}]"#;
        let parameters = parameters(&[
            ("AccessKeyId", "STS.testid"),
            ("SecurityToken", "CAIS+/token=="),
            ("Action", "AddVServerGroupBackendServers"),
            ("Version", "2014-05-15"),
            ("Format", "JSON"),
            ("RegionId", "cn-hangzhou"),
            ("SignatureMethod", "HMAC-SHA1"),
            ("SignatureVersion", "1.0"),
            ("SignatureNonce", "0f8fad5b-d9cb-469f-a165-70867728950e"),
            ("Timestamp", "2026-01-02T03:04:05Z"),
            ("VServerGroupId", "rsp-test0001"),
            ("BackendServers", backends),
        ]);
        assert_eq!(sign(&Method::POST, &parameters, "testsecret"), "0MGNGFlIO0hsQ9oePTekVoXLCGc=");
        assert_eq!(sign(&Method::GET, &parameters, "testsecret"), "pkuyaWF//wGPAKrmlxdsl9WfOAc=");
    }

    #[test]
    fn query_and_form_are_merged_and_lists_are_ordered_by_number() {
        let request = Request::post("/?Tag.10.Key=ten&Tag.2.Key=two%20words&A=1")
            .header("content-type", "application/x-www-form-urlencoded; charset=utf-8")
            .body(Bytes::from_static(b"Tag.2.Value=v&A=2&Id.2=b&Id.1=a"))
            .unwrap();
        let params = Params::read(&request);
        assert_eq!(params.tags(), [("two words", Some("v")), ("ten", None)]);
        assert_eq!(params.list("Id"), ["a", "b"]);
        assert_eq!(params.doubled, ["A"]);
    }

    #[test]
    fn what_form_writes_is_what_read_understands() {
        let values = parameters(&[("a b", "c+d&e=f"), ("é", "*~/%")]);
        let request = Request::post("/")
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Bytes::from(form(&values)))
            .unwrap();
        assert_eq!(Params::read(&request).values, values);
    }
}
