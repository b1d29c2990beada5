//! Rules of access through a running gateway: at its socket, over HTTP, and what holders lose by new ones.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_core::wire::{AccessApplied, AccessRules, AuditEntry, AuditList, Explanation, Lock};
use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::client::{Call, Client};
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::eventually;
use fence_tests::raw::exchange;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::setup::SetUp;

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const LOOKS: &str = "allow = [\"read\"]\nresources = [\"job:*\"]";

fn put(client: &Client, body: &Value) -> Call {
    let call = client.call(Method::PUT, "/admin/access");
    call.header("content-type", "application/json").body(body.to_string())
}

/// The first rules of a gateway on a data directory, put in force while it runs: the key of `admin`.
async fn begun(gateway: &Gateway, home: &TempDir) -> Key {
    let file = home.path().join("first.toml");
    let (code, out, log) = gateway.run(&["access", "init", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{out}{log}");
    Key::known(out.lines().nth(1).unwrap().to_owned())
}

#[tokio::test]
async fn a_data_directory_gets_its_first_rules_at_the_socket_of_its_gateway() {
    let home = TempDir::new().unwrap();
    let gateway = SetUp::Embedded.settings().await.start().await;
    let client = gateway.client();
    assert!(gateway.data_dir().join("admin.sock").exists());
    // Through a port nobody takes a gateway over.
    let text = "[[roles]]\nname = \"r\"\nallow = [\"admin\"]\nresources = [\"*\"]\n";
    let first = json!({ "rules": text, "reason": "mine now" });
    put(&client, &first).send().await.refused(403, "permission-denied");
    let none: AccessRules = client.get("/admin/access").send().await.expect(200).parse();
    assert_eq!(none, AccessRules { generation: 0, rules: None });

    let admin = begun(&gateway, &home).await;
    client.get("/admin/access").send().await.refused(401, "unauthenticated");
    let known = admin.by(client.get("/admin/access")).send().await.expect(200);
    let known: AccessRules = known.parse();
    assert_eq!(known.generation, 1);
    assert!(!known.rules.unwrap().contains(&admin.text), "it has digests alone");

    // Whoever began is known at the socket as the user that it was.
    let (code, told, log) = gateway.run(&["access", "show"]).await;
    assert!(code == Some(0) && told.starts_with("# generation 1\n"), "{told}{log}");
    let again = home.path().join("again.toml");
    let (code, _, log) = gateway.run(&["access", "init", again.to_str().unwrap()]).await;
    assert!(code == Some(1) && log.contains("generation 1"), "{log}");
    assert!(!again.exists());
}

#[tokio::test]
async fn rules_are_put_in_force_over_http_by_whoever_may() {
    let rules = Rules::new().await;
    let (ann, home) = (Key::new().await, TempDir::new().unwrap());
    let gateway = SetUp::Clustered.settings().await.start().await;
    let client = gateway.client();
    rules.put_in_force(&gateway, &rules.text(WORKS, &[("ann", &ann)])).await;
    let boss = home.path().join("boss.key");
    rules.admin.store(&boss);
    let other = home.path().join("ann.key");
    ann.store(&other);
    let file = home.path().join("next.toml");
    std::fs::write(&file, rules.text(LOOKS, &[("ann", &ann)])).unwrap();
    let url = gateway.url();
    let apply = async |key: &std::path::Path, more: &[&str]| {
        let args = ["access", "apply", file.to_str().unwrap(), "--reason", "less", "--url", &url];
        let key = ["--auth-token-file", key.to_str().unwrap()];
        let (code, out, log) = gateway.run(&[&args[..], &key, more].concat()).await;
        (code, out + &log)
    };
    let (code, told) = apply(&other, &[]).await;
    assert!(code == Some(1) && told.contains("permission-denied"), "{told}");
    let (code, told) = apply(&boss, &["--follows", "7"]).await;
    assert!(code == Some(1) && told.contains("generation 1"), "{told}");
    let (code, told) = apply(&boss, &[]).await;
    assert!(code == Some(0) && told.contains("In force as generation 2"), "{told}");
    // What changes is shown.
    assert!(told.contains("-allow = [\"lock\", \"write\", \"read\"]"), "{told}");
    assert!(told.contains("+allow = [\"read\"]"), "{told}");
    ann.by(client.lock(&json!({ "resource": "job:1" })))
        .send()
        .await
        .refused(403, "permission-denied");

    for (body, status, code) in [
        (json!({ "rules": "x", "reason": "r" }), 400, "body-malformed"),
        (json!({ "rules": "[[rolls]]", "reason": "r" }), 400, "body-malformed"),
        (json!({ "rules": "", "reason": "" }), 400, "body-malformed"),
        (json!({ "rules": "" }), 400, "body-malformed"),
        (json!({ "rules": "x".repeat(1 << 20) + "x", "reason": "r" }), 400, "body-malformed"),
    ] {
        rules.admin.by(put(&client, &body)).send().await.refused(status, code);
    }
    // Refused for its length alone, of which nothing is sent: whoever sends it all may find the connection closed.
    let head = format!(
        "PUT /admin/access HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        rules.admin.text,
        3 << 20
    );
    let answer = exchange(gateway.address(), head.as_bytes()).await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (413, "payload-too-large"));
    let body = json!({ "rules": rules.text(WORKS, &[]), "reason": "r", "follows": 1 });
    rules.admin.by(put(&client, &body)).send().await.refused(412, "version-mismatch");
    let known = rules.admin.by(client.get("/admin/access")).send().await.expect(200);
    assert_eq!(known.parse::<AccessRules>().generation, 2);
}

/// Only who has the ledger could let anybody in again.
#[tokio::test]
async fn rules_that_lock_everybody_out_are_refused_and_what_is_denied_is_told() {
    let rules = Rules::new().await;
    let gateway = SetUp::Clustered.start().await;
    let text = rules.text(WORKS, &[]);
    rules.put_in_force(&gateway, &text).await;
    let (id, denied) = (
        rules.admin.line.split('"').nth(1).unwrap(),
        "deny = [{ actions = [\"admin\"], resources = [\"*\"] }]",
    );
    let revoked = format!("revoked = [\"key:{id}\"]\n{text}");
    let may = "allow = [\"admin\"]\nresources = [\"*\"]";
    let denied = text.replacen(may, &format!("{may}\n{denied}"), 1);
    for locked_out in [&revoked, &denied] {
        let (code, told) = rules.apply(&gateway, locked_out).await;
        assert!(code == Some(1) && told.contains("nobody who can show who they are"), "{told}");
    }
    let client = gateway.client();
    let may = async || {
        let own = rules.admin.by(client.get("/access")).send().await.expect(200).json();
        own["may"].clone()
    };
    assert_eq!(may().await, json!(["admin"]), "nothing was changed");
    // The right goes to another one, and the first one is told so.
    let other = Key::new().await;
    let (may_all, by) = ("allow = [\"admin\"]\nresources = [\"*\"]", [&other]);
    let handed_on = denied.clone() + &role("next", may_all) + &principal("next", "next", &by);
    rules.put_in_force(&gateway, &handed_on).await;
    eventually("the gateway has heard of it", async || (may().await == json!([])).then_some(()))
        .await;
    rules.admin.by(client.get("/admin/access")).send().await.refused(403, "permission-denied");
    other.by(client.get("/admin/access")).send().await.expect(200);
}

/// A lock whose holder may not have it any more is told, and broken if that is wanted: then it frees its resource at
/// once.
async fn locks_that_are_lost_are_told_and_broken(setup: SetUp) {
    let rules = Rules::new().await;
    let (ann, bob) = (Key::new().await, Key::new().await);
    let home = TempDir::new().unwrap();
    let gateway = setup.settings().await.start().await;
    let client = gateway.client();
    let before = client.acquire("job:0", "1h").await;
    let both = [("ann", &ann), ("bob", &bob)];
    rules.put_in_force(&gateway, &rules.text(WORKS, &both)).await;
    let lock = async |key: &Key, resource: &str| {
        let body = json!({ "resource": resource, "ttl": "1h", "owner": "o" });
        key.by(client.lock(&body)).send().await.expect(201).parse::<Lock>()
    };
    let (anns, bobs) = (lock(&ann, "job:1").await, lock(&bob, "job:2").await);
    let bob_alone = rules.text(WORKS, &[("bob", &bob)])
        + &role("guest", "allow = [\"read\"]\nresources = [\"other:*\"]")
        + &principal("ann", "guest", &[&ann]);
    let body = |breaks: bool| json!({ "rules": bob_alone, "reason": "ann does other work", "break": breaks });
    let applied = rules.admin.by(put(&client, &body(false))).send().await.expect(200);
    let applied: AccessApplied = applied.parse();
    let told = |applied: &AccessApplied| -> Vec<(String, Option<String>, bool)> {
        let lost = applied.lost.iter().flatten();
        let told = lost
            .map(|it| (it.resource.to_string(), it.principal.clone().map(String::from), it.broken));
        told.collect()
    };
    let lost = |broken| {
        vec![
            ("job:0".to_owned(), None, broken),
            ("job:1".to_owned(), Some("ann".to_owned()), broken),
        ]
    };
    let counts = |it: &AccessApplied| (it.lost_count, it.broken_count, it.unbroken_count);
    assert_eq!((told(&applied), counts(&applied)), (lost(false), (2, 0, 0)));
    let taken = json!({ "resource": "job:1" });
    bob.by(client.lock(&taken)).send().await.refused(409, "lock-held");

    let applied = rules.admin.by(put(&client, &body(true))).send().await.expect(200);
    let applied: AccessApplied = applied.parse();
    assert_eq!((told(&applied), counts(&applied)), (lost(true), (2, 2, 0)));
    bob.by(client.lock(&taken)).send().await.expect(201);
    bob.by(client.put("job:2", "k", "x").under(&bobs)).send().await.expect(201);
    for late in [&anns, &before] {
        let late = client.put(late.resources[0].as_str(), "k", "late").under(late);
        ann.by(late.clone()).send().await.refused(403, "permission-denied");
        bob.by(late).send().await.refused(403, "fence-token-unknown");
    }
    // The command says the same, and has nothing more to break.
    let file = home.path().join("same.toml");
    std::fs::write(&file, &bob_alone).unwrap();
    let args = ["access", "apply", file.to_str().unwrap(), "--reason", "again", "--break"];
    let key = home.path().join("boss.key");
    rules.admin.store(&key);
    let url = gateway.url();
    let at = ["--url", &url, "--auth-token-file", key.to_str().unwrap()];
    let (code, out, log) = gateway.run(&[&args[..], &at].concat()).await;
    assert!(code == Some(0) && out.contains("Nothing differs"), "{out}{log}");
    assert!(!out.contains("job:"), "{out}");
}

crate::setup::on_both!(locks_that_are_lost_are_told_and_broken, who_was_refused_is_in_the_audit);

#[tokio::test]
async fn the_line_that_decides_is_told() {
    let rules = Rules::new().await;
    let ann = Key::new().await;
    let gateway = SetUp::Clustered.settings().await.start().await;
    let client = gateway.client();
    let deny = "deny = [{ actions = [\"write\"], resources = [\"job:old:*\"] }]";
    let text = rules.text(&format!("{WORKS}\n{deny}"), &[("ann", &ann)]);
    rules.put_in_force(&gateway, &text).await;
    for (principal, action, resource, allowed, pattern) in [
        ("ann", "write", "job:1", true, Some("job:*")),
        ("ann", "write", "job:old:1", false, Some("job:old:*")),
        ("ann", "write", "other:1", false, None),
        ("ann", "read", "job:*", true, Some("job:*")),
        ("ann", "read", "jo*", false, None),
        ("ann", "forward-read", "crm/x", false, None),
        ("nobody", "read", "job:1", false, None),
        ("boss", "admin", "*", true, Some("*")),
    ] {
        let body = json!({ "principal": principal, "action": action, "resource": resource });
        let told = rules.admin.by(client.post("/admin/access/explain", &body)).send().await;
        let told: Explanation = told.expect(200).parse();
        let is = (told.allowed, told.pattern.as_deref(), told.generation);
        assert_eq!(is, (allowed, pattern, 1), "{body}: {}", told.why);
        let args = ["--principal", principal, "--action", action, "--resource", resource];
        let (code, out, _) = gateway.run(&[&["access", "explain"], &args[..]].concat()).await;
        assert_eq!((code, out.trim()), (Some(i32::from(!allowed)), told.why.as_str()));
    }
}

/// How a gateway ends that these settings refuse, and what it says.
async fn refused(settings: Settings) -> (Option<i32>, String) {
    let (status, log) = settings.start_refused().await;
    (status.code(), log)
}

#[tokio::test]
async fn who_is_reached_from_the_network_has_tls_and_rules_or_says_that_it_is_open() {
    let rules = Rules::new().await;
    let settings = SetUp::Clustered.settings().await.flag("--require-lock-id", "off");
    let reached = || settings.clone().flag("--admin-listen", "0.0.0.0:0");
    let proxied = || reached().flag("--tls", "proxy").flag("--trusted-proxies", "10.0.0.7");
    let open = || reached().env("FENCEGATE_OPEN_TO_NETWORK", "true");
    let (code, log) = refused(reached()).await;
    assert!(code == Some(2) && log.contains("tls_cert_file"), "{log}");
    assert!(log.contains("--open-to-network"), "{log}");
    let (code, log) = refused(proxied()).await;
    assert!(code == Some(2) && log.contains("fencegate access init"), "{log}");
    let gateway = open().start().await;
    rules.put_in_force(&gateway, &rules.admin()).await;
    drop(gateway);
    let (code, log) = refused(open()).await;
    assert!(code == Some(2) && log.contains("rules of access are in force"), "{log}");
    let gateway = proxied().start().await;
    gateway.client().get("/locks").send().await.refused(401, "unauthenticated");
}

/// A denied call, and a credential that is nobody's, are in the audit a moment later: the first of each, then their number.
async fn who_was_refused_is_in_the_audit(set_up: SetUp) {
    let rules = Rules::new().await;
    let (ann, stranger) = (Key::new().await, Key::new().await);
    let mut gateway = set_up.settings().await.start().await;
    let client = gateway.client();
    let watches = role("watch", "allow = [\"observe\"]\nresources = [\"*\"]");
    let eve = Key::new().await;
    let text = rules.text(WORKS, &[("ann", &ann)]) + &watches + &principal("eve", "watch", &[&eve]);
    rules.put_in_force(&gateway, &text).await;
    let denied = || ann.by(client.get("/resources/other")).header("x-request-id", "mine");
    denied().send().await.refused(403, "permission-denied");
    stranger.by(client.get("/resources/job:1")).send().await.refused(401, "unauthenticated");
    // Nothing was shown: nobody has failed.
    client.get("/resources/job:1").send().await.refused(401, "unauthenticated");
    let entries = async |action: &str| -> Vec<AuditEntry> {
        let all: AuditList =
            eve.by(client.get("/audit").query("action", action)).send().await.expect(200).parse();
        all.items
    };
    let first = eventually("it is on record", async || entries("denied").await.pop()).await;
    assert_eq!(first.reason.as_deref(), Some("ann may not read other"));
    assert_eq!((first.owner.as_deref(), first.principal.as_deref()), (Some("ann"), Some("ann")));
    assert_eq!(
        (first.peer.as_deref(), first.request_id.as_deref()),
        (Some("127.0.0.1"), Some("mine"))
    );
    assert!(first.gateway_request_id.is_some() && first.credential.is_some());
    let failed = eventually("it is on record", async || entries("auth-failed").await.pop()).await;
    assert_eq!((failed.principal, failed.peer.as_deref()), (None, Some("127.0.0.1")));
    for _ in 0..3 {
        denied().send().await.refused(403, "permission-denied");
    }
    // A gateway that ends says at once what it would have said later.
    gateway.term();
    gateway.wait_for_exit().await;
    gateway.restart().await;
    let client = gateway.client();
    let all = eve.by(client.get("/audit").query("action", "denied")).send().await.expect(200);
    let all: AuditList = all.parse();
    let reasons: Vec<_> = all.items.iter().filter_map(|entry| entry.reason.as_deref()).collect();
    let more = "refused 3 times more within a minute of: ann may not read other";
    assert_eq!(reasons, [more, "ann may not read other"]);
}
