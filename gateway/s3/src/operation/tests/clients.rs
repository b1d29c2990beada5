//! Requests as real clients send them, recorded from boto3 1.44, aws-cli 1.46, @aws-sdk/client-s3 3, minio-py 7.2,
//! object_store 0.12 of Python (Rust 0.14), s5cmd and s3cmd 2.3.

use fencegate_wire::EntityTag;
use fencegate_wire::etag::ObjectCondition;

use super::super::{AttributeKind, ConditionsVerdict, Operation, Selection};
use super::read;
use crate::about::{ChecksumAlgorithm, ChecksumKind};

const TAG: EntityTag = EntityTag { generation: 0, version: 1 };

/// Each as: name of the operation, method, target, headers.
const RECORDED: &[(&str, &str, &str, &str)] = &[
    (
        "PutObject",
        "PUT",
        "/my-bucket/x/f",
        "content-md5: dk76iD3aHhHbR2ccSju9ng==\ncontent-type: text/plain; charset=utf-8",
    ),
    (
        "PutObject",
        "PUT",
        "/my-bucket/x/f",
        "x-amz-sdk-checksum-algorithm: CRC32\nx-amz-checksum-crc32: 7W96eg==",
    ),
    (
        "PutObject",
        "PUT",
        "/my-bucket/x/f",
        "content-encoding: aws-chunked\nx-amz-trailer: x-amz-checksum-crc32",
    ),
    (
        "PutObject",
        "PUT",
        "/my-bucket/x/f",
        "x-amz-storage-class: STANDARD\nx-amz-meta-s3cmd-attrs: atime:1/ctime:2",
    ),
    (
        "PutObject",
        "PUT",
        "/my-bucket/p?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD&X-Amz-Credential=A%2F20261126%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20261126T095128Z&X-Amz-Expires=900&X-Amz-Signature=c1&X-Amz-SignedHeaders=host&x-amz-acl=private&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-meta-foo=bar&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject",
        "content-type: text/plain",
    ),
    (
        "GetObject",
        "GET",
        "/my-bucket/k?x-id=GetObject",
        "range: bytes=0-7\nx-amz-checksum-mode: ENABLED",
    ),
    (
        "GetObject",
        "GET",
        "/my-bucket/k?partNumber=1&versionId=null",
        "x-amz-checksum-mode: ENABLED",
    ),
    ("HeadObject", "HEAD", "/my-bucket/k", ""),
    (
        "GetObjectAttributes",
        "GET",
        "/my-bucket/k?attributes=",
        "x-amz-object-attributes: ETag, ObjectSize",
    ),
    ("GetObjectTagging", "GET", "/my-bucket/k?tagging", ""),
    ("GetObjectAcl", "GET", "/my-bucket/x/f?acl", ""),
    ("GetBucketAcl", "GET", "/my-bucket?acl", ""),
    ("GetBucketLocation", "GET", "/my-bucket/?location", ""),
    ("GetBucketVersioning", "GET", "/my-bucket?versioning", ""),
    ("DeleteObject", "DELETE", "/my-bucket/a%252Fb", ""),
    ("DeleteObject", "DELETE", "/my-bucket/k?versionId=null", ""),
    ("DeleteObjects", "POST", "/my-bucket/?delete=", "content-type: application/xml"),
    ("DeleteObjects", "POST", "/my-bucket?delete", "x-amz-checksum-crc32: c6thnw=="),
    (
        "ListObjectsV2",
        "GET",
        "/my-bucket/?delimiter=%2F&encoding-type=url&list-type=2&max-keys=10&prefix=a%20b%2F",
        "",
    ),
    ("ListObjectsV2", "GET", "/my-bucket?list-type=2&prefix=", ""),
    ("ListObjects", "GET", "/my-bucket?prefix=&delimiter=%2F&marker=x&encoding-type=url", ""),
    ("ListObjects", "GET", "/my-bucket?delimiter=%2F&encoding-type=url&max-keys=1000&prefix=", ""),
    ("CopyObject", "PUT", "/my-bucket/k", "x-amz-copy-source: my-bucket/a%20b/%C3%A9"),
    (
        "CreateMultipartUpload",
        "POST",
        "/my-bucket/big?uploads=",
        "content-type: application/octet-stream",
    ),
    ("UploadPart", "PUT", "/my-bucket/big?partNumber=2&uploadId=UP1", ""),
    (
        "UploadPart",
        "PUT",
        "/my-bucket/k?partNumber=1&uploadId=UP1&x-id=UploadPart",
        "content-type: application/octet-stream",
    ),
    (
        "CompleteMultipartUpload",
        "POST",
        "/my-bucket/big?uploadId=UP1",
        "content-type: application/xml",
    ),
    ("AbortMultipartUpload", "DELETE", "/my-bucket/k?uploadId=UP1", ""),
    ("ListParts", "GET", "/my-bucket/k?uploadId=UP1&max-parts=2&part-number-marker=1", ""),
    (
        "ListMultipartUploads",
        "GET",
        "/my-bucket?uploads&prefix=p&delimiter=%2F&key-marker=k&upload-id-marker=U&max-uploads=3",
        "",
    ),
    ("ListBuckets", "GET", "/", ""),
    ("ListBuckets", "GET", "/?max-buckets=5&prefix=m", ""),
    ("CreateBucket", "PUT", "/my-bucket/", "content-type: application/xml"),
    ("DeleteBucket", "DELETE", "/my-bucket", ""),
    ("HeadBucket", "HEAD", "/my-bucket", ""),
];

#[test]
fn what_clients_send_is_understood() {
    for (name, method, target, headers) in RECORDED {
        let operation = read(method, target, headers)
            .unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        assert_eq!(operation.name(), *name, "{method} {target}");
    }
}

#[test]
fn a_put_of_boto3() {
    let headers = "x-amz-meta-foo-bar: v w\ncache-control: no-cache\ncontent-disposition: attachment\ncontent-encoding: gzip\n\
                   content-language: de\nexpires: Fri, 01 Jan 2027 00:00:00 GMT\ncontent-type: text/plain\n\
                   x-amz-acl: private\nx-amz-storage-class: STANDARD\nif-match: \"g0-v1\"";
    let Operation::PutObject(put) =
        read("PUT", "/my-bucket/a%20b/%C3%A9%2B%25.txt", headers).unwrap()
    else {
        panic!()
    };
    assert_eq!((put.object.bucket.as_str(), put.object.key.as_str()), ("my-bucket", "a b/é+%.txt"));
    assert_eq!(put.condition, Some(ObjectCondition::OneOf(vec![TAG])));
    assert_eq!(put.description.content_type, "text/plain");
    assert_eq!(put.description.about.meta["foo-bar"], "v w");
    assert_eq!(put.description.about.content_encoding.as_deref(), Some("gzip"));
}

#[test]
fn a_get_of_boto3() {
    let target = "/my-bucket/k?response-content-type=text%2Fx&response-expires=Fri%2C%2001%20Jan%202027%2000%3A00%3A00%20GMT&response-content-disposition=attachment%3B%20filename%3D%22a%20b%22";
    let headers = "range: bytes=2-7\nif-match: \"g0-v1\"\nif-unmodified-since: Thu, 01 Jan 2026 00:00:00 GMT\nx-amz-checksum-mode: ENABLED";
    let Operation::GetObject(get) = read("GET", target, headers).unwrap() else { panic!() };
    let shown: Vec<_> = get
        .overrides
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            "content-disposition: attachment; filename=\"a b\"",
            "content-type: text/x",
            "expires: Fri, 01 Jan 2027 00:00:00 GMT"
        ]
    );
    assert!(get.with_checksum);
    let written = "2026-02-01T00:00:00Z".parse().unwrap();
    // The tag matches, so that the time is not looked at.
    assert_eq!(get.conditions.judge(TAG, written), ConditionsVerdict::Holds);
    assert_eq!(
        get.range.unwrap().select(TAG, written, 5).unwrap(),
        Selection::Part { first: 2, last: 4 }
    );
}

#[test]
fn a_list_of_boto3() {
    let target = "/my-bucket?list-type=2&prefix=a%20b%2F&delimiter=%2F&max-keys=5000&start-after=a%2Bb&fetch-owner=true&encoding-type=url";
    let Operation::ListObjectsV2(list) = read("GET", target, "").unwrap() else { panic!() };
    assert_eq!(
        (list.scope.prefix.as_str(), list.scope.delimiter.as_deref(), list.scope.max_items),
        ("a b/", Some("/"), 1000)
    );
    assert!(list.fetch_owner && list.scope.url_encoded);
    assert_eq!(list.after(), Some("a+b"));
    let Operation::ListObjectsV2(list) =
        read("GET", "/my-bucket?list-type=2&continuation-token=1YQ&start-after=z", "").unwrap()
    else {
        panic!()
    };
    assert_eq!((list.after(), list.continuation_token.as_deref()), (Some("a"), Some("1YQ")));
    assert!(!list.fetch_owner && !list.scope.url_encoded);
}

#[test]
fn attributes_of_boto3() {
    let headers = "x-amz-object-attributes: ETag,Checksum,ObjectParts,StorageClass,ObjectSize\nx-amz-max-parts: 5\nx-amz-part-number-marker: 2";
    let Operation::GetObjectAttributes(asked) =
        read("GET", "/my-bucket/k?attributes", headers).unwrap()
    else {
        panic!()
    };
    use AttributeKind::{Checksum, ETag, ObjectParts, ObjectSize, StorageClass};
    assert_eq!(asked.wanted, [ETag, Checksum, ObjectParts, StorageClass, ObjectSize]);
    assert_eq!((asked.max_parts, asked.parts_after), (5, 2));
}

#[test]
fn copies_of_boto3_javascript_and_minio() {
    let source = |headers: &str| match read("PUT", "/my-bucket/k", headers).unwrap() {
        Operation::CopyObject(copy) => *copy,
        other => panic!("{other:?}"),
    };
    let copy = source(
        "x-amz-copy-source: src-bucket/a%20b/%C3%A9%2B%3F.txt?versionId=g0-v1\nx-amz-metadata-directive: REPLACE\n\
                       x-amz-meta-a: b\nx-amz-copy-source-if-match: \"g0-v2\"\n\
                       x-amz-copy-source-if-unmodified-since: Thu, 01 Jan 2026 00:00:00 GMT",
    );
    assert_eq!(
        (copy.source.object.bucket.as_str(), copy.source.object.key.as_str()),
        ("src-bucket", "a b/é+?.txt")
    );
    assert_eq!(copy.source.version, Some(TAG));
    assert_eq!(
        copy.source.conditions.judge(TAG, jiff::Timestamp::UNIX_EPOCH),
        ConditionsVerdict::Failed
    );
    assert_eq!(copy.description.unwrap().about.meta["a"], "b");

    let copy = source("x-amz-copy-source: src-bucket%2Fa%20b");
    assert_eq!(
        (copy.source.object.key.as_str(), copy.source.version, copy.description),
        ("a b", None, None)
    );

    // minio-py takes the quotes off a tag.
    let copy =
        source("x-amz-copy-source: /src-bucket/a%20b/%C3%A9\nx-amz-copy-source-if-match: g0-v1");
    assert_eq!(copy.source.object.key, "a b/é");
    assert_eq!(
        copy.source.conditions.judge(TAG, jiff::Timestamp::UNIX_EPOCH),
        ConditionsVerdict::Holds
    );
}

#[test]
fn uploads_of_boto3() {
    let checksum = |headers: &str| match read("POST", "/my-bucket/k?uploads", headers).unwrap() {
        Operation::CreateMultipartUpload(create) => {
            create.checksum.map(|checksum| (checksum.algorithm, checksum.kind))
        }
        other => panic!("{other:?}"),
    };
    use ChecksumAlgorithm::{Crc32, Crc64Nvme, Sha256};
    assert_eq!(checksum("x-amz-checksum-algorithm: CRC32"), Some((Crc32, ChecksumKind::Composite)));
    assert_eq!(
        checksum("x-amz-checksum-algorithm: CRC32\nx-amz-checksum-type: FULL_OBJECT"),
        Some((Crc32, ChecksumKind::FullObject))
    );
    assert_eq!(
        checksum("x-amz-checksum-algorithm: SHA256"),
        Some((Sha256, ChecksumKind::Composite))
    );
    assert_eq!(
        checksum("x-amz-checksum-algorithm: CRC64NVME"),
        Some((Crc64Nvme, ChecksumKind::FullObject))
    );
    assert_eq!(checksum(""), None);

    let part = read(
        "PUT",
        "/my-bucket/k?uploadId=UP1&partNumber=2",
        "x-amz-copy-source: src-bucket/k\nx-amz-copy-source-range: bytes=0-9",
    );
    let Operation::UploadPartCopy(part) = part.unwrap() else { panic!() };
    assert_eq!((part.upload.upload.as_str(), part.part.get()), ("UP1", 2));
    assert_eq!(part.range.map(|range| (range.first, range.last)), Some((0, 9)));

    let complete =
        read("POST", "/my-bucket/k?uploadId=UP1", "if-none-match: *\nx-amz-mp-object-size: 11");
    let Operation::CompleteMultipartUpload(complete) = complete.unwrap() else { panic!() };
    assert_eq!(
        (complete.condition, complete.object_bytes),
        (Some(ObjectCondition::Absent), Some(11))
    );

    let Operation::ListMultipartUploads(list) =
        read("GET", "/my-bucket?uploads&key-marker=k&upload-id-marker=U&max-uploads=3", "")
            .unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (list.key_marker.as_deref(), list.upload_id_marker.as_deref(), list.scope.max_items),
        (Some("k"), Some("U"), 3)
    );
    let Operation::ListMultipartUploads(list) =
        read("GET", "/my-bucket?uploads&upload-id-marker=U", "").unwrap()
    else {
        panic!()
    };
    assert_eq!(list.upload_id_marker, None);
}
