//! Virtual time: it moves in small steps, and everything that can run does so in between.

use std::time::Duration;

use fencegate_client::attempts;
use serde_json::{Value, json};

use super::out::Out;

/// A step.
const STEP: Duration = Duration::from_millis(50);
/// How often tasks may run in a row before tokio looks at the network again, and some more.
const TURNS: u32 = 70;
/// Time for the network in what needs no time, given a few times over.
const BREATH: Duration = Duration::from_micros(300);
/// Count of looks in a row at which nothing had happened, after which all is quiet.
const QUIET: u32 = 3;

/// Moves the clock, at most until an attempt is begun.
pub async fn advance(out: &Out, ms: u64, leap: bool) -> Value {
    let before = out.now_ms();
    if leap {
        tokio::time::advance(Duration::from_millis(ms)).await;
    } else {
        step_by_step(ms).await;
    }
    settle().await;
    json!({"advanced": out.now_ms() - before, "waiting": attempts::waiting()})
}

async fn step_by_step(ms: u64) {
    let mut left = Duration::from_millis(ms);
    settle().await;
    let begun = attempts::begun();
    while !left.is_zero() && attempts::begun() == begun {
        let step = left.min(STEP);
        tokio::time::advance(step).await;
        left -= step;
        turns().await;
    }
}

/// Lets everything run that needs no time.
async fn settle() {
    let mut quiet = 0;
    let mut last = (attempts::begun(), attempts::waiting());
    while quiet < QUIET {
        turns().await;
        // It comes after what was given to the one thread for such work before.
        let breath = tokio::task::spawn_blocking(|| std::thread::sleep(BREATH));
        let _ = breath.await;
        let now = (attempts::begun(), attempts::waiting());
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
}

async fn turns() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}
