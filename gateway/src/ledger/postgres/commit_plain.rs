//! The common case of the act on data, as a call of `schema/postgres/acts/commit_plain.sql`.

use fence_core::ports::{Attempt, LedgerError, Patience, WriteItem};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use uuid::Uuid;

use super::commit::{CommitRow, Stored};
use super::session::{Failure, Sessions};

/// What came of trying.
pub(super) enum Tried {
    /// A row for each item, in the order of the items; none if the server gave up waiting for a row.
    Decided(Option<Vec<CommitRow>>),
    /// It is not for the short way: nothing was stored.
    NotPlain,
}

/// Small puts, each to a resource of its own, that were not sent before and depend on nothing but the fence:
/// as the arrays that the function takes, in name order.
pub(super) struct Puts<'a> {
    /// Which item each of them is.
    items: Vec<usize>,
    resource: Vec<&'a str>,
    object: Vec<&'a str>,
    operation: Vec<Uuid>,
    token: Vec<i64>,
    lock: Vec<Option<Uuid>>,
    content_type: Vec<&'a str>,
    size: Vec<i64>,
    sha256: Vec<&'a [u8]>,
    body: Vec<&'a [u8]>,
}

impl<'a> Puts<'a> {
    /// The items, if all of them are such puts.
    pub(super) fn of(items: &'a [WriteItem], patience: Patience) -> Option<Self> {
        if patience != Patience::Skip || !items.iter().all(depends_on_the_fence_alone) {
            return None;
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_unstable_by_key(|at| items[*at].resource.as_str());
        let same = |pair: &[usize]| items[pair[0]].resource == items[pair[1]].resource;
        if order.windows(2).any(same) {
            return None;
        }
        let mut puts = Self::sized(items.len());
        for item in order.iter().map(|at| &items[*at]) {
            let put = Stored::of(&item.effect)?;
            puts.resource.push(item.resource.as_str());
            puts.object.push(item.effect.key()?.as_str());
            puts.operation.push(item.operation.0);
            puts.token.push(item.token.get());
            puts.lock.push(item.lock.map(|lock| lock.0));
            puts.content_type.push(put.content_type);
            puts.size.push(put.size);
            puts.sha256.push(put.sha256.as_slice());
            puts.body.push(put.body()?);
        }
        puts.items = order;
        Some(puts)
    }

    fn sized(length: usize) -> Self {
        Self {
            items: Vec::new(),
            resource: Vec::with_capacity(length),
            object: Vec::with_capacity(length),
            operation: Vec::with_capacity(length),
            token: Vec::with_capacity(length),
            lock: Vec::with_capacity(length),
            content_type: Vec::with_capacity(length),
            size: Vec::with_capacity(length),
            sha256: Vec::with_capacity(length),
            body: Vec::with_capacity(length),
        }
    }

    /// Decides them. They are not plain after all if an id is applied already: all was rolled back.
    ///
    /// # Errors
    /// As any act.
    pub(super) async fn commit(&self, sessions: &Sessions) -> Result<Tried, LedgerError> {
        let mut session = sessions.take_for_act().await?;
        let query = match self.items.len() {
            1 => self.lone(session.seen),
            _ => self.batch(session.seen),
        };
        let answer = sessions.answer(query.fetch_all(&mut session.connection)).await;
        let is_applied = matches!(answer, Err(Failure::Duplicate(_)));
        let rows = match sessions.settle_seen(session, answer, |row| row.flushed).await {
            Err(_) if is_applied => return Ok(Tried::NotPlain),
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(Tried::Decided(None)),
            Err(error) => return Err(error),
        };
        let mut placed: Vec<_> = self.items.iter().zip(rows).collect();
        placed.sort_unstable_by_key(|(item, _)| **item);
        Ok(Tried::Decided(Some(placed.into_iter().map(|(_, row)| row).collect())))
    }

    fn batch(&self, seen: i64) -> Call<'_> {
        sqlx::query_as(concat!(
            "SELECT * FROM ",
            acts!(),
            ".commit_plain($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        ))
        .bind(seen)
        .bind(&self.resource)
        .bind(&self.object)
        .bind(&self.operation)
        .bind(&self.token)
        .bind(&self.lock)
        .bind(&self.content_type)
        .bind(&self.size)
        .bind(&self.sha256)
        .bind(&self.body)
    }

    fn lone(&self, seen: i64) -> Call<'_> {
        sqlx::query_as(concat!(
            "SELECT * FROM ",
            acts!(),
            ".commit_lone($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
        ))
        .bind(seen)
        .bind(self.resource[0])
        .bind(self.object[0])
        .bind(self.operation[0])
        .bind(self.token[0])
        .bind(self.lock[0])
        .bind(self.content_type[0])
        .bind(self.size[0])
        .bind(self.sha256[0])
        .bind(self.body[0])
    }
}

type Call<'q> = QueryAs<'q, Postgres, CommitRow, PgArguments>;

fn depends_on_the_fence_alone(item: &WriteItem) -> bool {
    item.attempt == Attempt::First
        && item.idempotency.is_none()
        && item.sequence.is_none()
        && item.object_condition.is_none()
        && item.resource_version.is_none()
}
