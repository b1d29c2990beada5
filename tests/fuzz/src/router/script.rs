//! Requests as text.
//!
//! Each begins with `METHOD target` and perhaps the size of the pieces in which its body comes, or `lost`
//! if the answer is never written out; then lines `name: value`, an empty line, the body. A line `%%` stands between two requests. `$0` to `$9`
//! are the tokens that were granted so far, `#0` to `#9` the ids of their locks.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use futures::stream;

use crate::{first_line, header_lines};

const BETWEEN: &[u8] = b"\n%%\n";
/// More requests add time and nothing else.
const REQUESTS_MAX: usize = 12;

/// A grant: its token, and the id of its lock, if it has one.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) token: String,
    pub(super) id: String,
}

/// A request that can be sent.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Whether the answer is lost on the way.
    pub(super) lost: bool,
    piece: usize,
}

/// The texts of the requests.
pub(super) fn split(mut input: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while found.len() < REQUESTS_MAX {
        let end = input.windows(BETWEEN.len()).position(|window| window == BETWEEN);
        found.push(&input[..end.unwrap_or(input.len())]);
        let Some(end) = end else { break };
        input = &input[end + BETWEEN.len()..];
    }
    found
}

impl Call {
    /// The request that a text describes; `None` if no client could send it.
    pub(super) fn read(text: &[u8], granted: &[Granted]) -> Option<Self> {
        let text = filled(text, granted);
        let (line, rest) = first_line(&text);
        let mut words = line.split(|byte| *byte == b' ');
        let method = Method::from_bytes(words.next()?).ok()?;
        let uri = Uri::try_from(words.next()?).ok()?;
        let last = words.next();
        let lost = last == Some(b"lost");
        let piece = last.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let (mut headers, rest) = header_lines(rest);
        // How long a body is the server has found out before the router is asked.
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        if piece.is_none() && !rest.is_empty() {
            headers.insert(header::CONTENT_LENGTH, rest.len().into());
        }
        headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
        Some(Self { method, uri, headers, body: rest.to_vec(), lost, piece: piece.unwrap_or(0) })
    }

    /// The request itself.
    pub(super) fn request(&self) -> Request<Body> {
        let body = match self.piece {
            0 => Body::from(self.body.clone()),
            piece => {
                let pieces = self.body.chunks(piece).map(Bytes::copy_from_slice);
                let pieces: Vec<_> = pieces.map(Ok::<_, Infallible>).collect();
                Body::from_stream(stream::iter(pieces))
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// All that it says beside the token under which it writes.
    pub(super) fn said(&self) -> Vec<u8> {
        let mut said = self.uri.to_string().into_bytes();
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != "x-fence-token") {
            said.extend_from_slice(name.as_str().as_bytes());
            said.push(b':');
            said.extend_from_slice(value.as_bytes());
            said.push(b'\n');
        }
        said.extend_from_slice(&self.body);
        said
    }
}

/// Puts tokens and ids in the places that are kept for them.
fn filled(text: &[u8], granted: &[Granted]) -> Vec<u8> {
    let mut filled = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        let digit = rest.peek().filter(|digit| digit.is_ascii_digit() && b"$#".contains(&byte));
        let grant = digit.and_then(|digit| granted.get(usize::from(digit - b'0')));
        match grant {
            Some(grant) => {
                let word = if byte == b'$' { &grant.token } else { &grant.id };
                filled.extend_from_slice(word.as_bytes());
                rest.next();
            }
            None => filled.push(byte),
        }
    }
    filled
}
