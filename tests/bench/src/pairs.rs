//! What something costs a write: two gateways, one without it and one with it, in turn.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fence_core::wire::Lock;
use fence_tests::access::Key;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use futures::future::try_join_all;
use serde_json::json;

use crate::callers::Same;
use crate::http::request;
use crate::load::{Pace, measure};
use crate::report::Spread;
use crate::sample::{Meter, Sample};
use crate::servers::{body, warm_up};

/// How much of the rate there must be left, by the lower bound of the 95 % interval of the ratio.
const RATE_MIN: f64 = 0.97;
/// Callers who write together.
pub const MANY: usize = 64;
/// The bytes that each writes.
pub const BODY_BYTES: usize = 1024;

/// A gateway, and the writes to it.
pub struct Site {
    /// The gateway.
    pub gateway: Gateway,
    puts: Vec<Arc<[u8]>>,
}

impl Site {
    /// Takes a lock for each writer.
    ///
    /// # Errors
    /// What goes wrong.
    pub async fn new(gateway: Gateway, key: Option<&Key>) -> Result<Self> {
        let client = gateway.client();
        let mut puts = Vec::new();
        for number in 0..MANY {
            let call = client.lock(&json!({ "resource": format!("put{number}"), "ttl": "24h" }));
            let call = match key {
                Some(key) => key.by(call),
                None => call,
            };
            let lock: Lock = call.send().await.expect(201).parse();
            let (token, id) = (lock.token.to_string(), lock.id.to_string());
            let bearer = key.map(|key| format!("Bearer {}", key.text));
            let mut headers = vec![("x-fence-token", token.as_str()), ("x-lock-id", id.as_str())];
            headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
            let path = format!("/resources/put{number}/objects/k");
            puts.push(request("PUT", &path, &headers, &body(BODY_BYTES)).into());
        }
        Ok(Self { gateway, puts })
    }

    async fn sample(&self, callers: usize) -> Result<Sample> {
        let lasts = Duration::from_secs(1);
        let at = self.gateway.address();
        let each =
            self.puts.iter().take(callers).map(|put| Same::new(at, Arc::clone(put), 200..202));
        let callers = try_join_all(each).await?;
        let meter = Meter::begin(&[self.gateway.pid()], Some(self.gateway.pid()));
        Ok(meter.end(&measure(callers, Pace::Closed, warm_up(lasts), lasts).await?))
    }
}

/// How often, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Pairs {
    /// Pairs of measurements.
    pub pairs: usize,
    /// How long each of the two lasts in a pair, in seconds; a third of it for a writer alone.
    pub seconds: u64,
}

/// What it costs.
pub struct Cost {
    what: &'static str,
    ratios: Vec<f64>,
    more_us: Spread,
    /// Processor time of the gateway for a write, in microseconds, without it and with it.
    pub spent: [Spread; 2],
}

impl Pairs {
    /// Measures: many writers, then one alone.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self, sites: [&Site; 2], words: [&'static str; 2]) -> Result<Cost> {
        let pairs = self.pairs;
        ensure!(pairs > 1 && self.seconds > 0, "there are pairs and seconds");
        let [without_it, with_it] = words;
        let (mut ratios, mut more) = (Vec::new(), Vec::new());
        let mut spent = [Vec::new(), Vec::new()];
        // Strictly in turn: whoever goes twice in a row finds the dead rows of the first time, and is slower for it. Each
        // goes first in every other pair, and so twice in a row as often as the other. What comes before the first turns is
        // not counted.
        for site in sites {
            site.sample(MANY).await?;
        }
        for pair in 1..=pairs {
            let turns = turns(sites, (MANY, self.seconds), pair).await?;
            for (spent, turns) in spent.iter_mut().zip(&turns) {
                spent.push(mean(turns, |sample| sample.gateway.map_or(0.0, |of| of.cpu_us)));
            }
            let [without, with] = turns.map(|turns| mean(&turns, |sample| sample.per_second));
            ratios.push(with / without);
            println!("pair {pair} of {pairs}: {without:.0}/s {without_it}, {with:.0}/s {with_it}");
        }
        for pair in 1..=pairs {
            let turns = turns(sites, (1, self.seconds.div_ceil(3)), pair).await?;
            let [without, with] = turns.map(|turns| mean(&turns, |sample| sample.p50_us as f64));
            more.push(with - without);
            println!(
                "pair {pair} of {pairs}: p50 of one {without:.1} us {without_it}, {with:.1} us {with_it}"
            );
        }
        let spent = spent.map(|each| Spread::of(each.into_iter()));
        Ok(Cost { what: with_it, ratios, more_us: Spread::of(more.into_iter()), spent })
    }
}

impl Cost {
    /// Prints it. Says whether it is no more than it may be: so much of the rate is left, and the median answer of a caller
    /// alone takes at most so much longer.
    pub fn told(&self, more_max_us: f64) -> bool {
        let least = lower_bound(&self.ratios);
        let not = |is_met| if is_met { "" } else { ": NOT MET" };
        let (is_fast, is_soon) = (least >= RATE_MIN, self.more_us.median <= more_max_us);
        println!(
            "\nrate {}, of that without: {}",
            self.what,
            Spread::of(self.ratios.iter().copied())
        );
        println!(
            "  lower bound of the 95 % interval {least:.4}, wanted {RATE_MIN}{}",
            not(is_fast)
        );
        println!(
            "p50 of a caller alone: {} us more, wanted at most {more_max_us}{}",
            self.more_us,
            not(is_soon)
        );
        is_fast && is_soon
    }
}

/// Has the ledger tidied often: by default each database is every other minute, at a time of its own, and is faster for the
/// next one, which is longer than a pair lasts.
pub async fn tidied_often(postgres: &Postgres) {
    for often in ["ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()"] {
        postgres.execute("postgres", often).await;
    }
}

/// One second of the one, one of the other, until each has had all of its time. The first goes first in pairs of odd
/// numbers.
async fn turns(
    sites: [&Site; 2],
    (callers, seconds): (usize, u64),
    pair: usize,
) -> Result<[Vec<Sample>; 2]> {
    let mut turns = [Vec::new(), Vec::new()];
    let order = if pair % 2 == 1 { [0, 1] } else { [1, 0] };
    for _ in 0..seconds {
        for at in order {
            turns[at].push(sites[at].sample(callers).await?);
        }
    }
    Ok(turns)
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len() as f64
}

/// The lower bound of the 95 % interval of the mean of these ratios, by their logarithms.
fn lower_bound(ratios: &[f64]) -> f64 {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // Student's t for 19 degrees of freedom; a little too wide for more pairs, and too narrow for fewer.
    const T: f64 = 2.093;
    (mean - T * (variance / count).sqrt()).exp()
}
