//! Bodies in chunks: however they come in pieces, and whatever is wrong with them.

use bytes::Bytes;
use fencegate_s3::sign::chunked::{Announced, ChunkError, Decoder, Encoder, Seed, Trailers};
use fencegate_s3::sign::{PayloadHash, RequestHead, Signer};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;

const CHECKSUM: &str = "x-amz-checksum-crc32";
/// 32 digits twice: no signature.
const WRONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn seed() -> Seed {
    let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("h"))]);
    let head =
        RequestHead { method: &Method::PUT, raw_path: "/b/k", raw_query: "", headers: &headers };
    let payload = PayloadHash::Chunked { signed: true, trailer: true };
    let signer = Signer { id: "FG1TEST", secret: "secret", region: "" };
    let at = "2026-11-26T00:00:00Z".parse().expect("a time");
    signer.sign(&head, payload, at).expect("it is signed").1
}

fn announced(length: usize, trailers: &[&str]) -> Announced {
    let trailers = trailers.iter().map(|name| (*name).to_owned()).collect();
    Announced { length: length as u64, trailers }
}

/// A body of these chunks, with a trailer or without.
fn encode(seed: Option<Seed>, chunks: &[Vec<u8>], trailer: Option<&str>) -> Vec<u8> {
    let mut encoder = Encoder::new(seed);
    let mut body: Vec<u8> = chunks.iter().flat_map(|chunk| encoder.chunk(chunk)).collect();
    let trailers = trailer.map(|value| [(CHECKSUM, value)]);
    body.extend(encoder.end(trailers.as_ref().map(|trailers| &trailers[..])));
    body
}

/// What comes of a body that comes in pieces of these sizes, again and again.
fn decode(
    mut decoder: Decoder,
    body: &[u8],
    sizes: &[usize],
) -> (Vec<u8>, Result<Trailers, ChunkError>) {
    let mut payload = Vec::new();
    let mut rest = Bytes::copy_from_slice(body);
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = (*sizes.next().expect("sizes")).clamp(1, rest.len());
        let mut piece = rest.split_to(size);
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(out)) => payload.extend_from_slice(&out),
                Ok(None) => break,
                Err(error) => {
                    let again = decoder.decode(&mut Bytes::from_static(b"0\r\n\r\n"));
                    assert_eq!(again, Err(error.clone()));
                    assert_eq!(decoder.end(), Err(error.clone()));
                    return (payload, Err(error));
                }
            }
        }
        assert!(piece.is_empty());
    }
    (payload, decoder.end())
}

fn decode_text(
    seed: Option<Seed>,
    length: usize,
    trailer: bool,
    body: &str,
) -> Result<Trailers, ChunkError> {
    let names: &[&str] = if trailer { &[CHECKSUM] } else { &[] };
    let decoder =
        || Decoder::new(announced(length, names), seed.clone(), trailer || seed.is_none());
    let whole = decode(decoder(), body.as_bytes(), &[body.len()]);
    let (payload, end) = decode(decoder(), body.as_bytes(), &[1]);
    assert_eq!(end, whole.1, "one byte at a time");
    // Of a body that is refused, more or less may have been handed out before.
    assert!(payload.starts_with(&whole.0) && (end.is_err() || payload.len() == whole.0.len()));
    whole.1
}

#[test]
fn payload_is_handed_on_without_copying() {
    let body = Bytes::from(encode(None, &[vec![7; 1000]], None));
    let mut rest = body.clone();
    let mut decoder = Decoder::new(announced(1000, &[]), None, true);
    let payload = decoder.decode(&mut rest).expect("good").expect("payload");
    assert_eq!(payload.len(), 1000);
    assert!(body.as_ptr_range().contains(&payload.as_ptr()));
}

#[test]
fn bodies_without_signatures_are_taken_as_clients_write_them() {
    let good = [
        ("5\r\nhello\r\n0\r\n\r\n", false),
        ("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", false),
        ("0000000000000005\r\nhello\r\n00\r\n\r\n", false),
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n", true),
        ("5\r\nhello\r\n0\r\nX-Amz-Checksum-Crc32: NhCmhg== \r\n\r\n", true),
        ("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\n\r\n\r\n", true),
    ];
    for (body, trailer) in good {
        let trailers = decode_text(None, 5, trailer, body);
        let trailers = trailers.unwrap_or_else(|error| panic!("{body:?}: {error}"));
        assert_eq!(trailers.get(CHECKSUM), trailer.then_some("NhCmhg=="));
        assert_eq!(trailers.iter().count(), usize::from(trailer));
    }
}

#[test]
fn bodies_that_are_framed_otherwise_are_refused() {
    let malformed = [
        "5\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0\r\n\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "hello",
        "5\r\nhello\r\n0;chunk-signature=0\r\n\r\n",
    ];
    for body in malformed {
        let taken = decode_text(None, 5, false, body);
        assert!(
            matches!(taken, Err(ChunkError::Malformed(_) | ChunkError::Unfinished)),
            "{body:?}: {taken:?}"
        );
    }
    let long = format!("5{}", " ".repeat(200));
    assert!(matches!(decode_text(None, 5, false, &long), Err(ChunkError::Malformed(_))));
    for body in [
        "5\r\nhello\r\n0\r\n\r\n0",
        "5\r\nhello\r\n0\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n\r\n",
    ] {
        assert_eq!(decode_text(None, 5, false, body), Err(ChunkError::AfterEnd), "{body:?}");
    }
    let good = "5\r\nhello\r\n0\r\n\r\n";
    for end in 0..good.len() {
        assert_eq!(decode_text(None, 5, false, &good[..end]), Err(ChunkError::Unfinished));
    }
}

#[test]
fn the_length_is_the_one_that_was_announced() {
    for (length, body, got) in [
        (4, "5\r\nhello\r\n0\r\n\r\n", 5),
        (6, "5\r\nhello\r\n0\r\n\r\n", 5),
        (0, "5\r\nhello\r\n0\r\n\r\n", 5),
        (5, "0\r\n\r\n", 0),
        (5, "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", 6),
        (5, "ffffffffffffffff\r\nhello", u64::MAX),
        (5, "5\r\nhello\r\nffffffffffffffff\r\nhello", u64::MAX),
    ] {
        let error = ChunkError::WrongLength { declared: length as u64, got };
        assert_eq!(decode_text(None, length, false, body), Err(error), "{body:?}");
    }
}

#[test]
fn trailers_are_those_that_were_announced_each_once() {
    let body = |trailers: &str| format!("0\r\n{trailers}\r\n");
    for trailers in [
        "",
        "x-amz-checksum-sha1:a\r\n",
        "x-amz-checksum-crc32:a\r\nx-amz-checksum-crc32:a\r\n",
        "x-amz-checksum-crc32:a\r\nx-amz-meta-a:a\r\n",
        "x-amz-checksum-crc32\r\n",
        "x-amz-checksum-crc32 :a\r\n",
        ":a\r\n",
        "x-amz-checksum-crc32:\u{7f}\r\n",
        "x-amz-checksum-crc32:a\rb\r\n",
        "x-amz-checksum-crc32:ö\r\n",
        "x-amz-trailer-signature:0\r\n",
        "\n",
    ] {
        let taken = decode_text(None, 0, true, &body(trailers));
        assert!(matches!(taken, Err(ChunkError::Trailers(_))), "{trailers:?}: {taken:?}");
    }
    let unannounced = decode_text(None, 0, false, &body("x-amz-checksum-crc32:a\r\n"));
    assert!(matches!(unannounced, Err(ChunkError::Trailers(_))));
    let long = body(&format!("x-amz-checksum-crc32:{}\r\n", "a".repeat(1024)));
    assert!(matches!(decode_text(None, 0, true, &long), Err(ChunkError::Malformed(_))));
    let once_more = body("x-amz-checksum-crc32:a\n\r\n\r\n");
    assert_eq!(decode_text(None, 0, true, &once_more), Err(ChunkError::AfterEnd));
}

#[test]
fn each_signature_is_checked_and_covers_the_one_before() {
    let chunks = [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()];
    let good = encode(Some(seed()), &chunks, Some("NhCmhg=="));
    let good = String::from_utf8(good).expect("text");
    let check = |body: &str| decode_text(Some(seed()), 11, true, body);
    assert_eq!(check(&good).expect("it is good").get(CHECKSUM), Some("NhCmhg=="));

    let signatures: Vec<_> =
        good.match_indices("signature").map(|(at, _)| at + "signature=".len()).collect();
    assert_eq!(signatures.len(), 5);
    for (number, at) in signatures.into_iter().enumerate() {
        let other = format!("{}{WRONG}{}", &good[..at], &good[at + 64..]);
        let what = if number == 4 { "the trailers" } else { "a chunk" };
        assert_eq!(check(&other), Err(ChunkError::DoesNotMatch(what)));
        let upper =
            format!("{}{}{}", &good[..at], good[at..at + 64].to_uppercase(), &good[at + 64..]);
        assert!(check(&upper).is_err());
        let shorter = format!("{}{}", &good[..at], &good[at + 1..]);
        assert!(check(&shorter).is_err());
    }
    for (from, to) in
        [("one", "0ne"), ("three", "three "), ("NhCmhg==", "NhCmhQ=="), ("crc32:", "crc32: ")]
    {
        let changed = good.replacen(from, to, 1);
        let taken = check(&changed);
        assert_eq!(taken.is_ok(), to == "crc32: ", "{changed}: {taken:?}");
    }
    let swapped = encode(Some(seed()), &[chunks[1].clone(), chunks[0].clone()], None);
    let first = String::from_utf8(swapped).expect("text");
    let two = first.split("\r\n").take(2).collect::<Vec<_>>().join("\r\n");
    let one = good.split("\r\n").take(2).collect::<Vec<_>>().join("\r\n");
    let spliced = good.replacen(&format!("{one}\r\n"), &format!("{one}\r\n{two}\r\n"), 1);
    assert_eq!(check(&spliced), Err(ChunkError::DoesNotMatch("a chunk")));
    let without_trailer_signature = good.split("x-amz-trailer-signature").next().expect("text");
    let taken = check(&format!("{without_trailer_signature}\r\n"));
    assert!(matches!(taken, Err(ChunkError::Trailers(_))));
    let unsigned = String::from_utf8(encode(None, &chunks, Some("NhCmhg=="))).expect("text");
    assert!(matches!(check(&unsigned), Err(ChunkError::Malformed(_))));
}

fn chunks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..5)
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        chunks in chunks(), signed: bool, trailer: bool, sizes in proptest::collection::vec(1..60_usize, 1..8),
    ) {
        let seed = signed.then(seed);
        let value = trailer.then_some("NhCmhg==");
        let body = encode(seed.clone(), &chunks, value);
        let payload = chunks.concat();
        let names: &[&str] = if trailer { &[CHECKSUM] } else { &[] };
        let decoder = || Decoder::new(announced(payload.len(), names), seed.clone(), trailer || !signed);
        let (whole, end) = decode(decoder(), &body, &[body.len()]);
        prop_assert_eq!(&whole, &payload);
        let trailers = end.clone().expect("it is good");
        prop_assert_eq!(trailers.get(CHECKSUM), value);
        prop_assert_eq!(decode(decoder(), &body, &sizes), (whole, end));
    }

    #[test]
    fn a_changed_body_is_refused_or_is_the_same_where_it_is_signed(
        chunks in chunks(), signed: bool, at in any::<prop::sample::Index>(), bit in 0..8_u8,
        sizes in proptest::collection::vec(1..60_usize, 1..8),
    ) {
        let seed = signed.then(seed);
        let mut body = encode(seed.clone(), &chunks, None);
        let payload = chunks.concat();
        let at = at.index(body.len());
        body[at] ^= 1 << bit;
        let decoder = || Decoder::new(announced(payload.len(), &[]), seed.clone(), !signed);
        let (got, end) = decode(decoder(), &body, &[body.len()]);
        prop_assert_eq!(&decode(decoder(), &body, &sizes).1, &end);
        if let Ok(trailers) = end {
            prop_assert_eq!(trailers, Trailers::default());
            prop_assert_eq!(got.len(), payload.len());
            // Or the change was from a to A in a size, which is the same number.
            prop_assert!(!signed || got == payload);
        }
    }
}
