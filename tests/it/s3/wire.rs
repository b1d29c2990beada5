//! Something between the clients and the gateway: it sees each request, and loses answers.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_tests::process::loopback;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long what a client still sends is read after it was answered.
const LINGERS: Duration = Duration::from_secs(5);
/// No head is longer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// What an interim answer begins with.
const GO_ON: &[u8] = b"HTTP/1.1 100";

/// A request, and how it was answered.
#[derive(Debug, Clone)]
pub struct Seen {
    method: String,
    /// Its path and query.
    pub target: String,
    head: String,
    /// The status of the answer, once it has come.
    pub status: Option<u16>,
    /// The first code of an error in it.
    pub code: Option<String>,
}

impl Seen {
    /// The value of one of its headers.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// Whether the fence kept it out.
    pub fn is_fenced(&self) -> bool {
        self.code.as_deref().is_some_and(|code| code.starts_with("FenceToken"))
    }

    /// Whether it asks for the same.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (&self.method, &self.target) == (&other.method, &other.target)
    }

    /// Whether it is of this method, and for something with this in its path or query.
    fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.target.contains(part)
    }
}

/// An answer to be lost.
struct Loss {
    method: &'static str,
    part: &'static str,
}

struct Shared {
    target: u16,
    seen: Mutex<Vec<Seen>>,
    losses: Mutex<Vec<Loss>>,
}

/// It ends with this.
pub struct Wire {
    port: u16,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Wire {
    /// Starts it before a gateway that listens, or will, on this port.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, losses) = Default::default();
        let shared = Arc::new(Shared { target, seen, losses });
        let serving = Arc::clone(&shared);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // A connection that breaks is the client's affair.
                tokio::spawn(async move { serve(client, &shared).await });
            }
        });
        Self { port, shared, listener }
    }

    /// Where clients are to go.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Loses the answer to the next request of this method that has this in its path or query.
    pub fn lose_answer(&self, method: &'static str, part: &'static str) {
        self.shared.losses.lock().unwrap().push(Loss { method, part });
    }

    /// The requests so far, which are forgotten here.
    pub fn take(&self) -> Vec<Seen> {
        assert!(self.shared.losses.lock().unwrap().is_empty(), "an answer was to be lost");
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }
}

impl Shared {
    /// Notes a request: its place, and whether its answer is to be lost.
    fn note(&self, seen: Seen) -> (usize, bool) {
        let mut losses = self.losses.lock().unwrap();
        let loss = losses.iter().position(|loss| seen.is(loss.method, loss.part));
        loss.map(|at| losses.remove(at));
        let mut all = self.seen.lock().unwrap();
        all.push(seen);
        (all.len() - 1, loss.is_some())
    }

    fn note_answer(&self, at: usize, answer: &[u8]) {
        let text = String::from_utf8_lossy(answer);
        let status = text.get(9..12).and_then(|status| status.parse().ok());
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        if let Some(seen) = self.seen.lock().unwrap().get_mut(at) {
            seen.status = status;
            seen.code = code.map(|(code, _)| code.to_owned());
        }
    }
}

/// Serves one request of a connection; the answer closes it.
async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some((head, rest)) = read_head(&mut client).await? else { return Ok(()) };
    let mut words = head.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let closing = format!("{head}connection: close\r\n\r\n");
    let (at, is_lost) = shared.note(Seen { target, method, head, status: None, code: None });
    let mut gateway = TcpStream::connect(loopback(shared.target)).await?;
    gateway.write_all(closing.as_bytes()).await?;
    gateway.write_all(&rest).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_gateway, mut to_gateway) = gateway.split();
    let up = async {
        // Whichever end breaks, it is the answer that counts.
        let _broken = tokio::io::copy(&mut from_client, &mut to_gateway).await;
        std::future::pending::<()>().await;
    };
    let down = async {
        let (mut answer, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            let length = from_gateway.read(&mut piece).await.unwrap_or(0);
            if length == 0 {
                break;
            }
            let piece = &piece[..length];
            if answer.is_empty() && piece.starts_with(GO_ON) {
                to_client.write_all(piece).await?;
                continue;
            }
            if answer.len() < HEAD_BYTES_MAX {
                answer.extend_from_slice(piece);
                shared.note_answer(at, &answer);
            }
            if !is_lost {
                to_client.write_all(piece).await?;
            }
        }
        to_client.shutdown().await
    };
    let ended = tokio::select! {
        ended = down => ended,
        () = up => unreachable!("it never ends"),
    };
    // A client that is still sending would not see its answer if this were closed at once.
    let rest = async { tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await };
    let _late = tokio::time::timeout(LINGERS, rest).await;
    ended
}

/// A head without its last empty line, and what came behind it; `None` if the client closed without one.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            bytes.truncate(end + 2);
            return Ok(Some((String::from_utf8(bytes).unwrap(), rest)));
        }
        if client.read_buf(&mut bytes).await? == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}
