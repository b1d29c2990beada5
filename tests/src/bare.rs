//! An upstream over bare sockets, which answers when a test says: before the body has come, too.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What came in over one connection.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Whether no more can come.
    pub ended: bool,
}

/// A running one. It ends, and its connections with it, with this.
pub struct BareUpstream {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    answer: Arc<Notify>,
    server: JoinHandle<()>,
}

impl BareUpstream {
    /// Reads the head of one request, answers with these bytes once it is told, and keeps the connection
    /// open. Then it goes on reading, or reads no more.
    pub async fn start(answer: &'static str, goes_on_reading: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Received::default()));
        let answer_now = Arc::new(Notify::new());
        let (seen, told) = (Arc::clone(&received), Arc::clone(&answer_now));
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = Vec::new();
            while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a head"));
            }
            told.notified().await;
            stream.write_all(answer.as_bytes()).await.expect("it takes the answer");
            if goes_on_reading {
                read_on(&mut stream, &seen).await;
            }
            std::future::pending::<()>().await;
        });
        Self { address, received, answer: answer_now, server }
    }

    /// It is to answer, now or as soon as it can.
    pub fn answer(&self) {
        self.answer.notify_one();
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What has come behind the head so far.
    pub fn received(&self) -> Received {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for BareUpstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn read_on(stream: &mut TcpStream, seen: &Mutex<Received>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bytes.extend_from_slice(&buffer[..read]);
        seen.ended = read == 0;
        if seen.ended {
            return;
        }
    }
}
