//! The act on data, as a call of `schema/postgres/acts/commit.sql`, or of `commit_plain.sql` where that does.

use std::collections::HashMap;
use std::hash::Hash;

use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Applied, Effect, IdempotencyKey, LedgerError, Patience, Payload, WriteItem, WriteVerdict,
};
use fence_core::{OperationId, Refusal, Supersession};
use sqlx::FromRow;
use uuid::Uuid;

use super::commit_plain::{Puts, Tried};
use super::reads;
use super::session::{Sessions, unreadable};
use super::{attempt, wait_ms};
use crate::ledger::time;

/// What `acts.commit` and `acts.commit_plain` return per item.
#[derive(FromRow)]
pub(super) struct CommitRow {
    verdict: String,
    original: Option<Uuid>,
    version: Option<i64>,
    generation: i64,
    created: bool,
    #[sqlx(flatten)]
    grant: GrantColumns,
    pub(super) flushed: i64,
}

/// Distinct values in the order in which they were first seen, named by position from 1.
struct Positions<T> {
    known: HashMap<T, i32>,
    values: Vec<T>,
}

impl<T: Copy + Eq + Hash> Positions<T> {
    fn new() -> Self {
        Self { known: HashMap::new(), values: Vec::new() }
    }

    fn of(&mut self, value: T) -> i32 {
        let next = i32::try_from(self.values.len()).unwrap_or(i32::MAX - 1) + 1;
        *self.known.entry(value).or_insert_with(|| {
            self.values.push(value);
            next
        })
    }
}

/// A condition as the function takes it.
pub(super) fn condition(condition: &ObjectCondition) -> String {
    match condition {
        ObjectCondition::Exists => "*".into(),
        ObjectCondition::Absent => "-".into(),
        ObjectCondition::OneOf(tags) => {
            tags.iter().map(|tag| tag.bare()).collect::<Vec<_>>().join(",")
        }
    }
}

/// What a put stores.
pub(super) struct Stored<'a> {
    pub(super) content_type: &'a str,
    pub(super) size: i64,
    pub(super) sha256: &'a [u8; 32],
    payload: &'a Payload,
}

impl<'a> Stored<'a> {
    /// Its bytes, if they are here.
    pub(super) fn body(&self) -> Option<&'a [u8]> {
        match self.payload {
            Payload::Inline(body) => Some(body.as_ref()),
            Payload::Blob(_) => None,
        }
    }

    pub(super) fn of(effect: &'a Effect) -> Option<Self> {
        match effect {
            Effect::Put { content_type, size, sha256, payload, .. } => {
                Some(Self { content_type, size: *size, sha256, payload })
            }
            Effect::Delete { .. } | Effect::DeleteAll => None,
        }
    }
}

/// The items as the arrays that the function takes.
#[derive(Default)]
struct Columns<'a> {
    operation: Vec<Uuid>,
    attempt: Vec<i32>,
    resource: Vec<i32>,
    token: Vec<i64>,
    lock: Vec<Option<Uuid>>,
    sequence: Vec<Option<i64>>,
    key: Vec<i32>,
    fingerprint: Vec<Option<&'a [u8]>>,
    kept_ms: Vec<Option<i64>>,
    if_object: Vec<Option<String>>,
    if_version: Vec<Option<i64>>,
    kind: Vec<&'a str>,
    object: Vec<i32>,
    content_type: Vec<Option<&'a str>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<&'a [u8]>>,
    body: Vec<Option<&'a [u8]>>,
    blob: Vec<Option<Uuid>>,
}

/// How long a key is remembered, if its writer said so.
pub(super) fn kept_ms(key: &IdempotencyKey) -> Option<i64> {
    key.kept.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX))
}

/// Decides items, each by the state that those before it left.
///
/// What is common is tried first; if an id turns out to be applied already, the whole act says what became of
/// it.
pub(super) async fn commit(
    sessions: &Sessions,
    items: &[WriteItem],
    patience: Patience,
    keeps_versions: bool,
) -> Result<Vec<WriteVerdict>, LedgerError> {
    let tried = match Puts::of(items, patience).filter(|_| !keeps_versions) {
        Some(puts) => puts.commit(sessions).await?,
        None => Tried::NotPlain,
    };
    let rows = match tried {
        Tried::Decided(rows) => rows,
        Tried::NotPlain => commit_any(sessions, items, patience, keeps_versions).await?,
    };
    let Some(rows) = rows else {
        return Ok(items.iter().map(|_| WriteVerdict::Busy).collect());
    };
    let earlier = earlier(sessions, &rows).await?;
    let verdicts = rows.into_iter().zip(items).map(|(row, item)| verdict(row, item, &earlier));
    verdicts.collect::<Result<_, _>>().map_err(unreadable)
}

/// A row for each item, in their order; `None` if the server gave up waiting for a row.
async fn commit_any(
    sessions: &Sessions,
    items: &[WriteItem],
    patience: Patience,
    keeps_versions: bool,
) -> Result<Option<Vec<CommitRow>>, LedgerError> {
    let mut resources: Vec<&str> = items.iter().map(|item| item.resource.as_str()).collect();
    resources.sort_unstable();
    resources.dedup();
    let position: HashMap<&str, i32> = resources.iter().copied().zip(1..).collect();
    let mut objects = Positions::new();
    let mut keys = Positions::new();
    let mut columns = Columns::default();
    for item in items {
        let resource = position[item.resource.as_str()];
        let stored = Stored::of(&item.effect);
        columns.operation.push(item.operation.0);
        columns.attempt.push(attempt(item.attempt));
        columns.resource.push(resource);
        columns.token.push(item.token.get());
        columns.lock.push(item.lock.map(|lock| lock.0));
        columns.sequence.push(item.sequence);
        let key = item.idempotency.as_ref();
        columns.key.push(key.map_or(0, |key| keys.of((key.key.as_str(), resource))));
        columns.fingerprint.push(key.map(|key| key.fingerprint.as_slice()));
        columns.kept_ms.push(key.and_then(kept_ms));
        columns.if_object.push(item.object_condition.as_ref().map(condition));
        columns.if_version.push(item.resource_version);
        columns.kind.push(item.effect.word());
        let object = item.effect.key();
        columns.object.push(object.map_or(0, |key| objects.of((key.as_str(), resource))));
        columns.content_type.push(stored.as_ref().map(|put| put.content_type));
        columns.size.push(stored.as_ref().map(|put| put.size));
        columns.sha256.push(stored.as_ref().map(|put| put.sha256.as_slice()));
        columns.body.push(stored.as_ref().and_then(Stored::body));
        columns.blob.push(item.effect.blob().map(|blob| blob.0));
    }
    let (objects, object_resources): (Vec<_>, Vec<_>) = objects.values.into_iter().unzip();
    let (keys, key_resources): (Vec<_>, Vec<_>) = keys.values.into_iter().unzip();

    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, CommitRow>(
        concat!("SELECT * FROM ", acts!(), ".commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
                                        $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)"),
    )
    .bind(session.seen)
    .bind(wait_ms(patience))
    .bind(resources)
    .bind(objects)
    .bind(object_resources)
    .bind(keys)
    .bind(key_resources)
    .bind(columns.operation)
    .bind(columns.attempt)
    .bind(columns.resource)
    .bind(columns.token)
    .bind(columns.lock)
    .bind(columns.sequence)
    .bind(columns.key)
    .bind(columns.fingerprint)
    .bind(columns.kept_ms)
    .bind(columns.if_object)
    .bind(columns.if_version)
    .bind(columns.kind)
    .bind(columns.object)
    .bind(columns.content_type)
    .bind(columns.size)
    .bind(columns.sha256)
    .bind(columns.body)
    .bind(columns.blob)
    .bind(keeps_versions)
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    sessions.settle_seen(session, answer, |row| row.flushed).await
}

/// The operations that were found to have taken effect earlier. They never change, so reading them
/// after the act is as good as in it. The act itself changed nothing for these items, but it may
/// have for others: a failure here is an unknown outcome for all.
async fn earlier(
    sessions: &Sessions,
    rows: &[CommitRow],
) -> Result<HashMap<Uuid, Applied>, LedgerError> {
    let wanted = |row: &CommitRow| match row.verdict.as_str() {
        "known" | "replayed" => row.original,
        _ => None,
    };
    let ids: Vec<Uuid> = rows.iter().filter_map(wanted).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found = match reads::operations(sessions, &ids).await {
        Err(LedgerError::Defect(why)) => Err(LedgerError::Unreadable(why)),
        Err(error) => Err(LedgerError::Unknown(error.to_string())),
        found => found,
    }?;
    Ok(found.into_iter().map(|applied| (applied.operation.0, applied)).collect())
}

fn verdict(
    row: CommitRow,
    item: &WriteItem,
    earlier: &HashMap<Uuid, Applied>,
) -> Result<WriteVerdict, LedgerError> {
    let original = row.original.unwrap_or_default();
    match row.verdict.as_str() {
        "applied" => {
            let stored = Stored::of(&item.effect);
            Ok(WriteVerdict::Applied {
                applied: Applied {
                    operation: item.operation,
                    resource: item.resource.clone(),
                    kind: item.effect.word().to_owned(),
                    key: item.effect.key().cloned(),
                    version: row.version,
                    generation: row.generation,
                    created: row.created,
                    size: stored.as_ref().map_or(0, |put| put.size),
                    sha256: stored.map(|put| *put.sha256),
                    owner: row.grant.owner.unwrap_or_default(),
                    committed_at: time(row.grant.at_us.unwrap_or(0)),
                    did: Vec::new(),
                },
                replayed: false,
            })
        }
        word @ ("known" | "replayed") => match earlier.get(&original) {
            Some(applied) => {
                Ok(WriteVerdict::Applied { applied: applied.clone(), replayed: word == "replayed" })
            }
            None => Err(LedgerError::Defect(format!("operation {original} has no row"))),
        },
        "key_reused" => Ok(WriteVerdict::KeyReused { first: OperationId(original) }),
        "buried" => Ok(WriteVerdict::Buried),
        "upload_expired" => Ok(WriteVerdict::UploadExpired),
        "busy" => Ok(WriteVerdict::Busy),
        word => refusal(word, row.grant).map(WriteVerdict::Refused),
    }
}

/// What the acts on data say of a grant: of a stale token, or, without what superseded it, of the one that
/// was admitted.
#[derive(FromRow)]
pub(super) struct GrantColumns {
    pub(super) superseded_by: Option<String>,
    pub(super) at_us: Option<i64>,
    pub(super) owner: Option<String>,
    pub(super) behind: Option<i64>,
}

/// A refusal, by the schema's word for it.
pub(super) fn refusal(word: &str, grant: GrantColumns) -> Result<Refusal, LedgerError> {
    Ok(match word {
        "void" => Refusal::Void,
        "unknown" => Refusal::Unknown,
        "stale" => Refusal::Stale {
            by: grant.superseded_by.as_deref().and_then(Supersession::parse),
            at: grant.at_us.map(time),
            grants_behind: grant.behind,
            owner: grant.owner,
        },
        "released" => Refusal::Released,
        "broken" => Refusal::Broken,
        "lock_id_mismatch" => Refusal::LockIdMismatch,
        "frozen" => Refusal::Frozen,
        "draining" => Refusal::Draining,
        "protected" => Refusal::Protected,
        "sequence_out_of_order" => Refusal::SequenceOutOfOrder,
        "version_mismatch" => Refusal::VersionMismatch,
        other => return Err(LedgerError::Defect(format!("the schema answered {other:?}"))),
    })
}
