//! The examples that AWS has published for Signature Version 4 of S3.
//!
//! Amazon S3 API Reference: "Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk",
//! "... in Multiple Chunks", "... Including Trailing Headers", "Authenticating Requests: Using Query Parameters"
//! (docs.aws.amazon.com/AmazonS3/latest/API: sig-v4-header-based-auth, sigv4-streaming, sigv4-streaming-trailers,
//! sigv4-query-string-auth).

use bytes::Bytes;
use fencegate_s3::checksum::{Algorithm, Checksum, Digest};
use fencegate_s3::sign::chunked::{Announced, ChunkError, Decoder, Encoder, Trailers};
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, Signer, SigningKey, Verified};
use http::{HeaderMap, Method};
use jiff::Timestamp;

const ID: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SIGNER: Signer<'static> = Signer { id: ID, secret: SECRET, region: "us-east-1" };

fn at() -> Timestamp {
    "2013-05-24T00:00:00Z".parse().expect("a time")
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect()
}

/// Signs what is published, expects the signature that is published, and verifies it.
fn check(
    method: Method,
    path: &str,
    query: &str,
    payload: &str,
    lines: &[(&'static str, &'static str)],
    signature: &str,
) -> Verified {
    let headers = headers(lines);
    let head = RequestHead { method: &method, raw_path: path, raw_query: query, headers: &headers };
    let payload = PayloadHash::parse(payload).expect("a payload");
    let (more, _) = SIGNER.sign(&head, payload, at()).expect("it is signed");
    let text = more["authorization"].to_str().expect("ASCII").to_owned();
    assert!(text.ends_with(&format!("Signature={signature}")), "{text}");
    let mut signed = headers.clone();
    signed.extend(more);
    verify(&RequestHead { headers: &signed, ..head })
}

fn verify(head: &RequestHead<'_>) -> Verified {
    let shown = Shown::of(head).expect("it can be read").expect("it is signed");
    assert_eq!((shown.id(), shown.day(), shown.region()), (ID, "20130524", "us-east-1"));
    shown.verify(&SigningKey::of(SECRET, shown.day(), shown.region()), at()).expect("it is good")
}

const BUCKET: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");

#[test]
fn get_object() {
    check(
        Method::GET,
        "/test.txt",
        "",
        EMPTY,
        &[BUCKET, ("range", "bytes=0-9")],
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
}

#[test]
fn put_object() {
    let lines = [
        BUCKET,
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    check(
        Method::PUT,
        "/test%24file.text",
        "",
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        &lines,
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
}

#[test]
fn get_bucket_lifecycle_and_list() {
    check(
        Method::GET,
        "/",
        "lifecycle",
        EMPTY,
        &[BUCKET],
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    );
    check(
        Method::GET,
        "/",
        "max-keys=2&prefix=J",
        EMPTY,
        &[BUCKET],
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    );
}

#[test]
fn presigned_get() {
    let headers = headers(&[BUCKET]);
    let head = RequestHead {
        method: &Method::GET,
        raw_path: "/test.txt",
        raw_query: "",
        headers: &headers,
    };
    let query = SIGNER.presign(&head, 86_400, at()).expect("it is signed");
    assert_eq!(
        query,
        "X-Amz-Algorithm=AWS4-HMAC-SHA256\
        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    );
    assert_eq!(verify(&RequestHead { raw_query: &query, ..head }).payload, PayloadHash::Unsigned);
}

const CHUNK_HEADERS: [(&str, &str); 4] = [
    ("host", "s3.amazonaws.com"),
    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ("content-encoding", "aws-chunked"),
    ("x-amz-decoded-content-length", "66560"),
];

/// 65 KiB of the letter a, in chunks of 64 KiB and 1 KiB.
fn body(signatures: [&str; 3], end: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [65_536, 1_024].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.extend_from_slice("a".repeat(size).as_bytes());
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("0;chunk-signature={}\r\n{end}", signatures[2]).as_bytes());
    body
}

fn decode(
    verified: &Verified,
    announced: &Announced,
    trailer: bool,
    body: &[u8],
) -> Result<(Vec<u8>, Trailers), ChunkError> {
    let mut decoder = Decoder::new(announced.clone(), verified.seed.clone(), trailer);
    let mut payload = Vec::new();
    let mut body = Bytes::copy_from_slice(body);
    while let Some(piece) = decoder.decode(&mut body)? {
        payload.extend_from_slice(&piece);
    }
    Ok((payload, decoder.end()?))
}

/// This example signs `content-length`, which [`Signer`] does not: its signature is given.
#[test]
fn put_object_in_chunks() {
    let mut lines = CHUNK_HEADERS.to_vec();
    lines.extend([
        ("content-length", "66824"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
            SignedHeaders=content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
            x-amz-storage-class,Signature=4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"),
    ]);
    let headers = headers(&lines);
    let head = RequestHead {
        method: &Method::PUT,
        raw_path: "/examplebucket/chunkObject.txt",
        raw_query: "",
        headers: &headers,
    };
    let verified = verify(&head);
    let announced = Announced::of(&headers, false).expect("it is announced");
    let body = body(
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ],
        "\r\n",
    );
    assert_eq!(body.len(), 66_824);
    let (payload, _) = decode(&verified, &announced, false, &body).expect("it is good");
    assert_eq!(payload, "a".repeat(66_560).into_bytes());
    let mut encoder = Encoder::new(verified.seed);
    let mut made = encoder.chunk(&payload[..65_536]);
    made.extend(encoder.chunk(&payload[65_536..]));
    made.extend(encoder.end(None));
    assert!(made == body);
}

#[test]
fn put_object_in_chunks_with_a_trailer() {
    let mut lines = CHUNK_HEADERS.to_vec();
    lines.push(("x-amz-trailer", "x-amz-checksum-crc32c"));
    let verified = check(
        Method::PUT,
        "/examplebucket/chunkObject.txt",
        "",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        &lines,
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
    );
    let announced = Announced::of(&headers(&lines), true).expect("it is announced");
    let signature = "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
    // The second ending is how minio-go writes it.
    for end in ["x-amz-checksum-crc32c:sOO8/Q==\r\n", "x-amz-checksum-crc32c:sOO8/Q==\n\r\n"] {
        let body = body(
            [
                "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
            ],
            &format!("{end}{signature}"),
        );
        let (payload, trailers) = decode(&verified, &announced, true, &body).expect("it is good");
        let checksum = Checksum::parse(
            Algorithm::Crc32c,
            trailers.get("x-amz-checksum-crc32c").expect("it came"),
        );
        let mut digest = Digest::new(Algorithm::Crc32c);
        digest.update(&payload);
        assert_eq!(checksum, Ok(digest.finish()));
    }
}
