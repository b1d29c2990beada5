//! `fence break`, `freeze`, `unfreeze`, `protect` and `unprotect`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fencegate_client::wire::json::Resource;

use crate::app::App;
use crate::durations;
use crate::failure::Failure;
use crate::terminal::confirm;

/// Which lock to break.
#[derive(Debug, Args)]
pub struct BreakLock {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Why, and when.
    #[command(flatten)]
    how: HowToBreak,
}

/// Why to break a lock, and when.
#[derive(Debug, Args)]
pub struct HowToBreak {
    /// Why: the holder is told it, and the audit keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Give the holder so long to end by itself; it cannot renew meanwhile. By default for as long as the lock would
    /// have lasted anyway
    #[arg(long, value_name = "DURATION", value_parser = durations::parse, conflicts_with = "now")]
    after: Option<Duration>,
    /// At once
    #[arg(long)]
    now: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

impl HowToBreak {
    /// When the lock of this resource is to end: from now, and in words.
    pub fn after(&self, resource: &Resource) -> (Duration, String) {
        let left = resource.expires_in_ms.unwrap_or_default().max(0).unsigned_abs();
        let after = match (self.now, self.after) {
            (true, _) => Duration::ZERO,
            (false, Some(after)) => after,
            // Without an end of its own, now is as good as later.
            (false, None) => Duration::from_millis(left),
        };
        let when = match after.is_zero() {
            true => "now".to_owned(),
            false => format!("in {}", durations::show(after)),
        };
        (after, when)
    }

    /// Breaks it.
    ///
    /// # Errors
    /// The gateway refuses.
    pub async fn carry_out(
        &self,
        app: &App,
        resource: &str,
        after: Duration,
    ) -> Result<Resource, Failure> {
        let breaking = app.client.break_lock(resource, &self.reason);
        Ok(if after.is_zero() { breaking.await? } else { breaking.after(after).await? })
    }
}

impl BreakLock {
    /// Breaks it.
    ///
    /// # Errors
    /// It was never locked, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let before = app.client.resource(&self.resource).await?;
        let (after, when) = self.how.after(&before);
        let question = format!("Break the lock of {} on {} {when}?", before.owner, self.resource);
        confirm(&question, self.how.yes)?;
        let resource = self.how.carry_out(app, &self.resource, after).await?;
        tell(app, &resource, &format!("broken {when}"))
    }
}

/// Which resource to mark, and why.
#[derive(Debug, Args)]
pub struct Mark {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// Why: everybody sees it, and the audit keeps it
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// What is done to a resource.
#[derive(Debug, Clone, Copy)]
pub enum Marking {
    /// Nobody writes or is granted its lock.
    Freeze,
    /// They do again.
    Unfreeze,
    /// Not all of it may be deleted at once.
    Protect,
    /// It may again.
    Unprotect,
}

impl Mark {
    /// Marks it.
    ///
    /// # Errors
    /// It was never locked, or the gateway refuses.
    pub async fn run(&self, app: &App, marking: Marking) -> Result<ExitCode, Failure> {
        let (client, name, reason) = (&app.client, &self.resource, &self.reason);
        let (resource, word) = match marking {
            Marking::Freeze => (client.freeze(name, reason).await?, "frozen"),
            Marking::Unfreeze => (client.unfreeze(name, reason).await?, "no longer frozen"),
            Marking::Protect => (client.protect(name, reason).await?, "protected"),
            Marking::Unprotect => (client.unprotect(name, reason).await?, "no longer protected"),
        };
        tell(app, &resource, word)
    }
}

fn tell(app: &App, resource: &Resource, word: &str) -> Result<ExitCode, Failure> {
    let name = resource.resource.as_str();
    app.out.one(resource, name, &format!("{name} is {word}"))?;
    Ok(ExitCode::SUCCESS)
}
