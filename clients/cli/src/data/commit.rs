//! `fence commit`: many writes at once, all or none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::{Body, CommitBuilder};
use serde::Deserialize;
use serde_json::json;

use super::place;
use crate::app::App;
use crate::failure::{Failure, usage};
use crate::files;
use crate::under::Under;

/// The most bytes of a file of operations; their texts are in it.
const OPERATIONS_BYTES_MAX: u64 = 256 << 20;

/// What to write.
#[derive(Debug, Args)]
#[command(after_long_help = crate::help::COMMIT)]
pub struct Commit {
    /// A file with the operations, as JSON (see the examples); `-`: standard input
    #[arg(value_name = "FILE", conflicts_with_all = ["put", "delete"])]
    file: Option<PathBuf>,
    /// Store this file there
    #[arg(long, value_name = "RESOURCE/KEY=FILE")]
    put: Vec<String>,
    /// Remove this object
    #[arg(long, value_name = "RESOURCE/KEY")]
    delete: Vec<String>,
    /// Only if the resource is at this version
    #[arg(long, value_name = "RESOURCE=VERSION")]
    expect: Vec<String>,
    /// A key of your own: with it the commit takes effect once, however often it is made
    #[arg(long, value_name = "TEXT")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    under: Under,
}

/// One of the operations of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
struct Operation {
    op: Verb,
    resource: String,
    key: String,
    /// What to store, as text.
    text: Option<String>,
    /// What to store, from a file; relative to the directory of the caller.
    file: Option<PathBuf>,
    content_type: Option<String>,
    if_match: Option<String>,
    #[serde(default)]
    if_absent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Put,
    Delete,
}

/// A file of operations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    operations: Vec<Operation>,
}

impl Commit {
    /// Commits it.
    ///
    /// # Errors
    /// As any write.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let operations = self.operations()?;
        if operations.is_empty() {
            return Err(usage("what is to be committed? Give a file, --put or --delete"));
        }
        let expected: Result<Vec<_>, _> = self.expect.iter().map(|text| expected(text)).collect();
        let expected = expected?;
        let resources: BTreeSet<_> = operations.iter().map(|it| it.resource.clone()).collect();
        let resources = resources.into_iter().chain(expected.iter().map(|(name, _)| name.clone()));
        let resources: BTreeSet<String> = resources.collect();
        let guard = self.under.guard(&app.client, resources.into_iter().collect()).await?;
        let mut commit = guard.commit();
        for operation in operations {
            commit = operation.on(commit)?;
        }
        for (resource, version) in expected {
            commit = commit.expect_version(&resource, version);
        }
        if let Some(key) = &self.idempotency_key {
            commit = commit.idempotency_key(key);
        }
        let committed = commit.send().await?;
        guard.end().await;
        let document = json!({
            "operation": committed.operation,
            "resources": committed.resources,
            "results": committed.results,
        });
        let versions = committed.resources.iter().filter_map(|it| {
            it.version.map(|version| format!("{} is version {version}", it.resource))
        });
        let lines: Vec<_> = versions.collect();
        app.out.lines(&document, &committed.operation.to_string(), &lines)?;
        Ok(ExitCode::SUCCESS)
    }

    fn operations(&self) -> Result<Vec<Operation>, Failure> {
        if let Some(path) = &self.file {
            let text = match path.as_path() == Path::new("-") {
                true => files::text_of(std::io::stdin(), OPERATIONS_BYTES_MAX),
                false => files::read_text(path, OPERATIONS_BYTES_MAX),
            };
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let read: Operations = serde_json::from_str(&text)
                .map_err(|error| usage(format!("{}: {error}", path.display())))?;
            return Ok(read.operations);
        }
        let plain = |op, place: (&str, &str), file| Operation {
            op,
            resource: place.0.to_owned(),
            key: place.1.to_owned(),
            text: None,
            file,
            content_type: None,
            if_match: None,
            if_absent: false,
        };
        let put = |text: &String| {
            let (at, file) = text
                .split_once('=')
                .ok_or_else(|| usage(format!("{text:?} is not RESOURCE/KEY=FILE")))?;
            Ok(plain(Verb::Put, place(at)?, Some(file.into())))
        };
        let delete = |text: &String| Ok(plain(Verb::Delete, place(text)?, None));
        self.put.iter().map(put).chain(self.delete.iter().map(delete)).collect()
    }
}

impl Operation {
    fn on(self, commit: CommitBuilder) -> Result<CommitBuilder, Failure> {
        let mut commit = match (self.op, self.text, self.file) {
            (Verb::Put, Some(text), None) => commit.put(&self.resource, &self.key, text),
            (Verb::Put, None, Some(file)) => {
                std::fs::metadata(&file).with_context(|| file.display().to_string())?;
                commit.put(&self.resource, &self.key, Body::file(file))
            }
            (Verb::Delete, None, None) => commit.delete(&self.resource, &self.key),
            (Verb::Put, ..) => {
                let place = format!("{}/{}", self.resource, self.key);
                return Err(usage(format!("{place}: a put has either `text` or `file`")));
            }
            (Verb::Delete, ..) => return Err(usage("a delete has neither `text` nor `file`")),
        };
        if let Some(content_type) = self.content_type {
            commit = commit.content_type(content_type);
        }
        if let Some(tag) = self.if_match {
            commit = commit.if_match(tag);
        }
        Ok(if self.if_absent { commit.if_absent() } else { commit })
    }
}

fn expected(text: &str) -> Result<(String, i64), Failure> {
    let wrong = || usage(format!("{text:?} is not RESOURCE=VERSION"));
    // A name may hold `=`; a version does not.
    let (resource, version) = text.rsplit_once('=').ok_or_else(wrong)?;
    Ok((resource.to_owned(), version.parse().map_err(|_| wrong())?))
}
