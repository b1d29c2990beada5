//! Acts in any order and company: no two of them ever wait for each other.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own and makes ids")]

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fence_core::LockId;
use fence_core::ports::{
    BreakItem, BreakVerdict, By, Ledger, Patience, ReleaseItem, ReleaseVerdict, RenewItem,
    RenewVerdict, SealItem, SealVerdict, WriteVerdict,
};
use fencegate::ledger::postgres::PgLedger;
use rand::seq::{IndexedRandom, SliceRandom};
use uuid::Uuid;

use crate::schedules::forced::{Ground, keyed, put, sealing};

const TASKS: usize = 8;
const BATCHES: usize = 200;
const RESOURCES: usize = 10;

/// What all tasks share.
struct Field {
    names: Vec<String>,
    number: AtomicI64,
    /// Locks and tokens that were granted, the newest last.
    granted: Mutex<Vec<(LockId, String, i64)>>,
    /// Ids that no lock has, and how far they have been used.
    strangers: Vec<LockId>,
    strange: AtomicUsize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    decided: u64,
    busy: u64,
}

impl Tally {
    fn count(&mut self, busy: impl Iterator<Item = bool>) {
        for busy in busy {
            if busy {
                self.busy += 1;
            } else {
                self.decided += 1;
            }
        }
    }
}

impl Field {
    fn some_names(&self) -> Vec<&str> {
        let count = rand::random_range(1..=RESOURCES);
        let mut names: Vec<_> = self.names.sample(&mut rand::rng(), count).collect();
        names.shuffle(&mut rand::rng());
        names.into_iter().map(String::as_str).collect()
    }

    fn some_granted(&self) -> Vec<(LockId, String, i64)> {
        let granted = self.granted.lock().unwrap();
        let recent = &granted[granted.len().saturating_sub(3 * RESOURCES)..];
        recent.sample(&mut rand::rng(), rand::random_range(1..=6)).cloned().collect()
    }

    /// Ids of locks, known and unknown, in any order.
    fn some_ids(&self) -> Vec<LockId> {
        let mut ids: Vec<_> = self.some_granted().into_iter().map(|(id, _, _)| id).collect();
        // Tasks that release at the same time have unknown ids in common.
        let next = self.strange.fetch_add(1, Ordering::SeqCst);
        ids.extend(self.strangers[next..next + 24].sample(&mut rand::rng(), 16));
        ids.shuffle(&mut rand::rng());
        ids
    }
}

async fn seals(field: &Field, ledger: &PgLedger, tally: &mut Tally, patience: Patience) {
    let mut names = field.some_names();
    if patience != Patience::Skip {
        names.truncate(1);
    }
    let first = field.number.fetch_add(names.len() as i64, Ordering::SeqCst);
    let items: Arc<[SealItem]> =
        names.iter().zip(first..).map(|(name, number)| sealing(name, number)).collect();
    let verdicts = ledger.seal(0, items, patience).await.unwrap();
    tally.count(verdicts.iter().map(|verdict| *verdict == SealVerdict::Busy));
    let mut granted = field.granted.lock().unwrap();
    for verdict in verdicts {
        if let SealVerdict::Sealed(grant, _) = verdict {
            granted.push((grant.lock, grant.resources[0].to_string(), grant.token.get()));
        }
    }
}

async fn commits(field: &Field, ledger: &PgLedger, tally: &mut Tally, patience: Patience) {
    let mut items: Vec<_> = field
        .some_granted()
        .into_iter()
        .flat_map(|(_, name, token)| {
            let key = format!("key-{}", rand::random_range(0..50));
            [put(&name, token, "x"), keyed(&key, put(&name, token, "x"))]
        })
        .collect();
    items.shuffle(&mut rand::rng());
    if patience != Patience::Skip {
        items.truncate(1);
    }
    let verdicts = ledger.commit(items.into(), patience).await.unwrap();
    tally.count(verdicts.iter().map(|verdict| *verdict == WriteVerdict::Busy));
}

async fn breaks(field: &Field, ledger: &PgLedger, tally: &mut Tally) {
    let items = field.some_granted().into_iter().map(|(_, name, token)| BreakItem {
        resource: fence_core::ResourceName::new(name).unwrap(),
        token: fence_core::Token::new(token).unwrap(),
        after: Duration::ZERO,
        reason: "test".to_owned(),
        request_id: "test-request".to_owned(),
        by: By::default(),
    });
    let verdicts = ledger.break_locks(items.collect(), Patience::Skip).await.unwrap();
    tally.count(verdicts.iter().map(|verdict| *verdict == BreakVerdict::Busy));
}

async fn random_batch(field: &Field, ledger: &PgLedger, tally: &mut Tally) {
    let skip = Patience::Skip;
    let wait = Patience::Wait(Duration::from_secs(30));
    match rand::random_range(0..8) {
        0 | 1 => seals(field, ledger, tally, skip).await,
        2 => seals(field, ledger, tally, wait).await,
        3 => commits(field, ledger, tally, skip).await,
        4 => commits(field, ledger, tally, wait).await,
        5 => {
            let renewal = |lock| RenewItem {
                lock,
                ttl: Some(fence_core::Ttl::from_ms(0)),
                by: By::default(),
            };
            let items = field.some_ids().into_iter().map(renewal).collect();
            let verdicts = ledger.renew(items, skip).await.unwrap();
            tally.count(verdicts.iter().map(|verdict| *verdict == RenewVerdict::Busy));
        }
        6 => {
            let items = field.some_ids().into_iter().map(ReleaseItem::from).collect();
            let verdicts = ledger.release(items, skip).await.unwrap();
            tally.count(verdicts.iter().map(|verdict| *verdict == ReleaseVerdict::Busy));
        }
        _ => breaks(field, ledger, tally).await,
    }
}

#[tokio::test]
async fn random_batches_on_the_same_resources_never_deadlock() {
    let ground = Ground::new().await;
    let names: Vec<_> = (0..RESOURCES).map(|i| format!("r-{i}")).collect();
    let field = Field {
        number: AtomicI64::new(100),
        granted: Mutex::default(),
        strange: AtomicUsize::new(0),
        strangers: (0..TASKS * BATCHES + 24).map(|_| LockId(Uuid::new_v4())).collect(),
        names,
    };
    for (name, number) in field.names.iter().zip(1..) {
        let grant = ground.sealed(name, number).await;
        field.granted.lock().unwrap().push((grant.lock, name.clone(), number));
    }
    let field = Arc::new(field);
    let tasks = (0..TASKS).map(|_| {
        let (field, ledger) = (Arc::clone(&field), ground.other_ledger());
        tokio::spawn(async move {
            let mut tally = Tally::default();
            for _ in 0..BATCHES {
                random_batch(&field, &ledger, &mut tally).await;
            }
            tally
        })
    });
    let tallies = futures::future::join_all(tasks).await;
    let tallies: Vec<_> = tallies.into_iter().map(Result::unwrap).collect();
    let decided: u64 = tallies.iter().map(|tally| tally.decided).sum();
    let busy: u64 = tallies.iter().map(|tally| tally.busy).sum();
    eprintln!("{} batches: {decided} items decided, {busy} busy", TASKS * BATCHES);
    assert!(decided > 1000, "{tallies:?}");
    let gaps = ground
        .number(
            "SELECT count(*) FROM fencegate.fences f WHERE (
                 SELECT count(o.version) <> coalesce(max(o.version), 0) FROM fencegate.operations o
                 WHERE o.resource = f.resource)
             OR f.token <> (SELECT max(g.token) FROM fencegate.grants g
                            WHERE g.resource = f.resource)",
        )
        .await;
    assert_eq!(gaps, 0);
}
