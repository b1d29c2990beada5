//! Random batches for two ledgers at once: what a seed makes of what it remembers.

mod s3;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    AbortItem, Attempt, BlobId, BreakItem, By, CloseItem, CommitItem, CommitResource, CommitStep,
    Effect, ForwardEnd, IdempotencyKey, IntentItem, JoinItem, ListingPage, Mark, MarkItem,
    Multipart, PartItem, Payload, RenewItem, Retention, SealItem, SealKind, UploadItem, WriteItem,
};
use fence_core::{
    EntityTag, LockId, MaxHold, Metadata, OperationId, PrincipalName, Ttl, WriterName,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use super::build::{GATEWAY, digest, key, long, name, token};

/// The resources of a run.
pub const RESOURCES: [&str; 4] = ["a", "a:b", "c", "d"];
/// The objects of a run.
pub const OBJECTS: [&str; 3] = ["k", "k/1", "j"];
/// The idempotency keys of a run.
pub const KEYS: [&str; 3] = ["x", "y", "z"];
const OWNERS: [&str; 3] = ["ann", "bob", "carl"];

/// One act.
#[derive(Debug, Clone)]
pub enum Move {
    /// Locks to seal, on distinct resources.
    Seal(Vec<SealItem>),
    /// Callers that want to wait.
    Join(Vec<JoinItem>),
    /// Locks to renew.
    Renew(Vec<RenewItem>),
    /// Locks to release, whether only if they were never renewed, and for whom.
    Release(Vec<(LockId, bool, By)>),
    /// Resources to break.
    Break(Vec<BreakItem>),
    /// Resources to freeze, to protect, or the reverse.
    Mark(Vec<MarkItem>),
    /// Writes.
    Commit(Vec<WriteItem>),
    /// Requests to forward to upstreams.
    Open(Vec<IntentItem>),
    /// Intents to close.
    Close(Vec<CloseItem>),
    /// Locks to put in force, on any resource or on these.
    Complete(Option<Vec<fence_core::ResourceName>>),
    /// An intent to resolve.
    Resolve(OperationId),
    /// A commit of many.
    CommitMany(CommitItem),
    /// An upload that begins.
    Upload(UploadItem),
    /// An upload in parts that begins, and what it becomes.
    BeginInParts(UploadItem, Multipart),
    /// A part of one.
    PutPart(PartItem),
    /// An upload in parts that ends.
    Abort(AbortItem),
    /// A page of a list of a bucket.
    List(ListingPage),
    /// A pass of the sweeper of blobs: whether it gives up uploads, and forgets what was replaced.
    Tidy(bool, bool),
    /// A pass of the sweeper.
    Sweep(Retention),
    /// Other rules of access are put in force.
    Rules,
}

/// What stands on the resources, as far as moves aim at it.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// Per resource: the token sealed last and the version; 0 if there is none.
    pub fences: [(i64, i64); 4],
}

/// Makes moves from a seed.
pub struct Mover {
    rng: StdRng,
    number: i64,
    locks: Vec<LockId>,
    seals: Vec<SealItem>,
    /// With their resources.
    operations: Vec<(OperationId, usize)>,
    intents: Vec<OperationId>,
    commits: Vec<OperationId>,
    blobs: Vec<BlobId>,
    uploads: Vec<BlobId>,
    /// With upload and number.
    parts: Vec<(BlobId, i32, BlobId)>,
    waiters: Vec<JoinItem>,
    /// What comes next, in this order.
    planned: VecDeque<Move>,
    /// Whether acts are those of principals, and were allowed by rules of access.
    is_ruled: bool,
    /// The generation of those.
    rules: i64,
}

impl Mover {
    /// The moves of this seed.
    pub fn new(seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let locks = Vec::new();
        let (seals, operations, waiters) = (Vec::new(), Vec::new(), Vec::new());
        let (intents, commits, blobs) = (Vec::new(), Vec::new(), Vec::new());
        let (uploads, parts) = (Vec::new(), Vec::new());
        let (number, is_ruled, rules) = (10, seed % 2 == 1, 0);
        Self {
            rng,
            number,
            locks,
            seals,
            operations,
            intents,
            commits,
            blobs,
            uploads,
            parts,
            waiters,
            planned: VecDeque::new(),
            is_ruled,
            rules,
        }
    }

    /// On whose behalf an act is done: mostly Ann's; sometimes allowed by the rules in force, and now and then by those
    /// before them.
    fn by(&mut self) -> By {
        if !self.is_ruled {
            return By::default();
        }
        let (who, roles): (_, &[&str]) = match self.below(20) {
            0 => (None, &[]),
            1..4 => (Some("bob"), &[]),
            4 => (Some("carl"), &["loader", "reader"]),
            _ => (Some("ann"), &["reader"]),
        };
        let rules = match self.below(20) {
            0 => Some(self.rules - 1),
            1..8 => Some(self.rules),
            _ => None,
        };
        let who = who.map(|name| PrincipalName::new(name).expect("a name"));
        let roles: Vec<_> = roles.iter().map(|role| (*role).into()).collect();
        who.map(|who| By::of(who, roles)).unwrap_or_default().under(rules)
    }

    /// Who else may write, if anybody.
    fn writers(&mut self) -> Vec<WriterName> {
        let names: &[&str] = match self.is_ruled {
            true => self.one_of(&[&[][..], &["bob"], &["role:loader", "dora"]]),
            false => &[],
        };
        names.iter().map(|name| WriterName::new(name).expect("a name")).collect()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_ratio(percent, 100)
    }

    fn below(&mut self, end: usize) -> usize {
        self.rng.random_range(0..end)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn id(&mut self) -> Uuid {
        Uuid::from_u128(self.rng.random())
    }

    fn recent<T: Copy>(&mut self, known: fn(&Self) -> &Vec<T>, span: usize) -> Option<T> {
        let back = self.below(span);
        known(self).iter().rev().nth(back).copied()
    }

    /// Another lock id, or a recent one.
    fn lock(&mut self, again: u32) -> LockId {
        let known = self.recent(|mover| &mover.locks, 8).filter(|_| self.chance(again));
        known.unwrap_or_else(|| {
            let id = LockId(self.id());
            self.locks.push(id);
            id
        })
    }

    fn attempt(&mut self) -> Attempt {
        match self.below(10) {
            0 => Attempt::Rerun,
            1 => Attempt::Bury,
            _ => Attempt::First,
        }
    }

    /// The next act.
    pub fn next(&mut self, standing: &Standing) -> Move {
        if let Some(planned) = self.planned.pop_front() {
            return planned;
        }
        let many = 1 + self.below(8);
        if self.chance(12) {
            return self.of_s3(standing);
        }
        match self.below(100) {
            0..28 => Move::Seal(self.seals()),
            28..38 => Move::Renew((0..many).map(|_| self.renewal()).collect()),
            38..47 => Move::Release((0..1 + self.below(3)).map(|_| self.release()).collect()),
            47..49 => Move::Tidy(self.chance(30), self.chance(50)),
            49..54 => Move::Upload(self.upload(standing)),
            54..59 => {
                Move::Break((0..1 + self.below(4)).map(|_| self.break_item(standing)).collect())
            }
            59 => Move::Sweep(self.retention()),
            60 if self.is_ruled && self.chance(40) => {
                self.rules += 1;
                Move::Rules
            }
            60 => Move::Sweep(self.retention()),
            61..63 => Move::Join((0..1 + self.below(3)).map(|_| self.join()).collect()),
            68..72 => Move::Open((0..many).map(|_| self.intent(standing)).collect()),
            72..77 => Move::Close(self.all_opened()),
            77..81 => Move::Complete(
                self.chance(50).then(|| RESOURCES[..2].iter().map(|r| name(r)).collect()),
            ),
            81 => match self.opened(30) {
                Some(operation) => Move::Resolve(operation),
                None => Move::Complete(None),
            },
            63..68 => Move::Mark((0..1 + self.below(3)).map(|_| self.mark_item()).collect()),
            82..90 => Move::CommitMany(self.commit(standing)),
            _ => Move::Commit((0..many * 2).map(|_| self.write(standing)).collect()),
        }
    }

    fn seals(&mut self) -> Vec<SealItem> {
        // The same call again, perhaps with another ttl.
        if self.chance(20) && !self.seals.is_empty() {
            let back = self.below(self.seals.len().min(6));
            let item = self.seals[self.seals.len() - 1 - back].clone();
            self.number += 1;
            let ttl = if self.chance(50) { self.asked_ttl() } else { item.ttl };
            return vec![SealItem { number: Some(self.number), ttl, ..item }];
        }
        let mut free: Vec<&str> = RESOURCES.to_vec();
        let mut items = Vec::new();
        while !free.is_empty() && items.len() < 3 {
            let waiter = self
                .recent_waiter()
                .filter(|waiter| waiter.resources.iter().all(|name| free.contains(&name.as_str())));
            if let Some(waiter) = waiter {
                free.retain(|name| !waiter.resources.iter().any(|other| other.as_str() == *name));
                let item = self.seal(waiter.resources);
                let (lock, owner) = (waiter.lock, waiter.owner);
                let principal = waiter.by.principal().cloned();
                let turn = SealItem { lock, owner, principal, by: waiter.by, ..item };
                self.seals.pop();
                self.seals.push(turn.clone());
                items.push(turn);
                continue;
            }
            let mut resources = Vec::new();
            for _ in 0..=self.below(4) / 2 {
                if !free.is_empty() {
                    let at = self.below(free.len());
                    resources.push(name(free.swap_remove(at)));
                }
            }
            resources.sort();
            items.push(self.seal(resources));
        }
        items
    }

    fn seal(&mut self, resources: Vec<fence_core::ResourceName>) -> SealItem {
        self.number += 1 + self.below(3) as i64;
        let number = match self.below(20) {
            0 => None,
            1 => Some(self.number - 5),
            _ => Some(self.number),
        };
        // Seals are run again, but given up through a release.
        let attempt = if self.chance(15) { Attempt::Rerun } else { Attempt::First };
        let owner = self.one_of(&OWNERS).to_owned();
        let (lock, ttl) = (self.lock(25), Some(self.ttl()));
        let (kind, max_hold, metadata) = (self.kind(), self.max_hold(), self.metadata());
        let waits = self.chance(60).then_some(GATEWAY);
        let by = self.by();
        let principal = match (kind, self.chance(20)) {
            (SealKind::Transfer { .. }, true) => self.by().principal().cloned(),
            _ => by.principal().cloned(),
        };
        let writers = self.writers();
        let item = SealItem {
            kind,
            lock,
            resources,
            owner,
            ttl,
            max_hold,
            metadata,
            number,
            attempt,
            waits: waits.filter(|_| kind == SealKind::Lock),
            by,
            principal,
            writers,
        };
        self.seals.push(item.clone());
        item
    }

    /// A lock that was to be sealed lately.
    fn sealed(&mut self) -> Option<LockId> {
        let back = self.below(5);
        self.seals.iter().nth_back(back).map(|item| item.lock)
    }

    fn recent_waiter(&mut self) -> Option<JoinItem> {
        let back = self.below(4);
        self.waiters.iter().rev().nth(back).filter(|_| self.rng.random_ratio(40, 100)).cloned()
    }

    fn join(&mut self) -> JoinItem {
        if let Some(again) = self.recent_waiter() {
            return again;
        }
        let mut resources: Vec<_> =
            RESOURCES.iter().filter(|_| self.rng.random_ratio(40, 100)).map(|r| name(r)).collect();
        if resources.is_empty() {
            resources.push(name(RESOURCES[0]));
        }
        let owner = self.one_of(&OWNERS).to_owned();
        let by = self.by();
        let item = JoinItem {
            lock: self.lock(15),
            resources,
            owner,
            gateway: GATEWAY,
            waiters_max: 3,
            by,
        };
        self.waiters.push(item.clone());
        item
    }

    /// A lock, a successor, or a fence without a lock.
    fn kind(&mut self) -> SealKind {
        match self.below(10) {
            0 => SealKind::Transfer { from: self.lock(95) },
            1 | 2 => SealKind::Fence {
                order: self.chance(70).then(|| 1 + self.below(30) as i64),
                force: self.chance(40),
            },
            _ => SealKind::Lock,
        }
    }

    /// None, one that never ends within a run, or one that is over by the time of the next move.
    fn max_hold(&mut self) -> Option<MaxHold> {
        match self.below(10) {
            0 => Some(MaxHold::from_ms(1)),
            1 | 2 => Some(MaxHold::from_ms(3_600_000)),
            _ => None,
        }
    }

    fn metadata(&mut self) -> Metadata {
        let entries = (0..self.below(3)).map(|n| (format!("key {n}"), "ü \"\n\u{1}".repeat(n)));
        Metadata::new(entries.collect()).expect("small enough")
    }

    /// Infinite, for long, or expired by the time of the next move.
    fn ttl(&mut self) -> Ttl {
        match self.below(10) {
            0..3 => Ttl::from_ms(1),
            3 | 4 => Ttl::INFINITE,
            _ => long(),
        }
    }

    /// None is asked for now and then: of a lock that is there already, for the default is over before a slow
    /// run is.
    fn asked_ttl(&mut self) -> Option<Ttl> {
        (!self.chance(20)).then(|| self.ttl())
    }

    fn renewal(&mut self) -> RenewItem {
        let lock = self.sealed().filter(|_| self.chance(70)).unwrap_or_else(|| self.lock(95));
        RenewItem { lock, ttl: self.chance(50).then(|| self.ttl()), by: self.by() }
    }

    fn release(&mut self) -> (LockId, bool, By) {
        let by = self.by();
        let (lock, kept) = self.left();
        (lock, kept, by)
    }

    fn left(&mut self) -> (LockId, bool) {
        // Often of one that waits, so that lines get shorter, too; or of one that was sealed lately.
        let waiter = self.recent_waiter().map(|waiter| (waiter.lock, false));
        let sealed = self.sealed().map(|lock| (lock, true));
        match self.below(10) {
            0..5 => waiter,
            5..8 => sealed,
            _ => None,
        }
        .unwrap_or_else(|| (self.lock(95), self.chance(30)))
    }

    fn token(&mut self, standing: &Standing, resource: usize) -> i64 {
        let fence = standing.fences[resource].0.max(1);
        match self.below(20) {
            0 => i64::MAX,
            1 => fence + 1,
            2..5 => (fence - self.below(12) as i64).max(1),
            _ => fence,
        }
    }

    fn break_item(&mut self, standing: &Standing) -> BreakItem {
        let resource = self.below(4);
        let after = match self.below(5) {
            0 | 1 => Duration::ZERO,
            2 => Duration::from_millis(1),
            _ => Duration::from_secs(3600 * (1 + self.below(20)) as u64),
        };
        BreakItem {
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            after,
            reason: "random".into(),
            request_id: self.below(9).to_string(),
            by: self.by(),
        }
    }

    /// More often unfrozen than frozen, or little else would happen.
    fn mark_item(&mut self) -> MarkItem {
        let mark = match self.below(10) {
            0 => Mark::Freeze,
            1..6 => Mark::Unfreeze,
            6 | 7 => Mark::Protect,
            _ => Mark::Unprotect,
        };
        MarkItem {
            resource: name(self.one_of(&RESOURCES)),
            mark,
            reason: self.one_of(&["audit", "fire"]).to_owned(),
            request_id: self.below(9).to_string(),
            by: self.by(),
        }
    }

    fn retention(&mut self) -> Retention {
        let mut keep = || if self.chance(50) { Duration::ZERO } else { Duration::from_secs(3600) };
        Retention {
            keys: keep(),
            ended_locks: keep(),
            buried: keep(),
            // How far a pass comes depends on the order of events of one moment, which differs.
            history: None,
            rejections_max: 10,
            rows_per_pass: 1000,
        }
    }

    fn write(&mut self, standing: &Standing) -> WriteItem {
        // A gateway makes an id for one write: what comes under it again is about the same resource.
        let known = self.recent(|mover| &mover.operations, 12).filter(|_| self.chance(15));
        let (operation, resource) = known.unwrap_or_else(|| {
            let new = (OperationId(self.id()), self.below(4));
            self.operations.push(new);
            new
        });
        let version = standing.fences[resource].1;
        let lock = self.chance(15).then(|| self.lock(95));
        WriteItem {
            operation,
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            lock,
            sequence: self.chance(20).then(|| self.below(12) as i64),
            idempotency: self.chance(35).then(|| self.key()),
            object_condition: self.chance(40).then(|| self.condition(version)),
            resource_version: self.chance(15).then(|| version + self.below(3) as i64),
            effect: self.effect_of_write(),
            attempt: self.attempt(),
            taken_at: jiff::Timestamp::MAX,
            by: self.by(),
        }
    }

    /// All but a few of those opened lately.
    fn all_opened(&mut self) -> Vec<CloseItem> {
        let mut known: Vec<OperationId> = self.intents.iter().rev().take(60).copied().collect();
        known.retain(|_| self.rng.random_ratio(90, 100));
        let mut item = |operation| {
            let end = match self.chance(30) {
                true => ForwardEnd::Unsent,
                false => ForwardEnd::Answered(if self.chance(70) { 200 } else { 409 }),
            };
            CloseItem { operation, end }
        };
        known.into_iter().map(&mut item).collect()
    }

    fn opened(&mut self, span: usize) -> Option<OperationId> {
        self.recent(|mover| &mover.intents, span)
    }

    fn intent(&mut self, standing: &Standing) -> IntentItem {
        let resource = self.below(4);
        let version = standing.fences[resource].1;
        let known = self.opened(6).filter(|_| self.chance(15));
        let operation = known.unwrap_or_else(|| {
            let id = OperationId(self.id());
            self.intents.push(id);
            id
        });
        IntentItem {
            operation,
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            lock: self.chance(15).then(|| self.lock(95)),
            sequence: self.chance(20).then(|| self.below(12) as i64),
            resource_version: self.chance(15).then(|| version + self.below(3) as i64),
            drained: self.chance(70),
            upstream: self.one_of(&["one", "two"]).to_owned(),
            method: "POST".into(),
            path: "/x".into(),
            gateway: GATEWAY,
            // Over by the next act, or never.
            max_effect_delay: self.chance(50).then_some(Duration::from_millis(1)),
            attempt: self.attempt(),
            by: self.by(),
        }
    }

    /// Mostly on resources that one token holds.
    fn commit(&mut self, standing: &Standing) -> CommitItem {
        let known = self.recent(|mover| &mover.commits, 6).filter(|_| self.chance(12));
        let operation = known.unwrap_or_else(|| {
            let id = OperationId(self.id());
            self.commits.push(id);
            id
        });
        let first = self.below(4);
        let number = self.token(standing, first);
        let held = standing.fences[first].0;
        let mut resources = Vec::new();
        let mut steps = Vec::new();
        for (at, resource) in RESOURCES.into_iter().enumerate() {
            let (token, version) = standing.fences[at];
            if at != first && !(token == held && self.chance(70)) && !self.chance(4) {
                continue;
            }
            let demand = self.chance(8).then(|| version + i64::from(self.chance(20)));
            resources.push(CommitResource { resource: name(resource), version: demand });
            for object in OBJECTS {
                if self.chance(50) {
                    let condition = self.chance(12).then(|| self.condition(version));
                    let effect = self.effect_on(object);
                    steps.push(CommitStep {
                        resource: name(resource),
                        object_condition: condition,
                        effect,
                    });
                }
            }
        }
        // In any order; and no blob twice.
        for at in (1..steps.len()).rev() {
            let other = self.below(at + 1);
            steps.swap(at, other);
        }
        let mut seen = Vec::new();
        steps.retain(|step| match step.effect.blob() {
            Some(blob) if seen.contains(&blob) => false,
            blob => {
                seen.extend(blob);
                true
            }
        });
        let key = self.key_text();
        let idempotency = self.chance(35).then(|| IdempotencyKey {
            key,
            fingerprint: [2 + u8::from(self.chance(30)); 32],
            kept: self.kept(),
        });
        let lock = self.chance(5).then(|| self.lock(95));
        CommitItem {
            operation,
            resources: resources.into(),
            token: token(number),
            lock,
            sequence: self.chance(10).then(|| self.below(12) as i64),
            idempotency,
            steps: steps.into(),
            attempt: self.attempt(),
            taken_at: jiff::Timestamp::MAX,
            by: self.by(),
        }
    }

    fn upload(&mut self, standing: &Standing) -> UploadItem {
        let resource = self.below(4);
        let blob = BlobId(self.id());
        self.blobs.push(blob);
        UploadItem {
            blob: self.chance(95).then_some(blob),
            resource: name(RESOURCES[resource]),
            token: token(self.token(standing, resource)),
            lock: None,
            key: self.chance(10).then(|| self.key_text()),
            by: self.by(),
        }
    }

    fn key(&mut self) -> IdempotencyKey {
        let key = self.key_text();
        IdempotencyKey { key, fingerprint: [u8::from(self.chance(30)); 32], kept: self.kept() }
    }

    /// Longer than all that is done here takes, or as the settings say.
    fn kept(&mut self) -> Option<Duration> {
        self.chance(30).then_some(Duration::from_secs(3600))
    }

    fn condition(&mut self, version: i64) -> ObjectCondition {
        match self.below(4) {
            0 => ObjectCondition::Exists,
            1 => ObjectCondition::Absent,
            _ => ObjectCondition::OneOf(
                (0..self.below(5))
                    .map(|_| EntityTag {
                        generation: i64::from(self.chance(5)),
                        version: (version + 2 - self.below(5) as i64).max(0),
                    })
                    .collect(),
            ),
        }
    }

    /// Sometimes one that completes an upload in parts: a commit of many has none.
    fn effect_of_write(&mut self) -> Effect {
        let object = self.one_of(&OBJECTS);
        let completion = match self.chance(12) {
            true => self.completion(object),
            false => None,
        };
        completion.unwrap_or_else(|| self.effect())
    }

    fn effect(&mut self) -> Effect {
        match self.below(20) {
            0 => Effect::DeleteAll,
            _ => {
                let object = self.one_of(&OBJECTS);
                self.effect_on(object)
            }
        }
    }

    /// A delete, or a put with its bytes or a blob.
    fn effect_on(&mut self, object: &str) -> Effect {
        let object = key(object);
        let blob = self.recent(|mover| &mover.blobs, 4);
        match (self.below(20), blob) {
            (0..5, _) => Effect::Delete { key: object },
            (5..8, Some(blob)) => Effect::Put {
                key: object,
                content_type: "video/x".into(),
                payload: Payload::Blob(blob),
                size: 1 << 40,
                sha256: digest(blob.0.as_bytes()),
                about: self.about(),
                parts: None,
            },
            _ => {
                let body: Vec<u8> = (0..self.below(40)).map(|_| self.rng.random()).collect();
                let content_type = self.one_of(&["text/plain", "a/b; c=\"d\"", ""]).to_owned();
                let sha256 = digest(&body);
                let size = body.len() as i64;
                let payload = Payload::Inline(Bytes::from(body));
                Effect::Put {
                    key: object,
                    content_type,
                    payload,
                    size,
                    sha256,
                    about: self.about(),
                    parts: None,
                }
            }
        }
    }

    /// The ids that the run has used.
    pub fn known(&self) -> (&[LockId], Vec<OperationId>) {
        let writes = self.operations.iter().map(|(id, _)| *id);
        (&self.locks, writes.chain(self.commits.iter().copied()).collect())
    }
}
