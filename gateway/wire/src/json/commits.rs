//! Commits of many puts and deletes as JSON: the first part of the body, and the answer.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::lock::OperationId;
use crate::names::{ObjectKey, ResourceName};

/// The most resources of one commit.
pub const COMMIT_RESOURCES_MAX: usize = super::LOCK_RESOURCES_MAX;

/// The part named `operations` of `POST /commit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CommitRequest {
    /// What to do; no object comes twice. Bodies follow as parts in the order of the puts.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    #[serde(deserialize_with = "objects")]
    pub operations: Vec<CommitOperation>,
    /// The version that each of these resources must be at, before the commit.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Versions, required = false))]
    #[serde(default, deserialize_with = "versions", skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<ResourceName, i64>,
}

/// What an operation of a commit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommitVerb {
    /// Stores an object.
    Put,
    /// Removes an object, if it is there.
    Delete,
}

/// One operation of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CommitOperation {
    /// What it does.
    #[serde(deserialize_with = "word")]
    pub op: CommitVerb,
    /// Its resource.
    pub resource: ResourceName,
    /// The object.
    pub key: ObjectKey,
    /// Of a put: the name of the part that has its bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::PartName>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Of a put: its content type; by default that of the part, or `application/octet-stream`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::ContentType>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// As the header `If-Match`: the object carries one of these tags, or with `*`: it exists.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Tags>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_match: Option<String>,
    /// Of a put, as the header `If-None-Match`; only `*`: the object does not exist.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Star>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_none_match: Option<String>,
}

/// Operations given as lists, by the position of their fields, would be taken, too.
fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CommitOperation>, D::Error> {
    struct Object(CommitOperation);
    struct Fields;

    impl<'de> Deserialize<'de> for Object {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Fields).map(Self)
        }
    }

    impl<'de> Visitor<'de> for Fields {
        type Value = CommitOperation;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an operation as a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            CommitOperation::deserialize(MapAccessDeserializer::new(map))
        }
    }

    let objects = Vec::<Object>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(operation)| operation).collect())
}

/// `{"put": null}` would be taken for `"put"`, too.
fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CommitVerb, D::Error> {
    let text = String::deserialize(deserializer)?;
    CommitVerb::deserialize(text.as_str().into_deserializer())
}

/// A resource named twice would be taken at its last version.
fn versions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<ResourceName, i64>, D::Error> {
    struct Versions;

    impl<'de> Visitor<'de> for Versions {
        type Value = BTreeMap<ResourceName, i64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of resources and their versions")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut versions = BTreeMap::new();
            while let Some((name, version)) = map.next_entry::<ResourceName, i64>()? {
                if version < 0 {
                    return Err(A::Error::custom("a version is 0 or more"));
                }
                if versions.insert(name, version).is_some() {
                    return Err(A::Error::custom("a resource is named twice in `versions`"));
                }
            }
            Ok(versions)
        }
    }

    deserializer.deserialize_map(Versions)
}

/// The answer to a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Committed {
    /// The id of the operation, the same on all resources.
    pub operation: OperationId,
    /// Its resources, in byte order.
    pub resources: Vec<CommittedResource>,
    /// What each operation did, in the order of the request.
    pub results: Vec<CommitResult>,
}

/// What a commit did to a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommittedResource {
    /// Its name.
    pub resource: String,
    /// The version that the commit became; absent if it changed nothing there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// What an operation of a commit did.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommitResult {
    /// What it was.
    pub op: CommitVerb,
    /// Its resource.
    pub resource: String,
    /// The object.
    pub key: String,
    /// The version that the commit became; absent for a delete of nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Of a put: whether the object is a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// Of a put: the number of bytes stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Of a put: the SHA-256 of the bytes stored, in hexadecimal; absent if the gateway does not know it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Sha256>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Of a put: the object's tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::EntityTag>))]
    pub etag: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_literally() {
        let parse = serde_json::from_str::<CommitRequest>;
        let good =
            r#"{"operations":[{"op":"delete","resource":"r","key":"k"}],"versions":{"r":1}}"#;
        assert_eq!(parse(good).unwrap().versions[&ResourceName::new("r").unwrap()], 1);
        for bad in [
            r#"{}"#,
            r#"{"operations":[{"op":"delete_all","resource":"r","key":"k"}]}"#,
            r#"{"operations":[{"op":"put","resource":"r/s","key":"k","body":"b"}]}"#,
            r#"{"operations":[{"op":"put","resource":"r","key":"a//b","body":"b"}]}"#,
            r#"{"operations":[{"op":"put","resource":"r","key":"k","body":"b","ttl":1}]}"#,
            r#"{"operations":[["delete","r","k",null,null,null,null]]}"#,
            r#"{"operations":[{"op":{"delete":null},"resource":"r","key":"k"}]}"#,
            r#"{"operations":[{"op":"delete","op":"delete","resource":"r","key":"k"}]}"#,
            r#"{"operations":{"op":"delete","resource":"r","key":"k"}}"#,
            r#"{"operations":[],"versions":[["r",1]]}"#,
            r#"{"operations":[],"versions":{"r":1,"r":2}}"#,
            r#"{"operations":[],"versions":{"r":-1}}"#,
            r#"{"operations":[],"versions":{"r":"1"}}"#,
            r#"{"operations":[],"version":{"r":1}}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
