//! Who asks the gateway: always the same, any of many, or for a lock and back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fence_core::wire::Lock;
use fence_tests::client::object_path;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::http::{Connection, request};
use crate::load::Caller;

/// How long somebody waits who is turned away.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends one and the same request again and again.
pub struct Same {
    connection: Connection,
    request: Arc<[u8]>,
    /// The status that it must be answered with.
    wanted: std::ops::Range<u16>,
}

impl Same {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(
        address: SocketAddr,
        request: Arc<[u8]>,
        wanted: std::ops::Range<u16>,
    ) -> Result<Self> {
        Ok(Self { connection: Connection::open(address).await?, request, wanted })
    }
}

impl Caller for Same {
    async fn call(&mut self) -> Result<()> {
        let answer = self.connection.ask(&self.request).await?;
        let text = || String::from_utf8_lossy(answer.body).into_owned();
        ensure!(self.wanted.contains(&answer.status), "{}: {}", answer.status, text());
        Ok(())
    }
}

/// Sends one and the same late write again and again, whatever it is told; it is not to be admitted.
pub struct Late(Same);

impl Late {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(address: SocketAddr, request: Arc<[u8]>) -> Result<Self> {
        Ok(Self(Same::new(address, request, 412..413).await?))
    }
}

impl Caller for Late {
    async fn call(&mut self) -> Result<()> {
        let answer = self.0.connection.ask(&self.0.request).await?;
        match answer.status {
            412 => Ok(()),
            503 => {
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            status => bail!("{status}: {}", String::from_utf8_lossy(answer.body)),
        }
    }
}

/// Sends any one of many requests, each time another, in an order that is the same in each run.
pub struct Among {
    connection: Connection,
    requests: Arc<[Arc<[u8]>]>,
    random: StdRng,
}

impl Among {
    /// Over a connection of its own, the number of which decides the order.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(
        address: SocketAddr,
        requests: Arc<[Arc<[u8]>]>,
        number: usize,
    ) -> Result<Self> {
        let random = StdRng::seed_from_u64(number as u64);
        Ok(Self { connection: Connection::open(address).await?, requests, random })
    }
}

impl Caller for Among {
    async fn call(&mut self) -> Result<()> {
        let request = &self.requests[self.random.random_range(0..self.requests.len())];
        let answer = self.connection.ask(request).await?;
        let text = || String::from_utf8_lossy(answer.body).into_owned();
        ensure!((200..202).contains(&answer.status), "{}: {}", answer.status, text());
        Ok(())
    }
}

/// A fenced put of these bytes under a lock.
pub fn put(lock: &Lock, body: &[u8]) -> Arc<[u8]> {
    put_with(lock, body, None)
}

/// The same with an idempotency key.
pub fn put_keyed(lock: &Lock, body: &[u8], key: &str) -> Arc<[u8]> {
    put_with(lock, body, Some(key))
}

fn put_with(lock: &Lock, body: &[u8], key: Option<&str>) -> Arc<[u8]> {
    let (token, id) = (lock.token.to_string(), lock.id.to_string());
    let path = object_path(lock.resources[0].as_str(), "k");
    let mut headers = vec![
        ("x-fence-token", token.as_str()),
        ("x-lock-id", id.as_str()),
        ("content-type", "application/octet-stream"),
    ];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    request("PUT", &path, &headers, body).into()
}

/// A fenced put as our clients send it: each is a write of its own, with a key and a number that were not there before.
pub struct OfClient {
    path: String,
    token: String,
    lock: String,
    digest: String,
    body: Vec<u8>,
    /// The number of the last one.
    last: AtomicU64,
}

impl OfClient {
    /// Puts of these bytes under a lock.
    pub fn new(lock: &Lock, body: &[u8]) -> Self {
        Self {
            path: object_path(lock.resources[0].as_str(), "k"),
            token: lock.token.to_string(),
            lock: lock.id.to_string(),
            digest: digest(body),
            body: body.to_vec(),
            last: AtomicU64::new(0),
        }
    }

    /// The next one.
    fn next(&self) -> Vec<u8> {
        let number = (self.last.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let (key, id) = (Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
        let headers = headers([&self.token, &self.lock, &key, &number, &id, &self.digest]);
        request("PUT", &self.path, &headers, &self.body)
    }
}

/// What our clients send with a put: these are its token, lock, key, number, its own id, and its digest.
pub fn headers([token, lock, key, number, id, digest]: [&str; 6]) -> [(&'static str, &str); 10] {
    [
        ("x-fence-token", token),
        ("x-lock-id", lock),
        ("idempotency-key", key),
        // A gateway that does not know it yet passes it over.
        ("x-fence-key-kept", "1h"),
        ("x-fence-seq", number),
        ("content-type", "application/octet-stream"),
        ("repr-digest", digest),
        ("x-request-id", id),
        ("user-agent", "fencegate-bench"),
        ("accept", "*/*"),
    ]
}

/// `Repr-Digest` of a body.
pub fn digest(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

/// Puts as our clients do.
pub struct AsClient {
    connection: Connection,
    put: Arc<OfClient>,
}

impl AsClient {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(address: SocketAddr, put: Arc<OfClient>) -> Result<Self> {
        Ok(Self { connection: Connection::open(address).await?, put })
    }
}

impl Caller for AsClient {
    async fn call(&mut self) -> Result<()> {
        let answer = self.connection.ask(&self.put.next()).await?;
        ensure!(
            (200..202).contains(&answer.status),
            "{}: {}",
            answer.status,
            answer.body.escape_ascii()
        );
        Ok(())
    }
}

/// Acquires a lock of its own and releases it.
pub struct Locker {
    connection: Connection,
    acquire: Vec<u8>,
}

impl Locker {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(address: SocketAddr, resource: &str) -> Result<Self> {
        let body = format!(r#"{{"resource":"{resource}","ttl":"30s","owner":"bench"}}"#);
        let headers = [("content-type", "application/json")];
        let acquire = request("POST", "/locks", &headers, body.as_bytes());
        Ok(Self { connection: Connection::open(address).await?, acquire })
    }
}

impl Caller for Locker {
    async fn call(&mut self) -> Result<()> {
        lock_and_release(&mut self.connection, &self.acquire, &[]).await
    }
}

/// Asks for a lock with this request, and releases it with these headers.
///
/// # Errors
/// A lock that is not granted, or not released.
pub async fn lock_and_release(
    connection: &mut Connection,
    acquire: &[u8],
    headers: &[(&str, &str)],
) -> Result<()> {
    let answer = connection.ask(acquire).await?;
    ensure!(answer.status == 201, "{}: {}", answer.status, answer.body.escape_ascii());
    let lock: Lock = serde_json::from_slice(answer.body).context("a lock")?;
    let release = request("DELETE", &format!("/locks/{}", lock.id), headers, b"");
    let answer = connection.ask(&release).await?;
    ensure!(answer.status == 204, "{}: {}", answer.status, answer.body.escape_ascii());
    Ok(())
}

/// Goes on where somebody who is turned away would: when more ask at once than can be served in time.
pub struct Patient<C> {
    caller: C,
    /// How often that was, for all of them.
    turned_away: Arc<AtomicU64>,
}

impl<C> Patient<C> {
    /// Counts with others.
    pub fn new(caller: C, turned_away: &Arc<AtomicU64>) -> Self {
        Self { caller, turned_away: Arc::clone(turned_away) }
    }
}

impl<C: Caller> Caller for Patient<C> {
    async fn call(&mut self) -> Result<()> {
        match self.caller.call().await {
            // 409: its own lock, if it was the release that got no answer in time.
            Err(error) if ["503", "409"].iter().any(|it| error.to_string().starts_with(it)) => {
                self.turned_away.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            asked => asked,
        }
    }
}
