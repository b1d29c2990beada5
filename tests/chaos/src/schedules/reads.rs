//! What a session reads, and how it finds out what became of writes that were left.

use fence_core::OperationId;
use fence_core::ports::{Attempt, CommitVerdict, Ledger as _, OperationRecord, Payload, ReadItem};
use fence_history::{Answer, Asked, Outcome, Seen};

use super::session::{Session, failed, key, name, only};
use super::stage::{Lost, Stage};
use super::writes::{is_busy, told_of, told_of_commit};
use crate::payload::value_of;

/// What became of a write, by what a caller would be told of it.
fn outcome_of(own: OperationId, answer: &Answer) -> Option<Outcome> {
    match answer {
        Answer::Written { operation, .. } if *operation == own.0 => Some(Outcome::Applied),
        // Another one took effect under its key, or none.
        Answer::Written { .. } | Answer::Refused { .. } => Some(Outcome::Buried),
        Answer::Failed { code } if code == "given-up" => Some(Outcome::Buried),
        _ => None,
    }
}

fn value_in(stage: &Stage, payload: &Payload) -> Option<String> {
    match payload {
        Payload::Inline(bytes) => Some(value_of(bytes)),
        Payload::Blob(blob) => stage.stored(*blob),
    }
}

impl Session {
    /// Looks at an object of any resource.
    pub async fn look(&mut self) {
        let Some(resource) = self.some_resources().pop() else { return };
        let object = self.object();
        self.read(resource.as_str(), &object).await;
    }

    /// Reads an object; of one in a blob that is not there, once more, as a gateway does.
    pub async fn read(&mut self, resource: &str, object: &str) -> Option<Seen> {
        let asked = Asked::Read { resource: resource.to_owned(), key: object.to_owned() };
        let call = self.begin(0, asked);
        let mut answer = failed("undone");
        for _ in 0..3 {
            let (_, ledger) = self.gateway();
            let item = ReadItem { resource: name(resource), key: key(object), version: None };
            let Ok(verdict) = only(ledger.read([item].into()).await) else { break };
            let Some(found) = verdict.object else {
                let resource_version = verdict.resource_version;
                answer = Answer::Value { found: None, resource_version };
                break;
            };
            let Some(value) = value_in(&self.stage, &found.payload) else {
                answer = failed("blob-missing");
                continue;
            };
            let seen = Seen { generation: found.tag.generation, version: found.tag.version, value };
            let resource_version = verdict.resource_version;
            answer = Answer::Value { found: Some(seen), resource_version };
            break;
        }
        self.stage.answer(call, answer.clone());
        match answer {
            Answer::Value { found, .. } => found,
            _ => None,
        }
    }

    /// Finds out what became of a write that was left, if one was.
    pub async fn find_out(&mut self) {
        let at = usize::try_from(self.draw(0, 1000)).unwrap_or(0);
        let Some(lost) = self.stage.find(at) else { return };
        let operation = match &lost {
            Lost::Write(item) => item.operation,
            Lost::Commit(item) => item.operation,
        };
        if self.chance(0.3) {
            self.ask(operation).await;
        }
        let call = self.begin(0, Asked::Ask { operation: operation.0 });
        let first = if self.chance(0.4) { Attempt::Bury } else { Attempt::Rerun };
        let told = match &lost {
            Lost::Write(item) => {
                let end = self.settle(first, &Self::sending_write(item), is_busy).await;
                told_of(item, &end)
            }
            Lost::Commit(item) => {
                let busy = |verdict: &CommitVerdict| *verdict == CommitVerdict::Busy;
                let end = self.settle(first, &Self::sending_commit(item), busy).await;
                told_of_commit(operation, &end)
            }
        };
        let outcome = outcome_of(operation, &told);
        let answer = outcome.map_or(failed("undone"), Answer::Outcome);
        self.stage.answer(call, answer);
        if outcome.is_none() {
            self.stage.lose(lost);
        }
    }

    /// Asks the ledger what it knows of an operation.
    pub async fn ask(&mut self, operation: OperationId) {
        let call = self.begin(0, Asked::Ask { operation: operation.0 });
        let (_, ledger) = self.gateway();
        let answer = match ledger.operation(operation).await {
            Ok(Some(OperationRecord::Applied(_) | OperationRecord::Committed(_))) => {
                Answer::Outcome(Outcome::Applied)
            }
            Ok(Some(OperationRecord::Buried)) => Answer::Outcome(Outcome::Buried),
            Ok(_) => Answer::Outcome(Outcome::NotKnown),
            Err(_) => failed("undone"),
        };
        self.stage.answer(call, answer);
    }
}
