//! S3 in a run: its buckets, what its callers are told beside what stands in the history, and whether that is so.

mod judge;

use std::collections::HashMap;

use anyhow::{Result, ensure};
use fence_history::{Answer, Asked, Call, Change, Committed};
use fence_tests::gateway::Gateway;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::line::NOT_TOLD;

pub use judge::judge;

/// The buckets, and their depths. Resources of them are among those that all callers use.
pub const BUCKETS: [(&str, &str); 2] = [("lake", "1"), ("pond", "0")];
/// How the history tells keys of calls, and of uploads, from those that callers of the native side choose.
pub const CALL: &str = "sdk:";
/// See [`CALL`].
pub const UPLOAD: &str = "upload:";

/// What no caller here is told for a reason: each says what is right, and signs it.
pub const STRANGE: [&str; 7] = [
    "authorization-header-malformed",
    "bad-digest",
    "fence-token-malformed",
    "fence-token-missing",
    "malformed-xml",
    "not-implemented",
    "signature-does-not-match",
];

/// A call by S3 that is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    /// When it was sent.
    pub begun_at: u64,
    /// When its answer had arrived.
    pub at: u64,
    /// What was asked.
    pub operation: String,
    /// How it ended, as one counts it.
    pub outcome: String,
    /// What its caller saw.
    pub saw: Option<Saw>,
}

impl Told {
    /// Whether it stands in the history, too.
    pub fn is_write(&self) -> bool {
        ["put", "delete", "delete many", "copy", "complete"].contains(&self.operation.as_str())
    }
}

/// What a caller saw that is not in the history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Saw {
    /// All objects of these resources.
    List {
        /// Of which ones.
        resources: Vec<String>,
        /// The objects.
        objects: Vec<Listed>,
    },
    /// An object, or that there is none.
    Object {
        /// Of which resource.
        resource: String,
        /// Its key.
        key: String,
        /// It, and what its bytes stand for.
        found: Option<(Made, String)>,
    },
    /// That an upload in parts is over and becomes nothing.
    Aborted {
        /// Its id.
        upload: Uuid,
    },
}

/// An object in a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listed {
    /// Of which resource.
    pub resource: String,
    /// Its key there.
    pub key: String,
    /// What made it.
    pub made: Made,
}

/// What made an object: its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Made {
    /// In which generation.
    pub generation: i64,
    /// Which version of its resource.
    pub version: i64,
}

/// Makes the buckets.
///
/// # Errors
/// A ledger that cannot be reached.
pub async fn make_buckets(gateway: &Gateway) -> Result<()> {
    for (name, depth) in BUCKETS {
        let (code, out, log) = gateway.run(&["bucket", "make", name, "--depth", depth]).await;
        ensure!(code == Some(0), "the bucket {name} cannot be made: {out}{log}");
    }
    Ok(())
}

/// Where an object lies in S3.
pub fn path_of(resource: &str, key: &str) -> String {
    format!("/{}/{key}", resource.replace(':', "/"))
}

/// An object of a list of this bucket: its resource, and its key there.
pub fn object_of(bucket: &str, listed: &str) -> Option<(String, String)> {
    let (_, depth) = BUCKETS.iter().find(|(name, _)| *name == bucket)?;
    match *depth {
        "0" => Some((bucket.to_owned(), listed.to_owned())),
        _ => listed.split_once('/').map(|(one, key)| (format!("{bucket}:{one}"), key.to_owned())),
    }
}

/// Of deletes of many at once nobody is told the operations: those are in the ledger, under the call's key, or they are not,
/// and then nobody can have been told of them.
///
/// 1. The operation that the ledger holds under its key.
/// 2. Else one that it does not hold: a rollback may have taken it.
/// 3. It is new to whoever asked for it once; of what was sent several times it is not known which one did it.
pub fn settle_deletes(calls: &mut [Call], lines: &[Committed]) {
    let held: HashMap<(&str, &str), &Committed> = lines
        .iter()
        .filter_map(|line| Some(((line.resource.as_str(), line.idempotency_key.as_deref()?), line)))
        .collect();
    let mut sent: HashMap<(String, String), usize> = HashMap::new();
    for call in calls.iter() {
        if let Some(at) = key_of(call) {
            *sent.entry(at).or_default() += 1;
        }
    }
    for call in calls {
        let Some(at) = key_of(call) else { continue };
        let Some(answered) = &mut call.answered else { continue };
        if answered.answer != Answer::Done {
            continue;
        }
        let (resource, key) = (&at.0, &at.1);
        let line = held.get(&(resource.as_str(), key.as_str()));
        answered.answer = Answer::Written {
            operation: line
                .map_or_else(|| Uuid::from_u128(u128::from(call.number)), |line| line.operation),
            versions: vec![(resource.clone(), line.and_then(|line| line.version))],
            generation: line.map_or(NOT_TOLD, |line| line.generation),
            replayed: sent.get(&at).is_some_and(|count| *count > 1),
        };
    }
}

/// The resource and the key of a delete that may be one of many.
fn key_of(call: &Call) -> Option<(String, String)> {
    let Asked::Write(write) = &call.asked else { return None };
    let key = write.idempotency_key.clone().filter(|key| key.starts_with(CALL))?;
    matches!(write.change, Change::Delete { .. }).then(|| (write.resource.clone(), key))
}
