//! The watch hub: who is told, what it costs, and how many it takes.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on a clock of its own")]

use fencegate::engine::access::Permit;
use std::time::Duration;

use fence_core::ports::{Ledger as _, Patience};
use fence_core::{LockEnd, LockId, LockState, ResourceName};
use fencegate::engine::{EngineError, WATCHERS_MAX, Watcher};
use futures::future::join_all;

use crate::engine::rig::{R, Rig};
use crate::setup::random_id;

async fn ended(watcher: &mut Watcher) -> Option<LockEnd> {
    while watcher.record().ended.is_none() {
        watcher.changed().await?;
    }
    watcher.record().ended.map(|(how, _)| how)
}

#[tokio::test]
async fn a_watcher_hears_of_this_gateway_and_of_others() {
    let rig = Rig::new();
    for other in [false, true] {
        let grant = rig.granted(R).await;
        let mut watchers = [
            rig.engine.watch(grant.lock, &Permit::default()).await.unwrap(),
            rig.engine.watch(grant.lock, &Permit::default()).await.unwrap(),
        ];
        match other {
            false => drop(rig.engine.release(grant.lock, Permit::default()).await.unwrap()),
            true => {
                let items = [grant.lock.into()].into();
                rig.memory().release(items, Patience::Skip).await.map(drop).unwrap();
            }
        }
        for watcher in &mut watchers {
            assert_eq!(ended(watcher).await, Some(LockEnd::Released));
        }
    }
    let unknown = rig.engine.watch(LockId(random_id()), &Permit::default()).await;
    assert!(matches!(unknown, Err(EngineError::LockNotFound)));
}

/// A paused clock goes on only when everything due has been read.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_nobody_watches() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    rig.engine.renew(grant.lock, None, Permit::default()).await.unwrap();
    assert!(rig.ledger.looks().is_empty());
    let watcher = rig.engine.watch(grant.lock, &Permit::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let reads = rig.ledger.looks().len();
    assert!((1..=8).contains(&reads), "{reads} reads in two seconds");
    drop(watcher);
    // The next look finds that nobody watches any more.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let reads = rig.ledger.looks().len();
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.engine.renew(grant.lock, None, Permit::default()).await.unwrap();
    assert_eq!(rig.ledger.looks().len(), reads);
    // And it begins again.
    let mut watcher = rig.engine.watch(grant.lock, &Permit::default()).await.unwrap();
    rig.engine.release(grant.lock, Permit::default()).await.unwrap();
    assert_eq!(ended(&mut watcher).await, Some(LockEnd::Released));
}

#[tokio::test]
async fn there_is_a_limit_to_watchers() {
    let rig = Rig::new();
    let names = (0..1200).map(|n| format!("r:{n}"));
    let mut locks = Vec::new();
    for name in names {
        locks.push(rig.granted(&name).await.lock);
    }
    let permit = Permit::default();
    let watch = |n: usize| rig.engine.watch(locks[n % locks.len()], &permit);
    let mut watchers: Vec<Watcher> =
        join_all((0..WATCHERS_MAX).map(watch)).await.into_iter().map(Result::unwrap).collect();
    let one_more = rig.engine.watch(locks[0], &Permit::default()).await;
    assert!(matches!(one_more, Err(EngineError::Overloaded(_))));
    let largest = rig.ledger.looks().into_iter().max();
    assert_eq!(largest, Some(500), "locks are read in batches");
    watchers.pop();
    let mut last = rig.engine.watch(locks[0], &Permit::default()).await.unwrap();
    // All are told.
    rig.engine.release(locks[0], Permit::default()).await.unwrap();
    assert_eq!(ended(&mut last).await, Some(LockEnd::Released));
    let of_first = watchers.iter_mut().step_by(locks.len());
    for watcher in of_first {
        assert_eq!(ended(watcher).await, Some(LockEnd::Released));
    }
    drop((watchers, last));
    drop(join_all((0..WATCHERS_MAX).map(watch)).await);
}

#[tokio::test]
async fn a_watcher_of_a_resource_hears_of_this_gateway_and_of_others() {
    let rig = Rig::new();
    for other in [false, true] {
        let grant = rig.granted(R).await;
        let name = &grant.resources[0];
        let mut watchers = [
            rig.engine.watch_resource(name.clone()).await.unwrap(),
            rig.engine.watch_resource(name.clone()).await.unwrap(),
        ];
        match other {
            false => drop(rig.engine.release(grant.lock, Permit::default()).await.unwrap()),
            true => {
                let items = [grant.lock.into()].into();
                rig.memory().release(items, Patience::Skip).await.map(drop).unwrap();
            }
        }
        for watcher in &mut watchers {
            while watcher.record().state != LockState::Released {
                watcher.changed().await.unwrap();
            }
        }
    }
    let unknown = rig.engine.watch_resource(ResourceName::new("never").unwrap()).await;
    assert!(matches!(unknown, Err(EngineError::ResourceNotFound)));
}
