//! What lists cost where there is much that they do not show.

use std::time::{Duration, Instant};

use fence_core::ports::{Ledger, Page, RejectionFilter, Which};

use super::build::*;
use crate::conformance::Operator;

/// Resources that were locked once and are free.
const MANY: u32 = 100_000;
/// How much longer a page may take beside them. If all of them were read it would be thousands of times.
const ROOM: u32 = 20;

/// A page costs what it holds, whatever else there is.
pub async fn a_page_costs_what_it_holds(ledger: &dyn Ledger, operator: &Operator) {
    for number in 0..20 {
        held(ledger, &format!("held-{number:02}"), 10 + number).await;
    }
    let free = held(ledger, "free", 50).await;
    release_one(ledger, free.lock).await;
    let before = pages(ledger).await;
    let deadline = match operator {
        Operator::Sqlite(_) => "deadline_ms, version",
        Operator::Postgres(_) => "deadline",
    };
    let columns = format!(
        "token, lock_id, owner, hold, ttl_ms, {deadline}, acquired_at, renewed_at, last_seq,
         objects, grants, live_token"
    );
    let copies = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})
         INSERT INTO fences (resource, {columns})
         SELECT 'free-' || i, {columns} FROM fences CROSS JOIN n WHERE resource = 'free'"
    );
    operator.execute(&copies).await;
    let after = pages(ledger).await;
    assert!(after < before * ROOM, "{after:?} after {before:?}");
}

/// How long each list takes, together: the shortest of a few times, and no less than can be measured.
async fn pages(ledger: &dyn Ledger) -> Duration {
    let mut together = Duration::ZERO;
    for (prefix, after, which) in [
        ("", None, Which::Held),
        ("", None, Which::Taken),
        ("", None, Which::All),
        ("held-1", None, Which::All),
        ("free-9999", Some("free-99998"), Which::All),
        ("held-", Some("held-05"), Which::Held),
    ] {
        let page = Page { prefix: prefix.into(), after: after.map(str::to_owned), limit: 20 };
        together += shortest(async || {
            ledger.resources(page.clone(), which).await.expect("a page");
        })
        .await;
    }
    together
}

/// Objects under another prefix cost a page nothing.
pub async fn a_page_of_objects_costs_what_it_holds(ledger: &dyn Ledger, operator: &Operator) {
    let ann = held(ledger, "r", 10).await;
    for number in 0..20 {
        apply(ledger, put(&ann, &format!("held-{number:02}"), "x")).await;
    }
    apply(ledger, put(&ann, "free", "x")).await;
    let before = objects(ledger).await;
    let columns = "version, generation, content_type, size, sha256, written_at, body";
    let copies = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})
         INSERT INTO objects (resource, key, {columns})
         SELECT resource, 'free-' || i, {columns} FROM objects CROSS JOIN n WHERE key = 'free'"
    );
    operator.execute(&copies).await;
    let after = objects(ledger).await;
    assert!(after < before * ROOM, "{after:?} after {before:?}");
}

async fn objects(ledger: &dyn Ledger) -> Duration {
    let mut together = Duration::ZERO;
    for (prefix, after) in [
        ("held-1", None),
        ("held-", Some("held-05")),
        ("free-9999", Some("free-99998")),
        ("g", None),
    ] {
        let page = Page { prefix: prefix.into(), after: after.map(str::to_owned), limit: 20 };
        together += shortest(async || {
            ledger.objects(&name("r"), page.clone()).await.expect("a page");
        })
        .await;
    }
    together
}

/// Those of other reasons cost nothing, however many there are.
pub async fn rejections_of_a_reason_cost_what_they_are(ledger: &dyn Ledger, operator: &Operator) {
    let columns = "at, resource, key, reason, token, request_id";
    let at = match operator {
        Operator::Sqlite(_) => "0",
        Operator::Postgres(_) => "to_timestamp(0)",
    };
    let copies = |many: u32, reason: &str| {
        format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})
             INSERT INTO rejections ({columns})
             SELECT {at}, 'r', 'k', 'fence-token-{reason}', 7, 'req-' || i FROM n"
        )
    };
    let list = async || {
        let reason = Some("fence-token-broken".into());
        let filter = RejectionFilter { reason, limit: 100, ..RejectionFilter::default() };
        assert_eq!(ledger.rejections(filter).await.expect("a page").len(), 20);
    };
    operator.execute(&copies(20, "broken")).await;
    let before = shortest(list).await;
    operator.execute(&copies(2 * MANY, "stale")).await;
    let after = shortest(list).await;
    assert!(after < before * ROOM, "{after:?} after {before:?}");
}

/// How long a call takes: the shortest of a few times, and no less than can be measured.
async fn shortest(call: impl AsyncFn()) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        call().await;
        shortest = shortest.min(began.elapsed());
    }
    shortest.max(Duration::from_micros(100))
}
