//! Locks under rules of access: to whom a token is known, who else may write under it, and to whom it is handed over.

use std::time::Duration;

use fence_core::ErrorCode;
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use fencegate_client::{
    Client, Credential, Error, Event, Fence, Handoff, Lock, LockState, LossReason, Successor, Wait,
};
use reqwest::Method;

use super::proxy::{Act, Proxy};
use super::{Told, builder, loss, soon};
use crate::setup::{SetUp, on_both};

on_both!(
    to_other_principals_a_token_is_unknown,
    writers_write_and_do_nothing_else,
    a_late_writer_is_told_that_its_token_is_stale,
    a_lock_is_handed_to_another_principal,
    a_transfer_to_another_principal_whose_answer_is_lost,
);

/// A gateway with rules, and who works with it: `ann`, who may delegate; `bob` and `dan`, helpers; `cat`, a loader.
struct Site {
    gateway: Gateway,
    keys: [(&'static str, Key); 4],
}

impl Site {
    async fn start(setup: SetUp) -> Self {
        Self::with(setup, setup.settings().await).await
    }

    async fn with(setup: SetUp, settings: Settings) -> Self {
        let (rules, [ann, bob, cat, dan]) = (Rules::new().await, keys().await);
        let may = |actions: &str| format!("allow = [{actions}]\nresources = [\"job:*\", \"u:*\"]");
        let works = may("\"lock\", \"write\", \"clear\", \"read\"");
        let text = [
            rules.admin(),
            role("chief", &may("\"lock\", \"write\", \"read\", \"delegate\"")),
            role("helper", &works),
            role("loader", &works),
            principal("ann", "chief", &[&ann]),
            principal("bob", "helper", &[&bob]),
            principal("cat", "loader", &[&cat]),
            principal("dan", "helper", &[&dan]),
            role("idler", "allow = [\"lock\"]\nresources = [\"idle:*\"]"),
            principal("eve", "idler", &[&Key::new().await]),
        ];
        let gateway = setup.start_ruled(settings, &rules, &text.concat()).await;
        Self { gateway, keys: [("ann", ann), ("bob", bob), ("cat", cat), ("dan", dan)] }
    }

    fn credential(&self, name: &str) -> Credential {
        let (_, key) = self.keys.iter().find(|(known, _)| *known == name).unwrap();
        Credential::text(&key.text)
    }

    /// A client of this principal.
    fn client(&self, name: &str) -> Client {
        builder(&self.gateway.url()).credential(self.credential(name)).build().unwrap()
    }

    /// The token of a lock in the hands of this principal.
    fn lend(&self, lock: &Handoff, name: &str) -> Fence {
        let (token, id) = (lock.token.to_string(), lock.id.to_string());
        let resources: Vec<_> = lock.resources.iter().map(|name| name.as_str()).collect();
        self.client(name).lent(resources, &token, &id).unwrap()
    }
}

async fn keys() -> [Key; 4] {
    [Key::new().await, Key::new().await, Key::new().await, Key::new().await]
}

/// All that there is to know of a lock.
fn known(lock: &Lock) -> Handoff {
    let (id, token, resources) = (lock.id(), lock.token(), lock.resources().to_vec());
    Handoff { id, token, resources, owner: "thief".to_owned(), principal: None }
}

/// The gateway has refused it with this code.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, code: ErrorCode) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), Some(code.as_str()), "{error:?}");
}

/// Whoever knows all of a lock, and is neither its principal nor the successor: it is not there.
async fn is_not_known(client: &Client, lock: &Handoff) {
    let (id, code) = (lock.id, ErrorCode::LockNotFound);
    refused(client.lock_record(id).await, code);
    refused(client.renew_lock(id, None).await, code);
    refused(client.renew_lock(id, Some(Duration::from_secs(9))).await, code);
    refused(client.transfer_lock(id, "thief").await, code);
    refused(client.adopt(lock).acquire().await, code);
    refused(client.release_lock(id).await, code);
}

async fn to_other_principals_a_token_is_unknown(setup: SetUp) {
    let upstream = Upstream::start().await;
    let settings = setup.settings().await.flag("--upstream", &upstream.setting("drained", ""));
    let site = Site::with(setup, settings).await;
    let (ann, bob) = (site.client("ann"), site.client("bob"));
    let lock = ann.lock("u:1").acquire().await.unwrap();
    assert_eq!((lock.principal(), lock.writers().len()), (Some("ann"), 0));

    let (stolen, unknown) = (site.lend(&known(&lock), "bob"), ErrorCode::FenceTokenUnknown);
    refused(stolen.put("k", "bob's").await, unknown);
    refused(stolen.delete("k").await, unknown);
    refused(stolen.delete_all().await, unknown);
    refused(stolen.commit().put("u:1", "k", "bob's").await, unknown);
    refused(stolen.update("k", |_| "bob's").await, unknown);
    refused(stolen.upstream("u", Method::POST, "/r/1/orders").await, unknown);
    assert_eq!(upstream.begun(), 0);
    is_not_known(&bob, &known(&lock)).await;

    // Nothing of that has touched it.
    lock.put("k", "ann's").await.unwrap();
    lock.renew().await.unwrap();
    assert_eq!(bob.get("u:1", "k").await.unwrap().text().unwrap(), "ann's");
    // Nor is anybody else told that it has ended.
    assert!(lock.release().await);
    refused(stolen.put("k", "bob's").await, unknown);
    assert_eq!(
        loss(site.lend(&known(&lock), "ann").put("k", "x").await),
        LossReason::ReleasedElsewhere
    );
}

async fn writers_write_and_do_nothing_else(setup: SetUp) {
    let site = Site::start(setup).await;
    let proxy = Proxy::start(site.gateway.address()).await;
    let ann = builder(&proxy.url()).credential(site.credential("ann")).build().unwrap();
    // The second attempt of a call whose answer is lost names the same writers.
    proxy.rule("POST", "/locks", 1, Act::LoseAnswer);
    let lock = ann.lock("job:1").writer("bob").writer("role:loader").acquire().await.unwrap();
    let sent = proxy.seen("POST", "/locks");
    assert_eq!((sent.len(), sent[0].json()), (2, sent[1].json()));
    assert_eq!(lock.writers(), ["bob", "role:loader"]);
    assert_eq!(ann.lock_record(lock.id()).await.unwrap().writers, lock.writers());

    let lent = ["bob", "cat", "dan"].map(|name| site.lend(&known(&lock), name));
    let [by_name, by_role, neither] = &lent;
    by_name.put("k", "bob's").await.unwrap();
    lock.put("k", "ann's").await.unwrap();
    by_role.commit().put("job:1", "k", "cat's").await.unwrap();
    refused(neither.put("k", "dan's").await, ErrorCode::FenceTokenUnknown);
    assert_eq!(ann.get("job:1", "k").await.unwrap().text().unwrap(), "cat's");
    // Writes of several hands have no order that numbers could show.
    assert_eq!(proxy.seen("PUT", "")[0].header("x-fence-seq"), None);
    for name in ["bob", "cat", "dan"] {
        is_not_known(&site.client(name), &known(&lock)).await;
    }
    assert!(lock.release().await);
    assert_eq!(loss(by_name.put("k", "late").await), LossReason::ReleasedElsewhere);
    // Whoever may not delegate names nobody.
    let denied = site.client("bob").lock("job:1").writer("cat").acquire().await;
    assert!(matches!(denied, Err(Error::Denied(_))), "{denied:?}");
    refused(denied, ErrorCode::PermissionDenied);
}

async fn a_late_writer_is_told_that_its_token_is_stale(setup: SetUp) {
    let site = Site::start(setup).await;
    let lock = site.client("ann").lock("job:1").ttl(Duration::from_secs(1)).writer("bob");
    let old = lock.writer("role:loader").acquire().await.unwrap().leave();
    assert_eq!(old.principal.as_deref(), Some("ann"));
    let lent = ["bob", "cat", "dan"].map(|name| site.lend(&old, name));
    lent[0].put("k", "in time").await.unwrap();
    let dan = site.client("dan");
    let next = dan.lock("job:1").wait(Wait::UpTo(Duration::from_secs(60))).acquire().await.unwrap();
    assert_eq!((next.principal(), next.writers().len()), (Some("dan"), 0));
    for lent in &lent[..2] {
        assert_eq!(loss(lent.put("k", "late").await), LossReason::Superseded);
        assert_eq!(loss(lent.check()), LossReason::Superseded);
    }
    // Who was no writer of the old one learns nothing of it, although the new one is theirs.
    refused(lent[2].put("k", "late").await, ErrorCode::FenceTokenUnknown);
    next.put("k", "dan's").await.unwrap();
    assert_eq!(dan.get("job:1", "k").await.unwrap().text().unwrap(), "dan's");
}

async fn a_lock_is_handed_to_another_principal(setup: SetUp) {
    let site = Site::start(setup).await;
    let (ann, bob) = (site.client("ann"), site.client("bob"));
    let to_bob = || Successor::named("second stage").principal("bob");
    let old = ann.lock("job:1").writer("cat").acquire().await.unwrap();
    old.put("k", "one").await.unwrap();
    let text = old.transfer(to_bob()).await.unwrap().to_text();
    let handoff = Handoff::from_text(&text).unwrap();
    assert_eq!(handoff.principal.as_deref(), Some("bob"));
    assert_eq!(loss(old.put("k", "late").await), LossReason::Transferred);
    // Whoever has given it away cannot use it, nor can the writers of the old one.
    is_not_known(&ann, &handoff).await;
    for name in ["ann", "cat"] {
        refused(site.lend(&handoff, name).put("k", "x").await, ErrorCode::FenceTokenUnknown);
    }
    let new = bob.adopt(&handoff).acquire().await.unwrap();
    assert_eq!(
        (new.principal(), new.owner(), new.writers().len()),
        (Some("bob"), "second stage", 0)
    );
    new.put("k", "two").await.unwrap();

    // By its id alone; and not by those who may not delegate, whose lock stays theirs.
    refused(
        new.transfer(Successor::named("x").principal("cat")).await,
        ErrorCode::PermissionDenied,
    );
    assert_eq!(new.state(), LockState::Held);
    new.put("k", "three").await.unwrap();
    // Nor to those who may not lock it, or who are nobody: of neither is more told.
    let kept = ann.lock("job:3").acquire().await.unwrap();
    for name in ["eve", "nobody"] {
        let to = Successor::named("x").principal(name);
        refused(kept.transfer(to).await, ErrorCode::PermissionDenied);
    }
    kept.put("k", "four").await.unwrap();
    let other = ann.lock("job:2").acquire().await.unwrap().leave();
    let handed = ann.transfer_lock(other.id, to_bob()).await.unwrap();
    assert_eq!(handed.principal.as_deref(), Some("bob"));
    assert!(bob.release_lock(handed.id).await.unwrap());
}

async fn a_transfer_to_another_principal_whose_answer_is_lost(setup: SetUp) {
    let site = Site::start(setup).await;
    let (proxy, told) = (Proxy::start(site.gateway.address()).await, Told::default());
    let ann = builder(&proxy.url()).credential(site.credential("ann")).on_event(told.hook());
    let ann = ann.call_timeout(Duration::from_secs(2)).build().unwrap();
    let to_bob = || Successor::named("second").principal("bob");
    let first = ann.lock("job:1").acquire().await.unwrap();
    proxy.rule("POST", "/transfer", 1, Act::LoseAnswer);
    let handoff = first.transfer(to_bob()).await.unwrap();
    let sent = proxy.seen("POST", "/transfer");
    assert_eq!((sent.len(), sent[0].json()), (2, sent[1].json()));
    site.client("bob").adopt(&handoff).acquire().await.unwrap().put("k", "x").await.unwrap();

    // Nobody ever hears of it: the successor's lock is not the giver's to release, and the giver does not go on trying.
    let second = ann.lock("job:2").infinite().acquire().await.unwrap();
    proxy.rule("POST", "/transfer", usize::MAX, Act::LoseAnswer);
    let lost = second.transfer(to_bob()).await;
    assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
    eventually("the old lock is known to be over", async || {
        matches!(second.state(), LockState::Lost(_)).then_some(())
    })
    .await;
    assert_eq!(told.count(|event| matches!(event, Event::ReleaseFailed { .. })), 1);
    soon(ann.close(Duration::from_secs(600))).await;
}
