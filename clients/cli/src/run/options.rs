//! What `fence run` takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;

use crate::durations;
use crate::failure::{Failure, usage};
use crate::s3::options::S3Options;

/// Which lock, how long to wait for it, and what becomes of the command when it is lost.
#[derive(Debug, Args)]
#[command(after_long_help = crate::help::RUN)]
#[command(override_usage = "fence run -r RESOURCE... [OPTIONS] -- COMMAND [ARG]...\n       \
    fence run -r RESOURCE... [OPTIONS] -c 'SHELL COMMAND'")]
pub struct RunOptions {
    /// What to lock; several times: all of them or none
    #[arg(short, long = "resource", required = true, value_name = "RESOURCE")]
    pub resources: Vec<String>,
    /// Do not wait if somebody else has the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,
    /// How long to wait for the lock; by default for ever. A plain number is seconds
    #[arg(short, long, value_name = "DURATION", value_parser = durations::parse)]
    pub wait: Option<Duration>,
    /// The exit code if the lock was not had
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 75)]
    pub conflict_exit_code: u8,
    /// The exit code if the lock was lost while the command ran
    #[arg(long, value_name = "CODE", default_value_t = 121)]
    pub lost_exit_code: u8,
    /// How long the lock lasts without renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    pub ttl: Duration,
    /// The gateway ends the lock then, however often it is renewed
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub max_hold: Option<Duration>,
    /// Between TERM and KILL; by default 5s, or a fifth of the ttl if that is less
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub grace: Option<Duration>,
    /// What the command gets when its lock ends: `kill` (TERM, then KILL), `signal:NAME` (that, then KILL), or
    /// `ignore`, for a command all of whose effects go through the gateway
    #[arg(long, value_name = "ACTION", default_value = "kill")]
    pub on_loss: OnLoss,
    /// When nobody has confirmed the lock in time: `stop` as if it were lost, or `hold` on until the gateway says so
    #[arg(long, value_name = "ACTION", default_value = "stop")]
    pub on_uncertain: OnUncertain,
    /// When the command has ended or lost its lock, get back in line, after a pause
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
        default_missing_value = "1s", value_parser = durations::parse)]
    pub rejoin: Option<Duration>,
    /// End the command after so long, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    pub max_runtime: Option<Duration>,
    /// Leave processes of the command's group alone that outlive it
    #[arg(long)]
    pub leave_children: bool,
    /// Give the command an empty standard input
    #[arg(long)]
    pub no_stdin: bool,
    /// Keep a copy of what the command writes to its standard output and error
    #[arg(long, value_name = "FILE")]
    pub tee: Option<PathBuf>,
    /// Show what the command wrote only if it failed
    #[arg(long)]
    pub quiet_unless_failed: bool,
    /// A word on the lock, which its holder may look up
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Who else may write under the lock's token: a principal, or role:NAME; may be given several times
    #[arg(long = "writer", value_name = "NAME")]
    pub writers: Vec<String>,
    /// What S3 tools are told.
    #[command(flatten)]
    pub s3: S3Options,
    /// A command line for `sh -c`, instead of COMMAND
    #[arg(short = 'c', long = "shell", value_name = "TEXT", conflicts_with = "command")]
    pub shell: Option<OsString>,
    /// What to run, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub command: Vec<OsString>,
}

/// For which election to stand.
#[derive(Debug, Args)]
#[command(override_usage = "fence elect NAME [OPTIONS] -- COMMAND [ARG]...")]
pub struct Elect {
    /// The name of the election, which is the resource
    #[arg(value_name = "NAME")]
    name: String,
    /// How long an elected one stays so without renewal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = durations::parse)]
    ttl: Duration,
    /// Between TERM and KILL; by default 5s, or a fifth of the ttl if that is less
    #[arg(long, value_name = "DURATION", value_parser = durations::parse)]
    grace: Option<Duration>,
    /// Who else may write under the lock's token: a principal, or role:NAME; may be given several times
    #[arg(long = "writer", value_name = "NAME")]
    writers: Vec<String>,
    /// What S3 tools are told.
    #[command(flatten)]
    s3: S3Options,
    /// What to run while elected, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Elect {
    /// The same as `fence run -r NAME --rejoin`.
    pub fn into_run(self) -> RunOptions {
        RunOptions {
            ttl: self.ttl,
            grace: self.grace,
            rejoin: Some(Duration::from_secs(1)),
            writers: self.writers,
            s3: self.s3,
            ..RunOptions::of(self.name, self.command)
        }
    }
}

/// What becomes of the command when its lock ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// This signal, and KILL after the grace.
    End(Signal),
    /// Nothing: the gateway refuses its writes.
    Ignore,
}

impl FromStr for OnLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kill" => Ok(Self::End(Signal::TERM)),
            "ignore" => Ok(Self::Ignore),
            other => {
                let name = other.strip_prefix("signal:");
                let name = name.ok_or("it is `kill`, `signal:NAME` or `ignore`")?;
                signal_named(name).map(Self::End)
            }
        }
    }
}

/// What becomes of it when nobody confirms the lock in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnUncertain {
    /// The same as when it is lost.
    Stop,
    /// Nothing, until a gateway says that it is lost.
    Hold,
}

fn signal_named(name: &str) -> Result<Signal, String> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    Ok(match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "KILL" => Signal::KILL,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "TERM" => Signal::TERM,
        _ => return Err("the signal is HUP, INT, QUIT, KILL, USR1, USR2 or TERM".to_owned()),
    })
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl RunOptions {
    /// A command under a lock on one resource, and all else as it is by default.
    pub fn of(resource: String, command: Vec<OsString>) -> Self {
        Self {
            resources: vec![resource],
            nonblock: false,
            wait: None,
            conflict_exit_code: 75,
            lost_exit_code: 121,
            ttl: Duration::from_secs(30),
            max_hold: None,
            grace: None,
            on_loss: OnLoss::End(Signal::TERM),
            on_uncertain: OnUncertain::Stop,
            rejoin: None,
            max_runtime: None,
            leave_children: false,
            no_stdin: false,
            tee: None,
            quiet_unless_failed: false,
            metadata: Vec::new(),
            writers: Vec::new(),
            s3: S3Options::default(),
            shell: None,
            command,
        }
    }

    /// Between TERM and KILL.
    ///
    /// # Errors
    /// It is more than a third of the ttl: renewals could not be late even once.
    pub fn grace(&self) -> Result<Duration, Failure> {
        let most = self.ttl / 3;
        match self.grace {
            // Short ttls leave room for a second renewal before TERM, if the first is not answered.
            None => Ok((self.ttl / 5).min(Duration::from_secs(5))),
            Some(grace) if grace <= most => Ok(grace),
            Some(_) => {
                let most = durations::show(most);
                Err(usage(format!("--grace is at most a third of --ttl, here {most}")))
            }
        }
    }

    /// The program to run, and its arguments.
    pub fn words(&self) -> Vec<OsString> {
        match &self.shell {
            Some(text) => vec!["sh".into(), "-c".into(), text.clone()],
            None => self.command.clone(),
        }
    }
}
