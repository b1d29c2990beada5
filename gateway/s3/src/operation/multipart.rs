//! Parameters of the calls on uploads in parts.

use fencegate_wire::etag::ObjectCondition;
use http::HeaderMap;

use super::copy::CopySourceRange;
use super::list::url_encoded;
use super::values::{digits, header, key_text, limit, part_marker, part_number};
use super::{CopySource, ListScope, ObjectAddress, PAGE_MAX, PartNumber, Query, write_condition};
use crate::about::{ChecksumAlgorithm, ChecksumKind, Description};
use crate::bucket::BucketName;
use crate::code::{S3Code, S3Error};

const UPLOAD_ID_BYTES_MAX: usize = 1024;
const CHECKSUM_TYPE: &str = "x-amz-checksum-type";

/// An upload: the object that it will be, and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadAddress {
    /// The object.
    pub object: ObjectAddress,
    /// `uploadId` as it was sent: 1 to 1,024 bytes.
    pub upload: String,
}

/// `POST /bucket/key?uploads`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateMultipartUpload {
    /// The object that it will be.
    pub object: ObjectAddress,
    /// What the object will say of itself.
    pub description: Description,
    /// The checksums of its parts, and of the whole.
    pub checksum: Option<UploadChecksum>,
}

/// How an upload in parts has its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadChecksum {
    /// How each part has its own.
    pub algorithm: ChecksumAlgorithm,
    /// What that of the whole is computed from.
    pub kind: ChecksumKind,
}

/// `PUT /bucket/key?partNumber&uploadId`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPart {
    /// The upload.
    pub upload: UploadAddress,
    /// The part.
    pub part: PartNumber,
}

/// The same with bytes of another object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadPartCopy {
    /// The upload.
    pub upload: UploadAddress,
    /// The part.
    pub part: PartNumber,
    /// What is copied.
    pub source: CopySource,
    /// Which bytes; `None`: all.
    pub range: Option<CopySourceRange>,
}

/// `POST /bucket/key?uploadId`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteMultipartUpload {
    /// The upload.
    pub upload: UploadAddress,
    /// What is demanded of the object that stands there now.
    pub condition: Option<ObjectCondition>,
    /// How many bytes the object must have, if the caller says so.
    pub object_bytes: Option<u64>,
    /// What the checksum that the caller gives is computed from.
    pub checksum_kind: Option<ChecksumKind>,
}

/// `GET /bucket/key?uploadId`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListParts {
    /// The upload.
    pub upload: UploadAddress,
    /// The most parts of a page, 0 to 1,000.
    pub max_parts: u16,
    /// Only parts after this number.
    pub after: u16,
    /// Whether the key in the answer is encoded as in a URL.
    pub url_encoded: bool,
}

/// `GET /bucket?uploads`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListUploads {
    /// Which keys.
    pub scope: ListScope,
    /// Only uploads of keys after this, or, with an upload id, of this key after that id.
    pub key_marker: Option<String>,
    /// See `key_marker`; never without it.
    pub upload_id_marker: Option<String>,
}

impl UploadAddress {
    /// `None` without `uploadId`.
    pub(super) fn read(object: &ObjectAddress, query: &Query) -> Result<Option<Self>, S3Error> {
        let Some(upload) = query.get("uploadId") else { return Ok(None) };
        if upload.is_empty() || upload.len() > UPLOAD_ID_BYTES_MAX {
            return Err(S3Code::NoSuchUpload.into());
        }
        Ok(Some(Self { object: object.clone(), upload: upload.to_owned() }))
    }
}

impl CreateMultipartUpload {
    pub(super) fn read(object: ObjectAddress, headers: &HeaderMap) -> Result<Self, S3Error> {
        no_condition(headers)?;
        Ok(Self {
            object,
            description: Description::read(headers)?,
            checksum: UploadChecksum::read(headers)?,
        })
    }
}

impl UploadChecksum {
    fn read(headers: &HeaderMap) -> Result<Option<Self>, S3Error> {
        use ChecksumAlgorithm::{Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
        let (Some(algorithm), kind) = (checksum_algorithm(headers)?, checksum_kind(headers)?)
        else {
            return match headers.contains_key(CHECKSUM_TYPE) {
                false => Ok(None),
                true => Err(S3Error::new(
                    S3Code::InvalidRequest,
                    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
                )),
            };
        };
        match (algorithm, kind) {
            (Crc64Nvme, None | Some(ChecksumKind::FullObject)) => {
                Ok(Some(Self { algorithm, kind: ChecksumKind::FullObject }))
            }
            (Crc32 | Crc32c, kind) => {
                Ok(Some(Self { algorithm, kind: kind.unwrap_or(ChecksumKind::Composite) }))
            }
            (Sha1 | Sha256, None | Some(ChecksumKind::Composite)) => {
                Ok(Some(Self { algorithm, kind: ChecksumKind::Composite }))
            }
            // A digest of the whole cannot be had from those of the parts.
            (_, Some(kind)) => Err(S3Error::new(
                S3Code::InvalidRequest,
                format!(
                    "The {} checksum type cannot be used with the {} checksum algorithm.",
                    kind.as_str(),
                    algorithm.as_str()
                ),
            )),
        }
    }
}

impl UploadPart {
    pub(super) fn read(
        upload: UploadAddress,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        no_condition(headers)?;
        Ok(Self { upload, part: part_of(query)? })
    }
}

impl UploadPartCopy {
    pub(super) fn read(
        upload: UploadAddress,
        source: CopySource,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        no_condition(headers)?;
        Ok(Self { upload, part: part_of(query)?, source, range: CopySourceRange::read(headers)? })
    }
}

impl CompleteMultipartUpload {
    pub(super) fn read(upload: UploadAddress, headers: &HeaderMap) -> Result<Self, S3Error> {
        let name = "x-amz-mp-object-size";
        let object_bytes = header(headers, name)?.map(|text| {
            digits(text).ok_or_else(|| S3Error::argument(name, text, "This is a number of bytes."))
        });
        Ok(Self {
            upload,
            condition: write_condition(headers)?,
            object_bytes: object_bytes.transpose()?,
            checksum_kind: checksum_kind(headers)?,
        })
    }
}

impl ListParts {
    pub(super) fn read(upload: UploadAddress, query: &Query) -> Result<Self, S3Error> {
        Ok(Self {
            upload,
            max_parts: limit("max-parts", query.get("max-parts"), PAGE_MAX)?,
            after: part_marker("part-number-marker", query.get("part-number-marker"))?,
            url_encoded: url_encoded(query)?,
        })
    }
}

impl ListUploads {
    pub(super) fn read(bucket: BucketName, query: &Query) -> Result<Self, S3Error> {
        let scope = ListScope::read(bucket, query, "max-uploads")?;
        let key_marker = key_text(query, "key-marker")?;
        // S3 overlooks an id without a key: it has no place in the order.
        let upload_id_marker =
            key_text(query, "upload-id-marker")?.filter(|_| key_marker.is_some());
        Ok(Self { scope, key_marker, upload_id_marker })
    }
}

fn part_of(query: &Query) -> Result<PartNumber, S3Error> {
    part_number(query.get("partNumber").unwrap_or_default())
}

/// Only what writes the object can be conditional; to begin an upload or add to it writes none yet.
fn no_condition(headers: &HeaderMap) -> Result<(), S3Error> {
    match write_condition(headers)? {
        None => Ok(()),
        Some(_) => Err(S3Error::not_implemented(
            "conditions for a part of an upload; give them when the upload is completed",
        )),
    }
}

pub(super) fn checksum_algorithm(
    headers: &HeaderMap,
) -> Result<Option<ChecksumAlgorithm>, S3Error> {
    let name = "x-amz-checksum-algorithm";
    let Some(text) = header(headers, name)? else { return Ok(None) };
    let why = "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]";
    ChecksumAlgorithm::parse(text).map(Some).map_err(|_| S3Error::argument(name, text, why))
}

fn checksum_kind(headers: &HeaderMap) -> Result<Option<ChecksumKind>, S3Error> {
    let Some(text) = header(headers, CHECKSUM_TYPE)? else { return Ok(None) };
    let why = "This is FULL_OBJECT or COMPOSITE.";
    ChecksumKind::parse(text).map(Some).map_err(|_| S3Error::argument(CHECKSUM_TYPE, text, why))
}
