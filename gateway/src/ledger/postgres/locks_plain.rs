//! The common cases of seal and release, as calls of `schema/postgres/acts/seal_plain.sql`.

use std::collections::HashSet;

use fence_core::Ttl;
use fence_core::ports::{Attempt, LedgerError, Patience, ReleaseItem, SealItem, SealKind};
use uuid::Uuid;

use super::locks::{ReleaseRow, SealRow};
use super::session::Sessions;

/// Locks on one resource each, asked for the first time, with nothing special about them.
pub(super) struct Seals<'a> {
    /// The items, in name order, each with its position.
    items: Vec<(usize, &'a SealItem)>,
}

impl<'a> Seals<'a> {
    /// The items, if all of them are such locks, each under an id of its own. That no resource comes twice
    /// is true of all seals.
    pub(super) fn of(items: &'a [SealItem], patience: Patience) -> Option<Self> {
        let mut ids = HashSet::with_capacity(items.len());
        let mut plain = |item: &SealItem| {
            item.kind == SealKind::Lock
                && item.attempt == Attempt::First
                && item.resources.len() == 1
                && item.number.is_some()
                && item.max_hold.is_none()
                && item.metadata.entries().is_empty()
                && !item.ttl.is_some_and(Ttl::is_infinite)
                && ids.insert(item.lock)
        };
        if patience != Patience::Skip || !items.iter().all(&mut plain) {
            return None;
        }
        let mut items: Vec<_> = items.iter().enumerate().collect();
        items.sort_unstable_by_key(|(_, item)| &item.resources[0]);
        Some(Self { items })
    }

    fn column<T>(&self, of: impl Fn(&'a SealItem) -> T) -> Vec<T> {
        self.items.iter().map(|(_, item)| of(item)).collect()
    }

    /// Decides them: a row for each item, in the order of the items; `None` if the server gave up waiting for
    /// a row.
    ///
    /// # Errors
    /// As any act.
    pub(super) async fn seal(
        &self,
        sessions: &Sessions,
        epoch: i64,
    ) -> Result<Option<Vec<SealRow>>, LedgerError> {
        let mut session = sessions.take_for_act().await?;
        let call = sqlx::query_as::<_, SealRow>(concat!(
            "SELECT * FROM ",
            acts!(),
            ".seal_plain($1, $2, $3, $4, $5, $6, $7, $8)"
        ))
        .bind(epoch)
        .bind(session.seen)
        .bind(self.column(|item| item.resources[0].as_str()))
        .bind(self.column(|item| item.lock.0))
        .bind(self.column(|item| item.owner.as_str()))
        .bind(self.column(|item| item.asked_ttl().map(Ttl::as_ms)))
        .bind(self.column(|item| item.number))
        .bind(self.column(|item| item.waits))
        .fetch_all(&mut session.connection);
        let answer = sessions.answer(call).await;
        let Some(rows) = sessions.settle_seen(session, answer, |row| row.flushed).await? else {
            return Ok(None);
        };
        let mut placed: Vec<_> = self.items.iter().map(|(at, _)| *at).zip(rows).collect();
        placed.sort_unstable_by_key(|(at, _)| *at);
        Ok(Some(placed.into_iter().map(|(_, row)| row).collect()))
    }
}

/// The ids of locks that are given back in any case, known or not, if all of them are, and each once.
pub(super) fn releases(items: &[ReleaseItem], patience: Patience) -> Option<Vec<Uuid>> {
    let mut ids = HashSet::with_capacity(items.len());
    let plain = |item: &ReleaseItem| {
        item.unless_renewed_since.is_none() && item.may_bury && ids.insert(item.lock.0)
    };
    let all = patience == Patience::Skip && items.iter().all(plain);
    all.then(|| items.iter().map(|item| item.lock.0).collect())
}

/// Gives locks back: a row for each, in their order; `None` if the server gave up waiting for a row.
///
/// # Errors
/// As any act.
pub(super) async fn release(
    sessions: &Sessions,
    ids: Vec<Uuid>,
) -> Result<Option<Vec<ReleaseRow>>, LedgerError> {
    let mut session = sessions.take_for_act().await?;
    let call = sqlx::query_as::<_, ReleaseRow>(concat!(
        "SELECT * FROM ",
        acts!(),
        ".release_plain($1, $2)"
    ))
    .bind(session.seen)
    .bind(ids)
    .fetch_all(&mut session.connection);
    let answer = sessions.answer(call).await;
    sessions.settle_seen(session, answer, |row| row.flushed).await
}
