//! What rules of access cost a write, and TLS; and whether a key tells by the time it takes that its id is known.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::Postgres;
use fencegate_access::{ApiKey, Identity, Rules as Parsed};
use reqwest::Certificate;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use tempfile::TempDir;

use crate::load::{Caller, Pace, measure};
use crate::pairs::{BODY_BYTES, MANY, Pairs, Site, tidied_often};
use crate::report::Spread;
use crate::sample::Meter;
use crate::servers::{body, quiet, warm_up};

/// How much longer the median answer of a caller alone may take, in microseconds.
const MORE_MAX_US: f64 = 5.0;
/// Keys that are timed together: the clock of a machine may go in steps of 10 ns, which is more than what is looked for.
const TOGETHER: usize = 16;
/// How far the medians of an unknown key and of a wrong secret may lie apart.
const APART_MAX: f64 = 0.02;

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
        tidied_often(&postgres).await;
        let of = async |prefix: &str| {
            let prefix = format!("{}{prefix}", etcd.prefix());
            quiet(Gateway::clustered(&postgres.database().await, &etcd.endpoint(), &prefix))
        };
        let open = Site::new(of("open").await.start().await, None).await?;
        let (rules, key) = (Rules::new().await, Key::new().await);
        let gateway = of("ruled").await.start().await;
        rules.put_in_force(&gateway, &text(&rules, &key)).await;
        let ruled = Site::new(gateway, Some(&key)).await?;
        let pairs = Pairs { pairs: self.pairs, seconds: self.seconds };
        let cost = pairs.run([&open, &ruled], ["without rules", "with them"]).await?;
        let tls = self.tls(of("tls").await, &rules, &key).await?;
        let is_cheap = cost.told(MORE_MAX_US);
        let [without, with] = cost.spent;
        println!(
            "processor time of the gateway for a write, in us: {without} without rules, {with} with, {tls} with TLS, too"
        );
        Ok(is_silent && is_cheap)
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
