//! The end of an upgrade: older gateways go, their acts are retired and dropped, the newer ones go on alone.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use fence_tests::gateway::Gateway;
use fencegate::ledger::postgres::acts::NUMBER;
use serde::Serialize;
use sqlx::AssertSqlSafe;

use crate::book::Book;
use crate::client::Client;
use crate::newer;
use crate::rules::Doors;
use crate::run::{BACK_WITHIN, prove_all};
use crate::site::Site;

/// Numbers of the callers who ask once the older acts are retired: one in vain, and one for each newer gateway.
const IN_VAIN: u32 = 40_950;
const CALLERS: u32 = 40_951;
/// How soon a gateway whose acts are retired has ended. It looks for them every 5 s.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Upgrade {
    /// The acts of the older gateways.
    pub older: i64,
    /// The acts of the newer ones.
    pub newer: i64,
    /// Which gateways are newer.
    pub gateways: Vec<usize>,
    /// How often they were told a verdict that only their acts have.
    pub told: usize,
    /// Whether the older acts are gone.
    pub is_dropped: bool,
}

impl fmt::Display for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { older, newer, gateways, told, is_dropped } = self;
        let end = if *is_dropped { "was dropped" } else { "was not dropped" };
        writeln!(
            f,
            "acts {older} and, at gateways {gateways:?}, {newer}: {told} verdicts that only these have; in the end \
             {older} {end}"
        )
    }
}

/// The acts that the newer gateways have, beside those of this version.
///
/// # Errors
/// They have no newer ones, so nothing would be tried.
pub async fn newer_acts(site: &Site) -> Result<i64> {
    let numbers = "SELECT number FROM fencegate.act_sets ORDER BY number";
    let numbers: Vec<i64> =
        sqlx::query_scalar(numbers).fetch_all(&mut site.database.connect().await?).await?;
    ensure!(
        numbers.len() == 2 && numbers[0] == NUMBER,
        "the newer gateway is to have newer acts than {NUMBER}, but the ledger has {numbers:?}"
    );
    Ok(numbers[1])
}

/// Ends the upgrade to these acts, and looks that it has ended; whatever is not as it should be is trouble.
///
/// 1. All older gateways but the last are stopped. That one is forgotten.
/// 2. The older acts are retired and dropped: nothing is left of them but the name of their schema.
/// 3. The forgotten gateway grants nothing, and ends.
/// 4. One that was stopped refuses to start.
/// 5. The newer gateways grant and write.
///
/// # Errors
/// A ledger that cannot be reached.
pub async fn end(
    site: &mut Site,
    doors: &Doors,
    newer: i64,
    book: &Book,
    trouble: &mut Vec<String>,
) -> Result<Upgrade> {
    let (gateways, older): (Vec<_>, Vec<_>) =
        (0..site.nodes.len()).partition(|number| site.nodes[*number].is_newer);
    let [stopped @ .., forgotten] = &older[..] else { unreachable!("the first one is older") };
    let told = gateways.iter().map(|number| site.nodes[*number].gateway.log());
    let told: usize = told.map(|said| said.matches(newer::TOLD).count()).sum();
    if told == 0 {
        trouble.push("no newer gateway was told a verdict that only its acts have".into());
    }

    // Step 1.
    for number in stopped {
        let gateway = &mut site.nodes[*number].gateway;
        gateway.term();
        let status = gateway.wait_for_exit().await;
        if !status.success() {
            trouble.push(format!("gateway {number} ended with {status}"));
        }
    }

    // Step 2.
    let by = &site.nodes[gateways[0]].gateway;
    let (code, _, said) = by.run(&["migrate", "--retire-older"]).await;
    if code != Some(0) {
        trouble.push(format!("the older acts were not dropped, but {code:?}: {said}"));
    }
    let left = left_over(site, newer).await?;
    let is_dropped = left.is_empty();
    trouble.extend(left);

    // Step 3.
    let caller = |number, gateway| {
        let book = book.clone();
        Client::of(number, doors, Some(gateway), move |line| book.write(line))
    };
    if caller(IN_VAIN, *forgotten).prove("proof-0").await {
        trouble.push(format!("gateway {forgotten} goes on, though its acts are retired"));
    }
    let forgotten = &mut site.nodes[*forgotten].gateway;
    trouble.extend(ends_with(forgotten, "were retired by a newer one").await);

    // Step 4.
    for number in stopped {
        let gateway = &mut site.nodes[*number].gateway;
        gateway.spawn();
        trouble.extend(ends_with(gateway, "were retired on this ledger").await);
    }

    // Step 5.
    for (number, gateway) in (CALLERS..).zip(&gateways) {
        if prove_all(&mut [caller(number, *gateway)]).await >= BACK_WITHIN {
            trouble.push(format!("gateway {gateway} does not go on without the older acts"));
        }
    }
    Ok(Upgrade { older: NUMBER, newer, gateways, told, is_dropped })
}

/// What is left of the older acts, or not said of them. Their schema stays, empty, so that nobody takes its name.
async fn left_over(site: &Site, newer: i64) -> Result<Vec<String>> {
    let mut connection = site.database.connect().await?;
    let schema = format!("fencegate_acts_{NUMBER}");
    let counts = format!(
        "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'),
                (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('{schema}'))
                + (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('{schema}'))
                + (SELECT count(*) FROM pg_type WHERE typnamespace = to_regnamespace('{schema}'))"
    );
    let counts: (i64, i64) =
        sqlx::query_as(AssertSqlSafe(counts)).fetch_one(&mut connection).await?;
    let said = "SELECT array(SELECT number FROM fencegate.act_sets), s.acts_min, w.acts_min
                FROM fencegate.seal_guard s, fencegate.write_guard w";
    let said: (Vec<i64>, i64, i64) = sqlx::query_as(said).fetch_one(&mut connection).await?;
    let mut left = Vec::new();
    if counts != (1, 0) {
        left.push(format!("{} schemas {schema} are left, with {} things", counts.0, counts.1));
    }
    if said != (vec![newer], newer, newer) {
        left.push(format!("the ledger has not the acts {newer} alone, but says {said:?}"));
    }
    Ok(left)
}

/// What is wrong about how a gateway ends: it is to do so by itself, with 1, and to say why in its last line.
async fn ends_with(gateway: &mut Gateway, why: &str) -> Option<String> {
    let began = std::time::Instant::now();
    while gateway.is_running() {
        if began.elapsed() > ENDS_WITHIN {
            gateway.kill9();
            return Some(format!("a gateway did not say that its acts {why}, but went on"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = gateway.wait_for_exit().await;
    let said = gateway.log();
    let last = said.lines().last().unwrap_or_default();
    let is_so = status.code() == Some(1) && last.starts_with("error: ") && last.contains(why);
    (!is_so).then(|| format!("a gateway did not say that its acts {why}, but {status}: {last}"))
}
