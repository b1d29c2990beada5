//! Time: it is the driver's, and moves only when a scenario says so.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Call, Script};

/// Time and number of looks for which driver and gateways may differ on what is under way. They agree in the end, unless one of them
/// hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const ASKED: u32 = 1000;
/// Time between two looks.
const BREATH: Duration = Duration::from_millis(1);
/// The longest step, in milliseconds.
const STEP: u64 = 5000;

impl Script {
    /// The time, in milliseconds since the driver began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Lets so much time pass, whatever happens meanwhile.
    pub async fn pass(&mut self, ms: u64) -> Result<()> {
        let end = self.now + ms;
        self.settle().await?;
        while self.now < end {
            self.step(end - self.now).await?;
        }
        Ok(())
    }

    /// Lets so much time pass at once, as if the driver had been stopped.
    pub async fn leap(&mut self, ms: u64) -> Result<()> {
        self.settle().await?;
        self.advance(ms, true).await?;
        self.settle().await
    }

    /// Lets some of this time pass, until an attempt begins at the latest, and everything after it settle.
    pub(super) async fn step(&mut self, at_most: u64) -> Result<()> {
        let waiting = self.advance(at_most.min(STEP), false).await?;
        if waiting == self.shared.waiting() { self.look() } else { self.settle().await }
    }

    /// Lets everything run that needs no time.
    pub async fn settle(&mut self) -> Result<()> {
        let (since, mut asked) = (Instant::now(), 0);
        loop {
            let (driver, gateways) = (self.advance(0, false).await?, self.shared.waiting());
            if driver == gateways {
                return self.look();
            }
            asked += 1;
            ensure!(
                asked < ASKED || since.elapsed() < PATIENCE,
                "the driver waits for answers to {driver:?}, and the gateways have {gateways:?} to answer"
            );
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Moves the driver's clock, and gives the ids of the requests for whose heads of answers the driver waits, sorted.
    async fn advance(&mut self, ms: u64, leap: bool) -> Result<Vec<String>> {
        let mut command = json!({"do": "advance", "ms": ms});
        if leap {
            command["leap"] = json!(true);
        }
        let call = self.give(command).await?;
        let answer = self.answer_of(call).await?;
        let ok = answer.get("ok").with_context(|| format!("`advance` failed: {answer}"))?;
        self.now += ok["advanced"].as_u64().context("`advance` says how far it came")?;
        let waiting = ok["waiting"].as_array().context("`advance` says what has no answer yet")?;
        let mut ids: Vec<_> = waiting.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn answer_of(&mut self, call: Call) -> Result<Value> {
        loop {
            if let Some(answer) = self.answers.remove(&call.0) {
                return Ok(answer);
            }
            let line = self.driver.line().await?;
            self.take_in(line);
        }
    }
}
