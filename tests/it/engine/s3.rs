//! What the S3 side asks of the engine: whose a key is, and which buckets there are.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::ports::{
    Buckets as _, By, Credential, DroppedBucket, Ledger as _, MadeBucket, Patience, RenewItem,
    RenewVerdict, Rulebook as _, SealItem, SealVerdict,
};
use fence_core::{PrincipalName, Token, Ttl};
use fence_tests::conformance::ledger::build::{rules_change, seal};
use fence_tests::process::eventually;
use fencegate::engine::access::{Asks, LockHolder, Permit, Want};
use fencegate::engine::{Acquire, EngineError};
use fencegate_access::Action;
use fencegate_s3::bucket::{BucketName, Depth};

use crate::engine::rig::{R, Rig, asking, name};

/// Rules in which a principal of this name may write, and has this key of S3.
fn rules(principal: &str, kid: &str) -> String {
    format!(
        "[[roles]]\nname = \"r\"\nallow = [\"write\"]\nresources = [\"*\"]\n\
         [[principals]]\nname = \"{principal}\"\nroles = [\"r\"]\ns3_keys = [\"{kid}\"]\n"
    )
}

fn principal(name: &str) -> PrincipalName {
    PrincipalName::new(name).unwrap()
}

/// Whether whoever asks may write, by what the ledger says now.
async fn may_write(asks: &Asks) -> bool {
    let wanted = asks.may(Want::On(Action::Write, name(R))).await;
    wanted.is_ok() && asks.confirm().await.is_ok()
}

/// The holder of a lock that another principal has handed over to this one.
fn holder(principal: &PrincipalName) -> LockHolder {
    LockHolder { principal: principal.clone(), credential: None }
}

fn is_nobody(asks: Result<Asks, EngineError>) -> bool {
    matches!(asks, Err(EngineError::Unauthenticated))
}

#[tokio::test]
async fn a_key_is_whose_the_rules_in_force_say() {
    let rig = Rig::new();
    let access = rig.engine.access();
    assert!(
        is_nobody(access.of_s3_key("a7").await),
        "where there are no rules, no principal has it"
    );
    rig.memory().apply_rules(rules_change(&rules("ann", "a7"))).await.unwrap();
    // This gateway need not have heard of them.
    let ann = access.of_s3_key("a7").await.unwrap();
    assert_eq!(ann.principal(), Some(principal("ann")));
    assert!(may_write(&ann).await);
    assert!(is_nobody(access.of_s3_key("b8").await));
    rig.memory().apply_rules(rules_change(&rules("bob", "b8"))).await.unwrap();
    assert!(!may_write(&ann.alike()).await, "it is taken away");
    assert!(is_nobody(access.of_s3_key("a7").await));
    assert_eq!(access.of_s3_key("b8").await.unwrap().principal(), Some(principal("bob")));
    let revoked = format!("revoked = [\"key:b8\"]\n{}", rules("bob", "b8"));
    rig.memory().apply_rules(rules_change(&revoked)).await.unwrap();
    let bob = access.of_s3_key("b8").await;
    assert!(bob.is_err() || !may_write(&bob.unwrap()).await, "it is revoked");
}

#[tokio::test]
async fn with_the_key_of_a_lock_its_principal_asks() {
    let rig = Rig::new();
    let access = rig.engine.access();
    let (ann, bob) = (principal("ann"), principal("bob"));
    let anybody = access.of_holder(None).await.unwrap();
    assert!(!anybody.is_ruled() && may_write(&anybody).await);
    rig.memory().apply_rules(rules_change(&rules("ann", "a7"))).await.unwrap();
    assert!(!may_write(&anybody.alike()).await, "rules are in force by now");
    let asks = access.of_holder(Some(&holder(&ann))).await.unwrap();
    assert_eq!(asks.principal(), Some(ann.clone()));
    assert!(may_write(&asks).await);
    assert!(is_nobody(access.of_holder(None).await), "it was taken before the rules");
    assert!(is_nobody(access.of_holder(Some(&holder(&bob))).await));
    rig.memory().apply_rules(rules_change(&rules("bob", "b8"))).await.unwrap();
    assert!(may_write(&access.of_holder(Some(&holder(&bob))).await.unwrap()).await);
    assert!(is_nobody(access.of_holder(Some(&holder(&ann))).await), "the rules know it no more");
}

#[tokio::test]
async fn a_key_finds_its_lock_until_that_is_forgotten() {
    let rig = Rig::new();
    let grant = rig.engine.acquire(asking(R)).await.unwrap().grant;
    let found = rig.engine.lock_of_s3_key(grant.token, grant.lock).await.unwrap();
    assert_eq!((found.grant.lock, found.ended), (grant.lock, None));
    rig.engine.release(grant.lock, Permit::default()).await.unwrap();
    let ended = rig.engine.lock_of_s3_key(grant.token, grant.lock).await.unwrap();
    assert!(ended.ended.is_some());
    let other = Token::new(grant.token.get() + 1).unwrap();
    let found = rig.engine.lock_of_s3_key(other, grant.lock).await;
    assert!(matches!(found, Err(EngineError::LockNotFound)), "{found:?}");
}

/// Nobody takes it over, so it never ends.
#[tokio::test]
async fn the_key_of_a_lapsed_lock_is_forgotten_as_that_of_an_ended_one() {
    let rig = Rig::forgetting_locks();
    let held = rig.granted("held").await;
    let brief = Acquire { ttl: Some(Ttl::from_ms(1)), ..asking(R) };
    let lapsed = rig.engine.acquire(brief).await.unwrap().grant;
    eventually("it is forgotten", async || {
        let found = rig.engine.lock_of_s3_key(lapsed.token, lapsed.lock).await;
        matches!(found, Err(EngineError::LockNotFound)).then_some(())
    })
    .await;
    rig.engine.lock_of_s3_key(held.token, held.lock).await.unwrap();
}

/// Although the gateway keeps in mind who held it before.
#[tokio::test]
async fn the_key_of_a_lock_follows_the_credential_that_renewed_it() {
    let rig = Rig::new();
    let shows = |name: &str| By::of(principal("ann"), []).showing(credential(name));
    let item = SealItem {
        by: shows("key:a7").under(1),
        principal: Some(principal("ann")),
        ..seal([R], 10)
    };
    rig.memory().apply_rules(rules_change(&rules("ann", "a7\", \"a8"))).await.unwrap();
    let patience = Patience::Skip;
    let sealed = rig.memory().seal(0, [item.clone()].into(), patience).await.unwrap();
    let SealVerdict::Sealed(grant, _) = &sealed[0] else { panic!("{sealed:?}") };
    let asks = async || rig.engine.asks_of_s3_lock(grant.token, grant.lock).await;
    assert!(may_write(&asks().await.unwrap()).await);
    let renewal = RenewItem { lock: grant.lock, ttl: None, by: shows("key:a8").under(1) };
    let renewed = rig.memory().renew([renewal].into(), patience).await.unwrap();
    assert!(matches!(renewed[0], RenewVerdict::Renewed { .. }), "{renewed:?}");
    rig.memory().apply_rules(rules_change(&rules("ann", "a8"))).await.unwrap();
    // The first question after a change goes by the rules of before.
    may_write(&asks().await.unwrap()).await;
    assert!(
        may_write(&asks().await.unwrap()).await,
        "the key that took it is gone, and the other is not"
    );
    rig.memory().apply_rules(rules_change(&rules("ann", "a9"))).await.unwrap();
    let after = asks().await;
    assert!(after.is_err() || !may_write(&after.unwrap()).await, "its key is gone");
}

fn credential(name: &str) -> Credential {
    Credential { name: name.to_owned(), ends: None }
}

#[tokio::test]
async fn a_bucket_that_another_gateway_made_is_known_at_once() {
    let rig = Rig::new();
    let (elsewhere, by) = (rig.memory(), By::default());
    let known = async |name: &str| {
        rig.engine.bucket(&BucketName::new(name).unwrap()).await.unwrap().map(|it| it.depth)
    };
    for number in 0..3 {
        let name = format!("lake-{number}");
        assert_eq!(known(&name).await, None);
        let made = elsewhere.make_bucket(&name, number, &by).await.unwrap();
        assert!(matches!(made, MadeBucket::Made(_)), "{made:?}");
        assert_eq!(known(&name).await, Some(number));
    }
    // One that is deleted here is gone at once; one that is deleted elsewhere within a second.
    let first = BucketName::new("lake-0").unwrap();
    rig.engine.drop_bucket(first.clone(), Permit::default()).await.unwrap();
    assert_eq!(known("lake-0").await, None);
    let again = rig.engine.drop_bucket(first.clone(), Permit::default()).await;
    assert!(matches!(again, Err(EngineError::BucketNotFound)), "{again:?}");
    assert_eq!(known("lake-1").await, Some(1));
    assert_eq!(elsewhere.drop_bucket("lake-1", &by).await, Ok(DroppedBucket::Dropped));
    fence_tests::process::eventually("it is gone here, too", async || {
        known("lake-1").await.is_none().then_some(())
    })
    .await;
    let other = rig.engine.make_bucket(first, Depth::new(2).unwrap(), Permit::default()).await;
    assert!(matches!(other, Err(EngineError::BucketDepthDiffers { depth: 0 })), "{other:?}");
}

#[tokio::test]
async fn a_change_of_buckets_is_held_to_the_rules_in_force() {
    let rig = Rig::new();
    let admin = |name: &str| rules(name, "a7").replace("\"write\"", "\"admin\"");
    rig.memory().apply_rules(rules_change(&admin("ann"))).await.unwrap();
    let ann = rig.engine.access().of_s3_key("a7").await.unwrap();
    ann.may(Want::All(Action::Admin, String::new())).await.unwrap();
    let lake = || BucketName::new("lake").unwrap();
    // Newer rules that still allow it are asked by themselves.
    rig.memory().apply_rules(rules_change(&format!("\n{}", admin("ann")))).await.unwrap();
    rig.engine.make_bucket(lake(), Depth::ZERO, ann.permit()).await.unwrap();
    let permit = ann.permit();
    rig.memory().apply_rules(rules_change(&admin("bob"))).await.unwrap();
    let dropped = rig.engine.drop_bucket(lake(), permit).await;
    assert!(dropped.is_err(), "{dropped:?}");
    assert_eq!(rig.memory().buckets().await.unwrap().len(), 1);
}
