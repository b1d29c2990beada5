//! `fence edit`: changes an object in an editor, under its lock, and only if nobody else has changed it.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, anyhow};
use clap::Args;
use fencegate_client::{Error, Wait};

use super::put;
use crate::app::App;
use crate::failure::Failure;
use crate::terminal::say;

/// What is larger is not for an editor.
const SIZE_MAX: u64 = 16 << 20;

/// What to edit.
#[derive(Debug, Args)]
pub struct Edit {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: String,
}

impl Edit {
    /// Opens it in `$VISUAL`, `$EDITOR` or `vi`, and stores what came of it. If the object is another by then, the
    /// editor opens once more on the text as it was edited.
    ///
    /// # Errors
    /// It cannot be read or written, or the editor failed; then the text stays in a file, which is named.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let get = || app.client.get(&self.resource, &self.key).limit(SIZE_MAX).optional();
        let mut found = get().await?;
        let before = found.as_ref().map(|object| object.bytes.clone()).unwrap_or_default();
        let name = self.key.rsplit('/').next().unwrap_or_default();
        let file = tempfile::Builder::new().suffix(&format!("-{name}")).tempfile();
        let file = file.context("cannot make a file for the editor")?;
        std::fs::write(file.path(), &before).context("cannot write the file for the editor")?;
        loop {
            edit(file.path())?;
            let text = std::fs::read(file.path()).context("cannot read what was edited")?;
            if text == before {
                app.out.say("nothing was changed");
                return Ok(ExitCode::SUCCESS);
            }
            let stored =
                self.store(app, found.as_ref().map(|object| object.etag.as_str()), text).await;
            match stored {
                Ok(written) => {
                    put::tell(app, &written)?;
                    return Ok(ExitCode::SUCCESS);
                }
                Err(Error::Changed(_)) => {
                    found = get().await?;
                    let theirs = file.path().with_extension("theirs");
                    let bytes = found.as_ref().map(|object| object.bytes.clone());
                    std::fs::write(&theirs, bytes.unwrap_or_default())
                        .context("cannot write the object as it is now")?;
                    say(&format!(
                        "somebody else has changed it: as it is now it is in {}. Press Enter to edit again.",
                        theirs.display()
                    ));
                    std::io::stdin().read_line(&mut String::new()).context("nobody is there")?;
                }
                Err(error) => {
                    let kept = file.keep().map_err(|error| anyhow!("{error}"))?.1;
                    say(&format!("your text is in {}", kept.display()));
                    return Err(error.into());
                }
            }
        }
    }

    async fn store(
        &self,
        app: &App,
        tag: Option<&str>,
        text: Vec<u8>,
    ) -> Result<fencegate_client::Written, Error> {
        let lock = app.client.lock(self.resource.as_str()).wait(Wait::Forever).acquire().await?;
        let put = lock.put(&self.key, text);
        let written = match tag {
            Some(tag) => put.if_match(tag).await,
            None => put.if_absent().await,
        };
        lock.release().await;
        written
    }
}

fn edit(path: &Path) -> anyhow::Result<()> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".into());
    // It may have options of its own: a shell splits them, as for git(1).
    let mut command: OsString = editor;
    command.push(" \"$@\"");
    let status = Command::new("sh").arg("-c").arg(command).arg("editor").arg(path).status();
    let status = status.context("cannot start the editor")?;
    anyhow::ensure!(status.success(), "the editor ended with {status}; nothing was written");
    Ok(())
}
