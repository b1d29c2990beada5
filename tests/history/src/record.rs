//! The records of a history, one per line in a file.
//!
//! Moments are microseconds on one clock, and no two records share one: what begins at a later moment
//! than another thing ended came after it.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A caller asked something.
    Call(Call),
    /// A drained upstream acted on a request.
    Effect(Effect),
    /// The ledger admitted a request to a drained upstream.
    Intent(Intent),
    /// The ledger went back: commits that had been acknowledged are gone.
    Rollback(Rollback),
    /// From here on nothing is broken, so that all must work again soon.
    Healed(Healed),
    /// A lock is asked for with these writers.
    Writers(Writers),
    /// Other rules of access are in force.
    Rules(Rules),
    /// The ledger holds this grant at the end.
    Sealed(Sealed),
    /// The ledger holds this write at the end.
    Committed(Committed),
}

/// What a caller asked, and what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Counts the calls of a history.
    pub number: u64,
    /// Who asked. One client asks one thing at a time.
    pub client: u32,
    /// Whose call it was, where there are rules of access: clients may share a principal.
    pub principal: u32,
    /// Which gateway.
    pub gateway: u32,
    /// When it was sent.
    pub begun_at: u64,
    /// What was asked.
    pub asked: Asked,
    /// When the answer arrived, and what it was; `None` if the caller never learned it.
    pub answered: Option<Answered>,
}

/// An answer, and when it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// When.
    pub at: u64,
    /// What.
    pub answer: Answer,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// A lock.
    Acquire {
        /// The proposed id, if any.
        lock: Option<Uuid>,
        /// On what.
        resources: Vec<String>,
    },
    /// To hand a lock over.
    Transfer {
        /// The old id.
        from: Uuid,
        /// The proposed new id, if any.
        to: Option<Uuid>,
        /// On what.
        resources: Vec<String>,
    },
    /// A fence without a lock.
    Fence {
        /// The proposed id.
        lock: Uuid,
        /// On what.
        resource: String,
    },
    /// To start a lock's ttl again.
    Renew {
        /// Its id.
        lock: Uuid,
    },
    /// To give a lock back.
    Release {
        /// Its id.
        lock: Uuid,
    },
    /// To fence a holder off.
    Break {
        /// Of what.
        resource: String,
    },
    /// A fenced write.
    Write(FencedWrite),
    /// Several in one act.
    Commit {
        /// The token presented.
        token: i64,
        /// The sequence number presented, if any.
        sequence: Option<i64>,
        /// The idempotency key presented, if any.
        idempotency_key: Option<String>,
        /// What each step does, and to which resource.
        steps: Vec<(String, Change)>,
    },
    /// To read an object.
    Read {
        /// The resource.
        resource: String,
        /// The object.
        key: String,
    },
    /// What became of an operation.
    Ask {
        /// Which one.
        operation: Uuid,
    },
    /// A request to a drained upstream.
    Forward {
        /// The resource.
        resource: String,
        /// The token presented.
        token: i64,
        /// By which the upstream knows it: no other request has the same.
        request: Uuid,
    },
    /// For operators: to close the intent of such a request.
    Resolve {
        /// Which operation.
        operation: Uuid,
    },
}

/// A fenced write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedWrite {
    /// The resource.
    pub resource: String,
    /// The token presented.
    pub token: i64,
    /// Whether the token was made up by the caller: it must never be admitted.
    pub forged: bool,
    /// The sequence number presented, if any.
    pub sequence: Option<i64>,
    /// The idempotency key presented, if any.
    pub idempotency_key: Option<String>,
    /// The version that the resource must have, if demanded.
    pub if_version: Option<i64>,
    /// What it does.
    pub change: Change,
}

/// What a write does to the objects of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Stores a value under a key. No two puts of a history store the same value, unless one repeats
    /// the other under its idempotency key.
    Put {
        /// The object.
        key: String,
        /// Its bytes, or something that stands for them.
        value: String,
        /// For an object that is a set: what this put adds to what its writer had read. Its value is
        /// the numbers of the set, apart by spaces.
        adds: Option<u64>,
    },
    /// Removes an object.
    Delete {
        /// The object.
        key: String,
    },
    /// Removes all objects.
    DeleteAll,
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It holds a lock, or set a fence.
    Granted {
        /// The id.
        lock: Uuid,
        /// The token.
        token: i64,
        /// Each resource, and its version.
        versions: Vec<(String, i64)>,
        /// Whether it had been granted before under the same id.
        again: bool,
    },
    /// Done; nothing more to tell.
    Done,
    /// A write or a commit took effect.
    Written {
        /// The operation.
        operation: Uuid,
        /// Each resource it touched, and what version that took; a delete of nothing takes none.
        versions: Vec<(String, Option<i64>)>,
        /// The generation at the time of the effect.
        generation: i64,
        /// Whether it had taken effect earlier, under the same idempotency key.
        replayed: bool,
    },
    /// An object, or its absence.
    Value {
        /// The object.
        found: Option<Seen>,
        /// The version of the resource at that moment; `None` if it was never locked.
        resource_version: Option<i64>,
    },
    /// What became of an operation.
    Outcome(Outcome),
    /// An upstream answered that it has acted. Whatever else it answers is `Done`.
    Forwarded,
    /// Decided: it had no effect and never will.
    Refused {
        /// The error code.
        code: String,
    },
    /// Not decided, and it had no effect and never will.
    Failed {
        /// The error code.
        code: String,
    },
    /// It may have had an effect, or may still have one.
    Unknown {
        /// The operation to ask about, if it is one.
        operation: Option<Uuid>,
    },
}

/// An object as a reader saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The generation in which it was written.
    pub generation: i64,
    /// The version that wrote it.
    pub version: i64,
    /// Its bytes, or what stands for them.
    pub value: String,
}

/// What the ledger says of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It took effect.
    Applied,
    /// It never will.
    Buried,
    /// The ledger has no trace of it (yet), or does not know what an upstream did.
    NotKnown,
}

/// A drained upstream acted on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// When.
    pub at: u64,
    /// On what.
    pub resource: String,
    /// Under which token.
    pub token: i64,
    /// On which request.
    pub request: Uuid,
}

/// The ledger admitted a request to a drained upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// As this operation.
    pub operation: Uuid,
    /// Which request.
    pub request: Uuid,
}

/// The ledger went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// When.
    pub at: u64,
    /// The generation that ends with it.
    pub generation: i64,
    /// Up to which version each resource was kept; one that is missing lost all.
    pub kept: Vec<(String, i64)>,
}

/// From here on nothing is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healed {
    /// When.
    pub at: u64,
    /// The resources on which a grant and a write must succeed soon after.
    pub resources: Vec<String>,
}

/// A lock is asked for with writers, under an id of the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writers {
    /// The id.
    pub lock: Uuid,
    /// The principals who may write under it, besides whoever has it.
    pub principals: Vec<u32>,
}

/// Rules of access are in force from here on, until the next ones. A history that has none of them has no principals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// When they were first asked to be.
    pub asked_at: u64,
    /// When it was known that they are.
    pub at: u64,
    /// The principals that may not do anything.
    pub denied: Vec<u32>,
    /// The version of each resource when they were not yet asked to be in force.
    pub before: Vec<(String, i64)>,
    /// The version of each resource once they were known to be.
    pub after: Vec<(String, i64)>,
}

/// A grant in the ledger: one line for each resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The resource.
    pub resource: String,
    /// The token.
    pub token: i64,
    /// The id.
    pub lock: Uuid,
}

/// A write in the ledger: one line for each resource it touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The operation.
    pub operation: Uuid,
    /// The resource.
    pub resource: String,
    /// The version it took; a delete of nothing takes none.
    pub version: Option<i64>,
    /// The generation in which it was made.
    pub generation: i64,
    /// The token it was made under.
    pub token: i64,
    /// Its sequence number, if it had one.
    pub sequence: Option<i64>,
    /// Its idempotency key, if it had one.
    pub idempotency_key: Option<String>,
    /// What it did.
    pub changes: Vec<Change>,
}

/// A history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Its records: calls in the order in which they began, what the ledger holds at the end.
    pub records: Vec<Record>,
}

impl History {
    /// Reads a file of one record per line.
    ///
    /// # Errors
    /// What cannot be read, with the number of the line.
    pub fn read(from: impl BufRead) -> io::Result<Self> {
        let mut records = Vec::new();
        for (number, line) in (1..).zip(from.lines()) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let record = serde_json::from_str(&line);
            let wrong = |error| io::Error::other(format!("line {number}: {error}"));
            records.push(record.map_err(wrong)?);
        }
        Ok(Self { records })
    }

    /// Writes it, one record per line.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, mut into: impl Write) -> io::Result<()> {
        for record in &self.records {
            serde_json::to_writer(&mut into, record)?;
            into.write_all(b"\n")?;
        }
        Ok(())
    }
}
