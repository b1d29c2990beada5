//! What is told of objects: of copies, deletions and attributes.

use fencegate_wire::EntityTag;
use jiff::Timestamp;

use super::{Document, write_checksum};
use crate::about::StoredChecksum;
use crate::code::S3Error;

/// `CopyObjectResult`.
pub fn copy_object(
    etag: EntityTag,
    last_modified: Timestamp,
    checksum: Option<&StoredChecksum>,
) -> String {
    Document::of("CopyObjectResult", |document| {
        document.time("LastModified", last_modified);
        document.value("ETag", etag);
        write_checksum(document, checksum);
    })
}

/// `CopyPartResult`. `etag`: the part's tag with its quotes. The checksum of a part has no type.
pub fn copy_part(
    etag: &str,
    last_modified: Timestamp,
    checksum: Option<&StoredChecksum>,
) -> String {
    Document::of("CopyPartResult", |document| {
        document.time("LastModified", last_modified);
        document.text("ETag", etag);
        if let Some(checksum) = checksum {
            document.text(checksum.algorithm.element(), &checksum.value);
        }
    })
}

/// What became of one object of a list of deletions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteOutcome {
    /// Its key.
    pub key: String,
    /// Why it was not deleted. What was not there counts as deleted.
    pub refusal: Option<S3Error>,
}

/// `DeleteResult`. `quiet`: only what failed.
pub fn delete_result(outcomes: &[DeleteOutcome], quiet: bool) -> String {
    Document::of("DeleteResult", |document| {
        for DeleteOutcome { key, refusal } in outcomes {
            match refusal {
                None if quiet => {}
                None => document.element("Deleted", |item| item.text("Key", key)),
                Some(error) => document.element("Error", |item| {
                    item.text("Key", key);
                    item.text("Code", error.code.as_str());
                    item.text("Message", &error.message);
                }),
            }
        }
    })
}

/// `Tagging` of an object: it has no tags.
pub fn no_tags() -> String {
    Document::of("Tagging", |document| document.element("TagSet", |_| {}))
}

/// What was asked for of an object, and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its tag.
    pub etag: Option<EntityTag>,
    /// Its checksum, if it has one.
    pub checksum: Option<StoredChecksum>,
    /// Its parts, if it was uploaded in parts.
    pub parts: Option<AttributesParts>,
    /// Whether the class of storage was asked for.
    pub storage_class: bool,
    /// Its size, in bytes.
    pub bytes: Option<u64>,
}

/// A page of the parts of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributesParts {
    /// How many parts it has in all.
    pub count: u32,
    /// The number that the page begins after.
    pub after: u16,
    /// The most parts of the page.
    pub max_parts: u16,
    /// Whether others follow.
    pub more: bool,
    /// The parts. S3 tells of them only if they have checksums.
    pub parts: Vec<AttributesPart>,
}

/// A part of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributesPart {
    /// Its number.
    pub number: u16,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its checksum.
    pub checksum: Option<StoredChecksum>,
}

/// `GetObjectAttributesResponse`. The tag has no quotes here: S3 has it so in this answer alone.
pub fn attributes(attributes: &Attributes) -> String {
    Document::of("GetObjectAttributesResponse", |document| {
        document.optional("ETag", attributes.etag.map(|etag| etag.bare()).as_deref());
        if attributes.checksum.is_some() {
            document.element("Checksum", |item| write_checksum(item, attributes.checksum.as_ref()));
        }
        if let Some(parts) = &attributes.parts {
            document.element("ObjectParts", |item| object_parts(item, parts));
        }
        if attributes.storage_class {
            document.text("StorageClass", "STANDARD");
        }
        if let Some(bytes) = attributes.bytes {
            document.value("ObjectSize", bytes);
        }
    })
}

fn object_parts(document: &mut Document, page: &AttributesParts) {
    document.value("PartsCount", page.count);
    document.value("PartNumberMarker", page.after);
    document
        .value("NextPartNumberMarker", page.parts.last().map_or(page.after, |part| part.number));
    document.value("MaxParts", page.max_parts);
    document.value("IsTruncated", page.more);
    for part in &page.parts {
        document.element("Part", |item| {
            item.value("PartNumber", part.number);
            item.value("Size", part.bytes);
            if let Some(checksum) = &part.checksum {
                item.text(checksum.algorithm.element(), &checksum.value);
            }
        });
    }
}
