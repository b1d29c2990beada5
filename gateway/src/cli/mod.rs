//! The command line: what `fencegate` is asked to do, and with which exit code it ends.

mod access;
mod audit;
mod bucket;
mod credential;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use fence_core::ResourceName;
use fence_core::shown::escaped_lines;
use reqwest::Url;
use rustix::fs::Mode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, ConfigError, Flags};
use crate::drill::{self, Outcome};
use crate::{dev, http, telemetry, wiring};

/// Something went wrong while running.
const FAILED: u8 = 1;
/// The command line or the configuration is not usable; clap ends with the same code.
const MISUSED: u8 = 2;
/// A drill could not be carried out: it says nothing on the fence.
const UNDECIDED: u8 = 2;
/// The shortest and the longest time that a drill may be given; its lock takes a second to lapse.
const TIME_LIMITS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));
/// How long blocking work may hold up the end of the process.
const LINGER: Duration = Duration::from_secs(5);

/// A storage gateway that refuses writers whose lock has passed to somebody else.
#[derive(Debug, Parser)]
#[command(name = "fencegate", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    ///
    /// With nothing else it keeps all it has under ./fencegate-data, on SQLite and an embedded
    /// mint, and listens on 127.0.0.1:8080. With --postgres and --etcd any number of gateways run
    /// side by side.
    ///
    /// TERM or INT stops it once requests in flight are done; a second one stops it at once.
    Serve(Flags),
    /// Run a gateway in memory, for tests
    ///
    /// It writes no files and needs no servers. On a free port of 127.0.0.1, unless --listen names another; when it
    /// is ready it prints one line of JSON, {"url": "http://127.0.0.1:PORT", "pid": N}. Everything is gone when it
    /// ends: when its standard input does (unless that is a terminal), or on TERM or INT, with 0.
    ///
    /// Settings come from flags and environment as those of `serve`, but the file only if it is named. Warnings alone
    /// are logged unless --log, FENCEGATE_LOG or RUST_LOG say otherwise.
    Dev(Dev),
    /// Bring the ledger's schema up to date, as `serve` does on its own
    Migrate(Migrate),
    /// Show the effective settings, with secrets hidden, and what they promise
    ///
    /// Ends with 0 if the gateway could start with them, else with 2 and the reason.
    CheckConfig(Flags),
    /// Take a ledger that may have lost commits as it is, and void all tokens granted before
    ///
    /// For a Postgres that was promoted or restored while `refence` is `manual`, beside running
    /// gateways; and for a data directory that was restored in part or from an older copy, while
    /// no gateway uses it. Ends with 1, and changes nothing, if nothing calls for it.
    Refence(Refence),
    /// Set for all gateways of a Postgres ledger what they must have alike
    ///
    /// How long things are kept, `rollback_horizon`, `failover`, `require_lock_id` and the root of S3 keys, as this command is
    /// told them by flags, environment and file. The first gateway on a ledger brings them; after that a gateway with others
    /// does not start. Beside running gateways, each of which keeps things for the longer of the two times until
    /// it is started with the new settings.
    ///
    /// With --clock-is-right it sets the time by which the ledger forgets, and no settings: also of a data directory, while no
    /// gateway uses it.
    Agree(Agree),
    /// See who may do what, and change it for all gateways
    #[command(subcommand)]
    Access(access::Access),
    /// Make and delete buckets of S3
    #[command(subcommand)]
    Bucket(bucket::Bucket),
    /// See whether anybody has changed what was recorded
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Make keys for callers
    #[command(subcommand)]
    Keys(access::Keys),
    /// Copy a data directory, also while a gateway uses it
    ///
    /// Into DIR, which must be new or empty: the ledger as of one moment, the blobs that it points at, and the
    /// mint. Blobs in a store that `blobs` names stay there. A gateway starts on the copy only after
    /// `fencegate refence`, since it knows nothing of what was granted after it was made.
    /// Ends with 1 if blobs that readers should get are missing or damaged; the rest is in the copy.
    Backup(Backup),
    /// Compare the ledger with the blob store
    ///
    /// Beside running gateways on Postgres; for a data directory, while no gateway uses it. Tells what
    /// the ledger points at that is missing, and what is in the store that the ledger knows nothing of; on
    /// Postgres also, which writes were let through under an older token than the one before them. Ends with
    /// 1 if readers do not get everything, or there is such a write.
    Scrub(Scrub),
    /// Show on a canary resource of a running gateway that the fence works
    ///
    /// Over HTTP it plays a late writer: takes a lock, writes, lets the lock lapse and a second holder
    /// take over, and looks whether the first one's late write bounces, as do a write without a token
    /// and one with a forged token. Says what it saw step by step, and removes the object again; the
    /// resource's fence and history stay, as they always do.
    ///
    /// Ends with 0 if every step came out as it must, with 1 if one did not, and with 2 if the drill
    /// could not be carried out, as when nobody answers.
    Drill(Drill),
    /// Print the HTTP interface as OpenAPI 3.2
    Openapi,
}

#[derive(Debug, clap::Args)]
struct Dev {
    /// Begin with the rules of access in this file; everybody may do everything without
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Migrate {
    /// Also stop gateways of older versions for good, once none of them is needed any more
    ///
    /// While gateways are replaced one by one, those of both versions work on one Postgres ledger, each with acts of
    /// its own. Afterwards this drops the older ones. A gateway that still has them ends with 1.
    #[arg(long)]
    retire_older: bool,

    #[command(flatten)]
    making: access::Making,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Refence {
    /// Why, for the log
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Re-fence even if no loss was detected; this voids every token
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Agree {
    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Agree on no settings, but on the ledger's clock: set the time by which the ledger forgets ahead to it
    ///
    /// After a long time in which no gateway ran, what is to be kept for a while is kept for so much longer, since no clock
    /// alone proves what has passed; `own_time_behind_ms` of /status says how much. With a clock that is ahead of the real
    /// time, keys of writes are forgotten that are still sent again, and nothing takes that back. Ends with 1, and changes
    /// nothing, if the clock is not ahead.
    #[arg(long)]
    clock_is_right: bool,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Backup {
    /// Where to; it must be new or empty
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Scrub {
    /// Delete what the ledger knows nothing of, unless it is younger than `rollback_horizon`, or the ledger
    /// was re-fenced less than that ago; refused on a ledger that may have gone back
    #[arg(long)]
    fix: bool,

    /// Read every blob and compare it with the digest that the ledger has of it
    #[arg(long)]
    deep: bool,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
struct Drill {
    /// The gateway, for example http://127.0.0.1:8080, or where a proxy shows it, with its prefix
    #[arg(value_name = "URL", value_parser = base_url)]
    url: Url,

    /// Drill on this resource; it must be new, or one that only drills have used
    /// [default: fencegate-drill-<random>]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| ResourceName::new(name))]
    resource: Option<ResourceName>,

    /// Give up after this time
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time_limit)]
    timeout: Duration,

    /// Print one JSON document in the end, in place of a line for each step
    #[arg(long)]
    json: bool,

    /// A file with the key or token to show; else FENCE_AUTH_TOKEN_FILE or FENCE_AUTH_TOKEN
    ///
    /// Where rules of access are in force it needs `lock`, `write`, `read`, `list` and `observe` on the canary.
    /// FENCE_CA_FILE names whom to trust beside this machine's own authorities.
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,

    /// A file with the key or token of another principal with the same rights, who tries to write, renew and release
    /// with the right token and the right id, and must not get anywhere
    #[arg(long, value_name = "FILE")]
    intruder_token_file: Option<PathBuf>,

    /// Also leave what came of it in this file, for the textfile collector of node_exporter
    ///
    /// The file is replaced as a whole, and must end in `.prom` for the collector to see it. If the drill could not be
    /// carried out it says just that, and not whether the fence holds. Ends with 2 if the fence holds and
    /// the file cannot be written.
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

/// A URL that paths can be added to.
fn base_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    let plain = url.query().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "http" | "https") || !plain {
        return Err("it must begin with http:// or https://, without a query".to_owned());
    }
    Ok(url)
}

fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = humantime::parse_duration(text);
    let limit = limit.map_err(|_| "it must be a duration such as 30s or 2m".to_owned())?;
    let allowed = TIME_LIMITS.0..=TIME_LIMITS.1;
    allowed.contains(&limit).then_some(limit).ok_or_else(|| "it must be from 5s to 1h".to_owned())
}

/// Why a command failed, and the exit code for it.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    code: u8,
}

impl Failure {
    /// Prints the error with its causes, once.
    pub fn report(self) -> ExitCode {
        let Self { error, code } = self;
        telemetry::unless_it_hangs(move || tell(&error));
        ExitCode::from(code)
    }

    fn undecided(error: anyhow::Error) -> Self {
        Self { error, code: UNDECIDED }
    }

    /// Of a gateway that ran, or could not with these settings.
    fn of_run(error: anyhow::Error) -> Self {
        let code = if error.is::<ConfigError>() { MISUSED } else { FAILED };
        Self { error, code }
    }

    fn misused(error: impl Into<anyhow::Error>) -> Self {
        Self { error: error.into(), code: MISUSED }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { error, code: FAILED }
    }
}

/// Does what the command line asks for. What was logged is written by then.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let done = carry(cli);
    telemetry::end();
    done
}

fn carry(cli: Cli) -> Result<(), Failure> {
    // What is written, such as blobs in a folder, is for this user only.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    match cli.command {
        Command::Serve(flags) => {
            let config = start(&flags)?;
            let run = until_signal(async |soft, hard| wiring::serve(config, soft, hard).await);
            block_on(run).map_err(Failure::of_run)?;
        }
        Command::Dev(Dev { rules, flags }) => {
            let config = begin(Config::load_dev(&flags))?;
            let rules = rules.map(|file| access::read(&file)).transpose()?;
            let run =
                until_signal(async |soft, hard| dev::run(config, rules, (soft, hard), print).await);
            block_on(run).map_err(Failure::of_run)?;
        }
        Command::Migrate(Migrate { retire_older, making, flags }) => {
            let config = start(&flags)?;
            if !making.create {
                wiring::require_ledger(&config)?;
            }
            block_on(async move { wiring::migrate(&config, retire_older).await })?;
        }
        Command::Refence(Refence { reason, force, flags }) => {
            let config = start(&flags)?;
            let mut told = String::new();
            block_on(async {
                told = wiring::refence(&config, &reason, force).await?;
                Ok(())
            })?;
            print(&told)?;
        }
        Command::Agree(Agree { reason, clock_is_right, flags }) => {
            let config = start(&flags)?;
            let told = block_on(async {
                match clock_is_right {
                    true => wiring::trust_clock(&config, &reason).await,
                    false => wiring::agree(&config, &reason).await,
                }
            })?;
            print(&told)?;
        }
        Command::Access(command) => access::access(command)?,
        Command::Bucket(command) => bucket::bucket(command)?,
        Command::Audit(command) => audit::audit(command)?,
        Command::Keys(command) => access::keys(command)?,
        Command::Backup(Backup { directory, flags }) => {
            let config = start(&flags)?;
            let mut backup = wiring::Backup::default();
            block_on(async {
                backup = wiring::backup(&config, &directory).await?;
                Ok(())
            })?;
            print(&backup.told)?;
            if !backup.whole {
                return Err(anyhow::anyhow!("not everything could be copied").into());
            }
        }
        Command::Scrub(Scrub { fix, deep, flags }) => {
            let config = start(&flags)?;
            let mut scrubbed = wiring::Scrubbed::default();
            block_on(async {
                scrubbed = wiring::scrub(&config, fix, deep).await?;
                Ok(())
            })?;
            print(&scrubbed.told)?;
            if let Some(wrong) = scrubbed.wrong {
                return Err(anyhow::anyhow!(wrong).into());
            }
        }
        Command::CheckConfig(flags) => {
            let (config, warnings) = Config::load(&flags).map_err(Failure::misused)?;
            print(&config.show().map_err(Failure::misused)?)?;
            let warnings = warnings.into_iter().chain(wiring::warnings(&config));
            let warnings = warnings.map(|warning| format!("# warning: {warning}\n"));
            print(&warnings.collect::<String>())?;
        }
        Command::Drill(settings) => run_drill(settings)?,
        Command::Openapi => print(&http::openapi_yaml())?,
    }
    Ok(())
}

/// Loads the settings, starts logging, and begins with what there is to be warned of.
fn start(flags: &Flags) -> Result<Config, Failure> {
    begin(Config::load(flags))
}

fn begin(loaded: Result<(Config, Vec<String>), ConfigError>) -> Result<Config, Failure> {
    let (config, warnings) = loaded.map_err(Failure::misused)?;
    telemetry::start(&config)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(config)
}

/// The file of `--textfile` is written before anything else can fail. One that cannot be written takes nothing away from a
/// fence that does not hold: that is said by the exit code all the same.
fn run_drill(mut drill: Drill) -> Result<(), Failure> {
    let textfile = drill.textfile.take();
    let textfile = textfile.map(|path| drill::Textfile::begin(path, &drill.url));
    let json = drill.json;
    let report = carry_out(drill);
    let outcome = report.as_ref().map_or(Outcome::NotDone, |report| report.outcome);
    let left = textfile.map_or(Ok(()), |textfile| textfile.write(outcome));
    let report = report?;
    if json {
        let text = serde_json::to_string_pretty(&report).context("cannot print the report")?;
        print(&format!("{text}\n"))?;
    } else if outcome == Outcome::Held {
        print(&format!("{}\n", report.verdict()))?;
    }
    match outcome {
        Outcome::Held => left.map_err(Failure::undecided),
        Outcome::Failed | Outcome::NotDone => {
            if let Err(error) = left {
                tell(&error);
            }
            let verdict = anyhow::anyhow!(report.verdict());
            Err(if outcome == Outcome::Failed {
                verdict.into()
            } else {
                Failure::undecided(verdict)
            })
        }
    }
}

/// Drills, and prints each step.
fn carry_out(drill: Drill) -> Result<drill::Report, Failure> {
    let Drill { url, resource, timeout, json, auth_token_file, intruder_token_file, textfile: _ } =
        drill;
    let shown = credential::credential(auth_token_file.as_deref()).map_err(Failure::undecided)?;
    let intruder = intruder_token_file.map(|file| credential::read(&file)).transpose();
    let intruder = intruder.map_err(Failure::undecided)?;
    if shown.is_some() || intruder.is_some() {
        credential::check_way(url.as_str()).map_err(Failure::undecided)?;
    }
    let settings = drill::Settings {
        url,
        resource,
        timeout,
        credential: shown,
        intruder,
        authorities: credential::authorities().map_err(Failure::undecided)?,
    };
    // A reader that went away must not stop the drill half-way.
    let mut tell = |step: &drill::Step| {
        if !json {
            let _ = print(&format!("{step}\n"));
        }
    };
    block_on(drill::drill(&settings, &mut tell)).map_err(Failure::undecided)
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(LINGER);
    result
}

/// Runs a gateway with what tells it to stop, softly and at once.
async fn until_signal(
    run: impl AsyncFnOnce(CancellationToken, CancellationToken) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Caught before anything starts, so that a signal during the start drains as well.
    let signals = [SignalKind::terminate(), SignalKind::interrupt()]
        .map(|kind| Ok((signal(kind)?, kind.as_raw_value())));
    let [terminate, interrupt] = signals.map(|s: io::Result<_>| s.context("cannot catch signals"));
    let (soft, hard) = (CancellationToken::new(), CancellationToken::new());
    let stop = stop_on_signal(terminate?, interrupt?, soft.clone(), hard.clone());
    #[expect(clippy::disallowed_methods, reason = "outlives the start and end of all else")]
    let watcher = tokio::spawn(stop);
    let result = run(soft, hard).await;
    watcher.abort();
    result
}

/// Drains on the first signal and ends the process on the second.
async fn stop_on_signal(
    mut terminate: (Signal, i32),
    mut interrupt: (Signal, i32),
    soft: CancellationToken,
    hard: CancellationToken,
) {
    let mut next = async || {
        tokio::select! {
            _ = terminate.0.recv() => terminate.1,
            _ = interrupt.0.recv() => interrupt.1,
        }
    };
    next().await;
    tracing::info!("draining; again to stop at once");
    soft.cancel();
    let number = next().await;
    tracing::warn!("stopping at once");
    hard.cancel();
    telemetry::end();
    // The ledgers survive being killed at any point, so there is nothing to wait for.
    std::process::exit(128 + number);
}

/// Prints to standard output; a reader that has gone away is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match printed(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot print")
        }
        _ => Ok(()),
    }
}

/// Prints to standard output what nobody can be shown again: a reader that has gone away is an error.
fn print_seen(text: &str) -> anyhow::Result<()> {
    printed(text).context("cannot print, and nothing was changed")
}

fn printed(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Tells an error with its causes, which may have names of others. Whoever does not read it is no reason to panic.
fn tell(error: &anyhow::Error) {
    let text = format!("{error:#}");
    let _unread = writeln!(io::stderr(), "error: {}", escaped_lines(&text));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
