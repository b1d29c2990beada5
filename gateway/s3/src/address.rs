//! Where a request goes: which bucket and which key, from `Host` and the path as it was sent.

use percent_encoding::percent_decode_str;

use crate::bucket::BucketName;
use crate::code::{S3Code, S3Error};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// What a request is about: all buckets, a bucket, or an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The bucket; without one, the request is about all of them.
    pub bucket: Option<BucketName>,
    /// The key, decoded, as [`check_key`] allows it. Only ever beside a bucket.
    pub key: Option<String>,
}

impl Address {
    /// Reads `Host` and the path as it was sent, still encoded and without the query.
    ///
    /// With a `domain`, the host `bucket.domain` names the bucket and the whole path is the key. On every other host the
    /// first segment of the path is the bucket. The path is decoded exactly once and only after it was taken apart, so an
    /// encoded slash is part of the key, and no key can be read as another bucket.
    ///
    /// # Errors
    /// `InvalidURI` for an encoding that cannot be read, `InvalidBucketName`, and those of [`check_key`].
    pub fn read(host: Option<&str>, path: &str, domain: Option<&str>) -> Result<Self, S3Error> {
        let Some(path) = path.strip_prefix('/') else {
            return Err(S3Error::new(S3Code::InvalidUri, "The path must begin with a slash."));
        };
        if let Some(bucket) =
            host.zip(domain).and_then(|(host, domain)| bucket_of_host(host, domain))
        {
            return Ok(Self { bucket: Some(BucketName::new(bucket)?), key: key(path)? });
        }
        let (bucket, rest) = path.split_once('/').unwrap_or((path, ""));
        if path.is_empty() {
            return Ok(Self { bucket: None, key: None });
        }
        Ok(Self { bucket: Some(BucketName::new(decode(bucket)?)?), key: key(rest)? })
    }
}

/// Refuses what is no key: keys are any UTF-8 of 1 to 1,024 bytes without NUL, which Postgres cannot keep.
///
/// # Errors
/// `KeyTooLongError` or `InvalidArgument`.
pub fn check_key(key: &str) -> Result<(), S3Error> {
    if key.len() > KEY_BYTES_MAX {
        let error = S3Error::from(S3Code::KeyTooLongError);
        return Err(error
            .with("Size", key.len().to_string())
            .with("MaxSizeAllowed", KEY_BYTES_MAX.to_string()));
    }
    if key.is_empty() {
        return Err(S3Error::argument("key", "", "A key has at least one byte."));
    }
    if key.contains('\0') {
        return Err(S3Error::new(S3Code::InvalidArgument, "A key has no NUL character."));
    }
    Ok(())
}

/// Decodes text of a URI once.
///
/// # Errors
/// `InvalidURI` for a percent sign without two hexadecimal digits, and for what is no UTF-8 then.
pub(crate) fn decode(text: &str) -> Result<String, S3Error> {
    let bytes = text.as_bytes();
    let broken = |at: usize| {
        !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    if percent_signs(bytes).any(broken) {
        return Err(S3Error::new(
            S3Code::InvalidUri,
            "A percent sign must be followed by two hexadecimal digits.",
        ));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| {
        S3Error::new(S3Code::InvalidUri, "The URI is not UTF-8 once it is decoded.")
    })?;
    Ok(decoded.into_owned())
}

fn percent_signs(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at)
}

fn key(encoded: &str) -> Result<Option<String>, S3Error> {
    if encoded.is_empty() {
        return Ok(None);
    }
    let key = decode(encoded)?;
    check_key(&key)?;
    Ok(Some(key))
}

/// What stands before the domain in the host, if it is not the domain itself. Hosts have no case.
fn bucket_of_host(host: &str, domain: &str) -> Option<String> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let bucket = name.strip_suffix(&domain.to_ascii_lowercase())?.strip_suffix('.')?;
    Some(bucket.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    fn read(host: Option<&str>, path: &str) -> Result<(Option<String>, Option<String>), S3Code> {
        let address = Address::read(host, path, Some("s3.Example.com"));
        address
            .map(|found| (found.bucket.map(|name| name.to_string()), found.key))
            .map_err(|error| error.code)
    }

    fn is(bucket: &str, key: &str) -> Result<(Option<String>, Option<String>), S3Code> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok((some(bucket), some(key)))
    }

    #[test]
    fn the_first_segment_of_the_path_is_the_bucket() {
        for host in [
            None,
            Some("127.0.0.1:9000"),
            Some("[::1]:9000"),
            Some("s3.example.com"),
            Some("xs3.example.com"),
        ] {
            assert_eq!(read(host, "/"), is("", ""));
            assert_eq!(read(host, "/lake"), is("lake", ""));
            assert_eq!(read(host, "/lake/"), is("lake", ""));
            assert_eq!(read(host, "/lake//"), is("lake", "/"));
            assert_eq!(read(host, "/lake/a/../b/"), is("lake", "a/../b/"));
        }
    }

    #[test]
    fn a_host_below_the_domain_is_the_bucket() {
        for host in [
            "lake.s3.example.com",
            "LAKE.s3.example.com:9000",
            "lake.S3.Example.COM.",
            "lake.s3.example.com.:80",
        ] {
            assert_eq!(read(Some(host), "/"), is("lake", ""));
            assert_eq!(read(Some(host), "/lake/x"), is("lake", "lake/x"));
            assert_eq!(read(Some(host), "//x"), is("lake", "/x"));
        }
        assert_eq!(read(Some("a.b.lake.s3.example.com"), "/x"), is("a.b.lake", "x"));
        assert_eq!(read(Some("a_b.s3.example.com"), "/x"), Err(S3Code::InvalidBucketName));
        assert_eq!(read(Some(".s3.example.com"), "/x"), Err(S3Code::InvalidBucketName));
        let without = Address::read(Some("lake.s3.example.com"), "/pond/x", None).unwrap();
        assert_eq!(without.bucket.unwrap().as_str(), "pond");
    }

    #[test]
    fn the_path_is_decoded_once_and_after_it_was_taken_apart() {
        // As boto3 and the JavaScript SDK send it.
        assert_eq!(read(None, "/lake/a%20b/%C3%A9%2B%25.txt"), is("lake", "a b/é+%.txt"));
        assert_eq!(
            read(None, "/lake/a%20b/%C3%A9%2B%25%27%28%29%2A%21.txt"),
            is("lake", "a b/é+%'()*!.txt")
        );
        assert_eq!(read(None, "/lake/a%2Fb"), is("lake", "a/b"));
        assert_eq!(read(None, "/lake/a%252Fb"), is("lake", "a%2Fb"));
        assert_eq!(read(None, "/lake/a+b"), is("lake", "a+b"));
        assert_eq!(read(None, "/l%61ke/x"), is("lake", "x"));
        assert_eq!(read(None, "/lake%2Fx"), Err(S3Code::InvalidBucketName));
        assert_eq!(read(None, "/lake/%01"), is("lake", "\u{1}"));
        for bad in [
            "lake",
            "",
            "*",
            "/lake/%",
            "/lake/%4",
            "/lake/%g0",
            "/lake/%+1",
            "/lake/%ff",
            "/lake/%C3",
            "/%zz",
        ] {
            assert_eq!(read(None, bad), Err(S3Code::InvalidUri), "{bad}");
        }
    }

    #[test]
    fn keys_have_1_to_1024_bytes_and_no_nul() {
        assert_eq!(read(None, "/lake/a%00b"), Err(S3Code::InvalidArgument));
        assert!(read(None, &format!("/lake/{}", "%C3%A9".repeat(512))).is_ok());
        assert_eq!(
            read(None, &format!("/lake/{}x", "%C3%A9".repeat(512))),
            Err(S3Code::KeyTooLongError)
        );
        assert_eq!(check_key("").unwrap_err().code, S3Code::InvalidArgument);
        assert_eq!(read(None, "//x"), Err(S3Code::InvalidBucketName));
    }

    /// What a path cannot hold as it is.
    const MUST: &percent_encoding::AsciiSet =
        &percent_encoding::CONTROLS.add(b'%').add(b'?').add(b'#').add(b' ');

    proptest! {
        #[test]
        fn a_key_arrives_as_it_was(key in "[^\0]{1,200}", plain in any::<bool>()) {
            // Everything encoded, or only what must be.
            let encoded = utf8_percent_encode(&key, if plain { MUST } else { NON_ALPHANUMERIC }).to_string();
            let address = Address::read(None, &format!("/lake/{encoded}"), None).unwrap();
            prop_assert_eq!(address.key.as_ref(), Some(&key));
            let by_host = Address::read(Some("lake.s3.test"), &format!("/{encoded}"), Some("s3.test")).unwrap();
            prop_assert_eq!(by_host, address);
        }

        #[test]
        fn what_is_read_can_be_kept(path in "/[a-c]{3}(/|%2F|%|[a-c.]|%[0-9a-f]{2}){0,30}") {
            if let Ok(Address { key: Some(key), .. }) = Address::read(None, &path, None) {
                prop_assert!(check_key(&key).is_ok());
            }
        }
    }
}
