//! A commit in the form that the ledger takes, and what the ledger's answer means for each step.

use std::collections::{BTreeSet, HashMap};

use fence_core::ports::{
    Applied, Attempt, COMMIT_KIND, CommitItem, CommitResource, CommitStep, Did, Effect,
    IdempotencyKey,
};
use fence_core::{EntityTag, OperationId, ResourceName};
use jiff::Timestamp;

use super::{CommitHead, CommitOutcome, Step, StepOutcome};
use crate::engine::EngineError;
use crate::engine::data::writes::{effect, fingerprint_of};

/// Bodies are hashed so many bytes at a time; in between, others have their turn.
const HASHED_AT_ONCE: u64 = 1 << 20;

/// The commit as the ledger takes it, with its digests and fingerprint.
pub(super) async fn item(
    operation: OperationId,
    taken_at: Timestamp,
    head: &CommitHead,
    requested: Vec<Step>,
) -> CommitItem {
    let mut steps = Vec::with_capacity(requested.len());
    let mut hashed = 0;
    for step in requested {
        let effect = effect(step.effect);
        if let Effect::Put { size, .. } = &effect {
            hashed += size.unsigned_abs();
        }
        let Step { resource, object_condition, .. } = step;
        steps.push(CommitStep { resource, object_condition, effect });
        if hashed >= HASHED_AT_ONCE {
            hashed = 0;
            tokio::task::yield_now().await;
        }
    }
    let named: BTreeSet<_> = steps.iter().map(|step| &step.resource).collect();
    debug_assert!(named.into_iter().all(|name| head.resources.contains_key(name)));
    let resource = |(name, version): (&ResourceName, &Option<i64>)| CommitResource {
        resource: name.clone(),
        version: *version,
    };
    let fingerprint = || fingerprint(&steps);
    let (key, kept) = (head.idempotency_key.clone(), head.key_kept);
    CommitItem {
        operation,
        resources: head.resources.iter().map(resource).collect(),
        token: head.token,
        lock: head.lock,
        sequence: head.sequence,
        idempotency: key.map(|key| IdempotencyKey { key, fingerprint: fingerprint(), kept }),
        steps: steps.into(),
        attempt: Attempt::First,
        taken_at,
        by: head.permit.by(),
    }
}

/// A digest of what a retry must repeat, in the caller's order.
fn fingerprint(steps: &[CommitStep]) -> [u8; 32] {
    let parts = steps.iter().flat_map(|step| {
        let (content_type, sha256): (&str, &[u8]) = match &step.effect {
            Effect::Put { content_type, sha256, .. } => (content_type, sha256),
            Effect::Delete { .. } | Effect::DeleteAll => ("", &[]),
        };
        let (name, key) = (step.resource.as_str(), step.key().map_or("", |key| key.as_str()));
        [
            step.effect.word().as_bytes(),
            name.as_bytes(),
            key.as_bytes(),
            content_type.as_bytes(),
            sha256,
        ]
    });
    fingerprint_of(std::iter::once(b"COMMIT".as_slice()).chain(parts))
}

/// What each step did, from what the ledger keeps of the commit on each resource.
pub(super) fn outcome(
    applied: Vec<Applied>,
    steps: &[CommitStep],
    replayed: bool,
) -> Result<CommitOutcome, EngineError> {
    let torn = || EngineError::Defect("a commit and what is kept of it do not match".into());
    let operation = applied.first().ok_or_else(torn)?.operation;
    if applied.iter().any(|applied| applied.kind != COMMIT_KIND) {
        return Err(torn());
    }
    let part = |applied: &Applied| {
        let generation = applied.generation;
        let tag = applied.version.map(|version| EntityTag { generation, version });
        (applied.resource.clone(), (tag, applied.did.clone().into_iter()))
    };
    let mut parts: HashMap<_, _> = applied.iter().map(part).collect();
    let done = |step: &CommitStep| {
        let (tag, did) = parts.get_mut(&step.resource)?;
        let did = did.next()?;
        Some(StepOutcome { step: step.clone(), did, tag: tag.filter(|_| did != Did::Nothing) })
    };
    let steps = steps.iter().map(done).collect::<Option<Vec<_>>>().ok_or_else(torn)?;
    Ok(CommitOutcome { operation, applied, steps, replayed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fence_core::ObjectKey;
    use fence_core::etag::ObjectCondition;
    use fence_core::ports::Payload;

    fn step(resource: &str, key: &str, body: Option<&'static str>) -> CommitStep {
        let key = ObjectKey::new(key).unwrap();
        let effect = match body {
            None => Effect::Delete { key },
            Some(body) => Effect::Put {
                key,
                content_type: "text/plain".into(),
                payload: Payload::Inline(Bytes::from_static(body.as_bytes())),
                size: body.len() as i64,
                sha256: [body.len() as u8; 32],
                about: None,
                parts: None,
            },
        };
        let resource = ResourceName::new(resource).unwrap();
        CommitStep { resource, object_condition: None, effect }
    }

    #[test]
    fn a_fingerprint_tells_all_payloads_apart() {
        let prints: Vec<_> = [
            vec![step("a", "k", Some("x"))],
            vec![step("b", "k", Some("x"))],
            vec![step("a", "l", Some("x"))],
            vec![step("a", "k", Some("xy"))],
            vec![step("a", "k", None)],
            vec![step("a", "k", Some("x")), step("b", "k", Some("x"))],
            vec![step("b", "k", Some("x")), step("a", "k", Some("x"))],
        ]
        .iter()
        .map(|steps| fingerprint(steps))
        .collect();
        let distinct: BTreeSet<_> = prints.iter().collect();
        assert_eq!(distinct.len(), prints.len());
        let condition = Some(ObjectCondition::Absent);
        let demanding = CommitStep { object_condition: condition, ..step("a", "k", Some("x")) };
        assert_eq!(fingerprint(&[demanding]), prints[0], "conditions do not count");
    }

    #[test]
    fn steps_find_what_they_did_among_their_resources() {
        let applied = |resource: &str, version, did| Applied {
            operation: OperationId(uuid::Uuid::nil()),
            resource: ResourceName::new(resource).unwrap(),
            kind: COMMIT_KIND.into(),
            key: None,
            version,
            generation: 1,
            created: false,
            size: 0,
            sha256: None,
            owner: "ann".into(),
            committed_at: jiff::Timestamp::UNIX_EPOCH,
            did,
        };
        let steps = [step("b", "k", Some("x")), step("a", "k", None), step("b", "l", None)];
        let all = vec![
            applied("a", None, vec![Did::Nothing]),
            applied("b", Some(7), vec![Did::Created, Did::Nothing]),
        ];
        let done = outcome(all.clone(), &steps, true).unwrap();
        let tag = Some(EntityTag { generation: 1, version: 7 });
        let found: Vec<_> = done.steps.iter().map(|step| (step.did, step.tag)).collect();
        assert_eq!(found, [(Did::Created, tag), (Did::Nothing, None), (Did::Nothing, None)]);
        assert!(outcome(all[..1].to_vec(), &steps, true).is_err());
        assert!(outcome(Vec::new(), &steps, true).is_err());
    }
}
