//! `fence fence`: a fence for a lock of one's own, which Fencegate does not give out.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::failure::Failure;

/// Which fence to set.
#[derive(Debug, Args)]
pub struct SetFence {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
    /// A number of your lock that rises with each holder: a late one is refused
    #[arg(long, value_name = "NUMBER")]
    order: Option<i64>,
    /// Also where a lock is held
    #[arg(long)]
    force: bool,
}

impl SetFence {
    /// Sets it, and prints its token.
    ///
    /// # Errors
    /// A later holder was here before, or a lock is held there.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut fence = app.client.fence(self.resource.as_str());
        if let Some(order) = self.order {
            fence = fence.order(order);
        }
        if self.force {
            fence = fence.force();
        }
        let fence = fence.set().await?;
        let (token, id, version) = (fence.token(), fence.id(), fence.version());
        let document =
            json!({"resource": fence.resource(), "token": token, "version": version, "id": id});
        let lines = [format!("id         {id}"), format!("token      {token}")];
        app.out.lines(&document, &token.to_string(), &lines)?;
        Ok(ExitCode::SUCCESS)
    }
}
