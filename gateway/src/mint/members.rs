//! The members of an etcd cluster: one lazily opened connection each, and failover between them.
//!
//! The client's own balancer is not used for this: it sends a share of all calls to a dead member,
//! and each of them fails. Here a call moves on to the next member within its time.

use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, KvClient};
use fence_core::ports::{MintError, Unwritable};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

/// All members, and which of them answered last.
pub(super) struct Members {
    members: Vec<Member>,
    options: ConnectOptions,
    limit: Duration,
    preferred: AtomicUsize,
    /// Until when all members are taken to be silent, and what came of asking them.
    silent: Mutex<Option<(Instant, String)>>,
}

/// For how long members that were all silent are not asked again.
const REST: Duration = Duration::from_millis(500);

/// What a member says of its database.
pub(super) struct Database {
    /// Its size on the disk.
    pub(super) bytes: i64,
    /// How much of that is in use.
    pub(super) bytes_in_use: i64,
    /// The alarms that are raised, in etcd's words; empty for none.
    pub(super) alarms: String,
}

/// One member.
struct Member {
    endpoint: String,
    /// Empty until first used, and after each failure, so that the next call connects and signs in
    /// anew. That costs one round trip and heals half-open connections and outdated credentials.
    client: Mutex<Option<KvClient>>,
}

impl Members {
    /// Opens no connection yet. `limit` bounds one call over all members.
    pub(super) fn new(endpoints: Vec<String>, options: ConnectOptions, limit: Duration) -> Self {
        let members = endpoints
            .into_iter()
            .map(|endpoint| Member { endpoint, client: Mutex::new(None) })
            .collect();
        let (preferred, silent) = (AtomicUsize::new(0), Mutex::new(None));
        Self { members, options, limit, preferred, silent }
    }

    /// Runs `call` on one member after the other until one answers, at most for the limit.
    ///
    /// `call` may run more than once, and an attempt that failed may still take effect, so it must
    /// be one that may be repeated. Every call of a mint is.
    pub(super) async fn call<T, F, R>(&self, call: F) -> Result<T, MintError>
    where
        F: Fn(KvClient) -> R,
        R: Future<Output = Result<T, Error>>,
    {
        // 0. All were silent a moment ago. Callers queue for their turn: those behind the one that
        //    found out have no time left to find out again.
        let silent = self.silent.lock().clone();
        if let Some((until, why)) = silent
            && Instant::now() < until
        {
            return Err(MintError::Unavailable(why));
        }
        let deadline = Instant::now() + self.limit;
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.members.len();
        let (mut failures, mut unwritable) = (Vec::new(), None);
        for step in 0..count {
            // 1. Each member gets an equal share of the time that is left, so that a silent one
            //    leaves enough for those after it.
            let index = (first + step) % count;
            let member = &self.members[index];
            let share = u32::try_from(count - step).unwrap_or(u32::MAX);
            let left = deadline.saturating_duration_since(Instant::now()) / share;
            match timeout(left, member.attempt(&self.options, &call)).await {
                // 2. It answered: later calls begin with it.
                Ok(Ok(answer)) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                // 3. It refused or could not be reached: on to the next.
                Ok(Err(error)) => {
                    member.forget();
                    unwritable = refuses_writes(&error).or(unwritable);
                    failures.push(format!("{}: {}", member.endpoint, describe(&error)));
                }
                // 4. It was silent: the same, and its connection may be half open.
                Err(_) => {
                    member.forget();
                    let waited = left.as_secs_f64();
                    failures.push(format!("{}: no answer in {waited:.1} s", member.endpoint));
                }
            }
        }
        // 5. Nobody answered: the next call begins one further on.
        self.preferred.store((first + 1) % count, Ordering::Relaxed);
        let why = failures.join("; ");
        if let Some(unwritable) = unwritable {
            tracing::debug!(why, "etcd takes nothing new");
            return Err(MintError::Unwritable(unwritable));
        }
        if Instant::now() >= deadline {
            *self.silent.lock() = Some((Instant::now() + REST, why.clone()));
        }
        Err(MintError::Unavailable(why))
    }
}

impl Members {
    /// Asks each member for its database, over a connection of its own.
    pub(super) async fn databases(&self) -> Vec<(String, Result<Database, String>)> {
        let ask = async |member: &Member| {
            let asked = async {
                let options = Some(self.options.clone());
                let client = Client::connect([&member.endpoint], options).await?;
                client.maintenance_client().status().await
            };
            let database = match timeout(self.limit, asked).await {
                Ok(Ok(status)) => Ok(Database {
                    bytes: status.db_size(),
                    bytes_in_use: status.raft_used_db_size(),
                    alarms: status.errors().join("; "),
                }),
                Ok(Err(error)) => Err(describe(&error)),
                Err(_) => Err("no answer in time".into()),
            };
            (member.endpoint.clone(), database)
        };
        futures::future::join_all(self.members.iter().map(ask)).await
    }
}

impl Member {
    /// Runs `call`; once more on a fresh connection if it failed on one that was used before,
    /// since that may only say that the member has been restarted.
    async fn attempt<T, F, R>(&self, options: &ConnectOptions, call: &F) -> Result<T, Error>
    where
        F: Fn(KvClient) -> R,
        R: Future<Output = Result<T, Error>>,
    {
        let used = self.slot().clone();
        if let Some(client) = used
            && let Ok(answer) = call(client).await
        {
            return Ok(answer);
        }
        let client = Client::connect([&self.endpoint], Some(options.clone())).await?.kv_client();
        let answer = call(client.clone()).await?;
        *self.slot() = Some(client);
        Ok(answer)
    }

    fn forget(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<KvClient>> {
        // The guarded value is replaced whole, so a panic elsewhere cannot have left half of it.
        self.client.lock()
    }
}

/// Cause for which a member takes nothing new, if that is what it says. The codes are those of gRPC; etcd has the first for
/// more than one thing.
fn refuses_writes(error: &Error) -> Option<Unwritable> {
    const RESOURCE_EXHAUSTED: i32 = 8;
    const PERMISSION_DENIED: i32 = 7;
    let Error::GRpcStatus(status) = error else { return None };
    match i32::from(status.code()) {
        RESOURCE_EXHAUSTED if status.message().contains("space exceeded") => Some(Unwritable::Full),
        PERMISSION_DENIED => Some(Unwritable::Forbidden),
        _ => None,
    }
}

/// An error with its causes in one line.
fn describe(error: &Error) -> String {
    let (mut text, mut cause) = match error {
        Error::GRpcStatus(status) => {
            (format!("{} ({:?})", status.message(), status.code()), status.source())
        }
        Error::TransportError(transport) => (transport.to_string(), transport.source()),
        other => (other.to_string(), other.source()),
    };
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
