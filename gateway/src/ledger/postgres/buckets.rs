//! Buckets of S3, as calls of `schema/postgres/acts/buckets.sql`; and what older gateways left here of the root of its keys.

use async_trait::async_trait;
use fence_core::ports::{Bucket, Buckets, By, DroppedBucket, LedgerError, MadeBucket};

use super::PgLedger;
use super::locks::busy;
use super::reads::{fetch, fetch_anyway};
use super::session::{harmless, unreadable};
use crate::ledger::rows::BucketRow;
use crate::ledger::{s3_root, time};

row! {
    struct MadeRow {
        verdict: String,
        depth: i32,
        created_us: i64,
        flushed: i64,
    }
}

row! {
    struct DroppedRow {
        verdict: String,
        flushed: i64,
    }
}

fn unknown_verdict(word: &str) -> LedgerError {
    unreadable(LedgerError::Defect(format!("the schema answered {word:?}")))
}

#[async_trait]
impl Buckets for PgLedger {
    #[tracing::instrument(level = "debug", name = "ledger.make_bucket", skip_all)]
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError> {
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, MadeRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".make_bucket($1, $2, $3, $4)"
        ))
        .bind(session.seen)
        .bind(name)
        .bind(i32::from(depth))
        .bind(by.rules)
        .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let rows = self.sessions.settle_seen(session, answer, |row| row.flushed).await?;
        let row = rows.and_then(|mut rows| rows.pop()).ok_or_else(busy)?;
        let bucket = Bucket {
            name: name.to_owned(),
            depth: u8::try_from(row.depth).unwrap_or(depth),
            created_at: time(row.created_us),
        };
        match row.verdict.as_str() {
            "made" => Ok(MadeBucket::Made(bucket)),
            "exists" => Ok(MadeBucket::Exists(bucket)),
            "other_depth" => Ok(MadeBucket::OtherDepth(bucket)),
            other => Err(unknown_verdict(other)),
        }
    }

    #[tracing::instrument(level = "debug", name = "ledger.drop_bucket", skip_all)]
    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError> {
        let mut session = self.sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, DroppedRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".drop_bucket($1, $2, $3)"
        ))
        .bind(session.seen)
        .bind(name)
        .bind(by.rules)
        .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        let rows = self.sessions.settle_seen(session, answer, |row| row.flushed).await?;
        let row = rows.and_then(|mut rows| rows.pop()).ok_or_else(busy)?;
        match row.verdict.as_str() {
            "dropped" => Ok(DroppedBucket::Dropped),
            "not_empty" => Ok(DroppedBucket::NotEmpty),
            "unknown" => Ok(DroppedBucket::Unknown),
            other => Err(unknown_verdict(other)),
        }
    }

    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError> {
        let query = sqlx::query_as::<_, BucketRow>(
            "SELECT b.name::text, b.depth, fencegate.micros(b.created_at) AS created_us
             FROM fencegate.s3_buckets b WHERE NOT b.deleted ORDER BY b.name",
        );
        let rows: Vec<BucketRow> = fetch!(self.sessions, fetch_all, query)?;
        rows.into_iter().map(BucketRow::bucket).collect()
    }
}

impl PgLedger {
    /// The root of S3 keys, if a gateway of an older version left it here in clear.
    ///
    /// # Errors
    /// A ledger that does not answer.
    pub async fn s3_root_in_clear(&self) -> Result<Option<[u8; 32]>, LedgerError> {
        let query = sqlx::query_scalar::<_, Vec<u8>>("SELECT r.root FROM fencegate.s3_root r");
        fetch_anyway!(self.sessions, fetch_optional, query)?.map(s3_root).transpose()
    }

    /// Removes it. Doing it again is harmless, so a lost answer is, too. The statement names no byte of it: a server may
    /// log what it is sent.
    ///
    /// # Errors
    /// A ledger that does not answer, or a role that may not do it.
    pub async fn remove_s3_root(&self) -> Result<(), LedgerError> {
        let query = sqlx::query("DELETE FROM fencegate.s3_root");
        fetch_anyway!(self.sessions, execute, query).map(drop)
    }
}
