//! `fencegate dev`: a gateway in memory that says where it is, and ends with whoever started it.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::process::Stdio;

use fence_tests::access::{Key, Rules};
use fence_tests::client::Client;
use fence_tests::gateway::binary;
use fence_tests::process::{DEADLINE, signal};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::operating::commands::fencegate;

struct Dev {
    home: TempDir,
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    line: Value,
}

impl Dev {
    async fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        let home = TempDir::new().unwrap();
        // Nobody named it.
        std::fs::write(home.path().join("fencegate.toml"), "data_dir = \"x\"\n").unwrap();
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FENCEGATE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.arg("dev").args(args).envs(env.iter().copied()).current_dir(home.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(DEADLINE, out.next_line()).await.unwrap().unwrap();
        let line = serde_json::from_str(&line.expect("a line on standard output")).unwrap();
        Self { home, child, out, line }
    }

    fn url(&self) -> &str {
        self.line["url"].as_str().unwrap()
    }

    fn client(&self) -> Client {
        Client::new(self.url())
    }

    /// Waits for its end, which must be a good one. Nothing else was printed, and nothing was left in its folder;
    /// returns what it logged.
    async fn end(mut self) -> String {
        let status = tokio::time::timeout(DEADLINE, self.child.wait()).await.unwrap().unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(self.out.next_line().await.unwrap(), None);
        let files = std::fs::read_dir(self.home.path()).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["fencegate.toml"]);
        log
    }
}

#[tokio::test]
async fn a_gateway_in_memory_fences_and_ends_with_its_input() {
    let mut dev = Dev::start(&[], &[]).await;
    assert_eq!(dev.line["pid"].as_u64(), dev.child.id().map(u64::from));
    assert!(dev.url().starts_with("http://127.0.0.1:"), "{}", dev.line);
    let client = dev.client();
    client.get("/readyz").query("grants", "1").send().await.expect(200);
    let first = client.acquire("r", "1h").await;
    client.put("r", "a", "one").under(&first).send().await.expect(201);
    let large = vec![b'x'; 1 << 20];
    client.put("r", "large", large.clone()).under(&first).send().await.expect(201);
    client.release(&first).send().await.expect(204);
    let second = client.acquire("r", "1h").await;
    client.put("r", "a", "two").under(&second).send().await.expect(200);
    let late = client.put("r", "a", "late").under(&first).send().await;
    late.refused(412, "fence-token-stale");
    assert_eq!(client.read("r", "a").send().await.expect(200).text(), "two");
    assert_eq!(client.read("r", "large").send().await.expect(200).body, large);
    // One that still waits holds nothing up.
    let waits = client.get(format!("/locks/{}", second.id)).query("wait", "50s");
    let waiting = tokio::spawn(waits.query("since", "leased").try_send());
    drop(dev.child.stdin.take());
    assert_eq!(dev.end().await, "");
    let _cut_or_answered = waiting.await.unwrap();
}

#[tokio::test]
async fn a_gateway_in_memory_ends_on_signals_and_takes_settings() {
    for name in ["TERM", "INT"] {
        let env = [("FENCEGATE_INLINE_BYTES_MAX", "10"), ("RUST_LOG", "info")];
        let dev = Dev::start(&["--metrics-prefix", "job:"], &env).await;
        let client = dev.client();
        let lock = client.acquire("job:1", "1h").await;
        client.put("job:1", "a", "more than ten bytes").under(&lock).send().await.expect(201);
        let metrics = client.get("/metrics").send().await.expect(200).text();
        assert!(metrics.contains("fencegate_resource_grants_total{resource=\"job:1\"} 1"));
        signal(name, &[dev.child.id().unwrap()]);
        let log = dev.end().await;
        assert!(log.contains("listening on") && log.contains("stopped"), "{log}");
    }
}

#[tokio::test]
async fn two_gateways_in_memory_know_nothing_of_each_other() {
    let (one, two) = tokio::join!(Dev::start(&[], &[]), Dev::start(&[], &[]));
    assert_ne!(one.url(), two.url());
    one.client().acquire("r", "1h").await;
    two.client().acquire("r", "1h").await;
    let taken = one.url().trim_start_matches("http://").to_owned();
    let refused = fencegate(&["dev", "--listen", &taken], &[]).await;
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{}", refused.err);
}

#[tokio::test]
async fn what_has_no_place_in_memory_is_refused() {
    for (args, env) in [
        (vec!["dev", "--data-dir", "/nowhere"], vec![]),
        (vec!["dev", "--blobs", "file:///nowhere"], vec![]),
        (vec!["dev"], vec![("FENCEGATE_POSTGRES", "postgres://x:hunter2@127.0.0.1:1/x")]),
        (vec!["dev"], vec![("FENCEGATE_ETCD", "127.0.0.1:1")]),
    ] {
        let refused = fencegate(&args, &env).await;
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(refused.err.contains("keeps everything in memory"), "{}", refused.err);
        assert!(!refused.err.contains("hunter2"), "{}", refused.err);
    }
}

#[tokio::test]
async fn a_gateway_in_memory_begins_with_the_rules_of_a_file() {
    let rules = Rules::new().await;
    let (ann, bob) = (Key::new().await, Key::new().await);
    let file = rules.home.path().join("rules.toml");
    let may = "allow = [\"lock\"]\nresources = [\"job:*\"]";
    std::fs::write(&file, rules.text(may, &[("ann", &ann)])).unwrap();
    let mut dev = Dev::start(&["--rules", file.to_str().unwrap()], &[]).await;
    // They are in force before it says where it is: the first request is held against them.
    let client = dev.client();
    let wish = |resource: &str| client.lock(&json!({ "resource": resource, "ttl": "1h" }));
    wish("job:1").send().await.refused(401, "unauthenticated");
    bob.by(wish("job:1")).send().await.refused(401, "unauthenticated");
    ann.by(wish("other")).send().await.refused(403, "permission-denied");
    let lock = ann.by(wish("job:1")).send().await.expect(201).json();
    assert_eq!(lock["principal"], "ann");
    let known = rules.admin.by(client.get("/admin/access")).send().await.expect(200).json();
    assert_eq!(known["generation"], 1);
    drop(dev.child.stdin.take());
    dev.end().await;
}

/// Without rules everybody may do everything: a gateway that was to have some does not begin without.
#[tokio::test]
async fn rules_that_are_no_good_begin_no_gateway() {
    let rules = Rules::new().await;
    let ann = Key::new().await;
    let file = rules.home.path().join("rules.toml");
    let path = file.to_str().unwrap();
    let ended = fencegate(&["dev", "--rules", path], &[]).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{}", ended.err);
    assert!(ended.err.contains(&format!("cannot read {path}")), "{}", ended.err);
    let open = "allow = [\"lock\"]\nresources = [\"job*\"]";
    let long = "#".repeat((1 << 20) + 1);
    for (text, why) in [
        ("", "has a role that allows `admin`"),
        ("[[rolls]]", "unknown field"),
        (&rules.text(open, &[("ann", &ann)]), "job*"),
        (&long, "more than 1048576 bytes"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = fencegate(&["dev", "--rules", path], &[]).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{why}: {}", ended.err);
        assert!(ended.err.contains(why), "{why}: {}", ended.err);
    }
}
