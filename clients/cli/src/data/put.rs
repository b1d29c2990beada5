//! `fence put`: stores an object.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::{Body, PutBuilder, Written};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::app::App;
use crate::failure::Failure;
use crate::output::bytes;
use crate::progress::Progress;
use crate::under::Under;

/// What comes from standard input and is not larger is kept, and can be sent again.
const KEPT: u64 = 8 << 20;
/// How much is read at a time.
const PIECE: usize = 256 << 10;

/// What to store, and where.
#[derive(Debug, Args)]
pub struct Put {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: String,
    /// What to store; by default, and as `-`, standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The content type
    #[arg(long = "type", value_name = "TYPE")]
    content_type: Option<String>,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    under: Under,
}

/// When a write is to be done.
#[derive(Debug, Clone, Args)]
pub struct Conditions {
    /// Only if the object has this tag, as `fence get` shows it; `*`: if it is there
    #[arg(long, value_name = "ETAG", conflicts_with = "if_absent")]
    pub if_match: Option<String>,
    /// Only if the object is not there
    #[arg(long)]
    pub if_absent: bool,
    /// A key of your own: with it the write takes effect once, however often it is made
    #[arg(long, value_name = "TEXT")]
    pub idempotency_key: Option<String>,
    /// Wait while an operator has the resource frozen
    #[arg(long)]
    pub ride_out: bool,
}

impl Conditions {
    fn on(&self, mut put: PutBuilder) -> PutBuilder {
        if let Some(tag) = &self.if_match {
            put = put.if_match(tag);
        }
        if self.if_absent {
            put = put.if_absent();
        }
        if let Some(key) = &self.idempotency_key {
            put = put.idempotency_key(key);
        }
        if self.ride_out { put.ride_out() } else { put }
    }
}

impl Put {
    /// Stores it.
    ///
    /// # Errors
    /// As any write.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let file = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let body = shown(app, &self.key, file, body_of(file).await?);
        let guard = self.under.guard(&app.client, vec![self.resource.clone()]).await?;
        let on = guard.on(&self.resource);
        let mut put = self.conditions.on(on.put(&self.key, body));
        if let Some(content_type) = &self.content_type {
            put = put.content_type(content_type);
        }
        let written = put.await?;
        guard.end().await;
        tell(app, &written)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Says what was written.
///
/// # Errors
/// Nobody reads it any more.
pub fn tell(app: &App, written: &Written) -> Result<(), Failure> {
    let size = written.size.map_or_else(String::new, |size| format!(", {}", bytes(size)));
    let replayed = if written.replayed { " (it was done before)" } else { "" };
    let text = format!(
        "{}/{} is version {}{size}{replayed}",
        written.resource, written.key, written.version
    );
    app.out.one(&document(written), &written.key, &text)
}

/// As the API says it.
pub fn document(written: &Written) -> Value {
    json!({
        "resource": written.resource,
        "key": written.key,
        "version": written.version,
        "size": written.size,
        "sha256": written.sha256,
        "operation": written.operation,
        "etag": written.etag,
    })
}

/// The bytes of a file, or of standard input, as a terminal shows them while they are sent.
pub fn shown(app: &App, name: &str, file: Option<&Path>, body: Body) -> Body {
    if file.is_none() && body.is_replayable() {
        // It came from standard input, and is small enough to be kept.
        return body;
    }
    let found = file.and_then(|path| std::fs::metadata(path).ok()).filter(Metadata::is_file);
    let progress = Progress::begin(&app.out, name, found.map(|found| found.len()));
    body.watched(move |done| progress.at(done))
}

/// The bytes of a file, or of standard input.
///
/// # Errors
/// It cannot be read.
pub async fn body_of(file: Option<&Path>) -> Result<Body, Failure> {
    if let Some(path) = file {
        let size = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        if size.is_dir() {
            return Err(crate::failure::usage(format!("{} is a directory", path.display())));
        }
        return Ok(Body::file(path));
    }
    // What is small is kept for a second attempt; what is large is sent as it comes, once.
    let mut input = tokio::io::stdin();
    let mut first = Vec::new();
    let read = (&mut input).take(KEPT + 1).read_to_end(&mut first).await;
    read.context("cannot read standard input")?;
    if first.len() as u64 <= KEPT {
        return Ok(first.into());
    }
    let rest = futures::stream::try_unfold(input, async |mut input| {
        let mut piece = vec![0; PIECE];
        let read = input.read(&mut piece).await?;
        piece.truncate(read);
        Ok((read > 0).then_some((piece.into(), input)))
    });
    let first = futures::stream::iter([Ok(first.into())]);
    Ok(Body::once(None, first.chain(rest).boxed()))
}
