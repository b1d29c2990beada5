//! HTTP/1.1 over a bare socket: sends exactly the bytes it is given, for requests that no client
//! library would send.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::secrets;

/// Where credentials are looked for in what is sent.
const HEAD_BYTES: usize = 32 * 1024;

/// An answer as it stood on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawAnswer {
    /// The status.
    pub status: u16,
    /// The headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, with chunks put together.
    pub body: Vec<u8>,
    /// Whether a `100 Continue` came before it.
    pub continued: bool,
}

impl RawAnswer {
    /// The value of the first header with this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `Null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The `code` of a problem document; empty if it is none.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection over which bytes go as they are.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    /// Bytes that were read but not yet used.
    buffer: Vec<u8>,
}

impl RawConnection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gateway takes connections");
        stream.set_nodelay(true).expect("a socket can send at once");
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes. An error is no matter: a server may answer and close before it read all.
    pub async fn send(&mut self, bytes: &[u8]) {
        let gateway = self.stream.peer_addr();
        let head = &bytes[..bytes.len().min(HEAD_BYTES)];
        for line in String::from_utf8_lossy(head).lines() {
            let shown =
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            if let (Ok(gateway), Some((_, shown))) = (&gateway, shown) {
                secrets::note(*gateway, shown.trim());
            }
        }
        let _sent = self.stream.write_all(bytes).await;
    }

    /// Sends bytes one at a time with a pause after each, until all are sent or the server closes.
    pub async fn drip(&mut self, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            if self.stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Says that no more bytes will come; answers can still be read.
    pub async fn finish(&mut self) {
        // An error means that the server has closed already.
        let _closed = self.stream.shutdown().await;
    }

    /// Hangs up at once with a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("a socket can be reset");
    }

    /// Reads one answer; `None` if the server closed without one.
    pub async fn answer(&mut self) -> Option<RawAnswer> {
        self.read_answer(false).await
    }

    /// Reads one answer to a HEAD request: it has no body whatever its headers say.
    pub async fn head_answer(&mut self) -> Option<RawAnswer> {
        self.read_answer(true).await
    }

    /// Reads one head and no body, of an interim answer such as `100 Continue`; its status.
    pub async fn interim(&mut self) -> Option<u16> {
        self.head().await.map(|(status, _)| status)
    }

    /// Whether the server has closed the connection: waits for the end and expects no more bytes.
    pub async fn closed(&mut self) -> bool {
        self.buffer.is_empty() && self.fill().await == 0
    }

    async fn read_answer(&mut self, head: bool) -> Option<RawAnswer> {
        let mut continued = false;
        loop {
            let (status, headers) = self.head().await?;
            if (100..200).contains(&status) {
                continued |= status == 100;
                continue;
            }
            let mut answer = RawAnswer { status, headers, body: Vec::new(), continued };
            if !head && status != 204 && status != 304 {
                answer.body = self.body(&answer).await;
            }
            return Some(answer);
        }
    }

    async fn head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.fill().await == 0 {
                return None;
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not an HTTP answer: {head}"));
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some((status, headers))
    }

    async fn body(&mut self, answer: &RawAnswer) -> Vec<u8> {
        if answer.header("transfer-encoding") == Some("chunked") {
            return self.chunks().await;
        }
        let Some(length) = answer.header("content-length") else {
            while self.fill().await > 0 {}
            return std::mem::take(&mut self.buffer);
        };
        let length = length.parse().expect("a content length is a number");
        self.take(length).await
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(end) = find(&self.buffer, b"\r\n") {
                    break self.buffer.drain(..end + 2).collect::<Vec<_>>();
                }
                assert!(self.fill().await > 0, "the answer ends in the middle of a chunk");
            };
            let size = String::from_utf8_lossy(&line).trim().to_owned();
            let size = usize::from_str_radix(&size, 16).expect("a chunk size is hexadecimal");
            body.extend(self.take(size).await);
            self.take(2).await;
            if size == 0 {
                return body;
            }
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.fill().await > 0, "the answer ends before its {length} bytes");
        }
        self.buffer.drain(..length).collect()
    }

    /// Reads some bytes; 0 at the end, also if the server reset the connection.
    async fn fill(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        let read = timeout(DEADLINE, self.stream.read(&mut bytes)).await;
        let read = read.expect("the gateway answers within the deadline").unwrap_or(0);
        self.buffer.extend_from_slice(&bytes[..read]);
        read
    }
}

/// Sends one request over a connection of its own and reads the answer; `None` if the server
/// closed without one.
pub async fn exchange(address: SocketAddr, request: &[u8]) -> Option<RawAnswer> {
    let mut connection = RawConnection::open(address).await;
    connection.send(request).await;
    connection.answer().await
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
