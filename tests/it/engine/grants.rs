//! What becomes of grants whose answer was lost, whose caller has gone, or whose number did not
//! rise, on a ledger that goes as each test says.

use fencegate::engine::access::Permit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_core::ports::{Ledger as _, LedgerError, Mint as _, SealVerdict};
use fence_core::{LockId, LockState};
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost, rolled_back};
use fencegate::engine::{Acquire, EngineError, Released};
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::rig::{R, Rig, asking, counter, name, next_number, opened, seal_as};
use crate::setup::random_id;

#[tokio::test]
async fn a_reentry_that_was_lost_while_another_holds_does_not_burn_its_id() {
    let rig = Rig::new();
    let holder = rig.granted(R).await;
    let mut first = true;
    rig.ledger.on_seal(move |_, _| match std::mem::take(&mut first) {
        true => Step::act_but(lost()),
        false => Step::act(),
    });
    let mine = LockId(random_id());
    let answer = rig.acquire(R, Some(mine)).await;
    assert!(matches!(answer, Err(EngineError::Held(_))), "{answer:?}");
    rig.engine.release(holder.lock, Permit::default()).await.unwrap();
    let acquired = rig.acquire(R, Some(mine)).await.unwrap();
    assert_eq!((acquired.grant.lock, acquired.again), (mine, false));
}

#[tokio::test]
async fn a_grant_of_round_one_stays_when_round_two_fails() {
    let rig = Rig::new();
    let together = Arc::new(AtomicUsize::new(0));
    let first = Arc::clone(&together);
    rig.ledger.on_seal(move |items, _| {
        if first.load(Ordering::Relaxed) > 0 {
            return Step::fail(rolled_back());
        }
        first.store(items.len(), Ordering::Relaxed);
        let late = |late: bool| late.then_some(SealVerdict::NumberTooLow);
        Step::each(items.iter().map(|item| late(item.resources[0].as_str() == "b")).collect())
    });
    let (a, b) = tokio::join!(rig.acquire("a", None), rig.acquire("b", None));
    assert_eq!(together.load(Ordering::Relaxed), 2, "both were in one batch");
    let a = a.unwrap();
    assert!(matches!(b, Err(EngineError::LedgerUnavailable(_))), "{b:?}");
    assert!(!a.again);
    assert_eq!(rig.lock(a.grant.lock).await.ended, None);
    rig.write("a", a.grant.token).await.unwrap();
}

/// Somebody else gets the lock while the answer to a grant is lost, so that its rerun is refused and buries its
/// id, which nobody released: a wait goes on under another one. Under an id that the caller chose, the refusal is
/// told.
#[tokio::test]
async fn a_wait_whose_rerun_was_refused_is_not_told_of_a_release() {
    for id in [None, Some(LockId(random_id()))] {
        let rig = Rig::new();
        let (memory, mint) = (rig.memory(), Arc::clone(&rig.mint));
        let ttl_ms = if id.is_none() { 500 } else { 3_600_000 };
        let mut first = true;
        rig.ledger.on_seal(move |_, _| {
            if !std::mem::take(&mut first) {
                return Step::act();
            }
            let (memory, mint) = (Arc::clone(&memory), Arc::clone(&mint));
            Step::fail(lost()).and_then(async move {
                let number = next_number(&mint).await;
                seal_as(&memory, "faster", number, ttl_ms).await;
            })
        });
        let wait = Duration::from_secs(10);
        let answer = rig.engine.acquire(Acquire { id, wait, ..asking(R) }).await;
        match (id, answer) {
            (None, Ok(acquired)) => assert!(!acquired.again),
            (Some(_), Err(EngineError::Held(holder))) => assert_eq!(holder.owner, "faster"),
            (_, answer) => panic!("{answer:?}"),
        }
    }
}

/// A grant that is sealed, whose caller then gives up, and whose answer is then lost.
async fn given_up_and_lost(rig: &Rig, id: Option<LockId>) {
    let gate = Arc::new(Notify::new());
    let (gone, resent) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let calls = Arc::clone(&resent);
    rig.ledger.on_seal(move |_, _| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Step::act_but(lost()).and_then(opened(&gone)),
        _ => Step::act(),
    });
    let answer = rig.acquire(R, id).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    rig.until_state(R, LockState::Leased).await;
    gate.notify_one();
    eventually("the grant is sent again", async || {
        (resent.load(Ordering::Relaxed) > 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_grant_whose_caller_gave_up_is_given_back() {
    let rig = Rig::new();
    given_up_and_lost(&rig, None).await;
    rig.until_state(R, LockState::Released).await;
    rig.granted(R).await;
}

#[tokio::test]
async fn a_lost_grant_whose_caller_chose_the_id_is_kept_for_it() {
    let rig = Rig::new();
    let mine = LockId(random_id());
    let released = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&released);
    rig.ledger.on_release(move |items, _| {
        count.fetch_add(items.len(), Ordering::Relaxed);
        Step::act()
    });
    given_up_and_lost(&rig, Some(mine)).await;
    let acquired = rig.acquire(R, Some(mine)).await.unwrap();
    assert_eq!((acquired.grant.lock, acquired.again), (mine, true));
    assert_eq!(released.load(Ordering::Relaxed), 0);
    rig.write(R, acquired.grant.token).await.unwrap();
}

/// A paused clock stands still as long as anybody has something to do, so that the time shows what was waited for.
#[tokio::test(start_paused = true)]
async fn a_grant_that_was_delivered_but_not_taken_is_given_back() {
    let rig = Rig::new();
    let sealed = Arc::new(Notify::new());
    let done = Arc::clone(&sealed);
    rig.ledger.on_seal(move |_, _| {
        let done = Arc::clone(&done);
        Step::act().and_then(async move { done.notify_one() })
    });
    {
        let mut call = Box::pin(rig.acquire(R, None));
        tokio::select! {
            biased;
            () = sealed.notified() => {}
            answer = &mut call => panic!("taken: {answer:?}"),
        }
        // This one is in a later batch, so the first has been delivered by then.
        rig.granted("other").await;
        rig.until_state(R, LockState::Leased).await;
    }
    let since = Instant::now();
    rig.until_state(R, LockState::Released).await;
    assert!(since.elapsed() < Duration::from_secs(1), "given back after {:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sealed_for_a_caller_who_has_left() {
    let rig = Rig::new();
    let (gate, seen) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (first, names) = (Arc::clone(&gate), Arc::clone(&seen));
    rig.ledger.on_seal(move |items, _| {
        let mut names = names.lock().unwrap();
        names.extend(items.iter().map(|item| item.resources[0].to_string()));
        if names.len() == 1 { Step::act().after(opened(&first)) } else { Step::act() }
    });
    let leaving = async {
        eventually("the first is under way", async || {
            (!seen.lock().unwrap().is_empty()).then_some(())
        })
        .await;
        let left = tokio::time::timeout(Duration::from_millis(100), rig.acquire("b", None)).await;
        assert!(left.is_err(), "it stands behind the first");
        gate.notify_one();
    };
    let (first, ()) = tokio::join!(rig.acquire("a", None), leaving);
    first.unwrap();
    rig.granted("c").await;
    assert_eq!(*seen.lock().unwrap(), ["a", "c"]);
}

#[tokio::test]
async fn a_mint_that_has_gone_back_is_given_a_new_epoch() {
    let rig = Rig::new();
    let held = rig.granted("held").await;
    let mut last = 0;
    for round in 1..=3 {
        for _ in 0..10 {
            let grant = rig.granted(R).await;
            assert!(grant.token.get() > last, "{} after {last}", grant.token);
            last = grant.token.get();
            rig.engine.release(grant.lock, Permit::default()).await.unwrap();
        }
        match round {
            1 => rig.mint.set_number(0),
            2 => rig.mint.wipe(),
            _ => break,
        }
        assert_eq!(rig.ledger.epoch().await.unwrap().number, round - 1);
    }
    let epoch = rig.ledger.epoch().await.unwrap();
    assert_eq!((epoch.number, epoch.open), (2, true));
    rig.write("held", held.token).await.unwrap();
}

#[tokio::test]
async fn an_epoch_that_somebody_began_and_did_not_open_is_completed() {
    let rig = Rig::new();
    let first = rig.granted(R).await;
    rig.engine.release(first.lock, Permit::default()).await.unwrap();
    // As by a gateway that died before it could tell the mint.
    let nonce = random_id();
    let begun = rig.memory().switch_epoch(0, nonce, 0, "test").await.unwrap();
    assert!(!begun.open);
    let next = rig.granted(R).await;
    assert!(next.token > first.token);
    let epoch = rig.ledger.epoch().await.unwrap();
    assert_eq!((epoch.number, epoch.nonce, epoch.open), (1, nonce, true));
    assert_eq!(rig.mint.incarnation().await, Ok(Some(nonce)));
    let witness = rig.mint.head().await.unwrap().witness.unwrap();
    assert_eq!(witness.base, epoch.base);
}

#[tokio::test]
async fn a_mint_that_serves_another_ledger_is_left_alone() {
    let rig = Rig::new();
    let held = rig.granted("held").await;
    rig.mint.wipe();
    let (nonce, ledger) = (random_id(), random_id());
    rig.mint.adopt(nonce, ledger).await.unwrap();
    let answer = rig.acquire(R, None).await;
    let Err(EngineError::MintRegressed(why)) = answer else { panic!("{answer:?}") };
    assert!(why.contains("serves another ledger"), "{why}");
    let head = rig.mint.head().await.unwrap();
    assert_eq!((head.incarnation, head.ledger), (Some(nonce), Some(ledger)));
    assert_eq!(rig.ledger.epoch().await.unwrap().number, 0);
    rig.write("held", held.token).await.unwrap();
}

/// Another gateway mints and seals before each of the first `times` seals, and lets its lock expire.
fn outrun(rig: &Rig, times: usize) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let (memory, mint, counted) = (rig.memory(), Arc::clone(&rig.mint), Arc::clone(&calls));
    rig.ledger.on_seal(move |_, _| {
        if counted.fetch_add(1, Ordering::Relaxed) >= times {
            return Step::act();
        }
        let (memory, mint) = (Arc::clone(&memory), Arc::clone(&mint));
        Step::act().after(async move {
            let number = next_number(&mint).await;
            let faster = seal_as(&memory, "faster", number, 0).await;
            assert!(matches!(faster, SealVerdict::Sealed(..)), "{faster:?}");
        })
    });
    calls
}

#[tokio::test]
async fn a_grant_that_loses_a_race_is_numbered_anew() {
    let rig = Rig::new();
    outrun(&rig, 1);
    assert_eq!(rig.granted(R).await.token.get(), 3);
}

#[tokio::test]
async fn a_grant_that_loses_every_race_is_no_sign_of_a_mint_that_went_back() {
    let rig = Rig::new();
    let calls = outrun(&rig, usize::MAX);
    let answer = rig.acquire(R, None).await;
    assert!(matches!(answer, Err(EngineError::MintUnavailable(_))), "{answer:?}");
    assert!(calls.load(Ordering::Relaxed) > 1, "it was numbered anew");
}

/// Acquires under an id of the caller's choice and is gone when the ledger has sealed it.
async fn gone_once_sealed(rig: &Rig, mine: LockId) {
    let sealed = Arc::new(Notify::new());
    let done = Arc::clone(&sealed);
    rig.ledger.on_seal(move |_, _| {
        let done = Arc::clone(&done);
        Step::act().and_then(async move { done.notify_one() })
    });
    let mut call = Box::pin(rig.acquire(R, Some(mine)));
    tokio::select! {
        biased;
        () = sealed.notified() => {}
        answer = &mut call => panic!("taken: {answer:?}"),
    }
    drop(call);
    rig.until_state(R, LockState::Leased).await;
}

/// The clock is paused, so that these are ten seconds, however long the test takes.
#[tokio::test(start_paused = true)]
async fn a_grant_under_a_proposed_id_that_was_not_taken_waits_for_its_caller() {
    let rig = Rig::new();
    let mine = LockId(random_id());
    gone_once_sealed(&rig, mine).await;
    let since = Instant::now();
    rig.until_state(R, LockState::Released).await;
    let kept_s = since.elapsed().as_secs_f64().round();
    assert!((9.0..=11.0).contains(&kept_s), "given back after {:?}", since.elapsed());
    let answer = rig.acquire(R, Some(mine)).await;
    assert!(matches!(answer, Err(EngineError::LockEnded(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_under_a_proposed_id_that_was_taken_up_stays() {
    let rig = Rig::new();
    let mine = LockId(random_id());
    gone_once_sealed(&rig, mine).await;
    let (asked, mut count) = counter();
    rig.ledger.on_release(move |_, _| {
        count();
        Step::act()
    });
    let acquired = rig.acquire(R, Some(mine)).await.unwrap();
    assert_eq!((acquired.grant.lock, acquired.again), (mine, true));
    eventually("the time is up", async || (asked.load(Ordering::Relaxed) > 0).then_some(())).await;
    // This goes through the same queue after it.
    rig.engine.release(LockId(random_id()), Permit::default()).await.unwrap();
    assert_eq!(rig.lock(mine).await.ended, None);
    rig.write(R, acquired.grant.token).await.unwrap();
}

#[tokio::test]
async fn an_undelivered_grant_is_released_once_the_ledger_answers_again() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (calls, mut call) = counter();
    rig.ledger.on_release(move |_, _| match call() {
        0..8 => Step::fail(rolled_back()),
        _ => Step::act(),
    });
    rig.engine.undelivered(&grant, false);
    rig.until_state(R, LockState::Released).await;
    assert!(calls.load(Ordering::Relaxed) > 8, "it was tried again");
}

/// What was given back here a moment ago is granted without a look, once.
#[tokio::test]
async fn a_lock_that_was_just_given_back_is_granted_without_a_look() {
    let rig = Rig::new();
    let (looks, mut look) = counter();
    rig.ledger.on_look(move || _ = look());
    let looks = move || looks.load(Ordering::Relaxed);
    let first = rig.granted(R).await;
    assert_eq!(looks(), 1);
    rig.engine.release(first.lock, Permit::default()).await.unwrap();
    rig.granted(R).await;
    assert_eq!(looks(), 1);
    let answer = rig.acquire(R, None).await;
    assert!(matches!(answer, Err(EngineError::Held(_))), "{answer:?}");
    assert_eq!(looks(), 2);
}

/// The hint of a release is wrong when another gateway was faster: the caller hears who holds it, also while
/// there are no numbers to be had.
#[tokio::test]
async fn a_lock_that_another_gateway_took_since_is_refused() {
    for (mint_is_up, id) in [(true, None), (true, Some(LockId(random_id()))), (false, None)] {
        let rig = Rig::new();
        let first = rig.granted(R).await;
        rig.engine.release(first.lock, Permit::default()).await.unwrap();
        let sealed = seal_as(&rig.memory(), "bob", first.token.get() + 10, 3_600_000).await;
        assert!(matches!(sealed, SealVerdict::Sealed(..)));
        rig.mint.set_available(mint_is_up);
        let answer = rig.acquire(R, id).await;
        let Err(EngineError::Held(holder)) = answer else { panic!("{answer:?}") };
        assert_eq!(holder.owner, "bob");
    }
}

/// The answer to a grant without a look was lost, it is found to be sealed, and then nothing more can be done: it is
/// not said that nothing was.
#[tokio::test]
async fn a_grant_that_was_sealed_and_cannot_be_come_back_to_is_unknown() {
    let rig = Rig::new();
    let first = rig.granted(R).await;
    rig.engine.release(first.lock, Permit::default()).await.unwrap();
    let (_, mut seal) = counter();
    rig.ledger.on_seal(move |_, _| match seal() {
        0 => Step::act_but(lost()),
        1 => Step::act(),
        _ => Step::fail(LedgerError::RefenceRequired("it went back".into())),
    });
    let mine = LockId(random_id());
    let answer = rig.acquire(R, Some(mine)).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    assert_eq!(rig.memory().lock(mine).await.unwrap().unwrap().grant.lock, mine);
}

/// The mint is asked once: a caller does not wait for it twice, even if it is back by then.
#[tokio::test]
async fn a_lock_that_is_free_while_there_are_no_numbers_is_refused_after_one_try() {
    let rig = Rig::new();
    let first = rig.granted(R).await;
    rig.engine.release(first.lock, Permit::default()).await.unwrap();
    rig.mint.set_available(false);
    let mint = Arc::clone(&rig.mint);
    rig.ledger.on_look(move || mint.set_available(true));
    let answer = rig.acquire(R, None).await;
    assert!(matches!(answer, Err(EngineError::MintUnavailable(_))), "{answer:?}");
    rig.granted(R).await;
}

/// Rows that anybody can make do not come without end: beyond so many a second nothing is done. What is
/// known is released all the same.
#[tokio::test]
async fn burials_of_ids_that_never_were_are_bounded() {
    let rig = Rig::new();
    let lock = rig.granted(R).await.lock;
    let ids: Vec<LockId> = (0..2_000).map(|_| LockId(random_id())).collect();
    let mut released = Vec::new();
    for ids in ids.chunks(50) {
        released.extend(
            join_all(ids.iter().map(|id| rig.engine.release(*id, Permit::default()))).await,
        );
    }
    let mut refused = Vec::new();
    for (id, released) in ids.iter().zip(released) {
        match released {
            Ok(released) => assert_eq!(released, Released::Buried),
            Err(EngineError::TooManyBurials) => refused.push(*id),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!((1..=1_800).contains(&refused.len()), "{} were refused", refused.len());
    assert_eq!(
        rig.engine.release(lock, Permit::default()).await.unwrap(),
        Released::Ended(vec![name(R)])
    );
    let id = refused.first().copied();
    rig.engine.acquire(Acquire { id, ..asking(R) }).await.unwrap();
}
