//! One principal that means harm, beside another: the first is refused by its own share, and the second is answered while all
//! that the first has begun is still under way.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]

use std::net::SocketAddr;

use fence_core::wire::{Lock, UsageList};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::Call;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::raw::RawConnection;
use fence_tests::s3::{self, Request, text_of};
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::s3::faults::rig::speaking_s3;
use crate::schedules::forced::run;
use crate::setup::SetUp;

const MAY: &str = "allow = [\"lock\", \"write\", \"clear\", \"read\", \"list\", \"observe\"]\nresources = [\"*\"]";
/// Too large for the ledger, and to be half an upload.
const LARGE: usize = 9 << 20;
const MIB: usize = 1 << 20;

/// A gateway with two principals: `ann`, who means harm, and `bob`.
struct Site {
    gateway: Gateway,
    rules: Rules,
    ann: Key,
    bob: Key,
}

impl Site {
    /// With these lines in the role of `ann`, and these in `ann` herself.
    async fn new(set_up: SetUp, settings: Settings, quotas: &str, more: &str) -> Self {
        let rules = Rules::new().await;
        let (ann, bob) = (Key::new().await, Key::new().await);
        let text = rules.admin()
            + &role("harmful", &format!("{MAY}\n{quotas}"))
            + &role("plain", MAY)
            + &principal("bob", "plain", &[&bob])
            + &principal("ann", "harmful", &[&ann])
            + more;
        let gateway = set_up.start_ruled(settings, &rules, &text).await;
        Self { gateway, rules, ann, bob }
    }

    async fn locked(&self, by: &Key, resource: &str) -> Lock {
        let wish = json!({ "resource": resource, "ttl": "1h" });
        by.by(self.gateway.client().lock(&wish)).send().await.expect(201).parse()
    }

    fn put(&self, by: &Key, lock: &Lock, bytes: usize) -> Call {
        let resource = lock.resources[0].as_str();
        by.by(self.gateway.client().put(resource, "k", vec![7; bytes]).under(lock))
    }

    /// Whatever `bob` asks for is done.
    async fn bob_gets_through(&self) {
        for _ in 0..5 {
            let lock = self.locked(&self.bob, "bob").await;
            for _ in 0..5 {
                let written = self.put(&self.bob, &lock, 100).send().await;
                assert!(written.status.is_success(), "{}", written.text());
            }
            let client = self.gateway.client();
            self.bob.by(client.renew(&lock, None)).send().await.expect(200);
            self.bob.by(client.read("bob", "k")).send().await.expect(200);
            self.bob.by(client.release(&lock)).send().await.expect(204);
        }
    }

    async fn usage(&self) -> UsageList {
        let usage = self.bob.by(self.gateway.client().get("/admin/usage")).send().await;
        usage.expect(200).parse()
    }

    /// Refusals of `ann` and of `bob` for shares that they have already.
    async fn refused(&self) -> [u64; 2] {
        let all = self.usage().await.items;
        ["ann", "bob"].map(|name| {
            let found = all.iter().find(|usage| usage.principal.as_str() == name);
            found.map_or(0, |usage| usage.refused)
        })
    }

    /// Part of this that `ann` has, if she has any.
    async fn held_by_ann(&self, quota: &str) -> Option<u64> {
        let all = self.usage().await.items;
        let ann = all.into_iter().find(|usage| usage.principal.as_str() == "ann")?;
        ann.held.get(quota).copied()
    }

    /// Refusals of anybody for this share.
    async fn limited(&self, limit: &str) -> u64 {
        let metrics = self.bob.by(self.gateway.client().get("/metrics")).send().await;
        let metrics = metrics.expect(200).text();
        let name = format!("fencegate_rate_limited_total{{limit=\"{limit}\"}} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&name));
        found.map_or(0, |count| count.parse().unwrap())
    }
}

fn database(settings: &Settings) -> String {
    let flags = settings.flags();
    let postgres = flags.iter().find(|(flag, _)| flag == "--postgres");
    database_in(&postgres.unwrap().1).to_owned()
}

/// Number of the gateway's calls that wait for a lock, in statements with this in their text.
async fn waiting(looker: &mut PgConnection, text: &str) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND wait_event_type = 'Lock' AND position($1 IN query) > 0";
    sqlx::query_scalar(waiting).bind(text).fetch_one(looker).await.unwrap()
}

/// 1. `ann` guards a transaction with many locks, and leaves it open.
/// 2. What she asks for then waits for it: of what may wait, as much as her share. The rest is refused.
/// 3. `bob` waits behind none of it.
#[tokio::test]
async fn idle_guarded_transactions_on_many_resources() {
    const LOCKS: usize = 40;
    const QUEUE_MAX: usize = 16;
    let settings = SetUp::Clustered.settings().await;
    let settings = settings
        .env("FENCEGATE_QUEUE_MAX", &QUEUE_MAX.to_string())
        .env("FENCEGATE_REQUEST_TIMEOUT", "1m");
    let (postgres, database) = (Postgres::shared().await, database(&settings));
    let user = format!("ann_{}", Uuid::new_v4().simple());
    let line = format!("postgres_roles = [\"{user}\"]\n");
    let site = Site::new(SetUp::Clustered, settings, "", &line).await;
    let mut looker = postgres.connect(&database).await;
    run(
        &mut looker,
        &format!(
            "CREATE ROLE {user}; GRANT USAGE ON SCHEMA fencegate TO {user};
             GRANT EXECUTE ON FUNCTION fencegate.guard(text, bigint, uuid) TO {user}"
        ),
    )
    .await;
    // Step 1.
    let mut idle = postgres.connect(&database).await;
    run(&mut idle, &format!("SET SESSION AUTHORIZATION {user}; BEGIN")).await;
    let mut locks = Vec::new();
    for number in 0..LOCKS {
        let lock = site.locked(&site.ann, &format!("ann:{number}")).await;
        let (resource, token, id) = (&lock.resources[0], lock.token, lock.id);
        run(&mut idle, &format!("SELECT fencegate.guard('{resource}', {token}, '{id}')")).await;
        locks.push(lock);
    }
    // Step 2.
    let release = |lock| site.ann.by(site.gateway.client().release(lock)).send();
    let released: Vec<_> = locks.iter().map(|lock| tokio::spawn(release(lock))).collect();
    let share = QUEUE_MAX / 2;
    eventually("what is beyond her share is refused", async || {
        let done = released.iter().filter(|one| one.is_finished()).count();
        (done >= LOCKS - share).then_some(())
    })
    .await;
    eventually("the rest waits for the transaction", async || {
        (waiting(&mut looker, ".release").await > 0).then_some(())
    })
    .await;
    // Step 3.
    site.bob_gets_through().await;
    assert_eq!(site.refused().await[1], 0);
    let held = released.iter().filter(|one| !one.is_finished()).count();
    assert!((1..=share).contains(&held), "{held} are held");

    run(&mut idle, "COMMIT").await;
    let mut refused = 0;
    for one in released {
        let answer = one.await.unwrap();
        match answer.status.as_u16() {
            204 => {}
            _ => {
                answer.refused(503, "overloaded");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, LOCKS - held, "and what was held is done");
    drop(idle);
    run(&mut looker, &format!("DROP OWNED BY {user}; DROP ROLE {user}")).await;
}

/// A resource with more objects than one act removes is asked to be removed, over and over.
#[tokio::test]
async fn deletes_of_a_large_resource() {
    const DELETES: usize = 60;
    let settings = SetUp::Clustered.settings().await;
    let database = database(&settings);
    let site = Site::new(SetUp::Clustered, settings, "rate = 5\nburst = 5", "").await;
    let large = site.locked(&site.ann, "large").await;
    let fill = "INSERT INTO fencegate.objects
                    (resource, key, version, generation, content_type, size, sha256, written_at, body)
                SELECT 'large', 'k' || n, 1, 0, 'text/plain', 1, sha256('x'), now(), 'x'
                FROM generate_series(1, 10001) n;
                UPDATE fencegate.fences SET objects = 10001 WHERE resource = 'large'";
    Postgres::shared().await.execute(&database, fill).await;
    let delete =
        || site.ann.by(site.gateway.client().delete_resource("large").under(&large)).send();
    let deletes = join_all((0..DELETES).map(|_| delete()));
    let (deletes, ()) = tokio::join!(deletes, site.bob_gets_through());
    let mut refused = 0;
    for answer in deletes {
        match answer.status.as_u16() {
            429 => {
                answer.refused(429, "rate-limited");
                refused += 1;
            }
            _ => drop(answer.refused(409, "too-many-objects")),
        }
    }
    assert!(0 < refused && refused < DELETES, "{refused} of {DELETES}");
    let counted = refused as u64;
    let [ann, bob] = site.refused().await;
    assert!(ann >= counted && bob == 0, "{ann} and {bob} of {counted}");
    assert!(site.limited("rate").await >= counted);
}

/// 1. As many copies of `ann` as she may have are under way, and stay so.
/// 2. Each further one is refused at once; `bob` is answered, and a copy of his has its place.
/// 3. All that was under way is done.
#[tokio::test]
async fn copies_on_the_server() {
    const MORE: usize = 20;
    let (settings, s3) = speaking_s3(SetUp::Clustered.settings().await);
    let settings = settings.env("FENCEGATE_REQUEST_TIMEOUT", "1m");
    let (postgres, database) = (Postgres::shared().await, database(&settings));
    // Two that are small.
    let site = Site::new(SetUp::Clustered, settings, "uploads = 1", "").await;
    let make = site.gateway.client().call(Method::PUT, "/buckets/lake");
    let make = make.header("content-type", "application/json");
    site.rules.admin.by(make.body(json!({ "depth": 1 }).to_string())).send().await.expect(201);
    let of_ann = s3::Key::of(&site.locked(&site.ann, "lake:a").await);
    let of_bob = s3::Key::of(&site.locked(&site.bob, "lake:b").await);
    for (key, path) in [(&of_ann, "/lake/a/x"), (&of_bob, "/lake/b/x")] {
        let put = Request::put(path, vec![7; 100_000]).sign(s3, key).send(s3).await;
        assert_eq!(put.status, 200, "{}", put.text());
    }
    // Step 1.
    let mut holder = postgres.connect(&database).await;
    let mut looker = postgres.connect(&database).await;
    run(&mut holder, "BEGIN; LOCK TABLE fencegate.blob_intents IN EXCLUSIVE MODE").await;
    let mut held = vec![
        tokio::spawn(copied(s3, of_ann.clone(), "/lake/a/x", "/lake/a/1")),
        tokio::spawn(copied(s3, of_ann.clone(), "/lake/a/x", "/lake/a/2")),
    ];
    let mut until_waiting = async |count: i64| {
        eventually("the copies have their places", async || {
            (waiting(&mut looker, ".begin_upload(").await == count).then_some(())
        })
        .await;
    };
    until_waiting(2).await;
    // Step 2.
    for _ in 0..MORE {
        let refused = copied(s3, of_ann.clone(), "/lake/a/x", "/lake/a/3").await;
        assert_eq!(refused, (503, "SlowDown".to_owned()));
    }
    site.bob_gets_through().await;
    held.push(tokio::spawn(copied(s3, of_bob, "/lake/b/x", "/lake/b/1")));
    until_waiting(3).await;
    let [ann, bob] = site.refused().await;
    assert!(ann >= MORE as u64 && bob == 0, "{ann} and {bob}");
    assert_eq!(site.limited("uploads").await, MORE as u64);
    // Step 3.
    run(&mut holder, "COMMIT").await;
    for copy in held {
        assert_eq!(copy.await.unwrap().0, 200);
    }
}

/// The status of a copy, and its code.
async fn copied(
    s3: SocketAddr,
    key: s3::Key,
    from: &'static str,
    to: &'static str,
) -> (u16, String) {
    let answer = Request::copy(to, from).sign(s3, &key).send(s3).await;
    let text = answer.text();
    (answer.status, text_of(&text, "Code").unwrap_or_default().to_owned())
}

/// An upload that does not end keeps its own place, and one of `ann`'s: `bob` has his.
#[tokio::test]
async fn uploads_that_hold_places() {
    const MORE: usize = 20;
    let settings = Gateway::embedded()
        .env("FENCEGATE_UPLOADS_MAX", "4")
        .env("FENCEGATE_UPLOAD_RATE_MIN", "0")
        .env("FENCEGATE_BODY_IDLE_TIMEOUT", "1h");
    // A quarter of them.
    let site = Site::new(SetUp::Embedded, settings, "", "").await;
    let lock = site.locked(&site.ann, "ann").await;
    // Of what is refused nothing but its head is sent: it is refused before its body is read.
    let begun = async |key: &str| {
        let mut upload = RawConnection::open(site.gateway.address()).await;
        let head = format!(
            "PUT /resources/ann/objects/{key} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             x-fence-token: {}\r\nx-lock-id: {}\r\ncontent-length: {LARGE}\r\n\r\n",
            site.ann.text, lock.token, lock.id
        );
        upload.send(head.as_bytes()).await;
        upload
    };
    let mut upload = begun("slow").await;
    upload.send(&vec![7; MIB]).await;
    eventually("it has its place", async || site.held_by_ann("uploads").await).await;
    for _ in 0..MORE {
        let refused = begun("more").await.answer().await.unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate-limited"));
    }
    let of_bob = site.locked(&site.bob, "bob:large").await;
    for _ in 0..5 {
        let written = site.put(&site.bob, &of_bob, MIB).send().await;
        assert!(written.status.is_success(), "{}", written.text());
    }
    site.bob_gets_through().await;
    assert_eq!(site.refused().await, [MORE as u64, 0]);
    assert_eq!(site.limited("uploads").await, MORE as u64);
    // It was there all the time.
    upload.send(&vec![7; LARGE - MIB]).await;
    let done = upload.answer().await.unwrap();
    assert_eq!(done.status, 201, "{}", done.text());
}
