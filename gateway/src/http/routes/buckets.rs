//! `/buckets`: the buckets of S3, as operators see and make them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fence_core::{ErrorCode, ResourceName, wire};
use fencegate_access::Action;
use fencegate_s3::bucket::Depth;

use super::access::admin;
use super::views;
use crate::engine::access::{Asks, Want};
use crate::http::extract::{Asker, InBucket, NoQuery, OptionalJson};
use crate::http::problem::Problem;
use crate::http::spec::{DropBucketProblems, ListProblems, MakeBucketProblems};
use crate::http::state::App;

/// List buckets
///
/// In byte order of their names, all of them: there are at most 10,000. Where rules of access are in force, those of which the
/// caller may `list` the resource with the bucket's name, or all whose names go on behind it with a colon.
#[utoipa::path(
    get, path = "/buckets", operation_id = "listBuckets", tag = "s3",
    responses((status = 200, description = "All buckets.", body = wire::BucketList), ListProblems)
)]
pub async fn list(
    asks: Asks,
    _: NoQuery,
    Asker(engine): Asker,
) -> Result<Json<wire::BucketList>, Problem> {
    asks.may(Want::Somewhere(Action::List)).await?;
    let mut items = Vec::new();
    for bucket in engine.buckets().await? {
        if let Some(want) = wants(&bucket.name).into_iter().find(|want| asks.could(want)) {
            // So that it is asked of newer rules, too, before the answer goes out.
            asks.may(want).await?;
            items.push(views::bucket(bucket));
        }
    }
    Ok(Json(wire::BucketList { items }))
}

/// By what a caller may see a bucket in the list.
pub fn wants(bucket: &str) -> Vec<Want> {
    let own = ResourceName::new(bucket).map(|resource| Want::On(Action::List, resource));
    let below = Want::All(Action::List, format!("{bucket}:"));
    own.into_iter().chain([below]).collect()
}

/// Make a bucket
///
/// S3 tools then reach the resource of this name, and those whose names go on with a colon and as many segments as the
/// bucket is deep. Doing it again changes nothing.
#[utoipa::path(
    put, path = "/buckets/{name}", operation_id = "makeBucket", tag = "s3",
    params(("name" = fence_core::schema::BucketName, Path, description = "The bucket.")),
    request_body(content = Option<wire::BucketRequest>, description = "May be left out, for a depth of 0."),
    responses(
        (status = 201, description = "Made.", body = wire::Bucket),
        (status = 200, description = "It was there, with this depth.", body = wire::Bucket),
        MakeBucketProblems,
    )
)]
pub async fn make(
    State(app): State<App>,
    asks: Asks,
    InBucket(name): InBucket,
    _: NoQuery,
    OptionalJson(request): OptionalJson<wire::BucketRequest>,
) -> Result<(StatusCode, Json<wire::Bucket>), Problem> {
    asks.may(admin()).await?;
    let depth = Depth::new(request.depth)
        .map_err(|why| Problem::new(ErrorCode::BodyMalformed, why.to_string()))?;
    let (bucket, is_new) = app.engine.make_bucket(name, depth, asks.permit()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(views::bucket(bucket))))
}

/// Delete a bucket
///
/// Only an empty one. Its name keeps its depth: made again, it can have no other.
#[utoipa::path(
    delete, path = "/buckets/{name}", operation_id = "deleteBucket", tag = "s3",
    params(("name" = fence_core::schema::BucketName, Path, description = "The bucket.")),
    responses((status = 204, description = "Deleted."), DropBucketProblems)
)]
pub async fn delete(
    State(app): State<App>,
    asks: Asks,
    InBucket(name): InBucket,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    asks.may(admin()).await?;
    app.engine.drop_bucket(name, asks.permit()).await?;
    Ok(StatusCode::NO_CONTENT)
}
