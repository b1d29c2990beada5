//! Completes an upload in parts. This is the write: what its parts are becomes visible with it, under the fence, or never.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use fence_core::EntityTag;
use fence_core::ports::{KeySpace, MultipartRecord, PARTS_MAX, Part};
use fencegate_access::Action;
use fencegate_s3::about::{About, ChecksumAlgorithm, ChecksumKind, StoredChecksum};
use fencegate_s3::checksum::{Checksum, ObjectChecksum, of_whole};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::{CompleteMultipartUpload, UploadChecksum};
use fencegate_s3::xml::read::{CompletedPart, complete_multipart_upload as read};
use fencegate_s3::xml::write::{Completed, complete_multipart_upload as document};
use sha2::{Digest as _, Sha256};

use super::get::checksum_of;
use super::multipart::{checksum_of_upload, no_such, tag_of, upload_of};
use super::write::facts;
use super::{Call, set, xml};
use crate::engine::access::Want;
use crate::engine::{InParts, More, PutBody, WriteEffect, WriteOutcome};
use crate::http::Ends;
use crate::http::routes::refused;
use crate::s3::body;
use crate::s3::failure::Failure;
use crate::s3::place::{self, Place};

/// The smallest part that is not the last, in bytes, as on S3.
const PART_BYTES_MIN: i64 = 5 << 20;

/// `CompleteMultipartUpload`
///
/// 1. The parts that are named are those that the upload has, in their order, and large enough, and the whole has the size
///    and the checksum that the caller gives. Whoever is late hears that it is, and not that its successor has replaced a
///    part.
/// 2. The fenced write, with the upload's id as its idempotency key: done once, however often it is sent. It takes the
///    upload's intent and the parts as they are then, or nothing.
/// 3. If the upload is over, it may have been completed by an earlier sending: its answer is given again, but not to one that
///    names other parts, whose bytes were not stored.
pub async fn complete(
    call: Call,
    asked: CompleteMultipartUpload,
    body: Body,
) -> Result<Response, Failure> {
    let front = &call.front;
    let place = place::of(front, &asked.upload.object).await?;
    let fence = call.fence()?;
    let permit = call.may_on(Action::Write, &place.resource).await?;
    let upload = upload_of(&asked.upload)?;
    let verified = call.caller.verified.clone();
    let given = of_whole(&call.headers)?;
    let headers = without_checksums(&call.headers);
    let bytes = body::document(body, &headers, verified, &front.app, &call.caller.counted).await?;
    let named = read(&bytes)?;
    let key = KeySpace::Upload.key(&upload.to_string());
    let record = front.app.engine.multipart(upload).await?;
    let record = record.filter(|record| {
        record.multipart.resource == place.resource && record.multipart.key == place.key
    });
    let Some(record) = record else {
        // Step 3.
        let done = front.app.engine.operation_by_key(place.resource.clone(), key).await?;
        let done = done.filter(|done| done.key.as_ref() == Some(&place.key));
        let applied = done.ok_or_else(|| no_such(&asked.upload))?;
        // They are there as long as the object is, or a version that is kept of it.
        let stored = front.app.engine.parts(upload, 0, i64::from(PARTS_MAX)).await?;
        if !stored.is_empty() && !are_same(&named, &stored) {
            return Err(no_such(&asked.upload));
        }
        let outcome = WriteOutcome { applied, replayed: true };
        return answered(&call, &asked, &place, &outcome).await;
    };
    // Step 1.
    let stored = front.app.engine.parts(upload, 0, i64::from(PARTS_MAX)).await?;
    let fenced = call.under(&place, fence, permit, Some(key));
    let most = front.app.limits.object_bytes_max;
    let whole = Whole::of(&asked, given.as_ref(), &record, &named, stored, most);
    let Whole { about, parts } = match whole {
        Ok(whole) => whole,
        Err(failure) => {
            let early = front.app.engine.refuse_early(&fenced.head).await;
            early.map_err(|failure| refused(&fenced.head, failure))?;
            return Err(failure);
        }
    };
    // Step 2.
    let more = More::Objects(
        &[(&place.resource, &place.key)],
        parts.size.max(1),
        fenced.head.idempotency_key.as_deref(),
    );
    front.app.engine.has_room(&call.caller.asks, more).await?;
    let effect = WriteEffect::Put {
        key: place.key.clone(),
        content_type: record.multipart.content_type,
        about: about.to_json()?.map(Arc::from),
        body: PutBody::Parts(parts),
    };
    let outcome = call.write(fenced, asked.condition.clone(), effect).await?;
    answered(&call, &asked, &place, &outcome).await
}

/// What an upload becomes.
struct Whole {
    about: About,
    parts: InParts,
}

impl Whole {
    /// Puts the parts that are named together.
    ///
    /// # Errors
    /// They are not the upload's, or make another whole than the caller says.
    fn of(
        asked: &CompleteMultipartUpload,
        given: Option<&ObjectChecksum>,
        record: &MultipartRecord,
        named: &[CompletedPart],
        stored: Vec<(i32, Part)>,
        object_bytes_max: u64,
    ) -> Result<Self, Failure> {
        let chosen = chosen(named, stored)?;
        let size: u64 = chosen.iter().map(|part| part.size.unsigned_abs()).sum();
        if size > object_bytes_max {
            return Err(S3Code::EntityTooLarge.into());
        }
        if asked.object_bytes.is_some_and(|bytes| bytes != size) {
            let why = format!(
                "The parts have {size} bytes, which is not what x-amz-mp-object-size says."
            );
            return Err(S3Error::new(S3Code::InvalidRequest, why).into());
        }
        let about = About::from_json(record.multipart.about.as_deref());
        let about = about.map_err(|why| S3Error::new(S3Code::InternalError, why.to_string()))?;
        let of_upload = checksum_of_upload(record);
        let whole = of_upload.map(|checksum| of_parts(&checksum, &chosen)).transpose()?.flatten();
        held_against(given, asked.checksum_kind, whole.as_ref())?;
        let checksum = whole.map(|whole| StoredChecksum {
            algorithm: whole.algorithm(),
            value: whole.to_string(),
            kind: whole.kind(),
        });
        let mut digest = Sha256::new();
        chosen.iter().for_each(|part| digest.update(part.sha256));
        let (upload, sha256) = (record.upload, digest.finalize().into());
        let parts = chosen.iter().map(|part| part.blob).collect();
        let parts = InParts { upload, size, sha256, parts };
        Ok(Self { about: About { checksum, ..about }, parts })
    }
}

/// Whether these parts and no others are stored.
fn are_same(named: &[CompletedPart], stored: &[(i32, Part)]) -> bool {
    let is_same = |(one, (number, part)): (&CompletedPart, &(i32, Part))| {
        i32::from(one.number.get()) == *number && tag_of(&part.sha256).trim_matches('"') == one.etag
    };
    named.len() == stored.len() && named.iter().zip(stored).all(is_same)
}

/// The parts that are named, as they are stored.
fn chosen(named: &[CompletedPart], stored: Vec<(i32, Part)>) -> Result<Vec<Part>, Failure> {
    if !named.is_sorted_by(|one, other| one.number < other.number) {
        return Err(S3Code::InvalidPartOrder.into());
    }
    let mut stored: HashMap<i32, Part> = stored.into_iter().collect();
    let mut chosen = Vec::with_capacity(named.len());
    for part in named {
        let number = part.number.get();
        let invalid = || {
            S3Error::from(S3Code::InvalidPart)
                .with("PartNumber", number.to_string())
                .with("ETag", part.etag.as_str())
        };
        let found = stored.remove(&i32::from(number)).ok_or_else(invalid)?;
        if tag_of(&found.sha256).trim_matches('"') != part.etag {
            return Err(invalid().into());
        }
        if let Some((algorithm, value)) = &part.checksum {
            let has = checksum_of(&found);
            if has.is_none_or(|has| has.algorithm != *algorithm || has.value != *value) {
                return Err(invalid().into());
            }
        }
        chosen.push(found);
    }
    let all_but_last = chosen.split_last().map_or(&[][..], |(_, others)| others);
    match all_but_last.iter().any(|part| part.size < PART_BYTES_MIN) {
        true => Err(S3Code::EntityTooSmall.into()),
        false => Ok(chosen),
    }
}

/// The headers as they are about the document: those with checksums are about the object.
fn without_checksums(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    ChecksumAlgorithm::ALL.iter().for_each(|algorithm| drop(headers.remove(algorithm.header())));
    headers
}

/// What the caller says of the whole is so.
///
/// # Errors
/// It is not, or the parts do not tell: what is not checked must not be promised.
fn held_against(
    given: Option<&ObjectChecksum>,
    kind: Option<ChecksumKind>,
    whole: Option<&ObjectChecksum>,
) -> Result<(), Failure> {
    let invalid = |why: &'static str| Err(S3Error::new(S3Code::InvalidRequest, why).into());
    if let (Some(kind), Some(whole)) = (kind, whole)
        && kind != whole.kind()
    {
        return invalid("The upload was begun with another x-amz-checksum-type.");
    }
    match (given, whole) {
        (None, _) => Ok(()),
        (Some(_), None) => invalid(
            "The checksum of the object cannot be checked: the upload was begun without an algorithm, or one of its parts has no checksum.",
        ),
        (Some(given), Some(whole)) if given.algorithm() != whole.algorithm() => {
            invalid("The upload was begun with another checksum algorithm.")
        }
        // Some leave the number of parts away.
        (Some(given), Some(whole))
            if given == whole || *given == ObjectChecksum::Full(*whole.checksum()) =>
        {
            Ok(())
        }
        (Some(given), Some(_)) => {
            let why = format!(
                "The {} that you gave is not that of the parts.",
                given.algorithm().as_str()
            );
            Err(S3Error::new(S3Code::BadDigest, why).into())
        }
    }
}

/// The checksum of the whole, if all parts have theirs by the upload's algorithm.
fn of_parts(asked: &UploadChecksum, parts: &[Part]) -> Result<Option<ObjectChecksum>, Failure> {
    let mut checksums = Vec::with_capacity(parts.len());
    for part in parts {
        let stored = checksum_of(part).filter(|stored| stored.algorithm == asked.algorithm);
        let Some(stored) = stored else { return Ok(None) };
        let checksum = Checksum::parse(asked.algorithm, &stored.value)?;
        checksums.push((checksum, part.size.unsigned_abs()));
    }
    Ok(Some(ObjectChecksum::of_parts(asked.kind, &checksums)?))
}

/// The answer to an upload that is complete, now or since an earlier sending.
async fn answered(
    call: &Call,
    asked: &CompleteMultipartUpload,
    place: &Place,
    outcome: &WriteOutcome,
) -> Result<Response, Failure> {
    let version = outcome.applied.version.unwrap_or_default();
    let etag = EntityTag { generation: outcome.applied.generation, version };
    // Whoever may write and not read is told no more than that it is done.
    let reads = call.caller.asks.could(&Want::On(Action::Read, place.resource.clone()));
    let checksum = match reads {
        true => kept_checksum(call, asked, etag).await,
        false => None,
    };
    let host = call.headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let ends = call.parts.extensions.get::<Ends>();
    let scheme = if ends.is_some_and(|ends| ends.is_secured) { "https" } else { "http" };
    let location = format!("{scheme}://{host}{}", call.parts.uri.path());
    let completed = Completed {
        object: &asked.upload.object,
        location: &location,
        etag,
        checksum: checksum.as_ref(),
    };
    let mut response = xml(document(&completed));
    facts(response.headers_mut(), outcome);
    set(response.headers_mut(), "etag", etag);
    Ok(response)
}

async fn kept_checksum(
    call: &Call,
    asked: &CompleteMultipartUpload,
    etag: EntityTag,
) -> Option<StoredChecksum> {
    let object = super::get::look(call, &asked.upload.object, None).await.ok()?;
    let object = (object.tag == etag).then_some(object)?;
    super::get::about_of(&object).ok()?.checksum
}
