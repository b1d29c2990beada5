//! Buckets: lists, makes and deletes them.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use fence_core::ErrorCode;
use fencegate_access::Action;
use fencegate_s3::bucket::{BucketName, Depth};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::ListBuckets;
use fencegate_s3::xml::read::create_bucket;
use fencegate_s3::xml::write::{ListedBucket, list_buckets};

use super::{Call, bare, fixed, owner, set, xml};
use crate::engine::access::Want;
use crate::engine::error::EngineError;
use crate::http::routes::buckets::wants as seen_by;
use crate::s3::body;
use crate::s3::failure::Failure;

/// `ListBuckets`
pub async fn list(call: Call, asked: ListBuckets) -> Result<Response, Failure> {
    call.may(Want::Somewhere(Action::List)).await?;
    let wanted = |name: &str| {
        asked.prefix.as_deref().is_none_or(|prefix| name.starts_with(prefix))
            && asked.after.as_deref().is_none_or(|after| name > after)
    };
    let mut listed = Vec::new();
    for bucket in call.front.app.engine.buckets().await? {
        let Ok(name) = BucketName::new(bucket.name) else { continue };
        let wants = seen_by(name.as_str());
        let Some(want) = wants.into_iter().find(|want| call.caller.asks.could(want)) else {
            continue;
        };
        if wanted(name.as_str()) {
            call.may(want).await?;
            listed.push(ListedBucket { name, created: bucket.created_at });
        }
    }
    let most = asked.max_buckets.map_or(usize::MAX, usize::from);
    let more = listed.len() > most;
    listed.truncate(most);
    Ok(xml(list_buckets(&asked, &owner(), &listed, more)))
}

/// `CreateBucket`. One that is there is no error for anybody: some tools make it before each upload. A new one has no
/// depth; whoever wants another makes it with the native API.
pub async fn make(call: Call, bucket: BucketName, body: Body) -> Result<Response, Failure> {
    let front = &call.front;
    let verified = call.caller.verified.clone();
    let bytes =
        body::document(body, &call.headers, verified, &front.app, &call.caller.counted).await?;
    let location = create_bucket(&bytes)?;
    if front.app.engine.bucket(&bucket).await?.is_none() {
        let region = &front.settings.region;
        if let Some(other) = location.filter(|location| location != region) {
            let why = format!("This gateway is in {region:?}, and {other:?} is elsewhere.");
            return Err(S3Error::new(S3Code::InvalidLocationConstraint, why).into());
        }
        let permit = call.may_rule().await?;
        let made = front.app.engine.make_bucket(bucket.clone(), Depth::ZERO, permit).await;
        made.map_err(|error| match error {
            EngineError::BucketDepthDiffers { .. } => S3Code::BucketAlreadyExists.into(),
            error => Failure::from(error),
        })?;
    }
    let mut response = bare(StatusCode::OK);
    set(response.headers_mut(), "location", format_args!("/{bucket}"));
    Ok(response)
}

/// `DeleteBucket`
pub async fn drop(call: Call, bucket: BucketName) -> Result<Response, Failure> {
    let permit = call.may_rule().await?;
    call.front.app.engine.drop_bucket(bucket.clone(), permit).await.map_err(|error| match error
        .code()
    {
        ErrorCode::BucketNotFound => {
            S3Error::from(S3Code::NoSuchBucket).with("BucketName", bucket.as_str()).into()
        }
        _ => Failure::from(error),
    })?;
    Ok(bare(StatusCode::NO_CONTENT))
}

/// `HeadBucket`
pub async fn head(call: Call, bucket: BucketName) -> Result<Response, Failure> {
    fixed::seen(&call, &bucket).await?;
    let mut response = bare(StatusCode::OK);
    set(response.headers_mut(), "x-amz-bucket-region", &call.front.settings.region);
    Ok(response)
}
