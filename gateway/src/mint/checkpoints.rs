//! `<prefix>/audit`: the newest checkpoint of the audit. The mint is the witness against a ledger that goes back, and so also
//! of what its audit was.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Error, GetResponse, Txn, TxnOp};
use fence_core::ports::{CheckpointKept, CheckpointPlace, KeepCheckpoint};
use fencegate_audit::{Checkpoint, SignedNote};

use super::EtcdMint;

/// Each is a small write; the next one replaces it.
const INTERVAL: Duration = Duration::from_secs(1);

fn parsed(note: &str) -> Option<Checkpoint> {
    note.parse::<SignedNote>().ok()?.checkpoint().ok()
}

impl EtcdMint {
    /// What is there, and the revision of it; 0 for nothing.
    async fn checkpoint(&self) -> Result<(Option<String>, i64), String> {
        let call = |mut kv: etcd_client::KvClient| async move {
            let answer: Result<GetResponse, Error> = kv.get(self.audit.as_str(), None).await;
            answer
        };
        let answer = self.members.call(call).await.map_err(|error| error.to_string())?;
        let Some(pair) = answer.kvs().first() else { return Ok((None, 0)) };
        let text = pair.value_str().map_err(|error| error.to_string())?;
        Ok((Some(text.to_owned()), pair.mod_revision()))
    }
}

#[async_trait]
impl CheckpointPlace for EtcdMint {
    fn name(&self) -> String {
        "etcd".into()
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    /// 1. What is there, if it is of this audit and as new, stays.
    /// 2. It is replaced, unless somebody else has replaced it meanwhile: then with something as new, or else the next call
    ///    does it.
    async fn keep(&self, checkpoint: &KeepCheckpoint) -> Result<CheckpointKept, String> {
        let (there, revision) = self.checkpoint().await?;
        let ours = parsed(&checkpoint.note).ok_or("it is no checkpoint")?;
        let rank = |one: &Checkpoint| (one.generation, one.size);
        if let Some(there) = there.as_deref().and_then(parsed) {
            if there.origin != ours.origin {
                return Err(format!("it has a checkpoint of another audit, {}", there.origin));
            }
            if rank(&there) >= rank(&ours) {
                return Ok(CheckpointKept::Kept);
            }
        }
        let unchanged = Compare::mod_revision(self.audit.as_str(), CompareOp::Equal, revision);
        let put = TxnOp::put(self.audit.as_str(), checkpoint.note.as_str(), None);
        let transaction = Txn::new().when([unchanged]).and_then([put]);
        match self.transact(transaction).await.map_err(|error| error.to_string())?.succeeded() {
            true => Ok(CheckpointKept::Kept),
            false => Err("somebody else has just written there".into()),
        }
    }

    async fn newest(&self) -> Result<Option<String>, String> {
        Ok(self.checkpoint().await?.0)
    }
}
