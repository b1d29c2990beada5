//! `fencegate bucket`, and `fencegate keys new --s3`.

use fence_tests::access::{Key, Rules};
use fence_tests::gateway::Gateway;
use fencegate_s3::key::{Named, Rights};
use serde_json::json;

use super::keys::{keys, root, speaking_s3};
use crate::setup::{SetUp, on_both};

on_both!(
    buckets_are_made_by_commands,
    keys_of_anyone_are_made_by_commands,
    a_principals_key_is_made_by_a_command
);

async fn done(gateway: &Gateway, args: &[&str]) -> String {
    let (code, out, log) = gateway.run(args).await;
    assert_eq!(code, Some(0), "{args:?}: {out}{log}");
    out
}

async fn refused(gateway: &Gateway, args: &[&str], code: i32, says: &str) {
    let (ended, out, log) = gateway.run(args).await;
    assert!(ended == Some(code) && log.contains(says), "{args:?}: {ended:?} {out}{log}");
}

async fn buckets_are_made_by_commands(setup: SetUp) {
    let mut gateway = setup.start().await;
    let url = gateway.url();
    assert_eq!(done(&gateway, &["bucket", "ls"]).await, "");
    done(&gateway, &["bucket", "make", "lake", "--depth", "1"]).await;
    done(&gateway, &["bucket", "make", "lake", "--depth", "1"]).await;
    done(&gateway, &["bucket", "make", "bay", "--url", &url]).await;
    refused(&gateway, &["bucket", "make", "lake"], 1, "the depth of this bucket is 1").await;
    refused(&gateway, &["bucket", "make", "lake", "--url", &url], 1, "bucket-depth-differs").await;
    refused(&gateway, &["bucket", "make", "sea", "--depth", "4"], 2, "0, 1, 2 or 3").await;
    refused(&gateway, &["bucket", "make", "Sea"], 2, "lower case letters").await;
    let listed = done(&gateway, &["bucket", "ls"]).await;
    let lines: Vec<_> = listed.lines().map(|line| line.split("\tsince ").next()).collect();
    assert_eq!(lines, [Some("bay\tdepth 0"), Some("lake\tdepth 1")]);
    assert_eq!(done(&gateway, &["bucket", "ls", "--url", &url]).await, listed);

    let lock = gateway.client().acquire("lake:orders", "10m").await;
    let client = gateway.client();
    client.put("lake:orders", "k", "x").under(&lock).send().await.expect(201);
    refused(&gateway, &["bucket", "rm", "lake"], 1, "the bucket has objects").await;
    client.delete("lake:orders", "k").under(&lock).send().await.expect(204);
    done(&gateway, &["bucket", "rm", "lake"]).await;
    refused(&gateway, &["bucket", "rm", "lake"], 1, "no bucket of this name").await;
    refused(&gateway, &["bucket", "rm", "lake", "--url", &url], 1, "bucket-not-found").await;

    // Without a gateway, in the ledger itself.
    gateway.term();
    gateway.wait_for_exit().await;
    done(&gateway, &["bucket", "make", "sea", "--depth", "3"]).await;
    done(&gateway, &["bucket", "rm", "bay"]).await;
    refused(&gateway, &["bucket", "make", "lake"], 1, "the depth of this bucket is 1").await;
    let listed = done(&gateway, &["bucket", "ls"]).await;
    assert!(listed.starts_with("sea\tdepth 3\t") && listed.lines().count() == 1, "{listed}");
    gateway.spawn();
    gateway.wait_until_ready().await;
    assert_eq!(done(&gateway, &["bucket", "ls"]).await, listed);
}

/// The id and the secret that a command prints, and what comes behind.
fn printed(out: &str) -> (String, String, String) {
    let mut lines = out.lines();
    let mut value = |name: &str| {
        let line = lines.next().unwrap_or_default();
        line.strip_prefix(name).unwrap_or_else(|| panic!("{out}")).to_owned()
    };
    let (id, secret) = (value("AWS_ACCESS_KEY_ID="), value("AWS_SECRET_ACCESS_KEY="));
    (id, secret, lines.collect::<Vec<_>>().join("\n"))
}

async fn keys_of_anyone_are_made_by_commands(setup: SetUp) {
    let root = root();
    let mut gateway = speaking_s3(setup.settings().await, &root).start().await;
    let url = gateway.url();
    let is_good = |out: &str, rights: Rights| {
        let (id, secret, rest) = printed(out);
        let (named, read) = keys(&root).read(&id).expect("a key of this root");
        assert_eq!((named, read.reveal(), rest.as_str()), (Named::Anyone(rights), &*secret, ""));
        id
    };
    let first = is_good(&done(&gateway, &["keys", "new", "--s3", "read"]).await, Rights::Read);
    let other = is_good(&done(&gateway, &["keys", "new", "--s3", "read"]).await, Rights::Read);
    assert_ne!(first, other);
    let remote = ["keys", "new", "--s3", "admin", "--url", &url];
    is_good(&done(&gateway, &remote).await, Rights::Admin);
    refused(&gateway, &["keys", "new", "--s3"], 2, "--principal").await;
    refused(&gateway, &["keys", "new", "--s3", "read", "--principal", "ann"], 2, "--s3 goes").await;
    refused(&gateway, &["keys", "new", "--principal", "ann"], 2, "--s3").await;
    refused(&gateway, &["keys", "new", "--s3", "write"], 2, "possible values: read, admin").await;
    gateway.term();
    gateway.wait_for_exit().await;
    is_good(&done(&gateway, &["keys", "new", "--s3", "admin"]).await, Rights::Admin);
}

async fn a_principals_key_is_made_by_a_command(setup: SetUp) {
    let (root, rules) = (root(), Rules::new().await);
    let ann = Key::new().await;
    let text = rules.text("allow = [\"read\"]\nresources = [\"lake\"]", &[("ann", &ann)]);
    let settings = speaking_s3(setup.settings().await, &root);
    let gateway = setup.start_ruled(settings, &rules, &text).await;
    let file = rules.home.path().join("admin.key");
    rules.admin.store(&file);
    let (url, file) = (gateway.url(), file.to_str().expect("a path").to_owned());
    let of_gateway = ["--url", &url, "--auth-token-file", &file];
    let new = [&["keys", "new", "--s3", "--principal", "loader"], &of_gateway[..]].concat();
    let (id, secret, line) = printed(&done(&gateway, &new).await);
    let (named, read) = keys(&root).read(&id).expect("a key of this root");
    let Named::Principal { kid } = named else { panic!("{named:?}") };
    assert_eq!(read.reveal(), secret);
    assert!(line.contains("[[principals]] of \"loader\""), "{line}");
    assert!(line.ends_with(&format!("s3_keys = [\"{kid}\"]")), "{line}");
    // With that line in the rules they can be put in force, and the key is that principal's.
    let more = format!(
        "{text}\n[[roles]]\nname = \"looks\"\nallow = [\"read\"]\nresources = [\"lake\"]\n\
         [[principals]]\nname = \"loader\"\nroles = [\"looks\"]\ns3_keys = [\"{kid}\"]\n"
    );
    let apply = json!({ "rules": more, "reason": "a loader" }).to_string();
    let client = gateway.client();
    let call = client.call(reqwest::Method::PUT, "/admin/access").body(apply);
    rules.admin.by(call.header("content-type", "application/json")).send().await.expect(200);

    // Where rules are in force, nobody's key is for everybody.
    let anyone = client.post("/admin/s3-keys", &json!({ "rights": "admin" }));
    rules.admin.by(anyone).send().await.refused(400, "body-malformed");
    let denied = client.post("/admin/s3-keys", &json!({}));
    ann.by(denied).send().await.refused(403, "permission-denied");
}
