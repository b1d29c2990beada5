//! Every action in every state of a lock, beside the most complete lease state machine in the field:
//! the leases of Azure Blob Storage. Where an answer differs from Azure's, the table says why.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{Lock, ResourceList};
use fence_tests::client::{Answer, Client, resource_path};
use fence_tests::process::eventually;
use futures::StreamExt as _;
use futures::stream;
use serde_json::json;
use uuid::Uuid;

use crate::setup::{SetUp, look, on_both, random_id};

on_both!(
    every_action_has_its_outcome_in_every_state,
    the_article_call_by_call,
    breaks_of_the_article,
);

/// What somebody does to a resource whose lock is, or was, A's. B is an id that nobody has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Acquire,
    AcquireAsA,
    AcquireAsB,
    RenewA,
    RenewB,
    ChangeAToB,
    ChangeAToBTwice,
    ChangeBToA,
    Break,
    BreakNow,
    BreakInAMinute,
    BreakInAMinuteTwice,
    ReleaseA,
    ReleaseB,
    WriteWithoutToken,
    WriteAsA,
    WriteWithTokenOfNobody,
    WriteWithTokenOfAAndIdOfB,
    Read,
    AcquireForNothing,
    AcquireForTooLong,
    BreakInTooLong,
}

/// The columns: Azure's words, and ours where they differ.
const STATES: [&str; 5] = ["available", "leased", "breaking", "broken", "expired"];

/// Per action what comes back in each state, and the state afterwards. Above each row what Azure does.
///
/// Three rules explain most differences. (1) An id names one grant for ever, so that a process that was
/// believed dead cannot come back under an id whose token is live. (2) A write needs a token, in every
/// state: who was never granted one writes nothing, also after the lock has expired. (3) An expired
/// lock that nobody took over is still its holder's: nobody was let in, so exclusivity was never
/// broken, and no clock decides on a write. "Available" is after a release by A; in what nobody ever
/// locked there is nothing to release, break or write to either.
#[rustfmt::skip]
const TABLE: &[(Action, [&str; 5])] = &[
    // Azure: 201, 409, 409, 201, 201. The same.
    (Action::Acquire, [
        "201: leased", "409 lock-held: leased", "409 lock-held: breaking", "201: leased", "201: leased",
    ]),
    // Azure: 201, 201 with the duration reset, 409, 201, 201.
    // available, broken: rule 1; the caller takes a new id.
    // leased, expired: 200 and not 201, for it is the same grant with the same token, its ttl reset.
    (Action::AcquireAsA, [
        "409 lock-released: released", "200: leased", "409 lock-breaking: breaking",
        "409 lock-broken: broken", "200: leased",
    ]),
    // Azure: 201, 409, 409, 201, 201. The same.
    (Action::AcquireAsB, [
        "201: leased", "409 lock-held: leased", "409 lock-held: breaking", "201: leased", "201: leased",
    ]),
    // Azure: 409, 200, 409, 409, 200. The same; each refusal says how the lock ended.
    (Action::RenewA, [
        "409 lock-released: released", "200: leased", "409 lock-breaking: breaking",
        "409 lock-broken: broken", "200: leased",
    ]),
    // Azure: 409 everywhere, but there a renewal names the blob, and so the lease. Here a lock is found
    // by its id alone, and this one was never granted.
    (Action::RenewB, [
        "404 lock-not-found: released", "404 lock-not-found: leased", "404 lock-not-found: breaking",
        "404 lock-not-found: broken", "404 lock-not-found: expired",
    ]),
    // Azure: 409, 200, 409, 409, 409.
    // leased: 201, for the successor has a lock and a token of its own, and A's is stale.
    // expired: rule 3; what A may still renew, A may hand over.
    (Action::ChangeAToB, [
        "409 lock-released: released", "201: leased", "409 lock-breaking: breaking",
        "409 lock-broken: broken", "201: leased",
    ]),
    // Azure: as "change B to A" below, 200 in state leased: a hand-over may be repeated. Here, too.
    (Action::ChangeAToBTwice, [
        "409 lock-released: released", "200: leased", "409 lock-breaking: breaking",
        "409 lock-broken: broken", "200: leased",
    ]),
    // Azure: 409, 200 since A is the current id already, 409, 409, 409.
    // Azure cannot know whether B ever was the id; we can: it was not, and hands nothing over.
    (Action::ChangeBToA, [
        "404 lock-not-found: released", "404 lock-not-found: leased", "404 lock-not-found: breaking",
        "404 lock-not-found: broken", "404 lock-not-found: expired",
    ]),
    // Azure: 409, 200 breaking until the lease expires, 200 breaking, 200 broken, 200 broken.
    // available: nothing to break, and nothing to be sorry for: it is as the operator wants it.
    // leased, breaking: without a time it is now. Azure waits because the old writer may still be
    // writing; here it is fenced off in the same act, so there is nothing to wait for.
    (Action::Break, [
        "200: released", "200: broken", "200: broken", "200: broken", "200: broken",
    ]),
    // Azure: 409, 200 broken in all others. available: as above.
    (Action::BreakNow, [
        "200: released", "200: broken", "200: broken", "200: broken", "200: broken",
    ]),
    // Azure: 409, 200 breaking, 200 breaking (shortened, never extended), 200 broken, 200 broken.
    // available: as above.
    (Action::BreakInAMinute, [
        "200: released", "200: breaking", "200: breaking", "200: broken", "200: broken",
    ]),
    // Azure: the same again.
    (Action::BreakInAMinuteTwice, [
        "200: released", "200: breaking", "200: breaking", "200: broken", "200: broken",
    ]),
    // Azure: 409, 200 in all others, and available afterwards.
    // A release may be repeated: 204. What was broken stays broken until the next grant: that is how it
    // ended, and a release that comes late does not rewrite it. It is just as free.
    (Action::ReleaseA, [
        "204: released", "204: released", "204: released", "204: broken", "204: released",
    ]),
    // Azure: 409 everywhere. Here it gives up an id that may be on its way to a grant: that id is buried,
    // and whoever holds the resource is left alone. The answer is not that of a release: it says that
    // there was none.
    (Action::ReleaseB, [
        "200: released", "200: leased", "200: breaking", "200: broken", "200: expired",
    ]),
    // Azure: ok, 412, 412, ok, ok: without an active lease anybody writes. Rule 2; the code is 428,
    // which is the status for a missing condition.
    (Action::WriteWithoutToken, [
        "428 fence-token-missing: released", "428 fence-token-missing: leased",
        "428 fence-token-missing: breaking", "428 fence-token-missing: broken",
        "428 fence-token-missing: expired",
    ]),
    // Azure: 412, ok, ok, 412, 412. expired: rule 3. To stop for certain, release or break.
    (Action::WriteAsA, [
        "412 fence-token-released: released", "201: leased", "201: breaking",
        "412 fence-token-broken: broken", "201: expired",
    ]),
    // Azure, with an id of nobody: 412 everywhere. A token is not outdated if it was never granted: 403,
    // and no state shows through.
    (Action::WriteWithTokenOfNobody, [
        "403 fence-token-unknown: released", "403 fence-token-unknown: leased",
        "403 fence-token-unknown: breaking", "403 fence-token-unknown: broken",
        "403 fence-token-unknown: expired",
    ]),
    // Azure has no second credential. The id sent along must be that of the token's lock: 403, as above.
    // It is looked at only while the token is good.
    (Action::WriteWithTokenOfAAndIdOfB, [
        "412 fence-token-released: released", "403 lock-id-mismatch: leased",
        "403 lock-id-mismatch: breaking", "412 fence-token-broken: broken",
        "403 lock-id-mismatch: expired",
    ]),
    // Azure: reads need no lease. The same.
    (Action::Read, [
        "200: released", "200: leased", "200: breaking", "200: broken", "200: expired",
    ]),
    // Azure: 400 for a duration out of bounds. The same, whatever the state.
    (Action::AcquireForNothing, [
        "400 body-malformed: released", "400 body-malformed: leased", "400 body-malformed: breaking",
        "400 body-malformed: broken", "400 body-malformed: expired",
    ]),
    (Action::AcquireForTooLong, [
        "400 body-malformed: released", "400 body-malformed: leased", "400 body-malformed: breaking",
        "400 body-malformed: broken", "400 body-malformed: expired",
    ]),
    (Action::BreakInTooLong, [
        "400 body-malformed: released", "400 body-malformed: leased", "400 body-malformed: breaking",
        "400 body-malformed: broken", "400 body-malformed: expired",
    ]),
];

/// Cells that are prepared or played at a time.
const TOGETHER: usize = 24;

/// One cell: a resource of its own, A's lock on it, and an id that nobody has used.
struct Cell {
    action: Action,
    state: &'static str,
    expected: &'static str,
    resource: String,
    a: Lock,
    b: Uuid,
}

impl Cell {
    /// Brings a resource into the state, through the API alone; an expired one still has to expire.
    async fn prepare(client: &Client, at: (usize, usize)) -> Self {
        let (action, cells) = &TABLE[at.0];
        let state = STATES[at.1];
        let resource = format!("cell:{}:{state}", at.0);
        let ttl = if state == "expired" { "1s" } else { "10m" };
        let a = client.acquire(&resource, ttl).await;
        client.put(&resource, "first", "x").under(&a).send().await.expect(201);
        match state {
            "available" => drop(client.release(&a).send().await.expect(204)),
            "breaking" => {
                let later = json!({ "reason": "test", "after": "5m" });
                client.break_lock(&resource, &later).send().await.expect(200);
            }
            "broken" => {
                client.break_lock(&resource, &json!({ "reason": "test" })).send().await.expect(200);
            }
            _ => {}
        }
        Self { action: *action, state, expected: cells[at.1], resource, a, b: random_id() }
    }

    /// Does the action, twice if that is what it is about; the last answer.
    async fn play(&self, client: &Client) -> Answer {
        let acquire = |id: Option<Uuid>, ttl: &str| {
            let mut body = json!({ "resource": self.resource, "owner": "test", "ttl": ttl });
            if let Some(id) = id {
                body["id"] = json!(id);
            }
            client.lock(&body).send()
        };
        let change = |from: Uuid, to: Uuid| {
            let body = json!({ "owner": "test", "id": to });
            client.post(format!("/locks/{from}/transfer"), &body).send()
        };
        let break_in = |after: Option<&str>| {
            let mut body = json!({ "reason": "test" });
            if let Some(after) = after {
                body["after"] = json!(after);
            }
            client.break_lock(&self.resource, &body).send()
        };
        let b = Lock { id: fence_core::LockId(self.b), ..self.a.clone() };
        let put = client.put(&self.resource, "second", "x");
        match self.action {
            Action::Acquire => acquire(None, "30s").await,
            Action::AcquireAsA => acquire(Some(self.a.id.0), "30s").await,
            Action::AcquireAsB => acquire(Some(self.b), "30s").await,
            Action::RenewA => client.renew(&self.a, Some("30s")).send().await,
            Action::RenewB => client.renew(&b, Some("30s")).send().await,
            Action::ChangeAToB => change(self.a.id.0, self.b).await,
            Action::ChangeAToBTwice => {
                change(self.a.id.0, self.b).await;
                change(self.a.id.0, self.b).await
            }
            Action::ChangeBToA => change(self.b, self.a.id.0).await,
            Action::Break => break_in(None).await,
            Action::BreakNow => break_in(Some("0s")).await,
            Action::BreakInAMinute => break_in(Some("60s")).await,
            Action::BreakInAMinuteTwice => {
                break_in(Some("60s")).await;
                break_in(Some("60s")).await
            }
            Action::ReleaseA => client.release(&self.a).send().await,
            Action::ReleaseB => client.release(&b).send().await,
            Action::WriteWithoutToken => put.send().await,
            Action::WriteAsA => put.under(&self.a).send().await,
            // Far above anything that was minted, so never granted.
            Action::WriteWithTokenOfNobody => put.token(i64::MAX).send().await,
            Action::WriteWithTokenOfAAndIdOfB => put.under(&b).send().await,
            Action::Read => client.read(&self.resource, "first").send().await,
            Action::AcquireForNothing => acquire(None, "0s").await,
            Action::AcquireForTooLong => acquire(None, "25h").await,
            Action::BreakInTooLong => break_in(Some("25h")).await,
        }
    }

    /// What an answer shows beyond its status, where the table's comments promise something.
    fn check(&self, answer: &Answer) {
        let what = format!("{:?} when {}", self.action, self.state);
        let granted = || answer.parse::<Lock>();
        match (self.action, answer.status.as_u16()) {
            (Action::AcquireAsA, 200) => {
                let lock = granted();
                assert_eq!((lock.id, lock.token), (self.a.id, self.a.token), "{what}");
                assert!(
                    lock.ttl_ms == Some(30_000) && lock.expires_in_ms > Some(15_000),
                    "{what}: {lock:?}"
                );
            }
            (Action::Acquire | Action::AcquireAsB, 201)
            | (Action::ChangeAToB | Action::ChangeAToBTwice, 200 | 201) => {
                let lock = granted();
                assert!(lock.id != self.a.id && lock.token > self.a.token, "{what}: {lock:?}");
                let chosen = self.action != Action::Acquire;
                assert!(!chosen || lock.id.0 == self.b, "{what}: {lock:?}");
            }
            (Action::ReleaseB, 200) => {
                let said = answer.json();
                assert_eq!(said, json!({ "released": false, "buried": true }), "{what}");
            }
            (Action::RenewA, 200) => {
                let lapsed = granted().lapsed_ms.is_some();
                assert_eq!(lapsed, self.state == "expired", "{what}");
            }
            (Action::BreakInAMinute | Action::BreakInAMinuteTwice, 200) => {
                let left = answer.json()["expires_in_ms"].as_i64().unwrap();
                let breaking = ["leased", "breaking"].contains(&self.state);
                assert_eq!(left > 0, breaking, "{what}: {left}");
            }
            _ => {}
        }
    }
}

/// The answer in the words of the table.
fn word(answer: &Answer) -> String {
    match answer.status.is_success() {
        true => answer.status.as_u16().to_string(),
        false => format!("{} {}", answer.status.as_u16(), answer.code()),
    }
}

async fn every_action_has_its_outcome_in_every_state(setup: SetUp) {
    let gateway = setup.start().await;
    let client = &gateway.client();
    let places = (0..TABLE.len()).flat_map(|row| (0..STATES.len()).map(move |state| (row, state)));
    let cells: Vec<Cell> = stream::iter(places)
        .map(|at| Cell::prepare(client, at))
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    assert_eq!(cells.len(), TABLE.len() * STATES.len());
    eventually("every cell is in its state", async || {
        let all = client.get("/resources").query("limit", "1000").send().await.expect(200);
        let all = all.parse::<ResourceList>().items;
        let ready = |cell: &Cell| {
            let wanted = if cell.state == "available" { "released" } else { cell.state };
            let is = |view: &&fence_core::wire::Resource| view.resource.as_str() == cell.resource;
            all.iter().find(is).is_some_and(|view| view.state.as_str() == wanted)
        };
        cells.iter().all(ready).then_some(())
    })
    .await;

    let differences: Vec<Option<String>> = stream::iter(&cells)
        .map(async |cell| {
            let answer = cell.play(client).await;
            let after = look(client, &cell.resource).await.state;
            let found = format!("{}: {}", word(&answer), after.as_str());
            if found == cell.expected {
                cell.check(&answer);
                return None;
            }
            let (action, state, expected) = (cell.action, cell.state, cell.expected);
            Some(format!("{action:?} when {state}: {found:?}, not {expected:?}"))
        })
        .buffer_unordered(TOGETHER)
        .collect()
        .await;
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    // Whoever is out is out, and whoever got in is in: the last word has always the fence.
    for cell in &cells {
        let late = client.put(&cell.resource, "late", "x").under(&cell.a).send().await;
        let superseded = match cell.action {
            Action::Acquire | Action::AcquireAsB => ["available", "broken", "expired"].as_slice(),
            Action::ChangeAToB | Action::ChangeAToBTwice => &["leased", "expired"],
            _ => &[],
        };
        if superseded.contains(&cell.state) {
            late.refused(412, "fence-token-stale");
        } else {
            assert_ne!(late.code(), "fence-token-stale", "{:?} when {}", cell.action, cell.state);
        }
    }
    client.get(resource_path("cell:nobody")).send().await.refused(404, "resource-not-found");
}

/// The calls of the article that introduced Azure's leases, one after the other on one resource. What its
/// reader expects is in each step's comment; where the answer differs, it says how.
async fn the_article_call_by_call(setup: SetUp) {
    let gateway = setup.start().await;
    let client = &gateway.client();
    let resource = "blob:1";
    let acquire = async |id: Uuid, owner: &str, ttl: Option<&str>| {
        let mut body = json!({ "resource": resource, "id": id, "owner": owner });
        if let Some(ttl) = ttl {
            body["ttl"] = json!(ttl);
        }
        client.lock(&body).send().await
    };
    // Every answer says what the ledger does.
    let lasts = async |lock: &Lock, seconds: Option<i64>| {
        assert_eq!(lock.ttl_ms, seconds.map(|seconds| seconds * 1000), "{lock:?}");
        let left = look(client, resource).await.expires_in_ms;
        assert_eq!(left.is_none(), lock.expires_in_ms.is_none(), "{left:?}, {lock:?}");
        assert_eq!(lock.confirm_within_ms, None, "{lock:?}");
        if let (Some(left), Some(said)) = (left, lock.expires_in_ms) {
            assert!((said - 10_000..=said).contains(&left), "{left} of {said}");
        }
    };
    // Acquire for 15, 30 or 60 s, with a proposed id: 201. Lost answers are repeated: 201, here 200.
    let a = random_id();
    let first: Lock = acquire(a, "a", Some("15s")).await.expect(201).parse();
    assert_eq!((first.id.0, first.state.as_str()), (a, "leased"));
    lasts(&first, Some(15)).await;
    client.put(resource, "k", "by a").under(&first).send().await.expect(201);
    // The holder acquires again to change the duration, up and down, to infinite and back: at once.
    for (ttl, seconds) in [
        (Some("30s"), Some(30)),
        (Some("60s"), Some(60)),
        (Some("15s"), Some(15)),
        (Some("infinite"), None),
        (None, None),
        (Some("60s"), Some(60)),
        (Some("infinite"), None),
        (Some("15s"), Some(15)),
    ] {
        let again: Lock = acquire(a, "a", ttl).await.expect(200).parse();
        assert_eq!((again.id, again.token), (first.id, first.token), "{ttl:?}");
        lasts(&again, seconds).await;
    }
    // Renew: the duration starts again.
    let renewed: Lock = client.renew(&first, None).send().await.expect(200).parse();
    lasts(&renewed, Some(15)).await;
    // Somebody else: 409, and writes nothing.
    let b = random_id();
    acquire(b, "b", Some("30s")).await.refused(409, "lock-held");
    client.put(resource, "k", "by b").send().await.refused(428, "fence-token-missing");

    // Change the id: the prior owner is out. The duration goes over.
    let change = async |from: Uuid, to: Uuid, owner: &str| {
        let body = json!({ "owner": owner, "id": to });
        client.post(format!("/locks/{from}/transfer"), &body).send().await
    };
    let second: Lock = change(a, b, "b").await.expect(201).parse();
    assert!(second.id.0 == b && second.token > first.token, "{second:?}");
    lasts(&second, Some(15)).await;
    change(a, b, "b").await.expect(200);
    client.put(resource, "k", "late").under(&first).send().await.refused(412, "fence-token-stale");
    client.renew(&first, None).send().await.refused(409, "lock-superseded");
    // Back to the id that A knows: Azure allows it. Here an id names one grant for ever, so A prepares a
    // second one, and B hands over to that.
    change(b, a, "a").await.refused(409, "lock-superseded");
    let back = random_id();
    let third: Lock = change(b, back, "a").await.expect(201).parse();
    assert!(third.token > second.token, "{third:?}");
    acquire(back, "a", Some("30s")).await.expect(200);
    client.put(resource, "k", "by a again").under(&third).send().await.expect(200);

    // Release: free at once; nothing more under this id, and the next one acquires.
    client.release(&third).send().await.expect(204);
    assert_eq!(look(client, resource).await.state.as_str(), "released");
    client.renew(&third, None).send().await.refused(409, "lock-released");
    change(back, random_id(), "c").await.refused(409, "lock-released");
    acquire(back, "a", Some("30s")).await.refused(409, "lock-released");
    client.release(&third).send().await.expect(204);
    acquire(random_id(), "c", Some("30s")).await.expect(201);
}

/// Breaks: with a period, of an infinite lease, and what is left to the holder.
async fn breaks_of_the_article(setup: SetUp) {
    let gateway = setup.start().await;
    let client = &gateway.client();
    let infinite = async |resource: &str| -> Lock {
        let body = json!({ "resource": resource, "ttl": "infinite", "id": random_id() });
        // A lost answer cannot hold it for ever: the holder shows that it knows of the lock.
        let lock: Lock = client.lock(&body).send().await.expect(201).parse();
        assert_eq!((lock.ttl_ms, lock.expires_in_ms), (None, Some(60_000)));
        assert_eq!(lock.confirm_within_ms, Some(60_000));
        let lock: Lock = client.lock(&body).send().await.expect(200).parse();
        assert_eq!((lock.expires_in_ms, lock.confirm_within_ms), (None, None));
        assert_eq!(look(client, resource).await.expires_in_ms, None);
        lock
    };
    let break_in = async |resource: &str, after: Option<&str>| {
        let mut body = json!({ "reason": "it hangs" });
        if let Some(after) = after {
            body["after"] = json!(after);
        }
        client.break_lock(resource, &body).send().await.expect(200).json()
    };
    // With a period: breaking for that long. Again: shortened, never extended.
    let lock = infinite("blob:1").await;
    let broken = break_in("blob:1", Some("20s")).await;
    assert_eq!(broken["state"], "breaking");
    assert!(broken["expires_in_ms"].as_i64().unwrap() <= 20_000, "{broken}");
    break_in("blob:1", Some("50s")).await;
    assert!(look(client, "blob:1").await.expires_in_ms.unwrap() <= 20_000);
    // The holder may still write and release, but neither renew, nor acquire again, nor change.
    client.put("blob:1", "k", "x").under(&lock).send().await.expect(201);
    let renew = client.renew(&lock, None).send().await.refused(409, "lock-breaking");
    assert_eq!(renew.json()["reason"], "it hangs");
    let again = json!({ "resource": "blob:1", "ttl": "infinite", "id": lock.id });
    let again = client.lock(&again).send().await.refused(409, "lock-breaking");
    assert_eq!(again.json()["reason"], "it hangs");
    let change = client.post(format!("/locks/{}/transfer", lock.id), &json!({ "owner": "b" }));
    change.send().await.refused(409, "lock-breaking");
    client.lock(&json!({ "resource": "blob:1" })).send().await.refused(409, "lock-held");
    break_in("blob:1", Some("1s")).await;
    crate::setup::until_state(client, "blob:1", "broken").await;
    let late = client.put("blob:1", "k", "late").under(&lock).send().await;
    assert_eq!(late.refused(412, "fence-token-broken").json()["reason"], "it hangs");
    client.renew(&lock, None).send().await.refused(409, "lock-broken");
    client.release(&lock).send().await.expect(204);
    assert_eq!(look(client, "blob:1").await.state.as_str(), "broken");
    client.acquire("blob:1", "30s").await;
    // A period above what is left of a finite lease: its end.
    client.acquire("blob:2", "5s").await;
    let broken = break_in("blob:2", Some("60s")).await;
    assert!(broken["expires_in_ms"].as_i64().unwrap() <= 5_000, "{broken}");
    // Infinite, without a period: Azure breaks it at once, and so do we.
    infinite("blob:3").await;
    assert_eq!(break_in("blob:3", None).await["state"], "broken");
    assert_eq!(break_in("blob:3", None).await["state"], "broken");
    client.acquire("blob:3", "15s").await;
}
