//! Uploads in parts, as a client of S3 makes them: begun, sent part by part, completed or ended. A history tells of the
//! completion alone, which is the write.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fence_core::LockId;
use fence_core::ports::{BlobId, KeySpace, PARTS_MAX, PartVerdict};
use fence_history::{Answer, Asked, Change, FencedWrite};
use fencegate::engine::access::Want;
use fencegate::engine::{Engine, InParts, PutBody, UploadHead, Write, WriteEffect};
use fencegate_access::Action;
use futures::channel::oneshot;
use sha2::{Digest as _, Sha256};

use super::calls::{failed, key, token, upload, write_failed, written};
use super::{Client, Held, name};
use crate::access::Asker;

/// An upload in parts.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Its id.
    pub id: BlobId,
    /// The resource.
    pub resource: String,
    /// The object.
    pub object: String,
    /// What it will be, all parts together.
    pub value: String,
    /// Of how many parts.
    pub parts: usize,
}

impl Upload {
    /// The bytes of a part, by its number; one more than it has is a part that is never named.
    fn piece(&self, number: usize) -> Bytes {
        if number > self.parts {
            return Bytes::from_static(b"not named");
        }
        let size = self.value.len() / self.parts;
        let begins = size * (number - 1);
        let ends = if number == self.parts { self.value.len() } else { begins + size };
        let range: Range<usize> = begins..ends;
        Bytes::copy_from_slice(&self.value.as_bytes()[range])
    }
}

impl Client {
    /// Asks for what no history tells of. `None`: the client will never know, or was refused.
    async fn aside<T, F>(&self, handler: impl FnOnce(Engine) -> F + Send + 'static) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Answer>> + Send + 'static,
    {
        let (send, mut got) = oneshot::channel();
        let handler = move |engine: Engine| async move {
            match handler(engine).await {
                Ok(told) => {
                    // Whoever has hung up does not hear of it.
                    let _ = send.send(told);
                    (Answer::Done, None)
                }
                Err(answer) => (answer, None),
            }
        };
        self.send(self.choose(), false, handler).await.ok()?;
        got.try_recv().ok().flatten()
    }

    /// Begins an upload of something new.
    pub async fn begin_in_parts(
        &mut self,
        held: &Held,
        (resource, object): (&str, &str),
        parts: usize,
    ) -> Option<Upload> {
        let value = self.value();
        let (asker, wish) = (self.asker(), Wish::of(held, resource, object));
        let about = Arc::from(format!("\"{value}\""));
        let begun = self.aside(move |engine| async move {
            let head = wish.head(&asker, &engine).await?;
            let begun = engine.begin_multipart(&head, "text/plain".into(), Some(about)).await;
            begun.map_err(|failure| write_failed(&failure))
        });
        let id = begun.await?;
        let (resource, object) = (resource.to_owned(), object.to_owned());
        let upload = Upload { id, resource, object, value, parts };
        self.recorder.began(upload.clone());
        Some(upload)
    }

    /// Sends a part. Whether it is known to be the upload's.
    pub async fn put_part(&self, held: &Held, to: &Upload, number: usize) -> bool {
        let (asker, wish) = (self.asker(), Wish::of(held, &to.resource, &to.object));
        let (id, bytes) = (to.id, to.piece(number));
        let put = self.aside(move |engine| async move {
            let head = wish.head(&asker, &engine).await?;
            let PutBody::Uploaded(uploaded) = upload(&engine, &head, bytes).await? else {
                return Ok(None);
            };
            let number = i32::try_from(number).unwrap_or(1);
            let put = engine.put_part(&head, id, number, &uploaded, None).await;
            put.map(Some).map_err(|error| failed(&error))
        });
        put.await.flatten() == Some(PartVerdict::Stored)
    }

    /// Ends an upload.
    pub async fn abort(&self, held: &Held, ends: &Upload) {
        let (asker, wish) = (self.asker(), Wish::of(held, &ends.resource, &ends.object));
        let id = ends.id;
        let abort = self.aside(move |engine| async move {
            let head = wish.head(&asker, &engine).await?;
            let aborted = engine.abort_multipart(&head, id).await;
            aborted.map_err(|failure| write_failed(&failure))
        });
        // What becomes of it shows in what it is completed to.
        let _ = abort.await;
    }

    /// Completes an upload with all parts of its value, as the front does.
    pub async fn complete(&self, held: &Held, ends: &Upload) -> Option<Answer> {
        let idempotency_key = KeySpace::Upload.key(&ends.id.to_string());
        let asked = Asked::Write(FencedWrite {
            resource: ends.resource.clone(),
            token: held.token,
            forged: false,
            sequence: None,
            idempotency_key: Some(idempotency_key.clone()),
            if_version: None,
            change: Change::Put { key: ends.object.clone(), value: ends.value.clone(), adds: None },
        });
        let (asker, wish) = (self.asker(), Wish::of(held, &ends.resource, &ends.object));
        let (ends, recorder) = (ends.clone(), self.recorder.clone());
        let handler = move |engine: Engine| async move {
            let complete = async {
                let mut head = wish.head(&asker, &engine).await?;
                let record = engine.multipart(ends.id).await.map_err(|error| failed(&error))?;
                let Some(record) = record else {
                    let done = engine.operation_by_key(head.resource, idempotency_key).await;
                    let done = done.map_err(|error| failed(&error))?;
                    return done.map(|applied| written(applied, true)).ok_or_else(no_upload);
                };
                let stored = engine.parts(ends.id, 0, i64::from(PARTS_MAX)).await;
                let mut stored = stored.map_err(|error| failed(&error))?;
                stored.retain(|(number, _)| usize::try_from(*number).unwrap_or(0) <= ends.parts);
                if stored.len() != ends.parts {
                    return Err(no_upload());
                }
                let mut digest = Sha256::new();
                stored.iter().for_each(|(_, part)| digest.update(part.sha256));
                let sha256 = digest.finalize().into();
                recorder.stands_for(sha256, &ends.value);
                head.idempotency_key = Some(idempotency_key);
                let size = stored.iter().map(|(_, part)| part.size.unsigned_abs()).sum();
                let parts = stored.iter().map(|(_, part)| part.blob).collect();
                let body = PutBody::Parts(InParts { upload: ends.id, size, sha256, parts });
                let about = record.multipart.about;
                let done = engine.write(completing(head, about, body)).await;
                done.map(|done| written(done.applied, done.replayed))
                    .map_err(|failure| write_failed(&failure))
            };
            (complete.await.unwrap_or_else(|answer| answer), None)
        };
        self.ask(asked, false, handler).await
    }
}

/// There is no such upload, or not all of it.
fn no_upload() -> Answer {
    Answer::Refused { code: "no-such-upload".into() }
}

fn completing(head: UploadHead, about: Option<Arc<str>>, body: PutBody) -> Write {
    Write {
        resource: head.resource,
        token: head.token,
        lock: head.lock,
        sequence: None,
        idempotency_key: head.idempotency_key,
        key_kept: None,
        object_condition: None,
        resource_version: None,
        effect: WriteEffect::Put { about, key: head.key, content_type: "text/plain".into(), body },
        request_id: head.request_id,
        permit: head.permit,
    }
}

/// Where a client writes, and under which lock.
struct Wish {
    resource: String,
    object: String,
    token: i64,
    lock: uuid::Uuid,
}

impl Wish {
    fn of(held: &Held, resource: &str, object: &str) -> Self {
        let (resource, object) = (resource.to_owned(), object.to_owned());
        Self { resource, object, token: held.token, lock: held.lock }
    }

    /// The head of such a write, if the rules allow it.
    async fn head(self, asker: &Asker, engine: &Engine) -> Result<UploadHead, Answer> {
        let wants = vec![Want::On(Action::Write, name(&self.resource))];
        let permit = asker.permit(engine, wants).await.map_err(|error| failed(&error))?;
        Ok(UploadHead {
            resource: name(&self.resource),
            key: key(&self.object),
            token: token(self.token),
            lock: Some(LockId(self.lock)),
            idempotency_key: None,
            request_id: "sim".into(),
            permit,
        })
    }
}
