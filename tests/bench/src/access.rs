//! What rules of access cost a write, and TLS; and whether a key tells by the time it takes that its id is known.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fencegate_access::{ApiKey, Identity, Rules as Parsed};
use futures::future::try_join_all;
use reqwest::Certificate;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use tempfile::TempDir;

use crate::callers::Same;
use crate::http::request;
use crate::load::{Caller, Pace, measure};
use crate::report::Spread;
use crate::sample::{Meter, Sample};
use crate::servers::{body, quiet, warm_up};

/// How much of the rate there must be left with rules, by the lower bound of the 95 % interval of the ratio.
const RATE_MIN: f64 = 0.97;
/// How much longer the median answer of a caller alone may take, in microseconds.
const MORE_MAX_US: f64 = 5.0;
/// Keys that are timed together: the clock of a machine may go in steps of 10 ns, which is more than what is looked for.
const TOGETHER: usize = 16;
/// How far the medians of an unknown key and of a wrong secret may lie apart.
const APART_MAX: f64 = 0.02;
/// Callers who write together.
const MANY: usize = 64;
const BODY_BYTES: usize = 1024;

/// How rules are measured.
#[derive(Debug, clap::Args)]
pub struct Access {
    /// Pairs of measurements, without rules and with them
    #[arg(long, default_value_t = 20)]
    pairs: usize,
    /// How long each of the two lasts in a pair, in seconds, which go in turn: so a machine that is slower for a while
    /// is so for both; a third of it for a writer alone
    #[arg(long, default_value_t = 9)]
    seconds: u64,
    /// Keys of each kind
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
}

/// A gateway, and the writes to it.
struct Site {
    gateway: Gateway,
    puts: Vec<Arc<[u8]>>,
}

impl Access {
    /// Measures, and prints what comes out. Says whether rules cost no more than they may.
    ///
    /// # Errors
    /// What could not be measured.
    pub async fn run(self) -> Result<bool> {
        ensure!(
            self.pairs > 1 && self.seconds > 0 && self.keys > 0,
            "there are pairs, seconds and keys"
        );
        let is_silent = keys(self.keys)?;
        let (postgres, etcd) = tokio::join!(Postgres::dedicated(), Etcd::dedicated());
        // By default each of the two databases is tidied every other minute, at a time of its own, and is faster for the next
        // one: longer than a pair lasts.
        for often in ["ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()"] {
            postgres.execute("postgres", often).await;
        }
        let of = async |prefix: &str| {
            let prefix = format!("{}{prefix}", etcd.prefix());
            quiet(Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &prefix))
        };
        let open = Site::new(of("open").await.start().await, None).await?;
        let (rules, key) = (Rules::new().await, Key::new().await);
        let gateway = of("ruled").await.start().await;
        rules.put_in_force(&gateway, &text(&rules, &key)).await;
        let ruled = Site::new(gateway, Some(&key)).await?;
        let (mut ratios, mut more) = (Vec::new(), Vec::new());
        let mut spent = [Vec::new(), Vec::new()];
        let pairs = self.pairs;
        // Strictly in turn: whoever goes twice in a row finds the dead rows of the first time, and is slower for it. Each
        // goes first in every other pair, and so twice in a row as often as the other. What comes before the first turns is
        // not counted.
        self.sample(&open, MANY).await?;
        self.sample(&ruled, MANY).await?;
        for pair in 1..=pairs {
            let turns = self.turns([&open, &ruled], (MANY, self.seconds), pair).await?;
            for (spent, turns) in spent.iter_mut().zip(&turns) {
                spent.push(mean(turns, |sample| sample.gateway.map_or(0.0, |of| of.cpu_us)));
            }
            let [without, with] = turns.map(|turns| mean(&turns, |sample| sample.per_second));
            ratios.push(with / without);
            println!("pair {pair} of {pairs}: {without:.0}/s without, {with:.0}/s with rules");
        }
        for pair in 1..=pairs {
            let turns = self.turns([&open, &ruled], (1, self.seconds.div_ceil(3)), pair).await?;
            let [without, with] = turns.map(|turns| mean(&turns, |sample| sample.p50_us as f64));
            more.push(with - without);
            println!(
                "pair {pair} of {pairs}: p50 of one {without:.1} us without, {with:.1} us with rules"
            );
        }
        let tls = self.tls(of("tls").await, &rules, &key).await?;
        let least = lower_bound(&ratios);
        let more = Spread::of(more.into_iter());
        let is_cheap = least >= RATE_MIN && more.median <= MORE_MAX_US;
        let not = |is_met| if is_met { "" } else { ": NOT MET" };
        let [without, with] = spent.map(|each| Spread::of(each.into_iter()));
        println!("\nrate with rules, of that without: {}", Spread::of(ratios.into_iter()));
        println!(
            "  lower bound of the 95 % interval {least:.4}, wanted {RATE_MIN}{}",
            not(least >= RATE_MIN)
        );
        println!(
            "p50 of a caller alone: {more} us more, wanted at most {MORE_MAX_US}{}",
            not(more.median <= MORE_MAX_US)
        );
        println!(
            "processor time of the gateway for a write, in us: {without} without rules, {with} with, {tls} with TLS, too"
        );
        Ok(is_silent && is_cheap)
    }

    /// One second of the one, one of the other, until each has had all of its time. The first goes first in pairs of odd
    /// numbers.
    async fn turns(
        &self,
        sites: [&Site; 2],
        (callers, seconds): (usize, u64),
        pair: usize,
    ) -> Result<[Vec<Sample>; 2]> {
        let mut turns = [Vec::new(), Vec::new()];
        let order = if pair % 2 == 1 { [0, 1] } else { [1, 0] };
        for _ in 0..seconds {
            for at in order {
                turns[at].push(self.sample(sites[at], callers).await?);
            }
        }
        Ok(turns)
    }

    async fn sample(&self, site: &Site, callers: usize) -> Result<Sample> {
        let lasts = Duration::from_secs(1);
        let at = site.gateway.address();
        let each =
            site.puts.iter().take(callers).map(|put| Same::new(at, Arc::clone(put), 200..202));
        let callers = try_join_all(each).await?;
        let meter = Meter::begin(&[site.gateway.pid()], Some(site.gateway.pid()));
        Ok(meter.end(&measure(callers, Pace::Closed, warm_up(lasts), lasts).await?))
    }

    /// Processor time of the gateway for a write by TLS, under rules, in microseconds; connections are kept.
    async fn tls(&self, settings: Settings, rules: &Rules, key: &Key) -> Result<Spread> {
        let home = TempDir::new()?;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (cert, private) = (home.path().join("cert.pem"), home.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem())?;
        std::fs::write(&private, made.signing_key.serialize_pem())?;
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let settings =
            settings.flag("--tls-cert-file", &path(&cert)).flag("--tls-key-file", &path(&private));
        // The line that says where it listens is not among those of quiet gateways.
        let gateway = settings
            .flag("--admin-listen", &format!("unix:{}", path(&home.path().join("s"))))
            .begin();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([Certificate::from_pem(made.cert.pem().as_bytes())?])
            .build()?;
        let url = format!("https://localhost:{}", gateway.address().port());
        fence_tests::process::eventually("it is ready", async || {
            let answer = http.get(format!("{url}/readyz")).send().await;
            answer.is_ok_and(|answer| answer.status() == 200).then_some(())
        })
        .await;
        rules.put_in_force(&gateway, &text(rules, key)).await;
        let mut writers = Vec::new();
        for number in 0..MANY {
            let body = json!({ "resource": format!("put{number}"), "ttl": "24h" });
            let call = http.post(format!("{url}/locks")).bearer_auth(&key.text).json(&body);
            let lock: Lock = call.send().await?.error_for_status()?.json().await?;
            writers.push(ByTls::new(&http, &url, number, &lock, key)?);
        }
        let lasts = Duration::from_secs(self.seconds * 3);
        let meter = Meter::begin(&[gateway.pid()], Some(gateway.pid()));
        let measured = measure(writers, Pace::Closed, warm_up(lasts), lasts).await?;
        let spent = meter.end(&measured).gateway.context("it was measured")?.cpu_us;
        Ok(Spread::of([spent].into_iter()))
    }
}

/// Rules of a few roles and many principals, of whom one writes.
fn text(rules: &Rules, key: &Key) -> String {
    let may = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"*\"]\nrate = 1000000";
    let mut text = rules.text(may, &[("writer", key)]);
    for number in 0..1_000 {
        let _ = write!(
            text,
            "[[principals]]\nname = \"p{number}\"\nroles = [\"worker\"]\nmatch = {{ unix_uid = {} }}\n",
            100_000 + number
        );
    }
    text
}

impl Site {
    async fn new(gateway: Gateway, key: Option<&Key>) -> Result<Self> {
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
}

/// Writes the same again and again over a connection of TLS that is kept.
struct ByTls {
    http: reqwest::Client,
    url: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl ByTls {
    fn new(
        http: &reqwest::Client,
        url: &str,
        number: usize,
        lock: &Lock,
        key: &Key,
    ) -> Result<Self> {
        let mut headers = HeaderMap::new();
        let bearer = format!("Bearer {}", key.text);
        for (name, value) in [
            ("x-fence-token", lock.token.to_string()),
            ("x-lock-id", lock.id.to_string()),
            ("authorization", bearer),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value)?);
        }
        let url = format!("{url}/resources/put{number}/objects/k");
        Ok(Self { http: http.clone(), url, headers, body: body(BODY_BYTES) })
    }
}

impl Caller for ByTls {
    async fn call(&mut self) -> Result<()> {
        let put = self.http.put(&self.url).headers(self.headers.clone()).body(self.body.clone());
        put.send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }
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

/// Keys whose id nobody has, and keys with the id of somebody and another secret, in turn, in this process. Says whether
/// both take as long.
fn keys(count: usize) -> Result<bool> {
    let mut text =
        String::from("[[roles]]\nname = \"r\"\nallow = [\"read\"]\nresources = [\"*\"]\n");
    let mut wrong = Vec::new();
    for number in 0..1_000 {
        let (known, other) = (ApiKey::generate()?, ApiKey::generate()?);
        let (id, digest) = (known.kid().to_owned(), other.digest().to_hex());
        let _ = write!(
            text,
            "[[principals]]\nname = \"p{number}\"\nroles = [\"r\"]\n\
             keys = [{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2100-01-01T00:00:00Z }}]\n"
        );
        wrong.push(Identity::Key(known));
    }
    let unknown: Vec<Identity> =
        (0..1_000).map(|_| Ok(Identity::Key(ApiKey::generate()?))).collect::<Result<_>>()?;
    let rules = Parsed::parse(&text)?;
    let now = "2026-01-01T00:00:00Z".parse()?;
    let mut took = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for number in 0..(count + 1_000) / TOGETHER {
        let order = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            let all = &[&unknown, &wrong][which];
            let begun = Instant::now();
            for at in 0..TOGETHER {
                let identity = &all[(number * TOGETHER + at) % all.len()];
                let refused = black_box(rules.caller(black_box(identity), now)).is_err();
                ensure!(refused, "it was taken");
            }
            let nanos = begun.elapsed().as_nanos() as f64 / TOGETHER as f64;
            // The first ones find the code cold.
            if number * TOGETHER >= 1_000 {
                took[which].push(nanos);
            }
        }
    }
    let [unknown, wrong] = took.map(|each| Spread::of(each.into_iter()).median);
    let apart = (unknown / wrong - 1.0).abs();
    let not = if apart <= APART_MAX { "" } else { ": NOT MET" };
    println!(
        "{count} keys of each kind: an unknown one takes {unknown:.0} ns, a wrong secret {wrong:.0} ns; \
         {:.1} % apart, wanted at most {:.0} %{not}",
        apart * 100.0,
        APART_MAX * 100.0
    );
    Ok(apart <= APART_MAX)
}
