//! The ledger's own time, which stands in the guard.

use fence_core::acts::OwnTime;
use fence_core::ports::{ClockTrusted, LedgerError, Pass, Passed};
use sqlx::{Connection as _, SqliteConnection};

use super::bulk::Script;
use super::{SqliteLedger, load};

impl SqliteLedger {
    /// A pass of a gateway.
    pub(super) async fn pass_own_time(&self, passed: &Passed) -> Result<Pass, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let mut own = load::guard(&mut *connection).await?.time;
        own.go_on(passed);
        store(connection, &own).await.map_err(|error| self.unwritten(error))?;
        Ok(own.told(self.now()))
    }

    /// The word of an operator that the clock is right, with its entry in the audit. Nobody else writes meanwhile.
    pub(super) async fn set_own_time_by_clock(
        &self,
        reason: &str,
    ) -> Result<ClockTrusted, LedgerError> {
        let mut writer = self.writer.lock().await;
        let connection = self.connected(&mut writer).await?;
        let mut own = load::guard(&mut *connection).await?.time;
        let (verdict, entry) = own.trust_clock(self.now(), reason);
        if let Some(entry) = entry {
            let unwritten = |error| self.unwritten(error);
            let mut transaction = connection.begin().await.map_err(unwritten)?;
            store(&mut transaction, &own).await.map_err(unwritten)?;
            let mut script = Script::new(0);
            super::audit::append(&mut script, &[entry]);
            script.run(&mut transaction).await.map_err(unwritten)?;
            transaction.commit().await.map_err(|error| self.uncommitted(&error))?;
        }
        Ok(verdict)
    }
}

async fn store(connection: &mut SqliteConnection, own: &OwnTime) -> Result<(), sqlx::Error> {
    let boot = own.boot.as_ref();
    sqlx::query("UPDATE guard SET own_time = ?1, pass = ?2, boot = ?3, up_us = ?4")
        .bind(own.at.as_microsecond())
        .bind(own.pass)
        .bind(boot.map(|boot| boot.id.as_str()))
        .bind(boot.map(|boot| i64::try_from(boot.up.as_micros()).unwrap_or(i64::MAX)))
        .execute(connection)
        .await
        .map(drop)
}
