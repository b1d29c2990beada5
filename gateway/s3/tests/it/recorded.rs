//! Requests that real clients have signed, as they came over the wire: all are taken, and none with any change.
//!
//! `../vectors/record.py` makes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencegate_s3::checksum::{Algorithm, Checksum, Digest, Sent};
use fencegate_s3::sign::chunked::{Announced, ChunkError, Decoder, Trailers};
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, SignError, SigningKey, Verified};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use jiff::fmt::strtime;
use serde::Deserialize;
use sha2::Digest as _;

#[derive(Deserialize)]
struct Tape {
    id: String,
    secret: String,
    requests: Vec<Recorded>,
}

#[derive(Deserialize, Clone)]
struct Recorded {
    client: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
}

fn tape() -> Tape {
    serde_json::from_str(include_str!("../vectors/requests.json")).expect("the tape is JSON")
}

/// A request that can be changed.
#[derive(Clone)]
struct Request {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn of(recorded: &Recorded) -> Self {
        let (path, query) = recorded.target.split_once('?').unwrap_or((&recorded.target, ""));
        let mut headers = HeaderMap::new();
        for (name, value) in &recorded.headers {
            let name: HeaderName = name.parse().expect("a name");
            let value: Vec<u8> =
                value.chars().map(|letter| u8::try_from(letter).expect("latin-1")).collect();
            headers.append(name, HeaderValue::from_bytes(&value).expect("a value"));
        }
        Self {
            method: recorded.method.parse().expect("a method"),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: STANDARD.decode(&recorded.body).expect("base64"),
        }
    }

    fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: &self.method,
            raw_path: &self.path,
            raw_query: &self.query,
            headers: &self.headers,
        }
    }

    /// When it says that it was signed.
    fn now(&self) -> Timestamp {
        let of_query = || self.query.split_once("X-Amz-Date=").map(|(_, rest)| &rest[..16]);
        let of_header = self.headers.get("x-amz-date").map(|value| value.to_str().expect("ASCII"));
        let text = of_header.or_else(of_query).expect("a time");
        let time = strtime::parse("%Y%m%dT%H%M%SZ", text).expect("a time").to_datetime();
        time.expect("a time")
            .to_zoned_datetime(jiff::tz::TimeZone::UTC)
            .expect("a time")
            .timestamp()
    }

    /// As a gateway would take it: head, then body.
    fn check(&self, tape: &Tape, now: Timestamp) -> Result<Verified, SignError> {
        let shown = Shown::of(&self.head())?.ok_or(SignError::BadHeader("it is anonymous"))?;
        if shown.id() != tape.id {
            return Err(SignError::DoesNotMatch);
        }
        let key = SigningKey::of(&tape.secret, shown.day(), shown.region());
        shown.verify(&key, now)
    }

    fn payload(&self, verified: Verified) -> Result<(Vec<u8>, Trailers), ChunkError> {
        match verified.payload {
            PayloadHash::Unsigned => Ok((self.body.clone(), Trailers::default())),
            PayloadHash::Sha256(digest) => {
                assert_eq!(digest, <[u8; 32]>::from(sha2::Sha256::digest(&self.body)));
                Ok((self.body.clone(), Trailers::default()))
            }
            PayloadHash::Chunked { trailer, .. } => {
                let announced = Announced::of(&self.headers, trailer)?;
                let mut decoder = Decoder::new(announced, verified.seed, trailer);
                let mut payload = Vec::new();
                for piece in self.body.chunks(7) {
                    let mut piece = Bytes::copy_from_slice(piece);
                    while let Some(piece) = decoder.decode(&mut piece)? {
                        payload.extend_from_slice(&piece);
                    }
                }
                Ok((payload, decoder.end()?))
            }
        }
    }
}

/// What clients are named where something of theirs is missing.
fn name(recorded: &Recorded) -> String {
    format!("{}: {} {}", recorded.client, recorded.method, recorded.target)
}

#[test]
fn every_request_of_every_client_is_taken_with_its_body_and_checksum() {
    let tape = tape();
    let mut clients: Vec<_> = tape.requests.iter().map(|one| one.client.as_str()).collect();
    clients.dedup();
    assert_eq!(clients.len(), 12, "{clients:?}");
    let mut seen = Vec::new();
    for recorded in &tape.requests {
        let request = Request::of(recorded);
        let verified = request.check(&tape, request.now());
        let verified = verified.unwrap_or_else(|error| panic!("{}: {error}", name(recorded)));
        seen.push(match verified.payload {
            PayloadHash::Sha256(_) => "sha256".to_owned(),
            other => other.to_string(),
        });
        let sent = Sent::of(&request.headers).expect("one checksum at most");
        let (payload, trailers) =
            request.payload(verified).unwrap_or_else(|error| panic!("{}: {error}", name(recorded)));
        let wanted = match sent {
            Sent::Not => None,
            Sent::Header(checksum) => Some(checksum),
            Sent::Trailer(algorithm) => {
                let text = trailers.get(algorithm.header()).expect("it came");
                Some(Checksum::parse(algorithm, text).expect("a checksum"))
            }
        };
        if let Some(wanted) = wanted {
            let mut digest = Digest::new(wanted.algorithm());
            digest.update(&payload);
            assert_eq!(digest.finish(), wanted, "{}", name(recorded));
        }
    }
    for kind in [
        "sha256",
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    ] {
        assert!(seen.iter().any(|one| one == kind), "nobody sent {kind}");
    }
    assert!(tape.requests.iter().any(|one| {
        Sent::of(&Request::of(one).headers).expect("one").algorithm() == Some(Algorithm::Crc64Nvme)
    }));
}

/// Every text that differs from this one in the lowest bit of one byte, and is still text for a header or a URL.
fn flipped(text: &str) -> impl Iterator<Item = String> {
    (0..text.len()).filter_map(|at| {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] ^= 1;
        String::from_utf8(bytes)
            .ok()
            .filter(|text| !text.bytes().any(|byte| byte.is_ascii_control()))
    })
}

/// All changes of one bit in the head of a request, of what its signature covers.
fn changed_heads(request: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    let changed = |change: &dyn Fn(&mut Request)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    all.extend(flipped(&request.path).map(|path| changed(&|request| request.path = path.clone())));
    all.extend(
        flipped(&request.query).map(|query| changed(&|request| request.query = query.clone())),
    );
    all.extend(
        ["OPTIONS", "PATCH"]
            .map(|method| changed(&|request| request.method = method.parse().expect("a method"))),
    );
    let authorization = request.headers.get("authorization");
    let authorization = authorization.map_or("", |value| value.to_str().expect("ASCII"));
    let signed = authorization.split_once("SignedHeaders=").map_or("host", |(_, rest)| rest);
    let signed = signed.split(',').next().expect("it has names");
    for name in signed.split(';').chain((!authorization.is_empty()).then_some("authorization")) {
        let name: HeaderName = name.parse().expect("a name");
        let value = request.headers[&name].to_str().expect("ASCII");
        all.extend(flipped(value).map(|value| {
            changed(&|request| {
                request.headers.insert(name.clone(), value.parse().expect("a value"));
            })
        }));
        all.push(changed(&|request| {
            request.headers.remove(&name);
        }));
        all.push(changed(&|request| {
            request.headers.append(name.clone(), HeaderValue::from_static("again"));
        }));
    }
    for more in ["x-amz-copy-source", "x-amz-meta-more", "x-fence-token", "x-fence-anything"] {
        all.push(changed(&|request| {
            request.headers.append(more, HeaderValue::from_static("1"));
        }));
    }
    for more in ["acl", "X-Amz-Signature=0", "AWSAccessKeyId=a&Signature=b"] {
        all.push(changed(&|request| {
            request.query = format!("{}&{more}", request.query);
        }));
    }
    all
}

#[test]
fn no_request_is_taken_with_one_bit_of_its_head_changed() {
    let tape = tape();
    for recorded in &tape.requests {
        let request = Request::of(recorded);
        let now = request.now();
        let all = changed_heads(&request);
        assert!(all.len() > 200, "{} changes", all.len());
        for changed in all {
            let taken = changed.check(&tape, now);
            assert!(taken.is_err(), "{}: {} {:?}", name(recorded), changed.path, changed.headers);
        }
    }
}

/// A signature without its header is no signature: the request is anonymous, and the rules for those apply.
#[test]
fn a_request_without_its_signature_is_anonymous() {
    for recorded in &tape().requests {
        let mut request = Request::of(recorded);
        request.headers.remove("authorization");
        let unsigned = request.query.split('&').filter(|pair| {
            let ours = ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"];
            !ours.iter().any(|name| pair.starts_with(&format!("X-Amz-{name}=")))
        });
        request.query = unsigned.collect::<Vec<_>>().join("&");
        assert!(Shown::of(&request.head()).expect("it says nothing").is_none());
    }
}

#[test]
fn no_body_in_chunks_is_taken_with_one_bit_changed() {
    let tape = tape();
    let mut seen = 0;
    for recorded in &tape.requests {
        let request = Request::of(recorded);
        let verified = request.check(&tape, request.now()).expect("it is good");
        if !matches!(verified.payload, PayloadHash::Chunked { .. }) {
            continue;
        }
        seen += 1;
        let Ok((payload, _)) = request.payload(verified.clone()) else { panic!("it is good") };
        for at in 0..request.body.len() {
            let mut changed = request.clone();
            changed.body[at] ^= 1;
            let Ok((got, trailers)) = changed.payload(verified.clone()) else { continue };
            let Sent::Trailer(algorithm) = Sent::of(&request.headers).expect("one") else {
                panic!("{} bytes into {}", at, name(recorded))
            };
            // Chunks without signatures: what changes them has to change what the trailer says.
            let mut digest = Digest::new(algorithm);
            digest.update(&got);
            let text = trailers.get(algorithm.header()).expect("it came");
            let same = Checksum::parse(algorithm, text).ok() == Some(digest.finish());
            assert!(!same || got == payload, "{at} bytes into {}", name(recorded));
        }
        for end in 0..request.body.len() {
            let mut cut = request.clone();
            cut.body.truncate(end);
            assert!(cut.payload(verified.clone()).is_err(), "{end} bytes of {}", name(recorded));
        }
    }
    assert!(seen >= 9, "{seen} bodies in chunks");
}
