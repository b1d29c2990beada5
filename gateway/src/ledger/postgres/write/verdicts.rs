//! What `acts.write` answers.

use std::collections::HashMap;

use fence_core::ports::{
    Applied, COMMIT_KIND, CommitItem, CommitVerdict, Effect, LedgerError, WriteItem, WriteVerdict,
};
use fence_core::{OperationId, Refusal, Supersession};
use uuid::Uuid;

use crate::ledger::postgres::reads;
use crate::ledger::postgres::session::Sessions;
use crate::ledger::{did, time};

row! {
    /// What became of a write; of a commit that took effect, on one of its resources.
    pub(super) struct WriteRow {
        /// The position of the first of its rows, from 1; of a refused commit that of the one that was refused.
        pub(super) row: i64,
        resource: Option<String>,
        verdict: String,
        original: Option<Uuid>,
        version: Option<i64>,
        did: Option<String>,
        generation: i64,
        pub(super) flushed: i64,
        ..grant: GrantColumns,
    }
}

/// The operations that were found to have taken effect earlier. They never change, and are let go a day later at the
/// soonest, so reading them after the act is as good as in it. The act itself changed nothing for these items, but it may
/// have for others: a failure here is an unknown outcome for all.
pub(super) async fn earlier(
    sessions: &Sessions,
    rows: &[WriteRow],
) -> Result<HashMap<Uuid, Vec<Applied>>, LedgerError> {
    let wanted = |row: &WriteRow| match row.verdict.as_str() {
        "known" | "replayed" => row.original,
        _ => None,
    };
    let ids: Vec<Uuid> = rows.iter().filter_map(wanted).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let found = match reads::operations(sessions, &ids).await {
        Err(LedgerError::Defect(why)) => Err(LedgerError::Unreadable(why)),
        Err(error) => Err(LedgerError::Unknown(error.to_string())),
        found => found,
    }?;
    let mut earlier: HashMap<Uuid, Vec<Applied>> = HashMap::new();
    for applied in found {
        earlier.entry(applied.operation.0).or_default().push(applied);
    }
    Ok(earlier)
}

/// What an earlier operation did.
fn known(original: Uuid, earlier: &HashMap<Uuid, Vec<Applied>>) -> Result<&[Applied], LedgerError> {
    let gone = || LedgerError::Defect(format!("operation {original} has no row"));
    earlier.get(&original).map(Vec::as_slice).ok_or_else(gone)
}

pub(super) fn of_write(
    row: WriteRow,
    item: &WriteItem,
    earlier: &HashMap<Uuid, Vec<Applied>>,
) -> Result<WriteVerdict, LedgerError> {
    let original = row.original.unwrap_or_default();
    match row.verdict.as_str() {
        "applied" => {
            let size = match &item.effect {
                Effect::Put { size, .. } => *size,
                Effect::Delete { .. } | Effect::DeleteAll => 0,
            };
            Ok(WriteVerdict::Applied {
                applied: Applied {
                    operation: item.operation,
                    resource: item.resource.clone(),
                    kind: item.effect.word().to_owned(),
                    key: item.effect.key().cloned(),
                    version: row.version,
                    generation: row.generation,
                    created: row.did.as_deref() == Some("c"),
                    size,
                    sha256: item.effect.sha256(),
                    owner: row.grant.owner.unwrap_or_default(),
                    committed_at: time(row.grant.at_us.unwrap_or(0)),
                    did: Vec::new(),
                },
                replayed: false,
            })
        }
        word @ ("known" | "replayed") => {
            // Of a commit under the same key, what it did here.
            let all = known(original, earlier)?;
            let here = all.iter().find(|applied| applied.resource == item.resource);
            let applied = here.or(all.first()).cloned();
            let none = || LedgerError::Defect(format!("operation {original} has no row"));
            Ok(WriteVerdict::Applied {
                applied: applied.ok_or_else(none)?,
                replayed: word == "replayed",
            })
        }
        "key_reused" => Ok(WriteVerdict::KeyReused { first: OperationId(original) }),
        "buried" => Ok(WriteVerdict::Buried),
        "forgotten" => Ok(WriteVerdict::Forgotten),
        "upload_expired" => Ok(WriteVerdict::UploadExpired),
        "parts_differ" => Ok(WriteVerdict::PartsDiffer),
        "rules_moved" => Ok(WriteVerdict::RulesMoved),
        "busy" => Ok(WriteVerdict::Busy),
        word => refusal(word, row.grant).map(WriteVerdict::Refused),
    }
}

pub(super) fn of_commit(
    mut rows: Vec<WriteRow>,
    item: &CommitItem,
    mut earlier: HashMap<Uuid, Vec<Applied>>,
) -> Result<CommitVerdict, LedgerError> {
    let nothing = || LedgerError::Defect("a commit without a verdict".into());
    if rows.first().is_some_and(|row| row.verdict == "applied") {
        rows.sort_unstable_by(|a, b| a.resource.cmp(&b.resource));
        let applied = rows.into_iter().zip(item.resources.iter()).map(|(row, at)| {
            Ok(Applied {
                operation: item.operation,
                resource: at.resource.clone(),
                kind: COMMIT_KIND.to_owned(),
                key: None,
                version: row.version,
                generation: row.generation,
                created: false,
                size: 0,
                sha256: None,
                owner: row.grant.owner.unwrap_or_default(),
                committed_at: time(row.grant.at_us.unwrap_or(0)),
                did: did(row.did.as_deref())?,
            })
        });
        let applied = applied.collect::<Result<_, LedgerError>>()?;
        return Ok(CommitVerdict::Applied { applied, replayed: false });
    }
    let row = rows.pop().ok_or_else(nothing)?;
    let original = row.original.unwrap_or_default();
    let refused =
        item.resources.iter().find(|at| row.resource.as_deref() == Some(at.resource.as_str()));
    let resource = || refused.map(|at| at.resource.clone()).ok_or_else(nothing);
    // The rows of the steps come first, then those that only demand a version.
    let step = usize::try_from(row.row - 1).ok().filter(|step| *step < item.steps.len());
    match row.verdict.as_str() {
        word @ ("known" | "replayed") => {
            known(original, &earlier)?;
            let applied = earlier.remove(&original).unwrap_or_default();
            Ok(CommitVerdict::Applied { applied, replayed: word == "replayed" })
        }
        "key_reused" => {
            let first = OperationId(original);
            Ok(CommitVerdict::KeyReused { first, resource: resource()? })
        }
        "buried" => Ok(CommitVerdict::Buried),
        "forgotten" => Ok(CommitVerdict::Forgotten),
        "upload_expired" => Ok(CommitVerdict::UploadExpired { step: step.ok_or_else(nothing)? }),
        "rules_moved" => Ok(CommitVerdict::RulesMoved),
        "busy" => Ok(CommitVerdict::Busy),
        word => Ok(CommitVerdict::Refused {
            resource: resource()?,
            step: step.filter(|_| word == "object_mismatch"),
            refusal: refusal(word, row.grant)?,
        }),
    }
}

row! {
    /// What the acts on data say of a grant: of a stale token, or, without what superseded it, of the one that
    /// was admitted.
    pub(in crate::ledger::postgres) struct GrantColumns {
        pub(in crate::ledger::postgres) superseded_by: Option<String>,
        pub(in crate::ledger::postgres) at_us: Option<i64>,
        pub(in crate::ledger::postgres) owner: Option<String>,
        pub(in crate::ledger::postgres) behind: Option<i64>,
    }
}

/// A refusal, by the schema's word for it.
pub(in crate::ledger::postgres) fn refusal(
    word: &str,
    grant: GrantColumns,
) -> Result<Refusal, LedgerError> {
    Ok(match word {
        "void" => Refusal::Void,
        "unknown" => Refusal::Unknown,
        "foreign" => Refusal::Foreign,
        "stale" => Refusal::Stale {
            by: grant.superseded_by.as_deref().and_then(Supersession::parse),
            at: grant.at_us.map(time),
            grants_behind: grant.behind,
            owner: grant.owner,
        },
        "released" => Refusal::Released,
        "broken" => Refusal::Broken,
        "lock_id_mismatch" => Refusal::LockIdMismatch,
        "frozen" => Refusal::Frozen,
        "draining" => Refusal::Draining,
        "protected" => Refusal::Protected,
        "too_many_objects" => Refusal::TooManyObjects,
        "sequence_out_of_order" => Refusal::SequenceOutOfOrder,
        "version_mismatch" | "object_mismatch" => Refusal::VersionMismatch,
        other => return Err(LedgerError::Defect(format!("the schema answered {other:?}"))),
    })
}
