//! Runs one command under one lock, and ends it before the lock can be another's. **Safety-critical** for commands
//! whose effects do not go through the gateway; those that do are fenced there in any case.

use std::time::Duration;

use fencegate_client::{Error, Lock, LossReason};
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::options::{OnLoss, OnUncertain};
use super::signals::{self, Signals};
use super::target::Target;
use super::watcher::{self, Watcher};
use crate::ending::{End, OVERDUE};

/// A second INT or TERM within this time is KILL.
const TWICE: Duration = Duration::from_secs(2);
/// How long the gateway may take to say that the lock was held to the end.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);
/// How often the clock is compared with the deadline while nothing happens.
const LOOK: Duration = Duration::from_millis(500);
/// No timer is set for longer.
const FAR: Duration = Duration::from_secs(86_400);

/// What a command runs under.
pub struct Terms {
    /// Between TERM and KILL.
    pub grace: Duration,
    /// What it gets when its lock ends.
    pub on_loss: OnLoss,
    /// What becomes of it when nobody confirms the lock in time.
    pub on_uncertain: OnUncertain,
    /// When it has run for too long.
    pub runs_until: Option<Instant>,
    /// Whether what it leaves behind stays.
    pub leaves_children: bool,
}

/// Why a command was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Its lock is lost, or nobody confirmed it in time.
    Lock,
    /// It ran for too long.
    Overdue,
}

/// What came of it.
pub struct Outcome {
    /// How the command itself ended.
    pub command: End,
    /// How `fence` ends for it.
    pub end: Option<End>,
    /// Why the lock was lost, if it was, or why it was about to be.
    pub lost: Option<LossReason>,
    /// Why an operator broke it, or is about to, in the operator's words.
    pub words: Option<String>,
    /// Whether `fence` was asked to end.
    pub is_interrupted: bool,
    /// Set if a gateway answered when the command had ended.
    pub was_heard: bool,
}

impl Outcome {
    /// Whether the command did not end by itself.
    pub fn was_ended(&self) -> bool {
        self.is_interrupted || self.end.is_some() || self.lost.is_some()
    }
}

/// A command that runs.
pub struct Running<'a> {
    /// The lock that it runs under.
    pub lock: &'a Lock,
    /// The process.
    pub child: Child,
    /// Its processes.
    pub target: Target,
    /// What ends it if this process cannot.
    pub watcher: Watcher,
    /// How it is to be treated.
    pub terms: Terms,
}

impl Running<'_> {
    /// Waits for the end of the command, and sees to it that it comes in time.
    ///
    /// # Errors
    /// The command cannot be waited for.
    pub async fn supervise(
        mut self,
        signals: &mut Signals,
        news: &Notify,
    ) -> std::io::Result<Outcome> {
        let (mut told, mut kill_at): (Option<Why>, Option<Instant>) = (None, None);
        let (mut lost, mut last_end): (Option<LossReason>, Option<Instant>) = (None, None);
        // HUP may only mean that the command is to read its settings again.
        let (mut is_interrupted, mut was_hung_up) = (false, false);
        let status = loop {
            // 1. How long may it run? The watcher hears it first: it acts if this process stands still.
            let left = if lost.is_some() { None } else { self.left() };
            let now = Instant::now();
            if let (Some(at), Some(left), OnLoss::End(_)) = (kill_at, left, self.terms.on_loss) {
                // Whatever it was told to end for, its grace ends with the lock.
                kill_at = Some(at.min(now + left));
            }
            self.watcher.until(match (self.terms.on_loss, kill_at, left) {
                (OnLoss::Ignore, ..) => None,
                (_, Some(at), _) => {
                    Some(watcher::clock_ms() + ms(at.saturating_duration_since(now)))
                }
                // Without a word from here until then, it needs a little time of its own before the deadline.
                (_, None, left) => left.map(|left| {
                    watcher::clock_ms() + ms(left.saturating_sub(self.terms.grace / 4))
                }),
            });
            // 2. Is the lock about to end? TERM now, and KILL when it does.
            if let (None, Some(left), OnLoss::End(signal)) = (told, left, self.terms.on_loss)
                && left <= self.terms.grace
            {
                (told, kill_at) = (Some(Why::Lock), Some(now + left));
                self.target.end(signal);
            }
            // 3. Has it run for too long?
            if told.is_none() && self.terms.runs_until.is_some_and(|until| until <= now) {
                (told, kill_at) = (Some(Why::Overdue), Some(now + self.terms.grace));
                self.target.end(Signal::TERM);
            }
            // 4. Is its time over?
            if kill_at.is_some_and(|at| at <= now) {
                self.target.end(Signal::KILL);
                kill_at = Some(now + FAR);
            }
            // 5. Until the next of these moments, or until something happens.
            let grace = self.terms.grace;
            let ends_at =
                left.filter(|_| told.is_none()).map(|left| now + left.saturating_sub(grace));
            let overdue_at = self.terms.runs_until.filter(|_| told.is_none());
            // A machine that was asleep has timers that know nothing of it.
            let looks_at = left.map(|_| now + LOOK);
            let next = [ends_at, overdue_at, kill_at, looks_at].into_iter().flatten().min();
            tokio::select! {
                biased;
                loss = self.lock.lost(), if lost.is_none() => {
                    lost = Some(loss.reason);
                    if let OnLoss::End(signal) = self.terms.on_loss {
                        // Nobody confirmed it until the end: no grace is left.
                        let grace = match loss.reason {
                            LossReason::Unconfirmed => Duration::ZERO,
                            _ => self.terms.grace,
                        };
                        let at = Instant::now() + grace;
                        kill_at = Some(kill_at.map_or(at, |earlier| earlier.min(at)));
                        if told.replace(Why::Lock) != Some(Why::Lock) {
                            self.target.end(signal);
                        }
                    }
                }
                status = self.child.wait() => break status?,
                signal = signals.next() => {
                    is_interrupted |= signals::ends(signal) && signal != Signal::HUP;
                    was_hung_up |= signal == Signal::HUP;
                    let twice = last_end.is_some_and(|at| at.elapsed() < TWICE);
                    if matches!(signal, Signal::INT | Signal::TERM) {
                        last_end = Some(Instant::now());
                        if twice {
                            self.target.end(Signal::KILL);
                            continue;
                        }
                    }
                    self.pass_on(signal);
                }
                () = news.notified() => {}
                () = sleep_until(next.unwrap_or(now + FAR)) => {}
            }
        };
        let (was_good, breaks) = (self.lock.check().is_ok(), self.lock.breaks_in().is_some());
        // 6. It has ended: what it has left behind ends, too, while the lock is still held.
        if !self.terms.leaves_children {
            self.empty(kill_at).await;
        }
        self.watcher.dismiss();
        // 7. Was it held to the end? Between renewals it may have passed on unheard. A break that is only due, and
        //    silence, say nothing against it.
        let mut was_heard = true;
        if lost.is_none() && told.is_none() {
            (lost, was_heard) = confirmed(self.lock, was_good).await;
        }
        let command = End::of(status);
        is_interrupted |= was_hung_up && command == End::Signal(Signal::HUP.as_raw());
        let end = match told {
            Some(Why::Overdue) => Some(End::Code(OVERDUE)),
            _ => None,
        };
        let why = if breaks { LossReason::Broken } else { LossReason::Unconfirmed };
        let lost = lost.or(told.filter(|why| *why == Why::Lock).map(|_| why));
        let words = self.lock.breaks_because().filter(|_| lost == Some(LossReason::Broken));
        Ok(Outcome { command, end, lost, words, is_interrupted, was_heard })
    }

    /// How long the lock surely lasts: until its deadline, or until an operator's break.
    fn left(&self) -> Option<Duration> {
        let confirmed = match self.terms.on_uncertain {
            OnUncertain::Stop => self.lock.remaining(),
            OnUncertain::Hold => None,
        };
        [confirmed, self.lock.breaks_in()].into_iter().flatten().min()
    }

    /// Hands a signal on, unless the terminal has sent it to the command already.
    fn pass_on(&self, signal: Signal) {
        let from_terminal = matches!(
            signal,
            Signal::INT | Signal::QUIT | Signal::WINCH | Signal::TSTP | Signal::CONT
        );
        match (signal, self.target.has_group()) {
            (Signal::TSTP, has_group) => {
                if has_group {
                    self.target.send(Signal::STOP);
                }
                // Both stand still. When this one goes on, it looks at the clock first.
                signals::stop();
                let is_good = self.lock.check().is_ok();
                if has_group && is_good {
                    self.target.send(Signal::CONT);
                }
            }
            (_, false) if from_terminal => {}
            _ => self.target.send(signal),
        }
    }

    /// Ends what the command has left behind.
    async fn empty(&mut self, kill_at: Option<Instant>) {
        self.target.has_ended();
        self.watcher.watch(&self.target);
        if !self.target.is_there() {
            return;
        }
        self.target.end(Signal::TERM);
        let by = Instant::now() + self.terms.grace;
        let within = kill_at.map_or(by, |at| at.min(by)).saturating_duration_since(Instant::now());
        let gone = async || {
            while self.target.is_there() {
                tokio::time::sleep(watcher::GLANCE).await;
            }
        };
        if timeout(within, gone()).await.is_err() {
            self.target.end(Signal::KILL);
            // It is not over before it is: a process may be in the middle of a write.
            let _late = timeout(self.terms.grace, gone()).await;
        }
    }
}

/// Asks a gateway whether it was held to the end: gives why it was lost, and whether there was an answer.
async fn confirmed(lock: &Lock, was_good: bool) -> (Option<LossReason>, bool) {
    match timeout(CONFIRMED_WITHIN, lock.renew()).await {
        Err(_) | Ok(Err(Error::Unavailable(_))) => (None, false),
        Ok(Err(error)) if error.code() == Some("lock-breaking") => (None, true),
        Ok(Err(Error::LockLost(loss))) if loss.reason == LossReason::Unconfirmed => {
            (Some(loss.reason).filter(|_| !was_good), false)
        }
        Ok(Err(Error::LockLost(loss))) => (Some(loss.reason), true),
        Ok(_) => (None, true),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
