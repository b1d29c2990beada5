//! A run: faults one after the other, some of them two at a time, while clients go on; then peace, and a look
//! at what the ledger holds.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fence_history::{Answer, HEALED_WITHIN_US, check};
use fence_tests::mutants::Mutant;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::book::Book;
use crate::client::{Client, stories};
use crate::crew::{Callers, Crew};
use crate::driven::Troupe;
use crate::faults::{Fault, Part};
use crate::ledger::Object;
use crate::patroni::is_void;
use crate::report::{Report, Tally, takeovers};
use crate::rules::{Administrator, Doors, Everybody, Keys};
use crate::s3;
use crate::scene::Scene;
use crate::site::{GATEWAYS, Node, Patroni, Site};
use crate::steady::Steady;
use crate::upgrade;

/// Numbers of the callers that prove that service is back; client processes count up from 1.
const PROVERS: u32 = 40_000;
/// The number of the operator.
const OPERATOR: u32 = 40_900;
/// The number of the operator who sees to locks after a clock was wrong.
const BREAKER: u32 = 40_950;
/// The number of the caller that looks at everything in the end.
const LAST: u32 = 41_000;
/// How soon service must be back.
pub const BACK_WITHIN: Duration = Duration::from_micros(HEALED_WITHIN_US);
/// So much of what steady callers got done before anything broke they must get done again, and so soon.
const GOODPUT_SHARE: f64 = 0.9;
const GOODPUT_WITHIN: Duration = Duration::from_secs(10);
/// How long it is counted at a time, and how long before anything breaks.
const COUNTED: Duration = Duration::from_secs(2);
const COUNTED_FIRST: Duration = Duration::from_secs(20);
/// How long what was left behind by clients that are gone may take.
pub const SETTLES_WITHIN: Duration = Duration::from_secs(3);

/// What a gateway logs once it has adopted a timeline, and once it has re-fenced the ledger.
pub const ADOPTED: &str = "it was adopted, no token is void";
pub const REFENCED: &str = "the ledger was re-fenced: all tokens up to the floor";

/// What is wanted.
pub struct Plan {
    /// How long faults go on.
    pub lasts: Duration,
    /// From which they are drawn.
    pub seed: u64,
    /// Whether goodput is judged after each fault.
    pub goodput: bool,
    /// Of which kinds.
    pub faults: Vec<Fault>,
    /// Where the history and the report are kept.
    pub out: PathBuf,
    /// That Patroni runs Postgres, and how.
    pub patroni: Option<Patroni>,
    /// What is made wrong on purpose.
    pub mutant: Option<&'static Mutant>,
    /// The driver of a client library that calls instead of our own client processes.
    pub client: Option<String>,
    /// Jumps of a wall clock beside every fault that leaves room for one.
    pub clocks: bool,
    /// That there are no rules of access.
    pub open: bool,
    /// What every second gateway runs: one with newer acts.
    pub newer: Option<PathBuf>,
}

impl Plan {
    /// Drivers have no keys, and under Patroni nobody knows when the ledger goes back, with its rules.
    fn has_rules(&self) -> bool {
        !self.open && self.client.is_none() && self.patroni.is_none()
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Log {
    faults: BTreeMap<Fault, Tally>,
    trouble: Vec<String>,
}

/// Carries it out.
///
/// # Errors
/// What keeps it from being carried out.
pub async fn run(plan: &Plan) -> Result<Report> {
    fs::create_dir_all(&plan.out).with_context(|| format!("{}", plan.out.display()))?;
    let began = Instant::now();
    println!("seed {}: starting the servers", plan.seed);
    let book = Book::default();
    let site =
        Site::start(&book, plan.patroni.as_ref(), plan.newer.as_deref(), plan.clocks).await?;
    let newer = match &plan.newer {
        Some(_) => Some(upgrade::newer_acts(&site).await?),
        None => None,
    };
    if let Some(mutant) = plan.mutant {
        site.mutate(mutant.edits).await?;
    }
    let (doors, administrator) = open_doors(plan, &site, &book).await?;
    let operator = Operator::start(&book, &doors);
    let crew = match &plan.client {
        None => Callers::Crew(Crew::start(&book, &doors, plan.seed)?),
        Some(driver) => {
            let out = plan.out.clone();
            Callers::Troupe(Troupe::start(&book, &doors.addresses, plan.seed, driver, out).await?)
        }
    };
    let steady = plan.goodput.then(|| Steady::start(&book, &doors));
    let turn = administrator.as_ref().map(Administrator::turn).unwrap_or_default();
    let told = book.clone();
    let breaker = Client::of(BREAKER, &doors, None, move |line| told.write(line));
    let mut scene = Scene { site, crew, doors: doors.clone(), book: book.clone(), breaker, turn };
    let mut log = Log::default();
    if let Err(error) = scene.break_things(plan, began, &mut log).await {
        log.trouble.push(format!("no more faults could be made: {error:#}"));
    }

    println!("{:>6.1} s  peace", began.elapsed().as_secs_f64());
    if let Some(administrator) = administrator {
        log.trouble.extend(administrator.end().await?);
    }
    all_are_served(&book, &mut log.trouble).await;
    let Scene { mut site, crew, .. } = scene;
    let (client, trouble) = crew.end().await;
    log.trouble.extend(trouble);
    if let Some(steady) = steady {
        steady.end().await?;
    }
    operator.end().await?;
    tokio::time::sleep(SETTLES_WITHIN).await;
    look_at_everything(&doors, site.objects().await?, &book, &mut log.trouble).await;
    let upgrade = match newer {
        Some(newer) => Some(upgrade::end(&mut site, &doors, newer, &book, &mut log.trouble).await?),
        None => None,
    };
    let is_upgraded = upgrade.is_some();
    let (adoptions, refences) =
        end_gateways(&mut site, is_upgraded, &plan.out, &mut log.trouble).await?;
    site.database.keep_logs(&plan.out)?;
    let rollbacks = book.rollbacks();
    // A failover that is not declared to lose nothing, or cannot be proven to, is taken for one that does.
    if refences > rollbacks && plan.patroni.is_none() {
        log.trouble
            .push(format!("{refences} re-fences, but the ledger went back {rollbacks} times"));
    }

    let wishes = book.wishes();
    let held = site.held(&wishes).await?;
    log.trouble.extend(held.misplaced(&wishes));
    let (s3, (calls, _)) = (book.s3(), book.so_far());
    let (mut history, outcomes) = book.close(held);
    log.trouble.extend(s3::judge(&s3, &history));
    if plan.patroni.is_some() {
        history.records.retain(|record| !is_void(record));
    }
    let codes = outcomes.values().flat_map(BTreeMap::keys);
    // Each caller shows what is good, so none is a stranger. To a gateway whose clock is ahead it may have expired.
    let strange = ["no-code", "unauthenticated", "credentials-conflict"];
    let strange = |code: &str| strange.contains(&code) || s3::STRANGE.contains(&code);
    let unreadable = codes.filter(|code| code.starts_with("unreadable") || strange(code));
    log.trouble.extend(unreadable.cloned());
    println!("{:>6.1} s  judging", began.elapsed().as_secs_f64());
    let into = File::create(plan.out.join("history.jsonl"))?;
    history.write(BufWriter::new(into))?;
    let unavailable = plan.faults.iter().filter_map(|fault| Some((*fault, fault.unavailable()?)));
    let report = Report {
        seed: plan.seed,
        seconds: began.elapsed().as_secs(),
        mutant: plan.mutant.map(|mutant| mutant.name),
        upgrade,
        client,
        adoptions,
        refences,
        faults_total: log.faults.values().map(|tally| tally.count).sum(),
        faults: log.faults,
        unavailable: unavailable.collect(),
        calls: calls + s3.iter().filter(|told| !told.is_write()).count() as u64,
        s3_calls: s3.len() as u64,
        outcomes,
        takeovers: takeovers(&history),
        trouble: log.trouble,
        checks: check(&history),
    };
    fs::write(plan.out.join("report.json"), serde_json::to_vec_pretty(&report)?)?;
    fs::write(plan.out.join("report.txt"), report.to_string())?;
    Ok(report)
}

/// Where callers go; and, if the run has rules of access, what they show, and who changes the rules.
async fn open_doors(
    plan: &Plan,
    site: &Site,
    book: &Book,
) -> Result<(Doors, Option<Administrator>)> {
    let addresses = site.fronts();
    if !plan.has_rules() {
        return Ok((Doors { addresses, s3: site.s3_fronts(), keys: Keys::default() }, None));
    }
    let ledger = site.ledger_url();
    let everybody = Everybody::let_in(&site.nodes[0].gateway, &ledger, book).await?;
    let doors = Doors { addresses, s3: site.s3_fronts(), keys: everybody.keys.clone() };
    let fronts = doors.addresses.clone();
    let administrator = Administrator::start(everybody, fronts, ledger, book, plan.seed);
    Ok((doors, Some(administrator)))
}

/// Has the gateways end, keeps what they have logged, and counts what they say of adoptions and re-fences.
async fn end_gateways(
    site: &mut Site,
    is_upgraded: bool,
    out: &Path,
    trouble: &mut Vec<String>,
) -> Result<(usize, usize)> {
    let (mut adoptions, mut refences) = (0, 0);
    for (number, node) in site.nodes.iter_mut().enumerate() {
        // After an upgrade only the newer ones are left.
        if !is_upgraded || node.is_newer {
            node.gateway.term();
            let status = node.gateway.wait_for_exit().await;
            if !status.success() {
                trouble.push(format!("gateway {number} ended with {status}"));
            }
        }
        let said = node.gateway.log();
        fs::write(out.join(format!("gateway-{number}.log")), &said)?;
        let panics = said.lines().filter(|line| line.contains("panicked at"));
        trouble.extend(panics.map(|line| format!("gateway {number}: {line}")));
        adoptions += said.matches(ADOPTED).count();
        refences += said.matches(REFENCED).count();
    }
    Ok((adoptions, refences))
}

/// The faults of a run, in the order in which they come: each kind once, then by chance.
struct Schedule {
    rng: StdRng,
    kinds: Vec<Fault>,
    first: VecDeque<Fault>,
    /// Clocks that jump beside other faults.
    clocks: Vec<Fault>,
}

impl Schedule {
    fn new(plan: &Plan) -> Self {
        let kinds = plan.faults.iter().copied();
        let kinds = kinds.filter(|fault| fault.happens(plan.patroni.is_some()));
        let kinds = kinds.filter(|fault| plan.clocks || !fault.is_of_clocks());
        let kinds: Vec<Fault> = kinds.filter(|fault| fault.unavailable().is_none()).collect();
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let mut first = kinds.clone();
        first.shuffle(&mut rng);
        let beside = [Fault::ClockShifted, Fault::PostgresClock];
        let beside = kinds.iter().filter(|fault| plan.clocks && beside.contains(fault));
        let clocks = beside.copied().collect();
        Self { rng, kinds, first: first.into(), clocks }
    }

    fn next(&mut self) -> Option<Fault> {
        self.first.pop_front().or_else(|| self.kinds.choose(&mut self.rng).copied())
    }

    /// One, or two about different things; in a run about clocks a clock with whatever leaves room for it.
    fn round(&mut self) -> Vec<Fault> {
        let mut round: Vec<Fault> = self.next().into_iter().collect();
        let has_room = round.iter().all(|fault| !matches!(fault.part(), Part::All | Part::Gateway));
        if !self.clocks.is_empty() && has_room {
            round.extend(self.clocks.choose(&mut self.rng));
            return round;
        }
        if round.iter().any(|fault| fault.part() == Part::All) || !self.rng.random_bool(0.5) {
            return round;
        }
        let is_owed = !self.first.is_empty();
        if let Some(other) = self.next() {
            let part = other.part();
            let goes_along = part != Part::All && round.iter().all(|fault| fault.part() != part);
            match goes_along {
                true => round.push(other),
                false if is_owed => self.first.push_front(other),
                false => {}
            }
        }
        round
    }

    /// Whether each kind has been there.
    fn had_all(&self) -> bool {
        self.first.is_empty()
    }
}

impl Scene {
    async fn break_things(&mut self, plan: &Plan, began: Instant, log: &mut Log) -> Result<()> {
        let mut schedule = Schedule::new(plan);
        let mut provers: Vec<Client> = (0..GATEWAYS).map(|gateway| self.prover(gateway)).collect();
        prove_all(&mut provers).await;
        let mut wanted = 0.0;
        if plan.goodput {
            wanted = GOODPUT_SHARE * self.goodput(COUNTED_FIRST).await;
            println!("goodput must come back to {wanted:.0} calls/s after each fault");
        }
        let until = Instant::now() + plan.lasts;
        while !schedule.kinds.is_empty() && (Instant::now() < until || !schedule.had_all()) {
            let quiet = Duration::from_millis(schedule.rng.random_range(200..1200));
            tokio::time::sleep(quiet).await;
            if schedule.rng.random_bool(0.1) {
                // It may just have been started again.
                self.site.etcd[0].client().await;
                self.site.snapshot = self.site.etcd[0].snapshot();
            }
            let at = began.elapsed().as_secs_f64();
            let round = schedule.round();
            let mut struck = Vec::new();
            self.crew.calm(false);
            for fault in &round {
                struck.push(self.strike(*fault, &mut schedule.rng).await?);
            }
            let lasts = struck.iter().map(|one| one.lasts).max().unwrap_or_default();
            tokio::time::sleep(lasts).await;
            for one in &struck {
                self.mend(one).await?;
            }
            self.book.healed(PROVEN.into_iter());
            let back = tokio::select! {
                back = prove_all(&mut provers) => back,
                () = supervise(&mut self.site.nodes, &mut log.trouble) => BACK_WITHIN,
            };
            self.crew.calm(true);
            let goodput = match plan.goodput && back < BACK_WITHIN {
                true => self.goodput_is_back(wanted).await,
                false => None,
            };
            let names: Vec<String> =
                struck.iter().map(|one| format!("{} {}", one.fault, one.where_to)).collect();
            let names = names.join(" and ");
            for fault in round {
                let tally = log.faults.entry(fault).or_default();
                tally.count += 1;
                let back_ms = u64::try_from(back.as_millis()).unwrap_or(u64::MAX);
                tally.back_within_ms = tally.back_within_ms.max(back_ms);
                let never = if plan.goodput { GOODPUT_WITHIN + COUNTED } else { Duration::ZERO };
                let goodput_ms = goodput.map_or(never, |(after, _)| back + after);
                let goodput_ms = u64::try_from(goodput_ms.as_millis()).unwrap_or(u64::MAX);
                tally.goodput_within_ms = tally.goodput_within_ms.max(goodput_ms);
            }
            if back >= BACK_WITHIN {
                log.trouble.push(format!("at {at:.1} s, {names}: after {back:?}"));
            } else if plan.goodput
                && goodput.is_none_or(|(after, _)| back + after > GOODPUT_WITHIN + COUNTED)
            {
                log.trouble.push(format!(
                    "at {at:.1} s, {names}: goodput was not back to {wanted:.0} calls/s after {} s",
                    GOODPUT_WITHIN.as_secs()
                ));
            }
            let rate = goodput.map_or(0.0, |(_, rate)| rate);
            let (calls, grants) = self.book.so_far();
            let count: u64 = log.faults.values().map(|tally| tally.count).sum();
            let (lasts, back) = (lasts.as_secs_f64(), back.as_secs_f64());
            println!(
                "{at:>6.1} s  {names}: {lasts:.1} s, back after {back:.1} s, then {rate:.0} calls/s  \
                 [{count} faults, {calls} calls, {grants} grants]"
            );
        }
        Ok(())
    }

    /// How many calls of steady callers in a second are answered with what they ask for.
    async fn goodput(&self, counted: Duration) -> f64 {
        let (began, before) = (Instant::now(), self.book.good_so_far());
        tokio::time::sleep(counted).await;
        (self.book.good_so_far() - before) as f64 / began.elapsed().as_secs_f64()
    }

    /// After how long it is as high as is wanted, and how high; `None` if that takes longer than it may.
    async fn goodput_is_back(&self, wanted: f64) -> Option<(Duration, f64)> {
        let began = Instant::now();
        while began.elapsed() <= GOODPUT_WITHIN {
            let rate = self.goodput(COUNTED).await;
            if rate >= wanted {
                return Some((began.elapsed(), rate));
            }
        }
        None
    }

    fn prover(&self, gateway: usize) -> Client {
        let number = PROVERS + u32::try_from(gateway).unwrap_or(0);
        let book = self.book.clone();
        Client::of(number, &self.doors, Some(gateway), move |line| book.write(line))
    }
}

/// Waits until somebody was granted a lock on each resource and wrote under it, since all is well.
pub async fn all_are_served(book: &Book, trouble: &mut Vec<String>) {
    book.healed(stories::resources());
    let began = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let left = book.not_served(stories::resources());
        if left.is_empty() {
            return;
        }
        if began.elapsed() > BACK_WITHIN {
            trouble.push(format!("in the end: {left:?}"));
            return;
        }
    }
}

/// Starts gateways again that have ended, as whatever runs them would: one that finds no ledger or mint when it
/// starts does not wait for it, and says so. Any other end is trouble. Goes on for ever.
async fn supervise(nodes: &mut [Node], trouble: &mut Vec<String>) {
    loop {
        for (number, node) in nodes.iter_mut().enumerate() {
            if !node.gateway.is_running() {
                let said = node.gateway.log();
                let last = said.lines().last().unwrap_or_default();
                if !last.starts_with("error: cannot use") {
                    trouble.push(format!("gateway {number} ended by itself: {last}"));
                }
                node.gateway.spawn();
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The resources on which it is proven that service is back: one for each gateway.
const PROVEN: [&str; GATEWAYS] = ["proof-0", "proof-1", "proof-2"];

/// An operator, in a task of its own.
pub struct Operator {
    task: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Operator {
    /// Starts it, as a caller of these gateways.
    pub fn start(book: &Book, doors: &Doors) -> Self {
        let (book, stop) = (book.clone(), Arc::new(AtomicBool::new(false)));
        let client = Client::of(OPERATOR, doors, None, move |line| book.write(line));
        let told = Arc::clone(&stop);
        let task = tokio::spawn(async move { client.operate(&told).await });
        Self { task, stop }
    }

    /// Lets it finish what it is at.
    ///
    /// # Errors
    /// It has panicked.
    pub async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the operator")
    }
}

/// How long it takes until each gateway grants and writes; no longer than it may.
pub async fn prove_all(provers: &mut [Client]) -> Duration {
    let began = Instant::now();
    let prove = async |prover: &mut Client, on: &str| {
        while began.elapsed() < BACK_WITHIN && !prover.prove(on).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let each = provers.iter_mut().zip(PROVEN).map(|(prover, on)| prove(prover, on));
    join_all(each).await;
    began.elapsed()
}

/// Asks what became of all that is unknown, and of all requests to the upstream, and reads all objects that are there.
pub async fn look_at_everything(
    doors: &Doors,
    objects: Vec<Object>,
    book: &Book,
    trouble: &mut Vec<String>,
) {
    let writer = book.clone();
    let mut last = Client::of(LAST, doors, None, move |line| writer.write(line));
    for operation in book.unknown().into_iter().chain(book.forwarded()) {
        last.look_up(operation).await;
    }
    for Object { resource, key, .. } in objects {
        let mut found = None;
        for _ in 0..3 {
            found = last.read(&resource, &key).await;
            if matches!(found, Some(Answer::Value { .. } | Answer::Refused { .. })) {
                break;
            }
        }
        if !matches!(found, Some(Answer::Value { .. })) {
            trouble.push(format!("{resource}/{key} is there, but a reader was told {found:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_kind_of_fault_comes_once_before_any_comes_again() {
        for seed in 0..50 {
            let plan = Plan {
                lasts: Duration::ZERO,
                seed,
                goodput: false,
                faults: Fault::value_variants().to_vec(),
                out: PathBuf::new(),
                patroni: None,
                mutant: None,
                client: None,
                clocks: false,
                open: false,
                newer: None,
            };
            let mut schedule = Schedule::new(&plan);
            let mut seen = Vec::new();
            while !schedule.had_all() {
                let round = schedule.round();
                let parts: Vec<Part> = round.iter().map(|fault| fault.part()).collect();
                assert!(
                    round.len() == 1 || (parts.len() == 2 && parts[0] != parts[1]),
                    "{round:?}"
                );
                assert!(round.len() == 1 || !parts.contains(&Part::All), "{round:?}");
                seen.extend(round);
            }
            let mut wanted = schedule.kinds.clone();
            wanted.sort_unstable();
            seen.sort_unstable();
            // The last round may have drawn its second one by chance.
            let mut first = seen.clone();
            first.dedup();
            assert_eq!(first, wanted);
            assert!(seen.len() <= wanted.len() + 1);
        }
    }
}
