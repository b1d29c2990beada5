//! What lists cost where there is much that they do not show.

use std::time::{Duration, Instant};

use fence_core::ports::{Ledger, Page};

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
        Operator::Sqlite(_) => "deadline_ms",
        Operator::Postgres(_) => "deadline",
    };
    let columns = format!(
        "token, lock_id, owner, hold, ttl_ms, {deadline}, acquired_at, renewed_at, version, last_seq,
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
    for (prefix, after, held) in [
        ("", None, true),
        ("", None, false),
        ("held-1", None, false),
        ("free-9999", Some("free-99998"), false),
        ("held-", Some("held-05"), true),
    ] {
        let page = Page { prefix: prefix.into(), after: after.map(str::to_owned), limit: 20 };
        let mut shortest = Duration::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            ledger.resources(page.clone(), held).await.expect("a page");
            shortest = shortest.min(began.elapsed());
        }
        together += shortest.max(Duration::from_micros(100));
    }
    together
}
