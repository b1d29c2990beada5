//! Bodies that are not what was signed or announced: of objects and of parts, small and large, whole and in chunks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fence_tests::s3::{Key, Request, Signed, Trailer};
use fencegate_s3::sign::PayloadHash;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::refused::{Row, refuse_all, row};
use super::rig::{A, INLINE_BYTES_MAX, R, Site};
use crate::setup::{SetUp, on_both};

on_both!(bodies_that_are_not_what_was_said_are_refused, smuggled_chunks_are_refused);

/// What an object may have at most here, in bytes.
const OBJECT_BYTES_MAX: usize = 6 << 20;
/// How long chunks are, in bytes.
const CHUNK: usize = 8192;
/// Trailers have the checksum of this length.
const CRC32: &str = "x-amz-checksum-crc32";

const INCOMPLETE: (u16, &str) = (400, "IncompleteBody");
const NO_MATCH: (u16, &str) = (403, "SignatureDoesNotMatch");
const DIGEST: (u16, &str) = (400, "BadDigest");

/// What a body is for.
#[derive(Clone)]
struct Target {
    what: String,
    upload: Option<String>,
    body: Bytes,
}

impl Target {
    fn request(&self) -> Request {
        match &self.upload {
            Some(upload) => Request::part(A, upload, 1, self.body.clone()),
            None => Request::put(A, self.body.clone()),
        }
    }
}

/// Objects and parts that fit into the ledger and that do not.
fn targets(upload: &str) -> Vec<Target> {
    let mut targets = Vec::new();
    for length in [100, INLINE_BYTES_MAX * 5 + 7] {
        let body = Bytes::from(vec![b'n'; length]);
        let what = format!("{length} bytes");
        targets.push(Target {
            what: format!("{what} of a part"),
            upload: Some(upload.into()),
            body: body.clone(),
        });
        targets.push(Target { what: format!("{what} of an object"), upload: None, body });
    }
    targets
}

/// The CRC-32 of nothing in particular.
fn another_crc32() -> String {
    STANDARD.encode([1, 2, 3, 4])
}

/// Bodies that come in one piece.
fn whole(site: &Site, key: &Key, target: &Target) -> Vec<Row> {
    let what = &target.what;
    let request = || target.request();
    let sign = |request: Request| request.sign(site.s3, key);
    let mut other_bytes = sign(request());
    other_bytes.body = Bytes::from(vec![b'o'; target.body.len()]);
    let mut less = sign(request());
    less.body = less.body.slice(..less.body.len() - 1);
    let length = target.body.len();
    let sha256 = STANDARD.encode(Sha256::digest(b"another"));
    let unsigned =
        |request: Request| request.sign_as(site.s3, key, PayloadHash::Unsigned, Timestamp::now()).0;
    let mut no_length = unsigned(request()).with("transfer-encoding", "chunked");
    no_length.body = Bytes::from_static(b"1\r\nx\r\n0\r\n\r\n");
    vec![
        row(format!("{what}, other bytes"), other_bytes, (400, "XAmzContentSHA256Mismatch")),
        row(format!("{what}, one less than announced"), less, INCOMPLETE).announcing(length),
        row(
            format!("{what}, another CRC-32"),
            sign(request().header(CRC32, &another_crc32())),
            DIGEST,
        ),
        row(
            format!("{what}, another SHA-256"),
            unsigned(request().header("x-amz-checksum-sha256", &sha256)),
            DIGEST,
        ),
        row(
            format!("{what}, two checksums"),
            sign(request().header("x-amz-checksum-sha256", &sha256).header(CRC32, "AQIDBA==")),
            (400, "InvalidRequest"),
        ),
        row(
            format!("{what}, a checksum of another length"),
            sign(request().header(CRC32, "AQID")),
            (400, "InvalidRequest"),
        ),
        row(
            format!("{what}, another MD5"),
            sign(request().header("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")),
            DIGEST,
        ),
        row(
            format!("{what}, no MD5"),
            sign(request().header("content-md5", "none")),
            (400, "InvalidDigest"),
        ),
        row(
            format!("{what}, more than an object may have"),
            unsigned(request()),
            (400, "EntityTooLarge"),
        )
        .announcing(OBJECT_BYTES_MAX + 1),
    ]
}

async fn bodies_that_are_not_what_was_said_are_refused(setup: SetUp) {
    let settings = setup.settings().await;
    let most = OBJECT_BYTES_MAX.to_string();
    let site = Site::of(settings.env("FENCEGATE_OBJECT_BYTES_MAX", &most)).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    site.ask(&key, Request::put(A, "before")).await;
    let upload = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &upload, &["a part".into()]).await;
    let rows = targets(&upload).iter().flat_map(|target| whole(&site, &key, target)).collect();
    refuse_all(&site, &reader, rows).await;
    site.ask(&key, Request::complete(A, &upload, &tags)).await;
    assert_eq!(site.bytes(&reader, A).await.as_deref(), Some(&b"a part"[..]));
}

/// The same request with another body.
fn with_body(signed: &Signed, body: impl Into<Bytes>) -> Signed {
    Signed { body: body.into(), ..signed.clone() }
}

/// The place of a piece of text in a body.
fn find(body: &[u8], text: &str) -> usize {
    let found = body.windows(text.len()).position(|window| window == text.as_bytes());
    found.unwrap_or_else(|| panic!("{text:?} is in the body"))
}

fn replaced(body: &[u8], text: &str, by: &str) -> Vec<u8> {
    let at = find(body, text);
    [&body[..at], by.as_bytes(), &body[at + text.len()..]].concat()
}

/// Signed chunks of which one was changed, moved, left out or added.
fn signed_chunks(site: &Site, key: &Key, target: &Target) -> Vec<Row> {
    let what = &target.what;
    let chunks = |request: Request| request.sign_chunks(site.s3, key, CHUNK, Trailer::None);
    let signed = chunks(target.request());
    let body = &signed.body;
    let first = target.body.len().min(CHUNK);
    let size = |length: usize| format!("{length:x};chunk-signature=");
    let last = find(body, "\r\n0;chunk-signature=") + 2;
    let signature = |at: usize| String::from_utf8_lossy(&body[at..at + 64]).into_owned();
    let of_first = signature(size(first).len());
    let of_last = signature(last + "0;chunk-signature=".len());
    let moved = replaced(&replaced(body, &of_first, &"?".repeat(64)), &of_last, &of_first);
    let moved = replaced(&moved, &"?".repeat(64), &of_last);
    let twice = [&body[..last], &body[..last], &body[last..]].concat();
    let mut changed = body.to_vec();
    changed[size(first).len() + 64 + 2] = b'o';
    let said = |length: usize| {
        chunks(target.request().header("x-amz-decoded-content-length", &length.to_string()))
    };
    let length = target.body.len();
    let in_front = format!("{}{}\r\nx\r\n", size(1), "0".repeat(64));
    let with = |body: Vec<u8>| with_body(&signed, body);
    vec![
        row(format!("{what}, a changed chunk"), with(changed), NO_MATCH),
        row(format!("{what}, the signatures of chunks moved"), with(moved), NO_MATCH),
        row(format!("{what}, chunks sent twice"), with(twice), INCOMPLETE),
        row(
            format!("{what}, a chunk smuggled in front"),
            with([in_front.as_bytes(), body].concat()),
            NO_MATCH,
        ),
        row(
            format!("{what}, a chunk that says it is longer"),
            with(replaced(body, &size(first), &size(first + 1))),
            // Its end is looked for where there is none, or it is another chunk.
            if first == length { INCOMPLETE } else { NO_MATCH },
        ),
        row(
            format!("{what}, a chunk that says it is shorter"),
            with(replaced(body, &size(first), &size(first - 1))),
            NO_MATCH,
        ),
        row(format!("{what}, without the last chunk"), with(body[..last].to_vec()), INCOMPLETE),
        row(
            format!("{what}, with more behind the last chunk"),
            with([body, in_front.as_bytes()].concat()),
            INCOMPLETE,
        ),
        row(format!("{what}, decoded one more"), said(length + 1), INCOMPLETE),
        row(format!("{what}, decoded one less"), said(length - 1), INCOMPLETE),
        row(
            format!("{what}, decoded too large"),
            said(usize::MAX >> 1),
            (411, "MissingContentLength"),
        ),
        row(format!("{what}, no chunks at all"), with(target.body.to_vec()), INCOMPLETE),
        row(format!("{what}, cut off"), with(body[..last - 3].to_vec()), INCOMPLETE)
            .announcing(body.len()),
    ]
}

/// Chunks with trailers that are not what was announced.
fn trailers(site: &Site, key: &Key, target: &Target) -> Vec<Row> {
    let what = &target.what;
    let wrong = another_crc32();
    let mut rows = Vec::new();
    for (kind, trailer) in
        [("signed", Trailer::Signed(CRC32, &wrong)), ("unsigned", Trailer::Unsigned(CRC32, &wrong))]
    {
        let signed = target.request().sign_chunks(site.s3, key, CHUNK, trailer);
        let line = format!("{CRC32}:{wrong}\r\n");
        let without = with_body(&signed, replaced(&signed.body, &line, ""));
        let twice = with_body(&signed, replaced(&signed.body, &line, &format!("{line}{line}")));
        let another = "x-amz-checksum-sha1:AQIDBA==\r\n";
        let another = with_body(&signed, replaced(&signed.body, &line, another));
        let header = "x-amz-meta-smuggled:1\r\n";
        let header = with_body(&signed, replaced(&signed.body, &line, &format!("{line}{header}")));
        let malformed = (400, "MalformedTrailerError");
        rows.push(row(format!("{what}, a {kind} trailer of other bytes"), signed, DIGEST));
        rows.push(row(format!("{what}, without its {kind} trailer"), without, malformed));
        rows.push(row(format!("{what}, a {kind} trailer twice"), twice, malformed));
        rows.push(row(format!("{what}, another {kind} trailer"), another, malformed));
        rows.push(row(format!("{what}, a header among {kind} trailers"), header, malformed));
    }
    let signed = target.request().sign_chunks(site.s3, key, CHUNK, Trailer::Signed(CRC32, &wrong));
    let at = find(&signed.body, "x-amz-trailer-signature:") + "x-amz-trailer-signature:".len();
    let mut flipped = signed.body.to_vec();
    flipped[at] = if flipped[at] == b'0' { b'1' } else { b'0' };
    rows.push(row(
        format!("{what}, a trailer's other signature"),
        with_body(&signed, flipped),
        NO_MATCH,
    ));
    rows
}

async fn smuggled_chunks_are_refused(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let reader = site.reader().await;
    site.ask(&key, Request::put(A, "before")).await;
    let upload = site.begin(&key, A).await;
    let mut rows = Vec::new();
    for target in targets(&upload) {
        rows.extend(signed_chunks(&site, &key, &target));
        rows.extend(trailers(&site, &key, &target));
    }
    refuse_all(&site, &reader, rows).await;
    for target in targets(&upload) {
        let signed = target.request().sign_chunks(site.s3, &key, CHUNK, Trailer::None);
        let answer = signed.send(site.s3).await;
        assert_eq!(answer.status, 200, "{}: {}", target.what, answer.text());
    }
}
