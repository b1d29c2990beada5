//! `fence top`: the locks that are held, as they change, on a whole terminal.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use fencegate_client::wire::json::Resource;
use fencegate_client::wire::shown::escaped;
use futures::TryStreamExt as _;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::look::{Sort, count, locks};
use crate::app::App;
use crate::durations;
use crate::failure::{Failure, usage};
use crate::output::{or_dash, state};

/// So many locks are looked at.
const LOOKED_AT: usize = 10_000;
/// The screen of its own that terminals have for programs like this.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Which locks to show.
#[derive(Debug, Args)]
pub struct Top {
    /// Prefix of the names of the resources
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
    /// Also those that have expired, whose holders may come back, and those that were broken, while nobody took over
    #[arg(long)]
    all: bool,
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = durations::parse)]
    interval: Duration,
}

impl Top {
    /// Shows them until `q` is pressed; `s` sorts in another way.
    ///
    /// # Errors
    /// This is no terminal, or the gateway refuses.
    pub async fn run(&self, app: &App) -> Result<ExitCode, Failure> {
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(usage("this needs a terminal; elsewhere: fence locks --sort age"));
        }
        let interval = self.interval.max(Duration::from_millis(100));
        let screen = Screen::enter()?;
        let mut keys = keys();
        let mut sort = Sort::Age;
        loop {
            let locks = self.look(app).await;
            screen.draw(locks, sort)?;
            tokio::select! {
                key = keys.recv() => match key {
                    Some(b'q') | None => return Ok(ExitCode::SUCCESS),
                    Some(b's') => sort = next(sort),
                    Some(_) => {}
                },
                () = tokio::time::sleep(interval) => {}
            }
        }
    }

    async fn look(&self, app: &App) -> Result<Vec<Resource>, fencegate_client::Error> {
        let mut items = locks(app, self.prefix.as_deref(), self.all).stream();
        let mut locks = Vec::new();
        while locks.len() < LOOKED_AT
            && let Some(lock) = items.try_next().await?
        {
            locks.push(lock);
        }
        Ok(locks)
    }
}

fn next(sort: Sort) -> Sort {
    match sort {
        Sort::Age => Sort::Left,
        Sort::Left => Sort::Queue,
        Sort::Queue => Sort::Age,
    }
}

/// The keys that are pressed.
fn keys() -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in std::io::stdin().lock().bytes().map_while(Result::ok) {
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    keys
}

/// The terminal, until it is given back as it was.
struct Screen {
    before: Termios,
}

impl Screen {
    fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("the terminal says nothing")?;
        let mut keys = before.clone();
        // Keys come one by one, and are not shown. Ctrl-C goes on to work.
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).context("no single keys")?;
        // Whoever does not read it hears of that when the locks are drawn.
        let _unread = std::io::stdout().write_all(ENTER.as_bytes());
        Ok(Self { before })
    }

    fn draw(
        &self,
        locks: Result<Vec<Resource>, fencegate_client::Error>,
        sort: Sort,
    ) -> Result<(), Failure> {
        let size = tcgetwinsize(std::io::stdout()).map(|it| (it.ws_col, it.ws_row));
        let (columns, rows) = size.map_or((80, 24), |(columns, rows)| {
            (usize::from(columns.max(20)), usize::from(rows.max(4)))
        });
        let mut lines = Vec::new();
        match locks {
            Ok(mut locks) => {
                sort.sort(&mut locks);
                let by = format!("{sort:?}").to_lowercase();
                lines.push(format!("{}, by {by}   q: quit  s: sort", count(&locks)));
                lines.push(row(
                    ["RESOURCE", "OWNER", "AGE", "LEFT", "QUEUE", "STATE"].map(str::to_owned)
                ));
                lines.extend(locks.iter().map(|it| {
                    row([
                        it.resource.to_string(),
                        it.owner.clone(),
                        durations::show_ms(it.age_ms),
                        or_dash(it.expires_in_ms.map(durations::show_ms)),
                        it.queue_length.to_string(),
                        state(it),
                    ])
                }));
            }
            Err(error) => lines.push(format!("the gateway cannot be asked: {error}")),
        }
        let mut text = String::from("\x1b[H\x1b[2J");
        for line in lines.iter().take(rows - 1) {
            text.extend(escaped(line).chars().take(columns));
            text.push_str("\r\n");
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::of_output)
    }
}

fn row([resource, owner, age, left, queue, state]: [String; 6]) -> String {
    format!("{resource:28} {owner:28} {age:>9} {left:>9} {queue:>6}  {state}")
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout().lock();
        let _lost = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _lost = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
