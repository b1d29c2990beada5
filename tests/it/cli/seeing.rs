//! What users and operators look at and do.

use fence_tests::process::eventually;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{call, call_with, fence};
use crate::setup::{SetUp, look, on_both, random_id};

on_both!(
    a_lock_is_taken_and_ended_by_hand,
    a_lock_is_kept_for_a_process,
    operators_break_freeze_and_protect,
    a_break_without_a_time_comes_when_the_lock_expires,
    what_becomes_of_writes_is_told,
    changes_of_hands_are_followed,
    the_gateway_says_how_it_is,
    contexts_name_gateways,
);

async fn a_lock_is_taken_and_ended_by_hand(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let said = call(url, &["lock", "-r", "r", "--export", "--owner", "me"]).await.with(0);
    let line = |name: &str| {
        let found = said.out().lines().find_map(|line| {
            line.strip_prefix(&format!("export {name}='"))
                .map(|rest| rest.trim_end_matches('\'').to_owned())
        });
        found.unwrap_or_else(|| panic!("no {name} in {said:?}"))
    };
    let (id, token) = (line("FENCE_LOCK_ID"), line("FENCE_TOKEN"));
    assert_eq!(line("FENCE_RESOURCES"), "r");
    call(url, &["lock", "-r", "r"]).await.with(4);
    call(url, &["renew", &id, "--ttl", "1m"]).await.with(0);
    let locks = call(url, &["locks", "--json"]).await.with(0).json();
    assert_eq!(locks["items"][0]["owner"], "me");
    assert_eq!(locks["items"][0]["ttl_ms"], 60_000);
    let next = call(url, &["transfer", &id, "--to", "you", "--json"]).await.with(0).json();
    assert_ne!(next["token"], token.as_str());
    call(url, &["renew", &id]).await.with(5);
    call(url, &["unlock", next["id"].as_str().unwrap()]).await.with(0);
    assert_eq!(call(url, &["locks", "-o", "name"]).await.with(0).out(), "");
    let never = call(url, &["unlock", "0190a1b2-0000-7000-8000-000000000000", "--json"]).await;
    assert_eq!(never.with(0).json()["buried"], true);
}

async fn a_lock_is_kept_for_a_process(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let mut process =
        tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let pid = process.id().unwrap().to_string();
    call(url, &["lock", "-r", "r", "--ttl", "8s", "--keep-for-pid", &pid]).await.with(0);
    eventually("it is held for longer than its ttl", async || {
        let seen = look(&gateway.client(), "r").await;
        (seen.state.as_str() == "leased" && seen.age_ms > 9_000).then_some(())
    })
    .await;
    call(url, &["lock", "-r", "r"]).await.with(4);
    process.kill().await.unwrap();
    eventually("it is given back", async || {
        let locks = call(url, &["locks", "-o", "name"]).await.out();
        locks.is_empty().then_some(())
    })
    .await;
}

async fn operators_break_freeze_and_protect(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    call(url, &["lock", "-r", "r", "--owner", "worker-b"]).await.with(0);
    // Nobody is asked who cannot answer.
    let said = call(url, &["break", "r", "--reason", "it hangs", "--now"]).await.with(2);
    assert!(said.err().contains("--yes"), "{said:?}");
    call(url, &["break", "r", "--now", "--yes"]).await.with(2);
    let words = ["break", "r", "--reason", "it hangs", "--now", "--yes", "--json"];
    assert_eq!(call(url, &words).await.with(0).json()["state"], "broken");
    call(url, &["freeze", "r", "--reason", "books are closed"]).await.with(0);
    call_with(url, &["put", "r", "k", "--lock"], b"x").await.with(4);
    let said = call(url, &["run", "-n", "-r", "r", "--", "true"]).await.with(75);
    assert!(said.err().contains("an operator has frozen r: books are closed"), "{said:?}");
    call(url, &["unfreeze", "r", "--reason", "open again"]).await.with(0);
    call_with(url, &["put", "r", "k", "--lock"], b"x").await.with(0);
    call(url, &["protect", "r", "--reason", "to be kept"]).await.with(0);
    let said = call(url, &["rm", "-R", "r", "--yes", "--lock"]).await.with(2);
    assert!(said.err().contains("protected"), "{said:?}");
    call(url, &["unprotect", "r", "--reason", "may go"]).await.with(0);
    call(url, &["rm", "-R", "r", "--yes", "--lock"]).await.with(0);
    let audit = call(url, &["audit", "--on", "r", "--json"]).await.with(0).json();
    let reasons: Vec<_> =
        audit["items"].as_array().unwrap().iter().filter_map(|it| it["reason"].as_str()).collect();
    assert!(reasons.contains(&"it hangs") && reasons.contains(&"may go"), "{reasons:?}");
    let refused = call(url, &["rejections", "--code", "resource-frozen", "--json"]).await.with(0);
    refused.json();
    call(url, &["rejections", "--code", "no-such-code"]).await.with(2);
    let shown = call(url, &["show", "r"]).await.with(0).out();
    assert!(shown.contains("it hangs") && shown.contains("worker-b, broken after"), "{shown}");
    // What is broken stays broken, and that it was asked for is kept.
    call(url, &["lock", "-r", "s", "--owner", "worker-c"]).await.with(0);
    let words = ["break", "s", "--now", "--yes", "--reason"];
    let said = call(url, &[&words[..], &["one"]].concat()).await.with(0).out();
    assert_eq!(said, "s is broken\n");
    let said = call(url, &[&words[..], &["two"]].concat()).await.with(0).out();
    assert_eq!(said, "s is broken already: nothing has changed\n");
    let table = call(url, &["audit", "--on", "s"]).await.with(0).out();
    let heads = table.lines().next().unwrap_or_default();
    assert!(heads.contains("LOCK OF") && heads.contains(" BY "), "{table}");
    assert!(table.contains("one") && table.contains("two"), "{table}");
    let wide = call(url, &["audit", "--on", "s", "-o", "wide"]).await.with(0).out();
    assert!(wide.contains("CREDENTIAL") && wide.contains("127.0.0.1"), "{wide}");
    let shown = call(url, &["show", "s"]).await.with(0).out();
    assert!(shown.contains("\nbroken ") && shown.contains("worker-c, broken after"), "{shown}");
    call(url, &["show", "never-locked"]).await.with(3);
}

/// Also of a lock that does not expire: then somebody has to say when.
async fn a_break_without_a_time_comes_when_the_lock_expires(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    call(url, &["lock", "-r", "r", "--ttl", "10m", "--owner", "worker-b"]).await.with(0);
    let words = ["break", "r", "--reason", "not again", "--yes"];
    let said = call(url, &words).await.with(0).out();
    assert!(said.starts_with("r will be broken in 9m"), "{said}");
    let before = look(&gateway.client(), "r").await;
    assert_eq!(before.state.as_str(), "breaking");
    assert!(before.breaks_in_ms.is_some_and(|ms| ms > 8 * 60_000), "{before:?}");
    let body = json!({ "resource": "s", "ttl": "infinite", "owner": "robot", "id": random_id() });
    for status in [201, 200] {
        let answer = gateway.client().lock(&body).send().await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let words = ["break", "s", "--reason", "not again", "--yes"];
    let said = call(url, &words).await.with(2);
    assert!(said.err().contains("does not expire: say --now, or --after"), "{said:?}");
    assert_eq!(look(&gateway.client(), "s").await.state.as_str(), "leased");
    let said = call(url, &[&words[..], &["--after", "5m"]].concat()).await.with(0).out();
    assert!(said.starts_with("s will be broken in "), "{said}");
    let said = call(url, &[&words[..], &["--now"]].concat()).await.with(0).out();
    assert_eq!(said, "s is broken\n");
}

async fn what_becomes_of_writes_is_told(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let put = ["put", "r", "k", "--lock", "--idempotency-key", "m-1", "--json"];
    let written = call_with(url, &put, b"x").await.with(0).json();
    let operation = written["operation"].as_str().unwrap();
    assert!(
        call(url, &["operation", operation]).await.with(0).out().starts_with("applied: put r/k")
    );
    call(url, &["operation", "--on", "r", "--idempotency-key", "m-1"]).await.with(0);
    call(url, &["operation", "--on", "r", "--idempotency-key", "m-2"]).await.with(7);
    call(url, &["operation", "0190a1b2-0000-7000-8000-000000000000"]).await.with(7);
    call(url, &["operation", "no-id"]).await.with(2);
    assert_eq!(
        call(url, &["intents", "--json"]).await.with(0).json()["items"],
        serde_json::json!([])
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cursor");
    let words = ["events", "--cursor-file", file.to_str().unwrap(), "-o", "jsonl"];
    assert_eq!(call(url, &words).await.with(0).out().lines().count(), 1);
    call_with(url, &["put", "r", "k", "--lock"], b"y").await.with(0);
    let said = call(url, &words).await.with(0).out();
    assert!(said.lines().count() == 1 && said.contains("\"version\":2"), "{said}");
}

async fn changes_of_hands_are_followed(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    let lock = call(url, &["lock", "-r", "r", "--owner", "one", "--json"]).await.with(0).json();
    assert_eq!(call(url, &["leader", "r"]).await.with(0).out(), "one\n");
    let mut child = fence(url, &["leader", "r", "-f"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "one");
    // Its lock changes twice, and it leads all the time.
    let mut watched = fence(url, &["watch", "r", "-o", "jsonl"]).spawn().unwrap();
    let mut states = BufReader::new(watched.stdout.take().unwrap()).lines();
    let told = async |states: &mut tokio::io::Lines<_>, word: &str| {
        while !states.next_line().await.unwrap().unwrap().contains(word) {}
    };
    told(&mut states, "leased").await;
    call(url, &["break", "r", "--reason", "later", "--yes"]).await.with(0);
    told(&mut states, "breaking").await;
    call(url, &["unlock", lock["id"].as_str().unwrap()]).await.with(0);
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "(nobody)");
    call(url, &["leader", "r"]).await.with(3);
    // The audit, too.
    let mut child = fence(url, &["audit", "-f", "-o", "name"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = async {
        let mut number = 0;
        loop {
            number += 1;
            call(url, &["lock", "-r", &format!("r{number}")]).await.with(0);
        }
    };
    let line = tokio::select! { line = lines.next_line() => line, () = told => Ok(None) };
    assert!(line.unwrap().unwrap().starts_with('r'));
    call(url, &["fence", "lent", "--order", "7"]).await.with(0);
    call(url, &["fence", "lent", "--order", "6"]).await.with(5);
}

async fn the_gateway_says_how_it_is(setup: SetUp) {
    let gateway = setup.start().await;
    let url = &gateway.url();
    assert!(call(url, &["status"]).await.with(0).out().contains("ready      yes"));
    let ping = call(url, &["ping", "--count", "1", "-o", "jsonl"]).await.with(0).json();
    assert_eq!(ping["released"], true);
    call("http://127.0.0.1:1", &["status", "--timeout", "300ms"]).await.with(8);
}

async fn contexts_name_gateways(setup: SetUp) {
    let gateway = setup.start().await;
    let home = tempfile::tempdir().unwrap();
    let with = async |words: &[&str]| {
        let mut command = fence("", words);
        command.env("XDG_CONFIG_HOME", home.path()).env_remove("FENCE_URL");
        super::end(command.spawn().unwrap()).await
    };
    with(&["context", "use", "prod"]).await.with(2);
    with(&["context", "add", "prod"]).await.with(2);
    with(&["context", "add", "dead", "--url", "http://127.0.0.1:1"]).await.with(0);
    with(&["context", "add", "prod", "--url", &gateway.url(), "--owner", "me"]).await.with(0);
    with(&["context", "use", "dead"]).await.with(0);
    with(&["status", "--timeout", "300ms"]).await.with(8);
    with(&["status", "--context", "prod"]).await.with(0);
    with(&["context", "use", "prod"]).await.with(0);
    with(&["lock", "-r", "r"]).await.with(0);
    assert_eq!(with(&["leader", "r"]).await.with(0).out(), "me\n");
    assert_eq!(with(&["context", "ls", "-o", "name"]).await.with(0).out(), "dead\nprod\n");
    with(&["context", "rm", "dead"]).await.with(0);
    with(&["status", "--context", "dead"]).await.with(2);
    std::fs::write(home.path().join("fence/config.toml"), "nonsense = 1").unwrap();
    with(&["status"]).await.with(1);
}
