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

/// A checkpoint that goes along with the next witness.
pub(super) struct ToKeep {
    note: String,
    /// The revision of what it is to replace; 0 for nothing.
    over: i64,
}

impl ToKeep {
    /// Puts it there, unless somebody else has put something there meanwhile.
    pub(super) fn operation(&self, key: &str) -> TxnOp {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, self.over);
        let put = TxnOp::put(key, self.note.as_str(), None);
        TxnOp::txn(Txn::new().when([unchanged]).and_then([put]))
    }
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

    /// 1. What is there, if it is of this audit and as new, stays. One of the same generation that this one does not have is
    ///    told: the caller looks whether the ledger does.
    /// 2. Else it goes along with the witness when that is raised next: only after the gateway has looked whether the mint
    ///    is the one that it was. A write of its own would move the revision, by which a mint is found out that went back.
    async fn keep(&self, checkpoint: &KeepCheckpoint) -> Result<CheckpointKept, String> {
        // Step 1.
        let (there, revision) = self.checkpoint().await?;
        let ours = parsed(&checkpoint.note).ok_or("it is no checkpoint")?;
        let rank = |one: &Checkpoint| (one.generation, one.size);
        if let Some(there) = there.as_deref().and_then(parsed) {
            if there.origin != ours.origin {
                return Err(format!("it has a checkpoint of another audit, {}", there.origin));
            }
            let is_same = there.generation == ours.generation;
            if is_same
                && (there.size > ours.size || (there.size == ours.size && there.root != ours.root))
            {
                return Ok(CheckpointKept::Beyond(i64::try_from(there.size).unwrap_or(i64::MAX)));
            }
            if rank(&there) >= rank(&ours) {
                self.to_keep.lock().take();
                return Ok(CheckpointKept::Kept);
            }
        }
        // Step 2.
        *self.to_keep.lock() = Some(ToKeep { note: checkpoint.note.clone(), over: revision });
        Ok(CheckpointKept::Underway)
    }

    async fn newest(&self) -> Result<Option<String>, String> {
        Ok(self.checkpoint().await?.0)
    }
}
