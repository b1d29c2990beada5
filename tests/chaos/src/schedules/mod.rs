//! Random schedules of all acts in many sessions of a real Postgres, whose processes stand still, are cancelled and are
//! ended meanwhile. No gateway is in between: the adapter of the ledger is called as the engine calls it, so that what
//! is judged is the SQL itself.
//!
//! A run goes round by round, each on a database of its own. After a round all that was left unknown is found out, and
//! what was told and what the tables hold goes through the checkers of histories.

mod disturber;
mod grants;
mod locks;
mod operator;
mod reads;
mod report;
mod session;
mod stage;
mod tables;
mod upstream;
mod wishes;
mod writes;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_core::OperationId;
use fence_core::ports::Ledger as _;
use fence_history::{History, Record, check};
use fence_tests::mutants::{Mutant, mutate, shared};
use fence_tests::postgres::Postgres;
use fencegate::ledger::postgres::migrate;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::postgres::PgConnectOptions;
use tokio::time::timeout;
use uuid::Uuid;

pub use self::report::Report;

use self::disturber::{Disturber, Tally, all_ended};
use self::report::Round;
use self::session::{Session, name};
use self::stage::{Stage, UPSTREAM};
use crate::ledger::Held;
use crate::patroni::is_void;

/// What is wanted.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// For how long sessions are disturbed, over all rounds
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// How long a round lasts, in seconds
    #[arg(long, default_value_t = 20.0)]
    round_seconds: f64,
    /// How many sessions ask at the same time
    #[arg(long, default_value_t = 14)]
    sessions: u32,
    /// Over how many resources they quarrel; the last is that of a drained upstream
    #[arg(long, default_value_t = 4)]
    resources: u32,
    /// From which the first round is drawn; the next ones count up. By chance, if not said
    #[arg(long)]
    seed: Option<u64>,
    /// Where the report is kept, and the history of the last round
    #[arg(long, default_value = "target/schedules")]
    out: PathBuf,
    /// Make a function of the ledger wrong, to see that it is noticed; ends with the first round that notices
    #[arg(long)]
    mutant: Option<String>,
    /// List the mutants, and do nothing else
    #[arg(long)]
    list_mutants: bool,
}

/// Carries it out: what came of it, or nothing if there was only something to list.
///
/// # Errors
/// A plan that makes no sense, and what keeps it from being carried out.
pub async fn run(plan: &Plan) -> Result<Option<Report>> {
    if plan.list_mutants {
        for mutant in shared::ALL {
            println!("{:<26} {}", mutant.name, mutant.what);
        }
        return Ok(None);
    }
    ensure!((0.0..=1000.0).contains(&plan.minutes), "--minutes is between 0 and 1000");
    ensure!((1.0..=600.0).contains(&plan.round_seconds), "--round-seconds is between 1 and 600");
    ensure!((2..=100).contains(&plan.sessions), "--sessions is between 2 and 100");
    ensure!((1..=50).contains(&plan.resources), "--resources is between 1 and 50");
    let find = |name: &String| {
        let found = shared::ALL.iter().find(|mutant| mutant.name == *name);
        found.with_context(|| format!("no mutant is named {name:?}; --list-mutants has them all"))
    };
    let mutant = plan.mutant.as_ref().map(find).transpose()?;
    fs::create_dir_all(&plan.out).with_context(|| format!("{}", plan.out.display()))?;
    let seed = plan.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("seed {seed}: starting Postgres");
    let server = Postgres::dedicated().await;
    let mut report = Report::new(seed, mutant.map(|mutant| mutant.name));
    let mut left = Duration::from_secs_f64(plan.minutes * 60.0);
    for number in 0.. {
        let lasts = left.min(Duration::from_secs_f64(plan.round_seconds));
        left -= lasts;
        let round = Round { number, seed: seed + number, lasts };
        let history = play(plan, &server, mutant, &round, &mut report).await?;
        history.write(BufWriter::new(File::create(plan.out.join("history.jsonl"))?))?;
        if left.is_zero() || !report.is_clean() {
            break;
        }
    }
    fs::write(plan.out.join("report.txt"), report.to_string())?;
    Ok(Some(report))
}

/// One round, from an empty database to a verdict.
async fn play(
    plan: &Plan,
    server: &Postgres,
    mutant: Option<&Mutant>,
    round: &Round,
    report: &mut Report,
) -> Result<History> {
    let began = Instant::now();
    let database = server.database_name().await;
    let options: PgConnectOptions = server.url(&database).parse()?;
    migrate(&options).await?;
    let mut connection = server.connect(&database).await;
    for edit in mutant.map_or(&[][..], |mutant| mutant.edits) {
        mutate(&mut connection, *edit).await;
    }
    sqlx::Connection::close(connection).await?;
    let mut rng = StdRng::seed_from_u64(round.seed);
    let stage = Arc::new(Stage::new(&options, resources(plan.resources), ids(&mut rng)));
    upstream::register(&stage.ledger(0)).await?;

    let live = |number| tokio::spawn(Session::new(&stage, number, round.seed).live());
    let lives: Vec<_> = (0..plan.sessions).map(live).collect();
    let operator = tokio::spawn(operator::operate(Arc::clone(&stage), rng.random()));
    let tally = Arc::clone(&report.tally);
    let admin = server.connect("postgres").await;
    let disturber = Disturber::new(admin, database.clone(), rng.random(), Arc::clone(&tally));
    let disturb = disturber.disturb(round.lasts);
    let tell = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            println!("{}", progress(round, &stage, &tally, began));
        }
    };
    tokio::select! {
        end = disturb => end.context("disturbing")?,
        () = tell => {}
    }
    stage.stop.store(true, Ordering::SeqCst);
    let all = join_all(lives.into_iter().chain([operator]));
    for end in timeout(Duration::from_secs(60), all).await.context("sessions do not end")? {
        end.context("a session")?;
    }
    println!("{}", progress(round, &stage, &tally, began));
    finish(plan, server, &database, &options, &stage).await?;
    judge(server, &database, &stage, report).await
}

fn progress(round: &Round, stage: &Stage, tally: &Tally, began: Instant) -> String {
    let (calls, grants) = stage.book.so_far();
    let (seconds, lost) = (began.elapsed().as_secs_f64(), stage.lost_answers());
    let Round { number, seed, .. } = round;
    format!(
        "round {number:>3}, seed {seed}  {seconds:>5.1} s  {calls} calls, {grants} grants, {lost} answers \
         lost; {tally}"
    )
}

/// Their names; the last is one of the upstream.
fn resources(count: u32) -> Vec<fence_core::ResourceName> {
    let one = |number| match number + 1 == count {
        true => name(&format!("{UPSTREAM}-{number}")),
        false => name(&format!("r-{number}")),
    };
    (0..count).map(one).collect()
}

fn ids(rng: &mut StdRng) -> [Uuid; stage::GATEWAYS] {
    std::array::from_fn(|_| Uuid::from_u128(rng.random()))
}

/// After all that was sent has been done or never will be: nothing is left unknown, and all works.
async fn finish(
    plan: &Plan,
    server: &Postgres,
    database: &str,
    options: &PgConnectOptions,
    stage: &Arc<Stage>,
) -> Result<()> {
    stage.disconnect();
    all_ended(&mut server.connect("postgres").await, database).await?;
    stage.connect(options, Duration::from_secs(10));
    let ledger = stage.ledger(0);
    upstream::resolve_doubts(stage, &ledger).await?;
    let unknown = stage.book.unknown();
    let mut last = Session::new(stage, plan.sessions, 0);
    for _ in 0..unknown.len() * 20 {
        last.find_out().await;
    }
    if let Some(lost) = stage.find(0) {
        stage.trouble(format!("it cannot be found out what became of {lost:?}"));
    }
    for operation in unknown {
        last.ask(OperationId(operation)).await;
    }
    last.lift().await;
    stage.book.healed(stage.resources.iter().map(|resource| resource.as_str()));
    for resource in &stage.resources {
        last.serve(resource).await;
    }
    ledger.number_events().await?;
    Ok(())
}

/// Holds what was told against what the tables have.
async fn judge(
    server: &Postgres,
    database: &str,
    stage: &Stage,
    report: &mut Report,
) -> Result<History> {
    let mut connection = server.connect(database).await;
    let mut wishes = stage.book.wishes();
    wishes.operations = stage.plans();
    let held = Held::read(&mut connection, &wishes).await?;
    let mut trouble = stage.troubles();
    trouble.extend(held.misplaced(&wishes));
    trouble.extend(tables::wrong(&mut connection).await?);
    sqlx::Connection::close(connection).await?;
    let (mut history, outcomes) = stage.book.clone().close(held);
    history.records.retain(|record: &Record| !is_void(record));
    report.count(stage);
    report.add(outcomes, trouble, check(&history));
    Ok(history)
}
