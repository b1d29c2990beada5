//! The command line: what each command prints, what it refuses, and with which exit code.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, binary};
use fence_tests::postgres::Postgres;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// How a command ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs `fencegate` in an empty directory, with these variables and no others of its own.
pub async fn fencegate(args: &[&str], env: &[(&str, &str)]) -> Ended {
    let home = TempDir::new().unwrap();
    fencegate_in(home.path(), args, env).await
}

async fn fencegate_in(home: &Path, args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = tokio::process::Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FENCEGATE_") {
            command.env_remove(name);
        }
    }
    command.args(args).envs(env.iter().copied()).current_dir(home).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{args:?} does not end")).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[tokio::test]
async fn openapi_yaml_is_current() {
    let printed = fencegate(&["openapi"], &[]).await;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi.yaml");
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == printed.out,
        "openapi.yaml is not what the gateway says of itself; refresh it with\n    \
         cargo run -q -p fencegate -- openapi > openapi.yaml"
    );
    let gateway = Gateway::embedded().start().await;
    let served = gateway.client().get("/openapi.yaml").send().await.expect(200);
    assert_eq!(served.text(), committed);
}

#[tokio::test]
async fn check_config_shows_the_guarantee_and_hides_secrets() {
    let url = "postgres://fence:hunter2@db.example:5432/fence?password=hunter3";
    let args = ["check-config", "--postgres", url, "--etcd", "e1.example:2379,e2.example:2379"];
    let env = [
        ("FENCEGATE_ETCD_USER", "fence"),
        ("FENCEGATE_ETCD_PASSWORD", "swordfish"),
        ("FENCEGATE_INSECURE_BACKENDS", "true"),
    ];
    let shown = fencegate(&args, &env).await;
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    for secret in ["hunter2", "hunter3", "swordfish"] {
        assert!(!shown.out.contains(secret), "{}", shown.out);
    }
    for told in ["guarantee: strict", "db.example", "e2.example:2379", "# ledger: postgres", "***"]
    {
        assert!(shown.out.contains(told), "{told}: {}", shown.out);
    }
    let alone = fencegate(&["check-config"], &[]).await;
    assert_eq!(alone.code, Some(0));
    for told in ["guarantee: strict", "# ledger: sqlite", "# mint: embedded", "127.0.0.1:8080"] {
        assert!(alone.out.contains(told), "{told}: {}", alone.out);
    }
    // What it prints is a file that can be read again.
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("fencegate.toml"), &alone.out).unwrap();
    let again = fencegate_in(home.path(), &["check-config"], &[]).await;
    assert_eq!((again.code, again.out), (Some(0), alone.out));
}

/// The path of a socket has a bound that those of folders have not.
#[tokio::test]
async fn a_data_directory_too_deep_for_a_socket_is_told_with_what_follows_from_it() {
    let home = TempDir::new().unwrap();
    let folder = home.path().join("x".repeat(60)).join("y".repeat(60));
    let [folder, rules] = [folder, home.path().join("rules.toml")];
    let at = ["--data-dir", folder.to_str().unwrap()];
    let why = "has more than the 107 bytes that a socket may have; name a shorter data_dir";
    let checked = fencegate(&[&["check-config"], &at[..]].concat(), &[]).await;
    assert!(
        checked.code == Some(0) && checked.out.contains("# warning: there is no admin.sock"),
        "{}",
        checked.out
    );
    assert!(checked.out.contains(why), "{}", checked.out);
    let none =
        fencegate(&["check-config", at[0], at[1], "--admin-listen", "127.0.0.1:0"], &[]).await;
    assert!(none.code == Some(0) && !none.out.contains(why), "{}", none.out);
    let mut gateway = tokio::process::Command::new(binary());
    gateway
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(at)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut gateway = gateway.spawn().unwrap();
    let mut log = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let mut said = String::new();
    while !said.contains("listening on") {
        said += &log.next_line().await.unwrap().expect("it starts");
    }
    assert!(said.contains(why), "{said}");
    for command in [&["access", "init", rules.to_str().unwrap()][..], &["bucket", "make", "lake"]] {
        let refused = fencegate(&[command, &at].concat(), &[]).await;
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        let cause = refused.err.lines().find(|line| line.contains("in use by another process"));
        assert!(cause.is_some_and(|line| line.contains(why)), "{}", refused.err);
    }
}

#[tokio::test]
async fn postgres_and_etcd_go_together_or_not_at_all() {
    let url = "postgres://fence:hunter2@127.0.0.1:1/fence";
    for command in ["serve", "migrate", "check-config"] {
        let alone = fencegate(&[command, "--postgres", url], &[]).await;
        assert_eq!(alone.code, Some(2), "{command}: {}", alone.err);
        let reason = "it needs etcd as well: a Postgres that was restored or failed over";
        assert!(alone.err.contains(reason) && !alone.err.contains("hunter2"), "{}", alone.err);
        let alone = fencegate(&[command, "--etcd", "127.0.0.1:1"], &[]).await;
        assert_eq!(alone.code, Some(2), "{command}: {}", alone.err);
        let reason = "it needs postgres as well: without a ledger in common";
        assert!(alone.err.contains(reason), "{}", alone.err);
    }
}

#[tokio::test]
async fn what_is_no_setting_is_refused_wherever_it_stands() {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("odd.toml"), "queu_max = 5\n").unwrap();
    let refused = [
        fencegate(&["check-config", "--queu-max", "5"], &[]).await,
        fencegate(&["serve"], &[("FENCEGATE_QUEU_MAX", "5")]).await,
        fencegate_in(home.path(), &["serve", "--config", "odd.toml"], &[]).await,
        fencegate(&["check-config"], &[("FENCEGATE_QUEUE_MAX", "0")]).await,
        fencegate(&["check-config"], &[("FENCEGATE_QUEUE_MAX", "many")]).await,
        fencegate(&["check-config"], &[("FENCEGATE_REQUEST_TIMEOUT", "5")]).await,
        fencegate(&["serve", "--config", "absent.toml"], &[]).await,
        fencegate(&["serve", "--log", "fencegate=loud"], &[]).await,
        fencegate(&["brew"], &[]).await,
        fencegate(&[], &[]).await,
    ];
    for ended in &refused {
        assert_eq!(ended.code, Some(2), "{}{}", ended.out, ended.err);
        assert!(!ended.err.is_empty());
    }
    assert!(refused[1].err.contains("FENCEGATE_QUEU_MAX"), "{}", refused[1].err);
    assert!(refused[2].err.contains("odd.toml") && refused[2].err.contains("queu_max"));
    assert!(refused[3].err.contains("queue_max (from FENCEGATE_QUEUE_MAX): 0 is not from 1"));
}

#[tokio::test]
async fn later_places_win_over_earlier_ones() {
    let home = TempDir::new().unwrap();
    let file = "queue_max = 11\nbatch_max = 12\ninline_bytes_max = 13\n";
    std::fs::write(home.path().join("fencegate.toml"), file).unwrap();
    let env = [("FENCEGATE_BATCH_MAX", "22"), ("FENCEGATE_INLINE_BYTES_MAX", "23")];
    let args = ["check-config", "--inline-bytes-max", "33"];
    let shown = fencegate_in(home.path(), &args, &env).await;
    for line in
        ["queue_max = 11", "batch_max = 22", "inline_bytes_max = 33", "rejections_max = 100000"]
    {
        assert!(shown.out.lines().any(|found| found == line), "{line}: {}", shown.out);
    }
}

#[tokio::test]
async fn migrate_prepares_the_ledger_and_may_be_repeated() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data").to_str().unwrap().to_owned();
    for _ in 0..2 {
        let done = fencegate(&["migrate", "--create", "--data-dir", &data], &[]).await;
        assert_eq!(done.code, Some(0), "{}", done.err);
        assert!(done.err.contains("the ledger is up to date"), "{}", done.err);
    }
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let url = postgres.database().await;
    let args = ["migrate", "--postgres", &url, "--etcd", &etcd.endpoint()];
    for _ in 0..2 {
        let done = fencegate(&args, &[]).await;
        assert_eq!(done.code, Some(0), "{}", done.err);
        assert!(done.err.contains("the Postgres schema is up to date"), "{}", done.err);
    }
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).start().await;
    gateway.client().acquire("job:1", "10m").await;
    let nowhere =
        ["migrate", "--postgres", "postgres://x:hunter2@127.0.0.1:1/x", "--etcd", "127.0.0.1:1"];
    let failed = fencegate(&nowhere, &[]).await;
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    assert!(!failed.err.contains("hunter2"), "{}", failed.err);
}

/// A command in the wrong folder speaks of no ledger of its own as of that of the gateway.
#[tokio::test]
async fn in_the_wrong_folder_nothing_is_made() {
    let home = TempDir::new().unwrap();
    let why = ["--reason", "a slip"];
    std::fs::write(home.path().join("rules.toml"), "").unwrap();
    let commands: [&[&str]; 17] = [
        &["access", "init", "first.toml"],
        &["access", "show"],
        &["access", "apply", "rules.toml", why[0], why[1]],
        &["access", "explain", "--principal", "a", "--action", "read", "--resource", "r"],
        &["bucket", "ls"],
        &["bucket", "make", "lake"],
        &["bucket", "rm", "lake"],
        &["keys", "new", "--s3", "read"],
        &["audit", "verify"],
        &["audit", "export"],
        &["audit", "checkpoint"],
        &["audit", "key"],
        &["migrate"],
        &["scrub"],
        &["backup", "copy"],
        &["refence", why[0], why[1]],
        &["agree", "--clock-is-right", why[0], why[1]],
    ];
    let names = || {
        let entries = std::fs::read_dir(home.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let place = home.path().canonicalize().unwrap().join("fencegate-data");
    for command in commands {
        let refused = fencegate_in(home.path(), command, &[]).await;
        assert_eq!(refused.code, Some(1), "{command:?}: {}{}", refused.out, refused.err);
        assert!(refused.err.contains(place.to_str().unwrap()), "{command:?}: {}", refused.err);
        assert_eq!(names(), ["rules.toml"], "{command:?}");
    }
    // A directory that is there already is no ledger.
    std::fs::create_dir(&place).unwrap();
    let refused = fencegate_in(home.path(), &["access", "show"], &[]).await;
    assert!(refused.code == Some(1) && refused.err.contains("holds no ledger"), "{}", refused.err);
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    // Who says so gets one.
    for command in [&["bucket", "make", "lake", "--create"][..], &["access", "init", "first.toml"]]
    {
        let made = fencegate_in(home.path(), command, &[]).await;
        assert_eq!(made.code, Some(0), "{command:?}: {}", made.err);
    }
    let listed = fencegate_in(home.path(), &["bucket", "ls"], &[]).await;
    assert!(
        listed.code == Some(0) && listed.out.starts_with("lake\t"),
        "{}{}",
        listed.out,
        listed.err
    );
}

#[tokio::test]
async fn a_gateway_starts_on_what_migrate_prepared() {
    let gateway = Gateway::embedded().env("FENCEGATE_QUEUE_MAX", "100");
    let mut gateway = gateway.start().await;
    gateway.kill9();
    std::fs::remove_dir_all(gateway.data_dir()).unwrap();
    let data = gateway.data_dir();
    let prepared =
        fencegate(&["migrate", "--create", "--data-dir", data.to_str().unwrap()], &[]).await;
    assert_eq!(prepared.code, Some(0), "{}", prepared.err);
    gateway.restart().await;
    gateway.client().acquire("job:1", "10m").await;
}

#[tokio::test]
async fn a_data_directory_has_one_gateway_at_a_time() {
    let gateway = Gateway::embedded().start().await;
    let data = gateway.data_dir();
    let data = data.to_str().unwrap();
    for args in [
        vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", data],
        vec!["migrate", "--data-dir", data],
    ] {
        let second = fencegate(&args, &[]).await;
        assert_eq!(second.code, Some(1), "{}", second.err);
        let reason = format!("in use by another process (pid {})", gateway.pid());
        assert!(second.err.contains(&reason), "{}", second.err);
    }
    let taken = gateway.address().to_string();
    let home = TempDir::new().unwrap();
    let elsewhere = home.path().join("data").to_str().unwrap().to_owned();
    let args = ["serve", "--listen", &taken, "--data-dir", &elsewhere];
    let second = fencegate(&args, &[]).await;
    assert_eq!(second.code, Some(1), "{}", second.err);
    assert!(second.err.contains("cannot listen on"), "{}", second.err);
    gateway.client().acquire("job:1", "10m").await;
}
