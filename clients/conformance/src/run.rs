//! Plays scenarios against a driver, and says how each went.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;

use crate::driver::Driver;
use crate::scenarios::Scenario;
use crate::script::Script;

/// Time that a scenario may take on the machine. Only one that hangs needs it. In their long form some take many minutes.
const PATIENCE: Duration = Duration::from_secs(300);
const LONG_PATIENCE: Duration = Duration::from_secs(3600);

/// How a scenario went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// The driver has not what it needs.
    Skipped(String),
    /// Otherwise, and this is why.
    Failed(Failure),
}

/// Why a scenario failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In a line.
    pub why: String,
    /// What went to and fro.
    pub trace: Vec<String>,
    /// What the driver wrote to its standard error.
    pub errors: String,
}

impl Outcome {
    /// Whether it failed.
    pub fn failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Whether it was not played.
    pub fn skipped(&self) -> bool {
        matches!(self, Self::Skipped(_))
    }
}

/// Which driver, and as which client.
#[derive(Debug, Clone)]
pub struct Target {
    /// The command line of the driver.
    pub driver: String,
    /// The deliberately wrong client that it should be, if any.
    pub mutant: Option<String>,
}

impl Target {
    /// A driver as it is.
    pub fn new(driver: &str) -> Self {
        Self { driver: driver.to_owned(), mutant: None }
    }

    /// The same as a deliberately wrong client.
    #[must_use]
    pub fn mutant(&self, name: &str) -> Self {
        Self { mutant: Some(name.to_owned()), ..self.clone() }
    }
}

/// Tells whether surveys are played in full length.
pub fn is_long() -> bool {
    std::env::var_os("FENCE_TEST_LONG").is_some()
}

/// Plays one scenario.
pub async fn play(target: &Target, scenario: &Scenario) -> Outcome {
    let patience = if is_long() { LONG_PATIENCE } else { PATIENCE };
    let ended = tokio::time::timeout(patience, played(target, scenario)).await;
    match ended {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(failure(format!("{error:#}"))),
        Err(_) => Outcome::Failed(failure(format!("it hangs: nothing came of it in {patience:?}"))),
    }
}

fn failure(why: String) -> Failure {
    Failure { why, trace: Vec::new(), errors: String::new() }
}

async fn played(target: &Target, scenario: &Scenario) -> Result<Outcome> {
    let set =
        scenario.environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut environment: Vec<_> = set.collect();
    if let Some(mutant) = &target.mutant {
        environment.push(("FENCE_TEST_CLIENT_MUTANT".to_owned(), mutant.clone()));
    }
    let driver = Driver::start(&target.driver, &environment).await?;
    if let Some(missing) = scenario.needs.iter().find(|feature| !driver.has(feature)) {
        return Ok(Outcome::Skipped(format!("the driver has no `{missing}`")));
    }
    let mut script = Script::new(driver, scenario.gateways).await.context("no gateways")?;
    Ok(match (scenario.play)(&mut script).await {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(Failure {
            why: format!("{error:#}"),
            trace: script.shared.trace(),
            errors: script.errors(),
        }),
    })
}

/// Plays scenarios, so many at once, and gives their outcomes in order as they come.
pub fn all<'a>(
    target: &'a Target,
    scenarios: &'a [Scenario],
    at_once: usize,
) -> impl futures::Stream<Item = (&'a Scenario, Outcome)> + 'a {
    let plays = scenarios
        .iter()
        .map(move |scenario| async move { (scenario, play(target, scenario).await) });
    futures::stream::iter(plays).buffered(at_once.max(1))
}
