//! `fence context`: gateways by name, in a file of the user's own.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::failure::{Failure, usage};
use crate::options::Common;
use crate::output::{Column, Out, column, or_dash};
use crate::settings::{Context, Contexts};

/// What to do with contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List them
    Ls,
    /// Use this one from now on
    Use(Name),
    /// Add one, or change it: --url, --owner, --auth-token-file, --ca-file, --cert-file, --key-file and --allow-http are kept
    /// in it. Its credential is shown to its own URLs alone, and it is used once `fence context use` or --context says so
    Add(Name),
    /// Forget one
    Rm(Name),
}

/// Which one.
#[derive(Debug, Args)]
pub struct Name {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(serde::Serialize)]
struct Row {
    name: String,
    current: bool,
    url: Option<String>,
    owner: Option<String>,
}

const ROWS: &[Column<Row>] = &[
    column("", |it| if it.current { "*" } else { "" }.to_owned()),
    column("NAME", |it| it.name.clone()),
    column("URL", |it| or_dash(it.url.clone())),
    column("OWNER", |it| or_dash(it.owner.clone())),
];

impl ContextCommand {
    /// Does it.
    ///
    /// # Errors
    /// There is no such context, or the file cannot be read or written.
    pub fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut file = Contexts::load()?;
        match self {
            Self::Ls => {
                let current = file.current.clone();
                let rows = file.contexts.into_iter().map(|(name, context)| Row {
                    current: current.as_ref() == Some(&name),
                    name,
                    url: context.url,
                    owner: context.owner,
                });
                Out::new(common).items(rows, |it| it.name.clone(), ROWS)?;
                return Ok(ExitCode::SUCCESS);
            }
            Self::Use(Name { name }) => {
                if !file.contexts.contains_key(name) {
                    return Err(usage(format!("there is no context {name:?}")));
                }
                file.current = Some(name.clone());
            }
            Self::Add(Name { name }) => {
                let said = Context {
                    auth_token_file: whole(common.auth_token_file.as_ref())?,
                    ca_file: whole(common.ca_file.as_ref())?,
                    cert_file: whole(common.cert_file.as_ref())?,
                    key_file: whole(common.key_file.as_ref())?,
                    ..common.said()
                };
                let before = file.contexts.remove(name).unwrap_or_default();
                file.contexts.insert(name.clone(), before.changed(said)?);
                if file.current.is_none() {
                    let hint =
                        format!("no context is in use; `fence context use {name}` uses this one");
                    Out::new(common).say(&hint);
                }
            }
            Self::Rm(Name { name }) => {
                if file.contexts.remove(name).is_none() {
                    return Err(usage(format!("there is no context {name:?}")));
                }
                if file.current.as_ref() == Some(name) {
                    file.current = None;
                }
            }
        }
        store(&file)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A path that means the same in every directory.
fn whole(path: Option<&PathBuf>) -> anyhow::Result<Option<PathBuf>> {
    path.map(|path| std::path::absolute(path).context("which directory is this?")).transpose()
}

/// Puts the file in its place, whole or not at all, for its user alone.
fn store(file: &Contexts) -> Result<(), Failure> {
    let path = Contexts::path()?;
    let text = toml::to_string(file).context("the contexts cannot be written as TOML")?;
    let written = || -> anyhow::Result<()> {
        let folder = path.parent().context("the file is in a folder")?;
        std::fs::create_dir_all(folder)?;
        let mut new = tempfile::Builder::new().make_in(folder, |path| {
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
        })?;
        std::io::Write::write_all(&mut new, text.as_bytes())?;
        new.persist(&path)?;
        Ok(())
    };
    Ok(written().with_context(|| format!("cannot write {}", path.display()))?)
}
