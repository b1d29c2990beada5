//! What the engine says of an act whose answer was lost, which was rolled back, or which was broken
//! off, on a ledger that goes as each test says.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on a clock of its own")]

use fencegate::engine::access::Permit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_core::ports::{Ledger as _, LedgerError, OperationRecord, Patience, WriteVerdict};
use fence_core::{LockId, LockState};
use fence_tests::process::eventually;
use fence_tests::scripted::{Step, lost, rolled_back};
use fencegate::engine::{EngineError, Write};
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::rig::{R, Rig, counter, name, opened, put};

/// A lost answer first, then nothing but rollbacks; the number of the call is counted from 0.
fn lost_then_rolled_back<V>(call: usize) -> Step<V> {
    if call == 0 { Step::fail(lost()) } else { Step::fail(rolled_back()) }
}

#[tokio::test]
async fn a_release_that_was_lost_and_then_rolled_back_is_unknown() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (_, mut call) = counter();
    rig.ledger.on_release(move |_, _| lost_then_rolled_back(call()));
    let answer = rig.engine.release(grant.lock, Permit::default()).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    // It is sent until the ledger decides.
    rig.ledger.on_release(|_, _| Step::act());
    rig.until_state(R, LockState::Released).await;
}

#[tokio::test]
async fn a_renewal_that_was_lost_and_then_rolled_back_is_unknown() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (calls, mut call) = counter();
    rig.ledger.on_renew(move |_, _| lost_then_rolled_back(call()));
    let answer = rig.engine.renew(grant.lock, None, Permit::default()).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    assert!(calls.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn a_break_that_was_lost_and_then_rolled_back_is_unknown() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (_, mut call) = counter();
    rig.ledger.on_break(move |_, _| lost_then_rolled_back(call()));
    let answer = rig.break_lock().await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
    rig.ledger.on_break(|_, _| Step::act());
    eventually("the lock is broken", async || rig.lock(grant.lock).await.ended).await;
}

#[tokio::test]
async fn a_release_that_was_lost_and_then_refused_is_unknown() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (_, mut call) = counter();
    rig.ledger.on_release(move |_, _| match call() {
        0 => Step::act_but(lost()),
        _ => Step::fail(LedgerError::Defect("on purpose".into())),
    });
    let answer = rig.engine.release(grant.lock, Permit::default()).await;
    assert!(matches!(answer, Err(EngineError::OutcomeUnknown { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_write_that_always_times_out_holds_up_no_other_resource() {
    let rig = Rig::new();
    let (big, other) = (rig.granted("big").await, rig.granted("other").await);
    let (calls, mut call) = counter();
    rig.ledger.on_commit(move |items, _| {
        match items.iter().any(|item| item.resource.as_str() == "big") {
            true => lost_then_rolled_back(call()),
            false => Step::act(),
        }
    });
    let beside = async {
        eventually("the write is sent again", async || {
            (calls.load(Ordering::Relaxed) > 1).then_some(())
        })
        .await;
        for version in 1..=5 {
            let written = rig.write("other", other.token).await.unwrap();
            assert_eq!(written.applied.version, Some(version));
        }
    };
    let (stuck, ()) = tokio::join!(rig.write("big", big.token), beside);
    let error = stuck.unwrap_err().error;
    assert!(matches!(error, EngineError::OutcomeUnknown { .. }), "{error:?}");
    rig.write("other", other.token).await.unwrap();
}

#[tokio::test]
async fn eight_stuck_rows_do_not_starve_a_ninth() {
    let rig = Rig::new();
    let names: Vec<String> = (0..9).map(|n| format!("r{n}")).collect();
    let mut tokens = Vec::new();
    for name in &names {
        tokens.push(rig.granted(name).await.token);
    }
    // The ninth is busy once, the others for ever.
    rig.ledger.on_commit(|items, patience| match patience {
        Patience::Wait(_) if items[0].resource.as_str() == "r8" => Step::act(),
        Patience::Wait(time) => Step::each(vec![Some(WriteVerdict::Busy)]).after(async move {
            drop(tokio::time::timeout(time / 10, std::future::pending::<()>()).await)
        }),
        Patience::Skip => Step::each(items.iter().map(|_| Some(WriteVerdict::Busy)).collect()),
    });
    let writes = names.iter().zip(&tokens).map(|(name, token)| rig.write(name, *token));
    let mut outcomes = join_all(writes).await;
    let ninth = outcomes.pop().unwrap();
    assert!(ninth.is_ok(), "{ninth:?}");
    for stuck in outcomes {
        let error = stuck.unwrap_err().error;
        assert!(matches!(error, EngineError::Busy), "{error:?}");
    }
}

/// Those whose row somebody keeps for long wait for it all at once, as many as may, until the end of this test.
#[tokio::test]
async fn lanes_that_are_stuck_do_not_stand_before_one_that_is_only_busy() {
    let rig = Rig::new();
    let names: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    let mut tokens = Vec::new();
    for name in &names {
        tokens.push(rig.granted(name).await.token);
    }
    let hot = rig.granted("hot").await.token;
    let (kept, (stuck, mut count)) = (Arc::new(Notify::new()), counter());
    let gate = Arc::clone(&kept);
    let mut is_busy = false;
    rig.ledger.on_commit(move |items, patience| {
        let busy = || Step::each(items.iter().map(|_| Some(WriteVerdict::Busy)).collect());
        if items.iter().any(|item| item.resource.as_str() == "hot") {
            is_busy = !is_busy;
            return if is_busy { busy() } else { Step::act() };
        }
        match patience {
            Patience::Wait(time) if time > Duration::from_millis(100) => {
                count();
                busy().after(opened(&gate))
            }
            _ => busy(),
        }
    });
    let beside = async {
        eventually("as many as may wait for their rows", async || {
            (stuck.load(Ordering::Relaxed) >= 4).then_some(())
        })
        .await;
        for version in 1..=5 {
            let written = rig.write("hot", hot).await.unwrap();
            assert_eq!(written.applied.version, Some(version));
        }
        assert_eq!(stuck.load(Ordering::Relaxed), 4, "and none of them had its row");
    };
    let writes = names.iter().zip(&tokens).map(|(name, token)| rig.write(name, *token));
    let (outcomes, ()) = tokio::join!(join_all(writes), beside);
    assert!(outcomes.iter().all(Result::is_err));
    kept.notify_waiters();
}

/// A call that took too long is not sent again as it was: one of its items may be what takes so long.
#[tokio::test]
async fn a_batch_that_took_too_long_is_taken_apart() {
    let rig = Rig::new();
    let (good, slow) = (rig.granted("good").await, rig.granted("slow").await);
    let (calls, mut call) = counter();
    rig.ledger.on_commit(move |items, _| {
        call();
        match items.iter().any(|item| item.resource.as_str() == "slow") {
            true => Step::fail(LedgerError::Slow("on purpose".into())),
            false => Step::act(),
        }
    });
    let (slow, good) = tokio::join!(rig.write("slow", slow.token), rig.write("good", good.token));
    assert_eq!(good.unwrap().applied.version, Some(1));
    let error = slow.unwrap_err().error;
    assert!(matches!(error, EngineError::LedgerUnavailable(_)), "{error:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 3, "together, and then each by itself");
}

#[tokio::test]
async fn a_write_that_was_called_unknown_but_never_sent_ends_buried() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (gate, (_, mut call)) = (Arc::new(Notify::new()), counter());
    let connected = Arc::clone(&gate);
    rig.ledger.on_commit(move |_, _| match call() {
        0 => Step::fail(rolled_back()).after(opened(&connected)),
        _ => Step::act(),
    });
    let failure = rig.write(R, grant.token).await.unwrap_err();
    assert!(matches!(failure.error, EngineError::OutcomeUnknown { .. }), "{failure:?}");
    assert_eq!(rig.engine.operation(failure.operation).await.unwrap(), None);
    gate.notify_one();
    assert_eq!(rig.until_known(failure.operation).await, OperationRecord::Buried);
    assert_eq!(rig.write(R, grant.token).await.unwrap().applied.version, Some(1));
}

#[tokio::test]
async fn a_defect_in_one_write_does_not_fail_those_beside_it() {
    let rig = Rig::new();
    let (good, bad) = (rig.granted("good").await, rig.granted("bad").await);
    let together = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&together);
    rig.ledger.on_commit(move |items, _| {
        most.fetch_max(items.len(), Ordering::Relaxed);
        match items.iter().any(|item| item.resource.as_str() == "bad") {
            true => Step::fail(LedgerError::Defect("on purpose".into())),
            false => Step::act(),
        }
    });
    let (bad, good) = tokio::join!(rig.write("bad", bad.token), rig.write("good", good.token));
    assert_eq!(together.load(Ordering::Relaxed), 2, "both were in one batch");
    assert_eq!(good.unwrap().applied.version, Some(1));
    let error = bad.unwrap_err().error;
    assert!(matches!(error, EngineError::Defect(_)), "{error:?}");
}

#[tokio::test]
async fn a_write_whose_answer_cannot_be_read_is_unknown_and_not_sent_again() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&sent);
    rig.ledger.on_commit(move |items, _| {
        let mut all = all.lock().unwrap();
        all.extend(items.iter().map(|item| item.operation));
        match all.len() {
            1 => Step::act_but(LedgerError::Unreadable("on purpose".into())),
            _ => Step::act(),
        }
    });
    let failure = rig.write(R, grant.token).await.unwrap_err();
    assert!(matches!(failure.error, EngineError::OutcomeUnknown { .. }), "{failure:?}");
    // If it were sent again, then before this one.
    let next = rig.write(R, grant.token).await.unwrap().applied;
    assert_eq!(next.version, Some(2));
    assert_eq!(*sent.lock().unwrap(), [failure.operation, next.operation]);
}

#[tokio::test]
async fn a_write_that_the_ledger_has_forgotten_is_unknown_and_not_sent_again() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (calls, mut call) = counter();
    rig.ledger.on_commit(move |_, _| match call() {
        0 => Step::act_but(LedgerError::Unknown("on purpose".into())),
        1 => Step::each(vec![Some(WriteVerdict::Forgotten)]),
        _ => Step::act(),
    });
    let failure = rig.write(R, grant.token).await.unwrap_err();
    assert!(matches!(failure.error, EngineError::OutcomeUnknown { .. }), "{failure:?}");
    let next = rig.write(R, grant.token).await.unwrap().applied;
    assert_eq!(next.version, Some(2), "it was applied, and once");
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn writes_on_one_resource_keep_their_order_through_a_lane() {
    let rig = Rig::new();
    let (grant, other) = (rig.granted(R).await, rig.granted("other").await);
    let (gate, (_, mut call)) = (Arc::new(Notify::new()), counter());
    let freed = Arc::clone(&gate);
    rig.ledger.on_commit(move |items, _| match call() {
        0 => Step::each(items.iter().map(|_| Some(WriteVerdict::Busy)).collect()),
        1 => Step::act().after(opened(&freed)),
        _ => Step::act(),
    });
    let in_sequence = async |range: std::ops::RangeInclusive<i64>| {
        let write = |n| Write { sequence: Some(n), ..put(R, grant.token) };
        join_all(range.map(|n| rig.engine.write(write(n)))).await
    };
    let later = async {
        let on_other = async {
            // It is in a batch that was formed after those of R were queued.
            rig.write("other", other.token).await.unwrap();
            gate.notify_one();
        };
        tokio::join!(in_sequence(4..=6), on_other).0
    };
    let (first, later) = tokio::join!(in_sequence(1..=3), later);
    let versions = first.into_iter().chain(later).map(|write| write.unwrap().applied.version);
    assert!(versions.eq((1..=6).map(Some)));
}

#[tokio::test]
async fn what_waits_on_a_lane_goes_together() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (calls, mut call) = counter();
    let calls = move || calls.load(Ordering::Relaxed);
    let gate = Arc::new(Notify::new());
    let freed = Arc::clone(&gate);
    rig.ledger.on_commit(move |items, _| match call() {
        0 => Step::each(items.iter().map(|_| Some(WriteVerdict::Busy)).collect()),
        // Meanwhile all others queue up behind it.
        1 => Step::act().after(opened(&freed)),
        _ => Step::act(),
    });
    let first = rig.write(R, grant.token);
    let others = async {
        eventually("the first is on its lane", async || (calls() == 2).then_some(())).await;
        let others = join_all((0..40).map(|_| rig.write(R, grant.token)));
        let open = async { gate.notify_one() };
        tokio::join!(others, open).0
    };
    let (first, others) = tokio::join!(first, others);
    assert!(first.is_ok() && others.iter().all(Result::is_ok));
    assert!(calls() < 12, "{} calls for 41 writes", calls());
}

#[tokio::test]
async fn a_buried_lock_id_does_not_touch_the_operation_with_the_same_uuid() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let (memory, (_, mut call)) = (rig.memory(), counter());
    rig.ledger.on_commit(move |items, _| match call() {
        0 => {
            let (memory, id) = (Arc::clone(&memory), LockId(items[0].operation.0));
            Step::act_but(lost()).and_then(async move {
                memory.release([id.into()].into(), Patience::Skip).await.unwrap();
            })
        }
        _ => Step::act(),
    });
    let written = rig.write(R, grant.token).await.unwrap();
    assert_eq!(written.applied.version, Some(1));
    let record = rig.engine.operation(written.applied.operation).await.unwrap();
    assert_eq!(record, Some(OperationRecord::Applied(written.applied)));
    assert_eq!(rig.ledger.resource(&name(R)).await.unwrap().unwrap().version, 1);
}

/// Callers are answered in the time that the gateway promises, whatever becomes of the ledger. The clock is paused: the
/// speed of the machine takes no part.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_answers_nothing_keeps_no_caller_for_longer_than_is_promised() {
    let rig = Rig::new();
    let (held, free) = (rig.granted(R).await, name("free"));
    rig.ledger.on_commit(|_, _| Step::act().after(std::future::pending()));
    rig.ledger.on_seal(|_, _| Step::act().after(std::future::pending()));
    rig.ledger.on_renew(|_, _| Step::act().after(std::future::pending()));
    rig.ledger.on_release(|_, _| Step::act().after(std::future::pending()));
    rig.ledger.on_break(|_, _| Step::act().after(std::future::pending()));
    let promised = rig.engine.about().await.answer_within;
    let began = Instant::now();
    let permit = Permit::default;
    let answers = async {
        tokio::join!(
            async { rig.write(R, held.token).await.map_err(|failure| failure.error).map(drop) },
            async { rig.acquire(free.as_str(), None).await.map(drop) },
            async { rig.engine.renew(held.lock, None, permit()).await.map(drop) },
            async { rig.engine.release(held.lock, permit()).await.map(drop) },
            async { rig.break_lock().await.map(drop) },
        )
    };
    let (write, grant, renewal, release, broken) = answers.await;
    assert!(began.elapsed() <= promised, "{:?} of {promised:?}", began.elapsed());
    for answer in [write, grant, renewal, release, broken] {
        let error = answer.unwrap_err();
        assert_eq!(error.code().status(), 503, "{error:?}");
    }
}

/// Twice as much is asked as the ledger can do, by callers who come back. Those who could not be served in time are
/// told so before anything of theirs is sent: of what is applied nearly all is told, and nothing is unknown. The clock is
/// paused: the ledger alone is slow, not the machine.
#[tokio::test(start_paused = true)]
async fn under_overload_what_is_applied_is_told() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let slow = Duration::from_millis(900);
    rig.ledger.on_commit(move |_, _| Step::act().and_then(tokio::time::sleep(slow)));
    let until = Instant::now() + Duration::from_secs(6);
    let (told, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let caller = async || {
        while Instant::now() < until {
            match rig.write(R, grant.token).await {
                Ok(_) => told.fetch_add(1, Ordering::Relaxed),
                Err(failure) => match failure.error {
                    EngineError::Overloaded(_) | EngineError::LedgerUnavailable(_) => {
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                    error => panic!("{error:?}"),
                },
            };
        }
    };
    join_all((0..200).map(|_| caller())).await;
    let applied = rig.ledger.resource(&name(R)).await.unwrap().unwrap().version;
    let (told, refused) = (told.into_inner(), refused.into_inner());
    assert!(refused > 100, "{refused} were turned away");
    assert!(told * 10 >= usize::try_from(applied).unwrap() * 9, "{told} of {applied} were told");
}

/// What is left behind faster than one pass in each interval removes it would stay for ever.
#[tokio::test(start_paused = true)]
async fn the_sweeper_goes_on_while_its_passes_are_full() {
    let interval = Duration::from_secs(2);
    let rig = Rig::sweeping(None, interval);
    let passes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passes);
    rig.ledger.on_sweep(move || if count.fetch_add(1, Ordering::Relaxed) < 10 { 100 } else { 0 });
    let began = Instant::now();
    eventually("a pass is not full", async || (passes.load(Ordering::Relaxed) > 10).then_some(()))
        .await;
    assert!(began.elapsed() < 2 * interval, "{:?}", began.elapsed());
}
