//! `fence rejections`, `audit` and `events`: what was refused, done and written.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::reading::Listing;
use fencegate_client::reading::pages::Recorded;
use fencegate_client::wire::json::{AuditEntry, RejectionEntry, WriteEvent};
use fencegate_client::wire::{AuditAction, ErrorCode};
use fencegate_client::{FeedEvent, OnVoid};
use futures::TryStreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::files::{self, FILE_BYTES_MAX};
use crate::output::{Column, Printer, column, or_dash, time, wide};

/// How often new entries are asked for.
const EVERY: Duration = Duration::from_secs(1);

const REJECTIONS: &[Column<RejectionEntry>] = &[
    column("AT", |it| time(it.at)),
    column("RESOURCE", |it| it.resource.clone()),
    column("REASON", |it| it.reason.clone()),
    column("OWNER", |it| or_dash(it.owner.clone())),
    column("WHY", |it| or_dash(ErrorCode::parse(&it.reason).map(ErrorCode::title))),
    column("LATE", |it| or_dash(it.superseded_ms.map(durations::show_ms))),
    column("TIMES", |it| it.times.to_string()),
    wide("KEY", |it| or_dash(it.key.clone())),
    wide("TOKEN", |it| or_dash(it.presented_token.clone())),
    wide("REQUEST", |it| it.request_id.clone()),
];

const AUDIT: &[Column<AuditEntry>] = &[
    column("AT", |it| time(it.at)),
    column("ACTION", |it| it.action.clone()),
    column("RESOURCE", |it| or_dash(it.resource.clone())),
    // Of a break this is its victim.
    column("LOCK OF", |it| or_dash(it.owner.clone())),
    column("BY", |it| or_dash(it.principal.clone())),
    column("REASON", |it| or_dash(it.reason.clone())),
    wide("BEFORE", |it| or_dash(it.previous_owner.clone())),
    wide("ITS END", |it| or_dash(it.previous_end.as_ref().map(|end| end.as_str().to_owned()))),
    wide("CREDENTIAL", |it| or_dash(it.credential.clone())),
    wide("PEER", |it| or_dash(it.peer.clone())),
    wide("REQUEST", |it| or_dash(it.request_id.clone())),
];

const EVENTS: &[Column<WriteEvent>] = &[
    column("AT", |it| time(it.committed_at)),
    column("RESOURCE", |it| it.resource.clone()),
    column("VERSION", |it| it.version.to_string()),
    column("KIND", |it| it.kind.clone()),
    column("KEY", |it| or_dash(it.key.clone())),
    column("OWNER", |it| it.owner.clone()),
    wide("OPERATION", |it| it.operation.to_string()),
    wide("CURSOR", |it| it.event.clone()),
];

/// Which refused writes to list.
#[derive(Debug, Args)]
pub struct Rejections {
    /// Only on this resource
    #[arg(long, value_name = "RESOURCE")]
    on: Option<String>,
    /// Only those refused with this code
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    /// Go on, and print what comes from now on
    #[arg(short, long)]
    follow: bool,
}

impl Rejections {
    /// Lists them, newest first.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut list = app.client.rejections();
        if let Some(resource) = &self.on {
            list = list.resource(resource);
        }
        if let Some(code) = &self.code {
            let known = ErrorCode::parse(code);
            list = list.reason(known.ok_or_else(|| usage(format!("there is no code {code:?}")))?);
        }
        let name = |it: &RejectionEntry| it.request_id.clone();
        show(app, list, (self.limit, self.follow), name, REJECTIONS).await
    }
}

/// Which acts to list.
#[derive(Debug, Args)]
pub struct Audit {
    /// Only on this resource
    #[arg(long, value_name = "RESOURCE")]
    on: Option<String>,
    /// Only these, such as `grant` or `break`
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    /// Go on, and print what comes from now on
    #[arg(short, long)]
    follow: bool,
}

impl Audit {
    /// Lists them, newest first.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut list = app.client.audit();
        if let Some(resource) = &self.on {
            list = list.resource(resource);
        }
        if let Some(action) = &self.action {
            let known = AuditAction::parse(action);
            list =
                list.action(known.ok_or_else(|| usage(format!("there is no action {action:?}")))?);
        }
        let name = |it: &AuditEntry| or_dash(it.resource.clone());
        show(app, list, (self.limit, self.follow), name, AUDIT).await
    }
}

async fn show<T: Recorded + Serialize + DeserializeOwned + Send + 'static>(
    app: &App,
    list: Listing<T>,
    (limit, follow): (usize, bool),
    name: fn(&T) -> String,
    columns: &[Column<T>],
) -> Result<ExitCode, Failure> {
    if !follow {
        app.out.list(list, Some(limit), name, columns).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (out, mut entries) = (app.out.endless(), list.follow());
    let mut printer = Printer::new(&out, name, columns);
    while let Some(entry) = entries.try_next().await? {
        printer.add(entry)?;
        printer.flush()?;
    }
    printer.end()?;
    Ok(ExitCode::SUCCESS)
}

/// From where to read the feed of writes.
#[derive(Debug, Args)]
pub struct Events {
    /// Behind the event with this cursor; `now`: what comes from now on
    #[arg(long, value_name = "CURSOR", conflicts_with = "cursor_file")]
    cursor: Option<String>,
    /// Keep the place in this file, and go on from there
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Wait for more; otherwise it ends when nothing has come for a second
    #[arg(short, long)]
    follow: bool,
}

impl Events {
    /// Prints them as they come.
    ///
    /// # Errors
    /// The place is void, the file cannot be written, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let kept = self.cursor_file.as_deref().map(read).transpose()?.flatten();
        let from = self.cursor.clone().or(kept);
        let mut events = app.client.events().after(from).on_void(OnVoid::Continue).stream();
        let out = if self.follow { app.out.endless() } else { app.out.clone() };
        let mut printer = Printer::new(&out, |it: &WriteEvent| it.event.clone(), EVENTS);
        let mut last = None;
        loop {
            let next = match self.follow {
                true => events.next().await,
                false => match tokio::time::timeout(EVERY, events.next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            let Some(event) = next.transpose()? else { break };
            last = Some(event.cursor().to_owned());
            match event {
                FeedEvent::Write(write) => printer.add(write)?,
                _ => app.out.say("the place in the feed was void: check what was built from it"),
            }
            if self.follow {
                printer.flush()?;
                self.keep(last.as_deref())?;
            }
        }
        printer.end()?;
        self.keep(last.as_deref())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Keeps the place behind what was printed.
    fn keep(&self, cursor: Option<&str>) -> Result<(), Failure> {
        match (&self.cursor_file, cursor) {
            (Some(path), Some(cursor)) => Ok(files::replace(path, cursor.as_bytes(), None)?),
            _ => Ok(()),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match files::read_text(path, FILE_BYTES_MAX) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
