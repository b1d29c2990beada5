//! What `fence run` and `fence elect` take about S3, and what the command gets for it.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::Args;
use fencegate_client::S3Access;
use tokio::process::Command;

use super::endpoint::Endpoint;
use super::environment::Environment;
use super::template::Setting;

/// Whether S3 tools write under the lock.
#[derive(Debug, Clone, Default, Args)]
pub struct S3Options {
    /// Run the command only if the lock has a key of S3; without this, S3 tools are told of a key if there is one
    #[arg(long, conflicts_with = "no_s3")]
    s3: bool,
    /// Tell S3 tools nothing, also if the lock has a key of S3
    #[arg(long)]
    no_s3: bool,
    /// A variable for the command. In VALUE, {s3_key}, {s3_secret}, {s3_endpoint}, {s3_host} and {s3_region} stand for
    /// the lock's key of S3, and {{ for a brace; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<Setting>,
}

impl S3Options {
    /// Puts into the environment of a command what its lock gives it. A command that runs already keeps what it has,
    /// whatever becomes of the lock.
    ///
    /// # Errors
    /// The lock has no key, and one is wanted.
    pub async fn apply(
        &self,
        command: &mut Command,
        access: Option<&S3Access>,
        ca_file: Option<&Path>,
    ) -> anyhow::Result<()> {
        // 1. Is there what is wanted?
        let wants = self.settings.iter().find(|setting| setting.wants_key());
        let wanted_by = match (self.s3, wants) {
            (true, _) => Some("--s3".to_owned()),
            (false, Some(setting)) => Some(format!("--set {}", setting.name)),
            (false, None) => None,
        };
        let Some(access) = access else {
            return match wanted_by {
                Some(option) => Err(anyhow!(
                    "{option}: the lock has no key of S3. Either none of its resources lies in a bucket, or the gateway \
                     does not speak S3"
                )),
                None => self.set(command, None),
            };
        };
        // 2. What S3 tools read; without a key, or if it is not wanted, nothing of theirs is touched.
        let endpoint = Endpoint::of(&access.endpoint).await?;
        if !self.no_s3 {
            let Environment { set, unset } = Environment::of(access, &endpoint, ca_file);
            for name in unset {
                command.env_remove(name);
            }
            command.envs(set);
        }
        // 3. What the caller names comes last.
        self.set(command, Some((access, &endpoint)))
    }

    fn set(
        &self,
        command: &mut Command,
        key: Option<(&S3Access, &Endpoint)>,
    ) -> anyhow::Result<()> {
        for setting in &self.settings {
            let value = setting.value(key).with_context(|| format!("--set {}", setting.name))?;
            command.env(&setting.name, value);
        }
        Ok(())
    }
}
