//! A pooler that is hard to see: it gives each of its clients a session of its own, until it is told to move them.
//! From then on it hands every other transaction to a session of somebody else, who does not wait for the disk
//! (`synchronous_commit = off`), and carries prepared statements along: where one is missing, it is prepared.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::process::{free_port, loopback};

/// What a client asks for that wants TLS, in place of a version.
const SSL_REQUEST: u32 = 80_877_103;

#[derive(Debug, Default)]
struct Shared {
    moves: AtomicBool,
    moved: AtomicU64,
}

/// The pooler. It ends on drop.
#[derive(Debug)]
pub struct Mover {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Mover {
    /// Starts it before the server at `127.0.0.1:target`. It moves nobody yet.
    pub async fn start(target: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(loopback(port)).await.expect("the port is free");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move { drop(serve(client, target, &shared).await) });
            }
        });
        Self { port, shared, task }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on sessions are moved.
    pub fn begin_to_move(&self) {
        self.shared.moves.store(true, Ordering::Release);
    }

    /// How many transactions have gone to a session of somebody else.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Acquire)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A message: its type, and all of its bytes.
struct Message {
    kind: u8,
    bytes: Vec<u8>,
}

async fn read(stream: &mut TcpStream) -> io::Result<Message> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32().await?;
    let mut bytes = vec![kind];
    bytes.extend(length.to_be_bytes());
    bytes.resize(1 + length as usize, 0);
    stream.read_exact(&mut bytes[5..]).await?;
    Ok(Message { kind, bytes })
}

/// The text that begins here and ends with a zero.
fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

impl Message {
    /// The prepared statement that it uses.
    fn uses(&self) -> Option<Vec<u8>> {
        let body = &self.bytes[5..];
        let name = match self.kind {
            b'B' => text(&body[text(body).len() + 1..]),
            b'D' if body.first() == Some(&b'S') => text(&body[1..]),
            _ => return None,
        };
        (!name.is_empty()).then_some(name)
    }

    /// The prepared statement that it makes.
    fn makes(&self) -> Option<Vec<u8>> {
        let name = text(&self.bytes[5..]);
        (self.kind == b'P' && !name.is_empty()).then_some(name)
    }
}

/// A session with the server, and the statements that are prepared there.
struct Backend {
    stream: TcpStream,
    prepared: HashSet<Vec<u8>>,
}

impl Backend {
    /// Begins a session as this client does; returns what the server greets it with, too.
    async fn begin(target: u16, startup: &[u8]) -> io::Result<(Self, Vec<u8>)> {
        let mut stream = TcpStream::connect(loopback(target)).await?;
        stream.set_nodelay(true)?;
        stream.write_all(startup).await?;
        let mut greeting = Vec::new();
        loop {
            let message = read(&mut stream).await?;
            greeting.extend(&message.bytes);
            if message.kind == b'Z' {
                return Ok((Self { stream, prepared: HashSet::new() }, greeting));
            }
        }
    }

    async fn runs(&mut self, sql: &str) -> io::Result<()> {
        let mut query = vec![b'Q'];
        query.extend((sql.len() as u32 + 5).to_be_bytes());
        query.extend(sql.as_bytes());
        query.push(0);
        self.stream.write_all(&query).await?;
        while read(&mut self.stream).await?.kind != b'Z' {}
        Ok(())
    }

    /// Sends what belongs together and passes the answers on; returns whether a transaction is open then.
    async fn passes(
        &mut self,
        batch: &[Message],
        known: &HashMap<Vec<u8>, Vec<u8>>,
        client: &mut TcpStream,
    ) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let mut swallowed = 0;
        let made: HashSet<_> = batch.iter().filter_map(Message::makes).collect();
        for name in batch.iter().filter_map(Message::uses) {
            if let Some(parse) = known.get(&name)
                && !made.contains(&name)
                && self.prepared.insert(name)
            {
                bytes.extend(parse);
                swallowed += 1;
            }
        }
        self.prepared.extend(made);
        batch.iter().for_each(|message| bytes.extend(&message.bytes));
        self.stream.write_all(&bytes).await?;
        loop {
            let message = read(&mut self.stream).await?;
            if message.kind == b'1' && swallowed > 0 {
                swallowed -= 1;
                continue;
            }
            client.write_all(&message.bytes).await?;
            if message.kind == b'Z' {
                return Ok(message.bytes[5] != b'I');
            }
        }
    }
}

async fn startup(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let length = client.read_u32().await?;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.resize(length as usize, 0);
        client.read_exact(&mut bytes[4..]).await?;
        if bytes[4..8] != SSL_REQUEST.to_be_bytes() {
            return Ok(bytes);
        }
        client.write_all(b"N").await?;
    }
}

async fn serve(mut client: TcpStream, target: u16, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let startup = startup(&mut client).await?;
    let (mut own, greeting) = Backend::begin(target, &startup).await?;
    let (mut foreign, _) = Backend::begin(target, &startup).await?;
    foreign.runs("SET synchronous_commit = off").await?;
    client.write_all(&greeting).await?;
    let mut known = HashMap::new();
    let (mut is_open, mut is_away) = (false, false);
    loop {
        let mut batch = Vec::new();
        loop {
            let message = read(&mut client).await?;
            if message.kind == b'X' {
                return Ok(());
            }
            if let Some(name) = message.makes() {
                known.insert(name, message.bytes.clone());
            }
            let is_last = matches!(message.kind, b'S' | b'Q');
            batch.push(message);
            if is_last {
                break;
            }
        }
        if !is_open {
            is_away = shared.moves.load(Ordering::Acquire) && !is_away;
        }
        let backend = if is_away { &mut foreign } else { &mut own };
        if is_away && !is_open {
            shared.moved.fetch_add(1, Ordering::AcqRel);
        }
        is_open = backend.passes(&batch, &known, &mut client).await?;
    }
}
