//! The server as clients see it.

mod failing;
mod reading;
mod watching;
mod writing;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::{Body, Cluster, Lost};

async fn send(
    cluster: &Cluster,
    request: http::request::Builder,
    body: Option<&Value>,
) -> Result<Response<Body>, Lost> {
    let body = body.map(Value::to_string).unwrap_or_default();
    cluster.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await
}

async fn answer(response: Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    // What is no JSON is text.
    let text = || Value::from(String::from_utf8(body.to_vec()).unwrap());
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

/// Sends a request with the usual media type of its method.
async fn call(cluster: &Cluster, method: &str, uri: &str, body: Option<&Value>) -> (u16, Value) {
    let media_type = if method == "PATCH" { "application/strategic-merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(uri).header("content-type", media_type);
    answer(send(cluster, request, body).await.unwrap()).await
}

async fn get(cluster: &Cluster, uri: &str) -> (u16, Value) {
    call(cluster, "GET", uri, None).await
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
