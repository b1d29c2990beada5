//! The programs that a measurement needs, and how the missing ones are installed.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use fence_tests::disk::is_root;
use fence_tests::gateway::find_binary;
use fence_tests::postgres::find_binaries;
use fence_tests::process::find_program;
use fence_tests::stores::find_tool;

/// A program, or a few that come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The gateway, built beside this program.
    Gateway,
    /// The server.
    Postgres,
    /// The rival of all that ends in Postgres.
    Pgbench,
    /// The mint, and a rival.
    Etcd,
    /// A rival.
    Redis,
    /// The S3 server of the tests.
    S3,
    /// A C compiler, for the disk whose syncs are slow.
    Cc,
}

impl Need {
    fn is_there(self) -> bool {
        match self {
            Self::Gateway => find_binary().is_some(),
            Self::Postgres => {
                // Postgres refuses to run as root: setpriv makes it another user.
                let is_other = !is_root() || find_program("setpriv", &[]).is_some();
                find_binaries().is_some() && is_other
            }
            Self::Pgbench => find_binaries().is_some_and(|dir| dir.join("pgbench").is_file()),
            Self::Etcd => find_program("etcd", &[]).is_some(),
            Self::Redis => find_program("redis-server", &[]).is_some(),
            Self::S3 => find_tool("bin/s3s-fs").is_some(),
            Self::Cc => find_program("cc", &[]).is_some(),
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Gateway => {
                "the gateway: cargo build --release -p fencegate, into the folder of this program"
            }
            Self::Postgres => "Postgres: install the packages postgresql and util-linux",
            Self::Pgbench => "pgbench: install the package postgresql",
            Self::Etcd => "etcd: install the package etcd-server",
            Self::Redis => "Redis: install the package redis-server",
            Self::S3 => "the S3 server: tests/tools.sh target/tools",
            Self::Cc => "a C compiler: install the package gcc",
        }
    }
}

/// Looks for all of them before anything is started.
///
/// # Errors
/// Those that are missing, each with its remedy.
pub fn check(needs: impl IntoIterator<Item = Need>) -> Result<()> {
    let mut missing: Vec<Need> = needs.into_iter().filter(|need| !need.is_there()).collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let mut told = String::from("missing:");
    for need in missing {
        let _ = write!(told, "\n  {}", need.remedy());
    }
    bail!(
        "{told}\n./tests/run.sh installs all but the gateway; a comparison does without what its --rows do not need"
    )
}
