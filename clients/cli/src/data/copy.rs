//! `fence cp`: objects and files, one or whole trees.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::{Body, Error};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::tree::{self, LeftOut, Pair, Plan};
use super::{get, keys_below, place, put};
use crate::app::App;
use crate::failure::{Failure, usage};
use crate::output::bytes;
use crate::under::{Guard, Under};

/// What a place on the gateway begins with.
const REMOTE: &str = "fg:";

/// From where to where.
#[derive(Debug, Args)]
pub struct Copy {
    /// `fg:RESOURCE/KEY`, or a file
    #[arg(value_name = "FROM")]
    from: String,
    /// `fg:RESOURCE/KEY`, or a file; below it, under the name of the source, if it is a folder: if it ends at `/`
    #[arg(value_name = "TO")]
    to: String,
    /// Whole trees: all objects below the source's key, which is a folder and ends at `/`, or all files of a folder. What has
    /// no place on the other side is left out and named, and the exit code is 1
    #[arg(short = 'R', long)]
    recursive: bool,
    /// So many at once
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// All files or none, in one commit; to the gateway only, and up to 1,000 of them
    #[arg(long)]
    atomic: bool,
    #[command(flatten)]
    under: Under,
}

impl Copy {
    /// Copies it.
    ///
    /// # Errors
    /// As any write or read.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        match (self.from.strip_prefix(REMOTE), self.to.strip_prefix(REMOTE)) {
            (Some(_), _) if self.atomic => {
                Err(usage("--atomic is for copies of files to the gateway"))
            }
            (None, Some(to)) => self.up(app, to).await,
            (Some(from), None) => self.down(app, from).await,
            (Some(from), Some(to)) => self.across(app, from, to).await,
            (None, None) => Err(usage("one of them is on the gateway: fg:RESOURCE/KEY")),
        }
    }

    async fn up(&self, app: &App, to: &str) -> Result<ExitCode, Failure> {
        let (resource, key) =
            if self.recursive { to.split_once('/').unwrap_or((to, "")) } else { place(to)? };
        let (from, left_out) = (Path::new(&self.from), LeftOut::default());
        let Plan { pairs, left_out: odd } = match self.recursive {
            true => tree::up(from, key).with_context(|| self.from.clone())?,
            false => {
                let pair = Pair { from: self.from.clone(), to: tree::named(key, &self.from)? };
                Plan { pairs: vec![pair], ..Plan::default() }
            }
        };
        odd.iter().for_each(|(name, why)| left_out.tell(app, name, why));
        if self.atomic && !odd.is_empty() {
            return Err(usage("--atomic copies all files or none: nothing was copied"));
        }
        let guard = self.under.guard(&app.client, vec![resource.to_owned()]).await?;
        if self.atomic {
            return at_once(app, guard, resource, &pairs).await;
        }
        let put = async |pair: Pair| -> Result<(), Failure> {
            let path = Path::new(&pair.from);
            // One that cannot be read, or is gone by now, keeps back no other.
            let size = match File::open(path).and_then(|file| file.metadata()) {
                Err(error) if self.recursive => {
                    left_out.tell(app, &pair.from, &error.to_string());
                    return Ok(());
                }
                found => found.with_context(|| pair.from.clone())?.len(),
            };
            let body = put::shown(app, &pair.to, Some(path), Body::file(path));
            let written = guard.on(resource).put(&pair.to, body).await?;
            let text = format!("{} -> {resource}/{}, {}", pair.from, pair.to, shown(size));
            let sha256 = written.sha256;
            app.out.one(&done(&pair, size, sha256.as_deref()), &pair.to, &text)
        };
        self.each(pairs, put).await?;
        guard.end().await;
        Ok(left_out.end())
    }

    async fn down(&self, app: &App, from: &str) -> Result<ExitCode, Failure> {
        let (resource, key) =
            if self.recursive { from.split_once('/').unwrap_or((from, "")) } else { place(from)? };
        let left_out = LeftOut::default();
        let pairs = match self.recursive {
            true => {
                let prefix = tree::folder(key);
                let keys = keys_below(app, resource, &prefix).await?;
                let plan = tree::down(keys, &prefix, Path::new(&self.to));
                plan.left_out.iter().for_each(|(name, why)| left_out.tell(app, name, why));
                plan.pairs
            }
            false => {
                let mut to = PathBuf::from(&self.to);
                if to.is_dir() {
                    to.push(key.rsplit('/').next().unwrap_or_default());
                }
                vec![Pair { from: key.to_owned(), to: path_text(&to)? }]
            }
        };
        let get = async |pair: Pair| -> Result<(), Failure> {
            if let Some(folder) = Path::new(&pair.to).parent().filter(|_| self.recursive)
                && let Err(error) = std::fs::create_dir_all(folder)
            {
                left_out.tell(app, &pair.from, &format!("{}: {error}", folder.display()));
                return Ok(());
            }
            let download = app.client.download(resource, &pair.from, &pair.to);
            let head = match get::shown(app, &pair.from, download).await {
                Err(error) if self.recursive && is_of_one(&error) => {
                    left_out.tell(app, &pair.from, &error.to_string());
                    return Ok(());
                }
                read => read?,
            };
            let text = format!("{resource}/{} -> {}, {}", pair.from, pair.to, shown(head.size));
            app.out.one(&done(&pair, head.size, head.sha256.as_deref()), &pair.to, &text)
        };
        self.each(pairs, get).await?;
        Ok(left_out.end())
    }

    async fn across(&self, app: &App, from: &str, to: &str) -> Result<ExitCode, Failure> {
        if self.recursive {
            return Err(usage("trees are copied from or to files"));
        }
        let ((resource, key), (target, name)) = (place(from)?, place(to)?);
        let name = &tree::named(name, key)?;
        let guard = self.under.guard(&app.client, vec![target.to_owned()]).await?;
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let path = folder.path().join("object");
        let head = get::shown(app, key, app.client.download(resource, key, &path)).await?;
        let body = put::shown(app, name, Some(&path), Body::file(&path));
        let put = guard.on(target).put(name, body).content_type(&head.content_type);
        let written = put.await?;
        guard.end().await;
        let pair = Pair { from: from.to_owned(), to: to.to_owned() };
        let text = format!("{from} -> {to}, {}", shown(head.size));
        app.out.one(&done(&pair, head.size, written.sha256.as_deref()), to, &text)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn each(
        &self,
        pairs: Vec<Pair>,
        copy: impl AsyncFn(Pair) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let copies = futures::stream::iter(pairs.into_iter().map(|pair| copy(pair)));
        copies.buffer_unordered(usize::from(self.jobs)).try_collect().await
    }
}

/// All files in one commit.
async fn at_once(
    app: &App,
    guard: Guard,
    resource: &str,
    pairs: &[Pair],
) -> Result<ExitCode, Failure> {
    let mut commit = guard.commit();
    for pair in pairs {
        let path = Path::new(&pair.from);
        std::fs::metadata(path).with_context(|| pair.from.clone())?;
        let body = put::shown(app, &pair.to, Some(path), Body::file(path));
        commit = commit.put(resource, &pair.to, body);
    }
    let committed = commit.send().await?;
    guard.end().await;
    for (pair, result) in pairs.iter().zip(&committed.results) {
        let size = result.size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default();
        let text = format!("{} -> {resource}/{}, {}", pair.from, pair.to, shown(size));
        app.out.one(&done(pair, size, result.sha256.as_deref()), &pair.to, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn done(pair: &Pair, size: u64, sha256: Option<&str>) -> serde_json::Value {
    json!({"status": "done", "from": pair.from, "to": pair.to, "size": size, "sha256": sha256})
}

fn shown(size: u64) -> String {
    bytes(i64::try_from(size).unwrap_or(i64::MAX))
}

fn path_text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| usage(format!("the name of {} is not UTF-8", path.display())))
}

/// Tells a failure that lies in this object or its file: others may fare better.
fn is_of_one(error: &Error) -> bool {
    matches!(
        error,
        Error::Misuse(_) | Error::NotFound(_) | Error::Changed(_) | Error::GatewayFault(_)
    )
}
