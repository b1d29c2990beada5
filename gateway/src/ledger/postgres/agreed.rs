//! What all gateways of a ledger have alike, as calls of `schema/postgres/acts/operators.sql`. On the Postgres ledger
//! alone: where there is one gateway, its settings hold.

use std::collections::BTreeMap;

use fence_core::ports::LedgerError;

use super::PgLedger;
use super::session::harmless;

row! {
    /// A setting that was changed for all gateways.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Change {
        /// Its name.
        pub name: String,
        /// The value before; `None` if there was none.
        pub former: Option<String>,
        /// The value from now on.
        pub value: String,
    }
}

impl PgLedger {
    /// What is agreed. Settings that nobody has brought yet are agreed as they are given here.
    ///
    /// # Errors
    /// A ledger that does not answer.
    pub async fn agree_first(
        &self,
        settings: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, LedgerError> {
        let (names, values): (Vec<_>, Vec<_>) = settings.iter().unzip();
        let mut session = self.sessions.take().await?;
        let act = concat!("SELECT name, value FROM ", acts!(), ".agree_first($1, $2)");
        let call = sqlx::query_as::<_, (String, String)>(act)
            .bind(names)
            .bind(values)
            .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        // Sent again it finds what it has agreed.
        let rows = self.sessions.settle(session, answer).map_err(harmless)?;
        Ok(rows.into_iter().collect())
    }

    /// Agrees these for all gateways, whatever was agreed before; returns what that changed.
    ///
    /// # Errors
    /// A ledger that does not answer.
    pub async fn agree(
        &self,
        settings: &BTreeMap<String, String>,
        reason: &str,
    ) -> Result<Vec<Change>, LedgerError> {
        let (names, values): (Vec<_>, Vec<_>) = settings.iter().unzip();
        let mut session = self.sessions.take().await?;
        let act = concat!("SELECT name, former, value FROM ", acts!(), ".agree($1, $2, $3)");
        let call = sqlx::query_as::<_, Change>(act)
            .bind(names)
            .bind(values)
            .bind(reason)
            .fetch_all(&mut session.connection);
        let answer = self.sessions.answer(call).await;
        self.sessions.settle(session, answer)
    }
}
