//! pgbench, the rival of everything that ends in Postgres.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::load::{Measured, histogram};
use crate::servers::{Clustered, body};

/// What pgbench does in a transaction.
#[derive(Debug, Clone, Copy)]
pub enum Statement {
    /// Writes 1 KiB to the row of its own client.
    WriteOwn,
    /// Writes 1 KiB to the one row of all clients.
    WriteOne,
    /// Reads 1 KiB of the row of its own client.
    Read,
}

impl Statement {
    fn script(self) -> &'static str {
        match self {
            Self::WriteOwn => {
                "UPDATE objects SET body = :body, version = version + 1, written_at = now()
                 WHERE resource = 'r' || :client_id AND key = 'k';\n"
            }
            Self::WriteOne => {
                "UPDATE objects SET body = :body, version = version + 1, written_at = now()
                 WHERE resource = 'r0' AND key = 'k';\n"
            }
            Self::Read => {
                "SELECT version, body FROM objects WHERE resource = 'r' || :client_id AND key = 'k';\n"
            }
        }
    }
}

/// The table of pgbench: a row for each of its clients.
pub async fn prepare_pgbench(clustered: &Clustered) {
    clustered
        .postgres
        .execute(
            &clustered.database,
            "CREATE TABLE objects (
                 resource text COLLATE \"C\", key text COLLATE \"C\", version bigint NOT NULL,
                 body bytea NOT NULL, written_at timestamptz NOT NULL,
                 PRIMARY KEY (resource, key)) WITH (fillfactor = 70);
             ALTER TABLE objects ALTER COLUMN body SET STORAGE EXTERNAL;
             INSERT INTO objects SELECT 'r' || n, 'k', 1, decode(repeat('ab', 1024), 'hex'), now()
             FROM generate_series(0, 63) n",
        )
        .await;
}

/// Answers of each client on average, below which a run says too little.
const ANSWERS_MIN: f64 = 2.0;
/// How often such a run is made again, for twice as long.
const TRIES: u32 = 4;

/// One transaction for each statement, which is prepared, from so many clients.
///
/// Its time begins before its clients are connected: on a busy machine a second is over before anything was
/// done, and it ends well and tells nothing.
///
/// # Errors
/// What pgbench says, or a machine on which it does nothing.
pub async fn pgbench(
    clustered: &Clustered,
    statement: Statement,
    clients: usize,
    lasts: Duration,
) -> Result<Measured> {
    let mut seconds = lasts.as_secs().max(2);
    for _ in 0..TRIES {
        let measured = once(clustered, statement, clients, seconds).await?;
        if measured.per_second > 0.0 && measured.answers as f64 >= ANSWERS_MIN * clients as f64 {
            return Ok(measured);
        }
        seconds *= 2;
    }
    bail!("pgbench does nothing within {} s", seconds / 2)
}

async fn once(
    clustered: &Clustered,
    statement: Statement,
    clients: usize,
    seconds: u64,
) -> Result<Measured> {
    let program = clustered.postgres.program("pgbench");
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("script"), statement.script())?;
    let output = tokio::process::Command::new(program)
        .current_dir(dir.path())
        .args(["-n", "-M", "prepared", "-l", "--log-prefix=log", "-f", "script"])
        .args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()])
        .args(["-T", &seconds.to_string()])
        .arg(format!("-Dbody={}", String::from_utf8(body(1024))?))
        .args(["-h", "127.0.0.1", "-p", &clustered.postgres.port().to_string(), "-U", "postgres"])
        .arg(&clustered.database)
        .stdin(Stdio::null())
        .output()
        .await?;
    let (told, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "pgbench: {told}{error}");
    // Without anything done there is no rate, or one that is no number.
    let per_second = told
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
        .filter(|rate: &f64| rate.is_finite())
        .unwrap_or_default();
    let mut micros = histogram();
    for entry in fs::read_dir(dir.path())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log")) {
            let log = fs::read_to_string(path)?;
            let took = log.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
            took.for_each(|took| micros.saturating_record(took.max(1)));
        }
    }
    let answers = micros.len();
    if per_second > 0.0 {
        let distance_us = 1e6 * clients as f64 / per_second;
        micros = micros.clone_correct(distance_us as u64);
    }
    Ok(Measured { per_second, micros, answers, beside: 0 })
}
