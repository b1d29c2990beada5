//! The act on data over several resources, as a call of `schema/postgres/acts/commit_many.sql`.

use std::collections::HashMap;

use async_trait::async_trait;
use fence_core::OperationId;
use fence_core::ports::{
    Applied, COMMIT_KIND, CommitItem, CommitVerdict, Commits, LedgerError, Patience,
};
use sqlx::FromRow;
use uuid::Uuid;

use super::commit::{GrantColumns, Stored, condition, kept_ms, refusal};
use super::session::unreadable;
use super::{PgLedger, attempt, reads, wait_ms};
use crate::ledger::{did, time};

/// What `acts.commit_many` returns: per resource, or once.
#[derive(FromRow)]
struct CommitRow {
    verdict: String,
    resource: Option<i32>,
    step: Option<i32>,
    original: Option<Uuid>,
    version: Option<i64>,
    did: Option<String>,
    generation: i64,
    #[sqlx(flatten)]
    grant: GrantColumns,
    flushed: i64,
}

/// The steps as the arrays that the function takes.
#[derive(Default)]
struct Columns<'a> {
    resource: Vec<i32>,
    object: Vec<&'a str>,
    if_object: Vec<Option<String>>,
    content_type: Vec<Option<&'a str>>,
    size: Vec<Option<i64>>,
    sha256: Vec<Option<&'a [u8]>>,
    body: Vec<Option<&'a [u8]>>,
    blob: Vec<Option<Uuid>>,
}

impl<'a> Columns<'a> {
    fn of(item: &'a CommitItem) -> Self {
        let names = item.resources.iter().map(|at| at.resource.as_str());
        let position: HashMap<&str, i32> = names.zip(1..).collect();
        let mut columns = Self::default();
        for step in item.steps.iter() {
            let stored = Stored::of(&step.effect);
            columns.resource.push(position.get(step.resource.as_str()).copied().unwrap_or(0));
            columns.object.push(step.key().map_or("", |key| key.as_str()));
            columns.if_object.push(step.object_condition.as_ref().map(condition));
            columns.content_type.push(stored.as_ref().map(|put| put.content_type));
            columns.size.push(stored.as_ref().map(|put| put.size));
            columns.sha256.push(stored.as_ref().map(|put| put.sha256.as_slice()));
            columns.body.push(stored.as_ref().and_then(Stored::body));
            columns.blob.push(step.effect.blob().map(|blob| blob.0));
        }
        columns
    }
}

#[async_trait]
impl Commits for PgLedger {
    #[tracing::instrument(level = "debug", name = "ledger.commit_many", skip_all)]
    async fn commit_many(
        &self,
        item: CommitItem,
        patience: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let sessions = &self.sessions;
        let columns = Columns::of(&item);
        let key = item.idempotency.as_ref();
        let mut session = sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, CommitRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".commit_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                                                 $13, $14, $15, $16, $17, $18, $19, $20, $21)"
        ))
        .bind(session.seen)
        .bind(wait_ms(patience))
        .bind(item.resources.iter().map(|at| at.resource.as_str()).collect::<Vec<_>>())
        .bind(item.resources.iter().map(|at| at.version).collect::<Vec<_>>())
        .bind(item.operation.0)
        .bind(attempt(item.attempt))
        .bind(item.token.get())
        .bind(item.lock.map(|lock| lock.0))
        .bind(item.sequence)
        .bind(key.map(|key| key.key.as_str()))
        .bind(key.map(|key| key.fingerprint.as_slice()))
        .bind(key.and_then(kept_ms))
        .bind(columns.resource)
        .bind(columns.object)
        .bind(columns.if_object)
        .bind(columns.content_type)
        .bind(columns.size)
        .bind(columns.sha256)
        .bind(columns.body)
        .bind(columns.blob)
        .bind(self.keeps_versions)
        .fetch_all(&mut session.connection);
        let answer = sessions.answer(call).await;
        let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
            return Ok(CommitVerdict::Busy);
        };
        self.verdict(rows, &item).await.map_err(unreadable)
    }
}

impl PgLedger {
    async fn verdict(
        &self,
        mut rows: Vec<CommitRow>,
        item: &CommitItem,
    ) -> Result<CommitVerdict, LedgerError> {
        let nothing = || LedgerError::Defect("a commit without a verdict".into());
        if rows.first().is_some_and(|row| row.verdict == "applied") {
            let all = rows.into_iter().zip(item.resources.iter());
            let applied = all.map(|(row, at)| {
                Ok(Applied {
                    operation: item.operation,
                    resource: at.resource.clone(),
                    kind: COMMIT_KIND.to_owned(),
                    key: None,
                    version: row.version,
                    generation: row.generation,
                    created: false,
                    size: 0,
                    sha256: None,
                    owner: row.grant.owner.unwrap_or_default(),
                    committed_at: time(row.grant.at_us.unwrap_or(0)),
                    did: did(row.did.as_deref())?,
                })
            });
            let applied = applied.collect::<Result<_, LedgerError>>()?;
            return Ok(CommitVerdict::Applied { applied, replayed: false });
        }
        let row = rows.pop().ok_or_else(nothing)?;
        let original = row.original.unwrap_or_default();
        let at = |position: Option<i32>| usize::try_from(position.unwrap_or(0) - 1).ok();
        let resource = at(row.resource).and_then(|at| item.resources.get(at));
        let resource = || resource.map(|at| at.resource.clone()).ok_or_else(nothing);
        match row.verdict.as_str() {
            word @ ("known" | "replayed") => {
                // They never change, so reading them after the act is as good as in it.
                let applied = reads::operations(&self.sessions, &[original]).await?;
                match applied.is_empty() {
                    true => Err(LedgerError::Defect(format!("operation {original} has no row"))),
                    false => Ok(CommitVerdict::Applied { applied, replayed: word == "replayed" }),
                }
            }
            "key_reused" => {
                let first = OperationId(original);
                Ok(CommitVerdict::KeyReused { first, resource: resource()? })
            }
            "buried" => Ok(CommitVerdict::Buried),
            "upload_expired" => {
                Ok(CommitVerdict::UploadExpired { step: at(row.step).ok_or_else(nothing)? })
            }
            "busy" => Ok(CommitVerdict::Busy),
            word => Ok(CommitVerdict::Refused {
                resource: resource()?,
                step: at(row.step),
                refusal: refusal(word, row.grant)?,
            }),
        }
    }
}
