//! Names in the path: percent-decoded exactly once, then checked.
//!
//! The raw path is read, not the router's decoded parameters, so that an encoded slash or a broken
//! escape is seen and refused instead of being read in one of two ways.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fence_core::{ErrorCode, LockId, ObjectKey, OperationId, ResourceName};
use fencegate_s3::bucket::BucketName;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::http::problem::Problem;

/// `/resources/{resource}...`
pub struct InResource(pub ResourceName);

/// `/resources/{resource}/objects/{key}`
pub struct InObject {
    /// The resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
}

/// `/buckets/{name}`
pub struct InBucket(pub BucketName);

/// `/locks/{id}...`
pub struct InLock(pub LockId);

/// `/operations/{id}`
pub struct InOperation(pub OperationId);

/// `/admin/intents/{operation}/...`
pub struct InIntent(pub OperationId);

impl<S: Sync> FromRequestParts<S> for InResource {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let (resource, _) = split(parts.uri.path());
        resource_name(resource).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for InBucket {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let invalid = |why: String| Problem::new(ErrorCode::ResourceNameInvalid, why);
        let raw = parts.uri.path().strip_prefix("/buckets/").unwrap_or_default();
        let name = decode(raw).map_err(|why| invalid(why.into()))?;
        BucketName::new(name).map(Self).map_err(|error| invalid(error.message.into_owned()))
    }
}

impl<S: Sync> FromRequestParts<S> for InObject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let (resource, rest) = split(parts.uri.path());
        let resource = resource_name(resource)?;
        let key = object_key(rest.strip_prefix("objects/").unwrap_or_default())?;
        Ok(Self { resource, key })
    }
}

impl<S: Sync> FromRequestParts<S> for InLock {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let id = parts.uri.path().split('/').nth(2).unwrap_or_default();
        let id = LockId::parse(id);
        id.map(Self).map_err(|why| Problem::malformed(format!("the id in the path: {why}")))
    }
}

impl<S: Sync> FromRequestParts<S> for InOperation {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        id(parts.uri.path()).map(|id| Self(OperationId(id)))
    }
}

impl<S: Sync> FromRequestParts<S> for InIntent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let path = parts.uri.path().strip_prefix("/admin").unwrap_or_default();
        id(path).map(|id| Self(OperationId(id)))
    }
}

/// The resource that a path is about, for the log.
pub fn resource_in(path: &str) -> Option<ResourceName> {
    path.strip_prefix("/resources/")?;
    resource_name(split(path).0).ok()
}

/// The raw resource and what follows it.
fn split(path: &str) -> (&str, &str) {
    let rest = path.strip_prefix("/resources/").unwrap_or_default();
    rest.split_once('/').unwrap_or((rest, ""))
}

fn resource_name(raw: &str) -> Result<ResourceName, Problem> {
    let invalid = |why: String| Problem::new(ErrorCode::ResourceNameInvalid, why);
    let name = decode(raw).map_err(|why| invalid(why.into()))?;
    ResourceName::new(name).map_err(|error| invalid(error.to_string()))
}

fn object_key(raw: &str) -> Result<ObjectKey, Problem> {
    let invalid = |why: String| Problem::new(ErrorCode::ObjectKeyInvalid, why);
    if raw.as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(b"%2f")) {
        return Err(invalid("a slash in a key is sent as it is, not as %2F".into()));
    }
    let key = decode(raw).map_err(|why| invalid(why.into()))?;
    ObjectKey::new(key).map_err(|error| invalid(error.to_string()))
}

/// Decodes once. A `%` that begins no escape is refused: some decoders keep it, others do not.
fn decode(raw: &str) -> Result<String, &'static str> {
    let bytes = raw.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, byte)| {
        *byte == b'%'
            && !matches!(bytes.get(at + 1..at + 3), Some(hex) if hex.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return Err("a '%' must be followed by two hexadecimal digits");
    }
    percent_decode_str(raw).decode_utf8().map(String::from).map_err(|_| "the name is not UTF-8")
}

/// The second segment as a UUID in its one usual form.
fn id(path: &str) -> Result<Uuid, Problem> {
    path.split('/')
        .nth(2)
        .and_then(uuid)
        .ok_or_else(|| Problem::malformed("the id in the path is not a UUID"))
}

/// Only the form with hyphens: the parser would also take braces and URNs.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|_| text.len() == 36)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_exactly_once() {
        assert_eq!(resource_name("job%3A1").unwrap().as_str(), "job:1");
        assert_eq!(resource_name("job:1").unwrap().as_str(), "job:1");
        assert_eq!(object_key("a/b%20c").unwrap().as_str(), "a/b c");
        assert_eq!(object_key("a%2520").unwrap().as_str(), "a%20");
        assert_eq!(object_key("a+b").unwrap().as_str(), "a+b");
    }

    #[test]
    fn names_that_could_be_read_two_ways_are_refused() {
        for bad in ["", "a%2Fb", "a%2fb", "..", "%2e%2e", "a%", "a%4", "a%zz", "%ff%fe", "a%00"] {
            assert!(resource_name(bad).is_err(), "{bad}");
        }
        for bad in [
            "",
            "a%2Fb",
            "a%2fb",
            "..",
            "a/../b",
            "%2e%2e",
            "a//b",
            "a/",
            "a%",
            "a%zz",
            "%ff%fe",
            "a%00b",
            "e%CC%81",
            "%E2%80%AE",
        ] {
            assert!(object_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_split_into_resource_and_rest() {
        assert_eq!(split("/resources/a/objects/b/c"), ("a", "objects/b/c"));
        assert_eq!(split("/resources/a"), ("a", ""));
        assert_eq!(resource_in("/resources/a%3Ab/objects/c").unwrap().as_str(), "a:b");
        assert_eq!(resource_in("/locks"), None);
    }

    #[test]
    fn ids_have_one_form() {
        assert!(id("/locks/67e55044-10b1-426f-9247-bb680e5fe0c8/renew").is_ok());
        for bad in [
            "/locks/67e5504410b1426f9247bb680e5fe0c8",
            "/locks/{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "/locks/x",
        ] {
            assert!(id(bad).is_err(), "{bad}");
        }
    }
}
