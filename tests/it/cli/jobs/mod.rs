//! `fence job`: each slot once, whatever becomes of whoever runs it.

mod agents;
mod killed;
mod looking;
mod meanwhile;
mod overlap;
mod parts;
mod runs;

use fencegate_client::jobs::{JobName, Run, RunStatus, State};
use serde_json::Value;

use super::{Dev, binary, call, end, fence, pid};

/// The records of the runs of a job, the oldest first.
async fn runs_of(gateway: &Dev, job: &str) -> Vec<Run> {
    let name = JobName::new(job).unwrap();
    let mut runs = gateway.client().job_runs(&name, 10_000).await.unwrap();
    runs.reverse();
    runs
}

async fn state_of(gateway: &Dev, job: &str) -> State {
    gateway.client().get(&format!("job:{job}"), "state.json").await.unwrap().json().unwrap()
}

fn words(runs: &[Run]) -> Vec<(u32, &str)> {
    runs.iter().map(|run| (run.attempt, run.status.as_str())).collect()
}

fn succeeded(run: &Run) -> bool {
    run.status == RunStatus::Succeeded
}
