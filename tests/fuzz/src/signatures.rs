//! Signatures of S3 requests: the input is a method and a target, then header lines, as on the wire.

use axum::http::{HeaderMap, HeaderValue, Method};
use fencegate_s3::checksum::Sent;
use fencegate_s3::key::{Keys, Root};
use fencegate_s3::sign::chunked::Announced;
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, Signer, SigningKey};
use jiff::Timestamp;

use crate::{first_line, header_lines};

const ROOT: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SIGNER: Signer<'static> = Signer { id: "FG1TEST", secret: "secret", region: "r" };
/// What a request may not have when it is signed: it is signed already, or has no one meaning.
const OURS: [&str; 4] = ["authorization", "x-amz-date", "x-amz-content-sha256", "host"];

/// A signature that is read covers all that matters, and nobody can have made it; what we sign is taken, and no more.
pub fn signatures(input: &[u8]) {
    let (line, rest) = first_line(input);
    let Ok(line) = std::str::from_utf8(line) else { return };
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let Ok(method) = method.parse::<Method>() else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (headers, _) = header_lines(rest);
    let head = RequestHead { method: &method, raw_path: path, raw_query: query, headers: &headers };
    if let Ok(Some(shown)) = Shown::of(&head) {
        of_others(&head, &shown);
    }
    of_ours(&head);
    if let Ok(Sent::Header(checksum)) = Sent::of(&headers) {
        assert_eq!(headers[checksum.algorithm().header()], checksum.to_string());
    }
    if let Ok(announced) = Announced::of(&headers, true) {
        assert!(announced.length <= 5 << 30 && announced.trailers.len() <= 8);
    }
}

fn of_others(head: &RequestHead<'_>, shown: &Shown<'_>) {
    let (id, day) = (shown.id(), shown.day());
    assert!(!id.is_empty() && id.is_ascii() && !id.contains('/'));
    assert!(day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit()));
    let keys = Keys::new(&[Root::parse(ROOT).unwrap()]).unwrap();
    assert!(keys.read(id).is_none(), "somebody made up {id}");
    let authorization = head.headers.get("authorization").map(|value| value.to_str().unwrap());
    assert_eq!(authorization.is_none(), shown.is_presigned());
    for name in head.headers.keys().map(|name| name.as_str()) {
        if name == "host" || name.starts_with("x-amz-") || name.starts_with("x-fence-") {
            assert_eq!(head.headers.get_all(name).iter().count(), 1, "{name}");
            assert!(authorization.is_none_or(|text| text.contains(name)), "{name} is not signed");
        }
    }
    let key = SigningKey::of("a secret that no input has", day, shown.region());
    for now in [Timestamp::UNIX_EPOCH, "2013-05-24T00:00:00Z".parse().unwrap()] {
        assert!(shown.verify(&key, now).is_err(), "somebody has signed it");
    }
}

fn of_ours(head: &RequestHead<'_>) {
    let at = "2013-05-24T00:00:00Z".parse().unwrap();
    let mut headers = head.headers.clone();
    OURS.iter().for_each(|name| drop(headers.remove(*name)));
    headers.insert("host", HeaderValue::from_static("h"));
    let unsigned = RequestHead { headers: &headers, ..*head };
    let Ok((more, _)) = SIGNER.sign(&unsigned, PayloadHash::Unsigned, at) else { return };
    let mut signed = headers.clone();
    signed.extend(more);
    // Else it was signed twice over: in the query, too.
    let Ok(query) = SIGNER.presign(&unsigned, 60, at) else { return };
    assert!(is_taken(&RequestHead { headers: &signed, ..*head }, at));
    assert!(is_taken(&RequestHead { raw_query: &query, ..unsigned }, at));
    let longer = format!("{}a", head.raw_path);
    assert!(!is_taken(&RequestHead { headers: &signed, raw_path: &longer, ..*head }, at));
    assert!(!is_taken(&RequestHead { raw_query: &query, raw_path: &longer, ..unsigned }, at));
    let more = |headers: &HeaderMap| {
        let mut headers = headers.clone();
        headers.append("x-fence-more", HeaderValue::from_static("1"));
        headers
    };
    assert!(!is_taken(&RequestHead { headers: &more(&signed), ..*head }, at));
    assert!(!is_taken(&RequestHead { headers: &more(&headers), raw_query: &query, ..*head }, at));
}

fn is_taken(head: &RequestHead<'_>, now: Timestamp) -> bool {
    let Ok(Some(shown)) = Shown::of(head) else { return false };
    let key = SigningKey::of(SIGNER.secret, shown.day(), shown.region());
    shown.verify(&key, now).is_ok()
}
