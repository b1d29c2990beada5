//! `fence lock`, `renew`, `unlock` and `transfer`: a lock across several processes.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::wire::{LockId, Token};
use fencegate_client::{Handoff, Lock, LockBuilder, Successor, Wait};
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

use super::meant;
use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::run::nested;

/// How often the keeper of a lock looks whether its process is there.
const LOOK: Duration = Duration::from_millis(250);

/// Which lock to take and leave.
#[derive(Debug, Args)]
pub struct Take {
    /// What to lock; several times: all of them or none
    #[arg(short, long = "resource", required = true, value_name = "RESOURCE")]
    resources: Vec<String>,
    /// How long the lock lasts without renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    ttl: Duration,
    /// How long to wait for the lock; by default not at all. A plain number is seconds
    #[arg(short, long, value_name = "DURATION", value_parser = durations::parse)]
    wait: Option<Duration>,
    /// Who else may write under the lock's token: a principal, or role:NAME; may be given several times
    #[arg(long = "writer", value_name = "NAME")]
    writers: Vec<String>,
    /// Print variables for `eval`, as ssh-agent(1) does
    #[arg(long)]
    export: bool,
    /// Renew it in the background until this process ends, and give it back then
    #[arg(long, value_name = "PID")]
    keep_for_pid: Option<i32>,
}

impl Take {
    fn lock(&self, app: &App) -> LockBuilder {
        let wait = Wait::UpTo(self.wait.unwrap_or_default());
        let lock = app.client.lock(self.resources.clone()).wait(wait).ttl(self.ttl).unwatched();
        self.writers.iter().fold(lock, LockBuilder::writer)
    }

    /// Takes it, and leaves it to whoever has its id.
    ///
    /// # Errors
    /// It is not had.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        if let Some(pid) = self.keep_for_pid {
            process(pid)?;
        }
        nested::check(&app.client, &self.resources).await?;
        let lock = self.lock(app).acquire().await?;
        // What nobody was told of, nobody can give back.
        match self.told(app, &lock).await.and_then(|()| self.kept(app, &lock)) {
            Ok(()) => {
                lock.leave();
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                if !lock.release().await {
                    app.out.say("no gateway has confirmed that the lock is given back: it ends with its ttl");
                }
                Err(failure)
            }
        }
    }

    /// Prints it.
    async fn told(&self, app: &App, lock: &Lock) -> Result<(), Failure> {
        if self.export {
            return export(app, &handoff(lock));
        }
        let (id, lines) = (
            lock.id().to_string(),
            lines(lock.id(), lock.token(), lock.principal(), lock.writers()),
        );
        match app.out.is_json() {
            true => app.out.lines(&app.client.lock_record(lock.id()).await?, &id, &lines),
            false => app.out.lines(&(), &id, &lines),
        }
    }

    /// Starts what keeps it, if that is wished.
    fn kept(&self, app: &App, lock: &Lock) -> Result<(), Failure> {
        if let Some(pid) = self.keep_for_pid {
            let text = Handoff::to_text(&handoff(lock));
            let program = std::env::current_exe().context("which program is this?")?;
            let mut keeper = Command::new(program);
            keeper.args(["__keep", "--pid", &pid.to_string()]).env("FENCE_HANDOFF", text);
            // It reaches the gateway as this call does, whatever flags said so.
            app.settings.hand_on(&mut keeper);
            keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            keeper.process_group(0).spawn().context("cannot start the keeper of the lock")?;
        }
        Ok(())
    }
}

fn handoff(lock: &Lock) -> Handoff {
    Handoff {
        id: lock.id(),
        token: lock.token(),
        resources: lock.resources().to_vec(),
        owner: lock.owner().to_owned(),
        principal: lock.principal().map(str::to_owned),
    }
}

fn process(pid: i32) -> Result<Pid, Failure> {
    let found = Pid::from_raw(pid).filter(|pid| test_kill_process(*pid).is_ok());
    found.ok_or_else(|| usage(format!("there is no process {pid}")))
}

/// A lock in lines for people.
fn lines(id: LockId, token: Token, principal: Option<&str>, writers: &[String]) -> Vec<String> {
    let mut lines = vec![format!("id         {id}"), format!("token      {token}")];
    lines.extend(principal.map(|name| format!("principal  {name}")));
    if !writers.is_empty() {
        lines.push(format!("writers    {}", writers.join(" ")));
    }
    lines
}

/// Prints a lock as variables.
fn export(app: &App, left: &Handoff) -> Result<(), Failure> {
    let names: Vec<_> = left.resources.iter().map(|name| name.as_str()).collect();
    let variables = [
        ("FENCE_LOCK_ID", left.id.to_string()),
        ("FENCE_TOKEN", left.token.to_string()),
        ("FENCE_RESOURCE", names.first().copied().unwrap_or_default().to_owned()),
        ("FENCE_RESOURCES", names.join(" ")),
    ];
    // Numbers, ids and names of resources hold nothing that a shell would read otherwise, within quotes.
    variables
        .iter()
        .try_for_each(|(name, value)| app.out.exact(&format!("export {name}='{value}'")))
}

/// Keeps a lock for a process.
#[derive(Debug, Args)]
pub struct Keep {
    /// The process.
    #[arg(long)]
    pid: i32,
}

impl Keep {
    /// Renews it until the process has ended, and gives it back.
    ///
    /// # Errors
    /// It cannot be taken up, or is lost.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let text = std::env::var("FENCE_HANDOFF").context("no lock was handed on")?;
        let lock = app.client.adopt(&Handoff::from_text(&text)?).acquire().await?;
        let pid = process(self.pid)?;
        let ended = async {
            while test_kill_process(pid).is_ok() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = ended => {}
            _lost = lock.lost() => {}
        }
        lock.release().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which lock to renew.
#[derive(Debug, Args)]
pub struct Renew {
    /// Its id; by default that of `fence run`
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Another ttl, which it keeps
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    ttl: Option<Duration>,
}

impl Renew {
    /// Renews it once.
    ///
    /// # Errors
    /// It is over.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let lock = app.client.renew_lock(meant(self.id.as_deref())?, self.ttl).await?;
        let left = lock.expires_in_ms.map_or_else(|| "for ever".to_owned(), durations::show_ms);
        app.out.one(&lock, &lock.id.to_string(), &format!("renewed: {left} left"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which lock to give back.
#[derive(Debug, Args)]
pub struct Unlock {
    /// Its id; by default that of `fence run`
    #[arg(value_name = "ID")]
    id: Option<String>,
}

impl Unlock {
    /// Gives it back.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let id = meant(self.id.as_deref())?;
        let was_known = app.client.release_lock(id).await?;
        let document = json!({"released": was_known, "buried": !was_known});
        let text = match was_known {
            true => "released",
            false => "never heard of: whatever comes under this id is refused from now on",
        };
        app.out.one(&document, &id.to_string(), text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which lock to hand over.
#[derive(Debug, Args)]
pub struct Transfer {
    /// Its id; by default that of `fence run`
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// What the successor calls itself
    #[arg(long, value_name = "TEXT")]
    to: String,
    /// The principal whose the lock will be; by default it stays the caller's
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

impl Transfer {
    /// Hands it over, and prints the new id and token.
    ///
    /// # Errors
    /// It is over, or may not be handed to that principal.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let id = meant(self.id.as_deref())?;
        let to = Successor::named(&self.to);
        let to = match &self.principal {
            Some(principal) => to.principal(principal),
            None => to,
        };
        let lock = app.client.transfer_lock(id, to).await?;
        let lines = lines(lock.id, lock.token, lock.principal.as_deref(), &lock.writers);
        let told = app.out.lines(&lock, &lock.id.to_string(), &lines);
        if told.is_err() && app.client.release_lock(lock.id).await.is_err() {
            app.out.say("the successor's lock could not be given back: it ends with its ttl");
        }
        told.map(|()| ExitCode::SUCCESS)
    }
}
