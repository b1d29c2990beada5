//! Where requests begin and end: a line with the sizes of pieces (one byte each), then the bytes of a
//! connection.
//!
//! The gateway watches the stream that hyper reads, since hyper forgets what requests are smuggled with.
//! If the two took another view of the same bytes, a mark would go to the wrong request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, Method, Request, Response, Version, header};
use fencegate::http::{Watched, watched};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

use crate::first_line;

/// The pieces change nothing; the count of heads is that of the requests that hyper serves; and the first
/// request is marked if it has two lengths or a fragment, and no request is without reason.
pub fn framing(input: &[u8]) {
    let (sizes, stream) = first_line(input);
    let seen = watched([stream].into_iter());
    assert_eq!(watched(stream.chunks(1)), seen);
    let mut rest = stream;
    let pieces = sizes.iter().cycle().map_while(|size| {
        let (piece, more) =
            rest.split_at(usize::from(*size).clamp(1, rest.len().max(1)).min(rest.len()));
        rest = more;
        (!piece.is_empty()).then_some(piece)
    });
    if !sizes.is_empty() {
        assert_eq!(watched(pieces), seen);
    }
    // White space in a header is passed over; where it would matter hyper takes none.
    let dense: Vec<u8> = stream.iter().copied().filter(|byte| !b" \t".contains(byte)).collect();
    let has =
        |word: &[u8]| dense.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word));
    let length = has(b"content-length") || has(b"transfer-encoding");
    assert!(seen.unclear_length == 0 || length);
    assert!(seen.fragment == 0 || has(b"#"));
    compare(stream, seen);
}

/// A request, as hyper gave it out.
struct Served {
    coded: bool,
    goes_on: bool,
}

fn compare(stream: &[u8], seen: Watched) {
    let (served, whole) = serve(stream);
    if seen.lost {
        return;
    }
    let count = served.len() as u64;
    assert!(seen.heads >= count, "{seen:?}, hyper served {count}");
    // After a request with both lengths hyper takes no other; nor do we after one that is unclear.
    if whole && seen.unclear_length == 0 && served.iter().all(|request| request.goes_on) {
        assert_eq!(seen.heads, count, "{seen:?}");
    }
    let Some(first) = served.first() else { return };
    let (line, headers) = head(stream);
    let values = |name: &str| {
        let split = headers.iter().filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b':')?;
            line[..at].eq_ignore_ascii_case(name.as_bytes()).then(|| line[at + 1..].trim_ascii())
        });
        split.collect::<Vec<_>>()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    let one_way = match (&lengths[..], &codings[..]) {
        ([] | [_], []) => true,
        ([], [coding]) => coding.eq_ignore_ascii_case(b"chunked"),
        _ => false,
    };
    // hyper alone says whether it took a header for one.
    if first.coded || codings.is_empty() {
        assert_eq!(seen.unclear_length == 1, !one_way);
    }
    if !line.is_empty() {
        assert_eq!(seen.bare_newline == 1, has_bare_newline(stream), "{seen:?}");
    }
    if line.contains(&b'#') {
        assert_eq!(seen.fragment, 1);
    }
}

/// Whether a line of the first head, or an empty one before it, ends without a carriage return.
fn has_bare_newline(stream: &[u8]) -> bool {
    let mut begun = false;
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        let text = bare.strip_suffix(b"\r").unwrap_or(bare);
        if bare.len() == text.len() {
            return true;
        }
        if begun && text.is_empty() {
            return false;
        }
        begun |= !text.is_empty();
    }
    false
}

/// The request line and the header lines of the first request.
fn head(stream: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let bare = |line| <[u8]>::strip_suffix(line, b"\r").unwrap_or(line);
    let lines = stream.split(|byte| *byte == b'\n').map(bare);
    // Empty lines before a request line are passed over.
    let mut lines = lines.skip_while(|line| line.is_empty());
    let line = lines.next().unwrap_or_default();
    (line, lines.take_while(|line| !line.is_empty()).collect())
}

/// What hyper serves of these bytes, and whether it came to their end without an error.
fn serve(stream: &[u8]) -> (Vec<Served>, bool) {
    let served = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&served);
    let service = service_fn(move |request: Request<Incoming>| {
        let into = Arc::clone(&into);
        async move {
            let (head, body) = request.into_parts();
            let goes_on = goes_on(&head.method, head.version, &head.headers);
            let coded = head.headers.contains_key(header::TRANSFER_ENCODING);
            // After a body that breaks off there is no other request.
            let goes_on = body.collect().await.is_ok() && goes_on;
            into.lock().unwrap().push(Served { coded, goes_on });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let whole = runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(stream.len().max(1) * 512);
        client.write_all(stream).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = http1::Builder::new();
        builder.half_close(true).max_buf_size(64 * 1024).max_headers(128);
        builder.serve_connection(TokioIo::new(server), service).await.is_ok()
    });
    let served = std::mem::take(&mut *served.lock().unwrap());
    (served, whole)
}

/// Whether hyper may take another request after this one.
fn goes_on(method: &Method, version: Version, headers: &HeaderMap) -> bool {
    let ends = [header::CONNECTION, header::UPGRADE].iter().any(|name| headers.contains_key(name));
    version == Version::HTTP_11 && *method != Method::CONNECT && !ends
}
