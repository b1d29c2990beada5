//! `fence locks`, `watch` and `leader`: who holds what, now and as it changes.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use fencegate_client::reading::Listing;
use fencegate_client::wire::Word;
use fencegate_client::wire::json::Resource;
use futures::TryStreamExt as _;
use serde_json::json;

use crate::app::App;
use crate::data::list::RESOURCES;
use crate::failure::{Failure, usage};
use crate::output::time;

/// What is sorted is held in memory: at most so many.
const SORTED_MAX: usize = 100_000;

/// Which locks to list.
#[derive(Debug, Args)]
pub struct Locks {
    /// Prefix of the names of the resources
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Also those that have expired, whose holders may come back, and those that were broken, while nobody took over
    #[arg(long)]
    all: bool,
    /// In which order; by default by name
    #[arg(long, value_enum, value_name = "ORDER")]
    sort: Option<Sort>,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// In which order locks are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The longest held first
    Age,
    /// Those that end soonest first
    Left,
    /// The longest lines first
    Queue,
}

impl Sort {
    /// Puts them in this order, those that are held before all others.
    pub fn sort(self, locks: &mut [Resource]) {
        match self {
            Self::Age => locks.sort_by_key(|it| std::cmp::Reverse(it.age_ms)),
            Self::Left => locks.sort_by_key(|it| it.expires_in_ms.unwrap_or(i64::MAX)),
            Self::Queue => locks.sort_by_key(|it| std::cmp::Reverse(it.queue_length)),
        }
        locks.sort_by_key(|it| !is_held(it));
    }
}

/// Tells if the lock of a resource keeps others out.
fn is_held(resource: &Resource) -> bool {
    matches!(&resource.state, Word::Known(state) if state.is_held())
}

/// Counts the resources that are held, and the others in the list.
pub fn count(locks: &[Resource]) -> String {
    let held = locks.iter().filter(|it| is_held(it)).count();
    match locks.len() - held {
        0 => format!("{held} held"),
        others => format!("{held} held, {others} expired or broken"),
    }
}

/// The locks that are held, of names that begin so; or also those that ended and that nobody took over.
pub fn locks(app: &App, prefix: Option<&str>, all: bool) -> Listing<Resource> {
    let list = if all { app.client.all_locks() } else { app.client.locks() };
    prefix.into_iter().fold(list, Listing::prefix)
}

impl Locks {
    /// Lists the locks that are held.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let list = locks(app, self.prefix.as_deref(), self.all);
        let name = |it: &Resource| it.resource.to_string();
        let Some(sort) = self.sort else {
            app.out.list(list, self.limit, name, RESOURCES).await?;
            return Ok(ExitCode::SUCCESS);
        };
        let mut items = list.stream();
        let mut locks = Vec::new();
        while let Some(lock) = items.try_next().await? {
            if locks.len() == SORTED_MAX {
                return Err(usage(format!(
                    "there are more than {SORTED_MAX} locks: name a prefix, or leave out --sort"
                )));
            }
            locks.push(lock);
        }
        sort.sort(&mut locks);
        locks.truncate(self.limit.unwrap_or(usize::MAX));
        app.out.items(locks, name, RESOURCES)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What to watch.
#[derive(Debug, Args)]
pub struct WatchResource {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
}

impl WatchResource {
    /// Prints a line whenever its lock, or a mark on it, changes.
    ///
    /// # Errors
    /// The gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut changes = app.client.observe(&self.resource);
        while let Some(change) = changes.next().await {
            let Some(leader) = change? else {
                app.out.one(
                    &json!({"resource": self.resource, "state": null}),
                    "",
                    "never locked",
                )?;
                continue;
            };
            let now = jiff::Timestamp::now();
            let document = json!({
                "resource": self.resource,
                "state": leader.state,
                "owner": leader.owner,
                "acquired_at": leader.since,
            });
            let state = leader.state.as_str();
            let text = format!("{}  {state:9}  {}", time(now), leader.owner);
            app.out.one(&document, &leader.owner, &text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whose leader to tell.
#[derive(Debug, Args)]
pub struct LeaderOf {
    /// The name of the election, which is the resource
    #[arg(value_name = "NAME")]
    name: String,
    /// Go on, and print each one that comes
    #[arg(short, long)]
    follow: bool,
}

impl LeaderOf {
    /// Prints who leads.
    ///
    /// # Errors
    /// Nobody leads, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut leaders = app.client.observe(&self.name);
        let mut told = None;
        while let Some(leader) = leaders.next().await {
            let leader = leader?.filter(|leader| leader.leads());
            // What its lock is doing changes, too, while it leads.
            let who = leader.as_ref().map(|leader| (leader.owner.clone(), leader.since));
            if told.replace(who.clone()) == Some(who) {
                continue;
            }
            match &leader {
                Some(leader) => {
                    let document = json!({"name": self.name, "owner": leader.owner});
                    app.out.one(&document, &leader.owner, &leader.owner)?;
                }
                None if self.follow => {
                    app.out.one(&json!({"name": self.name, "owner": null}), "", "(nobody)")?;
                }
                None => {
                    app.out.say("nobody leads");
                    return Ok(ExitCode::from(3));
                }
            }
            if !self.follow {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
