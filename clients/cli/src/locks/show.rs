//! `fence show`: all about one resource.

use std::process::ExitCode;

use clap::Args;
use fencegate_client::Error;
use fencegate_client::wire::json::{AuditEntry, Resource};
use fencegate_client::wire::{AuditAction, GrantEnd, LockState};
use jiff::Timestamp;
use serde_json::json;

use crate::app::App;
use crate::durations;
use crate::failure::Failure;
use crate::output::{or_dash, state, time};

/// So many of the last grants and writes are shown.
const LAST: usize = 10;

/// What to show.
#[derive(Debug, Args)]
pub struct Show {
    /// The resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
}

impl Show {
    /// Shows its lock, its line, its marks, and what happened last.
    ///
    /// # Errors
    /// It was never locked, or the gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let client = &app.client;
        let resource = client.resource(&self.resource).await?;
        let waiters = client.waiters(&self.resource).page_size(LAST as u32).page(None).await?.items;
        let audit = client.audit().resource(&self.resource).page_size(LAST as u32).page(None).await;
        // What was done to it is for those who may observe; the rest is for all who may read it.
        let audit = match audit {
            Err(Error::Denied(_)) => None,
            page => Some(page?.items),
        };
        let versions =
            client.versions(&self.resource).page_size(LAST as u32).page(None).await?.items;
        if app.out.is_json() {
            let document = json!({"resource": resource, "waiters": waiters, "audit": audit, "versions": versions});
            app.out.one(&document, &self.resource, "")?;
            return Ok(ExitCode::SUCCESS);
        }
        let ms = durations::show_ms;
        let line = |name: &str, text: String| app.out.line(&format!("{name:10} {text}"));
        line("resource", resource.resource.to_string())?;
        line("state", state(&resource))?;
        line("owner", resource.owner.clone())?;
        if let Some(principal) = &resource.principal {
            line("principal", principal.clone())?;
        }
        line("since", format!("{} ({})", time(resource.acquired_at), ms(resource.age_ms)))?;
        if let Some(ended_at) = resource.ended_at {
            line(resource.state.as_str(), time(ended_at))?;
        }
        line("renewed", format!("{} ago", ms(resource.renewed_ms_ago)))?;
        line("left", or_dash(resource.expires_in_ms.map(ms)))?;
        if let Some(breaks_in_ms) = resource.breaks_in_ms {
            line("breaks in", ms(breaks_in_ms))?;
        }
        line("version", resource.version.to_string())?;
        line("objects", resource.objects.to_string())?;
        if let Some(reason) = &resource.frozen {
            line("frozen", reason.clone())?;
        }
        if let Some(reason) = &resource.protected {
            line("protected", reason.clone())?;
        }
        line("in line", resource.queue_length.to_string())?;
        for waiter in waiters {
            line("", format!("{} {} since {}", waiter.position, waiter.owner, time(waiter.since)))?;
        }
        if let Some(audit) = audit {
            app.out.line("")?;
            app.out.line("last acts")?;
            let ends = ends(&audit, &resource);
            for (entry, end) in audit.into_iter().zip(ends) {
                let reason = entry.reason.map_or_else(String::new, |reason| format!(": {reason}"));
                let (at, owner) = (time(entry.at), or_dash(entry.owner));
                let end = end.map_or_else(String::new, |end| format!(", {end}"));
                app.out.line(&format!("  {at}  {:10} {owner}{end}{reason}", entry.action))?;
            }
        }
        app.out.line("")?;
        app.out.line("last writes")?;
        for write in versions {
            let (at, key) = (time(write.committed_at), or_dash(write.key));
            app.out.line(&format!(
                "  {at}  {:5} {} {key} by {}",
                write.version, write.kind, write.owner
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Ends of the grants among these entries, which are newest first: the next grant says that of each, and the resource the
/// newest's.
fn ends(entries: &[AuditEntry], resource: &Resource) -> Vec<Option<String>> {
    let is_over = resource.state == LockState::Released || resource.state == LockState::Broken;
    let mut end = is_over.then(|| (resource.state.as_str(), resource.ended_at));
    let mut ends = Vec::new();
    for entry in entries {
        let is_grant = AuditAction::parse(&entry.action).is_some_and(AuditAction::is_of_grant);
        ends.push(end.filter(|_| is_grant).map(|(how, at)| shown(how, at, entry.at)));
        if is_grant {
            let how = entry.previous_end.as_ref().map(|how| how.as_str());
            end = how.map(|how| (how, entry.previous_ended_at));
        }
    }
    ends
}

fn shown(how: &str, at: Option<Timestamp>, granted_at: Timestamp) -> String {
    let after = at.map_or_else(String::new, |at| {
        let held_ms = at.as_millisecond() - granted_at.as_millisecond();
        format!(" after {}", durations::show_ms(held_ms))
    });
    match GrantEnd::parse(how) {
        Some(GrantEnd::Fenced) => format!("fenced off{after}"),
        Some(GrantEnd::Lapsed) => format!("lapsed, taken over{after}"),
        _ => format!("{how}{after}"),
    }
}
