//! What drivers were asked and told, counted, and what is wrong about it that no history shows.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use super::Counts;
use super::hand::Hand;

/// What the drivers of a run were asked and told.
#[derive(Debug, Default, Serialize)]
pub struct Account {
    /// By command, and how it ended.
    pub calls: BTreeMap<String, Counts>,
    /// Writes by the number of their attempts, as far as that was told.
    pub attempts: BTreeMap<u64, u64>,
    /// Writes that took effect and were told to be replays: an earlier attempt had.
    pub replayed: u64,
    /// What became of writes whose outcome was unknown.
    pub resolved: Counts,
    /// Those that were unknown in a driver that was killed.
    pub forgotten: u64,
    /// Those that are still unknown.
    pub unresolved: u64,
    /// Guards that were lost, by the reason.
    pub lost: Counts,
    /// How often a guard said that it is held, and nobody else was known to have the lock.
    pub held: u64,
}

/// What is written down while drivers go on.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    account: Account,
    trouble: Vec<String>,
    /// The highest token that anybody was told of, by resource, and when.
    granted: HashMap<String, (i64, u64)>,
}

impl Ledger {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command was answered; `None`: it never will be.
    pub fn count(&self, what: &str, result: Option<&Result<Value, Value>>) {
        let outcome = match result {
            None => "no answer".to_owned(),
            Some(Ok(_)) => "ok".to_owned(),
            Some(Err(error)) => {
                let class = error["class"].as_str().unwrap_or("no class");
                let said =
                    ["code", "kind", "reason"].into_iter().find_map(|name| error[name].as_str());
                said.map_or(class.to_owned(), |said| format!("{class} {said}"))
            }
        };
        let mut pages = self.pages();
        if outcome.starts_with("Driver") || outcome.starts_with("no class") {
            pages.trouble.push(format!("{what}: the driver answered {:?}", result));
        }
        *pages.account.calls.entry(what.to_owned()).or_default().entry(outcome).or_default() += 1;
        let Some(Ok(told) | Err(told)) = result else { return };
        if let Some(attempts) = told["attempts"].as_u64().filter(|_| told["key"].is_string()) {
            *pages.account.attempts.entry(attempts).or_default() += 1;
        }
        pages.account.replayed += u64::from(told["replayed"] == true);
    }

    /// Something is wrong.
    pub fn wrong(&self, what: String) {
        self.pages().trouble.push(what);
    }

    /// What became of a write whose outcome was unknown.
    pub fn resolved(&self, how: &str) {
        *self.pages().account.resolved.entry(how.to_owned()).or_default() += 1;
    }

    /// The driver that could have resolved it was killed.
    pub fn forgotten(&self) {
        self.pages().account.forgotten += 1;
    }

    /// It never became known.
    pub fn unresolved(&self, what: String) {
        let mut pages = self.pages();
        pages.account.unresolved += 1;
        pages.trouble.push(what);
    }

    /// Somebody was told of a token.
    pub fn granted(&self, resource: &str, token: i64, at: u64) {
        let mut pages = self.pages();
        let highest = pages.granted.entry(resource.to_owned()).or_insert((token, at));
        if token > highest.0 {
            *highest = (token, at);
        }
    }

    /// A guard says that it is held, asked at this moment: then nobody has been granted the lock since.
    pub fn held(&self, resource: &str, token: i64, asked_at: u64) {
        let mut pages = self.pages();
        match pages.granted.get(resource).copied() {
            Some((newer, at)) if newer > token && at < asked_at => pages.trouble.push(format!(
                "{resource}: asked at {asked_at}, the guard of token {token} says that it is held, but somebody \
                 was told at {at} of the token {newer}"
            )),
            _ => pages.account.held += 1,
        }
    }

    /// A driver has ended.
    pub fn died(&self, hand: &Hand) {
        let mut pages = self.pages();
        for (reason, count) in hand.talk.losses() {
            *pages.account.lost.entry(reason).or_default() += count;
        }
    }

    /// All of it, and what is wrong.
    pub fn close(&self) -> (Account, Vec<String>) {
        let mut pages = self.pages();
        (std::mem::take(&mut pages.account), std::mem::take(&mut pages.trouble))
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nwhat the drivers were asked, and told")?;
        for (what, outcomes) in &self.calls {
            writeln!(f, "  {what:<10} {:>8}", outcomes.values().sum::<u64>())?;
            let mut outcomes: Vec<_> = outcomes.iter().collect();
            outcomes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (outcome, count) in outcomes {
                writeln!(f, "    {count:>8} {outcome}")?;
            }
        }
        let list = |counts: &Counts| {
            let each: Vec<_> =
                counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
            if each.is_empty() { "none".to_owned() } else { each.join(", ") }
        };
        let again: u64 = self.attempts.range(2..).map(|(_, count)| count).sum();
        writeln!(f, "  {again} writes took more than one attempt; {} were replays", self.replayed)?;
        writeln!(
            f,
            "  guards lost: {}; said to be held, and so it was: {}",
            list(&self.lost),
            self.held
        )?;
        writeln!(
            f,
            "  outcomes that were unknown: {}; {} went with a driver that was killed; {} are unresolved",
            list(&self.resolved),
            self.forgotten,
            self.unresolved
        )
    }
}
