//! What people would use instead: pgbench, Redis with a script, etcd's own locks, the S3 server itself.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use etcd_client::Client as EtcdClient;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::load::{Caller, Measured, histogram};
use crate::servers::{Servers, body};

/// What pgbench does in a transaction.
#[derive(Debug, Clone, Copy)]
pub enum Statement {
    /// Writes 1 KiB to the row of its own client.
    WriteOwn,
    /// Writes 1 KiB to the one row of all clients.
    WriteOne,
    /// Reads 1 KiB of the row of its own client.
    Read,
}

impl Statement {
    fn script(self) -> &'static str {
        match self {
            Self::WriteOwn => {
                "UPDATE objects SET body = :body, version = version + 1, written_at = now()
                 WHERE resource = 'r' || :client_id AND key = 'k';\n"
            }
            Self::WriteOne => {
                "UPDATE objects SET body = :body, version = version + 1, written_at = now()
                 WHERE resource = 'r0' AND key = 'k';\n"
            }
            Self::Read => {
                "SELECT version, body FROM objects WHERE resource = 'r' || :client_id AND key = 'k';\n"
            }
        }
    }
}

/// The table of pgbench: a row for each of its clients.
pub async fn prepare_pgbench(servers: &Servers) {
    servers
        .postgres
        .execute(
            &servers.database,
            "CREATE TABLE objects (
                 resource text COLLATE \"C\", key text COLLATE \"C\", version bigint NOT NULL,
                 body bytea NOT NULL, written_at timestamptz NOT NULL,
                 PRIMARY KEY (resource, key)) WITH (fillfactor = 70);
             ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;
             INSERT INTO objects SELECT 'r' || n, 'k', 1, decode(repeat('ab', 1024), 'hex'), now()
             FROM generate_series(0, 63) n",
        )
        .await;
}

/// One transaction for each statement, which is prepared, from so many clients.
///
/// # Errors
/// What pgbench says.
pub async fn pgbench(
    servers: &Servers,
    statement: Statement,
    clients: usize,
    lasts: Duration,
) -> Result<Measured> {
    let program = servers.postgres.program("pgbench");
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("script"), statement.script())?;
    let seconds = lasts.as_secs().max(1);
    let output = tokio::process::Command::new(program)
        .current_dir(dir.path())
        .args(["-n", "-M", "prepared", "-l", "--log-prefix=log", "-f", "script"])
        .args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()])
        .args(["-T", &seconds.to_string()])
        .arg(format!("-Dbody={}", String::from_utf8(body(1024))?))
        .args(["-h", "127.0.0.1", "-p", &servers.postgres.port().to_string(), "-U", "postgres"])
        .arg(&servers.database)
        .stdin(Stdio::null())
        .output()
        .await?;
    let (told, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench: {told}{error}");
    let per_second = told
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
        .with_context(|| format!("pgbench tells no rate: {told}{error}"))?;
    let mut micros = histogram();
    for entry in fs::read_dir(dir.path())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log")) {
            let log = fs::read_to_string(path)?;
            let took = log.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
            took.for_each(|took| micros.saturating_record(took.max(1)));
        }
    }
    let distance_us = 1e6 * clients as f64 / per_second;
    Ok(Measured { per_second, micros: micros.clone_correct(distance_us as u64) })
}

/// Writes 1 KiB to Redis if its token is not below the highest so far.
pub struct RedisWriter {
    stream: TcpStream,
    request: Vec<u8>,
}

/// The fence as a script: the token is compared and kept with the value, in one step.
const SCRIPT: &str = "local t = redis.call('HGET', KEYS[1], 'token')
if t and tonumber(t) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'body', ARGV[2])
return redis.call('HINCRBY', KEYS[1], 'version', 1)";

impl RedisWriter {
    /// Over a connection of its own, to a key of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(servers: &Servers, number: usize) -> Result<Self> {
        let mut stream = TcpStream::connect(servers.redis.address()).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&words(&[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()])).await?;
        let digest = line(&mut stream).await?;
        ensure!(digest.starts_with("$40"), "Redis says {digest:?}");
        let digest = line(&mut stream).await?;
        let (key, body) = (format!("r{number}"), body(1024));
        let words: [&[u8]; 6] =
            [b"EVALSHA", digest.trim_end().as_bytes(), b"1", key.as_bytes(), b"7", &body];
        Ok(Self { stream, request: self::words(&words) })
    }
}

impl Caller for RedisWriter {
    async fn call(&mut self) -> Result<()> {
        self.stream.write_all(&self.request).await?;
        let mut answer = [0; 64];
        let read = self.stream.read(&mut answer).await?;
        ensure!(answer.starts_with(b":") && read > 3, "Redis says {:?}", answer.escape_ascii());
        Ok(())
    }
}

fn words(words: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n", word.len()).into_bytes());
        request.extend([word, &b"\r\n"[..]].concat());
    }
    request
}

async fn line(stream: &mut TcpStream) -> Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(line)?)
}

/// Takes a lock of its own by etcd's lock API, and gives it back: a lease, the lock, and both again.
pub struct EtcdLocker {
    client: EtcdClient,
    name: String,
}

impl EtcdLocker {
    /// Over a connection of its own.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn new(servers: &Servers, number: usize) -> Result<Self> {
        let client = EtcdClient::connect([servers.etcd.endpoint()], None).await?;
        Ok(Self { client, name: format!("bench/{number}") })
    }
}

impl Caller for EtcdLocker {
    async fn call(&mut self) -> Result<()> {
        let lease = self.client.lease_grant(30, None).await?.id();
        let options = etcd_client::LockOptions::new().with_lease(lease);
        let lock = self.client.lock(self.name.as_str(), Some(options)).await?;
        self.client.unlock(lock.key().to_vec()).await?;
        self.client.lease_revoke(lease).await?;
        Ok(())
    }
}

/// Puts an object into the S3 server itself.
pub struct S3Writer {
    store: std::sync::Arc<dyn ObjectStore>,
    path: Path,
    body: Bytes,
}

impl S3Writer {
    /// With a client of its own.
    ///
    /// # Errors
    /// A store that cannot be reached.
    pub fn new(servers: &Servers, number: usize, body: Bytes) -> Result<Self> {
        let mut builder = AmazonS3Builder::new().with_url(servers.store.url());
        for (name, value) in servers.store.env(None) {
            builder = builder.with_config(name.to_lowercase().parse()?, value);
        }
        let store = std::sync::Arc::new(builder.build()?);
        Ok(Self { store, path: Path::from(format!("direct/{number}")), body })
    }
}

impl Caller for S3Writer {
    async fn call(&mut self) -> Result<()> {
        self.store.put(&self.path, self.body.clone().into()).await?;
        Ok(())
    }
}
