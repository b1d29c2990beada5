//! What tools look for before they begin, and what is the same for all buckets and objects.

use axum::response::Response;
use fencegate_access::Action;
use fencegate_s3::bucket::BucketName;
use fencegate_s3::operation::ObjectAddress;
use fencegate_s3::xml::write;

use super::{Call, get, owner, xml};
use crate::engine::access::Want;
use crate::s3::failure::Failure;
use crate::s3::place;

/// Whether a bucket is there, for whoever may do anything with objects: tools ask for it before they write.
pub async fn seen(call: &Call, bucket: &BucketName) -> Result<(), Failure> {
    let any = [Action::Read, Action::List, Action::Write];
    let could = |action: &Action| call.caller.asks.could(&Want::Somewhere(*action));
    let action = any.into_iter().find(could).unwrap_or(Action::Read);
    call.may(Want::Somewhere(action)).await?;
    place::bucket(&call.front, bucket).await.map(drop)
}

/// `GetBucketLocation`
pub async fn location(call: Call, bucket: BucketName) -> Result<Response, Failure> {
    seen(&call, &bucket).await?;
    Ok(xml(write::location(&call.front.settings.region)))
}

/// `GetBucketVersioning`
pub async fn versioning(call: Call, bucket: BucketName) -> Result<Response, Failure> {
    seen(&call, &bucket).await?;
    Ok(xml(write::versioning()))
}

/// `GetBucketAcl`
pub async fn bucket_acl(call: Call, bucket: BucketName) -> Result<Response, Failure> {
    seen(&call, &bucket).await?;
    Ok(xml(write::access_control_policy(&owner())))
}

/// `GetObjectAcl`
pub async fn object_acl(call: Call, object: ObjectAddress) -> Result<Response, Failure> {
    get::look(&call, &object, None).await?;
    Ok(xml(write::access_control_policy(&owner())))
}

/// `GetObjectTagging`
pub async fn tagging(call: Call, object: ObjectAddress) -> Result<Response, Failure> {
    get::look(&call, &object, None).await?;
    Ok(xml(write::no_tags()))
}
