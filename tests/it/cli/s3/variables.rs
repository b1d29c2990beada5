//! What a command has in its environment when its lock has a key of S3.

use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::super::{Said, end, fence};
use crate::rust_client::s3::front::{Front, key_of, secret_of};

/// What a caller may have in the environment already.
const OF_THE_CALLER: &[(&str, &str)] = &[
    ("AWS_PROFILE", "work"),
    ("AWS_SESSION_TOKEN", "old"),
    ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/key"),
    ("AWS_SHARED_CREDENTIALS_FILE", "/credentials"),
    ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
    ("AWS_ACCESS_KEY_ID", "AKIAOLD"),
    ("AWS_SECRET_ACCESS_KEY", "old"),
    ("AWS_REGION", "us-west-2"),
    ("AWS_CONFIG_FILE", "/config"),
];

/// What the variables of S3 tools begin with.
const OF_TOOLS: &[&str] = &["AWS_", "S3_", "DUCKDB_", "RCLONE_", "PGBACKREST_", "RESTIC_"];

/// The words of a call that prints the environment of its command.
fn printing<'a>(resource: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "-r", resource], more, &["--", "env"]].concat()
}

/// A call by a caller who has those variables.
async fn by_caller(front: &Front, words: &[&str]) -> Said {
    let mut command = fence(front.url(), words);
    // Whatever the machine has of these is not of the test.
    for (name, _) in std::env::vars_os() {
        if OF_TOOLS.iter().any(|it| name.to_string_lossy().starts_with(it)) {
            command.env_remove(name);
        }
    }
    end(command.envs(OF_THE_CALLER.iter().copied()).spawn().unwrap()).await
}

fn variables(said: &Said) -> BTreeMap<String, String> {
    let out = said.out();
    let pairs = out.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn of_tools(variables: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let found = variables.iter().filter(|(name, _)| OF_TOOLS.iter().any(|it| name.starts_with(it)));
    found.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn a_command_has_what_s3_tools_read_and_nothing_that_misleads_them() {
    let front = Front::at("http://localhost:9").await;
    let said = by_caller(&front, &printing("lake:orders", &[])).await.with(0);
    let all = variables(&said);
    let id = &all["FENCE_LOCK_ID"];
    let (key, secret) = (key_of(id), secret_of(id));
    let (key, secret, url) = (key.as_str(), secret.as_str(), "http://127.0.0.1:9");
    let expected = BTreeMap::from([
        ("AWS_ACCESS_KEY_ID", key),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_ENDPOINT_URL_S3", url),
        ("AWS_ENDPOINT_URL", url),
        ("AWS_ENDPOINT", url),
        ("S3_ENDPOINT_URL", url),
        ("AWS_REGION", "eu-1"),
        ("AWS_DEFAULT_REGION", "eu-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false"),
        ("AWS_S3_FORCE_PATH_STYLE", "true"),
        ("AWS_ALLOW_HTTP", "true"),
        // Settings that lead to no other key are the caller's.
        ("AWS_CONFIG_FILE", "/config"),
        ("DUCKDB_S3_ENDPOINT", "127.0.0.1:9"),
        ("DUCKDB_S3_USE_SSL", "false"),
        ("RCLONE_S3_PROVIDER", "Other"),
        ("RCLONE_S3_ENV_AUTH", "true"),
        ("RCLONE_S3_ENDPOINT", url),
        ("RCLONE_S3_REGION", "eu-1"),
        ("RCLONE_S3_ACCESS_KEY_ID", key),
        ("RCLONE_S3_SECRET_ACCESS_KEY", secret),
        ("PGBACKREST_REPO1_S3_KEY_TYPE", "shared"),
        ("PGBACKREST_REPO1_S3_KEY", key),
        ("PGBACKREST_REPO1_S3_KEY_SECRET", secret),
        ("PGBACKREST_REPO1_S3_ENDPOINT", url),
        ("PGBACKREST_REPO1_S3_REGION", "eu-1"),
        ("PGBACKREST_REPO1_S3_URI_STYLE", "path"),
    ]);
    assert_eq!(of_tools(&all), expected);
    assert_eq!(said.err(), "");
}

#[tokio::test]
async fn without_a_key_nothing_of_theirs_is_touched() {
    let front = Front::at("http://127.0.0.1:9").await;
    let theirs: BTreeMap<_, _> = OF_THE_CALLER.iter().copied().collect();
    for words in [printing("r", &[]), printing("r", &["--no-s3"]), printing("lake:x", &["--no-s3"])]
    {
        let said = by_caller(&front, &words).await.with(0);
        assert_eq!(of_tools(&variables(&said)), theirs, "{words:?}");
    }
}

#[tokio::test]
async fn with_https_the_name_stays_and_the_certificates_are_told() {
    let front = Front::at("https://s3.example:9").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(vec!["s3.example".into()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let words = printing("lake:orders", &["--ca-file", file.to_str().unwrap()]);
    let all = variables(&by_caller(&front, &words).await.with(0));
    let value = |name: &str| all.get(name).map(String::as_str);
    assert_eq!(value("AWS_ENDPOINT_URL_S3"), Some("https://s3.example:9"));
    assert_eq!(value("DUCKDB_S3_USE_SSL"), Some("true"));
    assert_eq!(value("AWS_ALLOW_HTTP"), None);
    for name in ["AWS_CA_BUNDLE", "RESTIC_CACERT", "FENCE_CA_FILE"] {
        assert_eq!(value(name), file.to_str(), "{name}");
    }
}

#[tokio::test]
async fn variables_that_the_caller_names_are_filled() {
    let front = Front::at("http://localhost:9").await;
    let more = [
        "--no-s3",
        "--set",
        "SPARK_KEY={s3_key}",
        "--set",
        "MC_HOST_lake=http://{s3_key}:{s3_secret}@{s3_host}",
        "--set",
        "RESTIC_REPOSITORY=s3:{s3_endpoint}/repo",
        "--set",
        "PLAIN={{x}} {s3_region}",
        "--set",
        "AWS_REGION=mine",
    ];
    let all = variables(&by_caller(&front, &printing("lake:orders", &more)).await.with(0));
    let (key, secret) = (key_of(&all["FENCE_LOCK_ID"]), secret_of(&all["FENCE_LOCK_ID"]));
    assert_eq!(all["SPARK_KEY"], key);
    assert_eq!(all["MC_HOST_lake"], format!("http://{key}:{secret}@127.0.0.1:9"));
    assert_eq!(all["RESTIC_REPOSITORY"], "s3:http://127.0.0.1:9/repo");
    assert_eq!(all["PLAIN"], "{x} eu-1");
    assert_eq!(all["AWS_REGION"], "mine");
    assert_eq!(all["AWS_ACCESS_KEY_ID"], "AKIAOLD", "--no-s3 leaves it alone");
    // What wants no key needs none, and what the caller says comes last.
    let words = printing("r", &["--set", "AWS_REGION=mine"]);
    assert_eq!(variables(&by_caller(&front, &words).await.with(0))["AWS_REGION"], "mine");
    let words = printing("lake:x", &["--set", "AWS_REGION=mine"]);
    assert_eq!(variables(&by_caller(&front, &words).await.with(0))["AWS_REGION"], "mine");
}

#[tokio::test]
async fn a_command_that_would_lack_its_key_does_not_start() {
    let front = Front::at("http://127.0.0.1:9").await;
    for more in
        [vec!["--s3"], vec!["--set", "K={s3_key}"], vec!["--no-s3", "--set", "K=a{s3_secret}"]]
    {
        let words = [vec!["run", "-r", "r"], more.clone(), vec!["-c", "echo started"]].concat();
        let said = by_caller(&front, &words).await.with(125);
        assert!(said.err().contains("no key of S3") && said.out().is_empty(), "{more:?}: {said:?}");
        let again = by_caller(&front, &["run", "-n", "-r", "r", "--", "true"]).await;
        assert_eq!(again.with(0).err(), "", "its lock was given back");
    }
    by_caller(&front, &["run", "-r", "lake:x", "--s3", "--", "true"]).await.with(0);
    for (more, why) in [
        (vec!["--set", "K={s3_token}"], "stands for nothing"),
        (vec!["--set", "K"], "NAME=VALUE"),
        (vec!["--set", "FENCE_RUN=x"], "FENCE_"),
        (vec!["--s3", "--no-s3"], "cannot be used with"),
    ] {
        let words = [vec!["run", "-r", "lake:x"], more, vec!["-c", "echo started"]].concat();
        let said = by_caller(&front, &words).await.with(125);
        assert!(said.err().contains(why) && said.out().is_empty(), "{words:?}: {said:?}");
    }
    // A gateway that says nonsense of its place is told, too.
    let front = Front::at("gateway:9").await;
    let said = by_caller(&front, &["run", "-r", "lake:x", "-c", "echo started"]).await.with(125);
    assert!(said.err().contains("gateway:9") && said.out().is_empty(), "{said:?}");
    assert!(!said.err().contains("secret"), "{said:?}");
}

#[tokio::test]
async fn whoever_lists_processes_does_not_see_the_secret() {
    let front = Front::at("http://127.0.0.1:9").await;
    let set = ["--set", "K={s3_secret}"];
    let script = "echo $FENCE_LOCK_ID $K; read line";
    let words = [&["run", "-r", "lake:orders"][..], &set, &["-c", script]].concat();
    let mut child = fence(front.url(), &words).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let (id, secret) = line.split_once(' ').unwrap();
    assert_eq!(secret, secret_of(id));
    let mut seen = 0;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let said = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        seen += usize::from(said.contains(script));
        assert!(!said.contains(secret), "{said}");
    }
    assert!(seen >= 2, "`fence` and its command are there");
    drop(child.stdin.take());
    // The command could read no line.
    end(child).await.with(1);
}

/// A lock that was lost and taken again has another key, and each command has the one of its own lock.
#[tokio::test]
async fn each_turn_has_the_key_of_its_own_lock() {
    let front = Front::at("http://127.0.0.1:9").await;
    let script = "echo $FENCE_LOCK_ID $AWS_ACCESS_KEY_ID; read line; echo $AWS_ACCESS_KEY_ID";
    let words = ["run", "-r", "lake:orders", "--rejoin=10ms", "--on-loss", "ignore", "-c", script];
    let mut child = fence(front.url(), &words).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || lines.next_line().await.unwrap().unwrap();
    let mut locks = Vec::new();
    for _ in 0..2 {
        let line = next().await;
        let (id, key) = line.split_once(' ').unwrap();
        assert_eq!(key, key_of(id));
        front.gateway.client().break_lock("lake:orders", "a test").await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut input, b"go on\n").await.unwrap();
        assert_eq!(next().await, key, "what runs keeps its key");
        locks.push(id.to_owned());
    }
    assert_ne!(locks[0], locks[1]);
    fence_tests::process::signal("TERM", &[super::super::pid(&child)]);
    drop(input);
    end(child).await;
}

#[tokio::test]
async fn whoever_is_elected_has_a_key_too() {
    let front = Front::at("http://127.0.0.1:9").await;
    let words = ["elect", "lake:leader", "--s3", "--set", "K={s3_key}", "--"];
    let script = ["sh", "-c", "echo $FENCE_LOCK_ID $K; kill -TERM $PPID; sleep 9"];
    let said = end(fence(front.url(), &[&words[..], &script].concat()).spawn().unwrap()).await;
    let out = said.out();
    let (id, key) = out.trim().split_once(' ').unwrap();
    assert_eq!(key, key_of(id));
}
