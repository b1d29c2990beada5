//! The acts on the guard alone: a new epoch, and a re-fence.

use fence_core::acts::Guard;
use fence_core::ports::{Epoch, LedgerError};

use super::{SqliteLedger, load, rolled_back};

impl SqliteLedger {
    /// Changes the guard, knowing the highest token. Nobody else writes meanwhile: this process has
    /// the directory, and this call its only writer. So one statement makes it an act.
    pub(super) async fn change_guard(
        &self,
        act: impl FnOnce(&mut Guard, i64) + Send,
    ) -> Result<Epoch, LedgerError> {
        let mut writer = self.writer.lock().await;
        self.working()?;
        let connection = self.connected(&mut writer).await?;
        let before = load::guard(&mut *connection).await?;
        let highest = sqlx::query_scalar("SELECT coalesce(max(token), 0) FROM fences")
            .fetch_one(&mut *connection)
            .await
            .map_err(rolled_back)?;
        let mut guard = before.clone();
        act(&mut guard, highest);
        if guard != before {
            sqlx::query(
                "UPDATE guard SET epoch = ?1, nonce = ?2, open = ?3, base = ?4, floor = ?5,
                                  generation = ?6",
            )
            .bind(guard.epoch)
            .bind(guard.nonce.to_string())
            .bind(guard.open)
            .bind(guard.base)
            .bind(guard.floor)
            .bind(guard.generation)
            .execute(connection)
            .await
            .map_err(rolled_back)?;
        }
        Ok(guard.as_epoch())
    }
}
