//! What operators do over HTTP: freeze, protect, break, and the audit of it.

use fence_core::wire::{AuditEntry, AuditList, Resource, ResourceList};
use fence_tests::client::{Call, Client, resource_path};
use fence_tests::conformance::pause;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use serde_json::json;
use sqlx::Executor as _;

use crate::setup::{SetUp, assert_hides, look, on_both, random_id, take_over, until_state};

on_both!(
    a_frozen_resource_stops_writers_and_grants_until_it_is_unfrozen,
    a_protected_resource_is_not_deleted,
    marks_may_be_repeated_and_the_latest_reason_is_shown,
    what_was_never_locked_cannot_be_marked,
    reasons_are_bounded_text,
    the_audit_tells_who_held_what_and_what_operators_did,
    the_audit_shows_no_ids_and_no_tokens,
    the_audit_has_filters_and_pages,
    the_audit_outlives_a_restart_and_the_sweeper,
    marks_are_counted,
    a_waiter_gets_in_when_the_resource_is_unfrozen,
);

/// `POST /resources/{resource}/{mark}` by a request of the same name.
fn mark(client: &Client, resource: &str, mark: &str, reason: &str) -> Call {
    let path = format!("{}/{mark}", resource_path(resource));
    client.post(path, &json!({ "reason": reason })).header("x-request-id", format!("to-{mark}"))
}

async fn marked(client: &Client, resource: &str, what: &str, reason: &str) -> Resource {
    mark(client, resource, what, reason).send().await.expect(200).parse()
}

/// All entries that a query asks for, page by page.
async fn audit(client: &Client, query: &[(&str, &str)]) -> Vec<AuditEntry> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let call =
            query.iter().fold(client.get("/audit"), |call, (name, value)| call.query(name, value));
        let call = cursor.iter().fold(call, |call, cursor| call.query("cursor", cursor));
        let page: AuditList = call.send().await.expect(200).parse();
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

fn actions(entries: &[AuditEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.action.as_str()).collect()
}

async fn a_frozen_resource_stops_writers_and_grants_until_it_is_unfrozen(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let free = client.acquire("job:2", "10m").await;
    client.release(&free).send().await.expect(204);
    let put = client.put("job:1", "k", "x").under(&lock);
    put.clone().idempotency_key("once").send().await.expect(201);
    for resource in ["job:1", "job:2"] {
        assert_eq!(
            marked(&client, resource, "freeze", "fire").await.frozen.as_deref(),
            Some("fire")
        );
    }

    let deletions = [client.delete("job:1", "k"), client.delete_resource("job:1")];
    let deletions = deletions.map(|call| call.under(&lock));
    for call in [put.clone()].into_iter().chain(deletions) {
        let refused = call.send().await.refused(423, "resource-frozen");
        assert!(refused.problem().retryable, "{refused:?}");
        assert_eq!(refused.must_have("x-fence-verdict"), "refused");
    }
    for resource in ["job:1", "job:2"] {
        let refused = client.lock(&json!({ "resource": resource })).send().await;
        // Whoever finds it held is told so; only a grant would meet the freeze.
        match resource {
            "job:1" => refused.refused(409, "lock-held"),
            _ => refused.refused(423, "resource-frozen"),
        };
    }
    let transfer = client.post(format!("/locks/{}/transfer", lock.id), &json!({ "owner": "next" }));
    let refused = transfer.clone().send().await.refused(423, "resource-frozen");
    assert_eq!(refused.problem().resource.as_deref(), Some("job:1"));
    // What took effect before is answered as it was.
    let replay = put.clone().idempotency_key("once").send().await.expect(201);
    assert_eq!(replay.must_have("idempotent-replayed"), "true");
    client.read("job:1", "k").send().await.expect(200);
    client.renew(&lock, Some("1h")).send().await.expect(200);
    let list: ResourceList = client.get("/resources").send().await.expect(200).parse();
    assert!(list.items.iter().all(|view| view.frozen.as_deref() == Some("fire")), "{list:?}");

    for resource in ["job:1", "job:2"] {
        assert_eq!(marked(&client, resource, "unfreeze", "out").await.frozen, None);
    }
    put.send().await.expect(200);
    transfer.send().await.expect(201);
    client.acquire("job:2", "10m").await;
}

async fn a_protected_resource_is_not_deleted(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    let view = marked(&client, "job:1", "protect", "precious").await;
    assert_eq!((view.protected.as_deref(), view.frozen), (Some("precious"), None));
    let delete = client.delete_resource("job:1").under(&lock);
    delete.clone().send().await.refused(409, "resource-protected");
    client.put("job:1", "j", "x").under(&lock).send().await.expect(201);
    client.delete("job:1", "j").under(&lock).send().await.expect(204);
    assert_eq!(look(&client, "job:1").await.objects, 1);
    assert_eq!(marked(&client, "job:1", "unprotect", "moved").await.protected, None);
    delete.send().await.expect(204);
    assert_eq!(look(&client, "job:1").await.objects, 0);
}

async fn marks_may_be_repeated_and_the_latest_reason_is_shown(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("job:1", "10m").await;
    for reason in ["one", "one", "two"] {
        marked(&client, "job:1", "freeze", reason).await;
        marked(&client, "job:1", "protect", reason).await;
        let view = look(&client, "job:1").await;
        assert_eq!(
            (view.frozen.as_deref(), view.protected.as_deref()),
            (Some(reason), Some(reason))
        );
    }
    for _ in 0..2 {
        marked(&client, "job:1", "unfreeze", "done").await;
        marked(&client, "job:1", "unprotect", "done").await;
        let raw = client.get("/resources/job:1").send().await.expect(200).json();
        assert_eq!((raw.get("frozen"), raw.get("protected")), (None, None), "{raw}");
    }
    let entries = audit(&client, &[("resource", "job:1")]).await;
    assert_eq!(
        actions(&entries),
        ["unprotect", "unfreeze", "protect", "freeze", "protect", "freeze", "grant"]
    );
}

async fn what_was_never_locked_cannot_be_marked(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for what in ["freeze", "unfreeze", "protect", "unprotect"] {
        let refused = mark(&client, "job:1", what, "x").send().await;
        let refused = refused.refused(404, "resource-not-found");
        assert_eq!(refused.problem().resource.as_deref(), Some("job:1"));
    }
    assert!(audit(&client, &[]).await.is_empty());
    client.acquire("job:1", "10m").await;
}

async fn reasons_are_bounded_text(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("job:1", "10m").await;
    for what in ["freeze", "unfreeze", "protect", "unprotect"] {
        for bad in ["", "a\nb", "a\0b", &"x".repeat(1025), &"é".repeat(513)] {
            mark(&client, "job:1", what, bad).send().await.refused(400, "body-malformed");
        }
        let path = format!("/resources/job:1/{what}");
        for bad in [json!({}), json!({ "reason": 1 }), json!({ "reason": "x", "after": "1s" })] {
            client.post(&path, &bad).send().await.refused(400, "body-malformed");
        }
        let query = client.post(&path, &json!({ "reason": "x" })).query("force", "1");
        query.send().await.refused(400, "query-malformed");
    }
    assert_eq!(actions(&audit(&client, &[]).await), ["grant"], "nothing of it had an effect");
    let longest = "é".repeat(512);
    assert_eq!(marked(&client, "job:1", "freeze", &longest).await.frozen, Some(longest));
}

async fn the_audit_tells_who_held_what_and_what_operators_did(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_SWEEP_INTERVAL", "100ms");
    let gateway = settings.start().await;
    let client = gateway.client();
    let ann = json!({ "resource": "job:1", "owner": "ann", "ttl": "1s" });
    client.lock(&ann).send().await.expect(201);
    until_state(&client, "job:1", "expired").await;
    let bob = json!({ "resource": "job:1", "owner": "bob", "ttl": "10m" });
    let bob: fence_core::wire::Lock = client.lock(&bob).send().await.expect(201).parse();
    let transfer = client.post(format!("/locks/{}/transfer", bob.id), &json!({ "owner": "carl" }));
    transfer.send().await.expect(201);
    let later = json!({ "reason": "carl hangs", "after": "200ms" });
    let broken = client.break_lock("job:1", &later).header("x-request-id", "to-break");
    broken.send().await.expect(200);
    until_state(&client, "job:1", "broken").await;
    marked(&client, "job:1", "freeze", "looking into it").await;

    let mut entries = audit(&client, &[]).await;
    entries.reverse();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            assert_eq!(entry.resource.as_deref(), Some("job:1"));
            let AuditEntry { action, owner, previous_owner, reason, request_id, .. } = entry;
            assert_eq!(entry.previous_end.is_some(), entry.previous_ended_at.is_some());
            // Who asked from where; what came due by itself nobody asked for.
            let is_asked = action != "broken";
            assert_eq!(entry.peer.as_deref(), is_asked.then_some("127.0.0.1"), "{entry:?}");
            // The gateway has an id of its own where the caller named one.
            let named = request_id.as_deref().filter(|id| id.starts_with("to-"));
            assert_eq!(entry.gateway_request_id.is_some(), named.is_some(), "{entry:?}");
            assert_eq!(request_id.is_some(), is_asked, "{entry:?}");
            let before =
                (previous_owner.as_deref(), entry.previous_end.as_ref().map(|end| end.as_str()));
            (action.as_str(), owner.as_deref(), before, reason.as_deref(), named)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("grant", Some("ann"), (None, None), None, None),
            ("grant", Some("bob"), (Some("ann"), Some("lapsed")), None, None),
            ("transfer", Some("carl"), (Some("bob"), Some("transferred")), None, None),
            ("break", Some("carl"), (None, None), Some("carl hangs"), Some("to-break")),
            ("broken", Some("carl"), (None, None), None, None),
            ("freeze", None, (None, None), Some("looking into it"), Some("to-freeze")),
        ]
    );
    assert!(entries.windows(2).all(|pair| pair[0].at <= pair[1].at), "{entries:?}");
    // From an entry to the gateway's log.
    for (what, id) in [("breaks a lock", "to-break"), ("marks a resource", "to-freeze")] {
        let line = gateway.logged(&format!("an operator {what}")).await;
        assert!(line.contains(id), "{line}");
    }
}

async fn the_audit_shows_no_ids_and_no_tokens(setup: SetUp) {
    let gateway = setup.start_with_high_tokens(|settings| settings).await;
    let client = gateway.client();
    let first = client.acquire("job:1", "1s").await;
    let second = take_over(&client, "job:1").await;
    client.break_lock("job:1", &json!({ "reason": "x" })).send().await.expect(200);
    marked(&client, "job:1", "freeze", "x").await;
    let answer = client.get("/audit").send().await.expect(200);
    assert_eq!(answer.parse::<AuditList>().items.len(), 4);
    assert_hides(&answer, &first);
    assert_hides(&answer, &second);
}

async fn the_audit_has_filters_and_pages(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    for number in 0..6 {
        let resource = ["job:1", "job:2"][number % 2];
        let lock = client.acquire(resource, "10m").await;
        client.release(&lock).send().await.expect(204);
        marked(&client, resource, "protect", &format!("{number}")).await;
    }
    let all = audit(&client, &[]).await;
    assert_eq!(all.len(), 12);
    assert_eq!(actions(&all)[..4], ["protect", "grant", "protect", "grant"]);
    let reasons = |entries: &[AuditEntry]| -> Vec<String> {
        entries.iter().filter_map(|entry| entry.reason.clone()).collect()
    };
    assert_eq!(reasons(&audit(&client, &[("limit", "5")]).await), reasons(&all));
    let two = audit(&client, &[("resource", "job:2"), ("limit", "2")]).await;
    assert_eq!((two.len(), reasons(&two)), (6, vec!["5".into(), "3".into(), "1".into()]));
    assert_eq!(audit(&client, &[("action", "grant")]).await.len(), 6);
    let both = [("action", "protect"), ("resource", "job:1"), ("limit", "1")];
    assert_eq!(reasons(&audit(&client, &both).await), ["4", "2", "0"]);
    assert!(audit(&client, &[("action", "refence")]).await.is_empty());
    assert!(audit(&client, &[("resource", "job:3")]).await.is_empty());
    for bad in [
        ("action", "thaw"),
        ("resource", "a/b"),
        ("cursor", "x"),
        ("limit", "0"),
        ("limit", "1001"),
        ("since", "1"),
    ] {
        let refused = client.get("/audit").query(bad.0, bad.1).send().await;
        refused.refused(400, "query-malformed");
    }
}

async fn the_audit_outlives_a_restart_and_the_sweeper(setup: SetUp) {
    let settings = setup.settings().await.env("FENCEGATE_REJECTIONS_MAX", "0");
    let mut gateway = settings.env("FENCEGATE_SWEEP_INTERVAL", "100ms").start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    marked(&client, "job:1", "freeze", "fire").await;
    gateway.kill9();
    gateway.restart().await;
    let client = gateway.client();
    client.put("job:1", "k", "x").under(&lock).send().await.refused(423, "resource-frozen");
    assert_eq!(look(&client, "job:1").await.frozen.as_deref(), Some("fire"));
    assert_eq!(actions(&audit(&client, &[]).await), ["freeze", "grant"]);
}

async fn marks_are_counted(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    client.acquire("job:1", "10m").await;
    for (what, reason) in
        [("freeze", "a"), ("freeze", "a"), ("freeze", "b"), ("unfreeze", "c"), ("protect", "d")]
    {
        marked(&client, "job:1", what, reason).await;
    }
    let page = client.get("/metrics").send().await.expect(200).text();
    for line in ["{mark=\"freeze\"} 2", "{mark=\"unfreeze\"} 1", "{mark=\"protect\"} 1"] {
        assert!(page.contains(&format!("fencegate_marks_total{line}\n")), "{line}\n{page}");
    }
}

async fn a_waiter_gets_in_when_the_resource_is_unfrozen(setup: SetUp) {
    let gateway = setup.start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    marked(&client, "job:1", "freeze", "fire").await;
    let waiting = client.lock(&json!({ "resource": "job:1", "wait": "30s", "ttl": "10m" })).send();
    let operators = async {
        eventually("somebody waits", async || {
            (look(&client, "job:1").await.queue_length == 1).then_some(())
        })
        .await;
        client.release(&lock).send().await.expect(204);
        pause(300).await;
        let view = marked(&client, "job:1", "freeze", "still burning").await;
        assert_eq!((view.queue_length, view.state.as_str()), (1, "released"));
        marked(&client, "job:1", "unfreeze", "out").await;
    };
    let (granted, ()) = tokio::join!(waiting, operators);
    let next: fence_core::wire::Lock = granted.expect(201).parse();
    assert!(next.token > lock.token);
    client.put("job:1", "k", "x").under(&next).send().await.expect(201);
}

#[tokio::test]
async fn with_etcd_stopped_operators_freeze_break_and_look() {
    let (etcd, postgres) = tokio::join!(Etcd::dedicated(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    let other = client.acquire("job:2", "10m").await;
    etcd.stop().await;
    mark(&client, "job:1", "freeze", "fire").send().await.expect(200);
    client.put("job:1", "k", "x").under(&lock).send().await.refused(423, "resource-frozen");
    client.break_lock("job:2", &json!({ "reason": "stuck" })).send().await.expect(200);
    client.put("job:2", "k", "x").under(&other).send().await.refused(412, "fence-token-broken");
    mark(&client, "job:1", "unfreeze", "out").send().await.expect(200);
    client.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    mark(&client, "job:1", "protect", "precious").send().await.expect(200);
    client.delete_resource("job:1").under(&lock).send().await.refused(409, "resource-protected");
    let entries = client.get("/audit").send().await.expect(200).parse::<AuditList>().items;
    assert_eq!(actions(&entries), ["protect", "unfreeze", "break", "freeze", "grant", "grant"]);
}

#[tokio::test]
async fn a_mark_on_a_row_that_somebody_has_locked_is_refused_in_time_and_may_be_repeated() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.database().await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    let client = gateway.client();
    client.acquire("job:1", "10m").await;
    client.acquire("job:2", "10m").await;
    let mut foreign = postgres.connect(database_in(&url)).await;
    foreign.execute("BEGIN").await.expect("begun");
    let row = "SELECT FROM fencegate.fences WHERE resource = 'job:1' FOR UPDATE";
    foreign.execute(row).await.expect("locked");
    let freeze = mark(&client, "job:1", "freeze", "fire");
    let stuck = freeze.clone().send().await.refused(503, "resource-busy");
    assert!(stuck.problem().retryable && stuck.problem().outcome.is_none(), "{stuck:?}");
    mark(&client, "job:2", "freeze", "fire").send().await.expect(200);
    foreign.execute("ROLLBACK").await.expect("ended");
    freeze.send().await.expect(200);
}

#[tokio::test]
async fn two_gateways_see_each_others_marks() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let (url, prefix) = (postgres.database().await, etcd.prefix());
    let settings = || Gateway::clustered(&url, &etcd.endpoint(), &prefix);
    let (one, other) = (settings().start().await, settings().start().await);
    let (one, other) = (one.client(), other.client());
    let body = json!({ "resource": "job:1", "ttl": "10m", "id": random_id(), "owner": "w" });
    let lock: fence_core::wire::Lock = one.lock(&body).send().await.expect(201).parse();
    marked(&other, "job:1", "freeze", "fire").await;
    one.put("job:1", "k", "x").under(&lock).send().await.refused(423, "resource-frozen");
    marked(&one, "job:1", "unfreeze", "out").await;
    other.put("job:1", "k", "x").under(&lock).send().await.expect(201);
    assert_eq!(actions(&audit(&other, &[]).await), ["unfreeze", "freeze", "grant"]);
}
