//! Rules that change while a gateway stands still, or while acts are under way.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{AccessRules, Lock};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::resource_path;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use futures::future::join_all;
use serde_json::json;
use sqlx::PgConnection;
use tokio::join;

use crate::operating::access_open::put_rules;
use crate::schedules::forced::run;
use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const ELSEWHERE: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"other:*\"]";
const ADMIN: &str = "allow = [\"admin\"]\nresources = [\"*\"]";

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

    /// Puts rules in force through the first gateway, as its administrator.
    async fn apply(&self, text: &str) {
        let body = json!({ "rules": text, "reason": "the test says so" });
        let put = put_rules(&self.one.client(), &body);
        self.rules.admin.by(put).send().await.expect(200);
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
        client.read("job:1", "k"),
        client.release(lock),
    ];
    let wish = json!({ "resource": "job:2", "ttl": "1h" });
    let takes = async || ann.by(client.lock(&wish)).send().await;
    let late = join_all(calls.into_iter().map(|call| ann.by(call).send()));
    let going_on = async {
        rules.put_in_force(one, &site.without_ann()).await;
        let before = version(&mut connection).await;
        other.resume();
        before
    };
    let (late, mut taken, before) = join!(late, takes(), going_on);
    for answer in late {
        answer.refused(401, "unauthenticated");
    }
    // A gateway that goes on may find that the mint did not answer in time: it granted nothing, and is asked again.
    if taken.code() == "mint-unavailable" {
        taken = eventually("the mint answers", async || {
            let again = takes().await;
            (again.code() != "mint-unavailable").then_some(again)
        })
        .await;
    }
    taken.refused(401, "unauthenticated");
    assert_eq!(version(&mut connection).await, before, "nothing was written");
    // Her key is gone, so the lock that it took is broken.
    let other = "SELECT count(*) FROM fencegate.fences WHERE hold <> 'broken' AND hold <> 'none'";
    let other: i64 = sqlx::query_scalar(other).fetch_one(&mut connection).await.unwrap();
    assert_eq!(other, 0, "neither taken nor released");
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
        // Her key is gone, and the lock that it took cannot be broken while its fence is not free.
        let (code, told) = rules.apply(one, &site.without_ann()).await;
        assert!(code == Some(1) && told.contains("not every lock could be broken"), "{told}");
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

/// It may still lock something, so it is let in; but not this.
#[tokio::test]
async fn a_renewal_that_older_rules_allowed_does_not_move_the_deadline() {
    let site = Site::new().await;
    let Site { other, rules, ann, lock, database, .. } = &site;
    let mut connection = Postgres::shared().await.connect(database).await;
    let mut deadline = async || -> i64 {
        let deadline = "SELECT (extract(epoch FROM deadline) * 1000000)::bigint
                        FROM fencegate.fences WHERE resource = 'job:1'";
        sqlx::query_scalar(deadline).fetch_one(&mut connection).await.unwrap()
    };
    let before = deadline().await;
    let client = other.client();
    for call in [
        client.renew(lock, None),
        client.renew(lock, Some("2h")),
        client.lock(&json!({ "resource": "job:1", "id": lock.id, "ttl": "2h" })),
    ] {
        other.pause();
        let late = ann.by(call).send();
        let going_on = async {
            site.apply(&rules.text(ELSEWHERE, &[("ann", ann)])).await;
            other.resume();
        };
        let (late, ()) = join!(late, going_on);
        late.refused(403, "permission-denied");
        assert_eq!(deadline().await, before);
        // For the next round this gateway knows the older rules again.
        site.apply(&rules.text(WORKS, &[("ann", ann)])).await;
        ann.by(client.lock_of(lock)).send().await.expect(200);
    }
    ann.by(client.renew(lock, None)).send().await.expect(200);
    assert!(deadline().await > before, "it would have moved");
}

/// An administrator who is none any more, at a gateway that does not know it, names the generation that is in force, the one
/// before or none: in no way do rules of its own follow. Nor is it told that the new ones are in force, by sending the same.
#[tokio::test]
async fn a_revoked_administrator_puts_nothing_in_force() {
    let site = Site::new().await;
    let Site { one, other, rules, ann, .. } = &site;
    let bob = Key::new().await;
    let with_bob = rules.text(WORKS, &[("ann", ann)])
        + &role("other-admin", ADMIN)
        + &principal("bob", "other-admin", &[&bob]);
    let without = rules.text(WORKS, &[("ann", ann)]);
    let in_force = async || -> AccessRules {
        let known = rules.admin.by(one.client().get("/admin/access")).send().await;
        known.expect(200).parse()
    };
    for round in 0..8 {
        site.apply(&with_bob).await;
        let known = bob.by(other.client().get("/admin/access")).send().await.expect(200);
        let known: AccessRules = known.parse();
        let next = known.generation + 1;
        let before = Some(known.generation);
        let (follows, text) =
            [(Some(next), &with_bob), (before, &with_bob), (None, &with_bob), (before, &without)]
                [round % 4];
        let body = json!({ "rules": text, "follows": follows, "reason": "I stay" }).to_string();
        let request = format!(
            "PUT /admin/access HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            bob.text,
            body.len()
        );
        other.pause();
        site.apply(&without).await;
        // It is there before the gateway goes on.
        let mut connection = RawConnection::open(other.address()).await;
        connection.send(request.as_bytes()).await;
        other.resume();
        let answer = connection.answer().await.unwrap();
        assert!([401, 403, 412].contains(&answer.status), "{follows:?}: {}", answer.text());
        let known = in_force().await;
        assert_eq!((known.generation, known.rules.as_ref()), (next, Some(&without)), "{follows:?}");
    }
}

/// Its turn comes while its gateway stands still; when it goes on, the lock may be sealed to nobody by that name.
#[tokio::test]
async fn a_waiter_that_is_called_after_it_lost_its_right_seals_nothing() {
    for is_given_away in [true, false] {
        let site = Site::new().await;
        let Site { one, other, rules, ann, lock, database } = &site;
        let bob = Key::new().await;
        site.apply(&rules.text(WORKS, &[("ann", ann), ("bob", &bob)])).await;
        let wish = json!({ "resource": "job:1", "ttl": "1h", "owner": "bob", "wait": "50s" });
        let waiting = bob.by(other.client().lock(&wish)).send();
        let called = async {
            let client = one.client();
            eventually("it stands in line", async || {
                let seen = ann.by(client.get(resource_path("job:1"))).send().await.expect(200);
                (seen.json()["queue_length"] == 1).then_some(())
            })
            .await;
            other.pause();
            let less = match is_given_away {
                true => rules.text(WORKS, &[("ann", ann), ("eve", &bob)]),
                false => {
                    let elsewhere = role("elsewhere", ELSEWHERE);
                    rules.text(WORKS, &[("ann", ann)])
                        + &elsewhere
                        + &principal("bob", "elsewhere", &[&bob])
                }
            };
            site.apply(&less).await;
            ann.by(client.release(lock)).send().await.expect(204);
            other.resume();
        };
        let (answer, ()) = join!(waiting, called);
        match is_given_away {
            true => answer.refused(401, "unauthenticated"),
            false => answer.refused(403, "permission-denied"),
        };
        let mut connection = Postgres::shared().await.connect(database).await;
        let sealed = "SELECT token FROM fencegate.fences WHERE resource = 'job:1'";
        let sealed: i64 = sqlx::query_scalar(sealed).fetch_one(&mut connection).await.unwrap();
        assert_eq!(sealed, lock.token.get(), "nothing was sealed since");
    }
}
