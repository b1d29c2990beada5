//! The filler as a program of its own: a ledger is filled by that of the version whose tables it has.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{fill, fill_sqlite};

/// The ledger that is filled, and with how much. No gateway may have it open.
#[derive(Debug, clap::Args)]
pub struct Filler {
    /// The URL of a ledger on Postgres, for a superuser
    #[arg(long, value_name = "URL", required_unless_present = "sqlite")]
    postgres: Option<String>,
    /// The file of an embedded ledger
    #[arg(long, value_name = "FILE", conflicts_with_all = ["postgres", "stride"])]
    sqlite: Option<PathBuf>,
    /// Resources, each locked and written once
    #[arg(long)]
    resources: u64,
    /// Leaves out every so many-th of them; none by default but the first
    #[arg(long)]
    stride: Option<u64>,
}

impl Filler {
    /// Fills it.
    ///
    /// # Errors
    /// Whatever the ledger refuses.
    pub async fn run(self) -> Result<bool> {
        let resources = self.resources;
        ensure!(resources > 0 && self.stride != Some(0), "--resources and --stride are above 0");
        match self.sqlite {
            Some(file) => fill_sqlite::fill(&file, resources).await?,
            None => {
                let url = self.postgres.context("clap asks for one of both")?;
                fill::fill(&url, resources, self.stride.unwrap_or(resources)).await?;
            }
        }
        Ok(true)
    }
}
