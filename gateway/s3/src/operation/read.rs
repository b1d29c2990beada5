//! Parameters of reads of one object.

use fencegate_wire::EntityTag;
use http::{HeaderMap, HeaderName, HeaderValue, header as names};

use super::values::{header, limit, part_marker, part_number, version_id};
use super::{ByteRange, Conditions, ObjectAddress, PAGE_MAX, PartNumber, Query};
use crate::code::{S3Code, S3Error};

/// `GET` or `HEAD` of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadObject {
    /// The object.
    pub object: ObjectAddress,
    /// The write that it is from; `None`: the newest.
    pub version: Option<EntityTag>,
    /// What is demanded of it.
    pub conditions: Conditions,
    /// Which bytes; never beside a part.
    pub range: Option<ByteRange>,
    /// Only the bytes of this part.
    pub part: Option<PartNumber>,
    /// Headers of the answer that the caller wants in place of those that are kept.
    pub overrides: Vec<(HeaderName, HeaderValue)>,
    /// Whether the answer has the checksum.
    pub with_checksum: bool,
}

/// What `GetObjectAttributes` can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttributeKind {
    /// `ETag`
    ETag,
    /// `Checksum`
    Checksum,
    /// `ObjectParts`
    ObjectParts,
    /// `StorageClass`
    StorageClass,
    /// `ObjectSize`
    ObjectSize,
}

/// `GET /bucket/key?attributes`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectAttributes {
    /// The object.
    pub object: ObjectAddress,
    /// The write that it is from; `None`: the newest.
    pub version: Option<EntityTag>,
    /// What is asked for, at least one.
    pub wanted: Vec<AttributeKind>,
    /// The most parts of the answer.
    pub max_parts: u16,
    /// Only parts after this number.
    pub parts_after: u16,
}

impl ReadObject {
    pub(super) fn read(
        object: ObjectAddress,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        let part = query.get("partNumber").map(part_number).transpose()?;
        let range = ByteRange::read(headers)?;
        if part.is_some() && range.is_some() {
            let why = "Cannot specify both Range header and partNumber query parameter";
            return Err(S3Error::new(S3Code::InvalidRequest, why));
        }
        Ok(Self {
            object,
            version: version_id(query.get("versionId"))?,
            conditions: Conditions::of_read(headers)?,
            range,
            part,
            overrides: overrides(query)?,
            with_checksum: header(headers, "x-amz-checksum-mode")?
                .is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED")),
        })
    }
}

fn overrides(query: &Query) -> Result<Vec<(HeaderName, HeaderValue)>, S3Error> {
    let known = [
        ("response-cache-control", names::CACHE_CONTROL),
        ("response-content-disposition", names::CONTENT_DISPOSITION),
        ("response-content-encoding", names::CONTENT_ENCODING),
        ("response-content-language", names::CONTENT_LANGUAGE),
        ("response-content-type", names::CONTENT_TYPE),
        ("response-expires", names::EXPIRES),
    ];
    let mut overrides = Vec::new();
    for (parameter, name) in known {
        let Some(text) = query.filled(parameter) else { continue };
        let value = HeaderValue::from_bytes(text.as_bytes());
        let why = "This cannot be the value of a header.";
        overrides.push((name, value.map_err(|_| S3Error::argument(parameter, text, why))?));
    }
    Ok(overrides)
}

impl ObjectAttributes {
    pub(super) fn read(
        object: ObjectAddress,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        let name = "x-amz-object-attributes";
        let mut wanted = Vec::new();
        // SDKs send one line with commas, or one line for each.
        for line in headers.get_all(name) {
            let line =
                line.to_str().map_err(|_| S3Error::argument(name, "", "This is not ASCII."))?;
            for text in line.split(',').map(str::trim_ascii) {
                let kind = AttributeKind::parse(text);
                let kind = kind.ok_or_else(|| {
                    S3Error::argument(name, text, "Invalid attribute name specified.")
                })?;
                if !wanted.contains(&kind) {
                    wanted.push(kind);
                }
            }
        }
        if wanted.is_empty() {
            let why = "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty";
            return Err(S3Error::argument(name, "", why));
        }
        Ok(Self {
            object,
            version: version_id(query.get("versionId"))?,
            wanted,
            max_parts: limit("x-amz-max-parts", header(headers, "x-amz-max-parts")?, PAGE_MAX)?,
            parts_after: part_marker(
                "x-amz-part-number-marker",
                header(headers, "x-amz-part-number-marker")?,
            )?,
        })
    }
}

impl AttributeKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "ETag" => Some(Self::ETag),
            "Checksum" => Some(Self::Checksum),
            "ObjectParts" => Some(Self::ObjectParts),
            "StorageClass" => Some(Self::StorageClass),
            "ObjectSize" => Some(Self::ObjectSize),
            _ => None,
        }
    }
}
