//! Commits as clients send them: a list and the bodies it names, as parts of a form.

use serde_json::Value;

use crate::client::{Call, Client};
use reqwest::Method;

/// The boundary of these forms; no body of a test holds it.
pub const BOUNDARY: &str = "----fence-tests-boundary";

/// A part of a form.
pub fn part(name: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{headers}\r\n");
    [head.as_bytes(), body, b"\r\n"].concat()
}

/// The part with the list.
pub fn list(list: &Value) -> Vec<u8> {
    part("operations", "Content-Type: application/json\r\n", list.to_string().as_bytes())
}

/// The end of a form.
pub fn end() -> Vec<u8> {
    format!("--{BOUNDARY}--\r\n").into_bytes()
}

/// A call of `POST /commit` with these parts, without a token yet.
pub fn form(client: &Client, parts: &[Vec<u8>]) -> Call {
    let body = [parts.concat(), end()].concat();
    let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
    client.call(Method::POST, "/commit").header("content-type", content_type).body(body)
}

/// A commit with this list and these bodies, by the names of their parts; without a token yet.
pub fn commit(client: &Client, operations: &Value, bodies: &[(&str, &[u8])]) -> Call {
    let bodies = bodies.iter().map(|(name, body)| part(name, "", body));
    let parts: Vec<_> = std::iter::once(list(operations)).chain(bodies).collect();
    form(client, &parts)
}
