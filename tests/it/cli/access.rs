//! `fence` under rules of access: what is said to whom is not let in, and locks of one's own and of others.

use std::path::{Path, PathBuf};

use fence_tests::access::{Key, Rules, principal, role};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use serde_json::json;
use tempfile::TempDir;

use super::{Said, call, end, fence};
use crate::setup::{SetUp, on_both};

on_both!(
    whoever_is_not_let_in_is_told_what_to_do,
    a_command_runs_under_a_key_from_a_file,
    writers_and_successors_are_named,
    a_lock_is_kept_with_the_credential_of_the_call,
    what_is_not_for_the_caller_is_left_out,
);

/// A gateway with rules, and a file with the key of each: `ann`, who may delegate, `bob` and `dan`, who may not, and
/// `eve`, whose key has expired.
struct Site {
    gateway: Gateway,
    rules: Rules,
    keys: Vec<(&'static str, Key)>,
    home: TempDir,
}

const WORKS: &str = "allow = [\"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";
const DELEGATES: &str =
    "allow = [\"delegate\", \"lock\", \"write\", \"read\"]\nresources = [\"job:*\"]";

impl Site {
    async fn start(setup: SetUp) -> Self {
        let (rules, home) = (Rules::new().await, TempDir::new().unwrap());
        let mut keys = Vec::new();
        for name in ["ann", "bob", "dan", "eve"] {
            keys.push((name, Key::new().await));
        }
        let (_, eve) = &mut keys[3];
        let (before, _) = eve.line.split_once("expires = ").unwrap();
        eve.line = format!("{before}expires = 2026-01-01T00:00:00Z }}");
        for (name, key) in &keys {
            key.store(&home.path().join(name));
        }
        let text = text(&rules, &keys);
        let gateway = setup.start_ruled(setup.settings().await, &rules, &text).await;
        Self { gateway, rules, keys, home }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A call by whoever has this file.
    async fn by(&self, name: &str, words: &[&str]) -> Said {
        with_file(&self.gateway.url(), &self.file(name), words).await
    }

    /// A resource, as this principal may see it.
    async fn look(&self, name: &str, resource: &str) -> serde_json::Value {
        let (_, key) = self.keys.iter().find(|(known, _)| *known == name).unwrap();
        let call = self.gateway.client().get(fence_tests::client::resource_path(resource));
        key.by(call).send().await.json()
    }
}

fn text(rules: &Rules, keys: &[(&str, Key)]) -> String {
    let mut text = rules.admin() + &role("chief", DELEGATES) + &role("helper", WORKS);
    for (name, key) in keys {
        text += &principal(name, if *name == "ann" { "chief" } else { "helper" }, &[key]);
    }
    text
}

async fn with_file(url: &str, file: &Path, words: &[&str]) -> Said {
    let words = [&["--auth-token-file", file.to_str().unwrap()], words].concat();
    call(url, &words).await
}

/// It is denied, and says so.
#[track_caller]
fn denied(said: Said, says: &[&str]) {
    let text = said.with(9).err();
    assert!(says.iter().all(|part| text.contains(part)), "{says:?}: {text}");
}

async fn whoever_is_not_let_in_is_told_what_to_do(setup: SetUp) {
    let site = Site::start(setup).await;
    let url = &site.gateway.url();
    let lock = ["lock", "-r", "job:1"];
    let ways = ["--auth-token-file", "FENCE_AUTH_TOKEN_FILE", "FENCE_AUTH_TOKEN", "--cert-file"];
    denied(call(url, &lock).await, &ways);
    denied(call(url, &["get", "job:1", "k"]).await, &["no credential was sent"]);
    // A command of `fence run` has these codes for itself.
    let said = call(url, &["run", "-r", "job:1", "--", "true"]).await.with(125);
    assert!(said.err().contains("no credential was sent"), "{said:?}");

    let (stranger, path) = (Key::new().await, site.file("stranger"));
    stranger.store(&path);
    let path = path.to_str().unwrap();
    denied(site.by("stranger", &lock).await, &[path, "is not accepted"]);
    let mut by_variable = fence(url, &lock);
    let said = end(by_variable.env("FENCE_AUTH_TOKEN", &stranger.text).spawn().unwrap()).await;
    denied(said, &["FENCE_AUTH_TOKEN", "is not accepted"]);
    denied(site.by("eve", &lock).await, &["has expired", site.file("eve").to_str().unwrap()]);
    denied(site.by("nobody", &lock).await, &["cannot read"]);
    let said = site.by("ann", &["lock", "-r", "other:1"]).await;
    denied(said, &["ann may not lock other:1", "the rules of access"]);
    let said = call(url, &["lock", "-r", "job:1", "--json"]).await.with(9);
    let problem: serde_json::Value = serde_json::from_str(said.err().trim()).unwrap();
    assert_eq!(
        (&problem["code"], &problem["class"]),
        (&json!("unauthenticated"), &json!("Denied"))
    );

    // A key that was good until now.
    site.by("bob", &lock).await.with(0);
    if setup == SetUp::Clustered {
        let left = text(&site.rules, &site.keys[..1]);
        site.rules.put_in_force(&site.gateway, &left).await;
        denied(site.by("bob", &["lock", "-r", "job:2"]).await, &["bob", "was taken back"]);
    }
}

async fn a_command_runs_under_a_key_from_a_file(setup: SetUp) {
    let site = Site::start(setup).await;
    let script = "echo done | \"$FENCE\" put job:1 k - && \"$FENCE\" get job:1 k";
    let mut run = fence(&site.gateway.url(), &["run", "-r", "job:1", "-c", script]);
    // One that is replaced by the file that the command line names.
    run.arg("--auth-token-file").arg(site.file("ann"));
    run.env("FENCE", super::binary()).env("FENCE_AUTH_TOKEN", "another");
    assert_eq!(end(run.spawn().unwrap()).await.with(0).out().lines().last(), Some("done"));
    assert_eq!(site.look("ann", "job:1").await["state"], "released");
}

async fn writers_and_successors_are_named(setup: SetUp) {
    let site = Site::start(setup).await;
    let words = ["lock", "-r", "job:1", "--writer", "bob", "--writer", "role:loader", "--json"];
    let lock = site.by("ann", &words).await.with(0).json();
    assert_eq!(lock["principal"], "ann");
    assert_eq!(lock["writers"], json!(["bob", "role:loader"]));
    let (id, token) = (lock["id"].as_str().unwrap(), lock["token"].as_str().unwrap());
    let put = ["put", "job:1", "k", "-", "--token", token, "--lock-id", id];
    site.by("bob", &put).await.with(0);
    let said = site.by("dan", &put).await.with(2);
    assert!(said.err().contains("fence-token-unknown"), "{said:?}");
    for words in [&["renew", id][..], &["unlock", id], &["transfer", id, "--to", "me"]] {
        site.by("bob", words).await.with(3);
    }
    // A writer who comes too late is told so.
    let handed = ["transfer", id, "--to", "next", "--principal", "dan", "--json"];
    let next = site.by("ann", &handed).await.with(0).json();
    assert_eq!((&next["principal"], &next["owner"]), (&json!("dan"), &json!("next")));
    site.by("bob", &put).await.with(5);
    let id = next["id"].as_str().unwrap();
    site.by("ann", &["renew", id]).await.with(3);
    site.by("dan", &["renew", id]).await.with(0);
    denied(
        site.by("dan", &["transfer", id, "--to", "x", "--principal", "bob"]).await,
        &["delegate"],
    );
    site.by("dan", &["unlock", id]).await.with(0);
    // For people, and by those who run a command.
    let said = site.by("ann", &["lock", "-r", "job:2", "--writer", "bob"]).await.with(0).out();
    assert!(said.contains("principal  ann\n") && said.contains("writers    bob\n"), "{said}");
    let run = ["run", "-r", "job:3", "--writer", "bob", "-c"];
    let (program, file) = (super::binary(), site.file("bob"));
    let put = format!("{} --auth-token-file {} put job:3 k -", program.display(), file.display());
    site.by("ann", &[&run[..], &[&put]].concat()).await.with(0);
    site.by("ann", &[&run[..3], &["-c", &put]].concat()).await.with(2);
    let said = site.by("dan", &[&run[..], &[&put]].concat()).await.with(125);
    assert!(said.err().contains("dan may not delegate job:3"), "{said:?}");
}

async fn a_lock_is_kept_with_the_credential_of_the_call(setup: SetUp) {
    let site = Site::start(setup).await;
    let mut process =
        tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let pid = process.id().unwrap().to_string();
    let words = ["lock", "-r", "job:1", "--ttl", "8s", "--keep-for-pid", &pid];
    site.by("ann", &words).await.with(0);
    eventually("it is held for longer than its ttl", async || {
        let seen = site.look("ann", "job:1").await;
        assert_ne!(seen["state"], "expired", "nobody renews it");
        (seen["age_ms"].as_i64() > Some(9_000)).then_some(())
    })
    .await;
    process.kill().await.unwrap();
    eventually("it is given back", async || {
        (site.look("ann", "job:1").await["state"] == "released").then_some(())
    })
    .await;
}

async fn what_is_not_for_the_caller_is_left_out(setup: SetUp) {
    let site = Site::start(setup).await;
    site.by("ann", &["lock", "-r", "job:1", "--owner", "nightly"]).await.with(0);
    let shown = site.by("bob", &["show", "job:1"]).await.with(0).out();
    assert!(shown.contains("nightly") && !shown.contains("last acts"), "{shown}");
    let shown = site.by("bob", &["show", "job:1", "--json"]).await.with(0).json();
    assert_eq!((&shown["audit"], &shown["resource"]["owner"]), (&json!(null), &json!("nightly")));
    denied(site.by("bob", &["show", "other:1"]).await, &["bob may not read other:1"]);
}
