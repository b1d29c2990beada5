//! Signatures that are refused, each for its reason.

use fencegate_s3::sign::chunked::{Announced, ChunkError};
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, SignError, Signer, SigningKey};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const SIGNER: Signer<'static> = Signer { id: "FG1TEST", secret: "secret", region: "eu-west-1" };

fn at() -> Timestamp {
    "2026-11-26T23:59:59Z".parse().expect("a time")
}

fn with_host() -> HeaderMap {
    HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("127.0.0.1:9000"))])
}

fn head<'a>(path: &'a str, query: &'a str, headers: &'a HeaderMap) -> RequestHead<'a> {
    RequestHead { method: &Method::PUT, raw_path: path, raw_query: query, headers }
}

/// Header lines with a good signature over `/lake/k`.
fn signed(more: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = with_host();
    for (name, value) in more {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let made = SIGNER.sign(&head("/lake/k", "", &headers), PayloadHash::Unsigned, at());
    headers.extend(made.expect("it is signed").0);
    headers
}

fn presigned(expires_s: u32) -> String {
    SIGNER.presign(&head("/lake/k", "", &with_host()), expires_s, at()).expect("it is signed")
}

fn check(query: &str, headers: &HeaderMap, now: Timestamp) -> Result<(), SignError> {
    let shown = Shown::of(&head("/lake/k", query, headers))?.expect("it is signed");
    let key = SigningKey::of(SIGNER.secret, shown.day(), shown.region());
    shown.verify(&key, now).map(|_| ())
}

fn with(headers: &HeaderMap, name: &'static str, value: &str) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(name, value.parse().expect("a value"));
    headers
}

fn without(headers: &HeaderMap, name: &str) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(name);
    headers
}

#[test]
fn a_request_is_good_for_15_minutes_before_and_after() {
    let headers = signed(&[]);
    let minutes = SignedDuration::from_mins(15);
    let second = SignedDuration::from_secs(1);
    for now in [at(), at() + minutes, at() - minutes] {
        assert_eq!(check("", &headers, now), Ok(()));
    }
    for now in [at() + minutes + second, at() - minutes - second, Timestamp::MIN, Timestamp::MAX] {
        let error = SignError::TooSkewed { signed_at: at(), now };
        assert_eq!(check("", &headers, now), Err(error));
    }
}

#[test]
fn a_presigned_url_is_good_until_it_ends_and_no_longer_than_seven_days() {
    let headers = with_host();
    let week = SignedDuration::from_hours(7 * 24);
    let second = SignedDuration::from_secs(1);
    assert_eq!(check(&presigned(604_800), &headers, at() + week), Ok(()));
    assert_eq!(check(&presigned(1), &headers, at() - SignedDuration::from_mins(15)), Ok(()));
    for (expires_s, late) in [(604_800, week), (1, second)] {
        let error = SignError::Expired { until: at() + late };
        let query = presigned(expires_s);
        assert_eq!(check(&query, &headers, at() + late + second), Err(error));
    }
    let early = check(&presigned(60), &headers, at() - SignedDuration::from_mins(16));
    assert!(matches!(early, Err(SignError::TooSkewed { .. })));
    for expires_s in [0, 604_801] {
        assert!(SIGNER.presign(&head("/lake/k", "", &headers), expires_s, at()).is_err());
    }
    for bad in ["0", "604801", "-1", "+60", "60.0", "", "99999999999", "6%30 "] {
        let query = presigned(60).replace("X-Amz-Expires=60", &format!("X-Amz-Expires={bad}"));
        assert!(
            matches!(check(&query, &headers, at()), Err(SignError::MalformedQuery(_))),
            "{bad}"
        );
    }
}

/// Names of headers may have percent signs.
#[test]
fn a_presigned_url_names_headers_as_they_are() {
    let headers = with(&with_host(), "c%25t", "v");
    let query = SIGNER.presign(&head("/lake/k", "", &headers), 60, at()).expect("it is signed");
    assert_eq!(check(&query, &headers, at()), Ok(()));
    let other = with(&with_host(), "c%t", "v");
    assert_eq!(check(&query, &other, at()), Err(SignError::NotThere("c%25t".to_owned())));
}

#[test]
fn whatever_changes_a_request_must_be_signed() {
    for name in ["x-amz-copy-source", "x-amz-tagging", "x-fence-token", "x-fence-x", "content-md5"]
    {
        assert_eq!(check("", &signed(&[(name, "v")]), at()), Ok(()));
        let added = with(&signed(&[]), name, "v");
        assert_eq!(check("", &added, at()), Err(SignError::NotSigned(name.to_owned())));
        let in_query = check(&presigned(60), &with(&with_host(), name, "v"), at());
        match name {
            "content-md5" => assert_eq!(in_query, Ok(())),
            _ => assert_eq!(in_query, Err(SignError::NotSigned(name.to_owned()))),
        }
    }
    for name in ["amz-sdk-request", "amz-sdk-invocation-id", "x-amzn-trace-id", "if-match", "range"]
    {
        assert_eq!(check("", &with(&signed(&[]), name, "v"), at()), Ok(()), "{name}");
    }
    let gone = without(&signed(&[("x-amz-meta-a", "v")]), "x-amz-meta-a");
    assert_eq!(check("", &gone, at()), Err(SignError::NotThere("x-amz-meta-a".to_owned())));
    assert_eq!(
        check("", &without(&signed(&[]), "host"), at()),
        Err(SignError::NotThere("host".to_owned()))
    );
}

#[test]
fn what_is_signed_is_there_once() {
    for name in ["host", "authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-meta-a"] {
        let mut headers = signed(&[("x-amz-meta-a", "v")]);
        headers.append(name, headers[name].clone());
        assert_eq!(check("", &headers, at()), Err(SignError::Twice(name.to_owned())));
    }
    let headers = signed(&[]);
    for query in ["a=1&a=2", "a&a", "a=1&%61=1", "b&a=1&b="] {
        assert!(matches!(check(query, &headers, at()), Err(SignError::Ambiguous(_))), "{query}");
    }
    let query = presigned(60);
    for name in ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"] {
        let twice = format!("{query}&X-Amz-{name}=1");
        let taken = check(&twice, &with_host(), at());
        assert!(matches!(taken, Err(SignError::Ambiguous(_))), "{twice}");
        let other_case = format!("{query}&x-amz-{}=1", name.to_lowercase());
        assert_eq!(check(&other_case, &with_host(), at()), Err(SignError::DoesNotMatch));
        assert!(matches!(
            check(&format!("X-Amz-{name}=1"), &headers, at()),
            Err(SignError::Ambiguous(_))
        ));
    }
    assert!(matches!(check(&query, &headers, at()), Err(SignError::Ambiguous(_))));
    let many: Vec<_> = (0..101).map(|number| format!("a{number}")).collect();
    assert!(matches!(check(&many.join("&"), &headers, at()), Err(SignError::Ambiguous(_))));
}

#[test]
fn other_kinds_of_signatures_are_refused_by_name() {
    for (text, word) in [
        ("AWS FG1TEST:c2ln", "version 2"),
        ("AWS4-ECDSA-P256-SHA256 Credential=FG1TEST/20261126/s3/aws4_request", "version 4A"),
        ("Bearer token", "AWS4-HMAC-SHA256"),
        ("Basic YTpi", "AWS4-HMAC-SHA256"),
        ("", "AWS4-HMAC-SHA256"),
    ] {
        let Err(SignError::NotSupported(why)) =
            check("", &with(&signed(&[]), "authorization", text), at())
        else {
            panic!("{text}")
        };
        assert!(why.contains(word), "{why}");
    }
    for query in ["AWSAccessKeyId=a&Signature=b&Expires=1", "Signature=b"] {
        assert!(matches!(
            Shown::of(&head("/k", query, &with_host())),
            Err(SignError::NotSupported(_))
        ));
    }
    let other = presigned(60).replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256");
    assert!(matches!(check(&other, &with_host(), at()), Err(SignError::NotSupported(_))));
    let streaming = "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD";
    let other = with(&signed(&[]), "x-amz-content-sha256", streaming);
    assert!(matches!(check("", &other, at()), Err(SignError::NotSupported(_))));
}

#[test]
fn a_header_that_is_not_written_as_it_should_be_is_refused() {
    let good = signed(&[]);
    let text = good["authorization"].to_str().expect("ASCII");
    let changes: [(&str, &str); 17] = [
        ("Credential=", "Credentials="),
        ("FG1TEST/", "/"),
        ("/20261126/", "/20261127/"),
        ("/20261126/", "/2026112/"),
        ("/20261126/", "/2026-1-2/"),
        ("/s3/", "/s3express/"),
        ("/aws4_request", "/aws4_request/"),
        ("/aws4_request", ""),
        ("host;", "Host;"),
        ("host;", ""),
        ("host;", "host;host;"),
        ("host;", "host;;"),
        (";x-amz-content-sha256;x-amz-date", ";x-amz-date;x-amz-content-sha256"),
        ("SignedHeaders=", "SignedHeaders=host, SignedHeaders="),
        (", Signature=", ", More=1, Signature="),
        ("Signature=", "Signature=0"),
        ("Signature=", "Signature=A"),
    ];
    for (from, to) in changes {
        let changed = with(&good, "authorization", &text.replace(from, to));
        let taken = check("", &changed, at());
        assert!(matches!(taken, Err(SignError::MalformedHeader(_))), "{to}: {taken:?}");
    }
    for same in [text.replace(", ", ","), text.replace(", ", " ,  ")] {
        assert_eq!(check("", &with(&good, "authorization", &same), at()), Ok(()));
    }
    let bad_headers = [
        without(&good, "x-amz-date"),
        with(&good, "x-amz-date", "2026-11-26T23:59:59Z"),
        with(&good, "x-amz-date", "20261131T235959Z"),
        with(
            &good,
            "x-amz-content-sha256",
            "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        ),
        with(&good, "x-amz-content-sha256", ""),
    ];
    for headers in bad_headers {
        let taken = check("", &headers, at());
        let named = matches!(&taken, Err(SignError::NotThere(name)) if name == "x-amz-date");
        assert!(named || matches!(taken, Err(SignError::BadHeader(_))), "{headers:?}");
    }
}

/// `Date` is taken where there is no `X-Amz-Date`, in either form, as AWS has it. The signature was worked out with `hmac` and
/// `hashlib` of Python, from the canonical request
/// `PUT`, `/lake/k`, ``, `date:Thu, 26 Nov 2026 23:59:59 GMT`, `host:127.0.0.1:9000`, `x-amz-content-sha256:UNSIGNED-PAYLOAD`,
/// ``, `date;host;x-amz-content-sha256`, `UNSIGNED-PAYLOAD`.
#[test]
fn the_date_header_will_do() {
    let text = "AWS4-HMAC-SHA256 Credential=FG1TEST/20261126/eu-west-1/s3/aws4_request, SignedHeaders=date;host;x-amz-content-sha256, \
        Signature=4ee506219b612e9c487a6ab32f19b6e6a303d0cf2f7914add45997932454111e";
    let unsigned = with(&with_host(), "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    let headers = with(&unsigned, "authorization", text);
    let dated = |date: &str| with(&headers, "date", date);
    let good = dated("Thu, 26 Nov 2026 23:59:59 GMT");
    assert_eq!(check("", &good, at()), Ok(()));
    let late = check("", &good, at() + SignedDuration::from_hours(1));
    assert!(matches!(late, Err(SignError::TooSkewed { .. })));
    for other in ["20261126T235959Z", "Thu, 26 Nov 2026 23:59:59 +0000"] {
        assert_eq!(
            check("", &dated(other), at()),
            Err(SignError::DoesNotMatch),
            "it says the same, but was not signed"
        );
    }
    for bad in ["yesterday", "", "Thu, 26 Nov 2026", "2026-11-26T23:59:59Z"] {
        assert!(matches!(check("", &dated(bad), at()), Err(SignError::BadHeader(_))), "{bad}");
    }
}

#[test]
fn what_is_announced_of_chunks_has_limits() {
    let announced = |lines: &[(&'static str, &'static str)], trailer| {
        let lines = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Announced::of(&lines.collect(), trailer)
    };
    const LENGTH: (&str, &str) = ("x-amz-decoded-content-length", "5");
    for bad in ["", "-1", "+5", "5 ", "0x5", "5368709121", "99999999999999999999"] {
        let taken = announced(&[("x-amz-decoded-content-length", bad)], true);
        assert_eq!(taken, Err(ChunkError::NoLength), "{bad}");
    }
    assert_eq!(announced(&[], true), Err(ChunkError::NoLength));
    for bad in [
        "x-amz-copy-source",
        "x-amz-checksum-crc32,host",
        "x-amz-checksum-crc32, X-Amz-Checksum-CRC32",
    ] {
        let taken = announced(&[LENGTH, ("x-amz-trailer", bad)], true);
        assert_eq!(taken, Err(ChunkError::BadAnnouncement), "{bad}");
    }
    let one = [LENGTH, ("x-amz-trailer", "X-Amz-Checksum-CRC32")];
    assert_eq!(announced(&one, false), Err(ChunkError::BadAnnouncement));
    let taken = announced(&one, true).expect("it is good");
    assert_eq!((taken.length, &*taken.trailers[0]), (5, "x-amz-checksum-crc32"));
}

/// A path or a query has many spellings. The same object, spelt otherwise, has the same signature or none; another object
/// never has it.
#[test]
fn a_path_is_taken_in_the_strictest_spelling_too_and_is_never_tidied() {
    let key = SigningKey::of(SIGNER.secret, "20261126", SIGNER.region);
    let taken = |signed: &str, sent: &str, query: &str| {
        let mut headers = with_host();
        let made = SIGNER.sign(&head(signed, query, &headers), PayloadHash::Unsigned, at());
        headers.extend(made.expect("it is signed").0);
        let shown = Shown::of(&head(sent, query, &headers)).expect("good").expect("signed");
        shown.verify(&key, at()).is_ok()
    };
    for (signed, sent) in [
        ("/lake/a%3Db%26", "/lake/a=b&"),
        ("/lake/%C3%B6", "/lake/ö"),
        ("/lake/a%20b", "/lake/a b"),
        ("/lake/a/b", "/lake/a%2Fb"),
        ("/lake/a~", "/lake/a%7E"),
        ("/lake/%C3%B6", "/lake/%c3%b6"),
        ("/lake/%25zz", "/lake/%zz"),
        ("/lake/a=b", "/lake/a=b"),
    ] {
        assert!(taken(signed, sent, ""), "{signed} as {sent}");
    }
    for (signed, sent) in [
        ("/lake/a//b", "/lake/a/b"),
        ("/lake/a/../b", "/lake/b"),
        ("/lake/./b", "/lake/b"),
        ("/lake/a", "/lake/a/"),
        ("/lake/a+b", "/lake/a%20b"),
        ("/lake/a%2520b", "/lake/a%20b"),
        ("/lake/A", "/lake/a"),
    ] {
        assert!(!taken(signed, sent, ""), "{signed} as {sent}");
    }
}

proptest! {
    #[test]
    fn whatever_is_signed_is_taken_and_only_that(
        path in "/[ ->@-~]{0,20}", query in "a=[ -%'-~]{0,5}&z=[ -%'-~é]{0,8}", shorter in 0..10_usize,
    ) {
        let mut headers = with_host();
        let made = SIGNER.sign(&head(&path, &query, &headers), PayloadHash::Unsigned, at());
        headers.extend(made.expect("it is signed").0);
        let key = SigningKey::of(SIGNER.secret, "20261126", SIGNER.region);
        let verify = |path: &str, query: &str| {
            let shown = Shown::of(&head(path, query, &headers)).ok().flatten();
            shown.is_some_and(|shown| shown.verify(&key, at()).is_ok())
        };
        prop_assert!(verify(&path, &query));
        let longer = format!("{path}x");
        prop_assert!(!verify(&longer, &query));
        let longer = format!("{query}x");
        prop_assert!(!verify(&path, &longer));
        let letters = query.chars().count() - 1;
        let cut: String = query.chars().take(letters - shorter.min(letters)).collect();
        // `z` and `z=` are the same parameter.
        prop_assert!(!verify(&path, &cut) || cut == query.trim_end_matches('='));
    }
}
