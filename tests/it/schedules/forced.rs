//! A ledger on a Postgres database of its own, and foreign transactions that hold its rows, so that
//! schedules are forced and not hoped for.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fence_core::etag::{EntityTag, ObjectCondition};
use fence_core::ports::{
    Applied, Attempt, By, Effect, Grant, IdempotencyKey, Ledger, LedgerError, Patience, Payload,
    ReleaseVerdict, SealItem, SealKind, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{LockId, Metadata, ObjectKey, OperationId, Refusal, ResourceName, Token, Ttl};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fencegate::ledger::postgres::acts::named;
use fencegate::ledger::postgres::{PgLedger, PgSettings};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgConnection};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Longer than any row is held here.
pub const WAIT: Patience = Patience::Wait(Duration::from_secs(30));

/// The resource that most schedules are about.
pub const R: &str = "r";

pub struct Ground {
    pub server: &'static Postgres,
    pub database: String,
    pub ledger: Arc<PgLedger>,
}

impl Ground {
    pub async fn new() -> Self {
        let server = Postgres::shared().await;
        let database = server.database_name().await;
        let options: PgConnectOptions = server.url(&database).parse().expect("a URL");
        fence_tests::mutants::apply(&server.owner_url(&database)).await;
        Self { server, ledger: Arc::new(ledger(options)), database }
    }

    /// A connection of its own.
    pub async fn connect(&self) -> PgConnection {
        self.server.connect(&self.database).await
    }

    /// A second ledger, with connections of its own.
    pub fn other_ledger(&self) -> Arc<PgLedger> {
        Arc::new(ledger(self.server.url(&self.database).parse().expect("a URL")))
    }

    /// Another one, which reaches the server through this port.
    pub fn ledger_through(&self, port: u16) -> Arc<PgLedger> {
        let url = self.server.url_through(port, &self.database);
        Arc::new(ledger(url.parse().expect("a URL")))
    }

    /// Runs a statement now; returns the transaction that holds what it locked.
    pub async fn hold(&self, statement: &str) -> Held {
        let mut connection = self.connect().await;
        run(&mut connection, "BEGIN").await;
        run(&mut connection, statement).await;
        Held { connection }
    }

    /// Holds a fence row.
    pub async fn hold_fence(&self, resource: &str) -> Held {
        let select = "SELECT FROM fencegate.fences WHERE resource";
        self.hold(&format!("{select} = '{resource}' FOR NO KEY UPDATE")).await
    }

    /// Waits until this many sessions of the database wait for a lock.
    pub async fn waiting(&self, count: usize) -> Vec<i32> {
        self.waiting_while(count, || ()).await
    }

    /// The same, when this is one of them that cannot have ended before: it waits for a lock.
    pub async fn kept_waiting<T>(&self, task: &JoinHandle<T>, count: usize) {
        self.waiting_while(count, || assert!(!task.is_finished(), "it did not wait")).await;
    }

    /// Waits until this has ended, or so many sessions wait for a lock.
    pub async fn ended_or_waiting<T>(&self, task: &JoinHandle<T>, count: usize) {
        tokio::select! {
            _ = self.waiting(count) => (),
            () = eventually("it has ended", async || task.is_finished().then_some(())) => (),
        }
    }

    async fn waiting_while(&self, count: usize, check: impl Fn()) -> Vec<i32> {
        let mut connection = self.connect().await;
        eventually(&format!("{count} sessions wait for a lock"), async || {
            check();
            let pids: Vec<i32> = sqlx::query_scalar(
                "SELECT pid FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .fetch_all(&mut connection)
            .await
            .expect("the sessions can be listed");
            (pids.len() == count).then_some(pids)
        })
        .await
    }

    /// The answer to a query for one number.
    pub async fn number(&self, query: &'static str) -> i64 {
        let mut connection = self.connect().await;
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(named(query)));
        query.fetch_one(&mut connection).await.expect("a number")
    }

    /// Starts a commit of one item in a task of its own.
    pub fn commit_later(&self, item: WriteItem) -> JoinHandle<WriteVerdict> {
        let ledger = Arc::clone(&self.ledger);
        tokio::spawn(async move { commit(&ledger, item).await })
    }

    /// Starts a seal of one lock in a task of its own.
    pub fn seal_later(&self, item: SealItem) -> JoinHandle<Result<SealVerdict, LedgerError>> {
        let ledger = Arc::clone(&self.ledger);
        tokio::spawn(async move { seal(&ledger, item).await })
    }

    /// Starts a release in a task of its own.
    pub fn release_later(&self, id: LockId) -> JoinHandle<ReleaseVerdict> {
        let ledger = Arc::clone(&self.ledger);
        tokio::spawn(async move { release(&ledger, id).await })
    }

    /// Seals a lock that must be granted. It expires at once, which takes nothing from its holder
    /// but lets the next one in.
    pub async fn sealed(&self, resource: &str, number: i64) -> Grant {
        match seal(&self.ledger, sealing(resource, number)).await {
            Ok(SealVerdict::Sealed(grant, _)) => grant,
            other => panic!("not sealed: {other:?}"),
        }
    }

    /// Commits a write that must take effect.
    pub async fn written(&self, item: WriteItem) -> Applied {
        applied(commit(&self.ledger, item).await)
    }
}

fn ledger(options: PgConnectOptions) -> PgLedger {
    PgLedger::new(PgSettings { options, connections_max: 16, timeout: Duration::from_secs(40) })
}

/// A transaction that holds rows.
pub struct Held {
    pub connection: PgConnection,
}

impl Held {
    /// Ends it without effect.
    pub async fn let_go(mut self) {
        run(&mut self.connection, "ROLLBACK").await;
    }

    /// Ends it with effect.
    pub async fn commit(mut self) {
        run(&mut self.connection, "COMMIT").await;
    }
}

pub async fn run(connection: &mut PgConnection, statement: &str) {
    connection
        .execute(sqlx::AssertSqlSafe(named(statement)))
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

pub async fn commit(ledger: &PgLedger, item: WriteItem) -> WriteVerdict {
    let verdicts = ledger.commit([item].into(), WAIT).await.expect("a verdict");
    verdicts.into_iter().next().expect("one verdict")
}

pub async fn seal(ledger: &PgLedger, item: SealItem) -> Result<SealVerdict, LedgerError> {
    let verdicts = ledger.seal(0, [item].into(), WAIT).await?;
    Ok(verdicts.into_iter().next().expect("one verdict"))
}

pub async fn release(ledger: &PgLedger, id: LockId) -> ReleaseVerdict {
    let verdicts = ledger.release([id.into()].into(), WAIT).await.expect("a verdict");
    verdicts.into_iter().next().expect("one verdict")
}

/// A lock to seal, with an id and an owner of its own.
pub fn sealing(resource: &str, number: i64) -> SealItem {
    SealItem {
        kind: SealKind::Lock,
        lock: LockId(Uuid::new_v4()),
        resources: vec![ResourceName::new(resource).expect("a name")],
        owner: format!("owner-{number}"),
        ttl: Some(Ttl::from_ms(0)),
        max_hold: None,
        metadata: Metadata::default(),
        number: Some(number),
        attempt: Attempt::First,
        waits: None,
        by: By::default(),
        principal: None,
        writers: Vec::new(),
    }
}

/// A put of the object `k` under a token.
pub fn put(resource: &str, token: i64, body: &str) -> WriteItem {
    WriteItem {
        operation: OperationId(Uuid::now_v7()),
        resource: ResourceName::new(resource).expect("a name"),
        token: Token::new(token).expect("a token"),
        lock: None,
        sequence: None,
        idempotency: None,
        object_condition: None,
        resource_version: None,
        effect: Effect::Put {
            key: ObjectKey::new("k").expect("a key"),
            content_type: "text/plain".to_owned(),
            payload: Payload::Inline(Bytes::copy_from_slice(body.as_bytes())),
            size: body.len() as i64,
            sha256: [7; 32],
            about: None,
            parts: None,
        },
        attempt: Attempt::First,
        taken_at: jiff::Timestamp::MAX,
        by: By::default(),
    }
}

/// The same put, if its object is still at this version.
pub fn if_match(version: i64, item: WriteItem) -> WriteItem {
    let tag = EntityTag { generation: 0, version };
    WriteItem { object_condition: Some(ObjectCondition::OneOf(vec![tag])), ..item }
}

/// The same put, if its object is not there.
pub fn if_absent(item: WriteItem) -> WriteItem {
    WriteItem { object_condition: Some(ObjectCondition::Absent), ..item }
}

/// The same put under an idempotency key.
pub fn keyed(key: &str, item: WriteItem) -> WriteItem {
    let key = IdempotencyKey { key: key.to_owned(), fingerprint: [9; 32], kept: None };
    WriteItem { idempotency: Some(key), ..item }
}

/// The write that took effect now; panics if it did not.
#[track_caller]
pub fn applied(verdict: WriteVerdict) -> Applied {
    match verdict {
        WriteVerdict::Applied { applied, replayed: false } => applied,
        other => panic!("not applied: {other:?}"),
    }
}

/// The write that took effect earlier; panics if it did not.
#[track_caller]
pub fn replayed(verdict: WriteVerdict) -> Applied {
    match verdict {
        WriteVerdict::Applied { applied, replayed: true } => applied,
        other => panic!("not replayed: {other:?}"),
    }
}

/// Why a write was refused; panics if it was not.
#[track_caller]
pub fn refused(verdict: WriteVerdict) -> Refusal {
    match verdict {
        WriteVerdict::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}
