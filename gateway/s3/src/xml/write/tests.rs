//! Answers, as S3 writes them; strict parsers and our own reader take them.

use fencegate_wire::EntityTag;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::about::{ChecksumAlgorithm, ChecksumKind};
use crate::bucket::BucketName;
use crate::code::{S3Code, S3Error};
use crate::operation::{
    ListObjects, ListObjectsV2, ListScope, ObjectAddress, UploadAddress, UploadChecksum,
};
use crate::operation::{ListParts, ListUploads};
use crate::xml::read::delete_objects;

const TAG: EntityTag = EntityTag { generation: 0, version: 17 };

fn time() -> Timestamp {
    "2026-01-02T03:04:05.678Z".parse().unwrap()
}

fn owner() -> Owner {
    Owner { id: "fencegate".into(), display_name: "fencegate".into() }
}

fn object(key: &str) -> ObjectAddress {
    ObjectAddress { bucket: BucketName::new("lake").unwrap(), key: key.into() }
}

fn scope(url_encoded: bool) -> ListScope {
    ListScope {
        bucket: BucketName::new("lake").unwrap(),
        prefix: "a b/".into(),
        delimiter: Some("/".into()),
        max_items: 2,
        url_encoded,
    }
}

fn checksum() -> StoredChecksum {
    StoredChecksum {
        algorithm: ChecksumAlgorithm::Crc32,
        value: "AAAAAA==-2".into(),
        kind: ChecksumKind::Composite,
    }
}

fn page() -> ObjectsPage {
    let object = ListedObject {
        key: "a b/+&\u{1}é".into(),
        last_modified: time(),
        etag: TAG,
        bytes: 5,
        checksum: Some((ChecksumAlgorithm::Crc32, ChecksumKind::FullObject)),
    };
    ObjectsPage {
        objects: vec![object],
        common_prefixes: vec!["a b/c/".into()],
        next_after: Some("a b/c/".into()),
    }
}

/// What stands between the root's tags.
fn inside(document: &str, root: &str) -> String {
    let head = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    );
    let inside =
        document.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&format!("</{root}>")));
    inside.unwrap_or_else(|| panic!("{document}")).to_owned()
}

const OWNER: &str = "<Owner><ID>fencegate</ID><DisplayName>fencegate</DisplayName></Owner>";

#[test]
fn a_list_of_the_older_form() {
    let request = ListObjects { scope: scope(true), marker: Some("a b".into()) };
    assert_eq!(
        inside(&list_objects(&request, &owner(), &page()), "ListBucketResult"),
        format!(
            "<Name>lake</Name><Prefix>a%20b/</Prefix><MaxKeys>2</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType>\
             <IsTruncated>true</IsTruncated><Marker>a%20b</Marker><NextMarker>a%20b/c/</NextMarker>\
             <Contents><Key>a%20b/%2B%26%01%C3%A9</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
             <ETag>&quot;g0-v17&quot;</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>\
             <Size>5</Size><StorageClass>STANDARD</StorageClass>{OWNER}</Contents>\
             <CommonPrefixes><Prefix>a%20b/c/</Prefix></CommonPrefixes>"
        )
    );
    // Without a delimiter, clients go on after the last key.
    let mut request = request;
    request.scope.delimiter = None;
    assert!(!list_objects(&request, &owner(), &page()).contains("NextMarker"));
}

#[test]
fn a_list_of_the_newer_form() {
    let mut request = ListObjectsV2 {
        scope: scope(false),
        start_after: Some("a".into()),
        continuation_token: None,
        continue_after: None,
        fetch_owner: false,
    };
    assert_eq!(
        inside(&list_objects_v2(&request, &owner(), &page()), "ListBucketResult"),
        "<Name>lake</Name><Prefix>a b/</Prefix><MaxKeys>2</MaxKeys><Delimiter>/</Delimiter><IsTruncated>true</IsTruncated>\
         <KeyCount>2</KeyCount><NextContinuationToken>1YSBiL2Mv</NextContinuationToken><StartAfter>a</StartAfter>\
         <Contents><Key>a b/+&amp;&#x1;é</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
         <ETag>&quot;g0-v17&quot;</ETag><ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>\
         <Size>5</Size><StorageClass>STANDARD</StorageClass></Contents><CommonPrefixes><Prefix>a b/c/</Prefix></CommonPrefixes>"
    );
    request.fetch_owner = true;
    request.continuation_token = Some("1YQ".into());
    let last = list_objects_v2(&request, &owner(), &ObjectsPage::default());
    assert!(last.contains("<IsTruncated>false</IsTruncated><KeyCount>0</KeyCount><ContinuationToken>1YQ</ContinuationToken>"));
    assert!(list_objects_v2(&request, &owner(), &page()).contains(OWNER));
}

#[test]
fn buckets() {
    let listed =
        |name: &str| ListedBucket { name: BucketName::new(name).unwrap(), created: time() };
    let request = crate::operation::ListBuckets {
        prefix: Some("l".into()),
        max_buckets: Some(1),
        after: None,
    };
    assert_eq!(
        inside(
            &list_buckets(&request, &owner(), &[listed("lake")], true),
            "ListAllMyBucketsResult"
        ),
        format!(
            "{OWNER}<Buckets><Bucket><Name>lake</Name><CreationDate>2026-01-02T03:04:05.000Z</CreationDate></Bucket></Buckets>\
             <Prefix>l</Prefix><ContinuationToken>1bGFrZQ</ContinuationToken>"
        )
    );
    assert_eq!(inside(&location("eu-west-1"), "LocationConstraint"), "eu-west-1");
    assert_eq!(inside(&location("us-east-1"), "LocationConstraint"), "");
    assert_eq!(inside(&versioning(), "VersioningConfiguration"), "");
    assert_eq!(
        inside(&access_control_policy(&owner()), "AccessControlPolicy"),
        format!(
            "{OWNER}<AccessControlList><Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
             xsi:type=\"CanonicalUser\"><ID>fencegate</ID><DisplayName>fencegate</DisplayName></Grantee>\
             <Permission>FULL_CONTROL</Permission></Grant></AccessControlList>"
        )
    );
}

#[test]
fn objects() {
    assert_eq!(
        inside(&copy_object(TAG, time(), Some(&checksum())), "CopyObjectResult"),
        "<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;g0-v17&quot;</ETag>\
         <ChecksumCRC32>AAAAAA==-2</ChecksumCRC32><ChecksumType>COMPOSITE</ChecksumType>"
    );
    assert_eq!(
        inside(&copy_part("\"x-p\"", time(), None), "CopyPartResult"),
        "<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;x-p&quot;</ETag>"
    );
    assert_eq!(inside(&no_tags(), "Tagging"), "<TagSet></TagSet>");
    let outcomes = [
        DeleteOutcome { key: "a<".into(), refusal: None },
        DeleteOutcome {
            key: "b".into(),
            refusal: Some(S3Error::new(S3Code::FenceTokenStale, "late & lost")),
        },
    ];
    let failed =
        "<Error><Key>b</Key><Code>FenceTokenStale</Code><Message>late &amp; lost</Message></Error>";
    assert_eq!(inside(&delete_result(&outcomes, true), "DeleteResult"), failed);
    let all = format!("<Deleted><Key>a&lt;</Key></Deleted>{failed}");
    assert_eq!(inside(&delete_result(&outcomes, false), "DeleteResult"), all);
}

#[test]
fn attributes_are_those_that_were_asked_for() {
    assert_eq!(inside(&attributes(&Attributes::default()), "GetObjectAttributesResponse"), "");
    let part = AttributesPart { number: 2, bytes: 5, checksum: Some(checksum()) };
    let parts = AttributesParts { count: 3, after: 1, max_parts: 1, more: true, parts: vec![part] };
    let all = Attributes {
        etag: Some(TAG),
        checksum: Some(checksum()),
        parts: Some(parts),
        storage_class: true,
        bytes: Some(9),
    };
    assert_eq!(
        inside(&attributes(&all), "GetObjectAttributesResponse"),
        "<ETag>g0-v17</ETag><Checksum><ChecksumCRC32>AAAAAA==-2</ChecksumCRC32><ChecksumType>COMPOSITE</ChecksumType></Checksum>\
         <ObjectParts><PartsCount>3</PartsCount><PartNumberMarker>1</PartNumberMarker><NextPartNumberMarker>2</NextPartNumberMarker>\
         <MaxParts>1</MaxParts><IsTruncated>true</IsTruncated><Part><PartNumber>2</PartNumber><Size>5</Size>\
         <ChecksumCRC32>AAAAAA==-2</ChecksumCRC32></Part></ObjectParts><StorageClass>STANDARD</StorageClass><ObjectSize>9</ObjectSize>"
    );
}

#[test]
fn uploads() {
    let object = object("k&");
    let address = UploadAddress { object: object.clone(), upload: "U".into() };
    assert_eq!(
        inside(&create_multipart_upload(&object, "U"), "InitiateMultipartUploadResult"),
        "<Bucket>lake</Bucket><Key>k&amp;</Key><UploadId>U</UploadId>"
    );
    let completed =
        Completed { object: &object, location: "http://h/lake/k%26", etag: TAG, checksum: None };
    assert_eq!(
        inside(&complete_multipart_upload(&completed), "CompleteMultipartUploadResult"),
        "<Location>http://h/lake/k%26</Location><Bucket>lake</Bucket><Key>k&amp;</Key><ETag>&quot;g0-v17&quot;</ETag>"
    );
    let kind =
        Some(UploadChecksum { algorithm: ChecksumAlgorithm::Crc32, kind: ChecksumKind::Composite });
    let part = ListedPart {
        number: 2,
        last_modified: time(),
        etag: "\"x-p\"".into(),
        bytes: 5,
        checksum: Some(checksum()),
    };
    let request = ListParts { upload: address, max_parts: 1, after: 1, url_encoded: false };
    let owners = format!(
        "<Initiator><ID>fencegate</ID><DisplayName>fencegate</DisplayName></Initiator>{OWNER}<StorageClass>STANDARD</StorageClass>"
    );
    let sums = "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>COMPOSITE</ChecksumType>";
    assert_eq!(
        inside(
            &list_parts(
                &request,
                &owner(),
                &PartsPage { parts: vec![part], more: true, checksum: kind }
            ),
            "ListPartsResult"
        ),
        format!(
            "<Bucket>lake</Bucket><Key>k&amp;</Key><UploadId>U</UploadId><PartNumberMarker>1</PartNumberMarker>\
             <NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>1</MaxParts><IsTruncated>true</IsTruncated>\
             <Part><PartNumber>2</PartNumber><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;x-p&quot;</ETag>\
             <Size>5</Size><ChecksumCRC32>AAAAAA==-2</ChecksumCRC32></Part>{owners}{sums}"
        )
    );
    let upload =
        ListedUpload { key: "a b/k".into(), upload: "U".into(), begun: time(), checksum: None };
    let page = UploadsPage {
        uploads: vec![upload],
        common_prefixes: vec!["a b/c/".into()],
        next_after: Some(("a b/k".into(), Some("U".into()))),
    };
    let request = ListUploads { scope: scope(true), key_marker: None, upload_id_marker: None };
    assert_eq!(
        inside(&list_uploads(&request, &owner(), &page), "ListMultipartUploadsResult"),
        format!(
            "<Bucket>lake</Bucket><KeyMarker></KeyMarker><UploadIdMarker></UploadIdMarker><NextKeyMarker>a%20b/k</NextKeyMarker>\
             <NextUploadIdMarker>U</NextUploadIdMarker><Prefix>a%20b/</Prefix><Delimiter>/</Delimiter><EncodingType>url</EncodingType>\
             <MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated><Upload><Key>a%20b/k</Key><UploadId>U</UploadId>{owners}\
             <Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload><CommonPrefixes><Prefix>a%20b/c/</Prefix></CommonPrefixes>"
        )
    );
}

#[test]
fn a_refusal_says_what_where_and_which_request() {
    let error = S3Error::argument("max-keys", "<x>\0", "not a number");
    let failure = Failure { error: &error, resource: "/lake?a&b", request_id: "r", host_id: "h" };
    assert_eq!(
        super::error(&failure),
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidArgument</Code><Message>not a number</Message>\
         <ArgumentName>max-keys</ArgumentName><ArgumentValue>&lt;x&gt;\u{fffd}</ArgumentValue><Resource>/lake?a&amp;b</Resource>\
         <RequestId>r</RequestId><HostId>h</HostId></Error>"
    );
}

proptest! {
    #[test]
    fn a_key_that_was_written_is_read_as_it_was(key in "[^\0]{1,200}") {
        let mut document = String::new();
        // The form of a request is a part of that of an answer.
        let written = delete_result(&[DeleteOutcome { key: key.clone(), refusal: None }], false);
        document.push_str(&inside(&written, "DeleteResult").replace("Deleted>", "Object>"));
        let read = delete_objects(format!("<Delete>{document}</Delete>").as_bytes()).unwrap();
        prop_assert_eq!(&read.objects[0].key, &key);
    }

    #[test]
    fn an_encoded_key_is_plain_ascii_and_decodes_to_itself(key in "[^\0]{1,200}") {
        let mut page = page();
        page.objects[0].key.clone_from(&key);
        let request = ListObjects { scope: scope(true), marker: None };
        let written = list_objects(&request, &owner(), &page);
        let encoded = written.split("<Key>").nth(1).and_then(|rest| rest.split("</Key>").next()).unwrap();
        prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)));
        let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8().unwrap();
        prop_assert_eq!(decoded, key);
    }
}
