//! An etcd that was wiped, restored or lost a member: grants go on by themselves with larger tokens,
//! and holders notice nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use fence_core::wire::{Lock, Readiness};
use fence_tests::client::Client;
use fence_tests::conformance::pause;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fence_tests::survey;
use futures::future::join_all;
use serde_json::json;

use crate::disasters::outages::part;

const HOLDERS: usize = 4;
const RESOURCES: usize = 8;

/// The highest token of each resource so far.
type Highest = RefCell<BTreeMap<String, i64>>;

/// Takes a lock and gives it back, if it is granted; its token must rise.
async fn grant(client: &Client, resource: &str, highest: &Highest) -> bool {
    let body = json!({ "resource": resource, "ttl": "10m" });
    let answer = client.lock(&body).send().await;
    if answer.status != 201 {
        assert_eq!(answer.status, 503, "{}", answer.text());
        return false;
    }
    let lock: Lock = answer.parse();
    let last = highest.borrow_mut().insert(resource.to_owned(), lock.token.get());
    assert!(last < Some(lock.token.get()), "{resource}: {} after {last:?}", lock.token);
    client.release(&lock).send().await.expect(204);
    true
}

/// As many grants, spread over the resources, all of which succeed.
async fn grants(client: &Client, count: usize, highest: &Highest) {
    let one = async |index: usize| {
        for _ in 0..count / RESOURCES {
            assert!(grant(client, &format!("job:{index}"), highest).await);
        }
    };
    join_all((0..RESOURCES).map(one)).await;
}

/// The value of a counter without labels; 0 before it was first counted.
async fn counter(client: &Client, name: &str) -> u64 {
    let page = client.get("/metrics").send().await.expect(200).text();
    let value = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    value.map_or(0, |value| value.parse().expect("a count"))
}

async fn epoch(postgres: &Postgres, url: &str) -> (i64, bool) {
    let mut connection = postgres.connect(fence_tests::postgres::database_in(url)).await;
    sqlx::query_as("SELECT epoch, open FROM fencegate.seal_guard")
        .fetch_one(&mut connection)
        .await
        .expect("the guard is read")
}

#[tokio::test]
async fn an_etcd_that_was_restored_or_wiped_gets_a_new_epoch_and_disturbs_no_holder() {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let held = join_all((0..HOLDERS).map(|index| {
        let client = client.clone();
        async move { client.acquire(&format!("held:{index}"), "1h").await }
    }))
    .await;
    let highest = Highest::default();
    for index in 0..RESOURCES {
        highest.borrow_mut().insert(format!("job:{index}"), 0);
    }
    grants(&client, 80, &highest).await;
    let snapshot = etcd.snapshot();
    grants(&client, survey::size(240, 1_000), &highest).await;

    let (stop, written) = (Cell::new(false), Cell::new(0));
    let writer = async |lock: &Lock| {
        while !stop.get() {
            let put = client.put(lock.resources[0].as_str(), "k", "x").under(lock).send().await;
            assert!(put.status.is_success(), "a holder was refused: {}", put.text());
            written.set(written.get() + 1);
        }
    };
    let disasters = async {
        for (round, what) in ["restored", "wiped"].into_iter().enumerate() {
            etcd.stop().await;
            match what {
                "restored" => etcd.restore(&snapshot),
                _ => etcd.wipe(),
            }
            let before = written.get();
            etcd.start().await;
            eventually("locks are granted again", async || {
                grant(&client, "job:0", &highest).await.then_some(())
            })
            .await;
            grants(&client, 200, &highest).await;
            assert!(written.get() > before, "holders write meanwhile");
            let begun = i64::try_from(round).expect("small") + 1;
            assert_eq!(epoch(postgres, &url).await, (begun, true), "{}", gateway.log());
            client.get("/readyz").query("grants", "1").send().await.expect(200);
        }
        stop.set(true);
    };
    tokio::join!(join_all(held.iter().map(writer)), disasters);
    assert_eq!(counter(&client, "fencegate_epoch_switches_total").await, 2);
    gateway.logged("the mint has lost its place").await;
    for lock in &held {
        client.renew(lock, None).send().await.expect(200);
    }
}

#[tokio::test]
async fn of_two_gateways_that_notice_at_once_one_begins_a_new_epoch() {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let (one, other) = tokio::join!(settings.clone().start(), settings.start());
    let clients = [one.client(), other.client()];
    let mut tokens = Vec::new();
    for round in 1..=3 {
        let asked = (0..16).map(|index| {
            let client = clients[index % 2].clone();
            let resource = format!("job:{round}:{index}");
            async move {
                eventually("a lock is granted", async || {
                    let answer = client.lock(&json!({ "resource": resource })).send().await;
                    (answer.status == 201).then(|| answer.parse::<Lock>().token.get())
                })
                .await
            }
        });
        let granted = join_all(asked).await;
        let highest = tokens.iter().copied().max().unwrap_or(0);
        assert!(granted.iter().all(|token| *token > highest), "{granted:?} after {highest}");
        tokens.extend(granted);
        assert_eq!(epoch(postgres, &url).await, (round - 1, true));
        etcd.stop().await;
        etcd.wipe();
        etcd.start().await;
    }
    // The last time nobody asks: it is noticed all the same.
    eventually("both gateways grant again", async || {
        for client in &clients {
            let ready = client.get("/readyz").query("grants", "1").send().await;
            (ready.status == 200).then_some(())?;
        }
        Some(())
    })
    .await;
    let mut switches = 0;
    for client in &clients {
        switches += counter(client, "fencegate_epoch_switches_total").await;
    }
    assert_eq!((switches, epoch(postgres, &url).await), (3, (3, true)));
}

#[tokio::test]
async fn an_epoch_whose_gateway_died_before_it_told_etcd_is_completed_by_another() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let database = postgres.database_name().await;
    let url = postgres.url(&database);
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let mut gateway = settings.clone().start().await;
    let begin = async |expected: i64| {
        let act = format!("acts.switch_epoch(0, {expected}, gen_random_uuid(), 0, 'test')");
        postgres.execute(&database, &format!("SELECT {act}")).await;
    };
    let client = gateway.client();
    let held = client.acquire("job:held", "10m").await;
    let first = client.acquire("job:1", "10m").await;
    client.release(&first).send().await.expect(204);
    // A gateway that runs on finds out, and so does one that starts.
    begin(0).await;
    let second = client.acquire("job:1", "10m").await;
    assert!(second.token > first.token && second.token > held.token);
    client.release(&second).send().await.expect(204);
    assert_eq!(epoch(postgres, &url).await, (1, true));
    gateway.kill9();
    begin(1).await;
    let gateway = settings.start().await;
    let client = gateway.client();
    let third = client.acquire("job:1", "10m").await;
    assert!(third.token > second.token);
    assert_eq!(epoch(postgres, &url).await, (2, true));
    client.put("job:held", "k", "x").under(&held).send().await.expect(201);
}

#[tokio::test]
async fn two_installations_on_one_prefix_do_not_fight() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let (mine, theirs) = tokio::join!(postgres.database(), postgres.database());
    let prefix = etcd.prefix();
    let owner = Gateway::clustered(&mine, &etcd.endpoint(), &prefix).start().await;
    let first = owner.client().acquire("job:1", "10m").await;
    let intruder = Gateway::clustered(&theirs, &etcd.endpoint(), &prefix).start().await;
    let client = intruder.client();
    let refused = client.lock(&json!({ "resource": "job:1" })).send().await;
    let problem = refused.refused(503, "mint-regressed").problem();
    assert!(problem.detail.contains("another ledger"), "{problem:?}");
    let ready: Readiness = client.get("/readyz").send().await.expect(200).parse();
    let (works, why) = part(&ready, "mint");
    assert!(!works && why.is_some_and(|why| why.contains("another ledger")), "{ready:?}");
    client.get("/readyz").query("grants", "1").send().await.expect(503);
    owner.client().release(&first).send().await.expect(204);
    owner.client().acquire("job:1", "10m").await;
    assert_eq!(epoch(postgres, &mine).await, (0, true));
    assert_eq!(epoch(postgres, &theirs).await, (0, false));
}

#[tokio::test]
async fn grants_go_on_when_the_leader_of_etcd_is_killed() {
    let (members, postgres) = tokio::join!(Etcd::cluster(3), Postgres::shared());
    let url = postgres.database().await;
    let endpoints: Vec<String> = members.iter().map(Etcd::endpoint).collect();
    let gateway = Gateway::clustered(&url, &endpoints.join(","), "/fencegate").start().await;
    let client = gateway.client();
    let highest = Highest::default();
    for index in 0..RESOURCES {
        highest.borrow_mut().insert(format!("job:{index}"), 0);
    }
    let (stop, granted) = (Cell::new(false), Cell::new(0));
    let load = async |index: usize| {
        while !stop.get() {
            if grant(&client, &format!("job:{index}"), &highest).await {
                granted.set(granted.get() + 1);
            }
        }
    };
    let disaster = async {
        eventually("locks are granted", async || (granted.get() > 100).then_some(())).await;
        let mut leader = None;
        for member in &members {
            if member.leads().await {
                leader = Some(member);
            }
        }
        leader.expect("a cluster that answers has a leader").kill9();
        // What was under way is not counted.
        pause(100).await;
        let before = granted.get() + RESOURCES;
        eventually("locks are granted again", async || (granted.get() > before).then_some(()))
            .await;
        stop.set(true);
    };
    tokio::join!(join_all((0..RESOURCES).map(load)), disaster);
    assert_eq!(epoch(postgres, &url).await, (0, true));
}
