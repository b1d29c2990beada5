//! Parameters of writes of one object.

use fencegate_wire::etag::ObjectCondition;
use http::HeaderMap;

use super::copy::check_tagging_directive;
use super::multipart::checksum_algorithm;
use super::{CopySource, MetadataDirective, ObjectAddress, Query, write_condition};
use crate::about::{ChecksumAlgorithm, Description};
use crate::code::{S3Code, S3Error};

/// `PUT` of an object. How its body is to be checked stands in headers that are read elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutObject {
    /// The object.
    pub object: ObjectAddress,
    /// What is demanded of the object that stands there now.
    pub condition: Option<ObjectCondition>,
    /// What the object says of itself.
    pub description: Description,
}

/// `PUT` of an object as a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyObject {
    /// The object that is written.
    pub object: ObjectAddress,
    /// What is demanded of the object that stands there now.
    pub condition: Option<ObjectCondition>,
    /// What is copied.
    pub source: CopySource,
    /// What the copy says of itself; `None`: what the source says.
    pub description: Option<Description>,
    /// The checksum that the copy gets; `None`: that of the source.
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
}

/// `DELETE` of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteObject {
    /// The object.
    pub object: ObjectAddress,
    /// What is demanded of it.
    pub condition: Option<ObjectCondition>,
}

impl PutObject {
    pub(super) fn read(object: ObjectAddress, headers: &HeaderMap) -> Result<Self, S3Error> {
        Ok(Self {
            object,
            condition: write_condition(headers)?,
            description: Description::read(headers)?,
        })
    }
}

impl CopyObject {
    pub(super) fn read(
        object: ObjectAddress,
        source: CopySource,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        let description = match MetadataDirective::read(headers)? {
            MetadataDirective::Replace => Some(Description::read(headers)?),
            MetadataDirective::Copy if source.object == object && source.version.is_none() => {
                let why = "This copy request is illegal because it is trying to copy an object to itself without \
                           changing the object's metadata.";
                return Err(S3Error::new(S3Code::InvalidRequest, why));
            }
            MetadataDirective::Copy => None,
        };
        check_tagging_directive(headers)?;
        let checksum_algorithm = checksum_algorithm(headers)?;
        Ok(Self {
            object,
            condition: write_condition(headers)?,
            source,
            description,
            checksum_algorithm,
        })
    }
}

impl DeleteObject {
    pub(super) fn read(
        object: ObjectAddress,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Self, S3Error> {
        match query.filled("versionId") {
            // The name of what has no version, which is what objects here are to S3.
            None | Some("null") => Ok(Self { object, condition: write_condition(headers)? }),
            Some(_) => Err(S3Error::not_implemented("deleting one version of an object")
                .with("Parameter", "versionId")),
        }
    }
}
