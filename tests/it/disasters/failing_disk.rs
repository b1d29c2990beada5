//! A disk that fails one sync, takes what it did not sync for stored, and loses it at a power cut: twenty
//! times, at random moments under load. What was acknowledged is there, every token that was given out is a
//! grant, versions are gapless.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fence_tests::failing_disk::{FailingDisk, LEDGER, LOG};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::survey;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::disasters::kill9::{Work, Writer, all_of, check_in_ledger, check_over_http};
use crate::ledger::history::History;

const WRITERS: usize = 8;
/// Some bodies are so long that the log is soon written back into the file.
const LENGTHS: [usize; 4] = [0, 0, 3_000, 200_000];

/// Where the disk fails in a round, and when its power is cut.
#[derive(Debug)]
struct Round {
    file: &'static str,
    /// Which sync of the file fails.
    nth: u32,
    /// Whether it fails while the log is short: what it loses is in no earlier page of the log.
    soon: bool,
    /// Whether the power is cut for the first time in the start after the failure, when the ledger has
    /// what the log had, and the log is about to go.
    cut_at_start: bool,
}

impl Round {
    fn draw(rng: &mut StdRng) -> Self {
        let cut_at_start = rng.random_bool(0.5);
        match (rng.random_bool(0.8), rng.random_bool(0.5)) {
            (true, true) => {
                Self { file: LOG, nth: rng.random_range(2..8), soon: true, cut_at_start }
            }
            (true, _) => {
                Self { file: LOG, nth: rng.random_range(1..60), soon: false, cut_at_start }
            }
            (false, _) => Self { file: LEDGER, nth: 1, soon: false, cut_at_start },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_with_a_failed_sync_and_a_power_cut() {
    let mut rng = StdRng::seed_from_u64(survey::seed());
    let disk = FailingDisk::new();
    let mut gateway =
        disk.under(Gateway::embedded().env("FENCEGATE_REQUEST_TIMEOUT", "1s")).start().await;
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let writers = (0..WRITERS).map(|number| Writer {
        number,
        clients: vec![gateway.client()],
        stop: Arc::clone(&stop),
        acknowledged: Arc::clone(&acknowledged),
        length: LENGTHS[number % LENGTHS.len()],
        done: Work::default(),
        grants: 0,
    });
    let load = join_all(writers.map(Writer::work));
    let reader = gateway.client();
    let reads = async {
        while !stop.load(Ordering::SeqCst) {
            let _whatever_comes = reader.get("/resources").try_send().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let mut unsynced = 0;
    let times = survey::size(4, 20);
    let rounds = async {
        for _ in 0..times {
            let round = Round::draw(&mut rng);
            if !round.soon {
                writes_go_on(&acknowledged).await;
            }
            disk.fail_sync(round.file, round.nth);
            ends_by_itself(&mut gateway).await;
            unsynced += disk.unsynced();
            if round.cut_at_start {
                disk.cut_at_truncation_of(LOG);
                gateway.spawn();
                cut_or_ready(&mut gateway).await;
                disk.lose_unsynced(&gateway);
            }
            gateway.restart().await;
            writes_go_on(&acknowledged).await;
            gateway.kill9();
            disk.lose_unsynced(&gateway);
            gateway.restart().await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let (work, (), ()) = tokio::join!(load, reads, rounds);
    let (writes, locks) = all_of(work);
    check_over_http(&gateway.client(), &writes).await;
    gateway.kill9();
    let history = History::of_sqlite(&gateway).await;
    history.check();
    check_in_ledger(&history, &writes, &locks);
    let (writes, locks) = (writes.len(), locks.len());
    eprintln!("{times} rounds, {writes} writes, {locks} locks, {unsynced} pages not synced");
    assert!(unsynced >= times, "the syncs that failed had something to sync");
}

async fn writes_go_on(acknowledged: &AtomicUsize) {
    let seen = acknowledged.load(Ordering::SeqCst);
    eventually("writes go on", async || {
        (acknowledged.load(Ordering::SeqCst) >= seen + 2 * WRITERS).then_some(())
    })
    .await;
}

/// Waits until the power was cut. A start that does not come to that point is cut when it is ready.
async fn cut_or_ready(gateway: &mut Gateway) {
    let client = gateway.client();
    eventually("the power is cut, or the gateway is ready", async || {
        let ready = client.get("/readyz").try_send().await.is_ok_and(|answer| answer.status == 200);
        (ready || !gateway.is_running()).then_some(())
    })
    .await;
    gateway.kill9();
}

/// With exit code 1, so that whoever supervises it starts it again, and the reason as its last line.
async fn ends_by_itself(gateway: &mut Gateway) {
    let status = gateway.wait_for_exit().await;
    let log = gateway.log();
    let last = log.lines().last().unwrap_or_default();
    assert_eq!(status.code(), Some(1), "{last}");
    assert!(last.starts_with("error: ") && last.contains("the ledger's disk failed"), "{last}");
}
