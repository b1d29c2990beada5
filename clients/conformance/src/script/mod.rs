//! The handle of a scenario: the gateways, the driver, and the time that stands between them.

mod checks;
mod commands;
mod expect;
mod time;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::driver::Driver;
use crate::server::{Exchange, Gateway, Shared};

pub use checks::{rises, same, uuid_version, within};
pub use commands::Held;

/// A command that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call(pub u64);

/// What a scenario plays with.
pub struct Script {
    /// The gateways.
    pub gateways: Vec<Gateway>,
    /// What they share: what they answer by themselves, what they have seen.
    pub shared: Arc<Shared>,
    driver: Driver,
    exchanges: mpsc::UnboundedReceiver<Exchange>,
    arrived: VecDeque<Exchange>,
    answers: HashMap<u64, Value>,
    events: VecDeque<Value>,
    calls: u64,
    now: u64,
}

impl Script {
    /// A scenario with so many gateways.
    pub async fn new(driver: Driver, gateways: usize) -> Result<Self> {
        let (shared, gateways, exchanges) = crate::server::start(gateways).await?;
        Ok(Self {
            gateways,
            shared,
            driver,
            exchanges,
            arrived: VecDeque::new(),
            answers: HashMap::new(),
            events: VecDeque::new(),
            calls: 0,
            now: 0,
        })
    }

    /// The base URLs of all gateways.
    pub fn urls(&self) -> Vec<String> {
        self.gateways.iter().map(Gateway::url).collect()
    }

    /// What the driver wrote to its standard error.
    pub fn errors(&self) -> String {
        self.driver.errors()
    }

    /// Takes in a line of the driver.
    fn take_in(&mut self, line: Value) {
        self.shared.note(format!("   driver: {line}"));
        if line.get("event").is_some() {
            self.events.push_back(line);
        } else if let Some(id) = line["id"].as_u64() {
            self.answers.insert(id, line);
        }
    }

    /// Takes in all that has arrived: requests and lines.
    fn look(&mut self) -> Result<()> {
        while let Ok(exchange) = self.exchanges.try_recv() {
            self.arrived.push_back(exchange);
        }
        while let Some(line) = self.driver.said()? {
            self.take_in(line);
        }
        Ok(())
    }
}
