//! Takeovers by the hundred, crashes, and what admission does not promise.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks and sleeps on the real clock")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fence_core::wire::Lock;
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::survey;
use fence_tests::upstream::Upstream;
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::setup::{SetUp, on_both, until_state};
use crate::upstreams::draining::intents;
use crate::upstreams::requests::{fronted, through};

const RESOURCES: usize = 8;
/// Who wants each resource.
const WORKERS: usize = 3;

/// Two gateways on one ledger, in front of one upstream.
async fn two_gateways(guarantee: &str, more: &str) -> (Vec<Gateway>, Upstream) {
    let upstream = Upstream::start().await;
    let settings = SetUp::Clustered.settings().await;
    let settings = settings.flag("--upstream", &upstream.setting(guarantee, more));
    let gateways = join_all((0..2).map(|_| settings.clone().start())).await;
    (gateways, upstream)
}

/// The resources whose tokens fell in the order in which the upstream acted.
fn out_of_order(upstream: &Upstream) -> Vec<String> {
    let mut highest: BTreeMap<String, i64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in upstream.seen() {
        let resource = one.target.split(['/', '?']).nth(2).unwrap_or_default().to_owned();
        let token = one.token().expect("every write has a token");
        let last = highest.entry(resource.clone()).or_insert(token);
        if token < *last {
            wrong.push(format!("{resource}: {token} after {last}"));
        }
        *last = token.max(*last);
    }
    wrong
}

struct Worker {
    takeovers_min: usize,
    clients: Vec<Client>,
    resource: usize,
    takeovers: Arc<AtomicUsize>,
    stale: Arc<AtomicUsize>,
}

impl Worker {
    /// Takes the lock, sends writes that take a while, and lets go of it with all of them under way. Goes on
    /// writing with a token that is not good any more.
    async fn run(self, mut turn: usize) {
        let (count, name) = (self.clients.len(), format!("u:{}", self.resource));
        let mut late: Option<Lock> = None;
        while self.takeovers.load(Ordering::Relaxed) < self.takeovers_min {
            turn += 1;
            let client = &self.clients[turn % count];
            let body = json!({ "resource": name, "ttl": "10m", "wait": "30s" });
            let answer = client.lock(&body).send().await;
            if answer.status != 201 {
                answer.refused(409, "lock-wait-elapsed");
                continue;
            }
            let lock: Lock = answer.parse();
            self.takeovers.fetch_add(1, Ordering::Relaxed);
            let writes = (0..4).map(|write| {
                // Through both gateways, and of the holder before, too.
                let client = &self.clients[write % count];
                let of = late.as_ref().filter(|_| write == 3).unwrap_or(&lock);
                // The slowest takes longer than the next holder needs to get there.
                let query = format!("delay={}", [2, 250, 100, 20][write]);
                let call = through(client, Method::POST, &self.resource.to_string(), &query);
                tokio::spawn(call.under(of).body("x").send())
            });
            let writes: Vec<_> = writes.collect();
            tokio::time::sleep(Duration::from_millis(4)).await;
            match turn % 5 {
                0 => {
                    let reason = json!({ "reason": "test" });
                    client.break_lock(&name, &reason).send().await.expect(200);
                }
                _ => drop(client.release(&lock).send().await.expect(204)),
            }
            for answer in join_all(writes).await {
                if answer.expect("no panic").status == 412 {
                    self.stale.fetch_add(1, Ordering::Relaxed);
                }
            }
            late = Some(lock);
        }
    }
}

#[tokio::test]
async fn the_upstream_never_sees_a_smaller_token_after_a_larger_one() {
    let (gateways, upstream) = two_gateways("drained", "").await;
    let (takeovers, stale) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let takeovers_min = survey::size(150, 500);
    let workers = (0..RESOURCES * WORKERS).map(|number| Worker {
        takeovers_min,
        clients: gateways.iter().map(Gateway::client).collect(),
        resource: number % RESOURCES,
        takeovers: Arc::clone(&takeovers),
        stale: Arc::clone(&stale),
    });
    let tasks = workers.enumerate().map(|(number, worker)| tokio::spawn(worker.run(number)));
    for task in join_all(tasks).await {
        task.expect("no panic");
    }
    let seen = upstream.seen().len();
    assert_eq!(out_of_order(&upstream), Vec::<String>::new());
    let (takeovers, stale) = (takeovers.load(Ordering::Relaxed), stale.load(Ordering::Relaxed));
    println!("{takeovers} takeovers, {seen} writes acted on, {stale} refused");
    assert!(takeovers >= takeovers_min && seen > takeovers_min && stale > takeovers_min / 2);
    assert!(intents(&gateways[0].client()).await.is_empty());
}

/// What admission does not promise: a write that was forwarded before the next grant lands after it.
#[tokio::test]
async fn admission_leaves_a_hole() {
    let (gateways, upstream) = two_gateways("admission", "").await;
    let (one, other) = (gateways[0].client(), gateways[1].client());
    let old = one.acquire("u:1", "10m").await;
    let slow = through(&one, Method::POST, "1", "delay=1500").under(&old).body("old");
    let slow = tokio::spawn(slow.send());
    eventually("it is there", async || (upstream.begun() == 1).then_some(())).await;
    one.release(&old).send().await.expect(204);
    // The next grant does not wait for it, and its writes go first.
    let new = other.acquire("u:1", "10m").await;
    through(&other, Method::POST, "1", "").under(&new).body("new").send().await.expect(200);
    let landed = slow.await.expect("no panic").expect(200);
    assert_eq!(landed.header("x-fence-guarantee"), Some("admission"));
    let tokens: Vec<_> = upstream.seen().iter().filter_map(|one| one.token()).collect();
    assert_eq!(tokens, [new.token.get(), old.token.get()], "this is the hole");
    assert_eq!(out_of_order(&upstream).len(), 1);
    // What it does promise: once the newer token was given out, the older one is not admitted.
    let late = through(&one, Method::POST, "1", "").under(&old).send().await;
    late.refused(412, "fence-token-stale");
    // And an upstream that looks at the tokens can close the hole: they came along.
}

on_both!(an_intent_outlives_its_gateway);

async fn an_intent_outlives_its_gateway(setup: SetUp) {
    let (mut killed, other, upstream) = match setup {
        SetUp::Clustered => {
            let (mut gateways, upstream) = two_gateways("drained", "").await;
            (gateways.remove(0), gateways.pop(), upstream)
        }
        SetUp::Embedded => {
            let (gateway, upstream) = fronted(setup, "drained", "").await;
            (gateway, None, upstream)
        }
    };
    let client = killed.client();
    let lock = client.acquire("u:1", "10m").await;
    let write = through(&client, Method::POST, "1", "delay=1000").under(&lock).body("x");
    let write = tokio::spawn(write.try_send());
    eventually("it is there", async || (upstream.begun() == 1).then_some(())).await;
    killed.kill9();
    write.await.expect("no panic").expect_err("its gateway was killed");
    let client = match &other {
        Some(other) => other.client(),
        None => {
            killed.restart().await;
            killed.client()
        }
    };
    client.release(&lock).send().await.expect(204);
    let next = json!({ "resource": "u:1", "ttl": "10m", "wait": "30s" });
    let impatient = json!({ "resource": "u:1" });
    client.lock(&impatient).send().await.refused(409, "resource-draining");
    let open = intents(&client).await;
    assert_eq!((open.len(), open[0].get("in_flight")), (1, None), "{open:?}");
    let waiter = tokio::spawn(client.lock(&next).send());
    until_state(&client, "u:1", "draining").await;
    // Nobody but an operator can say whether the upstream acted. Here it did.
    eventually("it has acted", async || (upstream.seen().len() == 1).then_some(())).await;
    let path = format!("/admin/intents/{}/resolve", open[0]["operation"].as_str().expect("an id"));
    client.post(path, &json!({ "reason": "it is there" })).send().await.expect(204);
    let granted: Lock = waiter.await.expect("no panic").expect(201).parse();
    through(&client, Method::POST, "1", "").under(&granted).send().await.expect(200);
    assert_eq!(out_of_order(&upstream), Vec::<String>::new());
}

/// A gateway that is told to stop finishes what it forwards.
#[tokio::test]
async fn a_gateway_that_stops_closes_its_intents() {
    let (mut gateways, upstream) = two_gateways("drained", "").await;
    let (mut stopped, staying) = (gateways.remove(0), gateways.remove(0));
    let other = staying.client();
    let lock = other.acquire("u:1", "10m").await;
    let write = through(&stopped.client(), Method::POST, "1", "delay=1500").under(&lock).body("x");
    let gone = tokio::spawn(write.send());
    eventually("it is there", async || (upstream.begun() == 1).then_some(())).await;
    // Its caller is gone as well: only the task is left.
    gone.abort();
    stopped.term();
    assert!(stopped.wait_for_exit().await.success());
    assert_eq!((upstream.seen().len(), intents(&other).await.len()), (1, 0));
}

/// A waiter at one gateway is woken by the answer at the other.
#[tokio::test]
async fn a_waiter_at_another_gateway_hears_that_the_write_is_over() {
    let (gateways, upstream) = two_gateways("drained", "").await;
    let (one, other) = (gateways[0].client(), gateways[1].client());
    for _ in 0..3 {
        let lock = one.acquire("u:1", "10m").await;
        let begun = upstream.begun();
        let write = through(&one, Method::POST, "1", "delay=700").under(&lock).body("x");
        let write = tokio::spawn(write.send());
        eventually("it is there", async || (upstream.begun() > begun).then_some(())).await;
        one.release(&lock).send().await.expect(204);
        let next = json!({ "resource": "u:1", "ttl": "10m", "wait": "30s" });
        let granted: Lock = other.lock(&next).send().await.expect(201).parse();
        write.await.expect("no panic").expect(200);
        other.release(&granted).send().await.expect(204);
    }
}
