//! `fence status` and `ping`: how the gateway is.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::app::App;
use crate::failure::Failure;
use crate::output::{or_dash, time};

/// Not ready.
const UNAVAILABLE: u8 = 8;

/// Says what the gateway is, and whether it is ready: exit code 0 or 8.
///
/// # Errors
/// It cannot be asked.
pub async fn status(app: &App) -> Result<ExitCode, Failure> {
    let status = app.client.status().await?;
    let ready = app.client.ready().await?;
    let code = if ready.ready { ExitCode::SUCCESS } else { ExitCode::from(UNAVAILABLE) };
    if app.out.is_json() {
        app.out.one(&json!({"status": status, "ready": ready}), "", "")?;
        return Ok(code);
    }
    let line = |name: &str, text: String| app.out.line(&format!("{name:10} {text}"));
    line("gateway", format!("{} (version {})", status.gateway, status.version))?;
    line("started", time(status.started_at))?;
    line("ledger", status.ledger.clone())?;
    line("mint", status.mint.clone())?;
    line("blobs", status.blobs.clone())?;
    line("epoch", or_dash(status.epoch))?;
    line("waiting", status.counts.waiters.to_string())?;
    line("ready", if ready.ready { "yes" } else { "no" }.to_owned())?;
    for part in ready.parts {
        let is = if part.ready { "ready" } else { "not ready" };
        let detail = part.detail.map_or_else(String::new, |detail| format!(": {detail}"));
        app.out.line(&format!("  {:10} {is}{detail}", part.part))?;
    }
    Ok(code)
}

/// How often, and where.
#[derive(Debug, Args)]
pub struct Ping {
    /// The resource to lock and write to
    #[arg(value_name = "RESOURCE", default_value = "fence-ping")]
    resource: String,
    /// So many times
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    count: u32,
}

impl Ping {
    /// Takes a lock, writes under it, gives it back, and says how long each took.
    ///
    /// # Errors
    /// One of them failed.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        for turn in 1..=self.count {
            if turn > 1 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let wait = fencegate_client::Wait::UpTo(Duration::from_secs(10));
            let began = Instant::now();
            let lock = app.client.lock(self.resource.as_str()).wait(wait).acquire().await?;
            let acquired = began.elapsed();
            let began = Instant::now();
            lock.put("ping", turn.to_string()).await?;
            let written = began.elapsed();
            let began = Instant::now();
            let was_confirmed = lock.release().await;
            let released = began.elapsed();
            let us = |duration: Duration| duration.as_micros();
            let document = json!({
                "turn": turn,
                "acquire_us": us(acquired),
                "write_us": us(written),
                "release_us": us(released),
                "released": was_confirmed,
            });
            let shown = |duration: Duration| format!("{:.1} ms", duration.as_secs_f64() * 1e3);
            let (acquire, write, release) = (shown(acquired), shown(written), shown(released));
            let text = format!("acquire {acquire}, write {write}, release {release}");
            app.out.one(&document, &turn.to_string(), &text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
