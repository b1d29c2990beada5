//! What is refused, and by which name.

use http::{HeaderMap, Method};

use super::super::{Query, read_operation};
use super::{code, read};
use crate::address::Address;
use crate::code::S3Code;

/// The header, parameter or element that a refusal names.
fn named(method: &str, target: &str, headers: &str) -> String {
    let error = read(method, target, headers).unwrap_err();
    assert_eq!(error.code, S3Code::NotImplemented, "{method} {target} {headers}");
    error.details[0].1.clone()
}

#[test]
fn headers_that_ask_for_what_is_not_there_are_named() {
    for header in [
        "x-amz-server-side-encryption: AES256",
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption-customer-algorithm: AES256",
        "x-amz-copy-source-server-side-encryption-customer-key: x",
        "x-amz-server-side-encryption-bucket-key-enabled: true",
        "x-amz-object-lock-mode: GOVERNANCE",
        "x-amz-object-lock-legal-hold: ON",
        "x-amz-grant-read: id=1",
        "x-amz-website-redirect-location: /x",
        "x-amz-write-offset-bytes: 5",
        "x-amz-mfa: 1 2",
        "x-amz-expected-bucket-owner: 123456789012",
        "x-amz-acl: public-read",
        "x-amz-storage-class: GLACIER",
        "x-amz-tagging: a=b",
        "x-amz-if-match-size: 5",
        "content-range: bytes 0-1/5",
        "if-modified-since: Thu, 01 Jan 2026 00:00:00 GMT",
        "if-unmodified-since: Thu, 01 Jan 2026 00:00:00 GMT",
    ] {
        let name = header.split_once(':').unwrap().0;
        assert_eq!(named("PUT", "/lake/k", header), name);
    }
    assert_eq!(named("PUT", "/lake/k?x-amz-acl=public-read", ""), "x-amz-acl");
    assert_eq!(
        named("GET", "/lake/k", "x-amz-server-side-encryption-customer-key: x"),
        "x-amz-server-side-encryption-customer-key"
    );
    assert_eq!(
        named("PUT", "/lake", "x-amz-bucket-object-lock-enabled: true"),
        "x-amz-bucket-object-lock-enabled"
    );
    assert_eq!(named("PUT", "/lake/k", "if-none-match: \"g0-v1\""), "If-None-Match");
    for harmless in [
        "x-amz-acl: bucket-owner-full-control",
        "x-amz-tagging:",
        "x-amz-security-token: t",
        "x-amz-request-payer: requester",
    ] {
        assert!(read("PUT", "/lake/k", harmless).is_ok(), "{harmless}");
    }
    assert!(
        read(
            "PUT",
            "/lake",
            "x-amz-bucket-object-lock-enabled: false\nx-amz-object-ownership: BucketOwnerEnforced"
        )
        .is_ok()
    );
}

#[test]
fn subresources_that_are_not_there_are_named() {
    for (method, target) in [
        ("PUT", "/lake?acl"),
        ("GET", "/lake?policy"),
        ("GET", "/lake?versions&encoding-type=url"),
        ("PUT", "/lake?versioning"),
        ("DELETE", "/lake?lifecycle"),
        ("GET", "/lake?cors"),
        ("PUT", "/lake?object-lock"),
        ("GET", "/lake?torrent"),
        ("POST", "/lake?uploads"),
        ("PUT", "/lake/k?tagging"),
        ("DELETE", "/lake/k?tagging"),
        ("PUT", "/lake/k?acl"),
        ("GET", "/lake/k?retention"),
        ("GET", "/lake/k?torrent"),
        ("POST", "/lake/k?restore"),
        ("PUT", "/lake/k?renameObject"),
        ("POST", "/lake/k?delete"),
        ("GET", "/lake/k?uploads"),
        ("HEAD", "/lake/k?acl"),
        ("GET", "/?location"),
    ] {
        let name = target.split_once('?').unwrap().1.split('&').next().unwrap();
        assert_eq!(named(method, target, ""), name, "{method} {target}");
    }
    assert_eq!(named("POST", "/lake/k?select&select-type=2", ""), "select-type");
    assert_eq!(code("GET", "/lake?acl&policy", ""), S3Code::InvalidArgument);
}

#[test]
fn a_write_with_an_unknown_parameter_is_none() {
    for (method, target) in [
        ("PUT", "/lake/k?newSubresource"),
        ("PUT", "/lake/k?foo=bar"),
        ("DELETE", "/lake/k?foo"),
        ("POST", "/lake/k?uploads&foo=1"),
        ("PUT", "/lake?foo"),
        ("DELETE", "/lake?foo"),
        ("PUT", "/lake/k?prefix=a"),
        ("PUT", "/lake/k?Uploads"),
    ] {
        assert_eq!(code(method, target, ""), S3Code::NotImplemented, "{method} {target}");
    }
    // A read may carry anything, such as what keeps it out of caches.
    assert!(read("GET", "/lake/k?foo=bar", "").is_ok());
    assert!(read("GET", "/lake?foo", "").is_ok());
}

#[test]
fn a_part_never_replaces_the_whole_object() {
    assert_eq!(code("PUT", "/lake/k?partNumber=1", ""), S3Code::InvalidArgument);
    assert_eq!(code("PUT", "/lake/k?uploadId=U", ""), S3Code::InvalidArgument);
    assert_eq!(code("PUT", "/lake/k?partNumber=1&uploadId=", ""), S3Code::NoSuchUpload);
    assert_eq!(code("PUT", "/lake/k?partNumber=1&uploadid=U", ""), S3Code::NotImplemented);
    assert_eq!(code("PUT", "/lake/k?versionId=null", ""), S3Code::InvalidArgument);
    assert_eq!(code("DELETE", "/lake/k?versionId=g0-v1", ""), S3Code::NotImplemented);
    for bad in ["0", "10001", "-1", "+1", "1.5", "a", " 1", ""] {
        assert_eq!(
            code("PUT", &format!("/lake/k?partNumber={bad}&uploadId=U"), ""),
            S3Code::InvalidArgument,
            "{bad}"
        );
    }
    assert!(read("PUT", "/lake/k?partNumber=10000&uploadId=U", "").is_ok());
    assert_eq!(
        code("POST", &format!("/lake/k?uploadId={}", "u".repeat(1025)), ""),
        S3Code::NoSuchUpload
    );
}

#[test]
fn methods_that_are_not_there() {
    assert_eq!(code("POST", "/lake/k", ""), S3Code::MethodNotAllowed);
    assert_eq!(code("PATCH", "/lake/k", ""), S3Code::MethodNotAllowed);
    assert_eq!(code("PATCH", "/lake/k?uploadId=U", ""), S3Code::MethodNotAllowed);
    assert_eq!(code("HEAD", "/", ""), S3Code::MethodNotAllowed);
    assert_eq!(code("DELETE", "/", ""), S3Code::MethodNotAllowed);
    assert_eq!(code("OPTIONS", "/lake/k", ""), S3Code::NotImplemented);
    assert_eq!(
        code("POST", "/lake", "content-type: multipart/form-data; boundary=x"),
        S3Code::NotImplemented
    );
    assert_eq!(code("POST", "/lake", ""), S3Code::MethodNotAllowed);
    // A refused role says what is there instead.
    let error = read("POST", "/", "").unwrap_err();
    assert!(
        error.code == S3Code::NotImplemented && error.message.contains("POST /locks"),
        "{error}"
    );
}

#[test]
fn a_long_name_is_not_told_in_full() {
    let long = "n".repeat(3000);
    let query = Query::parse(Some(&long)).unwrap();
    let address = Address::read(None, "/lake/k", None).unwrap();
    let error = read_operation(&Method::PUT, address, &query, &HeaderMap::new()).unwrap_err();
    assert_eq!(error.details, [("Parameter", "n".repeat(64))]);
}

#[test]
fn copies_that_make_no_sense() {
    let copy = |headers: &str| code("PUT", "/lake/k", headers);
    for (bad, expected) in [
        ("x-amz-copy-source: lake/k", S3Code::InvalidRequest),
        ("x-amz-copy-source: lake", S3Code::InvalidArgument),
        ("x-amz-copy-source: /lake/", S3Code::InvalidArgument),
        ("x-amz-copy-source:", S3Code::InvalidArgument),
        ("x-amz-copy-source: Lake/x", S3Code::InvalidBucketName),
        ("x-amz-copy-source: lake/%zz", S3Code::InvalidUri),
        ("x-amz-copy-source: lake/x%00", S3Code::InvalidArgument),
        ("x-amz-copy-source: lake/x?versionId=17", S3Code::InvalidArgument),
        ("x-amz-copy-source: lake/x\nx-amz-copy-source: lake/y", S3Code::InvalidArgument),
        (
            "x-amz-copy-source: arn:aws:s3:us-east-1:1:accesspoint/a/object/k",
            S3Code::NotImplemented,
        ),
        ("x-amz-copy-source: lake/x\nx-amz-metadata-directive: MERGE", S3Code::InvalidArgument),
        ("x-amz-copy-source: lake/x\nx-amz-tagging-directive: MERGE", S3Code::InvalidArgument),
        ("x-amz-copy-source: lake/x\nx-amz-checksum-algorithm: MD5", S3Code::InvalidArgument),
        ("x-amz-copy-source: lake/x\nx-amz-copy-source-if-match: \"a", S3Code::InvalidArgument),
    ] {
        assert_eq!(copy(bad), expected, "{bad}");
    }
    assert!(
        read("PUT", "/lake/k", "x-amz-copy-source: lake/k\nx-amz-metadata-directive: REPLACE")
            .is_ok()
    );
    assert!(read("PUT", "/lake/k", "x-amz-copy-source: lake/k?versionId=g0-v1").is_ok());
    for bad in ["bytes=0-", "bytes=-5", "bytes=5-1", "0-5", "bytes=0-5,7-9", "bytes=+1-5"] {
        let headers = format!("x-amz-copy-source: lake/x\nx-amz-copy-source-range: {bad}");
        assert_eq!(
            code("PUT", "/lake/k?partNumber=1&uploadId=U", &headers),
            S3Code::InvalidArgument,
            "{bad}"
        );
    }
}

#[test]
fn uploads_that_make_no_sense() {
    for bad in [
        "x-amz-checksum-type: COMPOSITE",
        "x-amz-checksum-algorithm: SHA256\nx-amz-checksum-type: FULL_OBJECT",
        "x-amz-checksum-algorithm: CRC64NVME\nx-amz-checksum-type: COMPOSITE",
    ] {
        assert_eq!(code("POST", "/lake/k?uploads", bad), S3Code::InvalidRequest, "{bad}");
    }
    assert_eq!(
        code("POST", "/lake/k?uploads", "x-amz-checksum-algorithm: XXHASH64"),
        S3Code::InvalidArgument
    );
    assert_eq!(code("POST", "/lake/k?uploads", "if-none-match: *"), S3Code::NotImplemented);
    assert_eq!(
        code("PUT", "/lake/k?partNumber=1&uploadId=U", "if-match: *"),
        S3Code::NotImplemented
    );
    assert_eq!(
        code("POST", "/lake/k?uploadId=U", "x-amz-mp-object-size: x"),
        S3Code::InvalidArgument
    );
}
