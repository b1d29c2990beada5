//! The rule in SQL is that of `fence_core::rule`: all cases, judged by both.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::rule::{FenceFacts, Hold, OldGrant, Presented, judge};
use fence_core::{LockId, Refusal, Token};
use fencegate::ledger::postgres::acts::named;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::schedules::forced::Ground;

/// One case: what the rule is asked, and whether the token was sealed on the resource once.
struct Case {
    floor: i64,
    fence: Option<FenceFacts>,
    presented: Presented,
    was_sealed: bool,
    /// Whether that was to whoever presents it.
    was_yours: bool,
}

impl Case {
    /// What the rule says, in the words of the SQL.
    fn verdict(&self) -> Option<&'static str> {
        let old = OldGrant { is_yours: self.was_yours, ..OldGrant::LET_GO };
        let old = self.was_sealed.then_some(&old);
        match judge(self.floor, self.fence.as_ref(), old, &self.presented) {
            Ok(()) => None,
            Err(Refusal::Void) => Some("void"),
            Err(Refusal::Unknown) => Some("unknown"),
            Err(Refusal::Foreign) => Some("foreign"),
            Err(Refusal::Stale { .. }) => Some("stale"),
            Err(Refusal::Released) => Some("released"),
            Err(Refusal::Broken) => Some("broken"),
            Err(Refusal::LockIdMismatch) => Some("lock_id_mismatch"),
            Err(Refusal::Frozen) => Some("frozen"),
            Err(Refusal::Draining) => Some("draining"),
            Err(Refusal::SequenceOutOfOrder) => Some("sequence_out_of_order"),
            Err(other) => panic!("no verdict of the rule: {other:?}"),
        }
    }
}

const LOCK: LockId = LockId(Uuid::from_u128(1));
const ANOTHER: LockId = LockId(Uuid::from_u128(2));
/// What is presented; floor and fence are below, at and above it.
const TOKEN: i64 = 5;

/// Every way in which the parts can stand to each other.
fn cases() -> Vec<Case> {
    let mut fences = vec![None];
    for token in [TOKEN - 1, TOKEN, TOKEN + 1] {
        for hold in [Hold::Held, Hold::Draining, Hold::Released, Hold::Broken] {
            for frozen in [false, true] {
                for is_yours in [false, true] {
                    let (token, lock) = (Token::new(token).unwrap(), LOCK);
                    let last_sequence = 3;
                    fences.push(Some(FenceFacts {
                        token,
                        lock,
                        hold,
                        frozen,
                        last_sequence,
                        is_yours,
                    }));
                }
            }
        }
    }
    let mut cases = Vec::new();
    for floor in [TOKEN - 1, TOKEN, TOKEN + 1] {
        for fence in &fences {
            for lock in [None, Some(LOCK), Some(ANOTHER)] {
                for sequence in [None, Some(2), Some(3), Some(4)] {
                    for (was_sealed, was_yours) in [(false, true), (true, false), (true, true)] {
                        let token = Token::new(TOKEN).unwrap();
                        let presented = Presented { token, lock, sequence };
                        let fence = *fence;
                        cases.push(Case { floor, fence, presented, was_sealed, was_yours });
                    }
                }
            }
        }
    }
    cases
}

fn hold(hold: Hold) -> &'static str {
    match hold {
        Hold::Held => "held",
        Hold::Draining => "draining",
        Hold::Released => "released",
        Hold::Broken => "broken",
    }
}

#[tokio::test]
pub async fn the_sql_judges_as_the_rule_does() {
    let ground = Ground::new().await;
    let cases = cases();
    let column = |of: fn(&Case) -> Option<i64>| cases.iter().map(of).collect::<Vec<_>>();
    let ids = |of: fn(&Case) -> Option<Uuid>| cases.iter().map(of).collect::<Vec<_>>();
    let holds: Vec<_> = cases.iter().map(|it| it.fence.map(|fence| hold(fence.hold))).collect();
    let frozen: Vec<_> = cases.iter().map(|it| it.fence.map(|fence| fence.frozen)).collect();
    // `older` leaves to a look at the grants whether it was sealed once.
    let query = "
        SELECT CASE j.verdict WHEN 'older' THEN
                        CASE WHEN NOT c.was_sealed THEN 'unknown' WHEN c.was_yours THEN 'stale' ELSE 'foreign' END
                    ELSE j.verdict END
        FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::uuid[],
                    $7::text[], $8::boolean[], $9::bigint[], $10::boolean[], $11::boolean[], $12::boolean[])
             WITH ORDINALITY c (token, lock, seq, floor, f_token, f_lock, f_hold, f_frozen, f_seq, was_sealed,
                                f_yours, was_yours, i)
        CROSS JOIN LATERAL acts.judge(c.token, c.lock, c.seq, c.floor, c.f_token, c.f_lock, c.f_hold,
                                      c.f_frozen, c.f_seq, c.f_yours) j (verdict)
        ORDER BY c.i";
    let found: Vec<Option<String>> = sqlx::query_scalar(AssertSqlSafe(named(query)))
        .bind(column(|it| Some(it.presented.token.get())))
        .bind(ids(|it| it.presented.lock.map(|lock| lock.0)))
        .bind(column(|it| it.presented.sequence))
        .bind(column(|it| Some(it.floor)))
        .bind(column(|it| it.fence.map(|fence| fence.token.get())))
        .bind(ids(|it| it.fence.map(|fence| fence.lock.0)))
        .bind(holds)
        .bind(frozen)
        .bind(column(|it| it.fence.map(|fence| fence.last_sequence)))
        .bind(cases.iter().map(|it| it.was_sealed).collect::<Vec<_>>())
        .bind(cases.iter().map(|it| it.fence.map(|fence| fence.is_yours)).collect::<Vec<_>>())
        .bind(cases.iter().map(|it| it.was_yours).collect::<Vec<_>>())
        .fetch_all(&mut ground.connect().await)
        .await
        .unwrap();
    assert_eq!(found.len(), cases.len());
    for (case, found) in cases.iter().zip(&found) {
        let Case { floor, fence, presented, was_sealed, was_yours } = case;
        let what = format!(
            "floor {floor}, {fence:?}, {presented:?}, sealed once: {was_sealed}, to it: {was_yours}"
        );
        assert_eq!(found.as_deref(), case.verdict(), "{what}");
    }
    let admitted = found.iter().filter(|verdict| verdict.is_none()).count();
    // Held, not frozen, above the floor, sealed to whoever presents it, with this lock's id or none, and a number that rises or none.
    assert_eq!(admitted, 2 * 2 * 3);
}
