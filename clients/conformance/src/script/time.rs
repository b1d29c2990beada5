//! Time: it is the driver's, and moves only when a scenario says so.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Call, Script};

/// How often driver and gateways are asked whether they agree on what is under way, a millisecond apart. They always
/// do in the end, unless bytes are stuck on purpose.
const ASKED: u32 = 400;
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
        self.look()?;
        match waiting {
            Some(waiting) if waiting == self.shared.waiting() => Ok(()),
            _ => self.settle().await,
        }
    }

    /// Lets everything run that needs no time.
    pub async fn settle(&mut self) -> Result<()> {
        for _ in 0..ASKED {
            let waiting = self.advance(0, false).await?;
            self.look()?;
            match waiting {
                Some(waiting) if waiting == self.shared.waiting() => return Ok(()),
                Some(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                None => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    return self.look();
                }
            }
        }
        Ok(())
    }

    /// Moves the driver's clock, and says for how many heads of answers the driver waits, if it knows.
    async fn advance(&mut self, ms: u64, leap: bool) -> Result<Option<i64>> {
        if !self.driver.about.virtual_time {
            let ms = ms.min(20);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            self.now += ms;
            self.look()?;
            return Ok(None);
        }
        let mut command = json!({"do": "advance", "ms": ms});
        if leap {
            command["leap"] = json!(true);
        }
        let call = self.give(command).await?;
        let answer = self.answer_of(call).await?;
        let ok = answer.get("ok").with_context(|| format!("`advance` failed: {answer}"))?;
        self.now += ok["advanced"].as_u64().context("`advance` says how far it came")?;
        Ok(ok["waiting"].as_i64())
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
