//! The acts on the guard alone: a new epoch, and a re-fence.

use fence_core::acts::Guard;
use fence_core::ports::{AuditEntry, Epoch, LedgerError};
use sqlx::Connection as _;

use super::bulk::Script;
use super::{SqliteLedger, load, rolled_back};

impl SqliteLedger {
    /// Changes the guard, knowing the highest token, and records why if that changed anything. Nobody
    /// else writes meanwhile: this process has the directory, and this call its only writer.
    pub(super) async fn change_guard(
        &self,
        entry: AuditEntry,
        act: impl FnOnce(&mut Guard, i64) + Send,
    ) -> Result<Epoch, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let before = load::guard(&mut *connection).await?;
        let highest = sqlx::query_scalar("SELECT coalesce(max(token), 0) FROM grants")
            .fetch_one(&mut *connection)
            .await
            .map_err(rolled_back)?;
        let mut guard = before.clone();
        act(&mut guard, highest);
        if guard != before {
            let unwritten = |error| self.unwritten(error);
            let mut transaction = connection.begin().await.map_err(unwritten)?;
            // The rules of access are changed elsewhere.
            sqlx::query(
                "UPDATE guard SET epoch = ?1, nonce = ?2, open = ?3, base = ?4, floor = ?5,
                                  generation = ?6,
                                  refenced_at = CASE WHEN ?6 > generation THEN ?7
                                                     ELSE refenced_at END",
            )
            .bind(guard.epoch)
            .bind(guard.nonce.to_string())
            .bind(guard.open)
            .bind(guard.base)
            .bind(guard.floor)
            .bind(guard.generation)
            .bind(guard.time.stamp(self.now()).as_microsecond())
            .execute(&mut *transaction)
            .await
            .map_err(unwritten)?;
            if guard.generation > before.generation {
                super::records::skip_numbers(&mut transaction).await.map_err(unwritten)?;
                super::upstreams::doubt_all(&mut transaction, guard.floor, entry.at)
                    .await
                    .map_err(unwritten)?;
            }
            let mut script = Script::new(0);
            super::audit::append(&mut script, &[entry]);
            script.run(&mut transaction).await.map_err(unwritten)?;
            transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        }
        Ok(guard.as_epoch())
    }
}
