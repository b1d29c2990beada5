//! The body of a put: read into memory if it is small, else streamed into the blob store.

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use fence_core::ErrorCode;

use crate::engine::{EngineError, PutBody, UploadHead, WriteFailure, upload_halves};
use crate::http::extract::{Chunks, Digests, Gathered, Incoming, content_length, too_large};
use crate::http::peers::Peer;
use crate::http::problem::Problem;
use crate::http::state::App;

/// A body of at most so many bytes is read although nobody wants it.
const IGNORED_MAX: u64 = 64 << 10;

/// A put whose body has not been read.
pub struct Intake<'a> {
    app: &'a App,
    head: UploadHead,
    digests: Digests,
    /// `Content-Length`, if there is one.
    declared: Option<u64>,
    /// Whether the client waits to be told that its body is wanted.
    expects: bool,
    /// Whose share it counts against.
    peer: Option<Peer>,
}

impl<'a> Intake<'a> {
    /// Looks at the headers of the body.
    pub fn new(
        app: &'a App,
        head: UploadHead,
        headers: &HeaderMap,
        peer: Option<Peer>,
    ) -> Result<Self, Problem> {
        let declared = content_length(headers);
        if declared.is_some_and(|length| length > app.limits.object_bytes_max) {
            return Err(too_large(app.limits.object_bytes_max));
        }
        let expects = headers
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        Ok(Self { app, head, digests: Digests::parse(headers)?, declared, expects, peer })
    }

    /// Reads the body.
    ///
    /// 1. What was refused for good before is refused again; a small body is let pass by, so that the next
    ///    request finds its connection.
    /// 2. Where the client waits for it, or much would come: a write that is refused for good is refused
    ///    before a byte is read.
    /// 3. What fits into the ledger is read into memory; what turns out not to goes on as step 4.
    /// 4. The rest is uploaded.
    pub async fn read(self, body: Body) -> Result<PutBody, Problem> {
        let limits = &self.app.limits;
        let object_max = usize::try_from(limits.object_bytes_max).unwrap_or(usize::MAX);
        let inline_max = limits.inline_bytes_max.min(object_max);
        let large = self.declared.is_some_and(|length| length > inline_max as u64);
        let again = Box::pin(self.app.engine.refuse_again(&self.head)).await;
        if let Err(failure) = again {
            let UploadHead { resource, key, token, .. } = &self.head;
            let engine = &self.app.engine;
            let beside = engine.beside_write(&failure.error, resource, Some(key), *token).await;
            let problem = refused(&self.head, failure).beside(beside);
            let small = self.declared.is_some_and(|length| length <= IGNORED_MAX);
            if self.expects || !small {
                return Err(problem.and_close());
            }
            let mut incoming = Incoming::new(body, limits, limits.body_timeout);
            while incoming.chunk().await?.is_some() {}
            return Err(problem);
        }
        if large {
            let mut incoming = Incoming::new(body, limits, limits.upload_timeout);
            incoming.upload(limits);
            return self.upload(Bytes::new(), incoming).await;
        }
        if self.expects {
            let early = Box::pin(self.app.engine.refuse_early(&self.head)).await;
            early.map_err(|failure| refused(&self.head, failure).and_close())?;
        }
        let mut incoming = Incoming::new(body, limits, limits.body_timeout);
        match incoming.gather(inline_max, self.app.room.bodies.of(self.peer)).await? {
            Gathered::Whole(bytes) => {
                self.digests.check_whole(&bytes)?;
                Ok(PutBody::Inline(bytes))
            }
            Gathered::More(start) => {
                incoming.upload(limits);
                self.upload(start, incoming).await
            }
        }
    }

    async fn upload(self, start: Bytes, mut incoming: Incoming) -> Result<PutBody, Problem> {
        // Boxed, so that the future of a put with a small body stays small.
        let Self { app, head, declared, digests, peer, .. } = self;
        Box::pin(upload(app, &head, (declared, peer), digests, start, &mut incoming)).await
    }
}

fn refused(head: &UploadHead, failure: WriteFailure) -> Problem {
    Problem::from(failure.error)
        .about(&head.resource)
        .presented(head.token)
        .of_operation(failure.operation)
}

/// Uploads a body whose first bytes are here, which has `size` bytes, if that is known, and counts against the
/// share of a peer.
pub async fn upload(
    app: &App,
    head: &UploadHead,
    (size, peer): (Option<u64>, Option<Peer>),
    mut digests: Digests,
    start: Bytes,
    rest: &mut dyn Chunks,
) -> Result<PutBody, Problem> {
    let failed = |error: EngineError| {
        Problem::from(error).about(&head.resource).presented(head.token).and_close()
    };
    let _share = app.room.uploads.take(peer, upload_halves(size)).ok_or_else(|| {
        let why = "too many uploads from your address are under way; nothing was applied";
        Problem::new(ErrorCode::Overloaded, why).and_close()
    })?;
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
