//! Buckets of S3. There is one writer, so each call is a transaction like any other.

use async_trait::async_trait;
use fence_core::acts::Guard;
use fence_core::ports::{Bucket, Buckets, By, DroppedBucket, LedgerError, MadeBucket};
use sqlx::{Connection as _, SqliteConnection};

use super::SqliteLedger;
use super::file::rolled_back;
use super::load;
use crate::ledger::rows::BucketRow;
use crate::ledger::time;

/// Nothing is done under other rules than those that allowed it (I17).
fn under_rules(guard: &Guard, by: &By) -> Result<(), LedgerError> {
    match guard.rules_moved(by) {
        true => Err(LedgerError::RulesMoved),
        false => Ok(()),
    }
}

/// Makes the bucket, unless there is one.
async fn make(
    connection: &mut SqliteConnection,
    name: &str,
    depth: u8,
    now: i64,
) -> Result<MadeBucket, sqlx::Error> {
    let known: Option<(u8, i64, bool)> =
        sqlx::query_as("SELECT depth, created_at, deleted FROM s3_buckets WHERE name = ?1")
            .bind(name)
            .fetch_optional(&mut *connection)
            .await?;
    let bucket = |depth, at| Bucket { name: name.to_owned(), depth, created_at: time(at) };
    match known {
        Some((other, at, _)) if other != depth => Ok(MadeBucket::OtherDepth(bucket(other, at))),
        Some((depth, at, false)) => Ok(MadeBucket::Exists(bucket(depth, at))),
        Some((_, _, true)) | None => {
            sqlx::query(
                "INSERT INTO s3_buckets (name, depth, created_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (name) DO UPDATE SET deleted = 0, created_at = excluded.created_at",
            )
            .bind(name)
            .bind(depth)
            .bind(now)
            .execute(connection)
            .await?;
            Ok(MadeBucket::Made(bucket(depth, now)))
        }
    }
}

/// Deletes the bucket, unless one of its resources has an object.
async fn drop_empty(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<DroppedBucket, sqlx::Error> {
    let is_there: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM s3_buckets WHERE name = ?1 AND deleted = 0)",
    )
    .bind(name)
    .fetch_one(&mut *connection)
    .await?;
    if !is_there {
        return Ok(DroppedBucket::Unknown);
    }
    let has_objects: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM objects WHERE resource = ?1)
             OR EXISTS (SELECT 1 FROM objects WHERE resource >= ?1 || ':' AND resource < ?1 || ';')",
    )
    .bind(name)
    .fetch_one(&mut *connection)
    .await?;
    if has_objects {
        return Ok(DroppedBucket::NotEmpty);
    }
    sqlx::query("UPDATE s3_buckets SET deleted = 1 WHERE name = ?1")
        .bind(name)
        .execute(connection)
        .await?;
    Ok(DroppedBucket::Dropped)
}

#[async_trait]
impl Buckets for SqliteLedger {
    #[tracing::instrument(level = "debug", name = "ledger.make_bucket", skip_all)]
    async fn make_bucket(&self, name: &str, depth: u8, by: &By) -> Result<MadeBucket, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        under_rules(&load::guard(&mut *connection).await?, by)?;
        let now = self.now().wall.as_microsecond();
        let mut transaction = connection.begin().await.map_err(rolled_back)?;
        let made = make(&mut transaction, name, depth, now).await;
        let made = made.map_err(|error| self.unwritten(error))?;
        transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        Ok(made)
    }

    #[tracing::instrument(level = "debug", name = "ledger.drop_bucket", skip_all)]
    async fn drop_bucket(&self, name: &str, by: &By) -> Result<DroppedBucket, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        under_rules(&load::guard(&mut *connection).await?, by)?;
        let mut transaction = connection.begin().await.map_err(rolled_back)?;
        let dropped = drop_empty(&mut transaction, name).await;
        let dropped = dropped.map_err(|error| self.unwritten(error))?;
        transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        Ok(dropped)
    }

    async fn buckets(&self) -> Result<Vec<Bucket>, LedgerError> {
        let mut reader = self.reader().await?;
        let rows = sqlx::query_as::<_, BucketRow>(
            "SELECT name, depth, created_at AS created_us FROM s3_buckets WHERE deleted = 0 ORDER BY name",
        )
        .fetch_all(&mut *reader)
        .await;
        self.keep(reader, rows)?.into_iter().map(BucketRow::bucket).collect()
    }
}
