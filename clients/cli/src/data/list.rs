//! `fence ls`: lists resources, or the objects of one.

use std::process::ExitCode;

use clap::Args;
use fencegate_client::wire::json::{ObjectEntry, Resource};

use super::tree;
use crate::app::App;
use crate::durations;
use crate::failure::Failure;
use crate::output::{Column, bytes, column, or_dash, state, time, wide};

/// What to list.
#[derive(Debug, Args)]
pub struct List {
    /// The resource whose objects to list, or a folder of it, which ends at `/`; without it, resources are listed
    #[arg(value_name = "RESOURCE[/FOLDER]")]
    place: Option<String>,
    /// Prefix of the names of the resources, or of the objects' names behind the folder
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

const OBJECTS: &[Column<ObjectEntry>] = &[
    column("KEY", |it| it.key.clone()),
    column("SIZE", |it| bytes(it.size)),
    column("VERSION", |it| it.version.to_string()),
    column("WRITTEN", |it| time(it.written_at)),
    wide("TYPE", |it| it.content_type.clone()),
    wide("ETAG", |it| it.etag.clone()),
];

/// The columns of resources.
pub const RESOURCES: &[Column<Resource>] = &[
    column("RESOURCE", |it| it.resource.to_string()),
    column("STATE", state),
    column("OWNER", |it| it.owner.clone()),
    column("AGE", |it| durations::show_ms(it.age_ms)),
    column("LEFT", |it| or_dash(it.expires_in_ms.map(durations::show_ms))),
    column("QUEUE", |it| it.queue_length.to_string()),
    wide("VERSION", |it| it.version.to_string()),
    wide("OBJECTS", |it| it.objects.to_string()),
    wide("RENEWED", |it| format!("{} ago", durations::show_ms(it.renewed_ms_ago))),
    wide("FROZEN", |it| or_dash(it.frozen.clone())),
    wide("PROTECTED", |it| or_dash(it.protected.clone())),
];

impl List {
    /// Lists it.
    ///
    /// # Errors
    /// The resource is not there, or the gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let Some(place) = &self.place else {
            let mut list = app.client.resources();
            if let Some(prefix) = &self.prefix {
                list = list.prefix(prefix);
            }
            app.out.list(list, self.limit, |it| it.resource.to_string(), RESOURCES).await?;
            return Ok(ExitCode::SUCCESS);
        };
        let (resource, folder) = place.split_once('/').unwrap_or((place, ""));
        let prefix = tree::folder(folder) + self.prefix.as_deref().unwrap_or_default();
        let mut list = app.client.list(resource);
        if !prefix.is_empty() {
            list = list.prefix(&prefix);
        }
        app.out.list(list, self.limit, |it| it.key.clone(), OBJECTS).await?;
        Ok(ExitCode::SUCCESS)
    }
}
