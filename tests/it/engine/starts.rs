//! The look at a server that was started anew, with what happens in between forced.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::sync::Arc;

use fence_core::memory::{MemoryLedger, MemoryMint};
use fence_core::ports::{Ledger as _, Milestone, Mint as _, Place, Witness};
use fence_tests::process::eventually;
use futures::FutureExt as _;
use uuid::Uuid;

use crate::engine::rig::{R, Rig};

/// Has the mint know this milestone of the ledger. Nothing in memory waits.
fn raise(mint: &MemoryMint, ledger: &MemoryLedger, milestone: Milestone) {
    let head = mint.head().now_or_never().unwrap().unwrap();
    let place = ledger.place(None).now_or_never().unwrap().unwrap();
    let witness = Witness::following(head.witness.as_ref(), &place, Some(milestone));
    let raised = mint.raise(&head, place.epoch.ledger, &witness).now_or_never().unwrap();
    assert_eq!(raised, Ok(true));
}

fn milestone(number: i64) -> Milestone {
    Milestone { number, id: Uuid::from_u128(number.unsigned_abs().into()) }
}

/// A ledger in memory whose server was started anew, and which has this milestone and no later one.
fn started(asked: Option<Milestone>, has: Milestone, place: Place) -> Place {
    Place {
        restarted: true,
        started_us: 2,
        has_milestone: asked.map(|asked| asked == has),
        ..place
    }
}

/// The gateway stands still between its look at etcd and its look at the ledger. Meanwhile others go on, and a copy is put
/// back that has what etcd knew at first.
#[tokio::test]
async fn what_etcd_said_before_a_start_confirms_nothing() {
    let rig = Rig::looked_after();
    rig.granted(R).await;
    let (mint, memory) = (Arc::clone(&rig.mint), rig.memory());
    raise(&mint, &memory, milestone(5));
    let mut went_on = false;
    rig.ledger.on_place(move |asked, place| {
        if asked == Some(milestone(5)) && !std::mem::replace(&mut went_on, true) {
            raise(&mint, &memory, milestone(6));
        }
        match went_on {
            true => started(asked, milestone(5), place),
            false => place,
        }
    });
    eventually("it is halted", async || {
        let halted = rig.ledger.halted();
        halted.iter().any(|why| why.contains("lacks milestone 6")).then_some(())
    })
    .await;
    assert_eq!(rig.ledger.confirmed(), []);
}

#[tokio::test]
async fn a_start_that_has_the_newest_milestone_is_confirmed() {
    let rig = Rig::looked_after();
    rig.granted(R).await;
    raise(&rig.mint, &rig.memory(), milestone(5));
    rig.ledger.on_place(|asked, place| started(asked, milestone(5), place));
    let confirmed =
        eventually("it is confirmed", async || rig.ledger.confirmed().into_iter().next()).await;
    assert_eq!((confirmed.started_us, confirmed.milestone), (2, Some(milestone(5))));
    assert_eq!(rig.ledger.halted(), Vec::<String>::new());
}
