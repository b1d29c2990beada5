//! The etcd mint: the number of a grant is the `mod_revision` of the key that is put for it.
//!
//! Keys: `<prefix>/incarnation` carries the nonce, `<prefix>/locks/<resource>` says to people who
//! holds what. No code decides on the latter.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use etcd_client::{
    Certificate, Compare, CompareOp, ConnectOptions, Error, GetResponse, Identity, TlsOptions, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use fence_core::ResourceName;
use fence_core::ports::{Clock, Ended, MINT_RESOURCES_MAX, Mint, MintError, MintItem};
use uuid::Uuid;

use super::members::Members;

/// Operations in one transaction. etcd allows 128 unless told otherwise, and counts the operations
/// of a nested transaction, one here, on top of those around it.
const OPERATIONS_MAX: usize = 127;

/// How often a connection in use is probed; etcd cuts off clients that probe more often than
/// every 5 s.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a probe may go unanswered.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How to reach etcd.
#[derive(Clone)]
pub struct EtcdSettings {
    /// One `host:port` or URL per member.
    pub endpoints: Vec<String>,
    /// What all keys begin with; no slash at the end.
    pub prefix: String,
    /// The user, if etcd asks for one.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Whose certificates to accept (PEM). With it, members without a scheme are reached by TLS.
    pub ca_file: Option<PathBuf>,
    /// The gateway's own certificate (PEM).
    pub cert_file: Option<PathBuf>,
    /// Its key (PEM).
    pub key_file: Option<PathBuf>,
    /// The longest that one call may take, over all members.
    pub timeout: Duration,
}

impl EtcdSettings {
    /// The prefix of all keys, unless configured.
    pub const PREFIX: &str = "/fencegate";
    /// The longest that a call takes, unless configured.
    pub const TIMEOUT: Duration = Duration::from_secs(2);
}

/// A mint on an etcd cluster.
pub struct EtcdMint {
    members: Members,
    clock: Arc<dyn Clock>,
    incarnation: String,
    locks: String,
}

impl EtcdMint {
    /// Reads the certificates. Opens no connection yet, so it succeeds while etcd is down.
    pub fn connect(settings: &EtcdSettings, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        anyhow::ensure!(!settings.endpoints.is_empty(), "no etcd endpoint is given");
        // A member that has lost its quorum refuses at once, so that the next one is tried.
        // Probes only go out while a call waits: etcd cuts off clients that probe idle connections.
        let mut options = ConnectOptions::new()
            .with_require_leader(true)
            .with_auto_token_refresh(true)
            .with_connect_timeout(settings.timeout)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(false);
        if let (Some(user), Some(password)) = (&settings.user, &settings.password) {
            options = options.with_user(user, password);
        }
        if let Some(ca_file) = &settings.ca_file {
            let mut tls =
                TlsOptions::new().ca_certificate(Certificate::from_pem(read_pem(ca_file)?));
            if let (Some(cert), Some(key)) = (&settings.cert_file, &settings.key_file) {
                tls = tls.identity(Identity::from_pem(read_pem(cert)?, read_pem(key)?));
            }
            options = options.with_tls(tls);
        }
        Ok(Self {
            members: Members::new(settings.endpoints.clone(), options, settings.timeout),
            clock,
            incarnation: format!("{}/incarnation", settings.prefix),
            locks: format!("{}/locks/", settings.prefix),
        })
    }

    fn key(&self, resource: &ResourceName) -> String {
        format!("{}{resource}", self.locks)
    }

    /// What people see under the key of a lock. Not its id, which is the holder's secret.
    fn note(&self, item: &MintItem) -> String {
        let minted_at = self.clock.now();
        serde_json::json!({ "owner": item.owner, "minted_at": minted_at }).to_string()
    }

    /// One operation per item, then as many removals as fit. The rest of `ended` stays behind as
    /// keys that nobody decides on, until their resources are locked again.
    fn operations(&self, items: &[MintItem], ended: &[Ended]) -> Vec<TxnOp> {
        let mut operations: Vec<TxnOp> = items
            .iter()
            .map(|item| TxnOp::put(self.key(&item.resource), self.note(item), None))
            .collect();
        // etcd refuses a transaction that touches a key twice.
        let put: HashSet<&ResourceName> = items.iter().map(|item| &item.resource).collect();
        let mut last = BTreeMap::new();
        for lock in ended.iter().filter(|lock| !put.contains(&lock.resource)) {
            let number = last.entry(&lock.resource).or_insert(lock.number);
            *number = lock.number.max(*number);
        }
        let room = OPERATIONS_MAX.saturating_sub(operations.len());
        operations.extend(last.into_iter().take(room).map(|(resource, number)| {
            let key = self.key(resource);
            // The key of a later lock on the same resource has a higher revision, and stays.
            let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, number);
            TxnOp::txn(Txn::new().when([unchanged]).and_then([TxnOp::delete(key, None)]))
        }));
        operations
    }

    async fn transact(&self, transaction: Txn) -> Result<TxnResponse, MintError> {
        self.members
            .call(|mut kv| {
                let transaction = transaction.clone();
                async move { kv.txn(transaction).await }
            })
            .await
    }

    /// The nonce in the answer to a read of its key.
    fn nonce_in(&self, answer: &GetResponse) -> Result<Option<Uuid>, MintError> {
        let Some(pair) = answer.kvs().first() else {
            return Ok(None);
        };
        Uuid::try_parse_ascii(pair.value()).map(Some).map_err(|_| {
            MintError::Unavailable(format!("{} holds something else", self.incarnation))
        })
    }

    /// The nonce that the losing branch of a transaction read.
    fn found(&self, answer: &TxnResponse) -> Result<Option<Uuid>, MintError> {
        match answer.op_responses().first() {
            Some(TxnOpResponse::Get(get)) => self.nonce_in(get),
            _ => Err(MintError::Unavailable("etcd answered without the nonce".into())),
        }
    }
}

#[async_trait]
impl Mint for EtcdMint {
    async fn mint(
        &self,
        nonce: Uuid,
        items: &[MintItem],
        ended: &[Ended],
    ) -> Result<i64, MintError> {
        if items.is_empty() || items.len() > MINT_RESOURCES_MAX {
            return Err(MintError::Unavailable(format!(
                "1 to {MINT_RESOURCES_MAX} resources are minted at once, not {}",
                items.len()
            )));
        }
        // 1. One transaction for all items, if etcd is the one that the ledger knows.
        let same = Compare::value(self.incarnation.as_str(), CompareOp::Equal, nonce.to_string());
        let transaction = Txn::new()
            .when([same])
            .and_then(self.operations(items, ended))
            .or_else([TxnOp::get(self.incarnation.as_str(), None)]);
        // 2. No answer: unavailable. It may have been applied; an unsealed number means nothing.
        let answer = self.transact(transaction).await?;
        // 3. Another nonce: nothing was put.
        if !answer.succeeded() {
            let found = self.found(&answer)?;
            return Err(MintError::OtherIncarnation { found });
        }
        // 4. All keys were put in one revision, the one in the header of this very answer.
        match answer.header().map(|header| header.revision()) {
            Some(revision) if revision > 0 => Ok(revision),
            _ => Err(MintError::Unavailable("etcd answered without a revision".into())),
        }
    }

    async fn adopt(&self, nonce: Uuid) -> Result<Uuid, MintError> {
        // 1. Put the nonce if there is none, else read the one that is there.
        let absent = Compare::create_revision(self.incarnation.as_str(), CompareOp::Equal, 0);
        let transaction = Txn::new()
            .when([absent])
            .and_then([TxnOp::put(self.incarnation.as_str(), nonce.to_string(), None)])
            .or_else([TxnOp::get(self.incarnation.as_str(), None)]);
        // 2. No answer: unavailable. If it was applied, the next call finds this nonce.
        let answer = self.transact(transaction).await?;
        // 3. Put now.
        if answer.succeeded() {
            return Ok(nonce);
        }
        // 4. There before: the one that is there counts.
        self.found(&answer)?
            .ok_or_else(|| MintError::Unavailable(format!("{} is gone again", self.incarnation)))
    }

    async fn incarnation(&self) -> Result<Option<Uuid>, MintError> {
        let answer = self
            .members
            .call(|mut kv| async move {
                let answer: Result<GetResponse, Error> =
                    kv.get(self.incarnation.as_str(), None).await;
                answer
            })
            .await?;
        self.nonce_in(&answer)
    }
}

/// Reads a PEM file. One with nothing in it would pass as an empty list and fail much later.
fn read_pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let holds_something = text.contains("-----BEGIN ");
    anyhow::ensure!(holds_something, "{} holds no PEM block", path.display());
    Ok(text.into_bytes())
}
