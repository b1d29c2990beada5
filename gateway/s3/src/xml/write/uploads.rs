//! What is told of uploads in parts.

use fencegate_wire::EntityTag;
use jiff::Timestamp;

use super::lists::common_prefixes;
use super::{Document, Owner, write_checksum};
use crate::about::StoredChecksum;
use crate::operation::{ListParts, ListUploads, ObjectAddress, UploadChecksum};

/// `InitiateMultipartUploadResult`.
pub fn create_multipart_upload(object: &ObjectAddress, upload: &str) -> String {
    Document::of("InitiateMultipartUploadResult", |document| {
        document.text("Bucket", object.bucket.as_str());
        document.text("Key", &object.key);
        document.text("UploadId", upload);
    })
}

/// An upload that became an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed<'a> {
    /// The object.
    pub object: &'a ObjectAddress,
    /// Where it can be read: its URL.
    pub location: &'a str,
    /// Its tag.
    pub etag: EntityTag,
    /// Its checksum.
    pub checksum: Option<&'a StoredChecksum>,
}

/// `CompleteMultipartUploadResult`.
pub fn complete_multipart_upload(completed: &Completed<'_>) -> String {
    Document::of("CompleteMultipartUploadResult", |document| {
        document.text("Location", completed.location);
        document.text("Bucket", completed.object.bucket.as_str());
        document.text("Key", &completed.object.key);
        document.value("ETag", completed.etag);
        write_checksum(document, completed.checksum);
    })
}

/// A part in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number.
    pub number: u16,
    /// When it was uploaded.
    pub last_modified: Timestamp,
    /// Its tag with its quotes.
    pub etag: String,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its checksum.
    pub checksum: Option<StoredChecksum>,
}

/// A page of the parts of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPage {
    /// The parts, by number.
    pub parts: Vec<ListedPart>,
    /// Whether others follow the last of them.
    pub more: bool,
    /// How the upload has its checksums.
    pub checksum: Option<UploadChecksum>,
}

/// `ListPartsResult`.
pub fn list_parts(request: &ListParts, owner: &Owner, page: &PartsPage) -> String {
    let object = &request.upload.object;
    Document::of("ListPartsResult", |document| {
        document.text("Bucket", object.bucket.as_str());
        document.key("Key", &object.key, request.url_encoded);
        document.text("UploadId", &request.upload.upload);
        document.value("PartNumberMarker", request.after);
        document.value(
            "NextPartNumberMarker",
            page.parts.last().map_or(request.after, |part| part.number),
        );
        document.value("MaxParts", request.max_parts);
        document.value("IsTruncated", page.more);
        for part in &page.parts {
            document.element("Part", |item| {
                item.value("PartNumber", part.number);
                item.time("LastModified", part.last_modified);
                item.text("ETag", &part.etag);
                item.value("Size", part.bytes);
                if let Some(checksum) = &part.checksum {
                    item.text(checksum.algorithm.element(), &checksum.value);
                }
            });
        }
        owners(document, owner);
        upload_checksum(document, page.checksum);
    })
}

/// An upload in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedUpload {
    /// The key that it will be.
    pub key: String,
    /// Its id.
    pub upload: String,
    /// When it was begun.
    pub begun: Timestamp,
    /// How it has its checksums.
    pub checksum: Option<UploadChecksum>,
}

/// A page of uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// The uploads, by key, and those of one key by when they were begun.
    pub uploads: Vec<ListedUpload>,
    /// Common prefixes, in order.
    pub common_prefixes: Vec<String>,
    /// The last key or common prefix of the page, if others follow it; with the id of its upload, if it is a key.
    pub next_after: Option<(String, Option<String>)>,
}

/// `ListMultipartUploadsResult`.
pub fn list_uploads(request: &ListUploads, owner: &Owner, page: &UploadsPage) -> String {
    let scope = &request.scope;
    Document::of("ListMultipartUploadsResult", |document| {
        document.text("Bucket", scope.bucket.as_str());
        document.key(
            "KeyMarker",
            request.key_marker.as_deref().unwrap_or_default(),
            scope.url_encoded,
        );
        document.text("UploadIdMarker", request.upload_id_marker.as_deref().unwrap_or_default());
        if let Some((key, upload)) = &page.next_after {
            document.key("NextKeyMarker", key, scope.url_encoded);
            document.text("NextUploadIdMarker", upload.as_deref().unwrap_or_default());
        }
        document.key("Prefix", &scope.prefix, scope.url_encoded);
        if let Some(delimiter) = &scope.delimiter {
            document.key("Delimiter", delimiter, scope.url_encoded);
        }
        if scope.url_encoded {
            document.text("EncodingType", "url");
        }
        document.value("MaxUploads", scope.max_items);
        document.value("IsTruncated", page.next_after.is_some());
        for upload in &page.uploads {
            document.element("Upload", |item| {
                item.key("Key", &upload.key, scope.url_encoded);
                item.text("UploadId", &upload.upload);
                owners(item, owner);
                item.time("Initiated", upload.begun);
                upload_checksum(item, upload.checksum);
            });
        }
        common_prefixes(document, scope, &page.common_prefixes);
    })
}

fn owners(document: &mut Document, owner: &Owner) {
    owner.write(document, "Initiator");
    owner.write(document, "Owner");
    document.text("StorageClass", "STANDARD");
}

fn upload_checksum(document: &mut Document, checksum: Option<UploadChecksum>) {
    if let Some(UploadChecksum { algorithm, kind }) = checksum {
        document.text("ChecksumAlgorithm", algorithm.as_str());
        document.text("ChecksumType", kind.as_str());
    }
}
