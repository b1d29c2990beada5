//! Small builders, so that each case reads in a few lines.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fence_core::etag::ObjectCondition;
use fence_core::ports::{
    Applied, Attempt, BreakItem, BreakVerdict, By, Effect, Grant, Holder, IdempotencyKey, JoinItem,
    JoinVerdict, Ledger, Object, Patience, Payload, ReadItem, ReadVerdict, ReleaseVerdict,
    RenewItem, RenewVerdict, RulesChange, SealItem, SealKind, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{
    EntityTag, LockId, Metadata, ObjectKey, OperationId, PrincipalName, Refusal, ResourceName,
    Token, Ttl,
};
use uuid::Uuid;

/// A ttl that no test outlives.
pub fn long() -> Ttl {
    Ttl::from_ms(Ttl::MAX.as_millis() as i64)
}

/// A ttl that ends within a test; [`expire`] waits for it.
pub fn short() -> Ttl {
    Ttl::from_ms(20)
}

/// Waits until locks of the ttl [`short`] have expired.
pub async fn expire() {
    crate::conformance::pause(40).await;
}

/// A resource name.
pub fn name(text: &str) -> ResourceName {
    ResourceName::new(text).expect("tests use good names")
}

/// An object key.
pub fn key(text: &str) -> ObjectKey {
    ObjectKey::new(text).expect("tests use good keys")
}

/// A token.
pub fn token(number: i64) -> Token {
    Token::new(number).expect("tests use positive tokens")
}

/// A new lock id.
pub fn lock_id() -> LockId {
    LockId(Uuid::new_v4())
}

/// A new operation id.
pub fn operation_id() -> OperationId {
    OperationId(Uuid::now_v7())
}

/// The tag of an object that this version wrote.
pub fn tag(version: i64) -> EntityTag {
    EntityTag { generation: 0, version }
}

/// `If-Match` with the tag of this version.
pub fn if_match(version: i64) -> Option<ObjectCondition> {
    Some(ObjectCondition::OneOf(vec![tag(version)]))
}

/// What stands for the SHA-256 of a body here: the ledgers keep it and compute nothing.
pub fn digest(body: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    for (position, byte) in body.iter().enumerate() {
        let place: &mut u8 = &mut digest[position % 32];
        *place = place.wrapping_mul(31).wrapping_add(*byte).wrapping_add(1);
    }
    digest
}

/// An idempotency key that stands for this payload.
pub fn keyed(text: &str, payload: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key: text.into(), fingerprint: digest(payload.as_bytes()), kept: None })
}

/// The same, remembered for so long.
pub fn kept(text: &str, payload: &str, kept: Duration) -> Option<IdempotencyKey> {
    keyed(text, payload).map(|key| IdempotencyKey { kept: Some(kept), ..key })
}

/// Ann asks for these resources with this number, for long.
pub fn seal<const N: usize>(resources: [&str; N], number: i64) -> SealItem {
    let mut resources = resources.map(name).to_vec();
    resources.sort();
    SealItem {
        kind: SealKind::Lock,
        lock: lock_id(),
        resources,
        owner: "ann".into(),
        ttl: Some(long()),
        max_hold: None,
        metadata: Metadata::default(),
        number: Some(number),
        attempt: Attempt::First,
        waits: None,
        by: By::default(),
        principal: None,
        writers: Vec::new(),
    }
}

/// Ann sets a fence without a lock.
pub fn fence(resource: &str, number: i64, order: Option<i64>, force: bool) -> SealItem {
    SealItem { kind: SealKind::Fence { order, force }, ..seal([resource], number) }
}

/// The verdict on one seal in the epoch that stands.
pub async fn seal_one(ledger: &dyn Ledger, item: SealItem) -> SealVerdict {
    let epoch = ledger.epoch().await.expect("an epoch").number;
    let verdicts = ledger.seal(epoch, Arc::from([item]), Patience::Skip).await;
    only(verdicts.expect("the seal is decided"))
}

/// A seal that succeeds.
pub async fn granted(ledger: &dyn Ledger, item: SealItem) -> Grant {
    match seal_one(ledger, item).await {
        SealVerdict::Sealed(grant, _) => grant,
        other => panic!("not sealed: {other:?}"),
    }
}

/// Ann's lock on a resource, for long.
pub async fn held(ledger: &dyn Ledger, resource: &str, number: i64) -> Grant {
    granted(ledger, seal([resource], number)).await
}

/// Ann's lock on a resource that has expired.
pub async fn expired(ledger: &dyn Ledger, resource: &str, number: i64) -> Grant {
    let grant = granted(ledger, SealItem { ttl: Some(short()), ..seal([resource], number) }).await;
    expire().await;
    grant
}

/// Ann's lock, released, and Bob's after it.
pub async fn succession(ledger: &dyn Ledger, resource: &str) -> (Grant, Grant) {
    let ann = held(ledger, resource, 10).await;
    release_one(ledger, ann.lock).await;
    let bob = SealItem { owner: "bob".into(), ..seal([resource], 20) };
    (ann, granted(ledger, bob).await)
}

/// The verdict on one renewal with the same ttl.
pub async fn renew_one(ledger: &dyn Ledger, lock: LockId) -> RenewVerdict {
    renew_for(ledger, lock, None).await
}

/// The verdict on one renewal.
pub async fn renew_for(ledger: &dyn Ledger, lock: LockId, ttl: Option<Ttl>) -> RenewVerdict {
    let items = Arc::from([RenewItem { lock, ttl, by: By::default() }]);
    only(ledger.renew(items, Patience::Skip).await.expect("the renewal is decided"))
}

/// The verdict on one release.
pub async fn release_one(ledger: &dyn Ledger, lock: LockId) -> ReleaseVerdict {
    let verdicts = ledger.release(Arc::from([lock.into()]), Patience::Skip).await;
    only(verdicts.expect("the release is decided"))
}

/// The verdict on one break of this grant's first resource.
pub async fn break_one(ledger: &dyn Ledger, grant: &Grant, after_ms: u64) -> BreakVerdict {
    break_with(ledger, grant, Duration::from_millis(after_ms)).await
}

/// The same with any duration.
pub async fn break_with(ledger: &dyn Ledger, grant: &Grant, after: Duration) -> BreakVerdict {
    let resource = grant.resources[0].clone();
    let (reason, request_id) = ("test".into(), "test-request".into());
    let item =
        BreakItem { resource, token: grant.token, after, reason, request_id, by: By::default() };
    let verdicts = ledger.break_locks(Arc::from([item]), Patience::Skip).await;
    only(verdicts.expect("the break is decided"))
}

/// The gateway of those who wait in these tests.
pub const GATEWAY: Uuid = Uuid::from_u128(7);

/// A heartbeat of the gateway of those who wait.
pub async fn beat(ledger: &dyn Ledger) {
    ledger.call_next(GATEWAY, Some(true), &[]).await.expect("a heartbeat");
}

/// Somebody who wants to wait for these resources.
pub fn join<const N: usize>(resources: [&str; N]) -> JoinItem {
    let mut resources = resources.map(name).to_vec();
    resources.sort();
    JoinItem {
        lock: lock_id(),
        resources,
        owner: "wanda".into(),
        gateway: GATEWAY,
        waiters_max: 100,
        by: By::default(),
    }
}

/// The verdict on one wish to wait, of a gateway that is alive.
pub async fn join_one(ledger: &dyn Ledger, item: JoinItem) -> JoinVerdict {
    beat(ledger).await;
    let verdicts = ledger.join(Arc::from([item]), Patience::Skip).await;
    only(verdicts.expect("it is decided"))
}

/// Somebody who waits for these resources.
pub async fn waiting<const N: usize>(ledger: &dyn Ledger, resources: [&str; N]) -> JoinItem {
    let item = join(resources);
    assert_eq!(join_one(ledger, item.clone()).await, JoinVerdict::Waiting);
    item
}

/// The seal of somebody who waited.
pub fn turn(waiter: &JoinItem, number: i64) -> SealItem {
    SealItem {
        lock: waiter.lock,
        resources: waiter.resources.clone(),
        owner: waiter.owner.clone(),
        ..seal(["unused"], number)
    }
}

/// Who holds each of these resources.
pub async fn holders(ledger: &dyn Ledger, names: &[ResourceName]) -> Vec<Option<Holder>> {
    let standings = ledger.look(names).await.expect("read");
    standings.into_iter().map(|standing| standing.holder).collect()
}

/// A write under a grant on its first resource.
pub fn write(grant: &Grant, effect: Effect) -> WriteItem {
    let (resource, token) = (grant.resources[0].clone(), grant.token);
    WriteItem { resource, token, effect, ..put_at("r", 1) }
}

/// A put to a resource under a token, without the grant at hand.
pub fn put_at(resource: &str, number: i64) -> WriteItem {
    WriteItem {
        operation: operation_id(),
        resource: name(resource),
        token: token(number),
        lock: None,
        sequence: None,
        idempotency: None,
        object_condition: None,
        resource_version: None,
        effect: put_effect("k", b"text"),
        attempt: Attempt::First,
        taken_at: jiff::Timestamp::MAX,
        by: By::default(),
    }
}

/// A put of text.
pub fn put(grant: &Grant, object: &str, text: &str) -> WriteItem {
    write(grant, put_effect(object, text.as_bytes()))
}

/// The effect of a put.
pub fn put_effect(object: &str, body: &[u8]) -> Effect {
    Effect::Put {
        key: key(object),
        content_type: "text/plain".into(),
        payload: Payload::Inline(Bytes::copy_from_slice(body)),
        size: body.len() as i64,
        sha256: digest(body),
        about: None,
        parts: None,
    }
}

/// The bytes of an object that the ledger has.
pub fn body(object: &Object) -> &[u8] {
    match &object.payload {
        Payload::Inline(body) => body,
        Payload::Blob(blob) => panic!("its bytes are in blob {blob}"),
    }
}

/// A deletion.
pub fn delete(grant: &Grant, object: &str) -> WriteItem {
    write(grant, Effect::Delete { key: key(object) })
}

/// A deletion of all objects.
pub fn delete_all(grant: &Grant) -> WriteItem {
    write(grant, Effect::DeleteAll)
}

/// The verdicts on a batch of writes.
pub async fn commit<const N: usize>(
    ledger: &dyn Ledger,
    items: [WriteItem; N],
) -> [WriteVerdict; N] {
    let verdicts = ledger.commit(Arc::from(items), Patience::Skip).await;
    let verdicts = verdicts.expect("the batch is decided");
    verdicts.try_into().unwrap_or_else(|v| panic!("{N} items, but {v:?}"))
}

/// The verdict on one write.
pub async fn commit_one(ledger: &dyn Ledger, item: WriteItem) -> WriteVerdict {
    let [verdict] = commit(ledger, [item]).await;
    verdict
}

/// A write that takes effect now.
pub async fn apply(ledger: &dyn Ledger, item: WriteItem) -> Applied {
    applied(commit_one(ledger, item).await)
}

/// What took effect now.
pub fn applied(verdict: WriteVerdict) -> Applied {
    match verdict {
        WriteVerdict::Applied { applied, replayed: false } => applied,
        other => panic!("not applied: {other:?}"),
    }
}

/// What took effect earlier under the same idempotency key.
pub fn replayed(verdict: WriteVerdict) -> Applied {
    match verdict {
        WriteVerdict::Applied { applied, replayed: true } => applied,
        other => panic!("not replayed: {other:?}"),
    }
}

/// Why a write is refused.
pub async fn refusal(ledger: &dyn Ledger, item: WriteItem) -> Refusal {
    refused(commit_one(ledger, item).await)
}

/// Why it was refused.
pub fn refused(verdict: WriteVerdict) -> Refusal {
    match verdict {
        WriteVerdict::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// An object, and the version of its resource.
pub async fn look(ledger: &dyn Ledger, resource: &str, object: &str) -> ReadVerdict {
    look_at(ledger, resource, object, None).await
}

/// An object as some version left it, and the version of its resource.
pub async fn look_at(
    ledger: &dyn Ledger,
    resource: &str,
    object: &str,
    version: Option<i64>,
) -> ReadVerdict {
    let items = Arc::from([ReadItem { resource: name(resource), key: key(object), version }]);
    only(ledger.read(items).await.expect("the object is read"))
}

/// The text of an object.
pub async fn text(ledger: &dyn Ledger, resource: &str, object: &str) -> Option<String> {
    let object = look(ledger, resource, object).await.object?;
    Some(String::from_utf8(body(&object).to_vec()).expect("tests write text"))
}

/// The version and the number of objects of a resource that was locked.
pub async fn counts(ledger: &dyn Ledger, resource: &str) -> (i64, i64) {
    let view = ledger.resource(&name(resource)).await.expect("the view is read");
    view.map(|view| (view.version, view.objects)).expect("it was locked")
}

/// The only one.
pub fn only<T>(mut all: Vec<T>) -> T {
    assert_eq!(all.len(), 1, "one item, one verdict");
    all.remove(0)
}

/// This principal, without roles, by rules that nobody asks for.
pub fn by(principal: &str) -> By {
    By::of(principal_name(principal), [])
}

/// The same, allowed by the rules of this generation.
pub fn under(principal: &str, rules: i64) -> By {
    by(principal).under(rules)
}

/// A principal's name.
pub fn principal_name(name: &str) -> PrincipalName {
    PrincipalName::new(name).expect("tests use good names")
}

/// Other rules, with this text.
pub fn rules_change(text: &str) -> RulesChange {
    RulesChange {
        follows: None,
        text: text.into(),
        database_roles: Vec::new(),
        applied_by: None,
        reason: "test".into(),
        request_id: "test-request".into(),
        asked: None,
    }
}
