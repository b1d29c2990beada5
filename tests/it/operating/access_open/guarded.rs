//! Transactions of users that `guard()` has let in, while their lock is taken away.

use fence_core::wire::{AccessApplied, LOST_MAX, Lock};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Site, begin, put_rules};
use crate::ledger::guard::refused;
use crate::schedules::forced::run;
use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const ELSEWHERE: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"other:*\"]";
const READS: &str = "allow = [\"read\"]\nresources = [\"job:*\"]";

/// `ann` has locks, and is a role of the database.
struct Guarded {
    site: Site,
    ann: Key,
    locks: [Lock; 2],
    role: String,
}

fn text(rules: &Rules, may: &str, ann: &Key, database_role: &str) -> String {
    let line = format!("postgres_roles = [\"{database_role}\"]\n");
    rules.admin() + &role("worker", may) + &principal("ann", "worker", &[ann]) + &line
}

impl Guarded {
    async fn new() -> Self {
        let ann = Key::new().await;
        let role = format!("ann_{}", Uuid::new_v4().simple());
        let site = Site::new(SetUp::Clustered, |rules| text(rules, WORKS, &ann, &role)).await;
        let locks = [site.locked(&ann, "job:1").await, site.locked(&ann, "job:2").await];
        let guarded = Self { site, ann, locks, role };
        let mut connection = guarded.connect().await;
        let role = &guarded.role;
        run(
            &mut connection,
            &format!(
                "CREATE TABLE done (what text); CREATE ROLE {role};
                 GRANT USAGE ON SCHEMA fencegate TO {role};
                 GRANT EXECUTE ON FUNCTION fencegate.guard(text, bigint, uuid) TO {role};
                 GRANT INSERT ON done TO {role}"
            ),
        )
        .await;
        guarded
    }

    async fn connect(&self) -> PgConnection {
        Postgres::shared().await.connect(&self.site.database()).await
    }

    /// A session of the role that is `ann` to `guard()`.
    async fn session(&self) -> PgConnection {
        let mut connection = self.connect().await;
        run(&mut connection, &format!("SET SESSION AUTHORIZATION {}", self.role)).await;
        connection
    }

    /// `fencegate access apply`, with `ann` allowed so much: the exit code, and what it said.
    async fn apply(&self, may: &str, more: &[&str]) -> (Option<i32>, String) {
        let file = self.site.rules.home.path().join("next.toml");
        std::fs::write(&file, text(&self.site.rules, may, &self.ann, &self.role)).unwrap();
        let args = ["access", "apply", file.to_str().unwrap(), "--reason", "the test says so"];
        let (code, out, log) = self.site.gateways[0].run(&[&args[..], more].concat()).await;
        (code, out + &log)
    }

    async fn done(&self) -> i64 {
        let mut connection = self.connect().await;
        sqlx::query_scalar("SELECT count(*) FROM done").fetch_one(&mut connection).await.unwrap()
    }

    /// The role is of the whole server.
    async fn end(self) {
        let mut connection = self.connect().await;
        let role = &self.role;
        run(&mut connection, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

fn guard(lock: &Lock) -> String {
    format!("SELECT fencegate.guard('{}', {}, '{}')", lock.resources[0], lock.token, lock.id)
}

/// The break waits for the transaction, but not for as long as it may last; and it is said which lock is left.
#[tokio::test]
async fn a_lock_that_a_guarded_transaction_keeps_is_told_and_broken_by_the_same_command_again() {
    let guarded = Guarded::new().await;
    let [one, two] = &guarded.locks;
    let mut open = guarded.session().await;
    run(&mut open, "BEGIN").await;
    run(&mut open, &guard(one)).await;
    run(&mut open, "INSERT INTO done VALUES ('in time')").await;

    let (code, told) = guarded.apply(ELSEWHERE, &["--break"]).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("generation 2"), "the rules are in force: {told}");
    assert!(told.contains("job:1 of holder (ann)\n"), "{told}");
    // What the transaction has keeps none of the others.
    assert!(told.contains("job:2 of holder (ann), broken\n"), "{told}");
    assert!(told.contains("not every lock could be broken"), "{told}");
    // What it was let in for goes through.
    run(&mut open, "COMMIT").await;
    assert_eq!(guarded.done().await, 1);

    let (code, told) = guarded.apply(ELSEWHERE, &["--break"]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("job:1 of holder (ann), broken\n"), "{told}");
    for lock in [one, two] {
        assert_eq!(refused(&mut open, &guard(lock)).await.0, "FG405");
    }
    drop(open);
    guarded.end().await;
}

/// Rules without `--break` leave the lock. To `guard()` that is its principal's, as long as this may write anything at all:
/// resources are not looked at there, so only the break keeps it out of these.
#[tokio::test]
async fn guard_goes_by_whose_the_lock_is_until_it_is_broken() {
    let guarded = Guarded::new().await;
    let [one, two] = &guarded.locks;
    let mut session = guarded.session().await;
    let (code, told) = guarded.apply(ELSEWHERE, &[]).await;
    assert!(code == Some(0) && told.contains("job:1 of holder (ann)\n"), "{told}");
    let client = guarded.site.client();
    let late = client.put("job:1", "k", "late").under(one);
    guarded.ann.by(late).send().await.refused(403, "permission-denied");
    for lock in [one, two] {
        run(&mut session, &guard(lock)).await;
    }
    let (code, told) = guarded.apply(ELSEWHERE, &["--break"]).await;
    assert!(code == Some(0) && told.contains("job:1 of holder (ann), broken\n"), "{told}");
    for lock in [one, two] {
        assert_eq!(refused(&mut session, &guard(lock)).await.0, "FG405");
    }
    drop(session);
    guarded.end().await;
}

/// Who may write nothing any more, or is not in the rules, is nobody to `guard()` at once.
#[tokio::test]
async fn guard_takes_nothing_from_a_role_whose_principal_may_write_nothing_or_is_gone() {
    let guarded = Guarded::new().await;
    let mut session = guarded.session().await;
    run(&mut session, &guard(&guarded.locks[0])).await;
    let reads = text(&guarded.site.rules, READS, &guarded.ann, &guarded.role);
    for less in [reads, guarded.site.rules.admin()] {
        guarded.site.put_in_force(&less).await;
        for lock in &guarded.locks {
            assert_eq!(refused(&mut session, &guard(lock)).await.0, "FG402");
        }
    }
    drop(session);
    guarded.end().await;
}

/// The lock of a key that has gone from the rules, although its principal may do all that it might before.
#[tokio::test]
async fn a_lock_of_a_key_that_is_gone_is_broken_to_guard_as_well() {
    let mut guarded = Guarded::new().await;
    let lock = guarded.locks[0].clone();
    let mut session = guarded.session().await;
    run(&mut session, &guard(&lock)).await;
    guarded.ann = Key::new().await;
    let (code, told) = guarded.apply(WORKS, &[]).await;
    assert_eq!(code, Some(0), "{told}");
    let (before, after) = told.split_once("In force as generation").unwrap();
    let line = "  job:1 of holder (ann), its credential is revoked or gone";
    assert!(before.contains(&format!("Locks that these rules break:\n{line}\n")), "{told}");
    assert!(after.contains(&format!("{line}, broken\n")), "{told}");
    let (code, why) = refused(&mut session, &guard(&lock)).await;
    assert_eq!(code, "FG405", "guard: {why}");
    guarded.end().await;
}

/// Its gateway is killed between the rules and the break: the next start breaks what is left.
#[tokio::test]
async fn guard_takes_nothing_under_a_lock_that_a_killed_gateway_had_yet_to_break() {
    let mut guarded = Guarded::new().await;
    let lock = guarded.locks[0].clone();
    let mut session = guarded.session().await;
    let (mut holder, mut looker) = (guarded.connect().await, guarded.connect().await);
    run(&mut holder, "BEGIN; LOCK TABLE fencegate.locks IN ACCESS EXCLUSIVE MODE").await;
    let next = text(&guarded.site.rules, WORKS, &Key::new().await, &guarded.role);
    let body = json!({ "rules": next, "reason": "it was stolen" });
    let put = put_rules(&guarded.site.gateways[0].client(), &body);
    let put = begin(guarded.site.rules.admin.by(put));
    eventually("the rules are stored, and the locks are looked for", async || {
        let looking = "SELECT count(*) FROM pg_stat_activity, fencegate.write_guard g
                       WHERE datname = current_database() AND wait_event_type = 'Lock'
                         AND query LIKE '%lock_records%' AND g.access = 2";
        let looking: i64 = sqlx::query_scalar(looking).fetch_one(&mut looker).await.unwrap();
        (looking > 0).then_some(())
    })
    .await;
    for gateway in &mut guarded.site.gateways {
        gateway.kill9();
    }
    put.abort();
    run(&mut holder, "COMMIT").await;
    // Nobody else would keep its holder out of a table.
    run(&mut session, &guard(&lock)).await;

    guarded.site.gateways[0].restart().await;
    eventually("the lock is broken", async || {
        let hold = "SELECT hold FROM fencegate.fences WHERE resource = 'job:1'";
        let hold: String = sqlx::query_scalar(hold).fetch_one(&mut looker).await.unwrap();
        (hold == "broken").then_some(())
    })
    .await;
    assert_eq!(refused(&mut session, &guard(&lock)).await.0, "FG405");
    drop((session, holder, looker));
    guarded.end().await;
}

/// The number tells whether all could be broken: an answer names no more than so many.
#[tokio::test]
async fn a_lock_that_could_not_be_broken_is_told_however_many_there_are() {
    let guarded = Guarded::new().await;
    let names: Vec<_> = (0..LOST_MAX + 10).map(|number| format!("job:m{number:04}")).collect();
    let locked = names.iter().map(|name| guarded.site.locked(&guarded.ann, name));
    let made = stream::iter(locked).buffer_unordered(32).count().await;
    // The last of all by its name.
    let kept = guarded.site.locked(&guarded.ann, "job:z").await;
    let all = made as u64 + 3;
    let mut open = guarded.session().await;
    run(&mut open, "BEGIN").await;
    run(&mut open, &guard(&kept)).await;

    let (code, told) = guarded.apply(ELSEWHERE, &["--break"]).await;
    assert_eq!(code, Some(1), "{told}");
    let (before, after) = told.split_once("In force as generation 2").unwrap();
    let more = all - LOST_MAX as u64;
    assert!(before.contains(&format!("  and {more} more\n")), "{told}");
    assert!(after.contains("job:z of holder (ann)\n"), "{told}");
    assert!(after.contains(&format!("1 of {all} could not")), "{told}");
    let same = text(&guarded.site.rules, ELSEWHERE, &guarded.ann, &guarded.role);
    let body = json!({ "rules": same, "reason": "again", "break": true });
    let again = put_rules(&guarded.site.gateways[0].client(), &body);
    let again = guarded.site.rules.admin.by(again).send().await.expect(200);
    let again: AccessApplied = again.parse();
    assert_eq!((again.lost_count, again.broken_count, again.unbroken_count), (1, 0, 1));
    run(&mut open, "COMMIT").await;
    let (code, told) = guarded.apply(ELSEWHERE, &["--break"]).await;
    assert!(code == Some(0) && told.contains("job:z of holder (ann), broken\n"), "{told}");
    drop(open);
    guarded.end().await;
}
