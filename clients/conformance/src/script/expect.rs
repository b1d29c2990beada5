//! What a scenario expects: requests, answers, events, and that none comes.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Call, Script};
use crate::server::Exchange;

/// How long a request may let itself be waited for, in virtual milliseconds, if the scenario does not care.
const REQUEST_WITHIN: u64 = 12_000;
/// The same for an answer of the driver.
const ANSWER_WITHIN: u64 = 100_000;

impl Script {
    /// The next request, which has to be this one.
    pub async fn take(&mut self, method: &str, path: &str) -> Result<Exchange> {
        self.take_within(REQUEST_WITHIN, method, path).await
    }

    /// The same, which has to come without any time.
    pub async fn take_now(&mut self, method: &str, path: &str) -> Result<Exchange> {
        self.take_within(0, method, path).await
    }

    /// The same, which has to come within so many milliseconds.
    pub async fn take_within(&mut self, ms: u64, method: &str, path: &str) -> Result<Exchange> {
        let exchange = self.any_within(ms).await?.with_context(|| {
            format!("within {ms} ms no request came, but {method} {path} was due")
        })?;
        let line = exchange.request.line();
        ensure!(exchange.request.is(method, path), "{line} came instead of {method} {path}");
        Ok(exchange)
    }

    /// The next request, if one comes within so many milliseconds.
    pub async fn any_within(&mut self, ms: u64) -> Result<Option<Exchange>> {
        let end = self.now + ms;
        self.settle().await?;
        loop {
            if let Some(exchange) = self.arrived.pop_front() {
                return Ok(Some(exchange));
            }
            if self.now >= end {
                return Ok(None);
            }
            self.step(end - self.now).await?;
        }
    }

    /// Lets so many milliseconds pass in which no request comes.
    pub async fn quiet(&mut self, ms: u64) -> Result<()> {
        match self.any_within(ms).await? {
            None => Ok(()),
            Some(exchange) => bail!("{} came, but nothing was due", exchange.request.line()),
        }
    }

    /// Refuses all requests that come until the command has its answer, and gives their number.
    pub async fn refuse_until(&mut self, call: Call, code: &str) -> Result<u64> {
        let mut refused = 0;
        let end = self.now + ANSWER_WITHIN;
        self.settle().await?;
        while !self.answers.contains_key(&call.0) {
            while let Some(exchange) = self.arrived.pop_front() {
                refused += 1;
                exchange.problem(code).await?;
            }
            ensure!(self.now < end, "after {ANSWER_WITHIN} ms the driver still goes on");
            self.step(end - self.now).await?;
        }
        Ok(refused)
    }

    /// The answer to a command, whatever it is and however long it takes.
    pub async fn answer(&mut self, call: Call) -> Result<Value> {
        self.answer_within(call, ANSWER_WITHIN).await
    }

    /// The answer to a command, which has to come within so many milliseconds.
    pub async fn answer_within(&mut self, call: Call, ms: u64) -> Result<Value> {
        let end = self.now + ms;
        self.settle().await?;
        loop {
            if let Some(answer) = self.answers.remove(&call.0) {
                return Ok(answer);
            }
            if let Some(exchange) = self.arrived.front() {
                bail!("{} came, but the driver's answer was due", exchange.request.line());
            }
            ensure!(self.now < end, "within {ms} ms the driver has not answered");
            self.step(end - self.now).await?;
        }
    }

    /// Whether a command still has no answer.
    pub async fn open(&mut self, call: Call) -> Result<bool> {
        self.settle().await?;
        Ok(!self.answers.contains_key(&call.0))
    }

    /// What a command gave.
    pub async fn ok(&mut self, call: Call) -> Result<Value> {
        given(&self.answer(call).await?)
    }

    /// The same, without any time.
    pub async fn ok_now(&mut self, call: Call) -> Result<Value> {
        given(&self.answer_within(call, 0).await?)
    }

    /// How a command failed: its class has to be this.
    pub async fn fails(&mut self, call: Call, class: &str) -> Result<Value> {
        failed(&self.answer(call).await?, class)
    }

    /// The same, without any time.
    pub async fn fails_now(&mut self, call: Call, class: &str) -> Result<Value> {
        failed(&self.answer_within(call, 0).await?, class)
    }

    /// The next event of this name; others are passed over.
    pub async fn event(&mut self, name: &str) -> Result<Value> {
        self.event_within(ANSWER_WITHIN, name).await
    }

    /// The same, which has to come within so many milliseconds.
    pub async fn event_within(&mut self, ms: u64, name: &str) -> Result<Value> {
        let end = self.now + ms;
        self.settle().await?;
        loop {
            while let Some(event) = self.events.pop_front() {
                if event["event"] == name {
                    return Ok(event);
                }
            }
            if let Some(exchange) = self.arrived.front() {
                bail!("{} came, but the event `{name}` was due", exchange.request.line());
            }
            ensure!(self.now < end, "within {ms} ms the event `{name}` has not come");
            self.step(end - self.now).await?;
        }
    }

    /// Tells whether an event of this name has come; others are passed over.
    pub async fn happened(&mut self, name: &str) -> Result<bool> {
        self.settle().await?;
        while let Some(event) = self.events.pop_front() {
            if event["event"] == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks that no such event has come.
    pub async fn no_event(&mut self, name: &str) -> Result<()> {
        self.settle().await?;
        match self.events.iter().find(|event| event["event"] == name) {
            None => Ok(()),
            Some(event) => bail!("this event came, but was not due: {event}"),
        }
    }
}

fn given(answer: &Value) -> Result<Value> {
    answer.get("ok").cloned().with_context(|| format!("it should have succeeded: {answer}"))
}

fn failed(answer: &Value, class: &str) -> Result<Value> {
    let error = answer.get("error").cloned();
    let error = error.with_context(|| format!("it should have failed as {class}: {answer}"))?;
    ensure!(error["class"] == class, "it should have failed as {class}: {error}");
    Ok(error)
}
