//! Rules of access in a run: who the callers are, and an administrator who puts other rules in force again and again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fence_core::wire::AccessRules;
use fence_history::Rules;
use fence_tests::access::{Key, principal, role};
use fence_tests::gateway::Gateway;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::StatusCode;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::book::Book;
use crate::crew::CALLERS;
use crate::line::moment;

/// The principal of all who are no callers of client processes. No rules deny it anything.
pub const OTHERS: u32 = 1_000;
/// Who may put rules in force, and nothing else.
const ADMINISTRATOR: u32 = 1_001;

/// What others than callers of client processes may do, and callers, and callers whom rules deny everything.
const ALL: &str = "\"lock\", \"fence\", \"fence-force\", \"write\", \"clear\", \"read\", \"list\", \"break\", \"delegate\"";
const MORE: &str = "\"observe\", \"resolve\"";
const NOTHING: &str = "\"list\"";

/// How long one call may take, and how long one change of rules, with everything that is broken meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);
const CHANGES_WITHIN: Duration = Duration::from_secs(120);

/// The keys that callers show, by principal; none where no rules are in force. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Keys(Arc<BTreeMap<u32, String>>);

impl Keys {
    /// What somebody shows.
    pub fn of(&self, principal: u32) -> Option<&str> {
        self.0.get(&principal).map(String::as_str)
    }

    /// Whether anybody has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads what [`Keys::store`] has written.
    ///
    /// # Errors
    /// A file that holds something else.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        Ok(Self(Arc::new(serde_json::from_slice(&text)?)))
    }

    /// Keeps them in a file, for client processes.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn store(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_vec(&*self.0)?).context("the keys of callers")
    }
}

/// Where the gateways are, and what callers show them.
#[derive(Debug, Clone, Default)]
pub struct Doors {
    /// The gateways.
    pub addresses: Vec<SocketAddr>,
    /// Where they speak S3, in the same order; none, if they do not.
    pub s3: Vec<SocketAddr>,
    /// What callers show.
    pub keys: Keys,
}

/// The name of a principal.
pub fn name(principal: u32) -> String {
    format!("c{principal}")
}

/// Everybody's key, and its line in the rules.
#[derive(Debug)]
pub struct Everybody {
    /// What they show.
    pub keys: Keys,
    lines: BTreeMap<u32, Key>,
}

impl Everybody {
    /// Makes the keys, and puts rules in force that deny no caller anything.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub async fn let_in(gateway: &Gateway, ledger: &str, book: &Book) -> Result<Self> {
        let mut lines = BTreeMap::new();
        for principal in (0..CALLERS).chain([OTHERS, ADMINISTRATOR]) {
            lines.insert(principal, Key::new().await);
        }
        let texts = lines.iter().map(|(principal, key)| (*principal, key.text.clone()));
        let keys = Keys(Arc::new(texts.collect()));
        let everybody = Self { keys, lines };
        let home = tempfile::TempDir::new()?;
        let file = home.path().join("access.toml");
        std::fs::write(&file, everybody.rules(&[]))?;
        let (asked_at, before) = (moment(), versions(ledger).await?);
        let file = file.to_string_lossy();
        let args = ["access", "apply", &*file, "--reason", "a run begins"];
        let (code, out, log) = gateway.run(&args).await;
        anyhow::ensure!(code == Some(0), "the first rules are not in force: {out}{log}");
        let at = moment();
        let after = versions(ledger).await?;
        book.rules(Rules { asked_at, at, denied: Vec::new(), before, after });
        Ok(everybody)
    }

    fn rules(&self, denied: &[u32]) -> String {
        let may = |actions: &str| format!("allow = [{actions}]\nresources = [\"*\"]");
        let mut text = role("caller", &may(ALL))
            + &role("other", &may(&format!("{ALL}, {MORE}")))
            + &role("idle", &may(NOTHING))
            + &role("administrator", &may("\"admin\""));
        for (who, key) in &self.lines {
            let role = match *who {
                OTHERS => "other",
                ADMINISTRATOR => "administrator",
                who if denied.contains(&who) => "idle",
                _ => "caller",
            };
            let _ = write!(text, "{}", principal(&name(*who), role, &[key]));
        }
        text
    }
}

/// An administrator, in a task of its own.
pub struct Administrator {
    task: JoinHandle<Vec<String>>,
    stop: Arc<AtomicBool>,
    turn: Arc<Mutex<()>>,
}

impl Administrator {
    /// Starts it: it calls these gateways, and looks at the ledger at this URL.
    pub fn start(
        everybody: Everybody,
        fronts: Vec<SocketAddr>,
        ledger: String,
        book: &Book,
        seed: u64,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let turn = Arc::new(Mutex::new(()));
        let changes = Changes {
            everybody,
            fronts,
            ledger,
            book: book.clone(),
            rng: StdRng::seed_from_u64(seed),
            http: reqwest::Client::builder()
                .no_proxy()
                .timeout(PATIENCE)
                .build()
                .expect("a client can be built"),
            generation: 1,
        };
        let task = tokio::spawn(changes.go_on(Arc::clone(&stop), Arc::clone(&turn)));
        Self { task, stop, turn }
    }

    /// Who has this changes no rules. A ledger that goes back takes rules back with it, so none are changed meanwhile.
    pub fn turn(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// Lets it finish: in the end nobody is denied anything. Returns what could not be done.
    ///
    /// # Errors
    /// It has panicked.
    pub async fn end(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the administrator")
    }
}

struct Changes {
    everybody: Everybody,
    fronts: Vec<SocketAddr>,
    ledger: String,
    book: Book,
    rng: StdRng,
    http: reqwest::Client,
    /// The newest rules that it knows of.
    generation: i64,
}

impl Changes {
    async fn go_on(mut self, stop: Arc<AtomicBool>, turn: Arc<Mutex<()>>) -> Vec<String> {
        let mut trouble = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(self.rng.random_range(200..2500))).await;
            let _turn = turn.lock().await;
            let denied = (0..CALLERS).filter(|_| self.rng.random_bool(0.25)).collect();
            self.change(denied, &mut trouble).await;
        }
        self.change(Vec::new(), &mut trouble).await;
        trouble
    }

    async fn change(&mut self, denied: Vec<u32>, trouble: &mut Vec<String>) {
        let asked = format!("rules that deny {denied:?}");
        if tokio::time::timeout(CHANGES_WITHIN, self.put_in_force(denied)).await.is_err() {
            trouble
                .push(format!("{asked} were not in force within {} s", CHANGES_WITHIN.as_secs()));
        }
    }

    /// Has rules put in force, until it is told that they are.
    ///
    /// 1. It writes down which versions there are.
    /// 2. It asks for them behind those that it knows of: what is sent twice has its effect at most once.
    /// 3. Told that others are in force, it looks whether those are its own, since an answer may have been lost.
    /// 4. It writes down which versions there are now.
    async fn put_in_force(&mut self, denied: Vec<u32>) {
        let text = self.everybody.rules(&denied);
        let breaks = self.rng.random_bool(0.3);
        let (asked_at, before) = (moment(), self.versions().await);
        loop {
            let body = json!({
                "rules": text, "reason": "by chance", "follows": self.generation, "break": breaks,
            });
            let call = self.call(reqwest::Method::PUT).json(&body).send().await;
            match call.map(|answer| answer.status()) {
                Ok(StatusCode::OK) => {
                    self.generation += 1;
                    break;
                }
                Ok(StatusCode::PRECONDITION_FAILED) if self.are_in_force(&text).await => break,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        let at = moment();
        let after = self.versions().await;
        self.book.rules(Rules { asked_at, at, denied, before, after });
    }

    /// Whether these are; otherwise it knows those that are.
    async fn are_in_force(&mut self, text: &str) -> bool {
        let Ok(answer) = self.call(reqwest::Method::GET).send().await else { return false };
        let Ok(known) = answer.json::<AccessRules>().await else { return false };
        self.generation = known.generation;
        known.rules.as_deref() == Some(text)
    }

    fn call(&mut self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let front = self.fronts[self.rng.random_range(0..self.fronts.len())];
        let key = self.everybody.keys.of(ADMINISTRATOR).unwrap_or_default();
        self.http.request(method, format!("http://{front}/admin/access")).bearer_auth(key)
    }

    async fn versions(&self) -> Vec<(String, i64)> {
        loop {
            match tokio::time::timeout(PATIENCE, versions(&self.ledger)).await {
                Ok(Ok(versions)) => return versions,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// The version of each resource.
async fn versions(ledger: &str) -> Result<Vec<(String, i64)>> {
    let mut connection = PgConnection::connect(ledger).await.context("the ledger")?;
    let versions = "SELECT f.resource, coalesce((SELECT max(o.version) FROM fencegate.operations o
                                                  WHERE o.resource = f.resource), 0)
                    FROM fencegate.fences f";
    let versions = sqlx::query_as(versions).fetch_all(&mut connection).await?;
    connection.close().await?;
    Ok(versions)
}
