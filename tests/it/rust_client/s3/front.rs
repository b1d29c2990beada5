//! Something in front of a gateway that says of S3 what one says whose front for S3 is on: resources that begin with
//! `lake` lie in a bucket.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::super::Dev;

const MIB: usize = 1 << 20;

/// A gateway whose locks have keys of S3.
pub struct Front {
    /// The gateway behind it.
    pub gateway: Dev,
    url: String,
}

#[derive(Clone)]
struct Behind {
    url: String,
    endpoint: String,
    http: reqwest::Client,
}

/// The id of the key of a lock.
pub fn key_of(lock: &str) -> String {
    format!("FG1{}", lock.replace('-', "").to_uppercase())
}

/// Its secret.
pub fn secret_of(lock: &str) -> String {
    format!("secret-{lock}")
}

impl Front {
    /// One that says that it speaks S3 there.
    pub async fn at(endpoint: &str) -> Self {
        let gateway = Dev::start().await;
        let (url, endpoint) = (gateway.url().to_owned(), endpoint.to_owned());
        let behind = Behind { url, endpoint, http: reqwest::Client::new() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(behind);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { gateway, url }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Answers with the id of the request, by which a client knows an answer of its gateway.
async fn answer(behind: State<Behind>, request: Request) -> Response {
    let id = request.headers().get("x-request-id").cloned();
    let mut response = pass(behind, request).await;
    response.headers_mut().extend(id.map(|id| (HeaderName::from_static("x-request-id"), id)));
    response
}

async fn pass(State(behind): State<Behind>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if let Some(id) = path.strip_prefix("/locks/").and_then(|rest| rest.strip_suffix("/s3")) {
        return behind.key(id, head.uri.query().unwrap_or_default(), &head.headers).await;
    }
    let whole = head.uri.path_and_query().map_or("/", |it| it.as_str());
    let asked = behind.http.request(head.method.clone(), format!("{}{whole}", behind.url));
    let asked = asked.headers(head.headers).body(to_bytes(body, MIB).await.unwrap());
    let answer = asked.send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    if head.method != Method::POST || path != "/locks" || !status.is_success() {
        return (status, headers, Body::from_stream(answer.bytes_stream())).into_response();
    }
    let mut lock: Value = answer.json().await.unwrap();
    if let Some(access) = behind.access(&lock) {
        lock["s3"] = access;
    }
    (status, Json(lock)).into_response()
}

impl Behind {
    /// The key of a lock, if one of its resources lies in a bucket.
    fn access(&self, lock: &Value) -> Option<Value> {
        let names = lock["resources"].as_array()?;
        names.iter().any(|name| name.as_str().is_some_and(|name| name.starts_with("lake"))).then(
            || {
                let id = lock["id"].as_str().unwrap();
                json!({
                    "endpoint": self.endpoint, "region": "eu-1", "access_key_id": key_of(id),
                    "secret_access_key": secret_of(id),
                })
            },
        )
    }

    /// `GET /locks/{id}/s3`
    async fn key(&self, id: &str, query: &str, headers: &HeaderMap) -> Response {
        let ask = async |method: Method, path: String| {
            let asked = self.http.request(method, format!("{}{path}", self.url));
            let asked = asked.header("x-request-id", headers["x-request-id"].clone());
            asked.header("content-type", "application/json").body("{}").send().await.unwrap()
        };
        let answer = ask(Method::GET, format!("/locks/{id}")).await;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let bytes = answer.bytes().await.unwrap();
        if !status.is_success() {
            return (status, headers, bytes).into_response();
        }
        let lock: Value = serde_json::from_slice(&bytes).unwrap();
        if lock.get("ended").is_some() {
            // The error of its end, as a renewal gets it.
            let answer = ask(Method::POST, format!("/locks/{id}/renew")).await;
            let (status, headers) = (answer.status(), answer.headers().clone());
            assert!(!status.is_success());
            return (status, headers, answer.bytes().await.unwrap()).into_response();
        }
        let Some(access) = self.access(&lock) else { return StatusCode::NOT_FOUND.into_response() };
        let (key, secret) = (&access["access_key_id"], &access["secret_access_key"]);
        Json(match query {
            "as=process" => json!({"Version": 1, "AccessKeyId": key, "SecretAccessKey": secret}),
            "as=container" => json!({
                "AccessKeyId": key, "SecretAccessKey": secret, "Token": "any", "Expiration": "2999-01-01T00:00:00Z",
            }),
            _ => access,
        })
        .into_response()
    }
}
