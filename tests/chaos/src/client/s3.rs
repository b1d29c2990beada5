//! What a caller can ask by S3, call by call: the request, signed with the key of a lock, and what its answer says.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use fence_core::EntityTag;
use fence_history::{Answer, Asked, Change, FencedWrite};
use fence_tests::s3::{Key, Request, Signed, Trailer, sha256_of, text_of, texts};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::Client;
use super::calls::Got;
use crate::line::{Line, NOT_TOLD, moment};
use crate::payload::{bytes_of, parts_of, value_of};
use crate::s3::{CALL, Listed, Made, Saw, Told, UPLOAD, object_of, path_of};

/// How many locks, and how many uploads, are remembered for those who come late.
pub const KEPT: usize = 40;
/// How long chunks of a body are, in bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// One more than the most parts that are named: of one that is not.
const UNNAMED: usize = 7;

/// The last things of a kind.
#[derive(Debug)]
pub struct Known<T>(Mutex<VecDeque<T>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Known<T> {
    pub fn remember(&self, one: T) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(one);
        if all.len() > KEPT {
            all.pop_front();
        }
    }

    pub fn any(&self, at: u64) -> Option<T> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::try_from(at).unwrap_or(0) % all.len().max(1)).cloned()
    }
}

/// A lock, as its key has it.
#[derive(Debug, Clone)]
pub struct S3Lock {
    pub key: Key,
    /// Who took it: its key writes in that name, whoever has it.
    pub principal: u32,
    pub token: i64,
    pub resource: String,
}

/// An upload in parts that is there, or was.
#[derive(Debug, Clone)]
pub struct Upload {
    pub id: String,
    pub resource: String,
    pub object: String,
    /// What it becomes.
    pub value: String,
    pub tags: Vec<String>,
}

/// What a read by S3 found.
#[derive(Debug, Clone)]
pub struct Found {
    pub tag: EntityTag,
    pub value: String,
}

/// An answer that says no, or does not say.
fn problem(got: &Got) -> Answer {
    if got.header::<String>("x-fence-outcome").as_deref() == Some("unknown") {
        return Answer::Unknown { operation: got.header("x-operation-id") };
    }
    let code = text_of(std::str::from_utf8(&got.body).unwrap_or_default(), "Code");
    let code = native(code.unwrap_or("NoCode"));
    match got.status {
        400..500 => Answer::Refused { code },
        _ => Answer::Failed { code },
    }
}

/// A code as the native side writes them.
fn native(code: &str) -> String {
    if code == "AccessDenied" {
        return "permission-denied".into();
    }
    let mut text = String::new();
    for letter in code.chars() {
        if letter.is_ascii_uppercase() && text.ends_with(|last: char| last.is_ascii_lowercase()) {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn outcome_of(answer: Option<&Answer>) -> String {
    match answer {
        None => "no answer".into(),
        Some(Answer::Unknown { .. }) => "unknown".into(),
        Some(Answer::Refused { code } | Answer::Failed { code }) => code.clone(),
        Some(Answer::Written { replayed: true, .. }) => "replayed".into(),
        Some(_) => "done".into(),
    }
}

fn written(got: &Got, resource: &str) -> Option<Answer> {
    let verdict: String = got.header("x-fence-verdict")?;
    Some(Answer::Written {
        operation: got.header("x-operation-id")?,
        versions: vec![(resource.to_owned(), got.header("x-resource-version"))],
        generation: got.tag().map_or(NOT_TOLD, |tag| tag.generation),
        replayed: verdict == "replayed",
    })
}

fn made(tag: EntityTag) -> Made {
    Made { generation: tag.generation, version: tag.version }
}

/// An answer, or that none came: `Err(true)` if nothing was ever sent.
type Came = Result<Got, bool>;

impl Client {
    /// Whether it is one of those who call by S3: every fourth.
    pub(super) fn speaks_s3(&self) -> bool {
        !self.shared.s3.is_empty() && self.number % 4 == 3
    }

    /// An id that all attempts of a call have in common.
    pub(super) fn call_id(&mut self) -> String {
        format!("{CALL}{}", self.random_id())
    }

    /// Signs a request for a gateway and sends it.
    async fn send(&mut self, gateway: usize, sign: impl FnOnce(SocketAddr) -> Signed) -> Came {
        let address = self.shared.s3[gateway];
        let patience = self.any_patience();
        let signed = sign(address);
        let request = signed.request(&self.http, &format!("http://{address}")).timeout(patience);
        Got::from(request).await.map_err(|error| error.is_connect())
    }

    /// Asks for what is no write. `read` says what came back, and what was seen.
    async fn ask_s3<T>(
        &mut self,
        by: &S3Lock,
        operation: &str,
        request: Request,
        read: impl FnOnce(&Got) -> Option<(T, Option<Saw>)>,
    ) -> Option<T> {
        let begun_at = moment();
        let gateway = self.draw_gateway();
        let came = self.send(gateway, |address| request.sign(address, &by.key)).await;
        let at = moment();
        let tell = |outcome: String, saw: Option<Saw>| {
            let operation = operation.to_owned();
            (self.shared.tell)(Line::S3(Told { begun_at, at, operation, outcome, saw }));
        };
        let got = match came {
            Ok(got) => got,
            Err(was_unsent) => {
                tell(if was_unsent { "unreachable" } else { "no answer" }.into(), None);
                return None;
            }
        };
        match read(&got) {
            Some((told, saw)) => {
                tell("done".into(), saw);
                Some(told)
            }
            None => {
                let answer = match got.status {
                    200..300 => {
                        Answer::Failed { code: format!("unreadable: {}", got.body.escape_ascii()) }
                    }
                    _ => problem(&got),
                };
                tell(outcome_of(Some(&answer)), None);
                None
            }
        }
    }

    /// Writes: it stands in the history as what its lock's holder does.
    async fn write_s3(
        &mut self,
        by: &S3Lock,
        operation: &str,
        wish: &FencedWrite,
        sign: impl FnOnce(SocketAddr) -> Signed,
    ) -> Option<Answer> {
        let own = std::mem::replace(&mut self.principal, by.principal);
        let (begun_at, gateway) = (moment(), self.draw_gateway());
        let number = self.begin(Asked::Write(wish.clone()), gateway);
        let answer = match self.send(gateway, sign).await {
            Ok(got) if (200..300).contains(&got.status) => {
                Some(written(&got, &wish.resource).unwrap_or_else(|| Answer::Failed {
                    code: format!("unreadable: {} {}", got.status, got.body.escape_ascii()),
                }))
            }
            Ok(got) => Some(problem(&got)),
            Err(true) => Some(Answer::Failed { code: "unreachable".into() }),
            Err(false) => None,
        };
        self.principal = own;
        if let Some(answer) = &answer {
            self.end(number, answer);
        }
        let (at, operation) = (moment(), operation.to_owned());
        let outcome = outcome_of(answer.as_ref());
        (self.shared.tell)(Line::S3(Told { begun_at, at, operation, outcome, saw: None }));
        self.is_denied =
            matches!(&answer, Some(Answer::Refused { code }) if code == "permission-denied");
        answer
    }

    /// `PutObject` or `DeleteObject`, in any of the ways in which clients send bodies.
    pub(super) async fn change(
        &mut self,
        by: &S3Lock,
        wish: &FencedWrite,
        condition: Option<(&str, &str)>,
    ) -> Option<Answer> {
        let (operation, mut request) = match &wish.change {
            Change::Put { key, value, .. } => {
                ("put", Request::put(&path_of(&wish.resource, key), bytes_of(value)))
            }
            Change::Delete { key } => ("delete", Request::delete(&path_of(&wish.resource, key))),
            Change::DeleteAll => return None,
        };
        if let Some((name, value)) = condition {
            request = request.header(name, value);
        }
        if let Some(id) = wish.idempotency_key.as_deref().and_then(|key| key.strip_prefix(CALL)) {
            request = request.call_id(id);
        }
        // All attempts of a call are alike.
        let form = match &wish.idempotency_key {
            _ if request.body.is_empty() => 0,
            Some(key) => key.bytes().map(u64::from).sum::<u64>() % 4,
            None => self.draw(0, 4),
        };
        let key = by.key.clone();
        let sign = move |address| match form {
            0 | 1 => request.sign(address, &key),
            2 => request.sign_chunks(address, &key, CHUNK_BYTES, Trailer::None),
            _ => {
                let digest = sha256_of(&request.body);
                let trailer = Trailer::Unsigned("x-amz-checksum-sha256", &digest);
                request.sign_chunks(address, &key, CHUNK_BYTES, trailer)
            }
        };
        self.write_s3(by, operation, wish, sign).await
    }

    /// `CopyObject` of what is under another key of the same resource, if that is still the same.
    pub(super) async fn copy(
        &mut self,
        by: &S3Lock,
        wish: &FencedWrite,
        (from, tag): (&str, EntityTag),
    ) -> Option<Answer> {
        let Change::Put { key, .. } = &wish.change else { return None };
        let request = Request::copy(&path_of(&wish.resource, key), &path_of(&wish.resource, from));
        let request = request.header("x-amz-copy-source-if-match", &tag.to_string());
        let key = by.key.clone();
        self.write_s3(by, "copy", wish, move |address| request.sign(address, &key)).await
    }

    /// `DeleteObjects` of one resource: each object is a write of its own, so each stands in the history as that of somebody
    /// else who asks at the same time.
    pub(super) async fn delete_many(&mut self, by: &S3Lock, objects: &[&str]) {
        let id = self.random_id();
        let (bucket, inside) = by.resource.split_once(':').unwrap_or((&by.resource, ""));
        let listed = |object: &str| match inside {
            "" => object.to_owned(),
            inside => format!("{inside}/{object}"),
        };
        let names: Vec<String> = objects.iter().map(|object| listed(object)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let request = Request::delete_many(bucket, &names).call_id(&id.to_string());
        let (begun_at, gateway) = (moment(), self.draw_gateway());
        let mut askers = Vec::new();
        for object in objects {
            let mut asker = self.twin();
            asker.principal = by.principal;
            let wish = FencedWrite {
                idempotency_key: Some(format!("{CALL}{id}/{}", short_digest(object))),
                change: Change::Delete { key: (*object).to_owned() },
                ..self.put(&by.resource, by.token)
            };
            let number = asker.begin(Asked::Write(wish), gateway);
            askers.push((asker, number));
        }
        let key = by.key.clone();
        let came = self.send(gateway, move |address| request.sign(address, &key)).await;
        let outcome = match &came {
            Ok(got) if got.status == 200 => "done".to_owned(),
            Ok(got) => outcome_of(Some(&problem(got))),
            Err(true) => "unreachable".into(),
            Err(false) => "no answer".into(),
        };
        for ((asker, number), name) in askers.iter().zip(&names) {
            let answer = match &came {
                Ok(got) if got.status == 200 => told_of(got, name),
                Ok(got) => Some(problem(got)),
                Err(true) => Some(Answer::Failed { code: "unreachable".into() }),
                Err(false) => None,
            };
            if let Some(answer) = answer {
                asker.end(*number, &answer);
            }
        }
        let (at, operation) = (moment(), "delete many".to_owned());
        (self.shared.tell)(Line::S3(Told { begun_at, at, operation, outcome, saw: None }));
    }

    /// `GetObject`; `Some(None)`: there is none.
    pub(super) async fn get(&mut self, by: &S3Lock, object: &str) -> Option<Option<Found>> {
        let resource = by.resource.clone();
        let request = Request::get(&path_of(&resource, object));
        let key = object.to_owned();
        self.ask_s3(by, "get", request, |got| {
            let body = std::str::from_utf8(&got.body).unwrap_or_default();
            let found = match got.status {
                200 => Some(Found { tag: got.tag()?, value: value_of(&got.body) }),
                404 if text_of(body, "Code") == Some("NoSuchKey") => None,
                _ => return None,
            };
            let seen = found.as_ref().map(|found| (made(found.tag), found.value.clone()));
            Some((found, Some(Saw::Object { resource, key, found: seen })))
        })
        .await
    }

    /// `ListObjectsV2` of one resource of a bucket, or of all of its.
    pub(super) async fn list(&mut self, by: &S3Lock, all: &[&str]) {
        let (bucket, inside) = by.resource.split_once(':').unwrap_or((&by.resource, ""));
        let mut request = Request::get(&format!("/{bucket}")).query("list-type", "2");
        let is_one = !inside.is_empty() && self.chance(0.5);
        let mut resources = vec![by.resource.clone()];
        if is_one {
            request = request.query("prefix", &format!("{inside}/"));
        } else {
            let others = all.iter().map(|name| (*name).to_owned());
            resources = others.filter(|name| name.split(':').next() == Some(bucket)).collect();
        }
        let bucket = bucket.to_owned();
        self.ask_s3(by, "list", request, |got| {
            let text = std::str::from_utf8(&got.body).ok().filter(|_| got.status == 200)?;
            if text_of(text, "IsTruncated") != Some("false") {
                return None;
            }
            let mut objects = Vec::new();
            for (key, tag) in texts(text, "Key").into_iter().zip(texts(text, "ETag")) {
                let (resource, key) = object_of(&bucket, key)?;
                let made = made(EntityTag::parse(&tag.replace("&quot;", "\""))?);
                objects.push(Listed { resource, key, made });
            }
            Some(((), Some(Saw::List { resources, objects })))
        })
        .await;
    }

    /// `CreateMultipartUpload` and its parts, one of them more than it will be completed with; `None` if it did not come to
    /// that.
    pub(super) async fn upload(
        &mut self,
        by: &S3Lock,
        object: &str,
        value: String,
    ) -> Option<Upload> {
        let path = path_of(&by.resource, object);
        let begun = |got: &Got| {
            let text = std::str::from_utf8(&got.body).ok().filter(|_| got.status == 200)?;
            Some((text_of(text, "UploadId")?.to_owned(), None))
        };
        let id = self.ask_s3(by, "begin an upload", Request::begin(&path), begun).await?;
        let mut tags = Vec::new();
        for (number, part) in (1..).zip(parts_of(&bytes_of(&value))) {
            tags.push(self.send_part(by, Request::part(&path, &id, number, part)).await?);
            self.think().await;
        }
        if self.chance(0.2) {
            self.send_part(by, Request::part(&path, &id, UNNAMED, "nobody wants this")).await?;
        }
        let (resource, object) = (by.resource.clone(), object.to_owned());
        Some(Upload { id, resource, object, value, tags })
    }

    /// A part, sent again if no answer came.
    async fn send_part(&mut self, by: &S3Lock, part: Request) -> Option<String> {
        let read = |got: &Got| match got.status {
            200 => Some((got.header::<String>("etag")?, None)),
            _ => None,
        };
        for _ in 0..3 {
            let tag = self.ask_s3(by, "send a part", part.clone(), read).await;
            if tag.is_some() {
                return tag;
            }
            self.pause(1, 300).await;
        }
        None
    }

    /// `CompleteMultipartUpload`, under any lock.
    pub(super) async fn complete(&mut self, by: &S3Lock, upload: &Upload) -> Option<Answer> {
        let Upload { id, resource, object, value, tags } = upload;
        let wish = FencedWrite {
            idempotency_key: Some(format!("{UPLOAD}{id}")),
            change: Change::Put { key: object.clone(), value: value.clone(), adds: None },
            ..self.put(resource, by.token)
        };
        let request = Request::complete(&path_of(resource, object), id, tags);
        let key = by.key.clone();
        self.write_s3(by, "complete", &wish, move |address| request.sign(address, &key)).await
    }

    /// `AbortMultipartUpload`.
    pub(super) async fn abort(&mut self, by: &S3Lock, upload: &Upload) {
        let request = Request::abort(&path_of(&upload.resource, &upload.object), &upload.id);
        let id: Option<Uuid> = upload.id.parse().ok();
        self.ask_s3(by, "abort", request, |got| match got.status {
            204 => Some(((), id.map(|upload| Saw::Aborted { upload }))),
            _ => None,
        })
        .await;
    }
}

/// By which the key of one of many deletes is told from those of the others.
fn short_digest(object: &str) -> String {
    Sha256::digest(object).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// What became of one of many deletes.
fn told_of(got: &Got, name: &str) -> Option<Answer> {
    let text = std::str::from_utf8(&got.body).ok()?;
    let is_it = |entry: &&str| text_of(entry, "Key") == Some(name);
    if texts(text, "Deleted").iter().any(is_it) {
        return Some(Answer::Done);
    }
    let error = texts(text, "Error").into_iter().find(is_it)?;
    let code = native(text_of(error, "Code")?);
    // Of what is told as such it is not said whether it was done.
    match code.as_str() {
        "service-unavailable" | "internal-error" | "slow-down" => None,
        _ => Some(Answer::Refused { code }),
    }
}
