//! What a credential has made, once that is revoked, gone from the rules, or has expired: a lock, and its key of S3.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fence_core::wire::{AccessApplied, Lock, LostLock};
use fence_core::{LockState, PrincipalName};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::Client;
use fence_tests::conformance::pause;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::s3::{self, Request, Signed};
use fence_tests::survey;
use fencegate_access::ApiKey;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::put_rules;
use crate::s3::faults::rig::speaking_s3;
use crate::setup::{SetUp, on_both};

on_both!(
    what_a_revoked_credential_made_ends_with_it,
    a_lock_whose_key_has_expired_stands_and_its_key_of_s3_waits_for_a_renewal,
    nothing_of_a_revoked_credential_comes_after_the_rules_are_applied,
);

const WORKS: &str =
    "allow = [\"lock\", \"fence\", \"write\", \"read\", \"list\"]\nresources = [\"lake:*\"]";
const READS: &str = "allow = [\"read\"]\nresources = [\"lake:*\"]";

/// A gateway that speaks S3; `ann` works on a bucket, and `bob` reads.
pub(super) struct Lake {
    gateway: Gateway,
    pub(super) client: Client,
    pub(super) s3: SocketAddr,
    rules: Rules,
    bob: Key,
}

/// What one access key of S3 signs.
struct Tools {
    s3: SocketAddr,
    put: Signed,
    get: Signed,
    presigned: Signed,
}

impl Lake {
    pub(super) async fn new(setup: SetUp, ann: &[&Key]) -> Self {
        let (settings, s3) = speaking_s3(setup.settings().await);
        let (rules, bob) = (Rules::new().await, Key::new().await);
        let text = text(&rules, &bob, ann);
        let gateway = setup.start_ruled(settings, &rules, &text).await;
        let client = gateway.client();
        let lake = Self { gateway, client, s3, rules, bob };
        let make = lake.client.call(Method::PUT, "/buckets/lake");
        let make = make.header("content-type", "application/json");
        let make = make.body(json!({ "depth": 1 }).to_string());
        lake.rules.admin.by(make).send().await.expect(201);
        lake
    }

    pub(super) async fn locked(&self, key: &Key, resource: &str) -> Lock {
        let body = json!({ "resource": resource, "ttl": "1h" });
        key.by(self.client.lock(&body)).send().await.expect(201).parse()
    }

    /// Puts rules in force by which `ann` has these keys, and these lines stand before all others.
    pub(super) async fn apply(&self, head: &str, ann: &[&Key]) {
        let text = format!("{head}{}", text(&self.rules, &self.bob, ann));
        let body = json!({ "rules": text, "reason": "the test says so" });
        self.rules.admin.by(put_rules(&self.client, &body)).send().await.expect(200);
    }

    fn tools(&self, lock: &Lock) -> Tools {
        let key = s3::Key::of(lock);
        let path = format!("/lake/{}/x", lock.resources[0].as_str().split_once(':').unwrap().1);
        Tools {
            s3: self.s3,
            put: Request::put(&path, "by its key").sign(self.s3, &key),
            get: Request::get(&path).sign(self.s3, &key),
            presigned: Request::get(&path).presign(self.s3, &key, 3600, Timestamp::now()),
        }
    }

    /// The entity tag of the object, as somebody else reads it.
    async fn tag(&self, resource: &str) -> Option<String> {
        let read = self.bob.by(self.client.read(resource, "x")).send().await;
        read.header("etag").map(str::to_owned)
    }
}

impl Tools {
    async fn statuses(&self) -> [u16; 3] {
        let all = [&self.put, &self.get, &self.presigned];
        let mut found = [0; 3];
        for (status, request) in found.iter_mut().zip(all) {
            *status = request.send(self.s3).await.status;
        }
        found
    }
}

fn text(rules: &Rules, bob: &Key, ann: &[&Key]) -> String {
    let roles = rules.admin() + &role("worker", WORKS) + &role("reader", READS);
    roles + &principal("ann", "worker", ann) + &principal("bob", "reader", &[bob])
}

pub(super) fn revoking(key: &Key) -> String {
    format!("revoked = [\"key:{}\"]\n", kid(key))
}

fn kid(key: &Key) -> String {
    ApiKey::parse(&key.text).unwrap().kid().to_owned()
}

async fn what_a_revoked_credential_made_ends_with_it(setup: SetUp) {
    let (stolen, gone, good) = (Key::new().await, Key::new().await, Key::new().await);
    let lake = Lake::new(setup, &[&stolen, &good]).await;
    let by_good = lake.locked(&good, "lake:good").await;
    let by_stolen = lake.locked(&stolen, "lake:stolen").await;
    // A lock belongs to the credential that renewed it last.
    let rescued = lake.locked(&stolen, "lake:rescued").await;
    good.by(lake.client.renew(&rescued, None)).send().await.expect(200);
    let [good_tools, stolen_tools, rescued_tools] =
        [&by_good, &by_stolen, &rescued].map(|lock| lake.tools(lock));
    for tools in [&good_tools, &stolen_tools, &rescued_tools] {
        assert_eq!(tools.statuses().await, [200; 3]);
    }

    // Which locks that breaks is told before.
    let next = format!("{}{}", revoking(&stolen), text(&lake.rules, &lake.bob, &[&good]));
    let told = async |dry_run: bool| -> Vec<LostLock> {
        let body = json!({ "rules": next, "reason": "it was stolen", "dry_run": dry_run });
        let put = lake.rules.admin.by(put_rules(&lake.client, &body)).send().await.expect(200);
        put.parse::<AccessApplied>().lost.unwrap()
    };
    let resource = by_stolen.resources[0].clone();
    let lost = |broken: bool| LostLock {
        resource: resource.clone(),
        owner: by_stolen.owner.clone(),
        principal: Some(PrincipalName::new("ann").unwrap()),
        revoked: true,
        broken,
    };
    assert_eq!(told(true).await, [lost(false)]);
    assert_eq!(stolen_tools.statuses().await, [200; 3], "nothing has changed");
    assert_eq!(told(false).await, [lost(true)]);
    assert_eq!(stolen_tools.statuses().await, [403; 3]);
    good.by(lake.client.put("lake:stolen", "x", "late").under(&by_stolen))
        .send()
        .await
        .refused(412, "fence-token-broken");
    for tools in [&good_tools, &rescued_tools] {
        assert_eq!(tools.statuses().await, [200; 3]);
    }
    // A key that has gone from the rules, and its name given to another one.
    lake.apply("", &[&good, &gone]).await;
    let by_gone = lake.locked(&gone, "lake:gone").await;
    let gone_tools = lake.tools(&by_gone);
    assert_eq!(gone_tools.statuses().await, [200; 3]);
    lake.apply("", &[&good]).await;
    assert_eq!(gone_tools.statuses().await, [403; 3]);
    let seen = lake.bob.by(lake.client.get("/resources/lake:gone")).send().await.expect(200);
    assert_eq!(seen.json()["state"], LockState::Broken.as_str());
    assert_eq!(good_tools.statuses().await, [200; 3]);
}

async fn a_lock_whose_key_has_expired_stands_and_its_key_of_s3_waits_for_a_renewal(setup: SetUp) {
    let good = Key::new().await;
    let ends = Timestamp::now() + SignedDuration::from_secs(8);
    let short = Key::new().await;
    let (head, _) = short.line.split_once("expires = ").unwrap();
    let line = format!("{head}expires = {ends:.0} }}");
    let short = Key { line, ..short };
    let lake = Lake::new(setup, &[&good, &short]).await;
    let lock = lake.locked(&short, "lake:r").await;
    let tools = lake.tools(&lock);
    assert_eq!(tools.put.send(lake.s3).await.status, 200);
    eventually("the key of S3 has stopped", async || {
        (tools.statuses().await == [403; 3]).then_some(())
    })
    .await;
    assert!(Timestamp::now() + SignedDuration::from_secs(1) >= ends);
    // Nobody has lost anything by that.
    let seen = lake.bob.by(lake.client.get("/resources/lake:r")).send().await.expect(200);
    assert_eq!(seen.json()["state"], LockState::Leased.as_str());
    good.by(lake.client.renew(&lock, None)).send().await.expect(200);
    assert_eq!(tools.statuses().await, [200; 3]);
}

/// Requests, one after the other.
type Series = JoinHandle<Vec<Sent>>;

/// A request of a series, and when it began.
struct Sent {
    began: Instant,
    status: u16,
}

/// 1. `ann` takes a lock, and writes and reads on each door, over and over.
/// 2. Her key is revoked, or goes.
/// 3. What began after the answer to that came is refused, and what began before has no effect from then on.
async fn nothing_of_a_revoked_credential_comes_after_the_rules_are_applied(setup: SetUp) {
    let rounds: u64 = survey::size(100, 1000);
    let mut key = Key::new().await;
    let lake = Lake::new(setup, &[&key]).await;
    for round in 0..rounds {
        // Step 1.
        let resource = format!("lake:{round}");
        let lock = lake.locked(&key, &resource).await;
        let tools = lake.tools(&lock);
        assert_eq!(tools.put.send(lake.s3).await.status, 200);
        let is_over = Arc::new(AtomicBool::new(false));
        let s3 = lake.s3;
        let by_s3 = [tools.put, tools.get, tools.presigned].map(|request| {
            let request = Arc::new(request);
            series(&is_over, move || {
                let request = Arc::clone(&request);
                async move { request.send(s3).await.status }
            })
        });
        let (client, writer) = (lake.gateway.client(), Key::known(key.text.clone()));
        let native = series(&is_over, move || {
            let put = writer.by(client.put(&resource, "x", "native").under(&lock));
            async move { put.send().await.status.as_u16() }
        });
        pause(round * 7 % 23).await;
        // Step 2.
        let next = Key::new().await;
        let head = if round % 2 == 0 { revoking(&key) } else { String::new() };
        lake.apply(&head, &[&next]).await;
        let applied = Instant::now();
        let before = lake.tag(&format!("lake:{round}")).await;
        pause(20).await;
        is_over.store(true, Ordering::Release);
        // Step 3.
        for door in by_s3.into_iter().chain([native]) {
            let all = door.await.unwrap();
            let late = all.iter().filter(|sent| sent.began > applied);
            let wrong: Vec<_> = late.filter(|sent| sent.status < 400).map(|it| it.status).collect();
            assert!(wrong.is_empty(), "round {round}: {wrong:?}");
            assert!(
                all.last().is_some_and(|last| last.began > applied),
                "round {round}: none was late"
            );
        }
        let after = lake.tag(&format!("lake:{round}")).await;
        assert!(before.is_some() && before == after, "round {round}: {before:?} became {after:?}");
        key = next;
    }
}

/// Sends one after the other until that is over, and one more.
fn series<F>(is_over: &Arc<AtomicBool>, send: impl Fn() -> F + Send + 'static) -> Series
where
    F: Future<Output = u16> + Send,
{
    let is_over = Arc::clone(is_over);
    tokio::spawn(async move {
        let mut all = Vec::new();
        loop {
            let (is_last, began) = (is_over.load(Ordering::Acquire), Instant::now());
            all.push(Sent { began, status: send().await });
            if is_last {
                return all;
            }
        }
    })
}
