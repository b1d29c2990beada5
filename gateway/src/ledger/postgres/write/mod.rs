//! The act on data, as a call of `schema/postgres/acts/write.sql`.

mod batch;
mod verdicts;

use async_trait::async_trait;
use fence_core::ports::{
    CommitItem, CommitVerdict, Commits, LedgerError, Patience, WriteItem, WriteVerdict,
};

use super::PgLedger;
use super::session::{Failure, Sessions, unreadable};
use batch::{Batch, Terms, Write};
use verdicts::WriteRow;
pub(super) use verdicts::{GrantColumns, refusal};

/// Decides writes, each by the state that those before it left.
pub(super) async fn commit(
    sessions: &Sessions,
    items: &[WriteItem],
    patience: Patience,
    keeps_versions: bool,
) -> Result<Vec<WriteVerdict>, LedgerError> {
    let writes: Vec<Write<'_>> = items.iter().map(Write::from).collect();
    let terms = Terms { patience, keeps_versions, again: false };
    let Some(rows) = write(sessions, &writes, terms).await? else {
        return Ok(items.iter().map(|_| WriteVerdict::Busy).collect());
    };
    let rows: Vec<WriteRow> = rows.into_iter().flatten().collect();
    let earlier = verdicts::earlier(sessions, &rows).await?;
    let verdicts =
        rows.into_iter().zip(items).map(|(row, item)| verdicts::of_write(row, item, &earlier));
    verdicts.collect::<Result<_, _>>().map_err(unreadable)
}

#[async_trait]
impl Commits for PgLedger {
    #[tracing::instrument(level = "debug", name = "ledger.commit_many", skip_all)]
    async fn commit_many(
        &self,
        item: CommitItem,
        patience: Patience,
    ) -> Result<CommitVerdict, LedgerError> {
        let terms = Terms { patience, keeps_versions: self.keeps_versions, again: false };
        let Some(mut rows) = write(&self.sessions, &[Write::from(&item)], terms).await? else {
            return Ok(CommitVerdict::Busy);
        };
        let rows = rows.pop().unwrap_or_default();
        let earlier = verdicts::earlier(&self.sessions, &rows).await?;
        verdicts::of_commit(rows, &item, earlier).map_err(unreadable)
    }
}

/// The rows of each write, in the order of the writes; `None` if the server gave up waiting for a row.
///
/// Plain writes are not looked up. Should one have taken effect before, or be buried, the act is rolled back, and comes
/// again with that look.
async fn write(
    sessions: &Sessions,
    writes: &[Write<'_>],
    mut terms: Terms,
) -> Result<Option<Vec<Vec<WriteRow>>>, LedgerError> {
    if writes.is_empty() {
        return Ok(Some(Vec::new()));
    }
    loop {
        let mut batch = Batch::new(writes, &terms);
        let order = std::mem::take(&mut batch.order);
        let mut session = sessions.take_for_act().await?;
        let call = batch.call(session.seen, &terms).fetch_all(&mut session.connection);
        let answer = sessions.answer(call).await;
        let is_there = matches!(answer, Err(Failure::Duplicate(_)));
        let rows = match sessions.settle_seen(session, answer, |row| row.flushed).await {
            Err(_) if is_there && !terms.again => {
                terms.again = true;
                continue;
            }
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(rows)) => rows,
        };
        let mut of_each: Vec<Vec<WriteRow>> = writes.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let at = usize::try_from(row.row - 1).unwrap_or(usize::MAX);
            if let Some(rows) = order.get(at).and_then(|write| of_each.get_mut(*write)) {
                rows.push(row);
            }
        }
        return match of_each.iter().all(|rows| !rows.is_empty()) {
            true => Ok(Some(of_each)),
            false => Err(LedgerError::Unreadable("a write without a verdict".into())),
        };
    }
}
