//! The client processes: started from this very executable, frozen, killed and replaced like any other.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::thread::JoinHandle;

use fence_tests::process::{Home, eventually};
use tempfile::TempDir;

use crate::book::Book;
use crate::clock::WallClock;
use crate::driven::{Account, Troupe};
use crate::rules::Doors;

/// How many client processes there are.
pub const PROCESSES: usize = 3;
/// How many callers each has. Those of the same place in all of them are one principal.
pub const CALLERS: u32 = 16;

/// Who calls: processes of our own, or drivers of a client library.
pub enum Callers {
    /// Ours.
    Crew(Crew),
    /// A library's.
    Troupe(Troupe),
}

impl Callers {
    /// Freezes one process.
    pub fn pause(&self, which: usize) {
        match self {
            Self::Crew(crew) => crew.pause(which),
            Self::Troupe(troupe) => troupe.pause(which),
        }
    }

    /// Lets a frozen one go on.
    pub fn resume(&self, which: usize) {
        match self {
            Self::Crew(crew) => crew.resume(which),
            Self::Troupe(troupe) => troupe.resume(which),
        }
    }

    /// Kills one.
    pub fn kill9(&mut self, which: usize) {
        match self {
            Self::Crew(crew) => crew.kill9(which),
            Self::Troupe(troupe) => troupe.kill9(which),
        }
    }

    /// Another one takes the place of one that was killed.
    ///
    /// # Errors
    /// A driver that does not start.
    pub async fn replace(&mut self, which: usize) -> anyhow::Result<()> {
        match self {
            Self::Crew(crew) => crew.replace(which),
            Self::Troupe(troupe) => troupe.replace(which).await?,
        }
        Ok(())
    }

    /// Whether nothing is broken at present.
    pub fn calm(&self, is_calm: bool) {
        if let Self::Troupe(troupe) = self {
            troupe.calm(is_calm);
        }
    }

    /// Sets the wall clocks of ours; a driver is started as it is.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn set_clock(&self, ahead_s: i64) -> anyhow::Result<()> {
        match self {
            Self::Crew(crew) => crew.clock.set(ahead_s),
            Self::Troupe(_) => Ok(()),
        }
    }

    /// Lets all of them end. Returns what drivers were told, and what is wrong about how they ended.
    pub async fn end(self) -> (Option<Account>, Vec<String>) {
        match self {
            Self::Crew(crew) => (None, crew.end().await),
            Self::Troupe(troupe) => {
                let (account, trouble) = troupe.end().await;
                (Some(account), trouble)
            }
        }
    }
}

/// A client process.
#[derive(Debug)]
struct Member {
    home: Home,
    /// The process ends when this is closed.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

/// All client processes.
#[derive(Debug)]
pub struct Crew {
    book: Book,
    gateways: String,
    /// Where they speak S3.
    s3: String,
    /// What callers show, and where that is kept for them.
    keys: Option<PathBuf>,
    /// Their wall clock.
    clock: WallClock,
    _home: TempDir,
    seed: u64,
    members: Vec<Member>,
    /// How many were started so far.
    started: u32,
}

impl Crew {
    /// Starts all of them, as callers of these gateways.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn start(book: &Book, doors: &Doors, seed: u64) -> anyhow::Result<Self> {
        let list = |addresses: &[SocketAddr]| {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            addresses.join(",")
        };
        let home = TempDir::new()?;
        let keys = (!doors.keys.is_empty()).then(|| home.path().join("keys.json"));
        keys.as_deref().map_or(Ok(()), |keys| doors.keys.store(keys))?;
        let empty = || Member { home: Home::new("client"), stdin: None, reader: None };
        let members = (0..PROCESSES).map(|_| empty()).collect();
        let (gateways, s3) = (list(&doors.addresses), list(&doors.s3));
        let book = book.clone();
        let clock = WallClock::new()?;
        let mut crew =
            Self { book, gateways, s3, keys, clock, _home: home, seed, members, started: 0 };
        (0..PROCESSES).for_each(|which| crew.begin(which));
        Ok(crew)
    }

    fn begin(&mut self, which: usize) {
        self.started += 1;
        let executable = std::env::current_exe().expect("a process knows its executable");
        let clock = self.clock.env(None);
        let member = &mut self.members[which];
        let child = member.home.spawn(&executable, |command| {
            command
                .arg("client")
                .args(["--number", &self.started.to_string()])
                .args(["--callers", &CALLERS.to_string()])
                .args(["--seed", &self.seed.to_string()])
                .args(["--gateways", &self.gateways])
                .envs(clock)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            if !self.s3.is_empty() {
                command.args(["--s3", &self.s3]);
            }
            if let Some(keys) = &self.keys {
                command.arg("--keys").arg(keys);
            }
        });
        member.stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let book = self.book.clone();
        member.reader = Some(std::thread::spawn(move || {
            let mut cut_off = false;
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                assert!(!cut_off, "a client printed what is no line");
                // The last line of one that was killed may be cut off: nothing was sent after it.
                match serde_json::from_str(&line) {
                    Ok(line) => book.write(line),
                    Err(_) => cut_off = true,
                }
            }
        }));
    }

    /// Freezes one.
    pub fn pause(&self, which: usize) {
        self.members[which].home.signal("STOP");
    }

    /// Lets a frozen one go on.
    pub fn resume(&self, which: usize) {
        self.members[which].home.signal("CONT");
    }

    /// Kills one.
    pub fn kill9(&mut self, which: usize) {
        self.members[which].home.kill9();
        self.members[which].read_on();
    }

    /// Another one takes the place of one that was killed.
    pub fn replace(&mut self, which: usize) {
        self.begin(which);
    }

    /// Lets all of them end, and waits until they have. Returns what is wrong about how they did.
    pub async fn end(mut self) -> Vec<String> {
        let mut trouble = Vec::new();
        self.members.iter_mut().for_each(|member| drop(member.stdin.take()));
        for member in &mut self.members {
            let status = eventually("a client ends", async || member.home.exit_status()).await;
            if !status.success() {
                trouble.push(format!("a client ended with {status}"));
            }
            member.read_on();
        }
        trouble
    }
}

impl Member {
    /// Waits until all that it has printed is written down.
    fn read_on(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of a client ends with it");
        }
    }
}
