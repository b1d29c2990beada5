//! That no secret is found where none belongs. Each credential that a test sends is remembered; when the gateway that it was
//! sent to is done with, its log, its metrics and its ledger are searched for it, and each answer when it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memchr::memmem;

use crate::postgres::{Postgres, binaries, database_in};

/// What has fewer characters may stand anywhere by chance.
const SECRET_CHARS_MIN: usize = 32;
/// How long a gateway may take to tell its metrics.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was sent to a gateway.
#[derive(Debug, Default)]
struct Sent {
    secrets: BTreeSet<String>,
    /// Whole credentials that were taken.
    accepted: BTreeSet<String>,
}

/// Secrets of keys that were made, wherever they are sent.
static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// By the address of the gateway.
static SENT: Mutex<BTreeMap<SocketAddr, Sent>> = Mutex::new(BTreeMap::new());

fn sent() -> MutexGuard<'static, BTreeMap<SocketAddr, Sent>> {
    SENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a bearer credential that nobody else may know: the secret of a key, the signature of a token.
pub fn secret_of(credential: &str) -> Option<String> {
    let secret = match credential.strip_prefix("fgk_") {
        // An id, 43 characters of secret, which may have `_` in them, and a checksum.
        Some(rest) => rest.split_once('_').and_then(|(_, rest)| rest.get(..43)),
        None => credential.rsplit('.').next(),
    };
    secret.filter(|secret| secret.len() >= SECRET_CHARS_MIN).map(str::to_owned)
}

/// Remembers a key that was made.
pub fn made(credential: &str) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.extend(secret_of(credential));
}

/// Remembers what is sent to a gateway in `Authorization`.
pub fn note(gateway: SocketAddr, authorization: &str) {
    if let Some(secret) = bearer(authorization).and_then(secret_of) {
        sent().entry(gateway).or_default().secrets.insert(secret);
    }
}

/// Remembers that it was taken, and looks for it in the answer. Panics if it is there.
pub fn answered(gateway: SocketAddr, authorization: &str, was_taken: bool, answer: &str) {
    let Some(credential) = bearer(authorization) else { return };
    if was_taken {
        sent().entry(gateway).or_default().accepted.insert(credential.to_owned());
    }
    let is_there = secret_of(credential).is_some_and(|secret| answer.contains(&secret));
    assert!(!is_there, "an answer has the credential that was sent: {answer}");
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, credential) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim())
}

/// Looks for all keys that were made in the log of a gateway, and for all that was sent to it also in its metrics and its
/// ledger. Panics if something is found.
///
/// `data` is its data directory, `postgres` the ledger of one that has none there.
pub fn look(gateway: SocketAddr, log: &str, data: &Path, postgres: Option<&str>) {
    let Sent { mut secrets, accepted } = sent().remove(&gateway).unwrap_or_default();
    let mut places = Vec::new();
    if !secrets.is_empty() {
        let metrics = accepted.iter().find_map(|credential| metrics(gateway, credential));
        places.extend(metrics.map(|bytes| ("the metrics", bytes)));
        match postgres {
            Some(url) => places.extend(dump(url).map(|bytes| ("the ledger", bytes))),
            None => files(data, &mut places),
        }
    }
    secrets.extend(MADE.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    places.push(("the log", log.as_bytes().to_vec()));
    for (place, bytes) in places {
        for secret in &secrets {
            let is_there = memmem::find(&bytes, secret.as_bytes()).is_some();
            assert!(!is_there, "{place} of a gateway has a secret: {secret}");
        }
    }
}

/// What it tells in `/metrics` to whoever may see them. None if it is gone, or this is not such a one.
fn metrics(gateway: SocketAddr, credential: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&gateway, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {credential}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    answer.starts_with(b"HTTP/1.1 200").then_some(answer)
}

/// All rows of a ledger on Postgres. None if its server is gone.
///
/// The server is asked itself: a proxy in between may be a task of this very thread. No two servers have a database of the
/// same name.
pub fn dump(url: &str) -> Option<Vec<u8>> {
    let direct = Postgres::shared_already().map(|server| server.url(database_in(url)));
    let asked = direct.into_iter().chain([url.to_owned()]);
    asked.into_iter().find_map(|url| {
        let dumped = Command::new(binaries().join("pg_dump"))
            .args(["--data-only", "--schema", "fencegate", "--dbname", &url])
            .env("PGCONNECT_TIMEOUT", "2")
            .output();
        let dumped = dumped.expect("pg_dump is there");
        dumped.status.success().then_some(dumped.stdout)
    })
}

/// All files of a data directory but the objects.
fn files(folder: &Path, places: &mut Vec<(&'static str, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            places.extend(std::fs::read(entry.path()).ok().map(|bytes| ("a file", bytes)));
        }
    }
}
