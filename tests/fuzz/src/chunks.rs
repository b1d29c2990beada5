//! Bodies of S3 in chunks. The input: `LENGTH`, or `LENGTH TRAILER` with the name of a trailer; a line with sizes of pieces;
//! a body.

use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use fencegate_s3::sign::chunked::{Announced, ChunkError, Decoder, Encoder, Seed, Trailers};
use fencegate_s3::sign::{PayloadHash, RequestHead, Signer};

use crate::first_line;

/// Pieces change nothing; what is taken is what was announced, and written anew is taken as the same; nobody signs a body
/// without the key.
pub fn chunks(input: &[u8]) {
    let (line, rest) = first_line(input);
    let (sizes, body) = first_line(rest);
    let mut words = String::from_utf8_lossy(line).into_owned();
    let trailers = words.find(' ').map(|at| words.split_off(at).trim().to_owned());
    let Ok(length) = words.parse() else { return };
    let announced = Announced { length, trailers: trailers.into_iter().collect() };
    let sizes: Vec<usize> = sizes.iter().map(|byte| usize::from(*byte)).collect();

    let (payload, end) = decode(&announced, None, body, &[body.len()]);
    assert_eq!(decode(&announced, None, body, &[1]).1, end);
    assert_eq!(decode(&announced, None, body, &sizes).1, end);
    if let Ok(trailers) = &end {
        assert_eq!(payload.len() as u64, length);
        assert!(
            trailers.iter().map(|(name, _)| name).eq(announced.trailers.iter().map(|name| &**name))
        );
        let pairs: Vec<_> = trailers.iter().collect();
        for seed in [None, Some(seed())] {
            let mut encoder = Encoder::new(seed.clone());
            let mut again: Vec<u8> =
                payload.chunks(7).flat_map(|chunk| encoder.chunk(chunk)).collect();
            again.extend(encoder.end(Some(&pairs)));
            let taken = decode(&announced, seed, &again, &sizes);
            assert!(taken.0 == payload && taken.1.as_ref() == Ok(trailers), "{:?}", taken.1);
        }
    }
    assert!(decode(&announced, Some(seed()), body, &sizes).1.is_err(), "somebody signed it");
}

fn seed() -> Seed {
    let headers = HeaderMap::from_iter([(axum::http::header::HOST, HeaderValue::from_static("h"))]);
    let head =
        RequestHead { method: &Method::PUT, raw_path: "/", raw_query: "", headers: &headers };
    let payload = PayloadHash::Chunked { signed: true, trailer: true };
    let signer = Signer { id: "FG1TEST", secret: "secret", region: "r" };
    signer.sign(&head, payload, "2013-05-24T00:00:00Z".parse().unwrap()).unwrap().1
}

fn decode(
    announced: &Announced,
    seed: Option<Seed>,
    body: &[u8],
    sizes: &[usize],
) -> (Vec<u8>, Result<Trailers, ChunkError>) {
    let mut decoder = Decoder::new(announced.clone(), seed, true);
    let (mut payload, mut rest) = (Vec::new(), Bytes::copy_from_slice(body));
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).clamp(1, rest.len()));
        let mut piece = rest.split_to(size);
        loop {
            match decoder.decode(&mut piece) {
                Ok(Some(out)) => payload.extend_from_slice(&out),
                Ok(None) => break,
                Err(error) => return (payload, Err(error)),
            }
        }
    }
    (payload, decoder.end())
}
