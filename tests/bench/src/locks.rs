//! Takes many locks at once.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::gateway::Gateway;
use futures::future::try_join_all;

use crate::http::{Connection, request};

/// How many are taken at a time.
const AT_ONCE: usize = 64;

/// Takes locks on these resources for long.
///
/// # Errors
/// A lock that is not granted.
pub async fn lock_all(gateway: &Gateway, resources: &[String]) -> Result<Vec<Lock>> {
    let each = resources.chunks(resources.len().div_ceil(AT_ONCE).max(1));
    let locks = try_join_all(each.map(|some| lock_some(gateway.address(), some))).await?;
    Ok(locks.into_iter().flatten().collect())
}

async fn lock_some(address: SocketAddr, resources: &[String]) -> Result<Vec<Lock>> {
    let mut connection = Connection::open(address).await?;
    let mut locks = Vec::with_capacity(resources.len());
    for resource in resources {
        let body = format!(r#"{{"resource":"{resource}","ttl":"24h","owner":"bench"}}"#);
        let headers = [("content-type", "application/json")];
        let acquire = request("POST", "/locks", &headers, body.as_bytes());
        let answer = connection.ask(&acquire).await?;
        ensure!(answer.status == 201, "{}: {}", answer.status, answer.body.escape_ascii());
        locks.push(serde_json::from_slice(answer.body).context("a lock")?);
    }
    Ok(locks)
}
