//! Checksums: what they are, what requests say of them, and what parts make together.

use fencegate_s3::checksum::{
    Algorithm, Checksum, ChecksumError, ContentMd5, Digest, Kind, ObjectChecksum, Sent,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

/// Of "123456789". The CRCs are the check values of the catalogue of parametrised CRC algorithms (reveng.sourceforge.io:
/// CRC-32/ISO-HDLC cbf43926, CRC-32/ISCSI e3069283, CRC-64/NVME ae8b14860a799888), the others are from `hashlib` of
/// Python; all through `base64.b64encode`.
const KNOWN: [(Algorithm, &str); 5] = [
    (Algorithm::Crc32, "y/Q5Jg=="),
    (Algorithm::Crc32c, "4waSgw=="),
    (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
    (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
    (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
];

fn of(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
    let mut digest = Digest::new(algorithm);
    digest.update(bytes);
    digest.finish()
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let lines = lines.iter();
    lines
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn checksums_are_the_known_ones_and_have_one_text() {
    for (algorithm, text) in KNOWN {
        let checksum = of(algorithm, b"123456789");
        assert_eq!(checksum.to_string(), text);
        assert_eq!(Checksum::parse(algorithm, text), Ok(checksum));
        assert_eq!(checksum.as_bytes().len(), algorithm.len_bytes());
        let spare_bits = text
            .replace("w==", "x==")
            .replace("g==", "h==")
            .replace("g=", "h=")
            .replace("E=", "F=")
            .replace("U=", "V=");
        for bad in [
            text.trim_end_matches('='),
            &format!("{text}="),
            &format!(" {text}"),
            &text[4..],
            &format!("AAAA{text}"),
            "",
            "=",
            "é",
            &spare_bits,
        ] {
            assert!(Checksum::parse(algorithm, bad).is_err(), "{bad} for {text}");
        }
        assert_eq!(Algorithm::parse(algorithm.as_str()), Ok(algorithm));
        assert_eq!(Algorithm::parse(&algorithm.as_str().to_lowercase()), Ok(algorithm));
        assert_eq!(Algorithm::of_header(algorithm.header()), Some(algorithm));
    }
    assert_eq!(Algorithm::parse("MD5"), Err(ChecksumError::NotServed));
    assert_eq!(Algorithm::of_header("x-amz-checksum-type"), None);
}

#[test]
fn a_request_has_one_checksum_at_most() {
    let crc32 = ("x-amz-checksum-crc32", "y/Q5Jg==");
    let sha1 = ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=");
    let trailer = ("x-amz-trailer", "x-amz-checksum-crc32c");
    let sdk = |value| ("x-amz-sdk-checksum-algorithm", value);
    let in_header = Sent::Header(of(Algorithm::Crc32, b"123456789"));
    let others = ("x-amz-checksum-mode", "ENABLED");
    for (lines, wanted) in [
        (vec![], Ok(Sent::Not)),
        (
            vec![
                others,
                ("x-amz-checksum-type", "COMPOSITE"),
                ("x-amz-checksum-algorithm", "SHA1"),
            ],
            Ok(Sent::Not),
        ),
        (vec![crc32], Ok(in_header)),
        (vec![others, crc32, sdk("CRC32")], Ok(in_header)),
        (vec![trailer, sdk("crc32c")], Ok(Sent::Trailer(Algorithm::Crc32c))),
        (
            vec![("x-amz-trailer", " X-Amz-Checksum-CRC64NVME ,x-other")],
            Ok(Sent::Trailer(Algorithm::Crc64Nvme)),
        ),
        (vec![crc32, sha1], Err(ChecksumError::Several)),
        (vec![crc32, crc32], Err(ChecksumError::Several)),
        (vec![crc32, trailer], Err(ChecksumError::Several)),
        (
            vec![("x-amz-trailer", "x-amz-checksum-crc32,x-amz-checksum-sha1")],
            Err(ChecksumError::Several),
        ),
        (vec![crc32, sdk("SHA1")], Err(ChecksumError::NotSent)),
        (vec![sdk("CRC32")], Err(ChecksumError::NotSent)),
        (vec![crc32, sdk("MD5")], Err(ChecksumError::NotServed)),
        (vec![("x-amz-checksum-sha512", "AA==")], Err(ChecksumError::NotServed)),
        (vec![("x-amz-trailer", "x-amz-checksum-xxhash3")], Err(ChecksumError::NotServed)),
        (
            vec![("x-amz-checksum-crc32", "y/Q5J===")],
            Err(ChecksumError::Malformed("x-amz-checksum-crc32")),
        ),
    ] {
        assert_eq!(Sent::of(&headers(&lines)), wanted, "{lines:?}");
    }
}

#[test]
fn content_md5_is_sixteen_bytes_once() {
    // `hashlib.md5(b"123456789")` of Python.
    let good = ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==");
    let md5 = ContentMd5::of(&headers(&[good])).expect("it is good").expect("it is there");
    let digest = 0x25f9_e794_323b_4538_85f5_181f_1b62_4d0b_u128.to_be_bytes();
    assert!(md5.matches(&digest) && !md5.matches(&[0; 16]));
    assert_eq!(ContentMd5::of(&headers(&[])), Ok(None));
    for bad in [
        "",
        "JfnnlDI7RTiF9RgfG2JNCw",
        "JfnnlDI7RTiF9RgfG2JNCx==",
        "y/Q5Jg==",
        "25f9e794323b453885f5181f1b624d0b",
    ] {
        assert_eq!(
            ContentMd5::of(&headers(&[("content-md5", bad)])),
            Err(ChecksumError::MalformedMd5)
        );
    }
    assert_eq!(ContentMd5::of(&headers(&[good, good])), Err(ChecksumError::MalformedMd5));
}

#[test]
fn the_kind_of_an_upload_is_one_that_its_algorithm_can_have() {
    use Algorithm::{Crc32, Crc64Nvme, Sha256};
    for (algorithm, asked, wanted) in [
        (Crc32, None, Ok(Kind::Composite)),
        (Crc32, Some(Kind::FullObject), Ok(Kind::FullObject)),
        (Crc64Nvme, None, Ok(Kind::FullObject)),
        (Crc64Nvme, Some(Kind::Composite), Err(ChecksumError::Kind)),
        (Sha256, None, Ok(Kind::Composite)),
        (Sha256, Some(Kind::FullObject), Err(ChecksumError::Kind)),
    ] {
        assert_eq!(Kind::of_upload(algorithm, asked), wanted);
    }
    for kind in [Kind::Composite, Kind::FullObject] {
        assert_eq!(Kind::parse(kind.as_str()), Ok(kind));
    }
    assert_eq!(Kind::parse("composite"), Err(ChecksumError::Kind));
}

/// `base64(sha256(sha256(b"one") + sha256(b"two")))` with `hashlib` of Python.
#[test]
fn a_composite_checksum_is_that_of_checksums() {
    let parts = [b"one", b"two"].map(|part| (of(Algorithm::Sha256, part), 3));
    let made = ObjectChecksum::of_parts(Kind::Composite, &parts).expect("it is made");
    assert_eq!(made.to_string(), "EZFMGaKKmMV9EvPM5sMreUR4T0tHgacGwk6x3ChOKFY=-2");
    assert_eq!(ObjectChecksum::parse(Algorithm::Sha256, &made.to_string()), Ok(made));
    assert_eq!((made.kind(), made.algorithm()), (Kind::Composite, Algorithm::Sha256));
    for bad in ["-0", "-", "-02", "-+2", "-10001", "-2-2", "-x"] {
        let text = made.to_string().replace("-2", bad);
        assert!(ObjectChecksum::parse(Algorithm::Sha256, &text).is_err(), "{text}");
    }
    let mixed = [parts[0], (of(Algorithm::Crc32, b"two"), 3)];
    assert_eq!(ObjectChecksum::of_parts(Kind::Composite, &mixed), Err(ChecksumError::Parts));
    assert_eq!(ObjectChecksum::of_parts(Kind::Composite, &[]), Err(ChecksumError::Parts));
    assert_eq!(ObjectChecksum::of_parts(Kind::FullObject, &parts), Err(ChecksumError::Kind));
}

proptest! {
    #[test]
    fn pieces_change_nothing(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(bytes.len() + 1);
        for algorithm in Algorithm::ALL {
            let mut digest = Digest::new(algorithm);
            digest.update(&bytes[..at]);
            digest.update(&bytes[at..]);
            prop_assert_eq!(digest.finish(), of(algorithm, &bytes));
        }
    }

    #[test]
    fn the_crcs_of_parts_make_that_of_the_whole(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3000), 1..6),
    ) {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let sums: Vec<_> = parts.iter().map(|part| (of(algorithm, part), part.len() as u64)).collect();
            let whole = ObjectChecksum::Full(of(algorithm, &parts.concat()));
            prop_assert_eq!(ObjectChecksum::of_parts(Kind::FullObject, &sums), Ok(whole));
            prop_assert_eq!(ObjectChecksum::parse(algorithm, &whole.to_string()), Ok(whole));
        }
    }
}
