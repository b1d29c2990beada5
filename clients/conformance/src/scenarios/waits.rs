//! Waits of any length, over networks of any speed: no lock is lost, or given back, that a gateway would have renewed.
//!
//! The script is the gateway: it knows when each lock was granted, and until when it runs. Half of a round trip lies before each of
//! its answers, and half behind.

use anyhow::{Context as _, Result, bail, ensure};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::{Scenario, scenario};
use crate::run::is_long;
use crate::script::{Call, Script};
use crate::server::{Exchange, Reply, answers};

pub(super) const ALL: &[Scenario] = &[
    scenario!(
        "any-wait",
        [19, 30, 31],
        "after a wait of any length the lock is held for as long as it is renewed",
        waits
    ),
    scenario!(
        "any-wait-of-a-candidate",
        [19, 30, 52],
        "so does a candidate lead who has waited",
        candidates
    )
    .needs(&["elect"]),
    scenario!(
        "any-wait-with-grace",
        [19, 30, 31],
        "and work that needs time to end has that when it begins, and until it is done",
        graceful
    )
    .needs(&["grace"]),
];

/// Waits in the ordinary tests, and in the long ones.
const SHORT: u64 = 12;
const LONG: u64 = 1000;
/// Round trips, in milliseconds.
const ROUND_TRIPS_MS: [u64; 3] = [0, 50, 200];
/// Time between looks whether a candidate leads while no answer is on its way, in milliseconds.
const LOOK_MS: u64 = 10;
/// The ttl of an election, in milliseconds.
const ELECTED_MS: u64 = 30_000;

/// A wait as it is drawn.
#[derive(Debug, Clone, Copy)]
struct Wait {
    ttl_ms: u64,
    round_trip_ms: u64,
    /// Until the lock is free.
    wait_ms: u64,
    grace_ms: u64,
}

impl Wait {
    fn draw(rng: &mut SmallRng, ttl_ms: Option<u64>) -> Self {
        let ttl_ms = ttl_ms.unwrap_or_else(|| rng.random_range(1_000..=30_000));
        Self {
            ttl_ms,
            round_trip_ms: ROUND_TRIPS_MS[rng.random_range(0..ROUND_TRIPS_MS.len())],
            wait_ms: rng.random_range(0..=3 * ttl_ms),
            // As much as `fence run` takes by default.
            grace_ms: (ttl_ms / 5).min(5_000),
        }
    }

    /// Time that a holder takes off the ttl, for clocks that do not run alike.
    fn margin_ms(self) -> u64 {
        (self.ttl_ms / 100).max(20)
    }
}

/// The gateway: one resource, which is free at some time, and its lock.
struct Line {
    wait: Wait,
    free_at: u64,
    /// The time until which the lock runs, once it is granted.
    until: Option<u64>,
    /// The time at which the last request was sent that was confirmed.
    confirmed: u64,
    on_their_way: Vec<(u64, Exchange, Answer)>,
}

/// An answer on its way.
enum Answer {
    Granted { left_ms: u64, sent: u64 },
    Elapsed,
    Renewed { sent: u64 },
    Released,
}

impl Line {
    fn new(wait: Wait, now: u64) -> Self {
        let free_at = now + wait.wait_ms;
        Self { wait, free_at, until: None, confirmed: now, on_their_way: Vec::new() }
    }

    /// A request that is sent at this time.
    fn take(&mut self, exchange: Exchange, sent: u64) -> Result<()> {
        let half = self.wait.round_trip_ms / 2;
        let arrives = sent + half;
        let request = &exchange.request;
        let (answered, answer) = if request.is("POST", "/locks") {
            let body = request.json()?;
            let wait = body["wait"].as_str().context("it waits")?;
            let gives_up = arrives + u64::try_from(answers::milliseconds(wait)?)?;
            ensure!(self.until.is_none(), "it asks once more for what it was granted");
            match self.free_at.max(arrives) {
                granted if granted <= gives_up => {
                    self.until = Some(granted + self.wait.ttl_ms);
                    (granted, Answer::Granted { left_ms: self.wait.ttl_ms, sent })
                }
                _ => (gives_up, Answer::Elapsed),
            }
        } else if request.is("POST", "/locks/*/renew") {
            let until = self.until.context("it renews what it was not granted")?;
            ensure!(arrives < until, "a renewal comes {} ms too late", arrives - until);
            self.until = Some(arrives + self.wait.ttl_ms);
            (arrives, Answer::Renewed { sent })
        } else if request.is("DELETE", "/locks/*") {
            (arrives, Answer::Released)
        } else {
            bail!("{} came", request.line());
        };
        self.on_their_way.push((answered + half, exchange, answer));
        self.on_their_way.sort_by_key(|(at, ..)| *at);
        Ok(())
    }

    /// Lets the answers arrive that are due.
    async fn answer(&mut self, now: u64) -> Result<()> {
        while self.on_their_way.first().is_some_and(|(at, ..)| *at <= now) {
            let (_, exchange, answer) = self.on_their_way.remove(0);
            match answer {
                Answer::Granted { left_ms, sent } => {
                    self.confirmed = sent;
                    exchange.grant_with("7", &json!({ "expires_in_ms": left_ms })).await?;
                }
                Answer::Elapsed => {
                    exchange.problem_with("lock-wait-elapsed", json!({ "position": 1 })).await?;
                }
                Answer::Renewed { sent } => {
                    self.confirmed = sent;
                    exchange.renewed().await?;
                }
                Answer::Released => exchange.reply(Reply::new(204)).await?,
            }
        }
        Ok(())
    }

    /// Time that is left by the holder's own clock.
    fn left_ms(&self, now: u64) -> u64 {
        (self.confirmed + self.wait.ttl_ms - self.wait.margin_ms()).saturating_sub(now)
    }

    /// Goes on until then, or until a call has its answer; tells if it has.
    async fn go_on(&mut self, s: &mut Script, until: u64, call: Option<Call>) -> Result<bool> {
        loop {
            self.answer(s.now()).await?;
            if let Some(call) = call
                && !s.open(call).await?
            {
                return Ok(true);
            }
            let next = self.on_their_way.first().map_or(until, |(at, ..)| (*at).min(until));
            if next <= s.now() {
                return Ok(false);
            }
            if let Some(exchange) = s.any_within(next - s.now()).await? {
                let sent = s.now();
                self.take(exchange, sent)?;
            }
        }
    }

    /// Goes on for two ttls; its holder has so much left all the time, and at first for two more answers that take as long as
    /// the one that it goes by.
    async fn keep(&mut self, s: &mut Script, grace_ms: u64) -> Result<()> {
        let (left_ms, took_ms) = (self.left_ms(s.now()), s.now() - self.confirmed);
        let needed_ms = grace_ms + 2 * took_ms;
        ensure!(left_ms > needed_ms, "{left_ms} ms were left, and {needed_ms} ms are needed");
        let end = s.now() + 2 * self.wait.ttl_ms;
        while s.now() < end {
            let left_ms = self.left_ms(s.now());
            ensure!(left_ms > grace_ms, "{left_ms} ms are left, and {grace_ms} ms are needed");
            self.go_on(s, end.min(s.now() + left_ms - grace_ms), None).await?;
        }
        Ok(())
    }
}

/// A seed, and the number of waits.
fn survey() -> (u64, u64) {
    match is_long() {
        true => (rand::rng().next_u64(), LONG),
        false => (1, SHORT),
    }
}

async fn waits(s: &mut Script) -> Result<()> {
    all(s, false).await
}

async fn graceful(s: &mut Script) -> Result<()> {
    all(s, true).await
}

async fn all(s: &mut Script, with_grace: bool) -> Result<()> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let (seed, count) = survey();
    let mut rng = SmallRng::seed_from_u64(seed);
    for number in 0..count {
        let wait = Wait::draw(&mut rng, None);
        let grace_ms = if with_grace { wait.grace_ms } else { 0 };
        let held = held(s, &format!("L{number}"), wait, grace_ms).await;
        held.with_context(|| format!("wait {number} of seed {seed}, {wait:?}"))?;
    }
    Ok(())
}

/// A lock that is waited for, held and given back.
async fn held(s: &mut Script, name: &str, wait: Wait, grace_ms: u64) -> Result<()> {
    let mut line = Line::new(wait, s.now());
    let mut wish = json!({
        "resources": [name], "ttl": format!("{}ms", wait.ttl_ms), "wait": "forever",
    });
    if grace_ms > 0 {
        wish["grace"] = json!(format!("{grace_ms}ms"));
    }
    let call = s.acquire(name, wish).await?;
    let late = line.free_at + 2 * wait.ttl_ms;
    ensure!(line.go_on(s, late, Some(call)).await?, "it was not given out");
    s.held(name, call).await?;
    line.keep(s, grace_ms).await?;
    s.no_event("lost").await?;
    let state = s.state(name).await?;
    ensure!(state["state"] == "held", "{state}");
    let release = s.start(json!({ "do": "release", "lock": name })).await?;
    let soon = s.now() + wait.ttl_ms;
    ensure!(line.go_on(s, soon, Some(release)).await?, "it was not given back");
    s.ok_now(release).await.map(drop)
}

async fn candidates(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.shared.auto.renewals(false);
    let (seed, count) = survey();
    let mut rng = SmallRng::seed_from_u64(seed);
    for number in 0..count {
        let wait = Wait::draw(&mut rng, Some(ELECTED_MS));
        let led = led(s, &format!("E{number}"), wait).await;
        led.with_context(|| format!("wait {number} of seed {seed}, {wait:?}"))?;
    }
    Ok(())
}

/// An election that is waited for, led and left.
async fn led(s: &mut Script, name: &str, wait: Wait) -> Result<()> {
    let mut line = Line::new(wait, s.now());
    let election: Value = json!({ "do": "elect", "election": name, "name": name });
    let call = s.start(election).await?;
    let late = line.free_at + wait.ttl_ms;
    while !s.happened("leading").await? {
        ensure!(s.now() < late, "it does not lead");
        let soon = s.now() + LOOK_MS;
        let next = line.on_their_way.first().map_or(soon, |(at, ..)| *at);
        line.go_on(s, next, None).await?;
        line.answer(s.now()).await?;
    }
    line.keep(s, 0).await?;
    s.no_event("stopping").await?;
    s.tell(json!({ "do": "leave", "election": name, "how": "return" })).await?;
    let soon = s.now() + wait.ttl_ms;
    ensure!(line.go_on(s, soon, Some(call)).await?, "it does not resign");
    s.ok_now(call).await.map(drop)
}
