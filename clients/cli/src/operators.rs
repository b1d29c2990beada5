//! `fence break`, `freeze`, `unfreeze`, `protect` and `unprotect`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use fencegate_client::wire::LockState;
use fencegate_client::wire::json::Resource;

use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::output::state;
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
    /// Give the holder at most so long to end by itself; it cannot renew meanwhile. By default the lock ends when it
    /// would expire anyway; one that does not expire needs this or --now
    #[arg(long, value_name = "DURATION", value_parser = durations::parse, conflicts_with = "now")]
    after: Option<Duration>,
    /// At once
    #[arg(long)]
    now: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// The longest that a break is put off. No lock that expires lasts longer, and one that expires sooner ends then.
const WHEN_IT_EXPIRES: Duration = Duration::from_secs(24 * 60 * 60);

impl HowToBreak {
    /// In how long the lock of this resource is to end, and the same in words.
    ///
    /// # Errors
    /// The lock does not expire, and nothing was said.
    pub fn after(&self, resource: &Resource) -> Result<(Duration, String), Failure> {
        let within = |after| format!("within {}", durations::show(after));
        match (self.now, self.after, resource.expires_in_ms) {
            (true, ..) => Ok((Duration::ZERO, "now".to_owned())),
            (false, Some(after), _) if after.is_zero() => Ok((after, "now".to_owned())),
            (false, Some(after), _) => Ok((after, within(after))),
            (false, None, Some(left_ms)) => {
                let when = format!("when it expires, in {}", durations::show_ms(left_ms.max(0)));
                Ok((WHEN_IT_EXPIRES, when))
            }
            (false, None, None) => Err(usage(format!(
                "the lock of {} on {} does not expire: say --now, or --after and how long",
                resource.owner, resource.resource
            ))),
        }
    }

    /// Breaks it, and says in words what has come of it.
    ///
    /// # Errors
    /// The gateway refuses.
    pub async fn carry_out(
        &self,
        app: &App,
        resource: &str,
        after: Duration,
    ) -> Result<(Resource, String), Failure> {
        let resource = app.client.break_lock(resource, &self.reason).after(after).await?;
        let word = match resource.breaks_in_ms {
            Some(due_ms) => format!("will be broken in {}", durations::show_ms(due_ms)),
            None => format!("is {}", state(&resource)),
        };
        Ok((resource, word))
    }
}

impl BreakLock {
    /// Breaks it.
    ///
    /// # Errors
    /// It was never locked, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let before = app.client.resource(&self.resource).await?;
        let (after, when) = self.how.after(&before)?;
        let question = format!("Break the lock of {} on {} {when}?", before.owner, self.resource);
        confirm(&question, self.how.yes)?;
        let (resource, word) = self.how.carry_out(app, &self.resource, after).await?;
        // It is the same lock that is broken still.
        let was_broken = before.state == LockState::Broken
            && (before.state.as_str(), before.acquired_at)
                == (resource.state.as_str(), resource.acquired_at);
        let word = if was_broken { "is broken already: nothing has changed" } else { &word };
        tell(app, &resource, word)
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
            Marking::Freeze => (client.freeze(name, reason).await?, "is frozen"),
            Marking::Unfreeze => (client.unfreeze(name, reason).await?, "is no longer frozen"),
            Marking::Protect => (client.protect(name, reason).await?, "is protected"),
            Marking::Unprotect => (client.unprotect(name, reason).await?, "is no longer protected"),
        };
        tell(app, &resource, word)
    }
}

fn tell(app: &App, resource: &Resource, word: &str) -> Result<ExitCode, Failure> {
    let name = resource.resource.as_str();
    app.out.one(resource, name, &format!("{name} {word}"))?;
    Ok(ExitCode::SUCCESS)
}
