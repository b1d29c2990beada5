//! `fence rm`: removes objects.

use std::process::ExitCode;

use clap::Args;
use futures::TryStreamExt as _;

use crate::app::App;
use crate::failure::{Failure, usage};
use crate::terminal::confirm;
use crate::under::Under;

/// What to remove.
#[derive(Debug, Args)]
pub struct Remove {
    /// The resource; with --recursive also how the keys begin, as RESOURCE/PREFIX
    #[arg(value_name = "RESOURCE[/PREFIX]")]
    place: String,
    /// The keys of the objects
    #[arg(value_name = "KEY", required_unless_present = "recursive", conflicts_with = "recursive")]
    keys: Vec<String>,
    /// All objects whose keys begin with what is given, or all of the resource
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    under: Under,
}

impl Remove {
    /// Removes them, one after another; all of a resource at once.
    ///
    /// # Errors
    /// As any write.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let (resource, prefix) = match (self.recursive, self.place.split_once('/')) {
            (true, Some((resource, prefix))) => (resource, prefix),
            (_, None) => (self.place.as_str(), ""),
            (false, Some(_)) => return Err(usage("the keys come behind the resource")),
        };
        if self.recursive {
            confirm(&format!("Remove all objects of {}?", self.place), self.yes)?;
        }
        let guard = self.under.guard(&app.client, vec![resource.to_owned()]).await?;
        let on = guard.on(resource);
        if self.recursive && prefix.is_empty() {
            let deleted = on.delete_all().await?;
            let version = deleted.version.unwrap_or_default();
            app.out.say(&format!("removed all objects of {resource}, version {version}"));
            guard.end().await;
            return Ok(ExitCode::SUCCESS);
        }
        let keys = match self.recursive {
            true => {
                let list = app.client.list(resource).prefix(prefix).stream();
                list.map_ok(|entry| entry.key).try_collect().await?
            }
            false => self.keys.clone(),
        };
        for key in keys {
            on.delete(&key).await?;
            app.out.say(&format!("removed {resource}/{key}"));
        }
        guard.end().await;
        Ok(ExitCode::SUCCESS)
    }
}
