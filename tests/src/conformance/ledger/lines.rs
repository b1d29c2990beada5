//! The line of a resource as everybody may see it: who waits, since when, in which place, and who is away.

use std::sync::Arc;

use fence_core::ports::{InLine, JoinItem, JoinVerdict, Ledger, LinePage, Patience};
use uuid::Uuid;

use super::build::*;
use crate::conformance::pause;

async fn line(ledger: &dyn Ledger, resource: &str, after: Option<i64>, limit: i64) -> Vec<InLine> {
    ledger.waiters(&name(resource), LinePage { after, limit }).await.expect("read")
}

async fn named<const N: usize>(ledger: &dyn Ledger, owner: &str, on: [&str; N]) -> JoinItem {
    let item = JoinItem { owner: owner.into(), ..join(on) };
    assert_eq!(join_one(ledger, item.clone()).await, JoinVerdict::Waiting);
    pause(5).await;
    item
}

fn seen(line: &[InLine]) -> Vec<(&str, i64, bool)> {
    line.iter().map(|one| (one.owner.as_str(), one.position, one.present)).collect()
}

/// First come first, from a ticket on, up to a limit, each in its place; of one resource.
pub async fn a_line_is_shown_in_its_order(ledger: &dyn Ledger) {
    assert_eq!(line(ledger, "r", None, 9).await, [], "nobody waits");
    held(ledger, "r", 10).await;
    held(ledger, "s", 11).await;
    assert_eq!(line(ledger, "r", None, 9).await, []);
    named(ledger, "elsewhere", ["s"]).await;
    let first = named(ledger, "ann", ["r"]).await;
    named(ledger, "bob", ["r", "s"]).await;
    named(ledger, "cid", ["r"]).await;
    let whole = line(ledger, "r", None, 9).await;
    assert_eq!(seen(&whole), [("ann", 1, true), ("bob", 2, true), ("cid", 3, true)]);
    assert!(whole.is_sorted_by(|a, b| a.ticket < b.ticket && a.since < b.since), "{whole:?}");
    assert_eq!(line(ledger, "r", None, 2).await, whole[..2]);
    assert_eq!(line(ledger, "r", Some(whole[0].ticket), 9).await, whole[1..]);
    assert_eq!(line(ledger, "r", Some(whole[2].ticket), 9).await, []);
    let other = line(ledger, "s", None, 9).await;
    assert_eq!(seen(&other), [("elsewhere", 1, true), ("bob", 2, true)]);
    // Its place in the line of this resource, not for all that it waits for.
    release_one(ledger, first.lock).await;
    assert_eq!(seen(&line(ledger, "r", None, 9).await), [("bob", 1, true), ("cid", 2, true)]);
}

/// Whose call has ended, and whose gateway is silent. It is told since when they wait, also when they are back.
pub async fn a_line_shows_who_is_away(ledger: &dyn Ledger) {
    held(ledger, "r", 10).await;
    let silent = JoinItem { gateway: Uuid::from_u128(1), owner: "lost".into(), ..join(["r"]) };
    let verdicts = ledger.join(Arc::from([silent]), Patience::Skip).await.expect("decided");
    assert_eq!(only(verdicts), JoinVerdict::Waiting);
    let ann = named(ledger, "ann", ["r"]).await;
    named(ledger, "bob", ["r"]).await;
    ledger.keep_places(GATEWAY, &[ann.lock]).await.expect("kept");
    let away = line(ledger, "r", None, 9).await;
    assert_eq!(seen(&away), [("lost", 1, false), ("ann", 2, false), ("bob", 3, true)]);
    // A gateway that can have no numbers minted has its callers all the same.
    ledger.call_next(Uuid::from_u128(1), Some(false), &[]).await.expect("a heartbeat");
    assert_eq!(join_one(ledger, ann).await, JoinVerdict::Waiting);
    let back = line(ledger, "r", None, 9).await;
    assert_eq!(seen(&back), [("lost", 1, true), ("ann", 2, true), ("bob", 3, true)]);
    assert_eq!(back[1].since, away[1].since);
}
