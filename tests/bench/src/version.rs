//! A version of the gateway: its program, and what makes and fills the tables that it works on.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use fence_tests::gateway::find_binary;
use fence_tests::postgres::Postgres;
use tempfile::TempDir;
use tokio::process::Command;

/// The rights of gateways on these tables.
const ROLES: &str = include_str!("../../../schema/postgres/roles.sql");

/// Programs that were built from one commit. Tables change from one to the next, so each makes and fills its own.
#[derive(Debug, Clone)]
pub struct Version {
    /// The gateway.
    pub gateway: PathBuf,
    /// The filler of its tables: a `fence-bench`.
    filler: PathBuf,
    /// The rights of gateways on its tables, as SQL.
    roles: String,
}

impl Version {
    /// Takes what was built with this program; a path that does not need the gateway goes without.
    ///
    /// # Errors
    /// A process that does not know its program.
    pub fn own() -> Result<Self> {
        let gateway = find_binary().unwrap_or_else(|| "fencegate".into());
        Ok(Self { gateway, filler: std::env::current_exe()?, roles: ROLES.into() })
    }

    /// Takes a gateway, or a folder that has one, with the filler and the rights beside it, and says which of the two
    /// are not there: those of this program are taken for them.
    ///
    /// # Errors
    /// No gateway there.
    pub fn at(place: &Path) -> Result<Self> {
        let gateway = if place.is_dir() { place.join("fencegate") } else { place.to_owned() };
        let gateway = gateway.canonicalize().with_context(|| gateway.display().to_string())?;
        let mut version = Self { gateway, ..Self::own()? };
        let folder = version.gateway.parent().context("a file is in a folder")?.to_owned();
        match folder.join("fence-bench") {
            filler if filler.is_file() => version.filler = filler,
            _ => println!(
                "{}: no filler beside it; its ledgers are filled by this version's",
                place.display()
            ),
        }
        match folder.join("roles.sql") {
            roles if roles.is_file() => version.roles = std::fs::read_to_string(roles)?,
            _ => println!(
                "{}: no roles.sql beside it; this version's rights are given",
                place.display()
            ),
        }
        Ok(version)
    }

    /// Makes a database with the tables of a ledger; returns its name.
    ///
    /// # Errors
    /// The gateway does not make them.
    pub async fn ledger(&self, postgres: &Postgres, etcd: &str) -> Result<String> {
        let name = postgres.empty_database_name().await;
        let home = TempDir::new()?;
        let mut migrate = Command::new(&self.gateway);
        migrate.args(["migrate", "--postgres", &postgres.owner_url(&name), "--etcd", etcd]);
        run(migrate.arg("--data-dir").arg(home.path()).current_dir(home.path())).await?;
        postgres.execute(&name, &self.roles).await;
        Ok(name)
    }

    /// Fills the tables at this URL, which is that of a superuser, with so many resources but for each `stride`th.
    ///
    /// # Errors
    /// Whatever the filler says.
    pub async fn fill(&self, url: &str, resources: u64, stride: u64) -> Result<()> {
        let [resources, stride] = [resources, stride].map(|number| number.to_string());
        let mut fill = Command::new(&self.filler);
        fill.args(["fill", "--postgres", url, "--resources", &resources, "--stride", &stride]);
        run(&mut fill).await
    }

    /// Fills the embedded ledger in a file.
    ///
    /// # Errors
    /// Whatever the filler says.
    pub async fn fill_embedded(&self, file: &Path, resources: u64) -> Result<()> {
        let mut fill = Command::new(&self.filler);
        fill.args(["fill", "--resources", &resources.to_string(), "--sqlite"]).arg(file);
        run(&mut fill).await
    }
}

/// Runs a program to its end, without the settings of gateways that this process may have in its environment.
async fn run(command: &mut Command) -> Result<()> {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCEGATE_") {
            command.env_remove(name);
        }
    }
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("{:?}", command.as_std().get_program()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {}\n{told}", command.as_std(), output.status);
    Ok(())
}
