//! A row of the table of bad inputs: what is sent, and the status and code of the answer. Requests
//! name tokens as `{live}`, `{stale}`, `{released}`, `{other}` (live on another resource) and `{never}`.

/// A bad input.
pub struct Row {
    /// What is wrong with it.
    pub name: &'static str,
    /// Its bytes, with placeholders.
    pub request: String,
    /// The status of its answer.
    pub status: u16,
    /// The code of its answer.
    pub code: &'static str,
    /// Whether the gateway must close the connection after the answer.
    pub closes: bool,
    /// Whether the caller sends no more bytes; then an answer may be missing.
    pub hangs_up: bool,
}

/// A request that leaves the connection as it is.
pub fn row(name: &'static str, request: impl Into<String>, status: u16, code: &'static str) -> Row {
    let request = request.into();
    Row { name, request, status, code, closes: false, hangs_up: false }
}

/// A call with this body.
pub fn json_to(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
