//! Buckets: their names, and which resource and object a key of a bucket is.

mod depth;

use std::fmt;
use std::sync::Arc;

use fencegate_wire::ResourceName;

use crate::code::{S3Code, S3Error};

pub use depth::{Depth, DepthError};

/// The name of a bucket, by the rules of S3.
///
/// 3 to 63 of `a-z 0-9 . -`, in labels that begin and end with a letter or digit, and no IP address. Never a colon: that
/// is what parts the bucket from the rest of a resource's name. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName(Arc<str>);

impl BucketName {
    /// The shortest name, in bytes.
    pub const BYTES_MIN: usize = 3;
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 63;

    /// Checks the name.
    ///
    /// # Errors
    /// `InvalidBucketName`, which says the rule that it breaks.
    pub fn new(name: impl Into<String>) -> Result<Self, S3Error> {
        let name = name.into();
        match broken_rule(&name) {
            None => Ok(Self(name.into())),
            Some(rule) => {
                let error = S3Error::new(
                    S3Code::InvalidBucketName,
                    format!("The bucket name is not valid: {rule}."),
                );
                // A name may be as long as a path.
                Err(error
                    .with("BucketName", name.chars().take(Self::BYTES_MAX + 1).collect::<String>()))
            }
        }
    }

    /// The bucket in which a resource lies, if there is one of that name: what stands before the first colon, or the
    /// whole name. `None` if no bucket can be called so.
    pub fn of_resource(resource: &ResourceName) -> Option<Self> {
        let name = resource.as_str();
        let bucket = name.split_once(':').map_or(name, |(bucket, _)| bucket);
        broken_rule(bucket).is_none().then(|| Self(bucket.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names that S3 keeps for itself. SDKs take some of them for another kind of bucket, and speak to that otherwise.
const RESERVED_STARTS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_ENDS: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

fn broken_rule(name: &str) -> Option<&'static str> {
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if !(BucketName::BYTES_MIN..=BucketName::BYTES_MAX).contains(&name.len()) {
        return Some("it must have 3 to 63 characters");
    }
    if !bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-')) {
        return Some("it holds only lower case letters, digits, dots and hyphens");
    }
    if !name
        .split('.')
        .all(|label| outer(label.as_bytes().first()) && outer(label.as_bytes().last()))
    {
        return Some(
            "it, and what stands between its dots, must begin and end with a letter or digit",
        );
    }
    let number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    if name.split('.').count() == 4 && name.split('.').all(number) {
        return Some("it must not look like an IP address");
    }
    let reserved = RESERVED_STARTS.iter().any(|start| name.starts_with(start))
        || RESERVED_ENDS.iter().any(|end| name.ends_with(end));
    reserved.then_some("S3 keeps names with this beginning or end for itself")
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_s3() {
        for good in
            ["abc", "my-bucket", "my.bucket.2", "0ab", "a.b", &"x".repeat(63), "1.2.3", "1.2.3.4a"]
        {
            assert_eq!(BucketName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "ab",
            &"x".repeat(64),
            "Abc",
            "a_b",
            "a:b",
            "a/b",
            "-ab",
            "ab-",
            ".ab",
            "ab.",
            "a..b",
            "a-.b",
            "a.-b",
            "1.2.3.4",
            "a b",
            "é12",
            "a\0b",
            "xn--abc",
            "sthree-abc",
            "abc-s3alias",
            "abc--x-s3",
            "abc.mrap",
        ] {
            let error = BucketName::new(bad).unwrap_err();
            assert_eq!(error.code, S3Code::InvalidBucketName, "{bad}");
        }
    }

    #[test]
    fn a_long_wrong_name_is_not_told_in_full() {
        let error = BucketName::new("y".repeat(5000)).unwrap_err();
        assert_eq!(error.details, [("BucketName", "y".repeat(64))]);
    }

    #[test]
    fn a_resource_lies_in_the_bucket_before_its_first_colon() {
        let of = |name: &str| {
            BucketName::of_resource(&ResourceName::new(name).unwrap()).map(|name| name.to_string())
        };
        assert_eq!(of("lake"), Some("lake".into()));
        assert_eq!(of("lake:orders:x"), Some("lake".into()));
        assert_eq!(of("lake:"), Some("lake".into()));
        for outside in ["Lake:orders", "a@b", ":lake", "ab", "1.2.3.4:x"] {
            assert_eq!(of(outside), None, "{outside}");
        }
    }
}
