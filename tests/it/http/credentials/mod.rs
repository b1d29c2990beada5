//! What is shown in a request: which credentials are taken, and what all others are told.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod signer;

pub mod issuers;
pub mod keys;
pub mod sockets;
pub mod tokens;
pub mod urls;

use fence_tests::gateway::Gateway;
use fence_tests::raw::exchange;

const MAY: &str = "allow = [\"lock\", \"read\", \"list\"]\nresources = [\"*\"]";

/// A request for a list, with these lines in its head.
fn head(lines: &[&str]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET /locks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n")
        .into_bytes()
}

/// The status and the code of the answer.
async fn told(gateway: &Gateway, request: &[u8]) -> (u16, String) {
    let answer = exchange(gateway.address(), request).await.unwrap();
    (answer.status, answer.code())
}

/// What whoever shows this key or token is told.
async fn told_to(gateway: &Gateway, credential: &str) -> (u16, String) {
    told(gateway, &head(&[&format!("authorization: Bearer {credential}")])).await
}

fn let_in() -> (u16, String) {
    (200, String::new())
}

fn unauthenticated() -> (u16, String) {
    (401, "unauthenticated".to_owned())
}
