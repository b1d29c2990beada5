//! Callers that are a client library: driver processes do what stories say, so that histories made by the library
//! go through all the checkers.

mod account;
mod driver;
mod hand;
mod stories;
mod translate;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fence_tests::process::eventually;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::book::Book;
use crate::client::Client;
use crate::crew::PROCESSES;
use crate::rules::Doors;

pub use account::Account;
use account::Ledger;
use driver::{Driver, must};
use hand::Hand;
use stories::Caller;

/// How many stories go on at a time in each driver.
const STORIES: usize = 12;
/// Numbers of those who read beside them.
const READERS: std::ops::Range<u32> = 40_300..40_800;
/// How long a story may take after it was told to end: the longest deadline, and what is asked after it.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// A driver, and the stories that it is in.
struct Member {
    driver: Driver,
    hand: Hand,
    stories: Vec<JoinHandle<()>>,
}

/// All drivers.
pub struct Troupe {
    command: String,
    out: PathBuf,
    book: Book,
    fronts: Vec<SocketAddr>,
    seed: u64,
    members: Vec<Member>,
    started: u32,
    stop: Arc<AtomicBool>,
    calm: watch::Sender<bool>,
    account: Arc<Ledger>,
}

impl Troupe {
    /// Starts all of them, as callers of these gateways.
    ///
    /// # Errors
    /// A command that starts no driver.
    pub async fn start(
        book: &Book,
        fronts: &[SocketAddr],
        seed: u64,
        command: &str,
        out: PathBuf,
    ) -> Result<Self> {
        let mut troupe = Self {
            command: command.to_owned(),
            out,
            book: book.clone(),
            fronts: fronts.to_vec(),
            seed,
            members: Vec::new(),
            started: 0,
            stop: Arc::default(),
            calm: watch::Sender::new(true),
            account: Arc::default(),
        };
        for _ in 0..PROCESSES {
            let member = troupe.begin().await?;
            troupe.members.push(member);
        }
        Ok(troupe)
    }

    async fn begin(&mut self) -> Result<Member> {
        self.started += 1;
        let number = self.started;
        let log = self.out.join(format!("driver-{number}.log"));
        let driver = Driver::start(&self.command, &log)?;
        let mut urls: Vec<_> = self.fronts.iter().map(|front| format!("http://{front}")).collect();
        let first = number as usize % urls.len();
        urls.rotate_left(first);
        // Some wait for what others give up, so that outcomes stay unknown for a while.
        let options = match number % 3 {
            0 => json!({}),
            1 => json!({ "timeout": "2s", "deadline": "6s", "write_deadline": "2s" }),
            _ => json!({ "timeout": "4s", "deadline": "10s", "write_deadline": "6s" }),
        };
        let talk = driver.talk();
        let client = json!({ "do": "client", "urls": urls, "owner": format!("driver-{number}"),
                             "options": options });
        must(&talk, client).await.context("the driver takes no client")?;
        let (book, account) = (self.book.clone(), Arc::clone(&self.account));
        let hand = Hand::new(talk, book.clone(), number, self.calm.subscribe(), account);
        let reads = READERS.start + number % (READERS.end - READERS.start);
        let reader = Client::of(
            reads,
            &Doors { addresses: self.fronts.clone(), ..Doors::default() },
            None,
            move |line| book.write(line),
        );
        let readers = reader.and_others(STORIES, Duration::from_secs(3));
        let lives = readers.into_iter().zip(0..).map(|(reader, story)| {
            let seed = self.seed ^ (u64::from(number) << 32) ^ story;
            let caller = Caller::new(hand.clone(), reader, seed);
            tokio::spawn(caller.live(Arc::clone(&self.stop)))
        });
        Ok(Member { stories: lives.collect(), driver, hand })
    }

    /// Whether nothing is broken at present.
    pub fn calm(&self, is_calm: bool) {
        self.calm.send_replace(is_calm);
    }

    /// Freezes one.
    pub fn pause(&self, which: usize) {
        self.members[which].driver.home.signal("STOP");
    }

    /// Lets a frozen one go on.
    pub fn resume(&self, which: usize) {
        self.members[which].driver.home.signal("CONT");
    }

    /// Kills one. Its stories end by themselves.
    pub fn kill9(&mut self, which: usize) {
        let member = &mut self.members[which];
        member.driver.kill9();
        self.account.died(&member.hand);
    }

    /// Another one takes the place of one that was killed.
    ///
    /// # Errors
    /// A driver that does not start.
    pub async fn replace(&mut self, which: usize) -> Result<()> {
        self.members[which] = self.begin().await?;
        Ok(())
    }

    /// Lets all stories end, and all unknown outcomes be found out. Returns what was told, and what is wrong.
    pub async fn end(mut self) -> (Account, Vec<String>) {
        let mut trouble = Vec::new();
        self.stop.store(true, Ordering::SeqCst);
        self.calm(true);
        for (number, mut member) in self.members.drain(..).enumerate() {
            let over = async {
                for story in member.stories.drain(..) {
                    story.await.expect("a story comes to its end");
                }
                member.hand.all_resolved().await;
            };
            if tokio::time::timeout(ENDS_WITHIN, over).await.is_err() {
                trouble.push(format!("a story of driver {number} does not come to its end"));
            }
            self.account.died(&member.hand);
            let closed = must(&member.hand.talk, json!({ "do": "close" })).await;
            trouble.extend(closed.err().map(|error| format!("driver {number}: {error:#}")));
            member.hand.talk.hang_up();
            let home = &mut member.driver.home;
            let status = eventually("a driver ends", async || home.exit_status()).await;
            if !status.success() {
                trouble.push(format!("driver {number} ended with {status}"));
            }
            member.driver.read_on();
        }
        let (account, more) = self.account.close();
        trouble.extend(more);
        (account, trouble)
    }
}

/// By a word, how often.
type Counts = BTreeMap<String, u64>;

#[cfg(test)]
mod tests;
