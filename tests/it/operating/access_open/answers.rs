//! Answers of the ledger that are lost while rules are put in force.

use fence_core::wire::{AccessApplied, AccessRules};
use fence_tests::access::{Key, Rules};
use fence_tests::chaos::ChaosProxy;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use serde_json::json;
use tokio::join;

use super::{begin, put_rules};
use crate::schedules::forced::run;
use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";

/// Whether they are in force nobody can say; whoever sends them again finds out, and puts nothing in force twice.
#[tokio::test]
async fn rules_whose_answer_was_lost_are_unknown_and_found_when_they_are_sent_again() {
    let (postgres, etcd) = join!(Postgres::shared(), Etcd::shared());
    let proxy = ChaosProxy::start(postgres.port()).await;
    let database = postgres.database_name().await;
    let url = postgres.url_through(proxy.port(), &database);
    let (rules, ann) = (Rules::new().await, Key::new().await);
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = SetUp::Clustered.start_ruled(settings, &rules, &rules.admin()).await;
    let client = gateway.client();
    let text = rules.text(WORKS, &[("ann", &ann)]);
    let put = |text: &str, follows: i64| {
        let body = json!({ "rules": text, "reason": "in doubt", "follows": follows });
        rules.admin.by(put_rules(&client, &body))
    };

    let mut holder = postgres.connect(&database).await;
    let mut looker = postgres.connect(&database).await;
    run(&mut holder, "BEGIN; LOCK TABLE fencegate.write_guard IN ROW SHARE MODE").await;
    let lost = begin(put(&text, 1));
    eventually("the rules wait for an act under way", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND query LIKE '%apply_rules%'
                         AND wait_event_type = 'Lock'";
        let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut looker).await.unwrap();
        (waiting > 0).then_some(())
    })
    .await;
    proxy.cut();
    lost.await.unwrap().refused(503, "outcome-unknown");
    // The server does not notice that nobody listens.
    run(&mut holder, "COMMIT").await;
    eventually("they are in force", async || {
        let generation = "SELECT access FROM fencegate.write_guard";
        let generation: i64 = sqlx::query_scalar(generation).fetch_one(&mut looker).await.unwrap();
        (generation == 2).then_some(())
    })
    .await;

    let again: AccessApplied = put(&text, 1).send().await.expect(200).parse();
    assert_eq!(again.generation, 2);
    let known = rules.admin.by(client.get("/admin/access")).send().await.expect(200);
    let known: AccessRules = known.parse();
    assert_eq!((known.generation, known.rules.as_ref()), (2, Some(&text)), "nothing twice");
    // Others that were to follow the same are too late.
    put(&rules.admin(), 1).send().await.refused(412, "version-mismatch");
    ann.by(client.lock(&json!({ "resource": "job:1" }))).send().await.expect(201);
}
