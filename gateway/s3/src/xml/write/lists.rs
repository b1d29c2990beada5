//! Lists of objects, in both forms.

use fencegate_wire::EntityTag;
use jiff::Timestamp;

use super::{Document, Owner};
use crate::about::{ChecksumAlgorithm, ChecksumKind};
use crate::operation::{ListObjects, ListObjectsV2, ListScope, continuation_token};

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// When it was written.
    pub last_modified: Timestamp,
    /// Its tag.
    pub etag: EntityTag,
    /// Its size, in bytes.
    pub bytes: u64,
    /// How its checksum was computed, and from what.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectsPage {
    /// Objects, in the order of their keys.
    pub objects: Vec<ListedObject>,
    /// Common prefixes, in order.
    pub common_prefixes: Vec<String>,
    /// The last key or common prefix of the page, if others follow it.
    pub next_after: Option<String>,
}

/// `ListBucketResult` of the older form.
pub fn list_objects(request: &ListObjects, owner: &Owner, page: &ObjectsPage) -> String {
    let scope = &request.scope;
    Document::of("ListBucketResult", |document| {
        begin(document, scope, page);
        document.key("Marker", request.marker.as_deref().unwrap_or_default(), scope.url_encoded);
        // Without a delimiter S3 has no such element, and clients go on after the last key.
        if let (Some(next), Some(_)) = (&page.next_after, &scope.delimiter) {
            document.key("NextMarker", next, scope.url_encoded);
        }
        items(document, scope, page, Some(owner));
    })
}

/// `ListBucketResult` of the newer form.
pub fn list_objects_v2(request: &ListObjectsV2, owner: &Owner, page: &ObjectsPage) -> String {
    let scope = &request.scope;
    Document::of("ListBucketResult", |document| {
        begin(document, scope, page);
        document.value("KeyCount", page.objects.len() + page.common_prefixes.len());
        document.optional("ContinuationToken", request.continuation_token.as_deref());
        if let Some(next) = &page.next_after {
            document.text("NextContinuationToken", &continuation_token(next));
        }
        if let Some(start) = &request.start_after {
            document.key("StartAfter", start, scope.url_encoded);
        }
        items(document, scope, page, request.fetch_owner.then_some(owner));
    })
}

fn begin(document: &mut Document, scope: &ListScope, page: &ObjectsPage) {
    document.text("Name", scope.bucket.as_str());
    document.key("Prefix", &scope.prefix, scope.url_encoded);
    document.value("MaxKeys", scope.max_items);
    if let Some(delimiter) = &scope.delimiter {
        document.key("Delimiter", delimiter, scope.url_encoded);
    }
    if scope.url_encoded {
        document.text("EncodingType", "url");
    }
    document.value("IsTruncated", page.next_after.is_some());
}

fn items(document: &mut Document, scope: &ListScope, page: &ObjectsPage, owner: Option<&Owner>) {
    for object in &page.objects {
        document.element("Contents", |item| {
            item.key("Key", &object.key, scope.url_encoded);
            item.time("LastModified", object.last_modified);
            item.value("ETag", object.etag);
            if let Some((algorithm, kind)) = object.checksum {
                item.text("ChecksumAlgorithm", algorithm.as_str());
                item.text("ChecksumType", kind.as_str());
            }
            item.value("Size", object.bytes);
            item.text("StorageClass", "STANDARD");
            if let Some(owner) = owner {
                owner.write(item, "Owner");
            }
        });
    }
    common_prefixes(document, scope, &page.common_prefixes);
}

pub(super) fn common_prefixes(document: &mut Document, scope: &ListScope, prefixes: &[String]) {
    for prefix in prefixes {
        document.element("CommonPrefixes", |item| item.key("Prefix", prefix, scope.url_encoded));
    }
}
