//! `fence rm`: removes objects.

use std::process::ExitCode;

use clap::Args;
use fencegate_client::Error;
use fencegate_client::wire::ObjectKey;

use super::keys_below;
use super::tree::{self, LeftOut};
use crate::app::App;
use crate::failure::{Failure, usage};
use crate::terminal::confirm;
use crate::under::Under;

/// What to remove.
#[derive(Debug, Args)]
pub struct Remove {
    /// The resource; with --recursive also a folder of it, which ends at `/`
    #[arg(value_name = "RESOURCE[/FOLDER]")]
    place: String,
    /// The keys of the objects
    #[arg(value_name = "KEY", required_unless_present = "recursive", conflicts_with = "recursive")]
    keys: Vec<String>,
    /// All objects below the folder, or all of the resource. What cannot be removed by its key is left out and named, and
    /// the exit code is 1
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
            (true, Some((resource, folder))) => (resource, tree::folder(folder)),
            (_, None) => (self.place.as_str(), String::new()),
            (false, Some(_)) => return Err(usage("the keys come behind the resource")),
        };
        if self.recursive {
            let what = match prefix.is_empty() {
                true => format!("of {resource}"),
                false => format!("below {resource}/{prefix}"),
            };
            confirm(&format!("Remove all objects {what}?"), self.yes)?;
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
            true => keys_below(app, resource, &prefix).await?,
            false => self.keys.clone(),
        };
        let left_out = LeftOut::default();
        for key in keys {
            match on.delete(&key).await {
                Ok(_) => app.out.say(&format!("removed {resource}/{key}")),
                Err(error) if self.recursive && is_unfit(&key, &error) => {
                    left_out.tell(app, &key, &error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        guard.end().await;
        Ok(left_out.end())
    }
}

/// Tells a key that only S3 has: no path of the gateway's own API names it.
fn is_unfit(key: &str, error: &Error) -> bool {
    matches!(error, Error::Misuse(_)) && ObjectKey::new(key).is_err()
}
