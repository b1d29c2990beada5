//! Copies objects, and bytes of objects into parts: read, and written anew under the fence of the target.

use std::ops::Range;
use std::sync::Arc;

use axum::response::Response;
use fence_core::ErrorCode;
use fence_core::ports::{Applied, BlobError, Object};
use fencegate_s3::about::{About, StoredChecksum};
use fencegate_s3::checksum::Digest;
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::{ConditionsVerdict, CopyObject, CopySource, UploadPartCopy};
use fencegate_s3::xml::write::{copy_object, copy_part};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sha2::{Digest as _, Sha256};

use super::get::{about_of, fetch};
use super::multipart::{checksum_of_upload, going_on, store};
use super::write::{Fenced, facts};
use super::{Call, xml};
use crate::engine::{
    Content, EngineError, Fetched, More, PutBody, Upload, UploadHead, Uploaded, Wanted,
    WriteEffect, WriteOutcome,
};
use crate::http::Pace;
use crate::http::problem::Problem;
use crate::http::routes::{refused, upload_share};
use crate::s3::checksums;
use crate::s3::failure::Failure;
use crate::s3::place::{self, Place};

/// The largest object that is copied by one call, in bytes, as on S3.
const COPY_BYTES_MAX: u64 = 5 << 30;

/// A source of which some bytes are read.
struct Source {
    object: Object,
    content: Content,
    size: u64,
}

/// `CopyObject`
///
/// 1. Whether its caller may write the target. If an earlier attempt of this call took effect, its answer is given again: the
///    source may be another one since, or gone.
/// 2. Whether its caller may read the source, which is as the caller demands.
/// 3. The bytes are read, and stored anew; what they are is known from the source, and compared on the way. Then its caller
///    may read the source still (I17).
/// 4. The fenced write.
pub async fn object(call: Call, copy: CopyObject) -> Result<Response, Failure> {
    let app = &call.front.app;
    let place = place::of(&call.front, &copy.object).await?;
    let mut fenced = call.fenced(&place, copy.condition.is_some()).await?;
    // Step 1.
    if let Some(outcome) = done_before(&call, &place, &fenced).await? {
        return Ok(answered(&outcome, None));
    }
    // Step 2.
    let Source { object, content, size } = source(&call, &copy.source, None).await?;
    let key = fenced.head.idempotency_key.as_deref();
    let more = More::Objects(&[(&place.resource, &place.key)], size.max(1), key);
    app.engine.has_room(&call.caller.asks, more).await?;
    // Step 3.
    let of_source = about_of(&object)?;
    let mut digest = copy.checksum_algorithm.map(Digest::new);
    let body = body(&call, &fenced.head, content, size, digest.as_mut()).await?;
    call.caller.asks.confirm().await?;
    fenced.head.permit = call.caller.asks.permit();
    // Of an object in parts the checksum may be of these: it is not that of the copy.
    let kept = of_source.checksum.clone().filter(|_| object.parts.is_none());
    let checksum = digest.map(|digest| checksums::stored(&digest.finish())).or(kept);
    let (content_type, about) = match copy.description {
        Some(description) => (description.content_type, description.about),
        None => (object.content_type, of_source),
    };
    let about = About { checksum, ..about };
    let effect = WriteEffect::Put {
        key: place.key,
        content_type,
        about: about.to_json()?.map(Arc::from),
        body,
    };
    // Step 4.
    let outcome = call.write(fenced, copy.condition, effect).await?;
    Ok(answered(&outcome, about.checksum.as_ref()))
}

/// What an earlier attempt of the same call did.
async fn done_before(
    call: &Call,
    place: &Place,
    fenced: &Fenced,
) -> Result<Option<WriteOutcome>, Failure> {
    let Some(key) = fenced.head.idempotency_key.clone() else { return Ok(None) };
    let done = call.front.app.engine.operation_by_key(place.resource.clone(), key).await?;
    let is_copy = |done: &Applied| done.kind == "put" && done.key.as_ref() == Some(&place.key);
    // Whatever else has its key is told so by the write.
    Ok(done.filter(is_copy).map(|applied| WriteOutcome { applied, replayed: true }))
}

fn answered(outcome: &WriteOutcome, checksum: Option<&StoredChecksum>) -> Response {
    let applied = &outcome.applied;
    let version = applied.version.unwrap_or_default();
    let tag = fence_core::EntityTag { generation: applied.generation, version };
    let mut response = xml(copy_object(tag, applied.committed_at, checksum));
    facts(response.headers_mut(), outcome);
    response
}

/// `UploadPartCopy`
pub async fn part(call: Call, asked: UploadPartCopy) -> Result<Response, Failure> {
    let (upload, place, record) = going_on(&call, &asked.upload).await?;
    let Fenced { head, .. } = call.fenced_without_key(&place).await?;
    let range = asked.range.as_ref().map(|range| range.first..range.last.saturating_add(1));
    let Source { content, size, .. } = source(&call, &asked.source, range).await?;
    let wanted = checksum_of_upload(&record);
    let mut digest = wanted.map(|checksum| Digest::new(checksum.algorithm));
    let uploaded = stored(&call, &head, content, size, digest.as_mut()).await?;
    // No write of the caller's own is held against the rules again: this is.
    call.caller.asks.confirm().await?;
    let checksum: Option<StoredChecksum> = digest.map(|digest| checksums::stored(&digest.finish()));
    let tag = store(&call, &head, upload, asked.part, &uploaded, checksum.as_ref()).await?;
    let now = call.front.app.engine.runtime().clock.now();
    Ok(xml(copy_part(&tag, now, checksum.as_ref())))
}

/// The source of a copy, if it is as the caller demands, and the bytes that are wanted of it.
async fn source(
    call: &Call,
    source: &CopySource,
    range: Option<Range<u64>>,
) -> Result<Source, Failure> {
    let object_max = call.front.app.limits.object_bytes_max;
    let mut failed: Option<Failure> = None;
    let mut size = 0;
    let wanted = |object: &Object| {
        failed = None;
        let whole = object.size.unsigned_abs();
        let verdict = source.conditions.judge(object.tag, object.written_at);
        let bytes = range.clone().unwrap_or(0..whole);
        size = bytes.end.saturating_sub(bytes.start);
        if !matches!(verdict, ConditionsVerdict::Holds) {
            failed = Some(S3Code::PreconditionFailed.into());
        } else if bytes.end > whole {
            let why = format!("The range lies outside of the source, which has {whole} bytes.");
            failed = Some(S3Error::argument("x-amz-copy-source-range", "", why).into());
        } else if size > COPY_BYTES_MAX {
            let why = "The source is larger than 5 GiB: copy it in parts.";
            failed = Some(S3Error::new(S3Code::InvalidRequest, why).into());
        }
        if size > object_max {
            failed.get_or_insert_with(|| S3Code::EntityTooLarge.into());
        }
        match failed {
            Some(_) => Wanted::Nothing,
            None => Wanted::Bytes(bytes),
        }
    };
    let Fetched { object, content, .. } =
        fetch(call, &source.object, source.version, wanted).await?;
    match failed {
        Some(failed) => Err(failed),
        None => Ok(Source { object, content, size }),
    }
}

/// The bytes of a copy: into memory, or into the store.
async fn body(
    call: &Call,
    head: &UploadHead,
    content: Content,
    size: u64,
    digest: Option<&mut Digest>,
) -> Result<PutBody, Failure> {
    match content {
        Content::Here(bytes) => {
            if let Some(digest) = digest {
                digest.update(&bytes);
            }
            let sha256 = Sha256::digest(&bytes).into();
            Ok(PutBody::Digested(bytes, sha256))
        }
        content => Ok(PutBody::Uploaded(stored(call, head, content, size, digest).await?)),
    }
}

/// The bytes of a copy, in the store. A copy counts among its caller's uploads, like the bytes that it would have sent, and
/// moves as fast as these must.
///
/// A store that stands still is not asked to end the upload: what is left of it the collector finds by its intent.
async fn stored(
    call: &Call,
    head: &UploadHead,
    content: Content,
    size: u64,
    mut digest: Option<&mut Digest>,
) -> Result<Uploaded, Failure> {
    let app = &call.front.app;
    let _share = upload_share(app, &call.caller.counted, Some(size))?;
    let begun = app.engine.begin_upload(head, Some(size)).await;
    let mut upload = begun.map_err(|failure| refused(head, failure))?;
    let mut pace = Pace::copy(&app.limits);
    match send(&mut upload, content, &mut digest, &mut pace).await {
        Ok(()) => Ok(pace.wait_for_all(size, upload.finish()).await.ok_or_else(too_slow)??),
        Err(Broken::TooSlow) => Err(too_slow()),
        Err(Broken::Failed(error)) => {
            let _ = pace.wait_for_all(0, upload.give_up()).await;
            Err(error.into())
        }
    }
}

/// Why not all bytes of a copy are sent.
enum Broken {
    /// One of the stores stood still, or was too slow.
    TooSlow,
    /// One of them said why.
    Failed(EngineError),
}

fn too_slow() -> Failure {
    let why =
        "a store that the copy reads or writes stood still, or was too slow; nothing was applied";
    Problem::new(ErrorCode::BlobsUnavailable, why).into()
}

async fn send(
    upload: &mut Upload,
    content: Content,
    digest: &mut Option<&mut Digest>,
    pace: &mut Pace,
) -> Result<(), Broken> {
    let mut pieces = match content {
        Content::Here(bytes) => stream::iter([Ok(bytes)]).boxed(),
        Content::Stream(stream) => stream,
    };
    let failed = |error: BlobError| Broken::Failed(error.into());
    loop {
        let next = pace.wait(pieces.try_next()).await.ok_or(Broken::TooSlow)?;
        let Some(bytes) = next.map_err(failed)? else { return Ok(()) };
        if let Some(digest) = digest {
            digest.update(&bytes);
        }
        let moved = bytes.len();
        let pushed = pace.wait(upload.push(bytes)).await.ok_or(Broken::TooSlow)?;
        pushed.map_err(Broken::Failed)?;
        pace.moved(moved);
    }
}
