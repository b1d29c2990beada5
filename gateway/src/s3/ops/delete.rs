//! Deletes objects: one, or many of a bucket.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use fence_core::ResourceName;
use fencegate_s3::bucket::BucketName;
use fencegate_s3::code::S3Error;
use fencegate_s3::operation::DeleteObject;
use fencegate_s3::xml::read::{ObjectToDelete, delete_objects};
use fencegate_s3::xml::write::{DeleteOutcome, delete_result};
use futures::{StreamExt as _, stream};

use super::write::facts;
use super::{Call, bare, xml};
use crate::engine::WriteEffect;
use crate::s3::body;
use crate::s3::failure::Failure;
use crate::s3::place::{self, Place};

/// Resources whose objects are deleted at the same time.
const AT_ONCE: usize = 8;

/// `DeleteObject`: what is not there is deleted already.
pub async fn one(call: Call, delete: DeleteObject) -> Result<Response, Failure> {
    let place = place::of(&call.front, &delete.object).await?;
    let fenced = call.fenced(&place, delete.condition.is_some()).await?;
    let effect = WriteEffect::Delete { key: place.key };
    let outcome = call.write(fenced, delete.condition, effect).await?;
    let mut response = bare(StatusCode::NO_CONTENT);
    facts(response.headers_mut(), &outcome);
    Ok(response)
}

/// `DeleteObjects`: each for itself, so that one that is refused keeps no other. Those of one resource are deleted in the
/// order of the list.
pub async fn many(call: Call, bucket: BucketName, body: Body) -> Result<Response, Failure> {
    let front = &call.front;
    let (_, depth) = place::bucket(front, &bucket).await?;
    call.fence()?;
    let verified = call.caller.verified.clone();
    let bytes =
        body::document(body, &call.headers, verified, &front.app, &call.caller.counted).await?;
    let wanted = delete_objects(&bytes)?;
    let mut outcomes: Vec<Option<DeleteOutcome>> = wanted.objects.iter().map(|_| None).collect();
    let mut by_resource: BTreeMap<ResourceName, Vec<(usize, Place, ObjectToDelete)>> =
        BTreeMap::new();
    for (at, object) in wanted.objects.into_iter().enumerate() {
        match place::within(depth, &bucket, &object.key) {
            Ok(place) => {
                by_resource.entry(place.resource.clone()).or_default().push((at, place, object));
            }
            Err(failure) => outcomes[at] = Some(told(object.key, Err(failure))),
        }
    }
    let call = &call;
    let done: Vec<Vec<(usize, DeleteOutcome)>> = stream::iter(by_resource.into_values())
        .map(|objects| async move {
            let mut done = Vec::with_capacity(objects.len());
            for (at, place, object) in objects {
                let key = object.key.clone();
                done.push((at, told(key, deleted(call, place, object).await)));
            }
            done
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for (at, outcome) in done.into_iter().flatten() {
        outcomes[at] = Some(outcome);
    }
    let outcomes: Vec<DeleteOutcome> = outcomes.into_iter().flatten().collect();
    Ok(xml(delete_result(&outcomes, wanted.quiet)))
}

async fn deleted(call: &Call, place: Place, object: ObjectToDelete) -> Result<(), Failure> {
    // The id of the call stands for all of it, so the key of each has its place in it.
    let mut fenced = call.fenced(&place, object.condition.is_some()).await?;
    if let Some(key) = &mut fenced.head.idempotency_key {
        let digest = sha2_of(place.key.as_str());
        *key = format!("{key}/{digest}");
    }
    let effect = WriteEffect::Delete { key: place.key };
    call.write(fenced, object.condition, effect).await.map(drop)
}

/// A short name for a key of any length.
fn sha2_of(key: &str) -> String {
    use sha2::Digest as _;
    hex::encode(&sha2::Sha256::digest(key)[..16])
}

fn told(key: String, outcome: Result<(), Failure>) -> DeleteOutcome {
    let refusal: Option<S3Error> = outcome.err().map(Failure::into_error);
    DeleteOutcome { key, refusal }
}
