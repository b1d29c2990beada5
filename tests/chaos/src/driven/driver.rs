//! A driver: a program around a client library, to which one says what to do, a JSON object a line. The protocol is
//! that of the conformance scenarios, `clients/conformance/README.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use fence_tests::process::Home;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::line::moment;

/// What a driver answered, and when.
#[derive(Debug)]
pub struct Told {
    /// When its line was read.
    pub at: u64,
    /// What it says: `ok`, or `error`.
    pub result: Result<Value, Value>,
}

/// A running driver. Many commands may be under way at a time.
#[derive(Debug)]
pub struct Driver {
    /// The process.
    pub home: Home,
    talk: Arc<Talk>,
    reader: Option<JoinHandle<()>>,
}

/// What is said to a driver, and what it says.
#[derive(Debug)]
pub struct Talk {
    lines: Mutex<Option<mpsc::Sender<String>>>,
    commands: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Told>>>,
    is_over: AtomicBool,
    /// Lost locks, by the reasons that were told.
    losses: Mutex<BTreeMap<String, u64>>,
    /// What it can do beyond what all can.
    features: Mutex<BTreeSet<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Starts one, by a command with its arguments, apart by spaces.
    ///
    /// # Errors
    /// An empty command, or a log that cannot be written.
    pub fn start(command: &str, log: &Path) -> Result<Self> {
        let mut words = command.split_whitespace();
        let program = words.next().context("the command of a driver")?;
        let mut home = Home::new("driver");
        let log = File::create(log).with_context(|| format!("{}", log.display()))?;
        let child = home.spawn(Path::new(program), |command| {
            command.args(words).arg("--real-time");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        });
        let mut stdin = child.stdin.take().context("standard input is a pipe")?;
        let stdout = child.stdout.take().context("standard output is a pipe")?;
        let (lines, to_say) = mpsc::channel::<String>();
        let talk = Arc::new(Talk {
            lines: Mutex::new(Some(lines)),
            commands: AtomicU64::new(0),
            waiting: Mutex::default(),
            is_over: AtomicBool::new(false),
            losses: Mutex::default(),
            features: Mutex::default(),
        });
        // A driver that stands still reads nothing: so whoever writes to it has a thread of its own.
        std::thread::spawn(move || {
            for line in to_say {
                if stdin.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let heard = Arc::clone(&talk);
        let reader = Some(std::thread::spawn(move || heard.listen(stdout)));
        Ok(Self { home, talk, reader })
    }

    /// By which it is talked to.
    pub fn talk(&self) -> Arc<Talk> {
        Arc::clone(&self.talk)
    }

    /// Kills it. What it has said before counts; what is under way is never answered.
    pub fn kill9(&mut self) {
        self.home.kill9();
        self.read_on();
    }

    /// Waits until all that it has said is read.
    pub fn read_on(&mut self) {
        self.talk.hang_up();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of a driver ends with it");
        }
    }
}

impl Talk {
    /// Lets it do something, and waits for its answer. `None`: it has ended, and nobody will ever know.
    pub async fn ask(&self, mut command: Value) -> Option<Told> {
        let id = self.commands.fetch_add(1, Ordering::SeqCst) + 1;
        command["id"] = json!(id);
        let (sender, answer) = oneshot::channel();
        locked(&self.waiting).insert(id, sender);
        if self.is_over.load(Ordering::SeqCst) {
            locked(&self.waiting).remove(&id);
            return None;
        }
        // Of one that has ended, the reader says so.
        let _gone = locked(&self.lines).as_ref().map(|lines| lines.send(format!("{command}\n")));
        answer.await.ok()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Closes its standard input.
    pub fn hang_up(&self) {
        locked(&self.lines).take();
    }

    /// Whether it has said that it can do this.
    pub fn can(&self, feature: &str) -> bool {
        locked(&self.features).contains(feature)
    }

    /// Lost locks, by the reasons that were told.
    pub fn losses(&self) -> BTreeMap<String, u64> {
        locked(&self.losses).clone()
    }

    fn listen(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let at = moment();
            // The last line of one that was killed may be cut off.
            let Ok(said) = serde_json::from_str::<Value>(&line) else { break };
            self.hear(at, said);
        }
        self.is_over.store(true, Ordering::SeqCst);
        locked(&self.waiting).clear();
    }

    fn hear(&self, at: u64, mut said: Value) {
        if said["event"] == "lost" {
            let reason = said["reason"].as_str().unwrap_or("no reason").to_owned();
            *locked(&self.losses).entry(reason).or_default() += 1;
        }
        if let Some(features) = said["features"].as_array() {
            let named = features.iter().filter_map(|feature| feature.as_str().map(str::to_owned));
            locked(&self.features).extend(named);
        }
        let waiting = said["id"].as_u64().and_then(|id| locked(&self.waiting).remove(&id));
        let Some(waiting) = waiting else { return };
        let result = match said.get("error") {
            Some(_) => Err(said["error"].take()),
            None => Ok(said["ok"].take()),
        };
        // Whoever has asked may wait no more.
        let _ = waiting.send(Told { at, result });
    }
}

/// Asks something that must go well.
///
/// # Errors
/// It did not.
pub async fn must(talk: &Talk, command: Value) -> Result<()> {
    let what = command["do"].to_string();
    let told = talk.ask(command).await.with_context(|| format!("the driver ended at {what}"))?;
    ensure!(told.result.is_ok(), "the driver answered {what} with {:?}", told.result);
    Ok(())
}
