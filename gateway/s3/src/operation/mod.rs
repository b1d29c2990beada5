//! What a request asks for: method, address, query and headers as one of the operations that the gateway has.

mod choose;
mod conditions;
mod copy;
mod list;
mod multipart;
mod query;
mod range;
mod read;
mod refused;
mod token;
mod values;
mod write;

use crate::bucket::BucketName;

pub use choose::{is_form, no_forms, read_operation};
pub(crate) use conditions::condition_of_tag;
pub use conditions::{Conditions, ConditionsVerdict, write_condition};
pub use copy::{CopySource, CopySourceRange, MetadataDirective};
pub use list::{BUCKETS_PAGE_MAX, ListBuckets, ListObjects, ListObjectsV2, ListScope, PAGE_MAX};
pub use multipart::{
    CompleteMultipartUpload, CreateMultipartUpload, ListParts, ListUploads, UploadAddress,
    UploadChecksum, UploadPart, UploadPartCopy,
};
pub use query::Query;
pub use range::{ByteRange, Selection};
pub use read::{AttributeKind, ObjectAttributes, ReadObject};
pub use token::{continuation_token, read_continuation_token};
pub use values::{PART_NUMBER_MAX, PartNumber};
pub use write::{CopyObject, DeleteObject, PutObject};

/// An object: its bucket, and its key there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectAddress {
    /// The bucket.
    pub bucket: BucketName,
    /// The key, decoded, as [`check_key`](crate::address::check_key) allows it.
    pub key: String,
}

/// A request, as one of the operations that the gateway has. Bodies are not read here.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `GET /`
    ListBuckets(ListBuckets),
    /// `PUT /bucket`. A body says where, and is read by [`create_bucket`](crate::xml::read::create_bucket).
    CreateBucket(BucketName),
    /// `DELETE /bucket`
    DeleteBucket(BucketName),
    /// `HEAD /bucket`
    HeadBucket(BucketName),
    /// `GET /bucket?location`
    GetBucketLocation(BucketName),
    /// `GET /bucket?versioning`
    GetBucketVersioning(BucketName),
    /// `GET /bucket?acl`
    GetBucketAcl(BucketName),
    /// `GET /bucket`, the older form.
    ListObjects(ListObjects),
    /// `GET /bucket?list-type=2`
    ListObjectsV2(ListObjectsV2),
    /// `GET /bucket?uploads`
    ListMultipartUploads(ListUploads),
    /// `POST /bucket?delete`. The body says which, and is read by [`delete_objects`](crate::xml::read::delete_objects).
    DeleteObjects(BucketName),
    /// `GET /bucket/key`
    GetObject(ReadObject),
    /// `HEAD /bucket/key`
    HeadObject(ReadObject),
    /// `GET /bucket/key?attributes`
    GetObjectAttributes(ObjectAttributes),
    /// `GET /bucket/key?tagging`
    GetObjectTagging(ObjectAddress),
    /// `GET /bucket/key?acl`
    GetObjectAcl(ObjectAddress),
    /// `PUT /bucket/key`
    PutObject(Box<PutObject>),
    /// `PUT /bucket/key` with `x-amz-copy-source`
    CopyObject(Box<CopyObject>),
    /// `DELETE /bucket/key`
    DeleteObject(DeleteObject),
    /// `POST /bucket/key?uploads`
    CreateMultipartUpload(Box<CreateMultipartUpload>),
    /// `PUT /bucket/key?partNumber&uploadId`
    UploadPart(UploadPart),
    /// `PUT /bucket/key?partNumber&uploadId` with `x-amz-copy-source`
    UploadPartCopy(Box<UploadPartCopy>),
    /// `POST /bucket/key?uploadId`. The body has the parts, and is read by
    /// [`complete_multipart_upload`](crate::xml::read::complete_multipart_upload).
    CompleteMultipartUpload(CompleteMultipartUpload),
    /// `DELETE /bucket/key?uploadId`
    AbortMultipartUpload(UploadAddress),
    /// `GET /bucket/key?uploadId`
    ListParts(ListParts),
}

impl Operation {
    /// Its name in S3, for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ListBuckets(_) => "ListBuckets",
            Self::CreateBucket(_) => "CreateBucket",
            Self::DeleteBucket(_) => "DeleteBucket",
            Self::HeadBucket(_) => "HeadBucket",
            Self::GetBucketLocation(_) => "GetBucketLocation",
            Self::GetBucketVersioning(_) => "GetBucketVersioning",
            Self::GetBucketAcl(_) => "GetBucketAcl",
            Self::ListObjects(_) => "ListObjects",
            Self::ListObjectsV2(_) => "ListObjectsV2",
            Self::ListMultipartUploads(_) => "ListMultipartUploads",
            Self::DeleteObjects(_) => "DeleteObjects",
            Self::GetObject(_) => "GetObject",
            Self::HeadObject(_) => "HeadObject",
            Self::GetObjectAttributes(_) => "GetObjectAttributes",
            Self::GetObjectTagging(_) => "GetObjectTagging",
            Self::GetObjectAcl(_) => "GetObjectAcl",
            Self::PutObject(_) => "PutObject",
            Self::CopyObject(_) => "CopyObject",
            Self::DeleteObject(_) => "DeleteObject",
            Self::CreateMultipartUpload(_) => "CreateMultipartUpload",
            Self::UploadPart(_) => "UploadPart",
            Self::UploadPartCopy(_) => "UploadPartCopy",
            Self::CompleteMultipartUpload(_) => "CompleteMultipartUpload",
            Self::AbortMultipartUpload(_) => "AbortMultipartUpload",
            Self::ListParts(_) => "ListParts",
        }
    }
}

#[cfg(test)]
mod tests;
