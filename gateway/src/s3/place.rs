//! Where an object of a bucket lies: its resource, and its key there.

use fence_core::ports::Bucket;
use fence_core::{ObjectKey, ResourceName};
use fencegate_s3::bucket::{BucketName, Depth};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::ObjectAddress;

use super::Front;
use super::failure::Failure;

/// An object, as the engine knows it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The resource.
    pub resource: ResourceName,
    /// The key there.
    pub key: ObjectKey,
}

/// A bucket that is there, and how deep it is.
pub async fn bucket(front: &Front, name: &BucketName) -> Result<(Bucket, Depth), Failure> {
    let bucket = front.app.engine.bucket(name).await?;
    let none = || S3Error::from(S3Code::NoSuchBucket).with("BucketName", name.as_str());
    let bucket = bucket.ok_or_else(none)?;
    let depth = Depth::new(bucket.depth);
    let depth = depth.map_err(|why| S3Error::new(S3Code::InternalError, why.to_string()))?;
    Ok((bucket, depth))
}

/// Where an object lies.
///
/// # Errors
/// `NoSuchBucket`; a key that names no resource.
pub async fn of(front: &Front, object: &ObjectAddress) -> Result<Place, Failure> {
    let (_, depth) = bucket(front, &object.bucket).await?;
    within(depth, &object.bucket, &object.key)
}

/// The same, where the depth of the bucket is known.
pub fn within(depth: Depth, bucket: &BucketName, key: &str) -> Result<Place, Failure> {
    let (resource, key) = depth.object_of(bucket, key)?;
    let invalid =
        |why: fence_core::NameError| S3Error::new(S3Code::InvalidArgument, why.to_string());
    Ok(Place { resource, key: ObjectKey::any(key).map_err(invalid)? })
}
