//! Reads objects, and what they say of themselves.

use std::ops::Range;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use fence_core::EntityTag;
use fence_core::ports::{BlobId, Object, PARTS_MAX, Part};
use fencegate_access::Action;
use fencegate_s3::about::{About, StoredChecksum};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::{
    AttributeKind, ConditionsVerdict, ObjectAddress, ObjectAttributes, PartNumber, ReadObject,
    Selection,
};
use fencegate_s3::xml::write::{
    Attributes, AttributesPart, AttributesParts, attributes as document,
};

use super::{Call, bare, set, xml};
use crate::engine::access::Want;
use crate::engine::{Content, EngineError, Fetched, Wanted};
use crate::s3::failure::{Failure, is_absent};
use crate::s3::place;

/// What becomes of a read, once it is known what the object is like.
enum Answer {
    /// These bytes.
    Bytes(StatusCode, Range<u64>),
    NotModified,
    Failed(Failure),
}

/// `GetObject` and `HeadObject`
pub async fn get(call: Call, asked: ReadObject) -> Result<Response, Failure> {
    if call.caller.is_anonymous && !asked.overrides.is_empty() {
        let why = "Request specific response headers cannot be used for anonymous GET requests.";
        return Err(S3Error::new(S3Code::InvalidRequest, why).into());
    }
    let parts = match asked.part {
        None => None,
        Some(number) => Some(part_of(&call, &asked, number).await?),
    };
    let is_get = call.parts.method == Method::GET;
    // With `If-Range` it is the rest of a read that broke off.
    let is_rest = call.parts.headers.contains_key(header::IF_RANGE);
    let mut answer = Answer::NotModified;
    let mut decided: Option<EntityTag> = None;
    let wanted = |object: &Object| {
        decided = Some(object.tag);
        answer = decide(&asked, parts.as_ref(), object);
        match &answer {
            Answer::Bytes(_, range) if is_get && is_rest => Wanted::Rest(range.clone()),
            Answer::Bytes(_, range) if is_get => Wanted::Bytes(range.clone()),
            _ => Wanted::Nothing,
        }
    };
    let Fetched { object, content, .. } =
        fetch(&call, &asked.object, asked.version, wanted).await?;
    let (status, range) = match answer {
        Answer::Failed(failure) => return Err(failure),
        Answer::NotModified => {
            let mut response = bare(StatusCode::NOT_MODIFIED);
            set(response.headers_mut(), "etag", object.tag);
            return Ok(response);
        }
        Answer::Bytes(status, range) => (status, range),
    };
    let mut response = match content {
        Content::Here(bytes) => Response::new(Body::from(bytes)),
        Content::Stream(stream) => Response::new(Body::from_stream(stream)),
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let about = facts(headers, &object)?;
    // No cache keeps what was signed for in the head of a request. Tools that copy an object take over what is said of it
    // here, so nothing may be said there that its writer did not say.
    if !call.headers.contains_key(header::AUTHORIZATION) {
        let fresh = HeaderValue::from_static("no-cache, no-transform");
        headers.entry(header::CACHE_CONTROL).or_insert(fresh);
    }
    headers.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        let (first, size) = (range.start, object.size);
        let last = range.end.saturating_sub(1);
        set(headers, "content-range", format_args!("bytes {first}-{last}/{size}"));
    }
    if let Some(parts) = &parts {
        set(headers, "x-amz-mp-parts-count", parts.count);
    }
    let is_whole = range == (0..object.size.unsigned_abs());
    if asked.with_checksum {
        match parts.and_then(|part| part.checksum) {
            Some(of_part) => About { checksum: Some(of_part), ..about }.write_checksum(headers),
            None if is_whole => about.write_checksum(headers),
            None => {}
        }
    }
    for (name, value) in &asked.overrides {
        headers.insert(name.clone(), value.clone());
    }
    Ok(response)
}

fn decide(asked: &ReadObject, parts: Option<&InPart>, object: &Object) -> Answer {
    match asked.conditions.judge(object.tag, object.written_at) {
        ConditionsVerdict::NotModified => return Answer::NotModified,
        ConditionsVerdict::Failed => return Answer::Failed(S3Code::PreconditionFailed.into()),
        ConditionsVerdict::Holds => {}
    }
    let size = object.size.unsigned_abs();
    if let Some(part) = parts {
        // The object that the part was looked up in, or another one by now.
        return match part.tag == object.tag {
            true => Answer::Bytes(StatusCode::PARTIAL_CONTENT, part.range.clone()),
            false => Answer::Failed(S3Code::ServiceUnavailable.into()),
        };
    }
    let Some(range) = &asked.range else { return Answer::Bytes(StatusCode::OK, 0..size) };
    match range.select(object.tag, object.written_at, size) {
        Ok(Selection::Whole) => Answer::Bytes(StatusCode::OK, 0..size),
        Ok(Selection::Part { first, last }) => {
            Answer::Bytes(StatusCode::PARTIAL_CONTENT, first..last + 1)
        }
        Err(error) => Answer::Failed(error.into()),
    }
}

/// Where a part of an object lies in it.
struct InPart {
    tag: EntityTag,
    range: Range<u64>,
    count: usize,
    /// Its own checksum, of the kind that the object's is.
    checksum: Option<StoredChecksum>,
}

/// An object that was not uploaded in parts has one.
async fn part_of(call: &Call, asked: &ReadObject, number: PartNumber) -> Result<InPart, Failure> {
    let object = look(call, &asked.object, asked.version).await?;
    let tag = object.tag;
    let number = i32::from(number.get());
    let Some(upload) = upload_of(&object) else {
        return match number {
            1 => {
                let range = 0..object.size.unsigned_abs();
                Ok(InPart { tag, range, count: 1, checksum: None })
            }
            _ => Err(S3Code::InvalidPartNumber.into()),
        };
    };
    let parts = call.front.app.engine.parts(upload, 0, i64::from(PARTS_MAX)).await?;
    let mut begins = 0;
    for (at, part) in &parts {
        let ends = begins + part.size.unsigned_abs();
        if *at == number {
            let kind = about_of(&object)?.checksum.map(|checksum| checksum.kind);
            let checksum = checksum_of(part)
                .map(|own| StoredChecksum { kind: kind.unwrap_or(own.kind), ..own });
            return Ok(InPart { tag, range: begins..ends, count: parts.len(), checksum });
        }
        begins = ends;
    }
    Err(S3Code::InvalidPartNumber.into())
}

/// The upload that an object was, if it came in parts.
pub fn upload_of(object: &Object) -> Option<BlobId> {
    object.parts.and_then(|_| object.payload.blob())
}

/// An object, and some of its bytes.
pub async fn fetch(
    call: &Call,
    object: &ObjectAddress,
    version: Option<EntityTag>,
    wanted: impl FnMut(&Object) -> Wanted + Send,
) -> Result<Fetched, Failure> {
    let place = place::of(&call.front, object).await?;
    call.may(Want::On(Action::Read, place.resource.clone())).await?;
    let engine = &call.front.app.engine;
    let at = version.map(|tag| tag.version);
    let fetched = engine.fetch(place.resource, place.key, at, wanted).await;
    let none = |code: S3Code| S3Error::from(code).with("Key", object.key.as_str());
    let fetched = fetched.map_err(|error| match (&error, version) {
        (EngineError::VersionNotRetained, _) => none(S3Code::NoSuchVersion).into(),
        (error, _) if is_absent(error) => none(S3Code::NoSuchKey).into(),
        _ => Failure::from(error),
    })?;
    // A version of before a re-fence may have the number of one since.
    match version.is_none_or(|version| version == fetched.object.tag) {
        true => Ok(fetched),
        false => Err(none(S3Code::NoSuchVersion).into()),
    }
}

/// An object without its bytes.
pub async fn look(
    call: &Call,
    object: &ObjectAddress,
    version: Option<EntityTag>,
) -> Result<Object, Failure> {
    Ok(fetch(call, object, version, |_| Wanted::Nothing).await?.object)
}

/// What an object says of itself.
pub fn about_of(object: &Object) -> Result<About, Failure> {
    let about = About::from_json(object.about.as_deref());
    about.map_err(|why| S3Error::new(S3Code::InternalError, why.to_string()).into())
}

/// The headers that come with and without the bytes.
fn facts(headers: &mut HeaderMap, object: &Object) -> Result<About, Failure> {
    let about = about_of(object)?;
    about.write(headers);
    set(headers, "etag", object.tag);
    set(headers, "content-type", &object.content_type);
    set(headers, "last-modified", http_time(object.written_at));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        HeaderName::from_static("x-amz-storage-class"),
        HeaderValue::from_static("STANDARD"),
    );
    Ok(about)
}

/// A time as HTTP has it, to the second.
fn http_time(at: jiff::Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `GetObjectAttributes`
pub async fn attributes(call: Call, asked: ObjectAttributes) -> Result<Response, Failure> {
    let object = look(&call, &asked.object, asked.version).await?;
    let wants = |kind: AttributeKind| asked.wanted.contains(&kind);
    let parts = match upload_of(&object).filter(|_| wants(AttributeKind::ObjectParts)) {
        Some(upload) => Some(page_of_parts(&call, &asked, &object, upload).await?),
        None => None,
    };
    let about = about_of(&object)?;
    let attributes = Attributes {
        etag: wants(AttributeKind::ETag).then_some(object.tag),
        checksum: about.checksum.filter(|_| wants(AttributeKind::Checksum)),
        parts,
        storage_class: wants(AttributeKind::StorageClass),
        bytes: wants(AttributeKind::ObjectSize).then_some(object.size.unsigned_abs()),
    };
    let mut response = xml(document(&attributes));
    set(response.headers_mut(), "last-modified", http_time(object.written_at));
    Ok(response)
}

async fn page_of_parts(
    call: &Call,
    asked: &ObjectAttributes,
    object: &Object,
    upload: BlobId,
) -> Result<AttributesParts, Failure> {
    let (after, max_parts) = (asked.parts_after, asked.max_parts);
    let engine = &call.front.app.engine;
    let mut parts = engine.parts(upload, i32::from(after), i64::from(max_parts) + 1).await?;
    let more = parts.len() > usize::from(max_parts);
    parts.truncate(usize::from(max_parts));
    let told = |(number, part): (i32, Part)| AttributesPart {
        number: u16::try_from(number).unwrap_or(u16::MAX),
        bytes: part.size.unsigned_abs(),
        checksum: checksum_of(&part),
    };
    let count = object.parts.and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
    let parts = parts.into_iter().map(told).collect();
    Ok(AttributesParts { count, after, max_parts, more, parts })
}

/// The checksum that a part came with.
pub fn checksum_of(part: &Part) -> Option<StoredChecksum> {
    serde_json::from_str(part.checksum.as_deref()?).ok()
}
