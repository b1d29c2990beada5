//! Log lines on standard error, for people or for machines.

use std::io::{IsTerminal as _, stderr};

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat};
use crate::ledger::postgres::notices;

/// Starts logging as the configuration says; once per process. The ledger hears what it needs to hear, whatever
/// is logged.
pub fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("the log filter is not valid")?;
    let lines =
        tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let lines = match config.log_format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
    };
    let started =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(notices::layer());
    started.try_init().map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
