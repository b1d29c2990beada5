//! The etcd mint: the number of a grant comes from the `mod_revision` of the keys that are put for it.
//!
//! Grants that are minted together share a revision. Each has a place in it, so that no two of them
//! have the same number: `mod_revision * 128 + place`.
//!
//! Keys: `<prefix>/incarnation` carries the nonce, `<prefix>/ledger` says which ledger this mint
//! serves, `<prefix>/witness` how far that has been, `<prefix>/audit` the newest checkpoint of its audit, and
//! `<prefix>/locks/<resource>` says to people who holds what. No code decides on the last.

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
use fence_core::ports::{
    Carry, Clock, Ended, Head, MINT_RESOURCES_MAX, Mint, MintError, MintItem, Witness,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::checkpoints::ToKeep;
use super::members::Members;
use crate::files::{self, FILE_BYTES_MAX};

/// Operations in one transaction. etcd allows 128 unless told otherwise, and counts the operations
/// of a nested transaction, one here, on top of those around it.
const OPERATIONS_MAX: usize = 127;

/// Places in one revision: as many grants as a call may carry find room.
const PLACES: i64 = 128;
const _: () = assert!(MINT_RESOURCES_MAX < PLACES as usize);

/// How often an adoption begins anew because somebody else changed a key meanwhile.
const ADOPTIONS_MAX: u32 = 5;

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
    pub(super) members: Members,
    pub(super) clock: Arc<dyn Clock>,
    incarnation: String,
    ledger: String,
    witness: String,
    pub(super) audit: String,
    pub(super) to_keep: Mutex<Option<ToKeep>>,
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
            ledger: format!("{}/ledger", settings.prefix),
            witness: format!("{}/witness", settings.prefix),
            audit: format!("{}/audit", settings.prefix),
            to_keep: Mutex::default(),
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
        let puts = items.iter().flat_map(|item| {
            let note = self.note(item);
            item.resources.iter().map(move |name| TxnOp::put(self.key(name), note.clone(), None))
        });
        let mut operations: Vec<TxnOp> = puts.collect();
        // etcd refuses a transaction that touches a key twice.
        let put: HashSet<&ResourceName> = items.iter().flat_map(|item| &item.resources).collect();
        let mut last = BTreeMap::new();
        for lock in ended.iter().filter(|lock| !put.contains(&lock.resource)) {
            let number = last.entry(&lock.resource).or_insert(lock.number);
            *number = lock.number.max(*number);
        }
        let room = OPERATIONS_MAX.saturating_sub(operations.len());
        operations.extend(last.into_iter().take(room).map(|(resource, number)| {
            let key = self.key(resource);
            // The key of a later lock on the same resource has a higher revision, and stays.
            let revision = number.div_euclid(PLACES);
            let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, revision);
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
        uuid_in(&self.incarnation, answer)
    }

    /// That this key still has the value that was seen.
    fn unchanged(key: &str, seen: Option<Uuid>) -> Compare {
        match seen {
            Some(value) => Compare::value(key, CompareOp::Equal, value.to_string()),
            None => Compare::create_revision(key, CompareOp::Equal, 0),
        }
    }

    /// Puts these, if nobody has changed the nonce or the ledger since they were seen.
    async fn put_if_unchanged(
        &self,
        seen: &Head,
        more: Option<Compare>,
        puts: Vec<TxnOp>,
    ) -> Result<bool, MintError> {
        let mut conditions = vec![
            Self::unchanged(&self.incarnation, seen.incarnation),
            Self::unchanged(&self.ledger, seen.ledger),
        ];
        conditions.extend(more);
        let transaction = Txn::new().when(conditions).and_then(puts);
        Ok(self.transact(transaction).await?.succeeded())
    }

    fn put_owner(&self, nonce: Uuid, ledger: Uuid) -> Vec<TxnOp> {
        vec![
            TxnOp::put(self.incarnation.as_str(), nonce.to_string(), None),
            TxnOp::put(self.ledger.as_str(), ledger.to_string(), None),
        ]
    }

    fn put_witness(&self, witness: &Witness) -> Result<TxnOp, MintError> {
        let text = serde_json::to_string(witness)
            .map_err(|error| MintError::Unavailable(error.to_string()))?;
        Ok(TxnOp::put(self.witness.as_str(), text, None))
    }

    fn witness_unchanged(&self, seen: &Head) -> Compare {
        let key = self.witness.as_str();
        Compare::mod_revision(key, CompareOp::Equal, seen.witness_revision)
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
    ) -> Result<Vec<i64>, MintError> {
        let resources: usize = items.iter().map(|item| item.resources.len()).sum();
        if resources < items.len() || !(1..=MINT_RESOURCES_MAX).contains(&resources) {
            return Err(MintError::Unavailable(format!(
                "1 to {MINT_RESOURCES_MAX} resources are minted at once, not {resources} of {} grants",
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
        // 4. All keys were put in one revision, the one in the header of this very answer. Each grant has
        //    its place in it (I15).
        match answer.header().map(|header| header.revision()) {
            Some(revision) if revision > 0 => {
                (0..).zip(items).map(|(place, _)| number(revision, place)).collect()
            }
            _ => Err(MintError::Unavailable("etcd answered without a revision".into())),
        }
    }

    async fn adopt(&self, nonce: Uuid, ledger: Uuid) -> Result<Uuid, MintError> {
        for _ in 0..ADOPTIONS_MAX {
            // 1. Whose is it? What is there counts.
            let head = self.head().await?;
            head.check_owner(ledger)?;
            if let (Some(found), Some(_)) = (head.incarnation, head.ledger) {
                return Ok(found);
            }
            // 2. Put what is missing. No answer: unavailable; the next call finds what was put.
            let carried = head.incarnation.unwrap_or(nonce);
            if self.put_if_unchanged(&head, None, self.put_owner(carried, ledger)).await? {
                return Ok(carried);
            }
            // 3. Somebody else was faster: look again.
        }
        Err(MintError::Unavailable(format!("{} keeps changing", self.incarnation)))
    }

    async fn head(&self) -> Result<Head, MintError> {
        let keys = [&self.incarnation, &self.ledger, &self.witness];
        let reads: Vec<TxnOp> = keys.iter().map(|key| TxnOp::get(key.as_str(), None)).collect();
        // Not a serializable read: a member that lags behind would show an old state.
        let answer = self.transact(Txn::new().and_then(reads)).await?;
        let odd = || MintError::Unavailable("etcd answered without what was read".into());
        let revision = answer.header().map(|header| header.revision()).ok_or_else(odd)?;
        let responses = answer.op_responses();
        let [
            TxnOpResponse::Get(incarnation),
            TxnOpResponse::Get(ledger),
            TxnOpResponse::Get(witness),
        ] = responses.as_slice()
        else {
            return Err(odd());
        };
        let pair = witness.kvs().first();
        let damaged = |_| MintError::Unavailable(format!("{} holds something else", self.witness));
        let witness: Option<Witness> =
            pair.map(|pair| serde_json::from_slice(pair.value())).transpose().map_err(damaged)?;
        if let Some(newer) = witness.as_ref().filter(|one| one.format > Witness::FORMAT) {
            return Err(MintError::Unavailable(format!(
                "{} has the form {} of a newer fencegate",
                self.witness, newer.format
            )));
        }
        Ok(Head {
            number: number(revision, PLACES - 1)?,
            incarnation: self.nonce_in(incarnation)?,
            ledger: uuid_in(&self.ledger, ledger)?,
            witness,
            witness_revision: pair.map_or(0, |pair| pair.mod_revision()),
        })
    }

    async fn replace(&self, seen: &Head, carry: &Carry) -> Result<bool, MintError> {
        seen.check_owner(carry.ledger)?;
        let mut puts = self.put_owner(carry.nonce, carry.ledger);
        puts.push(self.put_witness(&carry.witness)?);
        self.put_if_unchanged(seen, Some(self.witness_unchanged(seen)), puts).await
    }

    async fn raise(&self, seen: &Head, ledger: Uuid, witness: &Witness) -> Result<bool, MintError> {
        let conditions =
            [Self::unchanged(&self.ledger, Some(ledger)), self.witness_unchanged(seen)];
        let mut puts = vec![self.put_witness(witness)?];
        let to_keep = self.to_keep.lock().take();
        puts.extend(to_keep.map(|checkpoint| checkpoint.operation(&self.audit)));
        Ok(self.transact(Txn::new().when(conditions).and_then(puts)).await?.succeeded())
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

/// The number of the grant that has this place in this revision.
fn number(revision: i64, place: i64) -> Result<i64, MintError> {
    let number = revision.checked_mul(PLACES).and_then(|first| first.checked_add(place));
    number.ok_or_else(|| MintError::Unavailable("the mint has run out of numbers".into()))
}

/// The UUID in the answer to a read of a key.
fn uuid_in(key: &str, answer: &GetResponse) -> Result<Option<Uuid>, MintError> {
    let Some(pair) = answer.kvs().first() else {
        return Ok(None);
    };
    Uuid::try_parse_ascii(pair.value())
        .map(Some)
        .map_err(|_| MintError::Unavailable(format!("{key} holds something else")))
}

/// Reads a PEM file. One with nothing in it would pass as an empty list and fail much later.
fn read_pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    let text = files::read_text(path, FILE_BYTES_MAX)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let holds_something = text.contains("-----BEGIN ");
    anyhow::ensure!(holds_something, "{} holds no PEM block", path.display());
    Ok(text.into_bytes())
}
