//! What people would use instead: Redis with a script, etcd's own locks, the S3 server itself.

use anyhow::{Result, ensure};
use bytes::Bytes;
use etcd_client::Client as EtcdClient;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::load::Caller;
use crate::servers::{Servers, body};

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
        let mut stream = TcpStream::connect(servers.redis()?.address()).await?;
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
        let client = EtcdClient::connect([servers.clustered()?.etcd.endpoint()], None).await?;
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
        let server = servers.store()?;
        let mut builder = AmazonS3Builder::new().with_url(server.url());
        for (name, value) in server.env(None) {
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
