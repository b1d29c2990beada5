//! One side of a comparison: servers of its own, and what its callers present.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::line::OwnLine;
use crate::ours::ours;
use crate::paths::Path;
use crate::prepared::{Prepared, Size};
use crate::sample::Sample;
use crate::servers::Servers;
use crate::version::Version;

/// A version of the gateway that is measured.
pub struct Side {
    /// The servers.
    pub servers: Servers,
    /// What callers present.
    pub prepared: Prepared,
    /// The line that is kept from one measurement to the next.
    line: Option<OwnLine>,
}

impl Side {
    /// Starts the servers that these paths need, those of rivals too if they are measured.
    ///
    /// # Errors
    /// Whatever does not start.
    pub async fn start(
        version: &Version,
        paths: &[Path],
        size: Size,
        with_rivals: bool,
    ) -> Result<Self> {
        let mut servers = Servers::start(version, paths, with_rivals).await?;
        // Rivals have nothing but what is written, so beside them neither does the embedded ledger have more.
        if !with_rivals {
            servers.fill_embedded(version, size.resources).await?;
        }
        let prepared = Prepared::new(&servers, paths, size, with_rivals).await?;
        Ok(Self { servers, prepared, line: None })
    }

    /// Makes ready for many short measurements of one path.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn begin(&mut self, path: Path) -> Result<()> {
        if path == Path::HandOver {
            self.line = Some(OwnLine::form(&self.servers, self.prepared.waiters).await?);
        }
        Ok(())
    }

    /// Measures a path.
    ///
    /// # Errors
    /// Any answer that is not the one wanted.
    pub async fn measure(&mut self, path: Path, lasts: Duration) -> Result<Sample> {
        let measured = match &mut self.line {
            Some(line) => line.sample(&self.servers, lasts).await,
            None => ours(&self.servers, &self.prepared, path, lasts).await,
        };
        measured.with_context(|| path.name()).inspect_err(|_| self.last_lines())
    }

    /// Ends what was made ready.
    ///
    /// # Errors
    /// There is no Postgres.
    pub async fn end(&mut self) -> Result<()> {
        match self.line.take() {
            Some(line) => line.end(&self.servers).await,
            None => Ok(()),
        }
    }

    /// Prints the last lines of the gateways, where something went wrong.
    fn last_lines(&self) {
        for gateway in self.servers.gateways() {
            let log = gateway.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(10)..];
            last.iter().for_each(|line| eprintln!("gateway: {line}"));
        }
    }
}
