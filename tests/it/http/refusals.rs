//! Late writes that are repeated: refused from memory, so that they cost the ledger nothing; but never more than the
//! ledger has said, and never longer than it holds.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fencegate::engine::access::Permit;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fence_core::{Refusal, Token};
use fence_tests::client::{Answer, Call, Client};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::multipart::commit;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::scripted::Step;
use fencegate::engine::{CommitHead, EngineError, PutBody, Write, WriteEffect, WriteFailure};
use serde_json::json;
use sqlx::Connection as _;

use crate::engine::rig::{R, Rig, name, next_number, put, seal_as};
use crate::setup::take_over;

/// Counts the writes that the ledger is asked about.
fn asked(rig: &Rig) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    rig.ledger.on_commit(move |items, _| {
        counted.fetch_add(items.len(), Ordering::Relaxed);
        Step::act()
    });
    asked
}

fn keyed(token: Token, key: &str) -> Write {
    Write { idempotency_key: Some(key.into()), ..put(R, token) }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, WriteFailure>) -> Refusal {
    match outcome.unwrap_err().error {
        EngineError::Refused(refusal) => refusal,
        error => panic!("{error:?}"),
    }
}

/// A token that another gateway has superseded.
async fn superseded(rig: &Rig) -> Token {
    let grant = rig.granted(R).await;
    rig.engine.write(keyed(grant.token, "known")).await.unwrap();
    rig.engine.release(grant.lock, Permit::default()).await.unwrap();
    let number = next_number(&rig.mint).await;
    seal_as(&rig.memory(), "other", number, 3_600_000).await;
    grant.token
}

#[tokio::test]
async fn a_repeated_stale_write_is_not_asked_of_the_ledger_again() {
    let rig = Rig::new();
    let token = superseded(&rig).await;
    let asked = asked(&rig);
    let first = refusal(rig.write(R, token).await);
    assert!(matches!(first, Refusal::Stale { at: Some(_), .. }), "{first:?}");
    for _ in 0..3 {
        assert_eq!(refusal(rig.write(R, token).await), first);
        assert_eq!(refusal(rig.engine.write(keyed(token, "new")).await), first);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // Its key took effect while its token was good.
    let replay = rig.engine.write(keyed(token, "known")).await.unwrap();
    assert!(replay.replayed);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let body = PutBody::Inline(Bytes::from_static(b"another"));
    let WriteEffect::Put { key, content_type, .. } = put(R, token).effect else { panic!() };
    let other = Write {
        effect: WriteEffect::Put { key, content_type, about: None, body },
        ..keyed(token, "known")
    };
    let reused = rig.engine.write(other).await.unwrap_err().error;
    assert!(matches!(reused, EngineError::KeyReused { .. }), "{reused:?}");
}

#[tokio::test]
async fn a_key_that_took_effect_under_a_newer_token_meanwhile_is_replayed() {
    let rig = Rig::new();
    let old = rig.granted(R).await;
    rig.engine.release(old.lock, Permit::default()).await.unwrap();
    let new = rig.granted(R).await;
    refusal(rig.engine.write(keyed(old.token, "job")).await);
    refusal(rig.engine.write(keyed(old.token, "job")).await);
    rig.engine.write(keyed(new.token, "job")).await.unwrap();
    assert!(rig.engine.write(keyed(old.token, "job")).await.unwrap().replayed);
}

#[tokio::test]
async fn what_may_change_is_asked_of_the_ledger_each_time() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    let unknown = Token::new(grant.token.get() + 1).unwrap();
    let asked = asked(&rig);
    for _ in 0..3 {
        assert_eq!(refusal(rig.write(R, unknown).await), Refusal::Unknown);
    }
    let mismatch = || Write { resource_version: Some(7), ..put(R, grant.token) };
    for _ in 0..3 {
        assert_eq!(refusal(rig.engine.write(mismatch()).await), Refusal::VersionMismatch);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 6);
    rig.write(R, grant.token).await.unwrap();
}

#[tokio::test]
async fn what_ended_a_lock_is_forgotten_with_the_next_grant() {
    let rig = Rig::new();
    let grant = rig.granted(R).await;
    rig.engine.release(grant.lock, Permit::default()).await.unwrap();
    let asked = asked(&rig);
    assert_eq!(refusal(rig.write(R, grant.token).await), Refusal::Released);
    assert_eq!(refusal(rig.write(R, grant.token).await), Refusal::Released);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    rig.granted(R).await;
    let stale = refusal(rig.write(R, grant.token).await);
    assert!(matches!(stale, Refusal::Stale { .. }), "{stale:?}");
}

#[tokio::test]
async fn a_commit_is_told_what_its_first_resource_comes_to() {
    let rig = Rig::new();
    let token = superseded(&rig).await;
    let first = refusal(rig.write(R, token).await);
    let head = |resources: &[&str], key: Option<&str>| CommitHead {
        resources: resources.iter().map(|one| (name(one), None)).collect::<BTreeMap<_, _>>(),
        token,
        lock: None,
        sequence: None,
        idempotency_key: key.map(Into::into),
        key_kept: None,
        request_id: "test".into(),
        permit: Permit::default(),
    };
    let refused = rig.engine.refuse_commit_early(&head(&[R, "z"], None)).await.unwrap_err();
    assert_eq!(refused.resource, Some(name(R)));
    assert!(matches!(refused.error, EngineError::Refused(refusal) if refusal == first));
    // `a` was never granted under it, and comes before.
    let refused = rig.engine.refuse_commit_early(&head(&["a", R], None)).await.unwrap_err();
    assert_eq!(refused.resource, Some(name("a")));
    assert!(matches!(refused.error, EngineError::Refused(Refusal::Unknown)));
    rig.engine.refuse_commit_early(&head(&[R, "z"], Some("known"))).await.unwrap();
}

/// What an answer says of itself, apart from which request it was.
fn document(answer: &Answer) -> serde_json::Value {
    let mut document = answer.json();
    for id in ["request_id", "gateway_request_id"] {
        document.as_object_mut().unwrap().remove(id);
    }
    document
}

#[tokio::test]
async fn stale_writes_are_refused_while_no_act_of_the_ledger_goes_on() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix())
        .env("FENCEGATE_REQUEST_TIMEOUT", "1s")
        .flag("--blobs", &format!("file://{}", folder.path().display()))
        .start()
        .await;
    let client = gateway.client();
    let late = client.acquire("job:1", "1s").await;
    client.put("job:1", "k", "x").under(&late).idempotency_key("known").send().await.expect(201);
    take_over(&client, "job:1").await;
    let first = client.put("job:1", "k", "x").under(&late).send().await;
    let first = document(&first.refused(412, "fence-token-stale"));
    assert!(first["superseded_at"].is_string() && first["superseded_by"] == "grant", "{first}");

    let mut foreign = postgres.connect(database_in(&url)).await;
    let mut transaction = foreign.begin().await.unwrap();
    let lock = "LOCK TABLE fencegate.write_guard, fencegate.seal_guard IN EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *transaction).await.unwrap();
    let large = vec![7_u8; 5 << 20];
    let deletes = json!({ "operations": [{ "op": "delete", "resource": "job:1", "key": "k" }] });
    let calls: Vec<Call> = vec![
        client.put("job:1", "k", "x").under(&late),
        client.put("job:1", "k", "x").token(late.token),
        client.put("job:1", "k", "x").under(&late).idempotency_key("new"),
        client.put("job:1", "k", large).under(&late),
        client.delete("job:1", "k").under(&late),
        client.delete_resource("job:1").under(&late),
        commit(&client, &deletes, &[]).under(&late),
    ];
    for call in calls {
        let answer = call.send().await.refused(412, "fence-token-stale");
        assert_eq!(document(&answer), first);
        assert_eq!(answer.must_have("x-fence-verdict"), "refused");
    }
    // Neither is known without asking.
    let unknown = || client.put("job:1", "k", "x").token(late.token.get() + 1_000_000);
    assert_eq!(unknown().send().await.status, 503);
    transaction.rollback().await.unwrap();
    unknown().send().await.refused(403, "fence-token-unknown");
    let known = || client.put("job:1", "k", "x").under(&late).idempotency_key("known");
    eventually("the key is replayed", async || {
        let answer = known().send().await;
        (answer.header("idempotent-replayed") == Some("true")).then_some(())
    })
    .await;
    let refused = |page: &str| {
        let line = page.lines().find(|line| line.contains("reason=\"fence-token-stale\""));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(refused(&client.get("/metrics").send().await.text()), 8);
    let listed = async || {
        let list = client.get("/rejections").query("reason", "fence-token-stale").send().await;
        (list.json()["items"].as_array().unwrap().len() == 8).then_some(())
    };
    eventually("each of them is listed", listed).await;
}

#[tokio::test]
async fn a_small_body_that_nobody_wants_leaves_its_connection_as_it_was() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let late = client.acquire("job:1", "10m").await;
    client.release(&late).send().await.expect(204);
    let again = || client.put("job:1", "k", vec![7_u8; 60_000]).under(&late).send();
    for _ in 0..3 {
        let answer = again().await.refused(412, "fence-token-released");
        assert_eq!(answer.header("connection"), None);
    }
}

/// The late write of a holder, until it is answered so; nothing else is said before than that the ledger is in doubt.
async fn until_void(client: &Client, call: &Call) {
    eventually("the token is void", async || {
        let code = call.clone().send().await.code();
        let before = ["fence-token-stale", "refence-required", "ledger-unavailable"];
        assert!(code == "fence-token-void" || before.contains(&code.as_str()), "{code}");
        (code == "fence-token-void").then_some(())
    })
    .await;
    client.get("/readyz").send().await;
}

#[tokio::test]
async fn after_a_re_fence_what_was_kept_is_forgotten() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let gateway = settings.flag("--refence", "auto").start().await;
    let client = gateway.client();
    let late = client.acquire("job:1", "1s").await;
    take_over(&client, "job:1").await;
    let call = client.put("job:1", "k", "x").under(&late);
    call.clone().send().await.refused(412, "fence-token-stale");
    let halt =
        "SELECT acts.halt_at(generation, adoptions, 'the test says so') FROM fencegate.write_guard";
    postgres.execute(database_in(&url), halt).await;
    until_void(&client, &call).await;
    call.send().await.refused(412, "fence-token-void");
}
