//! Rules that change while a gateway stands still, or while acts are under way.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::Lock;
use fence_tests::access::{Key, Rules};
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use futures::future::join_all;
use serde_json::json;
use sqlx::PgConnection;
use tokio::join;

use crate::schedules::forced::run;
use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";

/// Two gateways of one ledger, and `ann`, who has a lock, and whom the second gateway knows.
struct Site {
    one: Gateway,
    other: Gateway,
    rules: Rules,
    ann: Key,
    lock: Lock,
    database: String,
}

impl Site {
    async fn new() -> Self {
        let settings = SetUp::Clustered.settings().await;
        let postgres = settings.flags().into_iter().find(|(flag, _)| flag == "--postgres");
        let database = database_in(&postgres.unwrap().1).to_owned();
        let (one, other) = (settings.clone().start().await, settings.start().await);
        let (rules, ann) = (Rules::new().await, Key::new().await);
        rules.put_in_force(&one, &rules.text(WORKS, &[("ann", &ann)])).await;
        let client = other.client();
        let job = json!({ "resource": "job:1", "ttl": "1h" });
        let lock: Lock = ann.by(client.lock(&job)).send().await.expect(201).parse();
        ann.by(client.put("job:1", "k", "x").under(&lock)).send().await.expect(201);
        Self { one, other, rules, ann, lock, database }
    }

    /// Rules in which `ann` is nobody.
    fn without_ann(&self) -> String {
        self.rules.admin()
    }
}

/// The version of the newest write.
async fn version(connection: &mut PgConnection) -> i64 {
    let version = sqlx::query_scalar("SELECT max(version) FROM fencegate.operations");
    version.fetch_one(connection).await.unwrap()
}

/// How many sessions of this database wait for a lock.
async fn waiting(connection: &mut PgConnection) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    sqlx::query_scalar(waiting).fetch_one(connection).await.unwrap()
}

/// What it was sent while it stood still it had allowed before; when it goes on, the rules are others.
#[tokio::test]
async fn a_gateway_that_stood_still_does_nothing_that_older_rules_allowed() {
    let site = Site::new().await;
    let Site { one, other, rules, ann, lock, database } = &site;
    let mut connection = Postgres::shared().await.connect(database).await;
    other.pause();
    let client = other.client();
    let calls = [
        client.put("job:1", "k", "late").under(lock),
        client.delete("job:1", "k").under(lock),
        client.renew(lock, None),
        client.lock(&json!({ "resource": "job:2", "ttl": "1h" })),
        client.read("job:1", "k"),
        client.release(lock),
    ];
    let late = join_all(calls.into_iter().map(|call| ann.by(call).send()));
    let going_on = async {
        rules.put_in_force(one, &site.without_ann()).await;
        let before = version(&mut connection).await;
        other.resume();
        before
    };
    let (late, before) = join!(late, going_on);
    for answer in late {
        answer.refused(401, "unauthenticated");
    }
    assert_eq!(version(&mut connection).await, before, "nothing was written");
    let held = "SELECT count(*) FROM fencegate.fences WHERE hold = 'held'";
    let held: i64 = sqlx::query_scalar(held).fetch_one(&mut connection).await.unwrap();
    assert_eq!(held, 1, "neither taken nor released");
}

/// A write that waits for its fence while the rules change has no effect after that.
#[tokio::test]
async fn a_write_under_way_has_no_effect_once_other_rules_are_in_force() {
    let site = Site::new().await;
    let Site { one, other, rules, ann, lock, database } = &site;
    let postgres = Postgres::shared().await;
    let mut holder = postgres.connect(database).await;
    let mut looker = postgres.connect(database).await;
    run(&mut holder, "BEGIN").await;
    run(&mut holder, "SELECT FROM fencegate.fences WHERE resource = 'job:1' FOR NO KEY UPDATE")
        .await;
    let write = ann.by(other.client().put("job:1", "k", "late").under(lock)).send();
    let applied = async {
        eventually("the write waits for the fence", async || {
            (waiting(&mut looker).await > 0).then_some(())
        })
        .await;
        rules.put_in_force(one, &site.without_ann()).await;
        let at_once = version(&mut looker).await;
        run(&mut holder, "COMMIT").await;
        at_once
    };
    let (answer, at_once) = join!(write, applied);
    // Its fence was not free before the rules were in force: what it may do was asked of those then, if it waited so long.
    assert!([401, 503].contains(&answer.status.as_u16()), "{}", answer.text());
    assert_eq!(version(&mut looker).await, at_once, "nothing came after the rules");
}

/// Rules that this gateway cannot read, such as those of a newer version, let nobody do anything.
#[tokio::test]
async fn rules_that_cannot_be_had_allow_nothing() {
    let Site { other, ann, lock, database, .. } = &Site::new().await;
    let mut connection = Postgres::shared().await.connect(database).await;
    run(
        &mut connection,
        "INSERT INTO fencegate.access (generation, rules, sha256, applied_at, reason)
         VALUES (7, '[[unheard_of]]', '', now(), 'a newer version');
         UPDATE fencegate.seal_guard SET access = 7; UPDATE fencegate.write_guard SET access = 7",
    )
    .await;
    let client = other.client();
    for call in [
        client.put("job:1", "k", "late").under(lock),
        client.renew(lock, None),
        client.lock(&json!({ "resource": "job:2" })),
        client.read("job:1", "k"),
        client.release(lock),
    ] {
        ann.by(call).send().await.refused(503, "access-unavailable");
    }
    client.get("/healthz").send().await.expect(200);
}
