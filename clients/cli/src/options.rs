//! The command line. No letter and no word means two things in it: a test looks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::contexts::ContextCommand;
use crate::data::commit::Commit;
use crate::data::copy::Copy;
use crate::data::edit::Edit;
use crate::data::get::Get;
use crate::data::history::{Diff, Log};
use crate::data::list::List;
use crate::data::put::Put;
use crate::data::remove::Remove;
use crate::durations;
use crate::job::JobCommand;
use crate::locks::fence::SetFence;
use crate::locks::hold::{Keep, Renew, Take, Transfer, Unlock};
use crate::locks::look::{LeaderOf, Locks, WatchResource};
use crate::locks::show::Show;
use crate::locks::top::Top;
use crate::operations::{Intents, OperationOf, Resolve};
use crate::operators::{BreakLock, Mark};
use crate::output::Format;
use crate::records::{Audit, Events, Rejections};
use crate::run::exec::Exec;
use crate::run::options::{Elect, RunOptions};
use crate::run::watcher::Watch;
use crate::s3::key::S3Key;
use crate::settings::Context;
use crate::shell::{Completions, Man};
use crate::status::Ping;

/// Runs commands under fenced locks, and shows and changes what a Fencegate keeps.
///
/// Whatever is written under a lock bounces once the lock has passed to somebody else.
#[derive(Debug, Parser)]
#[command(name = "fence", max_term_width = 100, disable_help_subcommand = true,
    after_long_help = crate::help::ALL)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// What all commands take.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Options of all commands")]
pub struct Common {
    /// Where a gateway is; given several times, the next is asked when one does not answer
    #[arg(long, global = true, value_name = "URL")]
    pub url: Vec<String>,
    /// The context to use, of those in the file of contexts
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// What the caller calls itself
    #[arg(long, global = true, value_name = "TEXT")]
    pub owner: Option<String>,
    /// How long a call to the gateway goes on
    #[arg(long, global = true, value_name = "DURATION", value_parser = durations::parse)]
    pub timeout: Option<Duration>,
    /// How long to wait for a gateway that does not answer, before the first answer: by default 2s; 30s for `run`,
    /// `elect`, `job run` and `job agent`, which say so after 2s; and as long as any call goes on where FENCE_LOCK_ID
    /// says that a lock is held. What no wait can mend ends at once, such as a certificate that is not trusted, and a name
    /// that is not known unless this is given. Later on a gateway that is away is waited for as ever
    #[arg(long, global = true, value_name = "DURATION", value_parser = durations::parse)]
    pub wait_for_gateway: Option<Duration>,
    /// A file with the credential
    #[arg(long, global = true, value_name = "FILE")]
    pub auth_token_file: Option<PathBuf>,
    /// Certificates to trust, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The caller's own certificate, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// The key of the caller's certificate, in PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Show the credential also over http to another machine, where everybody on the way can read it
    #[arg(long, global = true)]
    pub allow_http: bool,
    /// How findings are printed
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub output: Format,
    /// The same as `--output json`
    #[arg(long, global = true)]
    pub json: bool,
    /// Say nothing that was not asked for
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more, on standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

impl Common {
    /// Settings of the place of the gateway, and of the way there.
    pub fn said(&self) -> Context {
        Context {
            url: (!self.url.is_empty()).then(|| self.url.join(",")),
            owner: self.owner.clone(),
            auth_token_file: self.auth_token_file.clone(),
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            allow_http: self.allow_http,
        }
    }

    /// The words that say the same to another `fence`.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| words.extend([name.into(), value]);
        self.url.iter().for_each(|url| add("--url", url.into()));
        for (name, value) in [("--context", &self.context), ("--owner", &self.owner)] {
            value.iter().for_each(|value| add(name, value.into()));
        }
        let files = [
            ("--auth-token-file", &self.auth_token_file),
            ("--ca-file", &self.ca_file),
            ("--cert-file", &self.cert_file),
            ("--key-file", &self.key_file),
        ];
        for (name, file) in files {
            file.iter().for_each(|file| add(name, file.into()));
        }
        let times = [("--timeout", self.timeout), ("--wait-for-gateway", self.wait_for_gateway)];
        for (name, time) in times {
            time.iter().for_each(|time| add(name, format!("{}", time.as_secs_f64()).into()));
        }
        let flags = [
            ("--allow-http", self.allow_http),
            ("--quiet", self.quiet),
            ("--verbose", self.verbose),
        ];
        words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into()));
        words
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command under a lock
    Run(Box<RunOptions>),
    /// Stand for election, and run a command while elected
    Elect(Box<Elect>),
    /// Print who is elected
    Leader(LeaderOf),
    /// Run jobs once for each slot of a schedule, and see how they are doing
    #[command(subcommand)]
    Job(Box<JobCommand>),

    /// Store an object
    Put(Box<Put>),
    /// Read an object
    Get(Get),
    /// List resources, or the objects of one
    Ls(List),
    /// Remove objects
    Rm(Remove),
    /// Copy objects and files
    Cp(Copy),
    /// Write many objects at once, all or none
    Commit(Commit),
    /// Change an object in an editor
    Edit(Edit),
    /// List what was written
    Log(Log),
    /// Show what has changed between two versions of an object
    Diff(Diff),

    /// Take a lock, and leave it held
    Lock(Take),
    /// Renew a lock once
    Renew(Renew),
    /// Give a lock back
    Unlock(Unlock),
    /// Hand a lock over to a successor
    Transfer(Transfer),
    /// Set a fence for a lock that is not of Fencegate
    Fence(SetFence),
    /// Print the key with which S3 tools write under a lock
    S3Key(S3Key),

    /// List the locks that are held
    Locks(Locks),
    /// Show the locks that are held, as they change
    Top(Top),
    /// Print a line whenever a resource changes hands
    Watch(WatchResource),
    /// Show all about one resource
    Show(Show),

    /// Break the lock of somebody else
    Break(BreakLock),
    /// Stop all writers of a resource
    Freeze(Mark),
    /// Let them go on
    Unfreeze(Mark),
    /// Forbid deleting all of a resource at once
    Protect(Mark),
    /// Allow it again
    Unprotect(Mark),

    /// List writes that were refused
    Rejections(Rejections),
    /// List what was done to locks and resources, and by whom
    Audit(Audit),
    /// Print the feed of writes
    Events(Events),
    /// Say what became of a write
    Operation(OperationOf),
    /// List requests to upstreams that are under way or whose outcome is unknown
    Intents(Intents),
    /// Say that such a request is over
    Resolve(Resolve),

    /// Say how the gateway is
    Status,
    /// Lock, write and unlock, and say how long it takes
    Ping(Ping),
    /// Name gateways, and choose among them
    #[command(subcommand)]
    Context(ContextCommand),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Write the man pages into a folder
    Man(Man),
    /// Print the version
    Version,

    #[command(hide = true, name = "__exec")]
    Exec(Exec),
    #[command(hide = true, name = "__watch")]
    Watcher(Watch),
    #[command(hide = true, name = "__keep")]
    Keep(Keep),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// No letter and no word means two things, whatever the command.
    #[test]
    fn options_mean_the_same_everywhere() {
        let mut words: BTreeMap<String, (String, Option<char>, String)> = BTreeMap::new();
        let mut letters: BTreeMap<char, String> = BTreeMap::new();
        let mut left = vec![Cli::command()];
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            if command.is_hide_set() {
                continue;
            }
            for option in command.get_arguments() {
                let Some(word) = option.get_long().map(str::to_owned) else { continue };
                let value = format!(
                    "{:?}",
                    option.get_value_names().filter(|_| option.get_action().takes_values())
                );
                let name = command.get_name().to_owned();
                let found = (name.clone(), option.get_short(), value);
                let known = words.entry(word.clone()).or_insert_with(|| found.clone());
                assert_eq!(
                    (&known.1, &known.2),
                    (&found.1, &found.2),
                    "--{word} of {} and {name}",
                    known.0
                );
                if let Some(letter) = option.get_short() {
                    let known = letters.entry(letter).or_insert_with(|| word.clone());
                    assert_eq!(*known, word, "-{letter} of {name}");
                }
            }
        }
        assert!(words.len() > 40 && letters.len() > 9, "{letters:?}");
    }
}
