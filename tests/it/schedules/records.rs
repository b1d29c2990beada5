//! Entries of the operator's records that are committed in another order than they were numbered: who follows a
//! record skips none of them, and is held up by nobody else.

use fence_core::ports::{AuditFilter, Ledger, Log, RejectionFilter, Settled, Span};
use fencegate::ledger::postgres::PgLedger;

use crate::schedules::forced::Ground;

const ENTRY: &str = "INSERT INTO fencegate.audit (at, action) VALUES (clock_timestamp(), 'agree')";
const REFUSAL: &str = "INSERT INTO fencegate.rejections (at, resource, reason, request_id)
                       VALUES (clock_timestamp(), 'r', 'version-mismatch', 'test')";

/// A reader, as a gateway is one.
struct Reader<'a> {
    ledger: &'a PgLedger,
    log: Log,
    settled: Settled,
    at: i64,
}

impl<'a> Reader<'a> {
    fn new(ground: &'a Ground, log: Log) -> Self {
        Self { ledger: &ground.ledger, log, settled: Settled::default(), at: 0 }
    }

    /// The numbers of what it is given now.
    async fn read(&mut self) -> Vec<i64> {
        self.settled = self.ledger.settled(self.log, &self.settled).await.expect("known");
        let between = Some(Span { after: self.at, upto: self.settled.upto });
        self.at = self.settled.upto;
        match self.log {
            Log::Audit => {
                let filter = AuditFilter { between, limit: 99, ..AuditFilter::default() };
                let found = self.ledger.audit(filter).await.expect("read");
                found.into_iter().map(|(number, _)| number).collect()
            }
            Log::Rejections => {
                let filter = RejectionFilter { between, limit: 99, ..RejectionFilter::default() };
                let found = self.ledger.rejections(filter).await.expect("read");
                found.into_iter().map(|(number, _)| number).collect()
            }
        }
    }
}

async fn nothing_is_skipped(log: Log, entry: &str) {
    let ground = Ground::new().await;
    let mut reader = Reader::new(&ground, log);
    ground.hold(entry).await.commit().await;
    assert_eq!(reader.read().await, [1]);
    // It has its number, and is committed behind one that came later.
    let first = ground.hold(entry).await;
    ground.hold(entry).await.commit().await;
    for _ in 0..3 {
        assert_eq!(reader.read().await, [0; 0]);
    }
    // Who comes now waits for it, too.
    assert_eq!(Reader::new(&ground, log).read().await, [0; 0]);
    first.commit().await;
    assert_eq!(reader.read().await, [2, 3]);
    // One that is never committed leaves its number empty.
    let gone = ground.hold(entry).await;
    ground.hold(entry).await.commit().await;
    assert_eq!(reader.read().await, [0; 0]);
    gone.let_go().await;
    assert_eq!(reader.read().await, [5]);
    assert_eq!(Reader::new(&ground, log).read().await, [1, 2, 3, 5]);
}

#[tokio::test]
pub async fn an_entry_that_is_committed_late_is_not_skipped() {
    nothing_is_skipped(Log::Audit, ENTRY).await;
}

#[tokio::test]
pub async fn a_refusal_that_is_committed_late_is_not_skipped() {
    nothing_is_skipped(Log::Rejections, REFUSAL).await;
}

/// However many come one after the other: each waits for those who were there when it was seen.
#[tokio::test]
pub async fn entries_come_while_others_are_always_under_way() {
    let ground = Ground::new().await;
    let mut reader = Reader::new(&ground, Log::Audit);
    let mut under_way = ground.hold(ENTRY).await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        let next = ground.hold(ENTRY).await;
        seen.extend(reader.read().await);
        under_way.commit().await;
        under_way = next;
        seen.extend(reader.read().await);
    }
    assert!(seen.len() >= 3, "{seen:?}");
    under_way.commit().await;
    seen.extend(reader.read().await);
    seen.extend(reader.read().await);
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

/// A transaction that writes something else may stay open for hours.
#[tokio::test]
pub async fn a_transaction_that_does_something_else_holds_no_reader_up() {
    let ground = Ground::new().await;
    ground.sealed("r", 1).await;
    let other = ground.hold_fence("r").await;
    let refusal = ground.hold(REFUSAL).await;
    let looks = ground.hold("SELECT pg_current_xact_id(), count(*) FROM fencegate.audit").await;
    ground.sealed("s", 2).await;
    let mut reader = Reader::new(&ground, Log::Audit);
    assert_eq!(reader.read().await, [1, 2]);
    for held in [other, refusal, looks] {
        held.let_go().await;
    }
}
