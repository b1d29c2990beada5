//! The least of HTTP/1.1: one request after the other on one connection, as cheap for the machine as it can
//! be, since the load generator shares it with what it measures.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// How many connections leave from one address: less than there are ports for it.
const PER_ADDRESS: usize = 10_000;

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer; its body is in the connection's buffer until the next request.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::open_numbered(address, 0).await
    }

    /// Opens one of very many, which leave from several addresses of this machine, since each address has
    /// only so many ports.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn open_numbered(address: SocketAddr, number: usize) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Where all are few, the system chooses, as it does for everybody.
        if number >= PER_ADDRESS {
            let last = u8::try_from(1 + number / PER_ADDRESS).context("too many connections")?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into())?;
        }
        let stream = socket.connect(address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4 * 1024) })
    }

    /// Sends a request, whole, and takes the whole answer.
    ///
    /// # Errors
    /// A connection that breaks, an answer that is none.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let (status, head, length) = loop {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the connection ended");
            if let Some(head) = head_of(&self.buffer)? {
                break head;
            }
        };
        while self.buffer.len() < head + length {
            ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the connection ended");
        }
        Ok(Answer { status, body: &self.buffer[head..head + length] })
    }
}

/// Status, length of the head and of the body, once the head is there.
fn head_of(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes)? else { return Ok(None) };
    let status = response.code.context("no status")?;
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .map(|header| std::str::from_utf8(header.value)?.parse::<usize>().context("a length"))
        .transpose()?;
    match length {
        Some(length) => Ok(Some((status, head, length))),
        None if status == 204 => Ok(Some((status, head, 0))),
        None => bail!("an answer without a length"),
    }
}

/// A request with a body.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
