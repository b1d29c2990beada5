//! A client process: a few callers that live from story to story, print what they ask and are told, and end
//! when their standard input does.

mod calls;
mod operator;
mod s3;
mod s3_stories;
pub mod stories;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fence_history::{Answer, Answered, Asked, Call, Writers};
use fence_tests::s3::Key;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::RequestBuilder;
use uuid::Uuid;

use crate::line::{Line, moment};
use crate::rules::{Doors, Keys, OTHERS};

/// How many numbers a process has for its callers, those of late deliveries among them.
pub const CALLERS_MAX: u32 = 100_000;
/// How far the numbers of a caller and of those who deliver late for it are apart; how many of these one has at a time.
const TWINS_APART: u32 = 1_000;
const TWINS_MAX: u32 = CALLERS_MAX / TWINS_APART - 1;
/// How many numbers it has for its calls.
pub const CALLS_MAX: u64 = 1_000_000_000;
/// The process that made a call.
pub fn process_of(call: u64) -> u64 {
    call / CALLS_MAX
}

/// How many of the last tokens are remembered for late writes.
const TOKENS_KEPT: usize = 40;

/// What a process is told at its start.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Which process this is; no other has this number.
    #[arg(long)]
    pub number: u32,
    /// How many callers it has.
    #[arg(long)]
    pub callers: u32,
    /// Where its choices begin.
    #[arg(long)]
    pub seed: u64,
    /// Where the gateways are.
    #[arg(long, value_delimiter = ',')]
    pub gateways: Vec<SocketAddr>,
    /// Where they speak S3, in the same order.
    #[arg(long, value_delimiter = ',')]
    pub s3: Vec<SocketAddr>,
    /// What its callers show, where rules are in force.
    #[arg(long)]
    pub keys: Option<PathBuf>,
}

/// A lock that a caller was given.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its id.
    pub lock: Uuid,
    /// Its token.
    pub token: i64,
    /// Its resources, and their versions when it was granted.
    pub versions: Vec<(String, i64)>,
    /// The last sequence number used under it.
    pub sequence: i64,
    /// Its key of S3, if any of its resources lies in a bucket.
    s3: Option<Key>,
}

/// Where it is written down what is asked and told.
type Tell = Box<dyn Fn(Line) + Send + Sync>;

/// What the callers of a process share.
struct Shared {
    tell: Tell,
    process: u32,
    callers: AtomicU32,
    calls: AtomicU64,
    gateways: Vec<String>,
    s3: Vec<SocketAddr>,
    keys: Keys,
    tokens: Mutex<VecDeque<(String, i64)>>,
    s3_locks: s3::Known<s3::S3Lock>,
    uploads: s3::Known<s3::Upload>,
    stop: AtomicBool,
}

/// A caller: one thing at a time.
pub struct Client {
    number: u32,
    /// Whose calls its calls are.
    principal: u32,
    twins: u32,
    /// Whether rules denied it what it asked for last.
    is_denied: bool,
    shared: Arc<Shared>,
    http: reqwest::Client,
    rng: StdRng,
    count: u64,
    /// How long it waits for an answer; by chance, if not said.
    patience: Option<Duration>,
    /// Which gateway it asks; any, if not said.
    only: Option<usize>,
}

impl Client {
    /// A caller in a process that has other things to do, and which writes down what it is told.
    pub fn of(
        process: u32,
        doors: &Doors,
        only: Option<usize>,
        tell: impl Fn(Line) + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared::new(process, doors, Box::new(tell));
        let mut client = shared.caller(u64::from(process));
        client.principal = OTHERS;
        client.patience = Some(Duration::from_secs(3));
        client.only = only;
        client
    }

    /// So many callers of the same gateways, each of whom waits so long for an answer.
    pub fn and_others(mut self, count: usize, patience: Duration) -> Vec<Self> {
        let (only, http) = (self.only, self.http.clone());
        let other = |_| {
            let caller = Arc::clone(&self.shared).caller_with(self.rng.random(), http.clone());
            Self { patience: Some(patience), only, principal: self.principal, ..caller }
        };
        (0..count).map(other).collect()
    }

    /// What is drawn decides what happens; the same seed draws the same.
    fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..to)
    }

    fn chance(&mut self, likely: f64) -> bool {
        self.rng.random_bool(likely)
    }

    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let pause = self.draw(from_ms, to_ms);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// A value that nobody else stores.
    fn value(&mut self) -> String {
        self.count += 1;
        format!("c{}v{}", self.number, self.count)
    }

    /// Another caller, who delivers again what this one has sent.
    fn twin(&mut self) -> Self {
        let seed = self.rng.random();
        self.twins += 1;
        let mut twin = self.shared.clone().caller_of(self.number, seed, new_http());
        twin.number += TWINS_APART * (1 + self.twins % TWINS_MAX);
        twin.principal = self.principal;
        twin
    }

    /// The same request, with what this caller shows.
    fn shows(&self, request: RequestBuilder) -> RequestBuilder {
        match self.shared.keys.of(self.principal) {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Somebody else who may write under a lock that it asks for, and that it says so.
    fn names_a_writer(&mut self, lock: Uuid) -> Option<String> {
        if self.shared.keys.is_empty() || !self.chance(0.2) {
            return None;
        }
        let writer = self.rng.random_range(0..crate::crew::CALLERS);
        (self.shared.tell)(Line::Writers(Writers { lock, principals: vec![writer] }));
        Some(crate::rules::name(writer))
    }

    /// Asks, and prints what comes back. `None`: it will never know.
    async fn ask(
        &mut self,
        asked: Asked,
        request: impl FnOnce(&reqwest::Client, &str) -> RequestBuilder,
        read: impl FnOnce(calls::Got) -> Answer,
    ) -> Option<Answer> {
        let gateway = self.draw_gateway();
        let patience = self.any_patience();
        let request = request(&self.http, &self.shared.gateways[gateway]).timeout(patience);
        let request = self.shows(request);
        let number = self.begin(asked, gateway);
        let answer = match calls::Got::from(request).await {
            Ok(got) => read(got),
            Err(error) if error.is_connect() => Answer::Failed { code: "unreachable".into() },
            Err(_) => return None,
        };
        self.end(number, &answer);
        self.shared.learn(&answer);
        self.is_denied = matches!(&answer, Answer::Refused { code } if code == "permission-denied");
        Some(answer)
    }

    fn draw_gateway(&mut self) -> usize {
        let any = self.rng.random_range(0..self.shared.gateways.len());
        self.only.unwrap_or(any)
    }

    fn any_patience(&mut self) -> Duration {
        self.patience.unwrap_or_else(|| match self.rng.random_bool(0.08) {
            true => Duration::from_millis(self.rng.random_range(5..600)),
            false => Duration::from_millis(self.rng.random_range(5000..9000)),
        })
    }

    /// Prints that it is about to ask; returns the number of the call.
    fn begin(&self, asked: Asked, gateway: usize) -> u64 {
        let number = u64::from(self.shared.process) * CALLS_MAX
            + self.shared.calls.fetch_add(1, Ordering::SeqCst);
        (self.shared.tell)(Line::Begun(Call {
            number,
            client: self.number,
            principal: self.principal,
            gateway: u32::try_from(gateway).unwrap_or(0),
            begun_at: moment(),
            asked,
            answered: None,
        }));
        number
    }

    /// Prints how a call was answered.
    fn end(&self, number: u64, answer: &Answer) {
        let answered = Answered { at: moment(), answer: answer.clone() };
        (self.shared.tell)(Line::Answered { number, answered });
    }
}

impl Shared {
    fn new(process: u32, doors: &Doors, tell: Tell) -> Arc<Self> {
        Arc::new(Self {
            tell,
            process,
            callers: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            gateways: doors.addresses.iter().map(|address| format!("http://{address}")).collect(),
            s3: doors.s3.clone(),
            keys: doors.keys.clone(),
            tokens: Mutex::default(),
            s3_locks: s3::Known::default(),
            uploads: s3::Known::default(),
            stop: AtomicBool::new(false),
        })
    }

    fn caller(self: Arc<Self>, seed: u64) -> Client {
        self.caller_with(seed, new_http())
    }

    /// One that shares its connections with others.
    fn caller_with(self: Arc<Self>, seed: u64, http: reqwest::Client) -> Client {
        let caller = self.callers.fetch_add(1, Ordering::SeqCst) % CALLERS_MAX;
        let number = self.process * CALLERS_MAX + caller;
        Client { principal: caller, ..self.caller_of(number, seed, http) }
    }

    fn caller_of(self: Arc<Self>, number: u32, seed: u64, http: reqwest::Client) -> Client {
        Client {
            number,
            principal: OTHERS,
            twins: 0,
            is_denied: false,
            shared: self,
            http,
            rng: StdRng::seed_from_u64(seed ^ u64::from(number)),
            count: 0,
            patience: None,
            only: None,
        }
    }

    fn learn(&self, answer: &Answer) {
        let Answer::Granted { token, versions, .. } = answer else { return };
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.extend(versions.iter().map(|(resource, _)| (resource.clone(), *token)));
        while tokens.len() > TOKENS_KEPT {
            tokens.pop_front();
        }
    }

    /// A token that somebody here was given once, with its resource.
    fn any_token(&self, at: usize) -> Option<(String, i64)> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(at % tokens.len().max(1)).cloned()
    }
}

fn new_http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client can be built")
}

/// Prints a line, whole. Whoever reads no more has ended, and so does this process.
fn print(line: Line) {
    let mut text = serde_json::to_vec(&line).expect("a line can be written");
    text.push(b'\n');
    if io::stdout().lock().write_all(&text).is_err() {
        std::process::exit(1);
    }
}

/// Lives until standard input ends; then each caller finishes its story.
pub async fn live(settings: Settings) {
    let keys = settings.keys.as_deref().map(Keys::load).transpose();
    let keys = keys.expect("the keys of callers can be read").unwrap_or_default();
    let doors = Doors { addresses: settings.gateways, s3: settings.s3, keys };
    let shared = Shared::new(settings.number, &doors, Box::new(print));
    let ending = Arc::clone(&shared);
    std::thread::spawn(move || {
        // An error ends it as well.
        let _ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
        ending.stop.store(true, Ordering::SeqCst);
    });
    let callers = (0..settings.callers).map(|_| shared.clone().caller(settings.seed));
    let lives: Vec<_> = callers.map(|caller| tokio::spawn(caller.live())).collect();
    for life in join_all(lives).await {
        life.expect("a caller lives to the end");
    }
}
