//! Bodies of answers.

mod buckets;
mod document;
mod error;
mod lists;
mod objects;
mod uploads;

use document::Document;

use crate::about::StoredChecksum;

pub use buckets::{ListedBucket, access_control_policy, list_buckets, location, versioning};
pub use error::{Failure, error};
pub use lists::{ListedObject, ObjectsPage, list_objects, list_objects_v2};
pub use objects::{
    Attributes, AttributesPart, AttributesParts, DeleteOutcome, attributes, copy_object, copy_part,
    delete_result, no_tags,
};
pub use uploads::{
    Completed, ListedPart, ListedUpload, PartsPage, UploadsPage, complete_multipart_upload,
    create_multipart_upload, list_parts, list_uploads,
};

/// Who owns buckets and objects: one for all, as the gateway has no accounts of S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub display_name: String,
}

impl Owner {
    fn write(&self, document: &mut Document, name: &'static str) {
        document.element(name, |owner| {
            owner.text("ID", &self.id);
            owner.text("DisplayName", &self.display_name);
        });
    }
}

fn write_checksum(document: &mut Document, checksum: Option<&StoredChecksum>) {
    if let Some(checksum) = checksum {
        document.text(checksum.algorithm.element(), &checksum.value);
        document.text("ChecksumType", checksum.kind.as_str());
    }
}

#[cfg(test)]
mod tests;
