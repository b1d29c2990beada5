//! Which resource and object a key of a bucket is, and back.

use fencegate_wire::{NameError, ResourceName};

use super::BucketName;
use crate::address::check_key;
use crate::code::S3Error;

/// How many leading segments of a key belong to the resource: 0 to 3, fixed when a bucket is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depth(u8);

/// A depth above [`Depth::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the depth of a bucket is 0, 1, 2 or 3")]
pub struct DepthError;

impl Depth {
    /// One resource for the whole bucket.
    pub const ZERO: Self = Self(0);
    /// The greatest depth.
    pub const MAX: u8 = 3;

    /// Checks the number.
    pub fn new(depth: u8) -> Result<Self, DepthError> {
        (depth <= Self::MAX).then_some(Self(depth)).ok_or(DepthError)
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// The resource that a key lies in, and its key there.
    ///
    /// With at least this many segments that a slash ends, the resource is `bucket:first:second...` and the rest of the
    /// key, which may be empty, is the key there. With fewer, it is the bucket's own resource and the whole key. Two keys
    /// never become the same object: no segment has a colon or a slash, and those of the bucket's own resource have too
    /// few slashes to be any other. [`key_of`](Self::key_of) is the way back.
    ///
    /// # Errors
    /// Those of [`check_key`]; `InvalidArgument` for a segment that cannot be part of a resource's name. Such keys are
    /// refused, never repaired.
    pub fn object_of(
        self,
        bucket: &BucketName,
        key: &str,
    ) -> Result<(ResourceName, String), S3Error> {
        check_key(key)?;
        let mut segments: Vec<&str> = key.splitn(usize::from(self.0) + 1, '/').collect();
        if segments.len() <= usize::from(self.0) {
            return Ok((resource(bucket.as_str(), key)?, key.to_owned()));
        }
        let rest = segments.pop().unwrap_or_default();
        let mut name = bucket.as_str().to_owned();
        for segment in segments {
            check_segment(segment, key)?;
            name.push(':');
            name.push_str(segment);
        }
        Ok((resource(&name, key)?, rest.to_owned()))
    }

    /// The key of an object in the bucket.
    ///
    /// `None` if it is no key of this bucket: the resource lies elsewhere or has another number of segments, or
    /// [`object_of`](Self::object_of) would put the key elsewhere or refuse it. Such objects were written natively, and S3
    /// does not see them.
    pub fn key_of(self, bucket: &BucketName, resource: &ResourceName, key: &str) -> Option<String> {
        let below = resource.as_str().strip_prefix(bucket.as_str())?;
        let whole = match below.strip_prefix(':') {
            Some(segments) => format!("{}/{key}", segments.replace(':', "/")),
            None => key.to_owned(),
        };
        let back = self.object_of(bucket, &whole).ok()?;
        (back.0 == *resource && back.1 == key).then_some(whole)
    }
}

fn check_segment(segment: &str, key: &str) -> Result<(), S3Error> {
    match ResourceName::new(segment) {
        Ok(_) if !segment.contains(':') => Ok(()),
        Err(NameError::Length(_)) if segment.len() > 1 => Err(too_long(key)),
        _ => Err(S3Error::argument(
            "key",
            key,
            format!(
                "In this bucket the first segments of a key name what a lock covers. There, {segment:?} is not allowed: such a \
             segment is not empty, . or .., and holds only A-Z a-z 0-9 . _ ~ - @ # + = ,"
            ),
        )),
    }
}

fn resource(name: &str, key: &str) -> Result<ResourceName, S3Error> {
    // Every part of it was checked; only the whole can be too long.
    ResourceName::new(name).map_err(|_| too_long(key))
}

fn too_long(key: &str) -> S3Error {
    S3Error::argument(
        "key",
        key,
        "In this bucket the first segments of a key name what a lock covers. With the bucket's name, and a colon before \
         each, they must not have more than 256 bytes.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::S3Code;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn bucket() -> BucketName {
        BucketName::new("lake").unwrap()
    }

    fn at(depth: u8, key: &str) -> Option<(String, String)> {
        let found = Depth::new(depth).unwrap().object_of(&bucket(), key);
        let found = found.map(|(resource, key)| (resource.to_string(), key));
        found.inspect_err(|error| assert_eq!(error.code, S3Code::InvalidArgument)).ok()
    }

    fn is(resource: &str, key: &str) -> Option<(String, String)> {
        Some((resource.into(), key.into()))
    }

    #[test]
    fn leading_segments_belong_to_the_resource() {
        assert_eq!(at(0, "sales/orders/data/x"), is("lake", "sales/orders/data/x"));
        assert_eq!(at(1, "sales/orders/data/x"), is("lake:sales", "orders/data/x"));
        assert_eq!(at(2, "sales/orders/data/x"), is("lake:sales:orders", "data/x"));
        assert_eq!(at(3, "sales/orders/data/x"), is("lake:sales:orders:data", "x"));
        assert_eq!(at(2, "sales/orders/"), is("lake:sales:orders", ""));
        assert_eq!(at(2, "sales/orders"), is("lake", "sales/orders"));
        assert_eq!(at(2, "sales/"), is("lake", "sales/"));
        assert_eq!(at(2, "a/b//c"), is("lake:a:b", "/c"));
        assert_eq!(at(0, "//x"), is("lake", "//x"));
        assert!(Depth::new(4).is_err());
    }

    #[test]
    fn segments_that_are_no_names_are_refused() {
        for bad in ["/x", "./x", "../x", "a:b/x", "a b/x", "é/x", "a%/x", "a\n/x"] {
            assert_eq!(at(1, bad), None, "{bad}");
            assert!(at(0, bad).is_some(), "{bad}");
        }
        assert_eq!(at(2, "a//x"), None);
        // With fewer segments than the depth, none of them names a resource.
        assert_eq!(at(2, "é/x"), is("lake", "é/x"));
        assert_eq!(at(3, "../é"), is("lake", "../é"));
        let long = format!("{}/x", "s".repeat(251));
        assert_eq!(at(1, &long), is(&format!("lake:{}", "s".repeat(251)), "x"));
        assert_eq!(at(1, &format!("s{long}")), None);
        assert_eq!(at(1, &format!("{}/x", "s".repeat(300))), None);
        let wide = format!("{}/{}/x", "s".repeat(200), "t".repeat(60));
        assert_eq!(at(2, &wide), None);
    }

    #[test]
    fn what_was_written_natively_is_seen_only_where_s3_would_put_it() {
        let seen = |depth: u8, resource: &str, key: &str| {
            let resource = ResourceName::new(resource).unwrap();
            Depth::new(depth).unwrap().key_of(&bucket(), &resource, key)
        };
        assert_eq!(seen(1, "lake:a", "b"), Some("a/b".into()));
        assert_eq!(seen(1, "lake", "b"), Some("b".into()));
        assert_eq!(seen(0, "lake", "a/b"), Some("a/b".into()));
        for (depth, resource, key) in [
            (1, "lake", "a/b"),
            (0, "lake:a", "b"),
            (1, "lake:a:b", "c"),
            (2, "lake:a", "b"),
            (1, "lakes", "b"),
            (1, "pond:a", "b"),
            (1, "lake:", "b"),
            (2, "lake::a", "b"),
            (1, "lake:..", "b"),
            (0, "lake", ""),
            (1, "lake", ""),
            (0, "lake", "a\0"),
        ] {
            assert_eq!(seen(depth, resource, key), None, "{depth} {resource} {key:?}");
        }
        assert_eq!(seen(1, "lake:abcdef", &"k".repeat(1020)), None);
    }

    fn segment() -> impl Strategy<Value = String> {
        prop_oneof![4 => "[ab.:~-]{0,2}", 1 => "\\PC{0,3}"]
    }

    fn key() -> impl Strategy<Value = String> {
        prop::collection::vec(segment(), 1..6).prop_map(|segments| segments.join("/"))
    }

    proptest! {
        #[test]
        fn a_key_comes_back_from_its_object(key in key(), depth in 0..=3u8) {
            let depth = Depth::new(depth).unwrap();
            if let Ok((resource, inner)) = depth.object_of(&bucket(), &key) {
                prop_assert_eq!(BucketName::of_resource(&resource), Some(bucket()));
                prop_assert_eq!(depth.key_of(&bucket(), &resource, &inner), Some(key));
            }
        }

        #[test]
        fn an_object_comes_back_from_its_key(resource in "lake(:[ab.~-]{0,2}){0,4}", inner in key(), depth in 0..=3u8) {
            let depth = Depth::new(depth).unwrap();
            let resource = ResourceName::new(resource).unwrap();
            if let Some(key) = depth.key_of(&bucket(), &resource, &inner) {
                prop_assert_eq!(depth.object_of(&bucket(), &key).unwrap(), (resource, inner));
            }
        }

        #[test]
        fn no_two_keys_are_one_object(keys in prop::collection::vec(key(), 2..40), depth in 0..=3u8) {
            let depth = Depth::new(depth).unwrap();
            let mut objects = HashMap::new();
            for key in keys {
                let Ok(object) = depth.object_of(&bucket(), &key) else { continue };
                let before = objects.insert(object, key.clone());
                prop_assert!(before.is_none_or(|before| before == key));
            }
        }
    }
}
