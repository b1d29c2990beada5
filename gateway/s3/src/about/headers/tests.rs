//! Metadata on its way: headers, JSON, and headers again.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{CONTENT_TYPE_DEFAULT, Description};
use crate::about::{ABOUT_BYTES_MAX, About, ChecksumAlgorithm, ChecksumKind, StoredChecksum};
use crate::code::{S3Code, S3Error};

fn headers(lines: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    map
}

fn describe(lines: &[(&str, &[u8])]) -> Result<Description, S3Error> {
    Description::read(&headers(lines))
}

fn written(about: &About) -> Vec<(String, Vec<u8>)> {
    let mut map = HeaderMap::new();
    about.write(&mut map);
    let mut lines: Vec<_> =
        map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    lines.sort();
    lines
}

#[test]
fn what_boto3_sends_comes_back() {
    let lines: [(&str, &[u8]); 6] = [
        ("cache-control", b"no-cache"),
        ("content-disposition", b"attachment; filename=\"a b\""),
        ("content-encoding", b"gzip"),
        ("content-language", b"de, en"),
        ("expires", b"Fri, 01 Jan 2027 00:00:00 GMT"),
        ("x-amz-meta-foo-bar", b"v  w"),
    ];
    let found = describe(&lines).unwrap();
    assert_eq!(found.content_type, CONTENT_TYPE_DEFAULT);
    let expected: Vec<_> =
        lines.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
    assert_eq!(written(&found.about), expected);
    let json = found.about.to_json().unwrap();
    assert_eq!(About::from_json(json.as_deref()).unwrap(), found.about);
}

#[test]
fn values_are_kept_to_the_byte_whatever_the_sdk() {
    // UTF-8 as the JavaScript and Go SDKs send it; encoded words of RFC 2047 as those of Java do.
    for value in ["v é".as_bytes(), b"=?UTF-8?B?dsOp?=", b"", b"a,b", b"\"", b"\ta"] {
        let about = describe(&[("X-Amz-Meta-Name", value)]).unwrap().about;
        assert_eq!(written(&about), [("x-amz-meta-name".to_owned(), value.to_vec())]);
    }
    // Latin-1 could not be sent back as it came.
    assert_eq!(
        describe(&[("x-amz-meta-name", b"\xe9")]).unwrap_err().code,
        S3Code::InvalidArgument
    );
    let twice = describe(&[("x-amz-meta-a", b"1"), ("x-amz-meta-a", b"2")]).unwrap().about;
    assert_eq!(twice.meta["a"], "1,2");
    assert_eq!(describe(&[("x-amz-meta-", b"1")]).unwrap_err().code, S3Code::InvalidArgument);
}

#[test]
fn how_a_body_travelled_is_not_what_it_is() {
    for (sent, kept) in [
        ("aws-chunked", None),
        ("AWS-Chunked", None),
        ("aws-chunked,gzip", Some("gzip")),
        ("gzip, aws-chunked", Some("gzip")),
        ("aws-chunked, br,gzip", Some("br,gzip")),
        ("gzip, br", Some("gzip, br")),
        ("", None),
    ] {
        let about = describe(&[("content-encoding", sent.as_bytes())]).unwrap().about;
        assert_eq!(about.content_encoding.as_deref(), kept, "{sent}");
    }
    let two =
        describe(&[("content-encoding", b"aws-chunked"), ("content-encoding", b"gzip")]).unwrap();
    assert_eq!(two.about.content_encoding.as_deref(), Some("gzip"));
}

#[test]
fn metadata_is_bounded() {
    let meta = |bytes: usize| describe(&[("x-amz-meta-name", "v".repeat(bytes).as_bytes())]);
    assert!(meta(2044).is_ok());
    let error = meta(2045).unwrap_err();
    assert_eq!(error.code, S3Code::MetadataTooLarge);
    assert_eq!(error.details, [("Size", "2049".into()), ("MaxSizeAllowed", "2048".into())]);
    // The rest counts only towards the whole.
    let control = |bytes: usize| describe(&[("cache-control", "v".repeat(bytes).as_bytes())]);
    let room = ABOUT_BYTES_MAX - r#"{"cache_control":""}"#.len();
    assert!(control(room).is_ok());
    assert_eq!(control(room + 1).unwrap_err().code, S3Code::MetadataTooLarge);
}

#[test]
fn a_content_type_is_visible_ascii() {
    let kind = |value: &[u8]| describe(&[("content-type", value)]).map(|found| found.content_type);
    assert_eq!(kind(b"").unwrap(), CONTENT_TYPE_DEFAULT);
    assert_eq!(kind(b"text/plain; charset=utf-8").unwrap(), "text/plain; charset=utf-8");
    assert!(kind(&[b'x'; 255]).is_ok());
    for bad in ["é".as_bytes(), b"a\tb", &[b'x'; 256], b"\xff"] {
        assert_eq!(kind(bad).unwrap_err().code, S3Code::InvalidArgument);
    }
}

#[test]
fn nothing_to_keep_is_none() {
    let about =
        describe(&[("content-type", b"text/plain"), ("x-amz-acl", b"private")]).unwrap().about;
    assert_eq!(about.to_json().unwrap(), None);
    assert_eq!(About::from_json(None).unwrap(), about);
}

#[test]
fn the_form_of_the_json_is_fixed() {
    let checksum = StoredChecksum {
        algorithm: ChecksumAlgorithm::Crc64Nvme,
        value: "AAAAAAAAAAA=".into(),
        kind: ChecksumKind::FullObject,
    };
    let mut about = describe(&[("x-amz-meta-a", b"b"), ("expires", b"0")]).unwrap().about;
    about.checksum = Some(checksum);
    let json = r#"{"meta":{"a":"b"},"expires":"0","checksum":{"algorithm":"CRC64NVME","value":"AAAAAAAAAAA=","type":"FULL_OBJECT"}}"#;
    assert_eq!(about.to_json().unwrap().as_deref(), Some(json));
    assert_eq!(About::from_json(Some(json)).unwrap(), about);
    let mut map = HeaderMap::new();
    about.write_checksum(&mut map);
    assert_eq!(map["x-amz-checksum-crc64nvme"], "AAAAAAAAAAA=");
    assert_eq!(map["x-amz-checksum-type"], "FULL_OBJECT");
    for bad in [
        r#"{"colour":"red"}"#,
        r#"{"meta":{"a":1}}"#,
        "5",
        r#"{"checksum":{"algorithm":"MD5","value":"","type":"COMPOSITE"}}"#,
    ] {
        assert!(About::from_json(Some(bad)).is_err(), "{bad}");
    }
}

#[test]
fn algorithms_and_types_have_one_name_each() {
    for algorithm in ChecksumAlgorithm::ALL {
        assert_eq!(ChecksumAlgorithm::parse(&algorithm.as_str().to_lowercase()), Ok(algorithm));
        assert_eq!(algorithm.element(), format!("Checksum{}", algorithm.as_str()));
        assert_eq!(
            algorithm.header(),
            format!("x-amz-checksum-{}", algorithm.as_str().to_lowercase())
        );
        assert_eq!(serde_json::to_string(&algorithm).unwrap(), format!("{:?}", algorithm.as_str()));
    }
    assert!(ChecksumAlgorithm::parse("MD5").is_err());
    assert!(ChecksumKind::parse("full_object").is_err());
}

proptest! {
    #[test]
    fn headers_come_back_from_json(
        meta in prop::collection::btree_map("[a-z0-9_-]{1,12}", "[ -~é\u{4e00}]{0,30}", 0..6),
        language in prop::option::of("[ -~]{0,20}"),
    ) {
        let mut lines: Vec<_> = meta.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), value.clone())).collect();
        lines.extend(language.map(|value| ("content-language".to_owned(), value)));
        let borrowed: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let about = describe(&borrowed).unwrap().about;
        let again = About::from_json(about.to_json().unwrap().as_deref()).unwrap();
        lines.sort();
        let expected: Vec<_> = lines.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        prop_assert_eq!(written(&again), expected);
    }
}
