//! Bodies, as clients send them and as they should not.

use fencegate_wire::EntityTag;
use fencegate_wire::etag::ObjectCondition;
use proptest::prelude::*;

use super::{BODY_BYTES_MAX, complete_multipart_upload, create_bucket, delete_objects};
use crate::about::ChecksumAlgorithm;
use crate::code::S3Code;

fn keys(body: &str) -> Result<Vec<String>, S3Code> {
    let read = delete_objects(body.as_bytes()).map_err(|error| error.code)?;
    Ok(read.objects.into_iter().map(|object| object.key).collect())
}

fn parts(body: &str) -> Result<Vec<(u16, String)>, S3Code> {
    let read = complete_multipart_upload(body.as_bytes()).map_err(|error| error.code)?;
    Ok(read.into_iter().map(|part| (part.number.get(), part.etag)).collect())
}

/// A list of deletions around this.
fn delete(inside: &str) -> String {
    format!("<Delete>{inside}</Delete>")
}

#[test]
fn deletions_of_real_clients() {
    let boto3 = r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a &amp; b&#xD;&#xA;&lt;é&gt;</Key></Object><Object><Key>c</Key><ETag>"g0-v1"</ETag></Object><Object><Key>d</Key><VersionId>null</VersionId></Object><Quiet>true</Quiet></Delete>"#;
    let read = delete_objects(boto3.as_bytes()).unwrap();
    assert!(read.quiet);
    let tag = EntityTag { generation: 0, version: 1 };
    let objects: Vec<_> =
        read.objects.into_iter().map(|object| (object.key, object.condition)).collect();
    assert_eq!(
        objects,
        [
            ("a & b\r\n<é>".into(), None),
            ("c".into(), Some(ObjectCondition::OneOf(vec![tag]))),
            ("d".into(), None)
        ]
    );

    let javascript = r#"<?xml version="1.0" encoding="UTF-8"?><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a &amp; b&#x0D;&#x0A;&lt;é&gt;&quot;</Key></Object><Object><Key>c</Key><ETag>&quot;g0-v1&quot;</ETag></Object><Quiet>false</Quiet></Delete>"#;
    assert_eq!(keys(javascript).unwrap(), ["a & b\r\n<é>\"", "c"]);
    let minio = r#"<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet><Object><Key>a &amp; b&lt;&#233;&gt;</Key></Object><Object><Key>c</Key></Object></Delete>"#;
    assert_eq!(keys(minio).unwrap(), ["a & b<é>", "c"]);
    let object_store =
        "<Delete><Object><Key>a &amp; b</Key></Object><Object><Key>c</Key></Object></Delete>";
    assert_eq!(keys(object_store).unwrap(), ["a & b", "c"]);
}

#[test]
fn white_space_prefixes_and_comments_change_nothing() {
    let body = "\u{feff}<?xml version='1.0'?>\n<!-- a -->\n<s3:Delete xmlns:s3='urn:x'>\n  <s3:Object >\n    <s3:Key> a <![CDATA[<b>]]><!-- c --> </s3:Key>\n  </s3:Object>\n</s3:Delete>\n<!-- z -->\n";
    assert_eq!(keys(body).unwrap(), [" a <b> "]);
    // Ends of lines are those of XML.
    assert_eq!(keys(&delete("<Object><Key>a\r\nb\rc&#13;</Key></Object>")).unwrap(), ["a\nb\nc\r"]);
    assert_eq!(keys(&delete("<Object><Key>&#1;&#x1F;</Key></Object>")).unwrap(), ["\u{1}\u{1f}"]);
}

#[test]
fn what_is_not_well_formed_is_refused() {
    let object = "<Object><Key>a</Key></Object>";
    for bad in [
        "",
        " ",
        "x",
        "<Delete>",
        "<Delete/>",
        "<Delete></Delete>",
        "<Delete><Object/></Delete>",
        "<Deleted></Deleted>",
        &format!("{}{}", delete(object), delete(object)),
        &format!("{}x", delete(object)),
        &format!("x{}", delete(object)),
        &delete(&format!("{object}x")),
        &delete("<Object><Key>a</Key>"),
        &delete("<Object><Key>a</Object></Key>"),
        &delete("<Object><Key>a<b/></Key></Object>"),
        &delete("<Object><Key>a</Key><Key>b</Key></Object>"),
        &delete("<Object><Key>a & b</Key></Object>"),
        &delete("<Object><Key>&nbsp;</Key></Object>"),
        &delete("<Object><Key>&#xD800;</Key></Object>"),
        &delete("<Object><Key>&#0;</Key></Object>"),
        &delete(&format!("{object}<Quiet>maybe</Quiet>")),
        &delete(&format!("{object}<Quiet>true</Quiet><Quiet>true</Quiet>")),
        &delete(&format!("{object}<Loud/>")),
        &delete("<Object><Key>a</Key><IfSize>5</IfSize></Object>"),
        &format!("<!DOCTYPE Delete [<!ENTITY a \"b\">]>{}", delete(object)),
        &format!("<!DOCTYPE Delete SYSTEM \"file:///etc/passwd\">{}", delete(object)),
    ] {
        assert_eq!(keys(bad), Err(S3Code::MalformedXml), "{bad}");
    }
    assert_eq!(
        delete_objects(b"<Delete><Object><Key>\xff</Key></Object></Delete>").unwrap_err().code,
        S3Code::MalformedXml
    );
    let mut utf_16 = vec![0xff, 0xfe];
    utf_16.extend(delete(object).encode_utf16().flat_map(u16::to_le_bytes));
    assert_eq!(delete_objects(&utf_16).unwrap_err().code, S3Code::MalformedXml);
}

#[test]
fn one_bad_object_refuses_them_all() {
    let with = |object: &str| {
        keys(&delete(&format!("<Object><Key>a</Key></Object><Object>{object}</Object>")))
    };
    assert_eq!(with("<Key></Key>"), Err(S3Code::InvalidArgument));
    assert_eq!(with(&format!("<Key>{}</Key>", "k".repeat(1025))), Err(S3Code::KeyTooLongError));
    assert_eq!(with("<Key>b</Key><VersionId>g0-v1</VersionId>"), Err(S3Code::NotImplemented));
    assert_eq!(with("<Key>b</Key><Size>5</Size>"), Err(S3Code::NotImplemented));
    assert_eq!(
        with("<Key>b</Key><LastModifiedTime>x</LastModifiedTime>"),
        Err(S3Code::NotImplemented)
    );
    assert_eq!(with("<Key>b</Key><ETag></ETag>"), Err(S3Code::InvalidArgument));
    assert_eq!(with("<Key>b</Key><ETag>*</ETag>"), Ok(vec!["a".into(), "b".into()]));
}

#[test]
fn lists_have_limits() {
    let many = |count: usize| delete(&"<Object><Key>a</Key></Object>".repeat(count));
    assert_eq!(keys(&many(1000)).unwrap().len(), 1000);
    assert_eq!(keys(&many(1001)), Err(S3Code::MalformedXml));
    let many = |count: usize| {
        let part = |number| format!("<Part><PartNumber>{number}</PartNumber><ETag>e</ETag></Part>");
        format!(
            "<CompleteMultipartUpload>{}</CompleteMultipartUpload>",
            (0..count).map(|n| part(n % 10_000 + 1)).collect::<String>()
        )
    };
    assert_eq!(parts(&many(10_000)).unwrap().len(), 10_000);
    assert_eq!(parts(&many(10_001)), Err(S3Code::MalformedXml));
    let nested = format!(
        "<CompleteMultipartUpload>{}{}</CompleteMultipartUpload>",
        "<a>".repeat(9),
        "</a>".repeat(9)
    );
    assert_eq!(parts(&nested), Err(S3Code::MalformedXml));
    let wide =
        format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", "<a/>".repeat(100_001));
    assert_eq!(parts(&wide), Err(S3Code::MalformedXml));
    let text = delete(&format!("<Object><Key>a</Key></Object><Quiet>{}</Quiet>", "t".repeat(8193)));
    assert_eq!(keys(&text), Err(S3Code::MalformedXml));
    assert_eq!(keys(&" ".repeat(BODY_BYTES_MAX + 1)), Err(S3Code::MaxMessageLengthExceeded));
}

#[test]
fn parts_of_real_clients() {
    let boto3 = r#"<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Part><ETag>"p1-p"</ETag><PartNumber>1</PartNumber><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part><Part><ETag>p2-p</ETag><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>"#;
    let read = complete_multipart_upload(boto3.as_bytes()).unwrap();
    assert_eq!(read[0].checksum, Some((ChecksumAlgorithm::Crc32, "AAAAAA==".into())));
    assert_eq!((read[1].etag.as_str(), &read[1].checksum), ("p2-p", &None));
    let javascript = r#"<?xml version="1.0" encoding="UTF-8"?><CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Part><ETag>&quot;p1-p&quot;</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>"#;
    assert_eq!(parts(javascript).unwrap(), [(1, "p1-p".into())]);
    // The caller checks the order.
    let object_store = r#"<CompleteMultipartUpload><Part><ETag>"b"</ETag><PartNumber>3</PartNumber></Part><Part><ETag>"a"</ETag><PartNumber>1</PartNumber><Size>5</Size></Part></CompleteMultipartUpload>"#;
    assert_eq!(parts(object_store).unwrap(), [(3, "b".into()), (1, "a".into())]);
}

#[test]
fn parts_that_make_no_sense() {
    let with = |part: &str| {
        parts(&format!("<CompleteMultipartUpload><Part>{part}</Part></CompleteMultipartUpload>"))
    };
    assert_eq!(parts("<CompleteMultipartUpload/>"), Err(S3Code::MalformedXml));
    assert_eq!(with("<ETag>a</ETag>"), Err(S3Code::MalformedXml));
    assert_eq!(with("<PartNumber>1</PartNumber>"), Err(S3Code::MalformedXml));
    for bad in ["0", "10001", "-1", "x", ""] {
        assert_eq!(
            with(&format!("<ETag>a</ETag><PartNumber>{bad}</PartNumber>")),
            Err(S3Code::InvalidArgument),
            "{bad}"
        );
    }
    let two = "<ETag>a</ETag><PartNumber>1</PartNumber><ChecksumCRC32>x</ChecksumCRC32><ChecksumSHA1>y</ChecksumSHA1>";
    assert_eq!(with(two), Err(S3Code::MalformedXml));
    assert_eq!(
        with("<ETag>a</ETag><PartNumber>1</PartNumber><ChecksumXXHASH64>x</ChecksumXXHASH64>"),
        Err(S3Code::NotImplemented)
    );
}

#[test]
fn where_a_bucket_is_to_be_made() {
    let of = |body: &str| create_bucket(body.as_bytes()).map_err(|error| error.code);
    assert_eq!(of(""), Ok(None));
    assert_eq!(of("\n"), Ok(None));
    let boto3 = r#"<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>"#;
    assert_eq!(of(boto3), Ok(Some("eu-west-1".into())));
    assert_eq!(of("<CreateBucketConfiguration/>"), Ok(None));
    assert_eq!(
        of("<CreateBucketConfiguration><LocationConstraint/></CreateBucketConfiguration>"),
        Ok(None)
    );
    let directory = "<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket></CreateBucketConfiguration>";
    assert_eq!(of(directory), Err(S3Code::NotImplemented));
    assert_eq!(of("<Delete/>"), Err(S3Code::MalformedXml));
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (delete_objects(&bytes), complete_multipart_upload(&bytes), create_bucket(&bytes));
    }

    #[test]
    fn no_markup_breaks_the_reader(pieces in prop::collection::vec("<Delete>|</Delete>|<Object>|</Object>|<Key>|</Key>|a|&amp;|&#x41;|<!--|-->|<!\\[CDATA\\[|\\]\\]>|<a/>| ", 0..12)) {
        if let Ok(read) = delete_objects(pieces.concat().as_bytes()) {
            prop_assert!(!read.objects.is_empty());
        }
    }
}
