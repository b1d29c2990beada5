//! Answers, as bytes.

use serde_json::Value;

use super::request::Request;

/// Whose answer it is said to be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Signature {
    /// With the request's own `X-Request-Id`, as gateways answer.
    Echo,
    /// With another.
    Other(String),
    /// With none, as a proxy answers.
    None,
}

/// An answer that was not sent yet.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    signature: Signature,
    chunks: Option<usize>,
    length: Option<usize>,
    close: bool,
}

impl Reply {
    /// With this status, without a body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            signature: Signature::Echo,
            chunks: None,
            length: None,
            close: false,
        }
    }

    /// With a JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status).header("content-type", "application/json").body(body.to_string())
    }

    /// A page of a proxy, without anything of a gateway.
    pub fn page(status: u16) -> Self {
        Self::new(status)
            .header("content-type", "text/html")
            .header("server", "nginx")
            .body(format!("<html><body><h1>{status}</h1></body></html>"))
            .foreign()
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// With another status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Without `X-Request-Id`.
    #[must_use]
    pub fn foreign(mut self) -> Self {
        self.signature = Signature::None;
        self
    }

    /// As the answer to another request.
    #[must_use]
    pub fn as_answer_to(mut self, request_id: &str) -> Self {
        self.signature = Signature::Other(request_id.to_owned());
        self
    }

    /// In chunks of so many bytes.
    #[must_use]
    pub fn chunked(mut self, bytes: usize) -> Self {
        self.chunks = Some(bytes.max(1));
        self
    }

    /// With a `Content-Length` that is not that of the body.
    #[must_use]
    pub fn claiming(mut self, length: usize) -> Self {
        self.length = Some(length);
        self
    }

    /// As the last of its connection.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.close = true;
        self
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection ends after it.
    pub fn closes(&self) -> bool {
        self.close
    }

    /// Head and body as they are sent in answer to the request.
    pub fn bytes(&self, request: &Request) -> (Vec<u8>, Vec<u8>) {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, phrase(self.status));
        let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        for (name, value) in &self.headers {
            add(name, value);
        }
        match &self.signature {
            Signature::Echo => {
                add("fencegate-version", env!("CARGO_PKG_VERSION"));
                add("x-request-id", request.header("x-request-id").unwrap_or("of-the-gateway"));
            }
            Signature::Other(id) => {
                add("fencegate-version", env!("CARGO_PKG_VERSION"));
                add("x-request-id", id);
            }
            Signature::None => {}
        }
        if self.close {
            add("connection", "close");
        }
        let head_only = request.method == "HEAD";
        match self.chunks {
            Some(_) if !head_only => add("transfer-encoding", "chunked"),
            _ if self.status == 204 || self.status == 304 => {}
            _ => add("content-length", &self.length.unwrap_or(self.body.len()).to_string()),
        }
        head.push_str("\r\n");
        (head.into_bytes(), if head_only { Vec::new() } else { self.encoded() })
    }

    fn encoded(&self) -> Vec<u8> {
        let Some(size) = self.chunks else { return self.body.clone() };
        let mut out = Vec::new();
        for chunk in self.body.chunks(size) {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        300..400 => "Elsewhere",
        400..500 => "Refused",
        500.. => "Failed",
        _ => "So",
    }
}
