//! Bodies that go into the blob store; and the body of a commit: its list, then the bodies that it names, each into
//! memory or into the store.

use axum::extract::Request;
use bytes::Bytes;
use fence_core::wire::CommitRequest;
use fence_core::{ErrorCode, ObjectKey, ResourceName};
use fencegate_access::Quota;

use crate::engine::{CommitHead, EngineError, PutBody, UploadHead, WriteFailure, upload_halves};
use crate::http::budget::Share;
use crate::http::extract::{
    Chunks, Described, Digests, Gathering, Incoming, MultipartParts, is_json, no_digest, parse,
    too_large,
};
use crate::http::peers::{Counted, Held};
use crate::http::problem::Problem;
use crate::http::state::App;

/// The largest list of a commit, in bytes.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The most bytes of bodies that one commit keeps in the ledger; what goes beyond becomes blobs.
const INLINE_BYTES_MAX: usize = 16 << 20;

/// The bodies of a commit, in the order of its list.
pub struct Bodies<'a> {
    app: &'a App,
    parts: MultipartParts,
    /// Bytes that go into the ledger, so far.
    inline: usize,
    /// Once an upload has begun: their share of what commits may keep in memory for as long as uploads
    /// take. So plain puts always find room, however slowly the bodies of commits arrive.
    kept: Option<Share>,
    /// Whose share all this counts against.
    counted: Counted,
}

impl<'a> Bodies<'a> {
    /// Reads the list.
    ///
    /// # Errors
    /// `unsupported-media-type`; `body-malformed`; `payload-too-large`; what the body itself comes to.
    pub async fn begin(app: &'a App, request: Request) -> Result<(Self, CommitRequest), Problem> {
        let boundary = MultipartParts::boundary(request.headers()).map_err(Problem::and_close)?;
        no_digest(request.headers()).map_err(Problem::and_close)?;
        let counted = Counted::by(request.extensions());
        let purse = app.room.bodies.of(&counted);
        let incoming = Incoming::new(request.into_body(), &app.limits, app.limits.body_timeout);
        let mut parts = MultipartParts::new(incoming, &boundary);
        let Some(part) = parts.next().await?.filter(|part| part.name == "operations") else {
            return Err(malformed("the first part is named `operations`"));
        };
        is_json(&part.headers).map_err(Problem::and_close)?;
        let described = Described::parse(&part.headers).map_err(Problem::and_close)?;
        let mut read = Gathering::default();
        while let Some(data) = parts.chunk().await? {
            read.push(data, purse)?;
            if read.size() > LIST_BYTES_MAX {
                return Err(too_large(LIST_BYTES_MAX as u64).and_close());
            }
        }
        let bytes = read.into_bytes();
        described.check_whole(&bytes).map_err(Problem::and_close)?;
        let list = parse(&bytes).map_err(Problem::and_close)?;
        Ok((Self { app, parts, inline: 0, kept: None, counted }, list))
    }

    /// Reads the next body, which must have this name, and tells its content type: the one that the list
    /// or the part gives.
    ///
    /// 1. What fits into the ledger is read into memory; what turns out not to goes on as step 2.
    /// 2. The rest is uploaded, one body after the other. Uploads that no commit follows are swept. All
    ///    of them have one deadline, and so has whatever else is still to come.
    ///
    /// # Errors
    /// `body-malformed` if it is another part, or not what its headers say; `payload-too-large`;
    /// `digest-mismatch`; `unsupported-media-type`; what the body itself or its upload comes to.
    pub async fn next(
        &mut self,
        head: &CommitHead,
        resource: &ResourceName,
        key: &ObjectKey,
        name: &str,
        content_type: Option<String>,
    ) -> Result<(PutBody, String), Problem> {
        let part = self.parts.next().await?.filter(|part| part.name == name);
        let part =
            part.ok_or_else(|| malformed("bodies come in the order of the list, each once"))?;
        let mut described = Described::parse(&part.headers).map_err(Problem::and_close)?;
        let content_type = described.content_type(content_type).map_err(Problem::and_close)?;
        let limits = &self.app.limits;
        let object_max = usize::try_from(limits.object_bytes_max).unwrap_or(usize::MAX);
        let purse = self.app.room.bodies.of(&self.counted);
        // With half for what is being read, a commit fits into the share of whoever sends nothing else.
        let room = INLINE_BYTES_MAX.min(purse.most() / 2).saturating_sub(self.inline);
        let inline_max = limits.inline_bytes_max.min(object_max).min(room);
        let mut read = Gathering::default();
        while let Some(data) = self.parts.chunk().await? {
            read.push(data, purse)?;
            if read.size() > inline_max {
                let head = UploadHead {
                    resource: resource.clone(),
                    key: key.clone(),
                    token: head.token,
                    lock: head.lock,
                    idempotency_key: head.idempotency_key.clone(),
                    request_id: head.request_id.clone(),
                    permit: head.permit.clone(),
                };
                if self.kept.is_none() {
                    self.kept =
                        Some(self.app.room.kept_bodies.of(&Counted::Nobody).take(self.inline)?);
                    self.parts.incoming.upload(limits);
                }
                let (app, start) = (self.app, read.into_bytes());
                let digests = std::mem::take(&mut described.digests);
                let body =
                    upload(app, &head, (None, &self.counted), digests, start, &mut self.parts)
                        .await?;
                if let PutBody::Uploaded(uploaded) = &body {
                    described.check_length(uploaded.size).map_err(Problem::and_close)?;
                }
                return Ok((body, content_type));
            }
        }
        let bytes = read.into_bytes();
        described.check_whole(&bytes).map_err(Problem::and_close)?;
        self.inline += bytes.len();
        if let Some(kept) = &mut self.kept {
            kept.merge(self.app.room.kept_bodies.of(&Counted::Nobody).take(bytes.len())?);
        }
        Ok((PutBody::Inline(bytes), content_type))
    }

    /// Reads to the end of the body, where no part may be left.
    ///
    /// # Errors
    /// `body-malformed` if there is one; what the body itself comes to.
    pub async fn end(mut self) -> Result<(), Problem> {
        match self.parts.next().await? {
            None => Ok(()),
            Some(_) => Err(malformed("there is a part that no operation names")),
        }
    }
}

fn malformed(why: &str) -> Problem {
    Problem::new(ErrorCode::BodyMalformed, format!("{why}; nothing was applied")).and_close()
}

/// What is told whose upload the engine refused.
pub fn refused(head: &UploadHead, failure: WriteFailure) -> Problem {
    Problem::from(failure.error)
        .about(&head.resource)
        .presented(head.token)
        .of_operation(failure.operation)
}

/// A place among the uploads under way, for bytes that go into the store; `size` is how many, if that is known.
///
/// # Errors
/// The principal, or the peer, has its share already.
pub fn upload_share(app: &App, counted: &Counted, size: Option<u64>) -> Result<Held, Problem> {
    app.room.uploads.take(counted, upload_halves(size)).ok_or_else(|| {
        let why = "nothing was applied: too many uploads are under way";
        counted.refused(Quota::Uploads.as_str(), why)
    })
}

/// Uploads a body whose first bytes are here, which has `size` bytes, if that is known, and counts against
/// somebody's share.
pub async fn upload(
    app: &App,
    head: &UploadHead,
    (size, counted): (Option<u64>, &Counted),
    mut digests: Digests,
    start: Bytes,
    rest: &mut dyn Chunks,
) -> Result<PutBody, Problem> {
    let failed = |error: EngineError| {
        Problem::from(error).about(&head.resource).presented(head.token).and_close()
    };
    let _share = upload_share(app, counted, size).map_err(Problem::and_close)?;
    let begun = app.engine.begin_upload(head, size).await;
    // A body of which much may still come is not waited for.
    let mut upload = begun.map_err(|failure| refused(head, failure).and_close())?;
    let max = app.limits.object_bytes_max;
    let mut sent = 0;
    // From here on they count among the uploads, which have room of their own: as they are they would keep
    // their share of all bodies until a whole part is there.
    let mut next = Some(Bytes::copy_from_slice(&start));
    drop(start);
    while let Some(bytes) = next {
        sent += bytes.len() as u64;
        if sent > max {
            upload.give_up().await;
            return Err(too_large(max).and_close());
        }
        digests.update(&bytes);
        if let Err(error) = upload.push(bytes).await {
            upload.give_up().await;
            return Err(failed(error));
        }
        next = match rest.chunk().await {
            Ok(bytes) => bytes,
            Err(problem) => {
                upload.give_up().await;
                return Err(problem);
            }
        };
    }
    let uploaded = upload.finish().await.map_err(failed)?;
    digests.check(&uploaded.sha256).map_err(Problem::and_close)?;
    Ok(PutBody::Uploaded(uploaded))
}
