//! Uploads in parts: begins them, takes their parts, lists these, and ends them.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use fence_core::ports::{BlobId, MultipartRecord, Part, PartVerdict};
use fence_core::{LockId, Token};
use fencegate_access::Action;
use fencegate_s3::about::{About, StoredChecksum};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::{
    CreateMultipartUpload, ListParts, PartNumber, UploadAddress, UploadChecksum, UploadPart,
};
use fencegate_s3::xml::write::{ListedPart, PartsPage, create_multipart_upload, list_parts};
use uuid::Uuid;

use super::get::checksum_of;
use super::write::Fenced;
use super::{Call, bare, owner, set, xml};
use crate::engine::access::Want;
use crate::engine::{EngineError, PutBody, UploadHead, Uploaded};
use crate::http::Problem;
use crate::http::routes::refused;
use crate::s3::body::Payload;
use crate::s3::checksums;
use crate::s3::failure::Failure;
use crate::s3::place::{self, Place};

/// The value of a checksum that is not known yet: what an upload says of those that its parts will have.
const NOT_YET: &str = "";

/// `CreateMultipartUpload`: under the fence, although nobody sees it, so that whoever is late hears so at once.
pub async fn begin(call: Call, begin: CreateMultipartUpload) -> Result<Response, Failure> {
    let place = place::of(&call.front, &begin.object).await?;
    let Fenced { head, .. } = call.fenced_without_key(&place).await?;
    let about = About {
        checksum: begin.checksum.map(|checksum| StoredChecksum {
            algorithm: checksum.algorithm,
            value: NOT_YET.into(),
            kind: checksum.kind,
        }),
        ..begin.description.about
    };
    let json = about.to_json()?.map(Arc::from);
    let engine = &call.front.app.engine;
    let begun = engine.begin_multipart(&head, begin.description.content_type, json).await;
    let upload = begun.map_err(|failure| refused(&head, failure))?;
    let mut response = xml(create_multipart_upload(&begin.object, &upload.to_string()));
    if let Some(checksum) = about.checksum {
        set(response.headers_mut(), "x-amz-checksum-algorithm", checksum.algorithm.as_str());
        set(response.headers_mut(), "x-amz-checksum-type", checksum.kind.as_str());
    }
    Ok(response)
}

/// `UploadPart`
///
/// 1. The upload goes on, is that of this object, and has its checksums by the algorithm that this part's is of.
/// 2. The body is stored under a name of its own, and held against what was signed and sent of it.
/// 3. It becomes a part of the upload, if that goes on still, and by the same rule as a write.
pub async fn part(call: Call, asked: UploadPart, body: Body) -> Result<Response, Failure> {
    let app = &call.front.app;
    // Step 1.
    let (upload, place, record) = going_on(&call, &asked.upload).await?;
    let Fenced { head, .. } = call.fenced_without_key(&place).await?;
    let payload = Payload::new(body, &call.headers, call.caller.verified.clone(), &app.limits)?;
    let of_upload = checksum_of_upload(&record).map(|checksum| checksum.algorithm);
    if let (Some(wanted), Some(sent)) = (of_upload, payload.checksum_algorithm())
        && wanted != sent
    {
        let why = format!(
            "The upload was begun with {}, and this part has a checksum by {}.",
            wanted.as_str(),
            sent.as_str()
        );
        return Err(S3Error::new(S3Code::InvalidRequest, why).into());
    }
    // Step 2.
    let read = payload.upload(app, &head, &call.caller.counted).await?;
    let PutBody::Uploaded(uploaded) = read.body else { return Err(S3Code::InternalError.into()) };
    // Step 3.
    let checksum = read.checksum.as_ref().map(checksums::stored);
    let tag = store(&call, &head, upload, asked.part, &uploaded, checksum.as_ref()).await?;
    let mut response = bare(StatusCode::OK);
    set(response.headers_mut(), "etag", tag);
    if let Some(checksum) = checksum {
        set(response.headers_mut(), checksum.algorithm.header(), &checksum.value);
    }
    Ok(response)
}

/// Makes a blob a part of an upload. Returns its tag.
pub async fn store(
    call: &Call,
    head: &UploadHead,
    upload: BlobId,
    number: PartNumber,
    uploaded: &Uploaded,
    checksum: Option<&StoredChecksum>,
) -> Result<String, Failure> {
    // INVARIANT: a struct of strings always serializes.
    let json = checksum.map(|checksum| serde_json::to_string(checksum).expect("it is JSON"));
    let number = i32::from(number.get());
    match call.front.app.engine.put_part(head, upload, number, uploaded, json).await? {
        PartVerdict::Stored => Ok(tag_of(&uploaded.sha256)),
        // Another one counts. Sent again, this one does.
        PartVerdict::Overtaken => Err(S3Code::ServiceUnavailable.into()),
        PartVerdict::NoUpload => Err(S3Code::NoSuchUpload.into()),
        PartVerdict::Expired => Err(S3Code::RequestTimeout.into()),
        PartVerdict::Refused(refusal) => {
            let problem = Problem::from(EngineError::Refused(refusal));
            Err(problem.about(&head.resource).presented(head.token).into())
        }
    }
}

/// How much of the digest of a part is in its tag, in bytes.
const TAG_BYTES: usize = 16;

/// The tag of a part: it names the part's bytes, as on S3, and not one sending of them. So whoever sends a part twice may go
/// by either answer.
pub fn tag_of(sha256: &[u8; 32]) -> String {
    format!("\"{}-p\"", hex::encode(&sha256[..TAG_BYTES]))
}

/// The upload of an id, whether it goes on or not.
pub fn upload_of(address: &UploadAddress) -> Result<BlobId, Failure> {
    let id = Uuid::try_parse(&address.upload).ok().map(BlobId);
    let id = id.filter(|id| id.to_string() == address.upload);
    id.ok_or_else(|| no_such(address))
}

/// What is told of an upload that is not there.
pub fn no_such(address: &UploadAddress) -> Failure {
    S3Error::from(S3Code::NoSuchUpload).with("UploadId", address.upload.as_str()).into()
}

/// An upload that goes on, and is that of this object.
pub async fn going_on(
    call: &Call,
    address: &UploadAddress,
) -> Result<(BlobId, Place, MultipartRecord), Failure> {
    let place = place::of(&call.front, &address.object).await?;
    let upload = upload_of(address)?;
    let record = call.front.app.engine.multipart(upload).await?;
    let of_it = |record: &MultipartRecord| {
        record.multipart.resource == place.resource && record.multipart.key == place.key
    };
    let record = record.filter(of_it).ok_or_else(|| no_such(address))?;
    Ok((upload, place, record))
}

/// How an upload has its checksums.
pub fn checksum_of_upload(record: &MultipartRecord) -> Option<UploadChecksum> {
    let about = About::from_json(record.multipart.about.as_deref()).ok()?;
    let StoredChecksum { algorithm, kind, .. } = about.checksum?;
    Some(UploadChecksum { algorithm, kind })
}

impl Call {
    /// A write that is no call of its own: only the one that completes the upload has an effect.
    pub async fn fenced_without_key(&self, place: &Place) -> Result<Fenced, Failure> {
        let fence: (Token, Option<LockId>) = self.fence()?;
        let permit = self.may_on(Action::Write, &place.resource).await?;
        Ok(self.under(place, fence, permit, None))
    }
}

/// `AbortMultipartUpload`
pub async fn abort(call: Call, address: UploadAddress) -> Result<Response, Failure> {
    let (upload, place, _) = going_on(&call, &address).await?;
    let Fenced { head, .. } = call.fenced_without_key(&place).await?;
    let aborted = call.front.app.engine.abort_multipart(&head, upload).await;
    match aborted.map_err(|failure| refused(&head, failure))? {
        true => Ok(bare(StatusCode::NO_CONTENT)),
        false => Err(no_such(&address)),
    }
}

/// `ListParts`
pub async fn parts(call: Call, asked: ListParts) -> Result<Response, Failure> {
    let (upload, place, record) = going_on(&call, &asked.upload).await?;
    call.may(Want::On(Action::List, place.resource)).await?;
    let (after, most) = (i32::from(asked.after), usize::from(asked.max_parts));
    let engine = &call.front.app.engine;
    let mut found = engine.parts(upload, after, i64::from(asked.max_parts) + 1).await?;
    let more = found.len() > most;
    found.truncate(most);
    let told = |(number, part): (i32, Part)| ListedPart {
        number: u16::try_from(number).unwrap_or(u16::MAX),
        last_modified: part.stored_at,
        etag: tag_of(&part.sha256),
        bytes: part.size.unsigned_abs(),
        checksum: checksum_of(&part),
    };
    let parts = found.into_iter().map(told).collect();
    let page = PartsPage { parts, more, checksum: checksum_of_upload(&record) };
    Ok(xml(list_parts(&asked, &owner(), &page)))
}
