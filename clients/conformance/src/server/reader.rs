//! Reads heads and bodies of HTTP/1.1 requests.

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::request::Request;

/// The most of a head.
const HEAD_MAX: usize = 64 * 1024;

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunked,
}

/// A connection, and what was read of it too early.
pub struct Reader {
    /// The connection.
    pub stream: TcpStream,
    early: Vec<u8>,
    length: Length,
    expects: bool,
}

impl Reader {
    /// A reader of a new connection.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, early: Vec::new(), length: Length::Bytes(0), expects: false }
    }

    /// The next head; `None` if the connection ends before one begins.
    pub async fn head(&mut self) -> Result<Option<Request>> {
        loop {
            if let Some(end) = self.early.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.early.drain(..end + 4).collect();
                return self.parse(&head).map(Some);
            }
            ensure!(self.early.len() < HEAD_MAX, "the head of a request is too long");
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    fn parse(&mut self, head: &[u8]) -> Result<Request> {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut headers);
        parsed.parse(head).context("this is no HTTP request")?;
        let target = parsed.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let named = |header: &httparse::Header<'_>| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        };
        let request = Request {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: parsed.headers.iter().map(named).collect(),
            ..Request::default()
        };
        self.length = match request.header("content-length") {
            Some(length) => Length::Bytes(length.parse().context("a length is a number")?),
            None if request.has("transfer-encoding") => Length::Chunked,
            None => Length::Bytes(0),
        };
        self.expects = request.has("expect");
        Ok(request)
    }

    /// Whether the body of the last head is empty.
    pub fn no_body(&self) -> bool {
        self.length == Length::Bytes(0)
    }

    /// The body of the last head.
    pub async fn body(&mut self) -> Result<Vec<u8>> {
        if std::mem::take(&mut self.expects) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let length = std::mem::replace(&mut self.length, Length::Bytes(0));
        match length {
            Length::Bytes(length) => self.exactly(length).await,
            Length::Chunked => self.chunks().await,
        }
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16).context("a chunk has a length")?;
            let chunk = self.exactly(length).await?;
            body.extend(chunk);
            self.line().await?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.early.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.early.drain(..end + 2).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if !self.more().await? {
                bail!("the body breaks off");
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.early.len() < length {
            if !self.more().await? {
                bail!("the body breaks off");
            }
        }
        Ok(self.early.drain(..length).collect())
    }

    /// Reads so many bytes more of the body, and keeps them for it.
    pub async fn some(&mut self, bytes: usize) -> Result<()> {
        let until = self.early.len() + bytes;
        while self.early.len() < until {
            ensure!(self.more().await?, "the body breaks off");
        }
        Ok(())
    }

    /// Reads on; false at the end of the connection.
    pub async fn more(&mut self) -> Result<bool> {
        let mut buffer = [0; 64 * 1024];
        let read = self.stream.read(&mut buffer).await?;
        self.early.extend_from_slice(buffer.get(..read).unwrap_or_default());
        Ok(read > 0)
    }

    /// Throws away whatever comes, until the other side closes.
    pub async fn drain(&mut self) {
        let mut buffer = [0; 64 * 1024];
        while matches!(self.stream.read(&mut buffer).await, Ok(read) if read > 0) {}
    }
}
