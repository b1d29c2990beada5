//! Under which lock a command writes: a token that was given, that of `fence run`, or a lock just for this call.

use std::time::Duration;

use clap::Args;
use fencegate_client::{Client, CommitBuilder, Fence, Lock, On, Wait};

use crate::durations;
use crate::failure::{Failure, usage};
use crate::run::nested;

/// Which lock, or whose.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Under which lock")]
pub struct Under {
    /// The fence token to write under; by default that of `fence run`
    #[arg(long, value_name = "TOKEN", requires = "lock_id", conflicts_with = "lock")]
    pub token: Option<String>,
    /// The id of the lock that the token is of
    #[arg(long, value_name = "ID", requires = "token")]
    pub lock_id: Option<String>,
    /// Take the lock for this call, and give it back
    #[arg(long)]
    pub lock: bool,
    /// How long to wait for the lock; by default not at all
    #[arg(short, long, value_name = "DURATION", requires = "lock", value_parser = durations::parse)]
    pub wait: Option<Duration>,
}

/// A guard to write with.
pub enum Guard {
    /// A lock of our own.
    Own(Lock),
    /// Somebody else's, who keeps it.
    Lent(Fence),
}

impl Under {
    /// That of `fence run`.
    pub fn of_environment() -> Self {
        Self { token: None, lock_id: None, lock: false, wait: None }
    }

    /// The guard for these resources.
    ///
    /// # Errors
    /// No token is known, it makes no sense, or the lock is not had.
    pub async fn guard(&self, client: &Client, resources: Vec<String>) -> Result<Guard, Failure> {
        if self.lock {
            nested::check(client, &resources).await?;
            let wait = Wait::UpTo(self.wait.unwrap_or_default());
            return Ok(Guard::Own(client.lock(resources).wait(wait).acquire().await?));
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let token = self.token.clone().or_else(|| variable("FENCE_TOKEN"));
        let id = self.lock_id.clone().or_else(|| variable("FENCE_LOCK_ID"));
        match (token, id) {
            (Some(token), Some(id)) => Ok(Guard::Lent(client.lent(resources, &token, &id)?)),
            _ => Err(usage(
                "a write needs a fence token: run this under `fence run`, give --token and --lock-id, or take the \
                 lock for this call with --lock",
            )),
        }
    }
}

impl Guard {
    /// One of its resources, to write there.
    pub fn on<'a>(&'a self, resource: &'a str) -> On<'a> {
        match self {
            Self::Own(lock) => lock.on(resource),
            Self::Lent(fence) => fence.on(resource),
        }
    }

    /// Many writes at once.
    pub fn commit(&self) -> CommitBuilder {
        match self {
            Self::Own(lock) => lock.commit(),
            Self::Lent(fence) => fence.commit(),
        }
    }

    /// Gives back what was taken for the call.
    pub async fn end(self) {
        if let Self::Own(lock) = self {
            lock.release().await;
        }
    }
}
