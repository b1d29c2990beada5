//! A gateway that is stopped with acts in flight, while rules are put in force that do not allow them.

use fence_core::wire::Lock;
use fence_tests::access::{Key, principal, role};
use fence_tests::client::{Answer, Call};
use fence_tests::gateway::Settings;
use fence_tests::multipart::commit;
use fence_tests::postgres::Postgres;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use sqlx::PgConnection;
use tokio::join;

use super::{Pending, Site, begin};
use crate::schedules::forced::run;
use crate::setup::SetUp;
use crate::upstreams::requests::through;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\", \"u:*\"]";
const READS: &str = "allow = [\"read\"]\nresources = [\"job:*\", \"u:*\"]";

const HOLD: &str =
    "BEGIN; SELECT FROM fencegate.fences WHERE resource IN ('job:1', 'job:2', 'job:9', 'u:1')
                    ORDER BY resource FOR NO KEY UPDATE";

/// `ann` has locks on `job:1`, `job:2` and `u:1`; `job:9` is free.
struct Flight {
    site: Site,
    ann: Key,
    upstream: Upstream,
    locks: [Lock; 3],
    holder: PgConnection,
    looker: PgConnection,
}

/// What has taken effect, as the ledger has it.
#[derive(Debug, PartialEq, Eq)]
struct Effects {
    operations: i64,
    tokens: i64,
    held: i64,
    intents: i64,
}

impl Flight {
    async fn new() -> Self {
        Self::on(SetUp::Clustered.settings().await).await
    }

    /// The same with these settings.
    async fn on(settings: Settings) -> Self {
        let upstream = Upstream::start().await;
        let setting = upstream.setting("drained", "");
        let settings = settings.flag("--upstream", &setting);
        let ann = Key::new().await;
        let site =
            Site::on(SetUp::Clustered, settings, |rules| rules.text(WORKS, &[("ann", &ann)])).await;
        let locks = [
            site.locked(&ann, "job:1").await,
            site.locked(&ann, "job:2").await,
            site.locked(&ann, "u:1").await,
        ];
        let free = site.locked(&ann, "job:9").await;
        // Through the other gateway: the last one would take it for free without a look.
        ann.by(site.gateways[0].client().release(&free)).send().await.expect(204);
        let old = site.client().put("job:1", "old", "x").under(&locks[0]);
        ann.by(old).send().await.expect(201);
        let postgres = Postgres::shared().await;
        let holder = postgres.connect(&site.database()).await;
        let looker = postgres.connect(&site.database()).await;
        Self { site, ann, upstream, locks, holder, looker }
    }

    /// A write, a delete, a commit of many, a release and a lock, of which each waits for a fence.
    fn calls(&self) -> Vec<Call> {
        let client = self.site.client();
        let [one, two, _] = &self.locks;
        let step = json!({ "op": "put", "resource": "job:1", "key": "many", "body": "b" });
        let calls = [
            client.put("job:1", "new", "late").under(one),
            client.delete("job:1", "old").under(one),
            commit(&client, &json!({ "operations": [step] }), &[("b", b"late")]).under(one),
            client.release(two),
            client.lock(&json!({ "resource": "job:9", "ttl": "1h", "owner": "late" })),
        ];
        calls.into_iter().map(|call| self.ann.by(call)).collect()
    }

    /// A request to the upstream, which the ledger has to admit first.
    fn forwarded(&self) -> Call {
        let client = self.site.client();
        self.ann.by(through(&client, Method::POST, "1", "").body("late").under(&self.locks[2]))
    }

    /// Sends these while their fences are held, and stops the gateway once so many wait in Postgres.
    async fn stopped_with(&mut self, calls: Vec<Call>, waiting: i64) -> Vec<Pending> {
        run(&mut self.holder, HOLD).await;
        let pending: Vec<_> = calls.into_iter().map(begin).collect();
        eventually("they wait in Postgres", async || {
            (in_postgres(&mut self.looker).await >= waiting).then_some(())
        })
        .await;
        self.site.last().pause();
        pending
    }

    /// Rules that take all of it from `ann`.
    fn reading(&self) -> String {
        let reads = role("reads", READS) + &principal("ann", "reads", &[&self.ann]);
        self.site.rules.admin() + &reads
    }

    /// Puts those in force.
    async fn take_away(&self) {
        self.site.put_in_force(&self.reading()).await;
    }

    async fn effects(&mut self) -> Effects {
        let mut number = async |query: &'static str| -> i64 {
            sqlx::query_scalar(query).fetch_one(&mut self.looker).await.unwrap()
        };
        Effects {
            operations: number(
                "SELECT count(*) FROM fencegate.operations WHERE version IS NOT NULL",
            )
            .await,
            tokens: number("SELECT sum(token)::bigint FROM fencegate.fences").await,
            held: number("SELECT count(*) FROM fencegate.fences WHERE hold = 'held'").await,
            intents: number("SELECT count(*) FROM fencegate.upstream_intents").await,
        }
    }
}

/// How many acts wait for a lock.
async fn in_postgres(looker: &mut PgConnection) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    sqlx::query_scalar(waiting).fetch_one(looker).await.unwrap()
}

/// Waits until a session waits for a lock in this act.
async fn until_it_waits(looker: &mut PgConnection, act: &str) {
    eventually(&format!("{act} waits for a lock"), async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'
                         AND query LIKE '%' || $1 || '%'";
        let waiting = sqlx::query_scalar(waiting).bind(act).fetch_one(&mut *looker).await;
        (waiting.unwrap_or(0_i64) > 0).then_some(())
    })
    .await;
}

/// Whether it took effect; fails unless it did, was refused for the rules, or is said not to be known or not applied.
#[track_caller]
fn took_effect(answer: &Answer) -> bool {
    let (status, code) = (answer.status.as_u16(), answer.code());
    assert!(
        status < 300 || (status, code.as_str()) == (403, "permission-denied") || status == 503,
        "{status}: {}",
        answer.text()
    );
    status < 300
}

/// Their fences stay held until the rules are in force, so all of them are too late.
#[tokio::test]
async fn acts_that_wait_for_a_fence_at_a_gateway_that_stops_have_no_effect_under_newer_rules() {
    let mut flight = Flight::new().await;
    let before = flight.effects().await;
    let mut calls = flight.calls();
    calls.push(flight.forwarded());
    let pending = flight.stopped_with(calls, 2).await;
    flight.take_away().await;
    run(&mut flight.holder, "COMMIT").await;
    flight.site.last().resume();
    for answer in join_all(pending).await {
        let answer = answer.unwrap();
        assert!(!took_effect(&answer), "{}", answer.text());
    }
    assert_eq!(flight.effects().await, before);
    assert_eq!(flight.upstream.begun(), 0);
}

/// Their fences become free before the rules are in force: those that are in Postgres take effect although their gateway
/// stands still, and the rules wait for them. The others are too late. Which is which is a matter of luck; what is told
/// must fit.
#[tokio::test]
async fn acts_in_postgres_take_effect_before_the_rules_or_not_at_all() {
    for _ in 0..2 {
        let mut flight = Flight::new().await;
        let before = flight.effects().await;
        let calls = flight.calls();
        let pending = flight.stopped_with(calls, 1).await;
        run(&mut flight.holder, "COMMIT").await;
        flight.take_away().await;
        let at_once = flight.effects().await;
        flight.site.last().resume();
        let answers: Vec<_> = join_all(pending).await.into_iter().map(Result::unwrap).collect();
        let effects: Vec<_> = answers.iter().map(took_effect).collect();
        let unknown = answers.iter().any(|answer| answer.code() == "outcome-unknown");
        assert_eq!(flight.effects().await, at_once, "{effects:?}");
        let written = effects[..3].iter().filter(|took| **took).count();
        let operations = usize::try_from(at_once.operations - before.operations).unwrap();
        let held = before.held - i64::from(effects[3]) + i64::from(effects[4]);
        match unknown {
            // A lock that was sealed and that nobody was told of is given back.
            true => assert!(operations >= written, "{effects:?}"),
            false => assert_eq!((operations, at_once.held), (written, held), "{effects:?}"),
        }
    }
}

/// The ledger admits it while its gateway stands still. Nobody can take it back from an upstream, so it is asked once more
/// before it is sent.
///
/// The act waits for the guard, not for a fence: acts get that in the order in which they came, so it is admitted before the
/// rules are in force; and they wait for it for as long as a statement may take.
#[tokio::test]
async fn a_request_to_an_upstream_that_was_admitted_under_older_rules_is_not_sent() {
    let settings = SetUp::Clustered.settings().await.env("FENCEGATE_REQUEST_TIMEOUT", "1m");
    let mut flight = Flight::on(settings).await;
    let (forwarded, reading) = (flight.forwarded(), flight.reading());
    let Flight { site, holder, looker, upstream, .. } = &mut flight;
    run(holder, "BEGIN; LOCK TABLE fencegate.write_guard IN EXCLUSIVE MODE").await;
    let pending = begin(forwarded);
    until_it_waits(looker, "open_intents").await;
    site.last().pause();
    let admitted = async {
        until_it_waits(looker, "apply_rules").await;
        // A gateway that stands still has not given it up.
        until_it_waits(looker, "open_intents").await;
        run(holder, "COMMIT").await;
    };
    join!(site.put_in_force(&reading), admitted);
    let open = "SELECT count(*) FROM fencegate.upstream_intents WHERE closed IS NULL";
    let admitted: i64 = sqlx::query_scalar(open).fetch_one(&mut *looker).await.unwrap();
    site.last().resume();
    pending.await.unwrap().refused(403, "permission-denied");
    assert_eq!((admitted, upstream.begun()), (1, 0), "it was admitted, and then sent or not");
    eventually("its intent is closed", async || {
        let open: i64 = sqlx::query_scalar(open).fetch_one(&mut *looker).await.unwrap();
        (open == 0).then_some(())
    })
    .await;
}
