//! The parts of a `multipart/form-data` body, one after the other, within times and flat in memory.
//!
//! What senders do not send is refused, not repaired: text before the first part or after the last,
//! padding behind a boundary, names with escapes.

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::{Bytes, BytesMut};
use fence_core::ErrorCode;

use super::body::{Chunks, Incoming};
use super::headers::{not_encoded, single};
use crate::http::problem::Problem;

/// The most bytes of the headers of one part.
const HEADER_BYTES_MAX: usize = 8 * 1024;
/// The longest name of a part, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The longest boundary (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Smaller pieces are copied, so that they do not keep in memory what was read together with them.
const COPIED_BELOW: usize = 16 * 1024;
const LINE_END: &[u8] = b"\r\n";

/// A body in parts.
pub struct Parts {
    /// The rest of the body; in it the times.
    pub incoming: Incoming,
    /// The end of a line, two dashes and the boundary.
    delimiter: Vec<u8>,
    /// What was read and not given out yet. Begins with an end of line that the first boundary lacks.
    buffer: BytesMut,
    /// Whether bytes of the part begun last are still to come.
    inside: bool,
}

/// The head of a part.
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its headers.
    pub headers: HeaderMap,
}

impl Parts {
    /// Looks at the headers of a request for the boundary of its body.
    ///
    /// # Errors
    /// `unsupported-media-type` unless it is a form in parts.
    pub fn boundary(headers: &HeaderMap) -> Result<String, Problem> {
        not_encoded(headers)?;
        let wrong = || {
            let why = "send Content-Type: multipart/form-data with a boundary";
            Problem::new(ErrorCode::UnsupportedMediaType, why)
        };
        let value = single(headers, header::CONTENT_TYPE.as_str())?.ok_or_else(wrong)?;
        let text = std::str::from_utf8(value).map_err(|_| wrong())?;
        let (kind, parameters) = parameters(text).ok_or_else(wrong)?;
        let mut boundaries = parameters.iter().filter(|(name, _)| *name == "boundary");
        let good = |text: &str| {
            (1..=BOUNDARY_BYTES_MAX).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&b))
        };
        match (kind.as_str(), boundaries.next(), boundaries.next()) {
            ("multipart/form-data", Some((_, boundary)), None) if good(boundary) => {
                Ok(boundary.clone())
            }
            _ => Err(wrong()),
        }
    }

    /// The parts of this body.
    pub fn new(incoming: Incoming, boundary: &str) -> Self {
        let delimiter = [LINE_END, b"--", boundary.as_bytes()].concat();
        Self { incoming, delimiter, buffer: BytesMut::from(LINE_END), inside: false }
    }

    /// The head of the next part, once the one before was read to its end; `None` at the end of all.
    ///
    /// # Errors
    /// `body-malformed`; what the body itself comes to.
    pub async fn next(&mut self) -> Result<Option<Part>, Problem> {
        if self.inside {
            return Err(malformed("a part was not expected to have a body"));
        }
        let length = self.delimiter.len();
        self.fill(length + 2).await?;
        if !self.buffer.starts_with(&self.delimiter) {
            return Err(malformed("the body does not begin with its boundary"));
        }
        let after = &self.buffer[length..length + 2];
        if after == b"--" {
            let _ = self.buffer.split_to(length + 2);
            return self.end().await.map(|()| None);
        }
        if after != LINE_END {
            return Err(malformed("there is something behind a boundary"));
        }
        let _ = self.buffer.split_to(length + 2);
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line(HEADER_BYTES_MAX).await?;
            if line.is_empty() {
                break;
            }
            let size: usize = headers.iter().map(|(_, value): (_, &HeaderValue)| value.len()).sum();
            if headers.len() >= 16 || size + line.len() > HEADER_BYTES_MAX {
                return Err(malformed("the headers of a part are too large"));
            }
            let (name, value) = field(&line).ok_or_else(|| malformed("a header of a part"))?;
            headers.append(name, value);
        }
        self.inside = true;
        let name = name(&headers)?;
        Ok(Some(Part { name, headers }))
    }

    /// Behind the last boundary there is nothing but perhaps the end of its line.
    async fn end(&mut self) -> Result<(), Problem> {
        while self.buffer.len() <= LINE_END.len() {
            match self.incoming.next().await? {
                Some(data) => self.buffer.extend_from_slice(&data),
                None if self.buffer.is_empty() || self.buffer == LINE_END => return Ok(()),
                None => break,
            }
        }
        Err(malformed("there is something behind the last part"))
    }

    /// The next line, without its end.
    async fn line(&mut self, max: usize) -> Result<Bytes, Problem> {
        loop {
            if let Some(end) = find(&self.buffer, LINE_END) {
                let line = self.buffer.split_to(end).freeze();
                let _ = self.buffer.split_to(LINE_END.len());
                return Ok(line);
            }
            if self.buffer.len() > max {
                return Err(malformed("the headers of a part are too large"));
            }
            self.more().await?;
        }
    }

    async fn fill(&mut self, length: usize) -> Result<(), Problem> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<(), Problem> {
        let data = self.incoming.next().await?;
        let data = data.ok_or_else(|| malformed("the body ends before its last boundary"))?;
        self.buffer.extend_from_slice(&data);
        Ok(())
    }
}

#[async_trait]
impl Chunks for Parts {
    /// The next bytes of the part; `None` at its end.
    ///
    /// # Errors
    /// What the body itself comes to.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        while self.inside {
            let whole = find(&self.buffer, &self.delimiter);
            // What could be the beginning of the boundary waits for the rest.
            let open = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            let ready = whole.unwrap_or(open);
            self.inside = whole.is_none();
            if ready > 0 {
                let bytes = self.buffer.split_to(ready);
                return Ok(Some(match ready < COPIED_BELOW {
                    true => Bytes::copy_from_slice(&bytes),
                    false => bytes.freeze(),
                }));
            }
            if self.inside {
                self.more().await?;
            }
        }
        Ok(None)
    }
}

fn malformed(why: &str) -> Problem {
    Problem::new(
        ErrorCode::BodyMalformed,
        format!("the multipart body: {why}; nothing was applied"),
    )
    .and_close()
}

/// Where `wanted` begins, which begins with a carriage return.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\r') {
        if bytes[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn field(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
    Some((name, value))
}

/// The name of a part. Senders escape quotes in different ways, so names with any are refused.
fn name(headers: &HeaderMap) -> Result<String, Problem> {
    let wrong =
        || malformed("each part has a Content-Disposition of form-data with one plain name");
    let value = single(headers, header::CONTENT_DISPOSITION.as_str())?.ok_or_else(wrong)?;
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let (kind, parameters) = parameters(text).ok_or_else(wrong)?;
    // `name*` gives the name in another way, which readers that know it prefer.
    let is_name = |name: &str| name == "name" || name.starts_with("name*");
    let mut names = parameters.into_iter().filter(|(name, _)| is_name(name));
    match (kind.as_str(), names.next(), names.next()) {
        ("form-data", Some((key, name)), None) if key == "name" && is_part_name(&name) => Ok(name),
        _ => Err(wrong()),
    }
}

/// 1 to 255 visible ASCII characters without quotes and backslashes.
pub fn is_part_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
}

/// `kind; name=value; other="value"`, the kind and the names in lower case.
fn parameters(text: &str) -> Option<(String, Vec<(String, String)>)> {
    let space = [' ', '\t'];
    let (kind, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
    let mut found = Vec::new();
    while let Some(parameter) = rest.strip_prefix(';') {
        let (name, value) = parameter.trim_start_matches(space).split_once('=')?;
        let value_end = match value.strip_prefix('"') {
            Some(quoted) => quoted_end(quoted)? + 2,
            None => value.find([';', ' ', '\t']).unwrap_or(value.len()),
        };
        let (value, after) = value.split_at(value_end);
        let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
        if !is_token(name) {
            return None;
        }
        found.push((name.to_ascii_lowercase(), value.to_owned()));
        rest = after.trim_start_matches(space);
    }
    rest.is_empty().then(|| (kind.trim_end_matches(space).to_ascii_lowercase(), found))
}

/// A word as HTTP has them.
fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// Where the quotes end. What a backslash stands before does not end them.
fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => return Some(at),
            _ => escaped = letter == '\\' && !escaped,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use axum::body::Body;
    use futures::stream;
    use std::time::Duration;

    use crate::http::state::Limits;

    /// The names and bodies of the parts, read in pieces of so many bytes.
    async fn read(body: &str, piece: usize) -> Result<Vec<(String, String)>, ErrorCode> {
        let pieces: Vec<_> = body
            .as_bytes()
            .chunks(piece)
            .map(|bytes| Ok::<_, Infallible>(Bytes::copy_from_slice(bytes)))
            .collect();
        let body = Body::from_stream(stream::iter(pieces));
        let incoming = Incoming::new(body, &Limits::default(), Duration::from_secs(60));
        let mut parts = Parts::new(incoming, "XX");
        let mut found = Vec::new();
        while let Some(part) = parts.next().await.map_err(|problem| problem.code())? {
            let mut bytes = Vec::new();
            while let Some(chunk) = parts.chunk().await.map_err(|problem| problem.code())? {
                assert!(!chunk.is_empty());
                bytes.extend_from_slice(&chunk);
            }
            found.push((part.name, String::from_utf8(bytes).unwrap()));
        }
        Ok(found)
    }

    fn part(name: &str, body: &str) -> String {
        format!("--XX\r\nContent-Disposition: form-data; name={name}\r\n\r\n{body}\r\n")
    }

    #[tokio::test]
    async fn parts_are_read_whatever_pieces_they_come_in() {
        let tricky = "\r\n--X\r\n--\r\r\n--X X\n--XX\r\n-";
        let body = [part("\"a\"", "one"), part("b", ""), part("c; filename=\"x;\\\"y\"", tricky)];
        let body = body.concat();
        let expected = [("a", "one"), ("b", ""), ("c", tricky)];
        let expected: Vec<_> =
            expected.iter().map(|(name, body)| (name.to_string(), body.to_string())).collect();
        for piece in 1..60 {
            for end in ["--XX--", "--XX--\r\n"] {
                let found = read(&format!("{body}{end}"), piece).await;
                assert_eq!(found, Ok(expected.clone()), "{piece}");
            }
        }
        assert_eq!(read("--XX--\r\n", 3).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn what_is_not_well_formed_is_refused() {
        let good = part("a", "one");
        for bad in [
            String::new(),
            "--X".into(),
            "--XX".into(),
            good.clone(),
            format!("{good}--XX-"),
            format!("{good}--XX--\r\n\r\n"),
            format!("{good}--XX--more"),
            format!("text\r\n{good}--XX--"),
            format!("{good}--XX \r\n"),
            "--XX\r\n\r\nno head\r\n--XX--".into(),
            "--XX\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--XX--".into(),
            "--XX\r\nContent-Disposition: form-data\r\n\r\n\r\n--XX--".into(),
            "--XX\r\nContent-Disposition form-data; name=a\r\n\r\n\r\n--XX--".into(),
            "--XX\r\nContent-Disposition: form-data; name=a\r\n b=c\r\n\r\n\r\n--XX--".into(),
            format!("{}--XX--", part("a; name=b", "")),
            format!("{}--XX--", part("a; name*=b", "")),
            format!("{}--XX--", part("a; name*0=b", "")),
            format!("{}--XX--", part("a; filename", "")),
            format!("{}--XX--", part("a;;", "")),
            format!("{}--XX--", part("a; ", "")),
            format!("{}--XX--", part(" a", "")),
            format!("{}--XX--", part("a b", "")),
            format!("{}--XX--", part("\" a \"", "")),
            format!("{}--XX--", part("a", "").replace("name=", "name =")),
            format!("{}--XX--", part("a", "").replace("name=", ";name=")),
            format!("{}--XX--", part("a", "").replace("name=", "name*=")),
            format!("{}--XX--", part("\"a\\\"b\"", "")),
            format!("{}--XX--", part("\"\"", "")),
            format!("{}--XX--", part("\"a", "")),
            format!("{}--XX--", part("é", "")),
            format!("--XX\r\nA: {}\r\n\r\n\r\n--XX--", "x".repeat(9000)),
            format!("--XX\r\n{}\r\n\r\n--XX--", "A: x\r\n".repeat(20)),
        ] {
            for piece in [1, 7, 10_000] {
                let found = read(&bad, piece).await;
                assert_eq!(found, Err(ErrorCode::BodyMalformed), "{bad:?}");
            }
        }
    }

    #[test]
    fn a_boundary_is_told_by_the_content_type() {
        let boundary = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            Parts::boundary(&headers).ok()
        };
        assert_eq!(boundary("multipart/form-data; boundary=ab").as_deref(), Some("ab"));
        assert_eq!(boundary("Multipart/Form-Data;boundary=\"a:b\"; x=y").as_deref(), Some("a:b"));
        for bad in [
            "multipart/form-data",
            "multipart/mixed; boundary=ab",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=a b",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data;; boundary=ab",
            "multipart/form-data; boundary= ab",
            "multipart/form-data; boundary=ab;",
            "multipart/form-data; boundary=\"a",
            "application/json",
        ] {
            assert_eq!(boundary(bad), None, "{bad}");
        }
        assert!(Parts::boundary(&HeaderMap::new()).is_err());
    }
}
