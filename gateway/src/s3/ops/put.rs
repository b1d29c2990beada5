//! Puts an object.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use fencegate_s3::about::About;
use fencegate_s3::operation::PutObject;

use super::write::facts;
use super::{Call, bare, set};
use crate::engine::{More, WriteEffect};
use crate::s3::body::Payload;
use crate::s3::checksums;
use crate::s3::failure::Failure;
use crate::s3::place;

/// `PutObject`
///
/// 1. Whether its caller may, and has room.
/// 2. The body is read, into memory or into the store, and held against what was signed and sent of it.
/// 3. The fenced write: what was uploaded becomes the object's with it, or is nobody's.
pub async fn put(call: Call, put: PutObject, body: Body) -> Result<Response, Failure> {
    let app = &call.front.app;
    let place = place::of(&call.front, &put.object).await?;
    let fenced = call.fenced(&place, put.condition.is_some()).await?;
    let payload = Payload::new(body, &call.headers, call.caller.verified.clone(), &app.limits)?;
    let key = fenced.head.idempotency_key.as_deref();
    let more = More::Objects(&[(&place.resource, &place.key)], payload.length(), key);
    app.engine.has_room(&call.caller.asks, more).await?;
    let read = payload.read(app, &fenced.head, &call.caller.counted).await?;
    let checksum = read.checksum.as_ref().map(checksums::stored);
    let about = About { checksum, ..put.description.about };
    let effect = WriteEffect::Put {
        key: place.key,
        content_type: put.description.content_type,
        about: about.to_json()?.map(Arc::from),
        body: read.body,
    };
    let outcome = call.write(fenced, put.condition, effect).await?;
    let mut response = bare(StatusCode::OK);
    let headers = response.headers_mut();
    if let Some(tag) = facts(headers, &outcome) {
        set(headers, "etag", tag);
    }
    about.write_checksum(headers);
    Ok(response)
}
