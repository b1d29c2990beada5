//! Bodies in parts: a line with a `Content-Type`, a line with the sizes of the pieces in which the body
//! comes (one byte each), then the body.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use fence_core::ErrorCode;
use fencegate::http::Limits;
use fencegate::http::extract::{Chunks as _, Incoming, MultipartParts, is_part_name};
use futures::stream;

use crate::first_line;

type Parts = Vec<(String, Vec<u8>)>;

/// The pieces in which a body comes change nothing, and what is taken, written anew, is taken as the same.
pub fn multipart(input: &[u8]) {
    let (content_type, rest) = first_line(input);
    let (sizes, body) = first_line(rest);
    let Some(boundary) = boundary(content_type) else { return };
    let whole = read(body, &[body.len().max(1)], &boundary);
    let sizes: Vec<usize> = sizes.iter().map(|size| usize::from(*size).max(1)).collect();
    for pieces in [&sizes[..], &[1], &[boundary.len() + 3]] {
        assert_eq!(read(body, pieces, &boundary), whole, "in pieces of {pieces:?}");
    }
    let Ok(parts) = whole else { return };
    for (name, bytes) in &parts {
        assert!(is_part_name(name), "{name:?}");
        let within = |part: &[u8]| body.windows(part.len().max(1)).any(|window| window == part);
        assert!(bytes.is_empty() || within(bytes));
        assert!(!bytes.windows(boundary.len() + 4).any(|window| {
            window.starts_with(b"\r\n--") && window.ends_with(boundary.as_bytes())
        }));
    }
    let (boundary, written) = write(&parts);
    assert_eq!(read(&written, &[7], &boundary), Ok(parts));
}

/// The boundary that a `Content-Type` names; it is found in every way of writing it.
fn boundary(content_type: &[u8]) -> Option<String> {
    let of = |value: HeaderValue| {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, value);
        MultipartParts::boundary(&headers).ok()
    };
    let boundary = of(HeaderValue::from_bytes(content_type).ok()?)?;
    assert!((1..=70).contains(&boundary.len()) && boundary.is_ascii());
    let written = format!("multipart/form-data; boundary=\"{boundary}\"");
    assert_eq!(of(HeaderValue::from_str(&written).unwrap()).as_ref(), Some(&boundary));
    Some(boundary)
}

/// The parts of a body that comes in pieces of these sizes, over and over.
fn read(body: &[u8], sizes: &[usize], boundary: &str) -> Result<Parts, ErrorCode> {
    let mut pieces = Vec::new();
    let (mut rest, mut sizes) = (body, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(usize::MAX).min(rest.len());
        pieces.push(Ok::<_, Infallible>(Bytes::copy_from_slice(&rest[..size])));
        rest = &rest[size..];
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let body = Body::from_stream(stream::iter(pieces));
        let incoming = Incoming::new(body, &Limits::default(), Duration::from_secs(3600));
        let mut parts = MultipartParts::new(incoming, boundary);
        let mut found = Parts::new();
        while let Some(part) = parts.next().await.map_err(|problem| problem.code())? {
            let mut bytes = Vec::new();
            while let Some(chunk) = parts.chunk().await.map_err(|problem| problem.code())? {
                bytes.extend_from_slice(&chunk);
            }
            found.push((part.name, bytes));
        }
        Ok(found)
    })
}

/// Writes parts behind a boundary that none of them holds.
fn write(parts: &Parts) -> (String, Vec<u8>) {
    let holds = |boundary: &str, bytes: &[u8]| {
        bytes.windows(boundary.len()).any(|window| window == boundary.as_bytes())
    };
    let free = |boundary: &String| !parts.iter().any(|(_, bytes)| holds(boundary, bytes));
    let boundary = (0..).map(|number| format!("b{number}")).find(free).unwrap();
    let mut written = Vec::new();
    for (name, bytes) in parts {
        let head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        written.extend_from_slice(head.as_bytes());
        written.extend_from_slice(bytes);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (boundary, written)
}
