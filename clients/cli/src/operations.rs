//! `fence operation`, `intents` and `resolve`: what became of writes.

use std::process::ExitCode;

use clap::Args;
use fencegate_client::wire::json::{IntentEntry, Operation, OperationOutcome};
use fencegate_client::wire::{OperationId, Word};
use serde_json::json;

use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::output::{Column, column, or_dash, wide};

/// Nobody knows.
const UNKNOWN: u8 = 7;
/// It took no effect.
const NOT_APPLIED: u8 = 3;

/// Which operation.
#[derive(Debug, Args)]
pub struct OperationOf {
    /// Its id
    #[arg(value_name = "ID", required_unless_present = "idempotency_key")]
    id: Option<String>,
    /// The resource on which it was made
    #[arg(long, value_name = "RESOURCE", requires = "idempotency_key")]
    on: Option<String>,
    /// Its idempotency key
    #[arg(long, value_name = "TEXT", requires = "on", conflicts_with = "id")]
    idempotency_key: Option<String>,
}

fn parsed(id: &str) -> Result<OperationId, Failure> {
    let wrong = |_| usage(format!("{id:?} is not the id of an operation"));
    id.parse().map(OperationId).map_err(wrong)
}

impl OperationOf {
    /// Says what became of it: exit code 0 if it took effect, 3 if not, 7 if nobody knows.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let found = match (&self.id, &self.on, &self.idempotency_key) {
            (Some(id), ..) => app.client.operation(parsed(id)?).await?,
            (None, Some(on), Some(key)) => app.client.operation_by_key(on, key).await?,
            _ => return Err(usage("an id, or --on and --idempotency-key")),
        };
        let Some(operation) = found else {
            app.out.say("unknown: there is no record of it, and it may still be under way");
            return Ok(ExitCode::from(UNKNOWN));
        };
        app.out.one(&operation, &operation.operation.to_string(), &text(&operation))?;
        Ok(ExitCode::from(match operation.outcome.known() {
            Some(OperationOutcome::Applied) => 0,
            Some(OperationOutcome::NotApplied) => NOT_APPLIED,
            _ => UNKNOWN,
        }))
    }
}

fn text(operation: &Operation) -> String {
    let outcome = match &operation.outcome {
        Word::Known(OperationOutcome::Applied) => "applied",
        Word::Known(OperationOutcome::NotApplied) => "not applied",
        Word::Known(_) => "unknown",
        Word::Other(text) => text,
    };
    let kind = or_dash(operation.kind.clone());
    let place = match (&operation.resource, &operation.key) {
        (Some(resource), Some(key)) => format!(" {resource}/{key}"),
        (Some(resource), None) => format!(" {resource}"),
        _ => String::new(),
    };
    let version = operation.version.map_or_else(String::new, |it| format!(", version {it}"));
    format!("{outcome}: {kind}{place}{version}")
}

const INTENTS: &[Column<IntentEntry>] = &[
    column("OPERATION", |it| it.operation.to_string()),
    column("RESOURCE", |it| it.resource.clone()),
    column("OWNER", |it| it.owner.clone()),
    column("UPSTREAM", |it| it.upstream.clone()),
    column("AGE", |it| durations::show_ms(it.age_ms)),
    wide("METHOD", |it| it.method.clone()),
    wide("PATH", |it| it.path.clone()),
    wide("GATEWAY", |it| it.gateway.to_string()),
];

/// Which requests to upstreams.
#[derive(Debug, Args)]
pub struct Intents {
    /// Only those on this resource
    #[arg(long, value_name = "RESOURCE")]
    on: Option<String>,
    /// Only those to this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
}

impl Intents {
    /// Lists requests to upstreams that are under way, or whose outcome is unknown.
    ///
    /// # Errors
    /// The gateway cannot be asked.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        let mut list = app.client.intents();
        if let Some(resource) = &self.on {
            list = list.resource(resource);
        }
        if let Some(upstream) = &self.upstream {
            list = list.upstream(upstream);
        }
        if !app.out.is_document() {
            app.out.list(list, None, |it| it.operation.to_string(), INTENTS).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let (items, doubts) = (list.all().await?, app.client.doubts().await?);
        app.out.one(&json!({"items": items, "doubts": doubts}), "", "")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Which request to an upstream is over.
#[derive(Debug, Args)]
pub struct Resolve {
    /// Its operation
    #[arg(value_name = "OPERATION")]
    operation: String,
    /// How you know that it is over: the audit keeps it
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

impl Resolve {
    /// Takes it upon the caller that it is over.
    ///
    /// # Errors
    /// There is none, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        app.client.resolve_intent(parsed(&self.operation)?, &self.reason).await?;
        app.out.say("resolved");
        Ok(ExitCode::SUCCESS)
    }
}
