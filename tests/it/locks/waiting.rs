//! Standing in line for a lock: order, places, turns, and what is not held up by whom.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests take their own time and start their own tasks"
)]

use std::time::{Duration, Instant};

use fence_core::wire::Lock;
use fence_tests::chaos::ChaosProxy;
use fence_tests::client::{Answer, Client, resource_path};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::mutants::{Edit, mutate};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::survey;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::setup::{SetUp, on_both, random_id};

on_both!(
    a_waiter_gets_the_lock_when_it_is_released,
    a_waiter_gets_the_lock_when_it_expires_or_is_broken,
    a_wait_that_elapses_says_the_place,
    a_place_is_kept_under_an_id,
    who_hangs_up_leaves_the_line,
    who_releases_its_id_leaves_the_line,
    nobody_gets_in_between,
    the_same_id_may_wait_more_than_once,
    a_line_that_is_full_is_refused,
    a_gateway_that_stops_lets_its_waiters_go,
);

/// The longest wait there is. A test in which somebody waits in vain fails after it.
const LONG: &str = "50s";

/// A call that waits, under way.
type Waiting = JoinHandle<Answer>;

fn wants(resource: &str, wait: &str) -> Value {
    json!({ "resource": resource, "wait": wait, "ttl": "10m", "owner": "w" })
}

/// Sends a call that waits, and returns once it stands in line.
async fn in_line(client: &Client, resource: &str, body: &Value) -> Waiting {
    let before = queue_length(client, resource).await;
    let call = client.lock(body);
    let waiting = tokio::spawn(call.send());
    until_length(client, resource, before + 1).await;
    waiting
}

async fn queue_length(client: &Client, resource: &str) -> i64 {
    let answer = client.get(resource_path(resource)).send().await.expect(200);
    answer.json()["queue_length"].as_i64().unwrap()
}

async fn until_length(client: &Client, resource: &str, length: i64) {
    eventually(&format!("{length} wait for {resource}"), async || {
        (queue_length(client, resource).await == length).then_some(())
    })
    .await;
}

async fn granted(waiting: Waiting) -> Lock {
    waiting.await.unwrap().expect(201).parse()
}

async fn a_waiter_gets_the_lock_when_it_is_released(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("r", "10m").await;
    let waiting = in_line(&client, "r", &wants("r", LONG)).await;
    client.put("r", "k", "by A").under(&a).send().await.expect(201);
    client.release(&a).send().await.expect(204);
    let b = granted(waiting).await;
    assert!(b.token > a.token);
    assert_eq!(b.versions, [1], "what A wrote is there");
    until_length(&client, "r", 0).await;
    client.put("r", "k", "by B").under(&b).send().await.expect(200);
}

async fn a_waiter_gets_the_lock_when_it_expires_or_is_broken(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("expires", "10m").await;
    let waiting = in_line(&client, "expires", &wants("expires", LONG)).await;
    // Not before somebody waits.
    client.renew(&a, Some("1s")).send().await.expect(200);
    assert!(granted(waiting).await.token > a.token);

    client.acquire("broken", "10m").await;
    let waiting = in_line(&client, "broken", &wants("broken", LONG)).await;
    client.break_lock("broken", &json!({ "reason": "x" })).send().await.expect(200);
    granted(waiting).await;

    client.acquire("breaking", "10m").await;
    let waiting = in_line(&client, "breaking", &wants("breaking", LONG)).await;
    let soon = json!({ "reason": "x", "after": "700ms" });
    client.break_lock("breaking", &soon).send().await.expect(200);
    granted(waiting).await;
}

async fn a_wait_that_elapses_says_the_place(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("r", "10m").await;
    let first = in_line(&client, "r", &wants("r", LONG)).await;
    let answer = client.lock(&wants("r", "300ms")).send().await;
    let problem = answer.refused(409, "lock-wait-elapsed").problem();
    assert_eq!((problem.position, problem.retryable), (Some(2), true));
    until_length(&client, "r", 1).await;
    first.abort();
    until_length(&client, "r", 0).await;
}

async fn a_place_is_kept_under_an_id(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("r", "10m").await;
    let mut body = wants("r", "400ms");
    body["id"] = random_id().to_string().into();
    let answer = client.lock(&body).send().await.refused(409, "lock-wait-elapsed");
    assert_eq!(answer.problem().position, Some(1));
    let path = format!("/locks/{}", body["id"].as_str().unwrap());
    let problem = client.get(&path).send().await.refused(404, "lock-not-found").problem();
    assert_eq!(problem.position, Some(1));
    let second = in_line(&client, "r", &wants("r", LONG)).await;
    body["wait"] = LONG.into();
    let again = tokio::spawn(client.lock(&body).send());
    client.release(&a).send().await.expect(204);
    let first = granted(again).await;
    assert_eq!(first.id.to_string(), body["id"].as_str().unwrap());
    client.release(&first).send().await.expect(204);
    assert!(granted(second).await.token > first.token);
}

async fn who_hangs_up_leaves_the_line(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("r", "10m").await;
    let first = in_line(&client, "r", &wants("r", LONG)).await;
    let second = in_line(&client, "r", &wants("r", LONG)).await;
    first.abort();
    until_length(&client, "r", 1).await;
    client.release(&a).send().await.expect(204);
    granted(second).await;
}

async fn who_releases_its_id_leaves_the_line(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("r", "10m").await;
    let mut body = wants("r", LONG);
    body["id"] = random_id().to_string().into();
    let waiting = in_line(&client, "r", &body).await;
    let path = format!("/locks/{}", body["id"].as_str().unwrap());
    client.call(reqwest::Method::DELETE, path).send().await.expect(204);
    until_length(&client, "r", 0).await;
    waiting.await.unwrap().refused(409, "lock-released");
}

async fn the_same_id_may_wait_more_than_once(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("r", "10m").await;
    let mut body = wants("r", LONG);
    body["id"] = random_id().to_string().into();
    let first = in_line(&client, "r", &body).await;
    let second = tokio::spawn(client.lock(&body).send());
    let gone = tokio::spawn(client.lock(&body).send());
    tokio::time::sleep(Duration::from_millis(300)).await;
    // One of the calls breaks off: the others wait on in the same place.
    gone.abort();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(queue_length(&client, "r").await, 1);
    client.release(&a).send().await.expect(204);
    let answers = [first.await.unwrap(), second.await.unwrap()];
    let mut statuses = answers.each_ref().map(|answer| answer.status);
    statuses.sort();
    assert_eq!(statuses, [200, 201], "{answers:?}");
    let [one, other] = answers.map(|answer| answer.parse::<Lock>());
    assert_eq!((one.id, one.token), (other.id, other.token));
}

async fn nobody_gets_in_between(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let a = client.acquire("a", "10m").await;
    let both = json!({ "resources": ["b", "a"], "wait": LONG, "ttl": "10m" });
    let b = client.acquire("b", "10m").await;
    let waiting = in_line(&client, "a", &both).await;
    // Free again, but kept for whoever is first in line.
    client.release(&b).send().await.expect(204);
    let problem = client.lock(&json!({ "resource": "b" })).send().await.refused(409, "lock-held");
    assert_eq!(problem.problem().holder, None);
    client.release(&a).send().await.expect(204);
    granted(waiting).await;
}

async fn a_line_that_is_full_is_refused(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_WAITERS_MAX", "2");
    let gateway = settings.start().await;
    let client = gateway.client();
    let a = client.acquire("r", "10m").await;
    let first = in_line(&client, "r", &wants("r", LONG)).await;
    let second = in_line(&client, "r", &wants("r", LONG)).await;
    let full = client.lock(&wants("r", LONG)).send().await.refused(429, "queue-full");
    assert!(full.problem().retryable && full.header("retry-after").is_some());
    let two = json!({ "resources": ["q", "r"], "wait": LONG });
    client.lock(&two).send().await.refused(429, "queue-full");
    client.release(&a).send().await.expect(204);
    client.release(&granted(first).await).send().await.expect(204);
    granted(second).await;
}

async fn a_gateway_that_stops_lets_its_waiters_go(setup: SetUp) {
    let mut gateway = setup.settings().await.env("FENCEGATE_DRAIN_DELAY", "0s").start().await;
    let client = gateway.client();
    client.acquire("r", "10m").await;
    let waiting = in_line(&client, "r", &wants("r", LONG)).await;
    gateway.term();
    waiting.await.unwrap().refused(503, "shutting-down");
    assert!(gateway.wait_for_exit().await.success());
}

/// Two gateways, each on its own way to etcd, and the way of the first to Postgres.
struct Pair {
    one: Gateway,
    other: Gateway,
    etcd_of_one: ChaosProxy,
    database: String,
}

async fn pair() -> Pair {
    pair_with(|settings| settings).await
}

async fn pair_with(adjust: impl Fn(Settings) -> Settings) -> Pair {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let (url, prefix) = (postgres.database().await, etcd.prefix());
    let etcd_of_one = ChaosProxy::start(etcd.port()).await;
    let settings = |etcd: &str| adjust(Gateway::clustered(&url, etcd, &prefix));
    let one = settings(&etcd_of_one.endpoint()).start().await;
    let other = settings(&etcd.endpoint()).start().await;
    Pair { one, other, etcd_of_one, database: database_in(&url).to_owned() }
}

/// A pair whose ledger lacks one way out of a wait, so that a test sees another one work. Nobody is swept out of the line.
async fn pair_without(way: Edit) -> Pair {
    let pair = pair_with(|settings| settings.env("FENCEGATE_SWEEP_INTERVAL", "1h")).await;
    let mut connection = Postgres::shared().await.connect(&pair.database).await;
    mutate(&mut connection, way).await;
    pair
}

/// A waiter that was called keeps its turn, whether it comes or not.
const TURNS_LAST: Edit = Edit {
    function: "first_in_line",
    from: "w.called_at > p_now - interval '1 second'",
    to: "w.called_at > p_now - interval '1 hour'",
};

/// A gateway that was ever heard of counts as there.
const ALL_ARE_PRESENT: Edit = Edit {
    function: "first_in_line",
    from: "g.seen_at > p_now - interval '5 seconds'",
    to: "g.seen_at > p_now - interval '1 hour'",
};

/// A gateway that looks at the line now and then calls nobody: only who frees something does.
const POLLS_CALL_NOBODY: Edit = Edit {
    function: "call_next",
    from: "FOREACH name IN ARRAY p_resources LOOP",
    to: "FOREACH name IN ARRAY CASE WHEN p_able IS NULL THEN p_resources ELSE '{}' END LOOP",
};

/// All of them join, one after the other, and are served within the wait of the first.
#[tokio::test]
async fn many_waiters_at_two_gateways_are_served_in_order() {
    let pair = pair().await;
    let clients = [pair.one.client(), pair.other.client()];
    let first = clients[0].acquire("r", "10m").await;
    let mut waiters = Vec::new();
    for number in 0..survey::size(40, 200) {
        let mut body = wants("r", LONG);
        body["owner"] = format!("w{number}").into();
        waiters.push(in_line(&clients[number % 2], "r", &body).await);
    }
    clients[0].release(&first).send().await.expect(204);
    let mut last = first.token;
    // Each one is only let in once the one before has gone, so that any other order hangs.
    for (number, waiter) in waiters.into_iter().enumerate() {
        let lock = granted(waiter).await;
        assert_eq!(lock.owner, format!("w{number}"));
        assert!(lock.token > last, "{} after {last}", lock.token);
        last = lock.token;
        clients[number % 2].release(&lock).send().await.expect(204);
    }
}

#[tokio::test]
async fn a_head_that_reaches_no_etcd_holds_nobody_up() {
    let pair = pair_without(TURNS_LAST).await;
    let (one, other) = (pair.one.client(), pair.other.client());
    let a = other.acquire("r", "10m").await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        stuck.push(in_line(&one, "r", &wants("r", LONG)).await);
    }
    let behind = in_line(&other, "r", &wants("r", LONG)).await;
    pair.etcd_of_one.blackhole().await;
    other.release(&a).send().await.expect(204);
    let b = granted(behind).await;
    // They kept their places, and take their turns when they can.
    pair.etcd_of_one.resume().await;
    other.release(&b).send().await.expect(204);
    let mut last = b.token;
    for waiter in stuck {
        let lock = granted(waiter).await;
        assert!(lock.token > last);
        last = lock.token;
        one.release(&lock).send().await.expect(204);
    }
}

/// Its turn is over, and its gateway is not heard of any more: either is enough.
#[tokio::test]
async fn a_waiter_of_a_gateway_that_stalls_is_passed_over() {
    for without in [ALL_ARE_PRESENT, TURNS_LAST] {
        let pair = pair_without(without).await;
        let (one, other) = (pair.one.client(), pair.other.client());
        let a = other.acquire("r", "10m").await;
        let stalled = in_line(&one, "r", &wants("r", LONG)).await;
        let behind = in_line(&other, "r", &wants("r", LONG)).await;
        pair.one.pause();
        other.release(&a).send().await.expect(204);
        granted(behind).await;
        stalled.abort();
    }
}

#[tokio::test]
async fn a_waiter_of_a_gateway_that_died_is_forgotten() {
    let mut pair = pair_with(|settings| settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms")).await;
    let (one, other) = (pair.one.client(), pair.other.client());
    other.acquire("r", "10m").await;
    let dead = in_line(&one, "r", &wants("r", LONG)).await;
    pair.one.kill9();
    dead.abort();
    until_length(&other, "r", 0).await;
}

#[tokio::test]
async fn calls_come_through_when_listening_connections_are_cut() {
    let pair = pair().await;
    let (one, other) = (pair.one.client(), pair.other.client());
    let server = Postgres::shared().await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND query LIKE 'LISTEN %'";
    for round in 0..5 {
        let resource = format!("r{round}");
        let a = one.acquire(&resource, "10m").await;
        let waiting = in_line(&other, &resource, &wants(&resource, LONG)).await;
        server.execute(&pair.database, cut).await;
        one.release(&a).send().await.expect(204);
        granted(waiting).await;
    }
}

#[tokio::test]
async fn a_lone_waiter_gets_its_lock_after_etcd_was_away_in_its_turn() {
    let pair = pair().await;
    let client = pair.one.client();
    let a = client.acquire("r", "10m").await;
    let waiting = in_line(&client, "r", &wants("r", LONG)).await;
    pair.etcd_of_one.refuse().await;
    client.release(&a).send().await.expect(204);
    // Long enough for its turn to be over several times.
    tokio::time::sleep(Duration::from_secs(3)).await;
    pair.etcd_of_one.resume().await;
    granted(waiting).await;
}

#[tokio::test]
async fn waiters_that_were_removed_from_the_line_join_it_again() {
    let pair = pair().await;
    let (one, other) = (pair.one.client(), pair.other.client());
    let a = other.acquire("r", "10m").await;
    let waiting = in_line(&one, "r", &wants("r", LONG)).await;
    // As by a sweep while the gateway was silent for too long.
    let server = Postgres::shared().await;
    let forget = "DELETE FROM fencegate.waiter_resources; DELETE FROM fencegate.waiters";
    server.execute(&pair.database, forget).await;
    until_length(&one, "r", 1).await;
    other.release(&a).send().await.expect(204);
    granted(waiting).await;
}

#[tokio::test]
async fn places_that_nobody_waits_for_are_given_up() {
    let pair = pair_without(TURNS_LAST).await;
    let (one, other) = (pair.one.client(), pair.other.client());
    let a = other.acquire("r", "10m").await;
    // A waiter of this gateway, so that it looks after the line.
    let first = in_line(&one, "r", &wants("r", LONG)).await;
    let server = Postgres::shared().await;
    let ghost = "INSERT INTO fencegate.waiters (ticket, lock_id, resources, owner, gateway)
                 SELECT 0, gen_random_uuid(), '{r}', 'ghost', gateway FROM fencegate.waiters;
                 INSERT INTO fencegate.waiter_resources (resource, ticket, place) VALUES ('r', 0, 0)";
    server.execute(&pair.database, ghost).await;
    other.release(&a).send().await.expect(204);
    granted(first).await;
}

#[tokio::test]
async fn an_id_released_elsewhere_ends_its_wait() {
    let pair = pair().await;
    let (one, other) = (pair.one.client(), pair.other.client());
    other.acquire("r", "10m").await;
    let mut body = wants("r", LONG);
    body["id"] = random_id().to_string().into();
    let waiting = in_line(&one, "r", &body).await;
    let path = format!("/locks/{}", body["id"].as_str().unwrap());
    other.call(reqwest::Method::DELETE, path).send().await.expect(204);
    waiting.await.unwrap().refused(409, "lock-released");
}

#[tokio::test]
async fn a_call_reaches_another_gateway_without_a_poll() {
    let pair = pair_without(POLLS_CALL_NOBODY).await;
    let (one, other) = (pair.one.client(), pair.other.client());
    let mut connection = Postgres::shared().await.connect(&pair.database).await;
    for round in 0..9 {
        let resource = format!("r{round}");
        let a = one.acquire(&resource, "10m").await;
        let waiting = in_line(&other, &resource, &wants(&resource, LONG)).await;
        eventually("the other gateway listens", async || {
            let listening = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle'
                             AND datname = current_database() AND query LIKE 'LISTEN %'";
            let listening =
                sqlx::query_scalar::<_, i64>(listening).fetch_one(&mut connection).await;
            (listening.unwrap() == 1).then_some(())
        })
        .await;
        one.release(&a).send().await.expect(204);
        granted(waiting).await;
    }
}

/// Who held what, as the clients saw it: from the answer to a grant until before its release.
struct Held {
    resources: Vec<String>,
    token: u64,
    from: Instant,
    to: Instant,
}

/// Forty clients at two gateways lock random sets of resources, again and again: nobody starves, nothing deadlocks, and no
/// resource ever has two holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_clients_with_random_sets_neither_deadlock_nor_starve() {
    const RESOURCES: usize = 10;
    let pair = pair().await;
    let clients = [pair.one.client(), pair.other.client()];
    let turns = survey::size(5, 40);
    let tasks = (0..40).map(|number| {
        let client = clients[number % 2].clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            for _ in 0..turns {
                let count = rand::random_range(2..=5);
                let picked = rand::seq::index::sample(&mut rand::rng(), RESOURCES, count);
                let resources: Vec<String> = picked.iter().map(|r| format!("r{r}")).collect();
                let body = json!({
                    "resources": resources, "wait": LONG, "ttl": "30s", "owner": number.to_string(),
                });
                let lock: Lock = client.lock(&body).send().await.expect(201).parse();
                let from = Instant::now();
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..10))).await;
                let to = Instant::now();
                client.release(&lock).send().await.expect(204);
                let token = lock.token.to_string().parse().unwrap();
                held.push(Held { resources, token, from, to });
            }
            held
        })
    });
    let all: Vec<Held> =
        join_all(tasks.collect::<Vec<_>>()).await.into_iter().flat_map(Result::unwrap).collect();
    for resource in (0..RESOURCES).map(|r| format!("r{r}")) {
        let mut turns: Vec<&Held> =
            all.iter().filter(|held| held.resources.contains(&resource)).collect();
        turns.sort_by_key(|held| held.token);
        for pair in turns.windows(2) {
            assert!(pair[0].token < pair[1].token, "a token was granted twice on {resource}");
            assert!(pair[0].to <= pair[1].from, "two held {resource} at once");
        }
    }
}

#[tokio::test]
async fn a_crowd_that_comes_and_goes_leaves_nobody_behind() {
    let pair = pair().await;
    let clients = [pair.one.client(), pair.other.client()];
    let a = clients[0].acquire("r", "10m").await;
    let waits = (0..60).map(|number| {
        let wait = format!("{}ms", 200 + 10 * number);
        clients[number % 2].lock(&wants("r", &wait)).send()
    });
    for answer in join_all(waits).await {
        answer.refused(409, "lock-wait-elapsed");
    }
    until_length(&clients[0], "r", 0).await;
    clients[0].release(&a).send().await.expect(204);
    clients[1].acquire("r", "10m").await;
}
